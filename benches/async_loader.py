"""Cost of a hand-over: `AsyncDataLoader` compared with the same batches over a plain `queue.Queue`.

python benches/async_loader.py [REPEATS]

The pipeline fills no data, so the remaining cost is making arrays, handing them over, and switching threads. The queue
holds `buffers_ahead` batches. As many threads make them by the same code and put them as they are made: without order,
errors, state or an early end. Runs of both alternate. A loop without work takes batches as they come; one that sleeps
finds them ready.
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
PAUSE_S, PAUSED_BATCHES = 0.001, 500


class Rows:
    metadata = None
    storage_state = None

    def __init__(self, batches: int) -> None:
        self._n = batches * BATCH_SIZE

    def __len__(self) -> int:
        return self._n


class Nothing:
    output_specs: Mapping[str, Any] = {"image": ((64, 64), np.float32), "label": ((), np.int64)}

    def __call__(self, *_arguments: object) -> None:
        pass


def waits(get: Callable[[], object], batches: int, pause_s: float) -> tuple[list[float], float]:
    """Time to get each batch, and time for all of them with pauses; in us."""
    found = []
    start = time.perf_counter()
    for _ in range(batches):
        if pause_s:
            time.sleep(pause_s)
        asked = time.perf_counter()
        get()
        found.append(1e6 * (time.perf_counter() - asked))
    return found, 1e6 * (time.perf_counter() - start)


def loader(num_workers: Any, buffers_ahead: int, batches: int, pause_s: float) -> tuple[list[float], float]:
    with AsyncDataLoader(Rows(batches), Nothing(), BATCH_SIZE, num_workers, buffers_ahead) as ours:
        return waits(iter(ours).__next__, batches, pause_s)


def plain_queue(num_workers: int, buffers_ahead: int, batches: int, pause_s: float) -> tuple[list[float], float]:
    made: queue.Queue[object] = queue.Queue(buffers_ahead)
    make = maker(batches)
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(batches):
        numbers.put(number)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                made.put(make(numbers.get_nowait()))

    threads = [threading.Thread(target=work) for _ in range(num_workers)]
    for thread in threads:
        thread.start()
    found = waits(made.get, batches, pause_s)
    for thread in threads:
        thread.join()
    return found


def maker(batches: int) -> Callable[[int], object]:
    """A worker's work for one batch."""
    iterator: Any = iter(AsyncDataLoader(Rows(batches), Nothing(), BATCH_SIZE))
    make: Callable[[int], object] = iterator._workers._make
    return make


def making() -> float:
    make = maker(BATCHES)
    start = time.perf_counter()
    for number in range(BATCHES):
        make(number)
    return (time.perf_counter() - start) / BATCHES * 1e6


def row(runs: list[tuple[list[float], float]]) -> tuple[str, float]:
    """Total time per batch (median of the runs), p50 and p99 of all waits; and p50 as a number."""
    whole = statistics.median(took / len(found) for found, took in runs)
    p50, p99 = np.quantile([wait for found, _ in runs for wait in found], (0.5, 0.99))
    return f"{whole:.0f} | {p50:.0f} | {p99:.0f}", p50


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| num_workers | buffers_ahead | loop | AsyncDataLoader | p50 | p99 | queue.Queue | p50 | p99 |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    for pause_s, batches in [(0.0, BATCHES), (PAUSE_S, PAUSED_BATCHES)]:
        for num_workers, buffers_ahead in [(1, 1), (1, 3), (2, 3), (4, 3), (4, 8)]:
            scene = (num_workers, buffers_ahead, batches, pause_s)
            runs = [(loader(*scene), plain_queue(*scene)) for _ in range(repeats)]
            ours, plain = (row(list(run))[0] for run in zip(*runs, strict=True))
            loop = f"{pause_s * 1e3:.0f} ms" if pause_s else "nothing"
            print(f"| {num_workers} | {buffers_ahead} | {loop} | {ours} | {plain} |", flush=True)
    print(f"\nAll in us a batch. Making one, in one thread and nothing else: {making():.0f} us.")


if __name__ == "__main__":
    main()
