"""The common part of the providers in this folder: two books, a command line, and legacy files."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from forebay.queue import CharTokenizer, DataProviderBase, write_legacy_file

BOOKS = ("candide", "gulliver")


class BookProvider(DataProviderBase):
    """The base of the providers: characters of two books, the last tenth of each for validation."""

    block_size: int

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(
            arguments.data_dir,
            arguments.batch_size,
            arguments.block_size,
            arguments.target_size,
            arguments.batches_per_file,
            arguments.max_backlog_files,
            arguments.sleep_seconds,
            arguments.seed,
            arguments.verbose,
            rank=arguments.rank,
        )
        texts = [(Path(__file__).parent / "data" / f"{book}.txt").read_text(encoding="ascii") for book in BOOKS]
        self.tokenizer = CharTokenizer("".join(texts))
        self.books: dict[str, list[torch.Tensor]] = {"train": [], "val": []}
        for text in texts:
            tokens = torch.tensor(self.tokenizer.encode(text))
            end = len(tokens) * 9 // 10
            self.books["train"].append(tokens[:end])
            self.books["val"].append(tokens[end:])

    def meta(
        self, training_type: str, fields: Sequence[tuple[str, str, list[int], str]], **more: Any
    ) -> dict[str, Any]:
        """The complete meta for fields (name, dtype, shape, role)."""
        sizes = {} if self.target_size is None else {"target_size": self.target_size}
        return {
            "dataset_name": type(self).__name__,
            "training_type": training_type,
            "batch_size": self.batch_size,
            "block_size": self.block_size,
            **sizes,
            "vocab_size": len(self.tokenizer),
            "batch_schema": [
                {"name": name, "dtype": dtype, "shape": shape, "role": role} for name, dtype, shape, role in fields
            ],
            "split_info": {split: {"tokens": sum(map(len, books))} for split, books in self.books.items()},
            "stoi": self.tokenizer.stoi,
            "itos": self.tokenizer.itos,
            **more,
        }

    def spans(self, split: str, rng: torch.Generator) -> torch.Tensor:
        """Random spans of the books, `[batch_size, block_size]`."""
        tokens = torch.cat(self.books[split])
        starts = torch.randint(len(tokens) - self.block_size + 1, (self.batch_size, 1), generator=rng)
        return tokens[starts + torch.arange(self.block_size)]


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser with the options of all providers."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--data_dir", type=Path, required=True)
    made.add_argument("--batch_size", type=int, default=16)
    made.add_argument("--block_size", type=int, default=64, help="tokens per row")
    made.add_argument("--target_size", type=int, help="tokens per target; default: block_size")
    made.add_argument("--batches_per_file", type=int, default=100)
    made.add_argument("--max_backlog_files", type=int, default=2)
    made.add_argument("--sleep_seconds", type=float, default=2.0)
    made.add_argument("--seed", type=int, default=1337)
    made.add_argument("--rank", type=int, help="write the queue of this rank")
    made.add_argument("--force_regenerate", action="store_true", help="remove queue/* and meta first")
    made.add_argument(
        "--legacy", action="store_true", help="write max_backlog_files files {split}_batches_####.pt per split"
    )
    made.add_argument("--verbose", action="store_true")
    return made


def provide(provider: DataProviderBase, arguments: argparse.Namespace) -> None:
    """Runs a provider until it is stopped, or with --legacy writes legacy files."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if arguments.force_regenerate:
        provider.purge()
    if not arguments.legacy:
        provider.run()
        return
    provider.write_meta()
    metadata = {"batch_size": provider.batch_size, "num_batches": provider.batches_per_file}
    for split in ("train", "val"):
        for number in range(provider.max_backlog_files):
            batches = list(provider.sample_file(split, number))
            tensors = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
            write_legacy_file(provider.data_dir, split, number, tensors, metadata)
