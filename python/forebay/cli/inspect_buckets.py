"""`forebay inspect --buckets`: the batches that whole recordings of different lengths make, before a run."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from forebay._core import ConfigError, Loader
from forebay.batching import Buckets
from forebay.cli.common import counted
from forebay.crops import Whole

OPTIONS = ("num_buckets", "min_seconds", "max_seconds", "duration")
"""The options that belong to `--buckets`: parameters of `Buckets` and `Whole`."""

PARAMETERS = {"max_duration": "--buckets", **{name: f"--{name.replace('_', '-')}" for name in OPTIONS}}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--buckets",
        type=float,
        metavar="S",
        help="plan batches of whole recordings, of at most S seconds with padding: batching=Buckets(S)",
    )
    parser.add_argument(
        "--num-buckets", type=int, metavar="N", help="of --buckets: the number of buckets (default: 30)"
    )
    parser.add_argument(
        "--min-seconds", type=float, metavar="S", help="of --buckets: leave out shorter recordings (default: 0)"
    )
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="of --buckets: leave out longer recordings (default: 30)"
    )
    parser.add_argument(
        "--duration",
        metavar="COLUMN",
        help="of --buckets: the column of the recordings' seconds (default: from their headers)",
    )


def check(options: argparse.Namespace) -> None:
    """Raises for options without `--buckets`."""
    given = [name for name in OPTIONS if getattr(options, name) is not None]
    if given and options.buckets is None:
        raise ConfigError(f"--{given[0].replace('_', '-')} needs --buckets S")


def planned(options: argparse.Namespace, given: Mapping[str, Any]) -> dict[str, Any]:
    """The buckets, and the padding of an epoch."""
    limits = {name: value for name in OPTIONS[1:] if (value := getattr(options, name)) is not None}
    number = {} if options.num_buckets is None else {"num_buckets": options.num_buckets}
    parameters: dict[str, Any] = {**given, "label_column": "", "infinite": False, "order": "global"}
    batching = Buckets(options.buckets, **number)
    with Loader(options.files, crop=Whole(**limits), batching=batching, **parameters) as loader:
        return {
            "batching": batching.to_dict(),
            "rows": loader.num_records,
            "left_out": loader.left_out,
            "buckets": loader.buckets,
            "padding": loader.padding,
        }


def table(told: Mapping[str, Any]) -> Iterator[str]:
    """The batches for the terminal."""
    padding, left_out, buckets = told["padding"], told["left_out"], told["buckets"]
    yield (
        f"batches of at most {told['batching']['max_duration']:g} s, of {counted(told['rows'], 'row')}: "
        f"{padding['batches']} an epoch, {padding['share']:.1%} padding"
    )
    yield f"  ({padding['random']:.1%} in batches of as many rows at random)"
    if n := sum(left_out.values()):
        yield f"{counted(n, 'row')} left out: {left_out['too_short']} too short, {left_out['too_long']} too long"
    yield f"  {'seconds':>9}  {'rows':>10}  {'of a batch':>10}  {'batches':>8}  {'padding':>8}"
    for bucket in buckets:
        yield (
            f"  {bucket['max_seconds']:9.3f}  {bucket['rows']:10}  {bucket['batch_size']:10}  {bucket['batches']:8}  "
            f"{bucket['padding']:8.1%}"
        )
