"""Measures the quality of a shuffle, from the indices alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forebay._checks import MOST, check
from forebay._core import ConfigError

__all__ = ["ShuffleQuality", "shuffle_quality"]


@dataclass(frozen=True)
class ShuffleQuality:
    """The result of `shuffle_quality`. In brackets: the approximate values of a perfect shuffle of n rows."""

    n: int
    """The number of indices measured."""

    displacement_mean: float
    """Mean distance between the position of an index and its position in ascending order [n / 3]."""

    displacement_median: float
    """Median of this distance [0.29 n]."""

    displacement_p90: float
    """90th percentile of this distance [0.68 n]."""

    lag1_correlation: float
    """Correlation of an index with the next one [0, give or take 1 / sqrt(n)]; 1 for ascending order."""

    shards_per_batch: float | None
    """Mean number of distinct shards in a batch; None without `shard_starts`."""

    shard_mix: float | None
    """`shards_per_batch` relative to a perfect shuffle of the same indices [1]; None without `shard_starts`."""


def shuffle_quality(indices: ArrayLike, shard_starts: ArrayLike | None = None, batch_size: int = 64) -> ShuffleQuality:
    """Measures how well an order is shuffled, for example `loader.plan(n)` of one pass.

    `indices` are row numbers in the order of training. Pass one pass or a part of it: an index repeated in
    the next epoch would count as displaced. `shard_starts` are the first rows of the shards: 0, then
    increasing. Shards are counted in whole batches of `batch_size`, or in all indices if there are fewer.

    Raises `ConfigError` if an argument is not such a list.
    """
    rows = np.asarray(indices)
    if rows.ndim != 1 or rows.size < 2 or rows.dtype.kind not in "iu":
        raise ConfigError(
            f"indices are {rows.dtype} of shape {list(rows.shape)}, must be at least 2 whole numbers of shape [n]"
        )
    check(batch_size=(batch_size, 1, MOST))

    moved = np.empty(rows.size, np.int64)
    moved[np.argsort(rows, kind="stable")] = np.arange(rows.size)
    moved = np.abs(moved - np.arange(rows.size))
    shards_per_batch = shard_mix = None
    if shard_starts is not None:
        shards_per_batch, expected = _shards_per_batch(rows, np.asarray(shard_starts), min(batch_size, rows.size))
        shard_mix = shards_per_batch / expected
    return ShuffleQuality(
        n=rows.size,
        displacement_mean=float(moved.mean()),
        displacement_median=float(np.median(moved)),
        displacement_p90=float(np.quantile(moved, 0.9)),
        lag1_correlation=_correlation(rows[:-1].astype(np.float64), rows[1:].astype(np.float64)),
        shards_per_batch=shards_per_batch,
        shard_mix=shard_mix,
    )


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's correlation; 1 if one of the arrays is constant."""
    x, y = x - x.mean(), y - y.mean()
    spread = float((x @ x) * (y @ y)) ** 0.5
    return float(x @ y) / spread if spread > 0 else 1.0


def _shards_per_batch(rows: NDArray[np.integer], starts: NDArray[np.integer], batch_size: int) -> tuple[float, float]:
    """Mean distinct shards per batch: measured, and expected for a perfect shuffle of these rows."""
    if starts.ndim != 1 or not starts.size or (np.diff(starts) < 0).any() or rows.min() < starts[0]:
        raise ConfigError("shard_starts must be the first row of each shard, ascending, none above the least index")
    shards = np.searchsorted(starts, rows, side="right") - 1
    batches = np.sort(shards[: rows.size - rows.size % batch_size].reshape(-1, batch_size), axis=1)
    found = 1 + float((np.diff(batches, axis=1) != 0).sum(axis=1).mean())

    # A shard with m of the n rows is missing in a batch of b with probability C(n - m, b) / C(n, b), computed
    # factor by factor.
    sizes, shards_of_size = np.unique(np.bincount(shards), return_counts=True)
    missing = np.ones(sizes.size)
    for drawn in range(batch_size):
        missing *= np.maximum(1 - sizes / (rows.size - drawn), 0)
    return found, float((shards_of_size * (1 - missing)).sum())
