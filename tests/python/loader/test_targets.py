"""`Loader(targets=)`: each target of each column, compared with the table in plain Python."""

import json
import math
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from datasets.arrow_writer import ArrowWriter

import forebay
from fields import FORMS, ONE_PASS, N, assert_described, assert_rows, passed, table, write
from forebay import ConfigError, targets
from forebay.targets import ClassIndex, MultiHot, Number, Soft, Text

BIRDS = ["owl", "wren", "finch", "jay"]
SOME = ("stream", "zstd", "parquet", "plain")


def some(make: Callable[[int], Any]) -> list[Any]:
    """The values of all rows; every fifth is null."""
    return [None if i % 5 == 2 else make(i) for i in range(N)]


def of_class(names: Sequence[str]) -> dict[str, Any]:
    return {"_type": "ClassLabel", "names": list(names)}


def sequences(names: Sequence[str]) -> dict[str, Any]:
    """A list of classes as versions of `datasets` write it."""
    return {
        "array": [of_class(names)],
        "sequence": {"feature": of_class(names), "length": -1, "_type": "Sequence"},
        "list": {"feature": of_class(names), "_type": "List"},
    }


def multi_hot(rows: Sequence[Sequence[int] | None], n: int) -> list[list[float]]:
    """1 for each class of a row."""
    return [[float(number in (row or [])) for number in range(n)] for row in rows]


def columns() -> dict[str, Any]:
    """Columns for targets of all kinds."""
    bird = some(lambda i: BIRDS[i % 3])
    several = some(lambda i: [BIRDS[i % 3], None, BIRDS[(i + 1) % 4], BIRDS[i % 3]][: i % 5])
    numbers = [value and [None if name is None else BIRDS.index(name) for name in value] for value in several]
    text = some(lambda i: ["x" * 100_000, "", "Ünïcødé 🦉", "a\nb"][i % 4])
    made: dict[str, Any] = {
        "label": pa.array(some(lambda i: i % 3), pa.int64()),
        "flag": pa.array(some(lambda i: i % 2 == 0)),
        "coded": pa.array(some(lambda i: i % 3), pa.int64()).dictionary_encode(),
        "bird": pa.array(bird),
        "large_bird": pa.array(bird, pa.large_string()),
        "view_bird": pa.array(bird, pa.string_view()),
        "words": pa.array(bird).dictionary_encode(),
        "several": pa.array(several, pa.list_(pa.string())),
        "large_several": pa.array(several, pa.large_list(pa.large_string())),
        "numbers": pa.array(numbers, pa.list_(pa.int64())),
        "small_numbers": pa.array(numbers, pa.large_list(pa.uint8())),
        "pair": pa.array(some(lambda i: [i % 4, (i * i) % 3]), pa.list_(pa.int16(), 2)),
        "separated": pa.array(some(lambda i: [" owl ,wren", "jay", "", ",finch,, jay ,"][i % 4])),
        "soft": pa.array(some(lambda i: [i / 8, 0.5, -1, 1e-30, math.inf, 2.0]), pa.list_(pa.float32(), 6)),
        "soft_list": pa.array(some(lambda i: [i / 8] * 6), pa.list_(pa.float64())),
        "soft_large": pa.array(some(lambda i: [i / 8] * 6), pa.large_list(pa.float16())),
        "soft_whole": pa.array(some(lambda i: [i, -i]), pa.list_(pa.int8())),
        "text": pa.array(text),
        "large_text": pa.array(text, pa.large_string()),
        "view_text": pa.array(text, pa.string_view()),
        "meta": pa.array(some(lambda i: {"bird": bird[i], "of": {"labels": numbers[i], "x": i / 4}})),
    }
    for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        made[f"label_{dtype}"] = pa.array(some(lambda i: i % 3), dtype)
    for dtype in (pa.float16(), pa.float32(), pa.float64(), pa.int64(), pa.uint64(), pa.bool_()):
        made[f"x_{dtype}"] = pa.array(some(lambda i: i), pa.int64()).cast(dtype)
    return made


FEATURES = {
    "label": of_class(BIRDS),
    "numbers": sequences(BIRDS)["list"],
    "meta": {"bird": {"_type": "Value"}, "of": {"labels": sequences(BIRDS)["sequence"], "x": {"_type": "Value"}}},
}
UNKNOWN_TO_DATASETS = ("coded", "words", "view_bird", "view_text")


def names_of(value: Any) -> list[str]:
    """The names in a text."""
    return [name.strip() for name in (value or "").split(",") if name.strip()]


