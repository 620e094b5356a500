"""Packed batches on a device: one copy each, out of pinned memory that goes round."""

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import torch

from forebay._core import ConfigError

SLOTS = 2
"""Batches that may be on their way at once."""


def token_batches(loader: Any, device: Any = "cuda", with_state: bool = True) -> Iterator[tuple[Any, ...]]:
    """Yields `(inputs, targets, state)` of a `TokenLoader`, or `(inputs, targets)`: tensors `[batch, seq_len]`.

    On a CUDA device inputs and targets are copied by one non-blocking copy on the current stream, into memory that was
    allocated once: what is yielded is written again by the second `next()` after it, behind all work that was given to
    the stream until then. On the CPU the tensors share the loader's arrays, which are yours to keep.

    `state` is the loader's `state_dict()` after the batch. Tensors have the loader's dtype; for embeddings and losses
    that want int64 from smaller ids, call `.long()` on the device.

    Raises `ConfigError` for another kind of device.
    """
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {device}, must be a CUDA device or the CPU")
    pairs = _pairs(loader) if device.type == "cpu" else _copied(loader, device)
    return ((*pair, loader.state_dict()) for pair in pairs) if with_state else pairs


def _pairs(loader: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for batch in loader:
        yield torch.from_numpy(batch["inputs"]), torch.from_numpy(batch["targets"])


class _Slot:
    """Memory of one batch on both sides, and the event after which the host's may be written."""

    def __init__(self, both: Any, device: Any) -> None:
        self.host = torch.empty(both.shape, dtype=both.dtype, pin_memory=True)
        self.there = torch.empty(both.shape, dtype=both.dtype, device=device)
        self.copied: Any = None

    def copy(self, both: Any) -> Any:
        """The batch on the device; `both` may be one of fewer rows."""
        if self.copied is not None:
            self.copied.synchronize()
        host, there = (memory.view(-1)[: both.numel()].view(both.shape) for memory in (self.host, self.there))
        host.copy_(both)
        there.copy_(host, non_blocking=True)
        self.copied = torch.cuda.current_stream(there.device).record_event()
        return there


def _copied(loader: Iterable[dict[str, Any]], device: Any) -> Iterator[tuple[Any, ...]]:
    slots: list[_Slot] = []
    turn = cycle(range(SLOTS))
    for batch in loader:
        # The array that both are views of: all inputs, then all targets.
        both = batch["inputs"].base
        assert isinstance(both, np.ndarray)
        both = torch.from_numpy(both)
        if not slots or slots[0].host.numel() < both.numel():
            slots = [_Slot(both, device) for _ in range(SLOTS)]
        inputs, targets = slots[next(turn)].copy(both)
        yield inputs, targets
