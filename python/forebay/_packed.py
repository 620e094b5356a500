"""`Packed`: the packed rows of one pass over documents, stored once, with random access."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forebay._checks import as_place, truth
from forebay._core import ConfigError, StateError, TokenLoader
from forebay._jagged import JaggedArray
from forebay.cache._metadata import LEDGER
from forebay.cache.building import build
from forebay.cache.datasets import AsyncDataset, Document, _Field, _rows
from forebay.cache.store import TreeStore

_OF_A_PASS = "Packed has the rows of one whole pass; leave it out"
_FIXED = {
    "rank": f"{_OF_A_PASS}, and divide the rows in forebay.cache.DataLoader",
    "world_size": f"{_OF_A_PASS}, and divide the rows in forebay.cache.DataLoader",
    "infinite": f"{_OF_A_PASS}, and read its rows as often as you like",
    "max_documents": "the cu_seqlens of a row have as many entries as it has documents, and one; leave it out",
}
"""Parameters of `TokenLoader` that make no sense here, and what to do."""
_BESIDE = ("doc_ids", "position_ids", "source", "weights", "cu_seqlens", "documents")
"""The other fields, in the order of a batch."""
_NAMES = {
    "crop": "fit",
    "fingerprint": "fingerprint of the files",
    "global_batch_size": "batch_size",
    "tokenizer": "fingerprint of the tokenizer",
}
"""Entries of a state, as users know them."""
_SENTINELS = ("fim_tokens", "fim_prefix, fim_middle, fim_suffix")
"""An entry of a state, also behind the name of a source, and its parameters."""
_MADE_BY = "forebay.text.Packed "


class Packed(AsyncDataset):
    """The rows of one pass of packing as a dataset: `len(rows)`, `rows[i]`, `rows.get_batch([3, 1])`.

    The first call packs the documents and writes the rows to the folder `path`, into its subfolder `split`; later
    calls with the same sources and parameters open it. So rows can be shuffled over all documents in each epoch, as
    by `forebay.cache.PermutationDataset(rows, seed)`, and looked at. `forebay.cache.DataLoader` makes batches of them
    on several ranks, with exact resume; `torch.utils.data.DataLoader` takes it as a map-style dataset.

    `sources`, `tokenizer` and `parameters` are those of `forebay.TokenLoader`, and the rows are those of its first
    finite pass on one rank, with the same numbers. (It is epoch 0, which matters with `seed`, `fim` and `bpe_dropout`.)
    A row is a dict of arrays: `inputs` and `targets` `[seq_len]` of type `dtype`, `weights` if a source has some, and
    the `extras`, as of a batch of this row alone. `rank`, `world_size`, `infinite` and `max_documents` are no
    parameters. Pairs are not packed.

    A row takes 4 bytes a token on the disk, 2 with `dtype="uint16"`, and 4 more for each target where targets may be
    -100; `compression="zstd"` takes less. A build that ended early goes on with the same call after its last commit.
    If files or parameters differ from those of the folder, `StateError` names the difference; `overwrite=True` makes
    it again. Files that forebay did not write are neither replaced nor removed. Build in one process before others
    open the folder.

    Raises `ConfigError` as `TokenLoader` does, and for a pass without any row.
    """

    def __init__(
        self,
        sources: Any,
        tokenizer: Any = None,
        path: str | PathLike[str] | None = None,
        *,
        split: Literal["train", "val"] = "train",
        dtype: Literal["int64", "int32", "uint16"] = "int64",
        extras: Sequence[str] | None = None,
        compression: str = "none",
        overwrite: bool = False,
        progress: bool | None = None,
        **parameters: Any,
    ) -> None:
        if path is None:
            raise TypeError("path is missing: the folder in which the rows are stored")
        for name in parameters:
            if name in _FIXED:
                raise ConfigError(f"{name} is given, but {_FIXED[name]}")
        folder = as_place("path", path)
        truth("overwrite", overwrite)
        # What is stored; a row is converted when it is read.
        stored = "uint16" if dtype == "uint16" else "int32"
        given: Any = parameters | {"dtype": stored if dtype == "int64" else dtype, "extras": extras}
        with TokenLoader(sources, tokenizer, split=split, infinite=False, **given) as loader:
            if loader._is_paired:
                raise ConfigError("forebay.text.Pairs are not packed: each has two rows of its own; use TokenLoader")
            blocks = _Blocks(loader, [stored, *sorted(extras or ())])
            # A block is one "document" for the build, so that a resumed one skips whole batches.
            try:
                build(
                    {"rows": _Pass(loader)},
                    blocks,
                    folder,
                    split=split,
                    batch_size=1,
                    order="concat",
                    n_workers=1,
                    compression=compression,
                    overwrite=overwrite,
                    progress=progress,
                )
            except StateError as error:
                if told := blocks.differences(folder / split / LEDGER):
                    hint = "pass overwrite=True to make them again, or another path"
                    raise StateError(f"the rows in {folder / split} are of other parameters: {told}; {hint}") from error
                raise
        self._open(str(folder), split, dtype)

    def _open(self, path: str, split: str, dtype: str) -> None:
        self._place = (path, split, dtype)
        self._dtype = np.dtype(dtype)
        self._store = TreeStore(path, split)
        if not len(self._store):
            raise ConfigError(f"{self._store.folder} has no rows")
        # Rows differ in their numbers of documents.
        self._known_fields = [
            (name, value.dtype.name, value.ndim, None if name in ("cu_seqlens", "documents") else list(value.shape))
            for name, value in self[0].items()
        ]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._store)

    def get_batch(self, indices: ArrayLike) -> list[Document]:
        """Returns the rows at `indices`, in this order; an index may be repeated."""
        rows, n = _rows(indices), len(self)
        if beyond := rows[(rows < 0) | (rows >= n)].tolist():
            raise IndexError(f"row {beyond[0]} is requested, but there are {n} rows, from 0 on")
        return [self._row(stored) for stored in self._store.get_batch(rows.tolist())]

    def _row(self, stored: Document) -> Document:
        tokens = stored.pop("tokens").astype(self._dtype)
        beside = {name: stored[name] for name in _BESIDE if name in stored}
        if "targets" in stored:
            return {"inputs": tokens, "targets": stored["targets"].astype(self._dtype), **beside}
        return {"inputs": tokens[:-1], "targets": tokens[1:], **beside}

    def _field_tuples(self) -> list[_Field] | None:
        return self._known_fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._place

    def __repr__(self) -> str:
        seq_len = len(self[0]["inputs"])
        return f"<forebay.text.Packed: {len(self)} rows of {seq_len} tokens in {self._store.folder}>"


def _opened(path: str, split: str, dtype: str) -> Packed:
    made = Packed.__new__(Packed)
    made._open(path, split, dtype)
    return made


class _Pass:
    """The batches of the first pass of a loader, however often it is iterated."""

    def __init__(self, loader: TokenLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        self._loader.set_epoch(0)
        return iter(self._loader)


class _Blocks:
    """The processor: makes rows of a batch."""

    def __init__(self, loader: TokenLoader, stored: list[str]) -> None:
        state = loader.state_dict()
        self._has_ignored = loader._has_ignored
        parameters = state["config"] | state["data"]
        self._made_of = {_NAMES.get(name, name): value for name, value in parameters.items()} | {"fields": stored}
        self.fingerprint = f"{_MADE_BY}{json.dumps(self._made_of, sort_keys=True)}"

    def differences(self, ledger: Path) -> str:
        """The parameters that differ from those of the rows in a folder; empty if they are not of `Packed`."""
        if not ledger.is_file():
            return ""
        found = json.loads(ledger.read_bytes()).get("metadata", {}).get("preprocessor_metadata", {})
        made_by = str(found.get("processor"))
        if not made_by.startswith(_MADE_BY):
            return ""
        there = json.loads(made_by.removeprefix(_MADE_BY))
        names = sorted({*there, *self._made_of})
        return ", ".join(
            f"{name.replace(*_SENTINELS)} was {there.get(name)!r} and is {self._made_of.get(name)!r}"
            for name in names
            if there.get(name) != self._made_of.get(name)
        )

    def __call__(self, batches: list[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any] | JaggedArray]:
        [batch] = batches
        rows = dict(batch)
        inputs, targets = rows.pop("inputs"), rows.pop("targets")
        n, seq_len = inputs.shape
        made: dict[str, NDArray[Any] | JaggedArray] = {}
        if self._has_ignored:
            made |= {"tokens": inputs, "targets": targets}
        else:
            made["tokens"] = np.concatenate([inputs, targets[:, -1:]], axis=1)
        starts = rows.pop("cu_seqlens", None)
        parts = rows.pop("documents", None)
        made |= rows
        if starts is not None:
            made["cu_seqlens"] = JaggedArray.from_rows(_starts(starts, n, seq_len))
        if parts is not None:
            made["documents"] = JaggedArray.from_rows(_parts(parts, n))
        return made


def _starts(starts: NDArray[np.int32], n: int, seq_len: int) -> list[NDArray[np.int32]]:
    """The starts of documents in each of the `n` rows; each row begins with one."""
    begins = np.searchsorted(starts, np.arange(n + 1) * seq_len)
    return [
        np.append(starts[begin:end] - row * seq_len, np.int32(seq_len)).astype(np.int32)
        for row, (begin, end) in enumerate(pairwise(begins))
    ]


def _parts(parts: NDArray[np.int64], n: int) -> list[NDArray[np.int64]]:
    """The parts of documents in each of the `n` rows, as of a batch of this row alone."""
    begins = np.searchsorted(parts[:, 0], np.arange(n + 1))
    alone = parts.copy()
    alone[:, 0] = 0
    return [alone[begin:end] for begin, end in pairwise(begins)]
