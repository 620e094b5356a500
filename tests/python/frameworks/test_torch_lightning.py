"""`forebay.lightning` in one process: a run resumed from any checkpoint equals the one that was not interrupted."""

import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import documents
import forebay
from forebay import ForebayError, cache
from recordings import SMALL, TINY
from utterances import UTTERANCES

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

import forebay.lightning  # noqa: E402
import forebay.torch  # noqa: E402
import lit  # noqa: E402
from forebay.lightning import DataModule, DataPosition  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-process data loading:UserWarning"),  # of plain DataLoaders
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]

HOOKS = ("on_train_batch_end", "on_validation_end", "on_train_epoch_end")
MIDDLE = (0, 1, 9, 20)
"""Batches in whose step a checkpoint is saved."""


def items() -> cache.DataLoader:
    numbers = cache.ListAsyncDataset([{"x": np.arange(i, i + 3)} for i in range(20)])
    return cache.DataLoader(cache.PermutationDataset(numbers, seed=1), batch_size=3)


class Data:
    """The files, and loaders of them."""

    def __init__(self, shards: list[Path], parquets: Path, table: Path) -> None:
        self.shards, self.parquets, self.table = shards, parquets, table

    def audio(self, **parameters: Any) -> Any:
        return partial(forebay.Loader, self.shards, **{**SMALL, **parameters})

    def finite(self, **parameters: Any) -> Any:
        return self.audio(infinite=False, **parameters)

    def utterances(self, **parameters: Any) -> Any:
        """Whole recordings in batches by duration, whose shapes differ."""
        return partial(forebay.Loader, self.table, **{**UTTERANCES, **parameters})

    def tokens(self, **parameters: Any) -> Any:
        return partial(documents.loader, self.parquets, seed=2, **parameters)

    def val(self) -> Any:
        return partial(forebay.Loader.eval, self.shards, **TINY, n_workers=1)


@pytest.fixture
def data(tiny_shards: list[Path], parquets: Path, utterances: Path) -> Data:
    return Data(tiny_shards, parquets, utterances)


def combined(mode: str, *loaders: Any) -> Any:
    return lambda **ranks: lightning.utilities.CombinedLoader([make(**ranks) for make in loaders], mode)


def few(batches: Any, n: int) -> list[Any]:
    return [lit.rows(batch) for batch in islice(batches, n)]


