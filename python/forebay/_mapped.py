"""`MappedReader`: a memory-mapped `.npy` file whose next rows the kernel reads ahead."""

import mmap
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forebay._checks import advised, as_path
from forebay._core import ConfigError

__all__ = ["MappedReader"]

_PAGE = mmap.PAGESIZE


class MappedReader:
    """Memory-maps the rows of a `.npy` file, for `AsyncDataLoader`.

    The pipeline gets this reader as `storage_state`: `storage_state.array[indices]`, or
    `np.take(storage_state.array, indices, axis=0, out=...)`. The kernel reads the rows of the next batches
    ahead (`madvise`, `MADV_WILLNEED`), many at once; reading on access would wait for one page after the
    other.
    """

    array: np.memmap[Any, Any]
    """`[len, *shape of a row]`, read-only."""

    metadata: Any
    """The argument `metadata`."""

    @advised("forebay.MappedReader", file="path", filename="path")
    def __init__(self, path: str | PathLike[str], metadata: Any = None) -> None:
        expected = "expected a .npy file in C order, of one axis at least, without Python objects"
        try:
            array = np.lib.format.open_memmap(as_path("path", path), mode="r")
        except ValueError as error:
            raise ConfigError(f"{path} cannot be mapped, {expected}: {error}") from None
        if not array.ndim or not array.flags.c_contiguous:
            raise ConfigError(f"{path} has no rows stored one after the other, {expected}")
        self.array, self.metadata = array, metadata
        self._path = path
        self._map: Any = array.base
        self._start = array.offset % mmap.ALLOCATIONGRANULARITY  # maps begin at multiples of the granularity
        self._row_bytes = array.strides[0] if array.size else 0

    def __len__(self) -> int:
        return len(self.array)

    @property
    def storage_state(self) -> Self:
        """The reader itself."""
        return self

    def will_need(self, indices: NDArray[np.int64]) -> None:
        """Requests the kernel to read these rows ahead, without waiting."""
        for start, stop in self._pages(indices):
            self._map.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def _pages(self, indices: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The byte ranges of the rows in the map: whole pages, merged, not beyond the end of the file."""
        if not (self._row_bytes and len(indices)):
            return []
        start = self._start + np.unique(indices) * self._row_bytes
        first, end = start // _PAGE, -(-(start + self._row_bytes) // _PAGE)
        gaps = np.flatnonzero(first[1:] > end[:-1])
        first, end = first[np.append(0, gaps + 1)], end[np.append(gaps, -1)]
        return list(zip((first * _PAGE).tolist(), np.minimum(end * _PAGE, len(self._map)).tolist(), strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path, self.metadata)

    def __repr__(self) -> str:
        return f"<forebay.MappedReader: {len(self)} rows {self.array.shape[1:]} of {self.array.dtype}, {self._path}>"
