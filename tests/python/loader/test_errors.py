"""Errors for wrong parameters, files and columns; bad records are skipped, counted, listed and logged."""

import errno
import logging
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import forebay
from recordings import TINY, Row, tiny_rows, write_shard
from timing import eventually

BAD_VALUES: list[tuple[str, Any]] = [
    ("seed", -1),
    ("seed", 2**64),
    ("batch_size", 0),
    ("batch_size", -5),
    ("batch_size", 2**62),
    ("shuffle_buffer_size", 0),
    ("shuffle_min_size", -1),
    ("shuffle_min_size", 10_001),
    ("sample_rate", 0),
    ("clip_seconds", 0.0),
    ("clip_seconds", -1.0),
    ("clip_seconds", float("nan")),
    ("clip_seconds", float("inf")),
    ("n_mels", 0),
    ("n_fft", 0),
    ("n_fft", 10**9),
    ("hop_length", 0),
    ("n_workers", 0),
    ("n_workers", -8),
    ("raw_channel_size", 0),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_parameter_out_of_range(name: str, value: Any, tiny_shard: Path) -> None:
    """The message names the parameter, its value and the range."""
    parameters: dict[str, Any] = {name: value}
    shown = f"{value:g}" if isinstance(value, float) else value
    with pytest.raises(forebay.ConfigError, match=rf"{name} is {shown}".replace("nan", "NaN") + ".*must be") as caught:
        forebay.Loader(tiny_shard, **parameters)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, forebay.ForebayError)


WHOLE_NUMBERS = [
    "batch_size", "shuffle_buffer_size", "shuffle_min_size", "sample_rate", "n_mels", "n_fft", "hop_length",
    "n_workers", "raw_channel_size",
]  # fmt: skip


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200, -(2**200)])
def test_numbers_beyond_any_type(value: int, tiny_shard: Path) -> None:
    """Numbers beyond int64 or int128 are reported as out of range, together with other problems."""
    parameters: dict[str, Any] = dict.fromkeys(WHOLE_NUMBERS, value)
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.Loader(tiny_shard, seed=value * 2**100, **parameters)
    for name in WHOLE_NUMBERS:
        assert f"{name} is beyond int64, must be" in str(caught.value)
    assert "seed is beyond int128, must be 0 to 18446744073709551615" in str(caught.value)
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.SpectrogramTransform(value, value, value, value, win_length=value)
    for name in ["sample_rate", "n_fft", "hop_length", "n_mels", "win_length"]:
        assert f"{name} is beyond int64, must be" in str(caught.value)
    with pytest.raises(forebay.ConfigError, match="start is beyond int64"):
        forebay.decode(tiny_rows(1)[0].audio or b"", value)
    with forebay.Loader.eval(tiny_shard) as loader, pytest.raises(forebay.ConfigError, match="epoch is beyond int64"):
        loader.set_epoch(value)


@pytest.mark.parametrize("epoch", [-1, 2**62 + 1])
def test_epoch_out_of_range(epoch: int, tiny_shards: list[Path]) -> None:
    with forebay.Loader.eval(tiny_shards, **TINY) as loader:
        with pytest.raises(forebay.ConfigError, match=f"epoch is {epoch}, must be 0 to {2**62}"):
            loader.set_epoch(epoch)
        loader.set_epoch(2**62)
        assert sum(len(batch["index"]) for batch in loader) == 285
        assert loader.epoch == 2**62


def test_whatever_counts_as_a_whole_number_is_taken(tiny_shards: list[Path]) -> None:
    import numpy as np

    class Two:
        def __index__(self) -> int:
            return 2

    with forebay.Loader.eval(tiny_shards, batch_size=np.int16(7), n_workers=Two(), **TINY) as loader:  # type: ignore[arg-type]
        assert len(next(loader)["index"]) == 7


def test_all_problems_in_one_message() -> None:
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.Loader(
            [], seed=-1, batch_size=0, order="window", shuffle_min_size=20_000, n_workers=0, raw_channel_size=-3
        )
    for name in ["arrow_files", "seed", "batch_size", "shuffle_min_size", "n_workers", "raw_channel_size"]:
        assert f"{name} is " in str(caught.value)


