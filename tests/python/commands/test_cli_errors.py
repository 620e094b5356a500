"""Errors of the commands: one line, with the options of the command in place of Python's parameters."""

import argparse
import base64
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forebay import ConfigError
from forebay._core import _CacheBuild
from forebay.cache import TreeStore
from forebay.cli import main
from forebay.cli.errors import in_options
from paths import DATA
from recordings import tiny_rows, write_shard

TOKENIZER = DATA / "tokens" / "gpt2.tiktoken"


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int | str | None, str]:
    """The exit code and the stderr of a command."""
    try:
        code: int | str | None = main([*map(str, arguments)])
    except SystemExit as ended:
        code = ended.code
    return code, capsys.readouterr().err


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"sound": ["a"]}), tmp_path / "a.parquet")
    code, error = said(capsys, "check", tmp_path / "a.parquet")
    assert code == 2
    assert "name the column with --audio-column" in error
    (tmp_path / "folder").mkdir()
    code, error = said(capsys, "check", tmp_path / "folder")
    assert code == 2
    expected = "in .arrow or .parquet, recordings such as .wav, or .tar archives of them, found none\n"
    assert error.startswith("forebay check: error: SOURCE: ")
    assert error.endswith(expected)
    code, error = said(capsys, "check", "*.arrow")
    assert code == 2
    told = "no file matches the pattern *.arrow (relative to the current folder, "
    assert error.startswith(f"forebay check: error: SOURCE: {told}")
    code, error = said(capsys, "check", "~/a.arrow")
    assert code == 2
    assert error.count("\n") == 1
    assert "~ is not expanded: give the folder's whole path" in error


def test_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"text": ["a"], "other": ["b"]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"words": "one"}\n')
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    to = ["-o", str(tmp_path / "cache")]
    tokens = [*to, "-t", str(TOKENIZER)]
    cases: list[tuple[str, list[str | Path]]] = [
        ("name them in --fields, or give a processor", [tmp_path / "a.parquet", *to]),
        ("; name the column with --text-column", [tmp_path / "a.jsonl", *tokens]),
        ("no file matches the pattern", [tmp_path / "b*.parquet", *tokens]),
        ("", [tmp_path / "a.parquet", *tokens]),
        ("; pass --overwrite to build it again", [tmp_path / "a.parquet", *tokens, "--text-column", "other"]),
        ("", [tmp_path / "a.txt", *tokens, "--split", "val", "--on-error", "skip"]),
        (
            "which --on-error raise forbids; pass --on-error skip to continue it, or --overwrite to build it again",
            [tmp_path / "a.txt", *tokens, "--split", "val"],
        ),
    ]
    for expected, arguments in cases:
        code, error = said(capsys, "build", *arguments)
        wrong_usage = "name them in --fields" in expected or "no file matches" in expected
        assert code == (2 if wrong_usage else 1 if expected else 0), error
        assert expected in error
        assert error.count("\n") == 1
        assert "=True" not in error
        assert "Traceback" not in error


def test_ray_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["build", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c"), "-t", str(TOKENIZER), "--engine", "ray"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "forebay build: error: --engine ray needs Ray: pip install forebay[ray]\n"
    assert main(arguments[:-2]) == 0, "the failed build prevents another one"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("name another with audio_column=", "name another with --audio-column"),
        ('pass on_error="skip", or overwrite=True.', "pass --on-error skip, or --overwrite."),
        ('pass path="/my data" (path="/data")', 'pass --path "/my data" (--path /data)'),
        ("with max_bytes=1000 at most 7", "with --max-bytes 1000 at most 7"),
        # Parameters that the command lacks, and parts of names, are unchanged.
        ("name it with columns=; pass mmap=True", "name it with columns=; pass mmap=True"),
        ("cannot open path=train/0.parquet: gone", "cannot open path=train/0.parquet: gone"),
        ("cannot open /data/path=1/0.parquet", "cannot open /data/path=1/0.parquet"),
        ('the shard "path=" is new', 'the shard "path=" is new'),
        ("the path is 3, must be 4", "the path is 3, must be 4"),
        ("columns is 3, must be 4", "columns is 3, must be 4"),
        # A problem begins with its parameter.
        ("path is 3, must be 4; max_bytes is -1, expected 0", "--path is 3, must be 4; --max-bytes is -1, expected 0"),
        ('made by others: max_bytes was "1" and is "2"', 'made by others: --max-bytes was "1" and is "2"'),
        ('on_error["a b"] is 3, must be 4', "--on-error a b is 3, must be 4"),
    ],
)
def test_parameters_are_options(message: str, expected: str) -> None:
    options = argparse.Namespace(audio_column=None, on_error="raise", overwrite=False, path="a", max_bytes=3)
    assert in_options(ConfigError(message), options) == expected


