"""MosaicML streaming: the shards rewritten as MDS once, `StreamingDataset` with torch's DataLoader."""

import io
import shutil
from pathlib import Path

from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

from peers.rows import Rows
from peers.work import BATCH_SIZE, Clips, rng_of

SWEEP = [{"n_workers": 2, "mel": "scipy"}, {"n_workers": 3, "mel": "scipy"}, {"n_workers": 2, "mel": "torch"}]


def rewrite(files: list[str]) -> str:
    """The same recordings as MDS beside the shards' folder; written by the first call."""
    folder = Path(files[0]).parent.parent.parent / "mosaicml" / Path(files[0]).parent.name
    if not (folder / "index.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        rows = Rows(files)
        with MDSWriter(out=str(folder), columns={"audio": "bytes", "label": "int", "index": "int"}) as out:
            for index in range(len(rows)):
                audio, label = rows[index]
                out.write({"audio": audio.to_pybytes(), "label": label, "index": index})
    return str(folder)


class Examples(StreamingDataset):
    def __init__(self, folder: str, seed: int, mel: str):
        super().__init__(local=folder, shuffle=True, shuffle_seed=seed, batch_size=BATCH_SIZE)
        self.seed, self.clips, self.count = seed, Clips(mel), 0

    def __getitem__(self, index: int) -> dict:
        row = super().__getitem__(index)
        self.count += 1
        spectrogram = self.clips(io.BytesIO(row["audio"]), rng_of(self.seed, index * 1_000_003 + self.count))
        return {"spectrogram": spectrogram, "label": row["label"], "index": row["index"]}


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    examples = Examples(rewrite(files), seed, mel)
    loader = DataLoader(examples, batch_size=BATCH_SIZE, num_workers=n_workers, persistent_workers=True, drop_last=True)
    while True:
        yield from loader
