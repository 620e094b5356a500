"""`build`: builds a cache of processed documents from shards."""

import contextlib
import functools
import hashlib
import inspect
import itertools
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import CodeType
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np

from forebay._checks import advised, as_place, problems, wrong_type
from forebay._core import ConfigError, SpectrogramTransform, _CacheBuild, _cores, _shards
from forebay.cache._documents import columns
from forebay.cache.running import CacheBuild, watch
from forebay.cache.store import TreeStore
from forebay.features import _FrontEndPart, preset
from forebay.manifest import Manifest
from forebay.tokens import Tokenizer

_Path: TypeAlias = str | PathLike[str]
Shards: TypeAlias = _Path | Manifest | Sequence[_Path | Manifest] | Mapping[str, Iterable[Any]]
"""Files, tables of recordings, or iterables of documents by name."""
Order: TypeAlias = Literal["round_robin", "concat"]
Engine: TypeAlias = Literal["threads", "ray"]
OnError: TypeAlias = Literal["raise", "skip"]


@dataclass(frozen=True)
class Tokenize:
    """A processor that tokenizes text: `field` gets the ids of `text_column`.

    With `bos` each document begins with the BOS token. Ids are stored as uint16 if the vocabulary fits, else
    as uint32.
    """

    tokenizer: Tokenizer
    text_column: str = "text"
    bos: bool = True
    field: str = "input_ids"


@dataclass(frozen=True)
class Features:
    """A processor of recordings: the features of the whole recording, `spectrogram` or `waveform`, and `label`.

    `transform` is an object of `forebay.features`, the name of a preset, or a `SpectrogramTransform`. Recordings are
    resampled to its rate; values, shape and type are those of a call of the object on the result. `channels="all"`
    needs `n_channels`, and a recording with another number is a bad document. bfloat16 cannot be stored.
    `audio_column` is the column of recordings. None: the schema's Audio feature or `audio`. `track` is the number of
    their audio track, as in a `Loader`.
    """

    transform: SpectrogramTransform | _FrontEndPart | str
    audio_column: str | None = None
    track: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.transform, str):
            preset(self.transform)  # raises for a name that is none


Processor: TypeAlias = (
    Tokenizer | SpectrogramTransform | _FrontEndPart | Tokenize | Features | Callable[[list[Any]], Any] | None
)


class _Options(TypedDict, total=False):
    """The keywords of `build` except `wait`, on which its return type depends; `build` documents them."""

    split: str
    fields: Sequence[str] | Mapping[str, Any] | None
    batch_size: int
    order: Order
    n_workers: int | None
    engine: Engine
    overwrite: bool
    commit_seconds: float
    commit_documents: int
    on_error: OnError
    max_errors: int | None
    max_record_bytes: int
    max_decoded_seconds: float
    damage: str
    max_damage: float
    compression: str
    columns: Sequence[str] | None
    progress: bool | None
    allow_paths: bool | _Path | Sequence[_Path] | None


