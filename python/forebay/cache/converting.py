"""`convert`: makes a cache of forebay of one that another program wrote."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from forebay._checks import as_path, as_place
from forebay._core import ConfigError, StateError
from forebay._jagged import JaggedArray
from forebay.cache._metadata import LEDGER
from forebay.cache.building import build
from forebay.cache.foreign import ForeignDataset
from forebay.cache.store import TreeStore

# Values of documents that are read and written together, about.
_BATCH_BYTES = 2 << 20
# The most documents that are read and written together.
_BATCH_DOCUMENTS = 4096


def convert(
    source: str | PathLike[str],
    path: str | PathLike[str],
    *,
    splits: Sequence[str] | None = None,
    fields: Sequence[str] | Mapping[str, Any] | None = None,
    n_workers: int | None = None,
    compression: str = "none",
    overwrite: bool = False,
    commit_seconds: float = 10.0,
    commit_documents: int = 8192,
    progress: bool | None = None,
) -> dict[str, TreeStore]:
    """Makes a cache of forebay in the folder `path` of the cache in `source`, which another program wrote.

    Returns the finished caches by split. Each has the documents of the source in the same order, with the same
    names and types; a field of single numbers has the shape `[1]` in each document. `splits` names the splits to
    convert; None: all folders of `source` with a ledger. `fields` names the fields to keep, as in `build`, as a
    list, or as a dict with types: `{"input_ids": "uint16"}` halves int32 ids. Needs `pip install tensorstore`, or
    zarr, which is slower.

    `build` writes the cache, and the other parameters are its own: a conversion that ended early resumes at its
    last commit by the same call, a finished one is opened, and files that are not those of a cache of forebay are
    neither replaced nor removed.

    Raises `FileNotFoundError` if there is no cache in `source`, `StateError` if one is not finished, `ConfigError` if
    `path` is the source.
    """
    origin, target = as_path("source", source), as_place("path", path)
    names = _splits(origin) if splits is None else _named(splits)
    datasets = {name: ForeignDataset(origin, name) for name in names}
    for name, dataset in datasets.items():
        folder = (target / name).resolve()
        if folder.is_relative_to(dataset.folder) or dataset.folder.is_relative_to(folder):
            raise ConfigError(
                f"path is {str(target)!r}, whose split {name!r} is in the source or holds it; choose another"
            )
        if not dataset.final_length_is_known():
            raise StateError(
                f"the cache {dataset.folder} is not finished: convert it when it is; ForeignDataset reads a growing one"
            )
    found = {}
    for name, dataset in datasets.items():
        blocks = _Blocks(dataset)
        # A block is one "document" for the build, so that a resumed one skips whole blocks.
        found[name] = build(
            {"blocks": range(-(-len(dataset) // blocks.documents))},
            blocks,
            target,
            split=name,
            fields=fields,
            batch_size=1,
            order="concat",
            n_workers=n_workers,
            compression=compression,
            overwrite=overwrite,
            commit_seconds=commit_seconds,
            commit_documents=commit_documents,
            progress=progress,
        )
    return found


def _splits(source: Path) -> list[str]:
    """The folders of `source` that have a ledger."""
    found = sorted(folder.name for folder in source.iterdir() if (folder / LEDGER).is_file())
    if not found:
        hint = f"; it is itself a split: give {str(source.parent)!r}" if (source / LEDGER).is_file() else ""
        raise FileNotFoundError(f"no folder of {source} has a {LEDGER}, so there is no cache{hint}")
    return found


def _named(splits: Sequence[str]) -> list[str]:
    if isinstance(splits, str):
        raise TypeError(f"splits is the string {splits!r}, expected a list of names")
    return list(splits)


class _Blocks:
    """The processor: reads blocks of documents by number."""

    def __init__(self, dataset: ForeignDataset) -> None:
        n, n_bytes = len(dataset), dataset._n_bytes()
        self._dataset = dataset
        self.documents = max(1, min(_BATCH_DOCUMENTS, _BATCH_BYTES * n // max(n_bytes, 1)))
        ledger = hashlib.sha256((dataset.folder / LEDGER).read_bytes()).hexdigest()
        content = json.dumps([n, n_bytes, self.documents, ledger])
        self.fingerprint = f"forebay.cache.convert {dataset.folder} {content}"

    def __call__(self, blocks: list[int]) -> dict[str, JaggedArray]:
        n = len(self._dataset)
        rows = [np.arange(block * self.documents, min((block + 1) * self.documents, n)) for block in blocks]
        return dict(self._dataset._read(np.concatenate(rows)))
