"""`forebay.text.Chat` over columns of lists and structs: ids and masks are those of the same rows as JSON lines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chats
import forebay
from forebay.text import Chat
from packed_chats import BOS, PARAMETERS, exact, loaded, rows_of, write

TEMPLATE = """
{%- if tools %}{{- '<|im_start|>tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}{%- generation %}
        {%- if message.content is not none %}{{- message['content'] }}{%- endif %}
        {%- if 'tool_calls' in message %}{{- message | tojson }}{%- endif %}
        {{- '<|im_end|>' }}
    {%- endgeneration %}{%- else %}{{- message['content'] }}{%- endif %}
    {{- '\\n' }}
{%- endfor %}"""
"""It tells a field that is null from one that is not there."""

TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"required": ["city"], "limit": 0.5}}},
    {"type": "function", "function": {"name": "time", "strict": True, "parameters": {"required": []}}},
]
CALL = [{"id": 7, "function": {"name": "weather", "arguments": {"city": 'Bern "x"\n'}}}]

FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.struct([("city", pa.string())]))])
MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.list_(pa.struct([("id", pa.int64()), ("function", FUNCTION)]))),
        ("name", pa.string()),
    ]
)
PARAMETERS_OF_TOOLS = pa.struct([("required", pa.list_(pa.string())), ("limit", pa.float32())])
TOOL = pa.struct(
    [
        ("type", pa.string()),
        (
            "function",
            pa.struct([("name", pa.string()), ("strict", pa.bool_()), ("parameters", PARAMETERS_OF_TOOLS)]),
        ),
        ("content", pa.string()),
    ]
)
"""The fields in the order of the objects, which templates write; pyarrow would sort them. No tool has a `content`: it
is kept of messages alone."""

Write = Callable[[Path, pa.Table], Path]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chats.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def rows(n: int) -> tuple[list[Any], list[Any]]:
    """Conversations, some with calls of tools, and their tools."""
    made = [chats.conversation(at) for at in range(n)]
    for at in range(0, n, 3):
        calls = {"role": "assistant", "content": None, "tool_calls": CALL}
        made[at] = [*made[at], calls, {"role": "tool", "content": "7 °C", "name": "weather"}]
    tools = [TOOLS if at % 3 == 0 else [] if at % 3 == 1 else None for at in range(n)]
    return made, tools


def parquet(**options: Any) -> Write:
    def writer(path: Path, table: pa.Table) -> Path:
        pq.write_table(table, path / "a.parquet", **{"row_group_size": 7} | options)
        return path / "a.parquet"

    return writer


def arrow(kind: str, compression: str | None = None) -> Write:
    def writer(path: Path, table: pa.Table) -> Path:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with (
            pa.OSFile(str(path / "a.arrow"), "wb") as file,
            new(file, table.schema, options=options) as stream,
        ):
            stream.write_table(table, max_chunksize=7)
        return path / "a.arrow"

    return writer


def arrow_whole(path: Path, table: pa.Table) -> Path:
    with pa.OSFile(str(path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return path / "a.arrow"


def saved(path: Path, table: pa.Table) -> Path:
    datasets.Dataset(table).save_to_disk(str(path / "set"), num_shards=2)
    return path / "set"


WRITERS: dict[str, Write] = {
    "parquet": parquet(),
    "zstd, no dictionary": parquet(compression="zstd", use_dictionary=False, data_page_version="2.0"),
    "small pages": parquet(row_group_size=1000, data_page_size=200, compression="gzip"),
    "stream": arrow("stream"),
    "file": arrow("file"),
    "lz4": arrow("stream", "lz4"),
    "zstd file": arrow("file", "zstd"),
    "save_to_disk": saved,
}


@pytest.mark.parametrize("name", WRITERS)
def test_columns_are_json_lines(tmp_path: Path, tokenizer: Path, name: str) -> None:
    conversations, tools = rows(40)
    lines = write(tmp_path / "a.jsonl", conversations, tools)
    expected = loaded(Chat(lines, template=TEMPLATE, tools="tools"), tokenizer)
    assert len(expected) > 36
    table = pa.table(
        {
            "id": range(40),
            "messages": pa.array(conversations, pa.list_(MESSAGE)),
            "tools": pa.array(tools, pa.list_(TOOL)),
        }
    )
    path = WRITERS[name](tmp_path, table)
    assert loaded(Chat(path, template=TEMPLATE, tools="tools"), tokenizer) == _by_row(expected, path)
    without = loaded(Chat(lines, template=TEMPLATE), tokenizer)
    assert without != expected
    assert loaded(Chat(path, template=TEMPLATE), tokenizer) == _by_row(without, path)


def _by_row(expected: dict[int, Any], path: Path) -> dict[int, Any]:
    """The rows by their number in their shard, of which the last file read counts."""
    return expected if path.is_file() else {at % 20: expected[at] for at in expected}


@pytest.mark.parametrize("kind", ["large", "dictionary", "view", "texts", "json", "fixed", "struct"])
def test_types(tmp_path: Path, tokenizer: Path, kind: str) -> None:
    n = 12
    turns = [("user", "Was it größe? {}"), ("assistant", "It was the one of {}. 😀")]
    conversations = [[{"role": role, "content": text.format(at)} for role, text in turns] for at in range(n)]
    tools = [[json.dumps(tool) for tool in TOOLS]] * n
    lines = write(tmp_path / "a.jsonl", conversations, [TOOLS] * n)
    text = {"large": pa.large_string(), "dictionary": pa.dictionary(pa.int8(), pa.string()), "view": pa.string_view()}
    one = text.get(kind, pa.string())
    message = pa.struct([("role", one), ("content", one)])
    types = {"large": pa.large_list(message), "fixed": pa.list_(message, 2)}
    column, name = pa.array(conversations, types.get(kind, pa.list_(message))), "messages"
    extra: dict[str, pa.Array] = {"tools": pa.array(tools)}
    if kind in {"texts", "json"}:
        column = pa.array([[json.dumps(turn) for turn in turns] for turns in conversations])
        extra["tools"] = pa.array([json.dumps(TOOLS)] * n)
    if kind == "json":
        column = pa.ListArray.from_arrays(column.offsets, pa.ExtensionArray.from_storage(pa.json_(), column.values))
    if kind == "struct":
        column = pa.StructArray.from_arrays([column, pa.array(range(n))], ["turns", "n"])
        name = "messages.turns"
    table = pa.table({"messages": column} | extra)
    expected = loaded(Chat(lines, template=TEMPLATE, tools="tools"), tokenizer)
    assert len(expected) > 10
    # pyarrow can neither slice lists of views nor write them as Parquet.
    whole: list[Write] = [arrow_whole]
    for writer in whole if kind == "view" else [*whole, arrow("stream"), parquet(row_group_size=5)]:
        path = writer(tmp_path, table)
        assert loaded(Chat(path, name, template=TEMPLATE, tools="tools"), tokenizer) == expected


def test_unlike_messages_as_datasets_has_them(tmp_path: Path, tokenizer: Path) -> None:
    """`datasets` has JSON in place of structs whose fields differ in type, and JSON within structs on request."""
    conversations = [chats.conversation(at) for at in range(8)]
    conversations[2] = [*conversations[2], {"role": "assistant", "content": None, "tool_calls": [{"arguments": 1}]}]
    conversations[3] = [*conversations[3], {"role": "assistant", "content": None, "tool_calls": [{"arguments": "a"}]}]
    lines = write(tmp_path / "a.jsonl", conversations)
    expected = loaded(Chat(lines, template=TEMPLATE), tokenizer)
    found = datasets.load_dataset("json", data_files=str(lines), split="train", cache_dir=str(tmp_path / "cache"))
    found.to_parquet(tmp_path / "b.parquet")
    assert loaded(Chat(tmp_path / "b.parquet", template=TEMPLATE), tokenizer) == expected
    found.save_to_disk(str(tmp_path / "set"))
    assert loaded(Chat(tmp_path / "set", template=TEMPLATE), tokenizer) == expected
    json_type = datasets.Json()
    message = {"role": datasets.Value("string"), "content": datasets.Value("string"), "tool_calls": [json_type]}
    within = datasets.Dataset.from_dict(
        {"messages": conversations}, features=datasets.Features({"messages": datasets.List(message)})
    )
    within.to_parquet(tmp_path / "c.parquet")
    within.save_to_disk(str(tmp_path / "within"))
    for path in (tmp_path / "c.parquet", tmp_path / "within"):
        assert loaded(Chat(path, template=TEMPLATE), tokenizer) == expected


def test_bad_rows(tmp_path: Path, tokenizer: Path) -> None:
    good = chats.conversation(1)
    bad: list[tuple[Any, str, str]] = [
        (good, "", ""),
        (None, "unreadable", "null"),
        ([], "empty", "the conversation has no messages"),
        ([None], "corrupt", "message 0 is no object"),
        ([{"role": None, "content": "a"}], "corrupt", "message 0 has no role"),
        ([{"role": "robot", "content": "a"}], "corrupt", "the role robot is none of"),
        ([{"role": "assistant", "content": None}], "corrupt", "message 0 has no content"),
        (good[:-1], "empty", "no answer to train on"),
        ([{"role": "assistant", "content": "\ufdd0"}], "corrupt", "U+FDD0"),
        ([{"role": "assistant", "content": "a", "score": float("nan")}], "corrupt", "a number is NaN"),
    ]
    lines = write(tmp_path / "a.jsonl", [row for row, *_ in bad[:-1]])
    kinds = {}
    with forebay.TokenLoader(Chat(lines, template="gemma"), tokenizer, **PARAMETERS) as found:
        assert set(rows_of(found)) == {0}
        of_lines = {error["row"]: error["kind"] for error in found.errors()}
    for name, writer in [
        ("parquet", parquet(row_group_size=4)),
        ("stream", arrow("stream")),
        ("lz4", arrow("file", "lz4")),
    ]:
        path = writer(tmp_path, pa.table({"messages": [row for row, *_ in bad]}))
        with forebay.TokenLoader(Chat(path, template="gemma"), tokenizer, **PARAMETERS) as found:
            assert set(rows_of(found)) == {0}
            errors = {error["row"]: (error["kind"], error["reason"]) for error in found.errors()}
        assert set(errors) == set(range(1, len(bad))), name
        for at, (_, kind, part) in enumerate(bad[1:], 1):
            assert errors[at][0] == kind, (name, at, errors[at])
            assert part in errors[at][1], (name, at, errors[at])
        kinds[name] = {at: kind for at, (kind, _) in errors.items() if at in of_lines}
    assert all(one == of_lines for one in kinds.values())


def test_text_that_is_not_utf8(tmp_path: Path, tokenizer: Path) -> None:
    """One row is bad, and not its page or batch."""
    content = pa.array([b"good", b"\xff\xfe", b"also"]).view(pa.string())
    messages = pa.StructArray.from_arrays([pa.array(["assistant"] * 3), content], ["role", "content"])
    table = pa.table({"messages": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), messages)})
    for writer in (parquet(), arrow("stream")):
        path = writer(tmp_path, table)
        with forebay.TokenLoader(Chat(path, template="chatml"), tokenizer, **PARAMETERS | {"bos_id": BOS}) as found:
            assert set(rows_of(found)) == {0, 2}
            [error] = found.errors()
        assert error["kind"] == "corrupt"
        assert "a text is not UTF-8" in error["reason"]


def test_a_page_of_a_few_bytes_with_many_values_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    """Each value has a byte of JSON at least, so a row cannot have more of them; it is not decoded."""
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    good = pa.array([[{"role": "assistant", "content": "good"}]], kind)
    n = 5_000_000
    many = pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), pa.nulls(n, kind.value_type))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"messages": pa.chunked_array([good, many])}), path, row_group_size=1, compression="zstd")
    assert path.stat().st_size < 10_000
    with forebay.TokenLoader(Chat(path, template="chatml"), tokenizer, **PARAMETERS | {"bos_id": BOS}) as found:
        assert set(rows_of(found)) == {0}
        [error] = found.errors()
    assert error["kind"] == "too_large"
    assert "at most 67108864 bytes of values are allowed" in error["reason"]


@pytest.mark.parametrize("name", ["parquet", "stream"])
def test_resume_and_ranks(tmp_path: Path, tokenizer: Path, name: str) -> None:
    path = WRITERS[name](tmp_path, pa.table({"messages": [chats.conversation(at) for at in range(300)]}))
    common = PARAMETERS | {"infinite": True, "seq_len": 63, "buffer_size": 20, "seed": 3, "batch_size": 4}
    common |= {"n_streams": 2, "shuffle_min_size": 0, "extras": ["doc_ids"]}

    def loader(**parameters: Any) -> forebay.TokenLoader:
        return forebay.TokenLoader(Chat(path, template="gemma"), tokenizer, **common | parameters)

    exact(loader, 8)


def test_other_types_are_left_out(tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture) -> None:
    messages = [[m | {"time": at, "raw": b"\xff"} for m in chats.conversation(at)] for at in range(8)]
    fields = [("role", pa.string()), ("content", pa.string()), ("time", pa.timestamp("us")), ("raw", pa.binary())]
    table = pa.table({"messages": pa.array(messages, pa.list_(pa.struct(fields)))})
    lines = write(tmp_path / "a.jsonl", [chats.conversation(at) for at in range(8)])
    expected = loaded(Chat(lines, template="chatml"), tokenizer)
    for writer in (parquet(), arrow("stream")):
        path = writer(tmp_path, table)
        caplog.clear()
        with caplog.at_level("INFO"):
            assert loaded(Chat(path, template="chatml"), tokenizer) == expected
        [told] = [record.getMessage() for record in caplog.records if "left out of conversations" in record.message]
        assert "messages[].time (Timestamp(" in told
        assert "messages[].raw (Binary" in told


def test_wrong_columns(tmp_path: Path, tokenizer: Path) -> None:
    good = [chats.conversation(at) for at in range(3)]
    shared = [[{"from": "human", "value": "a"}]] * 3
    table = pa.table({"messages": good, "n": [1, 2, 3], "conversations": shared, "lists": [[[1]]] * 3})
    for writer in (parquet(), arrow("stream")):
        path = writer(tmp_path, table)
        for column, tools, match in [
            ("dialog", None, r'column of forebay.text.Chat is "dialog", but there is no such column; the columns are'),
            ("n", None, 'column "n" is .* and holds no conversations; expected lists of structs with role and content'),
            ("lists", None, 'column "lists" is .* and holds no conversations'),
            ("conversations", None, 'structs with "from", "value", expected role and content; rename the fields'),
            ("messages", "tool", r'tools of forebay.text.Chat is "tool", but there is no such column'),
            ("messages", "n", 'column "n" is .* and holds no tools; expected lists of structs, or texts of JSON'),
        ]:
            with pytest.raises(forebay.ConfigError, match=match):
                forebay.TokenLoader(Chat(path, column, template="chatml", tools=tools), tokenizer, **PARAMETERS)


@pytest.mark.parametrize("name", ["parquet", "stream"])
def test_null_and_empty_conversations(tmp_path: Path, tokenizer: Path, name: str) -> None:
    """They are conversations in the words of errors, as lists and as texts."""
    lists = [chats.conversation(1), None]
    for messages in (lists, [json.dumps(lists[0]), None, ""]):
        path = WRITERS[name](tmp_path, pa.table({"messages": messages}))
        with forebay.TokenLoader(Chat(path, template="chatml"), tokenizer, **PARAMETERS) as found:
            assert set(rows_of(found)) == {0}
            reasons = [error["reason"] for error in found.errors()]
        assert reasons == ["the conversation is null", "the conversation is empty"][: len(messages) - 1]


def test_errors_name_the_source_and_its_file(tmp_path: Path, tokenizer: Path) -> None:
    good = Chat(write(tmp_path / "a.jsonl", [chats.conversation(1)]), template="chatml")
    path = parquet()(tmp_path, pa.table({"n": [1]}))
    for source, match in [
        (Chat(path, "m", template="chatml"), rf'^parquet_files\["b"\], {path}: column of forebay.text.Chat is "m"'),
        (Chat(path, "m", template="{% for"), r'^parquet_files\["b"\]: the chat template cannot be read'),
    ]:
        with pytest.raises(forebay.ConfigError, match=match):
            forebay.TokenLoader({"a": good, "b": source}, tokenizer, **PARAMETERS)
