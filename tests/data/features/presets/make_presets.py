"""Makes the golden features of the presets and of single parameters, from the original code or library.

    python make_presets.py FOLDER    # FOLDER has the recordings that SOURCE.txt names

Writes clips.npz (int16, by RATE/NAME) and, for presets and for traps (single parameters), NAME.json and NAME.npz. The
JSON has per entry the class and its parameters, the source of the parameters, the packages that computed the features
and the clips; the npz has their features as float32, by ENTRY/LABEL, in the entry's layout. Of a clip:

    n_samples   only its first samples
    pad_to      zeros behind it up to this length, as Whisper's callers do
    n_stored    only the first frames are stored; `shape` is the original's
    refused     the original raises an error

Originals that can run in float64 do: in single precision they round quiet bands beside loud ones by more than the
tolerance of the tests.

Needs torch, torchaudio, transformers, librosa, nnAudio, hear21passt, openai-whisper, lhotse, kaldi-native-fbank, scipy,
soundfile.
"""

import contextlib
import functools
import importlib.metadata
import json
import pathlib
import sys
import warnings

import numpy
import scipy.signal
import soundfile

warnings.filterwarnings("ignore")
with contextlib.redirect_stdout(sys.stderr):
    import hear21passt.models.preprocess
    import kaldi_native_fbank
    import lhotse.features.kaldi.layers
    import librosa
    import nnAudio.features
    import torch
    import torchaudio
    import torchaudio.compliance.kaldi as kaldi
    import transformers
    import whisper.audio

HERE = pathlib.Path(__file__).parent
RECORDINGS = {"field": ("opensoundscape/audiomoth_gps.wav", 0.5), "speech": ("whisper/jfk.flac", 0.5)}
RATES = [8000, 16000, 22050, 32000, 44100, 48000, 96000]
EPS = 1.1920928955078125e-07  # of float32

torch.set_num_threads(1)


