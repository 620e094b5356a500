"""A lock with one holder at a time for a queue; the system releases it when the process ends for any reason."""

import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import IO, Self

from forebay._core import StateError

_log = logging.getLogger("forebay.queue")

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        file.seek(1 << 30)  # beyond what is written, which others are to read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)

    def _unlock(file: IO[str]) -> None:
        """Closing is enough: no other process can have this file."""

else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: IO[str]) -> None:
        """Unlocks for children of a fork too, which would hold the lock as long as they live."""
        fcntl.flock(file, fcntl.LOCK_UN)


class QueueLock:
    """Held from the start until `release()`; `who` names the holder in the error of a second one."""

    def __init__(self, path: Path, who: str) -> None:
        self._process = os.getpid()
        self._path = path
        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+", encoding="utf-8")
            self._take(who)
            if self._is_there():
                break
            self._file.close()  # it was removed in the meantime, and another one is the lock now
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def _take(self, who: str) -> None:
        path = self._path
        try:
            _lock(self._file)
        except (BlockingIOError, PermissionError):
            self._file.seek(0)
            holder = self._file.read(200).strip() or "unknown"
            self._file.close()
            raise StateError(
                f"another {who} holds {path} ({holder}): two would take each other's files; end or close() it, or give "
                "each a queue of its own with rank="
            ) from None
        except OSError as error:
            _log.warning("%s cannot be locked (%s): nothing keeps a second %s away", path, error, who)

    def _is_there(self) -> bool:
        """Whether the open file still has its name; Windows does not remove open files."""
        try:
            return sys.platform == "win32" or os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Removes the file, and releases it: another process about to lock it finds it removed, and makes a new one."""
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
            with contextlib.suppress(OSError):  # of a file system without locks
                _unlock(self._file)
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.release()
