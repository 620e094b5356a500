"""Pictures of batches and of traces, for notebooks and for files; numpy alone draws them.

>>> import forebay
>>> loader = forebay.Loader.train("shards/")  # doctest: +SKIP
>>> forebay.plot.batch(next(loader), loader=loader).save("batch.html")  # doctest: +SKIP
"""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay import _pictures
from forebay._checks import check, whole
from forebay._core import ConfigError
from forebay._files import write_new
from forebay._part import _Part
from forebay.features import MFCC, Spectrogram

if TYPE_CHECKING:
    from forebay._core import AudioDataset, Loader

__all__ = ["Picture", "batch", "timeline"]


def __dir__() -> list[str]:
    return __all__


MOST = 64
"""The most examples in a picture."""
COLUMNS = 320
"""The most columns of pixels of a spectrogram, and those of a waveform."""
IDLE = 0.005
"""The share of time at work below which an I/O thread has no row."""
TIMES = 800
"""Columns of pixels of a time line."""
MOST_BYTES = 256 << 20
"""The largest trace that is read; `loader.trace` writes about 30 MB at most."""
STAGE = 1000
"""The numbers by which a trace sorts the threads of a stage."""
COLORS = {
    "read": (60, 130, 190),
    "decode": (225, 120, 40),
    "collate": (110, 160, 60),
    "batch": (150, 90, 170),
    "loop": (190, 60, 90),
}
"""Colors of work; other work is the last one, waiting is light gray."""
OTHER, WAITING, NOTHING = (120, 100, 80), (215, 215, 220), (255, 255, 255)
STYLE = (
    "<style>.forebay{font:.9rem/1.4 system-ui,sans-serif}.forebay ul{display:grid;gap:.6rem;list-style:none;padding:0;"
    "grid-template-columns:repeat(auto-fill,minmax(min(15rem,100%),1fr))}.forebay img{display:block;width:100%}"
    ".forebay li img{height:7rem;image-rendering:pixelated}.forebay td img{height:1rem;image-rendering:pixelated}"
    ".forebay p{margin:0;overflow-wrap:anywhere}.forebay table{width:100%;border-spacing:.5rem .1rem}"
    ".forebay th{font-weight:400;text-align:left;white-space:nowrap}.forebay td.wide{width:80%}"
    ".forebay .axes{display:grid;grid-template-columns:auto 1fr;gap:0 .3rem;font-size:.7rem}.forebay b{font-weight:400}"
    ".forebay .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right}"
    ".forebay .x{grid-column:2;display:flex;justify-content:space-between}"
    ".forebay i{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 .8rem}"
    ".forebay span{display:inline-block}</style>"
)
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows, and that `save` writes as a page of its own."""

    title: str
    body: str
    """Its HTML, in which all text from files is escaped."""

    def __repr__(self) -> str:
        return f"<forebay.plot.Picture: {self.title}; a notebook shows it, save(path) writes a page>"

    def _repr_html_(self) -> str:
        return f'{STYLE}<div class="forebay">{self.body}</div>'

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a page of HTML that needs no other file and no network.

        Raises `FileExistsError` if there is a file already; it stays as it is.
        """
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{html.escape(self.title)}</title></head><body>{self._repr_html_()}</body></html>\n"
        )
        write_new(Path(path), page.encode(errors="replace"))


