"""SentencePiece models: ids and texts of the library `sentencepiece`, of models that it trains here.

5000 lines are compared for each model, 100 000 with `FOREBAY_SOAK=20`.
"""

import io
import json
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece

import forebay
import texts
from forebay import cache, cli
from forebay.tokens import Tokenizer
from paths import DATA

GOLDEN = json.loads((DATA / "tokens" / "tokens.json").read_text())

SYMBOLS = ["<sep>", "ing", "a b", "\u2581the", "\u0301", "\u6f22\u5b57", " "]

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram, bytes": {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": SYMBOLS},
    "unigram, identity": {
        "model_type": "unigram",
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        "split_by_whitespace": False,
    },
    "unigram, folded": {
        "model_type": "unigram",
        "normalization_rule_name": "nfkc_cf",
        "treat_whitespace_as_suffix": True,
        "byte_fallback": True,
        "control_symbols": ["<ctl>"],
    },
    "bpe": {"model_type": "bpe"},
    "bpe, bytes": {"model_type": "bpe", "byte_fallback": True, "pad_id": 3, "user_defined_symbols": SYMBOLS},
    "bpe, identity": {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
    },
    "bpe, folded": {
        "model_type": "bpe",
        "normalization_rule_name": "nmt_nfkc_cf",
        "split_by_whitespace": False,
        "user_defined_symbols": SYMBOLS,
        "bos_id": -1,
        "eos_id": -1,
    },
    "bpe, suffix": {
        "model_type": "bpe",
        "normalization_rule_name": "nfkc",
        "treat_whitespace_as_suffix": True,
        "remove_extra_whitespaces": False,
    },
    "characters": {"model_type": "char", "user_defined_symbols": SYMBOLS},
    "words": {"model_type": "word"},
}


