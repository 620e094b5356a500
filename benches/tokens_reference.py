"""Delivered tokens/s, waste and utilisation of forebay.TokenLoader and of the reference's algorithm, in one run.

    python benches/tokens_corpus.py build/web-like TEXT...
    python benches/tokens_reference.py build/web-like --ranks gpt2.tiktoken

The reference side is our own implementation of a loader in common use (nanochat's, best fit): row groups by pyarrow,
tiktoken's `encode_ordinary_batch` on 128 documents at a time, a list of at least 1000 documents, a linear scan for
each pick, rows in an int64 buffer, copied into one `[inputs | targets]` buffer. Buffers are torch's where torch is
installed, as there, else numpy's. Each turn makes a loader, takes `--warm` batches to fill the buffer, and times the
next ones. Sides alternate, and the table has medians. With `crop="drop"` the first batch is compared with the
reference's, token by token.

Waste has two columns: tokens cropped and dropped, as a share of those that left the buffer; and tokens tokenised but
not delivered, which adds those in the buffer. With the number of batches the first rises and the second falls. A
loader that makes batches ahead begins its timed part with those: with 100 batches, a few per cent.
"""

import argparse
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tiktoken
from tiktoken.load import load_tiktoken_bpe

try:
    import torch
except ImportError:
    torch = None
try:
    import forebay
except ImportError:
    forebay = None

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

BOS = 50256


class Counts:
    """Tokens that went in, and what they became."""

    def __init__(self) -> None:
        self.tokenised: float = 0
        self.delivered: float = 0
        self.dropped: float = 0
        self.held: float = 0


class Reference:
    """The reference's loader, with counts."""

    def __init__(self, tokenizer: tiktoken.Encoding, args: argparse.Namespace, n_threads: int) -> None:
        self.files, self.tokenizer, self.n_threads = args.files[:-1], tokenizer, n_threads
        self.batch_size, self.seq_len, self.buffer_size = args.batch_size, args.seq_len, args.buffer_size
        self.counts = Counts()

    def close(self) -> None:
        pass

    def document_batches(self) -> Iterator[list[str]]:
        while True:
            for path in self.files:
                file = pq.ParquetFile(path)
                for group in range(file.num_row_groups):
                    texts = file.read_row_group(group).column("text").to_pylist()
                    for at in range(0, len(texts), 128):
                        yield texts[at : at + 128]

    def __iter__(self) -> Iterator[tuple[object, object]]:
        rows, seq_len, counts = self.batch_size, self.seq_len, self.counts
        capacity = seq_len + 1
        bos = self.tokenizer.encode_single_token("<|endoftext|>")
        batches = self.document_batches()
        buffer: list[list[int]] = []

        def refill() -> None:
            documents = self.tokenizer.encode_ordinary_batch(next(batches), num_threads=self.n_threads)
            for ids in documents:
                ids.insert(0, bos)
                counts.tokenised += len(ids)
                buffer.append(ids)

        if torch is not None:
            row_buffer = torch.empty((rows, capacity), dtype=torch.long)
            both = torch.empty(2 * rows * seq_len, dtype=torch.long)
            tensor = lambda ids: torch.tensor(ids, dtype=torch.long)  # noqa: E731
            copy = lambda to, what: to.copy_(what)  # noqa: E731
        else:
            row_buffer = np.empty((rows, capacity), dtype=np.int64)
            both = np.empty(2 * rows * seq_len, dtype=np.int64)
            tensor = lambda ids: np.array(ids, dtype=np.int64)  # noqa: E731
            copy = np.copyto
        inputs = both[: rows * seq_len].reshape(rows, seq_len)
        targets = both[rows * seq_len :].reshape(rows, seq_len)

        while True:
            for row in range(rows):
                at = 0
                while at < capacity:
                    while len(buffer) < self.buffer_size:
                        refill()
                    room = capacity - at
                    best, best_len = -1, 0
                    for index, ids in enumerate(buffer):
                        length = len(ids)
                        if length <= room and length > best_len:
                            best, best_len = index, length
                    if best >= 0:
                        ids = buffer.pop(best)
                        row_buffer[row, at : at + best_len] = tensor(ids)
                        at += best_len
                    else:
                        shortest = min(range(len(buffer)), key=lambda index: len(buffer[index]))
                        ids = buffer.pop(shortest)
                        row_buffer[row, at : at + room] = tensor(ids[:room])
                        counts.dropped += len(ids) - room
                        at += room
            copy(inputs, row_buffer[:, :-1])
            copy(targets, row_buffer[:, 1:])
            counts.delivered += rows * capacity
            counts.held = counts.tokenised - counts.delivered - counts.dropped
            yield inputs, targets


