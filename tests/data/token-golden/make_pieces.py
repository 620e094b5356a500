"""Writes pieces.json: the pieces of documents that make up each row of bestfit_B4_T512.npz.

    python make_pieces.py SHARDS RANKS

SHARDS is the folder of the four shards of classic books, RANKS the file gpt2.tiktoken (see SOURCE.txt). A plain
implementation of the algorithm packs the rows again from ids of tiktoken's gpt2 and compares them with the golden rows
token by token. pieces.json has the lengths of the documents (BOS included) in the slices in which they arrive, and for
each row [document, tokens] of each piece. crates/text/tests/pack.rs reads it to test packing without a tokenizer. Made
with tiktoken 0.14.0, pyarrow 26.0.1.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tiktoken

HERE = Path(__file__).parent
BATCH, T = 4, 512
BUFFER, UNIT = 1000, 128


def units(files: list[Path], rank: int, world_size: int, resume: dict[str, int] | None) -> Iterator[list[str]]:
    """Slices of up to 128 texts of the row groups of one rank; the last slice of a row group is shorter."""
    first_file = 0 if resume is None else resume["pq_idx"]
    while True:
        for index in range(first_file, len(files)):
            file = pq.ParquetFile(files[index])
            group = rank
            if resume is not None:
                # Resumes, once, at the row group after the one that was being read when the state was saved.
                group = (resume["rg_idx"] // world_size + 1) * world_size + rank
                resume = None
            for row_group in range(group, file.num_row_groups, world_size):
                texts = file.read_row_group(row_group, columns=["text"])["text"].to_pylist()
                yield from (texts[at : at + UNIT] for at in range(0, len(texts), UNIT))
        first_file = 0


def rows(documents: Iterator[list[list[int]]], n: int) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Rows of T + 1 tokens and their pieces, by linear scans over a list."""
    buffer: list[tuple[int, list[int]]] = []
    arrived = 0
    for _ in range(n):
        row, pieces = [], []
        while len(row) < T + 1:
            while len(buffer) < BUFFER:
                for ids in next(documents):
                    buffer.append((arrived, ids))
                    arrived += 1
            room = T + 1 - len(row)
            best = max(range(len(buffer)), key=lambda at: len(buffer[at][1]) if len(buffer[at][1]) <= room else 0)
            if len(buffer[best][1]) > room:
                best = min(range(len(buffer)), key=lambda at: len(buffer[at][1]))
            document, ids = buffer.pop(best)
            row += ids[:room]
            pieces.append((document, len(ids[:room])))
        yield row, pieces


def main() -> None:
    files = sorted(Path(sys.argv[1]).glob("*.parquet"))[:-1]  # the last is validation
    tokenizer = gpt2(Path(sys.argv[2]))
    bos = tokenizer.encode_single_token("<|endoftext|>")
    golden = np.load(HERE / "bestfit_B4_T512.npz")
    out = {}
    for name, how in json.loads((HERE / "bestfit_B4_T512.json").read_text()).items():
        slices: list[list[int]] = []

        def documents(how=how, slices=slices) -> Iterator[list[list[int]]]:
            for texts in units(files, how["rank"], how["world_size"], how["resume"]):
                slice_of_ids = [[bos, *ids] for ids in tokenizer.encode_ordinary_batch(texts, num_threads=2)]
                slices.append([len(ids) for ids in slice_of_ids])
                yield slice_of_ids

        expected = golden[name].reshape(-1, T + 1)
        pieces = []
        for (row, of_row), golden_row in zip(rows(documents(), len(expected)), expected, strict=True):
            assert row == golden_row.tolist(), f"{name}, row {len(pieces)}"
            pieces.append(of_row)
        out[name] = {"slices": slices, "rows": pieces}
    (HERE / "pieces.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


def gpt2(ranks: Path) -> tiktoken.Encoding:
    """tiktoken's gpt2 encoding from a file of ranks, without the network."""
    from tiktoken.load import load_tiktoken_bpe

    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    return tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=load_tiktoken_bpe(str(ranks)), special_tokens={"<|endoftext|>": 50256}
    )


if __name__ == "__main__":
    main()
