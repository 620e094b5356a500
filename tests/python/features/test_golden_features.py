"""The oracle of `forebay.features` against the originals, and by hand where no original has a parameter.

Runs with numpy alone: `python -m pytest --noconftest tests/python/features/test_golden_features.py`.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from front_ends import DEFAULTS, mel_weights, mirrored, reference, reflected
from golden_features import LOUD, MEAN, QUIET, Golden, goldens, table

SMALL: dict[str, Any] = {"sample_rate": 8000, "n_fft": 64, "hop_length": 32, "n_mels": 4}


@pytest.mark.parametrize("golden", list(goldens()), ids=str)
def test_the_oracle_agrees_with_the_original(golden: Golden) -> None:
    assert "refused" not in golden.clip
    features = reference(golden.kind, golden.parameters, golden.waveform)
    assert list(features.shape) == golden.clip["shape"]
    mean, loud, quiet = golden.errors(features)
    assert mean <= MEAN
    assert loud <= LOUD
    assert quiet <= QUIET


WRONG: dict[str, dict[str, Any]] = {
    "ast": {"normalization": {"type": "Standard", "mean": -4.2677393, "std": 4.5689974}},
    "beats": {"window": "hanning"},
    "birdmae": {"fill": 0.0},
    "birdset": {"f_min": 1.0},
    "byola": {"compression": {"type": "Ln", "eps": 1e-5}},
    "clap": {"mel_scale": "slaney"},
    "icefall": {"f_max": -399.0},
    "librosa": {"pad_mode": "reflect"},
    "m2d": {"norm": None},
    "nemo": {"normalization": {"type": "ZScore", "per": "band"}},
    "passt": {"window": "hann"},
    "perch": {"pad_mode": "reflect"},
    "torchaudio": {"power": 1.0},
    "wav2vec2": {"normalize_waveform": "peak"},
    "wenet": {"preemphasis": 0.96},
    "whisper": {"f_min": 1.0},
    "whisper128": {"normalization": {"type": "Standard", "mean": -4.0, "std": 4.01}},
}


@pytest.mark.parametrize("name", WRONG)
def test_the_limits_see_a_wrong_parameter(name: str) -> None:
    golden = next(golden for golden in goldens() if (golden.name, golden.label) == (name, "speech"))
    features = reference(golden.kind, golden.parameters | WRONG[name], golden.waveform)
    assert max(golden.errors(features)) > QUIET


def test_every_preset_has_all_signals() -> None:
    signals = {"field", "speech", "silence", "dc", "square", "noise", "short"}
    for name, entry in table("presets").items():
        assert signals <= entry["clips"].keys() or name == "birdnet"
        assert entry["parameters"].keys() <= DEFAULTS[entry["class"]].keys() | {"sample_rate"}


def noise(n: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, 0.1, n)


def test_reflection_is_numpys_for_any_width() -> None:
    for n in (1, 2, 3, 7):
        x = np.arange(n)
        assert [reflected(i, n) for i in range(-20, n + 20)] == np.pad(x, 20, mode="reflect").tolist()
        assert [mirrored(i, n) for i in range(-20, n + 20)] == np.pad(x, 20, mode="symmetric").tolist()


def test_waveforms() -> None:
    x = noise(100)
    assert np.abs(reference("Waveform", {"normalize_waveform": "peak", "peak": 0.25}, x)).max() == pytest.approx(0.25)
    assert not reference("Waveform", {"normalize_waveform": "peak"}, np.zeros(9)).any()
    assert reference("Waveform", {"remove_mean": True, "scale": 2.0}, [1, 2, 3]).tolist() == [-2, 0, 2]
    stereo = np.array([[0.5, 1.0], [0.0, -1.0]])
    assert reference("Waveform", {}, stereo).tolist() == [0.25, 0.0]
    assert reference("Waveform", {"channels": 1}, stereo).tolist() == [0.0, -1.0]
    assert reference("Waveform", {"channels": "all"}, stereo).tolist() == stereo.tolist()
    steps = [0.5 / 32768, 1.5 / 32768, -0.5, 1.0, -1.0, 2.0]
    assert reference("Waveform", {"dtype": "int16"}, steps).tolist() == [0, 2, -16384, 32767, -32768, 32767]
    assert reference("Waveform", {"dtype": "float16"}, x).dtype == np.float16


def test_narrow_types() -> None:
    x = noise(500)
    plain = reference("LogMel", SMALL, x)
    assert (reference("LogMel", SMALL | {"dtype": "float16"}, x) == plain.astype(np.float16)).all()
    narrow = reference("LogMel", SMALL | {"dtype": "bfloat16"}, x)
    assert narrow.dtype == np.float32
    assert not (narrow.view(np.uint32) & 0xFFFF).any()
    assert np.abs(narrow / plain - 1).max() <= 2**-8
    # A tie goes to the even neighbour.
    one = reference("Waveform", {"dtype": "bfloat16"}, [1 + 2**-8, 1 + 3 * 2**-8])
    assert one.tolist() == [1.0, 1 + 2**-6]


def test_length_and_fill() -> None:
    x = noise(320)
    plain = reference("LogMel", SMALL, x)
    assert plain.shape == (4, 11)
    assert (reference("LogMel", SMALL | {"n_frames": 5}, x) == plain[:, :5]).all()
    assert (reference("LogMel", SMALL | {"n_frames": 14, "fill": -3.0}, x)[:, 11:] == -3).all()
    assert (reference("LogMel", SMALL | {"n_frames": 14, "fill": "minimum"}, x)[:, 11:] == plain.min()).all()
    silent = reference("LogMel", SMALL | {"n_frames": 14}, x)
    assert (silent[:, :11] == plain).all()
    assert silent[:, 11:] == pytest.approx(np.log(1e-10))
    # Limits relative to the maximum hold for frames of silence.
    whisper = {"compression": {"type": "Log10", "range": 2.0}, "n_frames": 14}
    y = reference("LogMel", SMALL | whisper, x)
    assert y[:, 11:] == pytest.approx(y.max() - 2)
    none = {"sample_rate": 8000, "n_mels": 4, "win_length": 64, "hop_length": 32}
    assert reference("Fbank", none, noise(63)).shape == (4, 0)
    empty = reference("Fbank", none | {"n_frames": 3, "fill": "minimum"}, noise(63))
    assert empty == pytest.approx(np.full((4, 3), np.log(1.1920929e-07)))
    assert (reference("Fbank", none | {"n_frames": 3, "fill": 2.0}, noise(63)) == 2).all()


def test_normalizations() -> None:
    x = noise(320)
    plain = reference("LogMel", SMALL, x)
    low_high = reference("LogMel", SMALL | {"normalization": {"type": "MinMax"}}, x)
    assert (low_high.min(), low_high.max()) == (0, 1)
    assert not reference("LogMel", SMALL | {"normalization": {"type": "MinMax"}}, np.zeros(320)).any()
    z = reference("LogMel", SMALL | {"normalization": {"type": "ZScore", "per": "example"}}, x)
    assert (z.mean(), z.std()) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    filled = {"normalization": {"type": "ZScore", "per": "band", "ddof": 1, "eps": 0.5}, "n_frames": 14}
    z = reference("LogMel", SMALL | filled, x)
    assert z[:, :11] == pytest.approx(
        (plain - plain.mean(1, keepdims=True)) / (plain.std(1, ddof=1, keepdims=True) + 0.5)
    )
    assert not z[:, 11:].any()
    one_frame = {"normalization": {"type": "ZScore", "per": "band", "ddof": 1}, "n_frames": 1}
    assert not reference("LogMel", SMALL | one_frame, x).any()
    bands = {"normalization": {"type": "Standard", "mean": [1.0, 2, 3, 4], "std": [1.0, 2, 4, 8], "factor": 2.0}}
    expected = (plain.T - [1, 2, 3, 4]) / [2, 4, 8, 16]
    assert reference("LogMel", SMALL | bands | {"layout": "time"}, x) == pytest.approx(expected)


def test_unknown_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="snip_edges"):
        reference("LogMel", SMALL | {"snip_edges": True}, noise(320))


def test_bands_without_a_bin() -> None:
    """Presets whose originals have bands without any weight, which are constant there and here."""
    found: dict[str, list[int]] = {}
    for name, entry in table("presets").items():
        p = DEFAULTS[entry["class"]] | entry["parameters"]
        if entry["class"] != "Waveform":
            found[name] = np.flatnonzero(~mel_weights(p["n_fft"], p).any(axis=0)).tolist()
    assert {name: empty for name, empty in found.items() if empty} == {
        "ast": [3],
        "beats": [3],
        "perch": [5],
        "torchaudio": [0, 3, 6, 13],
    }