def cases() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Targets, and what each makes of the value of its column."""

    def index(value: Any) -> int:
        return -1 if value is None else BIRDS.index(value) if isinstance(value, str) else int(value)

    def hot(n: int = 4) -> Callable[[Any], list[float]]:
        def made(value: Any) -> list[float]:
            listed = value if isinstance(value, list) else [value]
            numbers = [index(one) for one in listed if one is not None]
            return [float(number in numbers) for number in range(n)]

        return made

    def alike(value: Any) -> Any:
        return value

    made: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "a_label": (ClassIndex("label"), index),
        "a_label_7": (ClassIndex("label", null=7), lambda value: 7 if value is None else value),
        "a_flag": (ClassIndex("flag"), index),
        "a_coded": (ClassIndex("coded", classes=3), index),
        "a_bird": (ClassIndex("bird", classes=BIRDS), index),
        "a_bird_data": (
            ClassIndex("bird", classes="data"),
            lambda value: -1 if value is None else ["finch", "owl", "wren"].index(value),
        ),
        "a_large_bird": (ClassIndex("large_bird", classes=BIRDS), index),
        "a_view_bird": (ClassIndex("view_bird", classes=BIRDS), index),
        "a_words": (ClassIndex("words", classes=BIRDS), index),
        "a_meta": (ClassIndex("meta.bird", classes=BIRDS), index),
        "a_few": (
            ClassIndex("bird", classes=["wren"], unknown="ignore"),
            lambda value: 0 if value == "wren" else -1,
        ),
        "m_bird": (MultiHot("bird", classes=BIRDS), hot()),
        "m_label": (MultiHot("label"), hot()),
        "m_several": (MultiHot("several", classes=BIRDS), hot()),
        "m_several_data": (
            MultiHot("several", classes="data"),
            lambda value: [float(name in (value or [])) for name in sorted(BIRDS)],
        ),
        "m_several_few": (
            MultiHot("several", classes=["jay", "owl"], unknown="ignore"),
            lambda value: [float(name in (value or [])) for name in ("jay", "owl")],
        ),
        "m_large": (MultiHot("large_several", classes=BIRDS), hot()),
        "m_numbers": (MultiHot("numbers"), hot()),
        "m_small": (MultiHot("small_numbers", classes=5), hot(5)),
        "m_pair": (MultiHot("pair", classes=4), hot()),
        "m_meta": (MultiHot("meta.of.labels"), hot()),
        "m_separated": (
            MultiHot("separated", classes=BIRDS, separator=","),
            lambda value: [float(name in names_of(value)) for name in BIRDS],
        ),
        "m_separated_data": (
            MultiHot("separated", classes="data", separator=","),
            lambda value: [float(name in names_of(value)) for name in sorted(BIRDS)],
        ),
        "s_soft": (Soft("soft", null="zeros"), lambda value: value or [0.0] * 6),
        "s_list": (Soft("soft_list", size=6, null="zeros", dtype="float64"), lambda value: value or [0.0] * 6),
        "s_large": (Soft("soft_large", size=6, null="zeros", dtype="float16"), lambda value: value or [0.0] * 6),
        "s_whole": (Soft("soft_whole", size=2, null="zeros"), lambda value: value or [0.0] * 2),
        "t_text": (Text("text"), lambda value: value or ""),
        "t_large": (Text("large_text"), lambda value: value or ""),
        "t_view": (Text("view_text"), lambda value: value or ""),
        "t_words": (Text("words"), lambda value: value or ""),
        "n_meta": (Number("meta.of.x", null=0.5), lambda value: 0.5 if value is None else value),
    }
    for dtype in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"):
        made[f"a_{dtype}"] = ClassIndex(f"label_{dtype}"), index
    for column in ("halffloat", "float", "double", "int64", "uint64", "bool"):
        dtypes: Sequence[Any] = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8")
        for dtype in dtypes if column != "bool" else (*dtypes, "bool"):
            number = Number(f"x_{column}", null=1, dtype=dtype)
            made[f"n_{column}_{dtype}"] = number, lambda value: 1 if value is None else value
    return made


def values(made: pa.Table, column: str) -> list[Any]:
    """The values of a column, or of a field within it."""
    name, *fields = column.split(".")
    found: list[Any] = made[name].to_pylist()
    for field in fields:
        found = [None if value is None else value[field] for value in found]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_each_target(form: str, tmp_path: Path) -> None:
    made = table(columns(), FEATURES)
    given = cases()
    if form == "folder":
        made = made.drop_columns(list(UNKNOWN_TO_DATASETS)).replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": folder_features(made)}})}
        )
        given = {name: case for name, case in given.items() if case[0].column not in UNKNOWN_TO_DATASETS}
    objects = {name: target for name, (target, _) in given.items()}
    path = write(tmp_path / "a", made, form)
    found = passed(path, targets=objects)
    assert list(found) == ["spectrogram", *objects, "index"]
    for name, (target, expected) in given.items():
        assert_rows(found[name], map(expected, values(made, target.column)), name)
    with forebay.Loader(path, targets=objects, **ONE_PASS) as loader:
        batch = next(loader)
        assert_described(loader, batch)
        for name, target in objects.items():
            if isinstance(target, ClassIndex):
                assert batch[name].dtype == np.int64
            elif isinstance(target, MultiHot):
                assert batch[name].dtype == np.float32
            elif not isinstance(target, Text):
                assert batch[name].dtype.name == target.dtype
        class_names: Any = loader.class_names
        assert class_names["a_label"] == class_names["m_numbers"] == class_names["m_meta"] == BIRDS
        assert class_names["m_several_data"] == class_names["m_separated_data"] == sorted(BIRDS)
        assert not {"a_flag", "a_int8", "m_small", "s_soft"} & class_names.keys()


def folder_features(made: pa.Table) -> dict[str, Any]:
    """The features of all columns, as `datasets` wants them."""
    kept = made.drop_columns(list(UNKNOWN_TO_DATASETS)).replace_schema_metadata(None)
    found: dict[str, Any] = datasets.Features.from_arrow_schema(kept.schema).to_dict()
    labels = {"feature": of_class(BIRDS), "_type": "List"}
    found |= {"label": of_class(BIRDS), "numbers": labels}
    found["meta"]["of"]["labels"] = labels
    return found


@pytest.mark.parametrize("written", ["array", "sequence", "list"])
@pytest.mark.parametrize("form", SOME)
def test_sequences_of_classes(form: str, written: str, tmp_path: Path) -> None:
    """BirdSet's `ebird_code_multilabel`, as each version of `datasets` describes it."""
    birds = [f"bird{i:03}" for i in range(411)]
    labels = [[i * 17 % 411, i, 410][: i % 4] for i in range(N)]
    made = table({"ebird_code_multilabel": labels}, {"ebird_code_multilabel": sequences(birds)[written]})
    target = MultiHot("ebird_code_multilabel")
    path = write(tmp_path / "a", made, form)
    with forebay.Loader(path, targets=target, **ONE_PASS) as loader:
        assert loader.class_names == birds
        batch = next(loader)
        assert batch["label"].shape == (7, 411)
        assert batch["label"].dtype == np.float32
    assert_rows(passed(path, targets=target)["label"], multi_hot(labels, 411))


