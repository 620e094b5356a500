"""Caches that other programs wrote: `ForeignDataset` reads them, `convert` makes caches of forebay of them."""

import json
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
import zarr.codecs
from numpy.typing import NDArray

from caches import files
from forebay import ConfigError, DecodeError, ForebayError, StateError, cache
from forebay.cache import converting

Documents = Mapping[str, Sequence[NDArray[Any]]]
"""The documents of each field, by its path."""
Writer = Callable[[Path, NDArray[Any]], None]
"""Writes an array into a folder."""


def by_zarr(chunks: int = 64, shards: int | None = None, compressors: Any = "auto") -> Writer:
    """An array as zarr-python writes it."""

    def write(folder: Path, values: NDArray[Any]) -> None:
        def shape(rows: int | None) -> Any:
            return None if rows is None else (rows, *values.shape[1:])

        options: dict[str, Any] = {"chunks": shape(chunks), "shards": shape(shards), "compressors": compressors}
        zarr.create_array(str(folder), shape=values.shape, dtype=values.dtype, **options)[:] = values

    return write


def by_tensorstore(codecs: Sequence[Any], *, length: int | None = None, chunk: int = 128, shard: int = 1024) -> Writer:
    """An array as tensorstore writes it, with shards, of any length."""

    def write(folder: Path, values: NDArray[Any]) -> None:
        columns = values.shape[1:]
        inner = [{"name": "bytes", "configuration": {"endian": "little"}}, *codecs]
        sharding = {"chunk_shape": [chunk, *columns], "codecs": inner}
        metadata = {
            "shape": [len(values) if length is None else length, *columns],
            "data_type": values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shard, *columns]}},
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        }
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}, "metadata": metadata}
        array = tensorstore.open(spec, create=True).result()
        if len(values):
            array[: len(values)].write(values).result()

    return write


LEVANTER = by_tensorstore([{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5}}], length=1 << 54)
WRITERS: dict[str, Writer] = {
    "zarr": by_zarr(),
    "zarr raw": by_zarr(compressors=None),
    "zarr gzip": by_zarr(compressors=zarr.codecs.GzipCodec()),
    "zarr blosc, one chunk": by_zarr(chunks=1 << 16, compressors=zarr.codecs.BloscCodec()),
    "zarr sharded": by_zarr(chunks=16, shards=128, compressors=zarr.codecs.ZstdCodec()),
    "tensorstore 2^54": LEVANTER,
    "tensorstore zstd": by_tensorstore([{"name": "zstd", "configuration": {"level": 3}}, {"name": "crc32c"}]),
    "tensorstore gzip": by_tensorstore([{"name": "gzip", "configuration": {"level": 2}}], chunk=32),
}


def ledger_of(n: int, **changes: Any) -> dict[str, Any]:
    ledger = {"total_num_rows": n, "shard_rows": {"a": n}, "is_finished": True, "finished_shards": ["a"]}
    return {**ledger, "field_counts": {}, "metadata": {"preprocessor_metadata": {"by": "others"}}, **changes}


def write_cache(folder: Path, documents: Documents, write: Writer = LEVANTER, split: str = "train") -> Path:
    """A cache of the documents; entry 0 of its offsets is their number, the others are their ends."""
    n = len(next(iter(documents.values()), []))
    for name, arrays in documents.items():
        at = folder / split / name
        if arrays:
            write(at / "data", np.concatenate([array.ravel() for array in arrays]))
            write(at / "offsets", np.array([n, *np.cumsum([array.size for array in arrays])], np.int64))
            if arrays[0].ndim > 1:
                write(at / "shapes", np.array([array.shape[:-1] for array in arrays], np.int64))
    (folder / split).mkdir(parents=True, exist_ok=True)
    (folder / split / "shard_ledger.json").write_text(json.dumps(ledger_of(n)))
    return folder


