"""Lightning on two processes (ddp, gloo): killed in the second epoch, resumed on two ranks and on one."""

import importlib
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

import forebay
from paths import EXAMPLES, HELPERS

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

import lit  # noqa: E402
import lit_rank  # noqa: E402

LIMIT_S = 600
KILL_AT, SAVED, STEPS = 28, 25, 42
PACKAGE = str(Path(forebay.__file__).parents[1])


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Starts processes in which Lightning is imported already: forks of one that did nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HELPERS), PACKAGE]))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["lit_rank"])
        yield context


def launch(context: ForkServerContext, *plans: dict[str, Any], is_killed: bool = False) -> None:
    """Carries out plans on two ranks; if they kill themselves, one that waits for the other is killed too."""
    port, ranks = free_port(), []
    for rank in range(2):
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": "0", "LOCAL_RANK": str(rank)}
        ranks.append(context.Process(target=lit_rank.run, args=(environment, *plans)))
        ranks[-1].start()
    try:
        for process in ranks[:1] if is_killed else ranks:
            process.join(LIMIT_S)
        assert [process.exitcode for process in ranks[: 2 - is_killed]] == ([-9] if is_killed else [0, 0])
    finally:
        for process in ranks:
            process.kill()
            process.join()


def read(folder: Path, log: str, rank: int) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{log}.{rank}").read_text().splitlines()]


def expected(kind: str, data: Any, rank: int) -> list[Any]:
    """The rows of each batch, straight from a loader: pass after pass, or on and on."""
    with lit_rank.made(kind, data, rank=rank, world_size=2) as loader:
        found: list[Any] = []
        while len(found) < STEPS:
            found.extend(lit.rows(batch) for batch in islice(loader, STEPS - len(found)))
        return found


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_killed_and_resumed(
    processes: ForkServerContext, tiny_shards: list[Path], parquets: Path, tmp_path: Path
) -> None:
    """Batch 28 of 19 a pass is in the second one, and the last checkpoint was at 25."""
    resumed = []
    before: dict[str, list[list[Any]]] = {}
    for kind in ("finite", "infinite", "tokens"):
        folder = tmp_path / kind
        folder.mkdir()
        data: Any = str(parquets) if kind == "tokens" else list(map(str, tiny_shards))
        plan = {
            "kind": kind, "data": data, "eval": list(map(str, tiny_shards)), "folder": str(folder),
            "steps": STEPS, "devices": 2, "log": "killed", "kill_at": KILL_AT, "resume": None,
        }  # fmt: skip
        launch(processes, plan, is_killed=True)
        before[kind] = [expected(kind, data, rank) for rank in range(2)]
        assert read(folder, "killed", 0) == before[kind][0][:KILL_AT]
        resume = plan | {"resume": str(folder / f"{SAVED}.ckpt"), "kill_at": None}
        resumed.append(resume | {"log": "two"})
        lit_rank.carry_out(resume | {"log": "one", "devices": 1}, 0)
        joined = [first + second for first, second in zip(*before[kind], strict=True)]
        assert read(folder, "one", 0) == joined[SAVED:]
    launch(processes, *resumed)
    for kind, ranks in before.items():
        for rank in range(2):
            assert read(tmp_path / kind, "two", rank) == ranks[rank][SAVED:]


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two processes of Lightning's own launcher, both killed, and then on one."""
    folder = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": PACKAGE, "MASTER_PORT": free_port(), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(EXAMPLES / "train_lightning.py"), "--folder", str(folder)]

    def rows(lines: Iterable[str]) -> Iterator[tuple[int, int, list[int]]]:
        """Rank, step and rows."""
        for line in lines:
            if found := re.match(r"rank (\d) step (\d+) rows (.*)", line):
                yield int(found[1]), int(found[2]), json.loads(found[3])

    begun: dict[tuple[int, int], list[int]] = {}
    with subprocess.Popen(
        [*command, "--devices", "2", "--steps", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment, start_new_session=True,
    ) as running:  # fmt: skip
        try:
            assert running.stdout is not None
            for rank, step, found in rows(running.stdout):
                begun[rank, step] = found
                if {(0, 12), (1, 12)} <= begun.keys():
                    os.killpg(running.pid, signal.SIGKILL)  # what they had printed is still read
        finally:
            running.kill()
    steps = 20 + max(step for _, step in begun)
    resumed = subprocess.run(
        [*command, "--steps", str(steps)], check=False, capture_output=True, text=True, env=environment, timeout=LIMIT_S
    )
    assert resumed.returncode == 0, resumed.stderr
    continued = {step: found for _, step, found in rows(resumed.stdout.splitlines())}
    first = min(continued)
    assert first >= 10, "that is where the last checkpoint before step 12 was"
    assert first % 5 == 0
    assert sorted(continued) == list(range(first, steps))

    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("train_lightning")
    with example.training(folder, rank=0, world_size=1) as loader:
        expected = [batch["index"].tolist() for batch in islice(loader, steps)]
    for step in range(13):
        assert begun[0, step] + begun[1, step] == expected[step]
    for step, found in continued.items():
        assert found == expected[step]
