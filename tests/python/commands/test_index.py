"""`forebay index`: indexes of recordings, and what a source holds."""

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import forebay
from forebay import cli, crops, features
from forebay._core import _Index
from forebay.batching import Buckets
from recordings import CLASSES, FOLDER, FORMATS, TINY, Row, tiny_rows, write_shard
from served import Server

LARGE_SECONDS = 20


def write_large(folder: Path, n: int) -> list[Path]:
    """Recordings of which a loader reads parts."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(-9000, 9000, LARGE_SECONDS * 8000, np.int16)
    paths = [folder / f"{i:03}.wav" for i in range(n)]
    for i, path in enumerate(paths):
        soundfile.write(path, np.roll(noise, i), 8000, "PCM_16")
    return paths


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of indexes of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "forebay" / "index"


def indexed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """The exit code, and the summary."""
    code = cli.main(["index", *map(str, arguments), "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


def counts(found: Any) -> tuple[int, int, int, int]:
    indexes = found["indexes"]
    return indexes["found"], indexes["written"], indexes["needless"], indexes["unwritten"]


def test_totals_are_those_of_soundfile(capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in {".wav", ".flac", ".ogg", ".aiff"})
    paths.remove(FORMATS / "adpcm_ms.wav")  # soundfile tells whole blocks there, not the length in its header
    infos = [soundfile.info(path) for path in paths]
    code, found = indexed(capsys, *paths)
    summary = found["summary"]
    assert (code, summary["rows"], summary["recordings"], summary["bad"]) == (0, len(paths), len(paths), 0)
    assert summary["bytes"] == sum(path.stat().st_size for path in paths)
    assert abs(summary["seconds"] - sum(info.frames / info.samplerate for info in infos)) < 1e-3
    for name, attribute in (("rates", "samplerate"), ("channels", "channels")):
        values = [str(getattr(info, attribute)) for info in infos]
        assert summary[name] == {value: values.count(value) for value in values}
    formats = [info.subtype for info in infos]
    assert summary["codecs"]["vorbis"] == formats.count("VORBIS") > 1
    assert summary["codecs"]["alaw"] == formats.count("ALAW") == 1
    assert sum(summary["codecs"].values()) == len(paths)


def test_a_second_run_takes_the_indexes(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write_large(tmp_path / "a", 5)
    (tmp_path / "a" / "small.wav").write_bytes(tiny_rows(1)[0].audio or b"")
    code, first = indexed(capsys, tmp_path / "a")
    assert (code, counts(first)) == (0, (0, 5, 1, 0))
    assert first["indexes"]["folder"] == str(cache)
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    assert len(before) == 5
    code, again = indexed(capsys, tmp_path / "a")
    assert (code, counts(again)) == (0, (5, 0, 1, 0))
    assert again["summary"] == first["summary"]
    # A loader takes them too.
    with forebay.Loader(paths, **TINY, batch_size=5, infinite=False, shuffle_min_size=0) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 5
        files = loader.stats()["files"]
    assert (files["indexed"], files["index_hits"]) == (0, 5)
    # Damaged, of another size, older: made again, and equal.
    damaged = [*cache.iterdir()]
    damaged[0].write_bytes(damaged[0].read_bytes()[:-1])
    data = bytearray(damaged[1].read_bytes())
    data[40] ^= 1
    damaged[1].write_bytes(data)
    damaged[2].write_bytes(b"")
    assert counts(indexed(capsys, tmp_path / "a")[1]) == (2, 3, 1, 0)
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before
    os.utime(paths[0], (1, 1))
    paths[1].write_bytes(paths[2].read_bytes() + b"more")
    code, stale = indexed(capsys, tmp_path / "a")
    assert (code, counts(stale)) == (0, (3, 2, 1, 0))
    assert counts(indexed(capsys, tmp_path / "a")[1]) == (5, 0, 1, 0)


def test_an_interrupted_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_large(tmp_path / "a", 24)

    class Interrupted:
        """Is interrupted once some recordings were opened."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            self.index = _Index(*arguments, **keywords)

        def next(self) -> tuple[int, int, bool]:
            found = self.index.next()
            if found[0]:
                raise KeyboardInterrupt
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(self.index, name)

    with monkeypatch.context() as patch:
        patch.setattr("forebay.cli.index._Index", Interrupted)
        assert cli.main(["index", str(tmp_path / "a")]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert "The indexes so far are kept; run the same command to continue." in said.err
    found, written, *_ = counts(indexed(capsys, tmp_path / "a")[1])
    assert found > 0
    assert found + written == 24


def start(*arguments: object, **keywords: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "forebay", "index", *map(str, arguments), "--json", "-"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)


def ended(process: "subprocess.Popen[str]") -> tuple[int, Any, str]:
    out, err = process.communicate()
    return process.returncode, json.loads(out), err


def written(cache: Path) -> int:
    """The number of indexes, without those that are being written."""
    return sum(path.suffix == "" for path in cache.iterdir()) if cache.is_dir() else 0


def test_a_killed_run_leaves_whole_indexes(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_large(tmp_path / "a", 60)
    with start(tmp_path / "a") as process:
        # Also a run that ends before it is killed is one whose indexes must be whole.
        while process.poll() is None and not written(cache):
            time.sleep(0.001)
        process.kill()
    n_left = written(cache)
    assert n_left > 0
    code, found = indexed(capsys, tmp_path / "a")
    assert (code, counts(found)) == (0, (n_left, 60 - n_left, 0, 0))
    assert found["summary"]["seconds"] == 60 * LARGE_SECONDS


def test_two_runs_at_once(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_large(tmp_path / "a", 40)
    both = [start(tmp_path / "a") for _ in range(2)]
    for code, found, _ in map(ended, both):
        n_found, written, *_ = counts(found)
        assert (code, n_found + written, found["summary"]["seconds"]) == (0, 40, 40 * LARGE_SECONDS)
    assert sorted(path.suffix for path in cache.iterdir()) == [""] * 40
    assert counts(indexed(capsys, tmp_path / "a")[1]) == (40, 0, 0, 0)


def test_no_place_for_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The totals are printed, and once why nothing was written."""
    write_large(tmp_path / "a", 12)
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, found, said = ended(start(tmp_path / "a"))
    assert (code, counts(found), found["bad"]) == (1, (0, 0, 0, 12), [])
    assert found["summary"]["seconds"] == 12 * LARGE_SECONDS
    assert said.count("12 indexes could not be written in ") == 1
    assert "Not a directory" in said
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    code, found, said = ended(start(tmp_path / "a"))
    assert (code, counts(found), found["indexes"]["folder"]) == (1, (0, 0, 0, 12), None)
    assert "neither XDG_CACHE_HOME nor HOME is set" in said


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes")
def test_a_full_disk(tmp_path: Path, cache: Path) -> None:
    """A write that the system refuses halfway leaves nothing."""
    resource = pytest.importorskip("resource")
    write_large(tmp_path / "a", 12)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    # Bytecode that is cut off would break the interpreter's later imports.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    code, found, said = ended(start(tmp_path / "a", preexec_fn=limit, env=environment))
    assert (code, counts(found)) == (1, (0, 0, 0, 12))
    assert "File too large" in said
    assert [*cache.iterdir()] == []


def test_bad_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_large(tmp_path, 2)
    (tmp_path / "no.wav").write_bytes(b"no recording")
    (tmp_path / "empty.wav").touch()
    (tmp_path / "large.wav").write_bytes(b"nor this" * 100_000)
    names = ["000.wav", "no.wav", "none.wav", "../x.wav", "001.wav", "", "empty.wav", "large.wav", "no.wav"]
    table = tmp_path / "a.csv"
    table.write_text("path,label\n" + "".join(f"{name},owl\n" for name in names))
    code, found = indexed(capsys, table)
    assert (code, found["summary"]["recordings"], found["summary"]["rows"], found["summary"]["bad"]) == (1, 8, 9, 6)
    assert [(bad["row"], bad["path"]) for bad in found["bad"]] == [
        (1, "no.wav"), (2, "none.wav"), (3, "../x.wav"), (5, None), (6, "empty.wav"), (7, "large.wav"),
    ]  # fmt: skip
    kinds = [bad["kind"] for bad in found["bad"]]
    assert kinds == ["unsupported", "unreadable", "unreadable", "unreadable", "empty", "unsupported"]
    assert found["bad"][1]["reason"].startswith('line 4: the file "none.wav" cannot be opened')
    assert found["summary"]["seconds"] == 2 * LARGE_SECONDS
    # Many bad ones are counted, and some listed.
    table.write_text("path\n" + "".join(f"none{i}.wav\n" for i in range(1200)))
    code, found = indexed(capsys, table)
    assert (code, found["summary"]["bad"], len(found["bad"])) == (1, 1200, 1000)
    assert [bad["row"] for bad in found["bad"]] == [*range(1000)]
    assert cli.main(["index", str(table)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("bad: ") for line in lines) == 20
    assert lines[-1] == "and 1180 more bad ones"


def test_outside_of_the_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write_large(tmp_path / "audio", 2)
    (tmp_path / "table").mkdir()
    table = tmp_path / "table" / "a.csv"
    table.write_text("path\n" + "".join(f"{path}\n" for path in paths))
    code, found = indexed(capsys, table)
    assert (code, found["summary"]["bad"]) == (1, 2)
    assert "allow_paths=" in found["bad"][0]["reason"]
    code, found = indexed(capsys, table, "--allow-paths", tmp_path / "audio")
    assert (code, counts(found)) == (0, (0, 2, 0, 0))
    assert indexed(capsys, table, "--allow-paths")[0] == 0


def test_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = tiny_rows(1)[0].audio or b""
    names = [f"class {i % 30:02}" for i in range(100)] + [""] * 3
    (tmp_path / "one.wav").write_bytes(row)
    table = tmp_path / "a.csv"
    table.write_text("path,label,n\n" + "".join(f"one.wav,{name},{len(name)}\n" for name in names))
    code, found = indexed(capsys, table)
    summary = found["summary"]
    assert (code, summary["recordings"], summary["rows"], summary["n_classes"]) == (0, 1, 103, 30)
    expected = [(f"class {i:02}", i, 4) for i in range(10)] + [(f"class {i:02}", i, 3) for i in range(10, 30)]
    assert [(one["class"], one["label"], one["rows"]) for one in summary["classes"]] == expected
    assert cli.main(["index", str(table)]) == 0
    shown = capsys.readouterr().out.partition("classes:\n")[2].splitlines()
    assert [line.split("#")[0].split() for line in shown[:2]] == [["class", "00", "4"], ["class", "01", "4"]]
    assert shown[20] == "  and 10 more"
    numbers = indexed(capsys, table, "--label-column", "n")[1]["summary"]["classes"]
    assert [(one["class"], one["label"], one["rows"]) for one in numbers] == [(8, 8, 100), (0, 0, 3)]
    assert indexed(capsys, table, "--label-column", "")[1]["summary"]["classes"] == []
    for name in ("owl", "wren"):
        (tmp_path / "b" / name).mkdir(parents=True)
        (tmp_path / "b" / name / "1.wav").write_bytes(row)
    (tmp_path / "b" / "wren" / "2.wav").write_bytes(row)
    classes = indexed(capsys, tmp_path / "b")[1]["summary"]["classes"]
    assert [(one["class"], one["rows"]) for one in classes] == [("wren", 2), ("owl", 1)]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_shards_have_totals_only(form: str, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*tiny_rows(600), Row(b"no recording", 1), Row(None, 2)]
    shard = write_shard(tmp_path / "a.arrow", rows)
    if form == "parquet":
        import datasets

        datasets.Dataset.from_file(str(shard)).to_parquet(tmp_path / "a.parquet")
        shard = tmp_path / "a.parquet"
    code, found = indexed(capsys, shard)
    summary = found["summary"]
    assert (code, found["indexes"], summary["recordings"], summary["bad"]) == (1, None, 602, 2)
    assert (summary["seconds"], summary["rates"], summary["codecs"]) == (12.0, {"8000": 600}, {"pcm": 600})
    assert summary["bytes"] == shard.stat().st_size
    assert [(one["class"], one["rows"]) for one in summary["classes"]] == [(name, 150) for name in CLASSES]
    assert [(bad["file"], bad["row"]) for bad in found["bad"]] == [(str(shard), 600), (str(shard), 601)]
    assert not cache.exists()
    assert cli.main(["index", str(shard)]) == 1
    assert "no index is written for recordings in shards" in capsys.readouterr().out


def test_segments_share_an_index(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_large(tmp_path, 2)
    table = tmp_path / "a.csv"
    lines = [f"{i % 2:03}.wav,{i},{i + 1}\n" for i in range(18)]
    table.write_text("path,start,end\n" + "".join(lines))
    code, found = indexed(capsys, table)
    assert (code, counts(found), found["summary"]["rows"]) == (0, (0, 2, 0, 0), 18)
    assert found["summary"]["seconds"] == 2 * LARGE_SECONDS
    assert len([*cache.iterdir()]) == 2


def test_members_of_archives(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write_large(tmp_path / "a", 3)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in paths:
            tar.add(path, path.name)
            info = tarfile.TarInfo(f"{path.stem}.cls")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"1"))
    code, found = indexed(capsys, tmp_path / "a.tar")
    assert (code, counts(found)) == (0, (0, 3, 0, 0))
    assert [(one["class"], one["rows"]) for one in found["summary"]["classes"]] == [(1, 3)]
    assert counts(indexed(capsys, tmp_path / "a.tar")[1]) == (3, 0, 0, 0)
    keywords: dict[str, Any] = {**TINY, "batch_size": 3, "infinite": False, "shuffle_min_size": 0, "seed": 5}
    with forebay.Loader(tmp_path / "a.tar", **keywords) as loader:
        (batch,) = loader
        files = loader.stats()["files"]
    assert (files["indexed"], files["index_hits"]) == (0, 3)
    with forebay.Loader(paths, **keywords) as loader:
        (expected,) = loader
    assert np.array_equal(batch["spectrogram"], expected["spectrogram"])
    # Another archive of this name has other members at these places.
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in reversed(paths):
            tar.add(path, path.name)
    assert counts(indexed(capsys, tmp_path / "a.tar")[1]) == (0, 3, 0, 0)
    assert len([*cache.iterdir()]) >= 3


def test_in_a_log(tmp_path: Path) -> None:
    """A command of less than 10 s writes its result, and nothing else."""
    write_large(tmp_path / "a", 3)
    command = [sys.executable, "-m", "forebay", "index", str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    first, second, third, *_ = done.stdout.splitlines()
    assert first == "3 recordings in 3 rows, 1:00 in all (0.0 hours), 1.0 MB; 0 bad"
    assert second.startswith("indexes in ")
    assert third == "  3 written, 0 from an earlier run, 0 not needed (small files are read whole)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none"),
        (["a.csv", "--label-column", "bird"], '--label-column is "bird", but there is no such column'),
        (["a.csv", "--audio-column", "sound"], 'the column of recordings is "sound", but there is no such column'),
        (["b.csv"], "no column has paths"),
    ],
)
def test_errors(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("path\nx.wav\n")
    Path("b.csv").write_text("x\n1\n")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["index", *arguments])
    assert exit_info.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("forebay index: error: ")
    assert err.count("\n") == 1
    assert message in err


def class_folder(tmp_path: Path) -> Path:
    """Recordings of unlike lengths in folders of two classes, and a bad one."""
    folder = tmp_path / "data"
    for row in range(9):
        place = folder / ("0" if row % 2 else "owl é")
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{row}.wav", np.full(700 * (row + 1), row * 1000, np.int16), 8000, "PCM_16")
    (folder / "0" / "bad.wav").write_bytes(b"RIFF")
    return folder


def test_a_table_of_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = class_folder(tmp_path)
    for to in (folder / "lengths.jsonl", tmp_path / "elsewhere" / "lengths.jsonl"):
        to.parent.mkdir(exist_ok=True)
        code, found = indexed(capsys, folder, "-o", to)
        assert (code, found["table"], found["summary"]["bad"]) == (1, str(to), 1)
        rows = [json.loads(line) for line in to.read_text().splitlines()]
        paths = [to.parent / row["path"] for row in rows]
        assert paths == sorted(folder.rglob("[0-9].wav"))
        assert all(Path(row["path"]).is_absolute() == (to.parent != folder) for row in rows)
        assert [row["duration"] for row in rows] == pytest.approx([soundfile.info(path).duration for path in paths])
        assert [row["label"] for row in rows] == [path.parent.name for path in paths]
    given: dict[str, Any] = {
        "crop": crops.Whole(), "batching": Buckets(max_duration=2.0, num_buckets=2), "seed": 1, "infinite": False,
        "features": features.Waveform(sample_rate=8000), "outputs": ["path"],
    }  # fmt: skip
    with forebay.Loader(folder / "lengths.jsonl", **given) as loader:
        assert loader.class_names == ["0", "owl é"]
        of_table = list(loader)
    (folder / "0" / "bad.wav").unlink()
    (folder / "lengths.jsonl").rename(tmp_path / "lengths.jsonl")
    with forebay.Loader(folder, **given) as loader:
        of_folder = list(loader)
    for batch, other in zip(of_table, of_folder, strict=True):
        assert [Path(path) for path in batch["path"]] == [Path(path) for path in other["path"]]
        np.testing.assert_array_equal(batch["waveform"], other["waveform"])
        np.testing.assert_array_equal(batch["label"], other["label"])


def test_a_table_of_files_by_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder, to = class_folder(tmp_path), tmp_path / "lengths.jsonl"
    rows = [f"{path.relative_to(folder)},{path.parent.name}\n" for path in sorted(folder.rglob("[0-9].wav"))]
    (folder / "a.csv").write_text("path,label\n" + "".join(rows))
    with Server(folder) as server:
        assert cli.main(["index", f"{server.url}/a.csv", "-o", str(to)]) == 0
        assert "allow_paths=True" in capsys.readouterr().out
        paths = [json.loads(line)["path"] for line in to.read_text().splitlines()]
        assert paths == [f"{server.url}/{row.split(',')[0]}" for row in rows]
        given: dict[str, Any] = {
            "features": features.Waveform(sample_rate=8000),
            "batch_size": 3,
            "crop": crops.Whole(),
        }
        one, other = (
            list(forebay.Loader.eval(files, **given))
            for files in (folder / "a.csv", forebay.Manifest(to, root=server.url))
        )
        for batch, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(batch["waveform"], same["waveform"])


def test_tables_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = class_folder(tmp_path)
    (tmp_path / "kept.jsonl").write_text("mine")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(folder / "0" / "1.wav", "1.wav")
    for source, to, message in (
        (folder, tmp_path / "kept.jsonl", "is there already, a file; give another name"),
        (folder, tmp_path / "none" / "a.jsonl", "does not exist; create it"),
        (folder, tmp_path / "a.csv", "must end in .jsonl"),
        (tmp_path / "a.tar", tmp_path / "a.jsonl", "within archives; leave it out"),
    ):
        with pytest.raises(SystemExit) as exit_info:
            cli.main(["index", str(source), "-o", str(to)])
        assert exit_info.value.code == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "kept.jsonl").read_text() == "mine"
    assert not (tmp_path / "a.jsonl").exists()
    code, found = indexed(capsys, folder / "owl é")
    assert (code, found["table"]) == (0, None)
