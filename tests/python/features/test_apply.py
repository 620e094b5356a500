"""`features.apply`: the features of one recording without a loader, and the tables from which devices compute them."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import forebay
from drawn_front_ends import CLASSES, drawn, known
from forebay import ConfigError, features
from forebay._front_end_tables import tables
from front_ends import DEFAULTS, mel_weights, window_of
from recordings import read_rows


def samples(*shape: int) -> Any:
    return np.random.default_rng(0).integers(-20_000, 20_000, shape).astype(np.int16)


@pytest.mark.parametrize("name", features.presets())
def test_equals_the_object(name: str) -> None:
    found = features.preset(name)
    x = samples(24_000)
    expected = found(x.astype(np.float32) / 32768)
    for given in (x, x / 32768, (x / 32768).astype(np.float32), x[None], np.repeat(x, 2)[::2]):
        assert features.apply(given, name, sample_rate=found.sample_rate).tobytes() == expected.tobytes()
    assert features.apply(x, found, sample_rate=found.sample_rate).tobytes() == expected.tobytes()


def test_channels() -> None:
    x = samples(2, 8000)
    mean, second = features.preset("icefall"), features.preset("icefall", channels=1)
    both = features.preset("icefall", channels="all", n_channels=2)
    apart = features.apply(x, both, sample_rate=16_000)
    assert apart.shape == (2, *mean.shape(8000))
    assert (apart[1] == features.apply(x, second, sample_rate=16_000)).all()
    assert (apart[1] == features.apply(x[1], mean, sample_rate=16_000)).all()
    averaged = features.apply(x, mean, sample_rate=16_000)
    assert (averaged == features.apply(x.astype(np.float32).mean(0) / 32768, mean, sample_rate=16_000)).all()


def test_decoded_recordings() -> None:
    decoded, rate = forebay.decode(read_rows()[0].audio or b"")
    found = features.preset("icefall", sample_rate=rate)
    assert features.apply(decoded, found, sample_rate=rate).shape == found.shape(decoded.shape[-1])


def test_what_is_refused() -> None:
    for shape in ((16_000, 2), (0, 16_000)):
        with pytest.raises(ConfigError, match=r"the shape .*, must be \[channels, n_samples\]; .* give waveform\.T"):
            features.apply(np.zeros(shape, np.float32), "icefall", sample_rate=16_000)
    with pytest.raises(
        ConfigError, match=r"sample_rate is 44100, and the front end takes 32000; resample .*AudioDataset"
    ):
        features.apply(samples(9), "birdset", sample_rate=44_100)
    with pytest.raises(TypeError, match=r"sample_rate is 16000\.0 .* must be an int"):
        features.apply(samples(9), "icefall", sample_rate=16_000.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"preset is 'birdse'.* did you mean 'birdset'"):
        features.apply(samples(9), "birdse", sample_rate=32_000)
    with pytest.raises(TypeError, match=r"front_end is None .* must be an object of forebay.features or the name"):
        features.apply(samples(9), None, sample_rate=32_000)
    for wrong, said in (
        ([0.0], "list"),
        (np.zeros(9, int), r"int64 and shape \[9\]"),
        (np.zeros((1, 1, 9)), r"\[1, 1, 9\]"),
    ):
        with pytest.raises(TypeError, match=f"waveform is .*{said}.* must be a numpy array of floats or int16"):
            features.apply(wrong, "icefall", sample_rate=16_000)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="waveform has 2 channels, and channels=2 asks for one with a higher number"):
        features.apply(samples(2, 9), features.preset("icefall", channels=2), sample_rate=16_000)
    with pytest.raises(TypeError, match="n_channels is 3"):
        features.apply(samples(2, 9), features.preset("icefall", channels="all", n_channels=3), sample_rate=16_000)


@pytest.mark.parametrize("kind", ["LogMel", "Fbank", "MFCC"])
def test_tables_are_those_of_the_oracle(kind: str) -> None:
    """Windows and bands, and the number of frames of any number of samples."""
    for given, _ in drawn(kind, 60):
        of = CLASSES[kind].from_dict(known(kind, given))
        made, p = tables(of), DEFAULTS[kind] | given
        length = p["win_length"] or made.n_fft
        window = made.arrays["window"] / np.float32(p["scale"])
        left = (made.span - length) // 2
        np.testing.assert_allclose(window[left : left + length], window_of(p["window"], length), atol=1e-6)
        assert not window[:left].any()
        np.testing.assert_allclose(made.arrays["bands"], mel_weights(made.n_fft, p), rtol=1e-5, atol=1e-6)
        for n in (1, 2, 15, 16, 50, 60, 61, 63, 64, 65, 299, 300, 301, 1000):
            counted = made.count(n) if n >= made.fewest() else 0
            expected = type(of).from_dict(of.to_dict() | {"n_frames": None, "layout": "time"}).shape(n)[0]
            assert counted == expected, (n, given)


def test_tables_and_apply_import_no_framework() -> None:
    code = (
        "import sys, numpy, forebay._front_end_tables, forebay._front_end_steps; from forebay import features; "
        "features.apply(numpy.zeros(9000, 'f4'), 'icefall', sample_rate=16000); "
        "print({'torch', 'jax'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
