"""Recordings of several lengths, as speech has them, and their table."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.batching import Buckets
from forebay.crops import Whole
from paths import DATA
from recordings import SMALL
from windows import noise, wav

RATE = 16_000

UTTERANCES: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name not in ("clip_seconds", "batch_size")},
    "crop": Whole(),
    "batching": Buckets(0.4, num_buckets=3, pad_to="bucket"),
}
"""Loader parameters for the 60 rows of the fixture `utterances`: batches by duration, some 15 a pass."""


def write_utterances(
    folder: Path,
    seconds: Sequence[float],
    *,
    rate: int = RATE,
    said: bool = True,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> Path:
    """Writes a recording of each length, and a table of them with more `columns`.

    The table says their `duration`, unless `said` is false.
    """
    folder.mkdir(exist_ok=True)
    table = folder / "utterances.jsonl"
    with table.open("w") as lines:
        for row, length in enumerate(seconds):
            samples = noise(round(length * rate), row)
            (folder / f"{row}.wav").write_bytes(wav(samples, rate))
            entry: dict[str, Any] = {"path": f"{row}.wav", "label": row}
            if said:
                entry["duration"] = length
            entry |= {name: values[row] for name, values in (columns or {}).items()}
            lines.write(json.dumps(entry) + "\n")
    return table


def samples_of(row: int, seconds: float, rate: int = RATE) -> np.ndarray:
    """The samples of a recording, as float32."""
    return (noise(round(seconds * rate), row) / 32768).astype(np.float32)


def frames_first(batch: dict[str, Any], row: int) -> np.ndarray:
    """The valid frames of a row of a batch with `layout="mel"`."""
    return np.asarray(batch["spectrogram"][row][..., : batch["valid_frames"][row]])


def whisper_tokenizer(folder: Path) -> Path:
    """The tokenizer of the tests with special tokens of Whisper from id 1000 on: those of a prefix, and of times."""
    made = json.loads((DATA / "tokens" / "tokenizer.json").read_text())
    names = ["<|startoftranscript|>", *(f"<|{step / 50:.2f}|>" for step in range(1501))]
    names += ["<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    made["added_tokens"] += [{"id": at, "content": name} | flags for at, name in enumerate(names, 1000)]
    path = folder / "whisper.json"
    path.write_text(json.dumps(made))
    return path
