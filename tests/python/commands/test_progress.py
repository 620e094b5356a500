"""The progress bar of the commands."""

import io

import pytest

from forebay._progress import Progress, clock


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


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (7265, "2:01:05")])
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
