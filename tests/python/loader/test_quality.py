"""`forebay.shuffle_quality`: its figures for known orders equal the expected values."""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay import shuffle_quality
from recordings import TINY

N_SHARDS, ROWS_PER_SHARD = 50, 400
N = N_SHARDS * ROWS_PER_SHARD
STARTS = range(0, N, ROWS_PER_SHARD)


def windowed(window: int, seed: int = 0) -> list[int]:
    """The order of a window with this many slots over all rows in storage order."""
    rng = random.Random(seed)
    rows = list(range(N))
    slots, order = rows[:window], []
    for row in rows[window:]:
        slot = rng.randrange(window)
        order.append(slots[slot])
        slots[slot] = row
    rng.shuffle(slots)
    return order + slots


def test_rising_order() -> None:
    quality = shuffle_quality(range(N), STARTS, batch_size=50)
    assert dataclasses.astuple(quality)[:4] == (N, 0, 0, 0)
    assert quality.lag1_correlation == pytest.approx(1)
    assert quality.shards_per_batch == 1
    # A random batch of 50 of 20 000 rows has no row of a given shard of 400 with probability 0.364.
    assert quality.shard_mix == pytest.approx(1 / (N_SHARDS * (1 - 0.3637)), rel=1e-3)


def test_falling_order() -> None:
    quality = shuffle_quality(range(N, 0, -1))
    assert quality.lag1_correlation == pytest.approx(1)
    assert quality.displacement_mean == pytest.approx(N / 2)
    assert quality.shards_per_batch is quality.shard_mix is None


def test_perfect_shuffle() -> None:
    """Figures of 30 shuffles are within five standard deviations of the expected ones, their means within one."""
    found = [shuffle_quality(np.random.default_rng(seed).permutation(N), STARTS) for seed in range(30)]
    expected = {
        "displacement_mean": N / 3,
        "displacement_median": N * (1 - 0.5**0.5),
        "displacement_p90": N * (1 - 0.1**0.5),
        "lag1_correlation": 0,
        "shard_mix": 1,
    }
    for name, value in expected.items():
        values = np.array([getattr(quality, name) for quality in found])
        assert (np.abs(values - value) < 5 * values.std()).all(), name
        assert abs(values.mean() - value) < values.std(), name


@pytest.mark.parametrize("window", [1, 20, 400, 4000])
def test_window(window: int) -> None:
    """The mean displacement of a window of W slots is about 2 W / e."""
    quality = shuffle_quality(windowed(window), STARTS)
    expected = 2 * window * (1 - 1 / window) ** window
    assert quality.displacement_mean == pytest.approx(expected, rel=0.1 if window < 4000 else 0.3)


def test_a_larger_window_mixes_better() -> None:
    found = [shuffle_quality(windowed(window), STARTS) for window in (1, 20, 400, 4000, N)]
    mixes = [quality.shard_mix or 0 for quality in found]
    assert mixes == sorted(mixes)
    assert mixes[-1] == pytest.approx(1, abs=0.02)
    correlations = [quality.lag1_correlation for quality in found]
    assert correlations == sorted(correlations, reverse=True)


def test_unequal_and_empty_shards() -> None:
    """The expected number of shards per batch is for draws without replacement."""
    starts = [0, 0, 1, 10, 10, 700]
    rng = np.random.default_rng(1)
    drawn = [rng.permutation(1000) for _ in range(300)]
    mixes = [shuffle_quality(order, starts, batch_size=40).shard_mix or 0 for order in drawn]
    assert np.mean(mixes) == pytest.approx(1, abs=0.005)


def test_fewer_rows_than_a_batch() -> None:
    assert shuffle_quality([0, 1, 2, 3], [0, 2], batch_size=64).shard_mix == 1
    assert shuffle_quality([5, 5], [0, 2]).lag1_correlation == 1


def test_part_of_a_pass() -> None:
    """For a rank's rows or the start of an order, displacements count only the given rows."""
    assert shuffle_quality(range(3, N, 4)).displacement_mean == 0


def test_a_batch_of_a_loader(tiny_shard: Path) -> None:
    with forebay.Loader(tiny_shard, infinite=False, shuffle_min_size=300, batch_size=12_000, **TINY) as loader:
        quality = shuffle_quality(next(loader)["index"])
    assert quality.displacement_mean == pytest.approx(600 / np.e, rel=0.1)


@pytest.mark.parametrize("indices", [[], [1], [0.5, 1.0], [[1, 2], [3, 4]], ["a", "b"], [True, False]])
def test_refuses_what_is_no_order(indices: list[object]) -> None:
    with pytest.raises(forebay.ConfigError, match="at least 2 whole numbers"):
        shuffle_quality(np.array(indices))


@pytest.mark.parametrize("starts", [[], [1, 5], [0, 5, 3], [[0, 2]]])
def test_refuses_what_are_no_shards(starts: list[object]) -> None:
    with pytest.raises(forebay.ConfigError, match="shard_starts"):
        shuffle_quality([0, 1, 2], np.array(starts))


def test_refuses_a_batch_of_none() -> None:
    with pytest.raises(forebay.ConfigError, match="batch_size is 0"):
        shuffle_quality([0, 1, 2], [0], batch_size=0)


def test_is_a_value() -> None:
    quality = shuffle_quality([0, 2, 1])
    assert dataclasses.replace(quality) == quality
    with pytest.raises(dataclasses.FrozenInstanceError):
        quality.n = 3  # type: ignore[misc]
