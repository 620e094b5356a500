"""Caches of processed documents with random access, readable during their build; datasets and a loader over them.

>>> import tempfile
>>> from forebay import cache
>>> shards = {"a": [{"x": [1, 2]}, {"x": [3]}], "b": [{"x": [4, 5, 6]}]}
>>> folder = tempfile.TemporaryDirectory()
>>> store = cache.build(shards, None, folder.name, batch_size=1)
>>> [document["x"].tolist() for document in store.get_batch(range(len(store)))]
[[1, 2], [4, 5, 6], [3]]
>>> folder.cleanup()

>>> documents = cache.ListAsyncDataset([{"x": [i]} for i in range(6)])
>>> loader = cache.DataLoader(cache.PermutationDataset(documents, seed=1), batch_size=4)
>>> [batch["x"].shape for batch in loader]
[(4, 1), (2, 1)]
"""

from forebay._core import DataLoader
from forebay._jagged import JaggedArray
from forebay.cache.building import Features, Tokenize, build
from forebay.cache.converting import convert
from forebay.cache.datasets import (
    AsyncDataset,
    CacheDataset,
    Document,
    EraShufflingDataset,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    TokenSeqDataset,
    WeightedDataset,
)
from forebay.cache.foreign import ForeignDataset
from forebay.cache.running import CacheBuild, Progress
from forebay.cache.store import TreeStore

TreeCache = CacheDataset
"""Another name of `CacheDataset`, as in other libraries."""

__all__ = [
    "AsyncDataset",
    "CacheBuild",
    "CacheDataset",
    "DataLoader",
    "Document",
    "EraShufflingDataset",
    "Features",
    "ForeignDataset",
    "JaggedArray",
    "ListAsyncDataset",
    "MixtureDataset",
    "PermutationDataset",
    "Progress",
    "TokenSeqDataset",
    "Tokenize",
    "TreeCache",
    "TreeStore",
    "WeightedDataset",
    "build",
    "convert",
]


def __dir__() -> list[str]:
    return __all__
