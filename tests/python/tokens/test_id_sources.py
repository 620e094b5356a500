"""`forebay.text.Ids`: rows of token ids from Parquet, numpy and Megatron-LM give the batches of their texts."""

import itertools
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from documents import BOS, SMALL, document, encode
from forebay.text import Ids

COUNTS = (600, 300)
"""Documents of each file; a group of a file of ids has 256 rows."""

EOS = 257
IDS: dict[str, Any] = {name: value for name, value in SMALL.items() if name != "tokenizer"}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"crop": "carry", "seed": 9, "n_streams": 2, "extras": ["doc_ids", "documents"], "eos_id": EOS},
    {"infinite": False, "dtype": "uint16"},
]


def rows_of(number: int) -> list[list[int]]:
    first = sum(COUNTS[:number])
    return [encode(document(first + at)) for at in range(COUNTS[number])]


def parquet(kind: pa.DataType) -> Callable[[Path, list[list[int]]], None]:
    def write(path: Path, rows: list[list[int]]) -> None:
        pq.write_table(pa.table({"input_ids": pa.array(rows, kind)}), path, row_group_size=256)

    return write


def indexed(path: Path, rows: list[list[int]], code: int = 8, dtype: str = "<u2", pieces: int = 1) -> None:
    """A pair of files as Megatron-LM's `IndexedDatasetBuilder` writes it, with up to `pieces` sequences a document."""
    arrays, bounds = [], [0]
    for row in rows:
        arrays += [part for part in np.array_split(np.array(row, dtype), pieces) if part.size]
        bounds.append(len(arrays))
    lengths = np.array([len(array) for array in arrays], "<i4")
    places = np.concatenate([[0], np.cumsum(lengths[:-1], dtype="<i8")]) * np.dtype(dtype).itemsize
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(bounds))
    tail = np.array(places, "<i8").tobytes() + np.array(bounds, "<i8").tobytes()
    path.with_suffix(".idx").write_bytes(head + lengths.tobytes() + tail)
    path.with_suffix(".bin").write_bytes(np.concatenate(arrays).tobytes())


WRITERS: dict[str, tuple[str, Callable[[Path, list[list[int]]], None]]] = {
    "lists of int32": ("parquet", parquet(pa.list_(pa.int32()))),
    "lists of uint16": ("parquet", parquet(pa.list_(pa.uint16()))),
    "large lists of int64": ("parquet", parquet(pa.large_list(pa.int64()))),
    "framed": ("parquet", lambda path, rows: parquet(pa.list_(pa.int32()))(path, [[BOS, *row] for row in rows])),
    "uint16 of Megatron": ("idx", indexed),
    "int32 of Megatron": ("bin", lambda path, rows: indexed(path, rows, 4, "<i4", 3)),
}


def loader(shards: Any, **parameters: Any) -> forebay.TokenLoader:
    return forebay.TokenLoader(Ids(shards), **IDS | {"val": []} | parameters)


