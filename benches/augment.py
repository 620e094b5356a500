"""Augmentation: examples per second with each step, as a share of those without.

    python benches/augment.py [--rounds 5] [--seconds 3] [--peer]

Recordings are 64 files of OGG Vorbis of 10 s at 32 kHz (soundfile, the recordings of tests/data); clips of 5 s, the
features "birdset", two workers. The loaders take turns, and the medians of their rates are compared. `--peer`: the
recipe of BirdSet beside a DataLoader of torch with as many workers, soundfile, torchaudio, and audiomentations or
torch-audiomentations.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
from sounds import sound

import forebay
from forebay import recipes, targets
from forebay.augment import (
    Clip,
    CutMix,
    Dither,
    DropChunk,
    DropFreq,
    Filter,
    FrameRoll,
    Gain,
    Level,
    Mix,
    Mixup,
    Noise,
    Polarity,
    Python,
    Reverb,
    Roll,
    SpecAugment,
    Speed,
)


def half(values: Any, _: int) -> Any:
    """A function of the least work."""
    return values * np.float32(0.5)


RATE, SECONDS, FILES = 32_000, 10, 64
LABELS = ["owl", "wren", "jay", "crow"]
CHEAP = [Gain(p=0.5), Polarity(), Roll(p=0.5), Clip(p=0.2), SpecAugment(), FrameRoll(p=0.5)]
STEPS: dict[str, list[Any]] = {
    "Gain": [Gain()],
    "Polarity": [Polarity(p=1.0)],
    "Level": [Level(-20)],
    "Level, LUFS": [Level(-20, measure="lufs")],
    "Roll": [Roll()],
    "Noise, white": [Noise()],
    "Noise, pink": [Noise(slope_db=-3.0)],
    "Filter, lowpass": [Filter("lowpass", (500, 8000))],
    "Filter, 4 peaks": [Filter("peak", (100, 10_000), n=4)],
    "Clip": [Clip()],
    "Dither": [Dither()],
    "DropFreq": [DropFreq()],
    "DropChunk": [DropChunk()],
    "Speed": [Speed((0.9, 1.1))],
    "Mix, own rows": [Mix(snr_db=(3, 30))],
    "SpecAugment": [SpecAugment()],
    "SpecAugment, warp": [SpecAugment(warp=80)],
    "FrameRoll": [FrameRoll()],
    "Mixup": [Mixup()],
    "Python, a product": [Python(half)],
    "CutMix": [CutMix()],
    "all cheap steps": CHEAP,
}


def write(folder: Path) -> tuple[Path, list[Path]]:
    """A shard, and the same recordings as files."""
    samples = np.resize(sound(RATE), FILES * SECONDS * RATE).reshape(FILES, -1)
    paths = [folder / f"{i:02}.ogg" for i in range(FILES)]
    for path, one in zip(paths, samples, strict=True):
        soundfile.write(path, one, RATE, format="OGG", subtype="VORBIS")
    table = pa.table(
        {
            "audio": pa.array([{"bytes": path.read_bytes(), "path": path.name} for path in paths]),
            "labels": [LABELS[: 1 + i % 4] for i in range(FILES)],
        }
    )
    shard = folder / "shard.arrow"
    with pa.OSFile(str(shard), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    return shard, paths


def batches(shard: Path, **given: Any) -> Iterator[Any]:
    """Batches of 64 without end."""
    multi = targets.MultiHot("labels", classes=LABELS)
    keywords = {"clip_seconds": 5.0, "features": "birdset", "targets": multi, **given}
    workers = min(2, os.cpu_count() or 1)
    window = {"order": "window", "shuffle_min_size": 64}
    return iter(forebay.Loader([shard], batch_size=64, n_workers=workers, **window, **keywords))


def rooms(folder: Path) -> Path:
    """A folder with impulse responses of a second."""
    made = folder / "rooms"
    made.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    for i in range(8):
        response = random.standard_normal(RATE) * np.exp(-6.9 * np.arange(RATE) / RATE)
        soundfile.write(made / f"{i}.wav", response / np.abs(response).max(), RATE)
    return made


def audiomentations_of(folder: str) -> Callable[[Any], Any]:
    """The recipe's steps on waveforms."""
    import audiomentations
    import torch

    steps = audiomentations.Compose(
        [
            audiomentations.AddBackgroundNoise(sounds_path=folder, min_snr_db=3, max_snr_db=30, p=0.7),
            audiomentations.AddBackgroundNoise(sounds_path=folder, min_snr_db=3, max_snr_db=30, p=0.5),
            audiomentations.AddColorNoise(min_snr_db=3, max_snr_db=30, p=0.2),
            audiomentations.Gain(min_gain_db=-18, max_gain_db=6, p=0.2),
        ]
    )
    return lambda samples: torch.from_numpy(steps(samples, RATE))


