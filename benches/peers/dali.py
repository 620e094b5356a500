"""DALI on the CPU: crop by soundfile in its parallel external source, mel by its operators or by scipy.

Its own audio decoder reads only whole recordings and no MP3, so windows are read in this way.
"""

import math

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from peers.rows import Rows
from peers.work import BATCH_SIZE, FLOOR, HOP_LENGTH, N_FFT, N_MELS, SAMPLE_RATE, Clips, read_window, rng_of

SWEEP = [
    {"n_workers": n_workers, "n_threads": n_threads, "mel": mel}
    for n_workers, n_threads, mel in ((2, 1, "dali"), (2, 2, "dali"), (3, 2, "dali"), (2, 1, "scipy"))
]


class Source:
    """Called in DALI's worker processes with a sample's number."""

    def __init__(self, files: list[str], seed: int, mel: str):
        self.rows, self.seed = Rows(files), seed
        self.clips = None if mel == "dali" else Clips(mel)

    def __call__(self, sample) -> tuple[np.ndarray, np.ndarray]:
        position = sample.idx_in_epoch
        epoch, place = divmod(position, len(self.rows))
        index = int(rng_of(self.seed, epoch).permutation(len(self.rows))[place])
        rng = rng_of(self.seed, position)
        file = self.rows.file(index)
        value = read_window(file, rng) if self.clips is None else self.clips(file, rng)
        return value, np.array([self.rows[index][1]], np.int64)


@pipeline_def
def clips_pipeline(source: Source, own_mel: bool):
    value, label = fn.external_source(
        source, num_outputs=2, batch=False, parallel=True, dtype=[types.FLOAT, types.INT64], prefetch_queue_depth=2
    )
    if own_mel:
        spectrum = fn.spectrogram(
            value,
            nfft=N_FFT,
            window_length=N_FFT,
            window_step=HOP_LENGTH,
            power=2,
            center_windows=True,
            reflect_padding=True,
        )
        mel = fn.mel_filter_bank(
            spectrum,
            sample_rate=SAMPLE_RATE,
            nfilter=N_MELS,
            mel_formula="htk",
            normalize=False,
            freq_high=SAMPLE_RATE / 2,
        )
        # natural log: multiplier * log10(x) with multiplier = ln 10
        value = fn.to_decibels(mel, multiplier=math.log(10), reference=1.0, cutoff_db=math.log(FLOOR))
    return value, label


def batches(files: list[str], seed: int, n_workers: int, n_threads: int, mel: str):
    pipeline = clips_pipeline(
        Source(files, seed, mel),
        mel == "dali",
        batch_size=BATCH_SIZE,
        num_threads=n_threads,
        device_id=None,
        py_num_workers=n_workers,
        py_start_method="fork",
        prefetch_queue_depth=2,
    )
    pipeline.build()
    while True:
        spectrogram, label = pipeline.run()
        yield {"spectrogram": spectrogram.as_array(), "label": label.as_array()}
