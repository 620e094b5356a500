"""Which share of the tokens is in rows, dropped and held, and who says so."""

import logging
import re
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay


def loader(folder: Path, **parameters: object) -> forebay.TokenLoader:
    pq.write_table(pa.table({"text": ["x" * 1000] * 400}), folder / "a.parquet")
    given = {"seq_len": 99, "batch_size": 2, "bos_id": 0, "buffer_size": 20, "n_workers": 1, "val": []} | parameters
    return forebay.TokenLoader(folder / "a.parquet", lambda text: list(text.encode()), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("crop", "is_dropped"), [("drop", True), ("carry", False)])
def test_the_shares_are_printed_and_logged_once(
    tmp_path: Path, crop: str, is_dropped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "forebay"):
        with loader(tmp_path, crop=crop) as tokens:
            assert "tokens read" not in repr(tokens)
            list(islice(tokens, 99))
        assert "TokenLoader after" not in caplog.text
        with loader(tmp_path, crop=crop) as tokens:
            list(islice(tokens, 250))
            packing = tokens.stats()["packing"]
            text = repr(tokens)
    said = [record for record in caplog.records if "TokenLoader after 100 batches" in record.message]
    assert len(said) == 1
    assert ('crop="carry" drops none' in text) == is_dropped == ("crop=" in said[0].message)
    assert said[0].levelno == (logging.WARNING if is_dropped else logging.INFO)
    rows, dropped, held = (
        float(share) for share in re.findall(r"([\d.]+) %", text.split("tokens read")[1].split(" wait for")[0])
    )
    assert rows + dropped + held == pytest.approx(100, abs=0.2)
    assert (dropped > 80) == is_dropped  # of 1001 tokens 100 fill a row
    assert (packing["dropped"] > 0) == is_dropped


def test_advice_is_for_tokens(tmp_path: Path) -> None:
    """What a `TokenLoader` and its figures say names no parameter of recordings."""
    with loader(tmp_path) as tokens:
        next(iter(tokens))
        text = repr(tokens) + str(tokens.stats())
    assert not re.search("sample_rate|n_mels|hop_length|clip_seconds|decod", text.split("'packing'")[0].split("{")[0])