def made(n: int = 300) -> dict[str, list[NDArray[Any]]]:
    """Documents of several types and numbers of axes, many of them empty."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 17, n) * (rng.random(n) < 0.8)
    return {
        "prompt/ids": [rng.integers(0, 1 << 15, length).astype(np.int32) for length in lengths],
        "prompt/mask": [rng.random(length) < 0.5 for length in lengths],
        "matrix": [rng.random((1 + i % 3, i % 4)).astype(np.float16) for i in range(n)],
        "cube": [rng.integers(0, 256, (2, 1 + i % 2, i % 5)).astype(np.uint8) for i in range(n)],
        "label": [np.array([i - 100], np.int64) for i in range(n)],
    }


def check(found: Sequence[Any], documents: Documents, rows: Sequence[int]) -> None:
    """Checks values, types and shapes of documents."""
    assert len(found) == len(rows)
    for document, row in zip(found, rows, strict=True):
        leaves = dict(leaves_of(document))
        assert leaves.keys() == documents.keys()
        for name, arrays in documents.items():
            assert leaves[name].dtype == arrays[row].dtype
            np.testing.assert_array_equal(leaves[name], arrays[row], strict=True)


def leaves_of(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, NDArray[Any]]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves_of(value, f"{path}{name}/")
        else:
            yield path + name, value


@pytest.fixture(params=["tensorstore", "zarr"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Reads by tensorstore, or without it."""
    if request.param == "zarr":
        monkeypatch.setitem(sys.modules, "tensorstore", None)
    return str(request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("how", WRITERS)
def test_documents_are_those_that_were_written(how: str, tmp_path: Path) -> None:
    documents = made()
    dataset = cache.ForeignDataset(write_cache(tmp_path, documents, WRITERS[how]))
    assert (len(dataset), dataset.final_length_is_known(), dataset.folder) == (300, True, tmp_path / "train")
    rng = np.random.default_rng(1)
    for rows in ([*range(300)], rng.integers(0, 300, 100).tolist(), [299, 7, 7, 0], [*range(20, 10, -1)], []):
        check(dataset.get_batch(rows), documents, rows)
    check([dataset[299]], documents, [299])
    for bad in (300, -1):
        with pytest.raises(IndexError):
            dataset.get_batch([0, bad])
    copy = pickle.loads(pickle.dumps(dataset))
    check(copy.get_batch([5, 6]), documents, [5, 6])
    assert repr(copy) == "<forebay.cache.ForeignDataset: 300 documents, cube, label, matrix, prompt/ids, prompt/mask>"


@pytest.mark.usefixtures("library")
def test_ends_beyond_one_chunk_of_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of offsets are dropped beyond the limit, and documents end in another chunk than they begin."""
    monkeypatch.setattr("forebay.cache.foreign._KEPT_BYTES", 64 * 8)
    documents = {"ids": [np.arange(i % 5, dtype=np.uint16) + i for i in range(500)]}
    dataset = cache.ForeignDataset(write_cache(tmp_path, documents, by_zarr(chunks=16)))
    rows = np.random.default_rng(2).permutation(500).tolist()
    check(dataset.get_batch(rows), documents, rows)


@pytest.mark.parametrize("how", ["zarr", "tensorstore 2^54"])
def test_datasets_and_loaders_over_it(how: str, tmp_path: Path) -> None:
    documents = {"ids": [np.arange(i % 7, dtype=np.int32) + i for i in range(100)]}
    dataset = cache.ForeignDataset(write_cache(tmp_path, documents, WRITERS[how]))
    shuffled = cache.PermutationDataset(dataset, seed=3)
    rows = shuffled.locate(range(100))[1].tolist()
    assert rows != sorted(rows) == [*range(100)]
    check(shuffled.get_batch(range(100)), documents, rows)
    pieces = [row for batch in cache.DataLoader(shuffled, batch_size=8) for row in batch["ids"]]
    for found, row in zip(pieces, rows, strict=True):
        np.testing.assert_array_equal(found, documents["ids"][row], strict=True)
    loader = cache.DataLoader(shuffled, batch_size=8)
    for _ in range(5):
        next(loader)
    state = loader.state_dict()
    resumed = cache.DataLoader(pickle.loads(pickle.dumps(shuffled)), batch_size=8)
    resumed.load_state_dict(state)
    for _ in range(8):
        expected, found = next(loader), next(resumed)
        np.testing.assert_array_equal(expected["ids"].data, found["ids"].data)
        np.testing.assert_array_equal(expected["ids"].offsets, found["ids"].offsets)
    other = cache.ListAsyncDataset([{"ids": np.array([-n], np.int32)} for n in (1, 2)])
    mixed = cache.MixtureDataset({"a": dataset, "b": other}, {"a": 3, "b": 1}, 4, stop="first_exhausted")
    leaves, numbers = mixed.locate(range(6))
    for leaf, number, document in zip(leaves, numbers, mixed.get_batch(range(6)), strict=True):
        wanted = documents["ids"][number] if leaf == 0 else [-1 - number]
        np.testing.assert_array_equal(document["ids"], wanted)
    with pytest.raises(TypeError, match=r"windows of tokens need .*; forebay.cache.convert\(path, new_folder\)"):
        cache.TokenSeqDataset(dataset, 8, field="ids")


def test_a_cache_without_documents(tmp_path: Path) -> None:
    dataset = cache.ForeignDataset(write_cache(tmp_path / "a", {}))
    assert len(dataset) == 0
    with pytest.raises(IndexError):
        dataset[0]
    assert len(cache.convert(tmp_path / "a", tmp_path / "b")["train"]) == 0


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("length", [None, 1 << 54])
def test_a_cache_that_grows(length: int | None, tmp_path: Path) -> None:
    """New documents are read once the ledger counts them, from arrays that were resized or not."""
    path = tmp_path / "train" / "shard_ledger.json"
    documents = [np.arange(i % 3, dtype=np.int32) + i for i in range(40)]

    def write(n: int, **changes: Any) -> None:
        # As zarr-python resizes an array, or as a longer prefix of the same one.
        folder = tmp_path / "train" / "ids"
        ends = np.cumsum([len(document) for document in documents[:n]])
        for name, values in (("data", np.concatenate(documents[:n])), ("offsets", np.array([n, *ends]))):
            if not (folder / name).exists():
                zarr.create_array(str(folder / name), shape=(length or len(values),), dtype=values.dtype, chunks=(16,))
            array = zarr.open_array(str(folder / name), mode="r+")
            if length is None:
                array.resize((len(values),))
            array[: len(values)] = values
        # At once, since a reader may look at it.
        path.with_suffix(".new").write_text(json.dumps(ledger_of(n, **changes), indent=n))
        path.with_suffix(".new").replace(path)

    path.parent.mkdir()
    path.write_text(json.dumps(ledger_of(0, is_finished=False)))
    dataset = cache.ForeignDataset(tmp_path)
    assert (dataset.current_len(), dataset.final_length_is_known()) == (0, False)
    assert cache.EraShufflingDataset(dataset, 8).current_len() == 0
    write(10, is_finished=False)
    assert dataset.current_len() == 10
    check(dataset.get_batch(range(10)), {"ids": documents}, range(10))
    with pytest.raises(StateError, match="is not finished: convert it when it is"):
        cache.convert(tmp_path, tmp_path / "other")
    waiting = threading.Thread(target=lambda: check(dataset.get_batch([39]), {"ids": documents}, [39]))
    waiting.start()
    write(40)
    waiting.join()
    assert len(dataset) == 40
    check(dataset.get_batch(range(40)), {"ids": documents}, range(40))


def test_a_writer_that_failed_or_began_again(tmp_path: Path) -> None:
    path = write_cache(tmp_path, {"ids": [np.arange(3)] * 4}) / "train" / "shard_ledger.json"
    path.write_text(json.dumps(ledger_of(4, is_finished=False)))
    dataset = cache.ForeignDataset(tmp_path)
    path.write_text(json.dumps(ledger_of(3, is_finished=False), indent=1))
    with pytest.raises(StateError, match="was built again while it was open: it had 4 documents and has 3"):
        dataset.current_len()
    path.write_text(json.dumps(ledger_of(4, forebay={"failure": "the disk is full"}), indent=2))
    with pytest.raises(StateError, match=r"the writer of the cache .* failed: the disk is full"):
        dataset.get_batch([0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
@pytest.mark.parametrize("has_zarr", [True, False])
def test_a_child_of_a_process_that_read(has_zarr: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork tensorstore would end the child, so zarr-python reads there, or the error says what to do."""
    documents = {"ids": [np.arange(i) for i in range(30)]}
    dataset = cache.ForeignDataset(write_cache(tmp_path, documents))
    check(dataset.get_batch([7]), documents, [7])
    if not has_zarr:
        monkeypatch.setitem(sys.modules, "zarr", None)
    child = os.fork()
    if not child:
        is_right = False
        try:
            check(dataset.get_batch([29, 7]), documents, [29, 7])
            is_right = has_zarr
        except StateError as error:
            is_right = not has_zarr and "start processes by forkserver or spawn" in str(error)
        finally:
            os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    check(dataset.get_batch([8]), documents, [8])


def test_libraries_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cache(tmp_path, {"ids": [np.arange(3)]})
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    monkeypatch.setitem(sys.modules, "zarr", types.SimpleNamespace(__version__="2.18.3"))
    with pytest.raises(ImportError, match=r"zarr 2.18.3 does not read Zarr v3: pip install 'zarr>=3'"):
        cache.ForeignDataset(tmp_path)
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match="neither is installed: pip install tensorstore"):
        cache.ForeignDataset(tmp_path)
    with pytest.raises(ImportError, match="neither is installed: pip install tensorstore"):
        cache.convert(tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_where_there_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no cache in this folder: it has no shard_ledger\.json"):
        cache.ForeignDataset(tmp_path)
    with pytest.raises(ConfigError, match="on local disks only"):
        cache.ForeignDataset("s3://bucket/cache")
    for wrong in (7, None, b"cache"):
        with pytest.raises(TypeError, match=r"path is .*must be a path \(str or os\.PathLike\)"):
            cache.ForeignDataset(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shuffle with PermutationDataset"):
        cache.ForeignDataset(tmp_path, shuffle=True)  # type: ignore[call-arg]


def _deep(text: str) -> str:
    return "[" * 200_000 + text


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        ("{", "it is not JSON"),
        ("[3]", "total_num_rows is not a count"),
        ("{}", "total_num_rows is not a count"),
        ('{"total_num_rows": true}', "total_num_rows is not a count"),
        ('{"total_num_rows": -1}', "total_num_rows is not a count"),
        ('{"total_num_rows": 281474976710657}', "total_num_rows is not a count up to 2"),
        ('{"a": ' + "9" * 5000 + "}", "it is not JSON"),
        ('{"a": "\ud800"}', "it is not JSON"),
        (_deep("[]" * 8), "it is nested too deep|it is not JSON"),
        ('{"a": [' + '{"":0},' * 2_000_000 + "0]}", r"its values would take \d+ bytes of memory"),
        ('{"total_num_rows": 3, "forebay": {"version": 2}}', "a newer version of forebay wrote it"),
        *[
            (json.dumps({"total_num_rows": 3, "forebay": {"version": 1, "fields": [field]}}), "a field lacks its name")
            for field in (
                7,
                {"name": "../ids", "dtype": "int32", "rank": 1},
                {"name": "/ids", "dtype": "int32", "rank": 1},
                {"name": "ids", "dtype": "complex64", "rank": 1},
                {"name": "ids", "dtype": "int32", "rank": 65},
                {"name": "ids", "dtype": "int32", "rank": -1},
            )
        ],
    ],
)
def test_ledgers_that_are_none(ledger: str, message: str, tmp_path: Path) -> None:
    path = write_cache(tmp_path, {}) / "train" / "shard_ledger.json"
    path.write_bytes(ledger.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match=f"is not the ledger of a cache: .*({message})"):
        cache.ForeignDataset(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["shard_ledger.json", "ids/data/zarr.json"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    path = write_cache(tmp_path, {"ids": [np.arange(3)]}) / "train" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises((OSError, ConfigError)):
        len(cache.ForeignDataset(tmp_path)[0]["ids"])


def changed(path: Path, at: str, value: Any) -> None:
    """Sets an entry of a file of JSON."""
    found = json.loads(path.read_text())
    inner, names = found, [int(name) if name.isdigit() else name for name in at.split("/")]
    for name in names[:-1]:
        inner = inner[name]
    inner[names[-1]] = value
    path.write_text(json.dumps(found))


SHARDED = "codecs/0/configuration/"
GRID = "chunk_grid/configuration/chunk_shape"


def nested_sharding(depth: int) -> list[Any]:
    codecs: list[Any] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    for _ in range(depth):
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], "codecs": codecs}}]
    return codecs


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("array", "at", "value", "message"),
    [
        ("data", "shape", [3, 1, 1], r"its shape is \[3, 1, 1\], expected one axis"),
        ("data", "shape", [], r"its shape is \[\]"),
        ("data", "shape", [-3], "it has no shape"),
        ("data", "shape", None, "it has no shape"),
        ("shapes", "shape", [4, 1 << 27], "less than 64 columns"),
        ("shapes", "shape", [4, 0], "1 to less than 64 columns"),
        ("data", GRID, [1 << 50], "its shards have 8796093022208 chunks, the limit is 16777216"),
        ("data", GRID, [0], r"its chunks have the shape \[0\]"),
        ("data", GRID, [8, 8], "it has no chunk_shape with an entry for each axis"),
        ("data", SHARDED + "chunk_shape", [0], r"its chunks have the shape \[0\]"),
        ("data", SHARDED + "chunk_shape", [1, 1], "its sharding codec has no chunk_shape"),
        ("data", "codecs", [{"name": "bytes"}], None),
        ("data", "codecs", nested_sharding(5), "nested too deep"),
        ("data", "codecs", [{"name": "no codec of any library"}], "cannot open the Zarr array"),
        ("data", "codecs", 7, "cannot open the Zarr array"),
        ("data", "data_type", "complex64", "its values are 'complex64', expected numbers"),
        ("data", "data_type", {"name": "x"}, "expected numbers"),
        ("offsets", "data_type", "int32", "is not a field of a cache"),
        ("shapes", "data_type", "uint64", "is not a field of a cache"),
    ],
)
def test_metadata_that_no_cache_has(array: str, at: str, value: Any, message: str | None, tmp_path: Path) -> None:
    folder = write_cache(tmp_path, {"x": [np.ones((2, 3), np.int32)] * 4}) / "train" / "x" / array
    if message is None:
        changed(folder / "zarr.json", GRID, [1 << 29])
        message = "its chunks have 2147483648 bytes, the limit is 1073741824"
    changed(folder / "zarr.json", at, value)
    with pytest.raises(ConfigError, match=message):
        cache.ForeignDataset(tmp_path)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("text", ["", "[]", "7", "{", '{"shape": [3]}'])
