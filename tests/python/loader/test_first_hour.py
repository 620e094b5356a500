"""What a new user does wrong in the first hour, and is told before the first batch."""

from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import Manifest, recipes, sampling, targets
from recordings import TINY
from tables import write_recordings, write_tar

ONE_PASS: dict[str, Any] = {**TINY, "batch_size": 4, "infinite": False, "order": "sequential"}


def made(files: Any, **given: Any) -> list[dict[str, Any]]:
    with forebay.Loader(files, **{**ONE_PASS, **given}) as loader:
        return list(loader)


def table(folder: Path, column: str, cells: list[str], name: str = "t.csv") -> Path:
    """A table of recordings beside it, with a column of text."""
    names = write_recordings(folder, len(cells))
    lines = [f'{path},"{cell}"' for path, cell in zip(names, cells, strict=True)]
    (folder / name).write_text("\n".join([f"path,{column}", *lines]) + "\n")
    return folder / name


def told(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def test_folders_of_one_name_are_one_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("bird/a", "bird/b", "insect/a"):
        write_recordings(tmp_path / name, 2)
    with forebay.Loader(tmp_path, **ONE_PASS) as loader:
        assert loader.class_names == ["a", "b"]
    [message] = told(caplog, "have one name")
    assert f"the folders {tmp_path}/bird/a and {tmp_path}/insect/a have one name" in message
    caplog.clear()
    made(tmp_path, targets={})
    made(tmp_path, label_column="")
    made(tmp_path / "bird")
    assert not caplog.records


@pytest.mark.parametrize("column", ["species", "ebird_code", "Label", "Primary Label"])
def test_a_label_of_another_name(column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = table(tmp_path, column, ["owl", "wren", "owl", "jay"])
    assert "label" not in made(source)[0]
    [message] = told(caplog, "have no label")
    assert f'label_column="{column}"' in message
    caplog.clear()
    assert made(source, label_column=column)[0]["label"].tolist() == [1, 2, 1, 0]
    silent: list[dict[str, Any]] = [{"columns": [column]}, {"targets": {}}, {"label_column": ""}]
    for given in silent:
        made(source, **given)
    assert not caplog.records


def test_a_table_beside_recordings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = table(tmp_path / "flat", "label", ["owl", "wren"], "labels.csv")
    made(source.parent)
    assert told(caplog, f"{source} is not read")
    caplog.clear()
    made(source)
    source.rename(source.with_name("metadata.csv"))
    made(source.parent)
    # Recordings in folders have labels.
    write_recordings(tmp_path / "classes" / "owl", 2)
    (tmp_path / "classes" / "readme.csv").write_text("a,b\n")
    made(tmp_path / "classes")
    assert not caplog.records


KNOWN = ["owl", "wren"]


@pytest.mark.parametrize("kind", [targets.ClassIndex, targets.MultiHot])
def test_an_unknown_class_is_told_before_the_first_batch(kind: Any, tmp_path: Path) -> None:
    source = table(tmp_path, "species", ["owl", "wren", "owl", "jay", "wren"])
    given: dict[str, Any] = {"targets": {"label": kind("species", classes=KNOWN)}}
    message = r't\.csv, row 3: .*"jay", which is no class: the 2 classes are "owl", "wren"'
    with pytest.raises(forebay.ConfigError, match=message):
        forebay.Loader(source, **ONE_PASS, **given)
    # But only if it is read.
    assert sum(len(batch["index"]) for batch in made(source, **given, exclude=[3])) == 4
    chosen = sampling.Where("species", values=KNOWN)
    assert sum(len(batch["index"]) for batch in made(source, **given, sampling=chosen)) == 4
    known = {"targets": {"label": kind("species", classes=KNOWN, unknown="ignore")}}
    assert sum(len(batch["index"]) for batch in made(source, **known)) == 5


def test_an_unknown_folder_is_told_before_the_first_batch(tmp_path: Path) -> None:
    for name in ("jay", "owl", "wren"):
        write_recordings(tmp_path / name, 2)
    with pytest.raises(forebay.ConfigError, match=r'"jay", which is no class.*-1: the ignore_index of the loss'):
        forebay.Loader(tmp_path, **ONE_PASS, targets=targets.ClassIndex("label", classes=KNOWN))


@pytest.mark.parametrize("kind", [targets.ClassIndex, targets.MultiHot])
def test_class_names_of_numbers_are_classes_again(kind: Any, tmp_path: Path) -> None:
    """A list of classes that are numbers names the numbers of a column; another list has them in its order."""

    def rows(cells: list[str], classes: Any) -> Any:
        found = made(table(tmp_path, "y", cells, "v.csv"), targets={"label": kind("y", classes=classes)})
        return found[0]["label"].argmax(1).tolist() if kind is targets.MultiHot else found[0]["label"].tolist()

    train = table(tmp_path, "y", ["1", "2", "3", "10"])
    with forebay.Loader(train, **ONE_PASS, targets={"label": kind("y", classes="data")}) as loader:
        names = loader.class_names
    assert names == ["1", "2", "3", "10"]
    (tmp_path / "classes.txt").write_text("\n".join(names))
    for classes in (names, str(tmp_path / "classes.txt")):
        assert rows(["1", "2", "10", "3"], classes) == [0, 1, 3, 2]
    # Training with one text among them.
    assert rows(["10", "1"], ["1", "10", "x"]) == [1, 0]
    assert rows(["1", "0"], ["owl", "wren"]) == [1, 0]
    with pytest.raises(forebay.ConfigError, match=r'has 4, which is no class: the 4 classes are "1"'):
        rows(["1", "4"], names)


def test_a_row_of_one_class_each_needs_no_separator(tmp_path: Path) -> None:
    target = targets.MultiHot("y", classes=["1", "2", "3"], separator=";")
    for cells in (["1;3", "2"], ["1", "2"]):
        [batch] = made(table(tmp_path, "y", cells), targets={"y": target})
        assert batch["y"].tolist() == [[1.0, 0.0, float(";" in cells[0])], [0.0, 1.0, 0.0]]


def test_texts_that_are_all_numbers(tmp_path: Path) -> None:
    source = table(tmp_path, "text", ["7", "3"])
    with pytest.raises(forebay.ConfigError, match="is int64, expected text; a column of a table whose cells are all"):
        made(source, targets=targets.Text("text"))


def test_folds_of_floats(tmp_path: Path) -> None:
    """As pandas writes whole numbers with a null among them."""
    source = table(tmp_path, "fold", ["1.0", "5.0", "", "2.5", "5.0"])
    source.write_text(source.read_text().replace('"', ""))

    def left(**given: Any) -> list[int]:
        return [int(row) for batch in made(source, sampling=sampling.Where("fold", **given)) for row in batch["index"]]

    assert left(exclude=[5]) == left(exclude=[5.0]) == [0, 2, 3]
    assert left(values=[5]) == left(values=[5.0, 7]) == [1, 4]
    with pytest.raises(TypeError, match="must be text or whole numbers; minimum and maximum take others"):
        sampling.Where("fold", values=[2.5])  # type: ignore[list-item]
    with pytest.raises(forebay.ConfigError, match="minimum and maximum are of numbers, and the column has texts"):
        made(source, sampling=sampling.Where("path", minimum=1))


@pytest.mark.parametrize(
    ("columns", "times", "seconds"),
    [
        ("onset,duration", "0.001,0.002", 0.002),
        ("Begin Time (s),duration", "0.001,0.002", 0.002),
        ("start,stop", "0.001,0.003", 0.002),
        ("begn,end", "0.001,0.003", None),
        ("onset,x", "0.001,0.003", None),
    ],
)
def test_columns_of_segments(
    columns: str, times: str, seconds: float | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [name] = write_recordings(tmp_path, 1)
    (tmp_path / "t.csv").write_text(f"path,{columns}\n{name},{times}\n")
    [batch] = made(tmp_path / "t.csv", crop=forebay.crops.Start(), outputs=["valid_samples"])
    half = told(caplog, "is half of a pair of starts and ends, so rows are whole recordings")
    assert len(half) == int(seconds is None)
    if seconds is not None:
        assert batch["valid_samples"].tolist() == [round(seconds * TINY["sample_rate"])]


def test_a_recording_without_labels_of_audacity(tmp_path: Path) -> None:
    write_recordings(tmp_path / "audio", 2)
    (tmp_path / "labels").mkdir()
    first, second = sorted(path.stem for path in (tmp_path / "audio").iterdir())
    (tmp_path / "labels" / f"{first}.txt").write_text("0\t0.001\towl\n")
    (tmp_path / "labels" / f"{second}.txt").write_text("\n")
    [batch] = made(
        tmp_path / "audio", targets={"y": targets.Annotations(tmp_path / "labels")}, crop=forebay.crops.Start()
    )
    assert batch["y"].tolist() == [[1.0], [0.0]]


def test_a_label_without_targets_is_anything(tmp_path: Path) -> None:
    source = table(tmp_path, "label", ["owl", "wren", "", "jay"])
    found = made(source, sampling=sampling.Balanced("label"))
    assert set(found[0]["label"].tolist()) <= {-1, 0, 1, 2}


def test_a_null_is_told_before_the_first_batch(tmp_path: Path) -> None:
    names = write_recordings(tmp_path, 3)
    rows = [
        {"path": name, "text": text, "x": x}
        for name, text, x in zip(names, ["a", None, "b"], [1, 2, None], strict=True)
    ]
    source = Manifest(rows, root=tmp_path)
    for target in (targets.Text("text", null="error"), targets.Characters("text", "ab")):
        with pytest.raises(forebay.ConfigError, match=r'null; give null="empty".*Where\("text", is_null=False\)'):
            forebay.Loader(source, **ONE_PASS, targets=target)
    with pytest.raises(forebay.ConfigError, match=r"null; give null=, a number"):
        forebay.Loader(source, **ONE_PASS, targets=targets.Number("x"))
    chosen = sampling.Where("text", is_null=False)
    assert made(source, targets={"text": targets.Text("text")}, sampling=chosen)[0]["text"] == ["a", "b"]


def test_a_list_in_a_text_is_no_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = table(tmp_path, "others", ["['owl', 'jay']", "[]", "['wren']"])
    with forebay.Loader(source, **ONE_PASS, targets=targets.MultiHot("others", classes="data")):
        [message] = told(caplog, "a list in a text")
    assert "has a class \"['owl', 'jay']\"" in message


@pytest.mark.parametrize(
    ("text", "vocabulary", "remedy"),
    [
        ("Abc", "abc", '"a" does, so write the text in small letters'),
        ("abc", "ABC", '"A" does, so write the text in capitals'),
        ("abc?", "abc", "add it to the vocabulary, or replace it in the text"),
    ],
)
def test_letters_of_another_case(text: str, vocabulary: str, remedy: str, tmp_path: Path) -> None:
    source = table(tmp_path, "text", [text])
    with pytest.raises(forebay.ConfigError) as caught:
        made(source, targets=targets.Characters("text", vocabulary))
    assert remedy in str(caught.value)
    assert 'unknown="ignore" leaves such characters out' in str(caught.value)


@pytest.mark.parametrize("kind", [targets.Annotations, targets.Frames])
def test_times_in_milliseconds(kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [name] = write_recordings(tmp_path, 1)
    for times, expected in (([0.0, 10.0], 1), ([0.0, 0.01], 0)):
        rows = [(name, *times, "owl"), (name, times[1], times[1] * 2, "owl")]
        caplog.clear()
        made([tmp_path / name], targets={"events": kind(rows)})
        found = told(caplog, "times are seconds")
        assert len(found) == expected


@pytest.mark.parametrize(("end", "n"), [(20, 1), (0.02, 0), (0.1, 0), (None, 0)])
def test_segments_in_milliseconds(end: float | None, n: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [name] = write_recordings(tmp_path, 1)
    rows = [{"path": name, "start": 0, "end": end}] * 2
    assert len(made(Manifest(rows, root=tmp_path))) == 1
    assert len(told(caplog, "segments are seconds")) == n


def test_lines_of_a_text_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("I do, not need, " + "b" * 5000 + "\n")
    with pytest.raises(forebay.ConfigError, match=r"no column has paths.*path_column, start and end") as caught:
        forebay.Loader(tmp_path / "a.txt", **ONE_PASS)
    assert len(str(caught.value)) < 600


def test_an_archive_in_capitals_has_one_recording_a_row(tmp_path: Path) -> None:
    [name] = write_recordings(tmp_path, 1)
    archive = write_tar(
        tmp_path / "a.TAR", [(f"0.{end}.wav", (tmp_path / name).read_bytes()) for end in ("left", "right")]
    )
    with pytest.raises(forebay.ConfigError, match="is an archive, whose members are rows by their endings"):
        forebay.Loader(archive, **ONE_PASS, audio={"x": "left.wav", "y": "right.wav"})


@pytest.mark.parametrize("language", ["french", "", "e"])
def test_a_language_is_a_code(language: str) -> None:
    with pytest.raises(forebay.ConfigError, match=r"must be a code of Whisper's, such as 'en', 'fr' or 'haw'"):
        recipes.whisper("tokenizer.json", language=language)
