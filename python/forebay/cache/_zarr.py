"""Rows of Zarr arrays that other programs wrote, read by tensorstore or else by zarr-python.

tensorstore is preferred: it reads all rows of a call at once, on its own threads, and decodes a chunk once that several
of them touch. It ends a process that was forked after tensorstore was in use, so there zarr-python reads.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay._core import ConfigError, DecodeError, StateError
from forebay.cache._metadata import DTYPES, ArrayShape, read_shape

_AHEAD_BYTES = 64 << 20
"""The most bytes of rows that are requested at once, except for a single larger request."""
_KEPT_BYTES = 64 << 20
"""The most bytes of decoded chunks that tensorstore keeps, for all arrays together."""

Span = tuple[int, int]
"""The first row, and the one after the last."""


class _Handle(Protocol):
    """An open array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, spans: Sequence[Span]) -> Iterator[NDArray[Any]]:
        """The rows of each span."""


class _Tensorstore:
    """An array that tensorstore reads."""

    _context: Any = None

    def __init__(self, module: Any, folder: Path) -> None:
        self._module = module
        if _Tensorstore._context is None:
            _Tensorstore._context = module.Context({"cache_pool": {"total_bytes_limit": _KEPT_BYTES}})
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}
        self._array = module.open(spec, open=True, read=True, context=_Tensorstore._context).result()
        self.shape = tuple(self._array.shape)
        self.dtype = np.dtype(self._array.dtype.numpy_dtype)

    def read(self, spans: Sequence[Span]) -> Iterator[NDArray[Any]]:
        with self._module.Batch() as batch:
            futures = [self._array[start:stop].read(batch=batch) for start, stop in spans]
        for future in futures:
            yield future.result()


class _ZarrPython:
    """An array that zarr-python reads."""

    def __init__(self, module: Any, folder: Path) -> None:
        self._array = module.open_array(str(folder), mode="r", zarr_format=3)
        self.shape = tuple(self._array.shape)
        self.dtype = np.dtype(self._array.dtype).newbyteorder("=")

    def read(self, spans: Sequence[Span]) -> Iterator[NDArray[Any]]:
        for start, stop in spans:
            yield self._array[start:stop]


# Whether this process was forked while tensorstore was loaded.
_is_forked = False


def _after_fork() -> None:
    global _is_forked  # noqa: PLW0603
    _is_forked = "tensorstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _open(folder: Path) -> _Handle:
    """Opens an array with the first library that is installed."""
    if not _is_forked and (module := _imported("tensorstore")):
        return _Tensorstore(module, folder)
    if module := _imported("zarr"):
        if int(str(module.__version__).split(".")[0]) < 3:
            raise ImportError(f"zarr {module.__version__} does not read Zarr v3: pip install 'zarr>=3' or tensorstore")
        return _ZarrPython(module, folder)
    if _is_forked:
        raise StateError(
            "tensorstore does not work in a process that was forked after it was loaded; start processes by "
            "forkserver or spawn, or pip install zarr"
        )
    raise ImportError(
        "caches of other programs are read by tensorstore or zarr, and neither is installed: pip install tensorstore"
    )


def _imported(name: str) -> Any:
    """The library, or None if it is not installed; an installed one that cannot be imported raises its error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None


class _Opened(NamedTuple):
    process: int
    rows: int
    handle: _Handle


class ForeignArray:
    """An array of numbers on one or two axes, which may grow; threads share it.

    Raises `ConfigError` if the array has another shape or cannot be opened, `OSError` if it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.shape = read_shape(folder)
        self.dtype = np.dtype(self.shape.dtype)
        self.row_bytes = self.shape.width * DTYPES[self.shape.dtype]
        self._opened = self._open(self.shape)

    def read(self, spans: Sequence[Span]) -> Iterator[NDArray[Any]]:
        """The values of each span of rows, on one axis; the rows must be committed.

        Raises `DecodeError` if they cannot be read or the array has fewer rows.
        """
        if not spans:
            return
        handle = self._with_rows(max(stop for _, stop in spans))
        at = 0
        while at < len(spans):
            first, n_bytes = at, 0
            while at < len(spans) and (at == first or n_bytes < _AHEAD_BYTES):
                n_bytes += (spans[at][1] - spans[at][0]) * self.row_bytes
                at += 1
            group = spans[first:at]
            rows = handle.read(group)
            for start, stop in group:
                try:
                    values = np.asarray(next(rows), self.dtype, order="C")
                except (MemoryError, OSError):
                    raise
                except Exception as error:
                    raise DecodeError(f"cannot read rows {start} to {stop} of {self._folder}: {error}") from error
                if values.size != (stop - start) * self.shape.width:
                    raise DecodeError(f"rows {start} to {stop} of {self._folder} have the shape {list(values.shape)}")
                yield values.reshape(-1)

    def _with_rows(self, rows: int) -> _Handle:
        """The array, opened again if it has grown or in a child process."""
        opened = self._opened
        if opened.rows < rows or opened.process != os.getpid():
            shape = read_shape(self._folder)
            if shape._replace(rows=self.shape.rows) != self.shape:
                raise StateError(f"the array {self._folder} was replaced while it was open; open the cache again")
            opened = self._opened = self._open(shape)
        if opened.rows < rows:
            raise DecodeError(f"{self._folder} has {opened.rows} rows, and the ledger and the offsets count {rows}")
        return opened.handle

    def _open(self, shape: ArrayShape) -> _Opened:
        try:
            handle = _open(self._folder)
        except (ImportError, MemoryError, OSError, StateError):
            raise
        except Exception as error:
            raise ConfigError(f"cannot open the Zarr array {self._folder}: {error}") from error
        if handle.shape[1:] != (() if shape.columns is None else (shape.columns,)) or handle.dtype != self.dtype:
            raise ConfigError(f"{self._folder} has other metadata than when it was opened; open the cache again")
        return _Opened(os.getpid(), handle.shape[0], handle)
