"""The one hash of docs/determinism.md."""

WORD = 2**64 - 1


def mix(x: int) -> int:
    """Spreads every bit of `x` over the whole word."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def hashed(seed: int, purpose: int, *words: int) -> int:
    """64 random bits of a decision."""
    state = mix(mix(seed) ^ mix(purpose))
    for word in words:
        state = mix(state ^ mix(word))
    return state


def below(bits: int, n: int) -> int:
    """Scales a hash to `0..n`."""
    return bits * n >> 64
