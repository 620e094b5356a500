"""`forebay.text.Pairs`: both conversations of a pair have the ids and masks of `transformers` in rows of one batch."""

import itertools
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chats
import forebay
from digests import digest
from forebay.text import Chat, Pairs
from packed_chats import BOS, exact, loaded, rows_of, write
from packed_chats import PARAMETERS as WHOLE
from paths import DATA

PAD = 3
SEQ_LEN = 63
PARAMETERS: dict[str, Any] = {"batch_size": 4, "seq_len": SEQ_LEN, "fit": "pad", "pad_id": PAD, "val": []}
FINITE = {"infinite": False, "n_workers": 2}

Rows = list[dict[str, Any]]
Document = tuple[list[int], list[bool]]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chats.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def pairs(n: int) -> tuple[Rows, Rows]:
    """Whole conversations, with answers of different lengths at the end; and the same with a prompt."""
    whole, split = [], []
    for at in range(n):
        *prompt, _ = chats.conversation(at)
        picked = random.Random(at)
        answers = [
            {"role": "assistant", "content": " ".join(picked.choices(chats.WORDS[:30], k=picked.randrange(1, 20)))}
            for _ in range(2)
        ]
        chosen, rejected = ([answer] for answer in answers)
        whole.append({"chosen": prompt + chosen, "rejected": prompt + rejected})
        split.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return whole, split


