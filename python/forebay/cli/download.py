"""`forebay download`: downloads shards over HTTP into a folder, each complete or not at all.

A shard arrives as `.NAME.forebay-part.tmp` and is renamed once it is complete; loaders leave out names that end in
`.tmp`. A shard is complete by its size, by its SHA-256 where that is known (from `X-Linked-ETag` of huggingface.co, or
`--checksums`), and by the marks at both ends of a Parquet file. `.NAME.forebay-part.json.tmp` records which content a
partial file is the beginning of. It is continued by a range request if the server names its contents, with `If-Range`,
so that the server checks whether it still has that content.

Only regular files with a record of this command are continued or removed, and no link is followed; anything else under
these names, or under the shard's, is an error. An answer that cannot be used is an error of its shard alone.
"""

import argparse
import contextlib
import errno
import hashlib
import http
import http.client
import json
import os
import re
import string
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from forebay._core import ConfigError
from forebay._files import NotAFileError, open_file, read_file, what_is
from forebay._progress import Progress
from forebay.tokens import base_data_dir

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

ATTEMPTS = 5
"""How often a shard is requested."""
TIMEOUT_S = 30.0
"""How long a server may say nothing."""
CHUNK_BYTES = 1 << 20
"""How much is read at once."""
MOST_SHARDS = 1_000_000
"""Of one call: their names are held in memory."""
PART, RECORD = ".forebay-part.tmp", ".forebay-part.json.tmp"
"""How the names of a partial file and of its record end; they begin with a dot."""
MOST_NAME_BYTES = 255 - len("." + RECORD)
"""Of a shard's name, so that file systems have room for that of its record."""
WRITER = "forebay download"
"""By which a record tells that it is one."""


def waits() -> Iterator[float]:
    """Seconds to wait after each attempt that failed: 2, 4, 8, 16."""
    return (float(2**attempt) for attempt in range(1, ATTEMPTS))


@dataclass(frozen=True)
class Preset:
    """A published set of shards."""

    url: str
    n_shards: int


