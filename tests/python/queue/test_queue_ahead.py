"""The thread that reads ahead: tasks that fail do not end it."""

import threading
from pathlib import Path

import pytest

import forebay
from queues import consumer, eventually, expected, filled, take


@pytest.mark.parametrize("n_failures", [1, 3])
def test_a_task_that_fails_for_a_time(tmp_path: Path, n_failures: int, caplog: pytest.LogCaptureFixture) -> None:
    """An error of a file system is retried, and reading goes on."""
    provider = filled(tmp_path, 3)
    failures = [OSError("stale") for _ in range(n_failures)]
    done = threading.Event()

    def task() -> bool:
        if failures:
            raise failures.pop()
        done.set()
        return True

    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        queue._splits["train"].ahead.do(task)
        assert done.wait(120)
        assert found + take(queue, 8) == expected(provider, range(3))
    assert [record.message for record in caplog.records if "stale" in record.message] == ["retrying: stale"]


def test_a_task_that_fails(tmp_path: Path) -> None:
    """Its error is raised once, at the next file, and says what happened; then reading goes on."""
    provider = filled(tmp_path, 3)
    n_tries = 0

    def task() -> bool:
        nonlocal n_tries
        n_tries += 1
        raise forebay.StateError("the record is a folder")

    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        queue._splits["train"].ahead.do(task)
        eventually(lambda: n_tries > 2)
        found += take(queue, 2)
        with pytest.raises(forebay.StateError, match="the record is a folder"):
            take(queue, 1)
        assert found + take(queue, 6) == expected(provider, range(3))


def test_a_task_that_fails_wakes_a_consumer_that_waits(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        take(queue, 3)
        ahead = queue._splits["train"].ahead

        def task() -> bool:
            raise forebay.StateError("no such queue")

        threading.Timer(0.05, ahead.do, [task]).start()
        with pytest.raises(forebay.StateError, match="no such queue"):
            take(queue, 1)
