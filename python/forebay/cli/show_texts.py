"""`forebay show` of texts: the rows of a packed batch, each token in the color of its document.

The rows are those of the first batch of a `TokenLoader` with a seed, in one pass, so that no document comes twice.
"""

import argparse
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._core import ConfigError, Tokenizer, TokenLoader
from forebay._files import write_new
from forebay.cli import texts
from forebay.cli.common import counted, out_of, size
from forebay.cli.show_page import Table, Token, TokenRow, packed

__all__ = ["BOTH", "OPTIONS", "add", "run"]

OPTIONS = texts.PACKING
"""The options for texts of `forebay show`."""
BOTH = ("output", "rows", "seed")
"""Those for texts and recordings."""
SEQ_LEN = 512
MOST_TOKENS = 1 << 17
"""The most tokens of a page: each has about 50 bytes of it."""
MOST_PARTS = 40
"""The most documents of a row that are listed."""
MOST_IDS = 5
"""The most tokens of a character, before its bytes are shown as they are."""
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""The categories of characters that show nothing, or change how others are shown."""
SEEN = {"\n": "↵\n", "\t": "⇥\t"}
UNKNOWN = "\ufffd"


def add(group: argparse._ArgumentGroup) -> None:
    """Adds the options."""
    texts.add_packing(group, SEQ_LEN)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Writes the page."""
    parameters = texts.packing(options, SEQ_LEN)
    sides = ("chosen", "rejected") if options.kind == "pairs" else ("",)
    if len(sides) * options.rows * parameters["seq_len"] > MOST_TOKENS:
        raise ConfigError(
            f"--rows {options.rows} of --seq-len {parameters['seq_len']} have "
            f"{len(sides) * options.rows * parameters['seq_len']} tokens, must be at most {MOST_TOKENS} together"
        )
    loader = texts.loaded(
        options, **parameters, batch_size=options.rows, seed=options.seed, infinite=False, n_workers="auto",
        extras=["documents", "doc_ids"],
    )  # fmt: skip
    tokenizer = None if options.tokenizer is None else texts.tokenizer_of(options)
    with loader:
        batch = first_batch(loader)
        files = [visible(Path(shard["path"]).name) for shard in loader.shards]
        special = {loader.bos_id, loader.eos_id}
        facts, n_rows = texts.files_line(loader.shards), loader.num_documents
    n = len(batch["inputs"]) // len(sides)
    # Both rows of a pair together.
    rows = [
        drawn(batch, side * n + row, files, tokenizer, special, f"{name}, " if name else "")
        for row in range(n)
        for side, name in enumerate(sides)
    ]
    facts += f"; rows of {parameters['seq_len']} inputs and the last target, fit {parameters.get('fit', 'drop')}"
    page = packed(visible(", ".join(map(str, options.files))), facts, tables(rows), rows)
    write_new(options.output, page.encode(errors="replace"))
    out_of(options).write(f"{counted(len(rows), 'row')} in {options.output}, {size(len(page))}\n")
    shown = [
        {
            "row": row.row, "documents": len(row.lengths), "tokens": sum(row.lengths), "trained": row.n_trained,
            "padding": row.n_padding,
        }
        for row in rows
    ]  # fmt: skip
    return 0, {"path": str(options.output), "rows": n_rows, "shown": shown, "recipe": None}


def first_batch(loader: TokenLoader) -> dict[str, NDArray[Any]]:
    """The first batch; raises `ConfigError` if there is none."""
    try:
        return next(iter(loader))
    except ConfigError as error:
        raise ConfigError(str(error).replace("lower seq_len", "lower --seq-len")) from error


