"""Recordings in Parquet files by `datasets` give the same batches as Arrow shards of the same rows."""

import json
import pickle
import re
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


def test_shards_without_an_ending(shards: Shards, tmp_path: Path) -> None:
    """What the cache of a hub has: the first bytes say what they are."""
    found = []
    for kind, paths in zip(("arrow", "parquet"), shards, strict=True):
        links = [tmp_path / f"{kind}{n}" for n in range(len(paths))]
        for link, path in zip(links, paths, strict=True):
            link.symlink_to(path)
        with forebay.Loader(links, **SMALL, infinite=False, order="sequential") as loader:
            found.append([digest(batch) for batch in loader])
    assert len(found[0]) > 5
    assert found[0] == found[1]
    with pytest.raises(forebay.ConfigError, match="are all of one format"):
        forebay.Loader([shards[0][0], tmp_path / "parquet1"], **SMALL)


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
    with pytest.raises(forebay.ConfigError, match=r"0\.arrow is Arrow and .*0\.parquet is Parquet; the shards"):
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


RATE = 8000
ENDINGS = ["parquet", "arrow", "lz4"]


def written(folder: Path, ending: str, columns: dict[str, Any], **metadata: str) -> Path:
    """Writes a table in Parquet with small pages, or in Arrow, also compressed, in batches of 7 rows."""
    table = pa.table(columns).replace_schema_metadata(metadata or None)
    path = folder / f"{ending}.{'parquet' if ending == 'parquet' else 'arrow'}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=7, data_page_size=512)
        return path
    options = pa.ipc.IpcWriteOptions(compression="lz4" if ending == "lz4" else None)
    with pa.ipc.new_stream(path, table.schema, options=options) as shard:
        shard.write_table(table, max_chunksize=7)
    return path


def audio_of(n: int) -> list[bytes]:
    """WAV files of different lengths."""
    rows = [row.audio for row in tiny_rows(n)]
    return [audio[: 44 + 2 * (100 + i)] for i, audio in enumerate(rows) if audio is not None]