PRESETS = {
    "fineweb-edu-100b": Preset(
        "https://huggingface.co/datasets/karpathy/fineweb-edu-100b-shuffle/resolve/main/shard_{:05d}.parquet",
        1823,
    ),
}


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
    """The content that a partial file belongs to."""

    tag: str | None
    """Names the content, by the server's last answer: one that redirects has tags of its own. Without a tag nothing
    tells a file from another one, so that the partial file is not continued."""

    size: int | None

    def write(self, path: Path) -> None:
        """Replaces the record of before."""
        with open_file(path, "r+") as file:
            file.truncate(0)
            file.write(json.dumps({"written_by": WRITER, "tag": self.tag, "size": self.size}).encode())

    @classmethod
    def read(cls, path: Path) -> "Origin | None":
        """The record of a partial file; None if there is none.

        Raises `DownloadError` if something else is there, which stays.
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
            raise foreign(f"{path} is there, and forebay download did not write it")
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
            raise DownloadError(f"{here} redirects to an address that is none: {error}", final=True) from None

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
        _ = there.port  # which raises if it is none
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
    """How shards are fetched. Tests replace the waits and the timeout."""

    progress: Progress
    timeout_s: float = TIMEOUT_S
    waits: Callable[[], Iterator[float]] = waits
    stop: threading.Event = field(default_factory=threading.Event)

    def shard(self, shard: Shard) -> bool:
        """Fetches one shard; returns whether there was anything to fetch.

        Raises `DownloadError` after the last attempt, with its error. The partial file stays, to be
        continued.
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
                self.progress.say(f"{shard.path.name}: {reason}; again in {pause:g} s")
                if self.stop.wait(pause):
                    raise DownloadError("interrupted") from error
            else:
                return True

    def _attempt(self, shard: Shard) -> None:
        """Fetches what is missing of a shard, checks it and gives it its name."""
        partial, record = (shard.path.with_name(f".{shard.path.name}{ending}") for ending in (PART, RECORD))
        if is_there(shard.path):  # another process was quicker
            return
        with begun(partial, record) as file:
            size, sha256 = self._fetch(shard.url, file, record)
            if size is not None and (arrived := length(file)) < size:
                raise DownloadError(f"{arrived} of {size} bytes arrived")
            if problem := defect(file, shard.path.name, size, shard.sha256 or sha256):
                file.truncate(0)
                raise DownloadError(problem)
            if sys.platform == "win32":  # which renames no open file
                file.close()
            if not is_there(shard.path):
                partial.replace(shard.path)
            discard(partial, record)

    def _fetch(self, url: str, file: IO[bytes], record: Path) -> tuple[int | None, str | None]:
        """Appends the missing part, or restarts; returns the size of the whole and its SHA-256, as far as known."""
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
            raise DownloadError("the partial file is no beginning of what the server has") from error
        with response:
            try:
                start, size = span(response, have if "Range" in headers else 0)
            except DownloadError:
                if response.status == 206:  # without them the next request is for the whole file
                    file.truncate(0)
                raise
            tag = content_tag(response)
            if start and origin is not None:
                if origin.size not in (None, size):
                    file.truncate(0)
                    raise DownloadError(f"the server's file has {size} bytes by now, it had {origin.size}")
                if tag not in (None, origin.tag):
                    file.truncate(0)
                    raise DownloadError(
                        f"the server's file is another one by now: its tag is {tag}, it was {origin.tag}"
                    )
            else:
                file.truncate(0)
                Origin(tag, size).write(record)
            arrived = self._body(response, file)
            file.flush()
            os.fsync(file.fileno())
        if size is None and not arrived:
            raise DownloadError("the server's answer is empty, and does not say that the file is")
        return size, redirects.sha256

    def _answer(self, request: urllib.request.Request, redirects: Redirects) -> http.client.HTTPResponse:
        """The server's answer, redirects followed; `DownloadError` if one leads to no address."""
        try:
            opened = urllib.request.build_opener(redirects).open(request, timeout=self.timeout_s)
        except (ValueError, ArithmeticError) as error:
            raise DownloadError(f"the URL cannot be used: {error}", final=True) from error
        answer: http.client.HTTPResponse = opened
        return answer

    def _body(self, response: http.client.HTTPResponse, file: IO[bytes]) -> int:
        """Appends the body; its bytes."""
        arrived = 0
        while True:
            if self.stop.is_set():
                raise DownloadError("interrupted", final=True)
            try:
                # One receive at a time: a server that sends slowly but steadily does not time out.
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
    """The partial file, for this process alone, to be appended to; one that is empty in the end is removed."""
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
                raise DownloadError("another process fetches it", final=True) from None
            except OSError:
                pass  # of a file system without locks
            if what_is(partial) is None or not os.path.samestat(os.fstat(file.fileno()), partial.lstat()):
                raise DownloadError("another process fetched it")
        if not has_record and length(file) and Origin.read(record) is None:
            raise foreign(f"{partial} is there, and forebay download did not begin it")
        try:
            yield file
        finally:
            is_empty = not file.closed and length(file) == 0
            if sys.platform == "win32":
                file.close()
            if is_empty:
                discard(partial, record)


def length(file: IO[bytes]) -> int:
    """The bytes of an open file."""
    return file.seek(0, os.SEEK_END)


def foreign(found: str) -> DownloadError:
    """Something that is not ours is in the way, and stays."""
    return DownloadError(f"{found}; move it, or give another --folder", final=True)


def is_there(path: Path) -> bool:
    """Whether a shard is there: a file, or a link to one. Raises `DownloadError` if something else has its name."""
    found = what_is(path)
    if found in (None, "a file"):
        return found is not None
    if found == "a symbolic link":
        if path.is_file():
            return True
        found = "a symbolic link that leads to no file"
    raise foreign(f"{path} is {found}, where a shard is to be")


