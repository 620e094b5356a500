"""Progress of a command: one line that is overwritten on a terminal, and a line every 10 s elsewhere."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

WIDTH = 30
"""Width of the bar, in characters."""
REDRAW_S = 0.1
"""Least seconds between two drawings on a terminal, except for the last."""
LINE_S = 10.0
"""Least seconds between two lines elsewhere, such as in a pipe or a file, and before the first."""


@dataclass
class Display:
    """Draws a line of progress. Tests pass `now`, the clock."""

    stream: TextIO
    now: Callable[[], float] = time.monotonic
    is_terminal: bool = field(init=False)
    last: float = field(init=False)
    """When the last line was drawn."""

    def __post_init__(self) -> None:
        self.is_terminal = self.stream.isatty()
        self.last = -math.inf if self.is_terminal else self.now()

    def draw(self, line: Callable[[float], str], *, is_last: bool = False) -> None:
        """Draws the line for the current time, unless it is too early; the last line always on a terminal."""
        now = self.now()
        if not (is_last and self.is_terminal) and now - self.last < (REDRAW_S if self.is_terminal else LINE_S):
            return
        self.last = now
        self.stream.write(f"\r{line(now)}\x1b[K" if self.is_terminal else f"{line(now)}\n")
        self.stream.flush()

    def say(self, message: str) -> None:
        """Writes a message on a separate line."""
        self.stream.write(("\r\x1b[K" if self.is_terminal else "") + message + "\n")
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
        filled = WIDTH * self.done // max(self.total, 1)
        seconds = max(now - self.begin, 1e-3)
        rate = (self.done - self.already) / seconds
        parts = [f"[{'#' * filled + '.' * (WIDTH - filled)}] {self.done}/{self.total} {self.unit}"]
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


def clock(seconds: float) -> str:
    """A duration as `1:02:03` or `2:03`."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