def batch(
    batch: Mapping[str, Any],
    n: int = 12,
    *,
    loader: "Loader | AudioDataset | None" = None,
    class_names: Sequence[str] | None = None,
) -> Picture:
    """The first `n` examples of a batch: their spectrograms or waveforms, and the fields of a single value.

    `batch` is a dict of a `Loader` or an `AudioDataset`, with arrays or tensors. With `loader`, which made it, each
    picture has its seconds and hertz. All spectrograms have one scale of colors, from the 5th to the 99.8th percentile
    of those shown, without the padding; low frequencies are at the bottom. `class_names` (by default those of
    `loader`) are written instead of the numbers of `label`, which may be multi-hot.

    Raises `ConfigError` without a field `spectrogram` or `waveform` of numbers, and for an `n` that is not 1 to 64.
    """
    n = whole("n", n)
    check(n=(n, 1, MOST))
    if not isinstance(batch, Mapping):
        raise TypeError(f"batch is a {type(batch).__name__}, must be a dict of arrays, such as next(loader)")
    name = next((name for name in ("spectrogram", "waveform") if name in batch), None)
    if name is None:
        raise ConfigError(
            f"the batch has no field spectrogram or waveform, but {', '.join(map(str, batch))}; of fields of audio= "
            'give one by that name, as in {"waveform": batch["clean"]}'
        )
    if loader is not None and class_names is None and isinstance(loader.class_names, list):
        class_names = loader.class_names
    shown = _floats(name, batch[name], batch.get("offsets"))[:n]
    axes = None if loader is None else _axes(name, shown, loader)
    pictures = _waveforms(shown) if name == "waveform" else _spectrograms(shown, axes.is_time_first if axes else None)
    items = []
    for i, pixels in enumerate(pictures):
        facts = [
            f"{key}: {text}"
            for key, values in batch.items()
            if key not in (name, "offsets") and (text := _value(key, values, i, class_names)) is not None
        ]
        alt = html.escape(f"{name} of example {i}", quote=True)
        lines = "".join(f"<p>{html.escape(fact)}</p>" for fact in facts)
        image = f'<img alt="{alt}" src="{_pictures.uri("image/png", _pictures.png(pixels))}">'
        items.append(f"<li>{image if axes is None else axes.around(image)}{lines}</li>")
    return Picture(f"{len(items)} examples of a batch", f"<ul>{''.join(items)}</ul>")


def timeline(trace: str | PathLike[str]) -> Picture:
    """What each thread did while a trace was recorded: a row of time for each, colored by its work.

    `trace` is a file that `loader.trace(path)` has written. Each column is the activity that took most of its time;
    waiting is gray. The percentage is the share of time at work. I/O threads without work, as of files in memory, are
    only named. Raises `ConfigError` for another file.
    """
    path = Path(trace)
    threads, seconds = _spans(path)
    rows, names, idle = [], [], []
    for thread, spans in threads.items():
        pixels, share = _row(spans, seconds)
        if share < IDLE and thread.startswith("forebay-io"):
            idle.append(thread)
            continue
        names += [kind for kind, _, _ in spans if not _waits(kind)]
        image = _pictures.uri("image/png", _pictures.png(pixels))
        alt = html.escape(f"{thread} works {share:.0%} of the time", quote=True)
        rows.append(
            f'<tr><th scope="row">{html.escape(thread)}</th><td class="wide"><img alt="{alt}" src="{image}"></td>'
            f"<td>{share:.0%}</td></tr>"
        )
    colors = {name: COLORS.get(name, OTHER) for name in dict.fromkeys(names)} | {"waiting": WAITING}
    legend = "".join(
        f'<span><i style="background:rgb({red},{green},{blue})"></i>{html.escape(name)}</span> '
        for name, (red, green, blue) in colors.items()
    )
    n = len(idle)
    what = f"{n} more thread{'s' if n > 1 else ''} worked less than {IDLE:.1%} of the time"
    others = f"<p>{what}: {html.escape(', '.join(idle))}</p>" if n else ""
    body = f"<p>{html.escape(str(path))}: {seconds:.2f} s {legend}</p><table>{''.join(rows)}</table>{others}"
    return Picture(f"trace {path.name}", body)


