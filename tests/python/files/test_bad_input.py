"""What people get wrong, and what file systems do: each is an error with advice, or a bad record."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import Manifest
from recordings import TINY
from tables import write_recordings

ONE_PASS: dict[str, Any] = {
    **TINY, "batch_size": 8, "infinite": False, "order": "sequential", "augment": False, "shuffle_min_size": 0,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_recordings(tmp_path / "audio", 3)
    return tmp_path / "audio"


def bad(source: Any, **changes: Any) -> tuple[list[int], list[Any]]:
    """The rows that are given, and the errors; a pass without any row ends with an error."""
    given: list[int] = []
    with forebay.Loader(source, **{**ONE_PASS, **changes}) as loader:
        try:
            for batch in loader:
                given += batch["index"].tolist()
            assert given
        except forebay.DecodeError:
            assert not given
        return given, loader.errors()


def test_a_root_that_is_none(folder: Path) -> None:
    table = folder.parent / "t.csv"
    table.write_text("path\n000 one.wav\n")
    with pytest.raises(FileNotFoundError, match="recordings"):
        forebay.Loader(Manifest(table, root=folder.parent / "recordings"))
    with pytest.raises(forebay.ConfigError, match=r"root is the file .*t\.csv, expected the folder"):
        forebay.Loader(Manifest(table, root=table))
    told = re.escape(
        f'line 2: the file "000 one.wav" cannot be opened below {folder.parent}; relative paths begin at root='
    )
    with pytest.raises(FileNotFoundError, match=told):
        forebay.Loader(Manifest(table))


def test_a_table_by_another_ending(folder: Path) -> None:
    line = '{"audio_filepath": "000 one.wav", "duration": 1}\n'
    (folder / "manifest.json").write_text(line)
    assert bad(str(folder / "manifest.json"))[0] == [0]
    for name in ("t.csv.bz2", "t.tar.gz", "t.tar.zst", "t.tar.xz"):
        (folder / name).write_bytes(b"\x1f\x8b")
        with pytest.raises(forebay.ConfigError, match="unpack it first"):
            forebay.Loader(folder / name)
    (folder / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(forebay.ConfigError, match=r"save it as \.csv"):
        forebay.Loader(folder / "t.xlsx")


def test_names_of_all_kinds(tmp_path: Path) -> None:
    names = ["a, b.wav", "line\nbreak.wav", "#1.wav", "100%.wav", "ünï 鳥.WAV", 'q"uote.wav', "[a]*?.wav", "-x.Wav"]
    for name, made in zip(names, write_recordings(tmp_path, len(names)), strict=True):
        (tmp_path / made).rename(tmp_path / name)
    (tmp_path / ".hidden.wav").write_bytes(b"x")
    (tmp_path / "._b.wav").write_bytes(b"x")
    (tmp_path / "_c.wav").write_bytes(b"x")
    rows = [{"path": name} for name in names]
    for source in (Manifest(rows, root=tmp_path), [tmp_path / name for name in names], tmp_path):
        assert bad(source) == ([*range(len(names))], [])
    with pytest.raises(TypeError, match="for texts in memory"):
        forebay.Loader(["some text\nof two lines"])


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_long_names_and_links(folder: Path, tmp_path: Path) -> None:
    deep, here = folder, Path.cwd()
    # The system takes no longer name in one call.
    try:
        os.chdir(folder)
        for _ in range(15):
            (Path("n" * 240)).mkdir()
            os.chdir("n" * 240)
            deep /= "n" * 240
        shutil.copy(folder / "000 one.wav", "deep.wav")
    finally:
        os.chdir(here)
    (folder / "circle.wav").symlink_to("circle.wav")
    (folder / "link.wav").symlink_to("000 one.wav")
    (tmp_path / "out.wav").write_bytes((folder / "000 one.wav").read_bytes())
    (folder / "out.wav").symlink_to(tmp_path / "out.wav")
    rows = [
        {"path": str((deep / "deep.wav").relative_to(folder))},
        {"path": "circle.wav"},
        {"path": "link.wav"},
        {"path": "out.wav"},
        {"path": "../out.wav"},
        {"path": "x" * 4000},
        {"path": "000 one.wav/x.wav"},
    ]
    given, errors = bad(Manifest(rows, root=folder))
    assert given == [0, 2]
    assert [(error["index"], error["kind"]) for error in errors] == [(row, "unreadable") for row in (1, 3, 4, 5, 6)]
    for number in (1, 2):
        assert "is not below the folder" in errors[number]["reason"]
    assert bad(Manifest(rows, root=folder), allow_paths=True)[0] == [0, 2, 3, 4]


def test_a_bad_recording_is_named_by_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In log records and errors, of sources of every kind; a name cannot begin a line of its own."""
    name = 'birds/a "b"\n.wav'
    folder = tmp_path / "all"
    (folder / "birds").mkdir(parents=True)
    (folder / name).write_bytes(b"no recording")
    shown = r'"birds/a \"b\"\n.wav"'
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(folder / name, name)
    table = Manifest([{"path": name}], root=folder)
    for source, place in ((folder, folder), (tmp_path / "a.tar", tmp_path / "a.tar"), (table, "<rows>")):
        caplog.clear()
        assert bad(source)[1][0]["path"] == name
        with pytest.raises(forebay.DecodeError) as refused:
            forebay.AudioDataset(source, **TINY)[0]
        for text in (caplog.records[-1].getMessage(), str(refused.value)):
            assert f"{place}, row 0, {shown}: " in text
            assert "\n" not in text
    message = re.escape(f"{folder}, row 0, {shown}: ")
    strict = forebay.Loader(folder, **{**ONE_PASS, "on_error": "raise"})
    with strict, pytest.raises(forebay.DecodeError, match=message):
        next(strict)


