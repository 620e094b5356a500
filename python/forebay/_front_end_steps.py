"""The steps of a front end on arrays of any framework, in the order of docs/features.md.

Input: waveforms `[rows, n_samples]` and the tables of a front end. Output: features `[rows, ...]` in float32, before
they are rounded to their type. All is arithmetic on whole arrays without a branch on values, so that it can be
compiled, exported and differentiated; sums of samples are taken twice, the second time of what the first left over, so
that float32 is enough. `Steps` has the operations that frameworks name differently.
"""

from typing import Any, Protocol

from forebay import features
from forebay._core import ConfigError
from forebay._front_end_tables import FULL_SCALE, Tables

__all__ = ["Steps", "channels", "made"]

VARIANCE_FLOOR = 1e-7
"""Added to a waveform's variance."""

FORGOTTEN = 1e-18
"""The weight below which PCEN forgets a frame of the past."""


class Steps(Protocol):
    """Operations of a framework on its arrays; axes count from 0 unless they are negative."""

    def arange(self, n: int, like: Any) -> Any:
        """Integers from 0 on, on the device of `like`."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes` or `no`, which may be a number."""

    def least(self, x: Any, number: float) -> Any:
        """The larger of each value and a number; NaN stays."""

    def clip(self, x: Any, low: Any, high: Any) -> Any:
        """Values raised to `low` and lowered to `high`; NaN stays."""

    def sum(self, x: Any, axes: tuple[int, ...]) -> Any:
        """The sum, with the axes kept."""

    def largest(self, x: Any, axes: tuple[int, ...]) -> Any:
        """The largest value, with the axes kept."""

    def take(self, x: Any, index: Any) -> Any:
        """Samples `[rows, n]` by their number: `[n]`, or `[rows, n]`."""

    def remainder(self, x: Any, by: Any) -> Any:
        """The remainder of whole numbers, 0 or more."""

    def frames(self, x: Any, span: int, hop: int, n: int) -> Any:
        """Frames `[rows, n, span]` of samples."""

    def energies(self, frames: Any, n_fft: int) -> Any:
        """Energies of the bins, `[rows, n, n_fft // 2 + 1]`; shorter frames have zeros behind."""

    def product(self, x: Any, matrix: Any) -> Any:
        """The product `[rows, n, m]` by `[m, k]`."""

    def levelled(self, x: Any) -> Any:
        """Frames less a number each, if a constant offset would otherwise leave a trace behind; else as they are."""

    def join(self, parts: list[Any], axis: int) -> Any:
        """Arrays one after the other."""

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Zeros of the type and on the device of `like`."""

    def finite(self, x: Any) -> Any:
        """Whether values are neither NaN nor infinite."""

    def log(self, x: Any) -> Any:
        """The natural logarithm."""

    def sqrt(self, x: Any) -> Any:
        """The square root."""

    def swapped(self, x: Any) -> Any:
        """With the last two axes swapped."""

    def rounded(self, x: Any) -> Any:
        """Rounded to whole numbers, ties to even."""


def channels(front_end: Any, x: Any) -> Any:
    """The channels that the front end takes of `[n_samples]`, `[batch, n_samples]` or `[batch, channels, n_samples]`.

    Works on arrays of any framework.
    """
    which, n = front_end.channels, len(x.shape)
    shape = list(x.shape)
    if which == "all":
        if n not in (2, 3):
            raise ConfigError(
                f"waveform has the shape {shape}, must be [channels, n_samples] or [batch, channels, n_samples]: the "
                'front end has channels="all"'
            )
        if front_end.n_channels not in (None, x.shape[-2]):
            raise ConfigError(f"waveform has {x.shape[-2]} channels, and n_channels is {front_end.n_channels}")
        return x
    if not 1 <= n <= 3:
        raise ConfigError(
            f"waveform has the shape {shape}, must be [n_samples], [batch, n_samples] or [batch, channels, n_samples]"
        )
    if n == 3 and shape[1] == 0:
        raise ConfigError(f"waveform has the shape {shape}, of no channels, must have 1 or more")
    if which != "mean" and which >= (shape[1] if n == 3 else 1):
        raise ConfigError(
            f"waveform has {shape[1] if n == 3 else 1} channels, and channels={which} asks for one with a higher number"
        )
    if n < 3:
        return x
    if which == "mean":
        return x.mean(-2)
    return x[:, which]


def made(steps: Steps, tables: Tables, arrays: dict[str, Any], x: Any, valid: Any = None, first: Any = None) -> Any:
    """The features of float32 waveforms `[rows, n_samples]`.

    `arrays` are those of `tables` on the device. Of row `i` the samples from `first[i]` on, `valid[i]` of them, are
    the recording; None: all, and from the first sample on.
    """
    n_samples = x.shape[-1]
    if valid is not None:
        valid = steps.clip(valid, 0, n_samples)[:, None]
        first = 0 if first is None else steps.clip(first, 0, n_samples)[:, None]
        at = steps.arange(n_samples, x)[None]
        inside = (at >= first) & (at < first + valid)
        x = steps.where(inside, x, 0.0)
        x = _conditioned(steps, tables, x, inside, steps.least(valid, 1))
    else:
        x = _conditioned(steps, tables, x, None, n_samples)
    if tables.is_waveform:
        if valid is not None and tables.padding == "excluded":
            x = steps.where(inside, x, arrays["padding"])
        return _typed(steps, tables.front_end.dtype, x)
    is_excluded = valid is not None and tables.padding == "excluded"
    return _framed(steps, tables, arrays, x, valid if is_excluded else None)


def _conditioned(steps: Steps, tables: Tables, x: Any, inside: Any, n: Any) -> Any:
    """Mean, level and scale of the `n` samples inside; the others stay 0."""
    front_end = tables.front_end
    if isinstance(x.shape[-1], int) and x.shape[-1] == 0:
        return x

    def of_samples(x: Any) -> Any:
        return x if inside is None else steps.where(inside, x, 0.0)

    how = front_end.normalize_waveform
    if front_end.remove_mean or how == "zscore":
        x = of_samples(x - steps.sum(x, (-1,)) / n)
        x = of_samples(x - steps.sum(x, (-1,)) / n)
    if how == "peak":
        sizes = steps.where(x < 0, -x, x)
        most = steps.largest(steps.where(sizes == sizes, sizes, 0.0), (-1,))
        x = x * (front_end.peak / steps.where(most > 0, most, front_end.peak))
    elif how == "zscore":
        x = x / steps.sqrt(steps.sum(x * x, (-1,)) / n + VARIANCE_FLOOR)
    if tables.is_waveform:
        return x * front_end.scale if front_end.scale != 1 else x
    if front_end.preemphasis and not isinstance(front_end, features.Fbank):
        emphasized = x[:, 1:] - front_end.preemphasis * x[:, :-1]
        x = emphasized if tables.n_dropped else steps.join([x[:, :1], emphasized], -1)
    return x


def _typed(steps: Steps, dtype: str, x: Any) -> Any:
    """Samples in the range of a narrow type; int16 as whole numbers."""
    if dtype == "float16":
        return steps.clip(x, -65504.0, 65504.0)
    if dtype == "int16":
        x = steps.clip(x * FULL_SCALE, -FULL_SCALE, FULL_SCALE - 1)
        return steps.rounded(steps.where(x == x, x, 0.0))
    return x


def _framed(steps: Steps, tables: Tables, arrays: dict[str, Any], x: Any, valid: Any) -> Any:
    """Frames, spectrum, bands, compression, length, normalization, layout. `valid` is `[rows, 1]`."""
    front_end = tables.front_end
    n_samples, wanted = x.shape[-1] + tables.n_dropped, front_end.n_frames
    # In an export the number of samples may be a symbol, of which the shape must not depend.
    is_known = isinstance(n_samples, int)
    n = wanted
    if wanted is None or is_known:
        n = tables.count(n_samples) if n_samples >= tables.fewest() else 0
        n = n if wanted is None else min(n, wanted)
    n_frames = n if wanted is None else wanted
    if isinstance(n_frames, int) and n_frames == 0:
        return _laid_out(steps, tables, steps.zeros(x, (x.shape[0], 0, tables.n_rows())))
    own = steps.arange(1, x) + x.shape[-1] if valid is None else steps.least(valid - tables.n_dropped, 0)
    real = None
    if valid is not None or (n is wanted and not is_known) or n < n_frames:
        ends = steps.where(own + tables.n_dropped >= tables.fewest(), tables.count(own + tables.n_dropped), 0)
        real = (steps.arange(n_frames, x) < ends)[..., None]
        real = real if valid is not None else real[None]
    counted = real if valid is not None and wanted is None else None
    y = _energies(steps, tables, arrays, x, steps.least(own, 1), n) if not isinstance(n, int) or n else None
    if isinstance(n, int) and n < n_frames:
        n_bands = getattr(front_end, "n_mels", tables.n_fft // 2 + 1)
        silence = steps.zeros(x, (x.shape[0], n_frames - n, n_bands))
        y = silence if y is None else steps.join([y, silence], 1)
    if real is not None:
        y = steps.where(real, y, 0.0)
    y = _compressed(steps, tables, y, real, counted)
    if "cosines" in arrays:
        y = steps.product(y, arrays["cosines"])
    if real is not None and front_end.n_frames is not None and front_end.fill != "silence":
        y = _filled(steps, front_end.fill, y, real)
    y = _normalized(steps, front_end.normalization, arrays, y, real, counted)
    if counted is not None:
        y = steps.where(counted, y, arrays["padding"])
    return _laid_out(steps, tables, y)


def _laid_out(steps: Steps, tables: Tables, y: Any) -> Any:
    return steps.swapped(y) if tables.front_end.layout == "mel" else y


def _energies(steps: Steps, tables: Tables, arrays: dict[str, Any], x: Any, own: Any, n: int) -> Any:
    """Energies or magnitudes of the bands, `[rows, n, n_bands]`, of the first `n` frames.

    `own`, `[1]` or `[rows, 1]`, is the number of samples over whose ends frames go on.
    """
    front_end, hop, span = tables.front_end, tables.hop, tables.span
    at = steps.arange((n - 1) * hop + span, x) - tables.before
    if tables.ends == "constant":
        inside = (at >= 0) & (at < own)
        x = steps.where(inside, steps.take(x, steps.where(inside, at, 0)), 0.0)
    elif tables.ends == "mirror":
        at = steps.remainder(at, 2 * own)
        x = steps.take(x, steps.where(at < own, at, 2 * own - 1 - at))
    else:
        period = 2 * (own - 1)
        at = steps.remainder(at, steps.least(period, 1))
        x = steps.take(x, steps.where(at < own, at, period - at))
    frames = steps.frames(x, span, hop, n)
    if isinstance(front_end, features.Fbank):
        if front_end.remove_dc:
            # Twice, of what the first sum left over. The mean of the whole waveform is not taken off before: that
            # would round the samples of a quieter frame to the digits of the mean.
            frames = steps.levelled(frames)
            frames = frames - steps.sum(frames, (-1,)) / span
            frames = frames - steps.sum(frames, (-1,)) / span
        if front_end.preemphasis:
            before = steps.join([frames[..., :1], frames[..., :-1]], -1)
            frames = frames - front_end.preemphasis * before
    y = steps.energies(frames * arrays["window"], tables.n_fft)
    if front_end.power == 1:
        # The slope of a root is infinite at 0.
        is_zero = y == 0
        y = steps.where(is_zero, 0.0, steps.sqrt(steps.where(is_zero, 1.0, y)))
    return steps.product(y, arrays["bands"]) if "bands" in arrays else y


def _compressed(steps: Steps, tables: Tables, y: Any, real: Any, counted: Any) -> Any:
    """The compression of energies, silence behind the end included."""
    front_end = tables.front_end
    how = front_end.compression
    if how is None:
        return y
    if isinstance(how, features.PCEN):
        return _pcen(steps, how, y)
    if isinstance(how, features.Ln) and how.eps is not None:
        return steps.log(y + how.eps)
    floor = how.amin if isinstance(how, features.Decibel) else how.floor
    y = steps.log(steps.least(y, floor))
    if tables.factor != 1:
        y = y * tables.factor
    if tables.summand != 0:
        y = y + tables.summand
    distance = how.top_db if isinstance(how, features.Decibel) else getattr(how, "range", None)
    is_relative = isinstance(how, features.Decibel) and how.reference == "max"
    if distance is None and not is_relative:
        return y
    # Silence behind the end counts, other fills do not, unless there is nothing else.
    of = counted
    if real is not None and front_end.n_frames is not None and front_end.fill != "silence":
        of = real | (_n_real(steps, y, real) == 0)
    largest = _extreme(steps, y, of)
    if distance is not None:
        lowest = largest - distance
        y = steps.where(y < lowest, lowest, y)
    return y - largest if is_relative else y


def _n_real(steps: Steps, y: Any, real: Any) -> Any:
    """The number of a row's own frames, as float32."""
    return steps.sum(steps.where(real, steps.zeros(y, (1, 1, 1)) + 1.0, 0.0), (1,))


