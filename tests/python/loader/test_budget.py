"""Memory of a loader: bounded by `memory_budget`, constant over a long run, and below the configured maximum."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from budgets import most_bytes
from recordings import FOLDER, TINY, Row, write_shard

MB = 1 << 20
SMALL: dict[str, Any] = {"shuffle_buffer_size": 192, "shuffle_min_size": 128, "batch_size": 16, "n_workers": 2}


def test_parts_are_listed(tiny_shards: list[Path]) -> None:
    with pytest.raises(forebay.ConfigError) as raised:
        forebay.Loader(tiny_shards, memory_budget=1000 * MB)
    message = str(raised.value)
    [total] = map(int, re.findall(r"may hold (\d+): ", message))
    parts = [int(part) for part in re.findall(r"(\d+) for ", message)]
    assert total == sum(parts)
    assert parts == sorted(parts, reverse=True)
    for name in ("shuffle_buffer_size", "batch_size", "prefetch_batches", "raw_channel_bytes", "n_workers"):
        assert f"lower {name}" in message or f"or {name}" in message, name


def test_what_is_allowed_is_enough(tiny_shards: list[Path]) -> None:
    least = most_bytes(tiny_shards, **TINY, **SMALL)
    with pytest.raises(forebay.ConfigError, match="raise memory_budget"):
        forebay.Loader(tiny_shards, **TINY, **SMALL, memory_budget=least - 1)
    with forebay.Loader(tiny_shards, **TINY, **SMALL, memory_budget=least) as loader:
        assert len(next(loader)["index"]) == 16
        copy = pickle.loads(pickle.dumps(loader))
        copy.close()
    assert most_bytes(tiny_shards, **TINY, **SMALL, raw_channel_bytes=1000 * MB) == least + 2 * (1000 - 32) * MB
    with pytest.raises(forebay.ConfigError, match="memory_budget is 0, must be 1 to "):
        forebay.Loader(tiny_shards, memory_budget=0)
    with pytest.raises(forebay.ConfigError, match="raw_channel_bytes is -1, must be 1 to "):
        forebay.Loader(tiny_shards, raw_channel_bytes=-1)


def test_a_large_plan_is_logged_once(tiny_shards: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="forebay")

    def lines(**parameters: Any) -> list[str]:
        caplog.clear()
        with forebay.Loader(tiny_shards, label_column=None, **parameters):
            return [record.getMessage() for record in caplog.records if "plans to hold" in record.getMessage()]

    assert lines(**TINY) == []
    # A hundred spectrograms of an hour with 184 MB each, and 7 batches of one.
    [line] = lines(clip_seconds=3600.0, order="global", batch_size=1)
    assert re.search(r"plans to hold 19\d{3} MB( of the \d+ MB here)?: 100 decoded examples of \d+ kB", line), line
    assert lines(clip_seconds=3600.0, order="global", batch_size=1, memory_budget=1 << 42) == []


# Runs in a child process: JSON in, resident bytes at a hundred points out. `leak` keeps every batch.
PROGRAM = """
import json, re, sys
from pathlib import Path
import numpy
import forebay

path, parameters, n_batches, leak = json.loads(sys.argv[1])

def resident():
    return int(re.search("VmRSS:[^0-9]*([0-9]+) kB", Path("/proc/self/status").read_text())[1]) << 10

before, found, kept = resident(), [], []
with forebay.Loader(path, **parameters) as loader:
    for i in range(n_batches):
        batch = next(loader)
        if leak:
            kept.append(batch)
        if i % max(1, n_batches // 100) == 0:
            found.append(resident())
print(json.dumps([before, found]))
"""


def resident(path: Path, parameters: dict[str, Any], n_batches: int, *, leak: bool = False) -> tuple[int, list[int]]:
    """Resident bytes before the loader's construction, and at points of its run."""
    arguments = json.dumps([str(path), parameters, n_batches, leak])
    run = subprocess.run([sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    before, found = json.loads(run.stdout)
    return before, found


def growth(found: list[int]) -> float:
    """Growth in bytes by least squares, without the first three tenths of the run, in which buffers fill."""
    found = found[30:]
    n = len(found)
    mean = (n - 1) / 2
    slope = sum((i - mean) * value for i, value in enumerate(found)) / sum((i - mean) ** 2 for i in range(n))
    return slope * n


@pytest.mark.parametrize("n_workers", [2, "auto"])
def test_memory_stays_flat(n_workers: int | str, tiny_shard: Path, soak: int) -> None:
    """4 * 10^5 examples, times soak, leak at most two bytes each."""
    parameters = {**TINY, **SMALL, "n_workers": n_workers, "batch_size": 50}
    _, found = resident(tiny_shard, parameters, 8000 * soak)
    assert abs(growth(found)) < 2 * 0.7 * 400_000 * soak, found


def test_a_leak_would_show(tiny_shard: Path) -> None:
    """The method detects a leak of 192 bytes and more per example."""
    _, found = resident(tiny_shard, {**TINY, **SMALL, "batch_size": 50}, 2000, leak=True)
    assert growth(found) > 100 * 0.7 * 100_000, found


def test_memory_stays_below_what_is_configured(tmp_path: Path) -> None:
    """Clips of 5 s of real recordings take at most the buffers and 30 MB a thread."""
    names = ["aru_2.wav", "21100_36_48.ogg", "21100_36_48.mp3", "21100_36_48.flac", "jfk.mp3"]
    rows = [Row((FOLDER / names[i % len(names)]).read_bytes()) for i in range(200)]
    shard = write_shard(tmp_path / "recordings.arrow", rows)
    parameters = {**SMALL, "raw_channel_bytes": 16 * MB}
    before, found = resident(shard, parameters, 50)
    n_threads = 4
    example = 4 * 128 * 501
    buffers = (192 + 192) * example + 7 * 16 * example + 2 * 16 * MB
    assert max(found) - before < buffers + n_threads * 30 * MB, (before, found)
    # The loader's own bound adds unused blocks and whole huge pages.
    assert buffers + n_threads * 30 * MB <= most_bytes(shard, **parameters) <= 1.5 * (buffers + n_threads * 30 * MB)
