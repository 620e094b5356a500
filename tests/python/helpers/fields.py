"""Tables of columns beside tiny recordings, in all files that a loader reads; rows of batches in plain Python."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

import forebay
from forebay._jagged import JaggedArray
from recordings import TINY, tiny_rows

N = 24
"""Rows of a table."""

ARROW = ("stream", "file", "lz4", "zstd")
FORMS = (*ARROW, "parquet", "plain", "folder")
"""Arrow streams and files, compressed streams, Parquet with dictionary and with plain encoding, `save_to_disk`."""

ONE_PASS: dict[str, Any] = {**TINY, "batch_size": 7, "infinite": False, "shuffle_min_size": 0, "n_workers": 2}
"""The parameters of a pass in order, in batches of 7."""


def recordings(n: int = N) -> pa.Array:
    """The column `audio`."""
    return pa.array([{"bytes": row.audio, "path": f"clips/{i}.wav"} for i, row in enumerate(tiny_rows(n))])


def table(columns: Mapping[str, Any], features: Mapping[str, Any] | None = None) -> pa.Table:
    """The columns beside recordings; `features` is what `datasets` writes into the schema's metadata."""
    n = len(next(iter(columns.values())))
    made = pa.table({"audio": recordings(n), **columns})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})} if features else None
    return made.replace_schema_metadata(metadata)


def write(path: Path, made: pa.Table, form: str = "stream") -> Path:
    """Writes a table in batches of 5 rows, or row groups of 9; returns the path with its suffix."""
    if form == "folder":
        datasets.Dataset(made).save_to_disk(path)
        return path
    if form in ("parquet", "plain"):
        path = path.with_suffix(".parquet")
        pages: dict[str, Any] = {"use_dictionary": form == "parquet", "data_page_size": 200}
        pq.write_table(made, path, row_group_size=9, data_page_version="1.0" if form == "parquet" else "2.0", **pages)
        return path
    path = path.with_suffix(".arrow")
    options = ipc.IpcWriteOptions(compression=form if form in ("lz4", "zstd") else None)
    new = ipc.new_file if form == "file" else ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, new(sink, made.schema, options=options) as writer:
        for batch in made.to_batches(max_chunksize=5):
            writer.write_batch(batch)
    return path


def rows(values: Any) -> list[Any]:
    """The rows of a field of a batch: numbers, str or lists."""
    if isinstance(values, JaggedArray):
        return [row.tolist() for row in values]
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def plain(value: Any) -> Any:
    """Lists in place of tuples, and text in place of NaN, which does not equal itself."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def taken(loader: forebay.Loader) -> dict[str, list[Any]]:
    """The rows of each field of a pass, in order."""
    found: dict[str, list[Any]] = {}
    for batch in loader:
        for name, values in batch.items():
            found.setdefault(name, []).extend(rows(values))
    return found


def passed(files: Any, **parameters: Any) -> dict[str, list[Any]]:
    """The rows of each field of a pass through `files`."""
    with forebay.Loader(files, **{**ONE_PASS, **parameters}) as loader:
        return taken(loader)


def assert_rows(found: Sequence[Any], expected: Iterable[Any], name: str = "") -> None:
    """Checks rows one by one, so that a failure shows the first that differs."""
    expected = list(expected)
    assert len(found) == len(expected), name
    for row, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert plain(one) == plain(other), (name, row)


def assert_described(loader: forebay.Loader, batch: Mapping[str, Any]) -> None:
    """Checks that `loader.fields` tells the names, types and shapes of a batch."""
    assert [field["name"] for field in loader.fields] == list(batch)
    for field, values in zip(loader.fields, batch.values(), strict=True):
        dtype, shape = field["dtype"], field["shape"]
        assert field["meaning"], field
        if isinstance(values, list):
            assert (dtype, shape) == ("str", None), field
            continue
        stored = "uint16" if dtype == "bfloat16" else dtype
        assert stored == values.dtype.name, field
        if isinstance(values, JaggedArray):
            assert shape is None, field
        else:
            assert shape == values.shape[1:], field
