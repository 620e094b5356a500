"""Helpers for samplers: tokenizers, spans, masks, strata."""

import math

import pytest
import torch

import forebay
from forebay.queue import CachedTokenizer, CharTokenizer, Tokenizer, dynamic_mask, next_span, stratified


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_char_tokenizer() -> None:
    tokenizer = CharTokenizer("hello")
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.itos == {0: "e", 1: "h", 2: "l", 3: "o"}
    assert tokenizer.encode("hole") == [1, 3, 2, 0]
    assert tokenizer.decode(torch.tensor([1, 3, 2, 0])) == "hole"
    assert len(tokenizer) == 4
    again = CharTokenizer.from_meta({"stoi": tokenizer.stoi})
    assert (again.stoi, again.itos) == (tokenizer.stoi, tokenizer.itos)
    with pytest.raises(forebay.ConfigError, match="character 'x' is not"):
        tokenizer.encode("x")
    with pytest.raises(forebay.ConfigError, match="no stoi"):
        CharTokenizer.from_meta({})


def test_cached_tokenizer() -> None:
    class Counting(CharTokenizer):
        calls = 0

        def encode(self, text: str, /) -> list[int]:
            self.calls += 1
            return super().encode(text)

    inner = Counting("abc")
    cached = CachedTokenizer(inner, max_texts=2)
    assert isinstance(cached, Tokenizer)
    for text in ("ab", "ab", "c", "ab", "b", "ab", "c"):
        assert list(cached.encode(text)) == CharTokenizer("abc").encode(text)
    assert inner.calls == 4  # "b" evicted "c"
    assert cached.decode([0, 2]) == "ac"
    with pytest.raises(forebay.ConfigError, match="max_texts is 0"):
        CachedTokenizer(inner, 0)


def test_next_span() -> None:
    tokens = torch.arange(100) * 7
    x, y = next_span(tokens, 5000, 8, rng())
    assert x.shape == y.shape == (5000, 8)
    assert (x.diff() == 7).all()
    assert torch.equal(y, x + 7)
    assert set(x[:, 0].tolist()) == set((tokens[:92]).tolist())  # every start; the last token is only a target
    assert all(
        torch.equal(a, b) for a, b in zip(next_span(tokens, 9, 8, rng(3)), next_span(tokens, 9, 8, rng(3)), strict=True)
    )
    assert torch.equal(next_span(tokens[:9], 2, 8, rng())[0], tokens[:8].expand(2, 8))
    with pytest.raises(forebay.ConfigError, match="8 tokens are too few for spans of block_size 8"):
        next_span(tokens[:8], 1, 8, rng())


def test_dynamic_mask() -> None:
    """15 % are selected, of these 80 % masked, 10 % random, 10 % kept; special tokens are not selected or drawn."""
    mask, pad, vocab = 50, 0, 51
    ids = torch.randint(1, 50, (2000, 200), generator=rng())
    ids[:, ::10] = pad
    corrupted, labels = dynamic_mask(ids, rng(1), vocab_size=vocab, mask_token_id=mask, special_ids=[pad])
    chosen = labels != -100
    ordinary = ids != pad
    assert corrupted.dtype == ids.dtype
    assert labels.dtype == torch.int64
    assert not chosen[~ordinary].any()
    assert torch.equal(corrupted[~chosen], ids[~chosen])
    assert torch.equal(labels[chosen], ids[chosen])
    n = int(chosen.sum())

    def near(count: int, share: float, of: int) -> bool:
        return abs(count - share * of) < 5 * math.sqrt(of * share * (1 - share))

    assert near(n, 0.15, int(ordinary.sum()))
    masked = int((corrupted[chosen] == mask).sum())
    same = int((corrupted[chosen] == ids[chosen]).sum())
    assert near(masked, 0.8, n)
    assert near(same, 0.1 + 0.1 / 49, n)
    drawn = corrupted[chosen & (corrupted != mask) & (corrupted != ids)]
    assert set(drawn.tolist()) == set(range(1, 50))
    everything, _ = dynamic_mask(ids, rng(), vocab_size=vocab, mask_token_id=mask, probability=1)
    assert near(int((everything == mask).sum()), 0.8, ids.numel())
    nothing, labels = dynamic_mask(ids, rng(), vocab_size=vocab, mask_token_id=mask, probability=0)
    assert torch.equal(nothing, ids)
    assert (labels == -100).all()
    with pytest.raises(forebay.ConfigError, match=r"probability is 1.5"):
        dynamic_mask(ids, rng(), vocab_size=vocab, mask_token_id=mask, probability=1.5)
    with pytest.raises(forebay.ConfigError, match="all 1 tokens are special"):
        dynamic_mask(ids, rng(), vocab_size=1, mask_token_id=0)


def test_masks_differ_between_batches_and_not_between_runs() -> None:
    ids = torch.arange(1000) % 30
    generator = rng(5)
    one, two = (dynamic_mask(ids, generator, vocab_size=31, mask_token_id=30)[0] for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.equal(one, dynamic_mask(ids, rng(5), vocab_size=31, mask_token_id=30)[0])


def test_stratified() -> None:
    """Each batch has the share of each class, rounded down or up; the mean is the share."""
    labels = torch.cat([torch.full((n,), value) for value, n in [(7, 700), (-1, 250), (3, 45), (9, 5)]])
    labels = labels[torch.randperm(len(labels), generator=rng())]
    generator, totals, rows = rng(1), torch.zeros(4), set()
    for _ in range(2000):
        index = stratified(labels, 16, generator)
        assert index.shape == (16,)
        counts = torch.tensor([int((labels[index] == value).sum()) for value in (7, -1, 3, 9)])
        shares = torch.tensor([11.2, 4.0, 0.72, 0.08])
        assert ((counts - shares).abs() < 1).all()
        totals += counts
        rows.update(index.tolist())
    assert torch.allclose(totals / 2000, torch.tensor([11.2, 4.0, 0.72, 0.08]), atol=0.05)
    assert rows == set(range(1000))
    assert stratified(torch.tensor([1]), 3, rng()).tolist() == [0, 0, 0]
    first = [int(labels[stratified(labels, 16, generator)[0]]) for _ in range(400)]
    assert len(set(first)) > 1  # not sorted by class
    with pytest.raises(forebay.ConfigError, match="no labels"):
        stratified(torch.zeros(0), 3, rng())
