"""Downloads one shard over HTTP, completely or not at all.

A shard is written to `.NAME.forebay-part.tmp` and renamed once it is complete; loaders leave out names that
end in `.tmp`. A shard is complete if its size is right, its SHA-256 if known (from `X-Linked-ETag` of
huggingface.co, or `--checksums`), and the magic bytes at both ends of a Parquet file.
`.NAME.forebay-part.json.tmp` records the content that the partial file belongs to. If the server identifies
its content, the download is resumed by a range request with `If-Range`, so that the server checks whether it
still has that content.

Only regular files with a record of this command are resumed or removed, and links are not followed. Anything
else under these names, or under the shard's name, is an error. An unusable answer is an error of its shard
alone.
"""

import contextlib
import errno
import hashlib
import http
import http.client
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from forebay._files import NotAFileError, open_file, read_file, what_is
from forebay._progress import Progress

if sys.platform != "win32":
    import fcntl

ATTEMPTS = 5
"""The most requests for a shard."""
TIMEOUT_S = 30.0
"""The longest time for which a server may send nothing."""
CHUNK_BYTES = 1 << 20
"""The most bytes of one read."""
PART, RECORD = ".forebay-part.tmp", ".forebay-part.json.tmp"
"""The endings of a partial file and of its record; their names begin with a dot."""
WRITER = "forebay download"
"""The value that marks a record."""


def waits() -> Iterator[float]:
    """Seconds to wait after each failed attempt: 2, 4, 8, 16."""
    return (float(2**attempt) for attempt in range(1, ATTEMPTS))


@dataclass(frozen=True)
class Shard:
    """A file to fetch, and its destination."""

    url: str
    path: Path
    sha256: str | None = None


