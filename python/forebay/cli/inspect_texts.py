"""`forebay inspect` of texts: lengths in tokens, and what each way of packing wastes.

A sample is read once, by a loader that splits documents into rows and names the parts. Rows of other lengths are
then packed by loaders of a temporary file of as many zeros, since packing depends on lengths alone.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay._core import ConfigError, TokenLoader
from forebay.cli import texts
from forebay.cli.common import counted, out_of, progress_bar, wrapped
from forebay.text import Ids

__all__ = ["OPTIONS", "add", "run"]

OPTIONS = ("documents", "seq_len")
"""The options for texts of `forebay inspect`."""
DOCUMENTS = 10_000
MOST_DOCUMENTS = 1_000_000
MOST_TOKENS = 20_000_000
"""Tokens after which the sample ends, for files of books."""
SEQ_LENS = (1024, 2048, 4096)
MOST_SEQ_LENS = 16
FITS = (("drop", None), ("carry", None), ("pad", "skip"), ("pad", "cut"), ("pad", "split"))
"""`fit` and `on_long` of the table."""
ROW = 1024
"""Inputs of a row in which the sample is read, one document or part of one in each; a part has one token more."""
PAD = 2**31 - 1
"""The id after its end, which no tokenizer has."""
SLICE = 16
"""Documents that are read together, and all packed before the next ones: none is drawn for its length."""
BATCHES = 32
"""Batches of a pass over the sample, fewer than a loader makes before it logs figures of its own."""
MOST_PLACES = 1 << 25
"""The most tokens of a batch of such a pass."""


@dataclass(frozen=True)
class Sample:
    """The lengths of some documents, in tokens with BOS and EOS."""

    lengths: NDArray[np.int64]
    is_whole: bool
    n_bad: int


def add(group: argparse._ArgumentGroup) -> None:
    """Adds the options."""
    group.add_argument(
        "--documents", type=int, metavar="N",
        help=f"the most documents read, drawn from all of SOURCE (default: {DOCUMENTS}); at most about "
        f"{MOST_TOKENS // 1_000_000} million tokens of them",
    )  # fmt: skip
    group.add_argument(
        "--seq-len", type=lengths, metavar="N,N,...",
        help=f"tokens of a row, for which waste is told (default: {','.join(map(str, SEQ_LENS))})",
    )  # fmt: skip


def lengths(text: str) -> list[int]:
    """Lengths of rows, separated by commas."""
    found = [int(one) if one.strip().isdecimal() else 0 for one in text.split(",")]
    if not all(1 <= one <= MOST_PLACES // 2 for one in found) or len(found) > MOST_SEQ_LENS:
        raise argparse.ArgumentTypeError(
            f"{text} must be at most {MOST_SEQ_LENS} numbers of 1 to {MOST_PLACES // 2}, separated by commas"
        )
    return sorted(set(found))


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Shows files, lengths and waste."""
    if options.kind == "pairs":
        raise ConfigError(
            "--kind pairs is not for inspect: a pair has two rows of its own, so nothing is packed; forebay show draws "
            "the rows of pairs, and stats() of a TokenLoader counts those left out"
        )
    most = DOCUMENTS if options.documents is None else options.documents
    if not 1 <= most <= MOST_DOCUMENTS:
        raise ConfigError(f"--documents is {most}, must be 1 to {MOST_DOCUMENTS}")
    out = out_of(options)
    loader = texts.loaded(
        options, seq_len=ROW, batch_size=SLICE, buffer_size=1, tokenizer_batch_size=SLICE, shuffle_min_size=1000,
        seed=0, infinite=False, fit="pad", on_long="split", pad_id=PAD, pad_multiple=ROW, extras=["documents"],
        n_workers="auto",
    )  # fmt: skip
    with loader:
        shards, n_rows = loader.shards, loader.num_documents
        told: dict[str, Any] = {"files": shards, "rows": n_rows}
        for line in texts.described(shards):
            out.write(f"{line}\n")
        sample = sampled(loader, most, is_masked=options.kind == "chat")
    told |= {
        "sample": {
            "documents": len(sample.lengths), "tokens": int(sample.lengths.sum()), "is_whole": sample.is_whole,
            "bad": sample.n_bad,
        },
        "lengths": summary(sample.lengths),
    }  # fmt: skip
    for line in sample_lines(told):
        out.write(f"{line}\n")
    told["packing"] = packed(sample.lengths, options.seq_len or SEQ_LENS)
    for line in table(told["packing"]):
        out.write(f"{line}\n")
    return 0, told


