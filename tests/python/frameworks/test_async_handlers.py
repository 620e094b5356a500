"""Signal handlers that call an `AsyncDataLoader` within its `next()`, at every place where Python runs a handler."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import numbered
from forebay import AsyncDataLoader, BatchResult, ForebayError
from handlers import interrupted

pytestmark = pytest.mark.usefixtures("no_threads_left")

N_BATCHES = 6


@pytest.mark.parametrize("parameters", [{"num_workers": 2}, {"num_workers": "auto"}], ids=["two", "auto"])
@pytest.mark.parametrize("taken", [1, 2])
def test_next_in_a_handler(parameters: dict[str, Any], taken: int) -> None:
    """The handler gets the next batches, and the interrupted call the one after them: each batch once."""
    at, goes_on = 0, True
    while goes_on:
        loader = numbered.loader(4 * N_BATCHES, buffers_ahead=3, shuffle=False, **parameters)
        batches, found = iter(loader), list[BatchResult]()

        def handler(batches: Any = batches, found: list[BatchResult] = found) -> None:
            found += [next(batches) for _ in range(taken)]

        made, goes_on = interrupted(lambda batches=batches: next(batches), at, handler)  # type: ignore[misc]
        found = sorted([*found, made, *batches], key=lambda batch: batch.indices[0])
        assert numbered.rows(found) == [list(range(4 * n, 4 * n + 4)) for n in range(N_BATCHES)], at
        assert (loader.epoch, loader.batch) == (1, 0), at
        assert loader.stats()["delivered"] == {"batches": N_BATCHES, "examples": 4 * N_BATCHES}, at
        loader.close()
        at += 1
    assert at > 10


def _load(loader: AsyncDataLoader) -> None:
    loader.load_state_dict({**loader.state_dict(), "batch": 4})


def _seek(loader: AsyncDataLoader) -> None:
    loader.seek(4)


def _again(loader: AsyncDataLoader) -> None:
    iter(loader)


@pytest.mark.parametrize("move", [AsyncDataLoader.close, _load, _seek, _again])
def test_a_handler_ends_the_pass(move: Callable[[AsyncDataLoader], object]) -> None:
    """The interrupted call raises, or returns the batch that it had; the loader is where the handler moved it."""
    at, goes_on = 0, True
    while goes_on:
        loader = numbered.loader(4 * N_BATCHES, num_workers=2, buffers_ahead=3, shuffle=False)
        batches = iter(loader)
        called: list[bool] = []

        def handler(loader: AsyncDataLoader = loader, called: Any = called) -> None:
            called.append(True)
            move(loader)

        with contextlib.suppress(ForebayError):
            interrupted(lambda batches=batches: next(batches), at, handler)  # type: ignore[misc]
        goes_on = bool(called)
        if called and move in (_load, _seek):
            assert (loader.epoch, loader.batch) == (0, 4), at
        loader.close()
        with pytest.raises(ForebayError):
            iter(loader)
        at += 1
    assert at > 10
