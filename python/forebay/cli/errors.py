"""Rewrites errors for the command line: the core's messages name Python parameters, a command has options."""

import argparse
import re

__all__ = ["in_options"]

PARAMETER = re.compile(r'(?<![^\s(])([a-z_]+)=(True|"[^"]*"|\d+)?(?=[\s;,.)]|$)')
"""Such as `fields=`, `overwrite=True`, `on_error="skip"`, `max_record_bytes=1000`; not `split=train/0.parquet`."""

PLAIN = re.compile(r'"([\w./:-]+)"')
"""A value that needs no quotes in a shell."""

FOR_PYTHON = {
    "patterns are not expanded, pass sorted(glob.glob(pattern))": (
        "no file matches the pattern, or it is in quotes, where the shell does not expand it"
    ),
    "pass the shards in it as a list of files": "give the shards in it, as FOLDER/*.arrow",
}
"""Advice for Python only, and the advice for the command instead."""


def in_options(error: Exception, options: argparse.Namespace) -> str:
    """The message of an error, with parameters and values replaced by the command's options."""

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
