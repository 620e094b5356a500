"""Files from before the queue: `{data_dir}/{split}_batches_####.pt`, read in a cycle, never removed.

A file is a dict of tensors, usually x and y, with all rows of its batches, and small metadata. The tensors
determine its schema.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from forebay._core import ConfigError
from forebay.queue.feed import Loaded
from forebay.queue.files import Layout, move, patiently, synced
from forebay.queue.meta import Field, compare, few
from forebay.queue.tensors import CorruptFileError, Tensors, check_tensors, describe, own, read, save

_log = logging.getLogger("forebay.queue")

_NAME = re.compile(r"(.+)_batches_(\d+)\.pt", re.ASCII)


def split_of(name: str) -> str | None:
    """The split of a legacy file with this name; None if the name is not of such a file."""
    match = _NAME.fullmatch(name)
    return match[1] if match and not set(name) & set("/\\\0") else None


def list_legacy_files(data_dir: Path, split: str | None = None) -> list[str]:
    """The names of a split's files, or of all files, in the order of their numbers."""
    found = [
        (match[1], int(match[2]), entry.name)
        for entry in (data_dir.iterdir() if data_dir.is_dir() else ())
        if (match := _NAME.fullmatch(entry.name)) and split in (None, match[1])
    ]
    return [name for _, _, name in sorted(found)]


class LegacyFeed:
    """The files of a split in a cycle; corrupt files are skipped."""

    def __init__(self, data_dir: Path, split: str, pin: bool) -> None:
        self.schema = legacy_schema(data_dir, split)
        self.batch_size: int | None = None
        self._last: str | None = None
        self.folder = data_dir
        self._split = split
        self._pin = pin

    def next_file(self) -> Loaded:
        """The next file; raises `ConfigError` if no file can be read, or if the next file has another schema."""
        names = list_legacy_files(self.folder, self._split)
        first = names.index(self._last) + 1 if self._last in names else 0
        for name in names[first:] + names[:first]:
            try:
                loaded = patiently(lambda name=name: self.load(name))  # type: ignore[misc]
            except FileNotFoundError:
                _log.warning("%s: %s was removed before it was read", self._split, name)
                continue
            except CorruptFileError as error:
                _log.warning("%s: %s is corrupt and skipped: %s", self._split, name, error)
                continue
            return loaded
        raise ConfigError(f"none of {len(names)} files {self._split}_batches_*.pt in {self.folder} can be read")

    def load(self, name: str) -> Loaded:
        """Reads and checks one file."""
        path = self.folder / name
        content = read(path)
        tensors = _tensors_of(content)
        rows = check_tensors(tensors, path)
        if not rows:
            raise CorruptFileError("it has no rows")
        found = {name: (field["dtype"], field["shape"]) for name in tensors if (field := describe(name, tensors[name]))}
        expected = {field["name"]: (field["dtype"], field["shape"]) for field in self.schema}
        if wrong := compare(found, expected):
            message = f"{path} has another schema than the first file of its split: {few(wrong)}"
            _log.warning("%s", message)
            raise ConfigError(message)
        metadata = content.get("metadata")
        batch_size = metadata.get("batch_size") if isinstance(metadata, dict) else content.get("batch_size")
        owned = {name: own(tensor, self._pin) for name, tensor in tensors.items()}
        size = batch_size if isinstance(batch_size, int) and batch_size > 0 else None
        self._last = name
        return Loaded(name, owned, rows, size, self._pin).cut_ahead(self.batch_size)


def legacy_schema(data_dir: Path, split: str) -> list[Field]:
    """The schema of the first readable file of a split."""
    for name in list_legacy_files(data_dir, split):
        try:
            tensors = _tensors_of(read(data_dir / name))
            check_tensors(tensors, data_dir / name)
        except CorruptFileError:
            continue
        return [describe(name, tensor) for name, tensor in tensors.items()]
    raise ConfigError(f"{data_dir} has no readable file {split}_batches_*.pt")


def _tensors_of(content: Any) -> Tensors:
    if not isinstance(content, dict):
        raise CorruptFileError(f"it holds a {type(content).__name__}, not a dict")
    return {name: value for name, value in content.items() if isinstance(value, torch.Tensor) and value.ndim}


def write_legacy_file(
    data_dir: str | Path, split: str, number: int, tensors: Tensors, metadata: Mapping[str, Any]
) -> Path:
    """Writes `{split}_batches_{number:04d}.pt` atomically, replacing an existing file."""
    Layout(Path(data_dir)).name(split)
    path = Path(data_dir) / f"{split}_batches_{number:04d}.pt"
    temporary = path.with_name(f".tmp-{path.name}")
    with synced(temporary) as file:
        save(file, {**tensors, "metadata": dict(metadata)})
    move(temporary, path)
    return path
