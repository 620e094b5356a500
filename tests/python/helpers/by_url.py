"""What tests of sources by URL have in common."""

from typing import Any

import forebay
from digests import digest
from recordings import SMALL

ONE_PASS: dict[str, Any] = {**SMALL, "infinite": False}
SECRET = "not-to-be-seen"


def digests(source: Any, **parameters: Any) -> list[str]:
    """The batches of one pass."""
    with forebay.Loader(source, **{**ONE_PASS, **parameters}) as loader:
        return [digest(batch) for batch in loader]
