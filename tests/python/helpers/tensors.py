"""Batches of tensors for tests of `forebay.torch`."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import forebay
from digests import digest
from recordings import SMALL

torch = pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def of(batch: dict[str, Any]) -> str:
    """The digest of a batch of tensors."""
    return digest({name: tensor.cpu().numpy() for name, tensor in batch.items()})


def digests(files: list[Path], n: int, **overrides: Any) -> list[str]:
    """Digests of the first `n` batches of a plain `Loader`."""
    with forebay.Loader(files, **{**SMALL, **overrides}) as loader:
        found: list[str] = []
        while len(found) < n:
            found.extend(digest(batch) for batch in islice(loader, n - len(found)))
        return found


def is_infinite(loader: forebay.Loader) -> bool:
    """Whether the loader has no length."""
    try:
        len(loader)
    except TypeError:
        return True
    return False
