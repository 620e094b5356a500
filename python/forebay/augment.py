"""Augmentation: random changes of clips and features.

>>> import forebay.augment as augment
>>> augment.Gain(db=(-6, 6), p=0.5)
Gain(db=(-6.0, 6.0), p=0.5)

`Loader(files, augment=[Gain(db=(-6, 6), p=0.5), SpecAugment()])`. Steps on waveforms run in their order, then the
features are made, then steps on features run in their order. `p` is the share of examples to which a step is applied.
A value in decibels, hertz or shares is a number, or a pair of bounds, between which it is drawn uniformly. What is
drawn depends on the loader's seed, the epoch and the example alone, and not on other steps. Objects are frozen
dataclasses; each checks its parameters when it is made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, fields, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from forebay._checks import wrong_type
from forebay._core import ConfigError, _augment_features, _augment_waveform, _function_name, _Step
from forebay._part import NESTED, _Part, part
from forebay.features import _FrontEndPart, preset
from forebay.manifest import Manifest

__all__ = [
    "Clip", "CutMix", "Dither", "DropChunk", "DropFreq", "Filter", "FrameRoll", "Gain", "Level", "Mix", "Mixup",
    "Noise", "OneOf", "Only", "Polarity", "Python", "Remix", "Reverb", "Roll", "SpecAugment", "Speed", "SwapChannels",
    "apply",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def _as_float(value: Any) -> Any:
    is_number = isinstance(value, (int, np.number)) and not isinstance(value, bool)
    return float(value) if is_number else value


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


def _as_source(source: Any) -> Any:
    """Recordings that a step reads: a path, a tuple of paths, a manifest; None for anything else."""
    if isinstance(source, PathLike):
        return fspath(source)
    if isinstance(source, Sequence) and not isinstance(source, str):
        each = tuple(fspath(one) if isinstance(one, PathLike) else one for one in source)
        return each if all(isinstance(one, str) for one in each) else None
    return source if isinstance(source, (str, Manifest)) else None


def _no_source(expected: str, given: Any) -> TypeError:
    """The error of a `source` that a step does not read."""
    if hasattr(given, "save_to_disk"):  # of datasets
        what = f"source is a {type(given).__name__}, must be {expected}"
        return TypeError(f"{what}; save it with save_to_disk(folder) and pass the folder")
    return wrong_type("source", expected, given)


Range = float | tuple[float, float]
"""A number, or the lowest and the highest."""
Counts = int | tuple[int, int]
"""A whole number, or the lowest and the highest."""


@part
class _StepPart(_Part):
    """What all steps share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Step: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (list, np.ndarray)):
                value = tuple(value)
            if isinstance(value, tuple):
                value = tuple(map(_as_int if field.type == Counts else _as_float, value))
            object.__setattr__(self, field.name, value)
        self._check_by(_Step)


@part
class Gain(_StepPart):
    """Changes the level by `db` decibels, or by `factor`. Samples may exceed 1; they are not limited.

    `factor`, in place of `db`: all samples are multiplied by it, 0.0001 to 10000. Factors and decibels of the same
    range are distributed differently: half of the factors from 0.125 to 2, as in Lhotse's `PerturbVolume`, raise the
    level, but only a quarter of the decibels from -18 to 6. NeMo's gain is drawn in decibels.
    """

    db: Range | None = (-18.0, 6.0)
    _: KW_ONLY
    factor: Range | None = None
    p: float = 1.0

    _newer: ClassVar[tuple[str, ...]] = ("factor",)

    def __post_init__(self) -> None:
        if self.factor is not None and isinstance(self.db, tuple) and self.db == Gain.db:
            object.__setattr__(self, "db", None)
        super().__post_init__()

    def __repr__(self) -> str:
        """The call, with the one of the two that is given."""
        return super().__repr__().replace("db=None, ", "", 1)


