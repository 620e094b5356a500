"""Loaders and datasets whose functions refer to them are garbage collected, with their threads."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import forebay
from documents import loader as token_loader
from forebay import cache, features
from forebay.augment import Gain, Python, apply
from recordings import read_rows, write_shard
from timing import eventually, native_threads

RATE = 8000


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shard(tmp_path_factory.mktemp("collected") / "a.arrow", read_rows()[:10])


class Training:
    """An object with a loader that calls its method."""

    def __init__(self, shard: Path, **given: Any) -> None:
        steps = [Gain((-6, 6)), Python(self.step), Python(partial(Training.step, self), p=0.5)]
        self.loader = forebay.Loader(
            shard, clip_seconds=0.25, batch_size=4, n_workers=2, shuffle_min_size=0,
            features=features.Waveform(sample_rate=RATE), augment=steps, **given,
        )  # fmt: skip

    def step(self, values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
        assert self.loader is not None
        return values


class Tokens:
    def __init__(self, parquets: Path) -> None:
        self.loader = token_loader(parquets, tokenizer=self.encode)

    def encode(self, text: str) -> list[int]:
        assert self.loader is not None
        return list(text.encode())


class Own(cache.AsyncDataset):
    """A dataset in Python, with a view and a loader of itself."""

    fields = {"x": ((), "int64")}  # noqa: RUF012

    def __init__(self) -> None:
        self.view = cache.PermutationDataset(self, seed=1)
        self.loader = cache.DataLoader(self.view, batch_size=4, n_workers=2)

    def __len__(self) -> int:
        return 40

    def get_batch(self, indices: ArrayLike) -> list[Any]:
        return [{"x": np.int64(index)} for index in np.asarray(indices)]


def collected(make: Callable[[], Any]) -> None:
    """Makes an object, uses its loader, drops it, and checks that nothing is left of it."""
    threads = native_threads()
    holder = make()
    next(holder.loader)
    found = [weakref.ref(holder), weakref.ref(holder.loader)]
    gc.collect()
    next(holder.loader)  # in use, it is not collected
    del holder

    def is_gone() -> bool:
        gc.collect()  # a worker may be in a call of the function, which keeps it
        return [ref() for ref in found] == [None, None]

    eventually(is_gone)
    eventually(lambda: native_threads() <= threads)


def test_a_loader_of_steps(shard: Path) -> None:
    collected(lambda: Training(shard))


def test_a_loader_with_a_function_of_its_own(shard: Path) -> None:
    """The cycle goes through a cell of a function."""

    class Holder:
        def __init__(self) -> None:
            self.loader = looped(shard)

    def looped(shard: Path) -> forebay.Loader:
        def step(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
            assert loader
            return values

        loader = forebay.Loader(
            shard, clip_seconds=0.25, batch_size=4, n_workers=2, shuffle_min_size=0,
            features=features.Waveform(sample_rate=RATE), augment=[Python(step)],
        )  # fmt: skip
        return loader

    collected(Holder)


def test_a_loader_of_a_callable_tokenizer(parquets: Path) -> None:
    collected(lambda: Tokens(parquets))


def test_a_loader_of_a_dataset_in_python() -> None:
    collected(Own)


def test_the_steps_outlive_their_objects(shard: Path) -> None:
    """The loader owns the functions, not the objects that it was made of; so does a call of `apply`."""

    class Step:
        def __call__(self, values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
            return values + 1

    with forebay.Loader(
        shard, clip_seconds=0.25, batch_size=4, n_workers=2, shuffle_min_size=0,
        features=features.Waveform(sample_rate=RATE), augment=iter([Python(Step()), Python(Step())]),  # type: ignore[arg-type]
    ) as loader:  # fmt: skip
        gc.collect()
        assert next(loader)["waveform"].mean() > 1
        assert loader.replay(0)["waveform"].mean() > 1
    made = apply(iter([Python(Step()), Python(Step())]), np.zeros(8, np.float32), RATE)  # type: ignore[arg-type]
    np.testing.assert_array_equal(made, 2)