def passes(loader: Any, n: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < n:
        found += few(loader, n - len(found))
    return found


def fit(train: Any, val: Any = None, net: Any = None, *, ckpt_path: Any = None, **parameters: Any) -> Any:
    net = net or lit.net()
    lit.trainer(**parameters).fit(net, DataModule(train, val), ckpt_path=ckpt_path)
    return net


# Of what is trained, with which parameters of the Trainer, and the rows that are due.
SCENES: dict[str, tuple[Callable[[Data], Any], dict[str, Any]]] = {
    "finite": (Data.finite, {"max_epochs": 2}),
    "finite, stopped in a pass": (Data.finite, {"max_steps": 25}),
    "finite, limited": (Data.finite, {"max_epochs": 4, "limit_train_batches": 6}),
    "finite, reloaded": (
        Data.finite,
        {"max_epochs": 3, "limit_train_batches": 8, "reload_dataloaders_every_n_epochs": 1},
    ),
    "finite, accumulating": (Data.finite, {"max_epochs": 2, "accumulate_grad_batches": 3}),
    "finite, often validated": (Data.finite, {"max_epochs": 2, "val_check_interval": 5}),
    "infinite": (Data.audio, {"max_steps": 24}),
    "infinite, limited": (Data.audio, {"max_epochs": 4, "limit_train_batches": 6}),
    "infinite, reloaded": (
        Data.audio,
        {"max_epochs": 3, "limit_train_batches": 8, "reload_dataloaders_every_n_epochs": 1},
    ),
    "infinite, accumulating": (Data.audio, {"max_steps": 8, "accumulate_grad_batches": 3}),
    "infinite, often validated": (
        Data.audio,
        {"max_steps": 24, "val_check_interval": 5, "check_val_every_n_epoch": None},
    ),
    "tokens": (Data.tokens, {"max_steps": 24}),
    "finite tokens": (lambda data: data.tokens(infinite=False, batch_size=12), {"max_epochs": 2}),
    "finite tokens, reloaded": (
        lambda data: data.tokens(infinite=False, batch_size=12),
        {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1},
    ),
    "utterances": (lambda data: data.utterances(infinite=False), {"max_epochs": 2}),
    "utterances, infinite": (lambda data: data.utterances(), {"max_steps": 24}),
    "dataset": (lambda _: items(), {"max_epochs": 3}),
    "finite and infinite": (lambda data: {"a": data.finite(), "b": data.audio(seed=7)}, {"max_steps": 24}),
    "finite and infinite, limited": (
        lambda data: {"a": data.finite(), "b": [data.audio(seed=7)]},
        {"max_epochs": 3, "limit_train_batches": 8},
    ),
    "long and short": (lambda data: [data.finite(), data.finite(seed=7, batch_size=40)], {"max_epochs": 2}),
    "the shortest": (
        lambda data: combined("min_size", data.finite(), data.finite(seed=7, batch_size=40)),
        {"max_epochs": 3},
    ),
    "the shortest without length": (
        lambda data: combined("min_size", data.audio(), data.tokens(infinite=False, batch_size=18)),
        {"max_epochs": 3},
    ),
    "overfit": (Data.audio, {"max_epochs": 4, "overfit_batches": 4}),
}


@pytest.mark.parametrize("scene", SCENES)
def test_resumed_from_any_checkpoint(scene: str, data: Data, tmp_path: Path, soak: int) -> None:
    """Saved in each hook, also before `DataPosition` in the list, and in the middle of steps."""
    make, parameters = SCENES[scene]
    saver, net = lit.Saver(tmp_path, *HOOKS), lit.net()
    net.save_at = {step: tmp_path / f"middle-{step}.ckpt" for step in MIDDLE}
    whole = fit(make(data), data.val(), net, callbacks=[saver], **parameters)
    paths = saver.paths + [path for path in net.save_at.values() if path.exists()]
    assert len(paths) > 20
    # Neighbours differ in their hooks, and all of the last ones in the end of an epoch.
    for path in paths if soak > 1 else paths[::5] + paths[-3:]:
        n = torch.load(path, weights_only=True)["n_seen"]
        resumed = fit(make(data), data.val(), ckpt_path=path, **parameters)
        assert resumed.seen == whole.seen[n:], path.name
        if "accumulate_grad_batches" not in parameters:  # a checkpoint has no gradients
            assert torch.equal(resumed.weight, whole.weight), path.name


def test_what_is_trained(data: Data) -> None:
    """Each epoch of Lightning is a pass of a finite loader, left early or not; an infinite one continues."""
    with data.finite()() as loader:
        expected = passes(loader, 38)
    assert fit(data.finite(), max_epochs=2).seen == expected
    assert fit(data.finite(), max_epochs=2, limit_train_batches=6).seen == expected[:6] + expected[19:25]
    with data.audio()() as loader:
        expected = few(loader, 24)
    assert fit(data.audio(), max_steps=24).seen == expected
    assert fit(data.audio(), max_epochs=4, limit_train_batches=6).seen == expected
    assert fit(data.audio(), max_epochs=3, overfit_batches=4).seen == 3 * expected[:4]


def test_fit_again(data: Data) -> None:
    """The next `fit` continues, also behind a batch that was fetched and not trained."""
    module = DataModule(data.audio())
    with data.audio()() as loader:
        expected = few(loader, 20)
    nets = [lit.net(), lit.net()]
    for net in nets:
        lit.trainer(max_steps=10).fit(net, module)
    assert nets[0].seen + nets[1].seen == expected


def test_the_rest_of_an_epoch_is_skipped(data: Data) -> None:
    """By -1 from `on_train_batch_start`: the next pass begins; of an infinite loader that batch is next."""

    def skip(_: Any, __: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 4 else None

    for make, n in ((data.finite(), 19), (data.audio(), 4)):
        with make() as loader:
            expected = passes(loader, n + 4)
        assert fit(make, net=lit.net(on_train_batch_start=skip), max_epochs=2).seen == expected[:4] + expected[n:]


def test_an_interrupted_step_is_repeated(data: Data, tmp_path: Path) -> None:
    """Its batch does not count as trained in a checkpoint that is saved after the error."""

    class Lost(Exception):  # noqa: N818
        pass

    def lose(_: Any, __: Any, batch_idx: int) -> None:
        if batch_idx == 7:
            raise Lost

    for make in (data.finite(), data.audio()):
        with make() as loader:
            expected = few(loader, 12)
        net = lit.net(on_train_batch_start=lose)
        trainer = lit.trainer(max_steps=12)
        with pytest.raises(Lost):
            trainer.fit(net, DataModule(make))
        trainer.save_checkpoint(tmp_path / "lost.ckpt")
        assert fit(make, max_steps=12, ckpt_path=tmp_path / "lost.ckpt").seen == expected[7:]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loader: loader,
        forebay.torch.DataLoader,
        forebay.torch.IterableDataset,
        partial(forebay.torch.DevicePrefetcher, device="cpu"),
        lambda loader: torch.utils.data.DataLoader(forebay.torch.IterableDataset(loader), batch_size=None),
    ],
    ids=["bare", "DataLoader", "IterableDataset", "DevicePrefetcher", "torch"],
)
@pytest.mark.parametrize("where", ["fit", "module", "datamodule"])
def test_a_data_module_of_ones_own(wrap: Any, where: str, data: Data, tmp_path: Path) -> None:
    """With the callback alone, and without a warning; a later `fit` without it is none of its business."""

    class Own(lightning.LightningDataModule):  # type: ignore[misc, name-defined]
        def train_dataloader(self) -> Any:
            return wrap(data.audio()())

    def run(**parameters: Any) -> Any:
        methods: dict[str, Any] = {"train_dataloader": lambda _: wrap(data.audio()())} if where == "module" else {}
        net, trainer = lit.net(**methods), lit.trainer(max_steps=12, callbacks=[saver, DataPosition()])
        given: dict[str, Any] = {"fit": wrap(data.audio()()), "module": None, "datamodule": Own()}
        trainer.fit(net, given[where], **parameters)
        assert "dataloader" not in vars(trainer.fit_loop._data_source)
        return net

    saver = lit.Saver(tmp_path, "on_train_batch_end")
    whole = run()
    path = saver.paths[6]
    saver = lit.Saver(tmp_path)
    assert run(ckpt_path=path).seen == whole.seen[7:]