def span(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """Where the body begins in the file, and the size of the whole file if the server tells.

    Raises `DownloadError` for an answer that is not the file, or part of it.
    """
    if response.status not in (200, 206):
        message = f"the server says {response.status} {response.reason}; expected is 200 with the file"
        raise DownloadError(message, final=response.status != http.HTTPStatus.ACCEPTED)
    encodings = ", ".join(response.headers.get_all("Content-Encoding", [])).strip().lower()
    if encodings not in ("", "identity"):
        message = f"the server sends the file in the encoding {encodings}; asked for was identity, as it is"
        raise DownloadError(message, final=True)
    if response.status == 206:
        stated = response.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", stated)
        if not found or int(found[1]) != have:
            raise DownloadError(f"asked for bytes from {have} on, got the Content-Range {stated[:80]!r}")
        return have, int(found[2])
    lengths = set(response.headers.get_all("Content-Length", []))
    if not lengths:
        return 0, None
    stated = " and ".join(sorted(lengths))
    if not re.fullmatch("[0-9]{1,18}", stated):
        raise DownloadError(f"the server says that the Content-Length is {stated[:80]!r}, which is no number of bytes")
    return 0, int(stated)


def content_tag(response: http.client.HTTPResponse) -> str | None:
    """The tag that identifies exactly this content, for `If-Range`."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def defect(file: IO[bytes], name: str, size: int | None, sha256: str | None) -> str | None:
    """Why a file that arrived is not the one asked for."""
    arrived = length(file)
    if size is not None and arrived != size:
        return f"{arrived} bytes arrived, the server told of {size}"
    if sha256 is not None and (found := digest(file)) != sha256:
        return f"its SHA-256 is {found}, must be {sha256}"
    if name.endswith(".parquet"):
        file.seek(0)
        first = file.read(4)
        file.seek(max(arrived - 4, 0))
        last = file.read()
        if (first, last) != (b"PAR1", b"PAR1"):
            return f"it is no whole Parquet file: it begins with {first!r} and ends with {last!r}"
    return None


def discard(*paths: Path) -> None:
    """Removes files that may be there."""
    for path in paths:
        path.unlink(missing_ok=True)


def digest(file: IO[bytes]) -> str:
    """The SHA-256 of an open file."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def describe(error: Exception) -> str:
    """What happened, in a few words that a terminal can show, whatever the server wrote."""
    match error:
        case urllib.error.HTTPError():
            text = f"the server says {error.code} {error.reason}"
        case urllib.error.URLError():
            text = f"no connection: {error.reason}"
        case TimeoutError():
            text = "the server stalled"
        case _:
            text = str(error) or type(error).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in text[:500])


def is_final(error: Exception) -> bool:
    """Whether another attempt is useless: no such file, no permission, a full disk."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 425, 429)
    lasting = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENAMETOOLONG)
    if isinstance(error, OSError) and error.errno in lasting:
        return True
    return isinstance(error, DownloadError) and error.final


def shards_of(
    pattern: str, numbers: Sequence[int], folder: Path, checksums: Mapping[str, str] | None, name: str | None = None
) -> list[Shard]:
    """The shards of a URL with one replacement field, as `{:05d}`, for the number; `name` is such a pattern too.

    Raises `ConfigError` for a URL or a name that cannot be, and for a shard that `checksums`, if given, do not list.
    """
    urls = [pattern.format(number) for number in numbers]
    for url in urls:
        check_url(url)
    paths = (urllib.parse.unquote(urllib.parse.urlsplit(url).path) for url in urls)
    names = [path.rpartition("/")[2] for path in paths] if name is None else [name.format(n) for n in numbers]
    for name, url in zip(names, urls, strict=True):
        check_name(name, url)
    if checksums is not None and (missing := [name for name in names if name not in checksums]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(
            f"the file of --checksums has no SHA-256 for {missing[0]!r}{more}; add it, or name fewer shards"
        )
    sums = checksums or {}
    return [Shard(url, folder / name, sums.get(name)) for url, name in zip(urls, names, strict=True)]


def check_url(url: str) -> None:
    """Raises `ConfigError` unless this can be asked for."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # which raises if it is none
        problem = "" if parts.hostname else "it has no host"
    except ValueError as error:
        problem = str(error)
    if not problem and not (url.isascii() and url.isprintable() and " " not in url):
        problem = "it has characters that must be written as in %20"
    if problem:
        raise ConfigError(f"the URL {url[:200]!r} cannot be used: {problem}")