class Forebay:
    """forebay.TokenLoader, with the same counts."""

    def __init__(self, args: argparse.Namespace, crop: str) -> None:
        self.capacity = args.seq_len + 1
        self.loader = forebay.TokenLoader(
            [str(file) for file in args.files],  # the last is validation
            str(args.ranks),
            batch_size=args.batch_size,
            seq_len=args.seq_len,
            buffer_size=args.buffer_size,
            n_workers=args.workers,
            crop=crop,
        )
        self.counts = Counts()

    def close(self) -> None:
        # The packer's counts, which are a few batches ahead of those handed out.
        packing = self.loader.stats().get("packing", {})
        self.counts.dropped, self.counts.held = packing.get("dropped", math.nan), packing.get("tokens", math.nan)
        self.counts.tokenised = self.counts.delivered + self.counts.dropped + self.counts.held
        self.loader.close()

    def __iter__(self) -> Iterator[tuple[object, object]]:
        for batch in self.loader:
            self.counts.delivered += batch["inputs"].shape[0] * self.capacity
            yield batch["inputs"], batch["targets"]


def turn(side: Reference | Forebay, args: argparse.Namespace) -> dict[str, object]:
    """One loader from its first batch on."""
    start = time.perf_counter()
    batches = iter(side)
    first_rows = [np.array(array) for array in next(batches)]
    first = time.perf_counter() - start
    assert (first_rows[0][:, 0] == BOS).all(), "a row does not begin with BOS"
    for _ in range(args.warm - 1):
        next(batches)
    start = time.perf_counter()
    for _ in range(args.batches):
        inputs, _ = next(batches)
        inputs[0, 0]
    seconds = time.perf_counter() - start
    side.close()
    return {
        "rate": args.batches * args.batch_size * args.seq_len / seconds / 1e6,
        "first": first,
        "rows": first_rows,
        "dropped": 100 * side.counts.dropped / (side.counts.dropped + side.counts.delivered),
        "undelivered": 100 * (1 - side.counts.delivered / side.counts.tokenised),
        "held": side.counts.held / 1e6,
        "utilisation": 100 * (first_rows[1] >= 0).mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "corpus", type=Path, help="a folder of Parquet files with a column `text`; the last is left out"
    )
    parser.add_argument("--ranks", type=Path, required=True, help="gpt2.tiktoken")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--buffer-size", type=int, default=1000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4], help="of the reference's tokenizer")
    parser.add_argument("--workers", type=int, default=2, help="of forebay")
    parser.add_argument("--warm", type=int, default=20, help="batches before the clock starts")
    parser.add_argument("--batches", type=int, default=100, help="batches that are timed")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()

    args.files = sorted(args.corpus.glob("*.parquet"))
    if len(args.files) < 2:
        parser.error(f"{args.corpus} has {len(args.files)} Parquet files; expected at least 2, the last is left out")
    tokenizer = tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks=load_tiktoken_bpe(str(args.ranks)),
        special_tokens={"<|endoftext|>": BOS},
    )

    sides: dict[str, Callable[[], Reference | Forebay]] = {}
    for n in args.threads:
        sides[f"reference, {n} tokenizer thread{'s' * (n > 1)}"] = lambda n=n: Reference(tokenizer, args, n)
    if hasattr(forebay, "TokenLoader"):
        for crop in ["drop", "carry"]:
            sides[f'forebay, crop="{crop}", {args.workers} workers'] = lambda crop=crop: Forebay(args, crop)
    else:
        print("no forebay.TokenLoader here: the reference alone\n")

    names = list(sides)
    results: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for run in range(args.runs):
        for name in names[run % len(names) :] + names[: run % len(names)]:
            results[name].append(turn(sides[name](), args))
    expected = results[names[0]][0]["rows"]
    for name in names:
        if "carry" not in name:
            for ours, theirs in zip(results[name][0]["rows"], expected, strict=True):
                assert (np.asarray(ours) == theirs).all(), f"the first batch of {name} differs from the reference's"

    def median(name: str, what: str) -> float:
        return statistics.median(result[what] for result in results[name])

    best = max(median(name, "rate") for name in names if name.startswith("reference"))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {len(args.files)} shards, "
        f"batches of {args.batch_size} x {args.seq_len}, buffer of {args.buffer_size}; median of {args.runs} "
        f"interleaved turns of {args.batches} batches after {args.warm}; "
        f"reference with {'torch' if torch else 'numpy'}\n"
    )
    columns = {
        "rate": "delivered M tokens/s",
        "ratio": "of the best reference",
        "first": "first batch, s",
        "dropped": "dropped, %",
        "undelivered": "tokenised, not delivered, %",
        "held": "held, M tokens",
        "utilisation": "utilisation, %",
    }
    print("| loader |", " | ".join(columns.values()), "|")
    print("|---|" + "---:|" * len(columns))
    for name in names:
        figures = {what: median(name, what) for what in columns if what != "ratio"}
        figures["ratio"] = figures["rate"] / best
        print(f"| {name} |", " | ".join(f"{figures[what]:.2f}" for what in columns), "|")


if __name__ == "__main__":
    main()
