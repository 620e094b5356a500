"""Which file of a queue comes next, read whole and checked."""

import contextlib
import errno
import logging
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from forebay._core import ConfigError
from forebay.queue.files import FileName, Layout, list_files, move
from forebay.queue.meta import Field
from forebay.queue.tensors import CorruptFileError, Tensors, check_tensors, cut, describe, own, read

_log = logging.getLogger("forebay.queue")

_READ_ATTEMPTS = 4

_METADATA = ("batch_size", "num_batches", "file_idx", "split", "produced_at", "schema")


@dataclass
class Loaded:
    """A file in memory."""

    name: str
    tensors: Tensors
    rows: int
    batch_size: int | None
    """As the file was made; old files may not say."""

    pinned: bool
    _whole: tuple[int, list[Any]] | None = None

    def cut(self, first_row: int, batch_size: int) -> list[Any]:
        """Its batches from a row on; those from the first on may be there from `cut_ahead`, once."""
        whole, self._whole = self._whole, None
        if whole and whole[0] == batch_size and not first_row:
            return whole[1]
        return cut(self.tensors, first_row, self.rows, batch_size, self.pinned)

    def cut_ahead(self, batch_size: int | None) -> Self:
        """Cuts before the trainer asks; a file without a batch size is cut when there is one."""
        if size := batch_size or self.batch_size:
            self._whole = size, cut(self.tensors, 0, self.rows, size, self.pinned)
        return self


class Feed(Protocol):
    """What `Ahead` asks for files."""

    batch_size: int | None
    """What batches the trainer wants, if that is known: files are cut for it ahead of time."""

    def next_file(self) -> Loaded | None:
        """The next file, or None if there is none yet."""


class QueueFeed:
    """The files of a queue, oldest first, each once; corrupt ones go to quarantine.

    What is `done` is still there, but not of the backlog.
    """

    def __init__(self, layout: Layout, split: str, schema: Sequence[Field], done: Container[str], pin: bool) -> None:
        self.schema = list(schema)
        self.taken: set[str] = set()  # handed out, and perhaps still there
        self.batch_size: int | None = None
        self.quarantined = 0
        self.backlog = 0
        self.watch: Callable[[int], None] | None = None
        self._layout = layout
        self._split = split
        self._folder = layout.files(split)
        self._done = done
        self._pin = pin

    def next_file(self) -> Loaded | None:
        """Raises `ConfigError` if the next file doesn't have the schema of meta; it stays, and so does the error."""
        names = list_files(self._folder)
        self.taken.intersection_update(names)
        self._observe(sum(name not in self._done for name in names))
        for name in names:
            if name in self.taken:
                continue
            try:
                loaded = _retried(lambda name=name: self.load(name))  # type: ignore[misc]
            except FileNotFoundError:
                _log.warning("%s: %s was removed by somebody else before it was read", self._split, name)
                continue
            except CorruptFileError as error:
                self._quarantine(name, error)
                continue
            self.taken.add(name)
            return loaded
        return None

    def load(self, name: str) -> Loaded:
        """One file, checked."""
        path = self._folder / name
        content = read(path)
        metadata: Any = content.get("metadata") if isinstance(content, dict) else None
        if not isinstance(metadata, dict):
            raise CorruptFileError("it has no metadata")
        if missing := [key for key in _METADATA if key not in metadata]:
            raise CorruptFileError(f"its metadata lacks {', '.join(missing)}")
        tensors = content.get("tensors")
        rows = check_tensors(tensors, path)
        batch_size, num_batches = metadata["batch_size"], metadata["num_batches"]
        are_counts = isinstance(batch_size, int) and isinstance(num_batches, int) and min(batch_size, num_batches) >= 0
        if not are_counts or rows != batch_size * num_batches:
            raise CorruptFileError(f"it has {rows} rows, and metadata says {num_batches!r} batches of {batch_size!r}")
        if not rows:
            raise CorruptFileError("it has no rows")
        if (key := FileName.parse(name)) is None or key.num_batches != num_batches:
            raise CorruptFileError(f"it has {num_batches} batches, and its name says otherwise")
        self._check_schema(path, tensors, metadata["schema"])
        _log.debug("%s: read %s, %d rows", self._split, name, rows)
        owned = {field["name"]: own(tensors[field["name"]], self._pin) for field in self.schema}
        return Loaded(name, owned, rows, batch_size, self._pin).cut_ahead(self.batch_size)

    def _check_schema(self, path: Path, tensors: Tensors, stated: Any) -> None:
        expected = {field["name"]: (field["dtype"], list(field["shape"])) for field in self.schema}
        found = {name: (field["dtype"], field["shape"]) for name in tensors if (field := describe(name, tensors[name]))}
        wrong = compare(found, expected)
        if not wrong:
            said: Any = None
            with contextlib.suppress(TypeError, KeyError):
                said = {field["name"]: (field["dtype"], list(field["shape"])) for field in stated}
            wrong = [] if said == found else [f"its metadata says {stated!r}, which its tensors are not"]
        if wrong:
            message = f"{path} does not have the schema of meta.pkl: {'; '.join(wrong)}"
            _log.warning("%s", message)
            raise ConfigError(f"{message}. Remove it, or purge the queue and start its provider again")

    def _quarantine(self, name: str, why: CorruptFileError) -> None:
        folder = self._layout.quarantine(self._split)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            move(self._folder / name, folder / name)
        self.quarantined += 1
        _log.warning("%s: %s is corrupt and went to %s: %s", self._split, name, folder, why)

    def _observe(self, backlog: int) -> None:
        if backlog == self.backlog:
            return
        _log.info("%s: backlog is %d files, was %d", self._split, backlog, self.backlog)
        self.backlog = backlog
        if self.watch:
            self.watch(backlog)


def compare(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """How fields `{name: (dtype, shape)}` differ, in words."""
    wrong = [f"{name!r} is missing" for name in expected if name not in found]
    wrong += [f"{name!r} is not in the schema" for name in found if name not in expected]
    for name in expected:
        if name in found and tuple(found[name]) != tuple(expected[name]):
            (dtype, shape), (want_dtype, want_shape) = found[name], expected[name]
            wrong.append(f"{name!r} is {dtype} {shape}, must be {want_dtype} {want_shape}")
    return wrong


def _retried(load: Callable[[], Loaded]) -> Loaded:
    """Again, for a moment, after errors that network file systems and Windows have now and then."""
    pause = 0.01
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return load()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ESTALE, errno.EINTR, errno.ETIMEDOUT, errno.EACCES, errno.EBUSY):
                raise
            _log.debug("reading again after: %s", error)
        time.sleep(pause)
        pause *= 3
    return load()
