"""Token ids equal those of the libraries tiktoken and tokenizers."""

import base64
import json
import os
import pickle
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from tiktoken_ext import openai_public
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, trainers

import forebay
import texts
from forebay.tokens import Tokenizer
from paths import DATA
from timing import claim, timed

TOKENS = DATA / "tokens"
GPT2 = TOKENS / "gpt2.tiktoken"
GOLDEN = json.loads((TOKENS / "tokens.json").read_text())

TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

PATTERNS = {
    "gpt2": openai_public.r50k_pat_str,
    # The other patterns are from published files, or from functions that would download ranks.
    "cl100k_base": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k_base": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    + CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    + CONTRACTION
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": HEAD + r"|\p{N}{1,3}" + TAIL,
    "qwen2": HEAD + r"|\p{N}" + TAIL,
    "nanochat": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "none known": r"\p{Lu}?\p{Ll}+|\d+|\s+|[^\p{L}\d\s]+|\p{L}",
}


def rank_file(path: Path) -> dict[bytes, int]:
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, path.read_bytes().splitlines())}


RANKS = rank_file(GPT2)


def check(ours: Tokenizer, reference: Callable[[str], list[int]], some: Iterable[str]) -> int:
    """Compares the ids of every text; returns the number of bytes."""
    n_bytes = 0
    for text in some:
        ids, expected = ours.encode(text), reference(text)
        if ids.tolist() != expected:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
            pytest.fail(f"id {at}: {ids[at - 2 : at + 4]} for {expected[max(at - 2, 0) : at + 4]}, in {text[:200]!r}")
        n_bytes += len(text.encode())
    return n_bytes


@pytest.fixture(scope="session")
def some_texts(soak: int) -> list[str]:
    """3 MB of installed text, random text and the bundled documents; more with FOREBAY_SOAK."""
    bundled = [entry["text"] for entry in GOLDEN["edge"] + GOLDEN["documents"]]
    return bundled + list(texts.generated(300 * soak)) + list(texts.installed(3_000_000 * soak))


@pytest.mark.parametrize("name", PATTERNS)
def test_tiktoken(name: str, some_texts: list[str]) -> None:
    special = {"<|endoftext|>": 50256, "<|x|>": 50300}
    reference = tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=RANKS, special_tokens=special)
    if name == "gpt2":
        ours = Tokenizer(GPT2)
        assert (ours.name, ours.n_vocab, ours.bos_id) == ("gpt2", 50257, reference.eot_token)
    else:
        ours = Tokenizer(GPT2, pattern=PATTERNS[name], special_tokens=special)
        assert ours.n_vocab == reference.n_vocab
    assert check(ours, reference.encode_ordinary, some_texts) > 2_000_000


@pytest.mark.skipif("FOREBAY_RANK_FILES" not in os.environ, reason="FOREBAY_RANK_FILES names no folder of rank files")
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_published_rank_files(name: str, some_texts: list[str]) -> None:
    path = Path(os.environ["FOREBAY_RANK_FILES"]) / f"{name}.tiktoken"
    if not path.exists():
        pytest.skip(f"no {path}")
    ours, ranks = Tokenizer(path), rank_file(path)
    assert ours.bos_id is not None
    reference = tiktoken.Encoding(
        name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={"<|endoftext|>": ours.bos_id}
    )
    check(ours, reference.encode_ordinary, some_texts)
    if name == "cl100k_base":
        assert (ours.n_vocab, ours.bos_id) == (100277, 100257)
        for edge in GOLDEN["edge"]:
            assert ours.encode(edge["text"]).tolist() == edge["cl100k"]
        for document in GOLDEN["documents"]:
            assert (
                sha256(ours.encode(document["text"]).astype("<u4").tobytes()).hexdigest()
                == document["sha256_cl100k_u32le"]
            )


def test_golden() -> None:
    ours = Tokenizer(GPT2)
    for edge in GOLDEN["edge"]:
        assert ours.encode(edge["text"]).tolist() == edge["gpt2"]
    for document in GOLDEN["documents"]:
        assert (
            sha256(ours.encode(document["text"]).astype("<u4").tobytes()).hexdigest() == document["sha256_gpt2_u32le"]
        )


def split_and_bytes(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(model: Any, trainer: Any, pre_tokenizer: Any, **parts: Any) -> tokenizers.Tokenizer:
    """A tokenizer of the library tokenizers, trained on the bundled documents."""
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizer
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator([document["text"] for document in GOLDEN["documents"]], trainer)
    return made


def byte_level(pre_tokenizer: Any, **parts: Any) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=["<|bos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return trained(
        models.BPE(ignore_merges="ignore" in parts),
        trainer,
        pre_tokenizer,
        **{k: v for k, v in parts.items() if k != "ignore"},
    )


def with_added_token() -> tokenizers.Tokenizer:
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.add_tokens([AddedToken("<think>", special=False)])
    return made


def unigram() -> tokenizers.Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["<|bos|>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    return trained(models.Unigram(), trainer, pre_tokenizers.Metaspace())


def word_piece() -> tokenizers.Tokenizer:
    trainer = trainers.WordPieceTrainer(vocab_size=800, special_tokens=["<|bos|>", "[UNK]"], show_progress=False)
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        pre_tokenizers.BertPreTokenizer(),
        normalizer=normalizers.BertNormalizer(),
    )


LIBRARY: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "committed": lambda: tokenizers.Tokenizer.from_file(str(TOKENS / "tokenizer.json")),
    "llama3": lambda: byte_level(split_and_bytes(PATTERNS["llama3"]), ignore=True),
    "qwen2": lambda: byte_level(split_and_bytes(PATTERNS["qwen2"]), normalizer=normalizers.NFC()),
    "gpt4o": lambda: byte_level(split_and_bytes(PATTERNS["o200k_base"])),
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    ),
    "added": with_added_token,
    "unigram": unigram,
    "word piece": word_piece,
}


