"""Progress of a command on a terminal: one line that is overwritten, and messages above it."""

import threading
import time
from dataclasses import dataclass, field
from typing import TextIO

WIDTH = 30
"""Width of the bar, in characters."""
REDRAW_S = 0.1
"""Least seconds between two drawings of the bar, except for the last."""


@dataclass
class Progress:
    """Counts of finished items. The bar is for terminals; elsewhere only `say` writes."""

    total: int
    unit: str
    """The name of the items, such as `shards`."""
    stream: TextIO
    already: int = 0
    """Items done by an earlier run: counted in the bar, but not in the rate."""
    shown: bool = False
    done: int = 0
    n_bytes: int = 0
    errors: int = 0
    started: float = field(default_factory=time.monotonic)
    last: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.shown = self.stream.isatty()
        self.done += self.already

    def add(self, *, n_bytes: int = 0, done: int = 0, errors: int = 0) -> None:
        """Adds the items since the last call; redraws the bar at most every `REDRAW_S` seconds."""
        with self.lock:
            self.n_bytes += n_bytes
            self.done += done
            self.errors += errors
            now = time.monotonic()
            if self.shown and (self.done == self.total or now - self.last > REDRAW_S):
                self.last = now
                self.stream.write(f"\r{self.line(now)}\x1b[K")
                self.stream.flush()

    def line(self, now: float) -> str:
        """The bar: items done, speed, time left, errors."""
        filled = WIDTH * self.done // max(self.total, 1)
        seconds = max(now - self.started, 1e-3)
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
            self.stream.write(("\r\x1b[K" if self.shown else "") + message + "\n")
            self.stream.flush()

    def close(self) -> None:
        """Ends the bar's line."""
        if self.shown:
            self.stream.write("\n")


def clock(seconds: float) -> str:
    """A duration as `1:02:03` or `2:03`."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
