"""`batching.Buckets` beside the reference of the plan: partition, budget, ranks, resume."""

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, StateError, augment, crops, features, sampling, targets
from forebay.batching import Buckets
from utterances import RATE, write_utterances

N = 120
WAVEFORM = features.Waveform(sample_rate=RATE)


def lengths() -> list[float]:
    generator = np.random.default_rng(5)
    return [round(float(length), 3) for length in generator.lognormal(-1.6, 0.6, N).clip(0.05, 0.9)]


SECONDS = lengths()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_utterances(tmp_path_factory.mktemp("utterances"), SECONDS)


GIVEN: dict[str, Any] = {
    "crop": crops.Whole(max_seconds=1.0, duration="duration"),
    "batching": Buckets(max_duration=2.0, num_buckets=5),
    "features": WAVEFORM,
    "n_workers": 2,
    "augment": False,
    "order": "global",
}


def padded_seconds(batch: dict[str, Any]) -> float:
    rows, longest = batch["waveform"].shape
    return float(rows * longest / RATE)


@pytest.mark.parametrize("order", ["sequential", "global", "era"])
@pytest.mark.parametrize("pad_to", ["longest", "bucket", 160])
def test_each_row_is_in_one_batch_within_the_budget(table: Path, order: str, pad_to: Any) -> None:
    given = GIVEN | {"batching": Buckets(max_duration=2.0, num_buckets=5, pad_to=pad_to), "order": order}
    loader = forebay.Loader(table, infinite=False, **given)
    assert loader.buckets is not None
    bounds = [round(bucket["max_seconds"] * RATE) for bucket in loader.buckets]
    batches = list(loader)
    assert len(batches) == len(loader)
    assert sorted(row for batch in batches for row in batch["index"]) == list(range(N))
    sizes = set()
    for batch in batches:
        slack = 160 / RATE * len(batch["index"]) if pad_to == 160 else 0.0
        assert padded_seconds(batch) <= 2.0 + slack + 1e-6
        longest = max(batch["valid_samples"])
        width = batch["waveform"].shape[1]
        sizes.add(width)
        if pad_to == "longest":
            assert width == longest
        elif pad_to == 160:
            assert width % 160 == 0
            assert width - longest < 160
        else:
            assert width in bounds or width >= longest
    if pad_to == "bucket":
        assert len([width for width in sizes if width in bounds]) >= 3


