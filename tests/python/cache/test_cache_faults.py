"""Builds that are killed, fail or run out of disk space: committed documents are neither lost, doubled nor partial."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caches import Number, expected, files, made, same, unequal
from forebay import ConfigError, ForebayError, StateError, cache
from timing import claim, eventually, fresh, timed

SIZES = (60, 0, 25, 90)
BATCH = 4
TIMES = 300
"""Output documents per input document: about one commit every seven batches."""

SCRIPT = """
import resource, sys
from caches import Number, unequal
from forebay import cache
sleep_s, folder, n_workers, most_bytes = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if most_bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
print("begins", flush=True)
cache.build(unequal({sizes}), Number(sleep_s=sleep_s, times={times}), folder, batch_size={batch}, n_workers=n_workers)
print("ends", flush=True)
"""


def script(folder: Path, *, sleep_s: float = 0.0, n_workers: int = 2, most_bytes: int = 0) -> subprocess.Popen[str]:
    """A process that has begun to build; its files are limited to `most_bytes`, if that is not 0."""
    code = SCRIPT.format(sizes=SIZES, times=TIMES, batch=BATCH)
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(sleep_s), str(folder), str(n_workers), str(most_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n", process.stderr and process.stderr.read()
    return process


def build(folder: Path, **options: Any) -> cache.TreeStore:
    store: cache.TreeStore = cache.build(unequal(SIZES), Number(times=TIMES), folder, batch_size=BATCH, **options)
    return store


def length(folder: Path) -> int:
    """The number of committed documents."""
    try:
        return len(cache.TreeStore(folder))
    except FileNotFoundError:
        return 0


def wait_for_a_commit(folder: Path, process: subprocess.Popen[str]) -> None:
    """Waits for the next commit or the end of the process."""
    before = length(folder)
    eventually(lambda: length(folder) > before or process.poll() is not None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an undisturbed build."""
    folder = tmp_path_factory.mktemp("whole")
    store = build(folder)
    order = [number for number in expected(unequal(SIZES), BATCH, "round_robin") for _ in range(TIMES)]
    assert [int(number) for number in store.flat("number")] == order
    return files(folder)


def test_killed_at_any_moment_it_goes_on(tmp_path: Path, whole: dict[str, bytes], soak: int) -> None:
    random.seed(8)
    kills, in_between = 0, 0
    n = 0
    while kills < 10 * soak:
        folder = tmp_path / str(n)
        n += 1
        last = 0
        while kills < 10 * soak:
            process = script(folder, sleep_s=0.05, n_workers=random.randint(1, 4))
            for _ in range(random.randint(0, 2)):
                wait_for_a_commit(folder, process)
            try:
                process.wait(random.uniform(0.0, 0.1))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.communicate()
            if process.returncode == 0:
                break
            try:
                store = cache.TreeStore(folder)
            except FileNotFoundError:
                continue
            assert len(store) >= last
            in_between += 0 < len(store) < sum(SIZES) * TIMES
            last = len(store)
            if last:
                assert same(store[last - 1], int(store[last - 1]["number"]))
        build(folder)
        assert files(folder) == whole
    assert in_between > 0


@timed
def test_an_interrupted_build_ends_soon_and_is_resumed(tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder = fresh(tmp_path)
    process = script(folder, sleep_s=0.2)
    wait_for_a_commit(folder, process)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=200)
    seconds, n = time.monotonic() - begin, length(folder)
    build(folder)
    assert files(folder) == whole
    claim(0 < n < sum(SIZES) * TIMES, "the interrupt was before the first or after the last commit", n)
    told = re.search(
        rf"KeyboardInterrupt\n(\d+) documents are committed in {folder}/train; "
        r"the same call continues after them\n$",
        errors,
    )
    assert told
    assert int(told[1]) <= n
    claim(seconds < 3, seconds)