def _extreme(steps: Steps, y: Any, of: Any, sign: float = 1.0) -> Any:
    """The largest value of each row times `sign`, NaN ignored: `[rows, 1, 1]`."""
    fits = y == y if of is None else of & (y == y)
    return steps.largest(steps.where(fits, y * sign, float("-inf")), (1, 2))


def _pcen(steps: Steps, how: Any, y: Any) -> Any:
    """Per-channel energy normalization along the frames of `[rows, n, n_bands]`.

    The mean over the past is made of means over 1, 2, 4 and more frames, so that it takes a few steps on all frames
    instead of one step for each frame.
    """
    n_rows, n, n_bands = y.shape
    keep, distance = 1.0 - how.smooth, 1
    start = y[:, :1] if how.initial is None else steps.zeros(y, (n_rows, 1, n_bands)) + how.initial
    mean = steps.join([keep * start + how.smooth * y[:, :1], how.smooth * y[:, 1:]], 1)
    while keep**distance > FORGOTTEN and (not isinstance(n, int) or distance < n):
        before = steps.join([steps.zeros(y, (n_rows, distance, n_bands)), mean], 1)[:, :n]
        mean = mean + keep**distance * before
        distance *= 2
    base = y / (how.eps + mean) ** how.gain + how.bias
    if how.bias == 0:
        # The slope of a root is infinite at 0.
        is_zero = base == 0
        return steps.where(is_zero, 0.0, steps.where(is_zero, 1.0, base) ** how.root)
    return base**how.root - how.bias**how.root


