"""Several recordings of a row beside soundfile in a DataLoader: examples per second.

    python benches/stems.py [--workers 2] [--seconds 10] [--works librimix musdb dynamic]

`librimix`: a mixture and two sources, WAV at 8 kHz, random 3 s of each, as asteroid's LibriMix dataset reads them.
`musdb`: four stems, stereo FLAC at 44.1 kHz, random 6 s. `dynamic`: noise is mixed into speech of one file at a random
signal-to-noise ratio, FLAC at 16 kHz, 4 s. The peer seeks with soundfile, as these datasets do, and collates in the
DataLoader of PyTorch, which it needs. All read the same files, warm, in turns; medians of three rounds.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent / "target" / "bench-stems"


class Work(NamedTuple):
    """The files of a row, and what is read of them."""

    columns: tuple[str, ...]
    rate: int
    channels: int
    ending: str
    file_seconds: float
    seconds: float
    rows: int
    batch: int


WORKS = {
    "librimix": Work(("mixture", "s1", "s2"), 8000, 1, "wav", 12.0, 3.0, 400, 24),
    "musdb": Work(("drums", "bass", "other", "vocals"), 44_100, 2, "flac", 60.0, 6.0, 24, 16),
    "dynamic": Work(("speech", "noise"), 16_000, 1, "flac", 15.0, 4.0, 300, 32),
}


def written(name: str, row: int) -> None:
    """Writes the files of a row: tones that come and go, and noise."""
    import soundfile

    work = WORKS[name]
    times = np.arange(round(work.file_seconds * work.rate)) / work.rate
    for stem, column in enumerate(work.columns):
        path = ROOT / name / f"{row}-{column}.{work.ending}"
        if path.exists():
            continue
        generator = np.random.default_rng([row, stem])
        sound = sum(
            np.sin(2 * np.pi * generator.uniform(60, 3000) * times) * (np.sin(generator.uniform(2, 30) * times) > 0)
            for _ in range(5)
        )
        sides = [0.1 * sound + 0.01 * generator.standard_normal(len(times)) for _ in range(work.channels)]
        soundfile.write(path, np.stack(sides, axis=1).clip(-1, 1), work.rate, subtype="PCM_16")


def corpus(name: str) -> Path:
    """The table of the rows, with their files, written if they are not there."""
    work, table = WORKS[name], ROOT / f"{name}.csv"
    (ROOT / name).mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        list(pool.map(written, [name] * work.rows, range(work.rows)))
    with table.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(work.columns)
        lines.writerows([f"{name}/{row}-{column}.{work.ending}" for column in work.columns] for row in range(work.rows))
    return table


def forebay_rows(name: str, table: Path, workers: int) -> Iterator[int]:
    """Examples of each batch."""
    import forebay as fb

    work = WORKS[name]
    channels = {"channels": "all", "n_channels": 2} if work.channels == 2 else {}
    given = {"audio": {column: column for column in work.columns}}
    if name == "dynamic":
        noise = fb.Manifest(table, path_column="noise")
        given = {
            "audio": {"noisy": "speech", "clean": "speech"},
            "augment": [fb.augment.Only("noisy", [fb.augment.Mix(noise, snr_db=(-5, 20))])],
        }
    loader = fb.Loader.train(
        table, **given, features=fb.features.Waveform(sample_rate=work.rate, **channels), clip_seconds=work.seconds,
        batch_size=work.batch, n_workers=workers,
    )  # fmt: skip
    for batch in loader:
        yield len(batch["index"])


class Dataset:
    """Random clips of the rows, by soundfile."""

    def __init__(self, name: str, table: Path) -> None:
        self.name, self.folder = name, table.parent
        with table.open(newline="") as file:
            self.rows = [list(row.values()) for row in csv.DictReader(file)]

    def __len__(self) -> int:
        return len(self.rows)

    def clip(self, path: str, start: int, n: int):
        import soundfile

        samples, _ = soundfile.read(self.folder / path, n, start, dtype="float32", always_2d=True)
        return samples.T

    def __getitem__(self, row: int):
        import torch

        work = WORKS[self.name]
        generator = np.random.default_rng()
        n = round(work.seconds * work.rate)
        last = round(work.file_seconds * work.rate) - n
        start = int(generator.integers(last))
        if self.name != "dynamic":
            return [torch.from_numpy(self.clip(path, start, n)) for path in self.rows[row]]
        speech = self.clip(self.rows[row][0], start, n)
        noise = self.clip(self.rows[generator.integers(len(self))][1], int(generator.integers(last)), n)
        level = np.sqrt(np.mean(speech**2) / np.mean(noise**2)) * 10 ** (-generator.uniform(-5, 20) / 20)
        return [torch.from_numpy(speech + np.float32(level) * noise), torch.from_numpy(speech)]


def soundfile_rows(name: str, table: Path, workers: int) -> Iterator[int]:
    from torch.utils.data import DataLoader

    dataset = Dataset(name, table)
    loader = DataLoader(
        dataset, WORKS[name].batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )  # type: ignore[arg-type]
    while True:
        for batch in loader:
            yield len(batch[0])


PEERS = {"forebay": forebay_rows, "soundfile": soundfile_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement, after the first batches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    given = parser.parse_args()
    for name in given.works:
        table = corpus(name)
        rates: dict[str, list[float]] = {peer: [] for peer in PEERS}
        for _ in range(given.rounds):
            for peer, rows_of in PEERS.items():
                rows = rows_of(name, table, given.workers)
                for _ in range(8):
                    next(rows)
                begin, n = time.perf_counter(), 0
                while (took := time.perf_counter() - begin) < given.seconds:
                    n += next(rows)
                rates[peer].append(n / took)
                rows.close()
        medians = {peer: statistics.median(found) for peer, found in rates.items()}
        texts = ", ".join(f"{peer} {rate:.0f}" for peer, rate in medians.items())
        print(f"{name}: {texts} rows/s, ratio {medians['forebay'] / medians['soundfile']:.1f}", flush=True)


if __name__ == "__main__":
    main()
