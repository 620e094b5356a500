"""A file, a folder, a pattern and a list name the same shards in the same order, for all loaders and commands."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from forebay import cache, cli
from forebay.tokens import Tokenizer, list_parquet_files, parquets_iter_batched
from paths import DATA
from recordings import TINY, tiny_rows

GPT2 = DATA / "tokens" / "gpt2.tiktoken"
SHARDS = ["a/shard_2.parquet", "a/shard_10.parquet", "b/shard_1.parquet", "shard_3.parquet"]
Reader: TypeAlias = Callable[[Any, Path], list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Shards of recordings and texts in folders, with names to be left out; `number` is the number in the name."""
    folder = tmp_path / "data"
    for name in [*SHARDS, "_hidden/x.parquet", ".x.parquet", "a/late.parquet.tmp"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        number = SHARDS.index(name) if name in SHARDS else 99
        rows = {
            "audio": [row.audio for row in tiny_rows(4)],
            "text": [f"{number} says a word"] * 4,
            "number": pa.array([number] * 4),
        }
        pq.write_table(pa.table(rows), folder / name)
    (folder / "README.md").write_text("what this is")
    return folder


def recordings(given: Any, _: Path) -> list[str]:
    with forebay.Loader.eval(given, **TINY) as loader:
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.shards == loader.shards
        return [shard["path"] for shard in loader.shards]


def source(given: Any, _: Path) -> list[str]:
    with forebay.Loader({"one": given}, **TINY) as loader:
        return [shard["path"] for shard in loader.shards]


def tokens(given: Any, _: Path) -> list[str]:
    found = []
    for split in ("train", "val"):
        with forebay.TokenLoader(given, GPT2, 1, 8, split) as loader:
            found += [shard["path"] for shard in loader.shards]
    return found


def texts(given: Any, folder: Path) -> list[str]:
    found = [text for split in ("train", "val") for text in parquets_iter_batched(split, data_dir=given)]
    return [str(folder / SHARDS[int(text[0].split()[0])]) for text in found]


def built(given: Any, folder: Path) -> list[str]:
    store = cache.build(given, None, folder.parent / "cache", columns=["number"], batch_size=4, progress=False)
    return [str(folder / SHARDS[int(store[row]["number"])]) for row in range(0, len(store), 4)]


def checked(given: Any, folder: Path) -> list[str]:
    report = folder.parent / "report"
    arguments = given if isinstance(given, list | tuple) else [given]
    assert cli.main(["check", *map(str, arguments), "-o", str(report), "--restart"]) == 0
    return [shard["path"] for shard in json.loads(report.with_suffix(".json").read_text())["shards"]]


READERS = [recordings, source, tokens, texts, built, checked]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("", SHARDS),
        ("**", SHARDS),
        ("**/*.parquet", SHARDS),
        ("[ab]", SHARDS[:3]),
        ("?/shard_[0-9]*", SHARDS[:3]),
        ("a/shard_1*,shard_3.parquet,b", [SHARDS[1], SHARDS[3], SHARDS[2]]),
        ("b/shard_1.parquet,a/shard_10.parquet,a/shard_2.parquet", [SHARDS[2], SHARDS[1], SHARDS[0]]),
    ],
)
def test_all_read_the_same_files(read: Reader, folder: Path, named: str, expected: list[str]) -> None:
    given = [folder / name for name in named.split(",")]
    assert read(given if len(given) > 1 else given[0], folder) == [str(folder / name) for name in expected]


