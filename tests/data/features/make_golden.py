"""Makes the golden log-mel spectrograms of crates/dsp/tests/features.rs.

    python make_golden.py FOLDER     # with the recordings that SOURCE.txt names

Needs torch, torchaudio, numpy and soundfile. Per clip it writes into one file NAME.bin, little-endian float32: the samples,
torchaudio's log-mel, and the same in float64 rounded to float32, both [n_mels, n_frames]. golden.tsv lists shapes and
parameters, after a line with the versions used. Clips are cut to about a second to keep the files small.
"""

import pathlib
import sys

import numpy
import soundfile
import torch
import torchaudio

# name, recording, first sample, samples, parameters of MelSpectrogram
DEFAULT = dict(sample_rate=32000, n_fft=1024, hop_length=320, n_mels=128)
CLIPS = [
    ("loop", "sonic-pi/loop_electric.flac", 4000, 16000, DEFAULT),
    ("soundscape", "features-golden/oss_1min.flac", 60000, 16001, DEFAULT),
    # Resampled from 16 kHz: bands of one frame differ by 100 dB, more than single precision resolves.
    ("speech", "features-golden/speech_jfk.flac", 20000, 12000, DEFAULT),
    ("bird", "perch/21100_36_48.wav", 50000, 16000, dict(DEFAULT, sample_rate=16000)),
    ("bird_400", "perch/21100_36_48.wav", 90000, 12000,
     dict(sample_rate=16000, n_fft=400, win_length=320, hop_length=160, n_mels=40, f_min=50.0, f_max=7600.0)),
    ("magnitude", "features-golden/oss_1min.flac", 24000, 12001,
     dict(DEFAULT, n_fft=512, hop_length=200, n_mels=64, power=1.0)),
]


def float64_log_mel(samples, config):
    """The log-mel of the same definition, with every step in float64."""
    n_fft, rate = config["n_fft"], config["sample_rate"]
    f_max = config.get("f_max") or rate / 2
    window = torch.hann_window(config.get("win_length") or n_fft, dtype=torch.float64)
    spectrum = torch.stft(
        torch.from_numpy(samples.astype(numpy.float64)), n_fft, config["hop_length"], len(window), window,
        center=True, pad_mode="reflect", return_complex=True,
    ).abs() ** config.get("power", 2.0)
    mel = lambda hz: 2595 * numpy.log10(1 + hz / 700)
    corners = 700 * (10 ** (numpy.linspace(mel(config.get("f_min", 0.0)), mel(f_max), config["n_mels"] + 2) / 2595) - 1)
    hz = numpy.arange(n_fft // 2 + 1)[:, None] * rate / n_fft
    up = (hz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    down = (corners[2:] - hz) / (corners[2:] - corners[1:-1])
    bank = torch.from_numpy(numpy.maximum(0, numpy.minimum(up, down)))
    return torch.log(torch.clamp(bank.T @ spectrum, min=1e-10)).numpy()


def main(folder):
    here = pathlib.Path(__file__).parent
    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, torchaudio, numpy, soundfile))
    columns = "name n_samples n_frames sample_rate n_fft win_length hop_length n_mels f_min f_max power".split()
    table = [f"# {versions}", "# " + "\t".join(columns)]
    for name, recording, start, count, config in CLIPS:
        samples, _ = soundfile.read(folder / recording, start=start, frames=count, dtype="float32", always_2d=True)
        samples = numpy.ascontiguousarray(samples[:, 0])
        mel = torchaudio.transforms.MelSpectrogram(**config)(torch.from_numpy(samples))
        single = torch.log(torch.clamp(mel, min=1e-10)).numpy()
        double = float64_log_mel(samples, config)
        error = numpy.abs(single - double)
        print(f"{name}: {single.shape}, torchaudio against float64: mean {error.mean():.1e}, max {error.max():.1e}")
        parts = [samples, single, double.astype(numpy.float32)]
        (here / f"{name}.bin").write_bytes(b"".join(part.astype("<f4").tobytes() for part in parts))
        defaults = dict(win_length=config["n_fft"], f_min=0.0, f_max=config["sample_rate"] / 2, power=2.0)
        row = defaults | config | dict(name=name, n_samples=len(samples), n_frames=single.shape[1])
        table.append("\t".join(str(row[column]) for column in columns))
    (here / "golden.tsv").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
