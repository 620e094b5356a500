"""What the objects of a recipe share: features, targets, crops, sampling, tables."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform, overload

import numpy as np

from forebay._checks import advised, shown, wrong_type
from forebay._core import ConfigError

_Class = TypeVar("_Class", bound=type)

_ELSEWHERE = {
    "delimiter": "separator",
    "fmax": "f_max",
    "fmin": "f_min",
    "fs": "sample_rate",
    "hop": "step",
    "num_classes": "classes",
    "overlap": "step",
    "probability": "p",
    "sampling_rate": "sample_rate",
    "sep": "separator",
    "sr": "sample_rate",
    "stride": "step",
}
"""Names of other libraries for parameters of the parts."""


@overload
def part(cls: _Class, /) -> _Class: ...
@overload
def part(*, kw_only: bool) -> Callable[[_Class], _Class]: ...
@dataclass_transform(frozen_default=True)
def part(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Makes a frozen dataclass, which advises on unknown keywords as `Loader` does."""

    def decorate(cls: Any) -> Any:
        made: Any = dataclass(frozen=True, repr=False, kw_only=kw_only)(cls)
        names = {field.name for field in fields(made)}
        elsewhere = {other: name for other, name in _ELSEWHERE.items() if name in names} | made._elsewhere
        made.__init__ = advised(f"{made.__module__}.{made.__name__}", **elsewhere)(made.__init__)
        return made

    return decorate if cls is None else decorate(cls)


MOST_SHOWN = 20
"""The most values of a tuple that are printed, but for the first three of more."""


def _first(values: tuple[Any, ...]) -> str:
    """The first values, and how many there are."""
    return f"({', '.join(map(repr, values[:3]))}, ... {len(values)} in all)"


class _Part:
    """An object of a recipe: prints as the call that makes it, and converts to JSON and back."""

    _classes: ClassVar[dict[str, type["_Part"]]] = {}
    _elsewhere: ClassVar[dict[str, str]] = {}
    """Advice for keywords that other classes or libraries have."""
    _newer: ClassVar[tuple[str, ...]] = ()
    """Values that `to_dict` leaves out where they are the default: states that are older than these have none."""
    _shortens_all: ClassVar[bool] = False
    """Whether it prints the first of many values of any kind; of rows it always does."""

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            _Part._classes[cls.__name__] = cls

    def _convert_numbers(self) -> None:
        """Makes Python numbers of numpy's, which JSON does not have."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, field.name, value.item())

    def _check_by(self, make: Callable[[str, dict[str, Any]], Any]) -> None:
        """Has the core check the values: `make` makes the core's object of the class's name and the values."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        object.__setattr__(self, "_plan", make(type(self).__name__, given))

    def __repr__(self) -> str:
        """The call, with the values that are not the default; of many rows the first ones."""
        given = (
            f"{field.name}={self._shown(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.default is MISSING or getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def _shown(self, value: Any) -> str:
        is_long = isinstance(value, tuple) and len(value) > MOST_SHOWN
        is_shortened = is_long and (self._shortens_all or isinstance(value[0], tuple))
        return _first(value) if is_shortened else repr(value)

    def to_dict(self) -> dict[str, Any]:
        """The class as `type`, and each value as JSON has it."""
        found: dict[str, Any] = {"type": type(self).__name__}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name in self._newer and value == field.default:
                continue
            found[field.name] = value.to_dict() if isinstance(value, _Part) else value
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # By the class, so that a new process imports its module.
        return type(self).from_dict, (self.to_dict(),)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The object that `to_dict` described; missing values are the default.

        Raises `ConfigError` for an unknown type or name, and as the class does.
        """
        return cls._read("values", values)

    @classmethod
    def _names(cls) -> list[str]:
        """The classes of this kind."""
        return [name for name, known in _Part._classes.items() if issubclass(known, cls)]

    @classmethod
    def _read(cls, name: str, values: Mapping[str, Any]) -> Self:
        """As `from_dict`, for the value of the parameter `name`."""
        if not isinstance(values, Mapping):
            raise wrong_type(name, "a dict, as to_dict() returns it", values)
        given = dict(values)
        kind = given.pop("type", cls.__name__)
        if not isinstance(kind, str):
            raise wrong_type(f"type in {name}", f"one of {', '.join(cls._names())}", kind)
        if kind not in cls._names():
            found = f"{name} has no type" if "type" not in values else f"type is {shown(kind)}"
            raise ConfigError(f"{found}, must be one of {', '.join(cls._names())}")
        known = {field.name: field.default is MISSING for field in fields(_Part._classes[kind])}  # type: ignore[arg-type]
        unknown = [shown(key) for key in given if key not in known]
        missing = [key for key, is_needed in known.items() if is_needed and key not in given]
        if unknown or missing:
            found = f"has no {', '.join(unknown)}" if unknown else f"lacks {', '.join(missing)}"
            raise ConfigError(f"{kind} {found}; its parameters are {', '.join(known) or 'none'}")
        for key, step in NESTED.items():
            if isinstance(part := given.get(key), Mapping):
                given[key] = step._read(key, part)
            elif isinstance(part, list | tuple):
                given[key] = [step._read(key, one) if isinstance(one, Mapping) else one for one in part]
        made: Self = _Part._classes[kind](**given)  # type: ignore[assignment]
        return made


NESTED: dict[str, type[_Part]] = {}
"""The parameters whose values are parts themselves, or lists of them, and the kind of these."""


def made(values: Mapping[str, Any]) -> _Part:
    """The part of any kind that `to_dict` described."""
    return _Part.from_dict(values)
