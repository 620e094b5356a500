"""Allocations sized by data or arguments go through `src/fallible_alloc.rs`, which returns an error on failure.

Rust's infallible allocations abort the process on failure. So each such call in `src/` has a size of literals and
constants, or a comment `// bounded: why` on its line or above it; all others go through `fallible_alloc`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

SOURCES = [ROOT / "src", *ROOT.glob("crates/*/src")]

CALLS = re.compile(
    r"\bwith_capacity\((?P<capacity>[^()]*(?:\([^()]*\))?[^()]*)\)"
    r"|(?<!fallible_alloc::)(?<!fn )\bresize\((?P<resize>.*)"
    r"|\bvec!\[[^\]\n]*?;\s*(?P<vec>[^\]]+)\]"
    r"|\.repeat\((?P<repeat>[^)]*)\)"
    r"|(?<!fallible_alloc::)(?<!fn )(?<!try_)\breserve(?:_exact)?\((?P<reserve>.*)"
)
"""Calls that allocate a given size, with the size as a group."""
WRITTEN = re.compile(r"[0-9A-Z_\s+*<()-]+(?:as usize)?")
"""A size that consists of literals and constants."""


def code(path: Path) -> Iterator[tuple[int, str, str]]:
    """The lines outside of tests: number, code, and the comment above or at the end of the line."""
    comment, skipping = "", None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if skipping is not None:
            if line in (f"{skipping}}}", f"{skipping}}};"):
                skipping = None
            continue
        if text.startswith(("#[cfg(test)]", "#[cfg(any(test, fuzzing))]")):
            comment = "test"
            continue
        if comment == "test":
            comment = ""
            if text.endswith("{"):
                skipping = line[: len(line) - len(line.lstrip())]
            elif not text.endswith(";"):
                comment = "test"
            continue
        if text.startswith("//"):
            comment += text
            continue
        before, _, behind = text.partition("// ")
        yield number, before, comment + behind
        comment = ""


def test_code_is_told_from_tests(tmp_path: Path) -> None:
    path = tmp_path / "a.rs"
    path.write_text(
        "fn a() {\n    // bounded: by b.\n    let x = vec![0; n]; // here\n}\n#[cfg(test)]\nmod tests {\n"
        "    fn b() {\n        vec![0; n];\n    }\n}\n#[cfg(test)]\nuse b;\nfn c() {}\n"
    )
    assert [(number, comment) for number, _, comment in code(path)] == [
        (1, ""),
        (3, "// bounded: by b.here"),
        (4, ""),
        (13, ""),
    ]


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of the calls with a variable size and without a `bounded` comment."""
    for number, line, comment in code(path):
        for found in CALLS.finditer(line):
            size = next(group for group in found.groups() if group is not None)
            if not WRITTEN.fullmatch(size) and "bounded:" not in comment:
                yield number, line.strip()


def test_such_calls_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.rs"
    for line, is_found in [
        ("let a = Vec::with_capacity(n);", True),
        ("let a = Vec::with_capacity(b.len() + 1);", True),
        ("let a = BufReader::with_capacity(1 << 20, file);", True),
        ("let a = Vec::with_capacity(MOST);", False),
        ("let a = String::with_capacity(4 * KEPT);", False),
        ("a.resize(n, 0);", True),
        ("fallible_alloc::resize(&mut a, n, 0)?;", False),
        ("let a = vec![0; n];", True),
        ("let a = vec![vec![0; n]; 3];", True),
        ("let a = vec![0u8; 16];", False),
        ("let a = vec![1, 2];", False),
        ("let a = [0; N];", False),
        ('let a = " ".repeat(n);', True),
        ("a.reserve(n);", True),
        ("a.reserve_exact(n);", True),
        ("a.try_reserve(n)?;", False),
        ("fallible_alloc::reserve(&mut a, n)?;", False),
        ("pub(crate) fn reserve<T>(values: &mut Vec<T>, len: usize) {", False),
        ("a.resize(n, 0); // bounded: by the file.", False),
    ]:
        path.write_text(f"{line}\n")
        assert bool(list(calls(path))) == is_found, line


def test_whatever_allocates_by_a_number_can_be_refused_or_is_bounded() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}: {line}"
        for folder in SOURCES
        for path in sorted(folder.rglob("*.rs"))
        if path.name not in ("tests.rs", "naive.rs", "oracle.rs", "fuzz.rs", "fallible_alloc.rs")
        for number, line in calls(path)
    ]
    advice = "use crates/base/src/fallible_alloc.rs, or say why the size is bounded in `// bounded: ...`:"
    assert not found, "\n".join([advice, *found])
