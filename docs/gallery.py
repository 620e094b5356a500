"""Writes docs/gallery.md and the pictures and sounds in docs/gallery: what forebay makes of three recordings.

Needs the installed package, soundfile and Pillow. Runs from any folder: `python docs/gallery.py` writes everything,
`--check` makes all batches and compares the page and the names of the files, since encoders differ between versions.

Each picture is of a batch of a loader with the code above it. A new class of `forebay.augment` or
`forebay.features` needs an entry here; a test says so.
"""

import csv
import html
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
from numpy.typing import NDArray
from PIL import Image

import forebay
from forebay import _pictures, augment, batching, crops, features
from forebay.text import Ids

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/gallery.md"
FOLDER = ROOT / "docs/gallery"
IS_CHECK = "--check" in sys.argv[1:]
RECORDINGS = ROOT / "tests/data/recordings"
DIGITS = ROOT / "tests/data/digits"
CLIPS = {"bird": "21100_36_48.flac", "speech": "jfk.mp3", "music": "loop_electric.flac"}
"""The three recordings, by the names that they have here."""
OTHER = "S4A03895_20190522_060000.ogg"
"""The recording that is mixed in."""
RATE, HEARD_HZ, SECONDS = 32_000, 24_000, 2.4
LOG_MEL = features.LogMel(sample_rate=RATE, n_mels=96)
WAVE_ROWS, COLUMNS, SHADES = 24, 240, 40
"""Rows of pixels of the waveform above a spectrogram, columns, and the number of colors of a spectrogram."""
QUALITY = 0.8
"""The compression of the sounds, 0 to 1."""
GRAY, PADDING = (235, 235, 238), (205, 205, 210)
PARTS = ((60, 130, 190), (225, 120, 40), (110, 160, 60), (150, 90, 170), (190, 60, 90), (90, 160, 170))
"""Colors of rows, or of documents, one after the other."""


def echo(samples: NDArray[np.float32], seed: int) -> NDArray[np.float32]:  # noqa: ARG001
    """An echo after 200 ms."""
    delay = int(0.2 * RATE)
    samples[:, delay:] += 0.6 * samples[:, :-delay].copy()
    return samples


@dataclass
class Entry:
    """A part with its pictures."""

    code: str
    text: str
    kind: str = "waveform"
    """What it changes: `waveform`, `features`, `pairs`, `fields`, `beside` (fields of its own), or `front end`."""

    @property
    def name(self) -> str:
        """The beginning of the names of its files."""
        return re.sub(r"[^a-z0-9]+", "-", self.code.lower()).strip("-")[:48].rstrip("-")

    def made(self) -> Any:
        """The object, or a list of them."""
        names = {name: getattr(module, name) for module in (augment, features) for name in module.__all__}
        return eval(self.code, names | {"echo": echo})


