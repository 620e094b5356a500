"""What a hand-over costs: `AsyncDataLoader` beside the same batches over a plain `queue.Queue`, in us a batch.

python benches/async_loader.py [REPEATS]
"""

import contextlib
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from forebay import AsyncDataLoader

BATCHES, BATCH_SIZE = 5000, 16


class Rows:
    metadata = None
    storage_state = None

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE


class Nothing:
    """Fills nothing, so that what is measured is all but the pipeline."""

    output_specs: Mapping[str, Any] = {"image": ((64, 64), np.float32), "label": ((), np.int64)}

    def __call__(self, *_arguments: object) -> None:
        pass


def loader(num_workers: int, buffers_ahead: int) -> float:
    batches = iter(AsyncDataLoader(Rows(), Nothing(), BATCH_SIZE, num_workers, buffers_ahead))
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def plain_queue(num_workers: int, buffers_ahead: int) -> float:
    """Workers make the same batches and put each as it is made: not in order, no errors, no state, no early end."""
    made: queue.Queue[object] = queue.Queue(buffers_ahead)
    make = maker()
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(BATCHES):
        numbers.put(number)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                made.put(make(numbers.get_nowait()))

    threads = [threading.Thread(target=work) for _ in range(num_workers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for _ in range(BATCHES):
        made.get()
    took = time.perf_counter() - start
    for thread in threads:
        thread.join()
    return took


def maker() -> Callable[[int], object]:
    """What a worker of the loader does for a batch."""
    batches: Any = iter(AsyncDataLoader(Rows(), Nothing(), BATCH_SIZE))
    make: Callable[[int], object] = batches._workers._make
    return make


def making() -> float:
    make = maker()
    start = time.perf_counter()
    for number in range(BATCHES):
        make(number)
    return (time.perf_counter() - start) / BATCHES


def ready() -> float:
    """`next()` where the batch lies ready."""
    batches = iter(AsyncDataLoader(Rows(), Nothing(), BATCH_SIZE, 4, 3))
    took = []
    for _ in range(300):
        time.sleep(0.002)
        start = time.perf_counter()
        next(batches)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| num_workers | buffers_ahead | AsyncDataLoader | queue.Queue |\n|---:|---:|---:|---:|")
    for num_workers, buffers_ahead in [(1, 1), (1, 3), (4, 3), (4, 8)]:
        runs = [(loader(num_workers, buffers_ahead), plain_queue(num_workers, buffers_ahead)) for _ in range(repeats)]
        ours, plain = (statistics.median(run) / BATCHES * 1e6 for run in zip(*runs, strict=True))
        print(f"| {num_workers} | {buffers_ahead} | {ours:.0f} | {plain:.0f} |")
    print(f"making a batch, in one thread: {making() * 1e6:.0f} us")
    print(f"next() on a ready batch: {ready() * 1e6:.0f} us, median")


if __name__ == "__main__":
    main()
