"""Packed batches on a device: one copy each, from pinned memory that is recycled."""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, TypeAlias

import torch

from forebay._converted import Converted, check_loader, side_by_side
from forebay._core import TokenLoader
from forebay._device import checked

SLOTS = 2
"""Batches that may be on their way at once."""


def token_batches(loader: TokenLoader, device: Any = "cuda", with_state: bool = True) -> Iterator[tuple[Any, ...]]:
    """Yields `(inputs, targets, state)` of a `TokenLoader`, or `(inputs, targets)`: tensors `[batch, seq_len]`.

    On a CUDA device inputs and targets are copied by one non-blocking copy on the current stream, into memory
    that is allocated once. The second `next()` after it overwrites these tensors, after all work that was
    queued on the stream until then. On the CPU the tensors share the loader's arrays, and may be kept.

    `state` is the loader's `state_dict()` after the batch. Tensors have the loader's dtype; if embeddings and
    losses need int64 and the ids are smaller, call `.long()` on the device. Ctrl-C loses no batch.

    Raises `ConfigError` for another kind of device, or CUDA where torch finds none.
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


class _Slot:
    """Memory of one batch on host and device, and the event after which the host's memory may be written."""

    def __init__(self, both: Any, device: Any) -> None:
        on_gpu = device.type == "cuda"
        self.host = torch.empty(both.shape, dtype=both.dtype, pin_memory=on_gpu)
        self.there = torch.empty(both.shape, dtype=both.dtype, device=device)
        self.copied: Any = torch.cuda.Event() if on_gpu else None

    def copy(self, both: Any) -> Any:
        """Copies the batch to the device; `both` may have fewer rows."""
        if self.copied is not None:
            self.copied.synchronize()
        host, there = (memory.view(-1)[: both.numel()].view(both.shape) for memory in (self.host, self.there))
        host.copy_(both)
        try:
            there.copy_(host, non_blocking=True)
        finally:
            # Also after Ctrl-C: the copy may be running.
            if self.copied is not None:
                self.copied.record(torch.cuda.current_stream(there.device))
        return there


class _Ring:
    """Slots that batches use in turn."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._slots: list[_Slot] = []
        self._turn = cycle(range(SLOTS))

    def copy(self, batch: Mapping[str, Any]) -> Pair:
        both = torch.from_numpy(side_by_side(batch["inputs"], batch["targets"]))
        if not self._slots or self._slots[0].host.numel() < both.numel():
            self._slots = [_Slot(both, self._device) for _ in range(SLOTS)]
        inputs, targets = self._slots[next(self._turn)].copy(both)
        return inputs, targets
