"""The interpreter ends while daemon threads are in calls of a loader: they leave with an error, or park.

The exit code is the program's.

Before Python 3.14 a thread that needs the interpreter after its end is ended by the C library, which unwinds its
frames; in Rust's frames that aborts the process.
"""

from pathlib import Path

import pytest

from scenes import PRELUDE, Scenes

start = Scenes(PRELUDE).start


def ended(scene: str, *arguments: object) -> tuple[int, str, str]:
    """Runs a scene; exit code, output and errors."""
    with start(scene, *arguments) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.mark.parametrize("kind", ["Loader", "TokenLoader"])
@pytest.mark.parametrize("delay_ms", [0, 20])
def test_many_daemons_wait_for_batches(kind: str, delay_ms: int, mixed_folder: Path) -> None:
    scene = """
    _core._inject_delays(fixed_ms=float(sys.argv[3]))
    make = LOADERS[sys.argv[2]]
    loaders = [make() for _ in range(4)]
    taken = threading.Semaphore(0)

    def take(loader):
        try:
            while True:
                next(loader)
                loader.state_dict()
                taken.release()
        except forebay.ForebayError:  # the loader is closed
            pass

    for number in range(32):
        threading.Thread(target=take, args=(loaders[number % 4],), daemon=True).start()
    for _ in range(40):
        taken.acquire()
    raise RuntimeError("the main thread ends")
    """
    code, out, err = ended(scene, mixed_folder, kind, delay_ms)
    assert (code, out) == (1, ""), err
    assert err.endswith("RuntimeError: the main thread ends\n")
    assert err.count("Traceback") == 1, err


def test_the_main_thread_uses_a_loader_at_its_end(mixed_folder: Path) -> None:
    """Functions at exit, called after forebay's own, use and close a loader in whose queue parked threads wait."""
    scene = """
    # Registered before forebay's own function would be in a program that imports forebay later.
    import atexit
    atexit.unregister(_core._close_all)
    loader = audio()

    def at_exit():
        state = loader.state_dict()
        loader.close()
        print(state["batch"] >= 0, loader.closed, flush=True)

    atexit.register(at_exit)
    atexit.register(_core._close_all)
    _core._inject_delays(fixed_ms=20)
    taken = threading.Semaphore(0)

    def take():
        try:
            while True:
                next(loader)
                taken.release()
        except forebay.ForebayError:  # the loader is closed
            pass

    for _ in range(16):
        threading.Thread(target=take, daemon=True).start()
    taken.acquire()
    sys.exit(3)
    """
    code, out, err = ended(scene, mixed_folder)
    assert (code, out, err) == (3, "True True\n", "")


def test_an_earlier_handler_waits_for_a_thread_in_a_loop(mixed_folder: Path) -> None:
    """Handlers registered before the import run after that of forebay: the thread has left `next()` by then."""
    scene = """
    import atexit
    loader = audio()
    atexit.unregister(_core._close_all)
    taken = threading.Event()

    def take():
        try:
            while True:
                next(loader)
                taken.set()
        except forebay.ForebayError:
            print("left", flush=True)

    thread = threading.Thread(target=take, daemon=True)
    atexit.register(lambda: (thread.join(), print("joined", flush=True)))
    atexit.register(_core._close_all)
    _core._inject_delays(fixed_ms=20)
    thread.start()
    taken.wait()
    """
    assert ended(scene, mixed_folder) == (0, "left\njoined\n", "")
