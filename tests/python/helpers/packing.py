"""The oracle of `TokenLoader`: best-fit packing as a slow, plain scan over a list."""

from collections.abc import Iterable, Iterator
from typing import Any

Slices = Iterable[list[list[int]]]


def rows(
    slices: Slices,
    capacity: int,
    buffer_size: int,
    crop: str = "drop",
    on_long: str = "skip",
    bos: Any = None,
) -> Iterator[list[int]]:
    """Rows of `capacity` tokens, with `"pad"` of as many or fewer.

    `slices` are the lists of documents (BOS and tokens) that refill the buffer. `bos` begins a carried rest, if it is
    not the BOS of the document.
    """
    slices = iter(slices)
    held: list[list[int]] = []
    while True:
        row: list[int] = []
        while len(row) < capacity:
            while len(held) < buffer_size:
                more = next(slices, None)
                if more is None:
                    break
                held.extend(fitted(more, capacity, crop, on_long))
            room = capacity - len(row)
            if crop == "pad" and row and not any(len(document) <= room for document in held):
                break
            if not held:
                return
            document = held.pop(choose(held, room, capacity, crop))
            row += document[:room]
            if len(document) > room and crop in ("carry", "pad"):
                held.append([document[0] if bos is None or room == 1 else bos, *document[room:]])
        yield row


def fitted(documents: list[list[int]], capacity: int, crop: str, on_long: str) -> list[list[int]]:
    """The documents that are packed, and what is packed of each."""
    if crop != "pad" or on_long == "split":
        return documents
    if on_long == "cut":
        return [document[:capacity] for document in documents]
    return [document for document in documents if len(document) <= capacity]


def choose(held: list[list[int]], room: int, capacity: int, crop: str) -> int:
    """The index in `held` of the document that is packed next."""
    lengths = [len(document) for document in held]
    fitting = [at for at, length in enumerate(lengths) if length <= room]
    longs = [at for at, length in enumerate(lengths) if length > capacity]
    if fitting:
        best = max(fitting, key=lambda at: (lengths[at], -at))
    elif crop == "carry" and len(longs) < len(held):
        best = min((at for at in range(len(held)) if lengths[at] <= capacity), key=lambda at: (lengths[at], at))
    elif crop in ("carry", "pad"):
        best = longs[0]
    else:
        best = min(range(len(held)), key=lambda at: (lengths[at], at))
    if crop in ("carry", "pad") and room == capacity and longs and longs[0] < best:
        return longs[0]
    return best
