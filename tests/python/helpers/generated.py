"""Recordings written by libsndfile, and a comparison of decoded spans with slices of the full decode."""

import io
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import soundfile

import forebay

Samples = npt.NDArray[np.float32]


def signal(n: int, rate: int, channels: int) -> Samples:
    """Noise, two tones and silence in sequence, in a different order in each channel: `[n, channels]`."""
    random = np.random.default_rng(n + channels)
    third = n // 3
    time = np.arange(third) / rate
    parts = [
        random.uniform(-0.3, 0.3, third),
        0.3 * np.sin(2 * np.pi * 440 * time) + 0.2 * np.sin(2 * np.pi * 0.21 * rate * time),
        np.zeros(n - 2 * third),
    ]
    rows = [np.concatenate(parts[c % 3 :] + parts[: c % 3]) for c in range(channels)]
    return np.stack(rows, axis=1).astype(np.float32)


def write(container: str, subtype: str, rate: int, samples: Samples, **options: object) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype, **options)
    return file.getvalue()


def spans(n: int, seed: int) -> Iterator[tuple[int, int | None]]:
    """Starts and lengths of spans: first, last, empty, one sample, to the end, beyond the end, and random ones."""
    yield from [(0, 1), (0, 1000), (n // 2, 0), (n, 0), (n, 5), (n - 1, 1), (n - 1000, None), (n - 10, 1000), (n, None)]
    random = np.random.default_rng(seed)
    for start in random.integers(0, n, 6):
        yield int(start), int(random.integers(1, 5000))


def check_spans(name: str, data: bytes, whole: Samples) -> None:
    n = whole.shape[-1]
    for start, num_samples in spans(n, zlib.crc32(name.encode())):
        part, _ = forebay.decode(data, start, num_samples)
        expected = whole[..., start : None if num_samples is None else start + num_samples]
        assert part.dtype == np.float32
        assert part.shape == expected.shape, f"{name}, {start} + {num_samples}"
        assert np.array_equal(part.view(np.uint32), expected.view(np.uint32)), f"{name}, {start} + {num_samples}"
    for num_samples in [None, 0, 5]:
        with pytest.raises(forebay.ConfigError, match=f"start is {n + 1}, must be 0 to {n}"):
            forebay.decode(data, n + 1, num_samples)
