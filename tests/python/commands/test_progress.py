"""The progress bar of the commands."""

import io

import pytest

from forebay._progress import LINE_S, Display, Progress, clock
from forebay.cache import CacheBuild, running


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_tells_rate_rest_and_failures() -> None:
    progress = Progress(40, "records", Terminal(), already=10, started=100.0)
    progress.add(done=10, errors=2)
    # Ten in five seconds: records of an earlier run do not count for the rate.
    assert progress.line(105.0) == "[###############...............] 20/40 records, 2.0 records/s, 0:10 left, 2 failed"
    progress.add(done=20)
    assert progress.line(110.0) == "[##############################] 40/40 records, 3.0 records/s, 2 failed"


def test_bytes_are_told_where_they_are_counted() -> None:
    progress = Progress(4, "shards", Terminal(), started=0.0)
    progress.add(n_bytes=5_000_000, done=1)
    assert progress.line(10.0) == "[#######.......................] 1/4 shards, 5 MB, 0.5 MB/s, 0:30 left"


def test_the_last_state_is_always_drawn() -> None:
    stream = Terminal()
    progress = Progress(1000, "records", stream)
    for _ in range(1000):
        progress.add(done=1)
    progress.say("a line of its own")
    progress.close()
    drawn = stream.getvalue()
    assert drawn.count("\r[") < 100
    assert " 1000/1000 records" in drawn
    assert "\r\x1b[Ka line of its own\n" in drawn


def test_nothing_is_drawn_into_a_file() -> None:
    stream = io.StringIO()
    progress = Progress(2, "shards", stream)
    progress.add(done=2)
    progress.say("said")
    progress.close()
    assert stream.getvalue() == "said\n"


def test_lines_in_a_pipe() -> None:
    """Elsewhere than on a terminal there is a whole line every 10 s, and none before."""
    stream, times = io.StringIO(), iter([0.0, 0.0, 5.0, 9.9, 10.0, 19.9, 20.1, 21.0])
    progress = Progress(6, "shards", stream, now=lambda: next(times))
    for _ in range(6):
        progress.add(done=1)
    progress.close()
    assert stream.getvalue() == (
        "[###############...............] 3/6 shards, 0.3 shards/s, 0:10 left\n"
        "[#########################.....] 5/6 shards, 0.2 shards/s, 0:04 left\n"
    )


class Build:
    """A build that ends after some waits."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def wait(self, _: float) -> str | None:
        self.waits -= 1
        return None if self.waits else "store"

    def progress(self) -> running.Progress:
        return running.Progress(
            documents=100 - self.waits, committed=0, skipped=0, values=0, finished_shards=0, n_shards=1, part=0.5,
            seconds=1.0, documents_per_s=0.0, values_per_s=0.0, remaining_s=None,
        )  # fmt: skip


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_build_is_shown_in_the_same_way(stream: io.StringIO) -> None:
    build: CacheBuild = Build(20)  # type: ignore[assignment]
    times = iter(2.0 * n for n in range(100))
    running.watch(build, stream, lambda: next(times))
    text = stream.getvalue()
    if isinstance(stream, Terminal):
        assert text.count("\r") == 20
        assert text.endswith(" 100 documents, 0 documents/s, 0.00 M values/s\x1b[K\n")
    else:  # at 10, 20, 30 and 40 s
        assert [line.split(", ")[1] for line in text.splitlines()] == [f"{n} documents" for n in (85, 90, 95, 100)]


def test_messages_interrupt_the_line() -> None:
    stream = Terminal()
    display = Display(stream, lambda: LINE_S)
    display.draw(lambda _: "one")
    display.draw(lambda _: "too early")
    display.say("a message")
    display.draw(lambda _: "last", is_last=True)
    assert stream.getvalue() == "\rone\x1b[K\r\x1b[Ka message\n\rlast\x1b[K"


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (7265, "2:01:05")])
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
