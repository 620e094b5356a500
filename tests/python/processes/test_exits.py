"""Ends of all loaders in any state: signals at random times, SIGTERM, errors, fork, spawn, exit.

Each scene runs in a child process, which prints its measurements as JSON and nothing else. Limits are three times the
goal (150 ms for Ctrl-C, 500 ms for threads), because machines that run tests are busy. `test_signals.py` has more on
`Loader`.
"""

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from scenes import END_LIMIT_S, INTERRUPT_LIMIT_S, PRELUDE, Scenes, play, start
from timing import TRIES, claim, timed


@timed
def test_interrupts_in_every_state(mixed_folder: Path, soak: int) -> None:
    """Each state is repeated until SIGINT arrives; afterwards all threads must end and a new loader must work.

    A late interrupt is repeated in the same state after the same delay. Any cause but a busy machine then delays it
    again. Python itself loses one that comes within its own callbacks, such as that of a weak reference; it is sent
    again. None may be lost within the code of this package.
    """
    scene = """
        loops = [
            lambda: audio().close(),
            lambda: next(audio()),
            lambda: [collections.deque(loader, maxlen=0) for loader in [audio(infinite=False)]],
            lambda: [next(iter(loader)) for loader in [audio(infinite=False)] for _ in range(50)],
            lambda: [loader.replay(40) for loader in [audio()]],
            lambda: [loader.plan(100_000) for loader in [audio(order="global")]],
            lambda: [loader.headspace(0.3) for loader in [audio()]],
            lambda: [(it.load_state_dict(it.state_dict()), next(it)) for it in [audio()] for _ in range(9)],
            lambda: [(loader.stats(), loader.errors(), str(loader)) for loader in [audio()] if next(loader)],
            lambda: [pickle.loads(pickle.dumps(loader)).close() for loader in [audio()]],
            lambda: tokens().close(),
            lambda: next(tokens()),
            lambda: collections.deque(itertools.islice(tokens(), 100), maxlen=0),
            lambda: collections.deque(itertools.islice(rows(), 50), maxlen=0),
            lambda: rows().close(),
        ]
        rng, late, stuck, lost = random.Random(int(sys.argv[2])), [], [], []
        _core._inject_delays(random_ms=2)
        def unraisable(args):
            if not callable(args.object):
                lost.append(f"{args.exc_type.__name__}: {args.err_msg} {args.object!r}")
        sys.unraisablehook = unraisable
        def seconds_late(loop, delay_s):
            times, answered = [], threading.Event()
            def interrupt():
                time.sleep(delay_s)
                times.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)
                while not answered.wait(60):
                    os.kill(os.getpid(), signal.SIGINT)
            again = threading.Thread(target=interrupt, daemon=True)
            try:
                # On a busy machine the signal may arrive before start() returns.
                again.start()
                while True:
                    loop()
            except KeyboardInterrupt:
                late_s = time.perf_counter() - times[0]
                answered.set()
            again.join()
            return late_s
        for number in range(int(sys.argv[2])):
            loop, delay_s = loops[number % len(loops)], 0.05 * rng.random()
            for _ in range({TRIES}):
                late.append(seconds_late(loop, delay_s))
                if late[-1] < {INTERRUPT_LIMIT_S}:
                    break
            else:
                stuck.append((number % len(loops), delay_s, late[-{TRIES}:]))
        _core._inject_delays()
        gc.collect()
        end = seconds_to_end()
        late.sort()
        works = [len(next(iter(make()))) > 0 for make in LOADERS.values()]
        p99 = late[int(0.99 * len(late))]
        report(n=len(late), p99=p99, worst=late[-1], stuck=stuck, lost=lost, end=end, works=works)
    """
    scene = scene.replace("{TRIES}", str(TRIES)).replace("{INTERRUPT_LIMIT_S}", str(INTERRUPT_LIMIT_S))
    n = 60 * soak
    measured = play(scene, mixed_folder, n, seconds=600 + n)
    print(f"{measured['n']} interrupts: p99 {measured['p99'] * 1e3:.0f} ms, worst {measured['worst'] * 1e3:.0f} ms")  # noqa: T201
    assert measured["works"] == [True] * 3
    assert measured["lost"] == []
    claim(measured["stuck"] == [], measured)
    claim(measured["end"] < END_LIMIT_S, measured)


