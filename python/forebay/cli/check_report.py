"""The report of `forebay check`: its rows, its summary, and its files.

The rows are written in order to `.REPORT.csv.forebay-part`. The complete `REPORT.csv` has a line for every recording;
`REPORT.json` has the shards, a summary and the bad recordings.
"""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TextIO

from forebay._core import ConfigError, __version__
from forebay._files import NotAFileError, open_file, what_is
from forebay._progress import clock
from forebay.cli.common import SHOWN, bad_line, counted, histogram

if sys.platform != "win32":
    import fcntl

COLUMNS = (
    "index", "shard", "row", "path", "bytes", "codec", "rate", "channels", "seconds", "declared_seconds", "peak",
    "clipping", "silence", "nan", "repaired", "kind", "reason", "warnings",
)  # fmt: skip
"""The columns of the CSV file, which has a line for each recording."""
HEADER = f"{','.join(COLUMNS)}\n".encode()
"""The first line of the CSV file."""
BAD = ' "bad": ['
"""The start of the JSON file's last key, the bad recordings."""
VERSION = 1
"""The version of the JSON file's layout; `crates/loader/src/report.rs` reads it."""
SECONDS = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""The first second of each class of durations."""
CLIPPED = 1e-3
"""The share of values at full scale from which a recording counts as clipped."""
BEGUN, WHOLE = b'{"begun_by": "forebay check"', b'{\n "report": "forebay check"'
"""The first bytes of a report's JSON files: of an unfinished report, and of a complete one."""

Row = Mapping[str, Any]


@dataclass
class Summary:
    """Counts over all recordings."""

    records: int = 0
    seconds: float = 0.0
    clipped: int = 0
    silent: int = 0
    repaired: int = 0
    warned: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)
    rates: Counter[int] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    first_bad: list[str] = field(default_factory=list)
    """Lines for the terminal."""

    def add(self, row: Row) -> None:
        """Adds a recording to the counts."""
        self.records += 1
        self.warned += bool(row["warnings"])
        if row["kind"]:
            self.kinds[row["kind"]] += 1
            if len(self.first_bad) < SHOWN:
                self.first_bad.append(bad_line(*(row[name] for name in ("shard", "row", "path", "reason"))))
            return
        self.seconds += row["seconds"]
        self.clipped += row["clipping"] >= CLIPPED
        self.silent += row["silence"] == 1.0
        self.repaired += row["repaired"] > 0
        self.durations[max(start for start in SECONDS if start <= row["seconds"])] += 1
        self.rates[row["rate"]] += 1
        self.codecs[row["codec"]] += 1
        self.channels[row["channels"]] += 1

    @property
    def bad(self) -> int:
        """The number of recordings that cannot be decoded."""
        return self.kinds.total()

    def as_dict(self) -> dict[str, Any]:
        """The summary in the JSON file; durations by the first second of each class."""
        return {
            "records": self.records,
            "bad": self.bad,
            "kinds": dict(self.kinds.most_common()),
            "seconds": round(self.seconds, 3),
            "clipped": self.clipped,
            "silent": self.silent,
            "repaired": self.repaired,
            "warned": self.warned,
            "durations": {str(start): self.durations[start] for start in SECONDS if self.durations[start]},
            "rates": {str(rate): count for rate, count in sorted(self.rates.items())},
            "codecs": dict(self.codecs.most_common()),
            "channels": {str(number): count for number, count in sorted(self.channels.items())},
        }

    def lines(self) -> Iterator[str]:
        """The summary for the terminal, with histograms of the decoded recordings."""
        yield f"{counted(self.records, 'recording')}, {clock(self.seconds)} in all; {self.bad} bad"
        for kind, count in self.kinds.most_common():
            yield f"  {kind:<12} {count}"
        yield f"{self.clipped} clipped (at least {CLIPPED:.1%} of their samples at full scale), {self.silent} silent"
        if self.repaired:
            yield (
                f"{self.repaired} have time stamps that contradict their samples slightly, or frames that cannot "
                "be decoded: samples are cut or filled with zeros there (column repaired)"
            )
        if self.warned:
            yield f"{self.warned} have a warning: see the column `warnings`"
        ends = dict(itertools.pairwise((*SECONDS, 0)))
        spans = {f"{start} to {ends[start]} s" if ends[start] else f"from {start} s": start for start in SECONDS}
        yield from histogram("durations", {name: self.durations[start] for name, start in spans.items()})
        yield from histogram("rates", {f"{rate} Hz": count for rate, count in sorted(self.rates.items())})
        yield from histogram("codecs", dict(self.codecs.most_common()))
        yield from histogram("channels", {str(number): count for number, count in sorted(self.channels.items())})
        yield from self.first_bad
        if self.bad > SHOWN:
            yield f"and {self.bad - SHOWN} more bad ones, which the report lists"


