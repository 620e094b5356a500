"""Objects of `forebay.features`: of golden features, and with parameters at random."""

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import front_ends
from forebay import features
from forebay._part import _Part
from golden_features import Golden

CLASSES: dict[str, Any] = {
    name: getattr(features, name) for name in ("Spectrogram", "LogMel", "MFCC", "Fbank", "Waveform")
}


def known(kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """All parameters of the class, with the oracle's defaults."""
    names = {field.name for field in dataclasses.fields(CLASSES[kind])}
    given = {name: value for name, value in front_ends.DEFAULTS[kind].items() if name in names} | parameters
    return {"type": kind, **given, **({"empty_bands": "keep"} if "empty_bands" in names else {})}


def front_end(golden: Golden, **changes: Any) -> Any:
    return _Part.from_dict(known(golden.kind, golden.parameters | changes))


CHOICES: dict[str, list[Any]] = {
    "n_fft": [16, 63, 64, 100, 256], "win_length": [None, 16], "hop_length": [1, 7, 64, 300], "power": [1.0, 2.0],
    "window": ["hann", "hanning", "hamming", "povey", "rectangular"], "center": [True, False],
    "pad_mode": ["reflect", "constant"], "drop_last": [True, False], "preemphasis": [0.0, 0.97],
    "preemphasis_start": ["keep", "drop"], "n_mels": [1, 5], "f_min": [0.0, 30.0], "f_max": [None, 3000.0],
    "mel_scale": ["htk", "slaney", "kaldi"], "norm": [None, "slaney"], "n_frames": [None, 1, 30],
    "fill": ["silence", "minimum", -1.5], "layout": ["mel", "time"], "remove_mean": [True, False],
    "normalize_waveform": [None, "peak", "zscore"], "scale": [1.0, 32768.0], "snip_edges": [True, False],
    "remove_dc": [True, False], "n_mfcc": [1], "dct_norm": ["ortho", None], "lifter": [0.0, 22.0],
    "compression": [
        {"type": "Ln", "floor": 1e-5}, {"type": "Ln", "eps": 1e-3}, {"type": "Log10", "floor": 1e-6, "range": 4.0},
        {"type": "Decibel", "top_db": 30.0, "amin": 1e-6}, {"type": "Decibel", "reference": "max", "amin": 1e-6},
        {"type": "PCEN", "smooth": 0.1}, {"type": "PCEN", "initial": 1.0},
    ],
    "normalization": [None, {"type": "Standard", "mean": 1.0, "std": 3.0, "factor": 2.0}, {"type": "MinMax"},
                      {"type": "ZScore", "per": "band", "ddof": 1, "eps": 0.1}, {"type": "ZScore", "eps": 0.1}],
}  # fmt: skip


def drawn(kind: str, n: int) -> Iterator[tuple[dict[str, Any], NDArray[np.float32]]]:
    """Combinations of parameters, with a clip of 2 samples or more for each."""
    rng = random.Random(kind)
    for _ in range(n):
        names = {field.name for field in dataclasses.fields(CLASSES[kind])}
        given: dict[str, Any] = {name: rng.choice(choices) for name, choices in CHOICES.items() if name in names}
        given |= {"sample_rate": 8000}
        if not given["preemphasis"]:
            given.pop("preemphasis_start", None)
        if "drop_last" in given and (not given["center"] or given["n_fft"] % 2):
            given["drop_last"] = False  # the oracle counts hops, which is the same only with an even n_fft
        if kind == "Fbank":
            given["win_length"] = rng.choice([16, 50, 60])
            given["n_fft"] = rng.choice([None, 64, 100])
        elif (given["win_length"] or 0) > given["n_fft"]:
            continue
        n_samples = rng.choice([2, 3, 40, 700])
        yield given, np.random.default_rng(rng.randrange(1 << 30)).normal(0, 0.3, n_samples).astype(np.float32)