def check_name(name: str, url: str) -> None:
    """Raises `ConfigError` unless a file in a folder can have this name."""
    if name in ("", ".", "..") or set(name) & set("/\\\0") or name.endswith((".tmp", ".tmp.json")):
        raise ConfigError(
            f"the file of {url} would be called {name!r}; expected is a plain name that does not end in .tmp: name the "
            "files by --name, as in --name shard_{:05d}.parquet"
        )
    if not name.isprintable() or len(name.encode()) > MOST_NAME_BYTES:
        raise ConfigError(
            f"the file of {url[:200]} would be called {name[:200]!r}; expected are at most {MOST_NAME_BYTES} bytes "
            "without control characters: name the files by --name, as in --name shard_{:05d}.parquet"
        )


def check_paths(shards: Sequence[Shard]) -> None:
    """Raises `ConfigError` unless each shard has a file of its own."""
    taken: dict[Path, Shard] = {}
    for shard in shards:
        if (other := taken.setdefault(shard.path, shard)) is not shard:
            raise ConfigError(
                f"{other.url} and {shard.url} would both be called {shard.path.name!r}; the number must be in the last "
                "part of the URL's path, or else in --name, as in --name shard_{:05d}.parquet"
            )


def numbers(total: int | None, wanted: int | None) -> list[int]:
    """The numbers of the first `wanted` shards, and the last if it is known: it is the validation split."""
    if total is None:
        return list(range(wanted or 0))
    first = total - 1 if wanted is None else min(wanted, total - 1)
    return [*range(first), total - 1]


GNU_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64})(?: [ *]|\s+)(.+)")
BSD_LINE = re.compile(r"SHA(?:2-)?256 ?\((.+)\) ?= ?([0-9a-fA-F]{64})")


