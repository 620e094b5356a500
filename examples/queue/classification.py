"""A provider for classification: spans of characters x, and the book y of each row, stratified by book.

python examples/queue/classification.py --data_dir /tmp/classification
"""

from typing import Any

import torch
from provide import BOOKS, BookProvider, parser, provide

from forebay.queue import stratified


class WhichBook(BookProvider):
    def build_meta(self) -> dict[str, Any]:
        fields: list[tuple[str, str, list[int], str]] = [
            ("x", "int64", [self.block_size], "input"),
            ("y", "int64", [], "target"),
        ]
        return self.meta("CLASSIFICATION", fields, label_map=dict(enumerate(BOOKS)))

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
        spans = [book.unfold(0, self.block_size, 1) for book in self.books[split]]
        labels = torch.cat([torch.full((len(rows),), label) for label, rows in enumerate(spans)])
        index = stratified(labels, self.batch_size, rng)
        first = len(spans[0])
        rows = [spans[0][i] if i < first else spans[1][i - first] for i in index.tolist()]
        return {"x": torch.stack(rows), "y": labels[index]}


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    provide(WhichBook(arguments), arguments)
