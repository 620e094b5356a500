"""Outputs of windows back on the time lines of their recordings."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forebay._core import ConfigError

_MOST_CELLS = 1 << 28


class TimeLine(NamedTuple):
    """What `stitch` makes for one recording."""

    start: NDArray[np.float64]
    """Start of each cell in seconds, `[n_cells]`."""
    values: NDArray[Any]
    """The value of each cell, `[n_cells, ...]`; NaN where no window is."""
    n_windows: NDArray[np.int64]
    """Number of windows that have the cell, `[n_cells]`."""


def stitch(
    values: ArrayLike,
    index: ArrayLike,
    start: ArrayLike,
    *,
    clip_seconds: float,
    step: float | None = None,
    how: Literal["max", "mean"] = "max",
    frame_step: float | None = None,
    frame_middle: float | None = None,
) -> dict[int, TimeLine]:
    """Puts the outputs of windows on the time line of each recording.

    `values` `[n, ...]` has an output for each window, such as scores of classes; `index` and `start` `[n]` are those of
    the batches (`outputs=["start"]`), joined in any order, also over ranks. A window lasts `clip_seconds`. A time line
    has cells of `step` seconds (None: `clip_seconds`, which is the most), from 0 to the end of the last window. A
    window has the cells whose middles are in it, and a cell has the maximum or the mean of its windows.

    With `frame_step`, `values` `[n, frames, ...]` have an output for each frame of a window, as a model has that is
    trained with `targets.Frames`: frames are so many seconds apart, and the middle of the first one is `frame_middle`
    seconds after the window's start (None: half of `frame_step`; 0 for centred frames of a spectrogram). The cells of
    a time line are the frames of the whole recording, then: the middle of cell `k` is `frame_middle + k * frame_step`,
    and a frame of a window belongs to the nearest one. Do not give `step`.

    Returns a `TimeLine` for each recording by its `index`, in ascending order. Raises `ConfigError` for lengths that
    differ, and for values that are not numbers.
    """
    found = np.asarray(values)
    rows, starts = np.asarray(index), np.asarray(start, np.float64)
    step = clip_seconds if step is None else step
    problems = []
    for name, seconds in (("clip_seconds", clip_seconds), ("step", step)):
        if not (np.isfinite(seconds) and seconds > 0):
            problems.append(f"{name} is {seconds!r}, must be above 0")
    if not problems and step > clip_seconds:
        problems.append(f"step is {step!r}, must be at most clip_seconds, {clip_seconds!r}")
    if how not in ("max", "mean"):
        problems.append(f"how is {how!r}, must be one of 'max', 'mean'")
    if found.dtype.kind not in "biuf":
        problems.append(f"values have the type {found.dtype}, must be numbers")
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        problems.append(f"index has the type {rows.dtype} and shape {list(rows.shape)}, must be whole numbers [n]")
    elif starts.shape != rows.shape or found.shape[:1] != rows.shape:
        lengths = f"values {list(found.shape)}, index {list(rows.shape)} and start {list(starts.shape)}"
        problems.append(f"{lengths} have different lengths, must have one item for each window")
    elif not (np.isfinite(starts).all() and (starts > -clip_seconds).all()):
        problems.append("start has a value that is no time within a recording")
    elif not problems and starts.size and (starts.max() + clip_seconds) / step > _MOST_CELLS:
        problems.append(f"step is {step!r}, which makes more than {_MOST_CELLS} cells; raise it")
    if frame_step is not None and not problems:
        problems += _frame_problems(found, starts, clip_seconds, frame_step, frame_middle)
        if step != clip_seconds:
            problems.append(f"step is {step!r}, and cells have frame_step; leave step out")
    elif frame_middle is not None and frame_step is None:
        problems.append("frame_middle is given, and frame_step is not; give both")
    if problems:
        raise ConfigError("; ".join(problems))
    kind = found.dtype if found.dtype.kind == "f" else np.dtype(np.float64)
    order = np.argsort(rows, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1) if len(rows) else []
    if frame_step is not None:
        grid = (frame_step, frame_step / 2 if frame_middle is None else frame_middle)
        return {int(rows[part[0]]): _frames(found[part].astype(kind), starts[part], grid, how) for part in parts}
    return {
        int(rows[part[0]]): _line(found[part].astype(kind), starts[part], clip_seconds, step, how) for part in parts
    }


def _frame_problems(
    values: NDArray[Any], starts: NDArray[np.float64], clip: float, step: float, middle: float | None
) -> list[str]:
    if not (np.isfinite(step) and step > 0):
        return [f"frame_step is {step!r}, must be above 0"]
    if middle is not None and not (np.isfinite(middle) and 0 <= middle <= clip):
        return [f"frame_middle is {middle!r}, must be 0 to clip_seconds, {clip!r}"]
    if values.ndim < 2:
        return [f"values have the shape {list(values.shape)}, must be [n, frames, ...] with frame_step"]
    n = values.shape[1]
    if (n - 2) * step > clip:
        return [f"values have {n} frames of {step!r} s, which are more than clip_seconds, {clip!r}"]
    if starts.size and starts.max() / step + n > _MOST_CELLS:
        return [f"frame_step is {step!r}, which makes more than {_MOST_CELLS} cells"]
    return []


def _frames(values: NDArray[Any], starts: NDArray[np.float64], grid: tuple[float, float], how: str) -> TimeLine:
    """The time line of one recording, of which windows have several frames."""
    step, middle = grid
    n = values.shape[1]
    first = np.rint(starts / step).astype(np.int64)
    n_cells = max(int(first.max()) + n, 0)
    counts = np.zeros(n_cells, np.int64)
    line = np.full((n_cells, *values.shape[2:]), -np.inf if how == "max" else 0.0, values.dtype)
    for cell, frames in zip(first.tolist(), values, strict=True):
        place = slice(max(cell, 0), max(cell + n, 0))
        counts[place] += 1
        heard = frames[max(-cell, 0) :]
        line[place] = np.maximum(line[place], heard) if how == "max" else line[place] + heard
    return TimeLine(np.arange(n_cells) * step + (middle - step / 2), _settled(line, counts, how), counts)


def _settled(line: NDArray[Any], counts: NDArray[np.int64], how: str) -> NDArray[Any]:
    """The means of sums, and NaN where no window is."""
    if how == "mean":
        line /= np.maximum(counts, 1).reshape(-1, *[1] * (line.ndim - 1)).astype(line.dtype)
    line[counts == 0] = np.nan
    return line


def _line(values: NDArray[Any], starts: NDArray[np.float64], clip: float, step: float, how: str) -> TimeLine:
    """The time line of one recording."""
    # A middle on the edge of a window belongs to it at its start, and not at its end.
    edges = np.ceil(np.stack([starts, starts + clip]) / step - 0.5 - 1e-6).astype(np.int64).clip(0)
    first, end = edges
    n_cells = int(end.max())
    counts = np.zeros(n_cells, np.int64)
    shape = (n_cells, *values.shape[1:])
    line = np.full(shape, -np.inf if how == "max" else 0.0, values.dtype)
    for offset in range(int((end - first).max())):
        has = first + offset < end
        cells = first[has] + offset
        np.add.at(counts, cells, 1)
        (np.maximum if how == "max" else np.add).at(line, cells, values[has])
    return TimeLine(np.arange(n_cells, dtype=np.float64) * step, _settled(line, counts, how), counts)
