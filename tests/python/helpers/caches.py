"""Documents for caches, the order that they must have, and what is on disk."""

import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Shards = Mapping[str, Sequence[int]]


def unequal(sizes: Sequence[int] = (37, 0, 5, 64, 1)) -> dict[str, list[int]]:
    """Shards of so many documents, which are numbers."""
    ends = np.cumsum(sizes).tolist()
    return {f"shard-{at}": list(range(end - size, end)) for at, (size, end) in enumerate(zip(sizes, ends, strict=True))}


def expected(shards: Shards, batch_size: int, order: str) -> list[int]:
    """The documents in order: slow and plain."""
    if order == "concat":
        return [document for documents in shards.values() for document in documents]
    queues = [list(documents) for documents in shards.values()]
    found: list[int] = []
    while any(queues):
        for queue in queues:
            found += queue[:batch_size]
            del queue[:batch_size]
    return found


def ids(document: int) -> np.ndarray[Any, Any]:
    """The ids of a document: some are empty."""
    return np.arange(document * 7, document * 7 + document * document % 41, dtype=np.int64) % 5000


class Number:
    """The processor of numbers: ids and a matrix; now and then it is slow."""

    fingerprint = "number"

    def __init__(self, *, sleep_s: float = 0.0, times: int = 1) -> None:
        self.sleep_s = sleep_s
        self.times = times

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        if self.sleep_s:
            time.sleep(self.sleep_s * (zlib.crc32(bytes(str(documents[0]), "ascii")) % 8) / 8)
        return [made(document) for document in documents for _ in range(self.times)]


class Picky(Number):
    """The same, but some numbers make it raise."""

    fingerprint = "picky"

    @staticmethod
    def refuses(document: int) -> bool:
        """Whether the number is one of these."""
        return document % 13 == 4 or 20 <= document < 28

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        if refused := [document for document in documents if self.refuses(document)]:
            raise ValueError(f"not {refused[0]}")
        return super().__call__(documents)


def made(document: int) -> dict[str, Any]:
    """What becomes of a document."""
    matrix = np.full((document % 3 + 1, document % 5), document, np.float32)
    return {"number": document, "prompt": {"input_ids": ids(document).astype(np.uint16)}, "matrix": matrix}


def same(found: Mapping[str, Any], document: int) -> bool:
    """Whether it is what becomes of the document."""
    wanted = made(document)
    return (
        int(found["number"]) == document
        and found["number"].shape == ()
        and np.array_equal(found["prompt"]["input_ids"], wanted["prompt"]["input_ids"])
        and found["prompt"]["input_ids"].dtype == np.uint16
        and found["matrix"].shape == wanted["matrix"].shape
        and np.array_equal(found["matrix"], wanted["matrix"])
    )


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a cache."""

    def walk(path: Path) -> Iterator[Path]:
        for entry in os.scandir(path):
            if entry.is_dir():
                yield from walk(Path(entry.path))
            else:
                yield Path(entry.path)

    return {str(path.relative_to(folder)): path.read_bytes() for path in walk(folder)}
