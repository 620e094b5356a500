"""Hugging Face `Audio` + torch DataLoader, the usual way: the whole recording is decoded, then cropped."""

import torch
from datasets import Audio, Dataset, concatenate_datasets
from torch.utils.data import DataLoader

from peers.work import BATCH_SIZE, CLIP_SAMPLES, SAMPLE_RATE, TorchMel

SWEEP = [{"n_workers": n_workers} for n_workers in (2, 3)]


class Transform:
    """A random clip of each decoded recording, as log-mel."""

    def __init__(self):
        self.mel = None

    def __call__(self, rows: dict) -> dict:
        if self.mel is None:
            self.mel = TorchMel()
        clips = [self.mel(self.clip(decoder)).copy() for decoder in rows["audio"]]
        return {"spectrogram": clips, "label": rows["label"]}

    def clip(self, decoder):
        waveform = decoder.get_all_samples().data.mean(dim=0)
        missing = CLIP_SAMPLES - len(waveform)
        if missing > 0:
            return torch.nn.functional.pad(waveform, (0, missing)).numpy()
        start = int(torch.randint(len(waveform) - CLIP_SAMPLES + 1, ()))
        return waveform[start : start + CLIP_SAMPLES].numpy()


def one_thread(_worker: int) -> None:
    torch.set_num_threads(1)


def batches(files: list[str], seed: int, n_workers: int):
    rows = concatenate_datasets([Dataset.from_file(path) for path in files])
    rows = rows.cast_column("audio", Audio(sampling_rate=SAMPLE_RATE)).with_transform(Transform())
    loader = DataLoader(
        rows,
        batch_size=BATCH_SIZE,
        shuffle=True,
        drop_last=True,
        num_workers=n_workers,
        persistent_workers=True,
        worker_init_fn=one_thread,
        generator=torch.Generator().manual_seed(seed),
    )
    while True:
        yield from loader
