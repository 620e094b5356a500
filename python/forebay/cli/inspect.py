"""`forebay inspect`: what a source of recordings holds, and one of its rows to look at; of texts, see `packing`.

Nothing is decoded without `--row` or `--png`. Of a row, at most `--seconds` are decoded. `--balance` counts classes
before and after balancing, from their column alone.
"""

import argparse
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from forebay import _pictures
from forebay._core import AudioDataset, ConfigError, ForebayError, Loader
from forebay._files import what_is, write_new
from forebay.cli import inspect_buckets, inspect_texts, texts
from forebay.cli.common import (
    SHOWN_FILES,
    a_path,
    add_json,
    add_reading,
    add_source,
    check_place,
    counted,
    file_lines,
    out_of,
    reading,
    size,
    subcommand,
    using,
)
from forebay.sampling import Balanced

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

READABLE = re.compile(r"(lists of (\d+ )?)?(text|null|bool|u?int\d+|float\d+)")
"""The columns that a dataset can have."""
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt")
"""The endings of tables whose rows name recordings."""
PACKED = (".gz", ".zst")
"""The endings of compressed tables, after the ending of the table."""
UNREAD = (".csv", ".tsv", ".jsonl")
"""The endings of tables that a folder of recordings may have; only one called `metadata` is read."""
MOST_LISTED = 100_000
"""The most entries of a folder that are looked at for them."""
SHOWN_CLASSES = 8
MOST_COMMON, LEAST_COMMON = 12, 6
"""The classes shown of a long table."""
BALANCE = ("power", "offset", "cap", "labels", "separator", "epoch_size")
"""The options that belong to `--balance`: the parameters of `Balanced`."""
SHOWN_NAME = 40
"""The most characters of a class name in a table."""
SHOWN_TEXT = 200
"""The most characters of a value on the terminal."""
PLAIN_WIDTH = 80
"""The width where there is no terminal."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "inspect",
        "show what a source of recordings or texts holds",
        "Shows files, rows, columns and classes of a source of recordings, and with --row one recording: codec, rate, "
        "channels, length, columns, waveform and spectrogram. --png writes them as a picture. With --tokenizer, SOURCE "
        "has texts: shows their lengths in tokens, and the tokens and places that each way of packing wastes.",
        "  forebay inspect train-0.arrow\n"
        "  forebay inspect 'shards/**/*.parquet' --row 17 --seconds 10\n"
        "  forebay inspect train-0.arrow --row 3 --png row3.png --json -\n"
        "  forebay inspect train-0.arrow --balance ebird_code --power -0.5\n"
        "  forebay inspect utterances.jsonl --buckets 400\n"
        "  forebay inspect texts.jsonl -t tokenizer.json --seq-len 512,4096\n"
        "  forebay inspect sft.jsonl -t Qwen3/ --kind chat",
        "files, rows, columns (name, type, classes), balance (column, classes, rows, examples, sampling), batches "
        "(with --buckets), row (with --row or --png), png (the path); of texts files, rows, sample (documents, tokens, "
        "is_whole, bad), lengths, packing (seq_len, fit, on_long, rows, delivered, dropped, padded, tokens)",
    )
    add_source(parser)
    parser.add_argument(
        "--row", type=int, metavar="I", help="show this row, counted from 0, or from the end if below 0"
    )
    parser.add_argument(
        "--start", type=float, default=0.0, metavar="S", help="the first second shown of the row (default: 0)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="the most seconds shown of the row (default: %(default)g)",
    )
    parser.add_argument(
        "--png", type=a_path, metavar="FILE", help="write waveform and spectrogram of the row (0) to FILE"
    )
    parser.add_argument(
        "--balance", metavar="COLUMN",
        help="count rows and examples of each class of COLUMN in an epoch with sampling=Balanced(COLUMN)",
    )  # fmt: skip
    parser.add_argument(
        "--power",
        type=float,
        metavar="P",
        help="of --balance: a class of n rows weighs (n + offset) ** P (default: -1)",
    )
    parser.add_argument("--offset", type=float, metavar="X", help="of --balance: added to each count (default: 0)")
    parser.add_argument("--cap", type=float, metavar="X", help="of --balance: the most times that a row comes")
    parser.add_argument(
        "--labels",
        metavar="HOW",
        help="of --balance: sum, max or mean of the weights of a row's classes (default: max)",
    )
    parser.add_argument("--separator", metavar="TEXT", help="of --balance: what separates the classes in a text")
    parser.add_argument(
        "--epoch-size", type=int, metavar="N", help="of --balance: the examples of an epoch (default: the rows)"
    )
    inspect_buckets.add(parser)
    add_reading(parser, "SOURCE")
    inspect_texts.add(texts.add(parser))
    add_json(parser)
    parameters = {
        "source": "SOURCE",
        "arrow_files": "SOURCE",
        "index": "--row",
        "column": "--balance",
    } | inspect_buckets.PARAMETERS
    parser.set_defaults(run=run, parameters=parameters)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Shows the source, and a row if one was asked for."""
    texts.check(options, inspect_texts.OPTIONS)
    if texts.are_meant(options):
        return inspect_texts.run(options)
    out = out_of(options)
    if options.png is not None:
        check_place("--png", options.png.parent)
        if not options.png.parent.is_dir():
            raise ConfigError(f"the folder of --png {options.png} does not exist; create it, or give another name")
        if found := what_is(options.png):
            raise ConfigError(f"--png {options.png} is there already, {found}; give another name")
    balance = {name: value for name in BALANCE if (value := getattr(options, name)) is not None}
    if balance and options.balance is None:
        raise ConfigError(f"--{next(iter(balance)).replace('_', '-')} needs --balance COLUMN")
    inspect_buckets.check(options)
    given = reading(options)
    with using("SOURCE", options), texts.hinted(), opened(options.files, given) as dataset:
        told = holdings(dataset)
        for line in described(told):
            out.write(f"{line}\n")
        if options.balance is not None:
            told["balance"] = balanced(options.files, Balanced(options.balance, **balance), given)
            for line in table(told["balance"]):
                out.write(f"{line}\n")
        if options.buckets is not None:
            told["batches"] = inspect_buckets.planned(options, given)
            for line in inspect_buckets.table(told["batches"]):
                out.write(f"{line}\n")
        if options.row is None and options.png is None:
            return 0, told
        row = options.row or 0
        if not -len(dataset) <= row < len(dataset):
            raise ConfigError(f"--row is {row}, must be a row: there are {len(dataset)}")
        row %= len(dataset)
        samples, told["row"] = recording(dataset, row, options.start, options.seconds)
        [told["row"]["columns"]] = read(options.files, [row], readable(dataset), given)
        for line in shown(told["row"], samples, width_of(out.stream), is_plain=is_plain(out.stream)):
            out.write(f"{line}\n")
    if options.png is not None:
        write_new(options.png, _pictures.png(_pictures.drawn(samples)))
        told["png"] = str(options.png)
    return 0, told


