"""`meta.pkl`: the description of a data set, written by its provider and checked by both sides.

The pickle is untrusted: it may hold dicts, lists, tuples, sets, str, bytes, numbers, bool and None, and no
object that would have to be imported or called. `plain` bounds their total size. `meta.json` has the same
content, for people and other programs.
"""

import base64
import json
import pickle
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay._core import ConfigError
from forebay._files import what_is
from forebay.queue.files import patiently, remove_stale, write_atomically
from forebay.queue.plain import MOST_BYTES, PLAIN, plain_loads

Meta = dict[str, Any]
Field = dict[str, Any]

TRAINING_TYPES = ("LM", "MLM", "CLASSIFICATION", "TOKEN_CLASSIFICATION", "SEQUENCE_SCORING")
REQUIRED = ("dataset_name", "training_type", "batch_size", "batch_schema", "split_info")

_OF_TOKENS = ("LM", "MLM", "TOKEN_CLASSIFICATION")
_TOKEN_DTYPES = ("int16", "uint16", "int32", "int64")
_DTYPES = (
    *("bool", "uint8", "int8", *_TOKEN_DTYPES, "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 80
_MOST_NAMED = 10
"""The most problems that an error lists."""


def shown(value: Any) -> str:
    """A value for an error message, in at most 200 characters."""
    text = _shorten.repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def few(texts: Iterable[Any], separator: str = "; ") -> str:
    """The first of some texts, and the number of further ones."""
    texts = [text if len(text := str(one)) <= 500 else text[:497] + "..." for one in texts]
    more = len(texts) - _MOST_NAMED
    return separator.join(texts[:_MOST_NAMED]) + (f"{separator}and {more} more" if more > 0 else "")


def read_meta(data_dir: str | Path) -> Meta:
    """The content of `meta.pkl`, checked only to be a dict."""
    path = Path(data_dir) / "meta.pkl"
    try:
        meta = plain_loads(patiently(lambda: _read(path)))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: start the provider of this data set, which writes it") from None
    except pickle.UnpicklingError as error:
        raise ConfigError(f"{path} cannot be used: {error}; remove it and start the provider again") from error
    if not isinstance(meta, dict):
        raise ConfigError(f"{path} holds a {type(meta).__name__}, must hold a dict")
    return meta


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"{path} is not a file; move it, and start the provider, which writes one")
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def is_ours(data_dir: Path, name: str) -> bool:
    """Whether `meta.pkl` or `meta.json` has the content of a provider's file; False for a link."""
    try:
        if what_is(data_dir / name) != "a file":
            return False
        data = patiently(lambda: _read(data_dir / name))
        found = plain_loads(data) if name.endswith(".pkl") else json.loads(data)
    except (OSError, ValueError, RecursionError, pickle.UnpicklingError):
        return False
    return isinstance(found, dict) and found.keys() >= set(REQUIRED)


def write_meta(data_dir: Path, meta: Meta, replace: bool = True) -> bool:
    """Writes `meta.pkl` and then `meta.json` atomically; without `replace`, returns False if `meta.pkl` exists."""
    if strange := next(_not_plain(meta, "meta"), None):
        raise ConfigError(f"{strange}; meta may hold {PLAIN}")
    data = pickle.dumps(meta, protocol=4)
    try:
        plain_loads(data)
    except pickle.UnpicklingError as error:
        raise ConfigError(f"meta cannot be written, since it could not be read: {error}") from None
    path, text = data_dir / "meta.pkl", data_dir / "meta.json"
    for written in (path, text):
        remove_stale(written)
    if not replace and what_is(text) and not is_ours(data_dir, text.name):
        raise ConfigError(f"{text} was not written by a provider; move it, or use another data_dir")
    is_written = write_atomically(path, data, replace)
    if is_written or not text.exists():
        plain = json.dumps(_for_json(read_meta(data_dir)), indent=1, ensure_ascii=False, allow_nan=True)
        write_atomically(text, plain.encode("utf-8", "surrogatepass") + b"\n")
    return is_written


def _not_plain(value: Any, where: str) -> Iterator[str]:
    if type(value) is dict:
        for key, item in value.items():
            yield from _not_plain(key, f"the key {shown(key)} of {where}")
            yield from _not_plain(item, f"{where}[{shown(key)}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _not_plain(item, f"{where}[{index}]")
    elif type(value) in (set, frozenset):
        for item in value:
            yield from _not_plain(item, f"{shown(item)} in {where}")
    elif value is not None and type(value) not in (str, bytes, int, float, bool):
        yield f"{where} is a {type(value).__module__}.{type(value).__qualname__}"


def _for_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_for_json(item) for item in value), key=repr)
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def check_meta(meta: Mapping[str, Any]) -> None:
    """Raises `ConfigError` with all missing and wrong keys."""
    problems = [f"{key} is missing" for key in REQUIRED if key not in meta]
    for key, kind in (("dataset_name", str), ("split_info", dict)):
        if key in meta and not isinstance(meta[key], kind):
            problems.append(f"{key} is {shown(meta[key])}, must be a {kind.__name__}")
    if "training_type" in meta and meta["training_type"] not in TRAINING_TYPES:
        problems.append(f"training_type is {shown(meta['training_type'])}, must be one of {', '.join(TRAINING_TYPES)}")
    problems += [
        f"{key} is {shown(meta[key])}, must be a number above 0"
        for key in ("batch_size", "vocab_size", "block_size", "target_size")
        if key in meta and not _is_count(meta[key], 1)
    ]
    if "batch_schema" in meta:
        problems += check_schema(meta["batch_schema"]) or _check_sizes(meta, meta["batch_schema"])
    if problems:
        raise ConfigError("meta is incomplete or wrong: " + few(problems))


