"""The command `forebay`: one module per subcommand.

A subcommand's module has `add(subparsers)`, which defines the arguments and sets `run`, the function that
gets them and returns the exit code.
"""

import argparse
import sys
from collections.abc import Sequence

from forebay._core import __version__
from forebay.cli import build, check, download

COMMANDS = (build, check, download)


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = argparse.ArgumentParser(prog="forebay", description="Tools for forebay, data loaders for training.")
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except KeyboardInterrupt:
        sys.stderr.write("\nforebay: interrupted\n")
        return 130
    return code
