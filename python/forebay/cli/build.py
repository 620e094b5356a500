"""`forebay build`: builds a cache of processed documents from shards."""

import argparse
import fnmatch
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._core import ConfigError, _shards
from forebay.cache import Tokenize, TreeStore, build
from forebay.cache.running import SAME_CALL
from forebay.cli import texts
from forebay.cli.common import a_path, add_json, check_files, check_place, counted, filled, say, subcommand, using

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

VAL = "val"
"""The split of `--val`."""
PARAMETERS = {"columns": "--fields", "bos": "--no-bos", "processor": "--tokenizer", "shards": "SHARD"}
"""Parameters of `forebay.cache.build` and of its processors whose options have other names."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "build",
        "process shards into a cache with random access",
        "Builds a cache of token ids from texts, or of unchanged columns of numbers. A build that "
        "ended early resumes at its last commit, by the same command.",
        "  forebay build shards/ -t gpt2.tiktoken -o tokens\n"
        "  forebay build 'shards/*.parquet' -t gpt2.tiktoken -o tokens --val 99.parquet\n"
        "  forebay build texts.jsonl.gz -t mine.tiktoken --pattern '\\S+|\\s+' \\\n"
        "    --special-tokens '<|bos|>=500' -o ids\n"
        "  forebay build numbers.parquet --fields input_ids=uint16 -o numbers",
        "path, splits (of each split: split, documents, left_out)",
    )
    parser.add_argument(
        "shards", nargs="+", type=a_path, metavar="SHARD",
        help="Parquet, Arrow, .jsonl or .txt, the last two also as .gz and .zst: files, folders (all shards below), "
        "patterns with *, ?, [...] and **",
    )  # fmt: skip
    parser.add_argument("-o", "--path", type=a_path, required=True, metavar="FOLDER", help="the folder of the cache")
    add_json(parser)

    what = parser.add_argument_group("documents")
    texts.add_tokenizer(what, "columns of numbers are kept")
    what.add_argument(
        "--text-column", default="text", metavar="NAME", help="the column of texts (default: %(default)s)"
    )
    what.add_argument("--no-bos", action="store_true", help="do not begin each document with the tokenizer's BOS")
    what.add_argument(
        "--fields", action="append", metavar="NAME[=TYPE]", help="keep this field, with this type; may be repeated"
    )
    what.add_argument(
        "--split", default="train", metavar="NAME", help="subfolder of FOLDER for this split (default: %(default)s)"
    )
    what.add_argument(
        "--val", action="append", type=filled, metavar="FILE",
        help=f"a shard for the split {VAL!r}: the name of one of the shards, or a file, folder or pattern; may be "
        "repeated. Both splits are built",
    )  # fmt: skip
    what.add_argument(
        "--order",
        choices=("round_robin", "concat"),
        default="round_robin",
        help="round_robin: one batch of each shard in turn; concat: one shard after the other (default: %(default)s)",
    )
    what.add_argument(
        "--batch-size", type=int, default=128, metavar="N", help="documents processed together (default: %(default)s)"
    )

    how = parser.add_argument_group("work")
    how.add_argument("-w", "--n-workers", type=int, metavar="N", help="threads (default: one for each core)")
    how.add_argument(
        "--engine",
        choices=("threads", "ray"),
        default="threads",
        help="process on threads of this machine, or on a Ray cluster: pip install forebay[ray] (default: %(default)s)",
    )
    how.add_argument(
        "--compression", default="none", metavar="NAME", help="none, zstd or zstd:LEVEL (default: %(default)s)"
    )
    how.add_argument(
        "--commit-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="commit after so many seconds: readers see the documents, and the command resumes there "
        "(default: %(default)s)",
    )
    how.add_argument(
        "--commit-documents",
        type=int,
        default=8192,
        metavar="N",
        help="commit after so many new documents (default: %(default)s)",
    )
    how.add_argument("--overwrite", action="store_true", help="replace an existing cache")

    bad = parser.add_argument_group("bad documents")
    bad.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="skip: leave out bad documents, and list them in the ledger (default: %(default)s)",
    )
    bad.add_argument(
        "--max-record-bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="a line or text of more bytes is too large (default: %(default)s)",
    )
    bad.add_argument(
        "--max-decoded-seconds",
        type=float,
        default=86400.0,
        metavar="S",
        help="a recording of more seconds is too long (default: %(default)s)",
    )
    bad.add_argument(
        "--damage",
        choices=("silence", "error"),
        default="silence",
        help="what becomes of frames of a recording that cannot be decoded: silence, up to --max-damage of it, or an "
        "error of the recording (default: %(default)s)",
    )
    bad.add_argument(
        "--max-damage",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="the largest share of a recording that may be such silence (default: %(default)s)",
    )
    bad.add_argument("--max-errors", type=int, metavar="N", help="how many documents may be left out")
    parser.set_defaults(run=run, parameters=PARAMETERS)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Builds one split, or two."""
    for split in {options.split, VAL} if options.val else {options.split}:
        check_place("-o", options.path / split)
    given = [name for name in texts.FOR_TOKENIZER if getattr(options, name) is not None]
    if options.tokenizer is None and given:
        raise ConfigError(f"{given[0]}= is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken")
    with using("SHARD", options):
        shards = _shards("shards", options.shards, "inputs")
    splits = {options.split: shards}
    if options.val:
        if options.split == VAL:
            raise ConfigError(f"--val writes the split {VAL!r}, and so does --split {VAL}; leave out one")
        with using("--val", options):
            train, val = divided(shards, options.val)
        # Built first: whatever is wrong with it is found before the long build.
        splits = {VAL: val, options.split: train}
    for split, files in splits.items():
        check_files(inputs(options, split), files)
    processor = None
    if options.tokenizer is not None:
        processor = Tokenize(texts.tokenizer_of(options), options.text_column, bos=not options.no_bos)
    built = [report(options, split, files, processor) for split, files in splits.items()]
    return 0, {"path": str(options.path), "splits": built[::-1]}


