"""What is read by URL is kept in `cache_dir`: later epochs and other processes read it from there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import documents
import forebay
from by_url import ONE_PASS, digests
from digests import digest
from forebay import Manifest
from recordings import FORMATS, Row, write_shard
from served import Server
from tables import write_recordings

OURS = "forebay-objects"


@pytest.fixture
def shards(large_shards: list[Path]) -> list[Path]:
    return large_shards


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "below" / "cache"


def gets(server: Server) -> int:
    return sum(command == "GET" for command, _ in server.requests)


def parts(cache: Path) -> list[Path]:
    return list((cache / OURS).glob("??/*.part"))


@pytest.mark.parametrize("order", ["sequential", "window", "global"])
def test_a_second_epoch_and_process_request_no_ranges(
    server: Server, shards: list[Path], cache: Path, order: str
) -> None:
    urls = [server.named(path) for path in shards]
    size = sum(path.stat().st_size for path in shards)
    with forebay.Loader(shards, **ONE_PASS, order=order) as loader:
        expected = [[digest(batch) for batch in loader] for _ in range(2)]
    with forebay.Loader(urls, **ONE_PASS, order=order, cache_dir=cache) as loader:
        found = [[digest(batch) for batch in loader]]
        before = gets(server)
        found.append([digest(batch) for batch in loader])
        stats = loader.stats()
    assert found == expected
    assert gets(server) == before
    assert server.sent <= 1.05 * size + 3 * 64 * 1024
    assert stats["cache_hits"] > 0
    assert stats["cached_bytes"] > size / 2
    assert 0 < stats["request_times"]["first_byte_p50_s"] <= stats["request_times"]["first_byte_p99_s"]
    # Another loader asks for the versions only.
    assert digests(urls, order=order, cache_dir=str(cache)) == expected[0]
    assert gets(server) == before


def test_states_do_not_depend_on_the_cache(server: Server, shards: list[Path], cache: Path) -> None:
    urls = [server.named(path) for path in shards]
    expected = digests(urls)
    with forebay.Loader(urls, **ONE_PASS, cache_dir=cache) as loader:
        before = [digest(batch) for batch in islice(loader, 5)]
        state = loader.state_dict()
    assert "cache" not in json.dumps(state)
    with forebay.Loader(urls, **ONE_PASS) as loader:
        loader.load_state_dict(state)
        assert before + [digest(batch) for batch in loader] == expected


def test_changed_objects_are_read_again(server: Server, shards: list[Path], cache: Path) -> None:
    urls = [server.named(path) for path in shards]
    digests(urls, cache_dir=cache)
    for path, other in zip(shards, shards[1:] + shards[:1], strict=True):
        path.with_suffix(".new").write_bytes(other.read_bytes())
    for path in shards:
        path.with_suffix(".new").rename(path)
    assert digests(urls, cache_dir=cache) == digests(shards)


def test_tokens_rows_and_recordings_are_kept(server: Server, tmp_path: Path, shards: list[Path], cache: Path) -> None:
    documents.write_documents(tmp_path)
    texts = [server.named(tmp_path / f"shard_{number:05}.parquet") for number in range(4)]
    names = write_recordings(tmp_path / "audio", 20)
    table = Manifest([{"path": server.named(tmp_path / "audio" / name)} for name in names])

    def all_of() -> list[Any]:
        with documents.loader(texts, cache_dir=cache, infinite=False) as loader:
            rows = [batch["inputs"].tolist() for batch in loader]
        with forebay.AudioDataset([server.named(path) for path in shards], cache_dir=cache) as dataset:
            batch = digest(dataset.get_batch(np.arange(0, 1200, 7)))
        return [rows, batch, digests(table, allow_paths=True, cache_dir=cache)]

    first = all_of()
    before = gets(server)
    assert before > 0
    assert all_of() == first
    assert gets(server) == before


def test_files_of_this_machine_are_not_copied(shards: list[Path], cache: Path) -> None:
    digests(shards, cache_dir=cache)
    assert parts(cache) == []


CHILD = """
    import logging, sys
    import forebay
    from digests import digest
    logging.basicConfig(level=logging.WARNING)
    {setup}
    with forebay.Loader({source!r}, **{parameters!r}) as loader:
        print("opened", flush=True)
        print([digest(batch) for batch in loader], loader.stats()["cached_bytes"], flush=True)
