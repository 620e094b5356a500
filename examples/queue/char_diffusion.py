"""A provider of masked characters for diffusion: x with masks, y the masked characters (-100 elsewhere).

python examples/queue/char_diffusion.py --data_dir /tmp/char_diffusion --stages '[["token", 0.2], ["span", 0.5]]'

Rows use the stages in turn. "token" masks each character with the given probability; "span" masks one run of
characters whose length is that share of the row.
"""

import json
from typing import Any

import torch
from provide import BookProvider, parser, provide

STAGES = [["token", 0.15], ["token", 0.5], ["span", 0.3], ["token", 0.9]]


class CharDiffusion(BookProvider):
    stages: list[list[Any]] = STAGES

    def build_meta(self) -> dict[str, Any]:
        length = [self.block_size]
        fields = [("x", "int64", length, "input"), ("y", "int64", length, "target")]
        mask = len(self.tokenizer)
        return self.meta("MLM", fields, stages=self.stages) | {"vocab_size": mask + 1, "mask_token_id": mask}

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, torch.Tensor]:
        rows = self.spans(split, rng)
        stages = [self.stages[row % len(self.stages)] for row in range(len(rows))]
        masked = torch.stack([self.mask(kind, share, rng) for kind, share in stages])
        return {"x": rows.masked_fill(masked, len(self.tokenizer)), "y": rows.masked_fill(~masked, -100)}

    def mask(self, kind: str, share: float, rng: torch.Generator) -> torch.Tensor:
        """The mask of a row: true at masked characters."""
        if kind == "token":
            return torch.rand(self.block_size, generator=rng) < share
        if kind != "span":
            raise ValueError(f"--stages has the kind {kind!r}, must be 'token' or 'span'")
        length = max(1, round(share * self.block_size))
        start = torch.randint(self.block_size - length + 1, (), generator=rng)
        place = torch.arange(self.block_size)
        return (place >= start) & (place < start + length)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--stages", type=json.loads, default=STAGES, help="JSON: a list of [kind, share]")
    arguments = options.parse_args()
    provider = CharDiffusion(arguments)
    provider.stages = arguments.stages
    provide(provider, arguments)
