"""Converts users' documents to the core's form: for each field the concatenated values of all documents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forebay._jagged import JaggedArray

Field: TypeAlias = tuple[str, str, int, NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
"""Name, type and number of axes; the bytes of the values, the number of values of each document, and the shapes."""


def columns(made: object) -> tuple[int, list[Field]]:
    """Converts a processor's documents: a sequence of dicts, or a dict of sequences with a value for each document.

    Dicts may be nested. Values are arrays, numbers, or lists of numbers.
    """
    if isinstance(made, Mapping):
        named = dict(leaves(made))
        lengths = {name: len(values) for name, values in named.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the processor returned fields with different numbers of documents: {lengths}")
        return next(iter(lengths.values()), 0), [field(name, values) for name, values in named.items()]
    if isinstance(made, (str, bytes)) or not isinstance(made, Sequence):
        raise TypeError(
            f"the processor returned {type(made).__name__}, expected a sequence of dicts of arrays, or a dict of "
            "sequences of arrays"
        )
    documents = [dict(leaves(document)) for document in made]
    names = list(documents[0]) if documents else []
    for at, document in enumerate(documents):
        if document.keys() != documents[0].keys():
            raise ValueError(
                f"document {at} of a batch has the fields {sorted(document)}, the first one {sorted(names)}"
            )
    return len(documents), [field(name, [document[name] for document in documents]) for name in names]


def leaves(document: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested dicts, each with its path."""
    if not isinstance(document, Mapping):
        raise TypeError(f"a document is {type(document).__name__}, expected a dict of arrays")
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def nested(n: int, fields: Iterable[tuple[str, Iterable[NDArray[Any]]]]) -> list[dict[str, Any]]:
    """`n` documents as nested dicts, from the paths and their values, one per document; the inverse of `leaves`."""
    documents: list[dict[str, Any]] = [{} for _ in range(n)]
    for path, values in fields:
        *parents, name = path.split("/")
        for document, value in zip(documents, values, strict=True):
            inner = document
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[name] = np.asarray(value)
    return documents


def field(name: str, values: Sequence[Any] | NDArray[Any]) -> Field:
    """One field of some documents."""
    if isinstance(values, JaggedArray):
        shapes = values.lengths if values.shapes is None else values.shapes
        rank = 1 if values.shapes is None else values.shapes.shape[1]
        return name, type_of(name, values.data), rank, bytes_of(values.data), values.lengths, shapes.reshape(-1)
    if isinstance(values, np.ndarray) and values.ndim:
        # One array for all documents, one row each.
        n = len(values)
        shapes = np.tile(np.array(values.shape[1:], np.int64), n)
        lengths = np.full(n, int(np.prod(values.shape[1:])), np.int64)
        return name, type_of(name, values), values.ndim - 1, bytes_of(values), lengths, shapes
    arrays = [np.asarray(value) for value in values]
    ranks = {array.ndim for array in arrays}
    if len(ranks) > 1:
        raise ValueError(f"field {name!r} has documents of {sorted(ranks)} axes, expected the same number in all")
    # An empty list has no type, so lists with values determine the type.
    typed = [array for array in arrays if array.size] or arrays
    dtypes = {array.dtype for array in typed}
    dtype = np.result_type(*dtypes) if typed else np.dtype(np.float64)
    if typed and dtype.kind == "f" and all(found.kind in "iu" for found in dtypes):
        names = " and ".join(sorted(str(found) for found in dtypes))
        raise TypeError(f"field {name!r} has documents of {names}, which fit no integer type; use one type for all")
    flat = np.concatenate([array.astype(dtype, copy=False).ravel() for array in typed]) if typed else np.empty(0, dtype)
    lengths = np.array([array.size for array in arrays], np.int64)
    shapes = np.array([axis for array in arrays for axis in array.shape], np.int64)
    return name, type_of(name, flat), ranks.pop() if ranks else 1, bytes_of(flat), lengths, shapes


def type_of(name: str, array: NDArray[Any]) -> str:
    """The name of the values' type, which must be numeric."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"field {name!r} has values of {array.dtype}, expected numbers; encode texts as ids or bytes")
    return array.dtype.name


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The values in little-endian bytes."""
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return little.reshape(-1).view(np.uint8)
