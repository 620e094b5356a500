"""Errors of the commands: one line, with the options of the command in place of Python's parameters."""

import argparse
import re
import sys
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
    assert error.endswith("save_to_disk did not write it; give the shards in it, as FOLDER/*.arrow\n")
    code, error = said(capsys, "check", "*.arrow")
    assert code == 1
    assert "; no file matches the pattern, or it is in quotes, where the shell does not expand it" in error
    assert "glob.glob" not in error


def test_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"text": ["a"], "other": ["b"]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"words": "one"}\n')
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\n")
    to = ["-o", str(tmp_path / "cache")]
    tokens = [*to, "-t", str(TOKENIZER)]
    cases: list[tuple[str, list[str | Path]]] = [
        ("name them in --fields, or give a processor", [tmp_path / "a.parquet", *to]),
        ("name the column with --text-column in ", [tmp_path / "a.jsonl", *tokens]),
        ("no file matches the pattern", [tmp_path / "*.parquet", *tokens]),
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
        assert code == (1 if expected else 0), error
        assert expected in error
        assert "=True" not in error
        assert "Traceback" not in error


def test_ray_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["build", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c"), "-t", str(TOKENIZER), "--engine", "ray"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "forebay build: --engine ray needs Ray: pip install forebay[ray]\n"
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
        ("path is 3, must be 4", "path is 3, must be 4"),
    ],
)
def test_parameters_are_options(message: str, expected: str) -> None:
    options = argparse.Namespace(audio_column=None, on_error="raise", overwrite=False, path="a", max_bytes=3)
    assert in_options(ConfigError(message), options) == expected


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
    assert code == 1
    assert "is 0.0, must be above 0 and at most 1e9" in error
