"""Copies to a device: the check that it is available, and pinned memory for the copies."""

from collections.abc import Mapping
from typing import Any

import torch

from forebay._core import ConfigError

__all__ = ["PinnedSlot", "checked"]

ALIGNMENT = 64
"""Alignment of the fields of a pinned batch, in bytes."""


def checked(device: Any) -> torch.device:
    """The device; `ConfigError` if it is neither the CPU nor CUDA, or if torch finds no CUDA device."""
    found = torch.device(device)
    if found.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {device}, must be a CUDA device or the CPU")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device}, but no CUDA device is available; pass device='cpu'")
    return found


class PinnedSlot:
    """Pinned memory for one copy to the device at a time.

    `copied` is the event of the last copy, set by the caller; the memory is overwritten only after this
    event.
    """

    def __init__(self, pin: bool = True) -> None:
        self.copied: Any = None
        self._pin = pin
        self._block: Any = None

    def stage(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Copies the tensors into this slot once its last copy to the device is done; returns the copies."""
        if self.copied is not None:
            self.copied.synchronize()
        starts, size = {}, 0
        for name, tensor in tensors.items():
            starts[name] = size
            size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        if self._block is None or self._block.nbytes < size:
            self._block = torch.empty(size, dtype=torch.uint8, pin_memory=self._pin)
        return {name: self._place(starts[name], tensor).copy_(tensor) for name, tensor in tensors.items()}

    def _place(self, start: int, tensor: Any) -> Any:
        return self._block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
