"""Worker threads for `AsyncDataLoader`: each takes the next request as soon as it is free.

A request carries its result; when it is ready, a bell is rung. Threads share only queues with atomic operations,
and attributes that one thread sets before it puts something into a queue, which orders the two on any machine. So
there is no lock that Ctrl-C could leave locked, that a signal handler could wait for, or garbage collection.
Threads refer only to these queues and the function to call, so the requesting object can be dropped, which ends
them.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from forebay._at_exit import Live

__all__ = ["Order", "Scale", "Workers"]

Made = TypeVar("Made")

_log = logging.getLogger("forebay")

# The longest time that join() waits; a thread that is still busy then ends after its current item.
_JOIN_S = 0.5


class Order(Generic[Made]):
    """A request. `made` is set to the result or the error, then the bell is rung."""

    __slots__ = ("is_taken", "made", "made_at", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.made: Made | BaseException | None = None
        self.made_at = 0.0
        self.is_taken = False


class Workers(Generic[Made]):
    """Threads that call `make(number)`. Any thread may call `stop`, only the requesting thread the other methods."""

    def __init__(self, make: Callable[[int], Made]) -> None:
        self.stopped = False
        self.forked = False  # this is a child of the process that has the threads
        self.size = 0
        self._make = make
        self._work: SimpleQueue[Order[Made] | None] = SimpleQueue()
        self.order: Callable[[Order[Made]], None] = self._work.put
        """Queues a request."""
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung for each result, and by `stop`
        self._awaited: Order[Made] | None = None
        self._waiting = 0  # calls of `wait_for`: a signal handler may call it within another call
        self._threads: list[threading.Thread] = []
        _live.add(self)

    def resize(self, n_threads: int) -> None:
        """Starts threads, or requests some to end, after the queued requests."""
        while self.size < n_threads:
            thread = threading.Thread(target=self._run, name=f"forebay-async-{self.size}", daemon=False)
            self._threads = [*filter(_may_be_at_work, self._threads), thread]
            self.size += 1
            thread.start()
        while self.size > n_threads:
            self.size -= 1
            self._work.put(None)

    def wait_for(self, order: Order[Made]) -> None:
        """Waits until this request is done, or taken by a signal handler, or the threads are stopping."""
        self._awaited = order
        self._waiting += 1
        try:
            while order.made is None and not (order.is_taken or self.stopped):
                self._bell.get()
        finally:
            self._waiting -= 1
            if self._waiting:
                self._bell.put(None)  # this call may have heard what was rung for the one that it interrupted

    def forget_rings(self) -> None:
        """Drops what was rung for results that were ready before they were awaited."""
        with contextlib.suppress(Empty):
            while not self._waiting and self._bell.qsize():
                self._bell.get_nowait()

    def finish(self) -> None:
        """Requests the threads to end after the queued requests; one C call, which Ctrl-C cannot split."""
        deque(map(self._work.put, repeat(None, len(self._threads))), maxlen=0)

    def stop(self) -> None:
        """Requests the threads to end, each after its current item. Never waits; may be called at any time."""
        if self.forked:
            return
        self.stopped = True
        self._work.put(None)  # which each thread passes on, so that it reaches a thread that starts now
        self._bell.put(None)

    def join(self) -> None:
        """Waits for the threads to end, at most `_JOIN_S` seconds."""
        if self.forked:
            return
        until = time.monotonic() + _JOIN_S
        others = [thread for thread in self._threads if thread is not threading.current_thread() and thread.ident]
        for thread in others:
            thread.join(max(until - time.monotonic(), 0))
        if late := sum(thread.is_alive() for thread in others):
            _log.warning("%d threads still run the pipeline after %s s; they end when that call returns", late, _JOIN_S)

    def _run(self) -> None:
        while (order := self._work.get()) and not self.stopped:
            made: Made | BaseException
            try:
                made = self._make(order.number)
            except BaseException as error:
                made = error
            order.made_at = time.perf_counter()
            order.made = made
            self._bell.put(None)
            del order, made  # otherwise an idle thread would keep the batch alive
        if self.stopped:
            self._work.put(None)
        del self  # otherwise a cycle: the traceback of an unread error refers to this frame


def _may_be_at_work(thread: threading.Thread) -> bool:
    return thread.is_alive() or thread.ident is None


class Scale:
    """Chooses the number of threads: more while a requested item is not ready, fewer while all items are ready.

    A poll votes for more, for fewer, or not at all, and a change needs several votes. So the number does not
    change for a single slow batch, or for threads that finish in step, where every other batch is ready.
    """

    POLLS = 5

    def __init__(self, most: int) -> None:
        self.n_threads = 1
        self._most = most
        self._votes = 0

    def poll(self, *, empty: bool, full: bool) -> int:
        """Counts a vote; returns the number of threads to have."""
        self._votes += empty - full
        if abs(self._votes) >= self.POLLS:
            self.n_threads = min(max(self.n_threads + (1 if self._votes > 0 else -1), 1), self._most)
            self._votes = 0
        return self.n_threads


_live: Live["Workers[Any]"] = Live()


def _forget_all() -> None:
    for workers in _live:
        workers.forked = workers.stopped = True


os.register_at_fork(after_in_child=_forget_all)
