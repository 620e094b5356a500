"""Claims about time, on machines that may halt any thread for as long as they like.

A claim that does not hold means that the loader is slow, which it then is each time, or that the machine was
busy with something else. So a `timed` test is tried several times, until all of its claims hold at once.
Their bounds are the same in each try, and what is not a claim about time must hold in every one. A try counts
against the test if other processes left the machine alone meanwhile: where they never do, nobody can tell,
and the test says so and is skipped.
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
"""How many undisturbed tries a claim may fail in; of all together there are twice as many at most."""

P = ParamSpec("P")


class LateError(AssertionError):
    """A claim about time that did not hold."""


def claim(holds: bool, *figures: object) -> None:
    """What the figures should show."""
    if not holds:
        raise LateError(*figures)


class Others:
    """What other processes, or other guests of the host, work while this one and its children do something."""

    def __init__(self) -> None:
        self.begin, self.before = time.monotonic(), self.seconds()

    @staticmethod
    def seconds() -> float:
        """Processor time of all others so far; 0 where nobody tells."""
        try:
            [_, *ticks] = Path("/proc/stat").read_text().splitlines()[0].split()
        except OSError:
            return 0.0
        user, nice, system, _idle, _iowait, irq, softirq, stolen, *_ = map(int, ticks)
        busy = (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4])

    def cores(self) -> float:
        """How many cores they took on average; the clock of the kernel is a coarse one."""
        seconds = self.seconds() - self.before - 0.05
        return seconds / max(time.monotonic() - self.begin, 0.01)

    def disturb(self) -> bool:
        """Whether times say little."""
        return self.cores() > 0.2


def timed(test: Callable[P, None]) -> Callable[P, None]:
    """Tries a test again whose claims about time did not hold, after a while that grows."""

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
    """Names and numbers of the threads that are ours, or that ours started; one that was joined stays a moment more."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            name = (task / "comm").read_text().strip()
            if name.startswith("forebay"):
                found.add(f"{name} {task.name}")
    return found


def eventually(is_so: Callable[..., bool], timeout: float = 120) -> None:
    """Fails if it isn't so in time: patience, and no claim."""
    until = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def fresh(folder: Path) -> Path:
    """A new folder in this one, for each try."""
    return Path(tempfile.mkdtemp(dir=folder))
