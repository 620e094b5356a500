"""Signal handlers that call the object whose method they interrupt, as a handler that saves a checkpoint does.

The programs run in child processes. A method that waits for its own thread hangs, and the child is killed after
minutes; no test depends on how fast the machine is.
"""

from pathlib import Path

import pytest

from beside import DATASETS, LOADERS, TABLE
from scenes import Scenes

play = Scenes(TABLE).play


@pytest.mark.parametrize("kind", [*LOADERS, "_Batches", *DATASETS])
def test_every_method_within_every_other(kind: str, mixed_folder: Path) -> None:
    """Each method is called in a signal handler within each other one, while another thread calls all of them."""
    scene = """
    thing, found = made(sys.argv[2])
    table = Table(found)
    stop = threading.Event()
    # An AsyncDataLoader is for one thread; another one may look at it.
    alone = ("__repr__", "closed", "stats", "state_dict")
    beside = [name for name in found if sys.argv[2] != "AsyncDataLoader" or name in alone]
    def others():
        while not stop.is_set():
            for name in beside:
                table.attempt(name, "in another thread")
    other = threading.Thread(target=others)
    other.start()
    for outer in found:
        left = list(found)
        table.handle(left)
        while left and not table.wrong:
            table.run(outer)
    signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    other.join()
    if hasattr(thing, "close") or sys.argv[2] == "_Batches":
        getattr(thing, "close", lambda: None)()
    report(wrong=table.wrong[:5], pairs=len(set(table.handled)), expected=len(found) ** 2)
    """
    measured = play(scene, mixed_folder, kind)
    assert measured["wrong"] == []
    # An iterator has three methods.
    assert measured["pairs"] == measured["expected"] >= (9 if kind == "_Batches" else 49)


@pytest.mark.parametrize("kind", [*LOADERS, "AudioDataset"])
def test_close_within_every_method(kind: str, mixed_folder: Path) -> None:
    """A handler closes the object within each method, while another thread waits in `next()` or reads rows."""
    scene = """
    wrong, names = [], list(made(sys.argv[2])[1])
    for outer in names:
        thing, found = made(sys.argv[2])
        table = Table({**found, "close": thing.close})
        takes = "__next__" if "__next__" in found else "get_batch"
        if sys.argv[2] == "AsyncDataLoader":
            takes = "stats"
        def others():
            while not thing.closed:
                table.attempt(takes, "in another thread")
        other = threading.Thread(target=others)
        other.start()
        left = ["close"]
        table.handle(left)
        while left:
            table.run(outer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        table.run("close")
        other.join()
        wrong += table.wrong
        if not thing.closed:
            wrong.append(f"open after a close within {outer}")
    report(wrong=wrong[:5], methods=len(names))
    """
    measured = play(scene, mixed_folder, kind)
    assert measured["wrong"] == []
    assert measured["methods"] >= 9


def test_a_handler_waits_for_a_thread_that_calls_the_loader(mixed_folder: Path) -> None:
    """The interrupted call has the first place in the queue for the engine, and goes on only after the handler."""
    scene = """
    _core._inject_delays(fixed_ms=10)
    loader, states, stop = audio(), [], threading.Event()

    def take():
        while not stop.is_set():
            next(loader)

    other = threading.Thread(target=take)
    other.start()

    def handler(*_):
        helper = threading.Thread(target=lambda: states.append(loader.state_dict()))
        helper.start()
        helper.join()

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    while len(states) < 20:
        loader.state_dict()
    signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    other.join()
    loader.close()
    report(states=len(states) >= 20)
    """
    assert play(scene, mixed_folder) == {"states": True}


def test_a_handler_within_the_users_length(mixed_folder: Path) -> None:
    """The user's `__len__` runs within each method of a loader; the handler calls every method of it."""
    scene = """
    class Interrupted(Own):
        is_armed = False
        def __len__(self):
            if threading.current_thread() is threading.main_thread() and self.is_armed:
                signal.raise_signal(signal.SIGUSR1)
            return super().__len__()
        def final_length_is_known(self):
            return False  # so that each method asks for the length

    dataset = Interrupted()
    # A permutation would wait for the final length.
    things = [cache.DataLoader(dataset, 4, n_workers=1), dataset.era_shuffle(8, 1)]
    handled, wrong = collections.Counter(), []
    for thing in things:
        found = calls(thing, work)
        for name in ("__len__", "wait_until_len_at_least"):  # they wait for the final length
            found.pop(name, None)
        table = Table(found)
        for inner in found:
            def handler(*_):
                dataset.is_armed = False
                table.attempt(inner, "in a handler, within __len__")
                handled[type(thing).__name__] += 1
            signal.signal(signal.SIGUSR1, handler)
            for outer in found:
                dataset.is_armed = True
                table.attempt(outer, "around __len__")
                dataset.is_armed = False
        wrong += table.wrong
        getattr(thing, "close", lambda: None)()
    report(wrong=wrong[:5], handled=min(handled.values()), of=len(handled))
    """
    measured = play(scene, mixed_folder)
    assert measured["wrong"] == []
    assert measured["of"] == 2
    assert measured["handled"] >= 20


def test_a_leaf_may_wait_for_a_thread_that_calls_its_view(mixed_folder: Path) -> None:
    scene = """
    class Asks(Own):
        def get_batch(self, indices):
            asked = threading.Thread(target=lambda: lengths.append(view.current_len()))
            asked.start()
            asked.join()
            return super().get_batch(indices)

    lengths = []
    sources = {"a": Asks(), "b": of_documents()}
    view = cache.MixtureDataset(sources, {"a": 1, "b": 1}, block_size=2, stop="first_exhausted")
    found = [row["x"] for row in view.get_batch(range(8))]
    report(rows=len(found), asked=len(lengths) > 0)
    """
    assert play(scene, mixed_folder) == {"rows": 8, "asked": True}