def integers(audio: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The samples of a WAV file."""
    return np.frombuffer(audio[44:], "<i2")


def held(path: Path, **parameters: Any) -> list[np.ndarray[Any, Any]]:
    """The waveforms of all rows."""
    with forebay.AudioDataset(path, sample_rate=RATE, features=None, label_column="", **parameters) as data:
        return [data.waveform(i)[0] for i in range(len(data))]


KINDS: dict[str, Any] = {
    "int8": lambda audio, kind: pa.array([np.frombuffer(row, "i1") for row in audio], kind(pa.int8())),
    "uint8": lambda audio, kind: pa.array([np.frombuffer(row, "u1") for row in audio], kind(pa.uint8())),
    "int16": lambda audio, kind: pa.array([integers(row) for row in audio], kind(pa.int16())),
    "float32": lambda audio, kind: pa.array([integers(row) / np.float32(32768) for row in audio], kind(pa.float32())),
    "float64": lambda audio, kind: pa.array([integers(row) / 32768 for row in audio], kind(pa.float64())),
}


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("item", KINDS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_recordings_as_lists_are_those_of_files(item: str, kind: Any, ending: str, tmp_path: Path) -> None:
    """In every order, also read alone, and as spans; nulls are bad rows."""
    audio = audio_of(40)
    rates = pa.array([RATE] * 40, pa.int64())
    plain = written(tmp_path, "parquet", {"audio": audio, "label": [0] * 40}).rename(tmp_path / "plain.parquet")
    lists = written(tmp_path, ending, {"audio": KINDS[item](audio, kind), "sampling_rate": rates, "label": [0] * 40})
    for expected, found in zip(held(plain), held(lists), strict=True):
        np.testing.assert_array_equal(found, expected)
    small = {**SMALL, "infinite": False, "clip_seconds": 0.01, "batch_size": 8}
    for order in ("sequential", "global", "window"):
        batches = []
        for path in (plain, lists):
            with forebay.Loader(path, **small, order=order) as loader:
                batches.append([digest(batch) for batch in loader])
                assert not loader.errors()
        assert batches[0] == batches[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_lists_of_ranks_and_after_a_resume(ending: str, tmp_path: Path) -> None:
    table = {"audio": KINDS["float32"](audio_of(60), pa.list_), "sampling_rate": [RATE] * 60}
    path = written(tmp_path, ending, table)
    parameters = {**SMALL, "n_streams": 2, "order": "window"}
    with forebay.Loader(path, **parameters) as loader:
        next(loader)
        state = loader.state_dict()
        expected = [next(loader) for _ in range(5)]
    parts = []
    for rank in range(2):
        with forebay.Loader(path, rank=rank, world_size=2, **{**parameters, "batch_size": 8}) as loader:
            loader.load_state_dict(state)
            parts.append([next(loader) for _ in range(5)])
    for batch, first, second in zip(expected, *parts, strict=True):
        assert digest({name: np.concatenate([first[name], second[name]]) for name in batch}) == digest(batch)


@pytest.mark.parametrize("ending", ENDINGS)
def test_samples_in_structs_of_several_channels_and_of_many_rates(ending: str, tmp_path: Path) -> None:
    """As `datasets` decodes them; a rate of the row, of the schema, or of the parameter."""
    mono = [integers(row) / np.float32(32768) for row in audio_of(20)]
    rows = [{"path": "x.wav", "array": row, "sampling_rate": RATE} for row in mono]
    kind = pa.struct({"path": pa.string(), "array": pa.list_(pa.float32()), "sampling_rate": pa.int32()})
    structs = written(tmp_path, ending, {"audio": pa.array(rows, kind)})
    for found, row in zip(held(structs), mono, strict=True):
        np.testing.assert_array_equal(found[0], row)
    stereo = [np.stack([row, -row]) for row in mono]
    for kind in (pa.list_(pa.list_(pa.float32())), pa.list_(pa.list_(pa.float32()), 2)):
        lists = written(tmp_path, ending, {"sound": pa.array([list(row) for row in stereo], kind)})
        for found, row in zip(held(lists, audio_column=f"sound@{RATE}"), stereo, strict=True):
            np.testing.assert_array_equal(found, row)
    features = json.dumps({"info": {"features": {"audio": {"_type": "Audio", "sampling_rate": RATE}}}})
    table = {"audio": pa.array(mono, pa.list_(pa.float32()))}
    known = written(tmp_path, ending, table, huggingface=features)
    for found, row in zip(held(known), mono, strict=True):
        np.testing.assert_array_equal(found[0], row)
    rates = [RATE if i % 2 else 2 * RATE for i in range(20)]
    many = written(tmp_path, ending, {**table, "sampling_rate": rates})
    with forebay.AudioDataset(many, sample_rate=RATE, features=None) as data:
        assert [data.info(i)["sample_rate"] for i in range(20)] == rates
        assert [data.info(i)["n_samples"] for i in range(20)] == [len(row) for row in mono]


@pytest.mark.parametrize("ending", ENDINGS)
def test_binary_of_fixed_length(ending: str, tmp_path: Path) -> None:
    audio = [row.audio or b"" for row in tiny_rows(30)]
    plain = written(tmp_path, "parquet", {"audio": audio}).rename(tmp_path / "plain.parquet")
    fixed = written(tmp_path, ending, {"audio": pa.array([*audio[:-1], None], pa.binary(len(audio[0])))})
    with pytest.raises(forebay.DecodeError, match="neither bytes nor a path"):
        held(fixed)
    expected = held(plain)
    with forebay.AudioDataset(fixed, sample_rate=RATE, features=None) as data:
        for i in range(29):
            np.testing.assert_array_equal(data.waveform(i)[0], expected[i])


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("row", "rate", "kind", "told"),
    [
        (None, RATE, "unreadable", "neither bytes nor a path"),
        ([], RATE, "empty", "no samples|no bytes"),
        ([0.5, None, 0.25], RATE, "corrupt", "null in it"),
        ([0.5, float("nan")], RATE, "non_finite", "NaN"),
        ([0.5], None, "corrupt", "sampling rate of the row is null"),
        ([0.5], 0, "corrupt", "sampling rate of the row is 0 Hz"),
        ([0.5], -3, "corrupt", "sampling rate of the row is -3 Hz"),
        ([0.5], 2**31, "unsupported|corrupt", "Hz|per second"),
    ],
)
def test_bad_rows_of_samples(
    row: list[float] | None, rate: int | None, kind: str, told: str, ending: str, tmp_path: Path
) -> None:
    good = [integers(audio) / 32768 for audio in audio_of(20)]
    table = {
        "audio": pa.array([*good[:9], row, *good[9:]], pa.list_(pa.float32())),
        "sampling_rate": pa.array([RATE] * 9 + [rate] + [RATE] * 11, pa.int64()),
    }
    path = written(tmp_path, ending, table)
    with forebay.Loader(path, **{**SMALL, "infinite": False, "order": "sequential", "batch_size": 4}) as loader:
        n = sum(len(batch["index"]) for batch in loader)
        [error] = loader.errors()
    assert (n, error["row"]) == (20, 9)
    assert re.fullmatch(kind, error["kind"]), error
    assert re.search(told, error["reason"]), error


@pytest.mark.parametrize("ending", ENDINGS)
def test_bad_channels(ending: str, tmp_path: Path) -> None:
    rows = [[[0.5, 0.25]], [[0.5, 0.25], [0.5]], [[0.5], None], [[0.5]] * 300, []]
    path = written(tmp_path, ending, {"audio": pa.array(rows, pa.list_(pa.list_(pa.float64())))})
    with forebay.AudioDataset(path, sample_rate=RATE, features=None, audio_column=f"audio@{RATE}") as data:
        assert data.waveform(0)[0].shape[-1] == 2
        for row, told in enumerate(["2 samples and channel 1 has 1", "null in it", "300 lists", "no samples|no bytes"]):
            with pytest.raises(forebay.DecodeError, match=told):
                data.waveform(row + 1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_lists_without_a_rate_or_of_other_types_are_refused(ending: str, tmp_path: Path) -> None:
    lists = pa.list_
    for kind, told in [
        (lists(pa.int32()), "holds no recordings.*cast them to float32"),
        (lists(lists(pa.uint8())), "holds no recordings"),
        (lists(lists(lists(pa.float32()))), "holds no recordings"),
        (lists(pa.float16()), "holds no recordings.*cast them to float32"),
        (pa.int64(), "holds no recordings"),
        (lists(pa.float32()), "without their rate.*audio@16000"),
    ]:
        path = written(tmp_path, ending, {"audio": pa.array([None], kind)})
        with pytest.raises(forebay.ConfigError, match=told):
            forebay.Loader(path, **SMALL)
    path = written(tmp_path, ending, {"audio": [b"RIFF"]})
    with pytest.raises(forebay.ConfigError, match=r"rate 8000 .* for lists of samples"):
        forebay.Loader(path, audio_column="audio@8000", **SMALL)
    with pytest.raises(forebay.ConfigError, match="no such column"):
        forebay.Loader(path, audio_column="audio@fast", **SMALL)


def test_a_row_of_many_pages_of_equal_values_is_bounded(tmp_path: Path) -> None:
    """A few bytes of a page may stand for any number of values, and a row may have many pages."""
    silent = np.zeros(40_000_000, np.float32)
    table = pa.table({"audio": pa.array([silent], pa.list_(pa.float32())), "sampling_rate": [RATE]})
    path = tmp_path / "silent.parquet"
    pq.write_table(table, path, data_page_size=1024, write_batch_size=1_000_000, compression="none")
    assert path.stat().st_size < 1_000_000
    with (
        forebay.AudioDataset(path, sample_rate=RATE, features=None, max_record_bytes=1_000_000) as data,
        pytest.raises(forebay.DecodeError, match="a row may have all of them"),
    ):
        data.waveform(0)