def read_checksums(path: Path) -> dict[str, str]:
    """The SHA-256 of each file, by its name without folders, as GNU's `sha256sum` writes them or BSD's `sha256`.

    Raises `ConfigError` with the number of a line that is neither, or that contradicts another one.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise ConfigError(f"line {number} of {path} is no UTF-8; expected are lines as of sha256sum") from None
        if not text:
            continue
        if gnu := GNU_LINE.fullmatch(text):
            name, sha256 = gnu[3], gnu[2].lower()
            if gnu[1]:  # names with a backslash or a line break
                name = re.sub(r"\\(.)", lambda escape: {"n": "\n", "r": "\r"}.get(escape[1], escape[1]), name)
        elif bsd := BSD_LINE.fullmatch(text):
            name, sha256 = bsd[1], bsd[2].lower()
        else:
            raise ConfigError(
                f"line {number} of {path} is {text[:100]!r}; expected are 64 digits and a name, as of sha256sum, or "
                "SHA256 (NAME) = DIGITS"
            )
        if found.setdefault(name := Path(name).name, sha256) != sha256:
            raise ConfigError(f"line {number} of {path} has another SHA-256 of {name!r} than a line before")
    return found


def fetch(
    shards: Sequence[Shard],
    *,
    n_workers: int = 4,
    timeout_s: float = TIMEOUT_S,
    waits: Callable[[], Iterator[float]] = waits,
    stream: TextIO | None = None,
) -> dict[Shard, str]:
    """Fetches shards, several at a time; returns those that failed, each with the reason.

    Raises `ConfigError` if two of them would be the same file.
    """
    check_paths(shards)
    progress = Progress(len(shards), "shards", stream or sys.stderr)
    download = Download(progress, timeout_s, waits)
    failed: dict[Shard, str] = {}
    there = 0
    with ThreadPoolExecutor(n_workers, thread_name_prefix="forebay-download") as pool:
        tasks = {pool.submit(download.shard, shard): shard for shard in shards}
        try:
            for task in as_completed(tasks):
                shard = tasks[task]
                try:
                    there += not task.result()
                except (DownloadError, OSError) as error:
                    failed[shard] = describe(error)
                    progress.say(f"{shard.path.name}: {describe(error)}; given up")
                progress.add(done=1, errors=shard in failed)
        except BaseException:
            download.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            progress.close()
    fetched = len(shards) - there - len(failed)
    progress.say(
        f"{fetched} shards fetched ({progress.n_bytes / 1e6:.1f} MB), {there} were there, {len(failed)} failed"
        + "".join(f"\n  {shard.path.name}: {reason}" for shard, reason in sorted(failed.items(), key=by_name))
    )
    return failed


def by_name(item: tuple[Shard, str]) -> str:
    """The name of a failed shard."""
    return item[0].path.name


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "download",
        help="fetch shards over HTTP",
        description="Fetches shards over HTTP. Files that are there are skipped, partial ones continued. "
        "The last shard is always fetched: it is the validation split.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "url", nargs="?", help="URL with one field for the shard's number, as https://host/shard_{:05d}.parquet"
    )
    source.add_argument("--preset", choices=sorted(PRESETS), help="a published set of shards")
    parser.add_argument(
        "-n", "--n-shards", type=whole, metavar="N", help="how many shards; a known last one comes on top"
    )
    parser.add_argument(
        "-w", "--n-workers", type=positive, default=4, metavar="N", help="downloads at a time (%(default)s)"
    )
    parser.add_argument("-o", "--folder", type=Path, help=f"where to (default: {base_data_dir()})".replace("%", "%%"))
    parser.add_argument(
        "--name", metavar="PATTERN", help="what files are called, with a field for the number (default: as in the URL)"
    )
    parser.add_argument("--total", type=positive, metavar="N", help="how many shards the URL has, numbered from 0")
    parser.add_argument(
        "--checksums", type=Path, metavar="FILE",
        help="SHA-256 of each file, as sha256sum or BSD's sha256 writes them; all shards must be in it",
    )  # fmt: skip
    parser.set_defaults(run=run, parser=parser)


def whole(text: str) -> int:
    """A number from 0 to `MOST_SHARDS`."""
    return bounded(text, 0)


def positive(text: str) -> int:
    """A number from 1 to `MOST_SHARDS`."""
    return bounded(text, 1)


def bounded(text: str, least: int) -> int:
    """A number in that range."""
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is below {least}")
    if value > MOST_SHARDS:
        raise argparse.ArgumentTypeError(f"{value} is above {MOST_SHARDS}")
    return value


def run(options: argparse.Namespace) -> int:
    """Fetches the shards of the arguments; the exit code is 1 if any shard failed."""
    parser: argparse.ArgumentParser = options.parser
    if options.preset:
        if options.total is not None:
            parser.error("--total belongs to a URL; a preset knows how many shards it has")
        preset = PRESETS[options.preset]
        url, total = preset.url, preset.n_shards
    else:
        url, total = options.url, options.total
        if url.partition(":")[0].lower() not in ("http", "https"):
            parser.error(f"the URL {url!r} has a scheme that is neither http nor https")
        if problem := pattern_problem(url):
            parser.error(f"the URL {url!r} has {problem}; expected is https://host/shard_{{:05d}}.parquet")
        if total is None and options.n_shards is None:
            parser.error("a URL needs -n (the first N shards), --total (all of N), or both (the first and the last)")
    if options.name is not None and (problem := pattern_problem(options.name)):
        parser.error(f"--name {options.name!r} has {problem}; expected is shard_{{:05d}}.parquet")
    wanted = numbers(total, options.n_shards)
    try:
        checksums = read_checksums(options.checksums) if options.checksums else None
        shards = shards_of(url, wanted, options.folder or base_data_dir(), checksums, options.name)
        check_paths(shards)
    except OSError as error:
        parser.error(f"cannot read {options.checksums}: {error.strerror}")
    except ConfigError as error:
        parser.error(str(error))
    return 1 if fetch(shards, n_workers=options.n_workers, waits=waits) else 0


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern of shards. Its fields take a number, in a width of at most 99."""
    try:
        fields = [field for field in string.Formatter().parse(pattern) if field[1] is not None]
    except ValueError as error:
        return f"braces that are no field ({error})"
    if not fields:
        return "no field for the shard's number"
    names = [name for _, name, _, _ in fields]
    if names != [""] and set(names) != {"0"}:
        return "more than one field, or one that takes no number"
    for _, name, spec, conversion in fields:
        if conversion or not re.fullmatch("0?[0-9]{0,2}[dxX]?", spec or ""):
            shown = f"{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}"[:40]
            return f"the field {{{shown}}}, which is no number of at most 99 digits"
    return None