def test_padding_is_less_than_in_batches_at_random(table: Path) -> None:
    def share(batches: list[dict[str, Any]]) -> float:
        padded = sum(batch["waveform"].size for batch in batches)
        return 1.0 - sum(int(batch["valid_samples"].sum()) for batch in batches) / float(padded)

    buckets = share(list(forebay.Loader(table, infinite=False, **GIVEN)))
    random = share(list(forebay.Loader(table, infinite=False, **GIVEN | {"batching": None, "batch_size": 8})))
    assert buckets < 0.6 * random


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_take_the_same_steps(table: Path, world_size: int) -> None:
    given = GIVEN | {"n_streams": 4, "infinite": False}
    whole = list(forebay.Loader(table, **given))
    ranks = [list(forebay.Loader(table, rank=rank, world_size=world_size, **given)) for rank in range(world_size)]
    share = 4 // world_size
    assert {len(rank) for rank in ranks} == {len(whole) // world_size}
    for at, batch in enumerate(whole):
        step, stream = divmod(at, 4)
        other = ranks[stream // share][step * share + stream % share]
        assert all(np.array_equal(batch[name], other[name]) for name in batch)


def test_a_state_continues_at_every_batch(table: Path) -> None:
    loader = forebay.Loader(table, infinite=True, **GIVEN)
    states, batches = [], []
    for _ in range(30):
        states.append(pickle.dumps(loader.state_dict()))
        batches.append(next(loader))
    assert max(map(len, states)) < 4096
    for at in range(0, 30, 3):
        again = forebay.Loader(table, infinite=True, **GIVEN)
        again.load_state_dict(pickle.loads(states[at]))
        for batch in batches[at : at + 3]:
            other = next(again)
            assert all(np.array_equal(batch[name], other[name]) for name in batch)


def test_a_state_continues_on_fewer_ranks(table: Path) -> None:
    given = GIVEN | {"n_streams": 4, "infinite": True}
    ranks = [forebay.Loader(table, rank=rank, world_size=4, **given) for rank in range(4)]
    for _ in range(5):
        for rank in ranks:
            next(rank)
    state = ranks[0].state_dict()
    expected = [[next(rank) for rank in ranks] for _ in range(3)]
    halves = [forebay.Loader(table, rank=rank, world_size=2, **given) for rank in range(2)]
    for half in halves:
        half.load_state_dict(state)
    for step in expected:
        found = [next(half) for half in halves for _ in range(2)]
        for batch, other in zip(step, found, strict=True):
            assert all(np.array_equal(batch[name], other[name]) for name in batch)


def test_lengths_are_part_of_the_state(table: Path) -> None:
    loader = forebay.Loader(table, **GIVEN)
    state = loader.state_dict()
    other = forebay.Loader(table, **GIVEN | {"batching": Buckets(max_duration=2.0, num_buckets=4)})
    with pytest.raises(forebay.StateError, match="batching"):
        other.load_state_dict(state)


def test_lengths_are_those_after_speed(table: Path) -> None:
    given = GIVEN | {"augment": [augment.Speed((0.8, 1.0, 1.25))], "infinite": False}
    loader = forebay.Loader(table, **given)
    batches = list(loader)
    assert sorted(row for batch in batches for row in batch["index"]) == list(range(N))
    factors = set()
    for batch in batches:
        assert padded_seconds(batch) <= 2.0 + 1e-3 * len(batch["index"])
        for row, n in zip(batch["index"], batch["valid_samples"], strict=True):
            factors.add(round(SECONDS[row] * RATE / n, 2))
    assert factors == {0.8, 1.0, 1.25}


def test_what_is_cut_keeps_the_budget(table: Path) -> None:
    """A long recording is cut at `max_seconds` before it is played faster or slower."""
    crop = crops.Whole(max_seconds=0.3, on_long="cut", duration="duration")
    given = GIVEN | {"crop": crop, "augment": [augment.Speed((0.8, 1.25))], "infinite": False}
    batches = list(forebay.Loader(table, **given))
    assert sorted(row for batch in batches for row in batch["index"]) == list(range(N))
    for batch in batches:
        assert padded_seconds(batch) <= 2.0 + 1e-3 * len(batch["index"])
        for row, n in zip(batch["index"], batch["valid_samples"], strict=True):
            seconds = min(SECONDS[row], 0.3)
            assert min(abs(n - seconds / factor * RATE) for factor in (0.8, 1.25)) <= 1


def test_recordings_that_are_all_bad_end_with_an_error(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.2, 0.3], said=False)
    for row in range(2):
        (tmp_path / f"{row}.wav").write_bytes(b"no recording")
    loader = forebay.Loader(table, infinite=False, **GIVEN | {"crop": crops.Whole(max_seconds=1.0)})
    with pytest.raises(forebay.DecodeError, match="2 of 2 records"):
        list(loader)


def test_a_bad_record_is_replaced_from_its_bucket(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, SECONDS)
    bad = [3, 50, 77]
    for row in bad:
        (tmp_path / f"{row}.wav").write_bytes(b"no recording")
    loader = forebay.Loader(table, infinite=True, **GIVEN)
    seen = [next(loader) for _ in range(60)]
    assert all(padded_seconds(batch) <= 2.0 + 1e-6 for batch in seen)
    assert not {int(row) for batch in seen for row in batch["index"]} & set(bad)
    finite = forebay.Loader(table, infinite=False, **GIVEN)
    rows = [row for batch in finite for row in batch["index"]]
    assert sorted(rows) == [row for row in range(N) if row not in bad]


def test_a_recording_longer_than_its_row_says_is_bad(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, SECONDS, said=False)
    loader = forebay.Loader(table, infinite=False, **GIVEN | {"crop": crops.Whole(max_seconds=1.0)})
    # Written again since its length was read.
    row = int(np.argmin(SECONDS))
    (tmp_path / f"{row}.wav").write_bytes((tmp_path / f"{int(np.argmax(SECONDS))}.wav").read_bytes())
    rows = [row for batch in loader for row in batch["index"]]
    assert row not in rows
    assert len(rows) == N - 1


def test_weights_and_subsets(table: Path) -> None:
    given = GIVEN | {"infinite": False, "sampling": sampling.Where("label", minimum=60)}
    rows = [int(row) for batch in forebay.Loader(table, **given) for row in batch["index"]]
    assert sorted(rows) == list(range(60, N))
    given["sampling"] = sampling.Weighted("label") & sampling.Where("label", minimum=60)
    batches = list(forebay.Loader(table, **given))
    assert all(padded_seconds(batch) <= 2.0 + 1e-6 for batch in batches)
    assert sum(len(batch["index"]) for batch in batches) == 60


def test_mixtures(table: Path) -> None:
    given = GIVEN | {"infinite": True, "weights": {"a": 0.75, "b": 0.25}}
    loader = forebay.Loader({"a": table, "b": table}, **given)
    sources = np.concatenate([next(loader)["source"] for _ in range(200)])
    assert abs(float(np.mean(sources == 0)) - 0.75) < 0.05


def test_spectrograms_and_the_recipe(table: Path) -> None:
    given = GIVEN | {"features": "icefall", "crop": crops.Whole(min_seconds=0.1, max_seconds=1.0), "infinite": False}
    loader = forebay.Loader(table, **given)
    for batch in loader:
        assert batch["spectrogram"].shape[2] == 80
        assert batch["spectrogram"].shape[1] == batch["valid_frames"].max()
    recipe = loader.recipe.to_dict()
    assert json.loads(json.dumps(recipe))["batching"]["max_duration"] == 2.0
    assert "Buckets(max_duration=2.0, num_buckets=5)" in repr(loader.recipe)
    assert "batches of 2.0 s" in repr(loader)
    assert loader.buckets is not None
    assert sum(bucket["rows"] for bucket in loader.buckets) == loader.num_records


def test_the_padding_that_is_told_is_that_of_the_pass(table: Path) -> None:
    for more in (
        {},
        {"n_streams": 4, "order": "window", "shuffle_min_size": 30},
        {"augment": [augment.Speed((0.8, 1.25))]},
    ):
        loader = forebay.Loader(table, infinite=False, **GIVEN | more)
        assert loader.buckets is not None
        assert loader.padding is not None
        batches, number = list(loader), [0] * len(loader.buckets)
        padded, valid = np.zeros((2, len(loader.buckets)))
        for batch in batches:
            bucket = batch["bucket"].max()
            number[bucket] += 1
            padded[bucket] += batch["waveform"].size
            valid[bucket] += batch["valid_samples"].sum()
        assert [bucket["batches"] for bucket in loader.buckets] == number
        assert loader.padding["batches"] == len(batches)
        # The length of a clip is that of its row to half a sample.
        for bucket, all_samples, own in zip(loader.buckets, padded, valid, strict=True):
            assert bucket["padding"] * all_samples == pytest.approx(all_samples - own, abs=1e-3 * all_samples)
        assert loader.padding["share"] == pytest.approx(1.0 - valid.sum() / padded.sum(), abs=1e-3)
        assert loader.padding["share"] < loader.padding["random"] < 1.0
        text = f"{len(batches)} an epoch on all ranks, {loader.padding['share']:.1%} padding"
        assert text in str(loader.recipe)
        assert "padding" not in loader.recipe.to_dict()
    assert forebay.Loader(table, batch_size=4).padding is None


def test_the_bucket_of_each_row(table: Path) -> None:
    loader = forebay.Loader(table, infinite=False, **GIVEN)
    assert loader.batch_size >= max(bucket["batch_size"] for bucket in loader.buckets or ())
    bounds = [bucket["max_seconds"] for bucket in loader.buckets or ()]
    for batch in loader:
        seconds = [SECONDS[row] for row in batch["index"]]
        assert batch["bucket"].tolist() == np.searchsorted(bounds, seconds).tolist()
    assert [field["name"] for field in loader.fields] == ["waveform", "label", "index", "bucket", "valid_samples"]


def test_batch_sizes_that_are_given(table: Path) -> None:
    sizes = {0.15: 12, 0.4: 5, 0.9: 2}
    rows: Any = np.array(list(sizes.values()))
    batching = Buckets(duration_bins=list(sizes), batch_sizes=rows)
    loader = forebay.Loader(table, infinite=False, **GIVEN | {"batching": batching})
    batches = list(loader)
    assert sorted(row for batch in batches for row in batch["index"]) == list(range(N))
    for batch in batches:
        longest = max(SECONDS[row] for row in batch["index"])
        most = next(size for bound, size in sizes.items() if longest <= bound)
        assert len(batch["index"]) <= most
    full = [len(batch["index"]) for batch in batches if len(set(batch["bucket"].tolist())) == 1]
    assert set(sizes.values()) <= set(full)
    assert Buckets.from_dict(json.loads(json.dumps(batching.to_dict()))) == batching
    short = Buckets(duration_bins=[0.2], batch_sizes=[4])
    with pytest.raises(ConfigError, match="longer than the last of duration_bins"):
        forebay.Loader(table, **GIVEN | {"batching": short})


def said(folder: Path) -> Path:
    """Utterances whose text is not as long as they are."""
    draw = np.random.default_rng(2)
    texts = ["ab"[row % 2] * int(draw.integers(0, 40)) for row in range(N)]
    return write_utterances(folder, SECONDS, columns={"text": texts})


LETTERS = {"letters": targets.Characters("text", "ab", pad=-1)}


@pytest.mark.parametrize("more", [{}, {"augment": [augment.Speed((0.8, 1.0, 1.25))]}, {"n_streams": 4}])
def test_tokens_bound_batches_too(tmp_path: Path, more: dict[str, Any]) -> None:
    given = GIVEN | {"targets": LETTERS, "batching": Buckets(2.0, num_buckets=4, max_tokens=90, token_bins=3)} | more
    loader = forebay.Loader(said(tmp_path / "said"), infinite=False, **given)
    batches = list(loader)
    assert sorted(row for batch in batches for row in batch["index"]) == list(range(N))
    for batch in batches:
        assert batch["letters"].size <= 90
        assert padded_seconds(batch) <= 2.0 * (1 + 1e-3)
    buckets = loader.buckets or []
    assert len({bucket["max_seconds"] for bucket in buckets}) >= 4
    assert len(buckets) > 8
    assert sum(bucket["rows"] for bucket in buckets) == N
    padding = 1 - sum(batch["letters_length"].sum() for batch in batches) / sum(
        batch["letters"].size for batch in batches
    )
    one = given | {"batching": Buckets(2.0, num_buckets=4, max_tokens=90, token_bins=1)}
    without = list(forebay.Loader(tmp_path / "said" / "utterances.jsonl", infinite=False, **one))
    share = 1 - sum(b["letters_length"].sum() for b in without) / sum(b["letters"].size for b in without)
    assert padding < share
    # A state knows the lengths of the texts.
    state = loader.state_dict()
    again = forebay.Loader(tmp_path / "said" / "utterances.jsonl", infinite=False, **given)
    again.load_state_dict(state)
    other = forebay.Loader(said(tmp_path / "other"), infinite=False, **one)
    with pytest.raises(StateError, match="batching"):
        other.load_state_dict(state)


def test_which_target_is_counted(tmp_path: Path) -> None:
    table = said(tmp_path)
    both = LETTERS | {"twice": targets.Characters("text", ["a", "b"], between=0)}
    for buckets, given, message in [
        (Buckets(2.0, max_tokens=90), {}, "no target has tokens"),
        (Buckets(2.0, max_tokens=90), {"targets": both}, r"several targets have tokens; give Buckets\(tokens=\)"),
        (Buckets(2.0, max_tokens=90, tokens="x"), {"targets": both}, 'tokens is "x", and no target'),
        (Buckets(2.0, max_tokens=30), {"targets": LETTERS}, r"has 3\d tokens, which alone exceed max_tokens=30"),
    ]:
        with pytest.raises(ConfigError, match=message):
            forebay.Loader(table, **GIVEN | {"batching": buckets} | given)
    for name, most in [("letters", 90), ("twice", 180)]:
        batching = Buckets(2.0, max_tokens=most, tokens=name)
        batches = forebay.Loader(table, infinite=False, **GIVEN | {"batching": batching, "targets": both})
        assert max(batch[name].size for batch in batches) <= most


@pytest.mark.parametrize("layout", ["waveform", "time", "mel"])
def test_packed_batches(table: Path, layout: Any) -> None:
    made: Any = WAVEFORM if layout == "waveform" else features.LogMel(
        sample_rate=RATE, n_mels=20, n_fft=400, hop_length=160, layout=layout
    )  # fmt: skip
    given = GIVEN | {"features": made, "infinite": False}
    name = "waveform" if layout == "waveform" else "spectrogram"
    valid = "valid_samples" if layout == "waveform" else "valid_frames"
    axis = 1 if layout == "mel" else 0
    padded = list(forebay.Loader(table, **given))
    loader = forebay.Loader(table, **given | {"batching": Buckets(max_duration=2.0, num_buckets=5, packed=True)})
    packed = list(loader)
    assert [field["name"] for field in loader.fields] == list(packed[0])
    assert len(packed) == len(padded)
    for one, other in zip(packed, padded, strict=True):
        offsets = one["offsets"]
        assert offsets.dtype == np.int32
        assert np.diff(offsets).tolist() == one[valid].tolist() == other[valid].tolist()
        assert one[name].shape[axis] == offsets[-1]
        for row, (begin, end) in enumerate(itertools.pairwise(offsets)):
            own = one[name][begin:end] if axis == 0 else one[name][:, begin:end]
            full = other[name][row]
            np.testing.assert_array_equal(own, full[: end - begin] if axis == 0 else full[:, : end - begin])


def test_a_mask_of_valid_frames(table: Path) -> None:
    for given in ({}, {"features": "icefall"}, {"batching": None, "batch_size": 7}, {"features": "whisper"}):
        asked = GIVEN | {"outputs": ["attention_mask"], "infinite": False} | given
        loader = forebay.Loader(table, **asked)
        for batch in loader:
            name, valid = ("waveform", "valid_samples") if "waveform" in batch else ("spectrogram", "valid_frames")
            mask = batch["attention_mask"]
            assert mask.dtype == np.uint8
            assert mask.sum(axis=1).tolist() == batch[valid].tolist()
            assert (np.diff(mask.astype(int), axis=1) <= 0).all()
            assert mask.shape[1] in batch[name].shape[1:]
    for wrong in ({"crop": crops.Start(), "batching": None}, {"batching": Buckets(2.0, packed=True)}):
        with pytest.raises(ConfigError, match="attention_mask"):
            forebay.Loader(table, **GIVEN | {"outputs": ["attention_mask"]} | wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_duration": 0.0}, "max_duration is 0.0, must be above 0"),
        ({"max_duration": float("nan")}, "max_duration is NaN"),
        ({"num_buckets": 0}, "num_buckets is 0, must be 1 to 4096"),
        ({"duration_bins": [3.0, 2.0]}, "duration_bins must rise, and 3.0 is followed by 2.0"),
        ({"duration_bins": []}, "duration_bins is empty"),
        ({"duration_bins": np.array([0.9, 0.3])}, "duration_bins must rise, and 0.9 is followed by 0.3"),
        ({"quadratic_duration": -1.0}, "quadratic_duration is -1.0, must be above 0"),
        ({"max_examples": 0}, "max_examples is 0"),
        ({"pad_to": 0}, "pad_to is 0"),
        ({"max_duration": None}, "max_duration is None"),
        ({"batch_sizes": [3]}, "batch_sizes has 1 size, and duration_bins is None"),
        (
            {"batch_sizes": [3, 2, 1], "duration_bins": [1.0, 2.0]},
            "batch_sizes has 3 sizes, and duration_bins is 2 bins",
        ),
        ({"batch_sizes": [3, 0], "duration_bins": [1.0, 2.0]}, "batch_sizes has 0, must have 1 to"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"tokens": "text"}, "tokens names a target, and max_tokens is None"),
        ({"max_tokens": 9, "token_bins": 0}, "token_bins is 0"),
        ({"packed": True, "pad_to": 8}, "pad_to is 8, and packed=True pads nothing"),
        ({"pad_to": "most"}, "pad_to"),
    ],
)
def test_wrong_values_are_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Buckets(**{"max_duration": 4.0, **wrong})


