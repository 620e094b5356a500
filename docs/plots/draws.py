"""Draws docs/draws.svg: the rows in a window of 4 at each draw, by the hash of the loader.

`python docs/plots/draws.py` rewrites it; `--check` only tells whether it is as it writes it.
"""

import sys
from itertools import islice
from pathlib import Path

from hashing import draws

PICTURE = Path(__file__).parents[1] / "draws.svg"
SIZE, N, SEED = 4, 8, 1
STYLE = 'font-family="system-ui, sans-serif" font-size="14" fill="#1b1b1f"'
CELL, LEFT, TOP, STEP = 44, 150, 62, 78


def cell(x: int, y: int, text: str, fill: str, color: str = "#1b1b1f") -> str:
    """A box with a number."""
    return (
        f'<rect x="{x}" y="{y}" width="{CELL - 6}" height="32" rx="4" fill="{fill}" stroke="#555555"/>'
        f'<text x="{x + CELL // 2 - 3}" y="{y + 21}" text-anchor="middle" fill="{color}">{text}</text>'
    )


def picture() -> str:
    """The window at each draw, in columns."""
    found = [(list(slots), slot) for slots, slot in islice(draws(SIZE, SEED), N)]
    width, height = LEFT + N * STEP, TOP + SIZE * 40 + 150
    steps = "; ".join(f"draw {i}: rows {slots}, takes {slots[slot]}" for i, (slots, slot) in enumerate(found))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {STYLE}>',
        f"<title>A window of {SIZE} rows at each of {N} draws</title>",
        f"<desc>{steps}</desc>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="{TOP - 22}">draw</text>',
        f'<text x="12" y="{TOP + 21}">window of rows</text>',
        f'<text x="12" y="{TOP + SIZE * 40 + 37}">to the batch</text>',
        f'<text x="12" y="{TOP + SIZE * 40 + 93}">moves into</text>',
        f'<text x="12" y="{TOP + SIZE * 40 + 111}">the free slot</text>',
    ]
    for i, (slots, slot) in enumerate(found):
        x = LEFT + i * STEP
        parts.append(f'<text x="{x + CELL // 2 - 3}" y="{TOP - 22}" text-anchor="middle">{i}</text>')
        for j, row in enumerate(slots):
            chosen = j == slot
            parts.append(cell(x, TOP + 40 * j, str(row), *(("#1d3fae", "#ffffff") if chosen else ("#eef0fb",))))
        parts.append(cell(x, TOP + SIZE * 40 + 16, str(slots[slot]), "#1d3fae", "#ffffff"))
        parts.append(cell(x, TOP + SIZE * 40 + 76, str(SIZE + i), "#fdf0dc"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    """Writes the picture; with `--check` returns 1 if it differs."""
    made = picture()
    if "--check" in sys.argv:
        return int(PICTURE.read_text() != made)
    PICTURE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
