"""The command `forebay` until its modules are imported, which takes 0.2 s: Ctrl-C then ends it in one line.

This is a package of its own, because Python imports numpy and the core before any module of `forebay`. For
`python -m forebay`, which imports that package first, `forebay` imports this module before the others.
"""

import os
import signal
import sys
from typing import Any

INTERRUPTED = 130


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


# While Python imports the package of `python -m PACKAGE`, the first argument is "-m".
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "forebay":
    begin()
