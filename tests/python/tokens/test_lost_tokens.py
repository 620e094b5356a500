"""Which share of the tokens is in rows, dropped and held, and who says so."""

import importlib.util
import itertools
import logging
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from paths import ROOT


def loader(folder: Path, texts: Sequence[str] = ("x" * 1000,) * 400, **parameters: object) -> forebay.TokenLoader:
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet")
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
    assert ('fit="carry" drops none' in text) == is_dropped == ("fit=" in said[0].message)
    assert said[0].levelno == (logging.WARNING if is_dropped else logging.INFO)
    rows, dropped, held = (
        float(share) for share in re.findall(r"([\d.]+) %", text.split("tokens read")[1].split(" wait for")[0])
    )
    assert rows + dropped + held == pytest.approx(100, abs=0.2)
    assert (dropped > 80) == is_dropped  # of 1001 tokens 100 fill a row
    assert (packing["dropped"] > 0) == is_dropped


def tails(held: str, lengths: Sequence[int], capacity: int) -> int:
    """The tokens beyond the capacity of the documents that a state holds."""
    return sum(max(0, lengths[row] - capacity) for row in itertools.accumulate(map(int, held.split())))


def test_tokens_that_no_row_can_hold_are_dropped_when_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of 1001 tokens of a document, 901 are lost as soon as it is held: half of the documents wait for ever."""
    texts = ["x" * (1000 if number % 2 else 90) for number in range(3000)]
    lengths = [len(text) + 1 for text in texts]
    with caplog.at_level(logging.INFO, "forebay"), loader(tmp_path, texts, batch_size=1, buffer_size=400) as tokens:
        list(islice(tokens, 100))
        text, state = repr(tokens), tokens.state_dict()
    [packer] = state["packers"].values()
    read = sum(lengths[: packer["documents_read"]])
    held = sum(min(lengths[row], 100) for row in itertools.accumulate(map(int, packer["held"].split())))
    rows = 100 * 100
    lost = read - held - rows  # all others
    assert lost > tails(packer["held"], lengths, 100) > 100_000
    shares = [float(share) for share in re.findall(r"([\d.]+) %", text.split("tokens read")[1])[:3]]
    assert shares == pytest.approx([100 * part / read for part in (rows, lost, held)], abs=0.06)
    [said] = [record for record in caplog.records if "TokenLoader after" in record.message]
    assert said.levelno == logging.WARNING
    assert f"{shares[1]} % were dropped (they can be in no row)" in said.message


@pytest.mark.parametrize(("n_texts", "is_logged"), [(8, False), (60, True)])
def test_a_short_pass_is_logged_at_its_end(
    tmp_path: Path, n_texts: int, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["x" * 1000] * n_texts
    with (
        caplog.at_level(logging.INFO, "forebay"),
        loader(tmp_path, texts, crop="drop", infinite=False, batch_size=1) as tokens,
    ):
        n = len(list(tokens))
        assert (20 <= n < 100) == is_logged
        list(tokens)
    said = [record for record in caplog.records if "TokenLoader after" in record.message]
    assert [record.levelno for record in said] == [logging.WARNING] * is_logged
    assert all(f"after {n} batches" in record.message for record in said)


def test_a_resumed_run_does_not_count_the_same_tails_again(tmp_path: Path) -> None:
    texts = ["x" * (1 + 37 * number % 300) for number in range(3000)]

    def dropped(loader: forebay.TokenLoader) -> int:
        """Of the returned batches; at the end of a pass none is made ahead."""
        return loader.stats()["packing"]["dropped"]

    with loader(tmp_path, texts, infinite=False) as whole:
        half = [whole.state_dict() for _ in islice(whole, 40)][-1]
    with loader(tmp_path, texts, infinite=False) as whole:
        n_batches = len(list(whole))
        expected, delivered = dropped(whole), whole.stats()["packing"]["delivered"]
    with loader(tmp_path, texts, infinite=False) as resumed:
        resumed.load_state_dict(half)
        assert len(list(resumed)) == n_batches - 40
        rest = dropped(resumed)
    [packer] = half["packers"].values()
    lengths = [len(text) + 1 for text in texts]
    rows = list(itertools.accumulate(map(int, packer["held"].split())))
    held = sum(min(lengths[row], 100) for row in rows)
    before = sum(lengths[: packer["documents_read"]]) - held - 40 * 2 * 100
    assert tails(packer["held"], lengths, 100) > 0
    assert before + rest == expected
    assert delivered == 100 * 2 * n_batches


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("fit", ["drop", "carry", "pad"])
def test_the_end_of_a_pass_is_dropped(tmp_path: Path, fit: str, drop_last: bool) -> None:
    """Documents that fill no further row, and rows that make no further batch."""
    lengths = [1 + 37 * number % 90 for number in range(50)]
    parameters = {"fit": fit, "batch_size": 7, "drop_last": drop_last, "infinite": False, "extras": ["documents"]}
    with loader(tmp_path, ["x" * (length - 1 or 1) for length in lengths], **parameters) as tokens:
        for _ in range(2):
            batches = list(tokens)
            text = repr(tokens)
        packing = tokens.stats()["packing"]
    n_read = 2 * sum(max(length, 2) for length in lengths)
    n_rests = 2 * sum(int((batch["documents"][:, 5] > 1).sum()) for batch in batches)
    assert (packing["documents"], packing["tokens"]) == (0, 0)
    assert packing["dropped"] > 0 or fit == "pad"
    lost = n_read + n_rests - packing["delivered"]
    # The rests that are lost at the end of a pass have a BOS each, too.
    assert lost <= packing["dropped"] <= lost + (2 * 7 if fit == "carry" else 0)
    assert "0.0 % wait for a row (0 documents)" in text
    total = packing["delivered"] + packing["dropped"]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", text.split("tokens read")[1])]
    assert shares[0] == pytest.approx(100 * packing["delivered"] / total, abs=0.06)


def test_the_end_of_a_pass_counts_for_its_source(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder, length in zip(folders, (90, 35), strict=True):
        folder.mkdir()
        pq.write_table(pa.table({"text": ["x" * (length - 1)] * 40}), folder / "a.parquet")
    sources: Any = {"a": folders[0], "b": folders[1]}
    given: Any = {"seq_len": 99, "batch_size": 2, "bos_id": 0, "buffer_size": 20, "val": [], "infinite": False}
    with forebay.TokenLoader(sources, lambda text: list(text.encode()), **given) as tokens:
        list(tokens)
        stats = tokens.stats()
    for name, length in (("a", 90), ("b", 35)):
        found = stats["sources"][name]
        assert found["tokens"] + found["dropped"] == length * found["documents"]
    assert sum(found["dropped"] for found in stats["sources"].values()) == stats["packing"]["dropped"] > 0


def test_bad_documents_are_not_for_the_command_that_checks_recordings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts: Any = ["x" * 50, None, None] * 40
    with caplog.at_level(logging.WARNING, "forebay"), loader(tmp_path, texts, infinite=False) as tokens:
        list(tokens)
    [said] = [record.message for record in caplog.records if "records failed" in record.message]
    assert "80 of 120 records failed" in said
    assert "forebay check" not in caplog.text
    strict = loader(tmp_path, texts, infinite=False, max_errors=3)
    with strict, pytest.raises(forebay.DecodeError, match=r"max_errors allows 3.*; see errors\(\): /"):
        list(strict)


def test_the_shares_are_those_of_the_returned_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever was made ahead: the record is a function of the batches."""
    texts = ["x" * (1 + 37 * number % 300) for number in range(3000)]
    said, printed = [], []
    for parameters in ({"n_workers": 1, "prefetch_batches": 1}, {"n_workers": 4, "prefetch_batches": 9}):
        with caplog.at_level(logging.INFO, "forebay"), loader(tmp_path, texts, **parameters) as tokens:
            list(islice(tokens, 100))
            printed.append(repr(tokens).split("of the tokens read")[1].split("none")[0])
            next(tokens)
        said.append([record.message for record in caplog.records if "TokenLoader after" in record.message])
        caplog.clear()
    assert len(said[0]) == 1
    assert said[0] == said[1]
    assert printed[0] == printed[1]
    assert printed[0] in said[0][0]
    # At the end of a pass no batch is made ahead, so `stats()` has the same numbers.
    with loader(tmp_path, texts, infinite=False) as tokens:
        list(tokens)
        packing = tokens.stats()["packing"]
        text = repr(tokens)
    total = packing["delivered"] + packing["dropped"] + packing["tokens"]
    expected = [100 * packing[key] / total for key in ("delivered", "dropped", "tokens")]
    assert [float(share) for share in re.findall(r"([\d.]+) %", text.split("tokens read")[1])[:3]] == pytest.approx(
        expected, abs=0.06
    )


