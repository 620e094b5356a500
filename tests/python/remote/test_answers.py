"""Whatever a server answers, batches are those of the files, or there is an error that says what is wrong."""

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import forebay
from by_url import ONE_PASS, SECRET, digests
from digests import digest
from served import Server

Answer = Callable[[BaseHTTPRequestHandler], bool]


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> bool:
    """Answers with exactly these headers, `_` for `-`; `Content_Length` is added."""
    handler.send_response_only(status)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        if value:
            handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)
    return True


def wanted(handler: BaseHTTPRequestHandler) -> tuple[int, int]:
    first, last = handler.headers["Range"].removeprefix("bytes=").split("-")
    return int(first), int(last)


def later(answer: Answer) -> Answer:
    """The answer to requests of other ranges than the first."""
    return lambda handler: wanted(handler)[0] > 0 and answer(handler)


def ranged(**headers: str) -> Answer:
    """The answer to a range with zeros, and other headers: `{first}`, `{last}` and `{size}` are filled in."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        first, last = wanted(handler)
        server: Server = handler.served  # type: ignore[attr-defined]
        size = next(server.folder.rglob("0.arrow")).stat().st_size
        last = min(last, size - 1)
        made = {"Content_Range": "bytes {first}-{last}/{size}", **headers}
        made = {name: value.format(first=first, last=last, size=size) for name, value in made.items()}
        return say(handler, 206, bytes(last + 1 - first), **made)

    return answer


def html(handler: BaseHTTPRequestHandler) -> bool:
    return say(handler, 200, b"<html>" + SECRET.encode(), Content_Type="text/html")


def zipped(handler: BaseHTTPRequestHandler) -> bool:
    first, last = wanted(handler)
    body = gzip.compress(bytes(last + 1 - first))
    return say(handler, 206, body, Content_Encoding="gzip", Content_Range=f"bytes {first}-{last}/{1 << 20}", ETag='"1"')


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (html, "must answer requests of ranges"),
        (later(html), "must answer requests of ranges"),
        (later(ranged(Content_Range="bytes 0-9/{size}")), "[Rr]equested"),
        (later(ranged(Content_Range="bytes {first}-{last}/1")), "only 1 bytes long"),
        (later(ranged(Content_Range="")), "Content-Range"),
        (later(ranged(Content_Range="bytes */{size}")), "CONTENT_RANGE"),
        (
            later(ranged(Content_Range="bytes {first}-18446744073709551615/{size}")),
            "[Rr]equested|client of the store failed",
        ),
        (ranged(Content_Range="bytes 0-16383/18446744073709551615"), "has 18446744073709551615 bytes"),
        (later(ranged(ETag='"other"')), "changed after it was opened"),
        (later(ranged()), "changed after it was opened"),
        (ranged(ETag='"\xff"'), "(?i)header"),
        (ranged(Last_Modified="yesterday"), "Invalid last modified"),
        (ranged(Content_Length="many"), "content-length"),
        (zipped, "16384 were requested"),
        (lambda handler: say(handler, 307, Location="ftp://127.0.0.1/x"), "scheme is not allowed"),
        (lambda handler: say(handler, 307, Location=f"//me:{SECRET}@[x"), "status 307"),
        (lambda handler: say(handler, 302), "status 302"),
        (lambda handler: say(handler, 204), "no rows"),
        (lambda handler: say(handler, 418, SECRET.encode()), "418"),
    ],
)
def test_answers_that_are_wrong_are_errors(server: Server, shards: list[Path], answer: Answer, told: str) -> None:
    server.instead = answer
    with pytest.raises((OSError, forebay.ForebayError), match=told) as refused:
        digests([server.named(shards[0])])
    assert server.named(shards[0]) in str(refused.value)
    assert SECRET not in str(refused.value)


def test_names_of_a_list_that_are_no_paths_are_left_out(
    server: Server,
    shards: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Names that would name another file, break a message into lines, or fill it."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    expected = digests(shards)
    names = [str(path.relative_to(tmp_path)) for path in shards]
    for odd in ("a\nb.arrow", "a\0.arrow", "\x1b[2J.arrow", "../x.arrow", "/x.arrow", "", f"{'x' * 5000}.arrow"):
        items = json.dumps([{"type": "file", "path": name} for name in [odd, *names]]).encode()
        server.instead = lambda handler, items=items: "/api/" in handler.path and say(handler, 200, items)
        caplog.clear()
        assert digests("hf://datasets/o/n") == expected
        (warning,) = [record.message for record in caplog.records if "left out" in record.message]
        assert len(warning) < 600
        assert all(letter.isprintable() for letter in warning)


def endless(handler: BaseHTTPRequestHandler) -> bool:
    """Sends more than it said, for as long as the client listens."""
    first, last = wanted(handler)
    handler.send_response_only(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{1 << 40}")
    handler.send_header("Content-Length", str(1 << 40))
    handler.send_header("ETag", '"1"')
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(bytes(1 << 20))
    except OSError:
        return True


def test_an_endless_answer_is_given_up(server: Server, shards: list[Path]) -> None:
    server.instead = endless
    with pytest.raises(OSError, match="more than the 16384 bytes that were requested"):
        forebay.Loader([server.named(shards[0])], **ONE_PASS)


@pytest.mark.parametrize("order", ["sequential", "window", "global"])
def test_one_failed_request_in_a_hundred_changes_no_byte(server: Server, large_shards: list[Path], order: str) -> None:
    expected = digests(large_shards, order=order)
    server.fails_every = 100
    with forebay.Loader([server.named(path) for path in large_shards], **ONE_PASS, order=order) as loader:
        assert [digest(batch) for batch in loader] == expected
        retries = loader.stats()["retries"]
    # With an answer that is cut off, and none at all.
    assert len(server.requests) > 300
    assert retries >= 3


SERVER = """
    import itertools, pathlib, sys, threading
    from served import Server
    numbers = itertools.count()

    def instead(handler):
        number = next(numbers)
        if number < 30:
            return False
        if number == 30:
            print("hangs", flush=True)
        threading.Event().wait()

    with Server(pathlib.Path(sys.argv[1])) as server:
        server.instead = instead
        print(server.port, flush=True)
        threading.Event().wait()
