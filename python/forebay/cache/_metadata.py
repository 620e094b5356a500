"""Untrusted metadata of caches that other programs wrote: the ledger, and the `zarr.json` of an array.

The core reads both files, within its limits of size and memory. Here the claims in `zarr.json` are checked.
"""

import errno
import json
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from forebay._core import ConfigError, StateError, _array_metadata, _cache_ledger

LEDGER = "shard_ledger.json"
"""The ledger's name, within the folder of a split."""
MAX_COUNT = 1 << 48
"""The most documents or values of a cache."""
MAX_RANK = 64
"""The most axes of a document."""
MAX_CHUNK_BYTES = 1 << 30
"""The most bytes of a decoded chunk."""
MAX_CHUNKS = 1 << 24
"""The most chunks in a shard: its index has 16 bytes for each."""
MAX_DEPTH = 4
"""The deepest nesting of sharding codecs."""
DTYPES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""The types of values, and their bytes."""


class Ledger(NamedTuple):
    """The committed part of a cache."""

    documents: int
    is_final: bool
    made_by: str
    """The parameters that made the cache, as JSON."""
    fields: list[tuple[str, str, int]]
    """Name, type and number of axes; empty if another program wrote the ledger."""


def read_ledger(folder: Path) -> Ledger:
    """The ledger in the folder of a split.

    Raises `FileNotFoundError` if there is none, `ConfigError` if it is none, `StateError` if the writer failed.
    """
    found = _cache_ledger(folder)
    if found is None:
        raise no_cache(folder)
    documents, is_final, made_by, fields, failure = found
    if failure is not None:
        raise StateError(f"the writer of the cache {folder} failed: {failure}")
    return Ledger(documents, is_final, made_by, fields)


def no_cache(folder: Path) -> FileNotFoundError:
    """The error for a folder without a ledger."""
    return FileNotFoundError(errno.ENOENT, f"there is no cache in this folder: it has no {LEDGER}", str(folder))


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _is_count(found: object, most: int) -> TypeGuard[int]:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= most


class ArrayShape(NamedTuple):
    """The checked metadata of an array of numbers on one or two axes."""

    rows: int
    """Its length, which may be far more than what was written: 2^54 in Levanter's caches."""
    columns: int | None
    """The length of the second axis, if it has one."""
    dtype: str
    chunk_rows: int
    """Rows that are decoded together."""

    @property
    def width(self) -> int:
        """Values of a row."""
        return 1 if self.columns is None else self.columns


def read_shape(folder: Path) -> ArrayShape:
    """The metadata of the array in `folder`, within the limits of memory.

    Raises `OSError` if they cannot be read, `ConfigError` if they are damaged or beyond the limits.
    """
    try:
        return _shape(_object(json.loads(_array_metadata(folder))))
    except ValueError as error:
        raise ConfigError(f"cannot read the Zarr array {folder}: {error}") from None


def _shape(found: dict[str, Any]) -> ArrayShape:
    shape = _numbers(found.get("shape"))
    if shape is None:
        raise ValueError("it has no shape")
    if not 1 <= len(shape) <= 2 or not all(1 <= columns < MAX_RANK for columns in shape[1:]):
        raise ValueError(f"its shape is {shape}, expected one axis, or two with 1 to less than {MAX_RANK} columns")
    dtype = found.get("data_type")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"its values are {str(dtype)[:100]!r}, expected numbers")
    grid = _object(_object(found.get("chunk_grid")).get("configuration"))
    chunk = _extent(grid, len(shape), "it")
    codecs = found.get("codecs")
    for _ in range(MAX_DEPTH):
        outer = _product(chunk)
        names = [_object(codec) for codec in codecs] if isinstance(codecs, list) else []
        sharding = next((codec for codec in names if codec.get("name") == "sharding_indexed"), None)
        if sharding is None:
            if outer * DTYPES[dtype] > MAX_CHUNK_BYTES:
                raise ValueError(f"its chunks have {outer * DTYPES[dtype]} bytes, the limit is {MAX_CHUNK_BYTES}")
            return ArrayShape(shape[0], shape[1] if len(shape) > 1 else None, dtype, chunk[0])
        inside = _object(sharding.get("configuration"))
        chunk, codecs = _extent(inside, len(shape), "its sharding codec"), inside.get("codecs")
        if outer // _product(chunk) > MAX_CHUNKS:
            raise ValueError(f"its shards have {outer // _product(chunk)} chunks, the limit is {MAX_CHUNKS}")
    raise ValueError("its sharding codecs are nested too deep")


def _extent(configuration: dict[str, Any], axes: int, what: str) -> list[int]:
    chunk = _numbers(configuration.get("chunk_shape"))
    if chunk is None or len(chunk) != axes:
        raise ValueError(f"{what} has no chunk_shape with an entry for each axis")
    if 0 in chunk:
        raise ValueError(f"its chunks have the shape {chunk}")
    return chunk


def _numbers(found: Any) -> list[int] | None:
    """A list of a few whole numbers below 2^64."""
    is_one = isinstance(found, list) and len(found) <= MAX_RANK and all(_is_count(n, (1 << 64) - 1) for n in found)
    return found if is_one else None


def _product(shape: list[int]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)
