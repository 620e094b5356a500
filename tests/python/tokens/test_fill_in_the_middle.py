"""Fill in the middle and BPE dropout of `forebay.text.Documents`, against a plain loop over the published draws."""

import base64
import itertools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece

import forebay
import packing
from digests import digest
from documents import BOS, RANKS, SMALL, document, encode, full_rows, take
from forebay.text import Chat, Documents, Ids, Pairs
from forebay.tokens import Tokenizer
from hashes import below, hashed

CROP, INFILL = 3, 33
SENTINELS: dict[str, Any] = {"fim_prefix": 300, "fim_middle": 301, "fim_suffix": 302}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
N, GROUP = 60, 20
"""Documents, and those of a row group."""
SETTINGS = SMALL | {"val": []}

Encode = Callable[[str, int], list[int]]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fim") / "texts.parquet"
    pq.write_table(pa.table({"text": [text(number) for number in range(N)]}), path, row_group_size=GROUP)
    return path


def text(number: int) -> str:
    """A text with characters of several bytes."""
    return document(number).replace("a", "\xe4").replace("b", "\u4e2d").replace("c", "\U0001f600")


def within(bits: int, share: float) -> bool:
    return bits < int(share * 2**64)


def infilled(
    text: str,
    bits: int,
    plain: Encode,
    rate: float,
    spm: float = 0.5,
    cut: str = "characters",
    sentinels: Iterable[int] = SENTINELS.values(),
) -> list[int]:
    """The ids of a text, as docs/determinism.md says."""
    prefix, middle, suffix = sentinels
    draws = [hashed(bits, INFILL, n) for n in range(7)]
    if not within(draws[0], rate):
        return plain(text, bits)
    whole: Any = text if cut == "characters" else plain(text, bits)
    first, second = sorted(below(draw, len(whole) + 1) for draw in draws[2:4])
    parts = [whole[:first], whole[first:second], whole[second:]]
    if cut == "characters":
        parts = [plain(part, draw) for part, draw in zip(parts, draws[4:], strict=True)]
    before, between, after = parts
    if within(draws[1], spm):
        return [prefix, suffix, *after, middle, *before, *between]
    return [prefix, *before, suffix, *after, middle, *between]


def bits_of(row: int, epoch: int, seed: int = 0) -> int:
    return hashed(seed, CROP, epoch, row)


def plainly(text: str, _bits: int) -> list[int]:
    return encode(text)


def slices(epochs: Iterator[int], made: Callable[[int, int], list[int]], size: int = 16) -> Iterator[list[list[int]]]:
    """The documents of a packer that has all row groups, in the slices that refill it."""
    for epoch in epochs:
        for group in range(0, N, GROUP):
            for begin in range(group, group + GROUP, size):
                yield [[BOS, *made(row, epoch)] for row in range(begin, min(begin + size, group + GROUP))]


