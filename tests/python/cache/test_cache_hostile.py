"""Hostile inputs and metadata of caches raise an error or leave out a document, and never end the process."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forebay import ConfigError, DecodeError, ForebayError, SpectrogramTransform, TokenLoader, cache
from forebay.tokens import Tokenizer
from paths import DATA
from recordings import Row, tiny_rows, write_shard

TOKENIZER = Tokenizer(DATA / "tokens" / "tokenizer.json")
TRANSFORM = SpectrogramTransform(sample_rate=8000, n_fft=64, hop_length=32, n_mels=8)


def wav(samples: bytes, rate: int) -> bytes:
    """A WAV file of 8-bit samples whose header has any rate."""
    head = struct.pack("<4sI8sIHHIIHH", b"RIFF", 36 + len(samples), b"WAVEfmt ", 16, 1, 1, rate, rate, 1, 8)
    return head + b"data" + struct.pack("<I", len(samples)) + samples


def shard(folder: Path, odd: bytes) -> Path:
    """A shard of four recordings, the third of which is `odd`."""
    rows = tiny_rows(4)
    rows[2] = Row(odd, 2)
    return write_shard(folder / "a.arrow", rows)


@pytest.mark.parametrize(
    ("odd", "limits", "reason"),
    [
        (wav(bytes(100_000), 1), {}, "the recording has 100000.0 s, max_decoded_seconds allows 86400"),
        (wav(bytes(80_000), 1), {}, "80000 samples at 1 Hz, which makes 640000000 at the transform's 8000 Hz"),
        (wav(bytes(525), 1), {}, "above 4194304, resampling to more than 32 times the rate is refused"),
        (wav(bytes(240_000), 8000), {"max_decoded_seconds": 29.5}, "has 30.0 s, max_decoded_seconds allows 29.5"),
        (wav(bytes(240_000), 8000), {"max_record_bytes": 1000}, "has 240044 bytes, max_record_bytes allows 1000"),
    ],
)
def test_recordings_larger_than_allowed(odd: bytes, limits: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = shard(tmp_path, odd)
    with pytest.raises(DecodeError, match=reason):
        cache.build(path, TRANSFORM, tmp_path / "raise", **limits)
    store = cache.build(path, TRANSFORM, tmp_path / "skip", on_error="skip", **limits)
    assert store.flat("label").tolist() == [0, 1, 3]
    [error] = store.errors()
    assert (error["row"], error["kind"]) == (2, "too_large")
    assert reason in error["reason"]


@pytest.mark.parametrize("rate", [8000, 11_025])
@pytest.mark.parametrize("n", [1, 20, 32, 33])
def test_a_recording_shorter_than_a_frame_is_followed_by_zeros(n: int, rate: int, tmp_path: Path) -> None:
    samples = bytes(range(100, 100 + n))
    store = cache.build(shard(tmp_path, wav(samples, rate)), TRANSFORM, tmp_path / "cache")
    found = store[2]["spectrogram"]
    assert found.shape == (8, 2)
    if rate == 8000:
        waveform = np.zeros(33, np.float32)
        waveform[:n] = (np.frombuffer(samples, np.uint8).astype(np.float32) - 128) / 128
        np.testing.assert_array_equal(found, TRANSFORM.transform(waveform))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_record_bytes": 0}, "max_record_bytes is 0, must be 1 to 2147483647"),
        ({"max_record_bytes": 2**31}, "max_record_bytes is 2147483648, must be 1 to 2147483647"),
        ({"max_decoded_seconds": 0.0}, "max_decoded_seconds is 0.0, must be above 0 and at most 1e9"),
        ({"max_decoded_seconds": float("nan")}, "max_decoded_seconds is NaN"),
    ],
)
def test_limits_have_ranges(limits: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with pytest.raises(ConfigError, match=message):
        cache.build(path, TOKENIZER, tmp_path / "cache", **limits)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_length_that_nothing_backs(codec: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["x" * 5000]})
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    bytes_ = path.read_bytes()
    begin = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}[codec]
    assert bytes_.count(struct.pack("<q", 5000) + begin) == 1
    path.write_bytes(bytes_.replace(struct.pack("<q", 5000) + begin, struct.pack("<q", 4 << 40) + begin))
    with pytest.raises(DecodeError, match="claims 4398046511104; with max_record_bytes=1073741824"):
        cache.build(path, TOKENIZER, tmp_path / "cache", on_error="skip")


def test_a_text_of_a_table_larger_than_allowed_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["a", "b" * 2000, "c"]})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    store = cache.build(path, TOKENIZER, tmp_path / "cache", on_error="skip", max_record_bytes=1000)
    assert [(error["row"], error["kind"]) for error in store.errors()] == [(1, "too_large")]
    assert len(store) == 2


@pytest.mark.parametrize("ending", ["txt", "txt.gz"])
def test_a_line_larger_than_allowed_is_left_out(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    text = b"a\n" + b"x" * 1000 + b"\r\n" + b"x" * 1001 + b"\n" + b"x" * 5_000_000 + b"\nb\n" + b"x" * 2000
    path.write_bytes(gzip.compress(text) if ending == "txt.gz" else text)
    store = cache.build(path, TOKENIZER, tmp_path / "cache", on_error="skip", max_record_bytes=1000)
    found = [(error["row"], error["kind"]) for error in store.errors()]
    assert found == [(2, "too_large"), (3, "too_large"), (5, "too_large")]
    assert len(store) == 3
    with pytest.raises(DecodeError, match="line 3 has 1002 bytes, max_record_bytes allows 1000"):
        cache.build(path, TOKENIZER, tmp_path / "raise", max_record_bytes=1000)


def test_a_wide_window_of_zstd_is_named(tmp_path: Path) -> None:
    """A file by `zstd --long=31` gets its own error, which once was that of a broken disk."""
    path = tmp_path / "a.txt.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8\x19\x00\x00ab\n")
    with pytest.raises(DecodeError, match="more than 128 MiB of memory to decompress; compress it without --long"):
        cache.build(path, TOKENIZER, tmp_path / "wide")
    # The widest window that is allowed.
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x88\x19\x00\x00ab\n")
    assert len(cache.build(path, TOKENIZER, tmp_path / "cache")) == 1


def test_a_tokenizer_whose_library_panics(tmp_path: Path) -> None:
    """A panic of the tokenizers library makes a document bad; it was once reported as a bug of forebay."""
    tokenizer = tmp_path / "tokenizer.json"
    normalizer = {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
    whole = json.loads((DATA / "tokens" / "tokenizer.json").read_text())
    tokenizer.write_text(json.dumps(whole | {"normalizer": normalizer}))
    reason = "the tokenizers library cannot encode the text: "
    with pytest.raises(DecodeError, match=reason):
        Tokenizer(tokenizer).encode("hello")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["hello", "hello world"]}), path)
    keywords: dict[str, Any] = {"split": "val", "val": str(path), "batch_size": 1, "seq_len": 4, "on_error": "raise"}
    with TokenLoader([path], tokenizer, **keywords) as loader, pytest.raises(DecodeError, match=reason):
        next(loader)
    store = cache.build(path, Tokenizer(tokenizer), tmp_path / "cache", on_error="skip")
    assert [error["kind"] for error in store.errors()] == ["corrupt", "corrupt"]


def damaged(folder: Path, **ledger: Any) -> Path:
    """A cache of ten documents with changes in its ledger and arrays."""
    cache.build({"a": [{"x": np.arange(6.0).reshape(2, 3)}] * 10}, None, folder)
    path = folder / "train" / "shard_ledger.json"
    json_ = json.loads(path.read_text())
    for at, value in ledger.items():
        if at == "rank":
            json_["forebay"]["fields"][0]["rank"] = value
            # Makes the array's metadata consistent with the rank.
            shapes = folder / "train" / "x" / "shapes" / "zarr.json"
            zarr = json.loads(shapes.read_text())
            zarr["shape"][1] = value - 1
            zarr["chunk_grid"]["configuration"]["chunk_shape"] = [2, value - 1]
            zarr["codecs"][0]["configuration"]["chunk_shape"] = [1, value - 1]
            shapes.write_text(json.dumps(zarr))
        else:
            json_[at] = value
    path.write_text(json.dumps(json_))
    return folder


@pytest.mark.parametrize("rank", [65, 2**27 + 1, 2**40, 2**64 - 1])
def test_a_rank_that_no_array_has(rank: int, tmp_path: Path) -> None:
    with pytest.raises(ForebayError, match="a rank of at most 64"):
        cache.TreeStore(damaged(tmp_path, rank=rank))
    with pytest.raises(ForebayError, match="a rank of at most 64"):
        cache.CacheDataset(tmp_path)


@pytest.mark.parametrize("columns", [64, 2**27, 2**40])
def test_columns_that_no_array_has(columns: int, tmp_path: Path) -> None:
    """The ledger of another program's cache has no ranks, so they are derived from the arrays and checked."""
    damaged(tmp_path, rank=columns + 1)
    path = tmp_path / "train" / "shard_ledger.json"
    json_ = json.loads(path.read_text())
    del json_["forebay"]
    path.write_text(json.dumps(json_))
    with pytest.raises(ForebayError, match=r"another program wrote|less than 64 columns"):
        cache.TreeStore(tmp_path)
    with pytest.raises(ForebayError, match="less than 64 columns"):
        len(cache.ForeignDataset(tmp_path).get_batch([0]))


