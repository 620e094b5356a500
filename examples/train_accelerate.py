"""Accelerate: a run on several processes that resumes where it was killed.

    accelerate launch --multi_gpu --num_processes 2 examples/train_accelerate.py run shards/*.arrow

Saves a checkpoint every 5 steps. Started again with the folder `run`, it resumes after the last one.
`run/rows-<rank>.txt` lists the rows of each step. With `--epochs 2` the loader is finite.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import forebay
import forebay.accelerate
from forebay.torch import rank_and_world_size


def train(folder: Path, shards: list[str], steps: int, epochs: int) -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    share = rank_and_world_size()  # after Accelerator(), which joins the processes
    # 12 rows a step and 4 streams: 1, 2 or 4 processes can resume.
    sizes: dict[str, Any] = {"batch_size": 12 // share["world_size"], "shuffle_min_size": 16, "n_streams": 4}
    loader = forebay.Loader.train(shards, infinite=not epochs, **sizes, **share)
    batches = forebay.accelerate.prepare(accelerator, loader)
    net = torch.nn.Linear(128, 4)  # on the mean of each mel band
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-4))
    folder.mkdir(exist_ok=True)
    step = 0
    if saved := sorted(folder.glob("step-*/done"), key=lambda done: int(done.read_text())):
        accelerator.load_state(str(saved[-1].parent))
        step = int(saved[-1].read_text())
    with (folder / f"rows-{accelerator.process_index}.txt").open("a", buffering=1) as rows:
        for _ in range(loader.epoch, epochs) if epochs else [0]:
            for batch in batches:
                if not epochs and step >= steps:
                    break
                with accelerator.accumulate(net):
                    loss = torch.nn.functional.cross_entropy(net(batch["spectrogram"].mean(2)), batch["label"] % 4)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                step += 1
                rows.write(f"{step} {batch['index'].tolist()} {accelerator.sync_gradients}\n")
                if step % 5 == 0:
                    accelerator.save_state(str(folder / f"step-{step}"))
                    accelerator.wait_for_everyone()
                    if accelerator.is_main_process:
                        (folder / f"step-{step}" / "done").write_text(str(step))  # the checkpoint is complete


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train on several processes, and resume.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("shards", nargs="+")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=0)
    train(**vars(parser.parse_args()))
