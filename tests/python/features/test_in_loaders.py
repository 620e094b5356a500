"""`Loader(features=)`: the same features as the object makes of the decoded clip, for any recording."""

import dataclasses
import io
import pickle
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import forebay
import front_ends
from fields import write
from forebay import ConfigError, features
from golden_features import LOUD, MEAN, QUIET, Golden, goldens
from recordings import Row, read_rows, write_shard

RATES = (8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000)
ONE_PASS: dict[str, Any] = {
    "order": "sequential", "infinite": False, "shuffle_min_size": 0, "augment": False, "n_workers": 2,
    "label_column": "", "batch_size": 16,
}  # fmt: skip


def wav(samples: NDArray[np.int16], rate: int) -> bytes:
    """A recording of samples `[n]` or `[n, channels]`."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1] if samples.ndim == 2 else 1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def shard(path: Path, recordings: list[bytes]) -> Path:
    return write(path, pa.table({"audio": [{"bytes": recording, "path": None} for recording in recordings]}))


def passed(path: Any, **parameters: Any) -> dict[str, Any]:
    """All batches of a pass, joined."""
    with forebay.Loader(path, **{**ONE_PASS, **parameters}) as loader:
        batches = list(loader)
        assert loader.errors() == []
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def clips(path: Any, rate: int, **parameters: Any) -> dict[str, Any]:
    """The clips themselves, at this rate."""
    waveform = features.Waveform(sample_rate=rate)
    return passed(path, features=waveform, outputs=["valid_samples", "start"], **parameters)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each rate, mono and stereo: a second, a hundredth, one sample."""
    made = []
    for at, rate in enumerate(RATES):
        for n_channels in (1, 2):
            noise = np.random.default_rng(at).normal(0, 3000, (rate, n_channels)).astype(np.int16)
            made += [wav(noise[:n], rate) for n in (rate, rate // 100, 1)]
    return shard(tmp_path_factory.mktemp("rates") / "a", made)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shard(tmp_path_factory.mktemp("bundled") / "a.arrow", read_rows()[:8])


def test_the_first_user_takes_it_as_it_is(bundled: Path) -> None:
    """`features="birdmae"` is `[batch, 512, 128]`, as the object makes it of the decoded clip."""
    found = passed(bundled, features="birdmae", clip_seconds=5.0)["spectrogram"]
    assert found.shape == (8, 512, 128)
    made = clips(bundled, 32000, clip_seconds=5.0)
    full = made["valid_samples"] == 160_000
    assert full.sum() > 3
    birdmae = features.preset("birdmae")
    assert (found[full] == birdmae(made["waveform"][full])).all()
    reference = front_ends.reference("Fbank", birdmae_parameters(), made["waveform"][full][0])
    assert np.abs(found[full][0] - reference).max() < 5e-3


def birdmae_parameters() -> dict[str, Any]:
    return next(golden.parameters for golden in goldens() if golden.name == "birdmae")


def object_of(golden: Golden) -> Any:
    """The front end of golden features, whose bands may be empty as the original's are."""
    names = {field.name for field in dataclasses.fields(getattr(features, golden.kind))}
    given = {name: value for name, value in front_ends.DEFAULTS[golden.kind].items() if name in names}
    given |= golden.parameters | ({"empty_bands": "keep"} if "empty_bands" in names else {})
    return getattr(features, golden.kind).from_dict(given)


@pytest.mark.parametrize("golden", [golden for golden in goldens() if golden.table == "presets"], ids=str)
def test_golden_clips(golden: Golden, tmp_path: Path) -> None:
    """What the original made of each golden clip, through a file and a loader."""
    found, waveform = object_of(golden), golden.waveform
    samples = (waveform * 32768).astype(np.int16)
    assert (samples / np.float32(32768) == waveform).all()
    path = shard(tmp_path / "a", [wav(samples, found.sample_rate)])
    seconds = len(waveform) / found.sample_rate
    batch = passed(path, features=found, clip_seconds=seconds, outputs=["valid_samples"])
    assert batch["valid_samples"].tolist() == [len(waveform)]
    values = batch["waveform" if golden.kind == "Waveform" else "spectrogram"][0]
    assert list(values.shape) == golden.clip["shape"]
    assert values.tobytes() == found(waveform).tobytes()
    if golden.label in ("speech", "field", "noise") and str(golden) != "torchaudio-speech":
        errors = golden.errors(values)
        assert all(error <= limit for error, limit in zip(errors, (MEAN, LOUD, QUIET), strict=True)), errors


def objects() -> dict[str, Any]:
    """All presets, and classes with one channel, many bands and one."""
    made = {name: features.preset(name) for name in features.presets()}
    return made | {
        "one band": features.LogMel(sample_rate=16000, n_mels=1),
        "512 bands": features.LogMel(sample_rate=16000, n_fft=8192, n_mels=512, f_min=300.0),
        "512 bands, most empty": features.Fbank(n_mels=512, empty_bands="keep"),
        "spectrogram": features.Spectrogram(sample_rate=48000, n_fft=63, hop_length=100, win_length=40),
        "mfcc": features.MFCC(sample_rate=22050, n_mels=64, n_mfcc=13, f_max=11025.0),
        "no edges": features.Fbank(snip_edges=False, f_max=0.0, n_frames=20, fill="minimum"),
        "second": features.Waveform(sample_rate=16000, channels=0),
        "large hop": features.LogMel(sample_rate=16000, n_fft=256, hop_length=4000, n_mels=8),
    }


@pytest.mark.parametrize("name", objects())
def test_any_rate_channels_and_length(name: str, recordings: Path) -> None:
    """Mono and stereo of 8 to 96 kHz, and clips shorter than a window: finite, and as the object makes them."""
    found = objects()[name]
    seconds = 0.5
    batch = passed(recordings, features=found, clip_seconds=seconds, outputs=["valid_frames", "valid_samples"])
    if isinstance(found.channels, int):
        waveform = features.Waveform(sample_rate=found.sample_rate, channels=found.channels)
        made = passed(recordings, features=waveform, clip_seconds=seconds, outputs=["valid_samples"])
    else:
        made = clips(recordings, found.sample_rate, clip_seconds=seconds)
    values = batch["waveform" if isinstance(found, features.Waveform) else "spectrogram"]
    n = made["waveform"].shape[1]
    assert values.shape == (len(RATES) * 6, *found.shape(n))
    assert np.isfinite(values).all()
    assert (batch["valid_samples"] == made["valid_samples"]).all()
    full = made["valid_samples"] == n
    assert full.sum() == 2 * len(RATES)
    # The mean and the scale of a padded clip are those of its own samples.
    is_conditioned = found.remove_mean or found.normalize_waveform
    alike = full if is_conditioned else np.ones(len(full), np.bool_)
    assert (values[alike] == found(made["waveform"][alike])).all()
    most = values.shape[1 if getattr(found, "layout", "mel") == "time" else -1]
    assert (batch["valid_frames"] <= most).all()
    assert (batch["valid_frames"][full] == min(most, frames(found, n))).all()


def frames(found: Any, n: int) -> int:
    """The frames of `n` samples without a fixed number of frames."""
    if isinstance(found, features.Waveform):
        return n
    shape = dataclasses.replace(found, n_frames=None).shape(n)
    return int(shape[0 if found.layout == "time" else -1])


def test_padding_does_not_count(tmp_path: Path) -> None:
    """The mean, the peak and the z-score of a short recording are those of its samples; padding stays 0."""
    samples = np.random.default_rng(1).normal(4000, 3000, 1000).astype(np.int16)
    path = shard(tmp_path / "a", [wav(samples, 16000)])
    x = samples.astype(np.float64) / 32768
    expected = {
        "mean": ({"remove_mean": True}, x - x.mean()),
        "peak": ({"normalize_waveform": "peak", "peak": 0.5}, 0.5 * x / np.abs(x).max()),
        "zscore": ({"normalize_waveform": "zscore"}, (x - x.mean()) / np.sqrt(x.var() + 1e-7)),
    }
    for parameters, wanted in expected.values():
        found = features.Waveform(sample_rate=16000, **parameters)  # type: ignore[arg-type]
        for augment, start in ((True, 0), (False, 300)):
            clip = passed(path, features=found, clip_seconds=0.1, augment=augment)["waveform"][0]
            np.testing.assert_allclose(clip[start : start + 1000], wanted, atol=1e-5)
            assert not clip[:start].any()
            assert not clip[start + 1000 :].any()


def test_channels(tmp_path: Path) -> None:
    """The mean, one channel, and all; a recording without them is a bad record that says so."""
    stereo = np.random.default_rng(2).normal(0, 3000, (1600, 2)).astype(np.int16)
    path = shard(tmp_path / "a", [wav(stereo, 16000)])
    x = (stereo / np.float32(32768)).astype(np.float32)
    for channels, wanted in (("mean", x.mean(1)), (0, x[:, 0]), (1, x[:, 1])):
        found = features.Waveform(sample_rate=16000, channels=channels)  # type: ignore[arg-type]
        np.testing.assert_allclose(passed(path, features=found, clip_seconds=0.1)["waveform"][0], wanted, atol=1e-7)
    every = features.Waveform(sample_rate=16000, channels="all", n_channels=2)
    batch = passed(path, features=every, clip_seconds=0.1)
    assert batch["waveform"].shape == (1, 2, 1600)
    assert (batch["waveform"][0] == x.T).all()
    two = features.preset("whisper", channels="all", n_channels=2)
    batch = passed(path, features=two, clip_seconds=0.1)
    assert batch["spectrogram"].shape == (1, 2, 80, 10)
    assert (batch["spectrogram"][0] == features.preset("whisper")(np.ascontiguousarray(x.T))).all()
    mono = shard(tmp_path / "mono", [wav(stereo, 16000), wav(stereo[:, 0], 16000)])
    for found in (every, features.Waveform(sample_rate=16000, channels=1)):
        with forebay.Loader(mono, features=found, clip_seconds=0.1, **ONE_PASS) as loader:
            assert [batch["index"].tolist() for batch in loader] == [[0]]
            [error] = loader.errors()
            assert (error["row"], error["kind"]) == (1, "unsupported")
            assert "channel" in error["reason"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int16"])
def test_narrow_waveforms(dtype: Any, tmp_path: Path) -> None:
    """Samples are rounded; those beyond the type's range are its largest, never infinite."""
    samples = np.array([0, 1, -1, 20000, 32767, -32768, *range(994)], np.int16)
    path = shard(tmp_path / "a", [wav(samples, 16000)])
    for scale in (1.0, 32768.0, 1e6):
        found = features.Waveform(sample_rate=16000, scale=scale, dtype=dtype)
        values = passed(path, features=found, clip_seconds=1 / 16)["waveform"][0]
        assert values.tobytes() == found((samples / np.float32(32768)).astype(np.float32)).tobytes()
        exact = samples / 32768 * scale
        if dtype == "int16":
            assert (values == np.clip(np.rint(exact * 32768), -32768, 32767)).all()
        elif dtype == "float16":
            assert np.isfinite(values).all()
            assert (values == np.clip(exact.astype(np.float32), -65504, 65504).astype(np.float16)).all()
        else:
            wide = (values.astype(np.uint32) << 16).view(np.float32)
            np.testing.assert_allclose(wide, exact, rtol=2**-8)


def test_valid_frames(tmp_path: Path) -> None:
    """Frames of the samples of the recording, at most those of the clip."""
    lengths = [1, 159, 160, 399, 400, 401, 560, 1599, 1600, 5000]
    samples = np.ones(5000, np.int16)
    path = shard(tmp_path / "a", [wav(samples[:n], 16000) for n in lengths])
    parameters: dict[str, Any] = {"clip_seconds": 0.1, "outputs": ["valid_frames", "valid_samples"], "augment": True}
    expected = {
        "whisper": [min(n, 1600) // 160 for n in lengths],
        "torchaudio": None,
        "icefall": [min(n, 1600) // 160 + (min(n, 1600) % 160 >= 80) for n in lengths],
        "wenet": [max(0, 1 + (min(n, 1600) - 400) // 160) if n >= 400 else 0 for n in lengths],
        "wav2vec2": [min(n, 1600) for n in lengths],
    }
    for name, frames in expected.items():
        batch = passed(path, features=name, **parameters)
        assert batch["valid_samples"].tolist() == [
            min(n, round(0.1 * features.preset(name).sample_rate)) for n in lengths
        ]
        if frames is not None:
            assert batch["valid_frames"].tolist() == frames, name
    short = passed(path, features=features.preset("wenet", n_frames=3), **parameters)
    assert short["valid_frames"].tolist() == [min(3, n) for n in expected["wenet"] or []]


def test_what_is_refused(bundled: Path) -> None:
    def refused(**parameters: Any) -> str:
        with pytest.raises(ConfigError) as raised:
            forebay.Loader(bundled, **{**ONE_PASS, **parameters})
        return str(raised.value)

    message = refused(features="wisper")
    assert "must be one of birdset, birdmae" in message
    assert "did you mean 'whisper'?" in message
    assert "did you mean" not in refused(features="xyz")
    for twice in ({"n_mels": 80}, {"sample_rate": 16000, "dtype": "float16"}, {"layout": "mel"}, {"n_frames": 3}):
        message = refused(features="whisper", **twice)
        assert f"features and {', '.join(twice)} are given" in message
        assert f"forebay.features.LogMel({next(iter(twice))}=...)" in message
    with pytest.raises(ConfigError, match="features and sample_rate, n_mels are given"):
        forebay.Loader(bundled, 0, 16, 100, 10, 32000, 5.0, 80, features=features.LogMel(), **{
            name: value for name, value in ONE_PASS.items() if name not in ("shuffle_min_size", "batch_size")
        })  # fmt: skip
    wrong: list[Any] = [3, ["whisper"], features.Ln(), forebay.targets.Number("x"), features.LogMel]
    for odd in wrong:
        with pytest.raises(TypeError, match="features"):
            forebay.Loader(bundled, features=odd, **ONE_PASS)
    with pytest.raises(ConfigError, match=r"f_max is 16001\.0, must be above 0 and at most half"):
        features.LogMel(f_max=16001.0)
    assert "clip" in refused(features=features.Fbank(), clip_seconds=0.001)


def test_clips_without_a_frame(bundled: Path) -> None:
    """A clip that is shorter than a window needs `n_frames`, which fills."""
    filled = passed(bundled, features=features.Fbank(n_frames=4), clip_seconds=0.01)["spectrogram"]
    assert filled.shape == (8, 80, 4)
    assert (filled == filled[0, 0, 0]).all()


def test_the_default_is_an_object(bundled: Path) -> None:
    """Without `features` a loader has the features of a `LogMel` with its parameters, and the same name."""
    given: dict[str, Any] = {"n_mels": 40, "n_fft": 512, "hop_length": 160, "sample_rate": 16000, "layout": "time"}
    plain = passed(bundled, clip_seconds=1.0, **given)
    found = passed(bundled, clip_seconds=1.0, features=features.LogMel(**given))
    assert (plain["spectrogram"] == found["spectrogram"]).all()


@pytest.mark.parametrize("name", ["birdmae", "whisper", "wav2vec2"])
def test_presets_and_objects_are_one(name: str, bundled: Path) -> None:
    """A name, its object and a pickled loader are the same configuration; states go from one to the other."""
    by_name: dict[str, Any] = {**ONE_PASS, "batch_size": 3, "clip_seconds": 0.5, "features": name}
    by_object = {**by_name, "features": features.preset(name)}
    with forebay.Loader(bundled, **by_name) as one, forebay.Loader(bundled, **by_object) as other:
        next(one)
        other.load_state_dict(one.state_dict())
        with pickle.loads(pickle.dumps(other)) as copy:
            batches = [next(loader) for loader in (one, other, copy)]
        assert len({b"".join(values.tobytes() for values in batch.values()) for batch in batches}) == 1
        assert one.fields == other.fields == copy.fields
        state = one.state_dict()
    with (
        forebay.Loader(bundled, **{**by_name, "features": features.preset(name, scale=0.5)}) as changed,
        pytest.raises(forebay.StateError, match="features"),
    ):
        changed.load_state_dict(state)


def test_not_a_number_in_a_recording(tmp_path: Path) -> None:
    """Samples that are NaN make a bad record, whatever the features; a maximum never hides them."""
    samples = np.ones(1600, "<f4") * 0.25
    samples[800] = np.nan
    header = wav(np.zeros(0, np.int16), 16000)
    # Format 3: floating-point numbers of 32 bits.
    size = samples.nbytes
    header = header[:4] + (36 + size).to_bytes(4, "little") + header[8:20] + (3).to_bytes(2, "little") + header[22:28] \
        + (64000).to_bytes(4, "little") + (4).to_bytes(2, "little") + (32).to_bytes(2, "little") + header[36:40] \
        + size.to_bytes(4, "little")  # fmt: skip
    path = write_shard(tmp_path / "a.arrow", [Row(header + samples.tobytes())])
    for name in ("whisper", "birdmae", "wav2vec2", "passt"):
        with forebay.Loader(path, features=name, clip_seconds=0.1, **ONE_PASS) as loader:
            with pytest.raises(forebay.DecodeError, match=r"1 of 1 records failed \(non_finite\)"):
                list(loader)
            assert [error["kind"] for error in loader.errors()] == ["non_finite"]
