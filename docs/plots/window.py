"""Draws docs/window.png: how far the shuffle window moves an example, measured and by its model.

The window is that of hashing.py.
Runs from any folder: python docs/plots/window.py
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from hashing import CROP, WINDOW, draws, hashed

DRAWS = 400_000  # per window, after the first 20 W
SIZES = {10: "tab:blue", 300: "tab:orange", 8000: "tab:green"}


def displacements(size: int, seed: int = 0) -> np.ndarray:
    """Draw minus ticket for DRAWS draws from a full window."""
    skip = 20 * size
    moved = (draw - slots[slot] for draw, (slots, slot) in zip(range(skip + DRAWS), draws(size, seed), strict=False))
    return np.array(list(moved)[skip:])


def main() -> None:
    """Draws the picture and prints the figures."""
    # The golden values of the tests in crates/base/src/seed.rs.
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
