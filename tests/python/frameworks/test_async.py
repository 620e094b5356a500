"""`AsyncDataLoader`: order, state, memory, errors.

The list has the usual faults of a simple loader with threads and a buffer pool. Tests name the faults that they check,
here and in `test_async_threads`, `test_async_scaling`, `test_buffers` and `test_mapped`.

A1  The order depends on the number of calls of `iter()`, so a loader cannot be resumed.
A2  Batches are yielded in the order of completion.
A3  A batch is overwritten when the next one is taken: `list(loader)` has one batch many times.
A4  The last batch has `batch_size` rows, some of them left from another batch.
A5  An exception in a thread is lost with its batch, and the loop waits forever.
A6  After a pass was left early, the next one is the rest of it or the same, or hangs; threads and memory accumulate.
A7  A thread that waits for a buffer is not woken at the end, and a `join` gives up silently after a timeout.
A8  Later batches are not announced to the storage, or with unaligned pages, or with pages beyond the file.
A9  Waits are not measured; the number of threads does not adapt, or its changes affect the order.
A10 One buffer, or several fields, cause a deadlock.
"""

import contextlib
import gc
import json
import pickle
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay import AsyncDataLoader, BatchResult, _async, _core
from numbered import ROW, Pipeline, Reader, assert_right, expected, loader, rows, seconds_to_end, threads
from recordings import TINY
from timing import eventually

pytestmark = pytest.mark.usefixtures("little_to_collect", "no_threads_left")


# The order.


def test_permutation_is_the_one_it_was() -> None:
    assert _core._permutation(42, 0, 10).tolist() == [0, 3, 7, 1, 4, 5, 2, 6, 8, 9]
    assert _core._permutation(42, 3, 1000, 5, 9).tolist() == [148, 728, 803, 854]
    assert _core._permutation(2**64 - 1, 2**62, 2**62, 2**62 - 1).shape == (1,)


