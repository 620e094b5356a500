"""Crops: where in a recording a clip is.

>>> import forebay.crops as crops
>>> crops.Windows(step=2.5)
Windows(step=2.5)

`Loader(files, clip_seconds=5.0, crop=Windows(step=2.5))` makes each window of each recording an example. Objects are
frozen dataclasses; each checks its parameters when it is made.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal

from forebay._annotations import freeze, read
from forebay._checks import wrong_type
from forebay._core import ConfigError, _Crop
from forebay._part import NESTED, _Part, part

__all__ = [
    "Annotated",
    "Center",
    "End",
    "Events",
    "Inside",
    "Loudest",
    "Pad",
    "Random",
    "Start",
    "Views",
    "Whole",
    "Windows",
]


def __dir__() -> list[str]:
    return __all__


@part
class _CropPart(_Part):
    """What all crops share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Crop: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        self._check_by(_Crop)


Pad = Literal["behind", "front", "both", "random", "repeat", "noise"]
"""How a clip is filled whose recording is shorter.

`"behind"`, `"front"`, `"both"`: zeros after the recording, before it, or half of them on each side. `"random"`: zeros
on both sides, divided at random. `"repeat"`: the recording again and again, from its first sample on. `"noise"`: white
noise after the recording, of a root mean square of `noise_db` (dB, 0 is full scale).
"""


@part
class Random(_CropPart):
    """A clip at a random place; see `Pad` for `pad` and `noise_db`.

    `silence_db`: a clip whose root mean square is below this level (dB, 0 is full scale; without padding, at the
    rate of the features) is drawn again, at most `redraws` times; if all are below it, the loudest is kept. Of a large
    recording in a file of its own, everything between the places that may be drawn is read.
    """

    _: KW_ONLY
    pad: Pad = "behind"
    noise_db: float | None = None
    silence_db: float | None = None
    redraws: int = 4


@part
class Start(_CropPart):
    """The beginning; see `Pad` for `pad` and `noise_db`.

    With `whole=True` examples are whole recordings: one that is longer than `clip_seconds`, after `Speed`, is a bad
    record (`too_large`), and left out or replaced.
    """

    _: KW_ONLY
    pad: Pad = "behind"
    noise_db: float | None = None
    whole: bool = False


@part
class End(_CropPart):
    """The end; see `Pad` for `pad` and `noise_db`."""

    _: KW_ONLY
    pad: Pad = "front"
    noise_db: float | None = None


@part
class Center(_CropPart):
    """The clip in the middle; see `Pad` for `pad` and `noise_db`."""

    _: KW_ONLY
    pad: Pad = "both"
    noise_db: float | None = None


@part
class _SpanPart(_CropPart):
    """What crops by spans share."""

    column: str | tuple[str, str]

    def __post_init__(self) -> None:
        given: object = self.column
        if isinstance(given, list):  # as JSON has it
            object.__setattr__(self, "column", tuple(given))
        super().__post_init__()


@part
class Events(_SpanPart):
    """A clip at random about an event: the rule of BirdSet (Rauch et al. 2024, https://arxiv.org/abs/2403.10380).

    One of the events of a row is drawn, all equally likely. It is widened to at least `widen` seconds around its middle
    (and to at least a clip), shifted to lie within the recording, and the clip is at a random place within. A longer
    event is not widened.

    `column` has lists of pairs `[start, end]`, or of structs with the fields `start` and `end`; or it names two
    columns, `(starts, ends)`, of lists or of numbers. A point separates the names of fields within structs.
    `unit`: `"seconds"`, or `"samples"` at the recording's own rate, counted from the start of the row's recording. An
    event is cut to the recording; one that lies outside is left out; one that ends where it begins is a point. Events
    that overlap are drawn one by one. A row without any (an empty list, a null) has a clip at a random place, or with
    `empty="error"` ends the run with an error, as do an end before its start, a null in a pair and NaN.

    See `Pad` for `pad` and `noise_db`, and `Random` for `silence_db` and `redraws`: event and place are drawn again.
    """

    widen: float = 8.0
    _: KW_ONLY
    unit: Literal["seconds", "samples"] = "seconds"
    empty: Literal["random", "error"] = "random"
    pad: Pad = "behind"
    noise_db: float | None = None
    silence_db: float | None = None
    redraws: int = 4


