"""Trains a small transformer in PyTorch on the batches of a provider in examples/queue while the provider writes them.

    python examples/train_queue.py                                   # starts and stops its own provider
    python examples/train_queue.py --provider mlm --steps 300
    python examples/train_queue.py --data_dir /tmp/char_lm           # the provider runs elsewhere

Batches are tuples (x, y) or dicts of input_ids, attention_mask and labels; the validation loss comes from the same
consumer. With --checkpoint the run saves its state, and resumes exactly where the last run saved.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from forebay.queue import DatasetConsumer

PROVIDERS = ("char_lm", "char_diffusion", "mlm", "classification")


class Net(nn.Module):  # type: ignore[misc]
    """One layer of attention over tokens, with a prediction for each token or for the row."""

    def __init__(self, meta: dict[str, Any], width: int = 64) -> None:
        super().__init__()
        self.is_causal = meta["training_type"] == "LM"
        self.is_of_rows = meta["training_type"] == "CLASSIFICATION"
        self.token = nn.Embedding(meta["vocab_size"], width)
        self.place = nn.Parameter(0.02 * torch.randn(meta["block_size"], width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True)
        self.out = nn.Linear(width, len(meta["label_map"]) if self.is_of_rows else meta["vocab_size"])

    def forward(self, tokens: Any, padding: Any) -> Any:
        """Logits `[batch, place, token]` or `[batch, class]`."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]) if self.is_causal else None
        mask = mask if mask is None else mask.to(tokens.device)
        hidden = self.layer(self.token(tokens) + self.place, src_mask=mask, src_key_padding_mask=padding)
        return self.out(hidden.mean(dim=1) if self.is_of_rows else hidden)

    def loss(self, batch: Any) -> Any:
        """The mean cross-entropy of a batch, a tuple or a dict."""
        padding = None
        if isinstance(batch, tuple):
            tokens, target = batch
        else:
            tokens, target = batch["input_ids"], batch["labels"]
            padding = torch.zeros(tokens.shape, device=tokens.device).masked_fill(batch["attention_mask"] == 0, -1e9)
        logits = self(tokens, padding)
        if target.ndim > 1:
            logits = logits[:, -target.shape[1] :].flatten(0, 1)
        return nn.functional.cross_entropy(logits, target.flatten(), ignore_index=-100)


def validation_loss(net: Net, consumer: DatasetConsumer, n_batches: int) -> float:
    """The mean over some batches of the split val."""
    net.eval()
    with torch.no_grad():
        losses = [net.loss(consumer.get_batch("val", timeout=60)).item() for _ in range(n_batches)]
    net.train()
    return float(sum(losses)) / n_batches


def train(data_dir: Path, arguments: argparse.Namespace) -> tuple[float, float]:
    """Trains, and returns the validation loss before and after."""
    torch.manual_seed(0)
    device, checkpoint = arguments.device, arguments.checkpoint
    delete: Any = "on_state" if checkpoint else "consumed"
    with DatasetConsumer(data_dir, device, delete=delete) as consumer:
        net = Net(consumer.meta).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        if checkpoint and checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
            consumer.load_state_dict(saved["consumer"])
        before = loss = validation_loss(net, consumer, 10)
        print(f"step    0  validation loss {before:.3f}")
        for step in range(1, arguments.steps + 1):
            batch_loss = net.loss(consumer.get_batch("train", timeout=60))
            optimizer.zero_grad()
            batch_loss.backward()
            optimizer.step()
            if step % 50 == 0 or step == arguments.steps:
                loss = validation_loss(net, consumer, 10)
                print(f"step {step:>4}  loss {batch_loss.item():.3f}  validation loss {loss:.3f}")
                if checkpoint:
                    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**state, "consumer": consumer.state_dict()}, checkpoint)
        print(consumer.stats())
    return before, loss


@contextlib.contextmanager
def provider(name: str, data_dir: Path) -> Iterator[None]:
    """Runs a provider in a separate process."""
    script = Path(__file__).parent / "queue" / f"{name}.py"
    command = [sys.executable, str(script), "--data_dir", str(data_dir), "--sleep_seconds", "0.05"]
    with subprocess.Popen(command) as process:
        try:
            while not (data_dir / "meta.pkl").exists():
                if process.poll() is not None:
                    raise RuntimeError(f"{script} ended with {process.returncode}")
                time.sleep(0.05)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on a file queue.")
    parser.add_argument("--data_dir", type=Path, help="folder of a provider; without it one is started")
    parser.add_argument("--provider", choices=PROVIDERS, default="char_lm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path, help="file to save the state to, and to resume from if it exists")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.data_dir:
        train(arguments.data_dir, arguments)
        return
    with tempfile.TemporaryDirectory() as folder, provider(arguments.provider, Path(folder)):
        before, after = train(Path(folder), arguments)
    if after >= before:
        sys.exit(f"the validation loss rose from {before:.3f} to {after:.3f}")


if __name__ == "__main__":
    main()
