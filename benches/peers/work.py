"""The work of every peer per example: read a random 5 s window, mean of the channels, 32 kHz, log-mel.

Input: the bytes of one recording. Output: float32 `[N_MELS, N_FRAMES]`, natural log with floor 1e-10, HTK mel
without norm.

This is the hand-tuned version: it seeks to the window and decodes only that. Every large buffer is kept
between examples (fresh memory takes half of the time of a plain mel). The filterbank is multiplied in bands,
since nearly all of it is zero. A peer with its own decoder or mel uses that instead where it is faster; its
module says so.
"""

import threading

import numpy as np

SAMPLE_RATE = 32000
CLIP_SECONDS = 5.0
CLIP_SAMPLES = round(SAMPLE_RATE * CLIP_SECONDS)
N_MELS = 128
N_FFT = 1024
HOP_LENGTH = 320
N_BINS = N_FFT // 2 + 1
N_FRAMES = 1 + CLIP_SAMPLES // HOP_LENGTH
BATCH_SIZE = 64
FLOOR = 1e-10
MELS_PER_BAND = 16


def rng_of(seed: int, index: int) -> np.random.Generator:
    """The generator of one example; making one is cheap compared with decoding."""
    return np.random.default_rng([seed, index])


def mel_filterbank() -> np.ndarray:
    """Triangles on the HTK mel scale, 0 Hz to Nyquist, no norm: float32 `[N_MELS, N_BINS]`."""
    frequencies = np.linspace(0, SAMPLE_RATE / 2, N_BINS)
    top = 2595 * np.log10(1 + SAMPLE_RATE / 2 / 700)
    points = 700 * (10 ** (np.linspace(0, top, N_MELS + 2) / 2595) - 1)
    widths = np.diff(points)
    slopes = points[:, None] - frequencies
    return np.maximum(0, np.minimum(-slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None])).astype(np.float32)


def mel_bands() -> list[tuple[slice, slice, np.ndarray]]:
    """The filterbank cut into groups of neighbouring mels: (mels, their bins, that block)."""
    filterbank = mel_filterbank()
    bands = []
    for first in range(0, N_MELS, MELS_PER_BAND):
        mels = slice(first, first + MELS_PER_BAND)
        touched = np.flatnonzero(filterbank[mels].any(axis=0))
        bins = slice(int(touched[0]), int(touched[-1]) + 1)
        bands.append((mels, bins, np.ascontiguousarray(filterbank[mels, bins])))
    return bands


def periodic_hann() -> np.ndarray:
    return np.hanning(N_FFT + 1)[:-1].astype(np.float32)


class ScipyMel:
    """Log-mel by scipy's FFT and numpy, in kept buffers. The next call overwrites the result; one object per thread."""

    def __init__(self):
        import scipy.fft

        self.rfft = scipy.fft.rfft
        self.window = periodic_hann()
        self.bands = mel_bands()
        self.padded = np.empty(CLIP_SAMPLES + N_FFT, np.float32)
        self.frames = np.lib.stride_tricks.sliding_window_view(self.padded, N_FFT)[::HOP_LENGTH]
        self.windowed = np.empty((N_FRAMES, N_FFT), np.float32)
        self.power = np.empty((N_FRAMES, N_BINS), np.float32)
        self.square = np.empty((N_FRAMES, N_BINS), np.float32)
        self.out = np.empty((N_MELS, N_FRAMES), np.float32)

    def __call__(self, waveform: np.ndarray) -> np.ndarray:
        reflect(waveform, self.padded)
        np.multiply(self.frames, self.window, out=self.windowed)
        spectrum = self.rfft(self.windowed, axis=1)
        np.square(spectrum.real, out=self.power)
        np.square(spectrum.imag, out=self.square)
        self.power += self.square
        for mels, bins, block in self.bands:
            np.matmul(block, self.power[:, bins].T, out=self.out[mels])
        np.maximum(self.out, FLOOR, out=self.out)
        return np.log(self.out, out=self.out)


