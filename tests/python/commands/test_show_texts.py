"""`forebay show` of texts: the rows of a batch, each token in the color of its document; no text is HTML."""

import json
import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chats
import forebay
from documents import RANKS, document
from forebay import cli
from forebay.cli.show_page import COLORS
from forebay.text import Chat, Pairs
from forebay.tokens import Tokenizer
from packed_chats import write as write_chats
from pages import EVIL, Seen, shown
from paths import DATA

TEXTS = [document(number) for number in range(200)]
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "table", "caption", "tr", "th",
    "td", "span", "ol", "li", "dl", "dt", "dd", "wbr",
}  # fmt: skip


def write(folder: Path, rows: list[str]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    return path


def tokens_of(page: Seen) -> list[list[tuple[list[int], set[str], str]]]:
    """Of each row the ids, classes and text of each piece; padding has no ids."""
    rows: list[list[tuple[list[int], set[str], str]]] = []
    for (tag, attributes), text in zip(page.tags, page.texts, strict=True):
        if tag == "li":
            rows.append([])
        title = attributes.get("title")
        if tag == "span" and title:
            ids = [int(one) for one in title.split()[1:]]
            classes = set((attributes["class"] or "").split())
            rows[-1].append(([] if "p" in classes else ids, classes, text))
    return rows


def first_batch(source: Any, tokenizer: Any, **parameters: Any) -> dict[str, Any]:
    """That of the page: of a pass with the seed 0."""
    given = {"seed": 0, "infinite": False, "val": [], "extras": ["documents", "doc_ids"], **parameters}
    with forebay.TokenLoader(source, tokenizer, **given) as loader:
        return next(iter(loader))


@pytest.mark.parametrize(("fit", "n"), [("drop", 3), ("carry", 3), ("pad", 150)])
def test_rows_are_those_of_the_loader(fit: str, n: int, tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS)
    page = shown(path, "-t", RANKS, "-n", n, "--seq-len", 100, "--fit", fit, tmp_path / "a.html")
    batch = first_batch(path, RANKS, batch_size=n, seq_len=100, fit=fit)
    rows = tokens_of(page)
    assert len(rows) == len(batch["inputs"])
    assert any("p" in classes for row in rows for _, classes, _ in row) == (fit == "pad")
    for row, pieces in enumerate(rows):
        inputs, targets = batch["inputs"][row].tolist(), batch["targets"][row].tolist()
        length = next((at for at, target in enumerate(targets) if target == -100), 100) + 1
        ids = [one for own, _, _ in pieces for one in own]
        assert ids == [*inputs, targets[-1]][:length]
        assert any("p" in classes for _, classes, _ in pieces) == (length < 100)
        # The colors take turns with the documents, and the first token of each is marked.
        starts = [part[1] for part in batch["documents"].tolist() if part[0] == row]
        marked = [sum(len(own) for own, _, _ in pieces[:at]) for at, piece in enumerate(pieces) if "s" in piece[1]]
        assert marked == starts
        number = -1
        for own, classes, _ in pieces:
            number += "s" in classes
            assert not own or f"d{number % COLORS}" in classes
    text = "".join(text for own, _, text in rows[0] if own).replace("↵\n", "\n")
    assert text == Tokenizer(RANKS).decode([one for own, _, _ in rows[0] for one in own])


def test_targets_that_are_not_trained_on_are_dimmed(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    tokenizer = chats.write_tokenizer(tmp_path / "tokenizer")
    path = write_chats(tmp_path / "a.jsonl", [chats.conversation(number) for number in range(30)])
    options = ["--kind", "chat", "--template", "chatml", "--fit", "pad", "--train-on", "last", "--seq-len", 300]
    page = shown(path, "-t", tokenizer, *options, "-n", 4, tmp_path / "a.html")
    source = Chat(path, template="chatml", train_on="last")
    batch = first_batch(source, tokenizer, batch_size=4, seq_len=300, fit="pad")
    n_trained = 0
    for pieces, targets in zip(tokens_of(page), batch["targets"].tolist(), strict=True):
        dimmed = ["u" in classes for own, classes, _ in pieces for _ in own]
        assert dimmed == [True, *(target == -100 for target in targets)][: len(dimmed)]
        n_trained += len(dimmed) - sum(dimmed)
    assert n_trained == int((batch["targets"] >= 0).sum()) > 0


def test_nothing_of_a_text_is_html(tmp_path: Path) -> None:
    control = "\x00\x1b[31m\x7f\x9b\u202e\u200b\u2028\ufeff"
    folder = tmp_path / "<img src=x onerror=1>"
    folder.mkdir()
    path = write(folder, [f"{EVIL} {control} </span></div>&amp; {number}" for number in range(40)])
    page = shown(path, "-t", RANKS, "-n", 2, "--seq-len", 200, tmp_path / "a.html")
    assert {tag for tag, _ in page.tags} <= TAGS
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    text = "".join(text for own, _, text in tokens_of(page)[0] if own)
    assert EVIL in text
    assert "</span></div>&amp; " in text
    assert "".join(f"\\u{ord(char):04x}" if char not in "[31m" else char for char in control) in text
    found = (tmp_path / "a.html").read_text()
    assert {char for char in found if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}


def test_each_document_has_its_own_direction(tmp_path: Path) -> None:
    path = write(tmp_path, ["שלום עולם", "hello", "مرحبا"] * 20)
    page = shown(path, "-t", RANKS, "-n", 2, "--seq-len", 60, tmp_path / "a.html")
    rows = tokens_of(page)
    n_documents = sum("s" in classes for row in rows for _, classes, _ in row)
    assert sum(span.get("dir") == "auto" for span in page.all("span")) == n_documents
    # BOS has Latin letters, and does not decide on the direction of a text.
    special = [span.get("dir") for span in page.all("span") if "title" in span and "c" in (span["class"] or "").split()]
    assert special == ["ltr"] * n_documents
    assert "שלום עולם" in "".join(text for own, _, text in rows[0] if own)


def test_no_request(tmp_path: Path) -> None:
    page = shown(write(tmp_path, TEXTS), "-t", RANKS, "-n", 2, tmp_path / "a.html")
    assert not [name for _, tag in page.tags for name in tag if name in ("src", "href", "poster", "action")]
    [policy] = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert page.all("html") == [{"lang": "en"}]


def test_a_character_of_several_tokens_is_one_piece(tmp_path: Path) -> None:
    path = write(tmp_path, ["é 😀 漢字 \ufffd \U0001f9d1\u200d\U0001f680 end"] * 20)
    for row in tokens_of(shown(path, "-t", RANKS, "-n", 2, "--seq-len", 60, tmp_path / "a.html")):
        text = "".join(text for _, _, text in row)
        assert "é 😀 漢字 \ufffd \U0001f9d1\\u200d\U0001f680 end" in text
        assert all(len(own) <= 5 for own, _, _ in row)
        assert any(len(own) > 1 for own, _, _ in row)


def test_spaces_of_sentencepiece(tmp_path: Path) -> None:
    """Of a token alone its `decode` leaves out the space."""
    path = write(tmp_path, ["the house of the man"] * 30)
    page = shown(path, "-t", DATA / "tokens/unigram.model", "-n", 1, "--seq-len", 60, tmp_path / "a.html")
    pieces = tokens_of(page)[0]
    assert "the house of the man" in "".join(text for _, _, text in pieces)
    assert all(text for _, _, text in pieces)
    assert {text for own, classes, text in pieces if own == [1] and "c" in classes} == {"⟨1⟩"}


def test_ids_without_a_tokenizer(tmp_path: Path) -> None:
    pq.write_table(pa.table({"input_ids": [[1, 2, 3]] * 50}), tmp_path / "a.parquet")
    page = shown(tmp_path / "a.parquet", "--kind", "ids", "--bos-id", 9, "-n", 1, "--seq-len", 7, tmp_path / "a.html")
    assert "".join(text for _, _, text in tokens_of(page)[0]) == "9 1 2 3 9 1 2 3 "


def test_facts_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, TEXTS)
    output = tmp_path / "a.html"
    options = ["-n", "99", "--seq-len", "300", "--fit", "pad", "--on-long", "split", "--seed", "3"]
    assert cli.main(["show", str(path), "-t", str(RANKS), *options, "-o", str(output), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    batch = first_batch(path, RANKS, batch_size=99, seq_len=300, fit="pad", on_long="split", seed=3)
    assert (found["rows"], found["path"], found["recipe"]) == (200, str(output), None)
    text = Seen(output.read_text()).text
    for row, one in enumerate(found["shown"]):
        parts = [part for part in batch["documents"].tolist() if part[0] == row]
        n_trained = int((batch["targets"][row] >= 0).sum())
        assert (one["row"], one["documents"], one["trained"]) == (row, len(parts), n_trained)
        assert one["tokens"] + one["padding"] in (300, 301)
        assert f"{one['tokens']} tokens, {one['padding']} padding, {n_trained} trained on" in text
        starts = [*(part[1] for part in parts), one["tokens"]]
        for number, (part, (begin, end)) in enumerate(zip(parts, pairwise(starts), strict=True)):
            assert number >= 40 or f"document {number}a.jsonl, row {part[4]}, {end - begin} token" in text
    assert text.count("more") == sum(one["documents"] > 40 for one in found["shown"]) > 0
    assert sum(one["padding"] for one in found["shown"]) > 0


def test_a_small_source_has_fewer_rows(tmp_path: Path) -> None:
    page = shown(write(tmp_path, TEXTS[:3]), "-t", RANKS, "-n", 9, "--fit", "pad", tmp_path / "a.html")
    assert len(tokens_of(page)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", RANKS, "--seconds", "3"], "--seconds is for recordings, and --tokenizer and --kind are for "),
        (["-t", RANKS, "--recipe", "ast"], "--recipe is for recordings, and "),
        (["--fit", "pad"], "--fit is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken"),
        (["-t", RANKS, "-n", "0"], "--rows is 0, must be 1 to 200"),
        (["-t", RANKS, "--seq-len", "0"], "--seq-len is 0, must be 1 to "),
        (["-t", RANKS, "--on-long", "cut"], "--on-long needs --fit pad"),
        (
            ["-t", RANKS, "--seq-len", "9999", "-n", "200"],
            "--rows 200 of --seq-len 9999 have 1999800 tokens, must be at most 131072 together",
        ),
        (
            ["-t", RANKS, "--seq-len", "99999", "-n", "1"],
            "the pass has no batch: its 200 documents fill no row; lower --seq-len, ",
        ),
    ],
)  # fmt: skip
def test_wrong_options(arguments: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["show", str(write(tmp_path, TEXTS)), "-o", str(tmp_path / "a.html"), *map(str, arguments)])
    error = capsys.readouterr().err
    assert error.removeprefix("forebay show: error: ").removeprefix("SOURCE: ").startswith(message)
    assert error.count("\n") == 1
    assert not (tmp_path / "a.html").exists()


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.html").write_text("mine")
    with pytest.raises(SystemExit):
        cli.main(["show", str(write(tmp_path, TEXTS)), "-t", str(RANKS), "-o", str(tmp_path / "a.html")])
    assert "is there already, a file; give another name" in capsys.readouterr().err
    assert (tmp_path / "a.html").read_text() == "mine"


@pytest.mark.filterwarnings("default:bos_id is")
def test_a_bos_beside_the_vocabulary(tmp_path: Path) -> None:
    path, page = write(tmp_path, TEXTS[:20]), tmp_path / "page.html"
    own = str(Tokenizer(RANKS).n_vocab + 5)
    rows = tokens_of(shown(path, "-t", RANKS, "--bos-id", own, "--seq-len", 64, page))
    assert rows
    assert all(row[0][0] == [int(own)] and "c" in row[0][1] for row in rows)


def test_names_of_files_are_shown_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path, TEXTS[:20]).rename(tmp_path / "a\u202eb.jsonl")
    page = tmp_path / "page.html"
    cli.main(["show", str(path), "-t", str(RANKS), "--seq-len", "64", "-o", str(page)])
    text = page.read_text()
    assert "\u202e" not in text
    assert "a\\u202eb.jsonl, row" in text


def test_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both rows of a pair together, the chosen one first."""
    (tmp_path / "tokenizer").mkdir()
    tokenizer = chats.write_tokenizer(tmp_path / "tokenizer")
    asked = {"role": "user", "content": "a b c"}
    rows = [
        {name: [asked, {"role": "assistant", "content": f"{name} " * n}] for name in ("better", "worse")}
        for n in range(1, 9)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_pairs = ["--kind", "pairs", "--template", "chatml", "--chosen", "better", "--rejected", "worse"]
    arguments = [path, "-t", tokenizer, *of_pairs, "-n", "4", "--seq-len", "64", "-o", tmp_path / "a.html"]
    assert cli.main(["show", *map(str, arguments), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["shown"]
    source = Pairs(path, "better", "worse", template="chatml")
    batch = first_batch(source, tokenizer, fit="pad", seq_len=64, batch_size=4)
    assert [one["row"] for one in told] == [0, 4, 1, 5, 2, 6, 3, 7]
    trained = (batch["targets"] >= 0).sum(axis=1)
    assert [one["trained"] for one in told] == trained[[0, 4, 1, 5, 2, 6, 3, 7]].tolist()
    page = (tmp_path / "a.html").read_text()
    assert page.index("chosen, 1 document") < page.index("rejected, 1 document")
    speed = [path, "-t", tokenizer, *of_pairs, "--seq-len", "64", "--seconds", "0.1", "-w", "1", "--json", "-"]
    assert cli.main(["bench", *map(str, speed)]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["tokens_per_s"] == pytest.approx(2 * 64 * run["examples_per_s"] * (1 - run["padding"]))
    for command, given, message in (
        ("inspect", of_pairs, "--kind pairs is not for inspect: a pair has two rows of its own"),
        ("show", [*of_pairs, "--fit", "drop"], "--fit is drop, and --kind pairs needs pad"),
        ("show", [*of_pairs, "--text-column", "x"], "--text-column is not for --kind pairs; name their columns by"),
        ("show", ["--kind", "chat", "--chosen", "x"], "--chosen needs --kind pairs"),
        ("show", [*of_pairs, "--rejected", "x"], 'no field "x" in the first line, .*; name the field with --rejected$'),
    ):
        output = ["-o", tmp_path / "b.html"] if command == "show" else []
        with pytest.raises(SystemExit, match="2"):
            cli.main([command, *map(str, [path, "-t", tokenizer, *given, *output])])
        assert re.search(message, capsys.readouterr().err.strip())
