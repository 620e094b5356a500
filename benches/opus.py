"""Decodes Opus beside libsndfile and ffmpeg: whole recordings, and random spans of 5 s, on one thread.

    python benches/opus.py [--seconds 3] [--rounds 3] [FILE...]

Without FILE it makes recordings of a minute, tones in noise, mono and stereo, with soundfile. It needs
forebay, soundfile and numpy, and measures ffmpeg if PyAV (`av`) is there. The decoders take turns; the table
has the medians of the rounds, and how many times forebay is faster. Each decoder gives float32 at 48 kHz; the
spans of ffmpeg begin at the packet before.
"""

import argparse
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import soundfile

import forebay

RATE, CLIP = 48_000, 5


def made(channels: int) -> bytes:
    """A minute of tones that come and go, in noise."""
    rng = np.random.default_rng(1)
    at = np.arange(60 * RATE) / RATE
    tones = sum(np.sin(2 * np.pi * hertz * at) * (np.sin(at * hertz / 90) > 0) for hertz in (220, 554, 1319, 3520))
    samples = [(0.1 * tones + rng.normal(0, 0.02, len(at))).astype(np.float32) for _ in range(channels)]
    file = io.BytesIO()
    soundfile.write(file, np.stack(samples, 1), RATE, format="OGG", subtype="OPUS")
    return file.getvalue()


def by_soundfile(data: bytes, start: int | None) -> int:
    """The frames that libsndfile decodes."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        if start is None:
            return len(file.read(dtype="float32"))
        file.seek(start)
        return len(file.read(CLIP * RATE, dtype="float32"))


def by_forebay(data: bytes, start: int | None) -> int:
    """The samples that forebay decodes."""
    samples, _ = forebay.decode(data) if start is None else forebay.decode(data, start, CLIP * RATE)
    return samples.shape[-1]


def by_ffmpeg(data: bytes, start: int | None) -> int:
    """The samples that ffmpeg decodes; of a span from the packet before it on."""
    import av

    n = 0
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.audio[0]
        stream.thread_count = 1
        if start is not None:
            container.seek(int(start / RATE / stream.time_base), stream=stream)
        for frame in container.decode(stream):
            n += frame.to_ndarray().shape[-1]
            if start is not None and n >= CLIP * RATE:
                break
    return n


def rate(decode: Callable[[bytes, int | None], int], data: bytes, spans: bool, seconds: float) -> float:
    """Seconds of audio per second of CPU time, which other programs on the machine change less than time."""
    n_samples = by_forebay(data, None)
    rng, n = Random(1), 0
    decode(data, 0 if spans else None)
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        n += decode(data, rng.randrange(n_samples - CLIP * RATE) if spans else None)
    return n / RATE / (time.process_time() - begin)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Decode Opus by forebay and others.")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    inputs = {path.name: path.read_bytes() for path in given.files} or {"mono": made(1), "stereo": made(2)}
    decoders = {"forebay": by_forebay, "soundfile": by_soundfile}
    try:
        import av  # noqa: F401

        decoders["ffmpeg"] = by_ffmpeg
    except ImportError:
        print("PyAV is not installed: ffmpeg is not measured")
    print(
        f"| {'seconds of audio per CPU second':31} | "
        + " | ".join(f"{name:>9}" for name in decoders)
        + " | times faster |"
    )
    print("|" + "---|" * (len(decoders) + 2))
    for name, data in inputs.items():
        for spans in (False, True):
            turns = [
                [rate(decode, data, spans, given.seconds) for decode in decoders.values()] for _ in range(given.rounds)
            ]
            ours, *theirs = map(statistics.median, zip(*turns, strict=True))
            what = f"{name}, {'random spans of 5 s' if spans else 'whole'}"
            faster = ", ".join(f"{ours / their:.2f}" for their in theirs)
            print(f"| {what:31} | " + " | ".join(f"{value:9.0f}" for value in (ours, *theirs)) + f" | {faster} |")


if __name__ == "__main__":
    main()
