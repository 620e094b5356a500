"""What `forebay.torch` and `forebay.jax` share: a loader's batches, each made into something else; ranks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress, repeat
from typing import Any, Generic, TypedDict, TypeVar

from forebay._core import DataLoader, Loader, TokenLoader

__all__ = ["Converted", "Ranks", "is_finite", "resumable"]

Item = TypeVar("Item")
Made = TypeVar("Made")


class Ranks(TypedDict):
    """Parameters of a loader."""

    rank: int
    world_size: int


def is_finite(batches: Iterable[Any]) -> bool:
    """Whether they have a length: those of an infinite loader, and of any stream, have none."""
    try:
        len(batches)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


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
