"""`forebay.features` against the originals' golden files and the oracle, and what its objects promise."""

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest

import front_ends
from drawn_front_ends import CLASSES, drawn, front_end, known
from forebay import ConfigError, SpectrogramTransform, features
from forebay._part import _Part
from golden_features import LOUD, MEAN, QUIET, Golden, goldens, table

# Where arithmetic in float32 itself is the limit: DC and a square wave of full scale, whose energy is in a few
# bins, and bands of which one is 17 orders below another. The originals in float32 are off by up to 8e-5, 4e-4
# and 5.2e-3.
FLOAT32 = {
    "birdmae-square": (2e-5, LOUD, QUIET), "passt-square": (MEAN, 2e-4, QUIET), "byola-dc": (2e-5, LOUD, QUIET),
    "torchaudio-speech": (5e-5, LOUD, 7e-3), "mfcc_librosa_lifter-square": (2e-5, 2e-4, QUIET),
}  # fmt: skip


@pytest.mark.parametrize("golden", list(goldens()), ids=str)
def test_equals_the_original(golden: Golden) -> None:
    found = front_end(golden)(golden.waveform)
    assert list(found.shape) == golden.clip["shape"]
    assert np.isfinite(found).all()
    errors, limits = golden.errors(found), FLOAT32.get(str(golden), (MEAN, LOUD, QUIET))
    assert all(error <= limit for error, limit in zip(errors, limits, strict=True)), errors


def kept(found: Any) -> dict[str, Any]:
    return {"empty_bands": "keep"} if hasattr(found, "empty_bands") else {}


@pytest.mark.parametrize("name", features.presets())
def test_presets(name: str) -> None:
    """The table of the package is that of the golden files; presets print, compare, pickle, and are JSON."""
    found = features.preset(name)
    entry = table("presets")[name]
    expected = _Part.from_dict(known(entry["class"], entry["parameters"]))
    assert dataclasses.replace(found, **kept(found)) == expected
    assert eval(repr(found), vars(features).copy()) == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert _Part.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert hash(found) == hash(features.preset(name))


def test_the_default_is_that_of_loaders() -> None:
    waveform = np.random.default_rng(0).normal(0, 0.1, 32000).astype(np.float32)
    assert (features.LogMel()(waveform) == SpectrogramTransform().transform(waveform)).all()


def test_batches_are_their_rows() -> None:
    waveforms = np.random.default_rng(0).normal(0, 0.1, (7, 4000)).astype(np.float32)
    for name in ("birdset", "whisper", "beats", "wav2vec2"):
        found = features.preset(name)
        assert (found(waveforms) == np.stack([found(row) for row in waveforms])).all()
        assert found(waveforms[:0]).shape == (0, *found.shape(4000))


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"n_fft is 1, must be 2 to 65536; n_mels is 0, must be 1 to 4096$"):
        features.LogMel(n_fft=1, n_mels=0)
    with pytest.raises(ConfigError, match="drop_last is True, which needs center=True"):
        features.LogMel(center=False, drop_last=True)
    with pytest.raises(ConfigError, match=r"band 0 .* is empty"):
        features.LogMel(n_fft=64)
    with pytest.raises(ConfigError, match=r"f_max is 16001\.0, must be above 0 and at most half"):
        features.LogMel(f_max=16001.0)
    with pytest.raises(ConfigError, match=r"float16.*65504"):
        features.Spectrogram(dtype="float16")
    with pytest.raises(TypeError, match=r"n_mels is '80' .*must be an int"):
        features.LogMel(n_mels="80")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='window is "hannn", must be one of "hann", "hanning"'):
        features.LogMel(window="hannn")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mean has 3 numbers, must be one, or one for each of 128 bands"):
        features.LogMel(normalization=features.Standard(mean=[1, 2, 3], std=1.0))
    for wrong in (
        np.zeros(10),
        np.zeros((2, 2, 2), np.float32),
        [0.0],
        np.zeros((4, 4), np.float32)[:, ::2],
        np.zeros((4, 2), np.float32).T,
    ):
        with pytest.raises(TypeError, match="must be a C-contiguous numpy array of float32"):
            features.LogMel()(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="type is 'Nothing', must be one of"):
        features.LogMel.from_dict({"type": "Nothing"})


def test_not_a_number_stays() -> None:
    waveform = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    waveform[8000] = np.nan
    for name in features.presets():
        assert np.isnan(features.preset(name)(waveform)).any(), name


@pytest.mark.parametrize("kind", ["LogMel", "Fbank", "MFCC"])
def test_any_parameters_equal_the_oracle(kind: str, soak: int) -> None:
    """Combinations at random, clips from 1 sample on; the oracle computes in float64."""
    n_compared = 0
    for given, waveform in drawn(kind, 150 * soak):
        expected = front_ends.reference(kind, given, waveform)
        found = CLASSES[kind].from_dict(known(kind, given))(waveform)
        assert found.shape == expected.shape, given
        if not found.size:
            continue
        plain = front_ends.reference(kind, given | {"normalization": None}, waveform)
        if given["normalization"] == {"type": "MinMax"} and np.ptp(plain) < 1e-3:
            continue  # rounding errors become 0 or 1
        spread = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3 * spread, err_msg=str(given))
        n_compared += 1
    assert n_compared > 50