def drawn(
    batch: Mapping[str, NDArray[Any]],
    row: int,
    files: Sequence[str],
    tokenizer: Tokenizer | None,
    special: set[int | None],
    before: str = "",
) -> TokenRow:
    """A row of a batch; `before` is what its title begins with."""
    inputs, targets, doc_ids = (batch[name][row].tolist() for name in ("inputs", "targets", "doc_ids"))
    parts = batch["documents"][batch["documents"][:, 0] == row].tolist()
    ids, seq_len = inputs, len(inputs)
    is_trained = [False, *(target >= 0 for target in targets)]
    n_begun = sum(column < seq_len for _, column, *_ in parts)
    end = sum(number < n_begun for number in doc_ids)
    if end == seq_len and targets[-1] >= 0:
        ids, end = [*inputs, targets[-1]], seq_len + 1
    # A document of which only the last target is in the row is not shown if that is masked.
    parts = [part for part in parts if part[1] < end]
    bounds = [*(part[1] for part in parts), end]
    tokens: list[Token] = []
    facts = {}
    for number, (_, column, shard, _, at, first) in enumerate(parts):
        begin, stop = column, bounds[number + 1]
        tokens += pieces(tokenizer, ids[begin:stop], is_trained[begin:stop], number, special)
        if number < MOST_PARTS:
            more = " (continued)" if first > 1 else ""
            facts[f"document {number}"] = f"{files[shard]}, row {at}{more}, {counted(stop - begin, 'token')}"
    if len(parts) > MOST_PARTS:
        facts["more"] = counted(len(parts) - MOST_PARTS, "document")
    lengths = [b - a for a, b in pairwise(bounds)]
    n_padding = seq_len - end if end < seq_len else 0
    if n_padding:
        tokens.append(Token(f" {n_padding} x padding ", f"id {inputs[-1]}", None))
    n_trained = sum(is_trained)
    counts = f"{counted(len(parts), 'document')}, {counted(end, 'token')}"
    title = f"{before}{counts}, {n_padding} padding, {n_trained} trained on"
    return TokenRow(row, title, tokens, lengths, n_padding, n_trained, facts)


def pieces(
    tokenizer: Tokenizer | None, ids: Sequence[int], is_trained: Sequence[bool], document: int, special: set[int | None]
) -> Iterator[Token]:
    """The tokens of a document; those of one character are one piece."""
    begin = known = 0
    for at in range(1, len(ids) + 1):
        is_special = ids[at - 1] in special
        is_bound = at == len(ids) or is_special or ids[at] in special or is_trained[at] != is_trained[at - 1]
        text = plain(tokenizer, ids[known:at], ids[known:begin])
        if text is None:
            if not is_bound and at - begin < MOST_IDS:
                continue
            text = UNKNOWN
        own = ids[begin:at]
        title = f"id {own[0]}" if len(own) == 1 else f"ids {' '.join(map(str, own))}"
        yield Token(
            visible(text) or f"\u27e8{' '.join(map(str, own))}\u27e9", title, document,
            is_trained=is_trained[at - 1], is_first=begin == 0, is_special=is_special or not text,
        )  # fmt: skip
        # The text of a token may depend on the one before it, as a space in front of a word does.
        known, begin = (at if is_special or text.endswith(UNKNOWN) else begin), at


def plain(tokenizer: Tokenizer | None, ids: Sequence[int], before: Sequence[int]) -> str | None:
    """The text that `ids` have after those of `before`, their beginning; none if it ends within a character."""
    if tokenizer is None:
        return " ".join(map(str, ids[len(before) :])) + " "
    told, whole = decoded(tokenizer, before) if before else "", decoded(tokenizer, ids)
    if whole.endswith(UNKNOWN) or not whole.startswith(told):
        return None
    return whole[len(told) :]


def decoded(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of ids; those that are no tokens, such as a BOS beside the vocabulary, have none."""
    try:
        return tokenizer.decode(ids)
    except ConfigError:
        return tokenizer.decode([one for one in ids if is_token(tokenizer, one)])


def is_token(tokenizer: Tokenizer, number: int) -> bool:
    """Whether the tokenizer has a token of this id."""
    try:
        tokenizer.decode([number])
    except ConfigError:
        return False
    return True


def visible(text: str) -> str:
    """A text in which characters that show nothing, or change others, are seen."""
    return "".join(
        SEEN.get(char) or (f"\\u{ord(char):04x}" if unicodedata.category(char) in HIDDEN else char) for char in text
    )


def tables(rows: Sequence[TokenRow]) -> list[Table]:
    """What the rows are made of, and the lengths of the documents in them."""
    n_padding = sum(row.n_padding for row in rows)
    n_tokens, n_trained = sum(sum(row.lengths) for row in rows), sum(row.n_trained for row in rows)
    counts = {"trained on": n_trained, "not trained on": n_tokens - n_trained, "padding": n_padding}
    lengths = np.array([length for row in rows for length in row.lengths])
    edges = [1 << at for at in range(int(lengths.max()).bit_length())]
    spans = {f"{edge} to {2 * edge - 1}": int(((lengths >= edge) & (lengths < 2 * edge)).sum()) for edge in edges}
    spans = {name: n for name, n in spans.items() if n}
    return [Table("Tokens of these rows", counts), Table("Documents of these rows, by tokens", spans)]
