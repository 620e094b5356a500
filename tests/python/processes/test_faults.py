"""Failed writes, and shards that change during reading, are reported: no crash, no partial file."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from digests import digest
from recordings import TINY, tiny_rows, write_shard

FULL = Path("/dev/full")
SETTINGS: dict[str, Any] = {**TINY, "batch_size": 8, "shuffle_buffer_size": 8, "n_workers": 2}


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_a_trace_on_a_full_disk(tiny_shards: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A trace that cannot be written is lost with a log record; batches are unchanged."""
    path = tmp_path / "trace.json"
    with forebay.Loader.eval(tiny_shards, **SETTINGS) as loader:
        expected = [digest(batch) for batch in loader]
    (tmp_path / "trace.json.part").symlink_to(FULL)
    with caplog.at_level(logging.WARNING), forebay.Loader.eval(tiny_shards, **SETTINGS) as loader:
        loader.trace(path, 600)
        assert [digest(batch) for batch in loader] == expected
    assert [record.getMessage() for record in caplog.records if "the trace was lost" in record.getMessage()]
    assert list(tmp_path.iterdir()) == []
    assert FULL.exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, which is not writable")
def test_where_nobody_can_write(tiny_shards: list[Path]) -> None:
    with forebay.Loader.eval(tiny_shards, **SETTINGS) as loader:
        with pytest.raises(OSError, match="the trace cannot be written"):
            loader.trace("/proc/self/trace.json")
        assert len(next(loader)["index"]) == 7
    command = [sys.executable, "-m", "forebay", "check", str(tiny_shards[0]), "-o", "/proc/self/report"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    assert "nothing can be written in /proc/self" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fault", ["cut", "removed", "replaced", "overwritten"])
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_shard_changes_under_a_loader(fault: str, policy: str, tmp_path: Path, soak: int) -> None:
    """Whenever a shard changes, each row is unchanged or listed as an error, or the loader raises."""
    for trial in range(5 * soak):
        folder = tmp_path / f"{trial}"
        folder.mkdir()
        shards = [write_shard(folder / f"{n}.arrow", tiny_rows(40), rows_per_batch=10) for n in range(5)]
        with forebay.Loader.eval(shards[:1], **SETTINGS) as loader:
            known = [tuple(row.tobytes() for row in batch["spectrogram"]) for batch in loader]
        rows = [row for batch in known for row in batch]
        victim = shards[1 + trial % 4]
        settings = {**SETTINGS, "raw_channel_size": 1, "n_readers": 1 + trial % 3, "on_io_error": policy}
        with forebay.Loader.eval(shards, **settings) as loader:
            got: dict[int, bytes] = {}
            raised: Exception | None = None
            try:
                while (batch := next(loader, None)) is not None:
                    if len(got) == 8 * (trial % 7):
                        change(victim, fault)
                    for index, row in zip(batch["index"].tolist(), batch["spectrogram"], strict=True):
                        got[index] = row.tobytes()
            except (OSError, forebay.DecodeError) as error:
                raised = error
            told = {error["index"] for error in loader.errors()}
            assert all(rows[index % 40] == row for index, row in got.items())
            if raised is None:
                assert set(got) | told == set(range(200))
                assert not set(got) & told
            else:
                assert policy == "raise"
                assert victim.name in str(raised)


def change(path: Path, fault: str) -> None:
    """Applies a fault to a shard."""
    if fault == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif fault == "removed":
        path.unlink()
    elif fault == "replaced":
        write_shard(path.with_suffix(".new"), tiny_rows(7)).replace(path)
    else:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 3])
