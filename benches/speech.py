"""Batches by duration beside Lhotse's: hours of audio per second, padding, time to the first batch.

    python benches/speech.py [--files 4000] [--workers 2] [--seconds 20] [--peers forebay lhotse grouped]
    python benches/speech.py --resume 10000 1000000     # by number of rows: opening, a seek, a state

Utterances of 1 to 20 s in FLAC at 16 kHz, each a file of its own; Kaldi's Fbank of 80 bands; batches of at most 400
s in 30 buckets. `lhotse` is `DynamicBucketingSampler` with `K2SpeechRecognitionDataset` and
`OnTheFlyFeatures(Fbank())` in a DataLoader, `grouped` a DataLoader over batches of neighbours in length, with
soundfile and torchaudio's fbank. `--resume` measures forebay alone, on tables in which the same files come again and
again. Needs numpy and soundfile; for the peers torch, torchaudio and lhotse. All read the same files, warm, and the
rates are of one run after another.
"""

import argparse
import itertools
import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

RATE = 16_000
MAX_DURATION = 400.0
ROOT = Path(__file__).resolve().parent.parent / "target" / "bench-speech"


def written(row: int) -> float:
    """Writes an utterance: noise in bands that come and go, as syllables do. Returns its seconds."""
    import soundfile

    generator = np.random.default_rng(row)
    seconds = float(np.clip(generator.normal(12.0, 4.5), 1.0, 20.0))
    n = round(seconds * RATE)
    time_s = np.arange(n) / RATE
    voice = sum(
        np.sin(2 * np.pi * generator.uniform(80, 3000) * time_s)
        * (np.sin(2 * np.pi * generator.uniform(2, 6) * time_s) > 0)
        for _ in range(6)
    )
    samples = 0.05 * voice + 0.005 * generator.standard_normal(n)
    path = ROOT / f"{row}.flac"
    if not path.exists():
        soundfile.write(path, samples.astype(np.float32), RATE, subtype="PCM_16")
    return n / RATE


def corpus(n_files: int) -> Path:
    """The table of `n_files` utterances, written if it is not there."""
    table = ROOT / f"{n_files}.jsonl"
    if not table.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor() as pool:
            lengths = list(pool.map(written, range(n_files), chunksize=16))
        lines = (
            json.dumps({"path": f"{row}.flac", "duration": seconds, "text": f"utterance {row}"})
            for row, seconds in enumerate(lengths)
        )
        table.write_text("\n".join(lines) + "\n")
    return table


def repeated(table: Path, n_rows: int) -> Path:
    """A table of so many rows of the same files, made again each time: it may have gigabytes."""
    some = [f"{row['path']},{row['duration']}\n" for row in rows_of(table)]
    path = ROOT / "repeated.csv"
    with path.open("w") as lines:
        lines.write("path,duration\n")
        for _ in range(n_rows // len(some)):
            lines.writelines(some)
        lines.writelines(some[: n_rows % len(some)])
    return path


def rows_of(table: Path) -> list[dict]:
    return [json.loads(line) for line in table.read_text().splitlines()]


Lengths = Iterator[tuple[list[float], float]]
"""Of each batch, the seconds of its rows, and those of its array."""


def forebay_loader(table: Path, workers: int, **parameters: Any) -> Any:
    import forebay

    return forebay.Loader.train(
        table,
        crop=forebay.crops.Whole(min_seconds=0.5, max_seconds=20.0, duration="duration"),
        batching=forebay.batching.Buckets(max_duration=MAX_DURATION, num_buckets=30),
        features="icefall",
        n_workers=workers,
        **parameters,
    )


def forebay_batches(table: Path, workers: int) -> Lengths:
    for batch in forebay_loader(table, workers, columns=["text"]):
        rows, longest, _ = batch["spectrogram"].shape
        yield (batch["valid_frames"] / 100).tolist(), rows * longest / 100


def lhotse_batches(table: Path, workers: int) -> Lengths:
    from lhotse import CutSet, Fbank, FbankConfig, MonoCut, Recording, SupervisionSegment
    from lhotse.dataset import DynamicBucketingSampler, K2SpeechRecognitionDataset, OnTheFlyFeatures
    from torch.utils.data import DataLoader

    def cut(row: dict) -> MonoCut:
        name, seconds = row["path"], row["duration"]
        recording = Recording.from_file(table.parent / name, recording_id=name)
        said = SupervisionSegment(id=name, recording_id=name, start=0.0, duration=seconds, text=row["text"])
        return MonoCut(
            id=name, start=0.0, duration=recording.duration, channel=0, recording=recording, supervisions=[said]
        )

    cuts = CutSet.from_cuts([cut(row) for row in rows_of(table)]).to_eager()
    dataset = K2SpeechRecognitionDataset(input_strategy=OnTheFlyFeatures(Fbank(FbankConfig(num_mel_bins=80))))
    bins = {"max_duration": MAX_DURATION, "num_buckets": 30, "shuffle": True, "drop_last": False}
    for epoch in itertools.count():
        sampler = DynamicBucketingSampler(cuts, seed=epoch, **bins)
        for batch in DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=workers):
            rows, longest, _ = batch["inputs"].shape
            yield (batch["supervisions"]["num_frames"] / 100).tolist(), rows * longest / 100


