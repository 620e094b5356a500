"""`forebay download` against a server that fails, stalls and truncates."""

import hashlib
import http.server
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forebay import cli
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
            self.send_header("Location", host.url + target)
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
        if asked and fault != "whole" and self.headers.get("If-Range", tag) == tag:
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
    handler = type("BoundHandler", (Handler,), {"host": host})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # A client that gives up resets the connection; that is what is tested.
        server.handle_error = lambda *_args: None  # type: ignore[method-assign]
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield host
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


def test_a_partial_file_of_unknown_origin_is_not(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    (tmp_path / "a.parquet.tmp").write_bytes(b"whatever")
    assert get("a.parquet").failed == {}
    assert host.requests == [("/a.parquet", None)]
    assert (tmp_path / "a.parquet").read_bytes() == body


def test_without_tags_the_size_tells(host: Host, tmp_path: Path, get: Callable[..., Fetched]) -> None:
    body = host.files["/a.parquet"] = shard_bytes(0)
    host.tags, host.faults["/a.parquet"] = False, ["truncate"]
    assert get("a.parquet").failed == {}
    assert host.requests[1] == ("/a.parquet", f"bytes={len(body) // 2}-")
    assert (tmp_path / "a.parquet").read_bytes() == body


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
