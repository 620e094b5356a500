"""`forebay inspect` of texts: lengths in tokens, and the waste of each way of packing."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chats
import forebay
from documents import RANKS, document
from fields import write
from forebay import cli
from forebay.cli import inspect_texts
from forebay.text import Chat, Ids
from forebay.tokens import Tokenizer
from packed_chats import BOS, loaded
from packed_chats import write as write_chats
from recordings import tiny_rows, write_shard

TEXTS = [document(number) for number in range(384)]


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert cli.main(["inspect", *map(str, arguments), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The error of wrong usage."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["inspect", *map(str, arguments)])
    return capsys.readouterr().err.removeprefix("forebay inspect: error: ").removesuffix("\n")


def figures(lengths: list[int]) -> dict[str, float]:
    ordered = sorted(lengths)
    at = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    found = {name: ordered[max(int(np.ceil(share * len(ordered))) - 1, 0)] for name, share in at.items()}
    return {**found, "mean": round(sum(lengths) / len(lengths), 1)}


def written(folder: Path, form: str) -> Path:
    """The texts in a file of one format."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    if form == "parquet":
        # Groups of a slice of the packer, so that it gets the same slices from other groups of the same documents.
        pq.write_table(pa.table({"text": TEXTS}), folder / "a.parquet", row_group_size=128)
    elif form == "jsonl":
        (folder / "a.jsonl").write_text(lines)
    elif form == "jsonl.gz":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    elif form == "txt":
        (folder / "a.txt").write_text("\n".join(TEXTS))
    else:
        return write(folder / "a", pa.table({"text": TEXTS}), form)
    return folder / f"a.{form}"


@pytest.mark.parametrize("form", ["parquet", "jsonl", "jsonl.gz", "txt", "stream", "folder"])
def test_lengths_are_those_of_the_tokenizer(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, written(tmp_path, form), "-t", RANKS, "--seq-len", "64")
    lengths = [1 + len(ids) for ids in Tokenizer(RANKS).encode_batch(TEXTS)]
    assert found["rows"] == 384
    assert found["sample"] == {"documents": 384, "tokens": sum(lengths), "is_whole": True, "bad": 0}
    assert found["lengths"] == figures(lengths)


def test_waste_is_that_of_the_loader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "parquet")
    found = told(capsys, path, "-t", RANKS, "--seq-len", "200,64", "--eos-id", "7")["packing"]
    fits = [("drop", None), ("carry", None), ("pad", "skip"), ("pad", "cut"), ("pad", "split")]
    expected = [(seq_len, *fit) for seq_len in (64, 200) for fit in fits]
    assert [(one["seq_len"], one["fit"], one["on_long"]) for one in found] == expected
    for one in found:
        parameters = {"on_long": one["on_long"]} if one["on_long"] else {}
        loader = forebay.TokenLoader(
            path, RANKS, seq_len=one["seq_len"], batch_size=8, val=[], infinite=False, fit=one["fit"], eos_id=7,
            extras=["documents"], **parameters,
        )  # fmt: skip
        with loader:
            batches = list(loader)
            packed = loader.stats()["packing"]
        assert one["rows"] == sum(len(batch["inputs"]) for batch in batches)
        n_rests = sum(first > 1 for batch in batches for first in batch["documents"][:, 5].tolist())
        assert (one["delivered"], one["padded"]) == (packed["delivered"] - n_rests, packed["padded"])
        assert one["delivered"] + one["dropped"] == one["tokens"]
        # The BOS before a rest is no token of the document; there may be one in each row of the last batch.
        assert 0 <= packed["dropped"] - one["dropped"] <= (8 if one["fit"] == "carry" else 0)
    assert any(one["dropped"] for one in found)
    assert any(one["padded"] for one in found)


