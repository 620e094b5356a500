"""Signal handlers that call a consumer within its methods, at every place where Python runs a handler."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay import ForebayError, StateError
from forebay.queue import DatasetConsumer
from handlers import interrupted
from queues import consumer, expected, filled, first, take

STEP = 7
"""One of seven places: there are hundreds."""


@pytest.mark.parametrize("delete", ["consumed", "on_state"])
def test_get_batch_in_a_handler(delete: str, tmp_path: Path) -> None:
    """The handler gets the next batch, and the interrupted call the one after it: each batch once."""
    wanted = expected(filled(tmp_path / "first", 3, batches_per_file=2), range(3))
    at, goes_on = 0, True
    while goes_on:
        folder = shutil.copytree(tmp_path / "first", tmp_path / str(at))
        with consumer(folder, delete=delete) as queue:
            found = take(queue, 2)
            # This call leaves the first file, removes it, and opens the second one.
            queue.state_dict()

            def handler(queue: DatasetConsumer = queue, found: list[int] = found) -> None:
                found += take(queue, 1)
                queue.state_dict()

            made, goes_on = interrupted(lambda queue=queue: take(queue, 1), at, handler)  # type: ignore[misc]
            found += made
            found += take(queue, len(wanted) - len(found))
            assert sorted(found) == sorted(wanted), at
        at += STEP
    assert at > 3 * STEP


@pytest.mark.parametrize("method", ["get_batch", "load_state_dict", "reset_state"])
def test_close_in_a_handler(method: str, tmp_path: Path) -> None:
    """The interrupted call raises or returns, and another consumer can open the queue."""
    wanted = expected(filled(tmp_path / "first", 3, batches_per_file=2), range(3))
    at, goes_on = 0, True
    while goes_on:
        folder = shutil.copytree(tmp_path / "first", tmp_path / str(at))
        queue = consumer(folder, delete="on_state")
        take(queue, 2)
        state = queue.state_dict()
        calls: dict[str, Callable[[], object]] = {
            "get_batch": lambda queue=queue: first(queue.get_batch("train", "cpu", 60)),  # type: ignore[misc]
            "load_state_dict": lambda queue=queue, state=state: queue.load_state_dict(state),  # type: ignore[misc]
            "reset_state": queue.reset_state,
        }
        called: list[bool] = []

        def handler(queue: DatasetConsumer = queue, called: list[bool] = called) -> None:
            called.append(True)
            queue.close()

        with contextlib.suppress(ForebayError):
            interrupted(calls[method], at, handler)
        goes_on = bool(called)
        queue.close()
        with consumer(folder) as another:
            assert set(take(another, 2)) <= set(wanted), at
        at += STEP
    assert at > 3 * STEP


def test_a_handler_moves_a_consumer_that_moves(tmp_path: Path) -> None:
    """It is refused with an error that says what to do, and nothing waits."""
    filled(tmp_path, 3, batches_per_file=2)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        state = queue.state_dict()
        errors: list[ForebayError] = []

        def handler() -> None:
            try:
                queue.load_state_dict(state)
            except (ForebayError, StateError) as error:
                errors.append(error)

        for at in range(0, 2000, STEP):
            if not interrupted(lambda: queue.load_state_dict(state), at, handler)[1]:
                break
        assert any("let a handler set a flag" in str(error) for error in errors)
        assert len(take(queue, 5)) == 5
