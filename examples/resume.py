"""Kills an iterating process several times, resumes it, and checks that it gets every batch exactly once.

    python examples/resume.py [--kills 4] [--batches 60] [SHARD ...]

A child process iterates a loader and saves its state with a digest of each batch. The parent kills it (SIGKILL) at
random times and restarts it with another number of workers. At the end the digests must equal those of an
uninterrupted run. The default shards are of the bundled recordings.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from demo import write_shards

import forebay


def digest(batch: dict[str, np.ndarray]) -> str:
    """A digest of a batch."""
    state = hashlib.blake2b(digest_size=8)
    for name in sorted(batch):
        state.update(name.encode() + batch[name].tobytes())
    return state.hexdigest()


def make(shards: list[str], n_workers: int) -> forebay.Loader:
    return forebay.Loader(
        shards, seed=5, batch_size=8, shuffle_buffer_size=64, shuffle_min_size=32, n_workers=n_workers
    )


def train(shards: list[str], checkpoint: Path, n_workers: int, n_batches: int) -> None:
    """The child process: like a training script, loads the checkpoint if there is one, steps and saves."""
    with make(shards, n_workers) as loader:
        done = []
        if checkpoint.exists():
            saved = json.loads(checkpoint.read_text())
            done = saved["digests"]
            loader.load_state_dict(saved["loader"])
        while len(done) < n_batches:
            done.append(digest(next(loader)))
            fresh = checkpoint.with_suffix(".new")
            fresh.write_text(json.dumps({"loader": loader.state_dict(), "digests": done}))
            fresh.replace(checkpoint)  # atomic: a checkpoint is never incomplete


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", nargs="*")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.shards, given.train, given.workers, given.batches)
        return

    with tempfile.TemporaryDirectory() as folder:
        shards = given.shards or [str(path) for path in write_shards(Path(folder), n_shards=3, repeats=4)]
        checkpoint = Path(folder) / "checkpoint.json"
        chance = random.Random(1)
        for start in range(given.kills + 1):
            command = [sys.executable, __file__, "--train", str(checkpoint), "--workers", str(1 + start % 4)]
            child = subprocess.Popen([*command, "--batches", str(given.batches), *shards])
            if start < given.kills:
                seen = len(json.loads(checkpoint.read_text())["digests"]) if checkpoint.exists() else 0
                wanted = min(seen + chance.randint(1, 1 + given.batches // (given.kills + 1)), given.batches)
                while child.poll() is None:
                    if checkpoint.exists() and len(json.loads(checkpoint.read_text())["digests"]) >= wanted:
                        break
                    time.sleep(0.002)
                child.kill()
                child.wait()
                saved = json.loads(checkpoint.read_text())
                n_bytes = len(json.dumps(saved["loader"]))
                print(f"killed after batch {len(saved['digests'])}; the state has {n_bytes} bytes")
            elif child.wait() != 0:
                raise SystemExit("the last run failed")
        resumed = json.loads(checkpoint.read_text())["digests"]
        with make(shards, 2) as loader:
            whole = [digest(next(loader)) for _ in range(given.batches)]
    if resumed != whole:
        pairs = enumerate(zip(resumed, whole, strict=True))
        raise SystemExit(f"batch {next(number for number, (a, b) in pairs if a != b)} differs")
    print(f"{given.batches} batches, {given.kills} kills: every digest equals that of an uninterrupted run")


if __name__ == "__main__":
    main()
