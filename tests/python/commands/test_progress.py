"""The progress bar of the commands."""

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from forebay._progress import LINE_S, Display, Loop, Progress, clock
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


def shown(written: str) -> list[str]:
    """The lines that a notebook shows: a carriage return goes to the start of a line, and clears nothing."""
    lines = []
    for line in written.split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


def test_a_notebook_overwrites_its_line() -> None:
    kernel = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    stream, times = kernel(), iter(range(100))
    display = Display(stream, lambda: float(next(times)))
    display.draw(lambda _: "[####] 10 left, a long line")
    display.draw(lambda _: "short")
    assert shown(stream.getvalue()) == ["short"]
    display.say("a message")
    display.draw(lambda _: "done")
    display.close()
    assert "\x1b" not in stream.getvalue()
    assert shown(stream.getvalue()) == ["a message", "done", ""]


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


class Limited:
    """A loader whose verdict is known."""

    def stats(self) -> dict[str, str]:
        return {"verdict": "CPU-bound (decoding): workers work 98 % of the time"}


def test_a_loop_tells_rate_waits_and_verdict() -> None:
    times = iter([0.0, 0.0, 4.0, 8.0, 16.0, 20.0])
    stream = io.StringIO()
    loop = Loop(Limited(), 10, stream, now=lambda: next(times))
    loop.add(64, 1.0)  # at 4 s: no line before 10 s
    loop.add(64, 1.0)
    loop.add(64, 4.0)  # at 16 s
    assert stream.getvalue() == (
        "[#########.....................] 3/10 batches, 12 examples/s, waited 38%, 0:37 left, CPU-bound (decoding)\n"
    )
    # Later figures are those of the seconds since the last line that is 10 s old or older.
    loop.done, loop.examples, loop.waited = 10, 64 * 10, 7.0
    loop.close()
    assert stream.getvalue().endswith("10/10 batches, 32 examples/s, waited 35%, CPU-bound (decoding)\n")


def test_a_loop_without_end_counts() -> None:
    times = iter([0.0, 0.0, 11.0])
    stream = io.StringIO()
    Loop(Limited(), None, stream, now=lambda: next(times)).add(22, 0.0)
    assert stream.getvalue() == "1 batches, 2 examples/s, waited 0%, CPU-bound (decoding)\n"


def test_a_line_does_not_wrap() -> None:
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 20, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        Display(stream).draw(lambda _: "x" * 100)
        assert os.read(ours, 1000) == b"\r" + b"x" * 19 + b"\x1b[K"
    os.close(ours)
