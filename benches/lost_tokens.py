"""The share of tokens that `TokenLoader` delivers, drops and holds, by `seq_len` and mean document length, as a table.

    python benches/lost_tokens.py [--tokens 4000000]

Documents have lognormal lengths (sigma 1.2, as web text; "books" are all of the same length) from a fixed seed. A byte
is a token, so lengths are exact. The shares are those of the first batches that hold three quarters of the tokens, so
that what packers hold at the end counts little.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import forebay

MEANS = {"250": 250, "1000": 1000, "4000": 4000, "books of 100 000": 100_000}
SEQ_LENS = (256, 1024, 2048, 8192)


def lengths(mean: int, n_tokens: int, *, same: bool) -> np.ndarray:
    """Lengths of documents that sum up to about `n_tokens`."""
    n = max(n_tokens // mean, 1)
    if same:
        return np.full(n, mean)
    sigma = 1.2
    drawn = np.random.default_rng(0).lognormal(np.log(mean) - sigma**2 / 2, sigma, n)
    return np.maximum(drawn.astype(int), 1)


def shares(file: Path, seq_len: int, crop: str, n_tokens: int) -> tuple[float, float]:
    """The shares in rows and dropped, of all tokens that left the packer, in percent."""
    batch_size = 8
    with forebay.TokenLoader(
        file, lambda text: text.encode(), bos_id=0, val=[], seq_len=seq_len, batch_size=batch_size, crop=crop,
        infinite=False, n_workers=1, buffer_size=min(1000, max(n_tokens // seq_len // 8, 2)),
    ) as loader:  # fmt: skip
        for _ in loader:
            pass
        packing = loader.stats()["packing"]
    gone = packing["delivered"] + packing["dropped"]
    return 100 * packing["delivered"] / gone, 100 * packing["dropped"] / gone


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4_000_000)
    options = parser.parse_args()
    sys.stdout.write("| mean length | " + " | ".join(f"seq_len {n}" for n in SEQ_LENS) + " |\n|---|--:|--:|--:|--:|\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, mean in MEANS.items():
            file = Path(folder) / f"{mean}.parquet"
            texts = ["x" * (n - 1 or 1) for n in lengths(mean, options.tokens, same=mean > 10_000)]
            pq.write_table(pa.table({"text": texts}), file, row_group_size=1000)
            cells = [f"{shares(file, seq_len, 'drop', options.tokens)[1]:.0f} %" for seq_len in SEQ_LENS]
            sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
