"""`forebay.text.Packed`: the rows of a finite pass of `TokenLoader`, with random access."""

import base64
import itertools
import json
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from documents import SMALL, document, encode
from forebay import cache
from forebay.text import Documents, Ids, Packed, Pairs

SETTINGS = SMALL | {"val": []}
EXTRAS = ["doc_ids", "position_ids", "source", "cu_seqlens", "documents"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    for shard in range(2):
        table = pa.table({"text": [document(60 * shard + number) for number in range(60)]})
        pq.write_table(table, folder / f"{shard}.parquet", row_group_size=20)
    return folder


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids with labels and weights."""
    path = tmp_path_factory.mktemp("labelled") / "ids.parquet"
    ids = [encode(document(number)) for number in range(50)]
    labels = [[-100 if at % 3 else one for at, one in enumerate(row)] for row in ids]
    weights = [[at / 7 for at in range(len(row))] for row in ids]
    columns = {
        "input_ids": pa.array(ids, pa.list_(pa.int32())),
        "labels": pa.array(labels, pa.list_(pa.int32())),
        "weights": pa.array(weights, pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(columns), path, row_group_size=10)
    return path


def row_by_row(sources: Any, tokenizer: Any, **parameters: Any) -> list[dict[str, Any]]:
    """The rows of a pass, each from a batch of its own."""
    with forebay.TokenLoader(sources, tokenizer, infinite=False, **parameters | {"batch_size": 1}) as loader:
        return [
            {name: value[0] if name not in ("cu_seqlens", "documents") else value for name, value in batch.items()}
            for batch in loader
        ]


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape), name
        np.testing.assert_array_equal(found[name], value)


GRID: list[dict[str, Any]] = [
    {},
    {"fit": "carry", "seed": 3, "dtype": "int32"},
    {"fit": "pad", "on_long": "split", "extras": EXTRAS, "loss_across": False},
    {"fit": "drop", "extras": EXTRAS, "dtype": "uint16"},
    {"fit": "carry", "pad_multiple": 9, "extras": ["cu_seqlens"], "seed": 1},
]


@pytest.mark.parametrize("parameters", GRID)
def test_rows_are_those_of_a_finite_pass(texts: Path, tmp_path: Path, parameters: dict[str, Any]) -> None:
    expected = row_by_row(texts, encode, **SETTINGS | parameters)
    rows = Packed(texts, encode, tmp_path, **SETTINGS | parameters)
    assert len(rows) == len(expected) > 40
    for found, wanted in zip(rows, expected, strict=True):  # type: ignore[call-overload]
        assert_same(found, wanted)
    picks = [5, 0, len(rows) - 1, 5]
    for found, at in zip(rows.get_batch(picks), picks, strict=True):
        assert_same(found, expected[at])
    assert f"{len(rows)} rows of 63 tokens" in repr(rows)
    for copy in (pickle.loads(pickle.dumps(rows)), Packed(texts, encode, tmp_path, **SETTINGS | parameters)):
        assert_same(copy[7], expected[7])


def test_weights_labels_and_mixtures(texts: Path, labelled: Path, tmp_path: Path) -> None:
    sources: Any = {
        "web": Documents(texts, fim=0.5, fim_prefix=300, fim_middle=301, fim_suffix=302),
        "ids": Ids(labelled, labels="labels", weights="weights"),
    }
    weights = [(0, {"web": 1, "ids": 1}), (3, {"web": 3, "ids": 1})]
    parameters: Any = SETTINGS | {"extras": ["source"], "weights": weights}
    with forebay.TokenLoader(sources, encode, infinite=False, **parameters) as loader:
        expected = [
            {name: array[at] for name, array in batch.items()} for batch in loader for at in range(len(batch["inputs"]))
        ]
    rows = Packed(sources, encode, tmp_path, **parameters)
    assert len(rows) == len(expected) > 20
    for at, wanted in enumerate(expected):
        assert_same(rows[at], wanted)
    assert {"inputs", "targets", "source", "weights"} == set(rows[0])
    assert (rows[3]["targets"] == -100).any()


def test_shuffles_and_loaders(texts: Path, tmp_path: Path) -> None:
    rows = Packed(texts, encode, tmp_path, **SETTINGS, extras=["doc_ids", "cu_seqlens"])
    expected = [row["inputs"] for row in row_by_row(texts, encode, **SETTINGS)]
    order = cache.PermutationDataset(rows, seed=4)
    with cache.DataLoader(order, batch_size=8, drop_last=False) as loader:
        epochs = [[row for batch in loader for row in batch["inputs"]] for _ in range(2)]
        assert all(sorted(map(bytes, epoch)) == sorted(map(bytes, expected)) for epoch in epochs)
        assert [row.tolist() for row in epochs[0]] != [row.tolist() for row in epochs[1]]
        batch = next(iter(loader))
    assert (batch["inputs"].shape, batch["doc_ids"].shape) == ((8, 63), (8, 63))
    assert isinstance(batch["cu_seqlens"], cache.JaggedArray)
    parts = []
    for rank in range(2):
        with cache.DataLoader(order, batch_size=4, rank=rank, world_size=2, drop_last=False) as part:
            parts.append([batch["inputs"] for batch in part])
    found = [row.tolist() for pair in zip(*parts, strict=True) for half in pair for row in half]
    assert found == [row.tolist() for row in epochs[0]]


def digests(rows: Packed, picks: list[int]) -> list[str]:
    return [digest(row) for row in rows.get_batch(picks)]


def test_forked_processes_read_it(texts: Path, tmp_path: Path) -> None:
    rows = Packed(texts, encode, tmp_path, **SETTINGS)
    expected = digests(rows, [3, 1, 4])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.starmap(digests, [(rows, [3, 1, 4])] * 4) == [expected] * 4


def test_torch_takes_it_as_a_map_style_dataset(texts: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rows: Any = Packed(texts, encode, tmp_path, **SETTINGS)
    expected = [row["targets"].tolist() for row in row_by_row(texts, encode, **SETTINGS)]
    # Two worker processes, forked after the rows were read here.
    loader = torch.utils.data.DataLoader(rows, batch_size=5, num_workers=2, multiprocessing_context="fork")
    assert [row.tolist() for batch in loader for row in batch["targets"]] == expected


def test_an_interrupted_build_goes_on(texts: Path, tmp_path: Path) -> None:
    script = f"""
import itertools, os, sys
import forebay._packed as packed
from forebay.text import Packed
def encode(text):
    return list(text.encode())
whole = packed._Pass.__iter__
def broken(self):
    yield from itertools.islice(whole(self), 9)
    if len(sys.argv) > 1:
        raise RuntimeError("out of power")
    os._exit(3)
packed._Pass.__iter__ = broken
Packed({str(texts)!r}, encode, {str(tmp_path)!r}, **{SETTINGS!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 3
    ended = subprocess.run([sys.executable, "-c", script, "raise"], check=False, capture_output=True, text=True)
    assert "out of power" in ended.stderr
    expected = row_by_row(texts, encode, **SETTINGS)
    rows = Packed(texts, encode, tmp_path, **SETTINGS)
    assert len(rows) == len(expected)
    for found, wanted in zip(rows.get_batch(range(len(rows))), expected, strict=True):
        assert_same(found, wanted)


def test_a_stale_folder_is_told(texts: Path, tmp_path: Path) -> None:
    Packed(texts, encode, tmp_path, **SETTINGS)
    other: dict[str, Any]
    for other, told in (
        ({"seq_len": 31}, "of other parameters: seq_len was 63 and is 31; pass overwrite=True"),
        ({"extras": ["doc_ids"]}, r"fields was \['int32'\] and is \['int32', 'doc_ids'\];"),
        ({"dtype": "uint16"}, r"fields was \['int32'\] and is \['uint16'\];"),
        ({"fit": "carry", "bos_id": 257}, "fingerprint of the tokenizer was .*, fit was 'drop' and is 'carry';"),
    ):
        with pytest.raises(forebay.StateError, match=told):
            Packed(texts, encode, tmp_path, **SETTINGS | other)
    with pytest.raises(forebay.StateError, match=r"fingerprint of the files was .*num_shards was 2 and is 1"):
        Packed(texts / "0.parquet", encode, tmp_path, **SETTINGS)
    given: Any = {"fim_prefix": 300, "fim_middle": 301, "fim_suffix": 302}
    Packed(Documents(texts, fim=0.5, **given), encode, tmp_path / "fim", **SETTINGS)
    with pytest.raises(
        forebay.StateError, match=r": fim_prefix, fim_middle, fim_suffix was \[300, 301, 302\] and is \[300, 301, 303"
    ):
        Packed(Documents(texts, fim=0.5, **given | {"fim_suffix": 303}), encode, tmp_path / "fim", **SETTINGS)
    with pytest.raises(forebay.StateError, match="compression"):
        Packed(texts, encode, tmp_path, compression="zstd", **SETTINGS)
    text = (tmp_path / "train" / "shard_ledger.json").read_text()
    (tmp_path / "train" / "shard_ledger.json").write_text(text.replace("forebay.text.Packed", "somebody"))
    with pytest.raises(forebay.StateError, match="processor was"):
        Packed(texts, encode, tmp_path, **SETTINGS)
    again = Packed(texts, encode, tmp_path, overwrite=True, **SETTINGS | {"seq_len": 31})
    assert again[0]["inputs"].shape == (31,)


def test_what_is_free_makes_nothing_stale(texts: Path, tmp_path: Path) -> None:
    first = Packed(texts, encode, tmp_path, **SETTINGS)
    written = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file())
    other = Packed(texts, encode, tmp_path, dtype="int32", **SETTINGS | {"n_workers": 1, "prefetch_batches": 1})
    assert other[4]["inputs"].dtype == np.int32
    np.testing.assert_array_equal(first[4]["inputs"], other[4]["inputs"])
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()) == written


def test_files_of_others_stay(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "thesis.txt").write_text("mine")
    with pytest.raises(forebay.ForebayError):
        Packed(texts, encode, tmp_path, overwrite=True, **SETTINGS)
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["thesis.txt"]


def test_wrong_parameters(texts: Path, tmp_path: Path) -> None:
    for name, value in {"rank": 0, "world_size": 2, "infinite": True, "max_documents": 4}.items():
        with pytest.raises(forebay.ConfigError, match=f"{name} is given, but"):
            Packed(texts, encode, tmp_path, **SETTINGS | {name: value})
    with pytest.raises(TypeError, match="path is missing"):
        Packed(texts, encode)
    with pytest.raises(TypeError, match="seqlen"):
        Packed(texts, encode, tmp_path, seqlen=3)
    with pytest.raises(forebay.ConfigError, match="dtype is"):
        Packed(texts, encode, tmp_path, dtype="float32")  # type: ignore[arg-type]
    with pytest.raises(forebay.ConfigError, match="the pass has no batch"):
        Packed(texts, encode, tmp_path / "none", **SETTINGS | {"seq_len": 1 << 20})
    assert not list(tmp_path.glob("train/*"))
    rows = Packed(texts, encode, tmp_path, **SETTINGS)
    for wrong in (len(rows), -1):
        with pytest.raises(IndexError, match=f"row {wrong} is requested, but there are {len(rows)} rows, from 0 on"):
            rows[wrong]
    for wrong in (2**63, 2**64, -(2**70)):
        for call in (rows.__getitem__, lambda index: rows.get_batch([0, index])):
            with pytest.raises(IndexError, match=f"there is no index {wrong}"):
                call(wrong)
    for no_index in (True, np.True_, 1.0, "1", None, slice(0, 2)):
        with pytest.raises(TypeError, match=r"index is .* must be an int"):
            rows[no_index]  # type: ignore[index]
    for no_indices in ([0.5], [True], [2**64, True], [None]):
        with pytest.raises(TypeError, match="must be whole numbers"):
            rows.get_batch(no_indices)  # type: ignore[arg-type]
    with pytest.raises(forebay.ConfigError, match=r"path is .* which has a NUL character"):
        Packed(texts, encode, "a\0b", **SETTINGS)
    with pytest.raises(forebay.ConfigError, match="path is 's3://bucket/rows', a URL, to which nothing is written"):
        Packed(texts, encode, "s3://bucket/rows", **SETTINGS)
    with pytest.raises(TypeError, match=r'compression is None .*, must be a str: "none", "zstd"'):
        Packed(texts, encode, tmp_path, compression=None, **SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"overwrite is 'no' .* must be a bool"):
        Packed(texts, encode, tmp_path, overwrite="no", **SETTINGS)  # type: ignore[arg-type]


def test_pairs_are_refused(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = tmp_path / "pairs.jsonl"
    path.write_text(f"{json.dumps({'chosen': turns, 'rejected': turns})}\n" * 4)
    special = {"<|im_start|>": 257, "<|im_end|>": 258}
    ranks = tmp_path / "bytes.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)))
    tokenizer = forebay.tokens.Tokenizer(ranks, pattern="(?s).", special_tokens=special, bos_id=256)
    with pytest.raises(forebay.ConfigError, match="Pairs are not packed"):
        Packed(Pairs(path, template="chatml"), tokenizer, tmp_path / "out", fit="pad", val=[])
    assert not (tmp_path / "out").exists()


def test_splits_have_folders(texts: Path, tmp_path: Path) -> None:
    parameters = SMALL | {"val": ["1.parquet"]}
    train, val = (Packed(texts, encode, tmp_path, split=split, **parameters) for split in ("train", "val"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["train", "val"]
    shown = [bytes(row["inputs"].astype(np.uint8)) for rows in (train, val) for row in itertools.islice(rows, 3)]  # type: ignore[call-overload]
    assert len(set(shown)) == 6
