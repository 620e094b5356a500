"""Small recordings in every form that a loader reads, with bad rows in several patterns."""

import io
import itertools
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import forebay
from fields import write
from recordings import FORMATS
from tables import write_table

N = 48
"""Rows of a source."""

ELSEWHERE = "-elsewhere"
"""What the second name of a folder ends in."""

BIRDS = ["owl", "wren", "finch", "jay"]
BAD: dict[str, Callable[[int], bool]] = {
    "none": lambda _: False,
    "some": lambda row: row % 17 == 7,
    "runs": lambda row: row in {*range(8, 17), *range(28, 33), *range(40, 48)},
    "half": lambda row: row % 2 == 1,
}
"""Whether a row is bad. Runs leave batches of the order `"sequential"` without a row."""

SHARDS = ("stream", "file", "zstd", "parquet", "plain")
FORMS = (*SHARDS, "list", "pattern", "folder", "csv", "segments", "jsonl", "rows", "tar", "shards_mixed", "files_mixed")


@dataclass(frozen=True)
class Source:
    """What a loader is given, and what is known of its rows."""

    files: Callable[[Path], Any]
    """The source below a folder."""
    folders: tuple[Path, Path]
    """Two names of the same folder."""
    bad: frozenset[int]
    mono: frozenset[int]
    """Rows of one channel."""
    columns: frozenset[str]
    """The columns that rows have."""


@dataclass(frozen=True)
class Recording:
    """Row number `number` of the corpus: its bytes, and the values beside it."""

    number: int
    is_bad: bool

    @property
    def channels(self) -> int:
        return 1 if self.number % 4 == 3 else 2

    @property
    def audio(self) -> bytes:
        """Up to 55 ms of a real recording at 8 or 16 kHz, in one or two channels."""
        if self.is_bad:
            return b"no recording"
        rate, channels = 16000 if self.number % 5 == 0 else 8000, self.channels
        pcm = (FORMATS / "loop.wav").read_bytes()[44:]
        size = 2 * channels * (40 + self.number * 53 % 400)
        start = 4 * (self.number * 97 % 1000)
        sizes = struct.pack("<HHIIHH", 1, channels, rate, 2 * rate * channels, 2 * channels, 16)
        header = struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", 16) + sizes
        return b"RIFF" + header + b"data" + struct.pack("<I", size) + pcm[start : start + size]

    @property
    def values(self) -> dict[str, Any]:
        """Columns of all types."""
        i = self.number
        return {
            "index_in_table": i,
            "label": None if i % 9 == 2 else i % 4,
            "bird": None if i % 7 == 2 else BIRDS[i % 4],
            "several": BIRDS[: i % 4],
            "votes": [i / 8] * 6,
            "ragged": [*range(i % 6)],
            "spans": [[i % 7 / 1000, 0.01], [0.004, 0.03]][: i % 3],
            "weight": [1.0, 0.0, 0.3, 4.5, 0.01][i % 5],
            "x": None if i % 3 == 1 else i / 4,
            "text": f"row {i} " * (i % 9),
        }