def test_parameters_with_other_names() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shards", metavar="SHARD")
    parser.add_argument("-o", "--output", dest="path")
    parser.set_defaults(parser=parser, parameters={"columns": "--fields"})
    options = parser.parse_args(["a"])
    message = "shards is 3, must be 4; name it with columns=, or path="
    assert in_options(ConfigError(message), options) == "SHARD is 3, must be 4; name it with --fields, or --output"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "Permission denied", "/a"), "/a: Permission denied"),
        (FileNotFoundError(2, "cannot open /a: No such file", "/a"), "cannot open /a: No such file"),
        (OSError("odd\nlines"), "odd lines"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_error_is_one_line(error: Exception, expected: str) -> None:
    assert in_options(error, argparse.Namespace()) == expected
    error.add_note("A note.")
    assert in_options(error, argparse.Namespace()) == f"{expected}. A note."


def test_wrong_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each problem names an option, and nothing is written."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "tokens.json").write_text('{"<a>": "x"}')
    (tmp_path / "file").touch()
    tokens = ["-t", str(TOKENIZER)]
    to = ["-o", str(tmp_path / "cache")]
    cases: list[tuple[str, list[str | Path]]] = [
        ("--batch-size is 0, must be 1 to ", [*to, *tokens, "--batch-size", "0"]),
        ("--n-workers is 0, must be 1 to ", [*to, *tokens, "-w", "0"]),
        ("--fields x", [*to, "--fields", "x=int7"]),
        ("--split is ", [*to, *tokens, "--split", "a/b"]),
        ("--pattern is for texts", [*to, "--pattern", "x"]),
        ("--special-tokens <a> is neither NAME=ID nor a file", [*to, *tokens, "--special-tokens", "<a>"]),
        (
            "tokens.json is not a JSON object of names and ids",
            [*to, *tokens, "--special-tokens", str(tmp_path / "tokens.json")],
        ),
        ("gives <a> the ids 1 and 2", [*to, *tokens, "--special-tokens", "<a>=1", "--special-tokens", "<a>=2"]),
        ("--val none.txt is neither the name of one of the 1 shards nor a file", [*to, *tokens, "--val", "none.txt"]),
        ("no shard is left beside those of --val", [*to, *tokens, "--val", "a.txt"]),
        ("so does --split val", [*to, *tokens, "--val", "a.txt", "--split", "val"]),
        ("file is a file, must be a folder; give another -o", ["-o", tmp_path / "file", *tokens]),
        ("file is a file, must be a folder; give another -o", ["-o", tmp_path / "file" / "a" / "b", *tokens]),
    ]
    before = sorted(tmp_path.iterdir())
    for expected, arguments in cases:
        code, error = said(capsys, "build", tmp_path / "a.txt", *arguments)
        assert expected in error
        assert (code if "int7" not in str(arguments) else 2, error.count("\n")) == (2, 1), error
    assert sorted(tmp_path.iterdir()) == before


def test_places_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "broken").symlink_to(tmp_path / "gone")
    commands: list[list[str | Path]] = [
        ["build", tmp_path / "a.txt", "-t", TOKENIZER],
        ["check", tmp_path / "a.arrow"],
        ["download", "http://localhost/{}.parquet", "-n", "1"],
    ]
    for command in commands:
        if command[0] != "check":  # whose output is no folder
            code, error = said(capsys, *command, "-o", tmp_path / "broken")
            assert (code, "broken is a link that leads nowhere, must be a folder; give another -o" in error) == (
                2,
                True,
            )
        monkeypatch.chdir(tmp_path)
        code, error = said(capsys, *command, "-o", "~/new")
        assert (code, error.count("\n"), Path("~").exists()) == (2, 1, False)
        assert command[0] == "check" or "~ is not expanded; give the whole path" in error
        monkeypatch.setattr(os, "access", lambda *_: False)
        code, error = said(capsys, *command, "-o", tmp_path / "new")
        assert (code, error.count("\n")) == (2, 1)
        assert f"nothing can be written in {tmp_path}: Permission denied; give another -o" in error
        monkeypatch.undo()
    # A cache of another program.
    (tmp_path / "other" / "train").mkdir(parents=True)
    (tmp_path / "other" / "train" / "mine").touch()
    code, error = said(capsys, *commands[0], "-o", tmp_path / "other")
    assert (code, error.count("\n")) == (1, 1)
    assert "so it is not a cache of forebay; nothing in it was changed" in error


