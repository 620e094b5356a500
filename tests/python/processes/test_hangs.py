"""Reports of a hang: `stats()["threads"]`, a log record with the chain of waiting threads, and the end of the repr.

Stalls here are in a worker, in the user's code and in a dataset that grows; `test_stalls.py` has stalled reads.
"""

import contextlib
import logging
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

import documents
import forebay
from forebay.cache import AsyncDataset, DataLoader, ListAsyncDataset
from recordings import TINY
from scenes import play
from timing import eventually

SOON_S = 0.05
WINDOW: dict[str, Any] = {"shuffle_buffer_size": 100, "shuffle_min_size": 20, "batch_size": 8, "n_workers": 2}


class Listed(logging.Handler):
    """A log handler that keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def stalls(self) -> list[str]:
        return [record.getMessage() for record in self.records if "next() has waited" in record.getMessage()]


@pytest.fixture
def listed() -> Iterator[Listed]:
    logger, handler = logging.getLogger("forebay"), Listed()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def wait_until_said(loader: Any, listed: Listed, pattern: str) -> str:
    """Repeats calls of `next()`, each interrupted by Ctrl-C, until a log record matches `pattern`; returns its line."""

    def wait() -> bool:
        timer = threading.Timer(4 * SOON_S, os.kill, [os.getpid(), signal.SIGINT])
        with contextlib.suppress(KeyboardInterrupt):
            timer.start()
            next(loader)
        timer.join()
        assert "next() waits" not in repr(loader), "the repr reports a wait after the call ended"
        return any(re.search(pattern, line) for line in listed.stalls())

    eventually(wait)
    [line, *_] = [line for line in listed.stalls() if re.search(pattern, line)]
    assert re.match(r"next\(\) has waited \d+\.\d s for batch \d+: ", line)
    assert line.endswith('; stats()["threads"] lists all threads')
    return line


def states(loader: Any) -> dict[str, str]:
    return {thread["name"]: thread["state"] for thread in loader.stats()["threads"]}


class Held(AsyncDataset):
    """A dataset whose reads wait for an event."""

    fields = MappingProxyType({"x": ((), "int64")})

    def __init__(self, go_on: threading.Event) -> None:
        self.go_on = go_on

    def __len__(self) -> int:
        return 80

    def get_batch(self, indices: ArrayLike) -> list[dict[str, Any]]:
        self.go_on.wait()
        return [{"x": np.int64(i)} for i in np.asarray(indices).tolist()]


def test_a_pipeline_of_the_user(parquets: Path, listed: Listed) -> None:
    """A tokenizer that blocks is reported; when it returns, the loader continues."""
    go_on = threading.Event()

    def encode(text: str) -> list[int]:
        go_on.wait()
        return documents.encode(text)

    with documents.loader(parquets, tokenizer=encode, stall_warning_s=SOON_S) as loader:
        line = wait_until_said(loader, listed, "in a call of your Python code")
        assert re.search(r"forebay-worker-\d has been in a call of your Python code for \d+\.\d s \(row \d+, row", line)
        assert "shard_0000" in line
        threads = loader.stats()["threads"]
        [thread, *_] = [thread for thread in threads if thread["state"] == "calling Python"]
        assert thread["item"] is not None
        assert thread["since"] > 0
        assert thread["shard"] is not None
        go_on.set()
        assert len(next(loader)["inputs"]) == 4


def test_a_dataset_of_the_user(listed: Listed) -> None:
    go_on = threading.Event()
    with DataLoader(Held(go_on), 8, n_workers=2, stall_warning_s=SOON_S) as loader:
        line = wait_until_said(loader, listed, "in a call of your Python code")
        assert re.search(
            r"forebay-collator waits for batch 0; forebay-worker-\d has been in a call of your Python code for "
            r"\d+\.\d s \(batch 0\)",
            line,
        )
        go_on.set()
        assert next(loader)["x"].tolist() == list(range(8))


def test_a_dataset_that_grows(listed: Listed) -> None:
    dataset = ListAsyncDataset([{"x": i} for i in range(4)], is_complete=False)
    with DataLoader(dataset, 8, n_workers=2, stall_warning_s=SOON_S) as loader:
        wait_until_said(loader, listed, r"waiting for rows of the dataset for \d+\.\d s \(batch 0\)")
        for i in range(4, 8):
            dataset.append({"x": i})
        dataset.finalize()
        assert next(loader)["x"].tolist() == list(range(8))


def test_while_a_call_waits(parquets: Path, listed: Listed) -> None:
    """Another thread sees the wait in `repr()` and `stats()`; the record is repeated once, after ten times as long."""
    go_on = threading.Event()

    def encode(text: str) -> list[int]:
        go_on.wait()
        return documents.encode(text)

    with documents.loader(parquets, tokenizer=encode, stall_warning_s=SOON_S) as loader:
        caller = threading.Thread(target=lambda: next(loader))
        caller.start()
        eventually(lambda: states(loader).get("consumer") == "waiting for a batch")
        eventually(lambda: "in a call of your Python code" in repr(loader))
        assert re.search(r"; next\(\) waits \d+\.\d s for batch 0: forebay-worker-\d has been in a call", repr(loader))
        eventually(lambda: len(listed.stalls()) == 2)
        first, second = (float(line.split()[3]) for line in listed.stalls())
        assert first >= 0.05
        assert second >= 0.5
        [consumer] = [thread for thread in loader.stats()["threads"] if thread["name"] == "consumer"]
        assert consumer["since"] >= 10 * SOON_S - 0.05, "a slice of the wait was counted as a wait"
        go_on.set()
        caller.join()
        assert states(loader)["consumer"] == "in the loop"
        assert len(listed.stalls()) == 2


def test_batches_that_are_not_taken(tiny_shards: list[Path]) -> None:
    """If no batch is taken, the collator waits for the loop and the others for the collator; `close()` ends all."""
    with forebay.Loader(tiny_shards, **TINY, **WINDOW) as loader:
        assert loader.stats()["threads"] == []
        next(loader)
        eventually(lambda: states(loader)["forebay-collator"] == "waiting for the loop (batches are ready)")
        eventually(lambda: states(loader)["forebay-io"] == "waiting for credit")
        eventually(lambda: states(loader)["forebay-worker-1"] == "waiting for a record")
        names = [f"forebay-io-{n}" for n in range(1, 32)]
        assert list(states(loader)) == [
            "forebay-io", *names, "forebay-worker-0", "forebay-worker-1", "forebay-collator", "consumer",
        ]  # fmt: skip
        for thread in loader.stats()["threads"]:
            assert set(thread) == {"name", "state", "since", "item", "shard", "row"}
            assert thread["since"] >= 0
        assert states(loader)["consumer"] == "in the loop"
    eventually(lambda: set(states(loader).values()) == {"ended", "in the loop"})


def test_a_worker_in_a_decoder(mixed_folder: Path) -> None:
    """A worker blocked in a decoder is reported with its record; `close()` detaches it."""
    scene = """
    logged = []
    class Listed(logging.Handler):
        def emit(self, record):
            logged.append(record.getMessage())
    logging.getLogger("forebay").setLevel(logging.WARNING)
    logging.getLogger("forebay").addHandler(Listed())
    _core._inject_delays(fixed_ms=60_000)
    loader = audio(stall_warning_s=0.05)
    caught = []
    def take():
        try:
            next(loader)
        except forebay.ForebayError as error:
            caught.append(str(error))
    caller = threading.Thread(target=take)
    caller.start()
    while "has been decoding row" not in repr(loader) or not any("next() has waited" in line for line in logged):
        time.sleep(0.01)
    text = repr(loader)
    found = [thread for thread in loader.stats()["threads"] if thread["state"] == "decoding"]
    loader.close()
    caller.join()
    after = {thread["name"]: thread["state"] for thread in loader.stats()["threads"]}
    report(text=text, found=found, after=after, caught=caught)
    """
    measured = play(scene, mixed_folder)
    said = re.search(
        r"next\(\) waits \d+\.\d s for batch 0: (forebay-worker-\d) has been decoding row (\d+) for \d+\.\d s "
        r"\(row (\d+) of (.+\.arrow)\)>",
        measured["text"],
    )
    assert said is not None, measured
    [thread] = [thread for thread in measured["found"] if thread["name"] == said[1]]
    assert (thread["item"], thread["row"], thread["shard"]) == (int(said[2]), int(said[3]), said[4])
    assert measured["after"][said[1]] == "decoding", "the detached worker's state is missing"
    assert measured["after"]["forebay-collator"] == "ended"
    assert len(measured["caught"]) == 1


def test_the_parameter(tiny_shards: list[Path], parquets: Path) -> None:
    makers: list[Callable[..., Any]] = [
        lambda **parameters: forebay.Loader(tiny_shards, **TINY, **WINDOW, **parameters),
        lambda **parameters: documents.loader(parquets, **parameters),
        lambda **parameters: DataLoader(ListAsyncDataset([{"x": i} for i in range(80)]), 8, **parameters),
    ]
    for make in makers:
        for wrong, shown in [(0, "0.0"), (-1.0, "-1.0"), (float("nan"), "NaN")]:
            with pytest.raises(forebay.ConfigError, match=f"stall_warning_s is {shown}, must be above 0, or None"):
                make(stall_warning_s=wrong)
        for given in (None, 7.5, float("inf")):
            with make(stall_warning_s=given) as loader, make() as other:
                assert loader.__reduce__()[1][2]["stall_warning_s"] == given
                assert loader.state_dict() == other.state_dict()
                other.load_state_dict(loader.state_dict())
                with pickle.loads(pickle.dumps(loader)) as copied:
                    assert copied.__reduce__()[1][2]["stall_warning_s"] == given


def test_none_is_never(parquets: Path, listed: Listed) -> None:
    go_on = threading.Event()

    def encode(text: str) -> list[int]:
        go_on.wait(3 * SOON_S)
        return documents.encode(text)

    with documents.loader(parquets, tokenizer=encode, stall_warning_s=None) as loader:
        next(loader)
        go_on.set()
        assert not listed.stalls()


def test_threads_and_passes_are_logged_for_debugging(tiny_shards: list[Path], listed: Listed) -> None:
    logger = logging.getLogger("forebay")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with forebay.Loader(tiny_shards, **TINY, **WINDOW, infinite=False, n_readers=2) as loader:
            assert len(list(loader)) == 38
    finally:
        logger.setLevel(before)
    lines = [record.getMessage() for record in listed.records if record.levelno == logging.DEBUG]
    threads = {"forebay-io", "forebay-io-1", "forebay-worker-0", "forebay-worker-1", "forebay-collator"}
    assert {line.removesuffix(" starts") for line in lines if line.endswith(" starts")} >= threads
    assert {line.removesuffix(" ends") for line in lines if line.endswith(" ends")} >= threads
    assert "the pass of epoch 0 begins at batch 0: 2 I/O threads, 2 workers, a collator" in lines
    assert "the pass of epoch 0 is over after 38 batches" in lines


def test_in_a_fork_there_are_none(mixed_folder: Path) -> None:
    scene = """
    with audio() as loader:
        next(loader)
        child = os.fork()
        if child == 0:
            os._exit(0 if loader.stats()["threads"] == [] and "next() waits" not in repr(loader) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        report(status=status, threads=len(loader.stats()["threads"]))
    """
    assert play(scene, mixed_folder) == {"status": 0, "threads": 32 + 2 + 2}