@dataclass(frozen=True)
class Files:
    """The files of a report, partial and complete."""

    stem: Path

    def named(self, ending: str) -> Path:
        """The path of the report's file with this ending; `.tmp` is for partial files, which have hidden names."""
        if ending.endswith(".tmp"):
            return self.stem.with_name(f".{self.stem.name}{ending.removesuffix('.tmp')}.forebay-part")
        return self.stem.with_name(self.stem.name + ending)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Locks the report for this process; raises `ConfigError` while another process writes it."""
        if not self.stem.name or self.stem.name == "..":
            raise ConfigError(f"{str(self.stem)!r} is a folder, expected the name of a report, as in -o REPORT")
        if not self.stem.parent.is_dir():
            raise ConfigError(f"the report's folder {self.stem.parent} does not exist; create it, or pass another -o")
        path = self.named(".lock.tmp")
        try:
            opened = self.opened(path, "a+")
        except OSError as error:
            raise OSError(error.errno, f"the report cannot be written, {error.strerror}", str(self.stem)) from None
        with opened as file:
            if file.seek(0, os.SEEK_END):
                raise self.foreign(path)
            if sys.platform != "win32":
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_there = what_is(path) and os.path.samestat(os.fstat(file.fileno()), path.lstat())
                except (BlockingIOError, FileNotFoundError):
                    is_there = False
                except OSError:  # the file system has no locks
                    is_there = True
                if not is_there:
                    raise ConfigError(f"another forebay check is writing {self.stem}; wait for it, or pass another -o")
            try:
                yield
            finally:
                if sys.platform != "win32":
                    path.unlink(missing_ok=True)

    def foreign(self, path: Path, what: str = "there") -> ConfigError:
        """The error for a file that is not of a report, which stays."""
        return ConfigError(f"{path} is {what} and is not a report of forebay check; pass another -o")

    def opened(self, path: Path, mode: Literal["r", "r+", "a+"]) -> IO[bytes]:
        """Opens a file of the report, without following links."""
        try:
            return open_file(path, mode)
        except NotAFileError as error:
            raise ConfigError(f"{error} and is not a report of forebay check; pass another -o") from None

    def write(self, path: Path, data: bytes) -> None:
        """Replaces the content of a partial file."""
        with self.opened(path, "r+") as file:
            file.truncate(0)
            file.write(data)

    def start(
        self, shards: Sequence[Row], step: int, *, judged: Mapping[str, str | float | None], restart: bool
    ) -> Summary:
        """Counts the rows of an unfinished run over the same shards, a multiple of `step`; cuts off the rest.

        Raises `ConfigError` if that run had other shards or other options than `judged`.
        """
        origin, partial = self.named(".json.tmp"), self.named(".csv.tmp")
        self.check_free()
        self.undo_half_a_finish(shards)
        summary = Summary()
        if origin.exists() and partial.exists() and not restart:
            found = read_json(origin)
            if problem := difference(found, shards):
                raise ConfigError(f"{partial} was started with other shards: {problem}; pass another -o, or --restart")
            for name, value in judged.items():
                option = f"--{name.replace('_', '-')}"
                before = found.get(name, None if name == "track" else value)
                if before is None and value is not None:
                    raise ConfigError(
                        f"{partial} was started without {option}; leave it out, or pass another -o, or --restart"
                    )
                if before != value:
                    raise ConfigError(
                        f"{partial} was started with {option} {before}; pass that again, another -o, or --restart"
                    )
            end, some = len(HEADER), []
            for row, row_end in whole_rows(partial):
                some.append(row)
                if len(some) == step:
                    for counted in some:
                        summary.add(counted)
                    end, some = row_end, []
            with self.opened(partial, "r+") as file:
                file.truncate(end)
        else:
            self.write(partial, HEADER)
            begun = {"begun_by": "forebay check", "shards": list(shards), **judged}
            self.write(origin, json.dumps(begun).encode())
        return summary

    def finish(self, shards: Sequence[Row], summary: Summary, track: int | None) -> None:
        """Writes the report, and renames both files to their final names."""
        report = {
            "report": "forebay check",
            "version": VERSION,
            "forebay": __version__,
            "shards": list(shards),
            **({} if track is None else {"track": track}),
            "summary": summary.as_dict(),
            "bad": [],
        }
        origin, whole = self.named(".json.tmp"), self.named(".json.whole.tmp")
        self.check_free()
        # Not into the origin, which an interrupted run needs to continue.
        with io.TextIOWrapper(self.opened(whole, "r+"), encoding="utf-8", newline="\n") as file:
            file.truncate(0)
            # `bad` is last. Its rows are read from the table one at a time, since there may be millions.
            head = io.StringIO()
            json.dump(report, head, indent=1)
            file.write(head.getvalue().removesuffix("[]\n}"))
            before = "["
            for row in self.bad_rows(summary.records):
                lines = json.dumps(entry(row, shards), indent=1).replace("\n", "\n  ")
                file.write(f"{before}\n  {lines}")
                before = ","
            file.write("[]\n}" if before == "[" else "\n ]\n}")
            file.flush()
            os.fsync(file.fileno())
        whole.replace(origin)
        self.named(".csv.tmp").replace(self.named(".csv"))
        origin.replace(self.named(".json"))

    def bad_rows(self, records: int) -> Iterator[Row]:
        """The bad rows of the partial table, which has `records` rows."""
        partial, n = self.named(".csv.tmp"), 0
        for row, _ in whole_rows(partial):
            n += 1
            if row["kind"]:
                yield row
        if n != records:
            raise ConfigError(f"{partial} has {n} of the {records} rows that were written to it; pass --restart")

    def check_free(self) -> None:
        """Raises `ConfigError` if a file at one of the report's paths is not of an earlier report."""
        begins = {
            ".csv": (HEADER,),
            ".csv.tmp": (HEADER,),
            ".json": (WHOLE,),
            ".json.tmp": (BEGUN, WHOLE),
            ".json.whole.tmp": (WHOLE,),
        }
        for ending, starts in begins.items():
            path = self.named(ending)
            if what_is(path) is None:
                continue
            with self.opened(path, "r") as file:
                data = file.read(max(map(len, starts)))
            # A truncated partial file is of a report too, since only forebay uses this name.
            is_cut = ending.endswith(".tmp") and any(start.startswith(data) for start in starts)
            if data and not data.startswith(starts) and not is_cut:
                raise self.foreign(path)

    def undo_half_a_finish(self, shards: Sequence[Row]) -> None:
        """Undoes the first rename of `finish` if a run ended before the second, so that the next run continues."""
        origin, partial, table = self.named(".json.tmp"), self.named(".csv.tmp"), self.named(".csv")
        if partial.exists() or not origin.exists() or not table.exists():
            return
        found = read_json(origin)
        if not isinstance(found, dict) or found.get("report") != "forebay check" or difference(found, shards):
            return
        summary = found.get("summary")
        if isinstance(summary, dict) and sum(1 for _ in whole_rows(table)) == summary.get("records"):
            table.replace(partial)