@part
class Level(_StepPart):
    """Sets the level of the clip to `db`, by one gain for all of its samples. A silent clip stays as it is.

    `measure`, what the level is: `"rms"`, `"active"` or `"clip"`, the root mean square as in `Noise`, in decibels of
    full scale: 0 is that of samples of 1 and -1, and a sine of full scale has -3; `"lufs"`, the gated loudness in
    LUFS, all channels with equal weight. A clip of less than 400 ms, one block of the standard, counts as a block.

    `of`: the field of `audio=` whose level is set. The other waveforms of the row get the same gain, so that a mixture
    stays the sum of its parts; None: the level is that of all of them together. In an `Only` it is that of the field.
    `peak`: if a sample would exceed this after the gain, the gain is reduced. None: samples may exceed 1.

    Source: ITU-R BS.1770-5, annex 1, for `"lufs"`.
    """

    db: Range
    _: KW_ONLY
    measure: Literal["rms", "active", "clip", "lufs"] = "rms"
    of: str | None = None
    peak: float | None = None
    p: float = 1.0

    def __post_init__(self) -> None:
        if self.of is not None and not isinstance(self.of, str):
            raise wrong_type("of", "a name of audio, or None", self.of)
        object.__setattr__(self, "peak", _as_float(self.peak))
        super().__post_init__()


@part
class Polarity(_StepPart):
    """Inverts the sign of all samples."""

    _: KW_ONLY
    p: float = 0.5


@part
class SwapChannels(_StepPart):
    """Exchanges left and right of waveforms of two channels; others stay as they are."""

    _: KW_ONLY
    p: float = 0.5


@part
class Roll(_StepPart):
    """Moves the samples in time by `shift`, a share of them; to later times for positive shares.

    `fill`: `"wrap"`, what leaves at one end comes in at the other; `"zeros"`. Padding stays where it is.
    """

    shift: Range = (-0.5, 0.5)
    _: KW_ONLY
    fill: Literal["wrap", "zeros"] = "wrap"
    p: float = 1.0


@part
class Noise(_StepPart):
    """Adds Gaussian noise, to all of a clip, also to its padding.

    `snr_db`: level of the clip above that of the noise, in decibels. `level`, how that of the clip is measured:
    `"rms"`, root mean square of the samples that are not padding; `"active"`, that of its blocks of 20 ms that are at
    most 40 dB below the loudest; `"clip"`, that of all samples; `"lufs"`, its gated loudness (ITU-R BS.1770), and so is
    that of the noise. A silent clip stays as it is. `slope_db`: decibels per
    octave by which the spectrum of the noise rises from 40 Hz to a tenth of the sample rate, less steeply elsewhere,
    -12 to 12: 0 is white, -3 pink, -6 brown. Channels get noise of their own.
    """

    snr_db: Range = (3.0, 30.0)
    _: KW_ONLY
    slope_db: Range = 0.0
    level: Literal["rms", "active", "clip", "lufs"] = "rms"
    p: float = 1.0


@part
class Dither(_StepPart):
    """Adds white Gaussian noise of the standard deviation `amount`, where 1 is full scale, 0 to 1.

    The level is that of the noise alone, not relative to the clip as in `Noise`: digital silence gets it too, and the
    logarithm of a feature never meets exact zeros. Padding stays as it is. Channels get noise of their own.

    Kaldi's `dither=1.0`, in units of 16-bit samples, is 1 / 32768, the default; NeMo's is 1e-5. Kaldi draws for each
    frame, here overlapping frames share their samples.
    """

    amount: Range = 2.0**-15
    _: KW_ONLY
    p: float = 1.0


@part
class DropFreq(_StepPart):
    """Removes bands of frequencies from the waveform by notch filters.

    `freq`: the frequency that is removed, drawn uniformly, as a share of half the sample rate, 0 to 1. `width`: how far
    its band reaches to each side, in the same unit, 0.001 to 0.25: there half of the amplitude is left (-6 dB), and at
    half of the way a fifth (-14 dB). Near 0 and 1 more of the band is on the other side. `n`: the number of bands, or
    the least and the most (0 to 32).

    Source: SpeechBrain's `DropFreq`. Each band is two notch filters of second order in place of a kernel of 101 taps,
    so edges are less steep, and phases change beside a band.
    """

    freq: Range = (0.0, 1.0)
    _: KW_ONLY
    width: Range = 0.05
    n: Counts = (1, 3)
    p: float = 1.0

    _elsewhere: ClassVar[dict[str, str]] = {
        "drop_freq_low": "freq", "drop_freq_high": "freq", "drop_freq_width": "width",
        "drop_freq_count_low": "n", "drop_freq_count_high": "n", "drop_prob": "p",
    }  # fmt: skip


