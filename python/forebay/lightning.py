"""Lightning 2: a `DataModule` of loaders, and a callback that saves and restores their position.

>>> from functools import partial
>>> import forebay, forebay.lightning, lightning  # doctest: +SKIP
>>> data = forebay.lightning.DataModule(train=partial(forebay.Loader.train, files))  # doctest: +SKIP
>>> lightning.Trainer(devices=2, max_steps=1000).fit(model, data)  # doctest: +SKIP

For a loader without length Lightning fetches one batch more than it trains, and after the last step of an epoch
it does not load the states of loaders. So the position is kept here: that after the last batch trained. The
package may be imported as `lightning` or as `pytorch_lightning`.
"""

import contextlib
import importlib
import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.distributed

from forebay._checks import MOST, check
from forebay._converted import Ranks, is_finite
from forebay._core import ConfigError, ForebayError, LoaderBase, TokenLoader
from forebay.torch import DevicePrefetcher, IterableDataset

__all__ = ["DataModule", "DataPosition"]


def __dir__() -> list[str]:
    return __all__


def _installed() -> list[ModuleType]:
    """The package under both of its names. Each has classes of its own, and its Trainer accepts no others."""
    found = []
    for name in ("lightning.pytorch", "pytorch_lightning"):
        with contextlib.suppress(ImportError):
            found.append(importlib.import_module(name))
    return found or [importlib.import_module("lightning.pytorch")]


_PACKAGES = _installed()
_DATA_MODULES = tuple(package.LightningDataModule for package in _PACKAGES)
_CALLBACKS = tuple(package.Callback for package in _PACKAGES)


class _Batches:
    """The batches of a loader for a loop of Lightning, which takes any iterable.

    It has no attribute `dataset`: Lightning would advise worker processes.
    """

    def __init__(self, batches: Any, loader: LoaderBase) -> None:
        self.loader = loader
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<batches for Lightning: {self.loader!r}>"


class _TrainBatches(_Batches):
    """For the fit loop: the state is that after the last batch trained.

    Batches that were handed out and not trained are made again by the next `iter()`.
    """

    def __init__(self, batches: Any, loader: LoaderBase) -> None:
        super().__init__(batches, loader)
        self.repeats = False  # each epoch begins where the first one did
        self._keeper = batches if hasattr(batches, "state_dict") else batches.dataset
        self._first = self._trained = self._keeper.state_dict()
        if "config" not in self._first:
            raise ConfigError(
                f"{type(batches).__name__} has a state of its own around that of the loader: return the loader from "
                "train_dataloader, or forebay.torch.DataLoader(loader)"
            )
        self._has_passes = not self._first["config"].get("infinite", not is_finite(loader))
        self._ahead: deque[dict[str, Any]] = deque()  # states after each batch that is handed out and not trained
        self._n_trained = 0  # since the current iteration began
        self._is_exhausted = False
        self._current: _Iteration | None = None

    def __iter__(self) -> "_Iteration":
        """Nothing happens before the first `next()`: Lightning calls `iter()` to check, and before it loads states."""
        return _Iteration(self)

    def begin(self, iteration: "_Iteration") -> Iterator[Any]:
        """Continues after the last batch trained: of a pass that was left early, with the next pass."""
        if self._is_exhausted:
            if self.repeats:
                self._move(self._first)
        else:
            if self._n_trained:
                self.end_epoch()
            if self._ahead:
                self._move(self._trained)
        self._n_trained, self._is_exhausted, self._current = 0, False, iteration
        return iter(self.batches)

    def hand_out(self, iteration: "_Iteration", batches: Iterator[Any]) -> Any:
        """The next batch."""
        if self._current is not iteration:
            raise ConfigError(
                "the loader of train_dataloader was iterated again while Lightning iterates it; to look at batches, "
                "make a loader of its own for it"
            )
        try:
            batch = next(batches)
        except StopIteration:
            self._is_exhausted = True
            raise
        self._ahead.append(self._keeper.state_dict())
        return batch

    def step(self) -> None:
        """The first of the batches handed out is trained."""
        if self._ahead:
            self._trained = self._ahead.popleft()
            self._n_trained += 1

    def end_epoch(self) -> None:
        """Continues with the next pass, if this one was left early. An infinite loader has no passes."""
        if self.repeats:
            self._move(self._first)
        elif self._has_passes and self._trained["batch"]:
            self.loader.set_epoch(self._trained["epoch"] + 1)
            self._move(self.loader.state_dict())

    def _move(self, state: Any) -> None:
        self._keeper.load_state_dict(state)
        self._trained = self._keeper.state_dict()
        self._ahead.clear()
        self._n_trained, self._is_exhausted = 0, False

    def state_dict(self) -> Any:
        """The loader's state; of a `TokenLoader` on several ranks a list of all ranks' states, so every rank calls."""
        if not isinstance(self.loader, TokenLoader) or self.loader.world_size == 1:
            return self._trained
        if not torch.distributed.is_initialized():
            raise ConfigError(
                f"a checkpoint needs the states of all {self.loader.world_size} ranks of a TokenLoader, and "
                "torch.distributed, which would collect them, is not initialised; use a strategy such as 'ddp'"
            )
        states: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(states, (self.loader.rank, self._trained))
        by_rank = dict(states)
        return [by_rank[rank] for rank in sorted(by_rank)]

    def load_state_dict(self, state: Any) -> None:
        """Resumes at a state of `state_dict()`, or of the bare loader."""
        self._move(state)


