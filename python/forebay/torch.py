"""PyTorch: batches as tensors, in pinned memory, on a device; a dataset for `DataLoader`; ranks.

>>> import forebay, forebay.torch
>>> ranks = forebay.torch.rank_and_world_size()
>>> loader = forebay.Loader.train(files, **ranks)  # doctest: +SKIP
>>> for batch in forebay.torch.DevicePrefetcher(loader, "cuda"):  # doctest: +SKIP
...     step(batch["spectrogram"], batch["label"])

A loader has its own threads, so this module starts no process and no thread.
"""

import os
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
import torch.distributed
import torch.utils.data

from forebay._checks import MOST, check, truth
from forebay._converted import Converted, Ranks, bfloat16_fields, check_loader, is_finite, resumable
from forebay._core import ConfigError, LoaderBase
from forebay._device import PinnedSlot, checked
from forebay._jagged import JaggedArray
from forebay._token_batches import token_batches

__all__ = [
    "DataLoader",
    "DevicePrefetcher",
    "IterableDataset",
    "Ranks",
    "rank_and_world_size",
    "to_tensors",
    "token_batches",
]

Batch = dict[str, Any]
"""Tensors by field, and whatever is no array as it was."""


def to_tensors(batch: Mapping[str, Any], loader: Any = None) -> Batch:
    """The fields as tensors that share the arrays' memory; other values than arrays of numbers pass unchanged.

    `loader` is the one that made the batch: a spectrogram of `Loader(dtype="bfloat16")`, which numpy holds as
    uint16, becomes a tensor of `torch.bfloat16`. Without it uint16 stays uint16 in every field. A
    `JaggedArray` becomes one of tensors, for `torch.nested.nested_tensor_from_jagged(field.data,
    field.offsets)`.
    """
    bfloat16 = bfloat16_fields(loader)
    return {name: _to_tensor(value, name in bfloat16) for name, value in batch.items()}


def _to_tensor(value: Any, is_bfloat16: bool) -> Any:
    if isinstance(value, JaggedArray):
        return JaggedArray(_to_tensor(value.data, is_bfloat16), torch.from_numpy(value.offsets), value.shapes)
    if not isinstance(value, np.ndarray):
        return value
    # torch does not know ml_dtypes' bfloat16.
    if value.dtype.name == "bfloat16" or is_bfloat16:
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value) if value.dtype.kind in "biufc" else value


def rank_and_world_size(group: Any = None) -> Ranks:
    """The process's rank in `torch.distributed`, for `Loader(files, **rank_and_world_size())`; 0 of 1 without it.

    If the model itself spans several devices, `group` is the process group that shares the data.

    Raises `RuntimeError` if a launcher started several processes that have not joined a group yet, since each
    would train on all data.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        if rank < 0:
            raise RuntimeError("this process is not in the group; pass a group that it shares data with")
        return {"rank": rank, "world_size": world_size}
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1:
        raise RuntimeError(
            f"WORLD_SIZE is {launched} but torch.distributed is not initialised: call init_process_group() first, "
            "or give the loader rank and world_size yourself"
        )
    return {"rank": 0, "world_size": 1}


class IterableDataset(torch.utils.data.IterableDataset[Batch]):  # type: ignore[misc]
    """A loader as a dataset whose items are batches of tensors.

    For `torch.utils.data.DataLoader(dataset, batch_size=None)`, and for `torchdata`'s `StatefulDataLoader`
    likewise: batches are those of the loader, and `num_workers` stays 0. The state is that of the last batch
    returned.

    With `pin_memory=True` each batch is copied into one new block from torch's caching host allocator, for
    copies to a device with `non_blocking=True`; the allocator, not forebay, decides when the block is reused.
    Keeping one field keeps the block. Without CUDA a warning says that memory is not pinned.
    """

    def __init__(self, loader: LoaderBase, *, pin_memory: bool = False) -> None:
        check_loader(loader)
        self.loader = loader
        self.pin_memory = truth("pin_memory", pin_memory) and torch.cuda.is_available()
        if pin_memory and not self.pin_memory:
            warnings.warn("pin_memory=True does nothing: torch finds no CUDA device", stacklevel=2)

    def __iter__(self) -> Iterator[Batch]:
        """Continues an infinite loader; begins the next pass of a finite one, as `iter(loader)` does."""
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            raise ConfigError(
                f"num_workers is {worker.num_workers}, must be 0: the loader decodes in threads of its own, and every "
                "worker process would yield all batches again; use DataLoader(dataset, batch_size=None, num_workers=0) "
                "and Loader(..., n_workers=8)"
            )
        _check_callers(self.loader)
        convert = _pinned if self.pin_memory else to_tensors
        return Converted(lambda batch: convert(batch, self.loader), self.loader)

    def __len__(self) -> int:
        """The number of batches of a pass; `TypeError` if the loader is infinite."""
        return len(self.loader)

    def __bool__(self) -> bool:
        return True

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass that the next `iter()` begins, as `set_epoch` of the loader does."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The loader's."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`."""
        self.loader.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<forebay.torch.IterableDataset: {self.loader!r}>"