FORMS: list[dict[str, Any]] = [
    {"fim": 0.5},
    {"fim": 1.0, "fim_spm": 1.0},
    {"fim": 0.9, "fim_spm": 0.0, "fim_cut": "tokens"},
    {"fim": 0.25, "fim_spm": 0.7, "fim_cut": "tokens"},
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fit", ["drop", "carry"])
def test_rows_are_those_of_a_plain_loop(texts: Path, form: dict[str, Any], fit: str) -> None:
    options = {name.removeprefix("fim_"): value for name, value in form.items() if name != "fim"}

    def made(row: int, epoch: int) -> list[int]:
        return infilled(text(row), bits_of(row, epoch), plainly, form["fim"], **options)

    expected = packing.rows(slices(itertools.count(), made), 64, 20, fit)
    with forebay.TokenLoader(Documents(texts, **form, **SENTINELS), encode, fit=fit, **SETTINGS) as found:
        rows = list(itertools.chain(*take(found, 60)))
        assert found.epoch >= 2
    assert rows == list(itertools.islice(expected, len(rows)))


def test_passes_of_a_finite_loader_differ(texts: Path) -> None:
    def made(row: int, epoch: int) -> list[int]:
        return infilled(text(row), bits_of(row, epoch), plainly, 0.5)

    source = Documents(texts, fim=0.5, **SENTINELS)
    with forebay.TokenLoader(source, encode, infinite=False, fit="carry", **SETTINGS) as found:
        for epoch in range(3):
            rows = list(itertools.chain(*map(full_rows, found)))
            assert rows == list(packing.rows(slices(iter([epoch]), made), 64, 20, "carry"))


GRID: list[dict[str, Any]] = [
    {},
    {"fit": "carry", "seed": 9},
    {"fit": "pad", "on_long": "split", "seed": 2, "n_streams": 2},
    {"infinite": False, "seed": 4, "fit": "pad", "on_long": "cut"},
]


@pytest.mark.parametrize("parameters", GRID)
def test_workers_and_resume_change_nothing(texts: Path, parameters: dict[str, Any]) -> None:
    source = Documents(texts, fim=0.6, **SENTINELS)

    def loader(**more: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(source, encode, extras=["documents"], **SETTINGS | parameters | more)

    n = 34
    with loader(n_workers=1) as whole:
        states, batches = [json.loads(json.dumps(whole.state_dict()))], []
        for batch in itertools.islice(whole, n):
            batches.append(digest(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
    passes = {
        word.partition("@")[2] for state in states for word in json.dumps(state["packers"]).split() if "@" in word
    }
    assert (len(passes) > 1) == parameters.get("infinite", True)
    for at in range(len(batches) + 1):
        with loader(n_workers=(1, 2, 8)[at % 3]) as resumed:
            resumed.load_state_dict(states[at])
            assert json.loads(json.dumps(resumed.state_dict())) == states[at]
            assert [digest(batch) for batch in itertools.islice(resumed, len(batches) - at)] == batches[at:]


def test_a_document_held_over_the_end_of_an_epoch_keeps_its_draw(texts: Path) -> None:
    """Documents of two epochs are held at once, and a resume reads each as in its own."""
    source = Documents(texts, fim=1.0, **SENTINELS)
    with forebay.TokenLoader(source, encode, **SETTINGS) as whole:
        for _ in itertools.islice(whole, 60):
            held = whole.state_dict()["packers"]["0"]["held"]
            if held.count("@") > 1:
                break
        assert held.count("@") > 1
        with pickle.loads(pickle.dumps(whole)) as copy:
            assert take(copy, 12) == take(whole, 12)


@pytest.mark.parametrize("seed", [None, 5])
def test_ranks_make_the_batches_of_one_process(tmp_path: Path, seed: int | None) -> None:
    rows = pa.table({"text": [text(number) for number in range(80)]})
    pq.write_table(rows, tmp_path / "all.parquet", row_group_size=10)
    parameters = SETTINGS | {"n_streams": 4, "seed": seed, "shuffle_min_size": 0, "fit": "carry"}

    def loader(**more: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(Documents(tmp_path, fim=0.5, **SENTINELS), encode, **parameters | more)

    with loader(batch_size=8) as alone:
        expected = take(alone, 16)
        assert alone.epoch >= 1
        later = take(alone, 5)
    for world in (2, 4):
        parts, states = [], []
        for rank in range(world):
            with loader(batch_size=8 // world, rank=rank, world_size=world) as part:
                parts.append(take(part, 16))
                states.append(json.loads(json.dumps(part.state_dict())))
        assert [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)] == expected
        with loader(batch_size=8) as alone:
            alone.load_state_dict(states)
            assert take(alone, 5) == later


def test_one_source_of_a_mixture(texts: Path, tmp_path: Path) -> None:
    plain = [document(1000 + number) for number in range(40)]
    lines = "".join(f"{json.dumps({'text': one})}\n" for one in plain)
    (tmp_path / "plain.jsonl").write_text(lines)
    sources = {"plain": Documents(tmp_path / "plain.jsonl"), "code": Documents(texts, fim=0.7, **SENTINELS)}
    whole = {"fit": "pad", "on_long": "skip", "extras": ["source", "documents"]}
    parameters: Any = SETTINGS | whole | {"seq_len": 1023, "seed": 3, "weights": {"plain": 1, "code": 2}}
    seen: dict[int, set[int]] = {}
    with forebay.TokenLoader(sources, encode, **parameters) as found:
        states = [found.state_dict()]
        for batch in itertools.islice(found, 10):
            states.append(found.state_dict())
            for row, column, shard, _, number, _ in batch["documents"].tolist():
                if shard < 0:
                    continue
                inputs = [int(one) for one in batch["inputs"][row, column:]]

                def is_made(ids: list[int], inputs: list[int] = inputs) -> bool:
                    """The last token of a row is no input."""
                    return inputs[: len(ids)] == ids[: len(inputs)]

                if shard == 0:
                    assert is_made([BOS, *encode(plain[number])])
                else:
                    bits = [bits_of(40 + number, epoch, 3) for epoch in range(12)]
                    made = [[BOS, *infilled(text(number), one, plainly, 0.7)] for one in bits]
                    epochs = {epoch for epoch in range(12) if is_made(made[epoch])}
                    assert epochs
                    seen.setdefault(number, set()).update(epochs)
        expected = [digest(batch) for batch in itertools.islice(found, 4)]
    assert len(seen) == N
    with forebay.TokenLoader(sources, encode, **parameters) as resumed:
        resumed.load_state_dict(states[-1])
        assert [digest(batch) for batch in itertools.islice(resumed, 4)] == expected


def test_dropout_leaves_out_merges(texts: Path) -> None:
    special = dict(zip(("<fim_prefix>", "<fim_middle>", "<fim_suffix>"), range(50_257, 50_260), strict=True))
    tokenizer = Tokenizer(RANKS, pattern=GPT2, special_tokens={"<|endoftext|>": 50_256, **special})

    def plain(text: str, bits: int) -> list[int]:
        ids: list[int] = tokenizer.encode(text, dropout=0.2, seed=bits).tolist()
        return ids

    for fim in (0.0, 0.5):

        def made(row: int, epoch: int, fim: float = fim) -> list[int]:
            return infilled(text(row), bits_of(row, epoch), plain, fim, sentinels=special.values())

        source = Documents(texts, bpe_dropout=0.2, fim=fim)
        expected = packing.rows(slices(itertools.count(), made), 64, 20, "carry")
        with forebay.TokenLoader(source, tokenizer, fit="carry", **SETTINGS) as found:
            rows = list(itertools.chain(*take(found, 60)))
            assert found.epoch >= 1
            state = found.state_dict()
            later = take(found, 5)
        assert rows == list(itertools.islice(expected, len(rows)))
        with forebay.TokenLoader(source, tokenizer, fit="carry", **SETTINGS | {"n_workers": 8}) as resumed:
            resumed.load_state_dict(state)
            assert take(resumed, 5) == later


def rank_file(folder: Path) -> Path:
    path = folder / "bytes.tiktoken"
    path.write_text("".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)))
    return path


@pytest.mark.parametrize(
    "names",
    [
        ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
        ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
        ("<PRE>", "<MID>", "<SUF>"),
        ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581end\uff5c>", "<\uff5cfim\u2581hole\uff5c>"),
    ],
)
def test_sentinels_have_known_names(texts: Path, tmp_path: Path, names: tuple[str, str, str]) -> None:
    special = dict(zip(names, SENTINELS.values(), strict=True)) | {"<x>": 400, "<y>": 401, "<z>": 402}
    tokenizer = Tokenizer(rank_file(tmp_path), pattern=r"(?s).", special_tokens=special, bos_id=BOS)
    with forebay.TokenLoader(Documents(texts, fim=0.5, **SENTINELS), encode, **SETTINGS) as by_id:
        expected = take(by_id, 5)
    given = Documents(texts, fim=0.5, fim_prefix=names[0], fim_middle=names[1], fim_suffix=names[2])
    for source in (Documents(texts, fim=0.5), given):
        with forebay.TokenLoader(source, tokenizer, **SETTINGS) as found:
            assert take(found, 5) == expected
    other = Documents(texts, fim=0.5, fim_prefix="<x>", fim_middle="<y>", fim_suffix=402)
    with forebay.TokenLoader(other, tokenizer, **SETTINGS) as found:
        assert {400, 401, 402} <= set(itertools.chain(*itertools.chain(*take(found, 5))))


def test_states_are_of_the_same_draws(texts: Path) -> None:
    def loader(**draws: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(Documents(texts, **draws), encode, **SETTINGS)

    with (
        loader() as plain,
        loader(fim=0.5, **SENTINELS) as one,
        loader(fim=0.6, fim_cut="tokens", **SENTINELS) as other,
    ):
        take(plain, 30)
        assert "@" not in json.dumps(plain.state_dict())
        assert not [name for name in plain.state_dict()["data"] if "fim" in name]
        with pytest.raises(forebay.StateError, match=r"fim is absent in the state and 0\.5 here"):
            one.load_state_dict(plain.state_dict())
        with pytest.raises(forebay.StateError, match=r"fim is 0\.5 in the state and 0\.6 here, fim_cut is"):
            other.load_state_dict(one.state_dict())
        state = one.state_dict()
        state["batch"] = 1
        state["packers"]["0"] = {"documents_read": 3, "held": "1@-1"}
        with pytest.raises(forebay.StateError, match="not as state_dict"):
            one.load_state_dict(state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fim": 1.5}, r"fim is 1\.5, must be 0 to 1"),
        ({"fim": -0.1}, r"fim is -0\.1, must be 0 to 1"),
        ({"fim": float("nan")}, "fim is NaN, must be 0 to 1"),
        ({"fim": 0.5, "fim_spm": 2}, r"fim_spm is 2\.0, must be 0 to 1"),
        ({"fim": 0.5, "fim_cut": "words"}, 'fim_cut is "words", must be one of "characters", "tokens"'),
        ({"bpe_dropout": 1.01}, r"bpe_dropout is 1\.01, must be 0 to 1"),
        ({"fim": 0.5, "fim_prefix": 1, "fim_suffix": 2}, "fim lacks fim_middle; give all three sentinels, or none"),
        ({"fim_spm": 0.7}, "fim is 0, so no text is rearranged"),
        (SENTINELS, "fim is 0, so no text is rearranged"),
        ({"fim": 0.5} | SENTINELS | {"fim_prefix": -1}, "fim_prefix is -1, must be 0 to 2147483647"),
    ],
)
def test_wrong_values(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        Documents("texts.parquet", **fields)


def test_wrong_types_and_classes() -> None:
    with pytest.raises(TypeError, match=r"fim is 'half' .*must be a float"):
        Documents("texts.parquet", fim="half")  # type: ignore[arg-type]
    wrong: Any
    for wrong in (True, 1.5, [1]):
        with pytest.raises(TypeError, match=r"fim_prefix is .*must be the text or the id of a token, or None"):
            Documents("texts.parquet", fim=0.5, fim_prefix=wrong, fim_middle=1, fim_suffix=2)
    other: Any
    for other in (Ids, Chat, Pairs):
        for name in ("fim", "bpe_dropout"):
            with pytest.raises(TypeError, match=f"{name}"):
                other("texts.parquet", **{name: 0.5})
    with pytest.raises(TypeError, match=r"fim_rate.*fim"):
        Documents("texts.parquet", fim_rate=0.5)  # type: ignore[call-arg]


def test_wrong_tokenizers(texts: Path) -> None:
    def refused(source: Documents, tokenizer: Any, message: str, **more: Any) -> None:
        with pytest.raises(forebay.ConfigError, match=message):
            forebay.TokenLoader(source, tokenizer, **SETTINGS | more)

    gpt2 = Tokenizer(RANKS)
    refused(Documents(texts, fim=0.5), gpt2, "has no tokens <fim_prefix>, <fim_middle>, <fim_suffix> or of another")
    refused(Documents(texts, fim=0.5), encode, r"fim needs fim_prefix, .* the tokenizer is a callable")
    named: Any = {"fim_prefix": "<a>", "fim_middle": "<b>", "fim_suffix": "<c>"}
    refused(Documents(texts, fim=0.5, **named), gpt2, 'fim_prefix is "<a>", which is no token of')
    refused(Documents(texts, fim=0.5, **named), encode, 'fim_prefix is "<a>", but the tokenizer is a callable')
    beyond = SENTINELS | {"fim_suffix": 60_000}
    refused(Documents(texts, fim=0.5, **beyond), gpt2, "fim_suffix is 60000, but the ids of .* are below 50257")
    twice = SENTINELS | {"fim_suffix": 300}
    refused(Documents(texts, fim=0.5, **twice), gpt2, "must be three different tokens")
    frame = {"bos_id": 300, "eos_id": 301}
    refused(Documents(texts, fim=0.5, **SENTINELS), gpt2, "fim_prefix is the token 300, which is BOS", **frame)
    frame = {"bos_id": 50_256, "eos_id": 301}
    refused(Documents(texts, fim=0.5, **SENTINELS), gpt2, "fim_middle is the token 301, which is EOS", **frame)
    ordinary: Any = {"fim_prefix": " the", "fim_middle": 301, "fim_suffix": 302}
    refused(
        Documents(texts, fim=0.5, **ordinary),
        gpt2,
        r'fim_prefix is the token 262 \(" the"\), which .* of ordinary text',
    )
    refused(Documents(texts, bpe_dropout=0.1), encode, "bpe_dropout needs a tokenizer's file or object")
    mixture: Any = {"web": Documents(texts), "code": Documents(texts, fim=0.5)}
    refused(mixture, gpt2, r'parquet_files\["code"\]: fim is 0\.5, but')


def test_tokenizers_that_put_a_space_before_each_text(texts: Path, tmp_path: Path) -> None:
    """Only cuts between tokens keep the text; and a unigram model has no merges."""
    sentences = [document(number) for number in range(400)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(tmp_path / "unigram"),
        vocab_size=60,
        model_type="unigram",
        user_defined_symbols=["<PRE>", "<MID>", "<SUF>"],
        minloglevel=2,
    )
    model = tmp_path / "unigram.model"
    settings: Any = SETTINGS | {"bos_id": None}
    pieces = [Tokenizer(model).decode([token]) for token in range(60)]
    piece = next(token for token in range(59, 0, -1) if pieces[token].strip().isalpha())
    given = Documents(texts, fim=0.5, fim_cut="tokens", fim_prefix="<PRE>", fim_middle="<MID>", fim_suffix=piece)
    with pytest.raises(forebay.ConfigError, match=rf"fim_suffix is the token {piece} .* of ordinary text"):
        forebay.TokenLoader(given, model, **settings)
    with pytest.raises(forebay.ConfigError, match='pass fim_cut="tokens"'):
        forebay.TokenLoader(Documents(texts, fim=0.5), model, **settings)
    with pytest.raises(forebay.ConfigError, match=r"bpe_dropout is 0\.1, but .* is not defined .*out bpe_dropout="):
        forebay.TokenLoader(Documents(texts, bpe_dropout=0.1), model, **settings)
    with forebay.TokenLoader(Documents(texts, fim=0.5, fim_cut="tokens"), model, **settings) as found:
        ids = [Tokenizer(model).token_to_id(name) for name in ("<PRE>", "<MID>", "<SUF>")]
        assert set(ids) <= set(itertools.chain(*itertools.chain(*take(found, 4))))


def test_objects_come_back(texts: Path) -> None:
    source = Documents(texts, fim=0.5, fim_cut="tokens", **SENTINELS)
    assert Documents.from_dict(json.loads(json.dumps(source.to_dict() | {"path": str(texts)}))) == Documents(
        str(texts), fim=0.5, fim_cut="tokens", **SENTINELS
    )
    assert repr(source).endswith("fim=0.5, fim_cut='tokens', fim_prefix=300, fim_middle=301, fim_suffix=302)")
