"""`token_batches`: copies packed batches to a device, one copy each, from recycled pinned memory."""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, TypeAlias

import torch

from forebay._converted import Converted, check_loader, side_by_side
from forebay._core import TokenLoader
from forebay._device import PinnedSlot, checked

SLOTS = 2
"""Batches that may be copied at the same time."""


def token_batches(loader: TokenLoader, device: Any = "cuda", with_state: bool = True) -> Iterator[tuple[Any, ...]]:
    """Yields `(inputs, targets, state)` of a `TokenLoader`, or `(inputs, targets)`: tensors `[batch, seq_len]`.

    On a CUDA device, one non-blocking copy on the current stream moves inputs and targets into memory that is
    allocated once. The second `next()` after a batch overwrites its tensors, after all work queued on the
    stream until then. On the CPU the tensors share the loader's arrays, and may be kept.

    `state` is the loader's `state_dict()` after the batch. Tensors have the loader's dtype; if embeddings and
    losses need int64 and the ids are smaller, call `.long()` on the device. Ctrl-C loses no batch.

    Raises `ConfigError` for another kind of device, or if torch finds no CUDA device.
    """
    check_loader(loader)
    device = checked(device)
    pair = _tensors if device.type == "cpu" else _Ring(device).copy
    if not with_state:
        return Converted(pair, loader)
    return Converted(lambda batch: (*pair(batch), loader.state_dict()), loader)


Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def _tensors(batch: Mapping[str, Any]) -> Pair:
    return torch.from_numpy(batch["inputs"]), torch.from_numpy(batch["targets"])


class _Ring:
    """Slots that batches use in turn, each with its own memory on the device, allocated once."""

    def __init__(self, device: Any) -> None:
        self._on_gpu = device.type == "cuda"
        self._slots = cycle([(PinnedSlot(self._on_gpu), _DeviceMemory(device)) for _ in range(SLOTS)])

    def copy(self, batch: Mapping[str, Any]) -> Pair:
        slot, memory = next(self._slots)
        both = torch.from_numpy(side_by_side(batch["inputs"], batch["targets"]))
        host = slot.stage({"both": both})["both"]
        there = memory.like(both)
        try:
            there.copy_(host, non_blocking=True)
        finally:
            # Also after Ctrl-C: the copy may be running.
            if self._on_gpu:
                slot.copied = torch.cuda.current_stream(there.device).record_event()
        inputs, targets = there
        return inputs, targets


class _DeviceMemory:
    """Memory of one batch on the device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._memory: Any = None

    def like(self, both: Any) -> Any:
        """A tensor in this memory with the shape of `both`; batches may have fewer rows."""
        if self._memory is None or self._memory.numel() < both.numel():
            self._memory = torch.empty(both.numel(), dtype=both.dtype, device=self._device)
        return self._memory[: both.numel()].view(both.shape)
