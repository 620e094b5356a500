"""An exception of a log handler reaches the caller of any method that emits log records, and loses no batch."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from caches import Picky, files, unequal
from forebay import cache
from recordings import TINY, Row, tiny_rows, write_shard

EXCEPTIONS = [KeyboardInterrupt, SystemExit, ValueError]


class Raising(logging.Handler):
    """Raises at the first `most` records."""

    def __init__(self, kind: type[BaseException], most: int) -> None:
        super().__init__()
        self.kind = kind
        self.left = most
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())
        if self.left:
            self.left -= 1
            raise self.kind(record.getMessage())


@contextlib.contextmanager
def raising(kind: type[BaseException], most: int = 1000) -> Iterator[Raising]:
    logger, handler = logging.getLogger("forebay"), Raising(kind, most)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A truncated shard, which the constructor logs, with bad rows, which `next()` logs."""
    rows = tiny_rows(40)
    for i in (1, 5, 11):
        rows[i] = Row(b"not a recording at all" + bytes(i))
    whole = write_shard(tmp_path / "whole.arrow", rows).read_bytes()
    path = tmp_path / "half.arrow"
    path.write_bytes(whole[: len(whole) * 6 // 10])
    return path


def failing(path: Path) -> Any:
    return forebay.Loader([write_shard(path.with_name("none.arrow"), []), path.with_name("empty.arrow")])


CALLS: dict[str, Callable[[Path], Any]] = {
    "a constructor": lambda path: forebay.Loader.eval(path, **TINY),
    "a constructor that fails": failing,
    "the one of check": lambda path: forebay._core._Check([path]),
}


@pytest.mark.parametrize("kind", EXCEPTIONS)
@pytest.mark.parametrize("call", CALLS)
def test_constructors(half: Path, call: str, kind: type[BaseException]) -> None:
    half.with_name("empty.arrow").touch()
    with raising(kind) as handler, pytest.raises(kind, match="arrow") as raised:
        CALLS[call](half)
    assert len(handler.seen) == 1
    if call == "a constructor that fails":
        assert isinstance(raised.value.__context__, forebay.ConfigError)
        with pytest.raises(forebay.ConfigError, match="no rows"):
            CALLS[call](half)
    else:
        CALLS[call](half).close()


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_no_batch_is_lost(half: Path, kind: type[BaseException]) -> None:
    """If a handler raises during a call of `next()`, the next call returns the batch of that call."""
    parameters: dict[str, Any] = {**TINY, "batch_size": 4}
    with forebay.Loader.eval(half, **parameters) as undisturbed:
        expected = [batch["index"].tolist() for batch in undisturbed]
        bad = [error["index"] for error in undisturbed.errors()]
    assert bad[:3] == [1, 5, 11]
    with forebay.Loader.eval(half, **parameters) as loader, raising(kind) as handler:
        found, n_raised = [], 0
        batches = iter(loader)
        while True:
            try:
                found.append(next(batches)["index"].tolist())
            except StopIteration:
                break
            except kind:
                n_raised += 1
        errors = [error["index"] for error in loader.errors()]
    assert n_raised == len(handler.seen) >= 1
    assert (found, errors) == (expected, bad)


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_a_build(tmp_path: Path, kind: type[BaseException]) -> None:
    """The build is cancelled with its rows committed; the same call resumes it."""
    shards = unequal((37, 0, 40, 12))
    with raising(kind) as handler, pytest.raises(kind, match="skipped a bad record"):
        cache.build(shards, Picky(), tmp_path / "a", batch_size=8, on_error="skip")
    assert handler.seen
    again = cache.build(shards, Picky(), tmp_path / "a", batch_size=8, on_error="skip")
    whole = cache.build(shards, Picky(), tmp_path / "b", batch_size=8, on_error="skip")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert again.errors() == whole.errors()
