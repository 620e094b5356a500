"""`forebay completion`: the scripts, in the shells that are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from forebay import cli
from forebay.cli import completion


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(tmp_path: Path, text: str, *words: str) -> list[str]:
    """What bash would complete of the last of `words`."""
    path = tmp_path / "script"
    path.write_text(text)
    line = " ".join(f"'{word}'" for word in words)
    code = (
        f'source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _forebay; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    found = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert not found.stderr
    return found.stdout.split()


def test_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert completed(tmp_path, text, "forebay", "s") == ["show", "stats"]
    assert completed(tmp_path, text, "forebay", "show", "--re") == ["--recipe", "--rejected"]
    assert "birdset" in completed(tmp_path, text, "forebay", "show", "--recipe", "b")
    assert completed(tmp_path, text, "forebay", "bench", "--order", "w") == ["window"]
    assert completed(tmp_path, text, "forebay", "completion", "f") == ["fish"]
    assert completed(tmp_path, text, "forebay", "show", "shards/", "-o", "a") == []  # a file: by bash itself
    assert completed(tmp_path, text, "forebay", "nothing", "--x") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_theirs(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "show" in text
    assert "recipe" in text
    if shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(text)
        subprocess.run([shell, "-n", str(path)], check=True, capture_output=True)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_command_and_option_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    [subparsers] = cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
    for command, parser in subparsers.choices.items():  # type: ignore[union-attr]
        assert command in text
        for action in parser._actions:
            for option in action.option_strings:
                assert (f"-l {option[2:]}" if shell == "fish" and option.startswith("--") else option[1:]) in text


def test_texts_are_quoted() -> None:
    assert completion.quoted("it's a \\ path\n  (default: 3)") == "'it\\'s a \\\\ path'"
