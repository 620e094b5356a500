"""Draws docs/performance.svg and writes the tables of docs/performance.md, both from benches/README.md.

`python docs/plots/performance.py` rewrites both; `--check` only tells whether they are as it writes them. The figures
are those of the section "Results", which `make bench-peers` prints, and of "Batches by duration".
"""

import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "benches" / "README.md"
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- by docs/plots/performance.py -->\n", "<!-- end -->\n"

# Dark on white, at least 4.5 to 1 for text and 3 to 1 between each bar and the background.
COLORS = ["#1d3fae", "#b3470b", "#0f7a3f", "#8a1c6b", "#555555", "#0a6f87", "#7a5a00", "#a3263a"]
STYLE = 'font-family="system-ui, sans-serif" font-size="12" fill="#1b1b1f"'
LEFT, RIGHT, BAR, GAP, HEAD = 210, 70, 15, 18, 58
WIDTH = 900


@dataclass(frozen=True)
class Table:
    """A table of a page: names of columns, and by row a name and values."""

    columns: list[str]
    rows: dict[str, list[str]]


def table(text: str, first: str) -> Table:
    """The table whose first heading is `first`."""
    lines = text.split(f"\n| {first} |", 1)[1].splitlines()
    cells = [[cell.strip(" *") for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = {}
    for row in cells[2:]:
        if len(row) < 2:
            break
        rows[row[0]] = row[1:]
    return Table(cells[0], rows)


def provenance(text: str) -> str:
    """Machine, date and commit of the results."""
    results = text.split("\n### Results\n", 1)[1]
    commit = re.search(r"commit `([0-9a-f]+)`", results)
    line = re.search(r"^(\d{4}-\d\d-\d\d), (.+?), (\d+ virtual cores)", results, re.MULTILINE)
    assert commit, results[:200]
    assert line, results[:200]
    return f"{line[1]}, {line[2]}, {line[3]}, commit {commit[1]}"


def picture(rates: Table, told: str) -> str:
    """Bars of examples per second, by format and loader, as SVG."""
    most = max(float(value) for row in rates.rows.values() for value in row)
    scale = (WIDTH - LEFT - RIGHT) / most
    names = list(rates.rows)
    height = HEAD + len(rates.columns) * (len(names) * BAR + GAP) + 10
    summary = "; ".join(
        f"{column}: " + ", ".join(f"{name} {rates.rows[name][i]}" for name in names)
        for i, column in enumerate(rates.columns)
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {STYLE}>',
        "<title>Examples per second of forebay and other loaders</title>",
        f"<desc>{escape(summary)}</desc>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="10" y="22" font-size="16" font-weight="600">Examples per second, by format of the recordings</text>',
        f'<text x="10" y="42">{escape(told)}</text>',
    ]
    y = HEAD
    for i, column in enumerate(rates.columns):
        parts.append(f'<text x="10" y="{y + 12}" font-weight="600">{escape(column)}</text>')
        for color, name in zip(COLORS[: len(names)], names, strict=True):
            value = float(rates.rows[name][i])
            width = value * scale
            label = escape(short(name))
            parts.append(f'<text x="{LEFT - 6}" y="{y + 12}" text-anchor="end" font-size="11">{label}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}" fill="{color}"/>')
            parts.append(f'<text x="{LEFT + width + 5:.1f}" y="{y + 12}" font-size="11">{value:.0f}</text>')
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def short(name: str) -> str:
    """The name of a loader without its settings."""
    known = {
        "torch DataLoader, soundfile seek": "torch + soundfile",
        "torchcodec spans, DataLoader": "torch + torchcodec",
    }
    return known.get(name, name.split(",")[0])


def tables(rates: Table, ratios: Table, start: Table, loop: Table, told: str) -> str:
    """The tables of clips of one length."""
    lines = [f"{told}. Examples per second:", ""]
    lines += shown(rates, "")
    lines += ["", "forebay is faster, times:", ""]
    lines += shown(Table(ratios.columns, {k: v for k, v in ratios.rows.items() if "goal" not in k}), "")
    lines += ["", "Start, and memory, with OGG Vorbis:", ""]
    lines += shown(start, "")
    lines += [
        "",
        "How long `next()` takes in a loop whose step is 1.25 times the mean time of a batch, with OGG Vorbis:",
        "",
    ]
    lines += shown(loop, "")
    return "\n".join(lines) + "\n"


def speech(text: str) -> str:
    """The tables of whole utterances in batches by duration."""
    section = text.split("\n## Batches by duration\n", 1)[1]
    told = re.search(r"Release build, (.+? cores).*?, (\d{4}-\d\d-\d\d), (Lhotse [\d.]+)", section, re.DOTALL)
    assert told, section[:500]
    lines = [f"Whole utterances, batches of at most 400 s; {told[2]}, {told[1]}, {told[3]} with its best settings:", ""]
    lines += shown(table(section, "batches by duration"), "")
    lines += ["", "A million utterances:", ""]
    lines += shown(table(section, "a million utterances"), "")
    return "\n".join(lines) + "\n"


def shown(table: Table, corner: str) -> list[str]:
    """A table in Markdown, with numbers to the right."""
    head = f"| {corner} | " + " | ".join(table.columns) + " |"
    rule = "|---|" + "---:|" * len(table.columns)
    return [head, rule, *(f"| {name} | " + " | ".join(values) + " |" for name, values in table.rows.items())]


def main() -> int:
    """Writes both files; with `--check` returns 1 if one differs."""
    text = FIGURES.read_text()
    told = provenance(text)
    rates = table(text, "examples/s")
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    others = ("forebay is faster, times", "first format: OGG", "`next()` in a training loop, OGG")
    made = tables(rates, *(table(text, first) for first in others), told)
    written = {PAGE: f"{before}{BEGIN}\n{made}\n{speech(text)}\n{END}{after}", PICTURE: picture(rates, told)}
    different = [path for path, content in written.items() if not path.is_file() or path.read_text() != content]
    if "--check" in sys.argv:
        sys.stdout.writelines(f"{path.name} is not as docs/plots/performance.py writes it\n" for path in different)
        return int(bool(different))
    for path in different:
        path.write_text(written[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
