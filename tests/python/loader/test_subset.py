"""`n_samples=` and `sampling=Subset(...)`: some rows of the files, as a dataset of their own."""

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import ONE_PASS, N, passed, table, write
from forebay import ConfigError
from forebay.sampling import Subset


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "rows", table({"number": list(range(N))}))


@pytest.mark.parametrize("rows", [[3], [0, N - 1], list(range(N)), [7, 2, 5], range(1, N, 2), np.array([4, 1])])
def test_named_rows_are_read_in_storage_order(rows: Any, path: Path) -> None:
    found = passed(path, sampling=Subset(rows), columns=["number"])
    assert found["index"] == found["number"] == sorted(int(row) for row in rows)


def test_a_number_of_rows_is_chosen_by_the_seed(path: Path) -> None:
    chosen = {seed: passed(path, sampling=Subset(10, seed=seed))["index"] for seed in (0, 1)}
    assert len(set(chosen[0])) == len(chosen[0]) == 10
    assert chosen[0] != chosen[1]
    assert passed(path, n_samples=10)["index"] == chosen[0]
    assert set(passed(path, sampling=Subset(15, seed=1))["index"]) > set(chosen[1])


def test_ranks_share_the_rows(path: Path) -> None:
    own = [passed(path, sampling=Subset(9), rank=rank, world_size=3)["index"] for rank in range(3)]
    assert sorted(itertools.chain(*own)) == passed(path, sampling=Subset(9))["index"]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (([],), ConfigError, "rows is empty, must name at least one row"),
        (([1, 2, 1],), ConfigError, "names row 1 twice"),
        (([-1],), ConfigError, "rows has -1, must be 0 or more"),
        ((0,), ConfigError, "rows is 0, must be 1 or more"),
        (([1, 2], 3), ConfigError, "seed is 3, and rows names the rows"),
        (("12",), TypeError, "rows"),
        ((1.5,), TypeError, "rows"),
        (([True],), TypeError, "rows"),
    ],
)
def test_wrong_subsets_are_refused_when_made(arguments: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=re.escape(told)):
        Subset(*arguments)


def test_rows_that_are_not_there(path: Path) -> None:
    cases = ((Subset([N]), f"names row {N}, must be 0 to {N - 1}"), (Subset(N + 1), f"asks for {N + 1} rows"))
    for subset, told in cases:
        with pytest.raises(ConfigError, match=told):
            forebay.Loader(path, sampling=subset, **ONE_PASS)


def test_subsets_are_values() -> None:
    subset = Subset(np.arange(3))
    assert subset == Subset([0, 1, 2]) == pickle.loads(pickle.dumps(subset)) == Subset.from_dict(subset.to_dict())
    assert repr(Subset(5, seed=2)) == "Subset(rows=5, seed=2)"
