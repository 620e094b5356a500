"""Stop requests for a provider: from any thread, or by a signal."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any


class Stop:
    """A stop request that can be waited for. Has no lock, since a signal could interrupt the lock's holder."""

    def __init__(self) -> None:
        self.is_asked = False
        self._bell: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """Ends the current wait and all later ones."""
        self.is_asked = True
        self._bell.put(None)

    def wait(self, seconds: float) -> None:
        """Waits `seconds`, or until a stop request."""
        if not self.is_asked:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=seconds)

    def reset(self) -> None:
        """Withdraws the request."""
        self.is_asked = False
        with contextlib.suppress(Empty):
            while True:
                self._bell.get_nowait()

    @contextlib.contextmanager
    def at_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM request a stop; a second signal has its previous effect. In the main thread only."""
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
