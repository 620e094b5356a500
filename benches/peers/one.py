"""Runs one peer in this process and prints one JSON line; `run.py` starts it for every cell of the table.

`python -m peers.one NAME --files A B --options '{"n_workers": 2}' --seconds 4`

With `--steps N` it measures `next()` in a training loop as well. Its steps take SLACK times as long as the peer needs
for a batch, and this process sleeps in them, as it does while an accelerator works. A loader that prepares batches
evenly never lets such a loop wait.
"""

import argparse
import importlib
import json
import os
import statistics
import sys
import time

from peers.work import BATCH_SIZE, N_FRAMES, N_MELS

LEAST_BATCHES = 6
SLACK = 1.25
STEPS_BEFORE = 10  # of the loop, not counted: the loader's queues fill during them


def spectrogram_of(batch):
    """The batch's `[BATCH_SIZE, N_MELS, N_FRAMES]`, under any of the peers' names."""
    return batch["spectrogram"] if isinstance(batch, dict) else batch[0]


def check(spectrogram) -> None:
    """Raises if the batch is not the expected work."""
    import numpy as np

    values = np.asarray(spectrogram)
    if values.shape != (BATCH_SIZE, N_MELS, N_FRAMES) or values.dtype != np.float32:
        raise ValueError(f"a batch is {values.dtype} {values.shape}, expected float32 {(BATCH_SIZE, N_MELS, N_FRAMES)}")
    if not np.isfinite(values).all():
        raise ValueError("a batch holds values that are not finite")


def glance(spectrogram) -> float:
    """The mean of a few hundred values of the batch: cheap, and over a run all peers must agree on it."""
    return float(spectrogram[:, ::16, ::100].mean())


def waits_of(batches, step: float, n_steps: int) -> list[float]:
    """Seconds of each `next()` of a loop whose steps take `step` seconds, smallest first."""
    waits = []
    for _ in range(STEPS_BEFORE + n_steps):
        time.sleep(step)
        before = time.perf_counter()
        next(batches)
        waits.append(time.perf_counter() - before)
    return sorted(waits[STEPS_BEFORE:])


def measure(name: str, files: list[str], options: dict, seconds: float, warm_up: float, n_steps: int) -> dict:
    started = time.perf_counter()
    peer = importlib.import_module(f"peers.{name}")
    imported = time.perf_counter()
    batches = iter(peer.batches(files, seed=1, **options))
    batch = next(batches)
    first = time.perf_counter()
    check(spectrogram_of(batch))

    # Whole batches only; those queued during the start are taken before the clock starts.
    while time.perf_counter() < first + warm_up:
        batch = next(batches)
    begin = end = time.perf_counter()
    means = []
    while end < begin + seconds or len(means) < LEAST_BATCHES:
        batch = next(batches)
        means.append(glance(spectrogram_of(batch)))
        end = time.perf_counter()
    result = {
        "examples_per_s": len(means) * BATCH_SIZE / (end - begin),
        "import_s": imported - started,
        "first_batch_s": first - imported,
        "mean": sum(means) / len(means),
    }
    if n_steps:
        step = SLACK * (end - begin) / len(means)
        waits = waits_of(batches, step, n_steps)
        deciles = statistics.quantiles(waits, n=10)
        result |= {"step_s": step, "median_wait_s": deciles[4], "late_wait_s": deciles[8], "longest_wait_s": waits[-1]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--files", nargs="+", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--steps", type=int, default=0, help="of a training loop behind the measurement")
    arguments = parser.parse_args()
    result = measure(
        arguments.name, arguments.files, arguments.options, arguments.seconds, arguments.warm_up, arguments.steps
    )
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # some peers hang at exit; the measurement is over, so the exit is skipped


if __name__ == "__main__":
    main()