def _filled(steps: Steps, fill: Any, y: Any, real: Any) -> Any:
    """Frames behind the last one, by a number or the least value of the row."""
    if fill != "minimum":
        return steps.where(real, y, float(fill))
    least = -_extreme(steps, y, real, -1.0)
    # Without a frame of the waveform, silence stays. Of values that are all NaN the least is infinite.
    return steps.where(real | (_n_real(steps, y, real) == 0), y, least)


def _normalized(steps: Steps, how: Any, arrays: dict[str, Any], y: Any, real: Any, counted: Any) -> Any:
    if how is None:
        return y
    if isinstance(how, features.Standard):
        return (y - arrays["shift"]) * arrays["scale"]
    if isinstance(how, features.MinMax):
        low, high = -_extreme(steps, y, counted, -1.0), _extreme(steps, y, counted)
        fits = (high > low) & steps.finite(low)
        width = steps.where(fits, high - low, 1.0)
        return steps.where(fits, (y - low) / width, (y - y))
    axes, first, n_bands = ((1,), y[:, :1], 1) if how.per == "band" else ((1, 2), y[:, :1, :1], y.shape[2])
    if real is None:
        n = y.shape[1] * n_bands
        counts = max(n, 1), max(n - how.ddof, 1)
    else:
        n = _n_real(steps, y, real) * n_bands
        counts = steps.least(n, 1.0), steps.least(n - how.ddof, 1.0)

    def of_frames(y: Any) -> Any:
        return y if real is None else steps.where(real, y, 0.0)

    # Less the first value, so that constant values have the deviation 0.
    y = of_frames(y - first)
    y = of_frames(y - steps.sum(y, axes) / counts[0])
    y = of_frames(y - steps.sum(y, axes) / counts[0])
    variance = steps.sum(y * y, axes) / counts[1]
    is_zero = variance == 0
    deviation = steps.where(is_zero, 0.0, steps.sqrt(steps.where(is_zero, 1.0, variance))) + how.eps
    return steps.where(deviation == 0, y - y, y / steps.where(deviation == 0, 1.0, deviation))