class _FromTheStart(_Batches):
    """For an evaluation: each begins where the first one did."""

    def __init__(self, batches: Any, loader: LoaderBase) -> None:
        super().__init__(batches, loader)
        self._first = batches.state_dict()

    def __iter__(self) -> Iterator[Any]:
        if self.batches.state_dict() != self._first:
            self.batches.load_state_dict(self._first)
        return iter(self.batches)


class _Iteration(Iterator[Any]):
    """One `iter()` of the batches."""

    def __init__(self, owner: _TrainBatches) -> None:
        self._owner = owner
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._owner.begin(self)
        return self._owner.hand_out(self, self._batches)


def _loader_of(batches: Any) -> LoaderBase | None:
    """The loader behind what a `train_dataloader()` returned; `None` if it is none of forebay."""
    if isinstance(batches, _FromTheStart):
        return batches.loader
    if isinstance(batches, DevicePrefetcher):
        batches = batches._loader()
    dataset = getattr(batches, "dataset", batches)
    found = dataset.loader if isinstance(dataset, IterableDataset) else batches
    return found if isinstance(found, LoaderBase) else None


def _ranks(trainer: Any) -> Ranks:
    """Those that share the data; with a model over several devices they are fewer than the processes."""
    shares = trainer.distributed_sampler_kwargs or {"rank": 0, "num_replicas": 1}
    return {"rank": shares["rank"], "world_size": shares["num_replicas"]}


def _check_ranks(loader: LoaderBase, trainer: Any) -> None:
    ranks = _ranks(trainer)
    if (loader.rank, loader.world_size) != (ranks["rank"], ranks["world_size"]):
        raise ConfigError(
            f"the loader has rank {loader.rank} of {loader.world_size}, but this process of the Trainer is rank "
            f"{ranks['rank']} of {ranks['world_size']}: make the loader when the processes run, as "
            "DataModule(train=partial(Loader.train, files)) does, or in train_dataloader() with "
            "Loader.train(files, **forebay.torch.rank_and_world_size())"
        )


