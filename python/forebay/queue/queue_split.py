"""A split of a queue: its consumed and removable files, and the record of these on disk.

`consumer.json` has the open file, the files held for a state, and the number of removed files. The provider
reads it, to leave held files out of its count. A new consumer reads it, to find the position of the previous
one.
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
        self.done = feed.done  # consumed files that still exist, with their numbers from 1 on; 0 for older ones
        self.folder = feed.folder
        self._counted = 0  # number of all consumed files, but for those whose numbers are in `done`
        self._interrupted: set[str] = set()  # files that a previous consumer had begun
        self._queue = ""  # identifies this queue; differs after a purge
        self._on_state = on_state
        self._archive = layout.archive(name) if archive else None
        self._record = layout.state(name, "consumer.json")
        self._noting = threading.RLock()
        self._notes = 0  # notes begun
        if self._archive:
            self._archive.mkdir(parents=True, exist_ok=True)
            if self._archive.stat().st_dev != self._record.parent.stat().st_dev:
                raise ConfigError(
                    f"{self._archive} is on another file system than the queue, so files cannot be renamed"
                )

    def resume(self, place: Place | None) -> Loaded | None:
        """As `Split.resume`; also raises `StateError` if files that were consumed after the state are gone."""
        record = self._recorded(place is None)
        present = set(list_files(self.folder))
        self._queue = record["queue"]
        if place is None:
            # Files held for a state that is not loaded are read again. Files whose removal had failed are
            # removed now.
            if not record["on_state"] and not self._on_state:
                self.done.update({name: 0 for name in record["held"] if name in present})
            self._counted = record["released"] + len(self.done)
            self._interrupted = ({record["open"], *record["held"]} & present) - self.done.keys()
        else:
            if place["queue"] != record["queue"]:
                raise StateError(f"the state is of an earlier queue in {self.folder}, which was purged")
            if record["released"] > place["finished"]:
                raise StateError(
                    f"the state was taken after {place['finished']} files of {self.folder}, of which "
                    f"{record['released']} are gone: load a later state, and use delete='on_state' to keep files "
                    "until one exists"
                )
            self.done.update({name: 0 for name in place["done"] if name in present})
            self._counted = place["finished"]
        self.covered = set(self.done)
        file = self.file_of(place)
        self.feed.taken.update(self.done, [file.name] if file else [])
        return file

    def start(self) -> None:
        """Starts reading files, and completes removals that a previous consumer had begun."""
        super().start()
        self.ahead.do(self.note)
        for path in self._record.parent.glob(f"{self.folder.name}.*.gone"):
            name = path.name.removeprefix(f"{self.folder.name}.").removesuffix(".gone")
            if not FileName.parse(name) or what_is(path) != "a file":
                continue
            self.ahead.do(lambda path=path: _is_unlinked(path))  # type: ignore[misc]

    def opened(self, file: Loaded) -> None:
        """As `Split.opened`; logs a warning if a previous consumer had opened this file."""
        super().opened(file)
        if file.name in self._interrupted:
            self._interrupted.discard(file.name)
            _log.warning("%s: %s was interrupted before, and starts again from its first batch", self.name, file.name)
        self.ahead.do(self.note)

    def finish(self, turn: int) -> None:
        """As `Split.finish`: the file may be removed, unless it is held for a state."""
        super().finish(turn)
        if self.file and self.turn == turn:
            # One step: the thread may write the record now, and Ctrl-C may come after it.
            self.done.setdefault(self.file.name, self._standing()[1] + 1)
            self.file = None
        if self._on_state:
            self.ahead.do(self.note)  # the file leaves the backlog, for which the provider may be waiting
        else:
            self.covered.update(self.done)

    def release(self) -> None:
        """Removes files, or moves them to the archive: the fast part now, the rest on the thread."""
        self._counted = self._standing()[1]  # before the files and their numbers leave `done`
        names, self.covered = sorted(self.covered), set()

        def are_let_go() -> bool:
            if self._on_state and not self.note(leaving=names):
                return False  # otherwise an older state could be loaded after the removal
            for name in names:
                removal = _Removal(self, name)
                if not removal.is_out():
                    _log.warning("%s: %s cannot be removed yet; retrying", self.name, name)
                self.ahead.do(removal)
            return True

        if names and not are_let_go():
            self.ahead.do(are_let_go)

    def place(self) -> dict[str, Any]:
        """The position with the consumed files, including the current one if all its batches were returned."""
        place, (done, finished) = super().place(), self._standing()
        if self.file and self.number >= self.end:
            if self.file.name not in done:  # otherwise Ctrl-C came while it was finished
                done, finished = [*done, self.file.name], finished + 1
            place |= {"file": None, "row": 0}
        return place | {"queue": self._queue, "done": done, "finished": finished}

    def cover(self, place: Place) -> None:
        """Marks the consumed files of a state as removable."""
        if self._on_state:
            self.covered = set(place["done"])

    def stats(self) -> dict[str, Any]:
        """The figures for the user."""
        held = list(self.done)
        return super().stats() | {
            "quarantined": self.feed.quarantined,
            "backlog": sum(name not in held for name in list_files(self.folder)),
            "held": len(held),
        }

    def note(self, leaving: Iterable[str] = ()) -> bool:
        """Writes the record as if the files `leaving` were removed already; returns whether the write succeeded.

        False too on the thread of `Ahead` while the trainer's thread writes: a signal handler there may wait for
        the end of `Ahead`.
        """
        # The lock is there so that no older record overwrites a newer one.
        if not self._noting.acquire(blocking=not self.ahead.is_here()):
            return False
        try:
            while True:
                self._notes = number = self._notes + 1
                file, (done, finished) = self.file, self._standing()
                held = [name for name in done if name not in leaving]
                record = {
                    "queue": self._queue,
                    "open": file.name if file else None,
                    "held": held,
                    "released": finished - len(held),
                    "on_state": self._on_state,
                }
                write_state(self._record, record)
                if self._notes == number:  # else a signal handler has written a newer record, which this replaced
                    return True
        except OSError as error:
            _log.warning("%s: %s cannot be written; retrying: %s", self.name, self._record, error)
            return False
        finally:
            self._noting.release()

    def _standing(self) -> tuple[list[str], int]:
        """The consumed files that still exist, and the number of all consumed files; for any thread."""
        counted = self._counted  # before the files: so no file counts as removed that is still among them
        files = list(self.done.items())
        return [name for name, _ in files], max([counted, *(number for _, number in files)])

    def _recorded(self, begins: bool) -> dict[str, Any]:
        """Reads the record; a queue that begins gets a new one. `StateError` if a state's queue has no record."""
        remove_stale(self._record)
        record = read_state(self._record, is_record)
        if record is None and not begins:
            raise StateError(f"the state is of an earlier queue in {self.folder}, which was purged")
        if record is None:
            record = {"queue": os.urandom(8).hex(), "open": None, "held": [], "released": 0, "on_state": False}
            write_state(self._record, record)  # at once, since states are valid only for the queue with this mark
        return record

    def out_of(self, name: str) -> Path:
        """The destination of a removed file; in the archive, existing files are not replaced."""
        if self._archive:
            return free(self._archive / name)
        return self._record.with_name(f"{self.folder.name}.{name}.gone")

    @property
    def keeps(self) -> bool:
        """Whether removed files are kept, in the archive."""
        return self._archive is not None


class _Removal:
    """The removal of a file: renamed at once, which is fast; deleted by the thread, since that takes longer."""

    def __init__(self, split: QueueSplit, name: str) -> None:
        self._split = split
        self._name = name
        self._source = split.folder / name
        self._target = split.out_of(name)
        self._out = False

    def is_out(self) -> bool:
        """Moves the file out of its folder; returns whether it is out."""
        if not self._out:
            try:
                if not self._target.parent.exists():
                    self._target.parent.mkdir(parents=True)
                self._source.replace(self._target)
            except FileNotFoundError:
                pass  # another program has removed it
            except OSError as error:
                _log.debug("%s: %s", self._source, error)
                return False
            self._out = True
            self._split.done.pop(self._name, None)
        return True

    def __call__(self) -> bool:
        """Continues the removal; returns whether it is done."""
        return self.is_out() and (self._split.keeps or _is_unlinked(self._target))


def _is_unlinked(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s: %s", path, error)
        return False
    return True
