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
"""What a state says of a split."""


class Split:
    """A split whose files stay, without a record: files from before the queue."""

    def __init__(self, name: str, feed: Feed, cache_files: int) -> None:
        self.name = name
        self.feed = feed
        self.ahead = Ahead(feed, cache_files, name)
        self.file: Loaded | None = None
        self.batches: list[Any] = []
        self.number = 0  # of the next batch among these
        self.end = 0
        self.covered: set[str] = set()  # files that may go
        self._files = 0  # that were opened
        self._first_row = 0
        self._batch_size = 1
        self._before = 0  # batches that were returned out of other files

    def resume(self, place: Place | None) -> Loaded | None:
        """Before the start: takes a state's position; returns its current file. `StateError` if that was removed."""
        return self.file_of(place)

    def start(self) -> None:
        """Starts reading files."""
        self.ahead.start()

    def begin(self, file: Loaded, row: int, batch_size: int) -> None:
        """Makes a file the current one, from a row on."""
        batches, used = file.cut(row, batch_size), _Used([self.batches, self.file])
        end, before = len(batches), self._before + self.number
        # No calls from here on, where Ctrl-C could come in between.
        self.file, self.batches, self.number, self.end = file, batches, 0, end
        self._first_row, self._batch_size, self._before = row, batch_size, before
        self.ahead.do(used)

    def opened(self, file: Loaded) -> None:
        """Called when the current file is a new one."""
        self.ahead.drop(file)
        self._files += 1
        _log.info("%s: opened %s, %d rows", self.name, file.name, file.rows)

    def finish(self) -> None:
        """Marks the current file as consumed, if there is one."""
        self.ahead.drop(self.file)  # if Ctrl-C came before that was done

    def release(self) -> None:
        """Removes the files that may be removed."""

    def row(self) -> int:
        """The row of the current file that the next batch begins with."""
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
            raise StateError(f"the state stands in a file that cannot be used: {error}") from error
        except (FileNotFoundError, CorruptFileError) as error:
            why = "is gone" if isinstance(error, FileNotFoundError) else f"is corrupt: {error}"
            raise StateError(
                f"the state stands in {self.feed.folder / place['file']}, which {why}. It was consumed after this "
                "state was taken, or removed; load a later state, and use delete='on_state' to keep files until one "
                "exists"
            ) from error
        if place["row"] > file.rows:
            raise StateError(f"the state stands at row {place['row']} of {file.name}, which has {file.rows}")
        _log.info("%s: goes on in %s at row %d", self.name, file.name, place["row"])
        return file


class _Used(list[Any]):
    """Objects to be freed: hundreds of views and a file's memory, which the trainer need not wait for."""

    def __call__(self) -> bool:
        self.clear()
        return True


def check_place(place: Any, is_file: Callable[[str], bool]) -> None:
    """Raises `StateError` unless this is what `place()` says; `is_file` knows how files of the split are called."""
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
        raise StateError(f"the state is damaged: it says {shown(place)} of a split")
