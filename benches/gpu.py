"""A training step on a GPU that takes its batches from a loader, compared with the step alone.

    python benches/gpu.py SHARD... [--models resnet18 resnet50] [--n-workers 16] [--seconds 3]

Models are those of torchvision, with one input channel, in bfloat16, channels last. The step alone repeats one batch
that stays on the device: the rate that a perfect loader would give. `--copies torch` stages batches by `copy_` of
torch, which uses torch's own threads, in place of forebay's copy on one thread.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import torchvision

import forebay
from forebay import _device
from forebay.torch import DevicePrefetcher

BATCH_SIZE = 64
Step = Callable[[Any, Any], None]


def training_step(model: str) -> Step:
    net = getattr(torchvision.models, model)(num_classes=10)
    net.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    net = net.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def step(spectrogram: Any, label: Any) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net((spectrogram[:, None] + 8) / 8), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def rate(step: Step, batches: Iterable[Any], seconds: float) -> float:
    """Examples per second over `seconds`, after half of that time to warm up."""
    n, begin, started = 0, time.perf_counter(), None
    for batch in batches:
        step(batch["spectrogram"], batch["label"])
        now = time.perf_counter()
        if started is not None:
            n += 1
            if now - started > seconds:
                break
        elif now - begin > seconds / 2:
            torch.cuda.synchronize()
            started = time.perf_counter()
    torch.cuda.synchronize()
    assert started is not None
    return BATCH_SIZE * n / (time.perf_counter() - started)


def cpu_seconds() -> dict[str, float]:
    """CPU time of the threads by name, without their numbers."""
    found: dict[str, float] = {}
    for stat in Path("/proc/self/task").glob("*/stat"):
        name, fields = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        user, system = fields.split()[11:13]
        name = name.rstrip("0123456789-_")
        found[name] = found.get(name, 0.0) + (int(user) + int(system)) / 100
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards", nargs="+")
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--n-workers", type=int, default=torch.get_num_threads())
    parser.add_argument("--copies", choices=["forebay", "torch"], default="forebay")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if options.copies == "torch":
        _device._copy = lambda to, of: to.copy_(of)
    for model in options.models:
        step = training_step(model)
        window = {"order": "window", "shuffle_buffer_size": 512, "shuffle_min_size": 256}
        with forebay.Loader(options.shards, seed=1, n_workers=options.n_workers, **window) as loader:
            batches = DevicePrefetcher(loader, "cuda")
            fixed = next(batches)
            before, begin = cpu_seconds(), time.perf_counter()
            fed = rate(step, batches, options.seconds)
            elapsed = time.perf_counter() - begin
            used = {name: (cpu - before.get(name, 0.0)) / elapsed for name, cpu in cpu_seconds().items()}
            verdict = loader.stats()["verdict"]
        alone = rate(step, repeat(fixed), options.seconds)
        print(f"{model}: {fed:.0f} examples/s, step alone {alone:.0f}; {verdict}")
        print("  cores:", ", ".join(f"{name} {cores:.2f}" for name, cores in used.items() if cores >= 0.05))


if __name__ == "__main__":
    main()
