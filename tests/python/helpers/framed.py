"""Recordings at 8 kHz for targets along the time of clips, and the parameters of their loaders."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fields import write
from forebay import features
from windows import wav

RATE = 8000
GIVEN: dict[str, Any] = {
    "infinite": False, "shuffle_min_size": 0, "batch_size": 4, "n_workers": 2, "augment": False, "clip_seconds": 1.0,
    "outputs": ["start"],
}  # fmt: skip
MEL = features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=80)
WAVEFORM = features.Waveform(sample_rate=RATE)


def recordings(folder: Path, all_samples: list[np.ndarray], columns: dict[str, Any] | None = None) -> Path:
    """Recordings `0.wav`, `1.wav`, ..., with more columns."""
    audio = pa.array([{"bytes": wav(samples), "path": f"{row}.wav"} for row, samples in enumerate(all_samples)])
    return write(folder / "rows", pa.table({"audio": audio, **(columns or {})}))
