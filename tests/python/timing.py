"""Claims about time, on machines that may halt any thread for as long as they like.

A claim that does not hold means that the loader is slow, which it then is each time, or that the machine was busy,
which passes. So a `timed` test is tried up to five times, until all of its claims hold at once. Their bounds are the
same in each try, and what is not a claim about time must hold in every one.
"""

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

TRIES = 5

P = ParamSpec("P")


class LateError(AssertionError):
    """A claim about time that did not hold."""


def claim(holds: bool, *figures: object) -> None:
    """What the figures should show."""
    if not holds:
        raise LateError(*figures)


def timed(test: Callable[P, None]) -> Callable[P, None]:
    """Tries a test again whose claims about time did not hold, after a while that grows."""

    @functools.wraps(test)
    def tried(*arguments: P.args, **fixtures: P.kwargs) -> None:
        for number in range(1, TRIES):
            try:
                return test(*arguments, **fixtures)
            except LateError:
                time.sleep(0.2 * number)
        return test(*arguments, **fixtures)

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


def eventually(is_so: Callable[..., bool], timeout: float = 20) -> None:
    """Fails if it isn't so in time."""
    until = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


def fresh(folder: Path) -> Path:
    """A new folder in this one, for each try."""
    return Path(tempfile.mkdtemp(dir=folder))
