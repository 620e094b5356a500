"""forebay: the loader under test, with small buffers, since the data set has 240 recordings."""

from forebay import Loader

SWEEP = [{"n_workers": n_workers} for n_workers in (2, 3, 4)]


def batches(files: list[str], seed: int, n_workers: int):
    window = {"order": "window", "shuffle_buffer_size": 256, "shuffle_min_size": 128}
    return Loader(files, seed=seed, n_workers=n_workers, **window)
