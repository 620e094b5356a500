"""The command `forebay`: one module per subcommand.

A subcommand's module has `add(subparsers)`, which defines the arguments and sets `run`, the function that
gets them and returns the exit code and the keys of its JSON. `main` writes the JSON, and the errors.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from forebay._core import __version__
from forebay.cli import bench, build, check, completion, download, index, inspect, show, stats
from forebay.cli.common import Help, OutputError, Parser, said_in_lines, write_json
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
    commands = parser()
    options = commands.parse_args(arguments)
    if not hasattr(options, "run"):
        commands.print_help()
        return 0
    begin = time.monotonic()
    exit_code: int
    found: dict[str, Any]
    try:
        with said_in_lines(options):
            exit_code, found = options.run(options)
    except KeyboardInterrupt:
        sys.stderr.write("\nforebay: interrupted\n")
        exit_code, found = 130, {"error": "interrupted"}
    except OutputError as error:
        return error.said(options.parser.prog)
    except OWN as error:
        if options.debug:
            traceback.print_exc()
        exit_code, found = code(error), {"error": in_options(error, options)}
        sys.stderr.write(f"{options.parser.prog}: error: {found['error']}\n")
    if options.json:
        try:
            write_json(options.parser.prog.split()[-1], exit_code, time.monotonic() - begin, found)
        except OutputError as error:
            return error.said(options.parser.prog)
    if exit_code == WRONG_USAGE:
        raise SystemExit(exit_code)
    return exit_code
