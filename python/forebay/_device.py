"""Whether batches can be copied to a device."""

from typing import Any

import torch

from forebay._core import ConfigError

__all__ = ["checked"]


def checked(device: Any) -> torch.device:
    """The device; `ConfigError` if it is neither the CPU nor CUDA, or CUDA where torch finds none."""
    found = torch.device(device)
    if found.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {device}, must be a CUDA device or the CPU")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device}, and no CUDA device is available; pass device='cpu'")
    return found
