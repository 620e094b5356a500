"""A front end of `forebay.features` as numbers and arrays, from which devices compute it: torch, JAX.

The definitions are those of the Rust front end (`crates/dsp/src`: `window.rs`, `mel.rs`, `front_end.rs`), once more in
numpy: designed in float64, stored as float32. `forebay._front_end_steps` has the computation. Nothing here imports a
framework.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forebay import features
from forebay._checks import shown, wrong_type
from forebay._core import ConfigError

__all__ = ["FULL_SCALE", "Padding", "Tables", "tables"]

Array = NDArray[Any]

FULL_SCALE = 32768.0
"""The int16 sample of full scale."""

Padding = Literal["excluded", "included"]


@dataclass(frozen=True)
class Tables:
    """What a device needs of a front end; arrays are float32."""

    front_end: Any
    padding: Padding
    n_fft: int = 0
    span: int = 0
    """Samples of a frame: `n_fft`, with Kaldi's frames `win_length`."""
    hop: int = 1
    before: int = 0
    """Samples of frame 0 before the waveform."""
    ends: Literal["reflect", "mirror", "constant"] = "reflect"
    """What frames read over the ends: `mirror` repeats the first and the last sample, `reflect` does not."""
    extra: int = 0
    """Frames of a waveform of `n` samples are `(n + extra) // hop`, and one more unless `drop_last`."""
    one_more: int = 0
    n_dropped: int = 0
    """Samples that preemphasis leaves out at the start."""
    factor: float = 1.0
    """`factor * ln(x) + summand` is the compression, if it is a logarithm."""
    summand: float = 0.0
    is_by_frame: bool = True
    """Whether a frame's features depend on no other frame."""
    arrays: dict[str, Array] = field(default_factory=dict)

    @property
    def is_waveform(self) -> bool:
        """Whether the features are samples."""
        return isinstance(self.front_end, features.Waveform)

    def n_rows(self) -> int:
        """Values of a frame."""
        if isinstance(self.front_end, features.MFCC):
            return self.front_end.n_mfcc
        return int(getattr(self.front_end, "n_mels", self.n_fft // 2 + 1))

    def count(self, n_samples: Any) -> Any:
        """Frames of `n_samples`, an integer or integers; negative numbers mean 0, and no samples have no frame."""
        return (n_samples - self.n_dropped + self.extra) // self.hop + self.one_more

    def basis(self) -> Array:
        """The real and imaginary parts of the DFT of a frame as one matrix, `[span, 2 * (n_fft // 2 + 1)]`."""
        turns = np.arange(self.span)[:, None] * np.arange(self.n_fft // 2 + 1) % self.n_fft
        angles = 2 * np.pi / self.n_fft * turns
        return np.concatenate([np.cos(angles), -np.sin(angles)], axis=1).astype(np.float32)

    def fewest(self) -> int:
        """The fewest samples that make a frame."""
        return max(self.n_dropped + 1, (1 - self.one_more) * self.hop - self.extra + self.n_dropped)


def tables(front_end: Any, padding: Padding = "excluded", pad_value: float | None = None) -> Tables:
    """The tables of a front end or of a preset's name.

    `ConfigError` or `TypeError` if it is neither, or if `padding` or `pad_value` is wrong.
    """
    found = features.preset(front_end) if isinstance(front_end, str) else front_end
    if not isinstance(found, features._FrontEndPart):
        raise wrong_type("front_end", "an object of forebay.features or the name of a preset", front_end)
    if padding not in ("excluded", "included"):
        raise ConfigError(f'padding is {shown(padding)}, must be "excluded" or "included"')
    if pad_value is not None:
        if isinstance(pad_value, bool) or not isinstance(pad_value, int | float | np.number):
            raise wrong_type("pad_value", "a float or None", pad_value)
        if not math.isfinite(pad_value):
            raise ConfigError(f"pad_value is {pad_value!r}, must be a number")
        if padding == "included":
            raise ConfigError('pad_value is for padding="excluded"; with "included" frames of padding are computed')
    if isinstance(found, features.Waveform):
        return Tables(found, padding, arrays={"padding": np.array([pad_value or 0.0], np.float32)})
    made = _arrays(_framed(found, padding))
    made.arrays["padding"] = _padding(made) if pad_value is None else np.full(made.n_rows(), pad_value, np.float32)
    return made


def _framed(front_end: Any, padding: Padding) -> Tables:
    """The places of frames, without arrays."""
    hop = front_end.hop_length
    if isinstance(front_end, features.Fbank):
        span = front_end.win_length
        n_fft = front_end.n_fft or max(2, 1 << (span - 1).bit_length())
        # With the ends mirrored, one frame a hop, rounded.
        snips = front_end.snip_edges
        extra, before = (-span, 0) if snips else (hop // 2, span // 2 - hop // 2)
        framed = Tables(front_end, padding, n_fft, span, hop, before, "mirror", extra, int(snips))
    else:
        n_fft = front_end.n_fft
        before = n_fft // 2 if front_end.center else 0
        extra, one_more = 2 * before - n_fft, 0 if front_end.drop_last else 1
        dropped = int(front_end.preemphasis > 0 and front_end.preemphasis_start == "drop")
        ends = front_end.pad_mode
        framed = Tables(front_end, padding, n_fft, n_fft, hop, before, ends, extra, one_more, dropped)
    how, normalization = front_end.compression, front_end.normalization
    factor, summand, relative = 1.0, 0.0, isinstance(how, features.PCEN)
    if isinstance(how, features.Log10):
        factor, relative = 1 / math.log(10), how.range is not None
    elif isinstance(how, features.Decibel):
        decibels = 20.0 if front_end.power == 1 else 10.0
        factor, relative = decibels / math.log(10), how.top_db is not None or how.reference == "max"
        if not isinstance(how.reference, str):
            summand = -decibels * math.log10(max(how.reference, how.amin))
    is_by_frame = not relative and isinstance(normalization, features.Standard | None)
    return replace(framed, factor=factor, summand=summand, is_by_frame=is_by_frame)


def _arrays(framed: Tables) -> Tables:
    """With window, bands, cosines and normalization."""
    front_end, n_fft = framed.front_end, framed.n_fft
    length = front_end.win_length or n_fft
    window = np.zeros(framed.span)
    left = (framed.span - length) // 2
    window[left : left + length] = _window(front_end.window, length)
    made = {"window": front_end.scale * window}
    if hasattr(front_end, "n_mels"):
        made["bands"] = _bands(front_end, n_fft)
    if isinstance(front_end, features.MFCC):
        made["cosines"] = _cosines(front_end)
    if isinstance(how := front_end.normalization, features.Standard):
        mean, std = np.broadcast_arrays(np.atleast_1d(how.mean), np.atleast_1d(how.std))
        made["shift"], made["scale"] = mean.astype(np.float64), 1 / (how.factor * std)
    return replace(framed, arrays={name: value.astype(np.float32) for name, value in made.items()})


def _window(name: str, n: int) -> Array:
    """The weights of `n` samples: `hann` periodic, all others symmetric."""
    if n == 1 or name == "rectangular":
        return np.ones(n)
    cosine = np.cos(2 * np.pi * np.arange(n) / (n if name == "hann" else n - 1))
    if name == "hamming":
        return np.asarray(0.54 - 0.46 * cosine)
    hann = 0.5 - 0.5 * cosine
    return np.asarray(np.maximum(hann, 0.0) ** 0.85 if name == "povey" else hann)


_SLANEY_HZ, _SLANEY_MEL, _SLANEY_STEP = 1000.0, 15.0, math.log(6.4) / 27
"""Where Slaney's scale becomes logarithmic, in hertz and in mel, and the logarithm of a mel's factor above."""


def _mel(hz: Any, scale: str) -> Array:
    """Hertz to mel."""
    hz = np.asarray(hz, np.float64)
    if scale == "htk":
        return np.asarray(2595 * np.log10(1 + hz / 700))
    if scale == "kaldi":
        return np.asarray(1127 * np.log(1 + hz / 700))
    above = _SLANEY_MEL + np.log(np.maximum(hz, _SLANEY_HZ) / _SLANEY_HZ) / _SLANEY_STEP
    return np.asarray(np.where(hz < _SLANEY_HZ, hz * _SLANEY_MEL / _SLANEY_HZ, above))


def _hz(mel: Array, scale: str) -> Array:
    """Mel to hertz."""
    if scale == "htk":
        return np.asarray(700 * (10 ** (mel / 2595) - 1))
    if scale == "kaldi":
        return np.asarray(700 * (np.exp(mel / 1127) - 1))
    above = _SLANEY_HZ * np.exp((np.maximum(mel, _SLANEY_MEL) - _SLANEY_MEL) * _SLANEY_STEP)
    return np.where(mel < _SLANEY_MEL, mel * _SLANEY_HZ / _SLANEY_MEL, above)


def _bands(front_end: Any, n_fft: int) -> Array:
    """The triangles, `[n_fft // 2 + 1, n_mels]`."""
    rate, scale = front_end.sample_rate, front_end.mel_scale
    # torchaudio's whole numbers, which differ for odd rates and an odd n_fft.
    bin_hz = (rate // 2) / (n_fft // 2) if scale == "htk" else rate / n_fft
    f_max = front_end.f_max
    if f_max is None:
        f_max = rate // 2 if scale == "htk" else rate / 2
    elif f_max <= 0:
        f_max += rate / 2
    low, high = _mel(front_end.f_min, scale), _mel(f_max, scale)
    mels = low + (high - low) * np.arange(front_end.n_mels + 2) / (front_end.n_mels + 1)
    hz, bins = _hz(mels, scale), np.arange(n_fft // 2 + 1) * bin_hz
    # Kaldi's triangles have straight sides on the axis of mels.
    corners, places = (mels, _mel(bins, scale)) if scale == "kaldi" else (hz, bins)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    places = places[:, None]
    weights = np.maximum(np.minimum((places - left) / (peak - left), (right - places) / (right - peak)), 0.0)
    if front_end.norm == "slaney":
        weights *= 2 / (hz[2:] - hz[:-2])
    if scale == "kaldi":
        weights[n_fft // 2] = 0.0
    return np.asarray(weights)


def _cosines(front_end: Any) -> Array:
    """The DCT-II with liftering, `[n_mels, n_mfcc]`."""
    n, i = front_end.n_mels, np.arange(front_end.n_mfcc)
    scale = np.where(i == 0, np.sqrt(1 / n), np.sqrt(2 / n)) if front_end.dct_norm == "ortho" else 2.0
    if front_end.lifter > 0:
        scale = scale * (1 + front_end.lifter / 2 * np.sin(np.pi * (i + 1) / front_end.lifter))
    return np.asarray(scale * np.cos(np.pi / n * (np.arange(n)[:, None] + 0.5) * i))


def _padding(made: Tables) -> Array:
    """A frame behind the end of a recording: that of silence, or 0 if frames depend on each other."""
    if not made.is_by_frame:
        return np.zeros(made.n_rows(), np.float32)
    how, arrays = made.front_end.compression, made.arrays
    n_bands = getattr(made.front_end, "n_mels", made.n_rows())
    values = np.full(n_bands, 0.0 if how is None else made.factor * math.log(_least(how)) + made.summand)
    if "cosines" in arrays:
        values = values @ arrays["cosines"].astype(np.float64)
    if "shift" in arrays:
        values = (values - arrays["shift"]) * arrays["scale"]
    return np.asarray(values.astype(np.float32))


def _least(how: Any) -> float:
    """What a logarithm gets of silence."""
    if isinstance(how, features.Ln):
        return how.floor if how.eps is None else how.eps
    return float(how.amin if isinstance(how, features.Decibel) else how.floor)
