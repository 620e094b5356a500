"""A file lock for a queue; the system releases it when the process ends for any reason."""

import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import IO, Self

from forebay._core import StateError
from forebay.queue.files import LOCKED, opened

_log = logging.getLogger("forebay.queue")

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(1 << 30)  # beyond the content, which other processes read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)

    def _unlock(file: IO[bytes]) -> None:
        """Does nothing: closing is enough, since no other process can have this file."""

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: IO[bytes]) -> None:
        """Unlocks for forked children too, which would otherwise hold the lock until they end."""
        fcntl.flock(file, fcntl.LOCK_UN)


class QueueLock:
    """A lock that is held from construction until `release()`; `who` names the kind of holder in errors.

    Raises `StateError` if another process holds it, or if `path` is a link or a file that is not a lock,
    which stays unchanged.
    """

    def __init__(self, path: Path, who: str) -> None:
        self._process = os.getpid()
        self._path = path
        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = opened(path, "a+")
            self._take(who)
            self._check()
            if self._is_there():
                break
            self._file.close()  # removed since it was opened: a new file is the lock now
        self._file.truncate(0)
        self._file.write(LOCKED + f"{os.getpid()} on {socket.gethostname()}".encode())
        self._file.flush()

    def _take(self, who: str) -> None:
        path = self._path
        try:
            _lock(self._file)
        except (BlockingIOError, PermissionError):
            self._file.seek(0)
            holder = self._file.read(200).decode(errors="replace").strip() or "unknown"
            self._file.close()
            raise StateError(
                f"another {who} holds {path} ({holder}); end or close() it, or give each its own queue with rank="
            ) from None
        except OSError as error:
            _log.warning("%s cannot be locked (%s): a second %s would not be detected", path, error, who)

    def _check(self) -> None:
        """Raises `StateError` unless the file is empty or was written by a lock."""
        self._file.seek(0)
        if not LOCKED.startswith(self._file.read(len(LOCKED))):
            self.release()
            raise StateError(f"{self._path} is not a lock of a queue: it has other content; move it")

    def _is_there(self) -> bool:
        """Whether the open file still has its name; Windows does not remove open files."""
        try:
            return sys.platform == "win32" or os.path.samestat(os.fstat(self._file.fileno()), self._path.lstat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Removes the file, then releases it; another process about to lock it detects this and makes a new file."""
        if sys.platform == "win32":
            self.release()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)  # noqa: PTH108
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def release(self) -> None:
        """Releases the lock, except in a forked child; the file stays, since a new file would be another lock."""
        if not self._file.closed and os.getpid() == self._process:
            with contextlib.suppress(OSError):  # the file system has no locks
                _unlock(self._file)
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.release()
