"""`crop=Windows(...)`: each window of each recording exactly once, compared with slices of whole recordings."""

import itertools
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import taken
from forebay import ConfigError, crops, features
from recordings import FOLDER, TINY
from windows import CLIP, LENGTHS, RATE, WAVEFORM, noise, shard, wav

STEPS = {None: 160, 0.01: 80, 0.005: 40, 0.033: 264, 0.02: 160}
ENDS: tuple[Any, ...] = ("pad", "drop", "shift", "remainder")


def passed(files: Any, **parameters: Any) -> dict[str, list[Any]]:
    """The rows of each field of a pass."""
    with forebay.Loader(files, **parameters) as loader:
        return taken(loader)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shard(tmp_path / "rows", [wav(noise(n, n)) for n in LENGTHS])


def placed(n: int, clip: int, step: int, end: str) -> list[tuple[int, int]]:
    """Start and length of each window of `n` samples, by walking over them."""
    found: list[tuple[int, int]] = []
    at = 0
    while at + clip <= n:
        found.append((at, clip))
        at += step
    covered = found[-1][0] + clip if found else 0
    if covered < n and at < n and end != "drop":
        at = max(0, n - clip) if end == "shift" else at
        found.append((at, min(clip, n - at)))
    return found


def expected(lengths: list[int], step: int, end: str) -> list[dict[str, Any]]:
    rows = []
    for index, n in enumerate(lengths):
        samples = (noise(n, n) / 32768).astype(np.float32)
        for number, (start, length) in enumerate(placed(n, CLIP, step, end)):
            waveform = np.zeros(CLIP, np.float32)
            waveform[:length] = samples[start : start + length]
            rows.append(
                {
                    "index": index, "window": number, "start": start / RATE, "valid_samples": length,
                    "label": index, "waveform": waveform.tolist(),
                }
            )  # fmt: skip
    return rows


