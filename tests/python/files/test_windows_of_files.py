"""Windows and random access over recordings in files: segments, rates, archives, long files."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import AudioDataset, Manifest, crops, features
from windows import noise, wav

GIVEN: dict[str, Any] = {
    "features": features.Waveform(sample_rate=8000), "clip_seconds": 0.5, "batch_size": 16, "infinite": False,
    "order": "sequential", "shuffle_min_size": 0, "outputs": ["window", "start", "valid_samples"],
}  # fmt: skip
SEGMENTS: list[dict[str, Any]] = [
    {"path": "8.wav", "start": 3.25, "end": 7.5},
    {"path": "11.wav", "start": 100.0, "end": 101.6},
    {"path": "16.wav", "end": 0.3},
    {"path": "8.wav", "start": 59.9},
    {"path": "16.wav", "start": 2.0, "end": 2.5},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of several rates, all of which are read in part."""
    folder = tmp_path_factory.mktemp("windows")
    for name, rate in (("8", 8000), ("11", 11025), ("16", 16000)):
        (folder / f"{name}.wav").write_bytes(wav(noise(120 * rate if rate > 8000 else 60 * rate, rate), rate))
    return folder


def parts(folder: Path, to: Path) -> list[dict[str, Any]]:
    """The segments as files of their own."""
    rows = []
    for i, row in enumerate(SEGMENTS):
        whole = (folder / row["path"]).read_bytes()
        rate, pcm = int.from_bytes(whole[24:28], "little"), whole[44:]
        start = round(row.get("start", 0.0) * rate)
        end = round(row["end"] * rate) if "end" in row else len(pcm)
        (to / f"{i}.wav").write_bytes(wav(np.frombuffer(pcm[2 * start : 2 * end], np.int16), rate))
        rows.append({"path": f"{i}.wav"})
    return rows


def given(source: Any, **changes: Any) -> list[tuple[Any, ...]]:
    """Index, window, start, length and samples of every window."""
    with forebay.Loader(source, **{**GIVEN, **changes}) as loader:
        names = ("index", "window", "start", "valid_samples")
        rows = [
            (*values, samples.tobytes())
            for batch in loader
            for *values, samples in zip(*(batch[name].tolist() for name in names), batch["waveform"], strict=True)
        ]
        assert not loader.errors()
        if "world_size" not in changes:
            assert loader.num_records == len(rows)
    return rows


@pytest.mark.parametrize("end", ["pad", "drop", "shift", "remainder"])
@pytest.mark.parametrize("step", [None, 0.2, 0.7, 1.3])
def test_windows_of_segments(end: Any, step: float | None, folder: Path, tmp_path: Path) -> None:
    """Of rows with a start and an end, of several rates in a batch: those of files with these samples alone."""
    crop = crops.Windows(step, end=end)
    expected = given(Manifest(parts(folder, tmp_path), root=tmp_path), crop=crop)
    found = given(Manifest(SEGMENTS, root=folder), crop=crop)
    assert found == expected
    short = [row for row in found if row[0] == 2]
    assert [row[3] for row in short] == ([] if end == "drop" else [2400])
    in_order = sorted(found, key=lambda row: row[:2])
    for world in (2, 3):
        of_ranks = [
            row
            for rank in range(world)
            for row in given(Manifest(SEGMENTS, root=folder), crop=crop, world_size=world, rank=rank)
        ]
        assert sorted(of_ranks, key=lambda row: row[:2]) == in_order


def test_windows_of_members(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("8", "11", "16"):
            tar.add(folder / f"{name}.wav", f"{name}.wav")
    crop = crops.Windows(5.0)
    expected = given([folder / f"{name}.wav" for name in ("8", "11", "16")], crop=crop)
    assert given(tmp_path / "a.tar", crop=crop) == expected
    assert given(Manifest(SEGMENTS, root=tmp_path / "a.tar"), crop=crop) == given(
        Manifest(SEGMENTS, root=folder), crop=crop
    )


def test_a_dataset_of_segments(folder: Path, tmp_path: Path) -> None:
    """Rows, windows, given starts and waveforms of segments are those of files with these samples alone."""
    kept = {name: GIVEN[name] for name in ("features", "clip_seconds", "outputs")}
    kept["outputs"] = ["start", "valid_samples"]
    rows = parts(folder, tmp_path)
    for changes in ({"crop": crops.Windows(0.3)}, {"crop": crops.Random(), "seed": 5}, {}):
        with (
            AudioDataset(Manifest(SEGMENTS, root=folder), **kept, **changes) as found,
            AudioDataset(Manifest(rows, root=tmp_path), **kept, **changes) as expected,
        ):
            assert len(found) == len(expected)
            one, other = (dataset[list(range(len(found)))] for dataset in (found, expected))
            assert all(np.array_equal(one[name], other[name]) for name in one)
            if not changes:
                assert [found.info(row) for row in range(5)] == [expected.info(row) for row in range(5)]
                for start in (0.0, 0.013, 0.2):
                    mine, rate = found.waveform(1, start=start, seconds=0.4)
                    theirs, same_rate = expected.waveform(1, start=start, seconds=0.4)
                    assert rate == same_rate == 11025
                    assert np.array_equal(mine, theirs)
                with pytest.raises(forebay.ConfigError, match="the recording's seconds"):
                    found.get_batch([1], [1.6])


def test_no_window_in_all_recordings(folder: Path) -> None:
    with pytest.raises(forebay.ConfigError, match="all are shorter than clip_seconds"):
        forebay.Loader(
            Manifest(SEGMENTS[1:3], root=folder), **{**GIVEN, "clip_seconds": 9.0}, crop=crops.Windows(end="drop")
        )
