"""`TreeStore`: reads a cache."""

from collections.abc import Sequence
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._checks import whole
from forebay._core import _CacheReader
from forebay._jagged import JaggedArray
from forebay.cache._documents import nested


def folder_of(path: str | PathLike[str], split: str) -> Path | str:
    """The absolute path, or the URL, of a split."""
    text = fsdecode(path)
    return f"{text.rstrip('/')}/{split}" if "://" in text else Path(text, split).resolve()


class TreeStore:
    """Reads a cache by document number: `store[7]` is a dict of arrays, nested as when it was built.

    A store has the committed documents only, and only `wait` waits. `CacheDataset` is a dataset over the same
    cache: it waits for documents that are not committed yet, and can be the source of other datasets.

    `path` is the folder that `forebay.cache.build` wrote, finished or not, or a cache of another program with
    the same layout; or the URL of a finished cache of forebay (docs/remote.md). `len` is the number of
    documents committed at the last check; `refresh` checks again, `wait` waits. `folder` is the absolute path
    of the split, or its URL.

    Raises `FileNotFoundError` if there is no cache (yet), `StateError` if its writer failed.
    """

    def __init__(self, path: str | PathLike[str], split: str = "train") -> None:
        self._reader = _CacheReader(path, split)
        self.folder = folder_of(path, split)

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Type and number of axes of each field; empty while there are no documents."""
        return {name: (np.dtype(dtype), rank) for name, dtype, rank in self._reader.fields()}

    @property
    def is_final(self) -> bool:
        """Whether the cache is complete."""
        return self._reader.length()[1]

    def __len__(self) -> int:
        return self._reader.length()[0]

    def errors(self) -> list[dict[str, Any]]:
        """Lists the documents that a build with `on_error="skip"` left out, up to the last commit.

        At most the first 10000, in the order of documents, with `shard`, `row` in it, `kind` and `reason`, as
        in `Loader.errors`.
        """
        names = ("shard", "row", "kind", "reason")
        return [dict(zip(names, one, strict=True)) for one in self._reader.errors()]

    @property
    def n_errors(self) -> int:
        """The number of documents left out, up to the last commit."""
        return self._reader.n_errors()

    def refresh(self) -> int:
        """Checks the ledger (a `stat`, and a small read if it has changed); returns the number of documents."""
        return self._reader.refresh()[0]

    def wait(self, n_documents: int | None = None) -> int:
        """Waits until there are `n_documents`, or the cache is complete; returns the number of documents.

        None waits for the complete cache. Raises `StateError` if the writer fails.
        """
        return self._reader.wait(2**63 if n_documents is None else n_documents)[0]

    def get_batch(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns the documents with these numbers, in this order; adjacent documents are read together.

        Raises `IndexError` for a number beyond the committed documents, or below 0.
        """
        numbers = [int(index) for index in indices]
        if any(number < 0 for number in numbers):
            raise IndexError(f"document {min(numbers)} is requested; the first one is 0")
        if numbers and max(numbers) >= len(self):
            raise IndexError(f"document {max(numbers)} is requested, but there are {len(self)}")
        fields = self._reader.fields() if numbers else []
        return nested(
            len(numbers),
            ((name, self._rows(at, dtype, rank, numbers)) for at, (name, dtype, rank) in enumerate(fields)),
        )

    def _rows(self, field: int, dtype: str, rank: int, numbers: Sequence[int]) -> JaggedArray:
        data, ends, shapes = self._reader.documents(field, numbers)
        return JaggedArray(data.view(dtype), np.append(np.int64(0), ends), shapes.reshape(len(numbers), rank))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns one document, from the end if `index` is negative; for many, `get_batch` is much faster."""
        number, n = whole("index", index), len(self)
        if not -n <= number < n:
            raise IndexError(f"document {number} is requested, but there are {n}")
        return self.get_batch([number % n])[0]

    def flat(self, field: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Returns the values `start` to `stop` of a field, over all documents concatenated.

        Raises `IndexError` beyond the committed values, `KeyError` if there is no such field.
        """
        fields = self._reader.fields()
        names = [name for name, _, _ in fields]
        if field not in names:
            raise KeyError(f"there is no field {field!r}; the fields are {', '.join(names)}")
        at = names.index(field)
        stop = self._reader.flat_len(at) if stop is None else stop
        if not 0 <= start <= stop:
            raise IndexError(f"values {start} to {stop} are requested, expected 0 <= start <= stop")
        return self._reader.flat(at, start, stop).view(fields[at][1])

    def __repr__(self) -> str:
        more = "" if self.is_final else ", growing"
        return f"<forebay.cache.TreeStore: {len(self)} documents{more}, {', '.join(self.fields) or 'no fields yet'}>"
