"""Pictures of recordings, from numpy alone: PNG, WAV and characters; the page of an `AudioDataset` in a notebook."""

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.fft import rfft
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forebay._core import AudioDataset

    Samples = NDArray[np.float32]
    Pixels = NDArray[np.uint8]

RANGE_DB = 80.0
"""The range of a spectrogram below its maximum, dB."""
COLORS = ((0, 0, 12), (58, 12, 96), (142, 34, 104), (216, 74, 64), (250, 156, 24), (252, 252, 190))
"""From silent to loud, at equal distances."""
WAVE = (92, 120, 200)
"""The color of a waveform."""
BARS = " ▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
PLAIN_BARS, PLAIN_SHADES = " .:-=+*#@", " .:*#"
"""The same for terminals without Unicode."""

HEARD_S = 5.0
"""The most seconds of a recording in a notebook."""
HEARD_HZ = 24_000
"""The highest rate of a recording in a notebook."""


def mono(samples: "Samples") -> "Samples":
    """The mean of the channels."""
    mean: Samples = samples.mean(axis=0, dtype=np.float32)
    return mean


def peaks(samples: "Samples", columns: int) -> "NDArray[np.float32]":
    """The largest magnitude of each of `columns` equal parts."""
    n = samples.shape[-1]
    if not n:
        return np.zeros(columns, np.float32)
    edges = np.linspace(0, n, columns + 1).astype(np.int64)
    magnitude = np.abs(samples if samples.ndim == 1 else mono(samples))
    starts = np.minimum(edges[:-1], n - 1)
    return np.maximum.reduceat(magnitude, starts)


def spectrogram(samples: "Samples", columns: int, rows: int, n_fft: int = 1024) -> "NDArray[np.float32]":
    """Levels of one channel in 0 to 1, `[rows, columns]`, the highest frequency first, up to half the rate.

    1 is the maximum, 0 is `RANGE_DB` below it, or silence. Each column is the frame in its middle.
    """
    padded = np.pad(samples.astype(np.float32), n_fft // 2)
    centers = ((np.arange(columns) + 0.5) * samples.size / columns).astype(np.int64)
    frames = padded[centers[:, None] + np.arange(n_fft)] * np.hanning(n_fft).astype(np.float32)
    power = np.abs(rfft(frames, axis=1)) ** 2
    edges = np.linspace(1, power.shape[1], rows + 1).astype(np.int64)
    bands = np.maximum.reduceat(power, np.minimum(edges[:-1], power.shape[1] - 1), axis=1)
    most = float(bands.max(initial=0.0))
    if most <= 0.0:
        return np.zeros((rows, columns), np.float32)
    levels = 10 * np.log10(np.maximum(bands / most, 10 ** (-RANGE_DB / 10)))
    return (1 + levels.T[::-1] / RANGE_DB).astype(np.float32)


def colored(levels: "NDArray[np.float32]") -> "Pixels":
    """Levels in 0 to 1 as colors, `[..., 3]`."""
    at = np.linspace(0, 1, len(COLORS))
    channels = [np.interp(levels, at, [color[channel] for color in COLORS]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def drawn(samples: "Samples", width: int = 800, height: int = 360) -> "Pixels":
    """A picture of a recording, `[height, width, 3]`: the waveform, and below it the spectrogram."""
    one = mono(samples)
    wave_rows = height // 4
    bands = colored(spectrogram(one, width, height - wave_rows))
    wave = np.full((wave_rows, width, 3), 255, np.uint8)
    reach = np.maximum(peaks(one, width).clip(0, 1) * (wave_rows / 2), 0.5)
    is_in = np.abs(np.arange(wave_rows)[:, None] + 0.5 - wave_rows / 2) <= reach
    wave[is_in] = WAVE
    return np.concatenate([wave, bands])


def png(pixels: "Pixels") -> bytes:
    """A PNG file of `[height, width, 3]`."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def wav(samples: "Samples", rate: int) -> bytes:
    """A WAV file of 16 bits, of `[channels, n_samples]`."""
    channels = samples.shape[0]
    data = (samples.T.clip(-1, 1) * 32767).round().astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def in_characters(samples: "Samples", width: int, rows: int = 12, *, is_plain: bool = False) -> list[str]:
    """The waveform in one line, and the spectrogram below it, in characters; `is_plain` for ASCII."""
    bars, shades = (PLAIN_BARS, PLAIN_SHADES) if is_plain else (BARS, SHADES)
    one = mono(samples)

    def line(levels: "NDArray[np.float32]", letters: str) -> str:
        steps = np.ceil(levels.clip(0, 1) * (len(letters) - 1)).astype(int)
        return "".join(letters[step] for step in steps)

    found = peaks(one, width)
    lines = [line(found / max(float(found.max(initial=0.0)), 1e-9), bars)]
    # The quieter half of the range would be mostly noise.
    levels = (2 * spectrogram(one, width, rows) - 1).clip(0, 1)
    return lines + [line(row, shades) for row in levels]


def uri(kind: str, data: bytes) -> str:
    """The data as an address."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def page(dataset: "AudioDataset") -> str:
    """The HTML of a dataset: its fields, and its first recording to see and hear."""
    parts = [f"<p><code>{html.escape(repr(dataset))}</code></p>", _fields(dataset.fields)]
    if len(dataset) and not dataset.closed:
        parts.append(_recording(dataset, 0))
    return "".join(parts)


def loader_page(loader: Any) -> str:
    """The HTML of a loader: what it reads, its position, what limits it, and its fields."""
    lines = [repr(loader), f"batch {loader.batch} of epoch {loader.epoch}"]
    parts = [f"<p><code>{html.escape(line)}</code></p>" for line in lines]
    if fields := getattr(loader, "fields", None):
        parts.append(_fields(fields))
    return "".join(parts)


def _fields(fields: Sequence[Any]) -> str:
    rows = []
    for field in fields:
        axes = field["shape"] or ()
        shape = " x ".join("longest" if axis is None else str(axis) for axis in axes)
        cells = (field["name"], field["dtype"], shape, field["meaning"])
        rows.append("".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells))
    head = "".join(f"<th>{name}</th>" for name in ("field", "type", "shape", "meaning"))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _recording(dataset: "AudioDataset", row: int) -> str:
    """A recording's start; a bad recording is told of, since the page has more than it."""
    from forebay._core import ForebayError

    try:
        info = dataset.info(row)
        rate = min(info["sample_rate"], HEARD_HZ)
        samples, rate = dataset.waveform(row, seconds=HEARD_S, sample_rate=rate)
    except (ForebayError, OSError) as error:
        return f"<p>row {row}: {html.escape(str(error))}</p>"
    heard = mono(samples)[None]
    told = f"row {row}: {info['codec']}, {info['sample_rate']} Hz, {info['channels']} ch, {info['seconds']:.1f} s"
    picture = uri("image/png", png(drawn(heard, 480, 200)))
    player = uri("audio/wav", wav(heard, rate))
    return (
        f"<p>{html.escape(told)}</p>"
        f"<img style='max-width:100%' alt='waveform and spectrogram of row {row}' src='{picture}'>"
        f"<br><audio controls src='{player}'></audio>"
    )
