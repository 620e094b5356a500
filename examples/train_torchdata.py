"""torchrun and torchdata's StatefulDataLoader: two passes on several processes, resumed where they were killed.

    torchrun --nproc_per_node 2 examples/train_torchdata.py run shards/*.arrow

Started again with the same folder `run`, it resumes after the last checkpoint. `run/rows-<rank>.txt` lists the
rows of each step. The last batch of a pass is short: the loss counts the rows of all ranks.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import forebay
from forebay.torch import IterableDataset, rank_and_world_size


def train(folder: Path, shards: list[str], epochs: int) -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    loader = forebay.Loader(shards, batch_size=13, shuffle_min_size=40, infinite=False, **rank_and_world_size())
    batches = StatefulDataLoader(IterableDataset(loader), batch_size=None)
    net = DistributedDataParallel(torch.nn.Linear(128, 4))  # on the mean of each mel band
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    folder.mkdir(exist_ok=True)
    checkpoint, step, epoch = folder / "checkpoint.pt", 0, 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        net.load_state_dict(saved["net"])
        batches.load_state_dict(saved["batches"])  # rank 0's, which serves all ranks
        step, epoch = saved["step"], saved["epoch"]
    with (folder / f"rows-{dist.get_rank()}.txt").open("a", buffering=1) as rows:
        for _ in range(epoch, epochs):
            for batch in batches:
                n = torch.tensor(len(batch["index"]))
                dist.all_reduce(n)
                predicted = net(batch["spectrogram"].mean(2))
                # A sum, which is 0 for no rows, where a mean is NaN. The processes' gradients are averaged.
                loss = torch.nn.functional.cross_entropy(predicted, batch["label"] % 4, reduction="sum")
                (loss * dist.get_world_size() / n).backward()
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                rows.write(f"{step} {batch['index'].tolist()} {float(net.module.weight.sum()):.6f}\n")
                if step % 4 == 0 and dist.get_rank() == 0:
                    new, position = folder / "new.pt", {"step": step, "epoch": loader.state_dict()["epoch"]}
                    torch.save({"net": net.state_dict(), "batches": batches.state_dict(), **position}, new)
                    new.replace(checkpoint)  # a checkpoint is complete or not there
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train on several processes, and resume.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("shards", nargs="+")
    train(**vars(parser.parse_args()), epochs=2)
