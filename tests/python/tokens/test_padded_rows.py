"""`fit="pad"`: rows of whole documents, equal to those of a plain oracle; what is ignored, counted and refused."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing
from documents import BOS, COUNTS, document, encode, full_rows, loader, padded_rows, slices_of

EOS = 300
LONG = ["skip", "cut", "split"]


def taken(found: forebay.TokenLoader, n: int, pad: int = BOS) -> list[list[list[int]]]:
    return [padded_rows(batch, pad) for batch in itertools.islice(found, n)]


@pytest.mark.parametrize("on_long", LONG)
@pytest.mark.parametrize("n_packers", [1, 2])
def test_rows_are_those_of_a_plain_list(parquets: Path, on_long: str, n_packers: int) -> None:
    n = 40
    with loader(parquets, fit="pad", on_long=on_long, n_streams=n_packers) as found:
        rows = taken(found, n)
    oracles = [packing.rows(slices_of(v, n_packers), 64, 20, "pad", on_long) for v in range(n_packers)]
    each = 4 // n_packers
    assert rows == [[row for oracle in oracles for row in itertools.islice(oracle, each)] for _ in range(n)]
    assert any(len(row) < 64 for batch in rows for row in batch)
    assert all(row[0] == BOS for batch in rows for row in batch)


@pytest.mark.parametrize("on_long", LONG)
def test_documents_are_whole(parquets: Path, on_long: str) -> None:
    """In a finite pass every document that fits a row is in one row, and no other is cropped but by `on_long`."""
    first = [0, *itertools.accumulate(COUNTS)]
    texts: dict[int, list[int]] = {}
    with loader(parquets, fit="pad", on_long=on_long, infinite=False, extras=["documents"]) as found:
        for batch in found:
            rows = padded_rows(batch, BOS)
            parts = batch["documents"].tolist()
            ends = [*(part[:2] for part in parts[1:]), [len(rows), 0]]
            for (row, column, shard, _, in_shard, start), (next_row, next_column) in zip(parts, ends, strict=True):
                part = rows[row][column : next_column if next_row == row else 64]
                ids = texts.setdefault(first[shard] + in_shard, [BOS])
                assert (part[0], start) == (BOS, len(ids))
                ids += part[1:]
        counts = found.stats()["packing"]
    for number in range(sum(COUNTS[:3])):
        whole = [BOS, *encode(document(number))]
        expected = {"skip": whole if len(whole) <= 64 else None, "cut": whole[:64], "split": whole}[on_long]
        assert texts.get(number) == expected
    lost = sum(max(0, len(encode(document(number))) + 1 - 64) for number in range(sum(COUNTS[:3])))
    skipped = [len(encode(document(number))) + 1 for number in range(sum(COUNTS[:3]))]
    assert counts["dropped"] == {"skip": sum(n for n in skipped if n > 64), "cut": lost, "split": 0}[on_long]


def test_what_is_told_is_what_is_there(parquets: Path, caplog: pytest.LogCaptureFixture) -> None:
    extras = ["doc_ids", "position_ids", "cu_seqlens", "documents"]
    delivered = padded = 0
    with caplog.at_level(logging.INFO, "forebay"), loader(parquets, fit="pad", eos_id=EOS, extras=extras) as found:
        for batch in itertools.islice(found, 100):
            rows = padded_rows(batch, EOS)
            lengths = [len(row) for row in rows]
            delivered += sum(lengths)
            padded += 4 * 64 - sum(lengths)
            assert (batch["targets"] == -100).sum() == sum(64 - length for length in lengths)
            flat = batch["inputs"].reshape(-1)
            starts = np.zeros(flat.size, bool)
            starts[batch["cu_seqlens"][:-1]] = True
            np.testing.assert_array_equal(batch["position_ids"].reshape(-1) == 0, starts)
            np.testing.assert_array_equal(batch["doc_ids"], starts.reshape(4, 63).cumsum(1) - 1)
            # What is padded is a part of its own, of no document.
            inner = [[row, length] for row, length in enumerate(lengths) if length < 63]
            assert all(starts[63 * row + length] for row, length in inner)
            assert not {tuple(place) for place in inner} & {tuple(part[:2]) for part in batch["documents"].tolist()}
        shares = str(found)
    share = f"{100 * padded / (delivered + padded):.1f} % of the rows is padding"
    assert share in shares
    [record] = [record for record in caplog.records if "after 100 batches" in record.message]
    assert share in record.message
    assert 'on_long="split" drops none' in record.message


@pytest.mark.parametrize("parameters", [{}, {"on_long": "split", "seed": 3, "n_streams": 2}, {"infinite": False}])
def test_resume_ranks_threads(parquets: Path, parameters: dict[str, Any]) -> None:
    parameters = {"fit": "pad", "pad_id": 7, **parameters}
    with loader(parquets, n_workers=1, **parameters) as whole:
        states, batches = [], []
        for batch in itertools.islice(whole, 25):
            batches.append(padded_rows(batch, 7))
            states.append(json.loads(json.dumps(whole.state_dict())))
    assert states[0]["config"]["crop"] == "pad"
    for at in range(0, len(batches), 4):
        with loader(parquets, n_workers=4, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert taken(resumed, len(batches) - at - 1, 7) == batches[at + 1 :]
    if "n_streams" in parameters:
        mixed = parameters | {"shuffle_min_size": 0}
        with loader(parquets, **mixed) as alone:
            expected = taken(alone, 6, 7)
        parts = []
        for rank in range(2):
            with loader(parquets, **mixed, batch_size=2, rank=rank, world_size=2) as part:
                parts.append(taken(part, 6, 7))
        assert [a + b for a, b in zip(*parts, strict=True)] == expected


def test_fit_is_crop(parquets: Path) -> None:
    for crop in ("drop", "carry"):
        with loader(parquets, crop=crop) as old, loader(parquets, fit=crop) as new:
            assert full_rows(next(old)) == full_rows(next(new))
            state = old.state_dict()
            assert state == new.state_dict()
            assert state["config"]["crop"] == crop
            assert not {"fit", "on_long", "pad_id"} & set(state["config"])
            new.load_state_dict(state)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"fit": "pad", "dtype": "uint16"}, "which cannot hold the targets -100"),
        ({"fit": "pad", "crop": "carry"}, "crop is its former name, leave it out"),
        ({"on_long": "cut"}, 'on_long is for fit="pad", and fit is "drop"'),
        ({"fit": "carry", "pad_id": 0}, 'pad_id is for fit="pad", and fit is "carry"'),
        ({"fit": "pad", "on_long": "drop"}, 'on_long is "drop", must be "skip", "cut" or "split"'),
        ({"fit": "pad", "pad_id": -1}, "pad_id is -1"),
        ({"fit": "crop"}, 'fit is "crop", must be "drop", "carry" or "pad"'),
    ],
)
def test_wrong_parameters(parquets: Path, parameters: dict[str, Any], match: str) -> None:
    with pytest.raises(forebay.ConfigError, match=match):
        loader(parquets, **parameters)


def test_all_documents_are_too_long(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a long document" * 9] * 40}), tmp_path / "a.parquet", row_group_size=10)
    too_long = "all documents are longer than a row, such as one with 136 tokens"
    with loader(tmp_path, val=[], fit="pad") as found, pytest.raises(forebay.ConfigError, match=too_long):
        next(found)
    with loader(tmp_path, val=[], fit="pad", infinite=False) as found, pytest.raises(forebay.ConfigError):
        next(found)
    with loader(tmp_path, val=[], fit="pad", on_long="cut") as found:
        assert padded_rows(next(found), BOS) == [[BOS, *encode("a long document" * 9)][:64]] * 4