@part
class DropChunk(_StepPart):
    """Replaces `n` random parts of the waveform by zeros, or by noise.

    `length_ms`: milliseconds of a part, at most the whole clip; the default is 100 to 1000 samples at 16 kHz. A part
    lies within the samples that are not padding, at the same time in all channels; parts may overlap. `n`: their
    number, or the least and the most (0 to 64). `noise_factor`: the root mean square of white Gaussian noise in a part,
    relative to that of the clip, 0 to 100; 0 is zeros.

    Source: SpeechBrain's `DropChunk`, whose noise is uniform, up to `noise_factor` times twice the mean of the absolute
    samples.
    """

    length_ms: Range = (6.25, 62.5)
    _: KW_ONLY
    n: Counts = (1, 3)
    noise_factor: Range = 0.0
    p: float = 1.0

    _elsewhere: ClassVar[dict[str, str]] = {
        "drop_length_low": "length_ms", "drop_length_high": "length_ms",
        "drop_count_low": "n", "drop_count_high": "n", "drop_prob": "p",
    }  # fmt: skip


@part
class Filter(_StepPart):
    """Filters the waveform by `n` filters of second order, one after the other, each drawn anew.

    `shape`: `"lowpass"`, `"highpass"` (12 dB per octave), `"bandpass"`, or `"peak"`, which raises or lowers a band by
    `gain_db`: several of them are a random equaliser. `freq`: hertz, drawn uniformly on a logarithmic scale; above 49 %
    of the sample rate it is taken as that. `q`: the middle over the width of the band.

    Source: R. Bristow-Johnson, Cookbook formulae for audio equalizer biquad filter coefficients.
    """

    shape: Literal["lowpass", "highpass", "bandpass", "peak"]
    freq: Range
    _: KW_ONLY
    q: Range = 0.7071
    gain_db: Range = (-12.0, 12.0)
    n: int = 1
    p: float = 1.0


@part
class Clip(_StepPart):
    """Limits samples to the clip's largest and `db` decibels."""

    db: Range = (-12.0, 0.0)
    _: KW_ONLY
    p: float = 1.0


@part
class Speed(_StepPart):
    """Plays the recording faster by one of `factors` (0.25 to 4), all equally often; its pitch rises with it.

    It is applied to the recording before all other steps: the clip keeps its length, and for a factor above 1 it comes
    from a longer part of the recording.
    """

    factors: float | tuple[float, ...] = (0.9, 1.0, 1.1)
    _: KW_ONLY
    p: float = 1.0

    def __post_init__(self) -> None:
        self._convert_numbers()
        given: Any = self.factors
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            object.__setattr__(self, "factors", (float(given),))
        elif not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
            raise wrong_type("factors", "a number, or a list of numbers", given)
        super().__post_init__()


