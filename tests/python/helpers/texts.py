"""Texts for tests of tokenizers: installed text files, and random text in many scripts.

`python tests/python/helpers/texts.py` lists the files.
"""

import hashlib
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {
    ".c",
    ".cfg",
    ".css",
    ".csv",
    ".h",
    ".html",
    ".js",
    ".json",
    ".md",
    ".pem",
    ".po",
    ".py",
    ".pyi",
    ".pyx",
    ".rst",
}
SUFFIXES |= {".svg", ".toml", ".ts", ".tsv", ".txt", ".xml", ".yaml", ".yml"}
MAX_FILE_BYTES = 400_000

# First and last code points of blocks of different categories: letters with and without case, marks, numbers,
# symbols, emoji and their joiners, white space, control, private-use and unassigned characters.
BLOCKS = [
    (0x00, 0x7F), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x2B0, 0x36F),
    (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0xF00, 0xFFF),
    (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF),
    (0x1680, 0x169F), (0x1780, 0x17FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F),
    (0x2190, 0x23FF), (0x2460, 0x27BF), (0x3000, 0x30FF), (0x3100, 0x33FF), (0x4E00, 0x4FFF),
    (0xAC00, 0xACFF), (0xE000, 0xE010), (0xFB00, 0xFDFF), (0xFE00, 0xFE0F), (0xFE70, 0xFFEF),
    (0x10300, 0x1039F), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F64F),
    (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x20100), (0xE0020, 0xE007F),
]  # fmt: skip
PIECES = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "'s",
    "'LL",
    "'\u017f",
    "\u200d",
    "\ufe0f",
    "\u0301",
    "<|endoftext|>",
    "<|bos|>",
    "1234",
    "\0",
]


def files() -> list[Path]:
    """Text files of the standard library and of installed packages, mixed in a fixed order."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    found = {
        path for folder in folders for path in Path(folder).rglob("*") if path.suffix in SUFFIXES and path.is_file()
    }
    return sorted(
        found, key=lambda path: hashlib.sha256(path.name.encode() + str(path.stat().st_size).encode()).digest()
    )


def installed(n_bytes: int) -> Iterator[str]:
    """The texts of the UTF-8 files, until `n_bytes` are reached."""
    for path in files():
        if n_bytes <= 0:
            return
        try:
            text = path.read_bytes()[:MAX_FILE_BYTES].decode()
        except (OSError, UnicodeDecodeError):
            continue
        n_bytes -= len(text.encode())
        yield text


def generated(n_texts: int, seed: int = 0) -> Iterator[str]:
    """Texts of random runs of characters, each from one block, with separators between them."""
    rng = random.Random(seed)
    for _ in range(n_texts):
        parts = []
        for _ in range(rng.randrange(1, 60)):
            first, last = rng.choice(BLOCKS)
            parts.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 8))))
            parts.append(rng.choice(PIECES) if rng.random() < 0.6 else "")
        yield "".join(parts)


if __name__ == "__main__":
    for path in files():
        sys.stdout.write(f"{path}\n")
