"""`AudioDataset.get_batch` beside a `Loader`: the time of a batch of OGG crops, in turns in one run.

    python benches/access.py [--rows 2000] [--batch 64] [--seconds 5] [--rounds 10] [--threads 2]

The recordings are those of tests/data, OGG Vorbis only, repeated. The loader reads them in the order `global`, with as
many workers as the dataset has threads. Each round takes some batches of both, in turns; the table has the median and
the 10th percentile of the rounds, for a batch and for a single row, and the ratio of the medians.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

import forebay

# In place of this folder, whose scripts have names of libraries.
sys.path[0] = str(Path(__file__).parents[1] / "tests" / "python" / "helpers")
from recordings import read_rows, write_shard  # noqa: E402

AHEAD, TIMED = 5, 8
"""Calls of each turn that are not timed, and those that are."""


def timed(call: Callable[[], object]) -> float:
    """The time of a call in milliseconds."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="AudioDataset.get_batch beside a Loader.")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows = [row for row in read_rows() if (row.audio or b"").startswith(b"OggS")]
    assert rows, "no OGG recordings"
    with tempfile.TemporaryDirectory() as folder:
        shard = write_shard(Path(folder) / "ogg.arrow", islice(cycle(rows), options.rows), rows_per_batch=100)
        same: dict[str, Any] = {"clip_seconds": options.seconds}
        order: dict[str, Any] = {
            "order": "global",
            "batch_size": options.batch,
            "shuffle_min_size": 1,
            "shuffle_buffer_size": 1,
        }
        loader = forebay.Loader(str(shard), n_workers=options.threads, **order, **same)
        dataset = forebay.AudioDataset(str(shard), crop=forebay.crops.Random(), n_threads=options.threads, **same)
        random = np.random.default_rng(0)

        def of_loader() -> None:
            next(loader)

        def of_dataset() -> None:
            dataset.get_batch(random.integers(0, len(dataset), options.batch))

        def one() -> None:
            dataset[int(random.integers(0, len(dataset)))]

        times = []
        for _ in range(options.rounds):
            # Untimed first: the loader's batches made ahead, and the time in which it makes them again.
            by_turn = [[timed(call) for _ in range(AHEAD + TIMED)][AHEAD:] for call in (of_loader, of_dataset)]
            times.append([*map(np.mean, by_turn), np.mean([timed(one) for _ in range(TIMED)])])
        print(f"{len(rows)} OGG recordings, batches of {options.batch}, {options.threads} threads, ms")
        counted = np.array(times)
        for name, column in zip(("Loader, a batch", "get_batch", "dataset[i]"), counted.T, strict=True):
            print(f"{name:18} median {np.median(column):8.2f}   10th percentile {np.percentile(column, 10):8.2f}")
        median = np.median(counted, axis=0)
        print(f"get_batch / Loader {median[1] / median[0]:.3f}")


if __name__ == "__main__":
    main()
