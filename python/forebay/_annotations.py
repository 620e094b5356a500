"""Tables of annotations: path, start, end and label of each; and of annotated regions, which need no label."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from forebay._checks import shown
from forebay._core import ConfigError

Row: TypeAlias = tuple[str, float, float, str]

_LARGEST = 1 << 30

_USUAL = {
    "path": (
        "path", "file", "filename", "filepath", "audiofilepath", "beginfile", "beginpath", "recording", "audiopath",
        "audiofilename", "audiofile", "audio", "wavpath", "wavfilename", "wavfile", "wav", "recordingpath",
        "recordingfile", "soundfile", "soundpath", "relativepath", "relpath",
    ),
    "start": ("start", "starttime", "begintimes", "starts", "onset", "begin", "startseconds", "tmin"),
    "end": ("end", "endtime", "endtimes", "ends", "offset", "stop", "endseconds", "tmax"),
    "label": (
        "label", "annotation", "species", "class", "ebirdcode", "speciescode", "commonname", "eventlabel",
        "scientificname", "name",
    ),
}  # fmt: skip
"""The usual names of columns, as `_plain` has them."""

_RECORDING = re.compile(r"[^/\\]\.(wav|flac|ogg|oga|opus|mp3|aiff?|aac|m4a|mp4|w64|caf|webm|sph)$", re.IGNORECASE)
"""The end of the path of a recording."""

_SUFFIXES = (".csv", ".tsv", ".txt", ".rttm")
_REGIONS = ".uem"
_WITHIN = "fileoffsets"


def read(table: Any, columns: Mapping[str, str] | None, name: str = "table", *, regions: bool = False) -> list[Row]:
    """The annotations of a table, of the tables in a folder, or of rows.

    A table is one of commas or tabs, labels of Audacity, or RTTM. With `regions` it may have no labels, or be a UEM; in
    a folder with UEMs, these alone are read. Raises `ConfigError` for a table without the columns, and for a value that
    is none, with its file and line.
    """
    if unknown := [name for name in columns or () if name not in _USUAL]:
        raise ConfigError(f"columns has {unknown[0]!r}, must be of {', '.join(_USUAL)}")
    if isinstance(table, str):
        if not table:
            raise ConfigError(f'{name} is "", must be the path of a table or folder; "." is the current folder')
        return [row for file in _files(Path(table), name, regions) for row in _table(file, columns, regions)]
    if not isinstance(table, Sequence):
        kind = type(table).__name__
        raise TypeError(
            f"{name} is {shown(table)} (type {kind}), must be a path, or a list of rows (path, start, end, label); of "
            "a DataFrame with these columns, list(frame.itertuples(index=False))"
        )
    if columns is not None:
        raise ConfigError(f"columns is given, which is for a table in a file, and {name} has rows")
    return checked(table, name, regions=regions)


def freeze(part: Any, name: str, *, regions: bool = False) -> None:
    """Makes the table in the field `name` (rows, a path or a dict), and the names of columns, constant."""
    table = getattr(part, name)
    if isinstance(table, PathLike):
        object.__setattr__(part, name, fspath(table))
    elif isinstance(table, Mapping):
        object.__setattr__(part, name, dict(table))
    elif isinstance(table, Sequence) and not isinstance(table, str):
        object.__setattr__(part, name, tuple(checked(table, name, regions=regions)))
    if part.columns is not None:
        object.__setattr__(part, "columns", dict(part.columns))


def checked(rows: Sequence[Any], name: str, *, regions: bool = False) -> list[Row]:
    """Rows with Python's own numbers, so that they can be written as JSON; of regions, the label may be missing."""
    return [_row(row, number, name, regions) for number, row in enumerate(rows)]


def _row(row: Any, number: int, name: str, regions: bool) -> Row:
    is_row = isinstance(row, Sequence) and not isinstance(row, str) and len(row) in ((3, 4) if regions else (4,))
    if is_row and len(row) == 3:
        row = (*row, "")
    if not is_row or not isinstance(row[0], str) or not isinstance(row[3], str):
        wanted = "(path, start, end), with or without a label" if regions else "(path, start, end, label)"
        raise TypeError(f"row {number} of {name} is {row!r}, must be {wanted}")
    start, end = (_seconds(row[at], f"{what} in row {number} of {name}") for at, what in ((1, "start"), (2, "end")))
    return row[0], start, end, row[3]


