"""`forebay check` and `cache.build` over tables, folders and archives."""

import csv
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import Manifest, cache, cli
from forebay.features import LogMel
from recordings import TINY
from tables import rows, write_recordings, write_table

FRONT = LogMel(sample_rate=8000, n_fft=64, hop_length=32, n_mels=8)
ONE_PASS: dict[str, Any] = {**TINY, "batch_size": 8, "infinite": False, "order": "sequential", "shuffle_min_size": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = write_recordings(tmp_path / "audio", 30, bad_every=20)
    write_table(tmp_path / "t.csv", rows([f"audio/{name}" for name in names], segments=True))
    return tmp_path


@pytest.mark.parametrize("source", ["t.csv", "audio"])
def test_check(source: str, folder: Path) -> None:
    report = folder / "report"
    assert cli.main(["check", str(folder / source), "-o", str(report)]) == 1
    found = json.loads(report.with_suffix(".json").read_text())
    assert [bad["row"] for bad in found["bad"]] == [7, 27]
    with report.with_suffix(".csv").open() as table:
        seconds = [float(row["seconds"] or 0) for row in csv.DictReader(table)]
    if source == "t.csv":
        expected = [row["end"] or 0.02 for row in rows([""] * 30, segments=True)]
        starts = [row["start"] or 0 for row in rows([""] * 30, segments=True)]
        for i, (end, start) in enumerate(zip(expected, starts, strict=True)):
            assert i in (7, 27) or abs(seconds[i] - (min(end, 0.02) - start)) < 1e-3
    with forebay.Loader(folder / source, **ONE_PASS, exclude=report.with_suffix(".json")) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 28
        assert not loader.errors()


@pytest.mark.parametrize("kind", ["path", "manifest", "folder", "rows"])
def test_build(kind: str, folder: Path) -> None:
    names = sorted(path.name for path in (folder / "audio").iterdir())
    shards: Any = {
        "path": folder / "t.csv",
        "manifest": Manifest(folder / "t.csv"),
        "folder": folder / "audio",
        "rows": Manifest(rows([f"audio/{name}" for name in names], segments=True), root=folder),
    }[kind]
    made = cache.build(shards, FRONT, folder / "cache", on_error="skip", progress=False, n_workers=2)
    assert len(made) == 28
    whole = cache.build(folder / "t.csv", FRONT, folder / "whole", on_error="skip", progress=False)
    if kind != "folder":
        assert all(np.array_equal(made[i]["spectrogram"], whole[i]["spectrogram"]) for i in range(28))
    # An edited table is another one.
    if kind == "path":
        write_table(folder / "t.csv", rows([f"audio/{name}" for name in reversed(names)]))
        with pytest.raises(forebay.ForebayError, match=r"t\.csv"):
            cache.build(shards, FRONT, folder / "cache", on_error="skip", progress=False)
    if kind == "manifest":
        with pytest.raises(forebay.ConfigError, match=r"a forebay\.Manifest names recordings"):
            cache.build(shards, None, folder / "other", progress=False)


def test_a_loader_of_a_manifest_is_pickled(folder: Path) -> None:
    source: Any = {"a": Manifest(folder / "t.csv", start=""), "b": [folder / "audio"]}
    with forebay.Loader(source, **{**ONE_PASS, "order": "global"}, weights={"a": 1, "b": 1}) as loader:
        next(loader)
        with pickle.loads(pickle.dumps(loader)) as copied:
            assert next(copied)["index"].tolist() == next(loader)["index"].tolist()


TYPES = {
    "file_name": "text", "index_in_table": "int64", "bird": "text", "several": "text", "x": "float64",
    "is_good": "bool", "text": "text",
}  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "rows"])
def test_columns_of_a_table(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table lists all of its columns, and a row all of their values, without being asked for them."""
    made = rows(write_recordings(tmp_path, 30))
    source: Any = made if ending == "rows" else write_table(tmp_path / f"t.{ending}", made)
    table = Manifest(source, root=tmp_path)
    with forebay.AudioDataset(table, **TINY) as dataset:
        assert dataset.columns == TYPES
        for name in TYPES:
            values = dataset.column(name)
            assert len(values) == 30
        assert dataset.column("file_name")[4] == made[4]["file_name"]
    with forebay.AudioDataset(table, **TINY, label_column="bird", columns=["x"]) as dataset:
        assert dataset.columns == TYPES
        assert dataset._classes == {"bird": sorted({row["bird"] for row in made if row["bird"]})}
    if ending == "rows" or ending == "parquet":  # a Parquet file is a shard, unless it is a Manifest
        return
    assert cli.main(["inspect", str(source), "--row", "4", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {column["name"]: column["type"] for column in found["columns"]} == TYPES
    expected = {name: "" if value is None and TYPES[name] == "text" else value for name, value in made[4].items()}
    assert expected["x"] is None
    assert found["row"]["columns"] == expected


def test_columns_are_claims_of_the_first_rows(tmp_path: Path) -> None:
    """A column that is read has the type of all rows; the others that of the first thousand."""
    write_recordings(tmp_path, 1)
    lines = ["path,n,m", *("000 one.wav,1,2" for _ in range(1000)), "000 one.wav,one,two"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with forebay.AudioDataset(tmp_path / "a.csv", **TINY, columns=["m"]) as dataset:
        assert dataset.columns == {"path": "text", "n": "int64", "m": "text"}
        assert dataset.column("n")[1000] == "one"


def test_columns_of_objects(tmp_path: Path) -> None:
    write_recordings(tmp_path, 1)
    lines: list[dict[str, Any]] = [
        {"path": "000 one.wav", "meta": {"site": "s", "at": {"deep": 1}}, "tags": ["a"], "odd": [{}]},
        {"path": "000 one.wav", "label": "owl", "meta": {"site": None}, "later": 2.5},
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with forebay.AudioDataset(tmp_path / "a.jsonl", **TINY, label_column="label") as dataset:
        assert dataset.columns == {
            "path": "text", "meta.site": "text", "meta.at.deep": "int64", "tags": "lists of text", "odd": "json",
            "label": "text", "later": "float64",
        }  # fmt: skip
        assert dataset._classes == {"label": ["owl"]}
        assert [*dataset.column("meta.site")] == ["s", ""]


def test_columns_of_a_folder_and_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = write_recordings(tmp_path / "a" / "owl", 2)
    write_recordings(tmp_path / "a" / "wren", 1)
    assert cli.main(["inspect", str(tmp_path / "a"), "--row", "2", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"] == [{"name": "label", "type": "text", "classes": ["owl", "wren"]}]
    assert found["row"]["columns"] == {"label": "wren"}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        data = {".cls": b"1", ".txt": b"words", ".json": b'{"site": {"x": 1.5}}', ".npy": b"\x93NUMPY\xff"}
        for i, name in enumerate(names):
            tar.add(tmp_path / "a" / "owl" / name, f"{i}.wav")
            for ending, content in data.items():
                info = tarfile.TarInfo(f"{i}{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    assert cli.main(["inspect", str(tmp_path / "a.tar"), "--row", "1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {column["name"]: column["type"] for column in found["columns"]} == {
        "cls": "int64", "txt": "text", "npy": "bytes", "site.x": "float64",
    }  # fmt: skip
    assert found["row"]["columns"] == {"cls": 1, "txt": "words", "site.x": 1.5}
