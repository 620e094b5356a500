"""Whether parameters are what they must be: errors name them, as those of `Loader` do."""

import operator
import os
from pathlib import Path
from typing import SupportsIndex

from forebay._core import ConfigError

__all__ = ["MOST", "as_path", "check", "has", "truth", "whole"]

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
    problems = [
        f"{name} is {value}, must be {least} to {most}"
        for name, (value, least, most) in parameters.items()
        if not least <= whole(name, value) <= most
    ]
    if problems:
        raise ConfigError("; ".join(problems))


def _wrong(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"argument {name!r}: {expected} is expected, not {type(value).__name__}")
