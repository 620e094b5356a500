"""Threads that process requests, each as soon as it is free.

A request carries its result, and signals when it is ready. Threads share only queues whose operations are
atomic, and attributes that one of them sets: there is no lock that Ctrl-C could leave locked, or that garbage
collection could wait for. Threads refer only to these queues and the function to call, so that the requesting
object can be dropped, which ends them.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import repeat
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Order", "Scale", "Workers"]

Made = TypeVar("Made")

_log = logging.getLogger("forebay")

# How long join() waits for threads; a thread that still works then ends after its current item.
_JOIN_S = 0.5


class Order(Generic[Made]):
    """A request. `made` becomes the result, or the error, and then the bell is signalled."""

    __slots__ = ("bell", "made", "made_at", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.made: Made | BaseException | None = None
        self.made_at = 0.0
        self.bell: SimpleQueue[None] = SimpleQueue()


class Workers(Generic[Made]):
    """Threads that call `make(number)`; `stop` may be called by any thread, all else by the requesting one."""

    def __init__(self, make: Callable[[int], Made]) -> None:
        self.stopped = False
        self.forked = False  # this is a child of the process that has the threads
        self.size = 0
        self._make = make
        self._work: SimpleQueue[Order[Made] | None] = SimpleQueue()
        self.order: Callable[[Order[Made]], None] = self._work.put
        """Has this made next."""
        self._awaited: Order[Made] | None = None
        self._threads: list[threading.Thread] = []
        _live.add(self)

    def resize(self, n_threads: int) -> None:
        """Starts threads, or ends some once all requests are being processed."""
        while self.size < n_threads:
            thread = threading.Thread(target=self._run, name=f"forebay-async-{self.size}", daemon=False)
            self._threads = [*filter(_may_be_at_work, self._threads), thread]
            self.size += 1
            thread.start()
            if self.stopped:  # by another thread, which may not have seen this one
                self._work.put(None)
        while self.size > n_threads:
            self.size -= 1
            self._work.put(None)

    def wait_for(self, order: Order[Made]) -> None:
        """Returns once this request is done, or the threads are stopping."""
        self._awaited = order
        while order.made is None and not self.stopped:
            order.bell.get()

    def finish(self) -> None:
        """Requests the threads to end once all requests are being processed; one C call, which Ctrl-C cannot split."""
        deque(map(self._work.put, repeat(None, len(self._threads))), maxlen=0)

    def stop(self) -> None:
        """Requests the threads to end, each after its current item. Never waits, and may be called at any moment."""
        if self.forked:
            return
        self.stopped = True
        for _ in self._threads:
            self._work.put(None)
        if awaited := self._awaited:
            awaited.bell.put(None)

    def join(self) -> None:
        """Waits for the threads, for a short time."""
        if self.forked:
            return
        until = time.monotonic() + _JOIN_S
        others = [thread for thread in self._threads if thread is not threading.current_thread() and thread.ident]
        for thread in others:
            thread.join(max(until - time.monotonic(), 0))
        if late := sum(thread.is_alive() for thread in others):
            _log.warning("%d threads are still in the pipeline after %s s; they end with that call", late, _JOIN_S)

    def _run(self) -> None:
        while (order := self._work.get()) and not self.stopped:
            made: Made | BaseException
            try:
                made = self._make(order.number)
            except BaseException as error:
                made = error
            order.made_at = time.perf_counter()
            order.made = made
            order.bell.put(None)
            del order, made  # what was taken is not kept while there is no work
        del self  # or an error that nobody took would keep itself, by way of this frame


def _may_be_at_work(thread: threading.Thread) -> bool:
    return thread.is_alive() or thread.ident is None


class Scale:
    """How many threads are enough: more while a requested item is not ready, fewer while all requested items are.

    A poll counts one for, one against, or nothing, and a change takes a few polls: neither a single slow
    batch nor threads that finish in step, so that every other batch lies ready, change the number.
    """

    POLLS = 5

    def __init__(self, most: int) -> None:
        self.n_threads = 1
        self._most = most
        self._votes = 0

    def poll(self, *, empty: bool, full: bool) -> int:
        """Returns the number of threads that there should be."""
        self._votes += empty - full
        if abs(self._votes) >= self.POLLS:
            self.n_threads = min(max(self.n_threads + (1 if self._votes > 0 else -1), 1), self._most)
            self._votes = 0
        return self.n_threads


_live: "weakref.WeakSet[Workers[Any]]" = weakref.WeakSet()


def _stop_all() -> None:
    for workers in list(_live):
        workers.stop()


def _forget_all() -> None:
    for workers in list(_live):
        workers.forked = workers.stopped = True


# As in `concurrent.futures`: functions of `atexit` are called after threads were joined, which is too late.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_forget_all)