def read_json(path: Path) -> Any:
    """The content of a file, without the bad recordings of a report; None if it is not JSON."""
    lines = []
    try:
        with io.TextIOWrapper(open_file(path, "r"), encoding="utf-8") as file:
            for line in file:
                if line.startswith(BAD):
                    lines.append(f"{BAD}]}}")
                    break
                lines.append(line)
        return json.loads("".join(lines))
    except (ValueError, RecursionError):
        return None


def difference(found: Any, shards: Sequence[Row]) -> str | None:
    """How the shards of an earlier run differ; None if they are the same."""
    before = found.get("shards") if isinstance(found, dict) else None
    if not isinstance(before, list):
        return "it does not list them"
    if len(before) != len(shards):
        return f"{len(before)} files, these are {len(shards)}"
    for old, new in zip(before, shards, strict=True):
        if not isinstance(old, dict):
            return "it does not list them"
        if old != new:
            names = [name for name in ("path", "num_rows", "num_bytes", "damage") if old.get(name) != new[name]]
            return f"{new['path']}, whose " + ", ".join(f"{name} was {old.get(name)}" for name in names)
    return None


def whole_rows(path: Path) -> Iterator[tuple[Row, int]]:
    """The complete rows of a CSV file, in order, each with the offset of its end; stops at the first invalid row."""
    with open_file(path, "r") as file:
        if file.readline(len(HEADER)) != HEADER:
            raise ConfigError("the partial report has an unexpected first line; pass --restart")
        end = len(HEADER)
        for number, line in enumerate(file):
            # The module's default limit, 128 KiB, is too small for a reason with a path.
            csv.field_size_limit(max(csv.field_size_limit(), len(line)))
            try:
                fields = next(csv.reader([line.decode(errors="replace").removesuffix("\n")]), [])
                if not line.endswith(b"\n") or len(fields) != len(COLUMNS) or fields[0] != str(number):
                    return
                row = parsed(dict(zip(COLUMNS, fields, strict=True)))
            except (ValueError, csv.Error):
                return
            end += len(line)
            yield row, end


