"""Grain: a shuffled, repeated `MapDataset` over the mapped shards, read by threads or by processes."""

import grain

from peers.rows import Rows
from peers.work import BATCH_SIZE, Clips, collate

SWEEP = [
    {"kind": kind, "n_workers": n_workers, "mel": mel}
    for kind, n_workers, mel in (
        ("threads", 2, "scipy"),
        ("threads", 2, "torch"),
        ("processes", 2, "scipy"),
        ("processes", 3, "scipy"),
        ("processes", 2, "torch"),
    )
]


class Source:
    """Row numbers; the map step reads the bytes, then decodes them."""

    def __init__(self, n_rows: int):
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, index: int) -> int:
        return int(index)


class Example:
    def __init__(self, rows: Rows, mel: str):
        self.rows, self.clips = rows, Clips(mel)

    def __call__(self, index: int, rng) -> tuple:
        return self.clips(self.rows.file(index), rng), self.rows[index][1], index


def batches(files: list[str], seed: int, kind: str, n_workers: int, mel: str):
    rows = Rows(files)
    examples = grain.MapDataset.source(Source(len(rows))).seed(seed).shuffle().repeat().random_map(Example(rows, mel))
    if kind == "threads":
        options = grain.ReadOptions(num_threads=n_workers, prefetch_buffer_size=2 * BATCH_SIZE)
        return iter(examples.to_iter_dataset(options).batch(BATCH_SIZE, batch_fn=collate))
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    workers = grain.MultiprocessingOptions(num_workers=n_workers, per_worker_buffer_size=2)
    return iter(examples.to_iter_dataset(options).batch(BATCH_SIZE, batch_fn=collate).mp_prefetch(workers))
