"""torch DataLoader over mapped shards; soundfile seeks to the window: a careful hand-written solution."""

import torch
from torch.utils.data import DataLoader, Dataset

from peers.rows import Rows
from peers.work import BATCH_SIZE, Clips, read_window, rng_of, shuffled

SWEEP = [{"n_workers": n_workers, "mel": mel} for n_workers in (2, 3) for mel in ("torch", "scipy")]


class Examples(Dataset):
    """Keys are `(position, index)`: the position in the stream keys the crop."""

    def __init__(self, files: list[str], seed: int, mel: str, read):
        self.rows, self.seed, self.clips = Rows(files), seed, Clips(mel, read)

    def __getitem__(self, key: tuple[int, int]) -> dict:
        position, index = key
        spectrogram = self.clips(self.rows.file(index), rng_of(self.seed, position))
        return {"spectrogram": spectrogram, "label": self.rows[index][1], "index": index}


class Shuffled:
    """An endless sampler, so that no end of an epoch drains the workers."""

    def __init__(self, n_rows: int, seed: int):
        self.n_rows, self.seed = n_rows, seed

    def __iter__(self):
        return shuffled(self.n_rows, self.seed)


def one_thread(_worker: int) -> None:
    torch.set_num_threads(1)


def batches(files: list[str], seed: int, n_workers: int, mel: str, read=read_window):
    """The same with another `read`, by peers that differ in it only."""
    return batches_of(Examples(files, seed, mel, read), n_workers)


def batches_of(examples: Examples, n_workers: int):
    return iter(
        DataLoader(
            examples,
            batch_size=BATCH_SIZE,
            sampler=Shuffled(len(examples.rows), examples.seed),
            num_workers=n_workers,
            prefetch_factor=2,
            persistent_workers=True,
            worker_init_fn=one_thread,
        )
    )
