"""The oracle of `forebay.features`: every front end in float64, one obvious step after the other.

`reference(kind, parameters, waveform)` takes the class's name and its parameters as JSON has them: compressions and
normalizations are dicts whose `type` names the class. Nothing here is shared with forebay. Needs only numpy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Parameters = dict[str, Any]

FILTER_BANKS = ("LogMel", "Fbank", "MFCC")

COMMON: Parameters = {
    "remove_mean": False, "normalize_waveform": None, "peak": 1.0, "scale": 1.0, "dtype": "float32",
}  # fmt: skip
FRAMED: Parameters = COMMON | {
    "preemphasis": 0.0, "preemphasis_start": "keep", "n_fft": 400, "win_length": None, "hop_length": 200,
    "center": True, "pad_mode": "reflect", "drop_last": False, "window": "hann", "power": 2.0, "compression": None,
    "n_frames": None, "fill": "silence", "normalization": None, "layout": "mel",
}  # fmt: skip
BANDS: Parameters = {"n_mels": 128, "f_min": 0.0, "f_max": None, "mel_scale": "htk", "norm": None}
DEFAULTS: dict[str, Parameters] = {
    "Waveform": COMMON | {"channels": "mean"},
    "Spectrogram": FRAMED,
    "LogMel": FRAMED | BANDS | {"compression": {"type": "Ln", "floor": 1e-10}},
    "MFCC": FRAMED | BANDS | {"compression": {"type": "Decibel", "top_db": 80.0}}
    | {"n_mfcc": 40, "dct_norm": "ortho", "lifter": 0.0},
    "Fbank": FRAMED | BANDS | {
        "n_fft": None, "win_length": 400, "hop_length": 160, "snip_edges": True, "remove_dc": True, "window": "povey",
        "preemphasis": 0.97, "f_min": 20.0, "mel_scale": "kaldi", "compression": {"type": "Ln", "floor": 1.1920929e-07},
    },
}  # fmt: skip


def reference(kind: str, parameters: Parameters, waveform: ArrayLike) -> NDArray[Any]:
    """The features of one clip, in float64 unless `dtype` is a narrower type than float32.

    `waveform` is `[n_samples]`, for `Waveform` also `[n_channels, n_samples]`. bfloat16 comes as float32 values.
    """
    unknown = parameters.keys() - DEFAULTS[kind].keys() - {"sample_rate"}
    if unknown:
        raise ValueError(f"{kind} has no parameters {sorted(unknown)}")
    p = DEFAULTS[kind] | parameters
    x = np.asarray(waveform, np.float64)
    if kind == "Waveform":
        if x.ndim == 2 and p["channels"] != "all":
            x = x.mean(axis=0) if p["channels"] == "mean" else x[p["channels"]]
        channels = [prepared(channel, p) for channel in np.atleast_2d(x)]
        return cast(channels[0] if x.ndim == 1 else np.stack(channels), p["dtype"])

    x = prepared(x, p)
    if kind == "Fbank":
        n_fft = p["n_fft"] or next(2**k for k in range(32) if 2**k >= p["win_length"])
        frames = kaldi_frames(x, p)
    else:
        n_fft = p["n_fft"]
        x = preemphasized(x, p)
        frames = stft_frames(x, p)
    energies = spectra(frames, n_fft) ** p["power"]  # [n_frames, n_bins]
    if kind in FILTER_BANKS:
        energies = energies @ mel_weights(n_fft, p)
    n_real = len(energies)
    if p["n_frames"] is not None:
        n_real = min(n_real, p["n_frames"])
        energies = energies[:n_real]
        if p["fill"] == "silence" or n_real == 0:
            # The compression sees the frames of silence, so that limits relative to the maximum hold for them.
            energies = np.pad(energies, ((0, p["n_frames"] - n_real), (0, 0)))
    y = compressed(energies, p)
    if kind == "MFCC":
        y = cepstra(y, p)
    if p["n_frames"] is not None and len(y) < p["n_frames"]:
        value = y.min() if p["fill"] == "minimum" else p["fill"]
        y = np.pad(y, ((0, p["n_frames"] - len(y)), (0, 0)), constant_values=value)
    elif p["n_frames"] is not None and n_real == 0 and not isinstance(p["fill"], str):
        y = np.full(y.shape, float(p["fill"]))
    y = normalized(y, n_real, p["normalization"])
    return cast(y.T if p["layout"] == "mel" else y, p["dtype"])


def prepared(x: Array, p: Parameters) -> Array:
    """Step 1: the whole clip without its mean, normalized, scaled."""
    if p["remove_mean"]:
        x = x - x.mean()
    if p["normalize_waveform"] == "peak":
        largest = np.abs(x).max()
        x = x / largest * p["peak"] if largest > 0 else x
    elif p["normalize_waveform"] == "zscore":
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-7)
    return np.asarray(x * p["scale"])


def preemphasized(x: Array, p: Parameters) -> Array:
    """Pre-emphasis of the whole clip; `drop` leaves out the first sample, which has none before it."""
    if p["preemphasis"] == 0 and p["preemphasis_start"] == "keep":
        return x
    y = x.copy()
    y[1:] = x[1:] - p["preemphasis"] * x[:-1]
    return y[1:] if p["preemphasis_start"] == "drop" else y


def reflected(i: int, n: int) -> int:
    """The sample of a clip of `n` that stands at place `i` when ends are reflected and not repeated: 2 1 0 1 2."""
    if n == 1:
        return 0
    i %= 2 * (n - 1)
    return i if i < n else 2 * (n - 1) - i


def mirrored(i: int, n: int) -> int:
    """The same when ends are repeated: 1 0 0 1."""
    i %= 2 * n
    return i if i < n else 2 * n - 1 - i


def stft_frames(x: Array, p: Parameters) -> Array:
    """Steps 2 and 4 for all but Fbank: windowed frames of `n_fft` samples."""
    n_fft, hop = p["n_fft"], p["hop_length"]
    win_length = p["win_length"] or n_fft
    n = len(x)
    pad = n_fft // 2 if p["center"] else 0
    n_frames = max(0, 1 + (n + 2 * pad - n_fft) // hop)  # negative where a frame is longer
    if p["drop_last"]:
        n_frames = n // hop
    left = (n_fft - win_length) // 2
    window = np.zeros(n_fft)
    window[left : left + win_length] = window_of(p["window"], win_length)
    frames = np.zeros((n_frames, n_fft))
    for t in range(n_frames):
        places = np.arange(n_fft) + t * hop - pad
        inside = (places >= 0) & (places < n)
        frames[t, inside] = x[places[inside]]
        if p["pad_mode"] == "reflect":
            for j in np.flatnonzero(~inside):
                frames[t, j] = x[reflected(int(places[j]), n)]
    return frames * window


def kaldi_frames(x: Array, p: Parameters) -> Array:
    """Steps 2, 3 and 4 for Fbank: windowed frames of `win_length` samples."""
    win_length, hop = p["win_length"], p["hop_length"]
    n = len(x)
    if p["snip_edges"]:
        n_frames, first = 0 if n < win_length else 1 + (n - win_length) // hop, 0
    else:
        n_frames, first = (n + hop // 2) // hop, hop // 2 - win_length // 2
    frames = np.zeros((n_frames, win_length))
    for t in range(n_frames):
        frame = np.array([x[mirrored(first + t * hop + j, n)] for j in range(win_length)])
        if p["remove_dc"]:
            frame = frame - frame.mean()
        before = np.append(frame[:1], frame[:-1])
        frames[t] = frame - p["preemphasis"] * before
    return frames * window_of(p["window"], win_length)


def window_of(name: str, n: int) -> Array:
    """The window of `n` samples."""
    i = np.arange(n)
    if n == 1 or name == "rectangular":
        return np.ones(n)
    if name == "hann":
        return 0.5 - 0.5 * np.cos(2 * np.pi * i / n)
    symmetric = np.cos(2 * np.pi * i / (n - 1))
    shapes: dict[str, Callable[[], Array]] = {
        "hanning": lambda: 0.5 - 0.5 * symmetric,
        "hamming": lambda: 0.54 - 0.46 * symmetric,
        "povey": lambda: np.asarray(np.maximum(0, 0.5 - 0.5 * symmetric) ** 0.85),
    }
    return shapes[name]()


def spectra(frames: Array, n_fft: int) -> Array:
    """Step 4: magnitudes `[n_frames, n_fft // 2 + 1]`; shorter frames have zeros behind."""
    return np.abs(np.fft.rfft(frames, n_fft, axis=1))


def slaney_mel(hz: Array) -> Array:
    """Linear below 1000 Hz at 200/3 Hz a mel, 27 mels for a factor of 6.4 above."""
    return np.where(hz < 1000, hz * 3 / 200, 15 + 27 * np.log(np.maximum(hz, 1000) / 1000) / np.log(6.4))


def slaney_hz(mel: Array) -> Array:
    """The inverse of `slaney_mel`."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((np.maximum(mel, 15) - 15) / 27))


