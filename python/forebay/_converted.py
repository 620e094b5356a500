"""Code shared by `forebay.torch` and `forebay.jax`: conversion of a loader's batches; ranks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import compress, repeat
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay._core import LoaderBase

__all__ = ["Converted", "Pass", "Ranks", "bfloat16_fields", "check_loader", "is_finite", "resumable", "side_by_side"]

Item = TypeVar("Item")
Made = TypeVar("Made")


class Ranks(TypedDict):
    """The parameters `rank` and `world_size` of a loader."""

    rank: int
    world_size: int


def check_loader(loader: object) -> None:
    """Raises `TypeError` if the object is not a loader of forebay."""
    if not isinstance(loader, LoaderBase):
        raise TypeError(
            "argument 'loader': a forebay.Loader, forebay.TokenLoader or forebay.cache.DataLoader is expected, not "
            f"{type(loader).__name__}"
        )


def is_finite(batches: Iterable[Any]) -> bool:
    """Whether the batches have a length; an infinite loader or a stream has none."""
    try:
        len(batches)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def side_by_side(inputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    """Both as one array `[2, *shape]`: a view for a batch of `TokenLoader`, where targets follow inputs in memory.

    Arrays with another layout are copied.
    """
    begin, behind = (array.__array_interface__["data"][0] for array in (inputs, targets))
    follows = behind == begin + inputs.nbytes and inputs.flags.c_contiguous and targets.flags.c_contiguous
    if not follows or inputs.shape != targets.shape or inputs.dtype != targets.dtype:
        return np.stack([inputs, targets])
    return np.lib.stride_tricks.as_strided(inputs, (2, *inputs.shape), (inputs.nbytes, *inputs.strides))


def bfloat16_fields(loader: object) -> Collection[str]:
    """The names of a loader's bfloat16 fields, which are uint16 arrays, since numpy has no such type."""
    fields: Collection[str] = getattr(loader, "_bfloat16_fields", ())
    return fields


def resumable(batches: Iterable[Item]) -> Iterator[Item]:
    """An iterator for a `for` loop that is left and continued; the loader's `iter()` would begin the next pass.

    For a loop and not `next()`, since Ctrl-C between `next()` and the assignment would lose a batch. Calls
    only C functions.
    """
    return compress(batches, repeat(True))


class Pass(Iterator[Made], Generic[Made]):
    """The batches of a loader from `iter(loader)` on, converted by `convert`.

    If the conversion is interrupted or fails, the loader takes the batch back: this iterator, and a state
    taken now, continue with this batch.
    """

    def __init__(self, convert: Callable[[Mapping[str, Any]], Made], loader: LoaderBase) -> None:
        self._convert = convert
        self._loader = loader
        self._batches = resumable(loader)

    def __repr__(self) -> str:
        return f"<batches of {self._loader!r}>"

    def __next__(self) -> Made:
        for batch in self._batches:
            try:
                return self._convert(batch)
            except BaseException:
                self._loader._take_back()
                raise
        raise StopIteration


class Converted(Iterator[Made], Generic[Made]):
    """A loader whose batches are converted: `iter()` begins a pass as the loader's does, `next()` continues it."""

    def __init__(self, convert: Callable[[Mapping[str, Any]], Made], loader: LoaderBase) -> None:
        self._convert = convert
        self._loader = loader
        self._pass: Pass[Made] | None = None

    def __repr__(self) -> str:
        return f"<batches of {self._loader!r}>"

    def __iter__(self) -> Pass[Made]:
        self._pass = Pass(self._convert, self._loader)
        return self._pass

    def __next__(self) -> Made:
        for made in iter(self) if self._pass is None else self._pass:
            return made  # Ctrl-C cannot come between the loop and this
        raise StopIteration
