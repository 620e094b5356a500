"""The number of bytes that a loader may hold, from its own error message."""

import re
from pathlib import Path
from typing import Any

import pytest

import forebay


def most_bytes(paths: list[Path] | Path, **parameters: Any) -> int:
    """The bytes that the error for a `memory_budget` of 1 byte reports."""
    with pytest.raises(forebay.ConfigError, match="memory_budget is 1 bytes") as raised:
        forebay.Loader(paths, **parameters, memory_budget=1)
    return int(re.findall(r"may hold (\d+): ", str(raised.value))[0])
