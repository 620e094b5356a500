"""Recipes: what a published model was trained with, as parameters of a `Loader`.

>>> import forebay.recipes as recipes
>>> recipes.ast()
Recipe(
    clip_seconds=10.24,
    features='ast',
    targets=MultiHot(column='labels'),
    sampling=Balanced(column='labels', power=-1.0, offset=0.01, labels='sum'),
    augment=[Mix(beta=10.0, targets='mix', p=0.5), SpecAugment(n_freq=1, freq=48, time=192, n_time=1, fill=0.467)],
)

`Loader.train(files, batch_size=64, **recipes.ast())`. A recipe is a dict: change it as one,
`{**recipes.ast(), "clip_seconds": 5.0}`. Where the original differs from what is here, the docstring says so.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from forebay.augment import Gain, Mix, Noise, Roll, SpecAugment, Speed
from forebay.crops import Start
from forebay.features import Decibel, LogMel
from forebay.sampling import Balanced, Where
from forebay.targets import MultiHot, Text

__all__ = ["Recipe", "ast", "birdclef", "birdset", "librispeech", "passt"]

_Files = str | PathLike[str] | Sequence[str | PathLike[str]]
_Classes = str | Sequence[str] | int | None


class Recipe(dict[str, Any]):
    """Parameters of a `Loader`, which print line by line."""

    def __repr__(self) -> str:
        lines = "".join(f"    {name}={value!r},\n" for name, value in self.items())
        return f"Recipe(\n{lines})"


def _multi_hot(labels: str, classes: _Classes, **given: Any) -> MultiHot:
    return MultiHot(labels, **given) if classes is None else MultiHot(labels, classes=classes, **given)


def birdset(
    labels: str = "ebird_code_multilabel",
    *,
    classes: _Classes = None,
    separator: str | None = None,
    background: _Files | None = None,
) -> Recipe:
    """BirdSet: clips of 5 s, log-mel, calls of other rows and backgrounds mixed in, rare classes more often.

    `labels` is the column of classes of a row; `separator` splits its text into names, such as `";"`, for the targets
    and the sampling. `background`: recordings without birds. BirdSet masks the linear
    spectrum, up to 100 of its 513 bins; here up to 25 of 128 mel bands are masked. Its clips are around detected
    events; give `crop=` for that.

    Source: L. Rauch et al., BirdSet (2024), and its configurations on GitHub (DBD-research-group/BirdSet).
    """
    backgrounds = [] if background is None else [Mix(background, snr_db=(3.0, 30.0), p=0.5)]
    return Recipe(
        clip_seconds=5.0,
        features="birdset",
        targets=_multi_hot(labels, classes, separator=separator),
        sampling=Balanced(labels, power=-0.5, labels="sum", separator=separator),
        augment=[
            Mix(snr_db=(3.0, 30.0), targets="union", p=0.7),
            *backgrounds,
            Noise((3.0, 30.0), slope_db=(-12.0, 12.0), p=0.2),
            Gain((-18.0, 6.0), p=0.2),
            SpecAugment(25, 1, 0, 0, fill="minimum", p=0.5),
            SpecAugment(0, 0, 100, 1, fill="minimum", p=0.3),
        ],
    )


def ast(labels: str = "labels", *, classes: _Classes = None, separator: str | None = None) -> Recipe:
    """AST on AudioSet: Kaldi fbank of 10.24 s, waveforms mixed by a Beta(10, 10), masks.

    AST draws independently, with replacement, and masks with 0 before its normalization, which is 0.467 after it.

    Source: Y. Gong et al., AST: Audio Spectrogram Transformer (2021), and its code on GitHub (YuanGongND/ast).
    """
    return Recipe(
        clip_seconds=10.24,
        features="ast",
        targets=_multi_hot(labels, classes, separator=separator),
        sampling=Balanced(labels, power=-1.0, offset=0.01, labels="sum", separator=separator),
        augment=[Mix(beta=10.0, targets="mix", p=0.5), SpecAugment(48, 1, 192, 1, fill=0.467)],
    )


def passt(
    labels: str = "labels",
    *,
    classes: _Classes = None,
    separator: str | None = None,
    epoch_size: int | None = 100_000,
) -> Recipe:
    """PaSST on AudioSet: 10 s at 32 kHz, gain, roll, waveforms mixed by a Beta(2, 2), masks.

    PaSST takes the larger of the two weights for the clip, and moves the highest frequency of its bands at random.

    Source: K. Koutini et al., Efficient training of audio transformers with Patchout (2022), and its code on GitHub
    (kkoutini/PaSST).
    """
    return Recipe(
        clip_seconds=10.0,
        features="passt",
        targets=_multi_hot(labels, classes, separator=separator),
        sampling=Balanced(labels, power=-1.0, offset=100.0, labels="sum", separator=separator, epoch_size=epoch_size),
        augment=[
            Gain((-7.0, 7.0)),
            Roll((-1.0, 1.0)),
            Mix(beta=2.0, targets="mix", p=0.5),
            SpecAugment(48, 1, 192, 1, fill="silence"),
        ],
    )


def birdclef(
    labels: str = "labels",
    *,
    classes: _Classes = None,
    separator: str | None = None,
    secondary: str | None = None,
    background: _Files | None = None,
) -> Recipe:
    """The second place of BirdCLEF+ 2025: two clips added with their labels, backgrounds, masks.

    `secondary` is a column of further classes. Pseudo-labels are columns of a table: use `targets.Soft` for them.

    Source: the solution's description on Kaggle (BirdCLEF+ 2025, second place).
    """
    further = {} if secondary is None else {"secondary": secondary}
    backgrounds = [] if background is None else [Mix(background, snr_db=(3.0, 30.0), p=0.5)]
    return Recipe(
        clip_seconds=5.0,
        features=LogMel(
            sample_rate=32_000, n_fft=2048, hop_length=512, n_mels=128, f_min=20.0, compression=Decibel(top_db=80.0)
        ),
        targets=_multi_hot(labels, classes, separator=separator, smoothing=0.05, **further),
        sampling=Balanced(labels, power=-0.5, separator=separator),
        augment=[
            Mix(weight=0.5, targets="sum", p=0.5),
            *backgrounds,
            SpecAugment(10, 3, 20, 3, fill="minimum", p=0.3),
        ],
    )


def librispeech(
    text: str = "text",
    *,
    duration: str | None = None,
    noise: _Files | None = None,
    clip_seconds: float = 22.4,
) -> Recipe:
    """The recipe of icefall for LibriSpeech: Kaldi fbank of 80 bands, speed perturbation, noise, masks.

    Examples are whole utterances with their texts, padded to `clip_seconds`; the output `valid_frames` is their length
    in frames. An utterance that is longer, at the speed that is drawn, is left out as a bad record (`too_large`). With
    `duration`, the name of a column of seconds, utterances above 0.9 `clip_seconds` (20.2 s), which do not fit at each
    speed, are left out before anything is read. icefall makes batches of utterances of similar length as well
    (`batching.Buckets`), and warps time (`SpecAugment(27, 2, 100, 10, warp=80, p=0.9)` in place of the last step).
    `noise`: recordings such as MUSAN's.

    Source: icefall's recipe for LibriSpeech on GitHub (k2-fsa/icefall), and lhotse's transforms.
    """
    noises = [] if noise is None else [Mix(noise, snr_db=(10.0, 20.0), p=0.5)]
    speeds = (0.9, 1.0, 1.1)
    longest = round(clip_seconds * min(speeds), 6)
    sampling = {} if duration is None else {"sampling": Where(duration, maximum=longest)}
    return Recipe(
        clip_seconds=clip_seconds,
        crop=Start(whole=True),
        features="icefall",
        targets={"text": Text(text)},
        outputs=["valid_frames"],
        **sampling,
        augment=[
            Speed(speeds),
            *noises,
            SpecAugment(27, 2, 100, 10, fill="mean", p=0.9),
        ],
    )