def make_clips(folder):
    """Clips by RATE/NAME, int16: half a second of the recordings, a quarter of a second of signals."""
    clips = {}
    for rate in RATES:
        for name, (path, start) in RECORDINGS.items():
            x, own = soundfile.read(folder / path, dtype="float64", always_2d=True)
            x = x[round(start * own) :][: round(0.6 * own), 0]
            divisor = numpy.gcd(rate, own)
            x = scipy.signal.resample_poly(x, rate // divisor, own // divisor)[: rate // 2 + 37]
            clips[f"{rate}/{name}"] = numpy.clip(numpy.rint(x * 32768), -32768, 32767).astype(numpy.int16)
        n = rate // 4
        square = numpy.where(numpy.arange(n) * 2 * 441 // rate % 2 == 0, 32767, -32768)
        noise = numpy.random.default_rng(rate).normal(0, 32.768, n)
        clips[f"{rate}/silence"] = numpy.zeros(n, numpy.int16)
        clips[f"{rate}/dc"] = numpy.full(n, 16384, numpy.int16)
        clips[f"{rate}/square"] = square.astype(numpy.int16)
        clips[f"{rate}/noise"] = numpy.rint(noise).astype(numpy.int16)
    return clips


def versions(*names):
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", *names))


@contextlib.contextmanager
def doubles():
    """torch makes windows and filter banks in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def in_float64(function):
    @functools.wraps(function)
    def run(x):
        with doubles(), torch.no_grad():
            return function(torch.from_numpy(x)).numpy()

    return run


# Originals: a waveform, float64 in [-1, 1], to features in the preset's layout.


@in_float64
def birdset(x):
    mel = torchaudio.transforms.MelScale(n_mels=128, sample_rate=32000, n_stft=513)(
        torchaudio.transforms.Spectrogram(n_fft=1024, hop_length=320, power=2.0)(x)
    )
    # BirdSet's PowerToDB with its defaults, on a batch of one.
    decibel = 10 * torch.log10(torch.clamp(mel, min=1e-10))
    return (torch.maximum(decibel, decibel.max() - 80) + 4.268) / 4.569


@in_float64
def birdmae(x):
    y = kaldi.fbank(
        (x - x.mean()).unsqueeze(0), htk_compat=True, sample_frequency=32000, use_energy=False, window_type="hanning",
        num_mel_bins=128, dither=0.0, frame_shift=10,
    )  # fmt: skip
    y = torch.nn.functional.pad(y, (0, 0, 0, 512 - len(y)), value=y.min().item())
    return (y + 7.2) / (2 * 4.43)


def perch_mel(x):
    """scipy.signal.stft, of which Perch takes JAX's copy, and the triangles of tf.signal, in numpy."""
    _, _, stft = scipy.signal.stft(x, nperseg=640, noverlap=320, nfft=1024, padded=False)
    if len(x) % 320 == 0:
        stft = stft[:, :-1]
    hz = numpy.linspace(0, 16000, 513)[1:]
    mel = lambda f: 1127 * numpy.log1p(f / 700)
    edges = numpy.linspace(mel(60.0), mel(10000.0), 162)
    up = (mel(hz)[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - mel(hz)[:, None]) / (edges[2:] - edges[1:-1])
    bank = numpy.vstack([numpy.zeros(160), numpy.maximum(0, numpy.minimum(up, down))])
    return (numpy.abs(stft) ** 2).T @ bank


def perch(x):
    energy = perch_mel(x)
    # The moving average as one filter, which starts at the first frame.
    smooth, _ = scipy.signal.lfilter([0.1], [1, -0.9], energy, axis=0, zi=0.9 * energy[:1])
    return numpy.sqrt(energy / numpy.sqrt(1e-6 + smooth) + 2) - numpy.sqrt(2)


def perch_log(x):
    """Perch's other compression; 18 dB louder, so that more than the loudest bands pass its floor."""
    return 0.1 * numpy.log(numpy.maximum(perch_mel(x * 8), 1e-2))


@in_float64
def ast(x):
    class Float64(transformers.ASTFeatureExtractor):
        def __call__(self, waveform):
            features = self._extract_fbank_features(waveform.numpy(), max_length=self.max_length)
            return torch.from_numpy(self.normalize(features))

    return Float64(max_length=1024)(x)


@in_float64
def beats(x):
    y = kaldi.fbank(x.unsqueeze(0) * 2**15, num_mel_bins=128, sample_frequency=16000, frame_length=25, frame_shift=10)
    return (y - 15.41663) / (2 * 6.55582)


@in_float64
def passt(x):
    with contextlib.redirect_stdout(sys.stderr):
        mel = hear21passt.models.preprocess.AugmentMelSTFT(
            n_mels=128, sr=32000, win_length=800, hopsize=320, n_fft=1024, freqm=48, timem=192, htk=False, fmin=0.0,
            fmax=None, norm=1, fmin_aug_range=10, fmax_aug_range=2000,
        ).eval()  # fmt: skip
    real = torch.stft
    # torch 2 has no return_complex=False for new code; the module asks for it.
    torch.stft = lambda *a, return_complex, **k: torch.view_as_real(real(*a, return_complex=True, **k))
    try:
        return mel(x.unsqueeze(0))[0]
    finally:
        torch.stft = real


@in_float64
def byola(x):
    mel = torchaudio.transforms.MelSpectrogram(
        sample_rate=16000, n_fft=1024, win_length=1024, hop_length=160, n_mels=64, f_min=60, f_max=7800, power=2
    )
    return torch.log(mel(x) + EPS)


@in_float64
def m2d(x):
    mel = nnAudio.features.MelSpectrogram(
        sr=16000, n_fft=400, win_length=400, hop_length=160, n_mels=80, fmin=50, fmax=8000, center=True, power=2,
        verbose=False,
    ).double()  # fmt: skip
    return (torch.log(mel(x.unsqueeze(0))[0] + EPS) + 7.1) / 4.2


def clap(x):
    extractor = transformers.ClapFeatureExtractor(frequency_min=50, frequency_max=14000)
    y = extractor(x, max_length=len(x), truncation="fusion", sampling_rate=48000)["input_features"]
    return numpy.asarray(y)[0, 0]


def whisper_frames(x, n_mels):
    return whisper.audio.log_mel_spectrogram(x.astype(numpy.float32), n_mels).numpy()


def whisper_80(x):
    return whisper_frames(x, 80)


def whisper_128(x):
    return whisper_frames(x, 128)


@in_float64
def nemo(x):
    """NeMo's FilterbankFeatures in evaluation, in float64. Its last frame, which it sets to 0, is left out."""
    x = torch.cat([x[:1], x[1:] - 0.97 * x[:-1]])
    window = torch.hann_window(400, periodic=False)
    stft = torch.stft(x, 512, 160, 400, window, center=True, pad_mode="constant", return_complex=True)[:, :-1]
    bank = librosa.filters.mel(sr=16000, n_fft=512, n_mels=80, fmin=0, fmax=8000, norm="slaney", dtype=numpy.float64)
    y = torch.log(torch.from_numpy(bank) @ stft.abs() ** 2 + 2**-24)
    return (y - y.mean(1, keepdim=True)) / (y.std(1, keepdim=True) + 1e-5)


def parakeet(x):
    """The same in transformers, in single precision."""
    extractor = transformers.ParakeetFeatureExtractor(feature_size=80)
    y = extractor(torch.from_numpy(x), sampling_rate=16000, return_tensors="pt")
    return y["input_features"][0, y["attention_mask"][0].bool()].numpy().T


def transformers_whisper(x):
    extractor = transformers.WhisperFeatureExtractor()
    return extractor(x, sampling_rate=16000, padding="longest", return_tensors="np")["input_features"][0]


@in_float64
def icefall(x):
    return lhotse.features.kaldi.layers.Wav2LogFilterBank(num_filters=80)(x.unsqueeze(0))[0]


@in_float64
def wenet(x):
    y = x.unsqueeze(0) * (1 << 15)
    return kaldi.fbank(
        y, num_mel_bins=80, frame_length=25, frame_shift=10, dither=0.0, energy_floor=0.0, sample_frequency=16000
    )


def wav2vec2(x):
    return transformers.Wav2Vec2FeatureExtractor(do_normalize=True)(x, sampling_rate=16000)["input_values"][0]


@in_float64
def torchaudio_mel(x):
    return torchaudio.transforms.AmplitudeToDB()(torchaudio.transforms.MelSpectrogram()(x))


@in_float64
def laion_clap(x):
    mel = torchaudio.transforms.MelSpectrogram(
        sample_rate=48000, n_fft=1024, win_length=1024, hop_length=480, center=True, pad_mode="reflect", power=2.0,
        norm=None, onesided=True, n_mels=64, f_min=50, f_max=14000,
    )  # fmt: skip
    return torchaudio.transforms.AmplitudeToDB(top_db=None)(mel(x))


def librosa_mel(x):
    return librosa.power_to_db(librosa.feature.melspectrogram(y=x, sr=22050))


def native_fbank(x, rate, **options):
    """kaldi-native-fbank, in single precision: `frame.NAME` of `options` as `frame__NAME`."""
    fbank = kaldi_native_fbank.FbankOptions()
    fbank.frame_opts.dither = 0.0
    fbank.frame_opts.samp_freq = rate
    for name, value in options.items():
        part, _, name = name.rpartition("__")
        setattr(getattr(fbank, part) if part else fbank, name, value)
    online = kaldi_native_fbank.OnlineFbank(fbank)
    online.accept_waveform(rate, x.astype(numpy.float32).tolist())
    online.input_finished()
    frames = [online.get_frame(i) for i in range(online.num_frames_ready)]
    return numpy.array(frames).reshape(len(frames), fbank.mel_opts.num_bins)


def kaldi_options(**options):
    """Parameters of Fbank from those of torchaudio's `fbank`, and that call."""

    @in_float64
    def run(x):
        return kaldi.fbank(x.unsqueeze(0), **options)

    return run


def torch_mel(**options):
    """torchaudio's MelSpectrogram and the default compression."""

    @in_float64
    def run(x):
        return torch.log(torch.clamp(torchaudio.transforms.MelSpectrogram(**options)(x), min=1e-10))

    return run


STANDARD = ["field", "speech", "silence", "dc", "square", "noise"]
TORCHAUDIO = ("torch", "torchaudio")
HF = ("torch", "torchaudio", "transformers")


def decibel(**options):
    return {"type": "Decibel", **options}


def ln(**options):
    return {"type": "Ln", **options}


def standard(mean, std, factor=1.0):
    return {"type": "Standard", "mean": mean, "std": std, "factor": factor}


KALDI = dict(win_length=400, hop_length=160, n_fft=512, f_min=20.0, layout="time")

# name: class, parameters, samples of the short clip, source of the parameters, original, its packages, precision
PRESETS = {
    "birdset": (
        "LogMel",
        dict(
            sample_rate=32000, n_fft=1024, hop_length=320, n_mels=128, compression=decibel(top_db=80.0),
            normalization=standard(-4.268, 4.569),
        ),
        700, "DBD-research-group/BirdSet birdset/datamodule/components/transforms.py, augmentations.py (86a0777)",
        birdset, TORCHAUDIO,
    ),
    "birdmae": (
        "Fbank",
        dict(
            sample_rate=32000, win_length=800, hop_length=320, n_fft=1024, window="hanning", n_mels=128, f_min=20.0,
            remove_mean=True, n_frames=512, fill="minimum", normalization=standard(-7.2, 4.43, 2.0), layout="time",
        ),
        801, "DBD-research-group/Bird-MAE transforms.py, configs/data/dataset/XCL.yaml (a514ef5)", birdmae, TORCHAUDIO,
    ),
    "birdnet": (
        "Waveform", dict(sample_rate=48000), 0, "birdnet-team/BirdNET-Analyzer: the waveform as it is", None, (),
    ),
    "perch": (
        "LogMel",
        dict(
            sample_rate=32000, n_fft=1024, win_length=640, hop_length=320, pad_mode="constant", drop_last=True,
            scale=1 / 320, n_mels=160, f_min=60.0, f_max=10000.0, mel_scale="kaldi", layout="time",
            compression={"type": "PCEN", "smooth": 0.1, "gain": 0.5, "bias": 2.0, "root": 0.5, "eps": 1e-6},
        ),
        640, "google-research/perch chirp/models/frontend.py, audio_utils.py, configs/baselines/presets.py (b216270)",
        perch, ("scipy",),
    ),
    "ast": (
        "Fbank",
        dict(
            KALDI, sample_rate=16000, window="hanning", n_mels=128, n_frames=1024, fill=0.0, remove_mean=True,
            normalization=standard(-4.2677393, 4.5689974, 2.0),
        ),
        401, "YuanGongND/ast src/dataloader.py (31088be), transformers ASTFeatureExtractor", ast, HF,
    ),
    "beats": (
        "Fbank",
        dict(KALDI, sample_rate=16000, n_mels=128, scale=32768.0, normalization=standard(15.41663, 6.55582, 2.0)),
        401, "microsoft/unilm beats/BEATs.py (768a3c8)", beats, TORCHAUDIO,
    ),
    "passt": (
        "LogMel",
        dict(
            sample_rate=32000, n_fft=1024, win_length=800, hop_length=320, window="hanning", preemphasis=0.97,
            preemphasis_start="drop", n_mels=128, f_min=0.0, f_max=15000.0, mel_scale="kaldi",
            compression=ln(eps=1e-5), normalization=standard(-4.5, 5.0),
        ),
        700, "hear21passt models/preprocess.py, base.py (eval)", passt, ("torch", "hear21passt", "torchaudio"),
    ),
    "byola": (
        "LogMel",
        dict(
            sample_rate=16000, n_fft=1024, hop_length=160, n_mels=64, f_min=60.0, f_max=7800.0,
            compression=ln(eps=1.1920929e-07),
        ),
        700, "nttcslab/byol-a byol_a/dataset.py, config.yaml (3e65c92)", byola, TORCHAUDIO,
    ),
    "m2d": (
        "LogMel",
        dict(
            sample_rate=16000, n_fft=400, hop_length=160, n_mels=80, f_min=50.0, f_max=8000.0, mel_scale="slaney",
            norm="slaney", compression=ln(eps=1.1920929e-07), normalization=standard(-7.1, 4.2),
        ),
        300, "nttcslab/m2d examples/portable_m2d.py (f0c4128)", m2d, ("torch", "nnAudio"),
    ),
    "clap": (
        "LogMel",
        dict(
            sample_rate=48000, n_fft=1024, hop_length=480, n_mels=64, f_min=50.0, f_max=14000.0,
            compression=decibel(), layout="time",
        ),
        700, "laion_clap training/data.py get_mel; transformers ClapFeatureExtractor, fusion", clap, ("transformers",),
    ),
    "whisper": (
        "LogMel",
        dict(
            sample_rate=16000, n_fft=400, hop_length=160, n_mels=80, mel_scale="slaney", norm="slaney", drop_last=True,
            compression={"type": "Log10", "floor": 1e-10, "range": 8.0}, normalization=standard(-4.0, 4.0),
        ),
        300, "openai-whisper audio.py", whisper_80, ("torch", "openai-whisper"), "float32",
    ),
    "whisper128": (
        "LogMel",
        dict(
            sample_rate=16000, n_fft=400, hop_length=160, n_mels=128, mel_scale="slaney", norm="slaney",
            drop_last=True, compression={"type": "Log10", "floor": 1e-10, "range": 8.0},
            normalization=standard(-4.0, 4.0),
        ),
        300, "openai-whisper audio.py", whisper_128, ("torch", "openai-whisper"), "float32",
    ),
    "nemo": (
        "LogMel",
        dict(
            sample_rate=16000, n_fft=512, win_length=400, hop_length=160, window="hanning", pad_mode="constant",
            drop_last=True, preemphasis=0.97, n_mels=80, mel_scale="slaney", norm="slaney",
            compression=ln(eps=2.0**-24), normalization={"type": "ZScore", "per": "band", "ddof": 1, "eps": 1e-5},
        ),
        350, "NVIDIA/NeMo nemo/collections/asr/parts/preprocessing/features.py (8cfedd7)", nemo, ("torch", "librosa"),
    ),
    "icefall": (
        "Fbank", dict(KALDI, sample_rate=16000, n_mels=80, f_max=-400.0, snip_edges=False), 300,
        "lhotse features/kaldi/extractors.py FbankConfig; icefall egs/librispeech/ASR", icefall, ("torch", "lhotse"),
    ),
    "wenet": (
        "Fbank", dict(KALDI, sample_rate=16000, n_mels=80, scale=32768.0), 401,
        "wenet-e2e/wenet wenet/dataset/processor.py compute_fbank (0154699)", wenet, TORCHAUDIO,
    ),
    "wav2vec2": (
        "Waveform", dict(sample_rate=16000, normalize_waveform="zscore"), 300,
        "transformers Wav2Vec2FeatureExtractor", wav2vec2, ("transformers",),
    ),
    "torchaudio": (
        "LogMel",
        dict(sample_rate=16000, n_fft=400, hop_length=200, n_mels=128, compression=decibel()), 300,
        "torchaudio transforms.MelSpectrogram and AmplitudeToDB, defaults", torchaudio_mel, TORCHAUDIO,
    ),
    "librosa": (
        "LogMel",
        dict(
            sample_rate=22050, n_fft=2048, hop_length=512, pad_mode="constant", n_mels=128, mel_scale="slaney",
            norm="slaney", compression=decibel(top_db=80.0),
        ),
        300, "librosa feature.melspectrogram and power_to_db, defaults", librosa_mel, ("librosa",),
    ),
}  # fmt: skip


def trap(rate, **options):
    return dict(sample_rate=rate, n_fft=512, hop_length=160, n_mels=40) | options


def mel_trap(rate, center=True, **options):
    """LogMel of torchaudio with these parameters."""
    parameters = trap(rate, **options)
    return "LogMel", parameters | {"center": center}, rate, torch_mel(**parameters, center=center), TORCHAUDIO


@in_float64
def torch_mfcc(x):
    return torchaudio.transforms.MFCC(
        sample_rate=16000, n_mfcc=20, melkwargs=dict(n_fft=512, hop_length=160, n_mels=40)
    )(x)


@in_float64
def torch_mfcc_plain(x):
    return torchaudio.transforms.MFCC(
        sample_rate=16000, n_mfcc=20, norm=None, melkwargs=dict(n_fft=512, hop_length=160, n_mels=40)
    )(x)


def librosa_mfcc(x, **options):
    return librosa.feature.mfcc(y=x, sr=22050, n_mfcc=20, n_fft=1024, hop_length=256, n_mels=64, **options)


LIBROSA = dict(
    sample_rate=22050, n_fft=1024, hop_length=256, n_mels=64, mel_scale="slaney", norm="slaney", pad_mode="constant"
)


def librosa_energy(x, **options):
    return librosa.feature.melspectrogram(y=x, sr=22050, n_fft=1024, hop_length=256, n_mels=64, **options)


def librosa_pcen(x):
    return librosa.pcen(librosa_energy(x) * 2.0**31, sr=22050, hop_length=256, b=0.025)


def librosa_pcen_first(x):
    energy = librosa_energy(x) * 2.0**31
    return librosa.pcen(energy, b=0.025, zi=0.975 * energy[:, :1])


def librosa_max(x):
    return librosa.power_to_db(librosa_energy(x), ref=numpy.max, top_db=60.0)


def librosa_amplitude(x):
    return librosa.amplitude_to_db(librosa_energy(x, power=1.0), amin=1e-5, top_db=None)


@in_float64
def torch_spectrogram(x):
    return torchaudio.transforms.Spectrogram(n_fft=256, win_length=200, hop_length=100, power=1.0, center=False)(x)


def librosa_spectrogram(x):
    return numpy.abs(librosa.stft(x, n_fft=512, win_length=320, hop_length=160, pad_mode="constant")) ** 2


def fbank_trap(rate, **options):
    """Fbank of torchaudio: milliseconds from samples."""
    parameters = dict(sample_rate=rate, layout="time", n_mels=40) | options
    names = dict(window="window_type", n_mels="num_mel_bins", f_min="low_freq", f_max="high_freq")
    names |= dict(preemphasis="preemphasis_coefficient", remove_dc="remove_dc_offset", snip_edges="snip_edges")
    original = {names[key]: value for key, value in options.items() if key in names}
    original.setdefault("num_mel_bins", 40)
    if "n_fft" in options:
        original["round_to_power_of_two"] = False
    original["frame_length"] = parameters.get("win_length", 400) / rate * 1000
    original["frame_shift"] = parameters.get("hop_length", 160) / rate * 1000
    return "Fbank", parameters, rate, kaldi_options(sample_frequency=rate, **original), TORCHAUDIO


def native_trap(scale, **parameters):
    """Fbank of kaldi-native-fbank at 16 kHz."""
    names = dict(window="frame_opts__window_type", n_mels="mel_opts__num_bins", f_min="mel_opts__low_freq")
    names |= dict(f_max="mel_opts__high_freq", snip_edges="frame_opts__snip_edges")
    options = {names[key]: value for key, value in parameters.items()}
    options.setdefault("mel_opts__num_bins", 80)
    parameters = dict(KALDI, sample_rate=16000, n_mels=80, scale=scale) | parameters
    original = lambda x: native_fbank(x * scale, 16000, **options)
    return "Fbank", parameters, 16000, original, ("kaldi-native-fbank",), "float32"


# name: class, parameters, rate, original, its packages, precision
TRAPS = {
    "window_shorter": mel_trap(16000, win_length=320),
    "window_shorter_not_centred": mel_trap(16000, win_length=320, center=False),
    "window_odd": mel_trap(16000, win_length=321),
    "hop_above_window": mel_trap(16000, n_fft=256, hop_length=400, n_mels=20),
    "hop_above_window_not_centred": mel_trap(16000, n_fft=256, hop_length=400, n_mels=20, center=False),
    "n_fft_odd": mel_trap(16000, n_fft=401, n_mels=30),
    "n_fft_odd_not_centred": mel_trap(44100, n_fft=1023, n_mels=30, center=False),
    "one_band": mel_trap(16000, n_mels=1),
    "many_bands": mel_trap(32000, n_fft=16384, hop_length=4000, n_mels=512),
    "clap_laion": (
        "LogMel", PRESETS["clap"][1] | {"layout": "mel"}, 48000, laion_clap, TORCHAUDIO,
    ),
    "nemo_parakeet": ("LogMel", PRESETS["nemo"][1], 16000, parakeet, ("torch", "transformers"), "float32"),
    "whisper_transformers": (
        "LogMel", PRESETS["whisper"][1], 16000, transformers_whisper, ("torch", "transformers"), "float32",
    ),
    "perch_log": (
        "LogMel",
        PRESETS["perch"][1] | {
            "scale": 1 / 40, "compression": ln(floor=1e-2), "normalization": standard(0.0, 10.0)
        },
        32000, perch_log, ("scipy",),
    ),
    "magnitudes": mel_trap(22050, power=1.0),
    "mel_slaney": mel_trap(32000, mel_scale="slaney", norm="slaney", f_min=50.0),
    "mel_htk_norm": mel_trap(32000, norm="slaney"),
    "mel_slaney_no_norm": mel_trap(32000, mel_scale="slaney"),
    "rate_8000": mel_trap(8000, n_fft=256, hop_length=80, n_mels=24),
    "rate_44100": mel_trap(44100, n_fft=1024, hop_length=441),
    "rate_96000": mel_trap(96000, n_fft=2048, hop_length=960),
    "constant_padding": mel_trap(16000, pad_mode="constant"),
    "spectrogram": (
        "Spectrogram",
        dict(sample_rate=16000, n_fft=256, win_length=200, hop_length=100, power=1.0, center=False), 16000,
        torch_spectrogram, TORCHAUDIO,
    ),
    "spectrogram_librosa": (
        "Spectrogram", dict(sample_rate=16000, n_fft=512, win_length=320, hop_length=160, pad_mode="constant"), 16000,
        librosa_spectrogram, ("librosa",),
    ),
    "mfcc": (
        "MFCC", dict(trap(16000), n_mfcc=20, compression=decibel(top_db=80.0)), 16000, torch_mfcc, TORCHAUDIO,
    ),
    "mfcc_no_norm": (
        "MFCC", dict(trap(16000), n_mfcc=20, dct_norm=None, compression=decibel(top_db=80.0)), 16000, torch_mfcc_plain,
        TORCHAUDIO,
    ),
    "mfcc_librosa": (
        "MFCC", dict(LIBROSA, n_mfcc=20, compression=decibel(top_db=80.0)), 22050, librosa_mfcc, ("librosa",),
    ),
    "mfcc_librosa_lifter": (
        "MFCC", dict(LIBROSA, n_mfcc=20, lifter=22.0, compression=decibel(top_db=80.0)), 22050,
        functools.partial(librosa_mfcc, lifter=22), ("librosa",),
    ),
    "pcen": (
        "LogMel", dict(LIBROSA, scale=2.0**15.5, compression={"type": "PCEN", "initial": 1.0}), 22050, librosa_pcen,
        ("librosa",),
    ),
    "pcen_first": (
        "LogMel", dict(LIBROSA, scale=2.0**15.5, compression={"type": "PCEN"}), 22050, librosa_pcen_first, ("librosa",),
    ),
    "decibel_of_maximum": (
        "LogMel", dict(LIBROSA, compression=decibel(reference="max", top_db=60.0)), 22050, librosa_max, ("librosa",),
    ),
    "decibel_of_amplitudes": (
        "LogMel", dict(LIBROSA, power=1.0, compression=decibel(amin=1e-5)), 22050, librosa_amplitude, ("librosa",),
    ),
    "fbank_reflected": fbank_trap(16000, snip_edges=False),
    "fbank_reflected_hop_above_window": fbank_trap(16000, win_length=200, hop_length=400, snip_edges=False, n_mels=20),
    "fbank_rate_8000": fbank_trap(8000, win_length=200, hop_length=80, n_mels=20),
    "fbank_rate_96000": fbank_trap(96000, win_length=2400, hop_length=960),
    "fbank_hamming": fbank_trap(16000, window="hamming"),
    "fbank_rectangular": fbank_trap(16000, window="rectangular", preemphasis=0.0),
    "fbank_with_dc": fbank_trap(16000, remove_dc=False, f_min=0.0),
    "fbank_unrounded": fbank_trap(16000, n_fft=400, n_mels=30),
    "fbank_below_nyquist": fbank_trap(16000, f_min=64.0, f_max=-600.0),
    "fbank_native": native_trap(1.0),
    "fbank_native_reflected": native_trap(32768.0, snip_edges=False, f_max=-400.0),
    "fbank_native_hanning": native_trap(1.0, window="hanning"),
}  # fmt: skip


def features(original, waveform):
    """The original's features, or None where it refuses the clip."""
    try:
        return numpy.asarray(original(waveform), numpy.float32)
    except (RuntimeError, IndexError, ValueError, librosa.ParameterError) as error:
        print(f"  refused: {type(error).__name__}: {error}".splitlines()[0])
        return None


def write_table(path, table):
    """JSON with a line per field and per clip."""
    entries = []
    for name, entry in table.items():
        clips = ",\n".join(f"   {json.dumps(clip)}: {json.dumps(meta)}" for clip, meta in entry["clips"].items())
        fields = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items() if key != "clips"]
        fields.append('  "clips": {' + (f"\n{clips}\n  " if clips else "") + "}")
        entries.append(f" {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n }")
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


class Golden:
    """The entries of one table and their arrays."""

    def __init__(self, clips):
        self.clips, self.used = clips, set()
        self.table, self.arrays = {}, {}

    def entry(self, name, kind, parameters, packages, precision="float64", **more):
        self.table[name] = {"class": kind, "parameters": parameters} | more
        self.table[name] |= {"origin": versions(*packages), "precision": precision, "clips": {}}

    def record(self, name, label, original, clip, **meta):
        """The features of one clip: of its first `n_samples`, or with zeros behind up to `pad_to`."""
        waveform = self.clips[clip][: meta.get("n_samples")] / 32768
        waveform = numpy.pad(waveform, (0, max(0, meta.get("pad_to", 0) - len(waveform))))
        entry = self.table[name]
        print(name, label, clip, meta)
        y = features(original, waveform)
        self.used.add(clip)
        entry["clips"][label] = {"clip": clip} | meta | ({"refused": True} if y is None else {"shape": list(y.shape)})
        if y is not None:
            time = 0 if entry["parameters"].get("layout") == "time" or y.ndim == 1 else 1
            stored = meta.get("n_stored", y.shape[time])
            self.arrays[f"{name}/{label}"] = y.take(range(min(stored, y.shape[time])), axis=time)


def main(folder):
    clips = make_clips(folder)
    presets, traps = Golden(clips), Golden(clips)
    for name, (kind, parameters, short, source, original, packages, *precision) in PRESETS.items():
        presets.entry(name, kind, parameters, packages, *precision, source=source)
        rate = parameters["sample_rate"]
        for label in STANDARD if original else []:
            meta = {"n_stored": 60} if "n_frames" in parameters else {}
            if name == "perch" and label in RECORDINGS:
                meta["n_samples"] = rate // 2  # whole hops: else Perch has one frame more
            presets.record(name, label, original, f"{rate}/{label}", **meta)
        if original:
            meta = {"n_stored": 60} if "n_frames" in parameters else {}
            presets.record(name, "short", original, f"{rate}/field", n_samples=short, **meta)
        if name.startswith("whisper"):
            presets.record(name, "padded", original, "16000/speech", pad_to=480000, n_stored=60)
    for name, (kind, parameters, rate, original, packages, *precision) in TRAPS.items():
        traps.entry(name, kind, parameters, packages, *precision)
        if name == "many_bands":
            traps.record(name, "field", original, f"{rate}/field")
        else:
            traps.record(name, "field", original, f"{rate}/field", n_samples=rate // 800 * 160)
            traps.record(name, "square", original, f"{rate}/square", n_samples=rate // 3200 * 160)
    traps.record("fbank_native", "shorter_than_frame", TRAPS["fbank_native"][3], "16000/field", n_samples=399)
    numpy.savez_compressed(HERE / "clips.npz", **{key: clips[key] for key in sorted(presets.used | traps.used)})
    for name, golden in (("presets", presets), ("traps", traps)):
        write_table(HERE / f"{name}.json", golden.table)
        numpy.savez_compressed(HERE / f"{name}.npz", **golden.arrays)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
