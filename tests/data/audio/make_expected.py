"""Writes `made/` (small recordings in formats that the other sets lack) and `expected.tsv` (digests of decoded files).

Run: python make_expected.py, with soundfile 0.14.0 (libsndfile 1.2.2), numpy, and for ALAC and AAC imageio-ffmpeg 0.8.1
(ffmpeg 9.0.2). The samples come from cpython-audiodata/pluck-pcm16.wav.

A second run changes the bytes, not the samples, of files whose PEAK chunk holds the time of writing (f32, f64, nan).

A line of expected.tsv: path, sample rate, channels, samples per channel, CRC-32 of the interleaved little-endian float32
samples that `soundfile.read(dtype="float32")` returns; or path and the kind of the error. OVERRIDES has the files for
which libsndfile is no oracle, each with another source of the expected values and the reason.
"""

import pathlib
import subprocess
import zlib

import imageio_ffmpeg
import numpy as np
import soundfile as sf

HERE = pathlib.Path(__file__).parent
MADE = HERE / "made"

OVERRIDES = {
    # libsndfile reads 24-bit samples in 4-byte containers as if packed in 3 bytes, against the block alignment.
    "wav-hound/pcmwaveformat-24bit-4byte-48kHz-stereo.wav": "by-block",
    # libsndfile does not read integers above 32 bits; the samples are the top bits of the container.
    "scipy-wav/test-8000Hz-le-3ch-5S-36bit.wav": "wide",
    "scipy-wav/test-8000Hz-le-3ch-5S-53bit.wav": "wide",
    # STREAMINFO's total is wrong: it is 39842, but the frames hold 109487 samples.
    "flac-ietf/faulty_05_-_wrong_total_number_of_samples.flac": "by-ffmpeg",
    # STREAMINFO declares 24 bits, the frames 16: refused, as by `flac -t`.
    "flac-ietf/faulty_03_-_wrong_bit_depth.flac": "corrupt",
    # libsndfile does not read 32 bits, and this cut ends within a frame. The CRC is of the first two frames of the whole
    # file's samples, whose MD5 equals the one in STREAMINFO.
    "flac-ietf/uncommon_05_-_32bps_audio_first_60000.flac": (44100, 2, 8192, "76005384"),
    # libsndfile fails on this Ogg FLAC; ffmpeg reads it.
    "codec-ladder/oggflac_44100_mono.oga": "by-ffmpeg",
    # Opus is decoded at 48 kHz; libsndfile decodes it at the rate of its encoder. Samples: opus/expected.txt.
    "codec-ladder/opus_16000_voip.opus": (48000, 1, 144000, "-"),
    # The demuxed sample table ends its last packet early; ffmpeg plays that packet in full (145408).
    "codec-ladder/aac_48000_stereo_frag.mp4": (48000, 2, 145024, "-"),
    # libsndfile does not read ADPCM with an extensible header.
    "made/ima_extensible_96000_stereo.wav": "by-fact",
    "made/ms_extensible_96000_stereo.wav": "by-fact",
    # Junk precedes the FLAC marker, and no frame follows.
    "claxon/fuzz/c377cba674ebd98def206ba4e22f826da2c646d3.flac": "corrupt",
    # Packets copied by make_matroska.py, which libsndfile does not read: the same samples as in the sources. AAC
    # has all samples of its packets, since there is no edit list.
    "matroska/opus.webm": (48000, 1, 96000, "-"),
    "matroska/opus_clusters.webm": (48000, 1, 96000, "-"),
    "matroska/opus_live.webm": (48000, 2, 40000, "-"),
    "matroska/opus_surround.mka": (48000, 3, 33600, "-"),
    "matroska/video.mkv": (48000, 1, 96000, "-"),
    "matroska/aac.mka": (11025, 2, 21504, "-"),
    "matroska/alac.mka": (11025, 2, 2000, "98496861"),
    "matroska/flac.mka": (11025, 2, 2000, "98496861"),
    "matroska/pcm_f64le.mka": (11025, 2, 2000, "98496861"),
    "matroska/pcm_s24be.mka": (11025, 2, 2000, "98496861"),
    "matroska/pcm_u8.mka": (11025, 2, 2000, "4350583d"),
    "made/tones.txt": "unsupported",
    "made/page.html.wav": "unsupported",
    "made/empty.wav": "empty",
    "made/no_samples.wav": "empty",
    "made/no_samples.aiff": "empty",
    "made/nan.wav": "non_finite",
    "wav-bw64/rect_24bit_nowave_first6000.wav": "unsupported",
}
LOSSY = {".m4a": "by-length", ".mp4": "by-length", ".aac": "by-length"}


