"""`build(on_error="skip")`: bad documents are left out and listed, the same ones in every run."""

import gzip
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caches import Picky, files, unequal
from forebay import ConfigError, DecodeError, SpectrogramTransform, StateError, cache
from forebay.cli import main
from forebay.tokens import Tokenizer
from paths import DATA
from recordings import Row, write_shard

TOKENIZER_PATH = DATA / "tokens" / "tokenizer.json"
TOKENIZER = Tokenizer(TOKENIZER_PATH)
TEXTS = [f"text {i} " * (i % 5) for i in range(50)]
BAD = [0, 7, 8, 23, 49]
GOOD = [text for i, text in enumerate(TEXTS) if i not in BAD]


def lines(bad: list[bytes]) -> bytes:
    """The texts as JSON lines, with the lines `bad` in place of some of them."""
    given = iter(bad * len(BAD))
    return b"".join(next(given) if i in BAD else json.dumps({"text": t}).encode() + b"\n" for i, t in enumerate(TEXTS))


def jsonl(folder: Path) -> Path:
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines([b'{"text": \n', b'{"text": "\xff"}\n', b'{"other": 1}\n', b"7\n"])))
    return path


def text(folder: Path) -> Path:
    path = folder / "a.txt"
    path.write_bytes(b"".join(b"\xfe\xff\n" if i in BAD else t.encode() + b"\n" for i, t in enumerate(TEXTS)))
    return path


def table(folder: Path) -> Path:
    path = folder / "a.parquet"
    pq.write_table(pa.table({"text": [None if i in BAD else t for i, t in enumerate(TEXTS)]}), path, row_group_size=9)
    return path


def objects(_folder: Path) -> dict[str, list[Any]]:
    return {"a": [{"other": 1} if i in BAD else {"text": t} for i, t in enumerate(TEXTS)]}


@pytest.mark.parametrize("shards", [jsonl, text, table, objects])
def test_bad_documents_are_left_out_and_listed(shards: Callable[[Path], Any], tmp_path: Path) -> None:
    given = shards(tmp_path)
    store = cache.build(given, TOKENIZER, tmp_path / "skip", batch_size=8, on_error="skip")
    clean = cache.build({"a": [{"text": t} for t in GOOD]}, TOKENIZER, tmp_path / "clean", batch_size=8)
    assert np.array_equal(store.flat("input_ids"), clean.flat("input_ids"))
    assert (len(store), store.n_errors) == (len(GOOD), len(BAD))
    errors = store.errors()
    assert [error["row"] for error in errors] == BAD
    assert {Path(error["shard"]).name for error in errors} == {"a" if isinstance(given, dict) else given.name}
    assert {error["kind"] for error in errors} <= {"corrupt", "unreadable"}
    assert all(error["reason"] for error in errors)
    # By default the first error is raised.
    with pytest.raises((DecodeError, KeyError)):
        cache.build(given, TOKENIZER, tmp_path / "raise", batch_size=8)


def test_recordings_that_cannot_be_decoded(rows: list[Row], tmp_path: Path) -> None:
    bad = {2: b"no recording", 5: b"", 6: None}
    damaged = [Row(bad[i], row.label) if i in bad else row for i, row in enumerate(rows[:9])]
    transform = SpectrogramTransform(sample_rate=16000, n_mels=16)
    found = cache.build(
        write_shard(tmp_path / "bad.arrow", damaged), transform, tmp_path / "a", batch_size=4, on_error="skip"
    )
    kept = [row for i, row in enumerate(rows[:9]) if i not in bad]
    clean = cache.build(write_shard(tmp_path / "good.arrow", kept), transform, tmp_path / "b", batch_size=4)
    assert np.array_equal(found.flat("spectrogram"), clean.flat("spectrogram"))
    assert np.array_equal(found.flat("label"), clean.flat("label"))
    assert [error["row"] for error in found.errors()] == sorted(bad)
    assert {error["kind"] for error in found.errors()} <= {"unsupported", "empty", "unreadable"}


def test_numbers_without_nulls_are_kept(tmp_path: Path) -> None:
    lists = [[i] * (i % 4) for i in range(30)]
    values: list[Any] = [None if i == 4 else [1, None] if i == 11 else numbers for i, numbers in enumerate(lists)]
    labels = [None if i == 20 else i for i in range(30)]
    shard = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ids": values, "label": labels}), shard, row_group_size=7)
    store = cache.build(shard, None, tmp_path / "c", batch_size=6, on_error="skip")
    kept = [i for i in range(30) if i not in (4, 11, 20)]
    assert [document["ids"].tolist() for document in store.get_batch(range(len(store)))] == [lists[i] for i in kept]
    assert store.flat("label").tolist() == kept
    assert [(error["row"], error["kind"]) for error in store.errors()] == [(i, "unreadable") for i in (4, 11, 20)]
    with pytest.raises(DecodeError, match=r"row 4: column \"ids\" has a null"):
        cache.build(shard, None, tmp_path / "d", batch_size=6)


SHARDS = unequal((60, 0, 25, 90))
PICKED = [number for numbers in SHARDS.values() for number in numbers if Picky.refuses(number)]


