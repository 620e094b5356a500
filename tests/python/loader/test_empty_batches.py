"""Batches whose recordings are all bad: left out by one process, yielded without rows by several ranks."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import _core
from recordings import TINY, Row, tiny_rows, write_shard
from timing import eventually

BATCH = 8
BAD = {2, 3, 4, 9, 12}
"""Those of the 13 batches that have no good recording, including the last one."""
THERE = [number for number in range(13) if number not in BAD]
EVAL: dict[str, Any] = {**TINY, "batch_size": BATCH}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = tiny_rows(100)
    for number in BAD:
        for row in range(BATCH * number, min(BATCH * number + BATCH, 100)):
            rows[row] = Row(b"not a recording", 0)
    rows[1] = Row(b"not a recording", 0)
    return write_shard(tmp_path_factory.mktemp("bad") / "a.arrow", rows, rows_per_batch=16)


def good(number: int) -> list[int]:
    return [row for row in range(BATCH * number, min(BATCH * number + BATCH, 100)) if row != 1]


def indices(loader: forebay.Loader) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


@pytest.mark.parametrize("n_workers", [1, 3])
@pytest.mark.parametrize("prefetch_batches", [1, 3, 8])
def test_one_process_leaves_them_out(shard: Path, n_workers: int, prefetch_batches: int) -> None:
    with forebay.Loader.eval(shard, **EVAL, n_workers=n_workers, prefetch_batches=prefetch_batches) as loader:
        assert len(loader) == loader.batches_per_epoch == 13
        seen, positions, states = [], [], []
        for batch in loader:
            seen.append(batch["index"].tolist())
            positions.append(loader.batch)
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert seen == [good(number) for number in THERE]
        assert positions == [number + 1 for number in THERE]
        assert np.isfinite([np.mean(batch) for batch in seen]).all()
        bad_rows = [1, *(row for number in sorted(BAD) for row in good(number))]
        assert [error["index"] for error in loader.errors()] == bad_rows
        assert loader.stats()["batches"] == len(THERE)
        # The next pass is the same; a state is the position after the last batch.
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (1, 0)
        assert indices(loader) == seen
        for taken, state in enumerate(states, 1):
            assert state["batch"] == positions[taken - 1]
            loader.load_state_dict(state)
            assert loader.state_dict() == {**state, "lost": loader.state_dict()["lost"]} if "lost" in state else state
            assert indices(loader) == seen[taken:]
        assert pickle.loads(pickle.dumps(loader)).state_dict() == loader.state_dict()


def test_they_can_be_sought_skipped_and_replayed(shard: Path) -> None:
    with forebay.Loader.eval(shard, **EVAL) as loader:
        for number in range(13):
            loader.seek(number)
            assert loader.batch == number
            assert indices(loader) == [good(there) for there in THERE if there >= number]
        assert loader.replay(3)["index"].tolist() == []
        assert loader.replay(3)["spectrogram"].shape == (0, 8, 6)
        assert loader.replay(5)["index"].tolist() == good(5)
        loader.seek(0)
        loader.skip([(1, 3), (9, 11)])
        assert indices(loader) == [good(number) for number in THERE if number not in {1, 2, 9, 10}]


@pytest.mark.parametrize("slow", [False, True])
def test_a_batch_to_skip_does_not_come_after_them(shard: Path, slow: bool) -> None:
    """The batches before the range are left out: the range holds whether the batch after them is ready or not."""
    _core._inject_delays(fixed_ms=30 if slow else 0)
    with forebay.Loader.eval(shard, **EVAL, n_workers=1, prefetch_batches=8) as loader:
        loader.skip([(5, 7), (10, 12)])
        seen = [next(loader)["index"].tolist() for _ in range(2)]
        if not slow:
            eventually(lambda: loader.stats()["queues"]["batches"] >= 5)  # 2 to 6
        seen += [batch["index"].tolist() for batch in iter(lambda: next(loader, None), None)]
        assert seen == [good(number) for number in THERE if number not in {5, 6, 10, 11}]
        assert {error["index"] for error in loader.errors()} == {1, *(row for n in sorted(BAD) for row in good(n))}
        delivered = loader.stats()["delivered"]
        assert (delivered["batches"], delivered["records_failed"]) == (4, 1 + 4 * BATCH + 4)


def test_ranks_take_equal_steps(shard: Path) -> None:
    ranks = []
    for rank in range(2):
        settings = {**EVAL, "batch_size": BATCH // 2}
        with forebay.Loader.eval(shard, **settings, rank=rank, world_size=2) as loader:
            ranks.append(list(loader))
            assert len(ranks[-1]) == len(loader) == 13
    for number, parts in enumerate(zip(*ranks, strict=True)):
        assert [*parts[0]["index"], *parts[1]["index"]] == ([] if number in BAD else good(number))
        if number in BAD:
            assert [len(part["index"]) for part in parts] == [0, 0]
            assert parts[0]["spectrogram"].shape == (0, 8, 6)
            assert parts[0]["label"].shape == (0,)


def test_a_pass_without_a_good_recording_ends(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.arrow", [Row(b"not a recording", 0)] * 40)
    with forebay.Loader.eval(path, **EVAL) as loader:
        for epoch in range(3):
            with pytest.raises(forebay.DecodeError, match="no good record: 40 of 40 records failed"):
                list(loader)
            assert loader.state_dict()["epoch"] == epoch + 1
        assert len(loader.errors()) == 40


def test_excluded_rows_leave_none_either(shard: Path) -> None:
    with forebay.Loader.eval(shard, **EVAL, exclude=range(40, 48)) as loader:
        assert indices(loader) == [good(number) for number in THERE if number != 5]


def test_what_asks_for_more_than_bad_recordings_raises_in_its_turn(shard: Path) -> None:
    with forebay.Loader.eval(shard, **EVAL, max_errors=10) as loader:
        got: list[list[int]] = []
        with pytest.raises(forebay.DecodeError, match="11 records failed, max_errors allows 10"):
            got.extend(batch["index"].tolist() for batch in loader)
        assert len(loader.errors()) == 11


def test_check_has_a_line_for_each(shard: Path) -> None:
    """`forebay check`, which uses the same engine, reports batches of bad records too."""
    check = forebay._core._Check([shard])
    found = [row["index"] for rows in iter(check.next, None) for row in rows]
    assert found == list(range(100))
    check.close()
