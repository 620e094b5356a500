"""What steps of augmentation draw and do, stated in Python, numpy and scipy: the oracle of `forebay.augment`."""

import io
from collections.abc import Callable
from itertools import pairwise
from math import cos, exp, log, pi, sqrt
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import iirnotch, lfilter

from hashes import below, hashed

Array = NDArray[Any]

CROP, AUGMENT = 3, 15
NUMBERS = {
    "Gain": 1, "Polarity": 2, "Roll": 3, "Noise": 4, "Filter": 5, "Clip": 6, "Speed": 7, "SpecAugment": 8,
    "FrameRoll": 9, "Mix": 10, "Reverb": 11, "Mixup": 12, "CutMix": 13, "Python": 14,
    "Dither": 15, "DropFreq": 16, "DropChunk": 17, "OneOf": 18, "Remix": 19,
    "Level": 20, "SwapChannels": 21,
}  # fmt: skip
"""The classes by their numbers in hashes."""


def bits_of(seed: int, row: int, epoch: int = 0) -> int:
    """The random bits of a row in an epoch."""
    return hashed(seed, CROP, epoch, row)


class Draws:
    """What a step draws for an example: step number `count` of its class."""

    def __init__(self, seed: int, name: str, count: int = 0) -> None:
        self.seed, self.key, self.next = seed, NUMBERS[name] << 32 | count, 0
        self.first = self.unit()

    def bits(self) -> int:
        self.next += 1
        return hashed(self.seed, AUGMENT, self.key, self.next - 1)

    def unit(self) -> float:
        return (self.bits() >> 11) * 2.0**-53

    def within(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def below(self, n: int) -> int:
        return below(self.bits(), n)

    def whole(self, low: int, high: int) -> int:
        """A whole number, both bounds included."""
        return low + self.below(high - low + 1)

    def gamma(self, alpha: float) -> float:
        """Marsaglia and Tsang's rejection."""
        if alpha < 1:
            smaller: float = (1 - self.unit()) ** (1 / alpha)
            return self.gamma(alpha + 1) * smaller
        d = alpha - 1 / 3
        c = 1 / sqrt(9 * d)
        while True:
            radius = sqrt(-2 * log(1 - self.unit()))
            x = radius * cos(2 * pi * self.unit())
            v = (1 + c * x) ** 3
            u = 1 - self.unit()
            if v > 0 and log(u) < 0.5 * x * x + d - d * v + d * log(v):
                return d * v

    def beta(self, alpha: float) -> float:
        """A share that is distributed as Beta(alpha, alpha)."""
        one, other = self.gamma(alpha), self.gamma(alpha)
        return one / (one + other)

    def part(self, share: float, n: int) -> slice:
        """A range of this share of `n`."""
        width = round(share * n)
        first = int(self.unit() * (n - width + 1))
        return slice(first, first + width)

    def log_within(self, low: float, high: float) -> float:
        return exp(self.within(log(low), log(high)))


def chosen(seed: int, weights: list[float], p: float = 1.0, count: int = 0) -> int:
    """The step of group number `count` that is drawn; -1 for none."""
    draws = Draws(seed, "OneOf", count)
    return int(np.searchsorted(np.cumsum(weights) / sum(weights), draws.unit(), "right")) if draws.first < p else -1


def wav(samples: Array, rate: int) -> bytes:
    """A WAV file of float32 samples."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="WAV", subtype="FLOAT")
    return out.getvalue()


def ratio(db: float) -> float:
    return float(10 ** (db / 20))


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def roll(x: Array, shift: int, fill: str) -> Array:
    moved = np.roll(x, shift, -1)
    if fill == "zeros" and shift:
        moved[..., slice(0, shift) if shift > 0 else slice(shift, None)] = 0
    return moved


def biquad(shape: str, freq: float, q: float, gain_db: float, rate: float) -> tuple[list[float], list[float]]:
    """R. Bristow-Johnson's formulas."""
    w = 2 * pi * min(freq / rate, 0.49)
    cos, alpha, gain = np.cos(w), np.sin(w) / (2 * q), 10 ** (gain_db / 40)
    b: dict[str, list[float]] = {
        "lowpass": [(1 - cos) / 2, 1 - cos, (1 - cos) / 2],
        "highpass": [(1 + cos) / 2, -(1 + cos), (1 + cos) / 2],
        "bandpass": [alpha, 0, -alpha],
        "peak": [1 + alpha * gain, -2 * cos, 1 - alpha * gain],
    }
    by = gain if shape == "peak" else 1.0
    return b[shape], [1 + alpha / by, -2 * cos, 1 - alpha / by]


def filtered(x: Array, shape: str, freq: float, q: float, gain_db: float, rate: float) -> Array:
    found: Array = lfilter(*biquad(shape, freq, q, gain_db, rate), np.asarray(x, np.float64))
    return found


def notched(x: Array, freq: float, width: float) -> Array:
    """Without a band, by scipy's notch, twice; frequencies are shares of half the sample rate."""
    found: Array = np.asarray(x, np.float64)
    for _ in range(2):
        found = lfilter(*iirnotch(freq, freq / (2 * width)), found)
    return found


def slope_of(x: Array, rate: float, low: float, high: float) -> float:
    """Decibels per octave of a spectrum between two frequencies, by octaves."""
    power = np.abs(np.fft.rfft(x * np.hanning(len(x)))) ** 2
    freq = np.fft.rfftfreq(len(x), 1 / rate)
    edges = 2 ** np.arange(np.log2(low), np.log2(high) + 1e-9)
    levels = [10 * np.log10(power[(freq >= a) & (freq < b)].mean()) for a, b in pairwise(edges)]
    return float(np.polyfit(np.arange(len(levels)), levels, 1)[0])


def reverberated(x: Array, valid: slice, response: Array) -> Array:
    """Channels `[channels, n]` in the room of a response at their rate, of one channel or as many."""
    n = x.shape[-1]
    h = np.broadcast_to(np.atleast_2d(response)[:, :n], (len(x), min(n, np.shape(response)[-1])))
    h = h[:, np.abs(h).max(0).argmax() :].astype(np.float64)
    made = np.stack([np.convolve(one.astype(np.float64), other)[:n] for one, other in zip(x, h, strict=True)])
    level = rms(x[:, valid])
    return made * level / rms(made[:, valid]) if level and h.any() else x


def warped(draws: Draws, spectrogram: Array, most: int, n_masks: int) -> Array:
    """`[n_bands, n_frames]` with a frame moved by up to `most`; its draws come after those of the masks."""
    n = spectrogram.shape[1]
    if most == 0 or n < 2 * most + 2:
        return spectrogram
    draws.next += 2 * n_masks
    middle = draws.whole(most + 1, n - most - 1)
    moved = draws.whole(middle - most, middle + most)
    # Times at the middles of frames, before and after.
    times = np.interp(np.arange(n) + 0.5, [0, moved, n], [0, middle, n])
    return np.stack([np.interp(times, np.arange(n) + 0.5, band) for band in spectrogram])


def masked(
    draws: Draws, spectrogram: Array, widest: tuple[int, int], n: tuple[int, int], fill: Callable[[Array], float]
) -> Array:
    """Masks of bands, then of frames, of `[n_bands, n_frames]`."""
    found = spectrogram.copy()
    value = fill(spectrogram)
    for axis in (0, 1):
        for _ in range(n[axis]):
            size = spectrogram.shape[axis]
            width = int(draws.unit() * (min(widest[axis], size) + 1))
            first = int(draws.unit() * (size - width + 1))
            found[(slice(None),) * axis + (slice(first, first + width),)] = value
    return found
