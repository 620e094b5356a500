"""Makes Parquet shards of web-like documents from any text, for benches/tokens_reference.py.

    python benches/tokens_corpus.py OUT SOURCE... [--tokens 30e6] [--shards 4]

SOURCE are text files, Parquet files with a column `text`, or folders of them. The text is joined and cut again into
documents whose lengths follow FineWeb-Edu's: log-normal, median 556 and mean 980 tokens of GPT-2, which are about 4.15
characters each in English books. If the text ends before `--tokens` are reached, it is cut once more at other places.
Row groups of 1024, zstd level 3.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MEDIAN, MEAN = 556, 980
SIGMA = math.sqrt(2 * math.log(MEAN / MEDIAN))
CHARS_PER_TOKEN = 4.15
ROW_GROUP = 1024


def text_of(sources: list[Path]) -> str:
    parts = []
    for source in sources:
        files = sorted(file for file in source.rglob("*") if file.is_file()) if source.is_dir() else [source]
        for file in files:
            if file.suffix == ".parquet":
                parts += pq.read_table(file, columns=["text"])["text"].to_pylist()
            elif file.suffix in {".txt", ".md"}:
                parts.append(file.read_text(encoding="utf-8", errors="replace"))
    return "\n\n".join(parts)


def documents(text: str, n_tokens: float) -> Iterator[str]:
    """Pieces that begin and end between words."""
    random = np.random.default_rng(0)
    at = made = 0
    while made < n_tokens * CHARS_PER_TOKEN:
        length = max(1, int(random.lognormal(math.log(MEDIAN), SIGMA) * CHARS_PER_TOKEN))
        end = text.find(" ", at + length)
        if end < 0:
            at = int(random.integers(0, min(100_000, len(text))))
            continue
        yield text[at:end]
        made += end - at
        at = end + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--tokens", type=float, default=30e6, help="about so many in all")
    parser.add_argument("--shards", type=int, default=4, help="the last one is validation")
    args = parser.parse_args()

    texts = list(documents(text_of(args.sources), args.tokens))
    args.out.mkdir(parents=True, exist_ok=True)
    for shard in range(args.shards):
        table = pa.table({"text": texts[shard * len(texts) // args.shards : (shard + 1) * len(texts) // args.shards]})
        path = args.out / f"shard_{shard:05}.parquet"
        pq.write_table(table, path, row_group_size=ROW_GROUP, compression="zstd", compression_level=3)
        print(f"{path}: {table.num_rows} documents, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
