"""`forebay.torch.Features`: a front end of `forebay.features` as a module of torch."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from forebay import _front_end_steps as front_end_steps
from forebay._checks import shown, wrong_type
from forebay._core import ConfigError
from forebay._front_end_tables import FULL_SCALE, Padding, tables
from forebay._torch_constants import Constants
from forebay._torch_packed import PackedRows

__all__ = ["Features"]

_TYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int16}


MOST_BY_MATMUL = 4096
"""The largest `n_fft` of `dft="matmul"`, whose matrix then has 67 MB."""


class _Steps:
    """The operations of `forebay._front_end_steps` in torch."""

    def __init__(self, basis: Any = None) -> None:
        self._basis = basis

    def arange(self, n: int, like: Any) -> Any:
        return torch.arange(n, device=like.device)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return torch.where(condition, yes, no)

    def least(self, x: Any, number: float) -> Any:
        return torch.clamp(x, min=number)

    def clip(self, x: Any, low: Any, high: Any) -> Any:
        return torch.clamp(x, low, high)

    def sum(self, x: Any, axes: tuple[int, ...]) -> Any:
        return torch.sum(x, dim=axes, keepdim=True)

    def largest(self, x: Any, axes: tuple[int, ...]) -> Any:
        return torch.amax(x, dim=axes, keepdim=True)

    def take(self, x: Any, index: Any) -> Any:
        if index.dim() == 1:
            return torch.index_select(x, -1, index)
        return torch.gather(x, -1, index.expand(x.shape[0], -1))

    def remainder(self, x: Any, by: Any) -> Any:
        return torch.remainder(x, by)

    def frames(self, x: Any, span: int, hop: int, n: int) -> Any:
        return x.unfold(-1, span, hop)[:, :n]

    def energies(self, frames: Any, n_fft: int) -> Any:
        if self._basis is None:
            return _by_row(lambda frames: _energies(torch.view_as_real(torch.fft.rfft(frames, n=n_fft))), frames)
        real, imaginary = torch.chunk(self.product(frames, self._basis), 2, dim=-1)
        return real * real + imaginary * imaginary

    def product(self, x: Any, matrix: Any) -> Any:
        return _by_row(lambda x: x @ matrix, x)

    def levelled(self, x: Any) -> Any:
        return x

    def join(self, parts: list[Any], axis: int) -> Any:
        return torch.cat(parts, dim=axis)

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def finite(self, x: Any) -> Any:
        return torch.isfinite(x)

    def log(self, x: Any) -> Any:
        return torch.log(x)

    def sqrt(self, x: Any) -> Any:
        return torch.sqrt(x)

    def swapped(self, x: Any) -> Any:
        return torch.transpose(x, -1, -2)

    def rounded(self, x: Any) -> Any:
        return torch.round(x)


def _energies(bins: Any) -> Any:
    """The squares of complex numbers, whose last axis is that of their parts."""
    return torch.sum(bins * bins, dim=-1)


def _by_row(function: Callable[[Any], Any], x: Any) -> Any:
    """The function of all rows.

    Of a single one without its axis: otherwise torch joins the axes of rows and frames, and a program that is exported
    for one row would be for that number of frames only.
    """
    if isinstance(x.shape[0], int) and x.shape[0] == 1:
        return function(x[0])[None]
    return function(x)


class Features(Constants):
    """A front end of `forebay.features` as a module: what a loader with it gives, of waveforms on any device.

    >>> import forebay.torch
    >>> whisper = forebay.torch.Features("whisper").to("cuda")  # doctest: +SKIP
    >>> whisper(batch["waveform"], batch["valid_samples"])  # doctest: +SKIP

    A call takes waveforms `[n_samples]`, `[batch, n_samples]` or `[batch, channels, n_samples]` at the front end's
    `sample_rate`: float32, float16 or bfloat16 of full scale 1, or int16 of full scale 32768. It returns the features
    with the front end's shape, layout and dtype; `channels="all"` keeps an axis of channels, as in a loader. The field
    `parts` has recordings where this has channels: give `parts.flatten(0, 1)`. It equals the Rust front end within the
    errors of docs/features.md. There is no dither and nothing random.

    `valid_samples`, int64 `[batch]`, is the loader's field of this name: the samples of each row that are not padding.
    Larger numbers are as the row's length, since a check would wait for the device.

    `offsets`, int32 or int64 `[batch + 1]`, is that of a batch with `packed=True`, whose waveforms are one after the
    other along the samples, `[total]` or `[channels, total]`. The call returns the features packed along their frames,
    as a loader of them gives, and their offsets, int32 on the same device. Rows are padded to the longest inside, so
    memory is that of a padded batch. Lengths decide shapes: with `offsets` on a device it is waited for, and a compiled
    graph breaks; with `offsets` on the CPU nothing is waited for.

    Constants are buffers that `to(device)` moves and no state dict has, since the front end defines them: keep
    `front_end.to_dict()` beside a checkpoint. They and the computation stay float32 under `half()`, `bfloat16()` and
    autocast; give the front end `dtype="float16"` for output of that type. Products in TF32, as
    `torch.set_float32_matmul_precision("high")` allows them on CUDA, have 10 bits: energies are off by up to 1e-3 of
    themselves. The module can be compiled (`fullgraph=True`), exported and differentiated.

    Parameters
    ----------
    front_end : str or object of forebay.features
        The name of a preset, or an object.
    padding : str
        What padding is in a batch with `valid_samples`. `"excluded"`: each row is a recording of its own length, and
        frames behind its end are padding, as in a loader with `crop=Whole()`. `"included"`: rows are clips of one
        length, padding with zeros is a part of them, and only mean, peak and deviation of the waveform leave it out, as
        in a loader with `clip_seconds`.
    pad_value : float or None
        The value of padding, as `Whole(pad_value=)`. None: zeros in a waveform, frames of silence in a spectrogram, and
        zeros if a frame depends on the others.
    dft : str
        `"fft"`, or `"matmul"`: a product with a matrix of `win_length` by `n_fft + 2` values, for runtimes without an
        FFT. It takes `n_fft / log2(n_fft)` times the operations, and an `n_fft` of at most 4096. `"auto"` is `"fft"`,
        but `"matmul"` in an export to ONNX with an `n_fft` up to 4096 that is no power of two, such as 400: there the
        operator `DFT` of onnxruntime has errors of up to 2e-2 of the logarithm.

    """

    def __init__(
        self,
        front_end: Any,
        *,
        padding: Padding = "excluded",
        pad_value: float | None = None,
        dft: Literal["auto", "fft", "matmul"] = "auto",
    ) -> None:
        super().__init__()
        if dft not in ("auto", "fft", "matmul"):
            raise ConfigError(f'dft is {shown(dft)}, must be "auto", "fft" or "matmul"')
        self._tables = tables(front_end, padding, pad_value)
        self.front_end = self._tables.front_end
        arrays = dict(self._tables.arrays)
        if dft == "matmul" and not self._tables.is_waveform:
            if self._tables.n_fft > MOST_BY_MATMUL:
                raise ConfigError(
                    f'dft is "matmul", which takes an n_fft of at most {MOST_BY_MATMUL}, and n_fft is '
                    f'{self._tables.n_fft}: its matrix grows with the square; use dft="fft"'
                )
            arrays["basis"] = self._tables.basis()
        self._hold(arrays)
        self._names = tuple(arrays)
        n_fft = 1 if self._tables.is_waveform else self._tables.n_fft
        self._is_matmul_in_onnx = dft == "auto" and n_fft & (n_fft - 1) != 0 and n_fft <= MOST_BY_MATMUL
        self._dtype = getattr(torch, self.front_end.dtype)

    def shape(self, n_samples: int) -> tuple[int, ...]:
        """The shape of the features of a waveform of `n_samples`."""
        shape: tuple[int, ...] = self.front_end.shape(n_samples)
        return shape

    def extra_repr(self) -> str:
        """The front end."""
        return repr(self.front_end)

    def forward(self, waveform: Any, valid_samples: Any = None, first_valid: Any = None, *, offsets: Any = None) -> Any:
        """The features of waveforms; with `offsets` a pair, the features and their offsets.

        `first_valid`, int64 `[batch]`, is for `padding="included"`: the zeros in front of each row's recording, as
        `crops.Center` puts them there.
        """
        if offsets is not None:
            return self._of_packed(waveform, valid_samples, first_valid, offsets)
        if not isinstance(waveform, torch.Tensor) or waveform.dtype not in _TYPES:
            found = waveform.dtype if isinstance(waveform, torch.Tensor) else type(waveform).__name__
            raise TypeError(f"waveform is {found}, must be a tensor of float32, float16, bfloat16 or int16")
        x = waveform.to(torch.float32)
        if waveform.dtype == torch.int16:
            x = x * (1 / FULL_SCALE)
        x = front_end_steps.channels(self.front_end, x)
        rows, n_samples = x.shape[:-1], x.shape[-1]
        if len(rows) != 1:  # a reshape to the same shape would be a condition of an export
            x = x.reshape(math.prod(rows), n_samples)
        valid = self._counts("valid_samples", valid_samples, waveform, rows)
        first = self._counts("first_valid", first_valid, waveform, rows)
        if first is not None and (valid is None or self._tables.padding == "excluded"):
            raise ConfigError('first_valid needs valid_samples and padding="included"')
        kind = x.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                y = self._computed(x, valid, first)
        else:
            y = self._computed(x, valid, first)
        y = y.to(self._dtype)
        return y if len(rows) == 1 else y.reshape(*rows, *y.shape[1:])

    def _of_packed(self, waveform: Any, valid_samples: Any, first_valid: Any, offsets: Any) -> tuple[Any, Any]:
        """The features of rows one after the other, packed, and their offsets."""
        if valid_samples is not None or first_valid is not None:
            raise ConfigError("valid_samples and first_valid are of padded rows, and offsets of packed ones: give one")
        if self._tables.padding != "excluded" or getattr(self.front_end, "n_frames", None) is not None:
            raise ConfigError(
                'offsets is for recordings of their own lengths, with padding="excluded" and a front end without '
                "n_frames"
            )
        if not isinstance(waveform, torch.Tensor):
            raise TypeError(f"waveform is {type(waveform).__name__}, must be a tensor of float32, float16 or int16")
        is_of_channels = self.front_end.channels == "all" or waveform.dim() == 2
        if waveform.dim() != (2 if is_of_channels else 1):
            raise ConfigError(
                f"waveform has the shape {list(waveform.shape)}, must be [total] or [channels, total] beside offsets"
            )
        rows = PackedRows(offsets, waveform.shape[-1], "samples of the waveforms", waveform.device)
        lengths = rows.lengths
        features = self(rows.padded(waveform, waveform.dim() - 1), rows.moved(lengths))
        if self._tables.is_waveform:
            counts = lengths
        else:
            counts = np.where(lengths >= self._tables.fewest(), self._tables.count(lengths), 0)
        is_last = self._tables.is_waveform or self.front_end.layout == "mel"
        packed = rows.packed(features, features.dim() - (2 if is_last else 3), counts)
        return packed, rows.moved(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    def _computed(self, x: Any, valid: Any, first: Any) -> Any:
        arrays = {name: getattr(self, name) for name in self._names}
        basis = arrays.get("basis")
        if self._is_matmul_in_onnx and torch.onnx.is_in_onnx_export():
            basis = torch.from_numpy(self._tables.basis()).to(x.device)
        return front_end_steps.made(_Steps(basis), self._tables, arrays, x, valid, first)

    def _counts(self, name: str, given: Any, waveform: Any, rows: tuple[int, ...]) -> Any:
        """The counts of each row of a batch, for each channel."""
        if given is None:
            return None
        if not isinstance(given, torch.Tensor) or given.dtype not in (torch.int64, torch.int32):
            raise wrong_type(name, "a tensor of int64", given)
        if waveform.dim() == 1 or given.shape != waveform.shape[:1]:
            raise ConfigError(
                f"{name} has the shape {list(given.shape)}, must be [batch] beside a waveform of shape [batch, ...], "
                f"which is {list(waveform.shape)}"
            )
        return given.to(torch.int64)[:, None].expand(rows[0], rows[1] if len(rows) > 1 else 1).reshape(-1)
