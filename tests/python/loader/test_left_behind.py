"""What a user's function leaves behind on the thread that calls it, and what that thread gives it."""

import ctypes
import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from documents import loader as token_loader
from forebay import cache, features
from forebay.augment import Gain, Python, apply
from recordings import read_rows, write_shard

RATE = 8000
SHARED: dict[str, Any] = {
    "clip_seconds": 0.25, "batch_size": 4, "infinite": False, "shuffle_min_size": 0, "n_workers": 2,
    "features": features.Waveform(sample_rate=RATE),
}  # fmt: skip
TINY = np.float32(3e-38)
"""A normal number, of which a tenth is denormal."""

on_glibc = pytest.mark.skipif(
    (platform.machine(), platform.libc_ver()[0]) != ("x86_64", "glibc"), reason="the layout of fenv_t"
)
on_linux = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="a policy of Linux")


def flush(flushes: bool) -> bool:
    """Makes this thread flush denormals or keep them, as `torch.set_flush_denormal`; returns what it did before."""
    libm = ctypes.CDLL("libm.so.6")
    mode = (ctypes.c_uint32 * 8)()  # the last is MXCSR
    assert libm.fegetenv(mode) == 0
    before = mode[7] & 0x8040
    mode[7] = mode[7] | 0x8040 if flushes else mode[7] & ~0x8040
    assert libm.fesetenv(mode) == 0
    return before != 0


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shard(tmp_path_factory.mktemp("left") / "a.arrow", read_rows()[:12])


@on_glibc
def test_a_float_mode_ends_with_the_function(shard: Path) -> None:
    """A change of mode reaches neither the steps after the function nor later calls."""
    found = []

    def flushing(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
        found.append(flush(True))
        return np.full_like(values, TINY)

    with forebay.Loader(shard, **SHARED, augment=[Python(flushing), Gain(-20.0)]) as loader:
        for batch in loader:
            assert (batch["waveform"] > 0).all()
    assert found == [False] * 12
    assert not flush(False)


@on_glibc
@pytest.mark.parametrize("flushes", [False, True])
def test_a_function_changes_the_mode_of_its_callers_thread(flushes: bool) -> None:
    """In `apply` the function runs on the caller's thread, in its mode, and may change it; steps do not see it."""
    found = []

    def changing(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
        found.append(flush(not flushes))
        return np.full_like(values, TINY)

    try:
        flush(flushes)
        made = apply([Python(changing), Gain(-20.0)], np.zeros(100, np.float32), RATE)
        kept = flush(False)
    finally:
        flush(False)
    assert (found, kept) == ([flushes], not flushes)
    assert (made > 0).all()


def here() -> tuple[int, int]:
    """Policy and niceness of this thread."""
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


CHILD = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"


class Starting:
    """Notes where it runs, and where a pool and a process that it starts run."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        self.found.append(here())
        if len(self.found) == 1:
            with ThreadPoolExecutor(1) as pool:
                self.found.append(pool.submit(here).result())
            child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True).stdout.split()
            self.found.append((int(child[0]), int(child[1])))


def of_a_step(shard: Path, _parquets: Path, starting: Starting) -> Any:
    def step(values: NDArray[np.float32], _: int) -> NDArray[np.float32]:
        starting.start()
        return values

    return forebay.Loader(shard, **SHARED, augment=[Python(step)])


def of_a_tokenizer(_shard: Path, parquets: Path, starting: Starting) -> Any:
    def encode(text: str) -> list[int]:
        starting.start()
        return [1 + len(text) % 50]

    return token_loader(parquets, tokenizer=encode, bos_id=0)


class Numbers(cache.AsyncDataset):
    """A dataset in Python."""

    fields = {"x": ((), "int64")}  # noqa: RUF012

    def __init__(self, starting: Starting) -> None:
        self.starting = starting

    def __len__(self) -> int:
        return 40

    def get_batch(self, indices: Any) -> list[Any]:
        self.starting.start()
        return [{"x": np.int64(index)} for index in indices]


def of_a_dataset(_shard: Path, _parquets: Path, starting: Starting) -> Any:
    return cache.DataLoader(Numbers(starting), batch_size=4, n_workers=2)


@on_linux
@pytest.mark.parametrize("make", [of_a_step, of_a_tokenizer, of_a_dataset])
def test_what_a_function_starts_is_scheduled_as_the_process(shard: Path, parquets: Path, make: Any) -> None:
    starting = Starting()
    with make(shard, parquets, starting) as loader:
        for _, _ in zip(range(3), loader, strict=False):
            pass
        assert starting.found
        assert set(starting.found) == {here()}


DEEP = """
import sys, threading
import forebay, numpy as np
from forebay import features
from forebay.augment import Python

sys.setrecursionlimit(10_000)

def down(n):
    return max([n], key=lambda k: down(k - 1))

def deep(values, _):
    try:
        down(0)
    except RecursionError:
        return values
    raise AssertionError("not deep enough")

thread = threading.Thread(target=deep, args=(None, 0))
thread.start()
thread.join()
print("a thread of Python survives", flush=True)
loader = forebay.Loader(
    sys.argv[1], clip_seconds=0.25, batch_size=4, n_workers=1, shuffle_min_size=0,
    features=features.Waveform(sample_rate=8000), augment=[Python(deep)],
)
next(loader)
print("a worker survives", flush=True)
loader.replay(0)
print("a replay survives", flush=True)
loader.close()
"""


def test_a_function_has_the_stack_of_a_thread_of_python(shard: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DEEP, str(shard)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{who} survives" for who in ("a thread of Python", "a worker", "a replay")]
    assert done.returncode == 0, done.stderr
