"""`forebay build`, and what the commands share: `--json -`, help with examples."""

import contextlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forebay import __version__, cache, cli
from forebay.tokens import Tokenizer
from paths import DATA
from recordings import Row, tiny_rows, write_shard

GPT2 = DATA / "tokens" / "gpt2.tiktoken"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three shards of one document each, which is the name of its shard."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for name in ("1", "2", "10"):
        pq.write_table(pa.table({"text": [name]}), folder / f"{name}.parquet")
    return folder


def documents(path: Path, split: str, tokenizer: Tokenizer | None = None) -> list[str]:
    """The documents of a split, found by their ids."""
    tokenizer = tokenizer or Tokenizer(GPT2)
    names = {tuple(tokenizer.encode(name).tolist()): name for name in ("1", "2", "10")}
    store = cache.TreeStore(path, split)
    return [names[tuple(store[row]["input_ids"][1:].tolist())] for row in range(len(store))]


def summary(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON, which is all of standard output, and standard error."""
    with contextlib.suppress(SystemExit):
        cli.main([*map(str, arguments), "--json", "-"])
    said = capsys.readouterr()
    [line] = said.out.splitlines()
    found = json.loads(line)
    assert found.pop("forebay") == __version__
    assert found.pop("seconds") >= 0
    assert found.pop("command") == arguments[0]
    return found.pop("exit_code"), found, said.err


@pytest.mark.parametrize(
    ("val", "train", "expected"),
    [
        (["10.parquet"], ["1", "2"], ["10"]),
        (["{folder}/2.parquet"], ["1", "10"], ["2"]),
        (["1*.parquet"], ["2"], ["1", "10"]),
        (["{folder}/*0.parquet", "2.parquet"], ["1"], ["10", "2"]),
        (["{other}"], ["1", "2", "10"], ["2"]),
    ],
)
def test_validation(
    shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    val: list[str],
    train: list[str],
    expected: list[str],
) -> None:
    """`--val` names shards, by name or path, or other files; the same command does nothing the second time."""
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"text": ["2"]}), other / "x.parquet")
    named = [argument for name in val for argument in ("--val", name.format(folder=shards, other=other))]
    command: list[str | Path] = ["build", shards, "-t", GPT2, "-o", tmp_path / "cache", *named, "--batch-size", "1"]
    splits = [
        {"split": "train", "documents": len(train), "left_out": 0},
        {"split": "val", "documents": len(expected), "left_out": 0},
    ]
    for _ in range(2):
        assert summary(capsys, *command)[:2] == (0, {"path": str(tmp_path / "cache"), "splits": splits})
        assert documents(tmp_path / "cache", "train") == train
        assert documents(tmp_path / "cache", "val") == expected


def test_rank_files_of_other_names(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.tiktoken"
    mine.write_bytes(GPT2.read_bytes())
    (tmp_path / "tokens.json").write_text('{"<|bos|>": 50300, "<|end|>": 50301}')
    command: list[str | Path] = ["build", shards, "-t", mine]
    pattern = r"\S+|\s+"
    code, found, error = summary(capsys, *command, "-o", tmp_path / "a")
    assert (code, error.count("\n")) == (2, 1)
    assert "--pattern" in found["error"]
    assert "--special-tokens" in found["error"]
    assert not re.search(r"\w=( |,|;|$)", found["error"])
    for number, tokens in enumerate((["<|bos|>=50300"], [str(tmp_path / "tokens.json")], ["<|end|>=1000000"])):
        options = [part for token in tokens for part in ("--special-tokens", token)]
        more = ["--bos-id", "50256"] if number == 2 else []
        path = tmp_path / f"cache-{number}"
        code, found, error = summary(capsys, *command, "-o", path, "--pattern", pattern, *options, *more)
        assert code == 0, error
        assert cache.TreeStore(path)[0]["input_ids"][0] == (50256 if number == 2 else 50300)
        special = {"<|bos|>": 50300} if number < 2 else {"<|end|>": 1000000}
        assert documents(path, "train", Tokenizer(mine, pattern=pattern, special_tokens=special, bos_id=1))[0] == "1"


def test_check_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_shard(tmp_path / "a.arrow", [*tiny_rows(3), Row(b"not a recording")])
    code, found, error = summary(capsys, "check", path, "-o", tmp_path / "report")
    report = json.loads((tmp_path / "report.json").read_text())
    assert (code, found["summary"], found["damaged"]) == (1, report["summary"], [])
    assert found["report"] == {"json": str(tmp_path / "report.json"), "csv": str(tmp_path / "report.csv")}
    assert "4 recordings" in error
    code, found, error = summary(capsys, "check", tmp_path / "gone.arrow", "-o", tmp_path / "report")
    assert code == 2
    assert error == f"forebay check: error: {found['error']}\n"
    code, found, error = summary(capsys, "check", path, "-o", tmp_path / "gone" / "report")
    assert (code, list(found)) == (2, ["error"])


def test_folders_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_shard(tmp_path / "a.arrow", tiny_rows(3))
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", str(path), "--allow-paths", str(tmp_path / "gone"), "-o", str(tmp_path / "report")])
    assert ended.value.code == 2
    assert "gone is missing, must be a folder" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["build", "check", "download"])
def test_help_has_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    examples = re.findall(r"^  forebay (.+)$", text.replace("\\\n", ""), re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        words = shlex.split(example.split(" > ")[0])
        words = ["." if word == "/data/recordings" else word for word in words]  # a folder that is there
        assert cli.parser().parse_args(words).run
    assert "exit codes: 0 done" in text
    assert "%(" not in text


@pytest.mark.parametrize("wrong", [["--text-column", "nope"], ["--fields", "nope"]])
def test_a_wrong_column_leaves_nothing(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    """Of a cache that did not exist; files of the user and other splits stay."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    done = tmp_path / "done"
    assert summary(capsys, "build", shards, "-t", GPT2, "-o", done)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    tokenizer = ["-t", str(GPT2)] if wrong[0] == "--text-column" else []
    for path in (tmp_path / "new" / "deep", mine, done):
        code, found, _ = summary(capsys, "build", shards, *tokenizer, "-o", path, "--split", "other", *wrong)
        assert code == 2
        assert "nope" in found["error"]
    assert not (tmp_path / "new").exists()
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*") if path != done} == before
    code, found, _ = summary(capsys, "build", shards, "-t", GPT2, "-o", tmp_path / "new", "--split", "other")
    assert code == 0, found
