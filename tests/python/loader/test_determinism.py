"""Batches are a pure function of files and parameters, independent of threads, channel, buffer and time."""

import hashlib
import itertools
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import _core
from recordings import TINY

WINDOW = 100


def digest(loader: forebay.Loader, n_batches: int | None = None) -> str:
    """A digest of every field of the first batches, in order."""
    sha = hashlib.sha256()
    with loader:
        for batch in itertools.islice(loader, n_batches):
            for field, values in batch.items():
                sha.update(f"{field} {values.dtype} {values.shape}".encode())
                sha.update(values.tobytes())
    return sha.hexdigest()


def train(shards: list[Path], **overrides: Any) -> forebay.Loader:
    """A training loader with a window of `WINDOW`; `N_BATCHES` batches of `tiny_shards` are almost three epochs."""
    parameters: dict[str, Any] = {
        "shuffle_min_size": WINDOW,
        "shuffle_buffer_size": 4 * WINDOW,
        "batch_size": 16,
        **overrides,
    }
    return forebay.Loader(shards, **parameters, **TINY)


N_BATCHES = 50


@pytest.fixture(scope="module")
def expected(tiny_shards: list[Path]) -> str:
    return digest(train(tiny_shards), N_BATCHES)


@pytest.mark.parametrize("n_workers", [1, 2, 8])
@pytest.mark.parametrize("raw_channel_size", [1, 256])
@pytest.mark.parametrize("capacity", [WINDOW, 3 * WINDOW, 10_000])
def test_infinite(n_workers: int, raw_channel_size: int, capacity: int, tiny_shards: list[Path], expected: str) -> None:
    _core._inject_delays(random_ms=2.0)
    loader = train(tiny_shards, n_workers=n_workers, raw_channel_size=raw_channel_size, shuffle_buffer_size=capacity)
    assert digest(loader, N_BATCHES) == expected


def test_bad_records_are_among_them(tiny_shards: list[Path]) -> None:
    with train(tiny_shards) as loader:
        for batch in itertools.islice(loader, N_BATCHES):
            assert len(batch["index"]) == 16
        assert loader.stats()["delivered"]["substitutes"] > 20
        assert len(loader.errors()) == 15


@pytest.mark.parametrize("window", [0, 1, 7, WINDOW, 1000])
def test_finite(window: int, tiny_shards: list[Path]) -> None:
    digests = set()
    for n_workers, raw_channel_size in [(1, 1), (2, 256), (8, 3)]:
        _core._inject_delays(random_ms=1.0 if n_workers > 1 else 0.0)
        digests.add(
            digest(
                train(
                    tiny_shards,
                    infinite=False,
                    shuffle_min_size=window,
                    shuffle_buffer_size=max(window, 1),
                    n_workers=n_workers,
                    raw_channel_size=raw_channel_size,
                )
            )
        )
    assert len(digests) == 1


def test_recordings_with_random_crops(shards: list[Path]) -> None:
    """Batches of long recordings in several formats, with crops and resampling."""
    digests = {
        digest(forebay.Loader(shards, batch_size=8, clip_seconds=1.0, n_workers=n, shuffle_min_size=window), 8)
        for n, window in [(1, 10), (2, 10), (8, 10)]
    }
    assert len(digests) == 1


def test_seeds_and_epochs_differ(tiny_shards: list[Path]) -> None:
    digests = [digest(train(tiny_shards, seed=seed), N_BATCHES) for seed in range(4)]
    for epoch in range(4):
        loader = train(tiny_shards, infinite=False)
        loader.set_epoch(epoch)
        digests.append(digest(loader))
    assert len(set(digests)) == len(digests)


def test_passes_are_epochs(tiny_shards: list[Path]) -> None:
    """The second pass equals a pass after `set_epoch(1)`; a pass that was left is over."""

    def rows(loader: forebay.Loader) -> list[int]:
        return [int(i) for batch in loader for i in batch["index"]]

    with train(tiny_shards, infinite=False) as loader:
        passes = [rows(loader) for _ in range(3)]
        assert loader.epoch == 2
    with train(tiny_shards, infinite=False) as loader:
        loader.set_epoch(1)
        next(iter(loader))
        assert rows(loader) == passes[2]
        loader.set_epoch(0)
        assert rows(loader) == passes[0]
