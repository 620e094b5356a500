"""Objects with threads are stopped at the end of the interpreter, whenever they were added."""

from collections.abc import Iterator
from weakref import WeakSet

from forebay._at_exit import Live


class Threaded:
    """An object that counts its stops."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


class Racing(WeakSet[Threaded]):
    """A set to which another thread adds objects while it is iterated."""

    def __init__(self, coming: list[Threaded], live: Live[Threaded]) -> None:
        super().__init__()
        self.coming, self.live = coming, live

    def __iter__(self) -> Iterator[Threaded]:
        for each in super().__iter__():
            if self.coming:
                self.live.add(self.coming.pop())
            yield each


def test_objects_that_are_added_meanwhile() -> None:
    live: Live[Threaded] = Live()
    first, coming = [Threaded() for _ in range(3)], [Threaded() for _ in range(4)]
    live._objects = Racing([*coming], live)
    for each in first:
        live.add(each)
    assert not any(each.stops for each in first)
    live._stop_all()
    late = Threaded()
    live.add(late)
    assert all(each.stops for each in [*first, *coming, late])
