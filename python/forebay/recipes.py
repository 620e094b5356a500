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

from forebay.augment import Dither, Gain, Mix, Noise, Roll, SpecAugment, Speed
from forebay.batching import Buckets
from forebay.crops import Start, Whole
from forebay.features import Decibel, LogMel, preset
from forebay.sampling import Balanced, Where
from forebay.targets import Characters, MultiHot, Text, Tokens
from forebay.tokens import Tokenizer

__all__ = ["Recipe", "ast", "birdclef", "birdset", "icefall", "librispeech", "nemo", "passt", "wav2vec2_ctc", "whisper"]


def __dir__() -> list[str]:
    return __all__


_Files = str | PathLike[str] | Sequence[str | PathLike[str]]
_Classes = str | Sequence[str] | int | None
_Tokenizer = str | PathLike[str] | Tokenizer


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
    """As `icefall`, with texts and clips of one length: Kaldi fbank of 80 bands, speed perturbation, noise, masks.

    Examples are whole utterances with their texts, padded to `clip_seconds`; the output `valid_frames` is their length
    in frames. An utterance that is longer, at the speed that is drawn, is left out as a bad record (`too_large`). With
    `duration`, the name of a column of seconds, utterances above 0.9 `clip_seconds` (20.2 s), which do not fit at each
    speed, are left out before anything is read. `icefall` makes batches of utterances of about the same
    length, warps time, and bounds the share of frames that are masked. `noise`: recordings such as MUSAN's.

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


def icefall(
    tokenizer: _Tokenizer,
    text: str = "text",
    *,
    max_duration: float = 200.0,
    noise: _Files | None = None,
) -> Recipe:
    """The recipe of icefall for LibriSpeech: Kaldi fbank of 80 bands, three speeds, MUSAN, masks, batches by duration.

    Utterances of 1 to 20 s with the pieces of their text by `tokenizer`, a SentencePiece `.model`; `max_duration`
    seconds in a batch, in 30 buckets. `noise`: recordings such as MUSAN's. icefall has each utterance at each speed in
    an epoch; here one speed is drawn for each. Utterances with more than 25 pieces a second are left out: icefall
    leaves out those with more pieces than frames behind its subsampling by 4.

    Source: icefall on GitHub (k2-fsa/icefall, egs/librispeech/ASR: tdnn_lstm_ctc/asr_datamodule.py), and lhotse's
    transforms.
    """
    noises = [] if noise is None else [Mix(noise, snr_db=(10.0, 20.0), p=0.5)]
    return Recipe(
        crop=Whole(min_seconds=1.0, max_seconds=20.0),
        batching=Buckets(max_duration),
        features="icefall",
        targets={"tokens": Tokens(text, tokenizer, max_per_second=25.0)},
        augment=[
            Speed((0.9, 1.0, 1.1)),
            *noises,
            SpecAugment(27, 2, 100, 10, max_share=0.15, warp=80, p=0.9),
        ],
    )


def nemo(
    tokenizer: _Tokenizer,
    text: str = "text",
    *,
    max_duration: float = 600.0,
) -> Recipe:
    """NeMo's FastConformer with CTC and BPE: log-mel of 80 bands, normalised by band, dither, masks.

    Utterances of 0.1 to 16.7 s with the pieces of their text by `tokenizer`. NeMo masks 10 ranges of up to 5 % of the
    frames with 0, the mean of each band; so does this. It makes batches of one size in its configuration for
    LibriSpeech and by duration with Lhotse: `max_duration` seconds in 30 buckets here.

    Source: NVIDIA/NeMo on GitHub (examples/asr/conf/fastconformer/fast-conformer_ctc_bpe.yaml).
    """
    return Recipe(
        crop=Whole(min_seconds=0.1, max_seconds=16.7),
        batching=Buckets(max_duration),
        features="nemo",
        targets={"tokens": Tokens(text, tokenizer)},
        augment=[Dither(1e-5), SpecAugment(27, 2, 0.05, 10, fill=0.0)],
    )


def whisper(
    tokenizer: _Tokenizer,
    text: str = "text",
    *,
    language: str = "en",
    task: str = "transcribe",
    start: bool = True,
) -> Recipe:
    """Whisper's training: 30 s of log-mel, and the text between its special tokens.

    Utterances of up to 30 s, padded to 3000 frames of 80 bands; `tokenizer` is Whisper's `tokenizer.json`. Labels are
    filled with -100, which losses ignore, and utterances with more than 448 are left out. `features="whisper128"` and
    3000 frames are those of large-v3. Fine-tuning usually has no augmentation: give `augment=`.

    `start` says whether labels begin with `<|startoftranscript|>`. Models of transformers put it before the labels
    themselves: give them `start=False`, or the decoder reads it twice.

    Source: A. Radford et al., Robust speech recognition via large-scale weak supervision (2022), section 2.
    """
    prefix = (*(["<|startoftranscript|>"] if start else []), f"<|{language}|>", f"<|{task}|>", "<|notimestamps|>")
    labels = Tokens(text, tokenizer, prefix=prefix, suffix=("<|endoftext|>",), pad=-100, max_tokens=448)
    return Recipe(
        crop=Whole(max_seconds=30.0),
        features=preset("whisper", n_frames=3000),
        targets={"labels": labels},
        augment=[],
    )


_WAV2VEC2 = ("<pad>", "<s>", "</s>", "<unk>", " ", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ")
"""The vocabulary of wav2vec2-base-960h, with a space where it has a bar."""


def wav2vec2_ctc(
    text: str = "text",
    *,
    vocabulary: Sequence[str] | PathLike[str] = _WAV2VEC2,
    max_duration: float = 100.0,
) -> Recipe:
    """Fine-tuning of wav2vec 2.0 with CTC: normalised waveforms, letters, a mask of the padding.

    `vocabulary` has an entry for each id; by default that of wav2vec2-base-960h, capital letters, whose id 0 is the
    blank. Labels are filled with -100. Utterances of 1 to 20 s; `max_duration` seconds in a batch, in 30 buckets. The
    masks of its SpecAugment are in the model. Models of the "base" sizes take no `attention_mask`.

    Source: A. Baevski et al., wav2vec 2.0 (2020), and transformers' examples/pytorch/speech-recognition.
    """
    return Recipe(
        crop=Whole(min_seconds=1.0, max_seconds=20.0),
        batching=Buckets(max_duration),
        features="wav2vec2",
        targets={"labels": Characters(text, vocabulary, pad=-100)},
        outputs=["attention_mask"],
        augment=[],
    )
