"""Draws docs/augmentation.png, each step of augmentation on the same clip.

Needs the installed package, soundfile and matplotlib. Runs from any folder: python docs/plots/augmentation.py
"""

import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import soundfile

import forebay
from forebay.augment import (
    Clip,
    DropChunk,
    DropFreq,
    Filter,
    FrameRoll,
    Gain,
    Mix,
    Noise,
    Reverb,
    Roll,
    SpecAugment,
    Speed,
)
from forebay.features import LogMel

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/data/recordings"
RATE, SECONDS = 32_000, 2.5
FEATURES = LogMel(sample_rate=RATE)
STEPS: dict[str, list[Any]] = {
    "the clip": [],
    "Gain(-12)": [Gain(-12)],
    "Roll(0.3)": [Roll(0.3)],
    "Noise(5)": [Noise(5)],
    "Noise(5, slope_db=-6)": [Noise(5, slope_db=-6)],
    'Filter("lowpass", 2000)': [Filter("lowpass", 2000)],
    'Filter("peak", (200, 8000), n=4)': [Filter("peak", (200, 8000), gain_db=(-24, 24), n=4)],
    "Clip(-24)": [Clip(-24)],
    "DropFreq(0.4)": [DropFreq(0.4, n=1)],
    "DropChunk((100, 200))": [DropChunk((100, 200))],
    "Speed((1.25,))": [Speed((1.25,))],
    "Mix(other, snr_db=0)": [Mix(str(RECORDINGS / "loop_electric.flac"), snr_db=0)],
    "SpecAugment(20, 2, 40, 2)": [SpecAugment(20, 2, 40, 2)],
    "FrameRoll(0.3)": [FrameRoll(0.3)],
}


def spectrogram(steps: list[Any]) -> Any:
    """The features of the clip, `[128, n_frames]`."""
    with forebay.Loader(
        forebay.Manifest([{"path": str(RECORDINGS / "21100_36_48.flac")}]),
        batch_size=1,
        clip_seconds=SECONDS,
        crop=forebay.crops.Start(),
        features=FEATURES,
        augment=steps,
        infinite=False,
        shuffle_min_size=0,
        allow_paths=True,
        seed=6,
    ) as loader:
        return next(loader)["spectrogram"][0]


def room(path: Path) -> list[Any]:
    """A `Reverb` of noise that decays by 60 dB in 1.2 s after the direct sound."""
    time = np.arange(int(1.2 * RATE)) / RATE
    response = 0.03 * np.random.default_rng(1).normal(size=time.size) * 10 ** (-3 * time / 1.2)
    response[0] = 1
    soundfile.write(path, response, RATE, subtype="FLOAT")
    return [Reverb(forebay.Manifest([{"path": str(path)}]))]


def main() -> None:
    """Draws the picture."""
    figure, axes = plt.subplots(3, 5, figsize=(14, 7), sharex=True, sharey=True, layout="constrained")
    plain = spectrogram([])
    low, high = np.percentile(plain, 2), plain.max()
    with tempfile.TemporaryDirectory() as folder:
        rooms = room(Path(folder) / "room.wav")
        pictures = {name: spectrogram(steps) for name, steps in {**STEPS, "Reverb(room)": rooms}.items()}
    for axis in axes.flat[len(pictures) :]:
        axis.set_visible(False)
    for axis, (name, picture) in zip(axes.flat, pictures.items(), strict=False):
        axis.imshow(
            picture, origin="lower", aspect="auto", vmin=low, vmax=high, extent=(0, SECONDS, 0, 128),
            interpolation="nearest",
        )  # fmt: skip
        axis.set_title(name, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    for axis in axes[:, 0]:
        axis.set_ylabel("mel band")
    figure.savefig(ROOT / "docs/augmentation.png", dpi=80)


if __name__ == "__main__":
    main()
