"""Writes the minute-long recordings that the benches `decode` and `open` read, into `target/bench-recordings`.

    python -m pip install numpy soundfile
    python benches/recordings.py

The mono recordings of `tests/data/recordings`, repeated until a minute is full, are encoded by libsndfile. Their
samples are treated as if they had the target rate: pitch does not matter here. AAC is encoded by ffmpeg, if there is
one; only `open` reads it.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import soundfile as sf

SECONDS = 60
HERE = Path(__file__).resolve().parent
SOURCES = ["S4A03895_20190522_180000.wav", "rugr_drum.wav", "aru_2.wav", "21100_36_48.flac", "237-134500-0002.flac"]
# Name, rate, channels, libsndfile's format and subtype.
KINDS = [
    ("wav", 32_000, 1, "WAV", "PCM_16"),
    ("flac", 32_000, 1, "FLAC", "PCM_16"),
    ("ogg", 32_000, 1, "OGG", "VORBIS"),
    ("mp3", 32_000, 1, "MP3", "MPEG_LAYER_III"),
    ("ogg_44100_stereo", 44_100, 2, "OGG", "VORBIS"),
    ("w64", 32_000, 1, "W64", "PCM_16"),
    ("aiff", 32_000, 1, "AIFF", "PCM_16"),
    ("au", 32_000, 1, "AU", "PCM_16"),
    ("caf", 32_000, 1, "CAF", "PCM_16"),
    ("alac", 32_000, 1, "CAF", "ALAC_16"),
    ("adpcm", 32_000, 1, "WAV", "IMA_ADPCM"),
]


def main():
    folder = HERE.parent / "target" / "bench-recordings"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [sf.read(HERE.parent / "tests/data/recordings" / name, dtype="float32")[0] for name in SOURCES]
    once = np.concatenate(sources)
    for name, rate, channels, kind, subtype in KINDS:
        mono = np.resize(once, SECONDS * rate)
        # The second channel is the first one slightly delayed: similar, as in a real room, but not equal.
        samples = mono if channels == 1 else np.stack([mono, np.roll(mono, 7)], axis=1)
        path = folder / f"{name}.{kind.lower()}"
        with sf.SoundFile(path, "w", rate, channels, subtype, format=kind) as file:
            for begin in range(0, len(samples), rate):
                file.write(samples[begin : begin + rate])
        print(path, path.stat().st_size)
    for name in ["aac.m4a", "adts.aac"] if shutil.which("ffmpeg") else []:
        path = folder / name
        command = ["ffmpeg", "-v", "error", "-y", "-i", folder / "wav.wav", "-c:a", "aac", "-b:a", "96k", path]
        subprocess.run(command, check=True)
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
