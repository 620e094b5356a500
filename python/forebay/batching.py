"""Batches: which examples a batch has.

>>> import forebay.batching as batching
>>> batching.Buckets(max_duration=400.0)
Buckets(max_duration=400.0)

`Loader(files, crop=Whole(), batching=Buckets(max_duration=400.0))` puts recordings of about the same length together.
Objects are frozen dataclasses; each checks its parameters when it is made.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from forebay._core import _Batching
from forebay._part import NESTED, _Part, part

__all__ = ["Buckets"]


def __dir__() -> list[str]:
    return __all__


@part
class _BatchingPart(_Part):
    """What all rules share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Batching: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        self._check_by(_Batching)


@part
class Buckets(_BatchingPart):
    """Batches of recordings of about the same length, as many as `max_duration` allows.

    `max_duration`: the most seconds of a batch, padding included: its rows times its longest. With
    `quadratic_duration=q` a recording of d seconds counts as `d + d**2 / q`, for models whose memory grows so;
    `max_examples` bounds the rows. A recording that alone exceeds `max_duration` is an error:
    `Whole(max_seconds=...)` leaves it out.

    With `max_tokens` the padded tokens of a target are bounded, too: its rows times its longest text. Each bucket is
    divided into `token_bins` of about equal total tokens. `tokens` is the name of the target, if several are `Tokens`
    or `Characters`. Their texts are encoded once when the loader is made.

    Rows are put in `num_buckets` buckets of about equal total duration. Or `duration_bins`, rising, are the longest
    seconds of each bucket, and `batch_sizes` the rows of a batch of each, for example the largest that fit in memory;
    `max_duration` may then be None.

    The draws of an epoch come from the loader's `order`, with its weights and mixtures. Each goes to its bucket, and a
    full bucket becomes a batch for every rank: all ranks take the same number of batches, of the same bucket at each
    step. The rest at the end of each 2^20 draws is sorted by length and batched by the same limits, and the batches are
    shuffled. So with `drop_last=False` every row of a finite pass is in exactly one batch, on any number of ranks; if
    there are fewer rows than ranks at the end, some ranks have a batch without rows. With `drop_last=True`, the default
    of `Loader.train`, and in an infinite run, fewer rows than there are ranks (`n_streams`) are left out of each 2^20:
    the shortest. The length of a draw is that after `Speed`.

    `pad_to`: `"longest"`, the longest of the batch; `"bucket"`, the longest of its bucket, so that there are few
    shapes (for `torch.compile`, CUDA graphs, JAX); or a multiple of frames (of samples, for waveforms), whose padding
    may exceed `max_duration`. Features with a fixed number of frames (`n_frames`) have one length, and are refused.

    With `packed=True` nothing is padded: rows lie one after the other along their frames, `[total, n_mels]` with
    `layout="time"`, `[n_mels, total]` with `"mel"`, `[total]` for waveforms, and `offsets`, int32 `[batch + 1]`, says
    where each begins and the last ends (the `cu_seqlens` of attention without padding).

    A batch has `bucket`, int64 `[batch]`: the number of each row's bucket in `loader.buckets`.

    Do not give `batch_size`. A state continues on another number of ranks between two steps; `n_streams`
    must then be a multiple of each.
    """

    _elsewhere: ClassVar = {
        "batch_duration": "max_duration",
        "bucket_batch_size": "batch_sizes",
        "bucket_duration_bins": "duration_bins",
        "max_cuts": "max_examples",
        "max_sentences": "max_examples",
        "quadratic_factor": "quadratic_duration",
    }

    max_duration: float | None = None
    _: KW_ONLY
    num_buckets: int = 30
    duration_bins: Sequence[float] | None = None
    batch_sizes: Sequence[int] | None = None
    quadratic_duration: float | None = None
    max_examples: int | None = None
    max_tokens: int | None = None
    tokens: str | None = None
    token_bins: int = 2
    pad_to: Literal["longest", "bucket"] | int = "longest"
    packed: bool = False

    def __post_init__(self) -> None:
        for name in ("duration_bins", "batch_sizes"):
            given: object = getattr(self, name)
            if isinstance(given, np.ndarray):
                given = given.tolist()
            if isinstance(given, list):  # as JSON has it, too
                object.__setattr__(self, name, tuple(given))
        super().__post_init__()


NESTED["batching"] = _BatchingPart
