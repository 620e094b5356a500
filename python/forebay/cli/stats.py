"""`forebay stats`: mean and standard deviation of features over a sample of clips, durations, and rows by class.

Sums are kept in float64, as differences from the first batch's mean, so that no digits are lost. After
Ctrl-C the figures of the clips so far are printed.
"""

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._core import ConfigError, Loader
from forebay.cli import inspect
from forebay.cli.common import (
    add_json,
    add_reading,
    add_source,
    counted,
    histogram,
    out_of,
    progress_bar,
    reading,
    say,
    subcommand,
    using,
)
from forebay.cli.show import label_column
from forebay.features import Waveform, preset, presets
from forebay.sampling import Balanced

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

BATCH = 32
"""Clips per batch."""
SHOWN_CLASSES = 20
"""The most classes on the terminal."""
QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
"""The figures of the durations."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "stats",
        "print mean and deviation of features, durations and classes",
        "Computes mean and standard deviation of the features of a random sample of clips, for a model's "
        "normalization; the durations of these recordings; and the rows of each class. Features are taken before the "
        "normalization of a preset. After Ctrl-C the figures of the clips so far are printed.",
        "  forebay stats shards/\n"
        "  forebay stats shards/ --features ast --clip-seconds 10.24 -n 5000\n"
        "  forebay stats shards/ --features birdset --json - > stats.json",
        "clips, bad, mean, std, mean_valid, std_valid (without padding), min, max, durations (seconds), classes "
        "(column, classes, rows)",
    )
    add_source(parser)
    parser.add_argument("-n", "--n-samples", type=int, default=1000, metavar="N", help="clips (default: %(default)s)")
    parser.add_argument(
        "--features", choices=sorted(presets()), metavar="NAME",
        help=f"a preset: {', '.join(sorted(presets()))} (default: the features of a Loader)",
    )  # fmt: skip
    parser.add_argument(
        "--clip-seconds", type=float, default=5.0, metavar="S", help="length of the clips in s (default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of rows and crops (default: 0)")
    parser.add_argument("--label-column", metavar="NAME", help="the column of classes, if it is not detected")
    add_reading(parser, "SOURCE")
    add_json(parser)
    parser.set_defaults(run=run, parameters={"source": "SOURCE", "arrow_files": "SOURCE", "column": "--label-column"})


@dataclass
class Moments:
    """Sums over the values of the clips, about `pivot`."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    pivot: float | None = None

    def add(self, values: NDArray[Any]) -> None:
        """Adds values of any shape."""
        if not values.size:
            return
        wide = values.astype(np.float64)
        self.pivot = float(wide.mean()) if self.pivot is None else self.pivot
        wide -= self.pivot
        self.n += wide.size
        self.total += float(wide.sum())
        self.squares += float(np.square(wide).sum())

    @property
    def mean(self) -> float | None:
        """The mean; none without values."""
        return None if self.pivot is None else self.pivot + self.total / self.n

    @property
    def std(self) -> float | None:
        """The standard deviation of the population; none without values."""
        if self.pivot is None:
            return None
        return math.sqrt(max(self.squares / self.n - (self.total / self.n) ** 2, 0.0))


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Prints the figures; exit code 1 if no clip could be read."""
    if options.n_samples < 1:
        raise ConfigError(f"--n-samples is {options.n_samples}, must be at least 1")
    given = reading(options)
    with using("SOURCE", options), inspect.opened(options.files, given) as dataset:
        column = label_column(dataset, options.label_column)
        n = min(options.n_samples, len(dataset))
        if not n:
            raise ConfigError("SOURCE has no rows, must have at least one")
        found, rows, is_interrupted = measured(options, n, given)
        seconds = [info["seconds"] for row in rows if (info := dataset.info(row))]
    quantiles = np.quantile(seconds, list(QUANTILES.values())).round(3).tolist() if seconds else []
    found["durations"] = dict(zip(QUANTILES, quantiles, strict=False))
    if column is not None:
        counts = inspect.balanced(options.files, Balanced(column), given)
        found["classes"] = {name: counts[name] for name in ("column", "classes", "rows")}
    out_of(options).write("\n".join(lines(found)) + "\n")
    if is_interrupted:
        say(f"{options.parser.prog}: interrupted; these are the figures of the clips so far\n")
    return 130 if is_interrupted else int(not found["clips"]), found


def measured(options: argparse.Namespace, n: int, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[int], bool]:
    """The figures of the features, the rows of the clips, and whether Ctrl-C ended the work."""
    features: Any = None if options.features is None else preset(options.features)
    if getattr(features, "normalization", None) is not None:
        features = replace(features, normalization=None)
    everything, valid = Moments(), Moments()
    low, high = math.inf, -math.inf
    rows: list[int] = []
    is_interrupted = False
    parameters: dict[str, Any] = {
        **given, "features": features, "clip_seconds": options.clip_seconds, "seed": options.seed, "n_samples": n,
        "infinite": False, "shuffle_min_size": 0, "label_column": "", "batch_size": BATCH,
    }  # fmt: skip
    unit = "valid_samples" if isinstance(features, Waveform) else "valid_frames"
    with progress_bar(n, "clips") as progress, Loader(options.files, outputs=[unit], **parameters) as loader:
        name, *_ = (one["name"] for one in loader.fields)
        is_time_first = getattr(features, "layout", "mel") == "time"
        try:
            for batch in loader:
                values = np.asarray(batch[name])
                values = values.swapaxes(1, 2) if is_time_first and values.ndim == 3 else values
                everything.add(values)
                for one, length in zip(values, np.asarray(batch[unit]).tolist(), strict=True):
                    valid.add(one[..., :length])
                low, high = min(low, float(values.min())), max(high, float(values.max()))
                rows += batch["index"].tolist()
                progress.add(done=len(values))
        except KeyboardInterrupt:
            is_interrupted = True
        n_bad = len(loader.errors())
    found: dict[str, Any] = {
        "clips": len(rows), "bad": n_bad, "mean": everything.mean, "std": everything.std,
        "mean_valid": valid.mean, "std_valid": valid.std,
        "min": low if rows else None, "max": high if rows else None,
    }  # fmt: skip
    return found, rows, is_interrupted


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The figures for the terminal."""
    yield f"{counted(found['clips'], 'clip')}, {found['bad']} bad"
    if found["clips"]:
        yield f"features  mean {found['mean']:.4f}, std {found['std']:.4f}, {found['min']:.4f} to {found['max']:.4f}"
        if found["mean_valid"] is not None:
            yield f"          mean {found['mean_valid']:.4f}, std {found['std_valid']:.4f} without padding"
        yield "seconds   " + ", ".join(f"{name} {value:.2f}" for name, value in found["durations"].items())
    if "classes" in found:
        told = found["classes"]
        pairs = sorted(zip(told["classes"], told["rows"], strict=True), key=lambda pair: -pair[1])
        names = {("(none)" if name is None else str(name)): n for name, n in pairs[:SHOWN_CLASSES]}
        yield from histogram(f"rows of each class of {told['column']}", names)
        if len(pairs) > SHOWN_CLASSES:
            yield f"  and {len(pairs) - SHOWN_CLASSES} more"
