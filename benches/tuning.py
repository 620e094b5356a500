"""The tables of docs/tuning.md: speed and cost by number of workers and of batches ahead, as Markdown.

    python benches/tuning.py [--seconds 4] [--rounds 3] [--asleep] [--only workers prefetch step] [--loops none fast]

Recordings are the bundled ones, repeated, in one shard of a temporary folder. Each figure is the median over rounds;
in a round each setting runs once, one after the other, each in its own process. The loop sleeps: for the cores, that
equals a step on an accelerator. Times of steps are multiples of t, the loader's time for a batch on all cores. Ratios
are medians of the ratios within a round, since the speed of a shared machine varies from minute to minute. With
`--asleep` the workers sleep as well: this simulates eight free cores on any machine.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "recordings"
CORES = len(os.sched_getaffinity(0))
LOADER: dict[str, Any] = {"batch_size": 64, "order": "window", "shuffle_buffer_size": 256, "shuffle_min_size": 128}
WORKERS = [1, 2, 4, 8, "auto"] if CORES <= 8 else [1, 2, 4, 8, 16, 32, "auto"]
PREFETCH = [1, 2, 3, 4, 8, "auto"]
# The loop's step time for each batch, in units of t.
LOOPS: dict[str, list[float]] = {
    "none": [0.0],
    "fast": [0.8],
    "slow": [4.0],
    "uneven": [0.1, 0.1, 0.1, 3.3],
}
WORKERS_LOOPS = ["none", "fast", "slow", "changing"]
TABLES = ["workers", "prefetch", "step"]
# With --asleep, a record of a short clip takes a worker SLEEP_MS.
SLEEP_MS, SLEEPERS = 10, 8
PHASE_S = 1.0  # a changing loop alternates between fast and slow after this time

Figures = dict[str, float]


def write_shard(path: Path, repeats: int) -> None:
    import pyarrow as pa

    with (FOLDER / "recordings.csv").open(newline="") as table:
        recordings = [(FOLDER / line["file"]).read_bytes() for line in csv.DictReader(table)]
    audio = pa.StructArray.from_arrays(
        [pa.array(recordings, pa.binary()), pa.nulls(len(recordings), pa.string())], ["bytes", "path"]
    )
    batch = pa.RecordBatch.from_arrays([audio, pa.array([0] * len(recordings))], ["audio", "label"])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        for _ in range(repeats):
            writer.write_batch(batch)


def steps(loop: str, t: float) -> Iterator[float]:
    """Seconds of the loop's own work between batches."""
    if loop != "changing":
        yield from cycle(t * multiple for multiple in LOOPS[loop])
    while True:
        yield t * LOOPS["fast" if time.perf_counter() // PHASE_S % 2 else "slow"][0]


def take(loader: Any, pauses: Iterator[float], done: Callable[[int, float], bool]) -> tuple[float, list[float]]:
    """Seconds until the loop was done, and those of each `next()`."""
    waits: list[float] = []
    begin = time.perf_counter()
    while not done(len(waits), time.perf_counter() - begin):
        asked = time.perf_counter()
        next(loader)
        waits.append(time.perf_counter() - asked)
        pause = next(pauses)
        if pause > 0:
            time.sleep(pause)
    return time.perf_counter() - begin, waits


def open_loader(shard: str, parameters: dict[str, Any]) -> Any:
    import forebay
    from forebay import _core

    if parameters.pop("asleep"):
        if not hasattr(_core, "_inject_delays"):
            raise SystemExit("--asleep needs a wheel that makes workers sleep: maturin build --locked --profile ci")
        _core._inject_delays(fixed_ms=SLEEP_MS)
        parameters["clip_seconds"] = 0.05
        if parameters["n_workers"] == "auto":
            parameters["cpu_budget"] = SLEEPERS
    return forebay.Loader(shard, **LOADER, **parameters)


def measure(shard: str, loop: str, t: float, seconds: float, parameters: dict[str, Any]) -> Figures:
    with open_loader(shard, parameters) as loader:
        # By then the window is full, and an adaptive loader has measured the loop.
        pauses = steps(loop, t)
        take(loader, pauses, lambda n, elapsed: n >= 10 and elapsed >= 0.5 * seconds)
        before = time.process_time()
        elapsed, waits = take(loader, pauses, lambda _, elapsed: elapsed >= seconds)
        cpu = time.process_time() - before
        stats = loader.stats()
        waits.sort()
        status = Path("/proc/self/status").read_text()
        return {
            "examples_per_s": LOADER["batch_size"] * len(waits) / elapsed,
            "cpu_ms": 1e3 * cpu / (LOADER["batch_size"] * len(waits)),
            "wait_share": sum(waits) / elapsed,
            "wait_p50_ms": 1e3 * waits[len(waits) // 2],
            "wait_p99_ms": 1e3 * waits[len(waits) * 99 // 100],
            "n_workers": stats["n_workers"],
            "prefetch_batches": stats["prefetch_batches"],
            "resident_mb": int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) / 1e3,
        }


def beside_a_step(shard: str, parameters: dict[str, Any]) -> Figures:
    """Time per batch of a loop without work, and of one whose step takes as long as a batch, in turn."""
    blocks: dict[str, list[float]] = {"none": [], "step": []}
    with open_loader(shard, parameters) as loader:
        take(loader, cycle([0.0]), lambda n, _: n == 12)
        for _ in range(5):
            t = 0.0
            for name, taken in blocks.items():
                pauses = cycle([t if name == "step" else 0.0])
                # Batches that were ready come first and are not measured.
                take(loader, pauses, lambda n, _: n == 8)
                t = take(loader, pauses, lambda n, _: n == 24)[0] / 24
                taken.append(t)
    ratios = [step / none for none, step in zip(*blocks.values(), strict=True)]
    return {
        "t_ms": 1e3 * statistics.median(blocks["none"]),
        "batch_ms": 1e3 * statistics.median(blocks["step"]),
        "ratio": statistics.median(ratios),
    }


def run(what: str, *arguments: object) -> Figures:
    """The figures of `what`, from its own process."""
    command = [sys.executable, __file__, "--one", json.dumps([what, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    figures: Figures = json.loads(done.stdout)
    return figures


def medians(rounds: list[dict[Any, Figures]]) -> dict[Any, Figures]:
    names = rounds[0]
    return {
        setting: {key: statistics.median(one[setting][key] for one in rounds) for key in names[setting]}
        for setting in names
    }


def row(*cells: object) -> None:
    print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def table(*columns: str) -> None:
    row(*columns)
    print("|---" + "|---:" * (len(columns) - 1) + "|", flush=True)


def workers(shard: str, t: float, options: argparse.Namespace) -> None:
    print("\n### n_workers\n\nExamples per second, by the loop's step: `none`, 0.8 t, 4 t, and both in turn.\n")
    loops = options.loops
    rounds = [
        {
            (loop, n): run("measure", shard, loop, t, options.seconds, {"n_workers": n, "asleep": options.asleep})
            for loop in loops
            for n in WORKERS
        }
        for _ in range(options.rounds)
    ]
    found = medians(rounds)

    def ratio(loop: str, n: Any, of: Any) -> float:
        """The speed with `n` workers as a multiple of that with `of`."""
        return statistics.median(one[loop, n]["examples_per_s"] / one[loop, of]["examples_per_s"] for one in rounds)

    table("n_workers", *loops, "next() waits", "CPU ms an example", "resident MB")
    for n in WORKERS:
        at_work = ", ".join(f"{found[loop, n]['n_workers']:.0f}" for loop in loops)
        row(
            f"auto ({at_work})" if n == "auto" else n,
            *(f"{found[loop, n]['examples_per_s']:.0f}" for loop in loops),
            ", ".join(f"{found[loop, n]['wait_share']:.0%}" for loop in loops),
            f"{found[loops[0], n]['cpu_ms']:.2f}",
            f"{found[loops[0], n]['resident_mb']:.0f}",
        )
    fixed = [n for n in WORKERS if n != "auto"]
    best = {loop: max(fixed, key=lambda n, loop=loop: found[loop, n]["examples_per_s"]) for loop in loops}
    row("auto / best", *(f"{ratio(loop, 'auto', best[loop]):.2f}" for loop in loops), "", "", "")
    within, beyond = ([n for n in fixed if (n <= options.cores) == is_within] for is_within in (True, False))
    if beyond:
        ratios = [f"{n}: {ratio(loops[0], n, within[-1]):.2f}" for n in beyond]
        print(f"\nMore workers than cores, `{loops[0]}`, of {within[-1]}: {', '.join(ratios)}")


def prefetch(shard: str, t: float, options: argparse.Namespace) -> None:
    print("\n### prefetch_batches\n\nSteady steps of 0.8 t, and uneven ones: three of 0.1 t, one of 3.3 t.\n")
    parameters = {"n_workers": options.cores, "asleep": options.asleep}
    found = medians(
        [
            {
                (loop, n): run("measure", shard, loop, t, options.seconds, parameters | {"prefetch_batches": n})
                for loop in ("fast", "uneven")
                for n in PREFETCH
            }
            for _ in range(options.rounds)
        ]
    )
    batch_mb = LOADER["batch_size"] * 4 * 128 * 501 / 1e6
    table("prefetch_batches", "steady/s", "next() waits", "p99 ms", "uneven/s", "next() waits", "p99 ms", "MB ahead")
    for n in PREFETCH:
        steady, uneven = found["fast", n], found["uneven", n]
        cells = [
            (f"{of['examples_per_s']:.0f}", f"{of['wait_share']:.0%}", f"{of['wait_p99_ms']:.0f}")
            for of in (steady, uneven)
        ]
        reached = [f"{of['prefetch_batches']:.0f}" for of in (steady, uneven)]
        row(
            f"auto ({', '.join(reached)})" if n == "auto" else n,
            *cells[0],
            *cells[1],
            f"{batch_mb * uneven['prefetch_batches']:.0f}",
        )


def step(shard: str, options: argparse.Namespace) -> None:
    print("\n### A step that takes as long as a batch\n")
    settings: list[Any] = [*sorted({1, options.cores}), "auto"]
    found = medians(
        [
            {n: run("beside_a_step", shard, {"n_workers": n, "asleep": options.asleep}) for n in settings}
            for _ in range(options.rounds)
        ]
    )
    table("n_workers", "t, ms per batch", "with a step of t, ms per batch", "ratio")
    for n, figures in found.items():
        row(n, f"{figures['t_ms']:.1f}", f"{figures['batch_ms']:.1f}", f"{figures['ratio']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--asleep", action="store_true")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--loops", nargs="+", choices=WORKERS_LOOPS, default=WORKERS_LOOPS, help="of the first table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, *arguments = json.loads(options.one)
        print(json.dumps({"measure": measure, "beside_a_step": beside_a_step}[what](*arguments)))
        return
    options.cores = SLEEPERS if options.asleep else CORES
    with tempfile.TemporaryDirectory() as folder:
        shard = f"{folder}/recordings.arrow"
        write_shard(Path(shard), 30)
        all_cores = {"n_workers": options.cores, "asleep": options.asleep}
        speed = run("measure", shard, "none", 0.0, options.seconds, all_cores)["examples_per_s"]
        t = LOADER["batch_size"] / speed
        asleep = f", workers asleep {SLEEP_MS} ms a record" if options.asleep else ""
        print(
            f"{CORES} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}; t is {1e3 * t:.1f} ms{asleep}."
        )
        if "workers" in options.only:
            workers(shard, t, options)
        if "prefetch" in options.only:
            prefetch(shard, t, options)
        if "step" in options.only:
            step(shard, options)


if __name__ == "__main__":
    main()
