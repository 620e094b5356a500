"""Large files are read in part; what changes meanwhile is a bad record."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from forebay import Manifest, _core, crops
from recordings import FORMATS

CLIP: dict[str, Any] = {"sample_rate": 8000, "clip_seconds": 0.5, "n_fft": 256, "hop_length": 80, "n_mels": 16}
ONE_PASS: dict[str, Any] = {**CLIP, "batch_size": 4, "infinite": False, "order": "sequential", "shuffle_min_size": 0}


def wav(samples: bytes, rate: int = 8000) -> bytes:
    return (
        b"RIFF" + (36 + len(samples)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
        + b"\x01\x00\x01\x00" + rate.to_bytes(4, "little") + (2 * rate).to_bytes(4, "little") + b"\x02\x00\x10\x00"
        + b"data" + len(samples).to_bytes(4, "little") + samples
    )  # fmt: skip


def minutes(n: int) -> bytes:
    """As many minutes at 8 kHz, in which no two clips are alike."""
    return np.random.default_rng(n).integers(-9000, 9000, n * 60 * 8000, np.int16).tobytes()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.wav"
    path.write_bytes(wav(minutes(20)))
    return path


def n_open() -> int:
    """The files that this process has open; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.is_dir() else 0


def of(source: Any, **changes: Any) -> list[dict[str, Any]]:
    with forebay.Loader(source, **{**ONE_PASS, **changes}) as loader:
        found = list(loader)
        assert not loader.errors()
    return found


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        for name in mine:
            assert np.array_equal(mine[name], theirs[name]), name


