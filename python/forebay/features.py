"""Front ends: how a waveform becomes the input of a model.

>>> import forebay.features as features
>>> features.LogMel(sample_rate=16000, n_fft=400, hop_length=160, n_mels=80)
LogMel(sample_rate=16000, n_fft=400, hop_length=160, n_mels=80)
>>> features.preset("whisper", n_frames=100).shape(16000)
(80, 100)

Each object is a frozen dataclass. Called on a waveform, float32 `[n_samples]` at `sample_rate`, full scale 1, it
returns the features of one example; on `[batch, n_samples]` those of a batch, on all cores, without the GIL. What each
parameter does, and the errors against the original libraries, are in docs/features.md.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forebay._checks import shown, whole, wrong_type
from forebay._core import ConfigError, _FrontEnd
from forebay._part import NESTED, _Part, part

__all__ = [
    "MFCC",
    "PCEN",
    "Decibel",
    "Fbank",
    "Ln",
    "Log10",
    "LogMel",
    "MinMax",
    "Spectrogram",
    "Standard",
    "Waveform",
    "ZScore",
    "apply",
    "preset",
    "presets",
]


def __dir__() -> list[str]:
    return __all__


WindowName: TypeAlias = Literal["hann", "hanning", "hamming", "povey", "rectangular"]
MelScale: TypeAlias = Literal["htk", "slaney", "kaldi"]


class _Step(_Part):
    """A part of a front end. Raises as a front end does, when it is made."""

    def __post_init__(self) -> None:
        self._convert_numbers()
        _FrontEnd.check_part(self.to_dict())


class _Compression(_Step):
    """A function of the energies."""


class _Normalization(_Step):
    """A normalization of the compressed values."""


NESTED.update({"compression": _Compression, "normalization": _Normalization})


@part(kw_only=True)
class Ln(_Compression):
    """Natural logarithm: `ln(max(x, floor))`, or with `eps` `ln(x + eps)`."""

    floor: float = 1e-10
    eps: float | None = None


@part(kw_only=True)
class Log10(_Compression):
    """`log10(max(x, floor))`, raised to the largest value of the example less `range` (Whisper: 8)."""

    floor: float = 1e-10
    range: float | None = None


@part(kw_only=True)
class Decibel(_Compression):
    """`10 log10(max(x, amin) / max(reference, amin))`; 20 for magnitudes (`power=1`).

    `top_db`: values are raised to the largest of the example less this. torchaudio's `AmplitudeToDB` takes the largest
    of the whole batch instead. `reference="max"`: the largest value of the example is 0 dB.
    """

    reference: float | Literal["max"] = 1.0
    amin: float = 1e-10
    top_db: float | None = None


@part(kw_only=True)
class PCEN(_Compression):
    """Per-channel energy normalization: `(x / (eps + m)^gain + bias)^root - bias^root`.

    `m` smooths each band over time: `m[t] = (1 - smooth) m[t - 1] + smooth x[t]`. `initial` is `m` before the first
    frame; None: the first frame's energy. Energies should be well above `eps`: give the front end `scale=2.0**15`,
    and a `Standard` normalization, since values are small (see docs/features.md). Source: Wang et al., 2017.
    """

    smooth: float = 0.025
    gain: float = 0.98
    bias: float = 2.0
    root: float = 0.5
    eps: float = 1e-6
    initial: float | None = None


@part(kw_only=True)
class Standard(_Normalization):
    """`(x - mean) / (factor * std)`; `mean` and `std` are numbers, or sequences with one for each band."""

    mean: float | Sequence[float]
    std: float | Sequence[float]
    factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mean", "std"):
            value = getattr(self, name)
            if np.ndim(value):
                object.__setattr__(self, name, tuple(map(float, value)))


@part(kw_only=True)
class MinMax(_Normalization):
    """The least value of the example becomes 0 and the largest 1; constant examples become 0."""


@part(kw_only=True)
class ZScore(_Normalization):
    """`(x - mean) / (std + eps)` with mean and standard deviation of the example, or of each of its bands.

    Filled frames do not count, and become 0. `ddof=1` divides by the number of values less 1.
    """

    per: Literal["example", "band"] = "example"
    ddof: Literal[0, 1] = 0
    eps: float = 0.0


Compression: TypeAlias = Ln | Log10 | Decibel | PCEN | None
Normalization: TypeAlias = Standard | MinMax | ZScore | None


@part(kw_only=True)
class _FrontEndPart(_Part):
    """What all front ends share.

    Raises `ConfigError` with every value that is out of its range, and `TypeError` for one of a wrong type.
    """

    sample_rate: int = 32000
    remove_mean: bool = False
    normalize_waveform: Literal["peak", "zscore"] | None = None
    peak: float = 1.0
    scale: float = 1.0
    channels: Literal["mean", "all"] | int = "mean"
    n_channels: int | None = None

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _FrontEnd: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        for name, step in NESTED.items():
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, step):
                raise wrong_type(name, f"one of {', '.join(step._names())}, or None", value)
        given = self.to_dict()
        object.__setattr__(self, "_plan", _FrontEnd(given.pop("type"), given))

    def __call__(self, waveform: NDArray[np.float32]) -> NDArray[Any]:
        """The features of one waveform `[n_samples]`, or of a batch `[batch, n_samples]`.

        The array is contiguous float32 at `sample_rate`. With `dtype="bfloat16"` the result is the values' bits as
        uint16. A sample that is NaN makes NaN of what depends on it, an infinite one NaN or infinity.
        """
        return self._plan.transform(waveform)

    def shape(self, n_samples: int) -> tuple[int, ...]:
        """The shape of the features of a waveform of `n_samples`."""
        return tuple(self._plan.shape(n_samples))


@part(kw_only=True)
class Waveform(_FrontEndPart):
    """The waveform itself, `[n_samples]`: for models with a front end of their own."""

    dtype: Literal["float32", "float16", "bfloat16", "int16"] = "float32"


@part(kw_only=True)
class _Framed(_FrontEndPart):
    """Frames, length and form."""

    n_fft: int = 1024
    win_length: int | None = None
    hop_length: int = 320
    window: WindowName = "hann"
    power: float = 2.0
    preemphasis: float = 0.0
    compression: Compression = None
    n_frames: int | None = None
    fill: float | Literal["silence", "minimum"] = "silence"
    normalization: Normalization = None
    layout: Literal["mel", "time"] = "mel"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


@part(kw_only=True)
class _Centred(_Framed):
    """Frames as in torch."""

    center: bool = True
    pad_mode: Literal["reflect", "constant"] = "reflect"
    drop_last: bool = False
    preemphasis_start: Literal["keep", "drop"] = "keep"


@part(kw_only=True)
class Spectrogram(_Centred):
    """Energies (`power=2`) or magnitudes (`power=1`) of the bins, `[n_fft // 2 + 1, n_frames]`, as torchaudio's."""


