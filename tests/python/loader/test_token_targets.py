"""`targets.Tokens` and `targets.Characters`: the ids of each row's text, padded in a batch."""

import json
import logging
import pickle
import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import sentencepiece
import tokenizers

import forebay
from fields import assert_described
from forebay import AudioDataset, ConfigError, StateError, augment, crops, sampling
from forebay.batching import Buckets
from forebay.targets import Characters, Tokens
from forebay.tokens import Tokenizer
from paths import DATA
from utterances import whisper_tokenizer, write_utterances

TEXTS = [
    "the cat sat",
    "a",
    "",
    "many words are here, and more words follow them",
    "Ünïcødé 漢字 🦉",
    "<|endoftext|> is ordinary",
    "hello  world",
    "numbers 1234 5678",
]
SECONDS = [0.5, 0.2, 0.3, 0.9, 0.4, 0.6, 0.25, 0.8]
GIVEN: dict[str, Any] = {
    "infinite": False,
    "shuffle_min_size": 0,
    "batch_size": 3,
    "n_workers": 2,
    "augment": False,
    "order": "sequential",
    "clip_seconds": 1.0,
}
JSON = DATA / "tokens" / "tokenizer.json"
MODELS = {name: DATA / "tokens" / f"{name}.model" for name in ("unigram", "bpe", "suffix")}
LETTERS = " abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lower = [" ".join("".join(c for c in text.lower() if c in LETTERS).split()) for text in TEXTS]
    columns = {"text": TEXTS, "lower": lower}
    return write_utterances(tmp_path_factory.mktemp("said"), SECONDS, columns=columns)


def passed(table: Any, target: Any, **given: Any) -> list[dict[str, Any]]:
    targets = target if isinstance(target, dict) else {"tokens": target}
    return list(forebay.Loader(table, **{**GIVEN, "targets": targets, **given}))


def rows_of(
    batches: list[dict[str, Any]], pad: int = 0, side: str = "right", name: str = "tokens"
) -> dict[int, list[int]]:
    """The ids of each row, after a check of what fills them up."""
    found = {}
    for batch in batches:
        ids, lengths = batch[name], batch[f"{name}_length"]
        assert (ids.dtype, lengths.dtype) == (np.int64, np.int64)
        assert ids.flags.c_contiguous
        for row, one, n in zip(batch["index"].tolist(), ids, lengths.tolist(), strict=True):
            own, rest = (one[:n], one[n:]) if side == "right" else (one[len(one) - n :], one[: len(one) - n])
            assert (rest == pad).all()
            found[row] = own.tolist()
    return found


def expected(path: Path, text: str) -> list[int]:
    if path.suffix == ".model":
        ids = sentencepiece.SentencePieceProcessor(model_file=str(path)).encode(text)
        return [int(one) for one in ids]
    if path.suffix == ".json":
        library = tokenizers.Tokenizer.from_file(str(path))
        library.encode_special_tokens = True
        return list(library.encode(text, add_special_tokens=False).ids)
    return [int(one) for one in Tokenizer(path).encode(text)]


@pytest.mark.parametrize(
    "path", [JSON, DATA / "tokens" / "gpt2.tiktoken", *MODELS.values()], ids=lambda path: path.name
)
def test_ids_are_those_of_the_library(table: Path, path: Path) -> None:
    batches = passed(table, Tokens("text", path))
    assert rows_of(batches) == {row: expected(path, text) for row, text in enumerate(TEXTS)}
    for batch in batches:
        assert batch["tokens"].shape[1] == batch["tokens_length"].max()


def test_what_fills_rows_and_where(table: Path) -> None:
    usual = rows_of(passed(table, Tokens("text", JSON)))
    sides: list[tuple[int, Literal["right", "left"]]] = [(-100, "right"), (7, "left"), (0, "left")]
    for pad, side in sides:
        batches = passed(table, Tokens("text", JSON, pad=pad, side=side))
        assert rows_of(batches, pad, side) == usual


