"""Resume, ranks and orders of `Loader` over real shards; `crates/engine/tests/order.rs` has more, with a toy source."""

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from digests import digest
from forebay.cache import DataLoader, ListAsyncDataset, MixtureDataset, PermutationDataset
from recordings import TINY, Row, tiny_rows, write_shard
from timing import claim, timed

SMALL: dict[str, Any] = {"seed": 4, "batch_size": 16, "shuffle_buffer_size": 80, "shuffle_min_size": 40, "n_workers": 2}
ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {"order": "sequential"},
    "window": {"order": "window", "n_streams": 8},
    "global": {"order": "global"},
    "era": {"order": "era", "era_length": 50},
}


@pytest.fixture(scope="module", params=[*ORDERS, "mixture"])
def setting(request: pytest.FixtureRequest, tiny_shards: list[Path]) -> tuple[Any, dict[str, Any]]:
    """Files and parameters of one order; every 20th row is bad."""
    if request.param != "mixture":
        return tiny_shards, {**TINY, **SMALL, **ORDERS[request.param]}
    weights = [(0, {"a": 0.75, "b": 0.25}), (6, {"a": 0.25, "b": 0.75})]
    sources = {"a": tiny_shards[:2], "b": tiny_shards[2:]}
    return sources, {**TINY, **SMALL, "weights": weights}


def on(loader: forebay.Loader, n: int) -> list[str]:
    """Digests of the next `n` batches; a finite loader continues with its next pass."""
    found: list[str] = []
    while len(found) < n:
        found.extend(digest(batch) for batch in islice(iter(loader), n - len(found)))
    return found


@pytest.mark.parametrize("infinite", [True, False])
@pytest.mark.parametrize("augment", [True, False])
def test_goes_on_anywhere_with_other_threads(
    setting: tuple[Any, dict[str, Any]], infinite: bool, augment: bool
) -> None:
    files, parameters = setting
    parameters = {**parameters, "infinite": infinite, "augment": augment}
    states, expected = [], []
    with forebay.Loader(files, **parameters) as loader:
        for _ in range(9):
            states.append(json.dumps(loader.state_dict()))
            expected.append(digest(next(loader)))
    assert max(map(len, states)) < 1024
    for at in range(0, 9, 2):
        other = {**parameters, "n_workers": 1 + at, "raw_channel_size": 1 + at, "shuffle_buffer_size": 1000}
        with forebay.Loader(files, **other) as resumed:
            resumed.load_state_dict(json.loads(states[at]))
            assert [digest(next(resumed)) for _ in range(9 - at)] == expected[at:]


def test_across_epochs_of_a_finite_loader(setting: tuple[Any, dict[str, Any]]) -> None:
    files, parameters = setting
    parameters = {**parameters, "infinite": False}
    with forebay.Loader(files, **parameters) as loader:
        expected = [[digest(batch) for batch in loader] for _ in range(3)]
        assert [len(digests) for digests in expected] == [len(loader)] * 3 or "weights" in parameters
    with forebay.Loader(files, **parameters) as loader:
        for batch in loader:  # noqa: B007
            state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0), "the state is not the start of the next pass"
    with forebay.Loader(files, **parameters) as resumed:
        resumed.load_state_dict(state)
        assert [[digest(batch) for batch in resumed] for _ in range(2)] == expected[1:]
    with forebay.Loader(files, **parameters) as loader:
        list(islice(loader, 3))
        state = loader.state_dict()
    with forebay.Loader(files, **parameters) as resumed:
        resumed.load_state_dict(state)
        assert [digest(batch) for batch in resumed] == expected[0][3:]
        assert [digest(batch) for batch in resumed] == expected[1]


