"""A module of torch with constants: float32 buffers that no state dict has."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

__all__ = ["Constants"]


class Constants(torch.nn.Module):  # type: ignore[misc]
    """A module whose constants move with it, stay float32, and have their values after `to_empty`."""

    def __init__(self) -> None:
        super().__init__()
        self._exact: dict[str, Any] = {}

    def _hold(self, arrays: Mapping[str, Any]) -> None:
        """Registers the arrays as buffers."""
        for name, array in arrays.items():
            self._exact[name] = array
            self.register_buffer(name, torch.from_numpy(array.copy()), persistent=False)

    def reset_parameters(self) -> None:
        """Gives the constants their values, on their device: for what empties buffers by itself, as FSDP does."""
        for name, array in self._exact.items():
            found = self._buffers[name]
            # Tensors of other classes, such as those of a fake mode, have no values.
            if found is None or found.is_meta or (type(found) is not torch.Tensor and found.dtype == torch.float32):
                continue
            exact = torch.from_numpy(array.copy()).to(found.device)
            if found.dtype != exact.dtype or not torch.equal(found, exact):
                self._buffers[name] = exact

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Moves the constants. `half` would round them, and `to_empty` would leave them without values."""
        super()._apply(fn, recurse)
        self.reset_parameters()
        return self
