"""Errors of the core as a command prints them: the core names parameters of Python, a command has options."""

import argparse
import re

__all__ = ["in_options"]

PARAMETER = re.compile(r'(?<![^\s(])([a-z_]+)=(True|"[^"]*"|\d+)?(?=[\s;,.)]|$)')
"""As `fields=`, `overwrite=True`, `on_error="skip"`, `max_record_bytes=1000`; no path, as `split=train/0.parquet`."""

PLAIN = re.compile(r'"([\w./:-]+)"')
"""A value that a shell takes without quotes."""

FOR_PYTHON = {
    "patterns are not expanded, pass sorted(glob.glob(pattern))": (
        "no file matches the pattern, or it is in quotes, where the shell does not expand it"
    ),
    "pass the shards in it as a list of files": "give the shards in it, as FOLDER/*.arrow",
}
"""Advice that is for Python alone, and what a user of the command does instead."""


def in_options(error: Exception, options: argparse.Namespace) -> str:
    """The message of an error; parameters that the command has as options are named as these, with their values."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in vars(options):
            return found[0]
        flag = "--" + name.replace("_", "-")
        return flag if value in (None, "True") else flag + " " + PLAIN.sub(r"\1", value)

    message = PARAMETER.sub(option, str(error))
    for python, command in FOR_PYTHON.items():
        message = message.replace(python, command)
    return message