@pytest.mark.parametrize(
    "parameters",
    [
        {"batch_size": 1.5},
        {"batch_size": True},
        {"n_workers": 8.0},
        {"clip_seconds": "5"},
        {"infinite": 3},
        {"audio_column": 1},
        {"typo": 1},
    ],
)
def test_wrong_type(parameters: dict[str, Any], tiny_shard: Path) -> None:
    with pytest.raises(TypeError, match=next(iter(parameters))):
        forebay.Loader(tiny_shard, **parameters)
    with pytest.raises(TypeError, match=next(iter(parameters))):
        forebay.Loader.eval(tiny_shard, **parameters)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (7, r"^arrow_files is 7 \(type int\), must be a path"),
        (b"x", r"^arrow_files is b'x' \(type bytes\), must be a path"),
        (["a.arrow", 7], r"^arrow_files\[1\] is 7 \(type int\), must be a path"),
    ],
)
def test_files_of_the_wrong_type(files: Any, found: str) -> None:
    with pytest.raises(TypeError, match=found) as caught:
        forebay.Loader(files)
    expected = "must be a path (str or os.PathLike)"
    expected += "" if isinstance(files, list) else ", a sequence of paths, a forebay.Manifest or a datasets.Dataset"
    assert expected in str(caught.value)


def test_empty_path(tiny_shard: Path) -> None:
    several: list[str | Path] = [tiny_shard, ""]
    for files in ("", several):
        with pytest.raises(forebay.ConfigError, match="arrow_files is ''"):
            forebay.Loader(files)


def test_missing_file(tiny_shard: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.arrow"
    with pytest.raises(FileNotFoundError, match=r"cannot open: No such file.*nowhere\.arrow") as caught:
        forebay.Loader([tiny_shard, missing])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
    assert "glob" not in str(caught.value)


@pytest.mark.parametrize("pattern", ["*.arrow", "train-?.arrow", "train-[0-9].arrow"])
def test_pattern(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*") as caught:
        forebay.Loader(tmp_path / pattern)
    assert caught.value.filename == str(tmp_path / pattern)
    (tmp_path / pattern).write_bytes(write_shard(tmp_path / "a", tiny_rows(3)).read_bytes())
    assert forebay.Loader(tmp_path / pattern).num_records == 3


def test_a_shard_that_goes_away(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.arrow", tiny_rows(3))
    with forebay.Loader.eval(path, **TINY) as loader:
        path.unlink()
        with pytest.raises(FileNotFoundError, match=r"cannot open: .*a\.arrow") as caught:
            next(loader)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(path))


def test_a_shard_that_changes(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.arrow", tiny_rows(3))
    with forebay.Loader.eval(path, **TINY) as loader:
        write_shard(path, tiny_rows(4))
        with pytest.raises(OSError, match="changed") as caught:
            next(loader)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))


def test_not_arrow(tmp_path: Path) -> None:
    path = tmp_path / "notes.arrow"
    path.write_bytes(b"These are notes, not a shard. " * 100)
    with pytest.raises(forebay.ConfigError, match=r"notes\.arrow"):
        forebay.Loader(path)


def test_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises((forebay.ConfigError, OSError), match=tmp_path.name):
        forebay.Loader(tmp_path)


def test_pipe(tmp_path: Path) -> None:
    """A named pipe is refused without waiting for it."""
    pipe = tmp_path / "pipe.arrow"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"not a regular file.*pipe\.arrow") as caught:
        forebay.Loader(pipe)
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(pipe))


def test_schema_without_audio(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"text": ["a"], "label": [1]})
    path = tmp_path / "text.arrow"
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(forebay.ConfigError, match="audio_column") as caught:
        forebay.Loader(path)
    assert "text" in str(caught.value)
    with pytest.raises(forebay.ConfigError, match="label"):
        forebay.Loader(path, audio_column="label")


def test_unknown_columns(tiny_shard: Path) -> None:
    with pytest.raises(forebay.ConfigError, match="sound"):
        forebay.Loader(tiny_shard, audio_column="sound")
    with pytest.raises(forebay.ConfigError, match="species"):
        forebay.Loader(tiny_shard, label_column="species")


