"""What a consumer knows of one split: the file in hand, what is done, and what of this is on the disk.

`consumer.json` says which file is open, which are held for a state, and how many are gone. The provider reads it, so
as not to count what is held; a consumer that starts reads it, so as to know what its predecessor was at.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay._core import StateError
from forebay.queue.ahead import Ahead, Task
from forebay.queue.feed import Loaded, QueueFeed
from forebay.queue.files import Layout, list_files, read_state, write_state
from forebay.queue.lock import QueueLock

_log = logging.getLogger("forebay.queue")


class Split:
    """Where the consumer is in a split."""

    ahead: Ahead

    def __init__(self, name: str, lock: QueueLock | None, layout: Layout, on_state: bool, archive: bool) -> None:
        self.name = name
        self.lock = lock
        self.feed: QueueFeed | None = None
        self.folder = layout.files(name)
        self.file: Loaded | None = None
        self.batches: list[Any] = []
        self.number = 0  # of the next batch among these
        self.end = 0
        self.done: dict[str, None] = {}  # files that are through and still there
        self.covered: set[str] = set()  # of these, those that may go
        self.finished = 0  # files that are through, all in all
        self.interrupted: set[str] = set()  # files that a predecessor had begun
        self.files = 0
        self.out = layout.archive(name) if archive else layout.state(name, "").parent
        self._layout = layout
        self._on_state = on_state
        self._record = layout.state(name, "consumer.json")
        self._noting = threading.Lock()
        self._first_row = 0
        self._batch_size = 1
        self._before = 0  # batches that were returned out of other files

    def begin(self, file: Loaded, row: int, batch_size: int) -> None:
        """Makes a file the current one, from a row on."""
        batches, used = file.cut(row, batch_size), _Used([self.batches, self.file])
        end, before = len(batches), self._before + self.number
        # No calls from here on, where Ctrl-C could come in between.
        self.file, self.batches, self.number, self.end = file, batches, 0, end
        self._first_row, self._batch_size, self._before = row, batch_size, before
        if hasattr(self, "ahead"):
            self.ahead.do(used)

    def leave(self) -> None:
        """Ends the thread, without waiting, and lets go of the queue."""
        if hasattr(self, "ahead"):
            self.ahead.stop()
        if self.lock:
            self.lock.release()

    def row(self) -> int:
        """The row of the current file that the next batch begins with."""
        rows = self.file.rows if self.file else 0
        return min(self._first_row + self.number * self._batch_size, rows)

    def finish(self) -> None:
        """The current file is through, if there is one."""
        if self.file:
            self.done[self.file.name] = None
            self.finished += 1
            self.file = None

    def note(self, leaving: Iterable[str] = ()) -> bool:
        """Writes the record, as if the files `leaving` were gone already; whether that went well."""
        with self._noting:  # or an older record could follow a newer one
            file, held = self.file, [name for name in list(self.done) if name not in leaving]
            record = {
                "open": file.name if file else None,
                "held": held,
                "released": self.finished - len(held),
                "on_state": self._on_state,
            }
            try:
                write_state(self._record, record)
            except OSError as error:
                _log.warning("%s: %s cannot be written, and is tried again: %s", self.name, self._record, error)
                return False
            return True

    def recall(self, place: Mapping[str, Any] | None) -> None:
        """Takes up what the record says, or the place of a state if it fits."""
        record = read_state(self._record, lambda state: {"open", "held", "released", "on_state"} <= state.keys())
        record = record or {"open": None, "held": [], "released": 0, "on_state": False}
        present = set(list_files(self.folder))
        if place is None:
            # Held for a state that was not loaded: they come again. Held because they could not be removed: they go.
            if not record["on_state"] and not self._on_state:
                self.done = {name: None for name in record["held"] if name in present}
            self.finished = record["released"] + len(self.done)
            self.interrupted = ({record["open"], *record["held"]} & present) - self.done.keys()
        else:
            if record["released"] > place["finished"]:
                raise StateError(
                    f"the state was taken after {place['finished']} files of {self.folder}, of which "
                    f"{record['released']} are gone: load a later state, and use delete='on_state' to keep files "
                    "until one exists"
                )
            self.done = {name: None for name in place["done"] if name in present}
            self.finished = place["finished"]
        self.covered = set(self.done)
        self.out.mkdir(parents=True, exist_ok=True)

    def left_behind(self) -> Iterator[Task]:
        """Removals that a predecessor had begun."""
        for path in self.out.glob(f"{self.folder.name}.*.gone"):
            yield lambda path=path: _is_unlinked(path)  # type: ignore[misc]

    def remove(self, removal: "Removal") -> None:
        """Does the quick part now and has the rest done."""
        if not removal.is_out():
            _log.warning("%s: %s cannot be removed yet, and is tried again", self.name, removal.source)
        self.ahead.do(removal)

    def stats(self) -> dict[str, Any]:
        """For the user."""
        held = list(self.done)
        return {
            "batches": self._before + self.number,
            "files": self.files,
            "quarantined": self.feed.quarantined if self.feed else 0,
            "backlog": sum(name not in held for name in list_files(self.folder)),
            "held": len(held),
            "file": self.file.name if self.file else None,
            "batch": self.number if self.file else 0,
        }


class Removal:
    """A file on its way out: renamed at once, which is quick; removed by the thread, as that takes longer."""

    def __init__(self, split: Split, name: str, keep: bool) -> None:
        self.source = split.folder / name
        self._split = split
        self._name = name
        self._target = split.out / (name if keep else f"{split.folder.name}.{name}.gone")
        self._keep = keep
        self._out = False

    def is_out(self) -> bool:
        """Whether the file is out of its folder, by now."""
        if not self._out:
            try:
                self.source.replace(self._target)
            except FileNotFoundError:
                pass  # somebody else was quicker
            except OSError as error:
                _log.debug("%s: %s", self.source, error)
                return False
            self._out = True
            self._split.done.pop(self._name, None)
        return True

    def __call__(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_out() and (self._keep or _is_unlinked(self._target))


class _Used(list[Any]):
    """What is to be freed: views by the hundred and a file's memory, which the trainer need not wait for."""

    def __call__(self) -> bool:
        self.clear()
        return True


def _is_unlinked(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s: %s", path, error)
        return False
    return True


class Watermarks:
    """A line when the backlog has reached `high`, and one when it has fallen to `low`."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self._name = name
        self._low = low
        self._high = high
        self._is_high = False

    def __call__(self, backlog: int) -> None:
        """Is told of each change."""
        if not self._is_high and backlog >= self._high:
            self._is_high = True
            _log.info("%s: backlog has reached the high watermark, %d files", self._name, self._high)
        elif self._is_high and backlog <= self._low:
            self._is_high = False
            _log.info("%s: backlog has fallen to the low watermark, %d files", self._name, self._low)
