"""The work of `forebay bench` by soundfile in a PyTorch DataLoader: `measured` runs this module in another process.

That is what most training programs have: worker processes, each of which seeks the clip, reads it, and computes the
features with torch. Recordings of shards are read into memory first, so that the DataLoader has no files to parse.
"""

import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["measured", "missing"]

MOST_BYTES = 256 << 20
"""The most bytes of recordings that are read from shards."""
MOST_RECORDINGS = 2000
START_S = 120.0
"""How long the process may take to import torch and to make the first batches."""


def missing() -> str | None:
    """Why there is no comparison; None if there is one."""
    gone = [name for name in ("torch", "soundfile") if find_spec(name) is None]
    return f"{' and '.join(gone)} is not installed" if gone else None


def measured(work: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the comparison: `examples_per_s`, `n_workers`, `recordings`, or `reason` if there is none.

    `work` has `paths` of recordings, or `shards` and the `column` of recordings in them; `n_workers`, `batch_size`,
    `seconds`, `clip_seconds`, `sample_rate`, and `mel` with `n_fft`, `hop_length`, `n_mels`, or None for waveforms.
    """
    command = [sys.executable, "-m", "forebay.cli.bench_dataloader"]
    try:
        done = subprocess.run(
            command, input=json.dumps(work), capture_output=True, text=True, check=False,
            timeout=START_S + work["seconds"],
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"reason": f"it made no batches within {START_S:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"reason": lines[-1] if lines else f"its process ended with {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Reads `work` from standard input, and writes what was found to standard output."""
    work = json.load(sys.stdin)
    recordings = work["paths"] or list(recordings_of(work["shards"], work["column"]))
    found = run(recordings, work) if recordings else {"reason": "no recordings were found in the shards"}
    sys.stdout.write(json.dumps(found) + "\n")


def recordings_of(shards: Sequence[str], column: str) -> Iterator[bytes]:
    """The recordings of the first rows of shards."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_bytes = n = 0
    for shard in shards:
        if shard.endswith(".parquet"):
            batches = pq.ParquetFile(shard).iter_batches(batch_size=64, columns=[column])
        else:
            try:
                batches = pa.ipc.open_stream(shard)
            except pa.ArrowInvalid:
                file = pa.ipc.open_file(shard)
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
        for batch in batches:
            for row in batch.column(batch.schema.get_field_index(column)).to_pylist():
                recording = row["bytes"] if isinstance(row, dict) else row
                if recording is None:
                    continue
                n, n_bytes = n + 1, n_bytes + len(recording)
                yield recording
                if n_bytes > MOST_BYTES or n >= MOST_RECORDINGS:
                    return


class Clips:
    """The dataset: a random clip of a recording as features; none if it cannot be read."""

    def __init__(self, recordings: Sequence[str | bytes], work: Mapping[str, Any]) -> None:
        self.recordings, self.work = recordings, work
        self.n_samples = round(work["clip_seconds"] * work["sample_rate"])
        self.mel: Any = None

    def __len__(self) -> int:
        return len(self.recordings)

    def __getitem__(self, index: int) -> Any:
        import soundfile

        recording = self.recordings[index]
        try:
            clip = self.read(io.BytesIO(recording) if isinstance(recording, bytes) else recording)
        except (soundfile.SoundFileError, OSError):
            return None
        return clip if self.work["mel"] is None else self.spectrogram(clip)

    def read(self, file: Any) -> Any:
        """A random clip, `[n_samples]`: the mean of the channels at the rate of the features."""
        import soundfile
        import torch

        rate = self.work["sample_rate"]
        with soundfile.SoundFile(file) as opened:
            n = round(self.work["clip_seconds"] * opened.samplerate)
            opened.seek(random.randrange(max(1, opened.frames - n + 1)))
            samples = opened.read(n, dtype="float32", always_2d=True).mean(1)
            if opened.samplerate != rate:
                samples = resampled(samples, opened.samplerate, rate)
        clip = torch.from_numpy(samples)[: self.n_samples]
        return torch.nn.functional.pad(clip, (0, self.n_samples - len(clip)))

    def spectrogram(self, clip: Any) -> Any:
        """Log-mel by torch's STFT and a matrix."""
        import torch

        mel = self.work["mel"]
        if self.mel is None:
            self.mel = torch.from_numpy(filterbank(self.work["sample_rate"], mel["n_fft"], mel["n_mels"]))
            self.window = torch.hann_window(mel["n_fft"])
        spectrum = torch.stft(clip, mel["n_fft"], mel["hop_length"], window=self.window, return_complex=True)
        return (self.mel @ spectrum.abs().square() + 1e-10).log()


def resampled(samples: Any, before: int, after: int) -> Any:
    """By soxr, or scipy if it is not installed."""
    if find_spec("soxr") is not None:
        import soxr

        return soxr.resample(samples, before, after)
    from math import gcd

    from scipy.signal import resample_poly

    common = gcd(before, after)
    return resample_poly(samples, after // common, before // common).astype("float32")


def filterbank(sample_rate: int, n_fft: int, n_mels: int) -> Any:
    """Triangles on the HTK mel scale up to half the rate, float32 `[n_mels, n_fft // 2 + 1]`."""
    import numpy as np

    hertz = np.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    points = 700 * (10 ** (np.linspace(0, np.log10(1 + sample_rate / 1400), n_mels + 2)) - 1)
    up = (hertz - points[:-2, None]) / (points[1:-1, None] - points[:-2, None])
    down = (points[2:, None] - hertz) / (points[2:, None] - points[1:-1, None])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


def collate(examples: list[Any]) -> Any:
    """The examples that could be read, as one tensor."""
    import torch

    good = [example for example in examples if example is not None]
    return torch.stack(good) if good else torch.empty(0)


def one_thread(_worker: int) -> None:
    """Makes a worker compute on its own thread alone, as workers should."""
    import torch

    torch.set_num_threads(1)


def run(recordings: Sequence[str | bytes], work: Mapping[str, Any]) -> dict[str, Any]:
    """Measures after the first batch of each worker."""
    from torch.utils.data import DataLoader, RandomSampler

    clips: Any = Clips(recordings, work)
    loader: Any = DataLoader(
        clips,
        batch_size=work["batch_size"],
        sampler=RandomSampler(clips, replacement=True, num_samples=1 << 40),
        num_workers=work["n_workers"],
        collate_fn=collate,
        worker_init_fn=one_thread,
    )
    batches = iter(loader)
    first = [len(next(batches)) for _ in range(work["n_workers"])]
    if not any(first):
        return {"reason": "soundfile reads none of the recordings"}
    begin = time.perf_counter()
    n = 0
    while (seconds := time.perf_counter() - begin) < work["seconds"]:
        n += len(next(batches))
    return {"examples_per_s": n / seconds, "n_workers": work["n_workers"], "recordings": len(recordings)}


def paths_of(shards: Sequence[Mapping[str, Any]], rows: Sequence[tuple[int, str]]) -> list[str]:
    """The files of rows, each given by its table or folder and its path there; those that exist."""
    found = []
    for shard, path in rows:
        at = Path(shards[shard]["path"])
        file = (at if at.is_dir() else at.parent) / path
        if file.is_file():
            found.append(str(file))
    return sorted(set(found))


if __name__ == "__main__":
    main()