@pytest.fixture(scope="session")
def lines(soak: int) -> list[str]:
    """5000 lines, or more with FOREBAY_SOAK: installed text, documents, and random text of 43 blocks of characters."""
    n = 5000 * soak
    edge = [entry["text"] for entry in GOLDEN["edge"]]
    books = [line for entry in GOLDEN["documents"] for line in entry["text"].splitlines()]
    generated = [line for text in texts.generated(n // 2, seed=1) for line in (text, *text.split("\n")[:1])]
    installed: list[str] = []
    for text in texts.installed(200 * n):
        installed += text.splitlines()
    random.Random(0).shuffle(installed)
    rest = n - len(edge) - len(books) - len(generated[: n // 2])
    found = edge + books + generated[: n // 2] + installed[: max(rest, 0)]
    assert len(found) >= n
    return found


@pytest.fixture(scope="session")
def train() -> Callable[[str], bytes]:
    """A model of `MODELS`, trained once on books and on random text, so that its pieces are of many scripts."""
    books = [line for entry in GOLDEN["documents"] for line in entry["text"].splitlines()]
    some = books * 8 + [line for text in texts.generated(200, seed=2) for line in text.split("\n")]
    made: dict[str, bytes] = {}

    def of(name: str) -> bytes:
        if name not in made:
            model = io.BytesIO()
            options = {"vocab_size": 4000, "character_coverage": 0.98, "hard_vocab_limit": False} | MODELS[name]
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(some), model_writer=model, num_threads=1, minloglevel=2, **options
            )
            made[name] = model.getvalue()
        return made[name]

    return of


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_texts(name: str, train: Callable[[str], bytes], lines: list[str], tmp_path: Path) -> None:
    model = train(name)
    path = tmp_path / "any.model"
    path.write_bytes(model)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Tokenizer(path)
    assert ours.n_vocab == reference.vocab_size()
    special = [reference.unk_id(), reference.bos_id(), reference.eos_id(), reference.pad_id()]
    found = [ours.unk_id, ours.bos_id, ours.token_to_id("</s>"), ours.pad_id]
    assert [-1 if one is None else one for one in found] == special
    for line, ids in zip(lines, ours.encode_batch(lines, n_threads=2), strict=True):
        expected = reference.encode(line)
        if ids.tolist() != expected:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
            near = [reference.id_to_piece(some[max(at - 3, 0) : at + 5]) for some in (ids.tolist(), expected)]
            pytest.fail(f"id {at} of {line[:200]!r}: {near[0]} for {near[1]}")
    for line in lines[:: max(len(lines) // 2000, 1)]:
        expected = reference.encode(line)
        assert ours.decode(expected) == reference.decode(expected), line
    random_ = random.Random(name)
    for _ in range(200):
        drawn = [random_.randrange(ours.n_vocab) for _ in range(random_.randrange(1, 20))]
        assert ours.decode(drawn) == reference.decode(drawn), drawn


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], Tokenizer]:
    def of(model: bytes) -> Tokenizer:
        path = tmp_path / "some.model"
        path.write_bytes(model)
        return Tokenizer(path)

    return of


def test_every_character(train: Callable[[str], bytes], opened: Callable[[bytes], Tokenizer]) -> None:
    """Code points with neighbours, and each after a letter: the rules of the largest normaliser."""
    model = train("unigram, folded")
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = opened(model)
    points = [*range(0xD800), *range(0xE000, 0x20000), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200), 0x10FFFF]
    for begin in range(0, len(points), 128):
        some = [chr(point) for point in points[begin : begin + 128]]
        for text in ("".join(some), "e" + "e".join(some), " ".join(some)):
            assert ours.encode(text).tolist() == reference.encode(text), hex(begin)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def written(model_type: int, pieces: list[tuple[str, float, int]]) -> bytes:
    """A model of pieces, their scores and types, that leaves spaces as they are."""
    each = (
        message(1, message(1, text.encode()) + b"\x15" + np.float32(score).tobytes() + varint(3 << 3) + varint(kind))
        for text, score, kind in [("<unk>", 0.0, 2), *pieces]
    )
    return b"".join(each) + message(2, varint(3 << 3) + varint(model_type)) + message(3, b"\x18\0\x20\0")


@pytest.mark.parametrize("model_type", [1, 2])
def test_scores_that_are_nearly_equal(model_type: int, soak: int, opened: Callable[[bytes], Tokenizer]) -> None:
    """Sums that differ by rounding only, equal scores of merges, and user-defined pieces of any length."""
    random_ = random.Random(model_type)
    for number in range(60 * soak):
        letters = "abc" if number % 3 else "a\u00e9\u5b57"
        found = {"".join(random_.choices(letters, k=random_.randint(1, 5))) for _ in range(random_.randint(4, 14))}
        pieces = [
            (text, 0.0, 4)
            if random_.random() < 0.15
            else (text, len(text) * random_.choice([-0.1, -0.3, -0.7, -1.1]), 1)
            for text in sorted(found)
        ]
        model = written(model_type, [*pieces, (letters[0] * 40, -99.0, 4)])
        reference = sentencepiece.SentencePieceProcessor(model_proto=model)
        ours = opened(model)
        for _ in range(20):
            text = "".join(random_.choices(letters + "z", weights=[9, 9, 9, 1], k=random_.randint(1, 60)))
            text = random_.choice(["", letters[0] * 41]) + text
            assert ours.encode(text).tolist() == reference.encode(text), (pieces, text)


def test_dropout_is_that_of_the_library(train: Callable[[str], bytes], opened: Callable[[bytes], Tokenizer]) -> None:
    """There are as many ids on average: within 1 %, five standard deviations. They depend on the seed alone."""
    ours = opened(train("bpe, bytes"))
    reference = sentencepiece.SentencePieceProcessor(model_proto=train("bpe, bytes"))
    sentencepiece.set_random_generator_seed(1)
    books = [line for entry in GOLDEN["documents"] for line in entry["text"].splitlines()][:200]
    for p in (0.1, 0.5):
        expected = sum(
            len(reference.encode(line, enable_sampling=True, alpha=p, nbest_size=-1))
            for line in books
            for _ in range(5)
        )
        n = sum(len(ours.encode(line, dropout=p, seed=seed)) for seed, line in enumerate(books * 5))
        assert abs(n / expected - 1) < 0.01, (p, n, expected)
    line = books[0]
    assert ours.encode(line, dropout=0.1, seed=3).tolist() == ours.encode(line, dropout=0.1, seed=3).tolist()
    assert ours.encode(line, dropout=0.1, seed=3).tolist() != ours.encode(line, dropout=0.1, seed=4).tolist()
    assert ours.encode(line, dropout=0.0, seed=3).tolist() == ours.encode(line).tolist()
    assert ours.decode(ours.encode(line, dropout=0.7, seed=2**64 - 1)) == ours.decode(ours.encode(line))
    with pytest.raises(forebay.ConfigError, match=r"dropout is 1\.5, must be 0 to 1"):
        ours.encode(line, dropout=1.5)
    with pytest.raises(forebay.ConfigError, match="its SentencePiece model does not merge"):
        opened(train("unigram")).encode(line, dropout=0.1)
    with pytest.raises(forebay.ConfigError, match="seed is -1, must be 0 to"):
        ours.encode(line, seed=-1)
    with pytest.raises(TypeError, match=r"dropout is .0\.1."):
        ours.encode(line, dropout="0.1")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["unigram, bytes", "bpe"])
def test_threads_share_a_tokenizer(
    name: str, train: Callable[[str], bytes], opened: Callable[[bytes], Tokenizer]
) -> None:
    ours = opened(train(name))
    books = [line for entry in GOLDEN["documents"] for line in entry["text"].splitlines()] * 3
    alone = [ours.encode(line).tolist() for line in books]
    found: list[list[list[int]]] = []

    def encode() -> None:
        found.append([ours.encode(line).tolist() for line in books])

    threads = [threading.Thread(target=encode) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 3
    assert [ids.tolist() for ids in ours.encode_batch(books, n_threads=3)] == alone


def test_everywhere_a_tokenizer_is_named(
    train: Callable[[str], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`TokenLoader`, `cache.build` and `forebay build` take a model, and frame documents with its BOS."""
    path = tmp_path / "bpe.model"
    path.write_bytes(train("bpe"))
    ours = Tokenizer(path)
    assert (ours.bos_id, ours.eos_id, ours.name) == (1, None, "bpe")
    assert repr(ours) == f'Tokenizer("bpe", n_vocab={ours.n_vocab}, bos_id=1)'
    other = pickle.loads(pickle.dumps(ours))
    assert other.encode("Hello world").tolist() == ours.encode("Hello world").tolist()
    books = [entry["text"] for entry in GOLDEN["documents"]]
    shards = tmp_path / "shards"
    shards.mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"text": books}), shards / f"{name}.parquet")
    documents = [[1, *ours.encode(text).tolist(), 2] for text in books]
    with forebay.TokenLoader(
        shards, path, batch_size=2, seq_len=127, eos_id=2, crop="carry", buffer_size=4, infinite=False
    ) as loader:
        assert (loader.bos_id, loader.eos_id) == (1, 2)
        rows = np.concatenate([np.c_[batch["inputs"], batch["targets"][:, -1:]] for batch in loader])
    starts = {tuple(ids[:20]) for ids in documents}
    begun = [tuple(row[:20].tolist()) for row in rows]
    assert all(row[0] == 1 for row in begun)
    assert starts & set(begun)
    cli.main(
        ["build", str(shards / "a.parquet"), "--tokenizer", str(path), "--eos-id", "2", "-o", str(tmp_path / "cache")]
    )
    capsys.readouterr()
    store = cache.TreeStore(tmp_path / "cache", "train")
    assert [store[row]["input_ids"].tolist() for row in range(len(store))] == documents


def test_a_model_without_bos(train: Callable[[str], bytes], tmp_path: Path) -> None:
    """It encodes, as models for recognition do; documents need `bos_id=`."""
    path = tmp_path / "bpe.model"
    path.write_bytes(train("bpe, folded"))
    ours = Tokenizer(path)
    assert ours.bos_id is None
    assert repr(ours) == f'Tokenizer("bpe", n_vocab={ours.n_vocab}, bos_id=None)'
    pq.write_table(pa.table({"text": ["a document"] * 9}), tmp_path / "a.parquet")
    with pytest.raises(forebay.ConfigError, match="the SentencePiece model has no BOS piece; pass bos_id="):
        forebay.TokenLoader(tmp_path / "a.parquet", ours, split="val")
    with pytest.raises(forebay.ConfigError, match="pass bos_id="):
        cache.build(tmp_path / "a.parquet", ours, tmp_path / "cache")
    with forebay.TokenLoader(tmp_path / "a.parquet", ours, split="val", bos_id=0, batch_size=1, seq_len=8) as loader:
        assert loader.bos_id == 0


def test_wrong_files(train: Callable[[str], bytes], tmp_path: Path) -> None:
    path = tmp_path / "any.model"
    model = train("bpe")
    path.write_bytes(model[: len(model) // 2])
    with pytest.raises(
        forebay.ConfigError, match=r"any\.model: the field at byte \d+ of the SentencePiece model has \d+ bytes"
    ):
        Tokenizer(path)
    path.write_bytes(model)
    with pytest.raises(forebay.ConfigError, match="a SentencePiece model contains its rules and special tokens"):
        Tokenizer(path, pattern=".")
    path.write_bytes(written(7, [("a", 0.0, 1)]))
    with pytest.raises(forebay.ConfigError, match="has model_type 7, expected 1"):
        Tokenizer(path)
    path.write_bytes(model)
    ours = Tokenizer(path)
    for beyond in (ours.n_vocab, ours.n_vocab + 1, 10**6, 2**31 - 1):
        with pytest.raises(forebay.ConfigError, match=rf"ids\[1\] is {beyond}, which is no token"):
            ours.decode([0, beyond])
