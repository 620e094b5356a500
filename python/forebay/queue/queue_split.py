"""A split of a queue: which files are consumed, which may be removed, and the record of this on disk.

`consumer.json` says which file is open, which are held for a state, and how many were removed. The provider
reads it, to leave held files out of its count; a new consumer reads it, to find the position of its
predecessor.
"""

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forebay._core import ConfigError, StateError
from forebay._files import what_is
from forebay.queue.feed import Loaded, QueueFeed
from forebay.queue.files import (
    FileName,
    Layout,
    free,
    is_record,
    list_files,
    read_state,
    remove_stale,
    write_state,
)
from forebay.queue.split import Place, Split

_log = logging.getLogger("forebay.queue")


class QueueSplit(Split):
    """The consumer's position in a split of a queue."""

    feed: QueueFeed

    def __init__(
        self, name: str, feed: QueueFeed, cache_files: int, layout: Layout, *, on_state: bool, archive: bool
    ) -> None:
        super().__init__(name, feed, cache_files)
        self.done = feed.done  # files that are through and still there
        self.folder = feed.folder
        self._finished = 0  # files that are through, all in all
        self._interrupted: set[str] = set()  # files that a predecessor had begun
        self._queue = ""  # tells this queue from one that was there before a purge
        self._on_state = on_state
        self._archive = layout.archive(name) if archive else None
        self._record = layout.state(name, "consumer.json")
        self._noting = threading.Lock()
        if self._archive:
            self._archive.mkdir(parents=True, exist_ok=True)
            if self._archive.stat().st_dev != self._record.parent.stat().st_dev:
                raise ConfigError(f"{self._archive} is on another file system than the queue, and files are renamed")

    def resume(self, place: Place | None) -> Loaded | None:
        """`StateError` also if other files are gone that came after the state."""
        record = self._recorded(place is None)
        present = set(list_files(self.folder))
        self._queue = record["queue"]
        if place is None:
            # Files held for a state that was not loaded are read again. Files that could not be removed are
            # removed now.
            if not record["on_state"] and not self._on_state:
                self.done.update({name: None for name in record["held"] if name in present})
            self._finished = record["released"] + len(self.done)
            self._interrupted = ({record["open"], *record["held"]} & present) - self.done.keys()
        else:
            if place["queue"] != record["queue"]:
                raise StateError(f"the state is of a queue that was in {self.folder} before: it was purged since")
            if record["released"] > place["finished"]:
                raise StateError(
                    f"the state was taken after {place['finished']} files of {self.folder}, of which "
                    f"{record['released']} are gone: load a later state, and use delete='on_state' to keep files "
                    "until one exists"
                )
            self.done.update({name: None for name in place["done"] if name in present})
            self._finished = place["finished"]
        self.covered = set(self.done)
        file = self.file_of(place)
        self.feed.taken.update(self.done, [file.name] if file else [])
        return file

    def start(self) -> None:
        """Also completes the removals that a predecessor had begun."""
        super().start()
        self.ahead.do(self.note)
        for path in self._record.parent.glob(f"{self.folder.name}.*.gone"):
            name = path.name.removeprefix(f"{self.folder.name}.").removesuffix(".gone")
            if not FileName.parse(name) or what_is(path) != "a file":
                continue
            self.ahead.do(lambda path=path: _is_unlinked(path))  # type: ignore[misc]

    def opened(self, file: Loaded) -> None:
        """Logs a line if a predecessor had opened this file."""
        super().opened(file)
        if file.name in self._interrupted:
            self._interrupted.discard(file.name)
            _log.warning("%s: %s was interrupted before, and starts again from its first batch", self.name, file.name)
        self.ahead.do(self.note)

    def finish(self) -> None:
        """The file is consumed, and may be removed unless it waits for a state."""
        super().finish()
        if self.file:
            self.done[self.file.name] = None
            self._finished += 1
            self.file = None
        if self._on_state:
            self.ahead.do(self.note)  # that it is no backlog, for which the provider may be waiting
        else:
            self.covered.update(self.done)

    def release(self) -> None:
        """Removes files, or moves them to the archive: the fast part now, the rest on the thread."""
        names, self.covered = sorted(self.covered), set()

        def are_let_go() -> bool:
            if self._on_state and not self.note(leaving=names):
                return False  # else an older state could be loaded after they are gone
            for name in names:
                removal = _Removal(self, name)
                if not removal.is_out():
                    _log.warning("%s: %s cannot be removed yet, and is tried again", self.name, name)
                self.ahead.do(removal)
            return True

        if names and not are_let_go():
            self.ahead.do(are_let_go)

    def place(self) -> dict[str, Any]:
        """With the consumed files, including the current one if all its batches were returned."""
        place, done, finished = super().place(), list(self.done), self._finished
        if self.file and self.number >= self.end:
            done, finished = [*done, self.file.name], finished + 1
            place |= {"file": None, "row": 0}
        return place | {"queue": self._queue, "done": done, "finished": finished}

    def cover(self, place: Place) -> None:
        """Consumed files may be removed."""
        if self._on_state:
            self.covered = set(place["done"])

    def stats(self) -> dict[str, Any]:
        """For the user."""
        held = list(self.done)
        return super().stats() | {
            "quarantined": self.feed.quarantined,
            "backlog": sum(name not in held for name in list_files(self.folder)),
            "held": len(held),
        }

    def note(self, leaving: Iterable[str] = ()) -> bool:
        """Writes the record as if the files `leaving` were removed already; returns whether that succeeded."""
        with self._noting:  # or an older record could follow a newer one
            file, held = self.file, [name for name in list(self.done) if name not in leaving]
            record = {
                "queue": self._queue,
                "open": file.name if file else None,
                "held": held,
                "released": self._finished - len(held),
                "on_state": self._on_state,
            }
            try:
                write_state(self._record, record)
            except OSError as error:
                _log.warning("%s: %s cannot be written, and is tried again: %s", self.name, self._record, error)
                return False
            return True

    def _recorded(self, begins: bool) -> dict[str, Any]:
        """The record; a new one where a queue begins. A state is of no queue that has none."""
        remove_stale(self._record)
        record = read_state(self._record, is_record)
        if record is None and not begins:
            raise StateError(f"the state is of a queue that was in {self.folder} before: it was purged since")
        if record is None:
            record = {"queue": os.urandom(8).hex(), "open": None, "held": [], "released": 0, "on_state": False}
            write_state(self._record, record)  # now: states are good for the queue with this mark only
        return record

    def out_of(self, name: str) -> Path:
        """The destination of a file; in the archive no file is replaced."""
        if self._archive:
            return free(self._archive / name)
        return self._record.with_name(f"{self.folder.name}.{name}.gone")

    @property
    def keeps(self) -> bool:
        """Whether the file stays there."""
        return self._archive is not None


class _Removal:
    """A file being removed: renamed at once, which is fast; removed by the thread, as that takes longer."""

    def __init__(self, split: QueueSplit, name: str) -> None:
        self._split = split
        self._name = name
        self._source = split.folder / name
        self._target = split.out_of(name)
        self._out = False

    def is_out(self) -> bool:
        """Whether the file is out of its folder now."""
        if not self._out:
            try:
                if not self._target.parent.exists():
                    self._target.parent.mkdir(parents=True)
                self._source.replace(self._target)
            except FileNotFoundError:
                pass  # somebody else was quicker
            except OSError as error:
                _log.debug("%s: %s", self._source, error)
                return False
            self._out = True
            self._split.done.pop(self._name, None)
        return True

    def __call__(self) -> bool:
        """Whether the removal is done."""
        return self.is_out() and (self._split.keeps or _is_unlinked(self._target))


def _is_unlinked(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s: %s", path, error)
        return False
    return True
