"""For PyTorch: batches as tensors, in pinned memory or on a device; features there; an `IterableDataset`; ranks.

>>> import forebay, forebay.torch
>>> ranks = forebay.torch.rank_and_world_size()
>>> loader = forebay.Loader.train(files, **ranks)  # doctest: +SKIP
>>> for batch in forebay.torch.DevicePrefetcher(loader, "cuda"):  # doctest: +SKIP
...     step(batch["spectrogram"], batch["label"])

A loader has its own threads, so this module starts no processes or threads.
"""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.distributed
import torch.utils.data

from forebay._async import BatchResult
from forebay._checks import MOST, check, truth, wrong_type
from forebay._converted import Pass, Ranks, bfloat16_fields, check_loader, is_finite, resumable
from forebay._core import ConfigError, LoaderBase
from forebay._device import PinnedSlot, checked
from forebay._jagged import JaggedArray
from forebay._token_batches import token_batches
from forebay._torch_augment import Augment
from forebay._torch_features import Features

__all__ = [
    "Augment",
    "DataLoader",
    "DevicePrefetcher",
    "Features",
    "IterableDataset",
    "Ranks",
    "rank_and_world_size",
    "to_tensors",
    "token_batches",
]


def __dir__() -> list[str]:
    return __all__


Batch = dict[str, Any]
"""A dict by field: tensors for arrays of numbers, other values unchanged."""


def to_tensors(batch: Mapping[str, Any], loader: Any = None) -> Batch:
    """Converts a batch's arrays to torch tensors that share their memory; values that are not numeric arrays stay.

    Embeddings, losses and most operations of torch take no uint16, uint32 or uint64. So uint16 is copied to
    int32, and the others to int64; a uint64 of 2**63 or more raises `OverflowError`. Loaders and datasets with
    `dtype="int32"` or `"int64"` need no copy.

    `loader` is the loader that made the batch: a spectrogram of `Loader(dtype="bfloat16")`, a uint16 array in
    numpy, becomes a tensor of `torch.bfloat16`. Without `loader` it is taken for whole numbers. A
    `JaggedArray` becomes a `JaggedArray` of tensors, for `torch.nested.nested_tensor_from_jagged(field.data,
    field.offsets)`.
    """
    bfloat16 = bfloat16_fields(loader)
    return {name: _to_tensor(name, value, name in bfloat16) for name, value in batch.items()}


_SIGNED = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""Of the unsigned types that most of torch does not take, the signed types that replace them."""


def _to_tensor(name: str, value: Any, is_bfloat16: bool) -> Any:
    if isinstance(value, JaggedArray):
        data, offsets = _to_tensor(name, value.data, is_bfloat16), _to_tensor(name, value.offsets, False)
        return JaggedArray(data, offsets, value.shapes)
    if not isinstance(value, np.ndarray):
        return value
    # torch does not support ml_dtypes' bfloat16.
    if value.dtype.name == "bfloat16" or is_bfloat16:
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    if signed := _SIGNED.get(value.dtype.name):
        if value.dtype == np.uint64 and value.size and (most := value.max()) > np.iinfo(np.int64).max:
            raise OverflowError(
                f"{name} has {most}, beyond int64, and most of torch takes no uint64: store smaller numbers, "
                "or leave the field out of the batch"
            )
        value = value.astype(signed)
    return torch.from_numpy(value) if value.dtype.kind in "biufc" else value


def rank_and_world_size(group: Any = None) -> Ranks:
    """Returns rank and world size of `torch.distributed`, for `Loader(files, **rank_and_world_size())`; else 0 of 1.

    If the model itself spans several devices, `group` is the process group that shares the data.

    Raises `RuntimeError` if a launcher started several processes but the process group is not initialised,
    since each process would train on all data.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        if rank < 0:
            raise RuntimeError("this process is not in the group; pass the group with which it shares data")
        return {"rank": rank, "world_size": world_size}
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1:
        raise RuntimeError(
            f"WORLD_SIZE is {launched} but torch.distributed is not initialised: call init_process_group() first, "
            "or pass rank and world_size to the loader yourself"
        )
    return {"rank": 0, "world_size": 1}


