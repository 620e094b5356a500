"""Training scripts on several processes: start, kill, resume, and the rows of each step that they list."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"]


def start(command: Sequence[object], **environment: str) -> subprocess.Popen[str]:
    """Starts a launcher, in a process group that includes the processes that it starts."""
    return subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(command: Sequence[object], **environment: str) -> str:
    """Runs it to its end; the output."""
    process = start(command, **environment)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def kill_at(step: int, command: Sequence[object], folder: Path, n: int) -> None:
    """Kills all its processes when each of the `n` has listed this step, unless they finished before."""
    process = start(command)
    with process:
        while process.poll() is None and any(len(steps(folder, rank)) < step for rank in range(n)):
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def steps(folder: Path, rank: int) -> dict[int, tuple[list[int], str]]:
    """What `rows-<rank>.txt` lists by step: rows, and the rest of the line. The last line of a repeated step counts."""
    found = {}
    with suppress(FileNotFoundError):
        for line in (folder / f"rows-{rank}.txt").read_text().splitlines():
            step, rest = line.split(" ", 1)
            rows, rest = rest.rsplit(" ", 1)
            found[int(step)] = ([int(row) for row in rows.strip("[]").split(", ") if row], rest)
    return found


def global_batches(folder: Path, n: int) -> dict[int, list[int]]:
    """The rows of each step over `n` ranks, sorted."""
    ranks = [steps(folder, rank) for rank in range(n)]
    return {step: sorted(chain.from_iterable(rank[step][0] for rank in ranks)) for step in ranks[0]}