@part(kw_only=True)
class LogMel(_Centred):
    """Log-mel spectrogram, `[n_mels, n_frames]`: torchaudio's `MelSpectrogram`, then `compression`.

    The defaults are those of `Loader`.
    """

    n_mels: int = 128
    f_min: float = 0.0
    f_max: float | None = None
    mel_scale: MelScale = "htk"
    norm: Literal["slaney"] | None = None
    empty_bands: Literal["error", "keep"] = "error"
    compression: Compression = Ln()


@part(kw_only=True)
class MFCC(LogMel):
    """Mel-frequency cepstral coefficients, `[n_mfcc, n_frames]`: a DCT-II of the compressed bands."""

    n_mfcc: int = 40
    dct_norm: Literal["ortho"] | None = "ortho"
    lifter: float = 0.0
    compression: Compression = Decibel(top_db=80.0)


@part(kw_only=True)
class Fbank(_Framed):
    """Kaldi's filter bank features, `[n_mels, n_frames]`; models take `layout="time"`.

    Each frame of `win_length` samples loses its mean, is preemphasized and windowed. `n_fft=None` is the next power of
    two. `f_max` of 0 or below counts from half the sample rate. No dither, no energy.
    """

    sample_rate: int = 16000
    n_fft: int | None = None  # type: ignore[assignment]
    win_length: int = 400
    hop_length: int = 160
    window: WindowName = "povey"
    preemphasis: float = 0.97
    remove_dc: bool = True
    snip_edges: bool = True
    n_mels: int = 80
    f_min: float = 20.0
    f_max: float | None = None
    mel_scale: MelScale = "kaldi"
    norm: Literal["slaney"] | None = None
    empty_bands: Literal["error", "keep"] = "error"
    compression: Compression = Ln(floor=1.1920929e-07)


