"""torch DataLoader over mapped shards, soundfile seeks the window: what a careful engineer writes by hand."""

from torch.utils.data import DataLoader, Dataset

from peers.rows import Rows
from peers.work import BATCH_SIZE, new_mel, read_window, rng_of

SWEEP = [
    {"n_workers": n_workers, "mel": mel, "prefetch": 2} for n_workers in (2, 3) for mel in ("torch", "scipy")
]


class Clips(Dataset):
    def __init__(self, files: list[str], seed: int, mel: str):
        self.rows, self.seed, self.mel_name, self.mel = Rows(files), seed, mel, None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: tuple[int, int]) -> dict:
        epoch, index = key
        if self.mel is None:  # made in the worker
            self.mel = new_mel(self.mel_name)
        waveform = read_window(self.rows.file(index), rng_of(self.seed, epoch * len(self) + index))
        return {"spectrogram": self.mel(waveform).copy(), "label": self.rows[index][1], "index": index}


class Shuffled:
    """Endless shuffled `(epoch, index)` keys, so that no epoch's end drains the workers."""

    def __init__(self, n_rows: int, seed: int):
        self.n_rows, self.seed = n_rows, seed

    def __iter__(self):
        epoch = 0
        while True:
            for index in rng_of(self.seed, epoch).permutation(self.n_rows):
                yield epoch, int(index)
            epoch += 1


def one_thread(_worker: int) -> None:
    import torch

    torch.set_num_threads(1)


def batches(files: list[str], seed: int, n_workers: int, mel: str, prefetch: int):
    clips = Clips(files, seed, mel)
    yield from DataLoader(
        clips,
        batch_size=BATCH_SIZE,
        sampler=Shuffled(len(clips), seed),
        num_workers=n_workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        worker_init_fn=one_thread,
    )
