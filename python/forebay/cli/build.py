"""`forebay build`: builds a cache of processed documents from shards."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._core import ConfigError, ForebayError
from forebay.cache import Tokenize, build
from forebay.cache.running import SAME_CALL
from forebay.cli.errors import in_options
from forebay.tokens import Tokenizer

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "build",
        help="process shards into a cache with random access",
        description="Builds a cache of token ids from texts, or of unchanged columns of numbers. A build that "
        "ended early resumes at its last commit.",
    )
    parser.add_argument(
        "shards", nargs="+", type=Path, help="Parquet, Arrow, .jsonl or .txt files, the last two also as .gz and .zst"
    )
    parser.add_argument("-o", "--path", type=Path, required=True, help="the folder of the cache")
    parser.add_argument(
        "-t", "--tokenizer", type=Path, help="a tokenizer.json or rank file; without it, columns of numbers are kept"
    )
    parser.add_argument("--text-column", default="text", metavar="NAME", help="the column of texts (%(default)s)")
    parser.add_argument("--no-bos", action="store_true", help="do not begin each document with the tokenizer's BOS")
    parser.add_argument(
        "--fields", action="append", metavar="NAME[=TYPE]", help="keep this field, with this type; may be repeated"
    )
    parser.add_argument(
        "--split", default="train", metavar="NAME", help="subfolder of PATH for this split (%(default)s)"
    )
    parser.add_argument(
        "--order",
        choices=("round_robin", "concat"),
        default="round_robin",
        help="round_robin: one batch of each shard in turn; concat: one shard after the other (%(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=128, metavar="N", help="documents processed together (%(default)s)"
    )
    parser.add_argument("-w", "--n-workers", type=int, metavar="N", help="threads (default: one for each core)")
    parser.add_argument(
        "--engine",
        choices=("threads", "ray"),
        default="threads",
        help="process on threads of this machine, or on a Ray cluster: pip install forebay[ray] (%(default)s)",
    )
    parser.add_argument("--compression", default="none", help="none, zstd or zstd:LEVEL (%(default)s)")
    parser.add_argument(
        "--commit-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="commit after so many seconds: readers see the documents, and the command resumes there (%(default)s)",
    )
    parser.add_argument(
        "--commit-documents",
        type=int,
        default=8192,
        metavar="N",
        help="commit after so many new documents (%(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing cache")
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="skip: leave out bad documents, and list them in the ledger (%(default)s)",
    )
    parser.add_argument(
        "--max-record-bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="a line or text of more bytes is too large (%(default)s)",
    )
    parser.add_argument(
        "--max-decoded-seconds",
        type=float,
        default=86400.0,
        metavar="S",
        help="a recording of more seconds is too long (%(default)s)",
    )
    parser.add_argument("--max-errors", type=int, metavar="N", help="how many documents may be left out")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Runs the build; the exit code is 1 if it failed."""
    fields = None
    if options.fields:
        pairs = [name.partition("=") for name in options.fields]
        fields = {name: dtype or None for name, _, dtype in pairs}
    begin = time.monotonic()
    processor = None
    try:
        if options.tokenizer is not None:
            processor = Tokenize(Tokenizer(options.tokenizer), options.text_column, bos=not options.no_bos)
        store = build(
            options.shards,
            processor,
            options.path,
            split=options.split,
            fields=fields,
            columns=list(fields) if fields and processor is None else None,
            batch_size=options.batch_size,
            order=options.order,
            n_workers=options.n_workers,
            engine=options.engine,
            compression=options.compression,
            overwrite=options.overwrite,
            commit_seconds=options.commit_seconds,
            commit_documents=options.commit_documents,
            on_error=options.on_error,
            max_errors=options.max_errors,
            max_record_bytes=options.max_record_bytes,
            max_decoded_seconds=options.max_decoded_seconds,
        )
    except KeyboardInterrupt as stopped:
        for note in getattr(stopped, "__notes__", ()):
            sys.stderr.write(f"\nforebay build: {note.replace(SAME_CALL, 'the same command')}")
        raise
    except (ForebayError, OSError, TypeError, ImportError) as error:
        sys.stderr.write(f"forebay build: {in_options(error, options)}\n")
        if isinstance(error, ConfigError) and processor is None:
            sys.stderr.write(
                "--tokenizer encodes texts to ids; without it, --fields names the columns of numbers to keep.\n"
            )
        return 1
    note = f", {store.n_errors} left out" if store.n_errors else ""
    sys.stderr.write(f"{len(store)} documents in {options.path}{note} ({time.monotonic() - begin:.1f} s)\n")
    return 0
