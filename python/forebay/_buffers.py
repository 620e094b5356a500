"""Recycled memory: `BufferPool` for users, and the fields of `AsyncDataLoader`."""

import math
import operator
import weakref
from collections import deque
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay._checks import MOST, advised, check, wrong_type
from forebay._core import ConfigError, StateError

__all__ = ["BufferPool"]

Spec: TypeAlias = tuple[Sequence[int], DTypeLike]
"""Shape and type of one row of a field."""


class BufferPool:
    """A thread-safe pool of `num_buffers` arrays of one shape and type, as scratch memory of constant size."""

    @advised("forebay.BufferPool", n_buffers="num_buffers", size="num_buffers", shape="buffer_shape")
    def __init__(self, num_buffers: int, buffer_shape: Sequence[int] | int, dtype: DTypeLike) -> None:
        check(num_buffers=(num_buffers, 1, MOST))
        shape = buffer_shape if isinstance(buffer_shape, Sequence) else (buffer_shape,)
        for length in shape:
            check(buffer_shape=(length, 0, 2**62))
        try:
            given = np.dtype(dtype)
        except TypeError as error:
            raise TypeError(f"argument 'dtype': {error}") from None
        self._buffers = [np.empty(shape, given) for _ in range(num_buffers)]
        self._lent: set[int] = set()
        self._free: SimpleQueue[int] = SimpleQueue()
        for buffer_id in range(num_buffers):
            self._free.put(buffer_id)

    def __repr__(self) -> str:
        first = self._buffers[0]
        n_lent = len(self._lent)
        return f"<forebay.BufferPool: {len(self._buffers)} arrays {[*first.shape]} {first.dtype}, {n_lent} acquired>"

    def acquire(self, timeout: float | None = None) -> tuple[int, NDArray[Any]]:
        """Returns the number and the array of a free buffer, with its old content.

        Waits for a free buffer; raises `TimeoutError` after `timeout` seconds.
        """
        try:
            buffer_id = self._free.get(timeout=timeout)
        except Empty:
            raise TimeoutError(f"none of {len(self._buffers)} buffers was released within {timeout} s") from None
        self._lent.add(buffer_id)
        return buffer_id, self._buffers[buffer_id]

    def release(self, buffer_id: int) -> None:
        """Returns the buffer of this number to the pool, from any thread; `acquire` may lend the same memory again."""
        given: Any = buffer_id
        if not hasattr(given, "__index__") or getattr(given, "ndim", False):
            raise wrong_type("buffer_id", "the number that acquire() returned with the array", buffer_id)
        try:
            self._lent.remove(buffer_id)
        except KeyError:
            raise StateError(f"buffer {buffer_id} is not lent; release each acquired buffer once") from None
        self._free.put(buffer_id)


class _Block(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory for one field of a batch.

    A separate type, because in numpy a view of a view refers to the owner of the memory, unless the owner has
    another type. So views of a lent array keep the array alive.
    """

    loan: "weakref.ref[NDArray[Any]]"


def _views_keep_loans() -> bool:
    """Whether numpy is as `_Block` needs it."""
    loan = np.ndarray((2, 2), np.uint8, _Block((4,), np.uint8))
    views = (loan[:1], loan[0, :], loan.T, loan.reshape(4), loan.view(np.uint16), loan[:1][:, 1:], np.asarray(loan[1]))
    return all(view.base is loan for view in views)


_REUSES_MEMORY = _views_keep_loans()
"""Otherwise each batch has memory of its own: views would not keep the array from which they were made."""


class FieldMemory:
    """The memory of one field: lent as an array, and reused once no array or view refers to it."""

    def __init__(self, name: str, batch_size: int, spec: Spec, most_resting: int) -> None:
        try:
            shape, dtype = spec
            given = np.dtype(dtype)
            self._shape = (*map(operator.index, shape), *given.shape)
            is_possible = not given.base.hasobject and given.base.itemsize and min(self._shape, default=0) >= 0
        except (TypeError, ValueError):
            is_possible = False
        if not is_possible:
            raise ConfigError(
                f"output_specs[{name!r}] is {spec!r}, expected (shape, dtype): the shape of one row, lengths "
                "from 0 on, and a type of fixed size without Python objects"
            )
        self._dtype = given.base
        self._bytes = batch_size * math.prod(self._shape) * self._dtype.itemsize
        self._resting: deque[_Block] = deque(maxlen=most_resting)

    def lend(self, rows: int) -> NDArray[Any]:
        """Returns an uninitialised array `[rows, *shape]`."""
        if not _REUSES_MEMORY:
            return np.empty((rows, *self._shape), self._dtype)
        try:
            block = self._resting.pop()
        except IndexError:
            block = _Block((max(self._bytes, 1),), np.uint8)
        loan: NDArray[Any] = np.ndarray((rows, *self._shape), self._dtype, block)
        # The callback calls only C functions: Ctrl-C in a Python callback would be lost. The array keeps the
        # block alive, and the block keeps the callback alive.
        block.loan = weakref.ref(loan, partial(next, map(self._resting.append, (block,))))
        return loan
