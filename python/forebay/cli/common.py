"""What the subcommands share: the form of their help, `--json -`, and the checks of their inputs and outputs."""

import argparse
import contextlib
import errno
import json
import logging
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TextIO

from forebay._checks import URL, as_place
from forebay._core import ConfigError, __version__
from forebay._files import what_is
from forebay._progress import Progress
from forebay.cli.errors import in_options, names_option

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CODES = (
    "exit codes: 0 done; 1 something is bad or failed; 2 options or files that cannot be used; 130 interrupted. With "
    "--json - standard output has one line of JSON: command, forebay (the version), exit_code, seconds, "
)
"""The end of each help; the command's own keys follow."""


class Help(argparse.HelpFormatter):
    """Wraps paragraphs, and keeps those whose lines are indented."""

    def add_argument(self, action: argparse.Action) -> None:
        """Adds it to the help; commands are indented more than argparse counts on."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        return "\n\n".join(
            part if "\n  " in part else filled(part, width, indent) for part in text.strip().split("\n\n")
        )


COLUMNS = 80
"""The width of what the commands print."""


def wrapped(text: str, begin: str = "") -> str:
    """A sentence behind `begin`, on lines of at most `COLUMNS` characters; further lines are indented as deep."""
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )


class OutputError(Exception):
    """Standard output or standard error cannot be written to."""

    def said(self, prog: str) -> int:
        """Reports it, unless nobody reads the output any more (`| head`); returns the exit code."""
        cause = self.__cause__
        if not isinstance(cause, BrokenPipeError):
            with contextlib.suppress(OSError):
                reason = cause.strerror if isinstance(cause, OSError) else cause
                sys.stderr.write(f"{prog}: error: cannot write the output: {reason}\n")
        # What is still in the buffer goes nowhere, or the interpreter would report it again at its end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class Output:
    """A stream for people: it shows control characters, which file names and labels may have, as text."""

    CONTROL: ClassVar = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        """Writes a text.

        Raises `OutputError`.
        """
        # Characters that the stream cannot have are shown as text too.
        encoding = self.stream.encoding or "utf-8"
        text = text.translate(self.CONTROL).encode(encoding, "backslashreplace").decode(encoding)
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError as error:
            raise OutputError from error


def say(text: str) -> None:
    """Writes a message to standard error.

    Raises `OutputError`.
    """
    Output(sys.stderr).write(text)


class Said(logging.Handler):
    """Writes log records of the core as lines of their own, above the bar if there is one."""

    def __init__(self, progress: Progress | None = None) -> None:
        super().__init__(logging.WARNING)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the message."""
        message = record.getMessage()
        if self.progress is None:
            say(f"{message}\n")
        else:
            self.progress.say(message.translate(Output.CONTROL))


@contextlib.contextmanager
def progress_bar(total: int, unit: str, stream: TextIO | None = None, already: int = 0) -> Iterator[Progress]:
    """A bar of progress, on standard error unless there is a `stream`."""
    progress = Progress(total, unit, sys.stderr if stream is None else stream, already=already)
    handler = Said(progress)
    logging.getLogger("forebay").addHandler(handler)
    try:
        yield progress
    finally:
        progress.close()
        logging.getLogger("forebay").removeHandler(handler)


class UsageError(ConfigError):
    """Wrong usage of the command `prog`."""

    def __init__(self, prog: str, message: str) -> None:
        super().__init__(f"{message}; see {prog} --help")
        self.prog = prog


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like those of the commands."""

    def error(self, message: str) -> NoReturn:
        """Raises `UsageError`."""
        raise UsageError(self.prog, message)


def subcommand(
    subparsers: "Subparsers", name: str, summary: str, description: str, examples: str, keys: str
) -> argparse.ArgumentParser:
    """The parser of a subcommand, with examples at the end of its help; `keys` are those of its JSON."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=Help,
        allow_abbrev=False,
        epilog=f"examples:\n{examples}\n\n{CODES}{keys}; or error.",
    )
    parser.set_defaults(parser=parser)
    parser.add_argument("--debug", action="store_true", help="after an error, also print Python's traceback")
    return parser


def add_json(parser: argparse._ActionsContainer) -> None:
    """Adds `--json -`."""
    parser.add_argument(
        "--json",
        choices=("-",),
        metavar="-",
        help="write the summary to standard output as JSON; other output is on standard error",
    )


def add_reading(parser: argparse.ArgumentParser, files: str) -> None:
    """Adds the options about what is read of `files`: the column of recordings, their track, and other folders."""
    parser.add_argument("--audio-column", metavar="NAME", help="the column of recordings, if it is not detected")
    parser.add_argument(
        "--track",
        metavar="N",
        type=int,
        help="the audio track of files with several (MP4, Matroska, WebM), from 0",
    )
    parser.add_argument(
        "--allow-paths", metavar="FOLDER", nargs="?", action="append", const=True, type=a_folder,
        help="for rows with a path instead of bytes: also read files below FOLDER, not only below the folder of the "
        f"table or the shard; may be repeated. Without FOLDER, any path is allowed; then put the option after {files}",
    )  # fmt: skip


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the argument SOURCE, the recordings."""
    parser.add_argument(
        "files", nargs="+", type=a_source, metavar="SOURCE",
        help="the recordings, as a Loader takes them: files, folders, patterns with *, ?, [...] and **",
    )  # fmt: skip


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `add_reading`, as loaders and datasets take them."""
    allow_paths = True if True in (options.allow_paths or ()) else options.allow_paths
    return {"audio_column": options.audio_column, "track": options.track, "allow_paths": allow_paths}


def out_of(options: argparse.Namespace) -> Output:
    """The stream of a command's text: standard output, unless `--json -` has it."""
    return Output(sys.stderr if options.json else sys.stdout)