def torch_audiomentations_of(folder: str) -> Callable[[Any], Any]:
    """The same by torch-audiomentations, which takes batches: here of one."""
    import torch
    import torch_audiomentations

    shared = {"sample_rate": RATE, "output_type": "tensor"}
    noise = {"background_paths": folder, "min_snr_in_db": 3, "max_snr_in_db": 30, **shared}
    steps = [
        torch_audiomentations.AddBackgroundNoise(**noise, p=0.7),
        torch_audiomentations.AddBackgroundNoise(**noise, p=0.5),
        torch_audiomentations.AddColoredNoise(min_snr_in_db=3, max_snr_in_db=30, p=0.2, **shared),
        torch_audiomentations.Gain(min_gain_in_db=-18, max_gain_in_db=6, p=0.2, **shared),
    ]

    def apply(samples: Any) -> Any:
        made = torch.from_numpy(samples)[None, None]
        for step in steps:
            made = step(made, sample_rate=RATE)
        return made[0, 0]

    return apply


def peer(paths: list[Path], steps_of: Callable[[str], Callable[[Any], Any]]) -> Iterator[Any]:
    """The same recipe as a BirdSet user has it: soundfile, a library and torchaudio in workers of a DataLoader."""
    import torch
    import torchaudio

    # torch-audiomentations 0.12 calls what torchaudio 2.9 has no more.
    def info(path: str) -> Any:
        found = soundfile.info(path)
        return SimpleNamespace(num_frames=found.frames, sample_rate=found.samplerate)

    def load(path: str, frame_offset: int = 0, num_frames: int = -1) -> Any:
        samples, rate = soundfile.read(path, num_frames, frame_offset, dtype="float32", always_2d=True)
        return torch.from_numpy(samples.T), rate

    torchaudio.info, torchaudio.load = info, load
    waveform = steps_of(str(paths[0].parent))
    power = torchaudio.transforms.Spectrogram(n_fft=1024, hop_length=320)
    mel = torchaudio.transforms.MelScale(128, RATE, n_stft=513)
    masks = [torchaudio.transforms.FrequencyMasking(100), torchaudio.transforms.TimeMasking(100)]
    decibel = torchaudio.transforms.AmplitudeToDB(top_db=80)

    class Recordings(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, at: int) -> Any:
            random = np.random.default_rng(at)
            path = paths[random.integers(len(paths))]
            start = random.integers((SECONDS - 5) * RATE)
            samples, _ = soundfile.read(path, 5 * RATE, start, dtype="float32")
            spectrum = power(waveform(samples))
            for mask, share in zip(masks, (0.5, 0.3), strict=True):
                if random.random() < share:
                    spectrum = mask(spectrum[None])[0]
            return decibel(mel(spectrum))

    torch.set_num_threads(1)
    workers = min(2, os.cpu_count() or 1)
    return iter(torch.utils.data.DataLoader(Recordings(), 64, num_workers=workers))


def rate(batches: Iterator[Any], seconds: float) -> float:
    """Examples per second."""
    n, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        next(batches)
        n += 64
    return n / spent


def main() -> None:
    """Prints a table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--seconds", type=float, default=3.0)
    given.add_argument("--peer", action="store_true")
    arguments = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shard, paths = write(Path(folder))
        birdset = recipes.birdset("labels", classes=LABELS, background=str(shard))
        makers = {"none": lambda: batches(shard)}
        for name, steps in STEPS.items():
            makers[name] = lambda steps=steps: batches(shard, augment=steps)
        makers["Reverb, 1 s"] = lambda: batches(shard, augment=[Reverb(str(rooms(Path(folder))))])
        makers["recipes.birdset"] = lambda: batches(shard, **birdset)
        if arguments.peer:
            makers["DataLoader with audiomentations"] = lambda: peer(paths, audiomentations_of)
            makers["DataLoader with torch-audiomentations"] = lambda: peer(paths, torch_audiomentations_of)
        rates: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(arguments.rounds):
            for name, make in makers.items():
                made = make()
                for _ in range(3):
                    next(made)
                rates[name].append(rate(made, arguments.seconds))
                del made
        print("| augmentation | examples/s | share |\n|---|---|---|")
        for name, found in rates.items():
            middle = statistics.median(found)
            share = statistics.median(one / other for one, other in zip(found, rates["none"], strict=True))
            print(f"| {name} | {middle:.0f} | {share:.0%} |")


if __name__ == "__main__":
    main()