@pytest.mark.parametrize("infinite", [True, False])
def test_ranks_side_by_side(setting: tuple[Any, dict[str, Any]], infinite: bool) -> None:
    files, parameters = setting
    parameters = {**parameters, "infinite": infinite}

    def of(loader: forebay.Loader) -> Iterator[dict[str, np.ndarray]]:
        return islice(loader, 9)

    with forebay.Loader(files, **parameters) as loader:
        start = loader.state_dict()
        alone = list(of(loader))
    for world in (2, 4, 8):
        each = {**parameters, "batch_size": 16 // world, "world_size": world}
        ranks = [forebay.Loader(files, **each, rank=rank) for rank in range(world)]
        for rank in ranks:
            rank.load_state_dict(start)  # in the order "window" the ranks take over the streams of one process
        for whole, *parts in zip(alone, *map(of, ranks), strict=True):
            for name, values in whole.items():
                np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)
        assert len({rank.batches_per_epoch for rank in ranks}) == 1
        state = ranks[0].state_dict()
        assert [rank.state_dict() for rank in ranks] == [state] * world
        for rank in ranks:
            rank.close()


def test_a_rank_without_rows_gets_arrays_without_rows(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "nine.arrow", tiny_rows(9))
    parameters = {**TINY, "infinite": False, "shuffle_min_size": 0, "batch_size": 2, "world_size": 4}
    shapes = []
    for rank in range(4):
        with forebay.Loader(shard, **parameters, rank=rank) as loader:  # type: ignore[arg-type]
            assert len(loader) == 2
            shapes.append([batch["spectrogram"].shape for batch in loader])
    assert [pair[1] for pair in shapes] == [(0, 8, 6), (0, 8, 6), (0, 8, 6), (1, 8, 6)]


def test_a_mismatch_names_what_differs(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:
        state = loader.state_dict()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"seed": 5}, "seed is 4 in the state and 5 here"),
        ({"n_mels": 9}, "n_mels is 8 in the state and 9 here"),
        ({"batch_size": 8}, "global_batch_size is 16 in the state and 8 here"),
        ({"order": "global"}, 'order is "window" in the state and "global" here'),
        ({"augment": False}, "augment is true in the state and false here"),
    ]
    for change, told in changes:
        with (
            forebay.Loader(tiny_shards, **{**TINY, **SMALL, **change}) as other,
            pytest.raises(forebay.StateError, match=told),
        ):
            other.load_state_dict(state)
    with forebay.Loader(tiny_shards[:4], **TINY, **SMALL) as fewer:
        with pytest.raises(forebay.StateError, match=r"num_records is 300 in the state and 240 here, num_shards is 5"):
            fewer.load_state_dict(state)
        with pytest.raises(forebay.StateError, match="pass what state_dict"):
            fewer.load_state_dict({})
        with pytest.raises(TypeError, match="state_dict"):
            fewer.load_state_dict({"a": object()})
        with pytest.raises(forebay.StateError, match="version 99"):
            fewer.load_state_dict({**state, "version": 99})
    four = {**TINY, **SMALL, "batch_size": 4}
    with forebay.Loader(tiny_shards, **four, world_size=4) as loader:
        state = loader.state_dict()
    with (
        forebay.Loader(tiny_shards, **{**four, "batch_size": 2}, world_size=8) as eight,
        pytest.raises(forebay.StateError, match=r"4 streams.*8 ranks"),
    ):
        eight.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order": "random"}, 'order is "random", must be'),
        ({"rank": 2, "world_size": 2}, "rank is 2, must be 0 to 1, less than world_size"),
        ({"world_size": 0}, "world_size is 0, must be 1"),
        ({"n_streams": 3, "world_size": 2}, "n_streams is 3, must be a multiple of world_size, 2"),
        ({"n_streams": 7}, "n_streams is 7, must divide"),
        ({"n_streams": 4, "order": "global"}, r'only order="window" and batching=Buckets\(\) have streams'),
        ({"order": "era", "era_length": 0}, "era_length is 0"),
        ({"stop": "restart"}, "pass arrow_files as a dict"),
    ],
)
def test_wrong_parameters(tiny_shards: list[Path], change: dict[str, Any], told: str) -> None:
    with pytest.raises(forebay.ConfigError, match=told):
        forebay.Loader(tiny_shards, **{**TINY, **SMALL, **change})


