"""Writes `loudness.json`: the loudness of clips of recordings, as pyloudnorm 0.2.0 (numpy 2.4, scipy 1.17) has it.

    python -m venv venv && venv/bin/pip install pyloudnorm==0.2.0 soundfile && venv/bin/python make_loudness.py

A case is a recording of `../recordings`, its first sample and its number of samples, a gain, and the share of the clip
that is silent, at its end. `lufs` is by the filters of the specification (`DeMan`), `default` by those that pyloudnorm
has by default, which are close to them. Clips are whole parts of 100 ms long: elsewhere pyloudnorm rounds the number of
blocks, and the last one may end behind the clip.
"""

import json
from pathlib import Path

import numpy as np
import pyloudnorm
import soundfile

FOLDER = Path(__file__).parent
NAMES = [
    "21100_36_48.flac", "237-134500-0002.flac", "LOCA_2021_09_24_652_3.wav", "ambi_choir.flac", "aru_2.wav",
    "audiomoth_gps.wav", "loop_electric.flac", "mehackit_robot2.flac", "rugr_drum.wav", "tabla_ghe5.flac",
]  # fmt: skip


def main() -> None:
    random = np.random.default_rng(5)
    cases = []
    for name in NAMES:
        samples, rate = soundfile.read(FOLDER.parent / "recordings" / name, dtype="float32", always_2d=True)
        for silent in (0.0, 0.0, 0.5):
            part = rate // 10
            n = part * int(random.integers(4, max(5, min(len(samples) // part, 100) + 1)))
            start = int(random.integers(0, max(1, len(samples) - n + 1)))
            gain = float(np.round(random.uniform(0.05, 1.5), 3))
            clip = samples[start : start + n, :2] * np.float32(gain)
            if len(clip) < n or n % part:
                continue
            clip[round((1 - silent) * n) :] = 0
            meters = {key: pyloudnorm.Meter(rate, filter_class=kind) for key, kind in
                      (("lufs", "DeMan"), ("default", "K-weighting"))}  # fmt: skip
            found = {key: float(meter.integrated_loudness(clip.astype(np.float64))) for key, meter in meters.items()}
            case = {"name": name, "rate": rate, "start": start, "n": n, "gain": gain, "silent": silent}
            cases.append(case | {key: None if np.isinf(value) else value for key, value in found.items()})
    (FOLDER / "loudness.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main()
