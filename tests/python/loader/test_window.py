"""The shuffle window displaces rows as its model predicts, and yields each row once."""

import itertools
import random
import statistics
from pathlib import Path

import pytest

import forebay
from recordings import TINY


def displacements(order: list[int]) -> list[int]:
    """The distance of each draw from the position of its row in reading order."""
    return [abs(draw - ticket) for draw, ticket in enumerate(order)]


def model(window: int, n_draws: int, rng: random.Random) -> list[int]:
    """The order of tickets drawn from a window of this many slots."""
    slots = list(range(window))
    order = []
    for draw in range(n_draws):
        slot = rng.randrange(window)
        order.append(slots[slot])
        slots[slot] = window + draw
    return order


@pytest.mark.parametrize("window", [2, 50, 400])
def test_mean_displacement(window: int, tiny_shard: Path) -> None:
    """The mean is within five standard deviations of 30 runs of the model (about 2 W / e for a full window)."""
    n_batches, batch_size = 80, 100
    order: list[int] = []
    with forebay.Loader(tiny_shard, batch_size=batch_size, shuffle_min_size=window, **TINY) as loader:
        while len(order) < n_batches * batch_size:
            order.extend(next(loader)["index"].tolist())
    found = statistics.mean(displacements(order))
    runs = [statistics.mean(displacements(model(window, len(order), random.Random(seed)))) for seed in range(30)]
    assert abs(found - statistics.mean(runs)) < 5 * statistics.stdev(runs)


@pytest.mark.parametrize("window", [0, 1, 2, 100, 8000])
def test_finite_pass_gives_each_row_once(window: int, tiny_shard: Path) -> None:
    with forebay.Loader(tiny_shard, infinite=False, shuffle_min_size=window, batch_size=1000, **TINY) as loader:
        order = [row for batch in loader for row in batch["index"].tolist()]
        assert len(loader) == loader.batches_per_epoch == 12
    assert sorted(order) == list(range(12_000))
    assert (order == sorted(order)) == (window <= 1)


def test_shards_come_in_a_new_order_each_epoch(tiny_shards: list[Path]) -> None:
    """With one slot the rows of a shard stay together, and the order of the shards changes."""
    orders = set()
    with forebay.Loader(tiny_shards, shuffle_min_size=1, infinite=False, batch_size=60, **TINY) as loader:
        for _ in range(6):
            rows = [row for batch in loader for row in batch["index"].tolist()]
            orders.add(tuple(dict.fromkeys(row // 60 for row in rows)))
            assert all(b > a for a, b in itertools.pairwise(rows) if a // 60 == b // 60)
    assert len(orders) > 3
    assert all(sorted(order) == list(range(5)) for order in orders)
