"""Lightning on bundled recordings, on one process or two. Kill it, run it again: it continues with the next batch.

python examples/train_lightning.py --folder run --devices 2
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from folds import CLIPS, KINDS, write_folds

import forebay
from forebay.lightning import DataModule


def training(folder: Path, *, world_size: int, **rank: Any) -> forebay.Loader:
    """The same 16 rows per step on one rank or two, because there are two streams from the start."""
    ranks = {"batch_size": 16 // world_size, "world_size": world_size, "n_streams": 2, **rank}
    return forebay.Loader.train(sorted(folder.glob("*-[12].arrow")), **CLIPS, **ranks)


def held_out(folder: Path, **ranks: Any) -> forebay.Loader:
    return forebay.Loader.eval(sorted(folder.glob("*-0.arrow")), batch_size=4, **CLIPS, **ranks)


class Net(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48 * 51, len(KINDS)))

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        print(f"rank {self.global_rank} step {self.global_step} rows {batch['index'].tolist()}\n", end="", flush=True)
        return torch.nn.functional.cross_entropy(self.layers(batch["spectrogram"] / 8), batch["label"])

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        right = self.layers(batch["spectrogram"] / 8).argmax(dim=1) == batch["label"]
        self.log("right", right.float().mean(), batch_size=len(right), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("run"))
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    folder, devices, steps = vars(parser.parse_args()).values()
    if not folder.exists():
        folder.mkdir()
        write_folds(folder)
    saves = lightning.pytorch.callbacks.ModelCheckpoint(folder, save_last=True, every_n_train_steps=5)
    parameters = {"devices": devices, "max_steps": steps, "val_check_interval": 10, "check_val_every_n_epoch": None}
    trainer = lightning.Trainer(**parameters, callbacks=[saves], logger=False, enable_progress_bar=False)
    last = folder / "last.ckpt" if (folder / "last.ckpt").exists() else None
    trainer.fit(Net(), DataModule(partial(training, folder), partial(held_out, folder)), ckpt_path=last)