@part
class Mix(_StepPart):
    """Mixes further recordings into the clip.

    `source`: recordings, all equally likely: a path, a list of paths, or a `Manifest`. None: the loader's own rows; in
    the orders `"window"` and `"sequential"` one of the `near` rows before the clip's own in storage order, whose bytes
    were read recently, in `"global"` and `"era"` any row. In a mixture of sources partners are of the same source.
    `most`: the number of partners is drawn from 1 to this. `audio_column`: the column of `source` with the recordings,
    as for a `Loader`; `track`: the number of their audio track.

    `same_class`, for the loader's own rows: a column of classes, each value one class or a list of them. A partner has
    a class of the clip's row (of several, each is equally likely), and `near` counts rows of that class. If no other
    row has it, nothing is mixed in. With `weight=1` the partner replaces the clip.

    One of these sets the level of a partner. `snr_db`: level of the clip above the partner's, in decibels; the
    clip stays as it is. `level` says how the clip's level is measured: `"rms"`, `"active"` or `"clip"`, as in `Noise`;
    the partner's is the root mean square of the added samples. With `"lufs"` both are gated loudness. If either is
    silent, nothing is added. `weight`: the partner has this weight, the clip the rest of 1. `beta`: the partner's
    weight is distributed as Beta(beta, beta).

    A partner's clip is a random one, with the channels that the loader reads. A shorter partner is repeated, from a
    random sample on, and padding of the clip is covered as well. A partner that cannot be decoded is logged, and
    another one is drawn. Samples may exceed 1.

    `targets`, for the loader's own rows: `"keep"`, the targets of the clip; `"union"`, the larger value of each class;
    `"sum"`, at most 1; `"mix"`, by the weights.

    `parts=True`: batches also have the field `parts`, `[batch, 1 + most, ...]`: the clip, then each partner as it was
    added, then zeros. The parts of further `Mix` steps follow. Features are computed of each part. The steps after this
    one change all parts as they change the mixture, by the same draws and gains, and the mixture is their sum; only
    `Clip` limits the mixture alone.
    """

    source: Any = None
    _: KW_ONLY
    snr_db: Range | None = None
    weight: Range | None = None
    beta: float | None = None
    most: int = 1
    near: int | None = 128
    same_class: str | None = None
    audio_column: str | None = None
    level: Literal["rms", "active", "clip", "lufs"] = "rms"
    targets: Literal["keep", "union", "sum", "mix"] = "keep"
    parts: bool = False
    track: int | None = None
    p: float = 1.0

    _newer: ClassVar[tuple[str, ...]] = ("parts", "track")

    def __post_init__(self) -> None:
        source = _as_source(self.source)
        if source is None and self.source is not None:
            raise _no_source("a path, a list of paths, a forebay.Manifest, or None", self.source)
        object.__setattr__(self, "source", source)
        super().__post_init__()


@part
class Reverb(_StepPart):
    """Puts the clip into a room: convolves it with an impulse response, a recording of `source`.

    `source`: recordings, all equally likely: a path, a list of paths, or a `Manifest`. A response is
    decoded at the loader's sample rate from its start, at most a clip long. `audio_column` is its column, as for a
    `Loader`, and `track` the number of its audio track. It begins at its sample of largest absolute value over all
    channels, the direct sound, so the clip is not delayed. Each channel of the clip has the same channel of the
    response; a mono response serves all of them.

    The convolution is causal and cut to the clip's length, then scaled so that the root mean square of the samples that
    are not padding stays the same. Reverberation covers the padding after the clip; padding before it stays as it is.
    If the clip or the response is silent, the clip stays as it is. A response that cannot be decoded is logged,
    and another one is drawn.

    `clean`: batches also have the field `clean`, a target for dereverberation and enhancement: `"dry"`, the clip
    without reverberation; `"early"`, the clip convolved with the first 50 ms of the response from the direct sound on,
    with the gain of the reverberated clip. 50 ms is the early time limit of the clarity of speech, C50, in ISO 3382-1.
    Gains and filters change both; `Mix`, `Noise`, `Dither` and `Clip` do not change the target. If no room was drawn,
    the target is the clip.
    """

    source: Any
    _: KW_ONLY
    audio_column: str | None = None
    clean: Literal["dry", "early"] | None = None
    track: int | None = None
    p: float = 1.0

    _newer: ClassVar[tuple[str, ...]] = ("clean", "track")

    def __post_init__(self) -> None:
        source = _as_source(self.source)
        if source is None:
            raise _no_source("a path, a list of paths, or a forebay.Manifest", self.source)
        object.__setattr__(self, "source", source)
        super().__post_init__()


NESTED["source"] = Manifest


