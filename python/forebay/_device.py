"""Copies to a device: the check that it is available, and pinned memory for the copies."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from forebay._core import ConfigError

__all__ = ["PinnedSlot", "checked", "views"]

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

    def stage(self, tensors: Mapping[Any, Any]) -> dict[Any, Any]:
        """Copies the tensors into this slot once its last copy to the device is done; returns the copies."""
        block = self.stage_block(tensors)
        return views(block, tensors)

    def stage_block(self, tensors: Mapping[str, Any]) -> Any:
        """As `stage`; returns the memory of all copies as bytes, of which `views` gives the tensors."""
        if self.copied is not None:
            self.copied.synchronize()
        size = sum(map(_room, tensors.values()))
        if self._block is None or self._block.nbytes < size:
            self._block = torch.empty(size, dtype=torch.uint8, pin_memory=self._pin)
        for name, place in views(self._block, tensors).items():
            _copy(place, tensors[name])
        return self._block[:size]


def views(block: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors like those given, one after the other in a block of bytes, on any device."""
    ends = accumulate(map(_room, tensors.values()), initial=0)
    places = zip(ends, tensors.items(), strict=False)
    return {name: block[at : at + like.nbytes].view(like.dtype).view(like.shape) for at, (name, like) in places}


def _copy(to: Any, of: Any) -> None:
    """Copies a tensor on this thread alone.

    A `copy_` of torch would wake its whole thread pool, whose threads then spin for milliseconds: on 16
    cores they took half of the time of a loader's workers.
    """
    if of.is_contiguous() and not of.is_conj() and not of.is_neg():
        np.copyto(_bytes(to), _bytes(of))
    else:
        to.copy_(of)


def _bytes(tensor: Any) -> Any:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _room(tensor: Any) -> int:
    return int(-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT)
