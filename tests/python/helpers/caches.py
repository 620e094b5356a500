"""Documents for caches, their expected order, and the files of a cache."""

import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Shards = Mapping[str, Sequence[int]]


def unequal(sizes: Sequence[int] = (37, 0, 5, 64, 1)) -> dict[str, list[int]]:
    """Shards with these numbers of documents; a document is its number."""
    ends = np.cumsum(sizes).tolist()
    return {f"shard-{at}": list(range(end - size, end)) for at, (size, end) in enumerate(zip(sizes, ends, strict=True))}


def expected(shards: Shards, batch_size: int, order: str) -> list[int]:
    """The documents in the order of the cache: a slow and plain oracle."""
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
    """The ids of a document; some documents have none."""
    return np.arange(document * 7, document * 7 + document * document % 41, dtype=np.int64) % 5000


class Number:
    """A processor that returns ids and a matrix for each number; some of its calls sleep."""

    fingerprint = "number"

    def __init__(self, *, sleep_s: float = 0.0, times: int = 1) -> None:
        self.sleep_s = sleep_s
        self.times = times

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        if self.sleep_s:
            time.sleep(self.sleep_s * (zlib.crc32(bytes(str(documents[0]), "ascii")) % 8) / 8)
        return [made(document) for document in documents for _ in range(self.times)]


class Picky(Number):
    """A `Number` that raises for some numbers."""

    fingerprint = "picky"

    @staticmethod
    def refuses(document: int) -> bool:
        """Whether the processor raises for this number."""
        return document % 13 == 4 or 20 <= document < 28

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        if refused := [document for document in documents if self.refuses(document)]:
            raise ValueError(f"not {refused[0]}")
        return super().__call__(documents)


def made(document: int) -> dict[str, Any]:
    """The output of `Number` for a document."""
    matrix = np.full((document % 3 + 1, document % 5), document, np.float32)
    return {"number": document, "prompt": {"input_ids": ids(document).astype(np.uint16)}, "matrix": matrix}


def same(found: Mapping[str, Any], document: int) -> bool:
    """Whether a row of the cache equals `made(document)`."""
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
    """The files of a cache, by name."""

    def walk(path: Path) -> Iterator[Path]:
        for entry in os.scandir(path):
            if entry.is_dir():
                yield from walk(Path(entry.path))
            else:
                yield Path(entry.path)

    return {str(path.relative_to(folder)): path.read_bytes() for path in walk(folder)}
