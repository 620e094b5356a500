"""Batches of recordings of several lengths, as waveforms and as features, to compare front ends on devices with."""

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay import crops, features

RATE = 16_000
SAMPLES = (32_000, 5000, 17_600, 450)


def objects() -> dict[str, Any]:
    """Front ends at 16 kHz with all steps to which padding matters."""
    speech = {name: features.preset(name) for name in ("icefall", "wenet", "nemo", "whisper", "wav2vec2", "byola")}
    return speech | {
        "birdmae": features.preset("birdmae", sample_rate=RATE, n_fft=1024, empty_bands="keep"),
        "filled": features.LogMel(sample_rate=RATE, n_frames=300, compression=features.Log10(range=4.0)),
        "least": features.Fbank(
            n_frames=300, fill="minimum", normalize_waveform="peak", normalization=features.MinMax()
        ),
        "number": features.MFCC(sample_rate=RATE, n_mels=64, n_frames=300, fill=-3.0),
        "cepstra": features.MFCC(
            sample_rate=RATE,
            n_mels=64,
            compression=features.Ln(),
            normalization=features.Standard(mean=list(range(40)), std=2.0),
        ),
        "example": features.LogMel(
            sample_rate=RATE, n_frames=300, normalization=features.ZScore(), normalize_waveform="zscore"
        ),
        "dropped": features.LogMel(sample_rate=RATE, preemphasis=0.97, preemphasis_start="drop", remove_mean=True),
        "pcen": features.LogMel(sample_rate=RATE, compression=features.PCEN(), scale=2.0**15),
    }


OBJECTS = list(objects())


def recordings(folder: Path) -> Path:
    """A folder of recordings with an offset."""
    rng = np.random.default_rng(0)
    for i, n in enumerate(SAMPLES):
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes(rng.normal(500, 6000, n).clip(-32768, 32767).astype("<i2").tobytes())
        (folder / f"{i}.wav").write_bytes(file.getvalue())
    return folder


def batches(
    folder: Path, of: Any, crop: str, dtype: Any, pad_value: float | None = None
) -> tuple[dict[str, Any], NDArray[Any]]:
    """A loader's batch of waveforms, and the features of a loader with the same clips."""
    found = []
    for front_end in (features.Waveform(sample_rate=of.sample_rate, dtype=dtype), of):
        value = pad_value if front_end is of else None
        of_crop: dict[str, dict[str, Any]] = {
            "whole": {"crop": crops.Whole(min_seconds=0.01, pad_value=value)},
            "center": {"crop": crops.Center(), "clip_seconds": 1.3},
            "behind": {"crop": crops.Center(pad="behind"), "clip_seconds": 1.3},
        }
        with forebay.Loader(
            folder, features=front_end, outputs=["valid_samples", "start"], order="sequential", infinite=False,
            augment=False, batch_size=len(SAMPLES), n_workers=1, label_column="", shuffle_min_size=0, **of_crop[crop],
        ) as loader:  # fmt: skip
            found.append(next(iter(loader)))
    return found[0], found[1]["waveform" if isinstance(of, features.Waveform) else "spectrogram"]
