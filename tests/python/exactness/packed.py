"""Random configurations of `TokenLoader`, and what holds for each."""

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import documents
import packing
from case import Taken, keys, reborn, take
from digests import digest
from forebay import TokenLoader

BATCHES = 10
EVERY = 8
"""Rows of a batch over all ranks."""


class Packed:
    """A configuration of a `TokenLoader`, and its batches."""

    def __init__(self, files: Path, rng: Random) -> None:
        self.files, self.rng = files, rng
        self.keywords: dict[str, Any] = {
            "batch_size": EVERY,
            "seq_len": rng.choice([19, 63, 200]),
            "buffer_size": rng.choice([1, 20, 70]),
            "tokenizer_batch_size": rng.choice([1, 16, 50]),
            "bos_id": documents.BOS,
            "fit": rng.choice(["drop", "carry", "pad"]),
            "seed": rng.choice([None, rng.randrange(2**64)]),
            "n_streams": rng.choice([1, 2, 4]),
            "infinite": rng.random() < 0.6,
            "shuffle_min_size": rng.choice([None, 0, 40]),
        }
        if self.keywords["fit"] == "pad":
            self.keywords["on_long"] = rng.choice(["skip", "cut", "split"])
        if rng.random() < 0.3:
            self.keywords["exclude"] = sorted(rng.sample(range(320), 30))
        with self.loader(n_workers=1, prefetch_batches=1) as loader:
            self.states: list[str] = []
            self.taken: list[Taken] = []
            while len(self.taken) < BATCHES:
                state = json.dumps(loader.state_dict())
                self.states.append(state)
                self.taken += take(loader, 1)

    def loader(self, **changes: Any) -> TokenLoader:
        return TokenLoader(self.files, documents.encode, worker_nice=0, **{**self.keywords, **changes})

    def rows(self, batch: dict[str, Any]) -> list[list[int]]:
        """The rows of a batch, without their padding."""
        if self.keywords["fit"] == "pad":
            return documents.padded_rows(batch, documents.BOS)
        return documents.full_rows(batch)

    def threads(self) -> dict[str, Any]:
        """Parameters that change no batch."""
        return {
            "n_workers": self.rng.choice([1, 2, 5]),
            "prefetch_batches": self.rng.choice([1, 2, 5]),
            "raw_channel_size": self.rng.choice([1, 3, 256]),
        }


def packed_threads(case: Packed) -> None:
    for _ in range(2):
        with case.loader(**case.threads()) as loader:
            assert keys(take(loader, BATCHES)) == keys(case.taken)


def packed_resumes(case: Packed) -> None:
    """A state before any batch, in a new object, leads to that batch."""
    for _ in range(3):
        at = case.rng.randrange(BATCHES)
        with case.loader(**case.threads()) as first:
            first.load_state_dict(json.loads(case.states[at]))
            loader = reborn(first) if case.rng.random() < 0.5 else first
            assert loader.state_dict() == json.loads(case.states[at])
            assert keys(take(loader, BATCHES - at)) == keys(case.taken[at:])
            loader.close()


def packed_ranks(case: Packed) -> None:
    """The parts of the ranks are the batches of one process; a list of their states resumes any number of ranks."""
    n_streams = case.keywords["n_streams"]
    worlds = [world for world in (1, 2, 4) if n_streams % world == 0]
    at = case.rng.randrange(BATCHES)
    # At the end of a finite pass some packers, and so some ranks, are over before the others.
    whole = [case.rows(taken.batch) for taken in case.taken]
    end = next((number for number in range(at, BATCHES) if len(whole[number]) < EVERY), BATCHES)
    states: Any = json.loads(case.states[at])
    while at < end:
        world = case.rng.choice(worlds)
        each = {"batch_size": EVERY // world, "world_size": world}
        loaders = [case.loader(**case.threads(), **each, rank=rank) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(states)
        for _ in range(min(case.rng.randint(1, 4), end - at)):
            parts = [take(loader, 1)[0].batch for loader in loaders]
            assert [row for part in parts for row in case.rows(part)] == whole[at]
            at += 1
        states = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
        for loader in loaders:
            loader.close()


def packed_oracle(case: Packed) -> None:
    """The rows are those of best-fit packing, as a plain scan over a list makes them."""
    given = case.keywords
    if given["seed"] is not None or given["shuffle_min_size"] or given["tokenizer_batch_size"] != 16:
        return
    n = given["n_streams"]
    if "exclude" in given or not given["infinite"] or n > 2:
        return  # of files with fewer row groups than streams the groups are dealt out over all files
    how = (given["seq_len"] + 1, given["buffer_size"], given["fit"], given.get("on_long", ""))
    oracles = [packing.rows(documents.slices_of(packer, n), *how) for packer in range(n)]
    for taken in case.taken:
        rows = [row for oracle in oracles for row in itertools.islice(oracle, EVERY // n)]
        assert case.rows(taken.batch) == rows
        assert digest(taken.batch) == taken.digest


PROPERTIES = (packed_threads, packed_resumes, packed_ranks, packed_oracle)
