"""`forebay index`: opens every recording of a source once, writes their indexes, and tells the totals.

The index of a recording in a file is a file in the folder of the user's cache where a loader looks for it. It
holds for the path, size and time of the recording, so another run takes those that are there. Of a
recording that a loader reads whole, since it is small, and of those in shards there is no index.
"""

import argparse
import contextlib
import io
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._checks import URL
from forebay._core import ConfigError, _Index
from forebay._files import write_new
from forebay._progress import clock
from forebay.cli import texts
from forebay.cli.common import (
    SHOWN,
    a_path,
    a_source,
    add_json,
    add_reading,
    bad_line,
    check_new,
    counted,
    histogram,
    out_of,
    progress_bar,
    reading,
    say,
    size,
    subcommand,
    using,
)

TOGETHER = 1 << 16
"""Recordings that are taken from the core at a time."""

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "index",
        "write the indexes of a source's recordings, and print its totals",
        "Opens every recording of a source, on all cores, and writes the indexes with which a loader reads parts of "
        "long recordings, to the folder $XDG_CACHE_HOME/forebay/index, by default in ~/.cache. Prints hours, rates, "
        "channels, codecs, classes and bad recordings. Nothing is decoded; forebay check does that. After an "
        "interruption, the same command continues. The exit code is 1 if a recording is bad, or an index cannot be "
        "written.",
        "  forebay index soundscapes/\n"
        "  forebay index annotations.csv --allow-paths /data/recordings\n"
        "  forebay index 'night-*.flac' --json - > totals.json\n"
        "  forebay index utterances/ -o utterances.jsonl",
        "summary (rows, recordings, bytes, seconds, rates, channels, codecs, classes, n_classes, bad, damaged), "
        "indexes (folder, found, written, needless, unwritten, reason), bad, table (its path; or null)",
    )
    parser.add_argument(
        "files", nargs="+", type=a_source, metavar="SOURCE",
        help="the recordings, as a Loader takes them: tables, folders, archives, files, patterns with *, ?, [...] and "
        "**. Of shards only the totals are printed, since they have no indexes",
    )  # fmt: skip
    add_reading(parser, "SOURCE")
    parser.add_argument(
        "--label-column", metavar="NAME", help='the column of classes, if it is not detected; "" for none'
    )
    parser.add_argument(
        "-o", "--output", type=a_path, metavar="TABLE",
        help="also write the good recordings with their lengths, as JSON lines (.jsonl, a new file): path, duration in "
        "seconds, and label if there are classes. A loader of this table opens no file to batch by length. For "
        "recordings in files of their own",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run, parameters={"arrow_files": "SOURCE"})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Indexes the source; exit code 1 if a recording is bad, or an index could not be written."""
    if options.output is not None:
        check_new("--output", options.output)
        if options.output.suffix != ".jsonl":
            raise ConfigError(f"--output {options.output} must end in .jsonl")
    with using("SOURCE", options), texts.hinted(texts.NOT_FOR_TEXTS):
        index = _Index(
            options.files,
            label_column=options.label_column,
            **reading(options),
            lengths=options.output is not None,
        )
    with contextlib.closing(index):
        try:
            surveyed(index)
        except BaseException:
            if index.has_indexes:
                say("\nThe indexes so far are kept; run the same command to continue.")
                say("" if isinstance(sys.exception(), KeyboardInterrupt) else "\n")
            raise
        found = summary(index, index.totals())
        found["table"] = None
        if options.output is not None:
            table, all_below = table_of_lengths(index, options.output)
            write_new(options.output, table)
            found["table"] = str(options.output)
    out = out_of(options)
    out.write("\n".join(lines(found)) + "\n")
    if found["table"]:
        needed = "" if all_below else " and, as it names files outside of its folder, allow_paths=True"
        out.write(f"{found['table']}: a table of the good recordings; open it with crop=crops.Whole(){needed}\n")
    failure = why_not(found)
    if failure:
        say(f"{options.parser.prog}: warning: {failure}\n")
    return int(bool(found["bad"] or found["summary"]["damaged"] or failure)), found


def recordings(index: _Index) -> Iterator[tuple[str | None, float, str | None]]:
    """Path or URL, seconds and class of the good recordings, in the source's order."""
    for first in itertools.count(0, TOGETHER):
        found = index.recordings(first, TOGETHER)
        yield from found
        if len(found) < TOGETHER:
            return