def _floats(name: str, values: Any, offsets: Any) -> NDArray[np.float32]:
    """The values of a field, an array or a tensor, `[n, ...]`; bfloat16, which numpy lacks, by their bits.

    Rows that are packed, of which `offsets` are given, are padded with the lowest value.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    found = np.asarray(values)
    if found.dtype == np.uint16:
        found = (found.astype(np.uint32) << 16).view(np.float32)
    if offsets is not None and found.dtype.kind in "biuf":
        found = _unpacked(found, np.asarray(offsets))
    axes = ["batch", "bands", "frames"] if name == "spectrogram" else ["batch", "samples"]
    if found.dtype.kind not in "biufc" or found.ndim < len(axes) or 0 in found.shape[1:]:
        raise ConfigError(
            f"{name} has the shape {list(found.shape)} and the type {found.dtype}, must be numbers [{', '.join(axes)}]"
        )
    return (np.abs(found) if found.dtype.kind == "c" else found).astype(np.float32)


def _unpacked(values: NDArray[Any], offsets: NDArray[Any]) -> NDArray[Any]:
    """Rows that lie one after the other along an axis, padded with the lowest value: `[n, ...]`."""
    axis = next((axis for axis in range(values.ndim) if values.shape[axis] == offsets[-1]), None)
    if axis is None:
        raise ConfigError(f"offsets end with {offsets[-1]}, and the field has the shape {list(values.shape)}")
    rows = np.split(np.moveaxis(values, axis, 0), offsets[1:-1])
    filled = np.full(
        (len(rows), max(map(len, rows), default=0), *rows[0].shape[1:]), values.min(initial=0), values.dtype
    )
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return np.moveaxis(filled, 1, axis + 1)


def _spectrograms(values: NDArray[np.float32], is_time_first: bool | None) -> list[NDArray[np.uint8]]:
    """Pictures of `[n, ..., bands, frames]`, or, if time is first, of `[n, ..., frames, bands]`.

    `None`: there are more frames than bands. Of several channels or views the first is shown.
    """
    while values.ndim > 3:
        values = values[:, 0]
    if values.shape[1] > values.shape[2] if is_time_first is None else is_time_first:
        values = values.transpose(0, 2, 1)
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    # Padding is silence: frames whose bands all have the lowest value of their example.
    is_signal = (values > values.min(axis=(1, 2), keepdims=True)).any(axis=1) if values.size else np.zeros(0, bool)
    signal = values.transpose(0, 2, 1)[is_signal] if is_signal.any() else values
    low, high = np.percentile(signal, (5, 99.8)) if signal.size else (0.0, 1.0)
    levels = ((values - low) / max(float(high - low), 1e-6)).clip(0, 1)
    step = max(1, -(-values.shape[2] // COLUMNS))
    return [_pictures.colored(one[::-1, ::step]) for one in levels]


@dataclass(frozen=True)
class _Axes:
    """What is written around a picture."""

    seconds: float
    bottom: str
    top: str
    text: str
    is_time_first: bool = False

    def around(self, image: str) -> str:
        """The HTML of a picture with its axes: from the bottom to the top, and the time from left to right."""
        middle, end = (f"{seconds:.3g}" for seconds in (self.seconds / 2, self.seconds))
        return (
            f'<div class="axes"><div class="y"><b>{html.escape(self.top)}</b><b>{html.escape(self.bottom)}</b></div>'
            f'{image}<div class="x"><b>0</b><b>{middle}</b><b>{end} s</b></div></div><p>{html.escape(self.text)}</p>'
        )


def _axes(name: str, values: NDArray[np.float32], loader: "Loader | AudioDataset") -> _Axes:
    """The axes of the pictures of a loader's batch."""
    recipe = loader.recipe.to_dict()
    features: Any = _Part.from_dict(recipe["features"])
    rate = features.sample_rate
    if name == "waveform":
        seconds = values.shape[-1] / rate
        return _Axes(seconds, "", "", f"{seconds:g} s at {rate} Hz")
    is_time_first = features.layout != "mel"
    seconds = values.shape[-2 if is_time_first else -1] * features.hop_length / rate
    if isinstance(features, MFCC):
        bands = f"{features.n_mfcc} coefficients"
        return _Axes(seconds, "0", str(features.n_mfcc - 1), f"{seconds:.2f} s, {bands}", is_time_first)
    bands = "" if isinstance(features, Spectrogram) else f" in {features.n_mels} mel bands"
    low, high = getattr(features, "f_min", 0.0), getattr(features, "f_max", None) or rate / 2
    high = high if high > 0 else rate / 2 + high
    text = f"{seconds:.2f} s, {low:g} to {high:g} Hz{bands}"
    return _Axes(seconds, f"{low:g} Hz", f"{high:g} Hz", text, is_time_first)


