"""`Loader(columns=)`: columns of any type as fields of a batch, compared with the table in plain Python."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from fields import ARROW, FORMS, ONE_PASS, N, assert_described, assert_rows, passed, rows, table, write
from forebay._jagged import JaggedArray

WORDS = ["owl", "wren", "", "Ünïcødé", "日本語", "🦉 two words", "a\x00b", "x" * 100_000]


def some(make: Callable[[int], Any], every: int = 5, first: int = 2) -> list[Any]:
    """The values of all rows; every fifth is null."""
    return [None if i % every == first else make(i) for i in range(N)]


def full(make: Callable[[int], Any]) -> list[Any]:
    return [make(i) for i in range(N)]


def word(i: int) -> str:
    return WORDS[i % len(WORDS)]


def bits(dtype: pa.DataType) -> tuple[int, int]:
    """The range of a type of whole numbers; int64 for uint64."""
    info = np.iinfo(dtype.to_pandas_dtype())
    return int(info.min), min(int(info.max), 2**63 - 1)


def wholes(dtype: pa.DataType) -> list[int]:
    low, high = bits(dtype)
    return [low, high, 0, 1, high // 2, *range(3, N - 2)]


WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
FLOATS = (pa.float16(), pa.float32(), pa.float64())


def number(i: int) -> float:
    """A number that float16 has, infinities among them."""
    return {3: math.inf, 4: -math.inf, 8: math.nan}.get(i, (i - 9) / 8)


def nested() -> pa.Array:
    """Structs within structs, with a null at each level."""
    inner = pa.struct(
        [("n", pa.int32()), ("name", pa.string()), ("of", pa.list_(pa.float32())), ("at", pa.list_(pa.float64(), 2))]
    )
    outer = pa.struct([("inner", inner), ("flag", pa.bool_())])

    def make(i: int) -> Any:
        if i % 7 == 1:
            return None
        if i % 7 == 2:
            return {"inner": None, "flag": True}
        if i % 7 == 3:
            return {"inner": {"n": None, "name": None, "of": None, "at": None}, "flag": False}
        return {"inner": {"n": i, "name": word(i), "of": [i / 2] * (i % 3), "at": [i, None]}, "flag": i % 2 == 0}

    return pa.array(full(make), outer)


def columns() -> dict[str, Any]:
    """A column of each type that is supported."""
    made: dict[str, Any] = {}
    for dtype in WHOLE:
        made[f"{dtype}"] = pa.array(wholes(dtype), dtype)
        if str(dtype).startswith("int"):
            made[f"{dtype}_null"] = pa.array(some(lambda i: i - 7), dtype)
    for dtype in FLOATS:
        made[f"{dtype}"] = pa.array(np.array(full(number), dtype.to_pandas_dtype()), dtype)
        made[f"{dtype}_null"] = pa.array([None if i % 5 == 2 else np.float16(i / 4) for i in range(N)], dtype)
    made["flag"] = pa.array(full(lambda i: i % 3 == 0))
    made["nothing"] = pa.nulls(N)
    for name, text in (("text", pa.string()), ("large_text", pa.large_string()), ("view", pa.string_view())):
        made[name] = pa.array(some(word), text)
    made["words"] = pa.array(some(lambda i: ["owl", "wren"][i % 2])).dictionary_encode()
    made["coded"] = pa.array(some(lambda i: 10 * (i % 3)), pa.int64()).dictionary_encode()
    made["ints"] = pa.array(some(lambda i: [i, None, -i][: i % 4]), pa.list_(pa.int64()))
    made["bytes"] = pa.array(some(lambda i: list(range(i))), pa.list_(pa.uint8()))
    made["large_ints"] = pa.array(some(lambda i: [i] * (i % 3)), pa.large_list(pa.int16()))
    made["reals"] = pa.array(some(lambda i: [i / 3, None, math.inf][: i % 4]), pa.list_(pa.float64()))
    made["flags"] = pa.array(full(lambda i: [True, False][: i % 3]), pa.list_(pa.bool_()))
    made["names"] = pa.array(some(lambda i: [word(i), None, "b"][: i % 4]), pa.list_(pa.string()))
    made["large_names"] = pa.array(some(lambda i: [word(i)] * (i % 3)), pa.large_list(pa.large_string()))
    made["fixed"] = pa.array(some(lambda i: [i, -1.5, i / 2]), pa.list_(pa.float32(), 3))
    made["fixed_ints"] = pa.array(full(lambda i: [i, None]), pa.list_(pa.int32(), 2))
    made["fixed_names"] = pa.array(full(lambda i: ["a", word(i)]), pa.list_(pa.string(), 2))
    made["meta"] = nested()
    return made


FROM_META = {"meta.inner.n": -1, "meta.inner.name": "", "meta.inner.of": [], "meta.inner.at": [math.nan] * 2}
"""Fields within `meta`, and what they are for a null."""
UNKNOWN_TO_DATASETS = ("words", "coded", "view")


def expected(made: pa.Table, name: str) -> list[Any]:
    """The rows of a column: null as the documentation says, a list of a fixed length with items for null."""
    if name in FROM_META:
        inners = [(struct or {}).get("inner") or {} for struct in made["meta"].to_pylist()]
        found = [inner.get(name.removeprefix("meta.inner.")) for inner in inners]
        found = [FROM_META[name] if value is None else value for value in found]
        return [[math.nan if one is None else one for one in row] if isinstance(row, list) else row for row in found]
    dtype, values = made[name].type, made[name].to_pylist()
    item: Any = dtype
    nothing: Any = ""
    if pa.types.is_dictionary(dtype):
        item = dtype.value_type
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        item = dtype.value_type
    if pa.types.is_floating(item) or pa.types.is_null(item):
        nothing = math.nan
    elif pa.types.is_integer(item):
        nothing = -1
    if item is not dtype and not pa.types.is_dictionary(dtype):
        length = dtype.list_size if pa.types.is_fixed_size_list(dtype) else 0
        lists = [[None] * length if value is None else value for value in values]
        return [[nothing if one is None else one for one in value] for value in lists]
    return [nothing if value is None else value for value in values]


@pytest.mark.parametrize("form", FORMS)
def test_of_each_type(form: str, tmp_path: Path) -> None:
    """Each column in each file has the table's rows, and one type and shape."""
    made = table(columns())
    if form == "folder":
        made = made.drop_columns(list(UNKNOWN_TO_DATASETS))
    names = [name for name in made.column_names if name not in ("audio", "meta")]
    names += FROM_META
    path = write(tmp_path / "a", made, form)
    found = passed([path] if form != "folder" else path, columns=names)
    for name in names:
        assert_rows(found[name], expected(made, name), name)
    with forebay.Loader(path, columns=names, **ONE_PASS) as loader:
        batch: dict[str, Any] = {**next(loader)}
        assert list(batch) == ["spectrogram", *names, "index"]
        assert_described(loader, batch)
        assert loader.class_names is None
    for dtype in (*WHOLE, *FLOATS):
        kind = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(dtype), str(dtype))
        assert batch[str(dtype)].dtype.name == kind
    assert batch["flag"].dtype == np.bool_
    assert batch["fixed"].shape == (7, 3)
    assert batch["fixed_ints"].dtype == np.int32
    for name, dtype in {"ints": "int64", "bytes": "uint8", "reals": "float64", "flags": "bool"}.items():
        assert isinstance(batch[name], JaggedArray)
        assert (batch[name].dtype.name, batch[name].offsets.dtype.name) == (dtype, "int64")
    assert isinstance(batch["names"], list)
    assert isinstance(batch["names"][0], list)
    assert isinstance(batch["fixed_names"][0], list)