def test_the_table_is_what_the_script_prints(tmp_path: Path) -> None:
    """Two cells are packed again; `python benches/lost_tokens.py` prints all."""
    spec = importlib.util.spec_from_file_location("lost_tokens", ROOT / "benches/lost_tokens.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = (ROOT / "docs/tokens.md").read_text().splitlines()
    start = rows.index("| mean length | " + " | ".join(f"seq_len {n}" for n in script.SEQ_LENS) + " |")
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[start + 2 :][: len(script.MEANS)]]
    assert [row[0] for row in table] == list(script.MEANS)
    n_tokens = 4_000_000
    for mean, seq_len in [(250, 1024), (1000, 2048)]:
        file = tmp_path / f"{mean}.parquet"
        lengths = script.lengths(mean, n_tokens, same=False)
        pq.write_table(pa.table({"text": ["x" * (n - 1 or 1) for n in lengths]}), file, row_group_size=1000)
        cell = table[list(script.MEANS).index(str(mean))][1 + script.SEQ_LENS.index(seq_len)]
        assert f"{script.shares(file, seq_len, 'drop', n_tokens)[1]:.0f} %" == cell


def test_advice_is_for_tokens(tmp_path: Path) -> None:
    """What a `TokenLoader` and its figures say names no parameter of recordings."""
    with loader(tmp_path) as tokens:
        next(iter(tokens))
        text = repr(tokens) + str(tokens.stats())
    assert not re.search("sample_rate|n_mels|hop_length|clip_seconds|decod", text.split("'packing'")[0].split("{")[0])
