"""Reads that do not return, as on a dead network mount, do not delay Ctrl-C, close and the end of the process.

A preloaded library (`stall.c`) stalls the reads, which needs a C compiler. `crates/source/tests/faults.rs` has the same
in Rust.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import forebay
from paths import HELPERS
from recordings import TINY, Row, tiny_rows, write_shard
from scenes import END_LIMIT_S, INTERRUPT_LIMIT_S, play, start
from timing import claim, timed

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"), reason="needs Linux and a C compiler"
)

STALLS = """
stalled = Path(os.environ["STALLED"])
logged = []
class Listed(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())
logging.getLogger("forebay").setLevel(logging.WARNING)
logging.getLogger("forebay").addHandler(Listed())
times = []

def take(batches):
    '''Takes batches without end, and appends the time of each to `times`.'''
    for batch in batches:
        times.append(time.perf_counter())

def interrupt_when_stuck(taken):
    '''Sends SIGINT when no batch has arrived for 0.3 s.'''
    def send():
        while len(taken) == 0 or time.perf_counter() - taken[-1] < 0.3:
            time.sleep(0.01)
        taken.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()
"""


@pytest.fixture(scope="module")
def stalling(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose reads wait while the file `STALLED` exists."""
    assert COMPILER is not None
    folder = tmp_path_factory.mktemp("stall")
    library = folder / "stall.so"
    source = HELPERS / "stall.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "STALLED": str(folder / "stalled")}


@needs_compiler
@pytest.mark.parametrize("name", ["Loader", "TokenLoader"])
@timed
def test_interrupt_and_close(name: str, mixed_folder: Path, stalling: dict[str, str]) -> None:
    """KeyboardInterrupt is raised, close() detaches the thread with a log record, and the thread ends with its read."""
    scene = f"""
        loader = LOADERS[{name!r}]()
        next(loader)
        stalled.touch()
        times.append(time.perf_counter())
        late = []
        for _ in range(3):
            interrupt_when_stuck(times)
            try:
                take(loader)
            except KeyboardInterrupt:
                late.append(time.perf_counter() - times[-1])
        began = time.perf_counter()
        loader.close()
        closed = time.perf_counter() - began
        left = threads()
        stalled.unlink()
        end = seconds_to_end()
        with LOADERS[{name!r}]() as other:
            works = len(next(other)) > 0
        report(late=late, closed=closed, left=left, logged=logged, end=end, works=works)
    """
    measured = play(STALLS + textwrap.dedent(scene), mixed_folder, environment=stalling)
    assert len(measured["late"]) == 3
    # The fastest, which other processes delayed least.
    claim(min(measured["late"]) < INTERRUPT_LIMIT_S, measured["late"])
    assert measured["closed"] >= 0.5
    claim(measured["closed"] < END_LIMIT_S, measured["closed"])
    left = {thread[:10] for thread in measured["left"]}
    assert "forebay-io" in left, "the stalled thread was not detached"
    claim(left == {"forebay-io"}, "other threads have not ended", left)
    assert any("forebay-io" in line and "detached" in line for line in measured["logged"]), measured["logged"]
    claim(measured["end"] < END_LIMIT_S, measured["end"])
    assert measured["works"]


@needs_compiler
@pytest.mark.parametrize("name", ["Loader", "TokenLoader"])
@timed
def test_interrupt_while_constructing(name: str, mixed_folder: Path, stalling: dict[str, str]) -> None:
    scene = f"""
        stalled.touch()
        times.append(time.perf_counter())
        late = []
        for _ in range(3):
            interrupt_when_stuck(times)
            try:
                LOADERS[{name!r}]()
            except KeyboardInterrupt:
                late.append(time.perf_counter() - times[-1])
        left = threads()
        stalled.unlink()
        end = seconds_to_end()
        with LOADERS[{name!r}]() as other:
            works = len(next(other)) > 0
        report(late=late, left=left, end=end, works=works)
    """
    measured = play(STALLS + textwrap.dedent(scene), mixed_folder, environment=stalling)
    assert len(measured["late"]) == 3
    # The fastest, which other processes delayed least.
    claim(min(measured["late"]) < INTERRUPT_LIMIT_S, measured["late"])
    assert measured["left"], "the stalled read has returned"
    claim(measured["end"] < END_LIMIT_S, measured["end"])
    assert measured["works"]


