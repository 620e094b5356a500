"""The data set of the peer bench: one set of recordings in six formats, as Hugging Face shards.

Input: the CC0 sounds of Debian's package `sonic-pi-samples`, fetched by apt and unpacked without installing
it. Output, in the given folder: `<format>/data-*.arrow` as `datasets` writes them (IPC streams, column
`audio` = struct<bytes, path>).

Each recording lasts 10 to 120 s, 38 s on average, like field recordings. It consists of two layers of
consecutive sounds, each at its own gain and speed. All choices come from one seed. Quality settings vary from
recording to recording, so that the codec's setup headers differ, as in a collection with several
contributors.
"""

import argparse
import io
import json
import shutil
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import soxr

N_RECORDINGS = 240
N_SHARDS = 3
SEED = 20
SOURCE_RATE = 44100
RATE = 32000
OPUS_RATE = 48000  # the rate at which Opus is decoded
FORMATS = ("ogg", "mp3", "flac", "wav", "ogg44", "opus")


def fetch_sounds(folder: Path) -> Path:
    """Downloads and unpacks the Debian package; returns the folder with its FLAC files."""
    sounds = folder / "usr/share/sonic-pi/samples"
    if not sounds.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            subprocess.run(["apt-get", "download", "-qq", "sonic-pi-samples"], cwd=temporary, check=True)
            (package,) = Path(temporary).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return sounds


@cache
def read_sounds(folder: Path) -> list[np.ndarray]:
    """Every sound as mono float32 at 44.1 kHz, in the order of the file names."""
    sounds = []
    for path in sorted(folder.glob("*.flac")):
        waveform, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if rate != SOURCE_RATE:
            raise ValueError(f"{path} is at {rate} Hz, expected {SOURCE_RATE}")
        sounds.append(waveform.mean(axis=1))
    return sounds


def durations() -> np.ndarray:
    """Seconds of each recording: log-normal, cut to 10..120, mean 38."""
    rng = np.random.default_rng(SEED)
    return np.clip(rng.lognormal(np.log(35), 0.58, N_RECORDINGS), 10, 120)


def compose(index: int, seconds: float, sounds: list[np.ndarray]) -> np.ndarray:
    """One recording at 44.1 kHz, peak 0.7."""
    rng = np.random.default_rng([SEED, index])
    n_samples = round(seconds * SOURCE_RATE)
    out = np.zeros(n_samples, np.float32)
    for _layer in range(2):
        position = 0
        while position < n_samples:
            sound = sounds[rng.integers(len(sounds))]
            speed = rng.uniform(0.7, 1.3)
            sound = soxr.resample(sound, SOURCE_RATE * speed, SOURCE_RATE) * np.float32(rng.uniform(0.2, 1))
            sound = sound[: n_samples - position]
            out[position : position + len(sound)] += sound
            position += max(len(sound), 1)
    return out * np.float32(0.7 / max(np.abs(out).max(), 1e-3))


def encode(waveform: np.ndarray, rate: int, container: str, **options) -> bytes:
    """The waveform as a file in memory."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, format=container, **options) as out:
        for start in range(
            0, len(waveform), rate
        ):  # libvorbis is given one second at a time: long writes overflow its stack
            out.write(waveform[start : start + rate])
    return file.getvalue()


def recording(arguments: tuple[int, float, Path]) -> tuple[dict[str, bytes], int, int]:
    """One recording in every format, and its length at both rates."""
    index, seconds, folder = arguments
    sounds = read_sounds(folder)
    original = compose(index, seconds, sounds)
    waveform = soxr.resample(original, SOURCE_RATE, RATE, quality="VHQ")
    rng = np.random.default_rng([SEED, index, 1])
    level = float(rng.choice([0.3, 0.4, 0.5, 0.6]))
    mode = str(rng.choice(["CONSTANT", "VARIABLE"]))
    full = soxr.resample(original, SOURCE_RATE, OPUS_RATE, quality="VHQ")
    files = {
        "ogg": encode(waveform, RATE, "OGG", subtype="VORBIS", compression_level=level),
        "mp3": encode(waveform, RATE, "MP3", subtype="MPEG_LAYER_III", compression_level=level, bitrate_mode=mode),
        "flac": encode(waveform, RATE, "FLAC", subtype="PCM_16"),
        "wav": encode(waveform, RATE, "WAV", subtype="PCM_16"),
        "ogg44": encode(original, SOURCE_RATE, "OGG", subtype="VORBIS", compression_level=level),
        "opus": encode(full, OPUS_RATE, "OGG", subtype="OPUS", compression_level=level),
    }
    return files, len(waveform), len(original)


def build(work: Path) -> None:
    """Writes every format's shards, and `summary.json` last: a folder without it is incomplete."""
    import torchcodec  # noqa: F401  `datasets` asks for it when it writes audio; better to fail before four minutes of work
    from datasets import Audio, ClassLabel, Dataset, Features

    sounds = fetch_sounds(work / "sounds")
    jobs = [(index, float(seconds), sounds) for index, seconds in enumerate(durations())]
    with ProcessPoolExecutor() as pool:
        made = list(pool.map(recording, jobs, chunksize=4))
    features = Features({"audio": Audio(), "label": ClassLabel(names=[f"class{label}" for label in range(10)])})
    summary = {
        "recordings": len(made),
        "mean_seconds": round(sum(length for _, length, _ in made) / RATE / len(made), 2),
        "megabytes": {},
    }
    for name in FORMATS:
        extension = name.removesuffix("44")
        rows = {
            "audio": [
                {"bytes": files[name], "path": f"{index}.{extension}"} for index, (files, _, _) in enumerate(made)
            ],
            "label": [index % 10 for index in range(len(made))],
        }
        folder = work / name
        shutil.rmtree(folder, ignore_errors=True)
        Dataset.from_dict(rows, features=features).save_to_disk(folder, num_shards=N_SHARDS)
        summary["megabytes"][name] = round(sum(len(files[name]) for files, _, _ in made) / 1e6, 1)
    (work / "summary.json").write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    work = parser.parse_args().work
    build(work)
    print((work / "summary.json").read_text())
