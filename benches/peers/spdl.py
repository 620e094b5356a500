"""SPDL: a thread pipeline over the mapped shards, with its own decoder (ffmpeg) or with soundfile.

SPDL's decoder takes the window in seconds, so the lengths are read from the headers once, before the first
batch; a user would have them in a manifest.
"""

import numpy as np
import soundfile
import spdl.io
from spdl.pipeline import PipelineBuilder

from peers.rows import Rows
from peers.work import BATCH_SIZE, CLIP_SECONDS, SAMPLE_RATE, Clips, collate, fit, rng_of, shuffled

SWEEP = [
    {"decoder": decoder, "n_workers": n_workers, "mel": mel}
    for decoder, n_workers, mel in (
        ("spdl", 2, "scipy"),
        ("spdl", 2, "torch"),
        ("soundfile", 2, "scipy"),
        ("soundfile", 2, "torch"),
    )
]


def seconds_of(file) -> float:
    with soundfile.SoundFile(file) as recording:
        return recording.frames / recording.samplerate


def decode(audio, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """A random window by ffmpeg, resampled by ffmpeg where the rates differ."""
    start = max(rng.uniform(0, max(seconds - CLIP_SECONDS, 0)), 1e-3)  # a start below 0.1 ms loses the example
    window = (start, start + CLIP_SECONDS + 0.01)
    filters = spdl.io.get_audio_filter_desc(
        timestamp=window, sample_rate=SAMPLE_RATE, num_channels=1, sample_fmt="fltp"
    )
    frames = spdl.io.load_audio(audio.to_pybytes(), timestamp=window, filter_desc=filters)
    return fit(spdl.io.to_numpy(frames)[0])


def batches(files: list[str], seed: int, decoder: str, n_workers: int, mel: str):
    rows, clips = Rows(files), Clips(mel)
    seconds = [seconds_of(rows.file(index)) for index in range(len(rows))] if decoder == "spdl" else []

    def example(key: tuple[int, int]) -> tuple:
        position, index = key
        audio, label = rows[index]
        rng = rng_of(seed, position)
        if decoder == "spdl":
            return clips.mel(decode(audio, seconds[index], rng)), label, index
        return clips(rows.file(index), rng), label, index

    pipeline = (
        PipelineBuilder()
        .add_source(shuffled(len(rows), seed))
        .pipe(example, concurrency=n_workers)
        .aggregate(BATCH_SIZE)
        .pipe(collate)
        .add_sink(3)
        .build(num_threads=n_workers + 1)
    )
    with pipeline.auto_stop():
        yield from pipeline