@pytest.mark.parametrize("form", ["stream", "zstd", "parquet", "plain"])
@pytest.mark.parametrize("order", ["window", "global", "era"])
def test_in_any_order(order: str, form: str, tmp_path: Path) -> None:
    """A row has the values of its own index, in each epoch."""
    made = table(columns())
    names = ["text", "ints", "names", "fixed", "words", "int64"]
    path = write(tmp_path / "a", made, form)
    truth = {name: expected(made, name) for name in names}
    parameters = {**ONE_PASS, "infinite": True, "order": order, "shuffle_min_size": 9, "era_length": 10}
    seen = set()
    with forebay.Loader(path, columns=names, **parameters) as loader:
        for _ in range(8):
            batch = next(loader)
            at = batch["index"].tolist()
            for name in names:
                assert_rows(rows(batch[name]), [truth[name][i] for i in at], name)
            seen |= set(at)
    assert seen == set(range(N))


def test_arrays_may_be_kept(tmp_path: Path) -> None:
    """Arrays are writable and their own; they keep their values while later batches are made."""
    made = table(columns())
    path = write(tmp_path / "a", made)
    with forebay.Loader(path, columns=["ints", "fixed", "int64", "text"], **{**ONE_PASS, "infinite": True}) as loader:
        kept = [next(loader) for _ in range(12)]
    batch: Any
    for batch in kept:
        at = batch["index"].tolist()
        for name in ("ints", "fixed", "int64", "text"):
            assert_rows(rows(batch[name]), [expected(made, name)[i] for i in at], name)
        batch["ints"].data[:] = 7
        batch["fixed"][:] = 7


