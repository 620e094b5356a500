"""`crops.Annotated`: clips inside the annotated regions of recordings, beside an oracle in plain Python."""

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from fields import write
from forebay import AudioDataset, ConfigError, augment, crops, features
from forebay.sampling import Weighted
from forebay.targets import Annotations, Frames
from places import Recording, expected
from windows import wav

RATE, CLIP, SEED = 8000, 400, 5
LENGTHS = [4000, 2000, 900, 8000, 1600, 300]
REGIONS: list[list[tuple[int, int]]] = [
    [(800, 1500), (0, 1000), (1500, 1700), (3000, 3350), (3000, 3350)],  # they overlap and touch; one is too short
    [(100, 200), (1500, 1700), (600, 900)],  # all are too short
    [(-500, 5000)],
    [(7900, 9000), (100, 600), (20_000, 30_000)],
    [],
    [(0, 300)],
]
"""Samples; they may lie outside of the recordings."""

ROWS = [(f"{row}.wav", start / RATE, end / RATE) for row, regions in enumerate(REGIONS) for start, end in regions]
GIVEN: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE), "clip_seconds": CLIP / RATE, "batch_size": 4, "infinite": False,
    "shuffle_min_size": 0, "n_workers": 2, "outputs": ["start", "valid_samples"], "seed": SEED,
}  # fmt: skip


def ramp(n: int) -> np.ndarray:
    """Samples that tell their position."""
    return np.arange(1, n + 1) * 4


def write_table(folder: Path, kind: str) -> Any:
    """The regions as a table of this kind."""
    folder.mkdir(exist_ok=True)
    names = [(path.removesuffix(".wav"), start, end) for path, start, end in ROWS]
    if kind == "rows":
        return ROWS
    if kind == "labelled rows":
        return [[*row, "anna"] for row in ROWS]
    if kind == "folder":
        for row, regions in ((row, regions) for row, regions in enumerate(REGIONS) if regions):
            (folder / f"{row}.txt").write_text("".join(f"{a / RATE}\t{b / RATE}\t\n" for a, b in regions))
        return folder
    lines = {
        "uem": [";; regions", *(f"{name} 1 {start} {end}" for name, start, end in names)],
        "rttm": [f"SPEAKER {name} 1 {start} {end - start} <NA> <NA> anna <NA> <NA>" for name, start, end in names],
        "csv": ["filename,onset,offset", *(f"{name},{start},{end}" for name, start, end in names)],
    }[kind]
    path = folder / f"regions.{kind}"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("annotated")
    audio = pa.array([{"bytes": wav(ramp(n)), "path": f"{i}.wav"} for i, n in enumerate(LENGTHS)])
    starts, ends = (
        pa.array([[pair[at] / RATE for pair in regions] for regions in REGIONS], pa.list_(pa.float64()))
        for at in (0, 1)
    )
    turns = pa.StructArray.from_arrays([starts, ends], ["start", "end"])
    return write(folder / "rows", pa.table({"audio": audio, "turns": turns, "starts": starts, "ends": ends}))


