"""A digest of a batch."""

import hashlib

import numpy as np
from numpy.typing import NDArray


def digest(batch: dict[str, NDArray[np.generic]]) -> str:
    """A digest of names, types, shapes and bits of all fields."""
    sha = hashlib.sha256()
    for field, values in batch.items():
        sha.update(f"{field} {values.dtype} {values.shape}".encode())
        sha.update(values.tobytes())
    return sha.hexdigest()
