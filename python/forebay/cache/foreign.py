"""`ForeignDataset`: a dataset over a cache that another program wrote, such as Levanter.

The layout is that of docs/cache.md: a ledger, and for each field `data`, `offsets` and, above one axis, `shapes`, with
any chunks and codecs that tensorstore or zarr-python reads. Everything that a file claims is checked before memory
is allocated for it.
"""

import os
import threading
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forebay._checks import advised, as_path
from forebay._core import ConfigError, DecodeError, StateError, _cache_fields
from forebay._jagged import JaggedArray
from forebay.cache._documents import nested
from forebay.cache._metadata import LEDGER, MAX_COUNT, MAX_RANK, no_cache, read_ledger
from forebay.cache._zarr import ForeignArray
from forebay.cache.datasets import _OF_LOADERS, AsyncDataset, Document, _Field, _rows

__all__ = ["ForeignDataset"]

# Bytes of decoded ends kept for each field.
_KEPT_BYTES = 32 << 20
# Rows with gaps of at most this many bytes are read together, up to this many bytes.
_GAP_BYTES = 16 << 10
_TOGETHER_BYTES = 4 << 20

_Numbers = NDArray[np.int64]


class _Seen(NamedTuple):
    """The content of the ledger when it was last read."""

    mark: tuple[int, int, int]
    documents: int
    is_final: bool
    made_by: str
    values: list[int]
    """Values of each field."""


