"""Comments of the Rust files are at most 110 columns wide, like the code."""

import re
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

WIDTH = 110
FOLDERS = ("src", "crates", "tests", "benches", "fuzz/fuzz_targets")


def too_long(path: Path) -> Iterator[int]:
    """Numbers of the comment lines that are too long, without rows of tables and code blocks."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        comment = re.match(r"\s*//[/!]? ?(.*)", line)
        if comment is None:
            is_code = False
        elif comment[1].startswith("```"):
            is_code = not is_code
        elif not is_code and not comment[1].startswith("|") and len(line) > WIDTH:
            yield number


def test_comments() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.rs")]
    assert len(files) > 100
    found = [f"{path.relative_to(ROOT)}:{number}" for path in files for number in too_long(path)]
    assert not found, f"wrap these comments at {WIDTH} columns:\n" + "\n".join(found)


def test_long_lines_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.rs"
    long = "x " * 60
    path.write_text(
        f"// {long}\n//! | {long}\n/// ```\n/// {long}\n/// ```\n    /// {long}\nlet a = 1; // {long}\n//{long}\n"
    )
    assert list(too_long(path)) == [1, 6, 8]