AUGMENT = [
    Entry("Gain(-12)", "changes the level."),
    Entry("Level(-30)", "brings all clips to one level, here an RMS of -30 dB."),
    Entry("Polarity(p=1)", "inverts the sign: the waveform is upside down, the spectrogram the same."),
    Entry("Clip(-20)", "limits the samples, as an overloaded microphone does: overtones."),
    Entry("Noise(5)", "adds white noise, here 5 dB below the clip."),
    Entry("Noise(5, slope_db=-6)", "adds brown noise, as of wind and traffic."),
    Entry(
        "Dither(0.003)", "adds noise of a level of its own, whatever the clip's; this one is loud enough to be seen."
    ),
    Entry('Filter("lowpass", 1500)', "removes the high frequencies."),
    Entry('Filter("peak", (200, 8000), gain_db=(-24, 24), n=4)', "raises or lowers four random bands: an equaliser."),
    Entry("DropFreq(0.3, width=0.1, n=1)", "removes a band, here at 30 % of half the sample rate."),
    Entry("DropChunk((100, 300), n=2)", "replaces pieces of time by zeros."),
    Entry("Roll(0.3)", "moves the samples in time; what leaves at the end comes in at the start."),
    Entry("Speed(1.25)", "plays the recording faster: higher pitch, and a longer part of the recording."),
    Entry('Mix("other.ogg", snr_db=0)', "mixes another recording in: a soundscape, as loud as the clip."),
    Entry("Mix(weight=0.5)", "mixes another row of the same data set in."),
    Entry('Reverb("room.wav")', "puts the clip into a room, here noise that decays in 1.2 s."),
    Entry(
        "SwapChannels(p=1)",
        "exchanges left and right of recordings of two channels; these have one, so nothing changes.",
    ),
    Entry("OneOf([Gain(-20), Noise(0), Roll(0.5)])", "applies one of several steps, drawn for each example."),
    Entry("Python(echo)", "calls your own function, here an echo after 200 ms."),
    Entry("SpecAugment(20, 2, 40, 2)", "masks bands and frames of the features.", "features"),
    Entry('SpecAugment(20, 2, 40, 2, fill="silence")', "the same masks, with the features of silence.", "features"),
    Entry("SpecAugment(0, 0, 0, 0, warp=80)", "moves a point of time, so that one part is slower.", "features"),
    Entry("FrameRoll(0.3)", "moves the frames around.", "features"),
    Entry("Mixup(beta=1)", "mixes pairs of rows of a batch, and their targets.", "pairs"),
    Entry("CutMix()", "replaces a range of frames by that of the other row of the pair.", "pairs"),
    Entry('CutMix(part="box")', "the same with a box of bands and frames.", "pairs"),
    Entry(
        'Only("noisy", [Mix("other.ogg", snr_db=0)])',
        "changes one field of `audio=`. Above `noisy`, below `clean`: the input and the target of a model that removes "
        "noise.",
        "fields",
    ),
    Entry(
        'Mix("other.ogg", snr_db=0, parts=True)',
        "gives the parts beside the mixture. From above: the mixture, the clip, and what was mixed in.",
        "beside",
    ),
    Entry(
        'Reverb("room.wav", clean="dry")',
        "gives the dry clip beside the one in the room. Above in the room, below dry.",
        "beside",
    ),
    Entry(
        "Remix(group=2)",
        "exchanges the stems of rows. Above the stem `first` of each row, below `second`, which without this step is "
        "the speech, the music and the bird.",
        "fields",
    ),
]
FRONT_ENDS = [
    Entry("Waveform()", "the samples, for models with a front end of their own."),
    Entry("Spectrogram(n_fft=512, compression=Decibel(top_db=80))", "bins of equal width."),
    Entry("LogMel(compression=Ln())", "mel bands and the natural logarithm, the default of loaders."),
    Entry("LogMel(compression=Log10(range=8))", "limited to 8 decades below the loudest value, as Whisper's."),
    Entry("LogMel(compression=Decibel(top_db=80))", "decibels, limited to 80 dB below the loudest value."),
    Entry("LogMel(scale=2.0**15, compression=PCEN())", "constant noise is suppressed, onsets stand out."),
    Entry("LogMel(normalization=Standard(mean=-7.0, std=4.0))", "mean and deviation of a data set."),
    Entry("LogMel(normalization=MinMax())", "each example from 0 to 1."),
    Entry('LogMel(normalization=ZScore(per="band"))', "each band of an example has mean 0 and deviation 1."),
    Entry("Fbank()", "Kaldi's filter bank at 16 kHz, of speech recognisers."),
    Entry("MFCC(n_mfcc=20)", "cepstral coefficients."),
]


def loader(**changes: Any) -> forebay.Loader:
    """A loader of the three recordings and the first once more, from their starts."""
    given: dict[str, Any] = {
        "batch_size": 4, "clip_seconds": SECONDS, "crop": crops.Start(), "order": "sequential", "infinite": False,
        "shuffle_min_size": 0, "n_workers": 1, "seed": 6, "augment": False, "allow_paths": True, **changes,
    }  # fmt: skip
    rows = [{"path": f"{name}{Path(file).suffix}"} for name, file in CLIPS.items()]
    if "audio" in given:
        rows = [{"path": f"{one}.wav", "other": f"{two}.wav"} for one, two in pairwise([*CLIPS, next(iter(CLIPS))])]
    return forebay.Loader(forebay.Manifest([*rows, rows[0]], root="."), **given)


