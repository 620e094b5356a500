"""`forebay check --ray`: parts of the rows are checked on all machines of a Ray cluster.

The calling process writes the report, in order, as it does for a check of its own, so that the report is the same. On
each machine one process checks a part at a time, on all cores.
"""

import os
import queue
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from forebay._checks import URL
from forebay._core import ConfigError, __version__, _Check
from forebay._ray import Actors, started

AHEAD = 3
"""The parts for each machine that are being checked, or wait for an earlier one."""
PARTS = 16
"""The parts for each machine, if there are few recordings."""
MOST = 1 << 14
"""The most recordings in a part."""


class Checker:
    """The process of one machine, which checks parts of the rows."""

    def __init__(self, files: Sequence[Path], given: dict[str, Any], n_rows: int, folder: str, version: str) -> None:
        self._files = files
        self._given = given
        self._n_rows = n_rows
        self._folder = folder
        self._version = version
        self._opened: _Check | None = None

    def rows(self, part: range) -> list[dict[str, Any]]:
        """The findings of these rows."""
        if self._opened is None:
            self._opened = self._open()
        self._opened.seek(part.start)
        found: list[dict[str, Any]] = []
        while len(found) < len(part) and (some := self._opened.next()) is not None:
            found += some
        return found

    def _open(self) -> _Check:
        """Opens the source from the caller's folder, so that names in the report are those of a check without Ray."""
        host = os.uname().nodename
        if self._version != __version__:
            raise ConfigError(f"{host} has forebay {__version__}, this machine {self._version}; install the same one")
        try:
            os.chdir(self._folder)
        except OSError as error:
            folders = self._given.get("allow_paths")
            named = [*self._files, *(folders if isinstance(folders, (list, tuple)) else ())]
            relative = [file for file in map(str, named) if not (re.match(URL, file) or Path(file).is_absolute())]
            if relative:
                raise ConfigError(
                    f"{host} has no folder {self._folder} ({error.strerror}), so {relative[0]} is not found there; "
                    "name files by absolute paths"
                ) from error
        opened = _Check(self._files, **self._given)
        n_rows = sum(shard["num_rows"] for shard in opened.shards)
        if n_rows != self._n_rows:
            raise ConfigError(
                f"{host} finds {n_rows} recordings, this machine {self._n_rows}; all machines need the same files "
                "under the same names"
            )
        return opened


def machines(ray: Any) -> list[dict[str, Any]]:
    """The options of an actor on each machine with CPUs; a machine that is lost is replaced by another one."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    found = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    return [{"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)} for node in found]


def parts(rows: range, n_machines: int, step: int) -> Iterator[range]:
    """The rows in parts, in order, whose lengths are multiples of `step`, but the last."""
    length = min(max(len(rows) // (n_machines * PARTS), 1), MOST)
    length = -(-length // step) * step
    for first in range(0, len(rows), length):
        yield rows[first : first + length]


def findings(
    address: str, files: Sequence[Path], given: dict[str, Any], rows: range, step: int
) -> Iterator[list[dict[str, Any]]]:
    """The findings of `rows`, to the source's last one, in order, from all machines of the cluster at `address`.

    Raises as `_Check` does, and `ConfigError` without such a cluster or where a machine has other files.
    """
    ray = started(f"--ray {address}", address)
    places = machines(ray)
    if not places:
        raise ConfigError(f"--ray {address}: no machine of the cluster has CPUs")
    actors = Actors(ray, Checker, (list(files), given, rows.stop, str(Path.cwd()), __version__), places, "the check")
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(places)):
        free.put(place)

    def checked(part: range) -> list[dict[str, Any]]:
        place = free.get()
        try:
            found: list[dict[str, Any]] = actors.call(place, "rows", part)
        finally:
            free.put(place)
        return found

    waiting: deque[Future[list[dict[str, Any]]]] = deque()
    with ThreadPoolExecutor(len(places), thread_name_prefix="forebay-ray") as threads:
        try:
            for part in parts(rows, len(places), step):
                if len(waiting) == AHEAD * len(places):
                    yield waiting.popleft().result()
                waiting.append(threads.submit(checked, part))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            actors.close()
