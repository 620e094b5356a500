"""`decode`, and the objects that stand for a tokenizer."""

import base64
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiktoken
import tokenizers
from tiktoken_ext.openai_public import r50k_pat_str

import forebay
from forebay.cache import Tokenize, build
from forebay.tokens import Tokenizer
from paths import DATA

GPT2 = DATA / "tokens" / "gpt2.tiktoken"
JSON = DATA / "tokens" / "tokenizer.json"
SAMPLES = ["", "plain text", "naïve café", "日本語 テスト", "👩‍👩‍👧 and more", "x" * 300, "\n\n\t  tabs"]


def test_decode_equals_the_libraries() -> None:
    lines = map(bytes.split, GPT2.read_bytes().splitlines())
    ranks_of = {base64.b64decode(token): int(rank) for token, rank in lines}
    of_tiktoken = tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks_of, special_tokens={"<|endoftext|>": 50256}
    )
    of_hub = tokenizers.Tokenizer.from_file(str(JSON))
    ranks, hub = Tokenizer(GPT2), Tokenizer(JSON)
    rng = np.random.default_rng(0)
    for text in SAMPLES:
        assert ranks.decode(ranks.encode(text)) == text
    for _ in range(200):  # characters that are cut, in any place
        ids = rng.integers(0, 50257, rng.integers(0, 30))
        assert ranks.decode(ids) == of_tiktoken.decode(ids.tolist())
        ids = rng.integers(0, hub.n_vocab, 20).tolist()
        assert hub.decode(ids) == of_hub.decode(ids, skip_special_tokens=False)
    assert ranks.decode([]) == ""
    assert ranks.bos_id == 50256
    assert ranks.decode((ranks.bos_id,)) == "<|endoftext|>"


def test_ids_that_are_no_tokens() -> None:
    tokenizer = Tokenizer(GPT2)
    with pytest.raises(forebay.ConfigError, match=r"ids\[1\] is 50257, which is no token; the ids .* are below 50257"):
        tokenizer.decode([1, 50257])
    words = tokenizers.models.WordPiece({"[UNK]": 0, "it": 1, "<|bos|>": 2}, unk_token="[UNK]")
    general = Tokenizer(tokenizers.Tokenizer(words))
    assert general.decode([1]) == "it"
    with pytest.raises(forebay.ConfigError, match=r"ids\[1\] is 3, which is no token; the ids are below 3"):
        general.decode([1, 3])
    with pytest.raises(forebay.ConfigError, match=r"ids\[0\] is -1, must be 0 to"):
        tokenizer.decode([-1])
    with pytest.raises(TypeError, match=r"ids\[0\] is 'a' .*must be an int"):
        tokenizer.decode("abc")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"ids is 3 .*must be a sequence or one-dimensional array of ints"):
        tokenizer.decode(3)  # type: ignore[arg-type]


def test_everything_that_stands_for_a_tokenizer(tmp_path: Path) -> None:
    """A file, its folder, and objects give the same ids, states and caches, and are pickled."""
    shutil.copy(JSON, tmp_path / "tokenizer.json")
    pq.write_table(pa.table({"text": list(SAMPLES) * 40}), tmp_path / "a.parquet")

    class Fast:
        """As a fast tokenizer of transformers, which is callable."""

        backend_tokenizer = tokenizers.Tokenizer.from_file(str(JSON))

        def __call__(self, _: str) -> Any:
            raise AssertionError

    given: list[Any] = [
        JSON,
        tmp_path,
        Tokenizer(JSON),
        Fast.backend_tokenizer,
        Fast(),
        Tokenizer(Fast.backend_tokenizer),
    ]
    expected = Tokenizer(JSON).encode("naïve café").tolist()
    batches, states = [], []
    for one in given:
        tokenizer = Tokenizer(one)
        assert tokenizer.encode("naïve café").tolist() == expected
        assert not isinstance(one, Fast) or tokenizer.bos_id == Tokenizer(JSON).bos_id
        if not isinstance(one, Fast):
            assert pickle.loads(pickle.dumps(tokenizer)).encode("naïve café").tolist() == expected
        with forebay.TokenLoader(
            tmp_path / "a.parquet",
            one,
            seq_len=16,
            batch_size=2,
            buffer_size=4,
            val=[],
        ) as loader:
            batches.append(next(iter(loader))["inputs"].tolist())
            states.append(loader.state_dict())
    assert all(batch == batches[0] for batch in batches)
    assert all(state == states[0] for state in states)
    for number, one in enumerate(given[1:4]):
        store = build(tmp_path / "a.parquet", Tokenize(Tokenizer(one)), tmp_path / str(number), on_error="skip")
        assert len(store) == 40 * len(SAMPLES)
    other = Tokenizer(Tokenizer(JSON), bos_id=7)
    assert (other.bos_id, Tokenizer(other).bos_id) == (7, 7)
    wrong: Any
    for wrong in (None, 3, object()):
        with pytest.raises(TypeError, match=r"path is .*must be a file or folder with a tokenizer.json"):
            Tokenizer(wrong)


def test_a_bos_beyond_the_vocabulary_warns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["some text"] * 100}), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="60000, but the ids of gpt2 are below 50257; an embedding needs 60001"):
        Tokenizer(GPT2, bos_id=60000)
    with pytest.warns(UserWarning, match="bos_id is 60000"):
        forebay.TokenLoader(tmp_path / "a.parquet", GPT2, bos_id=60000, val=[]).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tokenizer(GPT2, bos_id=50256)


def test_empty_texts(tmp_path: Path) -> None:
    """A loader leaves them out and lists them; a cache keeps them, so that documents have the numbers of rows."""
    pq.write_table(pa.table({"text": ["one", "", "three"] * 30}), tmp_path / "a.parquet")
    with forebay.TokenLoader(
        tmp_path / "a.parquet", GPT2, seq_len=4, batch_size=2, buffer_size=2, val=[], infinite=False
    ) as loader:
        for _ in loader:
            pass
        assert [error["row"] for error in loader.errors()] == list(range(1, 90, 3))
        assert {error["kind"] for error in loader.errors()} == {"empty"}
    store = build(tmp_path / "a.parquet", Tokenizer(GPT2), tmp_path / "cache")
    assert (len(store), store.n_errors) == (90, 0)
    assert store[1]["input_ids"].tolist() == [50256]


def test_texts_in_place_of_paths(tmp_path: Path) -> None:
    text = "It was the best of times, it was the worst of times, " * 400
    with pytest.raises(
        TypeError, match=r"parquet_files\[0\] is 'It was the best .*must be a path; for texts"
    ) as raised:
        forebay.TokenLoader([text, text], GPT2)
    assert len(str(raised.value)) < 400
    (tmp_path / "x.csv").write_text("text\na\n")
    with pytest.raises(forebay.ConfigError, match=r"x\.csv is not Parquet, Arrow, JSON lines or text"):
        forebay.TokenLoader(tmp_path / "x.csv", GPT2, val=[])