def test_a_part_is_the_same_as_the_whole(long: Path, tmp_path: Path) -> None:
    # Of a compressed record batch all is read.
    shard = tmp_path / "a.arrow"
    table = pa.table({"audio": pa.array([long.read_bytes()] * 3, pa.binary())})
    with pa.ipc.new_file(shard, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as arrow:
        arrow.write_table(table)
    for seed in range(5):
        for changes in ({"augment": True, "seed": seed}, {"augment": False}, {"sample_rate": 11025, "augment": True}):
            same(of([long, long, long], **changes), of([shard], **changes))


def test_few_bytes_are_read(long: Path) -> None:
    segments: list[dict[str, Any]] = [{"path": long, "start": 10.0 * i, "end": 10.0 * i + 5} for i in range(100)]
    with forebay.Loader(Manifest(segments, root=long.parent), **ONE_PASS, n_readers=4) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 100
        found = loader.stats()["files"]
    # Head and tail once for each reader at most, then one read for each row.
    assert found["indexes"] == 1
    assert found["indexed"] <= 4
    assert found["reads"] <= 100 + 3 * found["indexed"]
    assert found["read_bytes"] <= 100 * (2 * 8000 + 200_000) + found["indexed"] * (1 << 20)
    assert found["open"] == 1


@pytest.mark.parametrize("step", [0.5, 0.125])
def test_windows_read_each_part_once(long: Path, step: float) -> None:
    """Runs of windows share a read; nothing is read as a whole, though it would fit."""
    crop = crops.Windows(step)
    with forebay.Loader(long, crop=crop, **ONE_PASS) as loader:
        n = sum(len(batch["index"]) for batch in loader)
        found = loader.stats()["files"]
    assert n == 1 + np.ceil((20 * 60 - 0.5) / step)
    size = long.stat().st_size
    # Runs of 64 windows or more; head and tail for each reader at most, and windows of the search around them.
    assert found["reads"] <= n / 64 + 3 * (found["indexed"] + 1)
    assert size <= found["read_bytes"] <= 1.5 * size + (found["indexed"] + 1) * (1 << 20)
    limits: dict[str, Any] = {"max_record_bytes": 1 << 20, "max_decoded_seconds": 10.0}
    same(of([long], crop=crop, **limits)[:4], of([long], crop=crop)[:4])


def test_a_dataset_reads_parts(long: Path) -> None:
    """As a loader does; the whole would be above the limits."""
    limits: dict[str, Any] = {"max_record_bytes": 1 << 20, "max_decoded_seconds": 10.0}
    with forebay.AudioDataset(long, **CLIP, **limits) as dataset, forebay.AudioDataset(long, **CLIP) as free:
        starts = [0.0, 7.25, 1199.5]
        got, want = (each.get_batch([0, 0, 0], starts) for each in (dataset, free))
        assert np.array_equal(got["spectrogram"], want["spectrogram"])
        samples, rate = dataset.waveform(0, start=600.0, seconds=1.0)
        assert rate == 8000
        pcm = np.frombuffer(long.read_bytes()[44:], "<i2")[600 * 8000 : 601 * 8000]
        assert np.array_equal(samples[0], pcm.astype(np.float32) / 32768)
        assert dataset.info(0)["seconds"] == 1200.0


def test_segments_of_a_long_file(long: Path, tmp_path: Path) -> None:
    pcm = long.read_bytes()[44:]
    segments: list[dict[str, Any]] = [
        {"path": "long.wav", "start": 37.5 * i, "end": 37.5 * i + 2 + i / 7} for i in range(30)
    ]
    parts = []
    for i, row in enumerate(segments):
        start, end = (round(row[name] * 8000) for name in ("start", "end"))
        (tmp_path / f"{i}.wav").write_bytes(wav(pcm[2 * start : 2 * end]))
        parts.append({"path": f"{i}.wav"})
    for changes in ({"augment": True}, {"sample_rate": 22050, "augment": True}):
        same(
            of(Manifest(segments, root=long.parent), **changes, outputs=["start"]),
            of(Manifest(parts, root=tmp_path), **changes, outputs=["start"]),
        )


def test_limits_are_those_of_what_is_read(long: Path) -> None:
    """A recording above max_record_bytes and max_decoded_seconds is good if only a span is read."""
    limits: dict[str, Any] = {"max_record_bytes": 1 << 20, "max_decoded_seconds": 10.0}
    same(of([long], **limits), of([long]))
    with forebay.Loader([long], **{**ONE_PASS, "clip_seconds": 30.0}, **limits) as loader:
        with pytest.raises(forebay.DecodeError, match=r"no good record: 1 of 1 records failed \(too_large\)"):
            list(loader)
        (error,) = loader.errors()
    assert error["kind"] == "too_large"
    assert "max_decoded_seconds allows 10" in error["reason"]


def test_memory_of_a_day(tmp_path: Path) -> None:
    """A file of 24 hours, with holes, takes no more than one of a minute."""
    n = 24 * 3600 * 8000
    path = tmp_path / "day.wav"
    with path.open("wb") as file:
        file.write(wav(b"")[:40] + (2 * n).to_bytes(4, "little"))
        file.truncate(44 + 2 * n)
        file.seek(44 + 2 * (n - 100))
        file.write(b"\x11\x22" * 100)
    header = bytearray(wav(b""))
    header[4:8] = (36 + 2 * n).to_bytes(4, "little")
    with path.open("r+b") as file:
        file.write(header[:40])
    rows: list[dict[str, Any]] = [
        {"path": "day.wav", "start": 86399.5},
        {"path": "day.wav", "start": 3600.0, "end": 3601.0},
    ]
    with forebay.Loader(Manifest(rows, root=tmp_path), **ONE_PASS, outputs=["valid_samples"]) as loader:
        (batch,) = loader
        assert loader.stats()["files"]["read_bytes"] < 2 << 20
    assert batch["valid_samples"].tolist() == [4000, 4000]
    assert batch["spectrogram"][0].max() > batch["spectrogram"][1].max()
    # At most 37 windows of 1 MB are read ahead, for any speed of the threads.
    ahead: dict[str, Any] = {"n_workers": 2, "shuffle_buffer_size": 8}
    with forebay.Loader(path, **ONE_PASS, **ahead, crop=crops.Windows(60.0), outputs=["start"]) as loader:
        assert loader.num_records == 1440
        next(loader)
        assert loader.stats()["files"]["read_bytes"] < 64 << 20
    with forebay.AudioDataset(path, **CLIP, max_record_bytes=1 << 20) as dataset:
        last = dataset.get_batch([0], [86399.5])
    assert np.array_equal(last["spectrogram"][0], batch["spectrogram"][0])


MEASURED = """
import json, re, resource, sys
from pathlib import Path
import forebay
from forebay import crops, features
path, clip, segment = sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])
source = forebay.Manifest([dict(path=path, **segment)], root="/")
given = dict(features=features.Waveform(sample_rate=8000), clip_seconds=clip, batch_size=1, n_workers=2)
few = dict(n_readers=1, raw_channel_size=2, prefetch_batches=1)
with forebay.Loader.eval(source, crop=crops.Windows(), **given, **few) as loader:
    n = sum(batch["waveform"].shape[-1] for batch in loader)
    assert not loader.errors(), loader.errors()
del given["batch_size"], given["n_workers"]
with forebay.AudioDataset(source, crop=crops.Center(), **given) as dataset:
    assert dataset[0]["waveform"].shape[-1] == clip * 8000
if sys.platform == "linux":  # not ru_maxrss, which begins with that of the process that started this one
    peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(n, peak)
"""


def measured(path: Path, clip: float, **segment: float) -> tuple[int, int]:
    """The samples of all windows, and the most memory of a process that reads them."""
    command = [sys.executable, "-c", MEASURED, str(path), str(clip), json.dumps(segment)]
    n, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(n), int(peak)


def of_length(form: str, folder: Path, seconds: int) -> Path:
    """Silence of so many seconds, in few bytes."""
    path = folder / f"{seconds}.{form}"
    n = seconds * 8000
    if form == "wav":
        header = bytearray(wav(b""))
        header[4:8], header[40:44] = (36 + 2 * n).to_bytes(4, "little"), (2 * n).to_bytes(4, "little")
        path.write_bytes(header)
        os.truncate(path, 44 + 2 * n)
        return path
    soundfile = pytest.importorskip("soundfile")
    with soundfile.SoundFile(path, "w", 8000, 1) as file:
        quiet = np.random.default_rng(1).integers(-1, 2, 60 * 8000).astype(np.int16)
        for at in range(0, n, len(quiet)):
            file.write(quiet[: n - at])
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="the memory of a process")
@pytest.mark.parametrize(("form", "hours"), [("wav", 24), ("flac", 2), ("ogg", 2), ("mp3", 2)])
def test_memory_does_not_grow_with_the_recording(form: str, hours: float, tmp_path: Path, soak: int) -> None:
    """All windows of a recording of hours, and a clip at its middle, in little more memory than of one of 10 s."""
    hours = hours if soak == 1 else 24
    short, long = of_length(form, tmp_path, 10), of_length(form, tmp_path, int(hours * 3600))
    few, least = measured(short, 10.0)
    many, peak = measured(long, 10.0)
    assert (few, many) == (80_000, hours * 3600 * 8000)
    # Decoded, two hours have 230 MB, as 16 bits half of it. However fast the threads are, at most 37 windows of
    # 1 MB are read ahead, and some clips of 320 KB are under way.
    assert peak - least < 80 << 20, (least, peak)


