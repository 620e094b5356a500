"""Caches of processed documents: order, kinds of shards, processors, and reading by other libraries."""

import fcntl
import functools
import gzip
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorstore
import zarr
import zarrs

from caches import Number, expected, files, ids, same, unequal
from forebay import ConfigError, ForebayError, Loader, SpectrogramTransform, StateError, _core, cache, decode
from forebay.cache import building
from forebay.cli import main
from forebay.tokens import Tokenizer
from paths import DATA
from recordings import Row
from timing import eventually

TOKENIZER = DATA / "tokens" / "tokenizer.json"
TEXTS = [f"Document {i} says: {'forebay ' * (i % 9)}, and that is all." for i in range(60)] + ["", "ünï\u00e7ødé"]


def numbers(store: cache.TreeStore) -> list[int]:
    return [int(document["number"]) for document in store.get_batch(range(len(store)))]


@pytest.mark.parametrize("order", ["round_robin", "concat"])
def test_the_order_is_that_of_the_shards_whatever_workers_do(tmp_path: Path, order: Any) -> None:
    shards = unequal()
    seen = set()
    for batch_size, n_workers in [(1, 3), (8, 1), (8, 2), (8, 7), (1000, 4)]:
        folder = tmp_path / f"{batch_size}-{n_workers}"
        store = cache.build(
            shards, Number(sleep_s=0.002), folder, batch_size=batch_size, order=order, n_workers=n_workers
        )
        assert numbers(store) == expected(shards, batch_size, order)
        assert all(same(store[i], number) for i, number in enumerate(numbers(store)))
        if batch_size == 8:
            seen.add(json.dumps({name: data.hex() for name, data in sorted(files(folder).items())}))
    assert len(seen) == 1


def test_a_processor_may_give_less_or_more(tmp_path: Path) -> None:
    def odd_ones_twice(documents: list[int]) -> dict[str, list[list[int]]]:
        return {"x": [[document] for document in documents if document % 2 for _ in range(2)]}

    store = cache.build({"a": range(20), "b": [0, 2, 4]}, odd_ones_twice, tmp_path, batch_size=4)
    assert [document["x"].tolist() for document in store.get_batch(range(len(store)))] == [
        [number] for number in range(1, 20, 2) for _ in range(2)
    ]


ALL = slice(None)


def by_zarr(array: Path, rows: slice = ALL) -> np.ndarray[Any, Any]:
    return np.asarray(zarr.open_array(array, mode="r")[rows])


def by_zarrs(array: Path, rows: slice = ALL) -> np.ndarray[Any, Any]:
    """The array as the Rust crate decodes it, under the interface of zarr-python."""
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        opened = zarr.open_array(array, mode="r")
        assert isinstance(opened.async_array.codec_pipeline, zarrs.ZarrsCodecPipeline)
        return np.asarray(opened[rows])


def by_tensorstore(array: Path, rows: slice = ALL) -> np.ndarray[Any, Any]:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(array)}}
    return np.asarray(tensorstore.open(spec, open=True).result()[rows].read().result())


@pytest.mark.parametrize("read", [by_zarr, by_zarrs, by_tensorstore])
def test_other_libraries_read_the_same(read: Callable[..., Any], tmp_path: Path) -> None:
    shards = {"a": range(300)}
    for compression in ("none", "zstd", "zstd:3"):
        folder = tmp_path / compression
        store = cache.build(shards, Number(), folder, compression=compression)
        wanted = {
            "train/prompt/input_ids/data": np.concatenate([ids(i) for i in range(300)]),
            "train/prompt/input_ids/offsets": np.r_[300, np.cumsum([len(ids(i)) for i in range(300)])],
            "train/matrix/shapes": np.array([[i % 3 + 1] for i in range(300)]),
            "train/matrix/data": np.concatenate([np.full((i % 3 + 1) * (i % 5), i) for i in range(300)]),
            "train/number/data": np.arange(300),
        }
        for name, values in wanted.items():
            assert np.array_equal(read(folder / name), values), (compression, name)
        assert read(folder / "train/prompt/input_ids/data").dtype == np.uint16
        assert np.array_equal(store.flat("prompt/input_ids", 5, 900), wanted["train/prompt/input_ids/data"][5:900])
    group = zarr.open_group(tmp_path / "none", mode="r")
    assert np.array_equal(group["train/number/data"][:], np.arange(300))


