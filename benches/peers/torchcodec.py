"""torchcodec in a torch DataLoader: its decoder seeks to the window. Otherwise as `torch_soundfile`.

WAV has a decoder of its own, which reads only the window.
"""

import numpy as np
from torchcodec.decoders import AudioDecoder, WavDecoder

from peers import torch_soundfile
from peers.work import fit, random_start, resample

SWEEP = torch_soundfile.SWEEP


def read_window(file, rng: np.random.Generator) -> np.ndarray:
    """A random window from an open file-like object: float32 `[CLIP_SAMPLES]`."""
    is_wav = file.read(4) == b"RIFF"
    file.seek(0)
    decoder = WavDecoder(file) if is_wav else AudioDecoder(file.read())
    found = decoder.metadata
    rate = found.sample_rate
    start, length = random_start(round(found.duration_seconds_from_header * rate), rate, rng)
    samples = decoder.get_samples_played_in_range(start / rate, (start + length) / rate).data.numpy()
    mono = samples[0] if len(samples) == 1 else samples.mean(axis=0)
    return fit(resample(mono, rate))


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    return torch_soundfile.batches(files, seed, n_workers, mel, read_window)
