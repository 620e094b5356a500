"""Reads a data folder of Kaldi: whole utterances by duration, with their texts and speakers.

    python examples/kaldi_folder.py DATA [--root ROOT]

Without DATA it writes a small one first: tones, one recording for each speaker, cut into utterances by `segments`.
ROOT is the folder of relative paths in wav.scp, by default DATA. It needs numpy and forebay only.
"""

import argparse
import tempfile
import wave
from pathlib import Path

import numpy as np

import forebay as fb

RATE = 16_000


def write_data(folder: Path) -> None:
    """Writes four recordings of 6 s with three utterances each."""
    seconds = np.arange(6 * RATE) / RATE
    files: dict[str, list[str]] = {"wav.scp": [], "segments": [], "utt2spk": [], "text": []}
    for number, word in enumerate(["one", "two", "three", "four"]):
        name, speaker = f"r{number}", f"speaker{number}"
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((8000 * np.sin(2 * np.pi * 200 * (number + 1) * seconds)).astype("<i2").tobytes())
        files["wav.scp"].append(f"{name} {name}.wav")
        for part in range(3):
            utterance = f"{speaker}-{part}"
            files["segments"].append(f"{utterance} {name} {1.5 * part} {1.5 * part + 1 + 0.25 * part}")
            files["utt2spk"].append(f"{utterance} {speaker}")
            files["text"].append(f"{utterance} number {word} part {part}")
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def read(data: Path, root: Path | None) -> int:
    """Prints the batches of one pass; returns the number of utterances."""
    loader = fb.Loader.train(
        fb.Manifest(data, root=root),
        crop=fb.crops.Whole(),
        batching=fb.batching.Buckets(max_duration=20.0, num_buckets=2),
        features="icefall",
        targets={"text": fb.targets.Text("text")},
        columns=["utterance", "speaker"],
        infinite=False,
        seed=1,
    )
    n = 0
    with loader:
        for batch in loader:
            print(batch["spectrogram"].shape, batch["valid_frames"].tolist())
            for utterance, text in zip(batch["utterance"], batch["text"], strict=True):
                print(f"  {utterance}: {text}")
            n += len(batch["utterance"])
    return n


def main() -> None:
    """Reads the given folder, or one that it writes."""
    parser = argparse.ArgumentParser(description="Read a data folder of Kaldi.")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--root", type=Path)
    arguments = parser.parse_args()
    if arguments.data is not None:
        print(f"{read(arguments.data, arguments.root)} utterances")
        return
    with tempfile.TemporaryDirectory() as name:
        write_data(Path(name))
        n = read(Path(name), None)
        if n != 12:
            raise SystemExit(f"expected 12 utterances, not {n}")


if __name__ == "__main__":
    main()
