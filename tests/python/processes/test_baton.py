"""Threads that share a loader take turns: a call does not wait until another thread's `next()` has a batch."""

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import forebay
from forebay import _core
from recordings import TINY
from timing import claim, timed

SLICE_S = 0.05
"""The longest time for which `next()` holds the loader while it waits for a batch."""


def times(ask: Callable[[], object], seconds: float) -> list[float]:
    """The durations of calls, repeated for `seconds`."""
    taken, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        ask()
        taken.append(time.perf_counter() - start)
    return taken


@timed
def test_what_others_ask_while_next_waits(tiny_shards: list[Path]) -> None:
    """Other calls are fast while two threads wait for batches, which take 1.3 s; limits are three times the goal."""
    _core._inject_delays(fixed_ms=20)
    with forebay.Loader(tiny_shards, n_workers=1, **TINY) as loader:
        stop = threading.Event()

        def consume() -> None:
            while not stop.is_set():
                next(loader)

        consumers = [threading.Thread(target=consume) for _ in range(2)]
        for consumer in consumers:
            consumer.start()
        try:
            turns: list[Callable[[], object]] = [lambda: loader.epoch, loader.errors]
            for ask in turns:
                claim(max(taken := times(ask, 2.0)) < 3 * 3 * SLICE_S, max(taken))
            no_turns: list[Callable[[], object]] = [
                loader.stats,
                lambda: loader.batches_per_epoch,
                lambda: loader.num_records,
            ]
            for ask in no_turns:
                claim(statistics.median(taken := times(ask, 0.3)) < SLICE_S / 10, statistics.median(taken))
        finally:
            stop.set()
            for consumer in consumers:
                consumer.join()
