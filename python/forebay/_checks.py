"""Whether parameters and states are what they must be: errors name what is not, as those of `Loader` do."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsIndex

from forebay._core import ConfigError, StateError

__all__ = ["MOST", "as_path", "check", "check_identity", "has", "problems", "truth", "whole"]

MOST = 2**31 - 1
"""Of anything that is counted."""


def whole(name: str, value: SupportsIndex) -> int:
    """The whole number that `value` is; `TypeError` if it is none, as a bool is not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, "a whole number", value)
    return operator.index(value)


def truth(name: str, value: bool) -> bool:
    """`value`; `TypeError` if it is not a bool, of numpy or not: `"no"` is true."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise _wrong(name, "a bool", value)
    return bool(value)


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """`value` as a path; `TypeError` if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise _wrong(name, "a path (str or os.PathLike)", value)
    return Path(value)


def has(name: str, value: object, *attributes: str) -> None:
    """Raises `TypeError` with the attributes that `value` lacks."""
    if missing := [attribute for attribute in attributes if not hasattr(value, attribute)]:
        raise TypeError(f"argument {name!r}: {type(value).__name__} has no {', '.join(missing)}")


def check(**parameters: tuple[SupportsIndex, int, int]) -> None:
    """Raises `ConfigError` with all parameters (value, least, most) that are out of range."""
    if found := problems(**parameters):
        raise ConfigError("; ".join(found))


def problems(**parameters: tuple[SupportsIndex, int, int]) -> list[str]:
    """What `check` would say, for a message that says more."""
    return [
        f"{name} is {value}, must be {least} to {most}"
        for name, (value, least, most) in parameters.items()
        if not least <= whole(name, value) <= most
    ]


def check_identity(state: Mapping[str, Any], expected: Mapping[str, Any], whose: str) -> None:
    """Raises `StateError` with all in which a state differs from what it is to be loaded into."""
    different = [
        f"{name} is {state.get(name)!r} in the state and {mine!r} here"
        for name, mine in expected.items()
        if state.get(name) != mine
    ]
    if different:
        raise StateError(
            f"the state belongs to another {whose}: {', '.join(different)}; make the {whose} as it was, or start anew"
        )


def _wrong(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"argument {name!r}: {expected} is expected, not {type(value).__name__}")
