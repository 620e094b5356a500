"""The first batch does not wait for the window to fill: counted, not timed."""

from pathlib import Path

import pytest

import forebay
from forebay import _core
from recordings import TINY


@pytest.mark.parametrize("batch_size", [16, 64, 256])
def test_decoded_records(batch_size: int, tiny_shard: Path) -> None:
    _core._inject_delays(fixed_ms=3)  # so that scheduling of the consumer, a millisecond or so, does not count
    with forebay.Loader(tiny_shard, n_workers=4, batch_size=batch_size, **TINY) as loader:
        assert len(next(loader)["index"]) == batch_size
        assert loader.stats()["decoded_at_first_batch"] <= 3 * batch_size