class IterableDataset(torch.utils.data.IterableDataset[Batch]):  # type: ignore[misc]
    """A torch `IterableDataset` over a loader, whose items are batches of tensors.

    Pass it to `torch.utils.data.DataLoader(dataset, batch_size=None)`, or to `torchdata`'s
    `StatefulDataLoader` in the same way. Batches are those of the loader, and `num_workers` must be 0. The
    state is the state after the last batch returned.

    With `pin_memory=True` each batch is copied into one new block from torch's caching host allocator, for
    copies to a device with `non_blocking=True`. The allocator, not forebay, decides when the block is reused.
    Keeping one field keeps the block. Without CUDA, memory is not pinned, and a warning is given.
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
                f"num_workers is {worker.num_workers}, must be 0: the loader has its own decoding threads, and every "
                "worker process would yield all batches again; use DataLoader(dataset, batch_size=None, num_workers=0) "
                "and Loader(..., n_workers=8)"
            )
        convert = _pinned if self.pin_memory else to_tensors
        return Pass(lambda batch: convert(batch, self.loader), self.loader)

    def __len__(self) -> int:
        """The number of batches of a pass; `TypeError` if the loader is infinite."""
        return len(self.loader)

    def __bool__(self) -> bool:
        return True

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass that the next `iter()` begins, as `set_epoch` of the loader does."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's state."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`."""
        self.loader.load_state_dict(state)

    def __repr__(self) -> str:
        return f"<forebay.torch.IterableDataset: {self.loader!r}>"


class DataLoader(torch.utils.data.DataLoader[Batch]):  # type: ignore[misc]
    """A loader as a `torch.utils.data.DataLoader`, with its position: for training frameworks.

    The loader returns complete batches, and only those of its rank, so a framework must not shard, batch or
    collate them again; `Accelerator.prepare` returns it unchanged. docs/frameworks.md has the recipes. Items are
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
    prepare : callable or None
        With `device`: a function of each batch before its copy, as that of a `DevicePrefetcher`.

    """

    def __init__(
        self,
        loader: LoaderBase,
        *,
        device: Any = None,
        depth: int = 2,
        pin_memory: bool = False,
        prepare: Callable[[Batch], Mapping[str, Any]] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError(
                f"DataLoader() got {', '.join(unknown)}, but takes device, depth, pin_memory and prepare only; batch "
                "size, order, threads, rank and seed are parameters of the loader: Loader(files, batch_size=64, "
                "n_workers=8)"
            )
        if prepare is not None and device is None:
            raise ConfigError(
                'prepare is for batches that are copied to a device; give device, such as "cuda" or "cpu"'
            )
        check(depth=(depth, 1, MOST))
        self.loader = loader
        dataset = IterableDataset(loader, pin_memory=truth("pin_memory", pin_memory) and device is None)
        super().__init__(dataset, batch_size=None)
        self._batches: Any = dataset if device is None else DevicePrefetcher(dataset, device, depth, prepare=prepare)
        # Accelerator.prepare() returns such a loader unchanged. It would otherwise deal rank 0's batches to all ranks.
        self._is_accelerate_prepared = True

    def __iter__(self) -> Iterator[Batch]:
        """Continues an infinite loader; begins the next pass of a finite one, as `iter(loader)` does."""
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, _index: object) -> None:
        """Raises `TypeError`; the Trainer of Hugging Face indexes a `train_dataset`."""
        raise TypeError(
            "DataLoader is an iterable of batches and has no rows to index; for the Trainer of Hugging Face use "
            "forebay.transformers.TrainerMixin"
        )

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


_Part = str | tuple[str, Literal["data", "offsets"]]
"""A field, or a part of a jagged field."""


