"""Recordings in Parquet files by `datasets` give the same batches as Arrow shards of the same rows."""

import json
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from recordings import CLASSES, TINY, Row, tiny_rows, write_shard

Shards = tuple[list[Path], list[Path]]
SMALL: dict[str, Any] = {
    **TINY, "seed": 4, "batch_size": 16, "shuffle_buffer_size": 80, "shuffle_min_size": 40,
}  # fmt: skip


def write_both(folder: Path, shards: list[list[Row]], **parameters: Any) -> Shards:
    """Writes each shard in Arrow, and with `to_parquet` in row groups of 16."""
    arrow = [write_shard(folder / f"{n}.arrow", rows, **parameters) for n, rows in enumerate(shards)]
    parquet = [path.with_suffix(".parquet") for path in arrow]
    for source, target in zip(arrow, parquet, strict=True):
        datasets.Dataset.from_file(str(source)).to_parquet(str(target), batch_size=16)
    return arrow, parquet


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """200 rows in three shards; every 20th is bad."""
    rows = tiny_rows(200)
    rows[::20] = [Row(b"no recording" if i % 40 else None, i % 4, f"bad/{i}.wav") for i in range(0, 200, 20)]
    return write_both(tmp_path_factory.mktemp("both"), [rows[:90], rows[90:91], rows[91:]])


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("order", ["sequential", "window", "global", "era"])
def test_the_same_batches(shards: Shards, order: str, infinite: bool) -> None:
    parameters = {**SMALL, "order": order, "infinite": infinite, **({"era_length": 50} if order == "era" else {})}
    found = []
    for files, n_workers in zip(shards, [1, 3], strict=True):
        with forebay.Loader(files, n_workers=n_workers, **parameters) as loader:
            assert loader.class_names == CLASSES
            assert loader.num_records == 200
            batches = list(islice(loader, 30))
            bad = [(error["index"], error["row"], error["kind"], error["path"]) for error in loader.errors()]
            found.append(([digest(batch) for batch in batches], bad))
    assert found[0] == found[1]
    assert len(found[1][0]) == (30 if infinite else 13)
    assert len(found[1][1]) == 10
    assert {"bad/20.wav", "bad/40.wav"} <= {path for *_, path in found[1][1]}


def test_resume_and_ranks(shards: Shards) -> None:
    arrow, parquet = shards
    parameters = {**SMALL, "n_streams": 2}
    with forebay.Loader(parquet, **parameters) as loader:
        for _ in range(4):
            next(loader)
        state = json.loads(json.dumps(loader.state_dict()))
        expected = [next(loader) for _ in range(8)]
        copy = pickle.loads(pickle.dumps(loader))
    copy.close()
    parts = []
    for rank in range(2):
        with forebay.Loader(parquet, rank=rank, world_size=2, **{**parameters, "batch_size": 8}) as loader:
            loader.load_state_dict(state)
            parts.append([next(loader) for _ in range(8)])
    for batch, first, second in zip(expected, *parts, strict=True):
        whole = {name: np.concatenate([first[name], second[name]]) for name in batch}
        assert digest(whole) == digest(batch)
    # The same rows in other files have another fingerprint.
    with forebay.Loader(arrow, **parameters) as loader, pytest.raises(forebay.StateError, match="fingerprint"):
        loader.load_state_dict(state)


def test_a_mixture(shards: Shards) -> None:
    found = []
    for files in shards:
        with forebay.Loader({"a": files[:2], "b": files[2:]}, weights={"a": 0.75, "b": 0.25}, **SMALL) as loader:
            assert loader.source_names == ["a", "b"]
            found.append([digest(next(loader)) for _ in range(20)])
    assert found[0] == found[1]


def test_paths_beside_the_file(tmp_path: Path) -> None:
    """Rows may hold only a path, relative to their file, and no label."""
    rows = tiny_rows(20)
    (tmp_path / "audio").mkdir()
    for i, row in enumerate(rows):
        assert row.audio is not None
        (tmp_path / "audio" / f"{i}.wav").write_bytes(row.audio)
    linked = [Row(None, path=f"audio/{i}.wav") for i in range(20)]
    # `to_parquet` would embed the files.
    arrow = write_shard(tmp_path / "a.arrow", linked, classes=None)
    table = datasets.Dataset.from_file(str(arrow)).data.table
    pq.write_table(table, tmp_path / "a.parquet")
    found = []
    for path in (arrow, tmp_path / "a.parquet"):
        with forebay.Loader(path, **SMALL, order="sequential", infinite=False) as loader:
            batches = list(loader)
            assert "label" not in batches[0]
            found.append([digest(batch) for batch in batches])
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_what_does_not_go_together(shards: Shards, tmp_path: Path) -> None:
    arrow, parquet = shards
    with pytest.raises(forebay.ConfigError, match=r"0\.parquet is Parquet and .*0\.arrow is not"):
        forebay.Loader([arrow[0], parquet[0]], **SMALL)
    with pytest.raises(forebay.ConfigError, match="mmap=True maps Arrow shards"):
        forebay.Loader(parquet, mmap=True, **SMALL)
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        forebay.Loader(tmp_path / "none.parquet", **SMALL)
    with pytest.raises(forebay.ConfigError, match="sound"):
        forebay.Loader(parquet, audio_column="sound", **SMALL)
    (tmp_path / "short.parquet").write_bytes(parquet[0].read_bytes()[:-30])
    with pytest.raises(forebay.ConfigError, match=r"short\.parquet"):
        forebay.Loader(tmp_path / "short.parquet", **SMALL)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.list_(pa.uint8()), "may be the bytes of files"),
        (pa.list_(pa.int8()), "may be the bytes of files"),
        (pa.list_(pa.int16()), "may be samples"),
        (pa.large_list(pa.float32()), "may be samples"),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_recordings_as_lists_are_refused_with_advice(kind: pa.DataType, told: str, ending: str, tmp_path: Path) -> None:
    table = pa.table({"audio": pa.array([[1, 2, 3]], kind), "bytes": pa.array([b"abc"], pa.binary(3))})
    path = tmp_path / f"lists.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as shard:
            shard.write_table(table)
    with pytest.raises(forebay.ConfigError, match=f"holds no recordings.* {told}"):
        forebay.Loader(path, **SMALL)
    with pytest.raises(forebay.ConfigError, match="cast it to binary"):
        forebay.Loader(path, audio_column="bytes", **SMALL)
    # The advice, followed, gives the bytes.
    if "bytes" in told:
        row = np.frombuffer(tiny_rows(1)[0].audio or b"", "u1").view(kind.value_type.to_pandas_dtype())
        lists = pa.chunked_array([pa.array([row], kind)])
        table = pa.table({"audio": pa.array(map(bytes, lists.to_numpy()), pa.binary())})
        pq.write_table(table, tmp_path / "bytes.parquet")
        assert next(forebay.Loader(tmp_path / "bytes.parquet", **{**SMALL, "batch_size": 1}))["spectrogram"].any()
