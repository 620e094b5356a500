"""`CacheBuild`: a running build, its progress, and the progress line."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from forebay._core import _CacheBuild
from forebay._progress import REDRAW_S, WIDTH, Display, clock
from forebay.cache.store import TreeStore

SLICE_S = 0.05
"""The longest wait between checks of pending signals."""
INTERRUPT_S = 2.0
"""How long an interrupted build may take to commit its written documents."""

SAME_CALL = "the same call"
"""In the note of an interrupted build; the command has its own words."""


@dataclass(frozen=True)
class Progress:
    """The progress of a build."""

    documents: int
    """Documents written, including earlier runs; not all are committed."""
    committed: int
    """Documents committed, including earlier runs: readers see them, and a build resumes after them."""
    skipped: int
    """Documents left out, including earlier runs."""
    values: int
    """Values written in all fields, such as tokens."""
    finished_shards: int
    n_shards: int
    part: float
    """The fraction of the shards that is read, from 0 to 1, as far as it is known."""
    seconds: float
    documents_per_s: float
    """Documents per second in this run."""
    values_per_s: float
    """Values per second in this run."""
    remaining_s: float | None
    """Estimated seconds to the end; None while there is no estimate."""


class CacheBuild:
    """A running build, on its own threads."""

    def __init__(self, core: _CacheBuild, path: Path, split: str, release: Callable[[], None] | None = None) -> None:
        self._core = core
        self._path = path
        self._split = split
        self._release = release

    def progress(self) -> Progress:
        """Returns the current progress of the build."""
        found = self._core.progress()
        seconds = max(found["seconds"], 1e-9)
        read = found["part"] - found["part_before"]
        return Progress(
            documents=found["documents"],
            committed=found["committed"],
            skipped=found["skipped"],
            values=found["values"],
            finished_shards=found["finished_shards"],
            n_shards=found["n_shards"],
            part=found["part"],
            seconds=found["seconds"],
            documents_per_s=(found["documents"] - found["documents_before"]) / seconds,
            values_per_s=(found["values"] - found["values_before"]) / seconds,
            remaining_s=(1 - found["part"]) / read * seconds if read > 0 else None,
        )

    def wait(self, timeout_s: float | None = None) -> TreeStore | None:
        """Waits for the build and returns the finished cache; None if the build still runs after `timeout_s`.

        Raises the error that ended the build: the exception of a processor, with a note that names the place,
        or the error of a shard or the file system. Committed documents stay, and the same call to `build`
        resumes after them. `KeyboardInterrupt` cancels the build, and so does an exception of a log handler.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while self._core.wait(SLICE_S) is None:
                if deadline is not None and time.monotonic() >= deadline:
                    return None
        except BaseException as error:
            self.cancel()
            if isinstance(error, KeyboardInterrupt):
                error.add_note(
                    f"{self.progress().committed} documents are committed in {self._path / self._split}; "
                    f"{SAME_CALL} continues after them"
                )
            raise
        self._end()
        return TreeStore(self._path, self._split)

    def cancel(self) -> None:
        """Ends the build after the current batches, and commits the documents written by then; waits up to 2 s."""
        self._core.cancel()
        deadline = time.monotonic() + INTERRUPT_S
        try:
            # The build ends with the error of the cancellation or with its own error, which `wait` raises
            # again.
            with contextlib.suppress(Exception):
                while self._core.wait(SLICE_S) is None and time.monotonic() < deadline:
                    pass
        finally:
            self._end()

    def _end(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def __repr__(self) -> str:
        progress = self.progress()
        return f"<forebay.cache.CacheBuild: {progress.documents} documents, {100 * progress.part:.0f} % read>"


def watch(handle: CacheBuild, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
    """Displays the progress until the build ends, for any reason."""
    display = Display(sys.stderr if stream is None else stream, now)
    try:
        while handle.wait(REDRAW_S) is None:
            display.draw(lambda _: line(handle))
    finally:
        display.draw(lambda _: line(handle), is_last=True)
        display.close()


def line(handle: CacheBuild) -> str:
    """The progress line: fraction done, speed, time left."""
    progress = handle.progress()
    filled = int(WIDTH * progress.part)
    parts = [
        f"[{'#' * filled + '.' * (WIDTH - filled)}] {progress.finished_shards}/{progress.n_shards} shards",
        f"{progress.documents} documents",
        f"{progress.documents_per_s:.0f} documents/s",
        f"{progress.values_per_s / 1e6:.2f} M values/s",
    ]
    if progress.skipped:
        parts.insert(2, f"{progress.skipped} left out")
    if progress.remaining_s and progress.finished_shards < progress.n_shards:
        parts.append(f"{clock(progress.remaining_s)} left")
    return ", ".join(parts)
