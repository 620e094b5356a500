"""Processed documents with random access: datasets, the orders over them, and a loader.

>>> from forebay.cache import DataLoader, ListAsyncDataset, PermutationDataset
>>> documents = ListAsyncDataset([{"x": [i]} for i in range(6)])
>>> loader = DataLoader(PermutationDataset(documents, seed=1), batch_size=4)
>>> [batch["x"].shape for batch in loader]
[(4, 1), (2, 1)]
"""

from forebay._core import DataLoader
from forebay._jagged import JaggedArray
from forebay.cache.datasets import (
    AsyncDataset,
    CacheDataset,
    EraShufflingDataset,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    TokenSeqDataset,
)

TreeCache = CacheDataset
"""The same, as it is known elsewhere."""

__all__ = [
    "AsyncDataset",
    "CacheDataset",
    "DataLoader",
    "EraShufflingDataset",
    "JaggedArray",
    "ListAsyncDataset",
    "MixtureDataset",
    "PermutationDataset",
    "TokenSeqDataset",
    "TreeCache",
]
