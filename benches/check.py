"""Recordings of a minute that `forebay check` decodes in a second, on all cores: a table in Markdown.

    python benches/recordings.py
    python benches/check.py

For comparison, the decoder alone: `forebay.decode` of the whole recording in memory, on one thread per core; and the
peak memory of the process. The shards are in the page cache. CPU time is the most reliable figure where other
processes use the cores.
"""

import argparse
import io
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forebay
from forebay.cli import check

# In place of this folder, whose scripts have names of libraries.
sys.path[0] = str(Path(__file__).parents[1] / "tests" / "python" / "helpers")
from recordings import Row, write_shard  # noqa: E402

FOLDER = Path(__file__).parents[1] / "target" / "bench-recordings"


def bare(data: bytes, n: int, threads: int) -> float:
    """Recordings a second that the decoder alone decodes in full."""

    def decode(_: int) -> None:
        forebay.decode(data)

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, range(n)))
    return n / (time.perf_counter() - begin)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400, help="recordings of each kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=["ogg", "ogg_44100_stereo", "mp3", "flac"], help="by name")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; the best of {arguments.rounds} rounds, in turn\n")
    print("| recordings of 60 s | check, 1/s | CPU, ms a recording | decoder alone, 1/s | most memory, MB |")
    print("|---|---:|---:|---:|---:|")
    for path in sorted(path for path in FOLDER.iterdir() if path.stem in arguments.kinds):
        data = path.read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            shard = write_shard(Path(folder) / "a.arrow", [Row(data)] * arguments.records, rows_per_batch=50)
            checked = alone = 0.0
            cpu = float("inf")
            for _ in range(arguments.rounds):
                begin, used = time.perf_counter(), time.process_time()
                summary = check.check([shard], Path(folder) / "report", stream=io.StringIO())
                checked = max(checked, arguments.records / (time.perf_counter() - begin))
                cpu = min(cpu, (time.process_time() - used) / arguments.records)
                assert (summary.records, summary.bad) == (arguments.records, 0)
                alone = max(alone, bare(data, arguments.records // 2, cores))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"| {path.name} | {checked:.0f} | {1e3 * cpu:.1f} | {alone:.0f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
