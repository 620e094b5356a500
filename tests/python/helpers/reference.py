"""The oracle for a loader's features: soundfile, a float64 resampler, the crop, and a float64 log-mel.

`python tests/python/helpers/reference.py FILE` writes the features of a recording as FILE.npy.
"""

import io
import sys
from dataclasses import dataclass
from math import ceil, floor, gcd, pi
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import upfirdn

Array = NDArray[np.float64]

ATTENUATION_DB = 115.0  # 110 is the documented attenuation of the default quality; Kaiser's formulas miss up to 5
PASS_BAND = 0.91  # of the lower Nyquist frequency; the stop band begins at 1


@dataclass(frozen=True)
class Features:
    """The feature parameters of a loader, under its names."""

    sample_rate: int = 32000
    clip_seconds: float = 5.0
    n_mels: int = 128
    n_fft: int = 1024
    hop_length: int = 320

    @property
    def clip_samples(self) -> int:
        """Samples of a clip."""
        return round(self.clip_seconds * self.sample_rate)


def decode(audio: bytes) -> tuple[Array, int]:
    """The mean of the channels, and the rate."""
    waveform, rate = soundfile.read(io.BytesIO(audio), dtype="float64", always_2d=True)
    return waveform.mean(axis=1), rate


def resample(waveform: Array, source_rate: int, target_rate: int) -> Array:
    """Resamples by convolution with a Kaiser-windowed sinc; samples outside the recording are zero."""
    if source_rate == target_rate:
        return waveform
    n = ceil(len(waveform) * target_rate / source_rate)
    up, down = target_rate // gcd(source_rate, target_rate), source_rate // gcd(source_rate, target_rate)
    # Time on the common grid, in samples of the lower rate; Kaiser's formulas with a transition from PASS_BAND to 1.
    width = (ATTENUATION_DB - 7.95) / (2.285 * pi * (1 - PASS_BAND)) / 2
    half = down * ceil(width * max(up, down) / down)
    time = np.arange(-half, half + 1) / max(up, down)
    cutoff = (1 + PASS_BAND) / 2
    window = np.i0(0.1102 * (ATTENUATION_DB - 8.7) * np.sqrt(np.maximum(0, 1 - (time / width) ** 2)))
    window *= (np.abs(time) <= width) / np.i0(0.1102 * (ATTENUATION_DB - 8.7))
    taps = cutoff * np.sinc(cutoff * time) * window * min(1, up / down)
    resampled: Array = upfirdn(taps, waveform, up, down)[half // down :][:n]
    return resampled


def center_crop(waveform: Array, clip_samples: int) -> Array:
    """The middle of a long recording; zeros on both sides of a short one."""
    missing = clip_samples - len(waveform)
    if missing >= 0:
        return np.pad(waveform, (floor(missing / 2), missing - floor(missing / 2)))
    start = floor(-missing / 2)
    return waveform[start : start + clip_samples]


def mel_filters(features: Features) -> Array:
    """Triangles on the HTK mel scale, `[n_mels, n_fft // 2 + 1]`."""
    hz = np.linspace(0, features.sample_rate / 2, features.n_fft // 2 + 1)
    edges = band_edges(features)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling))


def band_edges(features: Features) -> Array:
    """Lower edge of band i, its centre, its upper edge: entries i, i + 1, i + 2; hertz."""
    top = 2595 * np.log10(1 + features.sample_rate / 2 / 700)
    return np.asarray(700 * (10 ** (np.linspace(0, top, features.n_mels + 2) / 2595) - 1))


def log_mel(clip: Array, features: Features) -> Array:
    """Natural log of mel energies, floor 1e-10: `[n_mels, n_frames]`."""
    n_fft, hop = features.n_fft, features.hop_length
    padded = np.pad(clip, n_fft // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop][: 1 + len(clip) // hop]
    window = 0.5 - 0.5 * np.cos(2 * pi * np.arange(n_fft) / n_fft)
    energy = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    features_of_frames: Array = np.log(np.maximum(mel_filters(features) @ energy.T, 1e-10))
    return features_of_frames


def center_clip(audio: bytes, features: Features) -> Array:
    """The waveform of an evaluation clip: decoded, resampled, cropped in the middle."""
    waveform, rate = decode(audio)
    return center_crop(resample(waveform, rate, features.sample_rate), features.clip_samples)


def differences(found: NDArray[np.float32], expected: Array) -> tuple[Array, Array]:
    """Absolute differences in bands up to 60 dB below their frame's largest, and in bands 60 to 90 dB below it.

    Bands further down contain the rounding noise of a single-precision transform, 130 dB below the frame's peak in
    amplitude. For them this function asserts that the energies differ by less than 2e-11 of the peak.
    """
    error = np.abs(found - expected)
    peak = expected.max(axis=0, keepdims=True)
    below = peak - expected
    noise = np.abs(np.exp(found - peak) - np.exp(expected - peak))[below > np.log(1e9)]
    assert noise.max(initial=0) <= 2e-11
    loud, quiet = below <= np.log(1e6), (below > np.log(1e6)) & (below <= np.log(1e9))
    return error[loud], error[quiet]


def main() -> None:
    """Writes the reference features of one recording."""
    path = Path(sys.argv[1])
    features = Features()
    np.save(path.with_suffix(path.suffix + ".npy"), log_mel(center_clip(path.read_bytes(), features), features))


if __name__ == "__main__":
    main()
