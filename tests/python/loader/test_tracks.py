"""`track=`: one of several audio tracks of a file."""

import json
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

import conformance
import forebay
from augmenting import wav
from conformance import spawned
from forebay import ConfigError, DecodeError, StateError, augment, cache, crops, features
from forebay.cli import check as cli_check
from forebay.cli import check_report
from paths import DATA

TRACKS = DATA / "audio/tracks"
STEMS = TRACKS / "stems.mp4"
RATE = 16000
NAMES = {"mixture": 0, "low": 1, "high": 2}
GIVEN: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE), "clip_seconds": 0.25, "batch_size": 2, "n_workers": 2, "seed": 3,
    "shuffle_min_size": 0, "infinite": False, "order": "sequential", "on_error": "raise",
}  # fmt: skip
STACKED: dict[str, Any] = {
    "audio": {"mixture": "path", "parts": ["path", "path"]},
    "track": {"mixture": 0, "parts": [1, 2]},
}


def padded(to: Path, n: int) -> Path:
    """The file of stems with `n` bytes more, in a box that readers skip."""
    to.write_bytes(STEMS.read_bytes() + (8 + n).to_bytes(4, "big") + b"free" + bytes(n))
    return to


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rows: files that are read whole, and files that are read by ranges."""
    folder = tmp_path_factory.mktemp("tracks")
    for row in range(5):
        padded(folder / f"{row}.mp4", 400_000 * (row % 2))
    path = folder / "stems.csv"
    path.write_text("path\n" + "".join(f"{row}.mp4\n" for row in range(5)))
    return path


def decoded(track: int | None) -> np.ndarray:
    samples, rate = forebay.decode(STEMS.read_bytes(), track=track)
    assert rate == RATE
    return samples


def batches(files: Any, **given: Any) -> list[dict[str, Any]]:
    return list(forebay.Loader(files, **{**GIVEN, **given}))


def test_decode_takes_a_track() -> None:
    whole = [decoded(track) for track in range(5)]
    assert len({samples.tobytes() for samples in whole}) == 5
    np.testing.assert_array_equal(decoded(None), whole[0])
    for name, usual in (("tracks.mp4", 0), ("tracks.mkv", 1)):
        data = (TRACKS / name).read_bytes()
        usual_samples, rate = forebay.decode(data)
        found, found_rate = forebay.decode(data, track=usual)
        assert rate == found_rate
        np.testing.assert_array_equal(usual_samples, found)
    with pytest.raises(DecodeError, match=r"track is 5, and the recording .mp4. has no such track: the 5 audio"):
        decoded(5)
    with pytest.raises(DecodeError, match="ac-3"):
        forebay.decode((TRACKS / "tracks.mp4").read_bytes(), track=3)
    with pytest.raises(ConfigError, match="track is -1, must be 0 to 65535"):
        decoded(-1)
    with pytest.raises(TypeError, match=r"track is 'low' .type str., must be an int"):
        forebay.decode(STEMS.read_bytes(), track="low")  # type: ignore[arg-type]


@pytest.mark.parametrize("track", [None, 0, 1, 2])
def test_a_loader_of_one_track(table: Path, track: int | None) -> None:
    for batch in batches(table, track=track, crop=crops.Whole(), clip_seconds=5.0):
        for waveform in batch["waveform"]:
            np.testing.assert_array_equal(waveform, decoded(track))


def test_the_same_column_with_unlike_tracks(table: Path) -> None:
    given: dict[str, Any] = {"audio": dict.fromkeys(NAMES, "path"), "track": NAMES, "crop": None}
    whole = {name: decoded(track) for name, track in NAMES.items()}
    for batch in batches(table, outputs=["start"], **given):
        for at, start in enumerate(batch["start"]):
            first = round(start * RATE)
            for name, samples in whole.items():
                np.testing.assert_array_equal(batch[name][at], samples[first : first + RATE // 4])


def test_stacked_tracks_of_a_column(table: Path) -> None:
    alone = batches(table, audio=dict.fromkeys(NAMES, "path"), track=NAMES)
    for stacked, batch in zip(batches(table, **STACKED), alone, strict=True):
        np.testing.assert_array_equal(stacked["mixture"], batch["mixture"])
        np.testing.assert_array_equal(stacked["parts"], np.stack([batch["low"], batch["high"]], axis=1))
    # One number is that of all, and names that are left out have the usual track.
    for same, batch in zip(batches(table, audio={"a": "path", "b": "path"}, track=2), alone, strict=True):
        np.testing.assert_array_equal(same["a"], batch["high"])
        np.testing.assert_array_equal(same["b"], batch["high"])
    usual = batches(table, audio=dict.fromkeys(NAMES, "path"), track={"low": 1, "high": 2})
    for one, other in zip(usual, alone, strict=True):
        np.testing.assert_array_equal(one["mixture"], other["mixture"])


def test_shards_and_datasets(table: Path, tmp_path: Path) -> None:
    shard = tmp_path / "a.arrow"
    rows = pa.table({"audio": [{"bytes": STEMS.read_bytes(), "path": "a.mp4"}] * 3})
    with pa.OSFile(str(shard), "wb") as file, pyarrow.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1)
    given: dict[str, Any] = {"crop": crops.Whole(), "clip_seconds": 5.0, "label_column": ""}
    for batch in batches(shard, audio={"mixture": "audio", "high": "audio"}, track={"high": 2}, **given):
        np.testing.assert_array_equal(batch["mixture"][0], decoded(0))
        np.testing.assert_array_equal(batch["high"][0], decoded(2))
    with forebay.AudioDataset(table, features=None, sample_rate=RATE, track=2) as data:
        np.testing.assert_array_equal(data.waveform(1)[0][0], decoded(2))
        assert data.recipe.to_dict()["track"] == 2


def test_own_rows_are_mixed_from_the_track(table: Path) -> None:
    """The rows that a `Mix` takes from the loader have the loader's track."""
    step = augment.Mix(snr_db=0.0)
    [mixed] = batches(table, track=1, augment=[step], batch_size=5, n_workers=1)
    [plain] = batches(table, track=1, augment=False, batch_size=5, n_workers=1)
    times = np.arange(RATE // 4) / RATE
    for hertz in (1000.0, 1500.0):
        level = np.abs(mixed["waveform"] @ np.exp(-2j * np.pi * hertz * times)).max() / len(times)
        assert level < 0.01
    assert np.abs(mixed["waveform"]).max() > np.abs(plain["waveform"]).max()


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as made:
        yield made


def test_ranks_resume_and_replay(processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Of 30 rows two are bad: one names a file without the track, one no recording."""
    shutil.copy(DATA / "recordings/rugr_drum.wav", tmp_path / "7.wav")
    (tmp_path / "17.mp4").write_bytes(b"no recording")
    shutil.copy(STEMS, tmp_path / "stems.mp4")
    names = {7: "7.wav", 17: "17.mp4"}
    path = tmp_path / "stems.csv"
    path.write_text("path\n" + "".join(f"{names.get(row, 'stems.mp4')}\n" for row in range(30)))
    given: dict[str, Any] = {
        **STACKED, "features": GIVEN["features"], "clip_seconds": 0.02, "batch_size": 8, "order": "global",
        "infinite": True, "n_workers": 2, "shuffle_buffer_size": 40, "shuffle_min_size": 20,
    }  # fmt: skip
    case = conformance.Case(path, given, processes, tmp_path)
    assert case.bad == {7, 17}
    for check in (conformance.workers, conformance.ranks, conformance.resume, conformance.replay_and_plan,
                  conformance.pickling, conformance.bad_records):  # fmt: skip
        check(case)


def test_the_state_names_other_tracks(table: Path) -> None:
    def state(**given: Any) -> dict[str, Any]:
        with forebay.Loader(table, **{**GIVEN, **given}) as loader:
            found: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
            return found

    saved = state(track=1)
    with forebay.Loader(table, **GIVEN, track=1) as loader:
        loader.load_state_dict(saved)
    for other in (None, 2):
        with forebay.Loader(table, **GIVEN, track=other) as loader, pytest.raises(forebay.StateError, match="track"):
            loader.load_state_dict(saved)
    # As before there was a choice.
    assert "track" not in json.dumps(state())


def test_indexes_are_of_a_track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index on disk is that of a file and a track."""
    from forebay.cli import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "files"
    folder.mkdir()
    padded(folder / "a.mp4", 400_000)
    for arguments in ([], ["--track", "0"], ["--track", "2"]):
        assert main(["index", str(folder), *arguments]) == 0
    assert len(list((tmp_path / "cache/forebay/index").iterdir())) == 3
    for track in (None, 0, 1, 2):
        with forebay.Loader(folder, **{**GIVEN, "crop": crops.Whole(), "clip_seconds": 5.0}, track=track) as loader:
            np.testing.assert_array_equal(next(loader)["waveform"][0], decoded(track))


def test_bad_tracks(table: Path) -> None:
    audio = dict.fromkeys(NAMES, "path")
    for given, message in (
        ({"track": -1}, "track is -1, must be 0 to 65535"),
        (
            {"track": {"low": 1}},
            "track is a dict, whose names are those of audio, and audio names none",
        ),
        ({"audio": audio, "track": {"bass": 1}}, "track has 'bass'|track has \"bass\", must have names of audio"),
        ({"audio": audio, "track": {"low": 70_000}}, "low.. is 70000, must be 0 to 65535"),
        ({"audio": audio, "track": {"low": [1]}}, "has 1 in a list, must be one number, since it has one column"),
        ({**STACKED, "track": {"parts": [1]}}, "has 1 in a list, must be a number, or 2 for its columns"),
    ):
        with pytest.raises(ConfigError, match=message):
            forebay.Loader(table, **GIVEN, **given)
    with pytest.raises(TypeError, match=r"track is 'low' .type str., must be an int, or a dict"):
        forebay.Loader(table, **{**GIVEN, "track": "low"})
    with pytest.raises(DecodeError, match=r"track is 7, and the recording .mp4. has no such track"):
        batches(table, track=7)
    with pytest.raises(DecodeError, match=r'column "path", track 5: .*no such track: the 5 audio tracks have'):
        batches(table, audio=audio, track={"low": 5})


def test_tracks_of_unlike_lengths_and_formats_without(tmp_path: Path) -> None:
    shutil.copy(TRACKS / "tracks.mp4", tmp_path / "a.mp4")
    table = tmp_path / "a.csv"
    table.write_text("file_name\na.mp4\n")
    with pytest.raises(DecodeError, match=r'column "file_name", track 1: .*must be equally long'):
        batches(table, audio=dict.fromkeys("ab", "file_name"), track={"b": 1})
    other = tmp_path / "wav"
    other.mkdir()
    shutil.copy(DATA / "recordings/rugr_drum.wav", other)
    assert len(batches(other, track=0)) == 1
    with pytest.raises(DecodeError, match=r"track is 1, and the recording .wav. has no such track: the one audio"):
        batches(other, track=1)


def as_float_wavs(folder: Path) -> Path:
    """The decoded samples of the second track, in a file for each of the table's."""
    folder.mkdir()
    for row in range(5):
        (folder / f"{row}.wav").write_bytes(wav(decoded(1), RATE))
    return folder


@pytest.mark.parametrize("step", [lambda source: augment.Mix(source, weight=1), augment.Reverb], ids=["mix", "reverb"])
def test_a_step_reads_a_track(step: Any, table: Path, tmp_path: Path) -> None:
    """The second track is read as files with its samples are."""

    def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
        pairs = zip(one, other, strict=True)
        return all(np.array_equal(batch["waveform"], its["waveform"]) for batch, its in pairs)

    others = as_float_wavs(tmp_path / "wavs")
    made = [replace(step(table), track=1), step(others), step(table)]
    of_track, of_files, usual = (batches(table, augment=[one]) for one in made)
    assert same(of_track, of_files)
    assert not same(of_track, usual)
    # As before there was a choice.
    assert [one.to_dict().get("track") for one in made] == [1, None, None]
    assert "track" not in made[1].to_dict()
    for one in made:
        assert type(one).from_dict(one.to_dict()) == pickle.loads(pickle.dumps(one)) == one

    def state(one: Any) -> Any:
        with forebay.Loader(table, **GIVEN, augment=[one]) as loader:
            return loader.state_dict()

    with forebay.Loader(table, **GIVEN, augment=[made[0]]) as loader:
        loader.load_state_dict(state(made[0]))
        for other in (made[2], replace(made[0], track=2)):
            with pytest.raises(StateError, match="augment"):
                loader.load_state_dict(state(other))


def test_bad_tracks_of_steps(table: Path) -> None:
    for track, message in ((-1, "track is -1, must be 0 to 65535"), (70_000, "track is 70000, must be 0 to 65535")):
        with pytest.raises(ConfigError, match=message):
            augment.Mix(table, track=track, weight=1)
    with pytest.raises(TypeError, match=r"track is 'low' .type str., must be an int"):
        augment.Reverb(table, track="low")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="track is that of source, which is None"):
        augment.Mix(track=1, weight=1)
    with forebay.Loader(table, **GIVEN, augment=[augment.Mix(table, track=7, weight=1)]) as loader:
        assert len(list(loader)) == 3
        reasons = [error["reason"] for error in loader.partner_errors()]
    assert reasons
    assert all("track is 7, and the recording (mp4) has no such track" in reason for reason in reasons)


def test_a_cache_of_a_track(table: Path, tmp_path: Path) -> None:
    def built(track: int | None, name: str) -> Any:
        return cache.build(table, cache.Features(GIVEN["features"], track=track), tmp_path / name)

    for track in (None, 2):
        store = built(track, str(track))
        assert len(store) == 5
        for row in range(5):
            np.testing.assert_array_equal(store[row]["waveform"], decoded(track))
    # The same is found again, and another one is refused.
    built(2, "2")
    for other, name in ((1, "2"), (2, "None"), (None, "2")):
        with pytest.raises(StateError, match="made with other parameters: track was"):
            built(other, name)
    with pytest.raises(ConfigError, match="track is -1, must be 0 to 65535"):
        built(-1, "x")
    with pytest.raises(DecodeError, match=r"track is 7, and the recording .mp4. has no such track"):
        built(7, "y")


def test_a_cache_knows_its_column(tmp_path: Path) -> None:
    def built(column: str) -> Any:
        return cache.build(shard, cache.Features(GIVEN["features"], audio_column=column), tmp_path / "cache")

    shard = tmp_path / "a.arrow"
    rows = pa.table({"a": [STEMS.read_bytes()], "b": [STEMS.read_bytes()]})
    with pa.OSFile(str(shard), "wb") as file, pyarrow.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    built("a")
    with pytest.raises(StateError, match=r"audio_column was .*a.* and is .*b"):
        built("b")
    ledger = tmp_path / "cache/train/shard_ledger.json"
    given = json.loads(ledger.read_text())
    # Caches of before don't say.
    del given["metadata"]["preprocessor_metadata"]["audio_column"]
    ledger.write_text(json.dumps(given))
    built("b")


def test_commands_take_a_track(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from forebay.cli import main

    shutil.copy(TRACKS / "tracks.mkv", tmp_path / "a.mkv")
    for track, code, codec in (("0", 0, "flac"), ("1", 0, "opus"), ("3", 1, "")):
        report = tmp_path / f"report{track}"
        assert main(["check", str(tmp_path / "a.mkv"), "--track", track, "-o", str(report)]) == code
        assert codec in report.with_suffix(".csv").read_text()
    assert main(["inspect", str(tmp_path / "a.mkv"), "--track", "0", "--row", "0"]) == 0
    assert "11025" in capsys.readouterr().out.replace(" ", "").replace(",", "")
    with pytest.raises(SystemExit, match="2"):
        main(["check", str(tmp_path / "a.mkv"), "--track", "-2", "-o", str(tmp_path / "r")])
    assert "--track is -2, must be 0 to 65535" in capsys.readouterr().err


def test_a_report_is_of_its_track(tmp_path: Path) -> None:
    """A recording whose other track is bad would be left out silently."""
    for name, file in (("a.mkv", "tracks.mkv"), ("b.mp4", "stems.mp4")):
        shutil.copy(TRACKS / file, tmp_path / name)
    table = tmp_path / "rows.csv"
    table.write_text("path\na.mkv\nb.mp4\n")
    for track in (None, 3):
        cli_check.check([table], tmp_path / f"report{track}", track=track)

    def rows(track: Any, report: int | None, **given: Any) -> int:
        given = {"order": "sequential", "features": GIVEN["features"], "clip_seconds": 0.1, "batch_size": 2, **given}
        exclude = tmp_path / f"report{report}.json"
        with forebay.Loader(table, track=track, exclude=exclude, infinite=False, drop_last=False, **given) as loader:
            return sum(len(batch["index"]) for batch in loader)

    assert (rows(None, None), rows(3, 3)) == (2, 1)
    told = r"report3\.json is of track=3, and the loader has {}; run `forebay check` with {}"
    with pytest.raises(ConfigError, match=told.format("track=0", "--track 0")):
        rows(0, 3)
    with pytest.raises(ConfigError, match=told.format("no track=", "no --track")):
        rows(None, 3)
    with pytest.raises(ConfigError, match=r"reportNone\.json is of no track=, and the loader has track=3"):
        rows(3, None)
    # A row of several recordings is bad as a whole.
    assert rows({"low": 1, "other": 3}, 3, audio={"low": "path", "other": "path"}) == 1


def test_a_check_continues_with_its_track(tmp_path: Path) -> None:
    shutil.copy(TRACKS / "stems.mp4", tmp_path / "b.mp4")
    for begun, other, told in (
        (2, None, "was started with --track 2; pass that again"),
        (None, 2, "was started without --track; leave it out"),
        (2, 1, "was started with --track 2; pass that again"),
    ):
        report = tmp_path / f"report{begun}{other}"
        cli_check.check([tmp_path / "b.mp4"], report, track=begun)
        # As an interrupted run leaves it.
        shards = json.loads(report.with_suffix(".json").read_text())["shards"]
        parts = check_report.Files(report)
        parts.named(".json.tmp").write_text(json.dumps({"begun_by": "forebay check", "shards": shards, "track": begun}))
        report.with_suffix(".csv").rename(parts.named(".csv.tmp"))
        report.with_suffix(".json").unlink()
        with pytest.raises(ConfigError, match=told):
            cli_check.check([tmp_path / "b.mp4"], report, track=other)
        assert cli_check.check([tmp_path / "b.mp4"], report, track=begun).records == 1
