"""Writes `frames.json`: labelled times on frame grids, as pyannote.core 6.1.0 (numpy 2.4) has them.

    python -m venv venv && venv/bin/pip install pyannote.core==6.1.0 && venv/bin/python make_frames.py [cases]

A case is a clip of a second in a recording of four, its events (start, end, label), and the frames of each label: text
of 0 and 1. Clips begin at samples of 8 kHz; frames are those that lie within the clip. With another number of cases
nothing is written; the frames are compared with those of `Annotation.discretize`.

A label that ends before the middle of the first frame by more than 1.5 steps has no frame here: there the ranges of
`SlidingWindow.crop` end below 0, which `discretize` takes for an index from the end.
"""

import json
import sys
from pathlib import Path

import numpy as np
from pyannote.core import Annotation, Segment, SlidingWindow

FILE = Path(__file__).parent / "frames.json"
RATE, SECONDS, LONGEST = 8000, 1.0, 4.0
GRIDS = [(0.01, 0.01), (0.02, 0.025), (0.016875, 0.0619375), (0.25, 0.25), (0.0125, 0.05)]
LABELS = ["a", "b", "c"]
N = 200


def random_case(random: np.random.Generator, number: int) -> dict:
    step, duration = GRIDS[number % len(GRIDS)]
    start = int(random.integers(0, round((LONGEST - SECONDS) * RATE) + 1)) / RATE
    events = []
    for _ in range(random.integers(0, 12)):
        begin = float(random.uniform(max(0.0, start - 1.0), min(LONGEST, start + 1.2)))
        length = float(random.choice([0.0, 5e-7, 0.001, step, 0.2, 1.5]) * random.uniform(0.5, 1.5))
        # Times of tables have few digits, and some are halves of a step from the clip's start.
        begin = [round(begin, 2), round(begin, 5), start + duration / 2 + 0.5 * step * int(random.integers(0, 60))][
            random.integers(3)
        ]
        events.append([begin, begin + length, str(random.choice(LABELS))])
    return {"step": step, "duration": duration, "start": start, "events": events}


def frames(case: dict) -> tuple[dict[str, str], int]:
    """The frames of each label, and how many of them `discretize` has otherwise."""
    step, duration, start = case["step"], case["duration"], case["start"]
    n = sum(1 for at in range(10_000) if at * step + duration <= SECONDS + 1e-9)
    annotation = Annotation()
    for number, (begin, end, label) in enumerate(case["events"]):
        annotation[Segment(begin, end), number] = label
    support = Segment(start, start + SECONDS)
    window = SlidingWindow(start=start, step=step, duration=duration)
    whole = annotation.discretize(
        support, SlidingWindow(step=step, duration=duration), labels=LABELS, duration=n * step
    ).data
    found, n_others = {}, 0
    for column, label in enumerate(LABELS):
        values = np.zeros(n, np.uint8)
        ranges = window.crop(annotation.crop(support).label_timeline(label), mode="center", return_ranges=True)
        for first, end in ranges:
            values[max(0, first) : max(0, end)] = 1
        is_same = (whole[:, column] == values).all()
        assert is_same or any(end < 0 for _, end in ranges)
        n_others += not is_same
        found[label] = "".join(map(str, values))
    return found, n_others


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else N
    random = np.random.default_rng(7)
    cases = [random_case(random, number) for number in range(n)]
    made = [frames(case) for case in cases]
    sys.stdout.write(f"{n} clips, {sum(others for _, others in made)} labels other than those of discretize\n")
    if n == N:
        lines = [json.dumps({**case, "frames": found}) for case, (found, _) in zip(cases, made, strict=True)]
        FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


main()
