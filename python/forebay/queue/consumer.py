"""The training side of a queue: returns the batches of one file after the other, and removes consumed files.

The trainer's thread takes slices of a file in memory, and renames at a file's end. The thread of `Ahead`
reads and removes files, and writes the records on disk. `Split` has the position in a split.
"""

import contextlib
import copy
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch

from forebay._checks import MOST, as_place, check_identity, is_count, problems, shown, truth, whole
from forebay._core import ConfigError, ForebayError, StateError
from forebay.queue import meta as metas
from forebay.queue.feed import Loaded, QueueFeed, Watermarks
from forebay.queue.files import FileName, Layout
from forebay.queue.legacy import LegacyFeed, legacy_schema, list_legacy_files, split_of
from forebay.queue.lock import QueueLock
from forebay.queue.queue_split import QueueSplit
from forebay.queue.split import Place, Split, check_place

_log = logging.getLogger("forebay.queue")

_KIND = "forebay.queue.DatasetConsumer"
_MOST_GROWTH = 1024
"""The most by which a state's batch size may exceed that of meta, since it determines memory use."""


class DatasetConsumer:
    """Loads the batches that a provider writes into `data_dir`, and removes consumed files.

    For use by one thread. A queue has one consumer; a second consumer raises `StateError`. Batches are views
    of a file's tensors, which stay in memory as long as one of them is kept. If the batch size was changed,
    the last batch of a file may be short; it is filled by repeating its rows from the first.

    With `delete="consumed"` a file is removed at the call after its last batch, when this batch has been
    used. An interrupted file starts again: every batch is returned at least once. With `delete="on_state"`
    files are removed at the call after a `state_dict()` that was taken after them. Save a state before that
    call and load the last state after a crash: then every batch is returned exactly once.

    Parameters
    ----------
    device_type : str or torch.device
        The device of batches, such as "cuda", "cuda:1" or "cpu". For CUDA, files are read into pinned memory, so
        that copies overlap with the training step.
    prefer_queue : bool
        False: reads `{split}_batches_*.pt` even if there is a queue. Without a queue they are always read.
    cache_files : int
        Files of a split that are read ahead into memory, at least 1.
    high_watermark, low_watermark : int
        Backlogs in files. A line is logged when the backlog rises to the first, and when it then falls to the
        second.
    delete : str
        "consumed" or "on_state", as above.
    archive : bool
        Moves consumed files to `archives/` instead of removing them.
    rank : int, optional
        Reads the queue of this rank, `queue/{split}_rank{rank}`.

    """

    def __init__(
        self,
        data_dir: str | Path,
        device_type: Any = "cuda",
        prefer_queue: bool = True,
        cache_files: int = 1,
        high_watermark: int = 2,
        low_watermark: int = 0,
        *,
        delete: Literal["consumed", "on_state"] = "consumed",
        archive: bool = False,
        rank: int | None = None,
    ) -> None:
        self.data_dir = as_place("data_dir", data_dir).absolute()
        truth("prefer_queue", prefer_queue)
        truth("archive", archive)
        wrong = problems(cache_files=(cache_files, 1, MOST))
        device = _device(device_type)
        if device is None:
            wrong.append(f"device_type is {device_type!r}, must be 'cpu', 'cuda' or a CUDA device such as 'cuda:1'")
        elif device.type == "cuda" and not torch.cuda.is_available():
            wrong.append(f"device_type is {str(device)!r}, but torch finds no CUDA device: pass device_type='cpu'")
        if not 0 <= whole("low_watermark", low_watermark) < whole("high_watermark", high_watermark):
            wrong.append(
                f"low_watermark is {low_watermark} and high_watermark {high_watermark}, must be 0 <= low < high"
            )
        if delete not in ("consumed", "on_state"):
            wrong.append(f"delete is {delete!r}, must be 'consumed' or 'on_state'")
        if wrong:
            raise ConfigError("; ".join(wrong))
        self._layout = Layout(self.data_dir, rank)
        self._meta = metas.read_meta(self.data_dir)
        has_legacy = bool(list_legacy_files(self.data_dir))
        self._legacy = not prefer_queue or (has_legacy and not self._layout.queue.exists())
        if self._legacy and not has_legacy:
            raise ConfigError(f"{self.data_dir} has no files {{split}}_batches_*.pt: pass prefer_queue=True")
        if self._legacy:
            if rank is not None:
                raise ConfigError(f"rank is {rank}, but files {{split}}_batches_*.pt are not divided among ranks")
            if "vocab_size" not in self._meta:
                raise ConfigError(f"{self.data_dir / 'meta.pkl'} lacks vocab_size")
        else:
            metas.check_meta(self._meta)
        assert device is not None
        self._pin = device.type == "cuda"
        self._device = device
        self._cache_files = cache_files
        self._watermarks = (low_watermark, high_watermark)
        self._on_state = delete == "on_state"
        self._archive = archive
        self._batch_size: int | None = self._meta.get("batch_size")
        self._warned: set[tuple[int, int]] = set()
        self._splits: dict[str, Split] = {}
        self._locks: dict[str, QueueLock] = {}
        self._devices: dict[Any, Any] = {}
        self._process = os.getpid()
        self._closed = False
        self._is_moving = False

    @property
    def meta(self) -> dict[str, Any]:
        """The provider's description of the data: the content of `meta.pkl`, as a copy that may be modified."""
        return copy.deepcopy(self._meta)

    def schema(self, split: str) -> list[dict[str, Any]]:
        """The fields of a batch: name, dtype, shape without the batch axis, and optionally role."""
        if self._legacy:
            return legacy_schema(self.data_dir, split)
        self._layout.name(split)
        return metas.normal(self._meta["batch_schema"])

    def get_batch(self, split: str, device: Any = None, timeout: float | None = None) -> Any:
        """Returns the next batch: a tuple (x, y) if these are the fields, else a dict of tensors.

        `device` is another device than the consumer's, for this batch. Waits for the provider; raises
        `TimeoutError` after `timeout` seconds without a file, and `ConfigError` at once if the data has no such
        split.
        """
        while True:
            at = self._splits.get(split) or self._open(split)
            if at.number >= at.end or at.covered or self._process != os.getpid():
                self._advance(at, timeout)
            turn, number, batches = at.turn, at.number, at.batches
            if number >= len(batches):
                continue
            batch = batches[number]
            if (target := self._devices.get(device, self)) is self:
                target = self._devices[device] = self._checked(device)
            if target is not None:
                batch = _moved(batch, target)
            # Ctrl-C is raised, and a signal handler called, only where a call returns, and no call follows. So a
            # batch is either returned or next, and a handler that took it has done so before.
            if at.turn == turn and at.number == number:
                at.number = number + 1
                return batch

    def wait_for_data(self, split: str, timeout: float | None = None) -> bool:
        """Waits until `get_batch` would not wait; returns False after `timeout` seconds.

        Raises the same errors as `get_batch`.
        """
        at = self._splits.get(split) or self._open(split)
        if at.number < at.end:
            return True
        at.ahead.drop(at.file)
        return at.ahead.first(timeout) is not None

    def set_batch_size(self, new_bs: int) -> None:
        """Changes the batch size from the next batch on; warns if files have another batch size."""
        if not isinstance(new_bs, int) or isinstance(new_bs, bool) or new_bs < 1:
            raise ConfigError(f"new_bs is {new_bs!r}, must be a number above 0")
        made = self._meta.get("batch_size", new_bs)
        if new_bs != made:
            _log.warning(
                "batch size %d is not the %d that the provider makes: a file's last batch may repeat rows", new_bs, made
            )
            self._warned.add((new_bs, made))
        self._batch_size = new_bs
        for at in self._splits.values():
            at.feed.batch_size = new_bs
            if at.file and at.number < at.end:
                self._cut(at, at.file, at.row())

    def reset_state(self, split: str | None = None) -> None:
        """Resets one split or all splits: the next batch is the first of the oldest file."""
        names = [split] if split is not None else list(self._splits)
        if places := {name: None for name in names if name in self._splits}:
            self._move(places, self._batch_size)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Returns counts by split: `batches`, `files`, `quarantined`, `backlog`, `held`, `file` and `batch`.

        The first three count from the start; `backlog` and `held` are numbers of files now. Held files were
        consumed, and are kept until a state is taken. `batch` is the number of batches taken from the current
        `file`.
        """
        return {name: at.stats() for name, at in self._splits.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last returned batch, as a dict that JSON can hold.

        With `delete="on_state"`, save the state before the next `get_batch`, which removes files that the
        state no longer needs.
        """
        places = {name: at.place() for name, at in self._splits.items()}
        for name, place in places.items():
            self._splits[name].cover(place)
        return {**self._identity(), "batch_size": self._batch_size, "splits": places}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes after the last batch that the consumer of `state` returned.

        Raises `StateError` if a needed file is gone, or if the state is not of this queue. The consumer's
        position then does not change.
        """
        check_identity(state, self._identity(), "consumer")
        batch_size, splits = state.get("batch_size"), state.get("splits")
        if not (batch_size is None or (is_count(batch_size, MOST) and batch_size > 0)) or not isinstance(splits, dict):
            raise StateError("the state is damaged: it has no batch_size or splits")
        known = self._known_splits()
        for name, place in splits.items():
            if not isinstance(name, str) or name not in known:
                raise StateError(
                    f"the state names a split {shown(name)}, which {self.data_dir} does not have; it has "
                    f"{metas.few(sorted(known), ', ') or 'none'}"
                )
            check_place(place, lambda file, name=name: self._is_file(file, name))  # type: ignore[misc]
        self._check_batch_size(batch_size, any(place["file"] is not None for place in splits.values()))
        self._move({name: splits.get(name) for name in {*self._splits, *splits}}, batch_size)

    def close(self) -> None:
        """Ends the threads and releases the queue. Removes no file, since the last batch may not have been used."""
        self._closed = True
        for at in self._splits.values():
            at.ahead.stop()
        for at in self._splits.values():
            at.ahead.join()
        for lock in self._locks.values():
            lock.release()
        self._splits.clear()
        self._locks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        for at in getattr(self, "_splits", {}).values():
            at.ahead.stop()

    def __repr__(self) -> str:
        kind = "legacy files" if self._legacy else "queue"
        return f"<forebay.queue.DatasetConsumer: {kind} in {self.data_dir}{', closed' if self._closed else ''}>"

    def _identity(self) -> dict[str, Any]:
        name = self._meta.get("dataset_name")
        return {"version": 1, "kind": _KIND, "dataset_name": name, "rank": self._layout.rank, "legacy": self._legacy}

    def _checked(self, device: Any) -> Any:
        """The device to copy to, or None for the CPU."""
        found = self._device if device is None else _device(device)
        if found is None or found.type not in ("cpu", self._device.type):
            raise ConfigError(
                f"device is {device!r}, but the consumer's device_type is {str(self._device)!r}: leave device out, or "
                f"make the consumer for it, DatasetConsumer(data_dir, {str(device)!r})"
            )
        return None if found.type == "cpu" else found

    def _known_splits(self) -> set[str]:
        """The splits in meta, and those that have files or are open."""
        if self._legacy:
            return {split for name in list_legacy_files(self.data_dir) if (split := split_of(name))}
        known = {*self._splits, *(name for name in self._meta["split_info"] if isinstance(name, str))}
        folders = self._layout.queue.glob("*") if self._layout.queue.is_dir() else ()
        end = "" if self._layout.rank is None else f"_rank{self._layout.rank}"
        known |= {path.name.removesuffix(end) for path in folders if path.name.endswith(end) and path.is_dir()}
        return {name for name in known if self._layout.can_name(name)}

    def _is_file(self, name: str, split: str) -> bool:
        """Whether a file of the split can have this name."""
        return split_of(name) == split if self._legacy else FileName.parse(name) is not None

    def _check_batch_size(self, batch_size: int | None, has_files: bool) -> None:
        """Raises `StateError` for a missing or an unreasonably large batch size in a state."""
        made = self._meta.get("batch_size")
        if batch_size is None and (made is not None or has_files):
            raise StateError("the state is damaged: it has no batch_size")
        most = max(_MOST_GROWTH * (made or 1), self._batch_size or 1)
        if batch_size is not None and batch_size > most:
            raise StateError(
                f"the batch_size of the state is {batch_size}, above {most}, which is {_MOST_GROWTH} times that of "
                "meta.pkl; if it is intended, call set_batch_size() with it first"
            )

    def _open(self, split: str) -> Split:
        """Opens a split at its beginning."""
        self._layout.name(split)
        known = self._known_splits()
        # A queue whose meta names no split may get any.
        if (self._legacy or self._meta["split_info"]) and split not in known:
            raise ConfigError(
                f"split is {split!r}, which {self.data_dir} does not have; it has {metas.few(sorted(known), ', ')}"
            )
        self._move({split: None}, self._batch_size)
        return self._splits[split]

    def _move(self, places: Mapping[str, Place | None], batch_size: int | None) -> None:
        """Moves splits to their beginnings, or to the places of a state: all of them, or none after an error.

        The previous threads are paused meanwhile, since their later notes and removals would be for the old
        places.
        """
        if self._closed:
            raise ForebayError("this consumer is closed")
        if self._is_moving:
            raise ForebayError(
                "another call of this consumer, in a signal handler or another thread, opens or moves a split now: use "
                "a consumer in one thread, and let a handler set a flag and move the consumer after the call"
            )
        self._is_moving = True
        try:
            self._move_all(places, batch_size)
        finally:
            self._is_moving = False

    def _move_all(self, places: Mapping[str, Place | None], batch_size: int | None) -> None:
        moved: dict[str, Split] = {}
        locked = set(self._locks)
        before = [self._splits[name] for name in places if name in self._splits]
        with contextlib.ExitStack() as halts:
            halted = [halts.enter_context(at.ahead.halted()) for at in before]
            try:
                for name, place in places.items():
                    moved[name] = at = self._legacy_split(name) if self._legacy else self._queue_split(name)
                    at.feed.batch_size = batch_size
                    if file := at.resume(place):
                        self._cut(at, file, place["row"] if place else 0, batch_size)
                for at in moved.values():
                    at.start()
                if self._closed:
                    raise ForebayError("this consumer was closed meanwhile, by a signal handler or another thread")
            except BaseException:
                for at in moved.values():
                    at.ahead.stop()
                for name in self._locks.keys() - locked:
                    self._locks.pop(name).release()
                raise
            for halt in halted:
                halt.end()
            self._splits.update(moved)
            self._batch_size = batch_size
        for at in before:
            at.ahead.join()

    def _legacy_split(self, name: str) -> Split:
        return Split(name, LegacyFeed(self.data_dir, name, self._pin), self._cache_files)

    def _queue_split(self, name: str) -> Split:
        if differing := metas.differences(metas.read_meta(self.data_dir), self._meta):
            raise ConfigError(
                f"{self.data_dir / 'meta.pkl'} has changed since this consumer was made, in "
                f"{metas.few(differing, ', ')}: make a new one"
            )
        folder = self._layout.files(name)
        if not folder.exists() and self._layout.rank is None and any(folder.parent.glob(f"{name}_rank*")):
            raise ConfigError(f"{folder.parent} is divided among ranks: pass rank=")
        if name not in self._locks:
            self._locks[name] = QueueLock(self._layout.state(name, "consumer.lock"), "consumer")
        watermarks = Watermarks(name, *self._watermarks)
        feed = QueueFeed(self._layout, name, self.schema(name), self._pin, watermarks)
        return QueueSplit(name, feed, self._cache_files, self._layout, on_state=self._on_state, archive=self._archive)

    def _cut(self, at: Split, file: Loaded, row: int, batch_size: int | None = None, turn: int | None = None) -> bool:
        """Makes a file the current one, from a row on, in batches of the given or the consumer's size.

        Not if another file was begun after the turn `turn`; returns whether it did.
        """
        turn = at.turn if turn is None else turn
        batch_size = batch_size or self._batch_size
        if batch_size is None:
            if file.batch_size is None:
                raise ConfigError(f"neither meta.pkl nor {file.name} has batch_size: call set_batch_size()")
            batch_size = self._batch_size = file.batch_size
        pair = (batch_size, file.batch_size or batch_size)
        if pair[0] != pair[1] and pair not in self._warned:
            self._warned.add(pair)
            _log.warning("%s: %s has batches of %d, the batch size is %d", at.name, file.name, pair[1], pair[0])
        return at.begin(file, row, batch_size, turn)

    def _advance(self, at: Split, timeout: float | None) -> None:
        """Leaves a consumed file, removes files that may be removed, and takes the next file if necessary.

        If a signal handler has taken a file meanwhile, that file stays the current one.
        """
        if self._process != os.getpid():
            raise ForebayError("this consumer was made before a fork: make one in each process, with rank=")
        turn, through = at.turn, at.number >= at.end
        if through:
            at.finish(turn)
        at.release()
        if not through or at.turn != turn:
            return
        if (file := at.ahead.first(timeout)) is None:
            raise TimeoutError(f"no file in {at.feed.folder} for {timeout} s: is its provider running?")
        if self._cut(at, file, 0, turn=turn):
            at.opened(file)


def _device(device: Any) -> Any:
    """The device, or None if it is neither the CPU nor CUDA."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        return None
    return found if found.type in ("cpu", "cuda") else None


def _moved(batch: Any, device: Any) -> Any:
    """Copies a batch to a device; does not wait for copies from pinned memory."""
    if isinstance(batch, tuple):
        return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