def test_lengths_are_decimal_numbers(tmp_path: Path) -> None:
    """float32 has no 0.2, 0.3 or 1.6: as many rows fit as the numbers say, and they print as they are."""
    for length, most, n in [(0.3, 0.6, 2), (0.2, 0.6, 3), (1.6, 16.0, 10), (16.7, 16.7, 1)]:
        table = write_utterances(tmp_path / str(length), [length] * 11)
        given = GIVEN | {"crop": crops.Whole(duration="duration"), "batching": Buckets(most), "infinite": False}
        loader = forebay.Loader(table, **given)
        assert loader.buckets is not None
        (bucket,) = loader.buckets
        assert (bucket["max_seconds"], bucket["batch_size"], bucket["rows"]) == (length, n, 11)
        assert bucket["seconds"] == pytest.approx(11 * length)
        assert (bucket["batches"], bucket["padding"]) == (-(-11 // n), 0.0)
        assert sorted(len(batch["index"]) for batch in loader)[-1] == n


def test_bad_recordings_are_spread(tmp_path: Path) -> None:
    """One that cannot be opened when the loader is made counts as a usual one, so many others may replace it."""
    seconds = [0.2] * 20
    table = write_utterances(tmp_path, seconds, said=False)
    for row in (3, 4, 5, 6, 8):
        (tmp_path / f"{row}.wav").write_bytes(b"no recording")
    (tmp_path / "7.wav").write_bytes((tmp_path / "7.wav").read_bytes()[:2000])
    given = GIVEN | {"crop": crops.Whole(), "batching": Buckets(0.65), "infinite": True}
    loader = forebay.Loader(table, **given)
    rows = np.concatenate([next(loader)["index"] for _ in range(40)])
    assert np.bincount(rows, minlength=20).max() < 3 * len(rows) / 14


def test_features_of_one_length_are_refused(table: Path) -> None:
    made = features.LogMel(sample_rate=RATE, n_mels=20, n_fft=400, hop_length=160, n_frames=100)
    with pytest.raises(ConfigError, match="n_frames= makes the features of all as long"):
        forebay.Loader(table, **GIVEN | {"features": made})


def test_names_of_others_are_known() -> None:
    with pytest.raises(TypeError, match="batch_sizes"):
        Buckets(duration_bins=[1.0], bucket_batch_size=[4])  # type: ignore[call-arg]


def test_a_small_table_has_other_batches_in_each_epoch(tmp_path: Path) -> None:
    """Even if no bucket ever fills: rows of about the same length meet others."""
    seconds = [0.1 + row / 2000 for row in range(160)]
    table = write_utterances(tmp_path, seconds)
    given = GIVEN | {"batching": Buckets(1.5, num_buckets=60), "infinite": False, "n_streams": 4}
    loader = forebay.Loader(table, **given)
    epochs = [{frozenset(batch["index"].tolist()) for batch in loader} for _ in range(2)]
    assert all(sorted(row for batch in epoch for row in batch) == list(range(160)) for epoch in epochs)
    assert len(epochs[0] & epochs[1]) < len(epochs[0]) / 3


def test_bad_recordings_of_one_bucket_are_replaced(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.05] * 40 + [0.5, 0.5])
    for row in (40, 41):
        (tmp_path / f"{row}.wav").write_bytes(b"no recording")
    given = GIVEN | {"crop": crops.Whole(duration="duration"), "batching": Buckets(1.0)}
    loader = forebay.Loader(table, infinite=True, **given)
    for _ in range(60):
        assert set(next(loader)["index"].tolist()) <= set(range(40))


def test_rows_without_a_frame_are_left_out(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.001, 0.001, *[0.3] * 20])
    loader = forebay.Loader(table, infinite=False, **GIVEN | {"crop": crops.Whole(), "features": "icefall"})
    assert loader.left_out["too_short"] == 2
    assert sorted(row for batch in loader for row in batch["index"]) == list(range(2, 22))