def jsonl(folder: Path, rows: Rows) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def parquet(folder: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet", row_group_size=7)
    return folder / "pairs.parquet"


def arrow(folder: Path, rows: Rows) -> Path:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(folder / "pairs.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=7)
    return folder / "pairs.arrow"


WRITERS: dict[str, Callable[[Path, Rows], Path]] = {"jsonl": jsonl, "parquet": parquet, "arrow": arrow}


def oracle(folder: Path, tokenizer: Path, rows: Rows, template: str, train_on: str) -> list[list[Document]]:
    """The ids and masks of both conversations, each column as the conversations of `Chat`."""
    sides = []
    for name in ("chosen", "rejected"):
        path = write(folder / f"{name}.jsonl", [row[name] for row in rows])
        sides.append(loaded(Chat(path, template=template, train_on=train_on), tokenizer))
        assert sorted(sides[-1]) == list(range(len(rows)))
    return [[side[at] for side in sides] for at in range(len(rows))]


def framed(ids: list[int], mask: Any) -> Document:
    trained = [bit in (1, "1") for bit in mask]
    return (ids, trained) if ids[0] == BOS else ([BOS, *ids], [False, *trained])


def of_transformers(tokenizer: Path, rows: Rows, template: str, train_on: str) -> list[list[Document]]:
    """The same by the tokenizer of transformers."""
    transformers = pytest.importorskip("transformers")
    one = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"), bos_token="<|bos|>", eos_token="<|endoftext|>"
    )
    found = []
    for row in rows:
        pair = []
        for name in ("chosen", "rejected"):
            made = one.apply_chat_template(
                row[name], chat_template=chats.BLOCKS[template], return_assistant_tokens_mask=True, return_dict=True
            )
            ids, mask = framed(made["input_ids"], made["assistant_masks"])
            if train_on == "last":
                # The run of trained tokens that is last.
                end = len(mask) - mask[::-1].index(True)
                begin = end - list(itertools.chain(mask[:end][::-1], [False])).index(False)
                mask = [begin <= at < end for at in range(len(mask))]
            pair.append((ids, mask))
        found.append(pair)
    return found


def expected(documents: list[list[Document]], seq_len: int, on_long: str) -> list[tuple[Any, Any]]:
    """The inputs and targets of both rows of each pair, that is left out or cut if it is too long."""
    made = []
    for pair in documents:
        if on_long == "skip" and any(len(ids) > seq_len + 1 for ids, _ in pair):
            continue
        inputs, targets = [], []
        for ids, mask in pair:
            places = seq_len + 1
            row = [*ids[:places], *[PAD] * (places - len(ids))]
            aims = [i if on else -100 for i, on in zip(ids[:places], mask[:places], strict=True)]
            inputs.append(row[:-1])
            targets.append([*aims, *[-100] * (places - len(ids))][1:])
        if all(any(target != -100 for target in row) for row in targets):
            made.append((inputs, targets))
    return made


def found_pairs(loader: forebay.TokenLoader) -> list[tuple[Any, Any]]:
    made = []
    with loader:
        for batch in loader:
            n = len(batch["inputs"]) // 2
            both = [batch[name].reshape(2, n, -1) for name in ("inputs", "targets")]
            made += [(both[0][:, at].tolist(), both[1][:, at].tolist()) for at in range(n)]
        assert loader.errors() == []
    return made


@pytest.mark.parametrize("name", chats.BLOCKS)
def test_ids_and_masks_are_those_of_transformers(tmp_path: Path, tokenizer: Path, name: str) -> None:
    """Conversations of a golden file, in pairs."""
    golden = json.loads((DATA / "chats/chats.json").read_text())[name]
    # Of the template with tools, the conversations without.
    numbers = [at for at in range(len(golden)) if name != "own" or at % 2 == 0]
    rows = [
        {"chosen": chats.conversation(a), "rejected": chats.conversation(b)}
        for a, b in zip(numbers, numbers[::-1], strict=True)
    ]
    documents = [
        [framed(golden[at]["ids"], golden[at]["mask"]) for at in both]
        for both in zip(numbers, numbers[::-1], strict=True)
    ]
    source = Pairs(jsonl(tmp_path, rows), template=chats.BLOCKS[name], train_on="assistant")
    parameters = PARAMETERS | FINITE | {"bos_id": BOS, "seq_len": 511}
    assert found_pairs(forebay.TokenLoader(source, tokenizer, **parameters)) == expected(documents, 511, "skip")


def test_many_pairs_beside_transformers(tmp_path: Path, tokenizer: Path) -> None:
    whole, _ = pairs(200)
    for template, train_on in itertools.product(("chatml", "gemma"), ("last", "assistant")):
        documents = of_transformers(tokenizer, whole, template, train_on)
        source = Pairs(jsonl(tmp_path, whole), template=template, train_on=train_on)
        found = found_pairs(forebay.TokenLoader(source, tokenizer, **PARAMETERS | FINITE | {"bos_id": BOS}))
        assert found == expected(documents, SEQ_LEN, "skip")


@pytest.mark.parametrize("form", WRITERS)
def test_both_conversations_are_those_of_chat(tmp_path: Path, tokenizer: Path, form: str) -> None:
    whole, split = pairs(60)
    for template, train_on in itertools.product(("chatml", "gemma"), ("last", "assistant")):
        documents = oracle(tmp_path, tokenizer, whole, template, train_on)
        for rows, prompt in ((whole, None), (split, "prompt")):
            source = Pairs(WRITERS[form](tmp_path, rows), prompt=prompt, template=template, train_on=train_on)
            for on_long in ("skip", "cut"):
                parameters = PARAMETERS | FINITE | {"on_long": on_long, "bos_id": BOS}
                right = expected(documents, SEQ_LEN, on_long)
                assert 10 < len(right) < 60
                assert found_pairs(forebay.TokenLoader(source, tokenizer, **parameters)) == right


@pytest.mark.parametrize("form", WRITERS)
def test_texts(tmp_path: Path, tokenizer: Path, form: str) -> None:
    """With a prompt, texts are messages; without one, JSON. Names may be nested."""
    texts = [{"prompt": f"[{at}]", "chosen": f"{at} is <even", "rejected": '{"odd": "\\n'} for at in range(9)]
    whole = [
        {
            name: [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row[name]}]
            for name in ("chosen", "rejected")
        }
        for row in texts
    ]
    parameters = PARAMETERS | FINITE

    def made(rows: Rows, chosen: str, rejected: str, prompt: str | None = None) -> list[tuple[Any, Any]]:
        source = Pairs(WRITERS[form](tmp_path, rows), chosen, rejected, prompt, template="chatml")
        return found_pairs(forebay.TokenLoader(source, tokenizer, **parameters))

    right = made(whole, "chosen", "rejected")
    assert len(right) == 9
    assert made(texts, "chosen", "rejected", "prompt") == right
    assert made([{name: json.dumps(row[name]) for name in row} for row in whole], "chosen", "rejected") == right
    nested = [{"pair": {"a": row["chosen"], "b": row["rejected"]}, "p": {"q": row["prompt"]}} for row in texts]
    assert made(nested, "pair.a", "pair.b", "p.q") == right


def test_a_conversation_is_that_of_chat(tmp_path: Path, tokenizer: Path) -> None:
    """With EOS, and the template of the tokenizer."""
    whole, _ = pairs(20)
    path = jsonl(tmp_path, whole)
    source = Pairs(path, train_on="assistant")
    wide = PARAMETERS | FINITE | {"seq_len": 1023, "eos_id": 1}
    both = found_pairs(forebay.TokenLoader(source, tokenizer, **wide))
    for side, name in enumerate(("chosen", "rejected")):
        with forebay.TokenLoader(Chat(path, column=name), tokenizer, **WHOLE | {"eos_id": 1}) as loader:
            rows = rows_of(loader)
        assert len(rows) > 10
        for at, (ids, trained) in rows.items():
            inputs, targets = both[at][0][side], both[at][1][side]
            assert inputs[: len(ids)] == ids
            assert set(inputs[len(ids) :]) == {PAD}
            assert [target != -100 for target in targets[: len(ids) - 1]] == trained[1:]


