"""`forebay download`: fetches shards into a folder; this module has their URLs, names and checksums."""

import argparse
import re
import string
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from forebay._core import ConfigError
from forebay._progress import Progress
from forebay.cli.common import a_path, add_json, check_files, check_place, counted, size, subcommand, using
from forebay.cli.transfer import RECORD, TIMEOUT_S, Download, DownloadError, Shard, describe, waits
from forebay.tokens import base_data_dir

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

MOST_SHARDS = 1_000_000
"""The most shards of one call, since their names are held in memory."""
MOST_NAME_BYTES = 255 - len("." + RECORD)
"""The longest name of a shard, so that the longer name of its record fits file systems."""


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


def shards_of(
    pattern: str, numbers: Sequence[int], folder: Path, checksums: Mapping[str, str] | None, name: str | None = None
) -> list[Shard]:
    """The shards of a URL with a replacement field for the number, such as `{:05d}`; `name` is such a pattern too.

    Raises `ConfigError` for an invalid URL or name, and for a shard that is missing in `checksums`.
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
            f"the file of --checksums has no SHA-256 for {missing[0]!r}{more}; add it, or fetch fewer shards"
        )
    sums = checksums or {}
    return [Shard(url, folder / name, sums.get(name)) for url, name in zip(urls, names, strict=True)]


def check_url(url: str) -> None:
    """Raises `ConfigError` unless the URL can be requested."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises for an invalid port
        problem = "" if parts.hostname else "it has no host"
    except ValueError as error:
        problem = str(error)
    if not problem and not (url.isascii() and url.isprintable() and " " not in url):
        problem = "it has characters that must be percent-encoded, as in %20"
    if problem:
        raise ConfigError(f"the URL {url[:200]!r} cannot be used: {problem}")


def check_name(name: str, url: str) -> None:
    """Raises `ConfigError` unless the name is valid for a file."""
    if name in ("", ".", "..") or set(name) & set("/\\\0") or name.endswith((".tmp", ".tmp.json")):
        raise ConfigError(
            f"the file of {url} would be called {name!r}; expected is a plain name that does not end in .tmp: set the "
            "names, as in --name shard_{:05d}.parquet"
        )
    if not name.isprintable() or len(name.encode()) > MOST_NAME_BYTES:
        raise ConfigError(
            f"the file of {url[:200]} would be called {name[:200]!r}; expected are at most {MOST_NAME_BYTES} bytes "
            "without control characters: set the names, as in --name shard_{:05d}.parquet"
        )


def check_paths(shards: Sequence[Shard]) -> None:
    """Raises `ConfigError` unless each shard has its own file."""
    taken: dict[Path, Shard] = {}
    for shard in shards:
        if (other := taken.setdefault(shard.path, shard)) is not shard:
            raise ConfigError(
                f"{other.url} and {shard.url} would both be called {shard.path.name!r}; the number must be in the last "
                "part of the URL's path, or in --name, as in --name shard_{:05d}.parquet"
            )


def numbers(total: int | None, wanted: int | None) -> list[int]:
    """The numbers of the first `wanted` shards, and of the last shard if known, which is the validation split."""
    if total is None:
        return list(range(wanted or 0))
    first = total - 1 if wanted is None else min(wanted, total - 1)
    return [*range(first), total - 1]


GNU_LINE = re.compile(r"(\\?)([0-9a-fA-F]{64})(?: [ *]|\s+)(.+)")
BSD_LINE = re.compile(r"SHA(?:2-)?256 ?\((.+)\) ?= ?([0-9a-fA-F]{64})")


def read_checksums(path: Path) -> dict[str, str]:
    """Reads the SHA-256 of each file, by name without folders, from the output of GNU's `sha256sum` or BSD's `sha256`.

    Raises `ConfigError` with the number of a line that has neither form, or that contradicts another line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise ConfigError(f"line {number} of {path} is not UTF-8; expected are lines of sha256sum") from None
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
                f"line {number} of {path} is {text[:100]!r}; expected are 64 digits and a name, as by sha256sum, or "
                "SHA256 (NAME) = DIGITS"
            )
        if found.setdefault(name := Path(name).name, sha256) != sha256:
            raise ConfigError(f"line {number} of {path} has another SHA-256 of {name!r} than an earlier line")
    return found


@dataclass(frozen=True)
class Fetched:
    """The result of a download."""

    n_fetched: int
    n_there: int
    """Shards that an earlier download had fetched."""
    n_bytes: int
    failed: dict[Shard, str]
    """The failed shards, each with the reason."""

    def as_dict(self) -> dict[str, Any]:
        """The keys of the command's JSON."""
        failed = [{"name": shard.path.name, "url": shard.url, "reason": why} for shard, why in self.in_order()]
        return {"fetched": self.n_fetched, "there": self.n_there, "bytes": self.n_bytes, "failed": failed}

    def in_order(self) -> list[tuple[Shard, str]]:
        """The failed shards by name."""
        return sorted(self.failed.items(), key=lambda item: item[0].path.name)