@overload
def build(
    shards: Shards, processor: Processor, path: _Path, *, wait: Literal[True] = True, **options: Unpack[_Options]
) -> TreeStore: ...
@overload
def build(
    shards: Shards, processor: Processor, path: _Path, *, wait: Literal[False], **options: Unpack[_Options]
) -> CacheBuild: ...
@advised(
    "forebay.cache.build",
    num_workers="n_workers",
    num_proc="n_workers",
    workers="n_workers",
    tokenizer="processor",
    function="processor",
    output="path",
    cache_dir="path",
    files="shards",
    remove_columns="fields",
    text_column="pass Tokenize(tokenizer, text_column) as the processor",
    shuffle="a cache is built in a fixed order: shuffle when reading, with PermutationDataset(ds, seed)",
    seed="a cache is built in a fixed order: shuffle when reading, with PermutationDataset(ds, seed)",
)
def build(
    shards: Shards,
    processor: Processor,
    path: _Path,
    *,
    split: str = "train",
    fields: Sequence[str] | Mapping[str, Any] | None = None,
    batch_size: int = 128,
    order: Order = "round_robin",
    n_workers: int | None = None,
    engine: Engine = "threads",
    overwrite: bool = False,
    wait: bool = True,
    commit_seconds: float = 10.0,
    commit_documents: int = 8192,
    on_error: OnError = "raise",
    max_errors: int | None = None,
    max_record_bytes: int = 1 << 30,
    max_decoded_seconds: float = 86400.0,
    damage: str = "silence",
    max_damage: float = 0.1,
    compression: str = "none",
    columns: Sequence[str] | None = None,
    progress: bool | None = None,
    allow_paths: bool | _Path | Sequence[_Path] | None = None,
) -> TreeStore | CacheBuild:
    """Builds a cache, one split in the folder `path`, or resumes a build; returns the finished cache.

    `shards` are files (Parquet, Arrow, JSON lines, text; lines also as `.gz` and `.zst`) or a dict of
    iterables of documents by name. `processor` is a `Tokenizer`, an object of `forebay.features`, a
    `SpectrogramTransform`, `Tokenize` or `Features` with their options (`Features("whisper")` for a preset),
    or a function. A function gets a list of up to `batch_size` documents and returns a list of dicts of
    arrays, nested to any depth, or one dict of lists. It may return more or fewer documents than it got, and
    is called on several threads. None keeps columns of numbers unchanged. `columns` names the columns of
    tables that are read.

    A function is identified by its name, its source, and its values (defaults, a closure, arguments of a
    `partial`, attributes of an object), or by your own text in its attribute `fingerprint`. Changes in other
    code that it calls are not detected. Without source (`python -c`, a pipe), or if several lambdas share a
    line, the function is identified by its bytecode, which differs between versions of Python.

    The order depends on the shards only, not on the workers: `round_robin` takes a batch of each shard in
    turn, `concat` one shard after the other. `fields` names the fields to keep, as a list, or as a dict with
    types (`{"input_ids": "uint16"}`). `compression` is "none", "zstd" or "zstd:LEVEL".

    With `on_error="skip"` a bad document is left out: a line that is not JSON, a null, a recording that
    cannot be decoded, a document for which the function raises. If the function raises, it is called for each
    document of the batch alone, and then for the good documents together (so it must not modify them). The
    same documents are left out in every run; `errors()` of the cache lists them, and `max_errors` limits
    their number. An error of the system (`OSError`), and damage of a shard beyond single documents, still end
    the build.

    A row may hold the path of a recording instead of its bytes. `allow_paths` determines the files that may
    be read. None or False: files below the folder of their shard. One or more folders: also files below
    these. True: any file that this process may open. Symbolic links and `..` are resolved first. A build may
    be resumed with another value.

    A record (a recording, a line, a text) of more than `max_record_bytes`, 1 to 2**31 - 1, and a recording of
    more than `max_decoded_seconds`, above 0 and at most 1e9, are bad documents of kind `too_large`, as in a
    `Loader`. So is a line of JSON whose values would take more than four times as much memory, and more than
    64 MiB. With `damage="silence"` frames of a recording that cannot be decoded are zeros, up to `max_damage` of
    the recording; one with more, or with `damage="error"` one with any, is a bad document of kind `corrupt`, as in
    a `Loader`. A recording too short for a frame is padded with zeros at the end. Batches of large documents are
    read and processed in pieces of some 64 MiB, so a worker holds one piece and one document; the cache is
    the same. A function gets its whole batch: lower `batch_size` for large documents.

    A commit makes the documents written so far visible to readers, and a build resumes after it. It happens
    after `commit_documents` new documents, 1 to 2**31 - 1, or after `commit_seconds`, above 0 and at most
    1e9, if there are new ones; the first after a fifth of this time, the last at the end. If a commit takes
    long, the next one waits nine times as long. The finished cache has the same bytes for all values.

    A build that ended early for any reason resumes at its last commit if `build` is called again with the
    same arguments. With other arguments it raises `StateError` that names the difference, unless `overwrite`
    is set. Ctrl-C raises `KeyboardInterrupt` with a note that has the number of committed documents. With
    `wait=False` it returns a `CacheBuild` at once, and readers may begin. `progress` shows a bar on a
    terminal, and writes a line every 10 s elsewhere; None: only on a terminal.
    """
    folder = as_place("path", path)
    if not isinstance(compression, str):
        raise wrong_type("compression", 'a str: "none", "zstd" or "zstd:1" to "zstd:22"', compression)
    workers = _cores() if n_workers is None else n_workers
    check(batch_size=batch_size, n_workers=workers, order=order, engine=engine)
    limits = {"max_record_bytes": max_record_bytes, "max_decoded_seconds": max_decoded_seconds}
    losses = {"damage": damage, "max_damage": max_damage}
    kind = {**described(processor, shards, columns), **limits, **losses, "allow_paths": listed(allow_paths)}
    check_inputs(shards, folder / split)
    given: Any = opened(shards, has_recordings=kind["kind"] == "features")
    made_by = {
        "batch_size": str(batch_size),
        "order": order,
        "compression": compression,
        "columns": json.dumps(None if columns is None else list(columns)),
        "fields": json.dumps(typed(fields)),
        "processor": kind.pop("name"),
        **(_of_recordings(kind) if kind["kind"] == "features" else {}),
        **_CacheBuild.identity(given, kind),
    }
    release = None
    if engine == "ray":
        from forebay.cache.ray import RayShards

        remote = RayShards(given, kind, batch_size, workers, on_error)
        given, release = remote.shards(), remote.close
    core = _CacheBuild(
        given,
        kind,
        folder,
        split,
        fields=typed(fields),
        batch_size=batch_size,
        order=order,
        n_workers=workers,
        compression=compression,
        made_by=json.dumps(made_by),
        overwrite=overwrite,
        commit_seconds=commit_seconds,
        commit_documents=commit_documents,
        on_error=on_error,
        max_errors=max_errors,
        is_processed=engine == "ray",
    )
    handle = CacheBuild(core, folder, split, release)
    if not wait:
        return handle
    shown = sys.stderr.isatty() if progress is None else progress
    if shown:
        watch(handle)
    store = handle.wait()
    assert store is not None
    return store