def test_wrong_mixtures(tiny_shards: list[Path]) -> None:
    sources = {"a": tiny_shards[:2], "b": tiny_shards[2:]}
    changes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"weights": {"a": 1}}, ValueError, "lack the source 'b'|lack the source \"b\""),
        ({"weights": {"a": 1, "b": 1, "c": 1}}, ValueError, "not a source"),
        ({"weights": {"a": -1, "b": 1}}, forebay.ConfigError, "weight"),
        ({"weights": {"a": 0, "b": 0}}, forebay.ConfigError, "weight"),
        ({"weights": {"a": 1, "b": 1e-9}}, forebay.ConfigError, "block"),
        ({"weights": [(1, {"a": 1, "b": 1})]}, forebay.ConfigError, "0"),
        ({"weights": 3}, TypeError, "weights is 3 .*, must be"),
        ({"order": "window"}, forebay.ConfigError, "random access"),
        ({"stop": "first_exhausted"}, forebay.ConfigError, "infinite=False"),
        ({"stop": "restart", "infinite": False}, forebay.ConfigError, "infinite=True"),
        ({"mixture_block": 0}, forebay.ConfigError, "mixture_block is 0"),
    ]
    for change, error, told in changes:
        with pytest.raises(error, match=told):
            forebay.Loader(sources, **{**TINY, **SMALL, **change})
    with pytest.raises(TypeError, match="arrow_files as a dict"):
        forebay.Loader(tiny_shards, **TINY, weights={"a": 1.0})


def test_a_mixture_holds_its_weights_and_passes_each_source_once(tiny_shards: list[Path]) -> None:
    sources = {"a": tiny_shards[:2], "b": tiny_shards[2:]}
    weights = [(0, {"a": 0.75, "b": 0.25}), (6, {"a": 0.25, "b": 0.75})]
    parameters = {**TINY, **SMALL}
    with forebay.Loader(sources, weights=weights, **parameters) as loader:
        assert loader.source_names == ["a", "b"]
        batches = list(islice(loader, 10))
    for number, batch in enumerate(batches):
        assert batch["source"].dtype == np.int64
        np.testing.assert_array_equal(batch["source"], batch["index"] >= 120)
        assert (batch["source"] == 0).sum() == (12 if number < 6 else 4)
    with forebay.Loader(sources, weights=weights, **parameters) as loader:
        planned = loader.plan(160)
    first = planned[planned < 120]
    assert len(first) == 6 * 12 + 4 * 4
    assert len(set(first)) == len(first), "rows were drawn twice"
    finite = {**parameters, "infinite": False, "weights": {"a": 1, "b": 1}}
    with forebay.Loader(sources, **finite) as loader:
        assert 120 / 8 - 1 < len(loader) <= 120 / 8, "the pass does not end with the smaller source"
    with forebay.Loader(sources, **finite, stop="all_exhausted") as loader:
        planned = loader.plan(10_000)
        assert set(planned) == set(range(300))


def test_seek_skip_replay_and_plan(setting: tuple[Any, dict[str, Any]]) -> None:
    files, parameters = setting
    with forebay.Loader(files, **parameters) as loader:
        expected = [digest(next(loader)) for _ in range(12)]
        assert loader.batch == 12
        assert digest(loader.replay(3)) == expected[3]
        assert loader.batch == 12
        loader.seek(5)
        assert digest(next(loader)) == expected[5]
        loader.skip([(7, 8), (9, 11)])
        assert [digest(next(loader)) for _ in range(3)] == [expected[6], expected[8], expected[11]]
        for wrong in (-1, 2**70):
            with pytest.raises(forebay.ConfigError, match="batch"):
                loader.seek(wrong)
        for ranges in ([(3, 2)], [(-1, 2)]):
            with pytest.raises(forebay.ConfigError, match="range"):
                loader.skip(ranges)
        with pytest.raises(TypeError, match="pairs"):
            loader.skip([3])  # type: ignore[list-item]
    with forebay.Loader(files, **parameters) as loader:
        planned = loader.plan(40)
        assert planned.dtype == np.int64
        assert planned.shape == (40,)
        with pytest.raises(forebay.ConfigError, match="n is -1"):
            loader.plan(-1)
        assert loader.stats()["records_read"] == 0
        bad = {row for row in range(300) if row % 60 % 20 == 7 or row % 20 == 7}
        got = np.concatenate([next(loader)["index"] for _ in range(3)])[:40]
        assert [(a, b) for a, b in zip(planned, got, strict=True) if a not in bad and a != b] == []


