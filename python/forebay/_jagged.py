"""`JaggedArray`: rows of different lengths in one array."""

from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["JaggedArray"]


class JaggedArray(Sequence[NDArray[Any]]):
    """A batch of rows of different lengths: the concatenated values, and the offset of each row.

    Row i is `data[offsets[i] : offsets[i + 1]]`, a view; in a field of two or more dimensions it has the
    shape `shapes[i]`. `data` and `offsets` are the arguments of `torch.nested.nested_tensor_from_jagged`, and
    of attention over sequences of different lengths (`cu_seqlens`).
    """

    __slots__ = ("data", "offsets", "shapes")

    def __init__(self, data: NDArray[Any], offsets: NDArray[np.int64], shapes: NDArray[np.int64] | None = None) -> None:
        self.data = data
        self.offsets = offsets
        self.shapes = shapes

    def to(self, *arguments: Any, **parameters: Any) -> "JaggedArray":
        """Of tensors, the same on another device or of another type, as `Tensor.to`; of arrays, this one.

        Frameworks that move batches, such as Lightning, call it instead of rebuilding a sequence of rows.
        """
        data: Any = self.data
        offsets: Any = self.offsets
        if not hasattr(data, "to"):
            return self
        data = data.to(*arguments, **parameters)
        return JaggedArray(data, offsets.to(data.device), self.shapes)

    @classmethod
    def from_rows(cls, rows: Sequence[NDArray[Any]]) -> Self:
        """Copies rows, at least one, into a jagged array."""
        arrays = [np.asarray(row) for row in rows]
        offsets = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([array.size for array in arrays], out=offsets[1:])
        shapes = None if arrays[0].ndim == 1 else np.array([array.shape for array in arrays], np.int64)
        return cls(np.concatenate([array.ravel() for array in arrays]), offsets, shapes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.data.dtype

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of values of each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int, /) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice, /) -> NDArray[Any] | list[NDArray[Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        row = self.data[self.offsets[number] : self.offsets[number + 1]]
        return row if self.shapes is None else row.reshape(self.shapes[number])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<forebay.cache.JaggedArray: {len(self)} rows, {len(self.data)} values of {self.dtype}>"