def opened(files: list[Path], given: Mapping[str, Any]) -> AudioDataset:
    """The source, with its classes unless no column has any that a loader could read."""
    try:
        return AudioDataset(files, **given)
    except ConfigError:
        return AudioDataset(files, label_column="", **given)


def holdings(dataset: AudioDataset) -> dict[str, Any]:
    """Files, rows and columns of a source."""
    classes = dataset._classes
    columns = [{"name": name, "type": kind, "classes": classes.get(name)} for name, kind in dataset.columns.items()]
    return {"files": dataset.shards, "rows": len(dataset), "columns": columns}


def described(told: Mapping[str, Any]) -> Iterator[str]:
    """The holdings for the terminal."""
    files = told["files"]
    yield summed(files)
    yield from file_lines(files)
    yield "columns:" if told["columns"] else "no columns"
    width = max((len(column["name"]) for column in told["columns"]), default=0)
    for column in told["columns"]:
        names = column["classes"]
        more = "" if names is None else f", {counted(len(names), 'class')}: {', '.join(names[:SHOWN_CLASSES])}"
        dots = ", ..." if names and len(names) > SHOWN_CLASSES else ""
        yield f"  {column['name']:{width}}  {column['type']}{more}{dots}"
    for name in filter(None, map(unread, (file["path"] for file in files[:SHOWN_FILES]))):
        yield f"{name} is not read: pass it in place of its folder"


def unread(path: str) -> Path | None:
    """A table at the top of a folder of recordings, if the folder is read without one."""
    if kind(path) != "folder":
        return None
    with os.scandir(path) as entries:
        names = [e.name for e in islice(entries, MOST_LISTED) if Path(e.name).suffix.lower() in UNREAD]
    return Path(path) / min(names) if names else None


def summed(files: Sequence[Mapping[str, Any]]) -> str:
    """The rows and where they are; the size, if the recordings are within the files."""
    kinds = Counter(kind(file["path"]) for file in files)
    places = " and ".join(counted(n, what) for what, n in kinds.items())
    n_bytes = sum(file["num_bytes"] for file in files)
    more = f", {size(n_bytes)}" if set(kinds) <= {"file"} else ""
    return f"{counted(sum(file['num_rows'] for file in files), 'row')} in {places or '0 files'}{more}"


def kind(path: str) -> str:
    """What an entry of `shards` is: a folder or a table of recordings in files, or a file with recordings in it."""
    if Path(path).is_dir():
        return "folder"
    name = Path(path.lower())
    suffix = Path(name.stem).suffix if name.suffix in PACKED else name.suffix
    return "table" if suffix in TABLES else "file"


def balanced(files: list[Path], sampling: Balanced, given: Mapping[str, Any]) -> dict[str, Any]:
    """Rows and examples of each class in the first epoch, and those of all classes."""
    parameters: dict[str, Any] = {**given, "label_column": "", "infinite": False, "order": "sequential"}
    with Loader(files, sampling=sampling, **parameters) as loader:
        (counts,) = loader.class_counts()
        n_examples = loader.num_records if sampling.epoch_size is None else sampling.epoch_size
        return {**counts, "n_rows": loader.num_records, "n_examples": n_examples, "sampling": sampling.to_dict()}


