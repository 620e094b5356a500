"""`Manifest`, folders and lists of recordings as sources of a loader."""

import gzip
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import forebay
from forebay import Manifest, targets
from recordings import FORMATS, TINY, Row, tiny_rows, write_shard
from tables import BIRDS, by_column, compressed, rows, write_recordings, write_table

ONE_PASS: dict[str, Any] = {**TINY, "batch_size": 8, "infinite": False, "order": "sequential", "augment": False}


def all_rows(source: Any, **changes: Any) -> dict[str, list[Any]]:
    """Every row, by field."""
    with forebay.Loader(source, **{**ONE_PASS, "n_workers": 2, "shuffle_min_size": 0, **changes}) as loader:
        batches = list(loader)
    return {name: [row for batch in batches for row in batch[name]] for name in batches[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_recordings(folder, 20)
    return folder


@pytest.fixture(scope="module")
def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet", "rows", "columns"])
def test_every_kind_of_table_has_the_same_batches(name: str, folder: Path, names: list[str], tmp_path: Path) -> None:
    made = rows(names, segments=True)
    reference = write_table(tmp_path / "reference.csv", made)
    given: dict[str, Any] = {
        "targets": {
            "several": targets.MultiHot("several", classes=BIRDS, separator=","),
            "x": targets.Number("x", null=9),
        },
        "columns": ["bird", "is_good", "text"],
        "outputs": ["path", "valid_samples"],
    }  # fmt: skip
    table: Any = {"rows": made, "columns": by_column(made)}.get(name)
    if table is None:
        table = write_table(tmp_path / name, made)
    expected = all_rows(Manifest(reference, root=folder), **given)
    found = all_rows(Manifest(table, root=folder), **given)
    assert list(expected) == list(found)
    for field in expected:
        assert np.array_equal(np.array(expected[field]), np.array(found[field])), field


def test_a_table_by_its_path_alone(folder: Path, names: list[str], tmp_path: Path) -> None:
    found = []
    for ending in (".tsv", ".tab"):
        copy = shutil.copytree(folder, tmp_path / ending[1:])
        table = write_table(copy / "t.tsv", rows(names)).rename(copy / f"t{ending}")
        found.append(all_rows(table, outputs=["path"]))
    np.testing.assert_array_equal(found[0]["spectrogram"], found[1]["spectrogram"])
    assert found[0]["path"] == found[1]["path"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_a_compressed_table_is_the_table(
    folder: Path, names: list[str], tmp_path: Path, ending: str, codec: str
) -> None:
    table = write_table(tmp_path / f"t{ending}", rows(names, segments=True))
    packed = compressed(table, codec)
    columns = ["index_in_table", "bird", "x", "text"]
    expected, found = (
        all_rows(Manifest(path, root=folder), columns=columns, outputs=["path"]) for path in (table, packed)
    )
    assert expected.keys() == found.keys()
    for field in expected:
        np.testing.assert_array_equal(np.array(found[field]), np.array(expected[field]), field)
    with forebay.Loader(Manifest(table, root=folder), **ONE_PASS) as loader:
        next(loader)
        state = loader.state_dict()
    with forebay.Loader(Manifest(packed, root=folder), **ONE_PASS) as loader:
        loader.load_state_dict(state)
        assert next(loader)["index"].tolist() == [*range(8, 16)]


def test_wrong_compressed_tables(names: list[str], tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", rows(names))
    for codec in ("gz", "zst"):
        packed = compressed(table, codec)
        whole = packed.read_bytes()
        packed.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(forebay.DecodeError, match=rf"t\.csv\.{codec}.*stream is cut off"):
            forebay.Loader(packed)
        packed.write_bytes(table.read_bytes())
        with pytest.raises(forebay.DecodeError, match=rf"t\.csv\.{codec}.*as its name says"):
            forebay.Loader(packed)
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"path\n" + bytes([10]) * (257 << 20), 1))
    with pytest.raises(forebay.DecodeError, match=r"bomb\.csv\.gz.*at most 256 MiB of text are read"):
        forebay.Loader(bomb)


def test_a_data_frame_is_a_table(folder: Path, names: list[str], tmp_path: Path) -> None:
    """Of pandas, with empty cells of each kind and times, and of pyarrow."""
    frame = pandas.DataFrame(
        {
            "path": names,
            "label": [None, *["owl", "wren"] * 9, pandas.NA],
            "x": [1.0, np.nan, *range(18)],
            "when": pandas.Timestamp("2026-01-02"),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = all_rows(Manifest(tmp_path / "t.csv", root=folder), columns=["x", "when"])
    table = pa.Table.from_pandas(frame.astype({"when": "string"}))
    for given in (frame, table):
        source = Manifest(given, root=folder)
        assert pickle.loads(pickle.dumps(source)) == source
        found = all_rows(source, columns=["x", "when"])
        assert found["label"] == expected["label"]
        assert set(found["label"]) == {-1, 0, 1}
        assert np.array_equal(found["x"], expected["x"], equal_nan=True)
        assert np.isnan(found["x"]).sum() == 1
        assert {when[:10] for when in found["when"]} == {"2026-01-02"}


def test_a_recipe_says_why_there_is_no_label(folder: Path, names: list[str]) -> None:
    table = Manifest({"path": names, "species": ["owl"] * len(names)}, root=folder)
    line = "label     none: no column has its name; label_column= or targets= names one\n"
    for given, is_told in (
        ({}, True),
        ({"label_column": "species"}, False),
        ({"label_column": ""}, False),
        ({"targets": {}}, False),
        ({"targets": {"kind": targets.ClassIndex("species", classes="data")}}, False),
    ):
        with forebay.Loader(table, **ONE_PASS, **given) as loader:
            assert (line in repr(loader.recipe)) == is_told
            assert ("label" in next(loader)) == (given == {"label_column": "species"})


def test_recordings_in_files_are_those_in_shards(tmp_path: Path) -> None:
    """Bit for bit, whatever the format of the recording."""
    recordings = sorted(FORMATS.iterdir())
    readable = [path for path in recordings if path.suffix in {".wav", ".flac", ".ogg", ".mp3", ".m4a"}]
    shard = write_shard(tmp_path / "shard.arrow", [Row(path.read_bytes(), 0) for path in readable])
    changes = {"clip_seconds": 0.4, "sample_rate": 16000, "augment": True, "order": "global"}
    expected = all_rows([shard], **changes)
    found = all_rows([*readable], **changes)
    assert len(expected["index"]) > 3
    assert [*map(int, found["index"])] == [*map(int, expected["index"])]
    assert all(
        np.array_equal(one, other) for one, other in zip(found["spectrogram"], expected["spectrogram"], strict=True)
    )


def test_a_segment_is_a_recording_of_its_own(tmp_path: Path) -> None:
    """Cut at samples, at any rate: crops, edges and lengths are those of a file with these samples alone."""
    pcm = (FORMATS / "loop.wav").read_bytes()[44:]

    def wav(name: str, samples: bytes) -> str:
        header = (
            b"RIFF" + (36 + len(samples)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
            + b"\x01\x00\x01\x00" + (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little") + b"\x02\x00\x10\x00"
            + b"data" + len(samples).to_bytes(4, "little")
        )  # fmt: skip
        (tmp_path / name).write_bytes(header + samples)
        return name

    wav("whole.wav", pcm[: 2 * 8000])
    spans = [(0, 8000), (100, 101), (4000, 4160), (17, 7999), (7900, 9999), (1234, 2345)]
    segments: list[dict[str, Any]] = [{"path": "whole.wav", "start": start, "end": end} for start, end in spans]
    parts = [{"path": wav(f"{start}.wav", pcm[2 * start : 2 * min(end, 8000)])} for start, end in spans]
    for changes in (
        {"augment": True},
        {"augment": False},
        {"sample_rate": 22050, "augment": True},
        {"features": forebay.features.Waveform(sample_rate=16000)},
    ):
        given: dict[str, Any] = {**changes, "outputs": ["start", "valid_samples"], "seed": 3}
        if "features" in changes:
            given = {"batch_size": 8, "infinite": False, "order": "sequential", "clip_seconds": 0.05, **given}
            kept = {}
        else:
            kept = ONE_PASS
        with (
            forebay.Loader(
                Manifest(segments, root=tmp_path, unit="samples"), **{**kept, "shuffle_min_size": 0, **given}
            ) as one,
            forebay.Loader(Manifest(parts, root=tmp_path), **{**kept, "shuffle_min_size": 0, **given}) as other,
        ):
            for mine, theirs in zip(one, other, strict=True):
                assert mine["index"].tolist() == [*range(len(spans))]
                for name in mine:
                    assert np.array_equal(mine[name], theirs[name]), (name, changes)
    # In seconds.
    seconds = [{**row, "start": row["start"] / 8000, "end": row["end"] / 8000} for row in segments]
    whole, cut = all_rows(Manifest(seconds, root=tmp_path)), all_rows(Manifest(segments, root=tmp_path, unit="samples"))
    assert np.array_equal(whole["spectrogram"], cut["spectrogram"])


def test_a_segment_after_the_end_is_a_bad_record(folder: Path, names: list[str]) -> None:
    made: list[dict[str, Any]] = [{"path": names[0]}, {"path": names[1], "start": 1.0, "end": 2.0}, {"path": None}]
    with forebay.Loader(Manifest(made, root=folder), **ONE_PASS, shuffle_min_size=0) as loader:
        assert [batch["index"].tolist() for batch in loader] == [[0]]
        errors = loader.errors()
    assert [error["kind"] for error in errors] == ["empty", "unreadable"]
    assert "the segment 1 to 2 s has no samples: the recording has 0.020 s" in errors[0]["reason"]
    assert errors[0]["path"] == names[1]
    assert "the row has no path" in errors[1]["reason"]


def test_folders_have_classes(tmp_path: Path) -> None:
    for bird, n in (("wren", 3), ("owl", 2)):
        write_recordings(tmp_path / "data" / bird, n)
    with forebay.Loader(tmp_path / "data", **ONE_PASS, shuffle_min_size=0, outputs=["path", "shard", "row"]) as loader:
        assert loader.class_names == ["owl", "wren"]
        (batch,) = loader
        assert batch["label"].tolist() == [0, 0, 1, 1, 1]
        assert batch["path"] == ["owl/000 one.wav", "owl/001 one.wav", *(f"wren/00{i} one.wav" for i in range(3))]
        assert batch["row"].tolist() == [0, 1, 2, 3, 4]
        assert [shard["path"] for shard in loader.shards] == [str(tmp_path / "data")]
    pattern = str(tmp_path / "data" / "*" / "00[01]*.wav")
    assert len(all_rows(pattern)["index"]) == 4
    with pytest.raises(forebay.ConfigError, match="no columns; give a table"):
        forebay.Loader(tmp_path / "data", columns=["x"])


def test_metadata_of_a_folder(tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "train", 4)
    write_table(
        tmp_path / "train" / "metadata.csv",
        [{"file_name": names[2], "label": "b"}, {"file_name": names[0], "label": "a"}],
    )
    with forebay.Loader(tmp_path / "train", **ONE_PASS, shuffle_min_size=0, outputs=["path"]) as loader:
        (batch,) = loader
        assert [*batch["path"]] == [names[2], names[0]]
        assert batch["label"].tolist() == [1, 0]
        assert loader.class_names == ["a", "b"]


def test_an_edited_table_is_named_at_resume(folder: Path, names: list[str], tmp_path: Path) -> None:
    made = rows(names)
    path = write_table(tmp_path / "t.csv", made)
    with forebay.Loader(Manifest(path, root=folder), **ONE_PASS, shuffle_min_size=0) as loader:
        next(loader)
        state = loader.state_dict()
    with forebay.Loader(Manifest(path, root=folder), **ONE_PASS, shuffle_min_size=0) as loader:
        loader.load_state_dict(state)
        assert next(loader)["index"].tolist() == [*range(8, 16)]
    write_table(path, [made[1], made[0], *made[2:]])
    with (
        forebay.Loader(Manifest(path, root=folder), **ONE_PASS, shuffle_min_size=0) as loader,
        pytest.raises(forebay.StateError, match="fingerprint"),
    ):
        loader.load_state_dict(state)


def test_what_it_is() -> None:
    manifest = Manifest("a/b.csv", root=Path("c"), start="from", unit="samples", columns=["path", "from"])
    shown = "Manifest('a/b.csv', root='c', start='from', unit='samples', columns=('path', 'from'))"
    assert repr(manifest) == shown
    assert eval(shown, {"Manifest": Manifest}) == manifest
    assert pickle.loads(pickle.dumps(manifest)) == manifest
    assert Manifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest
    assert manifest != Manifest("a/b.csv")
    made = Manifest([{"path": Path("a.wav"), "n": np.int64(3)}] * 2)
    assert repr(made) == "Manifest([{'path': 'a.wav', 'n': 3}, {'path': 'a.wav', 'n': 3}])"
    assert eval(repr(made), {"Manifest": Manifest}) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert "(9 rows)" in repr(Manifest([{"path": "a.wav"}] * 9))
    columns = Manifest({"path": ["a", "b"], "n": np.arange(2)}, root="x")
    assert repr(columns) == "Manifest({'path': ['a', 'b'], 'n': [0, 1]}, root='x')"
    assert eval(repr(columns), {"Manifest": Manifest}) == columns


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"table": ""}, forebay.ConfigError, "table is '', must be the path"),
        ({"table": 3}, TypeError, "table is 3"),
        ({"table": [3]}, TypeError, "a row of table is 3"),
        ({"table": []}, forebay.ConfigError, "table has no rows"),
        ({"table": {"a": [1], "b": []}}, forebay.ConfigError, 'column "a" has 1 rows and column "b" has 0'),
        ({"table": [{"a": 1}, {"a": "x"}]}, forebay.ConfigError, "it is text, and int64 in the rows before"),
        ({"table": [{"a": object()}]}, TypeError, "in row 0 is"),
        ({"table": "a.csv", "unit": "hours"}, forebay.ConfigError, 'unit is "hours", must be one of'),
        ({"table": "a.csv", "root": 3}, TypeError, "root is 3"),
        ({"table": "a.csv", "columns": []}, forebay.ConfigError, "columns is empty"),
        ({"table": [{"a": 1}], "columns": ["a"]}, forebay.ConfigError, "rows are given"),
        ({"table": "a.csv", "path_column": ""}, forebay.ConfigError, "path_column is ''"),
    ],
)
def test_wrong_values(given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error) as raised:
        Manifest(**given)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"start": "1:30"}, '<rows>: row 0: a segment starts or ends at "1:30", expected a number'),
        ({"start": -1.0}, "<rows>: row 0: start is -1, must be 0 or more seconds"),
        ({"start": 1.0, "end": 0.5}, "start is 1 and end is 0.5 seconds, but a segment starts before its end"),
        ({"path": 3}, "<rows>: row 0: the path is 3, expected text"),
        ({"label": 0.5}, "<rows>: the label column is float64; expected names or whole numbers"),
    ],
)
def test_wrong_rows(row: dict[str, Any], told: str) -> None:
    with pytest.raises(forebay.ConfigError, match="^" + re.escape(told) if told.startswith("<") else re.escape(told)):
        forebay.Loader(Manifest([{"path": "a.wav", **row}]), **ONE_PASS)


