"""Conversations through `TokenLoader`: rows of ids and masks, resume, and ranks."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from digests import digest
from forebay.text import Chat

PARAMETERS: dict[str, Any] = {
    "batch_size": 1,
    "seq_len": 1023,
    "buffer_size": 1,
    "tokenizer_batch_size": 1,
    "n_workers": 2,
    "infinite": False,
    "fit": "pad",
    "extras": ["documents", "cu_seqlens"],
    "val": [],
}
BOS = 0


def write(path: Path, conversations: list[Any], tools: list[Any] | None = None) -> Path:
    rows = [{"id": at, "messages": one, "tools": tools and tools[at]} for at, one in enumerate(conversations)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def rows_of(found: forebay.TokenLoader) -> dict[int, tuple[list[int], list[bool]]]:
    """The tokens of each row, and whether each is trained on; of the first it is unknown.

    Rows whose last token is only a target are left out, since padding may look the same.
    """
    made = {}
    for batch in found:
        starts = batch["cu_seqlens"].tolist()
        inputs, targets = batch["inputs"].reshape(-1).tolist(), batch["targets"].reshape(-1).tolist()
        for row, column, _, _, in_shard, start in batch["documents"].tolist():
            begin = row * PARAMETERS["seq_len"] + column
            end = next(at for at in starts if at > begin)
            assert start == 1
            if end == len(inputs):
                continue
            trained = [False, *(target != -100 for target in targets[begin : end - 1])]
            assert all(t in (i, -100) for i, t in zip(inputs[begin + 1 : end], targets[begin : end - 1], strict=True))
            made[in_shard] = (inputs[begin:end], trained)
    return made


def loaded(source: Chat, tokenizer: Any, **parameters: Any) -> dict[int, tuple[list[int], list[bool]]]:
    with forebay.TokenLoader(source, tokenizer, **PARAMETERS | {"bos_id": BOS} | parameters) as found:
        made = rows_of(found)
        assert found.errors() == []
    return made


def exact(
    loader: Callable[..., forebay.TokenLoader], n: int, halves: int = 1
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first n batches, of 4 rows for each of so many halves, and the states around them.

    A loader resumed before any of them continues with the same bytes, by 1, 2, or 8 workers; those of two ranks are
    parts of them.
    """
    made, states = [], []
    with loader(n_workers=1) as whole:
        states.append(whole.state_dict())
        for batch in itertools.islice(whole, n):
            made.append(batch)
            states.append(json.loads(json.dumps(whole.state_dict())))
    digests = [digest(batch) for batch in made]
    for at in range(n):
        with loader(n_workers=(1, 2, 8)[at % 3]) as resumed:
            resumed.load_state_dict(states[at])
            assert [digest(batch) for batch in itertools.islice(resumed, n - at)] == digests[at:]
    ranks = []
    for rank in range(2):
        with loader(batch_size=2, rank=rank, world_size=2) as of_rank:
            ranks.append(list(itertools.islice(of_rank, n)))
    for batch, *parts in zip(made, *ranks, strict=True):
        for name in ("inputs", "targets", "doc_ids"):
            joined = np.concatenate([part[name].reshape(halves, 2, -1) for part in parts], axis=1)
            np.testing.assert_array_equal(joined.reshape(4 * halves, -1), batch[name])
    return made, states
