"""What tests of sources by URL have in common."""

from typing import Any

import pytest

import forebay
from digests import digest
from forebay import _core
from recordings import SMALL

needs_urls = pytest.mark.skipif(not _core._READS_URLS, reason="needs a wheel with the feature `remote`")

ONE_PASS: dict[str, Any] = {**SMALL, "infinite": False}
SECRET = "not-to-be-seen"


def digests(source: Any, **parameters: Any) -> list[str]:
    """The batches of one pass."""
    with forebay.Loader(source, **{**ONE_PASS, **parameters}) as loader:
        return [digest(batch) for batch in loader]