def test_pickling_gives_configuration_and_state(setting: tuple[Any, dict[str, Any]]) -> None:
    files, parameters = setting
    with forebay.Loader(files, **parameters) as loader:
        next(loader)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert repr(copy)[:-1] == repr(loader).partition(";")[0]
            assert on(copy, 4) == on(loader, 4)


def test_an_interrupted_replay_stops(tiny_shards: list[Path]) -> None:
    forebay._core._inject_delays()
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:
        expected = digest(loader.replay(0))
        assert digest(next(loader)) == expected


def test_a_state_saved_in_a_signal_handler_is_of_what_was_returned(tiny_shards: list[Path]) -> None:
    """A handler, as of a preemption, saves the state and raises during any part of `next()`."""

    class PreemptedError(Exception):
        pass

    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:
        expected = [digest(next(loader)) for _ in range(60)]
    n_raised = n_lost = 0
    for attempt in range(12):
        seen: list[str] = []
        states: list[dict[str, Any]] = []

        def save(*_: object) -> None:
            states.append(loader.state_dict())  # noqa: B023
            raise PreemptedError

        forebay._core._inject_delays(fixed_ms=1.0, random_ms=1.0)
        with forebay.Loader(tiny_shards, **TINY, **SMALL, prefetch_batches=1) as loader:
            before = signal.signal(signal.SIGALRM, save)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.05 + 0.013 * attempt)
                for batch in loader:
                    seen.append(digest(batch))
                    if states:
                        break
            except PreemptedError:
                n_raised += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            forebay._core._inject_delays()
            if n_raised < attempt + 1 - n_lost:
                # The interpreter swallows an exception that is raised within a finalizer or a callback of `gc`.
                n_lost += 1
                continue
            # The signal may arrive after next() returns and before `seen` has the batch.
            assert states[0]["batch"] - len(seen) in (0, 1)
            assert seen == expected[: len(seen)]
            assert digest(next(loader)) == expected[states[0]["batch"]], "the interrupted loader resumes elsewhere"
        with forebay.Loader(tiny_shards, **TINY, **SMALL) as resumed:
            resumed.load_state_dict(states[0])
            assert digest(next(resumed)) == expected[states[0]["batch"]]
    assert n_raised > n_lost


