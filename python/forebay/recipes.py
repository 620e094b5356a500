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

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from forebay._core import ConfigError
from forebay.augment import (
    Dither,
    Gain,
    Level,
    Mix,
    Noise,
    Only,
    Polarity,
    Remix,
    Reverb,
    Roll,
    SpecAugment,
    Speed,
    SwapChannels,
)
from forebay.batching import Buckets
from forebay.crops import Annotated, Inside, Random, Start, Whole
from forebay.features import Decibel, LogMel, MinMax, Waveform, preset
from forebay.sampling import Balanced, Weighted, Where
from forebay.targets import Characters, Frames, MultiHot, Text, Tokens
from forebay.targets import Sequence as Codes
from forebay.tokens import Tokenizer

__all__ = [
    "Recipe", "ast", "birdclef", "birdset", "demucs", "desed", "dns", "hubert", "icefall", "librimix", "librispeech",
    "nemo", "passt", "pyannote", "wav2vec2_ctc", "whisper",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


_Files = str | PathLike[str] | Sequence[str | PathLike[str]]
_Classes = str | Sequence[str] | int | None
_Annotations = str | PathLike[str] | Sequence[tuple[str, float, float, str]] | Mapping[str, str]
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
    leaves out those with more pieces than frames after its subsampling by 4.

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

    Raises `ConfigError` for a `language` that is no code, such as "french".

    Source: A. Radford et al., Robust speech recognition via large-scale weak supervision (2022), section 2.
    """
    if not 2 <= len(language) <= 3:
        raise ConfigError(f"language is {language!r}, must be a code of Whisper's, such as 'en', 'fr' or 'haw'")
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


def dns(
    noise: _Files,
    audio: str = "path",
    *,
    rooms: _Files | None = None,
    clip_seconds: float = 30.0,
) -> Recipe:
    """The DNS Challenge: noisy and clean speech at 16 kHz, -5 to 25 dB, at levels of -35 to -15 dBFS.

    `audio` is the column of clean speech, `noise` are recordings of noise, `rooms` impulse responses, which both
    fields are heard in. Batches have `noisy` and `clean`, whose difference is the noise. The challenge joins utterances
    with 0.2 s of silence between them to 30 s; here a shorter one is repeated. Its ratios are of the parts of 100 ms in
    which the noise is above -25 dBFS, and whole decibels; here of the loud parts of the speech to the noise. Where a
    sample of either field would exceed 0.99, the gain is less, as there. It leaves out speech that is active for less
    than 60 % of the time.

    Source: microsoft/DNS-Challenge on GitHub (noisyspeech_synthesizer.cfg, noisyspeech_synthesizer_singleprocess.py and
    audiolib.py); C. K. A. Reddy et al., The INTERSPEECH 2020 deep noise suppression challenge (2020).
    """
    reverb = [] if rooms is None else [Reverb(rooms)]
    return Recipe(
        audio={"noisy": audio, "clean": audio},
        clip_seconds=clip_seconds,
        crop=Random(pad="repeat"),
        features=Waveform(sample_rate=16_000),
        targets={},
        augment=[
            *reverb,
            Only("noisy", [Mix(noise, snr_db=(-5.0, 25.0), level="active")]),
            Level((-35.0, -15.0), of="noisy", peak=0.99),
        ],
    )


def librimix(
    n_sources: int = 2,
    *,
    sample_rate: int = 8000,
    clip_seconds: float = 3.0,
    length: str | None = "length",
) -> Recipe:
    """Conv-TasNet on LibriMix, as in asteroid: a mixture and its sources, clips of 3 s at 8 kHz.

    For LibriMix's table of mixtures, with the columns `mixture_path`, `source_1_path`, ... and `length`, in samples.
    Batches, of 6 in asteroid, have `mixture`, `[batch, samples]`, and `sources`, `[batch, n_sources, samples]`.
    Mixtures shorter than a clip are left out, as in asteroid; `length=None` keeps them, padded with zeros. Nothing is
    augmented. The paths of LibriMix's tables are absolute: give the loader their folder as `allow_paths=`.

    Source: asteroid on GitHub (asteroid-team/asteroid, egs/librimix/ConvTasNet/local/conf.yml and
    asteroid/data/librimix_dataset.py); J. Cosentino et al., LibriMix (2020).
    """
    sampling = {} if length is None else {"sampling": Where(length, minimum=round(clip_seconds * sample_rate))}
    return Recipe(
        audio={"mixture": "mixture_path", "sources": [f"source_{n}_path" for n in range(1, n_sources + 1)]},
        clip_seconds=clip_seconds,
        features=Waveform(sample_rate=sample_rate),
        targets={},
        **sampling,
        augment=[],
    )


def demucs(sources: Sequence[str] = ("drums", "bass", "other", "vocals")) -> Recipe:
    """Demucs on MUSDB: stereo stems of 10 s at 44.1 kHz, gains, signs, channels, and remixes within groups of 4.

    `sources` are columns of recordings, and the fields of a batch, `[batch, 2, samples]` each; the model's input is
    their sum. Each stem is scaled by 0.25 to 1.25, its sign and its channels are flipped every second time, and it is
    then that of one of four songs, so `batch_size` is a multiple of 4; 64 in demucs.

    demucs reads segments of 11 s at whole seconds, and moves each stem by up to 1 s within them; here a clip of 10 s is
    at any sample, the same for the stems of a song. It normalises each track by the mean and deviation of its mixture,
    and changes tempo and pitch of a fifth of them; neither is here.

    Source: demucs on GitHub (facebookresearch/demucs, conf/config.yaml, demucs/solver.py and demucs/augment.py); A.
    Defossez, Hybrid spectrogram and waveform source separation (2021).
    """
    each = [Only(name, [Polarity(), SwapChannels(), Gain(factor=(0.25, 1.25))]) for name in sources]
    return Recipe(
        audio={name: name for name in sources},
        clip_seconds=10.0,
        features=Waveform(sample_rate=44_100, channels="all", n_channels=2),
        targets={},
        augment=[*each, Remix(4)],
    )


def pyannote(
    annotations: _Annotations,
    *,
    speakers: int = 3,
    regions: str | Annotated | None = None,
    annotated: str | Sequence[float] | None = None,
    overlap: float = 0.0,
) -> Recipe:
    """Diarization as in pyannote's segmentation-3.0: clips of 10 s at 16 kHz, and who speaks in each of 589 frames.

    `annotations` is an RTTM file, a folder of them, or what else `targets.Frames` takes. The target `speakers` is
    `[batch, 589, speakers]`, those with the most talk time first: what `Powerset(speakers, 2).to_powerset` takes.
    `regions` is a column with the annotated spans of a recording, from its UEM, or `crops.Annotated`, and `annotated`
    a column with their seconds, or `Annotated.seconds`: recordings are drawn by the latter and clips within the former,
    as pyannote does (it leaves out spans shorter than a clip); without them recordings come equally often and clips are
    anywhere. `overlap`: the share of clips to which
    another recording is added, with its speakers, 0 to 5 dB below, pyannote's `MixSpeakerDiarization`.

    Source: pyannote/pyannote-audio on GitHub (tasks/segmentation/speaker_diarization.py, augmentation/mix.py); the
    configuration of pyannote/segmentation-3.0; A. Plaquet and H. Bredin, Powerset multi-class cross entropy loss for
    neural speaker diarization (2023).
    """
    sampling = {} if annotated is None else {"sampling": Weighted(annotated)}
    crop = {} if regions is None else {"crop": Inside(regions) if isinstance(regions, str) else regions}
    mixed = [Mix(snr_db=(0.0, 5.0), targets="union", p=overlap)] if overlap else []
    return Recipe(
        clip_seconds=10.0,
        **crop,
        features=Waveform(sample_rate=16_000),
        targets={"speakers": Frames(annotations, step=0.016875, duration=0.0619375, speakers=speakers)},
        **sampling,
        augment=mixed,
    )


_DESED = (
    "Alarm_bell_ringing", "Blender", "Cat", "Dishes", "Dog", "Electric_shaver_toothbrush", "Frying", "Running_water",
    "Speech", "Vacuum_cleaner",
)  # fmt: skip
"""The classes of DESED."""


def desed(annotations: _Annotations, *, classes: _Classes = _DESED) -> Recipe:
    """The baseline of DCASE task 4: 10 s at 16 kHz, 128 mel bands in decibels, events on a grid of 64 ms, mixtures.

    `annotations` is a table of `filename`, `onset`, `offset` and `event_label`. The target `strong` is `[batch, 156,
    classes]`, a frame for each 4 of the features, by which the model pools. Magnitudes are in decibels, at least -50,
    and then between 0 and 1 in each clip.

    The baseline has strongly and weakly labelled and unlabelled clips in a batch; this is the part with strong labels.
    Half of its batches mix mel spectrograms by weights of Beta(2, 8), and labels with them; here half of the clips get
    another recording at a weight of 0 to 0.4, of the same mean, with its labels in full.

    Source: DCASE-REPO/DESED_task on GitHub (recipes/dcase2023_task4_baseline: confs/default.yaml,
    local/sed_trainer.py; desed_task/data_augm.py and utils/encoder.py).
    """
    return Recipe(
        clip_seconds=10.0,
        features=LogMel(
            sample_rate=16_000,
            n_fft=2048,
            hop_length=256,
            n_mels=128,
            f_min=0.0,
            f_max=8000.0,
            window="hamming",
            power=1.0,
            empty_bands="keep",
            compression=Decibel(amin=10**-2.5),
            normalization=MinMax(),
        ),
        targets={"strong": Frames(annotations, classes=classes, step=4 * 256 / 16_000)},
        augment=[Mix(weight=(0.0, 0.4), targets="union", p=0.5)],
    )


def hubert(
    units: str = "units",
    *,
    label_rate: float = 50.0,
    max_duration: float = 87.5,
) -> Recipe:
    """Pretraining of HuBERT base: waveforms at 16 kHz, and the number of a cluster for each 20 ms.

    `units` is a column of lists of whole numbers, `label_rate` of them per second: 100 for clusters of MFCC, the first
    iteration, 50 for those of HuBERT's own features. Where a clip has none, they are -1. Utterances of less than 2 s
    are left out, those above 15.625 s (250 000 samples) are cut at their end, and a batch has `max_duration` seconds,
    of `valid_samples` each. fairseq cuts the utterances of a batch at random to the shortest of them, and long ones
    too; here batches are of about the same length, and padded. Masks of the model's input are in the model.

    Source: fairseq on GitHub (facebookresearch/fairseq, examples/hubert/config/pretrain/hubert_base_librispeech.yaml
    and fairseq/data/audio/hubert_dataset.py); W.-N. Hsu et al., HuBERT (2021).
    """
    return Recipe(
        crop=Whole(min_seconds=2.0, max_seconds=15.625, on_long="cut"),
        batching=Buckets(max_duration),
        features=Waveform(sample_rate=16_000),
        targets={"units": Codes(units, rate=label_rate, pad=-1)},
        augment=[],
    )