def test_no_rows(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "none.arrow", [])
    with pytest.raises(forebay.ConfigError, match="no rows"):
        forebay.Loader(path)


def test_no_rows_but_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the first damage; warnings are logged although the constructor fails."""
    (tmp_path / "empty.arrow").touch()
    with pytest.raises(forebay.ConfigError, match=r"no rows.*empty\.arrow, byte 0: the shard is empty"):
        forebay.Loader([write_shard(tmp_path / "none.arrow", []), tmp_path / "empty.arrow"])
    assert ["empty.arrow" in record.getMessage() for record in caplog.records] == [True]


def damaged(whole: bytes) -> dict[str, bytes]:
    return {"truncated": whole[: len(whole) * 6 // 10], "no end marker": whole[:-8], "empty": b""}


@pytest.mark.parametrize("damage", ["truncated", "no end marker", "empty"])
def test_damaged_shard(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Damage is reported in `shards`; intact rows are delivered, the others are listed as errors."""
    good = write_shard(tmp_path / "good.arrow", tiny_rows(20))
    bad = tmp_path / "bad.arrow"
    bad.write_bytes(damaged(write_shard(tmp_path / "whole.arrow", tiny_rows(40)).read_bytes())[damage])
    with forebay.Loader.eval([good, bad, good], **TINY) as loader:
        first, second, third = loader.shards
        delivered = [row for batch in loader for row in batch["index"].tolist()]
        lost = [error["index"] for error in loader.errors()]
    assert first["damage"] is None
    assert third["damage"] is None
    assert "bad.arrow" in (second["damage"] or "")
    assert any("bad.arrow" in record.getMessage() for record in caplog.records)
    assert third["first_row"] == 20 + second["num_rows"]
    assert sorted(delivered + lost) == list(range(loader.num_records))
    assert len(delivered) >= {"truncated": 56, "no end marker": 80, "empty": 40}[damage]


BAD_RECORDS = {
    3: (Row(b"not a recording at all", 0, "three.ogg"), "unsupported"),
    5: (Row(b"", 0), "empty"),
    8: (Row(None, 0, "gone/away.wav"), "unreadable"),
    9: (Row(None, 0), "unreadable"),
    12: (Row(tiny_rows(1)[0].audio[:44], 0), "empty"),  # type: ignore[index]
}


def test_bad_records_of_a_finite_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = tiny_rows(20)
    for i, (row, _) in BAD_RECORDS.items():
        rows[i] = row
    first = write_shard(tmp_path / "first.arrow", tiny_rows(10))
    second = write_shard(tmp_path / "second.arrow", rows)
    with (
        caplog.at_level(logging.WARNING, "forebay"),
        forebay.Loader.eval([first, second], batch_size=10, **TINY) as loader,
    ):
        for _ in range(2):  # the second pass adds nothing to the list
            sizes = [len(batch["index"]) for batch in loader]
            assert sizes == [10, 6, 9]
            errors = loader.errors()
            assert [error["index"] for error in errors] == [10 + i for i in BAD_RECORDS]
        stats = loader.stats()
    assert [set(error) for error in errors] == [{"index", "shard", "row", "path", "kind", "reason"}] * 5
    assert [error["row"] for error in errors] == list(BAD_RECORDS)
    assert {error["shard"] for error in errors} == {str(second)}
    assert [error["path"] for error in errors] == [row.path for row, _ in BAD_RECORDS.values()]
    assert [error["kind"] for error in errors] == [kind for _, kind in BAD_RECORDS.values()]
    assert all(len(error["reason"]) > 10 for error in errors)
    delivered = stats["delivered"]
    assert delivered == {
        "batches": 6, "examples": 50, "substitutes": 0,
        "records_failed": 10, "records_excluded": 0, "records_lost": 0, "records_good": 50,
    }  # fmt: skip
    assert stats["failed_kinds"] == {
        kind: 2 * n for kind, n in Counter(kind for _, kind in BAD_RECORDS.values()).items()
    }
    assert stats["records_failed"] == 10
    assert stats["records_decoded"] == 50
    assert stats["substitutes"] == 0


