"""Checks of parameters and states: an error lists all problems, as in `Loader`."""

import functools
import inspect
import operator
import os
import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, SupportsIndex, TypeGuard, TypeVar

from forebay._core import ConfigError, StateError, _unknown_keyword

__all__ = [
    "MOST",
    "URL",
    "advised",
    "as_path",
    "as_place",
    "check",
    "check_identity",
    "has",
    "is_count",
    "problems",
    "shown",
    "truth",
    "whole",
    "wrong_type",
]

Made = TypeVar("Made")
Parameters = ParamSpec("Parameters")

_shorten = reprlib.Repr()
_shorten.maxdict = 8
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 200

MOST = 2**31 - 1
"""The upper limit of counts."""

URL = "[a-zA-Z][a-zA-Z0-9]+://"
"""What a URL begins with."""


def advised(path: str, **elsewhere: str) -> Callable[[Callable[Parameters, Made]], Callable[Parameters, Made]]:
    """Decorates a function or an `__init__`: the `TypeError` for an unknown keyword tells what to use, as in `Loader`.

    `path` is the function or class as users import it, `elsewhere` the names that other libraries use: each
    with the parameter's name, or with a text of advice.
    """

    def decorate(function: Callable[Parameters, Made]) -> Callable[Parameters, Made]:
        names = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Made:
            for keyword in kwargs.keys() - names:
                if (advice := elsewhere.get(keyword)) is None:
                    raise _unknown_keyword(path, names, keyword)
                name = path.rpartition(".")[2]
                advice = f"use {advice} instead" if advice in names else advice
                raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'; {advice}")
            return function(*args, **kwargs)

        return checked

    return decorate


def whole(name: str, value: SupportsIndex) -> int:
    """`value` as a whole number; `TypeError` for any other type, bool included."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong_type(name, "an int", value)
    return operator.index(value)


def is_count(value: object, most: int) -> TypeGuard[int]:
    """Whether this entry of a state is a whole number from 0 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def truth(name: str, value: bool) -> bool:
    """`value`; `TypeError` if it is not a bool of Python or numpy, since `"no"` would be true."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise wrong_type(name, "a bool", value)
    return bool(value)


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """`value` as a path; `TypeError` if it is neither a str nor an os.PathLike, `ConfigError` for one with NUL."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, "a path (str or os.PathLike)", value)
    path = Path(value)
    if "\0" in str(path):
        raise ConfigError(f"{name} is {shown(str(path))}, which has a NUL character, as no path may; give another")
    return path


def as_place(name: str, value: str | os.PathLike[str]) -> Path:
    """As `as_path`, for what is written: `ConfigError` for `~` and URLs, which would be folders, and for no name."""
    path = as_path(name, value)
    if not os.fspath(value):
        raise ConfigError(f"{name} is empty; give the path of a folder, or '.' for the current one")
    if isinstance(value, str) and re.match(URL, value):
        raise ConfigError(f"{name} is {shown(value)}, a URL, to which nothing is written; give the path of a folder")
    if path.parts and path.parts[0].startswith("~"):
        raise ConfigError(f"{name} is '{path}', and ~ is not expanded; give the whole path, as by os.path.expanduser")
    return path


def has(name: str, value: object, *attributes: str) -> None:
    """Raises `TypeError` with the attributes that `value` lacks."""
    if missing := [attribute for attribute in attributes if not hasattr(value, attribute)]:
        raise TypeError(f"{name} is of type {type(value).__name__}, which has no {', '.join(missing)}")


def check(**parameters: tuple[SupportsIndex, int, int]) -> None:
    """Raises `ConfigError` with all parameters (value, least, most) that are out of range."""
    if found := problems(**parameters):
        raise ConfigError("; ".join(found))


def problems(**parameters: tuple[SupportsIndex, int, int]) -> list[str]:
    """The problems that `check` would report, for a longer message."""
    return [
        f"{name} is {value}, must be {least} to {most}"
        for name, (value, least, most) in parameters.items()
        if not least <= whole(name, value) <= most
    ]


def check_identity(state: Mapping[str, Any], expected: Mapping[str, Any], whose: str) -> None:
    """Raises `StateError` with all differences between a state and the loader that loads it."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict, not {type(state).__name__}; pass what state_dict() returned")
    different = [
        f"{name} is {shown(state.get(name))} in the state and {mine!r} here"
        for name, mine in expected.items()
        if _differs(state.get(name), mine)
    ]
    if different:
        raise StateError(
            f"the state belongs to another {whose}: {', '.join(different)}; construct the {whose} as it was, or start "
            "without the state"
        )


def _differs(found: object, expected: object) -> bool:
    """Whether the values differ; also True if the comparison fails or gives no bool, as for arrays."""
    try:
        return bool(found != expected)
    except Exception:
        return True


def shown(value: object) -> str:
    """A value of a state for an error message, in a bounded number of characters."""
    text = _shorten.repr(value)
    return text if len(text) <= 500 else f"{text[:497]}..."


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    """The `TypeError` for the value of a parameter."""
    return TypeError(f"{name} is {shown(value)} (type {type(value).__name__}), must be {expected}")
