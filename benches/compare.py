"""Speed of two builds of forebay, by the same benches in turns.

    python benches/compare.py --before OLD/bin/python --after NEW/bin/python [--only decode tokens]

`--before` and `--after` are Pythons of environments with forebay and tests/python/requirements.txt. Each
round runs each bench once with either, in a process of its own. The table has the median rates of the
rounds, and the median of the ratios within a round: the speed of a shared machine varies from minute to
minute. The last column is the same ratio by CPU time of the process, all threads together, in place of
elapsed time. The exit code is 1 if a ratio is below `--least`. On a busy machine `--cpu` judges by CPU time,
which does not see threads that wait for each other.

| bench | rate of |
|---|---|
| decode | spans of 5 s of minute-long recordings by `forebay.decode`, on one thread |
| pipeline | examples of a `Loader` on all cores: log-mels of 5 s; tiny recordings show the cost of threads |
| tokens | tokens of a `TokenLoader` with GPT-2's ranks, for both ways to pack |
| open | rows of a csv table, a Parquet table and shards that are opened; first batches of a new `Loader` |
| peers | examples of a `Loader` with one worker, as a multiple of soundfile, numpy and scipy on one thread |
"""

import argparse
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
CORES = len(os.sched_getaffinity(0))
MINUTES = HERE.parent / "target" / "bench-recordings"
FILES = {
    "wav": "wav.wav",
    "flac": "flac.flac",
    "mp3": "mp3.mp3",
    "ogg": "ogg.ogg",
    "ogg44": "ogg_44100_stereo.ogg",
}
FEW: dict[str, Any] = {"batch_size": 16, "shuffle_buffer_size": 64, "shuffle_min_size": 32, "worker_nice": 0}
"""Small batches and buffers, since there are few recordings and little time."""

TINY: dict[str, Any] = {"sample_rate": 8000, "clip_seconds": 0.02, "n_fft": 64, "hop_length": 32, "n_mels": 8}
TINY["worker_nice"] = 0

Rates = dict[str, float]
Measured = Iterator[tuple[str, Rates]]


def rate(step: Callable[[], int], seconds: float, ahead: int = 1) -> Rates:
    """What `step` counts, per second and per second of CPU time; the first `ahead` calls are not timed."""
    for _ in range(ahead):
        step()
    begin, cpu, n = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        n += step()
    return {"elapsed": n / elapsed, "cpu": n / (time.process_time() - cpu)}


def decode(_folder: Path, seconds: float) -> Measured:
    import forebay

    for name, file in FILES.items():
        data = (MINUTES / file).read_bytes()
        per_second, rng = 44100 if name == "ogg44" else 32000, Random(1)

        def step(data: bytes = data, per_second: int = per_second, rng: Random = rng) -> int:
            forebay.decode(data, rng.randrange(55 * per_second), 5 * per_second)
            return 1

        yield name, rate(step, seconds)


def batches(loader: Any, field: str) -> Callable[[], int]:
    return lambda: int(next(loader)[field].size)


def pipeline(folder: Path, seconds: float) -> Measured:
    import forebay

    figures = [(name, "window", FEW) for name in ("wav", "flac", "ogg")]
    figures += [("tiny", order, TINY) for order in ("sequential", "window", "global")]
    for name, order, given in figures:
        # While a buffer fills, batches cost more: all of it is before the measured time.
        ahead = given.get("shuffle_buffer_size", 20_000) // given.get("batch_size", 64)
        with forebay.Loader(shards(folder, name), order=order, n_workers=CORES, **given) as loader:
            yield f"{name}, {order}", rate(batches(loader, "index"), seconds, ahead + 8)


def tokens(_folder: Path, seconds: float) -> Measured:
    import forebay

    logging.getLogger("forebay").setLevel(logging.ERROR)
    files, ranks = TESTS / "data" / "token-golden", TESTS / "data" / "tokens" / "gpt2.tiktoken"
    given: dict[str, Any] = {"batch_size": 8, "seq_len": 1024, "buffer_size": 200, "n_workers": CORES}
    for crop in ("drop", "carry"):
        with forebay.TokenLoader(files, ranks, crop=crop, **given) as loader:
            yield crop, rate(batches(loader, "inputs"), seconds, ahead=20)


def open_(folder: Path, seconds: float) -> Measured:
    import forebay

    def rows(files: Any) -> int:
        with forebay.AudioDataset(files) as dataset:
            return len(dataset)

    def first() -> int:
        with forebay.Loader(shards(folder, "tiny"), n_workers=CORES, shuffle_min_size=0, **TINY) as loader:
            next(loader)
        return 1

    files = {"csv": folder / "table.csv", "parquet": forebay.Manifest(folder / "table.parquet")}
    for name, source in {**files, "shards": shards(folder, "tiny")}.items():
        yield name, rate(partial(rows, source), seconds)
    yield "first batch", rate(first, seconds)


