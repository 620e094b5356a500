"""`forebay.text.Documents`: the same batches from every format, bad rows, and what is refused."""

import gzip
import itertools
import json
import logging
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from documents import RANKS, document, loader
from forebay.text import Documents
from served import Server

COUNTS = (600, 300, 280)
"""Documents of each file; a group of lines has 256 rows."""


def texts(number: int) -> list[str]:
    first = sum(COUNTS[:number])
    # Lines of text have no line breaks.
    return [document(first + at) for at in range(COUNTS[number])]


def parquet(path: Path, rows: list[Any], name: str = "text", size: int = 256) -> None:
    pq.write_table(pa.table({"id": range(len(rows)), name: rows}), path, row_group_size=size)


def arrow(path: Path, rows: list[Any], size: int = 256) -> None:
    table = pa.table({"id": range(len(rows)), "text": rows})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=size)


def arrow_views(path: Path, rows: list[Any]) -> None:
    table = pa.table({"text": pa.array(rows, pa.string_view())})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as written:
        written.write_table(table, max_chunksize=256)


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps({"id": at, "text": text}) + "\n" for at, text in enumerate(rows)).encode()


def plain(rows: list[str]) -> bytes:
    return "\r\n \n".join(rows).encode()


def zstd(path: Path, *streams: bytes) -> None:
    path.write_bytes(b"")
    for part in streams:
        with path.open("ab") as file, pa.CompressedOutputStream(file, "zstd") as stream:
            stream.write(part)


WRITERS: dict[str, Callable[[Path, list[Any]], Any]] = {
    "parquet": parquet,
    "arrow": arrow,
    "feather": arrow_views,
    "jsonl": lambda path, rows: path.write_bytes(b"\xef\xbb\xbf" + lines(rows)),
    "txt": lambda path, rows: path.write_bytes(plain(rows)),
}
PACKED: dict[str, Callable[[Path, list[Any]], Any]] = {
    "jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(lines(rows))),
    "jsonl.zst": lambda path, rows: zstd(path, lines(rows)),
    "txt.zst": lambda path, rows: zstd(path, plain(rows)),
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"crop": "carry", "seed": 9, "n_streams": 2, "extras": ["doc_ids", "documents"]},
    {"infinite": False, "stride": "global", "n_streams": 2},
]


def write(folder: Path, ending: str, write: Callable[[Path, list[Any]], Any]) -> list[Path]:
    paths = [folder / f"{number}.{ending}" for number in range(len(COUNTS))]
    for number, path in enumerate(paths):
        write(path, texts(number))
    return paths