def test_fields_are_described(table: Path) -> None:
    loader = forebay.Loader(table, **GIVEN, targets={"said": Tokens("text", JSON, max_tokens=50)})
    batch = next(loader)
    names = [field["name"] for field in loader.fields]
    assert names == list(batch) == ["spectrogram", "said", "said_length", "index"]
    said: dict[str, Any] = dict(loader.fields[1])
    assert (said["dtype"], said["shape"], said["meaning"]) == ("int64", (None,), 'Tokens of column "text"')
    assert loader.fields[2]["meaning"] == "number of said of the row"
    assert_described(forebay.Loader(table, **GIVEN), next(forebay.Loader(table, **GIVEN)))
    assert "Tokens" in str(loader.recipe)


def test_special_tokens_are_around_the_text(table: Path) -> None:
    usual = rows_of(passed(table, Tokens("text", JSON)))
    end = Tokenizer(JSON).token_to_id("<|endoftext|>")
    around = rows_of(passed(table, Tokens("text", JSON, prefix=[5, "<|endoftext|>"], suffix=("<|endoftext|>",))))
    assert around == {row: [5, end, *ids, end] for row, ids in usual.items()}
    cut = Tokens("text", JSON, prefix=[5], suffix=[6], max_tokens=4, on_long="cut")
    assert rows_of(passed(table, cut)) == {row: [5, *ids[:2], 6] for row, ids in usual.items()}