def check_schema(schema: Any) -> list[str]:
    """The problems of a batch schema."""
    if not isinstance(schema, list | tuple) or not schema:
        return [f"batch_schema is {shown(schema)}, must be a list of fields {{name, dtype, shape, role?}}"]
    problems = []
    for index, field in enumerate(schema):
        where = f"batch_schema[{index}]"
        if not isinstance(field, dict) or not {"name", "dtype", "shape"} <= set(field) <= {
            *("name", "dtype", "shape", "role")
        }:
            problems.append(f"{where} is {shown(field)}, must be a dict with name, dtype, shape and optionally role")
            continue
        if not isinstance(field["name"], str) or not field["name"]:
            problems.append(f"{where} has the name {shown(field['name'])}, must be a str")
        if field["dtype"] not in _DTYPES:
            problems.append(f"{where} has dtype {shown(field['dtype'])}, must be a name of torch like 'int64'")
        shape = field["shape"]
        if not isinstance(shape, list | tuple) or not all(_is_count(axis, 0) for axis in shape):
            problems.append(f"{where} has shape {shown(shape)}, must be a list of numbers without the batch axis")
        if not isinstance(field.get("role", ""), str):
            problems.append(f"{where} has the role {shown(field['role'])}, must be a str")
    names = [field["name"] for field in schema if isinstance(field, dict) and isinstance(field.get("name"), str)]
    if len(set(names)) < len(names):
        problems.append(f"batch_schema has a name twice: {shown(names)}")
    return problems


def _check_sizes(meta: Mapping[str, Any], schema: Sequence[Field]) -> list[str]:
    """Checks the sizes that tokens and targets of another length need."""
    problems = []
    inputs = [field for field in schema if _has_role(field, "input", ("x", "input_ids"))]
    if meta.get("training_type") in _OF_TOKENS or any(
        len(field["shape"]) == 1 and field["dtype"] in _TOKEN_DTYPES for field in inputs
    ):
        problems += [f"{key} is missing: inputs are tokens" for key in ("vocab_size", "block_size") if key not in meta]
    lengths = {
        field["shape"][0]
        for field in schema
        if field["shape"] and _has_role(field, "target", ("y", "labels", "targets"))
    }
    if "target_size" in meta:
        if _is_count(meta["target_size"], 1) and lengths and lengths != {meta["target_size"]}:
            problems.append(
                f"target_size is {shown(meta['target_size'])}, but targets have length {shown(sorted(lengths))}"
            )
    elif _is_count(meta.get("block_size"), 1) and lengths - {meta["block_size"]}:
        problems.append(
            f"target_size is missing: targets have length {shown(sorted(lengths))}, but block_size is "
            f"{shown(meta['block_size'])}"
        )
    return problems


def _has_role(field: Field, role: str, names: Sequence[str]) -> bool:
    return bool(field["role"] == role if "role" in field else field["name"] in names)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """The keys in which two metas differ, each with both values."""
    return [
        f"{shown(key) if type(key) is not str else key[:80]} ({_short(found, key)}, here {_short(expected, key)})"
        for key in sorted({*found, *expected}, key=str)
        if key not in found or key not in expected or not _same(found[key], expected[key])
    ]


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal; a tuple equals a list."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(a == b)


def _short(meta: Mapping[str, Any], key: str) -> str:
    if key not in meta:
        return "missing"
    text = shown(meta[key])
    return text if len(text) <= 60 else text[:57] + "..."


def compare(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Messages about the differences of fields `{name: (dtype, shape)}`."""
    wrong = [f"{name!r} is missing" for name in expected if name not in found]
    wrong += [f"{name!r} is not in the schema" for name in found if name not in expected]
    for name in expected:
        if name in found and found[name] != expected[name]:
            (dtype, shape), (want_dtype, want_shape) = found[name], expected[name]
            wrong.append(f"{name!r} is {dtype} {shape}, must be {want_dtype} {want_shape}")
    return wrong


def normal(schema: Sequence[Field]) -> list[Field]:
    """A schema with shapes as lists, so that equal schemas compare equal."""
    return [{**field, "shape": list(field["shape"])} for field in schema]
