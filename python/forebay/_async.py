"""`AsyncDataLoader`: prefetches batches of the user's pipeline on Python threads, in a fixed order.

The iterating thread requests batches, `buffers_ahead` beyond the current one. Each worker takes the next
request as soon as it is free. The request carries its batch back, so batches are returned in the order of
requests. Workers hold no reference to loader or iterator, so dropping these ends the workers.
"""

import logging
import math
import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, Self, TextIO, TypedDict

import numpy as np
from numpy.typing import NDArray

from forebay._buffers import FieldMemory, Spec
from forebay._checks import MOST, advised, check, check_identity, has, is_count, truth
from forebay._core import ConfigError, ForebayError, StateError, _permutation
from forebay._progress import batches
from forebay._workers import Order, Scale, Workers

__all__ = ["AsyncDataLoader", "BatchResult"]

# The number of batches over which percentiles are computed.
_RECENT = 1000

_log = logging.getLogger("forebay")

# The same text as in the other loaders.
_CLOSED = "the loader is closed; make a new one to go on"


class BatchResult(NamedTuple):
    """A batch of `AsyncDataLoader`; you may keep and modify it: memory is reused once no array refers to it."""

    data: dict[str, NDArray[Any]]
    """The arrays `[rows, *shape]` by field."""

    indices: NDArray[np.int64]
    """The row numbers in the reader, `[rows]`."""

    buffer_id: int
    """Batch number modulo `buffers_ahead`: batches that are made at the same time have different numbers."""


class Reader(Protocol):
    """The source of rows for `AsyncDataLoader`; metadata and storage state are passed to the pipeline unchanged.

    If the storage state has a method `will_need(indices)`, worker threads call it with row numbers before the
    rows are read.
    """

    def __len__(self) -> int: ...
    @property
    def metadata(self) -> Any: ...
    @property
    def storage_state(self) -> Any: ...


class Pipeline(Protocol):
    """Makes a batch: fills `buffers`, an array `[len(indices), *shape]` per field, from the rows `indices`.

    Several threads call it at the same time. The arrays are not initialised; the return value is ignored.
    """

    @property
    def output_specs(self) -> Mapping[str, Spec]:
        """Shape and type of one row, by field."""

    def __call__(
        self, indices: NDArray[np.int64], metadata: Any, storage_state: Any, buffers: Mapping[str, NDArray[Any]], /
    ) -> object: ...


class _Delivered(TypedDict):
    batches: int
    examples: int


class _BatchTimes(TypedDict):
    ready_s: float
    ready_p50_s: float
    ready_p99_s: float
    starved_s: float
    starved_p50_s: float
    starved_p99_s: float


class _AsyncStats(TypedDict):
    batches: int
    delivered: _Delivered
    n_workers: int
    prefetch_batches: int
    batch_times: _BatchTimes


