"""For JAX: a loader's batches as `jax.Array`s, on one device or sharded over many processes; features there.

>>> import forebay, forebay.jax
>>> sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), PartitionSpec("data"))  # doctest: +SKIP
>>> ranks = forebay.jax.rank_and_world_size(sharding)  # doctest: +SKIP
>>> loader = forebay.Loader.train(files, **ranks)  # doctest: +SKIP
>>> for batch in forebay.jax.batches(loader, sharding):  # doctest: +SKIP
...     state = step(state, batch["spectrogram"], batch["label"])
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from forebay._checks import MOST, check
from forebay._converted import Converted, Ranks, bfloat16_fields, check_loader, is_finite
from forebay._core import ConfigError, LoaderBase
from forebay._jagged import JaggedArray
from forebay._jax_features import features

__all__ = ["Ranks", "batches", "features", "rank_and_world_size"]


def __dir__() -> list[str]:
    return __all__


def rank_and_world_size(sharding: NamedSharding | None = None) -> Ranks:
    """Returns the process's rank in `jax.distributed`, for `Loader(files, **rank_and_world_size())`; 0 of 1 without it.

    If the model spans devices of several processes, pass the `sharding` of the batches: processes whose
    devices hold the same rows get the same rank. Raises `ConfigError` if two processes share only some of
    their rows.
    """
    _check_sharding(sharding)
    if sharding is None:
        return {"rank": jax.process_index(), "world_size": jax.process_count()}
    of_rows = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))
    parts: dict[int, set[int]] = {}
    for device, (part,) in of_rows.devices_indices_map((sharding.mesh.size,)).items():
        parts.setdefault(device.process_index, set()).add(part.start or 0)
    if jax.process_index() not in parts:
        raise ConfigError(f"the sharding has no device of this process, {jax.process_index()}")
    different = sorted({tuple(sorted(part)) for part in parts.values()})
    if len({len(part) for part in different}) > 1 or len({*chain(*different)}) < sum(map(len, different)):
        raise ConfigError(
            "processes hold parts of batches that overlap or differ in size; choose a mesh in which any two processes "
            "hold either the same rows or different rows of the same number"
        )
    return {"rank": different.index(tuple(sorted(parts[jax.process_index()]))), "world_size": len(different)}


def batches(
    loader: LoaderBase, sharding: NamedSharding | None = None, *, pad_to: int | None = None
) -> Iterator[dict[str, Any]]:
    """The batches of `loader` as dicts of `jax.Array`s: a pass in each `for` loop, or endlessly if it is infinite.

    Each `iter()`, with which a `for` loop begins, does what that of the loader does: it begins the next pass of a
    finite loader, also after one that was left early, and continues an infinite one. `next()` continues the pass,
    and raises `StopIteration` at its end until the next `iter()`.

    Without `sharding`, arrays are put on the default device. With `sharding`, the first axis of its
    `PartitionSpec` is the axis of examples. Each process puts the rows of its own loader on its devices, with
    `rank` and `world_size` from `rank_and_world_size(sharding)`; together they are `[batch_size * world_size,
    ...]`. Fields with fewer dimensions use the first entries of the spec.

    A spectrogram of `Loader(dtype="bfloat16")` gets the type `jax.numpy.bfloat16`. A `JaggedArray` becomes a
    `JaggedArray` of arrays on the default device; it cannot be sharded. Text stays a list of str.

    `pad_to` pads shorter batches to this number of rows, with zeros, -1 in integers, and empty text or lists,
    so that a compiled step gets one shape. A finite loader with a `sharding` needs it: its last batch, or a batch
    with a bad record, is shorter, and devices need equal shares. So do the batches of `Buckets(max_examples=8)`, with
    `pad_to=8`; `pad_to="bucket"` there makes their other shapes few. For a finite `TokenLoader` use
    `drop_last=True` instead, since padding rows would count as targets.

    No batch is prefetched, so `loader.state_dict()` is the state after the last batch returned. Without
    `jax_enable_x64` integers become int32; an integer that does not fit raises `OverflowError`.
    """
    check_loader(loader)
    _check_sharding(sharding)
    is_paired = getattr(loader, "_is_paired", False)
    if is_paired:
        _check_pairs(sharding, pad_to)
    if pad_to is not None:
        check(pad_to=(pad_to, 1, MOST))
    if sharding is not None and pad_to is None and is_finite(loader) and not is_paired:
        raise ConfigError(
            f"pad_to is None; a finite loader needs pad_to={loader.batch_size}, the loader's batch_size: some of "
            "its batches may be shorter, and devices take equal shares"
        )
    bfloat16, n_shares = bfloat16_fields(loader), _local_shares(sharding)

    def converted(batch: Mapping[str, Any]) -> dict[str, Any]:
        batch = _padded(_typed(batch, bfloat16), pad_to)
        _check_shares(batch, n_shares)
        return _to_device(batch, sharding)

    return Converted(converted, loader)


def _check_pairs(sharding: NamedSharding | None, pad_to: int | None) -> None:
    """Raises `ConfigError` where the halves of a batch of pairs would be mixed up."""
    if pad_to is not None:
        raise ConfigError(
            "pad_to is for batches whose rows are alike, and the first half of a batch of forebay.text.Pairs is the "
            "chosen conversations; use drop_last=True, with which all batches have the same number of rows"
        )
    if sharding is not None and len({device.process_index for device in sharding.device_set}) > 1:
        raise ConfigError(
            "sharding is over several processes, which would put each process's rejected conversations behind its "
            "chosen ones; give each process's batches to its own devices, without sharding"
        )


def _local_shares(sharding: NamedSharding | None) -> int:
    """The number of different shares of the rows that the devices of this process hold."""
    if sharding is None:
        return 1
    of_rows = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))
    shares = of_rows.addressable_devices_indices_map((sharding.mesh.size,)).values()
    return len({share[0].start for share in shares if share}) or 1


def _check_shares(batch: Mapping[str, Any], n_shares: int) -> None:
    """Raises `ConfigError` for a number of rows that `n_shares` do not divide."""
    n_rows = len(next(iter(batch.values())))
    if n_rows % n_shares:
        raise ConfigError(
            f"a batch has {n_rows} rows, and the devices of this process take {n_shares} equal shares; give pad_to=, "
            "the most rows of a batch, such as the max_examples of Buckets()"
        )


def _check_sharding(sharding: object) -> None:
    """Raises `TypeError` if `sharding` is neither a `NamedSharding` nor None."""
    if sharding is not None and not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"sharding must be a NamedSharding, not {type(sharding).__name__}; make one of a mesh and a spec, as in "
            'NamedSharding(mesh, PartitionSpec("data"))'
        )


def _typed(batch: Mapping[str, Any], bfloat16: Collection[str]) -> Mapping[str, Any]:
    """The batch, with its bfloat16 fields viewed as bfloat16."""
    return {name: value.view(jax.dtypes.bfloat16) if name in bfloat16 else value for name, value in batch.items()}


def _padded(batch: Mapping[str, Any], rows: int | None) -> Mapping[str, Any]:
    """The batch, padded to `rows` rows."""
    found = len(next(iter(batch.values())))
    if rows is None or rows == found:
        return batch
    if rows < found:
        raise ConfigError(f"pad_to is {rows}, must be batch_size, but a batch has {found} rows")

    def padded(value: Any) -> Any:
        if isinstance(value, JaggedArray):
            raise ConfigError("pad_to is for stacked fields, but the batch has a jagged field; leave pad_to out")
        if isinstance(value, list):
            of_lists = bool(value) and isinstance(value[0], list)
            return value + [[] if of_lists else "" for _ in range(rows - found)]
        filler = -1 if value.dtype.kind == "i" else 0
        return np.concatenate([value, np.full((rows - found, *value.shape[1:]), filler, value.dtype)])

    return {name: padded(value) for name, value in batch.items()}


def _to_device(batch: Mapping[str, Any], sharding: NamedSharding | None) -> dict[str, Any]:
    return {name: _put(name, value, sharding) for name, value in batch.items()}


def _put(name: str, value: Any, sharding: NamedSharding | None) -> Any:
    if isinstance(value, list):
        return value
    if isinstance(value, JaggedArray):
        if sharding is not None:
            raise ConfigError(f"{name} has rows of different lengths, which cannot be sharded; give the field a shape")
        return JaggedArray(_put(name, value.data, None), _put(name, value.offsets, None), value.shapes)
    narrow = jax.dtypes.canonicalize_dtype(value.dtype)
    if narrow != value.dtype and value.dtype.kind in "iu":
        least, most = (value.min(), value.max()) if value.size else (0, 0)
        limits = np.iinfo(narrow)
        if least < limits.min or most > limits.max:
            beyond = most if most > limits.max else least
            raise OverflowError(f"{name} {beyond} does not fit {narrow}; set jax_enable_x64")
        value = value.astype(narrow)
    if sharding is None:
        return jax.device_put(value)
    of_field = NamedSharding(
        sharding.mesh, PartitionSpec(*sharding.spec[: value.ndim]), memory_kind=sharding.memory_kind
    )
    return jax.make_array_from_process_local_data(of_field, value)
