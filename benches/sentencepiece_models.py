"""Lines per second of SentencePiece models on one thread, here and in the library `sentencepiece`, as a table.

    python benches/sentencepiece_models.py TEXT... [--vocab 8000] [--turns 5]

TEXT are files of lines of text, such as transcripts. A unigram and a BPE model, each with and without byte fallback,
are trained on the first 20 000 lines. Each turn encodes all lines by both, one call for each line and, here, one for
all lines; the table has the median turn. All ids are compared.
"""

import argparse
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece

from forebay.tokens import Tokenizer

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram, byte fallback": {"model_type": "unigram", "byte_fallback": True},
    "bpe": {"model_type": "bpe"},
    "bpe, byte fallback": {"model_type": "bpe", "byte_fallback": True},
}


def seconds(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", type=Path)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    lines = [line for path in options.text for line in path.read_text(errors="replace").splitlines() if line.strip()]
    n_bytes = sum(len(line.encode()) for line in lines)
    sys.stdout.write(f"{len(lines)} lines of {n_bytes / len(lines):.0f} bytes on average\n\n")
    sys.stdout.write("| model | forebay, lines/s | `encode_batch`, lines/s | sentencepiece, lines/s | ratio |\n")
    sys.stdout.write("|---|---:|---:|---:|---:|\n")
    for name, given in MODELS.items():
        made = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines[:20_000]), model_writer=made, vocab_size=options.vocab, minloglevel=2, **given
        )
        reference = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "any.model"
            path.write_bytes(made.getvalue())
            ours = Tokenizer(path)
        for line, ids in zip(lines, ours.encode_batch(lines), strict=True):
            assert ids.tolist() == reference.encode(line), line
        turns = [
            (
                seconds(lambda: [ours.encode(line) for line in lines]),  # noqa: B023
                seconds(lambda: ours.encode_batch(lines)),  # noqa: B023
                seconds(lambda: [reference.encode(line) for line in lines]),  # noqa: B023
            )
            for _ in range(options.turns)
        ]
        one, batch, theirs = (len(lines) / statistics.median(turn) for turn in zip(*turns, strict=True))
        sys.stdout.write(f"| {name} | {one:,.0f} | {batch:,.0f} | {theirs:,.0f} | {one / theirs:.1f} |\n")


if __name__ == "__main__":
    main()
