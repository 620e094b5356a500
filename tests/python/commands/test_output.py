"""The output of commands: where it cannot go, and what names of files and labels may not do to a terminal."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import cli
from forebay.cli import bench
from recordings import tiny_rows, write_shard
from tables import write_recordings, write_table

ROW = {"n_workers": 2, "n_readers": bench.READERS, "examples_per_s": 900.0}
COMMAND = Path(sys.executable).parent / "forebay"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_shard(tmp_path / "a.arrow", tiny_rows(4))


def run(*arguments: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **more)


@pytest.mark.parametrize("command", [["inspect"], ["inspect", "--json", "-"], ["index"], ["check", "-o", "report"]])
def test_a_full_disk_is_one_line(shard: Path, command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        found = run(*command, shard, stdout=full, cwd=shard.parent)
    assert found.returncode == 1
    assert found.stderr.endswith("error: cannot write the output: No space left on device\n")
    assert "Traceback" not in found.stderr
    assert "SOURCE" not in found.stderr


@pytest.mark.parametrize("command", ["inspect", "index"])
def test_a_reader_that_left_is_no_error_to_report(shard: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        found = run(command, shard, stdout=closed)
    assert (found.returncode, found.stderr) == (1, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_error(shard: Path, closed: str) -> None:
    """As of a job without a terminal."""
    for command in (["inspect"], ["stats"], ["index"], ["check", "-o", "report"], ["bench", "--seconds", "0.1"]):
        words = [sys.executable, "-m", "forebay", *command, shard.name]
        shell = f"{shlex.join(words)} {closed}"
        found = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False, cwd=shard.parent)
        assert (found.returncode, "Traceback" in found.stderr) == (0, False), found.stderr


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "a", "--row", "x"], ["nothing"], ["inspect", ""]])
@pytest.mark.parametrize("option", [["--json", "-"], ["--json=-"]])
def test_wrong_usage_has_json_too(arguments: list[str], option: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, *option])
    out, err = capsys.readouterr()
    assert ended.value.code == json.loads(out)["exit_code"] == 2
    assert err.count("\n") == 1
    assert json.loads(out)["error"] in err


def test_names_of_files_cannot_control_a_terminal(tmp_path: Path) -> None:
    """In errors and log records."""
    folder = tmp_path / "\x1b[31mred"
    folder.mkdir()
    (folder / "\x1b]0;title\x07.ogg").write_bytes(b"no recording")
    page = ["-o", tmp_path / "page.html"]
    commands = (["inspect", "--row", 0], ["show", *page], ["stats"], ["bench", "--seconds", 0.1], ["index"], ["check"])
    for command in commands:
        found = run(*command, folder, stdout=subprocess.PIPE, cwd=tmp_path)
        assert "\\x1b[31mred" in found.stdout + found.stderr or command[0] == "show", command
        assert not {"\x1b", "\x07"} & set(found.stdout + found.stderr), command


def test_a_name_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    """As in a job whose locale is C, and of a name that is not UTF-8."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    write_recordings(folder / "комар", 2)
    page = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe.html"))
    for encoding in ("ascii", "utf-8"):
        for command in (["inspect", "--row", 0], ["show", "-o", page], ["index"]):
            env = {**os.environ, "PYTHONIOENCODING": encoding}
            found = run(*command, folder, stdout=subprocess.PIPE, env=env)
            assert (found.returncode, found.stderr) == (0, ""), found.stderr
        page.unlink()


def test_a_missing_file_is_named_once(tmp_path: Path) -> None:
    found = run("inspect", os.fsdecode(b"gone\xff"), stdout=subprocess.PIPE, cwd=tmp_path)
    assert (found.returncode, found.stderr.count("gone")) == (2, 1), found.stderr


def test_a_page_is_whole_or_not_there(shard: Path) -> None:
    """The disk is full at 4 KB."""
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
    for command in (["show", "-o", "page.html"], ["inspect", "--png", "page.png"]):
        program = f"{limited}from forebay import cli; sys.exit(cli.main({[*command, shard.name]}))"
        found = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=shard.parent
        )
        assert (found.returncode, found.stderr.count("\n")) == (1, 1), found.stderr
        assert f"{command[-1]}: File too large" in found.stderr
        assert list(shard.parent.iterdir()) == [shard]


