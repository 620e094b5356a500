"""`forebay check` and `cache.build` over tables, folders and archives."""

import csv
import json
import pickle
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