def table_of_lengths(index: _Index, to: Path) -> tuple[bytes, bool]:
    """The good recordings as JSON lines; paths below the folder of `to` are relative to it. Whether all are.

    Raises `ConfigError` for recordings that no table can name.
    """
    folder = to.parent.absolute()
    text, all_below = io.BytesIO(), True
    for found, seconds, name in recordings(index):
        if found is None:
            raise ConfigError(f"--output {to} names files, and some of SOURCE are within archives; leave it out")
        path, is_below = found, False
        if not re.match(URL, found):
            whole = Path(found).absolute()
            is_below = whole.is_relative_to(folder)
            path = str(whole.relative_to(folder) if is_below else whole)
        all_below &= is_below
        row = {"path": path, "duration": float(str(np.float32(seconds))), **({} if name is None else {"label": name})}
        try:
            text.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        except UnicodeEncodeError as error:
            raise ConfigError(f"the name {found!r} is not UTF-8, so no table has it; rename the file") from error
    return text.getvalue(), all_below


def surveyed(index: _Index) -> None:
    """Waits for the end of the survey, with a bar."""
    is_over = False
    with progress_bar(index.n_recordings, "recordings") as progress:
        while not is_over:
            done, bad, is_over = index.next()
            progress.add(done=done - progress.done, errors=bad - progress.errors)


def summary(index: _Index, totals: Mapping[str, Any]) -> dict[str, Any]:
    """The summary, as JSON has it."""
    shards = index.shards
    classes = [
        {"class": label if name is None else name, "label": label, "rows": n} for label, name, n in totals["classes"]
    ]
    summary = {
        "rows": index.n_rows,
        "recordings": totals["recordings"],
        "bytes": totals["bytes"] if index.has_indexes else sum(shard["num_bytes"] for shard in shards),
        "seconds": round(sum(samples / rate for rate, _, samples in totals["rates"]), 3),
        "rates": {str(rate): n for rate, n, _ in totals["rates"]},
        "channels": {str(channels): n for channels, n in totals["channels"]},
        "codecs": dict(sorted(totals["codecs"], key=lambda codec: (-codec[1], codec[0]))),
        "classes": classes,
        "n_classes": totals["n_classes"],
        "bad": totals["n_bad"],
        "damaged": [shard for shard in shards if shard["damage"]],
    }
    indexes = None
    if index.has_indexes:
        folder = index.folder
        indexes = {
            "folder": None if folder is None else str(folder),
            **{name: totals[name] for name in ("found", "written", "needless", "unwritten")},
            "reason": totals["why_unwritten"],
        }
    return {"summary": summary, "indexes": indexes, "bad": totals["bad"]}


def why_not(found: Mapping[str, Any]) -> str | None:
    """What is said if indexes could not be written."""
    indexes = found["indexes"]
    if not indexes or not indexes["unwritten"]:
        return None
    what = f"{counted(indexes['unwritten'], 'index')} could not be written"
    place = f" in {indexes['folder']}" if indexes["folder"] else ""
    return (
        f"{what}{place}: {indexes['reason']}. A loader makes them again in each process; make room, or set "
        "XDG_CACHE_HOME to a folder that can be written"
    )


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The summary for the terminal."""
    summary, indexes = found["summary"], found["indexes"]
    yield (
        f"{counted(summary['recordings'], 'recording')} in {counted(summary['rows'], 'row')}, "
        f"{clock(summary['seconds'])} in all ({summary['seconds'] / 3600:.1f} hours), {size(summary['bytes'])}; "
        f"{summary['bad']} bad"
    )
    if indexes is None:
        yield "no index is written for recordings in shards, which have none"
    else:
        yield f"indexes in {indexes['folder']}:"
        yield (
            f"  {indexes['written']} written, {indexes['found']} from an earlier run, "
            f"{indexes['needless']} not needed (small files are read whole)"
        )
    yield from histogram("rates", {f"{rate} Hz": n for rate, n in summary["rates"].items()})
    yield from histogram("codecs", summary["codecs"])
    yield from histogram("channels", summary["channels"])
    if summary["classes"]:
        yield from histogram("classes", {str(one["class"]): one["rows"] for one in summary["classes"][:SHOWN]})
        if summary["n_classes"] > SHOWN:
            yield f"  and {summary['n_classes'] - SHOWN} more"
    for shard in summary["damaged"]:
        yield f"damaged: {shard['path']}: {shard['damage']}"
    for bad in found["bad"][:SHOWN]:
        yield bad_line(*(bad[name] for name in ("file", "row", "path", "reason")))
    if summary["bad"] > SHOWN:
        yield f"and {summary['bad'] - SHOWN} more bad ones"