def table(told: Mapping[str, Any]) -> Iterator[str]:
    """The classes for the terminal: of many, the most and the least common ones."""
    rows = list(zip(told["classes"], told["rows"], told["examples"], strict=True))
    n_rows, n_examples = told["n_rows"], told["n_examples"]
    yield f"{counted(len(rows), 'class')} of {told['column']}, in an epoch of {counted(n_examples, 'example')}:"
    n_left_out = len(rows) - MOST_COMMON - LEAST_COMMON
    if n_left_out > 1:
        rows[MOST_COMMON:-LEAST_COMMON] = [(f"({n_left_out} more)", None, None)]
    names = ["(none)" if name is None else str(name)[:SHOWN_NAME] for name, _, _ in rows]
    width = max(len(name) for name in ["class", *names])
    yield f"  {'class':{width}}  {'rows':>10} {'':8}  {'examples':>10}"
    for name, (_, before, after) in zip(names, rows, strict=True):
        if before is None:
            yield f"  {name}"
            continue
        yield f"  {name:{width}}  {before:10} {before / n_rows:8.2%}  {after:10} {after / n_examples:8.2%}"


def recording(dataset: AudioDataset, row: int, start: float, seconds: float) -> tuple[Any, dict[str, Any]]:
    """The samples that are shown, and what is told of the recording."""
    with_options = {"start": start, "seconds": seconds}
    for name, value in with_options.items():
        if not 0 <= value < float("inf"):
            raise ConfigError(f"--{name} is {value:g}, must be a number of seconds from 0 on")
    info = dataset.info(row)
    samples, rate = dataset.waveform(row, start, seconds)
    shards = dataset.shards
    shard = next(shard for shard in reversed(shards) if shard["first_row"] <= row and shard["num_rows"])
    place = {"index": row, "file": shard["path"], "row": row - shard["first_row"], "path": dataset.path(row)}
    peak = float(np.abs(samples).max(initial=0.0))
    return samples, {
        **place, **info, "start": start, "shown_seconds": samples.shape[1] / rate, "peak": round(peak, 6),
    }  # fmt: skip


def readable(dataset: AudioDataset) -> list[str]:
    """The columns that a row can be asked for."""
    return [name for name, kind in dataset.columns.items() if READABLE.fullmatch(kind)]


def read(
    files: Sequence[Path | str], rows: Iterable[int], names: list[str], given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The readable columns of rows, as JSON has them; an error's text for a column that cannot be read.

    There are none of a recording that cannot be decoded.
    """
    with AudioDataset(files, label_column="", columns=names, clip_seconds=0.1, **given) as dataset:
        return [_read(dataset, files, row, names, given) for row in rows]


def _read(
    dataset: AudioDataset, files: Sequence[Path | str], row: int, names: list[str], given: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        found = dataset[row]
    except ForebayError as error:
        if len(names) == 1:
            return {names[0]: f"({error})"} if is_good(dataset, row) else {}
        # One that cannot be read, such as a null of an unsigned type, shall not hide the others.
        each = [read(files, [row], [name], given)[0] for name in names] if is_good(dataset, row) else []
        return {name: value for one in each for name, value in one.items()}
    return {name: plain(found[name]) for name in names}


def is_good(dataset: AudioDataset, row: int) -> bool:
    """Whether the recording can be decoded."""
    try:
        dataset.waveform(row, 0.0, 0.1)
    except ForebayError:
        return False
    return True


def plain(value: Any) -> Any:
    """A value as JSON has it: a NaN, which a null of numbers is too, is none."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def shown(told: Mapping[str, Any], samples: Any, width: int, *, is_plain: bool) -> Iterator[str]:
    """A row for the terminal."""
    yield ""
    path = f", {told['path']}" if told["path"] else ""
    yield f"row {told['index']}: {told['file']}, row {told['row']}{path}"
    yield (
        f"  {told['codec']}, {told['sample_rate']} Hz, {counted(told['channels'], 'channel')}, "
        f"{told['seconds']:.3f} s, {told['n_samples']} samples"
    )
    for name, value in told["columns"].items():
        text = repr(value)
        yield f"  {name} = {text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + '...'}"
    if not samples.shape[1]:
        return
    end = told["start"] + told["shown_seconds"]
    yield f"  {told['start']:g} to {end:.3f} s, peak {told['peak']:.3f}; 0 to {told['sample_rate'] // 2} Hz"
    for line in _pictures.in_characters(samples, max(width - 3, 8), is_plain=is_plain):
        yield f"  {line}"


def width_of(out: TextIO) -> int:
    """The width of a terminal; elsewhere `PLAIN_WIDTH`."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if out.isatty() else PLAIN_WIDTH


def is_plain(out: TextIO) -> bool:
    """Whether the stream cannot have the characters of the pictures."""
    try:
        (_pictures.BARS + _pictures.SHADES).encode(out.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return True
    return False
