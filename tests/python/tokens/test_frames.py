"""Which ids frame a document: BOS and EOS of a tokenizer, and the log line that names them."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from documents import encode, full_rows, loader
from forebay.cache import Tokenize, build
from forebay.tokens import Tokenizer
from paths import DATA

JSON = DATA / "tokens" / "tokenizer.json"


def special(number: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True, **flags}


def template(*pieces: str) -> dict[str, Any]:
    """A post-processor of `tokenizers`; `$` is the text, `a+b` one special token of two ids."""
    parts = [
        {"Sequence": {"id": "A", "type_id": 0}} if piece == "$" else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    tokens = {
        piece: {"id": piece, "ids": [IDS[part] for part in piece.split("+")], "tokens": piece.split("+")}
        for piece in pieces
        if piece != "$"
    }
    return {"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": tokens}


IDS = {
    "<|begin_of_text|>": 1000,
    "<|end_of_text|>": 1001,
    "<s>": 1002,
    "</s>": 1003,
    "<bos>": 1004,
    "<|endoftext|>": 1005,
}
LLAMA = template("<|begin_of_text|>", "$", "<|end_of_text|>")
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


def file(folder: Path, post_processor: Any, *names: str) -> Path:
    """The committed tokenizer without its BOS, with special tokens and a post-processor."""
    parts = json.loads(JSON.read_text())
    parts["added_tokens"] = [special(IDS[name], name) for name in names]
    del parts["model"]["vocab"]["<|bos|>"]
    parts["post_processor"] = post_processor
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(parts))
    return path


@pytest.mark.parametrize(
    ("post_processor", "names", "bos"),
    [
        (LLAMA, IDS, "<|begin_of_text|>"),
        (template("<s>", "$"), IDS, "<s>"),
        ({"type": "Sequence", "processors": [BYTES, template("<bos>", "$")]}, IDS, "<bos>"),
        ({"type": "BertProcessing", "sep": ["</s>", 1003], "cls": ["<s>", 1002]}, IDS, "<s>"),
        (template("$", "</s>"), IDS, "<|endoftext|>"),  # none before the text: by name
        (template("<s>+<bos>", "$"), IDS, "<|endoftext|>"),  # two ids: no single one frames
        (template("<s>", "<bos>", "$"), IDS, "<|endoftext|>"),
        (BYTES, IDS, "<|endoftext|>"),
        (None, ["<|begin_of_text|>", "<s>", "<bos>"], "<|begin_of_text|>"),
        (None, ["<s>", "<bos>"], "<s>"),
        (None, ["<bos>", "</s>"], "<bos>"),
        ({"type": "TemplateProcessing", "single": 3}, ["<s>"], None),  # not as the library writes it
    ],
)
def test_bos(tmp_path: Path, post_processor: Any, names: list[str], bos: str | None) -> None:
    path = file(tmp_path, post_processor, *names)
    if bos is None:
        assert Tokenizer(path).bos_id == IDS["<s>"]
        return
    assert Tokenizer(path).bos_id == IDS[bos]
    assert Tokenizer(path, bos_id=7).bos_id == 7


def test_without_any_bos(tmp_path: Path) -> None:
    """Such a tokenizer opens; rows need one."""
    tokenizer = Tokenizer(file(tmp_path, template("$", "</s>"), "</s>"))
    assert tokenizer.bos_id is None
    pq.write_table(pa.table({"text": ["one two", "three"]}), tmp_path / "a.parquet")
    told = r"of 1 special tokens \(</s>\): none of <\|bos\|>, .* is among them, .*; pass bos_id="
    with pytest.raises(forebay.ConfigError, match=told):
        forebay.TokenLoader(tmp_path / "a.parquet", tokenizer=tokenizer, seq_len=8)


@pytest.mark.parametrize("crop", ["drop", "carry"])
def test_each_document_ends_with_eos(parquets: Path, crop: str) -> None:
    """The rows with EOS are those of a tokenizer that appends it."""
    with loader(parquets, eos_id=300, crop=crop) as found:
        assert found.eos_id == 300
        batches = [full_rows(next(found)) for _ in range(20)]
    with loader(parquets, tokenizer=lambda text: [*encode(text), 300], crop=crop) as expected:
        assert expected.eos_id is None
        assert [full_rows(next(expected)) for _ in range(20)] == batches
    assert sum(row.count(300) for batch in batches for row in batch) > 20


def test_eos_of_a_tokenizer(tmp_path: Path) -> None:
    path = file(tmp_path, LLAMA, *IDS)
    pq.write_table(pa.table({"text": ["one two", "three"]}), tmp_path / "a.parquet")
    tokenizer = Tokenizer(path, eos_id=1001)
    assert tokenizer.eos_id == 1001
    assert pickle.loads(pickle.dumps(tokenizer)).eos_id == 1001
    assert Tokenizer(Tokenizer(path), eos_id=1001).eos_id == 1001
    assert Tokenizer(path).eos_id is None
    ids = tokenizer.encode("three").tolist()
    assert 1001 not in ids
    with forebay.TokenLoader(tmp_path / "a.parquet", tokenizer, val=[], seq_len=4, batch_size=1) as tokens:
        assert (tokens.bos_id, tokens.eos_id) == (1000, 1001)
        state = tokens.state_dict()
    # A state of a loader without EOS is of other batches.
    with (
        forebay.TokenLoader(tmp_path / "a.parquet", path, val=[], seq_len=4, batch_size=1) as other,
        pytest.raises(forebay.StateError, match="tokenizer"),
    ):
        other.load_state_dict(state)
    build(tmp_path / "a.parquet", Tokenize(tokenizer), tmp_path / "cache")
    store = forebay.cache.CacheDataset(tmp_path / "cache")
    assert store.get_batch([1])[0]["input_ids"].tolist() == [1000, *ids, 1001]
    with pytest.raises(forebay.ConfigError, match="eos_id is -1, must be 0 to 2147483647"):
        Tokenizer(path, eos_id=-1)
    with pytest.warns(UserWarning, match="eos_id is 70000, but the ids of tokenizer are below"):
        assert Tokenizer(path, eos_id=70_000).n_vocab == 70_001


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    found = [(record.levelno, record.message) for record in caplog.records if "each document" in record.message]
    caplog.clear()
    return found


def test_a_log_line_names_the_frame(tmp_path: Path, parquets: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = file(tmp_path, LLAMA, *IDS)
    with caplog.at_level(logging.INFO, "forebay"):
        loader(parquets, tokenizer=path, bos_id=None).close()
        left_out = (
            "TokenLoader: each document begins with <|begin_of_text|> (1000) and has no EOS, although the tokenizer's "
        )
        left_out += "post-processor ends a text with <|end_of_text|> (1001): pass eos_id=1001 to add it"
        assert said(caplog) == [(logging.WARNING, left_out)]
        loader(parquets, tokenizer=path, bos_id=None, eos_id=1001).close()
        both = "TokenLoader: each document begins with <|begin_of_text|> (1000) and ends with <|end_of_text|> (1001)"
        assert said(caplog) == [(logging.INFO, both)]
        loader(parquets).close()
        assert said(caplog) == [
            (logging.INFO, "TokenLoader: each document begins with 256 and has no EOS (eos_id= adds one)")
        ]


def test_another_name_of_eos(parquets: Path) -> None:
    with pytest.raises(TypeError, match="use eos_id instead"):
        loader(parquets, eos_token_id=3)