class TorchMel:
    """Log-mel by torch (MKL's FFT), in kept buffers. The next call overwrites the result; one object per thread."""

    def __init__(self):
        import torch

        self.torch = torch
        self.window = torch.from_numpy(periodic_hann())
        self.bands = [(mels, bins, torch.from_numpy(block)) for mels, bins, block in mel_bands()]
        self.padded = np.empty(CLIP_SAMPLES + N_FFT, np.float32)
        self.frames = torch.from_numpy(self.padded).as_strided((N_FRAMES, N_FFT), (HOP_LENGTH, 1))
        self.windowed = torch.empty(N_FRAMES, N_FFT)
        self.spectrum = torch.empty(N_FRAMES, N_BINS, dtype=torch.complex64)
        self.real, self.imag = torch.view_as_real(self.spectrum).unbind(-1)
        self.power = torch.empty(N_FRAMES, N_BINS)
        self.out = torch.empty(N_MELS, N_FRAMES)

    def __call__(self, waveform: np.ndarray) -> np.ndarray:
        reflect(waveform, self.padded)
        self.torch.mul(self.frames, self.window, out=self.windowed)
        self.torch.fft.rfft(self.windowed, out=self.spectrum)
        self.torch.mul(self.real, self.real, out=self.power)
        self.power.addcmul_(self.imag, self.imag)
        for mels, bins, block in self.bands:
            self.torch.mm(block, self.power[:, bins].T, out=self.out[mels])
        return self.out.clamp_(FLOOR).log_().numpy()


def new_mel(name: str):
    """`"torch"` or `"scipy"`, chosen by a sweep."""
    return {"torch": TorchMel, "scipy": ScipyMel}[name]()


def reflect(waveform: np.ndarray, padded: np.ndarray) -> None:
    """Writes the waveform with `N_FFT / 2` reflected samples at either side."""
    half = N_FFT // 2
    padded[half:-half] = waveform
    padded[:half] = waveform[half:0:-1]
    padded[-half:] = waveform[-2 : -half - 2 : -1]


def fit(waveform: np.ndarray) -> np.ndarray:
    """Cuts or zero-pads at the end to `CLIP_SAMPLES`."""
    if len(waveform) >= CLIP_SAMPLES:
        return waveform[:CLIP_SAMPLES]
    return np.pad(waveform, (0, CLIP_SAMPLES - len(waveform)))


def random_start(n_samples: int, rate: int, rng: np.random.Generator) -> tuple[int, int]:
    """Start and length, at the recording's own rate, of a window of `CLIP_SECONDS`."""
    length = -(-CLIP_SAMPLES * rate // SAMPLE_RATE)
    return int(rng.integers(max(n_samples - length, 0) + 1)), length


def resample(waveform: np.ndarray, rate: int) -> np.ndarray:
    """To `SAMPLE_RATE` by soxr HQ, a fast resampler of good quality in Python."""
    if rate == SAMPLE_RATE:
        return waveform
    import soxr

    return soxr.resample(waveform, rate, SAMPLE_RATE, quality="HQ")


def read_window(file, rng: np.random.Generator) -> np.ndarray:
    """A random window from an open file-like object by soundfile: float32 `[CLIP_SAMPLES]`."""
    import soundfile

    with soundfile.SoundFile(file) as recording:
        start, length = random_start(recording.frames, recording.samplerate, rng)
        recording.seek(start)
        waveform = recording.read(length, dtype="float32", always_2d=True)
        rate = recording.samplerate
    mono = waveform[:, 0] if waveform.shape[1] == 1 else waveform.mean(axis=1)
    return fit(resample(mono, rate))


class Clips:
    """`(file, rng) -> [N_MELS, N_FRAMES]`, a new array; works in several threads and can be pickled."""

    def __init__(self, mel: str, read=read_window):
        self.mel_name, self.read = mel, read
        self.local = threading.local()

    def mel(self, waveform: np.ndarray) -> np.ndarray:
        if not hasattr(self.local, "mel"):
            self.local.mel = new_mel(self.mel_name)
        return self.local.mel(waveform).copy()

    def __call__(self, file, rng: np.random.Generator) -> np.ndarray:
        return self.mel(self.read(file, rng))

    def __getstate__(self) -> tuple:
        return self.mel_name, self.read

    def __setstate__(self, state: tuple) -> None:
        self.__init__(*state)


def shuffled(n_rows: int, seed: int):
    """Endless `(position, index)`: a new permutation of the rows each epoch."""
    position = 0
    epoch = 0
    while True:
        for index in rng_of(seed, epoch).permutation(n_rows):
            yield position, int(index)
            position += 1
        epoch += 1


def collate(examples: list[tuple[np.ndarray, int, int]]) -> dict:
    """`(spectrogram, label, index)` tuples as a batch."""
    spectrograms, labels, indices = zip(*examples, strict=True)
    return {"spectrogram": np.stack(spectrograms), "label": np.array(labels), "index": np.array(indices)}
