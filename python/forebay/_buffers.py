"""Memory that goes round."""

import math
import operator
import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay._core import ConfigError, StateError

__all__ = ["BufferPool"]

MOST = 2**31 - 1


class BufferPool:
    """`num_buffers` arrays of one shape and type, lent one by one: scratch memory for threads, which never grows."""

    def __init__(self, num_buffers: int, buffer_shape: Sequence[int] | int, dtype: DTypeLike) -> None:
        check(num_buffers=(num_buffers, 1, MOST))
        self._buffers = [np.empty(buffer_shape, dtype) for _ in range(num_buffers)]
        self._lent: set[int] = set()
        self._free: SimpleQueue[int] = SimpleQueue()
        for buffer_id in range(num_buffers):
            self._free.put(buffer_id)

    def acquire(self, timeout: float | None = None) -> tuple[int, NDArray[Any]]:
        """A free buffer's number and array, as it was left.

        Waits for one; after `timeout` seconds raises `TimeoutError`.
        """
        try:
            buffer_id = self._free.get(timeout=timeout)
        except Empty:
            raise TimeoutError(f"none of {len(self._buffers)} buffers came back within {timeout} s") from None
        self._lent.add(buffer_id)
        return buffer_id, self._buffers[buffer_id]

    def release(self, buffer_id: int) -> None:
        """Takes a buffer back, from any thread; whoever acquires it next writes into the same memory."""
        try:
            self._lent.remove(buffer_id)
        except KeyError:
            raise StateError(f"buffer {buffer_id} is not lent; release what acquire() returned, once") from None
        self._free.put(buffer_id)


class _Block(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory for one field of a batch.

    A type of its own, because numpy has a view of a view refer to the owner of the memory, unless that is of another
    type: so views of a loan keep the loan.
    """

    loan: "weakref.ref[NDArray[Any]]"


class FieldMemory:
    """The memory of one field: lent as arrays, and again when nothing refers to such an array or a view of it."""

    def __init__(self, name: str, batch_size: int, shape: Sequence[int], dtype: DTypeLike, most_resting: int) -> None:
        given = np.dtype(dtype)
        self._dtype = given.base
        self._shape = (*map(operator.index, shape), *given.shape)
        self._bytes = batch_size * math.prod(self._shape) * self._dtype.itemsize
        self._resting: deque[_Block] = deque(maxlen=most_resting)
        if self._dtype.hasobject or not self._dtype.itemsize or min(self._shape, default=0) < 0:
            raise ConfigError(
                f"output_specs[{name!r}] is {(shape, dtype)}, expected the shape of one row, lengths from 0 on, "
                "and a type of fixed size without Python objects"
            )

    def lend(self, rows: int) -> NDArray[Any]:
        """An array `[rows, *shape]`, of whatever is in its memory."""
        try:
            block = self._resting.pop()
        except IndexError:
            block = _Block((max(self._bytes, 1),), np.uint8)
        loan: NDArray[Any] = np.ndarray((rows, *self._shape), self._dtype, block)
        # Calls nothing but C: Ctrl-C in a callback that is written in Python would be lost. The array keeps the block,
        # and that keeps the callback.
        block.loan = weakref.ref(loan, partial(next, map(self._resting.append, (block,))))
        return loan


def check(**parameters: tuple[SupportsIndex, int, int]) -> None:
    """Raises `ConfigError` with all parameters (value, least, most) that are out of range."""
    problems = []
    for name, (value, least, most) in parameters.items():
        if isinstance(value, bool):
            raise TypeError(f"{name}: a whole number is expected, not a bool")
        if not least <= operator.index(value) <= most:
            problems.append(f"{name} is {value}, must be {least} to {most}")
    if problems:
        raise ConfigError("; ".join(problems))
