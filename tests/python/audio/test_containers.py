"""SPHERE, WebM and Matroska: samples beside soundfile and other containers, and every way to read a recording."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import forebay
from by_url import ONE_PASS
from digests import digest
from forebay import cli
from paths import DATA
from recordings import FOLDER, Row, write_shard
from served import Server

AUDIO = DATA / "audio"
COPIES = {
    "opus.webm": "opus/hybrid_swb_10ms_mono.opus",
    "opus_live.webm": "opus/celt_5ms_stereo.opus",
    "video.mkv": "opus/switching_mono.opus",
    "vorbis.webm": "vorbis/stereo_44100.ogg",
    "flac.mka": "made/s24.flac",
    "alac.mka": "made/alac16.caf",
    "pcm_u8.mka": "made/u8.wav",
    "pcm_s24be.mka": "made/s24.aiff",
}
"""Files in Matroska, and those with the same packets."""


@pytest.mark.parametrize(
    ("subtype", "endian"),
    [("PCM_S8", "FILE"), ("ULAW", "FILE"), ("ALAW", "FILE")]
    + [(f"PCM_{bits}", endian) for bits in (16, 24, 32) for endian in ("LITTLE", "BIG")],
)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_sphere_equals_soundfile(subtype: str, endian: str, channels: int, tmp_path: Path) -> None:
    waveform, rate = soundfile.read(FOLDER / "formats" / "loop.wav", dtype="float64", frames=3000)
    waveform = np.stack([waveform * (-0.5) ** channel for channel in range(channels)], 1)
    path = tmp_path / "a.sph"
    soundfile.write(path, waveform, rate, format="NIST", subtype=subtype, endian=endian)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    data = path.read_bytes()
    found, found_rate = forebay.decode(data)
    assert found_rate == rate
    np.testing.assert_array_equal(found.reshape(channels, -1), expected.T)
    part, _ = forebay.decode(data, 1000, 500)
    np.testing.assert_array_equal(part, found[..., 1000:1500])


@pytest.mark.parametrize("name", COPIES)
def test_copies_equal_their_sources(name: str) -> None:
    copy, source = ((AUDIO / path).read_bytes() for path in (f"matroska/{name}", COPIES[name]))
    found, rate = forebay.decode(copy)
    expected, expected_rate = forebay.decode(source)
    assert rate == expected_rate
    np.testing.assert_array_equal(found, expected)
    n = found.shape[-1]
    for start, num_samples in [(0, 10), (n // 3, n // 4), (n - 500, None)]:
        np.testing.assert_array_equal(
            forebay.decode(copy, start, num_samples)[0], forebay.decode(source, start, num_samples)[0]
        )


def test_every_way_to_a_recording_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shard, a folder, a tar and by URL."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "audio"
    folder.mkdir()
    files = [AUDIO / "matroska" / name for name in COPIES] + [AUDIO / "made" / "s16le.sph"]
    for number, path in enumerate(files):
        (folder / f"{number}{path.suffix}").write_bytes(path.read_bytes())
    paths = sorted(folder.iterdir())
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in paths:
            tar.add(path, path.name)
    shard = write_shard(tmp_path / "a.arrow", [Row(path.read_bytes()) for path in paths], classes=None)

    def batches(source: Any) -> list[str]:
        changes = {"order": "sequential", "batch_size": 1, "shuffle_min_size": 0}
        with forebay.Loader(source, **{**ONE_PASS, **changes}) as loader:
            found = [digest({"spectrogram": batch["spectrogram"]}) for batch in loader]
            assert not loader.errors()
        return found

    expected = batches(paths)
    assert len(expected) == len(paths)
    with Server(tmp_path) as server:
        for source in (folder, [tmp_path / "a.tar"], [shard], [server.named(path) for path in paths]):
            assert batches(source) == expected, source
        assert server.requests


def test_check_tells_what_is_cut_or_not_read(tmp_path: Path) -> None:
    webm, sphere = (AUDIO / "matroska/opus.webm").read_bytes(), (AUDIO / "made/s16le.sph").read_bytes()
    shorten = sphere.replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00")
    rows = [Row(webm), Row(webm[:5000]), Row(sphere), Row(shorten), Row(b"#!AMR\n" + b"<" * 99), Row(b"wvpk" * 20)]
    shard = write_shard(tmp_path / "a.arrow", rows, classes=None)
    assert cli.main(["check", str(shard), "-o", str(tmp_path / "report")]) == 1
    lines = (tmp_path / "report.csv").read_text()
    assert "cut short: the file ends within the Matroska element" in lines
    assert "convert it with `sph2pipe -f wav in.sph out.wav`" in lines
    assert "AMR is not read; convert it with `ffmpeg -i in.amr out.flac`" in lines
    assert "WavPack is not read; convert it with `ffmpeg -i in.wv out.flac`" in lines


def test_what_soundfile_writes_is_found_in_memory() -> None:
    """A recording is known by its content: SPHERE of LDC often ends in `.wav`."""
    file = io.BytesIO()
    soundfile.write(file, np.linspace(-0.5, 0.5, 800), 8000, format="NIST", subtype="PCM_16")
    waveform, rate = forebay.decode(file.getvalue())
    assert (rate, waveform.shape[-1]) == (8000, 800)