def test_rows_with_too_many_tokens_are_left_out(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    usual = rows_of(passed(table, Tokens("text", JSON)))
    limit = sorted(map(len, usual.values()))[5]
    kept = {row: ids for row, ids in usual.items() if len(ids) <= limit}
    with caplog.at_level(logging.WARNING, "forebay"):
        loader = forebay.Loader(table, **GIVEN, targets={"tokens": Tokens("text", JSON, max_tokens=limit)})
        assert rows_of(list(loader)) == kept
    assert loader.left_out["too_many_tokens"] == sum(loader.left_out.values()) == len(TEXTS) - len(kept)
    assert f"{len(TEXTS) - len(kept)} rows left out" in caplog.text
    # With the limits of lengths, and rows that are chosen.
    both = {"tokens": Tokens("text", JSON, max_tokens=limit)}
    given = {key: value for key, value in GIVEN.items() if key != "clip_seconds"}
    loader = forebay.Loader(table, **given, targets=both, crop=crops.Whole(max_seconds=0.55))
    assert set(rows_of(list(loader))) == {row for row in kept if SECONDS[row] <= 0.55}
    few = sampling.Subset(rows=[0, 3])
    with pytest.raises(ConfigError, match="no row is left: the text of each has more than max_tokens=1"):
        forebay.Loader(table, **GIVEN, targets={"t": Tokens("text", JSON, prefix=[1], max_tokens=1)}, sampling=few)


def test_rows_with_too_many_tokens_for_their_seconds_are_left_out(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {key: value for key, value in GIVEN.items() if key not in ("clip_seconds", "augment", "batch_size")}
    usual = {row: len(ids) for row, ids in rows_of(passed(table, Tokens("text", JSON))).items()}

    def opened(target: Any, most: float = 30.0, **changed: Any) -> forebay.Loader:
        crop = crops.Whole(max_seconds=most)
        return forebay.Loader(table, **{**given, "crop": crop, "targets": {"tokens": target}, **changed})

    fastest = 1.25
    steps = [augment.Speed((0.8, fastest))]
    scenes: list[tuple[Tokens, dict[int, int], float, dict[str, Any]]] = [
        (Tokens("text", JSON, max_per_second=20), usual, 1.0, {"augment": False}),
        (Tokens("text", JSON, max_per_second=20), usual, fastest, {"augment": steps}),
        (
            Tokens("text", JSON, max_per_second=6, max_tokens=4, on_long="cut"),
            {row: min(n, 4) for row, n in usual.items()},
            1.0,
            {"augment": False, "batching": Buckets(4.0, num_buckets=2, max_tokens=50)},
        ),
    ]
    for target, n, factor, changed in scenes:
        limit = target.max_per_second or 0
        kept = {row for row in n if n[row] * factor <= limit * SECONDS[row]}
        assert 0 < len(kept) < len(TEXTS), "the limit is for some"
        caplog.clear()
        with caplog.at_level(logging.WARNING, "forebay"):
            loader = opened(target, **changed)
        assert set(rows_of(list(loader))) == kept
        assert loader.left_out["too_many_per_second"] == len(TEXTS) - len(kept) == sum(loader.left_out.values())
        assert "whose text has more than max_per_second tokens" in caplog.text
    # What is cut is shorter, and has the same text.
    cutting = crops.Whole(max_seconds=0.3, on_long="cut")
    loader = opened(Tokens("text", JSON, max_per_second=20), crop=cutting, augment=False)
    kept = {row for row, n in usual.items() if n <= 20 * min(SECONDS[row], 0.3)}
    assert set(rows_of(list(loader))) == kept
    assert len(kept) < sum(n <= 20 * SECONDS[row] for row, n in usual.items())
    # With the other limits, each row counts once.
    loader = opened(Tokens("text", JSON, max_per_second=20, max_tokens=9), 0.55, augment=False)
    left = [row for row in range(len(TEXTS)) if usual[row] <= 9 and SECONDS[row] <= 0.55]
    kept = {row for row in left if usual[row] <= 20 * SECONDS[row]}
    assert set(rows_of(list(loader))) == kept
    assert loader.left_out["too_many_per_second"] == len(left) - len(kept)

    for wrong in (0, -1.0, "3"):
        with pytest.raises((ConfigError, TypeError), match="max_per_second"):
            Tokens("text", JSON, max_per_second=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no row is left: the text of each has more than max_per_second=0\.1"):
        opened(Tokens("text", JSON, prefix=[1], max_per_second=0.1))
    with pytest.raises(ConfigError, match="clips have one length; give crop=Whole"):
        passed(table, Tokens("text", JSON, max_per_second=25))
    with pytest.raises(ConfigError, match="dropout changes the number of tokens"):
        opened(Tokens("text", JSON, max_per_second=25, dropout=0.1))


def test_a_row_beyond_the_usual_limit_is_bad(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [0.2] * 3, columns={"text": ["a b", "a b " * 2000, "a b " * 2040]})
    loader = forebay.Loader(table, **GIVEN, targets={"t": Characters("text", "ab ")})
    assert [len(batch["index"]) for batch in loader] == [1]
    assert [(bad["row"], bad["kind"]) for bad in loader.errors()] == [(1, "too_large"), (2, "too_large")]
    assert "has 8000 tokens, max_tokens allows 4096; give max_tokens=" in loader.errors()[0]["reason"]
    loader = forebay.Loader(table, **GIVEN, targets={"t": Characters("text", "ab ", max_tokens=8000)})
    assert next(loader)["t"].shape == (2, 8000)
    assert loader.left_out["too_many_tokens"] == 1


def test_characters(table: Path) -> None:
    lower = [json.loads(line)["lower"] for line in table.read_text().splitlines()]
    number = {letter: at for at, letter in enumerate(LETTERS)}
    plain = {row: [number[c] for c in text] for row, text in enumerate(lower)}
    assert rows_of(passed(table, Characters("lower", LETTERS))) == plain
    for made in (Characters("lower", list(LETTERS), blank=0), Characters("lower", tuple("~" + LETTERS))):
        assert rows_of(passed(table, made)) == {row: [one + 1 for one in ids] for row, ids in plain.items()}
    between = Characters("lower", LETTERS, blank=0, between=0, around=True, pad=-1)
    batches = passed(table, between)
    for row, ids in rows_of(batches, pad=-1).items():
        assert (ids[::2], ids[1::2]) == ([0] * (len(lower[row]) + 1), [one + 1 for one in plain[row]])
    ignoring = rows_of(passed(table, Characters("text", "acht", unknown="ignore")))
    assert ignoring == {row: ["acht".index(c) for c in text if c in "acht"] for row, text in enumerate(TEXTS)}


def test_a_vocabulary_in_a_file(tmp_path: Path) -> None:
    lines, listed, numbered = (tmp_path / name for name in ("v.txt", "v.json", "n.json"))
    lines.write_text(" \na\nsch\n", encoding="utf-8")
    listed.write_text(json.dumps([" ", "a", "sch"]))
    numbered.write_text(json.dumps({"sch": 2, " ": 0, "a": 1}))
    for path in (lines, listed, numbered):
        assert Characters("text", path) == Characters("text", (" ", "a", "sch"))
    assert Characters("text", {"sch": 2, " ": 0, "a": 1}).vocabulary == (" ", "a", "sch")
    numbered.write_text(json.dumps({"sch": 3, " ": 0, "a": 1}))
    with pytest.raises(ConfigError, match="expected each id from 0 to 2 once"):
        Characters("text", numbered)
    listed.write_text("[1]")
    with pytest.raises(ConfigError, match="expected a JSON list of entries"):
        Characters("text", listed)
    with pytest.raises(FileNotFoundError):
        Characters("text", tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="the name of a file; give pathlib"):
        Characters("text", "vocab.json")


def test_segments_with_timestamps(tmp_path: Path) -> None:
    path = whisper_tokenizer(tmp_path)
    columns: dict[str, Any] = {
        "said": [[" the cat", " sat"], [" a", " b", " c"], [], None],
        "from": [[0.0, 0.5], [0.08, 0.52, 1.52], [], None],
        "to": [[0.48, 0.81], [0.52, 1.32, 1.92], [], None],
    }
    table = write_utterances(tmp_path / "said", [1.0, 2.0, 1.0, 1.0], columns=columns)
    target = Tokens(
        "said", path, starts="from", ends="to", timestamps=0.02, prefix=["<|startoftranscript|>"],
        suffix=["<|endoftext|>"], null="empty",
    )  # fmt: skip
    rows = rows_of(passed(table, target, crop=crops.Start()))
    library = tokenizers.Tokenizer.from_file(str(path))
    texts = [
        "<|0.00|> the cat<|0.48|><|0.50|> sat<|0.82|>",
        "<|0.08|> a<|0.52|><|0.52|>",  # the second ends behind the clip of 1 s, and the third is there
        "",
        "",
    ]
    assert rows == {
        row: library.encode(f"<|startoftranscript|>{text}<|endoftext|>", add_special_tokens=False).ids
        for row, text in enumerate(texts)
    }
    # Played faster, times are earlier.
    fast = rows_of(passed(table, target, crop=crops.Start(), augment=[augment.Speed(2.0)]))
    text = "<|startoftranscript|><|0.04|> a<|0.26|><|0.26|> b<|0.66|><|0.76|> c<|0.96|><|endoftext|>"
    assert fast[1] == library.encode(text, add_special_tokens=False).ids
    for limit, n in [(9, 0), (8, 1)]:
        few = Tokens("said", path, starts="from", ends="to", timestamps=0.02, max_tokens=limit, null="empty")
        assert forebay.Loader(table, **GIVEN, targets={"tokens": few}).left_out["too_many_tokens"] == n


def test_times_that_are_rounded(tmp_path: Path) -> None:
    """A segment that ends where its recording does, to the decimals of a table, keeps its text."""
    path = whisper_tokenizer(tmp_path)
    ends = [2.0000001, 2.01, 1.99, 2.02, 2.5]
    columns: dict[str, Any] = {"text": [[" the cat"]] * 5, "from": [[0.0]] * 5, "to": [[end] for end in ends]}
    table = write_utterances(tmp_path / "said", [2.0] * 5, columns=columns)
    target = Tokens("text", path, starts="from", ends="to", timestamps=0.02)
    rows = rows_of(passed(table, target, crop=crops.Start(), clip_seconds=2.0))
    library = tokenizers.Tokenizer.from_file(str(path))
    whole = library.encode("<|0.00|> the cat<|2.00|>", add_special_tokens=False).ids
    assert [rows[row] for row in (0, 1, 3)] == [whole] * 3
    assert rows[2][:-1] == whole[:-1]
    assert rows[4] == whole[:1]


def test_dropout_is_a_function_of_the_draw(table: Path) -> None:
    given = {"infinite": True, "order": "global", "batch_size": 4}

    def drawn(dropout: float, **more: Any) -> list[tuple[int, tuple[int, ...]]]:
        target = {"tokens": Tokens("text", MODELS["bpe"], dropout=dropout)}
        loader = forebay.Loader(table, **GIVEN | given | more, targets=target)
        found: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(12):
            found += ((row, tuple(ids)) for row, ids in rows_of([next(loader)]).items())
        return found

    one = drawn(0.3)
    assert one == drawn(0.3, n_workers=1)
    assert one != drawn(0.3, seed=5)
    model = sentencepiece.SentencePieceProcessor(model_file=str(MODELS["bpe"]))
    for row, ids in one:
        assert model.decode(list(ids)) == model.decode(model.encode(TEXTS[row]))
    assert len(set(one)) > len({row for row, _ in one})
    assert len(set(drawn(0.0))) == len(TEXTS)
    # What exceeds the limit is encoded without.
    longest = max(len(model.encode(text)) for text in TEXTS)
    target = Tokens("text", MODELS["bpe"], dropout=1.0, max_tokens=longest)
    assert max(map(len, rows_of(passed(table, target)).values())) <= longest


def test_batches_by_duration(table: Path) -> None:
    given: dict[str, Any] = {key: value for key, value in GIVEN.items() if key not in ("batch_size", "clip_seconds")}
    given |= {"crop": crops.Whole(), "order": "global"}
    target = {"tokens": Tokens("text", JSON, pad=-1)}
    usual = rows_of(passed(table, Tokens("text", JSON)))
    for pad_to in ("longest", "bucket", 16):
        loader = forebay.Loader(table, **given, targets=target, batching=Buckets(1.9, num_buckets=2, pad_to=pad_to))
        batches = list(loader)
        assert rows_of(batches, pad=-1) == usual
        for batch in batches:
            n, longest = batch["tokens"].shape[1], batch["tokens_length"].max()
            assert n == (max(16, 1 << int(longest - 1).bit_length()) if pad_to == "bucket" else longest)

    # Resumed in the middle, also into other loaders.
    def made() -> forebay.Loader:
        return forebay.Loader(table, **given, targets=target, batching=Buckets(1.9, num_buckets=2))

    whole = [batch["tokens"].tolist() for batch in made()]
    for done in range(len(whole)):
        loader = made()
        first = [next(loader)["tokens"].tolist() for _ in range(done)]
        again = made()
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert first + [batch["tokens"].tolist() for batch in again] == whole


def test_a_state_knows_the_tokenizer(table: Path) -> None:
    loader = forebay.Loader(table, **GIVEN, targets={"tokens": Tokens("text", MODELS["bpe"])})
    next(loader)
    state = loader.state_dict()
    for other in (
        Tokens("text", MODELS["unigram"]),
        Tokens("text", MODELS["bpe"], max_tokens=100),
        Characters("lower", LETTERS),
    ):
        with pytest.raises(StateError, match=r"targets\.tokens"):
            forebay.Loader(table, **GIVEN, targets={"tokens": other}).load_state_dict(state)


def test_a_state_does_not_know_the_path(table: Path, tmp_path: Path) -> None:
    loader = forebay.Loader(table, **GIVEN, targets={"tokens": Tokens("text", MODELS["bpe"])})
    next(loader)
    moved = tmp_path / "moved.model"
    moved.write_bytes(MODELS["bpe"].read_bytes())
    again = forebay.Loader(table, **GIVEN, targets={"tokens": Tokens("text", moved)})
    again.load_state_dict(loader.state_dict())
    assert next(again)["tokens"].tolist() == next(loader)["tokens"].tolist()


def test_datasets_pad_too(table: Path) -> None:
    dataset = AudioDataset(table, clip_seconds=1.0, targets={"tokens": Tokens("text", JSON, pad=-1)})
    batch = dataset.get_batch([3, 1, 2])
    assert rows_of([batch], pad=-1) == {row: expected(JSON, TEXTS[row]) for row in (1, 2, 3)}
    assert dataset[3]["tokens"].tolist() == expected(JSON, TEXTS[3])


@pytest.mark.parametrize(
    "target",
    [
        Tokens("text", JSON, prefix=["<|endoftext|>", 3], suffix=[4], max_tokens=10, on_long="cut", side="left"),
        Tokens("text", Tokenizer(MODELS["bpe"]), dropout=0.1, pad=-1),
        Tokens("text", {"path": DATA / "tokens" / "gpt2.tiktoken"}, null="empty"),
        Characters("text", LETTERS, blank=0, between=1),
        Characters("text", ["a", "bc"], unknown="ignore"),
    ],
)
def test_objects_print_pickle_and_convert(table: Path, target: Any) -> None:
    again = eval(repr(target), {"Tokens": Tokens, "Characters": Characters})
    made = type(target).from_dict(json.loads(json.dumps(target.to_dict())))
    assert again == made == pickle.loads(pickle.dumps(target)) == target
    assert hash(made) == hash(target)
    loader = forebay.Loader(table, **GIVEN, targets=target)
    assert "label" in [field["name"] for field in loader.fields]


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: Tokens("text", "none.model"), "none.model"),
        (lambda: Tokens("text", DATA / "tokens" / "SOURCE.txt"), "is neither a tokenizer.json"),
        (lambda: Tokens("text", JSON, prefix=["<|none|>"]), r"prefix\[0\] is \"<\|none\|>\", which is no token"),
        (lambda: Tokens("text", JSON, suffix=[-1]), "suffix has -1"),
        (lambda: Tokens("text", JSON, prefix=["\ud800"]), "prefix has .* which is not Unicode text"),
        (lambda: Characters("text", ["a", "\ud800"]), "vocabulary has .* which is not Unicode text"),
        (lambda: Tokens("text", JSON, dropout=1.5), "dropout is 1.5, must be 0 to 1"),
        (lambda: Tokens("text", MODELS["unigram"], dropout=0.1), "dropout"),
        (lambda: Tokens("text", JSON, max_tokens=0), "max_tokens is 0, must be 1 to 1048576"),
        (lambda: Tokens("text", JSON, prefix=[1, 2], max_tokens=1), "max_tokens is 1, must be at least 2"),
        (lambda: Tokens("text", JSON, side="both"), "side is \"both\", must be one of"),  # type: ignore[arg-type]
        (lambda: Tokens("text", JSON, on_long="stop"), "on_long is \"stop\""),  # type: ignore[arg-type]
        (lambda: Tokens("text", JSON, pad=1 << 40), "pad is 1099511627776"),
        (lambda: Tokens("text", JSON, timestamps=0.02), "timestamps is given, but no starts= and ends="),
        (lambda: Tokens("text", JSON, starts="a"), "give both, or none"),
        (lambda: Tokens("text", JSON, starts="a", ends="b", timestamps=0.02), "has no token \"<|0.00|>\""),
        (lambda: Tokens("text", {"path": str(JSON), "bos": 1}), "tokenizer has 'bos'"),
        (lambda: Tokens("text", Tokenizer(tokenizers.Tokenizer.from_file(str(JSON)))), "an object in memory"),
        (lambda: Tokens("", JSON), "column is ''"),
        (lambda: Characters("text", ""), "the vocabulary has 0 entries"),
        (lambda: Characters("text", "aba"), "entries 0 and 2 of the vocabulary are both \"a\""),
        (lambda: Characters("text", ["a", ""]), "entry 1 of the vocabulary is empty"),
        (lambda: Characters("text", "ab", blank=3), "blank is 3, must be 0 to 2"),
        (lambda: Characters("text", "ab", blank=-1), "blank is -1"),
        (lambda: Characters("text", "ab", around=True), "around is true, but between is None"),
    ],
)  # fmt: skip
def test_wrong_values_are_told(make: Any, wrong: str) -> None:
    with pytest.raises((forebay.ForebayError, FileNotFoundError), match=wrong):
        make()


