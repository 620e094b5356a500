"""Every kind of feature, target and column keeps every promise of a loader: see `conformance`."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import forebay
from conformance import conforms, on, spawned
from fields import table, write
from forebay import crops, features, targets
from recordings import SMALL, TINY

N = 60
BIRDS = ["owl", "wren", "finch", "jay"]
SETTING: dict[str, Any] = {
    **SMALL, "batch_size": 8, "shuffle_min_size": 20, "shuffle_buffer_size": 40, "n_workers": 2, "infinite": True,
}  # fmt: skip
CLIP: dict[str, Any] = {name: value for name, value in SETTING.items() if name not in TINY} | {"clip_seconds": 0.02}
"""The same without the parameters that an object of features has itself."""

ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {"order": "sequential"},
    "finite": {"order": "sequential", "infinite": False, "shuffle_min_size": 0, "augment": False},
    "window": {"order": "window"},
    "global": {"order": "global"},
    "era": {"order": "era", "era_length": 16},
}

FEATURES: dict[str, dict[str, Any]] = {
    "default": SETTING,
    "birdmae": {**CLIP, "features": "birdmae"},
    "whisper": {**CLIP, "features": "whisper"},
    "int16": {**CLIP, "features": features.Waveform(sample_rate=8000, dtype="int16")},
    "stereo": {**CLIP, "features": features.Waveform(sample_rate=16000, channels="all", n_channels=2)},
    "bfloat16": {
        **CLIP,
        "features": features.LogMel(sample_rate=8000, n_fft=64, hop_length=32, n_mels=8, dtype="bfloat16"),
    },
}

TARGETS: dict[str, Any] = {
    "class": targets.ClassIndex("label"),
    "names": {"bird": targets.ClassIndex("bird", classes="data"), "label": targets.ClassIndex("label", null=9)},
    "multi_hot": targets.MultiHot("several", classes=BIRDS, smoothing=0.1, secondary="bird"),
    "soft": {"votes": targets.Soft("votes", size=6, null="zeros", dtype="float16")},
    "numbers": {"x": targets.Number("x", null=float("nan")), "n": targets.Number("index_in_table", dtype="uint8")},
    "text": {"text": targets.Text("text", max_bytes=500)},
}

COLUMNS = {
    "text": ["text", "audio.path"],
    "lists": ["several", "votes", "ragged", "fixed", "meta.site"],
}


def rows(first: int, n: int) -> pa.Table:
    """Rows from `first` on; the names of classes are in another order in the second half. Every 20th is bad."""
    birds = BIRDS if first < N // 2 else BIRDS[1:3]
    numbers = range(first, first + n)
    made = table(
        {
            "index_in_table": pa.array(numbers, pa.int16()),
            "label": pa.array([None if i % 5 == 2 else i % len(birds) for i in numbers], pa.int64()),
            "bird": pa.array([None if i % 7 == 2 else BIRDS[i % 4] for i in numbers]),
            "several": pa.array([BIRDS[: i % 4] for i in numbers], pa.list_(pa.string())),
            "votes": pa.array([None if i % 9 == 2 else [i / 8] * 6 for i in numbers], pa.list_(pa.float32())),
            "ragged": pa.array([[*range(i % 6)] for i in numbers], pa.list_(pa.int32())),
            "fixed": pa.array([[i, 0.5, None] for i in numbers], pa.list_(pa.float64(), 3)),
            "x": pa.array([None if i % 3 == 1 else i / 4 for i in numbers]),
            "text": pa.array([f"row {i} " * (i % 30) for i in numbers]),
            "meta": pa.array([None if i % 4 == 1 else {"site": f"site {i}"} for i in numbers]),
        },
        {"label": {"_type": "ClassLabel", "names": birds}},
    )
    audio = made["audio"].to_pylist()
    for at, i in enumerate(numbers):
        audio[at]["bytes"] = b"no recording" if i % 20 == 7 else stereo(audio[at]["bytes"])
    return made.set_column(0, "audio", pa.array(audio))


def stereo(recording: bytes) -> bytes:
    """The same samples as those of two channels."""
    channels, frame = (2).to_bytes(2, "little"), (4).to_bytes(2, "little")
    return recording[:22] + channels + recording[24:28] + (32000).to_bytes(4, "little") + frame + recording[34:]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Shards of two sources."""
    folder = tmp_path_factory.mktemp("conformance")
    first = [write(folder / f"a{at}", rows(10 * at, 10), form) for at, form in enumerate(("stream", "zstd", "lz4"))]
    return {"a": first, "b": [write(folder / "b", rows(30, 30), "file")]}


@pytest.fixture(scope="module")
def one_source(files: dict[str, Any]) -> list[Path]:
    """30 rows in three shards, whose class names are equal."""
    return list(files["a"])


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as processes:
        yield processes


@pytest.mark.parametrize("order", ORDERS)
def test_orders(order: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    given = {"targets": TARGETS["multi_hot"], "columns": COLUMNS["lists"], "outputs": ["path", "start", "row"]}
    conforms(one_source, processes, tmp_path, **{**SETTING, **given, **ORDERS[order]})


@pytest.mark.parametrize("order", ORDERS)
def test_windows(order: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    given = {"crop": crops.Windows(0.007, end="shift"), "outputs": ["window", "start"], "columns": ["text"]}
    conforms(one_source, processes, tmp_path, **{**SETTING, **given, **ORDERS[order]})


@pytest.mark.parametrize("name", FEATURES)
def test_features(name: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    conforms(one_source, processes, tmp_path, **FEATURES[name], outputs=["valid_frames", "valid_samples"])


@pytest.mark.parametrize("name", TARGETS)
def test_targets(name: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    conforms(one_source, processes, tmp_path, **SETTING, order="global", targets=TARGETS[name])


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    conforms(one_source, processes, tmp_path, **SETTING, columns=COLUMNS[name])


@pytest.mark.parametrize("infinite", [True, False])
def test_a_mixture(infinite: bool, files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Two sources with other class names."""
    given = {"targets": {"y": targets.ClassIndex("label"), **TARGETS["names"]}, "columns": COLUMNS["lists"]}
    shares: dict[str, Any] = {"weights": {"a": 0.75, "b": 0.25}} if infinite else {"stop": "all_exhausted"}
    conforms(files, processes, tmp_path, **{**SETTING, **given, **shares, "infinite": infinite})


def test_parquet(one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Parquet files of the same rows, with all fields at once, are the same batches, too."""
    parquet = [write(tmp_path / f"{at}", rows(10 * at, 10), "parquet") for at in range(3)]
    given: dict[str, Any] = {
        "targets": {"y": targets.ClassIndex("label"), **TARGETS["numbers"], "note": targets.Text("text")},
        "columns": COLUMNS["lists"], "outputs": ["path", "shard"],
    }  # fmt: skip
    keywords = {**SETTING, **given}
    conforms(parquet, processes, tmp_path, **keywords)
    with forebay.Loader(parquet, **keywords) as one, forebay.Loader(one_source, **keywords) as other:
        assert on(one) == on(other)