def test_chunks_larger_than_any_memory(tmp_path: Path) -> None:
    damaged(tmp_path)
    path = tmp_path / "train" / "x" / "data" / "zarr.json"
    zarr = json.loads(path.read_text())
    zarr["chunk_grid"]["configuration"]["chunk_shape"] = [2**50]
    zarr["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    path.write_text(json.dumps(zarr))
    with pytest.raises(ForebayError, match="another program wrote"):
        cache.TreeStore(tmp_path)
    with pytest.raises(ForebayError, match=r"its chunks have \d+ bytes, the limit is 1073741824"):
        len(cache.ForeignDataset(tmp_path).get_batch([0]))


def test_metadata_that_would_take_more_than_they_have(tmp_path: Path) -> None:
    damaged(tmp_path)
    path = tmp_path / "train" / "shard_ledger.json"
    path.write_text('{"a": [' + '{"":0},' * 2_000_000 + "0]}")
    with pytest.raises(ForebayError, match=r"its values would take \d+ bytes of memory"):
        cache.TreeStore(tmp_path)


def test_more_values_than_there_is_memory_for(tmp_path: Path) -> None:
    store = cache.TreeStore(damaged(tmp_path, field_counts={"x": 2**47}))
    with pytest.raises(MemoryError, match=r"cannot allocate \d+ MiB of memory"):
        store.flat("x")
    with pytest.raises(IndexError):
        store.flat("x", 0, 2**47 + 1)
    assert store.flat("x", 0, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_an_array_of_more_axes_than_numpy_has(tmp_path: Path) -> None:
    with pytest.raises((ForebayError, ValueError)):
        cache.build({"a": [{"x": [[1]]}]}, lambda _: [{"x": np.zeros((1,) * 65)}], tmp_path)


def test_the_limits_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from forebay.cli import main

    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps({"text": "b" * 2000}) + "\n")
    tokenizer = str(DATA / "tokens" / "tokenizer.json")
    arguments = ["build", str(path), "-o", str(tmp_path / "cache"), "-t", tokenizer, "--max-record-bytes", "1000"]
    assert main(arguments) == 1
    assert "line 2 has 2013 bytes, max_record_bytes allows 1000" in capsys.readouterr().err
    assert main([*arguments, "--on-error", "skip", "--max-decoded-seconds", "1"]) == 0
    assert "1 left out" in capsys.readouterr().err
