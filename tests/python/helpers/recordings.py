"""The bundled recordings, and shards of them written by the real `datasets` library."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from datasets import Audio, ClassLabel, Features
from datasets.arrow_writer import ArrowWriter

from paths import DATA

FOLDER = DATA / "recordings"
FORMATS = FOLDER / "formats"
TINY_SAMPLES = 160
CLASSES = ["bird", "music", "soundscape", "speech"]


@dataclass(frozen=True)
class Row:
    """One row of a shard."""

    audio: bytes | None
    label: int | None = 0
    path: str | None = None


def read_rows() -> list[Row]:
    """All recordings, in the order of recordings.csv."""
    with (FOLDER / "recordings.csv").open(newline="") as table:
        return [
            Row((FOLDER / line["file"]).read_bytes(), CLASSES.index(line["label"]), line["file"])
            for line in csv.DictReader(table)
        ]


def write_shard(
    path: Path, rows: Iterable[Row], *, rows_per_batch: int = 4, classes: Sequence[str] | None = CLASSES
) -> Path:
    """Writes a shard of several record batches; without `classes` it has no label column."""
    features = {"audio": Audio()}
    if classes is not None:
        features["label"] = ClassLabel(names=list(classes))
    with ArrowWriter(features=Features(features), path=str(path), writer_batch_size=rows_per_batch) as writer:
        for row in rows:
            example: dict[str, object] = {"audio": {"bytes": row.audio, "path": row.path}}
            if classes is not None:
                example["label"] = row.label
            writer.write(example)
        writer.finalize()
    return path


def tiny_rows(n: int) -> list[Row]:
    """Rows of 20 ms at 8 kHz, cut from a real recording; adjacent rows differ."""
    pcm = (FORMATS / "loop.wav").read_bytes()[44:]
    size = 2 * TINY_SAMPLES
    header = (
        b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
        + b"\x01\x00\x01\x00" + (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little") + b"\x02\x00\x10\x00"
        + b"data" + size.to_bytes(4, "little")
    )  # fmt: skip
    starts = (2 * (i * 37 % (len(pcm) // 2 - TINY_SAMPLES)) for i in range(n))
    return [Row(header + pcm[start : start + size], i % 4) for i, start in enumerate(starts)]


class TinyParameters(TypedDict):
    sample_rate: int
    clip_seconds: float
    n_fft: int
    hop_length: int
    n_mels: int


TINY: TinyParameters = {"sample_rate": 8000, "clip_seconds": 0.02, "n_fft": 64, "hop_length": 32, "n_mels": 8}
"""Loader parameters for `tiny_rows`."""

SMALL: dict[str, Any] = {**TINY, "seed": 4, "batch_size": 16, "shuffle_min_size": 40, "n_workers": 2}
"""Loader parameters for the 300 rows of the fixture `tiny_shards`: 19 batches a pass."""
