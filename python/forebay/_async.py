"""Batches made ahead by a pipeline of the user's own, on Python threads, and handed over in schedule order.

Whoever iterates orders batches, `buffers_ahead` beyond the one in hand; workers make them, each as soon as it can; an
order carries its batch back, so that batches come as they were ordered. Threads share nothing but queues whose
operations are atomic, and attributes that are set once: there is no lock that Ctrl-C could leave locked, or that
garbage collection at an odd moment could wait for. Workers know neither loader nor iterator, so that dropping these
ends them.
"""

import logging
import math
import operator
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from forebay._buffers import MOST, FieldMemory, check
from forebay._core import ForebayError, StateError, _permutation

__all__ = ["AsyncDataLoader", "BatchResult"]

_log = logging.getLogger("forebay")

# How long close() waits for threads; one that is still in the pipeline then ends with that call.
_JOIN_S = 0.5


class BatchResult(NamedTuple):
    """A batch, yours to keep and to change: its memory is used again when nothing refers to it any more."""

    data: dict[str, NDArray[Any]]
    """By field, `[rows, *shape]`."""

    indices: NDArray[np.int64]
    """The rows of the reader, `[rows]`."""

    buffer_id: int
    """Batch number modulo `buffers_ahead`: no two batches that are made at the same time have the same."""


class Reader(Protocol):
    """What `AsyncDataLoader` reads from; metadata and storage state go to the pipeline as they are."""

    def __len__(self) -> int: ...
    @property
    def metadata(self) -> Any: ...
    @property
    def storage_state(self) -> Any: ...


class Pipeline(Protocol):
    """What makes a batch: fills `buffers`, an array `[len(indices), *shape]` per field, from the rows `indices`.

    It is called from several threads at once. Arrays hold anything before; what it returns is ignored.
    """

    @property
    def output_specs(self) -> Mapping[str, tuple[Sequence[int], DTypeLike]]:
        """By field, shape and type of one row."""

    def __call__(
        self, indices: NDArray[np.int64], metadata: Any, storage_state: Any, buffers: Mapping[str, NDArray[Any]], /
    ) -> object: ...