def rows(loader: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in loader:
        found += [{name: values[at] for name, values in batch.items()} for at in range(len(batch["index"]))]
    return found


def rest(loader: Any) -> list[dict[str, Any]]:
    """The rows that the pass still has."""
    return rows(iter(lambda: next(loader, None), None))


def check(crop: Any, found: Sequence[dict[str, Any]], epoch: int = 0) -> None:
    assert sorted(row["index"] for row in found) == list(range(len(LENGTHS)))
    for row in found:
        index = int(row["index"])
        recording = Recording((ramp(LENGTHS[index]) / 32768).astype(np.float32), REGIONS[index])
        [(start, n, waveform)] = expected(crop, recording, CLIP, index, RATE, SEED, epoch)
        assert (row["start"], row["valid_samples"]) == (start / RATE, n), index
        assert np.array_equal(row["waveform"], waveform), index


@pytest.mark.parametrize("kind", ["rows", "labelled rows", "folder", "uem", "rttm", "csv", "columns", "struct"])
def test_clips_are_those_of_the_oracle(kind: str, files: Path, tmp_path: Path) -> None:
    columns = {
        "columns": {"start": "starts", "end": "ends"},
        "struct": {"label": "any", "start": "turns.start", "end": "turns.end"},
    }
    table = columns.get(kind) or write_table(tmp_path / "tables", kind)
    crop = crops.Annotated(table, empty="random")
    with forebay.Loader(files, crop=crop, **GIVEN) as loader:
        for epoch in range(2):
            check(crop, rows(loader), epoch)
        assert repr(crop) in repr(loader.recipe)
    with AudioDataset(
        files, crop=crop, **{name: GIVEN[name] for name in ("features", "clip_seconds", "outputs", "seed")}
    ) as dataset:
        check(crop, [dataset[at] for at in range(len(LENGTHS))])


@pytest.mark.parametrize("rate", [RATE, 2 * RATE])
def test_rows_that_are_segments(rate: int, tmp_path: Path) -> None:
    """Regions of a table count from the start of the recording; large files are read in part."""
    samples = np.arange(20 * RATE) % 30_000
    (tmp_path / "a.wav").write_bytes(wav(samples))
    lines: list[dict[str, Any]] = [{"path": "a.wav", "start": at, "end": at + 5.0} for at in (0.0, 5.0, 10.25, 15.0)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    regions = [("a.wav", 1.0, 2.5), ("a.wav", 4.0, 6.0), ("a.wav", 11.0, 12.0), ("a.wav", 19.0, 40.0)]
    given = {**GIVEN, "features": features.Waveform(sample_rate=rate), "clip_seconds": 0.5}
    with forebay.Loader(tmp_path / "rows.jsonl", crop=crops.Annotated(regions), **given) as loader:
        for _ in range(5):
            for row in rows(loader):
                at = lines[row["index"]]["start"] + row["start"]
                assert any(start <= at and at + 0.5 <= end for _, start, end in regions), at
                if rate == RATE:
                    first = round(at * RATE)
                    assert np.array_equal(row["waveform"] * 32768, samples[first : first + RATE // 2])


def test_clips_that_are_played_faster_or_slower_lie_inside(files: Path) -> None:
    """Frames are labelled in regions alone, and a clip has labels in all of its frames."""
    regions = [(f"{row}.wav", 0.02, n / RATE - 0.02, "a") for row, n in enumerate(LENGTHS[:5])]
    given = {**GIVEN, "targets": {"y": Frames(regions, step=0.005)}, "clip_seconds": 0.03}
    speeds = augment.Speed((0.5, 0.9, 1.0, 1.1, 2.0))
    sampling = forebay.sampling.Subset(range(5))
    crop = crops.Annotated(regions)
    with forebay.Loader(files, crop=crop, augment=[speeds], sampling=sampling, **given) as loader:
        starts = set()
        for _ in range(20):
            for row in rows(loader):
                assert row["y"].all(), row
                assert row["start"] >= 0.02 - 1e-9
                starts.add((row["index"], row["start"]))
    assert len(starts) > 80


def test_weights_by_annotated_seconds(files: Path, tmp_path: Path) -> None:
    """Recordings by their annotated time, clips within: as pyannote draws chunks."""
    crop = crops.Annotated(write_table(tmp_path, "uem"))
    paths = [Path("site") / f"{row}.wav" for row in range(len(LENGTHS))]
    seconds = crop.seconds(paths)
    united = [1700 + 350, 600, 5500, 1100 + 500 + 10_000, 0, 300]  # not cut: the recordings are not read
    np.testing.assert_allclose(seconds, np.array(united) / RATE)
    sampling = Weighted(seconds, epoch_size=2000)
    with forebay.Loader(files, crop=crop, sampling=sampling, **{**GIVEN, "batch_size": 100}) as loader:
        found = Counter(int(row["index"]) for row in rows(loader))
    for row, samples in enumerate(united):
        assert abs(found[row] - 2000 * samples / sum(united)) < 1
    with pytest.raises(ConfigError, match="names columns, whose regions are read with the rows"):
        crops.Annotated({"start": "starts", "end": "ends"}).seconds(paths)


def test_every_place_is_as_likely(files: Path) -> None:
    """Chi-square of the starts in regions of 1700 (two that overlap, one that touches) and 500 samples."""
    regions = [("3.wav", 0.0, 0.125), ("3.wav", 0.1, 0.2125), ("3.wav", 0.5, 0.5625), ("3.wav", 0.9, 0.93)]
    views = crops.Views(200, crops.Annotated(regions, empty="random"))
    given = {**GIVEN, "sampling": forebay.sampling.Subset([3]), "batch_size": 1}
    starts = []
    with forebay.Loader(files, crop=views, **given) as loader:
        for _ in range(20):
            starts += [round(float(start) * RATE) for start in next(iter(loader))["start"][0]]
    numbers = [start if start <= 1300 else start - 4000 + 1301 for start in starts]
    counts = np.histogram(numbers, 12, (0, 1301 + 101))[0]
    mean = 4000 / 12
    assert sum((counts - mean) ** 2 / mean) < 31.3  # 999 of 1000 draws, 11 degrees of freedom
    assert min(numbers) >= 0
    assert max(numbers) <= 1401


def test_a_state_has_the_regions(files: Path, tmp_path: Path) -> None:
    """The state of a loader goes on with the same regions, wherever they lie, and refuses others."""
    given = {**GIVEN, "batch_size": 2}
    by_name = [(path.removesuffix(".wav"), start, end) for path, start, end in ROWS]
    for wrap in (lambda crop: crop, lambda crop: crops.Views(2, crop)):
        one, other = (write_table(tmp_path / name, "uem") for name in ("one", "other"))
        with forebay.Loader(files, crop=wrap(crops.Annotated(one, empty="random")), **given) as loader:
            next(loader)
            state = loader.state_dict()
            left = rest(loader)
        for table in (other, by_name):
            crop = crops.Annotated(table, empty="random")
            assert pickle.loads(pickle.dumps(crop)) == crop
            with forebay.Loader(files, crop=wrap(crop), **given) as loader:
                loader.load_state_dict(state)
                again = rest(loader)
            assert [row["start"].tolist() for row in again] == [row["start"].tolist() for row in left]
        changed = crops.Annotated([*by_name, ("4", 0.0, 1.0)], empty="random")
        with (
            forebay.Loader(files, crop=wrap(changed), **given) as loader,
            pytest.raises(forebay.StateError, match="crop"),
        ):
            loader.load_state_dict(state)


def test_objects() -> None:
    table: Any = [("a.wav", np.float32(0.5), 2), ("b.wav", 0, 1.5, "anna")]
    for crop in (
        crops.Annotated(table),
        crops.Annotated({"start": "a", "end": "b"}, empty="random", pad="both"),
        crops.Views(2, crops.Annotated(table, silence_db=-30.0)),
    ):
        copies = (pickle.loads(pickle.dumps(crop)), type(crop).from_dict(json.loads(json.dumps(crop.to_dict()))))
        assert all(copy == crop and repr(copy) == repr(crop) and hash(copy) == hash(crop) for copy in copies)
        assert eval(repr(crop), vars(crops)) == crop


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([("a.wav", 2.0, 1.0)], r"of \"a.wav\" is from 2 to 1 s, must end after its start"),
        ([("a.wav", 0.0, float("nan"))], "end in row 0 of annotations is nan, must be a number of seconds"),
        ([("", 0.0, 1.0)], "has no recording"),
        ("missing.uem", "annotations is 'missing.uem', which is no file"),
        ({"start": "a"}, "must be a table of annotations, or a dict"),
        ({"start": "a", "end": "b", "speaker": "c"}, "must be a table of annotations, or a dict"),
        ({"start": "", "end": "b"}, 'annotations has "" as its start'),
        ([("a.wav", 1.0)], r"row 0 of annotations is .*, must be \(path, start, end\), with or without a label"),
        (7, "annotations is 7 .*, must be a path, or a list of rows"),
    ],
)
def test_wrong_regions(table: Any, message: str) -> None:
    with pytest.raises((ConfigError, TypeError, FileNotFoundError), match=message):
        crops.Annotated(table)


def test_wrong_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.uem"
    for text, message in {
        "a 1 0.0": "line 1, has 3 fields, expected a file, a channel, a start and an end",
        ";; regions\n\na 1 zero 2.0": "line 3: start is 'zero', must be a number of seconds",
        "a 1 0.0 9.0\na 1 2.5 1.0": r"a\.uem, line 2: the annotation is from 2\.5 to 1 s, must end after its start",
        "a 1 0.0 inf": "line 1: end is 'inf', must be a number of seconds",
    }.items():
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            crops.Annotated(path)
    path.write_text("a 1 0.0 2.0")
    with pytest.raises(ConfigError, match=r"columns is given, and .*a\.uem has regions \(UEM\)"):
        crops.Annotated(path, columns={"start": "onset"})
    with pytest.raises(ConfigError, match=r"columns is given, .*, and annotations names columns"):
        crops.Annotated({"start": "a", "end": "b"}, columns={"start": "onset"})
    with pytest.raises(ConfigError, match=r"a\.uem is a UEM, whose regions have no labels; .*crops\.Annotated"):
        Frames(path)
    # In a folder with a UEM, the turns beside it are no regions.
    (tmp_path / "a.rttm").write_text("SPEAKER a 1 5.0 1.0 <NA> <NA> anna <NA> <NA>\n")
    assert crops.Annotated(tmp_path).seconds(["a.wav"]) == [2.0]
    assert Frames(tmp_path)._annotations() == [("a", 5.0, 6.0, "anna")]


def test_recordings_without_regions(files: Path, tmp_path: Path) -> None:
    with pytest.raises(forebay.ForebayError, match=r'row 4: .*no region within its recording; give empty="random"'):
        rows(forebay.Loader(files, crop=crops.Annotated(ROWS), **GIVEN))
    with pytest.raises(ConfigError, match=r'crop: no recording has annotations; .*"0.wav", annotations "b"'):
        forebay.Loader(files, crop=crops.Annotated([("b", 0.0, 1.0)]), **GIVEN)
    with pytest.raises(ConfigError, match="crop: annotations has no regions, must have at least one"):
        forebay.Loader(files, crop=crops.Annotated([]), **GIVEN)
    with pytest.raises(ValueError, match='there is no column "begins"'):
        forebay.Loader(files, crop=crops.Annotated({"start": "begins", "end": "ends"}), **GIVEN)
    nameless = write(tmp_path / "nameless", pa.table({"audio": pa.array([{"bytes": wav(ramp(900))}])}))
    with pytest.raises(
        forebay.ForebayError, match=r"crop: no recording has annotations; recordings have paths such as \"\""
    ):
        rows(forebay.Loader(nameless, crop=crops.Annotated(ROWS), **GIVEN))


def test_wrong_regions_in_columns(tmp_path: Path) -> None:
    for regions, message in {
        ((0.1,), (0.05,)): "which ends before it begins",
        ((0.1,), (float("nan"),)): "a region has NaN",
        ((0.1, 0.2), (0.3,)): "the row has 2 starts and 1 ends",
    }.items():
        columns = {name: pa.array([list(values)]) for name, values in zip(("a", "b"), regions, strict=True)}
        audio = pa.array([{"bytes": wav(ramp(4000)), "path": "0.wav"}])
        path = write(tmp_path / "rows", pa.table({"audio": audio, **columns}))
        with pytest.raises(forebay.ForebayError, match=message):
            rows(forebay.Loader(path, crop=crops.Annotated({"start": "a", "end": "b"}), **GIVEN))


def test_wrong_paths_of_seconds() -> None:
    crop = crops.Annotated([("a.wav", 0, 1)])
    for paths in ("a.wav", {"path": ["a.wav"]}, [5], [b"a.wav"]):
        with pytest.raises(
            TypeError, match=r"path.* must be (a list of the paths of recordings|the path of a recording)"
        ):
            crop.seconds(paths)  # type: ignore[arg-type]
    assert crop.seconds(iter([Path("a.wav")])) == [1.0]


def test_many_rows_are_shown_by_the_first() -> None:
    rows = [(f"{number}.wav", 0.0, 1.0) for number in range(10_000)]
    crop = crops.Annotated(rows)
    first = "(('0.wav', 0.0, 1.0, ''), ('1.wav', 0.0, 1.0, ''), ('2.wav', 0.0, 1.0, ''), ... 10000 in all)"
    assert repr(crop) == f"Annotated(annotations={first})"
    labelled = [(*row, "owl") for row in rows]
    for target in (Frames(labelled), Annotations(labelled)):
        assert "... 10000 in all)" in repr(target)
        assert len(repr(target)) < 300
    assert len(crop.to_dict()["annotations"]) == 10_000


def test_a_table_without_a_name() -> None:
    with pytest.raises(ConfigError, match='annotations is "", must be the path of a table or folder'):
        crops.Annotated("")


def test_a_region_without_a_length_is_none(files: Path) -> None:
    """A clip around it would not be annotated."""
    crop = crops.Annotated([("0.wav", 0.1, 0.1), *(row for row in ROWS if row[0] != "0.wav")])
    assert crop.seconds(["0.wav"]) == [0.0]
    only = forebay.sampling.Weighted([float(number == 0) for number in range(len(REGIONS))])
    with pytest.raises(forebay.ForebayError, match=r"row 0: .*no region within its recording"):
        rows(forebay.Loader(files, crop=crop, sampling=only, **GIVEN))
