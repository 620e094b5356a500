"""A reader of numbers as rows, a pipeline that copies them, and the expected batches of `AsyncDataLoader`.

Imports little, because each child process of `scenes` imports it.
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
"""Seconds that threads may take to end: three times the goal, because machines that run tests are busy."""

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
    """Writes a row's number into `label` and half of it into each value of `x`.

    A call sleeps for up to `jitter_s`. It raises the exception that `bad` has for a row.
    """

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
        indices[:] = -1  # the pipeline may write to its argument


def loader(n: int = 103, batch_size: int = 4, pipeline: Any = None, **parameters: Any) -> AsyncDataLoader:
    return AsyncDataLoader(Reader(n), pipeline or Pipeline(), batch_size, **parameters)


def assert_right(batch: BatchResult) -> None:
    rows = len(batch.indices)
    assert batch.data["x"].shape == (rows, *ROW)
    assert (batch.data["x"] == 0.5 * batch.indices[:, None, None]).all()
    assert batch.data["label"].tolist() == batch.indices.tolist()


def rows(batches: Iterable[BatchResult]) -> list[list[int]]:
    """The row numbers of each batch; checks the values of the batches."""
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
    """The seconds until all threads of loaders have ended."""
    start = time.perf_counter()
    while threads() and time.perf_counter() - start < 60:
        time.sleep(0.002)
    return time.perf_counter() - start
