"""Finds the next file of a queue, reads it whole and checks it."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from forebay._core import ConfigError
from forebay.queue.files import FileName, Layout, free, list_files, move, patiently
from forebay.queue.meta import Field, compare, few, shown
from forebay.queue.tensors import CorruptFileError, Tensors, check_tensors, cut, describe, own, read

_log = logging.getLogger("forebay.queue")

_METADATA = ("batch_size", "num_batches", "file_idx", "split", "produced_at", "schema")


@dataclass(eq=False)
class Loaded:
    """A file in memory."""

    name: str
    tensors: Tensors
    rows: int
    batch_size: int | None
    """The batch size in the file; None in old files without one."""

    pinned: bool
    _whole: tuple[int, list[Any]] | None = None

    def cut(self, first_row: int, batch_size: int) -> list[Any]:
        """The file's batches from a row on; from the first row, they may have been cut by `cut_ahead` already."""
        whole, self._whole = self._whole, None
        if whole and whole[0] == batch_size and not first_row:
            return whole[1]
        return cut(self.tensors, first_row, self.rows, batch_size, self.pinned)

    def cut_ahead(self, batch_size: int | None) -> Self:
        """Cuts the file ahead of the trainer's request, if a batch size is known."""
        if size := batch_size or self.batch_size:
            self._whole = size, cut(self.tensors, 0, self.rows, size, self.pinned)
        return self


class Feed(Protocol):
    """The source of files for `Ahead`."""

    folder: Path
    batch_size: int | None
    """The trainer's batch size if known: files are cut ahead of time."""

    def next_file(self) -> Loaded | None:
        """The next file, or None if there is none yet."""

    def load(self, name: str, /) -> Loaded:
        """Reads and checks one file."""


class QueueFeed:
    """The files of a queue, oldest first, each once; corrupt files are moved to quarantine."""

    def __init__(
        self, layout: Layout, split: str, schema: Sequence[Field], pin: bool, watch: Callable[[int], None]
    ) -> None:
        self.folder = layout.files(split)
        self.batch_size: int | None = None
        self.done: dict[str, int] = {}  # consumed files that still exist, by number; not in the backlog
        self.taken: set[str] = set()  # files handed out, which may still exist
        self.quarantined = 0
        self._quarantine = layout.quarantine(split)
        self._split = split
        self._schema = list(schema)
        self._pin = pin
        self._watch = watch
        self._backlog = 0

    def next_file(self) -> Loaded | None:
        """The next file; raises `ConfigError` if it does not have the schema of meta, and again until it is removed."""
        names = list_files(self.folder)
        self.taken.intersection_update(names)
        self._observe(sum(name not in self.done for name in names))
        for name in names:
            if name in self.taken:
                continue
            why = None
            try:
                loaded = patiently(lambda name=name: self.load(name))  # type: ignore[misc]
            except FileNotFoundError:
                _log.warning("%s: %s was removed by another program before it was read", self._split, name)
                continue
            except CorruptFileError as error:
                why = str(error)
            if why is not None:  # not in the handler, where the error keeps the file open: Windows cannot move it then
                self._put_away(name, why)
                continue
            self.taken.add(name)
            return loaded
        return None

    def load(self, name: str) -> Loaded:
        """Reads and checks one file."""
        path = self.folder / name
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
            raise CorruptFileError(
                f"it has {rows} rows, but its metadata has {shown(num_batches)} batches of {shown(batch_size)}"
            )
        if not rows:
            raise CorruptFileError("it has no rows")
        if (key := FileName.parse(name)) is None or key.num_batches != num_batches:
            raise CorruptFileError(f"it has {num_batches} batches, but its name has another number")
        self._check_schema(path, tensors, metadata["schema"])
        _log.debug("%s: read %s, %d rows", self._split, name, rows)
        owned = {field["name"]: own(tensors[field["name"]], self._pin) for field in self._schema}
        return Loaded(name, owned, rows, batch_size, self._pin).cut_ahead(self.batch_size)

    def _check_schema(self, path: Path, tensors: Tensors, stated: Any) -> None:
        expected = {field["name"]: (field["dtype"], list(field["shape"])) for field in self._schema}
        found = {name: (field["dtype"], field["shape"]) for name in tensors if (field := describe(name, tensors[name]))}
        wrong = compare(found, expected)
        if not wrong:
            said: Any = None
            with contextlib.suppress(TypeError, KeyError):
                said = {str(field["name"][:1000]): (field["dtype"], list(field["shape"])) for field in stated}
            wrong = [] if said == found else [f"its metadata has {shown(stated)}, which its tensors do not match"]
        if wrong:
            message = f"{path} does not have the schema of meta.pkl: {few(wrong)}"
            _log.warning("%s", message)
            raise ConfigError(
                f"{message}. Remove it, or purge the queue and restart its provider; if meta.pkl was replaced, make a "
                "new consumer"
            )

    def _put_away(self, name: str, why: str) -> None:
        self._quarantine.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            move(self.folder / name, free(self._quarantine / name))
        self.quarantined += 1
        _log.warning("%s: %s is corrupt and was moved to %s: %s", self._split, name, self._quarantine, why)

    def _observe(self, backlog: int) -> None:
        if backlog == self._backlog:
            return
        _log.info("%s: backlog is %d files, was %d", self._split, backlog, self._backlog)
        self._backlog = backlog
        self._watch(backlog)


class Watermarks:
    """Logs a line when the backlog has reached `high`, and one when it has then fallen to `low`."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self._name = name
        self._low = low
        self._high = high
        self._is_high = False

    def __call__(self, backlog: int) -> None:
        """Called at each change of the backlog."""
        if not self._is_high and backlog >= self._high:
            self._is_high = True
            _log.info("%s: backlog has reached the high watermark, %d files", self._name, self._high)
        elif self._is_high and backlog <= self._low:
            self._is_high = False
            _log.info("%s: backlog has fallen to the low watermark, %d files", self._name, self._low)
