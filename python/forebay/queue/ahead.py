"""A thread that reads files ahead of the trainer, and does slow work on files for it.

Only this thread requests files from a feed. Messages and answers go through queues with atomic operations, so
there is no lock that Ctrl-C could leave locked. The thread has no reference to the consumer, so dropping the
consumer ends it.
"""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal, Self

from forebay._at_exit import Live
from forebay._core import ForebayError
from forebay.queue.feed import Feed, Loaded

_log = logging.getLogger("forebay.queue")

Task = Callable[[], bool]
"""A function that returns whether it is done; otherwise it is called again later. Its exceptions do not end it."""

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.25
_LONGEST_RETRY_S = 5.0


class _EndedError(Exception):
    """The thread was ended while it was paused."""


class Halt:
    """A context that pauses a thread after its earlier tasks, until the context ends."""

    def __init__(self, ahead: "Ahead") -> None:
        self._ahead = ahead
        self._thread = ahead._thread
        self._reached: SimpleQueue[None] = SimpleQueue()
        self._go_on: SimpleQueue[bool] = SimpleQueue()
        self._ends = False

    def __call__(self) -> bool:
        """The task that pauses the thread."""
        self._reached.put(None)
        if not self._go_on.get():
            raise _EndedError
        return True

    def end(self) -> None:
        """Makes the thread end, without further work, at the end of the context."""
        self._ends = True

    def __enter__(self) -> Self:
        self._ahead._halt = self
        self._ahead._inbox.put(self)
        try:
            while self._thread.is_alive():
                with contextlib.suppress(Empty):
                    self._reached.get(timeout=0.05)
                    break
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ahead._halt = None
        self.go_on()

    def go_on(self) -> None:
        """Ends the pause, or the thread."""
        self._go_on.put(not self._ends)


@dataclass
class _Retry:
    task: Task
    pause: float
    due: float
    has_failed: bool = False


