"""Writes the chapters in `buckets.json`: the plan of batches by length, in plain Python.

The inputs of its cases (lengths, draws, budget, streams) stay as they are. A step is a list of batches, one for each
stream. Full steps come in the order in which their buckets fill up, then those of what is left.
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "buckets.json"


def cost(length: float, quadratic: float | None) -> float:
    return length + (length * length / quadratic if quadratic else 0.0)


def rows_of(length: float, case: dict) -> int:
    n = int(case["max_duration"] * (1 + 1e-12) // cost(length, case["quadratic_duration"]))
    return min(n, case["max_examples"]) if case["max_examples"] else n


def steps(draws: list[int], case: dict) -> list[list[list[int]]]:
    lengths = np.asarray(case["lengths"], np.float32)
    n_streams, bounds = case["n_streams"], case["bounds"]
    held: list[list[int]] = [[] for _ in bounds]
    found = []

    def add(places: list[int]) -> None:
        found.append([[draws[place] for place in places[stream::n_streams]] for stream in range(n_streams)])

    for place, row in enumerate(draws):
        k = int(np.searchsorted(bounds, lengths[row]))
        held[k].append(place)
        if len(held[k]) == case["sizes"][k] * n_streams:
            add(held[k])
            held[k] = []
    # Longest first; lengths with the same exponent and five bits of the mantissa count as equal.
    classes = lengths.view(np.uint32) >> 18
    rest = sorted(
        (place for places in held for place in places), key=lambda place: (-int(classes[draws[place]]), place)
    )
    while rest:
        n = min(rows_of(float(lengths[draws[rest[0]]]), case) * n_streams, len(rest))
        while n > (most := rows_of(max(float(lengths[draws[place]]) for place in rest[:n]), case) * n_streams):
            n = most
        if n < n_streams and not case["keeps_rest"]:
            break
        add(rest[:n])
        rest = rest[n:]
    return found


def main() -> None:
    file = json.loads(FILE.read_text())
    for case in file["cases"]:
        parts = range(0, len(case["draws"]), case["chapter"])
        case["chapters"] = [steps(case["draws"][at : at + case["chapter"]], case) for at in parts]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in file["cases"])
    FILE.write_text(f'{{"source": {json.dumps(file["source"])},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
