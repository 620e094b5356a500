"""`engine="ray"`: Ray reads and processes shards on all its machines; the calling process writes, in order.

The writer, the order and the backpressure are those of `engine="threads"`. This module has only the reader of
a shard: an actor, which runs the same core. Shards are assigned to actors in turn, so that different shards
are processed at the same time. An actor keeps its shards open, but has no other state: each request names the
batch, and if an actor dies, a new one opens the shard at this batch.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from forebay._core import ForebayError, _ShardWork

ATTEMPTS = 10
"""The number of consecutive actors that may die at one batch before the build fails."""


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
        try:
            import ray
        except ImportError as error:
            raise ImportError('engine="ray" needs Ray: pip install forebay[ray]') from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._actor = ray.remote(max_concurrency=1)(Worker)
        self._arguments = (ray.put(kind), batch_size, on_error)
        self._given = given
        self._lock = threading.Lock()
        self._is_closed = False
        self._actors: list[Any] = [None] * min(n_workers, max(len(given), 1))

    def shards(self) -> list[tuple[str, Callable[[int], Iterator[Any]]]]:
        """For each shard, its name and a function that opens it after a number of batches."""
        return [(self._name(at), self._opener(at)) for at in range(len(self._given))]

    def close(self) -> None:
        """Ends the actors and prevents new ones, since workers that are calling an actor would replace it."""
        with self._lock:
            self._is_closed = True
            for actor in self._actors:
                if actor is not None:
                    self._ray.kill(actor)
            self._actors = [None] * len(self._actors)

    def _name(self, at: int) -> str:
        shard = self._given[at]
        return shard if isinstance(shard, str) else shard[0]

    def _opener(self, at: int) -> Callable[[int], Iterator[Any]]:
        def batches(skip: int) -> Iterator[Any]:
            number = skip
            while (made := self._batch(at, number)) is not None:
                yield made
                number += 1

        return batches

    def _batch(self, at: int, number: int) -> Any:
        place = at % len(self._actors)
        attempt = 0
        while True:
            attempt += 1
            actor = self._living(place)
            try:
                return self._ray.get(actor.batch.remote(self._name(at), [self._given[at]], number))
            except self._ray.exceptions.RayActorError:
                self._bury(place, actor)
                if attempt == ATTEMPTS:
                    raise
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from error

    def _living(self, place: int) -> Any:
        with self._lock:
            if self._is_closed:
                raise ForebayError("the build was ended while a batch was being processed")
            if self._actors[place] is None:
                self._actors[place] = self._actor.remote(*self._arguments)
            return self._actors[place]

    def _bury(self, place: int, actor: Any) -> None:
        with self._lock:
            if self._actors[place] is actor:
                self._actors[place] = None