def sampled(loader: TokenLoader, most: int, *, is_masked: bool) -> Sample:
    """Up to `most` documents in the loader's order; all of them in the order of the files."""
    found: list[NDArray[np.int64]] = []
    n_begun = n_tokens = n_whole = 0
    is_all = True
    with progress_bar(min(most, loader.num_documents), "documents") as progress:
        for batch in loader:
            found.append(parts(batch, is_masked=is_masked))
            begun = int((found[-1][:, 4] == 0).sum())
            n_begun, n_tokens = n_begun + begun, n_tokens + int(found[-1][:, 3].sum())
            n_whole += int((found[-1][:, 5] == 0).sum())
            progress.add(done=min(begun, progress.total - progress.done))
            # One that fills a row may go on in the next.
            if (n_begun > most or n_tokens >= MOST_TOKENS) and n_whole:
                is_all = False
                break
        n_bad = len(loader.errors())
    every = np.concatenate(found)
    places, first, which = np.unique(every[:, :3], axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    # A BOS begins each part, which is a token of the document only once.
    totals = np.bincount(which, every[:, 3] - (every[:, 4] != 0), len(places)).astype(np.int64)
    if is_all:
        return Sample(totals, True, n_bad)
    last = np.zeros(len(places), np.int64)
    last[which] = np.arange(len(every))
    is_known = every[last, 5] == 0
    order = np.argsort(first, kind="stable")
    return Sample(totals[order][is_known[order]][:most], False, n_bad)


def parts(batch: Mapping[str, NDArray[Any]], *, is_masked: bool) -> NDArray[np.int64]:
    """Shard, row group, row, tokens, whether it continues a document, and whether it fills its row, of each part."""
    documents, padding = batch["documents"].astype(np.int64), batch["inputs"] == PAD
    n_inputs = ROW - np.cumprod(padding[:, ::-1], axis=1).sum(axis=1)
    # The last target is no input. Of a conversation of ROW or ROW + 1 tokens whose end is not trained on it is -100
    # in either case; that of ROW counts one token too many.
    fills = (n_inputs == ROW) & (is_masked | (batch["targets"][:, -1] >= 0))
    return np.stack([*documents[:, 2:5].T, n_inputs + fills, documents[:, 5] > 1, fills], axis=1)


def summary(lengths: NDArray[np.int64]) -> dict[str, Any]:
    """The figures of the lengths, each but the mean the length of a document."""
    at = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    values = np.quantile(lengths, list(at.values()), method="inverted_cdf").tolist()
    return {**dict(zip(at, map(int, values), strict=True)), "mean": round(float(lengths.mean()), 1)}


def packed(lengths: NDArray[np.int64], seq_lens: Sequence[int]) -> list[dict[str, Any]]:
    """What loaders of these documents deliver, drop and pad, for each length of rows and each fit."""
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        file = Path(folder) / "sample.bin"
        write_zeros(file, lengths)
        return [one(file, lengths, seq_len, fit, on_long) for seq_len in seq_lens for fit, on_long in FITS]


def one(file: Path, lengths: NDArray[np.int64], seq_len: int, fit: str, on_long: str | None) -> dict[str, Any]:
    """The figures of one way of packing, of a whole pass."""
    head = {"seq_len": seq_len, "fit": fit, "on_long": on_long}
    total, capacity = int(lengths.sum()), seq_len + 1
    # A pass without a batch is an error: there is no row if no document fits one, or all together fill none.
    none_fits = on_long == "skip" and int(lengths.min()) > capacity
    if none_fits or (fit != "pad" and total < capacity):
        return {**head, "rows": 0, "delivered": 0, "dropped": 0, "padded": 0, "tokens": total}
    most_rows = 2 * total // capacity + (len(lengths) if fit == "pad" else 0)
    batch_size = max(1, min(most_rows // BATCHES, MOST_PLACES // capacity))
    more: dict[str, Any] = {} if on_long is None else {"on_long": on_long}
    loader = TokenLoader(
        Ids(str(file)), bos_id=0, val=[], infinite=False, seq_len=seq_len, batch_size=batch_size, dtype="int32",
        fit=fit, n_workers=1, extras=["documents"], **more,
    )  # fmt: skip
    n_rows = n_added = 0
    with loader:
        for batch in loader:
            n_rows += len(batch["inputs"])
            # A BOS before the rest of a document is no token of it.
            n_added += int((batch["documents"][:, 5] > 1).sum())
        packing = loader.stats()["packing"]
    delivered = packing["delivered"] - n_added
    counts = {"delivered": delivered, "dropped": total - delivered, "padded": packing["padded"]}
    return {**head, "rows": n_rows, **counts, "tokens": total}


def write_zeros(file: Path, lengths: NDArray[np.int64]) -> None:
    """Writes documents of zeros as Megatron-LM does: a file of ids, without blocks on the disk, and its index.

    Each begins with the BOS 0, so that a loader adds none.
    """
    with file.open("wb") as ids:
        ids.truncate(2 * int(lengths.sum()))
    n = len(lengths)
    head = b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + b"\x08" + np.array([n, n + 1], "<u8").tobytes()
    starts = 2 * (np.cumsum(lengths) - lengths)
    index = (lengths.astype("<i4"), starts.astype("<i8"), np.arange(n + 1, dtype="<i8"))
    file.with_suffix(".idx").write_bytes(head + b"".join(array.tobytes() for array in index))


def sample_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The sample and its lengths for the terminal."""
    sample, lengths = told["sample"], told["lengths"]
    documents = counted(sample["documents"], "document")
    if sample["bad"]:
        yield f"{counted(sample['bad'], 'bad row')} left out"
    if sample["is_whole"]:
        yield f"{documents}, {sample['tokens']} tokens with BOS and EOS"
    else:
        yield wrapped(
            f"a sample of {documents}, {sample['tokens']} tokens with BOS and EOS; all {told['rows']} rows have about "
            f"{about(lengths['mean'] * told['rows'])} tokens; all figures below are of the sample"
        )
    yield (
        f"tokens of a document: median {lengths['median']}, 95 % up to {lengths['p95']}, longest {lengths['max']}, "
        f"mean {lengths['mean']:g}"
    )


def about(n: float) -> str:
    """A number of two digits, with its unit."""
    for unit, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if n >= unit:
            return f"{float(f'{n / unit:.2g}'):g} {name}"
    return f"{n:.0f}"


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The waste of each way of packing, for the terminal."""
    yield "waste of rows: dropped, of the tokens; padding, of the places"
    yield f"  {'seq_len':>8}  {'fit':<5}  {'on_long':<7}  {'rows':>9}  {'dropped':>8}  {'padding':>8}"
    for row in rows:
        head = f"  {row['seq_len']:>8}  {row['fit']:<5}  {row['on_long'] or '':<7}  {row['rows']:>9}"
        if not row["rows"]:
            yield f"{head}  the documents fill no row"
            continue
        padding = row["padded"] / (row["rows"] * (row["seq_len"] + 1))
        yield f"{head}  {row['dropped'] / row['tokens']:8.1%}  {padding:8.1%}"