def test_wrong_sources(folder: Path, names: list[str], tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", tiny_rows(2))
    table = write_table(tmp_path / "t.csv", rows(names))
    with pytest.raises(forebay.ConfigError, match="is a shard, and other sources are recordings in files"):
        forebay.Loader({"a": [shard], "b": Manifest(table, root=folder)}, weights={"a": 1, "b": 1})
    with pytest.raises(forebay.ConfigError, match="mmap=True maps Arrow shards"):
        forebay.Loader(Manifest(table), mmap=True)
    with pytest.raises(forebay.ConfigError, match='path_column of the Manifest is "path"; leave path_column out'):
        forebay.Loader(Manifest(table, path_column="path"), audio_column="file_name")
    with pytest.raises(forebay.ConfigError, match='the column of recordings is "sound", but there is no such column'):
        forebay.Loader(Manifest(table), audio_column="sound")
    with pytest.raises(forebay.ConfigError, match='a column of recordings "sound" is requested'):
        forebay.Loader(folder, audio_column="sound")
    with pytest.raises(FileNotFoundError):
        forebay.Loader(Manifest(tmp_path / "none.csv"))
    with pytest.raises(forebay.ConfigError, match="unpack it first"):
        forebay.Loader(Manifest(write_table(tmp_path / "t.csv", rows(names)).rename(tmp_path / "t.csv.bz2")))
    made = [{"path": "s3:/a/b.wav"}]
    with pytest.raises(forebay.ConfigError, match="is no URL that is read"):
        forebay.Loader(Manifest(made))
