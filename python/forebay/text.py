"""Sources of text for `forebay.TokenLoader`.

>>> from forebay import text
>>> text.Documents("web/*.jsonl.zst", column="content")
Documents(path='web/*.jsonl.zst', column='content')
>>> text.Ids("tokenised/")
Ids(path='tokenised/')

Objects are frozen dataclasses; each checks its parameters when it is made.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from forebay._core import _TextRows
from forebay._part import _Part, part

__all__ = ["Documents", "Ids"]


def __dir__() -> list[str]:
    return __all__


_Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@part
class _TextPart(_Part):
    """What all sources share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _TextRows: ...

    def __post_init__(self) -> None:
        self._check_by(_TextRows)


@part
class Documents(_TextPart):
    """Texts, one in each row of `column`, which the loader's tokenizer encodes.

    `path`: a file, a folder, a pattern or a list of these, of one format: Parquet (`.parquet`), Arrow (`.arrow`, as
    `save_to_disk` writes it), JSON lines (`.jsonl`) or text (`.txt`, a document in each line). The last two may end
    in `.gz` or `.zst`, too. In JSON lines points in `column` separate the names of nested fields. Text has no
    columns.

    A bare path in place of the object is the same with `column="text"`.
    """

    path: _Files
    column: str = "text"


@part
class Ids(_TextPart):
    """Lists of token ids, one in each row, so that the loader needs no tokenizer.

    `path`: a file, a folder, a pattern or a list of these, of one format: Parquet with a `column` of lists of
    integers; `.bin` with its `.idx` beside it, as Megatron-LM writes them (either names both), a row for each
    document; or `.npy`, a row for each row of an array of two dimensions, or one for all of an array of one. Only
    Parquet has columns.

    Each list gets the loader's BOS and EOS, unless it begins and ends with them; `bos_id=` or a tokenizer says which
    they are. Ids are 0 to 2^31 - 1; a list with another number, or a null, is a bad row.
    """

    path: _Files
    column: str = "input_ids"
