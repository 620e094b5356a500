"""The number of a split's next file, which survives restarts and kills: no file is lost or made twice.

Before a file gets its final name, a note on disk has the next number and the finished file's temporary name.
The next provider reads this note: it publishes a finished file, and makes an unfinished file again.
"""

import logging
from pathlib import Path
from typing import Any

from forebay._files import what_is
from forebay.queue.files import (
    TEMPORARY,
    FileName,
    Layout,
    list_files,
    move,
    read_state,
    remove_stale,
    sync_folder,
    write_state,
)

_log = logging.getLogger("forebay.queue")


MOST = 10**18
"""The upper limit of the numbers in file names, not included."""


class Numbering:
    """The numbering of one split; for one provider at a time."""

    def __init__(self, layout: Layout, split: str) -> None:
        self._split = split
        self._folder = layout.files(split)
        self._folders = (self._folder, layout.archive(split), layout.quarantine(split))
        self._path = layout.state(split, "sequence.json")
        self._next = 0  # lower limit, even if the queue is removed while the provider runs

    def next(self) -> int:
        """The number of the next file."""
        return max(int(self._read()["next"]), self._next)

    def name(self, seq: int, num_batches: int, now_ms: int) -> FileName:
        """The name of file `seq`; timestamps never decrease, even if the clock does."""
        return FileName(max(now_ms, self._read()["timestamp"]), seq, num_batches)

    def publish(self, name: FileName) -> Path:
        """Gives a complete temporary file its final name."""
        state = self._read()
        self._finish(state)
        self._next = max(self.next(), name.seq + 1)
        note = {"next": self._next, "timestamp": name.timestamp, "temporary": name.temporary, "final": str(name)}
        write_state(self._path, note)
        self._finish(note)
        return self._folder / str(name)

    def recover(self) -> None:
        """Publishes a file that the last provider had finished but not published; removes unfinished files."""
        remove_stale(self._path)
        if final := self._finish(self._read()):
            _log.info("%s: published %s, which the last provider had finished", self._split, final)
        for path in sorted(self._folder.glob(f"{TEMPORARY}*")):
            if not FileName.is_temporary(path.name) or what_is(path) != "a file":
                continue
            path.unlink()
            _log.info("%s: removed %s, which the last provider had not finished", self._split, path.name)

    def _finish(self, state: dict[str, Any]) -> str | None:
        """Publishes the file of a note, unless it is published; returns its final name."""
        if "temporary" not in state or what_is(temporary := self._folder / state["temporary"]) != "a file":
            return None
        move(temporary, self._folder / state["final"])
        sync_folder(self._folder)
        return str(state["final"])

    def _read(self) -> dict[str, Any]:
        """Reads the note, or derives one from the existing files."""
        state = read_state(self._path, _is_note)
        if state is not None:
            return state
        names = [key for folder in self._folders for name in list_files(folder) if (key := FileName.parse(name))]
        return {
            "next": max((key.seq + 1 for key in names), default=0),
            "timestamp": max((key.timestamp for key in names), default=0),
        }


def _is_note(state: Any) -> bool:
    """Whether this is a note of `publish`, with valid file names."""
    are_numbers = all(type(state.get(key)) is int and 0 <= state[key] < MOST for key in ("next", "timestamp"))
    if not are_numbers or "temporary" not in state:
        return are_numbers
    final = state.get("final")
    key = FileName.parse(final) if isinstance(final, str) else None
    return key is not None and str(key) == final and key.temporary == state["temporary"]
