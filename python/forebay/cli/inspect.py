"""`forebay inspect`: what a source of recordings holds, and one of its rows to look at.

Nothing is decoded without `--row` or `--png`. Of a row, at most `--seconds` are decoded.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from forebay import _pictures
from forebay._core import AudioDataset, ConfigError, ForebayError
from forebay._files import what_is
from forebay.cli.common import a_folder, a_path, add_json, check_place, subcommand, using

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

READABLE = re.compile(r"(lists of (\d+ )?)?(text|null|bool|u?int\d+|float\d+)")
"""The columns that a dataset can have."""
SHOWN_FILES = 10
SHOWN_CLASSES = 8
SHOWN_TEXT = 200
"""The most characters of a value on the terminal."""
PLAIN_WIDTH = 80
"""The width where there is no terminal."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "inspect",
        "show what a source of recordings holds",
        "Shows files, rows, columns and classes of a source of recordings, and with --row one recording: codec, rate, "
        "channels, length, columns, waveform and spectrogram. --png writes them as a picture.",
        "  forebay inspect train-0.arrow\n"
        "  forebay inspect 'shards/**/*.parquet' --row 17 --seconds 10\n"
        "  forebay inspect train-0.arrow --row 3 --png row3.png --json -",
        "files, rows, columns (name, type, classes), row (with --row or --png), png (the path)",
    )
    parser.add_argument(
        "files", nargs="+", type=a_path, metavar="SOURCE",
        help="the recordings, as a Loader takes them: files, folders, patterns with *, ?, [...] and **",
    )  # fmt: skip
    parser.add_argument(
        "--row", type=int, metavar="I", help="show this row, counted from 0, or from the end if below 0"
    )
    parser.add_argument("--start", type=float, default=0.0, metavar="S", help="the first second shown of the row")
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
    parser.add_argument("--audio-column", metavar="NAME", help="the column of recordings, if it is not detected")
    parser.add_argument(
        "--allow-paths", metavar="FOLDER", nargs="?", action="append", const=True, type=a_folder,
        help="for rows with a path instead of bytes: also read files below FOLDER; may be repeated. Without FOLDER, any"
        " path is allowed; then put the option after SOURCE",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run, parameters={"source": "SOURCE", "arrow_files": "SOURCE", "index": "--row"})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Shows the source, and a row if one was asked for."""
    out = sys.stderr if options.json else sys.stdout
    if options.png is not None:
        check_place("--png", options.png.parent)
        if not options.png.parent.is_dir():
            raise ConfigError(f"the folder of --png {options.png} does not exist; create it, or give another name")
        if found := what_is(options.png):
            raise ConfigError(f"--png {options.png} is there already, {found}; give another name")
    allow_paths = True if True in (options.allow_paths or ()) else options.allow_paths
    given: dict[str, Any] = {"audio_column": options.audio_column, "allow_paths": allow_paths}
    with using("SOURCE", options), AudioDataset(options.files, label_column="", **given) as dataset:
        told = holdings(dataset)
        for line in described(told):
            out.write(f"{line}\n")
        if options.row is None and options.png is None:
            return 0, told
        row = options.row or 0
        if not -len(dataset) <= row < len(dataset):
            raise ConfigError(f"--row is {row}, must be a row: there are {len(dataset)}")
        row %= len(dataset)
        samples, told["row"] = recording(dataset, row, options.start, options.seconds)
        readable = [column["name"] for column in told["columns"] if READABLE.fullmatch(column["type"])]
        told["row"]["columns"] = values(options.files, row, readable, given)
        for line in shown(told["row"], samples, width_of(out), is_plain=is_plain(out)):
            out.write(f"{line}\n")
        if options.png is not None:
            with options.png.open("xb") as file:
                file.write(_pictures.png(_pictures.drawn(samples)))
            told["png"] = str(options.png)
    return 0, told


def holdings(dataset: AudioDataset) -> dict[str, Any]:
    """Files, rows and columns of a source."""
    classes = dataset._classes
    columns = [{"name": name, "type": kind, "classes": classes.get(name)} for name, kind in dataset.columns.items()]
    return {"files": dataset.shards, "rows": len(dataset), "columns": columns}


def described(told: Mapping[str, Any]) -> Iterator[str]:
    """The holdings for the terminal."""
    files = told["files"]
    n_bytes = sum(file["num_bytes"] for file in files)
    yield f"{counted(told['rows'], 'row')} in {counted(len(files), 'file')}, {n_bytes / 1e6:.1f} MB"
    for file in files[:SHOWN_FILES]:
        damage = f", damaged: {file['damage']}" if file["damage"] else ""
        yield f"  {file['path']}  {counted(file['num_rows'], 'row')}{damage}"
    if len(files) > SHOWN_FILES:
        yield f"  and {len(files) - SHOWN_FILES} more"
    yield "columns:"
    width = max((len(column["name"]) for column in told["columns"]), default=0)
    for column in told["columns"]:
        names = column["classes"]
        more = "" if names is None else f", {counted(len(names), 'class')}: {', '.join(names[:SHOWN_CLASSES])}"
        dots = ", ..." if names and len(names) > SHOWN_CLASSES else ""
        yield f"  {column['name']:{width}}  {column['type']}{more}{dots}"


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
    place = {"index": row, "file": shard["path"], "row": row - shard["first_row"]}
    peak = float(np.abs(samples).max(initial=0.0))
    return samples, {
        **place, **info, "start": start, "shown_seconds": samples.shape[1] / rate, "peak": round(peak, 6),
    }  # fmt: skip


def values(files: list[Path], row: int, names: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the readable columns of a row, as JSON has them; an error's text where one cannot be read."""
    if not names:
        return {}
    try:
        with AudioDataset(files, label_column="", columns=names, clip_seconds=0.1, **given) as dataset:
            found = dataset[row]
    except ForebayError as error:
        if len(names) == 1:
            return {names[0]: f"({error})"}
        # One that cannot be read, such as a null of an unsigned type, shall not hide the others.
        each = [values(files, row, [name], given) for name in names]
        return {name: value for one in each for name, value in one.items()}
    plain = (np.ndarray, np.generic)
    return {name: found[name].tolist() if isinstance(found[name], plain) else found[name] for name in names}


def shown(told: Mapping[str, Any], samples: Any, width: int, *, is_plain: bool) -> Iterator[str]:
    """A row for the terminal."""
    yield ""
    yield f"row {told['index']}: {told['file']}, row {told['row']}"
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


def counted(n: int, thing: str) -> str:
    """A number with its noun."""
    plural = "es" if thing.endswith("s") else "s"
    return f"{n} {thing}{'' if n == 1 else plural}"


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