def test_a_file_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a single file, and if the reason names the file already."""
    (tmp_path / "bad.wav").write_bytes(b"no recording")
    bad(tmp_path / "bad.wav")
    bad(Manifest([{"path": "bad.wav"}, {"path": "gone.wav"}], root=tmp_path))
    one, _, gone = (record.getMessage() for record in caplog.records)
    assert f": {tmp_path / 'bad.wav'}, row 0: " in one
    assert gone.count("gone.wav") == 1


def test_files_of_the_current_folder_have_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "b.wav"):
        Path(name).write_bytes(b"no recording")
    errors = bad(["a.wav", "b.wav"])[1]
    assert [(error["shard"], error["path"]) for error in errors] == [(".", "a.wav"), (".", "b.wav")]
    assert caplog.records[0].getMessage().startswith('skipped a bad record (unsupported): ., row 0, "a.wav": ')


def test_a_path_of_windows_has_a_hint(folder: Path) -> None:
    _, [error] = bad(Manifest([{"path": "birds\\a.wav"}, {"path": "000 one.wav"}], root=folder))
    assert "cannot be opened below" in error["reason"]
    assert "(folders in a path are separated by /)" in error["reason"]


def test_a_missing_folder_beside_others(folder: Path, tmp_path: Path) -> None:
    """It is missing, and no shard among tables."""
    with pytest.raises(FileNotFoundError, match=r"cannot open: No such file.*none"):
        forebay.Loader([folder, tmp_path / "none"], **TINY)


def test_what_holds_the_recordings_is_named(folder: Path) -> None:
    for given in (folder, [folder / "000 one.wav"], Manifest([{"path": "000 one.wav"}], root=folder)):
        with forebay.Loader(given, **TINY) as loader:
            assert re.search(r"^<forebay\.Loader: \d records? in files, batches of ", repr(loader))
            assert re.search(r"^source +\d records? in files$", repr(loader.recipe), re.MULTILINE)


def test_a_bad_partner_is_named_by_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_recordings(tmp_path / "own", 2)
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "bad.wav").write_bytes(b"no recording")
    bad(tmp_path / "own", augment=[forebay.augment.Mix(tmp_path / "noise", snr_db=3.0)])
    assert f': {tmp_path / "noise"}, row 0, "bad.wav": ' in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights of files")
def test_what_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "shut").mkdir()
    shutil.copy(folder / "000 one.wav", folder / "shut")
    code = f"""
import forebay
try:
    forebay.Loader({str(folder)!r})
except PermissionError as error:
    print(error)
rows = [dict(path="shut/000 one.wav"), dict(path="000 one.wav")]
loader = forebay.Loader(forebay.Manifest(rows, root={str(folder)!r}), infinite=False, drop_last=False)
assert sum(len(batch["index"]) for batch in loader) == 1
print(loader.errors()[0]["reason"])
"""
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        tool = shutil.which("setpriv")
        if tool is None:
            pytest.skip("root may read everything")
        less = "-dac_override,-dac_read_search"
        command = [tool, f"--bounding-set={less}", f"--inh-caps={less}", *command]
    (folder / "shut").chmod(0)
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        (folder / "shut").chmod(0o755)
    first, second = told.splitlines()
    assert str(folder / "shut") in first
    assert "Permission denied" in first
    assert second.startswith('the file "shut/000 one.wav" cannot be opened')


def test_one_recording_must_be_there(tmp_path: Path) -> None:
    for make in (forebay.Loader, forebay.AudioDataset):
        with pytest.raises(FileNotFoundError, match=r"cannot open: .*gone\.wav"):
            make(tmp_path / "gone.wav")


def test_an_empty_folder_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"recordings such as \.wav, or \.tar .* found 1 file ending in \.doc"):
        forebay.Loader(tmp_path)