def test_many_files_are_open_one_by_one(tmp_path: Path) -> None:
    for i in range(150):
        (tmp_path / f"{i:03}.wav").write_bytes(wav(minutes(1)[: 300_000 + 2 * i]))
    before = n_open()
    with forebay.Loader(tmp_path, **ONE_PASS, n_readers=4) as loader:
        for _ in loader:
            assert n_open() < before + 100
        found = loader.stats()["files"]
    assert (found["opened"], found["open"], found["indexes"]) == (150, 64, 150)


@pytest.mark.parametrize("what", ["deleted", "replaced", "truncated", "grown"])
def test_a_file_that_changes(what: str, tmp_path: Path) -> None:
    """Between two reads: deleted and replaced ones are as they are now; nothing else is lost."""
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_bytes(wav(minutes(1)))
    rows: list[dict[str, Any]] = [{"path": "ab"[i % 2] + ".wav", "start": float(i), "end": i + 1.0} for i in range(40)]
    keywords = {
        **ONE_PASS,
        "batch_size": 2,
        "n_workers": 1,
        "prefetch_batches": 1,
        "n_readers": 1,
        "raw_channel_size": 1,
    }
    _core._inject_delays(fixed_ms=5)
    with forebay.Loader(Manifest(rows, root=tmp_path), **keywords) as loader:
        first = [next(loader)["index"].tolist() for _ in range(2)]
        path = tmp_path / "a.wav"
        if what == "deleted":
            path.unlink()
        elif what == "replaced":
            (tmp_path / "new").write_bytes(wav(minutes(2)))
            (tmp_path / "new").rename(path)
        elif what == "truncated":
            os.truncate(path, 1000)
        else:
            with path.open("ab") as file:
                file.write(bytes(1000))
        rest = [index for batch in iter(lambda: next(loader, None), None) for index in batch["index"].tolist()]
        bad = [error["index"] for error in loader.errors()]
    given = [index for batch in first for index in batch] + rest
    assert sorted(given + bad) == [*range(40)]
    assert all(index % 2 == 0 for index in bad)


