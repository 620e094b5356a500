"""Random batches of tokens: `forebay.cache.DataLoader`, a memory-mapped file, and tensorstore on the same cache.

python benches/cache_datasets.py [--rows 32] [--length 2048] [--tokens 268435456] [--seconds 3] [--folder FOLDER]

Documents of 100 to 4000 tokens are written once as a cache and once as a plain file of int32. All read the same windows
in the same order with a warm page cache: a permutation of all windows, in batches of `rows x length`.

- `mapped`: `np.memmap`, rows copied one by one into an array, in the loop's thread. No format at all.
- `tensorstore`: all rows of a batch as one `ts.Batch`, as the reference design reads.
- `forebay`: the loader with 2 threads. Its first batch after a seek, and the index mapping through Python, follow.

A loop without work takes batches as fast as they come. Runs of all alternate; the median of five is shown.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from forebay.cache import CacheDataset, DataLoader, MixtureDataset, PermutationDataset, TokenSeqDataset, build

RUNS = 5


def documents(tokens: int) -> Iterator[dict[str, Any]]:
    """Documents with at least the requested number of tokens."""
    generator = np.random.default_rng(1)
    while tokens > 0:
        document = generator.zipf(1.2, generator.integers(100, 4000)) % 50_257
        tokens -= len(document)
        yield {"input_ids": document.astype(np.int32)}


def mapped(path: Path, order: np.ndarray[Any, Any], rows: int, length: int) -> Iterator[Any]:
    flat = np.memmap(path, np.int32, "r")
    while True:
        for begin in range(0, len(order) - rows, rows):
            batch = np.empty((rows, length), np.int32)
            for row, window in enumerate(order[begin : begin + rows].tolist()):
                batch[row] = flat[window * length : (window + 1) * length]
            yield batch


def tensorstore(path: Path, order: np.ndarray[Any, Any], rows: int, length: int) -> Iterator[Any]:
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    data = ts.open(spec, context=ts.Context({"cache_pool": {"total_bytes_limit": 1 << 30}})).result()
    while True:
        for begin in range(0, len(order) - rows, rows):
            with ts.Batch() as batch:
                reads = [
                    data[w * length : (w + 1) * length].read(batch=batch) for w in order[begin : begin + rows].tolist()
                ]
            yield np.stack([read.result() for read in reads])


def rate(batches: Iterator[Any], seconds: float, tokens: int) -> float:
    """Tokens a second, after a first batch."""
    next(batches)
    begin, n = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        next(batches)
        n += 1
    return n * tokens / elapsed


def endless(loader: DataLoader) -> Iterator[Any]:
    while True:
        yield from loader


def mapping(dataset: Any, n: int) -> float:
    """Nanoseconds an index, in batches of 1024 consecutive positions."""
    times = []
    for begin in range(0, min(n, 1 << 18) - 1024, 1024):
        positions = np.arange(begin, begin + 1024)
        start = time.perf_counter()
        dataset.locate(positions)
        times.append((time.perf_counter() - start) / 1024 * 1e9)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=1 << 28)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, help="where the cache and the file are kept; else made and removed")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="forebay-datasets-"))
    flat, cache = folder / "tokens.bin", folder / "cache"
    if not flat.exists():
        build({"documents": list(documents(options.tokens))}, None, cache)
        with flat.open("wb") as file:
            for document in documents(options.tokens):
                document["input_ids"].tofile(file)
    windows = TokenSeqDataset(CacheDataset(cache), options.length)
    permuted = PermutationDataset(windows, 1)
    n = len(windows)
    order = permuted.locate(np.arange(n))[1]
    loader = DataLoader(permuted, options.rows, n_workers=2, prefetch_batches=4)
    readers: dict[str, Callable[[], Iterator[Any]]] = {
        "mapped": lambda: mapped(flat, order, options.rows, options.length),
        "tensorstore": lambda: tensorstore(cache / "train/input_ids/data", order, options.rows, options.length),
        "forebay": lambda: endless(loader),
    }
    first = next(mapped(flat, order, options.rows, options.length))
    np.testing.assert_array_equal(next(endless(loader))["input_ids"], first)
    np.testing.assert_array_equal(next(readers["tensorstore"]()), first)
    found: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(RUNS):
        for name, make in readers.items():
            found[name].append(rate(make(), options.seconds, options.rows * options.length))
    print(
        f"{n} windows of {options.length} tokens, batches of {options.rows}, Mtokens/s (median, least, most of {RUNS})"
    )
    for name, rates in found.items():
        print(f"| {name} | {statistics.median(rates) / 1e6:.0f} | {min(rates) / 1e6:.0f} | {max(rates) / 1e6:.0f} |")

    seeks = []
    generator = np.random.default_rng(2)
    for step in generator.integers(0, len(loader), 50).tolist():
        begin = time.perf_counter()
        loader.seek(step)
        next(loader)
        seeks.append((time.perf_counter() - begin) * 1e3)
    print(f"first batch after a seek, ms: median {statistics.median(seeks):.1f}, most {max(seeks):.1f} of {len(seeks)}")
    begin = time.perf_counter()
    with DataLoader(permuted, options.rows, start_step=len(loader) // 2) as late:
        next(late)
    print(f"a new loader at a step, ms: {(time.perf_counter() - begin) * 1e3:.1f}")
    sources = {"a": permuted, "b": PermutationDataset(windows, 2)}
    mixture = MixtureDataset(sources, {"a": 3, "b": 1}, 1024)
    trees = {
        "windows": windows,
        "permutation": permuted,
        "eras of 8192": windows.era_shuffle(8192, 1),
        "mixture of 2 permutations": mixture,
        "eras of 8192 of that mixture": mixture.era_shuffle(8192, 1),
    }
    for name, tree in trees.items():
        print(f"mapping through Python, {name}: {mapping(tree, n):.0f} ns an index")
    loader.close()
    if options.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
