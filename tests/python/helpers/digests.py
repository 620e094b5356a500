"""A digest of a batch."""

import hashlib
from collections.abc import Mapping
from typing import Any

from forebay._jagged import JaggedArray


def digest(batch: Mapping[str, Any]) -> str:
    """A digest of names, types, shapes and bits of all fields; of text, a list, its values."""
    sha = hashlib.sha256()
    for field, values in batch.items():
        if isinstance(values, list):
            sha.update(f"{field} {values!r}".encode())
            continue
        for array in (values.data, values.offsets) if isinstance(values, JaggedArray) else (values,):
            sha.update(f"{field} {array.dtype} {array.shape}".encode())
            sha.update(array.tobytes())
    return sha.hexdigest()
