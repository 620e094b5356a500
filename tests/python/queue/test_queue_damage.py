"""Files of a queue that are damaged, inconsistent or of another schema; I/O errors."""

import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from queues import consumer, expected, filled, names, path_of, take, write


def damaged(kind: str, path: Path) -> None:
    whole = path.read_bytes()
    if kind == "bit":
        at = whole.index(b"PK", len(whole) // 2) - 200
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    elif kind == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "junk":
        path.write_bytes(random.Random(0).randbytes(3000))
    elif kind == "compressed":
        with zipfile.ZipFile(path) as old:
            members = {member: old.read(member) for member in old.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for member, data in members.items():
                new.writestr(member, data)
    elif kind == "old format":
        torch.save({"metadata": {}, "tensors": {}}, path, _use_new_zipfile_serialization=False)
    elif kind == "code":
        torch.save({"metadata": os.system, "tensors": {}}, path)
    else:
        torch.save({"list": [1], "nothing": {}, "no tensors": {"metadata": {}, "tensors": {}}}[kind], path)


KINDS = ("bit", "cut", "empty", "junk", "compressed", "old format", "code", "list", "nothing", "no tensors")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", [0, 1])
def test_corrupt_files_go_to_quarantine(
    tmp_path: Path, kind: str, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A corrupt file goes to quarantine and the next one is read; a pickle with code counts as corrupt."""
    provider = filled(tmp_path, 3)
    bad = names(tmp_path)[which]
    damaged(kind, path_of(tmp_path, which))
    with consumer(tmp_path) as queue:
        assert take(queue, 6) == [
            b for seq in range(3) if seq != which for b in expected(provider, range(seq, seq + 1))
        ]
        assert queue.stats()["train"]["quarantined"] == 1
    assert [path.name for path in (tmp_path / "queue" / "quarantine" / "train").iterdir()] == [bad]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"{bad} is corrupt and was moved to" in warnings[0]


def test_nothing_in_quarantine_or_archives_is_replaced(tmp_path: Path) -> None:
    """A second file of the same name, as after a repair, gets the suffix ".1"."""
    filled(tmp_path, 3)
    [bad, used, _] = names(tmp_path)
    (tmp_path / "queue" / "train" / bad).write_bytes(b"junk")
    for folder, name in ((tmp_path / "queue" / "quarantine", bad), (tmp_path / "archives", used)):
        (folder / "train").mkdir(parents=True)
        (folder / "train" / name).write_text("mine")
    with consumer(tmp_path, archive=True) as queue:
        take(queue, 4)
    for folder, name in ((tmp_path / "queue" / "quarantine", bad), (tmp_path / "archives", used)):
        assert (folder / "train" / name).read_text() == "mine"
        assert sorted(path.name for path in (folder / "train").iterdir()) == [name, f"{name}.1"]


@pytest.mark.parametrize(
    "change", [{"held": 3}, {"held": [[]]}, {"open": {}}, {"released": "1"}, {"queue": None}, {"on_state": 1}]
)
def test_a_damaged_record(tmp_path: Path, change: dict[str, Any]) -> None:
    provider = filled(tmp_path, 1)
    with consumer(tmp_path, delete="on_state") as queue:
        take(queue, 1)
    path = tmp_path / "queue" / ".state" / "train.consumer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(forebay.StateError, match=r"consumer\.json is damaged"):
        provider.backlog_size("train")
    with consumer(tmp_path) as queue, pytest.raises(forebay.StateError, match=r"consumer\.json is damaged"):
        take(queue, 1)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor:UserWarning")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": None}, "its metadata lacks schema"),
        ({"file_idx": None, "split": None}, "its metadata lacks file_idx, split"),
        ({"num_batches": 3}, "it has 8 rows, but its metadata has 3 batches of 4"),
        ({"batch_size": "4"}, "it has 8 rows, but its metadata has 2 batches of '4'"),
        ({"num_batches": 1, "batch_size": 8}, "but its name has another number"),
        ({"tensors": {"x": torch.zeros(8, 4), "y": torch.zeros(7, 4)}}, "its tensors have"),
        ({"tensors": {"x": torch.zeros(())}}, "has no batch axis"),
        ({"tensors": {"x": [1]}}, "'x' is a list"),
        ({"tensors": {"x": torch.eye(8).to_sparse()}}, "not a plain tensor"),
        ({"tensors": {"x": torch.zeros(1).expand(8, 2**40)}}, "larger than the file"),
    ],
)
def test_files_that_contradict_themselves(
    tmp_path: Path, changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 0)
    write(tmp_path, **changes)
    with consumer(tmp_path) as queue, pytest.raises(TimeoutError):
        queue.get_batch("train", "cpu", timeout=0)
    assert why in caplog.text
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": torch.zeros(8, 4).long()}, "'y' is missing"),
        ({**{name: torch.zeros(8, 4).long() for name in "xyz"}}, "'z' is not in the schema"),
        ({"x": torch.zeros(8, 4), "y": torch.zeros(8, 4).long()}, r"'x' is float32 \[4\], must be int64 \[4\]"),
        ({"x": torch.zeros(8, 3).long(), "y": torch.zeros(8, 4).long()}, r"'x' is int64 \[3\], must be int64 \[4\]"),
    ],
)
def test_another_schema_is_an_error(
    tmp_path: Path, tensors: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of another schema raises in its turn, at each call, and stays; without it the consumer continues."""
    provider = filled(tmp_path, 1)
    wrong = write(tmp_path, "9700000000000-000001-2.pt", tensors=tensors)
    with consumer(tmp_path, cache_files=2) as queue:
        assert take(queue, 3) == expected(provider, range(1))
        for _ in range(3):
            with pytest.raises(forebay.ConfigError, match=rf"does not have the schema of meta.pkl: .*{message}"):
                queue.get_batch("train", "cpu", timeout=120)
        assert names(tmp_path) == [wrong.name]
        assert any(record.levelname == "WARNING" and "schema" in record.getMessage() for record in caplog.records)
        wrong.unlink()
        provider.produce_one_file("train", 1)
        found: list[int] = []
        while len(found) < 3:
            try:
                found += take(queue, 1)
            except forebay.ConfigError:  # read before its removal
                continue
        assert found == expected(provider, range(1, 2))


def test_metadata_that_says_another_schema(tmp_path: Path) -> None:
    filled(tmp_path, 0)
    write(tmp_path, schema=[{"name": "x", "dtype": "int32", "shape": [4]}])
    with consumer(tmp_path) as queue, pytest.raises(forebay.ConfigError, match="its metadata has"):
        queue.get_batch("train", "cpu", timeout=120)


def test_errors_of_the_disk_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I/O errors are retried for a short time, then raised; the file stays."""
    from forebay.queue import feed

    provider = filled(tmp_path, 1)
    from forebay.queue.tensors import read

    failures = 2

    def flaky(path: Path) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(feed, "read", flaky)
    with consumer(tmp_path) as queue:
        assert take(queue, 1) == expected(provider, range(1))[:1]
        failures = 50
        queue.reset_state()
        with pytest.raises(OSError, match="Input/output error"):
            take(queue, 1)
        failures = 0
        while True:
            try:
                assert take(queue, 1) == expected(provider, range(1))[:1]
                break
            except OSError:
                continue