def test_logged_once_per_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = tiny_rows(40)
    for i in range(0, 40, 2):
        rows[i] = Row(b"not a recording at all")
    with (
        caplog.at_level(logging.WARNING, "forebay"),
        forebay.Loader.eval(write_shard(tmp_path / "a.arrow", rows), **TINY) as loader,
    ):
        assert sum(len(batch["index"]) for batch in loader) == 20
        assert len(loader.errors()) == 20
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("forebay")]
    assert len(messages) == 2
    assert "a.arrow" in messages[0]
    assert messages[1].startswith("20 of 40 records failed (unsupported)")


def test_substitutes_of_an_infinite_stream(tiny_shards: list[Path], tmp_path: Path) -> None:
    """Batches are full and without bad rows; counts of delivered rows do not depend on batches made ahead."""
    parameters: dict[str, Any] = {"shuffle_min_size": 20, "batch_size": 50, **TINY}
    sound = [write_shard(tmp_path / f"{i}.arrow", tiny_rows(60), rows_per_batch=16) for i in range(5)]
    with forebay.Loader(sound, **parameters) as loader:
        drawn = [row for _ in range(24) for row in next(loader)["index"].tolist()]
    n_bad = sum(row % 20 == 7 for row in drawn)
    told = []
    for n_workers, prefetch_batches in [(1, 1), (2, 3), (8, 12)]:
        with forebay.Loader(
            tiny_shards, **parameters, n_workers=n_workers, prefetch_batches=prefetch_batches
        ) as loader:
            assert set(loader.stats()["delivered"].values()) == {0}
            rows = [row for _ in range(24) for row in next(loader)["index"].tolist()]
            # Batches made ahead do not count as delivered.
            eventually(lambda n=prefetch_batches, loader=loader: loader.stats()["queues"]["batches"] >= n)
            stats = loader.stats()
            assert [row for row, place in zip(rows, drawn, strict=True) if place % 20 != 7] == [
                place for place in drawn if place % 20 != 7
            ]
            assert all(row % 20 != 7 for row in rows)
            assert [error["index"] for error in loader.errors()] == list(range(7, 300, 20))
        told.append(delivered := stats["delivered"])
        assert (delivered["batches"], delivered["examples"], delivered["substitutes"]) == (24, 1200, n_bad)
        assert stats["records_failed"] >= delivered["records_failed"] >= n_bad
        assert stats["substitutes"] >= n_bad
        assert (delivered["records_excluded"], delivered["records_lost"]) == (0, 0)
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("infinite", [True, False])
def test_what_was_delivered_adds_up(tiny_shards: list[Path], infinite: bool) -> None:
    """Counts add up over a resume, a seek, and a batch that was taken back."""
    parameters: dict[str, Any] = {"shuffle_min_size": 20, "batch_size": 16, "infinite": infinite, **TINY}
    n = 15  # of 19 in a pass
    with forebay.Loader(tiny_shards, **parameters) as loader:
        for _ in range(n):
            next(loader)
        whole = loader.stats()["delivered"]
    assert whole["records_failed"] > 0
    with forebay.Loader(tiny_shards, **parameters) as loader:
        for _ in range(4):
            next(loader)
        first, state = loader.stats()["delivered"], loader.state_dict()
    with forebay.Loader(tiny_shards, **parameters, prefetch_batches=7) as loader:
        loader.load_state_dict(state)
        for _ in range(n - 4):
            next(loader)
        rest = loader.stats()["delivered"]
        assert {name: first[name] + rest[name] for name in first} == whole  # type: ignore[literal-required]
        loader._take_back()
        before = loader.stats()["delivered"]
        assert (before["batches"], before["examples"] < rest["examples"]) == (n - 5, True)
        next(loader)
        assert loader.stats()["delivered"] == rest
        loader.seek(4)
        for _ in range(n - 4):
            next(loader)
        assert loader.stats()["delivered"] == {name: rest[name] + rest[name] for name in rest}  # type: ignore[literal-required]