class DataPosition(*_CALLBACKS):  # type: ignore[misc]
    """A callback that saves the position in the training data with each checkpoint, and resumes there exactly.

    For loaders of a `LightningDataModule` or `LightningModule` of yours, or given to `fit`: a `Loader`,
    `TokenLoader` or `cache.DataLoader`, also in an `IterableDataset`, `DevicePrefetcher` or `DataLoader`
    (`batch_size=None`), and several of them in a dict, list or `CombinedLoader`. A `DataModule` of forebay adds
    it by itself. Other loaders are left as they are.

    The state is that after the last batch whose `on_train_batch_end` began, in the place where Lightning keeps
    the states of loaders. `fit` raises `ConfigError` if rank and world size of a loader are not the Trainer's,
    and `StateError` if a checkpoint is of other data or parameters.
    """

    def __init__(self) -> None:
        self._followed: list[_TrainBatches] = []
        self._was_asked = False
        self._states: list[Any] | None = None
        self._source: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Follows the loaders of `fit`, and comes before the callbacks that save checkpoints."""
        if stage != "fit":
            return
        others = [callback for callback in trainer.callbacks if callback is not self]
        trainer.callbacks = [self, *others]
        # What the Trainer asks for the loaders, from wherever they come. It is no public interface: see
        # `on_train_start`.
        self._was_asked = False
        self._source = trainer.fit_loop._data_source
        request = type(self._source).dataloader.__get__(self._source)
        self._source.dataloader = lambda: self._follow(trainer, request())
        self._states = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Refuses a Trainer that got its loaders elsewhere: its checkpoints would hold no position."""
        if not self._was_asked:
            versions = ", ".join(f"{package.__name__} {package.__version__}" for package in _PACKAGES)
            raise ForebayError(
                f"{versions}: the Trainer did not ask for its training loaders where DataPosition expects it, so "
                "checkpoints would hold no position in the data; install the version that docs/frameworks.md names, "
                "or leave DataPosition out"
            )

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Follows no loaders any more."""
        if self._source is not None:
            del self._source.dataloader
            self._source = None

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Refuses a validation that would move the position in the training data."""
        _check_apart("val", {id(leaf.loader) for leaf in self._followed}, trainer.val_dataloaders)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Takes the states for the loaders that are made next."""
        if trainer.state.fn != "fit":
            return
        self._states = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}).get("combined_loader")
        if not self._states and checkpoint.get("global_step"):
            warnings.warn(
                f"the checkpoint of step {checkpoint['global_step']} holds no position in the data: training goes on "
                "with the first batch of the loaders; save checkpoints with forebay.lightning.DataPosition() among the "
                "callbacks",
                stacklevel=2,
            )

    def _follow(self, trainer: Any, made: Any) -> Any:
        """What `train_dataloader()` made, with our loaders followed, and at the position of the checkpoint."""
        self._was_asked = True
        package = next(package for package in _PACKAGES if isinstance(trainer, package.Trainer))
        combined_loader = package.utilities.CombinedLoader
        combined = made if isinstance(made, combined_loader) else combined_loader(made, "max_size_cycle")
        before = {id(followed.batches): followed for followed in self._followed}
        leaves = []
        for batches in combined.flattened:
            loader = _loader_of(batches)
            if loader is None:
                leaves.append(batches)
                continue
            _check_ranks(loader, trainer)
            leaf = before.get(id(batches)) or _TrainBatches(batches, loader)
            leaf.repeats = bool(trainer.overfit_batches)
            leaves.append(leaf)
        combined.flattened = leaves
        self._followed = [leaf for leaf in leaves if isinstance(leaf, _TrainBatches)]
        _check_apart("val", {id(leaf.loader) for leaf in self._followed}, trainer.val_dataloaders)
        if self._followed and len(leaves) > 1 and combined._mode == "max_size":
            raise ConfigError(
                "mode of the CombinedLoader is 'max_size', must be 'max_size_cycle' or 'min_size': a checkpoint "
                "does not tell which of the loaders are exhausted"
            )
        states, self._states = self._states, None
        if states:
            self._load(leaves, states)
        return combined

    @staticmethod
    def _load(leaves: list[Any], states: list[Any]) -> None:
        """Loads what Lightning loads as well, but not after the last step of an epoch."""
        stateful = [leaf for leaf in leaves if hasattr(leaf, "state_dict") and hasattr(leaf, "load_state_dict")]
        if len(stateful) != len(states):
            raise ConfigError(
                f"the checkpoint has states of {len(states)} training loaders, and there are {len(stateful)}: give "
                "the loaders that it was saved with"
            )
        for leaf, state in zip(stateful, states, strict=True):
            if isinstance(leaf, _TrainBatches):
                leaf.load_state_dict(state)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """The batch counts as trained from here on, as in Lightning's own progress."""
        for batches in self._followed:
            batches.step()
            if trainer.is_last_batch:
                batches.end_epoch()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """The next epoch begins the next pass, unless training stops within this one."""
        stops = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
        for batches in () if stops else self._followed:
            batches.end_epoch()


