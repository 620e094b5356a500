"""How long it takes from nothing to the first batch.

    python benches/recordings.py
    python benches/start.py [--runs 9] [--rows 500000]

Each run is a process of its own: `import forebay`, then a loader without a window (`shuffle_min_size=0`) of 64 clips of
5 s, with one worker for each core, to its first batch. `minutes` are 240 recordings of a minute in OGG Vorbis; `many`
are as many rows as `--rows` says, of a second each, in eight shards (about 2.5 GB). The files are in the page cache.
The median and the range of the runs, which alternate.
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MINUTE = Path(__file__).resolve().parent.parent / "target" / "bench-recordings" / "ogg.ogg"
PROGRAM = """
import json, sys, time
begin = time.perf_counter()
import forebay
imported = time.perf_counter()
files, window = json.loads(sys.argv[1]), {"order": "window", "shuffle_min_size": 0}
with forebay.Loader(files, batch_size=64, n_workers="auto", **window) as loader:
    made = time.perf_counter()
    next(loader)
    end = time.perf_counter()
print(json.dumps([imported - begin, made - imported, end - made]))
"""


def shards(folder: Path, recording: bytes, n_rows: int, n_shards: int) -> list[str]:
    """Writes rows of one recording; returns the paths."""
    import pyarrow as pa

    per_batch = 100
    rows = pa.array([{"bytes": recording, "path": None}] * per_batch)
    batch = pa.record_batch({"audio": rows, "label": pa.array(range(per_batch))})
    paths = []
    for shard in range(n_shards):
        path = folder / f"{shard}.arrow"
        with pa.ipc.new_stream(path, batch.schema) as writer:
            for at in range(0, n_rows // n_shards, per_batch):
                writer.write_batch(batch.slice(0, n_rows // n_shards - at))
        paths.append(str(path))
    return paths


def second() -> bytes:
    """The first second of the minute, in OGG Vorbis."""
    import soundfile

    samples, rate = soundfile.read(MINUTE, frames=32_000)
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="OGG", subtype="VORBIS")
    return out.getvalue()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="How long it takes to the first batch.")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--rows", type=int, default=500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = {}
        for name, recording, n_rows, n_shards in (
            ("minutes", MINUTE.read_bytes(), 240, 3),
            ("many", second(), arguments.rows, 8),
        ):
            part = Path(folder) / name
            part.mkdir()
            sources[name] = shards(part, recording, n_rows, n_shards)
        found: dict[str, list[list[float]]] = {name: [] for name in sources}
        for _ in range(arguments.runs + 1):
            for name, paths in sources.items():
                command = [sys.executable, "-c", PROGRAM, json.dumps(paths)]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[name].append([1000 * part for part in json.loads(output)])
    print("| recordings | import, ms | loader | first batch | all: median, range |")
    print("|---|---:|---:|---:|---:|")
    for name, runs in found.items():
        warm = runs[1:]
        parts = [statistics.median(run[at] for run in warm) for at in range(3)]
        sums = sorted(sum(run) for run in warm)
        parts_shown = " | ".join(f"{part:.0f}" for part in parts)
        print(f"| {name} | {parts_shown} | {statistics.median(sums):.0f}, {sums[0]:.0f} to {sums[-1]:.0f} |")


if __name__ == "__main__":
    main()
