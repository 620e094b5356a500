"""A digest of the batches of each configuration, before and after a change that must not change a batch.

    python benches/digests.py --out before.json        # with the package before the change
    python benches/digests.py --out after.json         # with the package after it
    python benches/digests.py --compare before.json after.json

The comparison names the configurations whose batches differ, and exits with 1 if there are any. `--only TEXT`
plays the configurations whose names contain the text. All of them take about a minute.

A digest is the SHA-256 of two epochs of a configuration: names, types, shapes and bits of all fields of each
batch in order, for one rank after the other, and the rows that failed. An error in place of a batch counts by
its type. Numbers of threads and lengths of queues are drawn anew for each loader of each run, and change no
digest. The file has the seed of the draws, and the versions of the libraries that wrote the input. The exit
code of a run is 1 if a configuration could not be played, such as one with a parameter that the package does
not have.

Axes that meet in the code are crossed; the others vary alone, from one base:

| axis | varies with |
|---|---|
| format: files of `tests/data`, long recordings | `decode()`; in a shard, read whole; a file, by range |
| source: Arrow, Parquet, tables, tar, folders, lists, mixtures | order; number of ranks, or infinite |
| front ends and presets | augmentation on and off |
| crops | two sources; `Windows`: also order, number of ranks |
| steps of augmentation | waveforms, log-mels; those that read other rows: order, number of ranks |
| sampling | order, number of ranks |
| targets | source |
| packing of tokens, extras, tokenizers | number of ranks |
| caches, and datasets over them | number of ranks; random access |
| `AudioDataset` | source; waveforms, log-mels |
"""

import argparse
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import soundfile

import forebay
from forebay import Manifest, augment, cache, crops, features, sampling, targets
from forebay.tokens import Tokenizer

# In place of this folder, whose scripts have names of libraries.
TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:1] = [str(TESTS / "python" / name) for name in ("helpers", "exactness")]
import caches  # noqa: E402
import documents  # noqa: E402
import pinned  # noqa: E402
from case import failed  # noqa: E402
from configurations import RATE, passed_through, threads  # noqa: E402
from corpus import BIRDS, FORMS, Corpus, N  # noqa: E402
from digests import digest  # noqa: E402
from generated import signal  # noqa: E402
from recordings import FORMATS, TINY, Row, write_shard  # noqa: E402

ORDERS = ("sequential", "window", "global", "era")
WORLDS = (1, 2, 3)
EVERY = 12
"""Rows of a batch over all ranks."""

LIBRARIES = ("numpy", "pyarrow", "datasets", "soundfile")
NO_AUDIO = {".csv", ".py", ".tsv", ".txt"}

Keywords = dict[str, Any]
Case = Callable[["Sha"], None]
Cases = Iterator[tuple[str, Case]]

TONES: Keywords = {**TINY, "seed": 7, "shuffle_min_size": 20, "era_length": 16}
"""Parameters for the tiny recordings of `Corpus`."""


