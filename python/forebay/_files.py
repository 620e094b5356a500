"""Opens files of forebay without following links, and refuses everything but regular files."""

import os
import stat
from pathlib import Path
from typing import IO, Literal

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}
_FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR | os.O_CREAT, "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND}
# Windows lacks the first three, and has no FIFO on which an open could block.
_SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT"))


class NotAFileError(Exception):
    """The path is a link, a folder or a special file; the message names path and kind."""


def what_is(path: Path) -> str | None:
    """The kind of the entry at a path, links not followed: "a file", "a symbolic link", "a folder", ..., or None."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def open_file(path: Path, mode: Literal["r", "r+", "a+"]) -> IO[bytes]:
    """Opens a regular file for reading ("r"), for reading and writing ("r+"), or for appending ("a+").

    The last two create a missing file. Never follows a link at the end of `path`, and never waits for a FIFO.
    Raises `NotAFileError` if the path is anything but a regular file.
    """
    if (found := what_is(path)) not in (None, "a file"):
        raise NotAFileError(f"{path} is {found}")
    try:
        descriptor = os.open(path, _FLAGS[mode] | _SAFE, 0o666)
    except OSError:
        if (found := what_is(path)) not in (None, "a file"):  # created since the first check
            raise NotAFileError(f"{path} is {found}") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFileError(f"{path} is not a regular file")
        return os.fdopen(descriptor, f"{mode}b")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: Path) -> bytes:
    """The bytes of a regular file; raises as `open_file` does."""
    with open_file(path, "r") as file:
        return file.read()


def write_new(path: Path, data: bytes) -> None:
    """Writes a new file, whole or not at all.

    Raises `FileExistsError` if there is a file already; it stays as it is.
    """
    with path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                error.filename = str(path)
            raise
