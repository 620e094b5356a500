"""Sampling: which rows of its files a loader reads, and how often each comes in an epoch.

>>> import forebay.sampling as sampling
>>> sampling.Where("quality", minimum=3) & sampling.Balanced("label", power=-0.5)
Where(column='quality', minimum=3.0) & Balanced(column='label', power=-0.5)

`Loader(files, sampling=Balanced("label"))`. Parts combine by `&`: rows satisfy all of them, and are weighed by the
product of the weights. Objects are frozen dataclasses; each checks its parameters when it is made.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from forebay._checks import wrong_type
from forebay._core import ConfigError, _Sampling
from forebay._part import _Part, part

__all__ = ["AtMost", "Balanced", "Joined", "Subset", "Weighted", "Where"]


def __dir__() -> list[str]:
    return __all__


@part
class _SamplingPart(_Part):
    """What all parts share."""

    _shortens_all = True

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Sampling: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        for field in fields(self):
            given = getattr(self, field.name)
            if isinstance(given, Mapping):
                raise wrong_type(field.name, "a list, an array, or the name of a column", given)
            if isinstance(given, Iterable) and not isinstance(given, str):
                listed = given.tolist() if isinstance(given, np.ndarray) else given
                values = tuple(value.item() if isinstance(value, np.generic) else value for value in listed)
                object.__setattr__(self, field.name, values)
        self._check_by(_Sampling)

    def __and__(self, other: "_SamplingPart") -> "Joined":
        if not isinstance(other, _SamplingPart):
            return NotImplemented
        parts = [each.parts if isinstance(each, Joined) else (each,) for each in (self, other)]
        return Joined((*parts[0], *parts[1]))


@part
class Joined(_SamplingPart):
    """Several parts, as `&` joins them."""

    parts: tuple[_SamplingPart, ...]

    def __post_init__(self) -> None:
        if isinstance(self.parts, _Part) or not isinstance(self.parts, Iterable):
            raise wrong_type("parts", "objects of forebay.sampling", self.parts)
        read = _SamplingPart._read
        parts = tuple(read("parts", part) if isinstance(part, Mapping) else part for part in self.parts)
        object.__setattr__(self, "parts", parts)
        for one in parts:
            if not isinstance(one, _SamplingPart):
                raise wrong_type("parts", "objects of forebay.sampling", one)
        if not parts:
            raise wrong_type("parts", "at least one object of forebay.sampling", parts)
        plan = parts[0]._plan
        for one in parts[1:]:
            plan = plan.joined(one._plan)
        object.__setattr__(self, "_plan", plan)

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))

    def to_dict(self) -> dict[str, Any]:
        """The class as `type`, and the parts."""
        return {"type": "Joined", "parts": [part.to_dict() for part in self.parts]}


@part
class Subset(_SamplingPart):
    """Some rows: a number of them, chosen by `seed` once and for all epochs, or row numbers over all files.

    A larger number with the same seed contains the rows of a smaller one. Orders, ranks and resume are those of a
    dataset with these rows alone; `index` in a batch is still the row over all files. Other rows are not read.
    """

    rows: int | Sequence[int] | NDArray[Any]
    seed: int = 0


@part
class Where(_SamplingPart):
    """The rows whose `column` satisfies all conditions that are given; other rows are not read.

    `values`: the value, or an item of a list, is one of these (text or whole numbers; of a column with class names,
    names or numbers). `exclude`: neither the value nor an item of a list is one of these, as for a split by recorder:
    `Where("recorder", values=["AM01"])` and `Where("recorder", exclude=["AM01"])`; a null is kept. `minimum`,
    `maximum`: limits of a number, which they include. `is_null`: whether the value is null. With `values`, `minimum` or
    `maximum` a null is left out.
    """

    column: str
    _: KW_ONLY
    values: Sequence[str | int] | None = None
    exclude: Sequence[str | int] | None = None
    minimum: float | None = None
    maximum: float | None = None
    is_null: bool | None = None

    def __post_init__(self) -> None:
        for name in ("values", "exclude"):
            if isinstance(given := getattr(self, name), str | int):
                raise wrong_type(name, f"a list of text or whole numbers, such as [{given!r}]", given)
        self._convert_numbers()
        for name in ("minimum", "maximum"):
            limit = getattr(self, name)
            if isinstance(limit, int) and not isinstance(limit, bool):
                object.__setattr__(self, name, float(limit))
            if isinstance(limit, float) and not isfinite(limit):
                raise ConfigError(f"{name} is {limit}, must be finite; leave it out for no limit")
        super().__post_init__()


@part
class AtMost(_SamplingPart):
    """At most `n` rows of each value of `column`, such as a class, a site or a recordist, chosen by `seed`.

    They are the same in all epochs. Nulls are a group. Lists are equal if their items are. Other parts apply first.
    """

    n: int
    column: str
    seed: int = 0


@part
class Weighted(_SamplingPart):
    """Rows come as often as their weights say: a column of numbers, or a number for each row of the files.

    In an epoch of `epoch_size` examples (None: as many as there are rows) a row of weight w comes
    `epoch_size * w / sum of weights` times, rounded down or up, in every epoch; so equal weights give each row once.
    Rows of weight 0 are not read. The order, ranks and resume are as exact as without weights.
    """

    weights: str | Sequence[float] | NDArray[Any]
    _: KW_ONLY
    epoch_size: int | None = None


@part
class Balanced(_SamplingPart):
    """Rows of rare classes come more often; `column` has a class or a list of them (text, numbers, class names).

    A class of n rows has the weight `(n + offset) ** power`: with -1 all classes come equally often, with -0.5 a class
    that has 100 times the rows comes 10 times as often. A row of several classes has the sum, the highest or the mean
    of their weights (`labels`); rows without a class are one more class. `separator` splits a text into names. `cap`:
    the most times that a row comes in an epoch, on average; the heaviest rows are lowered to it. `epoch_size` as in
    `Weighted`.
    """

    column: str = "label"
    power: float = -1.0
    _: KW_ONLY
    offset: float = 0.0
    cap: float | None = None
    labels: Literal["sum", "max", "mean"] = "max"
    separator: str | None = None
    epoch_size: int | None = None
