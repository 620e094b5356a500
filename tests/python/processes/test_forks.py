"""Forks while threads of the parent hold locks: calls in the child raise or work, and the child ends.

Covers each method of a loader in a child, and datasets, which have no threads and work there or raise.
"""

import pytest

from scenes import PRELUDE, Scenes

FORKS = 30

FORKED = (
    PRELUDE
    + """
def in_child(work, limit=60):
    \"\"\"The exit status of a child that calls `work`; minus a signal's number, SIGALRM's if the child hung.\"\"\"
    child = os.fork()
    if child == 0:
        status = 99
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(limit)
            status = work() or 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\\n")
            status = 98
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def refused(*calls):
    \"\"\"0 if all calls are refused, else 1 + the number of the first other one (41 + for another error).\"\"\"
    for number, call in enumerate(calls):
        try:
            call()
            return 1 + number
        except forebay.ForebayError as error:
            if "before a fork" not in str(error):
                return 41 + number
    return 0
"""
)

play = Scenes(FORKED).play


@pytest.mark.parametrize("which", ["audio", "tokens"])
def test_loaders(which: str, mixed_folder: object, soak: int) -> None:
    """The process forks while threads take batches, log bad records and request figures and errors."""
    scene = f"""
    logging.getLogger("forebay").setLevel(logging.DEBUG)
    logging.getLogger("forebay").addHandler(logging.NullHandler())
    logging.getLogger("forebay").propagate = False
    loader = {which}()
    state, stop = loader.state_dict(), threading.Event()

    def busy(what):
        while not stop.is_set():
            what()

    def record():
        _core._inject_records(50)

    works = [lambda: next(loader), loader.stats, loader.errors, record, record]
    others = [threading.Thread(target=busy, args=(work,)) for work in works]
    [other.start() for other in others]
    kept = next(loader)

    def child():
        found = refused(
            lambda: next(loader), lambda: iter(loader), loader.state_dict, lambda: loader.load_state_dict(state),
            loader.errors, lambda: loader.batch, lambda: loader.epoch, lambda: loader.set_epoch(3), loader.headspace,
            lambda: loader.trace("/dev/null"), lambda: pickle.dumps(loader),
        )
        if found:
            return found
        loader.stats(), repr(loader), loader.closed, bool(loader), loader.shards
        loader.close()
        with {which}(infinite=False) as own:
            if len(next(own)) != len(kept):
                return 80
        kept.clear()
        _core._close_all()
        return 0

    statuses = collections.Counter()
    for _ in range({FORKS * soak}):
        statuses[in_child(child)] += 1
    stop.set()
    [other.join() for other in others]
    more = len(next(loader))
    loader.close()
    report(statuses=list(statuses.items()), more=more > 0)
    """
    assert play(scene, mixed_folder) == {"statuses": [[0, FORKS * soak]], "more": True}


def test_datasets(mixed_folder: object, soak: int) -> None:
    """A child can read a dataset that the parent's threads read, or gets the error to open its own."""
    scene = f"""
    import numpy as np
    from forebay.cache import DataLoader, ListAsyncDataset, PermutationDataset

    documents = [{{"x": i, "ids": np.arange(200, dtype=np.int32)}} for i in range(2000)]
    dataset = PermutationDataset(ListAsyncDataset(documents), 1)
    loader = DataLoader(dataset, 8, n_workers=2)
    expected = [row["x"] for row in dataset.get_batch(range(8))]
    stop = threading.Event()

    def read():
        while not stop.is_set():
            dataset.get_batch(range(64))

    def take():
        while not stop.is_set():
            for _ in loader:
                if stop.is_set():
                    break

    others = [threading.Thread(target=work) for work in (read, read, read, take)]
    [other.start() for other in others]

    def child():
        found = refused(
            lambda: next(loader), lambda: len(loader), loader.state_dict, lambda: loader.load_state_dict({{}}),
            lambda: iter(loader), lambda: loader.seek(3), lambda: pickle.dumps(loader),
        )
        if found:
            return found
        loader.stats(), repr(loader)
        loader.close()
        try:
            if [row["x"] for row in dataset.get_batch(range(8))] != expected:
                return 81
            with DataLoader(dataset, 8) as own:
                if len(own) != 250 or next(own)["x"].tolist() != expected:
                    return 82
        except forebay.ForebayError as error:
            return 0 if "moment of the fork" in str(error) else 83
        return 0

    statuses = collections.Counter()
    for _ in range({FORKS // 3 * soak}):
        statuses[in_child(child)] += 1
    stop.set()
    [other.join() for other in others]
    loader.close()
    report(statuses=list(statuses.items()))
    """
    assert play(scene, mixed_folder) == {"statuses": [[0, FORKS // 3 * soak]]}


def test_a_build(mixed_folder: object) -> None:
    scene = """
    import tempfile
    from forebay.cache import build

    gate = threading.Event()

    def wait(documents):
        gate.wait(30)
        return [{"x": i} for i, _ in enumerate(documents)]

    path = tempfile.mkdtemp() + "/cache"
    made = build({"a": [{"x": i} for i in range(100)]}, wait, path, wait=False)

    def child():
        return refused(made.progress, lambda: made.wait(0.1), made.cancel)

    statuses = [in_child(child) for _ in range(10)]
    gate.set()
    report(statuses=statuses, documents=len(made.wait()))
    """
    assert play(scene, mixed_folder) == {"statuses": [0] * 10, "documents": 100}


def test_a_child_does_not_keep_the_lock_of_a_build(mixed_folder: object) -> None:
    """A build can be repeated while a child, like a PyTorch worker process, still has the lock file open."""
    scene = """
    import tempfile
    from forebay.cache import build

    gate = threading.Event()

    def wait(documents):
        gate.wait(30)
        return documents

    path = tempfile.mkdtemp() + "/cache"
    documents = {"a": [{"x": i} for i in range(100)]}
    made = build(documents, wait, path, wait=False)
    end, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold)
        os.read(end, 1)
        os._exit(0)
    gate.set()
    built = len(made.wait())
    again = len(build(documents, None, path, overwrite=True))
    os.close(hold)
    report(built=built, again=again, child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert play(scene, mixed_folder) == {"built": 100, "again": 100, "child": 0}


def test_a_fork_waits_for_tables_in_the_making(mixed_folder: object) -> None:
    """A thread makes the tables of a decoder when the process forks; the child decodes with them."""
    scene = """
    from paths import DATA
    data = (DATA / "recordings" / "vorbis_q4_44100_mono.ogg").read_bytes()
    _core._inject_slow_values(300)
    first = threading.Thread(target=forebay.decode, args=(data,))
    first.start()
    while first.is_alive() and not _core._values_in_the_making():
        time.sleep(0.001)
    status = in_child(lambda: forebay.decode(data) and 0)
    first.join()
    report(status=status)
    """
    assert play(scene, mixed_folder) == {"status": 0}
