"""torchrun and torchdata's `StatefulDataLoader` on two processes, with kill -9 and resume; a short last batch."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import forebay
from launched import TORCHRUN, global_batches, kill_at, run, steps
from paths import EXAMPLES
from recordings import TINY

torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

import forebay.torch  # noqa: E402


def example(n: int, folder: Path, shards: list[Path]) -> list[object]:
    return [*TORCHRUN, f"--nproc_per_node={n}", EXAMPLES / "train_torchdata.py", folder, *shards]


@pytest.mark.parametrize("step", [13, 19])  # a checkpoint at the end of the first pass, and one in the second
def test_killed_and_resumed_on_two_processes(step: int, tiny_shards: list[Path], tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(example(2, whole, tiny_shards))
    kill_at(step, example(2, killed, tiny_shards), killed, 2)
    run(example(2, killed, tiny_shards))
    assert [steps(killed, rank) for rank in range(2)] == [steps(whole, rank) for rank in range(2)]
    rows = list(global_batches(whole, 2).values())
    with forebay.Loader.eval(tiny_shards, **TINY) as loader:
        good = [row for batch in loader for row in batch["index"].tolist()]
    assert [sorted(chain.from_iterable(part)) for part in (rows[:12], rows[12:])] == [good, good]


def test_the_loss_counts_the_rows_of_all_ranks(tiny_shards: list[Path]) -> None:
    """300 rows in batches of 23 on 13 ranks: the last batch has one row, and 12 ranks have none."""
    shares = [forebay.Loader.eval(tiny_shards, **TINY, batch_size=23, rank=rank, world_size=13) for rank in range(13)]
    net = torch.nn.Linear(8, 4)

    def gradient(batch: dict[str, Any], scale: float) -> Any:
        net.zero_grad()
        predicted = net(batch["spectrogram"].mean(2))
        loss = torch.nn.functional.cross_entropy(predicted, batch["label"] % 4, reduction="sum")
        (loss * scale).backward()
        return net.weight.grad.clone()

    last = [list(forebay.torch.DataLoader(share))[-1] for share in shares]
    sizes = [len(batch["index"]) for batch in last]
    assert sorted(sizes) == [0] * 12 + [1]
    averaged = sum(gradient(batch, 13 / sum(sizes)) for batch in last) / 13
    together = {name: torch.cat([batch[name] for batch in last]) for name in ("spectrogram", "label")}
    torch.testing.assert_close(averaged, gradient(together, 1 / sum(sizes)))
