"""`augment.Python`: a user's function on waveforms and features."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from augmenting import Draws, bits_of
from forebay import ConfigError, StateError, features
from forebay.augment import Gain, Mix, Python, SpecAugment, apply
from recordings import read_rows, write_shard

RATE = 8000
SHARED: dict[str, Any] = {
    "clip_seconds": 0.25, "seed": 3, "batch_size": 4, "infinite": False, "shuffle_min_size": 0, "n_workers": 2,
}  # fmt: skip
WAVEFORM = features.Waveform(sample_rate=RATE)
MEL = features.LogMel(sample_rate=RATE, n_fft=256, hop_length=80, n_mels=20)


def dither(values: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Returns another type."""
    return values + 0.01 * np.random.default_rng(seed).standard_normal(values.shape)


def upside_down(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
    """Returns a view."""
    return values[::-1]


def doubled(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
    """Changes the array that it is given."""
    values *= 2
    return values


class Shift:
    """A function with a parameter."""

    def __call__(self, values: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
        return values + np.float32(seed % 7)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shard(tmp_path_factory.mktemp("steps") / "a.arrow", read_rows()[:10])


def rows_of(shard: Path, **given: Any) -> dict[str, Any]:
    with forebay.Loader(shard, **{**SHARED, **given}) as loader:
        batches = list(loader)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_a_function_on_waveforms(shard: Path) -> None:
    steps = [Gain((-6, 6)), Python(dither, p=0.6), Python(doubled), Python(Shift(), p=0.5)]
    plain = rows_of(shard, features=WAVEFORM, augment=[Gain(0.0)])
    rows = rows_of(shard, features=WAVEFORM, augment=steps)
    n_dithered = 0
    for at, row in enumerate(rows["index"].tolist()):
        bits = bits_of(3, row)
        np.testing.assert_array_equal(rows["waveform"][at], apply(steps, plain["waveform"][at], RATE, seed=bits))
        expected = apply(steps[:1], plain["waveform"][at], RATE, seed=bits)
        draws = Draws(bits, "Python")
        if draws.first < 0.6:
            expected = dither(expected[None], draws.bits())[0].astype(np.float32)
            n_dithered += 1
        expected = 2 * expected
        draws = Draws(bits, "Python", 2)
        if draws.first < 0.5:
            expected = expected + np.float32(draws.bits() % 7)
        np.testing.assert_array_equal(rows["waveform"][at], expected)
    assert 0 < n_dithered < 10


@pytest.mark.parametrize("layout", ["mel", "time"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_function_on_features(shard: Path, layout: Any, dtype: Any) -> None:
    mel = features.LogMel(sample_rate=RATE, n_fft=256, hop_length=80, n_mels=20, layout=layout, dtype=dtype)
    plain = rows_of(shard, features=mel, augment=[Gain(0.0)])
    rows = rows_of(shard, features=mel, augment=[Python(upside_down, on="features")])
    (name,) = (name for name in plain if plain[name].ndim == 3)
    assert plain[name].shape[1:] == rows[name].shape[1:]
    np.testing.assert_array_equal(rows[name], plain[name][:, ::-1])


def test_steps_before_and_after() -> None:
    """A function between other steps sees what those before it made, also in `apply`."""
    x = np.random.default_rng(1).normal(0, 0.1, 2000).astype(np.float32)
    steps = [SpecAugment(4, 1, 10, 1, fill=-3.0), Python(doubled, on="features"), Python(doubled)]
    found = apply(steps, x, RATE, seed=5, features=MEL)
    np.testing.assert_array_equal(found, 2 * apply([steps[0]], 2 * x, RATE, seed=5, features=MEL))


def test_it_is_the_same_for_any_number_of_workers(shard: Path) -> None:
    augment = [Python(dither), Mix(snr_db=3.0)]
    found = [rows_of(shard, features=WAVEFORM, augment=augment, n_workers=n)["waveform"] for n in (1, 4)]
    np.testing.assert_array_equal(*found)


def failing(*_: Any) -> NDArray[np.float32]:
    raise LookupError("no such table")


def test_an_exception_ends_the_run(shard: Path) -> None:
    with (
        forebay.Loader(shard, **SHARED, features=WAVEFORM, augment=[Python(failing)]) as loader,
        pytest.raises(LookupError, match="no such table") as raised,
    ):
        list(loader)
    (note,) = raised.value.__notes__
    assert note.startswith(str(shard))
    assert note.endswith(": augment.Python(test_python_steps.failing) failed")
    with pytest.raises(LookupError, match="no such table"):
        apply([Python(failing)], np.zeros(8, np.float32), RATE)


def test_close_during_a_call(shard: Path) -> None:
    """`close()` while workers are in functions neither hangs nor loses the interpreter."""
    for _ in range(5):
        loader = forebay.Loader(shard, **{**SHARED, "infinite": True}, features=WAVEFORM, augment=[Python(dither)])
        next(loader)
        loader.close()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda _: None, "the function returned NoneType, must return a float array of shape \\[1, 50\\]"),
        (lambda x: x[0], "the function returned shape \\[50\\]"),
        (lambda x: x[:, 1:], "the function returned shape \\[1, 49\\]"),
        (lambda x: np.full_like(x, np.nan), "the function returned NaN or infinity"),
        (lambda x: x.astype(np.float64) + 1e300, "the function returned NaN or infinity"),
        (lambda x: x.astype(np.int16), "the function returned ndarray, must return a float array"),
        (lambda x: x.tolist(), "the function returned list"),
    ],
    ids=["none", "rank", "shape", "nan", "large", "int16", "list"],
)
def test_wrong_results(returned: Any, message: str) -> None:
    step = Python(lambda x, _: returned(x))
    with pytest.raises(ValueError, match=message), np.errstate(over="ignore"):
        apply([step], np.zeros(50, np.float32), RATE)


def test_objects(shard: Path) -> None:
    step = Python(dither, p=0.5)
    assert repr(step) == "Python(function=test_python_steps.dither, p=0.5)"
    assert step.to_dict() == {"type": "Python", "function": "test_python_steps.dither", "on": "waveform", "p": 0.5}
    assert pickle.loads(pickle.dumps(step)) == step
    assert "Shift" in repr(Python(Shift()))
    assert "partial" in repr(Python(partial(dither)))
    with pytest.raises(
        TypeError, match=r"function is 'test_python_steps.dither', must be a function of \(array, seed\)"
    ):
        Python.from_dict(step.to_dict())
    with pytest.raises(TypeError, match="function is None"):
        Python(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on is"):
        Python(dither, on="mel")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Python"):
        forebay.Loader(shard, **SHARED, features=WAVEFORM, augment=[Python(dither, on="features")])
    with forebay.Loader(shard, **{**SHARED, "infinite": True}, features=WAVEFORM, augment=[step]) as loader:
        assert repr(step) in repr(loader.recipe)
        next(loader)
        state = loader.state_dict()
        expected = next(loader)["waveform"]
    with forebay.Loader(shard, **{**SHARED, "infinite": True}, features=WAVEFORM, augment=[step]) as loader:
        loader.load_state_dict(state)
        np.testing.assert_array_equal(next(loader)["waveform"], expected)
    with (
        forebay.Loader(shard, **{**SHARED, "infinite": True}, features=WAVEFORM, augment=[Python(doubled)]) as loader,
        pytest.raises(StateError, match="augment"),
    ):
        loader.load_state_dict(state)
