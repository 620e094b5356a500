"""The net of train_torch.py in the Trainer of Hugging Face, which saves and restores the position in the data.

    python examples/train_transformers.py --output runs/1
    torchrun --nproc-per-node 2 examples/train_transformers.py --output runs/2

Started again with the same folder, it resumes from the last checkpoint; `--kill-at` ends it as a preemption would.
"""

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
from folds import CLIPS, train_loader, write_folds
from train_torch import make_net, scaled
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import forebay
from forebay.torch import rank_and_world_size
from forebay.transformers import TrainerMixin


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def forward(self, spectrogram: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(scaled(spectrogram))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class MyTrainer(TrainerMixin, Trainer): ...  # type: ignore[misc]


class Kill(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == options.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser(description="Train a small net on bundled recordings.")
parser.add_argument("--output", default="runs/transformers")
parser.add_argument("--kill-at", type=int, default=0, help="step")
options = parser.parse_args()
common: dict[str, Any] = {"use_cpu": not torch.cuda.is_available(), "report_to": "none", "disable_tqdm": True}
args = TrainingArguments(options.output, max_steps=24, save_steps=8, eval_strategy="steps", eval_steps=12, **common)
with args.main_process_first():
    (shards := Path(options.output, "shards")).mkdir(parents=True, exist_ok=True)
    fold = write_folds(shards)[0]
last, ranks = get_last_checkpoint(options.output), rank_and_world_size()
training, evaluation = train_loader(fold, 16, **ranks), forebay.Loader.eval(fold.held_out, **CLIPS, **ranks)
with training, evaluation:
    trainer = MyTrainer(Net(), args, train_dataset=training, eval_dataset=evaluation, callbacks=[Kill()])
    trainer.compute_metrics = lambda told: {"right": float((told.predictions.argmax(1) == told.label_ids).mean())}
    trainer.train(resume_from_checkpoint=last)
    print(f"began at {last or 'step 0'}, ended at step {trainer.state.global_step}")
