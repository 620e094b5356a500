"""Calls that a signal handler interrupts, at each place where Python would run a handler: where a call returns.

Only in forebay's functions: those of `threading` hold a lock while they start or join a thread, so a handler that
does the same there would wait for itself.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Made = TypeVar("Made")


def interrupted(call: Callable[[], Made], at: int, handler: Callable[[], object]) -> tuple[Made, bool]:
    """The result of `call`, and whether `handler` was called: where the `at`-th call within it returns, from 0."""
    left = at

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        if event not in ("return", "c_return"):
            return
        place = frame.f_back if event == "return" else frame
        if place and str(place.f_globals.get("__name__")).startswith("forebay."):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                handler()

    sys.setprofile(profile)
    try:
        made = call()
    finally:
        sys.setprofile(None)
    return made, left < 0