def write_json(command: str, exit_code: int, seconds: float, found: Mapping[str, Any]) -> None:
    """Writes the summary of a command as one line of JSON to standard output.

    Raises `OutputError`.
    """
    head = {"command": command, "forebay": __version__, "exit_code": exit_code, "seconds": round(seconds, 3)}
    # JSON has no control characters.
    Output(sys.stdout).write(json.dumps({**head, **found}) + "\n")


def filled(text: str) -> str:
    """A text that is not empty, as the type of an argument."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty, must be a path")
    return text


def a_path(text: str) -> Path:
    """A path, as the type of an argument; an empty text would be the current folder."""
    if found := re.match(URL, text):
        raise argparse.ArgumentTypeError(f"it is a URL ({found[0]}), must be a path of this machine")
    return Path(filled(text))


def a_source(text: str) -> Path | str:
    """A path or a URL of recordings; a `Path` would make one slash of two."""
    return text if re.match(URL, text) else a_path(text)


def a_folder(text: str) -> Path | str:
    """The path of a folder, or a URL, as the value of `--allow-paths`."""
    if re.match(URL, text):
        return text
    path = a_path(text)
    if not path.is_dir():
        kind = "a file" if path.is_file() else "missing" if what_is(path) is None else "no folder"
        raise argparse.ArgumentTypeError(
            f"{text} is {kind}, must be a folder; to allow any path, give --allow-paths without FOLDER, after the files"
        )
    return path


@contextlib.contextmanager
def using(
    option: str, options: argparse.Namespace, errors: tuple[type[Exception], ...] = (ConfigError, OSError)
) -> Iterator[None]:
    """Makes an error of an input wrong usage: a `ConfigError` that names `option`, unless it names one already."""
    try:
        yield
    except errors as error:
        message = in_options(error, options)
        is_named = names_option(message) or message.startswith(f"{option} ")
        raise ConfigError(message if is_named else f"{option}: {message}") from error


def size(n_bytes: float) -> str:
    """A number of bytes with its unit."""
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"


def counted(n: int, thing: str) -> str:
    """A number with its noun."""
    plural = "es" if thing.endswith(("s", "x")) else "s"
    return f"{n} {thing}{'' if n == 1 else plural}"


BAR = 40
"""Length of a histogram's longest bar, in characters."""


def histogram(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    """The title, and a line for each class that is not empty; nothing without one."""
    if any(counts.values()):
        yield f"{title}:"
    most = max(counts.values(), default=0)
    for name, count in counts.items():
        if count:
            yield f"  {name:>14} {count:>9} {'#' * max(1, BAR * count // most)}"


SHOWN_FILES = 10
"""The most files on the terminal."""


def file_lines(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The first files of a source for the terminal, as `shards` has them."""
    for file in files[:SHOWN_FILES]:
        damage = f", damaged: {file['damage']}" if file["damage"] else ""
        yield f"  {file['path']}  {counted(file['num_rows'], 'row')}{damage}"
    if len(files) > SHOWN_FILES:
        yield f"  and {len(files) - SHOWN_FILES} more"


SHOWN = 20
"""The most bad recordings, and the most classes, on the terminal."""


def bad_line(file: str, row: int, path: str | None, reason: str) -> str:
    """A bad recording for the terminal; a single file has its own path."""
    return f"bad: {file}, row {row}{f', {path}' if path and path != file else ''}: {reason}"


def check_files(option: str, files: Iterable[str | Path]) -> None:
    """Raises `ConfigError` for the first of the files that is missing, is no file, or cannot be read."""
    for file in (Path(file) for file in files if not re.match(URL, str(file))):
        if not file.is_file():
            found = "missing" if what_is(file) is None else kind_of(file)
            hint = "; ~ is not expanded: give the folder's whole path" if str(file).startswith("~") else ""
            raise ConfigError(f"{option} {file} is {found}, must be a file{hint}")
        if not os.access(file, os.R_OK):
            raise ConfigError(f"{option} {file} cannot be read: {os.strerror(errno.EACCES)}")


def kind_of(path: Path) -> str | None:
    """The kind of the entry at a path, of which a link is told only if it leads nowhere."""
    return what_is(path.resolve()) if path.exists() else "a link that leads nowhere"


@contextlib.contextmanager
def said_in_lines(options: argparse.Namespace) -> Iterator[None]:
    """Writes each warning of Python as one line, in the words of the command line, and each log record."""

    def shown(message: Warning | str, *_: object) -> None:
        warning = message if isinstance(message, Warning) else UserWarning(message)
        say(f"{options.parser.prog}: warning: {in_options(warning, options)}\n")

    before = logging.lastResort
    logging.lastResort = Said()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = shown  # type: ignore[assignment]
            yield
    finally:
        logging.lastResort = before


def check_place(option: str, folder: Path) -> None:
    """Raises `ConfigError` if no files can be written in `folder`, which need not exist yet."""
    as_place(option, folder)
    at = folder.absolute()
    while not os.path.lexists(at) and at != at.parent:
        at = at.parent
    if not at.is_dir():
        raise ConfigError(f"{at} is {kind_of(at)}, must be a folder; give another {option}")
    if not os.access(at, os.W_OK | os.X_OK):
        is_read_only = hasattr(os, "statvfs") and os.statvfs(at).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise ConfigError(f"nothing can be written in {at}: {why}; give another {option}")


def check_new(option: str, path: Path) -> None:
    """Raises `ConfigError` unless a new file can be written at `path`, in a folder that exists."""
    check_place(option, path.parent)
    if not path.parent.is_dir():
        raise ConfigError(f"the folder of {option} {path} does not exist; create it, or give another name")
    if found := what_is(path):
        raise ConfigError(f"{option} {path} is there already, {found}; give another name")
