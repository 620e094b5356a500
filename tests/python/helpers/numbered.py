"""Rows that are numbers, a pipeline that copies them, and what `AsyncDataLoader` must make of both.

Imports little: processes of their own that play a scene begin with it.
"""

import random
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import AsyncDataLoader, BatchResult, _core

END_LIMIT_S = 3 * 0.5
"""How long threads may take to end: three times the goal, for machines that test are busy."""

ROW = (16, 64)
"""32 KB of float64 a batch of 4."""


class Reader:
    """Row i is the number i."""

    def __init__(self, n: int) -> None:
        self.metadata = np.arange(n)
        self.storage_state: Any = {"scale": 0.5}

    def __len__(self) -> int:
        return len(self.metadata)


class Pipeline:
    """Writes a row's number into `label`, half of it all over `x`; takes up to `jitter_s`, fails at the rows `bad`."""

    output_specs: Mapping[str, Any] = {"x": (ROW, np.float64), "label": ((), "int64")}

    def __init__(self, jitter_s: float = 0, bad: Mapping[int, BaseException] | None = None) -> None:
        self.jitter_s = jitter_s
        self.bad = bad or {}
        self.calls = 0

    def __call__(
        self, indices: NDArray[np.int64], metadata: Any, storage_state: Any, buffers: Mapping[str, NDArray[Any]]
    ) -> None:
        self.calls += 1
        if self.jitter_s:
            time.sleep(random.random() * self.jitter_s)
        for row in indices.tolist():
            if row in self.bad:
                raise self.bad[row]
        buffers["x"][:] = metadata[indices, None, None] * storage_state["scale"]
        buffers["label"][:] = metadata[indices]
        indices[:] = -1  # its own to change


def loader(n: int = 103, batch_size: int = 4, pipeline: Any = None, **parameters: Any) -> AsyncDataLoader:
    return AsyncDataLoader(Reader(n), pipeline or Pipeline(), batch_size, **parameters)


def assert_right(batch: BatchResult) -> None:
    rows = len(batch.indices)
    assert batch.data["x"].shape == (rows, *ROW)
    assert (batch.data["x"] == 0.5 * batch.indices[:, None, None]).all()
    assert batch.data["label"].tolist() == batch.indices.tolist()


def rows(batches: Iterable[BatchResult]) -> list[list[int]]:
    """The rows of each batch, whose values must be right."""
    found = []
    for batch in batches:
        assert_right(batch)
        found.append(batch.indices.tolist())
    return found


def expected(n: int = 103, batch_size: int = 4, epoch: int = 0, seed: int = 42) -> list[list[int]]:
    order = _core._permutation(seed, epoch, n).tolist()
    return [order[i : i + batch_size] for i in range(0, n, batch_size)]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("forebay-async")]


def seconds_to_end() -> float:
    """How long it takes until no thread of a loader is left."""
    start = time.perf_counter()
    while threads() and time.perf_counter() - start < 60:
        time.sleep(0.002)
    return time.perf_counter() - start
