"""Crops: where in a recording a clip is.

>>> import forebay.crops as crops
>>> crops.Windows(step=2.5)
Windows(step=2.5)

`Loader(files, clip_seconds=5.0, crop=Windows(step=2.5))` makes each window of each recording an example. Objects are
frozen dataclasses; each checks its parameters when it is made.
"""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from forebay._core import _Crop
from forebay._part import _Part

__all__ = ["Center", "Random", "Start", "Windows"]


@dataclass(frozen=True, repr=False)
class _CropPart(_Part):
    """What all crops share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Crop: ...

    def __post_init__(self) -> None:
        given = self.to_dict()
        object.__setattr__(self, "_plan", _Crop(given.pop("type"), given))


@dataclass(frozen=True, repr=False)
class Random(_CropPart):
    """A clip at a random place; a short recording is padded with zeros at the end."""


@dataclass(frozen=True, repr=False)
class Start(_CropPart):
    """The beginning; a short recording is padded with zeros at the end."""


@dataclass(frozen=True, repr=False)
class Center(_CropPart):
    """The clip in the middle; a short recording is padded with zeros on both sides."""


@dataclass(frozen=True, repr=False)
class Windows(_CropPart):
    """Each window of each recording, exactly once in an epoch; a window has `clip_seconds`.

    `step`: seconds from the start of a window to that of the next. None: `clip_seconds`, so that windows follow one
    another without overlap.

    `end`, for the samples behind the last whole window, and for a recording shorter than a window: `"pad"`, a further
    window with zeros behind them; `"remainder"`, a further window whose features are those of these samples alone, and
    filled up behind as the features say; `"shift"`, a further window that ends with the recording (a shorter recording
    is padded); `"drop"`, none. Samples between windows, if `step` is above `clip_seconds`, belong to none.

    Windows are examples: orders, ranks, resume and `exclude` work as with rows. `index` in a batch is the row of the
    recording, `outputs=["window", "start"]` adds the number and the start of the window. The lengths of all recordings
    are read when the loader is made. A recording that cannot be opened counts as one window.
    """

    step: float | None = None
    _: KW_ONLY
    end: Literal["pad", "drop", "shift", "remainder"] = "pad"