@part
class SpecAugment(_StepPart):
    """Masks `n_freq` ranges of bands and `n_time` ranges of frames of a spectrogram.

    `freq` and `time` are the widest mask: a whole number of bands or frames, or a share of them (a float). A width is
    drawn from 0 to that, then a place. `fill`: `"mean"` or `"minimum"` of the features that are not padding, a number
    (after normalization), or `"silence"`, the features of silence, band by band: a mask before the logarithm.
    `frames`: `"valid"`, masks lie within the frames that are not padding; `"all"`.

    `max_share`: the share of the frames that all masks of frames may cover together, as Lhotse limits them (0.15): of n
    frames `min(n_time, ceil(max_share * n / time))` masks are drawn, each of at most `max_share * n` frames divided by
    their number. None: each mask is drawn by itself, so that many of them cover most of a short clip.

    `warp`: before the masks, time is warped: a frame, at least `warp` from both ends, is moved by up to `warp` frames
    to either side, and the frames before and after it are stretched and compressed to fit, by linear interpolation. 80
    in icefall, 5 in ESPnet; 0, the default, warps nothing. The number of frames stays the same, and padding stays where
    it is. Examples of less than `2 * warp + 2` frames are not warped. Masks are the same with and without a warp.

    Source: D. S. Park et al., SpecAugment (2019). ESPnet and Lhotse interpolate by a cubic, which overshoots: beside a
    loud frame it is below silence.
    """

    freq: int | float = 27
    n_freq: int = 2
    time: int | float = 100
    n_time: int = 2
    _: KW_ONLY
    fill: Literal["mean", "minimum", "silence"] | float = "mean"
    frames: Literal["valid", "all"] = "valid"
    max_share: float | None = None
    warp: int = 0
    p: float = 1.0

    _elsewhere: ClassVar[dict[str, str]] = {
        "max_frames_mask_fraction": "max_share",
        "time_warp_factor": "warp",
        "time_warp_window": "warp",
    }
    _newer: ClassVar[tuple[str, ...]] = ("warp", "max_share")


@part
class FrameRoll(_StepPart):
    """Moves the frames of a spectrogram that are not padding by `shift`, a share of them, around."""

    shift: Range = (-0.5, 0.5)
    _: KW_ONLY
    p: float = 1.0


@part
class Mixup(_StepPart):
    """Mixes pairs of examples of a batch: features and targets, by weights distributed as Beta(beta, beta).

    Rows 2k and 2k + 1 of a batch are a pair; each is mixed with the other by a weight of its own. A row whose partner
    is a bad record stays as it is, as does the last of an odd number; all other pairs stay pairs, also if the batch of
    a finite pass then has fewer rows. `p` is the share of rows that are mixed.

    `MultiHot`, `Soft` and `Annotations` targets, and `Number`s of a floating-point type, are mixed by the weights.
    For a class, such as `label`, a batch also has the partner's, `label_b`. Text is refused; `columns=` are
    passed on. Batches have two more fields: `mixup_weight`, float64, the weight of the row itself (1 if it is not
    mixed), and `mixup_index`, int64, the `index` of its partner (-1). A loss for classes is
    `weight * loss(label) + (1 - weight) * loss(label_b)`.

    It comes after all other steps, on features as they are in the batch; `Mix(beta=...)` mixes waveforms.

    Source: H. Zhang et al., mixup: Beyond Empirical Risk Minimization (2018).
    """

    beta: float = 0.4
    _: KW_ONLY
    p: float = 1.0


@part
class CutMix(_StepPart):
    """Replaces a part of an example by that of the other of its pair; pairs, fields and targets as with `Mixup`.

    `part`: `"frames"`, a range of frames (of a waveform: samples); `"box"`, a range of bands and of frames, of the
    same share each. The size of the part is distributed as Beta(beta, beta); `mixup_weight` is the share that is left
    of the example itself.

    Source: S. Yun et al., CutMix (2019); here the part lies within the features and is never cut.
    """

    beta: float = 1.0
    _: KW_ONLY
    part: Literal["frames", "box"] = "frames"
    p: float = 1.0