def test_a_name_with_points_is_a_name_first(tmp_path: Path) -> None:
    made = table({"meta": pa.array([{"site": "within"}] * N), "meta.site": ["own"] * N})
    found = passed(write(tmp_path / "a", made), columns=["meta.site"])
    assert found["meta.site"] == ["own"] * N


def test_beside_labels_and_paths(tmp_path: Path) -> None:
    made = table({"label": [i % 3 for i in range(N)], "site": [f"s{i}" for i in range(N)]})
    path = write(tmp_path / "a", made)
    outputs = ["path", "row"]
    found = passed(path, columns=["site", "audio.path"], outputs=outputs)
    assert list(found) == ["spectrogram", "label", "site", "audio.path", "index", *outputs]
    assert found["audio.path"] == found["path"] == [f"clips/{i}.wav" for i in range(N)]
    assert found["site"] == [f"s{i}" for i in found["row"]]


def refused(path: Any, **parameters: Any) -> str:
    """The message of the error of a pass."""
    with pytest.raises(forebay.ConfigError) as raised:
        passed(path, **parameters)
    return str(raised.value)


@pytest.mark.parametrize("form", ["stream", "parquet"])
def test_what_is_refused(form: str, tmp_path: Path) -> None:
    other = pa.array([[{"a": 1}]] * N), pa.array([[[1]]] * N), pa.array([0] * N, pa.date32())
    made = table(
        {"site": ["s"] * N, "meta": [{"n": 1}] * N, **dict(zip(("structs", "deep", "day"), other, strict=True))}
    )
    path = write(tmp_path / "a", made, form)
    assert re.search(r"no column \"nope\"; the columns are audio .*, site \(", refused(path, columns=["nope"]))
    for name in ("meta.m", "meta.n.m", "site.n", "meta.", ".", "meta..n"):
        assert f'no column "{name}"; the columns are audio' in refused(path, columns=[name])
    assert 'column "deep" is lists of lists of int64, expected numbers, booleans' in refused(path, columns=["deep"])
    for name in ("meta", "structs", "day", "audio"):
        message = refused(path, columns=[name])
        assert f'column "{name}" is ' in message
        assert "expected numbers, booleans, text, or lists of these; the columns are audio" in message
    assert 'columns has "site" twice' in refused(path, columns=["site", "site"])
    assert 'two fields of a batch are named "index"' in refused(
        write(tmp_path / "b", table({"index": [1] * N}), form), columns=["index"]
    )
    assert 'no column ""' in refused(path, columns=[""])
    with pytest.raises(TypeError, match="columns"):
        passed(path, columns=3)
    with pytest.raises((TypeError, forebay.ConfigError), match="columns"):
        passed(path, columns=[3])


@pytest.mark.parametrize("form", ["stream", "zstd", "parquet", "plain"])
def test_nulls_of_types_without_a_number_for_them(form: str, tmp_path: Path) -> None:
    """The error names the column, the row and the way out."""
    made = table({"n": pa.array(some(abs, 9, 4), pa.uint8()), "flag": pa.array(some(bool, 9, 4))})
    path = write(tmp_path / "a", made, form)
    for name, dtype in (("n", "uint8"), ("flag", "bool")):
        message = refused(path, columns=[name])
        assert f'column "{name}" is null, and its type {dtype} has no number for that' in message
        assert "forebay.targets.Number(column, null=...)" in message
        assert "row 4" in message


@pytest.mark.parametrize("form", ["stream", "zstd", "parquet", "plain"])
def test_numbers_beyond_int64(form: str, tmp_path: Path) -> None:
    made = table({"n": pa.array([2**63 if i == 4 else i for i in range(N)], pa.uint64())})
    message = refused(write(tmp_path / "a", made, form), columns=["n"])
    assert "9223372036854775808" in message
    assert '"n"' in message
    assert "row 4" in message


