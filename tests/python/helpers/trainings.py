"""Small trainings with the Trainer of Hugging Face, in this process, or as a program for torchrun and SIGKILL.

python trainings.py '[{"folder": ..., "output": ...}, ...]'
"""

import hashlib
import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

import forebay
from forebay.torch import rank_and_world_size
from forebay.transformers import Trainer
from recordings import TINY
from utterances import UTTERANCES

STEPS = 7
"""Between checkpoints."""


class Net(nn.Module):  # type: ignore[misc]
    """A layer over the spectrogram, and noise; keeps the row numbers that it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 6, 4))
        self.taken: list[Any] = []

    def forward(self, spectrogram: torch.Tensor, index: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.taken.append(index.tolist())
        logits = self.layer(spectrogram)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits, "rows": index}


class Utterances(Net):
    """A layer over the mean of the valid frames of whole recordings; keeps the row numbers as `Net` does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 4))

    def forward(self, spectrogram: Any, valid_frames: Any, index: Any, labels: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        is_valid = torch.arange(spectrogram.shape[-1]) < valid_frames[:, None]
        means = (spectrogram * is_valid[:, None]).sum(-1) / valid_frames[:, None]
        return super().forward(means, index, labels % 4)


class Words(GPT2LMHeadModel):  # type: ignore[misc]
    """A GPT of 2 layers over bytes; keeps the tokens that it was trained on."""

    def __init__(self) -> None:
        super().__init__(GPT2Config(vocab_size=257, n_positions=64, n_embd=8, n_layer=2, n_head=2))
        self.taken: list[Any] = []

    def forward(self, input_ids: Any = None, labels: Any = None, **rest: Any) -> Any:
        if self.training:
            self.taken.append(of_tokens(input_ids, rest["shift_labels"]))
        return super().forward(input_ids, labels=labels, **rest)


def of_tokens(inputs: Any, targets: Any) -> str:
    """A number for the tokens of a batch."""
    return hashlib.sha256(bytes(str((inputs.tolist(), targets.tolist())), "ascii")).hexdigest()[:16]


def encode(text: str) -> list[int]:
    return list(text.encode())


def make_loader(folder: str | Path, tokens: bool = False, utterances: bool = False, **parameters: Any) -> Any:
    """Of the shards in a folder, such as `mixed_folder`; of utterances, of their table."""
    if utterances:
        return forebay.Loader(folder, **{**UTTERANCES, "n_streams": 2, **parameters})
    if tokens:
        sizes: dict[str, Any] = {"batch_size": 4, "seq_len": 63, "buffer_size": 20, "bos_id": 256}
        return forebay.TokenLoader(folder, encode, **{**sizes, "seed": 3, "n_streams": 2, **parameters})
    small: dict[str, Any] = {**TINY, "seed": 4, "batch_size": 16, "shuffle_min_size": 40, "n_workers": 2}
    return forebay.Loader(sorted(Path(folder).glob("*.arrow")), **{**small, "n_streams": 2, **parameters})


class Tap(TrainerCallback):  # type: ignore[misc]
    """Writes the batches of each step to a file, and ends the process by SIGKILL before step `kill_at`."""

    def __init__(self, path: Path, taken: list[Any], kill_at: int | None) -> None:
        self.path, self.taken, self.kill_at = path, taken, kill_at

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if self.kill_at is not None and state.global_step + 1 == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        self.path.write_text(json.dumps({"taken": self.taken, "step": state.global_step, "epoch": state.epoch}))


def arguments(output: str | Path, **changes: Any) -> TrainingArguments:
    """Without reports, progress bars and a network."""
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True, "log_level": "error"}
    return TrainingArguments(str(output), **{**quiet, "save_steps": STEPS, "seed": 1, **changes})


def run(
    folder: str | Path,
    output: str | Path,
    *,
    tokens: bool = False,
    utterances: bool = False,
    loader: dict[str, Any] | None = None,
    resume: str | bool | None = None,
    kill_at: int | None = None,
    name: str = "whole",
    **changes: Any,
) -> Trainer:
    """One training; its batches are in `output` in the file `name`-`rank`.json, if it comes to its end."""
    args = arguments(output, **changes)
    torch.manual_seed(0)
    model = Words() if tokens else Utterances() if utterances else Net()
    ranks = rank_and_world_size()
    with make_loader(folder, tokens, utterances, **{**ranks, **(loader or {})}) as batches:
        path = Path(output, f"{name}-{ranks['rank']}.json")
        trainer = Trainer(model, args, train_dataset=batches, callbacks=[Tap(path, model.taken, kill_at)])
        trainer.train(resume_from_checkpoint=resume)
    return trainer


def evaluate(
    folder: str | Path, output: str | Path, *, tokens: bool = False, loader: dict[str, Any], name: str, **changes: Any
) -> None:
    """One evaluation; rank 0 writes its metrics, and the row numbers of its predictions, to the file `name`.json."""
    args = arguments(output, **changes)
    torch.manual_seed(0)
    model = Words() if tokens else Net()
    calls: list[bool] = []
    sums = Counter[str]()

    def metrics(predicted: Any, compute_result: bool = True) -> dict[str, Any]:
        """Of one evaluation, or of the batches of one."""
        calls.append(compute_result)
        sums.update(rows=len(predicted.label_ids), labels=int(predicted.label_ids.sum()))
        found = dict(sums)
        if compute_result:
            sums.clear()
        return found

    with make_loader(folder, tokens, infinite=False, **{**rank_and_world_size(), **loader}) as batches:
        trainer = Trainer(model, args, compute_metrics=metrics)
        found = trainer.evaluate(batches)
        assert trainer.evaluate(batches)["eval_loss"] == found["eval_loss"]
        predicted = trainer.predict(batches)
    index = [] if tokens else predicted.predictions[1].tolist()
    ends = {"calls": calls[: len(calls) // 3], "num_examples": int(predicted.metrics["test_rows"])}
    if trainer.is_world_process_zero():
        Path(output, f"{name}.json").write_text(json.dumps({**found, **ends, "index": index}))


def killed(scene: dict[str, Any]) -> None:
    """A training in a process of its own, which SIGKILL ends."""
    child = os.fork()
    if child == 0:
        try:
            run(**scene)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    logging.getLogger("forebay").setLevel(logging.ERROR)  # the shards have bad rows
    torch.set_num_threads(1)
    for scene in json.loads(sys.argv[1]):
        if scene.pop("evaluates", False):
            evaluate(**scene)
        elif "kill_at" in scene and "RANK" not in os.environ:
            killed(scene)
        else:
            run(**scene)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
