"""WebDataset: the shards rewritten as tars once, shuffled by its buffer, read by its own loader's processes.

A tar is read in order, so every recording is copied in full before its window is decoded.
"""

import io
import tarfile
from pathlib import Path

import webdataset

from peers.rows import Rows
from peers.work import BATCH_SIZE, Clips, collate, rng_of

SWEEP = [{"n_workers": 2, "mel": "scipy"}, {"n_workers": 3, "mel": "scipy"}, {"n_workers": 2, "mel": "torch"}]
N_TARS = 12


def tars(files: list[str]) -> list[str]:
    """The same recordings as tars beside the shards' folder; written by the first call."""
    folder = Path(files[0]).parent.parent.parent / "webdataset" / Path(files[0]).parent.name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = Rows(files)
        for number in range(N_TARS):
            with tarfile.open(folder / f"{number:03}.tar", "w") as tar:
                for index in range(number, len(rows), N_TARS):
                    audio, label = rows[index]
                    for extension, data in (("audio", audio.to_pybytes()), ("label", str(label).encode())):
                        member = tarfile.TarInfo(f"{index:06}.{extension}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
        (folder / "complete").touch()
    return [str(path) for path in sorted(folder.glob("*.tar"))]


class Example:
    def __init__(self, mel: str):
        self.clips, self.rng = Clips(mel), None

    def __call__(self, sample: dict) -> tuple:
        if self.rng is None:
            import torch.utils.data

            self.rng = rng_of(1, torch.utils.data.get_worker_info().id)
        spectrogram = self.clips(io.BytesIO(sample["audio"]), self.rng)
        return spectrogram, int(sample["label"]), int(sample["__key__"])


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    paths = tars(files)
    examples = (
        webdataset.WebDataset(
            paths, resampled=True, shardshuffle=False, seed=seed, nodesplitter=webdataset.split_by_node
        )
        .shuffle(20)
        .map(Example(mel))
        .batched(BATCH_SIZE, collation_fn=collate, partial=False)
    )
    return iter(webdataset.WebLoader(examples, batch_size=None, num_workers=n_workers, persistent_workers=True))
