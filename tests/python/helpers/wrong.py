"""A value that is of no parameter's type, and what must be said of it."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import forebay


class Odd:
    """No number, no text, no path, no sequence; true, as most things are."""


def parameters(make: Callable[..., object], *but: str) -> list[str]:
    """Names of the parameters of a constructor."""
    return [name for name in inspect.signature(make).parameters if name not in but]


def assert_named(make: Callable[..., object], parameter: str, **given: Any) -> None:
    """An error says which parameter is wrong."""
    with pytest.raises((TypeError, forebay.ConfigError), match=rf"\b{parameter}\b"):
        make(**{**given, parameter: Odd()})
