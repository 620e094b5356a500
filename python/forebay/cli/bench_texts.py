"""`forebay bench` of texts: tokens per second, and what of them is wasted, by number of workers."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forebay.cli import texts
from forebay.cli.common import wrapped

__all__ = ["BOTH", "OPTIONS", "add", "head", "lines", "measured"]

OPTIONS = texts.PACKING
"""The options for texts of `forebay bench`."""
BOTH = ("n_workers", "seconds", "batch_size")
"""Those for texts and recordings."""
SEQ_LEN = 2048


def add(group: argparse._ArgumentGroup) -> None:
    """Adds the options."""
    texts.add_packing(group, SEQ_LEN)


def measured(options: argparse.Namespace, n_workers: int) -> dict[str, Any]:
    """The rows and the tokens per second, the shares of tokens dropped and of places padded, and the limit."""
    packing = texts.packing(options, SEQ_LEN)
    with texts.loaded(options, **packing, batch_size=options.batch_size, n_workers=n_workers) as loader:
        found = loader.headspace(options.seconds)
        counts = loader.stats()["packing"]
    # Documents that wait for a row are neither delivered nor dropped.
    read = counts["delivered"] + counts["dropped"] + counts["tokens"]
    padding = counts["padded"] / (counts["delivered"] + counts["padded"])
    # Of pairs, an example is two rows.
    rows_per_s = found["examples_per_s"] * (2 if options.kind == "pairs" else 1)
    return {
        "n_workers": n_workers, "examples_per_s": found["examples_per_s"],
        "tokens_per_s": rows_per_s * packing["seq_len"] * (1 - padding),
        "dropped": counts["dropped"] / read, "padding": padding,
        "verdict": found["verdict"], "filled": found["filled"],
    }  # fmt: skip


def head(options: argparse.Namespace) -> str:
    """The rows, as words."""
    packing = texts.packing(options, SEQ_LEN)
    on_long = f", on_long {packing['on_long']}" if "on_long" in packing else ""
    return f"rows of {packing['seq_len']} tokens, fit {packing.get('fit', 'drop')}{on_long}"


def lines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The measurements for the terminal."""
    yield f"  {'n_workers':>9}  {'Mtokens/s':>9}  {'dropped':>7}  {'padding':>7}  limit"
    for run in runs:
        figures = f"{run['tokens_per_s'] / 1e6:9.3f}  {run['dropped']:7.1%}  {run['padding']:7.1%}"
        yield wrapped(run["verdict"], f"  {run['n_workers']:>9}  {figures}  ")
