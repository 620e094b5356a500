"""`forebay check`: decodes every recording of a source from end to end, and reports bad recordings.

The rows of the report are written in order to `.REPORT.csv.forebay-part`. An interrupted run leaves them, and
the next run continues after the last row. The complete `REPORT.csv` has a line for every recording.
`REPORT.json` has the shards, a summary and the bad recordings; `Loader(exclude=...)` takes this file. Files
with these names are replaced if they are an earlier report; any other file stays, and is an error. Links are
not followed, and only one run at a time writes a report.

A recording that ends before its container's declared length decodes to its existing samples, as in a loader.
The column `declared_seconds` has the container's length if it declares one, and `warnings` has the
contradictions. `--truncated error` counts such a recording as bad, of kind `truncated`. Warnings are
separated by `; `.

Frames that cannot be decoded count in the column `repaired`, as far as `--max-damage` allows them; a recording
with more is bad, and with `--damage error` so is one with any.
"""

import argparse
import contextlib
import io
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from forebay._core import ConfigError, _Check, _shards
from forebay.cli import check_report, texts
from forebay.cli.check_report import Files, Row, Summary, read_json, settled
from forebay.cli.common import (
    a_path,
    add_json,
    add_reading,
    add_source,
    check_files,
    check_place,
    out_of,
    progress_bar,
    reading,
    say,
    subcommand,
    using,
)

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DAMAGE = ("silence", "error")
"""What becomes of frames that cannot be decoded, as in `Loader`."""
TRUNCATED = ("warn", "error")
"""How to count a recording that ends before its container's declared length: good with a warning, or bad."""


def check(
    files: Sequence[Path],
    stem: Path,
    *,
    audio_column: str | None = None,
    track: int | None = None,
    allow_paths: bool | Sequence[Path] | None = None,
    truncated: str = "warn",
    damage: str = "silence",
    max_damage: float = 0.1,
    restart: bool = False,
    ray: str | None = None,
    stream: TextIO | None = None,
) -> Summary:
    """Checks every recording of the shards, and writes the report; continues an interrupted call.

    With `truncated="error"`, a recording that ends before its container's declared length is bad, of kind
    `truncated`; with "warn" it is good. `damage` and `max_damage` are as in `Loader`, with shares of whole recordings.
    `ray` is the address of a Ray cluster, on whose machines recordings are checked.

    Raises `ConfigError` and `OSError` as `Loader` does, and if the report cannot be written. The rows written
    so far stay.
    """
    with Files(stem).alone():
        judged: dict[str, str | float | None] = {
            "truncated": truncated, "damage": damage, "max_damage": max_damage, "track": track,
        }  # fmt: skip
        given: dict[str, Any] = {
            "audio_column": audio_column, "track": track, "allow_paths": allow_paths, "damage": damage,
            "max_damage": max_damage,
        }  # fmt: skip
        return _check(files, stem, given, judged, restart=restart, ray=ray, stream=stream)


def _check(
    files: Sequence[Path],
    stem: Path,
    given: dict[str, Any],
    judged: Mapping[str, str | float | None],
    *,
    restart: bool,
    ray: str | None,
    stream: TextIO | None,
) -> Summary:
    """As `check`, while no other process writes the report."""
    opened = _Check(files, **given)
    shards: list[Row] = [{**shard, "path": str(Path(shard["path"]).absolute())} for shard in opened.shards]
    total = sum(shard["num_rows"] for shard in shards)
    report = Files(stem)
    summary = report.start(shards, opened.step, judged=judged, restart=restart)
    already = summary.records
    with progress_bar(total, "recordings", stream, already) as progress:
        if already:
            progress.say(f"{already} of {total} recordings were checked before; continuing")
            progress.add(errors=summary.bad)
            opened.seek(already)
        table = report.opened(report.named(".csv.tmp"), "a+")
        # Closed in the opposite order: the file last.
        with (
            io.TextIOWrapper(table, encoding="utf-8", newline="") as file,
            contextlib.closing(opened),
            contextlib.closing(_findings(opened, files, given, range(already, total), ray)) as batches,
        ):
            for batch in batches:
                found = [settled(row, judged["truncated"]) for row in batch]
                check_report.write(file, found)
                for row in found:
                    summary.add(row)
                progress.add(done=len(found), errors=summary.bad - progress.errors)
            file.flush()
            os.fsync(file.fileno())
    report.finish(shards, summary, given["track"])
    return summary