@part
class Python(_StepPart):
    """Calls `function(array, seed)`, for prototypes: a worker takes Python's lock for each call.

    `on`: `"waveform"`, the array is the clip, float32 `[channels, n_samples]`; `"features"`, it is the features of one
    channel, float32 `[n_bands, n_frames]` or `[n_frames, n_bands]` as in batches. The function may change the array,
    and returns one of the same shape. `seed` is an int of 64 bits of its own for each example, the same in every run,
    as in `numpy.random.default_rng(seed)`; with any other source of randomness batches differ from run to run. An
    exception ends the loader's run, and `next()` raises it. The function's module and name are part of the loader's
    state, its code is not.
    """

    function: Callable[[NDArray[np.float32], int], NDArray[Any]]
    _: KW_ONLY
    on: Literal["waveform", "features"] = "waveform"
    p: float = 1.0

    def __repr__(self) -> str:
        """The call, with the function's name."""
        return super().__repr__().replace(repr(self.function), self._name(), 1)

    def to_dict(self) -> dict[str, Any]:
        """The values, with the function's module and name in its place; `from_dict` cannot read them."""
        return super().to_dict() | {"function": self._name()}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), on=self.on, p=self.p), (self.function,)

    def _name(self) -> str:
        return _function_name(self.function)


@part
class Remix(_StepPart):
    """Exchanges the waveforms of the rows of a batch within groups of `group` rows, as demucs does.

    For rows with several waveforms (`audio=`): each waveform of a row, also each of a stacked field, comes from some
    row of its group, and each is used once. So the model's mixture, their sum, is new. The rows of a group are drawn
    one after the other, and are the same on any number of ranks; `batch_size` is a multiple of `group` (2 to 1024).
    `p`: the share of groups. A group with a bad row, or at the end of a pass with too few, stays as it is. All other
    fields, such as targets and `valid_samples`, stay those of the row.

    Source: A. Defossez et al., "Music Source Separation in the Waveform Domain" (2019); `group_size` 4 in demucs.
    """

    group: int = 4
    _: KW_ONLY
    p: float = 1.0


@part
class OneOf(_StepPart):
    """Applies one of `steps`, drawn for each example by `weights`; equally often without.

    `weights`: a number for each step, 1e-9 to 1e9; only their proportions matter. `p`: the share of examples for which
    a step is drawn; the step's own `p` then decides whether it is applied. A step draws the values that it would draw
    if it stood in the list itself, in this place. Outputs such as `mix_index` are those of the first step of a class,
    also if it is not the one that is drawn. A `OneOf` cannot have another.

    Noise by category, as in Kaldi's x-vector recipe: `OneOf([Mix("noise/", snr_db=(0, 15)), Mix("music/", snr_db=(5,
    15)), Mix("speech/", snr_db=(13, 20), most=7), Reverb("rooms/")], p=0.8)`.
    """

    steps: Sequence[_StepPart]
    _: KW_ONLY
    weights: Sequence[float] | None = None
    p: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.steps, str | Mapping) or not isinstance(self.steps, Iterable):
            raise wrong_type("steps", "a list of objects of forebay.augment", self.steps)
        object.__setattr__(self, "steps", tuple(self.steps))
        given: Any = self.weights
        if given is not None and (not isinstance(given, Sequence | np.ndarray) or isinstance(given, str)):
            raise wrong_type("weights", "a list of numbers", given)
        super().__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """The values, with `to_dict()` of each step."""
        return super().to_dict() | {"steps": [step.to_dict() for step in self.steps]}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), weights=self.weights, p=self.p), (self.steps,)


@part
class Only(_StepPart):
    """Applies `steps` to one field of `audio=`, so that the others stay as they are.

    `field`: its name; of a field of several columns all waveforms are changed. `steps` are steps on waveforms, except
    `Speed`, which all waveforms of a row have in common. Without `Only` a step does the same to all of them, so that a
    mixture stays the sum of its parts. A step draws the values that it would draw in the list itself. Targets on the
    time line of a row do not follow a `Roll` in it, and padding of the row counts as padding, also after a `Mix`.

    Noisy and clean speech of one recording: `audio={"noisy": "path", "clean": "path"}`, and `Only("noisy",
    [Mix("noise/", snr_db=(-5, 20))])`.
    """

    field: str
    steps: Sequence[_StepPart]

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise wrong_type("field", "a name of audio", self.field)
        if isinstance(self.steps, str | Mapping) or not isinstance(self.steps, Iterable):
            raise wrong_type("steps", "a list of objects of forebay.augment", self.steps)
        object.__setattr__(self, "steps", tuple(self.steps))
        super().__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """The values, with `to_dict()` of each step."""
        return super().to_dict() | {"steps": [step.to_dict() for step in self.steps]}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.steps)


