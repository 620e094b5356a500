"""`forebay inspect`: what a source holds, and one of its rows."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from fields import table, write
from forebay import _pictures, cli
from forebay.cli import inspect
from recordings import Row, tiny_rows, write_shard
from tables import write_recordings, write_table
from utterances import write_utterances


def made(folder: Path, form: str = "stream") -> Path:
    columns = {
        "label": pa.array([i % 2 for i in range(6)], pa.int64()),
        "text": pa.array(["a" * 500, *"bcdef"]),
        "n": pa.array([1, None, 3, 4, 5, 6], pa.uint8()),
        "meta": pa.array([{"site": f"s{i}", "tags": [i] * i} for i in range(6)]),
        "day": pa.array([0] * 6, pa.date32()),
    }
    return write(folder / "a", table(columns, {"label": {"_type": "ClassLabel", "names": ["owl", "wren"]}}), form)


def said(*arguments: object) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of the command in a pipe."""
    command = [sys.executable, "-m", "forebay", "inspect", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONUTF8": "1"})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("form", ["stream", "parquet", "folder"])
def test_a_source(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path, form)
    assert cli.main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("6 rows in 1 file, ")
    lines = [line.split(maxsplit=1) for line in out.partition("columns:\n")[2].splitlines()]
    assert lines == [
        ["audio", "audio"], ["label", "int64, 2 classes: owl, wren"], ["text", "text"], ["n", "uint8"],
        ["meta.site", "text"], ["meta.tags", "lists of int64"], ["day", "Date32"],
    ]  # fmt: skip


def test_batches_by_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.1 + row / 100 for row in range(40)]
    path = str(write_utterances(tmp_path, seconds))
    options = ["--buckets", "1.0", "--num-buckets", "3", "--max-seconds", "0.45", "--duration", "duration"]
    assert cli.main(["inspect", path, *options, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["batches"]
    assert told["left_out"] == {"too_short": 0, "too_long": 4, "too_many_tokens": 0, "too_many_per_second": 0}
    assert told["rows"] == sum(bucket["rows"] for bucket in told["buckets"]) == 36
    assert told["padding"]["batches"] == sum(bucket["batches"] for bucket in told["buckets"])
    assert cli.main(["inspect", path, *options]) == 0
    lines = capsys.readouterr().out.partition("batches of at most 1 s, of 36 rows: ")[2].splitlines()
    padding = told["padding"]
    assert lines[0] == f"{padding['batches']} an epoch, {padding['share']:.1%} padding"
    assert lines[1] == f"  ({padding['random']:.1%} in batches of as many rows at random)"
    assert lines[2] == "4 rows left out: 0 too short, 4 too long"
    shown = [[float(cell.rstrip("%")) for cell in line.split()] for line in lines[4:]]
    for cells, bucket in zip(shown, told["buckets"], strict=True):
        assert cells[:4] == pytest.approx([bucket[name] for name in ("max_seconds", "rows", "batch_size", "batches")])
        assert cells[4] == pytest.approx(100 * bucket["padding"], abs=0.051)


def test_classes_before_and_after_balancing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    arguments = ["inspect", str(path), "--balance", "label", "--epoch-size", "8"]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out.partition("Date32\n")[2].splitlines() == [
        "2 classes of label, in an epoch of 8 examples:",
        "  class        rows             examples",
        "  owl             3   50.00%           4   50.00%",
        "  wren            3   50.00%           4   50.00%",
    ]
    assert cli.main([*arguments, "--power", "-0.5", "--cap", "3", "--offset", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["balance"] == {
        "column": "label", "source": None, "classes": ["owl", "wren"], "rows": [3, 3], "examples": [4, 4],
        "n_rows": 6, "n_examples": 8,
        "sampling": {
            "type": "Balanced", "column": "label", "power": -0.5, "offset": 1.0, "cap": 3.0, "labels": "max",
            "separator": None, "epoch_size": 8,
        },
    }  # fmt: skip
    assert cli.main(["inspect", str(path), "--balance", "meta.tags", "--labels", "sum", "--row", "1"]) == 0
    out = capsys.readouterr().out
    assert "6 classes of meta.tags" in out
    assert "  (none) " in out
    assert "row 1: " in out


def test_a_long_table_of_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = [1 + i % 7 for i in range(40)]
    names = [f"class {i:02}" for i, n in enumerate(counts) for _ in range(n)]
    audio = pa.array([{"bytes": row.audio, "path": None} for row in tiny_rows(len(names))])
    path = write(tmp_path / "long", pa.table({"audio": audio, "species": names}), "file")
    assert cli.main(["inspect", str(path), "--balance", "species"]) == 0
    lines = capsys.readouterr().out.partition("40 classes of species")[2].splitlines()[2:]
    assert len(lines) == inspect.MOST_COMMON + 1 + inspect.LEAST_COMMON
    assert lines[inspect.MOST_COMMON].strip() == "(22 more)"
    assert lines[0].split()[:3] == ["class", "06", "7"]
    assert lines[-1].split()[:3] == ["class", "35", "1"]


@pytest.mark.parametrize("row", [0, 2, -1])
def test_a_row(row: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    assert cli.main(["inspect", str(path), "--row", str(row), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    at = row % 6
    assert (found["exit_code"], found["rows"], found["row"]["index"], found["row"]["row"]) == (0, 6, at, at)
    assert {name: found["row"][name] for name in ("codec", "sample_rate", "channels", "seconds")} == {
        "codec": "pcm", "sample_rate": 8000, "channels": 1, "seconds": 0.02,
    }  # fmt: skip
    values = found["row"]["columns"]
    assert values == {
        "label": at % 2, "text": ["a" * 500, *"bcdef"][at], "n": [1, None, 3, 4, 5, 6][at],
        "meta.site": f"s{at}", "meta.tags": [at] * at,
    }  # fmt: skip
    lines = err.partition("\nrow ")[2].splitlines()
    assert lines[1] == "  pcm, 8000 Hz, 1 channel, 0.020 s, 160 samples"
    pictured = lines[-13:]
    assert {len(line) for line in pictured} == {79}
    assert set(pictured[0]) <= set(_pictures.BARS)
    assert any("█" in line for line in pictured)


def test_a_null_hides_no_other_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(made(tmp_path)), "--row", "1", "--json", "-"]) == 0
    values = json.loads(capsys.readouterr().out)["row"]["columns"]
    assert values["text"] == "b"
    assert values["meta.tags"] == [1]
    assert "null" in values["n"]


def test_a_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(made(tmp_path)), "--row", "3", "--start", "0.005", "--seconds", "0.01", "--json", "-"]
    assert cli.main(arguments) == 0
    row = json.loads(capsys.readouterr().out)["row"]
    assert (row["start"], row["shown_seconds"], row["seconds"]) == (0.005, 0.01, 0.02)


def decoded(png: bytes) -> Any:
    """The pixels of a PNG of `_pictures.png`, by the standard."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        assert int.from_bytes(png[at + 8 + size : at + 12 + size]) == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
            assert tuple(body[8:]) == (8, 2, 0, 0, 0)
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def test_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path)
    assert cli.main(["inspect", str(path), "--png", str(tmp_path / "row.png"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["png"] == str(tmp_path / "row.png")
    before = (tmp_path / "row.png").read_bytes()
    assert decoded(before).shape == (360, 800, 3)
    with pytest.raises(SystemExit):
        cli.main(["inspect", str(path), "--png", str(tmp_path / "row.png")])
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "row.png").read_bytes() == before


def test_what_a_picture_shows() -> None:
    """A tone is a line at its frequency; silence is black; a loud half is higher than a quiet one."""
    rate, n = 8000, 16_000
    tone = np.sin(2 * np.pi * 1000 * np.arange(n) / rate).astype(np.float32)
    levels = _pictures.spectrogram(tone, 40, 100)
    assert levels.shape == (100, 40)
    assert set(levels.argmax(axis=0)) <= {73, 74, 75}  # 1000 of 4000 Hz, the highest frequency first
    assert not _pictures.spectrogram(np.zeros(n, np.float32), 10, 10).any()
    assert _pictures.spectrogram(tone[:3], 7, 9).shape == (9, 7)
    assert np.allclose(_pictures.peaks(np.r_[tone[:8000], tone[8000:] / 2], 2), [1, 0.5], atol=1e-3)
    pixels = _pictures.drawn(tone[None])
    assert (decoded(_pictures.png(pixels)) == pixels).all()
    lines = _pictures.in_characters(tone[None], 30, rows=5, is_plain=True)
    assert len(lines) == 6
    assert {len(line) for line in lines} == {30}
    assert set("".join(lines)) <= set(_pictures.PLAIN_BARS + _pictures.PLAIN_SHADES)
    assert _pictures.in_characters(np.zeros((2, 50), np.float32), 4)[0] == "    "
    wav = _pictures.wav(tone[None], rate)
    assert len(wav) == 44 + 2 * n
    assert np.abs(np.frombuffer(wav[44:], "<i2") / 32767 - tone).max() < 1e-4


def test_without_a_terminal(tmp_path: Path) -> None:
    code, out, err = said(made(tmp_path), "--row", "1")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "█" in out
    command = [sys.executable, "-m", "forebay", "inspect", str(tmp_path / "a.arrow"), "--row", "1"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, check=True, env=plain)
    assert done.stdout.isascii()
    assert b"#" in done.stdout


def test_on_a_terminal(tmp_path: Path) -> None:
    """The picture is as wide as the terminal."""
    path = made(tmp_path)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "forebay", "inspect", str(path), "--row", "1"]
    env = {**os.environ, "COLUMNS": "47", "PYTHONUTF8": "1"}
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        found = io.BytesIO()
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            found.write(data)
    os.close(leader)
    assert process.returncode == 0
    lines = found.getvalue().decode().replace("\r\n", "\n").splitlines()
    assert {len(line) for line in lines[-13:]} == {46}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--row", "6"], 2, "--row is 6, must be a row: there are 6"),
        (["--row", "-7"], 2, "--row is -7, must be a row"),
        (["--row", "1", "--start", "0.02"], 2, "start is 0.02, must be at least 0.0 and below 0.02"),
        (["--row", "1", "--start", "-1"], 2, "--start is -1, must be a number of seconds from 0 on"),
        (["--row", "1", "--seconds", "nan"], 2, "--seconds is nan, must be a number"),
        (["--audio-column", "sound"], 2, "there is no such column"),
        (["--num-buckets", "3"], 2, "--num-buckets needs --buckets S"),
        (["--buckets", "-1"], 2, "--buckets is -1.0, must be above 0"),
        (["--buckets", "400", "--num-buckets", "0"], 2, "--num-buckets is 0, must be 1 to 4096"),
        (["--buckets", "400", "--min-seconds", "9", "--max-seconds", "1"], 2, "seconds"),
        (["--buckets", "400", "--duration", "text"], 2, "has no number above 0"),
        (["--balance", "none"], 2, 'column "none"'),
        (["--power", "-0.5"], 2, "--power needs --balance COLUMN"),
        (["--balance", "label", "--power", "9"], 2, "--power is 9.0, must be from -4 to 4"),
        (["--balance", "label", "--labels", "all"], 2, '--labels is "all", must be one of'),
        (["--balance", "label", "--cap", "1", "--epoch-size", "7"], 2, "cap is 1, and 6 rows that often are fewer"),
        (["--png", "none/row.png"], 2, "the folder of --png none/row.png does not exist"),
    ],
)
def test_errors(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["inspect", str(made(tmp_path)), *arguments])
    assert ended.value.code == code
    err = capsys.readouterr().err
    assert err.startswith("forebay inspect: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_bad_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["inspect", str(tmp_path / "none.arrow")])
    assert "none.arrow" in capsys.readouterr().err
    shard = write_shard(tmp_path / "b.arrow", [*tiny_rows(2), Row(b"no recording", 0)])
    assert cli.main(["inspect", str(shard), "--row", "2"]) == 1
    assert "b.arrow, row 2" in capsys.readouterr().err
    assert cli.main(["inspect", str(shard), "--row", "1"]) == 0


def test_recordings_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder and a table say what they are, and each row its file; of a bad recording too."""
    folder = tmp_path / "some"
    write_recordings(folder / "wren", 2)
    (folder / "wren" / "zz.wav").write_bytes(b"no recording")
    assert cli.main(["inspect", str(folder), "--row", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 rows in 1 folder\n")
    assert "is not read" not in out
    (folder / "labels.csv").write_text("path,label\nwren/zz.wav,owl\n")
    assert cli.main(["inspect", str(folder)]) == 0
    unread = f"\n{folder / 'labels.csv'} is not read: pass it in place of its folder\n"
    assert unread in (told := capsys.readouterr().out), told
    (folder / "metadata.csv").write_text("file_name,label\nwren/zz.wav,owl\n")
    assert cli.main(["inspect", str(folder)]) == 0
    assert "is not read" not in (told := capsys.readouterr().out), told
    (folder / "metadata.csv").unlink()
    assert re.search(rf"row 0: {folder}, row 0, wren/.+\n", out)
    with forebay.AudioDataset(folder) as dataset:
        paths = [dataset.path(row) for row in range(-3, 0)]
    assert paths[-1] == "wren/zz.wav"
    assert all(path and (folder / path).is_file() for path in paths)
    write_table(tmp_path / "t.csv", [{"path": f"some/{path}", "site": "x"} for path in paths])
    assert cli.main(["inspect", str(tmp_path / "t.csv"), "--row", "1", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["row"]
    assert err.startswith("3 rows in 1 table\n")
    assert (found["path"], found["columns"]["site"]) == (f"some/{paths[1]}", "x")


@pytest.mark.parametrize("form", ["stream", "parquet"])
def test_the_path_within_a_shard(form: str, tmp_path: Path, rows: list[Row]) -> None:
    path = write_shard(tmp_path / "a.arrow", [Row(b"bad", path="mine.ogg"), *rows[:2]])
    if form == "parquet":
        with pa.ipc.open_stream(path) as shard:
            path = tmp_path / "a.parquet"
            pq.write_table(shard.read_all(), path)
    with forebay.AudioDataset(path, label_column="") as dataset:
        assert dataset.path(0) == "mine.ogg"
        assert [dataset.path(np.int64(-1)), dataset.path(1)] == [rows[1].path, rows[0].path]
        with pytest.raises(IndexError):
            dataset.path(3)
        dataset.close()
        with pytest.raises(forebay.ForebayError):
            dataset.path(0)
