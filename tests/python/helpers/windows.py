"""Recordings of several lengths, for windows."""

import io
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fields import write
from forebay import features

RATE = 8000
SECONDS = 0.02
CLIP = round(SECONDS * RATE)
LENGTHS = [400, 160, 161, 40, 1, 159, 1000, 320]
"""Samples of the recordings: several windows, one exactly, a little more, less."""

WAVEFORM: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE), "clip_seconds": SECONDS, "batch_size": 7, "infinite": False,
    "shuffle_min_size": 0, "n_workers": 3, "outputs": ["window", "start", "valid_samples"],
}  # fmt: skip


def wav(samples: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-20_000, 20_000, n)


def shard(path: Path, recordings: Sequence[bytes | None], form: str = "stream") -> Path:
    audio = pa.array([{"bytes": each, "path": f"{i}.wav"} for i, each in enumerate(recordings)])
    return write(path, pa.table({"audio": audio, "label": list(range(len(recordings)))}), form)
