"""`IterableDataset` and users' own datasets in torch's `DataLoader` and torchdata; GPU tests need a GPU."""

import json
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from digests import digest
from recordings import SMALL
from tensors import digests, is_infinite, needs_gpu, of

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, get_worker_info  # noqa: E402
from torch.utils.data import IterableDataset as UsersDataset  # noqa: E402

import forebay.torch  # noqa: E402
from forebay.torch import IterableDataset  # noqa: E402


def test_a_dataset_for_a_dataloader(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    batches = DataLoader(IterableDataset(loader), batch_size=None)
    n = loader.batches_per_epoch
    if is_infinite(loader):
        with pytest.raises(TypeError, match="infinite"):
            len(batches)
        assert [of(batch) for batch in islice(batches, n + 3)] == digests(tiny_shards, n + 3)
    else:
        assert len(batches) == n
        expected = digests(tiny_shards, 3 * n, infinite=False)
        assert [of(batch) for batch in islice(batches, 3)] == expected[:3]
        assert [[of(batch) for batch in batches] for _ in range(2)] == [expected[n : 2 * n], expected[2 * n :]]


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_dataloader_with_a_position(loader: forebay.Loader, tiny_shards: list[Path], device: str | None) -> None:
    batches = forebay.torch.DataLoader(loader, device=device)
    assert isinstance(batches, DataLoader)
    n = loader.batches_per_epoch
    expected = digests(tiny_shards, 3 * n, infinite=is_infinite(loader))
    if is_infinite(loader):
        with pytest.raises(TypeError, match="infinite"):
            len(batches)
        assert [of(batch) for batch in islice(batches, n + 3)] == expected[: n + 3]
    else:
        assert len(batches) == n
        batches.set_epoch(2)
        assert [of(batch) for batch in islice(batches, 2)] == expected[2 * n : 2 * n + 2]
        batches.set_epoch(1)
        assert [of(batch) for batch in islice(batches, 3)] == expected[n : n + 3]
    state = json.loads(json.dumps(batches.state_dict()))
    with forebay.Loader(tiny_shards, **{**SMALL, "infinite": is_infinite(loader)}) as resumed:
        other = forebay.torch.DataLoader(resumed, device=device)
        other.load_state_dict(state)
        other.set_epoch(1)  # as a framework does before it continues with the epoch
        assert [of(batch) for batch in islice(other, 5)] == expected[n + 3 : n + 8]
    assert repr(batches).startswith("<forebay.torch.DataLoader: <forebay.Loader: 300 records")


class Rows(UsersDataset):  # type: ignore[misc]
    """The rows of a loader's batches."""

    def __init__(self, loader: forebay.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.loader:
            yield from ({"label": label} for label in batch["label"].tolist())


def test_batches_are_not_batched_again(finite: forebay.Loader) -> None:
    with pytest.raises(forebay.ConfigError, match=r"batch_size of DataLoader is 2, must be None: .* 16 rows"):
        next(iter(DataLoader(IterableDataset(finite), batch_size=2)))
    rows = DataLoader(Rows(finite), batch_size=2)  # a dataset of the user's that yields rows may be batched again
    assert next(iter(rows))["label"].shape == (2,)
    with pytest.raises(TypeError, match=r"use forebay\.torch\.DataLoader\(loader\) in place of"):
        next(iter(DataLoader(finite)))
    with pytest.raises(TypeError, match=r"for the Trainer of Hugging Face use forebay\.transformers\.TrainerMixin"):
        forebay.torch.DataLoader(finite)[0]
    with pytest.raises(TypeError, match=r"got num_workers, shuffle, but takes device, .* n_workers=8"):
        forebay.torch.DataLoader(finite, num_workers=8, shuffle=True)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # by JAX, if test_jax.py ran before
@pytest.mark.parametrize(("context", "n"), [("fork", 1), ("fork", 2), ("spawn", 1)])
def test_worker_processes_are_refused(finite: forebay.Loader, context: str, n: int) -> None:
    next(finite)
    workers = DataLoader(IterableDataset(finite), batch_size=None, num_workers=n, multiprocessing_context=context)
    with pytest.raises(forebay.ConfigError, match=rf"num_workers is {n}, must be 0: .*batch_size=None, num_workers=0"):
        next(iter(workers))


class Made(UsersDataset):  # type: ignore[misc]
    """A user's own dataset, which makes a loader in the process that iterates it."""

    def __init__(self, files: list[Path], share: bool, **parameters: Any) -> None:
        self.files, self.share, self.parameters = files, share, parameters

    def make(self) -> forebay.Loader:
        worker = get_worker_info()
        ranks = {"rank": worker.id, "world_size": worker.num_workers} if self.share else {}
        return forebay.Loader(self.files, **{**SMALL, **self.parameters, **ranks}, infinite=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.make())


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize(
    ("n", "ranks", "message"),
    [
        (2, {}, "num_workers is 2 with rank 0 of 1 in worker 0: .*num_workers=0.*rank=0 \\* 2 \\+ worker.id"),
        (2, {"rank": 0, "world_size": 2}, "num_workers is 2 with rank 0 of 2 in worker 1"),
        (2, {"rank": 1, "world_size": 2}, "num_workers is 2 with rank 1 of 2 in worker 0"),
    ],
)
def test_a_plain_loader_in_worker_processes_is_refused(
    tiny_shards: list[Path], n: int, ranks: dict[str, int], message: str
) -> None:
    made = Made(tiny_shards, False, **ranks)
    batches = DataLoader(made, batch_size=None, num_workers=n, multiprocessing_context="fork")
    with pytest.raises(forebay.ConfigError, match=message):
        list(batches)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize(("n", "share"), [(1, False), (1, True), (2, True)])
def test_a_plain_loader_in_one_worker_or_by_shares(tiny_shards: list[Path], n: int, share: bool) -> None:
    """Each good row is yielded once; every 20th of the 300 is bad."""
    made = Made(tiny_shards, share, order="global")
    batches = DataLoader(made, batch_size=None, num_workers=n, multiprocessing_context="fork")
    for _ in range(2):
        rows = np.concatenate([batch["index"] for batch in batches])
        assert sorted(rows) == sorted(set(range(300)) - set(range(7, 300, 20)))


class Kept(Made):
    """A `Made` that keeps its loader until its process ends."""

    loader: forebay.Loader | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.loader is None:
            self.loader = self.make()
        return iter(self.loader)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("kind", [Made, Kept])
@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes_that_stay(tiny_shards: list[Path], kind: type[Made], persistent: bool) -> None:
    """A loader kept in a persistent process continues with its next pass; otherwise each pass is the first."""
    batches = DataLoader(
        kind(tiny_shards, False),
        batch_size=None,
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=persistent,
        prefetch_factor=3,
    )
    n = 19
    expected = digests(tiny_shards, 4 * n, infinite=False)
    goes_on = persistent and kind is Kept
    assert [of(batch) for batch in islice(batches, 5)] == expected[:5]
    for number in range(3):
        start = n * (number + 1) if goes_on else 0
        assert [of(batch) for batch in batches] == expected[start : start + n]


def test_a_dataloader_that_pins(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    """`pin_memory` of torch works, and without a GPU warns."""
    has_gpu = torch.cuda.is_available()
    batches = DataLoader(IterableDataset(loader), batch_size=None, pin_memory=True)
    with nullcontext() if has_gpu else pytest.warns(UserWarning, match="pin_memory"):
        found = list(islice(batches, 5))
    assert all(tensor.is_pinned() == has_gpu for batch in found for tensor in batch.values())
    assert [of(batch) for batch in found] == digests(tiny_shards, 5, infinite=is_infinite(loader))


def test_workers_that_stay_are_refused(finite: forebay.Loader) -> None:
    """`persistent_workers` raises: from torch without workers, from forebay with workers."""
    with pytest.raises(ValueError, match="persistent_workers"):
        DataLoader(IterableDataset(finite), batch_size=None, persistent_workers=True)
    spawned = DataLoader(
        IterableDataset(finite), None, num_workers=1, multiprocessing_context="spawn", persistent_workers=True
    )
    with pytest.raises(forebay.ConfigError, match="num_workers is 1, must be 0"):
        next(iter(spawned))


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")  # torchdata 0.11 calls it
@pytest.mark.parametrize("at", [0, 1, 7, 18, 19, 20, 25])
def test_a_stateful_dataloader_goes_on(loader: forebay.Loader, tiny_shards: list[Path], at: int) -> None:
    """A state after `at` batches, with 19 in a pass, resumes in a new loader."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 40, infinite=infinite)
    batches = stateful.StatefulDataLoader(IterableDataset(loader), batch_size=None)
    taken: list[str] = []
    while len(taken) < at:
        for batch in islice(batches, at - len(taken)):
            taken.append(of(batch))
            state = batches.state_dict()
    if not at:
        state = batches.state_dict()
    assert taken == expected[:at]
    with forebay.Loader(tiny_shards, **SMALL, infinite=infinite) as resumed:
        batches = stateful.StatefulDataLoader(IterableDataset(resumed), batch_size=None)
        batches.load_state_dict(json.loads(json.dumps(state)))
        found: list[str] = []
        while len(found) < 8:
            found.extend(of(batch) for batch in islice(batches, 8 - len(found)))
        assert found == expected[at : at + 8]


def test_pickling_a_dataset(loader: forebay.Loader) -> None:
    next(loader)
    copy = pickle.loads(pickle.dumps(IterableDataset(loader)))
    with copy.loader:
        assert of(next(iter(copy))) == digest(next(iter(loader)) if is_infinite(loader) else next(loader))


def test_pinning_without_a_gpu_warns(loader: forebay.Loader) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="no CUDA device"):
        dataset = IterableDataset(loader, pin_memory=True)
    assert of(next(iter(dataset)))


@needs_gpu
def test_pinned_batches(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    """The allocator of torch recycles pinned memory only after the copies in flight."""
    infinite = is_infinite(loader)
    delay, found = torch.cuda.Stream(), []
    for batch in islice(IterableDataset(loader, pin_memory=True), 15):
        assert all(tensor.is_pinned() for tensor in batch.values())
        with torch.cuda.stream(delay):
            torch.cuda._sleep(20_000_000)
            found.append({name: tensor.to("cuda", non_blocking=True) for name, tensor in batch.items()})
        del batch
    torch.cuda.synchronize()
    assert [of(batch) for batch in found] == digests(tiny_shards, 15, infinite=infinite)
