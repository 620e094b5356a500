"""Recordings in files of their own, named by a table.

>>> import forebay
>>> forebay.Manifest("birds/train.csv", path_column="filename", start="from", end="to")
Manifest('birds/train.csv', path_column='filename', start='from', end='to')
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from forebay._checks import wrong_type
from forebay._core import _Manifest
from forebay._part import _Part, part
from forebay._stems import rows_of_stems

__all__ = ["Manifest"]


class _Frame(Protocol):
    """A data frame of pandas, or a table of pyarrow."""

    @property
    def columns(self) -> Any: ...


_SHOWN = 3
"""The rows that a long table prints."""


@part
class Manifest(_Part):
    """A table whose rows name recordings, or segments of recordings: a source of a loader.

    `table`: the path of a `.csv`, `.tsv`, `.txt` (labels of Audacity, selections of Raven) or `.jsonl` file, also
    compressed as `.gz` or `.zst`, of a `.parquet` file, or of a `wav.scp` of Kaldi; of a folder with a table that is
    known by its name (`metadata.csv` and the like, a data folder of Kaldi, a shar of Lhotse, a tarred set of NeMo); or
    rows, which are copied: a list of dicts, a dict of columns, a data frame of pandas or a table of pyarrow.
    Relative paths are below `root`, by default the folder of the table (of rows: the current one). A file outside of
    it is read only with `allow_paths=` of the loader. A `root` that ends in `.tar`, which may be a pattern, is that of
    archives, whose members the paths name.

    `path_column`, `start`, `end`: the names of columns. By default the usual ones: `path`, `file_name`, `filepath`,
    `audio_filepath` and the like; `start` and `end`, `start_time` and `end_time`, `Begin Time (s)` and `End Time (s)`,
    `onset` and `offset`, `offset` and `duration`, or a start alone. `start=""` leaves segments out. `unit`: seconds, or
    samples at the recording's rate. A row with a segment is a recording that consists of these samples alone.

    `columns`: the names of the columns of a table without a header.
    """

    _elsewhere: ClassVar = {
        "audio_column": "path_column",
        "data_dir": "root",
        "label_column": "the label is a column of the table: Loader(manifest, label_column=) or targets= names it",
        "sep": "commas, semicolons and tabs are found by themselves",
        "delimiter": "commas, semicolons and tabs are found by themselves",
    }

    table: str | PathLike[str] | Sequence[Mapping[str, Any]] | Mapping[str, Iterable[Any]] | _Frame
    root: str | PathLike[str] | None = None
    path_column: str | None = None
    start: str | None = None
    end: str | None = None
    unit: Literal["seconds", "samples"] = "seconds"
    columns: Sequence[str] | None = None

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Manifest: ...

    def __post_init__(self) -> None:
        given = self.table
        if isinstance(given, str | PathLike):
            object.__setattr__(self, "table", fspath(given))
        else:
            object.__setattr__(self, "table", _rows(given))
        if isinstance(self.root, PathLike):
            object.__setattr__(self, "root", fspath(self.root))
        if isinstance(self.columns, Iterable) and not isinstance(self.columns, str):
            object.__setattr__(self, "columns", tuple(self.columns))
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not isinstance(self.table, str):
            values["table"] = _by_column(self.table)
        object.__setattr__(self, "_plan", _Manifest(values))

    @classmethod
    def of_stems(cls, root: str | PathLike[str], files: str | Mapping[str, str]) -> Self:
        """The recordings below the folder `root` as rows of several: a mixture and its sources, or stems.

        `files` is the form of their paths, in which a name in braces stands for a part without a slash. `{stem}` is the
        column in which a recording is, and those with equal other parts are a row: `"{song}/{stem}.wav"` of a folder
        for each song, as MUSDB has them; `"{stem}/{name}.wav"` of a folder for each stem, as LibriMix. Or a dict of the
        columns and their forms: `{"mixture": "{song}/{song}_MIX.wav", "vocals": "{song}/stems/vocals.wav"}`. The other
        parts are columns, too. Rows are sorted by them.

        A recording that is missing is null: `Loader(missing_audio="zeros")` has zeros there. Files of other forms are
        left out, as are hidden files and folders that are links.
        """
        return cls(rows_of_stems(root, files), root=root)

    def __repr__(self) -> str:
        call = super().__repr__().removeprefix("Manifest(table=")
        if isinstance(self.table, str):
            return f"Manifest({call}"
        rows: Any = self.table
        if isinstance(rows, Mapping):
            columns = (
                f"{name!r}: [{', '.join(map(repr, values[:_SHOWN]))}{', ...' if len(values) > _SHOWN else ''}]"
                for name, values in rows.items()
            )
            table = f"{{{', '.join(columns)}}}"
        else:
            more = f", ... ({len(rows)} rows)" if len(rows) > _SHOWN else ""
            table = f"[{', '.join(map(repr, rows[:_SHOWN]))}{more}]"
        return f"Manifest({table}{call.removeprefix(repr(self.table))}"

    def __hash__(self) -> int:
        return hash(repr(self))


def _plain(value: Any) -> Any:
    """A value of a row as Python's own types have it."""
    if isinstance(value, PathLike):
        return os.fsdecode(fspath(value))
    if hasattr(value, "isoformat"):  # a date or a time, as csv has it
        return value.isoformat()
    if hasattr(value, "tolist"):  # an array or a number of numpy, a column of a table
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


def _rows(given: Any) -> tuple[dict[str, Any], ...] | dict[str, tuple[Any, ...]]:
    """A copy of the rows."""
    if not isinstance(given, type):
        given = _of_frame(given)
    if isinstance(given, Mapping):
        return {name: tuple(map(_plain, values)) for name, values in given.items()}
    if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray) and not hasattr(given, "to_dict"):
        rows = tuple(given)
        wrong = next((row for row in rows if not isinstance(row, Mapping)), None)
        if wrong is None:
            return tuple({name: _plain(value) for name, value in row.items()} for row in rows)
        raise wrong_type("a row of table", "a dict of columns and values", wrong)
    expected = "the path of a table, a list of dicts, a dict of columns, or a data frame of pandas"
    if hasattr(given, "to_dict"):  # of polars and the like
        expected += "; frame.to_dict(as_series=False) makes a dict of columns of a frame of polars"
    raise wrong_type("table", expected, given)


def _of_frame(given: Any) -> Any:
    """The columns of a data frame as a dict; any other object as it is. No library is imported for that."""
    if hasattr(given, "to_pydict"):  # a table of pyarrow
        return given.to_pydict()
    if not hasattr(given, "to_dict") or not hasattr(given, "notna") or not hasattr(given, "columns"):
        return given
    # Of pandas: NaN and NA stand for empty cells.
    columns = given.astype(object).where(given.notna(), None).to_dict("list")
    return {str(name): values for name, values in columns.items()}


def _by_column(rows: Any) -> dict[str, Sequence[Any]]:
    if isinstance(rows, Mapping):
        return dict(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
