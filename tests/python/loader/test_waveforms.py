"""`audio=`: several recordings of a row, cut at the same samples."""

import io
import json
import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

import conformance
import forebay
from augmenting import Draws, bits_of
from conformance import conforms, spawned
from forebay import ConfigError, augment, batching, crops, features
from stems import AUDIO, LENGTHS, RATE, change, source, write_stems
from tables import write_tar
from windows import wav

WAVEFORM = features.Waveform(sample_rate=RATE)
GIVEN: dict[str, Any] = {
    "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 4, "n_workers": 2, "seed": 3,
    "audio": AUDIO, "shuffle_min_size": 0, "infinite": False, "order": "sequential",
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stems(tmp_path_factory.mktemp("stems"))


def batches(files: Any, **given: Any) -> list[dict[str, Any]]:
    return list(forebay.Loader(files, **{**GIVEN, **given}))


def floats(samples: np.ndarray) -> np.ndarray:
    return (samples / 32768).astype(np.float32)


PLACES: dict[str, dict[str, Any]] = {
    "random": {"crop": None},
    "center": {"augment": False},
    "start": {"crop": crops.Start()},
    "loudest": {"crop": crops.Loudest(of=4)},
    "windows": {"crop": crops.Windows(0.01)},
    "views": {"crop": crops.Views(3)},
    "whole": {"crop": crops.Whole(), "clip_seconds": 5.0},
}


@pytest.mark.parametrize("place", PLACES)
def test_the_sources_are_cut_where_the_mixture_is(table: Path, place: str) -> None:
    found = batches(table, **PLACES[place])
    assert {row for batch in found for row in batch["index"]} == set(range(len(LENGTHS)))
    for batch in found:
        assert "waveform" not in batch
        assert batch["mix"].shape == batch["s1"].shape == batch["s2"].shape
        assert batch["mix"].flags.c_contiguous
        assert batch["s1"].flags.c_contiguous
        np.testing.assert_array_equal(batch["mix"], batch["s1"] + batch["s2"])
        assert batch["s1"].any()


def test_whole_sources_are_their_files(table: Path) -> None:
    for batch in batches(table, crop=crops.Whole(), clip_seconds=5.0):
        assert set(batch) >= {"mix", "s1", "s2", "valid_samples"}
        for at, row in enumerate(batch["index"]):
            n = LENGTHS[row]
            assert batch["valid_samples"][at] == n
            for stem in (1, 2):
                found = batch[f"s{stem}"][at]
                np.testing.assert_array_equal(found[:n], floats(source(n, row, stem)))
                assert not found[n:].any()


def test_a_list_of_columns_is_one_field_with_an_axis(table: Path) -> None:
    named = batches(table)
    stacked = batches(table, audio={"mix": "mix", "stems": ["s1", "s2"]})
    alone = batches(table, audio={"stems": ["mix", "s1", "s2", "s1"]})
    for one, other, all_of_them in zip(named, stacked, alone, strict=True):
        rows, n = one["mix"].shape
        assert other["stems"].shape == (rows, 2, n)
        np.testing.assert_array_equal(other["mix"], one["mix"])
        np.testing.assert_array_equal(other["stems"], np.stack([one["s1"], one["s2"]], axis=1))
        both = np.stack([one["mix"], one["s1"], one["s2"], one["s1"]], axis=1)
        np.testing.assert_array_equal(all_of_them["stems"], both)


def test_a_recording_may_be_two_fields(table: Path) -> None:
    for batch in batches(table, audio={"one": "s1", "other": "s1", "two": "s2"}):
        np.testing.assert_array_equal(batch["one"], batch["other"])
        assert (batch["one"] != batch["two"]).any()


def test_fields_of_one_archive(table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Members that are no row of one column are rows of another, so none is called left out."""
    folder = table.parent
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.wav"))
    archive = write_tar(tmp_path / "audio.tar", [(str(name), (folder / name).read_bytes()) for name in names])
    expected, found = batches(table), batches(forebay.Manifest(table, root=archive))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name in ("index", "mix", "s1", "s2"):
            np.testing.assert_array_equal(one[name], other[name])
    assert not caplog.records


@pytest.mark.parametrize("place", ["random", "windows", "views", "whole"])
def test_features_of_each_field_are_those_of_its_waveform(table: Path, place: str) -> None:
    made = features.LogMel(sample_rate=RATE, n_mels=8, n_fft=64, hop_length=32)
    audio = {"mix": "mix", "stems": ["s1", "s2"]}
    pairs = zip(
        batches(table, **PLACES[place], audio=audio),
        batches(table, **PLACES[place], audio=audio, features=made),
        strict=True,
    )
    for waveforms, spectrograms in pairs:
        valid = waveforms.get("valid_samples", [waveforms["mix"].shape[-1]] * 10)
        for name in ("mix", "stems"):
            given, found = waveforms[name], spectrograms[name]
            assert found.ndim == given.ndim + 1
            for place_of in np.ndindex(given.shape[:-1]):
                alone = np.asarray(made(given[place_of][: valid[place_of[0]]]))
                np.testing.assert_array_equal(found[place_of][:, : alone.shape[1]], alone)
        if place == "whole":  # behind the end comes silence
            silence = made(np.zeros(RATE, np.float32))[0, 0]
            for row, n in enumerate(spectrograms["valid_frames"]):
                assert (spectrograms["mix"][row, :, n:] == silence).all()
                assert (spectrograms["stems"][row, :, :, n:] == silence).all()


def test_packed_and_bucketed_rows(table: Path) -> None:
    crop = {"crop": crops.Whole(), "clip_seconds": 5.0, "batch_size": 64}
    for packed in (True, False):
        found = batches(
            table, **crop, batching=batching.Buckets(0.2, num_buckets=2, packed=packed), order="global", n_streams=1
        )
        rows = []
        for batch in found:
            rows += batch["index"].tolist()
            np.testing.assert_array_equal(batch["mix"], batch["s1"] + batch["s2"])
            for at, row in enumerate(batch["index"]):
                n = LENGTHS[row]
                begin = batch["offsets"][at] if packed else 0
                s2 = (batch["s2"] if packed else batch["s2"][at])[begin : begin + n]
                np.testing.assert_array_equal(s2, floats(source(n, row, 2)))
        assert sorted(rows) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("rate", [4000, 11_025, 16_000])
def test_sources_are_resampled_with_one_phase(table: Path, rate: int) -> None:
    for batch in batches(table, features=features.Waveform(sample_rate=rate), clip_seconds=0.05):
        np.testing.assert_allclose(batch["mix"], batch["s1"] + batch["s2"], rtol=0, atol=2e-6)


def test_sources_of_another_rate_stay_aligned(tmp_path: Path) -> None:
    """The same sine at 8 and 24 kHz, cut anywhere: equal but for the resampler's error."""
    rows = []
    for row in range(6):
        for rate in (8000, 24_000):
            seconds = np.arange(rate) / rate
            sine = (12_000 * np.sin(2 * np.pi * 440 * seconds + row)).round().astype(int)
            (tmp_path / f"{row}-{rate}.wav").write_bytes(wav(sine, rate))
        rows.append({"low": f"{row}-8000.wav", "high": f"{row}-24000.wav"})
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for audio in ({"low": "low", "high": "high"}, {"high": "high", "low": "low"}):
        for batch in batches(table, audio=audio, clip_seconds=0.2, crop=crops.Random()):
            inner = slice(200, -200)
            np.testing.assert_allclose(batch["low"][:, inner], batch["high"][:, inner], rtol=0, atol=1e-3)


def test_codecs_may_differ(table: Path, tmp_path: Path) -> None:
    """FLAC beside WAV, in a clip far from the beginning: equal bits."""
    copied = write_stems(tmp_path / "copied")
    for row in range(len(LENGTHS)):
        samples, rate = soundfile.read(copied.parent / f"{row}-s1.wav", dtype="int16")
        soundfile.write(copied.parent / f"{row}-s1.flac", samples, rate)
        change(copied, row, s1=f"{row}-s1.flac")
    for one, other in zip(batches(table), batches(copied), strict=True):
        for name in AUDIO:
            np.testing.assert_array_equal(one[name], other[name])


def test_channels_are_kept_for_each(tmp_path: Path) -> None:
    rows = []
    for row in range(3):
        for stem in ("a", "b"):
            samples = np.random.default_rng([row, ord(stem)]).integers(-9000, 9000, (500, 2)).astype(np.int16)
            soundfile.write(tmp_path / f"{row}{stem}.wav", samples, RATE)
        rows.append({"a": f"{row}a.wav", "b": f"{row}b.wav"})
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stereo = features.Waveform(sample_rate=RATE, channels="all", n_channels=2)
    (batch,) = batches(table, audio={"stems": ["a", "b"], "a": "a"}, features=stereo, crop=crops.Start())
    assert batch["stems"].shape == (3, 2, 2, 160)
    for row in range(3):
        for at, stem in enumerate("ab"):
            expected = soundfile.read(tmp_path / f"{row}{stem}.wav", dtype="float32")[0][:160].T
            np.testing.assert_array_equal(batch["stems"][row, at], expected)
        np.testing.assert_array_equal(batch["a"][row], batch["stems"][row, 0])


def test_steps_do_the_same_to_all_waveforms_of_a_row(table: Path) -> None:
    """So a mixture stays the sum of its parts."""
    steps: list[Any] = [
        augment.Gain((-12, 6)), augment.Polarity(), augment.Roll(p=0.7), augment.Filter("lowpass", (500, 3000)),
        augment.Speed((0.8, 1.0, 1.25)),
    ]  # fmt: skip
    seen = set()
    for batch in batches(table, augment=steps, outputs=["gain_db", "speed"], clip_seconds=0.05):
        seen |= {*batch["gain_db"].tolist()}
        np.testing.assert_allclose(batch["mix"], batch["s1"] + batch["s2"], rtol=0, atol=3e-6)
    assert len(seen) == len(LENGTHS)


def test_reverberation_is_that_of_all(table: Path, tmp_path: Path) -> None:
    room = np.zeros(200, int)
    room[[0, 50, 120]] = 20_000, 9000, -4000
    (tmp_path / "room.wav").write_bytes(wav(room))
    for batch in batches(table, augment=[augment.Reverb(str(tmp_path))], clip_seconds=0.05):
        np.testing.assert_allclose(batch["mix"], batch["s1"] + batch["s2"], rtol=0, atol=3e-6)


def test_spectrogram_steps_mask_all_fields_alike(table: Path) -> None:
    made = features.LogMel(sample_rate=RATE, n_mels=8, n_fft=64, hop_length=32)
    steps = [augment.SpecAugment(3, 2, 0.4, 2, fill=-77.0)]
    masked = 0
    for batch in batches(table, augment=steps, features=made):
        where = batch["mix"] == -77.0
        masked += where.sum()
        assert (where == (batch["s1"] == -77.0)).all()
        assert (where == (batch["s2"] == -77.0)).all()
    assert masked


def test_unequal_lengths_are_bad_rows(tmp_path: Path) -> None:
    table = write_stems(tmp_path)
    for row, more in ((0, 1), (1, 2), (3, -1), (5, -300)):
        (tmp_path / f"{row}-s2.wav").write_bytes(wav(source(LENGTHS[row] + more, row, 2)))
    with forebay.Loader(table, **GIVEN | {"crop": crops.Whole(), "clip_seconds": 5.0}) as loader:
        assert [row for batch in loader for row in batch["index"]] == [0, 2, 3, 4]
        first, second = loader.errors()
    assert (first["index"], first["kind"], second["index"]) == (1, "corrupt", 5)
    assert 'column "s2"' in first["reason"]
    assert "0.0204 s as it is played, the first of its row 0.0201 s" in first["reason"]
    assert "equally long" in first["reason"]


def test_a_row_is_bad_if_one_of_its_recordings_is(tmp_path: Path) -> None:
    table = write_stems(tmp_path)
    (tmp_path / "0-s2.wav").write_bytes(b"no recording")
    (tmp_path / "1-mix.wav").write_bytes(b"")
    (tmp_path / "2-s1.wav").unlink()
    change(table, 3, s1=None)
    with forebay.Loader(table, **GIVEN, on_io_error="skip") as loader:
        assert [row for batch in loader for row in batch["index"]] == [4, 5]
        reasons = {error["index"]: error["reason"] for error in loader.errors()}
    assert set(reasons) == {0, 1, 2, 3}
    assert 'column "s2"' in reasons[0]
    assert 'column "s1"' in reasons[2]
    assert 'column "s1"' in reasons[3]
    with pytest.raises(forebay.DecodeError, match=r'row 0, "0-mix.wav": column "s2"'):
        batches(table, on_error="raise")


@pytest.mark.parametrize("speed", [0.95, 1.1])
def test_unlike_rates_are_played_at_one_speed(tmp_path: Path, speed: float) -> None:
    """By a ratio that is exact: over 12 s a rate that is rounded to whole hertz would be 5 samples off."""
    rates, rows = (8000, 11_025, 16_000), []
    for row in range(3):
        for rate in rates:
            seconds = np.arange(12 * rate) / rate
            sine = (9000 * np.sin(2 * np.pi * 300 * seconds + row)).round().astype(int)
            (tmp_path / f"{row}-{rate}.wav").write_bytes(wav(sine, rate))
        rows.append({str(rate): f"{row}-{rate}.wav" for rate in rates})
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for first in rates:
        names = sorted(map(str, rates), key=lambda name: name != str(first))
        (batch,) = batches(
            table, audio={name: name for name in names}, features=features.Waveform(sample_rate=16_000),
            clip_seconds=0.5, crop=crops.End(), augment=[augment.Speed((speed,))],
        )  # fmt: skip
        assert len(batch["index"]) == 3
        for name in names:
            difference = np.abs(batch[name] - batch[str(first)])[:, 200:-200]
            assert difference.max() < 2e-3


def test_segments_of_unlike_rates(tmp_path: Path) -> None:
    """A segment begins at a sample of each recording; no row is bad for that."""
    rows = []
    for rate in (8000, 11_025):
        (tmp_path / f"{rate}.wav").write_bytes(wav(source(10 * rate, 0, 1), rate))
    for start in np.random.default_rng(0).uniform(0, 8, 60):
        rows.append({"low": "8000.wav", "high": "11025.wav", "start": start, "end": start + 1.2345})
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for rate in (8000, 16_000, 48_000):
        made = features.Waveform(sample_rate=rate)
        found = batches(table, audio={"low": "low", "high": "high"}, features=made, clip_seconds=0.5)
        assert sum(len(batch["index"]) for batch in found) == 60


@pytest.mark.parametrize("name", ["bucket", "offsets", "valid_samples"])
def test_names_of_other_fields_are_refused(table: Path, name: str) -> None:
    given = {**GIVEN, "audio": {name: "mix", "other": "s1"}, "crop": crops.Whole(), "order": "global"}
    packed = batching.Buckets(3.0, packed=True)
    del given["batch_size"], given["clip_seconds"]
    with pytest.raises(ConfigError, match=f'two fields of a batch are named "{name}"'):
        forebay.Loader(table, **given, batching=packed)


def test_padding_of_the_others_stays_padding(table: Path) -> None:
    """Noise in one field fills its own padding, and what others are scaled by is their own samples alone."""
    scaled = features.Waveform(sample_rate=RATE, normalize_waveform="zscore")
    noisy = [augment.Only("mix", [augment.Noise((0, 5))])]
    for crop in (crops.Start(), crops.Windows(0.02, end="remainder")):
        given = {"features": scaled, "clip_seconds": 0.1, "crop": crop}
        for one, other in zip(batches(table, **given, augment=[]), batches(table, **given, augment=noisy), strict=True):
            np.testing.assert_array_equal(one["s1"], other["s1"])
            np.testing.assert_array_equal(one["s2"], other["s2"])
            assert (one["mix"] != other["mix"]).any()


def test_archives_are_refused(table: Path, tmp_path: Path) -> None:
    """Members that are missing would put recordings of other keys together."""
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        for member in ("0.mix.wav", "0.s1.wav", "1.mix.wav", "2.s1.wav"):
            tar.add(table.parent / "0-mix.wav", member)
    with pytest.raises(ConfigError, match=r"a\.tar is an archive.*audio has 2 recordings"):
        forebay.Loader(archive, **GIVEN | {"audio": {"mix": "mix.wav", "s1": "s1.wav"}})
    (batch,) = batches(archive, audio={"mix": "mix.wav"})
    assert batch["mix"].shape == (2, 160)


def test_a_column_of_a_dataset(table: Path) -> None:
    with forebay.AudioDataset(table, audio=AUDIO, features=WAVEFORM, clip_seconds=0.02) as dataset:
        assert list(dataset.column("label")) == list(range(len(LENGTHS)))


def test_wrong_parameters_are_told(table: Path) -> None:
    wrong_parameters: list[tuple[dict[str, Any], str]] = [
        ({"audio": {}}, "audio is empty"),
        ({"audio": {"stems": []}}, r'audio\["stems"\] is empty'),
        ({"audio": {"": "mix"}}, "empty name"),
        ({"audio": {"a": ["mix"] * 65}}, "65 recordings of a row, must have at most 64"),
        ({"audio_column": "mix"}, "audio and audio_column are given"),
        ({"audio": {"a": "mix", "b": "nothing"}}, "nothing"),
        ({"audio": {"label": "mix"}}, 'two fields of a batch are named "label"'),
        ({"audio": {"index": "mix"}}, 'two fields of a batch are named "index"'),
        ({"augment": [augment.Mixup()]}, r"Mixup, which mixes .*audio= gives a row several"),
    ]
    for given, message in wrong_parameters:
        with pytest.raises(ConfigError, match=message):
            forebay.Loader(table, **{**GIVEN, **given})
    for wrong in ("mix", ["mix"], 3, {"a": 3}, {3: "mix"}, {"a": [3]}):
        with pytest.raises(TypeError, match="audio"):
            forebay.Loader(table, **{**GIVEN, "audio": wrong})
    with pytest.raises(TypeError, match="audio"):
        forebay.Loader(table, stems={"a": "mix"})  # type: ignore[call-arg]


def shards(folder: Path, form: str) -> list[Path]:
    """Two shards of structs with bytes, of 6 rows."""
    made = []
    for part in range(2):
        columns: dict[str, Any] = {name: [] for name in AUDIO}
        for row in range(3 * part, 3 * part + 3):
            sources = [source(LENGTHS[row], row, 1), source(LENGTHS[row], row, 2)]
            for name, samples in zip(AUDIO, [sources[0] + sources[1], *sources], strict=True):
                columns[name].append({"bytes": wav(samples), "path": f"{row}-{name}.wav"})
        shard = pa.table({name: pa.array(values) for name, values in columns.items()})
        path = folder / f"{part}.{form}"
        if form == "parquet":
            pq.write_table(shard, path, row_group_size=2)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, shard.schema) as writer:
                writer.write_table(shard, max_chunksize=2)
        made.append(path)
    return made


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns_of_shards(table: Path, tmp_path: Path, form: str) -> None:
    files = shards(tmp_path, form)
    for order in ("sequential", "window", "global"):
        given = {"order": order, "shuffle_min_size": 4 if order == "window" else 0}
        found = batches(files, **given)
        assert sorted(row for batch in found for row in batch["index"]) == list(range(6))
        for batch in found:
            np.testing.assert_array_equal(batch["mix"], batch["s1"] + batch["s2"])
    for one, other in zip(batches(files), batches(table), strict=True):
        np.testing.assert_array_equal(one["s2"], other["s2"])


def test_a_mixture_of_tables(table: Path, tmp_path: Path) -> None:
    other = write_stems(tmp_path, [300, 300])
    found = batches({"a": table, "b": other}, order="global", stop="all_exhausted")
    assert {(part, row) for batch in found for part, row in zip(batch["source"], batch["index"], strict=True)} == {
        *((0, row) for row in range(6)), *((1, row) for row in (6, 7))
    }  # fmt: skip
    for batch in found:
        np.testing.assert_array_equal(batch["mix"], batch["s1"] + batch["s2"])


def test_segments_of_recordings(tmp_path: Path) -> None:
    table = write_stems(tmp_path)
    for row, n in enumerate(LENGTHS):
        change(table, row, start=n // 4 / RATE, end=n // 2 / RATE)
    for batch in batches(table, crop=crops.Whole(), clip_seconds=5.0):
        for at, row in enumerate(batch["index"]):
            n = LENGTHS[row]
            expected = floats(source(n, row, 1)[n // 4 : n // 2])
            np.testing.assert_array_equal(batch["s1"][at][: len(expected)], expected)
            assert batch["valid_samples"][at] == len(expected)


def test_a_dataset_has_the_same_rows(table: Path) -> None:
    given: dict[str, Any] = {
        "audio": {"mix": "mix", "stems": ["s1", "s2"]}, "features": WAVEFORM, "clip_seconds": 0.02,
    }  # fmt: skip
    with forebay.AudioDataset(table, **given) as dataset:
        row = dataset[2]
        assert row["stems"].shape == (2, 160)
        np.testing.assert_array_equal(row["mix"], row["stems"].sum(axis=0))
        batch = dataset.get_batch([5, 0], [0.03, 0.0])
        assert batch["stems"].shape == (2, 2, 160)
        np.testing.assert_array_equal(batch["stems"][0, 1], floats(source(700, 5, 2)[240:400]))
        loader = forebay.Loader(table, **{**GIVEN, **given, "crop": crops.Center(), "augment": True})
        assert dataset.fields == loader.fields


def test_what_a_loader_tells_of_them(table: Path) -> None:
    bits = features.LogMel(sample_rate=RATE, n_mels=8, n_fft=64, hop_length=32, dtype="bfloat16")
    audio = {"mix": "mix", "stems": ["s1", "s2"]}
    loader = forebay.Loader(table, **{**GIVEN, "audio": audio, "features": bits})
    described = {field["name"]: field for field in loader.fields}
    assert list(described)[:2] == ["mix", "stems"]
    assert described["stems"]["shape"] == (2, 8, 6)
    assert described["stems"]["dtype"] == described["mix"]["dtype"] == "bfloat16"
    assert 'columns "s1", "s2"' in described["stems"]["meaning"]
    assert loader.recipe.to_dict()["audio"] == audio
    assert "audio" in repr(loader.recipe)
    assert forebay.Loader(table, **{**GIVEN, "audio": AUDIO}).recipe != loader.recipe


def test_states_know_the_recordings(table: Path) -> None:
    given = {**GIVEN, "infinite": True, "order": "global"}
    state = forebay.Loader(table, **given).state_dict()
    for other in ({"mix": "mix", "s1": "s2", "s2": "s1"}, {"mix": "mix"}, {"mix": "mix", "s": ["s1", "s2"]}):
        with pytest.raises(forebay.StateError, match="audio"):
            forebay.Loader(table, **{**given, "audio": other}).load_state_dict(state)
    forebay.Loader(table, **given).load_state_dict(state)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as made:
        yield made


@pytest.fixture(scope="module")
def with_bad_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 rows, of which three have a bad recording each."""
    folder = tmp_path_factory.mktemp("bad")
    table = write_stems(folder, [200 + 37 * row % 300 for row in range(30)])
    for row, stem in ((7, "s1"), (17, "mix"), (27, "s2")):
        (folder / f"{row}-{stem}.wav").write_bytes(b"no recording")
    return table


@pytest.mark.parametrize("order", ["sequential", "global", "window", "windows", "steps"])
def test_they_keep_every_promise(
    order: str, with_bad_rows: Path, processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 8, "shuffle_min_size": 20, "n_workers": 2,
        "shuffle_buffer_size": 40, "infinite": True, "audio": {"mix": "mix", "stems": ["s1", "s2"]},
    }  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "sequential": {"order": "sequential"},
        "global": {"order": "global"},
        "window": {"order": "window", "targets": {"label": forebay.targets.Number("label")}},
        "windows": {"order": "global", "crop": crops.Windows(1.0)},
        "steps": {"order": "global", "augment": [augment.Gain((-6, 6)), augment.Speed((0.9, 1.0))]},
    }
    conforms(with_bad_rows, processes, tmp_path, **{**given, **changes[order]})


def test_groups_are_the_same_on_any_number_of_ranks(
    with_bad_rows: Path, processes: ProcessPoolExecutor, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 8, "order": "global", "infinite": True,
        "n_workers": 2, "audio": {"mix": "mix", "stems": ["s1", "s2"]}, "shuffle_buffer_size": 40,
        "shuffle_min_size": 20,
        "augment": [augment.Only("stems", [augment.Gain((-6, 6))]), augment.Remix(2)],
    }  # fmt: skip
    case = conformance.Case(with_bad_rows, given, processes, tmp_path)
    for check in (conformance.workers, conformance.ranks, conformance.resume, conformance.replay_and_plan,
                  conformance.pickling, conformance.spawn, conformance.bad_records, conformance.budget):  # fmt: skip
        check(case)


def test_opus_and_flac_begin_together(tmp_path: Path) -> None:
    """A click is at the same sample in all of them."""
    samples = np.zeros(48_000, np.float32)
    samples[24_000:24_020] = 0.8
    for name, form in (("wav", {}), ("flac", {}), ("ogg", {"format": "OGG", "subtype": "OPUS"}), ("mp3", {})):
        file = io.BytesIO()
        soundfile.write(file, samples, 48_000, format=form.get("format", name.upper()), subtype=form.get("subtype"))
        (tmp_path / f"click.{name}").write_bytes(file.getvalue())
    row = {name: f"click.{name}" for name in ("wav", "flac", "ogg", "mp3")}
    table = tmp_path / "rows.jsonl"
    table.write_text(json.dumps(row) + "\n")
    (batch,) = batches(
        table, audio={name: name for name in row}, features=features.Waveform(sample_rate=48_000),
        clip_seconds=0.5, crop=crops.Center(),
    )  # fmt: skip
    peaks = {name: int(np.abs(batch[name][0]).argmax()) for name in row}
    assert all(12_000 - 2 <= peak < 12_022 for peak in peaks.values()), peaks


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("noise")
    for row in range(4):
        (folder / f"{row}.wav").write_bytes(wav(source(900, row, 9)))
    return str(folder)


def test_a_step_for_one_field_leaves_the_others(table: Path, noise: str) -> None:
    """The same recording, with noise and without; the noise has the level that is asked for."""
    audio = {"noisy": ["s1"], "clean": "s1"}
    steps = [augment.Only("noisy", [augment.Mix(noise, snr_db=(0, 20))])]
    clean = batches(table, audio={"clean": "s1"}, augment=[])
    found = batches(table, audio=audio, augment=steps, outputs=["mix_snr_db", "mix_index"])
    for one, other in zip(clean, found, strict=True):
        np.testing.assert_array_equal(other["clean"], one["clean"])
        assert (other["mix_index"] >= 0).all()
        for row, snr in enumerate(other["mix_snr_db"]):
            added = other["noisy"][row, 0] - other["clean"][row]
            valid = np.flatnonzero(other["clean"][row])
            level = np.sqrt(np.mean(np.square(other["clean"][row][: valid.max() + 1], dtype=np.float64)))
            reached = 20 * np.log10(level / np.sqrt(np.mean(np.square(added, dtype=np.float64))))
            assert reached == pytest.approx(snr, abs=0.01)
    # The draws are those of the step alone.
    alone = batches(table, audio=None, audio_column="s1", augment=steps[0].steps, outputs=["mix_snr_db", "mix_index"])
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_array_equal(one["waveform"], other["noisy"][:, 0])
        np.testing.assert_array_equal(one["mix_index"], other["mix_index"])


def test_steps_of_several_fields(table: Path) -> None:
    """Each changes its own; what is after an Only is for all again."""
    steps: list[Any] = [
        augment.Only("s1", [augment.Gain(6.0), augment.Polarity(p=1.0)]),
        augment.Only("s2", [augment.Gain(-6.0), augment.Roll((0.1, 0.4))]),
        augment.Gain(-20.0),
    ]  # fmt: skip
    for one, other in zip(batches(table, augment=[]), batches(table, augment=steps), strict=True):
        np.testing.assert_allclose(other["mix"], 0.1 * one["mix"], rtol=1e-5)
        np.testing.assert_allclose(other["s1"], -0.1 * 10**0.3 * one["s1"], rtol=1e-5)
        energy = [np.square(0.1 * one["s2"], dtype=np.float64).sum() * 10**-0.6, np.square(other["s2"]).sum()]
        assert energy[1] == pytest.approx(energy[0], rel=1e-5)


def test_only_in_words_and_json(table: Path, noise: str) -> None:
    only = augment.Only("noisy", [augment.Mix(noise, snr_db=(0, 20)), augment.Gain(3.0, p=0.5)])
    assert augment.Only.from_dict(json.loads(json.dumps(only.to_dict()))) == only
    assert eval(repr(only), vars(augment)) == only
    audio = {"noisy": "s1", "clean": "s1"}
    with forebay.Loader(table, **GIVEN | {"audio": audio, "augment": [only, augment.Polarity()]}) as loader:
        copied = forebay.Loader.__reduce__(loader)
        assert repr(copied).count("Only") >= 1
        assert loader.recipe.to_dict()["augment"][0]["field"] == "noisy"


def test_a_wrong_only_is_told(table: Path, noise: str) -> None:
    mix = augment.Mix(noise, snr_db=3.0)
    wrong_lists: list[tuple[dict[str, Any], str]] = [
        ({"augment": [augment.Only("nobody", [mix])]}, r'Only\("nobody", ...\), must be a name of audio'),
        ({"augment": [augment.Only("mix", [mix])], "audio": None, "audio_column": "mix"}, "audio= names no waveforms"),
        ({"augment": [mix]}, r'Mix, which adds a sound.*Only\("mix", \[Mix'),
        ({"augment": [augment.Noise((0, 10))]}, r"Noise, which adds a sound"),
    ]
    for given, message in wrong_lists:
        with pytest.raises(ConfigError, match=message):
            forebay.Loader(table, **{**GIVEN, **given})
    wrong_steps: list[tuple[list[Any], str]] = [
        ([], "0 steps"),
        ([augment.Speed((0.9, 1.1))], "Speed, which changes all waveforms"),
        ([augment.SpecAugment()], "SpecAugment, which changes all waveforms or features"),
        ([augment.Mixup()], "Mixup, which changes all"),
        ([augment.OneOf([augment.Gain()])], "steps has a OneOf"),
        ([augment.Only("a", [augment.Gain()])], "steps has an Only"),
    ]
    for steps, message in wrong_steps:
        with pytest.raises(ConfigError, match=message):
            augment.Only("a", steps)
    with pytest.raises(ConfigError, match="steps has an Only at position 0"):
        augment.OneOf([augment.Only("a", [augment.Gain()])])
    for field, wrong in (("a", "Gain"), (3, [augment.Gain()]), ("a", [3]), ("a", augment.Gain())):
        with pytest.raises(TypeError):
            augment.Only(field, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="steps has an Only"):
        augment.apply([augment.Only("a", [augment.Gain()])], np.ones(100, np.float32), RATE)


def test_waveforms_are_exchanged_within_groups(table: Path, tmp_path: Path) -> None:
    """By the permutations that docs/determinism.md has."""
    table = write_stems(tmp_path, [200 + 37 * row % 300 for row in range(34)])
    audio = {"stems": ["s1", "s2"], "mix": "mix"}
    given = {"audio": audio, "order": "global", "batch_size": 12, "crop": crops.Start(), "seed": 8}
    exchanged = 0
    for one, other in zip(
        batches(table, **given, augment=[]), batches(table, **given, augment=[augment.Remix(3, p=0.7)]), strict=True
    ):
        expected = {"stems": one["stems"].copy(), "mix": one["mix"].copy()}
        np.testing.assert_array_equal(one["index"], other["index"])
        for first in range(0, len(one["index"]) - 2, 3):
            draws = Draws(bits_of(8, int(one["index"][first])), "Remix")
            if draws.first >= 0.7:
                continue
            exchanged += 1
            for waveforms in (expected["stems"][:, 0], expected["stems"][:, 1], expected["mix"]):
                for last in (2, 1):
                    with_ = draws.below(last + 1)
                    waveforms[[first + last, first + with_]] = waveforms[[first + with_, first + last]]
        np.testing.assert_array_equal(other["stems"], expected["stems"])
        np.testing.assert_array_equal(other["mix"], expected["mix"])
    assert 3 <= exchanged <= 11


def test_each_waveform_is_used_once(table: Path, tmp_path: Path) -> None:
    table = write_stems(tmp_path, [300] * 32)
    given = {"audio": {"s1": "s1", "s2": "s2"}, "order": "global", "batch_size": 16}
    alone, mixed = (batches(table, **given, augment=steps) for steps in ([], [augment.Remix()]))
    apart = 0
    for one, other in zip(alone, mixed, strict=True):
        found = []
        for name in ("s1", "s2"):
            rows = [row.tobytes() for row in one[name]]
            places = [rows.index(row.tobytes()) for row in other[name]]
            assert sorted(places) == list(range(16))
            assert all(place // 4 == at // 4 for at, place in enumerate(places))
            found.append(places)
        apart += sum(first != second for first, second in zip(*found, strict=True))
    assert apart > 16


def test_a_wrong_remix_is_told(table: Path) -> None:
    remix = augment.Remix()
    wrong_lists: list[tuple[dict[str, Any], str]] = [
        ({"audio": None, "audio_column": "mix", "augment": [remix]}, "Remix, which exchanges the waveforms of rows"),
        ({"augment": [augment.Remix(3)]}, r"Remix\(group=3\), and batch_size is 4, which must be a multiple"),
        ({"augment": [remix], "crop": crops.Whole(), "clip_seconds": 5.0}, "crop is Whole"),
        ({"augment": [remix], "crop": crops.Views(2)}, "Views"),
        ({"augment": [remix, augment.Remix(2)]}, "Remix twice"),
    ]
    for given, message in wrong_lists:
        with pytest.raises(ConfigError, match=message):
            forebay.Loader(table, **{**GIVEN, **given})
    for group in (0, 1, 1025):
        with pytest.raises(ConfigError, match="group is"):
            augment.Remix(group)
    with pytest.raises(ConfigError, match="Remix"):
        augment.apply([remix], np.ones(100, np.float32), RATE)
    with pytest.raises(ConfigError, match="Remix, which changes all"):
        augment.Only("mix", [remix])
