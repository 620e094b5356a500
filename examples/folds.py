"""Writes bundled samples of four kinds of sound as shards, in three folds for cross-validation.

46 recordings (tests/data/samples): ambient sounds, synthesised basses, kick drums, a tabla. Fold k holds out every
third recording of each kind, beginning with number k. No recording is in both parts, but all tabla recordings are of
one instrument.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Audio, ClassLabel, Features
from datasets.arrow_writer import ArrowWriter

import forebay

SAMPLES = Path(__file__).parents[1] / "tests" / "data" / "samples"
KINDS = ["ambient", "bass", "kick", "tabla"]
N_FOLDS = 3

CLIPS: dict[str, Any] = {"sample_rate": 22050, "clip_seconds": 1.0, "hop_length": 441, "n_mels": 48, "n_workers": 2}
"""Loader parameters for clips of one second, `[48, 51]`."""


@dataclass(frozen=True)
class Fold:
    """Training shards by kind, and held-out shards."""

    train: dict[str, list[Path]]
    held_out: list[Path]


def write_folds(folder: Path) -> list[Fold]:
    """Writes a shard for each kind and third; the folds of these shards."""
    features = Features({"audio": Audio(), "label": ClassLabel(names=KINDS)})
    for label, kind in enumerate(KINDS):
        files = sorted(SAMPLES.glob(f"{kind}-*.ogg"))
        for third in range(N_FOLDS):
            with ArrowWriter(features=features, path=str(folder / f"{kind}-{third}.arrow")) as writer:
                for file in files[third::N_FOLDS]:
                    writer.write({"audio": {"bytes": file.read_bytes(), "path": file.name}, "label": label})
                writer.finalize()

    def shards(kind: str, thirds: set[int]) -> list[Path]:
        return [folder / f"{kind}-{third}.arrow" for third in sorted(thirds)]

    everything = set(range(N_FOLDS))
    return [
        Fold({kind: shards(kind, everything - {k}) for kind in KINDS}, [shards(kind, {k})[0] for kind in KINDS])
        for k in range(N_FOLDS)
    ]


def train_loader(fold: Fold, batch_size: int, **ranks: Any) -> forebay.Loader:
    """An infinite loader of random crops, with equal shares of each kind."""
    weights = dict.fromkeys(KINDS, 1 / len(KINDS))
    return forebay.Loader.train(fold.train, weights=weights, batch_size=batch_size, **CLIPS, **ranks)


def held_out(fold: Fold) -> dict[str, np.ndarray]:
    """A batch with one crop of each held-out recording, augmented as in training."""
    with forebay.Loader.eval(fold.held_out, augment=True, **CLIPS) as loader:
        return next(loader)


class NearestMean:
    """The baseline: predicts the kind whose mean over time and clips is nearest."""

    def __init__(self) -> None:
        self._sums, self._n = np.zeros((len(KINDS), CLIPS["n_mels"])), np.zeros(len(KINDS))

    def learn(self, spectrogram: np.ndarray, label: np.ndarray) -> None:
        """Adds a batch to the means."""
        np.add.at(self._sums, label, spectrogram.mean(axis=2))
        np.add.at(self._n, label, 1)

    def predict(self, spectrogram: np.ndarray) -> np.ndarray:
        """The label of each clip."""
        means = self._sums / self._n[:, None]
        distance = np.square(spectrogram.mean(axis=2)[:, None] - means).sum(axis=2)
        return np.asarray(distance.argmin(axis=1))


def report(right: int, baseline: int, total: int, *, reach: float) -> None:
    """Prints the net's accuracy beside the baseline's; exits with an error if it is below `reach`."""
    print(f"\nheld-out recordings classified correctly, of {total}:")
    print(f"  this net      {right:>3}  {right / total:.0%}")
    print(f"  nearest mean  {baseline:>3}  {baseline / total:.0%}")
    print(f"  by chance          {1 / len(KINDS):.0%}")
    if right < reach * total:
        sys.exit(f"expected at least {reach:.0%}")
