"""`forebay.text.Chat`: ids and masks are those of transformers; templates, tokenizers and rows that are refused."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chats
import forebay
from digests import digest
from forebay.text import Chat
from packed_chats import BOS, PARAMETERS, exact, loaded, rows_of, write
from paths import DATA

COUNT = 14
"""Conversations of the golden file, of templates with marked answers."""

IM_END = 1001


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chats.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def framed(ids: list[int], mask: Any) -> tuple[list[int], list[bool]]:
    trained = [bit in (1, "1") for bit in mask]
    return (ids, trained) if ids[0] == BOS else ([BOS, *ids], [False, *trained])


@pytest.mark.parametrize("name", chats.BLOCKS)
def test_ids_and_masks_are_those_of_transformers(tmp_path: Path, tokenizer: Path, name: str) -> None:
    golden = json.loads((DATA / "chats/chats.json").read_text())[name]
    tools = [chats.TOOLS if name == "own" and at % 2 else None for at in range(COUNT)]
    path = write(tmp_path / "a.jsonl", [chats.conversation(at) for at in range(COUNT)], tools)
    expected = {at: framed(row["ids"], row["mask"]) for at, row in enumerate(golden)}
    template = "tokenizer" if name == "own" else name
    given = loaded(Chat(path, template=template, tools="tools"), tokenizer)
    assert given == expected
    assert loaded(Chat(path, template=chats.BLOCKS[name], tools="tools"), tokenizer) == expected


@pytest.mark.parametrize("name", chats.BLOCKS)
def test_many_conversations_beside_transformers(tmp_path: Path, tokenizer: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    one = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"), bos_token="<|bos|>", eos_token="<|endoftext|>"
    )
    n = 400
    conversations = [chats.conversation(1000 + at) for at in range(n)]
    path = write(tmp_path / "a.jsonl", conversations)
    expected = {}
    for at, messages in enumerate(conversations):
        made = one.apply_chat_template(
            messages, chat_template=chats.BLOCKS[name], return_assistant_tokens_mask=True, return_dict=True
        )
        expected[at] = framed(made["input_ids"], made["assistant_masks"])
    template = "tokenizer" if name == "own" else name
    found = loaded(Chat(path, template=template), tokenizer)
    assert len(found) > 0.8 * n
    assert found == {at: expected[at] for at in found}
    one.chat_template = chats.BLOCKS[name]
    assert loaded(Chat(path), one) == found


def test_templates_without_marks(tmp_path: Path, tokenizer: Path) -> None:
    """What an answer adds is the part of a template that marks it."""
    path = write(tmp_path / "a.jsonl", [chats.conversation(at) for at in range(COUNT)])
    marked = chats.BLOCKS["chatml"].replace("'<|im_end|>' }}", "'<|im_end|>\\n' }}")
    marked = marked.replace("    {{- '\\n' }}\n", "")
    plain = marked.replace("{%- generation %}", "").replace("{%- endgeneration %}", "")
    assert "generation %}" not in plain
    found = loaded(Chat(path, template=plain), tokenizer)
    assert found == loaded(Chat(path, template=marked), tokenizer)
    assert any(any(trained) for _, trained in found.values())


def test_train_on(tmp_path: Path, tokenizer: Path) -> None:
    path = write(tmp_path / "a.jsonl", [chats.conversation(at) for at in range(COUNT)])
    whole = loaded(Chat(path, template="chatml"), tokenizer)
    last = loaded(Chat(path, template="chatml", train_on="last"), tokenizer)
    every = loaded(Chat(path, template="chatml", train_on="all"), tokenizer)
    for at in range(COUNT):
        ids, trained = whole[at]
        assert every[at] == (ids, [False, *[True] * (len(ids) - 1)])
        ends = [place for place, (id_, on) in enumerate(zip(ids, trained, strict=True)) if id_ == IM_END and on]
        answers = sum(message["role"] == "assistant" for message in chats.conversation(at))
        assert len(ends) >= answers
        first = max(place for place, on in enumerate(trained[: ends[-1]]) if not on) + 1 if ends else 0
        assert last[at] == (ids, [on and place >= first for place, on in enumerate(trained)])


def test_the_end_of_a_document(tmp_path: Path, tokenizer: Path) -> None:
    """The loader's EOS is trained on like the token before it; a text that ends with it has one."""
    path = write(tmp_path / "a.jsonl", [chats.conversation(1)])
    [(plain, trained)] = loaded(Chat(path, template="mistral"), tokenizer).values()
    with_eos = loaded(Chat(path, template="mistral"), tokenizer, eos_id=1)
    assert trained[-1]
    assert with_eos == {0: ([*plain, 1], [*trained, True])}
    assert loaded(Chat(path, template="mistral"), tokenizer, eos_id=plain[-1]) == {0: (plain, trained)}


