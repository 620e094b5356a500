"""Batches by duration beside Lhotse's: hours of audio per second, padding, time to the first batch.

    python benches/speech.py [--files 4000] [--workers 2] [--seconds 20] [--peers forebay lhotse grouped]
    python benches/speech.py --resume 10000 1000000     # by number of rows: opening, a seek, a state
    python benches/speech.py --resume 1000000 --peers lhotse    # the same of Lhotse's sampler
    python benches/speech.py --sweep                            # Lhotse's settings

Utterances of 1 to 20 s in FLAC at 16 kHz, each a file of its own; Kaldi's Fbank of 80 bands; batches of at most 400
s in 30 buckets. `lhotse` is `DynamicBucketingSampler` with `K2SpeechRecognitionDataset` and
`OnTheFlyFeatures(Fbank())` in a DataLoader, with the best settings of `--sweep`; `grouped` is a DataLoader over
batches of neighbours in length, with soundfile and torchaudio's fbank. `--resume` measures one loader, on tables in
which the same files come again and again. Needs numpy and soundfile; for the peers torch, torchaudio and lhotse. All
read the same files, warm, and the rates are of one run after another.
"""

import argparse
import itertools
import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

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


class LhotseSettings(NamedTuple):
    """What changes the speed of Lhotse's loader, and no batch. The defaults are the best of `--sweep`."""

    backend: str = "LibsndfileBackend"
    extract: str = "one"
    prefetch_factor: int = 2

    def dataset(self) -> Any:
        from lhotse import Fbank, FbankConfig
        from lhotse.audio.backend import set_current_audio_backend
        from lhotse.dataset import K2SpeechRecognitionDataset, OnTheFlyFeatures

        set_current_audio_backend(self.backend)
        fbank = Fbank(FbankConfig(num_mel_bins=80))
        threads = 2 if self.extract == "threads" else 0
        strategy = OnTheFlyFeatures(fbank, use_batch_extract=self.extract == "batch", num_workers=threads)
        return K2SpeechRecognitionDataset(input_strategy=strategy)


LHOTSE_SWEEP = [
    LhotseSettings(backend, extract)
    for backend in ("default", "LibsndfileBackend", "TorchcodecBackend")
    for extract in ("batch", "one", "threads")
] + [LhotseSettings(prefetch_factor=8)]
LHOTSE_BINS = {"max_duration": MAX_DURATION, "num_buckets": 30, "shuffle": True, "drop_last": False}


def cut_of(row: dict, folder: Path, number: int | None = None) -> Any:
    """Lhotse's cut of a row. With `number` nothing of the file is read, and the cut has that name."""
    from lhotse import MonoCut, Recording, SupervisionSegment
    from lhotse.audio import AudioSource

    path, seconds = folder / row["path"], row["duration"]
    if number is None:
        name = row["path"]
        recording = Recording.from_file(path, recording_id=name)
    else:
        name, source = str(number), AudioSource(type="file", channels=[0], source=str(path))
        recording = Recording(name, [source], RATE, round(seconds * RATE), seconds)
    said = SupervisionSegment(name, name, 0.0, seconds, text=row.get("text", ""))
    return MonoCut(name, 0.0, recording.duration, 0, supervisions=[said], recording=recording)


def lhotse_batches(table: Path, workers: int, settings: LhotseSettings | None = None) -> Lengths:
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler
    from torch.utils.data import DataLoader

    settings = settings or LhotseSettings()
    cuts = CutSet.from_cuts([cut_of(row, table.parent) for row in rows_of(table)]).to_eager()
    dataset = settings.dataset()
    ahead = {"num_workers": workers, "prefetch_factor": settings.prefetch_factor if workers else None}
    for epoch in itertools.count():
        sampler = DynamicBucketingSampler(cuts, seed=epoch, **LHOTSE_BINS)
        for batch in DataLoader(dataset, sampler=sampler, batch_size=None, **ahead):
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


def lhotse_resume(table: Path, n_rows: int) -> str:
    """As `resume`, of Lhotse: cuts in JSON lines, read lazily, and no worker processes.

    Its sampler seeks by drawing all batches again, so a seek and a state take as long as the batches before.
    """
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler

    some, path, before = rows_of(table), ROOT / "repeated.cuts.jsonl", resident()
    with path.open("w") as lines:
        for at in range(n_rows):
            cut = cut_of(some[at % len(some)], table.parent, at)
            lines.write(json.dumps(cut.to_dict()) + "\n")
    dataset, start = LhotseSettings().dataset(), time.perf_counter()

    def opened() -> Any:
        return DynamicBucketingSampler(CutSet.from_jsonl_lazy(path), seed=0, **LHOTSE_BINS)

    sampler = opened()
    batches = iter(sampler)
    dataset[next(batches)]
    first = time.perf_counter() - start
    for _ in range(n_rows * 12 // 400 // 2):
        next(batches)
    state = sampler.state_dict()
    expected = [cut.id for cut in next(batches)]
    start = time.perf_counter()
    resumed = opened()
    resumed.load_state_dict(state)
    cuts = next(iter(resumed))
    dataset[cuts]
    loaded = time.perf_counter() - start
    same = "the same" if [cut.id for cut in cuts] == expected else "another"
    return (
        f"{n_rows:10} rows  first batch after opening {first:.2f} s, {same} batch after a state of the middle "
        f"{loaded:.2f} s; memory {before:.2f} to {resident():.2f} GB"
    )


def rate(batches: Lengths, seconds: float) -> str:
    """Rates of a loader, after its first ten batches."""
    begin = time.perf_counter()
    next(batches)
    first = time.perf_counter() - begin
    for _ in range(10):
        next(batches)
    begin, heard, padded, n = time.perf_counter(), 0.0, 0.0, 0
    while (took := time.perf_counter() - begin) < seconds:
        lengths, size = next(batches)
        heard, padded, n = heard + sum(lengths), padded + size, n + 1
    return (
        f"{heard / 3600 / took:6.2f} h of audio per s, {n / took:6.1f} batches/s, "
        f"padding {100 * (1 - heard / padded):5.2f} %, first batch after {first:5.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement, after the first ten batches")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--resume", nargs="+", type=int, metavar="ROWS", help="numbers of rows; no peers then")
    parser.add_argument("--sweep", action="store_true", help="Lhotse's settings")
    given = parser.parse_args()
    table = corpus(given.files)
    for n_rows in given.resume or []:
        lhotse = given.peers == ["lhotse"]
        print(lhotse_resume(table, n_rows) if lhotse else resume(table, n_rows, given.workers), flush=True)
    if given.sweep:
        for settings in LHOTSE_SWEEP:
            print(f"{settings}  {rate(lhotse_batches(table, given.workers, settings), given.seconds)}", flush=True)
    if given.resume or given.sweep:
        return
    total = sum(row["duration"] for row in rows_of(table))
    print(f"{given.files} utterances, {total / 3600:.2f} h, {given.workers} workers")
    for name in given.peers:
        print(f"{name:8}  {rate(PEERS[name](table, given.workers), given.seconds)}", flush=True)


if __name__ == "__main__":
    main()
