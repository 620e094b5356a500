"""`forebay download` against a server that fails, stalls and truncates."""

import contextlib
import hashlib
import http.client
import http.server
import io
import json
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

import pytest

from forebay import ConfigError, cli
from forebay.cli import download
from forebay.cli.download import PRESETS, Shard, fetch, numbers
from forebay.tokens import list_parquet_files

PATIENCE_S = 60.0
STALL_S = 2.0
"""How long a server that stalls is waited for; one that is busy must not be taken for it."""


def shard_bytes(number: int, size: int = 3_000_000) -> bytes:
    """What a Parquet file looks like from outside."""
    block = hashlib.sha256(str(number).encode()).digest()
    return b"PAR1" + (block * (size // 32 + 1))[: size - 8] + b"PAR1"


@dataclass
class Host:
    """Files by path, and what goes wrong with each request for one: the faults of a path are used up one by one."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    tags: bool = True
    sizes: bool = True
    sha256: dict[str, str] = field(default_factory=dict)
    away: str = ""
    """Where to `/redirect` leads, if not to this host."""

    believes: bool = False
    """Whether it continues whatever `If-Range` says."""

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
        # A client that gives up resets the connection; that is what is tested.
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
    """Tests use no network; this is the one host that they may ask for."""
    info = [(2, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda _host, port, *_a, **_k: [(*info[0][:4], ("127.0.0.1", port))])
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Waits:
    """Waits that take no time and are written down."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self) -> Iterator[float]:
        for wait in download.waits():
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
        failed = fetch(shards, n_workers=n_workers, timeout_s=timeout_s, waits=waits, stream=stream)
        return Fetched(failed, stream.getvalue(), waits.asked)

    return get


def partial(tmp_path: Path, data: bytes, body: bytes | None = None, size: int | None = None) -> None:
    """The beginning of a file, as a download that was killed leaves it."""
    (tmp_path / "a.parquet.tmp").write_bytes(data)
    tag = None if body is None else f'"{hashlib.md5(body).hexdigest()}"'
    (tmp_path / "a.parquet.tmp.json").write_text(json.dumps({"tag": tag, "size": size}))


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
    assert get("a.parquet").said.startswith("0 shards fetched (0.0 MB), 1 were there, 0 failed")
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
        "a.parquet": "the server says 500 Internal Server Error (attempt 5)"
    }
    assert Counter(path for path, _ in host.requests) == {"/a.parquet": 5, "/b.parquet": 1}
    assert "1 shards fetched (3.0 MB), 0 were there, 1 failed\n  a.parquet: the server says 500" in fetched.said
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]


def test_what_is_not_there_is_asked_for_once(host: Host, get: Callable[..., Fetched]) -> None:
    fetched = get("a.parquet")
    assert list(fetched.failed.values()) == ["the server says 404 Not Found (attempt 1)"]
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
    (tmp_path / "a.parquet.tmp").write_bytes(b"whatever")
    [reason] = get("a.parquet").failed.values()
    assert "did not begin it" in reason
    assert host.requests == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.parquet.tmp": b"whatever"}


@pytest.mark.parametrize("record", ["", "{", '{"tag": null, "size": 9}', '{"tag": "a\\r\\nX: y", "size": 9}', "[]"])
def test_a_partial_file_of_unknown_origin_is_not_continued(
    host: Host, tmp_path: Path, get: Callable[..., Fetched], record: str
) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    (tmp_path / "a.parquet.tmp").write_bytes(b"whatever")
    (tmp_path / "a.parquet.tmp.json").write_text(record)
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", None)]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.parquet": body}


def test_without_tags_nothing_is_continued(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """Or two halves of two files could be joined."""
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.tags, host.faults["/a.parquet"] = False, ["truncate"]
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", None), ("/a.parquet", None)]
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_a_server_that_ignores_if_range(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """The tag of its answer tells that it has another file of the same size."""
    other, body = shard_bytes(1), shard_bytes(0)
    host.files["/a.parquet"], host.believes = body, True
    partial(tmp_path, other[:1000], other, len(other))
    fetched = get("a.parquet")
    assert fetched.failed == {}
    assert "another one by now" in fetched.said
    assert host.requests == [("/a.parquet", "bytes=1000-"), ("/a.parquet", None)]
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_the_tag_is_that_of_the_last_answer(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.faults["/a.parquet"] = ["truncate"]
    assert get("a.parquet", prefix="/redirect").failed == {}
    assert [one for one in host.requests if "redirect" not in one[0]][1] == ("/a.parquet", f"bytes={len(body) // 2}-")
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_one_process_at_a_time(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    """Two that append to one file would spoil it."""
    host.files["/a.parquet"] = shard_bytes(0)
    path = tmp_path / "a.parquet.tmp"
    with download.begun(path, tmp_path / "a.parquet.tmp.json") as file:
        (tmp_path / "a.parquet.tmp.json").touch()
        file.write(b"theirs")
        file.flush()
        [reason] = get("a.parquet").failed.values()
        assert reason.startswith("another process fetches it")
        assert path.read_bytes() == b"theirs"
    assert get("a.parquet").failed == {}
    assert (tmp_path / "a.parquet").read_bytes() == host.files["/a.parquet"]


@pytest.fixture
def tls(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate for this test alone."""
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
        assert fetch([Shard(plain.url + "/a.parquet", tmp_path / "a.parquet")], stream=io.StringIO()) == {}
        shard = Shard(plain.url + "/redirect/b.parquet", tmp_path / "b.parquet")
        [reason] = fetch([shard], stream=io.StringIO()).values()
        assert "127.0.0.1 redirects from https to http" in reason
        assert plain.requests[1:] == [("/redirect/b.parquet", None)]
        assert host.requests == []
        # The other way round nothing is given up.
        host.away = plain.url
        assert get("b.parquet", prefix="/redirect").failed == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_redirects_to_other_protocols() -> None:
    for here, there in [("https://a/", "http://a/"), ("https://a/", "ftp://a/"), ("http://a/", "ftp://a/")]:
        with pytest.raises(download.DownloadError, match="redirects from") as raised:
            download.Redirects().redirect_request(
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
    assert "no whole Parquet file" in fetched.said
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
    assert list(download.waits()) == [2, 4, 8, 16]


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
    assert "2 shards fetched (0.0 MB), 2 were there, 1 failed\n  4.parquet: the server says 404" in captured.err
    assert captured.out == ""
    # No terminal, no bar.
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "url --preset is required"),
        (["ftp://host/{}.parquet", "-n", "1"], "a scheme that is neither"),
        (["http://host/a.parquet", "-n", "1"], "no field for the shard's number"),
        (["http://host/{}{}.parquet", "-n", "1"], "more than one field"),
        (["http://host/{name}.parquet", "-n", "1"], "more than one field"),
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
        (["http://host/{}.parquet", "-n", "1", "--checksums", "/nowhere"], "cannot read /nowhere"),
        (["--preset", "fineweb-edu-100b", "--total", "3"], "--total belongs to a URL"),
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
    assert fetch([Shard(f"{host.url}/{i}.parquet", tmp_path / f"{i}.parquet") for i in range(2)], stream=stream) == {}
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
    assert fetch([shard], stream=io.StringIO()) == {}
    assert shard.path.read_bytes() == host.files["/a.parquet"]
