"""`AsyncDataLoader`: threads, signals, forks, and the end of a process.

Scenes run in child processes, which print their measurements as JSON. Limits are three times the goal (150 ms for
Ctrl-C, 500 ms for threads), because machines that run tests are busy.
"""

import json
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import BufferPool
from numbered import END_LIMIT_S, ROW, Pipeline, expected, loader, rows, seconds_to_end, threads
from paths import HELPERS
from scenes import Scenes
from timing import claim, timed

pytestmark = pytest.mark.usefixtures("little_to_collect", "no_threads_left")

INTERRUPT_LIMIT_S = 3 * 0.15


@timed
def test_threads_end_with_the_loop() -> None:
    """A6, A7: threads end at the end of the loop, when it is left, and at `close()`."""
    batches = loader()
    for left, _batch in zip(range(len(batches), 0, -1), batches, strict=False):
        assert len(threads()) == 3 or left == 1
    ended = [seconds_to_end()]  # zip() takes the last batch without requesting another
    for _batch in batches:
        pass
    left_over = threads()
    for _batch in batches:
        break
    ended.append(seconds_to_end())
    with batches:
        gone = iter(batches)
        next(gone)
    left_over += threads()
    with pytest.raises(forebay.ForebayError, match="closed"):
        next(gone)
    with pytest.raises(forebay.ForebayError, match="closed"):
        iter(batches)
    batches.close()
    assert batches.closed
    assert repr(batches) == "<forebay.AsyncDataLoader: 103 rows, batches of 4, closed>"
    claim(not left_over, left_over)
    claim(max(ended) < END_LIMIT_S, ended)


@timed
def test_threads_end_when_all_is_dropped() -> None:
    batches = iter(loader())
    next(batches)
    del batches
    ended = seconds_to_end()
    claim(ended < END_LIMIT_S, ended)


def test_dropping_the_loader_alone_ends_nothing() -> None:
    assert rows(iter(loader())) == expected()


@timed
def test_close_lets_a_busy_pipeline_go(caplog: pytest.LogCaptureFixture) -> None:
    """A7: `close()` does not wait for a busy pipeline, and logs that."""
    busy, go_on = threading.Semaphore(0), threading.Event()

    class Busy(Pipeline):
        def __call__(self, *_arguments: Any) -> None:
            busy.release()
            go_on.wait(120)

    batches = loader(pipeline=Busy())
    iterator = iter(batches)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            next(iterator)
        except forebay.ForebayError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert all(busy.acquire(timeout=120) for _ in range(3))
    start = time.perf_counter()
    batches.close()
    waiting.join(60)
    ended = time.perf_counter() - start
    assert "closed" in str(*raised)
    assert "3 threads still run the pipeline" in caplog.text
    go_on.set()
    claim(ended < END_LIMIT_S, ended)


@pytest.mark.parametrize("buffers_ahead", [1, 3])
@timed
def test_threads_that_wait_for_scratch_memory(buffers_ahead: int) -> None:
    """A7, A10: four threads share two buffers of each of two pools; at the end all buffers are released."""
    pools = [BufferPool(2, (4, *ROW), np.float64) for _ in range(2)]

    class Scratched(Pipeline):
        def __call__(self, *arguments: Any) -> None:
            lent = [pool.acquire(timeout=120) for pool in pools]
            super().__call__(*arguments)
            x = arguments[3]["x"]
            for _number, scratch in lent:
                scratch[: len(x)] = x
            x[:] = sum(scratch[: len(x)] for _number, scratch in lent) / 2
            for pool, (number, _scratch) in zip(pools, lent, strict=True):
                pool.release(number)

    batches = loader(pipeline=Scratched(jitter_s=0.002), buffers_ahead=buffers_ahead)
    ended = []
    for epoch, left_after in enumerate((1, 5, 26)):
        assert rows(islice(batches, left_after)) == expected(epoch=epoch)[:left_after]
        ended.append(seconds_to_end())
    for pool in pools:
        assert sorted(pool.acquire(timeout=0)[0] for _ in range(2)) == [0, 1]
    claim(max(ended) < END_LIMIT_S, ended)


def test_the_pipeline_may_close_the_loader() -> None:
    class Closing(Pipeline):
        def __call__(self, *_arguments: Any) -> None:
            batches.close()

    batches = loader(pipeline=Closing())
    with pytest.raises(forebay.ForebayError, match="closed"):
        list(batches)


