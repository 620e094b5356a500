"""`forebay check`: decodes every recording and reports the bad ones; loaders exclude rows by that report."""

import contextlib
import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import wave
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import ogg
from digests import digest
from forebay import cli
from forebay.cli import check, check_report
from paths import DATA
from recordings import TINY, Row, tiny_rows, write_shard
from timing import claim, fresh, timed

AUDIO = DATA / "audio"


def expected() -> dict[str, str]:
    """The bundled files with the expected kind of error, or the sample rate of good ones."""
    with (AUDIO / "expected.tsv").open() as file:
        return {line.split("\t")[0]: line.rstrip("\n").split("\t")[1] for line in file if not line.startswith("#")}


def report(stem: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The contents of both files of a report."""
    with stem.with_suffix(".csv").open(newline="") as file:
        return json.loads(stem.with_suffix(".json").read_text()), list(csv.DictReader(file))


def begin(stem: Path, rows: bytes, **more: Any) -> None:
    """Writes the partial report of an interrupted run."""
    files = check_report.Files(stem)
    files.named(".json.tmp").write_text(json.dumps({"begun_by": "forebay check", **more}))
    files.named(".csv.tmp").write_bytes(rows)


def test_what_is_reported(rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report of good and bad recordings in two shards."""
    wav = tiny_rows(1)[0].audio
    assert wav is not None
    flat = wav[:44] + b"\0" * (len(wav) - 44)
    loud = wav[:44] + b"\xff\x7f" * ((len(wav) - 44) // 2)
    added = [Row(b"no recording", 0, "bad.wav"), Row(None, 0, "gone.wav"), Row(b"", 0), Row(flat), Row(loud)]
    files = [write_shard(tmp_path / "a.arrow", rows), write_shard(tmp_path / "b.arrow", added)]
    stem = tmp_path / "found"
    assert cli.main(["check", *map(str, files), "-o", str(stem)]) == 1
    found, lines = report(stem)
    assert [int(line["index"]) for line in lines] == list(range(len(rows) + 5))
    assert tuple(lines[0]) == check_report.COLUMNS
    n = len(rows)
    kinds = [line["kind"] for line in lines]
    assert kinds == [""] * n + ["unsupported", "unreadable", "empty", "", ""]
    assert [(bad["shard_number"], bad["row"], bad["kind"]) for bad in found["bad"]] == [
        (1, 0, "unsupported"), (1, 1, "unreadable"), (1, 2, "empty"),
    ]  # fmt: skip
    assert lines[n]["path"] == "bad.wav"
    assert (float(lines[n + 3]["peak"]), float(lines[n + 3]["silence"])) == (0.0, 1.0)
    assert float(lines[n + 4]["peak"]) == pytest.approx(1, abs=1e-4)
    assert float(lines[n + 4]["clipping"]) == 1.0
    for line, row in zip(lines, rows, strict=False):
        assert row.audio is not None
        waveform, rate = forebay.decode(row.audio)
        assert (int(line["rate"]), int(line["channels"])) == (rate, waveform.shape[0] if waveform.ndim > 1 else 1)
        assert float(line["seconds"]) == pytest.approx(waveform.shape[-1] / rate)
        assert float(line["peak"]) == pytest.approx(float(abs(waveform).max()))
        assert int(line["bytes"]) == len(row.audio)
    summary = found["summary"]
    good = [line for line in lines if not line["kind"]]
    assert (summary["records"], summary["bad"]) == (n + 5, 3)
    assert summary["clipped"] == sum(float(line["clipping"]) >= check_report.CLIPPED for line in good) >= 1
    assert summary["silent"] == sum(float(line["silence"]) == 1.0 for line in good) >= 1
    assert sum(summary["codecs"].values()) == sum(summary["durations"].values()) == n + 2
    assert summary["codecs"] == dict(Counter(line["codec"] for line in good).most_common())
    out, err = capsys.readouterr()
    assert "skipped" not in err
    assert f"{n + 5} recordings" in out
    assert "; 3 bad" in out
    assert f"\nbad: {files[1]}, row 0, bad.wav: " in out
    assert "codecs:\n" in out
    assert not list(tmp_path.glob("*.tmp"))


def slipped(data: bytes, page: int, samples: int) -> bytes:
    """An Ogg file with the granule position of one page shifted, and a valid checksum."""
    pages = ogg.take_apart(data)
    pages[page] = replace(pages[page], granule=pages[page].granule + samples)
    return ogg.put_together(pages)


def test_what_is_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Vorbis with wrong granule positions is good, and the report counts the repaired samples."""
    data = (AUDIO / "vorbis" / "perch_16000_mono.ogg").read_bytes()
    shard = write_shard(tmp_path / "a.arrow", [Row(data, 0), Row(slipped(data, 5, -100), 0), Row(b"bad", 0)])
    stem = tmp_path / "found"
    assert cli.main(["check", str(shard), "-o", str(stem)]) == 1
    found, lines = report(stem)
    # The samples that the page cuts are filled by the next page.
    assert [(line["kind"], line["repaired"]) for line in lines] == [("", "0"), ("", "200"), ("unsupported", "")]
    assert lines[0]["seconds"] == lines[1]["seconds"]
    assert (found["summary"]["repaired"], found["summary"]["bad"]) == (1, 1)
    assert "1 have time stamps that contradict their samples" in capsys.readouterr().out


def test_bad_rows_are_not_held(tmp_path: Path) -> None:
    """Bad rows are written one at a time, in the format of `json.dump`; in memory they took 1.2 KB each."""
    n = 20_000
    table = pa.table({"audio": pa.array([None] * n, pa.binary())})
    shard = tmp_path / "nulls.arrow"
    with pa.ipc.new_stream(shard, table.schema) as writer:
        writer.write_table(table)
    stem = tmp_path / "found"
    tracemalloc.start()
    summary = check.check([shard], stem, stream=io.StringIO())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary.bad == n
    assert peak < 4_000_000
    for path, bad in [(stem, n), (stem.with_name("good"), 0)]:
        if bad == 0:
            check.check([write_shard(tmp_path / "good.arrow", tiny_rows(3))], path, stream=io.StringIO())
        found, lines = report(path)
        assert path.with_suffix(".json").read_text() == json.dumps(found, indent=1)
        assert [row["index"] for row in found["bad"]] == list(range(bad))
        assert {row["reason"] for row in found["bad"]} == {line["reason"] for line in lines if line["kind"]}
        assert check_report.read_json(path.with_suffix(".json")) == {**found, "bad": []}


def test_rows_of_the_partial_table(tmp_path: Path) -> None:
    """A reason may be longer than the csv module's limit; missing rows raise."""
    files = check_report.Files(tmp_path / "report")
    table = files.named(".csv.tmp")
    row = dict.fromkeys(check_report.COLUMNS) | {
        "index": 0,
        "shard": "a",
        "row": 0,
        "kind": "io",
        "reason": 'é"' * 100_000,
    }
    with table.open("w", encoding="utf-8", newline="") as file:
        file.write(check_report.HEADER.decode())
        check_report.write(file, [row])
        file.write("1,a,1")
    [(found, end)] = check_report.whole_rows(table)
    assert found["reason"] == row["reason"]
    assert end == table.stat().st_size - len("1,a,1")
    assert [bad["index"] for bad in files.bad_rows(1)] == [0]
    with pytest.raises(forebay.ConfigError, match="has 1 of the 2 rows that were written to it"):
        list(files.bad_rows(2))


def test_parquet(rows: list[Row], tmp_path: Path) -> None:
    """Parquet files and Arrow shards of the same recordings have the same findings."""
    audio = [{"bytes": row.audio, "path": row.path} for row in [*rows[:4], Row(b"bad", 0, "bad.wav")]]
    pq.write_table(pa.table({"audio": audio}), tmp_path / "a.parquet", row_group_size=2)
    write_shard(tmp_path / "a.arrow", [*rows[:4], Row(b"bad", 0, "bad.wav")])
    assert cli.main(["check", str(tmp_path / "a.parquet"), "-o", str(tmp_path / "p")]) == 1
    assert cli.main(["check", str(tmp_path / "a.arrow"), "-o", str(tmp_path / "q")]) == 1
    apart = ("shard", "path")
    of = [[{k: v for k, v in line.items() if k not in apart} for line in report(tmp_path / name)[1]] for name in "pq"]
    assert of[0] == of[1]
    assert report(tmp_path / "p")[1][4]["path"] == "bad.wav"


def test_loaders_take_the_report(tiny_shards: list[Path], tmp_path: Path) -> None:
    """Excluding the bad rows of a report leaves batches unchanged, for any order or subset of the shards."""
    stem = tmp_path / "report"
    summary = check.check(tiny_shards, stem, stream=io.StringIO())
    assert (summary.records, summary.bad) == (300, 15)
    path = stem.with_suffix(".json")
    settings: Any = {**TINY, "batch_size": 16, "shuffle_min_size": 50}
    for shards in (tiny_shards, tiny_shards[::-1], tiny_shards[1:3]):
        with forebay.Loader(shards, **settings) as plain, forebay.Loader(shards, **settings, exclude=path) as spared:
            batches = [[digest(batch) for batch in islice(loader, 20)] for loader in (plain, spared)]
            assert batches[0] == batches[1]
            assert plain.errors()
            assert spared.errors() == []


def test_a_report_of_other_shards_is_refused(tiny_shards: list[Path], tmp_path: Path) -> None:
    stem = tmp_path / "report"
    check.check(tiny_shards[:2], stem, stream=io.StringIO())
    path = stem.with_suffix(".json")
    with pytest.raises(forebay.ConfigError, match=r"2\.arrow: the report has no shard of that name"):
        forebay.Loader(tiny_shards, exclude=path)
    other = write_shard(tmp_path / "0.arrow", tiny_rows(61))
    with pytest.raises(forebay.ConfigError, match="it has 61 rows, 60 were checked"):
        forebay.Loader(other, exclude=path)
    longer = write_shard(tmp_path / "1.arrow", [*tiny_rows(59), Row(b"x" * 99)])
    with pytest.raises(forebay.ConfigError, match=r"it has \d+ bytes, \d+ were checked"):
        forebay.Loader(longer, exclude=path)
    for text in ("", "{}", '{"report": "forebay check", "version": 2}', "[1, 2]"):
        wrong = tmp_path / "wrong.json"
        wrong.write_text(text)
        with pytest.raises(forebay.ConfigError, match="is not a report by `forebay check`"):
            forebay.Loader(tiny_shards, exclude=wrong)
    with pytest.raises(FileNotFoundError):
        forebay.Loader(tiny_shards, exclude=tmp_path / "nowhere.json")


def test_it_goes_on_where_it_was_cut_off(tiny_shards: list[Path], tmp_path: Path) -> None:
    """A partial report cut at any byte is resumed; without its header only with --restart."""
    whole = tmp_path / "whole"
    check.check(tiny_shards, whole, stream=io.StringIO())
    text = whole.with_suffix(".csv").read_bytes()
    shards = report(whole)[0]["shards"]
    for cut in (0, 10, len(text) // 3, len(text) // 2 + 1, len(text) - 1, len(text)):
        stem = tmp_path / f"cut{cut}"
        begin(stem, text[:cut], shards=shards)
        if cut < 100:
            with pytest.raises(forebay.ConfigError, match="has an unexpected first line"):
                check.check(tiny_shards, stem, stream=io.StringIO())
        stream = io.StringIO()
        check.check(tiny_shards, stem, restart=cut < 100, stream=stream)
        assert ("continuing" in stream.getvalue()) == (cut >= 100)
        assert stem.with_suffix(".csv").read_bytes() == text
        assert stem.with_suffix(".json").read_bytes() == whole.with_suffix(".json").read_bytes()


def test_what_was_begun_over_other_shards_is_not_gone_on_with(tiny_shards: list[Path], tmp_path: Path) -> None:
    stem = tmp_path / "report"
    begin(stem, check_report.HEADER, shards=[{"path": "elsewhere"}])
    with pytest.raises(forebay.ConfigError, match="started with other shards: 1 files, these are 5"):
        check.check(tiny_shards, stem, stream=io.StringIO())
    check.check(tiny_shards, stem, restart=True, stream=io.StringIO())
    assert report(stem)[0]["summary"]["records"] == 300


INTERRUPTED = """
import sys
from forebay import _core, cli
_core._inject_delays(fixed_ms=float(sys.argv[1]))  # slow enough to be interrupted
sys.exit(cli.main(sys.argv[2:]))
"""


@timed
def test_interrupted_again_and_again(tmp_path: Path) -> None:
    """Runs interrupted by Ctrl-C on a terminal exit with 130, and resumed runs write the report of one run."""
    tmp_path = fresh(tmp_path)
    shard = write_shard(tmp_path / "long.arrow", [*tiny_rows(30_000), Row(b"bad")], rows_per_batch=1000)
    whole, stem = tmp_path / "whole", tmp_path / "report"
    check.check([shard], whole, stream=io.StringIO())
    partial = tmp_path / ".report.csv.forebay-part"
    codes, seconds, drawn = [], [], bytearray()
    for interrupts in (True, True, True, False):
        before = partial.stat().st_size if partial.exists() else 0
        ours, theirs = pty.openpty()
        command = [sys.executable, "-c", INTERRUPTED, str(int(interrupts)), "check", str(shard), "-o", str(stem)]
        with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as process:
            os.close(theirs)
            listener = threading.Thread(target=listen, args=(ours, drawn))
            listener.start()
            while interrupts and process.poll() is None:
                with contextlib.suppress(FileNotFoundError):  # the run has not begun or has ended
                    if partial.stat().st_size > before + 4000:
                        process.send_signal(signal.SIGINT)
                        break
                time.sleep(0.005)
            begin = time.monotonic()
            codes.append(process.wait(300))
            seconds.append(time.monotonic() - begin)
            listener.join()
        os.close(ours)
    assert codes[-1] == 1, "the exit code is not that for a bad recording"
    claim(codes[:-1] == [130, 130, 130], "a run ended before its interrupt", codes)
    assert b"recordings/s" in drawn
    assert b"Traceback" not in drawn
    assert stem.with_suffix(".csv").read_bytes() == whole.with_suffix(".csv").read_bytes()
    assert stem.with_suffix(".json").read_bytes() == whole.with_suffix(".json").read_bytes()
    claim(max(seconds[:-1]) < 5, seconds)


def listen(terminal: int, heard: bytearray) -> None:
    """Reads from a terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 1 << 16):
            heard += chunk


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_shard(tmp_path / "a.arrow", tiny_rows(20))
    assert cli.main(["check", str(good), "-o", str(tmp_path / "good")]) == 0
    cut = tmp_path / "cut.arrow"
    cut.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    assert cli.main(["check", str(cut), "-o", str(tmp_path / "cut")]) == 1
    assert "damaged: " in capsys.readouterr().out
    for wrong in ([], [str(tmp_path / "nothing.json.tmp"), str(tmp_path / "b.parquet")]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *wrong])
        assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", str(tmp_path / "gone.arrow"), "-o", str(tmp_path / "gone")])
    assert ended.value.code == 2
    assert "gone.arrow is missing, must be a file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["check", str(good), "-o", str(tmp_path / "none" / "report")])
    assert f"the report's folder {tmp_path / 'none'} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".csv", ".json", ".csv.tmp", ".json.tmp", ".json.whole.tmp"])
def test_files_of_others_stay(
    tiny_shards: list[Path], tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files by other programs are not replaced, even with --restart; files of an earlier report are."""
    stem = tmp_path / "report"
    check.check(tiny_shards, stem, stream=io.StringIO())
    check.check(tiny_shards, stem, stream=io.StringIO())
    content = {".csv": "a,b\n", ".json": '{"report": "mine"}', ".json.tmp": '{"mine": 1}'}.get(ending, "mine")
    check_report.Files(stem).named(ending).write_text(content)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for more in ([], ["--restart"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *map(str, tiny_shards), "-o", str(stem), *more])
        assert ended.value.code == 2
        assert "is not a report of forebay check" in capsys.readouterr().err.replace("\n", " ")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", [".csv", ".json", ".csv.tmp", ".json.tmp", ".json.whole.tmp", ".lock.tmp"])
@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo", "alike"])
def test_what_is_no_report_stays(
    tiny_shards: list[Path], tmp_path: Path, ending: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links, folders, FIFOs, and files that only begin like a report are not replaced."""
    stem, mine = tmp_path / "report", tmp_path / "mine"
    mine.touch()
    path = check_report.Files(stem).named(ending)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "alike":
        path.write_text("index,shard,mine\n" if "csv" in ending else '{"shards": []}')
    else:
        path.symlink_to(mine if kind == "link" else tmp_path / "nothing")
    before = sorted(tmp_path.iterdir())
    for more in ([], ["--restart"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *map(str, tiny_shards[:1]), "-o", str(stem), *more])
        assert ended.value.code == 2
        said = capsys.readouterr().err.replace("\n", " ")
        assert f"{path} is " in said
        assert "is not a report of forebay check" in said
    assert sorted(tmp_path.iterdir()) == before
    assert mine.read_bytes() == b""


@pytest.mark.parametrize("name", ["report.csv.tmp", "report.json.tmp", "report.json.whole.tmp"])
def test_files_of_other_names_stay(tiny_shards: list[Path], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{mine")
    check.check(tiny_shards[:1], tmp_path / "report", stream=io.StringIO())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["report.csv", "report.json", name])
    assert (tmp_path / name).read_text() == "{mine"


@pytest.mark.parametrize("output", [".", "..", "/"])
def test_a_report_needs_a_name(tiny_shards: list[Path], output: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", *map(str, tiny_shards[:1]), "-o", output])
    assert ended.value.code == 2
    assert "is a folder, expected the name of a report" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("column", ["bytes", "row", "seconds", "clipping", "rate"])
@pytest.mark.parametrize("value", ["", "x", "-1", "nan", "9" * 5000, "9" * 200_000])
def test_rows_that_nobody_wrote_are_checked_again(
    tiny_shards: list[Path], tmp_path: Path, column: str, value: str
) -> None:
    whole, stem = tmp_path / "whole", tmp_path / "report"
    check.check(tiny_shards[:1], whole, stream=io.StringIO())
    lines = whole.with_suffix(".csv").read_text().splitlines(keepends=True)
    fields = lines[3].split(",")
    fields[check_report.COLUMNS.index(column)] = value
    text = "".join([*lines[:3], ",".join(fields), *lines[4:]])
    begin(stem, text.encode(), shards=report(whole)[0]["shards"])
    check.check(tiny_shards[:1], stem, stream=io.StringIO())
    if (column, value) != ("row", "-1"):  # -1 is a valid number there
        assert stem.with_suffix(".csv").read_text() == "".join(lines)


@pytest.mark.parametrize("left", ["[" * 100_000, ', "shards": ' + "[" * 100_000, ', "shards": [3]}', ', "shards": {}}'])
def test_a_damaged_partial_report(tiny_shards: list[Path], tmp_path: Path, left: str) -> None:
    stem = tmp_path / "report"
    begin(stem, check_report.HEADER)
    check_report.Files(stem).named(".json.tmp").write_bytes(check_report.BEGUN + left.encode())
    with pytest.raises(forebay.ConfigError, match="does not list them; pass another -o, or --restart"):
        check.check(tiny_shards[:1], stem, stream=io.StringIO())
    check.check(tiny_shards[:1], stem, restart=True, stream=io.StringIO())


def test_one_run_at_a_time(tiny_shards: list[Path], tmp_path: Path) -> None:
    """A second run for the same report raises; both would write all rows."""
    stem = tmp_path / "report"
    with check_report.Files(stem).alone(), pytest.raises(forebay.ConfigError, match="another forebay check is writing"):
        check.check(tiny_shards[:1], stem, stream=io.StringIO())
    assert list(tmp_path.iterdir()) == []
    check.check(tiny_shards[:1], stem, stream=io.StringIO())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.csv", "report.json"]


@pytest.mark.parametrize("step", range(4))
def test_a_run_that_dies_at_its_end_is_resumed(
    tiny_shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """After a failure at any step of the renames, only the last rows are checked again."""
    check.check(tiny_shards, tmp_path / "whole", stream=io.StringIO())
    steps: list[str] = []

    def dying(name: str, real: Any) -> Any:
        def called(*arguments: Any, **keywords: Any) -> Any:
            if len(steps) == step:
                raise KeyboardInterrupt
            steps.append(name)
            return real(*arguments, **keywords)

        return called

    stem = tmp_path / "report"
    with monkeypatch.context() as patch:
        patch.setattr(json, "dump", dying("dump", json.dump))
        patch.setattr(Path, "replace", dying("replace", Path.replace))
        with pytest.raises(KeyboardInterrupt):
            check.check(tiny_shards, stem, stream=io.StringIO())
    assert steps == ["dump", "replace", "replace", "replace"][:step]
    stream = io.StringIO()
    check.check(tiny_shards, stem, stream=stream)
    assert "288 of 300 recordings were checked before" in stream.getvalue()
    for ending in (".csv", ".json"):
        assert stem.with_suffix(ending).read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("report*")) == ["report.csv", "report.json"]


def test_a_full_disk(tiny_shards: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk is an error, and files with a report's name are never partial."""
    stem = tmp_path / "report"
    written = 0
    write = check_report.write

    def full(file: Any, rows: Any) -> None:
        nonlocal written
        written += 1
        if written == 5:
            raise OSError(28, "No space left on device", str(stem))
        write(file, rows)

    monkeypatch.setattr(check_report, "write", full)
    assert cli.main(["check", *map(str, tiny_shards), "-o", str(stem)]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".report.csv.forebay-part", ".report.json.forebay-part"]
    assert cli.main(["check", *map(str, tiny_shards), "-o", str(stem)]) == 1
    assert report(stem)[0]["summary"]["records"] == 300


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_for_real(tiny_shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: Path, mode: Any) -> Any:
        return Path("/dev/full").open("r+b", buffering=0) if path.name.startswith(".report.json") else real(path, mode)

    real = check_report.open_file  # type: ignore[attr-defined]
    monkeypatch.setattr(check_report, "open_file", opened)
    assert cli.main(["check", *map(str, tiny_shards), "-o", str(tmp_path / "report"), "--restart"]) == 1
    assert not (tmp_path / "report.json").exists()


def halves() -> tuple[list[Row], list[Row]]:
    """Recordings of every container that declares its length or its end, and the first half of each."""
    names = [
        "cpython-audiodata/pluck-pcm16.wav", "made/s16.w64", "made/s16.rf64", "made/s24.aiff", "made/s24.au",
        "made/s16le.sph", "mewkiz-flac/80574.flac", "mpeg/lame_cbr64_44100_mono.mp3", "vorbis/perch_16000_mono.ogg",
    ]  # fmt: skip
    whole = [Row((AUDIO / name).read_bytes(), 0, name) for name in names]
    return whole, [Row(row.audio[: len(row.audio) // 2], 0, row.path) for row in whole if row.audio]


def test_halves_are_warned_of_or_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--truncated` selects; loaders accept both reports, and reports of versions without warnings."""
    whole, half = halves()
    n = len(whole)
    shard = write_shard(tmp_path / "a.arrow", [*whole, *half])
    assert cli.main(["check", str(shard), "-o", str(tmp_path / "warned")]) == 0
    found, lines = report(tmp_path / "warned")
    assert [line["warnings"] for line in lines[:n]] == [""] * n
    assert all(line["warnings"].startswith("cut short: ") for line in lines[n:]), lines[n:]
    assert found["bad"] == []
    assert (found["summary"]["bad"], found["summary"]["warned"]) == (0, n)
    assert f"{n} have a warning" in capsys.readouterr().out
    for one, other in zip(lines[:n], lines[n:], strict=True):
        assert float(other["seconds"]) < float(one["seconds"])
        if one["codec"] == "vorbis":
            assert one["declared_seconds"] == other["declared_seconds"] == ""
        else:
            assert one["seconds"] == one["declared_seconds"] == other["declared_seconds"]
    assert cli.main(["check", str(shard), "-o", str(tmp_path / "strict"), "--truncated", "error"]) == 1
    found, lines = report(tmp_path / "strict")
    assert [line["kind"] for line in lines] == [""] * n + ["truncated"] * n
    assert [bad["row"] for bad in found["bad"]] == list(range(n, 2 * n))
    assert lines[n]["reason"] == "the header declares 3307 samples, found 1635"
    assert {line["warnings"] for line in lines} == {""}
    assert all(line["peak"] for line in lines)

    def rows(stem: str) -> list[int]:
        path = tmp_path / f"{stem}.json"
        with forebay.Loader.eval(shard, batch_size=64, **TINY, exclude=path) as loader:
            return sorted(row for batch in loader for row in batch["index"].tolist())

    assert rows("warned") == list(range(2 * n)), "warnings excluded rows"
    assert rows("strict") == list(range(n))
    for bad in found["bad"]:
        del bad["warnings"], bad["declared_seconds"]
    del found["summary"]["warned"]
    (tmp_path / "old.json").write_text(json.dumps(found))
    assert rows("old") == list(range(n))


def test_it_goes_on_with_the_same_truncated_only(tmp_path: Path) -> None:
    whole, half = halves()
    shard = write_shard(tmp_path / "a.arrow", [*whole, *half] * 3)
    check.check([shard], tmp_path / "one", truncated="error", stream=io.StringIO())
    text = (tmp_path / "one.csv").read_bytes()
    shards = report(tmp_path / "one")[0]["shards"]
    stem = tmp_path / "two"
    begin(stem, text[: 2 * len(text) // 3], shards=shards, truncated="error")
    with pytest.raises(forebay.ConfigError, match="was started with --truncated error; pass that again"):
        check.check([shard], stem, stream=io.StringIO())
    check.check([shard], stem, truncated="error", stream=io.StringIO())
    assert (tmp_path / "two.csv").read_bytes() == text
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()


def test_several_warnings_are_one_text() -> None:
    row = dict.fromkeys(check_report.COLUMNS) | {"truncated": "it ends", "warnings": ["two pages were mended", "b"]}
    warned = check_report.settled(row, "warn")
    assert (warned["kind"], warned["warnings"]) == (None, "cut short: it ends; two pages were mended; b")
    bad = check_report.settled(row, "error")
    assert (bad["kind"], bad["reason"], bad["warnings"]) == ("truncated", "it ends", "two pages were mended; b")
    assert set(warned) == set(check_report.COLUMNS)


def test_every_bundled_file(tmp_path: Path) -> None:
    """Each bundled file is good, or has the expected kind of error."""
    files = expected()
    rows = [Row((AUDIO / name).read_bytes(), 0, name) for name in files]
    shard = write_shard(tmp_path / "all.arrow", rows)
    check.check([shard], tmp_path / "all", stream=io.StringIO())
    for line in report(tmp_path / "all")[1]:
        known = files[line["path"]]
        assert line["kind"] == (known if not known.isdigit() else ""), line


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            "path,start,end\nhalf.wav,0,250\n",
            "the segment ends 249.50 s behind its recording, which has 0.50 s (segments are seconds)",
        ),
        ("path,start,end\nhalf.wav,0.25,0.55\n", ""),
        ("path,start,end\nhalf.wav,0.25,\n", ""),
    ],
)
def test_a_segment_behind_its_recording(
    table: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A segment of milliseconds is told, one that is rounded or has no end is not."""
    with wave.open(str(tmp_path / "half.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 8000))
    (tmp_path / "table.csv").write_text(table)
    stem = tmp_path / "found"
    assert cli.main(["check", str(tmp_path / "table.csv"), "-o", str(stem)]) == 0
    _, lines = report(stem)
    assert [line["warnings"] for line in lines] == [told]
    assert ("1 have a warning" in capsys.readouterr().out) == bool(told)