def peers(folder: Path, seconds: float) -> Measured:
    from peers.rows import Rows
    from peers.work import Clips, rng_of

    import forebay

    for name in FILES:
        if name == "ogg44":
            continue  # soundfile does not resample
        files = [str(file) for file in shards(folder, name)]
        rows, clips, numbers = Rows(files), Clips("scipy"), itertools.count()

        def step(rows: Any = rows, clips: Any = clips, numbers: Iterator[int] = numbers) -> int:
            number = next(numbers)
            clips(rows.file(number % len(rows)), rng_of(1, number))
            return 1

        theirs = rate(step, seconds / 2)
        with forebay.Loader(files, n_workers=1, **FEW) as loader:
            ours = rate(batches(loader, "index"), seconds / 2, ahead=4)
        yield name, {clock: ours[clock] / theirs[clock] for clock in ours}


BENCHES = {"decode": decode, "pipeline": pipeline, "tokens": tokens, "open": open_, "peers": peers}


def shards(folder: Path, name: str) -> list[Path]:
    return sorted((folder / name).glob("*.arrow"))


def prepare(folder: Path) -> None:
    """Writes what the benches read."""
    import pyarrow.csv
    import pyarrow.parquet
    import start

    import recordings

    if not all((MINUTES / file).exists() for file in FILES.values()):
        recordings.main()
    for name, file in FILES.items():
        (folder / name).mkdir()
        start.shards(folder / name, (MINUTES / file).read_bytes(), 48, 3)
    loop = (TESTS / "data" / "recordings" / "formats" / "loop.wav").read_bytes()
    (folder / "loop.wav").write_bytes(loop)
    (folder / "tiny").mkdir()
    tiny = b"RIFF" + (356).to_bytes(4, "little") + loop[8:40] + (320).to_bytes(4, "little") + loop[44:364]
    start.shards(folder / "tiny", tiny, 20_000, 10)
    rows = ["path,start,end,label,quality"]
    for i in range(200_000):
        start_s = i % 40 / 100
        rows.append(f"loop.wav,{start_s},{start_s + 0.02},species{i % 997:04},{i % 5}.5")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "table.csv"), folder / "table.parquet")


def run(python: Path, *arguments: str) -> Any:
    """What this program prints, as JSON, with these arguments and another Python."""
    done = subprocess.run([python, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{python} {' '.join(arguments)} ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def ratios(before: list[Rates], after: list[Rates]) -> Rates:
    """The median of the rounds' ratios, by clock."""
    pairs = list(zip(before, after, strict=True))
    return {clock: statistics.median(b[clock] / a[clock] for a, b in pairs) for clock in before[0]}


def compare(given: argparse.Namespace) -> int:
    """Runs the rounds, and prints the table."""
    pythons = {"before": given.before, "after": given.after}
    found: dict[str, dict[str, list[Rates]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run(given.after, "--one", "prepare", folder)
        for number in range(given.rounds):
            for name in given.only:
                begin = time.monotonic()
                for side, python in pythons.items():
                    for figure, rates in run(python, "--one", name, folder, "--seconds", str(given.seconds)):
                        found.setdefault(f"{name}, {figure}", {"before": [], "after": []})[side].append(rates)
                print(f"round {number + 1}, {name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {time.strftime('%Y-%m-%d')}, {given.rounds} rounds\n")
    print("| bench | before, 1/s | after, 1/s | ratio | ratio by CPU time |\n|---|---:|---:|---:|---:|")
    slower = []
    for name, sides in found.items():
        one, other = (statistics.median(rates["elapsed"] for rates in sides[side]) for side in pythons)
        ratio = ratios(**sides)
        print(f"| {name} | {one:.4g} | {other:.4g} | {ratio['elapsed']:.3f} | {ratio['cpu']:.3f} |")
        if ratio["cpu" if given.cpu else "elapsed"] < given.least:
            slower.append(name)
    print(f"\nbelow {given.least}: {'; '.join(slower) or 'none'}")
    return bool(slower)


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--before", type=Path, help="a Python with the build that is the measure")
    parser.add_argument("--after", type=Path, help="a Python with the other build")
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES), help="benches to run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of each figure")
    parser.add_argument("--least", type=float, default=0.98, help="ratios below are reported")
    parser.add_argument("--cpu", action="store_true", help="report by the ratio of CPU times")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, folder = given.one[0], Path(given.one[1])
        if name == "prepare":
            prepare(folder)
        found = list(BENCHES[name](folder, given.seconds)) if name in BENCHES else []
        print(json.dumps(found))
        return 0
    if not (given.before and given.after):
        parser.error("--before and --after are needed")
    return compare(given)


if __name__ == "__main__":
    sys.exit(main())
