"""Draws docs/pcen.png, PCEN of one recording at four levels, and prints the table of docs/features.md.

Needs the installed package and matplotlib. Runs from any folder: python docs/plots/pcen.py [--table]
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from forebay import decode
from forebay.features import PCEN, LogMel

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/data/recordings"
SCALES = {"PCEN()": 1.0, "scale=2.0**15": 2.0**15}
LEVELS = (0, -20, -40, -60)
SECONDS = 2.5


def front_end(scale: float, rate: int) -> LogMel:
    """The features: the default PCEN, of samples times `scale`."""
    return LogMel(sample_rate=rate, n_mels=64, scale=scale, compression=PCEN())


def clips() -> Iterator[tuple[Any, int]]:
    """The first 5 s of each bundled recording, and its rate."""
    with (RECORDINGS / "recordings.csv").open(newline="") as table:
        files = [line["file"] for line in csv.DictReader(table)]
    for file in files:
        samples, rate = decode((RECORDINGS / file).read_bytes())
        samples = np.asarray(samples, np.float32)
        yield (samples.mean(0) if samples.ndim == 2 else samples)[: 5 * rate], rate


def table() -> str:
    """How far values are from those at the level of the recording, in their standard deviations, by level."""
    lines = ["| the recording at | " + " | ".join(f"`{name}`" for name in SCALES) + " |", "|---|--:|--:|"]
    changes: dict[tuple[str, int], list[float]] = {}
    for samples, rate in clips():
        for name, scale in SCALES.items():
            features = front_end(scale, rate)
            own = features(samples)
            for level in LEVELS[1:]:
                change = np.abs(features(samples * np.float32(10 ** (level / 20))) - own).mean() / own.std()
                changes.setdefault((name, level), []).append(float(change))
    for level in LEVELS[1:]:
        cells = [f"{np.mean(changes[name, level]):.2f}" for name in SCALES]
        lines.append(f"| {level} dB | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(path: Path) -> None:
    """A row of pictures for each scale, a column for each level, all with the same colours."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    samples, rate = decode((RECORDINGS / "21100_36_48.flac").read_bytes())
    clip = np.asarray(samples, np.float32)[: int(SECONDS * rate)]
    figure, axes = plt.subplots(2, 4, figsize=(12, 4.6), sharex=True, sharey=True, layout="constrained")
    for row, (name, scale) in zip(axes, SCALES.items(), strict=True):
        features = front_end(scale, rate)
        high = np.percentile(features(clip), 99.5)
        for axis, level in zip(row, LEVELS, strict=True):
            axis.imshow(
                features(clip * np.float32(10 ** (level / 20))), origin="lower", aspect="auto", vmin=0, vmax=high,
                extent=(0, SECONDS, 0, 64), interpolation="nearest",
            )  # fmt: skip
            axis.set_title(f"{name}, {level} dB", fontsize=9)
        row[0].set_ylabel("mel band")
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    figure.savefig(path, dpi=80)


def main() -> None:
    """Prints the table, and draws the picture unless only the table is wanted."""
    parser = argparse.ArgumentParser(description="Draw PCEN at several levels.")
    parser.add_argument("--table", action="store_true", help="only print the table")
    is_table = parser.parse_args().table
    sys.stdout.write(table())
    if not is_table:
        draw(ROOT / "docs/pcen.png")


if __name__ == "__main__":
    main()