def apply(
    waveform: NDArray[np.floating[Any]] | NDArray[np.int16],
    front_end: Any,
    *,
    sample_rate: int,
) -> NDArray[Any]:
    """The features of one recording, as a loader gives them: for a server that has no loader, torch or JAX.

    >>> import numpy as np
    >>> import forebay.features as features
    >>> features.apply(np.zeros(32000, np.int16), "birdset", sample_rate=32000).shape
    (128, 101)

    `waveform` is `[n_samples]` or `[channels, n_samples]`, as `forebay.decode` returns it: floats of full scale 1, or
    int16 of full scale 32768. `front_end` is the name of a preset or an object. The channels are averaged, chosen or
    kept, as the front end says.

    `sample_rate` is that of the waveform. Another one than the front end's raises `ConfigError`: resample first, or
    give the file to `forebay.AudioDataset`, which resamples as loaders do.
    """
    found = preset(front_end) if isinstance(front_end, str) else front_end
    if not isinstance(found, _FrontEndPart):
        raise wrong_type("front_end", "an object of forebay.features or the name of a preset", front_end)
    if whole("sample_rate", sample_rate) != found.sample_rate:
        raise ConfigError(
            f"sample_rate is {sample_rate}, and the front end takes {found.sample_rate}; resample the waveform, or "
            "read the file with forebay.AudioDataset(path, features=...), which resamples"
        )
    kind = waveform.dtype if isinstance(waveform, np.ndarray) else None
    if kind is None or not (kind == np.int16 or np.issubdtype(kind, np.floating)) or waveform.ndim not in (1, 2):
        given = f"an array of {kind} and shape {list(waveform.shape)}" if kind is not None else type(waveform).__name__
        raise TypeError(
            f"waveform is {given}, must be a numpy array of floats or int16 and shape [n_samples] or "
            "[channels, n_samples]"
        )
    if waveform.ndim == 2 and not 1 <= waveform.shape[0] <= max(32, waveform.shape[1]):
        raise ConfigError(
            f"waveform has the shape {list(waveform.shape)}, must be [channels, n_samples]; of [n_samples, "
            "channels], as soundfile reads it, give waveform.T"
        )
    samples = np.atleast_2d(waveform).astype(np.float32)
    if kind == np.int16:
        samples /= np.float32(32768)
    which = found.channels
    if which == "all":
        return found(np.ascontiguousarray(samples))
    if which != "mean" and which >= len(samples):
        raise ConfigError(
            f"waveform has {len(samples)} channels, and channels={which} asks for one with a higher number"
        )
    one = samples.mean(axis=0) if which == "mean" and len(samples) > 1 else samples[0 if which == "mean" else which]
    return found(np.ascontiguousarray(one))


@cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "presets.json").read_text())
    return table


def presets() -> dict[str, str]:
    """The names of the presets, and the source of each one's numbers."""
    return {name: entry["source"] for name, entry in _table().items()}


def preset(name: str, **changes: Any) -> Any:
    """The front end of a model by name, with `changes` of its parameters.

    The names are those of `presets()`: `birdset`, `birdmae`, `perch`, `birdnet`, `ast`, `beats`, `passt`, `byola`,
    `m2d`, `clap`, `whisper`, `whisper128`, `nemo`, `icefall`, `wenet`, `wav2vec2`, `torchaudio`, `librosa`.
    """
    table = _table()
    if not isinstance(name, str):
        raise wrong_type("preset", f"one of {', '.join(table)}", name)
    if name not in table:
        near = get_close_matches(name, table, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        own = [kind for kind in _FrontEndPart._names() if kind.lower() == name.lower().replace("_", "")]
        hint = f"; give an object: forebay.features.{own[0]}(...)" if own else hint
        # A part of a front end, such as "pcen".
        for parameter, parts in (("compression", _Compression._names()), ("normalization", _Normalization._names())):
            if part := [kind for kind in parts if kind.lower() == name.lower().replace("_", "")]:
                hint = f"; give an object: features=forebay.features.LogMel({parameter}=forebay.features.{part[0]}())"
        raise ConfigError(f"preset is {shown(name)}, must be one of {', '.join(table)}{hint}")
    entry = table[name]
    found = _Part.from_dict({"type": entry["class"], **entry["parameters"]})
    return replace(found, **changes) if changes else found  # type: ignore[type-var]
