"""Mistakes that cost an afternoon if nothing is said: joined labels, cut texts, other rates, tables of events."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import forebay
from forebay import augment, crops, recipes, sampling, targets
from forebay._annotations import read
from recordings import TINY, tiny_rows

JOINED = ["owl", "owl;wren", "wren; jay", "jay", "owl;jay", "wren"]


def _recordings(folder: Path, n: int) -> list[bytes]:
    folder.mkdir(exist_ok=True)
    audio = [row.audio or b"" for row in tiny_rows(n)]
    for number, one in enumerate(audio):
        (folder / f"{number}.wav").write_bytes(one)
    return audio


def _table(folder: Path, labels: list[str]) -> Path:
    _recordings(folder, len(labels))
    table = folder / "labels.csv"
    table.write_text("path,species\n" + "".join(f"{at}.wav,{label}\n" for at, label in enumerate(labels)))
    return table


def _warnings(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


@pytest.mark.parametrize(
    "parameters",
    [
        {"label_column": "species"},
        {"targets": {"label": targets.MultiHot("species", classes="data")}},
        {"targets": {"label": targets.ClassIndex("species", classes="data")}},
    ],
)
def test_joined_labels_are_told(parameters: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with forebay.Loader.eval(_table(tmp_path / "a", JOINED), **parameters, **TINY):
        [told] = _warnings(caplog, "contain ';'")
    assert '3 of the 6 classes of column "species"' in told
    assert 'separator=";"' in told


@pytest.mark.parametrize("kind", [targets.ClassIndex, targets.MultiHot])
def test_joined_labels_beside_given_classes(kind: Any, tmp_path: Path) -> None:
    """To leave them out as unknown would be the trap."""
    table = _table(tmp_path / "a", JOINED)
    told = r'"owl;wren", which is no class: .*; it joins several classes: use MultiHot\("species", ..., separator=";"\)'
    with pytest.raises(forebay.ConfigError, match=told):
        list(forebay.Loader.eval(table, targets={"label": kind("species", classes=["owl", "wren", "jay"])}, **TINY))


@pytest.mark.parametrize("kind", [targets.ClassIndex, targets.MultiHot])
def test_joined_labels_that_are_left_out(kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    label = kind("species", classes=["owl", "wren", "jay"], unknown="ignore")
    with forebay.Loader.eval(_table(tmp_path / "a", JOINED), targets={"label": label}, **TINY) as loader:
        assert len(list(loader)) > 0
    [told] = _warnings(caplog, "left out as unknown")
    assert 'joins several classes; use MultiHot("species", ..., separator=";")' in told


def test_joined_labels_of_annotations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = _table(tmp_path / "a", JOINED)
    rows = [(f"{at}.wav", 0.0, 0.02, label) for at, label in enumerate(JOINED)]
    with forebay.Loader.eval(table, targets={"events": targets.Annotations(rows)}, **TINY):
        [told] = _warnings(caplog, "contain ';'")
    assert 'of target "events"' in told
    assert "give its table a row for each of them" in told


def test_labels_that_are_not_joined_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    split = targets.MultiHot("species", classes="data", separator=";")
    with forebay.Loader.eval(_table(tmp_path / "a", JOINED), targets={"label": split}, **TINY) as loader:
        assert loader.class_names == ["jay", "owl", "wren"]
    with forebay.Loader.eval(_table(tmp_path / "b", ["Tit Great", "Tit Blue", "a;b"]), label_column="species", **TINY):
        pass
    assert not _warnings(caplog, "contain")


def test_a_recipe_separates_targets_and_sampling(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Either part can be replaced, and the other still has the classes."""
    table = _table(tmp_path / "a", JOINED)
    for make in (recipes.birdset, recipes.ast, recipes.passt, recipes.birdclef):
        recipe = make("species", classes="data", separator=";")
        assert (recipe["targets"].separator, recipe["sampling"].separator) == (";", ";")
    plain = {**recipes.birdset("species", classes="data", separator=";"), "features": None, "augment": True, **TINY}
    with forebay.Loader.train(table, batch_size=2, **plain) as loader:
        assert loader.class_names == ["jay", "owl", "wren"]
        assert set(loader.stats()["classes"][0]["classes"]) == {"jay", "owl", "wren"}
    assert not _warnings(caplog, "contain")
    with forebay.Loader.train(table, batch_size=2, sampling=sampling.Balanced("species"), label_column="", **TINY):
        [told] = _warnings(caplog, "contain ';'")
    assert 'Balanced("species", separator=";")' in told


