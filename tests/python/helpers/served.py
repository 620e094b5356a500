"""A web server of one folder on the loopback: ranges, ETags, counts and faults."""

import itertools
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # A request that hangs is not waited for.
    block_on_close = False
    # A loader may close a connection at any time: that is no error of a test.
    handle_error = lambda self, request, client_address: None  # noqa: E731, ARG005


class Server:
    """Serves `folder` until it is closed. The same object by several names is below `/bucket/` too, as on S3.

    Every `fails_every`th request fails: in turn with status 503, with 500, cut in the middle, or without an answer.
    """

    def __init__(self, folder: Path, *, fails_every: int = 0, port: int = 0) -> None:
        self.folder = folder
        self.fails_every = fails_every
        self.hangs = False
        self.released = threading.Event()
        self.numbers = itertools.count(1)
        self.requests: list[tuple[str, str]] = []
        self.credentials: set[str] = set()
        self.sent = 0
        server = self

        class Handler(_Handler):
            served = server

        self._http = _Http(("127.0.0.1", port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the server; what it was asked is not answered."""
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def named(self, path: Path) -> str:
        """The URL of a file."""
        return f"{self.url}/{urllib.parse.quote(str(path.relative_to(self.folder)))}"


class _Handler(BaseHTTPRequestHandler):
    served: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        server = self.served
        server.requests.append((self.command, self.headers.get("Range", "")))
        server.credentials |= {value for value in (self.headers.get("Authorization"),) if value}
        number = next(server.numbers)
        if server.hangs:
            server.released.wait()
            self.close_connection = True
            return
        fault = number // server.fails_every % 4 if server.fails_every and number % server.fails_every == 0 else None
        if fault == 0:
            self.close_connection = True
            return
        if fault in (1, 2):
            self._say(503 if fault == 1 else 500, {})
            return
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")
        path = server.folder / name
        if not path.is_file():
            self._say(404, {})
            return
        found = path.stat()
        tag = f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        headers = {"ETag": tag, "Last-Modified": self.date_time_string(found.st_mtime), "Accept-Ranges": "bytes"}
        if self.headers.get("If-Match", tag) != tag:
            self._say(412, {})
            return
        if not has_body:
            self._say(200, {**headers, "Content-Length": str(found.st_size)})
            return
        first, last = 0, found.st_size - 1
        if wanted := self.headers.get("Range"):
            given = wanted.removeprefix("bytes=").split("-")
            first, last = int(given[0]), min(last, int(given[1]))
            headers["Content-Range"] = f"bytes {first}-{last}/{found.st_size}"
        with path.open("rb") as file:
            file.seek(first)
            body = file.read(last + 1 - first)
        self._say(206 if wanted else 200, {**headers, "Content-Length": str(len(body))})
        if fault == 3:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)
        server.sent += len(body)

    def _say(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