@pytest.mark.parametrize("form", ["stream", "zstd", "parquet", "plain"])
def test_what_is_too_long_is_a_bad_record(form: str, tmp_path: Path) -> None:
    made = table({
        "text": ["x" * (1 << 20) + "x" * (i == 3) for i in range(N)],
        "list": pa.array([[1] * ((1 << 16) + (i == 5)) for i in range(N)], pa.list_(pa.int8())),
        "names": pa.array([[""] * ((1 << 16) + (i == 6)) for i in range(N)], pa.list_(pa.string())),
    })  # fmt: skip
    path = write(tmp_path / "a", made, form)
    for name, bad in (("text", 3), ("list", 5), ("names", 6)):
        with forebay.Loader(path, columns=[name], **ONE_PASS) as loader:
            index = [i for batch in loader for i in batch["index"].tolist()]
            assert index == [i for i in range(N) if i != bad]
            assert [(error["row"], error["kind"]) for error in loader.errors()] == [(bad, "too_large")]


def test_types_must_agree(tmp_path: Path) -> None:
    """Two shards with different types: the error names both."""
    one = write(tmp_path / "one", table({"n": pa.array([1] * N, pa.int64()), "l": pa.array([[1]] * N)}))
    other = write(tmp_path / "other", table({"n": pa.array([1.0] * N), "l": pa.array([1] * N)}))
    for name, first, second in (("n", "int64", "float64"), ("l", "lists of int64", "int64")):
        message = refused([one, other], columns=[name])
        assert f'column "{name}" is {first} in {one} and {second} in {other}; write it with one type' in message
    without = write(tmp_path / "without", table({"m": [1] * N}))
    message = refused([one, without], columns=["n"])
    assert 'no column "n"; the columns are audio' in message
    assert str(without) in message


@pytest.mark.parametrize("form", ["stream", "parquet"])
@pytest.mark.parametrize("first", [True, False])
def test_shards_of_nulls_have_any_type(first: bool, form: str, tmp_path: Path) -> None:
    """`datasets` and pandas write a column of nulls without a type."""
    known = {
        "n": pa.array(range(N), pa.int16()),
        "l": pa.array([[i] for i in range(N)], pa.list_(pa.int16())),
        "f": pa.array([[i, i] for i in range(N)], pa.list_(pa.float32(), 2)),
        "t": pa.array([str(i) for i in range(N)]),
        "w": pa.array([[str(i)] for i in range(N)]),
    }
    nulls = {name: pa.nulls(N) for name in known}
    shards = [write(tmp_path / "known", table(known), form), write(tmp_path / "nulls", table(nulls), form)]
    found = passed(shards if first else shards[::-1], columns=list(known))
    nothing: dict[str, Any] = {"n": -1, "l": [], "f": [math.nan] * 2, "t": "", "w": []}
    for name, values in known.items():
        one, other = values.to_pylist(), [nothing[name]] * N
        assert_rows(found[name], one + other if first else other + one, name)


@pytest.mark.parametrize("form", ["stream", "zstd", "parquet"])
def test_shards_of_empty_lists(form: str, tmp_path: Path) -> None:
    """Lists of nulls, as pyarrow writes lists without items, go with any lists, and with nothing else."""
    lists = write(tmp_path / "lists", table({"x": pa.array([[i] for i in range(N)])}), form)
    empty = write(tmp_path / "empty", table({"x": pa.array([[]] * N, pa.list_(pa.null()))}), form)
    one = write(tmp_path / "one", table({"x": pa.array(range(N))}), form)
    for shards in ([lists, empty], [empty, lists]):
        found = passed(shards, columns=["x"])
        parts: dict[Path, list[Any]] = {lists: [[i] for i in range(N)], empty: [[]] * N}
        assert_rows(found["x"], parts[shards[0]] + parts[shards[1]])
    for shards in ([one, empty], [empty, one]):
        message = refused(shards, columns=["x"])
        assert f"in {shards[0]} and" in message
        assert f"in {shards[1]}; write it with one type" in message


@pytest.mark.parametrize("form", ARROW)
def test_slices(form: str, tmp_path: Path) -> None:
    """Arrays whose offsets do not begin at 0, as slices of a table have them."""
    made = table(columns()).slice(9, 11)
    names = ["ints", "names", "text", "fixed", "view", "flags", "meta.inner.of"]
    found = passed(write(tmp_path / "a", made, form), columns=names)
    for name in names:
        assert_rows(found[name], expected(made, name), name)