@pytest.mark.parametrize("read", READERS)
def test_what_cannot_be_read(read: Reader, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each reader refuses the same values, with the same words."""

    def message(given: Any, expected: type[Exception]) -> str:
        if read is checked:
            with pytest.raises((AssertionError, SystemExit)):
                read(given, folder)
            return capsys.readouterr().err
        with pytest.raises(expected) as caught:
            read(given, folder)
        return str(caught.value)

    assert "no file matches the pattern" in message(folder / "*.arrow", FileNotFoundError)
    assert "none" in message(folder / "none.parquet", FileNotFoundError)
    assert "~ is not expanded" in message("~/none.parquet", FileNotFoundError)
    assert "** stands between slashes" in message(folder / "**.parquet", forebay.ConfigError)
    twice = message([folder / "a", folder / "a" / "shard_2.parquet"], forebay.ConfigError)
    assert "a/shard_2.parquet is given twice" in twice
    (folder / "a" / "up").symlink_to(folder)
    assert "up is a link to " in message(folder, forebay.ConfigError)
    (folder / "wav").mkdir()
    for number in range(12):
        (folder / "wav" / f"{number}.wav").touch()
    if read in (recordings, source):
        assert read(folder / "wav", folder) == [str(folder / "wav")]
    elif read is not checked:
        told = message(folder / "wav", FileNotFoundError)
        advice = "a cache of recordings needs a processor|recordings are read by forebay.Loader"
        assert re.search(rf"found 12 files ending in \.wav; ({advice})", told), told
    if read is checked:
        return
    assert "folders in a path are separated by /" in message("none\\a.parquet", FileNotFoundError)
    assert "pathlib makes one slash of two" in message(Path("s3://bucket/a.parquet"), forebay.ConfigError)
    relative = message("none/a.parquet", FileNotFoundError)
    assert f"(relative to the current folder, {Path.cwd()})" in relative
    assert relative.count("none/a.parquet") == 1
    assert "os error" not in relative
    assert "a data set of the Hub is hf://datasets/no-one/a_1" in message("no-one/a_1", FileNotFoundError)
    for unordered in ({folder / "a", folder / "b"}, frozenset([folder])):
        assert "is a set, whose order differs from run to run" in message(unordered, TypeError)
    assert "is a generator, whose order may differ between machines" in message(folder.glob("*"), TypeError)
    for wrong in (3, b"a.parquet", [folder / "a", 3], [b"a.parquet"]):
        assert "(type " in message(wrong, TypeError)


def test_orders_depend_on_names_alone(folder: Path, tmp_path: Path) -> None:
    """Files made in another order, and links to them, are read in the same order."""
    other = tmp_path / "other"
    for name in reversed(SHARDS):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).symlink_to(folder / name)
    batches = []
    for given in (folder, other, other / "**" / "*.parquet", [other / "a", other / "b", other / "shard_3.parquet"]):
        with forebay.Loader.eval(given, **TINY) as loader:
            batches.append(np.concatenate([batch["spectrogram"] for batch in loader]))
    assert all(np.array_equal(batches[0], other) for other in batches[1:])
    assert list_parquet_files(folder) == [str(folder / name) for name in SHARDS]


def test_a_build_reads_lines_of_folders(tmp_path: Path) -> None:
    for name in ("2.jsonl", "10.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
    (tmp_path / "notes.md").touch()
    tokenizer = Tokenizer(GPT2)
    store = cache.build(tmp_path, tokenizer, tmp_path / "_cache", order="concat", progress=False)
    assert [store[row]["input_ids"][1:].tolist() for row in range(2)] == [
        tokenizer.encode(name).tolist() for name in ("2.jsonl", "10.jsonl")
    ]
    # The same command resumes; another file is another build.
    assert len(cache.build(tmp_path / "*.jsonl", tokenizer, tmp_path / "_cache", order="concat", progress=False)) == 2
    (tmp_path / "11.jsonl").write_text('{"text": "b"}\n')
    with pytest.raises(forebay.StateError, match=r"11\.jsonl"):
        cache.build(tmp_path, tokenizer, tmp_path / "_cache", order="concat", progress=False)
    (tmp_path / "README.txt").write_text("text\n")
    with pytest.raises(forebay.ConfigError, match=r"several formats: 3 of JSON lines, 1 of text; name one kind, as in"):
        cache.build(tmp_path, tokenizer, tmp_path / "_cache", order="concat", progress=False)
