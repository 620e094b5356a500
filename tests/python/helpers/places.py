"""Oracle of `forebay.crops`: where clips are, sample by sample, in plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay import crops
from hashes import below, hashed, mix

CROP, PADDING, PADDING_NOISE, EVENT, CANDIDATE, REDRAW, VIEW = 3, 20, 21, 22, 23, 24, 25


@dataclass
class Recording:
    """Samples at the rate of the features, and spans in samples."""

    samples: np.ndarray
    spans: Sequence[Sequence[float]] = ()


def room(crop: Any, recording: Recording, clip: int, seed: int, rate: int) -> tuple[int, int]:
    """Start and end of the part in which the clip is at random; the end is past its last sample."""
    n = len(recording.samples)
    spans = []
    for start, end in recording.spans:
        first, last = max(0, round(start)), min(n, round(end))
        if last > first or (last == first and round(start) == round(end)):
            spans.append((first, last))

    def widened(first: int, last: int, least: int) -> tuple[int, int]:
        least = min(least, n)
        if last - first >= least:
            return first, last
        start = min(max(0, first - (least - (last - first)) // 2), n - least)
        return start, start + least

    if isinstance(crop, crops.Events) and spans:
        first, last = spans[below(hashed(seed, EVENT), len(spans))]
        return widened(first, last, max(clip, round(crop.widen * rate)))
    if isinstance(crop, crops.Inside) and spans:
        starts = [
            (at, at + clip)
            for first, last in spans
            for at in (range(first, last - clip + 1) if last - first >= clip else [widened(first, last, clip)[0]])
        ]
        return starts[below(seed, len(starts))]
    if isinstance(crop, crops.Annotated) and spans:
        regions: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if regions and first <= regions[-1][1]:
                begin, end = regions.pop()
                first, last = begin, max(end, last)
            regions.append((first, last))
        places = [(at, at + clip) for first, last in regions for at in range(first, last - clip + 1)]
        if not places:
            longest = max(regions, key=lambda region: region[1] - region[0])
            return widened(*longest, clip)
        return places[below(seed, len(places))]
    return 0, n


def taken(crop: Any, recording: Recording, clip: int, seed: int, rate: int) -> tuple[int, int]:
    """Start of the clip in the recording, below 0 if padding comes first, and its samples of the recording."""
    n = len(recording.samples)
    if n < clip:
        more = clip - n
        front = {"front": more, "both": more // 2, "random": below(hashed(seed, PADDING), more + 1)}
        return -front.get(crop.pad, 0), n
    if isinstance(crop, (crops.Start, crops.Center, crops.End)):
        return {crops.Start: 0, crops.Center: (n - clip) // 2, crops.End: n - clip}[type(crop)], clip
    first, last = room(crop, recording, clip, seed, rate)
    is_drawn = isinstance(crop, crops.Inside | crops.Annotated) and recording.spans and last - first == clip
    return first + (0 if is_drawn else below(seed, last - first - clip + 1)), clip


def waveform(crop: Any, recording: Recording, clip: int, start: int, seed: int) -> np.ndarray:
    """The samples of a clip that begins there."""
    n = len(recording.samples)
    values = np.zeros(clip, np.float32)
    for at in range(clip):
        place = start + at
        if 0 <= place < n:
            values[at] = recording.samples[place]
        elif crop.pad == "repeat":
            values[at] = recording.samples[place % n]
        elif crop.pad == "noise":
            bits = mix(hashed(seed, PADDING_NOISE, 0) ^ mix(at))
            total = sum(bits >> 16 * part & 0xFFFF for part in range(4)) - 2 * 0xFFFF
            values[at] = np.float32(10 ** (crop.noise_db / 20)) * (np.float32(total) / np.float32(37837.225))
    return values


def loudness(recording: Recording, start: int, n: int) -> float:
    part = recording.samples[max(start, 0) : max(start, 0) + n].astype(np.float64)
    return float(np.mean(part**2))


def clip_of(crop: Any, recording: Recording, clip: int, seed: int, rate: int) -> tuple[int, int, np.ndarray]:
    """Start, samples of the recording and waveform of the clip."""
    silence = getattr(crop, "silence_db", None)
    of = crop.of if isinstance(crop, crops.Loudest) else 1
    purpose, draws = (REDRAW, 1 + crop.redraws) if silence is not None else (CANDIDATE, of)
    best: tuple[float, int, int, int] | None = None
    for draw in range(draws):
        bits = hashed(seed, purpose, draw) if draw else seed
        start, n = taken(crop, recording, clip, bits, rate)
        found = loudness(recording, start, n)
        if best is None or found > best[0]:
            best = (found, start, n, bits)
        if silence is not None and best[0] >= 10 ** (silence / 10):
            break
    assert best is not None
    _, start, n, bits = best
    return start, clip if crop.pad == "repeat" else n, waveform(crop, recording, clip, start, bits)


def expected(crop: Any, recording: Recording, clip: int, row: int, rate: int, seed: int, epoch: int = 0) -> list[Any]:
    """The clips of a row: those of `Views`, or one."""
    seed = hashed(seed, CROP, epoch, row)
    inner, n = (crop.crop, crop.n) if isinstance(crop, crops.Views) else (crop, 1)
    seeds = [hashed(seed, VIEW, view) if view else seed for view in range(n)]
    return [clip_of(inner, recording, clip, bits, rate) for bits in seeds]
