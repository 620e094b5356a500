"""Peak memory of a process and its descendants, sampled from /proc.

Counted: proportional set size of anonymous and shared memory, so pages shared by forked workers count once.
Not counted: file pages (program code, mapped shards), which the kernel can free at any time.
"""

import threading
from pathlib import Path

INTERVAL_S = 0.5


def descendants(pid: int) -> list[int]:
    """The process and all its descendants; those that end meanwhile are left out."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                todo += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def kilobytes(pid: int) -> int:
    """Anonymous and shared kilobytes of one process, by proportion; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


class PeakMemory:
    """`with PeakMemory(pid) as peak: ...; peak.megabytes`."""

    def __init__(self, pid: int):
        self.pid, self.megabytes = pid, 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self) -> None:
        while not self.stop.wait(INTERVAL_S):
            total = sum(kilobytes(pid) for pid in descendants(self.pid))
            self.megabytes = max(self.megabytes, total * 1024 / 1e6)

    def __enter__(self) -> "PeakMemory":
        self.thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self.stop.set()
        self.thread.join()
