"""Legacy files `{split}_batches_####.pt`: order, batch size, damage, states."""

from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from forebay.queue import meta as metas
from forebay.queue import write_legacy_file
from queues import consumer, meta


def x_of(number: int, rows: int = 8) -> Any:
    return torch.arange(rows * 4).view(rows, 4) + 1000 * number


def make(folder: Path, n_files: int = 3, **metadata: Any) -> None:
    """Writes `n_files` files and a meta that has only vocab_size."""
    metas.write_meta(folder, {"vocab_size": 9})
    for number in range(n_files):
        write_legacy_file(folder, "train", number, {"x": x_of(number), "y": x_of(number) + 1}, metadata)


def test_round_and_round(tmp_path: Path) -> None:
    """Files are read in a circle, in numerical order also beyond four digits, and never removed."""
    make(tmp_path, 2, batch_size=4)
    write_legacy_file(tmp_path, "train", 10_000, {"x": x_of(7), "y": x_of(7) + 1}, {"batch_size": 4})
    write_legacy_file(tmp_path, "val", 0, {"x": x_of(9), "y": x_of(9)}, {"batch_size": 4})
    present = sorted(path.name for path in tmp_path.iterdir())
    assert present[:2] == ["meta.json", "meta.pkl"]
    assert present[2:] == [
        "train_batches_0000.pt",
        "train_batches_0001.pt",
        "train_batches_10000.pt",
        "val_batches_0000.pt",
    ]
    with consumer(tmp_path) as queue:
        assert queue.meta == {"vocab_size": 9}
        assert queue.schema("train") == [
            {"name": "x", "dtype": "int64", "shape": [4]},
            {"name": "y", "dtype": "int64", "shape": [4]},
        ]
        assert queue.wait_for_data("train", timeout=0)
        for number in [0, 1, 7] * 3:
            for start in (0, 4):
                x, y = queue.get_batch("train", "cpu", timeout=120)
                assert torch.equal(x, x_of(number)[start : start + 4])
                assert torch.equal(y, x + 1)
        assert torch.equal(queue.get_batch("val", "cpu")[0], x_of(9)[:4])
        assert queue.stats()["train"]["batch"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == present


def test_when_they_are_read(tmp_path: Path) -> None:
    """Legacy files are read without queue/, or with prefer_queue=False."""
    make(tmp_path, 1, batch_size=4)
    with consumer(tmp_path) as queue:
        queue.get_batch("train", "cpu", timeout=120)
    (tmp_path / "queue").mkdir()
    with pytest.raises(forebay.ConfigError, match="meta is incomplete or wrong"):
        consumer(tmp_path)
    with consumer(tmp_path, prefer_queue=False) as queue:
        queue.get_batch("train", "cpu", timeout=120)
    metas.write_meta(tmp_path, meta())
    with consumer(tmp_path) as queue, pytest.raises(TimeoutError):
        queue.get_batch("train", "cpu", timeout=0.1)


def test_meta_needs_vocab_size(tmp_path: Path) -> None:
    make(tmp_path, 1)
    metas.write_meta(tmp_path, {"dataset_name": "x"})
    with pytest.raises(forebay.ConfigError, match="lacks vocab_size"):
        consumer(tmp_path)


def test_the_batch_size(tmp_path: Path) -> None:
    """The batch size is from the file, from meta or by set_batch_size(); there is no default."""
    make(tmp_path, 1)
    with consumer(tmp_path) as queue:
        with pytest.raises(forebay.ConfigError, match=r"neither meta.pkl nor .* has batch_size: call set_batch_size"):
            queue.get_batch("train", "cpu")
        queue.set_batch_size(3)
        assert torch.equal(queue.get_batch("train", "cpu")[0], x_of(0)[:3])
    metas.write_meta(tmp_path, {"vocab_size": 9, "batch_size": 2})
    with consumer(tmp_path) as queue:
        assert len(queue.get_batch("train", "cpu")[0]) == 2


def test_other_fields_and_small_metadata(tmp_path: Path) -> None:
    metas.write_meta(tmp_path, {"vocab_size": 9})
    tensors = {"input_ids": x_of(0), "labels": x_of(0)[:, 0].clone()}
    torch.save({**tensors, "batch_size": 8, "file_idx": 3, "note": "by hand"}, tmp_path / "train_batches_0000.pt")
    with consumer(tmp_path) as queue:
        batch = queue.get_batch("train", "cpu")
        assert {name: torch.equal(batch[name], tensors[name]) for name in batch} == {"input_ids": True, "labels": True}


def test_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is passed over with a log line each time, and stays."""
    make(tmp_path, 3, batch_size=8)
    bad = tmp_path / "train_batches_0001.pt"
    bad.write_bytes(b"junk")
    with consumer(tmp_path) as queue:
        found = [int(queue.get_batch("train", "cpu")[0][0, 0]) for _ in range(4)]
    assert found == [0, 2000, 0, 2000]
    assert "train_batches_0001.pt is corrupt and skipped" in caplog.text
    assert bad.exists()
    for path in tmp_path.glob("*.pt"):
        path.write_bytes(b"junk")
    with consumer(tmp_path) as queue, pytest.raises(forebay.ConfigError, match="has no readable file"):
        queue.get_batch("train", "cpu")


def test_another_schema(tmp_path: Path) -> None:
    make(tmp_path, 1, batch_size=8)
    write_legacy_file(tmp_path, "train", 1, {"x": x_of(0).int(), "y": x_of(0)}, {"batch_size": 8})
    with consumer(tmp_path) as queue:
        queue.get_batch("train", "cpu")
        with pytest.raises(forebay.ConfigError, match=r"another schema than the first .*'x' is int32"):
            queue.get_batch("train", "cpu")


def test_state(tmp_path: Path) -> None:
    make(tmp_path, 2, batch_size=4)
    with consumer(tmp_path) as queue:
        whole = [int(queue.get_batch("train", "cpu")[0][0, 0]) for _ in range(9)]
    for at in range(1, 9):
        with consumer(tmp_path) as queue:
            for _ in range(at):
                queue.get_batch("train", "cpu")
            state = queue.state_dict()
        with consumer(tmp_path) as queue:
            queue.load_state_dict(state)
            assert [int(queue.get_batch("train", "cpu")[0][0, 0]) for _ in range(9 - at)] == whole[at:]
    queue = consumer(tmp_path)
    queue.get_batch("train", "cpu")
    queue.reset_state()
    assert int(queue.get_batch("train", "cpu")[0][0, 0]) == whole[0]
    queue.close()


def test_ranks_are_refused(tmp_path: Path) -> None:
    make(tmp_path, 1)
    with pytest.raises(forebay.ConfigError, match="rank is 0, but files"):
        consumer(tmp_path, rank=0)


def test_one_file(tmp_path: Path) -> None:
    """A single file is repeated, also if its rows are no multiple of the batch size."""
    make(tmp_path, 1, batch_size=4)
    with consumer(tmp_path, cache_files=3) as queue:
        for _ in range(5):
            assert [int(queue.get_batch("train", "cpu", timeout=120)[0][0, 0]) for _ in range(2)] == [0, 16]
        queue.set_batch_size(3)
        for _ in range(3):
            batches = [queue.get_batch("train", "cpu", timeout=120)[0] for _ in range(3)]
        assert torch.equal(torch.cat(batches), x_of(0)[[0, 1, 2, 3, 4, 5, 6, 7, 6]])


def test_a_file_that_was_removed(tmp_path: Path) -> None:
    """The circle continues without a removed file; without any file an error is raised."""
    make(tmp_path, 3, batch_size=8)
    with consumer(tmp_path) as queue:
        assert int(queue.get_batch("train", "cpu")[0][0, 0]) == 0
        (tmp_path / "train_batches_0002.pt").unlink()
        found = [int(queue.get_batch("train", "cpu")[0][0, 0]) for _ in range(6)]
        assert found[-4:] in ([0, 1000, 0, 1000], [1000, 0, 1000, 0])
        for path in tmp_path.glob("*.pt"):
            path.unlink()
        # The thread that reads ahead may have listed the files before their removal.
        with pytest.raises(forebay.ConfigError, match=r"none of [0-2] files"):
            [queue.get_batch("train", "cpu") for _ in range(9)]