class Sha:
    """The digest of one configuration, and the draws of its numbers of threads."""

    def __init__(self, rng: Random) -> None:
        self.sha = hashlib.sha256()
        self.rng = rng
        self.n_batches = 0

    def add(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Adds batches; an error ends them, and counts by its type."""
        try:
            for batch in batches:
                self.sha.update(digest(batch).encode())
                self.n_batches += 1
        except (forebay.ForebayError, OSError) as error:
            self.data(type(error).__name__)

    def data(self, data: object) -> None:
        """Adds a value that JSON can represent."""
        self.sha.update(json.dumps(data).encode())

    def epochs(self, loader: Any, n_batches: int | None = None) -> None:
        """Adds two passes of a finite loader, or `n_batches` of an infinite one, and the rows that failed."""
        with loader:
            for _ in range(1 if n_batches else 2):
                self.add(islice(loader, n_batches))
            if not isinstance(loader, cache.DataLoader):
                self.data(failed(loader))

    def few(self) -> Keywords:
        """Numbers of threads of a loader without readers."""
        return {"n_workers": self.rng.choice([1, 2, 5]), "prefetch_batches": self.rng.choice([1, 2, 5])}


def clips(files: Callable[[], Any], form: str, world: int, sha: Sha, **given: Any) -> None:
    """Adds two epochs of a `Loader`, for each rank; `None` removes a parameter."""
    size = given.pop("size", EVERY)
    given = {"infinite": False, **{name: value for name, value in given.items() if value is not None}}
    if given.get("order") == "window":
        given["n_streams"] = 6
    for rank in range(world):
        drawn = threads(sha.rng, form)
        each = {"batch_size": size // world, "rank": rank, "world_size": world}
        loader = forebay.Loader(files(), **each, **drawn, **given)
        sha.epochs(loader, 2 * N // size if given["infinite"] else None)


class Inputs:
    """The files that loaders read, written when a configuration first needs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = Corpus(folder / "corpus")
        (folder / "pinned").mkdir()
        self.pinned = pinned.Files(folder / "pinned")

    def source(self, form: str, pattern: str = "some") -> Any:
        """A source of `N` tiny recordings with columns."""
        made = self.corpus.source(form, pattern)
        return made.files(made.folders[0])

    def named(self, kind: str) -> Manifest:
        """A table of another program, over the recordings of the source `csv`."""
        folder = self.corpus.source("csv", "some").folders[0]
        path = folder / f"{kind}.{'txt' if kind == 'raven' else 'jsonl'}"
        lines = [TABLES[kind].format(i=i, start=i % 3 / 1000, end=i % 3 / 1000 + 0.01) for i in range(N)]
        path.write_text("\n".join([*([RAVEN] if kind == "raven" else []), *lines]))
        return Manifest(path)

    def tiny(self, form: str, world: int = 1, pattern: str = "some", **given: Any) -> Case:
        """A `Loader` of such a source."""
        return partial(clips, partial(self.source, form, pattern), form, world, **{**TONES, **given})

    def shard(self, recording: Callable[[], Path]) -> Path:
        """A shard that holds a recording four times."""
        path = self.folder / "shard.arrow"
        return write_shard(path, [Row(recording().read_bytes(), 0)] * 4, classes=None)

    def long(self, name: str) -> Path:
        """A recording above 256 KiB, of which a loader reads only the bytes of a clip; see `LONG`."""
        path = self.folder / (f"{name.replace(', ', '-')}.{LONG[name][0].lower()}" if name in LONG else name)
        if path.exists():
            return path
        if name not in LONG:
            # An MP4 file may have a box of free space at its end.
            box = FREE.to_bytes(4, "big") + b"free" + bytes(FREE - 8)
            path.write_bytes((FORMATS / name).read_bytes() + box)
            return path
        container, subtype = LONG[name]
        rate, channels = 16000, 1 if container == "CAF" else 2
        seconds = 120 if container in ("OGG", "MP3") else 40
        with soundfile.SoundFile(path, "w", rate, channels, subtype, format=container) as file:
            samples = signal(seconds * rate, rate, channels)
            for first in range(0, len(samples), rate):  # libvorbis overflows its stack in long writes
                file.write(samples[first : first + rate])
        return path


RAVEN = "Selection\tBegin Time (s)\tEnd Time (s)\tBegin Path\tSpecies"
TABLES = {
    "raven": "{i}\t{start}\t{end}\taudio/{i}.wav\tjay",
    "nemo": '{{"audio_filepath": "audio/{i}.wav", "offset": {start}, "duration": 0.01, "text": "text {i}"}}',
    "lhotse": '{{"id": "{i}", "start": {start}, "duration": 0.01, "channel": 0, "type": "MonoCut", '
    '"recording": {{"id": "r", "sources": [{{"type": "file", "source": "audio/{i}.wav"}}]}}}}',
}
"""A row of each."""

LONG = {
    "wav, s16": ("WAV", "PCM_16"), "wav, s24": ("WAV", "PCM_24"), "wav, f32": ("WAV", "FLOAT"),
    "wav, u8": ("WAV", "PCM_U8"), "wav, ulaw": ("WAV", "ULAW"), "wav, ima": ("WAV", "IMA_ADPCM"),
    "wav, ms": ("WAV", "MS_ADPCM"), "w64": ("W64", "PCM_16"), "rf64": ("RF64", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"), "au": ("AU", "PCM_16"), "caf": ("CAF", "PCM_16"), "flac": ("FLAC", "PCM_16"),
    "caf, alac": ("CAF", "ALAC_16"), "ogg": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III"),
}  # fmt: skip
"""Containers and codecs that libsndfile writes; the others are files of `tests/data` in `LONGER`."""

LONGER = ("aac.m4a", "alac.m4a")
FREE = 1 << 19


def decoded(file: Callable[[], Path], sha: Sha) -> None:
    """Adds a recording and three spans of it."""
    data = file().read_bytes()
    for start, length in [(0, None), (1, 1000), (777, 4321), (5, 0)]:
        try:
            samples, rate = forebay.decode(data, start, length)
        except forebay.ForebayError as error:
            sha.data(type(error).__name__)
        else:
            sha.add([{"samples": samples, "rate": np.array(rate)}])


def recordings(inputs: Inputs) -> Cases:
    """Each format: by `decode`, whole from a shard, from a file of its own; a long one also in windows."""
    clip: Keywords = {"features": features.Waveform(sample_rate=16000), "clip_seconds": 0.1, "size": 3}
    clip |= {"shuffle_min_size": 0}
    files: dict[str, Callable[[], Path]] = {}
    for folder in (TESTS / "data" / "audio", TESTS / "data" / "recordings"):
        # Those that cannot be decoded included.
        found = sorted(path for path in folder.rglob("*.*") if path.suffix not in NO_AUDIO)
        files |= {str(path.relative_to(folder.parent)): partial(Path, path) for path in found}
    files |= {f"long {name}": partial(inputs.long, name) for name in (*LONG, *LONGER)}
    for name, file in files.items():
        yield f"format: {name}, decode", partial(decoded, file)
        yield f"format: {name}, in a shard", partial(clips, partial(inputs.shard, file), "", 1, **clip)
        four = lambda file=file: [file()] * 4  # noqa: E731
        yield f"format: {name}, a file", partial(clips, four, "", 1, **clip)
        if name.startswith("long"):
            given = {**clip, "crop": crops.Windows(1.3), "order": "global"}
            yield f"format: {name}, windows", partial(clips, four, "", 1, **given)


def sources(inputs: Inputs) -> Cases:
    """Each kind of source: order, number of ranks, infinite."""
    for form in FORMS:
        columns = sorted(passed_through(form))
        given: Keywords = {"columns": columns, "outputs": ["start", "valid_samples", "row"]}
        for order in ORDERS:
            if form.endswith("mixed") and order == "window":
                continue
            for world in WORLDS:
                case = inputs.tiny(form, world, order=order, **given)
                yield f"source: {form}, {order}, ranks={world}", case
            case = inputs.tiny(form, order=order, infinite=True, **given)
            yield f"source: {form}, {order}, infinite", case
    for kind in TABLES:
        case = partial(clips, partial(inputs.named, kind), "csv", 2, order="global", **TONES)
        yield f"source: a table of {kind}", case
    shares = {"one": 0.25, "two": 0.75}
    case = inputs.tiny("shards_mixed", weights=shares, stop="all_exhausted")
    yield "source: a mixture until all are exhausted", case
    stages = [(0, shares), (3, {"one": 0.5, "two": 0.5})]
    yield "source: a mixture in stages", inputs.tiny("shards_mixed", weights=stages, infinite=True)
    yield "source: a mixture in blocks", inputs.tiny("files_mixed", mixture_block=48, drop_last=True)


FRONT_ENDS: dict[str, Any] = {
    "waveform": features.Waveform(sample_rate=RATE),
    "waveform, float16": features.Waveform(sample_rate=RATE, dtype="float16", normalize_waveform="peak"),
    "waveform, int16": features.Waveform(sample_rate=22050, dtype="int16"),
    "waveform, first channel": features.Waveform(sample_rate=RATE, channels=0, remove_mean=True),
    "waveform, stereo": features.Waveform(sample_rate=16000, channels="all", n_channels=2),
    "spectrogram": features.Spectrogram(sample_rate=16000, n_fft=400, hop_length=160),
    "magnitudes": features.Spectrogram(sample_rate=RATE, n_fft=256, power=1.0, compression=features.Log10()),
    "log-mel": features.LogMel(),
    "log-mel, bfloat16": features.LogMel(sample_rate=16000, n_mels=40, dtype="bfloat16", n_frames=60),
    "log-mel, time first": features.LogMel(
        sample_rate=16000, n_fft=400, hop_length=160, n_mels=64, layout="time",
        normalization=features.ZScore(eps=1e-3),
    ),
    "mel": features.LogMel(sample_rate=16000, n_fft=512, n_mels=32, compression=None, pad_mode="constant"),
    "PCEN": features.LogMel(sample_rate=16000, n_mels=40, scale=2.0**15, compression=features.PCEN()),
    "decibel": features.LogMel(
        sample_rate=16000, n_mels=40, compression=features.Decibel(reference="max"),
        normalization=features.MinMax(),
    ),
    "MFCC": features.MFCC(sample_rate=16000, n_fft=400, hop_length=160, n_mels=40, n_mfcc=13, lifter=22.0),
    "fbank": features.Fbank(n_mels=40, n_frames=120, fill="minimum", dtype="float16"),
}  # fmt: skip


def front_ends(inputs: Inputs) -> Cases:
    """Each front end and preset over real recordings, with and without augmentation."""
    clip: Keywords = {"clip_seconds": 1.0, "seed": 11, "shuffle_min_size": 0, "outputs": ["start"]}
    presets = {f"preset {name}": name for name in features.presets()}
    for name, front_end in {**FRONT_ENDS, **presets}.items():
        for is_on in (True, False):
            given = {**clip, "features": front_end, "augment": is_on}
            case = partial(clips, lambda: inputs.pinned.recordings, "", 1, **given)
            yield f"features: {name}, augment={is_on}", case


def cropped(inputs: Inputs) -> Cases:
    """Each crop; windows by order and number of ranks."""
    kinds: dict[str, Any] = {}
    for pad in ("behind", "front", "both", "random", "repeat", "noise"):
        padded: Keywords = {"pad": pad, "noise_db": -40.0 if pad == "noise" else None}
        kinds |= {f"random, {pad}": crops.Random(**padded), f"center, {pad}": crops.Center(**padded)}
    kinds |= {
        "start": crops.Start(), "end": crops.End(), "not silent": crops.Random(silence_db=-30.0, redraws=2),
        "loudest": crops.Loudest(3), "views": crops.Views(2),
        "views of the loudest": crops.Views(3, crops.Loudest(2)),
        "events": crops.Events("spans", 0.02), "inside": crops.Inside("spans"),
    }  # fmt: skip
    given: Keywords = {"order": "global", "outputs": ["start", "valid_samples", "valid_frames"]}
    for name, crop in kinds.items():
        for form in ("parquet", "jsonl"):
            yield f"crop: {name}, {form}", inputs.tiny(form, crop=crop, **given)
    ends: tuple[Any, ...] = ("pad", "drop", "shift", "remainder")
    windows = {end: crops.Windows(0.007, end=end) for end in ends}
    windows["context"] = crops.Windows(0.006, context=0.002)
    for name, crop in windows.items():
        for form, order, world in product(("zstd", "csv"), ORDERS, WORLDS):
            case = inputs.tiny(form, world, crop=crop, order=order, outputs=["window", "start"])
            yield f"crop: windows, {name}, {form}, {order}, ranks={world}", case


def targeted(inputs: Inputs) -> Cases:
    """Each target from each source that has its column."""
    listed = ("stream", "parquet", "plain", "jsonl", "tar")
    flat = ("csv", "segments", "rows")
    both = (*listed, *flat)
    birds = targets.MultiHot("several", classes=BIRDS, smoothing=0.1, secondary="bird")
    number = targets.Number("index_in_table", dtype="uint8")
    kinds: dict[str, tuple[Any, tuple[str, ...]]] = {
        "class index": (targets.ClassIndex("label", null=7), both),
        "classes of the data": (targets.ClassIndex("bird", classes="data"), both),
        "multi-hot": ({"birds": birds}, listed),
        "split text": (targets.MultiHot("several", classes=BIRDS, separator=","), flat),
        "soft": ({"votes": targets.Soft("votes", size=6, null="zeros", dtype="float64")}, listed),
        "numbers": ({"x": targets.Number("x", null=0.0), "n": number}, both),
        "text": ({"text": targets.Text("text")}, both),
    }
    for name, (target, forms) in kinds.items():
        for form in forms:
            yield f"targets: {name}, {form}", inputs.tiny(form, order="era", targets=target)
    events = [(f"audio/{i}.wav", i % 5 / 500, i % 5 / 500 + 0.004 * (i % 4), BIRDS[i % 3]) for i in range(N)]
    for value in ("presence", "share"):
        target = targets.Annotations(events, value=value)
        case = inputs.tiny("csv", crop=crops.Windows(0.007), order="global", targets={"events": target})
        yield f"targets: annotations, {value}", case
    for name, speakers in (("classes", None), ("speakers", 2)):
        target = targets.Frames(events, step=0.001, duration=0.0015, speakers=speakers)
        steps = [augment.Speed((0.9, 1.1)), augment.Roll(), augment.Mix(weight=0.5, targets="union")]
        case = inputs.tiny("csv", order="global", targets={"events": target}, augment=steps, clip_seconds=0.007)
        yield f"targets: frames, {name}", case


def steps() -> dict[str, Any]:
    """Steps of augmentation that need no other row."""
    return {
        "gain": augment.Gain((-6, 6)), "polarity": augment.Polarity(), "roll": augment.Roll(p=0.5),
        "clip": augment.Clip(), "noise": augment.Noise((0, 20), slope_db=(-6, 6), level="active"),
        "filter": augment.Filter("peak", (100, 3000), n=2),
        "lowpass": augment.Filter("lowpass", 1000.0, p=0.5),
        "speed": augment.Speed((0.5, 1.0, 1.1)), "reverb": augment.Reverb(FORMATS / "loop.wav"),
        "python": augment.Python(lambda samples, seed: samples * np.float32(1 + seed % 3), p=0.5),
        "mix of a file": augment.Mix(FORMATS / "s16.flac", snr_db=(-3, 9), most=2),
    }  # fmt: skip


SPEECH: dict[str, Any] = {
    "dither": augment.Dither(), "drop freq": augment.DropFreq(), "gain by a factor": augment.Gain(factor=(0.125, 2)),
    "drop chunk": augment.DropChunk((0.5, 2), noise_factor=(0, 1)),
    "level": augment.Level((-35, -15)), "loudness": augment.Level((-35, -15), measure="lufs", peak=0.9),
    "one of": augment.OneOf([augment.Gain(6), augment.Clip(-12)], weights=[1, 2], p=0.8),
}  # fmt: skip
ON_FRAMES = {"specaugment": augment.SpecAugment(3, 2, 0.3, 2), "frame roll": augment.FrameRoll(p=0.5)}
WARP = {"warp": augment.SpecAugment(3, 2, 0.3, 2, warp=2)}
PARTNERS: dict[str, Any] = {
    "mix": augment.Mix(snr_db=(-3, 9), most=2, near=6),
    "mix of a class": augment.Mix(weight=(0.1, 0.9), near=6, same_class="bird", targets="mix", p=0.7),
    "mixup": augment.Mixup(), "cutmix": augment.CutMix(p=0.5), "cutmix of boxes": augment.CutMix(part="box"),
}  # fmt: skip


def augmented(inputs: Inputs) -> Cases:
    """Each step, on waveforms and log-mels; steps that read other rows by order and number of ranks."""
    without = dict.fromkeys(("n_mels", "n_fft", "hop_length", "sample_rate"))
    wave: Keywords = {**without, "features": features.Waveform(sample_rate=RATE)}
    birds: Keywords = {"targets": targets.MultiHot("several", classes=BIRDS)}
    for name, step in {**steps(), **SPEECH}.items():
        for kind, given in (("waveform", wave), ("log-mel", {})):
            yield f"augment: {name}, {kind}", inputs.tiny("parquet", order="global", augment=[step], **given)
    for name, step in {**ON_FRAMES, **WARP}.items():
        yield f"augment: {name}", inputs.tiny("parquet", order="global", augment=[step])
    every = [augment.Mix(snr_db=3.0, near=6), *steps().values(), *ON_FRAMES.values(), augment.Mixup()]
    yield "augment: all steps", inputs.tiny("parquet", order="era", augment=every, **birds)
    for name, step in PARTNERS.items():
        for order, world in product(ORDERS, WORLDS[:2]):
            case = inputs.tiny("parquet", world, order=order, augment=[step], **birds)
            yield f"augment: {name}, {order}, ranks={world}", case


def sampled(inputs: Inputs) -> Cases:
    """Each choice of rows by order and number of ranks."""
    kinds: dict[str, Keywords] = {
        "n_samples": {"n_samples": 20},
        "excluded": {"exclude": [*range(16, 25)]},
        "subset": {"sampling": sampling.Subset([*range(3, N, 2)])},
        "where": {"sampling": sampling.Where("x", minimum=3.0)},
        "weights": {"sampling": sampling.Weighted("weight")},
        "given weights": {"sampling": sampling.Weighted([1.0 + row % 3 for row in range(N)], epoch_size=70)},
        "balanced": {"sampling": sampling.Balanced("bird", -0.5, epoch_size=50)},
        "at most": {"sampling": sampling.AtMost(8, "bird")},
    }
    for name, given in kinds.items():
        for order, world in product(ORDERS, WORLDS[:2]):
            case = inputs.tiny("plain", world, order=order, **given)
            yield f"sampling: {name}, {order}, ranks={world}", case


def packed(shards: Path, world: int, sha: Sha, **given: Any) -> None:
    """Adds two epochs of a `TokenLoader`, for each rank."""
    given = {"infinite": False, **given}
    for rank in range(world):
        each = {"batch_size": EVERY // world, "rank": rank, "world_size": world, "n_streams": 6, **sha.few()}
        sha.epochs(documents.loader(shards, **given, **each), 9 if given["infinite"] else None)


def encoded(file: Path, sha: Sha) -> None:
    """Adds the ids of documents, not packed."""
    texts = [documents.document(number) for number in range(300)]
    ids = Tokenizer(file).encode_batch(texts, sha.rng.choice([1, 3]))
    sha.add({"ids": each} for each in ids)


def tokens(inputs: Inputs) -> Cases:
    """Packing, extras and tokenizers by number of ranks."""
    kinds: dict[str, Keywords] = {
        "in order": {},
        "shuffled": {"seed": 5, "shuffle_min_size": 30},
        "infinite": {"seed": 5, "infinite": True},
        "extras": {"extras": ["doc_ids", "position_ids", "cu_seqlens", "documents"], "dtype": "int32"},
        "excluded": {"exclude": [*range(20, 60)], "eos_id": 257},
    }
    for crop, (name, given), world in product(("drop", "carry"), kinds.items(), WORLDS):
        case = partial(packed, inputs.pinned.texts, world, crop=crop, **given)
        yield f"tokens: bytes, {crop}, {name}, ranks={world}", case
    for file in (TESTS / "data" / "tokens" / name for name in ("gpt2.tiktoken", "tokenizer.json")):
        for world in WORLDS:
            case = partial(packed, documents.GOLDEN, world, tokenizer=file, bos_id=None, seq_len=255)
            yield f"tokens: {file.name}, ranks={world}", case
        yield f"tokens: {file.name}, not packed", partial(encoded, file)


class Stored:
    """Caches, and datasets over them."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def built(self, name: str, sha: Sha, shards: Any, processor: Any, **given: Any) -> cache.CacheDataset:
        """A cache, which is built when it is first needed."""
        folder = self.inputs.folder / f"cache {name}"
        if not folder.exists():
            cache.build(shards, processor, folder, n_workers=sha.rng.choice([1, 3]), **given)
        return cache.CacheDataset(folder)

    def numbers(self, sha: Sha, order: str = "concat", compression: str = "none") -> cache.CacheDataset:
        """A cache of ids and matrices."""
        given: Keywords = {"order": order, "compression": compression, "batch_size": 4}
        return self.built(f"{order} {compression}", sha, caches.unequal(), caches.Number(), **given)

    def mixture(self, sha: Sha) -> cache.MixtureDataset:
        pair = {"a": cache.PermutationDataset(self.numbers(sha), 3), "b": self.numbers(sha, "round_robin")}
        return cache.MixtureDataset(pair, {"a": 0.5, "b": 0.25}, 12, 5)

    def batches(self, make: Callable[[Sha], Any], world: int, n_batches: int, sha: Sha) -> None:
        """Adds batches of a `DataLoader`, for each rank."""
        made = make(sha)
        for rank in range(world):
            each = {"batch_size": EVERY // world, "rank": rank, "world_size": world, **sha.few()}
            sha.epochs(cache.DataLoader(made, **each), n_batches)

    def accessed(self, make: Callable[[Sha], Any], sha: Sha) -> None:
        """Adds some rows by number, the same row twice."""
        made = make(sha)
        for row in made.get_batch([*range(len(made) - 1, -1, -3), 5, 5]):
            nested = row.pop("prompt", {})
            sha.add([{name: np.asarray(value) for name, value in {**row, **nested}.items()}])

    def windows(self, sha: Sha) -> Any:
        """Windows of the ids of texts."""
        texts = sorted(str(file) for file in self.inputs.pinned.texts.glob("*.parquet"))
        tokenizer = Tokenizer(documents.RANKS)
        return cache.TokenSeqDataset(self.built("tokens", sha, texts, cache.Tokenize(tokenizer)), 64)

    def features(self, name: str, sha: Sha) -> cache.CacheDataset:
        shards = [str(path) for path in self.inputs.pinned.recordings]
        return self.built(name, sha, shards, cache.Features(FRONT_ENDS[name]))


def stored(inputs: Inputs) -> Cases:
    """Caches of documents, ids and features, datasets over them: by number of ranks, and random access."""
    made = Stored(inputs)
    ids: Keywords = {"field": "prompt/input_ids"}
    kinds: dict[str, Callable[[Sha], Any]] = {
        f"{order}, {compression}": partial(made.numbers, order=order, compression=compression)
        for order, compression in product(("round_robin", "concat"), ("none", "zstd"))
    }
    kinds |= {
        "permutation": lambda sha: cache.PermutationDataset(made.numbers(sha), 3),
        "eras": lambda sha: cache.EraShufflingDataset(made.numbers(sha), 16, 3),
        "weights": lambda sha: cache.WeightedDataset(made.numbers(sha), [1.0 + i % 3 for i in range(107)], 3),
        "windows": lambda sha: cache.TokenSeqDataset(made.numbers(sha), 12, doc_ids=True, **ids),
        "int64": lambda sha: cache.PermutationDataset(
            cache.TokenSeqDataset(made.numbers(sha), 31, dtype="int64", **ids), 3
        ),
        "tokens of texts": made.windows,
    }
    for name, make in kinds.items():
        yield f"cache: {name}, random access", partial(made.accessed, make)
        for world in WORLDS:
            yield f"cache: {name}, ranks={world}", partial(made.batches, make, world, 18)
    for world in WORLDS:
        yield f"cache: mixture, ranks={world}", partial(made.batches, made.mixture, world, 18)
    for name in ("log-mel, time first", "PCEN", "waveform, int16"):
        yield f"cache: features, {name}", partial(made.accessed, partial(made.features, name))


def rows(inputs: Inputs, form: str, sha: Sha, **given: Any) -> None:
    """Adds batches of any rows of an `AudioDataset`, with and without starts, and whole recordings."""
    given |= {"crop": crops.Random(), "columns": sorted(passed_through(form)), "outputs": ["start"]}
    n_threads = sha.rng.choice([1, 2, 4])
    with forebay.AudioDataset(inputs.source(form, "none"), n_threads=n_threads, **given) as dataset:
        some = np.random.default_rng(3).integers(0, N, 30)
        starts = dataset.get_batch(some[:4], [0.0, 0.001, None, 0.003])
        sha.add([dataset.get_batch(some), starts, dataset[3:9]])
        sha.add({"samples": dataset.waveform(row)[0]} for row in (0, 5, N - 1))
        sha.data([dataset.info(row) for row in (0, 3)])


def accessed(inputs: Inputs) -> Cases:
    """Random access to each kind of source."""
    wave: Keywords = {"features": features.Waveform(sample_rate=RATE), "clip_seconds": 0.02}
    for form, (name, given) in product(FORMS, {"log-mel": TINY, "waveform": wave}.items()):
        yield f"access: {form}, {name}", partial(rows, inputs, form, **given)


PARTS = (recordings, sources, front_ends, cropped, targeted, augmented, sampled, tokens, stored, accessed)


def play(only: str, seed: int) -> tuple[dict[str, Any], bool]:
    """The digests of all configurations whose names contain `only`, and whether all could be played."""
    found: dict[str, str] = {}
    is_complete = True
    logging.getLogger("forebay").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/home"
        inputs = Inputs(Path(folder))
        for part in PARTS:
            begin, before = time.monotonic(), len(found)
            for name, case in part(inputs):
                if only in name:
                    sha = Sha(Random(f"{seed} {name}"))
                    try:
                        case(sha)
                        # Only a recording that cannot be decoded has no batch.
                        assert sha.n_batches or name.startswith("format: "), "no batch"
                    except Exception as error:
                        print(f"left out: {name}: {type(error).__name__}: {error}", file=sys.stderr)
                        is_complete = False
                    else:
                        found[name] = sha.sha.hexdigest()
            taken = time.monotonic() - begin
            print(f"{part.__name__}: {len(found) - before} configurations in {taken:.0f} s", file=sys.stderr)
    versions = {name: version(name) for name in ("forebay", *LIBRARIES)}
    versions["libsndfile"] = soundfile.__libsndfile_version__
    result = {"seed": seed, "machine": pinned.machine(), "versions": versions, "digests": found}
    return result, is_complete


def compare(before: Path, after: Path) -> int:
    """Prints the configurations whose digests differ, or that only one file has; 1 if there are any."""
    one, other = (json.loads(path.read_text()) for path in (before, after))
    a, b = one["digests"], other["digests"]
    lines = [f"differs: {name}" for name in a if name in b and a[name] != b[name]]
    lines += [f"only before: {name}" for name in a if name not in b]
    lines += [f"only after: {name}" for name in b if name not in a]
    print("\n".join([*lines, f"{len(a.keys() | b)} configurations, {len(lines)} differences"]))
    for name in ("machine", "versions"):
        if lines and one[name] != other[name]:
            print(f"{name}: {one[name]} before, {other[name]} after, which may be the reason")
    return bool(lines)


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, help="a JSON file for the digests")
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose names contain TEXT")
    parser.add_argument("--seed", type=int, help="of the numbers of threads; default: another one each run")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="files of two runs")
    given = parser.parse_args()
    if given.compare:
        return compare(*given.compare)
    found, is_complete = play(given.only, Random().randrange(2**32) if given.seed is None else given.seed)
    for name, value in found["digests"].items():
        print(f"{value[:16]}  {name}")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return not is_complete


if __name__ == "__main__":
    sys.exit(main())
