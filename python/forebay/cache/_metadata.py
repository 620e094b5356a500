"""Untrusted metadata of caches that other programs wrote: the ledger, and the `zarr.json` of an array.

Files of this kind are read by the core if forebay wrote them (`crates/cache/src/json.rs`, `ledger.rs`); the limits
here are the same.
"""

import errno
import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeGuard

from forebay._core import ConfigError, StateError

LEDGER = "shard_ledger.json"
"""The ledger's name, within the folder of a split."""
VERSION = 1
"""The version of the ledger's entries under `forebay`."""
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

# Of a file, and of its parsed values.
_FILE_BYTES = 256 << 20
_VALUE_BYTES = 1 << 30
# Upper bounds of the bytes of an object, a list, and each further value in one of them.
_OBJECT, _LIST, _VALUE = 640, 160, 128


def read_json(path: Path) -> Any:
    """The JSON in a file; its size is checked before memory is allocated for it.

    Raises `OSError`, and `ValueError` with the problem of the text.
    """
    # A pipe would make `open` wait.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > _FILE_BYTES:
            raise ValueError(f"it has more than {_FILE_BYTES} bytes")
        text = file.read(_FILE_BYTES + 1)
    # Brackets within strings are counted too: the bound is only larger.
    size = len(text) + _OBJECT * text.count(b"{") + _LIST * text.count(b"[") + _VALUE * text.count(b",")
    if size > _VALUE_BYTES:
        raise ValueError(f"its values would take {size} bytes of memory")
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None


class Ledger(NamedTuple):
    """The committed part of a cache."""

    documents: int
    is_final: bool
    made_by: dict[str, Any]
    """The parameters that made the cache."""
    fields: list[tuple[str, str, int]]
    """Name, type and number of axes; empty if another program wrote the ledger."""


def read_ledger(folder: Path) -> Ledger:
    """The ledger in the folder of a split.

    Raises `FileNotFoundError` if there is none, `ConfigError` if it is none, `StateError` if the writer failed.
    """
    path = folder / LEDGER
    try:
        found = _ledger(read_json(path))
    except FileNotFoundError:
        raise no_cache(folder) from None
    except ValueError as error:
        raise ConfigError(
            f"{path} is not the ledger of a cache: {error}; build the cache again in another folder"
        ) from None
    if isinstance(found, str):
        raise StateError(f"the writer of the cache {folder} failed: {found}")
    return found


def no_cache(folder: Path) -> FileNotFoundError:
    """The error for a folder without a ledger."""
    return FileNotFoundError(errno.ENOENT, f"there is no cache in this folder: it has no {LEDGER}", str(folder))


def _ledger(found: Any) -> Ledger | str:
    """The ledger, or the error that ended the build of the cache."""
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    documents = found.get("total_num_rows")
    if not _is_count(documents, MAX_COUNT):
        raise ValueError("total_num_rows is not a count up to 2^48")
    own = _object(found.get("forebay"))
    version = own.get("version")
    if _is_count(version, 1 << 64) and version > VERSION:
        raise ValueError("a newer version of forebay wrote it")
    if isinstance(own.get("failure"), str):
        return str(own["failure"])
    fields = own.get("fields")
    made_by = _object(_object(found.get("metadata")).get("preprocessor_metadata"))
    return Ledger(
        documents,
        found.get("is_finished") is True,
        made_by,
        [_field(field) for field in fields] if isinstance(fields, list) else [],
    )


def _field(found: Any) -> tuple[str, str, int]:
    field = _object(found)
    name, dtype, rank = field.get("name"), field.get("dtype"), field.get("rank")
    if not (
        isinstance(name, str)
        and _is_inside(name)
        and isinstance(dtype, str)
        and dtype in DTYPES
        and _is_count(rank, MAX_RANK)
    ):
        raise ValueError(
            "a field lacks its name, a known dtype or a rank of at most 64, or its name leads out of the cache"
        )
    return name, dtype, rank


def _is_inside(name: str) -> bool:
    """Whether a field's path stays in the cache's folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


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
        return _shape(_object(read_json(folder / "zarr.json")))
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