"""


def test_a_server_that_is_killed_and_started_again_changes_no_byte(large_shards: list[Path], tmp_path: Path) -> None:
    expected = digests(large_shards)
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    port = int(child.stdout.readline())
    started: list[Server] = []

    def restart() -> None:
        assert child.stdout is not None
        assert child.stdout.readline() == "hangs\n"
        child.send_signal(signal.SIGKILL)
        child.communicate()
        started.append(Server(tmp_path, port=port))

    restarting = threading.Thread(target=restart)
    restarting.start()
    urls = [f"http://127.0.0.1:{port}/{path.name}" for path in large_shards]
    with forebay.Loader(urls, **ONE_PASS) as loader:
        found = [digest(batch) for batch in loader]
        retries = loader.stats()["retries"]
    restarting.join()
    with started[0] as server:
        assert server.requests
    assert found == expected
    assert retries > 0


@pytest.mark.parametrize(
    "pause", ["1000000000", "18446744073709551615", "1e300", "-5", "Wed, 21 Oct 2099 07:28:00 GMT"]
)
def test_ctrl_c_ends_a_pause_that_the_server_asks_for(server: Server, shards: list[Path], pause: str) -> None:
    server.instead = lambda handler: say(handler, 503, Retry_After=pause)
    code = f"import forebay; forebay.Loader([{server.named(shards[0])!r}])"
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    # The first warning comes before the first pause.
    while not server.requests:
        threading.Event().wait(0.005)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert "KeyboardInterrupt" in errors
    assert len(server.requests) <= 2


FORKED = """
    import os, sys
    import forebay
    from digests import digest

    urls = sys.argv[1:]
    data = forebay.AudioDataset(urls)
    expected = [digest(data[row]) for row in range(3)]
    child = os.fork()
    if child == 0:
        try:
            data[200]
        except OSError as error:
            told = str(error)
        with forebay.AudioDataset(urls) as own:
            same = [digest(own[row]) for row in range(3)] == expected
        print(told, same, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print([digest(data[row]) for row in range(3)] == expected)
"""


def test_a_source_that_was_opened_before_a_fork_is_opened_again(server: Server, shards: list[Path]) -> None:
    urls = [server.named(path) for path in shards]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(FORKED), *urls]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.splitlines()
    assert "opened before a fork; open it in the child process" in child
    assert child.endswith(" True")
    assert parent == "True"
