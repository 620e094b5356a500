"""`forebay.torch.Augment`: steps of `forebay.augment` on features and on pairs, on any device, as in a loader."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from forebay import augment
from forebay._checks import wrong_type
from forebay._core import ConfigError, _augment_numbers
from forebay._front_end_tables import Padding, tables
from forebay._torch_constants import Constants
from forebay._torch_packed import PackedRows

__all__ = ["Augment"]


class Augment(Constants):
    """`SpecAugment`, `FrameRoll`, `Mixup` and `CutMix` of features on any device, with the draws of a loader.

    >>> import forebay.torch
    >>> from forebay.augment import Mixup, SpecAugment
    >>> augment = forebay.torch.Augment([SpecAugment(), Mixup(0.4)], "birdset")

    A loader of waveforms with `outputs=["augment_bits"]` gives the random bits of each clip, which follow from its
    seed, the epoch and the example. `draw`, on the CPU, makes of them what each step draws, in Rust, as the loader's
    workers do; the module applies it to the features where they are, and nothing waits for the device. Pairs also need
    the output `"slot"`: rows are a pair by where they were drawn, whatever bad records a pass has left out.

    >>> compute = forebay.torch.Features("birdset").to("cuda")  # doctest: +SKIP
    >>> for batch in forebay.torch.DevicePrefetcher(loader, "cuda", prepare=augment.draw):  # doctest: +SKIP
    ...     spectrogram = augment(compute(batch["waveform"]), batch["augment_draws"])
    ...     weight, partner = augment.pairs(batch["augment_draws"])

    Masks, rolls, pairs and weights are those of a loader with these features and `augment=` these steps; values are
    equal within rounding, and those of the features. Steps on features run in their order, then steps on pairs. Steps
    on waveforms are the loader's. The module can be compiled (`fullgraph=True`) and differentiated. It does not depend
    on `training`: call it for training alone.

    Parameters
    ----------
    steps : list of objects of forebay.augment
        As for a loader, of the four classes, and `OneOf` of them. A `OneOf` draws as the first one of a loader's list:
        have one on one of the two sides only.
    front_end : str or object of forebay.features
        Of what the features are: the name of a preset, or an object.
    padding : str
        As that of the `Features`: `"excluded"`, each row is a recording of its own length, as with `crop=Whole()`;
        `"included"`, rows are clips of one length.

    """

    def __init__(self, steps: Iterable[Any], front_end: Any, *, padding: Padding = "excluded") -> None:
        super().__init__()
        made = tables(front_end, padding)
        if made.is_waveform:
            raise ConfigError(
                "front_end is a Waveform, must have frames: steps on waveforms, and Mixup and CutMix of them, are "
                "those of a loader"
            )
        if isinstance(steps, str | Mapping) or not isinstance(steps, Iterable):
            raise wrong_type("steps", "a list of objects of forebay.augment", steps)
        self.steps = tuple(steps)
        self.front_end = made.front_end
        self._padding = padding
        none = np.zeros(0, np.int64)
        self._n_numbers = _augment_numbers(
            self.steps, self.front_end, none, slots=none, first=none, valid=none, n_samples=none, padded=0
        ).shape[1]
        each = tuple(augment._each(self.steps))
        self._on_features = tuple(step for step in each if augment._is_on_features(step))
        self._on_pairs = tuple(step for step in each if not augment._is_on_features(step))
        if any(getattr(step, "fill", None) == "silence" for step in each) and not made.is_by_frame:
            raise ConfigError(
                'steps has SpecAugment with fill="silence", and the features of a frame depend on the other frames; '
                'use fill="minimum"'
            )
        self._hold({"silence": made.arrays["padding"]})
        self._is_time_last = self.front_end.layout == "mel"
        self._n_bands = made.n_rows()
        self._n_axes = 4 if self.front_end.channels == "all" else 3

    def extra_repr(self) -> str:
        """The steps and the front end."""
        return f"{list(self.steps)!r}, {self.front_end!r}"

    def draw(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the field `augment_draws`, what the steps draw for its rows: float64 `[batch, ...]`.

        `batch` is that of a loader, in numpy or as tensors on the CPU: `waveform`; `augment_bits`; `slot`, for steps on
        pairs; `valid_samples`, if rows have padding; `start`, if zeros come first, with `padding="included"`,
        and `speed`, if the loader has `Speed`; `offsets`, if it is packed. Leave rows out before `draw`, not after it:
        partners are numbers of rows. Leave `valid_samples` out where the loader counts padding as a part of the clip:
        where it repeats a short recording, or after `Noise`, `Mix` and `Reverb`. With `crop=Views(n)` the draws are
        `[batch, n, ...]`.
        """
        if not isinstance(batch, Mapping):
            raise wrong_type("batch", "a batch of a loader, a dict", batch)
        needed = ["augment_bits", "slot"] if self._on_pairs else ["augment_bits"]
        missing = [name for name in ("waveform", *needed) if name not in batch]
        if missing:
            raise ConfigError(
                f"batch has no {missing[0]!r}: a loader of waveforms gives it, with features=Waveform(...) and "
                f"outputs={json.dumps(needed)}"
            )
        bits = _array("augment_bits", batch["augment_bits"])
        if bits.ndim > 1 and self._on_pairs:
            name = type(self._on_pairs[0]).__name__
            raise ConfigError(
                f"augment_bits has the shape {list(bits.shape)}, of crop=Views(), and {name} mixes whole examples: "
                "leave one of them out"
            )
        n, lengths, first, valid = self._places(batch, bits.shape)
        slots = np.zeros(bits.shape, np.int64)
        if self._on_pairs:
            slots = _array("slot", batch["slot"], bits.shape)
            if (slots < 0).any() or len(np.unique(slots)) != slots.size:
                raise ConfigError(
                    "slot has negative or equal numbers, must be the places where rows were drawn, each once: give the "
                    "loader's output of this name, of one batch"
                )
        each = [np.ascontiguousarray(array).reshape(-1) for array in (bits, slots, first, valid, lengths)]
        draws = _augment_numbers(
            self.steps, self.front_end, each[0], slots=each[1], first=each[2], valid=each[3], n_samples=each[4],
            padded=n,
        )  # fmt: skip
        draws = draws.reshape(*bits.shape, self._n_numbers)
        is_torch = isinstance(batch["augment_bits"], torch.Tensor)
        return {**batch, "augment_draws": torch.from_numpy(draws) if is_torch else draws}

    def _places(self, batch: Mapping[str, Any], rows: tuple[int, ...]) -> tuple[int, Any, Any, Any]:
        """The samples of the longest row; of each row its samples, the zeros before its recording, and behind those."""
        shape = getattr(batch["waveform"], "shape", None)
        if shape is None:
            raise wrong_type("waveform", "an array or a tensor", batch["waveform"])
        if "offsets" in batch:
            offsets = _array("offsets", batch["offsets"], (rows[0] + 1,))
            lengths = np.diff(offsets)
            if offsets[0] != 0 or offsets[-1] != shape[-1] or (lengths < 0).any():
                raise ConfigError(
                    f"offsets begins with {offsets[0]} and ends with {offsets[-1]}, must rise from 0 to the "
                    f"{shape[-1]} samples of the waveforms"
                )
            return int(lengths.max(initial=0)), lengths, np.zeros(rows, np.int64), lengths
        if len(shape) <= len(rows) or tuple(shape[: len(rows)]) != rows:
            raise _other_batch("waveform", shape, rows)
        n = shape[-1]
        lengths, first = np.full(rows, n, np.int64), np.zeros(rows, np.int64)
        if "valid_samples" not in batch:
            return n, lengths, first, lengths
        valid = _array("valid_samples", batch["valid_samples"], rows)
        if self._padding == "excluded":
            return n, valid, first, valid
        if "start" in batch:
            seconds = -_array("start", batch["start"], rows, np.float64)
            if "speed" in batch:
                # Of a recording that is played faster, the zeros are fewer.
                seconds = seconds / _array("speed", batch["speed"], rows, np.float64)
            if not np.isfinite(seconds).all():
                raise ConfigError(
                    "start or speed has NaN or infinite numbers, must be seconds and factors: give the loader's outputs"
                )
            first = np.maximum(0, np.rint(seconds * self.front_end.sample_rate)).astype(np.int64)
        return n, lengths, first, valid

    def forward(self, features: Any, draws: Any, *, offsets: Any = None) -> Any:
        """The features, float32, float16 or bfloat16, changed by `draws`, the batch's `augment_draws` beside them.

        `offsets`, int32 or int64 `[batch + 1]`, is that of packed features, as `Features` returns both. Rows are padded
        inside, as those of `Features`; on a device, offsets are waited for. Pairs are those of padded rows alone.
        """
        if not isinstance(features, torch.Tensor) or not features.is_floating_point():
            found = features.dtype if isinstance(features, torch.Tensor) else type(features).__name__
            raise TypeError(f"features is {found}, must be a tensor of float32, float16 or bfloat16")
        if offsets is not None:
            return self._of_packed(features, draws, offsets)
        if features.dim() != self._n_axes:
            axes = ["n_mels", "n_frames"] if self._is_time_last else ["n_frames", "n_mels"]
            shape = ", ".join(["batch", *(["channels"] if self._n_axes == 4 else []), *axes])
            raise ConfigError(f"features have the shape {list(features.shape)}, must be [{shape}]")
        found = {"n_mels": features.shape[-2 if self._is_time_last else -1]}
        wanted = {"n_mels": self._n_bands}
        if self.front_end.n_frames is not None:
            found["n_frames"] = features.shape[-1 if self._is_time_last else -2]
            wanted["n_frames"] = self.front_end.n_frames
        if found != wanted:
            raise ConfigError(
                f"features have {found}, and the front end of this Augment makes {wanted}: give both the same front end"
            )
        self._check(draws)
        if draws.shape[0] != features.shape[0]:
            raise ConfigError(f"draws are of {draws.shape[0]} rows, and features have {features.shape[0]}")
        dtype = features.dtype
        x = features.to(torch.float32)
        x = x if self._n_axes == 4 else x[:, None]
        x = x if self._is_time_last else x.transpose(-1, -2)

        def rounded(x: Any) -> Any:
            return x.to(dtype).to(torch.float32)

        kind = x.device.type
        with torch.autocast(kind, enabled=False):
            at = 2
            for step in self._on_features:
                if isinstance(step, augment.SpecAugment):
                    if step.warp:
                        x = rounded(_warped(x, draws, at))
                    x = rounded(self._masked(step, x, draws, at))
                    at += 4 + 2 * (step.n_freq + step.n_time)
                else:
                    x = _rolled(x, draws, draws[:, at + 1])
                    at += 2
            for _ in self._on_pairs:
                x = rounded(_exchanged(x, draws[:, at : at + 5], _partners(draws)))
                at += 5
        x = x if self._is_time_last else x.transpose(-1, -2)
        x = x if self._n_axes == 4 else x[:, 0]
        return x.to(dtype).contiguous()

    def _of_packed(self, features: Any, draws: Any, offsets: Any) -> Any:
        """Features of rows one after the other, along their frames."""
        if self._on_pairs:
            name = type(self._on_pairs[0]).__name__
            raise ConfigError(
                f"offsets is of packed features, and {name} mixes rows of one shape: pad them, or leave it out"
            )
        axis = self._n_axes - 2 - (0 if self._is_time_last else 1)
        if features.dim() != self._n_axes - 1:
            axes = ["n_mels", "total"] if self._is_time_last else ["total", "n_mels"]
            shape = ", ".join([*(["channels"] if self._n_axes == 4 else []), *axes])
            raise ConfigError(f"features have the shape {list(features.shape)}, must be [{shape}] beside offsets")
        rows = PackedRows(offsets, features.shape[axis], "frames of the features", features.device)
        return rows.packed(self(rows.padded(features, axis), draws), axis, rows.lengths)

    def pairs(self, draws: Any) -> tuple[Any, Any]:
        """The weight of each row itself after mixing, float64 `[batch]`, and the row it is mixed with, int64 `[batch]`.

        A row that is not mixed has the weight 1 and itself. For mixed targets: `weight[:, None] * target +
        (1 - weight[:, None]) * target[partner]`, the loss of classes `weight * loss(label) + (1 - weight) *
        loss(label[partner])`.
        """
        self._check(draws)
        own = torch.arange(draws.shape[0], device=draws.device)
        if not self._on_pairs:
            return torch.ones(draws.shape[0], dtype=torch.float64, device=draws.device), own
        share = draws[:, -1]
        return 1.0 - share, torch.where(share > 0, _partners(draws), own)

    def _check(self, draws: Any) -> None:
        if not isinstance(draws, torch.Tensor) or draws.dtype != torch.float64:
            found = draws.dtype if isinstance(draws, torch.Tensor) else type(draws).__name__
            raise TypeError(f"draws is {found}, must be a tensor of float64, the field augment_draws of a batch")
        if draws.dim() != 2 or draws.shape[1] != self._n_numbers:
            raise ConfigError(
                f"draws has the shape {list(draws.shape)}, must be [batch, {self._n_numbers}] for these steps: they "
                "are of another Augment, or of views, whose rows are flatten(0, 1)"
            )
        # Elsewhere an index out of range is the device's own error, and nothing waits.
        if self._on_pairs and draws.shape[0] and draws.device.type == "cpu" and not torch.compiler.is_compiling():
            last = int(draws[:, -2].max())
            if last >= draws.shape[0]:
                raise ConfigError(
                    f"draws has a partner in row {last}, and there are {draws.shape[0]} rows: rows were left out after "
                    "draw; leave them out of the batch first, its slot included, then draw"
                )

    def _masked(self, step: augment.SpecAugment, x: Any, draws: Any, at: int) -> Any:
        """Masks over bands, then over frames, of `[batch, channels, bands, frames]`."""
        bands, frames = _arange(x, -2), _arange(x, -1)
        begin = at + 4 + 2 * step.n_freq
        over = _inside(frames, draws[:, at + 2 : at + 4])
        of_bands = _inside(bands, draws[:, at + 4 : begin])
        of_frames = _inside(frames, draws[:, begin : begin + 2 * step.n_time])
        is_masked = (of_bands[:, :, None] & over[:, None]) | of_frames[:, None]
        is_valid = _valid(x, draws)[:, None, None]
        if step.fill == "silence":
            fill = self.silence[:, None]
        elif step.fill == "mean":
            n = (draws[:, 1] * x.shape[-2]).clamp(min=1)[:, None, None, None]
            summed = torch.where(is_valid, x, 0.0).sum((-1, -2), keepdim=True, dtype=torch.float64)
            fill = (summed / n).to(torch.float32)
        elif step.fill == "minimum":
            least = torch.where(is_valid, x, torch.inf).amin((-1, -2), keepdim=True)
            fill = torch.where(draws[:, 1, None, None, None] > 0, least, 0.0)
        else:
            return torch.where(is_masked[:, None], float(step.fill), x)
        return torch.where(is_masked[:, None], fill, x)


