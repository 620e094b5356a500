"""Accelerate: a loader that keeps its rank's share, on the accelerator's device, with its position in checkpoints.

>>> import forebay, forebay.accelerate, forebay.torch
>>> accelerator = Accelerator()  # doctest: +SKIP
>>> loader = forebay.Loader.train(files, **forebay.torch.rank_and_world_size())  # doctest: +SKIP
>>> batches = forebay.accelerate.prepare(accelerator, loader)  # doctest: +SKIP
"""

from collections.abc import Iterator
from typing import Any

from accelerate.state import GradientState
from accelerate.utils import gather_object

from forebay._converted import check_loader, is_finite, resumable
from forebay._core import ConfigError, LoaderBase, TokenLoader
from forebay.torch import Batch, DataLoader, IterableDataset

__all__ = ["prepare"]


def __dir__() -> list[str]:
    return __all__


def prepare(accelerator: Any, loader: LoaderBase, *, depth: int = 2) -> DataLoader:
    """Prepares a loader, as `Accelerator.prepare` does a DataLoader: batches of tensors on the accelerator's device.

    The loader keeps its own rank and world size. (`Accelerator.prepare` would deal the batches of rank 0 to
    all ranks if it were given a plain `DataLoader` over the loader.) `accelerator.save_state()` saves the
    position, `load_state()` restores it. With a finite loader gradients are applied at the end of each pass,
    as with other DataLoaders. `depth` batches are copied to the device ahead.

    Raises `ConfigError` if the loader's rank and world size are not those of the process.
    """
    if isinstance(loader, _Prepared):
        return loader
    if isinstance(loader, DataLoader | IterableDataset):
        loader = loader.loader
    check_loader(loader)
    if missing := [name for name in ("device", "process_index", "num_processes") if not hasattr(accelerator, name)]:
        raise TypeError(
            f"accelerator is of type {type(accelerator).__name__}, which has no {', '.join(missing)}; pass the "
            "accelerate.Accelerator of this process"
        )
    share, process = (loader.rank, loader.world_size), (accelerator.process_index, accelerator.num_processes)
    # Processes that hold parts of one model read the same data; only the user knows which do.
    if getattr(accelerator, "torch_device_mesh", None) is None and share != process:
        raise ConfigError(
            f"the loader has rank {share[0]} of world_size {share[1]}, but this is process {process[0]} of "
            f"{process[1]}, and rows would be lost or repeated; make the loader after Accelerator(), as "
            "Loader(files, **forebay.torch.rank_and_world_size())"
        )
    prepared = _Prepared(loader, device=accelerator.device, depth=depth)
    accelerator.register_for_checkpointing(_Position(prepared))
    return prepared


class _Prepared(DataLoader):
    """A `DataLoader` that tells Accelerate which batch is the last of a pass: gradients are applied there."""

    def __init__(self, loader: LoaderBase, **options: Any) -> None:
        super().__init__(loader, **options)
        self.gradient_state = GradientState()
        self.end_of_dataloader = False
        self.remainder = -1  # no row is there twice, so that metrics need none cut off

    def __iter__(self) -> Iterator[Batch]:
        return _Watched(self, super().__iter__())


class _Watched(Iterator[Batch]):
    """The batches of a pass; an object instead of a generator, so that Ctrl-C loses no batch."""

    def __init__(self, owner: _Prepared, batches: Iterator[Batch]) -> None:
        self._owner = owner
        self._batches = resumable(batches)
        self._left = len(owner) - owner.loader.batch if is_finite(owner) else -1
        owner.end_of_dataloader = False
        owner.gradient_state._add_dataloader(owner)

    def __next__(self) -> Batch:
        self._owner.end_of_dataloader = self._left == 1
        for batch in self._batches:
            self._left -= 1
            return batch
        self._leave()
        raise StopIteration

    def _leave(self) -> None:
        self._owner.end_of_dataloader = False
        self._owner.gradient_state._remove_dataloader(self._owner)

    def __del__(self) -> None:
        if hasattr(self, "_left"):
            self._leave()


class _Position:
    """The position in a checkpoint: `Accelerator.save_state()` asks every process, and keeps what the first gives."""

    def __init__(self, batches: DataLoader) -> None:
        self._batches = batches

    def state_dict(self) -> dict[str, Any]:
        state = self._batches.state_dict()
        # Each rank of a TokenLoader has a state of its own.
        return {"states": gather_object([state])} if isinstance(self._batches.loader, TokenLoader) else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._batches.load_state_dict(state.get("states", state))
