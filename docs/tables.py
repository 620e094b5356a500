"""Writes the signatures in the stub and the tables in docs/parameters.md from the tables of parameters.

`python docs/tables.py` rewrites both files with the installed forebay. `--check` only prints the differences;
`tests/python/project/test_signature.py` runs it. The tables are `loader.rs`, `tokens.rs` and `datasets.rs` in
`crates/loader/src/config`.
"""

import argparse
import difflib
import re
import sys
from pathlib import Path
from typing import Any

from forebay import _core

ROOT = Path(__file__).parents[1]
STUB = ROOT / "python/forebay/_core.pyi"
PAGE = ROOT / "docs/parameters.md"

Row = dict[str, Any]

GROUPS = {
    "What is read": (
        "audio missing_audio independent audio_column track label_column targets columns outputs sampling n_samples "
        "exclude weights mixture_block stop"
    ),
    "Clips and features": (
        "sample_rate clip_seconds crop augment features n_mels n_fft hop_length n_frames dtype layout"
    ),
    "Batches, order, resume": (
        "batch_size batching infinite drop_last seed order shuffle_min_size era_length n_streams rank world_size"
    ),
    "Bad recordings": (
        "on_error on_io_error max_errors max_consecutive_errors max_record_bytes max_decoded_seconds damage max_damage"
    ),
    "Speed and memory": (
        "n_workers cpu_budget cpus worker_nice prefetch_batches shuffle_buffer_size n_readers raw_channel_size "
        "raw_channel_bytes memory_budget mmap stall_warning_s"
    ),
    "Files and servers": "allow_paths storage_options cache_dir cache_bytes",
}
"""The parameters of `Loader` by purpose, in the order of docs/parameters.md."""
SINCE = {"0.2": "audio batching cpus damage independent max_damage missing_audio track"}
"""The parameters that a version has added; the others are as old as 0.1."""
BEGIN, END = "<!-- tables of `make tables` -->\n", "<!-- end of the tables -->\n"


def annotated(row: Row) -> str:
    """A parameter as in a signature: `name: type = default`."""
    default = "" if row["default"] is None else f" = {ast_literal(row['default'])}"
    return f"{row['name']}: {row['annotation']}{default}"


def ast_literal(source: str) -> str:
    """A default as `repr` writes it: without underscores between digits."""
    return source.replace("_", "") if source[0].isdigit() else source


def signature(rows: list[Row]) -> str:
    """The parameters of `__new__` after `cls`, one line each."""
    lines = []
    for before, row in zip([None, *rows], rows, strict=False):
        if row["is_keyword_only"] and not (before and before["is_keyword_only"]):
            lines.append("*")
        lines.append(annotated(row))
    return "".join(f"        {line},\n" for line in lines)


def stub(text: str) -> str:
    """The text of the stub with the signatures of the tables."""
    for name, rows in _core._parameters().items():
        [heading] = re.finditer(rf"^class {name}\b", text, re.MULTILINE)
        start = text.index("        cls,\n", heading.end()) + len("        cls,\n")
        text = text[:start] + signature(rows) + text[text.index("    ) -> Self: ...\n", start) :]
    rows = _core._parameters()["Loader"]
    overrides = [f"    {row['name']}: {row['annotation']}\n" for row in rows if row["default"] is not None]
    return replaced(text, "class _Overrides(TypedDict, total=False):\n", "    ", overrides)


def replaced(text: str, heading: str, begin: str, lines: list[str]) -> str:
    """The text with `lines` in place of the lines after `heading` that begin with `begin`."""
    before, found, after = text.partition(f"\n{heading}")
    assert found, heading
    rest = after.splitlines(keepends=True)
    kept = next(i for i, line in enumerate(rest) if not line.startswith(begin))
    return before + found + "".join([*lines, *rest[kept:]])


def summary(row: Row) -> str:
    """The first sentence of the documentation, and the sentences that define True, False, None or "auto"."""
    docs = " ".join(line.strip() for line in row["docs"].splitlines())
    first, *others = re.split(r"(?<=[.)])(?<!\.\.\.) (?=[A-Z`])", docs)
    value = r"(True|False|None)\b"
    kept = [first, *(one for one in others if re.match(rf'({value}( or {value})?|`"auto"`): ', one))]
    text = "; ".join(one.removesuffix(".") for one in kept)
    if text[1].islower() and not re.match(value, text):
        text = text[0].lower() + text[1:]
    return re.sub(rf"\b{value}(?= or [TFN]|: )", r"`\1`", text).replace("|", "\\|")


def page(text: str) -> str:
    """The text of the page with the tables of `Loader`'s parameters, one for each group."""
    rows = {row["name"]: row for row in _core._parameters()["Loader"] if row["default"] is not None}
    groups = {name: names.split() for name, names in GROUPS.items()}
    grouped = [name for names in groups.values() for name in names]
    if sorted(grouped) != sorted(rows):
        raise SystemExit(f"GROUPS in docs/tables.py and Loader differ in {', '.join(rows.keys() ^ set(grouped))}")
    since = {name: version for version, names in SINCE.items() for name in names.split()}
    if unknown := since.keys() - rows.keys():
        raise SystemExit(f"SINCE in docs/tables.py has parameters that Loader has not: {', '.join(unknown)}")
    tables = []
    for name, names in groups.items():
        tables.append(f"### {name}\n\n| parameter | default | meaning | since |\n|---|---|---|---|\n")
        for row in map(rows.__getitem__, names):
            version = since.get(row["name"], "0.1")
            tables.append(f"| `{row['name']}` | `{ast_literal(row['default'])}` | {summary(row)} | {version} |\n")
        tables.append("\n")
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + "".join(tables) + END + rest.split(END)[1]


def main() -> int:
    """Rewrites both files (returns 0), or with `--check` returns the number of files that differ."""
    parser = argparse.ArgumentParser(description="Writes the stub's signatures and the page's tables.")
    parser.add_argument("--check", action="store_true", help="print the differences without writing")
    is_check = parser.parse_args().check
    n_different = 0
    for path, write in [(STUB, stub), (PAGE, page)]:
        before = path.read_text()
        after = write(before)
        if before == after:
            continue
        n_different += 1
        if is_check:
            old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
            names = [f"{path.relative_to(ROOT)}, as it is", "as `make tables` writes it"]
            sys.stdout.writelines(difflib.unified_diff(old, new, *names))
        else:
            path.write_text(after)
    return n_different if is_check else 0


if __name__ == "__main__":
    sys.exit(main())
