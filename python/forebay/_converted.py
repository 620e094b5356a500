"""What `forebay.torch` and `forebay.jax` share: a loader's batches, each made into something else; ranks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import compress, repeat
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay._core import DataLoader, Loader, TokenLoader

__all__ = ["Converted", "Ranks", "bfloat16_fields", "check_loader", "is_finite", "resumable", "side_by_side"]

Item = TypeVar("Item")
Made = TypeVar("Made")


class Ranks(TypedDict):
    """Parameters of a loader."""

    rank: int
    world_size: int


def check_loader(loader: object) -> None:
    """Raises `TypeError` if this is no loader of forebay."""
    if not isinstance(loader, Loader | TokenLoader | DataLoader):
        raise TypeError(
            "argument 'loader': a forebay.Loader, forebay.TokenLoader or forebay.cache.DataLoader is expected, not "
            f"{type(loader).__name__}"
        )


def is_finite(batches: Iterable[Any]) -> bool:
    """Whether they have a length: those of an infinite loader, and of any stream, have none."""
    try:
        len(batches)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def side_by_side(inputs: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    """Both as one array `[2, *shape]`: the memory that a `TokenLoader` gave them, in which one follows the other.

    What does not lie like that is copied.
    """
    begin, behind = (array.__array_interface__["data"][0] for array in (inputs, targets))
    follows = behind == begin + inputs.nbytes and inputs.flags.c_contiguous and targets.flags.c_contiguous
    if not follows or inputs.shape != targets.shape or inputs.dtype != targets.dtype:
        return np.stack([inputs, targets])
    return np.lib.stride_tricks.as_strided(inputs, (2, *inputs.shape), (inputs.nbytes, *inputs.strides))


def bfloat16_fields(loader: object) -> Collection[str]:
    """The fields that are bfloat16, of which numpy knows nothing, in the batches of a loader: they come as uint16."""
    fields: Collection[str] = getattr(loader, "_bfloat16_fields", ())
    return fields


def resumable(batches: Iterable[Item]) -> Iterator[Item]:
    """The batches, for a `for` that is left and gone on with: a loader's own `iter()` would begin the pass again.

    A loop and not `next()`, after which Ctrl-C can come before the assignment; and nothing but C inside.
    """
    return compress(batches, repeat(True))


class Converted(Iterator[Made], Generic[Made]):
    """Batches of a loader through `convert`.

    If that is interrupted, or fails, the loader takes back the batch that nobody got: neither the loop that comes next
    nor `state_dict()` is behind it.
    """

    def __init__(self, convert: Callable[[Mapping[str, Any]], Made], loader: Loader | TokenLoader | DataLoader) -> None:
        self._convert = convert
        self._loader = loader
        self._batches = resumable(loader)

    def __next__(self) -> Made:
        for batch in self._batches:
            try:
                return self._convert(batch)
            except BaseException:
                self._loader._take_back()
                raise
        raise StopIteration
