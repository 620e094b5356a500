"""`AsyncDataLoader`: figures of `stats()`, an adaptive number of threads, batches announced to the storage."""

import contextlib
import pickle
import threading
import time
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay import AsyncDataLoader, BatchResult
from forebay._workers import Workers
from numbered import END_LIMIT_S, Pipeline, Reader, assert_right, expected, loader, rows, seconds_to_end, threads
from timing import claim, eventually, timed

pytestmark = pytest.mark.usefixtures("little_to_collect", "no_threads_left")


class Awaited(Pipeline):
    """A pipeline that makes a batch only when the loop waits for it, so that any schedule starves; or `at_once`."""

    def __init__(self, jitter_s: float) -> None:
        super().__init__(jitter_s)
        self.numbers: dict[int, int] = {}
        self.batches: AsyncDataLoader | None = None
        self.at_once = False

    def __call__(self, indices: NDArray[np.int64], *arguments: Any) -> None:
        while not self.at_once and not self._is_awaited(self.numbers[int(indices[0])]):
            time.sleep(0.0005)
        super().__call__(indices, *arguments)

    def _is_awaited(self, number: int) -> bool:
        workers = self.batches._workers if self.batches else None
        if workers is None or workers.stopped:
            return True  # the pass has ended
        return workers._awaited is not None and workers._awaited.number == number


def starving(n: int, pipeline: Awaited | None = None, **parameters: Any) -> AsyncDataLoader:
    """A loader whose first pass starves."""
    pipeline = pipeline or Awaited(0.002)
    pipeline.numbers = {rows[0]: number for number, rows in enumerate(expected(n))}
    pipeline.batches = batches = loader(n, pipeline=pipeline, **parameters)
    return batches


def wait_for_ready(iterator: Any, n: int = 1) -> None:
    """Waits until `n` batches are ready."""
    eventually(lambda: sum(order.made is not None for order in list(iterator._orders.values())) >= n)


def test_stats_of_a_loop_that_starves() -> None:
    """A9: `stats()` has the waits for batches."""
    batches = starving(40, num_workers=1)
    assert set(batches.stats()["batch_times"].values()) == {0}
    assert batches.stats()["delivered"] == {"batches": 0, "examples": 0}
    for _batch in batches:
        assert batches.stats()["n_workers"] == 1
    stats = batches.stats()
    assert stats["delivered"] == {"batches": 10, "examples": 40}
    assert stats["batches"] == 10
    assert stats["n_workers"] == 0
    assert stats["prefetch_batches"] == 3
    times = stats["batch_times"]
    assert times["starved_s"] > times["ready_s"] >= 0
    assert 0 < times["starved_p50_s"] <= times["starved_p99_s"] <= times["starved_s"]
    assert times["starved_p50_s"] > times["ready_p50_s"]


@timed
def test_stats_of_a_loop_that_takes_its_time() -> None:
    """A9: `stats()` has the times for which batches were ready."""
    batches = loader(40)
    iterator = iter(batches)
    for _ in range(10):
        wait_for_ready(iterator)
        time.sleep(0.011)
        next(iterator)
    stats = batches.stats()["batch_times"]
    assert stats["ready_s"] > 0.06
    assert stats["ready_p99_s"] >= stats["ready_p50_s"] > 0.01
    claim(stats["starved_s"] < stats["ready_s"], stats)
    claim(stats["starved_p50_s"] < stats["ready_p50_s"], stats)


def test_percentiles_are_those_of_the_last_batches() -> None:
    batches = starving(8000)
    for _ in islice(batches, 50):
        pass
    before = batches.stats()["batch_times"]["starved_p50_s"]
    assert_threads(0)
    batches._pipeline = Pipeline()
    iterator = iter(batches)
    for _ in range(1000):
        wait_for_ready(iterator)
        next(iterator)
    assert batches.stats()["batches"] == 1050
    assert batches.stats()["batch_times"]["starved_p50_s"] < before / 2


# An adaptive number of threads.


def test_threads_are_added_while_the_loop_starves() -> None:
    """A9: threads are added, up to one for each buffer."""
    batches = starving(400, num_workers="auto", buffers_ahead=3)
    seen = [len(threads()) for _ in islice(batches, 90)]
    assert seen[:3] == [1, 1, 1]
    assert seen == sorted(seen)
    assert seen[-1] == 3  # each has a batch to make


def test_threads_are_taken_away_while_all_lies_ready() -> None:
    """A9: threads are removed, down to one."""
    batches = starving(1000, pipeline := Awaited(0), num_workers="auto", buffers_ahead=4)
    iterator = iter(batches)
    for _ in range(40):
        next(iterator)
    seen = [batches.stats()["n_workers"]]
    pipeline.at_once = True
    for _ in range(40):
        wait_for_ready(iterator, 4)
        next(iterator)
        seen.append(batches.stats()["n_workers"])
    assert seen[0] == 4
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 1
    assert_threads(1)
    assert rows(iterator) == expected(1000)[80:]


def assert_threads(n: int) -> None:
    eventually(lambda: len(threads()) == n)