@part
class Inside(_SpanPart):
    """A clip at a random place inside one of the spans of a row; `column`, `unit` and `empty` are those of `Events`.

    All places at which a clip lies in a span are equally likely, so a longer span is drawn more often. A span shorter
    than a clip has one place, at which it is in the middle of the clip.

    See `Pad` for `pad` and `noise_db`, and `Random` for `silence_db` and `redraws`.
    """

    _: KW_ONLY
    unit: Literal["seconds", "samples"] = "seconds"
    empty: Literal["random", "error"] = "random"
    pad: Pad = "behind"
    noise_db: float | None = None
    silence_db: float | None = None
    redraws: int = 4


@part
class Annotated(_CropPart):
    """A clip at a random place inside the annotated regions of its recording, as pyannote draws chunks.

    `annotations` are the regions: a UEM (`.uem`: file, channel, start and end in each line); what `targets.Frames`
    takes: a table, RTTM, a folder of them (of its UEMs alone, if it has any), rows `(path, start, end)` with or without
    a label; or a dict that names columns of the row with lists: `{"start": "starts", "end": "ends"}`, seconds from the
    row's start. `columns` names the columns of a table. Times of a table count from the start of the recording, also in
    a row that is a segment of it.

    Regions are cut to the recording (the row); those that overlap or touch are joined. All places at which a clip lies
    in one of them are equally likely. A region shorter than a clip is not used. If all are shorter, the clip has the
    longest in its middle, the first of equal ones, and is shifted to lie in the recording.

    A row without regions ends the run with an error; with `empty="random"` its clip is at a random place. The length
    of its regions does not change how often a row comes: see `seconds`.

    See `Pad` for `pad` and `noise_db`, and `Random` for `silence_db` and `redraws`.
    """

    annotations: (
        str | PathLike[str] | Sequence[tuple[str, float, float] | tuple[str, float, float, str]] | Mapping[str, str]
    )
    _: KW_ONLY
    columns: Mapping[str, str] | None = None
    empty: Literal["random", "error"] = "error"
    pad: Pad = "behind"
    noise_db: float | None = None
    silence_db: float | None = None
    redraws: int = 4

    def __post_init__(self) -> None:
        self._convert_numbers()
        freeze(self, "annotations", regions=True)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        regions = None
        if not isinstance(self.annotations, Mapping):
            rows = read(self.annotations, self.columns, "annotations", regions=True)
            # One without a length, as tables of events have them, is no place for a clip.
            regions = [row[:3] for row in rows if row[1] != row[2]]
        elif self.columns is not None:
            raise ConfigError("columns is given, which is for a table in a file, and annotations names columns")
        object.__setattr__(self, "_plan", _Crop(type(self).__name__, given, regions))

    def __hash__(self) -> int:
        return hash((type(self).__name__, str(self.annotations), self.empty, self.pad))

    def seconds(self, paths: Iterable[str | PathLike[str]]) -> list[float]:
        """The annotated seconds of each of these recordings, 0 of one without regions.

        Parts of annotations outside of the recording, or of a segment of it, count, too; regions that overlap count
        once. With `sampling=Weighted(crop.seconds(paths))` recordings come in proportion to their annotated time, and
        those without regions are left out. Raises `ConfigError` if `annotations` names columns.
        """
        if isinstance(self.annotations, Mapping):
            raise ConfigError(
                "annotations names columns, whose regions are read with the rows; weigh by another column"
            )
        if isinstance(paths, str | bytes | PathLike | Mapping):
            raise wrong_type("paths", "a list of the paths of recordings", paths)
        paths = list(paths)
        if (wrong := next((path for path in paths if not isinstance(path, str | PathLike)), None)) is not None:
            raise wrong_type("a path of paths", "the path of a recording", wrong)
        return self._plan.annotated_seconds([fspath(path) for path in paths])


