"""The files of a folder as rows of several recordings, by the form of their paths."""

import os
import re
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from forebay._checks import shown, wrong_type
from forebay._core import ConfigError

_STEM = "stem"
_MOST_PARTS = 3
"""The most parts of a name between slashes: with more, a long name could be divided in millions of ways."""
_PART = re.compile(r"\{([^{}]*)\}")


def rows_of_stems(root: str | PathLike[str], files: str | Mapping[str, str]) -> dict[str, list[str | None]]:
    """The columns of the parts that tell rows apart, and those of the recordings, as paths below `root`.

    Raises `ConfigError` for a form that is none, and if no file has one of them.
    """
    if not isinstance(root, str | PathLike):
        raise wrong_type("root", "the path of a folder", root)
    folder = fspath(root)
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"root is {folder!r}, which is no folder")
    forms, keys = _forms(files)
    columns: dict[str, None] = dict.fromkeys(column for column, _ in forms if column is not None)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    unseen = set(columns)
    example = None
    for path in _files(folder):
        example = example or path
        for column, form in forms:
            if not (found := form.fullmatch(path)):
                continue
            parts = found.groupdict()
            name = column if column is not None else parts[_STEM]
            if name in keys:
                raise ConfigError(f"{path} has the stem {name!r}, and {{{name}}} is another part of files; rename that")
            unseen.discard(name)
            rows.setdefault(tuple(parts[key] for key in keys), {})[name] = path
    if not rows:
        found_instead = "has no file" if example is None else f"has files such as {example}, and none of this form"
        raise ConfigError(f"files is {shown(files)}, and {folder} {found_instead}")
    if unseen and isinstance(files, Mapping):
        name = next(column for column in columns if column in unseen)
        raise ConfigError(f"files has {name!r} as {files[name]!r}, and {folder} has no file of this form")
    columns |= dict.fromkeys(sorted({name for row in rows.values() for name in row}))
    order = sorted(rows)
    made: dict[str, list[str | None]] = {key: [row[at] for row in order] for at, key in enumerate(keys)}
    return made | {column: [rows[row].get(column) for row in order] for column in columns}


def _files(folder: str) -> Iterator[str]:
    """The paths below the folder, with slashes, without hidden ones."""

    def refuse(error: OSError) -> None:
        raise error

    for at, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(at).relative_to(folder)
        for name in sorted(names):
            if not name.startswith("."):
                yield (below / name).as_posix()


def _forms(files: Any) -> tuple[list[tuple[str | None, re.Pattern[str]]], list[str]]:
    """The column and the pattern of each form, and the parts that tell rows apart."""
    expected = 'a form of paths, such as "{song}/{stem}.wav", or a dict of columns and forms'
    if isinstance(files, str):
        given: list[tuple[str | None, Any]] = [(None, files)]
    elif isinstance(files, Mapping):
        given = list(files.items())
    else:
        raise wrong_type("files", expected, files)
    forms, keys = [], None
    for column, form in given:
        if not isinstance(form, str) or not isinstance(column, str | None):
            raise wrong_type("files", expected, files)
        names = list(dict.fromkeys(_PART.findall(form)))
        if wrong := [name for name in names if not name.isidentifier()]:
            raise ConfigError(f"files has {{{wrong[0]}}} in {form!r}, must be a name in braces, such as {{song}}")
        if re.search(r"[{}]", _PART.sub("", form)):
            raise ConfigError(f"files has a brace without its other in {form!r}")
        if (_STEM in names) != (column is None):
            told = "a str, which needs {stem}, the column of a file" if column is None else "a dict, and has {stem}"
            raise ConfigError(f"files is {told}: {form!r}")
        if any(len(set(_PART.findall(name))) > _MOST_PARTS for name in form.split("/")):
            raise ConfigError(
                f"files has {form!r}, with more than {_MOST_PARTS} parts in a name between slashes, must be at most "
                f"{_MOST_PARTS}: take several together as one part"
            )
        own = sorted(name for name in names if name != _STEM)
        if not own:
            raise ConfigError(f"files has {form!r}, in which no part tells rows apart, such as {{song}}")
        if keys is not None and sorted(keys) != own:
            raise ConfigError(f"files has {form!r} with the parts {own}, and a form before with {sorted(keys)}")
        keys = keys or [name for name in names if name != _STEM]
        forms.append((column, _pattern(form)))
    if keys is None:
        raise ConfigError("files is {}, must have at least one column")
    if known := [column for column, _ in forms if column in keys]:
        raise ConfigError(f"files has the column {known[0]!r}, which is a part of its forms as well; rename one")
    return forms, keys


def _pattern(form: str) -> re.Pattern[str]:
    """The expression of a form; a name that is there twice is the same part."""
    pieces, known, at = [], set(), 0
    for part in _PART.finditer(form):
        name = part[1]
        pieces += [re.escape(form[at : part.start()]), f"(?P={name})" if name in known else f"(?P<{name}>[^/]+)"]
        known.add(name)
        at = part.end()
    return re.compile("".join([*pieces, re.escape(form[at:])]))