@pytest.mark.parametrize("name", LIBRARY)
def test_tokenizers(name: str, some_texts: list[str], tmp_path: Path) -> None:
    reference = LIBRARY[name]()
    path = tmp_path / "tokenizer.json"
    reference.save(str(path))
    reference.encode_special_tokens = True
    ours = Tokenizer(path)
    assert ours.n_vocab == reference.get_vocab_size()
    assert ours.bos_id == reference.token_to_id("<|bos|>")
    check(
        ours,
        lambda text: list(reference.encode(text, add_special_tokens=False).ids),
        some_texts[: len(some_texts) // 4],
    )
    assert (
        check(ours, lambda text: list(reference.encode(text, add_special_tokens=False).ids), ["a <think> b<|bos|>"]) > 0
    )


def test_arrays() -> None:
    ours = Tokenizer(GPT2)
    ids = ours.encode("Hello world")
    assert ids.dtype == np.uint32
    assert ids.shape == (2,)
    assert ids.flags.c_contiguous
    assert ids.flags.writeable
    assert ours.encode("").shape == (0,)


def test_batch() -> None:
    ours = Tokenizer(GPT2)
    some = [document["text"] for document in GOLDEN["documents"]] * 4
    alone = [ours.encode(text).tolist() for text in some]
    for n_threads in (1, 3):
        assert [ids.tolist() for ids in ours.encode_batch(some, n_threads=n_threads)] == alone
    assert ours.encode_batch([]) == []
    assert [ids.tolist() for ids in ours.encode_batch(iter(["a"]))] == [[64]]  # type: ignore[arg-type]


@timed
def test_batch_releases_the_gil() -> None:
    ours = Tokenizer(GPT2)
    some = [GOLDEN["documents"][0]["text"]] * 5000
    done = threading.Event()
    turns = 0

    def encode() -> None:
        ours.encode_batch(some)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    claim(turns > 10, turns)


def test_surrogates_are_refused() -> None:
    ours = Tokenizer(GPT2)
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        ours.encode("a\ud800b")
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        ours.encode_batch(["fine", "\udfff"])


def test_special_tokens_are_text() -> None:
    ours = Tokenizer(GPT2)
    assert ours.bos_id not in ours.encode("<|endoftext|>")


def test_pickle() -> None:
    ours = Tokenizer(GPT2, pattern=r"\S+|\s+", special_tokens={"<|bos|>": 60000})
    other = pickle.loads(pickle.dumps(ours))
    assert other.encode("It's  fine").tolist() == ours.encode("It's  fine").tolist()
    assert repr(other) == repr(ours) == 'Tokenizer("gpt2", n_vocab=60001, bos_id=60000)'


def test_a_text_without_a_boundary_and_without_memory() -> None:
    """A failed allocation raises and does not abort the process; the next text is encoded."""
    script = """
        import resource, sys
        from pathlib import Path
        from forebay.tokens import Tokenizer
        ours, text = Tokenizer(sys.argv[1]), "a" * (32 << 20)
        expected = ours.encode("It's fine").tolist()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (16 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for _ in range(2):
            try:
                ours.encode(text)
            except MemoryError as error:
                print("MiB of memory" in str(error))
        print(ours.encode("It's fine").tolist() == expected)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(GPT2)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n" * 3), done.stderr


@pytest.mark.parametrize("alphabet", ["a", "ab", "abcdefghijklmnopqrstuvwxyz", "ABab01+/", " ", "=", "字符", "\n"])
def test_a_long_piece_has_the_ids_of_the_libraries(alphabet: str) -> None:
    """Pieces of several windows, which the libraries merge as a whole."""
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=RANKS, special_tokens={})
    library = tokenizers.Tokenizer.from_file(str(TOKENS / "tokenizer.json"))
    text = "".join(random.Random(alphabet).choices(alphabet, k=60_000))
    assert Tokenizer(GPT2).encode(text).tolist() == encoding.encode_ordinary(text)
    ids = library.encode(text, add_special_tokens=False).ids
    assert Tokenizer(TOKENS / "tokenizer.json").encode(text).tolist() == ids


def test_wrong_arguments(tmp_path: Path) -> None:
    ours = Tokenizer(GPT2)
    with pytest.raises(TypeError, match="must be a sequence"):
        ours.encode_batch("text")
    with pytest.raises(TypeError):
        ours.encode(b"text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ours.encode_batch([b"text"])  # type: ignore[list-item]
    with pytest.raises(forebay.ConfigError, match="n_threads is 0, must be 1 to 1024"):
        ours.encode_batch([], n_threads=0)
    with pytest.raises(FileNotFoundError):
        Tokenizer(tmp_path / "gpt2.tiktoken")
    other = tmp_path / "mine.tiktoken"
    other.write_bytes(GPT2.read_bytes())
    with pytest.raises(forebay.ConfigError, match="pass pattern= and special_tokens="):
        Tokenizer(other)
    assert Tokenizer(other, pattern=r"\S+|\s+").bos_id is None
    with pytest.raises(forebay.ConfigError, match="pass bos_id="):
        forebay.TokenLoader(tmp_path, other, pattern=r"\S+|\s+")
    with pytest.raises(forebay.ConfigError, match="bos_id is -1, must be 0 to 2147483647"):
        Tokenizer(GPT2, bos_id=-1)
    with pytest.raises(forebay.ConfigError, match="a rank of the file"):
        Tokenizer(GPT2, special_tokens={"<|bos|>": 5})
    with pytest.raises(forebay.ConfigError, match=r"neither a tokenizer\.json"):
        Tokenizer(__file__)
