"""Writes players/: recordings as players accept them and few programs write them, and players/expected.txt.

expected.txt has the samples of ffmpeg, in the format of make_expected_lossy.py: of libsndfile for IMA ADPCM, whose
blocks ffmpeg does not decode one by one, and of mpg123 for free format, which ffmpeg refuses. Files whose names end in
_behind are another file of the folder after junk.

ffmpeg 5.1.9, LAME 3.100, flac 1.4.2, mpg123 1.31.2 (Debian 12); numpy 2.4.6, soundfile 0.14.0:

    python make_players.py
"""

import pathlib
import subprocess
import tempfile

import numpy as np
import soundfile

HERE = pathlib.Path(__file__).parent / "players"
STRIDE = 211
LEFT = "0.3*sin(880*PI*t)+0.1*sin(2500*PI*t)"
RIGHT = "0.3*sin(660*PI*t)+0.05*sin(5000*PI*t)"
# An ID3v2 tag of 300 bytes.
TAG = b"ID3\x04\0\0\0\0\x02\x2c" + bytes(300)
# Rate and channels of recordings of free format; LAME resamples to the rate that suits the bit rate.
FREE = {"free_20.mp3": (16000, 1), "free_100.mp3": (32000, 2), "free_400.mp3": (44100, 2)}
# Equal to another file, which the other programs do not read.
LEFT_OUT = {"ima4.mov", "ima4.caf", "aac_junk_behind.aac"}
PCM = [
    "s8",
    "u8",
    "s16le",
    "s16be",
    "s24le",
    "s24be",
    "s32le",
    "s32be",
    "f32le",
    "f32be",
    "f64le",
    "f64be",
    "alaw",
    "mulaw",
]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, cwd=HERE).stdout


def ffmpeg(*arguments):
    run("ffmpeg", "-hide_banner", "-loglevel", "error", "-y", "-fflags", "+bitexact", *arguments)


def sound(rate, seconds, channels=2):
    return ["-f", "lavfi", "-i", f"aevalsrc={'|'.join([LEFT, RIGHT][:channels])}:s={rate}:d={seconds}"]


def exact(path):
    return ["-flags:a", "+bitexact", "-map_metadata", "-1", path]