def test_a_dataset_of_birdset(tmp_path: Path) -> None:
    """The same by `datasets` itself: a `Dataset`, its file, `save_to_disk` and `to_parquet`."""
    birds = [f"bird{i}" for i in range(21)]
    features = datasets.Features({
        "audio": datasets.Audio(),
        "ebird_code": datasets.ClassLabel(names=birds),
        "ebird_code_multilabel": datasets.Sequence(datasets.ClassLabel(names=birds)),
    })  # fmt: skip
    labels = [[i % 21, (i * 5) % 21] for i in range(N)]
    audio = table({"x": [0] * N})["audio"].to_pylist()
    with ArrowWriter(features=features, path=str(tmp_path / "a.arrow"), writer_batch_size=7) as writer:
        for i in range(N):
            code = None if i == 3 else i % 21
            writer.write({"audio": audio[i], "ebird_code": code, "ebird_code_multilabel": labels[i]})
        writer.finalize()
    dataset = datasets.Dataset.from_file(str(tmp_path / "a.arrow"))
    dataset.save_to_disk(tmp_path / "folder")
    dataset.to_parquet(str(tmp_path / "a.parquet"), batch_size=7)
    given = {"label": ClassIndex("ebird_code"), "labels": MultiHot("ebird_code_multilabel")}
    for files in (dataset, tmp_path / "a.arrow", tmp_path / "folder", tmp_path / "a.parquet"):
        found = passed(files, targets=given)
        assert found["label"] == [-1 if i == 3 else i % 21 for i in range(N)]
        assert_rows(found["labels"], multi_hot(labels, 21))
        with forebay.Loader(files, targets=given, **ONE_PASS) as loader:
            assert loader.class_names == {"label": birds, "labels": birds}


@pytest.mark.parametrize("form", SOME)
def test_9734_classes(form: str, tmp_path: Path) -> None:
    """The label of the first user: by default, and as targets."""
    birds = [f"genus species{i}" for i in range(9734)]
    label = some(lambda i: [0, 9733, 4000 + i][i % 3])
    made = table({"label": pa.array(label, pa.int64())}, {"label": of_class(birds)})
    path = write(tmp_path / "a", made, form)
    expected = [-1 if value is None else value for value in label]
    with forebay.Loader(path, **ONE_PASS) as loader:
        assert loader.class_names == birds
        assert [i for batch in loader for i in batch["label"].tolist()] == expected
    given = {"label": ClassIndex("label"), "hot": MultiHot("label")}
    with forebay.Loader(path, targets=given, **ONE_PASS) as loader:
        assert loader.class_names == {"label": birds, "hot": birds}
        index, hot = zip(*((batch["label"], batch["hot"]) for batch in loader), strict=True)
    assert np.concatenate(index).tolist() == expected
    whole = np.concatenate(hot)
    assert whole.shape == (N, 9734)
    assert (whole.sum(1) == (np.array(expected) >= 0)).all()
    assert (whole.argmax(1) == np.maximum(expected, 0)).all()


def test_audioset(tmp_path: Path) -> None:
    """Machine ids separated by commas, numbered by class_labels_indices.csv."""
    mids = ["/m/09x0r", "/m/05zppz", "/m/02zsn", "/t/dd00003", "/m/0ytgt"]
    shown = ["Speech", '"Male speech, man speaking"', '"Female speech, woman speaking"', '"A ""B"""', "Child"]
    lines = [f"{i},{mid},{name}" for i, (mid, name) in enumerate(zip(mids, shown, strict=True))]
    vocabulary = tmp_path / "class_labels_indices.csv"
    vocabulary.write_text("\n".join(["index,mid,display_name", *lines]) + "\n")
    labels = [mids[i % 5 : i % 5 + i % 3] for i in range(N)]
    made = table({"labels": [",".join(row) for row in labels]})
    target = MultiHot("labels", classes=vocabulary, classes_column="mid", separator=",")
    path = write(tmp_path / "a", made)
    with forebay.Loader(path, targets=target, **ONE_PASS) as loader:
        assert loader.class_names == mids
        assert next(loader)["label"].shape == (7, 5)
        copy = pickle.loads(pickle.dumps(loader))
        assert copy.class_names == mids
        copy.close()
    assert_rows(passed(path, targets=target)["label"], [[float(mid in row) for mid in mids] for row in labels])
    by_name = MultiHot("labels", classes=vocabulary, classes_column="display_name", separator=",", unknown="ignore")
    with forebay.Loader(path, targets=by_name, **ONE_PASS) as loader:
        assert loader.class_names == ["Speech", "Male speech, man speaking", "Female speech, woman speaking", 'A "B"',
                                      "Child"]  # fmt: skip


def test_six_soft_labels(tmp_path: Path) -> None:
    soft = np.random.default_rng(0).dirichlet(np.ones(6), N).astype(np.float32)
    made = table({"votes": pa.array(soft.tolist(), pa.list_(pa.float32()))})
    path = write(tmp_path / "a", made)
    with forebay.Loader(path, targets={"votes": Soft("votes", size=6)}, **ONE_PASS) as loader:
        found = np.concatenate([batch["votes"] for batch in loader])
    assert found.dtype == np.float32
    assert (found == soft).all()