def parsed(fields: Mapping[str, str]) -> Row:
    """Converts a row of the CSV file back to the core's form. Raises `ValueError` for an invalid row."""
    counts = ("bytes", "rate", "channels", "repaired")
    whole = {name: int(fields[name]) if fields[name] else None for name in counts}
    reals = ("seconds", "declared_seconds", "peak", "clipping", "silence")
    real = {name: float(fields[name]) if fields[name] else None for name in reals}
    text = {name: fields[name] or None for name in ("path", "codec", "kind", "reason")}
    counted = (*(whole[name] for name in counts), *(real[name] for name in ("seconds", "clipping", "silence")))
    if not text["kind"] and not all(value is not None and 0 <= value < math.inf for value in counted):
        raise ValueError("a good recording lacks numbers")
    return {
        "index": int(fields["index"]), "shard": fields["shard"], "row": int(fields["row"]),
        **whole, **real, **text, "nan": fields["nan"] == "True", "warnings": fields["warnings"],
    }  # fmt: skip


def settled(row: Row, truncated: str | float | None) -> Row:
    """Converts a row of the core to the report's form: warnings as one text, truncated recordings good or bad."""
    early = row["truncated"]
    warnings = list(row["warnings"])
    kind, reason = row["kind"], row["reason"]
    if early and truncated == "error":
        kind, reason = kind or "truncated", reason or early
    elif early:
        warnings.insert(0, f"cut short: {early}")
    return {**{name: row[name] for name in COLUMNS}, "kind": kind, "reason": reason, "warnings": "; ".join(warnings)}


def one_line(value: object) -> object:
    """Escapes line breaks in texts, so that each line of the file is a row."""
    return value.replace("\r", "\\r").replace("\n", "\\n") if isinstance(value, str) else value


def entry(row: Row, shards: Sequence[Row]) -> Row:
    """The entry of a bad recording in the JSON file, with the number of its shard."""
    number = max(n for n, shard in enumerate(shards) if shard["first_row"] <= row["index"] and shard["num_rows"])
    return {"shard_number": number, **{name: one_line(row[name]) for name in COLUMNS}}


def write(file: TextIO, rows: Iterable[Row]) -> None:
    """Writes whole lines in one call, so that an interrupt leaves no partial line."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows([one_line(row[name]) for name in COLUMNS] for row in rows)
    file.write(lines.getvalue())
    file.flush()