def test_documents_of_several_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that end at the end of a row of the sample, or one token around it."""
    row = inspect_texts.ROW
    lengths = [*range(row - 2, row + 4), *range(2 * row - 2, 2 * row + 4), 3, 5 * row, 2, 7]
    lists = [[9, *[1] * (length - 1)] for length in lengths]
    pq.write_table(pa.table({"input_ids": lists}), tmp_path / "a.parquet", row_group_size=5)
    found = told(capsys, tmp_path / "a.parquet", "--kind", "ids", "--bos-id", 9, "--seq-len", "8")
    assert found["sample"] == {"documents": len(lengths), "tokens": sum(lengths), "is_whole": True, "bad": 0}
    assert found["lengths"] == figures(lengths)


def test_ids_of_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.arange(60).reshape(6, 10))
    inspect_texts.write_zeros(tmp_path / "b.bin", np.array([3, 9, 4]))
    for name, lengths in (("a.npy", [11] * 6), ("b.bin", [4, 10, 5])):
        found = told(capsys, tmp_path / name, "--kind", "ids", "--bos-id", 99)
        assert found["lengths"] == figures(lengths)
    pq.write_table(pa.table({"other": [[1, 2], [3]]}), tmp_path / "c.parquet")
    found = told(capsys, tmp_path / "c.parquet", "--kind", "ids", "--bos-id", 99, "--text-column", "other")
    assert found["lengths"] == figures([3, 2])


def test_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer").mkdir()
    tokenizer = chats.write_tokenizer(tmp_path / "tokenizer")
    conversations = [chats.conversation(number) for number in range(40)]
    path = write_chats(tmp_path / "a.jsonl", [*conversations, [{"role": "user", "content": "no answer"}]])
    (tmp_path / "mine.jinja").write_text(chats.BLOCKS["chatml"])
    for name in ("chatml", str(tmp_path / "mine.jinja")):
        found = told(capsys, path, "-t", tokenizer, "--kind", "chat", "--template", name, "--train-on", "last")
        source = Chat(write_chats(tmp_path / "b.jsonl", conversations), template="chatml")
        lengths = [len(ids) for ids, _ in loaded(source, tokenizer, bos_id=BOS).values()]
        assert len(lengths) == 40
        assert found["lengths"] == figures(lengths)
        assert (found["sample"]["documents"], found["sample"]["bad"]) == (40, 1)


def test_a_sample_says_that_it_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "parquet")
    arguments = [path, "-t", RANKS, "--documents", 50, "--seq-len", "64"]
    first, again = told(capsys, *arguments), told(capsys, *arguments)
    assert [first[name] == again[name] for name in ("sample", "lengths", "packing")] == [True] * 3
    assert (first["rows"], first["sample"]["documents"], first["sample"]["is_whole"]) == (384, 50, False)
    # Of all row groups, not the first ones of the file.
    begin = sum(1 + len(ids) for ids in Tokenizer(RANKS).encode_batch(TEXTS[:50]))
    assert first["sample"]["tokens"] != begin
    assert cli.main(["inspect", *map(str, arguments)]) == 0
    out = capsys.readouterr().out
    assert "a sample of 50 documents, " in out
    assert "all 384 rows have about " in " ".join(out.split())
    assert told(capsys, path, "-t", RANKS, "--documents", 384)["sample"]["is_whole"]


def test_a_sample_ends_by_its_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But has a document, however long."""
    monkeypatch.setattr(inspect_texts, "MOST_TOKENS", 2000)
    monkeypatch.setattr(inspect_texts, "SLICE", 1)
    books = [[9] * 20_000 for _ in range(30)]
    pq.write_table(pa.table({"input_ids": books}), tmp_path / "a.parquet", row_group_size=3)
    found = told(capsys, tmp_path / "a.parquet", "--kind", "ids", "--bos-id", 9)
    assert found["sample"]["is_whole"] is False
    assert 1 <= found["sample"]["documents"] <= 3
    assert found["lengths"] == figures([20_000])


def test_documents_that_fill_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a b"}\n{"text": "c d e"}\n')
    arguments = [tmp_path / "a.jsonl", "-t", RANKS, "--seq-len", "1,100"]
    rows = {(one["seq_len"], one["fit"], one["on_long"]): one["rows"] for one in told(capsys, *arguments)["packing"]}
    assert [rows[1, "pad", "skip"], rows[100, "drop", None], rows[100, "carry", None]] == [0, 0, 0]
    assert [rows[1, "drop", None], rows[100, "pad", "skip"]] == [2, 1]
    assert cli.main(["inspect", *map(str, arguments)]) == 0
    assert capsys.readouterr().out.count("the documents fill no row") == 3


