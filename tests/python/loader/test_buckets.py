"""`batching.Buckets` beside the reference of the plan: partition, budget, ranks, resume."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, augment, crops, features, sampling
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
    assert (
        sum(bucket["rows"] for bucket in loader.buckets) == loader.n_records if hasattr(loader, "n_records") else True
    )


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
        assert loader.buckets == [
            {"max_seconds": length, "batch_size": n, "rows": 11, "seconds": pytest.approx(11 * length)}
        ]
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
