"""Recordings by URL: the batches of local files, whatever the server does, and no secret in any text."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import forebay
from by_url import ONE_PASS, SECRET, digests
from digests import digest
from forebay import Manifest
from recordings import SMALL, tiny_rows, write_shard
from served import Server
from tables import compressed, write_recordings, write_table

ORDERS = ["sequential", "window", "global"]


@pytest.mark.parametrize("order", ORDERS)
def test_shards_give_the_batches_of_local_files(server: Server, shards: list[Path], order: str) -> None:
    expected = digests(shards, order=order)
    assert digests([server.named(path) for path in shards], order=order) == expected
    # Whole objects are never requested.
    assert {command for command, _ in server.requests} == {"GET"}
    assert all(wanted for _, wanted in server.requests)


@pytest.mark.parametrize("order", ["sequential", "window"])
def test_no_more_is_sent_than_the_shards_have(server: Server, shards: list[Path], order: str) -> None:
    digests([server.named(path) for path in shards], order=order)
    # Footers are read twice, when the shards are indexed and when they are opened.
    assert server.sent <= 1.05 * sum(path.stat().st_size for path in shards) + 3 * 64 * 1024


def test_a_bucket_gives_the_batches_of_local_files(
    server: Server, shards: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": f"{SECRET}-token",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    urls = [f"s3://bucket/{path.relative_to(tmp_path)}" for path in shards]
    with forebay.Loader(urls, **ONE_PASS) as loader:
        found = [digest(batch) for batch in loader]
        texts = f"{loader!r} {loader.stats()} {loader.state_dict()}"
    assert found == digests(shards)
    # Requests are signed, and the secret key is sent nowhere.
    assert server.credentials
    assert all(value.startswith("AWS4-HMAC-SHA256 Credential=key/") for value in server.credentials)
    assert SECRET not in texts + str(server.credentials)
    with pytest.raises(OSError, match=r"404.*s3://bucket/missing\.arrow") as missing:
        forebay.Loader(["s3://bucket/missing.arrow"], **ONE_PASS)
    assert SECRET not in str(missing.value)


@pytest.fixture
def listing(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders of objects: a bucket, and a dataset of the Hub."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true",
        "HF_ENDPOINT": server.url, "HF_TOKEN": SECRET, "HF_HUB_OFFLINE": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return ["s3://bucket", "hf://datasets/o/n"]


def test_folders_and_patterns_of_objects(listing: list[str], tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    rows = tiny_rows(60)
    # Names with all that a pattern, a URL and a path treat as special, and an order by numbers.
    for n, name in enumerate(["a/x_2.arrow", "a/x_10.arrow", "a/50% [x] #1*.arrow", "a b/ü?.arrow"]):
        path = tmp_path / "top" / name
        path.parent.mkdir(exist_ok=True)
        write_shard(path, rows[15 * n : 15 * n + 15])
    (tmp_path / "top/a/README.md").write_text("no shard")
    (tmp_path / "top/_hidden.arrow").write_text("no shard")
    for below in ("top/", "top/a/*.arrow", "top/a/x_?[0]*.arrow", "top/**/*.arrow", "top/a/x_2.arrow", "**/x_*"):
        expected = digests(str(tmp_path / below), order="sequential")
        for top in listing:
            # As in every URL, a ? would begin a query.
            if "?" not in below:
                assert digests(f"{top}/{below}", order="sequential") == expected
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern s3://bucket/top/\*\.parquet"):
        forebay.Loader(f"{listing[0]}/top/*.parquet", **ONE_PASS)
    with pytest.raises(FileNotFoundError, match="s3://bucket/none/ has no shards"):
        forebay.Loader(f"{listing[0]}/none/", **ONE_PASS)


def test_objects_without_a_path_are_left_out_with_one_warning(
    server: Server, listing: list[str], shards: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    server.listed = ["a folder, ü//x.arrow", "a folder, ü/../y.arrow", "a folder, ü/a\nb.arrow", "//z", "a & b//c"]
    expected = digests(shards)
    for source in (f"{listing[0]}/a folder, ü/", f"{listing[0]}/**/*.arrow"):
        caplog.clear()
        assert digests(source) == expected
        (warning,) = [record.message for record in caplog.records if "left out" in record.message]
        assert re.search(r"below s3://bucket/.* the first is ", warning)
        assert any(repr(name).strip("'") in warning for name in server.listed)


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("text/html", b"<!DOCTYPE html><html>not-to-be-seen", "an HTML page; check endpoint"),
        ("application/json", b'{"a": "not-to-be-seen"}', "of the type application/json"),
        ("text/plain", b"", "empty"),
        ("application/xml", b"<ListBucketResult>" + b" " * (33 << 20), "more than 33554432 bytes"),
        ("application/xml", b"<ListBucketResult><Contents><Key>a", "GET|XML|xml|list"),
    ],
)
def test_what_is_no_list_is_an_error(server: Server, listing: list[str], kind: str, body: bytes, told: str) -> None:
    server.no_list = (kind, body)
    with pytest.raises(OSError, match=told) as refused:
        forebay.Loader(listing[0], **ONE_PASS)
    assert SECRET not in str(refused.value)
    # Another try would get the same.
    assert len(server.requests) == 1


def test_a_pickled_loader_reads_the_same_urls(server: Server, shards: list[Path]) -> None:
    urls = [server.named(path) for path in shards]
    with forebay.Loader(urls, **ONE_PASS) as loader, pickle.loads(pickle.dumps(loader)) as copy:
        assert [digest(batch) for batch in copy] == digests(shards)
    with forebay.AudioDataset(urls) as data, pickle.loads(pickle.dumps(data)) as copy:
        assert len(copy) == len(data)


def test_a_folder_of_recordings_by_url(listing: list[str], tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "train/owl", 6)
    write_recordings(tmp_path / "train/lark", 6)
    expected = digests(str(tmp_path / "train"))
    for top in listing:
        assert digests(f"{top}/train/") == expected
        with forebay.Loader(f"{top}/train/", **ONE_PASS) as loader:
            assert loader.class_names == ["lark", "owl"]
    table = [{"path": name, "label": number} for number, name in enumerate(names)]
    write_table(tmp_path / "train/owl/metadata.csv", table)
    for top in listing:
        assert digests(f"{top}/train/owl/") == digests(str(tmp_path / "train/owl"))


def test_names_are_those_of_files(listing: list[str], tmp_path: Path) -> None:
    """Letters that mean something else in a URL change neither order nor classes nor which file a table names."""
    special = ["a b", "a%20b", "a%2520b", "d?", "a[1]", "aA", "x#y", "x*y", "50%"]
    for folder in ("a[1]", "aA", "50% off"):
        write_recordings(tmp_path / "top" / folder, 3)
    sources = sorted((tmp_path / "top/aA").iterdir())
    for n, name in enumerate(special):
        (tmp_path / f"top/aA/{name}.wav").write_bytes(sources[n % 3].read_bytes())
    for top in listing:
        with (
            forebay.Loader(str(tmp_path / "top"), **ONE_PASS) as local,
            forebay.Loader(f"{top}/top/", **ONE_PASS) as remote,
        ):
            assert remote.class_names == local.class_names
        for order in ("sequential", "global"):
            assert digests(f"{top}/top/", order=order) == digests(str(tmp_path / "top"), order=order)
    write_table(
        tmp_path / "top/aA/metadata.csv", [{"path": f"{name}.wav", "label": i} for i, name in enumerate(special)]
    )
    expected = digests(str(tmp_path / "top/aA"))
    for top in listing:
        assert digests(f"{top}/top/aA/") == expected


def test_expired_credentials_are_no_bad_records(server: Server, tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "audio", 40)
    rows = [{"path": server.named(tmp_path / "audio" / name)} for name in names]
    with forebay.Loader(Manifest(rows), **{**ONE_PASS, "allow_paths": True, "order": "sequential"}) as loader:
        server.refuses = True
        with pytest.raises(OSError, match="403"):
            list(loader)


def test_commands_read_urls(listing: list[str], shards: list[Path], tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "forebay", *arguments]
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout

    for top in listing:
        source = f"{top}/**/*.arrow"
        summary = json.loads(run("check", source, "-o", f"report-{top[:2]}", "--json", "-"))["summary"]
        assert (summary["records"], summary["bad"]) == (300, 0)
        # The report serves the same shards by path.
        report = str(tmp_path / f"report-{top[:2]}.json")
        assert digests(source, exclude=report) == digests(shards, exclude=report)
        assert "300" in run("inspect", source)
        assert json.loads(run("index", source, "--json", "-"))["summary"]["rows"] == 300


def test_what_is_requested_ahead_is_within_the_budget(server: Server, shards: list[Path]) -> None:
    least: list[int] = []
    for source in (shards, [server.named(path) for path in shards]):
        with pytest.raises(forebay.ConfigError, match="memory_budget") as refused:
            forebay.Loader(source, **{**ONE_PASS, "memory_budget": 1 << 20})
        least.append(int(re.search(r"may hold (\d+)", str(refused.value))[1]))  # type: ignore[index]
    assert least[1] - least[0] == 128 << 20
    assert "requested ahead of time" in str(refused.value)


def test_failed_lists_are_asked_for_again(server: Server, listing: list[str], shards: list[Path]) -> None:
    expected = digests(shards)
    server.fails_every = 5
    assert [digests(f"{top}/a folder, ü/") for top in listing] == [expected, expected]


def test_the_token_of_the_hub_is_in_no_text(server: Server, listing: list[str], shards: list[Path]) -> None:
    with forebay.Loader(f"{listing[1]}/**/*.arrow", **ONE_PASS) as loader:
        assert [digest(batch) for batch in loader] == digests(shards)
        texts = f"{loader!r} {loader.stats()} {loader.state_dict()}"
    assert server.credentials == {f"Bearer {SECRET}"}
    assert SECRET not in texts
    with pytest.raises(OSError, match="404") as missing:
        forebay.Loader("hf://datasets/o/other", **ONE_PASS)
    assert SECRET not in str(missing.value)


def test_failed_requests_change_no_byte(server: Server, shards: list[Path]) -> None:
    expected = digests(shards)
    server.fails_every = 7
    with forebay.Loader([server.named(path) for path in shards], **ONE_PASS) as loader:
        assert [digest(batch) for batch in loader] == expected
    assert len(server.requests) > 7


def test_a_server_that_starts_again_changes_no_byte(shards: list[Path], tmp_path: Path) -> None:
    expected = digests(shards)
    server = Server(tmp_path)
    urls = [server.named(path) for path in shards]
    with forebay.Loader(urls, **ONE_PASS) as loader:
        batches = iter(loader)
        found = [digest(batch) for batch in islice(batches, 2)]
        server.close()
        with Server(tmp_path, port=server.port):
            found += [digest(batch) for batch in batches]
    assert found == expected


def test_a_state_continues_by_url_and_its_shards_are_named(server: Server, shards: list[Path]) -> None:
    urls = [server.named(path) for path in shards]
    with forebay.Loader(urls, **ONE_PASS) as loader:
        before = [digest(batch) for batch in islice(loader, 5)]
        state = loader.state_dict()
    with forebay.Loader(urls, **ONE_PASS) as loader:
        loader.load_state_dict(state)
        assert before + [digest(batch) for batch in loader] == digests(shards)


def test_a_changed_object_is_an_error(server: Server, shards: list[Path]) -> None:
    with forebay.Loader([server.named(path) for path in shards], **{**SMALL, "order": "sequential"}) as loader:
        for path in shards:
            os.utime(path, ns=(1, 1))
        with pytest.raises(OSError, match="changed after it was opened"):
            list(loader)


def test_recordings_of_a_table(server: Server, tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "audio", 40)
    local: list[dict[str, Any]] = [
        {"path": str(tmp_path / "audio" / name), "label": i % 3} for i, name in enumerate(names)
    ]
    remote = [{**row, "path": server.named(Path(row["path"]))} for row in local]
    expected = digests(Manifest(local), allow_paths=True)
    assert digests(Manifest(remote), allow_paths=True) == expected
    assert digests(Manifest(remote), allow_paths=[f"{server.url}/audio"]) == expected
    # Below a root, and in a table that is an object too.
    below = [{**row, "path": Path(row["path"]).name} for row in local]
    assert digests(Manifest(below, root=f"{server.url}/audio")) == expected
    table = write_table(tmp_path / "audio" / "table.csv", below)
    assert digests(Manifest(server.named(table))) == digests(Manifest(table))
    for codec in ("gz", "zst"):
        assert digests(Manifest(server.named(compressed(table, codec)))) == digests(Manifest(table))


def test_the_default_order_of_recordings(server: Server, tmp_path: Path) -> None:
    """Of many by URL it is the window, also if only their table is a local file."""
    names = write_recordings(tmp_path / "audio", 12)
    urls = [{"path": server.named(tmp_path / "audio" / name)} for name in names]
    below = Manifest([{"path": name} for name in names], root=f"{server.url}/audio")
    for source in (Manifest(urls), below, [row["path"] for row in urls]):
        for least, order in ((11, "window (12 rows by URL, more than"), (12, "global (12 rows, not more than")):
            with forebay.Loader(source, **{**SMALL, "shuffle_min_size": least}, allow_paths=True) as loader:
                assert f"order {order} shuffle_min_size, {least})" in repr(loader)
    with forebay.Loader(str(tmp_path / "audio"), **{**SMALL, "shuffle_min_size": 1}) as loader:
        assert "order global (recordings in local files)" in repr(loader)


def test_rows_of_a_table_do_not_choose_the_server(server: Server, tmp_path: Path) -> None:
    write_recordings(tmp_path / "audio", 1)
    (tmp_path / "tables").mkdir()
    url = server.named(tmp_path / "audio/000 one.wav")
    table = write_table(tmp_path / "tables/table.csv", [{"path": url}])
    for allowed in (None, [f"{server.url}/other"], [str(tmp_path)]):
        with forebay.Loader(Manifest(table), **{**ONE_PASS, "allow_paths": allowed}) as loader:
            with pytest.raises(forebay.DecodeError, match=r"1 of 1 records failed .*allow_paths"):
                list(loader)
            assert "allow_paths" in str(loader.errors())
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"https://me:{SECRET}@host/a.arrow", "user or password"),
        (f"https://host/a.arrow?sig={SECRET}", "query"),
        ("https://host/*.arrow", "pattern, and a web server does not list"),
        ("https://host/folder/", "folder, and a web server does not list"),
        ("s3://buck*/x", "names no object"),
        ("https://host/a.arrow#x", "fragment"),
        ("https://host/../a.arrow", "`..`"),
    ],
)
def test_urls_that_are_refused(url: str, told: str) -> None:
    with pytest.raises(forebay.ConfigError, match=told) as refused:
        forebay.Loader([url], **ONE_PASS)
    assert SECRET not in str(refused.value)


def test_a_closed_loader_leaves_hanging_requests(server: Server, shards: list[Path]) -> None:
    loader = forebay.Loader([server.named(path) for path in shards], **ONE_PASS)
    server.hangs = True
    n_opened = len(server.requests)
    ended: list[Any] = []

    def take() -> None:
        try:
            ended.append(list(loader))
        except Exception as error:
            ended.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    wait_until(lambda: len(server.requests) > n_opened)
    loader.close()
    wait_until(lambda: not any(name.startswith("forebay") for name in names_of_threads()))
    thread.join()
    assert "closed" in ended[0]


@pytest.mark.parametrize("hangs", ["opening", "reading"])
def test_ctrl_c_leaves_hanging_requests(server: Server, shards: list[Path], hangs: str) -> None:
    code = f"""
        import forebay, sys
        loader = forebay.Loader({[server.named(path) for path in shards]!r}, **{ONE_PASS!r})
        print("opened", flush=True)
        sys.stdin.readline()
        list(loader)  # the first batch may need nothing more
    """
    server.hangs = hangs == "opening"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    if hangs == "reading":
        assert child.stdout.readline() == "opened\n"
        server.hangs = True
    n_before = len(server.requests)
    child.stdin.write("\n")
    child.stdin.flush()
    wait_until(lambda: len(server.requests) > n_before)
    child.send_signal(signal.SIGINT)
    # Less than the time in which hanging requests are given up, 15 s a try.
    _, errors = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors


def names_of_threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            names.append((task / "comm").read_text().strip())
    return names


def wait_until(is_so: Any) -> None:
    """Waits for as long as the test may take."""
    pause = threading.Event()
    while not is_so():
        pause.wait(0.005)