def test_the_table_fits_in_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "jsonl")
    for more in ([], ["--documents", "20"]):
        assert cli.main(["inspect", "a.jsonl", "-t", str(RANKS), "--seq-len", "9,16777216", *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("384 rows in 1 file, ")
        header = next(at for at, line in enumerate(lines) if line.split()[:1] == ["seq_len"])
        assert lines[header].split() == ["seq_len", "fit", "on_long", "rows", "dropped", "padding"]
        assert [line.split()[:2] for line in lines[header + 1 : header + 6]] == [
            ["9", "drop"], ["9", "carry"], ["9", "pad"], ["9", "pad"], ["9", "pad"],
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seq-len", "64"], "--seq-len is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken"),
        (["--bos-id", "1"], "--bos-id is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken"),
        (["-t", RANKS, "--row", "1"], "--row is for recordings, and --tokenizer and --kind are for texts; give one"),
        (["-t", RANKS, "--seconds", "1"], "--seconds is for recordings, and "),
        (["-t", RANKS, "--template", "chatml"], "--template needs --kind chat"),
        (["-t", RANKS, "--train-on", "all"], "--train-on needs --kind chat"),
        (["--kind", "chat"], "--kind chat needs a tokenizer, as in --tokenizer gpt2.tiktoken"),
        (["-t", RANKS, "--documents", "0"], "--documents is 0, must be 1 to 1000000"),
        (["-t", RANKS, "--seq-len", "0"], "argument --seq-len: 0 must be at most 16 numbers of 1 to "),
        (["-t", RANKS, "--seq-len", "9,,9"], "argument --seq-len: 9,,9 must be at most 16 numbers of 1 to "),
        (["-t", "gone"], "--tokenizer gone is missing, must be a file"),
        (["-t", RANKS, "--bos-id", "-1"], "--bos-id is -1, must be 0 to 2147483647"),
        (["-t", RANKS, "--special-tokens", "x"], "--special-tokens x is neither NAME=ID nor a file; "),
        (["-t", RANKS, "--text-column", "x"], 'a.jsonl: there is no field "x" in the first line, which has "text"; '),
        (["-t", RANKS, "--kind", "chat", "--template", "chatlm"], '--template is "chatlm", must be "tokenizer", '),
        (["--kind", "ids"], "--kind ids needs --bos-id, the id that begins a document, or a --tokenizer that has one"),
        (["--kind", "ids", "--bos-id", "1"], "SOURCE: a.jsonl is JSON lines; token ids are read from "),
    ],
)  # fmt: skip
def test_wrong_options(
    arguments: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "jsonl")
    error = said(capsys, "a.jsonl", *arguments)
    assert error.startswith(message)
    assert "\n" not in error
    assert "column=" not in error


def test_a_template_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jinja").write_bytes(b"\xff\xfe")
    error = said(capsys, written(tmp_path, "jsonl"), "-t", RANKS, "--kind", "chat", "--template", tmp_path / "a.jinja")
    assert "is no text in UTF-8" in error


def test_a_source_of_texts_without_a_tokenizer_is_hinted_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hint = "Of texts, name the tokenizer with --tokenizer"
    for form in ("jsonl", "parquet"):
        assert said(capsys, written(tmp_path, form)).endswith(hint)
    assert hint not in said(capsys, tmp_path / "gone.jsonl")


@pytest.mark.parametrize("command", ["check", "index"])
def test_commands_of_recordings_say_what_reads_texts(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main([command, str(written(tmp_path, "jsonl"))])
    assert "`forebay inspect SOURCE --tokenizer FILE` tells what texts hold" in capsys.readouterr().err


def test_texts_that_are_all_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 1}\n' * 3)
    assert cli.main(["inspect", str(tmp_path / "a.jsonl"), "-t", str(RANKS)]) == 1
    assert "the pass has no good record" in capsys.readouterr().err


def test_recordings_are_as_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, write_shard(tmp_path / "a.arrow", tiny_rows(4)))
    assert found["rows"] == 4
    assert "sample" not in found


def test_zeros_of_the_sample_are_the_documents(tmp_path: Path) -> None:
    lengths = np.array([4, 2, 9, 1000])
    inspect_texts.write_zeros(tmp_path / "a.bin", lengths)
    loader = forebay.TokenLoader(
        Ids(tmp_path / "a.bin"), bos_id=0, val=[], infinite=False, fit="pad", seq_len=2000, pad_id=5, batch_size=1,
        extras=["documents"],
    )  # fmt: skip
    with loader:
        [batch] = loader
    starts = [*batch["documents"][:, 1].tolist(), int((batch["inputs"] == 0).sum())]
    assert sorted(b - a for a, b in itertools.pairwise(starts)) == sorted(lengths)
