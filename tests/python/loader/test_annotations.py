"""`targets.Annotations`: labels of windows by overlap, compared with plain Python."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import taken
from forebay import ConfigError, _annotations, crops
from forebay.targets import Annotations
from windows import WAVEFORM, noise, shard, wav

RATE = 8000
LENGTHS = [4000, 1000, 2500]
CLIP, STEP = 0.05, 0.02
CLASSES = ["jay", "owl", "wren"]

Rows = list[tuple[str, float, float, str]]


def events(n: int = 60) -> Rows:
    draws = np.random.default_rng(5)
    found = []
    for _ in range(n):
        start, length = draws.uniform(0, 0.5), draws.choice([0.001, 0.01, 0.04, 0.2])
        label = ["owl", "wren", "jay"][draws.integers(3)]
        found.append((f"{draws.integers(3)}.wav", round(float(start), 4), round(float(start + length), 4), label))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shard(tmp_path / "rows", [wav(noise(n, n)) for n in LENGTHS])


GIVEN: dict[str, Any] = {**WAVEFORM, "clip_seconds": CLIP, "crop": crops.Windows(STEP)}


def read(path: Any, target: Annotations, **changes: Any) -> dict[str, list[Any]]:
    with forebay.Loader(path, targets={"labels": target}, **{**GIVEN, **changes}) as loader:
        return taken(loader)


def test_recordings_and_annotations_that_do_not_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.wav", "b.Mix.wav"):
        (tmp_path / name).write_bytes(wav(noise(2000, 1)))
    given = {name: value for name, value in GIVEN.items() if name != "label_column"}
    rows: Rows = [("a.wav", 0.0, 0.1, "owl"), ("b", 0.0, 0.1, "owl")]
    for table, is_told in ((rows, True), ([*rows, ("b.Mix", 0.0, 0.1, "owl")], False), (rows[:1], False)):
        caplog.clear()
        with forebay.Loader(tmp_path, targets={"labels": Annotations(table)}, **given) as loader:
            next(loader)
        told = '1 of 2 annotated paths are those of no recording, such as "b"; 1 recording without annotations'
        assert (told in caplog.text) == is_told


def expected(
    found: dict[str, list[Any]],
    rows: Rows,
    seconds: float = 0.0,
    of_annotation: float = 0.0,
    of_window: float = 0.0,
    *,
    is_share: bool = False,
) -> list[list[float]]:
    """The classes of each window, given what must overlap."""
    want = []
    for index, start, valid in zip(found["index"], found["start"], found["valid_samples"], strict=True):
        end = start + valid / RATE
        row = [0.0] * len(CLASSES)
        for path, begin, stop, label in rows:
            overlap = min(stop, end) - max(begin, start)
            least = max(seconds, of_annotation * (stop - begin), of_window * (end - start))
            if path == f"{index}.wav" and overlap > 1e-7 and overlap >= least - 1e-7:
                at = CLASSES.index(label)
                row[at] = max(row[at], overlap / (end - start) if is_share else 1.0)
        want.append(row)
    return want


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({}, {}),
        ({"min_overlap": 0.01}, {"seconds": 0.01}),
        ({"min_share": 0.5}, {"of_annotation": 0.5}),
        ({"min_share": 0.2, "of": "window"}, {"of_window": 0.2}),
        ({"min_overlap": 0.005, "min_share": 0.1}, {"seconds": 0.005, "of_annotation": 0.1}),
        ({"value": "share"}, {"is_share": True}),
    ],
)
def test_overlaps(change: dict[str, Any], least: dict[str, Any], path: Path) -> None:
    rows = events()
    found = read(path, Annotations(rows, **change))
    want = expected(found, rows, **least)
    np.testing.assert_allclose(found["labels"], want, rtol=1e-5, atol=1e-9)
    assert 0 < np.sum(want) < np.size(want)


TABLES: dict[str, tuple[str, str, Any]] = {
    "csv": ("t.csv", "path,start,end,label\n", lambda row: ",".join(map(str, row)) + "\n"),
    "tsv": ("t.tsv", "filename\tonset\toffset\tspecies\n", lambda row: "\t".join(map(str, row)) + "\n"),
    "windows": ("t.CSV", "\ufeffpath,start,end,label\r\n", lambda row: ",".join(map(str, row)) + "\r\n\r\n"),
    "raven": (
        "t.txt",
        "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tBegin File\tSpecies\n",
        lambda row: f"1\tSpectrogram 1\t1\t{row[1]}\t{row[2]}\t{row[0]}\t{row[3]}\n",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str, path: Path, tmp_path: Path) -> None:
    file, header, line = TABLES[name]
    rows = events()
    table = tmp_path / file
    table.write_text(header + "".join(map(line, rows)), newline="")
    assert read(path, Annotations(table)) == read(path, Annotations(rows))
    target = Annotations(table)
    assert target == pickle.loads(pickle.dumps(target)) == Annotations.from_dict(target.to_dict())


@pytest.mark.parametrize("form", ["audacity", "raven", "birdnet"])
def test_a_table_for_each_recording(form: str, path: Path, tmp_path: Path) -> None:
    """Labels of Audacity and selection tables in a folder, by the names of the recordings."""
    rows = events()
    folder = tmp_path / "tables"
    (folder / "sub").mkdir(parents=True)
    for at in range(3):
        own = [row for row in rows if row[0] == f"{at}.wav"]
        if form == "audacity":
            text = "".join(f"{start:.4f}\t{end:.4f}\t{label}\n\\\t100.0\t900.0\n" for _, start, end, label in own)
            (folder / "sub" / f"{at}.txt").write_text(text)
        else:
            text = "Begin Time (s)\tEnd Time (s)\tCommon Name\n"
            text += "".join(f"{start}\t{end}\t{label}\n" for _, start, end, label in own)
            ending = "Table.1.selections.txt" if form == "raven" else "BirdNET.selection.table.txt"
            (folder / f"{at}.{ending}").write_text(text)
    assert read(path, Annotations(folder)) == read(path, Annotations(rows))


def test_named_columns(path: Path, tmp_path: Path) -> None:
    rows = events()
    table = tmp_path / "t.csv"
    lines = [f'"{label}","{name}",{end},{start}' for name, start, end, label in rows]
    table.write_text("\n".join(["name of bird,where,until,from", *lines]))
    columns = {"path": "where", "start": "from", "end": "until", "label": "name of bird"}
    assert read(path, Annotations(table, columns=columns)) == read(path, Annotations(rows))


def test_classes(path: Path) -> None:
    rows = events()
    order = ["wren", "emu", "owl"]
    found = read(path, Annotations(rows, classes=order, unknown="ignore"))
    want = expected(found, rows)
    assert found["labels"] == [[wren, 0.0, owl] for _, owl, wren in want]
    with forebay.Loader(path, targets=Annotations(rows), **GIVEN) as loader:
        assert loader.class_names == ["jay", "owl", "wren"]
        assert next(field for field in loader.fields if field["name"] == "label")["shape"] == (3,)
    with pytest.raises(ConfigError, match='an annotation has "jay", which is no class: the 3 classes are "wren"'):
        read(path, Annotations(rows, classes=order))


def test_random_clips_have_their_annotations(path: Path) -> None:
    rows = events()
    found = read(path, Annotations(rows), crop=crops.Random())
    assert found["labels"] == expected(found, rows)


def test_segments_have_the_annotations_of_their_times(tmp_path: Path) -> None:
    """A row that is a segment keeps the time line of its recording."""
    (tmp_path / "a.wav").write_bytes(wav(noise(2400, 1)))
    target = Annotations([("a.wav", 0.21, 0.24, "wren"), ("a.wav", 0.02, 0.03, "owl")])

    def labels(row: dict[str, Any], **changes: Any) -> list[list[float]]:
        table = forebay.Manifest([{"path": "a.wav", **row}], root=tmp_path, **changes)
        return read(table, target, crop=crops.Windows())["labels"]

    assert labels({}) == [[1, 0], [0, 0], [0, 0], [0, 0], [0, 1], [0, 0]]
    assert labels({"start": 0.15}) == [[0, 0], [0, 1], [0, 0]]
    assert labels({"start": 1200, "end": 2400}, unit="samples") == [[0, 0], [0, 1], [0, 0]]


def test_times_within_files(tmp_path: Path) -> None:
    """Raven counts from the first of the files that were open together, and has the place in each file, too."""
    head = "Selection\tBegin Time (s)\tEnd Time (s)\tBegin File\tFile Offset (s)\tSpecies\n"
    (tmp_path / "t.txt").write_text(f"{head}1\t10\t12\ta.wav\t10\towl\n2\t61.5\t62.25\tb.wav\t1.5\twren\n")
    assert _annotations.read(str(tmp_path / "t.txt"), None) == [
        ("a.wav", 10.0, 12.0, "owl"),
        ("b.wav", 1.5, 2.25, "wren"),
    ]


def test_the_table_is_part_of_the_state(path: Path, tmp_path: Path) -> None:
    """Not where it lies."""
    rows = events()
    tables = [tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"]
    for table, own in zip(tables, (rows, rows, [*rows[:-1], (*rows[-1][:3], "owl")]), strict=True):
        table.write_text("path,start,end,label\n" + "".join(",".join(map(str, row)) + "\n" for row in own))
    loaders = [forebay.Loader(path, targets=Annotations(table), **GIVEN) for table in tables]
    next(loaders[0])
    state = loaders[0].state_dict()
    loaders[1].load_state_dict(state)
    with pytest.raises(forebay.StateError, match="targets"):
        loaders[2].load_state_dict(state)


def test_no_recording_has_annotations(path: Path) -> None:
    rows = [("elsewhere/x.wav", 0.0, 1.0, "owl")]
    with pytest.raises(ConfigError, match=r'paths such as "0\.wav", annotations "elsewhere/x\.wav"'):
        read(path, Annotations(rows))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("path,start,end\na,0,1\n", r"t\.csv has no column of the label; its columns are path, start, end; name it"),
        ("path,start,end,label\na,zero,1,owl\n", r"t\.csv, line 2: start is 'zero', must be a number of seconds"),
        ("path,start,end,label\na,0,1,owl\na,0\n", r"t\.csv, line 3, has 2 fields, expected 4"),
        ("path,start,end,label\na,2,1,owl\n", "is from 2 to 1 s, must end after its start"),
        ("path,start,end,label\na,0,1,\n", "has no label"),
        ("path,start,end,label\na,nan,1,x\n", r"t\.csv, line 2: start is 'nan', must be a number of seconds"),
        ("", r"t\.csv has no column of the start; its columns are none"),
    ],
)
def test_wrong_tables(text: str, told: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(ConfigError, match=told):
        Annotations(table)


def test_recordings_without_events_are_listed_too(tmp_path: Path) -> None:
    """As in DCASE's tables, and times may be numbers of numpy."""
    table = tmp_path / "t.tsv"
    table.write_text("filename\tonset\toffset\tevent_label\n0.wav\t0.0\t0.1\towl\n1.wav\t\t\t\n")
    assert _annotations.read(str(table), None) == [("0.wav", 0.0, 0.1, "owl")]
    rows: Any = [("0.wav", np.float32(0), np.float64(0.1), "owl")]
    assert Annotations(table) == Annotations(table)
    assert _annotations.read(rows, None) == [("0.wav", 0.0, 0.1, "owl")]
    for name, text in (("a.txt", "0.0\t0.1\towl\n"), ("a.rttm", "SPEAKER a 1 0 0.1 <NA> <NA> owl <NA> <NA>\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=r"columns is given, and .* whose columns have no names"):
            Annotations(tmp_path / name, columns={"label": "event"})


def test_latin_1_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes("path,start,end,label\na,0,1,Kuckuck\na,0,1,Käuzchen\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"t\.csv, line 3, is not UTF-8"):
        Annotations(table)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"min_overlap": -1.0}, ConfigError, "min_overlap is -1.0, must be 0 to 86400 seconds"),
        ({"min_share": 2.0}, ConfigError, "min_share is 2.0, must be 0 to 1"),
        ({"of": "clip"}, ConfigError, 'of is "clip", must be one of "annotation", "window"'),
        ({"value": "seconds"}, ConfigError, 'value is "seconds", must be one of'),
        ({"columns": {"path": "x"}}, ConfigError, "columns is given, which is for a table in a file"),
        ({"columns": {"when": "x"}}, ConfigError, "columns has 'when', must be of path, start, end, label"),
        ({"table": 3}, TypeError, "table is 3"),
        ({"table": [("a", 0.0, 1.0)]}, TypeError, "row 0 of table"),
        ({"table": [None]}, TypeError, r"row 0 of table is None, must be \(path, start, end, label\)"),
        (
            {"table": [("a", 0.0, np.float64("nan"), "owl")]},
            ConfigError,
            r"end in row 0 of table is .*nan.*, must be a",
        ),
        ({"table": iter(())}, TypeError, r"of a DataFrame with these columns, list\(frame\.itertuples"),
        ({"table": "gone.csv"}, FileNotFoundError, "gone.csv"),
        ({"table": []}, ConfigError, "no annotations, of which classes could be known"),
    ],
)
def test_wrong_parameters(change: dict[str, Any], error: type[Exception], told: str, path: Path) -> None:
    with pytest.raises(error, match=told):
        read(path, Annotations(**{"table": events(), **change}))