class DataLoader(torch.utils.data.DataLoader[Batch]):  # type: ignore[misc]
    """A loader as a `torch.utils.data.DataLoader`, with its position: for training frameworks.

    Lightning, the Trainer of Hugging Face and Accelerate take it as it is and do not wrap, shard, batch or
    collate it again, because the loader returns complete batches, and only those of its rank. Items are
    dicts of tensors, on `device` if it is given; otherwise on the CPU, in pinned memory with
    `pin_memory=True`. `len()` is the number of batches of a pass; it raises `TypeError` if the loader is
    infinite. `state_dict()` is the position after the last batch returned.

    Parameters
    ----------
    loader : Loader, TokenLoader or cache.DataLoader
        Has batch size, order, threads, rank and world size.
    device : torch.device, str or None
        The device that batches are prefetched to, by a `DevicePrefetcher`.
    depth : int
        Batches that are copied to the device ahead.
    pin_memory : bool
        For batches that the framework copies to the device itself.

    """

    def __init__(
        self, loader: LoaderBase, *, device: Any = None, depth: int = 2, pin_memory: bool = False, **unknown: Any
    ) -> None:
        if unknown:
            raise TypeError(
                f"DataLoader() got {', '.join(unknown)}, but takes device, depth and pin_memory only; batch size, order, "
                "number of threads, rank and seed are parameters of the loader, as Loader(files, batch_size=64, "
                "n_workers=8)"
            )
        self.loader = loader
        dataset = IterableDataset(loader, pin_memory=pin_memory and device is None)
        super().__init__(dataset, batch_size=None)
        self._batches: Any = dataset if device is None else DevicePrefetcher(dataset, device, depth)
        # Accelerator.prepare() returns such a loader unchanged. It would otherwise deal rank 0's batches to all ranks.
        self._is_accelerate_prepared = True

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """Continues an infinite loader; begins the next pass of a finite one, as `iter(loader)` does."""
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self.loader)

    def __bool__(self) -> bool:
        return True

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass that the next `iter()` begins, as `set_epoch` of the loader does."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch returned, as `state_dict()` of the loader."""
        state: dict[str, Any] = self._batches.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`."""
        self._batches.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<forebay.torch.DataLoader: {self.loader!r}>"


_FRAMEWORKS = {
    "lightning.pytorch.loops": "Lightning",
    "pytorch_lightning.loops": "Lightning",
}


def _check_callers(loader: LoaderBase) -> None:
    """Finds out what iterates the dataset: raises if batches would be changed, warns if a position would be lost.

    A dataset is given to a `DataLoader` by the user, or by a framework, and hears of neither. It is called from
    their frames.
    """
    found: torch.utils.data.DataLoader[Any] | None = None
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == "forebay.transformers":  # it keeps the position, and neither stacks nor deals out
            return
        owner = frame.f_locals.get("self") if name.startswith(("torch", "accelerate")) else None
        if found is None and isinstance(owner, torch.utils.data.DataLoader):
            found = owner
            if owner.batch_size is not None:
                raise ConfigError(
                    f"batch_size of {type(owner).__name__} is {owner.batch_size}, must be None: the loader returns complete "
                    f"batches, of {loader.batch_size} rows, which would be stacked; use {_remedy(frame)}"
                )
        if type(owner).__name__ in ("DataLoaderDispatcher", "IterableDatasetShard") and loader.world_size > 1:
            raise ConfigError(
                f"{type(owner).__name__} of accelerate would deal the batches of rank {loader.rank} to all ranks, and "
                f"the other ranks' rows would be lost: the loader has world_size {loader.world_size} and returns its rank's "
                "share; use forebay.torch.prepare(accelerator, loader)"
            )
        if name == "transformers.trainer":
            if frame.f_code.co_name != "evaluation_loop":
                warnings.warn(
                    "checkpoints of the Trainer of Hugging Face will not hold the position in the data: a resumed run "
                    f"begins at the first batch; use {_remedy(frame)}",
                    stacklevel=3,
                )
            return
        framework = next((said for module, said in _FRAMEWORKS.items() if name.startswith(module)), None)
        if framework and found is not None and not hasattr(found, "state_dict"):
            warnings.warn(
                f"checkpoints of {framework} will not hold the position in the data: a resumed run begins at the first batch "
                "of the first epoch; replace DataLoader(IterableDataset(loader), batch_size=None) by "
                "forebay.torch.DataLoader(loader)",
                stacklevel=3,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]


def _remedy(frame: Any) -> str:
    """What to use in place of the caller's `DataLoader`."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "transformers.trainer":
            return (
                "forebay.transformers.TrainerMixin, as class MyTrainer(TrainerMixin, Trainer) and "
                "MyTrainer(model, args, train_dataset=loader)"
            )
        frame = frame.f_back
    return "forebay.torch.DataLoader(loader)"


def _pinned(batch: Mapping[str, Any], loader: Any) -> Batch:
    """The batch in pinned memory: one allocation."""
    fields = to_tensors(batch, loader)
    tensors = {name: field for name, field in fields.items() if isinstance(field, torch.Tensor)}
    return fields | PinnedSlot().stage(tensors)


class DevicePrefetcher:
    """Prefetches batches to a device: `depth` are copied, or being copied, while the model works on the last one.

    `batches` is a loader, an `IterableDataset`, a `DataLoader` over one, or any iterable of dicts. Copies run
    on a separate stream, from `depth + 1` pinned slots; a slot is overwritten only after the event of its
    last copy. The current stream waits for the copy of the batch that `next()` returns, so the batch can be
    used and dropped like any tensors. On the CPU batches pass unchanged.

    An iterable with a length is a pass, and iterating again begins a new one; an iterable without a length is
    a stream, and continues. `state_dict()` is that of the last batch returned, not of those prefetched. To
    move a stream, use `load_state_dict` of the prefetcher, not that of the loader. An error is raised after
    all earlier batches. Ctrl-C loses no batch.
    """

    def __init__(self, batches: Iterable[Mapping[str, Any]], device: Any = "cuda", depth: int = 2) -> None:
        if isinstance(batches, str | bytes | os.PathLike | Mapping) or not hasattr(batches, "__iter__"):
            raise TypeError(
                "argument 'batches': a loader, an IterableDataset, a DataLoader or another iterable of dicts is "
                f"expected, not {type(batches).__name__}"
            )
        self._source: Any = batches
        dataset = getattr(batches, "dataset", None)
        # The owner of the state: for a plain DataLoader, the dataset.
        keeps = isinstance(dataset, IterableDataset) and not hasattr(batches, "state_dict")
        self._keeper: Any = dataset if keeps else batches
        self._device = checked(device)
        check(depth=(depth, 1, MOST))
        self._depth = 0
        self._begin: Any = None  # states of the source: where this pass began, and after the last batch returned
        self._state: Any = None
        self._epoch: Any = None  # of this pass, if there is a loader that can be told to begin it again
        if self._device.type == "cuda":
            self._depth = depth
            self._stream = torch.cuda.Stream(self._device)
            self._device = self._stream.device  # with its number
            self._slots = deque(PinnedSlot() for _ in range(depth + 1))
        self._reset()

    def _reset(self) -> None:
        self._iterator: Iterator[Mapping[str, Any]] | None = None
        self._pulled: Mapping[str, Any] | None = None  # kept, should Ctrl-C come while it is copied
        self._ahead: deque[tuple[Batch, Any, Any]] = deque()  # batch, event of its copy, state behind it
        self._end: Exception | None = None

    def __len__(self) -> int:
        """That of `batches`."""
        return len(self._source)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Self:
        """Begins a pass, the same one again if it was left early; a stream continues."""
        if self._iterator is None or is_finite(self._source):
            if self._ahead and self._begin is not None and self._source_state() == self._ahead[-1][2]:
                self._begin_again()  # as the source may be through with a pass that the consumer is not
            self._reset()
            self._iterator = resumable(self._source)
            self._begin = self._state = self._source_state()
            self._epoch = getattr(self._loader(), "epoch", None)
        elif isinstance(loader := self._loader(), LoaderBase):
            iter(loader)  # continues, and counts the iterations, for `set_epoch`
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            iter(self)
        while self._end is None and len(self._ahead) <= self._depth:
            self._pull()
        if not self._ahead:
            assert self._end is not None
            end, self._end = self._end, None  # asked again, the source says it again
            raise end
        batch, copied, state = self._ahead[0]
        if copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(copied)
            for value in batch.values():
                if isinstance(value, torch.Tensor):
                    value.record_stream(stream)  # else its memory could be written again before the model has read it

        # Ctrl-C is raised where a call returns. From here on there is none: a batch is handed over, or still
        # there.
        self._state = state
        del self._ahead[0]
        return batch

    def _pull(self) -> None:
        """Takes one batch from the source and starts its copy."""
        assert self._iterator is not None
        if self._pulled is None:
            try:
                for pulled in self._iterator:
                    self._pulled = pulled
                    break
                else:
                    self._end = StopIteration()
                    return
            except Exception as end:
                self._end = end
                return
        batch, copied = self._copy(to_tensors(self._pulled, self._loader()))
        taken = (batch, copied, self._source_state())
        self._pulled = None  # nothing can come between this and the call
        self._ahead.append(taken)

    def _copy(self, batch: Batch) -> tuple[Batch, Any]:
        """The batch on the device, and the event that marks the end of its copy."""
        if self._device.type == "cpu":
            return batch, None
        tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
        pageable = {name: tensor for name, tensor in tensors.items() if not tensor.is_pinned()}
        slot = self._slots[0]
        staged = tensors | slot.stage(pageable)
        with torch.cuda.stream(self._stream):
            copies = {name: tensor.to(self._device, non_blocking=True) for name, tensor in staged.items()}
        slot.copied = self._stream.record_event()
        self._slots.rotate(-1)
        return batch | copies, slot.copied

    def _source_state(self) -> Any:
        return self._keeper.state_dict() if hasattr(self._keeper, "state_dict") else None

    def _loader(self) -> Any:
        """The underlying loader; or the source, of any kind."""
        dataset = getattr(self._source, "dataset", self._source)
        return getattr(dataset, "loader", dataset)

    def _begin_again(self) -> None:
        """Makes the source repeat this pass, from its first batch on if that is known."""
        if self._epoch is None:
            self._keeper.load_state_dict(self._begin)
        else:
            self._loader().set_epoch(self._epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state of `batches` after the last batch returned; it must have a `state_dict`."""
        state: dict[str, Any] | None = self._source_state() if self._iterator is None else self._state
        if state is None:
            raise TypeError(f"{type(self._source).__name__} has no state_dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`, from a prefetcher or a loader; prefetched batches are dropped."""
        self._keeper.load_state_dict(state)
        self._reset()
