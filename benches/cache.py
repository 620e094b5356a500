"""The cache compared with its alternatives, on the same tokens: builds, and random windows of tokens.

    python benches/cache.py [--tokens 200e6] [--folder DIR]

Needs numpy, pyarrow, zarr and tensorstore. Rates are M tokens/s, medians of interleaved rounds, the page cache warm.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorstore
import zarr

from forebay import cache

VOCABULARY = 50_257
LENGTH = 2048
BATCH = 32
THREADS = 2
ROUNDS = 5


def shards(folder: Path, n_tokens: int, n_shards: int = 4) -> list[Path]:
    """Documents of 50 to 2000 ids as int32, as tokenized data is stored in Parquet."""
    rng = np.random.default_rng(0)
    paths = []
    for at in range(n_shards):
        lengths = rng.integers(50, 2000, n_tokens // n_shards // 1025)
        ids = pa.array(rng.integers(0, VOCABULARY, lengths.sum(), dtype=np.int32))
        offsets = pa.array(np.r_[0, np.cumsum(lengths)].astype(np.int32))
        paths.append(folder / f"{at}.parquet")
        table = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, ids)})
        pq.write_table(table, paths[-1], row_group_size=2000, use_dictionary=False, compression="none")
    return paths


def rate(read: Callable[[int], Any], starts: np.ndarray[Any, Any], n_threads: int) -> float:
    """M tokens/s of `read(start)` for all starts."""
    parts = np.array_split(starts, n_threads)

    def work(part: np.ndarray[Any, Any]) -> None:
        for start in part.tolist():
            read(start)

    begin = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, parts))
    return len(starts) * LENGTH / (time.perf_counter() - begin) / 1e6


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, default=100e6)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        paths = shards(folder, int(options.tokens))
        builds = []
        for compression in ("none", "none", "none", "zstd"):
            begin = time.perf_counter()
            store = cache.build(
                paths,
                None,
                folder / compression,
                fields={"input_ids": "uint16"},
                compression=compression,
                overwrite=True,
            )
            seconds = time.perf_counter() - begin
            n = len(store.flat("input_ids"))
            builds.append((compression, n / seconds / 1e6))
        print(f"build, {n / 1e6:.0f} M pre-tokenised, M tokens/s:", [(name, round(found)) for name, found in builds])

        flat = store.flat("input_ids")
        flat.tofile(folder / "tokens.bin")
        raw = np.memmap(folder / "tokens.bin", np.uint16, "r")
        name = "train/input_ids/data"
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "none" / name)}}
        store_ts = tensorstore.open(spec, open=True).result()
        array = zarr.open_group(folder / "none", mode="r")[name]
        packed = cache.TreeStore(folder / "zstd")
        plain = cache.TreeStore(folder / "none")
        readers: dict[str, tuple[Callable[[int], Any], int]] = {
            "forebay": (lambda start: plain.flat("input_ids", start, start + LENGTH), 20_000),
            "forebay, zstd": (lambda start: packed.flat("input_ids", start, start + LENGTH), 5_000),
            "raw memory-mapped file": (lambda start: raw[start : start + LENGTH].copy(), 20_000),
            "tensorstore": (lambda start: store_ts[start : start + LENGTH].read().result(), 1_000),
            "zarr-python": (lambda start: array[start : start + LENGTH], 100),
        }
        rng = np.random.default_rng(1)
        found: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(ROUNDS):
            for label, (read, n_reads) in readers.items():
                starts = rng.integers(0, len(flat) - LENGTH, n_reads)
                assert np.array_equal(read(int(starts[0])), flat[starts[0] : starts[0] + LENGTH]), label
                found[label].append(rate(read, starts, THREADS))
        print(f"windows of {LENGTH} at random, {THREADS} threads, M tokens/s:")
        for label, rates in found.items():
            print(f"  {label:24} {statistics.median(rates):8.1f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
