"""The folders of a queue, the names of its files, and atomic writing and removal of files.

A file gets its final name only when it is complete: it is written under another name, synchronised, and
renamed. Names have digits and hyphens only, so that they are valid on any file system; files are ordered by
number, not by text. Locks and small state files are opened without following links; a link, folder or FIFO
under their names is an error.
"""

import contextlib
import errno
import itertools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar

from forebay._checks import whole
from forebay._core import ConfigError, StateError
from forebay._files import NotAFileError, open_file, what_is

_log = logging.getLogger("forebay.queue")

TEMPORARY = ".tmp-"
"""The prefix of unfinished files' names."""

_FINAL = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})\.pt", re.ASCII)
_LOCK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.(provider|consumer)\.lock", re.ASCII)
_TEMPORARY = re.compile(re.escape(TEMPORARY) + r"\d+-\d+\.pt", re.ASCII)
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
_PASSING = {errno.EACCES, errno.EPERM, errno.EBUSY, errno.EIO, errno.ESTALE, errno.EINTR, errno.ETIMEDOUT}
_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.005
_STALE_S = 60
_MOST_STATE_BYTES = 64 << 20

Result = TypeVar("Result")


class FileName(NamedTuple):
    """The final name of a file; compares in reading order."""

    timestamp: int
    """Milliseconds since 1970, UTC."""

    seq: int
    num_batches: int

    @classmethod
    def parse(cls, name: str) -> "FileName | None":
        """The numbers in a name, or None if it is not the name of a queue file."""
        found = _FINAL.fullmatch(name)
        return cls(*map(int, found.groups())) if found else None

    @classmethod
    def is_temporary(cls, name: str) -> bool:
        """Whether this is the name of an unfinished file."""
        return bool(_TEMPORARY.fullmatch(name))

    @property
    def temporary(self) -> str:
        """The name until the file is complete."""
        return f"{TEMPORARY}{self.timestamp:013d}-{self.seq:06d}.pt"

    def __str__(self) -> str:
        return f"{self.timestamp:013d}-{self.seq:06d}-{self.num_batches}.pt"


@dataclass(frozen=True)
class Layout:
    """The folders of one data directory, for one rank of several or, with None, for all."""

    data_dir: Path
    rank: int | None = None

    def __post_init__(self) -> None:
        if self.rank is not None and whole("rank", self.rank) < 0:
            raise ConfigError(f"rank is {self.rank}, must be None or at least 0")

    @staticmethod
    def can_name(split: str) -> bool:
        """Whether a split can have this name."""
        is_device = split.lower() in {*_DEVICES, "quarantine"}
        return bool(_SPLIT.fullmatch(split)) and not is_device and not re.search(r"_rank\d+$", split)

    def name(self, split: str) -> str:
        """The name of a split's folders."""
        if not self.can_name(split):
            raise ConfigError(
                f"{split!r} cannot name a split: use letters, digits, '_' and '-', but not 'quarantine', "
                "names of devices on Windows, or an ending like '_rank0' (pass rank= instead)"
            )
        return split if self.rank is None else f"{split}_rank{self.rank}"

    @property
    def queue(self) -> Path:
        """The folder `queue/`."""
        return self.data_dir / "queue"

    def files(self, split: str) -> Path:
        """The folder of files to be read."""
        return self.queue / self.name(split)

    def quarantine(self, split: str) -> Path:
        """The folder of corrupt files."""
        return self.queue / "quarantine" / self.name(split)

    def archive(self, split: str) -> Path:
        """The folder of consumed files, if they are kept."""
        return self.data_dir / "archives" / self.name(split)

    def state(self, split: str, what: str) -> Path:
        """The path of a small file of the provider or the consumer, outside the folders of queue files."""
        return self.queue / ".state" / f"{self.name(split)}.{what}"

    def locks(self) -> list[Path]:
        """The lock files of all splits and ranks, without files of such a name that `QueueLock` did not write."""
        return [path for path in self.queue.glob(".state/*.lock") if _LOCK.fullmatch(path.name) and is_lock(path)]

    def remove_files(self) -> list[Path]:
        """Removes all files of the queue except its locks; returns the foreign files among them, which stay."""
        owned: list[Path] = []
        left: list[Path] = []
        folders = [self.queue] if self.queue.is_dir() else []
        for folder in folders:  # the list grows meanwhile
            with os.scandir(folder) as entries:
                for entry in entries:
                    within = folder.relative_to(self.queue).parts
                    path = folder / entry.name
                    if entry.is_dir(follow_symlinks=False) and _is_folder((*within, entry.name)):
                        folders.append(path)
                    elif entry.is_file(follow_symlinks=False) and _is_owned((*within, entry.name)):
                        owned.append(path)
                    elif not (within == (".state",) and _LOCK.fullmatch(entry.name) and is_lock(path)):
                        left.append(path)
        for path in owned:
            patiently(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]
        return sorted(left)

    def remove_folders(self) -> None:
        """Removes the empty folders of the queue."""
        folders = [self.queue, *self.queue.glob("*"), *self.queue.glob("quarantine/*")]
        for folder in reversed(folders):
            if folder.is_dir() and not folder.is_symlink():
                with contextlib.suppress(OSError):  # the folder is not empty
                    folder.rmdir()