PRELUDE = f"""
import collections, gc, json, os, random, signal, sys, threading, time, warnings
sys.path.insert(0, {str(HELPERS)!r})
import forebay
from numbered import Pipeline, Reader, expected, loader, rows, seconds_to_end, threads

def interrupt_after(delay_s, times):
    def send():
        time.sleep(delay_s)
        times.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send, daemon=True).start()

def report(**measured):
    print(json.dumps(measured), flush=True)
"""


start, play = Scenes(PRELUDE).start, Scenes(PRELUDE).play


@timed
def test_interrupt_in_next() -> None:
    """A6: Ctrl-C interrupts within 150 ms, and the pass continues."""
    scene = """
        gate = threading.Event()
        class Gated(Pipeline):
            def __call__(self, *arguments):
                gate.wait()
                super().__call__(*arguments)
        batches = iter(loader(pipeline=Gated()))
        times = []
        try:
            interrupt_after(0.2, times)
            next(batches)
            outcome = "batch"
        except KeyboardInterrupt:
            outcome = "interrupted"
        late = time.perf_counter() - times[0]
        gate.set()
        report(outcome=outcome, late=late, same=rows(batches) == expected())
    """
    measured = play(scene)
    assert measured["outcome"] == "interrupted"
    assert measured["same"]
    claim(measured["late"] < INTERRUPT_LIMIT_S, measured)


@pytest.mark.parametrize("num_workers", [4, "auto"])
@timed
def test_interrupts_lose_nothing(soak: int, num_workers: object) -> None:
    """Interrupts at random moments lose no batch; `map` has no bytecode between `next()` and the list."""
    scene = """
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        rng = random.Random(0)
        num_workers = int(sys.argv[2]) if sys.argv[2].isdigit() else sys.argv[2]
        batches = loader(3000 * int(sys.argv[1]), 1, Pipeline(0.0005), num_workers=num_workers, buffers_ahead=2)
        iterator = iter(batches)
        found, interrupts = [], 0
        while len(found) < len(batches):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.01 * rng.random())
                collections.deque(map(found.append, iterator), maxlen=0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        report(same=rows(found) == expected(len(batches), 1), interrupts=interrupts, end=seconds_to_end())
    """
    measured = play(scene, soak, num_workers)
    assert measured["same"]
    assert measured["interrupts"] > 20
    claim(measured["end"] < END_LIMIT_S, measured)


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "raise SystemExit('out')", "del batches", "gc.collect()"])
@timed
def test_process_ends(ending: str) -> None:
    scene = f"""
        batches = loader(pipeline=Pipeline(jitter_s=0.02), buffers_ahead=20)
        iterator = iter(batches)
        next(iterator)
        report(running=len(threads()))
        {ending}
    """
    with start(scene) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["running"] == 4
        began = time.perf_counter()
        process.wait(timeout=120)
        ended = time.perf_counter()
        assert process.returncode == ("out" in ending)
    claim(ended - began < END_LIMIT_S, ended - began)


def test_process_ends_without_making_batches_ahead(tmp_path: Path) -> None:
    """The process ends without making the hundred batches of 0.2 s that are queued."""
    scene = """
        random.random = lambda: 1
        class Noting(Pipeline):
            def __call__(self, *arguments):
                super().__call__(*arguments)
                with open(sys.argv[1], "a") as notes:
                    notes.write("x")
        iterator = iter(loader(400, pipeline=Noting(jitter_s=0.2), buffers_ahead=100, num_workers=1))
        next(iterator)
        report()
    """
    play(scene, notes := tmp_path / "notes")
    assert 1 <= len(notes.read_text()) < 50


def test_fork() -> None:
    """The pass continues in the parent; `next()` raises in the child, which may begin the next pass."""
    scene = """
        warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork in a process with threads
        batches = loader(pipeline=Pipeline(jitter_s=0.001))
        iterator = iter(batches)
        found, statuses = [], collections.Counter()
        for _ in range(10):
            found.append(next(iterator))
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    next(iterator)
                except forebay.ForebayError as error:
                    status = 0 if "before a fork" in str(error) and rows(batches) == expected(epoch=1) else 2
                del iterator
                batches.close()
                gc.collect()
                os._exit(status + 4 * len(threads()))
            statuses[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
        report(statuses=list(statuses.items()), same=rows(found) + rows(iterator) == expected())
    """
    assert play(scene) == {"statuses": [[0, 10]], "same": True}


def test_goes_on_in_another_process() -> None:
    batches = loader()
    for _batch in islice(batches, 9):
        pass
    scene = """
        batches = loader(num_workers=2, buffers_ahead=7)
        batches.load_state_dict(json.loads(sys.argv[1]))
        report(rows=rows(batches))
    """
    assert play(scene, json.dumps(batches.state_dict()))["rows"] == expected()[9:]
