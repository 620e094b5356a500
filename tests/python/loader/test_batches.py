"""Contents of batches for each kind of column, and loaders used at once, from other threads and after `close()`."""

import itertools
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from recordings import CLASSES, TINY, Row, tiny_rows, write_shard


def test_default_shape(shards: list[Path], rows: list[Row]) -> None:
    with forebay.Loader.eval(shards, batch_size=8) as loader:
        assert loader.class_names == CLASSES
        assert loader.num_records == len(rows) == 19
        assert len(loader) == loader.batches_per_epoch == 3
        assert [(shard["first_row"], shard["num_rows"]) for shard in loader.shards] == [(0, 11), (11, 8)]
        assert [shard["path"] for shard in loader.shards] == [str(path) for path in shards]
        batches = list(loader)
    assert [batch["spectrogram"].shape for batch in batches] == [(8, 128, 501), (8, 128, 501), (3, 128, 501)]
    for batch in batches:
        assert list(batch) == ["spectrogram", "label", "index"]
        assert batch["spectrogram"].dtype == np.float32
        assert batch["label"].dtype == batch["index"].dtype == np.int64
        assert all(array.flags.c_contiguous and array.flags.writeable for array in batch.values())
        assert np.isfinite(batch["spectrogram"]).all()
        assert [rows[i].label for i in batch["index"]] == batch["label"].tolist()


def test_null_labels(tmp_path: Path) -> None:
    rows = [Row(row.audio, None if i % 3 == 0 else row.label) for i, row in enumerate(tiny_rows(10))]
    with forebay.Loader.eval(write_shard(tmp_path / "a.arrow", rows), **TINY) as loader:
        [batch] = loader
    assert batch["label"].tolist() == [-1 if row.label is None else row.label for row in rows]


