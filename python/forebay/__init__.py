"""Data loaders for training: Rust threads turn shards of recordings or text into model-ready numpy batches.

>>> import forebay
>>> for batch in forebay.Loader.train(["train-00000.arrow", "train-00001.arrow"]):  # doctest: +SKIP
...     step(batch["spectrogram"], batch["label"])
"""

from forebay._async import AsyncDataLoader, BatchResult
from forebay._buffers import BufferPool
from forebay._core import (
    ConfigError,
    DecodeError,
    ForebayError,
    Loader,
    LoaderBase,
    SpectrogramTransform,
    StateError,
    TokenLoader,
    __version__,
    decode,
)
from forebay._mapped import MappedReader
from forebay.quality import ShuffleQuality, shuffle_quality

__all__ = [
    "AsyncDataLoader",
    "BatchResult",
    "BufferPool",
    "ConfigError",
    "DecodeError",
    "ForebayError",
    "Loader",
    "LoaderBase",
    "MappedReader",
    "ShuffleQuality",
    "SpectrogramTransform",
    "StateError",
    "TokenLoader",
    "__version__",
    "decode",
    "shuffle_quality",
]
