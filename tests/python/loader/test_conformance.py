"""Every kind of feature, target and column keeps every promise of a loader: see `conformance`."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import forebay
from conformance import conforms, on, spawned
from fields import table, write
from forebay import augment, crops, features, sampling, targets
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
            "spans": pa.array(
                [None if i % 8 == 2 else [[i % 7 / 1000, 0.01], [0.004, 0.03]][: i % 3] for i in numbers],
                pa.list_(pa.list_(pa.float64())),
            ),
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


def steps(files: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Recipes of augmentation: all steps on waveforms, on spectrograms, and partners of other and own rows."""
    waveform = {**CLIP, "features": features.Waveform(sample_rate=8000)}
    return {
        "waveform": {
            **waveform,
            "augment": [
                augment.Gain((-6, 6), p=0.5), augment.Polarity(), augment.Roll(p=0.5),
                augment.Noise((0, 20), slope_db=(-6, 6)),
                augment.Filter("peak", (100, 3000), n=2), augment.Clip(), augment.Speed((0.5, 1.0, 1.1)),
            ],
            "outputs": ["gain_db", "roll_shift", "noise_snr_db", "speed", "start"],
        },
        "spectrogram": {**SETTING, "augment": [augment.SpecAugment(3, 2, 0.3, 2, p=0.7), augment.FrameRoll()]},
        "pairs": {
            **SETTING,
            "augment": [augment.SpecAugment(p=0.5), augment.Mixup(p=0.7), augment.CutMix(part="box", p=0.5)],
            "targets": {"label": TARGETS["class"], "several": TARGETS["multi_hot"]},
        },
        "other": {
            **waveform,
            "augment": [augment.Mix([str(path) for path in files["b"]], snr_db=(-3, 9), most=2), augment.Gain()],
            "outputs": ["mix_index", "mix_start", "mix_snr_db"],
        },
        "room": {
            **waveform,
            "augment": [
                augment.Reverb([str(path) for path in files["b"]], p=0.8),
                augment.Mix([str(path) for path in files["a"]], snr_db=20.0),
                augment.Reverb([str(path) for path in files["a"]], p=0.3),
            ],
            "outputs": ["reverb_index", "mix_index"],
        },
        "own": {
            **waveform,
            "augment": [augment.Mix(beta=0.5, near=7, targets="mix", p=0.8)],
            "outputs": ["mix_index", "mix_weight"],
            "targets": {"label": TARGETS["multi_hot"], "x": targets.Number("x", null=0.0)},
        },
        "class": {
            **waveform,
            "augment": [augment.Mix(weight=1, near=3, same_class="label", p=0.5)],
            "outputs": ["mix_index", "mix_start"],
        },
    }  # fmt: skip


# Pairs of the last, short batch of a finite pass depend on the number of ranks; see test_pairs.py.
@pytest.mark.parametrize(
    ("order", "name"),
    [
        *itertools.product(ORDERS, ["waveform", "spectrogram", "other", "room", "own", "class"]),
        *((order, "pairs") for order in ORDERS if order != "finite"),
    ],
)
def test_augmentation(
    order: str, name: str, files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given = steps(files)[name]
    changes = {key: value for key, value in ORDERS[order].items() if key != "augment"}
    conforms(files["a"], processes, tmp_path, **{**given, **changes})


@pytest.mark.parametrize("name", ["other", "own", "pairs"])
def test_augmentation_of_mixtures(
    name: str, files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given = steps(files)[name]
    conforms(files, processes, tmp_path, **{**given, "weights": {"a": 2.0, "b": 1.0}})


@pytest.mark.parametrize("order", ["window", "global"])
def test_augmentation_of_weighted_rows(
    order: str, files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given = {**steps(files)["own"], "sampling": SAMPLING["weighted"], "order": order}
    conforms(files["a"], processes, tmp_path, **given)


CROPS: dict[str, Any] = {
    "end": crops.End(),
    "random": crops.Random(pad="noise", noise_db=-40.0, silence_db=-12.0),
    "events": crops.Events("spans", 0.006, silence_db=-15.0, redraws=2),
    "inside": crops.Inside("spans", pad="random"),
    "annotated": crops.Annotated([(f"{i}.wav", i / 1000, 0.004 * i) for i in range(1, 8)], empty="random"),
    "loudest": crops.Loudest(3, pad="repeat"),
    "views": crops.Views(3),
    "views_of_events": crops.Views(2, crops.Events("spans", 0.006, silence_db=-15.0)),
}


@pytest.mark.parametrize("order", ["global", "window", "finite"])
@pytest.mark.parametrize("name", CROPS)
def test_crops(name: str, order: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Clips shorter than most recordings, of 20 ms, or longer."""
    given = {"crop": CROPS[name], "outputs": ["start", "valid_samples", "valid_frames"], "columns": ["text"]}
    seconds = 0.025 if name == "random" else 0.005
    conforms(one_source, processes, tmp_path, **{**SETTING, **given, **ORDERS[order], "clip_seconds": seconds})


def test_a_mixture_of_crops(files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    given = {"crop": CROPS["views_of_events"], "weights": {"a": 0.75, "b": 0.25}, "outputs": ["start"]}
    conforms(files, processes, tmp_path, **{**SETTING, **given, "clip_seconds": 0.005})


SAMPLING = {
    "weighted": sampling.Weighted("index_in_table", epoch_size=41),
    "balanced": sampling.Balanced("several", cap=5.0, labels="sum") & sampling.Where("index_in_table", minimum=2),
}


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("order", ORDERS)
def test_sampling(
    order: str, name: str, one_source: list[Path], processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given = {"sampling": SAMPLING[name], "outputs": ["start"], "columns": ["text"]}
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


def test_a_mixture_of_weighted_rows(files: dict[str, Any], processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    given = {"sampling": sampling.Balanced("label"), "weights": {"a": 0.75, "b": 0.25}, "outputs": ["start"]}
    conforms(files, processes, tmp_path, **{**SETTING, **given})


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
