"""`forebay.crops` beside an oracle in Python, on recordings whose samples tell their position."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from fields import write
from forebay import AudioDataset, ConfigError, crops, features, targets
from places import Recording, expected
from windows import RATE, wav

SECONDS = 0.02
CLIP = round(SECONDS * RATE)
SEED = 11
LENGTHS = [400, 160, 161, 40, 1, 159, 1000, 3000, 320, 7, 2000]
SPANS: list[Any] = [
    [[10, 30], [200, 390]], [[0, 160]], None, [[5, 20]], [[0, 1]], [], [[900, 1200], [400, 400], [2000, 3000]],
    [[100, 2900], [150, 180], [150, 180]], [[-50, 20]], [[7, 7]], [[-9, -3], [2000, 2000], [2001, 2001]],
]  # fmt: skip
"""In samples: that overlap, are equal, empty, a point, in part or wholly outside, longer than the clip, none."""

CROPS: dict[str, Any] = {
    "end": crops.End(),
    **{f"random-{pad}": crops.Random(pad=pad) for pad in ("behind", "front", "both", "random", "repeat")},
    "random-noise": crops.Random(pad="noise", noise_db=-30.0),
    "start": crops.Start(pad="random"),
    "center": crops.Center(pad="repeat"),
    "end-behind": crops.End(pad="behind"),
    "events": crops.Events("spans", 0.05),
    "events-clip": crops.Events("spans", 0.0, pad="both"),
    "events-all": crops.Events("spans", 8.0),
    "inside": crops.Inside("spans"),
    "loudest": crops.Loudest(5, pad="random"),
    "silence": crops.Random(silence_db=-30.0),
    "silence-events": crops.Events("spans", 0.06, silence_db=-28.0, redraws=2),
    "views": crops.Views(3),
    "views-inside": crops.Views(4, crops.Inside("spans", pad="random")),
    "views-loudest": crops.Views(2, crops.Loudest(3, pad="repeat")),
    "views-silence": crops.Views(3, crops.Random(silence_db=-20.0, pad="noise", noise_db=-40.0)),
    "views-one": crops.Views(1, crops.End()),
}

GIVEN: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE), "clip_seconds": SECONDS, "batch_size": 4, "infinite": False,
    "shuffle_min_size": 0, "n_workers": 2, "outputs": ["start", "valid_samples"], "seed": SEED,
}  # fmt: skip


def ramp(n: int) -> np.ndarray:
    """Samples that tell their position, louder and louder."""
    return np.arange(1, n + 1) * 10


def table(spans: Any, lengths: list[int] = LENGTHS) -> pa.Table:
    audio = pa.array([{"bytes": wav(ramp(n)), "path": f"{i}.wav"} for i, n in enumerate(lengths)])
    return pa.table({"audio": audio, "label": list(range(len(lengths))), **spans})


def in_seconds(spans: list[Any]) -> list[Any]:
    return [row and [[at / RATE for at in pair] for pair in row] for row in spans]


FORMS: dict[str, Any] = {
    "lists": pa.array(in_seconds(SPANS), pa.list_(pa.list_(pa.float64()))),
    "float32": pa.array(in_seconds(SPANS), pa.large_list(pa.large_list(pa.float32()))),
    "fixed": pa.array(in_seconds(SPANS), pa.list_(pa.list_(pa.float64(), 2))),
    "structs": pa.array(
        [row and [{"end": b, "class": "x", "start": a} for a, b in row] for row in in_seconds(SPANS)],
        pa.list_(pa.struct([("end", pa.float64()), ("class", pa.string()), ("start", pa.float64())])),
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("crops") / "rows", table({"spans": FORMS["lists"]}))


def rows(loader: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in loader:
        found += [{name: values[at] for name, values in batch.items()} for at in range(len(batch["index"]))]
    return found


def check(crop: Any, found: list[dict[str, Any]], epoch: int = 0) -> None:
    assert sorted(row["index"] for row in found) == list(range(len(LENGTHS)))
    for row in found:
        index = int(row["index"])
        recording = Recording((ramp(LENGTHS[index]) / 32768).astype(np.float32), SPANS[index] or ())
        clips = expected(crop, recording, CLIP, index, RATE, SEED, epoch)
        starts = [start / RATE for start, _, _ in clips]
        valid = [n for _, n, _ in clips]
        waveforms = np.stack([waveform for _, _, waveform in clips])
        if not isinstance(crop, crops.Views):
            starts, valid, waveforms = starts[0], valid[0], waveforms[0]
        assert np.array_equal(row["start"], starts), (crop, index)
        assert np.array_equal(row["valid_samples"], valid), (crop, index)
        if "noise" in repr(crop):
            assert np.allclose(row["waveform"], waveforms, rtol=1e-6, atol=0), (crop, index)
        else:
            assert np.array_equal(row["waveform"], waveforms), (crop, index)


@pytest.mark.parametrize("name", CROPS)
def test_clips_are_those_of_the_oracle(name: str, files: Path) -> None:
    crop = CROPS[name]
    with forebay.Loader(files, crop=crop, **GIVEN) as loader:
        for epoch in range(2):
            check(crop, rows(loader), epoch)
        assert repr(crop) in repr(loader.recipe)
    with AudioDataset(
        files, crop=crop, **{name: GIVEN[name] for name in ("features", "clip_seconds", "outputs", "seed")}
    ) as dataset:
        check(crop, [dataset[at] for at in range(len(LENGTHS))])


@pytest.mark.parametrize("kept", ["file", "zstd", "parquet", "plain", "folder"])
@pytest.mark.parametrize("form", FORMS)
def test_spans_of_any_form_and_file(form: str, kept: str, tmp_path: Path) -> None:
    path = write(tmp_path / "rows", table({"spans": FORMS[form]}), kept)
    for name in ("events", "inside"):
        with forebay.Loader(path, crop=CROPS[name], **GIVEN) as loader:
            check(CROPS[name], rows(loader))


def test_two_columns_and_samples(tmp_path: Path) -> None:
    starts, ends = ([row and [pair[at] for pair in row] for row in SPANS] for at in (0, 1))
    both = {"starts": pa.array(starts, pa.list_(pa.int64())), "ends": pa.array(ends, pa.list_(pa.float64()))}
    inner = pa.StructArray.from_arrays([both["starts"], both["ends"]], ["start", "end"])
    path = write(tmp_path / "rows", table({**both, "spans": inner}))
    for columns in (("starts", "ends"), ("spans.start", "spans.end"), ["starts", "ends"]):
        crop = crops.Events(columns, 0.05, unit="samples")  # type: ignore[arg-type]
        with forebay.Loader(path, crop=crop, **GIVEN) as loader:
            check(crop, rows(loader))


def test_samples_are_those_of_the_recordings_own_rate(tmp_path: Path) -> None:
    """A span at 8 kHz, for features at 16 kHz."""
    path = write(tmp_path / "rows", table({"spans": [[[400, 560]]]}, [1000]))
    given = {**GIVEN, "features": features.Waveform(sample_rate=2 * RATE)}
    with forebay.Loader(path, crop=crops.Inside("spans", unit="samples"), **given) as loader:
        assert next(loader)["start"] == 400 / RATE


@pytest.mark.parametrize("kind", ["jsonl", "rows", "parquet"])
def test_spans_of_a_manifest(kind: str, tmp_path: Path) -> None:
    """Recordings in files of their own, one of which is so large that only what the clips may need is read."""
    for i, n in enumerate(LENGTHS):
        (tmp_path / f"{i}.wav").write_bytes(wav(ramp(n)))
    spans = in_seconds(SPANS)
    paths = [f"{i}.wav" for i in range(len(LENGTHS))]
    made: Any
    if kind == "jsonl":
        lines = [json.dumps({"path": path, "spans": row}) for path, row in zip(paths, spans, strict=True)]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
        made = forebay.Manifest(tmp_path / "rows.jsonl")
    elif kind == "rows":
        made = forebay.Manifest(
            [{"path": path, "spans": row} for path, row in zip(paths, spans, strict=True)], root=tmp_path
        )
    else:
        write(tmp_path / "rows", pa.table({"path": paths, "spans": FORMS["structs"]}), "parquet")
        made = forebay.Manifest(tmp_path / "rows.parquet")
    for name in ("events", "views-inside", "silence-events"):
        with forebay.Loader(made, crop=CROPS[name], **GIVEN) as loader:
            check(CROPS[name], rows(loader))


def test_only_what_events_need_is_read(tmp_path: Path) -> None:
    samples = np.tile(ramp(3000), 400)
    (tmp_path / "long.wav").write_bytes(wav(samples))
    made = forebay.Manifest([{"path": "long.wav", "spans": [[3.0, 3.1]]}], root=tmp_path)
    with forebay.Loader(made, crop=crops.Events("spans", 0.2), **GIVEN) as loader:
        batch = next(loader)
        start = round(batch["start"][0] * RATE)
        assert np.array_equal(batch["waveform"][0], (samples[start : start + CLIP] / 32768).astype(np.float32))
        assert 0 < loader.stats()["files"]["read_bytes"] < 2 * len(samples) / 4


@pytest.mark.parametrize("channels", ["mean", "all", 1])
def test_channels_and_rates(channels: Any, tmp_path: Path) -> None:
    """Stereo at another rate: each clip is that of the whole recording, also if several are decoded in one go."""
    rng = np.random.default_rng(3)
    samples = rng.integers(-20_000, 20_000, (2, 9000))
    mono = wav(samples.T.reshape(-1), 11_025)
    stereo = mono[:22] + (2).to_bytes(2, "little") + mono[24:28] + (44_100).to_bytes(4, "little")
    stereo += (4).to_bytes(2, "little") + mono[34:]
    audio = pa.array([{"bytes": stereo, "path": "a.wav"}])
    path = write(tmp_path / "rows", pa.table({"audio": audio}))
    extra: dict[str, Any] = {"n_channels": 2} if channels == "all" else {}
    plan = features.Waveform(sample_rate=RATE, channels=channels, **extra)
    given = {**GIVEN, "features": plan, "clip_seconds": 0.05, "outputs": ["start"]}
    with AudioDataset(path, features=plan, clip_seconds=0.05, outputs=["start"]) as dataset:
        for crop in (crops.Views(5), crops.Views(40), crops.Loudest(9), crops.Random(silence_db=0.0)):
            with forebay.Loader(path, crop=crop, **given) as loader:
                batch = next(loader)
            starts, waveforms = np.ravel(batch["start"]), batch["waveform"][0]
            if not isinstance(crop, crops.Views):
                waveforms = waveforms[None]
            for start, waveform in zip(starts, waveforms, strict=True):
                assert np.array_equal(dataset.get_batch([0], [start])["waveform"][0], waveform), crop


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_views_have_an_axis(dtype: Any, files: Path) -> None:
    plan = features.LogMel(sample_rate=RATE, n_fft=64, hop_length=32, n_mels=8, dtype=dtype)
    given = {**GIVEN, "features": plan, "outputs": ["start", "valid_frames", "valid_samples"]}
    with forebay.Loader(files, crop=crops.Views(3), **given) as loader, forebay.Loader(files, **given) as one:
        batch, alone = next(loader), next(one)
        assert batch["spectrogram"].shape == (4, 3, *alone["spectrogram"].shape[1:])
        shapes = {field["name"]: field["shape"] for field in loader.fields}
        assert shapes["spectrogram"] == batch["spectrogram"].shape[1:]
        assert shapes["start"] == shapes["valid_frames"] == shapes["valid_samples"] == (3,)
        # The first view is the clip alone.
        for name in ("spectrogram", "start", "valid_frames", "valid_samples"):
            assert np.array_equal(batch[name][:, 0], alone[name]), name
        assert len(set(batch["start"][0])) == 3
        assert "[3, " in repr(loader.recipe)


def test_padding_that_is_no_silence_is_part_of_the_clip(tmp_path: Path) -> None:
    """Its samples count in the mean and the level; zeros do not."""
    path = write(tmp_path / "rows", table({}, [40]))
    samples = (ramp(40) / 32768).astype(np.float32)
    given = {**GIVEN, "features": features.Waveform(sample_rate=RATE, remove_mean=True)}
    for pad, whole in (("behind", samples), ("repeat", np.tile(samples, 4))):
        with forebay.Loader(path, crop=crops.Random(pad=pad), **given) as loader:  # type: ignore[arg-type]
            waveform = next(loader)["waveform"][0]
        assert np.allclose(waveform[: len(whole)], whole - whole.mean(), atol=1e-6)
        assert not waveform[len(whole) :].any()
    given["outputs"] = ["valid_frames", "valid_samples"]
    given["features"] = features.LogMel(sample_rate=RATE, n_fft=64, hop_length=32, n_mels=8)
    frames = {}
    for pad in ("behind", "repeat", "noise"):
        crop = crops.Random(pad=pad, noise_db=-40.0 if pad == "noise" else None)  # type: ignore[arg-type]
        with forebay.Loader(path, crop=crop, **given) as loader:
            batch = next(loader)
            frames[pad] = (int(batch["valid_samples"][0]), int(batch["valid_frames"][0]))
            n_frames = batch["spectrogram"].shape[-1]
    assert frames["behind"] == frames["noise"] == (40, given["features"].shape(40)[1])
    assert frames["repeat"] == (CLIP, n_frames)


def test_silence_is_drawn_again_and_counted(tmp_path: Path) -> None:
    """A recording of which a tenth is loud; one that is silent as a whole; a short one; a loud one."""
    quiet = np.zeros(8000, int)
    some = quiet.copy()
    some[4000:5600] = 10_000
    loud = np.full(8000, 10_000)
    audio = [{"bytes": wav(samples), "path": None} for samples in (some, quiet, quiet[:50], loud)]
    path = write(tmp_path / "rows", pa.table({"audio": pa.array(audio)}))
    counts = {}
    for redraws in (1, 60):
        crop = crops.Random(silence_db=-40.0, redraws=redraws)
        with forebay.Loader(path, crop=crop, **GIVEN) as loader:
            found = [row for _ in range(20) for row in rows(loader)]
            counts[redraws] = loader.stats()["redraws"]
        loudest = [float(np.abs(row["waveform"]).max()) for row in found if row["index"] == 0]
        heard = sum(value > 0.1 for value in loudest)
        assert heard == 20 if redraws == 60 else 0 < heard < 20, (redraws, loudest)
        assert all(row["waveform"].max() > 0.1 for row in found if row["index"] == 3)
    # Row 1 is drawn again each time, row 2 never: its samples would be the same.
    assert 20 <= counts[1] <= 40
    assert 20 * 60 <= counts[60] < 2 * 20 * 60
    with forebay.Loader(path, **GIVEN) as loader:
        assert "redraws" not in loader.stats()


def test_a_redraw_moves_no_other_row(tmp_path: Path) -> None:
    loud = np.full(4000, 9000)
    quiet = loud.copy()
    quiet[3000:] = 0
    paths = []
    for name, first in (("a", quiet), ("b", loud)):
        audio = [{"bytes": wav(samples), "path": None} for samples in (first, loud, loud)]
        paths.append(write(tmp_path / name, pa.table({"audio": pa.array(audio)})))
    crop = crops.Views(3, crops.Random(silence_db=-20.0))
    starts = []
    for path in paths:
        with forebay.Loader(path, crop=crop, **GIVEN) as loader:
            starts.append(next(loader)["start"])
    assert np.array_equal(starts[0][1:], starts[1][1:])
    assert not np.array_equal(starts[0][0], starts[1][0])


WRONG: dict[str, tuple[Any, str]] = {
    "reversed": ([[[0.1, 0.2]], [[0.2, 0.1]]], r"a span is \[0.2, 0.1\], which ends before it begins"),
    "nan": ([[[0.1, 0.2]], [[0.1, float("nan")]]], "a span has NaN, expected finite numbers"),
    "infinite": ([[[0.1, float("inf")]], []], "a span has inf, expected finite numbers"),
    "null": ([[[0.1, 0.2]], [[None, 0.2]]], "a span has a null, expected numbers"),
    "no pair": ([[[0.1, 0.2]], [None]], r"a span is null, expected \[start, end\]"),
    "one": ([[[0.1, 0.2]], [[0.1]]], r"a span has 1 numbers, expected \[start, end\]"),
    "three": ([[[0.1, 0.2]], [[0.1, 0.2, 0.3]]], "a list in a list has 3 items, expected pairs"),
}


NO_JSON = (("jsonl", "nan"), ("jsonl", "infinite"))


@pytest.mark.parametrize(
    ("name", "kept"),
    [(name, kept) for name in WRONG for kept in ("stream", "parquet", "jsonl") if (kept, name) not in NO_JSON],
)
def test_wrong_spans(name: str, kept: str, tmp_path: Path) -> None:
    """The error names file, row and column."""
    spans, message = WRONG[name]
    source: Any
    if kept == "jsonl":
        for i in range(2):
            (tmp_path / f"{i}.wav").write_bytes(wav(ramp(400)))
        lines = [json.dumps({"path": f"{i}.wav", "spans": row}) for i, row in enumerate(spans)]
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
        source = forebay.Manifest(tmp_path / "rows.jsonl")
    else:
        column = pa.array(spans, pa.list_(pa.list_(pa.float64())))
        source = write(tmp_path / "rows", table({"spans": column}, [400, 400]), kept)
    for crop in (crops.Events("spans"), crops.Inside("spans")):
        with pytest.raises(forebay.ForebayError, match=message) as raised:
            rows(forebay.Loader(source, crop=crop, **GIVEN))
        assert "spans" in str(raised.value)


def test_wrong_columns(tmp_path: Path) -> None:
    columns = {
        "text": ["a", "b"],
        "texts": [[["a"]], []],
        "numbers": [1.0, 2.0],
        "lists": [[1.0], [2.0]],
        "longer": [[1.0, 2.0], [2.0]],
        "deep": [[[[1.0]]], []],
        "spans": [[[0.1, 0.2]], []],
    }
    path = write(tmp_path / "rows", table(columns, [400, 400]))
    for column, message in {
        "missing": 'there is no column "missing"',
        "text": 'column "text" is text, expected lists of pairs',
        "texts": 'column "texts" is lists of lists of text, expected lists of pairs',
        "numbers": 'column "numbers" is float64, expected lists of pairs',
        "lists": r'column "lists" is lists of float64, expected lists of pairs .*, \(starts, ends\)',
        "deep": 'column "deep" is List.*, expected numbers',
        ("lists", "text"): 'column "text" is text, expected numbers',
        ("lists", "numbers"): "expected numbers or lists in both",
        ("spans", "lists"): 'column "spans" is lists of lists of float64, expected numbers',
    }.items():
        with pytest.raises(forebay.ForebayError, match=message):
            forebay.Loader(path, crop=crops.Events(column), **GIVEN)  # type: ignore[arg-type]
    with pytest.raises(forebay.ForebayError, match=r'columns "lists" and "longer": the row has 1 starts and 2 ends'):
        next(forebay.Loader(path, crop=crops.Events(("lists", "longer")), **GIVEN))
    # Spans are for crops alone.
    for given in (
        {"columns": ["spans"]},
        {"targets": targets.MultiHot("spans", classes=3)},
        {"sampling": forebay.sampling.Balanced("spans")},
    ):
        with pytest.raises(
            forebay.ForebayError, match=r'column "spans" is lists of lists of float64.*forebay.crops take spans'
        ):
            forebay.Loader(path, **GIVEN, **given)


def test_rows_without_spans(tmp_path: Path) -> None:
    spans = pa.array([[], None, [[9.0, 9.5]]], pa.list_(pa.list_(pa.float64())))
    path = write(tmp_path / "rows", table({"spans": spans}, [400, 500, 600]))
    with forebay.Loader(path, crop=crops.Random(), **GIVEN) as loader:
        random = next(loader)
    with forebay.Loader(path, crop=crops.Events("spans"), **GIVEN) as loader:
        assert np.array_equal(next(loader)["start"], random["start"])
    for row in range(3):
        crop = crops.Inside("spans", empty="error")
        given = {**GIVEN, "sampling": forebay.sampling.Subset([row])}
        with pytest.raises(forebay.ForebayError, match=rf"row {row}: .*no span within its recording; give empty="):
            next(forebay.Loader(path, crop=crop, **given))


def test_nulls_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows", table({"spans": pa.nulls(2), "empty": pa.array([[], []], pa.list_(pa.null()))}, [400] * 2)
    )
    for column in ("spans", "empty", ("spans", "empty")):
        with forebay.Loader(path, crop=crops.Events(column), **GIVEN) as loader:
            assert len(rows(loader)) == 2


def test_crops_are_objects() -> None:
    for crop in CROPS.values():
        copies = (pickle.loads(pickle.dumps(crop)), type(crop).from_dict(json.loads(json.dumps(crop.to_dict()))))
        assert all(copy == crop and repr(copy) == repr(crop) and hash(copy) == hash(crop) for copy in copies)
        assert eval(repr(crop), vars(crops)) == crop
    two = crops.Inside(("a", "b"))
    assert crops.Inside.from_dict(json.loads(json.dumps(two.to_dict()))) == two
    assert crops.Views.from_dict({"type": "Views", "n": 2, "crop": {"type": "End", "pad": "both"}}) == crops.Views(
        2, crops.End(pad="both")
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: crops.Random(pad="zeros"),  # type: ignore[arg-type]
         'pad is "zeros", must be one of "behind", "front"'),
        (lambda: crops.Random(pad="noise"), "needs noise_db"),
        (lambda: crops.End(noise_db=-3.0), 'only pad="noise" has noise'),
        (lambda: crops.Start(pad="noise", noise_db=1.0), "noise_db is 1.0, must be from -200 to 0"),
        (lambda: crops.Random(silence_db=float("nan")), "silence_db is NaN, must be from -200 to 0"),
        (lambda: crops.Random(silence_db=-40.0, redraws=0), "redraws is 0, must be 1 to 64"),
        (lambda: crops.Loudest(1), "of is 1, must be 2 to 64"),
        (lambda: crops.Loudest(65), "of is 65, must be 2 to 64"),
        (lambda: crops.Views(0), "n is 0, must be 1 to 256"),
        (lambda: crops.Views(2, crops.Windows()), r"crop is Windows\(\), must be one of a single clip"),
        (lambda: crops.Views(2, crops.Views(2)), r"crop is Views\(n=2\), must be one of a single clip"),
        (lambda: crops.Events(""), 'column is "", must be'),
        (lambda: crops.Events("a", -1.0), "widen is -1.0, must be from 0 to 86400"),
        (lambda: crops.Events("a", float("nan")), "widen is NaN"),
        (lambda: crops.Inside("a", unit="minutes"),  # type: ignore[arg-type]
         'unit is "minutes", must be one of "seconds", "samples"'),
        (lambda: crops.Inside("a", empty="skip"),  # type: ignore[arg-type]
         'empty is "skip", must be one of "random", "error"'),
    ],
)  # fmt: skip
def test_wrong_values(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        crops.Events("a", -1.0, unit="x", empty="y", pad="z", silence_db=3.0, redraws=99)  # type: ignore[arg-type]
    for part in ("widen is", "unit is", "empty is", "pad is", "silence_db is", "redraws is"):
        assert part in str(raised.value)


def test_wrong_types() -> None:
    for column in (3, None, ("a",), ("a", "b", "c"), ("a", 1)):
        with pytest.raises(TypeError, match="column is"):
            crops.Events(column)  # type: ignore[arg-type]
    for inner in (None, "random", 3, crops.Random):
        with pytest.raises(TypeError, match="crop must be an object"):
            crops.Views(2, inner)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        crops.Loudest(2.5)  # type: ignore[arg-type]


def test_what_views_do_not_go_with(files: Path) -> None:
    with pytest.raises(ConfigError, match=r'target "y" is that of a clip, and Views\(\) makes several'):
        forebay.Loader(
            files, crop=crops.Views(2), targets={"y": targets.Annotations([("0.wav", 0.0, 0.1, "a")])}, **GIVEN
        )
    with AudioDataset(files, crop=crops.Views(2), clip_seconds=SECONDS, features=GIVEN["features"]) as dataset:
        with pytest.raises(ConfigError, match="starts has the start of a clip"):
            dataset.get_batch([0], [0.0])
        assert dataset.get_batch([0, 1], [None, None])["waveform"].shape == (2, 2, CLIP)
    with pytest.raises(ConfigError, match="one waveform would take"):
        forebay.Loader(files, crop=crops.Views(256), **{**GIVEN, "clip_seconds": 600.0})


def test_a_crop_is_part_of_the_state(files: Path) -> None:
    with forebay.Loader(files, crop=crops.Events("spans", 0.05), **GIVEN) as loader:
        state = loader.state_dict()
    for other in (crops.Events("spans", 0.06), crops.Inside("spans"), crops.Views(1, crops.Events("spans", 0.05))):
        with forebay.Loader(files, crop=other, **GIVEN) as loader, pytest.raises(forebay.StateError, match="crop"):
            loader.load_state_dict(state)


def test_recordings_of_a_row_that_comes_again(tmp_path: Path) -> None:
    """Copies of a row are read once, and each has an event of its own."""
    path = write(tmp_path / "rows", table({"spans": FORMS["lists"]}))
    sampling = forebay.sampling.Weighted([0.0] * 6 + [1.0] + [0.0] * 4, epoch_size=40)
    with forebay.Loader(path, crop=crops.Events("spans", 0.03), sampling=sampling, **GIVEN) as loader:
        found = rows(loader)
    assert {row["index"] for row in found} == {6}
    assert len({row["start"] for row in found}) > 20