def mel_weights(n_fft: int, p: Parameters) -> Array:
    """Step 5: triangles `[n_bins, n_mels]`."""
    rate, scale = p["sample_rate"], p["mel_scale"]
    n_bins = n_fft // 2 + 1
    hz = np.arange(n_bins) * rate / n_fft
    nyquist = rate / 2
    if scale == "htk":  # torchaudio's whole numbers, which matter for odd n_fft and odd rates
        hz = np.arange(n_bins) * (rate // 2) / max(n_fft // 2, 1)
        nyquist = rate // 2
    f_max = nyquist if p["f_max"] is None else p["f_max"]
    if f_max <= 0:
        f_max += rate / 2
    share = np.arange(p["n_mels"] + 2) / (p["n_mels"] + 1)
    ends = np.array([p["f_min"], f_max], np.float64)
    if scale == "slaney":
        low, high = slaney_mel(ends)
        corners = slaney_hz(low + (high - low) * share)
    elif scale == "htk":
        low, high = 2595 * np.log10(1 + ends / 700)
        corners = 700 * (10 ** ((low + (high - low) * share) / 2595) - 1)
    else:
        low, high = 1127 * np.log(1 + ends / 700)
        mels = low + (high - low) * share
        corners = 700 * (np.exp(mels / 1127) - 1)
    # The places of bins and corners on the axis on which the triangles have straight sides.
    bins, edges = (1127 * np.log(1 + hz / 700), mels) if scale == "kaldi" else (hz, corners)
    weights = np.zeros((n_bins, p["n_mels"]))
    for band in range(p["n_mels"]):
        low, peak, high = edges[band : band + 3]
        weights[:, band] = np.maximum(0, np.minimum((bins - low) / (peak - low), (high - bins) / (high - peak)))
        if p["norm"] == "slaney":
            weights[:, band] *= 2 / (corners[band + 2] - corners[band])
    if scale == "kaldi":
        weights[n_fft // 2] = 0
    return weights


def compressed(x: Array, p: Parameters) -> Array:
    """Step 6, of `[n_frames, n_bands]`."""
    if p["compression"] is None or x.size == 0:
        return x
    how: Parameters = p["compression"]
    kind = how["type"]
    if kind == "Ln":
        floor = how.get("floor", 0.0 if "eps" in how else 1e-10)
        return np.asarray(np.log(np.maximum(x, floor) + how.get("eps", 0.0)))
    if kind == "Log10":
        y = np.log10(np.maximum(x, how.get("floor", 1e-10)))
        return y if how.get("range") is None else np.maximum(y, y.max() - how["range"])
    if kind == "Decibel":
        factor, amin = 20 if p["power"] == 1 else 10, how.get("amin", 1e-10)
        one = how.get("reference", 1.0)
        one = x.max() if one == "max" else one
        y = factor * np.log10(np.maximum(x, amin)) - factor * np.log10(max(amin, one))
        return np.asarray(y if how.get("top_db") is None else np.maximum(y, y.max() - how["top_db"]))
    assert kind == "PCEN"
    s, gain, bias, root = how.get("smooth", 0.025), how.get("gain", 0.98), how.get("bias", 2.0), how.get("root", 0.5)
    eps, initial = how.get("eps", 1e-6), how.get("initial")
    y = np.zeros_like(x)
    mean = x[0] if initial is None else np.full(x.shape[1], float(initial))
    for t in range(len(x)):
        mean = (1 - s) * mean + s * x[t]
        y[t] = (x[t] / (eps + mean) ** gain + bias) ** root - bias**root
    return y


def cepstra(x: Array, p: Parameters) -> Array:
    """Step 7: the discrete cosine transform of `[n_frames, n_mels]`, type II."""
    n_mels = x.shape[1]
    y = np.zeros((len(x), p["n_mfcc"]))
    for k in range(p["n_mfcc"]):
        cosine = np.cos(np.pi * k * (2 * np.arange(n_mels) + 1) / (2 * n_mels))
        factor = np.sqrt((1 if k == 0 else 2) / n_mels) if p["dct_norm"] == "ortho" else 2.0
        if p["lifter"] > 0:
            factor *= 1 + p["lifter"] / 2 * np.sin(np.pi * (k + 1) / p["lifter"])
        y[:, k] = factor * (x @ cosine)
    return y


def normalized(y: Array, n_real: int, how: Parameters | None) -> Array:
    """Step 9, of `[n_frames, n_bands]`, of which the first `n_real` are not fill."""
    if how is None or y.size == 0:
        return y
    if how["type"] == "Standard":
        return np.asarray((y - np.asarray(how["mean"])) / (how.get("factor", 1.0) * np.asarray(how["std"])))
    if how["type"] == "MinMax":
        low, high = y.min(), y.max()
        return (y - low) / (high - low) if high > low else np.zeros_like(y)
    assert how["type"] == "ZScore"
    if n_real == 0:
        return np.zeros_like(y)
    real = y[:n_real]
    axis = 0 if how.get("per", "example") == "band" else None
    count = n_real if axis == 0 else real.size
    first = real[0] if axis == 0 else real[0, 0]
    mean = first + (real - first).mean(axis=axis)  # exact where all are equal
    variance = ((real - mean) ** 2).sum(axis=axis) / max(count - how.get("ddof", 0), 1)
    std = np.sqrt(variance) + how.get("eps", 0.0)
    z = np.where(std > 0, (real - mean) / np.where(std > 0, std, 1), 0.0)
    return np.concatenate([z, np.zeros_like(y[n_real:])])


def cast(y: Array, dtype: str) -> NDArray[Any]:
    """Step 10: narrower types; float32 stays float64, so that its rounding is not the oracle's."""
    if dtype == "float16":
        return y.astype(np.float16)
    if dtype == "int16":
        return np.clip(np.rint(y * 32768), -32768, 32767).astype(np.int16)
    if dtype == "bfloat16":
        bits = y.astype(np.float32).view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    return y
