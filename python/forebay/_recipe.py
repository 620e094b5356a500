"""What a loader or a dataset makes of its recordings, line by line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forebay._part import _Part
from forebay.crops import Center, End, Start, Whole, Windows
from forebay.features import LogMel

_GIVEN = (
    "seed",
    "infinite",
    "batch_size",
    "world_size",
    "n_streams",
    "rank",
    "drop_last",
    "shuffle_min_size",
    "era_length",
    "weights",
    "mixture_block",
    "stop",
    "n_samples",
    "exclude",
    "clip_seconds",
    "max_record_bytes",
    "max_decoded_seconds",
    "damage",
    "max_damage",
    "audio_column",
    "label_column",
)
"""The parameters that a recipe has as they are."""


class Recipe:
    """The path of a recording to a batch: `print` it, compare it, or take it as JSON with `to_dict`.

    `loader.recipe` has everything on which the values of a batch depend, except for the files themselves;
    `dataset.recipe` has the same without an order.
    """

    __slots__ = ("_fields", "_lines", "_values")

    def __init__(self, given: Mapping[str, Any], facts: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> None:
        features = given["features"] or LogMel(
            **{name: given[name] for name in ("sample_rate", "n_mels", "n_fft", "hop_length", "dtype", "layout")},
            n_frames=given["n_frames"],
            empty_bands="keep",
        )
        targets = given["targets"] or {}
        chosen = given.get("crop")
        crop = "center" if given.get("augment") in (None, False) else "random"
        clip = f"{given['clip_seconds']} s at {features.sample_rate} Hz"
        padding = "at the end" if crop == "random" else "on both sides"
        if isinstance(chosen, Whole):
            place = f"{chosen!r} at {features.sample_rate} Hz"
        elif chosen is not None:
            place = f"{chosen!r}, each {clip}"
        else:
            place = f"{crop}, {clip}, short recordings padded {padding}"
        augment = given.get("augment")
        steps = augment if isinstance(augment, list) else []
        missing = given.get("missing_audio", "error")
        self._fields = [dict(field) for field in fields]
        # A label that was left out on purpose needs no line: targets={}, label_column="".
        is_lost = given["targets"] is None and given["label_column"] is None
        is_lost = is_lost and all(field["name"] != "label" for field in fields)
        self._lines = [
            ("source", facts["source"]),
            *_order(given, facts),
            *((("sampling", f"{given['sampling']!r}"),) if given["sampling"] else ()),
            *((("audio", f"{given['audio']!r}"),) if given["audio"] else ()),
            *((("track", f"{given['track']!r}"),) if given["track"] is not None else ()),
            *((("missing_audio", f"{missing!r}"),) if missing != "error" else ()),
            *((("independent", f"{given['independent']!r}"),) if given["independent"] is not None else ()),
            ("crop", place),
            *(("augment", f"{step!r}") for step in steps),
            ("features", f"{features!r}"),
            *((("label", "none: no column has its name; label_column= or targets= names one"),) if is_lost else ()),
            *(("target", f"{name} = {target!r}") for name, target in targets.items()),
            *(("column", name) for name in given["columns"] or ()),
            *_batches(given, facts.get("padding")),
        ]
        sampling = given["sampling"]
        unused = "batch_size" if given.get("batching") else None
        facts = {
            name: fact for name, fact in facts.items() if name not in ("order_reason", "padding")
        }  # change no value
        self._values = {
            "source": facts["source"],
            **facts,
            **{name: _plain(given[name]) for name in _GIVEN if name in given and name != unused},
            **({"audio": _plain(given["audio"])} if given["audio"] else {}),
            **({"track": _plain(given["track"])} if given["track"] is not None else {}),
            **({"independent": _plain(given["independent"])} if given["independent"] is not None else {}),
            **({"missing_audio": missing} if missing != "error" else {}),
            "sampling": sampling and sampling.to_dict(),
            "crop": crop if chosen is None else chosen.to_dict(),
            **({"batching": given["batching"].to_dict()} if given.get("batching") else {}),
            **({"augment": [step.to_dict() for step in steps]} if steps else {}),
            "features": features.to_dict(),
            "targets": {
                name: {**target.to_dict(), "class_names": getattr(target, "_class_names", None)}
                for name, target in targets.items()
            },
            "columns": list(given["columns"] or ()),
            "fields": [{name: _plain(value) for name, value in field.items()} for field in self._fields],
        }

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON has it."""
        return self._values

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self._lines)
        lines = [f"{name:{width}}  {text}" for name, text in self._lines]
        name_width = max(len(field["name"]) for field in self._fields)
        for field in self._fields:
            axes = ("longest" if axis is None else str(axis) for axis in field["shape"] or ())
            shape = f" [{', '.join(axes)}]" if field["shape"] else ""
            lines.append(f"  {field['name']:{name_width}}  {field['dtype']}{shape}  {field['meaning']}")
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._values == other._values

    def __hash__(self) -> int:
        return hash(json.dumps(self._values, sort_keys=True))


def _batches(given: Mapping[str, Any], padding: Mapping[str, float] | None) -> list[tuple[str, str]]:
    """The line about the batches; a dataset has none."""
    if "batch_size" not in given:
        return []
    if not given["batching"]:
        return [("batch", f"{given['batch_size']} rows")]
    if padding is None:
        return [("batch", f"{given['batching']!r}")]
    number = f"{padding['batches']} an epoch on all ranks, " if "batches" in padding else ""
    share = f"{padding['share']:.1%} padding ({padding['random']:.1%} in batches of as many rows at random)"
    return [("batch", f"{given['batching']!r}: {number}{share}")]


def _order(given: Mapping[str, Any], facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The line about the order; a dataset has none, but a seed for its crops."""
    if "order" not in facts:
        is_drawn = given["crop"] is not None and not isinstance(given["crop"], (Start, Center, End, Whole, Windows))
        return [("seed", f"{given['seed']}")] if is_drawn else []
    chosen = f"{facts['order']} ({reason})" if (reason := facts["order_reason"]) else facts["order"]
    order = f"{chosen}, seed {given['seed']}, {'infinite' if given['infinite'] else 'one pass'}"
    if facts["order"] == "window":
        order += f", window of {given['shuffle_min_size']}"
    elif facts["order"] == "era":
        order += f", eras of {given['era_length']}"
    return [("order", order)]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, _Part):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value
