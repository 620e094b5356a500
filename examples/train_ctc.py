"""Trains a small CTC model in PyTorch on spoken digits, kills it in the middle, and resumes it.

    python examples/train_ctc.py [--kill 170]

Utterances of two to eight digits are joined from 80 recordings of two speakers (tests/data/digits), with their texts in
words: `three one four`. Held-out utterances consist of takes that no training utterance has. A child process trains on
batches by duration and saves model, optimizer and loader every 20 steps. The parent kills it (SIGKILL) after step
`--kill` and starts it again, with another number of workers. Its weights must then equal those of an uninterrupted run
bit for bit. With the defaults about 1 % of the held-out characters are wrong; more than 20 % is an error.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import forebay as fb
from forebay.torch import to_tensors

DIGITS = Path(__file__).parents[1] / "tests" / "data" / "digits"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LETTERS = " efghinorstuvwxz"
"""The characters of the words. The blank of CTC is 0, so the space is 1."""
RATE = 8000
SAVE_EVERY = 20

SPEECH: dict[str, Any] = {
    "crop": fb.crops.Whole(),
    "features": fb.features.Fbank(sample_rate=RATE, win_length=200, hop_length=80, n_mels=40, layout="time"),
    "targets": {"letters": fb.targets.Characters("text", LETTERS, blank=0)},
}
"""Parameters of both loaders: whole utterances, Kaldi's features, and the ids of their characters."""


