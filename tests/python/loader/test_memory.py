"""The memory of batches: not copied, unchanged while any array or view refers to it, recycled afterwards."""

import gc
import itertools
import json
import os
import queue
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay

# Spectrograms of 84 KB a batch: large enough for arenas.
LARGE: dict[str, Any] = {
    "sample_rate": 8000,
    "clip_seconds": 0.02,
    "n_fft": 64,
    "hop_length": 4,
    "n_mels": 16,
    "batch_size": 32,
    "shuffle_min_size": 40,
    "shuffle_buffer_size": 80,
    "n_workers": 2,
}
SHAPE = (32, 16, 41)
# The largest number of free arenas, plus batches made ahead, plus some in flight.
MOST_ARENAS = 12


@pytest.fixture
def loader(tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    with forebay.Loader(tiny_shards, **LARGE) as loader:
        yield loader


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def take(loader: forebay.Loader) -> list[dict[str, NDArray[Any]]]:
    """Enough batches to use all free arenas and those in flight."""
    return list(itertools.islice(loader, MOST_ARENAS))


def comes_again(loader: forebay.Loader, place: int) -> bool:
    """Whether one of the next `MOST_ARENAS` batches is at the address `place`."""
    return place in [address(batch["spectrogram"]) for batch in take(loader)]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_arrays(loader: forebay.Loader) -> None:
    batch = next(loader)
    spectrogram = batch["spectrogram"]
    assert spectrogram.shape == SHAPE
    assert type(spectrogram.base).__name__ == "_Slot"
    assert address(spectrogram) % (2 << 20) == 0
    for array in batch.values():
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
        assert not array.flags.owndata
    # Fields of 256 bytes are vectors.
    assert type(batch["label"].base).__name__ != "_Slot"
    spectrogram[:] = 1.0
    assert spectrogram.sum() == spectrogram.size


def test_the_last_batch_is_shorter(tiny_shards: list[Path]) -> None:
    with forebay.Loader.eval(tiny_shards, **LARGE | {"batch_size": 200}) as loader:
        for _ in range(3):
            whole, rest = loader
            # One row in 20 is bad.
            assert len(whole["index"]) + len(rest["index"]) == 285
            assert rest["spectrogram"].shape == (len(rest["index"]), 16, 41)
            assert np.isfinite(rest["spectrogram"]).all()
            # The contents of an earlier batch must not reappear in recycled memory.
            whole["spectrogram"][:] = rest["spectrogram"][:] = np.nan


def test_kept_batches_do_not_change(loader: forebay.Loader) -> None:
    kept = []
    for batch in itertools.islice(loader, 200):
        kept.append((batch, {name: array.tobytes() for name, array in batch.items()}))
    for batch in itertools.islice(loader, 50):
        batch["spectrogram"][:] = np.nan
    assert len({address(batch["spectrogram"]) for batch, _ in kept}) == 200
    for batch, before in kept:
        assert {name: array.tobytes() for name, array in batch.items()} == before


ROUNDS = textwrap.dedent("""
    import ctypes, itertools, json, os, sys
    import forebay

    # Disables huge pages: the kernel may merge pages into them at any time, which adds to resident memory.
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
    shards, parameters, n = json.loads(sys.argv[1])
    places, resident = set(), []
    with forebay.Loader(shards, **parameters) as loader:
        for i, batch in enumerate(itertools.islice(loader, n)):
            # Not `__array_interface__`: it interns strings, whose table grows after some thousand calls.
            places.add(batch["spectrogram"].ctypes.data)
            if i % 1000 == 999:
                with open("/proc/self/statm") as statm:
                    resident.append(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    print(json.dumps([len(places), resident]))
""")
"""Prints the number of addresses of batches, and the process's memory after each 1000 batches."""


def test_memory_is_recycled(tiny_shards: list[Path], soak: int) -> None:
    """In steady state addresses repeat and memory does not grow, measured in a child process without other growth."""
    arguments = json.dumps([[str(shard) for shard in tiny_shards], LARGE, 10_000 * soak])
    run = subprocess.run([sys.executable, "-c", ROUNDS, arguments], capture_output=True, text=True, check=True)
    n_places, resident = json.loads(run.stdout)
    assert n_places <= MOST_ARENAS
    assert resident[-1] - resident[2] < 1 << 20, resident


def test_what_was_kept_goes_back_to_the_system(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **LARGE | {"batch_size": 1024}) as loader:
        next(loader)
        before = resident_bytes()
        kept = list(itertools.islice(loader, 60))
        size = kept[0]["spectrogram"].nbytes
        assert resident_bytes() - before > 55 * size
        kept.clear()
        assert resident_bytes() - before < MOST_ARENAS * size


def test_a_view_keeps_its_batch(loader: forebay.Loader) -> None:
    batch = next(loader)
    place = address(batch["spectrogram"])
    view = batch["spectrogram"][3, ::2, 5:]
    before = view.copy()
    del batch
    others = take(loader)
    assert place not in [address(batch["spectrogram"]) for batch in others]
    np.testing.assert_array_equal(view, before)
    del view
    assert comes_again(loader, place)
    others.clear()


def test_a_field_has_its_own_memory(loader: forebay.Loader) -> None:
    batch = next(loader)
    place = address(batch["spectrogram"])
    before = batch["label"].copy()
    del batch["spectrogram"]
    assert comes_again(loader, place)
    np.testing.assert_array_equal(batch["label"], before)


def test_dropped_in_another_thread(loader: forebay.Loader) -> None:
    batches = [next(loader)]
    place = address(batches[0]["spectrogram"])
    thread = threading.Thread(target=batches.clear)
    thread.start()
    thread.join()
    assert comes_again(loader, place)


def test_only_labels_are_kept(tiny_shards: list[Path]) -> None:
    """Keeping the labels of a thousand batches keeps none of their spectrograms."""
    with forebay.Loader(tiny_shards, **LARGE) as loader:
        next(loader)
        places, labels = set(), []
        for batch in itertools.islice(loader, 1000):
            places.add(address(batch["spectrogram"]))
            labels.append((batch["label"], batch["label"].tolist()))
    assert len(places) <= MOST_ARENAS
    assert all(label.tolist() == before for label, before in labels)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_take_keep_and_drop(dtype: str, tiny_shards: list[Path], soak: int) -> None:
    """Threads drop batches, views and fields at random; memory with references is never written."""
    changed: list[int] = []
    kept: queue.SimpleQueue[tuple[NDArray[Any], bytes]] = queue.SimpleQueue()
    with forebay.Loader(tiny_shards, **LARGE | {"dtype": dtype, "n_frames": 80}) as loader:

        def work(seed: int) -> None:
            rng = random.Random(seed)
            mine: list[tuple[NDArray[Any], bytes]] = []
            for _ in range(150 * soak):
                batch = next(loader)
                row = rng.randrange(LARGE["batch_size"])
                array = rng.choice([batch["spectrogram"], batch["spectrogram"][row:, ::2], batch["label"]])
                del batch
                mine.append((array, array.tobytes()))
                if rng.random() < 0.3:
                    kept.put(mine.pop(rng.randrange(len(mine))))
                while len(mine) > 5:
                    array, before = mine.pop(rng.randrange(len(mine)))
                    changed.append(array.tobytes() != before)
                # Arrays of any thread.
                while kept.qsize() > 10:
                    array, before = kept.get()
                    changed.append(array.tobytes() != before)

        threads = [threading.Thread(target=work, args=[seed]) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(changed) > 500 * soak
    assert not any(changed)


def test_outlives_the_loader(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **LARGE) as loader:
        batches = list(itertools.islice(loader, 20))
        before = [batch["spectrogram"].copy() for batch in batches]
    del batches[:5]
    del loader
    gc.collect()
    for batch, copy in zip(batches, before[5:], strict=True):
        batch["spectrogram"] += 0.0
        np.testing.assert_array_equal(batch["spectrogram"], copy)
    batches.clear()


def run(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_no_memory_left(tiny_shard: Path) -> None:
    """Under a process limit each call raises `MemoryError`, and earlier batches are unchanged."""
    program = f"""
        import os, resource
        from pathlib import Path
        import forebay
        loader = forebay.Loader({str(tiny_shard)!r}, **{LARGE | {"batch_size": 2048}})
        kept = [next(loader)]
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (100 << 20), resource.RLIM_INFINITY))
        sums = [kept[0]["spectrogram"].sum()]
        for _ in range(2):
            try:
                while len(kept) < 1000:
                    kept.append(next(loader))
                    sums.append(kept[-1]["spectrogram"].sum())
            except MemoryError as error:
                print(error)
        assert 5 < len(kept) < 30, len(kept)
        assert sums == [batch["spectrogram"].sum() for batch in kept]
    """
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == second
    assert "allocation failed: 5373952 bytes for a field of a batch" in first


def test_kept_until_the_interpreter_ends(tiny_shard: Path) -> None:
    """The interpreter exits with batches in globals, in a cycle and in an endless thread, and with an open loader."""
    program = f"""
        import threading, time
        import forebay
        loader = forebay.Loader({str(tiny_shard)!r}, **{LARGE})
        kept = [next(loader) for _ in range(10)]
        cycle = [next(loader)]
        cycle.append(cycle)
        begun = threading.Event()
        def work(batch):
            begun.set()
            while True:
                batch["spectrogram"] += 0.0
                time.sleep(0.001)
        threading.Thread(target=work, args=[next(loader)], daemon=True).start()
        begun.wait()
        print("end")
    """
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
