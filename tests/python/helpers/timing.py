"""Claims about time, for machines on which any thread may be descheduled for any length of time.

A claim fails if the loader is slow, which then repeats, or if the machine was busy with other processes. So a
`timed` test is tried until all its claims hold in one try. The bounds are the same in each try, and assertions
other than claims must hold in every try. A failed try counts if other processes used little of the machine
meanwhile. If too few tries count, the test is skipped with a message.
"""

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import pytest

TRIES = 5
"""The number of undisturbed tries after which a failed claim fails the test; the limit of all tries is twice this."""

P = ParamSpec("P")


class LateError(AssertionError):
    """A claim about time that did not hold."""


def claim(holds: bool, *figures: object) -> None:
    """Raises `LateError` with the figures if the claim does not hold."""
    if not holds:
        raise LateError(*figures)


class Others:
    """Measures the processor time of other processes and other guests of the host since construction."""

    def __init__(self) -> None:
        self.begin, self.before = time.monotonic(), self.seconds()

    @staticmethod
    def seconds() -> float:
        """Processor time of all others since boot; 0 without /proc/stat."""
        try:
            [_, *ticks] = Path("/proc/stat").read_text().splitlines()[0].split()
        except OSError:
            return 0.0
        user, nice, system, _idle, _iowait, irq, softirq, stolen, *_ = map(int, ticks)
        busy = (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4])

    def cores(self) -> float:
        """The mean number of cores used by others, less 0.05 s for the coarse clock of /proc/stat."""
        seconds = self.seconds() - self.before - 0.05
        return seconds / max(time.monotonic() - self.begin, 0.01)

    def disturb(self) -> bool:
        """Whether the others used too much for a claim about time."""
        return self.cores() > 0.2


def timed(test: Callable[P, None]) -> Callable[P, None]:
    """Repeats a test whose claims about time did not hold, with growing pauses."""

    @functools.wraps(test)
    def tried(*arguments: P.args, **fixtures: P.kwargs) -> None:
        n_counted, most = 0, 0.0
        for number in range(2 * TRIES):
            others = Others()
            try:
                return test(*arguments, **fixtures)
            except LateError as late:
                n_counted += not others.disturb()
                most = max(most, others.cores())
                if n_counted == TRIES:
                    raise
                figures = f"{late}"
            time.sleep(0.1 * min(number, TRIES))
        pytest.skip(f"a claim about time cannot be judged: other processes took up to {most:.1f} cores. {figures}")

    return tried


def native_threads() -> set[str]:
    """Names and ids of the threads of forebay and of their children; a joined thread may remain for a moment."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            name = (task / "comm").read_text().strip()
            if name.startswith("forebay"):
                found.add(f"{name} {task.name}")
    return found


def eventually(is_so: Callable[..., bool], timeout: float = 120) -> None:
    """Waits until a condition holds; fails after a generous `timeout`, which is no claim about time."""
    until = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def fresh(folder: Path) -> Path:
    """A new subfolder, so that each try has its own."""
    return Path(tempfile.mkdtemp(dir=folder))
