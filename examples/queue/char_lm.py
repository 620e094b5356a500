"""A provider for a character language model: x, and the next characters y (with --target_size only the last ones).

python examples/queue/char_lm.py --data_dir /tmp/char_lm
"""

from typing import Any

import torch
from provide import BookProvider, parser, provide

from forebay.queue import next_span


class CharLM(BookProvider):
    def build_meta(self) -> dict[str, Any]:
        target = ("y", "int64", [self.target_size or self.block_size], "target")
        return self.meta("LM", [("x", "int64", [self.block_size], "input"), target])

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
        x, y = next_span(torch.cat(self.books[split]), self.batch_size, self.block_size, rng)
        return {"x": x, "y": y[:, -self.target_size :] if self.target_size else y}


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    provide(CharLM(arguments), arguments)
