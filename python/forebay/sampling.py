"""Sampling: which rows of its files a loader reads.

>>> import forebay.sampling as sampling
>>> sampling.Subset(1000, seed=1)
Subset(rows=1000, seed=1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._core import _Subset
from forebay._part import _Part

__all__ = ["Subset"]


@dataclass(frozen=True, repr=False)
class Subset(_Part):
    """Some rows: a number of them, chosen by `seed` once and for all epochs, or row numbers over all files.

    A larger number with the same seed contains the rows of a smaller one. Orders, ranks and resume are those of a
    dataset with these rows alone; `index` in a batch is still the row over all files. Other rows are not read.
    """

    rows: int | Sequence[int]
    seed: int = 0

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Subset: ...

    def __post_init__(self) -> None:
        given: Any = self.rows
        if isinstance(given, Iterable) and not isinstance(given, str):
            rows = tuple(row.item() if isinstance(row, np.generic) else row for row in given)
            object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "_plan", _Subset({"rows": self.rows, "seed": self.seed}))
