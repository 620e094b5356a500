"""Local Rays for tests."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ray._private import services


def patient(find: Callable[..., Any]) -> Callable[..., Any]:
    """Waits for Ray's servers as long as they take: Ray gives up after 30 seconds, and a busy machine may need more."""

    def get_node(*given: Any) -> Any:
        while True:
            try:
                return find(*given)
            except RuntimeError:  # no node yet; the limit is that of the test
                time.sleep(0.5)

    return get_node


@contextmanager
def importing() -> Iterator[None]:
    """While a Ray starts: its workers import the modules of the tests, and it has the time it needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setattr(services, "get_node", patient(services.get_node))
        yield
