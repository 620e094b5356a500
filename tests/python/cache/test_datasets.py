"""Datasets with random access, through Python: views, growing datasets, permutations, eras, mixtures, caches."""

import asyncio
import logging
import pickle
import re
import threading
import time
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from forebay import ConfigError
from forebay.cache import (
    AsyncDataset,
    CacheDataset,
    EraShufflingDataset,
    JaggedArray,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    TokenSeqDataset,
    TreeCache,
    WeightedDataset,
    build,
)
from timing import claim, timed


def numbered(n: int, base: int = 0) -> ListAsyncDataset:
    """A dataset of documents with a number and one to three tokens."""
    return ListAsyncDataset([document(base + i) for i in range(n)])


def document(i: int) -> dict[str, Any]:
    return {"number": i, "input_ids": np.full(1 + i % 3, i, np.int32)}


class Squares(AsyncDataset):
    """A user's dataset in Python, which records the rows of its calls."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.calls: list[list[int]] = []

    def __len__(self) -> int:
        return self.n

    def get_batch(self, indices: ArrayLike) -> list[dict[str, Any]]:
        rows = np.asarray(indices).tolist()
        self.calls.append(rows)
        return [{"number": np.int64(i * i), "input_ids": np.full(1, i, np.int32)} for i in rows]


def numbers(dataset: AsyncDataset, indices: ArrayLike) -> list[int]:
    return [int(found["number"]) for found in dataset.get_batch(indices)]


def test_views_are_above_one_another_up_to_a_limit() -> None:
    """More than 64 nested views raise: thousands overflowed the stack, and nested mixtures double their sources."""
    dataset: AsyncDataset = numbered(5)
    for seed in range(64):
        dataset = PermutationDataset(dataset, seed)
    assert sorted(numbers(dataset, range(5))) == list(range(5))
    for view in (
        lambda: PermutationDataset(dataset, 1),
        lambda: EraShufflingDataset(dataset, 2, 1),
        lambda: MixtureDataset({"a": dataset}, {"a": 1}, block_size=1),
    ):
        with pytest.raises(ConfigError, match="has 64 nested views"):
            view()
    doubled: AsyncDataset = numbered(5)
    for _ in range(16):
        doubled = MixtureDataset({"a": doubled, "b": doubled}, {"a": 1, "b": 1}, block_size=2)
    with pytest.raises(ConfigError, match="more than 65536 datasets"):
        MixtureDataset({"a": doubled, "b": doubled}, {"a": 1, "b": 1}, block_size=2)


def test_documents_come_back() -> None:
    fields: dict[str, Any] = {
        "id": np.uint64(2**63),
        "prompt": {"input_ids": np.arange(5, dtype=np.uint16)},
        "mel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "flag": np.array([True, False]),
        "half": np.zeros((0, 4), np.float16),
    }
    documents = [fields, {**fields, "mel": np.ones((3, 3), np.float32)}]
    dataset = ListAsyncDataset(documents)
    found = dataset.get_batch([1, 0, 1])
    assert [list(one) for one in found] == [list(fields)] * 3
    for one, expected in zip(found, [documents[1], documents[0], documents[1]], strict=True):
        pairs = [(one["prompt"].pop("input_ids"), fields["prompt"]["input_ids"])]
        pairs += [(one[name], value) for name, value in expected.items() if name != "prompt"]
        assert one["prompt"] == {}
        for value, given in pairs:
            assert value.dtype == np.asarray(given).dtype
            np.testing.assert_array_equal(value, given)
    assert dataset.get_batch([]) == []


@pytest.mark.parametrize("indices", [[20], [0, 25], [-1], [2**63 - 1], np.array([2**63], np.uint64)])
def test_out_of_range_is_an_index_error(indices: Any) -> None:
    for dataset in (numbered(20), PermutationDataset(numbered(20), 1), TokenSeqDataset(numbered(20), 2)):
        with pytest.raises(IndexError):
            dataset.get_batch(indices)
        with pytest.raises(IndexError):
            asyncio.run(dataset.async_get_batch(indices))


def test_indices_are_whole() -> None:
    with pytest.raises(TypeError, match="float64"):
        numbered(3).get_batch([0.5])


def test_a_finished_dataset() -> None:
    dataset = numbered(7)
    assert (len(dataset), dataset.current_len(), dataset.final_length_is_known(), dataset.is_finite()) == (
        7,
        7,
        True,
        True,
    )
    assert dataset.wait_until_len_at_least(3) == 7
    assert dataset.wait_until_len_at_least(100) == 7
    assert asyncio.run(dataset.async_wait_until_len_at_least(100)) == 7
    assert asyncio.run(dataset.async_len()) == 7


def later(dataset: ListAsyncDataset, n: int, seconds: float = 0.05) -> threading.Thread:
    """Adds documents and finalizes the dataset in a thread, after a delay."""

    def add() -> None:
        time.sleep(seconds)
        for i in range(len(dataset._documents), n):
            dataset.append(document(i))
        dataset.finalize()

    thread = threading.Thread(target=add)
    thread.start()
    return thread


def test_reading_waits_for_what_is_not_there_yet() -> None:
    dataset = ListAsyncDataset([document(0)], is_complete=False)
    assert (dataset.current_len(), dataset.final_length_is_known()) == (1, False)
    writer = later(dataset, 10)
    assert numbers(dataset, [4]) == [4]
    writer.join()
    with pytest.raises(IndexError, match="no index 10 in a dataset of 10 rows"):
        dataset.get_batch([10])

    dataset = ListAsyncDataset([document(0)], is_complete=False)
    writer = later(dataset, 10)
    with pytest.raises(IndexError):  # raised when the final length is known
        dataset.get_batch([10])
    writer.join()


@timed
def test_for_asyncio() -> None:
    async def all_at_once(dataset: ListAsyncDataset) -> tuple[Any, ...]:
        return await asyncio.gather(
            dataset.async_get_batch([4, 0]), dataset.async_wait_until_len_at_least(6), dataset.async_len()
        )

    dataset = ListAsyncDataset([document(0)], is_complete=False)
    writer = later(dataset, 10)
    batch, length, final = asyncio.run(all_at_once(dataset))
    assert [int(found["number"]) for found in batch] == [4, 0]
    assert (6 <= length <= 10, final) == (True, 10)
    writer.join()

    async def cancelled(dataset: ListAsyncDataset) -> None:
        await asyncio.wait_for(dataset.async_get_batch([5]), 0.05)

    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        asyncio.run(cancelled(ListAsyncDataset([document(0)], is_complete=False)))
    seconds = time.perf_counter() - began
    claim(seconds < 2, seconds)


def test_a_finished_list_takes_no_more() -> None:
    dataset = numbered(3)
    with pytest.raises(Exception, match="finished"):
        dataset.append(document(3))
    with pytest.raises(ConfigError, match="first document"):
        ListAsyncDataset([])
    with pytest.raises(ValueError, match="'input_ids' of document 1 is int64"):
        ListAsyncDataset([document(0), {"number": 1, "input_ids": np.arange(2)}])
    with pytest.raises(ValueError, match="has no field 'number'"):
        ListAsyncDataset([document(0), {"input_ids": np.zeros(1, np.int32)}])
    with pytest.raises(ValueError, match="extra"):
        ListAsyncDataset([document(0), {**document(1), "extra": 1}])


def test_windows() -> None:
    dataset = numbered(50)
    flat = np.concatenate([found["input_ids"] for found in dataset.get_batch(range(50))])
    windows = TokenSeqDataset(dataset, 7, doc_ids=True)
    assert len(windows) == len(flat) // 7
    for i, window in enumerate(windows.get_batch(range(len(windows)))):
        expected = flat[7 * i : 7 * i + 7]
        np.testing.assert_array_equal(window["input_ids"], expected)
        np.testing.assert_array_equal(window["doc_ids"], np.unique(expected, return_inverse=True)[1])
        assert window["doc_ids"].dtype == np.int32
    assert list(TokenSeqDataset(dataset, 7)[0]) == ["input_ids"]
    for length in (0, -3):
        with pytest.raises(ConfigError, match="max_seq_len"):
            TokenSeqDataset(dataset, length)
    with pytest.raises(ConfigError, match=r"no field \"text\".*number, input_ids"):
        TokenSeqDataset(dataset, 7, field="text")
    with pytest.raises(ConfigError, match="one dimension"):
        TokenSeqDataset(dataset, 7, field="number")
    with pytest.raises(TypeError, match="CacheDataset"):
        TokenSeqDataset(PermutationDataset(dataset, 1), 7)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000, 4096])
def test_a_permutation_of_each_epoch(n: int) -> None:
    dataset = PermutationDataset(numbered(n), 3)
    orders = [numbers(dataset.epoch(epoch), range(n)) for epoch in range(3)]
    assert all(sorted(order) == list(range(n)) for order in orders)
    assert n < 64 or len({tuple(order) for order in orders}) == 3
    assert orders[0] == numbers(PermutationDataset(numbered(n), 3), range(n))
    assert n < 64 or orders[0] != numbers(PermutationDataset(numbered(n), 4), range(n))
    # The key is not the sum of seed and epoch.
    assert n < 64 or orders[1] != numbers(PermutationDataset(numbered(n), 4), range(n))


def test_batches_look_random_in_residue_classes() -> None:
    """A round function that is a ring map keeps the lowest bit: with it 94 to 99 % of batches fail at 99.9 %."""
    n = 1 << 16
    dataset = PermutationDataset(ListAsyncDataset([{"x": i} for i in range(n)]), 3)
    # The chi-square bound that one random batch in a thousand exceeds: on average 13 of 12800 batches, at most 30.
    for divisor, bound in {2: 10.828, 3: 13.816, 4: 16.266, 7: 22.458}.items():
        uneven = 0
        for epoch in range(50):
            rows = dataset.epoch(epoch).locate(np.arange(n))[1].reshape(-1, 256)
            counts = np.stack([(rows % divisor == rest).sum(1) for rest in range(divisor)])
            uneven += int((((counts - 256 / divisor) ** 2).sum(0) / (256 / divisor) > bound).sum())
        assert uneven <= 30, f"{uneven} of 12800 batches are uneven modulo {divisor}"


@pytest.mark.parametrize("epoch_size", [None, 1, 17, 60, 1000])
def test_weights(epoch_size: int | None) -> None:
    """Each document is there as often as its weight says, rounded down or up, in every epoch."""
    weights = np.array([0.0, 1.0, 0.25, 7.0, 1e-12] * 12)
    dataset = WeightedDataset(numbered(60), weights, 3, epoch_size=epoch_size)
    size = len(dataset)
    assert size == (60 if epoch_size is None else epoch_size)
    assert (dataset.current_len(), dataset.final_length_is_known(), dataset.is_finite()) == (size, True, True)
    total = sum(map(Fraction, weights.tolist()))
    orders = [numbers(dataset.epoch(epoch), range(size)) for epoch in range(4)]
    for order in orders:
        assert order == sorted(order)
        for row, weight in enumerate(weights.tolist()):
            expected = Fraction(weight) * size / total
            assert order.count(row) in (floor(expected), ceil(expected)), row
    assert len(set(map(tuple, orders))) > 1
    assert numbers(WeightedDataset(numbered(60), weights * 4, 3, epoch_size=epoch_size), range(size)) == orders[0]
    assert [int(dataset[i]["number"]) for i in range(0, size, 7)] == orders[0][::7]
    assert dataset.locate(range(size))[1].tolist() == orders[0]
    with pytest.raises(IndexError, match=f"no index {size} in a dataset of {size} rows"):
        dataset.get_batch([size])
    # Shuffles take the copies as rows of their own.
    for shuffled in (PermutationDataset(dataset, 1), EraShufflingDataset(dataset, 16, 1)):
        assert sorted(numbers(shuffled.epoch(2), range(size))) == orders[2]
    assert size < 60 or numbers(dataset.shuffle(1), range(size)) != orders[0]


def test_equal_weights_are_none() -> None:
    for given in ([0.3] * 50, np.ones(50, np.float32), np.ones(50, bool), [7] * 50):
        assert numbers(WeightedDataset(numbered(50), given), range(50)) == list(range(50))
    mixture = {"a": WeightedDataset(numbered(40), [2.0] * 40, 9), "b": numbered(30)}
    plain = {"a": numbered(40), "b": numbered(30)}
    one, two = (MixtureDataset(sources, {"a": 1, "b": 2}, 9, 4) for sources in (mixture, plain))
    assert [part.tolist() for part in one.locate(range(500))] == [part.tolist() for part in two.locate(range(500))]


def test_weights_of_a_field(tmp_path: Path) -> None:
    """Of a cache, a list and a dataset in Python; other fields of a cache are not read."""
    documents = [{"weight": np.float32(i % 3), "number": i, "input_ids": np.arange(i % 5)} for i in range(200)]
    build({"one": documents}, None, tmp_path, batch_size=64)
    weights = [i % 3 for i in range(200)]

    class Own(Squares):
        def get_batch(self, indices: ArrayLike) -> list[dict[str, Any]]:
            rows = np.asarray(indices).tolist()
            return [{**found, "weight": i % 3} for i, found in zip(rows, super().get_batch(rows), strict=True)]

    for dataset in (CacheDataset(tmp_path), ListAsyncDataset(documents), Own(200)):
        weighted = WeightedDataset(dataset, "weight", 7, epoch_size=300)
        given = WeightedDataset(dataset, weights, 7, epoch_size=300)
        assert weighted.locate(range(300))[1].tolist() == given.locate(range(300))[1].tolist()
        for name in ("input_ids", "nothing"):
            with pytest.raises(ConfigError, match=f'weights is "{name}", must be a field with one number in each row'):
                WeightedDataset(dataset, name)
    growing = ListAsyncDataset(documents[:1], is_complete=False)

    def add() -> None:
        time.sleep(0.05)
        for one in documents[1:]:
            growing.append(one)
        growing.finalize()

    writer = threading.Thread(target=add)
    writer.start()
    assert len(WeightedDataset(growing, "weight")) == 200
    writer.join()


def test_weights_wait_for_the_final_length(caplog: pytest.LogCaptureFixture) -> None:
    dataset = ListAsyncDataset([document(0)], is_complete=False)
    weighted = WeightedDataset(dataset, [0.0] * 9 + [1.0])
    wrong = WeightedDataset(dataset, [1.0] * 9)
    assert (weighted.current_len(), weighted.final_length_is_known()) == (0, False)
    writer = later(dataset, 10, 0.2)
    with caplog.at_level(logging.INFO):
        assert numbers(weighted, range(10)) == [9] * 10
    assert sum("waits for the final length" in record.message for record in caplog.records) == 1
    writer.join()
    with pytest.raises(ConfigError, match="there are 9 weights for 10 rows, must be one for each row"):
        len(wrong)


@pytest.mark.parametrize(
    ("weights", "more", "error", "message"),
    [
        ([1.0, -0.5, 1.0], {}, ConfigError, "the weight of row 1 is -0.5, must be a number from 0 on"),
        ([1.0, 1.0, float("nan")], {}, ConfigError, "the weight of row 2 is NaN"),
        ([float("inf"), 1.0, 1.0], {}, ConfigError, "the weight of row 0 is inf"),
        ([0, 0, 0], {}, ConfigError, "no row of 3 has a weight above 0"),
        ([1.0, 1.0], {}, ConfigError, "there are 2 weights for 3 rows"),
        ([], {}, ConfigError, "no row of 0 has a weight above 0"),
        ([[1.0]] * 3, {}, TypeError, r"weights are float64 of shape \[3, 1\], must be a number for each document"),
        (["a"] * 3, {}, TypeError, "weights are <U1"),
        (3.0, {}, TypeError, r"weights are float64 of shape \[\]"),
        ([1.0] * 3, {"epoch_size": 0}, ConfigError, "epoch_size is 0, must be 1 to"),
        ([1.0] * 3, {"epoch_size": 1.5}, TypeError, "epoch_size"),
        ([1.0] * 3, {"seed": -1}, ConfigError, "seed is -1"),
    ],
)
def test_wrong_weights(weights: Any, more: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        WeightedDataset(numbered(3), weights, **more)


def test_weights_are_those_of_stored_documents() -> None:
    """A shuffle has other rows in each epoch, so weights come first; windows have weights of their own."""
    views = (
        PermutationDataset(numbered(5), 1), EraShufflingDataset(numbered(5), 2, 1),
        WeightedDataset(numbered(5), [1] * 5), MixtureDataset({"a": numbered(5)}, {"a": 1}, 5),
    )  # fmt: skip
    for view in views:
        with pytest.raises(ConfigError, match="weigh first, and shuffle or mix the dataset with weights"):
            WeightedDataset(view, [1.0] * 5)
        with pytest.raises(ConfigError, match="weigh first"):
            WeightedDataset(view, "number")
    windows = TokenSeqDataset(numbered(50), 7)
    heavy = WeightedDataset(windows, [0.0] * 5 + [1.0] + [0.0] * (len(windows) - 6), epoch_size=3)
    assert [one["input_ids"].tolist() for one in heavy.get_batch(range(3))] == [windows[5]["input_ids"].tolist()] * 3


def test_weights_are_copied_and_pickled(tmp_path: Path) -> None:
    given = np.array([1.0, 2.0, 0.0, 4.0])
    dataset = WeightedDataset(numbered(4), given, 3, epoch_size=9)
    before = numbers(dataset, range(9))
    given[:] = 0
    copy = pickle.loads(pickle.dumps(dataset.epoch(2)))
    assert numbers(dataset, range(9)) == before
    assert numbers(copy, range(9)) == numbers(dataset.epoch(2), range(9))
    assert repr(copy) == repr(dataset)
    assert repr(dataset).startswith("<forebay.cache.WeightedDataset: weighted(list(")
    assert repr(dataset).endswith(", epoch_size=9, seed=3)>")
    build({"one": [{"weight": i} for i in range(4)]}, None, tmp_path)
    named = pickle.loads(pickle.dumps(WeightedDataset(CacheDataset(tmp_path), "weight")))
    again = WeightedDataset(CacheDataset(tmp_path), [0, 1, 2, 3])
    assert named.locate(range(4))[1].tolist() == again.locate(range(4))[1].tolist()


def test_a_permutation_waits_for_the_final_length_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    dataset = ListAsyncDataset([document(0)], is_complete=False)
    permuted = PermutationDataset(dataset, 3)
    assert (permuted.current_len(), permuted.final_length_is_known()) == (0, False)
    writer = later(dataset, 10, 0.2)
    with caplog.at_level(logging.INFO):
        assert sorted(numbers(permuted, range(10))) == list(range(10))
    assert sum("waits for the final length" in record.message for record in caplog.records) == 1
    writer.join()


def test_eras() -> None:
    dataset = EraShufflingDataset(numbered(50), 16, 3)
    order = numbers(dataset, range(50))
    for begin in range(0, 50, 16):
        assert sorted(order[begin : begin + 16]) == list(range(begin, min(begin + 16, 50)))
    assert order != numbers(dataset.epoch(1), range(50))
    for get in (dataset.get_batch, dataset.locate, lambda indices: asyncio.run(dataset.async_get_batch(indices))):
        with pytest.raises(ValueError, match="negative"):
            get([-1])
    with pytest.raises(ConfigError, match="era_length is 0"):
        EraShufflingDataset(numbered(5), 0)


def test_eras_of_what_grows() -> None:
    dataset = ListAsyncDataset([document(i) for i in range(20)], is_complete=False)
    eras = EraShufflingDataset(dataset, 16, 3)
    assert eras.current_len() == 16
    before = numbers(eras, range(16))
    writer = later(dataset, 50)
    assert eras.wait_until_len_at_least(17) >= 32
    writer.join()
    assert len(eras) == 50
    assert numbers(eras, range(16)) == before
    assert numbers(eras, range(50)) == numbers(EraShufflingDataset(numbered(50), 16, 3), range(50))


def test_a_mixture() -> None:
    sources = {"a": PermutationDataset(numbered(40), 1), "b": numbered(1000, 1000), "c": numbered(1000, 5000)}
    mixture = MixtureDataset(sources, {"a": 0.5, "b": 0.3, "c": 0.2}, block_size=256, seed=3)
    assert (mixture.current_len(), mixture.is_finite()) == (None, False)
    with pytest.raises(TypeError, match="is infinite"):
        len(mixture)
    leaves, rows = mixture.locate(range(4 * 256))
    for block in leaves.reshape(4, 256):
        # By largest remainders; with the whole remainder for the largest source it would be 129, 76, 51.
        assert np.bincount(block).tolist() == [128, 77, 51]
    assert rows[leaves == 1].tolist() == list(range(4 * 77))
    own = rows[leaves == 0]
    for n, begin in enumerate(range(0, len(own), 40)):
        times = own[begin : begin + 40].tolist()
        expected = sources["a"].epoch(n).locate(range(40))[1].tolist()
        assert times == expected[: len(times)]
    shuffled = np.random.default_rng(1).permutation(1024)
    again = mixture.locate(shuffled)
    np.testing.assert_array_equal(again[0], leaves[shuffled])
    np.testing.assert_array_equal(again[1], rows[shuffled])


def test_weights_by_step() -> None:
    weights = [(0, {"a": 1, "b": 1}), (32, {"a": 1, "b": 3}), (64, {"a": 1, "b": 0})]
    mixture = MixtureDataset({"a": numbered(99), "b": numbered(99, 1000)}, weights, block_size=16)
    leaves, rows = mixture.locate(range(96))
    assert [int((block == 1).sum()) for block in leaves.reshape(-1, 16)] == [8, 8, 12, 12, 0, 0]
    for leaf in range(2):
        assert rows[leaves == leaf].tolist() == list(range(int((leaves == leaf).sum())))
    with pytest.raises(ConfigError, match="choose 16 or 32"):
        MixtureDataset({"a": numbered(9)}, [(0, {"a": 1}), (20, {"a": 2})], block_size=16)
    with pytest.raises(ConfigError, match="begin at position 0"):
        MixtureDataset({"a": numbered(9)}, [(16, {"a": 1})])
    with pytest.raises(ConfigError, match="must increase"):
        MixtureDataset({"a": numbered(9)}, [(0, {"a": 1}), (0, {"a": 2})])


@pytest.mark.parametrize(
    ("weights", "block_size", "message"),
    [
        ({"a": 1.0, "b": -0.1}, None, "at least 0"),
        ({"a": 0.0, "b": 0.0}, None, "the sum must be positive and finite"),
        ({"a": 1.0, "b": float("nan")}, 16, "at least 0"),
        ({"a": 1.0}, 16, r"no weight for \['b'\]"),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, 16, r"no dataset for \['c'\]"),
        ({"a": 0.999, "b": 0.001}, 256, "the smallest block that is large enough is 501"),
        ({"a": 1.0, "b": 1.0}, 0, "block_size"),
        ({"a": 1.0, "b": 1.0}, 1 << 17, "block_size"),
    ],
)
def test_mixtures_that_are_refused(weights: dict[str, float], block_size: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MixtureDataset({"a": numbered(9), "b": numbered(9)}, weights, block_size)


def test_where_a_mixture_ends() -> None:
    def make(stop: Any) -> MixtureDataset:
        sources = {"a": numbered(10), "b": numbered(3, 1000)}
        return MixtureDataset(sources, {"a": 1, "b": 1}, 2, stop=stop)

    for stop, source, blocks in (("first_exhausted", 1, 3), ("all_exhausted", 0, 10)):
        mixture = make(stop)
        leaves, rows = mixture.locate(range(len(mixture)))
        assert (len(mixture) + 1) // 2 == blocks
        assert (leaves[-1], rows[-1]) == (source, [10, 3][source] - 1)
    with pytest.raises(ConfigError, match='must be "restart"'):
        make("never")

    class Empty(Squares):
        fields = MappingProxyType({"number": ((), "int64"), "input_ids": (None, "int32")})

    empty = MixtureDataset({"a": Empty(0), "b": numbered(3)}, {"a": 1, "b": 1}, 2)
    with pytest.raises(ConfigError, match="source 0 is empty"):
        empty.get_batch([0])


def test_a_dataset_of_the_users_own() -> None:
    own = Squares(100)
    mixture = MixtureDataset({"own": own, "list": numbered(100)}, {"own": 1, "list": 1}, 4)
    tree = EraShufflingDataset(mixture, 16, 1)
    assert numbers(PermutationDataset(own, 3), [5, 2]) == [i * i for i in own.calls[-1]]
    leaves, rows = tree.locate(range(64))
    expected = [row * row if leaf == 0 else row for leaf, row in zip(leaves.tolist(), rows.tolist(), strict=True)]
    own.calls.clear()
    assert numbers(tree, range(64)) == expected
    assert [len(call) for call in own.calls if len(call) > 1] == [32]  # one call for all rows of a batch
    assert len(own) == own.current_len() == own.wait_until_len_at_least(5) == 100
    assert asyncio.run(own.async_get_batch([3]))[0]["number"] == 9

    class Lazy(AsyncDataset):
        async def async_get_batch(self, indices: ArrayLike) -> list[dict[str, Any]]:
            await asyncio.sleep(0)
            return [{"text": f"document {i}"} for i in np.asarray(indices).tolist()]

        def __len__(self) -> int:
            return 5

    # Values of documents need not be arrays.
    assert PermutationDataset(Lazy(), 1).get_batch(range(5)) != [{"text": f"document {i}"} for i in range(5)]
    with pytest.raises(NotImplementedError, match="AsyncDataset defines neither"):
        AsyncDataset().get_batch([0])
    with pytest.raises(TypeError, match="list: derive yours"):
        PermutationDataset([1, 2], 1)  # type: ignore[arg-type]


def test_a_store_is_not_a_dataset_but_names_one(tmp_path: Path) -> None:
    store = build({"train": range(3)}, lambda numbers: [{"x": np.arange(n)} for n in numbers], tmp_path / "kept")
    with pytest.raises(TypeError, match=r"not TreeStore: use CacheDataset\('.*kept', 'train'\)") as raised:
        PermutationDataset(store, 1)  # type: ignore[arg-type]
    assert len(CacheDataset(*re.findall("'([^']+)'", str(raised.value)))) == 3


def test_a_dataset_of_the_users_own_that_grows() -> None:
    class Growing(Squares):
        def current_len(self) -> int:
            return self.n

        def final_length_is_known(self) -> bool:
            return self.n >= 40

    own = Growing(10)
    eras = EraShufflingDataset(own, 16, 1)
    assert eras.current_len() == 0

    def grow() -> None:
        for n in range(10, 42, 2):
            own.n = n
            time.sleep(0.002)

    thread = threading.Thread(target=grow)
    thread.start()
    assert sorted(numbers(eras, range(16))) == [i * i for i in range(16)]
    assert own.wait_until_len_at_least(30) >= 30
    assert len(eras) == 40
    thread.join()


def test_a_cache_on_disk(tmp_path: Path) -> None:
    documents = [np.arange(i, i + i % 17, dtype=np.int32) for i in range(300)]
    flat = np.concatenate(documents)
    build({"a": [{"input_ids": ids} for ids in documents]}, None, tmp_path)
    dataset = CacheDataset(tmp_path)
    assert TreeCache is CacheDataset
    assert (len(dataset), dataset.final_length_is_known()) == (300, True)
    order = np.random.default_rng(1).integers(0, 300, 1000)
    for i, found in zip(order.tolist(), dataset.get_batch(order), strict=True):
        np.testing.assert_array_equal(found["input_ids"], documents[i])
    windows = TokenSeqDataset(pickle.loads(pickle.dumps(dataset)), 64)
    assert len(windows) == len(flat) // 64
    for i, found in enumerate(windows.get_batch(range(len(windows)))):
        np.testing.assert_array_equal(found["input_ids"], flat[64 * i : 64 * i + 64])
    for bad in (300, -1):
        with pytest.raises(IndexError):
            dataset.get_batch([bad])
    with pytest.raises(FileNotFoundError, match="no cache"):
        CacheDataset(tmp_path, "validation")


@pytest.mark.parametrize("stored", ["uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16", "uint32"])
def test_types_of_tokens(stored: str, dtype: Any, tmp_path: Path) -> None:
    """Windows are int32, whatever the cache stores, or of the given type; documents only on request."""
    documents = [np.arange(i % 17, dtype=stored) + i for i in range(300)]
    flat = np.concatenate(documents)
    build({"a": [{"input_ids": ids, "score": np.float32(ids.sum())} for ids in documents]}, None, tmp_path)
    cache = CacheDataset(tmp_path)
    windows = TokenSeqDataset(cache, 64, doc_ids=True, dtype=dtype)
    for dataset in (windows, pickle.loads(pickle.dumps(windows)), PermutationDataset(windows, 1)):
        rows = dataset.locate(range(len(flat) // 64))[1]
        for row, found in zip(rows.tolist(), dataset.get_batch(range(len(flat) // 64)), strict=True):
            assert (found["input_ids"].dtype, found["doc_ids"].dtype) == (dtype, np.int32)
            np.testing.assert_array_equal(found["input_ids"], flat[64 * row : 64 * row + 64])
    assert TokenSeqDataset(cache, 64)[0]["input_ids"].dtype == np.int32
    assert cache[1]["input_ids"].dtype == stored
    typed = CacheDataset(tmp_path, dtype=dtype)
    for dataset in (typed, pickle.loads(pickle.dumps(typed))):
        order = np.random.default_rng(1).integers(0, 300, 1000)
        for row, found in zip(order.tolist(), dataset.get_batch(order), strict=True):
            assert (found["input_ids"].dtype, found["score"].dtype) == (dtype, np.float32)
            np.testing.assert_array_equal(found["input_ids"], documents[row])
    assert TokenSeqDataset(typed, 64)[0]["input_ids"].dtype == np.int32


@pytest.mark.parametrize(
    ("number", "dtype", "advice"),
    [
        (-1, "uint16", 'pass dtype="int64"'),
        (65_536, "uint16", 'pass dtype="int32"'),
        (2**31, "int32", 'pass dtype="int64" or "uint32"'),
        (2**32, "uint32", 'pass dtype="int64"'),
    ],
)
def test_a_token_that_does_not_fit_is_named(number: int, dtype: Any, advice: str) -> None:
    """It never wraps; the error has the number, its place and the type to use."""
    tokens = np.arange(100)
    tokens[73] = number
    windows = TokenSeqDataset(ListAsyncDataset([{"input_ids": tokens}]), 10, dtype=dtype)
    assert windows[6]["input_ids"].tolist() == list(range(60, 70))
    message = f'{number}, value 3 of "input_ids" in row 7, does not fit {dtype}; {advice}'
    with pytest.raises(ConfigError, match=re.escape(message)):
        windows.get_batch([2, 7, 3])
    fitting = TokenSeqDataset(ListAsyncDataset([{"input_ids": tokens}]), 10, dtype="int64")
    assert fitting[7]["input_ids"][3] == number


def test_types_that_are_refused() -> None:
    with pytest.raises(ConfigError, match='dtype is "int8", must be "int32", "int64", "uint16" or "uint32"'):
        TokenSeqDataset(numbered(9), 2, dtype="int8")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dtype is <class 'numpy.int64'> \(type type\), must be a str"):
        TokenSeqDataset(numbered(9), 2, dtype=np.int64)  # type: ignore[arg-type]
    floats = TokenSeqDataset(ListAsyncDataset([{"x": np.arange(8, dtype=np.float32)}]), 4, field="x")
    assert floats[1]["x"].tolist() == [4, 5, 6, 7]
    assert floats[1]["x"].dtype == np.float32


def test_pickles() -> None:
    tree = MixtureDataset(
        {"a": PermutationDataset(numbered(30), 1), "b": TokenWindows.make()}, {"a": 1, "b": 0}, 4, 5, "all_exhausted"
    )
    copy = pickle.loads(pickle.dumps(tree.epoch(2)))
    np.testing.assert_array_equal(copy.locate(range(30)), tree.epoch(2).locate(range(30)))
    windows = pickle.loads(pickle.dumps(TokenSeqDataset(numbered(30), 4, doc_ids=True)))
    np.testing.assert_array_equal(windows[2]["doc_ids"], TokenSeqDataset(numbered(30), 4, doc_ids=True)[2]["doc_ids"])


class TokenWindows:
    @staticmethod
    def make() -> AsyncDataset:
        return EraShufflingDataset(numbered(30), 8, 2)


def test_jagged_array() -> None:
    rows: Sequence[np.ndarray[Any, Any]] = [np.arange(3), np.arange(0), np.arange(5)]
    jagged = JaggedArray.from_rows(rows)
    assert (len(jagged), jagged.lengths.tolist(), jagged.dtype) == (3, [3, 0, 5], np.dtype(np.int64))
    for found, row in zip(jagged, rows, strict=True):
        np.testing.assert_array_equal(found, row)
    np.testing.assert_array_equal(jagged[-1], rows[2])
    assert [len(row) for row in jagged[1:]] == [0, 5]
    with pytest.raises(IndexError):
        jagged[3]
    matrices = JaggedArray.from_rows([np.ones((2, 3)), np.zeros((1, 3))])
    assert [matrix.shape for matrix in matrices] == [(2, 3), (1, 3)]