def test_secondary_labels_and_smoothing(tmp_path: Path) -> None:
    """A class in both columns has 1; smoothing moves each value to the mean: 0.875 x + 0.125 / 4."""
    primary = [["owl"], [], None, ["owl", "wren"]] * (N // 4)
    secondary = [["wren", "owl"], ["jay"], ["finch"], None] * (N // 4)
    made = table({"primary": primary, "secondary": secondary, "one": ["jay"] * N, "text": ["wren;owl"] * N})
    path = write(tmp_path / "a", made)
    found = passed(path, targets={
        "plain": MultiHot("primary", classes=BIRDS, secondary="secondary", secondary_weight=0.25),
        "smooth": MultiHot("primary", classes=BIRDS, secondary="secondary", secondary_weight=0.25, smoothing=0.125),
        "default": MultiHot("primary", classes=BIRDS, secondary="secondary"),
        "all": MultiHot("primary", classes=BIRDS, secondary="secondary", secondary_weight=0.0, smoothing=1.0),
        "of_text": MultiHot("one", classes=BIRDS, secondary="text", separator=";"),
        "data": MultiHot("primary", classes="data", secondary="secondary"),
    })  # fmt: skip
    plain: list[list[float]] = [[1, 0.25, 0, 0], [0, 0, 0, 0.25], [0, 0, 0.25, 0], [1, 1, 0, 0]] * (N // 4)
    assert_rows(found["plain"], plain)
    assert_rows(found["smooth"], [[0.875 * value + 0.03125 for value in row] for row in plain])
    assert_rows(found["default"], [[0.5 if value == 0.25 else value for value in row] for row in plain])
    assert_rows(found["all"], [[0.25] * 4] * N)
    assert_rows(found["of_text"], [[0.5, 0.5, 0, 1]] * N)
    order = [BIRDS.index(name) for name in sorted(BIRDS)]
    assert_rows(found["data"], [[0.5 if row[at] == 0.25 else row[at] for at in order] for row in plain])


def test_secondary_classes_of_another_schema(tmp_path: Path) -> None:
    """Numbers of a secondary column are classes by the names of its own schema."""
    made = table(
        {"first": [[0]] * N, "second": [[0, 1]] * N},
        {"first": sequences(["owl", "wren", "jay"])["list"], "second": sequences(["jay", "owl"])["list"]},
    )
    path = write(tmp_path / "a", made)
    found = passed(path, targets=MultiHot("first", secondary="second"))
    assert_rows(found["label"], [[1, 0, 0.5]] * N)
    found = passed(path, targets=MultiHot("first", secondary="second", classes=["jay", "wren", "owl"]))
    assert_rows(found["label"], [[0.5, 0, 1]] * N)


def test_many_labels_in_a_row(tmp_path: Path) -> None:
    """A row may have all classes, each many times."""
    n = 60_000
    labels = [[*range(n), *range(0, 5000, 7)] if i == 3 else [i] for i in range(N)]
    path = write(tmp_path / "a", table({"labels": pa.array(labels, pa.list_(pa.int32()))}))
    with forebay.Loader(path, targets=MultiHot("labels", classes=n), **ONE_PASS) as loader:
        batch = next(loader)
    assert batch["label"].sum(1).tolist() == [1, 1, 1, n, 1, 1, 1]


@pytest.mark.parametrize("form", SOME)
def test_long_texts_are_bad_records(form: str, tmp_path: Path) -> None:
    made = table({"text": ["x" * (10 * i) for i in range(N)]})
    path = write(tmp_path / "a", made, form)
    parameters = {**ONE_PASS, "targets": {"text": Text("text", max_bytes=200)}}
    with forebay.Loader(path, **parameters) as loader:
        assert [len(text) for batch in loader for text in batch["text"]] == [10 * i for i in range(21)]
        errors = loader.errors()
        assert [(error["row"], error["kind"]) for error in errors] == [(21, "too_large"), (22, "too_large"),
                                                                       (23, "too_large")]  # fmt: skip
        assert 'column "text" has a text of 210 bytes, max_bytes allows 200' in errors[0]["reason"]
    with forebay.Loader(path, on_error="raise", **parameters) as loader, pytest.raises(forebay.DecodeError):
        list(loader)


@pytest.mark.parametrize("form", SOME)
def test_text_that_is_not_utf8_is_a_bad_record(form: str, tmp_path: Path) -> None:
    words = [b"\xff\xfe" if i == 4 else b"fine" for i in range(N)]
    broken = pa.Array.from_buffers(pa.string(), N, pa.array(words, pa.binary()).buffers())
    path = write(tmp_path / "a", table({"text": broken}), form)
    with forebay.Loader(path, targets={"text": Text("text")}, **ONE_PASS) as loader:
        index = [i for batch in loader for i in batch["index"].tolist()]
        assert index == [i for i in range(N) if i != 4]
        assert [(error["row"], error["kind"]) for error in loader.errors()] == [(4, "corrupt")]


@pytest.mark.parametrize("form", SOME)
def test_values_that_are_refused(form: str, tmp_path: Path) -> None:
    """The error names target, column, row and what to do."""
    made = table({
        "null": some(lambda i: i), "bird": [None if i == 4 else "owl" for i in range(N)], "big": [300] * N,
        "half": [0.5] * N, "huge": [1e300] * N, "nan": [math.nan] * N, "several": [["owl", "emu"]] * N,
        "longer": pa.array([[0.0] * (3 + (i == 8)) for i in range(N)]), "negative": [-2] * N,
        "holes": pa.array([[0.5, None] for i in range(N)]), "nulls": [None if i == 2 else [1.0] for i in range(N)],
        "numbers": [[0, 3]] * N, "sixty": [65536.0] * N,
    })  # fmt: skip
    path = write(tmp_path / "a", made, form)
    wrong: list[tuple[Any, str, int]] = [
        (Number("null"), 'column "null" is null; give null=, a number', 2),
        (ClassIndex("null", null="error"), 'column "null" is null; give null=-1', 2),
        (ClassIndex("bird", classes=["wren"]), 'has "owl", which is no class: the only class is "wren"; add it to', 0),
        (ClassIndex("big", classes=300), "has 300, which is no class: the classes are 0 to 299", 0),
        (ClassIndex("negative", classes=3), "has -2, which is no class", 0),
        (MultiHot("several", classes=BIRDS), 'has "emu", which is no class: the 4 classes are "owl", "wren"', 0),
        (MultiHot("numbers", classes=3), "has 3, which is no class: the classes are 0 to 2", 0),
        (MultiHot("bird", classes=BIRDS, null="error"), 'is null; give null="zeros"', 4),
        (Number("big", dtype="int8"), "has 300, which is no int8; give another dtype=", 0),
        (Number("big", dtype="bool"), "has 300, which is no bool", 0),
        (Number("half", dtype="int64"), "has 0.5, which is no int64", 0),
        (Number("huge", dtype="int64"), "has 1e300, which is no int64", 0),
        (Number("nan", dtype="int64"), "has NaN, which is no int64", 0),
        (Number("huge", dtype="float32"), "has 1e300, which is no float32", 0),
        (Number("sixty", dtype="float16"), "has 65536.0, which is no float16", 0),
        (Soft("longer", size=3), "has a list of 4; all lists must have 3 numbers", 8),
        (Soft("holes", size=2), "has a list with a null; all items must be numbers", 0),
        (Soft("nulls", size=1), 'is null; give null="zeros"', 2),
        (Text("bird", null="error"), 'is null; give null="empty"', 4),
    ]
    for target, message, row in wrong:
        with pytest.raises(ConfigError) as raised:
            passed(path, targets={"y": target})
        assert message in str(raised.value), target
        assert f'target "y": column "{target.column}"' in str(raised.value)
        assert f"row {row}" in str(raised.value), target


def test_columns_that_are_refused(tmp_path: Path) -> None:
    made = table({
        "bird": ["owl"] * N, "birds": [["owl"]] * N, "number": [1] * N, "real": [0.5] * N, "reals": [[0.5]] * N,
        "fixed": pa.array([[0.5] * 6] * N, pa.list_(pa.float32(), 6)), "named": [0] * N,
    }, {"named": of_class(BIRDS)})  # fmt: skip
    path = write(tmp_path / "a", made)
    wrong: list[tuple[Any, str]] = [
        (ClassIndex("none"), 'no column "none"; the columns are audio'),
        (
            ClassIndex("birds", classes=BIRDS),
            "is lists of text, expected whole numbers or text; forebay.targets.MultiHot",
        ),
        (ClassIndex("real"), "is float64, expected whole numbers or text"),
        (ClassIndex("bird"), 'are not in the schema of column "bird"; give classes="data" for'),
        (ClassIndex("number", classes="schema"), 'are not in the schema of column "number"'),
        (ClassIndex("bird", classes=3), 'is a number, but column "bird" has names'),
        (ClassIndex("named", classes="data"), 'has class names in its schema; give "schema"'),
        (MultiHot("reals", classes=3), "is lists of float64, expected whole numbers, text, or lists of these"),
        (MultiHot("number"), 'the classes of column "number" are not in the schema; give classes'),
        (MultiHot("birds", classes=BIRDS, separator=","), "is lists of text, expected text, since a separator"),
        (MultiHot("birds", classes=BIRDS, secondary="none"), 'no column "none"'),
        (MultiHot("birds", classes=BIRDS, secondary="reals"), 'column "reals" is lists of float64, expected whole'),
        (Soft("reals"), "is lists of float64, expected lists of one length in the schema, or size="),
        (Soft("fixed", size=5), "is lists of 6 float32, expected lists of 5, since size is 5"),
        (Soft("real"), "is float64, expected lists of numbers"),
        (Soft("birds", size=1), "is lists of text, expected lists of numbers"),
        (Number("bird"), "is text, expected numbers"),
        (Number("reals"), "is lists of float64, expected numbers; forebay.targets.Soft takes lists"),
        (Text("number"), "is int64, expected text"),
        (Text("birds"), "is lists of text, expected text"),
    ]
    for target, message in wrong:
        with pytest.raises(ConfigError) as raised:
            forebay.Loader(path, targets={"y": target}, **ONE_PASS)
        assert message in str(raised.value), target
    for name in ("index", "spectrogram", "waveform"):
        with pytest.raises(ConfigError, match=f'two fields of a batch are named "{name}"'):
            forebay.Loader(path, targets={name: Number("number")}, **ONE_PASS)
    with pytest.raises(ConfigError, match='two fields of a batch are named "row"'):
        forebay.Loader(path, targets={"row": Number("number")}, outputs=["row"], **ONE_PASS)
    with pytest.raises(ConfigError, match='two fields of a batch are named "number"'):
        forebay.Loader(path, targets={"number": Number("number")}, columns=["number"], **ONE_PASS)
    with pytest.raises(ConfigError, match="targets has the name ''"):
        forebay.Loader(path, targets={"": Number("number")}, **ONE_PASS)
    with pytest.raises(ConfigError, match=r"label_column.*targets|targets.*label_column"):
        forebay.Loader(path, targets=Number("number"), label_column="number", **ONE_PASS)
    wrong_types: list[Any] = [3, "label", [Number("number")], {"y": "number"}, {"y": forebay.features.Waveform()}]
    for odd in (*wrong_types, {3: Number("n")}):
        with pytest.raises(TypeError, match=r"targets.*forebay\.targets|a name in targets"):
            forebay.Loader(path, targets=odd, **ONE_PASS)
    with forebay.Loader(path, targets={}, **ONE_PASS) as loader:
        assert list(next(loader)) == ["spectrogram", "index"]


@pytest.mark.parametrize(
    ("make", "messages"),
    [
        (lambda: MultiHot("a", smoothing=2, secondary_weight=-1), ["smoothing is 2.0", "secondary_weight is -1.0"]),
        (lambda: MultiHot("a", separator=""), ["separator is ''"]),
        (lambda: MultiHot("a", null="none"), ['null is "none", must be one of "zeros", "error"']),  # type: ignore[arg-type]
        (lambda: ClassIndex(""), ["column is ''"]),
        (lambda: ClassIndex("a", classes=0), ["classes is 0, must be 1 to 1048576"]),
        (lambda: ClassIndex("a", classes=1 << 21), ["classes is 2097152, must be 1 to 1048576"]),
        (
            lambda: ClassIndex("a", classes="no.txt"),
            ["classes is 'no.txt', must be a file, a list", "no file of this name"],
        ),
        (lambda: ClassIndex("a", classes_column="x"), ["classes_column is 'x', which needs classes"]),
        (lambda: ClassIndex("a", null=0.5), ["must be a whole number"]),  # type: ignore[arg-type]
        (lambda: ClassIndex("a", unknown="x"), ['unknown is "x", must be one of "error", "ignore"']),  # type: ignore[arg-type]
        (lambda: Soft("a", size=0), ["size is 0, must be 1 to 65536"]),
        (lambda: Soft("a", dtype="int8"), ['dtype is "int8", must be one of "float32"']),  # type: ignore[arg-type]
        (lambda: Number("a", null="zero"), ['null is "zero", must be a number or "error"']),  # type: ignore[arg-type]
        (lambda: Number("a", null=300, dtype="int8"), ["null is 300.0, which is no int8"]),
        (lambda: Number("a", null=0.5, dtype="int64"), ["null is 0.5, which is no int64"]),
        (lambda: Number("a", null=math.nan, dtype="int64"), ["null is NaN, which is no int64"]),
        (lambda: Text("a", max_bytes=0), ["max_bytes is 0, must be 1 to 1048576"]),
    ],
)
def test_parameters_that_are_refused(make: Callable[[], Any], messages: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        make()
    for message in messages:
        assert message in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClassIndex(3),  # type: ignore[arg-type]
        lambda: ClassIndex("a", classes=[1]),  # type: ignore[list-item]
        lambda: ClassIndex("a", classes=0.5),  # type: ignore[arg-type]
        lambda: MultiHot("a", smoothing="x"),  # type: ignore[arg-type]
        lambda: Number("a", null=None),  # type: ignore[arg-type]
        lambda: Text("a", max_bytes="1"),  # type: ignore[arg-type]
    ],
)
def test_types_that_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.txt", "owl\nwren\n\nfinch\njay\n", None),
        ("a.txt", "\ufeffowl\r\nwren\r\nfinch\r\njay", None),
        ("a.names", "owl\nwren\nfinch\njay\n", None),
        ("a.csv", "name\nowl\nwren\nfinch\njay\n", None),
        ("a.csv", 'n,name\n1,owl\n2,"wren"\n3,finch\n\n4,jay\n', "name"),
        ("a.tsv", "name\tn\nowl\t1\nwren\t2\nfinch\t3\njay\t4\n", "name"),
        ("a.json", '["owl", "wren", "finch", "jay"]', None),
    ],
)
def test_files_of_classes(name: str, text: str, column: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    made = table({"bird": [BIRDS[i % 4] for i in range(N)]})
    path = write(tmp_path / "shard", made)
    for file in (tmp_path / name, str(tmp_path / name)):
        target = ClassIndex("bird", classes=file, classes_column=column)
        assert pickle.loads(pickle.dumps(target)) == target
        with forebay.Loader(path, targets=target, **ONE_PASS) as loader:
            assert loader.class_names == BIRDS
            assert next(loader)["label"].tolist() == [i % 4 for i in range(7)]


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        ("a.txt", "", None, "has no names"),
        ("a.txt", "owl\nowl\n", None, '"owl" twice'),
        ("a.csv", "a,b\n1,2\n", None, "with the columns a, b; name one with classes_column="),
        ("a.csv", "a,b\n1,2\n", "c", "classes_column is 'c'; .* has the columns a, b"),
        ("a.csv", "a,b\n1,2\n3\n", "b", "line 3 has 1 fields, not 2"),
        ("a.csv", "a\nx\nx\n", None, '"x" twice'),
        ("a.json", "{}", None, "expected a JSON list of names"),
        ("a.json", "[1]", None, "expected a JSON list of names"),
        ("a.json", "[", None, "which is not JSON"),
        ("a.json", '["a"]', "x", "classes_column is 'x', which needs classes, a .csv or .tsv file"),
        ("a.txt", b"\xff\xfe", None, "which is not UTF-8"),
    ],
)
def test_files_that_are_refused(name: str, text: str | bytes, column: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    path = write(tmp_path / "shard", table({"bird": ["owl"] * N}))
    with pytest.raises(ConfigError, match=message):
        passed(path, targets=ClassIndex("bird", classes=tmp_path / name, classes_column=column))


@pytest.mark.parametrize(
    "target",
    [
        *(ClassIndex("label"), ClassIndex("bird", classes=tuple(BIRDS), null=3, unknown="ignore")),
        MultiHot("several", classes=BIRDS, smoothing=0.5, secondary="bird", secondary_weight=0.25, null="error"),
        *(
            Soft("soft", null="zeros", dtype="float16"),
            Number("x_float", null=math.nan),
            Number("x_float", null=-math.inf),
        ),
        *(Number("x_float", null=1, dtype="int8"), Text("text", max_bytes=1 << 20, null="error")),
    ],
    ids=repr,
)
def test_objects(target: Any) -> None:
    """Targets print, compare, pickle, and are JSON."""
    shown = json.loads(json.dumps(target.to_dict(), allow_nan=False))
    assert repr(targets._Part.from_dict(shown)) == repr(target)  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(target))
    assert repr(copy) == repr(target)
    assert copy == target
    assert hash(copy) == hash(target)
    assert eval(repr(target), {**vars(targets), "nan": math.nan, "inf": math.inf}) == target