"""


def start(source: list[str], setup: str = "", **parameters: Any) -> subprocess.Popen[str]:
    code = textwrap.dedent(CHILD).format(setup=setup, source=source, parameters={**ONE_PASS, **parameters})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("order", ["window", "global"])
def test_eight_ranks_request_each_byte_about_once(server: Server, shards: list[Path], cache: Path, order: str) -> None:
    urls = [server.named(path) for path in shards]
    size = sum(path.stat().st_size for path in shards)
    # The last two find all in the cache, by another order.
    for other in (order, "sequential", "global"):
        ranks = [start(urls, rank=rank, world_size=8, order=other, cache_dir=str(cache)) for rank in range(8)]
        for rank in ranks:
            _, errors = rank.communicate()
            assert rank.returncode == 0, errors
    assert server.sent <= 1.1 * size + 8 * 3 * 8192
    assert digests(urls, cache_dir=cache, order=order) == digests(shards, order=order)


def test_a_killed_process_leaves_a_cache_that_is_right(
    server: Server, shards: list[Path], cache: Path, soak: int
) -> None:
    urls = [server.named(path) for path in shards]
    expected = digests(shards, order="global")
    for number in range(4 * soak):
        child = start(urls, order="global", cache_dir=str(cache))
        assert child.stdout is not None
        child.stdout.readline()
        before = gets(server)
        # Sooner or later: some of what it reads is kept.
        while child.poll() is None and gets(server) < before + 10 * number:
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.002)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    for _ in range(2):
        before = gets(server)
        assert digests(urls, order="global", cache_dir=cache) == expected
    assert gets(server) == before


def test_a_disk_that_takes_no_more_is_told_once(server: Server, shards: list[Path], cache: Path) -> None:
    """The system refuses to write files of more than 64 KiB."""
    setup = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))"
    child = start([server.named(path) for path in shards], setup, cache_dir=str(cache))
    output, errors = child.communicate()
    assert child.returncode == 0, errors
    assert output.splitlines()[1] == f"{digests(shards)} 0"
    assert errors.count("goes on without keeping more there") == 1


def test_a_full_disk_serves_what_it_has(server: Server, shards: list[Path], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        expected = digests(shards)
        # The second process finds the disk full.
        for name in ("first", "second"):
            child = start([server.named(path) for path in shards], cache_dir=str(small))
            output, errors = child.communicate()
            assert child.returncode == 0, errors
            assert output.splitlines()[1].startswith(f"{expected} ")
            assert errors.count("No space left on device") == 1, name
        assert not output.endswith(" 0\n")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_folder_that_is_removed_in_between(server: Server, shards: list[Path], cache: Path) -> None:
    with forebay.Loader(shards, **ONE_PASS) as loader:
        expected, later = ([digest(batch) for batch in loader] for _ in range(2))
    with forebay.Loader([server.named(path) for path in shards], **ONE_PASS, cache_dir=cache) as loader:
        assert [digest(batch) for batch in loader] == expected
        for path in parts(cache):
            path.unlink()
        for path in sorted((cache / OURS).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (cache / OURS).rmdir()
        again = [digest(batch) for batch in loader]
    assert again == later
    assert parts(cache)


def test_the_folder_keeps_its_limit(server: Server, tmp_path: Path, cache: Path) -> None:
    rows = [Row((FORMATS / "loop.wav").read_bytes(), i % 4) for i in range(150)]
    paths = [write_shard(tmp_path / f"{n}.arrow", rows) for n in range(2)]
    assert sum(path.stat().st_size for path in paths) > 20 << 20
    urls = [server.named(path) for path in paths]
    parameters = {"order": "window", "cache_dir": cache, "cache_bytes": 16 << 20}
    expected = digests(paths, order="window")
    for _ in range(2):
        assert digests(urls, **parameters) == expected
        assert sum(path.stat().st_blocks * 512 for path in parts(cache)) <= 16 << 20


def test_folders_that_are_refused(server: Server, shards: list[Path], tmp_path: Path) -> None:
    urls = [server.named(path) for path in shards]
    file = tmp_path / "file"
    file.write_text("x")
    wrong: list[tuple[Any, str]] = [
        (file, "it is no folder"),
        (file / "below", "name a folder on a local disk"),
        ("s3://bucket/cache", "must be a folder on a local disk"),
        ("file:///cache", "must be a folder on a local disk"),
        ("~/cache", "~ is not expanded"),
        ("a\0b", "no files can be kept"),
        ("", "must be a folder on a local disk"),
    ]
    if os.geteuid():
        (tmp_path / "fixed").mkdir(mode=0o500)
        wrong.append((tmp_path / "fixed", "may write to"))
    for folder, told in wrong:
        with pytest.raises(forebay.ConfigError, match=told):
            forebay.Loader(urls, **ONE_PASS, cache_dir=folder)
    with pytest.raises(forebay.ConfigError, match="cache_bytes is 5, must be 16777216 to"):
        forebay.Loader(urls, **ONE_PASS, cache_bytes=5)
    with pytest.raises(TypeError, match="cache_dir"):
        forebay.Loader(urls, **ONE_PASS, cache_dir=3)  # type: ignore[arg-type]
    assert server.requests == []


def test_folders_of_any_name(
    server: Server, shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative, on missing parents, not in UTF-8, behind a link."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    expected = digests(shards)
    urls = [server.named(path) for path in shards]
    for folder in ("a/b/c", os.fsdecode(b"b\xff/x"), "link", "."):
        assert digests(urls, cache_dir=folder) == expected
        before = gets(server)
        assert digests(urls, cache_dir=tmp_path / folder) == expected
        assert gets(server) == before
    assert parts(tmp_path / "elsewhere")