NAMES = ["Loader", "TokenLoader", "AsyncDataLoader"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"])
@timed
def test_sigterm(name: str, handler: str, mixed_folder: Path) -> None:
    """By default SIGTERM ends the process; with a handler that exits, the loader's threads do not delay the exit."""
    scene = f"""
        {handler}
        batches = iter(LOADERS[{name!r}]())
        next(batches)
        report(running=len(threads()))
        while True:
            next(batches)
    """
    with start(scene, mixed_folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["running"] > 0
        began = time.perf_counter()
        process.terminate()
        assert process.wait(timeout=120) == (7 if handler else -15)
        ended = time.perf_counter()
        assert process.stderr.read() == ""
    claim(ended - began < END_LIMIT_S, ended - began)


LEAVES = {
    "an exception in the loop": """
        try:
            for batch in loader:
                running = len(threads())
                raise RuntimeError
        except RuntimeError:
            pass
        del loader, batch
    """,
    "del": """
        batches = iter(loader)
        next(batches)
        running = len(threads())
        del loader, batches
    """,
    "close": """
        next(iter(loader))
        batches = iter(loader)
        next(batches)
        running = len(threads())
        loader.close()
    """,
    "with": """
        with loader:
            batches = iter(loader)
            next(batches)
            running = len(threads())
    """,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leave", LEAVES)
@timed
def test_threads_end(name: str, leave: str, mixed_folder: Path) -> None:
    scene = f"loader = LOADERS[{name!r}]()\n" + textwrap.dedent(LEAVES[leave])
    measured = play(scene + "\ngc.collect()\nreport(running=running, end=seconds_to_end())", mixed_folder)
    assert measured["running"] > 0
    claim(measured["end"] < END_LIMIT_S, measured)


@timed
def test_token_loader_after_fork(mixed_folder: Path) -> None:
    """After a fork calls in the child raise, and the parent continues undisturbed."""
    scene = """
        loader = tokens()
        with tokens() as undisturbed:
            expected = [next(undisturbed)["inputs"].tolist() for _ in range(20)]
        found, statuses = [], collections.Counter()
        for _ in range(20):
            found.append(next(loader)["inputs"].tolist())
            child = os.fork()
            if child == 0:
                try:
                    next(loader)
                except forebay.ForebayError as error:
                    loader.close()
                    del loader
                    gc.collect()
                    os._exit(0 if "before a fork" in str(error) else 3)
                os._exit(4)
            statuses[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
        loader.close()
        report(statuses=list(statuses.items()), same=found == expected, end=seconds_to_end())
    """
    measured = play(scene, mixed_folder)
    assert (measured["statuses"], measured["same"]) == ([[0, 20]], True)
    claim(measured["end"] < END_LIMIT_S, measured)


# Hooks of a fork run in reverse order, so this one runs after that of forebay.
WATCH = """
import os, threading, time
begun, during, local = [], [], threading.local()
def encode(text):
    # Data of a thread are new in each call of a worker, and the same for the documents of one call.
    if not hasattr(local, "is_known"):
        local.is_known = True
        begun.append(text)
    return [len(text)]
def watch():
    before = len(begun)
    time.sleep(0.05)
    during.append(len(begun) - before)
os.register_at_fork(before=watch)
"""


def test_no_call_of_a_function_begins_during_a_fork(mixed_folder: Path) -> None:
    """Else a child of Python before 3.11.8 may hang in os.fork(): a worker is making its thread state."""
    scene = """
        loader = forebay.TokenLoader(folder, encode, bos_id=256, batch_size=4, seq_len=7, buffer_size=20, n_workers=2)
        def consume():
            try:
                collections.deque(loader, maxlen=0)
            except forebay.ForebayError as error:
                assert loader.closed, error
        consumer = threading.Thread(target=consume)
        consumer.start()
        for _ in range(20):
            many = len(begun) + 5
            while len(begun) < many:
                time.sleep(0.001)
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        loader.close()
        consumer.join()
        report(during=during)
    """
    scenes = Scenes(WATCH + PRELUDE.replace("def encode", "def bytes_of"))
    during = scenes.play(scene, mixed_folder)["during"]
    assert len(during) == 20
    assert max(during) <= 2, during  # each worker may be in a call that began before


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@timed
def test_another_process_goes_on(method: str, mixed_folder: Path, tmp_path: Path) -> None:
    """A pickle has configuration and state: a loader unpickled in another process yields the next batches."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(PRELUDE)
        + textwrap.dedent("""
        def take(name, loader):
            return [numbers(name, batch) for batch in itertools.islice(loader, 3)]

        def numbers(name, batch):
            return batch["index" if name == "Loader" else "inputs"].tolist()

        def main():
            context = multiprocessing.get_context(sys.argv[2])
            with context.Pool(1) as pool:
                for name in ["Loader", "TokenLoader"]:
                    with LOADERS[name]() as loader:
                        next(loader)
                        there = pool.apply(take, (name, loader))
                        here = take(name, loader)
                    assert there == here, name
            report(end=seconds_to_end())

        if __name__ == "__main__":
            main()
        """)
    )
    done = subprocess.run(
        [sys.executable, program, mixed_folder, method], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    claim(json.loads(done.stdout)["end"] < END_LIMIT_S, done.stdout)


@timed
def test_random_closes_and_delays(mixed_folder: Path, soak: int) -> None:
    """Loaders with delayed threads are closed by other threads at random moments: batches are right, threads end."""
    scene = """
        rng = random.Random(1)
        with audio() as undisturbed:
            expected = [next(undisturbed)["index"].tolist() for _ in range(200)]
        outcomes, wrong = collections.Counter(), 0
        for _ in range(int(sys.argv[2])):
            _core._inject_delays(random_ms=rng.choice([0, 0.1, 1, 5]))
            loader = audio(
                n_workers=rng.choice([1, 2, 8]), n_readers=rng.choice([1, 2, 32]),
                raw_channel_size=rng.choice([1, 3, 256]), prefetch_batches=rng.choice([1, 3]),
            )
            closer = threading.Timer(rng.choice([0, 0.005, 0.03]) * rng.random(), loader.close)
            closer.start()
            found = []
            try:
                while len(found) < 200:
                    found.append(next(loader)["index"].tolist())
                outcomes["read on"] += 1
            except forebay.ForebayError as error:
                outcomes["closed" if "closed" in str(error) else str(error)] += 1
            wrong += found != expected[: len(found)]
            closer.join()
        report(outcomes=outcomes, wrong=wrong, end=seconds_to_end())
    """
    n = 100 * soak
    measured = play(scene, mixed_folder, n, seconds=600 + n)
    assert measured["wrong"] == 0
    assert set(measured["outcomes"]) <= {"closed", "read on"}
    claim(measured["outcomes"]["closed"] > n // 4, measured)
    claim(measured["end"] < END_LIMIT_S, measured)