class Grouped:
    """A dataset of batches: rows of about the same length, padded."""

    def __init__(self, table: Path) -> None:
        self.folder, self.rows = table.parent, rows_of(table)
        order = np.argsort([row["duration"] for row in self.rows], kind="stable")
        self.batches: list[list[int]] = [[]]
        for row in order:
            if (len(self.batches[-1]) + 1) * self.rows[row]["duration"] > MAX_DURATION:
                self.batches.append([])
            self.batches[-1].append(int(row))

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, at: int):
        import soundfile
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from torchaudio.compliance.kaldi import fbank

        def features(row: int) -> torch.Tensor:
            samples, _ = soundfile.read(self.folder / self.rows[row]["path"], dtype="float32")
            return fbank(torch.from_numpy(samples)[None] * 32768, num_mel_bins=80, dither=0.0, sample_frequency=RATE)

        made = [features(row) for row in self.batches[at]]
        return pad_sequence(made, batch_first=True), torch.tensor([len(each) for each in made])


def grouped_batches(table: Path, workers: int) -> Lengths:
    from torch.utils.data import DataLoader

    dataset = Grouped(table)
    while True:
        for inputs, lengths in DataLoader(dataset, shuffle=True, batch_size=None, num_workers=workers):  # type: ignore[arg-type]
            rows, longest, _ = inputs.shape
            yield (lengths / 100).tolist(), rows * longest / 100


PEERS = {"forebay": forebay_batches, "lhotse": lhotse_batches, "grouped": grouped_batches}


def resident() -> float:
    """The most memory that this process ever had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def resume(table: Path, n_rows: int, workers: int) -> str:
    """Seconds until the table is open, and of first batches: of a fresh loader, after a seek, after a state."""
    path, before = repeated(table, n_rows), resident()
    begin = time.perf_counter()
    loader = forebay_loader(path, workers, infinite=False)
    opened = time.perf_counter() - begin
    begin = time.perf_counter()
    next(loader)
    first = time.perf_counter() - begin
    # The table has a batch for about every 400 s, of rows of 12 s.
    middle, times = n_rows * 12 // 400 // 2, []
    for at in (middle, middle // 3, middle * 4 // 3):
        loader.seek(at)
        begin = time.perf_counter()
        next(loader)
        times.append(time.perf_counter() - begin)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = next(loader)["index"].tolist()
    resumed = forebay_loader(path, workers, infinite=False)
    resumed.load_state_dict(state)
    begin = time.perf_counter()
    assert next(resumed)["index"].tolist() == expected
    loaded = time.perf_counter() - begin
    seeks, n_bytes = ", ".join(f"{each:.2f}" for each in times), len(json.dumps(state))
    return (
        f"{n_rows:10} rows  opened in {opened:6.2f} s; first batch {first:.2f} s, after seeks {seeks} s, "
        f"after a state of {n_bytes} bytes {loaded:.2f} s; memory {before:.2f} to {resident():.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement, after the first ten batches")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--resume", nargs="+", type=int, metavar="ROWS", help="numbers of rows; no peers then")
    given = parser.parse_args()
    table = corpus(given.files)
    for n_rows in given.resume or []:
        print(resume(table, n_rows, given.workers), flush=True)
    if given.resume:
        return
    total = sum(row["duration"] for row in rows_of(table))
    print(f"{given.files} utterances, {total / 3600:.2f} h, {given.workers} workers")
    for name in given.peers:
        begin = time.perf_counter()
        batches = PEERS[name](table, given.workers)
        next(batches)
        first = time.perf_counter() - begin
        for _ in range(10):
            next(batches)
        begin, heard, padded, n = time.perf_counter(), 0.0, 0.0, 0
        while (took := time.perf_counter() - begin) < given.seconds:
            lengths, size = next(batches)
            heard, padded, n = heard + sum(lengths), padded + size, n + 1
        print(
            f"{name:8}  {heard / 3600 / took:6.2f} h of audio per s, {n / took:6.1f} batches/s, "
            f"padding {100 * (1 - heard / padded):5.2f} %, first batch after {first:5.2f} s"
        )


if __name__ == "__main__":
    main()
