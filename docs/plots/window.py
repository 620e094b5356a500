"""Draws docs/window.png: how far the shuffle window moves an example, measured and by its model.

Reimplements src/seed.rs and the infinite window of src/order/window.rs.
Runs from any folder: python docs/plots/window.py
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

MASK = (1 << 64) - 1
WINDOW, CROP = 2, 3  # Purpose of src/seed.rs
DRAWS = 400_000  # per window, after the first 20 W
SIZES = {10: "tab:blue", 300: "tab:orange", 8000: "tab:green"}


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


def displacements(size: int, seed: int = 0) -> np.ndarray:
    """Draw minus ticket for DRAWS draws from a full window."""
    slots = list(range(size))
    skip = 20 * size
    moved = []
    for draw in range(skip + DRAWS):
        slot = hashed(seed, WINDOW, 0, 0, draw) * size >> 64
        moved.append(draw - slots[slot])
        slots[slot] = size + draw
    return np.array(moved[skip:])


def main() -> None:
    """Draws the picture and prints the figures."""
    # The golden values of the tests in src/seed.rs.
    assert hashed(0, WINDOW, 0, 0) == 0x39D6215E4B0B2858
    assert hashed(42, CROP, 3, 1_000_000) == 0x9BB07E3D36D0FCCE

    figure, (density, tail) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for size, color in SIZES.items():
        moved = displacements(size)
        model = 2 * size * (1 - 1 / size) ** size
        sys.stdout.write(
            f"W {size}: mean {moved.mean():.2f}, mean of |d| {np.abs(moved).mean():.2f} (model {model:.2f}, "
            f"2W/e {2 * size / np.e:.2f}), least {moved.min()}, most {moved.max()}, "
            f"beyond 4 W {np.mean(moved > 4 * size):.4f} (model {(1 - 1 / size) ** (5 * size):.4f})\n"
        )
        x = moved / size
        # Bins hold whole draws, so that a small window has no empty bins.
        step = max(1, round(0.1 * size))
        edges = (np.arange(-size, 6 * size + 1, step) + 0.5) / size
        count, _ = np.histogram(x, edges)
        middle = 0.5 * (edges[1:] + edges[:-1])
        density.plot(middle, count / len(x) / np.diff(edges), ".", ms=5, color=color, label=f"W = {size}, measured")
        at = np.linspace(-1, 9, 41)
        tail.plot(at, [np.mean(x > a) for a in at], ".", ms=5, color=color)
        # The time in the slot is geometric with mean W; the displacement is this time minus W.
        stays = 1 - 1 / size
        density.plot(middle, stays ** (size + middle * size - 1), "-", lw=0.8, color=color, zorder=0)
        tail.plot(at, stays ** (size + np.floor(at * size)), "-", lw=0.8, color=color, zorder=0)
    density.plot([], [], "-", lw=0.8, color="0.3", label="model: a geometric time in the slot")
    for axes, title in [(density, "density"), (tail, "share of examples displaced by more")]:
        axes.axvline(0, color="0.8", lw=1, zorder=-1)
        axes.set(xlabel="displacement d / W  (draw minus ticket)", title=title)
        axes.spines[["top", "right"]].set_visible(False)
    density.set(xlim=(-1.3, 6))
    density.legend(frameon=False)
    tail.set(yscale="log", xlim=(-1.3, 9), ylim=(2e-5, 1.5))
    figure.savefig(Path(__file__).parents[1] / "window.png", dpi=110)


if __name__ == "__main__":
    main()
