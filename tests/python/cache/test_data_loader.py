"""`forebay.cache.DataLoader`: passes, ranks, resume, growing datasets, errors, Ctrl-C and the end of the process."""

import gc
import json
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Generator, Iterator
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from forebay import ConfigError, ForebayError, StateError, _core
from forebay.cache import (
    AsyncDataset,
    DataLoader,
    EraShufflingDataset,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    TokenSeqDataset,
    WeightedDataset,
)
from timing import claim, eventually, native_threads, timed

Batch = dict[str, Any]


def numbered(n: int, base: int = 0) -> ListAsyncDataset:
    return ListAsyncDataset([{"x": base + i, "ids": np.arange(1 + i % 4, dtype=np.int32) + i} for i in range(n)])


class Own(AsyncDataset):
    """A dataset written in Python, which raises for the row `bad`."""

    fields = MappingProxyType({"x": ((), "int64"), "ids": (None, "int32")})

    def __init__(self, n: int, bad: int = -1) -> None:
        self.n = n
        self.bad = bad

    def __len__(self) -> int:
        return self.n

    def get_batch(self, indices: ArrayLike) -> list[Batch]:
        rows = np.asarray(indices).tolist()
        if self.bad in rows:
            raise RuntimeError(f"document {self.bad} is bad")
        return [{"x": np.int64(i), "ids": np.arange(1 + i % 4, dtype=np.int32) + i} for i in rows]


