"""Hugging Face `transformers`: the `Trainer` trains on a loader and evaluates with one; checkpoints have its position.

>>> from transformers import Trainer
>>> from forebay.transformers import TrainerMixin
>>> class MyTrainer(TrainerMixin, Trainer): ...
>>> trainer = MyTrainer(model, args, train_dataset=loader, eval_dataset=evaluation)  # doctest: +SKIP
>>> trainer.train(resume_from_checkpoint=True)  # doctest: +SKIP

`forebay.transformers.Trainer` is this class, ready made. Tested with transformers 5.23 and accelerate 1.15.
"""

import inspect
import itertools
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
import transformers
from accelerate.data_loader import DataLoaderStateMixin
from accelerate.utils import gather_object, recursively_apply
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

import forebay.torch
from forebay._converted import is_finite
from forebay._core import ConfigError, LoaderBase, StateError, TokenLoader
from forebay._files import NotAFileError, read_file

__all__ = ["STATE_FILE", "Trainer", "TrainerMixin"]


def __dir__() -> list[str]:
    return __all__


STATE_FILE = "forebay_state.json"
"""The file in a checkpoint folder that has the position in the training data."""

_FORMAT = 1
_Base: Any = transformers.Trainer if TYPE_CHECKING else object

if not hasattr(transformers.Trainer, "_init_training_state"):
    raise ImportError(
        f"forebay.transformers does not know the Trainer of transformers {transformers.__version__}; install "
        "transformers 5.23"
    )


