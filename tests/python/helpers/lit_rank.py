"""One rank of a run of Lightning, in a process of its own; see `test_torch_lightning_ranks`.

Each batch trained is a line of JSON in `log`. At the batch `kill_at` the process kills itself.
"""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch

import documents
import forebay
import lit
from forebay.lightning import DataModule
from recordings import SMALL, TINY


def made(kind: str, data: Any, **ranks: Any) -> Any:
    """A loader of global batches of 16 rows of recordings, or 4 rows of tokens."""
    world_size = ranks["world_size"]
    if kind == "tokens":
        return documents.loader(data, batch_size=4 // world_size, n_streams=2, seed=3, **ranks)
    parameters: dict[str, Any] = {
        **SMALL,
        "batch_size": 16 // world_size,
        "n_streams": 2,
        "infinite": kind == "infinite",
    }
    return forebay.Loader(data, **parameters, **ranks)


def held_out(data: Any, **ranks: Any) -> Any:
    return forebay.Loader.eval(data, **TINY, n_workers=1, **ranks)


def run(environment: dict[str, str], *plans: dict[str, Any]) -> None:
    """Carries out the plans, one after the other."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    for plan in plans:
        carry_out(plan, int(os.environ.get("LOCAL_RANK", "0")))


def carry_out(plan: dict[str, Any], rank: int) -> None:
    folder, kill_at = Path(plan["folder"]), plan["kill_at"]
    log = (folder / f"{plan['log']}.{rank}").open("w", buffering=1)

    def training_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG001
        log.write(json.dumps(lit.rows(batch)) + "\n")
        self.seen.append(None)
        if len(self.seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return (self.weight - lit.number_of(batch)) ** 2

    checkpoints = lightning.callbacks.ModelCheckpoint(
        folder, filename="{step}", every_n_train_steps=5, save_top_k=-1, auto_insert_metric_name=False
    )
    trainer = lit.trainer(
        devices=plan["devices"], strategy="ddp" if plan["devices"] > 1 else "auto", max_steps=plan["steps"],
        enable_checkpointing=True, callbacks=[checkpoints], check_val_every_n_epoch=None, val_check_interval=7,
    )  # fmt: skip
    data = DataModule(partial(made, plan["kind"], plan["data"]), partial(held_out, plan["eval"]))
    with log:
        trainer.fit(lit.net(training_step=training_step), data, ckpt_path=plan["resume"])
