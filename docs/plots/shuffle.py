"""Draws docs/shuffle.png, where each order puts 100 000 rows of 100 shards, and prints the table of docs/shuffle.md.

Needs the installed package, pyarrow and matplotlib. Runs from any folder: python docs/plots/shuffle.py
"""

import tempfile
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

import forebay

N_SHARDS, ROWS_PER_SHARD, BATCH = 100, 1000, 64
N = N_SHARDS * ROWS_PER_SHARD
ORDERS: dict[str, dict[str, object]] = {
    "sequential": {"order": "sequential"},
    "window, W = 100": {"order": "window", "shuffle_min_size": 100},
    "window, W = 1000": {"order": "window", "shuffle_min_size": 1000},
    "window, W = 8000": {"order": "window", "shuffle_min_size": 8000},
    "era, 8192": {"order": "era", "era_length": 8192},
    "global": {"order": "global"},
}


def write_shards(folder: Path) -> list[Path]:
    """Writes shards with empty recordings: a plan reads none."""
    audio = pa.array(
        [{"bytes": b"", "path": None}] * ROWS_PER_SHARD, pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    table = pa.table({"audio": audio})
    files = [folder / f"{i:03}.arrow" for i in range(N_SHARDS)]
    for file in files:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return files


def main() -> None:
    """Draws the picture and prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_shards(Path(folder))
        plans = {
            name: forebay.Loader(files, batch_size=BATCH, infinite=False, **parameters).plan(N)
            for name, parameters in ORDERS.items()
        }

    figure, axes = plt.subplots(2, 3, figsize=(10, 6.2), layout="constrained", sharex=True, sharey=True)
    print("| order | displacement: mean | median | 90 % | lag-1 correlation | shards per batch | ratio to perfect |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    shown = np.random.default_rng(0).choice(N, 8000, replace=False)
    for ax, (name, plan) in zip(axes.flat, plans.items(), strict=True):
        found = forebay.shuffle_quality(plan, range(0, N, ROWS_PER_SHARD), BATCH)
        moved = (found.displacement_mean, found.displacement_median, found.displacement_p90)
        print(
            f"| {name} | {' | '.join(f'{places:.0f}' for places in moved)} | {found.lag1_correlation:.3f} "
            f"| {found.shards_per_batch:.1f} | {found.shard_mix:.0%} |"
        )
        ax.plot(shown, plan[shown], ",", color="tab:blue", alpha=0.6)
        ax.set_title(f"{name}: {found.shards_per_batch:.1f} shards per batch", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    ticks = [0, N // 2, N]
    axes[0, 0].set(xlim=(0, N), ylim=(0, N), xticks=ticks, yticks=ticks)
    axes[0, 0].set_xticklabels([f"{tick // 1000}" for tick in ticks])
    axes[0, 0].set_yticklabels([f"{tick // 1000}" for tick in ticks])
    figure.supxlabel("position in training, thousands", fontsize=10)
    figure.supylabel("row in storage, thousands", fontsize=10)
    figure.savefig(Path(__file__).parents[1] / "shuffle.png", dpi=110)


if __name__ == "__main__":
    main()
