"""The largest gap of `next()` beside its median, the examples decoded before a batch, and the peak memory.

    python benches/gaps.py [--files 306] [--batches 60] [--orders global,era,window] [--readers 1,4,32] [--latency 20]

Each line is a process of its own that makes an infinite loader over WAV files of `--seconds` and takes batches
without a pause; `--step` seconds of sleep after each batch stand for a training step. Sources: `files` (a folder) and
`arrow` (a shard of the same recordings); with `--latency`, the same two by URL, from a server on the loopback whose
answers begin that many ms after their requests (125 MB/s).

Goals on an idle machine: no gap after the first batch above 3 times the median + 20 ms; 306 short clips in at most
300 MB, 200 clips of Whisper's 30 s in at most 700 MB (`--whisper`).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

import numpy as np


def write_files(folder: Path, n: int, seconds: float, rate: int = 32_000) -> None:
    """Writes `n` WAV files of noise."""
    rng = np.random.default_rng(0)
    for i in range(n):
        with wave.open(str(folder / f"{i:05}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(rng.integers(-3000, 3000, int(seconds * rate), dtype=np.int16).tobytes())


def write_shard(folder: Path, path: Path) -> None:
    """Writes the files of `folder` as one Arrow stream."""
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("audio", kind)])
    with pa.ipc.new_stream(str(path), schema) as writer:
        names = sorted(folder.glob("*.wav"))
        for begin in range(0, len(names), 100):
            rows = [{"bytes": name.read_bytes(), "path": name.name} for name in names[begin : begin + 100]]
            writer.write_batch(pa.record_batch([pa.array(rows, kind)], schema=schema))


def measure(arguments: argparse.Namespace) -> dict:
    """Takes batches from one loader; the figures of this process."""
    import forebay

    parameters = {"order": arguments.order, "label_column": None, "n_readers": arguments.n_readers}
    if arguments.weights:
        from forebay.sampling import Weighted

        parameters["sampling"] = Weighted([1.0 + i % 3 for i in range(arguments.files)])
    if arguments.whisper:
        parameters |= {"features": "whisper", "clip_seconds": 30.0, "batch_size": 16}
    else:
        parameters |= {"clip_seconds": arguments.clip_seconds}
    source = arguments.source
    if arguments.mixture:
        source = {"a": source, "b": source}
    gaps, decoded = [], []
    with forebay.Loader(source, **parameters) as loader:
        for _ in range(arguments.batches):
            begin = time.perf_counter()
            next(loader)
            gaps.append(time.perf_counter() - begin)
            decoded.append(loader.stats()["records_decoded"])
            time.sleep(arguments.step)
        size = loader.batch_size
    later = gaps[1:]
    return {
        "first_ms": 1e3 * gaps[0],
        "median_ms": 1e3 * statistics.median(later),
        "largest_ms": 1e3 * max(later),
        "decoded_ahead": max(n - (k + 1) * size for k, n in enumerate(decoded)),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "examples_per_s": size * len(later) / sum(later),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=306)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clip-seconds", type=float, default=1.0)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--orders", default="global,era,window,sequential")
    parser.add_argument("--readers", default="1,4,32")
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--whisper", action="store_true", help="200 clips of 30 s, Whisper's features")
    parser.add_argument("--latency", type=float, help="ms until an answer begins; reads by URL")
    parser.add_argument("--weights", action="store_true")
    parser.add_argument("--mixture", action="store_true")
    parser.add_argument("--source", help=argparse.SUPPRESS)
    parser.add_argument("--order", help=argparse.SUPPRESS)
    parser.add_argument("--n-readers", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.source:
        print(json.dumps(measure(arguments)))
        return
    if arguments.whisper:
        arguments.files, arguments.seconds = min(arguments.files, 200), 6.0
    given = [f"--{flag}" for flag in ("whisper", "weights", "mixture") if getattr(arguments, flag)]
    given += [
        f"--{name.replace('_', '-')}={getattr(arguments, name)}"
        for name in ("files", "clip_seconds", "batches", "step")
    ]
    print(f"{arguments.files} files of {arguments.seconds} s, load {os.getloadavg()[0]:.1f}")
    print("source  order       n_readers  first  median  largest (ms)  decoded ahead  peak MB  examples/s")
    with tempfile.TemporaryDirectory() as folder:
        files, shard = Path(folder, "files"), Path(folder, "shard.arrow")
        files.mkdir()
        write_files(files, arguments.files, arguments.seconds)
        write_shard(files, shard)
        sources = {"files": str(files), "arrow": str(shard)}
        if arguments.latency is not None:
            from remote import served

            table = Path(folder, "table.csv")
            table.write_text("path\n" + "".join(f"files/{name.name}\n" for name in sorted(files.glob("*.wav"))))
            server = served(Path(folder), 125e6, arguments.latency / 1e3)
            url = next(server)
            sources = {"by url": f"{url}/table.csv", "arrow": f"{url}/shard.arrow"}
        for source, path in sources.items():
            for order in arguments.orders.split(","):
                for n_readers in arguments.readers.split(","):
                    for _ in range(arguments.repeat):
                        command = [sys.executable, __file__, *given, f"--source={path}", f"--order={order}"]
                        command.append(f"--n-readers={n_readers}")
                        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                        f = json.loads(run.stdout)
                        times = f"{f['first_ms']:6.0f} {f['median_ms']:7.1f} {f['largest_ms']:12.1f}"
                        rest = f"{f['decoded_ahead']:14} {f['peak_mb']:8.0f} {f['examples_per_s']:11.0f}"
                        print(f"{source:7} {order:11} {n_readers:>9} {times} {rest}", flush=True)


if __name__ == "__main__":
    main()