def first(steps: Sequence[Any] | bool, front_end: Any, **changes: Any) -> dict[str, Any]:
    """The batch of a loader with these parts."""
    with loader(augment=steps, features=front_end, **changes) as opened:
        return dict(next(opened))


def levels(values: NDArray[np.float32], low: float, high: float) -> NDArray[np.float32]:
    """A spectrogram `[bands, frames]` as values in 0 to 1, low frequencies at the bottom, with `COLUMNS` columns."""
    scaled = ((np.nan_to_num(values) - low) / max(high - low, 1e-6)).clip(0, 1)
    columns = (np.arange(COLUMNS) * scaled.shape[1] / COLUMNS).astype(int)
    bands = scaled.shape[0]
    tall = max(1, 64 // bands)  # few coefficients are taller
    rows = (np.arange(min(bands, 128)) * bands / min(bands, 128)).astype(int)
    return np.repeat(scaled[rows][::-1, columns], tall, axis=0)


def wave(samples: NDArray[np.float32], rows: int, loudest: float) -> NDArray[np.uint8]:
    """A picture of a waveform, from the lowest to the highest sample of each column."""
    edges = np.linspace(0, samples.size, COLUMNS + 1).astype(int)[:-1]
    top = np.maximum.reduceat(samples, edges) / loudest
    bottom = np.minimum.reduceat(samples, edges) / loudest
    height = 1 - 2 * (np.arange(rows)[:, None] + 0.5) / rows
    is_in = (height <= top + 1 / rows) & (height >= bottom - 1 / rows)
    pixels = np.full((rows, COLUMNS, 3), 255, np.uint8)
    pixels[is_in] = _pictures.WAVE
    return pixels


def picture(spectrogram: NDArray[np.float32], samples: NDArray[np.float32] | None, loudest: float) -> NDArray[np.uint8]:
    """The waveform, if there is one, above the spectrogram of levels."""
    colors = _pictures.colored(np.round(spectrogram * (SHADES - 1)) / (SHADES - 1))
    return colors if samples is None else np.concatenate([wave(samples, WAVE_ROWS, loudest), colors])


def save(name: str, pixels: NDArray[np.uint8]) -> str:
    """Writes a PNG file with a table of colors; returns its name."""
    if IS_CHECK:
        (FOLDER / f"{name}.png").touch()
        return f"{name}.png"
    Image.fromarray(pixels).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(
        FOLDER / f"{name}.png", optimize=True
    )
    return f"{name}.png"


def sound(name: str, samples: NDArray[np.float32]) -> str:
    """Writes an Ogg Vorbis file; returns its name."""
    if IS_CHECK:
        (FOLDER / f"{name}.ogg").touch()
        return f"{name}.ogg"
    with soundfile.SoundFile(
        FOLDER / f"{name}.ogg", "w", HEARD_HZ, 1, format="OGG", subtype="VORBIS", compression_level=QUALITY
    ) as file:
        file.write(samples.clip(-1, 1))
    return f"{name}.ogg"


def figure(image: str, caption: str, alt: str, heard: str | None = None, code: str = "") -> str:
    """The HTML of a picture with its player; without players, as on a page of a repository, there is a link."""
    player = ""
    if heard is not None:
        link = f'<a href="gallery/{heard}">listen</a>'
        player = f'<audio controls preload="none" src="gallery/{heard}">{link}</audio>'
    shown = f"<code>{html.escape(code)}</code> {html.escape(caption)}" if code else html.escape(caption)
    return (
        f'<figure><img alt="{html.escape(alt, quote=True)}" src="gallery/{image}" loading="lazy">{player}'
        f"<figcaption>{shown}</figcaption></figure>"
    )


def grid(figures: Sequence[str]) -> str:
    """Pictures side by side."""
    return '<div class="gallery">\n' + "\n".join(figures) + "\n</div>"


class Scale:
    """The colors and levels that all pictures of augmentation share: those of the recordings as they are."""

    def __init__(self) -> None:
        plain = first(False, LOG_MEL)["spectrogram"][:3]
        self.lows = [float(np.percentile(one, 20)) for one in plain]
        self.highs = [float(np.percentile(one, 99.8)) for one in plain]
        heard = first(False, features.Waveform(sample_rate=HEARD_HZ))["waveform"][:3]
        self.loudest = [float(np.abs(one).max()) for one in heard]

    def levels(self, values: NDArray[np.float32], clip: int) -> NDArray[np.float32]:
        """The levels of a spectrogram of a clip, by number."""
        return levels(values, self.lows[clip], self.highs[clip])


def augmented(entry: Entry, scale: Scale) -> list[str]:
    """The figures of a step."""
    steps = [] if not entry.code else [entry.made()]
    name = entry.name or "clip"
    found = []
    if entry.kind == "fields":
        given: dict[str, Any] = {"noisy": "path", "clean": "path"}
        if "Remix" in entry.code:
            given = {"first": "path", "second": "other"}
        both = first(steps, LOG_MEL, audio=given)
        for i, clip in enumerate(CLIPS):
            parts = [scale.levels(both[part][i], i) for part in given]
            pixels = _pictures.colored(np.concatenate([parts[0], np.ones((3, COLUMNS), np.float32), parts[1]]))
            found.append(figure(save(f"{name}-{clip}", pixels), clip, f"{entry.code} on two fields of {clip}"))
        return found
    batch = first(steps, LOG_MEL)
    shown = batch["spectrogram"]
    if entry.kind == "beside":
        line = np.ones((3, COLUMNS), np.float32)
        for i, clip in enumerate(CLIPS):
            beside = batch["parts"][i] if "parts" in batch else batch["clean"][i][None]
            pieces = [piece for part in beside for piece in (line, scale.levels(part, i))]
            pixels = _pictures.colored(np.concatenate([scale.levels(shown[i], i), *pieces]))
            found.append(figure(save(f"{name}-{clip}", pixels), clip, f"{entry.code} on {clip}, with its fields"))
        return found
    heard = None
    if entry.kind == "waveform":
        heard = first(steps, features.Waveform(sample_rate=HEARD_HZ))["waveform"]
    for i, clip in enumerate(CLIPS):
        samples = None if heard is None else heard[i]
        image = save(f"{name}-{clip}", picture(scale.levels(shown[i], i), samples, scale.loudest[i]))
        player = None if samples is None else sound(f"{name}-{clip}", samples)
        found.append(figure(image, clip, f"{entry.code or 'the recording'}: {clip}", player))
    return found


def by_front_end(name: str, code: str, front_end: Any, clips: Sequence[int]) -> Iterator[str]:
    """The figures of a front end on these clips."""
    batch = first(False, front_end)
    for i in clips:
        clip = list(CLIPS)[i]
        if "waveform" in batch:
            samples = np.asarray(batch["waveform"][i], np.float32)
            pixels, shape = wave(samples, 96, float(np.abs(samples).max())), samples.shape
        else:
            values = np.asarray(batch["spectrogram"][i], np.float32)
            shape = values.shape
            if front_end.layout == "time":
                values = values.T
            ends = (5, 95) if isinstance(front_end, features.MFCC) else (2, 99.8)
            pixels = picture(levels(values, *np.percentile(values, ends).tolist()), None, 1.0)
        axes = " x ".join(map(str, shape))
        caption = f"{clip}: {axes}" if len(clips) > 1 else f"{name}: {axes}, {front_end.sample_rate} Hz"
        yield figure(save(f"{name}-{clip}", pixels), caption, f"{code} of {clip}")


def share(value: float) -> str:
    """A share in percent."""
    return f"{value:.0%}".replace("%", " %")


def bars(rows: Sequence[tuple[int, int]], longest: int) -> NDArray[np.uint8]:
    """A batch as rows, each valid up to a length and padded up to another, on a scale of `longest`."""
    high, gap, width = 7, 2, 320
    pixels = np.full((len(rows) * (high + gap), width, 3), 255, np.uint8)
    for i, (valid, padded) in enumerate(rows):
        top = i * (high + gap)
        pixels[top : top + high, : round(width * padded / longest)] = PADDING
        pixels[top : top + high, : round(width * valid / longest)] = PARTS[0]
    return pixels


def stacked(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Pictures of batches, one above the other."""
    gap = np.full((10, pictures[0].shape[1], 3), 255, np.uint8)
    return np.concatenate([part for one in pictures for part in (one, gap)][:-1])


BATCHES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fixed": (
        "clip_seconds=0.6, batch_size=8",
        "every row has the same length: longer recordings are cropped, shorter ones padded",
        {"batch_size": 8, "clip_seconds": 0.6, "crop": crops.Start()},
    ),
    "padded": (
        "crop=Whole(), batch_size=8",
        "whole recordings, each padded to the longest of its batch",
        {"batch_size": 8, "crop": crops.Whole()},
    ),
    "buckets": (
        "crop=Whole(), batching=Buckets(max_duration=4, num_buckets=4)",
        "recordings of about the same length together, as many as fit in 4 s with their padding",
        {"crop": crops.Whole(), "batching": batching.Buckets(max_duration=4, num_buckets=4)},
    ),
    "packed": (
        "crop=Whole(), batching=Buckets(max_duration=4, num_buckets=4, packed=True)",
        "the same, one recording after the other; each color is one",
        {"crop": crops.Whole(), "batching": batching.Buckets(max_duration=4, num_buckets=4, packed=True)},
    ),
}
"""The rules of batches of recordings, by name: code, sentence, parameters."""


def batches(name: str) -> str:
    """The figure of a rule of batches: its first three batches of the 64 spoken digits, and the padding of all."""
    code, text, parameters = BATCHES[name]
    front_end = features.Waveform(sample_rate=8000)
    given = {"infinite": False, "augment": False, "seed": 1, "n_workers": 1, "outputs": ["valid_samples"], **parameters}
    shown, places, valid = [], 0, 0
    with forebay.Loader(DIGITS, features=front_end, **given) as opened:
        for batch in opened:
            lengths = batch["valid_samples"].tolist()
            places += batch["waveform"].size
            valid += sum(lengths)
            if len(shown) == 3:
                continue
            if "offsets" in batch:
                colors = np.array([PARTS[i % len(PARTS)] for i in range(len(lengths))], np.uint8)
                shown.append(row_of(np.repeat(colors, lengths, axis=0), 4 * 8000))
            else:
                shown.append(bars([(length, batch["waveform"].shape[1]) for length in lengths], 8000))
    caption = f"{text}. {share(1 - valid / places)} of all samples are padding."
    return figure(save(f"batches-{name}", stacked(shown)), caption, f"three batches, {name}", code=code)


def row_of(colors: NDArray[np.uint8], longest: int, high: int = 7) -> NDArray[np.uint8]:
    """A row of the colors of its places `[n, 3]`, on a scale of `longest`, with a gap below."""
    width = 320
    columns = np.arange(width) * longest // width
    columns = columns[columns < len(colors)]
    pixels = np.full((high + 2, width, 3), 255, np.uint8)
    pixels[:high, : columns.size] = colors[columns]
    return pixels


FITS = {
    "drop": "A document that does not fit is cropped, and its rest is dropped",
    "carry": "A document that does not fit is cropped, and its rest is a document of a later row",
    "pad": "No document is cropped: where none fits, the row is padded",
}
"""The rules of packed tokens."""
WHOLE, CROPPED, REST = ((60, 130, 190), (120, 170, 215)), (225, 120, 40), (110, 160, 60)
"""Colors of whole documents, in turn, of the start of a cropped one, and of the rest of one."""


def packed(fit: str) -> str:
    """The figure of a rule of packing: rows of documents of random lengths, and what a pass drops and pads."""
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(3.8, 0.8, 600).clip(4, 110).astype(int)
    documents = [rng.integers(1, 100, length).tolist() for length in lengths]
    pq.write_table(pa.table({"ids": documents}), f"{fit}.parquet", row_group_size=50)
    source = Ids(f"{fit}.parquet", column="ids")
    with forebay.TokenLoader(
        source, bos_id=0, batch_size=16, seq_len=128, val=[], fit=fit, extras=["documents"], buffer_size=8,
        infinite=False, n_workers=1,
    ) as opened:  # fmt: skip
        every = list(opened)
        counts = opened.stats()["packing"]
    batch = every[2]
    colors = np.full((16, 128, 3), PADDING, np.uint8)
    parts = batch["documents"]
    for n, (row, begin, _, group, at, token) in enumerate(parts):
        end = parts[n + 1][1] if n + 1 < len(parts) and parts[n + 1][0] == row else 128
        is_input = batch["targets"][row, begin:end] != -100
        has_all = token + end - begin > lengths[50 * group + at]
        color = REST if token > 1 else WHOLE[n % 2] if has_all or fit == "pad" else CROPPED
        colors[row, begin : begin + int(is_input.sum()) + int(fit == "pad" and not is_input.all())] = color
    total = counts["delivered"] + counts["dropped"]
    caption = f"{FITS[fit]}. In a pass {share(counts['dropped'] / total)} of the tokens are dropped"
    caption += f", and {share(counts['padded'] / (counts['padded'] + counts['delivered']))} of the places are padding."
    image = save(f"tokens-{fit}", np.concatenate([row_of(row, 128) for row in colors]))
    return figure(image, caption, f"16 rows of tokens, {fit}", code=f'fit="{fit}"')


ORDERS: dict[str, tuple[str, dict[str, Any]]] = {
    'order="sequential"': ("as stored, for evaluation", {"order": "sequential"}),
    'order="window", shuffle_min_size=200': (
        "drawn from a window that moves on: for shards that are read from start to end",
        {"order": "window", "shuffle_min_size": 200},
    ),
    'order="era", era_length=500': ("shuffled within eras", {"order": "era", "era_length": 500}),
    'order="global"': ("a permutation of all rows: for local files", {"order": "global"}),
}
"""The orders: code, sentence, parameters."""


def order(code: str) -> str:
    """The figure of an order: row in storage against position in training, of 2000 rows in 20 shards."""
    text, parameters = ORDERS[code]
    plan = forebay.Loader(
        sorted(map(str, Path("shards").glob("*.arrow"))), batch_size=20, infinite=False, seed=1, **parameters
    ).plan(2000)
    size = 240
    pixels = np.full((size, size, 3), 250, np.uint8)
    at = (np.arange(plan.size) * size // plan.size, size - 1 - plan * size // 2000)
    pixels[at[1], at[0]] = PARTS[0]
    pixels[np.maximum(at[1] - 1, 0), at[0]] = PARTS[0]
    return figure(save("order-" + parameters["order"], pixels), text, f"row against position, {code}", code=code)


def prepare() -> None:
    """Copies and makes the recordings and shards that the programs name, in the current folder."""
    for name, file in CLIPS.items():
        shutil.copy(RECORDINGS / file, f"{name}{Path(file).suffix}")
    with forebay.AudioDataset([str(RECORDINGS / file) for file in CLIPS.values()]) as recordings:
        for row, name in enumerate(CLIPS):
            samples, rate = recordings.waveform(row, seconds=SECONDS, sample_rate=RATE)
            whole = np.zeros(int(SECONDS * RATE), np.float32)
            whole[: samples.shape[-1]] = samples.mean(axis=0)[: whole.size]
            soundfile.write(f"{name}.wav", whole, rate)
    shutil.copy(RECORDINGS / OTHER, "other.ogg")
    time = np.arange(int(1.2 * RATE)) / RATE
    response = 0.03 * np.random.default_rng(1).normal(size=time.size) * 10 ** (-3 * time / 1.2)
    response[0] = 1
    soundfile.write("room.wav", response, RATE, subtype="FLOAT")
    Path("shards").mkdir()
    audio = pa.array([{"bytes": b"", "path": None}] * 100, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    table = pa.table({"audio": audio})
    for i in range(20):
        with pa.ipc.new_stream(f"shards/{i:02}.arrow", table.schema) as writer:
            writer.write_table(table)


def sources() -> Iterator[str]:
    """The table of the recordings, from the list of their origins."""
    with (RECORDINGS / "recordings.csv").open(newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    yield "| name | recording | origin | licence |\n|---|---|---|---|"
    for name, file in {**CLIPS, "other": OTHER}.items():
        row = rows[file]
        yield f"| {name} | {file} | {row['source']} | {row['licence']} |"


def page() -> Iterator[str]:
    """The parts of the page; writes the pictures and sounds."""
    scale = Scale()
    yield (
        "# Gallery\n\n"
        "What forebay makes of three recordings: [augmentation](#augmentation), [front ends](#front-ends), "
        "[presets](#presets-of-models), [batches](#batches), [packed tokens](#packed-tokens), [orders](#orders). "
        "`docs/gallery.py` makes this page: each picture is of a batch of a loader with the code above it."
    )
    yield "\n".join(sources())
    yield grid(augmented(Entry("", ""), scale))
    yield (
        "Each picture is of 2.4 s: the waveform, and 96 mel bands up to 16 kHz. All pictures of a recording have the "
        "same colors and levels, so louder is brighter."
    )
    yield (
        "## Augmentation\n\n[Augmentation](augmentation.md) has the parameters, what each step draws, and "
        "`augment=` of a loader."
    )
    titles = {
        "waveform": "### On waveforms",
        "features": "### On features",
        "pairs": "### Of pairs of rows\n\nThe pairs are bird and speech, and music and the bird once more.",
        "fields": "### Of several recordings of a row",
        "beside": "### With the parts or the clean clip beside it",
    }
    for kind, title in titles.items():
        yield title
        for entry in AUGMENT:
            if entry.kind == kind:
                yield f"**`{entry.code}`** {entry.text}"
                yield grid(augmented(entry, scale))
    yield (
        "## Front ends\n\nThe sizes are bands and frames of 2.4 s, or samples. Each picture has colors of its own. "
        "[Features](features.md) has the parameters."
    )
    for entry in FRONT_ENDS:
        yield f"**`{entry.code}`** {entry.text}"
        yield grid(list(by_front_end(entry.name, entry.code, entry.made(), range(3))))
    yield (
        '## Presets of models\n\n`features="whisper"` and the like: the inputs of published models, here of speech. '
        "[Features](features.md) has the source of each."
    )
    made = []
    for name in features.presets():
        front_end = features.preset(name)
        if getattr(front_end, "n_frames", None) is not None:
            front_end = replace(front_end, n_frames=None)  # not padded to the length that the model takes
        made += by_front_end(name, name, front_end, [1])
    yield grid(made)
    seconds = [soundfile.info(path).duration for path in DIGITS.glob("*.wav")]
    yield (
        f"## Batches\n\nThe first three batches of {len(seconds)} spoken digits of {min(seconds):.2f} to "
        f"{max(seconds):.2f} s; gray is padding. [Crops](crops.md) and [speech](speech.md) have the parameters."
    )
    yield grid([batches(name) for name in BATCHES])
    yield (
        "## Packed tokens\n\n16 rows of `TokenLoader(..., seq_len=128, fit=...)` with documents of 4 to 110 tokens. "
        "Blue are whole documents, orange the starts of cropped ones, green the rests of these, gray is padding. "
        "[Tokens](tokens.md#packing) has the rules."
    )
    yield grid([packed(fit) for fit in FITS])
    yield (
        "## Orders\n\nRow in storage, upwards, against position in training: 2000 rows in 20 shards. "
        "[How well rows are mixed](shuffle.md) has the figures."
    )
    yield grid([order(code) for code in ORDERS])


def main() -> int:
    """Writes the page and its files; with `--check` returns 1 if the page differs, and keeps all files."""
    global FOLDER  # noqa: PLW0603
    here = FOLDER
    with tempfile.TemporaryDirectory() as work:
        if IS_CHECK:
            FOLDER = Path(work) / "gallery"
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        with chdir(work):
            prepare()
            text = "\n\n".join(page()) + "\n"
        names = {path.name for path in FOLDER.iterdir()}
    if not IS_CHECK:
        PAGE.write_text(text)
        return 0
    if differ := names ^ {path.name for path in here.iterdir()}:
        sys.stdout.write(f"docs/gallery lacks these files, or has too many: {', '.join(sorted(differ))}\n")
    if is_changed := text != PAGE.read_text():
        sys.stdout.write("docs/gallery.md differs\n")
    return int(bool(differ) or is_changed)


if __name__ == "__main__":
    sys.exit(main())
