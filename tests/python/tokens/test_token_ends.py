"""`TokenLoader` with bad, damaged and giant documents, and its ends: signals, threads, the process."""

import itertools
import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing
from documents import (
    BOS,
    GROUP,
    RANKS,
    document,
    encode,
    full_rows,
    loader,
    take,
)
from timing import claim, eventually, native_threads, timed


def test_bad_documents(tmp_path: Path) -> None:
    texts = ["one", None, "", "four", "a" * 1_000_000, "six"] * 20
    for name in ["a.parquet", "b.parquet"]:
        pq.write_table(pa.table({"text": texts}), tmp_path / name, row_group_size=30)
    with loader(tmp_path, crop="carry", infinite=False, extras=["documents"]) as found:
        parts = np.concatenate([batch["documents"] for batch in itertools.islice(found, 500)])
        assert set(parts[:, 4] % 6) == {0, 3, 4, 5}
        found.set_epoch(1)
        errors = found.errors()
    assert {error["row"] % 6 for error in errors} <= {1, 2}
    kinds = {error["row"] % 6: error["kind"] for error in errors}
    assert kinds[2] == "empty"
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "c.parquet")
    with pytest.raises(forebay.ConfigError, match="body"):
        loader(tmp_path / "c.parquet", split="val")
    (tmp_path / "d.parquet").write_bytes(b"not a Parquet file at all")
    with pytest.raises(forebay.ConfigError, match="Parquet"):
        loader(tmp_path / "d.parquet", split="val")


def test_a_damaged_row_group(tmp_path: Path) -> None:
    """Its documents are left out and listed; an infinite loader continues without them, or raises if none are left."""
    texts = [document(number) for number in range(3 * GROUP)]
    for name in ["a.parquet", "b.parquet"]:
        options = {"row_group_size": GROUP, "use_dictionary": False, "write_page_checksum": True}
        pq.write_table(pa.table({"text": texts}), tmp_path / name, **options)

    def damage(group: int) -> None:
        path = tmp_path / "a.parquet"
        column = pq.ParquetFile(path).metadata.row_group(group).column(0)
        data = bytearray(path.read_bytes())
        data[column.data_page_offset + column.total_compressed_size - 20] ^= 0xFF
        path.write_bytes(data)

    damage(1)
    good = [*range(GROUP), *range(2 * GROUP, 3 * GROUP)]
    slices = [
        [[BOS, *encode(texts[number])] for number in good[at : min(at + 16, begin + GROUP)]]
        for begin in (0, GROUP)
        for at in range(begin, begin + GROUP, 16)
    ]
    with loader(tmp_path) as found:
        oracle = packing.rows(itertools.cycle(slices), 64, 20)
        assert take(found, 30) == [list(itertools.islice(oracle, 4)) for _ in range(30)]
        errors = found.errors()
    assert [error["row"] for error in errors] == list(range(GROUP, 2 * GROUP))
    assert {error["kind"] for error in errors} == {"corrupt"}
    assert "row group 1 cannot be decoded" in errors[0]["reason"]
    damage(0)
    damage(2)
    with loader(tmp_path) as found:
        for _ in range(2):
            with pytest.raises(forebay.DecodeError, match="none of the 120 records"):
                next(found)
    with loader(tmp_path, infinite=False) as found:
        with pytest.raises(forebay.DecodeError, match="no good record: 120 of 120 records failed"):
            list(found)
        assert len(found.errors()) == 3 * GROUP


GIANT = 100_000_000


@pytest.mark.parametrize("crop", ["drop", "carry"])
@timed
def test_a_document_of_100_mb(tmp_path: Path, crop: str) -> None:
    """A giant document is packed within bounded time and memory."""
    sentence = "the reservoir is filled by the river, and the river by the rain. "
    texts = [sentence * (1 + number % 50) for number in range(400)]
    giant = (sentence * (GIANT // len(sentence) + 1))[:GIANT]
    pq.write_table(pa.table({"text": [*texts[:200], giant, *texts[200:]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": texts}), tmp_path / "b.parquet")
    script = f"""
        import json, resource, time, forebay
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        begin, before = time.monotonic(), peak()
        most_tokens, rows_of_giant = 0, 0
        shape = dict(batch_size=8, seq_len=1023, buffer_size=100, n_workers=2)
        how = dict(crop={crop!r}, infinite=False, extras=["documents"])
        with forebay.TokenLoader({str(tmp_path)!r}, {str(RANKS)!r}, **shape, **how) as loader:
            for number, batch in enumerate(loader):
                most_tokens = max(most_tokens, loader.stats()["packing"]["tokens"])
                rows_of_giant += len({{row for row, _, _, _, at, _ in batch["documents"].tolist() if at == 200}})
                if number == 100:
                    break
            held = loader.stats()["packing"]
            closing = time.monotonic()
        now = time.monotonic()
        print(json.dumps([now - begin, now - closing, peak() - before, most_tokens, rows_of_giant, held["bytes"]]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    seconds, closing, peak, most_tokens, rows_of_giant, held = json.loads(done.stdout)
    # The text, its ids (a fifth as many, 4 bytes each, in a vector that doubles), and the packer's copy of the ids.
    assert peak < 5 * GIANT
    if crop == "drop":
        assert rows_of_giant <= 1
        assert most_tokens < 400 * 1024
        assert held < 10_000_000
    else:
        assert rows_of_giant > 200
        assert most_tokens > GIANT / 8
        # The packer still holds most of it: 800 of its 20 000 rows are packed.
        assert held < 1.5 * GIANT
    claim(seconds < 60, seconds)
    claim(closing < 1, closing)


def test_threads_end(parquets: Path) -> None:
    before = native_threads()  # threads of other tests that are still ending
    found = loader(parquets)
    next(found)
    assert native_threads() - before
    found.close()
    eventually(lambda: native_threads() <= before)


def test_an_interrupted_wait_loses_nothing(parquets: Path) -> None:
    """Signals at random moments, mostly while `next()` waits, lose no batch."""
    random_, interrupts, armed, done = random.Random(1), 0, False, threading.Event()

    def interrupt(*_arguments: object) -> None:
        nonlocal armed, interrupts
        if armed:
            armed, interrupts = False, interrupts + 1
            raise KeyboardInterrupt

    def send() -> None:
        while not done.wait(0.02 * random_.random()):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def slowly(text: str) -> list[int]:
        time.sleep(0.0005)
        return encode(text)

    n = 48
    batches: list[dict[str, Any]] = []
    sending = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, interrupt)
    sending.start()
    try:
        with loader(parquets, tokenizer=slowly) as found:
            while len(batches) < n or interrupts < 4:
                try:
                    armed = True
                    # No bytecode runs between `next()` and the list.
                    deque(map(batches.append, itertools.islice(found, max(n - len(batches), 1))), maxlen=0)
                    armed = False
                except KeyboardInterrupt:
                    pass
    finally:
        armed = False
        done.set()
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    with loader(parquets) as undisturbed:
        assert list(map(full_rows, batches)) == take(undisturbed, len(batches))


def test_interrupt_and_exit(parquets: Path) -> None:
    """Ctrl-C interrupts while a callable tokenizer runs, and the process exits with running threads."""
    script = f"""
        import os, signal, threading, time, forebay
        signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
        def slow(text):
            time.sleep(0.05)
            return [1]
        loader = forebay.TokenLoader({str(parquets)!r}, slow, bos_id=0, val=[])
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            next(loader)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
