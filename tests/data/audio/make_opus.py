"""Makes the recordings in opus/ and what libopus decodes from them.

Run from this folder: `python make_opus.py`, with numpy, soundfile and PyAV (`av`), whose wheel has the libopus that
encodes and decodes here. The packets are put into Ogg below, so that pages, gains and ends are as wanted.
"""

import ctypes as c
import pathlib
import struct

import av
import numpy as np
import soundfile as sf

HERE = pathlib.Path(__file__).parent
LIBOPUS = c.CDLL(str(next((pathlib.Path(av.__file__).parent.parent / "av.libs").glob("libopus-*"))))
LIBOPUS.opus_encoder_create.restype = c.c_void_p
LIBOPUS.opus_multistream_surround_encoder_create.restype = c.c_void_p
LIBOPUS.opus_multistream_decoder_create.restype = c.c_void_p
RATE = 48_000
# The requests of opus_encoder_ctl, and of opus_private.h for the mode.
CTL = {
    "bitrate": 4002,
    "vbr": 4006,
    "bandwidth": 4008,
    "fec": 4012,
    "loss": 4014,
    "dtx": 4016,
    "channels": 4022,
    "mode": 11002,
}
SILK, HYBRID, CELT = 1000, 1001, 1002
NARROW, MEDIUM, WIDE, SUPERWIDE, FULL = range(1101, 1106)
VOIP, AUDIO = 2048, 2049


def speech(seconds: float) -> np.ndarray:
    data, rate = sf.read(HERE / "vorbis" / "perch_16000_mono.ogg", dtype="float32")
    at = np.arange(int(seconds * RATE)) * rate / RATE
    out = np.interp(at % (len(data) - 1), np.arange(len(data)), data)
    return (0.6 * out / np.abs(out).max()).astype(np.float32)


def music(seconds: float) -> np.ndarray:
    t = np.arange(int(seconds * RATE)) / RATE
    notes = sum(np.sin(2 * np.pi * f * t) for f in (220, 277.18, 329.63, 1760, 5000))
    noise = np.random.default_rng(1).standard_normal(len(t))
    return (0.1 * notes * np.exp(-3 * (t * 3 % 1)) + 0.02 * noise * (t * 2 % 1 < 0.3)).astype(np.float32)


