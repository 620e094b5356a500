"""Caches of features: every front end, whole recordings, and the identity of a build."""

import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from caches import files
from forebay import ConfigError, DecodeError, Loader, SpectrogramTransform, StateError, cache, decode, features
from forebay._part import _Part
from recordings import Row, write_shard

SMALL: dict[str, Any] = {"sample_rate": 8000, "n_fft": 64, "hop_length": 32, "n_mels": 8}
STEREO = features.LogMel(**SMALL, channels="all", n_channels=2)

FRONT_ENDS: dict[str, Any] = {
    **{name: features.preset(name) for name in ("whisper", "birdmae", "wav2vec2", "passt", "beats", "clap")},
    "float16": features.preset("whisper", n_frames=40, dtype="float16", layout="time"),
    "all": STEREO,
    "one": features.MFCC(**SMALL, n_mfcc=5, channels=1),
    "int16": features.Waveform(dtype="int16"),
    "both": features.Waveform(sample_rate=8000, remove_mean=True, dtype="float16", channels="all", n_channels=2),
}


def wav(n_samples: int, rate: int, n_channels: int = 1, seed: int = 0) -> bytes:
    """A recording of noise that fades."""
    noise = np.random.default_rng(seed).normal(0, 0.1, (n_samples, n_channels))
    noise *= np.linspace(1, 0.1, n_samples)[:, None]
    file = io.BytesIO()
    with wave.open(file, "wb") as to:
        to.setnchannels(n_channels)
        to.setsampwidth(2)
        to.setframerate(rate)
        to.writeframes((noise * 32767).clip(-32768, 32767).astype("<i2").tobytes())
    return file.getvalue()


def shard(folder: Path, recordings: list[bytes]) -> Path:
    """A shard of recordings whose labels are their rows."""
    folder.mkdir(exist_ok=True)
    rows = [Row(audio, at) for at, audio in enumerate(recordings)]
    return write_shard(folder / "a.arrow", rows, rows_per_batch=2, classes=[str(at) for at in range(len(rows))])


def called(front_end: Any, audio: bytes) -> NDArray[Any]:
    """The object called on a decoded recording of its rate."""
    decoded, rate = decode(audio)
    assert rate == front_end.sample_rate
    planes = np.atleast_2d(decoded)
    match front_end.channels:
        case "mean":
            waveform = planes.mean(0, dtype=np.float32)
        case "all":
            waveform = planes
        case channel:
            waveform = planes[channel]
    found: NDArray[Any] = front_end(np.ascontiguousarray(waveform))
    return found


