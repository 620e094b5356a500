"""Mutated states either load as a valid position or raise `StateError`.

No state causes a panic, a hang or another error. `state_dict()` returns a loaded state, and the loader continues from
it.
"""

import copy
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
import numbered
from documents import loader as token_loader
from forebay import AsyncDataLoader
from forebay.cache import DataLoader, EraShufflingDataset, ListAsyncDataset, MixtureDataset, WeightedDataset
from recordings import SMALL

TRIALS = 250

NUMBERS = [
    *(0, 1, 2, 3, 7, 40, 1000, -1, -(2**63), 2**20, 2**20 + 1, 2**31, 2**32, 2**40, 2**46, 2**53 + 1),
    *(2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64, 2**65, 10**30),
]
OTHERS: list[Any] = [
    *(None, True, False, 0.0, 1.5, -1.0, 1e300, "", "0", "1", "-1", "a" * 100, "0 0 0", "1:2 3", "9" * 30, "5 -5:0"),
    *([], {}, [0], [[0, 1]], [[0, 2**64]], [[3, 1]], {"0": {}}, {"0": {"documents_read": 1, "held": ""}}),
    *({"0": {"records": 2**64 - 1, "rows": []}}, {"0": {"records": 1, "rows": [2**63]}}),
    *({str(2**64 - 1): {"records": 1, "rows": [0]}}, {"0": {"records": 0, "rows": [1, 2, 3]}}),
]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Turns a hang into an error with a traceback of its place."""

    def late(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a state."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from places(item, (*path, at))


def mutated(state: Any, dice: random.Random) -> Any:
    """A copy of a state with one to three values changed, removed or added."""
    state = copy.deepcopy(state)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        found = list(places(state))
        # "config", "data" and "kind" are most of a state, and are only compared with the loader's.
        where = [path for path in found if not {"config", "data", "kind"} & {*path}] if dice.random() < 0.8 else found
        path = dice.choice(where)
        other = dice.choice([*NUMBERS, *NUMBERS, *OTHERS])
        if not path:
            if dice.random() < 0.05:
                return other
            if isinstance(state, dict):
                state[dice.choice(["packers", "lost", "skip", "pq_idx", "rg_idx", "more"])] = other
            continue
        at = state
        for step in path[:-1]:
            at = at[step]
        match dice.randrange(8):
            case 0:
                del at[path[-1]]
            case 1 if isinstance(at[path[-1]], int) and not isinstance(at[path[-1]], bool):
                at[path[-1]] += dice.choice([-1, 1, 2**32, 2**62])
            case 2 if isinstance(at[path[-1]], str):
                text = at[path[-1]]
                cut = dice.randrange(len(text) + 1)
                at[path[-1]] = text[:cut] + str(dice.choice(NUMBERS)) + text[cut + dice.randrange(3) :]
            case _:
                at[path[-1]] = copy.deepcopy(other)
    return state


Make = Callable[[], AbstractContextManager[Any]]


def check(make: Make, go_on: Callable[[Any], object], before: int = 5, trials: int = TRIALS) -> dict[str, int]:
    """Loads each mutated state into a new loader and continues from those that load; counts the outcomes."""
    outcomes = {"loaded": 0, "refused": 0}
    with make() as loader:
        batches = iter(loader)
        for _ in range(before):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
    for trial in range(trials):
        changed = mutated(state, random.Random(trial))
        with make() as loader, within(60):
            try:
                loader.load_state_dict(changed)
            except forebay.StateError:
                outcomes["refused"] += 1
                # The position is unchanged.
                assert loader.state_dict()["batch"] == 0, changed
                continue
            # The loader's own state loads again and is unchanged.
            said = json.loads(json.dumps(loader.state_dict()))
            loader.load_state_dict(said)
            assert json.loads(json.dumps(loader.state_dict())) == said, changed
            try:
                go_on(loader)
            except forebay.StateError:
                outcomes["refused"] += 1  # the state's packer refers to a document that does not match
                continue
            outcomes["loaded"] += 1
    return outcomes


def take_two(loader: Any) -> None:
    for _ in range(2):
        if next(loader, None) is None:
            break


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"infinite": False},
        {"order": "era", "era_length": 64},
        {"n_streams": 4},
        {"on_io_error": "skip", "order": "global", "infinite": False, "drop_last": True},
    ],
    ids=str,
)
def test_loader(tiny_shards: list[Path], parameters: dict[str, Any]) -> None:
    outcomes = check(lambda: forebay.Loader(tiny_shards, **SMALL, **parameters), take_two)
    assert outcomes["loaded"] > 5
    assert outcomes["refused"] > 50


def test_loader_of_a_mixture(tiny_shards: list[Path]) -> None:
    sources = {"a": tiny_shards[:2], "b": tiny_shards[2:]}
    outcomes = check(lambda: forebay.Loader(sources, **SMALL, weights={"a": 3, "b": 1}), take_two)
    assert outcomes["loaded"] > 5


@pytest.mark.parametrize("parameters", [{}, {"seed": 3, "crop": "carry", "n_streams": 2}, {"infinite": False}], ids=str)
def test_token_loader(parquets: Path, parameters: dict[str, Any]) -> None:
    outcomes = check(lambda: token_loader(parquets, **parameters), take_two)
    assert outcomes["loaded"] > 5
    assert outcomes["refused"] > 50


def test_token_loader_of_ranks(parquets: Path) -> None:
    """Mutates lists of the states of two ranks."""
    make = {"batch_size": 2, "n_streams": 2, "world_size": 2}
    states = []
    for rank in range(2):
        with token_loader(parquets, **make, rank=rank) as loader:
            for _ in range(3):
                next(loader)
            states.append(json.loads(json.dumps(loader.state_dict())))
    loaded = 0
    for trial in range(TRIALS):
        changed = mutated(states, random.Random(trial))
        with token_loader(parquets, batch_size=4, n_streams=2) as loader, within(60):
            try:
                loader.load_state_dict(changed)
                take_two(loader)
                loaded += 1
            except forebay.StateError:
                pass
    assert loaded < TRIALS


def test_a_list_of_what_is_no_state(parquets: Path) -> None:
    """Lists of values that are no states raise; merging their "lost" entries once panicked."""
    with token_loader(parquets) as loader:
        lost = {"lost": {"0": {"records": 1, "rows": []}}}
        no_states: list[Any] = [[3, lost], [[], {"lost": {}}], [None], ["a", {}], [{}, 3]]
        for states in no_states:
            with pytest.raises(forebay.StateError, match=r"a state is a dict"):
                loader.load_state_dict(states)


def test_what_a_long_state_has_is_not_shown_whole(parquets: Path) -> None:
    with token_loader(parquets) as loader:
        state = loader.state_dict()
        for wrong in ({"packers": "0 " * 300_000}, {"skip": "x" * 600_000}, {"kind": "k" * 600_000}):
            with pytest.raises(forebay.StateError) as caught:
                loader.load_state_dict({**state, **wrong})
            assert len(str(caught.value)) < 5000
            assert "characters left out" in str(caught.value)
        with pytest.raises(TypeError, match=r"a state is a dict as state_dict.* int64 is not JSON serializable"):
            loader.load_state_dict({**state, "batch": np.int64(3)})


def test_states_of_the_reference(parquets: Path) -> None:
    """States of the reference design load if they name an existing row group; others are refused, not clamped."""
    good = {"pq_idx": 1, "rg_idx": 2, "epoch": 3}
    with token_loader(parquets) as loader:
        loader.load_state_dict(good)
        place = loader.state_dict()
        assert place["reading"]["epoch"] == 2
        wrong: dict[str, list[Any]] = {
            "pq_idx": [3, 2**32, 2**63, 2**64 - 1, 2**64, -1, 1.0, True, None, "1"],
            "rg_idx": [4, 5, 2**32, 2**63, 2**64 - 2, 2**64 - 1, 2**64, -1, 0.5, False, None],
            "epoch": [0, 2**60, 2**63, 2**64 - 1, 2**64, -1, 1.5, True, None],
        }
        for name, values in wrong.items():
            for value in values:
                with pytest.raises(forebay.StateError, match=rf"{name}|row group|file|epoch"):
                    loader.load_state_dict({**good, name: value})
                assert loader.state_dict() == place
        with pytest.raises(forebay.StateError, match=rf"rg_idx is {2**64 - 1}; file 1 has \d+ row groups"):
            loader.load_state_dict({**good, "rg_idx": 2**64 - 1})


def test_what_a_state_says_was_lost_is_counted_on(tiny_shards: list[Path]) -> None:
    """Impossible counts of lost records are refused; the largest would overflow 64 bits at the next lost record."""
    with forebay.Loader(tiny_shards, **SMALL) as loader:
        state = loader.state_dict()
        for lost in (
            {"0": {"records": 2**64 - 1, "rows": []}},
            {"0": {"records": 1, "rows": [1, 2]}},
            {"0": {"records": 9, "rows": [300]}},
            {"0": {"records": 20, "rows": list(range(20))}},
            {"-1": {"records": 1, "rows": [1]}},
        ):
            with pytest.raises(forebay.StateError, match="lost"):
                loader.load_state_dict({**state, "lost": lost})
        loader.load_state_dict({**state, "lost": {"0": {"records": 2, "rows": [7, 9]}}})
        assert [error["index"] for error in loader.errors()] == [7, 9]


def test_a_window_is_that_of_the_first_start(tiny_shards: list[Path]) -> None:
    """A `first_world_size` that no loader can have had is refused: it would make the window arbitrarily large."""
    with forebay.Loader(tiny_shards, **SMALL, order="window") as loader:
        state = loader.state_dict()
        for world_size in (2, 3, 2**20, 2**20 + 1, 0):
            with pytest.raises(forebay.StateError, match="no loader wrote that"):
                loader.load_state_dict({**state, "first_world_size": world_size})


def documents(n: int, base: int = 0) -> ListAsyncDataset:
    return ListAsyncDataset([{"x": base + i} for i in range(n)])


@pytest.mark.parametrize("kind", ["list", "weighted", "era", "mixture", "endless"])
def test_data_loader(kind: str) -> None:
    def make() -> DataLoader:
        mixture = {"a": documents(50), "b": documents(30, 100)}
        kinds: dict[str, Callable[[], Any]] = {
            "list": partial(documents, 103),
            "weighted": lambda: WeightedDataset(documents(103), [i % 4 for i in range(103)], 2),
            "era": lambda: EraShufflingDataset(documents(103), 16, 2),
            "mixture": lambda: MixtureDataset(mixture, {"a": 1, "b": 1}, 16, seed=4, stop="all_exhausted"),
            "endless": lambda: MixtureDataset(mixture, {"a": 1, "b": 1}, 16, seed=4, stop="restart"),
        }
        return DataLoader(kinds[kind](), 8, n_workers=1)

    outcomes = check(make, take_two)
    assert outcomes["loaded"] > 5


def test_async_data_loader() -> None:
    def go_on(loader: Any) -> None:
        batches = iter(loader)
        assert np.isfinite(next(batches).indices).all()

    def make() -> AsyncDataLoader:
        return numbered.loader(400)

    outcomes = check(make, go_on, before=3, trials=150)
    assert outcomes["loaded"] > 5
    with make() as loader:
        state = loader.state_dict()
        for name in ("epoch", "batch"):
            for value in (True, -1, 2**62 + 1, 1.0, None, "1"):
                with pytest.raises(forebay.StateError, match="the state has epoch"):
                    loader.load_state_dict({**state, name: value})
        for no_state in (3, None, [1], "a"):
            with pytest.raises(forebay.StateError, match="a state is a dict"):
                loader.load_state_dict(no_state)  # type: ignore[arg-type]
