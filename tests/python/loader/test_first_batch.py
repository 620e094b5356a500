"""The first batch waits neither for a full window nor for whole shards, and memory does not grow with the shards.

Tests use counts where possible. Time limits are three times the goal, because the machine may be busy, or a few batches
of the same process on slow machines. Memory limits are the goal.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import forebay
from forebay import _core
from recordings import FOLDER, TINY, Row, tiny_rows, write_shard
from timing import claim, timed

# Runs in a child process, so that neither imports nor other tests count: JSON in, figures out.
PROGRAM = """
import json, re, sys, time
from pathlib import Path
import numpy
import forebay

paths, parameters, n_batches = json.loads(sys.argv[1])
begin = time.perf_counter()
with forebay.Loader(paths, **parameters) as loader:
    built = time.perf_counter()
    rows = len(next(loader)["index"])
    first = time.perf_counter()
    for _ in range(n_batches - 1):
        next(loader)
    last = time.perf_counter()
    n_records = loader.num_records
# Not from getrusage(), whose peak includes the memory of the forking process.
peak_mb = int(re.search("VmHWM:[^0-9]*([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps({
    "built_s": built - begin, "first_s": first - built, "next_s": (last - first) / max(n_batches - 1, 1),
    "rows": rows, "n_records": n_records, "peak_mb": peak_mb,
}))
"""

Figures = dict[str, float]


def measure(paths: list[Path], n_batches: int = 1, **parameters: object) -> Figures:
    """Seconds for construction, the first batch and each later batch, and peak memory, of a new process."""
    arguments = json.dumps([[str(path) for path in paths], parameters, n_batches])
    run = subprocess.run([sys.executable, "-c", PROGRAM, arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures: Figures = json.loads(run.stdout)
    return figures


@pytest.mark.parametrize("batch_size", [16, 64, 256])
@timed
def test_decoded_records(batch_size: int, tiny_shard: Path) -> None:
    # A batch takes four workers 1.3 s, much longer than a busy machine deschedules the collator.
    _core._inject_delays(fixed_ms=5120 // batch_size)
    with forebay.Loader(tiny_shard, n_workers=4, batch_size=batch_size, **TINY) as loader:
        assert len(next(loader)["index"]) == batch_size
        stats = loader.stats()
    claim(stats["decoded_at_first_batch"] <= 3 * batch_size, stats)


@pytest.fixture(scope="module")
def recordings_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 000 rows with paths of the bundled mono recordings, enough for the default window."""
    names = ["aru_2.wav", "21100_36_48.ogg", "21100_36_48.mp3", "21100_36_48.flac", "237-134500-0002.flac"]
    rows = [Row(None, path=str(FOLDER / names[i % len(names)])) for i in range(12_000)]
    path = tmp_path_factory.mktemp("paths") / "paths.arrow"
    return write_shard(path, rows, rows_per_batch=1000, classes=None)


@timed
def test_time_without_a_window(recordings_shard: Path) -> None:
    figures = measure([recordings_shard], 7, shuffle_buffer_size=64, shuffle_min_size=0, allow_paths=str(FOLDER))
    assert figures["rows"] == 64
    claim(figures["first_s"] < max(3 * 0.15, 3 * figures["next_s"]), figures)


@timed
def test_time_with_the_default_window(recordings_shard: Path) -> None:
    """The first batch with the default window, which 125 batches fill."""
    figures = measure([recordings_shard], 7, allow_paths=str(FOLDER))
    assert figures["rows"] == 64
    claim(figures["first_s"] < max(3 * 1.0, 10 * figures["next_s"]), figures)


@pytest.fixture(scope="module")
def half_a_million(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """500 000 rows of 20 ms in five shards of 100 record batches: 190 MB."""
    folder = tmp_path_factory.mktemp("many")
    recordings = [row.audio for row in tiny_rows(1000)]
    audio = pa.StructArray.from_arrays(
        [pa.array(recordings, pa.binary()), pa.nulls(len(recordings), pa.string())], ["bytes", "path"]
    )
    labels = pa.array(np.arange(len(recordings)) % 4)
    batch = pa.RecordBatch.from_arrays([audio, labels], ["audio", "label"])
    paths = [folder / f"{i}.arrow" for i in range(5)]
    for path in paths:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
            for _ in range(100):
                writer.write_batch(batch)
    return paths


@timed
def test_half_a_million_rows(half_a_million: list[Path]) -> None:
    figures = measure(half_a_million, **TINY)
    assert (figures["n_records"], figures["rows"]) == (500_000, 64)
    assert figures["peak_mb"] < 250, figures
    claim(figures["built_s"] + figures["first_s"] < 3 * 2.0, figures)


def test_memory_with_small_buffers(recordings_shard: Path) -> None:
    """Peak memory with clips of 5 s, a window of 128 examples of 256 KB, and 30 batches to detect a leak."""
    figures = measure(
        [recordings_shard],
        30,
        shuffle_buffer_size=192,
        shuffle_min_size=128,
        raw_channel_size=32,
        allow_paths=str(FOLDER),
    )
    assert figures["peak_mb"] < 250, figures
