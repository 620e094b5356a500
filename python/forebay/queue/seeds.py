"""The random numbers of a file: a function of seed, split and sequence number, the same in every process.

`torch.Generator` (CPU) uses only the low 32 bits of a seed. So a bijection of 32 bits, keyed by seed and
split, maps the sequence number to the seed. No two of the first 2^32 files of a split have the same numbers,
while random seeds would collide from about 65 000 files on. The mixer is the finaliser of MurmurHash3 (public
domain), each step of which is invertible.
"""

import hashlib
from typing import Any

import torch

_MASK = 2**32 - 1


def _mix(value: int) -> int:
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def file_seed(seed: int, name: str, seq: int) -> int:
    """The seed of the generator of file `seq`; `name` is the split, with its rank if it has one."""
    key = hashlib.blake2b(seed.to_bytes(8, "little") + name.encode(), digest_size=16, person=b"forebay.queue").digest()
    low = seq & _MASK
    for start in range(0, 16, 4):
        low = _mix(low + int.from_bytes(key[start : start + 4], "little") & _MASK)
    return low


def file_rng(seed: int, name: str, seq: int) -> Any:
    """A `torch.Generator` on the CPU for file `seq`."""
    return torch.Generator().manual_seed(file_seed(seed, name, seq))