@pytest.mark.parametrize("make", [
    lambda: Tokens("text", 3),  # type: ignore[arg-type]
    lambda: Tokens("text", JSON, prefix="<|endoftext|>"),
    lambda: Tokens("text", JSON, prefix=[1.5]),  # type: ignore[list-item]
    lambda: Tokens("text", JSON, prefix=[True]),
    lambda: Characters("text", {"a", "b"}),  # type: ignore[arg-type]
    lambda: Tokens("text", JSON, max_tokens="10"),  # type: ignore[arg-type]
    lambda: Characters("text", 5),  # type: ignore[arg-type]
    lambda: Characters("text", b"abc"),  # type: ignore[arg-type]
    lambda: Characters("text", [1, 2]),  # type: ignore[list-item]
])  # fmt: skip
def test_wrong_types_are_told(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_wrong_columns_and_texts_are_told(tmp_path: Path, table: Path) -> None:
    with pytest.raises(ConfigError, match='column "label" is int64, expected text'):
        forebay.Loader(table, **GIVEN, targets={"t": Tokens("label", JSON)})
    with pytest.raises(ConfigError, match="expected lists of text"):
        forebay.Loader(table, **GIVEN, targets={"t": Tokens("text", JSON, starts="label", ends="label")})
    with pytest.raises(ConfigError, match="says"):
        forebay.Loader(table, **GIVEN, targets={"t": Tokens("says", JSON)})
    with pytest.raises(ConfigError, match=r"row 3, .*',' .* at position 19 .* begins no entry .* unknown="):
        passed(table, Characters("text", LETTERS))
    with pytest.raises(ConfigError, match=r"row 3: .*unknown character: the character ','"):  # when it is made
        forebay.Loader(table, **GIVEN, targets={"t": Characters("text", LETTERS, max_tokens=50)})
    nulls = write_utterances(tmp_path, [0.2] * 3, columns={"text": ["a", None, "b"]})
    with pytest.raises(ConfigError, match='column "text" is null; give null="empty"'):
        passed(nulls, Tokens("text", JSON))
    assert rows_of(passed(nulls, Tokens("text", JSON, null="empty")))[1] == []
    pairs = [augment.Mixup()]
    with pytest.raises(ConfigError, match='target "t" is a Tokens of int64, which cannot be mixed'):
        forebay.Loader(table, **GIVEN | {"infinite": True, "augment": pairs}, targets={"t": Tokens("text", JSON)})
    with pytest.raises(ConfigError, match='two fields of a batch are named "t_length"'):
        forebay.Loader(table, **GIVEN, targets={"t": Tokens("text", JSON), "t_length": Tokens("text", JSON)})


def test_any_text_passes(tmp_path: Path) -> None:
    """Texts of several scripts: each row has the ids of the tokenizer for its text."""
    draw = random.Random(3)
    letters = [chr(code) for code in (*range(32, 127), 0xE9, 0x4E2D, 0x1F600, 0x301)]
    texts = ["".join(draw.choices(letters, k=draw.randrange(60))) for _ in range(400)]
    table = write_utterances(tmp_path, [0.05] * 400, columns={"text": texts})
    tokenizer = Tokenizer(MODELS["unigram"])
    rows = rows_of(passed(table, Tokens("text", MODELS["unigram"]), batch_size=64, clip_seconds=0.1, n_workers=4))
    assert rows == {row: tokenizer.encode(text).tolist() for row, text in enumerate(texts)}