@pytest.mark.filterwarnings("ignore:Found `dataloader_iter` argument")
@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor")
@pytest.mark.parametrize("n_ahead", [0, 2])
def test_an_iterator_for_the_step(n_ahead: int, data: Data, tmp_path: Path) -> None:
    """`training_step(dataloader_iter)`, where the module may fetch ahead by itself."""

    def step(self: Any, dataloader_iter: Any) -> Any:
        self.fetched = getattr(self, "fetched", [])
        while len(self.fetched) <= n_ahead:
            self.fetched.append(next(dataloader_iter)[0])
        batch = self.fetched.pop(0)
        self.seen.append(lit.rows(batch))
        return (self.weight - lit.number_of(batch)) ** 2

    saver = lit.Saver(tmp_path, "on_train_batch_end")
    whole = fit(data.audio(), net=lit.net(training_step=step), max_steps=12, callbacks=[saver])
    resumed = fit(data.audio(), net=lit.net(training_step=step), max_steps=12, ckpt_path=saver.paths[6])
    with data.audio()() as loader:
        assert whole.seen == few(loader, 12)
    assert resumed.seen == whole.seen[7:]


def test_a_bare_loader_can_take_the_state(data: Data, tmp_path: Path) -> None:
    saver = lit.Saver(tmp_path, "on_train_batch_end")
    net = fit(data.audio(), max_steps=9, callbacks=[saver])
    checkpoint = torch.load(saver.paths[4], weights_only=True)
    with data.audio()() as loader:
        loader.load_state_dict(checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"][0])
        assert few(loader, 4) == net.seen[5:]


def test_evaluations_and_predictions(data: Data) -> None:
    """Every one has all rows, whatever came before: the sanity check, a limit. Rows are told once."""
    with data.val()() as loader:
        expected = few(loader, 100)
    module = DataModule(data.finite(), data.val(), [data.val(), data.val()], data.val())
    net, trainer = lit.net(), lit.trainer(max_epochs=1, val_check_interval=10, num_sanity_val_steps=2)
    trainer.fit(net, module)
    assert net.checked == expected[:2] + expected
    for _ in range(2):
        net.checked.clear()
        trainer.validate(net, module, verbose=False)
        assert net.checked == expected
    limited = lit.trainer(limit_val_batches=1)
    limited.validate(net, module, verbose=False)
    net.checked.clear()
    assert trainer.predict(net, module) == expected

    def keep(self: Any, batch: Any, _: int, dataloader_idx: int) -> None:
        self.checked.append((dataloader_idx, lit.rows(batch)))

    two = lit.net(test_step=keep)
    trainer.test(two, module, verbose=False)
    assert two.checked == [(number, rows) for number in range(2) for rows in expected]


def test_batches_are_tensors(data: Data) -> None:
    kinds: set[Any] = set()

    def look(_: Any, batch: Any, __: int) -> None:
        kinds.update((name, value.dtype) for name, value in batch.items())

    fit(data.audio(dtype="bfloat16"), net=lit.net(on_train_batch_start=look), max_steps=1)
    assert kinds == {("spectrogram", torch.bfloat16), ("label", torch.int64), ("index", torch.int64)}


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_both_names_of_the_package(name: str, data: Data, tmp_path: Path) -> None:
    package = pytest.importorskip(name)
    path = tmp_path / "one.ckpt"

    def run(**parameters: Any) -> Any:
        net, module = lit.net(package), DataModule(data.audio(), data.val())
        net.save_at = {7: path}
        lit.trainer(package, max_steps=12).fit(net, module, **parameters)
        return net

    whole = run()
    assert run(ckpt_path=path).seen == whole.seen[7:]


def test_one_of_the_names_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [package.__name__ for package in forebay.lightning._installed()]
    assert names[0] == "lightning.pytorch"
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    assert [package.__name__ for package in forebay.lightning._installed()] == names[1:]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(ImportError, match="lightning"):
        forebay.lightning._installed()


def warned(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in caught if "treespec" not in str(one.message)]


def test_nothing_to_warn_of(data: Data) -> None:
    """Lightning neither advises worker processes nor calls the position unknown."""
    assert warned(lambda: fit(data.finite(), data.val(), max_epochs=2)) == []
    assert warned(lambda: fit(data.audio(), data.val(), max_steps=4)) == []


def test_a_position_that_would_be_lost(data: Data) -> None:
    """Is told once, for training and not for validation, and not where it is saved."""

    def plain(make: Any) -> Any:
        return torch.utils.data.DataLoader(forebay.torch.IterableDataset(make()), batch_size=None)

    def run(train: Any, *callbacks: Any, **parameters: Any) -> list[str]:
        trainer = lit.trainer(**parameters, callbacks=list(callbacks))
        found = warned(lambda: trainer.fit(lit.net(), train, plain(data.val())))
        return [message for message in found if "forebay" in message]

    [message] = run(plain(data.finite()), max_epochs=3)
    assert "checkpoints of Lightning will not hold the position" in message
    assert run(plain(data.finite()), DataPosition(), max_epochs=3) == []
    assert run(forebay.torch.DataLoader(data.finite()()), max_epochs=2) == []
    [message] = run(forebay.torch.DataLoader(data.audio()()), max_steps=3)
    assert "add forebay.lightning.DataPosition()" in message
    assert run(forebay.torch.DataLoader(data.audio()()), max_epochs=2, limit_train_batches=3) == []
    assert run(forebay.torch.DataLoader(data.audio()()), DataPosition(), max_steps=3) == []


def test_a_checkpoint_without_a_position(data: Data, tmp_path: Path) -> None:
    net = lit.net()
    net.save_at = {5: tmp_path / "one.ckpt"}
    rows = torch.utils.data.DataLoader([{"index": torch.tensor(i)} for i in range(20)])
    lit.trainer(max_epochs=1).fit(net, rows)
    with pytest.warns(UserWarning, match="checkpoint of step 5 holds no position in the data"):
        fit(data.audio(), max_steps=8, ckpt_path=tmp_path / "one.ckpt")


def test_a_validation_is_repeated(data: Data) -> None:
    """Also of a loader that shuffles: each validation is the same pass."""
    module, net = DataModule(val=data.finite()), lit.net()
    trainer = lit.trainer()
    trainer.validate(net, module, verbose=False)
    first, net.checked = net.checked, []
    trainer.validate(net, module, verbose=False)
    assert net.checked == first


def test_what_is_refused(data: Data, tmp_path: Path) -> None:
    expected = "argument 'train': a loader, or a function of rank and world_size"
    with pytest.raises(TypeError, match=f"{expected}.*not str"):
        DataModule("shard.arrow")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{expected}.*calling it fails: got an unexpected keyword argument 'rank'"):
        DataModule({"a": lambda: None})
    with pytest.raises(forebay.ConfigError, match="depth is -1, must be 0"):
        DataModule(depth=-1)
    with pytest.raises(forebay.ConfigError, match="the DataModule has no train"):
        fit(None, max_steps=1)
    with pytest.raises(forebay.ConfigError, match=r"loader of val is infinite.*limit_val_batches=100"):
        fit(data.finite(), data.audio(), max_steps=1)
    fit(data.finite(), data.audio(), max_steps=1, limit_val_batches=2)
    both = data.finite()(rank=0, world_size=1)
    with pytest.raises(forebay.ConfigError, match="val has a loader of train, whose position"):
        fit(both, both, max_steps=1)
    with pytest.raises(forebay.ConfigError, match="val has a loader of train, whose position"):
        lit.trainer(max_epochs=2, callbacks=[DataPosition()]).fit(lit.net(), both, both)
    with pytest.raises(forebay.ConfigError, match="rank 1 of 2, but this process of the Trainer is rank 0 of 1"):
        fit(data.finite()(rank=1, world_size=2), max_steps=1)
    with pytest.raises(forebay.ConfigError, match="rank 1 of 2, but this process"):
        lit.trainer(max_epochs=1, callbacks=[DataPosition()]).fit(lit.net(), data.finite()(rank=1, world_size=2))
    with pytest.raises(forebay.ConfigError, match="'max_size', must be 'max_size_cycle' or 'min_size'"):
        fit(combined("max_size", data.finite(), data.finite()), max_epochs=1)
    net = lit.net()
    net.save_at = {5: tmp_path / "one.ckpt"}
    fit(data.finite(), net=net, max_epochs=1)
    with pytest.raises(forebay.StateError, match="seed"):
        fit(data.finite(seed=5), max_epochs=1, ckpt_path=tmp_path / "one.ckpt")
    with pytest.raises(forebay.ConfigError, match="states of 1 training loaders, and there are 2"):
        fit([data.finite(), data.finite()], max_epochs=1, ckpt_path=tmp_path / "one.ckpt")


def test_batches_looked_at_meanwhile(data: Data) -> None:
    """Before the first step they come again; later Lightning's own iteration would be disturbed."""

    def look(self: Any) -> None:
        next(iter(self.trainer.train_dataloader))

    def look_later(self: Any, *_: Any) -> None:
        look(self)

    with data.finite()() as loader:
        expected = passes(loader, 19)
    assert fit(data.finite(), net=lit.net(on_train_start=look), max_epochs=1).seen == expected
    with pytest.raises(forebay.ConfigError, match="was iterated again while Lightning iterates it"):
        fit(data.finite(), net=lit.net(on_train_batch_end=look_later), max_epochs=1)


def test_a_stateful_dataloader_is_refused(data: Data) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches = stateful.StatefulDataLoader(forebay.torch.IterableDataset(data.finite()()), batch_size=None)
        with pytest.raises(forebay.ConfigError, match="StatefulDataLoader has a state of its own"):
            lit.trainer(max_epochs=1, callbacks=[DataPosition()]).fit(lit.net(), batches)


def test_jagged_fields() -> None:
    rows = cache.ListAsyncDataset([{"x": np.arange(1 + i % 3)} for i in range(12)])

    def count(self: Any, batch: Any, _: int) -> Any:
        self.seen.append([row.tolist() for row in batch["x"]])
        return self.weight * batch["x"].offsets[-1]

    net = fit(cache.DataLoader(rows, batch_size=3), net=lit.net(training_step=count), max_epochs=1)
    assert net.seen == 4 * [[[0], [0, 1], [0, 1, 2]]]


def test_a_trainer_that_gets_its_loaders_elsewhere(data: Data) -> None:
    """Training does not begin without a position: another version of Lightning may ask where no callback looks."""

    class Elsewhere(lightning.Callback):  # type: ignore[misc, name-defined]
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
            source = copy.copy(trainer.fit_loop._data_source)
            del source.dataloader
            trainer.fit_loop._data_source = source

    with pytest.raises(ForebayError, match=r"lightning.pytorch 2\..* did not ask for its training loaders where"):
        fit(data.finite(), callbacks=[Elsewhere()], max_epochs=1)