class ForeignDataset(AsyncDataset):
    """A dataset over a cache that another program wrote (Levanter, or tensorstore in its layout), even while it grows.

    `TreeStore` and `CacheDataset` read the caches of forebay only, and `convert` makes such a cache of this one:
    random access is then several times faster, and windows of tokens (`TokenSeqDataset`) are possible. `path` is
    the folder of the cache, `split` a folder in it; `folder` is their absolute path. A document is a dict of arrays,
    nested as the folders are. A field of single numbers has the shape `[1]` in each document.

    Needs `pip install tensorstore`, or zarr, which is slower; zarr is used too in a process that was forked after
    tensorstore was loaded. Adjacent documents are read together. tensorstore keeps up to 64 MiB of decoded chunks
    for all such datasets, and each field 32 MiB of offsets.

    Raises `FileNotFoundError` if there is no cache, `ConfigError` if its files are not those of a cache or exceed the
    limits of docs/security.md, `DecodeError` if they are damaged, `ImportError` if neither library is installed.
    """

    _for_windows = "forebay.cache.convert(path, new_folder) makes a cache of forebay of this one"

    @advised("forebay.cache.ForeignDataset", cache_dir="path", folder="path", **_OF_LOADERS)
    def __init__(self, path: str | PathLike[str], split: str = "train") -> None:
        place = as_path("path", path)
        if "://" in os.fsdecode(path):
            raise ConfigError(
                f"path is {os.fsdecode(path)}; another program's cache is read on local disks only: download it"
            )
        self._arguments = (path, split)
        self.folder = (place / split).resolve()
        self._refreshing = (os.getpid(), threading.Lock())
        self._arrays: list[_JaggedField] = []
        self._seen: _Seen | None = None
        self._refresh()

    def __len__(self) -> int:
        """The final number of documents; waits until it is known."""
        return self.wait_until_len_at_least(2**63 - 1)

    def current_len(self) -> int:
        """The number of documents that can be read now."""
        return self._refresh().documents

    def final_length_is_known(self) -> bool:
        """Whether `current_len()` is final."""
        return self._refresh().is_final

    def get_batch(self, indices: ArrayLike) -> list[Document]:
        """Returns the documents at `indices`, in this order; an index may be repeated.

        Documents read by one call are views of shared memory. Waits for documents that are not written yet.
        """
        rows = _rows(indices)
        if not len(rows):
            return []
        if rows.min() < 0:
            raise IndexError(f"document {rows.min()} is requested; the first one is 0")
        if self.wait_until_len_at_least(int(rows.max()) + 1) <= rows.max():
            raise IndexError(f"document {rows.max()} is requested, but there are {self.current_len()}")
        return nested(len(rows), self._read(rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __repr__(self) -> str:
        seen = self._refresh()
        more = "" if seen.is_final else ", growing"
        names = ", ".join(field.name for field in self._arrays) or "no fields yet"
        return f"<forebay.cache.ForeignDataset: {seen.documents} documents{more}, {names}>"

    # Methods that the core calls.

    def _field_tuples(self) -> list[_Field] | None:
        seen = self._refresh()
        if not (seen.documents or seen.is_final):
            return None
        return [(field.name, field.data.dtype.name, field.rank, None) for field in self._arrays]

    def _columns(self, indices: NDArray[np.int64]) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        return [(rows.data.view(np.uint8), _shapes_of(rows)) for _, rows in self._read(indices)]

    # Methods that `convert` calls.

    def _n_bytes(self) -> int:
        """The bytes of all values."""
        return sum(n * field.data.row_bytes for n, field in zip(self._refresh().values, self._arrays, strict=True))

    def _read(self, rows: _Numbers) -> Iterator[tuple[str, JaggedArray]]:
        """For each field its documents at `rows`, which are committed."""
        seen = self._refresh()
        for field, values in zip(self._arrays, seen.values, strict=True):
            yield field.name, field.documents(rows, seen.documents, values)

    def _refresh(self) -> _Seen:
        """Checks the ledger: a `stat`, and a read if it has changed."""
        seen = self._seen
        if seen is not None and seen.is_final:
            return seen
        process, lock = self._refreshing
        if process != os.getpid():  # at the fork, another thread may have had the lock
            lock = threading.Lock()
            self._refreshing = os.getpid(), lock
        with lock:
            return self._checked()

    def _checked(self) -> _Seen:
        seen = self._seen
        try:
            status = (self.folder / LEDGER).stat()
        except FileNotFoundError:
            raise no_cache(self.folder) from None
        mark = status.st_mtime_ns, status.st_size, status.st_ino
        if seen is not None and seen.mark == mark:
            return seen
        ledger = read_ledger(self.folder)
        documents = ledger.documents
        if seen is not None and (documents < seen.documents or ledger.made_by != seen.made_by):
            raise StateError(
                f"the cache {self.folder} was built again while it was open: it had {seen.documents} documents and has "
                f"{documents}; open it again"
            )
        if documents and not self._arrays:
            if ledger.fields:
                self._arrays = [_JaggedField(self.folder, *field) for field in ledger.fields]
            else:
                self._arrays = [_JaggedField(self.folder, name) for name in _found_fields(self.folder)]
        values = [field.end(documents) for field in self._arrays]
        self._seen = _Seen(mark, documents, ledger.is_final, ledger.made_by, values)
        return self._seen


def _shapes_of(rows: JaggedArray) -> _Numbers:
    """The shapes of documents, on one axis."""
    return rows.lengths if rows.shapes is None else rows.shapes.reshape(-1)


def _found_fields(folder: Path) -> list[str]:
    """The names of the fields, sorted, which the ledger of another program does not have."""
    if names := _cache_fields(folder):
        return names
    raise ConfigError(f"no folder of {folder} has data/zarr.json and offsets/zarr.json, so the cache has no field")


class _JaggedField:
    """One field: the concatenated values of all documents, the end of each, and shapes above one axis.

    Entry `i` of the offsets is the end of document `i - 1`; entry 0 is the number of committed documents.
    """

    def __init__(self, cache: Path, name: str, dtype: str | None = None, rank: int | None = None) -> None:
        self.name = name
        folder = self._folder = cache / name
        self.data = ForeignArray(folder / "data")
        self._offsets = ForeignArray(folder / "offsets")
        has_shapes = (folder / "shapes" / "zarr.json").exists()
        self._shapes = ForeignArray(folder / "shapes") if has_shapes else None
        of_shapes = 1 if self._shapes is None else self._shapes.shape.width + 1
        self.rank = of_shapes if rank is None else rank
        is_field = (
            self.data.shape.width == self._offsets.shape.width == 1
            and max(self.rank, 1) == of_shapes <= MAX_RANK
            and all(array.dtype == np.int64 for array in (self._offsets, self._shapes) if array is not None)
            and dtype in (None, self.data.dtype.name)
        )
        if not is_field:
            raise ConfigError(
                f"{folder} is not a field of a cache: data has {self.data.shape.width} columns of {self.data.dtype}, "
                f"offsets {self._offsets.shape.width} of {self._offsets.dtype}, and shapes are of {of_shapes} axes, "
                f"expected {self.rank}"
            )
        # Chunks of ends, by number. Replaced and dropped without a lock: each entry is right by itself.
        self._kept: dict[int, _Numbers] = {}
        self._chunk_rows = min(self._offsets.shape.chunk_rows, _KEPT_BYTES // 8)

    def end(self, documents: int) -> int:
        """The end of the last of the first `documents` documents, in values."""
        [end] = self._ends(np.array([documents], np.int64), documents).tolist()
        if end > MAX_COUNT:
            raise DecodeError(f"the offsets of {self._folder} end at {end} values, the limit is {MAX_COUNT}")
        return int(end)

    def documents(self, rows: _Numbers, length: int, values: int) -> JaggedArray:
        """The documents at `rows`, of `length` documents with `values` values."""
        spans = self._ends(np.concatenate([rows, rows + 1]), length)
        starts, stops = spans[: len(rows)], spans[len(rows) :]
        for bad in np.flatnonzero(starts > stops)[:1]:
            raise self._backwards(starts[bad], stops[bad])
        if len(rows) and stops.max() > values:
            raise DecodeError(f"the offsets of {self._folder} exceed its {values} values")
        lengths = stops - starts
        # Each is at most 2^48, and may be requested any number of times.
        if lengths.sum(dtype=np.float64) > 2.0**60:
            raise MemoryError(f"cannot allocate memory for documents of {self._folder}")
        shapes = self._shapes_of(rows, lengths)
        return JaggedArray(_gathered(self.data, starts, stops), np.append(np.int64(0), np.cumsum(lengths)), shapes)

    def _ends(self, entries: _Numbers, length: int) -> _Numbers:
        """The entries of the offsets; there are `length` documents."""
        found = np.empty(len(entries), np.int64)
        order = np.argsort(entries, kind="stable")
        numbers = entries[order] // self._chunk_rows
        for part in np.split(order, np.flatnonzero(np.diff(numbers)) + 1):
            if not len(part):
                continue
            last = int(entries[part[-1]])
            number = last // self._chunk_rows
            found[part] = self._chunk(number, last, length)[entries[part] - number * self._chunk_rows]
        return found

    def _chunk(self, number: int, last: int, length: int) -> _Numbers:
        """A chunk of the offsets, which has entry `last`."""
        first = number * self._chunk_rows
        kept = self._kept.get(number)
        if kept is not None and last - first < len(kept):
            return kept
        stop = min(first + self._chunk_rows, length + 1)
        # A copy: tensorstore's arrays may be views of its cache.
        chunk = np.array(next(self._offsets.read([(first, stop)])), np.int64)
        if first == 0:
            if chunk[0] < length:
                raise DecodeError(
                    f"the offsets of {self._folder} are those of {chunk[0]} documents, and the ledger has {length}"
                )
            chunk[0] = 0
        for bad in np.flatnonzero(chunk[:-1] > chunk[1:])[:1]:
            raise self._backwards(chunk[bad], chunk[bad + 1])
        if chunk[0] < 0:
            raise self._backwards(0, chunk[0])
        if (len(self._kept) + 1) * self._chunk_rows * 8 > _KEPT_BYTES:
            self._kept.clear()
        self._kept[number] = chunk
        return chunk

    def _backwards(self, before: int, after: int) -> DecodeError:
        return DecodeError(
            f"the offsets of {self._folder} are damaged: {before} is followed by {after}; build the cache again"
        )

    def _shapes_of(self, rows: _Numbers, lengths: _Numbers) -> _Numbers | None:
        """The shapes of documents, None on one axis."""
        if self._shapes is None and self.rank:
            return None
        if self._shapes is None:
            for bad in np.flatnonzero(lengths != 1)[:1]:
                raise DecodeError(f"a document of {self._folder} has {lengths[bad]} values, expected one")
            return np.empty((len(rows), 0), np.int64)
        axes = _gathered(self._shapes, rows, rows + 1).reshape(len(rows), self.rank - 1)
        with np.errstate(over="ignore"):
            extents = np.maximum(axes, 1).prod(axis=1, dtype=np.float64)
        # A product beyond 64 bits exceeds any length. No array has such axes, even without values.
        is_bad = (axes < 0).any(axis=1) | (extents > MAX_COUNT)
        of_row = np.where(is_bad, 1, np.where(is_bad[:, None], 1, axes).prod(axis=1))
        is_bad |= (lengths % np.maximum(of_row, 1) != 0) | ((of_row == 0) & (lengths > 0))
        for bad in np.flatnonzero(is_bad)[:1]:
            raise DecodeError(
                f"the shapes of {self._folder} are damaged: {lengths[bad]} values are not a multiple of "
                f"{axes[bad].tolist()}"
            )
        return np.column_stack([axes, np.where(of_row == 0, 0, lengths // np.maximum(of_row, 1))])


def _gathered(array: ForeignArray, starts: _Numbers, stops: _Numbers) -> NDArray[Any]:
    """The values of spans of rows, concatenated in the given order; rows close to each other are read together."""
    width = array.shape.width
    lengths = stops - starts
    places = np.cumsum(lengths) - lengths
    out = np.empty(int(lengths.sum()) * width, array.dtype)
    order = np.lexsort((stops, starts))
    order = order[lengths[order] > 0]
    starts, stops, places = starts[order], stops[order], places[order]
    # Spans that follow each other here and there are one.
    follows = (starts[1:] == stops[:-1]) & (places[1:] - places[:-1] == stops[:-1] - starts[:-1])
    heads = np.append(0, np.flatnonzero(~follows) + 1)[: len(starts)]
    tails = np.append(heads[1:], len(starts))[: len(heads)] - 1
    runs = zip(starts[heads].tolist(), stops[tails].tolist(), places[heads].tolist(), strict=True)
    groups: list[tuple[int, int, list[tuple[int, int, int]]]] = []
    gap, together = _GAP_BYTES // array.row_bytes, _TOGETHER_BYTES // array.row_bytes
    for start, stop, place in runs:
        if groups:
            first, until, members = groups[-1]
            if start <= until + gap and stop - first <= together:
                members.append((start, stop, place))
                groups[-1] = first, max(until, stop), members
                continue
        groups.append((start, stop, [(start, stop, place)]))
    for (first, _, members), rows in zip(groups, array.read([(a, b) for a, b, _ in groups]), strict=True):
        for start, stop, place in members:
            out[place * width : (place + stop - start) * width] = rows[(start - first) * width : (stop - first) * width]
    return out