def test_not_a_number_for_null(tmp_path: Path) -> None:
    path = write(tmp_path / "a", table({"x": some(lambda i: i / 4)}))
    for null in (math.nan, math.inf, -math.inf):
        target = {"x": Number("x", null=null)}
        with forebay.Loader(path, targets=target, **ONE_PASS) as loader, pickle.loads(pickle.dumps(loader)) as copy:
            state = loader.state_dict()
            for one in (loader, copy):
                assert np.array_equal(next(one)["x"][:3], np.array([0, 0.25, null], np.float32), equal_nan=True)
            copy.load_state_dict(json.loads(json.dumps(state)))


BAD_STATES: list[tuple[Any, Any]] = [
    (ClassIndex("bird", classes=BIRDS), ClassIndex("bird", classes=BIRDS[::-1])),
    (ClassIndex("bird", classes=BIRDS), ClassIndex("bird", classes="data")),
    (ClassIndex("label", null=5), ClassIndex("label")),
    (MultiHot("several", classes=BIRDS), MultiHot("several", classes=BIRDS, smoothing=0.1)),
    (Number("x_float", null=0), Number("x_float", null=1)),
    (Number("x_float", null=0), Number("x_double", null=0)),
    (Text("text"), Text("bird")),
    (Text("text"), ClassIndex("label")),
]


