"""`stitch`: outputs of windows on the time lines of their recordings, compared with a walk over cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, crops, features, stitch, targets
from windows import LENGTHS, RATE, WAVEFORM, noise, shard, wav


def walked(values: Any, index: Any, start: Any, clip: float, step: float, how: str) -> dict[int, np.ndarray]:
    """Each cell of each recording, with the windows that have its middle."""
    found = {}
    for row in sorted(set(index)):
        own = [(at, value) for of, at, value in zip(index, start, values, strict=True) if of == row]
        cells, k = [], 0
        while any(at + clip > (k + 0.5) * step + 1e-9 for at, _ in own):
            middle = (k + 0.5) * step
            covering = [value for at, value in own if at <= middle + 1e-9 and middle < at + clip - 1e-9]
            made = np.max if how == "max" else np.mean
            cells.append(made(covering, axis=0) if covering else np.full(np.shape(own[0][1]), np.nan))
            k += 1
        found[row] = np.array(cells)
    return found


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize(
    ("clip", "step", "cell"), [(5, 5, None), (5, 2.5, 2.5), (5, 1, 1), (5, 2, 1), (3, 10, 1), (5, 5, 0.7)]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
def test_cells(how: Any, clip: float, step: float, cell: float | None, shape: tuple[int, ...]) -> None:
    draws = np.random.default_rng(7)
    index = np.repeat([4, 2, 9], [6, 1, 11])
    start = np.concatenate([np.arange(n) * step for n in (6, 1, 11)])
    values = draws.normal(size=(len(index), *shape))
    order = draws.permutation(len(index))
    found = stitch(values[order], index[order], start[order], clip_seconds=clip, step=cell, how=how)
    want = walked(values, index.tolist(), start.tolist(), clip, cell or clip, how)
    assert list(found) == list(want)
    for row, line in found.items():
        np.testing.assert_allclose(line.values, want[row], rtol=1e-12)
        np.testing.assert_allclose(line.start, np.arange(len(want[row])) * (cell or clip))
        assert (line.n_windows == 0).tolist() == np.isnan(want[row]).reshape(len(want[row]), -1).all(axis=1).tolist()


def test_windows_of_a_loader(tmp_path: Path) -> None:
    """The loudest sample of each window is found again at its time, whatever the rank."""
    path = shard(tmp_path / "rows", [wav(noise(n, n)) for n in LENGTHS])
    batches = []
    for rank in range(3):
        given: dict[str, Any] = {**WAVEFORM, "crop": crops.Windows(0.005), "world_size": 3, "rank": rank}
        with forebay.Loader(path, **given) as loader:
            batches += list(loader)
    index, start = (np.concatenate([batch[name] for batch in batches]) for name in ("index", "start"))
    loudest = np.concatenate([np.abs(batch["waveform"]).max(axis=1) for batch in batches])
    lines = stitch(loudest, index, start, clip_seconds=0.02, step=0.005)
    assert list(lines) == list(range(len(LENGTHS)))
    for n, line in zip(LENGTHS, lines.values(), strict=True):
        samples = np.abs((noise(n, n) / 32768).astype(np.float32))
        assert line.values.dtype == np.float32
        assert line.values.max() == samples.max()
        at = round(line.start[np.argmax(line.values)] * RATE)
        assert abs(at - np.argmax(samples)) <= 160


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"clip_seconds": 0}, "clip_seconds is 0, must be above 0"),
        ({"step": float("nan")}, "step is nan, must be above 0"),
        ({"step": 5.5}, "step is 5.5, must be at most clip_seconds, 5.0"),
        ({"how": "sum"}, "how is 'sum', must be one of 'max', 'mean'"),
        ({"values": [1.0]}, "have different lengths"),
        ({"values": ["a", "b"]}, "must be numbers"),
        ({"index": [0.5, 1.0]}, "index has the type float64"),
        ({"start": [0.0, float("inf")]}, "no time within a recording"),
        ({"start": [0.0, 1e12]}, "makes more than 268435456 cells; raise it"),
    ],
)
def test_wrong_values(change: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"values": [1.0, 2.0], "index": [0, 0], "start": [0.0, 5.0], "clip_seconds": 5.0}
    with pytest.raises(ConfigError, match=told):
        stitch(**{**given, **change})


def test_nothing() -> None:
    assert stitch(np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(0), clip_seconds=5.0) == {}


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize("middle", [None, 0.0])
def test_frames(how: Any, middle: float | None) -> None:
    """Each cell has the frames of the windows over it, at the nearest time."""
    draws = np.random.default_rng(3)
    step, n = 0.02, 51
    starts = np.array([-0.5, 0.0, 0.5, 1.5, 3.0, 0.004, 1.0])
    index = np.array([7, 7, 7, 7, 7, 2, 2])
    values = draws.normal(size=(len(starts), n, 3))
    found = stitch(values, index, starts, clip_seconds=1.0, how=how, frame_step=step, frame_middle=middle)
    assert list(found) == [2, 7]
    for row, line in found.items():
        own = np.flatnonzero(index == row)
        n_cells = max(round(starts[at] / step) for at in own) + n
        assert len(line.values) == len(line.start) == len(line.n_windows) == n_cells
        first = step / 2 if middle is None else middle
        np.testing.assert_allclose(line.start, np.arange(n_cells) * step + first - step / 2, atol=1e-12)
        for cell in range(n_cells):
            heard = [
                values[at, cell - round(starts[at] / step)] for at in own if 0 <= cell - round(starts[at] / step) < n
            ]
            assert line.n_windows[cell] == len(heard)
            want = (np.max if how == "max" else np.mean)(heard, axis=0) if heard else np.full(3, np.nan)
            np.testing.assert_allclose(line.values[cell], want, rtol=1e-12)


@pytest.mark.parametrize("step", [None, 0.02])
def test_frames_of_windows_are_those_of_the_recording(step: float | None, tmp_path: Path) -> None:
    path = shard(tmp_path / "rows", [wav(noise(n, n)) for n in (24_000, 8000, 30_000)])
    # Halves of a step are rounded to even, in a window and in the recording.
    events = [("0.wav", 0.313, 1.704, "a"), ("0.wav", 2.207, 2.506, "b"), ("1.wav", 0.0, 0.607, "b")]
    events.append(("2.wav", 1.033, 3.606, "a"))
    target = targets.Frames(events, step=step)
    mel = features.LogMel(sample_rate=RATE, n_mels=4, n_fft=256, hop_length=160)
    given: dict[str, Any] = {"features": mel, "targets": {"y": target}, "infinite": False, "shuffle_min_size": 0}
    windows = forebay.Loader(path, crop=crops.Windows(0.5), clip_seconds=1.0, outputs=["start"], augment=False, **given)
    batches = list(windows)
    y, index, start = (np.concatenate([batch[name] for batch in batches]) for name in ("y", "index", "start"))
    grid: dict[str, Any] = {"frame_step": 0.02, "frame_middle": 0.0 if step is None else None}
    lines = stitch(y, index, start, clip_seconds=1.0, **grid)
    for batch in forebay.Loader(path, crop=crops.Whole(), augment=False, batch_size=1, **given):
        want = batch["y"][0]
        found = lines[int(batch["index"][0])].values
        np.testing.assert_array_equal(found[: len(want)], want)
        assert not found[len(want) :].any()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"frame_step": 0.0}, "frame_step is 0.0, must be above 0"),
        ({"frame_step": 0.5, "frame_middle": 2.0}, "frame_middle is 2.0, must be 0 to clip_seconds, 1.0"),
        ({"frame_middle": 0.0}, "frame_middle is given, and frame_step is not"),
        ({"frame_step": 0.5}, r"values have 9 frames of 0\.5 s, which are more than clip_seconds, 1\.0"),
        ({"frame_step": 1e-12}, "which makes more than"),
        ({"frame_step": 0.1, "step": 0.5}, "step is 0.5, and cells have frame_step"),
        ({"frame_step": 0.1, "values": np.zeros(2)}, r"values have the shape \[2\], must be \[n, frames, \.\.\.\]"),
    ],
)
def test_wrong_frames(change: dict[str, Any], told: str) -> None:
    given = {"values": np.zeros((2, 9, 3)), "index": [0, 0], "start": [0.0, 1.0], "clip_seconds": 1.0, **change}
    with pytest.raises(ConfigError, match=told):
        stitch(**given)
