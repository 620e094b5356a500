"""Windows over a long recording: seconds for 24 h, beside soundfile and torch.

    python benches/windows.py [--hours 1] [--folder FOLDER] [--step 5]

Writes one OGG Vorbis file of 32 kHz (soundfile, the recordings of tests/data repeated with changing level), then reads
all of its windows of 5 s with the default log-mel: `Loader.eval(file, crop=Windows())`, and soundfile's `blocks` with
torchaudio's MelSpectrogram and AmplitudeToDB in batches of 64, on all cores. The times are scaled to 24 h. Peak memory
is that of this process.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from sounds import sound

import forebay
from forebay import crops

RATE = 32_000
CLIP = 5 * RATE


def write(path: Path, hours: float) -> None:
    """A recording of speech, music and birds, whose level changes."""
    recording = sound(RATE)
    left = int(hours * 3600 * RATE)
    with soundfile.SoundFile(path, "w", RATE, 1, format="OGG", subtype="VORBIS") as out:
        turn = 0
        while left > 0:
            out.write(recording[:left] * (0.3 + 0.7 * (turn % 5) / 4))
            left -= len(recording)
            turn += 1


def ours(path: Path, step: float) -> int:
    """All windows through a loader."""
    crop = crops.Windows(step)
    with forebay.Loader.eval(path, batch_size=64, n_workers="auto", crop=crop, outputs=["start"]) as loader:
        return sum(len(batch["spectrogram"]) for batch in loader)


def theirs(path: Path, step: float) -> int:
    """All windows through soundfile and torchaudio."""
    import torch
    import torchaudio

    mel = torchaudio.transforms.MelSpectrogram(RATE, n_fft=1024, hop_length=320, n_mels=128)
    decibel = torchaudio.transforms.AmplitudeToDB()
    hop = int(step * RATE)
    blocks = soundfile.blocks(path, CLIP, max(CLIP - hop, 0), dtype="float32", fill_value=0.0)
    n, batch = 0, []
    for block in blocks:
        batch.append(block)
        if len(batch) == 64:
            n += len(decibel(mel(torch.from_numpy(np.stack(batch)))))
            batch = []
    return n + (len(decibel(mel(torch.from_numpy(np.stack(batch))))) if batch else 0)


def main() -> None:
    """Prints a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--step", type=float, default=5.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--alone", action="store_true", help="without soundfile and torchaudio")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        path = (options.folder or Path(made)) / f"windows-{options.hours:g}h.ogg"
        if not path.exists():
            write(path, options.hours)
        sys.stdout.write("| | windows | seconds | for 24 h | peak memory, MB |\n|---|--:|--:|--:|--:|\n")
        runs: dict[str, Callable[[Path, float], int]] = {"forebay": ours}
        if not options.alone:
            runs["soundfile, torchaudio"] = theirs
        for name, run in runs.items():
            begin = time.perf_counter()
            n = run(path, options.step)
            seconds = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            sys.stdout.write(f"| {name} | {n} | {seconds:.1f} | {seconds * 24 / options.hours:.0f} | {peak} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