def ffmpeg(*arguments):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-bitexact", "-y", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True).stdout


def make():
    MADE.mkdir(exist_ok=True)
    x, rate = sf.read(HERE / "cpython-audiodata/pluck-pcm16.wav", dtype="float64", always_2d=True)
    x = x[:2000]
    for name, kind, subtype, endian in [
        ("f64.wav", "WAV", "DOUBLE", "FILE"),
        ("u8.wav", "WAV", "PCM_U8", "FILE"),
        ("alaw.wav", "WAV", "ALAW", "FILE"),
        ("ima_stereo.wav", "WAV", "IMA_ADPCM", "FILE"),
        ("ms_stereo.wav", "WAV", "MS_ADPCM", "FILE"),
        ("rifx_s16.wav", "WAV", "PCM_16", "BIG"),
        ("s16.w64", "W64", "PCM_16", "FILE"),
        ("f32.aifc", "AIFF", "FLOAT", "FILE"),
        ("f64.aifc", "AIFF", "DOUBLE", "FILE"),
        ("s8.aiff", "AIFF", "PCM_S8", "FILE"),
        ("s24.aiff", "AIFF", "PCM_24", "FILE"),
        ("sowt.aifc", "AIFF", "PCM_16", "LITTLE"),
        ("ulaw.aifc", "AIFF", "ULAW", "FILE"),
        ("s24.au", "AU", "PCM_24", "FILE"),
        ("f32.au", "AU", "FLOAT", "FILE"),
        ("s16le.sph", "NIST", "PCM_16", "LITTLE"),
        ("s24be.sph", "NIST", "PCM_24", "BIG"),
        ("ulaw.sph", "NIST", "ULAW", "FILE"),
        ("alaw.sph", "NIST", "ALAW", "FILE"),
        ("s16le.caf", "CAF", "PCM_16", "LITTLE"),
        ("s24.caf", "CAF", "PCM_24", "FILE"),
        ("f32.caf", "CAF", "FLOAT", "FILE"),
        ("alaw.caf", "CAF", "ALAW", "FILE"),
        ("s8.flac", "FLAC", "PCM_S8", "FILE"),
        ("s24.flac", "FLAC", "PCM_24", "FILE"),
        ("s16.rf64", "RF64", "PCM_16", "FILE"),
        ("alac16.caf", "CAF", "ALAC_16", "FILE"),
    ]:
        sf.write(MADE / name, x, rate, format=kind, subtype=subtype, endian=endian)
    sf.write(MADE / "one_sample.flac", x[:1], rate, subtype="PCM_16")
    sf.write(MADE / "two_samples.wav", x[:2], rate, subtype="PCM_16")
    sf.write(MADE / "zeros.wav", x[:1000] * 0, rate, subtype="PCM_16")
    sf.write(MADE / "no_samples.wav", x[:0], rate, subtype="PCM_16")
    sf.write(MADE / "no_samples.aiff", x[:0], rate, subtype="PCM_16")
    nan = x[:1000].copy()
    nan[500, 1] = np.nan
    sf.write(MADE / "nan.wav", nan, rate, subtype="FLOAT")
    wav = (HERE / "cpython-audiodata/pluck-pcm16.wav").read_bytes()
    at = wav.index(b"data") + 4
    for name, size in [("size_ffffffff.wav", b"\xff" * 4), ("size_0.wav", b"\0" * 4)]:
        (MADE / name).write_bytes(wav[:at] + size + wav[at + 4 : at + 8004])
    (MADE / "cut.wav").write_bytes(wav[: at + 4 + 4001])
    (MADE / "empty.wav").write_bytes(b"")
    (MADE / "tones.txt").write_text("do re mi fa so la ti do\n" * 20)
    (MADE / "page.html.wav").write_text("<!DOCTYPE html><html><body>404 not found</body></html>\n")
    source = HERE / "cpython-audiodata/pluck-pcm16.wav"
    ffmpeg("-i", source, "-c:a", "alac", MADE / "alac.m4a")
    ffmpeg("-i", MADE / "s24.aiff", "-c:a", "alac", "-sample_fmt", "s32p", MADE / "alac24.m4a")
    # Above 48 kHz ffmpeg writes WAVE_FORMAT_EXTENSIBLE, with the codec's fields after the GUID.
    for codec, name in [("adpcm_ima_wav", "ima"), ("adpcm_ms", "ms")]:
        ffmpeg("-i", source, "-t", 0.06, "-ar", 96000, "-c:a", codec, MADE / f"{name}_extensible_96000_stereo.wav")
    # Without noise substitution, AAC spans are bit-equal too.
    ffmpeg("-stream_loop", 5, "-i", source, "-c:a", "aac", "-aac_pns", 0, MADE / "no_noise_stereo.m4a")
    flac = MADE / "id3_in_front.flac"
    tag = b"ID3\x04\0\0\0\0\0\x10" + b"\0" * 16
    flac.write_bytes(tag + (MADE / "s24.flac").read_bytes())


