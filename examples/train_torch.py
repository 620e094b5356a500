"""Trains a small convolutional net in PyTorch on four kinds of sound and tests it on held-out recordings.

    python examples/train_torch.py

Each of three folds trains on two thirds of the 46 bundled recordings and holds out the others; see folds.py. With the
defaults the net classifies about 75 % of the held-out recordings correctly, the nearest mean about 50 %; chance is
25 %. Less than 65 % is an error.
"""

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from folds import KINDS, Fold, NearestMean, held_out, report, train_loader, write_folds
from torch import nn

from forebay.torch import DevicePrefetcher, rank_and_world_size, to_tensors


def make_net() -> nn.Module:
    """Three convolutions, the mean over the remaining frames, and one linear layer."""
    layers: list[nn.Module] = []
    for channels_in, channels_out in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels_in, channels_out, 3, 2, 1), nn.BatchNorm2d(channels_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((6, 1)), nn.Flatten(), nn.Linear(6 * 64, len(KINDS)))


def scaled(spectrogram: torch.Tensor) -> torch.Tensor:
    """Scales the log energies, -23 (silence) to about 7, to near 0, and adds an axis for the channel."""
    return (spectrogram[:, None] + 8) / 8


def run(fold: Fold, steps: int, device: str) -> tuple[int, int, int]:
    """Trains on one fold; the held-out recordings that net and baseline classify correctly, and their number."""
    torch.manual_seed(0)
    net, baseline = make_net().to(device), NearestMean()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with train_loader(fold, batch_size=32, **rank_and_world_size()) as loader:
        for step, batch in enumerate(islice(DevicePrefetcher(loader, device), steps)):
            loss = nn.functional.cross_entropy(net(scaled(batch["spectrogram"])), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            baseline.learn(batch["spectrogram"].cpu().numpy(), batch["label"].cpu().numpy())
            if step % 20 == 19:
                print(f"  step {step + 1:>3}  loss {loss.item():.3f}")
    batch = held_out(fold)
    net.eval()
    with torch.no_grad():
        predicted = net(scaled(to_tensors(batch)["spectrogram"].to(device))).argmax(dim=1).cpu().numpy()
    label = batch["label"]
    return (predicted == label).sum(), (baseline.predict(batch["spectrogram"]) == label).sum(), len(label)


def main() -> None:
    """Runs every fold."""
    parser = argparse.ArgumentParser(description="Train a small net on bundled recordings.")
    parser.add_argument("--steps", type=int, default=60, help="batches of 32 clips for each fold")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--reach", type=float, default=0.65, help="lowest share of correct classifications")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the net is too small for more, and the loader uses the other cores
    start, totals = time.perf_counter(), [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for number, fold in enumerate(write_folds(Path(folder))):
            print(f"fold {number}")
            totals = [a + int(b) for a, b in zip(totals, run(fold, arguments.steps, arguments.device), strict=True)]
    print(f"\n{time.perf_counter() - start:.0f} s")
    report(*totals, reach=arguments.reach)


if __name__ == "__main__":
    main()
