"""The command `forebay` until its modules are imported, which takes 0.2 s: Ctrl-C then ends it in one line.

This is a package of its own, because Python imports numpy and the core before any module of `forebay`.
"""

import os
import signal
from typing import Any

INTERRUPTED = 130


def interrupted(*_: Any) -> None:
    """Ends the process at once: nothing is begun, and an exception within an import could be replaced by another."""
    os.write(2, b"\nforebay: interrupted\n")
    os._exit(INTERRUPTED)


def main() -> int:
    """Runs the command; returns its exit code."""
    # A shell ignores the signal for a command in the background.
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, interrupted)
    from forebay.cli import main as run

    try:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        interrupted()
        raise
