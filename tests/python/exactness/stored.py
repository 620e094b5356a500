"""Random datasets and caches of `forebay.cache`, and what holds for each."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import caches
from case import Taken, keys, reborn, take
from conformance import joined, same
from forebay import cache

BATCHES = 8


class Stored:
    """A dataset of documents, and the batches of a `DataLoader` of it."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.folder, self.rng = folder, rng
        self.shards = caches.unequal([rng.choice([0, 1, 5, 23]) for _ in range(rng.randint(2, 4))] + [17])
        self.build: dict[str, Any] = {
            "batch_size": rng.choice([1, 4, 50]), "order": rng.choice(["round_robin", "concat"]),
            "compression": rng.choice(["none", "zstd"]),
        }  # fmt: skip
        self.numbers = caches.expected(self.shards, self.build["batch_size"], self.build["order"])
        cache.build(self.shards, caches.Number(), folder / "one", n_workers=1, **self.build)
        self.dataset = self.shuffled(cache.CacheDataset(folder / "one"))
        self.keywords: dict[str, Any] = {"batch_size": rng.choice([4, 12]), "drop_last": rng.random() < 0.3}
        with self.loader(n_workers=1, prefetch_batches=1) as loader:
            self.states: list[str] = []
            self.taken: list[Taken] = []
            while len(self.taken) < BATCHES:
                self.states.append(json.dumps(loader.state_dict()))
                self.taken += take(loader, 1)

    def shuffled(self, made: Any) -> Any:
        """The dataset in a random order."""
        rng, kind, seed = self.rng, self.rng.randrange(6), self.rng.randrange(2**64)
        self.is_infinite = kind == 3
        if kind in (4, 5):
            made = cache.WeightedDataset(made, [1.0 + i % 3 for i in range(len(made))], seed)
        if kind in (1, 4):
            return cache.PermutationDataset(made, seed)
        if kind in (2, 5):
            return cache.EraShufflingDataset(made, rng.choice([4, 10]), seed)
        if kind == 3:
            sources = {"a": cache.PermutationDataset(made, seed), "b": made}
            return cache.MixtureDataset(sources, {"a": 0.5, "b": 0.25}, 12, seed)
        return made

    def loader(self, **changes: Any) -> cache.DataLoader:
        return cache.DataLoader(self.dataset, worker_nice=0, **{**self.keywords, **changes})

    def threads(self) -> dict[str, Any]:
        return {"n_workers": self.rng.choice([1, 2, 5]), "prefetch_batches": self.rng.choice([1, 2, 5])}

    def at(self, number: int) -> cache.DataLoader:
        loader = self.loader(**self.threads())
        loader.load_state_dict(json.loads(self.states[number]))
        return reborn(loader) if self.rng.random() < 0.5 else loader


def stored_builds(case: Stored) -> None:
    """The documents are those that were given, in the order that a plain loop makes, for any number of workers."""
    folder = case.folder / "two"
    cache.build(case.shards, caches.Number(sleep_s=0.002), folder, n_workers=case.rng.choice([2, 5]), **case.build)
    assert caches.files(folder / "train") == caches.files(case.folder / "one" / "train")
    dataset = cache.CacheDataset(folder)
    found = dataset.get_batch(range(len(dataset)))
    assert len(found) == len(case.numbers)
    assert all(caches.same(row, number) for row, number in zip(found, case.numbers, strict=True))


def stored_threads(case: Stored) -> None:
    for _ in range(2):
        with case.loader(**case.threads()) as loader:
            assert keys(take(loader, BATCHES)) == keys(case.taken)


def stored_rows(case: Stored) -> None:
    """A batch has the rows of the dataset in its order of the pass."""
    size = case.keywords["batch_size"]
    for taken in case.taken:
        dataset = case.dataset.epoch(taken.epoch)
        first = size * taken.number
        end = first + size if case.is_infinite else min(first + size, len(dataset))
        numbers = [int(row["number"]) for row in dataset.get_batch(range(first, end))]
        np.testing.assert_array_equal(taken.batch["number"], numbers)


def stored_resumes(case: Stored) -> None:
    for _ in range(3):
        at = case.rng.randrange(BATCHES)
        with case.at(at) as loader:
            assert keys(take(loader, BATCHES - at)) == keys(case.taken[at:])
    at = case.rng.randrange(BATCHES)
    with case.loader(**case.threads(), start_step=at) as loader:
        assert keys(take(loader, BATCHES - at)) == keys(case.taken[at:])


def stored_ranks(case: Stored) -> None:
    """The parts of the ranks are the batches of one process, also if their number changes."""
    at = case.rng.randrange(BATCHES)
    size = case.keywords["batch_size"]
    while at < BATCHES:
        world = case.rng.choice([1, 2, 4])
        each = {"batch_size": size // world, "world_size": world}
        loaders = [case.loader(**case.threads(), **each, rank=rank) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(json.loads(case.states[at]))
        for _ in range(min(case.rng.randint(1, 4), BATCHES - at)):
            parts = [take(loader, 1)[0] for loader in loaders]
            assert {(part.epoch, part.number) for part in parts} == {case.taken[at].key[:2]}
            same(joined([part.batch for part in parts]), joined([case.taken[at].batch]))
            at += 1
        for loader in loaders:
            loader.close()


def stored_skips(case: Stored) -> None:
    at = case.rng.randrange(BATCHES)
    epoch, number = case.taken[at].key[:2]
    known = [taken.number for taken in case.taken if taken.epoch == epoch]
    first = case.rng.randint(number, max(known))
    end = case.rng.randint(first, max(known) + 1)
    expected = [taken for taken in case.taken[at:] if taken.epoch != epoch or not first <= taken.number < end]
    n_first = case.rng.randint(0, len(expected))
    with case.at(at) as loader:
        loader.skip([(first, end)])
        found = [taken.digest for taken in take(loader, n_first)]
        copied = reborn(loader)
    with copied:
        found += [taken.digest for taken in take(copied, len(expected) - n_first)]
    assert found == [taken.digest for taken in expected]


PROPERTIES = (stored_builds, stored_threads, stored_rows, stored_resumes, stored_ranks, stored_skips)
