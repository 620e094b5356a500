"""Front ends of `forebay.features`: errors against the golden files, and time beside the originals, as a table.

    python benches/features.py [--seconds 5] [--rounds 40]

Errors are those of docs/features.md: the mean, the largest within 60 dB of a frame's largest band, the largest
elsewhere, in units of the natural logarithm of an energy, over the clips of tests/data/features/presets (speech, field
recording, silence, DC, square wave, noise, a clip shorter than a frame). The time is that of one clip on one thread,
the 10th percentile of the rounds.
"""

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from forebay import features

sys.path.append(str(Path(__file__).parents[1] / "tests" / "python" / "helpers"))
from golden_features import goldens


def errors() -> dict[str, tuple[float, ...]]:
    """The worst errors of each preset over its clips."""
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for golden in goldens():
        if golden.table == "presets":
            found[golden.name].append(golden.errors(features.preset(golden.name)(golden.waveform)))
    return {name: tuple(map(max, zip(*each, strict=True))) for name, each in found.items()}


def milliseconds(front_end: features.LogMel, seconds: float, rounds: int) -> float:
    """The time of one clip."""
    n_samples = int(seconds * front_end.sample_rate)
    waveform = np.random.default_rng(0).normal(0, 0.1, n_samples).astype(np.float32)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        front_end(waveform)
        times.append(time.perf_counter() - begin)
    return float(np.percentile(times, 10)) * 1e3


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    worst = errors()
    sys.stdout.write(
        f"| preset | shape of {options.seconds:g} s | mean | loud | quiet | ms |\n|---|---|--:|--:|--:|--:|\n"
    )
    for name in features.presets():
        front_end = features.preset(name)
        cells = [f"{error:.0e}" for error in worst[name]] if name in worst else ["", "", ""]
        shape = front_end.shape(int(options.seconds * front_end.sample_rate))
        cells = [name, str(list(shape)), *cells, f"{milliseconds(front_end, options.seconds, options.rounds):.2f}"]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
