"""Providers for tests of `forebay.queue`, and their expected batches."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from forebay.queue import DataProviderBase, DatasetConsumer
from forebay.queue.tensors import save
from timing import eventually as eventually

WIDTH = 4
PAUSE_S = 0.01


class Numbers(DataProviderBase):
    """A provider of random 40-bit numbers `x` and `y = x + 1`; making a batch takes `pause_s` seconds."""

    pause_s = 0.0
    sampled = 0

    def build_meta(self) -> dict[str, Any]:
        return meta(self.batch_size)

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, Any]:
        del split
        self.sampled += 1
        if self.pause_s:
            time.sleep(self.pause_s)
        x = torch.randint(2**40, (self.batch_size, WIDTH), generator=rng)
        return {"x": x, "y": x + 1}


def meta(batch_size: int = 4, **changes: Any) -> dict[str, Any]:
    """A complete meta with `changes`; None removes a key."""
    fields = [{"name": name, "dtype": "int64", "shape": [WIDTH]} for name in "xy"]
    complete = {
        "dataset_name": "numbers",
        "training_type": "LM",
        "batch_size": batch_size,
        "batch_schema": fields,
        "split_info": {"train": {}, "val": {}},
        "vocab_size": 2**40,
        "block_size": WIDTH,
    }
    return {key: value for key, value in {**complete, **changes}.items() if value is not None}


def numbers(folder: Path, batches_per_file: int = 3, batch_size: int = 4, **parameters: Any) -> Numbers:
    """A provider of numbers in a new or existing folder."""
    return Numbers(folder, batch_size, batches_per_file=batches_per_file, sleep_seconds=PAUSE_S, **parameters)


def filled(folder: Path, n_files: int = 3, split: str = "train", **parameters: Any) -> Numbers:
    """A provider that has written `n_files` files of a split."""
    provider = numbers(folder, **parameters)
    fill(provider, n_files, split)
    return provider


def fill(provider: DataProviderBase, n_files: int = 1, *splits: str) -> None:
    """Writes the meta and `n_files` files of each split (default: train)."""
    provider.ensure_dirs()
    provider.write_meta()
    for split in splits or ("train",):
        for seq in range(n_files):
            provider.produce_one_file(split, seq)


def consumer(folder: Path, **parameters: Any) -> DatasetConsumer:
    return DatasetConsumer(folder, "cpu", **parameters)


def names(folder: Path, split: str = "train") -> list[str]:
    """The sorted names in a split's folder."""
    return sorted(path.name for path in (folder / "queue" / split).iterdir())


def first(batch: Any) -> int:
    """The first number of a batch of `Numbers`, which identifies the batch."""
    x, y = batch
    assert torch.equal(x + 1, y)
    return int(x[0, 0])


def expected(provider: DataProviderBase, seqs: range, split: str = "train") -> list[int]:
    """The first number of each batch of the files `seqs`."""
    return [int(batch["x"][0, 0]) for seq in seqs for batch in provider.sample_file(split, seq)]


def take(queue: DatasetConsumer, n: int, split: str = "train", timeout: float | None = 120) -> list[int]:
    return [first(queue.get_batch(split, "cpu", timeout)) for _ in range(n)]


@contextmanager
def running(provider: DataProviderBase, **parameters: Any) -> Iterator[None]:
    """Runs a provider in a thread, stops it at the end, and raises its exception."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            provider.run(**parameters)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        provider.stop()
        thread.join()
    if errors:
        raise errors[0]


def path_of(folder: Path, index: int) -> Path:
    return folder / "queue" / "train" / names(folder)[index]


def write(folder: Path, name: str = "1700000000000-000000-2.pt", **changes: Any) -> Path:
    """Writes a file of two batches of 4 whose tensors or metadata have `changes`; None removes a key."""
    x = torch.arange(32).view(8, 4)
    tensors = changes.pop("tensors", {"x": x, "y": x + 1})
    metadata = {
        "batch_size": 4,
        "num_batches": 2,
        "file_idx": 0,
        "split": "train",
        "produced_at": 1,
        "schema": meta()["batch_schema"],
    }
    changed = {key: value for key, value in {**metadata, **changes}.items() if value is not None}
    path = folder / "queue" / "train" / name
    with path.open("wb") as file:
        save(file, {"metadata": changed, "tensors": tensors})
    return path