class TrainerMixin(_Base):  # type: ignore[misc]
    """Makes a `transformers.Trainer` train on a loader and evaluate with one: `class MyTrainer(TrainerMixin, Trainer)`.

    `train_dataset` and `eval_dataset` may be a `Loader`, a `TokenLoader`, a `cache.DataLoader`, a
    `forebay.torch.IterableDataset` over one, or a `forebay.torch.DataLoader`. Other datasets are handled as by the
    Trainer alone. Batches are those of the loader, on each rank its own, as tensors; on a CUDA device they are
    prefetched. `num_workers`, collators and samplers of the Trainer are not used.

    Each checkpoint has the position in the data, in the file `forebay_state.json`. A resumed run continues with
    the next batch and reads no earlier one, with any `ignore_data_skip`. Without `resume_from_checkpoint`,
    training begins where the loader is. An infinite loader needs `max_steps`.

    Each evaluation is the pass 0 of a finite loader. Loss and metrics are those of all rows of all ranks, each
    row once.

    Parameters
    ----------
    fields : mapping of str to str, or to several str, optional
        Names of the model's arguments, by field of the batch: `{"spectrogram": "input_values"}`. The others
        have their name if the model has such an argument, and are left out otherwise (all are passed with
        `remove_unused_columns=False`). By default `label` becomes `labels`, `inputs` becomes `input_ids`, and
        `targets` becomes `labels`, where the model has such arguments. The targets of a `TokenLoader` are the next
        tokens already, so a language model that shifts its `labels` itself gets them as `shift_labels` too.

    Raises
    ------
    ConfigError
        At construction if rank and world size of a loader are not those of the Trainer, an `eval_dataset` is
        infinite, or ranks of the `train_dataset` would not take the same number of steps. At the first batch
        if its fields do not fit the model.
    StateError
        By `train(resume_from_checkpoint=...)` if the checkpoint has no position, or that of other data.

    """

    compute_loss: Any  # of the Trainer
    gather_function: Any

    def __init__(self, *args: Any, fields: Mapping[str, str | Sequence[str]] | None = None, **kwargs: Any) -> None:
        self._fields = {
            field: (names,) if isinstance(names, str) else tuple(names) for field, names in (fields or {}).items()
        }
        self._sources: dict[int, tuple[Any, forebay.torch.DataLoader]] = {}  # by dataset, which is kept alive
        self._trained: _Batches | None = None  # what train() iterates
        self._evaluated: _EvalBatches | None = None  # what evaluation_loop() iterates
        self._resumed: dict[str, Any] | None = None  # the contents of STATE_FILE
        super().__init__(*args, **kwargs)
        self._source(self.train_dataset, "train")
        for dataset in self.eval_dataset.values() if isinstance(self.eval_dataset, dict) else [self.eval_dataset]:
            self._source(dataset, "eval")

    # ---- The loaders

    def _source(self, dataset: Any, role: str) -> forebay.torch.DataLoader | None:
        """The loader of a dataset as tensors, the same object at each call; None if it has no loader of forebay."""
        if isinstance(dataset, forebay.torch.DevicePrefetcher):
            raise ConfigError(
                f"{role}_dataset is a DevicePrefetcher, must be the loader, or DataLoader(loader, device=...)"
            )
        if not isinstance(dataset, LoaderBase | forebay.torch.IterableDataset | forebay.torch.DataLoader):
            return None
        loader = dataset if isinstance(dataset, LoaderBase) else dataset.loader
        if role == "eval" and loader is getattr(self.train_dataset, "loader", self.train_dataset):
            raise ConfigError(
                "eval_dataset has the loader of train_dataset, whose position an evaluation would move; "
                "make a second loader"
            )
        if id(dataset) not in self._sources:
            if isinstance(dataset, forebay.torch.DataLoader):
                source = dataset
            else:
                device = self.args.device if self.args.device.type == "cuda" else None
                source = forebay.torch.DataLoader(loader, device=device)
            self._check(source.loader, role)
            self._sources[id(dataset)] = dataset, source
        return self._sources[id(dataset)][1]

    def _check(self, loader: LoaderBase, role: str) -> None:
        """Raises `ConfigError` if the Trainer and a loader do not fit; sets the batch size to the loader's."""
        args = self.args
        size = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()  # of one copy of the model
        rank, world_size = args.process_index // size, args.world_size // size
        problems = []
        if (loader.rank, loader.world_size) != (rank, world_size):
            problems.append(
                f"the loader has rank {loader.rank} of world_size {loader.world_size}, the Trainer has rank {rank} of "
                f"{world_size}; "
                + (
                    "set use_cpu=True in TrainingArguments, without which the Trainer ignores the other processes"
                    if loader.world_size > args.world_size and os.environ.get("WORLD_SIZE") == str(loader.world_size)
                    else "make the loader after TrainingArguments, with **forebay.torch.rank_and_world_size()"
                )
            )
        if role == "eval" and _is_infinite(loader):
            problems.append("the loader is infinite, so an evaluation would not end; use infinite=False")
        if role == "eval" and size > 1:
            problems.append(
                "the model spans several processes, whose rows would count several times; use a plain dataset"
            )
        if role == "train" and isinstance(loader, TokenLoader) and world_size > 1 and not _is_infinite(loader):
            problems.append(
                "the passes of a finite TokenLoader may differ by some batches between ranks, which would wait for "
                "each other; use infinite=True, and max_steps in TrainingArguments"
            )
        if role == "train" and args.auto_find_batch_size:
            problems.append("auto_find_batch_size is True, but the loader has a fixed batch_size; use False")
        if problems:
            raise ConfigError(f"{role}_dataset: {'; '.join(problems)}")
        if args.dataloader_num_workers:
            warnings.warn(
                f"dataloader_num_workers is {args.dataloader_num_workers} and has no effect: the loader decodes in "
                "threads of its own, n_workers of Loader",
                stacklevel=4,
            )
        self._take_batch_size(loader, f"per_device_{role}_batch_size")
        if role == "train":
            self._train_batch_size = args.train_batch_size

    def _take_batch_size(self, loader: LoaderBase, name: str) -> None:
        """Sets the batch size from which the Trainer computes its logs; warns if the user gave another."""
        given, n_gpu = getattr(self.args, name), max(1, self.args.n_gpu)
        if given * n_gpu == loader.batch_size:
            return
        if given != inspect.signature(transformers.TrainingArguments).parameters[name].default:
            warnings.warn(
                f"{name} is {given}, the loader returns batches of {loader.batch_size} rows, which are not split; "
                f"{name} is set to the loader's. Leave it out, or choose batch_size of the loader",
                stacklevel=5,
            )
        setattr(self.args, name, max(1, loader.batch_size // n_gpu))

    def get_train_dataloader(self) -> Any:
        """The batches of `train_dataset`, from the position of the checkpoint or of the loader."""
        source = self._source(self.train_dataset, "train")
        if source is None:
            return super().get_train_dataloader()
        self._trained = _Batches(source, self)
        if self._resumed is not None:
            self._trained.steps.load(self._resumed)
        return self._trained

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The batches of pass 0 of `eval_dataset`."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        source = self._source(self.eval_dataset[dataset] if isinstance(dataset, str) else dataset, "eval")
        return super().get_eval_dataloader(eval_dataset) if source is None else _EvalBatches(source, self)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The batches of pass 0 of `test_dataset`."""
        source = self._source(test_dataset, "eval")
        return super().get_test_dataloader(test_dataset) if source is None else _EvalBatches(source, self)

    def num_examples(self, dataloader: Any) -> int:
        """The rows of a pass on all ranks, for logs: without the loader's number of records, those of full batches."""
        if not isinstance(dataloader, _Batches):
            return int(super().num_examples(dataloader))
        loader = dataloader.steps.loader
        rows = len(loader) * loader.batch_size * loader.world_size
        return min(rows, getattr(loader, "num_records", rows))

    # ---- Names

    def _names(self, batch: Mapping[str, Any], loader: LoaderBase) -> list[tuple[str, str]]:
        """Pairs of the model's argument and the field of `batch` that it gets."""
        self._set_signature_columns_if_needed()
        accepted = set(self._signature_columns) - ({"label", "label_ids"} - set(self.label_names))
        shifts = "targets" in batch and isinstance(loader, TokenLoader) and self._shifts_labels()
        usual: dict[str, tuple[str, ...]] = {"label": ("labels",), "inputs": ("input_ids",), "targets": ("labels",)}
        if shifts:
            usual["targets"] = ("labels", "shift_labels")
        if unknown := set(self._fields) - set(batch):
            raise ConfigError(f"fields has {', '.join(sorted(unknown))}; batches have {', '.join(batch)} only")
        pairs: list[tuple[str, str]] = []
        for field in batch:
            if field in self._fields:
                names = self._fields[field]
            elif field not in accepted and (usual.get(field, ("",))[0] in accepted):
                names = usual[field]
            else:
                names = (field,) if field in accepted or not self.args.remove_unused_columns else ()
            pairs.extend((name, field) for name in names)
        self._check_names(pairs, list(batch), accepted, shifts)
        return pairs

    def _shifts_labels(self) -> bool:
        """Whether the model, or a part of it, shifts `labels` itself, as causal language models do."""
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        kinds = (kind for module in model.modules() for kind in type(module).__mro__)
        return self._loss_shifts_labels or any(kind.__name__ in causal for kind in kinds)

    def _check_names(self, pairs: list[tuple[str, str]], fields: list[str], accepted: set[str], shifts: bool) -> None:
        """Raises `ConfigError` if the model lacks an argument, or would train on other targets than it seems."""
        model = type(self.model).__name__
        named = dict(pairs)
        parameters = inspect.signature(self.model.forward).parameters.values()
        plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        missing = [one.name for one in parameters if one.kind in plain and one.default is one.empty]
        main = getattr(self.model, "main_input_name", None)
        if main in accepted and "inputs_embeds" not in named:
            missing.append(main)
        missing = [name for name in dict.fromkeys(missing) if name not in named]
        if missing or not named:
            raise ConfigError(
                f"forward() of {model} needs {', '.join(missing) or 'at least one field'}; it takes "
                f"{', '.join(sorted(accepted))}, and batches have {', '.join(fields)}; say which is which, as "
                f"fields={{'spectrogram': {(missing or ['input_values'])[0]!r}}}"
            )
        if not shifts or named.get("labels") != "targets":
            return
        if self.label_smoother is not None or (self.compute_loss_func is None and "shift_labels" not in named):
            why = "label_smoothing_factor shifts" if self.label_smoother is not None else f"{model} shifts its"
            raise ConfigError(
                f"{why} labels by one, and 'targets' of a TokenLoader are the next tokens already, so the loss would "
                "be that of the tokens after next; "
                + (
                    "use fields={'inputs': ('input_ids', 'labels')}"
                    if self.label_smoother is not None
                    else "leave 'targets' out of fields, or use {'targets': ('labels', 'shift_labels')}"
                )
            )
        if "shift_labels" in named and not self.model_accepts_loss_kwargs:
            raise ConfigError(
                f"{model} shifts its labels by one and takes no shift_labels, and 'targets' of a TokenLoader are the "
                "next tokens already; use fields={'inputs': ('input_ids', 'labels')}"
            )

    # ---- Training

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As that of the Trainer. A checkpoint without `forebay_state.json` raises `StateError`."""
        self._trained = None
        if self._source(self.train_dataset, "train") is None:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        if isinstance(resume_from_checkpoint, str | os.PathLike) and Path(resume_from_checkpoint).is_dir():
            self._resumed = _read(Path(resume_from_checkpoint))
        # The batches to skip are counted and not read, and the count makes the Trainer's steps those of the first run.
        before, self.args.ignore_data_skip = self.args.ignore_data_skip, False
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            self.args.ignore_data_skip = before
            self._resumed = None

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """The epoch at which training resumes, and the batches of it that are done: the loader's, not computed."""
        epoch, done = super()._init_training_state(*args, **kwargs)
        if self._trained is None or self._resumed is None:
            return epoch, done
        steps = self._trained.steps
        if self.state.global_step >= self.state.max_steps > 0:
            steps.finish()
            return steps.epoch, 0
        if steps.is_infinite:
            steps.done = done
            return epoch, done
        accumulated = self.args.gradient_accumulation_steps
        if steps.done % accumulated:
            raise ConfigError(
                f"gradient_accumulation_steps is {accumulated}, but the checkpoint was saved after {steps.done} "
                f"batches of epoch {steps.epoch}, within a step; use the gradient_accumulation_steps of its run"
            )
        return steps.epoch, steps.done

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As that of the Trainer; a batch without rows, of a rank that has none, has a loss of weight 0."""
        if self._trained is None or _rows(inputs) != 0:
            return super().training_step(model, inputs, *args, **kwargs)
        compute_loss: Any = self.compute_loss

        def without_weight(*some: Any, **named: Any) -> Any:
            result = compute_loss(*some, **named)
            return (result[0] * 0.0, *result[1:]) if isinstance(result, tuple) else result * 0.0

        self.compute_loss = without_weight  # of this object, as the user's class may have its own
        try:
            return super().training_step(model, _one_row(inputs), *args, **kwargs)
        finally:
            del self.compute_loss

    def _save_checkpoint(self, model: Any, trial: Any, *args: Any, **kwargs: Any) -> None:
        """Saves the position first: a folder that the Trainer completed has it."""
        if self._trained is not None:
            contents = self._trained.steps.save()
            if self.args.should_save:
                folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
                _write(folder, contents)
        super()._save_checkpoint(model, trial, *args, **kwargs)

    # ---- Evaluation

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        """As that of the Trainer; of a loader, each row of each rank counts once."""
        if not isinstance(dataloader, _EvalBatches):
            return super().evaluation_loop(dataloader, *args, **kwargs)
        # Losses are weighted by rows below. The Trainer's normalisation across ranks takes equal batches for granted.
        across, self.args.average_tokens_across_devices = self.args.average_tokens_across_devices, False
        gather, self.gather_function = self.gather_function, dataloader.gather
        self._evaluated = dataloader
        try:
            output = super().evaluation_loop(dataloader, *args, **kwargs)
        finally:
            self._evaluated = None
            self.gather_function = gather
            self.args.average_tokens_across_devices = across
        return output._replace(num_samples=dataloader.num_rows)

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As that of the Trainer; the loss is repeated for each row, or for one that is dropped if there is none."""
        if self._evaluated is None:
            return super().prediction_step(model, inputs, *args, **kwargs)
        rows = _rows(inputs)
        loss, logits, labels = super().prediction_step(model, inputs if rows else _one_row(inputs), *args, **kwargs)
        if loss is not None and loss.ndim == 0:
            loss = loss.expand(rows or 1)
        return loss, logits, labels


class Trainer(TrainerMixin, transformers.Trainer):  # type: ignore[misc]
    """`transformers.Trainer` with `TrainerMixin`."""


class _Steps(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """The batches of a pass by number: sampler and dataset of a `DataLoader` in one.

    As sampler it yields numbers, as dataset it returns the batch of a number, which must be the next one. The
    Trainer resumes by leaving out the first numbers, so that no batch is read, and a Trainer that leaves out
    others raises.
    """

    def __init__(self, source: forebay.torch.DataLoader, trainer: TrainerMixin) -> None:
        self.source = source
        self.loader = source.loader
        self.is_infinite = _is_infinite(self.loader)
        self.first_pass: int | None = None  # the loader's number of the Trainer's epoch 0, once it has begun
        self.epoch = 0  # the Trainer's
        self.done = 0  # batches of this epoch
        self._trainer = trainer
        self._names: list[tuple[str, str]] | None = None
        self._is_resumed = False
        self._is_finished = False
        self._batches: Iterator[Mapping[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[int]]:
        if not self._is_resumed:
            self.done = 0
        self._is_resumed = False
        self._batches = None if self._is_finished else iter(self.source)
        if self.first_pass is None:  # of a pass that an earlier run left early, the next one
            self.first_pass = self._pass() - self.epoch
        return zip(itertools.count())

    def _pass(self) -> int:
        """The loader's number of the current pass."""
        return int(self.source.state_dict()["epoch"])

    def __getitems__(self, numbers: Sequence[int]) -> dict[str, Any]:
        if self._batches is None:
            raise StopIteration
        [number] = numbers
        if number != self.done:
            raise StateError(
                f"the Trainer requested batch {number} of epoch {self.epoch}, but the next one is batch {self.done}; "
                f"transformers {transformers.__version__} resumes in another way than 5.23, install that"
            )
        batch = next(self._batches, None)
        if batch is None:
            self._batches = None
            raise StopIteration
        self.done += 1
        if self._names is None:
            self._names = self._trainer._names(batch, self.loader)
        is_token_batch = isinstance(self.loader, TokenLoader)
        return {name: _as_ids(batch[field]) if is_token_batch else batch[field] for name, field in self._names}

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch of the Trainer."""
        self.epoch = epoch
        if not self.is_infinite and self.first_pass is not None:
            self.source.set_epoch(self.first_pass + epoch)

    def finish(self) -> None:
        """Training is complete: no batch is left."""
        self._is_finished = True

    def save(self) -> dict[str, Any]:
        """What a checkpoint needs; called on all ranks."""
        states = [self.source.state_dict()]
        if isinstance(self.loader, TokenLoader) and self.loader.world_size > 1:
            states = gather_object(states)
        return {
            "format": _FORMAT,
            "epoch": self.epoch,
            "batches": self.done,
            "first_pass": self._pass() if self.first_pass is None else self.first_pass,
            "states": states,
        }

    def load(self, contents: dict[str, Any]) -> None:
        """Continues after the batches of a checkpoint."""
        states = contents["states"]
        self.source.load_state_dict(states if isinstance(self.loader, TokenLoader) else states[0])
        self.first_pass, self.epoch, self.done = (contents[name] for name in ("first_pass", "epoch", "batches"))
        # The state after the last batch of a pass is that of the next pass.
        if not self.is_infinite and (epoch := states[0]["epoch"] - self.first_pass) != self.epoch:
            self.epoch, self.done = epoch, 0
        self._is_resumed = True


class _Batches(torch.utils.data.DataLoader[Any]):  # type: ignore[misc]
    """The batches of a loader as the Trainer takes them."""

    def __init__(self, source: forebay.torch.DataLoader, trainer: TrainerMixin) -> None:
        self.steps = _Steps(source, trainer)
        super().__init__(self.steps, batch_sampler=self.steps, collate_fn=_unchanged)
        self._is_accelerate_prepared = True  # accelerate does not wrap it again

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch of the Trainer."""
        self.steps.set_epoch(epoch)


class _EvalBatches(_Batches, DataLoaderStateMixin):  # type: ignore[misc]
    """All batches of pass 0; a rank that has fewer than the others ends with batches without rows."""

    def __init__(self, source: forebay.torch.DataLoader, trainer: TrainerMixin) -> None:
        super().__init__(source, trainer)
        self.accelerator = trainer.accelerator
        self.gradient_state = self.accelerator.gradient_state  # where the Trainer asks for the last batch
        self.n_rows = [0]  # of the current batch, on each rank
        self.num_rows = 0  # so far, on all ranks
        self._empty: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.steps.source.set_epoch(0)
        self.num_rows = 0
        self.begin()
        try:
            batches = super().__iter__()
            following = self._next(batches)
            while following is not None:
                batch, self.n_rows = following
                self.num_rows += sum(self.n_rows)
                following = self._next(batches)
                self.end_of_dataloader = following is None
                yield batch
        finally:
            self.end()

    def _next(self, batches: Iterator[dict[str, Any]]) -> tuple[dict[str, Any], list[int]] | None:
        """The next batch of this rank and the rows of all ranks; None if no rank has another one."""
        batch = next(batches, None)
        if self.accelerator.num_processes == 1:
            return None if batch is None else (batch, [_rows(batch)])
        rows = -1 if batch is None else _rows(batch)
        n_rows = self.accelerator.gather(torch.tensor([rows], device=self.accelerator.device)).tolist()
        if max(n_rows) < 0:
            return None
        if self._empty is None:
            mine = None if batch is None else {name: value[:0].cpu() for name, value in batch.items()}
            self._empty = next(one for one in gather_object([mine]) if one is not None)
        return (self._empty if batch is None else batch), [max(0, rows) for rows in n_rows]

    def gather(self, data: Any, *_args: Any, **_kwargs: Any) -> Any:
        """The rows of the current batch, of all ranks in their order; rows beyond are padding, or repeated losses."""
        return recursively_apply(self._gather, data, error_on_other_type=True)

    def _gather(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim == 0:  # has no rows
            return self.accelerator.gather(tensor)
        tensor = tensor[: self.n_rows[self.accelerator.process_index]]
        most = max(self.n_rows)
        if len(self.n_rows) == 1 or most == 0:
            return tensor
        padding = tensor.new_zeros((most - len(tensor), *tensor.shape[1:]))
        parts = self.accelerator.gather(torch.cat([tensor, padding])).split(most)
        return torch.cat([part[:rows] for part, rows in zip(parts, self.n_rows, strict=True)])


def _unchanged(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def _is_infinite(loader: LoaderBase) -> bool:
    """A finite `TokenLoader` has no length either."""
    return not is_finite(loader) and bool(loader.state_dict()["config"].get("infinite", True))


def _rows(batch: Mapping[str, Any]) -> int:
    """Rows of a batch; the first axis of every tensor."""
    return next((len(value) for value in batch.values() if isinstance(value, torch.Tensor) and value.ndim), 1)


def _one_row(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A row of zeros in place of a batch without rows: models and losses need not handle none."""
    return {
        name: value.new_zeros((1, *value.shape[1:])) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


def _as_ids(value: Any) -> Any:
    """Token ids as models and losses want them, int64; 4 or 2 bytes are enough for the way to the device."""
    is_id = isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    return value.long() if is_id else value


def _write(folder: Path, contents: dict[str, Any]) -> None:
    """Writes STATE_FILE completely before it gets its name."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{STATE_FILE}.partial"
    with partial.open("w") as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / STATE_FILE)


def _read(folder: Path) -> dict[str, Any]:
    """The contents of STATE_FILE; `StateError` if they are not there."""
    path = folder / STATE_FILE
    try:
        contents = json.loads(read_file(path))
    except FileNotFoundError:
        raise StateError(
            f"checkpoint {folder} has no {STATE_FILE}, so its position in the data is not known: a Trainer without "
            "TrainerMixin saved it, or had another train_dataset. Resume from a checkpoint that has the file; or load "
            "the weights of this one into the model and call train() without resume_from_checkpoint, which begins the "
            "data where the loader is"
        ) from None
    except (NotAFileError, ValueError) as error:
        raise StateError(f"{path} is damaged ({error}); resume from another checkpoint") from None
    if not isinstance(contents, dict) or contents.get("format") != _FORMAT:
        raise StateError(
            f"{path} has another format than this version of forebay reads ({_FORMAT}); use the version that wrote it"
        )
    return contents
