"""Trains a net on waveforms in PyTorch, as wav2vec2 and its kin take them, stops in the middle and resumes.

    python examples/finetune_waveform.py [--dtype int16]

Batches are seconds of 16 kHz with mean 0 and deviation 1 (`features="wav2vec2"`). With `--dtype int16` they are raw
samples, which take half the memory in the loader and on the way to the device; the program normalizes them there. A
small 1-D convolutional net stands for the pretrained model. The run saves model, optimizer and loader after half of its
steps. A second run with new objects loads them and continues as if it had never stopped. With the defaults the net
classifies 75 % or more of the held-out recordings of four kinds correctly; chance is 25 %. Less than 60 % is an error.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from folds import KINDS, Fold, write_folds
from torch import nn

import forebay
from forebay import features
from forebay.torch import DevicePrefetcher


def make_net() -> nn.Module:
    """Four strided convolutions over samples, means of four parts of the time, and one linear layer."""
    layers: list[nn.Module] = []
    for n_in, n_out, width, stride in ((1, 32, 64, 8), (32, 32, 8, 4), (32, 48, 8, 4), (48, 64, 4, 4)):
        layers += [nn.Conv1d(n_in, n_out, width, stride), nn.BatchNorm1d(n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(4 * 64, len(KINDS)))


def scaled(waveform: torch.Tensor) -> torch.Tensor:
    """Adds a channel axis, and normalizes samples that the loader did not."""
    if not waveform.is_floating_point():
        waveform = nn.functional.layer_norm(waveform.float(), waveform.shape[1:])
    return waveform[:, None]


def train(fold: Fold, clips: dict[str, Any], device: str, *, steps: int, stop: int, checkpoint: Path) -> nn.Module:
    """Trains from the checkpoint, if there is one, to step `stop` of `steps`, and writes a checkpoint there."""
    torch.manual_seed(0)
    net = make_net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    weights = dict.fromkeys(KINDS, 1 / len(KINDS))
    with forebay.Loader.train(fold.train, weights=weights, batch_size=32, **clips) as loader:
        batches = DevicePrefetcher(loader, device)
        parts = {"model": net, "optimizer": optimizer, "schedule": schedule, "loader": batches}
        if checkpoint.exists():
            saved = torch.load(checkpoint)
            for name, part in parts.items():
                part.load_state_dict(saved[name])
        print(f"from batch {loader.batch}: {loader}")
        for step, batch in zip(range(loader.batch + 1, stop + 1), batches, strict=False):
            loss = nn.functional.cross_entropy(net(scaled(batch["waveform"])), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 20 == 0:
                print(f"  step {step:>3}  loss {loss.item():.3f}")
        torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)
    return net


def main() -> None:
    """Trains half of the steps, then the others from the saved state, and tests on held-out recordings."""
    parser = argparse.ArgumentParser(description="Train a small net on waveforms, and resume it.")
    parser.add_argument("--steps", type=int, default=100, help="batches of 32 clips, in both runs together")
    parser.add_argument("--dtype", choices=("float32", "int16"), default="float32")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--reach", type=float, default=0.6, help="share that must be classified correctly")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a net this small gains nothing from more; the loader uses the other cores
    start = time.perf_counter()
    raw = features.Waveform(sample_rate=16_000, dtype="int16")
    clips: dict[str, Any] = {
        "features": raw if arguments.dtype == "int16" else "wav2vec2",
        "clip_seconds": 1.0,
        "n_workers": 2,
    }
    right = total = 0
    with tempfile.TemporaryDirectory() as folder:
        fold, *_ = write_folds(Path(folder))
        of_run = {"steps": arguments.steps, "checkpoint": Path(folder) / "last.pt"}
        train(fold, clips, arguments.device, stop=arguments.steps // 2, **of_run)
        net = train(fold, clips, arguments.device, stop=arguments.steps, **of_run).eval()
        with torch.no_grad(), forebay.Loader.eval(fold.held_out, augment=True, **clips) as loader:
            for batch in DevicePrefetcher(loader, arguments.device):
                right += int((net(scaled(batch["waveform"])).argmax(dim=1) == batch["label"]).sum())
                total += len(batch["label"])
    print(f"\n{right} of {total} held-out recordings correct, {right / total:.0%}")
    print(f"{time.perf_counter() - start:.0f} s")
    if right < arguments.reach * total:
        sys.exit(f"expected at least {arguments.reach:.0%}")


if __name__ == "__main__":
    main()