def texts(tmp_path: Path, conversations: list[Any]) -> dict[str, Chat]:
    """The same conversations in each form."""
    write(tmp_path / "a.jsonl", conversations)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    quoted = [json.dumps(messages) for messages in conversations]
    nested = "".join(json.dumps({"chat": {"turns": text}}) + "\n" for text in quoted)
    (tmp_path / "c.jsonl").write_text(nested)
    table = pa.table({"messages": quoted})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=256)
    with pa.OSFile(str(tmp_path / "e.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=256)
    columns = {"c.jsonl": "chat.turns"}
    return {
        path.name: Chat(path, columns.get(path.name, "messages"), template="chatml")
        for path in sorted(tmp_path.iterdir())
    }


def test_forms_of_files(tmp_path: Path, tokenizer: Path) -> None:
    sources = texts(tmp_path, [chats.conversation(at) for at in range(60)])
    assert len(sources) == 5
    found = {name: loaded(source, tokenizer) for name, source in sources.items()}
    assert len(found["a.jsonl"]) == 60
    assert all(one == found["a.jsonl"] for one in found.values())


@pytest.mark.parametrize("fit", ["drop", "carry", "pad"])
def test_resume_ranks_threads(tmp_path: Path, tokenizer: Path, fit: str) -> None:
    path = write(tmp_path / "a.jsonl", [chats.conversation(at) for at in range(600)])
    source = Chat(path, template="gemma")
    usual = PARAMETERS | {"bos_id": None, "fit": fit, "infinite": True, "seq_len": 63, "buffer_size": 20, "seed": 3}
    common = usual | {"batch_size": 4, "n_streams": 2, "shuffle_min_size": 0, "extras": ["doc_ids"]}

    def loader(**parameters: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(source, tokenizer, **common | parameters)

    made, states = exact(loader, 12)
    assert any(-100 in row for batch in made for row in batch["targets"].tolist())
    with loader() as found:
        copy = pickle.loads(pickle.dumps(found))
        assert digest(next(copy)) == digest(next(found)) == digest(made[0])
        copy.close()
    for other in (Chat(path, template="gemma", train_on="last"), Chat(path, template=chats.BLOCKS["gemma"])):
        with (
            forebay.TokenLoader(other, tokenizer, **common) as found,
            pytest.raises(forebay.StateError, match=r"train_on|template"),
        ):
            found.load_state_dict(states[3])


def test_bad_rows(tmp_path: Path, tokenizer: Path) -> None:
    good = chats.conversation(1)
    rows: list[tuple[str, str, str]] = [
        (json.dumps({"messages": good}), "", ""),
        ('{"messages": [', "corrupt", "the line is not JSON"),
        ('{"other": 1}', "unreadable", 'there is no field "messages"'),
        ('{"messages": null}', "unreadable", "is null, expected a list of messages"),
        ('{"messages": []}', "empty", "the conversation has no messages"),
        ('{"messages": "[1"}', "corrupt", "is not JSON"),
        ('{"messages": {"role": "user"}}', "corrupt", "is an object, expected a list of messages"),
        ('{"messages": ["hello"]}', "corrupt", "message 0 is no object"),
        ('{"messages": [{"content": "a"}]}', "corrupt", "message 0 has no role"),
        (json.dumps({"messages": good[:-1]}), "empty", "no answer to train on"),
        (json.dumps({"messages": [{"role": "robot", "content": "a"}]}), "corrupt", "the role robot is none of"),
        (json.dumps({"messages": [{"role": "assistant"}]}), "corrupt", "message 0 has no content"),
        (json.dumps({"messages": [{"role": "assistant", "content": "\ufdd0"}]}), "corrupt", "U+FDD0"),
        ('{"messages": ' + "[" * 5000, "corrupt", "not JSON"),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(line + "\n" for line, *_ in rows))
    with forebay.TokenLoader(Chat(path, template="gemma"), tokenizer, **PARAMETERS) as found:
        assert set(rows_of(found)) == {0}
        errors = {error["row"]: (error["kind"], error["reason"]) for error in found.errors()}
    assert set(errors) == set(range(1, len(rows)))
    for at, (_, kind, part) in enumerate(rows[1:], 1):
        assert errors[at][0] == kind, (at, errors[at])
        assert part in errors[at][1], (at, errors[at])


def test_a_field_of_tools_that_is_not_there(tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture) -> None:
    conversations = [chats.conversation(at) for at in range(4)]
    path = write(tmp_path / "a.jsonl", conversations, [None, None, None, chats.TOOLS])
    for tools, told in [("tools", 0), ("tool", 1), (None, 0)]:
        caplog.clear()
        loaded(Chat(path, template="chatml", tools=tools), tokenizer)
        messages = [record.getMessage() for record in caplog.records if "tools of forebay.text.Chat" in record.message]
        assert len(messages) == told
    caplog.clear()
    loaded(Chat(path, template="chatml", tools="tool"), tokenizer)
    assert any(
        '"tool", and none of the first 4 lines of' in message and 'the first has "id", "messages", "tools"' in message
        for message in caplog.messages
    )


def test_no_good_row(tmp_path: Path, tokenizer: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"messages": []}\n' * 3)
    with (
        forebay.TokenLoader(Chat(path, template="chatml"), tokenizer, **PARAMETERS) as found,
        pytest.raises(forebay.DecodeError, match="check the files, the column that names the documents, and exclude"),
    ):
        list(found)


def test_hostile_templates(tmp_path: Path, tokenizer: Path) -> None:
    path = write(tmp_path / "a.jsonl", [chats.conversation(1)])
    for template, match in [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than"),
        ("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "refuses the conversation"),
        ("{% set x = 'a' * 90000000 %}{% for a in range(99) %}{{ x }}{% endfor %}", "more than"),
        ("{{ messages | missing_filter }}", "refuses the conversation|cannot be read"),
        ("{{ raise_exception('no') }}", "refuses the conversation: no"),
        ("{% for m in messages %}{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}", "cannot be told"),
    ]:
        with (
            pytest.raises(forebay.ForebayError, match=match),
            forebay.TokenLoader(Chat(path, template=template), tokenizer, on_error="raise", **PARAMETERS) as found,
        ):
            next(found)


def test_wrong_parameters(tmp_path: Path, tokenizer: Path) -> None:
    path = write(tmp_path / "a.jsonl", [chats.conversation(1)])

    def refused(source: Any, match: str, tokenizer: Any = tokenizer, **parameters: Any) -> None:
        with pytest.raises(forebay.ConfigError, match=match):
            forebay.TokenLoader(source() if callable(source) else source, tokenizer, **PARAMETERS | parameters)

    refused(lambda: Chat(path, template="vicuna"), r'template is "vicuna", must be "tokenizer", "chatml", "llama3"')
    refused(lambda: Chat(path, train_on="user"), r'train_on is "user", must be "assistant", "last" or "all"')
    refused(Chat(path, template="{% for"), "the chat template cannot be read")
    bare = chats.TOKENIZER
    refused(Chat(path), 'template is "tokenizer", but .* has no chat template; name one of "chatml"', bare)
    refused(Chat(path, template="chatml"), r"writes <\|im_start\|>, which is no token of the tokenizer", bare)
    refused(Chat(path, template="chatml"), "not a callable", len, bos_id=0)
    refused(Chat(path, template="chatml"), "conversations need a tokenizer.json", DATA / "tokens/bpe.model")
    refused(Chat(path, template="chatml"), "tokenizer is missing", None, bos_id=0)
    refused(
        Chat(path, template="chatml"), "targets -100 of tokens that are not trained on", dtype="uint16", fit="carry"
    )
    refused(Chat(path, "dialog", template="chatml"), r'no field "dialog" in the first line, which has "id"')
    (tmp_path / "b.txt").write_text("a\n")
    refused(Chat(tmp_path / "b.txt", template="chatml"), "conversations are read from JSON lines, Parquet and Arrow")
    assert repr(Chat("a.jsonl")) == "Chat(path='a.jsonl')"