def test_labels_cannot_control_a_terminal(tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "audio", 2)
    rows = [{"path": f"audio/{name}", "label": "\x1b[31mred\x1b]0;title\x07\x9b"} for name in names]
    table = write_table(tmp_path / "t.csv", rows)
    for arguments in (["inspect", table, "--row", "0"], ["inspect", table, "--balance", "label"], ["index", table]):
        found = run(*arguments, stdout=subprocess.PIPE)
        assert found.returncode == 0, found.stderr
        assert not {"\x1b", "\x07", "\x9b"} & set(found.stdout + found.stderr)
        assert "\\x1b[31mred" in found.stdout


def test_an_interrupted_command_writes_its_json(monkeypatch: pytest.MonkeyPatch, shard: Path, capsys: Any) -> None:
    from forebay import cli
    from forebay.cli import inspect

    def interrupted(*_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(inspect, "holdings", interrupted)
    assert cli.main(["inspect", str(shard), "--json", "-"]) == 130
    written = json.loads(capsys.readouterr().out)
    assert (written["exit_code"], written["error"]) == (130, "interrupted")


def test_options_are_not_abbreviated(shard: Path) -> None:
    found = run("show", shard, "-o", shard.parent / "a.html", "--row", 3)
    assert found.returncode == 2
    assert found.stderr.startswith("forebay show: error: unrecognized arguments: --row")
    assert found.stderr.endswith("; see forebay show --help\n")


def test_an_error_about_a_trace_does_not_quote_the_file(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(b"\xff" * 100_000)
    with pytest.raises(forebay.ConfigError, match="is not a trace") as refused:
        forebay.plot.timeline(tmp_path / "trace.json")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("start", [[str(COMMAND)], ["-m", "forebay"]])
def test_ctrl_c_while_modules_are_imported_is_one_line(start: list[str], tmp_path: Path) -> None:
    """The import of numpy, the first one of the package, gets the signal."""
    (tmp_path / "numpy.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(1000):\n    pass\nraise ImportError"
    )
    found = subprocess.run(
        [sys.executable, *start, "inspect", "gone"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (130, "\nforebay: interrupted\n")


@pytest.mark.parametrize(
    ("name", "start"),
    [("mine.py", ["-m", "mine", "-m", "forebay"]), ("forebay", ["forebay"]), ("__main__.py", ["../forebay"])],
)
def test_ctrl_c_is_that_of_the_user_while_their_program_imports_forebay(
    name: str, start: list[str], tmp_path: Path
) -> None:
    """Also if it is run by `python -m`, is a script of the same name, or one in a folder of that name."""
    folder = tmp_path / "forebay"
    folder.mkdir()
    (folder / name).write_text(
        "import signal, forebay\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    subprocess.run([sys.executable, *start], check=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)})


@pytest.mark.parametrize("n", [0, 1, 3, 20])
def test_ctrl_c_is_that_of_children_of_the_command(n: int, tmp_path: Path) -> None:
    """Those of multiprocessing have the arguments of their parent, which may be more than their own."""
    (tmp_path / "child.py").write_text(
        "import multiprocessing, signal, sys\n"
        "def kept():\n"
        "    import forebay\n"
        "    sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)\n"
        "def main():\n"
        "    child = multiprocessing.get_context('spawn').Process(target=kept)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    sys.exit(child.exitcode)\n"
    )
    script = tmp_path / "forebay"
    script.write_text("import child  # forebay._command\nif __name__ == '__main__':\n    child.main()")
    subprocess.run([sys.executable, script, *"x" * n], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """As of a command that a shell runs in the background."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from forebay._command import main; code = main(); "
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN; sys.exit(code)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert found.stdout.startswith("usage: forebay")


def test_the_command_is_installed() -> None:
    found = subprocess.run([COMMAND, "--version"], capture_output=True, check=True)
    assert found.stdout.decode() == f"forebay {forebay.__version__}\n"


@pytest.mark.parametrize("command", [None, *(command.__name__.rpartition(".")[2] for command in cli.COMMANDS)])
def test_helps_fit_in_80_columns(
    command: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["--help"] if command is None else [command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 10
    # The default of --folder is this machine's.
    assert not [line for line in lines if len(line) > 80 and str(Path.home()) not in line]


def test_sentences_of_tables_are_wrapped() -> None:
    verdict = f"CPU-bound (decoding): {'workers work 100 % of the time, ' * 6}"
    lines = [
        line for wrapped in bench.lines([ROW | {"verdict": verdict}], {}, "2 cores", 64) for line in wrapped.split("\n")
    ]
    assert max(map(len, lines)) <= 80
    begin = len("          2     900.0  ") + 2
    assert [len(line) - len(line.lstrip()) for line in lines[3:5]] == [begin, begin]
    assert "".join(line.strip() + " " for line in lines[2:-2]).split() == ["2", "900.0", *verdict.split()]