def _is_folder(within: tuple[str, ...]) -> bool:
    match within:
        case (".state" | "quarantine",):
            return True
        case (split,) | ("quarantine", split):
            return bool(_SPLIT.fullmatch(split))
    return False


def _is_owned(within: tuple[str, ...]) -> bool:
    match within:
        case (".state", name):
            small, _, gone = name.removeprefix(TEMPORARY).partition(".")
            is_small = re.fullmatch(r"(sequence|consumer)\.json(-\d+-\d+)?", gone, re.ASCII)
            return bool(_SPLIT.fullmatch(small) and (is_small or FileName.parse(gone.removesuffix(".gone"))))
        case ("quarantine", _, name):
            return FileName.parse(re.sub(r"(\.pt)\.\d+$", r"\1", name)) is not None
        case (_, name):
            return FileName.parse(name) is not None or FileName.is_temporary(name)
    return False


def opened(path: Path, mode: Literal["r", "r+", "a+"]) -> IO[bytes]:
    """Opens a regular file of the queue without following links; `StateError` if the path is anything else."""
    try:
        return open_file(path, mode)
    except NotAFileError as error:
        raise StateError(f"{error}, but the queue needs a file there; move it") from None


LOCKED = b"process "
"""The first bytes of a lock file that has or had a holder."""


def is_lock(path: Path) -> bool:
    """Whether a file is empty or was written by a holder of a lock."""
    try:
        with open_file(path, "r") as file:
            return LOCKED.startswith(file.read(len(LOCKED)))
    except (OSError, NotAFileError):
        return False


def list_files(folder: Path) -> list[str]:
    """The final names in a folder, in reading order; empty if there is no folder."""
    try:
        with os.scandir(folder) as entries:
            names = [(key, entry.name) for entry in entries if (key := FileName.parse(entry.name))]
    except FileNotFoundError:
        return []
    return [name for _, name in sorted(names)]


def patiently(action: Callable[[], Result]) -> Result:
    """Retries for a short time after transient errors of network file systems, and of open files on Windows."""
    pause = _FIRST_PAUSE_S
    for _ in range(_ATTEMPTS - 1):
        try:
            return action()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            _log.debug("trying again after: %s", error)
        time.sleep(pause)
        pause *= 2
    return action()


def move(source: Path, target: Path) -> None:
    """Renames a file, replacing an existing one."""
    patiently(lambda: source.replace(target))


def free(path: Path) -> Path:
    """A free path: this one, or one with a number after its name."""
    found, number = path, 0
    while found.is_symlink() or found.exists():
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return found


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable; Windows neither needs nor allows it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def synced(path: Path) -> Iterator[IO[bytes]]:
    """Opens a new file for writing; synchronises it at the end, removes it after an error. `StateError` for a link."""
    file = opened(path, "r+")
    try:
        with file:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


_numbers = itertools.count()
"""A part of temporary names, besides that of the thread: a signal handler may write while its thread does."""


def write_atomically(path: Path, data: bytes, replace: bool = True) -> bool:
    """Writes a file atomically; returns False if `replace` is not set and the file exists, which then stays."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{threading.get_ident()}{next(_numbers)}")
    with synced(temporary) as file:
        file.write(data)
    if replace:
        move(temporary, path)
    elif not _appeared(temporary, path):
        return False
    sync_folder(path.parent)
    return True


def _appeared(temporary: Path, path: Path) -> bool:
    """Gives a file its final name unless such a file exists: of several simultaneous processes, one succeeds."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        _log.debug("%s cannot be linked, and is renamed: %s", path, error)
        if path.exists():
            return False
        move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def is_record(state: Any) -> bool:
    """Whether this is a valid record of a consumer."""
    return (
        isinstance(state, dict)
        and isinstance(state.get("queue"), str)
        and isinstance(state.get("open"), str | None)
        and isinstance(state.get("held"), list)
        and all(isinstance(name, str) for name in state["held"])
        and type(state.get("released")) is int
        and type(state.get("on_state")) is bool
    )


def remove_stale(path: Path) -> None:
    """Removes temporary files of killed writers of `path`: those older than a minute, which no writer needs."""
    for temporary in temporaries(path):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - temporary.lstat().st_mtime > _STALE_S:
                temporary.unlink()


def temporaries(path: Path) -> Iterator[Path]:
    """The temporary files of `write_atomically` for `path`, of all processes and threads."""
    name = re.compile(re.escape(f"{TEMPORARY}{path.name}") + r"-\d+-\d+", re.ASCII)
    all_found = path.parent.glob(f"{TEMPORARY}*")
    return (found for found in all_found if name.fullmatch(found.name) and what_is(found) == "a file")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a small JSON object atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(state).encode())


def read_state(path: Path, check: Callable[[Any], bool]) -> dict[str, Any] | None:
    """Reads the object of `write_state`, or None if there is no file. `StateError` for anything else, or a link."""

    def read() -> bytes:
        with opened(path, "r") as file:
            return file.read(_MOST_STATE_BYTES + 1)

    try:
        data = patiently(read)
    except FileNotFoundError:
        return None
    try:
        state = json.loads(data) if len(data) <= _MOST_STATE_BYTES else None
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or not check(state):
        raise StateError(f"{path} is damaged; remove it to continue from the existing files")
    return state
