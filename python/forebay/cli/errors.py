"""Errors of the commands: one line, in the words of the command line.

The core's messages name Python parameters, by three forms: `name=value`, `name["key"]`, and `name is VALUE, must
be ...` (or `name was "X" and is "Y"`) at the start of a problem. `in_options` replaces these by the options of the
command. A parameter and its option have the same name; others are in the command's default `parameters`.
"""

import argparse
import re

from forebay._core import ConfigError, ForebayError

__all__ = ["OWN", "WRONG_USAGE", "code", "in_options", "names_option"]

OWN = (ForebayError, OSError, TypeError, ImportError, MemoryError)
"""Errors that end a command with one line; any other is a bug, and has a traceback."""

WRONG_USAGE = 2
"""The exit code for options and files that cannot be used."""

PARAMETER = re.compile(r'(?<![^\s(])([a-z_]+)=(True|"[^"]*"|\d+)?(?=[\s;,.)]|$)')
"""Such as `fields=`, `overwrite=True`, `on_error="skip"`, `max_record_bytes=1000`; not `split=train/0.parquet`."""
ITEM = re.compile(r"""(?<![^\s(])([a-z_]+)\[["']([^"']*)["']\]""")
"""Such as `fields["x"]`."""
PROBLEM = re.compile(r'(?:(?<=^)|(?<=[;:] ))([a-z_]+)(?= is [^;]*?, (?:must be|expected|but )| was "[^"]*" and is ")')
"""Such as `batch_size` in `batch_size is 0, must be 1 to 10`, and in `batch_size was "1" and is "2"`."""

OPTION = re.compile(r"(?<!\S)-(-[a-z-]+|[a-z])(?=[\s;,.:)]|$)")
"""Such as `--fields`, `-o`."""
PLAIN = re.compile(r'"([\w./:-]+)"')
"""A value that needs no quotes in a shell."""


def code(error: Exception) -> int:
    """The exit code for an error: `WRONG_USAGE` or 1."""
    return WRONG_USAGE if isinstance(error, ConfigError) else 1


def in_options(error: Exception, options: argparse.Namespace) -> str:
    """The message of an error and its notes, on one line, with parameters replaced by the command's options."""
    flags = named(options)

    def parameter(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags:
            return found[0]
        return flags[name] if value in (None, "True") else flags[name] + " " + PLAIN.sub(r"\1", value)

    def item(found: re.Match[str]) -> str:
        return f"{flags[found[1]]} {found[2]}" if found[1] in flags else found[0]

    def problem(found: re.Match[str]) -> str:
        return flags.get(found[1], found[1])

    message = PROBLEM.sub(problem, ITEM.sub(item, PARAMETER.sub(parameter, text(error))))
    notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
    return " ".join(f"{message}{notes}".split("\n"))


def names_option(message: str) -> bool:
    """Whether a message for the command line names an option."""
    return OPTION.search(message) is not None


def named(options: argparse.Namespace) -> dict[str, str]:
    """The option of each parameter."""
    values = dict(vars(options))
    parser = values.pop("parser", None)
    found = {name: "--" + name.replace("_", "-") for name in values if name not in ("run", "parameters")}
    for action in parser._actions if parser is not None else ():
        found[action.dest] = max(action.option_strings, key=len, default=action.metavar or action.dest)
    return {**found, **values.get("parameters", {})}


def text(error: Exception) -> str:
    """The message, of an `OSError` without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror
    # As the core shows a name that is not UTF-8.
    file = str(error.filename).encode(errors="surrogateescape").decode(errors="replace")
    return error.strerror if file in error.strerror else f"{file}: {error.strerror}"