Loaders = LoaderBase | Callable[..., Any] | Mapping[str, Any] | list[Any] | tuple[Any, ...]
"""A loader, a function of `rank` and `world_size` that makes loaders, or a dict or list of these."""


class DataModule(*_DATA_MODULES):  # type: ignore[misc]
    """Loaders for training, validation, test and prediction, with the position in the training data.

    Each is a loader, a function of `rank` and `world_size` that returns one, or a dict or list of these. Use
    functions on several ranks: rank and world size are known once the processes run. A function is called
    once, at the first `setup`, and again if a Trainer has other ranks. Batches are dicts of tensors; of
    bfloat16 spectrograms too. `DataPosition` is among the callbacks of the Trainer from `setup("fit")` on.

    Parameters
    ----------
    train : loader, function, dict or list, optional
        A finite loader begins its next pass with each epoch of Lightning, also if `limit_train_batches` ended the
        last one early. An infinite loader continues, and one epoch lasts until `max_steps`, or for
        `limit_train_batches` batches.
    val, test, predict : loader, function, dict or list, optional
        Finite loaders, as those of `Loader.eval`; infinite ones need a `limit_val_batches` (`test`, `predict`).
    depth : int
        On a GPU, batches that are copied to the device ahead, by a `DevicePrefetcher`. 0: the Trainer copies
        each batch when it is due, from pinned memory; choose it if hooks shall see batches before the copy.

    Raises
    ------
    TypeError
        If an argument is neither a loader nor a function of `rank` and `world_size`.
    ConfigError
        In `setup`, if rank and world size of a loader are not the Trainer's, or an evaluation never ends.

    """

    def __init__(
        self,
        train: Loaders | None = None,
        val: Loaders | None = None,
        test: Loaders | None = None,
        predict: Loaders | None = None,
        *,
        depth: int = 2,
    ) -> None:
        super().__init__()
        check(depth=(depth, 0, MOST))
        self._depth = depth
        self._given = {"train": train, "val": val, "test": test, "predict": predict}
        self._made: dict[str, Any] = {}
        self._made_for: Ranks | None = None
        self._position = DataPosition()
        if val is None and type(self).val_dataloader is DataModule.val_dataloader:
            self.__dict__["val_dataloader"] = (
                super().val_dataloader
            )  # so that Lightning finds none, and validates nothing
        for name, given in self._given.items():
            if given is not None:
                _map(given, partial(_check_source, name))

    def setup(self, stage: str) -> None:
        """Makes the loaders of this stage, in each process."""
        trainer = self.trainer
        if (ranks := _ranks(trainer)) != self._made_for:
            self._made, self._made_for = {}, ranks
        stages = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}
        for name in stages[stage]:
            given = self._given[name]
            if name not in self._made and given is not None:
                self._made[name] = _map(given, partial(self._make, name, ranks))
        trained = _loaders(self._made.get("train"))
        for name in ("val", "test", "predict"):
            _check_apart(name, trained, self._made.get(name))
        if stage == "fit" and not any(isinstance(callback, DataPosition) for callback in trainer.callbacks):
            trainer.callbacks.insert(0, self._position)

    def _make(self, name: str, ranks: Ranks, source: Any) -> Any:
        """The batches of a loader, or of those that a function makes."""
        made = source if isinstance(source, LoaderBase) else source(**ranks)
        return _map(made, partial(self._batches, name))

    def _batches(self, name: str, loader: Any) -> Any:
        if not isinstance(loader, LoaderBase):
            return loader
        _check_ranks(loader, self.trainer)
        batches = self._placed(loader)
        return batches if name == "train" else _FromTheStart(batches, loader)

    def _placed(self, loader: LoaderBase) -> Any:
        """Batches as tensors, on the Trainer's device or on the way there."""
        device = self.trainer.strategy.root_device
        if device.type != "cuda":
            return IterableDataset(loader)
        if self._depth == 0:
            return IterableDataset(loader, pin_memory=True)
        return DevicePrefetcher(IterableDataset(loader), device, self._depth)

    def train_dataloader(self) -> Any:
        """The batches of `train`; the same ones at each call, so a reload begins nothing anew."""
        if "train" not in self._made:
            raise ConfigError("the DataModule has no train; pass DataModule(train=partial(Loader.train, files))")
        return self._made["train"]

    def val_dataloader(self) -> Any:
        """The batches of `val`."""
        return self._evaluation("val")

    def test_dataloader(self) -> Any:
        """The batches of `test`."""
        return self._evaluation("test")

    def predict_dataloader(self) -> Any:
        """The batches of `predict`."""
        return self._evaluation("predict")

    def _evaluation(self, name: str) -> Any:
        if name not in self._made:
            raise ConfigError(f"the DataModule has no {name}; pass DataModule({name}=partial(Loader.eval, files))")
        limit = getattr(self.trainer, f"limit_{name}_batches")
        _map(self._made[name], partial(_check_end, name, limit))
        return self._made[name]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={given!r}" for name, given in self._given.items() if given is not None)
        return f"forebay.lightning.DataModule({given})"


