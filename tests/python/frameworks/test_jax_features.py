"""`forebay.jax.features` beside the Rust front end and loaders, with `jit` and `grad`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import device_features
from device_features import in_jax
from drawn_front_ends import CLASSES, drawn, known
from forebay import ConfigError, features
from padded import batches, objects, recordings

jax = pytest.importorskip("jax")

import forebay.jax  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings(tmp_path_factory.mktemp("padded"))


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32)


@pytest.mark.parametrize("name", ["birdmae", "icefall", "whisper", "wav2vec2"])
def test_batches_without_rows_and_rows_without_samples(name: str) -> None:
    of = features.preset(name)
    compute = forebay.jax.features(of)
    for shape in ((0, 64_000), (2, 0), (0,)):
        assert compute(np.zeros(shape, np.float32)).shape == (*shape[:-1], *of.shape(shape[-1]))


def test_presets_on_golden_clips() -> None:
    """The errors are those of docs/features.md."""
    device_features.check("JAX", in_jax)


@pytest.mark.parametrize("kind", ["LogMel", "Fbank", "MFCC"])
def test_any_parameters(kind: str, soak: int) -> None:
    n_compared = 0
    for given, waveform in drawn(kind, 25 * soak):
        of = CLASSES[kind].from_dict(known(kind, given))
        expected, found = of(waveform), np.asarray(jax.jit(forebay.jax.features(of))(waveform))
        assert found.shape == expected.shape, given
        if not found.size or (given["normalization"] == {"type": "MinMax"} and np.ptp(expected) < 1e-3):
            continue
        spread = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3 * spread, err_msg=str(given))
        n_compared += 1
    assert n_compared > 10


@pytest.mark.parametrize("crop", ["whole", "center"])
@pytest.mark.parametrize("name", ["icefall", "nemo", "birdmae", "wav2vec2", "least", "cepstra", "dropped", "pcen"])
def test_padded_batches_equal_a_loader(name: str, crop: str, folder: Path) -> None:
    of = objects()[name]
    waveforms, expected = batches(folder, of, crop, "int16")
    computed = jax.jit(forebay.jax.features(of, padding="excluded" if crop == "whole" else "included"))
    first = None
    if crop == "center":
        first = np.maximum(0, np.rint(-waveforms["start"] * of.sample_rate)).astype(np.int32)
    found = np.asarray(computed(waveforms["waveform"], waveforms["valid_samples"], first))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-3


def test_types_and_channels() -> None:
    x = noise(3, 2, 8000)
    mean, second = features.preset("icefall"), features.preset("icefall", channels=1)
    both = features.preset("icefall", channels="all", n_channels=2)
    of = forebay.jax.features
    np.testing.assert_allclose(of(both)(x)[:, 1], of(second)(x), rtol=0, atol=1e-3)
    np.testing.assert_allclose(of(mean)(x), of(mean)(x.mean(1)), rtol=0, atol=1e-3)
    assert of(mean)(x[0, 0]).shape == mean.shape(8000)
    integers = (x[:, 0] * 20_000).astype(np.int16)
    assert (of(mean)(integers) == of(mean)(integers / np.float32(32768))).all()
    narrow = of(features.LogMel(dtype="bfloat16"))(x[:, 0])
    assert narrow.dtype == jax.numpy.bfloat16
    rust = features.LogMel(dtype="bfloat16")(np.ascontiguousarray(x[:, 0]))
    assert (np.asarray(narrow).view(np.uint16) != rust).mean() < 1e-3
    loud = features.Waveform(dtype="int16", normalize_waveform="peak", peak=2.0)
    assert np.abs(np.asarray(of(loud)(x[0, 0])).astype(int) - loud(x[0, 0])).max() <= 1


@pytest.mark.parametrize("name", ["birdset", "birdmae", "perch", "nemo", "whisper", "wav2vec2"])
def test_gradients(name: str) -> None:
    """Finite, also of silence and of padding."""
    x = noise(3, 24_000)
    x[1] = 0
    computed = forebay.jax.features(name)
    valid = np.array([24_000, 24_000, 12_000])
    found = np.asarray(jax.jit(jax.grad(lambda x: (computed(x, valid) ** 2).sum()))(x))
    assert np.isfinite(found).all()
    assert (found[0] != 0).mean() > 0.9
    assert not found[2, 12_000:].any()


def test_not_a_number_stays() -> None:
    x = noise(2, 16_000)
    x[0, 8000] = np.nan
    for name in ("perch", "icefall"):
        rust = features.preset(name)(x)
        assert (np.isnan(np.asarray(jax.jit(forebay.jax.features(name))(x))) == np.isnan(rust)).all(), name


def test_what_is_refused() -> None:
    computed: Any = forebay.jax.features("icefall")
    with pytest.raises(ConfigError, match=r"preset is 'icefal', must be one of .* did you mean 'icefall'"):
        forebay.jax.features("icefal")
    with pytest.raises(ConfigError, match='padding is \'both\', must be "excluded" or "included"'):
        forebay.jax.features("icefall", padding="both")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="waveform is int32, must be an array of float32"):
        computed(np.zeros((2, 8000), np.int32))
    with pytest.raises(TypeError, match="waveform is list, must be an array of float32"):
        computed([0.0])
    with pytest.raises(TypeError, match=r"valid_samples is \[1, 2\] .* must be an array of integers"):
        computed(noise(2, 8000), [1, 2])
    with pytest.raises(ConfigError, match=r"valid_samples has the shape \[3\], must be \[batch\] .* \[2, 8000\]"):
        computed(noise(2, 8000), np.array([1, 2, 3]))
    with pytest.raises(ConfigError, match='first_valid needs valid_samples and padding="included"'):
        computed(noise(2, 8000), np.array([1, 2]), np.array([1, 2]))
