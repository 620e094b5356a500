"""`allow_paths`: by default, files that rows name are read only below the folder of their shard."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from forebay import cache
from forebay.cli import main
from recordings import TINY, Row, tiny_rows, write_shard


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """A shard in a folder, with recordings below and outside of the folder; and the outside folder.

    Rows: bytes, a file below the folder, and files outside by `..`, by absolute path, by a symbolic link to the file
    and by a symbolic link to the folder.
    """
    shards, other = tmp_path / "shards", tmp_path / "other"
    (shards / "clips").mkdir(parents=True)
    other.mkdir()
    audio = [row.audio or b"" for row in tiny_rows(6)]
    (shards / "clips" / "1.wav").write_bytes(audio[1])
    for i in range(2, 6):
        (other / f"{i}.wav").write_bytes(audio[i])
    (shards / "4.wav").symlink_to(other / "4.wav")
    (shards / "linked").symlink_to(other)
    names = [None, "clips/1.wav", "../other/2.wav", str(other / "3.wav"), "4.wav", "linked/5.wav"]
    rows = [Row(audio[0]), *(Row(None, 0, name) for name in names[1:])]
    return write_shard(shards / "a.arrow", rows), other


def read(path: Path, **options: Any) -> tuple[list[int], list[Any], list[Any]]:
    """The delivered rows, the errors and the spectrograms."""
    with forebay.Loader.eval(path, **TINY, **options) as loader:
        batches = list(loader)
        rows = [row for batch in batches for row in batch["index"].tolist()]
        return rows, loader.errors(), [batch["spectrogram"] for batch in batches]


@pytest.mark.parametrize("refused", [None, False, []])
def test_only_below_the_folder_of_the_shard(apart: tuple[Path, Path], refused: Any) -> None:
    path, other = apart
    rows, errors, _ = read(path, allow_paths=refused)
    assert rows == [0, 1]
    assert [(error["index"], error["kind"]) for error in errors] == [(row, "unreadable") for row in range(2, 6)]
    for error in errors:
        for part in (f'the path "{error["path"]}"', str(path.parent), f'allow_paths="{other}"', "allow_paths=True"):
            assert part in str(error["reason"])


def test_folders_that_are_allowed(apart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = apart
    monkeypatch.chdir(other.parent)
    expected = read(path, allow_paths=True)
    assert (expected[0], expected[1]) == (list(range(6)), [])
    for allowed in (other, str(other), [path.parent, other], "other", other.parent, ["not there", other]):
        rows, errors, spectrograms = read(path, allow_paths=allowed)
        assert (rows, errors) == (list(range(6)), [])
        assert all(map(np.array_equal, spectrograms, expected[2]))
    # A folder whose name only begins with the allowed one's is not allowed.
    near = other.parent / "oth"
    near.mkdir()
    rows, errors, _ = read(path, allow_paths=near)
    assert rows == [0, 1]
    reason = str(errors[0]["reason"])
    assert "nor below a folder of allow_paths" in reason
    # What was allowed stays.
    assert f'add "{other}" to allow_paths=' in reason


def test_the_folder_of_the_shard_may_be_a_link(apart: tuple[Path, Path]) -> None:
    path, other = apart
    (other.parent / "by_link").symlink_to(path.parent)
    assert read(other.parent / "by_link" / "a.arrow")[0] == [0, 1]


def test_parquet(apart: tuple[Path, Path]) -> None:
    """Rows of Parquet files follow the same rules."""
    path, other = apart
    parquet = path.with_suffix(".parquet")
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        pq.write_table(stream.read_all(), parquet)
    assert read(parquet)[0] == [0, 1]
    assert read(parquet, allow_paths=other)[0] == list(range(6))


@pytest.mark.parametrize("wrong", [7, 1.5, ["a", 7], b"folder"])
def test_wrong_types(apart: tuple[Path, Path], wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^allow_paths is .*, must be True, a folder"):
        forebay.Loader(apart[0], allow_paths=wrong)


def test_empty_names(apart: tuple[Path, Path]) -> None:
    for empty in ("", ["other", ""]):
        with pytest.raises(forebay.ConfigError, match="allow_paths is ''"):
            forebay.Loader(apart[0], allow_paths=empty)


def test_no_part_of_a_state(apart: tuple[Path, Path]) -> None:
    """States do not depend on `allow_paths`: folder names differ between machines, and batches do not depend on it."""
    path, other = apart
    with (
        forebay.Loader.eval(path, allow_paths=[other, path.parent], **TINY) as some,
        forebay.Loader.eval(path, allow_paths=True, **TINY) as any_path,
        forebay.Loader.eval(path, **TINY) as none,
        pickle.loads(pickle.dumps(some)) as copy,
    ):
        state = json.loads(json.dumps(some.state_dict()))
        assert state == any_path.state_dict() == none.state_dict() == copy.state_dict()
        any_path.load_state_dict(state)
        expected = [batch["index"].tolist() for batch in some]
        assert expected == [batch["index"].tolist() for batch in any_path]
        assert expected == [batch["index"].tolist() for batch in copy]


def test_check(apart: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = apart
    report = tmp_path / "report"
    assert main(["check", str(path), "-o", str(report)]) == 1
    assert json.loads(report.with_suffix(".json").read_text())["summary"]["kinds"] == {"unreadable": 4}
    for allowed in (
        [f"--allow-paths={other}"],
        ["--allow-paths"],
        [f"--allow-paths={os.curdir}", "--allow-paths", str(other)],
    ):
        assert main(["check", str(path), "-o", str(report), "--restart", *allowed]) == 0
    assert "6 recordings" in capsys.readouterr().out


def test_a_file_is_no_folder_that_is_allowed(
    apart: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--allow-paths FILE` is refused: the option would consume FILE, the argument to check."""
    path, other = apart
    arguments = ["-o", str(tmp_path / "report"), "--restart"]
    for wrong in (["--allow-paths", str(path)], [f"--allow-paths={path}", str(path)]):
        with pytest.raises(SystemExit) as ended:
            main(["check", *arguments, *wrong])
        assert ended.value.code == 2
        message = f"argument --allow-paths: {path} is a file, must be a folder; to allow any path, give --allow-paths"
        assert message in " ".join(capsys.readouterr().err.split())
    for right in (
        ["--allow-paths", str(other), str(path)],
        [str(path), "--allow-paths"],
        ["--allow-paths", "--", str(path)],
    ):
        assert main(["check", *arguments, *right]) == 0


def test_cache(apart: tuple[Path, Path], tmp_path: Path) -> None:
    path, other = apart
    transform = forebay.SpectrogramTransform(sample_rate=8000, n_mels=8, n_fft=256, hop_length=80)
    with pytest.raises(forebay.DecodeError, match="allow_paths="):
        cache.build(path, transform, tmp_path / "cache", progress=False)
    # `allow_paths` is not part of a build's identity: the same call with another value resumes the build.
    store = cache.build(path, transform, tmp_path / "cache", progress=False, allow_paths=other)
    assert len(store) == 6
