"""`stitch`: outputs of windows on the time lines of their recordings, compared with a walk over cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, crops, stitch
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