class Ahead:
    """Keeps `depth` files loaded. For one thread only, the trainer's."""

    def __init__(self, feed: Feed, depth: int, name: str) -> None:
        self.feed = feed
        self._depth = depth
        self._ready: deque[Loaded | Exception] = deque()
        self._failures: deque[Exception] = deque()  # of tasks
        self._bell: SimpleQueue[None] = SimpleQueue()  # signalled after each file
        self._inbox: SimpleQueue[Literal["more", "now", "again", "end"] | Task] = SimpleQueue()
        self._searches = 0  # searches that found no file
        self._found_nothing = False  # whether the last search found no file
        self._halt: Halt | None = None  # the pause of the thread
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"forebay-queue-{name}", daemon=False)

    def start(self) -> None:
        """Starts the thread; to be called once."""
        _live.add(self)
        self._thread.start()

    def first(self, timeout: float | None) -> Loaded | None:
        """The next file, which stays the next one until it is dropped; None if none appeared for `timeout` seconds.

        The timeout does not apply to reading a file that exists. An error of the feed is raised at its
        position; after it, the next file is requested again. An error of a task is raised once, and the task is
        tried again.
        """
        while True:
            if not (self._ready or self._failures) and not self._wait(timeout):
                return None
            with contextlib.suppress(IndexError):  # a signal handler has taken it
                failure = self._failures.popleft() if self._failures else None
                item = failure or self._ready[0]
                break
        if failure:
            raise failure
        if isinstance(item, Exception):
            self._inbox.put("again")
            self._remove(item)
            raise item
        return item

    def drop(self, file: Loaded | None) -> None:
        """Removes this file to make room for another, if it is still the next one."""
        if file and self._ready and self._ready[0] is file:
            # In this order: after Ctrl-C between the two there is one file more in memory, and never none
            # forever.
            self._inbox.put("more")
            self._remove(file)

    def _remove(self, item: Loaded | Exception) -> None:
        """Removes this item; one call, and no other item if a signal handler has removed it before."""
        with contextlib.suppress(ValueError):
            self._ready.remove(item)

    def _wait(self, timeout: float | None) -> bool:
        searches, until = self._searches, None if timeout is None else time.monotonic() + timeout
        self._inbox.put("now")
        while not (self._ready or self._failures):
            left = 0.05 if until is None else min(0.05, max(until - time.monotonic(), 0.001))
            with contextlib.suppress(Empty):
                self._bell.get(timeout=left)
            if not (self._thread.is_alive() or self._ready or self._failures):
                raise ForebayError("the consumer is closed, or the interpreter is about to end")
            late = until is not None and time.monotonic() >= until
            is_empty = not (self._ready or self._failures)
            if late and self._found_nothing and self._searches > searches and is_empty:
                return False
        return True

    def do(self, task: Task) -> None:
        """Runs a task on the thread soon, and repeats it with growing pauses until it reports that it is done."""
        self._inbox.put(task)

    def halted(self) -> Halt:
        """A context in which the thread is paused, after its earlier tasks."""
        return Halt(self)

    def is_here(self) -> bool:
        """Whether this is the thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Ends the thread after its current work and all earlier tasks. Does not wait."""
        if os.getpid() == self._process:
            self._inbox.put("end")
            if halt := self._halt:  # a signal handler closes the consumer while it moves
                halt.end()
                halt.go_on()

    def join(self) -> None:
        """Waits for the end of the thread."""
        if os.getpid() == self._process and self._thread.ident:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(_EndedError):
            self._work()

    def _work(self) -> None:
        wanted, pause, search_at = self._depth, _FIRST_PAUSE_S, 0.0
        failed = False
        retries: list[_Retry] = []
        while True:
            if wanted and time.monotonic() >= search_at:
                if item := self._search():
                    self._ready.append(item)
                    self._bell.put(None)
                    failed = isinstance(item, Exception)  # no further files are wanted until the error is taken
                    wanted = 0 if failed else wanted - 1
                    pause, search_at = _FIRST_PAUSE_S, 0.0
                    del item  # otherwise an idle thread would keep it alive
                else:
                    search_at = time.monotonic() + pause
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
            retries = self._attempted(retries)
            due = [retry.due for retry in retries] + ([search_at] if wanted else [])
            try:
                message = self._inbox.get(timeout=max(min(due) - time.monotonic(), 0) if due else None)
            except Empty:
                continue
            if message == "end":
                return
            if callable(message):
                retries.append(_Retry(message, _FIRST_PAUSE_S, 0.0))
                continue
            if message == "again":
                wanted, failed = self._depth, False
            elif message == "more" and not failed:
                wanted += 1
            pause, search_at = _FIRST_PAUSE_S, 0.0

    def _search(self) -> Loaded | Exception | None:
        self._found_nothing = False
        try:
            item: Loaded | Exception | None = self.feed.next_file()
        except Exception as error:
            item = error
        if item is None:
            self._searches += 1
            self._found_nothing = True
        return item

    def _attempted(self, retries: list[_Retry]) -> list[_Retry]:
        """Runs the pending tasks whose time has come; returns the unfinished ones."""
        left = []
        for retry in retries:
            if retry.due <= time.monotonic():
                if self._is_done(retry):
                    continue
                retry.due = time.monotonic() + retry.pause
                retry.pause = min(2 * retry.pause, _LONGEST_RETRY_S)
            left.append(retry)
        return left

    def _is_done(self, retry: _Retry) -> bool:
        try:
            return retry.task()
        except _EndedError:
            raise
        except OSError as error:  # of a file system that may recover
            _log.log(logging.DEBUG if retry.has_failed else logging.WARNING, "retrying: %s", error)
        except Exception as error:
            if not retry.has_failed:
                self._failures.append(error)
                self._bell.put(None)
        retry.has_failed = True
        return False


_live: Live[Ahead] = Live()