@pytest.mark.parametrize("n", [0, 1, 2, 64, 65, 1000])
def test_permutation_is_one_and_its_parts_are_parts(n: int) -> None:
    whole = _core._permutation(7, 5, n)
    assert whole.dtype == np.int64
    assert sorted(whole.tolist()) == list(range(n))
    assert whole[n // 3 : n // 2].tolist() == _core._permutation(7, 5, n, n // 3, n // 2).tolist()


def test_permutation_is_that_of_the_global_order(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, order="global", infinite=False, seed=9, **TINY) as audio:
        audio.set_epoch(2)
        assert audio.plan(300).tolist() == _core._permutation(9, 2, 300).tolist()


@pytest.mark.parametrize("part", [(2, 1), (0, 11), (11, 11)])
def test_permutation_refuses_what_is_not_there(part: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected 0 <= start <= stop <= n"):
        _core._permutation(0, 0, 10, *part)


@pytest.mark.parametrize("num_workers", [1, 4, 16])
@pytest.mark.parametrize("buffers_ahead", [1, 3, 9])
def test_batches_come_in_schedule_order(num_workers: int, buffers_ahead: int) -> None:
    """A2, A10: the order does not depend on the threads; one buffer is enough for two fields."""
    pipeline = Pipeline(jitter_s=0.002)
    batches = loader(num_workers=num_workers, buffers_ahead=buffers_ahead, pipeline=pipeline)
    assert len(batches) == 26
    found = list(batches)
    assert rows(found) == expected()
    assert [batch.buffer_id for batch in found] == [number % buffers_ahead for number in range(26)]
    assert [type(value) for value in found[0]] == [dict, np.ndarray, int]
    assert found[-1].data["x"].shape == (3, *ROW)


def test_without_shuffle_rows_are_as_they_are() -> None:
    assert [*chain(*rows(loader(shuffle=False)))] == list(range(103))


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"), [(0, 4, []), (1, 4, [1]), (4, 4, [4]), (5, 4, [4, 1]), (3, 1, [1] * 3)]
)
def test_sizes(n: int, batch_size: int, sizes: list[int]) -> None:
    """A1, A4: ceil(n / batch_size) batches, the last one sliced."""
    batches = loader(n, batch_size)
    assert len(batches) == len(sizes)
    for _ in range(2):
        assert [[len(batch.indices), *map(len, batch.data.values())] for batch in batches] == [[n] * 3 for n in sizes]


def test_epochs() -> None:
    """A1: the order is a function of (seed, epoch), not of the number of calls of `iter()`."""
    batches = loader()
    assert [rows(batches) for _ in range(3)] == [expected(epoch=epoch) for epoch in range(3)]
    assert expected(epoch=0) != expected(epoch=1)
    assert (batches.epoch, batches.batch) == (3, 0)
    batches.set_epoch(1)
    assert rows(batches) == expected(epoch=1)
    assert rows(loader(seed=1)) == expected(seed=1)


def test_a_pass_that_was_left_is_over() -> None:
    """A6: the next pass has no batches of a pass that was left."""
    batches = loader(pipeline=Pipeline(jitter_s=0.002))
    for epoch in range(5):
        assert rows(islice(batches, 7)) == expected(epoch=epoch)[:7]
    assert rows(batches) == expected(epoch=5)
    assert rows(batches) == expected(epoch=6)


def test_an_older_iterator_is_over() -> None:
    batches = loader()
    older = iter(batches)
    assert rows(islice(older, 2)) == expected()[:2]
    newer = iter(batches)
    with pytest.raises(forebay.ForebayError, match="began another"):
        next(older)
    del older
    assert rows(newer) == expected(epoch=1)
    assert list(newer) == []


# State.


def test_goes_on_anywhere_with_other_threads() -> None:
    batches = loader()
    states = [batches.state_dict()]
    for _ in range(2):
        for _batch in batches:
            states.append(json.loads(json.dumps(batches.state_dict())))
    whole = expected() + expected(epoch=1)
    for number, state in enumerate(states):
        other = loader(num_workers=1 + number % 3, buffers_ahead=1 + number % 5)
        other.load_state_dict(state)
        assert other.state_dict() == state
        iter(other)  # takes no batch, so none is lost
        assert rows(other) == whole[number : 26 * (1 + number // 26)] or number == 52
        assert rows(other) == expected(epoch=number // 26 + 1)


@pytest.mark.parametrize("batch", [0, 11, 25, 26])
def test_seek_at_any_batch_and_the_end(batch: int) -> None:
    batches = loader()
    batches.seek(batch)
    assert rows(batches) == expected()[batch:]
    assert (batches.epoch, batches.batch) == (1, 0)
    assert rows(batches) == expected(epoch=1)


def test_pickle_goes_on() -> None:
    batches = loader(seed=3, shuffle=True)
    for _batch in islice(batches, 9):
        pass
    assert rows(pickle.loads(pickle.dumps(batches))) == expected(seed=3)[9:]


@pytest.mark.parametrize("other", [{"n": 102}, {"batch_size": 5}, {"seed": 1}, {"shuffle": False}])
def test_another_loaders_state_is_refused(other: dict[str, Any]) -> None:
    [name] = other
    with pytest.raises(forebay.StateError, match={"n": "num_records is 102 in the state and 103 here"}.get(name, name)):
        loader().load_state_dict(loader(**other).state_dict())


@pytest.mark.parametrize("change", [{"batch": 26}, {"batch": -1}, {"epoch": "1"}, {"version": 2}, {"kind": None}])
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    batches = loader()
    with pytest.raises(forebay.StateError, match=str(*change.values())):
        batches.load_state_dict(batches.state_dict() | change)


# Memory.


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("buffers_ahead", [1, 3])
def test_batches_that_are_kept_do_not_change(buffers_ahead: int) -> None:
    """A3: `list(loader)` has no array more than once."""
    batches = list(loader(buffers_ahead=buffers_ahead))
    assert rows(batches) == expected()
    assert len({address(batch.data["x"]) for batch in batches}) == 26


def test_memory_is_recycled() -> None:
    batches = loader(4000)
    used = Counter(address(batch.data["x"]) for batch in batches)
    assert used.total() == 1000
    assert len(used) < 10


@pytest.mark.parametrize("keep", ["slice", "reshaped", "view", "memoryview", "item"])
def test_what_is_kept_of_a_batch_does_not_change(keep: str) -> None:
    part_of: Any = {
        "slice": lambda x: x[1:, 2::3],
        "reshaped": lambda x: x.reshape(-1)[5:],
        "view": lambda x: x.view(np.int64)[::2].view(np.float64),
        "memoryview": lambda x: memoryview(x[1:]),
        "item": lambda x: x[-1],
    }[keep]
    kept = [part_of(batch.data["x"]) for batch in loader(400)]
    now = [np.array(part).tobytes() for part in kept]
    fresh = {float(value) for part in kept for value in np.unique(np.asarray(part))}
    assert len(fresh) > 90
    more = list(loader(400))
    assert [np.array(part).tobytes() for part in kept] == now
    del more


def test_a_label_that_is_kept_keeps_no_more() -> None:
    labels, used = [], set()
    for batch in loader(4000):
        labels.append(batch.data["label"])
        used.add(address(batch.data["x"]))
    assert np.concatenate(labels).tolist() == [*chain(*expected(4000))]
    assert len(used) < 10


def test_memory_of_a_window_of_batches_is_recycled() -> None:
    window: list[BatchResult] = []
    used = set()
    for batch in loader(4000):
        window = [*window[-19:], batch]
        used.add(address(batch.data["x"]))
        assert_right(window[0])
    assert len(used) < 30


def test_no_more_batches_are_made_than_asked_for() -> None:
    pipeline = Pipeline()
    batches = iter(loader(buffers_ahead=3, pipeline=pipeline))
    for taken in range(1, 9):
        next(batches)
        eventually(lambda taken=taken: pipeline.calls >= taken + 3)
        time.sleep(0.01)
        assert pipeline.calls == taken + 3


def test_types_and_shapes() -> None:
    class Odd:
        output_specs: Mapping[str, Any] = {
            "half": ((3,), np.float16),
            "when": ([2], "datetime64[s]"),
            "pair": ((), [("a", "i4"), ("b", "f8", 2)]),
            "sub": ((2,), np.dtype((np.int16, (3,)))),
            "text": ((), "S5"),
            "none": ((0, 4), bool),
        }

        def __call__(self, _indices: Any, _metadata: Any, _storage: Any, buffers: Mapping[str, NDArray[Any]]) -> None:
            buffers["text"][:] = b"abc"

    [batch] = AsyncDataLoader(Reader(5), Odd(), 8)
    shapes = {name: (array.shape, array.dtype.str) for name, array in batch.data.items()}
    assert shapes == {
        "half": ((5, 3), "<f2"),
        "when": ((5, 2), "<M8[s]"),
        "pair": ((5,), "|V20"),
        "sub": ((5, 2, 3), "<i2"),
        "text": ((5,), "|S5"),
        "none": ((5, 0, 4), "|b1"),
    }
    for array in batch.data.values():
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned


# Errors.


@pytest.mark.parametrize("error", [ValueError("bad row"), SystemExit(3), KeyError("x")])
@pytest.mark.parametrize("number", [0, 5, 25])
def test_an_error_comes_in_its_place(error: BaseException, number: int) -> None:
    """A5: the loop gets the error in place of its batch, with number and indices; no thread is left."""
    bad = expected()[number]
    pipeline = Pipeline(jitter_s=0.002, bad={bad[1]: error})
    batches = loader(pipeline=pipeline)
    found: list[BatchResult] = []
    with pytest.raises(type(error)) as raised:
        found.extend(batches)  # keeps the batches before the error
    assert raised.value is error
    assert f"in batch {number} of epoch 0, indices {bad}" in "".join(traceback.format_exception(error))
    assert rows(found) == expected()[:number]
    assert not threads()
    assert (batches.epoch, batches.batch) == (0, number)
    pipeline.bad = {}
    assert rows(batches) == expected(epoch=1 if number else 0)  # a pass of which no batch was returned is tried again


def test_after_an_error_the_pass_is_over() -> None:
    batches = iter(loader(pipeline=Pipeline(bad={expected()[0][0]: ValueError("bad row")})))
    with pytest.raises(ValueError, match="bad row"):
        next(batches)
    assert list(batches) == []


def test_stop_iteration_ends_no_pass_in_silence() -> None:
    with pytest.raises(RuntimeError, match=r"raised StopIteration in batch 2 of epoch 0, indices \["):
        list(loader(pipeline=Pipeline(bad={expected()[2][0]: StopIteration()})))


def test_an_error_keeps_nothing() -> None:
    class Failing(Pipeline):
        def __call__(self, *arguments: Any) -> None:
            seen.append(weakref.ref(arguments[3]["x"]))
            raise ValueError("bad row")

    seen: list[Any] = []
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            next(iter(loader(pipeline=Failing())))
        seconds_to_end()
        assert not threads()
        assert seen
        assert all(reference() is None for reference in seen)
    finally:
        gc.enable()


def test_a_buffer_is_filled_and_not_replaced() -> None:
    class Replacing(Pipeline):
        def __call__(self, indices: Any, _metadata: Any, _storage: Any, buffers: Any) -> None:
            buffers["x"] = np.zeros((len(indices), *ROW))

    with pytest.raises(TypeError, match="does not support item assignment"):
        list(loader(pipeline=Replacing()))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch_size": 0, "num_workers": -1}, "batch_size is 0, must be 1 to .*; num_workers is -1, must be"),
        ({"buffers_ahead": 0}, "buffers_ahead is 0, must be 1"),
        ({"seed": 2**64}, "seed is 18446744073709551616, must be 0 to 18446744073709551615"),
    ],
)
def test_parameters_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        loader(**parameters)


@pytest.mark.parametrize("spec", [((-1,), "f4"), ((2,), object), ((2,), "V0"), ((2,), "S0")])
def test_specs_that_no_memory_can_hold(spec: Any) -> None:
    class Wrong(Pipeline):
        output_specs: Mapping[str, Any] = {"x": spec}

    with pytest.raises(forebay.ConfigError, match="output_specs\\['x'\\] is"):
        loader(pipeline=Wrong())


def test_types_of_parameters() -> None:
    with pytest.raises(TypeError, match=r"num_workers is True \(type bool\), must be an int"):
        loader(num_workers=True)
    with pytest.raises(TypeError, match=r"batch_size is .* \(type float\), must be an int"):
        loader(batch_size=1.5)  # type: ignore[arg-type]
    assert rows(loader(batch_size=np.int64(4), num_workers=np.uint8(2))) == expected()  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_quantiles_are_those_of_numpy(n: int, share: float) -> None:
    values = np.random.default_rng(n).random(n)
    assert _async._quantile(sorted(values.tolist()), share) == pytest.approx(np.quantile(values, share), rel=1e-12)