@pytest.mark.parametrize(
    "path", sorted(path.name for path in FORMATS.iterdir() if path.suffix in {".wav", ".flac", ".ogg", ".mp3"})
)
def test_small_files_of_every_format_have_segments(path: str) -> None:
    rows: list[dict[str, Any]] = [{"path": path}, {"path": path, "start": 0.05, "end": 0.4}]
    with forebay.Loader(Manifest(rows, root=FORMATS), **ONE_PASS) as loader:
        given = sum(len(batch["index"]) for batch in loader)
        assert given + len(loader.errors()) == 2


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MP3 without a length, which only a scan finds."""
    frames = (FORMATS.parent / "mp3_cbr128_48000_stereo.mp3").read_bytes()
    start = frames.index(b"\xff\xfb")
    path = tmp_path_factory.mktemp("scanned") / "long.mp3"
    path.write_bytes(frames[start:] * (3_000_000 // len(frames)))
    return path


def counts(path: Path) -> Any:
    with forebay.Loader([path] * 8, **ONE_PASS, n_readers=1) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 8, loader.errors()
        return loader.stats()["files"]


def test_an_index_is_kept_on_disk(scanned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = counts(scanned)
    assert (first["indexed"], first["index_hits"]) == (1, 0)
    (index,) = (tmp_path / "forebay" / "index").iterdir()
    again = counts(scanned)
    assert (again["indexed"], again["index_hits"], again["reads"]) == (0, 1, 8)
    assert again["read_bytes"] < first["read_bytes"] / 2
    # Damaged, stale, cut: made again.
    whole = index.read_bytes()
    for damaged in (whole[:-1], b"", whole[:50] + b"\x00" + whole[51:]):
        index.write_bytes(damaged)
        assert counts(scanned)["indexed"] == 1
        assert index.read_bytes() == whole
    os.utime(scanned, (1, 1))
    assert counts(scanned)["indexed"] == 1
    assert counts(scanned)["index_hits"] == 1


COUNTED = """
import resource, sys
import forebay
if sys.argv[2:]:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
given = dict(sample_rate=8000, clip_seconds=0.5, n_fft=256, hop_length=80, n_mels=16, batch_size=4, infinite=False)
with forebay.Loader([sys.argv[1]] * 8, **given) as loader:
    assert sum(len(batch["index"]) for batch in loader) == 8, loader.errors()
    found = loader.stats()["files"]
print(found["indexed"], found["index_hits"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_full_disk_and_several_processes(scanned: Path, tmp_path: Path) -> None:
    """An index that cannot be written leaves nothing; several processes that write one leave one."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", COUNTED, str(scanned)]
    told = subprocess.run([*command, "100"], capture_output=True, text=True, check=True, env=env).stdout
    assert int(told.split()[0]) >= 1
    assert [*(tmp_path / "forebay" / "index").iterdir()] == []
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(4)]
    for process in running:
        assert process.communicate()[0]
        assert process.returncode == 0
    (index,) = (tmp_path / "forebay" / "index").iterdir()
    whole = index.read_bytes()
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    assert told.split()[0] == "0"
    assert index.read_bytes() == whole


def test_no_place_for_indexes(scanned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written is no error."""
    (tmp_path / "file").write_text("x")
    full = "/dev/full" if Path("/dev/full").exists() else str(tmp_path / "file")
    for home in (str(tmp_path / "file"), full, "relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        assert counts(scanned)["indexed"] == 1