def listed(allow_paths: bool | _Path | Sequence[_Path] | None) -> bool | list[str] | None:
    """The folders as absolute paths, since another process may have another current folder."""
    if allow_paths is None or isinstance(allow_paths, bool):
        return allow_paths
    folders = [allow_paths] if isinstance(allow_paths, (str, PathLike)) else allow_paths
    return [str(Path(folder).absolute()) if os.fspath(folder) else "" for folder in folders]


def check(*, batch_size: int, n_workers: int, order: str, engine: str) -> None:
    """Checks the parameters; raises one `ConfigError` for all problems."""
    wrong = problems(batch_size=(batch_size, 1, 1 << 20), n_workers=(n_workers, 1, 1024))
    if order not in ("round_robin", "concat"):
        wrong.append(f'order is {order!r}, must be "round_robin" or "concat"')
    if engine not in ("threads", "ray"):
        wrong.append(f'engine is {engine!r}, must be "threads" or "ray"')
    if wrong:
        raise ConfigError("; ".join(wrong))


def check_inputs(shards: Shards, folder: Path) -> None:
    """Raises `ConfigError` if a shard is the cache that the build would write; the core checks files."""
    if not isinstance(shards, Mapping):
        return
    target = folder.resolve()
    for name, documents in shards.items():
        # The attribute of a TreeStore or CacheDataset.
        read = getattr(documents, "folder", None)
        if isinstance(read, Path) and read.is_relative_to(target):
            raise ConfigError(
                f"shard {name!r} is the cache in {read}, which the build would write; choose another path or split"
            )


def opened(shards: Shards, *, has_recordings: bool = False) -> Sequence[str | Manifest] | list[tuple[str, "Skipping"]]:
    """Paths and tables, or functions that open an iterable after its first documents."""
    if isinstance(shards, Manifest):
        return [shards]
    if isinstance(shards, Sequence) and any(isinstance(shard, Manifest) for shard in shards):
        return [
            path
            for shard in shards
            for path in ([shard] if isinstance(shard, Manifest) else _shards("shards", shard, "recordings"))
        ]
    if isinstance(shards, Mapping):
        for name, documents in shards.items():
            if isinstance(documents, Iterator):
                raise ConfigError(
                    f"shard {name!r} is an iterator ({type(documents).__name__}), which can be read once only, so no "
                    "build could resume with it; pass a list, or an object whose iter() begins at the first document"
                )
        return [(str(name), Skipping(documents)) for name, documents in shards.items()]
    return _shards("shards", shards, "recordings" if has_recordings else "inputs")


@dataclass(frozen=True)
class Skipping:
    """Opens an iterable and skips its first documents."""

    documents: Iterable[Any]

    def __call__(self, skip: int) -> Iterable[Any]:
        """An iterator over the documents after the first `skip`."""
        if skip and isinstance(self.documents, Sequence):
            return itertools.islice(self.documents, skip, None)
        return itertools.islice(iter(self.documents), skip, None)


def _of_recordings(kind: Mapping[str, Any]) -> dict[str, str]:
    """What identifies the recordings of a build, and what becomes of damaged ones."""
    return {
        "damage": json.dumps({name: kind[name] for name in ("damage", "max_damage")}),
        "audio_column": json.dumps(kind["audio_column"]),
        **({} if kind["track"] is None else {"track": str(kind["track"])}),
    }


