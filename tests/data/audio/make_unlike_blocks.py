"""Writes mpeg/unlike_blocks_44100_stereo.mp3: frames whose channels have different kinds of blocks.

LAME gives both channels of a frame the same blocks. So it encodes two channels as mono files, bursts of noise at
different times, and this script puts their granules side by side into frames of 320 kbit/s.

    apt-get install lame
    python -m venv v && v/bin/pip install numpy==2.4.6 soundfile==0.14.0 && v/bin/python make_unlike_blocks.py
"""

import pathlib
import subprocess
import tempfile

import numpy as np
import soundfile

HERE = pathlib.Path(__file__).parent
RATE = 44_100
# Bits of a granule's side information in MPEG-1, and bytes of the side information of a mono frame.
GRANULE, MONO_SIDE = 59, 17
BITRATES = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320]


def bits(data):
    return "".join(f"{byte:08b}" for byte in data)


def mono(samples):
    """The granules of each frame: scalefac selection, side information and main data, as text of bits."""
    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(f"{folder}/a.wav", samples, RATE, subtype="PCM_16")
        subprocess.run(["lame", "--quiet", "-t", "-m", "m", "-b", "64", "--cbr", f"{folder}/a.wav", f"{folder}/a.mp3"], check=True)
        data = pathlib.Path(f"{folder}/a.mp3").read_bytes()
    frames, main, at = [], "", 0
    while at + 4 <= len(data):
        assert data[at : at + 2] == b"\xff\xfb"
        length = 144_000 * BITRATES[data[at + 2] >> 4] // RATE + (data[at + 2] >> 1 & 1)
        side = bits(data[at + 4 : at + 4 + MONO_SIDE])
        begin = len(main) - 8 * int(side[:9], 2)
        main += bits(data[at + 4 + MONO_SIDE : at + length])
        granules = []
        for n in range(2):
            info = side[18 + n * GRANULE :][:GRANULE]
            granules.append((info, main[begin : begin + int(info[:12], 2)]))
            begin += int(info[:12], 2)
        frames.append((side[14:18], granules))
        at += length
    return frames


def main():
    random = np.random.default_rng(1)
    channels = random.normal(size=(2, RATE)) * 1e-3
    for channel, first in zip(channels, (4000, 8500), strict=True):
        for start in range(first, RATE - 600, 9000):
            channel[start : start + 600] += np.exp(-np.arange(600) / 150) * random.normal(size=600) * 0.3
    out, n_unlike = b"", 0
    for left, right in zip(*map(mono, channels), strict=True):
        sides = "0" * 12 + left[0] + right[0]
        data = ""
        for pair in zip(left[1], right[1], strict=True):
            sides += pair[0][0] + pair[1][0]
            data += pair[0][1] + pair[1][1]
            n_unlike += pair[0][0][33:36] != pair[1][0][33:36]
        frame = sides + data
        length = 144_000 * 320 // RATE
        assert len(frame) <= 8 * (length - 4)
        frame = frame.ljust(8 * (length - 4), "0")
        out += b"\xff\xfb\xe0\x00" + int(frame, 2).to_bytes(length - 4, "big")
    assert n_unlike > 20
    (HERE / "mpeg" / "unlike_blocks_44100_stereo.mp3").write_bytes(out)


main()
