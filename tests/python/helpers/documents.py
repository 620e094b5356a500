"""Documents in Parquet files, and the rows that a `TokenLoader` must pack from them."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import forebay
from paths import DATA

GOLDEN = DATA / "token-golden"
RANKS = DATA / "tokens" / "gpt2.tiktoken"

BOS = 256
GROUP = 40
COUNTS = [100, 130, 90, 60]

SMALL: dict[str, Any] = {
    "batch_size": 4,
    "seq_len": 63,
    "buffer_size": 20,
    "tokenizer_batch_size": 16,
    "bos_id": BOS,
    "n_workers": 2,
}


def encode(text: str) -> list[int]:
    """A tokenizer whose ids are the bytes of the text."""
    return list(text.encode())


def document(number: int) -> str:
    """A text of 1 to 400 characters that begins with its number."""
    random_ = random.Random(number)
    length = int(min(400, max(1, random_.lognormvariate(3.5, 1.2))))
    return (f"{number}:" + "".join(random_.choices("abcdefgh ", k=length)))[:length]


def write_documents(folder: Path) -> Path:
    """Three files for training, of 100, 130 and 90 documents in row groups of 40, and one for validation."""
    for number, (count, first) in enumerate(zip(COUNTS, itertools.accumulate([0, *COUNTS]), strict=False)):
        texts = [document(first + at) for at in range(count)]
        table = pa.table({"id": list(range(count)), "text": texts})
        pq.write_table(table, folder / f"shard_{number:05}.parquet", row_group_size=GROUP, compression="zstd")
    (folder / "shard_00004.parquet.tmp").write_bytes(b"half a file")
    return folder


def loader(shards: Any, **parameters: Any) -> forebay.TokenLoader:
    return forebay.TokenLoader(shards, parameters.pop("tokenizer", encode), **SMALL | parameters)


def padded_rows(batch: dict[str, Any], pad: int) -> list[list[int]]:
    """The rows of a batch of `fit="pad"` without their padding, which is checked."""
    found = []
    for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        length = next((at for at, target in enumerate(targets) if target == -100), len(targets))
        assert inputs[1 : length + 1] == targets[:length][: len(inputs) - 1]
        assert inputs[length + 1 :] == [pad] * (len(inputs) - length - 1)
        assert set(targets[length:]) <= {-100}
        found.append(inputs[: length + 1] + targets[len(inputs) - 1 : length])
    return found


def full_rows(batch: dict[str, Any]) -> list[list[int]]:
    """The rows of a batch, `seq_len` + 1 tokens each."""
    inputs, targets = batch["inputs"], batch["targets"]
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    return [[*map(int, row), int(last)] for row, last in zip(inputs, targets[:, -1], strict=True)]


def groups_of(packer: int, n_packers: int) -> list[list[int]]:
    """The documents of a packer's row groups in one epoch; the groups of each file are dealt out in turn."""
    first = [0, *itertools.accumulate(COUNTS[:3])]
    return [
        list(range(begin, min(begin + GROUP, start + count)))
        for start, count in zip(first, COUNTS[:3], strict=False)
        for begin in list(range(start, start + count, GROUP))[packer::n_packers]
    ]


def slices_of(packer: int, n_packers: int, epochs: int | None = None) -> Iterator[list[list[int]]]:
    """The slices of documents, each of which refills a packer at once."""
    for _ in itertools.count() if epochs is None else range(epochs):
        for group in groups_of(packer, n_packers):
            for begin in range(0, len(group), 16):
                yield [[BOS, *encode(document(number))] for number in group[begin : begin + 16]]


def take(loader: Any, n: int) -> list[list[list[int]]]:
    return [full_rows(batch) for batch in itertools.islice(loader, n)]
