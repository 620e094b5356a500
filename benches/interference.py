"""What busy workers cost the training loop, by the scheduling of the loader's threads.

    python benches/interference.py [--batches 40] [--rounds 3]

The loader of OGG recordings fills a large shuffle window, so that all of its workers, one for each core, work all the
time. Meanwhile the loop takes a ready batch every quarter of a second, which is `next()` below, or computes: 20 ms of
plain Python or of numpy, compared with the same work beside a loader that is closed. The threads start with
`SCHED_BATCH` and workers with `worker_nice`; for the first row the script sets all back to the default policy. Rounds
alternate between the rows.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import forebay

# In place of this folder, whose scripts have names of libraries.
sys.path[0] = str(Path(__file__).parents[1] / "tests" / "python" / "helpers")
from recordings import Row, write_shard  # noqa: E402

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "data" / "recordings"
SETTINGS = {
    "default": (os.SCHED_OTHER, 0),
    "batch": (os.SCHED_BATCH, 0),
    "batch, nice 5": (os.SCHED_BATCH, 5),
    "batch, nice 10": (os.SCHED_BATCH, 10),
    "batch, nice 19": (os.SCHED_BATCH, 19),
}
"""The policy of all threads, and the niceness of workers."""
PAUSE = 0.25
STEP = 0.02


def set_policy(policy: int) -> None:
    """Gives all threads of loaders a scheduling policy."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("forebay-"):
            os.sched_setscheduler(int(task.name), policy, os.sched_param(0))


def plain_python() -> None:
    """Work of some milliseconds that holds the interpreter."""
    total = 0
    for i in range(100_000):
        total += i & 7


def elementwise() -> None:
    """Work of some milliseconds in numpy, on one thread."""
    values = np.ones(1 << 15, np.float32)
    for _ in range(100):
        np.add(values, 1, out=values)
        np.sqrt(values, out=values)


WORK: dict[str, Callable[[], None]] = {"Python": plain_python, "numpy": elementwise}


def seconds(work: Callable[[], None], repeats: int) -> float:
    """Time of `repeats` calls."""
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    return time.perf_counter() - begin


def of_a_step(work: Callable[[], None]) -> int:
    """The number of calls that take about [`STEP`] seconds."""
    return max(1, round(STEP / min(seconds(work, 1) for _ in range(20))))


def measure(loader: forebay.Loader, n: int) -> tuple[list[float], float]:
    """Seconds of `n` calls of `next()` on a ready batch, and records decoded per second meanwhile."""
    decoded = loader.stats()["stages"]["decode"]["items"]
    begin = time.perf_counter()
    times = []
    for _ in range(n):
        time.sleep(PAUSE)
        while loader.stats()["queues"]["batches"] < 2:
            time.sleep(0.001)
        start = time.perf_counter()
        batch = next(loader)
        times.append(time.perf_counter() - start)
        del batch
    rate = (loader.stats()["stages"]["decode"]["items"] - decoded) / (time.perf_counter() - begin)
    return times, rate


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40, help="batches of each round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds with each policy")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows = [Row(path.read_bytes()) for path in sorted(RECORDINGS.rglob("*.ogg"))]
    nexts: dict[str, list[float]] = {name: [] for name in SETTINGS}
    rates: dict[str, list[float]] = {name: [] for name in SETTINGS}
    steps: dict[tuple[str, str], list[float]] = {(name, kind): [] for name in SETTINGS for kind in WORK}
    repeats = {kind: of_a_step(work) for kind, work in WORK.items()}
    with tempfile.TemporaryDirectory() as folder:
        shard = write_shard(Path(folder) / "a.arrow", rows * (2048 // len(rows) + 1))
        for _ in range(arguments.rounds):
            alone = {
                kind: statistics.median(seconds(work, repeats[kind]) for _ in range(30)) for kind, work in WORK.items()
            }
            for name, (policy, nice) in SETTINGS.items():
                window = {
                    "order": "window",
                    "batch_size": 64,
                    "shuffle_buffer_size": 12_300,
                    "shuffle_min_size": 12_000,
                    "worker_nice": nice,
                }
                with forebay.Loader(shard, infinite=True, n_workers=cores, prefetch_batches=2, **window) as loader:
                    next(loader)
                    set_policy(policy)
                    times, rate = measure(loader, arguments.batches)
                    nexts[name] += times
                    rates[name].append(rate)
                    for kind, work in WORK.items():
                        steps[name, kind] += [seconds(work, repeats[kind]) / alone[kind] for _ in range(30)]
    print(f"{cores} cores, {cores} workers")
    print("| threads | `next()`: median, 90 %, 99 %, most, ms | records/s | step of Python: median, 90 % | of numpy |")
    print("|---|---:|---:|---:|---:|")
    for name in SETTINGS:
        times = sorted(nexts[name])
        shares = ", ".join(
            f"{1000 * times[min(int(len(times) * q), len(times) - 1)]:.2f}" for q in (0.5, 0.9, 0.99, 1.0)
        )
        kinds = []
        for kind in WORK:
            ratios = sorted(steps[name, kind])
            kinds.append(f"{statistics.median(ratios):.2f}, {ratios[len(ratios) * 9 // 10]:.2f}")
        print(f"| {name} | {shares} | {statistics.median(rates[name]):.0f} | {' | '.join(kinds)} |")


if __name__ == "__main__":
    main()
