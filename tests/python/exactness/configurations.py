"""Random configurations of `Loader`, each a function of its seed."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from corpus import BAD, BIRDS, FORMS, SHARDS, N
from forebay import augment, crops, features, sampling, targets
from recordings import TINY

Keywords = dict[str, Any]

RATE = 8000
OF_RECIPE = ("sample_rate", "n_mels", "n_fft", "hop_length")

LIKELY = {"csv": 2, "jsonl": 2, "parquet": 2}
"""Forms that come more often than the others."""


@dataclass(frozen=True)
class Configuration:
    """A source and the parameters of a loader of it."""

    seed: int
    form: str
    pattern: str
    keywords: Keywords = field(default_factory=dict)

    @property
    def is_mixture(self) -> bool:
        return self.form.endswith("mixed")

    @property
    def may_have_streams(self) -> bool:
        """Whether `n_streams` may be given: the order is the window, or it follows from the files."""
        given = self.keywords
        order = given.get("order")
        shuffles = given["infinite"] or given["shuffle_min_size"]
        return not self.is_mixture and (order == "window" or (order is None and bool(shuffles)))

    @property
    def steps(self) -> list[Any]:
        """The steps of augmentation."""
        given = self.keywords.get("augment")
        return given if isinstance(given, list) else []

    @property
    def pairs(self) -> bool:
        """Whether examples of a batch are mixed with each other."""
        return any(isinstance(step, (augment.Mixup, augment.CutMix)) for step in self.steps)


def configuration(seed: int) -> Configuration:
    """The configuration of a seed."""
    rng = Random(seed)
    form = rng.choices(FORMS, [LIKELY.get(form, 1) for form in FORMS])[0]
    pattern = rng.choices(list(BAD), [3, 4, 3, 1])[0]
    made = Configuration(seed, form, pattern, order(rng, form))
    given = made.keywords
    given |= clips(rng)
    given |= columns(rng, form)
    if rng.random() < 0.4:
        chosen = weights(rng, form)
        given |= chosen
    if rng.random() < 0.35:
        block = range(16, 25) if rng.random() < 0.5 else rng.sample(range(N), 5)
        given["exclude"] = sorted(block)
    if rng.random() < 0.4:
        given["augment"] = steps(rng, form, given)
    else:
        given["augment"] = rng.random() < 0.7
    given["outputs"] = outputs(rng, given)
    if form in ("list", "pattern") and "path" in given["outputs"]:
        given["outputs"].remove("path")  # the path as it is given, which has two forms: see `Source.folders`
    if made.may_have_streams and (given["order"] or rng.random() < 0.5):
        given["n_streams"] = rng.choice([1, 2, 4])
    return made


def order(rng: Random, form: str) -> Keywords:
    """The order of the rows and their division into batches."""
    given: Keywords = {
        "seed": rng.choice([0, rng.randrange(2**64)]),
        "batch_size": rng.choice([4, 8, 12]),
        "infinite": rng.random() < 0.5,
        "shuffle_min_size": rng.choice([0, 5, 20, 60]),
        "drop_last": rng.random() < 0.25,
        "order": rng.choice([None, "sequential", "window", "global", "era"]),
        "era_length": rng.choice([5, 16, 1000]),
    }
    if form.endswith("mixed"):
        given["order"] = rng.choice([None, "sequential", "global", "era"])
        if rng.random() < 0.7:
            shares = {"one": rng.choice([0.25, 0.5, 0.75]), "two": 0.5}
            given["weights"] = rng.choice([shares, [(0, shares), (3, {"one": 0.5, "two": 0.5})]])
        given["mixture_block"] = rng.choice([None, 24, 48])
        given["stop"] = None if given["infinite"] else rng.choice([None, "first_exhausted", "all_exhausted"])
    return given


def clips(rng: Random) -> Keywords:
    """Features, and the crop without its spans."""
    given: Keywords = {**TINY, "clip_seconds": rng.choice([0.01, 0.02, 0.04])}
    front_ends = [
        features.Waveform(sample_rate=RATE),
        features.Waveform(sample_rate=RATE, dtype="int16"),
        features.Waveform(sample_rate=16000, channels="all", n_channels=2),
        features.Spectrogram(sample_rate=RATE, n_fft=32, hop_length=16),
        features.LogMel(sample_rate=RATE, n_fft=64, hop_length=32, n_mels=8, dtype="bfloat16"),
        features.LogMel(
            sample_rate=RATE, n_fft=64, hop_length=32, n_mels=6, normalization=features.ZScore(eps=1e-3), layout="time"
        ),
    ]
    if rng.random() < 0.6:
        given = {name: value for name, value in given.items() if name not in OF_RECIPE}
        given["features"] = rng.choice(front_ends)
    pad: Any = rng.choice(["behind", "front", "both", "random", "repeat", "noise"])
    padded: Any = {"pad": pad, "noise_db": -40.0 if pad == "noise" else None}
    kinds: list[Any] = [
        None, None, None,
        crops.Start(**padded), crops.Center(**padded), crops.End(**padded), crops.Center(), crops.End(),
        crops.Random(**padded), crops.Random(silence_db=-30.0, redraws=2),
        crops.Loudest(3, **padded), crops.Views(2, crops.Random(**padded)),
        crops.Windows(rng.choice([0.007, 0.02])), crops.Windows(0.005, end=rng.choice(["shift", "remainder", "pad"])),
        crops.Windows(0.006, context=0.002),
    ]  # fmt: skip
    crop = rng.choice(kinds)
    return given if crop is None else {**given, "crop": crop}


def columns(rng: Random, form: str) -> Keywords:
    """Targets, columns, and crops by spans, of a source that has columns."""
    given: Keywords = {}
    separator = None if form in (*SHARDS, "jsonl", "tar", "shards_mixed") else ","
    if form in ("list", "pattern"):
        return given
    if form == "folder":
        names = ["a", "b", "c", "d"]
        return {"targets": targets.ClassIndex("label", classes=names)} if rng.random() < 0.3 else given
    has_lists = separator is None
    birds = targets.MultiHot("several", classes=BIRDS, smoothing=0.1, secondary="bird", separator=separator)
    chosen: list[Any] = [
        None, None, {},
        targets.ClassIndex("label", null=7),
        {"birds": birds},
        {"bird": targets.ClassIndex("bird", classes="data"), "n": targets.Number("index_in_table", dtype="uint8")},
        {"text": targets.Text("text"), "x": targets.Number("x", null=0.0)},
    ]  # fmt: skip
    if has_lists:
        chosen.append({"votes": targets.Soft("votes", size=6, null="zeros")})
    if (target := rng.choice(chosen)) is not None:
        given["targets"] = target
    used = set(target) if isinstance(target, dict) else {"label"}
    passed = passed_through(form) - used
    if rng.random() < 0.5:
        given["columns"] = rng.sample(sorted(passed), rng.randint(1, 3))
    if has_lists and rng.random() < 0.25:
        given["crop"] = rng.choice([crops.Events("spans", 0.02), crops.Inside("spans")])
    return given


def passed_through(form: str) -> set[str]:
    """The columns that a loader of such files can pass through."""
    if form in ("list", "pattern", "folder"):
        return set()
    flat = {"bird", "weight", "x", "text", "index_in_table"}
    return flat | {"several", "votes", "ragged"} if form in (*SHARDS, "jsonl", "tar", "shards_mixed") else flat


def weights(rng: Random, form: str) -> Keywords:
    """Which rows are read, and how often each comes."""
    chosen: list[Any] = [
        {"n_samples": rng.choice([20, 40])},
        {"sampling": sampling.Subset(sorted(rng.sample(range(N), 30)))},
        {"sampling": sampling.Subset(30, seed=rng.randrange(9))},
        {"sampling": sampling.Weighted([1.0 + row % 3 for row in range(N)], epoch_size=rng.choice([None, 30, 70]))},
    ]
    if form not in ("list", "pattern", "folder"):
        balanced = sampling.Balanced("bird", rng.choice([-1.0, -0.5]), epoch_size=rng.choice([None, 50]))
        chosen += [
            {"sampling": sampling.Where("x", minimum=3.0)},
            {"sampling": sampling.Weighted("weight")},
            {"sampling": balanced},
            {"sampling": sampling.AtMost(8, "bird")},
        ]
    return dict(rng.choice(chosen))


def steps(rng: Random, form: str, given: Keywords) -> list[Any]:
    """Steps of augmentation that the features and targets allow."""
    is_waveform = isinstance(given.get("features"), features.Waveform)
    p = rng.choice([0.5, 1.0])
    on_waveform: list[Any] = [
        augment.Gain((-6, 6), p=p), augment.Polarity(), augment.Roll(p=p), augment.Clip(p=p),
        augment.Noise((0, 20), slope_db=(-6, 6), p=p), augment.Filter("peak", (100, 3000), n=2, p=p),
        augment.Dither((1e-5, 1e-3), p=p), augment.DropFreq(p=p), augment.Gain(factor=(0.125, 2), p=p),
        augment.DropChunk((1, 20), noise_factor=(0, 1), p=p), augment.Level((-35, -15), p=p),
        augment.Level((-33, -25), measure="lufs", p=p),
        augment.Mix(snr_db=(-3, 9), most=rng.choice([1, 2]), near=rng.choice([None, 6]), p=p),
    ]  # fmt: skip
    on_waveform.append(augment.OneOf(rng.sample(on_waveform, 3), weights=[1, 2, 3], p=p))
    windows = isinstance(given.get("crop"), crops.Windows)
    if not windows:
        on_waveform.append(augment.Speed((0.5, 1.0, 1.1), p=p))
    chosen = rng.sample(on_waveform, rng.randint(1, 3))
    if not is_waveform and rng.random() < 0.5:
        masks = augment.SpecAugment(3, 2, 0.3, 2, warp=rng.choice([0, 2]), p=p)
        chosen += rng.sample([masks, augment.FrameRoll(p=p)], rng.randint(1, 2))
    is_view = isinstance(given.get("crop"), crops.Views)
    mixes = rng.random() < 0.3 and "targets" not in given and form not in ("list", "pattern") and not is_view
    if mixes and form != "folder":
        given["targets"] = targets.ClassIndex("label")
        given["columns"] = [name for name in given.get("columns", []) if name != "label"]
        chosen.append(augment.Mixup(p=p))
    return chosen


DRAWN = {
    "Gain": ["gain_db"],
    "Roll": ["roll_shift"],
    "Noise": ["noise_snr_db", "noise_slope_db"],
    "Clip": ["clip_db"],
    "Speed": ["speed"],
    "Mix": ["mix_index", "mix_start", "mix_snr_db"],
    "FrameRoll": ["frame_roll_shift"],
}
"""The outputs of steps."""


def outputs(rng: Random, given: Keywords) -> list[str]:
    """Some of the additional fields."""
    known = ["path", "start", "valid_samples", "valid_frames", "shard", "row", "window"]
    made = given["augment"] if isinstance(given["augment"], list) else []
    known += [name for step in made for name in DRAWN.get(type(step).__name__, [])]
    return sorted(rng.sample(known, rng.randint(0, len(known))))


def threads(rng: Random, form: str) -> Keywords:
    """Parameters that change no batch."""
    given: Keywords = {
        "n_workers": rng.choice([1, 2, 3, 6, "auto"]),
        "n_readers": rng.choice([1, 2, 5, 16]),
        "raw_channel_size": rng.choice([1, 2, 16, 256]),
        "prefetch_batches": rng.choice([1, 2, 5, "auto"]),
        "shuffle_buffer_size": rng.choice([60, 80, 300]),
        "raw_channel_bytes": rng.choice([None, 1 << 20]),
        "worker_nice": rng.choice([0, 0, 3]),
    }
    if form in ("stream", "file"):
        given["mmap"] = rng.random() < 0.3
    return given