def test_extras_and_counts(tmp_path: Path, tokenizer: Path) -> None:
    whole, _ = pairs(30)
    source = Pairs(parquet(tmp_path, whole), template="chatml")
    extras = ["doc_ids", "position_ids", "cu_seqlens", "documents"]
    parameters = PARAMETERS | FINITE | {"extras": extras, "batch_size": 7}
    seen: list[int] = []
    with forebay.TokenLoader(source, tokenizer, **parameters) as loader:
        for batch in loader:
            inputs, n = batch["inputs"], len(batch["inputs"]) // 2
            assert inputs.flags.c_contiguous
            assert inputs.base is batch["targets"].base
            lengths = (batch["doc_ids"] == 0).sum(axis=1)
            for row, length in enumerate(lengths):
                assert (inputs[row, length:] == PAD).all()
                assert (batch["targets"][row, length:] == -100).all()
                assert batch["position_ids"][row, :length].tolist() == list(range(length))
            ends = [
                row * SEQ_LEN + place
                for row, length in enumerate(lengths)
                for place in ([0, length] if length < SEQ_LEN else [0])
            ]
            assert batch["cu_seqlens"].tolist() == [*ends, 2 * n * SEQ_LEN]
            rows, columns, _, groups, in_shard, starts = batch["documents"].T
            assert rows.tolist() == list(range(2 * n))
            assert set(columns) == {0}
            assert set(starts) == {1}
            assert in_shard[:n].tolist() == in_shard[n:].tolist()
            assert (groups == in_shard // 7).all()
            seen += in_shard[:n].tolist()
        packing = loader.stats()["packing"]
        assert "padding" in str(loader)
    assert seen == sorted(set(seen))
    assert packing["delivered"] + packing["padded"] == 2 * len(seen) * (SEQ_LEN + 1)
    documents = oracle(tmp_path, tokenizer, whole, "chatml", "last")
    assert packing["delivered"] == sum(len(ids) for at in seen for ids, _ in documents[at])
    left_out = set(range(30)) - set(seen)
    assert left_out
    assert packing["dropped"] == sum(len(ids) for at in left_out for ids, _ in documents[at])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("seed", [None, 3])
def test_resume_and_ranks(tmp_path: Path, tokenizer: Path, form: str, seed: int | None) -> None:
    _, split = pairs(600)
    path = WRITERS[form](tmp_path, split)
    common = PARAMETERS | {"seed": seed, "n_streams": 2, "shuffle_min_size": 0, "on_long": "cut", "extras": ["doc_ids"]}

    def loader(**parameters: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(Pairs(path, prompt="prompt", template="gemma"), tokenizer, **common | parameters)

    made, states = exact(loader, 10, halves=2)
    with loader() as found:
        copy = pickle.loads(pickle.dumps(found))
        assert digest(next(copy)) == digest(next(found)) == digest(made[0])
    other = Pairs(path, "rejected", "chosen", "prompt", template="gemma")
    with (
        forebay.TokenLoader(other, tokenizer, **common) as swapped,
        pytest.raises(forebay.StateError, match="rejected"),
    ):
        swapped.load_state_dict(states[3])


def test_mixtures_of_pairs(tmp_path: Path, tokenizer: Path) -> None:
    whole, split = pairs(300)
    sources = {
        "a": Pairs(jsonl(tmp_path, split), prompt="prompt", template="chatml"),
        "b": Pairs(parquet(tmp_path, whole), template="chatml"),
    }
    weights = {"weights": {"a": 0.75, "b": 0.25}, "weights_in": "documents", "extras": ["source"], "on_long": "cut"}
    with forebay.TokenLoader(sources, tokenizer, **PARAMETERS | weights) as loader:
        batches = list(itertools.islice(loader, 20))
        counts = loader.stats()["sources"]
    first = np.concatenate([batch["source"].reshape(2, 4, -1)[:, :, 0] for batch in batches], axis=1)
    assert (first[0] == first[1]).all()
    assert (first[0] == 0).sum() == pytest.approx(60, abs=1)
    assert counts["a"]["documents"] >= 60
    with pytest.raises(forebay.ConfigError, match=r'parquet_files\["c"\] has no pairs, and other sources have'):
        forebay.TokenLoader({**sources, "c": Chat(jsonl(tmp_path, whole), "chosen")}, tokenizer, **PARAMETERS)


def test_tensors(tmp_path: Path, tokenizer: Path) -> None:
    torch = pytest.importorskip("torch")
    import forebay.torch as for_torch

    whole, _ = pairs(40)
    source = Pairs(jsonl(tmp_path, whole), template="chatml")
    with forebay.TokenLoader(source, tokenizer, **PARAMETERS | FINITE) as loader:
        for inputs, targets in for_torch.token_batches(loader, "cpu", with_state=False):
            chosen, rejected = inputs.chunk(2)
            assert chosen.shape == rejected.shape
            assert torch.equal(chosen[:, 0], rejected[:, 0])
            assert (targets != -100).any(dim=1).all()


def test_bad_rows(tmp_path: Path, tokenizer: Path) -> None:
    whole, split = pairs(6)
    asked = {"role": "user", "content": "a"}
    split[0]["rejected"] = None
    split[1]["chosen"] = whole[1]["chosen"]
    split[2]["rejected"] = [asked | {"role": "tool"}]
    split[3]["prompt"] = 7
    del split[4]["prompt"]
    path = jsonl(tmp_path, split[::-1])
    with forebay.TokenLoader(
        Pairs(path, prompt="prompt", template="chatml"), tokenizer, **PARAMETERS | FINITE | {"seq_len": 511}
    ) as loader:
        assert sum(len(batch["inputs"]) for batch in loader) == 2
        reasons = {5 - error["row"]: error["reason"] for error in loader.errors()}
    assert '"rejected" is null, expected a list of messages' in reasons[0]
    assert '"chosen" begins with a message of the role' in reasons[1]
    assert "leave prompt= out" in reasons[1]
    assert "rejected: the conversation has no answer to train on" in reasons[2]
    assert '"prompt" is a number' in reasons[3]
    assert 'there is no field "prompt"' in reasons[4]
    path = jsonl(tmp_path, [{"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "c"}])
    with (
        forebay.TokenLoader(Pairs(path, template="chatml"), tokenizer, **PARAMETERS | FINITE) as loader,
        pytest.raises(forebay.DecodeError, match=r'"chosen" is not JSON; name the column .* before as prompt= if'),
    ):
        next(loader)


@pytest.mark.parametrize("form", WRITERS)
def test_a_null_conversation_is_named(tmp_path: Path, tokenizer: Path, form: str) -> None:
    whole, _ = pairs(9)
    whole[2]["chosen"], whole[5]["rejected"] = None, None
    path = WRITERS[form](tmp_path, whole)
    with forebay.TokenLoader(Pairs(path, template="chatml"), tokenizer, **PARAMETERS | FINITE) as loader:
        list(loader)
        found = [(error["shard"], error["row"], error["reason"]) for error in loader.errors()]
    assert [(shard, row) for shard, row, _ in found] == [(str(path), 2), (str(path), 5)]
    assert ('"chosen" is null' if form == "jsonl" else "the chosen conversation is null") in found[0][2]
    assert '"rejected" is null' in found[1][2]
    loader = forebay.TokenLoader(Pairs(path, template="chatml"), tokenizer, on_error="raise", **PARAMETERS | FINITE)
    with loader, pytest.raises(forebay.DecodeError, match=rf"pairs\.{form}, row 2: .*chosen.* is null"):
        list(loader)


def test_states_are_of_the_same_columns(tmp_path: Path, tokenizer: Path) -> None:
    """The message has the parameters that name the columns."""
    whole, _ = pairs(9)
    path = jsonl(tmp_path, [row | {"other": row["rejected"]} for row in whole])

    def loader(sources: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(sources, tokenizer, **PARAMETERS)

    source = Pairs(path, template="chatml")
    with loader(source) as one, loader({"a": source, "b": source}) as two:
        states = [next(one) and one.state_dict(), next(two) and two.state_dict()]
    for columns, message in (
        ({"chosen": "other"}, 'chosen is "chosen" in the state and "other" here'),
        ({"rejected": "other"}, 'rejected is "rejected" in the state and "other" here'),
    ):
        other = Pairs(path, template="chatml", **columns)
        with loader(other) as changed, pytest.raises(forebay.StateError, match=message) as error:
            changed.load_state_dict(states[0])
        assert "text_column" not in str(error.value)
        with loader({"a": source, "b": other}) as changed, pytest.raises(forebay.StateError, match="another loader: "):
            changed.load_state_dict(states[1])


def test_too_long(tmp_path: Path, tokenizer: Path) -> None:
    whole, _ = pairs(20)
    source = Pairs(jsonl(tmp_path, whole), template="chatml")
    for parameters in ({"seq_len": 2}, {"seq_len": 2, "on_long": "cut"}):
        with (
            forebay.TokenLoader(source, tokenizer, **PARAMETERS | parameters) as loader,
            pytest.raises(forebay.ConfigError, match=r"no pair has room in its rows, such as one of \d+ and \d+"),
        ):
            next(loader)


def test_wrong_parameters(tmp_path: Path, tokenizer: Path) -> None:
    whole, split = pairs(4)
    for arguments, match in [
        ({"chosen": ""}, 'chosen is "", must be the name of a column'),
        ({"rejected": "chosen"}, 'rejected is "chosen", must be the name of a column of its own'),
        ({"prompt": "rejected"}, 'prompt is "rejected", must be the name of a column of its own, or None'),
        ({"train_on": "reply"}, 'train_on is "reply", must be "assistant"'),
        ({"template": "vicuna"}, 'template is "vicuna", must be "tokenizer"'),
    ]:
        with pytest.raises(forebay.ConfigError, match=match):
            Pairs("a.jsonl", **arguments)
    source = Pairs(jsonl(tmp_path, whole), template="chatml")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"fit": "drop", "pad_id": None}, r'fit is "drop", but each document of forebay.text.Pairs .* pass fit="pad"'),
        ({"on_long": "split"}, 'on_long is "split", but forebay.text.Pairs are never split'),
        ({"pad_multiple": 3}, "pad_multiple is for several documents in a row"),
        ({"dtype": "uint16"}, 'dtype is "uint16"'),
    ]
    for parameters, match in refused:
        with pytest.raises(forebay.ConfigError, match=match):
            forebay.TokenLoader(source, tokenizer, **PARAMETERS | parameters)
    for writer in WRITERS.values():
        path = writer(tmp_path, split)
        with pytest.raises(forebay.ConfigError, match=r'"worse"'):
            forebay.TokenLoader(Pairs(path, rejected="worse", template="chatml"), tokenizer, **PARAMETERS)
    path = parquet(tmp_path, [{"chosen": 1, "rejected": 2}])
    with pytest.raises(forebay.ConfigError, match='column "chosen" is Int64 and holds no conversations'):
        forebay.TokenLoader(Pairs(path, template="chatml"), tokenizer, **PARAMETERS)


@pytest.mark.parametrize("form", WRITERS)
def test_texts_of_messages_beside_a_prompt(tmp_path: Path, tokenizer: Path, form: str) -> None:
    """They are the messages, not a text to be trained on."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"[{at}]"}],
            "chosen": [{"role": "assistant", "content": f"{at} is"}],
            "rejected": [{"role": "assistant", "content": "no"}],
        }
        for at in range(5)
    ]
    texts: Rows = [{name: json.dumps(value) for name, value in row.items()} for row in rows]
    found = []
    for given in (rows, texts):
        source = Pairs(WRITERS[form](tmp_path, given), prompt="prompt", template="chatml")
        found.append(found_pairs(forebay.TokenLoader(source, tokenizer, **PARAMETERS | FINITE)))
    assert len(found[0]) == 5
    assert found[0] == found[1]


def test_halves_stay_halves_in_jax(tmp_path: Path, tokenizer: Path) -> None:
    """Padding rows and a sharding over processes would mix them up."""
    pytest.importorskip("jax")
    import forebay.jax

    whole, _ = pairs(4)
    with forebay.TokenLoader(Pairs(jsonl(tmp_path, whole), template="chatml"), tokenizer, **PARAMETERS) as loader:
        with pytest.raises(forebay.ConfigError, match="pad_to is for batches whose rows are alike"):
            forebay.jax.batches(loader, pad_to=8)
        batch = next(forebay.jax.batches(loader))
    with forebay.TokenLoader(Pairs(jsonl(tmp_path, whole), template="chatml"), tokenizer, **PARAMETERS) as loader:
        expected = next(loader)
    assert np.array_equal(np.asarray(batch["inputs"]), expected["inputs"])


def test_wrong_names_in_lines(tmp_path: Path, tokenizer: Path) -> None:
    """The message has the parameter that names the field."""
    whole, _ = pairs(4)
    source = Pairs(jsonl(tmp_path, whole), rejected="worse", template="chatml")
    with pytest.raises(forebay.ConfigError, match=r'"worse" in the first line, .* name the field with rejected= of'):
        forebay.TokenLoader(source, tokenizer, **PARAMETERS)