def build(folder: Path, **options: Any) -> Any:
    return cache.build(SHARDS, Picky(), folder, batch_size=8, on_error="skip", **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an undisturbed build."""
    folder = tmp_path_factory.mktemp("whole")
    store = build(folder)
    assert sorted(store.flat("number").tolist()) == [i for i in range(175) if not Picky.refuses(i)]
    found = {(error["shard"], error["row"]) for error in store.errors()}
    assert found == {(name, at) for name, all_ in SHARDS.items() for at, i in enumerate(all_) if Picky.refuses(i)}
    assert all(error["reason"].startswith("ValueError: not ") for error in store.errors())
    return files(folder)


def test_workers_change_nothing(tmp_path: Path, whole: dict[str, bytes]) -> None:
    for n_workers in (1, 3, 7):
        build(tmp_path / str(n_workers), n_workers=n_workers)
        assert files(tmp_path / str(n_workers)) == whole


def test_interrupted_builds_change_nothing(tmp_path: Path, whole: dict[str, bytes], soak: int) -> None:
    random.seed(9)
    for trial in range(3 * soak):
        folder = tmp_path / str(trial)
        for _ in range(4):
            handle = cache.build(SHARDS, Picky(sleep_s=0.01), folder, batch_size=8, on_error="skip", wait=False)
            time.sleep(random.uniform(0.0, 0.1))
            handle.cancel()
        assert build(folder).n_errors == len(PICKED)
        assert files(folder) == whole


SCRIPT = """
import sys
from caches import Picky, unequal
from forebay import cache
cache.build(unequal((60, 0, 25, 90)), Picky(sleep_s=0.1, times=300), sys.argv[1], batch_size=8, on_error="skip")
"""


def test_killed_builds_change_nothing(tmp_path: Path, soak: int) -> None:
    cache.build(SHARDS, Picky(times=300), tmp_path / "whole", batch_size=8, on_error="skip")
    path = os.pathsep.join(filter(None, sys.path))
    for trial in range(2 * soak):
        folder = tmp_path / str(trial)
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(folder)], env={**os.environ, "PYTHONPATH": path}
            )
            time.sleep(random.uniform(0.3, 1.5))
            process.kill()
            process.wait()
        cache.build(SHARDS, Picky(times=300), folder, batch_size=8, on_error="skip")
        assert files(folder) == files(tmp_path / "whole")


def test_too_many(tmp_path: Path, whole: dict[str, bytes]) -> None:
    with pytest.raises(DecodeError, match=r"6 records failed, max_errors allows 5; .*see errors\(\) of the cache"):
        build(tmp_path, max_errors=5)
    ledger = json.loads((tmp_path / "train" / "shard_ledger.json").read_text())
    assert 0 < ledger["forebay"]["skipped"]["documents"] <= 5
    # Failed records of earlier calls count.
    with pytest.raises(DecodeError, match="6 records failed"):
        build(tmp_path, max_errors=5)
    build(tmp_path, max_errors=len(PICKED))
    assert files(tmp_path) == whole
    with pytest.raises(DecodeError, match=f"{len(PICKED)} records failed before, max_errors allows 5"):
        build(tmp_path, max_errors=5)


def test_the_other_policy_goes_on_where_that_is_right(tmp_path: Path, whole: dict[str, bytes]) -> None:
    # No document is missing from those committed before the error.
    with pytest.raises(ValueError, match="not "):
        cache.build(SHARDS, Picky(), tmp_path / "a", batch_size=8)
    build(tmp_path / "a")
    assert files(tmp_path / "a") == whole
    # A cache with documents left out does not fit the default on_error="raise".
    with pytest.raises(StateError, match=f'{len(PICKED)} documents were left out .*on_error="skip" to continue it'):
        cache.build(SHARDS, Picky(), tmp_path / "a", batch_size=8)
    assert build(tmp_path / "a").n_errors == len(PICKED)


def test_only_verdicts_on_documents_are_skipped(tmp_path: Path) -> None:
    def reads(documents: list[int]) -> list[dict[str, Any]]:
        raise FileNotFoundError(f"no file for {documents}")

    def likes_them_alone(documents: list[int]) -> list[dict[str, Any]]:
        if len(documents) > 1:
            raise ValueError("one by one, please")
        return [{"x": document} for document in documents]

    for name, processor, expected in [("a", reads, FileNotFoundError), ("b", likes_them_alone, ValueError)]:
        with pytest.raises(expected):
            cache.build({"a": range(10)}, processor, tmp_path / name, on_error="skip")


def test_nothing_but_bad_documents(tmp_path: Path) -> None:
    def refuses(documents: list[int]) -> list[dict[str, Any]]:
        raise ValueError(f"not {documents[0]}")

    store = cache.build({"a": range(20)}, refuses, tmp_path, batch_size=8, on_error="skip")
    assert (len(store), [error["row"] for error in store.errors()]) == (0, list(range(20)))


def test_it_is_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "forebay"):
        handle = build(tmp_path, wait=False)
        handle.wait()
    told = [record.message for record in caplog.records if "skipped a bad record (callback)" in record.message]
    assert 0 < len(told) <= 8
    assert handle.progress().skipped == len(PICKED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, 'on_error is "ignore", must be "skip" or "raise"'),
        ({"on_error": "skip", "max_errors": -1}, "max_errors is -1, must be 0 or more"),
        ({"on_error": "skip", "max_errors": 0.1}, "max_errors is 0.1, must be a whole number"),
    ],
)
def test_parameters(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        cache.build({"a": [1]}, Picky(), tmp_path, **options)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["build", str(text(tmp_path)), "-o", str(tmp_path / "c"), "-t", str(TOKENIZER_PATH)]
    assert main(arguments) == 1
    assert "cannot be read as UTF-8" in capsys.readouterr().err
    assert main([*arguments, "--on-error", "skip", "--max-errors", "4"]) == 1
    assert "max_errors allows 4" in capsys.readouterr().err
    assert main([*arguments, "--on-error", "skip"]) == 0
    assert f"{len(GOOD)} documents in {tmp_path / 'c'}, {len(BAD)} left out" in capsys.readouterr().err