def inputs(options: argparse.Namespace, split: str) -> str:
    """The argument that names the shards of a split."""
    return "--val" if options.val and split == VAL else "SHARD"


def report(options: argparse.Namespace, split: str, files: Sequence[str], processor: Tokenize | None) -> dict[str, Any]:
    """Builds a split, and reports it."""
    begin = time.monotonic()
    with using(inputs(options, split), options, (ConfigError,)):
        try:
            store = built(options, split, files, processor)
        except ConfigError as error:
            if processor is None:
                error.add_note(
                    "--tokenizer encodes texts to ids; without it, --fields names the columns of numbers to keep"
                )
            raise
    note = f", {store.n_errors} left out" if store.n_errors else ""
    name = f" ({split})" if options.val else ""
    seconds = time.monotonic() - begin
    say(f"{counted(len(store), 'document')} in {options.path}{name}{note} ({seconds:.1f} s)\n")
    return {"split": split, "documents": len(store), "left_out": store.n_errors}


def built(options: argparse.Namespace, split: str, files: Sequence[str], processor: Tokenize | None) -> TreeStore:
    """Builds a split."""
    fields = None
    if options.fields:
        pairs = [name.partition("=") for name in options.fields]
        fields = {name: dtype or None for name, _, dtype in pairs}
    try:
        return build(
            files,
            processor,
            options.path,
            split=split,
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
            damage=options.damage,
            max_damage=options.max_damage,
            progress=True,
        )
    except KeyboardInterrupt as stopped:
        for note in getattr(stopped, "__notes__", ()):
            say(f"\nforebay build: {note.replace(SAME_CALL, 'the same command')}")
        raise


def divided(files: Sequence[str], val: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files for training, and those for validation: by name among `files`, or else by path.

    Raises `ConfigError` for a name that no file has, and if no file is left.
    """
    found: dict[Path, str] = {}
    for name in val:
        named = [file for file in files if fnmatch.fnmatchcase(Path(file).name, name)]
        if not named and not any(char in name for char in "*?[") and not Path(name).exists():
            raise ConfigError(
                f"--val {name} is neither the name of one of the {len(files)} shards nor a file; the last shard is "
                f"{files[-1]}"
            )
        found.update((Path(file).resolve(), file) for file in named or _shards("val", name, "inputs"))
    train = [file for file in files if Path(file).resolve() not in found]
    if not train:
        raise ConfigError(f"no shard is left beside those of --val, which names all {len(files)}")
    return train, list(found.values())