def digests(found: forebay.TokenLoader, n: int) -> list[str]:
    return [digest(batch) for batch in itertools.islice(found, n)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[str]]]:
    """The batches of Parquet files, for groups of 256 rows and for a group in each file, by settings."""
    found = []
    for size in (256, 1000):
        folder = tmp_path_factory.mktemp("parquet")
        paths = write(folder, "parquet", partial(parquet, size=size))
        batches = []
        for settings in SETTINGS:
            with loader(paths, val=[], **settings) as one:
                batches.append(digests(one, 30))
        found.append(batches)
    return found


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("ending", [*WRITERS, *PACKED])
def test_every_format_makes_the_same_batches(
    tmp_path: Path, expected: list[list[list[str]]], ending: str, setting: int
) -> None:
    """A compressed file is one group, as a Parquet file of one row group."""
    wanted = expected[ending in PACKED][setting]
    paths = write(tmp_path, ending, (WRITERS | PACKED)[ending])
    parameters = {"val": [], **SETTINGS[setting]}
    with loader(paths, n_workers=1, **parameters) as found:
        states, made = [], []
        for batch in itertools.islice(found, 30):
            made.append(digest(batch))
            states.append(json.loads(json.dumps(found.state_dict())))
    assert made == wanted
    for at in range(0, len(made), 7):
        with loader(paths, n_workers=3, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert digests(resumed, len(made) - at - 1) == wanted[at + 1 :]


@pytest.mark.parametrize("ending", ["arrow", "jsonl", "jsonl.zst"])
def test_ranks_share_the_groups(tmp_path: Path, ending: str) -> None:
    paths = write(tmp_path, ending, (WRITERS | PACKED)[ending])
    common = {"val": [], "n_streams": 2, "seed": 4, "shuffle_min_size": 0}
    with loader(paths, batch_size=4, **common) as alone:
        whole = [batch["inputs"].tolist() for batch in itertools.islice(alone, 8)]
        state = alone.state_dict()
        later = [batch["inputs"].tolist() for batch in itertools.islice(alone, 4)]
    parts, states = [], []
    for rank in range(2):
        with loader(paths, batch_size=2, rank=rank, world_size=2, **common) as part:
            parts.append([batch["inputs"].tolist() for batch in itertools.islice(part, 8)])
            states.append(part.state_dict())
        with loader(paths, batch_size=2, rank=rank, world_size=2, **common) as part:
            part.load_state_dict(state)
            assert [batch["inputs"].tolist() for batch in itertools.islice(part, 4)] == [
                batch[2 * rank : 2 * rank + 2] for batch in later
            ]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole
    with loader(paths, batch_size=4, **common) as alone:
        alone.load_state_dict(states)
        assert [batch["inputs"].tolist() for batch in itertools.islice(alone, 4)] == later


def test_streams_in_a_file_are_groups(tmp_path: Path) -> None:
    rows = [document(number) for number in range(1000)]
    parts = [lines(rows[:300]), lines(rows[300:320]), lines(rows[320:600]), lines(rows[600:])]
    zstd(tmp_path / "a.jsonl.zst", *parts)
    (tmp_path / "b.jsonl.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    with loader(tmp_path, val=[], extras=["documents"], crop="carry", infinite=False) as found:
        places = {(shard, group, row) for batch in found for _, _, shard, group, row, _ in batch["documents"].tolist()}
    starts: dict[tuple[int, int], int] = {}
    for shard, group, row in places:
        starts[shard, group] = min(row, starts.get((shard, group), row))
    # The second stream has too few rows for a group.
    assert starts == {(shard, at): row for shard in (0, 1) for at, row in enumerate([0, 300, 600])}


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_bad_rows_are_left_out_and_listed(tmp_path: Path, ending: str) -> None:
    rows: list[Any] = ["one two three", None, "", "four five six"] * 60
    path = tmp_path / f"a.{ending}"
    WRITERS[ending](path, rows)
    with loader(path, val=[], infinite=False, crop="carry", extras=["documents"]) as found:
        kept = {row % 4 for batch in found for row in batch["documents"][:, 4].tolist()}
        errors = {error["row"]: error["kind"] for error in found.errors()}
    assert kept == {0, 3}
    assert errors == {row: "unreadable" if row % 4 == 1 else "empty" for row in range(240) if row % 4 in (1, 2)}
    with loader(path, val=[], infinite=False, on_error="raise") as found, pytest.raises(forebay.DecodeError) as raised:
        list(found)
    assert raised.value.args
    assert "null" in str(raised.value)


def test_bad_lines(tmp_path: Path) -> None:
    good = '{"text": "some words of a document"}'
    bad = {
        '{"text": 3}': ("corrupt", "is a number, expected a text"),
        '{"text": ["a"]}': ("corrupt", "is a list, expected a text"),
        '{"txt": "a"}': ("unreadable", 'there is no field "text"'),
        '{"text": "a"': ("corrupt", "the line is not JSON, expected an object such as"),
        '{"text": ?}': ("corrupt", "expected value at column 10"),
        '"a"': ("corrupt", "the line is a text, expected an object"),
        '{"text": "\\ud800"}': ("corrupt", "the line is not JSON"),
    }
    every = [line for number, line in enumerate(bad) for line in [good] * (number + 9) + [line]]
    (tmp_path / "a.jsonl").write_text("\n\n".join(every))
    with loader(tmp_path, val=[], infinite=False, crop="carry") as found:
        assert sum(1 for _ in found) > 2
        errors = found.errors()
    assert [error["row"] for error in errors] == [at for at, line in enumerate(every) if line != good]
    for error, (kind, part) in zip(errors, bad.values(), strict=True):
        assert error["kind"] == kind
        assert part in error["reason"]
        assert error["shard"].endswith("a.jsonl")
    with loader(tmp_path, val=[], infinite=False, max_errors=3) as found, pytest.raises(forebay.DecodeError):
        list(found)


def test_a_file_that_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, pack in {"a.jsonl.gz": gzip.compress, "b.jsonl.zst": None}.items():
        rows = lines([f"{number} " * 40 for number in range(40_000)])
        path = tmp_path / name
        if pack is None:
            zstd(path, rows)
        else:
            path.write_bytes(pack(rows))
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with caplog.at_level(logging.WARNING, "forebay"), loader(path, val=[]) as found:
            next(found)
            assert 1000 < found.num_documents < 40_000
            assert "cut off" in str(found.shards[0]["damage"])
        assert any("cut off" in record.message and name in record.message for record in caplog.records)
        path.write_bytes(whole[:20])
        with pytest.raises(forebay.DecodeError, match="cut off"):
            loader(path, val=[])
        path.write_bytes(b"no compressed stream at all")
        with pytest.raises(forebay.DecodeError, match="stream, as its name says"):
            loader(path, val=[])


@pytest.mark.parametrize("ending", ["arrow", "feather", "parquet"])
def test_columns_that_are_nested_too_deeply(tmp_path: Path, ending: str) -> None:
    def write(levels: int) -> Path:
        deep: Any = pa.string()
        for _ in range(levels):
            deep = pa.struct([("a", deep)])
        table = pa.table({"text": ["some words"] * 900, "deep": pa.nulls(900, deep)})
        path = tmp_path / f"{levels}.{ending}"
        if ending == "parquet":
            pq.write_table(table, path)
        else:
            new = pa.ipc.new_file if ending == "feather" else pa.ipc.new_stream
            with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as out:
                out.write_table(table)
        return path

    with loader(write(60), val=[]) as found:
        next(found)
    too_deep = 64 if ending == "parquet" else 61
    limit = r"nested deeper than the limit, \d\d levels"
    with pytest.raises(forebay.ConfigError, match=rf"{too_deep}\.{ending}.* columns are {limit}"):
        loader(write(too_deep), val=[])


def test_folders(tmp_path: Path) -> None:
    """Of several formats in a folder the first is read: a README.txt beside shards is no document."""

    def shards(given: Any, **parameters: Any) -> list[str]:
        with loader(given, **{"val": [], **parameters}) as found:
            return [Path(shard["path"]).name for shard in found.shards]

    for ending in ("txt", "jsonl", "arrow", "parquet"):
        write(tmp_path, ending, WRITERS[ending])
        assert shards(tmp_path) == [f"{number}.{ending}" for number in range(3)]
        assert shards(tmp_path, val="1.*", split="val") == [f"1.{ending}"]
    assert shards(tmp_path / "*.jsonl") == ["0.jsonl", "1.jsonl", "2.jsonl"]
    with pytest.raises(forebay.ConfigError, match=r"is Arrow and .* is JSON lines; name files of one format"):
        shards(tmp_path / "0.*")
    (tmp_path / "data.csv").write_text("text\na\n")
    with pytest.raises(forebay.ConfigError, match=r"is not Parquet, Arrow, JSON lines or text"):
        shards(tmp_path / "data.csv")
    (tmp_path / "empty.jsonl").write_text("\n \n")
    with pytest.raises(forebay.ConfigError):
        shards(tmp_path / "empty.jsonl")


def test_a_saved_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [document(number) for number in range(500)]
    datasets.Dataset.from_dict({"text": rows}).save_to_disk(tmp_path / "saved", num_shards=2)
    with loader(tmp_path / "saved", val=[], infinite=False, crop="carry") as found:
        assert found.num_documents == 500
        n = sum(int((batch["inputs"] == 256).sum()) for batch in found)
    assert n >= 480


def test_columns(tmp_path: Path) -> None:
    rows = [{"text": 3, "m": {"t": document(number)}, "body": document(number)} for number in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet(tmp_path / "a.parquet", [row["body"] for row in rows], "body")

    def batches(given: Any, **parameters: Any) -> list[str]:
        with loader(given, val=[], **parameters) as found:
            copy = pickle.loads(pickle.dumps(found))
            made = digests(found, 3)
            assert digests(copy, 3) == made
            copy.close()
            return made

    wanted = batches(tmp_path / "a.parquet", text_column="body")
    source = Documents(tmp_path / "a.jsonl", column="m.t")
    assert batches(source) == batches([tmp_path / "a.jsonl"], text_column="m.t") == wanted
    assert batches(Documents([tmp_path / "a.parquet"], column="body"), text_column="body") == wanted
    assert pickle.loads(pickle.dumps(source)) == source
    assert repr(Documents("a/*.jsonl", column="b")) == "Documents(path='a/*.jsonl', column='b')"
    with pytest.raises(forebay.ConfigError, match=r'text_column is "body", but parquet_files names the column "m\.t"'):
        batches(source, text_column="body")
    with pytest.raises(forebay.ConfigError, match='no field "body2" in the first line, which has "text", "m", "body"'):
        batches(Documents(tmp_path / "a.jsonl", column="body2"))
    with pytest.raises(forebay.ConfigError, match='column is "", must be the name'):
        Documents("a.jsonl", column="")
    with pytest.raises(TypeError, match="path is 3"):
        Documents(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean column"):
        Documents("a.jsonl", colum="a")  # type: ignore[call-arg]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.zst", "arrow"])
def test_by_url(tmp_path: Path, ending: str) -> None:
    (tmp_path / "served").mkdir()
    paths = write(tmp_path / "served", ending, (WRITERS | PACKED)[ending])
    with loader(paths, val=[]) as found:
        wanted = digests(found, 20)
    with Server(tmp_path / "served", fails_every=7) as server:
        urls = [f"{server.url}/{path.name}" for path in paths]
        with loader(urls, val=[], cache_dir=tmp_path / "cache") as found:
            assert digests(found, 20) == wanted


def test_a_file_kept_for_validation_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where few files make it a large part of the data, and only if nobody chose it."""
    for number in range(10):
        (tmp_path / f"{number}.jsonl").write_bytes(lines(["a text"]))
    files = sorted(tmp_path.iterdir())
    told = "9.jsonl, the last of 4 files, is kept for validation; pass val=[] to train on all files"
    few = files[-4:]
    cases: list[tuple[list[Path], dict[str, Any], int]] = [
        (few, {}, 1), (files, {}, 0), (few, {"val": []}, 0), (few, {"val": ["9.jsonl"]}, 0), (few, {"split": "val"}, 0),
    ]  # fmt: skip
    for given, options, n_told in cases:
        caplog.clear()
        forebay.TokenLoader(given, RANKS, batch_size=1, seq_len=4, **options).close()
        assert sum(told in message for message in caplog.messages) == n_told, (options, caplog.messages)