NESTED["steps"] = _StepPart


def _each(steps: Iterable[Any]) -> Iterator[Any]:
    """The steps, with those of a group in its place."""
    for step in steps:
        yield from step.steps if isinstance(step, OneOf | Only) else [step]


def _is_on_features(step: object) -> bool:
    return isinstance(step, SpecAugment | FrameRoll) or (isinstance(step, Python) and step.on == "features")


def apply(
    steps: Sequence[_StepPart],
    waveform: NDArray[np.float32],
    sample_rate: int,
    *,
    seed: int = 0,
    features: _FrontEndPart | str | None = None,
) -> NDArray[Any]:
    """What a loader makes of one waveform by these steps, for notebooks and tests.

    All steps but `Mix`, `Reverb`, `Mixup`, `CutMix` and `Remix`, which need other recordings.

    `waveform`: float32 `[n_samples]` or `[channels, n_samples]`. `seed`: the random bits of the example, 0 to
    `2**64 - 1`. Returns the waveform, of another length after `Speed`; with `features` (an object or the name of a
    preset, for this sample rate) float32 features of the same channels, to which the steps on features are applied.
    Raises `ConfigError` for steps on features without `features`.
    """
    if isinstance(features, str):
        features = preset(features)
    if features is not None and not isinstance(features, _FrontEndPart):
        raise wrong_type("features", "an object of forebay.features, or the name of a preset", features)
    if features is not None and features.sample_rate != sample_rate:
        raise ConfigError(
            f"features are for a sample rate of {features.sample_rate}, and sample_rate is {sample_rate}; resample the "
            "waveform, or give features of that rate"
        )
    given = np.asarray(waveform)
    if given.dtype != np.float32 or given.ndim not in (1, 2):
        raise TypeError(
            f"waveform is an array of {given.dtype} and shape {list(given.shape)}, must be float32 and "
            "[n_samples] or [channels, n_samples]; numpy.asarray(waveform, numpy.float32) makes one"
        )
    if features is not None and not given.size:
        raise ConfigError(f"waveform has the shape {list(given.shape)}, must have samples for features")
    # An iterator gives its steps once.
    steps = list(steps) if isinstance(steps, Iterable) else steps
    if any(isinstance(step, Only) for step in (steps if isinstance(steps, list) else [])):
        raise ConfigError(
            "steps has an Only, which is about fields of audio=, and here is one waveform; give its steps"
        )
    given_steps = steps if isinstance(steps, list) else []
    if fields_of := [step.of for step in _each(given_steps) if isinstance(step, Level) and step.of is not None]:
        raise ConfigError(f"steps has Level(of={fields_of[0]!r}), and here is one waveform; leave of out")
    on_features = [step for step in _each(steps if isinstance(steps, list) else []) if _is_on_features(step)]
    if on_features and getattr(features, "layout", None) is None:
        raise ConfigError(
            f"{type(on_features[0]).__name__} changes features, and features is {features!r}: give features that have "
            'frames, such as features="birdset"'
        )
    channels = np.ascontiguousarray(np.atleast_2d(given))
    made = _augment_waveform(steps, channels, sample_rate, seed)
    if features is None:
        return made[0] if given.ndim == 1 else made
    layout = getattr(features, "layout", None)
    silence = None
    each = [np.array(features(one), np.float32, order="C") for one in made]
    if layout is not None:
        quiet = np.array(features(np.zeros_like(made[0])), np.float32)
        silence = (quiet[:, 0] if layout == "mel" else quiet[0]).tolist()
        # Frames of padding are not changed.
        n_valid = each[0].shape[1 if layout == "mel" else 0]
        if getattr(features, "n_frames", None) is not None:
            unpadded = replace(features, n_frames=None)(made[0])  # type: ignore[call-arg]
            n_valid = min(n_valid, unpadded.shape[1 if layout == "mel" else 0])
        for one in each:
            _augment_features(steps, one, layout, silence, seed, n_valid)
    return each[0] if given.ndim == 1 else np.stack(each)