def _array(name: str, given: Any, shape: tuple[int, ...] | None = None, dtype: Any = np.int64) -> Any:
    """A field of a batch in numpy, of whole numbers or, with `dtype=np.float64`, of numbers."""
    if isinstance(given, torch.Tensor):
        if given.device.type != "cpu":
            raise ConfigError(
                f"{name} is on {given.device}, must be on the CPU: draw before the copy, by "
                'DevicePrefetcher(loader, "cuda", prepare=augment.draw)'
            )
        given = given.detach().numpy()
    if not isinstance(given, np.ndarray):
        raise wrong_type(name, "an array or a tensor of numbers", given)
    kinds, expected = ("i", "int64") if dtype is np.int64 else ("if", "float64")
    if given.dtype.kind not in kinds:
        raise TypeError(f"{name} is an array of {given.dtype}, must be of {expected}, as a loader gives it")
    if shape is not None and given.shape != shape:
        raise _other_batch(name, given.shape, shape)
    return np.ascontiguousarray(given, dtype)


def _other_batch(name: str, shape: Any, rows: tuple[int, ...]) -> ConfigError:
    if name == "offsets":
        return ConfigError(f"offsets has the shape {list(shape)}, must be {list(rows)}, [batch + 1] of augment_bits")
    return ConfigError(
        f"{name} has the shape {list(shape)}, and augment_bits {list(rows)}: they are of different batches"
    )