def _seconds(value: Any, what: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"{what} is {value!r}, must be a number of seconds")
    return found


def _times(start: str, end: str, where: str) -> tuple[float, float]:
    """Start and end of a line, in this order."""
    first, last = _seconds(start, f"{where}: start"), _seconds(end, f"{where}: end")
    if last < first:
        raise ConfigError(f"{where}: the annotation is from {first:g} to {last:g} s, must end after its start")
    return first, last


def _files(path: Path, name: str, regions: bool) -> list[Path]:
    if path.is_dir():
        suffixes = (*_SUFFIXES, _REGIONS) if regions else _SUFFIXES
        found = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()
        )
        if not found:
            raise ConfigError(f"{name} is the folder {path}, which has no file ending in {', '.join(suffixes)}")
        return [file for file in found if file.suffix.lower() == _REGIONS] or found
    if not path.is_file():
        raise FileNotFoundError(f"{name} is {str(path)!r}, which is no file and no folder")
    return [path]


def _table(path: Path, columns: Mapping[str, str] | None, regions: bool) -> Iterator[Row]:
    size = path.stat().st_size
    if size > _LARGEST:
        raise ConfigError(f"{path} has {size} bytes, at most {_LARGEST} are read")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}, line {line}, is not UTF-8 (byte {error.start}); save the table as UTF-8") from error
    lines = text.splitlines()
    suffix = path.suffix.lower()
    if suffix == ".txt" and not text.strip():
        return  # as Audacity exports a recording without labels
    unnamed: tuple[str, Callable[[Path, list[str]], Iterator[Row]]] | None = None
    if suffix == ".rttm":
        unnamed = "RTTM", _rttm
    elif suffix == _REGIONS:
        if not regions:
            raise ConfigError(f"{path} is a UEM, whose regions have no labels; give it to forebay.crops.Annotated")
        unnamed = "regions (UEM)", _uem
    elif suffix != ".csv" and lines and _is_label(lines[0]):
        unnamed = "labels of Audacity", _audacity
    if unnamed is not None:
        kind, rows_of = unnamed
        if columns:
            raise ConfigError(
                f"columns is given, and {path} has {kind}, whose columns have no names; leave columns out"
            )
        yield from rows_of(path, lines)
        return
    separator = "," if path.suffix.lower() == ".csv" else "\t"
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = [name.strip() for name in next(rows, [])]
        at = _columns(path, header, columns, regions)
        within = _within(header, at)
        if "path" not in at and not (columns and "path" in columns):
            _check_no_paths(path, header, at, csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            where = f"{path}, line {rows.line_num}"
            if len(row) <= max(at.values()):
                raise ConfigError(f"{where}, has {len(row)} fields, expected {len(header)}")
            recording = row[at["path"]].strip() if "path" in at else _recording(path)
            # A recording without events, as DCASE's tables list them.
            if recording and not any(row[at[name]].strip() for name in at if name != "path"):
                continue
            start, end = _times(row[at["start"]].strip(), row[at["end"]].strip(), where)
            if within is not None and within < len(row) and row[within].strip():
                first = _seconds(row[within].strip(), f"{where}: {header[within].lower()}")
                start, end = first, first + (end - start)
            yield recording, start, end, row[at["label"]].strip() if "label" in at else ""
    except csv.Error as error:
        raise ConfigError(f"{path}, line {rows.line_num}, is no table: {error}") from error


def _columns(path: Path, header: list[str], given: Mapping[str, str] | None, regions: bool) -> dict[str, int]:
    """The place of each column; a table may lack paths, and one of regions labels."""
    found = {}
    names = [_plain(name) for name in header]
    for column, usual in _USUAL.items():
        if given and column in given:
            if column == "path" and not given[column]:
                continue
            if given[column] not in header:
                raise ConfigError(f"{path} has no column {given[column]!r}; its columns are {', '.join(header)}")
            found[column] = header.index(given[column])
        elif known := [name for name in usual if name in names]:
            found[column] = names.index(known[0])
        elif column not in (("path", "label") if regions else ("path",)):
            raise ConfigError(
                f"{path} has no column of the {column}; its columns are {', '.join(header) or 'none'}; name it, as in "
                f'columns={{"{column}": ...}}'
            )
    return found


def _plain(name: str) -> str:
    """A name in small letters and digits alone, as for a `Manifest`: `Begin Time (s)` is `begintimes`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _check_no_paths(path: Path, header: list[str], at: Mapping[str, int], rows: Iterator[list[str]]) -> None:
    """Raises `ConfigError` if a column of a table without paths seems to have them: all cells but empty ones."""
    next(rows, None)  # the header
    left, filled = set(range(len(header))) - set(at.values()), set()
    for row in rows:
        for number in left & set(range(len(row))):
            if cell := row[number].strip():
                filled.add(number) if _RECORDING.search(cell) else left.discard(number)
    for number in sorted(left & filled):
        name = header[number]
        raise ConfigError(
            f"{path} has no column with a usual name of paths, and {name!r} names recordings; give "
            f'columns={{"path": {name!r}}}, or columns={{"path": ""}} if all rows are about the recording of the '
            "table's name"
        )


def _within(header: list[str], at: Mapping[str, int]) -> int | None:
    """The column of starts within files, of a table whose other times are those of several files in a row."""
    names = [_plain(name) for name in header]
    is_raven = "path" in at and names[at["start"]] == "begintimes" and names[at["end"]] == "endtimes"
    return names.index(_WITHIN) if is_raven and _WITHIN in names else None


def _is_label(line: str) -> bool:
    """Whether a line is one of Audacity's: start, end and label."""
    cells = line.split("\t")
    try:
        return len(cells) >= 2 and float(cells[0]) <= float(cells[1])
    except ValueError:
        return False


def _audacity(path: Path, lines: list[str]) -> Iterator[Row]:
    recording = _recording(path)
    for number, line in enumerate(lines, 1):
        # A line that begins with a backslash has the frequencies of the one before.
        if not line.strip() or line.startswith("\\"):
            continue
        if not _is_label(line):
            raise ConfigError(f"{path}, line {number}, is {line!r}, must be start, end and label with tabs between")
        start, end, *label = line.split("\t")
        yield recording, float(start), float(end), "\t".join(label).strip()


def _rttm(path: Path, lines: list[str]) -> Iterator[Row]:
    """The turns of speakers of the NIST's Rich Transcription (RT-09 evaluation plan, appendix A).

    Lines of other types than SPEAKER, such as SPKR-INFO, have no turns; comments begin with `;;`.
    """
    n_others = n_turns = 0
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if not cells or line.startswith(";;"):
            continue
        if cells[0] != "SPEAKER":
            n_others += 1
            continue
        where = f"{path}, line {number}"
        if len(cells) < 8:
            raise ConfigError(
                f"{where}, has {len(cells)} fields, expected SPEAKER file 1 start duration <NA> <NA> name"
            )
        start, duration = (_seconds(cells[at], f"{where}: {name}") for at, name in ((3, "start"), (4, "duration")))
        if duration < 0:
            end = start + duration
            raise ConfigError(f"{where}: the turn is from {start:g} to {end:g} s, must end after its start")
        n_turns += 1
        yield cells[1], start, start + duration, cells[7]
    if n_others and not n_turns:
        raise ConfigError(f"{path} has no line that begins with SPEAKER, expected a file of Rich Transcription (RTTM)")


def _uem(path: Path, lines: list[str]) -> Iterator[Row]:
    """The regions of an un-partitioned evaluation map of the NIST: file, channel, start and end in each line."""
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if not cells or line.startswith(";;"):
            continue
        where = f"{path}, line {number}"
        if len(cells) != 4:
            raise ConfigError(f"{where}, has {len(cells)} fields, expected a file, a channel, a start and an end")
        start, end = _times(cells[2], cells[3], where)
        yield cells[0], start, end, ""


def _recording(path: Path) -> str:
    """The name of the recording that a table without paths is about."""
    name = re.split(r"\.Table\.\d|\.BirdNET\.|\.selections?\b", path.name)[0]
    return name if name != path.name else path.stem