def test_only_bad_records(tmp_path: Path) -> None:
    """An infinite loader raises on each call, a finite pass at its end; one of several ranks has empty batches."""
    path = write_shard(tmp_path / "a.arrow", [Row(b"not a recording at all")] * 30)
    with forebay.Loader.eval(path, **TINY) as loader:
        with pytest.raises(forebay.DecodeError, match="no good record: 30 of 30 records failed"):
            list(loader)
        assert len(loader.errors()) == 30
    with forebay.Loader.eval(path, **TINY, world_size=2) as loader:
        assert [batch["spectrogram"].shape for batch in loader] == [(0, 8, 6)]
        assert len(loader.errors()) == 15
    with forebay.Loader(path, shuffle_min_size=5, **TINY) as loader:
        for _ in range(3):
            with pytest.raises(forebay.DecodeError, match=r"not a recording|substitute"):
                next(loader)


def test_a_loader_is_not_indexed(tiny_shards: list[Path]) -> None:
    with (
        forebay.Loader(tiny_shards, **TINY) as loader,
        pytest.raises(TypeError, match="Loader is an iterable of batches"),
    ):
        loader[0]


def test_a_batch_too_large_for_memory_is_refused(tiny_shard: Path) -> None:
    with pytest.raises(forebay.ConfigError, match=r"batch_size is 1048576, which makes batches of 250 GiB, at most 8"):
        forebay.Loader(tiny_shard, batch_size=1 << 20)


def test_a_pass_has_no_batch_larger_than_the_data(tiny_shards: list[Path]) -> None:
    """The size limit uses the rows of a pass: with this batch size, batches of an infinite stream take 250 GiB."""
    with forebay.Loader.eval(tiny_shards, batch_size=1 << 20) as loader:
        assert len(loader) == 1
        assert [batch["spectrogram"].shape for batch in loader] == [(285, 128, 501)]


def test_a_batch_without_memory(tiny_shards: list[Path]) -> None:
    """A failed allocation raises `MemoryError` on each call and does not abort the process."""
    script = """
        import logging, resource, sys
        import forebay
        logging.getLogger("forebay").setLevel(logging.ERROR)  # no warnings about empty mel bands
        loader = forebay.Loader(
            sys.argv[1:], batch_size=90_000, shuffle_min_size=0, shuffle_buffer_size=1, n_workers=1,
            sample_rate=8000, clip_seconds=0.02, n_fft=64, hop_length=1,
        )
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (2 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for _ in range(2):
            try:
                next(loader)
            except MemoryError as error:
                print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, tiny_shards)]
    process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert (process.returncode, process.stderr) == (0, "")
    first, second = process.stdout.splitlines()
    assert first == second
    assert "allocation failed: 7418880000 bytes for a field of a batch; make batches smaller" in first


def test_many_reasons_of_one_kind_are_not_all_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [Row(None, 0, f"gone/{i}.wav") for i in range(100)]
    with (
        caplog.at_level(logging.WARNING, "forebay"),
        forebay.Loader.eval(write_shard(tmp_path / "a.arrow", rows), **TINY) as loader,
    ):
        with pytest.raises(forebay.DecodeError, match="no good record: 100 of 100 records failed"):
            list(loader)
        assert len(loader.errors()) == 100
    assert len([record for record in caplog.records if record.name.startswith("forebay")]) == 8


def test_a_handler_that_raises_loses_no_batch(tmp_path: Path) -> None:
    class Stumbles(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError(record.getMessage())

    rows = tiny_rows(40)
    rows[3] = Row(b"not a recording at all")
    handler = Stumbles()
    logging.getLogger("forebay").addHandler(handler)
    try:
        with forebay.Loader.eval(write_shard(tmp_path / "a.arrow", rows), batch_size=8, **TINY) as loader:
            with pytest.raises(RuntimeError, match="skipped a bad record"):
                next(loader)
            delivered = [row for _ in range(5) for row in next(loader)["index"].tolist()]
    finally:
        logging.getLogger("forebay").removeHandler(handler)
    assert delivered == [row for row in range(40) if row != 3]