def same(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def processor_of(folder: Path) -> Any:
    ledger = json.loads((folder / "train" / "shard_ledger.json").read_text())
    return ledger["metadata"]["preprocessor_metadata"]["processor"]


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_rows_are_the_object_called_on_the_recording(name: str, tmp_path: Path) -> None:
    front_end = FRONT_ENDS[name]
    rate = front_end.sample_rate
    sizes = [5 * rate // 2, 8001, rate, 4096, 12 * rate]
    n_channels = [2] * 5 if front_end.channels in ("all", 1) else [1, 2, 1, 2, 1]
    recordings = [wav(n, rate, c, seed) for seed, (n, c) in enumerate(zip(sizes, n_channels, strict=True))]
    path = shard(tmp_path / "shards", recordings)
    store = cache.build(path, front_end, tmp_path / "a", batch_size=2, n_workers=2)
    [field] = store.fields.keys() - {"label"}
    assert field == ("waveform" if isinstance(front_end, features.Waveform) else "spectrogram")
    for at, audio in enumerate(recordings):
        expected = called(front_end, audio)
        assert store.fields[field] == (expected.dtype, expected.ndim)
        assert same(store[at][field], expected), at
        assert int(store[at]["label"]) == at
    assert processor_of(tmp_path / "a") == json.loads(json.dumps(front_end.to_dict()))
    # The same call opens the cache, and another number of workers writes the same bytes.
    assert len(cache.build(path, cache.Features(front_end), tmp_path / "a", batch_size=2)) == len(recordings)
    cache.build(path, front_end, tmp_path / "b", batch_size=2, n_workers=1)
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("name", ["whisper", "birdmae", "wav2vec2"])
def test_a_preset_by_its_name(name: str, tmp_path: Path) -> None:
    path = shard(tmp_path / "shards", [wav(4000, 16000)])
    cache.build(path, cache.Features(name), tmp_path / "name")
    cache.build(path, features.preset(name), tmp_path / "object")
    assert files(tmp_path / "name") == files(tmp_path / "object")


@pytest.mark.parametrize(
    "front_end", [STEREO, features.Waveform(sample_rate=8000), features.LogMel(**SMALL, channels=1)]
)
def test_recordings_of_another_rate_are_those_of_the_loader(front_end: Any, tmp_path: Path) -> None:
    path = shard(tmp_path / "shards", [wav(22050, 44100, 2), wav(24000, 48000, 2), wav(4000, 8000, 2)])
    store = cache.build(path, front_end, tmp_path / "c")
    [field] = store.fields.keys() - {"label"}
    opened: Any = Loader.eval
    loader = opened(path, features=front_end, clip_seconds=0.5, batch_size=1)
    batches = {int(batch["index"][0]): batch[field][0] for batch in loader}
    assert batches.keys() == {0, 1, 2}
    assert all(same(store[at][field], np.ascontiguousarray(batches[at])) for at in batches)


@pytest.mark.parametrize(
    ("front_end", "least"),
    [
        (features.LogMel(**SMALL), 1),
        (features.LogMel(**SMALL, center=False), 64),
        (features.LogMel(**SMALL, drop_last=True), 32),
        (features.LogMel(**SMALL, center=False, preemphasis=0.9, preemphasis_start="drop"), 65),
        (features.Fbank(sample_rate=8000, win_length=50, hop_length=20, n_mels=8, layout="time"), 50),
        (features.Fbank(sample_rate=8000, win_length=50, hop_length=21, n_mels=8, snip_edges=False), 11),
    ],
)
def test_recordings_too_short_for_a_frame(front_end: Any, least: int, tmp_path: Path) -> None:
    """They are padded with zeros to the fewest samples of a frame; with `n_frames` they are as the object has them."""
    sizes = [*{1, least - 1, least, least + 1} - {0}]
    recordings = [wav(n, 8000, seed=n) for n in sizes]
    path = shard(tmp_path / "shards", recordings)
    store = cache.build(path, front_end, tmp_path / "c")
    for at, n in enumerate(sizes):
        padded = np.zeros(max(n, least), np.float32)
        padded[:n] = decode(recordings[at])[0]
        assert same(store[at]["spectrogram"], front_end(padded))
    assert 0 in front_end.shape(least - 1)
    fixed: Any = _Part.from_dict({**front_end.to_dict(), "n_frames": 3})
    store = cache.build(path, fixed, tmp_path / "fixed")
    assert all(same(store[at]["spectrogram"], called(fixed, audio)) for at, audio in enumerate(recordings))


@pytest.mark.parametrize(
    ("front_end", "bad", "reason"),
    [
        (STEREO, {1: 1, 3: 3}, "the recording has 1 channels, and n_channels is 2"),
        (features.Waveform(sample_rate=8000, channels=1), {1: 1}, "channels=1 asks for one with a higher number"),
    ],
)
def test_recordings_with_other_channels(front_end: Any, bad: dict[int, int], reason: str, tmp_path: Path) -> None:
    """They are bad documents; and a build that raised for one of them resumes with `skip`."""
    recordings = [wav(800 + at, 8000, bad.get(at, 2), at) for at in range(6)]
    path = shard(tmp_path / "shards", recordings)
    with pytest.raises(DecodeError, match=reason):
        cache.build(path, front_end, tmp_path / "a", batch_size=1)
    store = cache.build(path, front_end, tmp_path / "a", batch_size=1, on_error="skip")
    assert store.flat("label").tolist() == [at for at in range(6) if at not in bad]
    assert [(error["row"], error["kind"]) for error in store.errors()] == [(at, "unsupported") for at in bad]
    [field] = store.fields.keys() - {"label"}
    kept = [audio for at, audio in enumerate(recordings) if at not in bad]
    assert all(same(store[at][field], called(front_end, audio)) for at, audio in enumerate(kept))
    cache.build(path, front_end, tmp_path / "b", batch_size=1, on_error="skip")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_what_differs_is_named(tmp_path: Path) -> None:
    path = shard(tmp_path / "shards", [wav(4000, 8000)])
    cache.build(path, features.LogMel(**SMALL), tmp_path / "c")
    for other, expected in [
        ({**SMALL, "n_mels": 9}, [r'processor "n_mels" was 8 and is 9']),
        ({**SMALL, "hop_length": 40, "scale": 2.0}, ['processor "hop_length" was 32 and is 40', '"scale" was 1.0']),
        ({**SMALL, "compression": features.Log10()}, ['processor "compression" was {', '"type":"Log10"']),
    ]:
        with pytest.raises(StateError, match="made with other parameters") as raised:
            cache.build(path, features.LogMel(**other), tmp_path / "c")
        assert all(part in str(raised.value) for part in expected), raised.value
        assert '"n_fft"' not in str(raised.value)
    alone = r'was made with other parameters: processor "type" was "LogMel" and is "Waveform"; pass overwrite=True'
    with pytest.raises(StateError, match=alone):
        cache.build(path, features.Waveform(sample_rate=8000), tmp_path / "c")
    assert len(cache.build(path, features.LogMel(**SMALL), tmp_path / "c")) == 1


DEFAULT = """SpectrogramConfig { sample_rate: 32000, n_fft: 1024, win_length: None, hop_length: 320, n_mels: 128, \
f_min: 0.0, f_max: None, power: 2.0, center: true }"""
OTHER = """SpectrogramConfig { sample_rate: 8000, n_fft: 64, win_length: Some(50), hop_length: 32, n_mels: 8, \
f_min: 12.5, f_max: Some(3000.0), power: 2.0, center: true }"""


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, DEFAULT), ({**SMALL, "win_length": 50, "f_min": 12.5, "f_max": 3000.0}, OTHER)],
)
def test_the_identity_of_a_transform_stays(parameters: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """Caches that earlier versions built have this text; its bytes are those of the object called."""
    transform = SpectrogramTransform(**parameters)
    audio = wav(12_345, int(parameters.get("sample_rate", 32000)))
    store = cache.build(shard(tmp_path / "shards", [audio]), transform, tmp_path / "c")
    assert processor_of(tmp_path / "c") == expected
    assert same(store[0]["spectrogram"], transform.transform(decode(audio)[0]))


@pytest.mark.parametrize(
    ("processor", "error", "expected"),
    [
        ("whisper", TypeError, r"processor is str, expected .* pass cache.Features\('whisper'\)"),
        (cache.Features(3), TypeError, r"transform.*3.*int.*a SpectrogramTransform, or an object of forebay.features"),  # type: ignore[arg-type]
        (cache.Features(None), TypeError, "transform.*None.*an object of forebay.features"),  # type: ignore[arg-type]
        (cache.Features(features.LogMel), TypeError, "an object of forebay.features"),  # type: ignore[arg-type]
        (features.LogMel, TypeError, r"processor is the class LogMel, expected an object: LogMel\(\)"),
        (features.Ln(), TypeError, "processor is Ln, expected a Tokenizer, an object of forebay.features"),
        (features.LogMel(dtype="bfloat16"), ConfigError, '"bfloat16", which .*"float32" or "float16"'),
        (features.Waveform(dtype="bfloat16"), ConfigError, "bfloat16"),
        (features.Waveform(channels="all"), ConfigError, 'channels="all" and no n_channels; .*n_channels=2'),
    ],
)
def test_what_is_refused(processor: Any, error: type[Exception], expected: str, tmp_path: Path) -> None:
    path = shard(tmp_path / "shards", [wav(400, 8000)])
    with pytest.raises(error, match=expected):
        cache.build(path, processor, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_front_end_needs_recordings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a front end reads recordings from Parquet or Arrow files"):
        cache.build({"a": [1, 2]}, features.LogMel(), tmp_path / "c")


def test_another_column_and_type(tmp_path: Path) -> None:
    path = shard(tmp_path / "shards", [wav(4000, 8000)])
    found = cache.Features(features.LogMel(**SMALL), audio_column="sound")
    with pytest.raises(ConfigError, match="sound"):
        cache.build(path, found, tmp_path / "a")
    store = cache.build(path, features.LogMel(**SMALL), tmp_path / "b", fields={"spectrogram": "float16"})
    assert store.fields == {"spectrogram": (np.dtype(np.float16), 2)}


def test_a_wrong_preset_is_refused_when_the_processor_is_made() -> None:
    with pytest.raises(ConfigError, match=r"preset is 'whispr', must be one of .* did you mean 'whisper'"):
        cache.Features("whispr")
