"""`forebay.decode`: spans of recordings as numpy arrays."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

import forebay
from recordings import FOLDER

FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in {".flac", ".mp3", ".ogg", ".wav"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_span_is_the_slice_of_the_whole(path: Path) -> None:
    data = path.read_bytes()
    whole, rate = forebay.decode(data)
    expected, expected_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == expected_rate
    assert whole.dtype == np.float32
    assert whole.shape == expected.T.shape
    np.testing.assert_allclose(whole, expected.T, atol=1e-4 if path.suffix in {".mp3", ".ogg"} else 0)
    n = whole.shape[-1]
    for start, num_samples in [(0, 1), (0, 0), (n - 1, 1), (n // 3, 5000), (n - 100, 1000), (n, 7), (n // 2, None)]:
        part, _ = forebay.decode(data, start, num_samples)
        end = None if num_samples is None else start + num_samples
        np.testing.assert_array_equal(part, whole[..., start:end])


def test_wrong_calls() -> None:
    data = FILES[0].read_bytes()
    n = forebay.decode(data)[0].shape[-1]
    with pytest.raises(forebay.ConfigError, match=rf"start is {n + 1}, must be 0 to {n}"):
        forebay.decode(data, n + 1)
    with pytest.raises(ValueError, match="start is -1"):
        forebay.decode(data, -1)
    with pytest.raises(ValueError, match="num_samples is -3"):
        forebay.decode(data, num_samples=-3)
    assert forebay.decode(data, n - 5, 2**70)[0].shape[-1] == 5
    with pytest.raises(forebay.DecodeError):
        forebay.decode(b"not a recording")
    with pytest.raises(forebay.DecodeError):
        forebay.decode(b"")
    with pytest.raises(TypeError):
        forebay.decode("a path")  # type: ignore[arg-type]
