"""Text for language models: tokenizers, and iterators over the documents of Parquet files.

>>> from forebay.tokens import Tokenizer, parquets_iter_batched
>>> for texts in parquets_iter_batched("train", data_dir="shards"):  # doctest: +SKIP
...     ids = Tokenizer("gpt2.tiktoken").encode_batch(texts, n_threads=2)

Files of folders and patterns are sorted by path, numbers by value; a list keeps its order. The last file is the
split "val", all others are "train", unless `val=` names the files for validation. In folders and patterns, a
file whose name ends in `.tmp` is still being written and is left out.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from forebay._core import ConfigError, StateError, Tokenizer, _parquet_files, _ParquetText, _shards

__all__ = ["Tokenizer", "base_data_dir", "document_batches", "list_parquet_files", "parquets_iter_batched"]


def __dir__() -> list[str]:
    return __all__


Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Position: TypeAlias = tuple[int, int, int]


def base_data_dir() -> Path:
    """The folder of shards from `forebay download`: `forebay/base_data` in the user's cache folder."""
    home = Path.home()
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        cache = cache if cache.is_absolute() else home / ".cache"
    return cache / "forebay" / "base_data"


def list_parquet_files(data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Lists the `.parquet` files below a folder, as `TokenLoader` reads them; by default of `base_data_dir()`."""
    folder = os.fspath(base_data_dir() if data_dir is None else data_dir)
    os.scandir(folder).close()  # raises unless it is a folder
    return _shards("data_dir", folder, "documents")


def parquets_iter_batched(
    split: str,
    start: int = 0,
    step: int = 1,
    *,
    data_dir: Files | None = None,
    val: str | Sequence[str] | None = None,
    text_column: str = "text",
) -> Iterator[list[str]]:
    """Yields lists of texts, one per row group `start`, `start + step`, ... of each file of a split, in one pass.

    Nulls are left out. `data_dir` is a file, a folder, a pattern or a list of these, by default `base_data_dir()`.
    `val` gives the files for validation by name, path or pattern, by default the last file. To divide the row
    groups among ranks, pass `start=rank, step=world_size`.

    Raises `ConfigError` for a split without files or a file without the column, `DecodeError` for text that
    is not UTF-8 or a damaged row group.
    """
    problems = _not_at_least(0, start=start) + _not_at_least(1, step=step)
    if problems:
        raise ConfigError("; ".join(problems))
    source = _open(data_dir, split, val, text_column)
    return (
        source.texts(file, row_group)
        for file, n_row_groups in enumerate(source.row_groups())
        for row_group in range(start, n_row_groups, step)
    )


def document_batches(
    split: str,
    resume_state_dict: Mapping[str, Any] | None = None,
    tokenizer_batch_size: int = 128,
    *,
    rank: int = 0,
    world_size: int = 1,
    stride: Literal["file", "global"] | None = None,
    data_dir: Files | None = None,
    val: str | Sequence[str] | None = None,
    text_column: str = "text",
) -> Iterator[tuple[list[str], Position]]:
    """Yields `(texts, (pq_idx, rg_idx, epoch))` endlessly: up to `tokenizer_batch_size` texts, and their position.

    `pq_idx` counts the files of the split, `rg_idx` the row groups of the file, both from 0; epochs count
    from 1. Every epoch has the same order. A rank gets the row groups `rank`, `rank + world_size`, ... of
    every file (`stride="file"`), or of all files concatenated (`stride="global"`, the default if a file has
    fewer row groups than there are ranks).

    `resume_state_dict` is `{"pq_idx": ..., "rg_idx": ..., "epoch": ...}`. Reading continues with this rank's
    first row group after the round of `world_size` row groups that contains the given one. So the rest of
    that row group is lost, and with another world size row groups are lost or repeated; `TokenLoader` resumes
    exactly.

    Raises `ConfigError` for a split without files, without documents, or with fewer row groups than ranks,
    `StateError` for a state that does not belong to the files, `DecodeError` as `parquets_iter_batched` does.
    """
    problems = _not_at_least(1, tokenizer_batch_size=tokenizer_batch_size, world_size=world_size)
    problems += _not_at_least(0, rank=rank)
    if not problems and rank >= world_size:
        problems.append(f"rank is {rank}, expected less than world_size, which is {world_size}")
    if stride not in (None, "file", "global"):
        problems.append(f"stride is {stride!r}, expected 'file' or 'global'")
    if problems:
        raise ConfigError("; ".join(problems))
    source = _open(data_dir, split, val, text_column)
    rounds = _rounds(source.row_groups(), world_size, stride)
    epoch, at = _resumed(resume_state_dict, rounds, source.row_groups())
    return _document_batches(source, rounds, rank, epoch, at, tokenizer_batch_size)


Rounds: TypeAlias = list[list[tuple[int, int]]]
"""The row groups of an epoch in rounds: each rank reads one of a round, or none at the end of a file."""


def _document_batches(
    source: _ParquetText, rounds: Rounds, rank: int, epoch: int, at: int, size: int
) -> Iterator[tuple[list[str], Position]]:
    while True:
        is_whole, is_empty = at == 0, True
        for row_groups in rounds[at:]:
            for file, row_group in row_groups[rank : rank + 1]:
                texts = source.texts(file, row_group)
                for first in range(0, len(texts), size):
                    is_empty = False
                    yield texts[first : first + size], (file, row_group, epoch)
        if is_whole and is_empty:
            raise ConfigError(f"all texts in the row groups of rank {rank} are null")
        epoch, at = epoch + 1, 0


def _rounds(row_groups: list[int], world_size: int, stride: str | None) -> Rounds:
    by_file = [[(file, row_group) for row_group in range(n)] for file, n in enumerate(row_groups)]
    if stride == "global" or (stride is None and min(row_groups) < world_size):
        by_file = [[place for places in by_file for place in places]]
    most = max(len(places) for places in by_file)
    if most < world_size:
        what = "all files together have" if len(by_file) == 1 else "no file has more than"
        hint = "use fewer ranks" if stride != "file" else "use fewer ranks, or stride='global'"
        raise ConfigError(
            f"{what} {most} row groups, but {world_size} ranks need at least one each; {hint}, or write the files "
            "with smaller row groups"
        )
    return [places[i : i + world_size] for places in by_file for i in range(0, len(places), world_size)]


def _resumed(state: Mapping[str, Any] | None, rounds: Rounds, row_groups: Sequence[int]) -> tuple[int, int]:
    """The epoch and the round to continue with; `row_groups` has the number of row groups of each file."""
    if state is None:
        return 1, 0
    missing = [key for key in ("pq_idx", "rg_idx") if key not in state]
    if missing:
        raise StateError(f"the state lacks {' and '.join(missing)}; it has {', '.join(map(str, state)) or 'nothing'}")
    file, row_group, epoch = state["pq_idx"], state["rg_idx"], state.get("epoch", 1)
    problems = _not_at_least(0, pq_idx=file, rg_idx=row_group) + _not_at_least(1, epoch=epoch)
    if not problems and file >= len(row_groups):
        problems.append(f"pq_idx is {file}, but the split has {len(row_groups)} files")
    elif not problems and row_group >= row_groups[file]:
        problems.append(f"rg_idx is {row_group}, but file {file} has {row_groups[file]} row groups")
    if problems:
        raise StateError("the state does not belong to these files: " + "; ".join(problems))
    # Rounds are in order, so the next round is the first that begins after the position.
    following = (i for i, places in enumerate(rounds) if places[0] > (file, row_group))
    return epoch, next(following, len(rounds))


def _not_at_least(least: int, **values: object) -> list[str]:
    def fits(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return [
        f"{name} is {value!r}, expected a whole number from {least}"
        for name, value in values.items()
        if not fits(value)
    ]


def _open(data_dir: Files | None, split: str, val: str | Sequence[str] | None, text_column: str) -> _ParquetText:
    if data_dir is None:
        data_dir = base_data_dir()
        if not data_dir.is_dir():
            raise FileNotFoundError(f"{data_dir} does not exist; run `forebay download`, or pass data_dir=")
    pinned = [val] if isinstance(val, str) else val
    return _ParquetText(_parquet_files(data_dir, split, pinned), text_column)
