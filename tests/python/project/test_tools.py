"""`make` says what to install where a tool of the build is missing, before it does anything else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from paths import ROOT

MAKE = shutil.which("make")
TOOLS = ("sh", "make", "cc", "cargo", "python3")

pytestmark = pytest.mark.skipif(MAKE is None, reason="needs make")


def run(folder: Path, *present: str, python: str = "") -> subprocess.CompletedProcess[str]:
    """`make tools` with only these tools in PATH."""
    folder.mkdir()
    for name in ("sh", *present):
        if python and name == "python3":
            (folder / name).write_text(f"#!/bin/sh\n{python}\n")
            (folder / name).chmod(0o755)
        else:
            (folder / name).symlink_to(shutil.which(name) or "/bin/true")
    environment = {"PATH": str(folder), "HOME": os.environ.get("HOME", "/")}
    command = [str(MAKE), "--no-print-directory", "tools"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", ["cc", "cargo", "python3"])
def test_a_missing_tool_is_named(missing: str, tmp_path: Path) -> None:
    found = run(tmp_path / "bin", *(name for name in TOOLS[2:] if name != missing), python="exit 0")
    assert found.returncode != 0
    assert f"not installed or not in PATH: {missing}\n" in found.stderr
    assert "sudo apt-get install --yes build-essential curl python3-venv" in found.stderr
    assert "https://sh.rustup.rs" in found.stderr


def test_python_without_venv(tmp_path: Path) -> None:
    found = run(tmp_path / "bin", *TOOLS[2:], python='case "$2" in *ensurepip*) exit 1;; esac')
    assert "not in PATH: python3-venv\n" in found.stderr


def test_an_old_python(tmp_path: Path) -> None:
    found = run(tmp_path / "bin", *TOOLS[2:], python='case "$2" in *version*) echo "needs 3.11" >&2; exit 1;; esac')
    assert (found.returncode != 0, "needs 3.11" in found.stderr) == (True, True)


def test_all_there(tmp_path: Path) -> None:
    found = run(tmp_path / "bin", *TOOLS[2:], python="exit 0")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_readme_has_the_same_lines() -> None:
    readme, rules = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    assert "sudo apt-get install --yes build-essential curl git python3-venv" in readme
    for line in ("curl -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env",):
        assert line in readme
        assert line in rules
