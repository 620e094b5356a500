"""How many bytes a loader may hold, as it says itself."""

import re
from pathlib import Path
from typing import Any

import pytest

import forebay


def most_bytes(paths: list[Path] | Path, **parameters: Any) -> int:
    """What the loader says that it may come to hold."""
    with pytest.raises(forebay.ConfigError, match="memory_budget is 1 bytes") as raised:
        forebay.Loader(paths, **parameters, memory_budget=1)
    return int(re.findall(r"may hold (\d+): ", str(raised.value))[0])
