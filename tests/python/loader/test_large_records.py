"""Rows of tens of MB: the measured peak memory of a process stays within `memory_budget` in every order.

No thread waits for memory that another one keeps.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from budgets import most_bytes
from forebay.crops import Windows
from forebay.sampling import Weighted
from recordings import TINY, TINY_SAMPLES

MB = 1 << 20
N_ROWS = 14
PARAMETERS: dict[str, Any] = {
    **TINY, "batch_size": 2, "shuffle_buffer_size": 16, "shuffle_min_size": 8, "n_workers": 1, "n_readers": N_ROWS,
    "prefetch_batches": 1, "infinite": False,
}  # fmt: skip
ORDERS = ["sequential", "window", "global", "era"]

# Runs in a child process: passes over a shard, and the peak memory of each above the memory before it.
PROGRAM = """
import json, re, sys
from pathlib import Path
import forebay

path, passes = json.loads(sys.argv[1])

def status(name):
    return int(re.search(name + ":[^0-9]*([0-9]+) kB", Path("/proc/self/status").read_text())[1]) << 10

found = []
for parameters in passes:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = status("VmRSS")
    with forebay.Loader(path, **parameters) as loader:
        rows = sorted(int(row) for batch in loader for row in batch["index"])
        assert not loader.errors(), loader.errors()
    found.append([rows, status("VmHWM") - before])
