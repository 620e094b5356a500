"""`dtype`, `layout` and `n_frames` of spectrograms: the same values in other types, axis orders and lengths."""

import json
import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from digests import digest
from documents import loader as token_loader
from forebay._converted import bfloat16_fields, side_by_side
from recordings import SMALL, TINY

N_MELS, N_FRAMES = 8, 6
DTYPES = ["float32", "float16", "bfloat16"]
NUMPY: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
"""The numpy type of each `dtype`; batches have bfloat16 as its bits (uint16)."""


def batches(files: list[Path], n: int, **overrides: Any) -> list[dict[str, NDArray[Any]]]:
    with forebay.Loader(files, **{**SMALL, **overrides}) as loader:
        return list(islice(loader, n))


def silence(n_frames: int) -> NDArray[np.float32]:
    """The spectrogram of zeros, `[N_MELS, n_frames]`."""
    parameters = {name: TINY[name] for name in ("sample_rate", "n_fft", "hop_length", "n_mels")}
    features = forebay.SpectrogramTransform(**parameters).transform(np.zeros(1000, np.float32))
    assert (features == features[0, 0]).all()
    assert abs(features[0, 0] - np.log(1e-10)) < 2e-6
    return np.full((N_MELS, n_frames), features[0, 0])


@pytest.fixture
def plain(tiny_shards: list[Path]) -> list[dict[str, NDArray[Any]]]:
    return batches(tiny_shards, 4)