def _parts(batch: Batch) -> dict[_Part, Any]:
    """The tensors of a batch, with those of jagged fields."""
    parts: dict[_Part, Any] = {}
    for name, value in batch.items():
        if isinstance(value, JaggedArray):
            parts |= {(name, "data"): value.data, (name, "offsets"): value.offsets}
        else:
            parts[name] = value
    return {part: value for part, value in parts.items() if isinstance(value, torch.Tensor)}


def _with_parts(batch: Batch, parts: Mapping[_Part, Any]) -> Batch:
    """The batch with other tensors."""

    def field(name: str, value: Any) -> Any:
        if isinstance(value, JaggedArray):
            data, offsets = parts.get((name, "data"), value.data), parts.get((name, "offsets"), value.offsets)
            return JaggedArray(data, offsets, value.shapes)
        return parts.get(name, value)

    return {name: field(name, value) for name, value in batch.items()}


def _pinned(batch: Mapping[str, Any], loader: Any) -> Batch:
    """The batch in pinned memory, in one allocation."""
    fields = to_tensors(batch, loader)
    return _with_parts(fields, PinnedSlot().stage(_parts(fields)))


class DevicePrefetcher:
    """Prefetches batches to a CUDA device: `depth` batches are copied ahead while the model works on the last one.

    `batches` is a loader, an `IterableDataset`, a `DataLoader` over one, an `AsyncDataLoader`, whose batches are
    then dicts without row numbers, or any iterable of dicts. Copies run on a separate stream, from `depth + 1`
    pinned slots; a slot is overwritten only after the event of its last copy. The current stream waits for the
    copy of the batch that `next()` returns, so the batch can be used and dropped like any tensors. Tensors that
    are pinned already are copied from where they are; an iterable of yours is asked for its next batch after
    that copy, so it may fill the same memory again. Both tensors of a `JaggedArray` are moved. On the CPU no
    batch is copied or prefetched.

    An iterable with a length is a pass, and iterating again begins the next pass, also if this one was left
    early. An iterable without a length is a stream, and iterating again continues it. `state_dict()` is the
    state after the last batch returned, not after the prefetched ones. To move a stream, use `load_state_dict`
    of the prefetcher, not of the loader. An error is raised after all earlier batches. Ctrl-C loses no batch.
    """

    def __init__(
        self,
        batches: Iterable[Mapping[str, Any]],
        device: Any = "cuda",
        depth: int = 2,
        *,
        prepare: Callable[[Batch], Mapping[str, Any]] | None = None,
    ) -> None:
        if isinstance(batches, str | bytes | os.PathLike | Mapping) or not hasattr(batches, "__iter__"):
            raise TypeError(
                "argument 'batches': a loader, an IterableDataset, a DataLoader or another iterable of dicts is "
                f"expected, not {type(batches).__name__}"
            )
        if prepare is not None and not callable(prepare):
            raise wrong_type("prepare", "a function of a batch, such as forebay.torch.Augment(...).draw", prepare)
        self._prepare = prepare
        self._source: Any = batches
        dataset = getattr(batches, "dataset", None)
        # The owner of the state: for a plain DataLoader, the dataset.
        keeps = isinstance(dataset, IterableDataset) and not hasattr(batches, "state_dict")
        self._keeper: Any = dataset if keeps else batches
        self._device = checked(device)
        check(depth=(depth, 1, MOST))
        self._depth = 0
        self._begin: Any = None  # states of the source: at the start of the pass, and after the last batch returned
        self._state: Any = None
        self._lent: Any = None  # the event of a copy from memory that the source may fill again
        if self._device.type == "cuda":
            self._depth = depth
            self._stream = torch.cuda.Stream(self._device)
            self._device = self._stream.device  # with its number
            self._slots = deque(PinnedSlot() for _ in range(depth + 1))
        self._reset()

    def _reset(self) -> None:
        self._iterator: Iterator[Mapping[str, Any]] | None = None
        self._pulled: Mapping[str, Any] | None = None  # kept in case Ctrl-C interrupts its copy
        self._ahead: deque[tuple[Batch, Any, Any]] = deque()  # batch, event of its copy, state after it
        self._end: Exception | None = None
        self._has_begun = False  # a batch was returned
        self._source_at: Any = None  # the state of the source after the last batch pulled

    def __len__(self) -> int:
        """The length of `batches`."""
        return len(self._source)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        ahead = f"{self._depth} batches ahead" if self._depth else "no copies"
        return f"<forebay.torch.DevicePrefetcher: to {self._device}, {ahead}, from {self._source!r}>"

    def __iter__(self) -> Self:
        """Begins the next pass, or this one if no batch of it was returned; a stream continues."""
        if self._iterator is None or is_finite(self._source):
            if not self._has_begun and self._source_at is not None and self._source_state() == self._source_at:
                self._keeper.load_state_dict(self._begin)  # batches were pulled, and none was returned
            self._reset()
            self._iterator = resumable(self._source)
            self._begin = self._state = self._source_state()
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
            end, self._end = self._end, None  # a later call gets the error from the source again
            raise end
        batch, copied, state = self._ahead[0]
        if copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in _parts(batch).values():
                tensor.record_stream(stream)  # otherwise its memory could be overwritten too early

        # Ctrl-C is raised only where a call returns, and no call follows. So a batch is either returned or
        # kept.
        self._state = state
        self._has_begun = True
        del self._ahead[0]
        return batch

    def _pull(self) -> None:
        """Takes one batch from the source and starts its copy."""
        assert self._iterator is not None
        if self._pulled is None:
            if self._lent is not None:
                self._lent.synchronize()
                self._lent = None
            try:
                for pulled in self._iterator:
                    self._pulled = pulled.data if isinstance(pulled, BatchResult) else pulled
                    break
                else:
                    self._end = StopIteration()
                    return
            except Exception as end:
                self._end = end
                return
        self._source_at = self._source_state()
        tensors = to_tensors(self._pulled, self._loader())
        if self._prepare is not None:
            prepared = self._prepare(tensors)
            if not isinstance(prepared, Mapping):
                raise TypeError(f"prepare returned {type(prepared).__name__}, must return the batch, a dict")
            tensors = to_tensors(prepared)
        batch, copied = self._copy(tensors)
        taken = (batch, copied, self._source_at)
        self._pulled = None  # Ctrl-C cannot come between this and the call
        self._ahead.append(taken)

    def _copy(self, batch: Batch) -> tuple[Batch, Any]:
        """The batch on the device, and the event that marks the end of its copy."""
        if self._device.type == "cpu":
            return batch, None
        tensors = _parts(batch)
        pageable = {part: tensor for part, tensor in tensors.items() if not tensor.is_pinned()}
        slot = self._slots[0]
        staged = tensors | slot.stage(pageable)
        with torch.cuda.stream(self._stream):
            copies = {part: tensor.to(self._device, non_blocking=True) for part, tensor in staged.items()}
        slot.copied = self._stream.record_event()
        # The loaders of forebay never write to a batch again.
        if len(pageable) < len(tensors) and not isinstance(self._loader(), LoaderBase):
            self._lent = slot.copied
        self._slots.rotate(-1)
        return _with_parts(batch, copies), slot.copied

    def _source_state(self) -> Any:
        return self._keeper.state_dict() if hasattr(self._keeper, "state_dict") else None

    def _loader(self) -> Any:
        """The underlying loader, or the source if there is none."""
        dataset = getattr(self._source, "dataset", self._source)
        return getattr(dataset, "loader", dataset)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of `batches` after the last batch returned; `batches` must have a `state_dict`."""
        state: dict[str, Any] | None = self._source_state() if self._iterator is None else self._state
        if state is None:
            raise TypeError(f"{type(self._source).__name__} has no state_dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of `state`, taken from a prefetcher or a loader; prefetched batches are dropped."""
        self._keeper.load_state_dict(state)
        self._reset()