def test_metadata_that_are_none(text: str, tmp_path: Path) -> None:
    write_cache(tmp_path, {"x": [np.arange(3)]})
    (tmp_path / "train" / "x" / "data" / "zarr.json").write_text(text)
    with pytest.raises(ConfigError, match="cannot read the Zarr array"):
        cache.ForeignDataset(tmp_path)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("write", [LEVANTER, by_zarr()], ids=["long", "exact"])
@pytest.mark.parametrize(
    ("offsets", "shapes", "error", "message"),
    [
        ([4, 6, 5, 18, 24], [2] * 4, DecodeError, "6 is followed by 5"),
        ([4, -6, 5, 18, 24], [2] * 4, DecodeError, "0 is followed by -6"),
        ([3, 6, 12, 18, 24], [2] * 4, DecodeError, "are those of 3 documents, and the ledger has 4"),
        ([4, 6, 12, 18, (1 << 48) + 1], [2] * 4, DecodeError, "the limit is 281474976710656"),
        ([4, 6, 12, 18, 1 << 47], [2] * 4, MemoryError, "[Uu]nable to allocate|cannot allocate"),
        ([4, 6, 12, 18, 24], [2, 5, 2, 2], DecodeError, r"6 values are not a multiple of \[5\]"),
        ([4, 6, 12, 18, 24], [2, 0, 2, 2], DecodeError, r"6 values are not a multiple of \[0\]"),
        ([4, 6, 12, 18, 24], [2, -2, 2, 2], DecodeError, r"6 values are not a multiple of \[-2\]"),
        ([4, 6, 6, 18, 24], [2, 1 << 60, 2, 2], DecodeError, "0 values are not a multiple of"),
    ],
)
def test_offsets_and_shapes_that_contradict(
    write: Writer, offsets: list[int], shapes: list[int], error: type[Exception], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "train" / "x"
    write_cache(tmp_path, {})
    write(folder / "data", np.arange(24))
    write(folder / "offsets", np.array(offsets))
    write(folder / "shapes", np.array(shapes)[:, None])
    (tmp_path / "train" / "shard_ledger.json").write_text(json.dumps(ledger_of(4)))
    with pytest.raises(error, match=message):
        cache.ForeignDataset(tmp_path).get_batch(range(4))


@pytest.mark.usefixtures("library")
def test_arrays_shorter_than_the_ledger_says(tmp_path: Path) -> None:
    write_cache(tmp_path, {"x": [np.arange(100)] * 4}, by_zarr())
    for name, rows in (("data", 399), ("offsets", 4)):
        path = tmp_path / "train" / "x" / name / "zarr.json"
        text = path.read_text()
        changed(path, "shape", [rows])
        with pytest.raises(
            DecodeError, match=f"{name} has {rows} rows, and the ledger and the offsets count {rows + 1}"
        ):
            cache.ForeignDataset(tmp_path).get_batch(range(4))
        path.write_text(text)
    check(cache.ForeignDataset(tmp_path).get_batch([3]), {"x": [np.arange(100)] * 4}, [3])


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("how", ["zarr gzip", "zarr sharded", "tensorstore 2^54", "tensorstore zstd"])
def test_chunks_that_are_damaged(how: str, tmp_path: Path) -> None:
    """Any error is one of forebay or of the system; a reader never ends the process."""
    documents = {"ids": [np.random.default_rng(i).integers(0, 1 << 30, 40) for i in range(40)]}
    write_cache(tmp_path, documents, WRITERS[how])
    path = tmp_path / "train" / "ids" / "data" / "c" / "0"
    whole = path.read_bytes()
    n_failed = 0
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        for damaged in (
            whole[:size],
            whole[:size] + bytes(255 - byte for byte in whole[size : size + 16]) + whole[size + 16 :],
        ):
            path.write_bytes(damaged)
            try:
                cache.ForeignDataset(tmp_path).get_batch(range(40))
            except (ForebayError, OSError):
                n_failed += 1
    assert n_failed >= 4
    path.write_bytes(whole)
    check(cache.ForeignDataset(tmp_path).get_batch(range(40)), documents, range(40))


def test_folders_that_are_no_cache(tmp_path: Path) -> None:
    path = write_cache(tmp_path / "none", {}) / "train" / "shard_ledger.json"
    path.write_text(json.dumps(ledger_of(3)))
    with pytest.raises(ConfigError, match=r"has data/zarr.json and offsets/zarr.json, so the cache has no field"):
        cache.ForeignDataset(tmp_path / "none")
    write_cache(tmp_path, {"ids": [np.arange(3)]})
    (tmp_path / "train" / "loop").symlink_to(tmp_path / "train")
    with pytest.raises(ConfigError, match="or is deeper than 16: it is not the folder of a cache"):
        cache.ForeignDataset(tmp_path)


# Conversion.


@pytest.mark.usefixtures("library")
def test_a_converted_cache_has_the_same_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting, "_BATCH_DOCUMENTS", 16)
    splits = {"train": made(300), "validation": made(31)}
    for (split, documents), how in zip(splits.items(), ("tensorstore 2^54", "zarr"), strict=True):
        write_cache(tmp_path / "a", documents, WRITERS[how], split)
    found = cache.convert(tmp_path / "a", tmp_path / "b", n_workers=3)
    assert found.keys() == splits.keys()
    for split, documents in splits.items():
        n = len(documents["label"])
        check(found[split].get_batch(range(n)), documents, range(n))
        check(cache.CacheDataset(tmp_path / "b", split).get_batch(range(n)), documents, range(n))
    flat = np.concatenate(splits["train"]["prompt/ids"])
    windows = cache.TokenSeqDataset(cache.CacheDataset(tmp_path / "b"), 64, field="prompt/ids")
    np.testing.assert_array_equal(windows[3]["prompt"]["ids"], flat[192:256])
    # Another number of workers makes the same bytes, and a finished cache is opened.
    cache.convert(tmp_path / "a", tmp_path / "c", n_workers=1, commit_documents=150)
    assert files(tmp_path / "b") == files(tmp_path / "c")
    before = files(tmp_path / "b")
    cache.convert(tmp_path / "a", tmp_path / "b", n_workers=2)
    assert files(tmp_path / "b") == before


