"""The command `forebay` until its modules are imported, which takes 0.2 s: Ctrl-C then ends it in one line.

Python imports `forebay`, with numpy and the core, before any module of it. So `forebay` imports this module before the
others, and this module finds out by itself whether the process is the command.
"""

import os
import signal
import sys
from typing import Any

INTERRUPTED = 130
SCRIPT_BYTES = 4096
"""How much is read of a script: those of installers have 300 bytes, and a path."""


def is_command() -> bool:
    """Whether the process is `python -m forebay`, or the script of the command, which names this module."""
    if len(sys.argv) > len(sys.orig_argv):  # a child of multiprocessing, which has its parent's arguments
        return False
    program, started = sys.argv[0], sys.orig_argv[-len(sys.argv)]
    if program == "-m":  # while Python imports the package of `python -m PACKAGE`
        return started.removeprefix("-m") == "forebay"
    if program.rpartition("/")[2] != "forebay" or program != started:  # a child, again
        return False
    try:
        with open(program, "rb") as script:  # noqa: PTH123 (before the slow imports, of which pathlib is one)
            return __name__.encode() in script.read(SCRIPT_BYTES)
    except OSError:  # a folder
        return False


def interrupted(*_: Any) -> None:
    """Ends the process at once: nothing is begun, and an exception within an import could be replaced by another."""
    try:
        os.write(2, b"\nforebay: interrupted\n")
    finally:  # standard error may be closed
        os._exit(INTERRUPTED)


def begin() -> None:
    """Handles Ctrl-C, unless a shell ignores it for a command in the background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def main() -> int:
    """Runs the command; returns its exit code."""
    begin()
    from forebay.cli import main as run

    try:
        if signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        interrupted()
        raise


if sys.argv and is_command():
    begin()
