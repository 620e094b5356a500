"""The oracle of `TokenLoader`: best-fit packing as a slow, plain scan over a list."""

from collections.abc import Iterable, Iterator

Slices = Iterable[list[list[int]]]


def rows(slices: Slices, capacity: int, buffer_size: int, crop: str = "drop") -> Iterator[list[int]]:
    """Rows of `capacity` tokens; `slices` are the lists of documents (BOS and tokens) that refill the buffer."""
    slices = iter(slices)
    held: list[list[int]] = []
    while True:
        row: list[int] = []
        while len(row) < capacity:
            while len(held) < buffer_size:
                more = next(slices, None)
                if more is None:
                    break
                held.extend(more)
            if not held:
                return
            room = capacity - len(row)
            document = held.pop(choose(held, room, capacity, crop))
            row += document[:room]
            if len(document) > room and crop == "carry":
                held.append([document[0], *document[room:]])
        yield row


def choose(held: list[list[int]], room: int, capacity: int, crop: str) -> int:
    """The index in `held` of the document that is packed next."""
    lengths = [len(document) for document in held]
    fitting = [at for at, length in enumerate(lengths) if length <= room]
    longs = [at for at, length in enumerate(lengths) if length > capacity]
    if fitting:
        best = max(fitting, key=lambda at: (lengths[at], -at))
    elif crop == "carry" and len(longs) < len(held):
        best = min((at for at in range(len(held)) if lengths[at] <= capacity), key=lambda at: (lengths[at], at))
    elif crop == "carry":
        best = longs[0]
    else:
        best = min(range(len(held)), key=lambda at: (lengths[at], at))
    if crop == "carry" and room == capacity and longs and longs[0] < best:
        return longs[0]
    return best