class AsyncDataLoader:
    """Batches that a pipeline of your own makes ahead, on threads: Python, NumPy, or Numba code that releases the GIL.

    `dataset_reader` has a length, `metadata` and `storage_state`. `pipeline` has `output_specs`, a dict of field to
    `(shape, dtype)` of one row, and is called as `pipeline(indices, metadata, storage_state, buffers)`, from several
    threads at once, to fill `buffers[field]`, an array `[len(indices), *shape]`.

    Each `iter()` is a pass: the next one, or the same again if it was left early. Its order is a function of
    `(seed, epoch)`, that of `Loader(order="global")`. The last batch may be shorter. Arrays are yours to keep and to
    change; their memory is used again when nothing refers to it.

    What the pipeline raises, `next()` raises in its place, with a note that names batch and indices, and the pass is
    over. `state_dict()` stands for what was returned. Threads end with the pass, when its iterator is dropped, or by
    `close()`; what the pipeline is doing then, they finish.

    Parameters
    ----------
    batch_size : int
        Rows of a batch.
    num_workers : int
        Threads; of which `buffers_ahead` at most have something to do.
    buffers_ahead : int
        Batches beyond the one in hand, ready or being made: that many are in memory, beside those that you keep.
    shuffle : bool
        A new permutation of all rows each epoch; else rows as they are.
    seed : int
        What the order comes from, 0 to 2**64 - 1.

    """

    def __init__(
        self,
        dataset_reader: Reader,
        pipeline: Pipeline,
        batch_size: int,
        num_workers: int = 4,
        buffers_ahead: int = 3,
        shuffle: bool = True,
        seed: int = 42,
    ) -> None:
        check(
            batch_size=(batch_size, 1, MOST),
            num_workers=(num_workers, 1, MOST),
            buffers_ahead=(buffers_ahead, 1, MOST),
            seed=(seed, 0, 2**64 - 1),
        )
        self._reader = dataset_reader
        self._pipeline = pipeline
        self._num_workers = operator.index(num_workers)
        self._buffers_ahead = operator.index(buffers_ahead)
        self._schedule = _Schedule(
            len(dataset_reader), operator.index(batch_size), operator.index(seed) if shuffle else None
        )
        self._seed = operator.index(seed)
        self._fields = {
            name: FieldMemory(name, self._schedule.batch_size, shape, dtype, self._buffers_ahead + 2)
            for name, (shape, dtype) in pipeline.output_specs.items()
        }
        self._position = (0, 0)  # epoch and batch that come next
        self._goes_on = False  # the next pass begins there, and not with batch 0
        self._workers: _Workers | None = None
        self._counts = (0, 0.0, 0.0)
        self._closed = False

    def __len__(self) -> int:
        """Batches of a pass."""
        return self._schedule.n_batches

    def __iter__(self) -> Iterator[BatchResult]:
        """Begins a pass; an iterator of this loader that was there before is over."""
        if self._closed:
            raise ForebayError("this loader is closed")
        self._leave()
        epoch, batch = self._position
        return _Batches(self, epoch, batch if self._goes_on else 0)

    @property
    def epoch(self) -> int:
        """The pass of the next batch, counted from 0."""
        return self._position[0]

    @property
    def batch(self) -> int:
        """The number of the next batch in its pass."""
        return self._position[1]

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closed

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass that the next `iter()` begins; one that runs is over."""
        check(epoch=(epoch, 0, 2**62))
        self._leave()
        self._position, self._goes_on = (operator.index(epoch), 0), False

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, as a dict that JSON can hold: after what was returned, not what was made ahead."""
        epoch, batch = self._position
        return {"version": 1, "kind": "forebay.AsyncDataLoader", "epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `iter()` goes on where the loader of `state` stood, with any `num_workers` and `buffers_ahead`."""
        expected = {"version": 1, "kind": "forebay.AsyncDataLoader", **self._identity()}
        found = {name: state.get(name) for name in expected}
        if found != expected:
            differences = [
                f"{name} is {found[name]}, here {mine}" for name, mine in expected.items() if found[name] != mine
            ]
            raise StateError("the state is not one of this loader: " + "; ".join(differences))
        epoch, batch = state.get("epoch"), state.get("batch")
        if not (isinstance(epoch, int) and isinstance(batch, int) and epoch >= 0 and 0 <= batch < max(len(self), 1)):
            raise StateError(f"the state stands at epoch {epoch}, batch {batch}; a pass has {len(self)} batches")
        self._leave()
        self._position, self._goes_on = (epoch, batch), True

    def stats(self) -> dict[str, float]:
        """Sums: `batches` returned, `ready_s` that they had lain ready, `starved_s` that `next()` took."""
        batches, ready_s, starved_s = self._counts
        return {"batches": batches, "ready_s": ready_s, "starved_s": starved_s}

    def close(self) -> None:
        """Ends all threads, and waits for them a moment; a `next()` in another thread raises `ForebayError`."""
        self._closed = True
        if workers := self._leave():
            workers.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            type(self),
            batch_size=self._schedule.batch_size,
            num_workers=self._num_workers,
            buffers_ahead=self._buffers_ahead,
            shuffle=self._schedule.seed is not None,
            seed=self._seed,
        )
        return make, (self._reader, self._pipeline), self.state_dict()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    def __repr__(self) -> str:
        n_rows, batch_size, _ = self._schedule
        return f"<forebay.AsyncDataLoader: {n_rows} rows, batches of {batch_size}{', closed' if self._closed else ''}>"

    def _identity(self) -> dict[str, Any]:
        n_rows, batch_size, seed = self._schedule
        return {"num_records": n_rows, "batch_size": batch_size, "shuffle": seed is not None, "seed": self._seed}

    def _leave(self) -> "_Workers | None":
        """Stops the pass that runs, without waiting for it."""
        workers, self._workers = self._workers, None
        if workers:
            workers.stop()
        return workers