@pytest.mark.parametrize(
    ("seconds", "documents"), [(1e9, 1), (1e9, 299), (1e9, 2**31 - 1), (1e-9, 2**31 - 1), (0.01, 1000)]
)
def test_commits_change_no_byte(tmp_path: Path, whole: dict[str, bytes], seconds: float, documents: int) -> None:
    """Any schedule of commits, also one for each run, ends with the bytes of the default."""
    gate = threading.Event()

    class Gated(Number):
        def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
            if not gate.is_set() and 64 in documents:
                raise OSError("not yet")
            return super().__call__(documents)

    schedule: dict[str, Any] = {"commit_seconds": seconds, "commit_documents": documents}
    with pytest.raises(OSError, match="not yet"):
        cache.build(unequal(SIZES), Gated(times=TIMES), tmp_path, batch_size=BATCH, **schedule)
    gate.set()
    cache.build(unequal(SIZES), Gated(times=TIMES), tmp_path, batch_size=BATCH, **schedule)
    assert files(tmp_path) == whole


def test_documents_are_committed_by_number(tmp_path: Path) -> None:
    """Readers see each batch once it is written, and no document before its commit."""
    gates = [threading.Event() for _ in range(10)]

    def gated(documents: list[int]) -> list[dict[str, Any]]:
        assert gates[documents[0] // 4].wait(120)
        return [made(document) for document in documents]

    gated.fingerprint = "gated"  # type: ignore[attr-defined]
    schedule: dict[str, Any] = {"commit_seconds": 1e9, "commit_documents": 8}
    handle = cache.build({"a": range(40)}, gated, tmp_path, batch_size=4, n_workers=1, wait=False, **schedule)
    store = cache.TreeStore(tmp_path)
    for n, gate in enumerate(gates[:-1], 1):
        gate.set()
        eventually(lambda n=n: handle.progress().documents >= 4 * n)
        # The worker waits at the next batch. Every second batch is a commit.
        committed = 4 * (n - n % 2)
        eventually(lambda committed=committed: handle.progress().committed >= committed)
        assert handle.progress().committed == committed
        assert store.refresh() == committed
    gates[-1].set()
    whole = handle.wait()
    assert whole is not None
    assert handle.progress().committed == len(whole) == 40


def test_schedules_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"commit_seconds is 0.0, must be above 0 .*; commit_documents is 0, must be 1"
    ):
        cache.build({"a": range(4)}, Number(), tmp_path / "x", commit_seconds=0, commit_documents=0)
    with pytest.raises(TypeError, match=r"commit_seconds is '1' \(type str\), must be a float"):
        cache.build({"a": range(4)}, Number(), tmp_path / "x", commit_seconds="1")  # type: ignore[call-overload]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_raising_processor_names_the_document(tmp_path: Path, on_error: Any) -> None:
    """The exception is the processor's own, with shard and row; a wrong result has another message."""

    def fails(documents: list[int]) -> list[dict[str, Any]]:
        if 40 in documents:
            raise OSError("forty") if on_error == "skip" else KeyError("forty")
        return [made(document) for document in documents]

    shards = {"a": range(20), "b": range(20, 80)}
    with pytest.raises((OSError, KeyError), match="forty") as raised:
        cache.build(shards, fails, tmp_path / "a", batch_size=8, on_error=on_error)
    place, rows = ("b, row 20", "") if on_error == "raise" else ("b", " (documents 16 to 23)")
    assert raised.value.__notes__ == [f"{place}: the processor raised an exception{rows}"]

    def returns_text(documents: list[int]) -> list[dict[str, Any]]:
        return [{"x": "text" if document == 33 else 1} for document in documents]

    if on_error == "raise":
        with pytest.raises(TypeError, match="expected numbers") as raised:
            cache.build(shards, returns_text, tmp_path / "b", batch_size=8)
        assert raised.value.__notes__ == ["b, row 13: the processor did not return documents"]

    def joint(documents: list[int]) -> list[dict[str, Any]]:
        if len(documents) > 1 and 33 in documents:
            raise ValueError("together")
        return [made(document) for document in documents]

    with pytest.raises(ValueError, match="together") as raised:
        cache.build(shards, joint, tmp_path / "c", batch_size=8, on_error=on_error)
    assert raised.value.__notes__ == ["b: the processor raised an exception (documents 8 to 15)"]


