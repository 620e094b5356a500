"""`forebay download`: downloads shards over HTTP into a folder, each complete or not at all.

A shard is written to `NAME.tmp` and renamed once it is complete, so a file without that ending is complete;
loaders ignore `.tmp` files. A complete file is recognised by its size, by its SHA-256 where that is known
(from huggingface.co in `X-Linked-ETag`, or from `--checksums`), and by the magic bytes at both ends of a
Parquet file. `NAME.tmp.json` records the content that a partial file belongs to. The file is continued by a
range request if the server sends an ETag, with `If-Range`, so that the server confirms that the content is
unchanged. Files that this command did not begin stay.
"""

import argparse
import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from forebay._core import ConfigError
from forebay.cli.progress import Progress
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

    tag: str
    """What names the content, by the server's last answer: one that redirects has tags of its own."""

    size: int | None

    @classmethod
    def read(cls, path: Path) -> "Origin | None":
        """The record, if it suffices to continue: without a tag a changed file cannot be detected."""
        try:
            found = json.loads(path.read_text())
            tag, size = found["tag"], found["size"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        is_one = isinstance(tag, str) and tag.isprintable() and tag.isascii() and (size is None or type(size) is int)
        return cls(tag, size) if is_one else None


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except from https to http, and takes the SHA-256 from huggingface.co's redirects."""

    sha256: str | None = None

    def redirect_request(  # noqa: D102
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        here, there = (urllib.parse.urlsplit(url) for url in (req.full_url, newurl))
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
        if shard.path.exists():
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
        """Fetches the missing part of a shard, checks the file and renames it."""
        partial = shard.path.with_name(shard.path.name + ".tmp")
        record = shard.path.with_name(shard.path.name + ".tmp.json")
        if shard.path.exists():  # another process was quicker
            return
        with begun(partial, record) as file:
            size, sha256 = self._fetch(shard.url, file, record)
            if size is not None and (arrived := length(file)) < size:
                raise DownloadError(f"{arrived} of {size} bytes arrived")
            if problem := defect(partial, size, shard.sha256 or sha256):
                file.truncate(0)
                raise DownloadError(problem)
            if sys.platform == "win32":  # which renames no open file
                file.close()
            if not shard.path.exists():
                partial.replace(shard.path)
            discard(partial, record)

    def _fetch(self, url: str, file: IO[bytes], record: Path) -> tuple[int | None, str | None]:
        """Appends the missing part, or restarts; returns the size of the whole and its SHA-256, as far as known."""
        have = length(file)
        origin = Origin.read(record) if have else None
        headers = {"User-Agent": "forebay", "Accept-Encoding": "identity"}
        if origin is not None:
            headers |= {"Range": f"bytes={have}-", "If-Range": origin.tag}
        redirects = Redirects()
        request = urllib.request.Request(url, headers=headers)
        try:
            response = urllib.request.build_opener(redirects).open(request, timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 416:
                    raise
            file.truncate(0)
            raise DownloadError("the partial file is no beginning of what the server has") from error
        with response:
            start, size = span(response, have if origin else 0)
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
                record.write_text(json.dumps({"tag": tag, "size": size}))
            self._body(response, file)
            file.flush()
            os.fsync(file.fileno())
        return size, redirects.sha256

    def _body(self, response: http.client.HTTPResponse, file: IO[bytes]) -> None:
        while True:
            if self.stop.is_set():
                raise DownloadError("interrupted", final=True)
            try:
                # One receive at a time: a server that sends slowly but steadily does not time out.
                chunk = response.read1(CHUNK_BYTES)
            except http.client.IncompleteRead as error:
                file.write(error.partial)
                raise DownloadError("the connection ended early") from error
            if not chunk:
                return
            file.write(chunk)
            self.progress.add(n_bytes=len(chunk))


@contextlib.contextmanager
def begun(partial: Path, record: Path) -> Iterator[IO[bytes]]:
    """Opens the partial file for this process only, to append to it; it is removed if it is empty at the end."""
    if partial.exists() and partial.stat().st_size and not record.exists():
        raise DownloadError(f"{partial} is there, and forebay download did not begin it; move or remove it", final=True)
    with partial.open("ab") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DownloadError("another process fetches it", final=True) from None
            except OSError:
                pass  # of a file system without locks
            if not partial.exists() or not os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                raise DownloadError("another process fetched it")
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


def span(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """The offset of the body in the file, and the size of the whole file if the server sends it."""
    length = response.headers.get("Content-Length")
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not found or int(found[1]) != have:
            raise DownloadError(f"asked for bytes from {have} on, got {response.headers.get('Content-Range')!r}")
        return have, None if found[2] == "*" else int(found[2])
    return 0, int(length) if length and length.isdecimal() else None


def content_tag(response: http.client.HTTPResponse) -> str | None:
    """The tag that identifies exactly this content, for `If-Range`."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def defect(path: Path, size: int | None, sha256: str | None) -> str | None:
    """Why a downloaded file is not the requested one."""
    arrived = path.stat().st_size
    if size is not None and arrived != size:
        return f"{arrived} bytes arrived, the server told of {size}"
    if sha256 is not None and (found := digest(path)) != sha256:
        return f"its SHA-256 is {found}, must be {sha256}"
    if path.name.endswith(".parquet.tmp"):
        with path.open("rb") as file:
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


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(error: Exception) -> str:
    """The error, in a few words."""
    match error:
        case urllib.error.HTTPError():
            return f"the server says {error.code} {error.reason}"
        case urllib.error.URLError():
            return f"no connection: {error.reason}"
        case TimeoutError():
            return "the server stalled"
        case _:
            return str(error) or type(error).__name__


def is_final(error: Exception) -> bool:
    """Whether another attempt is useless: no such file, no permission, a full disk."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500 and error.code not in (408, 425, 429)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT):
        return True
    return isinstance(error, DownloadError) and error.final


def shards_of(
    pattern: str, numbers: Sequence[int], folder: Path, checksums: Mapping[str, str], name: str | None = None
) -> list[Shard]:
    """The shards of a URL with one replacement field, as `{:05d}`, for the number; `name` is such a pattern too."""
    urls = [pattern.format(number) for number in numbers]
    paths = (urllib.parse.unquote(urllib.parse.urlsplit(url).path) for url in urls)
    names = [path.rpartition("/")[2] for path in paths] if name is None else [name.format(n) for n in numbers]
    for name, url in zip(names, urls, strict=True):
        check_name(name, url)
    return [Shard(url, folder / name, checksums.get(name)) for url, name in zip(urls, names, strict=True)]


def check_name(name: str, url: str) -> None:
    """Raises `ConfigError` unless a file in a folder can have this name."""
    if name in ("", ".", "..") or set(name) & set("/\\\0") or name.endswith((".tmp", ".tmp.json")):
        raise ConfigError(
            f"the file of {url} would be called {name!r}; expected is a plain name that does not end in .tmp: name the "
            "files by --name, as in --name shard_{:05d}.parquet"
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


def read_checksums(path: Path) -> dict[str, str]:
    """The SHA-256 of each file, as `sha256sum` writes them."""
    lines = (line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
    return {Path(line[1].lstrip("*")).name: line[0].lower() for line in lines if len(line) == 2}


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
    parser.add_argument("--checksums", type=Path, metavar="FILE", help="SHA-256 of each file, as sha256sum writes them")
    parser.set_defaults(run=run, parser=parser)


def whole(text: str) -> int:
    """A number from 0 on."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below 0")
    return value


def positive(text: str) -> int:
    """A number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
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
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            parser.error(f"the URL {url!r} has a scheme that is neither http nor https")
        if problem := pattern_problem(url):
            parser.error(f"the URL {url!r} has {problem}; expected is https://host/shard_{{:05d}}.parquet")
        if total is None and options.n_shards is None:
            parser.error("a URL needs -n (the first N shards), --total (all of N), or both (the first and the last)")
    if options.name is not None and (problem := pattern_problem(options.name)):
        parser.error(f"--name {options.name!r} has {problem}; expected is shard_{{:05d}}.parquet")
    try:
        checksums = read_checksums(options.checksums) if options.checksums else {}
    except OSError as error:
        parser.error(f"cannot read {options.checksums}: {error.strerror}")
    wanted = numbers(total, options.n_shards)
    try:
        shards = shards_of(url, wanted, options.folder or base_data_dir(), checksums, options.name)
        check_paths(shards)
    except ConfigError as error:
        parser.error(str(error))
    return 1 if fetch(shards, n_workers=options.n_workers, waits=waits) else 0


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern of shards."""
    try:
        return "no field for the shard's number" if pattern.format(0) == pattern.format(1) else None
    except (ValueError, LookupError):
        return "more than one field, or one that takes no number"
