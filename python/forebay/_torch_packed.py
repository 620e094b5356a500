"""Rows of a packed batch, one after the other along an axis: padded to be computed, and packed again."""

from typing import Any

import numpy as np
import torch

from forebay._checks import wrong_type
from forebay._core import ConfigError

__all__ = ["PackedRows"]


class PackedRows:
    """The rows of a packed batch, by its offsets `[batch + 1]`.

    `total` is the length of the packed axis of `what`, which is on `device`. Offsets that are on a device are waited
    for, since they decide shapes.
    """

    def __init__(self, offsets: Any, total: int, what: str, device: torch.device) -> None:
        if not isinstance(offsets, torch.Tensor) or offsets.dtype not in (torch.int64, torch.int32):
            raise wrong_type("offsets", "a tensor of int32 or int64", offsets)
        ends = offsets.cpu().numpy().astype(np.int64)
        if ends.ndim != 1:
            raise ConfigError(f"offsets has the shape {list(ends.shape)}, must be [batch + 1]")
        self.lengths = np.diff(ends)
        if len(ends) < 1 or ends[0] != 0 or ends[-1] != total or (self.lengths < 0).any():
            raise ConfigError(
                f"offsets begins with {ends[:1].tolist()} and ends with {ends[-1:].tolist()}, must rise from 0 to the "
                f"{total} {what}, [batch + 1]"
            )
        self._begins, self._last, self._device = ends[:-1, None], max(total - 1, 0), device

    def moved(self, array: Any) -> Any:
        """An array on the device, without waiting for it."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        is_cuda = self._device.type == "cuda"
        return tensor.pin_memory().to(self._device, non_blocking=True) if is_cuda else tensor.to(self._device)

    def padded(self, x: Any, axis: int) -> Any:
        """Rows `[batch, ...]` of the longest row's length, of `x` with this axis packed; others repeat what follows."""
        at = np.minimum(self._begins + np.arange(int(self.lengths.max(initial=0))), self._last)
        return x.movedim(axis, 0)[self.moved(at)].movedim(1, axis + 1)

    def packed(self, x: Any, axis: int, counts: Any) -> Any:
        """The first `counts` places of each row, along the axis that rows `[batch, ...]` have as number `axis + 1`."""
        own = np.flatnonzero(np.arange(x.shape[axis + 1]) < counts[:, None])
        rows = x.movedim(axis + 1, 1).flatten(0, 1)
        return rows.index_select(0, self.moved(own)).movedim(0, axis).contiguous()