def make():
    rounded = ["-c", "copy", "-bsf:a", "setts=ts=floor(PTS/48)*48"]
    ffmpeg(*sound(48000, 0.5, 1), *["-c:a", "aac", "-b:a", "48k", "-aac_pns", "0"], *exact("aac_plain.m4a"))
    ffmpeg("-i", "aac_plain.m4a", *rounded, *exact("aac_rounded.m4a"))
    fragments = ["-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-frag_duration", "200000"]
    ffmpeg("-i", "aac_rounded.m4a", "-c", "copy", *fragments, *exact("aac_fragments.mp4"))
    ffmpeg(*sound(48000, 0.3, 1), "-c:a", "alac", *exact("alac_plain.m4a"))
    ffmpeg("-i", "alac_plain.m4a", *rounded, *exact("alac_rounded.m4a"))
    ffmpeg(*sound(32000, 0.2), "-c:a", "flac", "-sample_fmt", "s16", "-strict", "-2", *exact("flac.mp4"))
    ffmpeg(*sound(44100, 0.5), *["-c:a", "libmp3lame", "-b:a", "64k"], *exact("mp3.mp4"))
    ffmpeg(*sound(22050, 0.5, 1), *["-c:a", "libmp3lame", "-b:a", "32k"], *exact("mp3.mov"))
    for kind in PCM:
        ffmpeg(*sound(8000, 0.05), "-c:a", f"pcm_{kind}", *exact(f"pcm_{kind}.mov"))
    for name, channels in [("ima4.mov", 2), ("ima4.aifc", 2), ("ima4.caf", 1)]:
        ffmpeg(*sound(22050, 0.3, channels), "-c:a", "adpcm_ima_qt", *exact(name))
    ffmpeg("-i", "ima4.caf", "-c", "copy", *exact("ima4_mono.aifc"))
    ffmpeg(*sound(44100, 0.3), *["-c:a", "aac", "-b:a", "48k", "-aac_pns", "0", "-f", "adts"], *exact("aac.aac"))
    ffmpeg(*sound(32000, 0.2, 1), "-c:a", "flac", "-sample_fmt", "s16", *exact("flac.flac"))
    ffmpeg(*sound(8000, 0.05), "-c:a", "pcm_s16le", *exact("pcm.wav"))
    with tempfile.TemporaryDirectory() as folder:
        for name, rate, channels, options in [
            ("free_100.mp3", 44100, 2, "-b 100"),
            ("free_400.mp3", 44100, 2, "-b 400"),
            ("free_20.mp3", 16000, 1, "-b 20 -m m"),
        ]:
            ffmpeg(*sound(rate, 0.3, channels), "-c:a", "pcm_s16le", f"{folder}/tone.wav")
            run("lame", "--quiet", "--freeformat", *options.split(), "-t", f"{folder}/tone.wav", name)
        ffmpeg(*sound(48000, 0.2, 1), "-f", "s16le", "-c:a", "pcm_s16le", f"{folder}/tone.raw")
        raw = "--force-raw-format --endian=little --sign=signed --channels=1 --bps=16 --sample-rate=1048575"
        run("flac", "--silent", "--force", "--lax", *raw.split(), "-o", "flac_1048575.flac", f"{folder}/tone.raw")
    read = {name: (HERE / name).read_bytes() for name in ["flac.flac", "aac.aac", "pcm.wav", "free_20.mp3"]}
    (HERE / "flac_tag_zeros_behind.flac").write_bytes(TAG + bytes(1000) + read["flac.flac"])
    (HERE / "flac_junk_behind.flac").write_bytes(b"junk \xff\xf1\xff\xfb" * 100 + read["flac.flac"])
    (HERE / "aac_tag_behind.aac").write_bytes(TAG + read["aac.aac"])
    (HERE / "aac_junk_behind.aac").write_bytes(b"junk \xff\xf1\xff\xfb" * 100 + read["aac.aac"])
    (HERE / "pcm_tag_behind.wav").write_bytes(TAG + read["pcm.wav"])
    # Joint stereo, sum and difference, of channels with different kinds of blocks.
    unlike = bytearray((HERE.parent / "mpeg" / "unlike_blocks_44100_stereo.mp3").read_bytes()[: 14 * 1044])
    for at in range(0, len(unlike), 1044):
        unlike[at + 3] = 0x60
    (HERE / "unlike_joint.mp3").write_bytes(unlike)
    # The profile of each frame becomes SSR.
    ssr, at = bytearray(read["aac.aac"]), 0
    while at < len(ssr):
        ssr[at + 2] = ssr[at + 2] & 0x3F | 0x80
        at += (ssr[at + 3] & 3) << 11 | ssr[at + 4] << 3 | ssr[at + 5] >> 5
    (HERE / "aac_ssr.aac").write_bytes(ssr)
    # A flag says that a core coder's delay follows, and it does not.
    plain = (HERE / "aac_plain.m4a").read_bytes()
    at = plain.index(b"esds") + 4
    setup = plain.index(b"\x05\x80\x80\x80", at)
    n = plain[setup + 4]
    cut = bytearray(plain)
    cut[setup + 5 : setup + 5 + n] = bytes([plain[setup + 5], plain[setup + 6] & 0xF8 | 2]) + bytes(n - 2)
    # The other bytes of the setup become a descriptor of their own, of a kind that is not known.
    if n >= 4:
        cut[setup + 4] = 2
        cut[setup + 7 : setup + 9] = bytes([0x70, n - 4])
    (HERE / "aac_cut_setup.m4a").write_bytes(cut)


def samples_of(path):
    if path.name.startswith("ima4"):
        return soundfile.read(path, always_2d=True)
    if path.name.startswith("free"):
        decoded = run("mpg123", "--quiet", "--encoding", "f32", "--stdout", path)
        rate, channels = FREE[path.name]
        return np.frombuffer(decoded, "<f4").reshape(-1, channels), rate
    decoded = run("ffmpeg", "-loglevel", "error", "-i", path, "-f", "f32le", "-c:a", "pcm_f32le", "-")
    told = run("ffprobe", "-loglevel", "error", "-show_entries", "stream=sample_rate,channels", "-of", "csv=p=0", path)
    rate, channels = (int(number) for number in told.decode().split()[0].split(","))
    return np.frombuffer(decoded, "<f4").reshape(-1, channels), rate


def expect():
    lines = []
    for path in sorted(HERE.iterdir()):
        if path.suffix == ".txt" or path.name in LEFT_OUT:
            continue
        samples, rate = samples_of(path)
        values = [round(float(x) * 1e6) for channel in samples.T for x in channel[::STRIDE]]
        head = [path.name, rate, samples.shape[1], len(samples), STRIDE]
        lines.append(" ".join(str(x) for x in [*head, *values]))
    (HERE / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    make()
    expect()