def _findings(
    opened: _Check, files: Sequence[Path], given: dict[str, Any], rows: range, ray: str | None
) -> Generator[list[dict[str, Any]]]:
    """The core's rows of `rows`, in order, checked by `opened` or on the machines of a Ray cluster."""
    if ray is None:
        yield from iter(opened.next, None)
    else:
        from forebay.cli import check_ray

        yield from check_ray.findings(ray, opened, files, given, rows)


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "check",
        "decode every recording of a source and report bad ones",
        "Decodes every recording of a source from end to end, on all cores, and reports bad ones. "
        "After an interruption, the same command continues. The exit code is 1 if anything is bad.",
        "  forebay check shards/ -o report\n"
        "  forebay check 'shards/**/train-*.parquet' --json - > summary.json\n"
        "  forebay check a.arrow b.arrow --allow-paths /data/recordings",
        "summary (as in REPORT.json), damaged (shards), report (paths of REPORT.json and REPORT.csv)",
    )
    add_source(parser)
    parser.add_argument(
        "-o", "--output", type=a_path, default=Path("forebay-check"), metavar="REPORT",
        help="REPORT.json and REPORT.csv are written (default: %(default)s)",
    )  # fmt: skip
    add_reading(parser, "SOURCE")
    parser.add_argument(
        "--truncated", choices=TRUNCATED, default="warn",
        help="how to count a recording that ends before its container's declared length (by STREAMINFO, the size of "
        "WAV data, a Xing or Info tag, or a missing last Ogg page): warn: good, with a warning; error: bad, so "
        "that exclude= leaves it out (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--damage", choices=DAMAGE, default="silence",
        help="what becomes of frames that cannot be decoded: silence: zeros, counted in the column repaired, up to "
        "--max-damage of a recording; error: a recording with one is bad (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-damage", type=float, default=0.1, metavar="SHARE",
        help="the largest share of a recording that may be silence in place of such frames (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--restart", action="store_true", help="discard the results of an interrupted run")
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="check on all machines of the Ray cluster at this address, or auto: pip install forebay[ray]. They need "
        "the same files under the same names; the report is the same as without it",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run, parameters={"arrow_files": "SOURCE", "max_damage": "--max-damage"})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Checks the given shards; exit code 1 if any recording is bad, or if the report cannot be written."""
    stem: Path = options.output.with_suffix("") if options.output.suffix in (".json", ".csv") else options.output
    if stem.name and stem.parent.exists():
        check_place("-o", stem.parent)
    with using("SOURCE", options):
        # A folder that is left is one of recordings.
        sources = _shards("files", options.files, "recordings")
        check_files("SOURCE", (source for source in sources if not Path(source).is_dir()))
    try:
        with using("SOURCE", options, (ConfigError,)), texts.hinted(texts.NOT_FOR_TEXTS):
            summary = check(
                options.files,
                stem,
                **reading(options),
                truncated=options.truncated,
                damage=options.damage,
                max_damage=options.max_damage,
                restart=options.restart,
                ray=options.ray,
            )
    except OSError as error:
        error.add_note(kept(stem))
        raise
    except KeyboardInterrupt:
        say(f"\n{kept(stem)}")
        raise
    files = Files(stem)
    table, report = files.named(".csv"), files.named(".json")
    damaged = [shard for shard in read_json(report)["shards"] if shard["damage"]]
    lines = [*summary.lines(), *(f"damaged: {shard['path']}: {shard['damage']}" for shard in damaged)]
    output = out_of(options)
    output.write("\n".join([*lines, f"report: {report}, {table}"]) + "\n")
    found = {"summary": summary.as_dict(), "damaged": damaged, "report": {"json": str(report), "csv": str(table)}}
    return 1 if summary.bad or damaged else 0, found


def kept(stem: Path) -> str:
    """The message about the rows of an unfinished run."""
    if Files(stem).named(".csv.tmp").exists():
        return "The results so far are kept; run the same command to continue."
    return "Nothing was checked."
