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
) -> dict[int, TimeLine]:
    """Puts the outputs of windows on the time line of each recording.

    `values` `[n, ...]` has an output for each window, such as scores of classes; `index` and `start` `[n]` are those of
    the batches (`outputs=["start"]`), joined in any order, also over ranks. A window lasts `clip_seconds`. A time line
    has cells of `step` seconds (None: `clip_seconds`, which is the most), from 0 to the end of the last window. A
    window has the cells whose middles are in it, and a cell has the maximum or the mean of its windows.

    Returns a `TimeLine` for each recording by its `index`, in ascending order. Raises `ConfigError` for lengths that
    differ, and for values that are no number.
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
    if problems:
        raise ConfigError("; ".join(problems))
    kind = found.dtype if found.dtype.kind == "f" else np.dtype(np.float64)
    order = np.argsort(rows, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1) if len(rows) else []
    return {
        int(rows[part[0]]): _line(found[part].astype(kind), starts[part], clip_seconds, step, how) for part in parts
    }


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
    if how == "mean":
        line /= np.maximum(counts, 1).reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
    line[counts == 0] = np.nan
    return TimeLine(np.arange(n_cells, dtype=np.float64) * step, line, counts)