@part
class Loudest(_CropPart):
    """The loudest of `of` clips at random places (2 to 64), by the root mean square of its samples without padding.

    All of them are decoded: together if that is less than one by one, as in a recording that is not much longer than
    all clips. See `Pad` for `pad` and `noise_db`.
    """

    of: int = 4
    _: KW_ONLY
    pad: Pad = "behind"
    noise_db: float | None = None


@part
class Views(_CropPart):
    """Several clips of each recording in one example: features `[batch, n, ...]`.

    `n` is 1 to 256. `crop`, any crop of a single clip, makes each of them, with draws of its own; the first one is the
    clip that `crop` makes alone. `outputs=["start", "valid_samples", "valid_frames"]` have `[batch, n]`. The recording
    is read and opened once, and decoded as a whole if that is less than clip by clip. Other fields are those of the
    row; targets that depend on the clip, such as `Annotations` and `Frames`, are refused.
    """

    n: int
    crop: _CropPart = Random()


@part
class Windows(_CropPart):
    """Each window of each recording, exactly once in an epoch; a window has `clip_seconds` (see `context`).

    `step`: seconds from the start of a window to that of the next. None: the length of a window, so that they
    follow one another without overlap.

    `end`, for the samples after the last whole window, and for a recording shorter than a window: `"pad"`, a further
    window with zeros after them; `"remainder"`, a further window whose features are of these samples alone, and
    filled at the end by the `fill` of the features; `"shift"`, a further window that ends with the recording (a shorter
    recording is padded); `"drop"`, none. Samples between windows, if `step` is above `clip_seconds`, belong to none.

    `context`: seconds of the recording that an example has on each side of its window, zeros where the recording has
    none. A window then has `clip_seconds - 2 * context`; `step`, `end`, annotations and `start` refer to windows.

    Windows are examples: orders, ranks, resume and `exclude` work as with rows. `index` in a batch is the row of the
    recording, `outputs=["window", "start"]` adds the number and the start of the window. The lengths of all recordings
    are read when the loader is made. A recording that cannot be opened counts as one window.
    """

    step: float | None = None
    _: KW_ONLY
    end: Literal["pad", "drop", "shift", "remainder"] = "pad"
    context: float = 0.0


@part
class Whole(_CropPart):
    """All of each recording, or of the segment that a row is: clips of different lengths, as for speech.

    The features of each clip are as if it were alone; in a batch they are padded at the end to the longest: a
    spectrogram is `[batch, n_mels, longest]` (or `[batch, longest, n_mels]`, as `layout` says), a waveform
    `[batch, longest]`. `valid_frames` (`valid_samples` of a waveform), int64 `[batch]`, are the lengths without
    padding. Features with a fixed number of frames (`n_frames`) keep it. A waveform is padded with zeros, a
    spectrogram with the features of silence, or with 0 if a frame depends on the others (by a normalization per
    example, `top_db` or PCEN). `pad_value`: another value.

    Rows shorter than `min_seconds` or longer than `max_seconds` are left out, with a warning: `loader.left_out` counts
    them. With `on_long="cut"` longer ones are cut at their end. The length of a row is that of its segment
    (`start` and `end`), or the value of the column `duration` in seconds, by default the one of this name, as in
    manifests of NeMo. If neither is a number above 0, the recording is opened when the loader is made. One that is
    longer than was known by more than 25 ms is a bad record (`too_large`). Do not give `clip_seconds`.
    """

    _: KW_ONLY
    min_seconds: float = 0.0
    max_seconds: float = 30.0
    on_long: Literal["skip", "cut"] = "skip"
    duration: str | None = None
    pad_value: float | None = None


NESTED["crop"] = _CropPart
