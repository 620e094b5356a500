"""`SpectrogramTransform` equals torchaudio's golden data and a float64 log-mel of real recordings; its errors."""

import csv
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import forebay
import reference
from paths import DATA
from recordings import TINY, Row, tiny_rows, write_shard
from reference import Features


def make(features: Features) -> forebay.SpectrogramTransform:
    return forebay.SpectrogramTransform(features.sample_rate, features.n_fft, features.hop_length, features.n_mels)


@pytest.mark.parametrize(
    "features",
    [
        Features(),
        Features(sample_rate=16000, n_fft=400, hop_length=160, n_mels=80),
        Features(sample_rate=22050, n_fft=2048, hop_length=512),
        Features(sample_rate=48000, n_fft=510, hop_length=123, n_mels=40),
    ],
    ids=lambda features: f"{features.sample_rate} Hz, n_fft {features.n_fft}",
)
def test_equals_the_reference(features: Features, rows: list[Row]) -> None:
    transform = make(features)
    for row in rows:
        clip = reference.decode(row.audio or b"")[0][: 3 * features.sample_rate].astype(np.float32)
        found = transform.transform(clip)
        assert found.shape == (transform.n_mels, transform.n_frames(len(clip)))
        assert found.dtype == np.float32
        loud, quiet = reference.differences(found, reference.log_mel(clip.astype(np.float64), features))
        assert loud.mean() <= 1e-5
        assert loud.max() <= 1e-4
        assert quiet.max(initial=0) <= 5e-3


GOLDEN = DATA / "features"


def golden() -> list[dict[str, str]]:
    """The lines of golden.tsv, without magnitudes, which Python does not offer."""
    lines = (GOLDEN / "golden.tsv").read_text().splitlines()[1:]
    table = csv.DictReader([lines[0].removeprefix("# "), *lines[1:]], delimiter="\t")
    return [line for line in table if float(line["power"]) == 2]


@pytest.mark.parametrize("line", golden(), ids=lambda line: line["name"])
def test_equals_torchaudio(line: dict[str, str]) -> None:
    """Equal within the tolerances of float64, and within 1e-4 of torchaudio where single precision resolves it."""
    n_samples, shape = int(line["n_samples"]), (int(line["n_mels"]), int(line["n_frames"]))
    values = np.fromfile(GOLDEN / f"{line['name']}.bin", dtype="<f4")
    waveform, torchaudio, float64 = np.split(values, [n_samples, n_samples + shape[0] * shape[1]])
    transform = forebay.SpectrogramTransform(
        int(line["sample_rate"]),
        int(line["n_fft"]),
        int(line["hop_length"]),
        shape[0],
        win_length=int(line["win_length"]),
        f_min=float(line["f_min"]),
        f_max=float(line["f_max"]),
    )
    found = transform.transform(waveform.astype(np.float32))
    loud, quiet = reference.differences(found, float64.reshape(shape).astype(np.float64))
    assert loud.mean() <= 1e-5
    assert loud.max() <= 1e-4
    assert quiet.max(initial=0) <= 5e-3
    loud, _ = reference.differences(found, torchaudio.reshape(shape).astype(np.float64))
    assert loud.max() <= 1e-4


def test_frames() -> None:
    transform = forebay.SpectrogramTransform()
    assert transform.n_mels == 128
    assert transform.n_frames(160_000) == 501
    assert [transform.n_frames(n) for n in (639, 640, 641)] == [2, 3, 3]
    assert transform.n_frames(2**62) == 1 + 2**62 // 320
    for n, shown in [(-1, "-1"), (2**64 - 1, "beyond int64")]:
        with pytest.raises(forebay.ConfigError, match=f"n_samples is {shown}"):
            transform.n_frames(n)


def test_pickled_it_is_the_same() -> None:
    transform = forebay.SpectrogramTransform(16000, 400, 160, 64, win_length=320, f_min=20.0, f_max=7600.0)
    waveform = np.sin(np.arange(4000, dtype=np.float32) / 7)
    again = pickle.loads(pickle.dumps(transform))
    assert repr(again) == repr(transform)
    assert np.array_equal(again.transform(waveform), transform.transform(waveform))


