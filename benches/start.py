"""How long it takes from nothing to the first batch.

    python benches/recordings.py
    python benches/start.py [--runs 9] [--rows 500000] [--manifest-rows 1000000]

Each run is a process of its own: `import forebay`, then a loader of 64 clips, with one worker for each core, to its
first batch. `minutes` are 240 recordings of a minute in OGG Vorbis in Arrow shards, without a window
(`shuffle_min_size=0`), in clips of 5 s. The others are rows of one second: `many` as many as `--rows` says, in
eight Arrow shards (about 2.5 GB), `parquet` 20 000 in four files, both without a window; `folder` 10 000 files in 50
class folders and `manifest` as many rows as `--manifest-rows` says, of the same files, as JSON lines, both in order
`global`. The files are in the page cache. CPU is of the whole process, import included; on a busy machine it says more
than the time. The median and the range of the runs, which alternate.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MINUTE = Path(__file__).resolve().parent.parent / "target" / "bench-recordings" / "ogg.ogg"
SCATTERED = {"order": "global", "clip_seconds": 1.0}
PROGRAM = """
import json, sys, time
begin = time.perf_counter()
import forebay
imported = time.perf_counter()
files, options = json.loads(sys.argv[1])
with forebay.Loader(files, batch_size=64, n_workers="auto", **options) as loader:
    made = time.perf_counter()
    next(loader)
    end = time.perf_counter()
    cpu = time.process_time()
print(json.dumps([imported - begin, made - imported, end - made, cpu]))
"""


def shards(folder: Path, recording: bytes, n_rows: int, n_shards: int) -> list[str]:
    """Writes rows of one recording; returns the paths."""
    import pyarrow as pa

    folder.mkdir(exist_ok=True)
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


def parquet(folder: Path, recording: bytes, n_rows: int, n_files: int) -> list[str]:
    """The same as Parquet, in row groups of 100."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    n = n_rows // n_files
    rows = pa.array([{"bytes": recording, "path": None}] * n)
    table = pa.table({"audio": rows, "label": pa.array(range(n))})
    paths = [str(folder / f"{number}.parquet") for number in range(n_files)]
    for path in paths:
        pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False)
    return paths


def class_folders(folder: Path, recording: bytes, n_files: int, n_classes: int) -> list[Path]:
    """Files in a folder for each class; returns the files."""
    paths = [folder / f"class{number % n_classes:02}" / f"{number:05}.ogg" for number in range(n_files)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(recording)
    return paths


def manifest(path: Path, files: list[Path], n_rows: int) -> str:
    """A table of JSON lines, whose rows name the files in turn."""
    with path.open("w") as lines:
        for row in range(n_rows):
            file = files[row % len(files)]
            lines.write(json.dumps({"path": str(file), "duration": 1.0, "label": row % 50}) + "\n")
    return str(path)


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
    parser.add_argument("--manifest-rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, short = Path(name), second()
        in_order = {"order": "window", "shuffle_min_size": 0}
        files = class_folders(folder / "folder", short, 10_000, 50)
        sources: dict[str, tuple[object, dict[str, object]]] = {
            "minutes": (shards(folder / "minutes", MINUTE.read_bytes(), 240, 3), in_order),
            "many": (shards(folder / "many", short, arguments.rows, 8), in_order | {"clip_seconds": 1.0}),
            "parquet": (parquet(folder / "parquet", short, 20_000, 4), in_order | {"clip_seconds": 1.0}),
            "folder": (str(folder / "folder"), SCATTERED),
            "manifest": (manifest(folder / "rows.jsonl", files, arguments.manifest_rows), SCATTERED),
        }
        found: dict[str, list[list[float]]] = {name: [] for name in sources}
        for _ in range(arguments.runs + 1):
            for name, source in sources.items():
                command = [sys.executable, "-c", PROGRAM, json.dumps(source)]
                run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[name].append([1000 * part for part in json.loads(run.stdout)])
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; ms, medians of {arguments.runs}")
    print("| recordings | import, numpy included | loader | first batch | all: median, range | CPU |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, runs in found.items():
        warm = runs[1:]
        parts = [statistics.median(run[at] for run in warm) for at in range(4)]
        sums = sorted(sum(run[:3]) for run in warm)
        parts_shown = " | ".join(f"{part:.0f}" for part in parts[:3])
        total = f"{statistics.median(sums):.0f}, {sums[0]:.0f} to {sums[-1]:.0f}"
        print(f"| {name} | {parts_shown} | {total} | {parts[3]:.0f} |")


if __name__ == "__main__":
    main()
