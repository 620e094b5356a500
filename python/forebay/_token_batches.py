"""`token_batches`: copies packed batches to a device, one copy each, from recycled pinned memory."""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import torch

from forebay._converted import Converted, check_loader, side_by_side
from forebay._core import TokenLoader
from forebay._device import PinnedSlot, checked, views

SLOTS = 2
"""Batches that may be copied at the same time."""


def token_batches(loader: TokenLoader, device: Any = "cuda", with_state: bool = True) -> Iterator[tuple[Any, ...]]:
    """`(inputs, targets, state)` of each batch of a `TokenLoader`, or `(inputs, targets)`: tensors `[batch, seq_len]`.

    For a loader with `extras`, a dict of their tensors follows the targets: `(inputs, targets, extras, state)`.

    Each `iter()`, with which a `for` loop begins, does what that of the loader does: it begins the next pass of a
    finite loader, also after one that was left early, and continues an infinite one. `next()` continues the pass,
    and raises `StopIteration` at its end until the next `iter()`.

    On a CUDA device, one non-blocking copy on the current stream moves the whole batch into memory that is
    allocated once. The second `next()` after a batch overwrites its tensors, after all work queued on the
    stream until then. On the CPU the tensors share the loader's arrays, and may be kept.

    `state` is the loader's `state_dict()` after the batch. Tensors have the loader's dtype; if embeddings and
    losses need int64 and the ids are smaller, call `.long()` on the device. Ctrl-C loses no batch.

    Raises `ConfigError` for another kind of device, or if torch finds no CUDA device.
    """
    check_loader(loader)
    device = checked(device)
    convert = _tensors if device.type == "cpu" else _Ring(device).copy
    if not with_state:
        return Converted(convert, loader)
    return Converted(lambda batch: (*convert(batch), loader.state_dict()), loader)


def _tensors(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    inputs, targets, *extras = ((name, torch.from_numpy(array)) for name, array in batch.items())
    return (inputs[1], targets[1], dict(extras)) if extras else (inputs[1], targets[1])


class _Ring:
    """Slots that batches use in turn, each with its own memory on the device, allocated once."""

    def __init__(self, device: Any) -> None:
        self._on_gpu = device.type == "cuda"
        self._slots = cycle([(PinnedSlot(self._on_gpu), _DeviceMemory(device)) for _ in range(SLOTS)])

    def copy(self, batch: Mapping[str, Any]) -> tuple[Any, ...]:
        slot, memory = next(self._slots)
        extras = {name: array for name, array in batch.items() if name not in ("inputs", "targets")}
        arrays = {"both": side_by_side(batch["inputs"], batch["targets"]), **extras}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        host = slot.stage_block(tensors)
        there = memory.take(host.nbytes)
        try:
            there.copy_(host, non_blocking=True)
        finally:
            # Also after Ctrl-C: the copy may be running.
            if self._on_gpu:
                slot.copied = torch.cuda.current_stream(there.device).record_event()
        fields = views(there, tensors)
        inputs, targets = fields.pop("both")
        return (inputs, targets, fields) if fields else (inputs, targets)


class _DeviceMemory:
    """Memory of one batch on the device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._memory: Any = None

    def take(self, n_bytes: int) -> Any:
        """Bytes of this memory; batches may have fewer rows, and more documents than the last."""
        if self._memory is None or self._memory.nbytes < n_bytes:
            self._memory = torch.empty(n_bytes, dtype=torch.uint8, device=self._device)
        return self._memory[:n_bytes]
