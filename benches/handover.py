"""Time of `next()` in the training loop when a batch is ready, by batch size: a table in Markdown.

    python benches/handover.py

Recordings of 20 ms keep the workers idle, with spectrograms of the default 128 bands and 501 frames (mostly silence
that `n_frames` adds). So batches have their usual size, 16 MB for 64. The time is that of `next()` alone, with all
`prefetch_batches` ready before each call. A batch is dropped before the next request, or kept until eight later ones
have come.

For comparison, in the same state of the machine, the least cost of a hand-over between threads: taking an object from
a `queue.SimpleQueue`, and waking a thread that waits for another one. Both grow with the batch, although neither
touches it, because making the batch fills the caches.
"""

import argparse
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forebay

# In place of this folder, whose scripts have names of libraries.
sys.path[0] = str(Path(__file__).parents[1] / "tests" / "python" / "helpers")
from recordings import tiny_rows, write_shard  # noqa: E402

SHAPE: dict[str, Any] = {"sample_rate": 8000, "clip_seconds": 0.02, "n_fft": 64, "hop_length": 32, "n_frames": 501}


def waits(loader: forebay.Loader, n: int, keep: int) -> tuple[list[float], list[float]]:
    """Seconds in `next()` with all batches ready, and of as many plain hand-overs, sorted."""
    kept: deque[object] = deque(maxlen=keep)
    nexts, plains = [], []
    with plain_handover() as handover:
        for _ in range(n + keep):
            for found, take, then in [(nexts, loader.__next__, handover), (plains, handover, loader.__next__)]:
                while loader.stats()["queues"]["batches"] < 3:
                    time.sleep(0.001)
                begin = time.perf_counter()
                taken = take()
                found.append(time.perf_counter() - begin)
                kept.append((taken, then()))
                del taken
    return sorted(nexts), sorted(plains)


@contextmanager
def plain_handover() -> Iterator[Callable[[], object]]:
    """A function that takes a ready object and wakes the thread that makes the next one."""
    ready: queue.SimpleQueue[object] = queue.SimpleQueue()
    room: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def make() -> None:
        while room.get():
            ready.put({})

    def take() -> object:
        taken = ready.get_nowait()
        room.put(True)
        return taken

    thread = threading.Thread(target=make)
    thread.start()
    for _ in range(3):
        ready.put({})
    yield take
    room.put(False)
    thread.join()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=200, help="batches of each row of the table")
    arguments = parser.parse_args()
    print("| batch_size | dtype | MB | median, µs: dropped / kept | 90 % within, µs | plain, median |")
    print("|---:|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        shard = write_shard(Path(folder) / "a.arrow", tiny_rows(300))
        for batch_size in [1, 4, 16, 64, 256, 1024]:
            for dtype in ["float32", "float16"]:
                found = []
                for keep in [0, 8]:
                    parameters = {**SHAPE, "batch_size": batch_size, "dtype": dtype, "prefetch_batches": 3}
                    with forebay.Loader.eval(shard, infinite=True, n_workers=2, **parameters) as loader:
                        next(loader)
                        found.append(waits(loader, max(arguments.repeat // max(batch_size // 64, 1), 20), keep))
                medians = " / ".join(f"{1e6 * statistics.median(times):.0f}" for times, _ in found)
                within = " / ".join(f"{1e6 * times[len(times) * 9 // 10]:.0f}" for times, _ in found)
                plain = " / ".join(f"{1e6 * statistics.median(times):.0f}" for _, times in found)
                size = batch_size * 128 * 501 * (4 if dtype == "float32" else 2) / 1e6
                print(f"| {batch_size} | {dtype} | {size:.3g} | {medians} | {within} | {plain} |", flush=True)


if __name__ == "__main__":
    main()