class _Batches(Iterator[BatchResult]):
    """The batches of one pass, for one thread; dropping it ends the pass."""

    def __init__(self, loader: AsyncDataLoader, epoch: int, first: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._next = first
        self._end = len(loader)
        self._ahead = loader._buffers_ahead
        self._over = False
        reader = loader._reader
        make = _Recipe(
            pipeline=loader._pipeline,
            metadata=reader.metadata,
            storage_state=reader.storage_state,
            schedule=loader._schedule,
            epoch=epoch,
            fields=loader._fields,
            n_buffers=self._ahead,
        ).make
        self._workers = _Workers(make, min(loader._num_workers, self._ahead, self._end - first))
        loader._workers, loader._position = self._workers, (epoch, first)
        self._workers.start()
        self._workers.order(range(first, min(first + self._ahead, self._end)))

    def __next__(self) -> BatchResult:
        loader, workers, number = self._loader, self._workers, self._next
        asked = time.perf_counter()
        if self._over:
            raise StopIteration
        if workers.is_forked():
            raise ForebayError("this pass began before a fork, and its threads stayed in the parent; call iter() anew")
        if number == self._end:
            self._over = True
            workers.stop()
            workers.join()
            raise StopIteration
        order = workers.wait_for(number)
        made = order.made
        if made is None or workers.stopped:
            why = "is closed" if loader.closed else "began another one, or was set"
            raise ForebayError(f"this pass is over: the loader {why}")
        if isinstance(made, BaseException):
            workers.stop()
            workers.join()
            self._over = True
            try:
                raise made
            finally:
                order.made = made = None  # or it would keep itself, by way of its traceback and this frame
        workers.order(range(number + 1, min(number + 1 + self._ahead, self._end)))
        batches, ready_s, starved_s = loader._counts
        got = time.perf_counter()
        counts = (batches + 1, ready_s + got - order.made_at, starved_s + got - asked)
        after = (self._epoch, number + 1) if number + 1 < self._end else (self._epoch + 1, 0)

        # Ctrl-C is raised where a call returns. From here on there is none: a batch is handed over, or still there.
        order.made = None
        loader._counts, loader._position, loader._goes_on = counts, after, False
        self._next = number + 1
        return made

    def __del__(self) -> None:
        # Without waiting: whoever drops the last reference, if not the collector, wants to go on.
        if hasattr(self, "_workers"):
            self._workers.stop()


class _Order:
    """A batch that was asked for. `made` becomes what `next()` returns or raises, and then the bell rings."""

    __slots__ = ("bell", "made", "made_at", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.made: BatchResult | BaseException | None = None
        self.made_at = 0.0
        self.bell: SimpleQueue[None] = SimpleQueue()


class _Workers:
    """Threads that make what is ordered; `order` and `wait_for` are for one thread, the others for any."""

    def __init__(self, make: Callable[[int], BatchResult], n_threads: int) -> None:
        self.stopped = False
        self._make = make
        self._process = os.getpid()
        self._orders: deque[_Order] = deque()  # those not taken yet, and the last that was
        self._work: SimpleQueue[_Order | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"forebay-async-{i}", daemon=False) for i in range(n_threads)
        ]

    def start(self) -> None:
        _live.add(self)
        for thread in self._threads:
            thread.start()

    def order(self, numbers: range) -> None:
        """Orders those of consecutive batches that are not ordered yet."""
        for number in numbers:
            if not self._orders or self._orders[-1].number < number:
                order = _Order(number)
                # In this order: after Ctrl-C in between, the batch is made twice and not never.
                self._work.put(order)
                self._orders.append(order)

    def wait_for(self, number: int) -> _Order:
        """The order of a batch, once that is made or the threads were told to end."""
        while self._orders[0].number < number:
            self._orders.popleft()
        order = self._orders[0]
        while order.made is None and not self.stopped:
            order.bell.get()
        return order

    def stop(self) -> None:
        """Tells the threads to end, after the batch that each makes. Never waits, and may be called at any moment."""
        if self.is_forked():
            return
        self.stopped = True
        for _ in self._threads:
            self._work.put(None)
        for order in tuple(self._orders):
            order.bell.put(None)

    def join(self) -> None:
        """Waits for the threads, a moment."""
        if self.is_forked():
            return
        until = time.monotonic() + _JOIN_S
        others = [thread for thread in self._threads if thread is not threading.current_thread() and thread.ident]
        for thread in others:
            thread.join(max(until - time.monotonic(), 0))
        if late := sum(thread.is_alive() for thread in others):
            _log.warning("%d threads are still in the pipeline after %s s; they end with that call", late, _JOIN_S)

    def is_forked(self) -> bool:
        """Whether this is a child of the process that has the threads."""
        return os.getpid() != self._process

    def _run(self) -> None:
        while (order := self._work.get()) and not self.stopped:
            made: BatchResult | BaseException
            try:
                made = self._make(order.number)
            except BaseException as error:
                made = error
            order.made_at = time.perf_counter()
            order.made = made
            order.bell.put(None)
            del order, made  # what was taken is not kept while there is no work
        del self  # or an error that nobody took would keep itself, by way of this frame


_live: "weakref.WeakSet[_Workers]" = weakref.WeakSet()


def _stop_all() -> None:
    for workers in list(_live):
        workers.stop()


# As `concurrent.futures` does: functions of `atexit` are called after threads were waited for, which is too late.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


class _Schedule(NamedTuple):
    """Which rows make up which batch."""

    n_rows: int
    batch_size: int
    seed: int | None

    @property
    def n_batches(self) -> int:
        return math.ceil(self.n_rows / self.batch_size)

    def indices(self, epoch: int, number: int) -> NDArray[np.int64]:
        start = number * self.batch_size
        stop = min(start + self.batch_size, self.n_rows)
        if self.seed is None:
            return np.arange(start, stop, dtype=np.int64)
        return _permutation(self.seed, epoch, self.n_rows, start, stop)


@dataclass(frozen=True)
class _Recipe:
    """How to make the batches of a pass."""

    pipeline: Pipeline
    metadata: Any
    storage_state: Any
    schedule: _Schedule
    epoch: int
    fields: Mapping[str, FieldMemory]
    n_buffers: int

    def make(self, number: int) -> BatchResult:
        indices = self.schedule.indices(self.epoch, number)
        try:
            data = {name: field.lend(len(indices)) for name, field in self.fields.items()}
            self.pipeline(indices.copy(), self.metadata, self.storage_state, MappingProxyType(data))
        except BaseException as error:
            where = f"in batch {number} of epoch {self.epoch}, indices {indices.tolist()}"
            if isinstance(error, StopIteration):  # with which next() would end the pass, in silence
                raise RuntimeError(f"the pipeline raised StopIteration {where}") from error
            error.add_note(where)
            raise
        return BatchResult(data, indices, number % self.n_buffers)