def test_a_mixture_has_the_same_batches_on_any_number_of_ranks(table: Path, tmp_path: Path) -> None:
    other = write_utterances(tmp_path, [0.2 + row / 200 for row in range(60)])
    given = GIVEN | {"n_streams": 4, "infinite": True, "weights": {"a": 0.7, "b": 0.3}}
    one = forebay.Loader({"a": table, "b": other}, **given)
    two = [forebay.Loader({"a": table, "b": other}, rank=rank, world_size=2, **given) for rank in range(2)]
    for _ in range(3):
        step = [next(one)["index"].tolist() for _ in range(4)]
        assert step == [next(rank)["index"].tolist() for rank in two for _ in range(2)]
    two[1].load_state_dict(one.state_dict())
    assert next(two[1])["index"].tolist() == [next(one)["index"].tolist() for _ in range(3)][2]


def test_padded_tokens_keep_the_budget(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.2] * 40, columns={"text": ["a" * 17] * 40})
    given = GIVEN | {"targets": LETTERS, "crop": crops.Whole(), "infinite": False}
    loader = forebay.Loader(table, **given | {"batching": Buckets(100.0, max_tokens=170, pad_to="bucket")})
    assert max(batch["letters"].size for batch in loader) == 170
    loader = forebay.Loader(table, **given | {"batching": Buckets(100.0, max_tokens=320, pad_to="bucket")})
    assert {batch["letters"].shape[1] for batch in loader} <= {17, 32}


