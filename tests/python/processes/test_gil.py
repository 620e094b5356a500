"""`next()` releases the GIL while it waits."""

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import forebay
from forebay import _core
from recordings import TINY
from timing import claim, timed


@timed
def test_counter_keeps_its_speed(tiny_shards: list[Path]) -> None:
    """A pure-Python counter keeps 90 % of its idle speed during `next()`: the median of interleaved pairs of runs.

    The single worker sleeps 20 ms per record, so that cores are not the limit.
    """
    count = 0
    stop = False

    def work() -> None:
        nonlocal count
        while not stop:
            count += 1

    def speed(wait: str) -> float:
        start, before = time.perf_counter(), count
        if wait == "idle":
            time.sleep(0.4)
        else:
            next(loader)
        elapsed = time.perf_counter() - start
        claim(elapsed > 0.2, "next() did not wait", elapsed)
        return (count - before) / elapsed

    _core._inject_delays(fixed_ms=20)
    parameters: dict[str, Any] = {
        "shuffle_min_size": 0,
        "shuffle_buffer_size": 1,
        "batch_size": 64,
        "prefetch_batches": 1,
    }
    counter = threading.Thread(target=work)
    with forebay.Loader(tiny_shards, n_workers=1, raw_channel_size=1, **parameters, **TINY) as loader:
        next(loader)
        counter.start()
        try:
            ratios = []
            for pair in range(9):
                first, second = ("idle", "next") if pair % 2 else ("next", "idle")
                speeds = {first: speed(first), second: speed(second)}
                ratios.append(speeds["next"] / speeds["idle"])
        finally:
            stop = True
            counter.join()
    claim(statistics.median(ratios) >= 0.9, ratios)