def test_a_full_disk_is_an_error_and_it_goes_on(tmp_path: Path, whole: dict[str, bytes]) -> None:
    process = script(tmp_path, most_bytes=400_000)
    _, errors = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "OSError" in errors
    assert "cannot write" in errors
    with pytest.raises(StateError, match=r"the writer of the cache .* failed: cannot write"):
        cache.TreeStore(tmp_path)
    build(tmp_path)
    assert files(tmp_path) == whole


@timed
def test_a_growing_cache_is_read_by_another_process(tmp_path: Path, whole: dict[str, bytes]) -> None:
    folder = fresh(tmp_path)
    order = expected(unequal(SIZES), BATCH, "round_robin")
    process = script(folder, sleep_s=0.05)
    store = None
    while store is None:
        try:
            store = cache.TreeStore(folder)
        except FileNotFoundError:
            time.sleep(0.005)
    lengths = []
    while not store.is_final:
        n = store.wait(len(store) + 1)
        lengths.append(n)
        for at in {0, n // 2, n - 1}:
            assert same(store[at], order[at // TIMES])
        with pytest.raises(IndexError):
            store.get_batch([n])
    process.communicate()
    assert lengths == sorted(lengths)
    assert lengths[-1] == sum(SIZES) * TIMES
    assert files(folder) == whole
    claim(len(set(lengths)) > 2, "the cache grew too fast for intermediate lengths", lengths)


def test_a_failing_processor_reaches_builder_and_readers(tmp_path: Path) -> None:
    def fails_at_40(documents: list[int]) -> list[dict[str, Any]]:
        if 40 in documents:
            raise ZeroDivisionError("forty")
        return [made(document) for document in documents]

    fails_at_40.fingerprint = "made"  # type: ignore[attr-defined]
    shards = {"a": range(20), "b": range(20, 80)}
    gate = threading.Event()

    def after_gate(documents: list[int]) -> list[dict[str, Any]]:
        gate.wait(120)
        return fails_at_40(documents)

    after_gate.fingerprint = "made"  # type: ignore[attr-defined]
    handle = cache.build(shards, after_gate, tmp_path / "a", batch_size=8, wait=False)
    store = cache.TreeStore(tmp_path / "a")
    gate.set()
    with pytest.raises(ZeroDivisionError, match=r"^forty") as raised:
        handle.wait()
    assert raised.value.__notes__ == ["b, row 20: the processor raised an exception"]
    with pytest.raises(StateError, match="forty"):
        store.wait()

    def works(documents: list[int]) -> list[dict[str, Any]]:
        return [made(document) for document in documents]

    works.fingerprint = "made"  # type: ignore[attr-defined]
    # All documents before the failed batch, in the order of the cache, are committed.
    begun = cache.build(shards, works, tmp_path / "a", batch_size=8, wait=False)
    assert begun.progress().documents >= 16 + 16
    begun.wait()
    cache.build(shards, works, tmp_path / "b", batch_size=8)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_corrupt_shard_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pa.table({"ids": [[i] * 100 for i in range(3000)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=500, compression="snappy")
    path = tmp_path / "b.parquet"
    sound = path.read_bytes()
    damaged = bytearray(sound)
    for at in range(len(sound) // 3, len(sound) // 2, 11):
        damaged[at] ^= 0x5A
    path.write_bytes(damaged)
    shards = [tmp_path / "a.parquet", path]
    with pytest.raises((ForebayError, OSError), match=r"b\.parquet"):
        cache.build(shards, None, tmp_path / "cache", order="concat")
    (tmp_path / "c.jsonl").write_text('{"text": "x"}\n{"text": \n')
    with pytest.raises(ForebayError, match=r"c\.jsonl, row 1: line 2 is not JSON"):
        cache.build(tmp_path / "c.jsonl", Number(), tmp_path / "json")
    (tmp_path / "d.txt").write_bytes(b"good\n\xff\xfe\n")
    with pytest.raises(ForebayError, match=r"d\.txt, row 1: line 2 cannot be read as UTF-8"):
        cache.build(tmp_path / "d.txt", Number(), tmp_path / "text")
