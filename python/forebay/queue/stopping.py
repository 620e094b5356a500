"""How a provider is told to stop: from any thread, or by a signal."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any


class Stop:
    """Asked for once, and waited for. Without locks, as one could be held by the thread that a signal interrupts."""

    def __init__(self) -> None:
        self.is_asked = False
        self._bell: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """Ends a wait, and those to come."""
        self.is_asked = True
        self._bell.put(None)

    def wait(self, seconds: float) -> None:
        """Returns after some seconds, or when asked."""
        if not self.is_asked:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=seconds)

    def reset(self) -> None:
        """Forgets that it was asked for."""
        self.is_asked = False
        with contextlib.suppress(Empty):
            while True:
                self._bell.get_nowait()

    @contextlib.contextmanager
    def at_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for it, the second time do what they did before. In the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {}

        def handle(_number: int, _frame: object) -> None:
            restore()
            self.ask()

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            restore()
