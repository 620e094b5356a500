"""Calls that a signal handler interrupts, at each place where Python would run a handler: where a call returns."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Made = TypeVar("Made")


def interrupted(call: Callable[[], Made], at: int, handler: Callable[[], object]) -> tuple[Made, bool]:
    """The result of `call`, and whether `handler` was called: where the `at`-th call within it returns, from 0."""
    left = at

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        if event in ("return", "c_return"):
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
