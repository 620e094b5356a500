"""Progress of commands and loops.

One line that is overwritten on a terminal and in a notebook, and a line every 10 s elsewhere.
"""

import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from forebay._checks import check, has, whole

WIDTH = 30
"""Width of the bar, in characters."""
REDRAW_S = 0.1
"""Least seconds between two drawings on a terminal, except for the last."""
LINE_S = 10.0
"""Least seconds between two lines elsewhere, such as in a pipe or a file, and before the first."""
RECENT_S = 10.0
"""Seconds that the rates of a loop cover."""
MOST_BATCHES = 2**62
"""The most batches of a loop."""


@dataclass
class Display:
    """Draws a line of progress. Tests pass `now`, the clock."""

    stream: TextIO
    now: Callable[[], float] = time.monotonic
    is_terminal: bool = field(init=False)
    """Whether a line can be overwritten."""
    is_notebook: bool = field(init=False)
    """Whether that takes blanks, since the end of a line cannot be cleared."""
    drawn: int = 0
    """The width of the line that was drawn last, in a notebook."""
    last: float = field(init=False)
    """When the last line was drawn."""

    def __post_init__(self) -> None:
        self.is_notebook = type(self.stream).__module__ == "ipykernel.iostream"
        self.is_terminal = self.is_notebook or self.stream.isatty()
        self.last = -math.inf if self.is_terminal else self.now()

    def draw(self, line: Callable[[float], str], *, is_last: bool = False) -> None:
        """Draws the line for the current time, unless it is too early; the last line always on a terminal."""
        now = self.now()
        if not (is_last and self.is_terminal) and now - self.last < (REDRAW_S if self.is_terminal else LINE_S):
            return
        self.last = now
        if self.is_terminal:  # a line that wraps could not be overwritten
            self.stream.write(self.over(line(now)[: self.columns() - 1]))
        else:
            self.stream.write(f"{line(now)}\n")
        self.stream.flush()

    def over(self, line: str) -> str:
        """What overwrites the last line."""
        if not self.is_notebook:
            return f"\r{line}\x1b[K"
        before, self.drawn = self.drawn, len(line)
        return f"\r{line.ljust(before)}"

    def columns(self) -> int:
        """The width of the terminal, or no limit if it cannot be told."""
        if self.is_notebook:  # what it has a terminal for is not where the line is shown
            return sys.maxsize
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or sys.maxsize
        except (OSError, ValueError, AttributeError):
            return sys.maxsize

    def say(self, message: str) -> None:
        """Writes a message on a separate line."""
        if self.is_notebook:
            message, self.drawn = self.over(message), 0
        elif self.is_terminal:
            message = self.over("") + message
        self.stream.write(message + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self.is_terminal:
            self.stream.write("\n")
            self.stream.flush()


@dataclass
class Progress:
    """Counts of finished items, and their display."""

    total: int
    unit: str
    """The name of the items, such as `shards`."""
    stream: TextIO
    already: int = 0
    """Items done by an earlier run: counted in the bar, but not in the rate."""
    now: Callable[[], float] = time.monotonic
    done: int = 0
    n_bytes: int = 0
    errors: int = 0
    started: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.display = Display(self.stream, self.now)
        self.begin = self.display.now() if self.started is None else self.started
        self.done += self.already

    def add(self, *, n_bytes: int = 0, done: int = 0, errors: int = 0) -> None:
        """Adds the items since the last call, and draws them."""
        with self.lock:
            self.n_bytes += n_bytes
            self.done += done
            self.errors += errors
            self.display.draw(self.line, is_last=self.done == self.total)

    def line(self, now: float) -> str:
        """The bar: items done, speed, time left, errors."""
        seconds = max(now - self.begin, 1e-3)
        rate = (self.done - self.already) / seconds
        parts = [f"{bar(self.done, self.total)} {self.unit}"]
        if self.n_bytes:
            parts += [f"{self.n_bytes / 1e6:.0f} MB", f"{self.n_bytes / 1e6 / seconds:.1f} MB/s"]
        else:
            parts += [f"{rate:.1f} {self.unit}/s"]
        if rate and self.done < self.total:
            parts += [f"{clock((self.total - self.done) / rate)} left"]
        if self.errors:
            parts += [f"{self.errors} failed"]
        return ", ".join(parts)

    def say(self, message: str) -> None:
        """Writes a message on a separate line."""
        with self.lock:
            self.display.say(message)

    def close(self) -> None:
        """Ends the bar's line."""
        self.display.close()


@dataclass
class Loop:
    """The display of a loop over a loader. Tests pass `now`, the clock."""

    loader: Any
    total: int | None
    """Batches of the pass; None if it has no end."""
    stream: TextIO
    now: Callable[[], float] = time.monotonic
    done: int = 0
    examples: int = 0
    waited: float = 0.0
    """Seconds in `next()`."""

    def __post_init__(self) -> None:
        self.display = Display(self.stream, self.now)
        self.marks = deque([(self.now(), self.done, 0, 0.0)])
        """Clock, batches, examples and seconds waited, of the last seconds."""

    def add(self, examples: int, waited: float) -> None:
        """Counts a batch and draws the line."""
        self.done += 1
        self.examples += examples
        self.waited += waited
        self.display.draw(self.line)

    def line(self, now: float) -> str:
        """Batches done, and of the last seconds the rate, the share that the loop waited, and what limits it."""
        while len(self.marks) > 1 and now - self.marks[1][0] >= RECENT_S:
            self.marks.popleft()
        begin, done, examples, waited = self.marks[0]
        self.marks.append((now, self.done, self.examples, self.waited))
        seconds = max(now - begin, 1e-6)
        parts = [f"{self.done if self.total is None else bar(self.done, self.total)} batches"]
        parts += [f"{(self.examples - examples) / seconds:.0f} examples/s"]
        parts += [f"waited {min((self.waited - waited) / seconds, 1.0):.0%}"]
        rate = (self.done - done) / seconds
        if self.total is not None and rate and self.done < self.total:
            parts += [f"{clock((self.total - self.done) / rate)} left"]
        verdict = self.loader.stats().get("verdict")
        return ", ".join([*parts, verdict.partition(":")[0]] if verdict else parts)

    def close(self) -> None:
        """Draws the last line, and ends it."""
        if self.done:
            self.display.say(self.line(self.now()))


class Drawn(Iterator[Any]):
    """The batches of a loader, with a line of progress.

    `iter()` begins a pass as the loader's does, `next()` continues it. A loop that is left ends its line, so its
    iterator is not kept here.
    """

    def __init__(self, loader: Any, total: int | None, stream: TextIO) -> None:
        self._loader = loader
        self._total = total
        self._stream = stream
        self._found: Iterator[Any] | None = None
        """The pass."""
        self._drawn: Iterator[Any] | None = None
        """The line of `next()`."""

    def __repr__(self) -> str:
        return f"<batches of {self._loader!r}, with a line of progress>"

    def __iter__(self) -> Iterator[Any]:
        self._drawn = None  # ends its line
        self._found = iter(self._loader)
        return _drawn(self._loader, self._found, self._total, self._stream)

    def __next__(self) -> Any:
        if self._drawn is None:
            drawn = iter(self) if self._found is None else _drawn(self._loader, self._found, self._total, self._stream)
            self._drawn = drawn
        return next(self._drawn)


def batches(loader: Any, total: int | None = None, file: TextIO | None = None) -> Drawn:
    """The batches of a loader, with a line of progress: the method `progress` of the loaders."""
    if total is not None:
        total = whole("total", total)
        check(total=(total, 1, MOST_BATCHES))
    stream = sys.stderr if file is None else file
    has("file", stream, "write", "flush", "isatty")
    return Drawn(loader, total, stream)


def _drawn(loader: Any, found: Iterator[Any], total: int | None, stream: TextIO) -> Iterator[Any]:
    """The batches of a pass, with a line that ends when this iterator does."""
    already = 0
    if total is None:
        try:
            total = len(loader)
        except TypeError:  # it has no end
            pass
        else:
            already = min(loader.batch, total)
    loop = Loop(loader, total, stream, done=already)
    try:
        while True:
            begin = loop.now()
            try:
                batch = next(found)
            except StopIteration:
                return
            loop.add(_rows(batch), loop.now() - begin)
            yield batch
    finally:
        if loop.done > already:
            loop.close()


def _rows(batch: Any) -> int:
    """The number of examples of a batch: a dict of arrays and lists, or a `BatchResult`."""
    return len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch.indices)


def bar(done: int, total: int) -> str:
    """A bar, and what it shows in numbers."""
    filled = WIDTH * min(done, total) // max(total, 1)
    return f"[{'#' * filled + '.' * (WIDTH - filled)}] {done}/{total}"


def clock(seconds: float) -> str:
    """A duration as `1:02:03` or `2:03`."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
