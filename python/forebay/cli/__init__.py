"""The command `forebay`: one module per subcommand.

A subcommand's module has `add(subparsers)`, which defines the arguments and sets `run`, the function that
gets them and returns the exit code and the keys of its JSON. `main` writes the JSON, and the errors.
"""

import argparse
import contextlib
import itertools
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from forebay._core import __version__
from forebay.cli import bench, build, check, completion, download, index, inspect, show, stats
from forebay.cli.common import Help, OutputError, Parser, UsageError, said_in_lines, say, write_json
from forebay.cli.errors import OWN, WRONG_USAGE, code, in_options

COMMANDS = (show, inspect, stats, bench, check, index, build, download, completion)


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    parser = Parser(
        prog="forebay",
        description="Tools for forebay, data loaders for training.",
        formatter_class=Help,
        epilog="forebay COMMAND --help has the options of a command, with examples.",
    )
    parser.add_argument("--version", action="version", version=f"forebay {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code: 0 done, 1 bad or failed, 130 interrupted.

    Raises `SystemExit` with 2 for wrong usage, as argparse does.
    """
    for name in ("stdout", "stderr"):
        # Closed by the shell: the output goes nowhere, and no other file gets this number.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    commands = parser()
    arguments = sys.argv[1:] if arguments is None else arguments
    begin = time.monotonic()
    try:
        options, unknown = commands.parse_known_args(arguments)
        if unknown:  # in the words of the subcommand, which `parse_args` would not name
            vars(options).get("parser", commands).error(f"unrecognized arguments: {' '.join(unknown)}")
    except UsageError as error:
        told(f"{error.prog}: error: {error}\n")
        is_json = "--json=-" in arguments or ("--json", "-") in itertools.pairwise(arguments)
        raise SystemExit(ended(error.prog, WRONG_USAGE, begin, {"error": str(error)} if is_json else None)) from None
    if not hasattr(options, "run"):
        commands.print_help()
        return 0
    exit_code: int
    found: dict[str, Any]
    try:
        with said_in_lines(options):
            exit_code, found = options.run(options)
    except KeyboardInterrupt:
        told("\nforebay: interrupted\n")
        exit_code, found = 130, {"error": "interrupted"}
    except OutputError as error:
        return error.said(options.parser.prog)
    except OWN as error:
        if options.debug:
            traceback.print_exc()
        exit_code, found = code(error), {"error": in_options(error, options)}
        told(f"{options.parser.prog}: error: {found['error']}\n")
    exit_code = ended(options.parser.prog, exit_code, begin, found if options.json else None)
    if exit_code == WRONG_USAGE:
        raise SystemExit(exit_code)
    return exit_code


def told(text: str) -> None:
    """Writes the end of a command to standard error; the exit code tells it too, if that cannot be written."""
    with contextlib.suppress(OutputError):
        say(text)


def ended(prog: str, exit_code: int, begin: float, found: dict[str, Any] | None) -> int:
    """Writes the JSON of a command that began at `begin`, unless none is wanted; returns the exit code."""
    if found is not None:
        try:
            write_json(prog.split()[-1], exit_code, time.monotonic() - begin, found)
        except OutputError as error:
            return error.said(prog)
    return exit_code
