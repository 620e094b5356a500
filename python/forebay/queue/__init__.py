"""A queue of batches in a directory: a producer process feeds a trainer, with backpressure, from any Python sampler.

>>> class Words(forebay.queue.DataProviderBase):  # doctest: +SKIP
...     def build_meta(self): ...
...     def sample_batch(self, split, rng): ...
>>> Words("data/words", batch_size=32).run()  # doctest: +SKIP
>>> consumer = forebay.queue.DatasetConsumer("data/words")  # doctest: +SKIP
>>> x, y = consumer.get_batch("train", "cuda")  # doctest: +SKIP

Needs torch. docs/queue.md has the layout and the guarantees.
"""

from forebay.queue.consumer import DatasetConsumer
from forebay.queue.legacy import write_legacy_file
from forebay.queue.meta import read_meta
from forebay.queue.provider import DataProviderBase
from forebay.queue.sampling import dynamic_mask, next_span, stratified
from forebay.queue.tokenizers import CachedTokenizer, CharTokenizer, Tokenizer

__all__ = [
    "CachedTokenizer",
    "CharTokenizer",
    "DataProviderBase",
    "DatasetConsumer",
    "Tokenizer",
    "dynamic_mask",
    "next_span",
    "read_meta",
    "stratified",
    "write_legacy_file",
]


def __dir__() -> list[str]:
    return __all__
