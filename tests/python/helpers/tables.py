"""Folders of small recordings, and tables that name them."""

import csv
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recordings import tiny_rows

BIRDS = ["owl", "wren", "finch", "jay"]


def write_recordings(folder: Path, n: int, *, bad_every: int | None = None) -> list[str]:
    """`n` recordings of 20 ms below the folder; returns their names. Every `bad_every`th is none."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for i, row in enumerate(tiny_rows(n)):
        name = f"{i:03} one.wav"
        is_bad = bad_every is not None and i % bad_every == 7
        (folder / name).write_bytes(b"no recording" if is_bad else row.audio or b"")
        names.append(name)
    return names


def rows(names: Iterable[str], *, segments: bool = False) -> list[dict[str, Any]]:
    """Rows with columns of all types, of which csv can have all."""
    made: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        row: dict[str, Any] = {
            "file_name": name,
            "index_in_table": i,
            "bird": None if i % 7 == 2 else BIRDS[i % 4],
            "several": ", ".join(BIRDS[: i % 4]) or None,
            "x": None if i % 3 == 1 else i / 4,
            "is_good": i % 2 == 0,
            "text": f'row {i}, "quoted"\nand more' * (i % 3) or None,
        }
        if segments:
            row |= {"start": None if i % 4 == 1 else i % 3 / 1000, "end": None if i % 5 == 1 else 0.012 + i % 8 / 1000}
        made.append(row)
    return made


def write_table(path: Path, made: list[dict[str, Any]]) -> Path:
    """Writes rows as the ending of the path says."""
    ending = path.suffix
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(made), path)
    elif ending == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    else:
        delimiter = "\t" if ending == ".tsv" else ","
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(made[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(made)
    return path


def compressed(table: Path, ending: str) -> Path:
    """Writes a compressed copy of a table beside it: `t.csv.gz` or `t.csv.zst` of `t.csv`."""
    path = table.with_name(f"{table.name}.{ending}")
    with pa.CompressedOutputStream(str(path), {"gz": "gzip", "zst": "zstd"}[ending]) as stream:
        stream.write(table.read_bytes())
    return path


def write_tar(path: Path, members: list[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    """Writes an archive with these names and bytes."""
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def by_column(made: list[dict[str, Any]]) -> Mapping[str, list[Any]]:
    """The same rows as columns."""
    return {name: [row[name] for row in made] for name in made[0]}
