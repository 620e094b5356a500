"""The hash of crates/base/src/seed.rs in Python, and the infinite window of crates/engine/src/order/window.rs."""

from collections.abc import Iterator

MASK = (1 << 64) - 1
WINDOW, CROP = 2, 3
"""Purposes of crates/base/src/seed.rs."""


def mix(x: int) -> int:
    """The finaliser of splitmix64, which spreads every bit of x over 64 bits."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hashed(seed: int, purpose: int, *words: int) -> int:
    """64 random bits for the decision that `purpose` and `words` name."""
    state = mix(mix(seed) ^ mix(purpose))
    for word in words:
        state = mix(state ^ mix(word))
    return state


def draws(size: int, seed: int = 0) -> Iterator[tuple[list[int], int]]:
    """For each draw the tickets in the window of `size` slots, and the slot that is taken."""
    slots = list(range(size))
    ticket = size
    while True:
        slot = hashed(seed, WINDOW, 0, 0, ticket - size) * size >> 64
        yield slots, slot
        slots[slot] = ticket
        ticket += 1
