"""tf.data: the crop by soundfile in a numpy function, the mel in TensorFlow's graph or by scipy with the crop."""

import numpy as np
import tensorflow as tf

from peers.rows import Rows
from peers.work import (
    BATCH_SIZE,
    CLIP_SAMPLES,
    FLOOR,
    HOP_LENGTH,
    N_FFT,
    N_FRAMES,
    N_MELS,
    Clips,
    mel_filterbank,
    read_window,
    rng_of,
)

SWEEP = [
    {"n_workers": 2, "mel": "scipy"},
    {"n_workers": 3, "mel": "scipy"},
    {"n_workers": 2, "mel": "tensorflow"},
]


def graph_mel(waveform):
    """Log-mel in TensorFlow: float32 `[N_MELS, N_FRAMES]`."""
    half = N_FFT // 2
    padded = tf.pad(waveform, [[half, half]], mode="REFLECT")
    spectrum = tf.signal.stft(padded, N_FFT, HOP_LENGTH, N_FFT, window_fn=tf.signal.hann_window)
    power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
    return tf.math.log(tf.maximum(tf.matmul(mel_filterbank(), power, transpose_b=True), FLOOR))


def batches(files: list[str], seed: int, n_workers: int, mel: str):
    rows = Rows(files)
    clips = None if mel == "tensorflow" else Clips(mel)

    def crop(position: int, index: int) -> tuple:
        rng = rng_of(seed, int(position))
        file, label = rows.file(int(index)), np.int64(rows[int(index)][1])
        return (read_window(file, rng) if clips is None else clips(file, rng)), label

    def example(position, index):
        value, label = tf.numpy_function(crop, [position, index], [tf.float32, tf.int64], stateful=False)
        if clips is None:
            value = graph_mel(tf.ensure_shape(value, [CLIP_SAMPLES]))
        return {
            "spectrogram": tf.ensure_shape(value, [N_MELS, N_FRAMES]),
            "label": tf.ensure_shape(label, []),
            "index": index,
        }

    indices = tf.data.Dataset.range(len(rows)).shuffle(len(rows), seed=seed).repeat()
    examples = indices.enumerate().map(example, num_parallel_calls=n_workers, deterministic=False)
    options = tf.data.Options()
    options.threading.private_threadpool_size = n_workers + 1
    loader = examples.batch(BATCH_SIZE, drop_remainder=True).prefetch(2).with_options(options)
    return loader.as_numpy_iterator()
