"""What the subcommands share: the form of their help, `--json -`, and the check of the place of their output."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._core import ConfigError, __version__
from forebay._files import what_is

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CODES = (
    "exit codes: 0 done; 1 something is bad or failed; 2 options or files that cannot be used; 130 interrupted. With "
    "--json - standard output has one line of JSON: command, forebay (the version), exit_code, seconds, "
)
"""The end of each help; the command's own keys follow."""


class Help(argparse.HelpFormatter):
    """Wraps paragraphs, and keeps those whose lines are indented."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        return "\n\n".join(
            part if "\n  " in part else filled(part, width, indent) for part in text.strip().split("\n\n")
        )


def subcommand(
    subparsers: "Subparsers", name: str, summary: str, description: str, examples: str, keys: str
) -> argparse.ArgumentParser:
    """The parser of a subcommand, with examples at the end of its help; `keys` are those of its JSON."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=Help,
        epilog=f"examples:\n{examples}\n\n{CODES}{keys}; or error.",
    )
    parser.set_defaults(parser=parser)
    return parser


def add_json(parser: argparse._ActionsContainer) -> None:
    """Adds `--json -`."""
    parser.add_argument(
        "--json",
        choices=("-",),
        metavar="-",
        help="write the summary to standard output as JSON; other output is on standard error",
    )


def write_json(command: str, exit_code: int, seconds: float, found: Mapping[str, Any]) -> None:
    """Writes the summary of a command as one line of JSON to standard output."""
    head = {"command": command, "forebay": __version__, "exit_code": exit_code, "seconds": round(seconds, 3)}
    sys.stdout.write(json.dumps({**head, **found}) + "\n")
    sys.stdout.flush()


def check_place(option: str, folder: Path) -> None:
    """Raises `ConfigError` if no files can be written in `folder`, which need not exist yet."""
    at = folder.absolute()
    while not os.path.lexists(at) and at != at.parent:
        at = at.parent
    if not at.is_dir():
        kind = "a link that leads nowhere" if at.is_symlink() and not at.exists() else what_is(at)
        raise ConfigError(f"{at} is {kind}, must be a folder; give another {option}")
    if not os.access(at, os.W_OK | os.X_OK):
        is_read_only = hasattr(os, "statvfs") and os.statvfs(at).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise ConfigError(f"nothing can be written in {at}: {why}; give another {option}")
