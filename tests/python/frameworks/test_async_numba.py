"""Numba code that releases the GIL runs on two threads of an `AsyncDataLoader` at the same time."""

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np
import pytest

from forebay import AsyncDataLoader

LIMIT = 2_000_000_000  # turns, one or two seconds: the longest wait for the other thread


def meet(turns: Any, me: int, limit: int) -> bool:
    """Counts turns until the other thread counts too; False after `limit` turns."""
    for _ in range(limit):
        turns[me] += 1
        if turns[1 - me]:
            return True
    return False


class Meeting:
    """A pipeline in which rows 2i and 2i + 1 wait for each other, in code without points that release the GIL."""

    output_specs: Mapping[str, Any] = {"met": ((), bool)}

    def __init__(self, nogil: bool, limit: int) -> None:
        self.meet = numba.njit("boolean(int64[::1], int64, int64)", nogil=nogil)(meet)
        self.limit = limit

    def __call__(self, indices: Any, metadata: Any, _storage: Any, buffers: Any) -> None:
        [row] = indices
        buffers["met"][0] = self.meet(metadata[row // 2], row % 2, self.limit)


class Turns:
    """A reader whose metadata counts the turns of each row, pair by pair."""

    storage_state = None

    def __init__(self, n: int) -> None:
        self.metadata = np.zeros((n // 2, 2), np.int64)

    def __len__(self) -> int:
        return self.metadata.size


@pytest.mark.parametrize(("nogil", "limit"), [(True, LIMIT), (False, 1_000_000)])
def test_two_threads_run_at_once(nogil: bool, limit: int) -> None:
    """If the code holds the GIL, the first of each pair does not meet the second."""
    pipeline = Meeting(nogil, limit)
    with AsyncDataLoader(Turns(20), pipeline, 1, num_workers=2, buffers_ahead=2, shuffle=False) as loader:
        met = [bool(batch.data["met"][0]) for batch in loader]
    assert met == ([True] * 20 if nogil else [False, True] * 10)