def crc(x):
    return f"{zlib.crc32(np.ascontiguousarray(x, '<f4').tobytes()):08x}"


def by_soundfile(path):
    x, rate = sf.read(path, dtype="float32", always_2d=True)
    return rate, x.shape[1], len(x), crc(x)


def by_ffmpeg(path):
    """Decodes mono files through 32-bit integers, exact for 16 and 24 bits; the rate is 44100 if the name has it."""
    raw = np.frombuffer(ffmpeg("-i", path, "-f", "s32le", "-"), "<i4")
    rate = 44100 if "44100" in path.name else 24000
    return rate, 1, len(raw), crc((raw / 2.0**31).astype(np.float32))


def by_fact(path):
    """ffmpeg's samples, cut to the length in the `fact` chunk: ffmpeg also decodes the padding of the last block."""
    data = path.read_bytes()
    n = int.from_bytes(data[data.index(b"fact") + 8 :][:4], "little")
    raw = np.frombuffer(ffmpeg("-i", path, "-f", "s16le", "-"), "<i2")[: 2 * n]
    return 96000, 2, n, crc((raw / 2.0**15).astype(np.float32))


def by_length(path):
    raw = np.frombuffer(ffmpeg("-i", path, "-f", "f32le", "-"), "<f4")
    channels = 2 if "stereo" in path.name else 1
    rate = 48000 if "48000" in path.name else 11025 if path.parent == MADE else 44100
    return rate, channels, len(raw) // channels, "-"


def wide(path):
    """Decodes integers of 33 to 64 bits in whole bytes: 3 channels, 5 samples."""
    data = path.read_bytes()[44:]
    n = 5 if "36bit" in path.name else 7
    ints = [int.from_bytes(data[i : i + n], "little", signed=True) for i in range(0, 15 * n, n)]
    return 8000, 3, 5, crc([i / 2.0 ** (8 * n - 1) for i in ints])


def by_block(path):
    ints = np.frombuffer(path.read_bytes()[44:60], "<u4")
    return 48000, 2, 2, crc([((int(i) & 0xFFFFFF) ^ 0x800000) / 2.0**23 - 1.0 for i in ints])


def expected(name, path):
    override = OVERRIDES.get(name) or LOSSY.get(path.suffix)
    if path.name == "alac.m4a":
        return by_soundfile(HERE / "cpython-audiodata/pluck-pcm16.wav")
    if path.name == "alac24.m4a":
        return by_soundfile(MADE / "s24.aiff")
    if path.name == "id3_in_front.flac":
        return by_soundfile(MADE / "s24.flac")
    if path.name.startswith("size_"):
        x, rate = sf.read(HERE / "cpython-audiodata/pluck-pcm16.wav", dtype="float32", always_2d=True)
        return rate, 2, 2000, crc(x[:2000])
    judge = {"by-ffmpeg": by_ffmpeg, "by-fact": by_fact, "by-length": by_length, "wide": wide, "by-block": by_block}.get(override)
    if judge:
        return judge(path)
    if override:
        return override if isinstance(override, tuple) else (override,)
    try:
        return by_soundfile(path)
    except sf.LibsndfileError:
        return ("corrupt",)


def main():
    make()
    lines = []
    for path in sorted(HERE.rglob("*")):
        name = path.relative_to(HERE).as_posix()
        if path.is_file() and path.parent != HERE and path.name not in ("SOURCE.txt", "LICENSE.txt"):
            lines.append("\t".join(map(str, (name, *expected(name, path)))))
    (HERE / "expected.tsv").write_text("\n".join(lines) + "\n")


main()
