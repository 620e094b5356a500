"""Writes bundled recordings as Hugging Face shards, loads them for training and evaluation, and draws one batch.

    python examples/demo.py --picture demo.png

There are 19 recordings (tests/data/recordings, sources in recordings.csv), which the shards repeat. The files are
in the page cache, so the figures show decoding and features, not the disk.
"""

import argparse
import csv
import io
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Audio, ClassLabel, Features
from datasets.arrow_writer import ArrowWriter

import forebay

RECORDINGS = Path(__file__).parents[1] / "tests" / "data" / "recordings"
OURS = b"examples/demo.py of forebay"
"""The mark in pictures of this demo: a file without it is not overwritten."""
Batch = dict[str, np.ndarray]


def write_shards(folder: Path, n_shards: int, repeats: int) -> list[Path]:
    """Writes shards that hold every recording `repeats` times, in record batches of 16 rows."""
    with (RECORDINGS / "recordings.csv").open(newline="") as table:
        lines = list(csv.DictReader(table))
    classes = sorted({line["label"] for line in lines})
    features = Features({"audio": Audio(), "label": ClassLabel(names=classes)})
    shards = [folder / f"demo-{shard:05}-of-{n_shards:05}.arrow" for shard in range(n_shards)]
    for path in shards:
        with ArrowWriter(features=features, path=str(path), writer_batch_size=16) as writer:
            for line in lines * repeats:
                audio = {"bytes": (RECORDINGS / line["file"]).read_bytes(), "path": line["file"]}
                writer.write({"audio": audio, "label": classes.index(line["label"])})
            writer.finalize()
    return shards


