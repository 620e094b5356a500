"""Makes the files of this folder from ../loop_electric.flac: one per container and sample format, all the same 1.2 s.

Run: python make.py   (soundfile 0.14.0 with libsndfile 1.2.2, scipy 1.17.1, ffmpeg 5.1.9)

loop.wav is the clip itself, mono, 32 kHz, 16 bit. aac.flac has the samples that ffmpeg decodes from aac.m4a.
"""

import subprocess
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

HERE = Path(__file__).parent
RATE = 32000

SUBTYPES = {
    "pcm_u8.wav": ("WAV", "PCM_U8"),
    "pcm_s24.wav": ("WAV", "PCM_24"),
    "pcm_s32.wav": ("WAV", "PCM_32"),
    "float32.wav": ("WAV", "FLOAT"),
    "float64.wav": ("WAV", "DOUBLE"),
    "extensible_s16.wav": ("WAVEX", "PCM_16"),
    "extensible_s24.wav": ("WAVEX", "PCM_24"),
    "alaw.wav": ("WAV", "ALAW"),
    "mulaw.wav": ("WAV", "ULAW"),
    "adpcm_ima.wav": ("WAV", "IMA_ADPCM"),
    "adpcm_ms.wav": ("WAV", "MS_ADPCM"),
    "pcm_s16.aiff": ("AIFF", "PCM_16"),
    "pcm_s24.aiff": ("AIFF", "PCM_24"),
    "s16.flac": ("FLAC", "PCM_16"),
    "s24.flac": ("FLAC", "PCM_24"),
    "vorbis.ogg": ("OGG", "VORBIS"),
    "layer3.mp3": ("MP3", "MPEG_LAYER_III"),
}


def ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], check=True, cwd=HERE)


recording, rate = soundfile.read(HERE.parent / "loop_electric.flac")
clip = resample_poly(recording.mean(axis=1), RATE, rate)[RATE // 10 :][: RATE * 12 // 10]
soundfile.write(HERE / "loop.wav", clip, RATE, "PCM_16")
clip = soundfile.read(HERE / "loop.wav", dtype="float64")[0]
for name, (container, subtype) in SUBTYPES.items():
    soundfile.write(HERE / name, clip, RATE, subtype, format=container)
ffmpeg("-i", "loop.wav", "-c:a", "aac", "-b:a", "96k", "-aac_pns", "0", "aac.m4a")
ffmpeg(
    "-i",
    "aac.m4a",
    "-af",
    "atrim=end_sample=38400",
    "-c:a",
    "flac",
    "-sample_fmt",
    "s32",
    "-bits_per_raw_sample",
    "24",
    "aac.flac",
)
ffmpeg("-i", "loop.wav", "-c:a", "alac", "alac.m4a")
assert np.array_equal(soundfile.read(HERE / "s16.flac", dtype="float64")[0], clip)
