"""Waiting for something that another process does."""

import time
from collections.abc import Callable

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.25


def wait_until(is_so: Callable[[], bool], timeout: float | None) -> bool:
    """Asks, ever more rarely, until it is so; False if it is not after `timeout` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE_S
    while not is_so():
        left = pause if until is None else until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True