def with_progress(batches: Iterable[Batch], total: int, name: str) -> Iterator[Batch]:
    """Yields the batches and shows a progress bar on a terminal, or one line at the end elsewhere."""
    width, start, examples = 30, time.perf_counter(), 0
    for done, batch in enumerate(batches, 1):
        examples += len(batch["index"])
        rate = examples / (time.perf_counter() - start)
        bar = "█" * (width * done // total) + "░" * (width - width * done // total)
        if sys.stderr.isatty() or done == total:
            end = "\r" if done < total else "\n"
            print(f"{name:>5} {bar} {done:>3}/{total} batches, {rate:6.0f} examples/s", end=end, file=sys.stderr)
        yield batch


@dataclass
class Result:
    """The measurements of one run."""

    name: str
    examples: int
    seconds: float
    first_batch_s: float
    peak_mb: float


def peak_mb() -> float:
    """The peak resident memory of this process, MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def run(name: str, loader: forebay.Loader, n_batches: int) -> tuple[Result, list[Batch]]:
    """Takes `n_batches`; the time starts after construction, since threads start with the first batch."""
    start = time.perf_counter()
    first = 0.0
    batches = []
    with loader:
        for batch in with_progress(itertools.islice(loader, n_batches), n_batches, name):
            first = first or time.perf_counter() - start
            batches.append(batch)
            if len(batches) > 2:  # a training loop drops a batch after its step
                batches[-2] = {"index": batches[-2]["index"]}
        seconds = time.perf_counter() - start
        for error in loader.errors():
            print("skipped:", error)
    examples = sum(len(batch["index"]) for batch in batches)
    return Result(name, examples, seconds, first, peak_mb()), batches


def print_table(results: list[Result]) -> None:
    """One line per run."""
    print(f"\n{'':>6} {'examples':>9} {'examples/s':>11} {'first batch':>12} {'peak memory':>12}")
    for result in results:
        rate = result.examples / result.seconds
        first = f"{1000 * result.first_batch_s:.0f} ms"
        print(f"{result.name:>6} {result.examples:>9} {rate:>11.0f} {first:>12} {result.peak_mb:>9.0f} MB")


def draw(path: Path, batch: Batch, class_names: list[str], *, rows: list[int], files: list[str]) -> None:
    """A grid of spectrograms: kHz upwards on the mel scale, seconds to the right, at most 80 dB from dark to light."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    sample_rate, clip_seconds = 32000, 5.0
    n_mels, n_frames = batch["spectrogram"].shape[1:]
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    khz = np.array([0.5, 1, 2, 4, 8, 16])
    bands = 2595 * np.log10(1 + khz * 1000 / 700) / top * (n_mels + 1) - 1  # the band with this centre frequency
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 8, "axes.edgecolor": "#8a8a99"})
    figure, axes = plt.subplots(
        3, 4, figsize=(13, 7.2), dpi=100, sharex=True, sharey=True, layout="constrained", facecolor="#101018"
    )
    for axis, row in zip(axes.flat, rows, strict=True):
        decibels = batch["spectrogram"][row] * (10 / np.log(10))
        heard = decibels[decibels > -90]  # without the zeros around a short recording
        high = np.percentile(heard, 99.9)
        axis.imshow(
            decibels,
            origin="lower",
            aspect="auto",
            cmap="magma",
            vmax=high,
            vmin=max(np.percentile(heard, 2), high - 80),
            extent=(0, clip_seconds, -0.5, n_mels - 0.5),
            interpolation="antialiased",
        )
        label = class_names[batch["label"][row]]
        axis.set_title(f"{label}  ·  {batch['index'][row]}", color="#f2f2f7", fontsize=10, loc="left")
        axis.set_title(files[row], color="#8a8a99", fontsize=7, loc="right")
        axis.set_yticks(bands, [f"{value:g}" for value in khz])
        axis.set_ylim(-0.5, n_mels - 0.5)
        axis.tick_params(colors="#b8b8c6", length=2)
        for spine in axis.spines.values():
            spine.set_linewidth(0.5)
    figure.supxlabel("time, s", color="#b8b8c6", fontsize=9)
    figure.supylabel("frequency, kHz", color="#b8b8c6", fontsize=9)
    figure.suptitle(
        f"rows of one batch: label · index  ({n_mels} mel bands x {n_frames} frames, 5 s at 32 kHz)",
        color="#f2f2f7",
        fontsize=11,
    )
    with io.BytesIO() as png:
        figure.savefig(png, facecolor=figure.get_facecolor())
        # 128 colours are enough for one colour map; the file has a third of the size.
        drawn = Image.open(png).convert("RGB").quantize(128, dither=Image.Dither.NONE)
        about = PngInfo()
        about.add_text("Software", OURS.decode())
        drawn.save(path, optimize=True, pnginfo=about)


def main() -> None:
    """Writes, loads, prints, draws."""
    parser = argparse.ArgumentParser(description="Load bundled recordings and draw their spectrograms.")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"))
    parser.add_argument("--batches", type=int, default=24, help="batches of the training run")
    arguments = parser.parse_args()
    if arguments.picture.exists() and OURS not in arguments.picture.read_bytes()[:4096]:
        parser.error(f"{arguments.picture} exists and was not drawn by this demo: name another file with --picture")
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), n_shards=4, repeats=4)
        size = sum(shard.stat().st_size for shard in shards) / 1e6
        train = forebay.Loader.train(shards)
        print(f"{len(shards)} shards, {train.num_records} rows (19 recordings, repeated), {size:.0f} MB\n")
        evaluation = forebay.Loader.eval(shards)
        class_names = list(evaluation.class_names or [])
        trained, _ = run("train", train, arguments.batches)
        evaluated, batches = run("eval", evaluation, len(evaluation))
    print_table([trained, evaluated])
    with (RECORDINGS / "recordings.csv").open(newline="") as table:
        files = [line["file"] for line in csv.DictReader(table)]
    draw(arguments.picture, batches[0], class_names, rows=[5, 0, 6, 7, 10, 17, 11, 12, 14, 15, 16, 18], files=files)
    print(f"\nThe first rows of the eval pass are drawn in {arguments.picture}.")


if __name__ == "__main__":
    main()
