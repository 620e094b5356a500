"""The producing side of a queue: draws batches from a sampler and writes files, a few ahead of the trainer.

File n of a split is a function of (seed, split, n), and `Numbering` ensures that each file is made once.
"""

import contextlib
import logging
import math
import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from forebay._checks import MOST, as_place, problems, truth
from forebay._core import ConfigError
from forebay._files import what_is
from forebay.queue import meta as metas
from forebay.queue.files import Layout, is_record, list_files, patiently, read_state, synced, temporaries
from forebay.queue.lock import QueueLock
from forebay.queue.numbering import Numbering
from forebay.queue.seeds import file_rng
from forebay.queue.stopping import Stop
from forebay.queue.tensors import Tensors, describe, save

_log = logging.getLogger("forebay.queue")


class _StopError(Exception):
    """The provider was stopped in the middle of a file."""


class DataProviderBase(ABC):
    """Base class of providers: writes batches into `data_dir/queue/`, at most `max_backlog_files` files ahead.

    A subclass describes its data (`build_meta`) and draws batches (`sample_batch`). Random numbers must come
    from the generator passed to `sample_batch`. Then file n of a split always has the same content.

    Parameters
    ----------
    batch_size : int
        Rows per batch.
    block_size, target_size : int, optional
        Tokens per row, and per target if its length differs; for use in the provider, and checked against
        `meta`.
    batches_per_file : int
        Batches per file.
    max_backlog_files : int
        Upper limit of a split's unread files, including the one being read.
    sleep_seconds : float
        Seconds between checks while all splits are full.
    seed : int
        Seed of all random numbers, 0 to 2**64 - 1.
    verbose : bool
        Sets the logger `forebay.queue` to DEBUG.
    rank : int, optional
        Writes the queue of this rank, `queue/{split}_rank{rank}`; ranks get different data.

    """

    def __init__(
        self,
        data_dir: str | Path,
        batch_size: int,
        block_size: int | None = None,
        target_size: int | None = None,
        batches_per_file: int = 100,
        max_backlog_files: int = 2,
        sleep_seconds: float = 2.0,
        seed: int = 1337,
        verbose: bool = False,
        *,
        rank: int | None = None,
    ) -> None:
        wrong = problems(
            batch_size=(batch_size, 1, MOST),
            block_size=(1 if block_size is None else block_size, 1, MOST),
            target_size=(1 if target_size is None else target_size, 1, MOST),
            batches_per_file=(batches_per_file, 1, MOST),
            max_backlog_files=(max_backlog_files, 1, MOST),
            seed=(seed, 0, 2**64 - 1),
        )
        if not (isinstance(sleep_seconds, int | float) and math.isfinite(sleep_seconds) and sleep_seconds >= 0):
            wrong.append(f"sleep_seconds is {sleep_seconds!r}, must be a number from 0 on")
        if wrong:
            raise ConfigError("; ".join(wrong))
        self.data_dir = as_place("data_dir", data_dir).absolute()
        self.batch_size = operator.index(batch_size)
        self.block_size = None if block_size is None else operator.index(block_size)
        self.target_size = None if target_size is None else operator.index(target_size)
        self.batches_per_file = operator.index(batches_per_file)
        self.max_backlog_files = operator.index(max_backlog_files)
        self.sleep_seconds = sleep_seconds
        self.seed = operator.index(seed)
        self.verbose = truth("verbose", verbose)
        self.rank = rank
        self._layout = Layout(self.data_dir, rank)
        self._meta: metas.Meta | None = None
        self._schema: list[metas.Field] = []
        self._backlogs: dict[str, int] = {}
        self._numberings: dict[str, Numbering] = {}
        self._stop = Stop()
        if verbose:
            _log.setLevel(logging.DEBUG)

    @abstractmethod
    def build_meta(self) -> dict[str, Any]:
        """Returns the description of the data; docs/queue.md lists the keys. Called once."""

    @abstractmethod
    def sample_batch(self, split: str, rng: torch.Generator) -> Tensors:
        """Returns one batch: tensors `[batch_size, *shape]` by name, matching `batch_schema`."""

    # Hooks that most providers do not need.
    def on_start(self) -> None:  # noqa: B027
        """Called by `run()` before the first file."""

    def on_stop(self) -> None:  # noqa: B027
        """Called by `run()` at its end, even after an error."""

    def run(self, splits: Sequence[str] = ("train", "val")) -> None:
        """Writes files until SIGINT, SIGTERM or `stop()`; ends between two batches.

        A second signal interrupts at once. Signals are handled in the main thread only.
        """
        if isinstance(splits, str) or not splits:
            raise ConfigError(f"splits is {splits!r}, must be a list of names like ('train', 'val')")
        try:
            with self._stop.at_signals(), contextlib.ExitStack() as held:
                self.ensure_dirs(splits)
                for split in splits:
                    lock = QueueLock(self._layout.state(split, "provider.lock"), "provider")
                    held.callback(lock.release)
                self.write_meta(self._built_meta())
                for split in splits:
                    self._numbering(split).recover()
                self.on_start()
                held.callback(self.on_stop)
                self._produce(splits)
        finally:
            self._stop.reset()
        _log.info("the provider of %s stopped", self.data_dir)

    def _produce(self, splits: Sequence[str]) -> None:
        try:
            while not self._stop.is_asked:
                if not sum([self._top_up(split) for split in splits]):
                    _log.debug("every split is full")
                    self._stop.wait(self.sleep_seconds)
        except _StopError:
            _log.debug("stopped in the middle of a file, which the next run makes again")

    def stop(self) -> None:
        """Ends the current or else the next `run()`; may be called from any thread or signal handler."""
        self._stop.ask()

    def produce_one_file(self, split: str, seq: int) -> Path:
        """Makes file `seq` of a split and returns its path. Files made later are read after it."""
        batches = self._draw(split, seq)
        rows = self.batches_per_file * self.batch_size
        numbering = self._numbering(split)
        name = numbering.name(seq, self.batches_per_file, time.time_ns() // 1_000_000)
        self.ensure_dirs((split,))
        tensors: Tensors = {}
        for number, batch in enumerate(batches):
            for field, tensor in batch.items():
                if field not in tensors:
                    tensors[field] = torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype)
                tensors[field][number * self.batch_size : (number + 1) * self.batch_size] = tensor
        metadata = {
            "batch_size": self.batch_size,
            "num_batches": self.batches_per_file,
            "file_idx": seq,
            "split": split,
            "produced_at": name.timestamp,
            "schema": self._schema,
        }
        with synced(self._layout.files(split) / name.temporary) as file:
            save(file, {"metadata": metadata, "tensors": tensors})
        final = numbering.publish(name)
        _log.info("%s: wrote %s, %d batches of %d", split, final.name, self.batches_per_file, self.batch_size)
        return final

    def backlog_size(self, split: str) -> int:
        """The number of unread files, including the current one, without files held for the consumer's next state."""
        names = set(list_files(self._layout.files(split)))
        if names:
            state = read_state(self._layout.state(split, "consumer.json"), is_record) or {}
            names -= set(state.get("held", ()))
        return len(names)

    def ensure_dirs(self, splits: Sequence[str] = ("train", "val")) -> None:
        """Creates the folders of the queue."""
        for split in splits:
            self._layout.files(split).mkdir(parents=True, exist_ok=True)
            self._layout.state(split, "x").parent.mkdir(exist_ok=True)

    def write_meta(self, meta: Mapping[str, Any] | None = None) -> None:
        """Writes `meta.pkl` and `meta.json`, or checks that existing files agree with this provider.

        `meta` becomes the provider's meta; by default the result of `build_meta`, which `run()` passes too.
        """
        if meta is not None and meta is not self._meta:
            self._take_meta(dict(meta))
        meta = self._built_meta()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if metas.write_meta(self.data_dir, meta, replace=False):
            return
        if differing := metas.differences(metas.read_meta(self.data_dir), meta):
            raise ConfigError(
                f"{self.data_dir / 'meta.pkl'} differs from this provider in {metas.few(differing, ', ')}: use another "
                "data_dir, the earlier settings, or purge() the queue"
            )

    def load_meta_if_exists(self) -> dict[str, Any] | None:
        """The content of `meta.pkl`, or None if there is none."""
        return metas.read_meta(self.data_dir) if (self.data_dir / "meta.pkl").exists() else None

    def validate_meta(self, meta: dict[str, Any]) -> None:
        """Raises `ConfigError` if keys are missing or wrong, or differ from this provider's parameters."""
        metas.check_meta(meta)
        settings = {"batch_size": self.batch_size, "block_size": self.block_size, "target_size": self.target_size}
        given = {key: value for key, value in settings.items() if value is not None}
        if differing := metas.differences({key: meta[key] for key in given if key in meta}, given):
            raise ConfigError(f"meta differs from the provider's parameters in {metas.few(differing, ', ')}")

    def purge(self) -> None:
        """Removes all files of the queue, of all splits and ranks, and meta: the next run begins with file 0.

        Files that were not made by a provider or consumer stay, and are logged. Raises `StateError` while a
        provider or a consumer runs.
        """
        with contextlib.ExitStack() as held:
            locks = [held.enter_context(QueueLock(path, "provider or consumer")) for path in self._layout.locks()]
            left = self._layout.remove_files()
            for name in ("meta.pkl", "meta.json"):
                path = self.data_dir / name
                is_foreign = what_is(path) is not None and not metas.is_ours(self.data_dir, name)
                for one in (*temporaries(path), *(() if is_foreign else (path,))):
                    patiently(lambda one=one: one.unlink(missing_ok=True))  # type: ignore[misc]
                left += [path] if is_foreign else []
            self._backlogs.clear()
            self._numberings.clear()
            for lock in locks:
                lock.remove()
            self._layout.remove_folders()
        if left:
            _log.warning("purge leaves %s, which are not files of the queue", metas.few(left, ", "))

    def rng(self, split: str, seq: int) -> torch.Generator:
        """The generator from which the batches of file `seq` are drawn in order."""
        return file_rng(self.seed, self._layout.name(split), seq)

    def sample_file(self, split: str, seq: int) -> Iterator[Tensors]:
        """Yields the batches of file `seq`, each checked against `batch_schema`."""
        self._built_meta()
        rng = self.rng(split, seq)
        for number in range(self.batches_per_file):
            batch = self.sample_batch(split, rng)
            self._check(batch, f"batch {number} of file {seq} of {split}")
            yield batch

    def _draw(self, split: str, seq: int) -> Iterator[Tensors]:
        for batch in self.sample_file(split, seq):
            if self._stop.is_asked:
                raise _StopError
            yield batch

    def _check(self, batch: Any, which: str) -> None:
        if not isinstance(batch, dict):
            raise ConfigError(f"{which} is a {type(batch).__name__}, must be a dict of tensors")
        wrong = [
            f"{name!r} is a {type(tensor).__name__}, must be a tensor"
            for name, tensor in batch.items()
            if not isinstance(tensor, torch.Tensor)
        ]
        if not wrong:
            found = {name: (describe(name, tensor)["dtype"], list(tensor.shape)) for name, tensor in batch.items()}
            expected = {field["name"]: (field["dtype"], [self.batch_size, *field["shape"]]) for field in self._schema}
            wrong = metas.compare(found, expected)
        if wrong:
            raise ConfigError(f"{which} does not match batch_schema: {'; '.join(wrong)}")

    def _built_meta(self) -> metas.Meta:
        if self._meta is None:
            self._take_meta(self.build_meta())
        assert self._meta is not None
        return self._meta

    def _take_meta(self, meta: metas.Meta) -> None:
        self.validate_meta(meta)
        self._meta, self._schema = meta, metas.normal(meta["batch_schema"])

    def _top_up(self, split: str) -> bool:
        """Makes one file if the backlog allows it; returns whether it did."""
        backlog = self.backlog_size(split)
        if backlog != self._backlogs.get(split, 0):
            _log.info("%s: backlog is %d files, was %d", split, backlog, self._backlogs.get(split, 0))
            self._backlogs[split] = backlog
        if backlog >= self.max_backlog_files or self._stop.is_asked:
            return False
        self.produce_one_file(split, self._numbering(split).next())
        return True

    def _numbering(self, split: str) -> Numbering:
        if split not in self._numberings:
            self._numberings[split] = Numbering(self._layout, split)
        return self._numberings[split]
