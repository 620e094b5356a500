"""`forebay download` against a server that fails, stalls and truncates."""

import contextlib
import hashlib
import http.client
import http.server
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from forebay import ConfigError, cli
from forebay._files import what_is
from forebay.cli import download, transfer
from forebay.cli.download import PRESETS, fetch, numbers
from forebay.cli.transfer import Shard
from forebay.tokens import list_parquet_files

PATIENCE_S = 60.0
STALL_S = 2.0
"""The client's timeout for servers that stall; long enough for a busy server."""


def shard_bytes(number: int, size: int = 3_000_000) -> bytes:
    """Bytes with the magic numbers of a Parquet file."""
    block = hashlib.sha256(str(number).encode()).digest()
    return b"PAR1" + (block * (size // 32 + 1))[: size - 8] + b"PAR1"


@dataclass
class Host:
    """A server's files by path, and their faults: each request for a path uses the next fault."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    tags: bool = True
    sizes: bool = True
    sha256: dict[str, str] = field(default_factory=dict)
    away: str = ""
    """The target host of `/redirect`, if it is not this host."""

    believes: bool = False
    """Whether the server ignores `If-Range`."""

    raw: dict[str, bytes] = field(default_factory=dict)
    """Raw responses by path; those of `raw_once` are used once."""

    raw_once: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)
    active: int = 0
    most_active: int = 0
    url: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host: Host

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        host = self.host
        with host.lock:
            host.requests.append((self.path, self.headers["Range"]))
            faults = host.faults.get(self.path, [])
            fault = faults.pop(0) if faults else ""
            host.active += 1
            host.most_active = max(host.most_active, host.active)
        try:
            self.answer(fault)
        finally:
            with host.lock:
                host.active -= 1

    def answer(self, fault: str) -> None:
        host = self.host
        if raw := host.raw_once.pop(self.path, b"") or host.raw.get(self.path):
            self.close_connection = True
            self.wfile.write(raw)
            return
        if self.path.startswith("/redirect/"):
            target = self.path.removeprefix("/redirect")
            self.send_response(302)
            self.send_header("Location", (host.away or host.url) + target)
            self.send_header("ETag", '"of the redirect"')
            if target in host.sha256:
                self.send_header("X-Linked-ETag", f'"{host.sha256[target]}"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = host.files.get(self.path)
        if fault.isdecimal() or body is None:
            self.send_error(int(fault or 404))
            return
        if fault == "reset":
            self.close_connection = True
            return
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        if asked and fault != "whole" and (host.believes or self.headers.get("If-Range", tag) == tag):
            start = int(asked[1])
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        rest = body[start:]
        if fault == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif host.sizes:
            self.send_header("Content-Length", str(len(rest)))
        if host.tags:
            self.send_header("ETag", tag)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        half = rest[: len(rest) // 2]
        if fault == "chunked":
            self.wfile.write(b"%x\r\n" % (len(half) + 10) + half)
        elif fault == "truncate":
            self.wfile.write(half)
        elif fault == "stall":
            self.wfile.write(half)
            self.wfile.flush()
            host.over.wait(PATIENCE_S)
        elif fault == "damage":
            self.wfile.write(rest[:100] + b"\xff" + rest[101:])
        else:
            self.wfile.write(rest)


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    with serving(host):
        yield host


@contextlib.contextmanager
def serving(host: Host, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    handler = type("BoundHandler", (Handler,), {"host": host})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # Clients that give up reset the connection, which the tests expect.
        server.handle_error = lambda *_args: None  # type: ignore[method-assign]
        server.daemon_threads = True
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        yield
        host.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves every host name to the local server, the only host that tests may connect to."""
    info = [(2, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda _host, port, *_a, **_k: [(*info[0][:4], ("127.0.0.1", port))])
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Waits:
    """Records the waits between retries, and replaces them by 0 s."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self) -> Iterator[float]:
        for wait in transfer.waits():
            self.asked.append(wait)
            yield 0.0


@dataclass
class Fetched:
    failed: dict[Shard, str]
    said: str
    waits: list[float]


@pytest.fixture
def get(host: Host, tmp_path: Path) -> Callable[..., Fetched]:
    def get(*names: str, prefix: str = "", n_workers: int = 4, **more: str) -> Fetched:
        stream, waits = io.StringIO(), Waits()
        is_to_stall = any("stall" in faults for faults in host.faults.values())
        timeout_s = STALL_S if is_to_stall else PATIENCE_S
        shards = [Shard(host.url + prefix + "/" + name, tmp_path / name, more.get("sha256")) for name in names]
        failed = fetch(shards, n_workers=n_workers, timeout_s=timeout_s, waits=waits, stream=stream).failed
        return Fetched(failed, stream.getvalue(), waits.asked)

    return get


PART, RECORD = ".a.parquet.forebay-part.tmp", ".a.parquet.forebay-part.json.tmp"


def partial(tmp_path: Path, data: bytes, body: bytes | None = None, size: object = None, **changes: object) -> None:
    """Writes the partial file and the record of a killed download; `changes` modify the record."""
    (tmp_path / PART).write_bytes(data)
    tag = None if body is None else f'"{hashlib.md5(body).hexdigest()}"'
    record = {"written_by": "forebay download", "tag": tag, "size": size, **changes}
    (tmp_path / RECORD).write_text(json.dumps(record))


def contents(folder: Path) -> dict[str, bytes | str]:
    """The entries of a folder: bytes of files, types of others."""
    return {
        path.name: path.read_bytes() if what_is(path) == "a file" else str(what_is(path)) for path in folder.iterdir()
    }


def test_shards_arrive_whole(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    names = [f"{i}.parquet" for i in range(6)]
    host.files = {f"/{name}": shard_bytes(i) for i, name in enumerate(names)}
    assert get(*names, n_workers=3).failed == {}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.removeprefix("/"): body for path, body in host.files.items()
    }
    assert 1 <= host.most_active <= 3


def test_what_is_there_is_not_asked_for(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    (tmp_path / "a.parquet").write_bytes(b"mine")
    assert get("a.parquet").said.startswith("0 shards fetched (0.0 kB), 1 were there, 0 failed")
    assert host.requests == []
    assert (tmp_path / "a.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize("fault", ["truncate", "stall", "chunked"])
def test_a_partial_file_is_continued(host: Host, tmp_path: Path, get: Callable[..., Fetched], fault: str) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = [fault]
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body
    half = len(body) // 2
    assert host.requests == [("/a.parquet", None), ("/a.parquet", f"bytes={half}-")]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("fault", ["500", "503", "429", "reset"])
def test_a_failure_that_may_pass_is_tried_again(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], fault: str
) -> None:
    host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = [fault] * 4
    fetched = get("a.parquet")
    assert fetched.failed == {}
    assert fetched.waits == [2, 4, 8, 16]
    assert len(host.requests) == 5
    assert (tmp_path / "a.parquet").read_bytes() == host.files["/a.parquet"]


def test_five_attempts_then_the_summary_names_it(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    host.files = {"/a.parquet": shard_bytes(0), "/b.parquet": shard_bytes(1)}
    host.faults["/a.parquet"] = ["500"] * 9
    fetched = get("a.parquet", "b.parquet")
    assert {shard.path.name: reason for shard, reason in fetched.failed.items()} == {
        "a.parquet": "the server answered 500 Internal Server Error (attempt 5)"
    }
    assert Counter(path for path, _ in host.requests) == {"/a.parquet": 5, "/b.parquet": 1}
    assert "1 shard fetched (3.0 MB), 0 were there, 1 failed\n  a.parquet: the server answered 500" in fetched.said
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]


def test_what_is_not_there_is_asked_for_once(host: Host, get: Callable[..., Fetched]) -> None:
    fetched = get("a.parquet")
    assert list(fetched.failed.values()) == ["the server answered 404 Not Found (attempt 1)"]
    assert len(host.requests) == 1


def test_a_partial_file_of_before_is_continued(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    partial(tmp_path, body[:1000], body, len(body))
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", "bytes=1000-")]
    assert (tmp_path / "a.parquet").read_bytes() == body


@pytest.mark.parametrize("tags", [True, False])
def test_a_partial_file_of_something_else_is_not(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], tags: bool
) -> None:
    other, body = shard_bytes(1), shard_bytes(0, 2_000_000)
    host.files["/a.parquet"], host.tags = body, tags
    partial(tmp_path, other[:1000], other if tags else None, len(other))
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_a_partial_file_that_is_not_ours_stays(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    host.files["/a.parquet"] = shard_bytes(0)
    (tmp_path / PART).write_bytes(b"whatever")
    [reason] = get("a.parquet").failed.values()
    assert f"{PART} exists, but forebay download did not write it; move it, or pass another --folder" in reason
    assert host.requests == []
    assert contents(tmp_path) == {PART: b"whatever"}


@pytest.mark.parametrize("changes", [{"tag": "a\r\nX: y"}, {"tag": 3}, {"tag": "é"}, {"size": "9"}])
def test_a_partial_file_of_unknown_origin_is_not_continued(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], changes: dict[str, Any]
) -> None:
    """A partial file with an unusable record of its tag and size is downloaded again from the start."""
    body = host.files["/a.parquet"] = shard_bytes(0)
    partial(tmp_path, b"whatever", **changes)
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", None)]
    assert contents(tmp_path) == {"a.parquet": body}


@pytest.mark.parametrize("part", [b"whatever", b"", None])
@pytest.mark.parametrize(
    "record", ["{", '{"tag": null, "size": 9}', "[]", "[" * 100_000, "mine", '{"written_by": "me"}']
)
def test_a_record_that_is_not_ours_stays(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], part: bytes | None, record: str
) -> None:
    host.files = {"/a.parquet": shard_bytes(0), "/b.parquet": shard_bytes(1)}
    (tmp_path / RECORD).write_text(record)
    if part is not None:
        (tmp_path / PART).write_bytes(part)
    before = contents(tmp_path)
    fetched = get("a.parquet", "b.parquet")
    [reason] = fetched.failed.values()
    assert f"{RECORD} exists, but forebay download did not write it; move it" in reason
    assert contents(tmp_path) == before | {"b.parquet": host.files["/b.parquet"]}
    assert fetched.waits == []


@pytest.mark.parametrize("name", ["a.parquet.tmp", "a.parquet.tmp.json", ".a.parquet.tmp", "a.parquet.forebay-part"])
def test_files_of_other_names_stay(host: Host, tmp_path: Path, get: Callable[..., Fetched], name: str) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    (tmp_path / name).write_text('{"my": "notes"}')
    host.faults["/a.parquet"] = ["truncate"]
    assert get("a.parquet").failed == {}
    assert contents(tmp_path) == {name: b'{"my": "notes"}', "a.parquet": body}


def obstruct(path: Path, elsewhere: Path, kind: str) -> None:
    """Puts a link, folder or FIFO at a path."""
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere / ("mine" if kind == "link" else "nothing"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in (PART, RECORD) for kind in ("link", "dangling", "folder", "fifo")),
        *(("a.parquet", kind) for kind in ("dangling", "folder", "fifo")),
    ],
)
def test_what_is_no_file_is_neither_followed_nor_replaced(
    host: Host,
    tmp_path: Path,
    get: Callable[..., Fetched],
    name: str,
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    host.files = {"/a.parquet": shard_bytes(0), "/b.parquet": shard_bytes(1)}
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine").write_text("precious")
    if name == PART:  # with this record a partial file would be continued
        partial(tmp_path, b"", shard_bytes(0))
        (tmp_path / PART).unlink()
    obstruct(tmp_path / name, elsewhere, kind)
    before = contents(tmp_path)
    fetched = get("a.parquet", "b.parquet")
    [(shard, reason)] = fetched.failed.items()
    assert shard.path.name == "a.parquet"
    what = {"folder": "a folder", "fifo": "a FIFO"}.get(kind, "a symbolic link")
    assert f"{tmp_path / name} is {what}" in reason
    assert "; move it, or pass another --folder" in reason
    assert "0 were there, 1 failed" in fetched.said
    assert contents(tmp_path) == before | {"b.parquet": host.files["/b.parquet"]}
    assert contents(elsewhere) == {"mine": b"precious"}


def test_a_link_to_a_shard_is_a_shard_that_is_there(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A link to a file counts as a present shard, as in the caches of Hugging Face."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "mine"
    elsewhere.write_text("mine")
    (tmp_path / "a.parquet").symlink_to(elsewhere)
    fetched = get("a.parquet")
    assert (fetched.failed, host.requests) == ({}, [])
    assert "1 were there" in fetched.said
    assert elsewhere.read_text() == "mine"


def test_a_file_that_came_in_the_meantime_stays(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.files["/a.parquet"] = shard_bytes(0)
    defect = transfer.defect

    def slow(*arguments: Any) -> str | None:
        (tmp_path / "a.parquet").write_text("mine")
        return defect(*arguments)

    monkeypatch.setattr(transfer, "defect", slow)
    assert get("a.parquet").failed == {}
    assert contents(tmp_path) == {"a.parquet": b"mine"}


def test_without_tags_nothing_is_continued(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """Without ETags a partial file is downloaded again; it could be of another version."""
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.tags, host.faults["/a.parquet"] = False, ["truncate"]
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", None), ("/a.parquet", None)]
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_a_server_that_ignores_if_range(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """A server that continues another file of the same size is detected by the ETag of its response."""
    other, body = shard_bytes(1), shard_bytes(0)
    host.files["/a.parquet"], host.believes = body, True
    partial(tmp_path, other[:1000], other, len(other))
    fetched = get("a.parquet")
    assert fetched.failed == {}
    assert "the server's file has changed" in fetched.said
    assert host.requests == [("/a.parquet", "bytes=1000-"), ("/a.parquet", None)]
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_the_tag_is_that_of_the_last_answer(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = ["truncate"]
    assert get("a.parquet", prefix="/redirect").failed == {}
    assert [one for one in host.requests if "redirect" not in one[0]][1] == ("/a.parquet", f"bytes={len(body) // 2}-")
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_one_process_at_a_time(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """A second process raises for a file that another one downloads."""
    host.files["/a.parquet"] = shard_bytes(0)
    path = tmp_path / PART
    with transfer.begun(path, tmp_path / RECORD) as file:
        (tmp_path / RECORD).touch()
        file.write(b"theirs")
        file.flush()
        [reason] = get("a.parquet").failed.values()
        assert reason.startswith("another process is fetching it")
        assert path.read_bytes() == b"theirs"
        transfer.Origin(None, None).write(tmp_path / RECORD)
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == host.files["/a.parquet"]


@pytest.fixture
def tls(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A TLS context with a new certificate."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "cert"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


def test_no_redirect_gives_up_tls(host: Host, tls: ssl.SSLContext, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    plain = Host(files={"/a.parquet": shard_bytes(0), "/b.parquet": shard_bytes(1)}, away=host.url)
    host.files = dict(plain.files)
    with serving(plain, tls):
        assert fetch([Shard(plain.url + "/a.parquet", tmp_path / "a.parquet")], stream=io.StringIO()).failed == {}
        shard = Shard(plain.url + "/redirect/b.parquet", tmp_path / "b.parquet")
        [reason] = fetch([shard], stream=io.StringIO()).failed.values()
        assert "127.0.0.1 redirects from https to http" in reason
        assert plain.requests[1:] == [("/redirect/b.parquet", None)]
        assert host.requests == []
        # A redirect from http to https is followed.
        host.away = plain.url
        assert get("b.parquet", prefix="/redirect").failed == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_redirects_to_other_protocols() -> None:
    for here, there in [("https://a/", "http://a/"), ("https://a/", "ftp://a/"), ("http://a/", "ftp://a/")]:
        with pytest.raises(transfer.DownloadError, match="redirects from") as raised:
            transfer.Redirects().redirect_request(
                urllib.request.Request(here), io.BytesIO(), 302, "Found", http.client.HTTPMessage(), there
            )
        assert raised.value.final


def test_the_number_may_be_anywhere_if_files_are_named(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host.files = {f"/part-{i}/data.parquet": shard_bytes(i, 1000) for i in range(3)}
    command = ["download", host.url + "/part-{}/data.parquet", "-n", "3", "-o", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert ended.value.code == 2
    assert "would both be called 'data.parquet'" in capsys.readouterr().err.replace("\n", " ")
    assert host.requests == []
    assert list(tmp_path.iterdir()) == []
    assert cli.main([*command, "--name", "{:03d}.parquet"]) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f"00{i}.parquet": body for i, body in enumerate(host.files.values())
    }


def test_two_shards_of_one_name_are_refused(host: Host, tmp_path: Path) -> None:
    shards = [Shard(f"{host.url}/{i}", tmp_path / "a.parquet") for i in range(2)]
    with pytest.raises(ConfigError, match=r"would both be called 'a\.parquet'"):
        fetch(shards, stream=io.StringIO())


BODY = shard_bytes(0, 1000)
WHOLE = b"Content-Length: 1000\r\n\r\n" + BODY


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"302 X\r\nLocation: http://[::bad/x\r\n\r\n", "redirects to an invalid address: "),
        (b"307 X\r\nLocation: //[::bad/x\r\n\r\n", "redirects to an invalid address: "),
        (b"302 X\r\nLocation: http://127.0.0.1:99999/x\r\n\r\n", "an invalid address: Port out of"),
        (b"302 X\r\nLocation: http://127.0.0.1:port/x\r\n\r\n", "an invalid address: Port could not"),
        (b"200 X\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n" + BODY, "the server's Content-Length is '9999"),
        (b"200 X\r\nContent-Length: -5\r\n\r\n" + BODY, "the server's Content-Length is '-5', expected a number"),
        (b"200 X\r\nContent-Length: 8\r\n" + WHOLE, "the server's Content-Length is '1000 and 8', expected a number"),
        (
            b"206 X\r\nContent-Range: bytes 0-999/" + b"9" * 5000 + b"\r\n" + WHOLE,
            "got the Content-Range 'bytes 0-999/9999",
        ),
        (b"206 X\r\nContent-Range: bytes 0-999/*\r\n" + WHOLE, "got the Content-Range 'bytes 0-999/*'"),
        (b"206 X\r\n" + WHOLE, "got the Content-Range ''"),
        (b"204 Nothing\r\n\r\n", "the server answered 204 Nothing; expected is 200"),
        (b"202 Later\r\nContent-Length: 0\r\n\r\n", "the server answered 202 Later; expected is 200"),
        (b"203 \x1b[2JOther\r\n" + WHOLE, "the server answered 203 ?[2JOther; expected is 200"),
        (b"200 X\r\n\r\n", "the server's answer is empty"),
        (b"200 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "the server's answer is empty"),
        (b"200 X\r\nContent-Encoding: gzip\r\n" + WHOLE, "in the encoding gzip; requested was identity"),
        (b"200 X\r\nContent-Encoding: br, GZIP\r\n" + WHOLE, "in the encoding br, gzip"),
        (b"404 \x1b[2J\r\nContent-Length: 0\r\n\r\n", "the server answered 404 ?[2J"),
    ],
    ids=range(18),
)
def test_answers_that_cannot_be_used(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], answer: bytes, reason: str
) -> None:
    """A bad response fails its shard with the reason and leaves no file; other shards are downloaded."""
    host.files["/b.bin"], host.raw["/a.bin"] = BODY, b"HTTP/1.1 " + answer
    fetched = get("a.bin", "b.bin")
    [(shard, found)] = fetched.failed.items()
    assert shard.path.name == "a.bin"
    assert reason in found
    assert "\x1b" not in fetched.said
    assert contents(tmp_path) == {"b.bin": BODY}


@pytest.mark.parametrize("header", [b"", b"Content-Encoding: identity\r\n", b"Content-Length: 1000\r\n"])
def test_answers_that_can_be_used(host: Host, tmp_path: Path, get: Callable[..., Fetched], header: bytes) -> None:
    host.raw = {
        "/a.bin": b"HTTP/1.1 200 OK\r\n" + header + WHOLE,
        "/b.bin": b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-999/1000\r\n" + header + WHOLE,
        "/empty.bin": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    }
    assert get("a.bin", "b.bin", "empty.bin").failed == {}
    assert contents(tmp_path) == {"a.bin": BODY, "b.bin": BODY, "empty.bin": b""}


def test_a_part_of_unknown_size_is_not_joined(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """A partial response of unknown size cannot be verified, so the file is downloaded again."""
    body = host.files["/a.parquet"] = shard_bytes(0)
    partial(tmp_path, body[:1000], body, len(body))
    host.raw_once["/a.parquet"] = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 1000-1009/*\r\n\r\n" + body[1000:1010]
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", "bytes=1000-"), ("/a.parquet", None)]
    assert contents(tmp_path) == {"a.parquet": body}


def test_a_server_without_ranges_sends_all_again(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = ["truncate", "whole"]
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_a_partial_file_that_is_too_long_is_dropped(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    partial(tmp_path, body + b"more", body, len(body))
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_a_body_without_a_size_that_ends_early_is_no_parquet_file(
    host: Host, tmp_path: Path, get: Callable[..., Fetched]
) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.sizes, host.faults["/a.parquet"] = False, ["truncate"]
    fetched = get("a.parquet")
    assert fetched.failed == {}
    assert "not a complete Parquet file" in fetched.said
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_the_checksum_decides(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = ["damage"]
    good = hashlib.sha256(body).hexdigest()
    assert get("a.parquet", sha256=good).failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body
    (tmp_path / "a.parquet").unlink()
    [reason] = get("a.parquet", sha256="0" * 64).failed.values()
    assert reason == f"its SHA-256 is {good}, must be {'0' * 64} (attempt 5)"
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_of_a_redirect_counts(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.sha256["/a.parquet"] = hashlib.sha256(body).hexdigest()
    host.faults["/a.parquet"] = ["damage", "truncate"]
    assert get("a.parquet", prefix="/redirect").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_which_shards() -> None:
    assert numbers(5, 2) == [0, 1, 4]
    assert numbers(5, None) == [0, 1, 2, 3, 4]
    assert numbers(5, 0) == [4]
    assert numbers(5, 9) == [0, 1, 2, 3, 4]
    assert numbers(None, 3) == [0, 1, 2]


def test_waits() -> None:
    assert list(transfer.waits()) == [2, 4, 8, 16]


def test_the_preset(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = PRESETS["fineweb-edu-100b"]
    assert preset.url.format(7) == (
        "https://huggingface.co/datasets/karpathy/fineweb-edu-100b-shuffle/resolve/main/shard_00007.parquet"
    )
    assert preset.n_shards == 1823
    host.files = {f"/shard_{i:05d}.parquet": shard_bytes(i, 1000) for i in (0, 1, 1822)}
    local = download.Preset(host.url + "/shard_{:05d}.parquet", preset.n_shards)
    monkeypatch.setitem(PRESETS, "fineweb-edu-100b", local)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["download", "--preset", "fineweb-edu-100b", "-n", "2"]) == 0
    folder = Path(list_parquet_files()[0]).parent
    assert folder == tmp_path / "forebay" / "base_data"
    assert sorted(path.name for path in folder.iterdir()) == [
        "shard_00000.parquet",
        "shard_00001.parquet",
        "shard_01822.parquet",
    ]


def test_the_command(host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host.files = {f"/{i}.parquet": shard_bytes(i, 1000) for i in range(4)}
    command = ["download", host.url + "/{}.parquet", "-o", str(tmp_path), "-w", "2"]
    assert cli.main([*command, "-n", "1", "--total", "4"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.parquet", "3.parquet"]
    assert cli.main([*command, "-n", "5"]) == 1
    captured = capsys.readouterr()
    assert "2 shards fetched (2.0 kB), 2 were there, 1 failed\n  4.parquet: the server answered 404" in captured.err
    assert captured.out == ""
    # Without a terminal there is no progress bar.
    assert "\r" not in captured.err


def test_the_command_takes_checksums(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.files = {f"/{i}.parquet": shard_bytes(i, 1000) for i in range(2)}
    sums = tmp_path / "sums"
    sums.write_text(f"{hashlib.sha256(host.files['/0.parquet']).hexdigest()}  0.parquet\n{'0' * 64} *1.parquet\n")
    monkeypatch.setattr(download, "waits", lambda: iter([0.0]))
    folder = tmp_path / "to"
    command = ["download", host.url + "/{}.parquet", "-n", "2", "-o", str(folder), "--checksums", str(sums)]
    assert cli.main(command) == 1
    assert [path.name for path in folder.iterdir()] == ["0.parquet"]


def test_checksums_of_other_systems(host: Host, tmp_path: Path) -> None:
    """Checksum files of BSD and openssl, with upper case, folders, escaped names, CR LF or a byte order mark."""
    host.files = {f"/{i}.bin": shard_bytes(i, 1000) for i in range(5)}
    right = [hashlib.sha256(body).hexdigest() for body in host.files.values()]
    sums = tmp_path / "sums"
    command = ["download", host.url + "/{}.bin", "-n", "5", "--checksums", str(sums)]
    for number in range(6):
        digits = ["0" * 64 if i == number else one for i, one in enumerate(right)]
        lines = [
            f"SHA256 (there/0.bin) = {digits[0]}",
            f"SHA2-256(1.bin)= {digits[1]}",
            f"{digits[2].upper()}  ./here/2.bin",
            f"\\{digits[3]} *back\\\\slash/3.bin",
            f"{digits[4]} 4.bin",
            "",
        ]
        sums.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
        found = download.read_checksums(sums)
        assert found == {f"{i}.bin": one for i, one in enumerate(digits)}
        folder = tmp_path / str(number)
        shards = download.shards_of(host.url + "/{}.bin", range(5), folder, found)
        failed = fetch(shards, waits=lambda: iter([]), stream=io.StringIO()).failed
        assert [shard.path.name for shard in failed] == [f"{number}.bin"][: 5 - number]
    assert cli.main([*command, "-o", str(tmp_path / "to")]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{'0' * 64}  0.bin\n".encode(), "has no SHA-256 for '1.bin' and 1 more; add it"),
        (b"", "has no SHA-256 for '0.bin' and 2 more"),
        (b"\xff\xfe", "line 1 of"),
        (f"{'0' * 64}  0.bin\n\xe9 1.bin".encode("latin-1"), "line 2 of"),
        (b"\nabc  00.parquet\n", "line 2 of"),
        (f"MD5 (0.bin) = {'0' * 32}".encode(), "line 1 of"),
        (f"{'0' * 64}  a/0.bin\n{'1' * 64}  b/0.bin".encode(), "line 2 of"),
        (f"{'0' * 65}  0.bin".encode(), "line 1 of"),
    ],
    ids=range(8),
)
def test_checksums_that_lack_a_shard_or_cannot_be_read(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    sums = tmp_path / "sums"
    sums.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        cli.main(["download", host.url + "/{}.bin", "-n", "3", "-o", str(tmp_path / "to"), "--checksums", str(sums)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert (host.requests, (tmp_path / "to").exists()) == ([], False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "URL --preset is required"),
        (["ftp://host/{}.parquet", "-n", "1"], "a scheme that is neither"),
        (["http://host/a.parquet", "-n", "1"], "no field for the shard's number"),
        (["http://host/{}{}.parquet", "-n", "1"], "more than one field"),
        (["http://host/{name}.parquet", "-n", "1"], "more than one field"),
        (["http://host/{0}{1}.parquet", "-n", "1"], "more than one field"),
        (["http://host/{0.real}{0}.parquet", "-n", "1"], "more than one field"),
        (["http://host/{:099999999999d}.parquet", "-n", "1"], "which is not a number of at most 99 digits"),
        (["http://host/{:>999999999}.parquet", "-n", "1"], "which is not a number of at most 99 digits"),
        (["http://host/{!r:>99}.parquet", "-n", "1"], "which is not a number of at most 99 digits"),
        (["http://host/{:{}}.parquet", "-n", "1"], "which is not a number of at most 99 digits"),
        (["http://host/{.parquet", "-n", "1"], "braces that are not a field"),
        (["http://host/}{}", "-n", "1"], "braces that are not a field"),
        (["http://[/{}", "-n", "1"], "cannot be used: Invalid IPv6 URL"),
        (["http://[{}]/{}", "-n", "1"], "more than one field"),
        (["http://host:port/{}", "-n", "1"], "cannot be used"),
        (["http://host:{}99999/a", "-n", "2"], "cannot be used"),
        (["http:///{}", "-n", "1"], "cannot be used: it has no host"),
        (["http://host/ü{}", "-n", "1"], "characters that must be percent-encoded, as in %20"),
        (["http://host/a {}", "-n", "1"], "characters that must be percent-encoded, as in %20"),
        (["http://host/\n{}", "-n", "1"], "characters that must be percent-encoded, as in %20"),
        (["http://host/%0a{}", "-n", "1"], "at most 232 bytes without control characters"),
        (["http://host/" + "a" * 232 + "{}", "-n", "1"], "at most 232 bytes without control characters"),
        (["http://host/{}", "-n", "1", "--name", "{:300d}"], "which is not a number of at most 99 digits"),
        (["http://host/{}", "-n", "1", "--name", "\udcff{}"], "at most 232 bytes without control characters"),
        (["http://host/{}.parquet", "-n", "1000001"], "1000001 is above 1000000"),
        (["http://host/{}.parquet", "--total", "999999999999"], "is above 1000000"),
        (["http://host/{}.parquet", "-n", "9" * 5000], "invalid whole value"),
        (["http://host/{}.parquet"], "a URL needs -n"),
        (["http://host/data?shard={}", "-n", "2"], "would both be called 'data'"),
        (["http://host/?shard={}", "-n", "1"], "would be called ''"),
        (["http://host/{}/", "-n", "1"], "would be called ''"),
        (["http://host/{}/%2e%2e", "-n", "1"], "would be called '..'"),
        (["http://host/{}.tmp", "-n", "1"], "does not end in .tmp"),
        (["http://host/{}", "-n", "1", "--name", "a"], "--name 'a' has no field"),
        (["http://host/{}", "-n", "1", "--name", "a/{}"], "would be called 'a/0'"),
        (["http://host/{}.parquet", "-n", "-1"], "-1 is below 0"),
        (["http://host/{}.parquet", "-n", "1", "-w", "0"], "0 is below 1"),
        (
            ["http://host/{}.parquet", "-n", "1", "--checksums", "/nowhere"],
            "--checksums /nowhere is missing, must be a file",
        ),
        (["--preset", "fineweb-edu-100b", "--total", "3"], "--total is for a URL"),
        (["--preset", "nothing"], "invalid choice"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["download", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_the_bar_is_for_terminals(host: Host, tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    host.files = {f"/{i}.parquet": shard_bytes(i, 1000) for i in range(2)}
    stream = Terminal()
    assert (
        fetch([Shard(f"{host.url}/{i}.parquet", tmp_path / f"{i}.parquet") for i in range(2)], stream=stream).failed
        == {}
    )
    assert "\r[" in stream.getvalue()
    assert "[##############################] 2/2 shards" in stream.getvalue()


def test_an_interrupted_download_stays_partial(host: Host, tmp_path: Path) -> None:
    host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = ["stall"]

    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            raise KeyboardInterrupt(text)

    shard = Shard(host.url + "/a.parquet", tmp_path / "a.parquet")
    with pytest.raises(KeyboardInterrupt):
        fetch([shard], timeout_s=STALL_S, waits=lambda: iter([]), stream=Interrupted())
    assert not shard.path.exists()
    assert fetch([shard], stream=io.StringIO()).failed == {}
    assert shard.path.read_bytes() == host.files["/a.parquet"]
