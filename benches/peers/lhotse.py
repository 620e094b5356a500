"""Lhotse in a torch DataLoader: a cut of a recording in memory, read by its soundfile backend.

Lengths and rates are in manifests, so none is read during the run. The features are those of `work`.
"""

import numpy as np
import soundfile
from lhotse import AudioSource, MonoCut, MultiCut, Recording

from peers import torch_soundfile
from peers.work import CLIP_SECONDS, fit, resample, rng_of

SWEEP = torch_soundfile.SWEEP


class Examples(torch_soundfile.Examples):
    """Reads a window of a cut."""

    def __init__(self, files: list[str], seed: int, mel: str):
        super().__init__(files, seed, mel, None)
        self.manifest = [soundfile.info(self.rows.file(index)) for index in range(len(self.rows))]

    def __getitem__(self, key: tuple[int, int]) -> dict:
        position, index = key
        audio, label = self.rows[index]
        waveform = read_window(audio.to_pybytes(), self.manifest[index], rng_of(self.seed, position))
        return {"spectrogram": self.clips.mel(waveform), "label": label, "index": index}


def read_window(data: bytes, found, rng: np.random.Generator) -> np.ndarray:
    """A random window: float32 `[CLIP_SAMPLES]`."""
    rate, channels = found.samplerate, list(range(found.channels))
    source = AudioSource(type="memory", channels=channels, source=data)
    recording = Recording("one", [source], rate, found.frames, found.frames / rate, channels)
    start = rng.uniform(0, max(recording.duration - CLIP_SECONDS, 0))
    kind, channel = (MonoCut, 0) if len(channels) == 1 else (MultiCut, channels)
    cut = kind("one", 0, recording.duration, channel, recording=recording)
    cut = cut.truncate(offset=start, duration=min(CLIP_SECONDS, recording.duration))
    return fit(resample(cut.load_audio().mean(axis=0), rate))


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    return torch_soundfile.batches_of(Examples(files, seed, mel), n_workers)
