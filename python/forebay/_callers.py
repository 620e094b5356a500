"""Which training framework iterates a loader, and whether batches would change or a position be lost.

A loader is not notified when a user or a framework gives it to a `DataLoader`, itself or in a dataset. The frames
of its callers show it. `iter()` of a loader looks at them, if torch is imported. This module is imported before:
a signal handler may call `iter()` too, and finds no module that is only half imported.
"""

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from forebay._converted import is_finite
from forebay._core import ConfigError, LoaderBase

if TYPE_CHECKING:
    import torch.utils.data

__all__ = ["check_callers"]

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
_FIT_LOOPS = tuple(f"{name}.loops.{loop}" for name in _LIGHTNING for loop in ("fit_loop", "training_epoch_loop"))
_TRAINER = "transformers.trainer"
# These keep the position themselves, or have none.
_SAFE = (
    "forebay.lightning",
    "forebay.transformers",
    *(f"{name}.loops.{loop}_loop" for name in _LIGHTNING for loop in ("evaluation", "prediction")),
)


_warned: WeakSet[LoaderBase] = WeakSet()


def check_callers(loader: LoaderBase) -> None:
    """Raises `ConfigError` if batches would be stacked, skipped or dealt to other ranks.

    Warns, once for each loader, if the checkpoints of a framework would not hold the position.
    """
    warning = _problem(loader)
    if warning and loader not in _warned:
        _warned.add(loader)
        warnings.warn(warning, stacklevel=3)


def _problem(loader: LoaderBase) -> str | None:
    """The warning, if there is one."""
    found: torch.utils.data.DataLoader[object] | None = None
    is_ahead = False
    torch_loader: Any = getattr(sys.modules.get("torch.utils.data"), "DataLoader", ())
    for frame in _frames(sys._getframe(2)):
        name = _module(frame)
        if name in _SAFE:
            return None
        owner = frame.f_locals.get("self") if name.startswith(("torch", "accelerate", "forebay.torch")) else None
        if found is None and isinstance(owner, torch_loader):
            found = owner
            if owner.batch_size is not None and _is_ours(owner.dataset):
                raise ConfigError(
                    f"batch_size of {type(owner).__name__} is {owner.batch_size}, must be None: the loader returns "
                    f"complete batches of {loader.batch_size} rows, which would be stacked; use {_remedy(frame)}"
                )
        n_skipped = getattr(owner, "skip_batches", 0) if name.startswith("accelerate") else 0
        if n_skipped and _is_ours(getattr(owner, "dataset", None)):
            raise ConfigError(
                f"skip_first_batches would leave out {n_skipped} batches more: load_state() has restored the "
                "position already; iterate the loader that forebay.accelerate.prepare returned"
            )
        if type(owner).__name__ in ("DataLoaderDispatcher", "IterableDatasetShard") and loader.world_size > 1:
            raise ConfigError(
                f"{type(owner).__name__} of accelerate would deal the batches of rank 0 to all ranks, and "
                f"the other ranks' rows would be lost: with world_size {loader.world_size} the loader returns its "
                "rank's share; use forebay.accelerate.prepare(accelerator, loader)"
            )
        if name.endswith(".utilities.combined_loader") and not is_finite(loader):
            limits = getattr(frame.f_locals.get("self"), "limits", None)
            is_ahead = limits is None or float("inf") in limits
        if name == _TRAINER:
            return None if frame.f_code.co_name == "evaluation_loop" else _lost("the Trainer of Hugging Face", frame)
        if name.startswith(_FIT_LOOPS):
            if found is not None and not hasattr(found, "state_dict"):
                return _lost("Lightning", frame)
            return _AHEAD if is_ahead else None
    return None


_AHEAD = (
    "Lightning fetches one batch ahead of a loader without length, and its checkpoints count it as trained: a resumed "
    "run loses one batch; add forebay.lightning.DataPosition() to the callbacks of the Trainer"
)


def _is_ours(dataset: object) -> bool:
    """Whether this is an `IterableDataset` of forebay, and not one of the user's, which may yield rows."""
    return type(dataset).__module__ == "forebay.torch"


def _lost(framework: str, frame: FrameType) -> str:
    return (
        f"checkpoints of {framework} will not hold the position in the data: a resumed run begins at the first batch; "
        f"use {_remedy(frame)}"
    )


def _remedy(frame: FrameType) -> str:
    """The replacement for the caller's `DataLoader`."""
    outer = {_module(caller) for caller in _frames(frame)}
    if any(name.startswith(_FIT_LOOPS) for name in outer):
        return (
            "forebay.lightning.DataModule(train=...), or forebay.torch.DataLoader(loader) with "
            "forebay.lightning.DataPosition() among the callbacks of the Trainer"
        )
    if _TRAINER in outer:
        return (
            "forebay.transformers.TrainerMixin, as class MyTrainer(TrainerMixin, Trainer) and "
            "MyTrainer(model, args, train_dataset=loader)"
        )
    return "forebay.torch.DataLoader(loader)"


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
