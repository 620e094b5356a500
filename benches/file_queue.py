"""Cost of `DatasetConsumer.get_batch` compared with a plain reader of the same files, in us a batch.

python benches/file_queue.py [REPEATS]

The plain reader is the usual loop: oldest file, `torch.load`, slices, remove at the end. Both run in turn on copies of
the same files; between two batches the loop computes for STEP_MS, as a training step would.
"""

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from forebay.queue import DataProviderBase, DatasetConsumer

STEP_MS = 1.0
FILES, BATCHES = 10, 100
BATCH_SIZE = 32

Next = Callable[[], Any]


class Tokens(DataProviderBase):
    """Random tokens: x and y, int64."""

    def build_meta(self) -> dict[str, Any]:
        assert self.block_size
        fields = [{"name": name, "dtype": "int64", "shape": [self.block_size]} for name in "xy"]
        return {
            "dataset_name": "tokens",
            "training_type": "LM",
            "batch_size": self.batch_size,
            "batch_schema": fields,
            "split_info": {},
            "vocab_size": 50_000,
            "block_size": self.block_size,
        }

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, Any]:
        del split
        row = torch.randint(50_000, (self.batch_size, self.block_size + 1), generator=rng)
        return {"x": row[:, :-1], "y": row[:, 1:]}


def ours(folder: Path) -> Iterator[Next]:
    with DatasetConsumer(folder, "cpu") as queue:
        yield lambda: queue.get_batch("train", "cpu", timeout=60)


def plain(folder: Path) -> Iterator[Next]:
    def batches() -> Iterator[Any]:
        for path in sorted((folder / "queue" / "train").glob("*.pt")):
            tensors = torch.load(path, weights_only=True)["tensors"]
            for start in range(0, len(tensors["x"]), BATCH_SIZE):
                yield tensors["x"][start : start + BATCH_SIZE], tensors["y"][start : start + BATCH_SIZE]
            path.unlink()

    iterator = batches()
    yield lambda: next(iterator)


def measure(reader: Callable[[Path], Iterator[Next]], block_size: int) -> list[float]:
    """The time of each call, in us, without the first file, which no other file precedes."""
    times = []
    with tempfile.TemporaryDirectory() as name:
        provider = Tokens(name, BATCH_SIZE, block_size, batches_per_file=BATCHES)
        provider.ensure_dirs()
        provider.write_meta()
        for seq in range(FILES):
            provider.produce_one_file("train", seq)
        for next_batch in reader(Path(name)):
            for _ in range(FILES * BATCHES):
                until = time.perf_counter() + STEP_MS / 1000
                start = time.perf_counter()
                batch = next_batch()
                times.append((time.perf_counter() - start) * 1e6)
                while time.perf_counter() < until:
                    batch[0].sum()  # lets go of the GIL, as a step does
    return times[BATCHES:]


def main() -> None:
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, step {STEP_MS} ms\n")
    print("| file | reader | median | p99 | p99.9 | mean at a boundary |\n|---:|---|---:|---:|---:|---:|")
    for block_size in (64, 512):
        found: dict[str, list[list[float]]] = {"forebay": [], "plain": []}
        for _ in range(repeats):
            found["forebay"].append(measure(ours, block_size))
            found["plain"].append(measure(plain, block_size))
        size = f"{2 * 8 * BATCHES * BATCH_SIZE * block_size / 1e6:.1f} MB"
        for name, runs in found.items():
            quantiles = [statistics.quantiles(run, n=1000) for run in runs]
            row = [statistics.median(run[at] for run in quantiles) for at in (499, 989, 998)]
            boundary = statistics.median(statistics.mean(run[::BATCHES]) for run in runs)
            print(f"| {size} | {name} | {' | '.join(f'{value:.0f}' for value in [*row, boundary])} |")


if __name__ == "__main__":
    main()
