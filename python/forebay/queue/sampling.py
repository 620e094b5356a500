"""Helpers for text samplers: random spans, BERT masking, stratified rows. Random numbers are the file's generator's."""

from collections.abc import Sequence
from typing import Any

import torch

from forebay._core import ConfigError

IGNORED = -100
"""The label that torch's losses ignore."""


def next_span(tokens: Any, batch_size: int, block_size: int, rng: Any) -> tuple[Any, Any]:
    """Draws random spans of `tokens` (`[n]`) and their targets, shifted by one: two `[batch_size, block_size]`."""
    n_starts = len(tokens) - block_size
    if n_starts < 1:
        raise ConfigError(f"{len(tokens)} tokens are too few for spans of block_size {block_size} and one more")
    starts = torch.randint(n_starts, (batch_size, 1), generator=rng)
    span = starts + torch.arange(block_size)
    return tokens[span], tokens[span + 1]


def dynamic_mask(
    input_ids: Any,
    rng: Any,
    *,
    vocab_size: int,
    mask_token_id: int,
    probability: float = 0.15,
    special_ids: Sequence[int] = (),
) -> tuple[Any, Any]:
    """Masks tokens as BERT does: returns `(corrupted, labels)`, with label -100 where no token is predicted.

    Each token is chosen with `probability`. Of the chosen tokens, 80 % become the mask, 10 % a random token,
    and 10 % stay unchanged. Special tokens and masks are neither chosen nor drawn.

    Source: Devlin et al. 2018, section 3.1.
    """
    if not 0 <= probability <= 1:
        raise ConfigError(f"probability is {probability}, must be from 0 to 1")
    special = torch.tensor(sorted({mask_token_id, *special_ids}))
    ordinary = torch.arange(vocab_size)
    ordinary = ordinary[~torch.isin(ordinary, special)]
    if not len(ordinary):
        raise ConfigError(f"all {vocab_size} tokens are special")
    chosen = torch.rand(input_ids.shape, generator=rng) < probability
    chosen &= ~torch.isin(input_ids, special)
    fate = torch.rand(input_ids.shape, generator=rng)
    others = ordinary[torch.randint(len(ordinary), input_ids.shape, generator=rng)].to(input_ids.dtype)
    corrupted = torch.where(chosen & (fate < 0.8), torch.full_like(input_ids, mask_token_id), input_ids)
    corrupted = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), others, corrupted)
    return corrupted, torch.where(chosen, input_ids.long(), IGNORED)


def stratified(labels: Any, batch_size: int, rng: Any) -> Any:
    """Draws stratified row numbers `[batch_size]`: each class has its share of `labels` (`[n]`), in whole rows.

    The share is rounded down or up at random, such that the mean is the share, even for rare classes. Method:
    the shares are adjacent intervals on a line; a class's count is the number of points of spacing 1, with a
    random offset, in its interval. Rows are drawn with replacement within a class.
    """
    if not len(labels):
        raise ConfigError("there are no labels")
    _, classes, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    ends = sizes.double().cumsum(0) * (batch_size / len(labels))
    ends[-1] = batch_size
    offset = torch.rand((), generator=rng, dtype=torch.float64)
    counts = torch.diff((ends + offset).floor(), prepend=torch.zeros(1, dtype=torch.float64)).long()
    by_class = torch.argsort(classes, stable=True)
    first = torch.repeat_interleave(sizes.cumsum(0) - sizes, counts)
    within = (
        torch.rand(batch_size, generator=rng, dtype=torch.float64) * torch.repeat_interleave(sizes, counts)
    ).long()
    return by_class[first + within][torch.randperm(batch_size, generator=rng)]
