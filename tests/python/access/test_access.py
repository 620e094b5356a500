"""`AudioDataset`: rows by number, crops and waveforms; errors. Equality with a loader's rows is in `conformance`."""

import copy
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from digests import digest
from fields import FORMS, N, rows, table, write
from forebay import AudioDataset, ConfigError, DecodeError, ForebayError, crops, features, sampling, targets
from forebay._jagged import JaggedArray
from recordings import CLASSES, TINY, TINY_SAMPLES, Row, tiny_rows, write_shard

CLIP: dict[str, Any] = {**TINY, "clip_seconds": 0.01}
"""Half of a tiny recording."""
WAVEFORM: dict[str, Any] = {"features": features.Waveform(sample_rate=8000), "clip_seconds": 0.01}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 tiny recordings; row 7 is bad."""
    made = tiny_rows(40)
    made[7] = Row(b"no recording", 0, "clips/bad.wav")
    return write_shard(tmp_path_factory.mktemp("access") / "a.arrow", made, rows_per_batch=6)


@pytest.fixture
def dataset(shard: Path) -> AudioDataset:
    return AudioDataset(shard, **CLIP)


def samples(row: int) -> Any:
    """All samples of a row of `shard`."""
    audio = tiny_rows(40)[row].audio
    assert audio is not None
    return np.frombuffer(audio[44:], "<i2").astype(np.float32) / 32768


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return digest(one) == digest(other)


def test_rows(dataset: AudioDataset) -> None:
    assert len(dataset) == 40
    row = dataset[3]
    assert list(row) == ["spectrogram", "label", "index"]
    assert (row["spectrogram"].shape, row["spectrogram"].dtype) == ((8, 3), np.float32)
    assert (row["label"], row["index"]) == (3, 3)
    assert isinstance(row["index"], np.int64)
    batch = dataset.get_batch([3])
    for index in (3, -37, np.int16(3), np.uint64(3), np.array(3)):
        found = dataset[index]
        assert {name: np.asarray(value).tobytes() for name, value in found.items()} == {
            name: value[0].tobytes() for name, value in batch.items()
        }
    assert dataset[-1]["index"] == 39


@pytest.mark.parametrize("index", [40, -41, 2**40, -(2**70), 2**70, np.int64(40)])
def test_no_such_row(dataset: AudioDataset, index: int) -> None:
    for call in (lambda: dataset[index], lambda: dataset.get_batch([0, index]), lambda: dataset.waveform(index),
                 lambda: dataset.__getitems__([index]), lambda: dataset.info(index)):  # fmt: skip
        with pytest.raises(IndexError, match="out of range: there are 40 rows"):
            call()


@pytest.mark.parametrize("index", ["3", 3.0, None, True, [1.5], ["a"], [True], [[1, 2], [3, 4]], {"a": 1}])
def test_what_is_no_row(dataset: AudioDataset, index: Any) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        dataset[index]


def test_batches(dataset: AudioDataset) -> None:
    expected = dataset.get_batch([5, 2, 5, -1, 0])
    assert expected["index"].tolist() == [5, 2, 5, 39, 0]
    for indices in ((5, 2, 5, -1, 0), np.array([5, 2, 5, -1, 0], np.int8), iter([5, 2, 5, 39, 0])):
        assert alike(dataset.get_batch(indices), expected)
    assert alike(dataset[[5, 2, 5, -1, 0]], expected)
    assert alike(dataset[np.array([5, 2, 5, 39, 0])], expected)
    assert alike(dataset[30:20:-3], dataset.get_batch(range(30, 20, -3)))
    assert alike(dataset[38:99], dataset.get_batch([38, 39]))
    for one, at in zip(dataset.__getitems__([4, 4, 9]), [4, 4, 9], strict=True):
        assert one["index"] == at
        assert one["spectrogram"].tobytes() == dataset[at]["spectrogram"].tobytes()
    for value in expected.values():
        assert value.flags.c_contiguous
        assert value.flags.writeable


def test_an_empty_batch(shard: Path, tmp_path: Path) -> None:
    empty: list[Any] = [[], np.array([], np.int64), range(0)]
    for given in empty:
        batch = AudioDataset(shard, **CLIP, outputs=["path", "start"]).get_batch(given)
        assert batch["spectrogram"].shape == (0, 8, 3)
        assert batch["label"].shape == batch["start"].shape == (0,)
        assert batch["path"] == []
    made = write(tmp_path / "a", table({"x": pa.array([[1]] * 4)}))
    assert list(AudioDataset(made, **TINY, columns=["x"])[:0]["x"]) == []
    assert AudioDataset(made, **TINY).__getitems__([]) == []


def test_batches_do_not_share_memory(dataset: AudioDataset) -> None:
    """Kept batches keep their values, large and small ones."""
    expected = [digest(dataset[[i, i + 1]]) for i in range(8, 30)]
    kept = [dataset[[i, i + 1]] for i in range(8, 30)]
    ones = [dataset[i] for i in range(8, 30)]
    assert [digest(batch) for batch in kept] == expected
    assert [one["index"] for one in ones] == [*range(8, 30)]


# Crops


def test_crops(shard: Path) -> None:
    for crop, start in ((crops.Start(), 0), (crops.Center(), 40), (None, 40)):
        one = AudioDataset(shard, **WAVEFORM, crop=crop, outputs=["start", "valid_samples"])[5]
        assert one["waveform"].tobytes() == samples(5)[start : start + 80].tobytes()
        assert (one["start"], one["valid_samples"]) == (start / 8000, 80)


def test_random_crops_are_those_of_epoch_0(shard: Path) -> None:
    one_pass: dict[str, Any] = {"infinite": False, "shuffle_min_size": 0, "batch_size": 39, "order": "global"}
    with forebay.Loader(shard, **WAVEFORM, seed=9, **one_pass, outputs=["start"]) as loader:
        expected = next(loader)
    made = AudioDataset(shard, **WAVEFORM, seed=9, crop=forebay.crops.Random(), outputs=["start"])
    assert len(set(expected["start"])) > 10
    assert alike(made.get_batch(expected["index"]), expected)
    others = AudioDataset(shard, **WAVEFORM, seed=8, crop=forebay.crops.Random(), outputs=["start"])
    assert not alike(others.get_batch(expected["index"]), expected)


def test_given_starts(shard: Path) -> None:
    made = AudioDataset(shard, **WAVEFORM, outputs=["start", "valid_samples"])
    whole = samples(5)
    starts: list[Any] = [0, 0.001, 0.01, 0.0101, 0.019, 19.9e-3, None, np.float32(0.002)]
    batch = made.get_batch([5] * len(starts), starts)
    for row, start in enumerate(starts):
        first = 40 if start is None else round(float(start) * 8000)
        expected = np.zeros(80, np.float32)
        expected[: len(whole) - first] = whole[first : first + 80]
        assert batch["waveform"][row].tobytes() == expected.tobytes(), start
        assert batch["start"][row] == first / 8000
        assert batch["valid_samples"][row] == min(80, len(whole) - first)
    assert alike(made.get_batch([5] * len(starts), batch["start"]), batch)


def test_zeros_first(shard: Path) -> None:
    """A recording that is shorter than the clip may begin later in it."""
    given: dict[str, Any] = {"features": features.Waveform(sample_rate=8000), "clip_seconds": 0.03}
    made = AudioDataset(shard, **given, outputs=["start", "valid_samples"])
    batch = made.get_batch([4] * 3, [-0.01, None, -0.003])
    for row, before in enumerate((80, 40, 24)):
        expected = np.zeros(240, np.float32)
        expected[before : before + TINY_SAMPLES] = samples(4)
        assert batch["waveform"][row].tobytes() == expected.tobytes()
    assert batch["start"].tolist() == [-0.01, -0.005, -0.003]
    assert alike(made.get_batch([4] * 3, batch["start"]), batch)
    with pytest.raises(ConfigError, match=r"start is -0.0102, must be at least -0.01 and below 0.02"):
        made.get_batch([4], [-0.0102])


@pytest.mark.parametrize("start", [0.02, 7, -0.001, float("nan"), float("inf"), -float("inf"), 1e300])
def test_starts_beyond_a_recording(dataset: AudioDataset, start: float) -> None:
    with pytest.raises(ConfigError, match=r", row 5: .*must be at least 0.0 and below 0.02, the recording's seconds"):
        dataset.get_batch([3, 5], [0.0, start])


def test_wrong_starts(dataset: AudioDataset) -> None:
    with pytest.raises(ConfigError, match="starts has 1 second, must be one for each of the 2 indices"):
        dataset.get_batch([1, 2], [0.0])
    for wrong in ("0.1", [True], ["a"], 0.5):
        with pytest.raises(TypeError, match="starts"):
            dataset.get_batch([1], wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [8000, 16000, 11025])
def test_resampled_crops(shard: Path, rate: int) -> None:
    """A crop at another rate is that part of the whole, resampled."""
    made = AudioDataset(shard, features=features.Waveform(sample_rate=rate), clip_seconds=0.005, outputs=["start"])
    whole, found_rate = made.waveform(11, sample_rate=rate)
    assert (found_rate, whole.shape) == (rate, (1, -(-TINY_SAMPLES * rate // 8000)))
    for start in (0.0, 0.0031, 0.012):
        batch = made.get_batch([11], [start])
        first = round(start * rate)
        part = whole[0, first : first + batch["waveform"].shape[1]]
        assert batch["waveform"][0, : part.size].tobytes() == part.tobytes()


# Waveforms


def test_waveforms(dataset: AudioDataset) -> None:
    found, rate = dataset.waveform(6)
    assert (found.shape, found.dtype.name, rate) == ((1, TINY_SAMPLES), "float32", 8000)
    assert found[0].tobytes() == samples(6).tobytes()
    for start, seconds, first, end in (
        (0.005, None, 40, 160), (0.005, 0.005, 40, 80), (0.0, 9.0, 0, 160), (0.0199, 1e300, 159, 160), (0.0, 0.0, 0, 0),
    ):  # fmt: skip
        found, _ = dataset.waveform(-34, start, seconds)
        assert found[0].tobytes() == samples(6)[first:end].tobytes()
    assert dataset.info(6) == {"codec": "pcm", "sample_rate": 8000, "channels": 1, "n_samples": 160, "seconds": 0.02}


def test_waveforms_of_real_recordings(shards: list[Path], rows: list[Row]) -> None:
    """The samples are those of `decode`, whole and in part, for every codec and number of channels."""
    with AudioDataset(shards) as made:
        for at, row in enumerate(rows):
            whole, rate = forebay.decode(row.audio or b"")
            found, found_rate = made.waveform(at)
            assert (found.tobytes(), found_rate) == (whole.tobytes(), rate)
            info = made.info(at)
            assert (info["channels"], info["n_samples"]) == found.shape
            part, _ = made.waveform(at, 0.3, 0.2)
            first, n = round(0.3 * rate), round(0.2 * rate)
            assert part.tobytes() == np.atleast_2d(whole)[:, first : first + n].tobytes()


def test_wrong_waveforms(dataset: AudioDataset) -> None:
    for start in (0.02, 3):
        with pytest.raises(ConfigError, match=r", row 6: start is .*, must be at least 0.0 and below 0.02"):
            dataset.waveform(6, start)
    for keywords in ({"start": -1}, {"seconds": -0.1}, {"seconds": float("nan")}, {"start": float("inf")}):
        with pytest.raises(ConfigError, match="must be a number of seconds from 0 on"):
            dataset.waveform(6, **keywords)
    for rate in (0, -1, 768_001, 2**80):
        with pytest.raises(ConfigError, match=r"sample_rate is .*, must be 1 to 768000"):
            dataset.waveform(6, sample_rate=rate)
    for wrong in ({"start": "1"}, {"seconds": [1]}, {"sample_rate": 1.5}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))} is"):
            dataset.waveform(6, **wrong)


# Columns


@pytest.mark.parametrize("form", FORMS)
def test_columns(form: str, tmp_path: Path) -> None:
    site = pa.array([None if i % 4 == 1 else {"site": f"s{i}", "at": [i / 2, 0.5]} for i in range(N)],
                    pa.struct([("site", pa.string()), ("at", pa.list_(pa.float32(), 2))]))  # fmt: skip
    columns = {
        "n": pa.array(range(N), pa.int16()),
        "x": pa.array([None if i % 5 == 2 else i / 4 for i in range(N)], pa.float64()),
        "text": pa.array([f"row {i}" for i in range(N)]),
        "tags": pa.array([["a"] * (i % 3) for i in range(N)], pa.list_(pa.string())),
        "ragged": pa.array([[*range(i % 4)] for i in range(N)], pa.list_(pa.int32())),
        "meta": site,
        "label": pa.array([i % 2 for i in range(N)], pa.int64()),
    }
    path = write(tmp_path / "a", table(columns, {"label": {"_type": "ClassLabel", "names": ["owl", "wren"]}}), form)
    made = AudioDataset(path, **TINY, columns=["n", "text"])
    assert made.columns == {
        "audio": "audio", "n": "int16", "x": "float64", "text": "text", "tags": "lists of text",
        "ragged": "lists of int32", "meta.site": "text", "meta.at": "lists of 2 float32", "label": "int64",
    }  # fmt: skip
    assert made._classes == {"label": ["owl", "wren"]}
    for name in ("n", "x", "text", "tags", "ragged", "meta.site", "meta.at", "label", "audio.path"):
        with forebay.Loader(path, **TINY, columns=[name], label_column="", infinite=False, shuffle_min_size=0,
                            order="sequential", batch_size=64) as loader:  # fmt: skip
            [batch] = list(loader)
        found = made.column(name)
        assert type(found) is type(batch[name])
        assert repr(rows(found)) == repr(rows(batch[name])), name
        if isinstance(found, np.ndarray):
            assert found.dtype == batch[name].dtype
    few = AudioDataset(path, **TINY, sampling=sampling.Subset([3, 8, 21]))
    assert few.column("n").tolist() == [3, 8, 21]
    assert isinstance(few.column("ragged"), JaggedArray)
    for wrong in ("none", "meta.none"):
        with pytest.raises(ConfigError, match=f'there is no column "{wrong}"; the columns are'):
            made.column(wrong)
    with pytest.raises(ConfigError, match='column "audio" is'):
        made.column("audio")


def test_a_column_with_a_bad_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"\xff", b"good"]).cast(pa.binary())
    made = pa.table({"audio": table({"x": [1, 2, 3]})["audio"], "text": texts.view(pa.string())})
    dataset = AudioDataset(write(tmp_path / "a", made), **TINY)
    with pytest.raises(DecodeError, match=r", row 1: .*not UTF-8"):
        dataset.column("text")
    unsigned = table({"n": pa.array([1, None, 3], pa.uint8())})
    with pytest.raises(ConfigError, match=r"row 1: .*null"):
        AudioDataset(write(tmp_path / "b", unsigned), **TINY).column("n")


def test_a_selection_and_a_mixture(shard: Path, tiny_shards: list[Path]) -> None:
    few = AudioDataset(shard, **CLIP, sampling=sampling.Subset([3, 30, 9]), outputs=["row"])
    assert (len(few), few[:]["index"].tolist()) == (3, [3, 9, 30])
    assert few[[2, 0]]["row"].tolist() == [30, 3]
    assert "3 records of 40" in repr(few)
    with forebay.Loader(shard, **CLIP, n_samples=10, infinite=False, shuffle_min_size=0, augment=False) as loader:
        index = loader.plan(10).tolist()
    chosen = AudioDataset(shard, **CLIP, n_samples=10)
    assert all(chosen[at]["index"] == row for at, row in enumerate(index) if row != 7)
    mixed = AudioDataset({"a": shard, "b": tiny_shards[1:3]}, **CLIP)
    assert (len(mixed), mixed.source_names) == (160, ["a", "b"])
    assert mixed[[39, 40, 159]]["source"].tolist() == [0, 1, 1]


# Errors


def test_a_bad_record(dataset: AudioDataset, shard: Path) -> None:
    """The error names file and row; of several, it is the first that was asked for; other rows still work."""
    for call in (lambda: dataset[7], lambda: dataset[[1, 2, 7, 4]], lambda: dataset.waveform(7)):
        with pytest.raises(DecodeError, match=rf"^{shard}, row 7: "):
            call()
    assert dataset[8]["index"] == 8


def test_the_first_error_counts(tiny_shards: list[Path]) -> None:
    made = AudioDataset(tiny_shards, **TINY, n_threads=4)
    bad = [*range(7, 300, 20)]
    generator = np.random.default_rng(2)
    for _ in range(20):
        order = generator.permutation(300)
        first = next(int(row) for row in order if row in bad)
        with pytest.raises(DecodeError, match=rf"{tiny_shards[first // 60]}, row {first % 60}\b"):
            made.get_batch(order)


def test_a_shard_that_was_removed(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.arrow", tiny_rows(8))
    made = AudioDataset(shard, **TINY)
    shard.unlink()
    with pytest.raises(OSError, match=r"a\.arrow"):
        made[0]


def test_a_target_that_cannot_be_made(tmp_path: Path) -> None:
    path = write(tmp_path / "a", table({"n": pa.array([1, None, 3])}))
    made = AudioDataset(path, **TINY, targets=targets.Number("n"))
    assert made[2]["label"] == 3
    with pytest.raises(ConfigError, match=r"row 1: .*null"):
        made[[0, 1]]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_threads": 0}, "n_threads is 0, must be 1 to 1024"),
        ({"clip_seconds": -1, "n_threads": 5000}, "clip_seconds is -1.0.*; n_threads is 5000"),
        ({"outputs": ["when"]}, 'outputs has "when", must be one of'),
        ({"columns": ["none"]}, 'there is no column "none"'),
        ({"audio_column": "sound"}, 'audio_column is "sound", but there is no such column'),
        ({"targets": targets.ClassIndex("label"), "label_column": "label"}, "targets and label_column are given"),
        ({"n_samples": 3, "sampling": sampling.Subset(3)}, "n_samples and sampling are given"),
        ({"sampling": sampling.Subset([40])}, "the subset names row 40, must be 0 to 39"),
        ({"features": "whisper", "n_mels": 3}, "features and n_mels are given"),
        ({"seed": -1}, "seed is -1, must be 0 to"),
    ],
)
def test_wrong_parameters(shard: Path, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AudioDataset(shard, **keywords)


def test_wrong_calls(shard: Path) -> None:
    with pytest.raises(ConfigError, match="source is empty, must name at least one shard"):
        AudioDataset([])
    with pytest.raises(FileNotFoundError):
        AudioDataset("nothing.arrow")
    for name, advice in {
        "num_workers": "use n_threads instead", "shuffle": "a dataset has rows and no order",
        "crops": "did you mean crop?", "arrow_files": "use source instead",
    }.items():  # fmt: skip
        with pytest.raises(TypeError, match=advice):
            AudioDataset(shard, **{name: 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
        AudioDataset(shard, 5)  # type: ignore[call-arg, arg-type]
    with pytest.raises(ConfigError, match=r"a batch of .* MiB; at most 1048576 rows"):
        AudioDataset(shard, **CLIP).get_batch([0] * ((1 << 20) + 1))


# What it tells of itself


def test_views(shard: Path) -> None:
    made = AudioDataset(shard, **CLIP, crop=forebay.crops.Random(), seed=3, targets={"y": targets.ClassIndex("label")})
    assert repr(made) == "<forebay.AudioDataset: 40 records in 1 shard, [8, 3] float32>"
    assert made.class_names == CLASSES
    assert [field["name"] for field in made.fields] == ["spectrogram", "y", "index"]
    assert made.shards[0]["num_rows"] == 40
    recipe = str(made.recipe)
    assert "Random(), each 0.01 s at 8000 Hz" in recipe
    assert "seed" in recipe
    assert "order" not in recipe
    assert "batch" not in recipe
    values = json.loads(json.dumps(made.recipe.to_dict()))
    assert (values["crop"]["type"], values["clip_seconds"]) == ("Random", 0.01)
    assert made.recipe == pickle.loads(pickle.dumps(made)).recipe
    assert "seed" not in str(AudioDataset(shard, **CLIP).recipe)


def test_closing(dataset: AudioDataset) -> None:
    with dataset as same:
        assert same is dataset
        assert dataset[0]["index"] == 0
        assert "closed" not in repr(dataset)
    dataset.close()
    assert dataset.closed
    assert "closed" in repr(dataset)
    assert len(dataset) == 40
    for call in (lambda: dataset[0], lambda: dataset.waveform(0), lambda: dataset.column("label")):
        with pytest.raises(ForebayError, match="closed; make a new one"):
            call()
    assert len(copy.copy(dataset)[:5]["index"]) == 5


# Threads


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_any_number_of_threads(tiny_shards: list[Path], n_threads: int) -> None:
    good = [row for row in range(300) if row % 20 != 7]
    made = AudioDataset(tiny_shards, **TINY, n_threads=n_threads, outputs=["row", "shard", "start"])
    one = AudioDataset(tiny_shards, **TINY, n_threads=1, outputs=["row", "shard", "start"])
    order = np.random.default_rng(n_threads).permutation(good)
    assert alike(made.get_batch(order), one.get_batch(order))


def test_many_callers(tiny_shards: list[Path], soak: int) -> None:
    """Threads share a dataset, some of them with errors; another one reads columns."""
    made = AudioDataset(tiny_shards, **TINY, n_threads=3)
    expected = [digest(made.get_batch([row, row + 1])) for row in range(6)]

    def work(number: int) -> None:
        for turn in range(50 * soak):
            row = (number + turn) % 6
            assert digest(made.get_batch([row, row + 1])) == expected[row]
            if turn % 10 == 3:
                with pytest.raises(DecodeError):
                    made.get_batch([3, 7, 27])
            if turn % 25 == 9:
                assert len(made.column("label")) == 300

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


def test_closing_while_others_wait(tiny_shards: list[Path]) -> None:
    made = AudioDataset(tiny_shards, **TINY, n_threads=1)
    found: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                made.get_batch([*range(7)] * 2000)
        except ForebayError as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    made.close()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all("closed" in str(error) for error in found)


@pytest.mark.parametrize("form", ["zstd", "parquet", "plain"])
def test_rows_of_compressed_files(form: str, tmp_path: Path) -> None:
    """Where several rows are decompressed together, each has the same value in any batch."""
    path = write(tmp_path / "a", table({"n": range(N)}), form)
    made = AudioDataset(path, **TINY, columns=["n"], n_threads=2)
    whole = made[:]
    order = np.random.default_rng(0).integers(0, N, 100)
    batch = made.get_batch(order)
    assert batch["n"].tolist() == order.tolist()
    assert batch["spectrogram"].tobytes() == whole["spectrogram"][order].tobytes()
    assert alike(made[::-1], {name: values[::-1].copy() for name, values in whole.items()})


def test_a_rate_above_that_of_converters(tmp_path: Path) -> None:
    """FLAC can declare 1 048 575 Hz; `waveform` reads what `decode` reads, and resamples it."""
    data = (Path(__file__).parents[2] / "data/audio/players/flac_1048575.flac").read_bytes()
    (tmp_path / "fast.flac").write_bytes(data)
    dataset = AudioDataset(tmp_path, label_column="", **WAVEFORM)
    expected, rate = forebay.decode(data)
    found, found_rate = dataset.waveform(0)
    assert (found_rate, rate) == (1_048_575, 1_048_575)
    assert np.array_equal(found[0], expected)
    resampled, _ = dataset.waveform(0, sample_rate=48_000)
    assert resampled.shape[1] == -(-expected.size * 48_000 // rate)
    assert dataset[0]["waveform"].size == 80