def test_silence_is_the_floor() -> None:
    found = forebay.SpectrogramTransform().transform(np.zeros(32_000, np.float32))
    np.testing.assert_allclose(found, np.log(1e-10), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_hidden(value: float) -> None:
    """The frames with a sample that is not finite are NaN in every band; the others are unchanged."""
    transform = forebay.SpectrogramTransform()
    waveform = np.random.default_rng(0).normal(size=32_000).astype(np.float32)
    clean = transform.transform(waveform)
    waveform[16_100] = value
    found = transform.transform(waveform)
    start = 320 * np.arange(found.shape[1]) - 512
    inside = (start <= 16_100) & (start + 1024 > 16_100)
    assert 3 <= inside.sum() <= 4
    assert np.isnan(found[:, inside]).all()
    np.testing.assert_array_equal(found[:, ~inside], clean[:, ~inside])


def test_wrong_waveforms() -> None:
    transform = forebay.SpectrogramTransform()
    with pytest.raises(forebay.ConfigError, match="512"):
        transform.transform(np.zeros(512, np.float32))
    wrong: list[tuple[object, str]] = [
        (np.zeros(32_000, np.float64), "an array of float64 and shape [32000]"),
        (np.zeros((2, 32_000), np.float32), "an array of float32 and shape [2, 32000]"),
        (np.zeros(64_000, np.float32)[::2], "not contiguous or not aligned (shape [32000])"),
        (np.zeros(4 * 32_000 + 1, np.uint8)[1:].view(np.float32), "not contiguous or not aligned (shape [32000])"),
        (np.zeros(32_000, ">f4"), "an array of >f4 and shape [32000]"),
        ([0.0] * 32_000, "of type list"),
        (None, "of type NoneType"),
    ]
    for waveform, found in wrong:
        expected = f"waveform is {found}, must be a contiguous numpy array of float32"
        with pytest.raises(TypeError, match=re.escape(expected)):
            transform.transform(waveform)  # type: ignore[arg-type]


def test_wrong_parameters() -> None:
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.SpectrogramTransform(n_fft=1, n_mels=0, hop_length=0, f_min=-1.0)
    for name in ["n_fft", "n_mels", "hop_length", "f_min"]:
        assert f"{name} is " in str(caught.value)
    for name in ["sample_rate", "n_fft", "hop_length", "n_mels", "win_length"]:
        for value in (-1, 0):
            with pytest.raises(forebay.ConfigError, match=rf"^{name} is {value}, must be \d+ to \d+$"):
                forebay.SpectrogramTransform(**{name: value})


def test_empty_bands_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bands narrower than the distance of two bins are logged once; the defaults have none."""
    forebay.SpectrogramTransform()
    shard = write_shard(tmp_path / "a.arrow", tiny_rows(10))
    with forebay.Loader(shard, **TINY) as loader:
        next(loader)
    assert not caplog.records
    transform = forebay.SpectrogramTransform(8000, 64, 32, 64)
    [record] = caplog.records
    found = re.match(r"(\d+) of the 64 mel bands \(n_mels\) are empty: no frequency bin of n_fft = 64 ", record.message)
    assert found, record.message
    values = transform.transform(np.random.default_rng(0).normal(size=1000).astype(np.float32))
    empty = (values == values[0, 0]).all(axis=1)
    assert values[0, 0] == pytest.approx(np.log(1e-10))
    assert int(found[1]) == empty.sum()
    caplog.clear()
    crowded = TINY.copy()
    crowded["n_mels"] = 64
    with forebay.Loader(shard, **crowded) as loader:
        for _ in range(3):
            next(loader)
    [again] = caplog.records
    assert again.message == record.message
    caplog.clear()
    with pytest.raises(forebay.ConfigError):
        forebay.SpectrogramTransform(8000, 64, 0, 4096)
    assert not caplog.records


def test_without_memory_it_raises() -> None:
    """A failed allocation for a spectrogram or a recording raises on each call; smaller ones succeed."""
    script = """
        import logging, resource
        from pathlib import Path
        import numpy as np
        import forebay
        logging.disable(logging.WARNING)  # most bands are empty
        transform = forebay.SpectrogramTransform(hop_length=1, n_mels=4096)
        waveform = np.zeros(300_000, np.float32)
        small = transform.transform(waveform[:2000])
        size = 300_000_000
        head = b"WAVEfmt \\x10\\0\\0\\0\\x01\\0\\x01\\0\\x40\\x1f\\0\\0\\x40\\x1f\\0\\0\\x01\\0\\x08\\0data"
        wav = b"RIFF" + (36 + size).to_bytes(4, "little") + head + size.to_bytes(4, "little") + bytes(size)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (500 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for _ in range(2):
            for work in (lambda: transform.transform(waveform), lambda: forebay.decode(wav)):
                try:
                    work()
                except MemoryError as error:
                    print(error)
        assert np.array_equal(transform.transform(waveform[:2000]), small)
        assert len(forebay.decode(wav, 5, 7)[0]) == 7
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=False, capture_output=True, text=True, timeout=200
    )
    assert (process.returncode, process.stderr) == (0, "")
    lines = process.stdout.splitlines()
    assert lines[:2] == lines[2:]
    assert lines[0] == (
        "cannot allocate 4688 MiB for a spectrogram of 4096 x 300001 values; "
        "raise hop_length, lower n_mels, or cut the waveform"
    )
    assert "cannot allocate 1145 MiB" in lines[1]
