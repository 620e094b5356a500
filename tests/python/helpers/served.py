"""A web server of one folder on the loopback: ranges, ETags, counts and faults."""

import html
import itertools
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HUB = "/api/datasets/o/n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
"""The commit of the revision `main` of the dataset `o/n`."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # A request that hangs is not waited for.
    block_on_close = False
    # A loader may close a connection at any time: that is no error of a test.
    handle_error = lambda self, request, client_address: None  # noqa: E731, ARG005


class Server:
    """Serves `folder` until it is closed, also as the bucket `bucket` of S3 and as the dataset `o/n` of the Hub.

    Lists come in pages of `page` names.
    Every `fails_every`th request fails: in turn with status 503, with 500, cut in the middle, or without an answer.
    With a `certificate`, a file that has its key too, it is a server of `https://`.
    """

    def __init__(
        self, folder: Path, *, fails_every: int = 0, port: int = 0, page: int = 2, certificate: Path | None = None
    ) -> None:
        self.folder = folder
        self.page = page
        self.fails_every = fails_every
        self.hangs = False
        self.refuses = False
        # Answers requests instead, if it returns True.
        self.instead: Callable[[BaseHTTPRequestHandler], bool] | None = None
        # Names of objects that are listed and not there.
        self.listed: list[str] = []
        # What a list of the bucket is instead.
        self.no_list: tuple[str, bytes] | None = None
        self.released = threading.Event()
        self.numbers = itertools.count(1)
        self.requests: list[tuple[str, str]] = []
        self.places: list[str] = []
        self.credentials: set[str] = set()
        self.sent = 0
        server = self

        class Handler(_Handler):
            served = server

        self._http = _Http(("127.0.0.1", port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The thread of a connection shakes hands, at its first read.
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
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
        server.places.append(self.path)
        server.credentials |= {value for value in (self.headers.get("Authorization"),) if value}
        number = next(server.numbers)
        if server.instead and server.instead(self):
            self.close_connection = True
            return
        if server.hangs:
            server.released.wait()
            self.close_connection = True
            return
        fault = number // server.fails_every % 4 if server.fails_every and number % server.fails_every == 0 else None
        if server.refuses:
            self._say(403, {})
            return
        if fault == 0:
            self.close_connection = True
            return
        if fault in (1, 2):
            self._say(503 if fault == 1 else 500, {})
            return
        url = urllib.parse.urlsplit(self.path)
        place, asked = urllib.parse.unquote(url.path), dict(urllib.parse.parse_qsl(url.query))
        if asked.get("list-type") == "2":
            self._list_bucket(asked)
            return
        if place.startswith(f"{HUB}/revision/"):
            siblings = [{"rfilename": name} for name, _ in self._below("")]
            self._send(json.dumps({"id": "o/n", "sha": COMMIT, "siblings": siblings}).encode(), {})
            return
        for revision in ("main", COMMIT):
            if place.startswith(f"{HUB}/tree/{revision}"):
                folder = place.removeprefix(f"{HUB}/tree/{revision}").strip("/")
                self._list_hub(revision, folder, int(asked.get("cursor", 0)))
                return
            place = place.removeprefix(f"/datasets/o/n/resolve/{revision}")
        place = place.removeprefix("/bucket")
        path = server.folder / place.lstrip("/")
        if not path.is_file():
            self._say(404, {})
            return
        found = path.stat()
        tag = f'"{found.st_size:x}-{found.st_mtime_ns:x}"'
        headers = {"ETag": tag, "Last-Modified": self.date_time_string(found.st_mtime), "Accept-Ranges": "bytes"}
        headers["X-Repo-Commit"] = COMMIT
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
            if first > last:
                self._say(416, {})
                return
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

    def _below(self, prefix: str) -> list[tuple[str, int]]:
        """Names that begin with `prefix`, in the order of S3, and sizes."""
        folder = self.served.folder
        found = ((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())
        return sorted((name, path.stat().st_size) for name, path in found if name.startswith(prefix))

    def _list_bucket(self, asked: dict[str, str]) -> None:
        first = int(asked.get("continuation-token", 0))
        prefix = asked.get("prefix", "")
        found = self._below(prefix)
        found = sorted(found + [(name, 1) for name in self.served.listed if name.startswith(prefix)])
        end = first + self.served.page
        if self.served.no_list:
            kind, body = self.served.no_list
            self._send(body, {"Content-Type": kind})
            return
        items = "".join(
            f"<Contents><Key>{html.escape(name).replace(chr(10), '&#10;')}</Key><Size>{size}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, size in found[first:end]
        )
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(found) else ""
        self._send(f"<ListBucketResult>{items}{more}</ListBucketResult>".encode(), {})

    def _list_hub(self, revision: str, folder: str, first: int) -> None:
        found = self._below(f"{folder}/" if folder else "")
        end = first + self.served.page
        items: list[dict[str, Any]] = [{"type": "directory", "path": folder, "size": 0, "oid": COMMIT}]
        items += [{"type": "file", "path": name, "size": size, "oid": COMMIT} for name, size in found[first:end]]
        place = urllib.parse.quote(f"{HUB}/tree/{revision}/{folder}")
        link = f'<{self.served.url}{place}?recursive=true&cursor={end}>; rel="next"'
        self._send(json.dumps(items).encode(), {"Link": link} if end < len(found) else {})

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        self._say(200, {**headers, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _say(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
