"""Writes the messages of docs/errors.md: each is that of a real call on the bundled recordings.

Needs the installed package (with debug assertions, as `make wheel` builds it), pyarrow and soundfile. Runs from any
folder: `python docs/errors.py` writes the messages into the page, `--check` only compares them.
"""

import logging
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile

import forebay
from forebay import _core, augment, cache, crops

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/errors.md"
RECORDINGS = ROOT / "tests/data/recordings"
BIRD = RECORDINGS / "21100_36_48.flac"
PAGE_404 = b"<html><body>404 Not Found</body></html>"
BLOCK = re.compile(r"(<!-- (\w+) -->\n```output\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
"""A message of the page, after the name of its kind."""

CASES: dict[str, Callable[[], object]] = {}
"""By kind, a program that fails with it, in an empty folder."""


def case(program: Callable[[], object]) -> Callable[[], object]:
    """Adds a program."""
    CASES[program.__name__.rstrip("_")] = program
    return program


def folder(**files: bytes) -> str:
    """A folder with a good recording, and these."""
    Path("birds").mkdir()
    Path("birds/0.flac").write_bytes(BIRD.read_bytes())
    for name, content in files.items():
        Path("birds", name.replace("_", ".")).write_bytes(content)
    return "birds"


def pages() -> str:
    """A folder of two web pages."""
    Path("birds").mkdir()
    for n in range(2):
        Path(f"birds/{n}.wav").write_bytes(PAGE_404)
    return "birds"


def sound(*shape: int, value: float = 0.1) -> bytes:
    """A WAV file of floating-point samples at 32 kHz."""
    soundfile.write("made.wav", np.full(shape, value, np.float32), 32_000, subtype="FLOAT")
    return Path("made.wav").read_bytes()


def loader(source: Any, **changes: Any) -> forebay.Loader:
    """A loader of one pass in the order of storage."""
    given: dict[str, Any] = {
        "batch_size": 1, "order": "sequential", "augment": False, "infinite": False, "shuffle_buffer_size": 8,
        "shuffle_min_size": 0, "n_workers": 1, **changes,
    }  # fmt: skip
    return forebay.Loader(source, **given)


def all_of(source: Any, **changes: Any) -> None:
    """A pass."""
    with loader(source, **changes) as opened:
        for _ in opened:
            pass


@case
def config() -> None:  # noqa: D103
    loader(folder(), batch_size=0, clip_seconds=-1.0)


@case
def type_() -> None:  # noqa: D103
    loader(folder(), batch_size="8")


@case
def format_() -> None:  # noqa: D103
    Path("notes.arrow").write_bytes(b"These are notes. " * 100)
    loader("notes.arrow")


@case
def schema() -> None:  # noqa: D103
    table = pa.table({"sound": [b"..."], "species": ["wren"]})
    with pa.ipc.new_stream("train.arrow", table.schema) as writer:
        writer.write_table(table)
    loader("train.arrow", audio_column="audio")


@case
def shape() -> None:  # noqa: D103
    cache.ListAsyncDataset([{"ids": np.zeros(4, np.int32)}, {"ids": np.zeros(4, np.float32)}])


@case
def not_found() -> None:  # noqa: D103
    loader("birdz")


@case
def io() -> None:  # noqa: D103
    table = pa.table({"audio": [{"bytes": sound(32_000), "path": None}]})
    for n in (1, 2):
        with pa.ipc.new_stream(f"{n}.arrow", table.schema) as writer:
            writer.write_table(pa.concat_tables([table] * n))
    with loader("1.arrow") as opened:
        Path("2.arrow").replace("1.arrow")
        next(opened)


@case
def memory() -> None:  # noqa: D103
    opened = loader(folder(), batch_size=20_000, clip_seconds=5.0, infinite=True)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    try:
        next(opened)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        opened.close()


@case
def state() -> None:  # noqa: D103
    name = folder()
    loader(name, seed=2).load_state_dict(loader(name, seed=1).state_dict())


@case
def index() -> None:  # noqa: D103
    forebay.AudioDataset(folder())[7]


@case
def closed() -> None:  # noqa: D103
    opened = loader(folder())
    opened.close()
    next(opened)


@case
def callback() -> None:  # noqa: D103
    def scaled(samples: Any, rng: Any) -> Any:  # noqa: ARG001
        return samples / samples.missing

    all_of(folder(), augment=[augment.Python(scaled)])


@case
def exhausted() -> None:  # noqa: D103
    all_of(pages(), infinite=True)


@case
def too_many() -> None:  # noqa: D103
    all_of(folder(**{"1_flac": b""}), max_errors=0)


@case
def nothing() -> None:  # noqa: D103
    all_of(pages())


@case
def panic() -> None:  # noqa: D103
    _core._inject_panic(0)
    try:
        all_of(folder())
    finally:
        _core._inject_panic()


@case
def truncated() -> None:  # noqa: D103
    table = pa.table({"audio": [{"bytes": sound(32_000), "path": f"{i}.wav"} for i in range(2)]})
    with pa.ipc.new_stream("train.arrow", table.schema) as writer:
        for i in range(2):
            writer.write_table(table.slice(i, 1))
    whole = Path("train.arrow").read_bytes()
    Path("train.arrow").write_bytes(whole[: len(whole) * 3 // 4])
    all_of("train.arrow", clip_seconds=0.5)


@case
def unreadable() -> None:  # noqa: D103
    folder()
    all_of(forebay.Manifest([{"path": "0.flac"}, {"path": "1.flac"}], root="birds"))


@case
def unsupported() -> None:  # noqa: D103
    all_of(folder(**{"1_wav": PAGE_404}))


@case
def corrupt() -> None:  # noqa: D103
    whole = bytearray(BIRD.read_bytes())
    whole[20_000:120_000] = bytes(100_000)
    all_of(folder(**{"1_flac": bytes(whole)}))


@case
def empty() -> None:  # noqa: D103
    all_of(folder(**{"1_wav": b""}))


@case
def too_short() -> None:  # noqa: D103
    soundfile.write("0.wav", np.zeros(8000), 16_000)
    soundfile.write("1.wav", np.zeros(32), 16_000)
    rows = [{"path": f"{i}.wav", "duration": 0.5} for i in range(2)]
    all_of(forebay.Manifest(rows, root="."), crop=crops.Whole(), features="icefall")


@case
def non_finite() -> None:  # noqa: D103
    all_of(folder(**{"1_wav": sound(32_000, value=float("nan"))}))


@case
def too_large() -> None:  # noqa: D103
    all_of(folder(**{"1_wav": sound(32_000 * 60, 2)}), max_record_bytes=1 << 20)


class _Records(logging.Handler):
    """The messages about bad records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        if "a bad record" in record.getMessage():
            self.found.append(record.getMessage())


def message(kind: str) -> str:
    """What the program of a kind says: the last line of a traceback with its notes, or the log record."""
    before, log, handler = Path.cwd(), logging.getLogger("forebay"), _Records()
    was = log.propagate
    log.addHandler(handler)
    log.propagate = False
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        here = Path.cwd()
        try:
            CASES[kind]()
            text = handler.found[0]
        except Exception as error:
            name = type(error).__name__
            name = f"forebay.{name}" if isinstance(error, forebay.ForebayError) else name
            text = "\n".join([f"{name}: {error}", *getattr(error, "__notes__", ())])
        finally:
            os.chdir(before)
            log.removeHandler(handler)
            log.propagate = was
    # A function's name begins with those that enclose it.
    text = text.replace(str(here), "/home/ann").replace(f"{__name__}.callback.<locals>.", "__main__.")
    return text + "\n"


def main() -> int:
    """Writes the page, or compares it; returns 1 if it differs."""
    before = PAGE.read_text()
    after = BLOCK.sub(lambda found: found[1] + message(found[2]), before)
    if "--check" in sys.argv[1:]:
        for old, new in zip(BLOCK.findall(before), BLOCK.findall(after), strict=True):
            if old != new:
                sys.stdout.write(f"{old[1]}: the page has\n{old[2]}but the message is\n{new[2]}")
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
