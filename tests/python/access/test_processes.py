"""`AudioDataset` and its threads: Ctrl-C, forks, the end of the process. Each scene runs in a child process."""

import pickle
from pathlib import Path

from digests import digest
from forebay import AudioDataset, crops
from recordings import TINY, Row, tiny_rows, write_shard
from scenes import PRELUDE, Scenes

SETUP = (
    PRELUDE
    + f"""
from digests import digest
tiny = {TINY!r}

def opened(**parameters):
    return forebay.AudioDataset(shards, **tiny, **parameters)

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
            sys.stderr.write(f"{{type(error).__name__}}: {{error}}\\n")
            status = 98
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def n_threads(n):
    \"\"\"Waits until there are n threads, which get their names when they run first; their number.\"\"\"
    until = time.perf_counter() + 60
    while len(threads()) != n and time.perf_counter() < until:
        time.sleep(0.002)
    return len(threads())

good = [row for row in range(300) if row % 20 != 7]
"""
)

play = Scenes(SETUP).play


def test_threads_start_when_needed_and_end(mixed_folder: Path) -> None:
    scene = """
    dataset = opened(n_threads=5)
    counts = [n_threads(0)]
    dataset[0]
    counts.append(n_threads(1))
    for _ in range(20):
        dataset.get_batch(good[:50])
    counts.append(n_threads(5))
    dataset.close()
    seconds_to_end()
    counts.append(n_threads(0))
    other = opened(n_threads=3)
    other[good]
    counts.append(n_threads(3))
    del other
    seconds_to_end()
    report(counts=[*counts, n_threads(0)])
    """
    assert play(scene, mixed_folder)["counts"] == [0, 1, 5, 0, 3, 0]


def test_ctrl_c_ends_a_call(mixed_folder: Path) -> None:
    """A call that would take long is interrupted, wherever the signal meets it; the dataset can be used on."""
    scene = """
    dataset = opened(n_threads=2)
    expected = digest(dataset.get_batch(good))
    many = good * 3000
    interrupted = 0
    for delay in (0.0, 0.01, 0.05, 0.2):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                dataset.get_batch(many)
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        assert digest(dataset.get_batch(good)) == expected
    report(interrupted=interrupted)
    """
    assert play(scene, mixed_folder)["interrupted"] == 4


def test_a_call_within_a_signal_handler(mixed_folder: Path) -> None:
    """A handler that runs during a call may call the same dataset."""
    scene = """
    dataset = opened(n_threads=1)
    found = []
    signal.signal(signal.SIGALRM, lambda *_: found.append(len(dataset.get_batch(good)["index"])))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.05)
    while len(found) < 5:
        dataset.get_batch(good * 20)
    signal.setitimer(signal.ITIMER_REAL, 0)
    report(found=found[:5])
    """
    assert play(scene, mixed_folder)["found"] == [285] * 5


def test_a_fork(mixed_folder: Path) -> None:
    """A child has threads of its own; the parent's go on."""
    scene = """
    dataset = opened(n_threads=2, outputs=["path"])
    before = opened(n_threads=2, outputs=["path"])  # its threads never started
    expected = digest(dataset.get_batch(good))

    def child():
        ok = digest(dataset.get_batch(good)) == expected == digest(before.get_batch(good))
        ok &= dataset.waveform(3)[1] == 8000 and len(dataset.column("label")) == 300 and n_threads(4) == 4
        return 0 if ok and in_child(lambda: int(digest(dataset.get_batch(good)) != expected)) == 0 else 1

    def closes():
        dataset.close()
        before.close()
        try:
            dataset[0]
        except forebay.ForebayError as error:
            return int("closed" not in str(error))
        return 2

    statuses = [in_child(child), in_child(closes), in_child(lambda: None)]
    report(statuses=statuses, same=digest(dataset.get_batch(good)) == expected)
    """
    assert play(scene, mixed_folder) == {"statuses": [0, 0, 0], "same": True}


def test_forks_while_threads_read(mixed_folder: Path, soak: int) -> None:
    """A child reads the same rows, or says that a lock was held at the fork; it never hangs."""
    scene = f"""
    dataset = opened(n_threads=3)
    expected = digest(dataset.get_batch(good[:40]))
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            dataset.get_batch(good)

    def child():
        return int(digest(dataset.get_batch(good[:40])) != expected)

    callers = [threading.Thread(target=busy) for _ in range(2)]
    for caller in callers:
        caller.start()
    statuses = [in_child(child) for _ in range({15 * soak})]
    stop.set()
    for caller in callers:
        caller.join()
    report(statuses=statuses)
    """
    assert set(play(scene, mixed_folder)["statuses"]) == {0}


def test_the_end_of_a_process(mixed_folder: Path) -> None:
    """A process ends while threads decode, in the middle of a call of a daemon thread too."""
    scene = """
    dataset = opened(n_threads=2)
    dataset[good]
    caller = threading.Thread(target=lambda: [dataset.get_batch(good * 100) for _ in range(1000)], daemon=True)
    caller.start()
    report(done=True)
    """
    assert play(scene, mixed_folder)["done"]


def test_another_process(tmp_path: Path) -> None:
    """Pickled as it was made, with relative paths too."""
    write_shard(tmp_path / "a.arrow", [*tiny_rows(9), Row(b"", 0)])
    made = AudioDataset(tmp_path / "a.arrow", **TINY, columns=[], crop=crops.Random(), seed=5, n_threads=3)
    copied = pickle.loads(pickle.dumps(made))
    assert repr(copied) == repr(made)
    assert digest(copied[:9]) == digest(made[:9])
    scene = """
    os.chdir(folder)
    dataset = forebay.AudioDataset("a.arrow", **tiny, crop=forebay.crops.Random(), seed=5)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(dataset.get_batch, ([3, 1, 8],))
    report(same=digest(found) == digest(dataset.get_batch([3, 1, 8])))
    """
    assert play(scene, tmp_path)["same"]


def test_html(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", [*tiny_rows(3)])
    made = AudioDataset(shard, **TINY)
    page = made._repr_html_()
    for part in ("<audio controls", "data:image/png;base64,", "<td>spectrogram</td>", "pcm, 8000 Hz"):
        assert part in page
    assert len(page) < 1 << 20
    made.close()
    assert "<audio" not in made._repr_html_()
    bad = AudioDataset(write_shard(tmp_path / "b.arrow", [Row(b"<no recording>", 0)]), **TINY)
    page = bad._repr_html_()
    assert "no known audio format" in page
    assert "<audio" not in page


def test_html_of_real_recordings(shards: list[Path]) -> None:
    """A long recording is cut, so that the page stays small."""
    with AudioDataset(shards) as made:
        seconds = [made.info(row)["seconds"] for row in range(len(made))]
        assert max(seconds) > 5
        assert len(made._repr_html_()) < 1 << 20
