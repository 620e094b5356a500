"""`engine="ray"`: Ray reads and processes shards on all its machines; the calling process writes, in order.

The writer, the order and the backpressure are those of `engine="threads"`. This module has only the reader of
a shard: an actor, which runs the same core. Shards are assigned to actors in turn, so that different shards
are processed at the same time. An actor keeps its shards open, but has no other state: each request names the
batch, and if an actor dies, a new one opens the shard at this batch.
"""

from collections.abc import Callable, Iterator
from typing import Any

from forebay._core import _ShardWork
from forebay._ray import Actors, started


class Worker:
    """An actor that reads and processes batches of some shards."""

    def __init__(self, kind: dict[str, Any], batch_size: int, on_error: str) -> None:
        self._kind = kind
        self._batch_size = batch_size
        self._on_error = on_error
        self._open: dict[str, tuple[int, _ShardWork]] = {}

    def batch(self, name: str, shard: list[Any], number: int) -> Any:
        """Returns a processed batch of a shard and the documents left out of it, or None after the last batch."""
        at, work = self._open.pop(name, (-1, None))
        if work is None or at != number:
            work = _ShardWork(shard, self._kind, number, self._batch_size, self._on_error)
        made = work.next()
        if made is not None:
            self._open[name] = (number + 1, work)
        return made


class RayShards:
    """The shards of a build, read by actors."""

    def __init__(self, given: list[Any], kind: dict[str, Any], batch_size: int, n_workers: int, on_error: str) -> None:
        ray = started('engine="ray"')
        places: list[dict[str, Any]] = [{}] * min(n_workers, max(len(given), 1))
        self._actors = Actors(ray, Worker, (ray.put(kind), batch_size, on_error), places, "the build")
        self._given = given

    def shards(self) -> list[tuple[str, Callable[[int], Iterator[Any]]]]:
        """For each shard, its name and a function that opens it after a number of batches."""
        return [(self._name(at), self._opener(at)) for at in range(len(self._given))]

    def close(self) -> None:
        """Ends the actors and prevents new ones."""
        self._actors.close()

    def _name(self, at: int) -> str:
        shard = self._given[at]
        return shard if isinstance(shard, str) else shard[0]

    def _opener(self, at: int) -> Callable[[int], Iterator[Any]]:
        def batches(skip: int) -> Iterator[Any]:
            place, number = at % len(self._actors), skip
            while (made := self._actors.call(place, "batch", self._name(at), [self._given[at]], number)) is not None:
                yield made
                number += 1

        return batches
