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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from forebay._checks import URL
from forebay._core import ConfigError, __version__, _Check
from forebay._ray import Actors, started

AHEAD = 3
"""The parts for each machine that are being checked, or wait for an earlier one."""
PARTS = 16
"""The parts for each machine, if there are few recordings."""
MOST = 1 << 14
"""The most recordings in a part."""


@dataclass(frozen=True)
class Expected:
    """What every machine must have: the state of the calling process."""

    version: str
    folder: str
    fingerprint: int
    n_rows: int

    @classmethod
    def of(cls, opened: _Check) -> Self:
        """For this source."""
        n_rows = sum(shard["num_rows"] for shard in opened.shards)
        return cls(__version__, str(Path.cwd()), opened.fingerprint, n_rows)


class Checker:
    """The process of one machine, which checks parts of the rows."""

    def __init__(self, files: Sequence[Path], given: dict[str, Any], expected: Expected) -> None:
        """`given` are parameters of `_Check`."""
        self._files = files
        self._given = given
        self._expected = expected
        self._opened: _Check | None = None

    def rows(self, part: range) -> list[dict[str, Any]]:
        """The findings of these rows."""
        if self._opened is None:
            try:
                self._opened = self._open()
            except (ConfigError, OSError) as error:
                error.add_note(f"On the machine {os.uname().nodename}")
                raise
        self._opened.seek(part.start)
        found: list[dict[str, Any]] = []
        while len(found) < len(part) and (some := self._opened.next()) is not None:
            found += some
        return found

    def _open(self) -> _Check:
        """Opens the source from the caller's folder, so that names in the report are as without Ray."""
        expected = self._expected
        if expected.version != __version__:
            raise ConfigError(
                f"forebay is {__version__}, and {expected.version} where the check began; install the same"
            )
        try:
            os.chdir(expected.folder)
        except OSError as error:
            folders = self._given.get("allow_paths")
            named = [*self._files, *(folders if isinstance(folders, (list, tuple)) else ())]
            relative = [file for file in map(str, named) if not (re.match(URL, file) or Path(file).is_absolute())]
            if relative:
                raise ConfigError(
                    f"there is no folder {expected.folder} ({error.strerror}), from which {relative[0]} is named; name "
                    "files and folders by absolute paths"
                ) from error
        opened = _Check(self._files, **self._given)
        found = Expected.of(opened)
        if found.fingerprint != expected.fingerprint:
            raise ConfigError(
                f"there are other files: {found.n_rows} recordings, and {expected.n_rows} where the check began; all "
                "machines need the same files under the same names"
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
    address: str, opened: _Check, files: Sequence[Path], given: dict[str, Any], rows: range
) -> Iterator[list[dict[str, Any]]]:
    """The findings of `rows` of `opened`, in order, from all machines of the cluster at `address`.

    Raises as `_Check` does, and `ConfigError` without such a cluster or where a machine has other files.
    """
    ray = started(f"--ray {address}", address)
    places = machines(ray)
    if not places:
        raise ConfigError(f"--ray {address}: no machine of the cluster has CPUs")
    actors = Actors(ray, Checker, (list(files), given, Expected.of(opened)), places, "the check")
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
            for part in parts(rows, len(places), opened.step):
                if len(waiting) == AHEAD * len(places):
                    yield waiting.popleft().result()
                waiting.append(threads.submit(checked, part))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            actors.close()