def write_utterances(table: Path, takes: str, n: int, seed: int) -> None:
    """Writes `n` WAV files beside `table`, which has their path, duration (s) and text."""
    chance, rows = random.Random(seed), []
    for number in range(n):
        speaker, digits = chance.choice(["jackson", "theo"]), chance.choices(range(10), k=chance.randint(2, 8))
        parts = [np.zeros(RATE // 10)]
        for digit in digits:
            with wave.open(str(DIGITS / f"{digit}_{speaker}_{chance.choice(takes)}.wav")) as file:
                sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
            parts += [0.5 * sound / np.abs(sound).max(), np.zeros(chance.randint(RATE // 50, RATE // 5))]
        samples = np.concatenate(parts) + np.random.default_rng([seed, number]).normal(0, 0.002, sum(map(len, parts)))
        path = table.with_name(f"{table.stem}-{number:03}.wav")
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes((32767 * samples.clip(-1, 1)).astype("<i2").tobytes())
        text = " ".join(WORDS[digit] for digit in digits)
        rows.append({"path": path.name, "duration": len(samples) / RATE, "text": text})
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Net(nn.Module):  # type: ignore[misc]
    """Convolutions over time, of which two halve the frames, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out, width, stride in ((40, 96, 5, 2), (96, 96, 5, 2), (96, 96, 7, 1), (96, 96, 7, 1)):
            layers += [nn.Conv1d(n_in, n_out, width, stride, width // 2), nn.BatchNorm1d(n_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv1d(96, 1 + len(LETTERS), 1))

    def forward(self, spectrogram: torch.Tensor, valid_frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities `[frames, batch, classes]` for CTC, and the frames of each row that are not padding."""
        scaled = (spectrogram + 8) / 4  # log energies, from -16 (silence) to 2
        return self.layers(scaled.transpose(1, 2)).permute(2, 0, 1).log_softmax(dim=2), (valid_frames + 3) // 4


def train(table: Path, checkpoint: Path, steps: int, n_workers: int) -> None:
    """Trains to step `steps`, from the checkpoint if there is one."""
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, steps, pct_start=0.2)
    with fb.Loader.train(
        table,
        seed=1,
        n_workers=n_workers,
        batching=fb.batching.Buckets(max_duration=60.0, num_buckets=6),
        augment=[fb.augment.Speed((0.9, 1.0, 1.1)), fb.augment.SpecAugment(freq=8, n_freq=2, time=10, n_time=2)],
        **SPEECH,
    ) as loader:
        parts = {"model": net, "optimizer": optimizer, "schedule": schedule, "loader": loader}
        if checkpoint.exists():
            saved = torch.load(checkpoint)
            for name, part in parts.items():
                part.load_state_dict(saved[name])
        print(f"after step {loader.batch}: {loader}", flush=True)
        for step in range(loader.batch + 1, steps + 1):
            batch = to_tensors(next(loader))
            scores, lengths = net(batch["spectrogram"], batch["valid_frames"])
            loss = nn.functional.ctc_loss(
                scores, batch["letters"], lengths, batch["letters_length"], zero_infinity=True
            )  # infinite where an utterance has fewer frames than characters
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 0:
                shape = list(batch["spectrogram"].shape)
                print(f"  step {step:>3}  loss {loss.item():.3f}  batch {shape}", flush=True)
            if step % SAVE_EVERY == 0 or step == steps:
                fresh = checkpoint.with_suffix(".new")
                torch.save({name: part.state_dict() for name, part in parts.items()}, fresh)
                fresh.replace(checkpoint)  # a checkpoint is complete or absent


def decode(best: list[int]) -> str:
    """The text of the best class of each frame: runs are one character, blanks are none."""
    return "".join(LETTERS[k - 1] for k, before in zip(best, [0, *best], strict=False) if k not in (0, before))


def edits(found: str, truth: str) -> int:
    """Insertions, deletions and substitutions from one text to another (Levenshtein distance)."""
    row = list(range(len(truth) + 1))
    for i, a in enumerate(found, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(truth, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def evaluate(table: Path, weights: dict[str, torch.Tensor]) -> float:
    """The share of wrong characters over all utterances of a table."""
    net = Net().eval()
    net.load_state_dict(weights)
    wrong = total = 0
    batching = fb.batching.Buckets(max_duration=60.0, num_buckets=6)
    with torch.no_grad(), fb.Loader.eval(table, batching=batching, columns=["text"], **SPEECH) as loader:
        for batch in map(to_tensors, loader):
            scores, lengths = net(batch["spectrogram"], batch["valid_frames"])
            for best, length, truth in zip(scores.argmax(dim=2).T, lengths, batch["text"], strict=True):
                found = decode(best[:length].tolist())
                if total == 0:
                    print(f"heard:  {found}\nspoken: {truth}")
                wrong, total = wrong + edits(found, truth), total + len(truth)
    return wrong / total


def run(
    table: Path, checkpoint: Path, steps: int, n_workers: int = 2, kill: int | None = None
) -> dict[str, torch.Tensor]:
    """Trains in a child process, which is killed after step `kill`; returns the weights of its last checkpoint."""
    command = [sys.executable, __file__, "--train", str(table), str(checkpoint)]
    command += ["--steps", str(steps), "--workers", str(n_workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            if kill is not None and line.startswith("  step") and int(line.split()[1]) >= kill:
                child.kill()
    if child.returncode != (0 if kill is None else -signal.SIGKILL):
        sys.exit(f"the training process ended with {child.returncode}")
    return dict(torch.load(checkpoint)["model"])


def main() -> None:
    """Trains twice, once with a kill, compares the weights, and measures the error on held-out utterances."""
    parser = argparse.ArgumentParser(description="Train a small CTC model on spoken digits, and resume it.")
    parser.add_argument("--steps", type=int, default=300, help="batches of at most 60 s")
    parser.add_argument("--kill", type=int, default=170, help="step after which one of the runs is killed")
    parser.add_argument("--reach", type=float, default=0.2, help="share of held-out characters that may be wrong")
    parser.add_argument("--train", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the sums of a run do not depend on the machine's cores then
    torch.use_deterministic_algorithms(True)
    if arguments.train:
        table, checkpoint = arguments.train
        train(table, checkpoint, arguments.steps, arguments.workers)
        return
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_utterances(folder / "train.jsonl", "012", n=500, seed=0)
        write_utterances(folder / "held_out.jsonl", "3", n=60, seed=1)
        whole = run(folder / "train.jsonl", folder / "whole.pt", arguments.steps)
        print(f"\nthe same again, killed after step {arguments.kill}")
        run(folder / "train.jsonl", folder / "killed.pt", arguments.steps, kill=arguments.kill)
        resumed = run(folder / "train.jsonl", folder / "killed.pt", arguments.steps, n_workers=1)
        error = evaluate(folder / "held_out.jsonl", resumed)
    differ = [layer for layer, weights in whole.items() if not torch.equal(weights, resumed[layer])]
    if differ:
        sys.exit(f"after the kill these weights differ from those of the uninterrupted run: {', '.join(differ)}")
    print(f"all weights equal those of the uninterrupted run\n{error:.1%} of the held-out characters are wrong")
    print(f"{time.perf_counter() - start:.0f} s")
    if error > arguments.reach:
        sys.exit(f"expected at most {arguments.reach:.0%}")


if __name__ == "__main__":
    main()