@pytest.mark.parametrize(("one", "other"), BAD_STATES, ids=repr)
def test_states_know_targets(one: Any, other: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a", table(columns(), FEATURES))
    with (
        forebay.Loader(path, targets={"y": one}, **ONE_PASS) as loader,
        forebay.Loader(path, targets={"y": other}, **ONE_PASS) as changed,
    ):
        next(loader)
        state = loader.state_dict()
        with pytest.raises(forebay.StateError, match="targets"):
            changed.load_state_dict(state)
    with (
        forebay.Loader(path, targets={"z": one}, **ONE_PASS) as renamed,
        pytest.raises(forebay.StateError, match="targets"),
    ):
        renamed.load_state_dict(state)
    # Columns and threads are no part of it.
    with forebay.Loader(path, targets={"y": one}, columns=["x_int64"], **{**ONE_PASS, "n_workers": 1}) as same:
        same.load_state_dict(state)


def test_the_data_is_scanned_once(tmp_path: Path) -> None:
    """Classes of the data are those of all shards, also of rows that are excluded or whose recording is bad."""
    one = table({"bird": ["wren"] * N, "n": [30] * N})
    other = table(
        {"bird": [["owl", None, "aux"][i % 3] for i in range(N)], "n": [[-5, 10, None][i % 3] for i in range(N)]}
    )
    shards = [write(tmp_path / "a", one), write(tmp_path / "b", other)]
    given = {"bird": ClassIndex("bird", classes="data"), "n": ClassIndex("n", classes="data")}
    with forebay.Loader(shards, targets=given, exclude=[N, N + 2], **ONE_PASS) as loader:
        assert loader.class_names == {"bird": ["aux", "owl", "wren"], "n": ["-5", "10", "30"]}
    found = passed(shards, targets=given)
    assert found["bird"] == [2] * N + [[1, -1, 0][i % 3] for i in range(N)]
    assert found["n"] == [2] * N + [[0, 1, -1][i % 3] for i in range(N)]


def test_too_many_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "a", table({"nothing": pa.nulls(N, pa.string())}))
    with pytest.raises(ConfigError, match='column "nothing" has 0 values; expected 1 to'):
        passed(path, targets=ClassIndex("nothing", classes="data"))