def test_no_label_column(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.arrow", tiny_rows(10), classes=None)
    with forebay.Loader.eval(path, **TINY) as loader:
        assert loader.class_names is None
        assert list(next(loader)) == ["spectrogram", "index"]


@pytest.mark.parametrize("width", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_columns_by_name(width: str, tmp_path: Path) -> None:
    """Columns of binary audio and of integers of any width, without the metadata of `datasets`."""
    import pyarrow as pa

    rows = tiny_rows(9)
    table = pa.table(
        {
            "id": pa.array(range(9)),
            "sound": pa.array([row.audio for row in rows], pa.binary()),
            "species": pa.array([row.label for row in rows], width),
        }
    )
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    with forebay.Loader.eval(path, audio_column="sound", label_column="species", **TINY) as loader:
        [batch] = loader
    assert batch["label"].tolist() == [row.label for row in rows]


def test_paths_instead_of_bytes(tmp_path: Path) -> None:
    """Rows may name files relative to the shard or by absolute path."""
    audio = [row.audio or b"" for row in tiny_rows(4)]
    (tmp_path / "sounds").mkdir()
    for i, recording in enumerate(audio):
        (tmp_path / "sounds" / f"{i}.wav").write_bytes(recording)
    paths = ["sounds/0.wav", "sounds/1.wav", str(tmp_path / "sounds" / "2.wav"), str(tmp_path / "sounds" / "3.wav")]
    by_path = write_shard(tmp_path / "paths.arrow", [Row(None, 0, path) for path in paths])
    by_bytes = write_shard(tmp_path / "bytes.arrow", [Row(recording) for recording in audio])
    with forebay.Loader.eval(by_path, **TINY) as a, forebay.Loader.eval(by_bytes, **TINY) as b:
        np.testing.assert_array_equal(next(a)["spectrogram"], next(b)["spectrogram"])


def test_one_path_or_several(tiny_shards: list[Path]) -> None:
    for files in (tiny_shards[0], str(tiny_shards[0]), tuple(tiny_shards), [str(path) for path in tiny_shards]):
        with forebay.Loader.eval(files, **TINY) as loader:
            assert loader.num_records in (60, 300)
            next(loader)


def test_kept_batches_do_not_change(tiny_shards: list[Path]) -> None:
    parameters: dict[str, Any] = {"shuffle_min_size": 20, "shuffle_buffer_size": 40, "batch_size": 16}
    with forebay.Loader(tiny_shards, **parameters, **TINY) as loader:
        kept = list(itertools.islice(loader, 60))
        copies = [{name: array.copy() for name, array in batch.items()} for batch in kept]
        for batch in itertools.islice(loader, 60):
            batch["spectrogram"][:] = np.nan
    for batch, copy in zip(kept, copies, strict=True):
        for name, array in batch.items():
            np.testing.assert_array_equal(array, copy[name])


def test_several_loaders_at_once(tiny_shards: list[Path]) -> None:
    parameters: dict[str, Any] = {"shuffle_min_size": 20, "shuffle_buffer_size": 40, "batch_size": 16}
    loaders = [forebay.Loader(tiny_shards, seed=seed % 2, **parameters, **TINY) for seed in range(6)]
    for batches in itertools.islice(zip(*loaders, strict=True), 20):
        for batch, twin in zip(batches, batches[2:], strict=False):
            np.testing.assert_array_equal(batch["spectrogram"], twin["spectrogram"])
        assert batches[0]["index"].tolist() != batches[1]["index"].tolist()
    for loader in loaders:
        loader.close()


def test_iterated_from_another_thread(tiny_shards: list[Path]) -> None:
    batches: queue.Queue[dict[str, np.ndarray]] = queue.Queue(maxsize=2)
    with forebay.Loader.eval(tiny_shards, **TINY) as loader:

        def work() -> None:
            for batch in loader:
                batches.put(batch)

        thread = threading.Thread(target=work)
        thread.start()
        found = [row for _ in range(len(loader)) for row in batches.get()["index"].tolist()]
        thread.join()
    assert found == [row for row in range(300) if row % 20 != 7]


def test_threads_share_a_loader(tiny_shards: list[Path]) -> None:
    """Each batch goes to exactly one thread."""
    found: list[int] = []
    with forebay.Loader.eval(tiny_shards, batch_size=4, **TINY) as loader:

        def work() -> None:
            for batch in iter(lambda: next(loader, None), None):
                found.extend(batch["index"].tolist())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [row for row in range(300) if row % 20 != 7]


def test_repr(tiny_shards: list[Path], tmp_path: Path) -> None:
    with forebay.Loader(tiny_shards, **TINY) as loader:
        assert repr(loader) == (
            "<forebay.Loader: 300 records in 5 shards, batches of 64 x [8, 6] float32, infinite, "
            "order global (300 rows, not more than shuffle_min_size, 8000)>"
        )
    with forebay.Loader.eval(write_shard(tmp_path / "a.arrow", tiny_rows(1)), **TINY) as loader:
        pass
    assert repr(loader) == (
        "<forebay.Loader: 1 record in 1 shard, batches of 64 x [8, 6] float32, finite, "
        "order sequential (one pass with shuffle_min_size=0), closed>"
    )


def test_infinite_has_no_length(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, shuffle_min_size=10, **TINY) as loader:
        with pytest.raises(TypeError, match="batches_per_epoch"):
            len(loader)
        assert bool(loader)
        assert loader.batches_per_epoch == 5
        first, second = next(iter(loader)), next(iter(loader))
        assert first["index"].tolist() != second["index"].tolist()
        assert loader.epoch == 0
        for _ in range(6):
            next(loader)
        assert loader.epoch == 1


def test_closed(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY) as loader:
        next(loader)
        closed_inside = loader.closed
    assert (closed_inside, loader.closed) == (False, True)
    for _ in range(2):
        with pytest.raises(forebay.ForebayError, match="closed"):
            next(loader)
        loader.close()
    assert bool(loader)
    assert loader.num_records == 300
    assert loader.stats()["batches"] == 1
