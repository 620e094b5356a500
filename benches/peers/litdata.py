"""litdata: the shards rewritten as its chunks once, `StreamingDataset` and `StreamingDataLoader`."""

import io
from pathlib import Path

from litdata import StreamingDataLoader, StreamingDataset, optimize

from peers.rows import Rows
from peers.work import BATCH_SIZE, Clips, rng_of

SWEEP = [{"n_workers": 2, "mel": "scipy"}, {"n_workers": 3, "mel": "scipy"}, {"n_workers": 2, "mel": "torch"}]


def row_of(arguments: tuple[list[str], int]) -> dict:
    files, index = arguments
    audio, label = Rows(files)[index]
    return {"audio": audio.to_pybytes(), "label": label, "index": index}


def rewrite(files: list[str]) -> str:
    """The same recordings as chunks beside the shards' folder; written by the first call."""
    folder = Path(files[0]).parent.parent.parent / "litdata" / Path(files[0]).parent.name
    if not (folder / "index.json").exists():
        inputs = [(files, index) for index in range(len(Rows(files)))]
        optimize(row_of, inputs, output_dir=str(folder), chunk_bytes="32MB", num_workers=1, mode="overwrite")
    return str(folder)


class Examples(StreamingDataset):
    def __init__(self, folder: str, seed: int, mel: str):
        super().__init__(folder, shuffle=True, drop_last=True, seed=seed)
        self.crop_seed, self.clips, self.count = seed, Clips(mel), 0

    def __getitem__(self, index) -> dict:
        row = super().__getitem__(index)
        self.count += 1
        rng = rng_of(self.crop_seed, row["index"] * 1_000_003 + self.count)
        return {"spectrogram": self.clips(io.BytesIO(row["audio"]), rng), "label": row["label"], "index": row["index"]}


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    examples = Examples(rewrite(files), seed, mel)
    loader = StreamingDataLoader(
        examples, batch_size=BATCH_SIZE, num_workers=n_workers, drop_last=True, persistent_workers=True
    )
    while True:
        yield from loader
