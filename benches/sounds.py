"""Sounds of the benches: the recordings of tests/data at one rate, one after the other."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

TESTS = Path(__file__).parents[1] / "tests" / "data" / "recordings"


def sound(rate: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Speech, music and birds, mono."""
    parts = []
    for file in sorted(TESTS.glob("*.*")):
        try:
            samples, found = soundfile.read(file, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, TypeError):
            continue
        if found == rate:
            parts.append(samples.mean(axis=1))
    return np.concatenate(parts)
