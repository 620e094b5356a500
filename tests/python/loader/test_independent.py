"""`independent=`: recordings of a row whose clips have places of their own, and those of other rows."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from conformance import conforms, spawned
from forebay import ConfigError, StateError, augment, crops, features, sampling
from stems import RATE
from windows import wav

WAVEFORM = features.Waveform(sample_rate=RATE)
BANDS = features.LogMel(sample_rate=RATE, n_fft=64, hop_length=32, n_mels=8, normalization=features.ZScore())
CLIP = 160
GIVEN: dict[str, Any] = {
    "features": WAVEFORM, "clip_seconds": CLIP / RATE, "batch_size": 4, "n_workers": 2, "seed": 3, "infinite": False,
    "audio": {"mix": "mix", "voice": "voice"}, "order": "sequential", "targets": {},
}  # fmt: skip
SPEAKERS = ["a", "b", "a", "c", "b", "a", "b", "a"]
"""Of the rows of a table, again and again, but row 3, which is alone."""


def sound(row: int, name: str, n: int) -> np.ndarray:
    return np.random.default_rng([row, name == "voice"]).integers(1, 15_000, n)


def write(folder: Path, n_rows: int = 8, lengths: tuple[int, ...] = (900, 40, 400)) -> Path:
    """Rows of a mixture and of a recording of its speaker, which is as long as it likes."""
    folder.mkdir(exist_ok=True)
    rows = []
    for row in range(n_rows):
        speaker = "alone" if row == 3 else SPEAKERS[row % len(SPEAKERS)]
        names = {name: f"{row}-{name}.wav" for name in ("mix", "voice")}
        rows.append({**names, "speaker": speaker, "index_in_table": row})
        for name, n in (("mix", 500 + 10 * (row % 7)), ("voice", lengths[row % len(lengths)])):
            (folder / f"{row}-{name}.wav").write_bytes(wav(sound(row, name, n), RATE))
    table = folder / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def batches(table: Any, **given: Any) -> list[dict[str, Any]]:
    return list(forebay.Loader(table, **{**GIVEN, **given}))


def place_of(clip: np.ndarray, whole: np.ndarray) -> int:
    """Where a clip is in a recording, which is zeros behind its end."""
    padded = np.concatenate([whole, np.zeros(CLIP, whole.dtype)]).astype(np.float32) / 32768
    at = [at for at in range(max(len(whole) - CLIP, 0) + 1) if np.array_equal(padded[at : at + CLIP], clip)]
    assert len(at) == 1
    return at[0]


def length(row: int) -> int:
    return (900, 40, 400)[row % 3]


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as made:
        yield made


def test_a_recording_has_a_place_of_its_own(tmp_path: Path) -> None:
    table = write(tmp_path)
    given: dict[str, Any] = {"independent": ["voice"], "crop": crops.Random(), "outputs": ["start"]}
    places = set()
    for batch in itertools.chain(*(batches(table, seed=seed, **given) for seed in range(6))):
        assert "partner_index" not in batch
        for row, mix, voice, start in zip(batch["index"], batch["mix"], batch["voice"], batch["start"], strict=True):
            at = place_of(voice, sound(row, "voice", length(row)))
            places.add((int(row), at))
            assert place_of(mix, sound(row, "mix", 500 + 10 * (row % 7))) == round(start * RATE)
    assert {at for row, at in places if row % 3 == 1} == {0}  # shorter than a clip
    assert len([at for row, at in places if row % 3 == 0]) > 12


ALONE: list[dict[str, Any]] = [
    {"features": BANDS},
    {"augment": [augment.Gain(6.0), augment.Level(-20.0)]},
    {"augment": [augment.Roll((0.25, 0.25))], "features": features.Waveform(sample_rate=RATE, remove_mean=True)},
    {"augment": [augment.Only("mix", [augment.Noise(10.0), augment.Level(-20.0)])]},
    {"augment": [augment.Roll(0.5), augment.SpecAugment(freq=2, time=2), augment.FrameRoll(0.5)], "features": BANDS},
    {"augment": [augment.DropChunk((1, 10)), augment.Polarity(), augment.Dither(0.01)]},
    {"crop": crops.Views(3), "clip_seconds": 0.02},
    {"crop": crops.Loudest(of=3), "clip_seconds": 0.02},
]
"""Parameters under which mixtures of 500 to 560 samples are shorter than a clip of 800, or not."""


@pytest.mark.parametrize("given", ALONE)
def test_the_first_recording_is_as_without(given: dict[str, Any], tmp_path: Path) -> None:
    """Its clip, features, draws and frame targets do not depend on the others, which are longer and shorter."""
    table = write(tmp_path)
    marks = {f"{row}-mix.wav": [(0.0, 0.02 + 0.001 * row, "x")] for row in range(8)}
    annotations = tmp_path / "marks.csv"
    lines = [f"{path},{start},{end},{name}" for path, rows in marks.items() for start, end, name in rows]
    annotations.write_text("\n".join(["path,start,end,label", *lines]) + "\n")
    given = {"clip_seconds": 0.1, **given}
    if "crop" not in given:
        frames = forebay.targets.Frames(annotations)
        given |= {"targets": {"frames": frames}} if given.get("features") is BANDS else {}
    alone = batches(table, **{**given, "audio": {"mix": "mix"}})
    both = batches(table, **given, independent=["voice"])
    for one, other in zip(alone, both, strict=True):
        assert one["mix"].any()
        assert set(other) == {*one, "voice"}
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])


def test_steps_draw_for_each_by_itself(tmp_path: Path) -> None:
    """Gains are of one range, and unlike; the stems that go with the first recording have its gain."""
    table = write(tmp_path)
    given: dict[str, Any] = {
        "audio": {"mix": "mix", "again": "mix", "voice": "voice", "other": "voice"}, "independent": ["voice", "other"],
        "crop": crops.Start(),
    }  # fmt: skip
    gains: dict[str, list[float]] = {}
    for plain, changed in zip(
        batches(table, **given), batches(table, **given, augment=[augment.Gain((-6.0, 6.0))]), strict=True
    ):
        for name in given["audio"]:
            gains.setdefault(name, []).extend(np.abs(changed[name]).sum(1) / np.abs(plain[name]).sum(1))
    assert np.allclose(gains["mix"], gains["again"])
    for one, other in itertools.combinations(("mix", "voice", "other"), 2):
        assert not np.isclose(gains[one], gains[other]).any()
    assert all(10 ** (-0.3 - 1e-3) <= gain <= 10 ** (0.3 + 1e-3) for values in gains.values() for gain in values)


def test_features_of_each_have_their_own_padding(tmp_path: Path) -> None:
    """A normalised spectrogram of the other recording is that of a loader of this one."""
    table = write(tmp_path)
    given: dict[str, Any] = {
        "features": BANDS, "clip_seconds": 0.1, "crop": crops.Start(),
    }  # fmt: skip
    both = batches(table, **given, independent=["voice"])
    alone = batches(table, **{**given, "audio": {"voice": "voice"}})
    for one, other in zip(alone, both, strict=True):
        np.testing.assert_array_equal(one["voice"], other["voice"])


def test_a_partner_is_another_row_of_the_class(tmp_path: Path) -> None:
    table = write(tmp_path, 24)
    speakers = [json.loads(line)["speaker"] for line in table.read_text().splitlines()]
    given: dict[str, Any] = {"independent": {"voice": "speaker"}, "infinite": True, "order": "global", "batch_size": 8}
    drawn: dict[int, list[int]] = {row: [] for row in range(24)}
    with forebay.Loader(table, **{**GIVEN, **given}) as loader:
        for batch in itertools.islice(loader, 300):
            assert batch["partner_index"].shape == (8, 2)
            assert batch["partner_index"].dtype == np.int64
            np.testing.assert_array_equal(batch["partner_index"][:, 0], batch["index"])
            for row, (_, partner), voice in zip(batch["index"], batch["partner_index"], batch["voice"], strict=True):
                drawn[int(row)].append(int(partner))
                place_of(voice, sound(partner, "voice", length(partner)))
    assert set(drawn[3]) == {3}  # alone: its own recording
    statistic, free = 0.0, 0
    for row in (row for row in drawn if row != 3):
        others = [other for other in range(24) if speakers[other] == speakers[row] and other != row]
        counts = np.array([drawn[row].count(other) for other in others])
        assert counts.sum() == len(drawn[row])
        expected = counts.sum() / len(others)
        statistic += ((counts - expected) ** 2 / expected).sum()
        free += len(others) - 1
    assert statistic < free + 5 * np.sqrt(2 * free)


def test_bad_partners_are_listed_and_drawn_again(tmp_path: Path) -> None:
    table = write(tmp_path)
    (tmp_path / "2-voice.wav").write_bytes(b"no recording")
    given = {**GIVEN, "independent": {"voice": "speaker"}, "infinite": True}
    with forebay.Loader(table, **given) as loader:
        found = {
            (int(row), int(partner))
            for batch in itertools.islice(loader, 60)
            for row, partner in zip(batch["index"], batch["partner_index"][:, 1], strict=True)
        }
        assert {partner for row, partner in found if row in (0, 5, 7)} == {0, 5, 7}
        assert {row for row, _ in found} == set(range(8))  # row 2 has good partners
        assert loader.errors() == []
        (listed,) = loader.partner_errors()
        assert (listed["row"], listed["kind"], listed["recording"]) == (2, "unsupported", 'column "voice"')
    # Its own recording is taken where no partner can be read, and a row that is bad is told by name.
    (tmp_path / "3-voice.wav").write_bytes(b"no recording")
    with forebay.Loader(table, **given | {"infinite": False, "batch_size": 1}) as loader:
        assert [int(row) for batch in loader for row in batch["index"]] == [0, 1, 2, 4, 5, 6, 7]
        (error,) = loader.errors()
        assert error["row"] == 3
        assert error["reason"].startswith('column "voice": ')


def test_excluded_rows_are_no_partners_and_use_up_no_draw(tmp_path: Path) -> None:
    table = write(tmp_path, 40)
    rows = [json.loads(line) | {"speaker": "one"} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"independent": {"voice": "speaker"}, "exclude": list(range(2, 40))}
    for seed in range(10):
        (batch,) = batches(table, **given, seed=seed, batch_size=2)
        assert batch["partner_index"].tolist() == [[0, 1], [1, 0]]


def test_two_names_of_a_column_have_two_clips(tmp_path: Path) -> None:
    table = write(tmp_path, 24, (900, 700, 800))
    given: dict[str, Any] = {
        "audio": {"mix": "mix", "one": "voice", "two": "voice"}, "independent": {"one": None, "two": "speaker"},
        "crop": crops.Random(),
    }  # fmt: skip
    own = batches(table, **{**given, "independent": ["one", "two"]})
    assert all((batch["one"] != batch["two"]).any(1).all() for batch in own)
    for batch in batches(table, **given):
        np.testing.assert_array_equal(batch["partner_index"][:, 1], batch["index"])


def test_missing_ones_are_zeros(tmp_path: Path) -> None:
    table = write(tmp_path)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[3]["voice"] = rows[5]["voice"] = None
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"independent": {"voice": "speaker"}, "missing_audio": "zeros"}
    masks, partners = [], []
    with forebay.Loader(table, **GIVEN | given) as loader:
        for batch in loader:
            masks += batch["audio_mask"][:, 1].tolist()
            partners += batch["partner_index"][:, 1].tolist()
        assert loader.partner_errors() == []
    assert masks == [1, 1, 1, 0, 1, 1, 1, 1]
    assert partners[3] == 3
    assert 5 not in partners


def test_a_missing_one_does_not_depend_on_the_first(tmp_path: Path) -> None:
    """Dither covers all of its zeros, however long the mixture is, as it covers a recording."""
    table = write(tmp_path)
    rows = [json.loads(line) | {"voice": None} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"independent": ["voice"], "missing_audio": "zeros", "augment": [augment.Dither(0.01)], "clip_seconds": 0.1}
    for batch in batches(table, **given, outputs=["audio_valid_samples"]):
        assert (batch["voice"] != 0).all()
        assert (batch["audio_valid_samples"][:, 1] == 0).all()


LENGTHS: list[dict[str, Any]] = [
    {"crop": crops.Start()},
    {"crop": crops.Center()},
    {"crop": crops.End(), "features": BANDS},
    {"crop": crops.Start(pad="repeat")},
    {"crop": crops.Start(pad="noise", noise_db=-40.0), "augment": [augment.Roll(0.5)]},
    {"crop": crops.Views(2, crops.End())},
]


@pytest.mark.parametrize("given", LENGTHS)
def test_lengths_of_each(given: dict[str, Any], tmp_path: Path) -> None:
    """They are those of loaders of one recording each, and `valid_samples` is that of the first."""
    table = write(tmp_path)
    given = {"clip_seconds": 0.09, "outputs": ["valid_samples", "valid_frames"], **given}
    each = [f"audio_{name}" for name in given["outputs"]]
    both = batches(table, **given | {"outputs": [*given["outputs"], *each]}, independent=["voice"])
    for at, name in enumerate(("mix", "voice")):
        alone = batches(table, **given | {"audio": {name: name}})
        assert len({int(n) for batch in alone for n in batch["valid_samples"].flat}) > 1 or "repeat" in str(given)
        for one, other in zip(alone, both, strict=True):
            for output in given["outputs"]:
                np.testing.assert_array_equal(one[output], other[f"audio_{output}"][..., at])
                if at == 0:
                    np.testing.assert_array_equal(one[output], other[output])
    with forebay.Loader(table, **GIVEN | given | {"outputs": each}, independent=["voice"]) as loader:
        shapes = {field["name"]: field["shape"] for field in loader.fields}
        assert shapes["audio_valid_samples"] == next(loader)["audio_valid_samples"].shape[1:]


def test_lengths_of_partners(tmp_path: Path) -> None:
    table = write(tmp_path)
    given: dict[str, Any] = {"independent": {"voice": "speaker"}, "clip_seconds": 0.1}
    for batch in batches(table, **given, outputs=["audio_valid_samples"]):
        expected = [min(length(partner), 800) for partner in batch["partner_index"][:, 1]]
        assert batch["audio_valid_samples"][:, 1].tolist() == expected


def test_a_limit_of_the_length_is_about_the_first(tmp_path: Path) -> None:
    """`whole=True` leaves out rows whose mixture is cut; a longer recording beside it is cut."""
    table = write(tmp_path)
    given: dict[str, Any] = {"crop": crops.Start(whole=True), "clip_seconds": 0.1}
    for independent in (["voice"], {"voice": "speaker"}):
        with forebay.Loader(table, **GIVEN | given, independent=independent) as loader:
            for batch in loader:
                rows = batch.get("partner_index", batch["index"][:, None])[:, -1]
                for row, voice in zip(rows, batch["voice"], strict=True):
                    whole = sound(int(row), "voice", length(int(row)))[:800]
                    np.testing.assert_array_equal(voice[: len(whole)], whole.astype(np.float32) / 32768)
            assert loader.stats()["records_failed"] == 0
            assert loader.partner_errors() == []
    with forebay.Loader(table, **GIVEN | given | {"clip_seconds": 0.065}, independent=["voice"]) as loader:
        assert [int(row) for batch in loader for row in batch["index"]] == [0, 1, 2, 7]
        assert {error["kind"] for error in loader.errors()} == {"too_large"}


def test_steps_change_each_column_of_a_list(tmp_path: Path) -> None:
    table = write(tmp_path, 8, (900, 700, 800))
    given: dict[str, Any] = {
        "audio": {"mix": "mix", "both": ["voice", "mix"]}, "independent": ["both"], "crop": crops.Start(),
    }  # fmt: skip
    only = augment.Only("both", [augment.Gain((-6.0, 6.0))])
    level = augment.Level(-20.0, of="both")
    for plain, changed, levelled in zip(
        *(batches(table, **given, augment=steps) for steps in ([], [only], [level])), strict=True
    ):
        gains = np.abs(changed["both"]).sum(2) / np.abs(plain["both"]).sum(2)
        assert not np.isclose(gains[:, 0], gains[:, 1]).any()
        assert not np.isclose(gains, 1.0).any()
        np.testing.assert_allclose(np.sqrt(np.square(levelled["both"]).mean(2)), 0.1, rtol=1e-5)
        for batch in (changed, levelled):
            np.testing.assert_array_equal(batch["mix"], plain["mix"])


def test_draws_are_those_that_were_applied(tmp_path: Path) -> None:
    """An output about a step for one field has what that field drew; else what the first recording drew."""
    table = write(tmp_path, 8, (900, 700, 800))
    given: dict[str, Any] = {"independent": ["voice"], "crop": crops.Start()}
    gain = augment.Gain((-6.0, 6.0))
    plain = batches(table, **given)
    for steps, name in ([augment.Only("voice", [gain]), gain], "voice"), ([gain], "mix"):
        alone = batches(table, **given, augment=steps[:1], outputs=["gain_db"])
        for one, other in zip(plain, alone, strict=True):
            gains = np.abs(other[name]).sum(1) / np.abs(one[name]).sum(1)
            np.testing.assert_allclose(other["gain_db"], 20 * np.log10(gains), atol=1e-4)
        with forebay.Loader(table, **GIVEN | given, augment=steps, outputs=["gain_db"]) as loader:
            planned = loader.plan(8, outputs=["gain_db"])["gain_db"]
            made = np.concatenate([batch["gain_db"] for batch in loader])
        np.testing.assert_array_equal(planned, made)
        np.testing.assert_array_equal(made, np.concatenate([batch["gain_db"] for batch in alone]))


def test_recordings_that_were_read_are_named(tmp_path: Path) -> None:
    """A response of one field is named, and one of all is that of the first recording."""
    table = write(tmp_path / "rows", 8, (900, 700, 800))
    (tmp_path / "rooms").mkdir()
    for room in range(8):  # of one sample, by which the clip is delayed
        response = np.zeros(40)
        response[[0, room + 1]] = 30_000, 15_000
        (tmp_path / "rooms" / f"{room}.wav").write_bytes(wav(response, RATE))
    reverb = augment.Reverb(tmp_path / "rooms")
    given: dict[str, Any] = {
        "independent": ["voice"], "crop": crops.Start(), "outputs": ["reverb_index"], "infinite": False,
    }  # fmt: skip
    plain = batches(table, **given | {"outputs": []})
    for steps, name in ([augment.Only("voice", [reverb])], "voice"), ([reverb], "mix"):
        with forebay.Loader(table, **GIVEN | given, augment=steps) as loader:
            planned = loader.plan(8, outputs=["reverb_index"])["reverb_index"]
            changed = list(loader)
        np.testing.assert_array_equal(planned, np.concatenate([batch["reverb_index"] for batch in changed]))
        for one, other in zip(plain, changed, strict=True):
            for before, after, room in zip(one[name], other[name], other["reverb_index"], strict=True):
                echo = before.copy()
                echo[room + 1 :] += before[: -(room + 1)] / 2
                np.testing.assert_allclose(after / np.linalg.norm(after), echo / np.linalg.norm(echo), atol=1e-3)
    mix = augment.Only("voice", [augment.Mix(tmp_path / "rooms", snr_db=(0.0, 20.0))])
    names = ["mix_index", "mix_snr_db"]
    with forebay.Loader(table, **GIVEN | given | {"outputs": names}, augment=[mix]) as loader:
        mixed = loader.plan(8, outputs=names)
        changed = list(loader)
    for name in names:
        np.testing.assert_array_equal(mixed[name], np.concatenate([batch[name] for batch in changed]))


def test_rows_without_another_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = write(tmp_path)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[1]["speaker"] = rows[2]["speaker"] = None
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def told(**given: Any) -> list[str]:
        caplog.clear()
        with forebay.Loader(table, **GIVEN, **given):
            return [record.message for record in caplog.records if "independent" in record.message]

    speaker = {"voice": "speaker"}
    (message,) = told(independent=speaker)
    assert 'column "speaker" has 2 rows without a value and 1 row with a value that no other row has' in message
    # 4 and 6 are of one speaker, and 6 is not among the partners.
    (message,) = told(independent=speaker, exclude=[1, 6])
    assert '"speaker" has 1 row without a value and 2 rows with a value that no other row has' in message
    known = sampling.Where("speaker", values=["a"])
    assert told(independent=speaker, sampling=known) == told(independent=["voice"]) == []
    both = {"audio": {"mix": "mix", "voice": ["voice", "voice"]}, "independent": speaker}
    caplog.clear()
    with forebay.Loader(table, **GIVEN | both):
        assert len(caplog.records) == 1


def test_rows_of_weight_0_are_partners(tmp_path: Path) -> None:
    """As of `Mix`: what `sampling=` keeps, whatever its weight; `Where` leaves rows out."""
    table = write(tmp_path, 24)
    rows = [json.loads(line) | {"weight": float(row % 2)} for row, line in enumerate(table.read_text().splitlines())]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found: dict[str, set[int]] = {}
    for name, part in {"weight": sampling.Weighted("weight"), "where": sampling.Where("weight", minimum=1)}.items():
        all_of = [batches(table, independent={"voice": "speaker"}, sampling=part, seed=seed) for seed in range(4)]
        for batch in itertools.chain(*all_of):
            assert (batch["index"] % 2 == 1).all()
            found.setdefault(name, set()).update(batch["partner_index"][:, 1] % 2)
    assert found == {"weight": {0, 1}, "where": {1}}


def test_the_same_column_twice(tmp_path: Path) -> None:
    """A reference of the same speaker is the recording of another row."""
    table = write(tmp_path)
    audio = {"voice": "voice", "reference": "voice"}
    for batch in batches(table, audio=audio, independent={"reference": "speaker"}):
        for index, partners, voice, reference in zip(
            batch["index"], batch["partner_index"], batch["voice"], batch["reference"], strict=True
        ):
            assert partners[0] == index
            place_of(voice, sound(index, "voice", length(index)))
            place_of(reference, sound(partners[1], "voice", length(partners[1])))


@pytest.mark.parametrize("order", ["global", "window"])
def test_independent_recordings_conform(order: str, processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    table = write(tmp_path, 40)
    for bad in ("12-mix.wav", "24-voice.wav"):
        (tmp_path / bad).write_bytes(b"no recording")
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 8, "n_workers": 2, "shuffle_min_size": 20,
        "shuffle_buffer_size": 40, "infinite": True, "targets": {}, "outputs": ["audio_valid_samples", "gain_db"],
        "augment": [augment.Only("own", [augment.Gain((-6.0, 6.0))]), augment.Only("stems", [augment.Gain(6.0)])],
        "audio": {"mix": "mix", "stems": ["voice", "mix"], "own": "voice"},
        "independent": {"stems": "speaker", "own": None},
    }  # fmt: skip
    conforms(table, processes, tmp_path, **{**given, "order": order})


def test_a_dataset_has_the_same(tmp_path: Path) -> None:
    table = write(tmp_path)
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.02, "targets": {}, "audio": {"mix": "mix", "voice": "voice"},
        "independent": {"voice": "speaker"}, "crop": crops.Random(),
    }  # fmt: skip
    data = forebay.AudioDataset(table, **given)
    batch = data.get_batch(range(8))
    assert batch["partner_index"].shape == (8, 2)
    for partner, voice in zip(batch["partner_index"][:, 1], batch["voice"], strict=True):
        place_of(voice, sound(partner, "voice", length(partner)))
    again = data.get_batch([3, 0])
    np.testing.assert_array_equal(again["voice"], batch["voice"][[3, 0]])


def test_the_recipe_has_it(tmp_path: Path) -> None:
    table = write(tmp_path)
    with forebay.Loader(table, **GIVEN, independent={"voice": "speaker"}) as loader:
        assert loader.recipe.to_dict()["independent"] == {"voice": "speaker"}
        assert "independent  " in str(loader.recipe)
        state = loader.state_dict()
    with (
        forebay.Loader(table, **GIVEN, independent=["voice"]) as other,
        pytest.raises(StateError, match=r"independent\.voice is true in the state and false here"),
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"independent": ["mix"]}, r'independent has "mix", the first name of audio'),
        ({"independent": ["noise"]}, r'independent has "noise", must have names of audio: \["mix", "voice"\]'),
        ({"independent": []}, r"independent is empty"),
        ({"independent": ["voice", "voice"]}, r'independent has "voice" twice'),
        (
            {"independent": ["voice"], "audio": {"mix": "mix", "voice": "voice", "clean": "mix"}},
            r'audio names "clean" after it; put the names of independent last in audio',
        ),
        ({"independent": {"voice": ""}}, r'independent\["voice"\] is empty'),
        ({"independent": ["voice"], "audio": None, "audio_column": "mix"}, "independent is about the names in audio"),
        ({"independent": ["voice"], "crop": crops.Windows(0.02)}, r"Windows\(\) are places in the first recording"),
        ({"independent": ["voice"], "crop": crops.Whole()}, r"Whole\(\) makes all recordings of a row as long"),
        ({"independent": ["voice"], "augment": [augment.Speed((0.9, 1.1))]}, "augment has Speed"),
        ({"independent": ["voice"], "augment": [augment.Remix(2)]}, "augment has Remix"),
        ({"independent": {"voice": "singer"}}, "singer"),
        (
            {
                "independent": ["voice"],
                "augment": [augment.Only("voice", [augment.Mix(snr_db=5.0, targets="union")])],
                "targets": {"label": forebay.targets.MultiHot("speaker", classes="data")},
            },
            r'a Mix that mixes targets in Only\("voice"\), and targets are those of the first recording',
        ),
        (
            {"outputs": ["audio_valid_frames"], "audio": None, "audio_column": "mix"},
            'outputs has "audio_valid_frames", which is about each of the recordings in audio, .*; give "valid_frames"',
        ),
    ],
)
def test_wrong_parameters_are_refused(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        forebay.Loader(write(tmp_path), **GIVEN | given)


@pytest.mark.parametrize("given", ["voice", 3, {"voice": 3}, [3]])
def test_wrong_types_are_refused(given: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="independent"):
        forebay.Loader(write(tmp_path), **GIVEN, independent=given)
