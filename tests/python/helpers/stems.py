"""Rows of several recordings: two sources and their sum, in files of their own, and their table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windows import wav

RATE = 8000
LENGTHS = [400, 161, 1000, 320, 40, 700]
"""Samples of the recordings of each row."""

AUDIO = {"mix": "mix", "s1": "s1", "s2": "s2"}


def source(n: int, row: int, stem: int) -> np.ndarray:
    """16-bit samples of a source; two of them have no sum beyond 16 bits."""
    return np.random.default_rng([row, stem]).integers(-15_000, 15_000, n)


def write_stems(folder: Path, lengths: Sequence[int] = LENGTHS, rate: int = RATE) -> Path:
    """Writes `<row>-mix.wav`, `<row>-s1.wav`, `<row>-s2.wav` and a table of their paths."""
    folder.mkdir(exist_ok=True)
    table = folder / "stems.jsonl"
    with table.open("w") as lines:
        for row, n in enumerate(lengths):
            sources = {"s1": source(n, row, 1), "s2": source(n, row, 2)}
            entry: dict[str, Any] = {"label": row, "index_in_table": row, "duration": n / rate}
            for name, samples in {"mix": sources["s1"] + sources["s2"], **sources}.items():
                (folder / f"{row}-{name}.wav").write_bytes(wav(samples, rate))
                entry[name] = f"{row}-{name}.wav"
            lines.write(json.dumps(entry) + "\n")
    return table


def change(table: Path, row: int, **values: Any) -> None:
    """Changes values of a row of the table."""
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[row] |= values
    table.write_text("".join(json.dumps(one) + "\n" for one in rows))