def _arange(x: Any, axis: int) -> Any:
    return torch.arange(x.shape[axis], device=x.device)


def _inside(places: Any, ranges: Any) -> Any:
    """Of each row, whether each place is in one of the ranges `[batch, 2 * ranges]`: `[batch, places]`."""
    begin, end = ranges[:, 0::2, None], ranges[:, 1::2, None]
    return ((places >= begin) & (places < end)).any(1)


def _valid(x: Any, draws: Any) -> Any:
    """Whether frames are no padding, `[batch, frames]`."""
    first = draws[:, 0:1]
    frames = _arange(x, -1)
    return (frames >= first) & (frames < first + draws[:, 1:2])


def _taken(x: Any, frames: Any) -> Any:
    """Frames by their numbers `[batch, frames]`."""
    index = frames.to(torch.int64).clamp(0, max(x.shape[-1] - 1, 0))[:, None, None]
    return torch.gather(x, -1, index.expand(x.shape))


def _warped(x: Any, draws: Any, at: int) -> Any:
    """With the frames before a place stretched or compressed to another, and those behind it."""
    first, n, begin, end = draws[:, 0:1], draws[:, 1:2], draws[:, at : at + 1], draws[:, at + 1 : at + 2]
    is_moved = begin != end
    before = begin / torch.where(is_moved, end, 1.0)
    behind = (n - begin) / torch.where(is_moved, n - end, 1.0)
    own = _arange(x, -1) - first
    middle = own + 0.5
    then = torch.where(own < end, middle * before, begin + (middle - end) * behind)
    then = torch.minimum((then - 0.5).clamp(min=0.0), n - 1)
    whole = then.floor()
    one, other = _taken(x, first + whole), _taken(x, first + torch.minimum(whole + 1, n - 1))
    share = (then - whole).to(torch.float32)[:, None, None]
    is_changed = is_moved & _valid(x, draws)
    return torch.where(is_changed[:, None, None], one + share * (other - one), x)


def _rolled(x: Any, draws: Any, shift: Any) -> Any:
    """With the frames that are not padding moved to later ones, around."""
    first, n = draws[:, 0:1], draws[:, 1:2]
    places = _arange(x, -1).to(torch.float64).expand(draws.shape[0], -1)
    moved = first + torch.remainder(places - first - shift[:, None], n.clamp(min=1))
    return _taken(x, torch.where(_valid(x, draws), moved, places))


def _partners(draws: Any) -> Any:
    """The other row of each pair; the row itself of one without."""
    return draws[:, -2].to(torch.int64)


def _exchanged(x: Any, taken: Any, partners: Any) -> Any:
    """Each row with what it takes of its partner: weight, bands, frames."""
    other = x[partners]
    part = _inside(_arange(x, -2), taken[:, 1:3])[:, :, None] & _inside(_arange(x, -1), taken[:, 3:5])[:, None]
    weight = torch.where(part, taken[:, :1, None].to(torch.float32), 0.0)[:, None]
    # Weights of 0 and 1 copy, so that an infinite value stays where it belongs.
    mixed = torch.where(weight == 1, other, (1 - weight) * x + weight * other)
    return torch.where(weight == 0, x, mixed)