def sources(folder: Path, form: str = "stream") -> dict[str, Path]:
    """Three sources, whose classes are named in another order each."""
    made = {}
    for name, birds in {"a": ["owl", "wren"], "b": ["finch", "owl"], "c": ["wren", "jay", "finch"]}.items():
        label = [i % len(birds) for i in range(N)]
        several = [[i % len(birds), 1] for i in range(N)]
        made[name] = write(
            folder / name,
            table(
                {"label": label, "several": several, "of": [[birds[one]] for one in label]},
                {"label": of_class(birds), "several": sequences(birds)["list"]},
            ),
            form,
        )
    return made


@pytest.mark.parametrize("form", SOME)
def test_sources_unite_classes_by_name(form: str, tmp_path: Path) -> None:
    """A class has the number that it has in the first source that names it, for the default label, too."""
    files = sources(tmp_path, form)
    birds = ["owl", "wren", "finch", "jay"]
    assert birds == BIRDS
    own = {"a": ["owl", "wren"], "b": ["finch", "owl"], "c": ["wren", "jay", "finch"]}
    with forebay.Loader(files, **ONE_PASS) as loader:
        assert loader.class_names == birds
        assert loader.source_names == ["a", "b", "c"]
    plain = passed(files, stop="all_exhausted")
    given = {"label": ClassIndex("label"), "labels": MultiHot("several"), "of": MultiHot("of", classes=birds)}
    found = passed(files, targets=given, stop="all_exhausted")
    assert found["label"] == plain["label"]
    assert found["source"] == [index // N for index in found["index"]]
    for at, index in enumerate(found["index"]):
        names = own["abc"[index // N]]
        row = index % N
        name = names[row % len(names)]
        assert found["label"][at] == birds.index(name)
        assert found["labels"][at] == [float(bird in (name, names[1])) for bird in birds]
        assert found["of"][at] == [float(bird == name) for bird in birds]
    assert len(set(found["index"])) == 3 * N


def test_numbers_do_not_depend_on_weights(tmp_path: Path) -> None:
    files = sources(tmp_path)
    for weights in ({"a": 0.1, "b": 0.8, "c": 0.1}, {"a": 0.0, "b": 0.0, "c": 1.0}):
        with forebay.Loader(files, weights=weights, **{**ONE_PASS, "infinite": True}) as loader:
            assert loader.class_names == BIRDS


def test_a_list_of_classes_maps_all(tmp_path: Path) -> None:
    """A given list is the order; names of a source that are not in it are unknown."""
    files = sources(tmp_path)
    order = ["jay", "finch", "wren", "owl"]
    found = passed(files, targets=ClassIndex("label", classes=order), stop="all_exhausted")
    plain = passed(files, stop="all_exhausted")
    assert [order[number] for number in found["label"]] == [BIRDS[number] for number in plain["label"]]
    fewer = passed(files, targets=ClassIndex("label", classes=["finch"], unknown="ignore"), stop="all_exhausted")
    assert fewer["label"] == [0 if number == 2 else -1 for number in plain["label"]]
    with pytest.raises(ConfigError, match='which is no class: the only class is "finch"'):
        passed(files, targets=ClassIndex("label", classes=["finch"]))


def test_a_source_without_the_column(tmp_path: Path) -> None:
    """The error names the column and the file."""
    files = sources(tmp_path)
    files["d"] = write(tmp_path / "d", table({"label": [0] * N}))
    for given in ({"targets": MultiHot("several")}, {"columns": ["several"]}):
        with pytest.raises(ConfigError, match='no column "several"; the columns are audio') as raised:
            forebay.Loader(files, **given, **ONE_PASS)
        assert str(files["d"]) in str(raised.value)


def test_class_names_in_some_sources_only(tmp_path: Path) -> None:
    files = sources(tmp_path)
    files["d"] = write(tmp_path / "d", table({"label": [1] * N}))
    with pytest.raises(ConfigError, match=r"has class names in the schema of .* and none in that of"):
        forebay.Loader(files, targets=ClassIndex("label"), **ONE_PASS)


def test_secondary_names_need_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a", table({"x": [1] * N, "further": ["owl"] * N}))
    with pytest.raises(ConfigError, match='classes is a number, but column "further" has names'):
        forebay.Loader(path, targets=MultiHot("x", classes=3, secondary="further"), **ONE_PASS)


def test_a_source_of_another_type(tmp_path: Path) -> None:
    files = {"a": write(tmp_path / "a", table({"x": [1] * N})), "b": write(tmp_path / "b", table({"x": ["1"] * N}))}
    for given in ({"targets": ClassIndex("x", classes=3)}, {"columns": ["x"]}):
        with pytest.raises(ConfigError, match='column "x" is int64 in') as raised:
            forebay.Loader(files, **given, **ONE_PASS)
        assert str(files["a"]) in str(raised.value)
        assert f"text in {files['b']}" in str(raised.value)


def test_shards_of_one_source_must_have_the_same_classes(tmp_path: Path) -> None:
    files = sources(tmp_path)
    parameters: list[dict[str, Any]] = [{}, {"targets": MultiHot("several")}]
    for given in parameters:
        with pytest.raises(ConfigError, match=r"class names of .* differ: class 0 is \"owl\" in the first"):
            forebay.Loader([files["a"], files["b"]], **given, **ONE_PASS)


def test_states_know_the_classes(tmp_path: Path) -> None:
    """Sources in another order number the classes in another way."""
    files = sources(tmp_path)
    with forebay.Loader(files, targets=ClassIndex("label"), **ONE_PASS) as loader:
        state = loader.state_dict()
    turned = dict(reversed(files.items()))
    with forebay.Loader(turned, targets=ClassIndex("label"), **ONE_PASS) as loader:
        assert loader.class_names == ["wren", "jay", "finch", "owl"]
        with pytest.raises(forebay.StateError):
            loader.load_state_dict(state)


def test_meanings(tmp_path: Path) -> None:
    path = write(tmp_path / "a", table(columns(), FEATURES))
    with forebay.Loader(path, targets={"y": ClassIndex("label"), "t": Text("text")}, **ONE_PASS) as loader:
        by_name = {field["name"]: field for field in loader.fields}
        assert by_name["y"]["meaning"] == 'ClassIndex of column "label"'
        assert by_name["t"] == {"name": "t", "dtype": "str", "shape": None, "meaning": 'Text of column "text"'}
        assert loader.class_names == BIRDS
        assert re.search(r"24 records", repr(loader))


def test_class_files_end_lines_at_line_ends_only(tmp_path: Path) -> None:
    """Other characters that `str.splitlines` splits at may be in a name; suffixes are compared without case."""
    names = ["a\x0cb", "c\u2028d", "e"]
    (tmp_path / "names.TXT").write_bytes("\r\n".join(names).encode())
    (tmp_path / "names.CSV").write_text("name\n" + "\n".join(names) + "\n", newline="")
    (tmp_path / "names.JSON").write_text(json.dumps(names))
    for file in sorted(tmp_path.iterdir()):
        made: Any = targets.ClassIndex("x", classes=file)
        assert made._class_names == names, file
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(forebay.ConfigError, match="is empty"):
        targets.ClassIndex("x", classes=tmp_path / "empty.csv")


def test_classes_of_an_array() -> None:
    arrays: list[Any] = [np.array(["a", "b"]), pa.array(["a", "b"]).to_numpy(zero_copy_only=False), ["a", np.str_("b")]]
    for given in arrays:
        target = targets.MultiHot("x", classes=given)
        assert repr(target) == "MultiHot(column='x', classes=('a', 'b'))"
    assert targets.MultiHot("x", classes=np.int64(3)).classes == 3  # type: ignore[arg-type]
    for wrong in ({"a": 0}, {"a"}, 3.0, True):
        with pytest.raises(TypeError, match=r"^classes is .* must be a list of names, a file, a number"):
            targets.MultiHot("x", classes=wrong)  # type: ignore[arg-type]
    with pytest.raises(forebay.ConfigError, match="smoothing is nan, must be finite"):
        targets.MultiHot("x", smoothing=math.nan)