def digests(found: forebay.TokenLoader, n: int) -> list[str]:
    return [digest(batch) for batch in itertools.islice(found, n)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The batches of the texts, by settings."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(2):
        first = sum(COUNTS[:number])
        table = pa.table({"text": [document(first + at) for at in range(COUNTS[number])]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=256)
    found = []
    for settings in SETTINGS:
        with forebay.TokenLoader(folder, encode, **IDS | {"val": []} | settings) as one:
            found.append(digests(one, 25))
    return found


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("kind", WRITERS)
def test_ids_make_the_batches_of_their_texts(
    tmp_path: Path, expected: list[list[str]], kind: str, setting: int
) -> None:
    ending, write = WRITERS[kind]
    paths = [tmp_path / f"{number}.{ending}" for number in range(2)]
    for number, path in enumerate(paths):
        write(path, rows_of(number))
    parameters, wanted = SETTINGS[setting], expected[setting]
    with loader(paths, n_workers=1, **parameters) as found:
        states, made = [], []
        for batch in itertools.islice(found, 25):
            made.append(digest(batch))
            states.append(json.loads(json.dumps(found.state_dict())))
    assert made == wanted
    for at in range(0, len(made), 6):
        with loader(paths, n_workers=3, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert digests(resumed, len(made) - at - 1) == wanted[at + 1 :]


def test_ranks(tmp_path: Path) -> None:
    indexed(tmp_path / "a", rows_of(0))
    common = {"n_streams": 2, "seed": 4, "shuffle_min_size": 0}
    with loader(tmp_path, **common) as alone:
        whole = [batch["inputs"].tolist() for batch in itertools.islice(alone, 8)]
    parts = []
    for rank in range(2):
        with loader(tmp_path, batch_size=2, rank=rank, world_size=2, **common) as part:
            parts.append([batch["inputs"].tolist() for batch in itertools.islice(part, 8)])
    assert [a + b for a, b in zip(*parts, strict=True)] == whole


@pytest.mark.parametrize("dtype", ["|u1", "<u2", "<i4", "<i8"])
def test_arrays(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 250, (300, 30)).astype(dtype)
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "b.npy", rows[0])
    parquet(pa.list_(pa.int64()))(tmp_path / "a.parquet", [*rows.tolist(), rows[0].tolist()])
    made = []
    for paths in ([tmp_path / "a.npy", tmp_path / "b.npy"], [tmp_path / "a.parquet"]):
        with loader(paths, crop="carry", tokenizer_batch_size=1) as found:
            assert found.num_documents == 301
            made.append(digests(found, 40))
    assert made[0] == made[1]


def test_the_frame_comes_once(tmp_path: Path) -> None:
    rows = [[BOS, 1, 2, EOS], [1, 2], [BOS], [EOS], [3, EOS]]
    parquet(pa.list_(pa.int64()))(tmp_path / "a.parquet", rows)
    with loader(tmp_path, seq_len=19, batch_size=1, buffer_size=1, eos_id=EOS, crop="carry") as found:
        batch = next(found)
    row = [*batch["inputs"][0].tolist(), batch["targets"][0, -1].item()]
    ends = [at for at, (a, b) in enumerate(itertools.pairwise(row)) if (a, b) == (EOS, BOS)]
    documents = [row[a + 1 : b + 1] for a, b in itertools.pairwise([-1, *ends])]
    wanted = [[BOS, 1, 2, EOS], [BOS, EOS], [BOS, EOS], [BOS, 3, EOS]]
    assert all(one in [*wanted, [BOS, 1, 2, EOS]] for one in documents)
    assert len(documents) > 3


def test_bad_rows(tmp_path: Path) -> None:
    rows: list[Any] = [[1, 2, 3] * 9, None, [], [4, None, 5], [7, -1], [2**31], [8] * 20] * 30
    pq.write_table(pa.table({"input_ids": pa.array(rows, pa.list_(pa.int64()))}), tmp_path / "a.parquet")
    with loader(tmp_path, infinite=False, crop="carry", extras=["documents"]) as found:
        kept = {row % 7 for batch in found for row in batch["documents"][:, 4].tolist()}
        errors = found.errors()
    assert kept == {0, 6}
    kinds = ["", "unreadable", "empty", "corrupt", "corrupt", "corrupt"]
    assert [(error["row"], error["kind"]) for error in errors] == [
        (at, kinds[at % 7]) for at in range(210) if at % 7 not in (0, 6)
    ]
    messages = {error["row"]: error["reason"] for error in errors}
    assert "an id in the list is null" in messages[3]
    assert "-1 is no token id" in messages[4]
    with loader(tmp_path, dtype="uint16", on_error="raise") as found, pytest.raises(forebay.DecodeError):
        list(found)
    parquet(pa.list_(pa.int64()))(tmp_path / "b.parquet", [[70_000] * 90] * 9)
    with (
        loader(tmp_path / "b.parquet", dtype="uint16") as found,
        pytest.raises(forebay.ConfigError, match="a row has the id 70000, the largest that the dtype can hold is 65"),
    ):
        next(found)


def test_lying_indices(tmp_path: Path) -> None:
    rows = [[at] * 20 for at in range(100)]
    indexed(tmp_path / "a", rows)
    index, data = tmp_path / "a.idx", tmp_path / "a.bin"
    good = index.read_bytes()

    def changed(at: int, bytes_: bytes) -> None:
        index.write_bytes(good[:at] + bytes_ + good[at + len(bytes_) :])

    def opened(match: str, error: type[Exception] = forebay.ForebayError) -> None:
        with pytest.raises(error, match=match):
            loader(data)

    for at, bytes_, match in [
        (0, b"x", "no index of Megatron-LM"),
        (9, struct.pack("<Q", 2), "has version 2, expected 1"),
        (17, b"\6", "the type 6, expected integers"),
        (18, struct.pack("<Q", 2**61), "claims 2305843009213693952 sequences"),
        (18, struct.pack("<Q", 2**64 - 1), "claims 18446744073709551615 sequences"),
        (26, struct.pack("<Q", 10**9), "claims 100 sequences and 1000000000 bounds"),
    ]:
        changed(at, bytes_)
        opened(match)
    index.write_bytes(good[:20])
    opened("cut off")
    index.unlink()
    opened("a.idx", FileNotFoundError)

    lengths, places, bounds = 34, 34 + 400, 34 + 1200
    for at, bytes_, bad, match in [
        (lengths + 4 * 7, struct.pack("<i", -1), [7], "the file has 4000"),
        (lengths + 4 * 7, struct.pack("<i", 2**31 - 1), [7], "the file has 4000"),
        (places + 8 * 7, struct.pack("<q", 2**62), [7], "the index places the row at the bytes 4611686018427387904"),
        (places + 8 * 7, struct.pack("<q", -8), [7], "the index places the row"),
        (bounds + 8 * 7, struct.pack("<q", 2**62), [6, 7], "the sequences"),
        (bounds + 8 * 7, struct.pack("<q", -1), [6, 7], "the sequences"),
        (bounds + 8 * 7, struct.pack("<q", 8), [7], "no ids"),
    ]:
        changed(at, bytes_)
        with loader(data, infinite=False, crop="carry") as found:
            assert sum(1 for _ in found) > 4
            errors = found.errors()
        assert [error["row"] for error in errors] == bad
        assert match in errors[0]["reason"]


def test_lying_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"

    def header(text: str, body: bytes = bytes(400)) -> None:
        path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + body)

    form = "{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n"
    for text, match in [
        (form.format("<i4", False, "(100, 2)"), "claims the shape"),
        (form.format("<i4", False, f"({2**62}, {2**62})"), "claims the shape"),
        (form.format("<i4", False, f"({2**62}, 0)"), "claims 4611686018427387904 rows"),
        (form.format("<i4", True, "(10, 10)"), "Fortran order"),
        (form.format("<i4", False, "(1, 2, 3)"), "expected one or two dimensions"),
        (form.format("<i4", False, "()"), "expected one or two dimensions"),
        (form.format("<f4", False, "(3,)"), "expected integers"),
        (form.format(">i4", False, "(3,)"), "expected integers in little-endian"),
        ("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,)}", "the header of the array is"),
        ("", "the header of the array is"),
    ]:
        header(text)
        with pytest.raises(forebay.ForebayError, match=match):
            loader(path)
    path.write_bytes(b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + b"{")
    with pytest.raises(forebay.ForebayError, match="at most 65536 are read"):
        loader(path)
    path.write_bytes(b"no array")
    with pytest.raises(forebay.ForebayError, match="cut off"):
        loader(path)


def test_parameters(tmp_path: Path) -> None:
    parquet(pa.list_(pa.int64()))(tmp_path / "a.parquet", rows_of(1))
    with loader(tmp_path) as found:
        copy = pickle.loads(pickle.dumps(found))
        assert digests(copy, 3) == digests(found, 3)
        assert (found.bos_id, found.eos_id) == (BOS, None)
        copy.close()
        state = found.state_dict()
    with loader(tmp_path, bos_id=3) as found, pytest.raises(forebay.StateError, match="tokenizer"):
        found.load_state_dict(state)
    with forebay.TokenLoader(Ids(tmp_path), encode, **IDS, val=[]) as found:
        next(found)
    assert repr(Ids("a.parquet")) == "Ids(path='a.parquet')"
    without = {name: value for name, value in IDS.items() if name != "bos_id"} | {"val": []}
    with pytest.raises(forebay.ConfigError, match="bos_id is missing; ids without a tokenizer need"):
        forebay.TokenLoader(Ids(tmp_path), **without)
    with pytest.raises(forebay.ConfigError, match=r"tokenizer is missing; only forebay\.text\.Ids needs none"):
        forebay.TokenLoader(tmp_path, **IDS)
    with pytest.raises(forebay.ConfigError, match='there is no column "ids"'):
        forebay.TokenLoader(Ids(tmp_path, column="ids"), **IDS, val=[])
    pq.write_table(pa.table({"input_ids": [[1.5]], "flags": [[True]], "text": ["a"]}), tmp_path / "b.parquet")
    for column, kind in [("input_ids", "lists of float"), ("flags", "lists of"), ("text", "text")]:
        with pytest.raises(forebay.ConfigError, match=f'column "{column}" is {kind}.*, expected lists of integers'):
            forebay.TokenLoader(Ids(tmp_path / "b.parquet", column=column), **IDS, val=[])
    np.save(tmp_path / "c.npy", np.zeros((3, 3), "<i4"))
    with pytest.raises(forebay.ConfigError, match=r"has token ids; name it as forebay.text.Ids"):
        forebay.TokenLoader(tmp_path / "c.npy", encode, **IDS, val=[])
    (tmp_path / "d.jsonl").write_text("[1, 2]\n")
    with pytest.raises(forebay.ConfigError, match="is JSON lines; token ids are read from Parquet"):
        loader(tmp_path / "d.jsonl")