class Corpus:
    """Writes each source when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = cache(self._source)

    def _source(self, form: str, pattern: str) -> Source:
        folder = self.folder / f"{form}-{pattern}"
        folder.mkdir(parents=True)
        is_bad = BAD[pattern]
        rows = [Recording(number, is_bad(number)) for number in range(N)]
        write = {"shards_mixed": write_mixed_shards, "files_mixed": write_mixed_files, "tar": write_tar}
        columns = frozenset(rows[0].values)
        if form in SHARDS:
            files = write_shards(folder, rows, form)
        elif form in write:
            files = write[form](folder, rows)
        else:
            files = write_files(folder, rows, form)
        known = {"list": frozenset(), "pattern": frozenset(), "folder": frozenset({"label"})}
        flat = columns - {"votes", "ragged", "spans"}
        known |= dict.fromkeys(("csv", "segments", "rows", "files_mixed"), flat)
        other = folder.with_name(f"{folder.name}{ELSEWHERE}")
        other.symlink_to(folder)
        bad = frozenset(row.number for row in rows if row.is_bad)
        mono = frozenset(row.number for row in rows if row.channels == 1)
        return Source(files, (folder, other), bad, mono, known.get(form, columns))


def table_of(rows: list[Recording]) -> pa.Table:
    made = pa.table({
        "audio": pa.array([{"bytes": row.audio, "path": f"clips/{row.number}.wav"} for row in rows]),
        **{name: pa.array([row.values[name] for row in rows]) for name in rows[0].values},
    })  # fmt: skip
    features = {"label": {"_type": "ClassLabel", "names": BIRDS}}
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_shards(folder: Path, rows: list[Recording], form: str) -> Callable[[Path], Any]:
    made = table_of(rows)
    ends = [0, 19, 20, 41, N]
    for at, (first, end) in enumerate(itertools.pairwise(ends)):
        write(folder / f"shard-{at}", made.slice(first, end - first), form)
    names = sorted(path.name for path in folder.iterdir())
    return lambda top: [top / name for name in names]


def write_mixed_shards(folder: Path, rows: list[Recording]) -> Callable[[Path], Any]:
    made = table_of(rows)
    for name, first, end in (("a", 0, 20), ("b", 20, 30), ("c", 30, N)):
        write(folder / name, made.slice(first, end - first), "zstd")
    return lambda top: {"one": [top / "a.arrow", top / "b.arrow"], "two": top / "c.arrow"}


def write_audio(folder: Path, rows: list[Recording], name: Callable[[Recording], str]) -> list[str]:
    """Writes the recordings; every second bad one is left out."""
    names = [name(row) for row in rows]
    for row, path in zip(rows, names, strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if not row.is_bad or row.number % 4 > 1 or not path.startswith("audio"):
            (folder / path).write_bytes(row.audio)
    return names


def rows_of(rows: list[Recording], names: list[str], form: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    made: list[dict[str, Any]] = []
    for row, name in zip(rows, names, strict=True):
        values: dict[str, Any] = {"file_name": name, **row.values}
        if form != "jsonl":
            values["several"] = ",".join(values["several"]) or None
            for listed in ("votes", "ragged", "spans"):
                del values[listed]
        if form == "segments":
            values |= {"start": None if row.number % 4 == 1 else row.number % 3 / 1000, "end": 0.012}
        made.append(values)
    return made


def write_files(folder: Path, rows: list[Recording], form: str) -> Callable[[Path], Any]:
    if form in ("list", "pattern"):
        names = write_audio(folder, rows, lambda row: f"{row.number:02}.wav")
        return lambda top: [top / name for name in names] if form == "list" else str(top / "*.wav")
    if form == "folder":
        write_audio(folder, rows, lambda row: f"{'abcd'[row.number // 12]}/{row.number}.wav")
        return lambda top: top
    names = write_audio(folder, rows, lambda row: f"audio/{row.number}.wav")
    made = rows_of(rows, names, form)
    if form == "rows":
        return lambda top: forebay.Manifest(made, root=top)
    ending = "jsonl" if form == "jsonl" else "csv"
    write_table(folder / f"table.{ending}", made)
    return lambda top: top / f"table.{ending}"


def write_mixed_files(folder: Path, rows: list[Recording]) -> Callable[[Path], Any]:
    names = write_audio(folder, rows, lambda row: f"audio/{row.number}.wav")
    made = rows_of(rows, names, "csv")
    write_table(folder / "one.csv", made[:17])
    pq.write_table(pa.Table.from_pylist(made[17:]), folder / "two.parquet")
    return lambda top: {"one": top / "one.csv", "two": forebay.Manifest(top / "two.parquet")}


def write_tar(folder: Path, rows: list[Recording]) -> Callable[[Path], Any]:
    for at, part in enumerate((rows[:30], rows[30:])):
        with tarfile.open(folder / f"{at}.tar", "w") as archive:
            for row in part:
                values: Mapping[str, Any] = row.values
                members = {"wav": row.audio, "json": json.dumps(values).encode()}
                for ending, data in members.items():
                    info = tarfile.TarInfo(f"{row.number:02}.{ending}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    return lambda top: [top / "0.tar", top / "1.tar"]
