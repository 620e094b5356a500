"""Trains a small convolutional net in JAX on four kinds of sound, in two processes that share every batch.

    python examples/train_jax.py

Starts itself twice, as on two machines. Both processes print the loss of the global batch, which is the same in both.
Each of three folds trains on two thirds of the 46 bundled recordings and holds out the others; see folds.py. With the
defaults the net classifies about 65 % of the held-out recordings correctly, the nearest mean about 55 %; chance is
25 %. Less than 58 % is an error.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from folds import KINDS, Fold, NearestMean, held_out, report, train_loader, write_folds
from jax.sharding import NamedSharding, PartitionSpec

import forebay.jax

N_PROCESSES = 2
BATCH_SIZE = 32


def make_net(key: Any) -> list[tuple[Any, Any]]:
    """Weights and biases of three convolutions and of one linear layer."""
    shapes = [(16, 1, 3, 3), (32, 16, 3, 3), (64, 32, 3, 3), (6 * 64, len(KINDS))]
    return [
        (jax.random.normal(k, shape) * (2 / np.prod(shape[1:] if len(shape) == 4 else shape[:1])) ** 0.5, jnp.zeros(n))
        for k, shape, n in zip(jax.random.split(key, 4), shapes, (16, 32, 64, len(KINDS)), strict=True)
    ]


def logits(net: list[tuple[Any, Any]], spectrogram: Any) -> Any:
    """The logits of each clip and kind."""
    x = (spectrogram[:, None] + 8) / 8
    for weights, bias in net[:-1]:
        x = jax.nn.relu(jax.lax.conv(x, weights, (2, 2), "SAME") + bias[:, None, None])
    weights, bias = net[-1]
    return x.mean(axis=3).reshape(len(x), -1) @ weights + bias


def loss_of(net: list[tuple[Any, Any]], spectrogram: Any, label: Any) -> Any:
    """The mean cross-entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(net, spectrogram)), label[:, None], axis=1).mean()


def adam(net: Any, moments: Any, spectrogram: Any, label: Any, number: Any) -> tuple[Any, Any, Any]:
    """One step of Adam: the new net, the moments of its gradient, and the loss before the step."""
    loss, gradient = jax.value_and_grad(loss_of)(net, spectrogram, label)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, moments[1], gradient)
    scale = 3e-3 * jnp.sqrt(1 - 0.99**number) / (1 - 0.9**number)
    net = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), net, first, second)
    return net, (first, second), loss


step = jax.jit(adam)


def run(fold: Fold, steps: int, sharding: NamedSharding) -> tuple[int, int, int]:
    """Trains on one fold; the held-out recordings that net and baseline classify correctly, and their number."""
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())
    net = jax.device_put(make_net(jax.random.key(0)), everywhere)
    moments = jax.tree.map(jnp.zeros_like, (net, net))
    baseline = NearestMean()
    with train_loader(fold, BATCH_SIZE // N_PROCESSES, **forebay.jax.rank_and_world_size(sharding)) as loader:
        for number, batch in enumerate(islice(forebay.jax.batches(loader, sharding), steps), 1):
            net, moments, loss = step(net, moments, batch["spectrogram"], batch["label"], number)
            baseline.learn(
                *(np.concatenate([s.data for s in batch[name].addressable_shards]) for name in ("spectrogram", "label"))
            )
            if number % 20 == 0:
                print(
                    f"  process {jax.process_index()}  step {number:>3}  loss {float(loss):.6f}\n", end="", flush=True
                )
    net = jax.tree.map(lambda array: array.addressable_data(0), net)
    batch = held_out(fold)
    predicted, label = np.asarray(logits(net, batch["spectrogram"]).argmax(axis=1)), batch["label"]
    return (predicted == label).sum(), (baseline.predict(batch["spectrogram"]) == label).sum(), len(label)


def train(address: str, rank: int, steps: int, reach: float) -> None:
    """Runs all folds in one of the processes."""
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(address, num_processes=N_PROCESSES, process_id=rank)
    sharding = NamedSharding(jax.make_mesh((N_PROCESSES,), ("data",)), PartitionSpec("data"))
    start, totals = time.perf_counter(), [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for fold in write_folds(Path(folder)):
            totals = [a + int(b) for a, b in zip(totals, run(fold, steps, sharding), strict=True)]
    if rank == 0:
        print(f"\n{time.perf_counter() - start:.0f} s")
        report(*totals, reach=reach)


def main() -> None:
    """Starts the processes, or with --rank runs as one of them."""
    parser = argparse.ArgumentParser(description="Train a small net on bundled recordings, in two processes.")
    parser.add_argument("--steps", type=int, default=60, help="batches of 32 clips for each fold")
    parser.add_argument("--reach", type=float, default=0.58, help="lowest share of correct classifications")
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        train(arguments.address, arguments.rank, arguments.steps, arguments.reach)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, __file__, "--address", address]
    command += ["--steps", str(arguments.steps), "--reach", str(arguments.reach)]
    processes = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(N_PROCESSES)]
    try:
        sys.exit(max(abs(process.wait()) for process in processes))
    finally:
        for process in processes:
            process.kill()


if __name__ == "__main__":
    main()
