"""Limits per record: `max_record_bytes`, `max_decoded_seconds`, and a failed allocation of a worker."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest

import forebay
from recordings import TINY, Row, tiny_rows, write_shard

Order: TypeAlias = Literal["sequential", "global"]
ORDERS: list[Order] = ["sequential", "global"]


def wav(seconds: int) -> bytes:
    """Silence at 8 kHz, 8 bits."""
    size = 8000 * seconds
    head = (
        b"RIFF"
        + (36 + size).to_bytes(4, "little")
        + b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0"
    )
    return head + b"data" + size.to_bytes(4, "little") + bytes([128]) * size


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten rows of 20 ms, and row 4 of 30 s in 240 KB."""
    rows = tiny_rows(10)
    rows[4] = Row(wav(30))
    return write_shard(tmp_path_factory.mktemp("limits") / "a.arrow", rows)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_record_bytes": 1000}, "the record has 240044 bytes, max_record_bytes allows 1000"),
        ({"max_decoded_seconds": 29.5}, "the recording has 30.0 s, max_decoded_seconds allows 29.5"),
    ],
)
@pytest.mark.parametrize("order", ["sequential", "global"])
def test_larger_ones_are_bad_records(limit: dict[str, Any], reason: str, order: str, shard: Path) -> None:
    with forebay.Loader.eval(shard, order=order, batch_size=4, **TINY, **limit) as loader:
        rows = [row for batch in loader for row in batch["index"].tolist()]
        assert sorted(rows) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        [error] = loader.errors()
        assert (error["index"], error["row"], error["kind"], error["reason"]) == (4, 4, "too_large", reason)


def test_what_is_allowed_is_delivered(shard: Path) -> None:
    with forebay.Loader.eval(shard, max_record_bytes=240044, max_decoded_seconds=30.0, **TINY) as loader:
        assert [len(batch["index"]) for batch in loader] == [10]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"max_record_bytes": 0}, "max_record_bytes is 0, must be 1 to 2147483647"),
        ({"max_record_bytes": 2**31}, "max_record_bytes is 2147483648, must be 1 to 2147483647"),
        ({"max_decoded_seconds": 0.0}, "max_decoded_seconds is 0.0, must be above 0 and at most 1e9"),
        ({"max_decoded_seconds": float("nan")}, "max_decoded_seconds is NaN, must be above 0 and at most 1e9"),
    ],
)
def test_limits_out_of_range(limit: dict[str, Any], message: str, shard: Path) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        forebay.Loader(shard, **limit)


def test_another_limit_is_another_stream(shard: Path) -> None:
    with (
        forebay.Loader(shard, batch_size=2, **TINY) as one,
        forebay.Loader(shard, batch_size=2, max_record_bytes=1000, **TINY) as other,
    ):
        next(one)
        with pytest.raises(forebay.StateError, match="max_record_bytes"):
            other.load_state_dict(one.state_dict())


def test_a_worker_without_memory(tmp_path: Path) -> None:
    """A failed allocation raises on each call and does not abort the process; the next loader works."""
    script = """
        import resource, sys
        from pathlib import Path
        import forebay
        huge, small = sys.argv[1:]
        parameters = dict(
            shuffle_min_size=0, shuffle_buffer_size=1, n_workers=1, n_readers=1, batch_size=1, sample_rate=8000,
            n_fft=64, hop_length=3200, n_mels=8, raw_channel_size=1, prefetch_batches=1,
        )
        loader = forebay.Loader(huge, clip_seconds=1200.0, **parameters)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        # With the stacks of the threads: 8 MiB of address space each.
        limit = pages * resource.getpagesize() + (400 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for _ in range(2):
            try:
                next(loader)
            except MemoryError as error:
                print(error)
        loader.close()
        with forebay.Loader(small, clip_seconds=0.02, **{**parameters, "hop_length": 32}) as other:
            print(len(next(other)["index"]))
    """
    # 1200 s at 8 kHz in 16 channels of 8 bits are 154 MB, and 614 MB as float32.
    size = 16 * 8000 * 1200
    head = (
        b"RIFF"
        + (36 + size).to_bytes(4, "little")
        + b"WAVEfmt \x10\0\0\0\x01\0\x10\0\x40\x1f\0\0\0\xf4\x01\0\x10\0\x08\0"
    )
    huge = head + b"data" + size.to_bytes(4, "little") + bytes([128]) * size
    files = [
        write_shard(tmp_path / "huge.arrow", [Row(huge)]),
        write_shard(tmp_path / "small.arrow", tiny_rows(10)),
    ]
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, files)]
    process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert (process.returncode, process.stderr) == (0, "")
    first, second, rows = process.stdout.splitlines()
    assert first == second
    assert "cannot allocate 586 MiB of memory" in first
    assert rows == "1"


@pytest.mark.parametrize("order", ORDERS)
def test_a_dictionary_of_as_many_parts_as_batches(tmp_path: Path, order: Order) -> None:
    """Each batch adds a recording to the dictionary, and has rows of the newest, an earlier and the first one."""
    n = 300
    schema = pa.schema([("audio", pa.dictionary(pa.int32(), pa.binary()))])
    recordings = [row.audio for row in tiny_rows(n)]
    deltas = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema, options=deltas) as writer:
        for i in range(n):
            rows = pa.array([i, i // 2, 0], pa.int32())
            column = pa.DictionaryArray.from_arrays(rows, pa.array(recordings[: i + 1], pa.binary()))
            writer.write_batch(pa.record_batch([column], schema=schema))
    assert path.stat().st_size < n * 2000  # as deltas, not as replacements
    found: dict[int, bytes] = {}
    with forebay.Loader.eval(path, **TINY, batch_size=64, order=order) as loader:
        for batch in loader:
            for row, values in zip(batch["index"], batch["spectrogram"], strict=True):
                found[int(row)] = values.tobytes()
        assert loader.errors() == []
    newest = [found[3 * i] for i in range(n)]
    assert len(set(newest)) > n // 2
    assert [found[3 * i + 1] for i in range(n)] == [newest[i // 2] for i in range(n)]
    assert [found[3 * i + 2] for i in range(n)] == [newest[0]] * n
