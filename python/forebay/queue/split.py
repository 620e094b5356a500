"""The position of a consumer in a split: the current file, and its next batch."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from forebay._checks import is_count, shown
from forebay._core import ConfigError, StateError
from forebay.queue.ahead import Ahead
from forebay.queue.feed import Feed, Loaded
from forebay.queue.tensors import CorruptFileError

_log = logging.getLogger("forebay.queue")

Place = Mapping[str, Any]
"""The entry of a split in a state."""


class Split:
    """The position in a split without a record, whose files stay: legacy files."""

    def __init__(self, name: str, feed: Feed, cache_files: int) -> None:
        self.name = name
        self.feed = feed
        self.ahead = Ahead(feed, cache_files, name)
        self.file: Loaded | None = None
        self.batches: list[Any] = []
        self.number = 0  # of the next batch among these
        self.end = 0
        self.turn = 0  # increased with each file that is begun
        self.covered: set[str] = set()  # files that may be removed
        self._files = 0  # number of opened files
        self._first_row = 0
        self._batch_size = 1
        self._before = 0  # batches returned from earlier files

    def resume(self, place: Place | None) -> Loaded | None:
        """Moves to a state's position, before the start; returns its file. `StateError` if the file was removed."""
        return self.file_of(place)

    def start(self) -> None:
        """Starts reading files."""
        self.ahead.start()

    def begin(self, file: Loaded, row: int, batch_size: int, turn: int) -> bool:
        """Makes a file the current one, from a row on, unless another one was begun after the turn `turn`."""
        batches, used = file.cut(row, batch_size), _Used([self.batches, self.file])
        end = len(batches)
        # No calls from here on to the last assignment, so neither Ctrl-C nor a signal handler can come between.
        if self.turn != turn:
            return False
        self._before += self.number
        self.file, self.batches, self.number, self.end = file, batches, 0, end
        self._first_row, self._batch_size, self.turn = row, batch_size, turn + 1
        self.ahead.do(used)
        return True

    def opened(self, file: Loaded) -> None:
        """Called when a new file has become the current one."""
        self.ahead.drop(file)
        self._files += 1
        _log.info("%s: opened %s, %d rows", self.name, file.name, file.rows)

    def finish(self, turn: int) -> None:
        """Marks the file of the turn `turn` as consumed, if it is the current one."""
        if self.turn == turn:
            self.ahead.drop(self.file)  # in case Ctrl-C prevented it before

    def release(self) -> None:
        """Removes the files that may be removed."""

    def row(self) -> int:
        """The first row of the next batch in the current file."""
        rows = self.file.rows if self.file else 0
        return min(self._first_row + self.number * self._batch_size, rows)

    def place(self) -> dict[str, Any]:
        """The position after the last returned batch, for `resume`."""
        file = self.file.name if self.file else None
        return {"queue": None, "file": file, "row": self.row(), "done": [], "finished": 0}

    def cover(self, place: Place) -> None:
        """Called for each state that is taken."""

    def stats(self) -> dict[str, Any]:
        """Figures for the user."""
        return {
            "batches": self._before + self.number,
            "files": self._files,
            "quarantined": 0,
            "backlog": 0,
            "held": 0,
            "file": self.file.name if self.file else None,
            "batch": self.number if self.file else 0,
        }

    def file_of(self, place: Place | None) -> Loaded | None:
        """Reads the file of a state's position."""
        if not place or place["file"] is None:
            return None
        try:
            file = self.feed.load(place["file"])
        except ConfigError as error:
            raise StateError(f"the state's file cannot be used: {error}") from error
        except (FileNotFoundError, CorruptFileError) as error:
            why = "is gone" if isinstance(error, FileNotFoundError) else f"is corrupt: {error}"
            raise StateError(
                f"the state's file is {self.feed.folder / place['file']}, which {why}. It was consumed after this "
                "state was taken, or removed; load a later state, and use delete='on_state' to keep files until one "
                "exists"
            ) from error
        if place["row"] > file.rows:
            raise StateError(f"the state's row is {place['row']} of {file.name}, which has {file.rows} rows")
        _log.info("%s: resumed in %s at row %d", self.name, file.name, place["row"])
        return file


class _Used(list[Any]):
    """Objects to free on the other thread: hundreds of views and a file's memory."""

    def __call__(self) -> bool:
        self.clear()
        return True


def check_place(place: Any, is_file: Callable[[str], bool]) -> None:
    """Raises `StateError` unless this has the form of `place()`; `is_file` checks the names of the split's files."""
    right = (
        isinstance(place, dict)
        and {"queue", "file", "row", "done", "finished"} <= place.keys()
        and all(is_count(place[key], 2**62) for key in ("row", "finished"))
        and isinstance(place["done"], list)
        and all(isinstance(name, str) and is_file(name) for name in place["done"])
        and (place["file"] is None or (isinstance(place["file"], str) and is_file(place["file"])))
        and (place["queue"] is None or isinstance(place["queue"], str))
    )
    if not right:
        raise StateError(f"the state is damaged: its entry of a split is {shown(place)}")
