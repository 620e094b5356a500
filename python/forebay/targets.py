"""Targets: what a loss function takes of each row, made of its columns.

>>> import forebay.targets as targets
>>> targets.MultiHot("labels", classes=["owl", "wren"])
MultiHot(column='labels', classes=('owl', 'wren'))

`Loader(files, targets={"label": MultiHot("ebird_code_multilabel")})` gives each batch a field `label`. Objects are
frozen dataclasses; each checks its parameters when it is made. The column is checked when a loader opens its files. A
point in `column` separates the names of fields within a struct, as in `"meta.site"`.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import KW_ONLY, fields
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from forebay._annotations import freeze, read
from forebay._checks import wrong_type
from forebay._core import ConfigError, Tokenizer, _Target
from forebay._part import _Part, part
from forebay._vocabularies import Classes, check_unicode, class_names, entries, tokenizer_file

__all__ = [
    "Annotations", "Characters", "ClassIndex", "Frames", "MultiHot", "Number", "Sequence", "Soft", "Text", "Tokens",
    "Words",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


@part
class _TargetPart(_Part):
    """What all targets share."""

    if TYPE_CHECKING:  # no field

        @property
        def _plan(self) -> _Target: ...

    def __post_init__(self) -> None:
        self._convert_numbers()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value) and field.name != "null":
                raise ConfigError(f"{field.name} is {value}, must be finite")
        given = self.to_dict()
        names = class_names(getattr(self, "classes", None), getattr(self, "classes_column", None))
        object.__setattr__(self, "_class_names", names)
        object.__setattr__(self, "_plan", _Target(given.pop("type"), given, names, self._annotations()))

    def _annotations(self) -> list[tuple[str, float, float, str]] | None:
        return None


@part
class _ColumnPart(_TargetPart):
    """A target that is made of a column."""

    column: str


@part
class _Classed(_TargetPart):
    """Targets with classes.

    `classes`: a list of names; a file with a name on each line, a `.csv` or `.tsv` whose column `classes_column` has
    them, or a `.json` with a list; the number of classes, if the column has numbers; `"schema"`, the class names in the
    schema; `"data"`, the sorted values of the column, which is then read once when the loader is made. None: the
    schema, if it has names. Sources of a mixture with different names in their schemas are united: a class has the
    number that it has in the first source that names it.

    `unknown="ignore"`: a name or number that is no class is left out; otherwise it raises `ConfigError` with its row.
    """

    _: KW_ONLY
    classes: Classes = None
    classes_column: str | None = None
    unknown: Literal["error", "ignore"] = "error"

    def __post_init__(self) -> None:
        classes: Any = self.classes
        if isinstance(classes, PathLike):
            object.__setattr__(self, "classes", fspath(classes))
        elif isinstance(classes, SequenceOf) and not isinstance(classes, str):
            names = tuple(str(name) if isinstance(name, str) else name for name in classes)
            object.__setattr__(self, "classes", names)
        elif not isinstance(classes, np.generic) and hasattr(classes, "tolist"):  # an array, or a column of a table
            object.__setattr__(self, "classes", tuple(classes.tolist()))
        super().__post_init__()


@part
class ClassIndex(_Classed, _ColumnPart):
    """The number of the class, int64 `[batch]`, of a column of whole numbers or names.

    `null`: the number for a null, or `"error"`. An unknown class that is ignored is -1.
    """

    _: KW_ONLY
    null: int | Literal["error"] = -1


@part
class MultiHot(_Classed, _ColumnPart):
    """1 for each class of the row and 0 for all others, float32 `[batch, n_classes]`.

    The column has lists of numbers or names, one number or name, or text in which `separator` separates names (blanks
    around a name do not count). Classes of the column `secondary` have the value `secondary_weight`, unless the row has
    them in its first column as well. With `smoothing` a value `x` becomes
    `x * (1 - smoothing) + smoothing / n_classes`.
    """

    _: KW_ONLY
    separator: str | None = None
    secondary: str | None = None
    secondary_weight: float = 0.5
    smoothing: float = 0.0
    null: Literal["zeros", "error"] = "zeros"


@part
class Soft(_ColumnPart):
    """The vector of each row, `[batch, size]`: a column of lists of numbers of one length.

    `size` is needed if the schema does not have it; a row of another length raises `ConfigError`.
    """

    _: KW_ONLY
    size: int | None = None
    null: Literal["zeros", "error"] = "error"
    dtype: Literal["float32", "float64", "float16"] = "float32"


@part
class Number(_ColumnPart):
    """The number of each row, `[batch]`. `null`: the number for a null (`math.nan`, too), or `"error"`."""

    _: KW_ONLY
    null: float | Literal["error"] = "error"
    dtype: Literal["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"] = "float32"

    def __post_init__(self) -> None:
        # One object for NaN, so that equal targets are equal.
        if self.null in ("nan", "inf", "-inf") or self.null != self.null:
            object.__setattr__(self, "null", {"inf": math.inf, "-inf": -math.inf}.get(str(self.null), math.nan))
        super().__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """The class as `type`, and each value as JSON has it; NaN and infinite numbers as text."""
        found = super().to_dict()
        if isinstance(self.null, float) and not math.isfinite(self.null):
            found["null"] = str(self.null)
        return found


@part
class Text(_ColumnPart):
    """The text of each row, a list of str. `max_bytes`: a row with a longer one is a bad record (`too_large`)."""

    _: KW_ONLY
    null: Literal["empty", "error"] = "empty"
    max_bytes: int = 1 << 20


@part
class Tokens(_ColumnPart):
    """The tokens of the text of each row, int64 `[batch, longest]`, and their number, `<name>_length`, int64 `[batch]`.

    `tokenizer` is the file of one: a `tokenizer.json` of Hugging Face or its folder, ranks of tiktoken, or a
    SentencePiece `.model`; or a `forebay.tokens.Tokenizer` of such a file. Text that looks like a special token is
    ordinary text. `prefix` and `suffix` are ids or texts of special tokens around it, such as
    `["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]` and `["<|endoftext|>"]`.

    Rows are filled with `pad`, on their `side`. A row with more than `max_tokens`, prefix and suffix included, is left
    out, which `loader.left_out` counts: all texts are encoded once when the loader is made. With `on_long="cut"` the
    end of its text is cut off. Without `max_tokens` a row may have 4096, and one with more is a bad record
    (`too_large`). With `crops.Whole`, a row with more than `max_per_second` tokens for each second of audio, at the
    fastest that `Speed` plays it, is left out, too: a CTC loss over fewer frames than tokens is infinite.

    `dropout` is the probability with which each merge of two parts is left out (BPE dropout), by the row's random
    bits; a draw that exceeds `max_tokens` is encoded without.

    With `starts` and `ends`, columns with lists of seconds from the start of the row, `column` has a list of the texts
    of segments. Those within the clip are encoded one after the other; with `timestamps=0.02`, each between the tokens
    of its times, `<|0.00|>` to `<|30.00|>`, as Whisper is trained (Radford et al. 2022, section 2.3). Of a segment that
    ends after the clip there is only the start; one that begins before the clip makes a bad record (`corrupt`).

    With `Buckets(pad_to="bucket")` rows are padded to a power of two, or to `max_tokens`, so that shapes are few.
    """

    tokenizer: str | PathLike[str] | Tokenizer | Mapping[str, Any]
    _: KW_ONLY
    prefix: SequenceOf[str | int] = ()
    suffix: SequenceOf[str | int] = ()
    starts: str | None = None
    ends: str | None = None
    timestamps: float | None = None
    dropout: float = 0.0
    pad: int = 0
    side: Literal["right", "left"] = "right"
    max_tokens: int | None = None
    max_per_second: float | None = None
    on_long: Literal["skip", "cut"] = "skip"
    null: Literal["error", "empty"] = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", tokenizer_file(self.tokenizer))
        for name in ("prefix", "suffix"):
            given: Any = getattr(self, name)
            if isinstance(given, str):
                raise wrong_type(name, "a sequence of ids and texts of special tokens", given)
            if isinstance(given, (SequenceOf, np.ndarray)):
                object.__setattr__(self, name, tuple(np.asarray(given, dtype=object).tolist()))
            for token in getattr(self, name):
                if isinstance(token, str):
                    check_unicode(name, token)
        super().__post_init__()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.column, str(self.tokenizer), self.prefix, self.suffix))


@part
class Characters(_ColumnPart):
    """The ids of the characters of each row's text, int64 `[batch, longest]`; for CTC and phonemes.

    `<name>_length`, int64 `[batch]`, is their number. `vocabulary`: a string of the characters; a list of entries of
    one or more characters, of which the longest one is taken at each place; or the `Path` of a file, a `.json` with
    such a list or a dict of entries and ids 0 to n - 1, or any other with an entry on each line; or such a dict. Ids
    count from 0. `blank` is an id that no entry has, such as the 0 of a CTC loss: the entries from it on move up by
    one. `between` is an id that is put between two entries, and with `around` also before the first and after the
    last, as VITS does. Text is not normalised. A character that begins no entry raises `ConfigError` with its row, or
    is left out with `unknown="ignore"`.

    `pad`, `side`, `max_tokens`, `max_per_second`, `on_long` and `null` as in `Tokens`.
    """

    vocabulary: SequenceOf[str] | Mapping[str, int] | PathLike[str]
    _: KW_ONLY
    blank: int | None = None
    between: int | None = None
    around: bool = False
    unknown: Literal["error", "ignore"] = "error"
    pad: int = 0
    side: Literal["right", "left"] = "right"
    max_tokens: int | None = None
    max_per_second: float | None = None
    on_long: Literal["skip", "cut"] = "skip"
    null: Literal["error", "empty"] = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", entries(self.vocabulary))
        super().__post_init__()


@part
class Annotations(_Classed):
    """The classes that annotations have in each clip, float32 `[batch, n_classes]`; for `crop=Windows()` above all.

    `table` is a table of annotations, or a folder of tables, or rows `(path, start, end, label)`, times in seconds:
    a `.csv` or `.tsv` (or `.txt`) with a header, such as a Raven selection table; or labels of Audacity, `.txt` without
    a header; or turns of speakers, `.rttm`. `columns` names the columns of `path`, `start`, `end` and `label`; those of
    None are found by their usual names. A table without paths has the annotations of the recording of the same name
    (`a.Table.1.selections.txt` those of `a.wav`). An annotation belongs to each recording whose path in its row ends
    with the annotation's path.

    An annotation counts if it overlaps the clip (without padding), by at least `min_overlap` seconds, and by at least
    the share `min_share` of the annotation or of the window, as `of` says. `value` is 1 for `"presence"`, or the share
    of the clip that the longest annotation of a class has.

    `classes` as in `MultiHot`; None and `"data"` are the sorted labels of the table.
    """

    table: str | PathLike[str] | SequenceOf[tuple[str, float, float, str]]
    _: KW_ONLY
    min_overlap: float = 0.0
    min_share: float = 0.0
    of: Literal["annotation", "window"] = "annotation"
    value: Literal["presence", "share"] = "presence"
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        freeze(self, "table")
        super().__post_init__()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.table, self.min_overlap, self.min_share))

    def _annotations(self) -> list[tuple[str, float, float, str]]:
        return read(self.table, self.columns)


@part
class Frames(_Classed):
    """The labels that are heard in each frame of a clip: 1 or 0, uint8 `[batch, frames, n]`.

    For sound events and for diarization. `annotations` is a table, a folder of tables or rows `(path, start, end,
    label)`, as `Annotations` takes them (`columns` names the columns of a table); or a dict that names columns of the
    row with lists: `{"label": "speakers", "start": "turn_starts", "end": "turn_ends"}`, times in seconds from the row's
    start.

    Frame `i` has its middle `duration / 2 + i * step` seconds after the clip's start, and a label that is heard from
    `start` to `end` (seconds of the clip, cut to it) is in frames `round((start - duration / 2) / step)`, at least 0,
    to `round((end - duration / 2) / step)`, both included; halves are rounded to even. This is the rule of pyannote.
    With `step` the frames are those that lie within the clip, of `duration` seconds each (None: `step`). Without it
    they are those of the features, with the same number and middles. With `crop=Whole()` they are padded with zeros
    as the features are, and their number is `valid_frames`, or `<name>_length` if `step` is given.

    The columns are classes: `classes` as in `Annotations`; of columns of the row as in `MultiHot`. Or, with `speakers`
    (1 to 4096), they are the speakers of a clip, and labels are names of speakers. In `scope="file"` those with the
    most frames are taken (equal ones by their first start, then by name), in this `order`, or with `order="start"` in
    that of their first starts; columns without a speaker are zeros, and further speakers are left out, which is logged
    once. In `scope="data"` each speaker of all data has a column of its own, by sorted names.

    `Speed`, `Roll` and `FrameRoll` move labels as they move samples and frames. A partner of `Mix` adds its labels with
    `targets="union"` or `"sum"`.
    """

    annotations: str | PathLike[str] | SequenceOf[tuple[str, float, float, str]] | Mapping[str, str]
    _: KW_ONLY
    step: float | None = None
    duration: float | None = None
    speakers: int | None = None
    order: Literal["talk time", "start"] = "talk time"
    scope: Literal["file", "data"] = "file"
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        freeze(self, "annotations")
        super().__post_init__()

    def __hash__(self) -> int:
        return hash((type(self).__name__, str(self.annotations), self.step, self.duration, self.speakers))

    def _annotations(self) -> list[tuple[str, float, float, str]] | None:
        if not isinstance(self.annotations, Mapping):
            return read(self.annotations, self.columns, "annotations")
        if self.columns is not None:
            raise ConfigError("columns is given, which is for a table in a file, and annotations names columns")
        return None


@part
class Sequence(_ColumnPart):
    """Numbers along the time of a clip, `[batch, length]`: codes, units, pitch.

    `column` has a list for each row, of `rate` numbers per second (at most 10**6) from the row's start on:     whole
    numbers are int64, others float32. A clip has `round(seconds * rate)` of them. Number `j` is the one at the time of
    its middle, `(j + 0.5) / rate` seconds after the clip's start: item `floor(t * rate)` for the time `t` of the row
    that is heard then. So numbers are left out or repeated where `Speed` plays the recording faster or slower.

    `pad` fills places where the recording or its list has no number, and stands for nulls. With `crop=Whole()` rows are
    padded with it, and `<name>_length`, int64 `[batch]`, is their length without padding.
    """

    _: KW_ONLY
    rate: float
    pad: float = 0


@part
class Words(_ColumnPart):
    """The words that are heard in a clip, a list of str for each row, and their times.

    `column` has a list of words for each row, `starts` and `ends` are columns with lists of their times, in seconds
    from the row's start. `<name>_start` and `<name>_end` are `JaggedArray`s of float64: seconds of the clip, cut to it.
    A word is in a clip if a part of it is; words are in the order of their starts. `Speed` and `Roll` change times as
    they change samples, and a word over which a `Roll` wraps comes twice. Words of a partner of `Mix` are not added.
    """

    _: KW_ONLY
    starts: str
    ends: str
