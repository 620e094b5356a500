"""The scheduling policy of the loader's threads: they do not preempt the training loop."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay
from recordings import read_rows, write_shard

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="a policy of Linux")


def policies() -> dict[str, set[int]]:
    """The policies of this process' threads, by the start of their names."""
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, policy = (task / "comm").read_text().strip(), os.sched_getscheduler(int(task.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        found.setdefault(name.split("-")[0], set()).add(policy)
    return found


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for threads that have not run yet."""
    while not holds():  # the test's timeout ends it
        time.sleep(0.01)


def test_threads_never_preempt_on_wake(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", read_rows()[:8])
    with forebay.Loader(shard, batch_size=2, infinite=True, n_workers=2) as loader:
        next(loader)
        eventually(lambda: policies().get("forebay") == {os.SCHED_BATCH})
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def nices() -> dict[str, set[int]]:
    """The niceness of this process' threads, by their names without numbers."""
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip().rstrip("-0123456789")
            found.setdefault(name, set()).add(os.getpriority(os.PRIO_PROCESS, int(task.name)))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


@pytest.mark.parametrize("given", [{}, {"worker_nice": 0}, {"worker_nice": 19}])
def test_workers_come_after_the_loop(tmp_path: Path, given: dict[str, Any]) -> None:
    shard = write_shard(tmp_path / "a.arrow", read_rows()[:8])
    own = os.getpriority(os.PRIO_PROCESS, 0)
    expected = min(own + given.get("worker_nice", 10), 19)
    with forebay.Loader(shard, batch_size=2, infinite=True, n_workers=2, **given) as loader:
        next(loader)
        eventually(lambda: nices()["forebay-worker"] == {expected})
        assert all(each == {own} for name, each in nices().items() if name != "forebay-worker")


def affinities() -> dict[str, set[int]]:
    """The CPUs of this process' threads, by their names without numbers."""
    found: dict[str, set[int]] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip().rstrip("-0123456789")
            found.setdefault(name, set()).update(os.sched_getaffinity(int(task.name)))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


def test_threads_run_on_the_cpus_that_are_given(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", read_rows()[:8])
    own = os.sched_getaffinity(0)
    last = max(own)
    with forebay.Loader(shard, batch_size=2, infinite=True, n_workers="auto", cpus=str(last)) as loader:
        next(loader)
        names = ("forebay-io", "forebay-worker", "forebay-collato")
        eventually(lambda: all(affinities().get(name) == {last} for name in names))
        assert loader.stats()["n_workers"] == 1
    assert os.sched_getaffinity(0) == own


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ("all", 'cpus is "all", must be a list of CPUs such as "0-7,16"'),
        ("3-1", 'cpus is "3-1", must be a list of CPUs'),
        ("1023", "which has CPU 1023; this process may run on "),
    ],
)
def test_cpus_that_there_are_not_are_refused(tmp_path: Path, cpus: str, message: str) -> None:
    shard = write_shard(tmp_path / "a.arrow", read_rows()[:8])
    with pytest.raises(forebay.ConfigError) as refused:
        forebay.Loader(shard, batch_size=2, cpus=cpus)
    assert message in str(refused.value)


PROGRAM = """
import json, os, sys
sys.path[:0] = sys.argv[2:]
import forebay
from test_scheduling import eventually, policies
# Beside busy processes it now has three thousandths of a core: imports and exit would take minutes.
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
loader = forebay.Loader(sys.argv[1], batch_size=2, infinite=True, n_workers=2)
next(loader)
eventually(lambda: policies().get("forebay") == {os.SCHED_IDLE})
print(json.dumps({name: sorted(each) for name, each in policies().items()}), flush=True)
os._exit(0)
"""


def test_another_policy_of_the_process_is_kept(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", read_rows()[:8])
    arguments = [sys.executable, "-c", PROGRAM, str(shard), *sys.path]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["forebay"] == [os.SCHED_IDLE]