def described(processor: Any, shards: Shards, names: Sequence[str] | None) -> dict[str, Any]:
    """The description of a processor for the core; `name` identifies the processor."""
    read = None if names is None else list(names)
    match processor:
        case Tokenizer():
            return described(Tokenize(processor), shards, names)
        case SpectrogramTransform() | _FrontEndPart():
            return described(Features(processor), shards, names)
        case Tokenize(tokenizer, text_column, bos, field):
            options = {"tokenizer": tokenizer, "text_column": text_column, "bos": bos, "field": field}
            return {"kind": "tokenize", "name": "", "columns": read, **options}
        case Features(transform, audio_column, track):
            return {
                "kind": "features",
                "name": "",
                "columns": read,
                "transform": preset(transform) if isinstance(transform, str) else transform,
                "audio_column": audio_column,
                "track": track,
            }
        case None if isinstance(shards, Mapping):
            return {"kind": "columns", "name": "none", "columns": read, "to_columns": columns}
        case None:
            return {"kind": "keep", "name": "none", "columns": read}
        case type() if issubclass(processor, _FrontEndPart):
            raise TypeError(f"processor is the class {processor.__name__}, expected an object: {processor.__name__}()")
        case _ if callable(processor):
            to_columns = {"to_columns": columns, "function": processor}
            return {"kind": "callable", "name": fingerprint(processor), "columns": read, **to_columns}
        case _:
            hint = f"; for a preset pass cache.Features({processor!r})" if isinstance(processor, str) else ""
            raise TypeError(
                f"processor is {type(processor).__name__}, expected a Tokenizer, an object of forebay.features, a "
                f"SpectrogramTransform, Tokenize, Features, a function or None{hint}"
            )


def fingerprint(function: Callable[..., Any]) -> str:
    """The identity of a function: its `fingerprint`, or else its name and a hash of its source and values.

    Values are defaults, closure variables, the arguments of a `partial`, the attributes of a callable object.
    """
    own = getattr(function, "fingerprint", None)
    if own is not None:
        return str(own() if callable(own) else own)
    digest = hashlib.sha256()
    name = _told(function, digest.update)
    return f"{name} {digest.hexdigest()[:16]}"


def _told(function: Any, update: Callable[[bytes], None]) -> str:
    """Hashes the source and the values of a function; returns its name."""
    if isinstance(function, functools.partial):
        name = _told(function.func, update)
        _hash((function.args, sorted(function.keywords.items())), name, update)
        return f"partial of {name}"
    if inspect.ismethod(function):
        name = _told(function.__func__, update)
        _hash(function.__self__, name, update)
        return name
    code = function if inspect.isroutine(function) else type(function)
    name = f"{code.__module__}.{code.__qualname__}"
    source = ""
    with contextlib.suppress(OSError, TypeError):
        source = inspect.getsource(code)
    update((source or name).encode())
    # The source of a lambda is its whole lines, which may have several lambdas.
    if not source or source.count("lambda") > 1:
        _hash_code(code, update)
    if inspect.isfunction(function):
        cells = inspect.getclosurevars(function).nonlocals
        _hash((function.__defaults__, function.__kwdefaults__, sorted(cells.items())), name, update)
    elif code is not function:
        _hash(function, name, update)
    return name


def _hash_code(code: Any, update: Callable[[bytes], None]) -> None:
    """Hashes the bytecode of a function, or of a class's methods, which differs between versions of Python."""
    if inspect.isclass(code):
        for name, value in sorted(vars(code).items()):
            update(name.encode())
            _hash_code(value, update)
    elif isinstance(code, CodeType):
        update(code.co_code + repr(code.co_names).encode())
        for constant in code.co_consts:
            _hash_code(constant, update)
    elif inspect.isfunction(code):
        _hash_code(code.__code__, update)
    elif isinstance(code, frozenset):
        update(repr(sorted(map(repr, code))).encode())  # sorted: the order of a set differs between processes
    elif isinstance(code, tuple | str | bytes | int | float | complex | None):
        update(repr(code).encode())


def _hash(value: Any, name: str, update: Callable[[bytes], None]) -> None:
    """Hashes a value of a function; functions in it by their source and values."""
    if inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, functools.partial):
        _told(value, update)
        return
    if type(value) in (list, tuple, set, frozenset):
        if not isinstance(value, list | tuple):
            value = sorted(value, key=repr)  # the order of a set differs between processes
        update(f"{len(value)} values".encode())
        for inner in value:
            _hash(inner, name, update)
        return
    try:
        update(pickle.dumps(value, protocol=4))
    except Exception as error:
        raise ConfigError(
            f"the processor {name} has a {type(value).__name__} that cannot be pickled ({error}), so a resumed build "
            "could not identify the processor; give it an attribute `fingerprint`, a text of your own"
        ) from error


def typed(fields: Sequence[str] | Mapping[str, Any] | None) -> list[tuple[str, str | None]] | None:
    """The names of fields and of their types."""
    if fields is None:
        return None
    if isinstance(fields, Mapping):
        return [(name, None if dtype is None else dtype_name(name, dtype)) for name, dtype in sorted(fields.items())]
    if isinstance(fields, str):
        raise TypeError(f"fields is the string {fields!r}, expected a list of names, or a dict of names and types")
    return [(name, None) for name in sorted(fields)]


def dtype_name(field: str, dtype: Any) -> str:
    """The name of a field's type."""
    try:
        name: str = np.dtype(dtype).name
    except TypeError as error:
        raise TypeError(f"fields[{field!r}]: {error}") from None
    return name