def tree(n: int = 103) -> AsyncDataset:
    """A dataset of every kind of view."""
    sources = {
        "list": PermutationDataset(numbered(n), 1),
        "own": Own(n // 2),
        "era": EraShufflingDataset(WeightedDataset(numbered(n), [i % 4 for i in range(n)], 5), 16, 2),
    }
    weights = [(0, {"list": 2, "own": 1, "era": 1}), (48, {"list": 1, "own": 2, "era": 1})]
    return MixtureDataset(sources, weights, 8, seed=4, stop="all_exhausted")


def content(batch: Batch) -> tuple[Any, ...]:
    return tuple(
        (name, value.tolist()) if isinstance(value, np.ndarray) else (name, [row.tolist() for row in value])
        for name, value in batch.items()
    )


def xs(batches: Iterator[Batch] | list[Batch]) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


def test_a_pass() -> None:
    dataset = PermutationDataset(numbered(103), 1)
    with DataLoader(dataset, 8) as loader:
        assert len(loader) == 13
        batches = list(loader)
    assert [len(batch["x"]) for batch in batches] == [8] * 12 + [7]
    expected = dataset.get_batch(range(103))
    found = [row for batch in batches for row in zip(batch["x"].tolist(), batch["ids"], strict=True)]
    for (x, ids), document in zip(found, expected, strict=True):
        assert x == document["x"]
        np.testing.assert_array_equal(ids, document["ids"])


def test_each_pass_has_an_order_of_its_own() -> None:
    """The order of a permutation differs between passes and is a function of the epoch."""
    with DataLoader(PermutationDataset(numbered(64), 1), 8) as loader:
        passes = [np.concatenate(xs(loader)).tolist() for _ in range(3)]
    assert len({tuple(order) for order in passes}) == 3
    assert all(sorted(order) == list(range(64)) for order in passes)
    with DataLoader(PermutationDataset(numbered(64), 1), 8) as loader:
        loader.set_epoch(2)
        assert np.concatenate(xs(loader)).tolist() == passes[2]
        loader.set_epoch(0)
        next(iter(loader))
        assert np.concatenate(xs(loader)).tolist() == passes[1]  # a pass that was left early is over


def test_drop_last() -> None:
    assert [len(batch["x"]) for batch in DataLoader(numbered(20), 8, drop_last=True)] == [8, 8]
    assert len(DataLoader(numbered(20), 8, drop_last=True)) == 2
    with pytest.raises(ConfigError, match="20 rows, a batch of all ranks has 24, and drop_last"):
        DataLoader(numbered(20), 24, drop_last=True)


@pytest.mark.parametrize("n", [64, 103, 97])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_side_by_side_are_the_one_process(world_size: int, n: int) -> None:
    with DataLoader(tree(n), 8) as loader:
        expected = list(loader)
    parts = []
    for rank in range(world_size):
        with DataLoader(tree(n), 8 // world_size, rank, world_size) as loader:
            parts.append(list(loader))
            assert len(loader) == len(expected) == len(parts[-1])
            assert loader.stats()["rows"] == sum(len(batch["x"]) for batch in parts[-1])  # only this rank's part
    for i, whole in enumerate(expected):
        assert np.concatenate([part[i]["x"] for part in parts]).tolist() == whole["x"].tolist()
        side_by_side = [row.tolist() for part in parts for row in part[i]["ids"]]
        assert side_by_side == [row.tolist() for row in whole["ids"]]


def test_a_last_batch_of_fewer_rows_than_ranks() -> None:
    parts = [list(DataLoader(TokenSeqDataset(numbered(30), 4, field="ids"), 2, rank, 4)) for rank in range(4)]
    lengths = [[len(batch["ids"]) for batch in part] for part in parts]
    total = len(TokenSeqDataset(numbered(30), 4, field="ids"))
    assert total % 8 == 2
    assert [length[-1] for length in lengths] == [0, 1, 0, 1]
    assert parts[0][-1]["ids"].shape == (0, 4)
    assert parts[0][-1]["ids"].dtype == np.int32


@pytest.mark.parametrize(("prefetch_batches", "n_workers"), [(1, 1), (1, 8), (7, 3), ("auto", "auto")])
def test_threads_change_nothing(prefetch_batches: Any, n_workers: Any) -> None:
    with DataLoader(tree(), 8) as loader:
        expected = [content(batch) for batch in loader]
    _core._inject_delays(0.0, 3.0)
    try:
        with DataLoader(tree(), 8, prefetch_batches=prefetch_batches, n_workers=n_workers) as loader:
            assert [content(batch) for batch in loader] == expected
    finally:
        _core._inject_delays()


def test_resume_at_every_step() -> None:
    with DataLoader(tree(), 8) as loader:
        states, batches = [], []
        for _ in range(2):
            for batch in loader:
                batches.append(content(batch))
                states.append(json.loads(json.dumps(loader.state_dict())))
    for step in range(len(states) - 1):
        # With other numbers of workers and of batches ahead.
        with DataLoader(tree(), 8, n_workers=1 + step % 3, prefetch_batches=1 + step % 2) as loader:
            loader.load_state_dict(states[step])
            left = len(loader) - loader.batch
            assert [content(batch) for batch in loader] == batches[step + 1 : step + 1 + left]
    assert len(json.dumps(states[0])) < 1024


def test_a_loader_of_weights_resumes_before_every_batch() -> None:
    """On other numbers of ranks too: the state is a number, and each pass has other copies."""

    def make() -> AsyncDataset:
        weights = [0.1 + i % 5 for i in range(103)]
        return PermutationDataset(WeightedDataset(numbered(103), weights, 3, epoch_size=64), 1)

    with DataLoader(make(), 8) as loader:
        passes = [xs(loader) for _ in range(3)]
    flat = [batch for one in passes for batch in one]
    assert len(flat) == 24
    assert len({tuple(sorted(chain.from_iterable(one))) for one in passes}) == 3
    for world_size in (1, 2, 8):
        for step in range(24):
            parts = []
            for rank in range(world_size):
                with DataLoader(make(), 8 // world_size, rank, world_size, start_step=step) as loader:
                    state = json.loads(json.dumps(loader.state_dict()))
                with DataLoader(make(), 8 // world_size, rank, world_size) as loader:
                    loader.load_state_dict(state)
                    parts.append(xs(loader))
            found = [list(chain.from_iterable(batches)) for batches in zip(*parts, strict=True)]
            assert found == flat[step : step + len(found)]
            assert len(found) == 8 - step % 8
    for other in ([1.0] * 103, [0.2 + i % 5 for i in range(103)]):
        dataset = PermutationDataset(WeightedDataset(numbered(103), other, 3, epoch_size=64), 1)
        with DataLoader(dataset, 8) as loader, pytest.raises(StateError, match="dataset is "):
            loader.load_state_dict(DataLoader(make(), 8).state_dict())


def test_resume_goes_on_across_passes() -> None:
    dataset = PermutationDataset(numbered(64), 1)
    with DataLoader(dataset, 8) as loader:
        passes = [xs(loader) for _ in range(3)]
        flat = [batch for one in passes for batch in one]
    for step in range(24):
        with DataLoader(PermutationDataset(numbered(64), 1), 4, 1, 2, start_step=step) as loader:
            assert (loader.epoch, loader.batch) == divmod(step, 8)
            found = xs(loader) + (xs(loader) if step < 16 else [])
        assert found == [batch[4:] for batch in flat[step : step + len(found)]]


def test_states_of_others_are_refused() -> None:
    with DataLoader(tree(), 8) as loader:
        next(loader)
        state = loader.state_dict()
    for other, what in (
        (DataLoader(tree(), 4), "global_batch_size is 8 in the state and 4 here"),
        (DataLoader(PermutationDataset(numbered(30), 9), 8), "dataset is "),
        (DataLoader(tree(99), 8), "num_records"),
        (DataLoader(tree(), 8, drop_last=True), "drop_last"),
    ):
        with pytest.raises(StateError, match=what):
            other.load_state_dict(state)
    with pytest.raises(TypeError):
        DataLoader(tree(), 8).load_state_dict({"a": object()})
    for bad in ({}, {"version": 1}):
        with pytest.raises(StateError):
            DataLoader(tree(), 8).load_state_dict(bad)


def test_the_global_batch_is_the_block() -> None:
    def mixture() -> MixtureDataset:
        return MixtureDataset({"a": numbered(50), "b": numbered(50, 1000)}, {"a": 3, "b": 1})

    with DataLoader(mixture(), 16) as loader:
        whole = [next(loader)["x"] for _ in range(20)]
    assert {int((batch >= 1000).sum()) for batch in whole} == {4}
    parts = [DataLoader(mixture(), 4, rank, 4) for rank in range(4)]
    for batch in whole:
        assert np.concatenate([next(part)["x"] for part in parts]).tolist() == batch.tolist()
    with pytest.raises(TypeError, match="infinite"):
        len(parts[0])
    for _ in range(2):  # iter() does not restart an infinite pass
        assert next(iter(parts[0]))["x"].tolist() != whole[0][:4].tolist()
    with pytest.raises(ConfigError, match="the smallest block that is large enough is"):
        DataLoader(MixtureDataset({"a": numbered(9), "b": numbered(9)}, {"a": 0.99, "b": 0.01}), 16)


def test_types_of_fields() -> None:
    """`dtype` converts all whole numbers, stacked or jagged; a run may be resumed with another type."""
    documents = [{"label": i, "ids": np.arange(i % 5, dtype=np.uint16) + i, "x": np.float32(i)} for i in range(60)]
    dataset = PermutationDataset(ListAsyncDataset(documents), 3)
    windows = TokenSeqDataset(ListAsyncDataset([{"input_ids": np.arange(900, dtype=np.uint16)}]), 9)
    for dtype in ("int32", "int64", "uint16", "uint32"):
        with DataLoader(dataset, 7, dtype=dtype) as loader, DataLoader(dataset, 7) as plain:
            next(plain)
            state = plain.state_dict()
            loader.load_state_dict(state)
            plain.load_state_dict(state)
            for found, expected in zip(loader, plain, strict=True):
                assert (found["label"].dtype, found["ids"].dtype, found["x"].dtype) == (dtype, dtype, np.float32)
                assert expected["ids"].dtype == np.uint16
                np.testing.assert_array_equal(found["label"], expected["label"])
                np.testing.assert_array_equal(found["ids"].data, expected["ids"].data)
                np.testing.assert_array_equal(found["ids"].offsets, expected["ids"].offsets)
        with DataLoader(windows, 4, dtype=dtype) as loader, DataLoader(windows, 4) as plain:
            assert next(plain)["input_ids"].dtype == np.int32
            loader.load_state_dict(plain.state_dict())
            found = next(loader)["input_ids"]
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, next(plain)["input_ids"])
            assert json.dumps(loader.state_dict()) == json.dumps(plain.state_dict())
    # What fits the loader's type need not fit that of the windows.
    big = TokenSeqDataset(ListAsyncDataset([{"input_ids": np.arange(8) + 2**40}]), 4)
    with DataLoader(big, 2, dtype="int64") as loader:
        assert (next(loader)["input_ids"] == np.arange(8).reshape(2, 4) + 2**40).all()
    message = r"1099511627776, value 0 of .* in row 0, does not fit int32; .*batch 0 of epoch 0"
    with DataLoader(big, 2) as loader, pytest.raises(ConfigError, match=message):
        next(loader)


@timed
def test_seeks_at_once() -> None:
    n = 1 << 20
    tokens = ListAsyncDataset([{"input_ids": np.arange(n, dtype=np.int32)}])
    dataset = PermutationDataset(TokenSeqDataset(tokens, 8), 1)
    with DataLoader(dataset, 32) as loader:
        assert len(loader) == n // 8 // 32
        times = []
        for step in (4000, 7, 3999, 2048, 0):
            began = time.perf_counter()
            loader.seek(step)
            batch = next(loader)["input_ids"]
            times.append(time.perf_counter() - began)
            expected = dataset.locate(range(32 * step, 32 * step + 32))[1]
            np.testing.assert_array_equal(batch[:, 0] // 8, expected)
        with pytest.raises(ConfigError, match=r"batch is .*, must be 0 to"):
            loader.seek(len(loader) + 1)
    claim(sorted(times)[2] < 0.05, times)


def test_no_stall_at_a_boundary() -> None:
    """Reads continue during consumption; alternating both by windows would stall at each window's end."""
    fetched: list[list[int]] = []

    class Noted(Own):
        def get_batch(self, indices: ArrayLike) -> list[Batch]:
            fetched.append(np.asarray(indices).tolist())
            return super().get_batch(indices)

    with DataLoader(Noted(2000), 10, prefetch_batches=8, n_workers=4) as loader:
        for taken in range(1, 101):
            next(loader)
            eventually(lambda taken=taken: len(fetched) >= taken + 8)


def test_memory_is_the_users() -> None:
    dataset = TokenSeqDataset(ListAsyncDataset([{"ids": np.arange(1 << 20, dtype=np.int32)}]), 1024, field="ids")
    with DataLoader(dataset, 64) as loader:
        kept = list(loader)
    for i, batch in enumerate(kept):
        flags = batch["ids"].flags
        assert (flags.writeable, flags.c_contiguous, flags.aligned) == (True, True, True)
        np.testing.assert_array_equal(batch["ids"].ravel(), np.arange(i * 65536, (i + 1) * 65536))


def growing(n: int) -> tuple[ListAsyncDataset, threading.Thread]:
    dataset = ListAsyncDataset([{"x": 0}], is_complete=False)

    def add() -> None:
        for i in range(1, n):
            dataset.append({"x": i})
            time.sleep(0.0005)
        dataset.finalize()

    return dataset, threading.Thread(target=add)


@pytest.mark.parametrize(("n", "drop_last"), [(100, False), (96, False), (100, True)])
def test_a_cache_that_grows(n: int, drop_last: bool) -> None:
    dataset, writer = growing(n)
    eras = EraShufflingDataset(dataset, 16, 1)
    with DataLoader(eras, 8, drop_last=drop_last) as loader:
        with pytest.raises(TypeError, match="still grows"):
            len(loader)
        writer.start()
        first = xs(loader)
        writer.join()
        second = xs(loader)
        assert len(loader) == len(first) == len(second)
        # Only batches that the loop received are counted, and no attempt to make one past the end.
        stats = loader.stats()
        delivered = stats["delivered"]
        assert stats["batches"] == delivered["batches"] == 2 * len(first)
        assert stats["records_failed"] == 0
        assert delivered["examples"] == sum(map(len, first + second))
    with DataLoader(
        EraShufflingDataset(ListAsyncDataset([{"x": i} for i in range(n)]), 16, 1), 8, drop_last=drop_last
    ) as loader:
        assert (first, second) == (xs(loader), xs(loader))


def test_after_the_end_of_a_cache_that_grew() -> None:
    dataset, writer = growing(20)
    with DataLoader(EraShufflingDataset(dataset, 16, 1), 8) as loader:
        writer.start()
        first = xs(loader)
        assert (loader.batch, len(loader)) == (3, 3)
        # The pass is over, and can be chosen again.
        loader.set_epoch(0)
        assert loader.batch == 0
        assert xs(loader) == first
        with pytest.raises(ConfigError, match="batch is 4, must be 0 to 3"):
            loader.seek(4)
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 0)
    writer.join()


def test_a_batch_past_the_end_of_a_growing_cache() -> None:
    dataset, writer = growing(20)
    with DataLoader(dataset, 8) as loader:
        loader.seek(30)  # the length is not known yet
        writer.start()
        assert list(loader) == []
        assert (loader.batch, len(loader)) == (3, 3)
        assert list(loader) != []
    writer.join()


def test_a_state_of_a_cache_that_grew() -> None:
    dataset, writer = growing(100)
    with DataLoader(EraShufflingDataset(dataset, 16, 1), 8) as loader:
        writer.start()
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        rest = xs(batches)
    writer.join()
    with DataLoader(EraShufflingDataset(dataset, 16, 1), 8) as loader:
        loader.load_state_dict(state)
        assert xs(loader) == rest


@timed
def test_close_while_it_waits_for_a_cache() -> None:
    dataset, _ = growing(100)
    others = native_threads()
    loader = DataLoader(dataset, 8)
    closing = threading.Timer(0.1, loader.close)
    closing.start()
    began = time.perf_counter()
    with pytest.raises(ForebayError, match="closed"):
        next(loader)
    ended = time.perf_counter()
    closing.join()
    eventually(lambda: native_threads() <= others)
    claim(ended - began < 2, ended - began)


def test_errors_come_in_their_place_with_batch_and_indices() -> None:
    with DataLoader(Own(100, bad=42), 8) as loader:
        for i in range(5):
            assert next(loader)["x"].tolist() == list(range(8 * i, 8 * i + 8))
        for _ in range(2):
            # The user's own exception, with one note of its place.
            with pytest.raises(RuntimeError, match=r"^document 42 is bad") as caught:
                next(loader)
            (note,) = caught.value.__notes__
            found = r"Own failed to return documents.*rows \[40, 41.*batch 5 of epoch 0, indices 40 to 48"
            assert re.search(found, note)
        loader.seek(6)
        assert next(loader)["x"].tolist() == list(range(48, 56))


def test_a_generator_that_ends_does_not_close_the_loader() -> None:
    def forever(loader: DataLoader) -> Generator[Batch, None, None]:
        while True:
            yield from loader

    with DataLoader(numbered(10), 4) as loader:
        batches = forever(loader)
        found = [next(batches)["x"].tolist() for _ in range(4)]
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]
        batches.close()
        assert not loader.closed
        assert next(loader)["x"].tolist() == [4, 5, 6, 7]
        for batch in loader:
            assert batch["x"].tolist() == [0, 1, 2, 3]
            break
        # Other attributes of the iterator are the loader's.
        assert iter(loader).state_dict() == loader.state_dict()  # type: ignore[attr-defined]
        assert not hasattr(iter(loader), "close")


def test_fields_of_ones_own_must_be_kept() -> None:
    class Wrong(Own):
        def get_batch(self, indices: ArrayLike) -> list[Batch]:
            return [{"x": np.float64(1), "ids": np.zeros(1, np.int32)} for _ in np.asarray(indices)]

    with DataLoader(Wrong(10), 8) as loader, pytest.raises(ValueError, match=r"'x' of document 0 is float64 .*int64"):
        next(loader)


def test_what_would_end_a_loop_in_silence_does_not() -> None:
    class Ends(Own):
        def get_batch(self, indices: ArrayLike) -> list[Batch]:
            raise StopIteration(indices)

    with DataLoader(Ends(10), 8) as loader, pytest.raises(ForebayError, match="Ends failed") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rank": 2, "world_size": 2}, "rank is 2, must be 0 to 1"),
        ({"start_step": -1}, "start_step is -1"),
        ({"prefetch_batches": 0}, "prefetch_batches is 0"),
        ({"prefetch_batches": "many"}, "prefetch_batches is 'many', must be a whole number or \"auto\""),
        ({"n_workers": 0, "batch_size": -1}, "batch_size is -1.*n_workers is 0"),
    ],
)
def test_parameters(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataLoader(numbered(9), **({"batch_size": 8} | arguments))


def test_what_is_no_dataset() -> None:
    with pytest.raises(TypeError, match="AsyncDataset"):
        DataLoader([1, 2], 8)  # type: ignore[arg-type]


def test_pickles_with_its_state() -> None:
    with DataLoader(PermutationDataset(numbered(64), 1), 8) as loader:
        for _ in range(3):
            next(loader)
        copy = pickle.loads(pickle.dumps(loader))
        rest = [next(loader)["x"].tolist() for _ in range(5)]
    assert xs(copy) == rest


def test_stats_and_repr() -> None:
    with DataLoader(PermutationDataset(numbered(64), 1), 8) as loader:
        list(loader)
        stats = loader.stats()
        assert (stats["rows"], stats["batches"]) == (64, 8)
        assert (stats["delivered"]["batches"], stats["delivered"]["examples"]) == (8, 64)
        assert stats["bytes"] == 64 * 8 + 4 * sum(1 + i % 4 for i in range(64))
        assert "permutation(list(" in repr(loader)
        assert (loader.closed, loader.dataset.current_len()) == (False, 64)
    assert "closed" in repr(loader)


def test_dropping_it_ends_its_threads() -> None:
    others = native_threads()
    loader = DataLoader(PermutationDataset(numbered(640), 1), 8)
    next(loader)
    assert native_threads() - others
    del loader
    gc.collect()
    eventually(lambda: native_threads() <= others)


SCRIPT = """
    import signal, sys, threading, time
    import numpy as np
    from forebay.cache import *

    class Own(AsyncDataset):
        fields = {"x": ((), "int64")}
        def __len__(self): return 1000
        def get_batch(self, indices):
            time.sleep(0.01)
            return [{"x": np.int64(i)} for i in np.asarray(indices).tolist()]

    lists = ListAsyncDataset([{"x": i} for i in range(1000)])
    growing = ListAsyncDataset([{"x": 0}], is_complete=False)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("dataset", ["lists", "Own()", "PermutationDataset(Own(), 1)"])
def test_nothing_at_interpreter_exit(dataset: str) -> None:
    """A process with a live loader exits without an error, such as C++'s "terminate called"."""
    script = f"{SCRIPT}\n    loader = DataLoader({dataset}, 8)\n    next(loader)\n    print('done')"
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("call", ["next(DataLoader(growing, 8))", "growing.get_batch([5])", "len(growing)"])
@timed
def test_ctrl_c_while_it_waits(call: str) -> None:
    script = f"""{SCRIPT}
    def interrupt():
        time.sleep(0.3)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.perf_counter()
    try:
        {call}
    except KeyboardInterrupt:
        print(time.perf_counter() - began)
    """
    done = run(script)
    assert done.returncode == 0, done.stderr
    claim(float(done.stdout) < 1.5, done.stdout)


@pytest.mark.parametrize("start_step", [0, 1, 12, 13, 14, 1000, 10**6 + 5, 10**12 // 2, 10**12, 2**40])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_start_however_far(start_step: int, drop_last: bool) -> None:
    """With passes of equal length `start_step` is computed, not counted: a trillion steps take as long as one."""
    dataset = PermutationDataset(numbered(103), 3)
    with DataLoader(dataset, 8, start_step=start_step, drop_last=drop_last) as loader:
        per_pass = len(loader)
        assert per_pass == (12 if drop_last else 13)
        assert (loader.epoch, loader.batch) == divmod(start_step, per_pass)
        found = next(loader)["x"].tolist()
    with DataLoader(dataset, 8, drop_last=drop_last) as other:
        other.set_epoch(start_step // per_pass)
        other.seek(start_step % per_pass)
        assert next(other)["x"].tolist() == found


def sources() -> dict[str, AsyncDataset]:
    return {"a": numbered(50), "b": numbered(30, 100)}


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
def test_a_start_in_a_mixture(stop: Any) -> None:
    """If a mixture's block is not the global batch, its passes differ in length and are counted one by one."""
    mixture = MixtureDataset(sources(), {"a": 2, "b": 1}, 9, seed=4, stop=stop)
    with DataLoader(mixture, 2) as loader:
        lengths = [sum(1 for _ in loader) for _ in range(12)]
    assert len(set(lengths)) > 1
    for start_step in range(0, sum(lengths), 7):
        epoch, batch = 0, start_step
        while batch >= lengths[epoch]:
            batch -= lengths[epoch]
            epoch += 1
        with DataLoader(mixture, 2, start_step=start_step) as loader:
            assert (loader.epoch, loader.batch) == (epoch, batch)
    # If a block is the global batch, all passes have the same number of batches.
    with DataLoader(MixtureDataset(sources(), {"a": 2, "b": 1}, seed=4, stop=stop), 6, start_step=10**12) as loader:
        assert (loader.epoch, loader.batch) == divmod(10**12, len(loader))
    with pytest.raises(ConfigError, match=r"start_step is 1000000000000, more than 1048576 passes .* set_epoch\(\)"):
        DataLoader(mixture, 2, start_step=10**12)


def test_a_start_where_nothing_ends() -> None:
    endless = MixtureDataset(sources(), {"a": 2, "b": 1}, 9, seed=4, stop="restart")
    with DataLoader(endless, 4, start_step=10**12) as loader:
        assert (loader.epoch, loader.batch) == (0, 10**12)
        assert len(next(loader)["x"]) == 4
    with pytest.raises(ConfigError, match="start_step is 1099511627776, and the dataset has no end"):
        DataLoader(endless, 4, start_step=2**40)


def test_ctrl_c_while_passes_are_counted() -> None:
    """Ctrl-C interrupts a constructor that counts long passes."""
    scene = """
        import os, signal, sys, threading
        sys.path.insert(0, sys.argv[1])
        from forebay.cache import DataLoader, ListAsyncDataset, MixtureDataset
        mixture = MixtureDataset(
            {name: ListAsyncDataset([{"x": i} for i in range(n)]) for name, n in [("a", 20_000), ("b", 9)]},
            {"a": 7000, "b": 2}, 65_001, seed=4, stop="first_exhausted",
        )
        try:
            threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
            DataLoader(mixture, 60_000, start_step=1_000_000)
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(scene), "."]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "interrupted\n"


@pytest.mark.parametrize("era_length", [2**62 + 1, 2**63 - 1])
def test_eras_longer_than_any_dataset(era_length: int) -> None:
    with pytest.raises(ConfigError, match="era_length is"):
        EraShufflingDataset(MixtureDataset(sources(), {"a": 2, "b": 1}, 9, stop="restart"), era_length, 3)


def test_a_dataset_too_long_to_permute() -> None:
    class Long(Own):
        def __len__(self) -> int:
            return 2**63 - 1

    with pytest.raises(ConfigError, match="a dataset of 9223372036854775807 rows cannot be permuted"):
        DataLoader(PermutationDataset(Long(1), 1), 8)
