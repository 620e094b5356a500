"""What names the classes, the tokens and the characters of targets: lists, files, tokenizers."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay._checks import wrong_type
from forebay._core import ConfigError, Tokenizer

Classes: TypeAlias = Sequence[str] | str | PathLike[str] | int | None

LARGEST_FILE = 64 << 20
"""The most bytes of a file of names that are read."""


def tokenizer_file(given: Any) -> str | dict[str, Any]:
    """The path of a tokenizer's file; in a dict, with what the file lacks."""
    if isinstance(given, Tokenizer):
        (made_of,), options = given.__getnewargs_ex__()
        if not isinstance(made_of, (str, PathLike)):
            raise ConfigError(
                f"tokenizer was made of an object in memory, {type(made_of).__name__}; save it as a file, and "
                "give the path"
            )
        kept = {name: options[name] for name in ("pattern", "special_tokens") if options[name]}
        return {"path": fspath(made_of), **kept} if kept else fspath(made_of)
    if isinstance(given, Mapping) and isinstance(given.get("path"), (str, PathLike)):
        unknown = set(given) - {"path", "pattern", "special_tokens"}
        if unknown:
            raise ConfigError(f"tokenizer has {sorted(unknown)[0]!r}, must have path, pattern and special_tokens")
        return {**given, "path": fspath(given["path"])}
    if isinstance(given, (str, PathLike)):
        return fspath(given)
    raise wrong_type(
        "tokenizer",
        "the path of a tokenizer.json, a rank file or a .model, or a forebay.tokens.Tokenizer of one",
        given,
    )


def entries(given: Any) -> tuple[str, ...]:
    """The entries of a vocabulary, in order of their ids."""
    if isinstance(given, PathLike):
        path, text = text_of(given, "vocabulary")
        if path.suffix.lower() != ".json":
            return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
        found = read_json(path, text, "vocabulary")
        if isinstance(found, dict):
            return by_id(found, f"vocabulary is {path}")
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise ConfigError(f"vocabulary is {path}, expected a JSON list of entries, or a dict of entries and ids")
        return entries(found)
    if isinstance(given, str) and Path(given).suffix.lower() in (".json", ".txt"):
        raise ConfigError(f"vocabulary is {given!r}, the name of a file; give pathlib.Path({given!r})")
    if isinstance(given, Mapping):
        return by_id(given, "vocabulary is a dict")
    if isinstance(given, (bytes, Set)) or not isinstance(given, Iterable):
        raise wrong_type(
            "vocabulary", "a string of characters, a list of str, a dict of entries and ids, or a Path", given
        )
    found = tuple(given.tolist() if isinstance(given, np.ndarray) else given)
    for entry in found:
        if not isinstance(entry, str):
            raise TypeError(f"vocabulary has {entry!r} (type {type(entry).__name__}), must be a list of str")
        check_unicode("vocabulary", entry)
    return found


def check_unicode(name: str, text: str) -> None:
    """Raises for a text with surrogates, which are not characters."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConfigError(f"{name} has {text!r}, which is not Unicode text")


def by_id(given: Mapping[Any, Any], place: str) -> tuple[str, ...]:
    """The entries of a dict of entries and ids."""
    if sorted(map(str, given.values())) != sorted(map(str, range(len(given)))):
        raise ConfigError(f"{place}, expected each id from 0 to {len(given) - 1} once")
    return entries(sorted(given, key=lambda entry: int(given[entry])))


def text_of(file: str | PathLike[str], name: str) -> tuple[Path, str]:
    """The text of a small file of names."""
    path = Path(file)
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise ConfigError(f"{name} is {path} of {size} bytes, at most {LARGEST_FILE} are read")
    try:
        return path, path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is {path}, which is not UTF-8") from error


def read_json(path: Path, text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is {path}, which is not JSON: {error}") from error


def class_names(classes: Classes, column: str | None) -> list[str] | None:
    """The names in a list or in a file; None if there is neither."""
    is_file = isinstance(classes, str) and classes not in ("schema", "data")
    if column is not None and not (is_file and Path(str(classes)).suffix.lower() in (".csv", ".tsv")):
        raise ConfigError(f"classes_column is {column!r}, which needs classes, a .csv or .tsv file; found {classes!r}")
    if classes is None or (isinstance(classes, int) and not isinstance(classes, bool)):
        return None
    if not isinstance(classes, (str, tuple)):
        raise TypeError(
            f"classes is {classes!r} (type {type(classes).__name__}), must be a list of names, a file, a number, "
            '"schema" or "data"'
        )
    if isinstance(classes, Sequence) and not isinstance(classes, str):
        for name in classes:
            if not isinstance(name, str):
                raise TypeError(f"classes has {name!r} (type {type(name).__name__}), must be a list of str")
            check_unicode("classes", name)
        return list(classes)
    if not is_file:
        return None
    path = Path(str(classes))
    try:
        is_there = path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null
        is_there = False
    if not is_there:
        raise ConfigError(
            f'classes is {classes!r}, must be a file, a list of names, a number, "schema" or "data"; there is no '
            "file of this name"
        )
    path, text = text_of(path, "classes")
    suffix = path.suffix.lower()
    if suffix == ".json":
        return of_json(path, text)
    if suffix in (".csv", ".tsv"):
        return of_table(path, text, column)
    # str.splitlines would also split at characters that a name may have.
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line]


def of_json(path: Path, text: str) -> list[str]:
    found = read_json(path, text, "classes")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"classes is {path}, expected a JSON list of names")
    return found


def of_table(path: Path, text: str, column: str | None) -> list[str]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="," if path.suffix.lower() == ".csv" else "\t")
    try:
        header = next(rows, [])
        if not header:
            raise ConfigError(f"classes is {path}, which is empty; expected a header and a name on each line")
        if column is None and len(header) != 1:
            raise ConfigError(f"classes is {path} with the columns {', '.join(header)}; name one with classes_column=")
        if column is not None and column not in header:
            raise ConfigError(f"classes_column is {column!r}; {path} has the columns {', '.join(header)}")
        at = 0 if column is None else header.index(column)
        found = []
        for number, row in enumerate(rows, 2):
            if row and len(row) <= at:
                raise ConfigError(f"classes is {path}, whose line {number} has {len(row)} fields, not {len(header)}")
            found += row[at : at + 1]
    except csv.Error as error:
        raise ConfigError(f"classes is {path}, which is not a table: {error}") from error
    return found