def _map(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Applies a function to what a dict, list, tuple or `CombinedLoader` holds, or to the value itself."""
    if isinstance(tree, Mapping):
        return {name: _map(value, function) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_map(value, function) for value in tree]
    if hasattr(tree, "flattened"):
        tree.flattened = [function(value) for value in tree.flattened]
        return tree
    return function(tree)


def _loaders(tree: Any) -> set[int]:
    """The identities of the loaders in what `setup` made."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    leaves = tree if isinstance(tree, list | tuple) else getattr(tree, "flattened", None)
    if leaves is not None:
        return set().union(*map(_loaders, leaves))
    loader = _loader_of(tree)
    return set() if loader is None else {id(loader)}


def _check_apart(name: str, trained: set[int], evaluated: Any) -> None:
    if trained & _loaders(evaluated):
        raise ConfigError(
            f"{name} has a loader of train, whose position an evaluation would move; make another one for it, as "
            "Loader.eval(files)"
        )


def _check_source(name: str, source: Any) -> None:
    if isinstance(source, LoaderBase):
        return
    expected = f"argument {name!r}: a loader, or a function of rank and world_size that returns one, is expected, "
    if not callable(source):
        raise TypeError(f"{expected}not {type(source).__name__}")
    try:
        inspect.signature(source).bind(rank=0, world_size=1)
    except TypeError as error:
        raise TypeError(f"{expected}as partial(Loader.train, files), but calling it fails: {error}") from None
    except ValueError:
        pass  # a function of C without a signature


def _check_end(name: str, limit: float, batches: Any) -> None:
    loader = _loader_of(batches)
    if loader is None or not isinstance(limit, float) or is_finite(loader):
        return
    if loader.state_dict()["config"].get("infinite", True):
        raise ConfigError(
            f"the loader of {name} is infinite, so the evaluation would never end: use Loader.eval(files) or "
            f"infinite=False, or Trainer(limit_{name}_batches=100)"
        )