def test_the_next_pass_begins_with_as_many_threads() -> None:
    batches = starving(400, num_workers="auto", buffers_ahead=2)
    assert rows(batches) == expected(400)
    iterator = iter(batches)
    assert_threads(2)
    del iterator


@timed
def test_threads_that_come_and_go_change_nothing() -> None:
    """A9: changes of the number of threads do not affect batches, and ended threads are not kept."""
    pipeline = Pipeline()
    batches = loader(4000, pipeline=pipeline, num_workers="auto", buffers_ahead=5)
    iterator: Any = iter(batches)
    found, sizes = [], set()
    for number, batch in enumerate(iterator):
        pipeline.jitter_s = 0.004 * (number % 100 < 40)
        if number % 100 >= 40:
            time.sleep(0.001)
        sizes.add(batches.stats()["n_workers"])
        assert len(iterator._workers._threads) < 15
        found.append(batch.indices.tolist())
        assert_right(batch)
    assert found == expected(4000)
    assert_threads(0)
    claim(len(sizes) > 2, sizes)


@timed
def test_a_pass_that_scales_may_be_closed_at_any_time() -> None:
    for number in range(40):
        batches = loader(400, pipeline=Pipeline(jitter_s=0.001), num_workers="auto", buffers_ahead=8)
        closing = threading.Timer(0.001 * number, batches.close)
        closing.start()
        with contextlib.suppress(forebay.ForebayError):
            list(batches)
        closing.join()
    ended = seconds_to_end()
    claim(ended < END_LIMIT_S, ended)


@timed
def test_a_thread_that_is_added_after_the_end_ends() -> None:
    """A thread ends that `next()` adds after another thread has stopped the pass."""
    workers: Workers[int] = Workers(int)
    workers.resize(1)
    workers.stop()
    workers.resize(2)
    ended = seconds_to_end()
    claim(ended < END_LIMIT_S, ended)


def test_auto_goes_on_and_is_pickled() -> None:
    batches = loader(num_workers="auto")
    for _batch in islice(batches, 9):
        pass
    copy = pickle.loads(pickle.dumps(batches))
    assert copy._scale is not None
    assert rows(copy) == expected()[9:]
    with pytest.raises(forebay.ConfigError, match="num_workers is 'many', must be 1 to 2147483647, or 'auto'"):
        loader(num_workers="many")


# Batches announced to the storage.


class Told:
    """A storage state that records announced batches, and for each batch read whether it was announced."""

    def __init__(self) -> None:
        self.told: list[list[int]] = []
        self.read: list[tuple[list[int], bool]] = []

    def __getitem__(self, _key: str) -> float:
        return 0.5

    def will_need(self, indices: NDArray[np.int64]) -> None:
        self.told.append(indices.tolist())
        indices[:] = -1  # the storage may write to its argument


class Telling(Pipeline):
    def __call__(self, indices: Any, metadata: Any, storage_state: Any, buffers: Any) -> None:
        batch = indices.tolist()
        storage_state.read.append((batch, batch in storage_state.told))
        super().__call__(indices, metadata, storage_state, buffers)


@pytest.mark.parametrize("num_workers", [1, 4, "auto"])
@pytest.mark.parametrize("buffers_ahead", [1, 3])
@pytest.mark.parametrize("first", [0, 5, 25])
def test_storage_is_told_of_each_batch_once_and_ahead(num_workers: Any, buffers_ahead: int, first: int) -> None:
    """A8: each batch is announced once, before it is made."""
    batches = AsyncDataLoader(reader := Reader(103), Telling(), 4, num_workers, buffers_ahead)
    reader.storage_state = storage = Told()
    batches.load_state_dict(batches.state_dict() | {"batch": first})
    assert rows(batches) == expected()[first:]
    if num_workers == 1:
        assert storage.told == expected()[first:]
        assert all(told for _, told in storage.read)
    else:
        assert sorted(storage.told) == sorted(expected()[first:])


def test_storage_is_told_while_batches_before_are_made() -> None:
    class Waiting(Pipeline):
        def __call__(self, *arguments: Any) -> None:
            assert go_on.wait(120)
            super().__call__(*arguments)

    go_on = threading.Event()
    batches = AsyncDataLoader(reader := Reader(103), Waiting(), 4, num_workers=1, buffers_ahead=3)
    reader.storage_state = storage = Told()
    iterator = iter(batches)
    eventually(lambda: len(storage.told) >= 4)
    assert storage.told == expected()[:4]
    go_on.set()
    assert rows(iterator) == expected()


def test_an_error_of_storage_comes_in_its_place() -> None:
    class Broken(Told):
        def will_need(self, indices: NDArray[np.int64]) -> None:
            if indices.tolist() == expected()[9]:
                raise OSError("gone")

    batches = AsyncDataLoader(reader := Reader(103), Pipeline(), 4, buffers_ahead=3)
    reader.storage_state = Broken()
    found: list[BatchResult] = []
    with pytest.raises(OSError, match="gone"):
        found.extend(batches)
    assert rows(found) == expected()[:6]