def rows_of(found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", STEPS)
def test_all_windows_once_and_in_order(step: float | None, end: Any, path: Path) -> None:
    found = rows_of(passed(path, crop=crops.Windows(step, end=end), **WAVEFORM))
    want = expected(LENGTHS, STEPS[step], end)
    assert [{name: row[name] for name in want[0]} for row in found] == want
    with forebay.Loader(path, crop=crops.Windows(step, end=end), **WAVEFORM) as loader:
        assert loader.num_records == len(want)


@pytest.mark.parametrize("form", ["zstd", "parquet", "folder"])
@pytest.mark.parametrize("order", ["global", "window", "era"])
def test_other_files_and_orders(form: str, order: str, tmp_path: Path) -> None:
    """The same windows in another order, in each pass."""
    path = shard(tmp_path / "rows", [wav(noise(n, n)) for n in LENGTHS], form)
    given: dict[str, Any] = {**WAVEFORM, "order": order, "shuffle_min_size": 5, "shuffle_buffer_size": 20}
    want = sorted((row["index"], row["window"], *row["waveform"]) for row in expected(LENGTHS, 80, "pad"))
    with forebay.Loader(path, crop=crops.Windows(0.01), **given) as loader:
        for _ in range(2):
            found: list[Any] = []
            for batch in loader:
                found += zip(batch["index"].tolist(), batch["window"].tolist(), batch["waveform"].tolist(), strict=True)
            assert sorted((index, window, *values) for index, window, values in found) == want


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_and_kills(world: int, path: Path) -> None:
    """Each rank is killed after each batch, within recordings, and goes on from its state."""
    given: dict[str, Any] = {**WAVEFORM, "crop": crops.Windows(0.005), "batch_size": 3, "world_size": world}
    seen: Counter[tuple[int, int]] = Counter()
    for rank in range(world):
        state: Any = None
        n_batches = 1
        while n_batches:
            with forebay.Loader(path, rank=rank, **given) as loader:
                n_batches = len(loader) if state is None else n_batches
                if state is not None:
                    loader.load_state_dict(pickle.loads(pickle.dumps(state)))
                batch = next(loader)
                seen.update(zip(batch["index"].tolist(), batch["window"].tolist(), strict=True))
                state = loader.state_dict()
                n_batches -= 1
    assert seen == Counter((row["index"], row["window"]) for row in expected(LENGTHS, 40, "pad"))


CODED = ["formats/vorbis.ogg", "jfk.mp3", "loop_electric.flac", "bass_trance_c.ogg", "formats/loop.wav"]


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("kept", ["shard", "files"])
def test_windows_of_other_rates(name: str, kept: str, tmp_path: Path) -> None:
    """Recordings of several rates in one batch: each window, overlapping or not, is the slice of the whole."""
    coded = FOLDER / name
    recordings = [coded.read_bytes(), wav(noise(3000, 1), 11_025), wav(noise(2000, 2), 44_100)]
    path: Any
    if kept == "shard":
        path = shard(tmp_path / "rows", recordings)
    else:
        path = [tmp_path / f"{at}{coded.suffix if at == 0 else '.wav'}" for at in range(3)]
        for file, content in zip(path, recordings, strict=True):
            file.write_bytes(content)
    samples, rate = forebay.decode(recordings[0])
    seconds = samples.shape[-1] / rate
    given: dict[str, Any] = {
        **WAVEFORM, "features": features.Waveform(sample_rate=16_000), "clip_seconds": seconds / 9,
        "max_decoded_seconds": 60.0,
    }  # fmt: skip
    whole = rows_of(passed(path, augment=True, **{**given, "clip_seconds": seconds + 1}))
    for step, end in [(3.7, "pad"), (3.3, "shift"), (1.1, "drop"), (9.0, "remainder"), (20.0, "pad")]:
        crop = crops.Windows(seconds / 9 / 5 * step / 3, end=end)  # type: ignore[arg-type]
        for workers in (1, 8):
            for row in rows_of(passed(path, crop=crop, **{**given, "n_workers": workers})):
                start, n = round(row["start"] * 16_000), row["valid_samples"]
                assert row["waveform"][:n] == whole[row["index"]]["waveform"][start : start + n]
                assert not any(row["waveform"][n:])


@pytest.mark.parametrize("context", [0.0, 0.004])
def test_overlapping_windows_of_a_damaged_recording(context: float, tmp_path: Path) -> None:
    """A window that shares its samples fails exactly if it fails alone, with the same words."""
    coded = bytearray((FOLDER / "237-134500-0002.flac").read_bytes())
    middle = len(coded) // 2
    coded[middle : middle + 40] = bytes(40)
    path = shard(tmp_path / "rows", [bytes(coded)])
    crop = crops.Windows(0.25, context=context)
    given: dict[str, Any] = {"features": features.Waveform(sample_rate=16_000), "clip_seconds": 1.0, "crop": crop}
    alone: dict[int, Any] = {}
    with forebay.AudioDataset(path, outputs=["window"], **given) as dataset:
        for at in range(len(dataset)):
            try:
                alone[at] = dataset[at]["waveform"]
            except forebay.ForebayError as error:
                alone[at] = str(error)
    failed = {at for at, found in alone.items() if isinstance(found, str)}
    assert 0 < len(failed) < len(alone)
    for _ in range(3):
        with forebay.Loader.eval(path, batch_size=4, n_workers=8, outputs=["window"], **given) as loader:
            found = {
                window: waveform
                for batch in loader
                for window, waveform in zip(batch["window"].tolist(), batch["waveform"], strict=True)
            }
            errors = loader.errors()
        assert set(found) == set(alone) - failed
        assert all(np.array_equal(waveform, alone[window]) for window, waveform in found.items())
        assert len(errors) == len(failed)
        assert all(error["reason"] in alone[at] for error, at in zip(errors, sorted(failed), strict=True))


def test_context(path: Path) -> None:
    """The clip is wider than its window, by samples of the recording; places are those of the window."""
    context = 5 / RATE
    window = CLIP - 10
    given: dict[str, Any] = {**WAVEFORM, "crop": crops.Windows(context=context)}
    found = rows_of(passed(path, **given))
    want = []
    for index, n in enumerate(LENGTHS):
        samples = np.pad((noise(n, n) / 32768).astype(np.float32), (5, CLIP))
        for number, (start, _) in enumerate(placed(n, window, window, "pad")):
            waveform = samples[start : start + CLIP]
            begin, stop = max(0, start - 5), min(n, start + window + 5)
            want.append((index, number, start / RATE, stop - begin, waveform.tolist()))
    names = ["index", "window", "start", "valid_samples", "waveform"]
    assert [tuple(row[name] for name in names) for row in found] == want


def test_context_leaves_a_window(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"context is 0\.01 seconds on both sides, which leaves no window"):
        forebay.Loader(path, crop=crops.Windows(context=0.01), **WAVEFORM)
    for context in (-1.0, float("nan"), 1e6):
        with pytest.raises(ConfigError, match=r"context is .*, must be from 0 to 86400"):
            crops.Windows(context=context)


@pytest.mark.parametrize("made", [features.LogMel, features.Fbank, features.MFCC])
def test_remainders_are_not_padded(made: Any, tmp_path: Path) -> None:
    """The features of a remainder are those of its samples alone, and filled up behind."""
    small: dict[str, Any] = {"sample_rate": RATE, "n_fft": 64, "hop_length": 32, "n_mels": 8}
    small |= {"win_length": 64} if made is features.Fbank else {}
    small |= {"n_mfcc": 5} if made is features.MFCC else {}
    front_end = made(**small)
    n = CLIP + 90
    path = shard(tmp_path / "rows", [wav(noise(n, 3))])
    given: dict[str, Any] = {**WAVEFORM, "features": front_end, "outputs": ["valid_frames"]}
    samples = (noise(n, 3) / 32768).astype(np.float32)
    found = {end: passed(path, crop=crops.Windows(end=end), **given) for end in ("pad", "remainder")}
    alone = made(**small, n_frames=front_end.shape(CLIP)[1])
    assert np.array_equal(np.array(found["remainder"]["spectrogram"][1], np.float32), alone(samples[CLIP:]))
    assert np.array_equal(
        np.array(found["pad"]["spectrogram"][1], np.float32), front_end(np.pad(samples[CLIP:], (0, CLIP - 90)))
    )
    assert found["pad"]["spectrogram"][0] == found["remainder"]["spectrogram"][0]
    assert found["remainder"]["valid_frames"][1] == front_end.shape(90)[1]


def test_a_bad_recording_is_told_of_once(tmp_path: Path) -> None:
    recordings: list[bytes | None] = [wav(noise(500, 1)), b"no recording", None, wav(noise(330, 2))]
    path = shard(tmp_path / "rows", recordings)
    with forebay.Loader(path, crop=crops.Windows(), **WAVEFORM) as loader:
        found = [batch["index"].tolist() for batch in loader]
        assert [error["index"] for error in loader.errors()] == [1, 2]
        assert list(itertools.chain(*found)) == [0] * 4 + [3] * 3
        assert loader.num_records == 9


def test_excluded_recordings_have_no_windows(path: Path) -> None:
    with forebay.Loader(path, crop=crops.Windows(0.005), exclude=[0, 6], **WAVEFORM) as loader:
        found = {index for batch in loader for index in batch["index"].tolist()}
    assert found == set(range(len(LENGTHS))) - {0, 6}


def test_a_part_of_the_rows(path: Path) -> None:
    found = passed(path, crop=crops.Windows(0.005), sampling=forebay.sampling.Subset([6, 0]), **WAVEFORM)
    want = [row for row in expected(LENGTHS, 40, "pad") if row["index"] in (0, 6)]
    assert (found["index"], found["window"]) == ([row["index"] for row in want], [row["window"] for row in want])
    assert found["waveform"] == [row["waveform"] for row in want]


def test_a_mixture(tmp_path: Path) -> None:
    """Shares are those of windows."""
    files = {"a": shard(tmp_path / "a", [wav(noise(800, 1))]), "b": shard(tmp_path / "b", [wav(noise(1600, 2))])}
    found = passed(files, crop=crops.Windows(), stop="all_exhausted", **WAVEFORM)
    assert Counter(found["source"])[1] >= 10
    assert {window for window, source in zip(found["window"], found["source"], strict=True) if source} == {*range(10)}


def test_states_know_the_crop(path: Path) -> None:
    given: dict[str, Any] = {**WAVEFORM, "crop": crops.Windows(0.01)}
    with forebay.Loader(path, **given) as loader:
        next(loader)
        state = loader.state_dict()
    for other in (crops.Windows(0.02), crops.Windows(0.01, end="drop"), None):
        with (
            forebay.Loader(path, **{**given, "crop": other}) as loader,
            pytest.raises(forebay.StateError, match="crop"),
        ):
            loader.load_state_dict(state)


def test_center_and_random_are_what_augment_says(path: Path) -> None:
    given: dict[str, Any] = {name: value for name, value in WAVEFORM.items() if name != "outputs"}
    for crop, augment in ((crops.Center(), False), (crops.Random(), True)):
        assert passed(path, crop=crop, augment=not augment, **given) == passed(path, augment=augment, **given)


def test_the_recipe_says_it(path: Path) -> None:
    with forebay.Loader(path, crop=crops.Windows(0.01), **WAVEFORM) as loader:
        assert "crop      Windows(step=0.01), each 0.02 s at 8000 Hz\n" in repr(loader.recipe)
        assert loader.recipe.to_dict()["crop"] == {
            "type": "Windows", "step": 0.01, "end": "pad", "context": 0.0,
        }  # fmt: skip
        assert "window  int64  number of the window in its recording" in repr(loader.recipe).replace("         ", "  ")


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"step": 0}, ConfigError, "step is 0.0, must be above 0, at most 86400"),
        ({"step": -1.0}, ConfigError, "step is -1.0, must be above 0"),
        ({"step": float("nan")}, ConfigError, "step is NaN, must be above 0"),
        ({"step": 1e9}, ConfigError, "step is 1000000000.0, must be above 0"),
        ({"step": "1"}, TypeError, "step"),
        ({"end": "keep"}, ConfigError, 'end is "keep", must be one of "pad", "drop", "shift", "remainder"'),
        ({"end": None}, TypeError, "end"),
    ],
)
def test_wrong_windows_are_refused_when_made(arguments: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        crops.Windows(**arguments)


def test_no_window_and_no_step(path: Path) -> None:
    with pytest.raises(ConfigError, match="the recordings have no window: all are shorter than clip_seconds"):
        forebay.Loader(path, crop=crops.Windows(end="drop"), **{**WAVEFORM, "clip_seconds": 5.0})
    with pytest.raises(ConfigError, match=r"step is 1e-5, which at sample_rate 8000 is less than a sample"):
        forebay.Loader(path, crop=crops.Windows(1e-5), **WAVEFORM)
    with pytest.raises(TypeError, match=r"crop is .*an object of forebay.crops"):
        forebay.Loader(path, crop="windows", **WAVEFORM)  # type: ignore[arg-type]


def test_crops_are_values() -> None:
    for crop in (crops.Windows(2.5, end="shift"), crops.Center(), crops.Random()):
        assert crop == pickle.loads(pickle.dumps(crop)) == type(crop).from_dict(crop.to_dict())
    assert repr(crops.Windows()) == "Windows()"
    assert repr(crops.Windows(1.0, end="drop")) == "Windows(step=1.0, end='drop')"


def test_default_features(path: Path) -> None:
    """Without an object of features, too."""
    given: dict[str, Any] = {**TINY, "infinite": False, "shuffle_min_size": 0, "batch_size": 4}
    for end in ENDS:
        with forebay.Loader.eval(path, crop=crops.Windows(0.01, end=end), **given) as loader:
            assert sum(len(batch["spectrogram"]) for batch in loader) == len(expected(LENGTHS, 80, end))