def test_seeking_in_a_signal_handler(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:
        first = digest(next(loader))

        def begin_anew(*_: object) -> None:
            loader.seek(0)
            raise InterruptedError

        before = signal.signal(signal.SIGALRM, begin_anew)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(InterruptedError):
                for _ in loader:
                    pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert digest(next(loader)) == first


def test_the_usual_loop_over_epochs_resumes(tiny_shards: list[Path]) -> None:
    """`set_epoch` before each pass, as with samplers, keeps the position of a restored pass."""
    parameters: dict[str, Any] = {**TINY, **SMALL, "infinite": False}
    with forebay.Loader(tiny_shards, **parameters) as loader:
        expected = [[digest(batch) for batch in loader] for _ in range(3)]
    with forebay.Loader(tiny_shards, **parameters) as loader:
        list(islice(loader, 5))
        state = loader.state_dict()
    found = []
    with forebay.Loader(tiny_shards, **parameters) as resumed:
        resumed.load_state_dict(state)
        for epoch in range(state["epoch"], 3):
            resumed.set_epoch(epoch)
            found.append([digest(batch) for batch in resumed])
    assert found == [expected[0][5:], *expected[1:]]


def test_set_epoch_of_an_infinite_loader(tiny_shards: list[Path]) -> None:
    """Its own epoch and the number of iterations change nothing; any other number would have to move the data."""
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader, forebay.Loader(tiny_shards, **TINY, **SMALL) as plain:
        expected = [digest(next(plain)) for _ in range(60)]
        found = []
        for epoch in range(4):
            loader.set_epoch(epoch)  # as training frameworks do
            with pytest.raises(forebay.StateError, match=rf"epoch is {epoch + 5}, but an infinite loader continues"):
                loader.set_epoch(epoch + 5)
            found += [digest(batch) for batch in islice(loader, 7)]
        for _ in range(12):
            found.append(digest(next(loader)))
        assert loader.epoch == 40 * 16 // 300 == 2
        loader.set_epoch(2)
        found += [digest(batch) for batch in islice(loader, 20)]
        assert found == expected
        # The count of a framework that resumes begins with the first number that it gives.
        state = loader.state_dict()
        loader.load_state_dict(state)
        for epoch in (17, 17, 18):
            loader.set_epoch(epoch)
            next(iter(loader))
        with pytest.raises(forebay.StateError, match="epoch is 16, "):
            loader.set_epoch(16)


def test_set_epoch_of_an_infinite_dataset() -> None:
    rows = ListAsyncDataset([{"y": np.int64(i)} for i in range(40)])

    def make() -> DataLoader:
        return DataLoader(MixtureDataset({"a": PermutationDataset(rows, seed=1)}, {"a": 1}), 10)

    with make() as loader, make() as plain:
        found = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            found += [batch["y"].tolist() for batch in islice(loader, 6)]
        assert found == [next(plain)["y"].tolist() for _ in range(18)]
        with pytest.raises(forebay.StateError, match="epoch is 9, but an infinite loader continues"):
            loader.set_epoch(9)


@pytest.mark.parametrize("before", [{}, {"world_size": 4, "batch_size": 4}, {"n_streams": 8}], ids=str)
def test_at_the_end_of_a_pass_any_world_size_can_resume(before: dict[str, Any], tiny_shards: list[Path]) -> None:
    """Other streams begin with the next pass: no row is lost or repeated. Within a pass that is refused."""
    parameters: dict[str, Any] = {**TINY, **SMALL, "infinite": False, "batch_size": 16}
    with forebay.Loader(tiny_shards, **{**parameters, **before}) as loader:
        batches = iter(loader)
        next(batches)
        within = loader.state_dict()
        for _ in batches:
            pass
        ended = loader.state_dict()
    share = {"batch_size": 8, "world_size": 2, "n_streams": 2}
    rows, state = [], ended
    for rank in (0, 1):
        with forebay.Loader(tiny_shards, **{**parameters, **share, "rank": rank}) as loader:
            with pytest.raises(forebay.StateError, match=r"load a state from the end of a pass|leave n_streams out"):
                loader.load_state_dict(within)
            loader.load_state_dict(ended)
            assert (loader.epoch, loader.batch) == (1, 0)
            rows += [row for batch in loader for row in batch["index"].tolist()]
            state = loader.state_dict()
        with forebay.Loader(tiny_shards, **{**parameters, **share, "rank": rank}) as fresh:
            fresh.set_epoch(1)
            mine = [row for batch in fresh for row in batch["index"].tolist()]
            assert rows[-len(mine) :] == mine
    assert sorted(rows) == [row for row in range(300) if row % 20 != 7]
    with forebay.Loader(tiny_shards, **parameters) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 2


@pytest.mark.parametrize("seconds", [160000 / 44100, 1024 / 11025, 4096 / 22050, float(np.float32(0.96)), 1.0])
def test_any_clip_length_comes_back(tiny_shards: list[Path], seconds: float) -> None:
    parameters: dict[str, Any] = {**TINY, "clip_seconds": seconds}
    with forebay.Loader(tiny_shards, **parameters) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        loader.load_state_dict(state)
        if seconds == 1.0:
            state["config"]["clip_seconds"] = 1  # other JSON writers drop the ".0"
            loader.load_state_dict(state)


@timed
def test_a_long_plan_can_be_interrupted(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:

        def stop(*_: object) -> None:
            raise InterruptedError

        before = signal.signal(signal.SIGALRM, stop)
        start = time.perf_counter()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(InterruptedError):
                loader.plan(2**32)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        seconds = time.perf_counter() - start
        assert len(loader.plan(100)) == 100
    claim(seconds < 0.1 + 3 * 0.15, seconds)


def test_ranges_to_skip_have_bounds(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **TINY, **SMALL, infinite=False) as loader:
        with pytest.raises(forebay.ConfigError, match="but there are 19"):
            loader.skip([(3, 99)])
        loader.skip([(0, 3)])
        assert loader.batch == 3
        assert max(len(json.dumps(loader.state_dict())), 0) < 1024
        loader.skip([])
        assert loader.batch == 0
    with forebay.Loader(tiny_shards, **TINY, **SMALL) as loader:
        with pytest.raises(forebay.ConfigError, match="to be skipped"):
            loader.skip([(0, 2**62)])
        with pytest.raises(forebay.ConfigError, match="9 ranges"):
            loader.skip([(2 * i, 2 * i + 1) for i in range(9)])
        loader.skip([(10**15 + 2 * i, 10**15 + 2 * i + 1) for i in range(8)])
        assert len(json.dumps(loader.state_dict())) < 1024


@pytest.mark.parametrize("infinite", [True, False])
def test_a_state_keeps_the_ranges_to_skip(tiny_shards: list[Path], infinite: bool) -> None:
    """Also one that the position is in, and those before it: `seek` may return, and `skip` may remove them."""
    given = {**TINY, **SMALL, "infinite": infinite}
    with forebay.Loader(tiny_shards, **given) as whole:
        expected = [digest(whole.replay(number)) for number in range(12)]

    def restored(loader: forebay.Loader) -> list[forebay.Loader]:
        made = forebay.Loader(tiny_shards, **given)
        made.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        return [loader, made, pickle.loads(pickle.dumps(loader))]

    for n in (0, 2, 5):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(forebay.Loader(tiny_shards, **given))
            for number in range(n):
                assert digest(next(first)) == expected[number]
            first.skip([(0, 1), (n, n + 3), (8, 10)])
            for loader in map(stack.enter_context, restored(first)):
                following = n + 3 if n < 5 else 10  # ranges that touch are one
                assert (loader.batch, digest(next(loader))) == (following, expected[following])
                loader.seek(0)
                assert digest(next(loader)) == expected[3 if n == 0 else 1]
                loader.seek(8)
                loader.skip([])
                assert digest(next(loader)) == expected[8]
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(forebay.Loader(tiny_shards, **given))
            first.seek(n)
            first.skip([(n, n + 3)])
            for loader in map(stack.enter_context, restored(first)):
                loader.skip([])
                assert (loader.batch, digest(next(loader))) == (n, expected[n])


SCRIPT = """
import json, os, sys
from pathlib import Path
import forebay
from digests import digest
files, parameters, checkpoint, n = json.loads(sys.argv[1])
checkpoint = Path(checkpoint)
saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"digests": []}
with forebay.Loader(files, **parameters) as loader:
    if "state" in saved:
        loader.load_state_dict(saved["state"])
    while len(saved["digests"]) < n:
        saved["digests"].append(digest(next(loader)))
        saved["state"] = loader.state_dict()
        fresh = checkpoint.with_suffix(".new")
        fresh.write_text(json.dumps(saved))
        os.replace(fresh, checkpoint)
"""


def test_killed_at_random_times(setting: tuple[Any, dict[str, Any]], tmp_path: Path, soak: int) -> None:
    files, parameters = setting
    names = {k: [str(p) for p in v] for k, v in files.items()} if isinstance(files, dict) else [str(p) for p in files]
    checkpoint, chance, n = tmp_path / "checkpoint.json", random.Random(7), 30

    def start(n_workers: int) -> subprocess.Popen[bytes]:
        arguments = json.dumps([names, {**parameters, "n_workers": n_workers}, str(checkpoint), n])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        return subprocess.Popen([sys.executable, "-c", SCRIPT, arguments], env=environment)

    for kill in range(2 + 4 * (soak - 1)):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        child = start(1 + kill % 4)
        while child.poll() is None and (checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0) == before:
            time.sleep(0.001)
        time.sleep(chance.random() / 50)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert start(3).wait(300) == 0
    with forebay.Loader(files, **parameters) as loader:
        assert json.loads(checkpoint.read_text())["digests"] == on(loader, n)


@timed
def test_resuming_a_wide_window_takes_no_replay(tmp_path: Path) -> None:
    rows = tiny_rows(20_000)
    parts = [rows[start : start + 5000] for start in range(0, 20_000, 5000)]
    shards = [write_shard(tmp_path / f"{i}.arrow", part, rows_per_batch=1000) for i, part in enumerate(parts)]
    parameters: dict[str, Any] = {**TINY, "shuffle_min_size": 8000, "shuffle_buffer_size": 10_000, "n_workers": 2}
    seconds = []
    for batch in (1, 200, 10**6, 10**9):
        with forebay.Loader(shards, **parameters) as loader:
            loader.seek(batch)
            state = loader.state_dict()
        with forebay.Loader(shards, **parameters) as resumed:
            resumed.load_state_dict(state)
            begin = time.perf_counter()
            next(resumed)
            seconds.append(time.perf_counter() - begin)
            decoded = resumed.stats()["decoded_at_first_batch"]
            claim(decoded < 2000, "the first batch waited for the window of 8000", decoded)
    claim(max(seconds) < 3.0, seconds)


def test_bad_rows_do_not_part_ranks(tmp_path: Path) -> None:
    """Substitutes fill an infinite stream on every rank; a finite pass has the same number of batches on each."""
    rows = tiny_rows(64)
    for i in range(0, 32, 2):
        rows[i] = Row(b"broken", 0)
    shard = write_shard(tmp_path / "half.arrow", rows)
    parameters: dict[str, Any] = {**TINY, **SMALL, "batch_size": 4, "world_size": 4, "order": "sequential"}
    for rank in range(4):
        with forebay.Loader(shard, **parameters, rank=rank) as loader:
            assert [len(batch["index"]) for batch in islice(loader, 8)] == [4] * 8
        with forebay.Loader(shard, **parameters, rank=rank, infinite=False) as loader:
            assert len(list(loader)) == len(loader) == 4


def test_compressed_shards_refuse_scattered_orders_only_if_large(tmp_path: Path) -> None:
    import pyarrow as pa

    def compressed(path: Path, rows: list[bytes]) -> Path:
        table = pa.table({"audio": pa.array(rows, pa.binary())})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(path, table.schema, options=options) as writer:
            writer.write_table(table)
        return path

    small = compressed(tmp_path / "small.arrow", [row.audio or b"" for row in tiny_rows(50)])
    with forebay.Loader(small, **TINY, order="global", infinite=False) as loader:
        assert sorted(np.concatenate([batch["index"] for batch in loader])) == list(range(50))
    noise = np.random.default_rng(0).integers(0, 256, 18 << 20, dtype=np.uint8).tobytes()
    large = compressed(tmp_path / "large.arrow", [noise])
    with pytest.raises(forebay.ConfigError, match=r"17 MiB|18 MiB"):
        forebay.Loader(large, **TINY, order="global")
    forebay.Loader(large, **TINY, order="window").close()