class AsyncDataLoader:
    """Prefetches batches of your own pipeline on threads: Python, NumPy, or Numba code that releases the GIL.

    `dataset_reader` has a length, `metadata` and `storage_state`. `pipeline` has `output_specs`, a dict of
    field to `(shape, dtype)` of one row. Several threads at a time call `pipeline(indices, metadata,
    storage_state, buffers)`, which fills `buffers[field]`, an array `[len(indices), *shape]`.

    Each `iter()` starts the next pass, also if the last one was left early. The order is a function of
    `(seed, epoch)`, as in `Loader(order="global")`. The last batch may be shorter. Arrays may be kept and
    modified; their memory is reused once no array refers to it.

    If the pipeline raises an exception, `next()` raises it at the batch's position, with a note that names
    batch and indices, and the pass ends. `state_dict()` covers the returned batches. Threads end with the
    pass, when its iterator is dropped, or by `close()`; a running call of the pipeline is finished first.

    Parameters
    ----------
    batch_size : int
        Rows per batch.
    num_workers : int or "auto"
        Number of threads; at most `buffers_ahead` of them have work. `"auto"` begins with one, adds one when
        requested batches are not ready, and removes one when all are; order and content stay the same.
    buffers_ahead : int
        Batches prefetched beyond the current one, ready or being made. The loader holds this many in memory,
        in addition to the batches that you keep.
    shuffle : bool
        True: a new permutation of all rows each epoch. False: storage order.
    seed : int
        Seed of the order, 0 to 2**64 - 1.

    """

    @advised(
        "forebay.AsyncDataLoader",
        n_workers="num_workers",
        n_threads="num_workers",
        num_threads="num_workers",
        prefetch_batches="buffers_ahead",
        prefetch_factor="buffers_ahead",
        dataset="dataset_reader",
        reader="dataset_reader",
        collate_fn="the pipeline makes whole batches: it fills buffers[field], an array [rows, *shape]",
        sampler="shuffle",
        drop_last="the last batch of a pass may have fewer rows: leave it out in the loop",
        epochs="each iter() makes the next pass: write the loop over epochs around the loop over batches",
        rank="AsyncDataLoader is for one process; Loader and cache.DataLoader have rank and world_size",
        world_size="AsyncDataLoader is for one process; Loader and cache.DataLoader have rank and world_size",
        pin_memory="copy the arrays to pinned memory yourself, as the pipeline's output is yours",
    )
    def __init__(
        self,
        dataset_reader: Reader,
        pipeline: Pipeline,
        batch_size: int,
        num_workers: int | Literal["auto"] = 4,
        buffers_ahead: int = 3,
        shuffle: bool = True,
        seed: int = 42,
    ) -> None:
        if isinstance(num_workers, str) and num_workers != "auto":
            raise ConfigError(f"num_workers is {num_workers!r}, must be 1 to {MOST}, or 'auto'")
        check(
            batch_size=(batch_size, 1, MOST),
            num_workers=(1 if isinstance(num_workers, str) else num_workers, 1, MOST),
            buffers_ahead=(buffers_ahead, 1, MOST),
            seed=(seed, 0, 2**64 - 1),
        )
        has("dataset_reader", dataset_reader, "__len__", "metadata", "storage_state")
        has("pipeline", pipeline, "output_specs", "__call__")
        self._reader = dataset_reader
        self._pipeline = pipeline
        self._buffers_ahead = operator.index(buffers_ahead)
        self._scale = Scale(self._buffers_ahead) if isinstance(num_workers, str) else None
        self._num_workers = 1 if isinstance(num_workers, str) else operator.index(num_workers)
        self._schedule = _Schedule(
            len(dataset_reader), operator.index(batch_size), operator.index(seed) if truth("shuffle", shuffle) else None
        )
        self._seed = operator.index(seed)
        self._fields = {
            name: FieldMemory(name, self._schedule.batch_size, spec, self._buffers_ahead + 2)
            for name, spec in pipeline.output_specs.items()
        }
        self._position = (0, 0)  # epoch and number of the next batch
        self._is_fresh = True  # no batch was returned since the pass began, or since a seek or a loaded state
        self._has_left = False  # a pass was left early before
        self._workers: Workers[BatchResult] | None = None
        self._counts = (0, 0, 0.0, 0.0)  # batches and rows returned, seconds ready and starved
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._closed = False

    def __len__(self) -> int:
        """The number of batches of a pass."""
        return self._schedule.n_batches

    def __iter__(self) -> Iterator[BatchResult]:
        """Begins the next pass, or continues at a state that was loaded; an earlier iterator of this loader ends."""
        if self._closed:
            raise ForebayError(_CLOSED)
        self._leave()
        epoch, batch = self._position
        if batch and not self._is_fresh:
            if not self._has_left:
                _log.info(
                    "pass %d was left after %d of %d batches; the next one begins (further ones are not logged)",
                    epoch, batch, len(self),
                )  # fmt: skip
            self._has_left = True
            epoch, batch = epoch + 1, 0
        self._is_fresh = True
        return _Batches(self, epoch, batch)

    @property
    def batch_size(self) -> int:
        """The parameter `batch_size`: rows per batch; the last batch of a pass may have fewer."""
        return self._schedule.batch_size

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
        """Sets the pass that the next `iter()` begins; a running pass ends.

        After `load_state_dict` or `seek`, the position is kept if `epoch` is the current pass.
        """
        check(epoch=(epoch, 0, 2**62))
        self._leave()
        if not self._is_fresh or epoch != self.epoch:
            self._position, self._is_fresh = (operator.index(epoch), 0), True

    def seek(self, batch: int) -> None:
        """Sets the batch number at which the next `iter()` begins, at any distance; a running pass ends."""
        check(batch=(batch, 0, len(self)))
        self._leave()
        self._position, self._is_fresh = (self.epoch, operator.index(batch)), True

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the returned batches, not the prefetched ones, as a dict that JSON can hold."""
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next `iter()` resume at the position of `state`, with any `num_workers` and `buffers_ahead`."""
        check_identity(state, self._identity(), "loader")
        epoch, batch = state.get("epoch"), state.get("batch")
        if not (is_count(epoch, 2**62) and is_count(batch, max(len(self) - 1, 0))):
            raise StateError(f"the state has epoch {epoch}, batch {batch}, but a pass has {len(self)} batches")
        self._leave()
        self._position, self._is_fresh = (epoch, batch), True

    def progress(self, total: int | None = None, file: TextIO | None = None) -> "Iterator[BatchResult]":
        """Iterates as the loader itself does, and shows how far the loop is: see `LoaderBase.progress`."""
        return batches(self, total, file)

    def stats(self) -> _AsyncStats:
        """Returns counts and waiting times, under the names of `Loader.stats()`; totals are since construction.

        - `delivered`, for the returned batches: `batches`, `examples` (rows); `batches` is the same number
        - `n_workers`, threads of the current pass; `prefetch_batches`, which is `buffers_ahead`
        - `batch_times`: `ready_s`, the total time from a batch's completion to its return; `starved_s`, the
          total time in `next()`, including first batches; `ready_p50_s`, `ready_p99_s`, `starved_p50_s`,
          `starved_p99_s`, the same per batch, over the last 1000
        """
        batches, examples, ready_s, starved_s = self._counts
        ready, starved = map(sorted, zip(*(self._recent.copy() or [(0.0, 0.0)]), strict=True))
        return {
            "batches": batches,
            "delivered": {"batches": batches, "examples": examples},
            "n_workers": self._workers.size if self._workers and not self._workers.stopped else 0,
            "prefetch_batches": self._buffers_ahead,
            "batch_times": {
                "ready_s": ready_s,
                "ready_p50_s": _quantile(ready, 0.5),
                "ready_p99_s": _quantile(ready, 0.99),
                "starved_s": starved_s,
                "starved_p50_s": _quantile(starved, 0.5),
                "starved_p99_s": _quantile(starved, 0.99),
            },
        }

    def close(self) -> None:
        """Ends all threads and waits for them at most 0.5 s; a `next()` in another thread raises `ForebayError`."""
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
            num_workers="auto" if self._scale else self._num_workers,
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
        of_order = {"num_records": n_rows, "batch_size": batch_size, "shuffle": seed is not None, "seed": self._seed}
        return {"version": 1, "kind": "forebay.AsyncDataLoader", **of_order}

    def _leave(self) -> Workers[BatchResult] | None:
        """Stops the running pass, without waiting for it."""
        workers, self._workers = self._workers, None
        if workers:
            workers.stop()
        return workers


