"""`forebay.decode` of files written by libsndfile equals libsndfile's samples; each span is a slice of the whole."""

import io

import numpy as np
import pytest
import soundfile

import forebay
from generated import check_spans, signal, write

RATES = [8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 88200, 96000, 192000]
LOSSLESS = [
    *(("WAV", subtype) for subtype in ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]),
    *(("WAVEX", subtype) for subtype in ["PCM_16", "PCM_24", "FLOAT"]),
    *(("RF64", subtype) for subtype in ["PCM_16", "PCM_32"]),
    *(("W64", subtype) for subtype in ["PCM_24", "DOUBLE"]),
    *(("AIFF", subtype) for subtype in ["PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]),
    *(("AU", subtype) for subtype in ["PCM_S8", "PCM_16", "PCM_24", "FLOAT", "ULAW"]),
    *(("CAF", subtype) for subtype in ["PCM_16", "PCM_24", "FLOAT"]),
    *(("FLAC", subtype) for subtype in ["PCM_S8", "PCM_16", "PCM_24"]),
]


# libsndfile returns six channels of Vorbis and ALAC in the codec's order, forebay in WAV's: front left, front right,
# center, low frequency, back left, back right.
SURROUND_VORBIS = [0, 2, 1, 5, 3, 4]
SURROUND_ALAC = [1, 2, 0, 5, 3, 4]


def length(rate: int) -> int:
    """A length that is no multiple of block sizes: two seconds at low rates, half a second at 192 kHz."""
    return min(2 * rate, 90_000) + 617


def check(name: str, data: bytes, *, tolerance: float = 0, order: list[int] | None = None) -> int:
    """Compares the full decode with libsndfile's, and spans with the full decode; returns the length."""
    whole, rate = forebay.decode(data)
    expected, expected_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    expected = expected.T if order is None else expected.T[order]
    assert rate == expected_rate, name
    assert whole.shape == expected.shape, name
    assert np.abs(whole - expected).max() <= tolerance, name
    check_spans(name, data, whole)
    return int(whole.shape[-1])


@pytest.mark.parametrize(("container", "subtype"), LOSSLESS)
def test_lossless(container: str, subtype: str) -> None:
    for rate in RATES:
        for channels in [1, 2, 6]:
            n = length(rate)
            data = write(container, subtype, rate, signal(n, rate, channels))
            told = check(f"{rate} Hz, {channels} channels", data)
            # libsndfile counts the byte that pads an AIFF chunk to an even size as a sample.
            padding = n % 2 if (container, subtype, channels) == ("AIFF", "PCM_S8", 1) else 0
            assert told == n + padding


@pytest.mark.parametrize("rate", [8000, 44100, 192000])
def test_alac(rate: int) -> None:
    # Without 24 bits in six channels: libsndfile writes other samples than given, and reads the last packet differently
    # from ffmpeg, which agrees with forebay.
    for subtype, channels in [("ALAC_16", 1), ("ALAC_16", 2), ("ALAC_16", 6), ("ALAC_24", 1), ("ALAC_24", 2)]:
        n = length(rate)
        data = write("CAF", subtype, rate, signal(n, rate, channels))
        order = SURROUND_ALAC if channels == 6 else None
        assert check(f"{subtype}, {channels} channels", data, order=order) == n


@pytest.mark.parametrize("level", [0.0, 0.4, 1.0])
def test_flac_levels(level: float) -> None:
    for channels in [1, 2, 6]:
        data = write("FLAC", "PCM_16", 44100, signal(90_617, 44100, channels), compression_level=level)
        check(f"level {level}, {channels} channels", data)


# Both decoders compute in float32, in different orders: here they differ by at most 2.4e-7 (Vorbis) and 1.2e-6 (MP3).
LOSSY = 1e-5


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0], ids=lambda level: f"level {level}")
@pytest.mark.parametrize("rate", RATES)
def test_vorbis(rate: int, level: float) -> None:
    for channels in [1, 2, 6]:
        n = length(rate)
        data = write("OGG", "VORBIS", rate, signal(n, rate, channels), compression_level=level)
        order = SURROUND_VORBIS if channels == 6 else None
        assert check(f"{channels} channels", data, tolerance=LOSSY, order=order) == n


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
def test_opus(rate: int) -> None:
    """Opus is decoded at 48 kHz, whatever rate the encoder was given. A span is near the slice of the whole."""
    for channels in [1, 2, 6]:
        n = length(rate)
        data = write("OGG", "OPUS", rate, signal(n, rate, channels))
        whole, told = forebay.decode(data)
        assert told == 48_000
        assert whole.shape[-1] == n * 48_000 // rate
        if rate == 48_000:
            # libsndfile decodes with libopus, which does not clip.
            expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
            expected = expected.T[SURROUND_VORBIS] if channels == 6 else expected.T
            assert np.abs(whole - np.clip(expected, -1, 1)).max() <= LOSSY
        for start in range(0, whole.shape[-1] - 5000, 9001):
            span, _ = forebay.decode(data, start=start, num_samples=5000)
            again, _ = forebay.decode(data, start=start, num_samples=5000)
            assert np.array_equal(span, again)
            assert np.abs(span - whole[..., start : start + 5000]).max() <= 0.03


@pytest.mark.parametrize("mode", ["CONSTANT", "AVERAGE", "VARIABLE"])
@pytest.mark.parametrize("rate", [rate for rate in RATES if rate <= 48000])
def test_mp3(rate: int, mode: str) -> None:
    """Decoding is gapless: the tag has the encoder's delay and padding, which are cut off.

    So the length is that of the encoded signal, not a multiple of the frame, and sample 0 is the signal's first. At the
    lowest constant rates a frame has no room for the tag; then nothing is cut, and the length is that of all frames.
    """
    for channels in [1, 2]:
        for level in [0.0, 0.5, 0.99]:
            n = length(rate)
            samples = signal(n, rate, channels)
            data = write("MP3", "MPEG_LAYER_III", rate, samples, bitrate_mode=mode, compression_level=level)
            name = f"{channels} channels, level {level}"
            told = check(name, data, tolerance=LOSSY)
            if any(tag in data[:64] for tag in (b"Xing", b"Info")):
                assert told == n, name
            else:
                assert mode == "CONSTANT", name
                assert n < told < n + 4 * 1152, name
                assert told % 576 == 0, name
