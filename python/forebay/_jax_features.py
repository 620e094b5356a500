"""`forebay.jax.features`: a front end of `forebay.features` as a pure function of JAX."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from forebay import _front_end_steps as front_end_steps
from forebay._checks import wrong_type
from forebay._core import ConfigError
from forebay._front_end_tables import FULL_SCALE, Padding, tables

__all__ = ["features"]

BLOCK = 512
"""Values that are summed one after the other; longer sums in float32 would lose digits."""


class _Steps:
    """The operations of `forebay._front_end_steps` in JAX."""

    def arange(self, n: int, like: Any) -> Any:  # noqa: ARG002
        return jnp.arange(n)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return jnp.where(condition, yes, no)

    def least(self, x: Any, number: float) -> Any:
        return jnp.maximum(x, number)

    def clip(self, x: Any, low: Any, high: Any) -> Any:
        return jnp.clip(x, low, high)

    def sum(self, x: Any, axes: tuple[int, ...]) -> Any:
        if axes == (-1,) and x.shape[-1] > BLOCK:
            padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % BLOCK)])
            x = jnp.sum(padded.reshape(*x.shape[:-1], padded.shape[-1] // BLOCK, BLOCK), axis=-1)
        return jnp.sum(x, axis=axes, keepdims=True)

    def largest(self, x: Any, axes: tuple[int, ...]) -> Any:
        return jnp.max(x, axis=axes, keepdims=True)

    def take(self, x: Any, index: Any) -> Any:
        if index.ndim == 1:
            return jnp.take(x, index, axis=-1)
        return jnp.take_along_axis(x, jnp.broadcast_to(index, (x.shape[0], index.shape[1])), axis=-1)

    def remainder(self, x: Any, by: Any) -> Any:
        return jnp.remainder(x, by)

    def frames(self, x: Any, span: int, hop: int, n: int) -> Any:
        return jnp.take(x, np.arange(n)[:, None] * hop + np.arange(span), axis=-1)

    def energies(self, frames: Any, n_fft: int) -> Any:
        bins = jnp.fft.rfft(frames, n=n_fft)
        return bins.real * bins.real + bins.imag * bins.imag

    def product(self, x: Any, matrix: Any) -> Any:
        return x @ matrix

    def levelled(self, x: Any) -> Any:
        # XLA computes a mean once more where it subtracts it, with other roundings. The middle of the range has
        # none.
        return x - (jnp.max(x, axis=-1, keepdims=True) + jnp.min(x, axis=-1, keepdims=True)) * 0.5

    def join(self, parts: list[Any], axis: int) -> Any:
        return jnp.concatenate(parts, axis=axis)

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        return jnp.zeros(shape, like.dtype)

    def finite(self, x: Any) -> Any:
        return jnp.isfinite(x)

    def log(self, x: Any) -> Any:
        return jnp.log(x)

    def sqrt(self, x: Any) -> Any:
        return jnp.sqrt(x)

    def swapped(self, x: Any) -> Any:
        return jnp.swapaxes(x, -1, -2)

    def rounded(self, x: Any) -> Any:
        return jnp.round(x)


def features(
    front_end: Any, *, padding: Padding = "excluded", pad_value: float | None = None
) -> Callable[..., jax.Array]:
    """A pure function of arrays that computes what a loader with this front end gives, and that `jax.jit` compiles.

    >>> import forebay.jax
    >>> whisper = jax.jit(forebay.jax.features("whisper"))  # doctest: +SKIP
    >>> whisper(batch["waveform"], batch["valid_samples"])  # doctest: +SKIP

    `front_end` is the name of a preset, or an object of `forebay.features`. The function takes waveforms `[n_samples]`,
    `[batch, n_samples]` or `[batch, channels, n_samples]` at its `sample_rate`: float32, float16 or bfloat16 of full
    scale 1, or int16 of full scale 32768; then `valid_samples` `[batch]`, the samples of each row that are not padding,
    and, for `padding="included"`, `first_valid` `[batch]`, the zeros in front of each row's recording. It returns the
    features with the front end's shape, layout and dtype, within the errors of docs/features.md. `padding` and
    `pad_value` are those of `forebay.torch.Features`. Nothing is random.

    Computation is in float32. Devices whose products of matrices are in fewer bits, such as TPUs, need
    `jax.default_matmul_precision("float32")` for these errors.
    """
    found = tables(front_end, padding, pad_value)
    dtype = jnp.dtype(getattr(jnp, found.front_end.dtype))

    def computed(waveform: Any, valid_samples: Any = None, first_valid: Any = None) -> jax.Array:
        kind = getattr(waveform, "dtype", None)
        if kind is None or str(kind) not in ("float32", "float16", "bfloat16", "float64", "int16"):
            named = type(waveform).__name__ if kind is None else kind
            raise TypeError(f"waveform is {named}, must be an array of float32, float16, bfloat16 or int16")
        x = jnp.asarray(waveform).astype(jnp.float32)
        if kind == "int16":
            x = x * (1 / FULL_SCALE)
        x = front_end_steps.channels(found.front_end, x)
        rows, n_samples = x.shape[:-1], x.shape[-1]
        valid = _counts("valid_samples", valid_samples, waveform, rows)
        first = _counts("first_valid", first_valid, waveform, rows)
        if first is not None and (valid is None or padding == "excluded"):
            raise ConfigError('first_valid needs valid_samples and padding="included"')
        arrays = dict(found.arrays)
        y = front_end_steps.made(_Steps(), found, arrays, x.reshape(math.prod(rows), n_samples), valid, first)
        typed: jax.Array = y.astype(dtype).reshape(*rows, *y.shape[1:])
        return typed

    return computed


def _counts(name: str, given: Any, waveform: Any, rows: tuple[int, ...]) -> Any:
    """The counts of each row of a batch, for each channel."""
    if given is None:
        return None
    if getattr(getattr(given, "dtype", None), "kind", "") not in ("i", "u"):
        raise wrong_type(name, "an array of integers", given)
    if len(waveform.shape) == 1 or given.shape != waveform.shape[:1]:
        raise ConfigError(
            f"{name} has the shape {list(given.shape)}, must be [batch] beside a waveform of shape [batch, ...], which "
            f"is {list(waveform.shape)}"
        )
    counts = jnp.asarray(given).astype(jnp.int32)[:, None]
    return jnp.broadcast_to(counts, (rows[0], rows[1] if len(rows) > 1 else 1)).reshape(-1)