@needs_compiler
@pytest.mark.parametrize("ending", ["", "raise RuntimeError", "sys.exit(3)"])
@timed
def test_process_ends(ending: str, mixed_folder: Path, stalling: dict[str, str]) -> None:
    """The process ends while a loader waits for a read that does not return."""
    scene = f"""
        loader = audio()
        next(loader)
        stalled.touch()
        times.append(time.perf_counter())
        interrupt_when_stuck(times)
        try:
            take(loader)
        except KeyboardInterrupt:
            report(stuck=threads())
        {ending}
    """
    with start(STALLS + textwrap.dedent(scene), mixed_folder, environment=stalling) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["stuck"]
        began = time.perf_counter()
        status = process.wait(timeout=120)
        took = time.perf_counter() - began
        Path(stalling["STALLED"]).unlink()
        said = process.stderr.read()
    assert status == {"": 0, "raise RuntimeError": 1, "sys.exit(3)": 3}[ending]
    claim(took < END_LIMIT_S, took)
    assert ("RuntimeError" in said) == ("RuntimeError" in ending)


def test_a_pipe_in_a_row_is_refused(tmp_path: Path) -> None:
    """A row with the path of a named pipe without a writer is bad; opening the pipe would block forever."""
    os.mkfifo(tmp_path / "pipe.wav")
    rows = [*tiny_rows(3), Row(None, path="pipe.wav")]
    shard = write_shard(tmp_path / "a.arrow", rows)
    with forebay.Loader.eval(shard, **TINY) as loader:
        assert [batch["index"].tolist() for batch in loader] == [[0, 1, 2]]
        [error] = loader.errors()
        assert (error["row"], error["kind"]) == (3, "unreadable")
        assert "pipe.wav" in error["reason"]


@needs_compiler
@pytest.mark.parametrize("name", ["Loader", "TokenLoader"])
def test_a_read_that_does_not_return_is_named(name: str, mixed_folder: Path, stalling: dict[str, str]) -> None:
    """The log record, the repr and `stats()` name a stalled read, also after close(), which detaches the thread."""
    scene = f"""
        loader = LOADERS[{name!r}](stall_warning_s=0.05)
        next(loader)
        stalled.touch()
        while not any("has been reading row" in line for line in logged):
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
            try:
                while True:
                    next(loader)
            except KeyboardInterrupt:
                pass
        def take_until_closed():
            try:
                take(loader)
            except forebay.ForebayError:
                pass
        caller = threading.Thread(target=take_until_closed)
        caller.start()
        while "has been reading row" not in repr(loader):
            time.sleep(0.01)
        text = repr(loader)
        found = [thread for thread in loader.stats()["threads"] if thread["state"] == "reading"]
        loader.close()
        caller.join()
        after = [thread["state"] for thread in loader.stats()["threads"]]
        stalled.unlink()
        report(text=text, found=found, after=after, logged=logged, end=seconds_to_end())
    """
    measured = play(STALLS + textwrap.dedent(scene), mixed_folder, environment=stalling)
    said = r"(forebay-io[-\d]*) has been reading row (\d+) for \d+\.\d s \(row \d+ of (.+)\)"
    lines = [found for line in measured["logged"] if (found := re.search(said, line))]
    assert lines
    assert Path(lines[0][3]).parent == mixed_folder
    found = re.search(r"; next\(\) waits \d+\.\d s for batch \d+: " + said, measured["text"])
    assert found is not None, measured["text"]
    assert found[1] in {thread["name"] for thread in measured["found"]}
    assert set(measured["after"]) == {"reading", "ended", "in the loop"}