def fetch(
    shards: Sequence[Shard],
    *,
    n_workers: int = 4,
    timeout_s: float = TIMEOUT_S,
    waits: Callable[[], Iterator[float]] = waits,
    stream: TextIO | None = None,
) -> Fetched:
    """Fetches several shards at a time.

    Raises `ConfigError` if two shards would be the same file.
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
    found = Fetched(len(shards) - there - len(failed), there, progress.n_bytes, failed)
    fetched = f"{counted(found.n_fetched, 'shard')} fetched ({size(progress.n_bytes)})"
    progress.say(
        f"{fetched}, {there} were there, {len(failed)} failed"
        + "".join(f"\n  {shard.path.name}: {reason}" for shard, reason in found.in_order())
    )
    return found


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "download",
        "fetch shards over HTTP",
        "Fetches shards over HTTP. Existing files are skipped, partial downloads are resumed. "
        "The last shard, if known, is always fetched, since it is the validation split.",
        "  forebay download --preset fineweb-edu-100b -n 8\n"
        "  forebay download 'https://host/shard_{:05d}.parquet' --total 100 -o shards",
        "folder, fetched, there (from earlier), bytes, failed (name, url and reason of each)",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="a URL with a field for the shard's number, such as https://host/shard_{:05d}.parquet",
    )
    source.add_argument("--preset", choices=sorted(PRESETS), help="a published set of shards")
    parser.add_argument(
        "-n", "--n-shards", type=whole, metavar="N", help="number of shards, in addition to the last one if known"
    )
    parser.add_argument(
        "-w", "--n-workers", type=positive, default=4, metavar="N", help="simultaneous downloads (default: %(default)s)"
    )
    parser.add_argument(
        "-o", "--folder", type=a_path, help=f"destination (default: {base_data_dir()})".replace("%", "%%")
    )
    parser.add_argument(
        "--name", metavar="PATTERN", help="names of the files, with a field for the number (default: as in the URL)"
    )
    parser.add_argument("--total", type=positive, metavar="N", help="number of shards at the URL, counted from 0")
    parser.add_argument(
        "--checksums", type=a_path, metavar="FILE",
        help="SHA-256 of each file, as written by sha256sum or BSD's sha256; must have all shards",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


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


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Fetches the given shards; the exit code is 1 if any shard failed."""
    parser: argparse.ArgumentParser = options.parser
    if options.preset:
        if options.total is not None:
            parser.error("--total is for a URL; a preset has a fixed number of shards")
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
    checksums = None
    if options.checksums:
        with using("--checksums", options):
            check_files("--checksums", [options.checksums])
            checksums = read_checksums(options.checksums)
    folder = options.folder or base_data_dir()
    shards = shards_of(url, wanted, folder, checksums, options.name)
    check_paths(shards)
    check_place("-o", folder)
    found = fetch(shards, n_workers=options.n_workers, waits=waits)
    return 1 if found.failed else 0, {"folder": str(folder), **found.as_dict()}


def pattern_problem(pattern: str) -> str | None:
    """The problem of a pattern of shards, if any. Its fields must take a number, with a width of at most 99."""
    try:
        fields = [field for field in string.Formatter().parse(pattern) if field[1] is not None]
    except ValueError as error:
        return f"braces that are not a field ({error})"
    if not fields:
        return "no field for the shard's number"
    names = [name for _, name, _, _ in fields]
    if names != [""] and set(names) != {"0"}:
        return "more than one field, or a field that takes no number"
    for _, name, spec, conversion in fields:
        if conversion or not re.fullmatch("0?[0-9]{0,2}[dxX]?", spec or ""):
            shown = f"{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}"[:40]
            return f"the field {{{shown}}}, which is not a number of at most 99 digits"
    return None
