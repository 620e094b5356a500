"""Writes `tracks/`: files of several audio tracks.

`tracks.mp4` and `tracks.mkv` have packets of recordings of the other folders, copied by ffmpeg's muxer behind a track
of video, and a track of AC-3, which is not decoded. In `tracks.mkv` the second audio track has the flag of the default.
`stems.mp4` is made as those of MUSDB18 are: a mixture and its four parts, tracks of AAC of one length.

Run: python make_tracks.py, with PyAV 18.1.0 (libavformat 62.12) and numpy.
"""

import pathlib

import av
import numpy as np

HERE = pathlib.Path(__file__).parent
MADE = HERE / "tracks"
RATE = 16000

COPIES = {
    "tracks.mp4": ["players/aac_plain.m4a", "made/alac.m4a", "made/s8.flac"],
    "tracks.mkv": ["made/s8.flac", "opus/silk_wb_60ms_mono.opus", "opus/celt_5ms_stereo.opus"],
}


def tone(rate, seconds, *hertz):
    """Samples of sines, `[1, n]`."""
    times = np.arange(int(rate * seconds)) / rate
    return sum(0.2 * np.sin(2 * np.pi * f * times, dtype=np.float64) for f in hertz).astype(np.float32)[None]


def encode(stream, samples):
    """The packets of a recording of one channel."""
    size = 1536 if stream.name == "ac3" else 1024
    for at in range(0, samples.shape[1], size):
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples[:, at : at + size]), format="fltp", layout="mono"
        )
        frame.rate, frame.pts = stream.rate, at
        yield from stream.encode(frame)
    yield from stream.encode(None)


def copies(name, sources):
    options = {"fflags": "+bitexact"}
    with av.open(str(MADE / name), "w", format="matroska" if name.endswith(".mkv") else "mp4", options=options) as new:
        video = new.add_stream("mpeg4", rate=5)
        video.width = video.height = 32
        video.pix_fmt = "yuv420p"
        olds = [av.open(str(HERE / source)) for source in sources]
        tracks = [new.add_stream_from_template(old.streams.audio[0]) for old in olds]
        unknown = new.add_stream("ac3", rate=32000, layout="mono")
        if name.endswith(".mkv"):
            tracks[0].disposition = av.stream.Disposition(0)
            tracks[1].disposition = av.stream.Disposition.default
        for number in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 20 * number, np.uint8), format="rgb24")
            new.mux(video.encode(frame))
        new.mux(video.encode(None))
        for old, track in zip(olds, tracks, strict=True):
            for packet in old.demux(old.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = track
                    new.mux(packet)
            old.close()
        new.mux(list(encode(unknown, tone(32000, 0.2, 500))))


def stems():
    parts = [tone(RATE, 2.0, hertz) for hertz in (440.0, 1000.0, 1500.0, 2500.0)]
    with av.open(str(MADE / "stems.mp4"), "w", format="mp4", options={"fflags": "+bitexact"}) as new:
        streams = [new.add_stream("aac", rate=RATE, layout="mono") for _ in range(5)]
        for stream in streams:
            stream.bit_rate = 16000
        packets = [
            packet
            for stream, samples in zip(streams, [sum(parts), *parts], strict=True)
            for packet in encode(stream, samples)
        ]
        for packet in sorted(packets, key=lambda packet: packet.dts * packet.time_base):
            new.mux(packet)


def main():
    MADE.mkdir(exist_ok=True)
    for name, sources in COPIES.items():
        copies(name, sources)
    stems()


if __name__ == "__main__":
    main()