def _utterances(folder: Path, samples: list[int]) -> Path:
    """Recordings at 16 kHz of these lengths, with their texts."""
    folder.mkdir()
    lines = []
    for number, n in enumerate(samples):
        sound = np.random.default_rng(number).integers(-9000, 9000, n, np.int16).astype("<i2").tobytes()
        head = b"RIFF" + (36 + len(sound)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
        head += (
            b"\x01\x00\x01\x00" + (16000).to_bytes(4, "little") + (32000).to_bytes(4, "little") + b"\x02\x00\x10\x00"
        )
        (folder / f"{number}.wav").write_bytes(head + b"data" + len(sound).to_bytes(4, "little") + sound)
        lines.append(f'{{"audio_filepath": "{number}.wav", "duration": {n / 16000}, "text": "text {number}"}}\n')
    table = folder / "t.jsonl"
    table.write_text("".join(lines))
    return table


LENGTHS = [8000, 16_000, 28_000, 30_000, 40_000, 12_000]


@pytest.mark.parametrize("duration", [None, "duration"])
def test_librispeech_takes_whole_utterances(duration: str | None, tmp_path: Path) -> None:
    """Each begins at 0 and is in the clip to its end, at any speed; longer ones are left out."""
    table = _utterances(tmp_path / "speech", LENGTHS)
    recipe = recipes.librispeech(clip_seconds=2.0, duration=duration)
    more = {"outputs": [*recipe["outputs"], "start", "speed"]}
    seen: set[int] = set()
    with forebay.Loader.train(table, infinite=False, drop_last=False, batch_size=2, **{**recipe, **more}) as loader:
        for _ in range(6):
            for batch in loader:
                for row, start, frames, speed in zip(
                    batch["index"], batch["start"], batch["valid_frames"], batch["speed"], strict=True
                ):
                    n = LENGTHS[row] / speed
                    assert (start, n <= 32_000 + 1) == (0.0, True)
                    assert abs(frames - n / 160) <= 3
                    seen.add(int(row))
        # 28 000 samples at a speed of 0.9 are 1.94 s, 30 000 are 2.08 s.
        assert {0, 1, 2, 5} <= seen <= {0, 1, 2, 3, 5}
        kinds = {error["kind"] for error in loader.errors()}
        assert kinds == (set() if duration else {"too_large"})
        assert seen == {0, 1, 2, 5} if duration else 4 not in seen


def test_a_text_of_a_cut_recording_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = _utterances(tmp_path / "speech", LENGTHS)
    text = {"text": targets.Text("text")}
    for crop in (None, crops.Start()):
        caplog.clear()
        with forebay.Loader.eval(table, targets=text, sample_rate=16000, clip_seconds=1.0, crop=crop) as loader:
            list(loader)
            list(loader)
        [told] = _warnings(caplog, "text of whole recordings")
        assert "Start(whole=True)" in told
    caplog.clear()
    with forebay.Loader.eval(table, targets=text, sample_rate=16000, clip_seconds=3.0) as loader:
        list(loader)
    with forebay.Loader.eval(table, columns=["text"], sample_rate=16000, clip_seconds=1.0) as loader:
        list(loader)
    # What is too long is left out, with an error.
    whole: dict[str, Any] = {"targets": text, "sample_rate": 16000, "crop": crops.Start(whole=True)}
    with forebay.Loader.eval(table, clip_seconds=2.0, **whole) as loader:
        list(loader)
        assert {error["kind"] for error in loader.errors()} == {"too_large"}
    assert not _warnings(caplog, "text of whole recordings")
    # At half of the speed they are twice as long.
    slow: dict[str, Any] = {"targets": text, "sample_rate": 16000, "augment": [augment.Speed(0.5)]}
    with forebay.Loader.train(table, batch_size=2, clip_seconds=3.0, infinite=False, **slow) as loader:
        list(loader)
    assert len(_warnings(caplog, "text of whole recordings")) == 1


def test_the_rate_of_the_schema_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the metadata of shards, and by `cast_column` of a Dataset; not where a rate was chosen."""
    audio = [{"bytes": one, "path": None} for one in _recordings(tmp_path / "a", 4)]
    made = datasets.Dataset.from_dict({"audio": audio}).cast_column("audio", datasets.Audio(sampling_rate=16000))
    made.save_to_disk(tmp_path / "saved")
    small: dict[str, Any] = {"clip_seconds": 0.02, "n_fft": 64, "hop_length": 32, "n_mels": 8}
    with forebay.Loader.eval(tmp_path / "saved", **small):
        assert len(_warnings(caplog, "sample_rate=16000")) == 1
    loaded = datasets.load_from_disk(tmp_path / "saved")
    caplog.clear()
    with forebay.Loader.eval(loaded.cast_column("audio", datasets.Audio(sampling_rate=44100)), **small):
        assert len(_warnings(caplog, "sample_rate=44100")) == 1
    caplog.clear()
    with forebay.Loader.eval(loaded.cast_column("audio", datasets.Audio(sampling_rate=32000)), **small):
        pass
    with forebay.Loader.eval(loaded, sample_rate=8000, **small):
        pass
    with forebay.Loader.eval(loaded, clip_seconds=0.5, features=forebay.features.LogMel(sample_rate=8000, n_mels=8)):
        pass
    with forebay.Loader.eval(tmp_path / "a", **small):
        pass
    assert not _warnings(caplog, "Audio(sampling_rate")


def test_what_replaces_max_duration_and_pcen(tiny_shard: Path) -> None:
    with pytest.raises(TypeError, match=r"max_duration.*sampling=forebay\.sampling\.Where\(\"duration\""):
        forebay.Loader.train(tiny_shard, max_duration=60.0)  # type: ignore[call-arg]
    with pytest.raises(forebay.ConfigError, match=r"LogMel\(compression=forebay\.features\.PCEN\(\)\)"):
        forebay.Loader.train(tiny_shard, features="pcen")
    with pytest.raises(forebay.ConfigError, match=r"LogMel\(normalization=forebay\.features\.ZScore\(\)\)"):
        forebay.features.preset("z_score")
    with pytest.raises(TypeError, match=r"values is 'AM01' .*such as \['AM01'\]"):
        sampling.Where("recorder", values="AM01")


def test_where_excludes(tmp_path: Path) -> None:
    """The two parts of a split by a column have each row once; lists, numbers, names and nulls as well."""
    _recordings(tmp_path / "a", 6)
    table = tmp_path / "a" / "t.jsonl"
    rows = [("AM01", 1), ("AM02", 2), (None, 3), ("AM01", 4), ("AM03", 5), ("AM02", 6)]
    text = "".join(
        f'{{"path": "{at}.wav", "recorder": {"null" if name is None else chr(34) + name + chr(34)}, "n": {n}}}\n'
        for at, (name, n) in enumerate(rows)
    )
    table.write_text(text)

    def read(where: sampling._SamplingPart) -> list[int]:
        with forebay.Loader.eval(table, sampling=where, **TINY) as loader:
            return [row for batch in loader for row in batch["index"].tolist()]

    assert read(sampling.Where("recorder", values=["AM01", "AM03"])) == [0, 3, 4]
    assert read(sampling.Where("recorder", exclude=["AM01", "AM03"])) == [1, 2, 5]
    assert read(sampling.Where("n", exclude=[2, 3])) == [0, 3, 4, 5]
    assert read(sampling.Where("n", exclude=[2], minimum=2, maximum=5)) == [2, 3, 4]
    assert read(sampling.Where("recorder", values=["AM01", "AM02"], exclude=["AM02"])) == [0, 3]
    with pytest.raises(
        forebay.ConfigError, match=r"no row is left by Where\(\"n\", exclude=\[1, 2, 3, 4, 5, \.\.\.\]\)"
    ):
        read(sampling.Where("n", exclude=[1, 2, 3, 4, 5, 6]))
    with pytest.raises(forebay.ConfigError, match="exclude is empty"):
        sampling.Where("n", exclude=[])


def test_where_excludes_names_of_the_schema(tiny_shard: Path) -> None:
    """A column with class names is excluded by names and by numbers."""
    by_name, by_number = (
        forebay.Loader.eval(tiny_shard, sampling=sampling.Where("label", exclude=[value]), **TINY)
        for value in ("music", 1)
    )
    with by_name, by_number:
        found = [np.concatenate([batch["label"] for batch in loader]) for loader in (by_name, by_number)]
    assert found[0].tolist() == found[1].tolist()
    assert set(found[0].tolist()) == {0, 2, 3}


@pytest.mark.parametrize(
    "name",
    ["rec.Table.1.selections.txt", "rec.selections.txt", "rec.selection.tsv", "rec.BirdNET.results.csv", "rec.txt"],
)
def test_a_table_of_events_finds_its_recording(name: str, tmp_path: Path) -> None:
    """As `Annotations` does, by the name of the table."""
    _recordings(tmp_path / "a", 1)
    (tmp_path / "a" / "0.wav").rename(tmp_path / "a" / "rec.wav")
    separator = "," if name.endswith(".csv") else "\t"
    header = ["Selection", "Begin Time (s)", "End Time (s)", "Species"]
    lines = [header, ["1", "0.0", "0.01", "owl"], ["2", "0.005", "0.02", "wren"]]
    table = tmp_path / "a" / name
    table.write_text("".join(separator.join(line) + "\n" for line in lines))
    label = targets.ClassIndex("Species", classes="data")
    with forebay.Loader.eval(forebay.Manifest(table), targets={"label": label}, **TINY) as loader:
        assert [label for batch in loader for label in batch["label"].tolist()] == [0, 1]
        assert loader.errors() == []


def test_a_selection_with_two_views_is_one_row(tmp_path: Path) -> None:
    """Raven lists a selection once for each view; a selection that comes again in the same view is another row."""
    _recordings(tmp_path, 1)
    spans = [("1", "0.0", "0.01"), ("2", "0.005", "0.02")]
    rows = [(n, view, *times) for n, *times in spans for view in ("Waveform 1", "Spectrogram 1")]
    rows += [("3", "Spectrogram 1", "0.0", "0.01"), ("3", "Spectrogram 1", "0.0", "0.01")]
    header = ("Selection", "View", "Begin Time (s)", "End Time (s)")
    table = tmp_path / "0.Table.1.selections.txt"
    table.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]))
    columns = ["Selection", "View"]
    with forebay.Loader.eval(forebay.Manifest(table), columns=columns, label_column=None, **TINY) as loader:
        batches = list(loader)
        found = [
            (int(n), view) for batch in batches for n, view in zip(*(batch[name] for name in columns), strict=True)
        ]
    assert found == [(1, "Waveform 1"), (2, "Waveform 1"), (3, "Spectrogram 1"), (3, "Spectrogram 1")]


def test_threads_in_a_long_call_are_quiet_at_the_end_of_the_process(tmp_path: Path) -> None:
    """A script that ends while clips of minutes are decoded writes nothing about its threads."""
    script = """
        import logging
        import sys
        import forebay
        from forebay.features import Waveform
        logging.basicConfig(level=logging.WARNING)
        clips = {"clip_seconds": 900.0, "features": Waveform(sample_rate=48000)}
        buffer = {"n_workers": 1, "shuffle_min_size": 0, "shuffle_buffer_size": 1, "prefetch_batches": 1}
        loader = forebay.Loader.train(sys.argv[1], batch_size=1, **clips, **buffer)
        next(loader)
    """
    long = tmp_path / "long"
    long.mkdir()
    n = 8000 * 900
    sound = np.random.default_rng(1).integers(-9000, 9000, n, np.int16).astype("<i2").tobytes()
    head = b"RIFF" + (36 + len(sound)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    head += b"\x01\x00\x01\x00" + (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little") + b"\x02\x00\x10\x00"
    for number in range(4):
        (long / f"{number}.wav").write_bytes(head + b"data" + len(sound).to_bytes(4, "little") + sound)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(long)], capture_output=True, text=True, check=True
    )
    assert "did not end" not in done.stderr


@pytest.mark.parametrize("column", ["audio_file", "Audio Path", "sound_file", "wav", "relative_path"])
def test_tables_of_annotations_name_paths_as_manifests_do(column: str, tmp_path: Path) -> None:
    """A table without a column of paths is about the recording of its name; that is not what these are."""
    _recordings(tmp_path, 3)
    rows = f"{column},start,end,label\n" + "".join(f"{row}.wav,0,1,bird {row}\n" for row in range(3))
    (tmp_path / "0.csv").write_text(rows)
    given: dict[str, Any] = {"targets": {"label": targets.Annotations(tmp_path / "0.csv")}, "clip_seconds": 0.5}
    with forebay.Loader.eval(sorted(tmp_path.glob("*.wav")), **given) as loader:
        label = np.concatenate([batch["label"] for batch in loader])
    np.testing.assert_array_equal(label, np.eye(3))


@pytest.mark.parametrize("column", ["clip", "uri", "Begin Clip"])
def test_unknown_columns_that_name_recordings_are_refused(column: str, tmp_path: Path) -> None:
    _recordings(tmp_path, 3)
    table = tmp_path / "0.csv"
    table.write_text(f"start,end,label,{column},notes\n0,1,owl,,as in a.wav\n0,1,owl,a/1.WAV,\n1,2,owl,b.flac,loud\n")
    with pytest.raises(forebay.ConfigError, match=f"usual name of paths, and '{column}' names recordings; give"):
        targets.Annotations(table)
    assert len(read(str(table), {"path": column})) == 3
    # Who knows better says so: then all rows are about 0.wav.
    assert {row[0] for row in read(str(table), {"path": ""})} == {"0"}


def test_a_recording_beside_the_folders_of_classes_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("owl", "wren"):
        _recordings(tmp_path / name, 2)
    (tmp_path / "top.wav").write_bytes((tmp_path / "owl" / "0.wav").read_bytes())
    told = "4 of 5 recordings lie in folders, whose names would be their classes, but .*top.wav does not, so none"
    with forebay.Loader.train(tmp_path, batch_size=1) as loader:
        assert loader.class_names is None
    assert len([record for record in caplog.records if re.search(told, record.getMessage())]) == 1
    for given in ({"label_column": "label"}, {"targets": {"label": targets.ClassIndex("label")}}):
        with pytest.raises(forebay.ConfigError, match=f"requested: {told}"):
            forebay.Loader.train(tmp_path, batch_size=1, **given)
    # Who wants no labels, and a folder of files with some in folders, is told nothing.
    caplog.clear()
    forebay.Loader.train(tmp_path, batch_size=1, label_column="").close()
    for name in "abcd":
        (tmp_path / f"{name}.wav").write_bytes((tmp_path / "top.wav").read_bytes())
    forebay.Loader.train(tmp_path, batch_size=1).close()
    assert not _warnings(caplog, "lie in folders")


def test_a_loader_without_its_rank_is_told_once(tmp_path: Path) -> None:
    """A launcher has started two processes, which would train on the same batches."""
    _recordings(tmp_path / "birds", 2)
    script = textwrap.dedent("""
        import logging, sys
        import forebay
        logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stdout)
        make = {"train": forebay.Loader.train, "eval": forebay.Loader.eval, "tokens": forebay.TokenLoader}
        for name, given in eval(sys.argv[3]):
            files = (sys.argv[2], lambda texts: [[1]] * len(texts)) if name == "tokens" else (sys.argv[1],)
            make[name](*files, batch_size=1, **given).close()
    """)

    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text("a\nb\n")
    texts = {"bos_id": 0, "seq_len": 4}

    def said(world: str, *loaders: tuple[str, dict[str, Any]]) -> list[str]:
        command = [sys.executable, "-c", script, str(tmp_path / "birds"), str(tmp_path / "*.txt"), repr(loaders)]
        environment = {**os.environ, "WORLD_SIZE": world, "RANK": "1"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [line for line in run.stdout.splitlines() if "WORLD_SIZE" in line]

    told = "the environment has WORLD_SIZE=2, and rank and world_size are not given"
    for loaders, name in (
        ([("train", {}), ("train", {}), ("tokens", texts)], "Loader"),
        ([("tokens", texts)], "TokenLoader"),
    ):
        assert [line.split(",")[0] for line in said("2", *loaders)] == [f"{name}: {told.split(',')[0]}"]
    share = {"rank": 1, "world_size": 2}
    assert not said(
        "2", ("train", share), ("eval", {}), ("tokens", texts | share), ("tokens", texts | {"split": "val"})
    )
    assert not said("1", ("train", {}))
    assert not said("two", ("train", {}))
