"""Objects with threads, which must end before the interpreter waits for its threads."""

import threading
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

__all__ = ["Live"]


class _Stops(Protocol):
    def stop(self) -> None:
        """Requests the threads to end; never waits."""


Stops = TypeVar("Stops", bound=_Stops)


class Live(Generic[Stops]):
    """Objects that are stopped when the interpreter ends. Any thread may add one, even then."""

    def __init__(self) -> None:
        self._objects: WeakSet[Stops] = WeakSet()
        self._is_ending = False
        # As in `concurrent.futures`: `atexit` calls its functions after joining threads, which is too late.
        threading._register_atexit(self._stop_all)  # type: ignore[attr-defined]

    def add(self, new: Stops) -> None:
        """Adds an object; one that comes after the end began is stopped at once."""
        self._objects.add(new)
        if self._is_ending:
            new.stop()

    def __iter__(self) -> Iterator[Stops]:
        while True:
            try:
                return iter(list(self._objects))
            except RuntimeError:  # another thread has added one meanwhile
                continue

    def _stop_all(self) -> None:
        self._is_ending = True  # before the list is made, so that no object is missed
        for each in self:
            each.stop()