def _waveforms(values: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """Pictures of `[n, ..., samples]`, each from its lowest to its highest level; of several channels the first."""
    height, pictures = 80, []
    while values.ndim > 2:
        values = values[:, 0]
    for one in values:
        levels = _pictures.peaks(one, COLUMNS)
        reach = np.maximum(levels / max(float(levels.max(initial=0.0)), 1e-9) * (height / 2), 0.5)
        pixels = np.full((height, COLUMNS, 3), 255, np.uint8)
        pixels[np.abs(np.arange(height)[:, None] + 0.5 - height / 2) <= reach] = _pictures.WAVE
        pictures.append(pixels)
    return pictures


def _value(key: str, values: Any, i: int, class_names: Sequence[str] | None) -> str | None:
    """The value of example `i` as text; None for arrays, except multi-hot labels with names, and without a value."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        values = np.asarray(values.cpu() if hasattr(values, "cpu") else values)
        values = values if values.ndim else ()
    if i >= len(values):
        return None
    value = values[i]
    if isinstance(value, str):
        return value
    value = np.asarray(value)
    if key == "label" and class_names is not None:
        if value.ndim == 1 and value.size == len(class_names):
            return ", ".join(class_names[place] for place in np.flatnonzero(value > 0).tolist()) or "none"
        if value.ndim == 0 and 0 <= value < len(class_names):
            return class_names[int(value)]
    if value.ndim:
        return None
    return f"{value:g}" if value.dtype.kind == "f" else str(value)


def _waits(name: str) -> bool:
    return name.startswith("wait")


_Span = tuple[str, float, float]
"""An activity, its begin and its end in seconds."""


def _spans(path: Path) -> tuple[dict[str, list[_Span]], float]:
    """The spans of each thread, and the seconds of the trace."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ConfigError(f"{path} has {size} bytes, more than a trace of forebay ({MOST_BYTES >> 20} MiB)")
    try:
        events = json.loads(path.read_bytes())["traceEvents"]
        order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
        names = {e["tid"]: str(e["args"]["name"]) for e in events if e["name"] == "thread_name"}

        def sort(tid: int) -> tuple[int, list[int]]:
            """By stage, and by number within it."""
            return order.get(tid, 0) // STAGE, [int(digits) for digits in re.findall(r"\d{1,9}", names[tid])]

        threads: dict[str, list[_Span]] = {names[tid]: [] for tid in sorted(names, key=sort)}
        for event in events:
            if event["ph"] == "X":
                begin = float(event["ts"]) / 1e6
                threads[names[event["tid"]]].append((str(event["name"]), begin, begin + float(event["dur"]) / 1e6))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a trace that loader.trace() has written: {type(error).__name__}") from error
    seconds = max((end for spans in threads.values() for _, _, end in spans), default=0.0)
    if not 0 < seconds < 1e6:
        raise ConfigError(f"{path} has no activity of a thread")
    return {name: spans for name, spans in threads.items() if spans}, seconds


def _row(spans: Sequence[_Span], seconds: float) -> tuple[NDArray[np.uint8], float]:
    """The pixels of a thread, `[1, TIMES, 3]`, and the share of time at work.

    A span may enclose later ones (`batch`): these are drawn over it, since they begin later, and only the rest of its
    time is its own.
    """
    pixels = np.full((1, TIMES, 3), NOTHING, np.uint8)
    held = np.zeros(TIMES)  # how much of a column its color stands for
    work = 0.0
    enclosing: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span[1], -span[2])):
        name, begin, end = span
        first, last = begin / seconds * TIMES, end / seconds * TIMES
        columns = np.arange(max(int(first), 0), min(int(last) + 1, TIMES))
        shares = np.minimum(last, columns + 1) - np.maximum(first, columns)
        is_most = shares >= np.minimum(held[columns], 0.999)
        color = WAITING if _waits(name) else COLORS.get(name, OTHER)
        pixels[0, columns[is_most]] = color
        held[columns[is_most]] = shares[is_most]
        while enclosing and enclosing[-1][2] <= begin:
            enclosing.pop()
        work += 0.0 if _waits(name) else end - begin
        if enclosing and not _waits(enclosing[-1][0]):
            work -= min(end, enclosing[-1][2]) - begin
        enclosing.append(span)
    return pixels, min(max(work / seconds, 0.0), 1.0)
