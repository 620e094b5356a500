"""Parameters of `forebay.features` that cannot be used: the error has parameter, value and range."""

import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from forebay import ConfigError, features
from forebay.features import MFCC, PCEN, Decibel, Fbank, Ln, Log10, LogMel, MinMax, Standard, Waveform, ZScore

LEAST = "must be 1.1754944e-38 to 1e30"
FLOATS = "must be a float32: 0, or 1e-45 to 3.4e38 in size"
COUNT = "must be one, or one for each band"
HALF = "must be above 0 and at most half the sample rate, 16000.0; 0 and below count from there"
PARTS, NORMALIZATIONS = "Ln, Log10, Decibel, PCEN", "Standard, MinMax, ZScore"
ABOVE, FROM = "must be above 0 and finite", "must be 0 or more, and finite"


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (Ln, {"floor": 0.0}, f"floor is 0.0, {LEAST}"),
        (Ln, {"floor": -1.0, "eps": 0.1}, f"floor is -1.0, {LEAST}"),
        (Ln, {"eps": math.inf}, f"eps is inf, {LEAST}"),
        (Ln, {"eps": 1e300}, f"eps is 1e300, {FLOATS}"),
        (Ln, {"floor": 1e-300}, f"floor is 1e-300, {FLOATS}"),
        (Log10, {"floor": math.nan, "range": 0.0}, f"floor is NaN, {LEAST}; range is 0.0, must be above 0"),
        (Decibel, {"top_db": -1}, "top_db is -1.0, must be above 0"),
        (Decibel, {"amin": 0}, f"amin is 0.0, {LEAST}"),
        (Decibel, {"reference": 0}, f"reference is 0.0, {ABOVE}"),
        (Decibel, {"reference": "mx"}, 'reference is "mx", must be one of "max"'),
        (PCEN, {"root": 0}, f"root is 0.0, {ABOVE}"),
        (PCEN, {"smooth": 0, "gain": -1}, f"smooth is 0.0, must be above 0, at most 1; gain is -1.0, {FROM}"),
        (PCEN, {"bias": -0.5, "eps": 0}, f"bias is -0.5, {FROM}; eps is 0.0, {ABOVE}"),
        (PCEN, {"initial": -1}, f"initial is -1.0, {FROM}"),
        (Standard, {"mean": math.inf, "std": 0}, f"mean is inf, must be finite; std is 0.0, {ABOVE}"),
        (Standard, {"mean": 0, "std": 1, "factor": 0}, f"factor is 0.0, {ABOVE}"),
        (Standard, {"mean": [], "std": 1}, f"mean has 0 numbers and std 1, {COUNT}"),
        (Standard, {"mean": [1, 2, 3], "std": [1, 2]}, f"mean has 3 numbers and std 2, {COUNT}"),
        (Standard, {"mean": np.zeros(3), "std": [1, 0, 1]}, f"std is 0.0, {ABOVE}"),
        (ZScore, {"ddof": 255}, "ddof is 255, must be 0 or 1"),
        (ZScore, {"ddof": -1, "eps": -1}, f"ddof is -1, must be 0 or 1; eps is -1.0, {FROM}"),
        (ZScore, {"ddof": 1 << 70}, "ddof is beyond int64, must be 0 or 1"),
        (ZScore, {"per": "bnad"}, 'per is "bnad", must be one of "example", "band"'),
        # Front ends.
        (Waveform, {"scale": 0}, f"scale is 0.0, {ABOVE}; 32768 for models that expect int16 samples"),
        (Waveform, {"scale": math.inf}, f"scale is inf, {ABOVE}; 32768 for models that expect int16 samples"),
        (Waveform, {"scale": 1e300}, f"scale is 1e300, {FLOATS}"),
        (Waveform, {"peak": -1}, f"peak is -1.0, {ABOVE}"),
        (LogMel, {"normalize_waveform": "zscore", "peak": 0}, f"peak is 0.0, {ABOVE}"),
        (LogMel, {"normalize_waveform": "peak", "peak": 0}, f"peak is 0.0, {ABOVE}"),
        (LogMel, {"n_fft": 0}, "n_fft is 0, must be 2 to 65536"),
        (
            LogMel,
            {"n_fft": 1 << 64, "n_mels": 0},
            "n_fft is beyond int64, must be 2 to 65536; n_mels is 0, must be 1 to 4096",
        ),
        (
            Fbank,
            {"win_length": 0, "hop_length": -1},
            "win_length is 0, must be 1 to 65536; hop_length is -1, must be 1 to 1048576",
        ),
        (LogMel, {"sample_rate": 0}, "sample_rate is 0, must be 1 to 768000"),
        (LogMel, {"n_frames": 0}, "n_frames is 0, must be 1 to 16777216"),
        (MFCC, {"n_mfcc": 0}, "n_mfcc is 0, must be 1 to 4096"),
        (MFCC, {"n_mfcc": 129}, "n_mfcc is 129, must be 1 to n_mels, 128"),
        (MFCC, {"lifter": math.inf}, f"lifter is inf, {FROM}"),
        (LogMel, {"fill": math.nan}, "fill is NaN, must be finite"),
        (LogMel, {"fill": "zero"}, 'fill is "zero", must be one of "silence", "minimum"'),
        (LogMel, {"f_min": 1e300}, "f_min is 1e300, must be 0 or more and below f_max, 16000.0"),
        (LogMel, {"f_min": -1, "f_max": 500}, "f_min is -1.0, must be 0 or more and below f_max, 500.0"),
        *(
            (LogMel, {"f_max": given}, f"f_max is {shown}, {HALF}")
            for given, shown in [(1e300, "1e300"), (-16000, "-16000.0"), (math.nan, "NaN"), (-math.inf, "-inf")]
        ),
        (
            LogMel,
            {"n_mels": 0, "normalization": Standard(mean=[0] * 80, std=1)},
            "n_mels is 0, must be 1 to 4096",
        ),
    ],
)
def test_values_out_of_range(part: Callable[..., Any], values: dict[str, Any], message: str) -> None:
    """The whole message, when the object is made, also from JSON."""
    with pytest.raises(ConfigError) as error:
        part(**values)
    assert str(error.value) == message
    if "normalization" not in values:
        with pytest.raises(ConfigError) as error:
            part.from_dict(values)  # type: ignore[attr-defined]
        assert str(error.value) == message


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (Ln, {"eps": "x"}, "eps is 'x' (type str), must be a float, or None"),
        (Ln, {"floor": None}, "floor is None (type NoneType), must be a float"),
        (Ln, {"floor": True}, "floor is True (type bool), must be a float"),
        (Decibel, {"reference": None}, "reference is None (type NoneType), must be a float"),
        (Standard, {"mean": "x", "std": 1}, "mean is 'x' (type str), must be a float, or a sequence of floats"),
        (Standard, {"mean": ["x"], "std": 1}, "mean is ['x'] (type list), must be a float, or a sequence of floats"),
        (Standard, {"mean": 0, "std": {1, 2}}, "std is {1, 2} (type set), must be a float, or a sequence of floats"),
        (Standard, {"mean": 0, "std": {0: 1}}, "std is {0: 1} (type dict), must be a float, or a sequence of floats"),
        (Standard, {"mean": 0, "std": None}, "std is None (type NoneType), must be a float, or a sequence of floats"),
        (ZScore, {"ddof": 0.0}, "ddof is 0.0 (type float), must be an int"),
        (ZScore, {"per": None}, "per is None (type NoneType), must be a str"),
        (Waveform, {"peak": "x"}, "peak is 'x' (type str), must be a float"),
        (LogMel, {"fill": [0]}, "fill is [0] (type list), must be a float"),
        (LogMel, {"compression": MinMax()}, f"compression is MinMax() (type MinMax), must be one of {PARTS}, or None"),
        (
            LogMel,
            {"normalization": "zscore"},
            f"normalization is 'zscore' (type str), must be one of {NORMALIZATIONS}, or None",
        ),
    ],
)
def test_values_of_wrong_types(part: Callable[..., Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        part(**values)
    assert str(error.value) == message


def test_a_generator_is_not_read() -> None:
    """It would be empty the second time."""
    with pytest.raises(TypeError, match=r"mean is <generator .*must be a float, or a sequence of floats"):
        Standard(mean=(x for x in [1.0]), std=1.0)  # type: ignore[arg-type]


def test_sequences_become_tuples() -> None:
    for mean in ([1, 2], (1, 2), np.array([1, 2], np.float32), range(1, 3)):
        found = Standard(mean=mean, std=2)  # type: ignore[arg-type]
        assert found.mean == (1.0, 2.0)
        assert pickle.loads(pickle.dumps(found)) == found
        assert Standard.from_dict(found.to_dict()) == found
    assert Standard(mean=np.float64(1), std=1).mean == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"type": "LogMle"}, "type is 'LogMle', must be one of LogMel, MFCC"),
        ({"type": "x" * 1000}, f"type is '{'x' * 90}"),
        ({"type": "Ln"}, "type is 'Ln', must be one of LogMel, MFCC"),
        ({"n_mel": 3}, "LogMel has no 'n_mel'; its parameters are sample_rate, remove_mean, "),
        ({1: 2, "type": "MFCC"}, "MFCC has no 1; its parameters are "),
        ({"compression": {}}, f"compression has no type, must be one of {PARTS}"),
        ({"compression": {"type": "MinMax"}}, f"type is 'MinMax', must be one of {PARTS}"),
        ({"compression": {"type": "Ln", "x": 1}}, "Ln has no 'x'; its parameters are floor, eps"),
        ({"normalization": {"type": "Standard"}}, "Standard lacks mean, std; its parameters are mean, std, factor"),
        ({"normalization": {"type": "MinMax", "a": 1}}, "MinMax has no 'a'; its parameters are none"),
        ({"compression": {"type": "Ln", "eps": -1}}, "eps is -1.0, must be "),
    ],
)
def test_dicts_that_cannot_be_read(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)[:80]) as error:
        LogMel.from_dict(values)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "values is None (type NoneType), must be a dict, as to_dict() returns it"),
        (3, "values is 3 (type int), must be a dict"),
        (["LogMel"], "values is ['LogMel'] (type list), must be a dict"),
        ("LogMel", "values is 'LogMel' (type str), must be a dict"),
        ({"type": None}, "type in values is None (type NoneType), must be one of LogMel, MFCC"),
        ({"type": ["LogMel"]}, "type in values is ['LogMel'] (type list), must be one of LogMel, MFCC"),
        ({"compression": {"type": {}}}, f"type in compression is {{}} (type dict), must be one of {PARTS}"),
        ({"compression": "Ln"}, f"compression is 'Ln' (type str), must be one of {PARTS}, or None"),
        ({"n_mels": {"type": "Ln"}}, "n_mels is {'type': 'Ln'} (type dict), must be an int"),
    ],
)
def test_values_that_are_no_dict(values: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        LogMel.from_dict(values)
    assert str(error.value).startswith(message)


def test_a_dict_that_contains_itself() -> None:
    values: dict[str, Any] = {"type": "Ln"}
    values["floor"] = values
    with pytest.raises(TypeError, match=r"floor is .* \(type dict\), must be a float"):
        LogMel.from_dict({"compression": values})


@pytest.mark.parametrize("name", [None, 3, ["whisper"], {"whisper": 1}, b"whisper"])
def test_presets_of_wrong_types(name: Any) -> None:
    with pytest.raises(TypeError) as error:
        features.preset(name)
    assert str(error.value).startswith(f"preset is {name!r} (type {type(name).__name__}), must be one of birdset, ")


def test_presets_that_are_unknown() -> None:
    for name, hint in (
        ("wisper", "; did you mean 'whisper'?"),
        ("mfcc", "; give an object: forebay.features.MFCC(...)"),
        ("log_mel", "; give an object: forebay.features.LogMel(...)"),
        ("standard", "give an object: features=forebay.features.LogMel(normalization=forebay.features.Standard())"),
        ("", "librosa"),
        ("x" * 10_000, "librosa"),
    ):
        with pytest.raises(ConfigError) as error:
            features.preset(name)
        assert str(error.value).endswith(hint)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize("front_end", [Waveform(), LogMel(), Fbank(snip_edges=False), MFCC(n_frames=3)], ids=repr)
def test_numbers_of_samples(front_end: Any) -> None:
    for given, shown in ((-1, "-1"), (1 << 63, "beyond int64"), (-(1 << 80), "beyond int64")):
        with pytest.raises(ConfigError) as error:
            front_end.shape(given)
        assert str(error.value) == f"n_samples is {shown}, must be 0 to {1 << 62}"
    assert all(n >= 0 for n in front_end.shape(1 << 62))
    with pytest.raises(TypeError, match=r"n_samples is 1.0 \(type float\), must be an int"):
        front_end.shape(1.0)
