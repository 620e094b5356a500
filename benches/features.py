"""Front ends of `forebay.features`: errors against the golden files, and time beside the originals, as tables.

    python benches/features.py [--seconds 5] [--rounds 40]
    OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benches/features.py --originals

Errors are those of docs/features.md: the mean, the largest within 60 dB of a frame's largest band, the largest
elsewhere, in units of the natural logarithm of an energy, over the clips of tests/data/features/presets (speech, field
recording, silence, DC, square wave, noise, a clip shorter than a frame). The time is that of one clip on one thread,
the 10th percentile of the rounds.

`--originals` needs kaldi-native-fbank, librosa, torchaudio and transformers, and prints a second table: the same clip
through the original libraries, on one thread, in turns with forebay.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from forebay import features

sys.path.append(str(Path(__file__).parents[1] / "tests" / "python" / "helpers"))
from golden_features import goldens


def errors() -> dict[str, tuple[float, ...]]:
    """The worst errors of each preset over its clips."""
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for golden in goldens():
        if golden.table == "presets":
            found[golden.name].append(golden.errors(features.preset(golden.name)(golden.waveform)))
    return {name: tuple(map(max, zip(*each, strict=True))) for name, each in found.items()}


def noise(front_end: Any, seconds: float) -> np.ndarray:
    """A clip at the front end's rate."""
    n_samples = int(seconds * front_end.sample_rate)
    return np.random.default_rng(0).normal(0, 0.1, n_samples).astype(np.float32)


def milliseconds(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The time of each call, in turns, after two of each that are not counted."""
    times = np.zeros((rounds + 2, len(calls)))
    for turn in times:
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            turn[i] = time.perf_counter() - begin
    return [float(each) for each in np.percentile(times[2:], 10, axis=0) * 1e3]


def originals(seconds: float, rounds: int) -> None:
    """Prints the table beside the original libraries."""
    import kaldi_native_fbank
    import librosa
    import torch
    import torchaudio
    import transformers
    from torchaudio.compliance.kaldi import fbank

    torch.set_num_threads(1)

    def log_mel(top_db: float | None = None, **parameters: Any) -> Callable[[Any], object]:
        mel, decibel = (
            torchaudio.transforms.MelSpectrogram(**parameters),
            torchaudio.transforms.AmplitudeToDB(top_db=top_db),
        )
        return lambda x: decibel(mel(torch.from_numpy(x)))

    def kaldi(rate: int = 16_000, **parameters: Any) -> Callable[[Any], object]:
        return lambda x: fbank(torch.from_numpy(x)[None], sample_frequency=rate, dither=0.0, **parameters)

    def native(x: Any) -> object:
        options = kaldi_native_fbank.FbankOptions()
        options.frame_opts.dither, options.frame_opts.snip_edges, options.mel_opts.num_bins = 0, False, 80
        found = kaldi_native_fbank.OnlineFbank(options)
        found.accept_waveform(16_000, x)
        found.input_finished()
        return [found.get_frame(i) for i in range(found.num_frames_ready)]

    def extractor(made: Any) -> Callable[[Any], object]:
        return lambda x: made(x, sampling_rate=made.sampling_rate, return_tensors="np")

    def decibels(x: Any) -> object:
        return librosa.power_to_db(librosa.feature.melspectrogram(y=x, sr=22_050))

    whisper = {n: transformers.WhisperFeatureExtractor(n, chunk_length=int(seconds)) for n in (80, 128)}
    table: dict[str, dict[str, Callable[[Any], object]]] = {
        "birdset": {"torchaudio": log_mel(80.0, sample_rate=32_000, n_fft=1024, hop_length=320, n_mels=128)},
        "birdmae": {"torchaudio": kaldi(32_000, window_type="hanning", num_mel_bins=128, htk_compat=True)},
        "ast": {"transformers": extractor(transformers.ASTFeatureExtractor())},
        "beats": {"torchaudio": kaldi(num_mel_bins=128)},
        "byola": {
            "torchaudio": log_mel(sample_rate=16_000, n_fft=1024, hop_length=160, n_mels=64, f_min=60.0, f_max=7800.0)
        },
        "clap": {"transformers": extractor(transformers.ClapFeatureExtractor(max_length_s=int(seconds)))},
        "whisper": {"transformers": extractor(whisper[80])},
        "whisper128": {"transformers": extractor(whisper[128])},
        "icefall": {
            "kaldi-native-fbank": native,
            "torchaudio": kaldi(num_mel_bins=80, snip_edges=False, high_freq=-400.0),
        },
        "wenet": {"torchaudio": kaldi(num_mel_bins=80)},
        "wav2vec2": {"transformers": extractor(transformers.Wav2Vec2FeatureExtractor())},
        "torchaudio": {"torchaudio": log_mel(sample_rate=16_000)},
        "librosa": {"librosa": decibels},
    }
    sys.stdout.write("\n| preset | forebay, ms | originals, ms | the fastest takes |\n|---|--:|---|--:|\n")
    for name, others in table.items():
        front_end = features.preset(name)
        clip = noise(front_end, seconds)
        own, *times = milliseconds([partial(each, clip) for each in (front_end, *others.values())], rounds)
        listed = ", ".join(f"{other} {each:.2f}" for other, each in zip(others, times, strict=True))
        sys.stdout.write(f"| {name} | {own:.2f} | {listed} | {min(times) / own:.1f}x |\n")
        sys.stdout.flush()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--originals", action="store_true")
    options = parser.parse_args()
    worst = errors()
    sys.stdout.write(
        f"| preset | shape of {options.seconds:g} s | mean | loud | quiet | ms |\n|---|---|--:|--:|--:|--:|\n"
    )
    for name in features.presets():
        front_end = features.preset(name)
        cells = [f"{error:.0e}" for error in worst[name]] if name in worst else ["", "", ""]
        clip = noise(front_end, options.seconds)
        (own,) = milliseconds([partial(front_end, clip)], options.rounds)
        cells = [name, str(list(front_end.shape(len(clip)))), *cells, f"{own:.2f}"]
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    if options.originals:
        originals(options.seconds, options.rounds)


if __name__ == "__main__":
    main()
