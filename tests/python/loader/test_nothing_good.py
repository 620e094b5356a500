"""A pass without a good record, tables whose files are missing, and how many records failed."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from recordings import TINY, Row, tiny_rows, write_shard


def _folder(path: Path, n: int, bad: range = range(0)) -> Path:
    """A folder of `n` recordings, of which those in `bad` are damaged."""
    path.mkdir()
    for number, row in enumerate(tiny_rows(n)):
        (path / f"{number:03}.wav").write_bytes(b"no recording" if number in bad else row.audio or b"")
    return path


def _table(path: Path, names: list[str]) -> Path:
    path.write_text("path,label\n" + "".join(f"{name},{at % 3}\n" for at, name in enumerate(names)))
    return path


def test_a_pass_without_a_good_record_is_an_error(tmp_path: Path) -> None:
    """The loop ends with an error that says what most failures were, in each pass; training already raised."""
    folder = _folder(tmp_path / "bad", 40, range(40))
    (folder / "003.wav").write_bytes(b"")
    with forebay.Loader.eval(folder, **TINY) as loader:
        for _ in range(2):
            with pytest.raises(
                forebay.DecodeError, match=r"no good record: 40 of 40 records failed \(39 unsupported, 1 "
            ):
                list(loader)
            assert len(loader.errors()) == 40
    told = pytest.raises(forebay.DecodeError, match=r"no good record on rank 1: 20 of 20 records failed")
    with forebay.Loader.eval(folder, **TINY, rank=1, world_size=2) as loader, told:
        list(loader)


def test_few_bad_records_of_one_rank_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other ranks may have good records, and all take the same number of batches."""
    folder = _folder(tmp_path / "some", 4, range(1, 2))
    parameters: dict[str, Any] = {**TINY, "batch_size": 1, "world_size": 4, "infinite": False}
    with forebay.Loader(folder, order="sequential", rank=1, **parameters) as loader:
        assert [len(batch["index"]) for batch in loader] == [0]
    assert "the pass has no good record on rank 1: 1 of 1 records failed (unsupported)" in caplog.text


def test_a_part_of_a_pass_is_no_error(tmp_path: Path) -> None:
    """A loader that begins in the middle does not know the records before."""
    folder = _folder(tmp_path / "half", 32, range(16, 32))
    with forebay.Loader.eval(folder, **TINY, batch_size=16) as loader:
        loader.seek(1)
        assert list(loader) == []


def test_excluded_rows_are_no_failures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard = tmp_path / "a.arrow"
    write_shard(shard, tiny_rows(4))
    with forebay.Loader.eval(shard, **TINY, batch_size=2, exclude=[0, 1, 2], rank=0, world_size=2) as loader:
        assert sum(len(batch["index"]) for batch in loader) <= 1
        delivered = loader.stats()["delivered"]
    assert (delivered["records_failed"], delivered["records_excluded"] > 0) == (0, True)
    assert "no good record" not in caplog.text


def test_failures_are_shown_and_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`print(loader)` has the share and the kinds; from a tenth on there is one warning."""
    folder = _folder(tmp_path / "third", 150, range(0, 150, 3))
    with caplog.at_level(logging.WARNING, "forebay"), forebay.Loader.eval(folder, **TINY) as loader:
        assert "failed" not in repr(loader)
        for _ in range(2):
            list(loader)
        assert "100 of 300 records failed (unsupported)" in repr(loader)
        assert loader.stats()["failed_kinds"] == {"unsupported": 100}
        assert loader.stats()["delivered"]["records_good"] == 200
    [told] = [line for line in caplog.messages if "records failed" in line]
    assert "(unsupported); see errors()" in told


def test_few_failures_are_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = _folder(tmp_path / "few", 40, range(3))
    with caplog.at_level(logging.WARNING, "forebay"), forebay.Loader.eval(folder, **TINY) as loader:
        list(loader)
        assert "3 of 40 records failed" in repr(loader)
    assert not [line for line in caplog.messages if "records failed" in line]


def test_a_table_whose_files_are_missing_is_refused(tmp_path: Path) -> None:
    """The first rows that are read are tried when the loader is made, for loaders and datasets alike."""
    folder = _folder(tmp_path / "audio", 30)
    names = [f"{number:03}.wav" for number in range(30)]
    table = _table(tmp_path / "labels.csv", names)
    makers: list[Any] = [forebay.Loader.train, forebay.Loader.eval, forebay.AudioDataset]
    for make in makers:
        with pytest.raises(FileNotFoundError, match=r"line 2: the file \"000.wav\" cannot be opened.*root="):
            make(table, **TINY)
    with forebay.Loader.eval(forebay.Manifest(table, root=folder), **TINY) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 30
    # One row without a file is a bad record, in the first row too.
    some = _table(folder / "some.csv", ["none.wav", *names])
    with forebay.Loader.eval(some, **TINY) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 30
        assert [error["index"] for error in loader.errors()] == [0]


def test_only_rows_that_are_read_are_tried(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "audio", 3)
    table = _table(folder / "t.csv", [*(f"none{at}.wav" for at in range(40)), "000.wav", "001.wav", "002.wav"])
    with pytest.raises(FileNotFoundError, match=r"none0\.wav.*the files of 14 other rows that were tried cannot"):
        forebay.Loader.eval(table, sampling=forebay.sampling.Subset(range(40)), **TINY)
    # Rows spread over the table are tried, the last one too.
    with forebay.Loader.eval(table, **TINY) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 3
    with forebay.Loader.eval(table, exclude=list(range(40)), **TINY) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 3
    with forebay.Loader.eval(table, sampling=forebay.sampling.Subset([41, 42]), **TINY) as loader:
        assert np.concatenate([batch["index"] for batch in loader]).tolist() == [41, 42]


def test_a_shard_of_bad_records(tmp_path: Path) -> None:
    shard = tmp_path / "bad.arrow"
    write_shard(shard, [Row(b"no recording")] * 5)
    told = pytest.raises(
        forebay.DecodeError, match=r"5 of 5 records failed \(unsupported\); check .*; the first unsupported record: "
    )
    with forebay.Loader.eval(shard, **TINY) as loader, told:
        list(loader)
