"""Writes shard_00000.parquet to shard_00003.parquet: small shards with the same packed rows as bestfit_B4_T512.npz.

    python make_shards.py SHARDS RANKS

SHARDS and RANKS are those of make_pieces.py, which runs first. Documents with tokens in a golden row keep their text.
For packing only the length of the others matters, so their text is replaced by " a", one token of gpt2, repeated to the
same number of tokens. Files, row groups and the order of documents are unchanged; the validation shard keeps ten
documents. Made with tiktoken 0.14.0, pyarrow 26.0.1.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from make_pieces import HERE, gpt2

Place = tuple[int, int, int]


def places(groups: list[list[int]], rank: int, world_size: int, resume: dict[str, int] | None) -> Iterator[Place]:
    """File, row group and row of each document of one rank, in order of arrival; `groups` has the rows of each group."""
    first = (0, rank)
    if resume is not None:
        first = (resume["pq_idx"], (resume["rg_idx"] // world_size + 1) * world_size + rank)
    for file, sizes in itertools.cycle(enumerate(groups)):
        for group in range(rank, len(sizes), world_size):
            if first is None or (file, group) >= first:
                first = None
                yield from ((file, group, row) for row in range(sizes[group]))


def main() -> None:
    paths = sorted(Path(sys.argv[1]).glob("*.parquet"))
    tokenizer = gpt2(Path(sys.argv[2]))
    files = [pq.ParquetFile(path) for path in paths]
    groups = [[file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] for file in files[:-1]]
    cases = json.loads((HERE / "bestfit_B4_T512.json").read_text())
    kept: set[Place] = set()
    for name, pieces in json.loads((HERE / "pieces.json").read_text()).items():
        of = {document for row in pieces["rows"] for document, _ in row}
        case = cases[name]
        arrived = enumerate(places(groups, case["rank"], case["world_size"], case["resume"]))
        kept.update(place for document, place in itertools.islice(arrived, max(of) + 1) if document in of)
    schema = pa.schema([("text", pa.string())])
    for number, (path, file) in enumerate(zip(paths, files, strict=True)):
        is_val = number == len(files) - 1
        options = {"compression": "zstd", "compression_level": 19, "use_dictionary": False}
        with pq.ParquetWriter(HERE / path.name, schema, **options) as writer:
            for group in range(1 if is_val else file.num_row_groups):
                texts = file.read_row_group(group, columns=["text"])["text"].to_pylist()[: 10 if is_val else None]
                ids = tokenizer.encode_ordinary_batch(texts, num_threads=2)
                out = [
                    text if is_val or (number, group, row) in kept else " a" * len(ids[row])
                    for row, text in enumerate(texts)
                ]
                assert [len(ids) for ids in tokenizer.encode_ordinary_batch(out, num_threads=2)] == list(map(len, ids))
                writer.write_table(pa.table({"text": out}, schema=schema), row_group_size=len(out))


if __name__ == "__main__":
    main()
