"""A value that no parameter accepts, and the check that the error names the parameter."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import forebay


class Odd:
    """An object that is no number, text, path or sequence, and is true in a boolean context."""


def parameters(make: Callable[..., object], *but: str) -> list[str]:
    """Names of the parameters of a constructor, except `but`."""
    return [name for name in inspect.signature(make).parameters if name not in but]


def assert_named(make: Callable[..., object], parameter: str, **given: Any) -> None:
    """Checks that the error for a wrong type names the parameter."""
    with pytest.raises((TypeError, forebay.ConfigError), match=rf"\b{parameter}\b"):
        make(**{**given, parameter: Odd()})
