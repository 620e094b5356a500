"""Makes `odd.tsv` and `odd_*.bin`: log-mel spectrograms with an odd `n_fft` or rate, for crates/dsp/tests/features.rs.

    python make_odd.py

Needs only numpy (made with 2.4.6). An independent implementation of torchaudio's `MelSpectrogram` with its
defaults, in float64. Frames, window and transform follow the definition of `torch.stft`; bands follow that of
`torchaudio.functional.melscale_fbanks`. For odd and even `n_fft` its bins are
`linspace(0, sample_rate // 2, n_fft // 2 + 1)` and its highest edge is `sample_rate // 2`. Before writing, the
script compares its results for even sizes with torchaudio's in the files of golden.tsv.
"""

import pathlib

import numpy

HERE = pathlib.Path(__file__).parent
COLUMNS = "name source n_samples n_frames sample_rate n_fft win_length hop_length n_mels f_max power".split()
# source, samples of it, sample_rate, n_fft, win_length, hop_length, n_mels, power
CASES = [
    ("odd_401", "bird", 6000, 16000, 401, 401, 160, 40, 2.0),
    ("odd_255", "loop", 5001, 32000, 255, 200, 100, 20, 2.0),
    ("odd_1023", "soundscape", 8000, 22051, 1023, 1023, 256, 32, 1.0),
    ("odd_401_window", "bird", 5000, 16000, 401, 320, 160, 24, 2.0),
    ("odd_rate", "bird", 4000, 11025, 256, 256, 160, 80, 2.0),
    ("odd_window_1", "bird", 3000, 16000, 400, 1, 160, 24, 2.0),
]


def log_mel(x, rate, n_fft, win_length, hop, n_mels, power, f_min=0.0, f_max=None):
    f_max = float(rate // 2) if f_max is None else f_max
    # torch.stft, center=True, pad_mode="reflect", onesided: pads n_fft // 2 samples on each side; n_fft // 2 + 1 bins.
    x = numpy.pad(x.astype(numpy.float64), n_fft // 2, mode="reflect")
    frames = numpy.lib.stride_tricks.sliding_window_view(x, n_fft)[::hop]
    window = numpy.zeros(n_fft)
    left = (n_fft - win_length) // 2
    window[left : left + win_length] = 0.5 - 0.5 * numpy.cos(2 * numpy.pi * numpy.arange(win_length) / win_length)
    k, n = numpy.arange(n_fft // 2 + 1), numpy.arange(n_fft)
    if win_length == 1:
        window[left] = 1  # as in torch.hann_window
    spectrum = numpy.abs((frames * window) @ numpy.exp(-2j * numpy.pi * (numpy.outer(n, k) % n_fft) / n_fft)) ** power
    # torchaudio.functional.melscale_fbanks, mel_scale="htk", norm=None.
    hz = numpy.linspace(0, rate // 2, n_fft // 2 + 1)
    mel = [2595 * numpy.log10(1 + f / 700) for f in (f_min, f_max)]
    corners = 700 * (10 ** (numpy.linspace(*mel, n_mels + 2) / 2595) - 1)
    slopes = corners[None, :] - hz[:, None]
    down, up = -slopes[:, :-2] / numpy.diff(corners)[:-1], slopes[:, 2:] / numpy.diff(corners)[1:]
    bank = numpy.maximum(0, numpy.minimum(down, up))
    return numpy.log(numpy.maximum(spectrum @ bank, 1e-10)).T


def golden():
    """The entries of golden.tsv: name to samples, parameters, torchaudio's log-mel and that in float64."""
    found = {}
    for line in (HERE / "golden.tsv").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, *numbers = line.split("\t")
        n, t, rate, n_fft, win, hop, mels, f_min, f_max, power = map(float, numbers)
        values = numpy.frombuffer((HERE / f"{name}.bin").read_bytes(), "<f4")
        size = int(mels * t)
        parameters = (int(rate), int(n_fft), int(win), int(hop), int(mels), power, f_min, f_max)
        found[name] = values[: int(n)], parameters, values[int(n) :][:size], values[int(n) + size :]
    return found


def main():
    known = golden()
    for name, (samples, parameters, torchaudio, float64) in known.items():
        own = log_mel(samples, *parameters).reshape(-1)
        worst, peer = numpy.abs(own - float64).max(), numpy.abs(torchaudio - float64).max()
        print(f"{name}: to float64 {worst:.1e}, torchaudio's {peer:.1e}")
        assert worst < 1e-5, name
    table = ["# numpy " + numpy.__version__, "# " + "\t".join(COLUMNS)]
    for name, source, n, rate, n_fft, win, hop, mels, power in CASES:
        values = log_mel(known[source][0][:n], rate, n_fft, win, hop, mels, power)
        (HERE / f"{name}.bin").write_bytes(values.astype("<f4").tobytes())
        row = (name, source, n, values.shape[1], rate, n_fft, win, hop, mels, float(rate // 2), power)
        table.append("\t".join(map(str, row)))
    (HERE / "odd.tsv").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