@pytest.mark.parametrize("compression", ["none", "zstd:3"])
def test_other_libraries_read_several_chunks_and_shards(compression: str, tmp_path: Path) -> None:
    lengths = np.arange(165_546) % 3
    values = np.arange(lengths.sum()) % 251
    column = pa.ListArray.from_arrays(np.r_[0, np.cumsum(lengths)].astype(np.int32), values.astype(np.uint8))
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    cache.build([tmp_path / "a.parquet"], None, tmp_path / "cache", commit_documents=65_535, compression=compression)
    folder = tmp_path / "cache" / "train" / "x"
    for read in (by_zarr, by_zarrs, by_tensorstore):
        assert np.array_equal(read(folder / "offsets"), np.r_[len(lengths), np.cumsum(lengths)])
        assert np.array_equal(read(folder / "data"), values)
        assert np.array_equal(read(folder / "data", slice(70_000, 90_001)), values[70_000:90_001])


@pytest.fixture
def text_shards(tmp_path: Path) -> dict[str, list[Path]]:
    """Two shards of the texts in each format."""
    halves = [TEXTS[:40], TEXTS[40:]]
    made: dict[str, list[Path]] = {}

    def add(kind: str, at: int) -> Path:
        path = tmp_path / f"{at}.{kind}"
        made.setdefault(kind, []).append(path)
        return path

    for at, half in enumerate(halves):
        table = pa.table({"text": half, "n": range(len(half))})
        pq.write_table(table, add("parquet", at), row_group_size=16)
        with pa.OSFile(str(add("arrow", at)), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
        with pa.OSFile(str(add("feather", at)), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in half).encode()
        add("jsonl", at).write_bytes(lines)
        add("jsonl.gz", at).write_bytes(gzip.compress(lines))
        add("jsonl.zst", at).write_bytes(pa.Codec("zstd").compress(lines, asbytes=True))
        add("txt", at).write_text("".join(text + "\n" for text in half), encoding="utf-8")
    return made


def test_tokens_are_those_of_the_tokenizer_from_every_kind_of_shard(
    text_shards: dict[str, list[Path]], tmp_path: Path
) -> None:
    tokenizer = Tokenizer(TOKENIZER)
    order = TEXTS[:16] + TEXTS[40:56] + TEXTS[16:32] + TEXTS[56:] + TEXTS[32:40]
    wanted = [[tokenizer.bos_id, *tokenizer.encode(text).tolist()] for text in order]
    for kind, paths in text_shards.items():
        store = cache.build(paths, tokenizer, tmp_path / "caches" / kind, batch_size=16)
        assert store.fields == {"input_ids": (np.dtype(np.uint16), 1)}
        found = [document["input_ids"].tolist() for document in store.get_batch(range(len(store)))]
        assert found == wanted, kind
    plain = cache.Tokenize(tokenizer, bos=False, field="prompt/ids")
    store = cache.build({"a": TEXTS}, plain, tmp_path / "plain")
    assert store[3]["prompt"]["ids"].tolist() == tokenizer.encode(TEXTS[3]).tolist()


def test_a_function_sees_rows_as_they_are(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": pa.array(["a", None, "c"]),
            "list": pa.array([[1, 2], [], [3]], pa.list_(pa.int16())),
            "deep": pa.array([{"x": 1.5, "y": [b"q"]}] * 3),
            "flag": [True, False, True],
            "left out": pa.array([1, 2, 3], pa.timestamp("s")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    seen: list[dict[str, Any]] = []

    def look(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen.extend(rows)
        return [{"x": row["list"]} for row in rows]

    store = cache.build(
        tmp_path / "a.parquet", look, tmp_path / "cache", columns=["text", "list", "deep", "flag"], n_workers=1
    )
    assert [row["text"] for row in seen] == ["a", None, "c"]
    assert seen[0]["list"].dtype == np.int16
    assert seen[0]["list"].tolist() == [1, 2]
    assert seen[2]["deep"] == {"x": 1.5, "y": [b"q"]}
    assert [row["flag"] for row in seen] == [True, False, True]
    assert store.fields == {"x": (np.dtype(np.int16), 1)}
    with pytest.raises(TypeError, match="columns=") as raised:
        cache.build(tmp_path / "a.parquet", look, tmp_path / "all")
    assert re.search(r"^.*a\.parquet: the documents cannot be converted to Python ", raised.value.__notes__[0])


def test_columns_of_numbers_are_kept(tmp_path: Path) -> None:
    lists = [list(range(i % 50)) for i in range(1000)]
    table = pa.table({"ids": pa.array(lists, pa.list_(pa.int32())), "label": range(1000), "text": ["x"] * 1000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    fields = {"ids": "uint16", "label": "int8"}
    with pytest.raises(ConfigError, match=r"a\.parquet: column \"text\" is text; without a processor"):
        cache.build(tmp_path / "a.parquet", None, tmp_path / "all", fields=fields)
    with pytest.raises(ConfigError, match=r"label.*128 does not fit into int8"):
        cache.build(tmp_path / "a.parquet", None, tmp_path / "small", fields=fields, columns=list(fields))
    fields["label"] = "uint16"
    store = cache.build(tmp_path / "a.parquet", None, tmp_path / "cache", fields=fields, columns=list(fields))
    assert store.fields == {"ids": (np.dtype(np.uint16), 1), "label": (np.dtype(np.uint16), 0)}
    assert [document["ids"].tolist() for document in store.get_batch(range(1000))] == lists
    assert [int(store[i]["label"]) for i in (0, 999)] == [0, 999]


def test_recordings_become_features(shards: list[Path], rows: list[Row], tmp_path: Path) -> None:
    transform = SpectrogramTransform(sample_rate=16000, n_mels=32)
    store = cache.build(shards, transform, tmp_path, batch_size=4, order="concat")
    assert len(store) == len(rows)
    for i in (0, 5, len(rows) - 1):
        document = store[i]
        waveform, rate = decode(rows[i].audio or b"")
        mono = waveform if waveform.ndim == 1 else waveform.mean(0, dtype=np.float32)
        n_samples = -(-len(mono) * 16000 // rate)
        assert document["spectrogram"].shape == (32, transform.n_frames(n_samples))
        assert int(document["label"]) == rows[i].label
        if rate == 16000:
            assert np.array_equal(document["spectrogram"], transform.transform(np.ascontiguousarray(mono)))


def test_a_build_goes_on_behind_the_call(tmp_path: Path) -> None:
    gate = threading.Event()

    def wait_first(documents: list[int]) -> list[dict[str, Any]]:
        if documents[0] >= 50:
            gate.wait(120)
        return [{"x": [document]} for document in documents]

    wait_first.fingerprint = "it"  # type: ignore[attr-defined]
    handle = cache.build({"a": range(100)}, wait_first, tmp_path, batch_size=10, wait=False)
    assert handle.wait(0.2) is None
    store = cache.TreeStore(tmp_path)
    assert not store.is_final
    with pytest.raises(StateError, match="another writer has the cache"):
        cache.build({"a": range(100)}, wait_first, tmp_path, batch_size=10)
    gate.set()
    finished = handle.wait()
    assert finished is not None
    assert (len(finished), finished.is_final, store.wait()) == (100, True, 100)
    progress = handle.progress()
    assert (progress.documents, progress.values, progress.finished_shards, progress.part) == (100, 100, 1, 1.0)


def test_a_finished_cache_is_opened_without_a_lock(tmp_path: Path) -> None:
    """As by all ranks of a node at a time, or from a folder that may only be read."""

    def build(shards: dict[str, Any], **given: Any) -> cache.TreeStore:
        built = cache.build(shards, Number(), tmp_path, progress=False, **given)
        assert isinstance(built, cache.TreeStore)
        return built

    shards: dict[str, Any] = {"a": range(100), "b": range(30)}
    written = build(shards)
    (lock,) = tmp_path.rglob(".writer")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with lock.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        again = build(shards)
        assert (len(again), again.is_final) == (len(written), True)
        assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(StateError, match='the shard "c" is new'):
            build({**shards, "c": range(3)})
        with pytest.raises(StateError, match="another writer has the cache"):
            build(shards, overwrite=True)


def test_a_cancelled_build_is_gone_on_with(tmp_path: Path) -> None:
    shards = unequal((400, 300))
    handle = cache.build(shards, Number(sleep_s=1.0), tmp_path / "a", batch_size=8, wait=False)
    eventually(lambda: handle.progress().documents > 0)
    assert handle.wait(0.01) is None
    handle.cancel()
    some = len(cache.TreeStore(tmp_path / "a"))
    assert 0 < some < 700
    with pytest.raises(ForebayError, match="cancelled"):
        handle.wait()
    cache.build(shards, Number(), tmp_path / "a", batch_size=8)
    cache.build(shards, Number(), tmp_path / "b", batch_size=8)
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("path", ["~/cache", "~someone", Path("~") / "cache"])
def test_no_folder_is_called_tilde(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"^path is '{path}', and ~ is not expanded; give the whole path"):
        cache.build({"a": [{"x": 1}]}, None, path)
    with pytest.raises(ConfigError, match=r"^path is empty; give the path of a folder, or '.' for the current one"):
        cache.build({"a": [{"x": 1}]}, None, "")
    assert not list(tmp_path.iterdir())


def test_a_cache_is_no_source(tmp_path: Path) -> None:
    cache.build({"a": [{"x": 1}]}, None, tmp_path / "cache")
    with pytest.raises(
        FileNotFoundError, match=r"has no shards .*; it is a cache, which forebay\.cache\.TreeStore opens"
    ):
        Loader(tmp_path / "cache")


def test_what_differs_is_named(tmp_path: Path) -> None:
    shard = tmp_path / "a.txt"
    shard.write_text("one\ntwo\n")
    tokenizer = Tokenizer(TOKENIZER)
    cache.build(shard, tokenizer, tmp_path / "c")
    changes: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((r"batch_size was \"128\" and is \"64\"",), {"batch_size": 64}),
        ((r"order was \"round_robin\" and is \"concat\"",), {"order": "concat"}),
        ((r"compression was \"none\" and is \"zstd\"",), {"compression": "zstd"}),
        ((r"fields was", "uint32"), {"fields": {"input_ids": "uint32"}}),
    ]
    for parts, change in changes:
        with pytest.raises(StateError, match=".*".join(parts)) as raised:
            cache.build(shard, tokenizer, tmp_path / "c", **change)
        assert "overwrite=True" in str(raised.value)
    with pytest.raises(StateError, match=r"processor was .*with BOS.* and is .*without BOS"):
        cache.build(shard, cache.Tokenize(tokenizer, bos=False), tmp_path / "c")
    cache.build({"a": [1], "b": []}, Number(), tmp_path / "d")
    with pytest.raises(StateError, match=r"parameters: the shard \"a\" is missing; the shard \"c\" is new"):
        cache.build({"b": [], "c": []}, Number(), tmp_path / "d")
    with pytest.raises(StateError, match="the shards were given in another order"):
        cache.build({"b": [], "a": [1]}, Number(), tmp_path / "d")
    shard.write_text("one\nTWO\n")
    with pytest.raises(StateError, match=r"sources .*a\.txt.* was \"8 bytes"):
        cache.build(shard, tokenizer, tmp_path / "c")
    store = cache.build(shard, tokenizer, tmp_path / "c", overwrite=True)
    assert store[1]["input_ids"].tolist()[1:] == tokenizer.encode("TWO").tolist()


def test_a_function_is_told_from_others_by_what_it_holds(tmp_path: Path) -> None:
    def scale(documents: list[int], by: int = 1) -> list[dict[str, Any]]:
        return [{"x": [by * document]} for document in documents]

    def scaled(by: object) -> Any:
        return lambda documents: [{"x": [by * document]} for document in documents]

    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
            return scale(documents, self.by)

    same, other = (functools.partial(scale, by=2) for _ in range(2)), functools.partial(scale, by=3)
    cache.build({"a": [1]}, next(same), tmp_path / "partial")
    cache.build({"a": [1]}, next(same), tmp_path / "partial")
    with pytest.raises(StateError, match=r"processor was .*partial of .*scale"):
        cache.build({"a": [1]}, other, tmp_path / "partial")
    cache.build({"a": [1]}, scaled(2), tmp_path / "closure")
    with pytest.raises(StateError, match="processor was"):
        cache.build({"a": [1]}, scaled(3), tmp_path / "closure")
    with pytest.raises(ConfigError, match=r"has a lock that cannot be pickled .* attribute `fingerprint`"):
        cache.build({"a": [1]}, scaled(threading.Lock()), tmp_path / "lock")
    cache.build({"a": [1]}, Number(times=1), tmp_path / "own")
    cache.build({"a": [1]}, Number(times=1, sleep_s=0.001), tmp_path / "own")
    with pytest.raises(ConfigError, match="has a Scale that cannot be pickled"):
        cache.build({"a": [1]}, Scale(2), tmp_path / "object")


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"shard 'a' is an iterator \(list_iterator\), which can be read once only"):
        cache.build({"a": iter([1])}, Number(), tmp_path)
    with pytest.raises(TypeError, match=r"batch_size is '.*' \(type str\), must be an int"):
        cache.build({}, None, tmp_path, batch_size="8")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match=r"batch_size is 0, .*; n_workers is 0, .*; order is 'x', .*; engine is 'y'"):
        cache.build({}, None, tmp_path, batch_size=0, n_workers=0, order="x", engine="y")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="compression is"):
        cache.build({"a": []}, None, tmp_path, compression="lzma")
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "a.bin").write_bytes(b"whatever")
    with pytest.raises(ConfigError, match=r"the shard .* is given twice"):
        cache.build([tmp_path / "a.txt"] * 2, Number(), tmp_path / "twice")
    with pytest.raises(FileNotFoundError):
        cache.build(tmp_path / "none.parquet", Number(), tmp_path / "none")
    with pytest.raises(ConfigError, match="is not a shard in a known format"):
        cache.build(tmp_path / "a.bin", Number(), tmp_path / "bin")
    with pytest.raises(TypeError, match="processor is int"):
        cache.build({"a": []}, 3, tmp_path)  # type: ignore[call-overload]
    with pytest.raises(FileNotFoundError):
        cache.TreeStore(tmp_path / "none")
    store = cache.build({"a": [{"x": [1]}]}, None, tmp_path / "one")
    for index in (1, -2):
        with pytest.raises(IndexError, match=f"document {index} is requested, but there are 1"):
            store[index]
    with pytest.raises(TypeError, match=r"index is slice\(.*\) \(type slice\), must be an int"):
        store[:1]  # type: ignore[index]
    with pytest.raises(IndexError):
        store.get_batch([-1])
    with pytest.raises(KeyError, match="the fields are x"):
        store.flat("y")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("overwrite", [False, True])
def test_shards_in_the_target_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str], overwrite: bool) -> None:
    """Shards in the target folder are not removed: "train", the default `split`, is a usual name of their folder."""
    folder = tmp_path / "train"
    folder.mkdir()
    shards = [folder / f"{i}.txt" for i in range(3)]
    for path in (*shards, folder / "notes", tmp_path / "b.txt"):
        path.write_text("one\ntwo\n")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"0\.txt.* is in .*train"):
        cache.build(shards, Number(), tmp_path, overwrite=overwrite)
    with pytest.raises(StateError, match=r"is not a cache of forebay.* \"0\.txt\", \"1\.txt\", \"2\.txt\" and 1 more"):
        cache.build(tmp_path / "b.txt", Number(), tmp_path, overwrite=overwrite)
    for split in ("", ".", "..", "a/b", str(tmp_path / "elsewhere")):
        with pytest.raises(ConfigError, match="split is"):
            cache.build(tmp_path / "b.txt", Number(), tmp_path, split=split, overwrite=overwrite)
    arguments = ["build", str(tmp_path / "b.txt"), "-o", str(tmp_path), "-t", str(TOKENIZER)]
    assert main([*arguments, *(["--overwrite"] if overwrite else [])]) == 1
    assert "is not a cache of forebay" in capsys.readouterr().err
    assert contents(tmp_path) == before
    assert main([*arguments, "--split", "val"]) == 0
    assert {name: data for name, data in contents(tmp_path).items() if name in before} == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_cache_that_is_read_is_not_written(tmp_path: Path, overwrite: bool) -> None:
    """A build into the cache that it reads is refused, also with `overwrite`, which would remove the documents."""
    store = cache.build({"a": [{"x": [1]}, {"x": [2]}]}, None, tmp_path)
    before = contents(tmp_path)
    inputs: list[Any] = [store, cache.CacheDataset(tmp_path)]
    for again in inputs:
        with pytest.raises(ConfigError, match=r"shard 'again' is the cache in .*train, which the build would write"):
            cache.build({"again": again}, None, tmp_path / ".", overwrite=overwrite)
    assert contents(tmp_path) == before
    assert len(cache.build({"again": inputs[0]}, None, tmp_path, split="val")) == 2