class DownloadError(Exception):
    """A shard that could not be downloaded; `final` if another attempt is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True)
class Origin:
    """The record of the content that a partial file belongs to."""

    tag: str | None
    """The tag of the content, from the last answer after redirects. A partial file without a tag is not resumed."""

    size: int | None

    def write(self, path: Path) -> None:
        """Writes the record, replacing an earlier one."""
        with open_file(path, "r+") as file:
            file.truncate(0)
            file.write(json.dumps({"written_by": WRITER, "tag": self.tag, "size": self.size}).encode())

    @classmethod
    def read(cls, path: Path) -> "Origin | None":
        """Reads the record of a partial file; None if there is none.

        Raises `DownloadError` if the file is not a record; the file stays.
        """
        try:
            data = read_file(path)
            found = json.loads(data) if data else None
        except FileNotFoundError:
            return None
        except NotAFileError as error:
            raise foreign(str(error)) from None
        except (ValueError, RecursionError):
            found = {}
        if found is None:
            return None
        if not isinstance(found, dict) or found.get("written_by") != WRITER:
            raise foreign(f"{path} exists, but forebay download did not write it")
        tag, size = found.get("tag"), found.get("size")
        is_tag = isinstance(tag, str) and tag.isprintable() and tag.isascii()
        return cls(tag if is_tag else None, size if type(size) is int else None)


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except from https to http, and takes the SHA-256 from huggingface.co's redirects."""

    sha256: str | None = None

    def http_error_302(  # noqa: D102
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:
            fp.close()
            here = urllib.parse.urlsplit(req.full_url).hostname
            raise DownloadError(f"{here} redirects to an invalid address: {error}", final=True) from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(  # noqa: D102
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        here, there = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        _ = there.port  # raises for an invalid port
        if there.scheme not in ("https", here.scheme):
            fp.close()
            change = f"from {here.scheme} to {there.scheme} ({there.hostname})"
            raise DownloadError(f"{here.hostname} redirects {change}, which is refused", final=True)
        tag = headers.get("X-Linked-ETag", "").strip('"')
        if re.fullmatch("[0-9a-f]{64}", tag):
            self.sha256 = tag
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Download:
    """Fetches shards. Tests replace the waits and the timeout."""

    progress: Progress
    timeout_s: float = TIMEOUT_S
    waits: Callable[[], Iterator[float]] = waits
    stop: threading.Event = field(default_factory=threading.Event)

    def shard(self, shard: Shard) -> bool:
        """Fetches one shard; returns False if the shard exists already.

        Raises `DownloadError` after the last attempt, with its error. The partial file stays for a later
        call.
        """
        if is_there(shard.path):
            return False
        shard.path.parent.mkdir(parents=True, exist_ok=True)
        pauses = self.waits()
        attempt = 0
        while True:
            attempt += 1
            try:
                self._attempt(shard)
            except (DownloadError, OSError, http.client.HTTPException) as error:
                reason = describe(error)
                pause = None if is_final(error) else next(pauses, None)
                if pause is None or self.stop.is_set():
                    raise DownloadError(f"{reason} (attempt {attempt})") from error
                self.progress.say(f"{shard.path.name}: {reason}; retrying in {pause:g} s")
                if self.stop.wait(pause):
                    raise DownloadError("interrupted") from error
            else:
                return True

    def _attempt(self, shard: Shard) -> None:
        """Fetches the missing part of a shard, checks the shard and renames it."""
        partial, record = (shard.path.with_name(f".{shard.path.name}{ending}") for ending in (PART, RECORD))
        if is_there(shard.path):  # another process was faster
            return
        with begun(partial, record) as file:
            size, sha256 = self._fetch(shard.url, file, record)
            if size is not None and (arrived := length(file)) < size:
                raise DownloadError(f"{arrived} of {size} bytes arrived")
            if problem := defect(file, shard.path.name, size, shard.sha256 or sha256):
                file.truncate(0)
                raise DownloadError(problem)
            if sys.platform == "win32":  # open files cannot be renamed
                file.close()
            if not is_there(shard.path):
                partial.replace(shard.path)
            discard(partial, record)

    def _fetch(self, url: str, file: IO[bytes], record: Path) -> tuple[int | None, str | None]:
        """Appends the missing part, or restarts; returns size and SHA-256 of the whole file, as far as known."""
        have = length(file)
        origin = Origin.read(record) if have else None
        headers = {"User-Agent": "forebay", "Accept-Encoding": "identity"}
        if origin is not None and origin.tag is not None:
            headers |= {"Range": f"bytes={have}-", "If-Range": origin.tag}
        redirects = Redirects()
        try:
            response = self._answer(urllib.request.Request(url, headers=headers), redirects)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 416:
                    raise
            file.truncate(0)
            raise DownloadError("the partial file does not match the server's file") from error
        with response:
            try:
                start, size = span(response, have if "Range" in headers else 0)
            except DownloadError:
                if response.status == 206:  # an empty partial file makes the next attempt request the whole file
                    file.truncate(0)
                raise
            tag = content_tag(response)
            if start and origin is not None:
                if origin.size not in (None, size):
                    file.truncate(0)
                    raise DownloadError(f"the server's file now has {size} bytes, it had {origin.size}")
                if tag not in (None, origin.tag):
                    file.truncate(0)
                    raise DownloadError(f"the server's file has changed: its tag is {tag}, it was {origin.tag}")
            else:
                file.truncate(0)
                Origin(tag, size).write(record)
            arrived = self._body(response, file)
            file.flush()
            os.fsync(file.fileno())
        if size is None and not arrived:
            raise DownloadError("the server's answer is empty and has no Content-Length")
        return size, redirects.sha256

    def _answer(self, request: urllib.request.Request, redirects: Redirects) -> http.client.HTTPResponse:
        """The server's answer after redirects; `DownloadError` for an invalid address."""
        try:
            opened = urllib.request.build_opener(redirects).open(request, timeout=self.timeout_s)
        except (ValueError, ArithmeticError) as error:
            raise DownloadError(f"the URL cannot be used: {error}", final=True) from error
        answer: http.client.HTTPResponse = opened
        return answer

    def _body(self, response: http.client.HTTPResponse, file: IO[bytes]) -> int:
        """Appends the body to the file; returns the number of its bytes."""
        arrived = 0
        while True:
            if self.stop.is_set():
                raise DownloadError("interrupted", final=True)
            try:
                # One receive per call, so that a slow but steady server does not time out.
                chunk = response.read1(CHUNK_BYTES)
            except http.client.IncompleteRead as error:
                file.write(error.partial)
                raise DownloadError("the connection ended early") from error
            except (ValueError, ArithmeticError) as error:
                raise DownloadError(f"the server's answer is malformed: {error}") from error
            if not chunk:
                return arrived
            file.write(chunk)
            arrived += len(chunk)
            self.progress.add(n_bytes=len(chunk))


@contextlib.contextmanager
def begun(partial: Path, record: Path) -> Iterator[IO[bytes]]:
    """Opens and locks the partial file for appending; removes it if it is empty in the end."""
    has_record = Origin.read(record) is not None
    try:
        opened = open_file(partial, "a+")
    except NotAFileError as error:
        raise foreign(str(error)) from None
    with opened as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DownloadError("another process is fetching it", final=True) from None
            except OSError:
                pass  # the file system has no locks
            if what_is(partial) is None or not os.path.samestat(os.fstat(file.fileno()), partial.lstat()):
                raise DownloadError("another process fetched it")
        if not has_record and length(file) and Origin.read(record) is None:
            raise foreign(f"{partial} exists, but forebay download did not write it")
        try:
            yield file
        finally:
            is_empty = not file.closed and length(file) == 0
            if sys.platform == "win32":
                file.close()
            if is_empty:
                discard(partial, record)


def length(file: IO[bytes]) -> int:
    """The size of an open file in bytes."""
    return file.seek(0, os.SEEK_END)


def foreign(found: str) -> DownloadError:
    """The error for a file that is not of this command, which stays."""
    return DownloadError(f"{found}; move it, or pass another --folder", final=True)


def is_there(path: Path) -> bool:
    """Whether the shard exists: a file, or a link to a file. Raises `DownloadError` if something else has its name."""
    found = what_is(path)
    if found in (None, "a file"):
        return found is not None
    if found == "a symbolic link":
        if path.is_file():
            return True
        found = "a symbolic link that does not lead to a file"
    raise foreign(f"{path} is {found}, expected a shard or nothing")


def span(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """The start of the body in the file, and the size of the whole file if known.

    Raises `DownloadError` for an answer that is not the file or a part of it.
    """
    if response.status not in (200, 206):
        message = f"the server answered {response.status} {response.reason}; expected is 200 with the file"
        raise DownloadError(message, final=response.status != http.HTTPStatus.ACCEPTED)
    encodings = ", ".join(response.headers.get_all("Content-Encoding", [])).strip().lower()
    if encodings not in ("", "identity"):
        message = f"the server sends the file in the encoding {encodings}; requested was identity"
        raise DownloadError(message, final=True)
    if response.status == 206:
        stated = response.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", stated)
        if not found or int(found[1]) != have:
            raise DownloadError(f"requested bytes from {have} on, got the Content-Range {stated[:80]!r}")
        return have, int(found[2])
    lengths = set(response.headers.get_all("Content-Length", []))
    if not lengths:
        return 0, None
    stated = " and ".join(sorted(lengths))
    if not re.fullmatch("[0-9]{1,18}", stated):
        raise DownloadError(f"the server's Content-Length is {stated[:80]!r}, expected a number of bytes")
    return 0, int(stated)


def content_tag(response: http.client.HTTPResponse) -> str | None:
    """The tag that identifies this content exactly, for `If-Range`."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def defect(file: IO[bytes], name: str, size: int | None, sha256: str | None) -> str | None:
    """Why the file that arrived is not the requested one; None if it is."""
    arrived = length(file)
    if size is not None and arrived != size:
        return f"{arrived} bytes arrived, the server announced {size}"
    if sha256 is not None and (found := digest(file)) != sha256:
        return f"its SHA-256 is {found}, must be {sha256}"
    if name.endswith(".parquet"):
        file.seek(0)
        first = file.read(4)
        file.seek(max(arrived - 4, 0))
        last = file.read()
        if (first, last) != (b"PAR1", b"PAR1"):
            return f"it is not a complete Parquet file: it begins with {first!r} and ends with {last!r}"
    return None


def discard(*paths: Path) -> None:
    """Removes files, if they exist."""
    for path in paths:
        path.unlink(missing_ok=True)


def digest(file: IO[bytes]) -> str:
    """The SHA-256 of an open file."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def describe(error: Exception) -> str:
    """The reason of an error in at most 500 printable characters."""
    match error:
        case urllib.error.HTTPError():
            text = f"the server answered {error.code} {error.reason}"
        case urllib.error.URLError():
            text = f"no connection: {error.reason}"
        case TimeoutError():
            text = "the server stalled"
        case _:
            text = str(error) or type(error).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in text[:500])


def is_final(error: Exception) -> bool:
    """Whether another attempt is useless, as for a missing file, a missing permission or a full disk."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 425, 429)
    lasting = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENAMETOOLONG)
    if isinstance(error, OSError) and error.errno in lasting:
        return True
    return isinstance(error, DownloadError) and error.final
