"""A configuration of a loader with the batches that it gives, to which every property compares."""

import json
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import forebay
from configurations import Configuration, Keywords, threads
from corpus import ELSEWHERE, Corpus
from digests import digest
from forebay import _core

BATCHES = 9
"""Batches that are compared."""


@dataclass(frozen=True)
class Taken:
    """A batch, or an error in its place."""

    epoch: int
    number: int
    batch: dict[str, Any]
    digest: str

    @property
    def key(self) -> tuple[int, int, str]:
        return self.epoch, self.number, self.digest

    @property
    def rows(self) -> list[int]:
        found: list[int] = self.batch["index"].tolist()
        return found


def following(loader: Any) -> dict[str, Any] | None:
    """The next batch, of the next pass if this one is over; None after two passes without a batch."""
    found: dict[str, Any] | None = next(loader, None)
    for _ in range(2):
        if found is None:
            found = next(iter(loader), None)
    return found


def take(loader: Any, n: int = BATCHES, without: Iterable[str] = ()) -> list[Taken]:
    """The next `n` batches without some fields; fewer if an error ends them, which is then the last one."""
    left_out = set(without)
    found: list[Taken] = []
    while len(found) < n:
        try:
            batch = following(loader)
        except forebay.DecodeError as error:
            message = str(error).replace(ELSEWHERE, "")
            return [*found, Taken(-1, -1, {}, f"DecodeError: {message}")]
        if batch is None:
            break
        state = loader.state_dict()
        is_last = state["batch"] == 0
        epoch, number = state["epoch"] - is_last, (loader.batch if is_last else state["batch"]) - 1
        batch = {name: values for name, values in batch.items() if name not in left_out}
        found.append(Taken(epoch, number, batch, digest(batch)))
    return found


def keys(found: Iterable[Taken]) -> list[tuple[int, int, str]]:
    return [taken.key for taken in found]


class Case:
    """A configuration, its batches from the first on, and the states before them."""

    def __init__(self, configuration: Configuration, corpus: Corpus, rng: Random) -> None:
        self.configuration = configuration
        self.keywords = configuration.keywords
        self.rng = rng
        self.source = corpus.source(configuration.form, configuration.pattern)
        needs_two = getattr(self.keywords.get("features"), "n_channels", None) == 2
        self.bad = self.source.bad | (self.source.mono if needs_two else frozenset())
        self.states: list[str] = []
        self.taken: list[Taken] = []
        with self.loader(n_workers=1, n_readers=1, prefetch_batches=1) as loader:
            self.length = 2**40 if self.keywords["infinite"] else len(loader)
            self.fields = loader.fields
            self.is_windowed = loader.recipe.to_dict()["order"] == "window"
            while len(self.taken) < BATCHES and not self.error:
                state = json.dumps(loader.state_dict())
                more = take(loader, 1)
                if not more:
                    break
                self.taken += more
                self.states.append(state)
            self.errors = failed(loader)

    @property
    def error(self) -> str:
        """The error that ended the batches, if any."""
        return self.taken[-1].digest if self.taken and self.taken[-1].number < 0 else ""

    @property
    def files(self) -> Any:
        """The source, by one of its two names."""
        return self.source.files(self.rng.choice(self.source.folders))

    @property
    def absent(self) -> frozenset[int]:
        """Rows that are bad or excluded."""
        return self.bad | frozenset(self.keywords.get("exclude", ()))

    def loader(self, **changes: Any) -> forebay.Loader:
        """A loader of this configuration with these changes; `None` removes a parameter."""
        given = {"worker_nice": 0, **self.keywords, **changes}
        return forebay.Loader(self.files, **{name: value for name, value in given.items() if value is not None})

    def threads(self) -> Keywords:
        """Random numbers of threads and sizes of queues; workers of the next loader may be slow."""
        _core._inject_delays(random_ms=self.rng.choice([0.0, 0.0, 0.5]))
        return threads(self.rng, self.configuration.form)

    def at(self, number: int, **changes: Any) -> forebay.Loader:
        """A loader in a new object, before batch `number` of those taken: by JSON, by pickle, or by its own way."""
        state = json.loads(self.states[number])
        loader = self.loader(**{**self.threads(), **changes})
        loader.load_state_dict(state)
        return reborn(loader) if self.rng.random() < 0.3 else loader

    def digest(self, batch: dict[str, Any]) -> str:
        return digest(batch)

    def place(self) -> int:
        """The number of one of the batches taken."""
        return self.rng.randrange(len(self.states))


def reborn(loader: Any) -> Any:
    """The same loader in a new object, by pickle."""
    made = pickle.loads(pickle.dumps(loader))
    loader.close()
    return made


def failed(loader: forebay.Loader) -> list[tuple[int, str]]:
    """The rows that failed so far."""
    return [(error["index"], error["kind"]) for error in loader.errors()]


def temporary(corpus: Corpus, name: str) -> Path:
    """A folder for the files of one configuration."""
    return corpus.folder / name