print(json.dumps(found))
"""


def recordings(size: int, n_samples: int = TINY_SAMPLES) -> Iterator[bytes]:
    """WAV files of noise, `size` bytes of which so many samples are audio.

    A clip of more than half of the samples reads the whole file.
    """
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    noise = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8).tobytes()
    data, junk = 2 * n_samples, size - 2 * n_samples
    for row in range(N_ROWS):
        found = noise[row:] + noise[:row]
        chunks = fmt + b"data" + struct.pack("<I", data) + found[:data]
        chunks += b"JUNK" + struct.pack("<I", junk) + found[data:]
        yield b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def write(path: Path, size: int, compression: str | None = None, rows: int = 1, n_samples: int = TINY_SAMPLES) -> Path:
    """Writes a shard with so many rows per record batch or row group, and one page for each."""
    schema = pa.schema([("audio", pa.binary())])
    found = list(recordings(size, n_samples))
    tables = (pa.table({"audio": found[at : at + rows]}, schema) for at in range(0, len(found), rows))
    if path.suffix == ".parquet":
        with pq.ParquetWriter(
            path, schema, compression=compression or "none", use_dictionary=False, data_page_size=1 << 30
        ) as parquet:
            for table in tables:
                parquet.write_table(table)
    else:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(path, schema, options=options) as arrow:
            for table in tables:
                arrow.write_table(table)
    return path


def peaks(path: Path, orders: list[str]) -> dict[str, int]:
    """The peak memory of a pass in each order, with the smallest `memory_budget` that the loader accepts."""
    passes = []
    for order in orders:
        parameters = {**PARAMETERS, "order": order, **({"era_length": 5} if order == "era" else {})}
        passes.append({**parameters, "memory_budget": most_bytes(path, **parameters)})
    arguments = [sys.executable, "-c", PROGRAM, json.dumps([str(path), passes])]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False)
    path.unlink()  # hundreds of MB
    assert run.returncode == 0, run.stderr
    found = {}
    for order, parameters, (rows, peak) in zip(orders, passes, json.loads(run.stdout), strict=True):
        assert rows == list(range(N_ROWS)), order
        assert peak <= parameters["memory_budget"], (order, peak)
        found[order] = peak
    return found


# All rows at once would take 336 MB; the budgets are 270 MB.
def test_arrow(tmp_path: Path) -> None:
    found = peaks(write(tmp_path / "a.arrow", 24 * MB), ORDERS)
    # Only one or two rows are held at a time: half of the smallest channel is less than one row.
    assert max(found.values()) < 140 * MB, found


def test_compressed_arrow(tmp_path: Path) -> None:
    # The decompressed batch, the one before it, and the compressed bytes.
    found = peaks(write(tmp_path / "a.arrow", 24 * MB, "lz4"), ["sequential", "window"])
    assert max(found.values()) < 190 * MB, found


@pytest.mark.parametrize("compression", [None, "snappy"])
def test_parquet(tmp_path: Path, compression: str | None) -> None:
    found = peaks(write(tmp_path / "a.parquet", 24 * MB, compression), ["sequential", "window"])
    assert max(found.values()) < 190 * MB, found


@pytest.mark.parametrize(("name", "compression"), [("a.arrow", "lz4"), ("a.parquet", "snappy")])
def test_scattered_orders_of_what_is_decompressed(name: str, compression: str, tmp_path: Path) -> None:
    """Each row costs its record batch or row group: 14 unbounded readers would take 3 times 12 MB each.

    The system's allocator must not keep freed memory per I/O thread; with Parquet that was 24 MB a thread.
    """
    found = peaks(write(tmp_path / name, 12 * MB, compression), ["global", "era"])
    assert max(found.values()) < 190 * MB, found


@pytest.mark.parametrize("n_samples", [TINY_SAMPLES, 2 * MB])
def test_batches_are_the_same_however_little_fits(n_samples: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", 6 * MB, n_samples=n_samples)
    for order in ORDERS:
        expected = None
        for n_workers, n_readers, raw_channel_bytes in [(1, 1, 512 * MB), (2, 8, 8 * MB), (8, 14, 1)]:
            parameters = {
                **PARAMETERS, "order": order, "n_workers": n_workers, "n_readers": n_readers,
                "raw_channel_bytes": raw_channel_bytes, **({"era_length": 5} if order == "era" else {}),
            }  # fmt: skip
            with forebay.Loader(path, **parameters) as loader:
                batches = [(batch["index"].tolist(), batch["spectrogram"].tobytes()) for batch in loader]
            assert (expected := expected or batches) == batches, (order, n_workers)


AGAIN: dict[str, dict[str, Any]] = {
    # Some rows have several copies, others none.
    "weights": {"sampling": Weighted([row % 4 for row in range(N_ROWS)], epoch_size=4 * N_ROWS)},
    "windows": {"crop": Windows(), "clip_seconds": 20.0},
}


# Each setting once waited for memory that its reader kept for the next copy or window of a row.
@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize(
    ("name", "compression", "size", "rows"),
    [("a.arrow", None, 6 * MB, 1), ("a.arrow", "zstd", MB, 7), ("a.parquet", "zstd", MB, 7)],
)
def test_rows_that_come_again(
    again: str, name: str, compression: str | None, size: int, rows: int, tmp_path: Path
) -> None:
    n_samples = TINY_SAMPLES if again == "weights" else size // 2
    path = write(tmp_path / name, size, compression, rows, n_samples)
    for order, n_streams in [("window", 1), ("window", 2), ("sequential", None)]:
        expected = None
        for n_readers, raw_channel_bytes in [(1, 512 * MB), (1, 8 * MB), (8, 8 * MB), (8, 1)]:
            parameters = {
                **PARAMETERS, **AGAIN[again], "order": order, "n_streams": n_streams, "n_readers": n_readers,
                "raw_channel_bytes": raw_channel_bytes,
            }  # fmt: skip
            with forebay.Loader(path, **parameters) as loader:
                batches = [(batch["index"].tolist(), batch["spectrogram"].tobytes()) for batch in loader]
                assert not loader.errors(), loader.errors()
            assert (expected := expected or batches) == batches, parameters
        assert expected


@pytest.mark.parametrize("of_file", [False, True])
def test_large_columns_beside_recordings(of_file: bool, tmp_path: Path) -> None:
    """A compressed column of 6 MB is read for one row in some orders, and kept for later rows in others.

    Where the recording is a file of 6 MB, the column is read while the file's memory is held.
    """
    (tmp_path / "large.wav").write_bytes(next(recordings(6 * MB)))
    small = next(recordings(20_000))
    audio = [{"bytes": None if of_file else small, "path": "large.wav"}] * 24
    texts = pa.array([f"{row:2} " * 160_000 for row in range(24)])
    table = pa.table({"audio": audio, "text": texts})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as arrow:
        for at in range(0, 24, 12):
            arrow.write_table(table[at : at + 12])
    for order in ORDERS:
        parameters = {**PARAMETERS, "order": order, **({"era_length": 5} if order == "era" else {})}
        with forebay.Loader(path, columns=["text"], raw_channel_bytes=1, **parameters) as loader:
            found = sorted(text for batch in loader for text in batch["text"])
            assert not loader.errors(), loader.errors()
        assert found == sorted(texts.to_pylist()), order