def encode(pcm, frame, family=0, application=AUDIO, changes=(), **options):
    """The packets of pcm [n, channels], and the table of the head."""
    n, channels = pcm.shape
    error = c.c_int()
    if family == 0:
        encoder = c.c_void_p(LIBOPUS.opus_encoder_create(RATE, channels, application, c.byref(error)))
        control, run, table = LIBOPUS.opus_encoder_ctl, LIBOPUS.opus_encode_float, b""
    else:
        streams, coupled, mapping = c.c_int(), c.c_int(), (c.c_ubyte * channels)()
        encoder = c.c_void_p(
            LIBOPUS.opus_multistream_surround_encoder_create(
                RATE, channels, family, c.byref(streams), c.byref(coupled), mapping, application, c.byref(error)
            )
        )
        control, run = LIBOPUS.opus_multistream_encoder_ctl, LIBOPUS.opus_multistream_encode_float
        table = bytes([streams.value, coupled.value, *mapping])
    assert error.value == 0

    def apply(options):
        for name, value in options.items():
            assert control(encoder, CTL[name], c.c_int(value)) == 0, name

    apply(options)
    lookahead = c.c_int()
    control(encoder, 4027, c.byref(lookahead))
    padded = np.concatenate([pcm, np.zeros((lookahead.value + frame, channels), np.float32)])
    packets, buffer = [], (c.c_ubyte * 20_000)()
    for i in range((n + lookahead.value + frame - 1) // frame):
        if changes and i % 8 == 0:
            apply(changes[i // 8 % len(changes)])
        part = np.ascontiguousarray(padded[i * frame : (i + 1) * frame])
        size = run(encoder, part.ctypes.data_as(c.c_void_p), frame, buffer, len(buffer))
        assert size > 0
        packets.append(bytes(buffer[:size]))
    return packets, table, lookahead.value


def crc(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 & 0xFFFFFFFF) ^ (0x04C11DB7 if value >> 31 else 0)
    return value


def page(flags, granule, serial, sequence, packets) -> bytes:
    lacing = b"".join(b"\xff" * (len(p) // 255) + bytes([len(p) % 255]) for p in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, granule, serial, sequence, 0, len(lacing)) + lacing
    whole = bytearray(head + b"".join(packets))
    whole[22:26] = struct.pack("<I", crc(whole))
    return bytes(whole)


def ogg(packets, table, pre_skip, n, channels, frame, family=0, gain=0, serial=7, seconds=0.5) -> bytes:
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, channels, pre_skip, RATE, gain, family) + table
    out = page(2, 0, serial, 0, [head])
    out += page(0, 0, serial, 1, [struct.pack("<8sI", b"OpusTags", 4) + b"test" + bytes(4)])
    each = max(1, round(seconds * RATE / frame))
    for sequence, i in enumerate(range(0, len(packets), each)):
        last = i + each >= len(packets)
        granule = pre_skip + n if last else (i + each) * frame
        out += page(4 if last else 0, granule, serial, 2 + sequence, packets[i : i + each])
    return out


def decode(packets, table, channels, pre_skip, n, gain=0):
    """The samples of libopus in float, clipped to -1 to 1, in the file's order of channels."""
    table = table or bytes([1, channels - 1, *range(channels)])
    error = c.c_int()
    mapping = (c.c_ubyte * channels)(*table[2:])
    decoder = c.c_void_p(
        LIBOPUS.opus_multistream_decoder_create(RATE, channels, table[0], table[1], mapping, c.byref(error))
    )
    assert error.value == 0
    buffer, out = np.zeros((5760, channels), np.float32), []
    for packet in packets:
        found = LIBOPUS.opus_multistream_decode_float(
            decoder, packet, len(packet), buffer.ctypes.data_as(c.c_void_p), 5760, 0
        )
        assert found > 0
        out.append(buffer[:found].copy())
    return np.clip(np.concatenate(out), -1, 1)[pre_skip : pre_skip + n] * np.float32(10 ** (gain / 5120))


WAV_ORDER = {
    3: [0, 2, 1],
    5: [0, 2, 1, 3, 4],
    6: [0, 2, 1, 5, 3, 4],
    7: [0, 2, 1, 6, 5, 3, 4],
    8: [0, 2, 1, 7, 5, 6, 3, 4],
}
mono = speech(2)[:, None]
stereo = np.stack([music(2), np.roll(music(2), 240)], 1)
switching = [
    {"mode": SILK, "bandwidth": WIDE, "bitrate": 20_000},
    {"mode": CELT, "bandwidth": FULL, "bitrate": 48_000},
    {"mode": HYBRID, "bandwidth": FULL, "bitrate": 32_000},
]
pause = mono.copy()
pause[30_000:75_000] = 0
RECORDINGS = {
    "silk_nb_20ms_mono": (mono, 960, {"application": VOIP, "mode": SILK, "bandwidth": NARROW, "bitrate": 8000}),
    "silk_mb_40ms_mono": (mono, 1920, {"application": VOIP, "mode": SILK, "bandwidth": MEDIUM, "bitrate": 6000}),
    "silk_wb_60ms_mono": (mono, 2880, {"application": VOIP, "mode": SILK, "bandwidth": WIDE, "bitrate": 16_000}),
    "silk_wb_10ms_stereo": (
        np.hstack([mono, 0.5 * np.roll(mono, 480)]),
        480,
        {"application": VOIP, "mode": SILK, "bandwidth": WIDE, "bitrate": 24_000},
    ),
    "silk_fec_mono": (
        mono,
        960,
        {"application": VOIP, "mode": SILK, "bandwidth": WIDE, "bitrate": 24_000, "fec": 1, "loss": 20},
    ),
    "silk_dtx_mono": (pause, 960, {"application": VOIP, "mode": SILK, "bandwidth": WIDE, "bitrate": 12_000, "dtx": 1}),
    "silk_dtx_60ms_mono": (
        pause,
        2880,
        {"application": VOIP, "mode": SILK, "bandwidth": WIDE, "bitrate": 12_000, "dtx": 1},
    ),
    "hybrid_swb_10ms_mono": (
        mono,
        480,
        {"application": VOIP, "mode": HYBRID, "bandwidth": SUPERWIDE, "bitrate": 24_000},
    ),
    "hybrid_fb_20ms_stereo": (
        np.hstack([mono, 0.5 * np.roll(mono, 480)]),
        960,
        {"application": VOIP, "mode": HYBRID, "bandwidth": FULL, "bitrate": 40_000},
    ),
    "celt_2_5ms_mono": (stereo[:60_000, :1], 120, {"mode": CELT, "bitrate": 64_000}),
    "celt_5ms_stereo": (stereo[:40_000], 240, {"mode": CELT, "bitrate": 96_000}),
    "celt_20ms_stereo_256k": (stereo[:24_000], 960, {"mode": CELT, "bitrate": 256_000}),
    "celt_60ms_mono": (stereo[:, :1], 2880, {"mode": CELT, "bitrate": 32_000}),
    "celt_cbr_nb_mono": (stereo[:, :1], 960, {"mode": CELT, "bandwidth": NARROW, "bitrate": 16_000, "vbr": 0}),
    "switching_mono": (mono, 960, {"changes": switching}),
    "switching_stereo": (
        np.hstack([mono, 0.5 * np.roll(mono, 480)]),
        960,
        {"changes": [{**one, "channels": 1 + i % 2} for i, one in enumerate(switching * 2)]},
    ),
    "surround_3ch": (
        np.stack([np.roll(music(0.7), 700 * k) for k in range(3)], 1),
        960,
        {"family": 1, "bitrate": 90_000},
    ),
    "surround_6ch": (
        np.stack([np.roll(music(0.7), 700 * k) for k in range(6)], 1),
        960,
        {"family": 1, "bitrate": 160_000},
    ),
    "discrete_3ch": (
        np.stack([np.roll(music(0.7), 700 * k) for k in range(3)], 1),
        960,
        {"family": 255, "bitrate": 90_000},
    ),
    "gain_minus_6db_mono": (stereo[:30_000, :1], 960, {"gain": -1536, "bitrate": 48_000}),
}


def main() -> None:
    lines = []
    folder = HERE / "opus"
    for name, (pcm, frame, options) in RECORDINGS.items():
        options = dict(options)
        gain, family = options.pop("gain", 0), options.get("family", 0)
        n, channels = pcm.shape
        packets, table, pre_skip = encode(pcm, frame, **options)
        data = ogg(packets, table, pre_skip, n, channels, frame, family, gain)
        (folder / f"{name}.opus").write_bytes(data)
        samples = decode(packets, table, channels, pre_skip, n, gain)
        if family == 1:
            samples = samples[:, WAV_ORDER.get(channels, range(channels))]
        stride = 997
        numbers = np.round(samples[::stride].T.astype(np.float64) * 1e6).astype(int).ravel()
        lines.append(" ".join(map(str, [f"{name}.opus", RATE, channels, n, stride, *numbers])))
    (folder / "expected.txt").write_text("\n".join(lines) + "\n")
    first, second = (folder / f"{name}.opus" for name in ("silk_nb_20ms_mono", "celt_60ms_mono"))
    (folder / "chained_mono.opus").write_bytes(first.read_bytes() + second.read_bytes())
    with av.open(str(folder / "ffmpeg_20ms_stereo.opus"), "w", format="opus") as out:
        stream = out.add_stream("libopus", rate=RATE, layout="stereo")
        stream.bit_rate = 48_000
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(stereo[:70_001].T), "fltp", "stereo")
        frame.sample_rate = RATE
        for part in [frame, None]:
            for packet in stream.encode(part):
                out.mux(packet)
    sf.write(folder / "libsndfile_24000_mono.opus", speech(2)[::2], 24_000, format="OGG", subtype="OPUS")


if __name__ == "__main__":
    main()
