"""What crops cost: CPU time of an example, for recordings of 30 s and of 10 min.

    python benches/crops.py [--examples 200]

Writes OGG Vorbis files of 32 kHz (soundfile, the recordings of tests/data repeated with changing level) and reads clips
of 5 s with the default log-mel by an `AudioDataset` on one thread. The times are those of the process, in ms for an
example, and as multiples of `Random()`; they are the least of three runs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from forebay import crops
from windows import write

CROPS: list[Any] = [
    crops.Random(),
    crops.Random(silence_db=-70.0),
    crops.Random(silence_db=0.0),
    crops.Events("events"),
    crops.Loudest(4),
    crops.Loudest(16),
    crops.Views(2),
    crops.Views(4),
]
RUNS = 3


def per_example(path: Path, crop: Any, examples: int) -> float:
    """CPU time of an example, ms."""
    seconds = 5.0
    rows = [{"path": path.name, "events": [[seconds, 2 * seconds]]} for _ in range(examples)]
    manifest = forebay.Manifest(rows, root=path.parent)
    with forebay.AudioDataset(manifest, crop=crop, clip_seconds=seconds, n_threads=1) as dataset:
        dataset[0]
        begin = time.process_time()
        for first in range(0, examples, 20):
            dataset.get_batch(np.arange(first, min(first + 20, examples)))
        return (time.process_time() - begin) / examples * 1e3


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write("| crop | 30 s | | 10 min | |\n|---|---:|---:|---:|---:|\n")
        paths = []
        for hours in (30 / 3600, 1 / 6):
            paths.append(Path(folder) / f"{hours:.3f}.ogg")
            write(paths[-1], hours)
        plain: list[float] = []
        for crop in CROPS:
            times = [min(per_example(path, crop, options.examples) for _ in range(RUNS)) for path in paths]
            plain = plain or times
            row = " | ".join(f"{ms:.2f} | {ms / least:.2f}x" for ms, least in zip(times, plain, strict=True))
            sys.stdout.write(f"| `{crop!r}` | {row} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
