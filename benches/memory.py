"""Where the resident memory of a loader is, for recordings of each codec.

    python benches/recordings.py
    python benches/memory.py [--seconds 5]

Each codec has a process of its own, which takes a batch every fifth of a second, so that all buffers fill:
`shuffle_buffer_size=192, raw_channel_size=64, batch_size=64`, two workers, 240 recordings of a minute from
`recordings.py`, clips of 5 s, 128 bands. `before` is the process after its imports, `peak` the most that was resident
later, above that. `buffers` is what the parameters name: examples in the shuffle buffer and as many spare ones, batches
ahead, kept and held by the loop, records in the channel.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forebay

FILES = Path(__file__).resolve().parent.parent / "target" / "bench-recordings"
CODECS = ["ogg.ogg", "mp3.mp3", "flac.flac", "wav.wav", "ogg_44100_stereo.ogg"]
MB = 1e6
N_WORKERS = 2
PAUSE = 0.2
GIVEN = {
    "order": "window",
    "shuffle_min_size": 0,
    "shuffle_buffer_size": 192,
    "raw_channel_size": 64,
    "batch_size": 64,
    "prefetch_batches": 3,
    "n_workers": N_WORKERS,
}


def resident() -> dict[str, float]:
    """Resident megabytes: all, and those of files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(status[name].split()[0]) * 1024 / MB for name in ("VmRSS", "RssFile", "RssAnon")}


def measure(path: str, record: int, seconds: float) -> None:
    """Prints the memory of a loader of this file."""
    before = resident()
    with forebay.Loader([path], **GIVEN) as loader:
        batch = next(loader)
        example = batch["spectrogram"][0].nbytes / MB
        n, peak, end = 1, resident(), time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(PAUSE)
            batch = next(loader)
            n += 1
            now = resident()
            peak = max(peak, now, key=lambda one: one["VmRSS"])
    sizes = {
        "window": GIVEN["shuffle_buffer_size"] * example,
        "spare": GIVEN["shuffle_buffer_size"] * example,
        "batches": (GIVEN["prefetch_batches"] + 4) * GIVEN["batch_size"] * example,
        "channel": GIVEN["raw_channel_size"] * record / MB,
    }
    del batch
    parts = " ".join(f"{name} {size:.0f}" for name, size in sizes.items())
    above = peak["VmRSS"] - before["VmRSS"]
    buffers = sum(sizes.values())
    anonymous = peak["RssAnon"] - before["RssAnon"]
    print(
        f"{Path(path).stem:18} before {before['VmRSS']:.0f}, peak +{above:.0f} (anonymous +{anonymous:.0f}), buffers"
        f" {buffers:.0f}: {parts}; rest {above - buffers:.0f} MB, {n} batches"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the resident memory of a loader is.")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    parser.add_argument("--record", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.shard:
        measure(args.shard, args.record, args.seconds)
        return
    import pyarrow as pa

    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            recording = (FILES / codec).read_bytes()
            path = Path(folder) / f"{Path(codec).stem}.arrow"
            rows = pa.array([{"bytes": recording, "path": None}] * 240)
            table = pa.table({"audio": rows})
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
            command = [sys.executable, __file__, "--seconds", str(args.seconds)]
            command += ["--shard", str(path), "--record", str(len(recording))]
            subprocess.run(command, check=True)
            path.unlink()


if __name__ == "__main__":
    main()
