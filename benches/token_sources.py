"""Delivered tokens/s of `forebay.TokenLoader` from the same documents in each format, beside Parquet of text.

`python benches/token_sources.py corpus --ranks gpt2.tiktoken` writes the documents of a folder of Parquet files again
in a temporary folder: as JSON lines, plain and compressed, as Arrow, and as ids. Formats alternate, and the table has
medians.
"""

import argparse
import gzip
import itertools
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay
from forebay.text import Documents, Ids
from forebay.tokens import Tokenizer

BOS = 50256


def lines(texts: list[str]) -> bytes:
    return "".join(
        json.dumps({"id": at, "text": text}, ensure_ascii=False) + "\n" for at, text in enumerate(texts)
    ).encode()


def write_arrow(path: Path, texts: list[str]) -> None:
    table = pa.table({"text": texts})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=256)


def write_zstd(path: Path, texts: list[str]) -> None:
    with path.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(lines(texts))


def write_lists(path: Path, ids: list[np.ndarray]) -> None:
    table = pa.table({"input_ids": pa.array([list(one) for one in ids], pa.list_(pa.int32()))})
    pq.write_table(table, path, row_group_size=256, compression="zstd")


def write_indexed(path: Path, ids: list[np.ndarray]) -> None:
    """A pair of files as Megatron-LM writes it, of uint16."""
    lengths = np.array([len(one) for one in ids], "<i4")
    places = np.concatenate([[0], np.cumsum(lengths[:-1], dtype="<i8")]).astype("<i8") * 2
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(ids), len(ids) + 1)
    bounds = np.arange(len(ids) + 1, dtype="<i8")
    path.with_suffix(".idx").write_bytes(head + lengths.tobytes() + places.tobytes() + bounds.tobytes())
    path.write_bytes(np.concatenate(ids).astype("<u2").tobytes())


TEXTS: dict[str, tuple[str, Callable[[Path, list[str]], Any]]] = {
    "Parquet": ("parquet", lambda path, texts: pq.write_table(pa.table({"text": texts}), path, row_group_size=256)),
    "Arrow": ("arrow", write_arrow),
    "JSON lines": ("jsonl", lambda path, texts: path.write_bytes(lines(texts))),
    "JSON lines, zstd": ("jsonl.zst", write_zstd),
    "JSON lines, gzip": ("jsonl.gz", lambda path, texts: path.write_bytes(gzip.compress(lines(texts), 6))),
}
IDS: dict[str, tuple[str, Callable[[Path, list[np.ndarray]], Any]]] = {
    "ids, Parquet of int32": ("parquet", write_lists),
    "ids, .bin and .idx of uint16": ("bin", write_indexed),
}


def documents(corpus: Path) -> Iterator[list[str]]:
    for path in sorted(corpus.glob("*.parquet")):
        yield [text for text in pq.read_table(path, columns=["text"])["text"].to_pylist() if text]


def rate(make: Callable[[], forebay.TokenLoader], args: argparse.Namespace) -> float:
    with make() as loader:
        batches = iter(loader)
        for _ in itertools.islice(batches, args.warm):
            pass
        start = time.perf_counter()
        n = sum(batch["inputs"].size for batch in itertools.islice(batches, args.batches))
        return n / (time.perf_counter() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a folder of Parquet files with a column `text`")
    parser.add_argument("--ranks", type=Path, required=True, help="gpt2.tiktoken")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--warm", type=int, default=30, help="batches before the clock starts")
    parser.add_argument("--batches", type=int, default=150, help="batches that are timed")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()

    given: dict[str, Any] = {"batch_size": 32, "seq_len": 2048, "val": [], "n_workers": args.workers, "worker_nice": 0}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Tokenizer(args.ranks)
        paths: dict[str, list[Path]] = {}
        for number, texts in enumerate(documents(args.corpus)):
            ids = [np.array(one) for one in tokenizer.encode_batch(texts, n_threads=2)]
            for name, (ending, write) in (TEXTS | IDS).items():
                path = Path(folder, name.replace(" ", "-"), f"{number}.{ending}")
                path.parent.mkdir(exist_ok=True)
                write(path, texts if name in TEXTS else ids)
                paths.setdefault(name, []).append(path)
        makers: dict[str, Callable[[], forebay.TokenLoader]] = {}
        for fit in ("drop", "carry"):
            for name in TEXTS:
                source = Documents(paths[name])
                makers[f"{name}, {fit}"] = lambda source=source, fit=fit: forebay.TokenLoader(
                    source, args.ranks, fit=fit, **given
                )
            for name in IDS:
                ids_source = Ids(paths[name])
                makers[f"{name}, {fit}"] = lambda source=ids_source, fit=fit: forebay.TokenLoader(
                    source, bos_id=BOS, fit=fit, **given
                )
        rates: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(args.runs):
            for name, make in makers.items():
                rates[name].append(rate(make, args))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; median of {args.runs} interleaved turns\n")
    print("| source | delivered M tokens/s | of Parquet |")
    print("|---|--:|--:|")
    for name, found in rates.items():
        beside = statistics.median(rates[f"Parquet, {name.rpartition(', ')[2]}"])
        print(f"| {name} | {statistics.median(found):.1f} | {statistics.median(found) / beside:.2f} |")


if __name__ == "__main__":
    main()
