"""`forebay bench`: how many examples per second this machine makes of a source, by number of workers.

Each number of workers is measured with a loop that does nothing, by `Loader.headspace`. The figure is an upper bound
for a training loop. The smallest number within 5 % of the fastest is suggested: more threads would only take cores
and memory from the training.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay._core import ConfigError, Loader, _cores
from forebay._progress import Progress
from forebay.cli.common import add_json, add_reading, add_source, counted, out_of, reading, subcommand, using
from forebay.features import presets

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CLOSE = 0.95
"""The share of the highest speed from which fewer workers are suggested."""
MOST_SECONDS = 600.0
"""The longest measurement of one number of workers."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "bench",
        "measure a source on this machine, and suggest n_workers",
        "Measures examples per second of a source on this machine, for several numbers of workers and a loop that "
        "does nothing; prints what limits each, and suggests n_workers. After Ctrl-C the numbers so far are printed.",
        "  forebay bench shards/\n"
        "  forebay bench shards/ --features birdset --n-workers 2,4,8 --seconds 10\n"
        "  forebay bench 'shards/*.parquet' --json - > bench.json",
        "cores, runs (n_workers, examples_per_s, verdict, filled), suggested (n_workers)",
    )
    add_source(parser)
    parser.add_argument(
        "-w", "--n-workers", type=numbers, metavar="N,N,...", help="numbers of workers (default: 1, 2, 4, ... cores)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="of each measurement (default: %(default)g)"
    )
    parser.add_argument("--features", choices=sorted(presets()), help="a preset (default: the features of a Loader)")
    parser.add_argument(
        "--clip-seconds", type=float, default=5.0, metavar="S", help="length of the clips in s (default: %(default)g)"
    )
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="examples (default: %(default)s)")
    parser.add_argument(
        "--order", choices=("sequential", "window", "global", "era"), default="window", help="(default: %(default)s)"
    )
    add_reading(parser, "SOURCE")
    add_json(parser)
    parser.set_defaults(run=run, parameters={"source": "SOURCE", "arrow_files": "SOURCE"})


def numbers(text: str) -> list[int]:
    """Numbers of workers, separated by commas."""
    found = [int(one) if one.strip().isdigit() else 0 for one in text.split(",")]
    if not all(1 <= one <= 1024 for one in found):
        raise argparse.ArgumentTypeError(f"{text} must be numbers of 1 to 1024, separated by commas")
    return sorted(set(found))


def steps(cores: int) -> list[int]:
    """1, 2, 4, ... and the number of cores."""
    return sorted({*(1 << i for i in range(cores.bit_length()) if 1 << i <= cores), cores})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Measures, prints a table and a suggestion."""
    if not 0.1 <= options.seconds <= MOST_SECONDS:
        raise ConfigError(f"--seconds is {options.seconds:g}, must be 0.1 to {MOST_SECONDS:g}")
    given = {
        **reading(options), "features": options.features, "clip_seconds": options.clip_seconds,
        "batch_size": options.batch_size, "order": options.order, "label_column": "",
    }  # fmt: skip
    wanted = options.n_workers or steps(_cores())
    progress = Progress(len(wanted), "measurements", sys.stderr)
    runs: list[dict[str, Any]] = []
    is_interrupted = False
    try:
        for n_workers in wanted:
            with using("SOURCE", options), Loader(options.files, n_workers=n_workers, **given) as loader:
                found = loader.headspace(options.seconds)
            names = ("examples_per_s", "verdict", "filled")
            runs.append({"n_workers": n_workers, **{name: found[name] for name in names}})  # type: ignore[literal-required]
            progress.add(done=1)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        progress.close()
    suggested = {"n_workers": best(runs)} if runs else {}
    out_of(options).write("\n".join(lines(runs, suggested, _cores())) + "\n")
    if is_interrupted:
        sys.stderr.write(f"{options.parser.prog}: interrupted; these are the measurements so far\n")
    return 130 if is_interrupted else 0, {"cores": _cores(), "runs": runs, "suggested": suggested}


def best(runs: Sequence[Mapping[str, Any]]) -> int:
    """The smallest number of workers that is nearly as fast as the fastest."""
    most = max(run["examples_per_s"] for run in runs)
    n_workers: int = min(run["n_workers"] for run in runs if run["examples_per_s"] >= CLOSE * most)
    return n_workers


def lines(runs: Sequence[Mapping[str, Any]], suggested: Mapping[str, int], cores: int) -> Iterator[str]:
    """The measurements for the terminal."""
    yield f"{counted(cores, 'core')}, a loop that does nothing:"
    yield f"  {'n_workers':>9}  {'examples/s':>10}  limit"
    for run in runs:
        speed = run["examples_per_s"]
        yield f"  {run['n_workers']:>9}  {speed if math.isfinite(speed) else 0:>10.1f}  {run['verdict']}"
    if suggested:
        yield f"suggested: n_workers={suggested['n_workers']}"
