"""Writes the shar in this folder with lhotse."""

from pathlib import Path

from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

HERE = Path(__file__).parent
DIGITS = HERE.parent / "digits"
# Recording, start and length in seconds.
CUTS = [
    ("0_theo_0", 0.0, None),
    ("1_theo_1", 0.0, 0.15),
    ("1_theo_1", 0.05, 0.125),
    ("2_jackson_2", 0.1, 0.25),
    ("3_theo_3", 0.0, None),
    ("4_theo_2", 0.0, None),
    ("9_theo_2", 0.025, 0.2),
]
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

cuts = []
for i, (name, start, length) in enumerate(CUTS):
    recording = Recording.from_file(DIGITS / f"{name}.wav")
    seconds = recording.duration if length is None else length
    digit, speaker, _ = name.split("_")
    said = SupervisionSegment(f"s{i}", recording.id, 0.0, seconds, text=WORDS[int(digit)], speaker=speaker)
    cut = MonoCut(f"{name}.{i}", start, seconds, 0, supervisions=[said], recording=recording)
    cut.custom = {"snr": 2.5 * i}
    cuts.append(cut)
CutSet.from_cuts(cuts).to_shar(HERE, fields={"recording": "flac"}, shard_size=4)