def test_far_batches_of_a_small_table(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.2] * 9)
    given = GIVEN | {"crop": crops.Whole(), "batching": Buckets(0.6), "infinite": True}
    loader = forebay.Loader(table, **given)
    expected = loader.replay(4000)["index"].tolist()
    loader.seek(4000)
    assert next(loader)["index"].tolist() == expected


def test_memory_is_that_of_the_rows_there_are(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [1.0] * 20)
    given = GIVEN | {"crop": crops.Whole(), "batching": Buckets(10.0), "features": "icefall"}
    forebay.Loader.train(table, memory_budget=1 << 30, **given)


def test_a_bool_is_no_multiple() -> None:
    with pytest.raises(TypeError, match="pad_to is True"):
        Buckets(4.0, pad_to=True)


def test_what_cannot_be_is_told(table: Path) -> None:
    with pytest.raises(ConfigError, match=r"alone exceeds max_duration=0\.3; raise it, or leave out longer rows"):
        forebay.Loader(table, **GIVEN | {"batching": Buckets(max_duration=0.3)})
    with pytest.raises(ConfigError, match=r"give\s+crop=forebay\.crops\.Whole\(\)"):
        forebay.Loader(table, **GIVEN | {"crop": None})
    with pytest.raises(ConfigError, match=r"Buckets\(max_examples=8\)"):
        forebay.Loader(table, batch_size=8, **GIVEN)
    with pytest.raises(TypeError, match="Buckets"):
        forebay.Loader(table, **GIVEN | {"batching": 400.0})