def test_an_interrupted_build_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C the command names the documents that are committed, and continues after them."""

    class Interrupted:
        """A build that is interrupted after a commit, or at its end."""

        identity = staticmethod(_CacheBuild.identity)

        def __init__(self, *arguments: Any, **parameters: Any) -> None:
            self.core = _CacheBuild(*arguments, **parameters)
            self.progress, self.cancel = self.core.progress, self.core.cancel
            self.is_interrupted = False

        def wait(self, seconds: float) -> int | None:
            while not self.is_interrupted:
                self.is_interrupted = self.core.wait(seconds) is not None or self.core.progress()["committed"] > 0
                if self.is_interrupted:
                    raise KeyboardInterrupt
            return self.core.wait(seconds)

    pq.write_table(pa.table({"ids": [[i] for i in range(20_000)]}), tmp_path / "a.parquet")
    command: list[str | Path] = ["build", tmp_path / "a.parquet", "-o", tmp_path / "cache", "--commit-documents", "300"]
    command += ["--commit-seconds", "1e9"]
    monkeypatch.setattr("forebay.cache.building._CacheBuild", Interrupted)
    code, error = said(capsys, *command)
    assert code == 130
    told = re.search(
        rf"^forebay build: (\d+) documents are committed in {tmp_path}/cache/train; the same command continues after "
        r"them$",
        error,
        re.MULTILINE,
    )
    assert told, error
    assert 300 <= int(told[1]) == len(TreeStore(tmp_path / "cache"))
    monkeypatch.undo()
    code, error = said(capsys, *command)
    assert (code, error.startswith("20000 documents in ")) == (0, True)
    code, error = said(capsys, *command[:-1], "0")
    assert code == 2
    assert "is 0.0, must be above 0 and at most 1e9" in error


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, with a good shard of each command and inputs that cannot be used."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), "a.parquet")
    write_shard(tmp_path / "a.arrow", tiny_rows(1))
    (tmp_path / "empty").mkdir()
    for ending in ("arrow", "parquet", "tiktoken"):
        Path(f"empty.{ending}").touch()
        Path(f"words.{ending}").write_text("no such format")
        Path(f"link.{ending}").symlink_to("gone")
        os.mkfifo(f"fifo.{ending}")
    return tmp_path


ODD = [
    ("gone.{}", "No such file|is missing, must be a file|is neither"),
    ("link.{}", "No such file|is a link that leads nowhere, must be a file|is neither"),
    ("fifo.{}", "is a FIFO, must be a file"),
    ("empty", "has no shards|tokenizer.json is missing, must be a file"),
    ("empty.{}", "is empty|contain no rows|is neither"),
    ("words.{}", "is not Parquet|is not Arrow|is neither"),
    ("g*.{}", "no file matches|is missing, must be a file"),
    ("/dev/null", "is a device, must be a file"),
    ("", "it is empty, must be a path; see forebay "),
]


@pytest.mark.parametrize(("name", "expected"), ODD)
@pytest.mark.parametrize("option", ["SHARD", "--val", "--tokenizer", "--special-tokens", "SOURCE", "--checksums"])
def test_inputs_that_cannot_be_used(
    odd: Path, capsys: pytest.CaptureFixture[str], option: str, name: str, expected: str
) -> None:
    """One line, which names the option; nothing is written."""
    good: list[str | Path] = ["build", "a.parquet", "-o", "to", "-t", TOKENIZER]
    commands: dict[str, tuple[list[str | Path], str]] = {
        "SHARD": (["build", name, "-o", "to", "-t", TOKENIZER], "parquet"),
        "--val": ([*good, "--val", name], "parquet"),
        "--tokenizer": (["build", "a.parquet", "-o", "to", "--tokenizer", name], "tiktoken"),
        "--special-tokens": ([*good, "--special-tokens", name], "tiktoken"),
        "SOURCE": (["check", name], "arrow"),
        "--checksums": (["download", "http://localhost/{}", "-n", "1", "-o", "to", "--checksums", name], "tiktoken"),
    }
    command, ending = commands[option]
    if option == "--checksums":
        expected += "|is a folder, must be a file|has no SHA-256|expected are 64 digits"
    if option == "--special-tokens":
        expected += "|is neither NAME=ID nor a file|is not a JSON object"
    before = sorted(odd.iterdir())
    code, error = said(capsys, *(str(part).format(ending) if part == name else part for part in command))
    head = rf"forebay {command[0]}: error: (argument )?(-./)?{option}\b" if option != "--checksums" else ""
    assert re.match(head, error), error
    assert re.search(expected, error), error
    assert option in error
    assert (code, error.count("\n")) == (2, 1), error
    is_begun = option in ("SHARD", "--val") and name in ("empty.{}", "words.{}")  # whose content is wrong
    assert sorted(path for path in odd.iterdir() if not is_begun or path.name != "to") == before
    assert option == "SHARD" or not (odd / "to" / "train").exists()


@pytest.mark.usefixtures("odd")
def test_a_shard_that_cannot_be_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.R_OK)
    for option, command in (("SHARD", ["build", "a.parquet", "-o", "to"]), ("SOURCE", ["check", "a.arrow"])):
        code, error = said(capsys, *command)
        assert (code, error) == (
            2,
            f"forebay {command[0]}: error: {option} {command[1]} cannot be read: Permission denied\n",
        )


@pytest.mark.parametrize(
    "command",
    [
        ["build", "a.parquet", "-o", ""],
        ["check", "a.arrow", "-o", ""],
        ["check", "a.arrow", "--allow-paths", ""],
        ["download", "http://localhost/{}", "-n", "1", "-o", ""],
    ],
)
def test_an_empty_text_is_no_path(odd: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    """It would be the current folder."""
    before = sorted(odd.iterdir())
    code, error = said(capsys, *command)
    assert code == 2
    assert error.startswith(f"forebay {command[0]}: error: argument -")
    assert error.endswith(f": it is empty, must be a path; see forebay {command[0]} --help\n")
    assert sorted(odd.iterdir()) == before


def test_a_bad_val_ends_the_command_before_train_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with it: here the last row of the second file."""
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "b.jsonl").write_text('{"text": "a"}\n' * 10)
    (tmp_path / "val" / "c.jsonl").write_text('{"text": "a"}\n' * 10 + '{"words": "a"}\n')
    command: list[str | Path] = [
        "build",
        tmp_path / "a.parquet",
        "-o",
        tmp_path / "to",
        "-t",
        TOKENIZER,
        "--val",
        tmp_path / "val",
    ]
    code, error = said(capsys, *command)
    assert (code, "--text-column" in error) == (1, True), error
    assert not (tmp_path / "to" / "train").exists()
    (tmp_path / "val" / "c.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "val" / "b.jsonl").unlink()
    code, error = said(capsys, *command, "--overwrite")
    assert (code, len(TreeStore(tmp_path / "to")), len(TreeStore(tmp_path / "to", "val"))) == (0, 1, 1), error


@pytest.mark.filterwarnings("always")
def test_a_warning_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    ranks = tmp_path / "mine.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    command: list[str | Path] = [
        "build",
        tmp_path / "a.txt",
        "-o",
        tmp_path / "to",
        "-t",
        ranks,
        "--pattern",
        ".",
        "--bos-id",
        "300",
    ]
    shown = warnings.showwarning
    code, error = said(capsys, *command)
    assert (code, error.count("\n")) == (0, 2), error
    assert re.match(r"forebay build: warning: --bos-id is 300.*\n1 document in ", error), error
    assert ".py" not in error
    assert warnings.showwarning is shown
