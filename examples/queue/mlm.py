"""A provider of words masked as in BERT: input_ids, attention_mask, labels (-100 at unmasked words).

python examples/queue/mlm.py --data_dir /tmp/mlm

A row is [CLS] and a sentence, cut or padded to block_size.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from provide import BookProvider, parser, provide

from forebay.queue import CachedTokenizer, dynamic_mask

PAD, CLS, MASK, UNKNOWN = range(4)


class WordTokenizer:
    """A tokenizer of lower-case words that occur at least twice; the first four ids are special tokens."""

    def __init__(self, text: str) -> None:
        counts = Counter(re.findall(r"\w+|[^\w\s]", text.lower()))
        words = ["[PAD]", "[CLS]", "[MASK]", "[UNK]", *sorted(word for word, count in counts.items() if count > 1)]
        self.itos = dict(enumerate(words))
        self.stoi = {word: number for number, word in self.itos.items()}

    def encode(self, text: str, /) -> list[int]:
        return [self.stoi.get(word, UNKNOWN) for word in re.findall(r"\w+|[^\w\s]", text.lower())]

    def decode(self, ids: Sequence[int], /) -> str:
        return " ".join(self.itos[int(number)] for number in ids)


class MaskedWords(BookProvider):
    def build_meta(self) -> dict[str, Any]:
        texts = {split: " ".join(map(self.tokenizer.decode, books)) for split, books in self.books.items()}
        self.sentences = {split: re.split(r"(?<=[.!?]) ", text.replace("\n", " ")) for split, text in texts.items()}
        self.words = WordTokenizer(texts["train"])
        self.cached = CachedTokenizer(self.words, max_texts=10_000)
        length = [self.block_size]
        fields = [
            ("input_ids", "int64", length, "input"),
            ("attention_mask", "int8", length, "mask"),
            ("labels", "int64", length, "target"),
        ]
        special = {"pad_token_id": PAD, "cls_token_id": CLS, "mask_token_id": MASK}
        vocabulary = {"stoi": self.words.stoi, "itos": self.words.itos, "vocab_size": len(self.words.itos)}
        return self.meta("MLM", fields) | vocabulary | special

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
        ids = torch.full((self.batch_size, self.block_size), PAD)
        chosen = torch.randint(len(self.sentences[split]), (self.batch_size,), generator=rng)
        for row, number in zip(ids, chosen.tolist(), strict=True):
            tokens = [CLS, *self.cached.encode(self.sentences[split][number])][: self.block_size]
            row[: len(tokens)] = torch.tensor(tokens)
        corrupted, labels = dynamic_mask(
            ids, rng, vocab_size=len(self.words.itos), mask_token_id=MASK, special_ids=[PAD, CLS, UNKNOWN]
        )
        return {"input_ids": corrupted, "attention_mask": (ids != PAD).to(torch.int8), "labels": labels}


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    provide(MaskedWords(arguments), arguments)