def test_some_splits_and_fields_in_other_types(tmp_path: Path) -> None:
    documents = made(50)
    for split in ("train", "validation"):
        write_cache(tmp_path / "a", documents, split=split)
    fields = {"prompt/ids": "uint16"}
    found = cache.convert(tmp_path / "a", tmp_path / "b", splits=["validation"], fields=fields, compression="zstd")
    assert [*found] == ["validation"]
    assert not (tmp_path / "b" / "train").exists()
    ids = [array.astype(np.uint16) for array in documents["prompt/ids"]]
    check(found["validation"].get_batch(range(50)), {"prompt/ids": ids}, range(50))
    with pytest.raises(TypeError, match="splits is the string 'validation'"):
        cache.convert(tmp_path / "a", tmp_path / "c", splits="validation")


def test_a_conversion_that_failed_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged chunk ends it; once the chunk is whole again, only the rest is read."""
    monkeypatch.setattr(converting, "_BATCH_DOCUMENTS", 10)
    documents = {"ids": [np.random.default_rng(i).integers(0, 1 << 30, 64) for i in range(100)]}
    write_cache(tmp_path / "a", documents, by_zarr(chunks=640, compressors=zarr.codecs.GzipCodec()))
    path = tmp_path / "a" / "train" / "ids" / "data" / "c" / "6"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DecodeError, match="cannot read rows 3840 to 4480"):
        cache.convert(tmp_path / "a", tmp_path / "b", n_workers=2)
    with pytest.raises(StateError, match="the writer of the cache"):
        cache.TreeStore(tmp_path / "b")
    path.write_bytes(whole)
    read: list[int] = []
    of_blocks = converting._Blocks.__call__

    def noted(self: Any, blocks: list[int]) -> Any:
        read.extend(blocks)
        return of_blocks(self, blocks)

    monkeypatch.setattr(converting._Blocks, "__call__", noted)
    store = cache.convert(tmp_path / "a", tmp_path / "b", n_workers=2)["train"]
    check(store.get_batch(range(100)), documents, range(100))
    assert sorted(read) == [6, 7, 8, 9]
    cache.convert(tmp_path / "a", tmp_path / "c", n_workers=2)
    assert files(tmp_path / "b") == files(tmp_path / "c")


def test_another_source_is_not_resumed(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 1)):
        write_cache(tmp_path / name, {"ids": [np.arange(3) + first]})
    cache.convert(tmp_path / "a", tmp_path / "new")
    with pytest.raises(StateError, match="was made with other parameters"):
        cache.convert(tmp_path / "b", tmp_path / "new")
    assert cache.convert(tmp_path / "b", tmp_path / "new", overwrite=True)["train"][0]["ids"].tolist() == [1, 2, 3]


def test_what_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    source = write_cache(tmp_path / "a", {"ids": [np.arange(3)]})
    other = write_cache(tmp_path / "b", {"ids": [np.arange(4)]})
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "mine" / "train" / "notes").write_text("mine")
    (tmp_path / "link").symlink_to(source)
    before = files(tmp_path)
    for path in (source, tmp_path / "link", source / "train" / "x", tmp_path / "a" / ".." / "a"):
        with pytest.raises(ConfigError, match="is in the source or holds it; choose another"):
            cache.convert(source, path, overwrite=True)
    for path in (other, tmp_path / "mine"):
        with pytest.raises(ForebayError):
            cache.convert(source, path, overwrite=True)
    with pytest.raises(FileNotFoundError, match=f"it is itself a split: give '{source}'"):
        cache.convert(source / "train", tmp_path / "new")
    with pytest.raises(FileNotFoundError, match="so there is no cache"):
        cache.convert(tmp_path / "mine", tmp_path / "new")
    with pytest.raises(FileNotFoundError):
        cache.convert(tmp_path / "none", tmp_path / "new")
    with pytest.raises(FileNotFoundError):
        cache.convert(source, tmp_path / "new", splits=["train", "test"])
    assert files(tmp_path) == before