def test_functions_are_told_apart_by_what_they_do(tmp_path: Path) -> None:
    """A build identifies functions by their code, also several lambdas in one line and functions without source."""
    once, thrice = lambda rows: rows, lambda rows: [{"x": row["x"] * 3} for row in rows]  # fmt: skip
    documents = {"a": [{"x": np.arange(4)}] * 3}
    assert cache.build(documents, once, tmp_path)[0]["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(StateError, match="was made with other parameters"):
        cache.build(documents, thrice, tmp_path)
    makers = []
    for factor in (2, 5):
        scope: dict[str, Any] = {}
        exec(f"def made(rows):\n    return [{{'x': row['x'] * {factor}}} for row in rows]", scope)
        makers.append(scope["made"])
    assert cache.build(documents, makers[0], tmp_path, split="b")[0]["x"].tolist() == [0, 2, 4, 6]
    assert len(cache.build(documents, makers[0], tmp_path, split="b")) == 3
    with pytest.raises(StateError, match="was made with other parameters"):
        cache.build(documents, makers[1], tmp_path, split="b")


def test_overwrite_removes_the_cache_alone(tmp_path: Path) -> None:
    cache.build({"a": [{"x": [1]}]}, None, tmp_path)
    (tmp_path / "train" / "notes").write_text("mine")
    (tmp_path / "train" / "x" / "notes.tmp").write_text("mine")
    store = cache.build({"a": [{"y": [2, 3]}]}, None, tmp_path, overwrite=True)
    assert store[0]["y"].tolist() == [2, 3]
    assert (tmp_path / "train" / "notes").read_text() == "mine"
    assert [path.name for path in (tmp_path / "train" / "x").iterdir()] == ["notes.tmp"]


def test_documents_that_cannot_be_kept(tmp_path: Path) -> None:
    cases: list[tuple[list[Any], str]] = [
        ([{"x": "text"}], "values of <U4, expected numbers"),
        ([{"x": [1]}, {"y": [1]}], r"has the fields \['y'\]"),
        ([{"x": [1]}, {"x": [[1]]}], r"documents of \[1, 2\] axes"),
        ([[1]], "a document is list"),
        ([{"x": np.array([1], np.uint64)}, {"x": [1]}], "documents of int64 and uint64, which fit no integer type"),
    ]
    for at, (documents, message) in enumerate(cases):
        with pytest.raises((TypeError, ValueError), match=message):
            cache.build({"a": documents}, None, tmp_path / str(at))


def test_every_option_is_in_both_overloads() -> None:
    parameters = inspect.signature(cache.build).parameters
    keywords = {name for name, given in parameters.items() if given.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords == {"wait", *building._Options.__annotations__}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a set of cores to choose")
def test_workers_are_as_many_as_the_cores_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from forebay import _core; "
    ran = subprocess.run([sys.executable, "-c", code + "print(_core._cores())"], capture_output=True, check=True)
    assert int(ran.stdout) == 1
    assert 1 <= _core._cores() <= len(os.sched_getaffinity(0))

    class Recorder:
        identity = _core._CacheBuild.identity

        def __init__(self, *_arguments: object, n_workers: int, **_more: object) -> None:
            raise InterruptedError(n_workers)

    monkeypatch.setattr(building, "_CacheBuild", Recorder)
    monkeypatch.setattr(building, "_cores", lambda: 37)
    with pytest.raises(InterruptedError, match=r"^37$"):
        cache.build({"a": [{"x": [1]}]}, None, tmp_path)


def foreign(folder: Path) -> Path:
    """A cache like those of other programs, with zarr-python's default chunks and codecs."""
    group = zarr.open_group(folder, mode="w").create_group("train").create_group("input_ids")
    group.create_array("data", data=np.arange(5000, dtype=np.int32), chunks=(64,))
    group.create_array("offsets", data=np.array([5, *range(1000, 5001, 1000)]))
    ledger = {"total_num_rows": 5, "shard_rows": {"s": 5}, "is_finished": True, "finished_shards": ["s"]}
    (folder / "train" / "shard_ledger.json").write_text(json.dumps({**ledger, "field_counts": {}, "metadata": {}}))
    return folder


def test_a_cache_of_another_program_is_refused(tmp_path: Path) -> None:
    path = foreign(tmp_path)
    for make in (cache.TreeStore, cache.CacheDataset):
        with pytest.raises(ConfigError, match=r"another program wrote .*input_ids/data .*forebay\.cache\.convert"):
            make(path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo three\n")
    arguments = ["build", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c"), "-t", str(TOKENIZER)]
    assert main(arguments) == 0
    assert "2 documents in" in capsys.readouterr().err
    tokenizer = Tokenizer(TOKENIZER)
    assert cache.TreeStore(tmp_path / "c")[1]["input_ids"].tolist()[1:] == tokenizer.encode("two three").tolist()
    assert main([*arguments, "--batch-size", "7"]) == 1
    assert "--batch-size was" in capsys.readouterr().err
    assert main([*arguments, "--batch-size", "7", "--overwrite"]) == 0


def test_a_first_build_that_failed_can_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo three\n")
    arguments = ["build", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "--tokenizer encodes texts to ids" in capsys.readouterr().err
    assert main([*arguments, "-t", str(TOKENIZER)]) == 0