@pytest.mark.parametrize("n_frames", [None, 1, 5, N_FRAMES, 20])
@pytest.mark.parametrize("layout", ["mel", "time"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_numbers(
    dtype: str, layout: str, n_frames: int | None, tiny_shards: list[Path], plain: list[dict[str, NDArray[Any]]]
) -> None:
    """Spectrograms equal the default ones converted by numpy and ml_dtypes, bit for bit."""
    wanted = n_frames or N_FRAMES
    for found, batch in zip(batches(tiny_shards, 4, dtype=dtype, layout=layout, n_frames=n_frames), plain, strict=True):
        values = batch["spectrogram"]
        assert values.shape == (16, N_MELS, N_FRAMES)
        behind = np.broadcast_to(silence(max(wanted - N_FRAMES, 0)), (16, N_MELS, max(wanted - N_FRAMES, 0)))
        values = np.concatenate([values[:, :, :wanted], behind], axis=2)
        if layout == "time":
            values = values.transpose(0, 2, 1)
        expected = values.astype(NUMPY[dtype])
        if dtype == "bfloat16":
            expected = expected.view(np.uint16)
        spectrogram = found["spectrogram"]
        assert spectrogram.dtype == expected.dtype
        np.testing.assert_array_equal(spectrogram, expected)
        assert spectrogram.flags.c_contiguous
        assert spectrogram.flags.aligned
        assert spectrogram.flags.writeable
        assert found["index"].tolist() == batch["index"].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_precision(dtype: str, shards: list[Path]) -> None:
    """Real recordings have the documented precision."""
    within = {"float32": 0.0, "float16": 0.008, "bfloat16": 0.063}[dtype]
    with forebay.Loader.eval(shards) as plain, forebay.Loader.eval(shards, dtype=dtype) as loader:
        for expected, found in zip(plain, loader, strict=True):
            spectrogram = found["spectrogram"]
            if dtype == "bfloat16":
                spectrogram = spectrogram.view(ml_dtypes.bfloat16)
            assert np.abs(spectrogram.astype(np.float32) - expected["spectrogram"]).max() <= within
            assert np.isfinite(expected["spectrogram"]).all()
            assert expected["spectrogram"].min() >= -23.03
            assert expected["spectrogram"].max() < 20


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_memory(dtype: str, tiny_shards: list[Path]) -> None:
    """16-bit spectrograms take half the memory, in recycled slots."""
    parameters = {"n_mels": 64, "n_frames": 40, "batch_size": 32, "dtype": dtype}
    with forebay.Loader(tiny_shards, **{**SMALL, **parameters}) as loader:
        batch = next(loader)
        assert batch["spectrogram"].nbytes == 32 * 64 * 40 * 2
        assert type(batch["spectrogram"].base).__name__ == "_Slot"
        address = int(batch["spectrogram"].__array_interface__["data"][0])
        assert address % (2 << 20) == 0
        kept = batch["spectrogram"][5]
        before = kept.copy()
        del batch
        others = list(islice(loader, 20))
        np.testing.assert_array_equal(kept, before)
        assert address not in [int(other["spectrogram"].__array_interface__["data"][0]) for other in others]


@pytest.fixture(params=[("float16", "time", 9), ("bfloat16", "mel", None)], ids=str)
def loader(request: pytest.FixtureRequest, tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    dtype, layout, n_frames = request.param
    with forebay.Loader(tiny_shards, **SMALL, dtype=dtype, layout=layout, n_frames=n_frames) as loader:
        yield loader


def test_copies_have_the_same_form(loader: forebay.Loader) -> None:
    list(islice(loader, 3))
    with pickle.loads(pickle.dumps(loader)) as copy:
        assert repr(copy)[:-1] in repr(loader)
        replayed = loader.replay(4)
        for _ in range(3):
            batch = next(loader)
            assert digest(next(copy)) == digest(batch)
            if loader.batch == 5:
                assert digest(replayed) == digest(batch)


def test_the_state_knows_the_form(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    next(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    loader.load_state_dict(state)
    with forebay.Loader(tiny_shards, **SMALL) as plain:
        with pytest.raises(forebay.StateError, match=r'dtype is "b?float16" in the state and "float32" here'):
            plain.load_state_dict(state)
        # The same as the default number of frames.
        with forebay.Loader(tiny_shards, **SMALL, n_frames=N_FRAMES) as same:
            same.load_state_dict(plain.state_dict())
        other = forebay.Loader(tiny_shards, **SMALL, n_frames=N_FRAMES + 1, layout="time")
        with other, pytest.raises(forebay.StateError, match=r"layout is .* n_frames is 6 in the state and 7 here"):
            other.load_state_dict(plain.state_dict())


def test_repr(loader: forebay.Loader) -> None:
    shape = "[9, 8] float16" if "float16" in repr(loader) and "bfloat16" not in repr(loader) else "[8, 6] bfloat16"
    assert repr(loader).startswith(
        f"<forebay.Loader: 300 records in 5 shards, batches of 16 x {shape}, infinite, order"
    )


def test_what_cannot_be(tiny_shards: list[Path]) -> None:
    wrong: dict[str, Any] = {"dtype": "float64", "layout": "frames", "n_frames": 0}
    with pytest.raises(forebay.ConfigError) as error:
        forebay.Loader(tiny_shards, **wrong)
    for part in [
        'dtype is "float64", must be "float32", "float16" or "bfloat16"',
        'layout is "frames", must be "mel" or "time"',
        "n_frames is 0, must be 1 to 16777216",
    ]:
        assert part in str(error.value)
    with pytest.raises(forebay.ConfigError, match=r"8192 MiB, at most 1024 are allowed; lower n_frames or n_mels"):
        forebay.Loader(tiny_shards, n_frames=1 << 24)
    # Half the memory is below the limit.
    forebay.Loader(tiny_shards, n_frames=1 << 21, batch_size=1, dtype="float16").close()
    with pytest.raises(TypeError):
        forebay.Loader(tiny_shards, dtype=np.float16)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
def test_inputs_and_targets_lie_side_by_side(parquets: Path, dtype: str) -> None:
    """Inputs and targets are adjacent, for one copy to a device, in arenas (large batches) and vectors (small ones)."""
    sizes = set()
    for batch_size, seq_len in [(1, 7), (4, 63), (1, 600), (3, 1365), (16, 511), (4, 2048), (16, 2048)]:
        with token_loader(parquets, batch_size=batch_size, seq_len=seq_len, dtype=dtype) as loader:
            batch = next(loader)
        both = side_by_side(batch["inputs"], batch["targets"])
        sizes.add(both.nbytes >= 1 << 16)
        assert both.shape == (2, batch_size, seq_len)
        assert both.dtype == dtype
        assert both.flags.c_contiguous
        for part, field in zip(both, ["inputs", "targets"], strict=True):
            np.testing.assert_array_equal(part, batch[field])
            assert np.shares_memory(part, batch[field])
        kept = both.copy()
        del batch, part
        np.testing.assert_array_equal(both, kept)
    assert sizes == {True, False}


def test_what_does_not_lie_side_by_side_is_copied() -> None:
    whole = np.arange(48).reshape(4, 12)
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = [
        (whole[:2], whole[2:]),
        (whole[2:], whole[:2]),
        (whole[:, :6], whole[:, 6:]),
        (whole[:2].astype(np.int32), whole[2:]),
        (whole[:0], whole[:0]),
        (whole[:1], whole[1:2].copy()),
    ]
    for inputs, targets in pairs:
        both = side_by_side(inputs, targets)
        np.testing.assert_array_equal(both, np.stack([inputs, targets]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_loader_says_what_is_bfloat16(dtype: str, tiny_shards: list[Path]) -> None:
    """The loader determines the bfloat16 fields, not their names or types."""
    with forebay.Loader(tiny_shards, **SMALL, dtype=dtype) as loader:
        assert [*bfloat16_fields(loader)] == [*bfloat16_fields(iter(loader))] == ["spectrogram"] * (dtype == "bfloat16")
    assert [*bfloat16_fields(None)] == [*bfloat16_fields([{"spectrogram": np.zeros(3, np.uint16)}])] == []
