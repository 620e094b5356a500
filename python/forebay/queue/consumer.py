"""The training side: hands out the batches of a queue, one file after the other, and removes what was consumed.

The trainer's thread takes slices of a file in memory, and renames at a file's end. Reading, removing and notes on the
disk are up to the thread of `Ahead`.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch

from forebay._checks import as_path, truth, whole
from forebay._core import ConfigError, ForebayError, StateError
from forebay.queue import meta as metas
from forebay.queue.ahead import Ahead
from forebay.queue.feed import Loaded, QueueFeed
from forebay.queue.files import Layout, list_files
from forebay.queue.legacy import LegacyFeed, legacy_schema, list_legacy_files
from forebay.queue.lock import QueueLock
from forebay.queue.split import Removal, Split, Watermarks
from forebay.queue.tensors import CorruptFileError
from forebay.queue.waiting import wait_until

_log = logging.getLogger("forebay.queue")

_KIND = "forebay.queue.DatasetConsumer"


class DatasetConsumer:
    """Hands out the batches that a provider writes into `data_dir`, and removes files when they are consumed.

    For one thread. A queue has one consumer; a second raises `StateError`. Batches are views of a file's tensors, which
    stay in memory as long as one of them is kept. The last batch of a file may be short if the batch size was changed:
    then its own rows are repeated, from its first on.

    With `delete="consumed"` a file goes when the call after its last batch shows that the batch was used; one that was
    interrupted starts again: every batch comes at least once. With `delete="on_state"` files go at the call after a
    `state_dict()` that was taken behind them. Save a state before that call, load the last one after a crash, and every
    batch comes exactly once.

    Parameters
    ----------
    device_type : str
        "cuda" reads files into pinned memory, for copies that the training step overlaps; "cpu" doesn't.
    prefer_queue : bool
        False reads `{split}_batches_*.pt` even if there is a queue; without a queue they are read anyway.
    cache_files : int
        Files of a split in memory ahead of the one being used, at least 1.
    high_watermark, low_watermark : int
        A line is logged when the backlog has reached the one, and next when it has fallen to the other.
    delete : str
        "consumed" or "on_state".
    archive : bool
        Moves consumed files to `archives/` and removes none.
    rank : int, optional
        Reads the queue of this rank, `queue/{split}_rank{rank}`.

    """

    def __init__(
        self,
        data_dir: str | Path,
        device_type: str = "cuda",
        prefer_queue: bool = True,
        cache_files: int = 1,
        high_watermark: int = 2,
        low_watermark: int = 0,
        *,
        delete: Literal["consumed", "on_state"] = "consumed",
        archive: bool = False,
        rank: int | None = None,
    ) -> None:
        self.data_dir = as_path("data_dir", data_dir)
        truth("prefer_queue", prefer_queue)
        truth("archive", archive)
        problems = []
        if device_type not in ("cpu", "cuda"):
            problems.append(f"device_type is {device_type!r}, must be 'cpu' or 'cuda'")
        elif device_type == "cuda" and not torch.cuda.is_available():
            problems.append("device_type is 'cuda', but torch finds no CUDA device: give device_type='cpu'")
        if whole("cache_files", cache_files) < 1:
            problems.append(f"cache_files is {cache_files}, must be at least 1")
        if not 0 <= whole("low_watermark", low_watermark) < whole("high_watermark", high_watermark):
            problems.append(
                f"low_watermark is {low_watermark} and high_watermark {high_watermark}, must be 0 <= low < high"
            )
        if delete not in ("consumed", "on_state"):
            problems.append(f"delete is {delete!r}, must be 'consumed' or 'on_state'")
        if problems:
            raise ConfigError("; ".join(problems))
        self._layout = Layout(self.data_dir, rank)
        self._meta = metas.read_meta(self.data_dir)
        has_legacy = bool(list_legacy_files(self.data_dir))
        self._legacy = not prefer_queue or (has_legacy and not self._layout.queue.exists())
        if self._legacy and not has_legacy:
            raise ConfigError(f"{self.data_dir} has no files {{split}}_batches_*.pt: give prefer_queue=True")
        if self._legacy:
            if rank is not None:
                raise ConfigError(f"rank is {rank}, but files {{split}}_batches_*.pt are not divided among ranks")
            if "vocab_size" not in self._meta:
                raise ConfigError(f"{self.data_dir / 'meta.pkl'} lacks vocab_size")
        else:
            metas.check_meta(self._meta)
        self._pin = device_type == "cuda"
        self._device_type = device_type
        self._cache_files = cache_files
        self._watermarks = (low_watermark, high_watermark)
        self._on_state = delete == "on_state"
        self._archive = archive
        self._batch_size: int | None = self._meta.get("batch_size")
        self._warned: set[tuple[int, int]] = set()
        self._splits: dict[str, Split] = {}
        self._devices: dict[Any, Any] = {}
        self._process = os.getpid()
        self._closed = False

    @property
    def meta(self) -> dict[str, Any]:
        """What the provider says about the data: the content of `meta.pkl`."""
        return self._meta

    def schema(self, split: str) -> list[dict[str, Any]]:
        """The fields of a batch: name, dtype, shape without the batch axis, perhaps role."""
        if self._legacy:
            return legacy_schema(self.data_dir, split)
        self._layout.name(split)
        return metas.normal(self._meta["batch_schema"])

    def get_batch(self, split: str, device: Any, timeout: float | None = None) -> Any:
        """The next batch on a device: a tuple (x, y) if these are the fields, else a dict of tensors.

        Waits for the provider; after `timeout` seconds without a file raises `TimeoutError`.
        """
        state = self._splits.get(split) or self._open(split)
        number = state.number
        if number >= state.end or state.covered or self._process != os.getpid():
            self._advance(state, timeout)
            number = state.number
        batch = state.batches[number]
        if (target := self._devices.get(device, self)) is self:
            target = self._devices[device] = self._checked(device)
        if target is not None:
            batch = _moved(batch, target)
        # Ctrl-C is raised where a call returns. From here on there is none: a batch is handed over, or comes next.
        state.number = number + 1
        return batch

    def wait_for_data(self, split: str, timeout: float | None = None) -> bool:
        """Waits until there is something for `get_batch`; False if that takes longer than `timeout` seconds."""
        state = self._splits.get(split)
        if self._legacy or (state and state.number < state.end):
            return True
        done = {*state.done, state.file.name if state.file else ""} if state else set()
        folder = self._layout.files(split)
        return wait_until(lambda: any(name not in done for name in list_files(folder)), timeout)

    def set_batch_size(self, new_bs: int) -> None:
        """Changes the batch size from the next batch on; warns if files are made for another."""
        if not isinstance(new_bs, int) or isinstance(new_bs, bool) or new_bs < 1:
            raise ConfigError(f"new_bs is {new_bs!r}, must be a number above 0")
        made = self._meta.get("batch_size", new_bs)
        if new_bs != made:
            _log.warning(
                "batch size %d is not the %d that the provider makes: a file's last batch may repeat rows", new_bs, made
            )
            self._warned.add((new_bs, made))
        self._batch_size = new_bs
        for state in self._splits.values():
            state.ahead.feed.batch_size = new_bs
            if state.file and state.number < state.end:
                self._cut(state, state.file, state.row())

    def reset_state(self, split: str | None = None) -> None:
        """Forgets what was read: the next batch is the first of the oldest file. For one split, or for all."""
        for name in [split] if split is not None else list(self._splits):
            if name in self._splits:
                self._restart(name, None)

    def stats(self) -> dict[str, dict[str, Any]]:
        """By split: counters since the start, the backlog in files, and the current file and batch."""
        return {name: state.stats() for name, state in self._splits.items()}

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer stands, as a dict that JSON can hold: behind the last batch that was returned.

        With `delete="on_state"` save it before the next `get_batch`, which removes the files that it no longer needs.
        """
        splits = {}
        for name, state in self._splits.items():
            file, done, finished = state.file, list(state.done), state.finished
            if file and state.number >= state.end and not self._legacy:
                done, finished, file = [*done, file.name], finished + 1, None
            splits[name] = {
                "file": file.name if file else None,
                "row": state.row() if file else 0,
                "done": done,
                "finished": finished,
            }
            if self._on_state:
                state.covered = set(done)
        return {**self._identity(), "batch_size": self._batch_size, "splits": splits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on behind the last batch that the consumer of `state` returned.

        Raises `StateError` if a file that this needs is gone, or the state is not one of this queue.
        """
        expected = self._identity()
        if wrong := [
            f"{key} is {state.get(key)!r}, here {mine!r}" for key, mine in expected.items() if state.get(key) != mine
        ]:
            raise StateError(f"the state is not one of this consumer: {'; '.join(wrong)}")
        batch_size, splits = state.get("batch_size"), state.get("splits")
        if not (batch_size is None or (isinstance(batch_size, int) and batch_size > 0)) or not isinstance(splits, dict):
            raise StateError("the state is damaged: it has no batch_size or splits")
        for place in splits.values():
            _check_place(place)
        self._batch_size = batch_size
        for name in {*self._splits, *splits}:
            self._restart(name, splits.get(name))

    def close(self) -> None:
        """Ends the threads and lets go of the queue. Removes nothing: the last batch may not have been used."""
        self._closed = True
        for state in self._splits.values():
            state.ahead.stop()
        for state in self._splits.values():
            state.ahead.join()
            state.leave()
        self._splits.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        for state in getattr(self, "_splits", {}).values():
            state.ahead.stop()

    def __repr__(self) -> str:
        kind = "legacy files" if self._legacy else "queue"
        return f"<forebay.queue.DatasetConsumer: {kind} in {self.data_dir}{', closed' if self._closed else ''}>"

    def _identity(self) -> dict[str, Any]:
        name = self._meta.get("dataset_name")
        return {"version": 1, "kind": _KIND, "dataset_name": name, "rank": self._layout.rank, "legacy": self._legacy}

    def _checked(self, device: Any) -> Any:
        """The device to copy to, or None for the CPU."""
        found = torch.device(device)
        if found.type not in ("cpu", self._device_type):
            raise ConfigError(f"device is {device}, but device_type is {self._device_type!r}: give device_type='cuda'")
        return None if found.type == "cpu" else found

    def _open(self, split: str) -> Split:
        """A split that wasn't read before, at its beginning."""
        self._restart(split, None)
        return self._splits[split]

    def _restart(self, name: str, place: Mapping[str, Any] | None) -> None:
        """A split at its beginning, or where a state has it."""
        if self._closed:
            raise ForebayError("this consumer is closed")
        if before := self._splits.pop(name, None):
            before.ahead.stop()
            before.ahead.join()
        lock = before.lock if before else self._locked(name)
        state = Split(name, lock, self._layout, self._on_state, self._archive)
        try:
            self._start(state, place)
            self._splits[name] = state
        except BaseException:
            state.leave()
            raise

    def _locked(self, split: str) -> QueueLock | None:
        if self._legacy:
            return None
        folder = self._layout.files(split)
        if not folder.exists() and self._layout.rank is None and any(folder.parent.glob(f"{split}_rank*")):
            raise ConfigError(f"{folder.parent} is divided among ranks: give rank=")
        return QueueLock(self._layout.state(split, "consumer.lock"), "consumer")

    def _start(self, state: Split, place: Mapping[str, Any] | None) -> None:
        name = state.name
        feed: LegacyFeed | QueueFeed
        if self._legacy:
            feed, folder = LegacyFeed(self.data_dir, name, self._pin), self.data_dir
        else:
            state.recall(place)
            feed, folder = QueueFeed(self._layout, name, self.schema(name), state.done, self._pin), state.folder
            feed.watch = Watermarks(name, *self._watermarks)
            state.feed = feed
        feed.batch_size = self._batch_size
        file = None
        if place and place["file"]:
            file = self._needed(feed, place["file"], folder)
            if place["row"] > file.rows:
                raise StateError(f"the state stands at row {place['row']} of {file.name}, which has {file.rows}")
            self._cut(state, file, place["row"])
            _log.info("%s: goes on in %s at row %d", name, file.name, place["row"])
        if isinstance(feed, LegacyFeed):
            feed.after = file.name if file else None
        else:
            feed.taken = {*state.done, *([file.name] if file else ())}
        state.ahead = Ahead(feed, self._cache_files, name)
        state.ahead.start()
        if not self._legacy:
            state.ahead.do(state.note)
            for gone in state.left_behind():
                state.ahead.do(gone)

    def _needed(self, feed: QueueFeed | LegacyFeed, name: str, folder: Path) -> Loaded:
        try:
            return feed.load(name)
        except (FileNotFoundError, CorruptFileError) as error:
            why = "is gone" if isinstance(error, FileNotFoundError) else f"is corrupt: {error}"
            raise StateError(
                f"the state stands in {folder / name}, which {why}. It was consumed after this state was taken, or "
                "removed; load a later state, and use delete='on_state' to keep files until one exists"
            ) from error

    def _cut(self, state: Split, file: Loaded, row: int) -> None:
        """Makes a file the current one, from a row on."""
        if self._batch_size is None:
            if file.batch_size is None:
                raise ConfigError(f"neither meta.pkl nor {file.name} has batch_size: call set_batch_size()")
            self._batch_size = file.batch_size
        pair = (self._batch_size, file.batch_size or self._batch_size)
        if pair[0] != pair[1] and pair not in self._warned:
            self._warned.add(pair)
            _log.warning("%s: %s has batches of %d, the batch size is %d", state.name, file.name, pair[1], pair[0])
        state.begin(file, row, self._batch_size)

    def _advance(self, state: Split, timeout: float | None) -> None:
        """Leaves a file that is through, removes what may go, and takes the next file if there is need."""
        if self._process != os.getpid():
            raise ForebayError("this consumer was made before a fork: make one in each process, with rank=")
        through = state.number >= state.end
        if through:
            state.ahead.drop(state.file)  # if Ctrl-C came before that was done
        if through and not self._legacy:
            state.finish()
            if self._on_state:
                state.ahead.do(state.note)  # that it is no backlog, for which the provider may be waiting
            else:
                state.covered.update(state.done)
        if state.covered:
            self._release(state)
        if not through:
            return
        try:
            file = state.ahead.first(timeout)
        except TimeoutError:
            raise TimeoutError(
                f"no file in {self._layout.files(state.name)} for {timeout} s: does its provider run?"
            ) from None
        self._cut(state, file, 0)
        state.ahead.drop(file)
        state.files += 1
        if file.name in state.interrupted:
            state.interrupted.discard(file.name)
            _log.warning("%s: %s was interrupted before, and starts again from its first batch", state.name, file.name)
        _log.info("%s: opened %s, %d rows", state.name, file.name, file.rows)
        if not self._legacy:
            state.ahead.do(state.note)

    def _release(self, state: Split) -> None:
        """Removes files, or moves them to the archive."""
        names, state.covered = sorted(state.covered), set()
        if self._on_state:
            state.note(leaving=names)  # so that an older state is not loaded, whatever comes next
        for name in names:
            state.remove(Removal(state, name, keep=self._archive))


def _moved(batch: Any, device: Any) -> Any:
    """A batch on another device; copies out of pinned memory are waited for by what uses them, not here."""
    if isinstance(batch, tuple):
        return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def _check_place(place: Any) -> None:
    """Raises `StateError` unless this is what `state_dict` says of a split."""
    right = (
        isinstance(place, dict)
        and {"file", "row", "done", "finished"} <= place.keys()
        and all(isinstance(place[key], int) and place[key] >= 0 for key in ("row", "finished"))
        and isinstance(place["done"], list)
        and all(isinstance(name, str) and "/" not in name and "\\" not in name for name in place["done"])
        and (place["file"] is None or (isinstance(place["file"], str) and place["file"].endswith(".pt")))
        and not any(sign in (place["file"] or "") for sign in "/\\:")
    )
    if not right:
        raise StateError(f"the state is damaged: it says {place!r} of a split")