def _quantile(ordered: Sequence[float], share: float) -> float:
    """As numpy's, which imports a module at its first call."""
    below, part = divmod((len(ordered) - 1) * share, 1)
    first, second = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return first + (second - first) * part


class _Batches(Iterator[BatchResult]):
    """The batches of one pass, for one thread; dropping it ends the pass."""

    def __init__(self, loader: AsyncDataLoader, epoch: int, first: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._next = first
        self._end = len(loader)
        self._ahead = loader._buffers_ahead
        self._scale = loader._scale
        self._orders: dict[int, Order[BatchResult]] = {}  # by the number of their batch
        reader = loader._reader
        make = _Recipe(
            pipeline=loader._pipeline,
            metadata=reader.metadata,
            storage_state=reader.storage_state,
            schedule=loader._schedule,
            epoch=epoch,
            first=first,
            fields=loader._fields,
            ahead=self._ahead,
            will_need=getattr(reader.storage_state, "will_need", None),
        ).make
        self._workers: Workers[BatchResult] = Workers(make)
        loader._workers, loader._position = self._workers, (epoch, first)
        n_threads = self._scale.n_threads if self._scale else loader._num_workers
        self._workers.resize(min(n_threads, self._ahead, self._end - first))
        for number in range(first, min(first + self._ahead, self._end)):
            self._order(number)

    def __next__(self) -> BatchResult:
        asked = perf_counter()
        loader, orders, workers = self._loader, self._orders, self._workers
        workers.forget_rings()
        while True:
            number = self._next
            if number == self._end:
                self._leave()
                if loader._position == (self._epoch, number):  # `seek` chose the end
                    loader._position, loader._is_fresh = (self._epoch + 1, 0), True
                raise StopIteration
            orders.pop(number - 1, None)
            order = orders.get(number)
            if order is None or self._next != number:  # a signal handler has taken it
                continue
            if self._scale:
                self._poll(self._scale, number)
            if order.made is None:
                workers.wait_for(order)
            made = order.made
            if order.is_taken:
                continue
            if workers.stopped or not isinstance(made, BatchResult):
                made = None  # otherwise a cycle: the traceback of an error refers to this frame
                self._fail(order)
            ahead = number + self._ahead
            if ahead < self._end and ahead not in orders:
                self._order(ahead)
            if number + 1 == self._end:
                workers.finish()  # here, since there may be no further call of next() after the last batch
            got, rows = perf_counter(), len(made.indices)
            ready_s, starved_s = got - order.made_at, got - asked
            loader._recent.append((ready_s, starved_s))

            # Ctrl-C is raised, and a signal handler called, only where a call returns, and no call follows. So a
            # batch is either returned or kept, and a handler that called next() has taken it before.
            if self._next != number or workers.stopped:
                continue
            batches, examples, all_ready_s, all_starved_s = loader._counts
            counts = (batches + 1, examples + rows, all_ready_s + ready_s, all_starved_s + starved_s)
            after = (self._epoch, number + 1) if number + 1 < self._end else (self._epoch + 1, 0)
            order.made, order.is_taken = None, True
            loader._counts, loader._position, loader._is_fresh = counts, after, after[1] == 0
            self._next = number + 1
            return made

    def _order(self, number: int) -> None:
        order: Order[BatchResult] = Order(number)
        # In this order: after Ctrl-C between the two, the batch is made twice instead of not at all.
        self._workers.order(order)
        self._orders[number] = order

    def _poll(self, scale: Scale, number: int) -> None:
        """Adds or removes a thread if there are too few or too many; `number` is that of the next batch."""
        first, *others = (order for order in list(self._orders.values()) if order.number >= number)
        if others and others[-1].number < self._end - 1:  # near the end some threads have no work anyway
            empty = first.made is None
            full = not empty and all(order.made is not None for order in others)
            self._workers.resize(scale.poll(empty=empty, full=full))

    def _leave(self) -> None:
        self._workers.stop()
        self._workers.join()

    def _fail(self, order: Order[BatchResult]) -> NoReturn:
        """Raises the reason why there is no batch."""
        workers, loader, made = self._workers, self._loader, order.made
        if workers.forked:
            raise ForebayError(
                "this pass began before a fork, and its threads exist only in the parent process; call iter() again"
            )
        if workers.stopped or not isinstance(made, BaseException):
            raise ForebayError(
                _CLOSED if loader.closed else "this pass has ended: the loader began another one, or was moved"
            )
        self._leave()
        self._next = self._end
        try:
            raise made
        finally:
            order.made = made = None  # otherwise a cycle: the traceback refers to this frame

    def __del__(self) -> None:
        # Does not wait, since the thread that drops the last reference must not block.
        if hasattr(self, "_workers"):
            self._workers.stop()


class _Schedule(NamedTuple):
    """The rows of each batch."""

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


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Makes the batches of a pass."""

    pipeline: Pipeline
    metadata: Any
    storage_state: Any
    schedule: _Schedule
    epoch: int
    first: int
    fields: Mapping[str, FieldMemory]
    ahead: int
    will_need: Callable[[NDArray[np.int64]], object] | None

    def make(self, number: int) -> BatchResult:
        indices = self.schedule.indices(self.epoch, number)
        try:
            if self.will_need is not None:
                self._announce(number, self.will_need)
            data = {name: field.lend(len(indices)) for name, field in self.fields.items()}
            self.pipeline(indices.copy(), self.metadata, self.storage_state, MappingProxyType(data))
        except BaseException as error:
            where = f"in batch {number} of epoch {self.epoch}, indices {indices.tolist()}"
            if isinstance(error, StopIteration):  # raised by next(), it would end the loop silently
                raise RuntimeError(f"the pipeline raised StopIteration {where}") from error
            error.add_note(where)
            raise
        return BatchResult(data, indices, number % self.ahead)

    def _announce(self, number: int, will_need: Callable[[NDArray[np.int64]], object]) -> None:
        """Passes the rows of the next batches to `will_need`: each batch once, the first call with its own rows too."""
        end = min(number + self.ahead + 1, self.schedule.n_batches)
        for coming in range(number if number == self.first else number + self.ahead, end):
            will_need(self.schedule.indices(self.epoch, coming))
