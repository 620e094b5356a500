"""Draws docs/frames.png, docs/annotated.png and docs/stems.png.

They are labels on frames below their spectrogram, clips in annotated regions, and a mixture with its stems.

    python docs/plots/scenes.py

The recordings are those of the tests: two speakers, and a tabla, a choir and an electric loop that are mixed.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import soundfile
from numpy.typing import NDArray

import forebay
from forebay import crops, features, targets

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/data/recordings"
SECONDS = 4.0
MEL = features.LogMel(sample_rate=16_000, n_fft=512, hop_length=160, n_mels=64, f_min=50.0)


def turns(folder: Path) -> tuple[Path, Path]:
    """Two speakers, who talk at the same time once, and their table."""
    rate = 16_000
    samples = np.zeros(round(SECONDS * rate), np.float32)
    lines = []
    for name, start, speaker in (("237-134500-0002.flac", 0.2, "anna"), ("jfk.mp3", 2.0, "bert")):
        sound, given = soundfile.read(RECORDINGS / name, dtype="float32", always_2d=True)
        sound = np.interp(np.arange(len(sound) * rate // given) * given / rate, np.arange(len(sound)), sound[:, 0])
        sound = sound[: round(2.2 * rate) if speaker == "anna" else round(1.8 * rate)]
        first = round(start * rate)
        sound = sound[: len(samples) - first]
        samples[first : first + len(sound)] += 0.3 * sound / np.abs(sound).max()
        lines.append(f"SPEAKER scene 1 {start:.3f} {len(sound) / rate:.3f} <NA> <NA> {speaker} <NA> <NA>")
    soundfile.write(folder / "scene.wav", samples, rate)
    table = folder / "scene.rttm"
    table.write_text("\n".join(lines) + "\n")
    return folder / "scene.wav", table


def show(axis: Any, spectrogram: NDArray[np.float32]) -> None:
    """Draws the spectrogram of the whole scene."""
    low = float(np.percentile(spectrogram, 20))
    axis.imshow(spectrogram, origin="lower", aspect="auto", vmin=low, extent=(0, SECONDS, 0, MEL.n_mels))
    axis.set_ylabel("mel band")


def draw_frames(path: Path) -> None:
    """The spectrogram of two speakers, and their frames on its grid and on that of pyannote's model."""
    with tempfile.TemporaryDirectory() as folder:
        scene, table = turns(Path(folder))
        grids = {"the features' frames": {}, "step=0.25": {"step": 0.25}}
        frames = {name: targets.Frames(table, speakers=2, order="start", **grid) for name, grid in grids.items()}
        data = forebay.AudioDataset(
            forebay.Manifest([{"path": str(scene)}], root=folder), clip_seconds=SECONDS, features=MEL, targets=frames
        )
        row = data.get_batch([0], [0.0])
    figure, axes = plt.subplots(
        3, 1, figsize=(9, 4.5), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [4, 1, 1]}
    )
    show(axes[0], row["spectrogram"][0])
    for axis, name in zip(axes[1:], frames, strict=True):
        axis.imshow(
            row[name][0].T, aspect="auto", cmap="Blues", vmin=0, vmax=1.4, extent=(0, SECONDS, 2, 0),
            interpolation="nearest",
        )  # fmt: skip
        axis.set_yticks([0.5, 1.5], ["anna", "bert"])
        axis.set_title(f"{name}: {list(row[name][0].shape)}", fontsize=9, loc="left")
    axes[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=80)


def draw_annotated(path: Path) -> None:
    """The spectrogram of two speakers, three annotated regions, and clips in them."""
    regions = [(0.2, 1.4), (1.2, 1.7), (2.2, 2.5), (2.9, 3.8)]
    clip_seconds = 0.5
    crop = crops.Annotated([("scene", start, end) for start, end in regions])
    with tempfile.TemporaryDirectory() as folder:
        scene, _ = turns(Path(folder))
        manifest = forebay.Manifest([{"path": str(scene)}], root=folder)
        whole = forebay.AudioDataset(manifest, clip_seconds=SECONDS, features=MEL, targets={}).get_batch([0], [0.0])
        with forebay.Loader(
            manifest,
            crop=crops.Views(24, crop),
            features=MEL,
            targets={},
            clip_seconds=clip_seconds,
            batch_size=1,
            infinite=False,
            outputs=["start"],
        ) as loader:
            starts = next(loader)["start"][0]
    figure, axes = plt.subplots(
        3, 1, figsize=(9, 4.5), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [4, 1, 2]}
    )
    show(axes[0], whole["spectrogram"][0])
    for number, (start, end) in enumerate(regions):
        axes[1].broken_barh([(start, end - start)], (number % 2, 0.9), color="C0")
    axes[1].set_title("regions; the first two overlap, the third is shorter than a clip", fontsize=9, loc="left")
    for number, start in enumerate(starts):
        axes[2].broken_barh([(float(start), clip_seconds)], (number, 0.8), color="C1")
    axes[2].set_title(f"{len(starts)} clips of {clip_seconds} s", fontsize=9, loc="left")
    for axis in axes[1:]:
        axis.set_yticks([])
    axes[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=80)


def draw_stems(path: Path) -> None:
    """A clip of a mixture and of its parts, as a batch has them."""
    names = {"tabla": "tabla_ghe5.flac", "choir": "ambi_choir.flac", "loop": "loop_electric.flac"}
    with tempfile.TemporaryDirectory() as text:
        folder, rate = Path(text), 16_000
        row: dict[str, Any] = {}
        parts = []
        for name, recording in names.items():
            sound, given = soundfile.read(RECORDINGS / recording, dtype="float32", always_2d=True)
            sound = np.interp(np.arange(2 * rate) * given / rate, np.arange(len(sound)), sound.mean(1))
            parts.append(0.3 * sound / max(np.abs(sound).max(), 1e-9))
            soundfile.write(folder / f"{name}.wav", parts[-1], rate)
            row[name] = f"{name}.wav"
        soundfile.write(folder / "mixture.wav", np.sum(parts, 0), rate)
        (folder / "song.jsonl").write_text(json.dumps({"mixture": "mixture.wav", **row}) + "\n")
        with forebay.Loader(
            folder / "song.jsonl",
            audio={name: name for name in ("mixture", *names)},
            features=MEL,
            targets={},
            clip_seconds=2.0,
            crop=crops.Start(),
            batch_size=1,
            infinite=False,
            shuffle_min_size=0,
        ) as loader:
            batch = next(loader)
    figure, axes = plt.subplots(1, 4, figsize=(12, 2.8), sharex=True, sharey=True, layout="constrained")
    high = batch["mixture"].max()
    for axis, name in zip(axes, ("mixture", *names), strict=True):
        axis.imshow(
            batch[name][0], origin="lower", aspect="auto", vmin=high - 14, vmax=high, extent=(0, 2, 0, MEL.n_mels)
        )
        axis.set_title(f'batch["{name}"]', fontsize=9)
        axis.set_xlabel("seconds")
    axes[0].set_ylabel("mel band")
    figure.savefig(path, dpi=80)


def main() -> None:
    """Draws all pictures."""
    draw_frames(ROOT / "docs/frames.png")
    draw_annotated(ROOT / "docs/annotated.png")
    draw_stems(ROOT / "docs/stems.png")


if __name__ == "__main__":
    main()
