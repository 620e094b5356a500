"""Writes `matroska/`: recordings of the other folders in WebM and Matroska, packets copied by ffmpeg's muxer.

Run: python make_matroska.py, with PyAV 18.1.0 (libavformat 62.12) and numpy. `video.mkv` has a track of video before that of
sound.
"""

import pathlib

import av
import numpy as np

HERE = pathlib.Path(__file__).parent
MADE = HERE / "matroska"

COPIES = [
    ("opus.webm", "opus/hybrid_swb_10ms_mono.opus", {}),
    ("opus_live.webm", "opus/celt_5ms_stereo.opus", {"live": "1"}),
    ("opus_clusters.webm", "opus/silk_wb_60ms_mono.opus", {"cluster_time_limit": "100", "cues_to_front": "1"}),
    ("opus_surround.mka", "opus/surround_3ch.opus", {}),
    ("vorbis.webm", "vorbis/stereo_44100.ogg", {"dash": "1"}),
    ("vorbis_surround.mka", "vorbis/surround30_44100.ogg", {"cluster_size_limit": "500"}),
    ("flac.mka", "made/s24.flac", {}),
    ("alac.mka", "made/alac16.caf", {}),
    ("aac.mka", "made/no_noise_stereo.m4a", {}),
    ("mp3.mka", "mpeg/mp3_mpeg2_16000_mono.mp3", {}),
    ("pcm_u8.mka", "made/u8.wav", {}),
    ("pcm_s24be.mka", "made/s24.aiff", {}),
    ("pcm_f64le.mka", "made/f64.wav", {"cluster_size_limit": "500"}),
    ("video.mkv", "opus/switching_mono.opus", {}),
]


def main():
    MADE.mkdir(exist_ok=True)
    for name, source, options in COPIES:
        form = "webm" if name.endswith(".webm") else "matroska"
        options = {"fflags": "+bitexact", **options}
        with av.open(str(HERE / source)) as old, av.open(str(MADE / name), "w", format=form, options=options) as new:
            (track,) = old.streams.audio
            if name == "video.mkv":
                video = new.add_stream("mpeg4", rate=5)
                video.width = video.height = 32
                video.pix_fmt = "yuv420p"
            copy = new.add_stream_from_template(track)
            if name == "video.mkv":
                for number in range(10):
                    frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 20 * number, np.uint8), format="rgb24")
                    new.mux(video.encode(frame))
                new.mux(video.encode(None))
            for packet in old.demux(track):
                if packet.dts is not None:
                    packet.stream = copy
                    new.mux(packet)


if __name__ == "__main__":
    main()
