"""Reads a shar of Lhotse without lhotse: its cuts by duration, with their texts and a field of their own.

    python examples/lhotse_shar.py SHAR

Without SHAR it writes a small one first, as `CutSet.to_shar(SHAR, fields={"recording": "wav"})` does: two pairs of
cuts and recordings. It needs numpy and forebay only.
"""

import argparse
import gzip
import io
import json
import tarfile
import tempfile
import wave
from pathlib import Path

import numpy as np

import forebay as fb

RATE = 16_000


def tone(hertz: float, seconds: float) -> bytes:
    """A WAV file of a sine."""
    file, n = io.BytesIO(), round(seconds * RATE)
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes((8000 * np.sin(2 * np.pi * hertz * np.arange(n) / RATE)).astype("<i2").tobytes())
    return file.getvalue()


def write_shar(folder: Path) -> None:
    """Writes two shards of three cuts."""
    for shard in range(2):
        lines = []
        with tarfile.open(folder / f"recording.{shard:06}.tar", "w") as archive:
            for part in range(3):
                name, seconds = f"cut{shard}{part}", 1.0 + 0.25 * part + 0.5 * shard
                described = {
                    "id": name,
                    "sampling_rate": RATE,
                    "num_samples": round(seconds * RATE),
                    "duration": seconds,
                }
                recording = {
                    **described,
                    "sources": [{"type": "shar", "channels": [0], "source": ""}],
                    "channel_ids": [0],
                }
                for ending, content in (
                    (".wav", tone(200 * (part + 1), seconds)),
                    (".json", json.dumps(recording).encode()),
                ):
                    member = tarfile.TarInfo(name + ending)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
                said = {"id": name, "recording_id": name, "start": 0.0, "duration": seconds, "text": f"number {part}"}
                cut = {"id": name, "start": 0.0, "duration": seconds, "channel": 0, "supervisions": [said]}
                lines.append(
                    json.dumps({**cut, "recording": recording, "custom": {"snr": 10.0 * part}, "type": "MonoCut"})
                )
        with gzip.open(folder / f"cuts.{shard:06}.jsonl.gz", "wt") as table:
            table.write("".join(f"{line}\n" for line in lines))


def read(shar: Path) -> int:
    """Prints the batches of one pass; returns the number of cuts."""
    loader = fb.Loader.train(
        shar,
        crop=fb.crops.Whole(),
        batching=fb.batching.Buckets(max_duration=20.0, num_buckets=2),
        features="icefall",
        targets={"text": fb.targets.Text("supervisions.0.text")},
        columns=["id"],
        infinite=False,
        seed=1,
    )
    n = 0
    with loader:
        for batch in loader:
            print(batch["spectrogram"].shape, batch["valid_frames"].tolist())
            for name, text in zip(batch["id"], batch["text"], strict=True):
                print(f"  {name}: {text}")
            n += len(batch["id"])
    return n


def main() -> None:
    """Reads the given folder, or one that it writes."""
    parser = argparse.ArgumentParser(description="Read a shar of Lhotse.")
    parser.add_argument("shar", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.shar is not None:
        print(f"{read(arguments.shar)} cuts")
        return
    with tempfile.TemporaryDirectory() as name:
        write_shar(Path(name))
        n = read(Path(name))
        if n != 6:
            raise SystemExit(f"expected 6 cuts, not {n}")


if __name__ == "__main__":
    main()
