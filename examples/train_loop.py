"""A training loop in plain numpy: softmax regression from log-mel statistics to four classes.

    python examples/train_loop.py --steps 100

The model is small on purpose; the lines with `loader` are the same with any framework.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from demo import write_shards

import forebay


def features(spectrogram: np.ndarray) -> np.ndarray:
    """The mean and standard deviation over time of each band, roughly centred, and a constant."""
    mean, deviation = spectrogram.mean(axis=2) / 10 + 1, spectrogram.std(axis=2) / 5
    return np.concatenate([mean, deviation, np.ones((len(spectrogram), 1))], axis=1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities of each row."""
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponential / exponential.sum(axis=1, keepdims=True))


def main() -> None:
    """Trains for `--steps` batches, then evaluates one pass."""
    parser = argparse.ArgumentParser(description="Train a small classifier.")
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder), n_shards=2, repeats=2)
        with forebay.Loader.train(shards, batch_size=32) as loader:
            classes = loader.class_names or []
            weights = np.zeros((2 * 128 + 1, len(classes)))
            for step, batch in zip(range(steps), loader, strict=False):
                x, y = features(batch["spectrogram"]), np.eye(len(classes))[batch["label"]]
                probability = softmax(x @ weights)
                loss = -np.log((probability * y).sum(axis=1)).mean()
                weights -= 0.05 * x.T @ (probability - y) / len(x)
                if step % max(steps // 8, 1) == 0:
                    print(f"step {step:>4}  loss {loss:.3f}")
        correct = total = 0
        with forebay.Loader.eval(shards) as loader:
            for batch in loader:
                correct += int(((features(batch["spectrogram"]) @ weights).argmax(axis=1) == batch["label"]).sum())
                total += len(batch["label"])
        print(f"{correct} of {total} training recordings classified correctly")


if __name__ == "__main__":
    main()
