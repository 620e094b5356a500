import gc
import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import documents
import forebay
import numbered
from forebay import _core
from recordings import SMALL, Row, read_rows, tiny_rows, write_shard
from utterances import write_utterances

if not hasattr(_core, "_inject_delays"):
    pytest.exit("the tests need a wheel with debug assertions: make wheel", returncode=4)

# A shell starts background jobs with SIGINT ignored, and child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# These tests import torch at the top. `make test-torch` installs it and runs them.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["queue/*"]


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    def refuse(*_args: object) -> NoReturn:
        raise OSError("tests must not use the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


@pytest.fixture(autouse=True)
def _no_delays() -> Iterator[None]:
    yield
    _core._inject_delays()


@pytest.fixture(scope="module")
def little_to_collect() -> Iterator[None]:
    """Freezes the objects of all imports for the garbage collector, which saves 0.15 s per collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """Checks after the test that all threads of an `AsyncDataLoader` have ended."""
    yield
    gc.collect()
    numbered.seconds_to_end()
    assert not numbered.threads()


@pytest.fixture(scope="session")
def soak() -> int:
    """The factor for the repetitions of a check: 1 in CI, FOREBAY_SOAK in `make soak`."""
    return int(os.environ.get("FOREBAY_SOAK", "1"))


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """The bundled recordings."""
    return read_rows()


@pytest.fixture(scope="session")
def shards(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The recordings as two shards of several record batches."""
    folder = tmp_path_factory.mktemp("shards")
    return [write_shard(folder / "a.arrow", rows[:11]), write_shard(folder / "b.arrow", rows[11:], rows_per_batch=3)]


@pytest.fixture(scope="session")
def mixed_folder(tiny_shards: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shards of recordings and of documents for `TokenLoader`, for the programs of `scenes`."""
    folder = tmp_path_factory.mktemp("mixed")
    for shard in tiny_shards:
        (folder / shard.name).symlink_to(shard)
    for number in range(3):
        table = pa.table({"text": [f"document {number} {i} " * (1 + i % 9) for i in range(200)]})
        pq.write_table(table, folder / f"shard_{number:05}.parquet", row_group_size=40)
    return folder


@pytest.fixture(scope="session")
def tiny_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 000 tiny rows in one shard."""
    return write_shard(tmp_path_factory.mktemp("tiny") / "tiny.arrow", tiny_rows(12_000), rows_per_batch=1000)


@pytest.fixture(scope="session")
def tiny_shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five shards of 60 tiny rows; every 20th row is bad."""
    folder = tmp_path_factory.mktemp("five")
    all_rows = tiny_rows(300)
    for i in range(7, 300, 20):
        all_rows[i] = Row(b"not a recording", 0)
    return [write_shard(folder / f"{i}.arrow", all_rows[60 * i : 60 * i + 60], rows_per_batch=16) for i in range(5)]


@pytest.fixture(scope="session")
def utterances(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 60 recordings of 20 to 130 ms at 8 kHz, whose rows differ."""
    seconds = [0.02 + 0.11 * (row * 37 % 61) / 61 for row in range(60)]
    return write_utterances(tmp_path_factory.mktemp("utterances"), seconds, rate=8000)


@pytest.fixture(scope="session")
def parquets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Parquet files; see `write_documents`."""
    return documents.write_documents(tmp_path_factory.mktemp("parquets"))


@pytest.fixture(params=[True, False], ids=["infinite", "finite"])
def loader(request: pytest.FixtureRequest, tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    """A loader of `tiny_shards`, infinite or one pass at a time."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=request.param) as loader:
        yield loader


@pytest.fixture
def finite(tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    """A loader of `tiny_shards`, one pass at a time."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        yield loader
