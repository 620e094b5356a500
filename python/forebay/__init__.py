"""Data loaders for training: Rust threads turn recordings or text into model-ready numpy batches.

>>> import forebay
>>> for batch in forebay.Loader.train("recordings/"):  # or shards, a table, archives  # doctest: +SKIP
...     step(batch["spectrogram"], batch["label"])
"""

import importlib
from typing import TYPE_CHECKING, Any

from forebay import (
    _command,  # noqa: F401 (before the slow imports, for Ctrl-C within them)
    _preloaded,  # noqa: F401
)
from forebay._core import (
    AudioDataset,
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
from forebay.manifest import Manifest

if TYPE_CHECKING:
    from forebay import accelerate as accelerate
    from forebay import batching as batching
    from forebay import cache as cache
    from forebay import crops as crops
    from forebay import features as features
    from forebay import jax as jax
    from forebay import lightning as lightning
    from forebay import plot as plot
    from forebay import queue as queue
    from forebay import sampling as sampling
    from forebay import targets as targets
    from forebay import text as text
    from forebay import tokens as tokens
    from forebay import torch as torch
    from forebay import transformers as transformers
    from forebay._async import AsyncDataLoader as AsyncDataLoader
    from forebay._async import BatchResult as BatchResult
    from forebay._buffers import BufferPool as BufferPool
    from forebay._mapped import MappedReader as MappedReader
    from forebay._stitch import TimeLine as TimeLine
    from forebay._stitch import stitch as stitch
    from forebay.quality import ShuffleQuality as ShuffleQuality
    from forebay.quality import shuffle_quality as shuffle_quality

_SUBMODULES = (
    "accelerate",
    "augment",
    "batching",
    "cache",
    "crops",
    "features",
    "jax",
    "lightning",
    "plot",
    "queue",
    "recipes",
    "sampling",
    "targets",
    "text",
    "tokens",
    "torch",
    "transformers",
)
"""Modules that are imported when they are first used, since most of them import a framework."""

_MODULES = {
    "AsyncDataLoader": "_async",
    "BatchResult": "_async",
    "BufferPool": "_buffers",
    "MappedReader": "_mapped",
    "ShuffleQuality": "quality",
    "TimeLine": "_stitch",
    "shuffle_quality": "quality",
    "stitch": "_stitch",
}
"""The modules of names that are imported when they are first used, so that `import forebay` is quick."""


if not TYPE_CHECKING:  # a type checker would take any name for an attribute

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ImportError as error:  # hasattr(), help() and inspect expect an AttributeError
                raise AttributeError(f"{__name__}.{name} cannot be imported: {error}") from error
        if name in _MODULES:
            value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES]


__all__ = [
    "AsyncDataLoader",
    "AudioDataset",
    "BatchResult",
    "BufferPool",
    "ConfigError",
    "DecodeError",
    "ForebayError",
    "Loader",
    "LoaderBase",
    "Manifest",
    "MappedReader",
    "ShuffleQuality",
    "SpectrogramTransform",
    "StateError",
    "TimeLine",
    "TokenLoader",
    "__version__",
    "decode",
    "shuffle_quality",
    "stitch",
]
