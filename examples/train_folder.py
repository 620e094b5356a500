"""Trains a softmax regression in plain numpy on a folder of recordings, which has a folder for each class.

    python examples/train_folder.py FOLDER

Without FOLDER it writes 60 recordings first: tones, noise and clicks. It needs numpy and forebay only.
"""

import argparse
import sys
import tempfile
import wave
from pathlib import Path
from typing import Any

import numpy as np

import forebay

RATE = 16_000


def write_recordings(folder: Path) -> None:
    """Writes 20 recordings of 2 s of each kind."""
    rng = np.random.default_rng(0)
    seconds = np.arange(2 * RATE) / RATE
    for number in range(20):
        clicks = np.zeros(2 * RATE)
        clicks[:: int(rng.integers(500, 4000))] = 0.8
        tone = 0.3 * np.sin(2 * np.pi * rng.uniform(200, 4000) * seconds)
        for kind, sound in {"tone": tone, "noise": rng.normal(0, 0.1, 2 * RATE), "clicks": clicks}.items():
            (folder / kind).mkdir(exist_ok=True)
            with wave.open(str(folder / kind / f"{number:02}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes((32767 * sound.clip(-1, 1)).astype("<i2").tobytes())


def summary(spectrogram: np.ndarray) -> np.ndarray:
    """Mean and deviation over time of each band, and a constant."""
    mean, deviation = spectrogram.mean(axis=2) / 10 + 1, spectrogram.std(axis=2) / 5
    return np.concatenate([mean, deviation, np.ones((len(mean), 1))], axis=1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of each row."""
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponential / exponential.sum(axis=1, keepdims=True))


def train(folder: Path, steps: int) -> float:
    """Trains for `steps` batches; returns the share of all recordings that are then classified correctly."""
    clips: dict[str, Any] = {"clip_seconds": 1.0, "sample_rate": RATE, "batch_size": 16, "n_mels": 64}
    with forebay.Loader.train(folder, seed=1, **clips) as loader:
        print(loader)
        print(f"classes: {loader.class_names}")
        n_classes = len(loader.class_names or [])
        weights = np.zeros((2 * 64 + 1, n_classes))
        for _, batch in zip(range(steps), loader, strict=False):
            x, truth = summary(batch["spectrogram"]), np.eye(n_classes)[batch["label"]]
            weights -= 0.1 * x.T @ (softmax(x @ weights) - truth) / len(x)
    right = total = 0
    with forebay.Loader.eval(folder, **clips) as loader:
        for batch in loader:
            right += int(((summary(batch["spectrogram"]) @ weights).argmax(axis=1) == batch["label"]).sum())
            total += len(batch["label"])
    print(f"{right} of {total} correct")
    return right / total


def main() -> None:
    """Trains on the given folder, or on recordings that it writes."""
    parser = argparse.ArgumentParser(description="Train a small classifier on a folder of recordings.")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        train(arguments.folder, arguments.steps)
        return
    with tempfile.TemporaryDirectory() as name:
        write_recordings(Path(name))
        if train(Path(name), arguments.steps) < 0.9:
            sys.exit("expected at least 90 %")


if __name__ == "__main__":
    main()
