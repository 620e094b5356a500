"""`forebay.torch`; what needs a GPU is skipped without one."""

import json
import pickle
import random
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from recordings import TINY
from wrong import assert_named

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, get_worker_info  # noqa: E402
from torch.utils.data import IterableDataset as UsersDataset  # noqa: E402

import forebay.torch  # noqa: E402
from forebay.torch import DevicePrefetcher, IterableDataset, _Slot, rank_and_world_size, to_tensors  # noqa: E402

SMALL: dict[str, Any] = {**TINY, "seed": 4, "batch_size": 16, "shuffle_min_size": 40, "n_workers": 2}

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def of(batch: dict[str, Any]) -> str:
    """A number for all that is in a batch of tensors."""
    return digest({name: tensor.cpu().numpy() for name, tensor in batch.items()})


@pytest.fixture(params=[True, False], ids=["infinite", "finite"])
def loader(request: pytest.FixtureRequest, tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    with forebay.Loader(tiny_shards, **SMALL, infinite=request.param) as loader:
        yield loader


def is_infinite(loader: forebay.Loader) -> bool:
    try:
        len(loader)
    except TypeError:
        return True
    return False


@pytest.fixture
def finite(tiny_shards: list[Path]) -> Iterator[forebay.Loader]:
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        yield loader


def digests(files: list[Path], n: int, **overrides: Any) -> list[str]:
    """Of the first `n` batches, straight from a loader."""
    with forebay.Loader(files, **{**SMALL, **overrides}) as loader:
        found: list[str] = []
        while len(found) < n:
            found.extend(digest(batch) for batch in islice(loader, n - len(found)))
        return found


def test_tensors_share_memory(loader: forebay.Loader) -> None:
    batch = next(loader)
    tensors = to_tensors(batch)
    assert {name: str(tensor.dtype) for name, tensor in tensors.items()} == {
        "spectrogram": "torch.float32",
        "label": "torch.int64",
        "index": "torch.int64",
    }
    for name, tensor in tensors.items():
        assert tensor.data_ptr() == batch[name].ctypes.data
        assert tensor.is_contiguous()
    tensors["spectrogram"][0, 0, 0] = 7
    assert batch["spectrogram"][0, 0, 0] == 7


def test_other_fields_pass() -> None:
    fields: dict[str, Any] = {"path": ["a", "b"], "name": np.array(["a", "b"]), "clean": np.array([True, False])}
    tensors = to_tensors(fields)
    assert tensors["path"] is fields["path"]
    assert tensors["name"] is fields["name"]
    assert tensors["clean"].tolist() == [True, False]


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = to_tensors({"x": np.array([1.5, -2.0], ml_dtypes.bfloat16)})["x"]
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_spectrograms_of_two_bytes(dtype: str, tiny_shards: list[Path]) -> None:
    """Of torch's own type, in the memory of the array, rounded as torch rounds."""
    with forebay.Loader(tiny_shards, **SMALL) as plain, forebay.Loader(tiny_shards, **SMALL, dtype=dtype) as loader:
        for expected, arrays in islice(zip(plain, loader, strict=True), 4):
            spectrogram = to_tensors(arrays)["spectrogram"]
            assert spectrogram.data_ptr() == arrays["spectrogram"].__array_interface__["data"][0]
            assert torch.equal(spectrogram, torch.from_numpy(expected["spectrogram"]).to(getattr(torch, dtype)))
        batch = next(iter(DevicePrefetcher(IterableDataset(loader), "cpu")))
        assert batch["spectrogram"].dtype == getattr(torch, dtype)
        # Other fields of such numbers are what they are.
        assert to_tensors({"tokens": np.zeros(3, np.uint16)})["tokens"].dtype == torch.uint16


def test_kept_tensors_never_change(tiny_shards: list[Path]) -> None:
    """Their arrays are gone, but their memory is not used again."""
    with forebay.Loader(tiny_shards, **{**SMALL, "batch_size": 300, "n_mels": 64}) as loader:
        kept = [batch for batch, _ in zip(IterableDataset(loader), range(12), strict=False)]
    assert [of(batch) for batch in kept] == digests(tiny_shards, 12, batch_size=300, n_mels=64)


def test_a_dataset_for_a_dataloader(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    batches = DataLoader(IterableDataset(loader), batch_size=None)
    n = loader.batches_per_epoch
    if is_infinite(loader):
        with pytest.raises(TypeError, match="infinite"):
            len(batches)
        assert [of(batch) for batch in islice(batches, n + 3)] == digests(tiny_shards, n + 3)
    else:
        assert len(batches) == n
        expected = digests(tiny_shards, 2 * n, infinite=False)
        assert [of(batch) for batch in islice(batches, 3)] == expected[:3]
        assert [[of(batch) for batch in batches] for _ in range(2)] == [expected[:n], expected[n:]]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if test_jax.py was run before
@pytest.mark.parametrize(("context", "n"), [("fork", 1), ("fork", 2), ("spawn", 1)])
def test_worker_processes_are_refused(finite: forebay.Loader, context: str, n: int) -> None:
    next(finite)
    workers = DataLoader(IterableDataset(finite), batch_size=None, num_workers=n, multiprocessing_context=context)
    with pytest.raises(forebay.ConfigError, match=rf"num_workers is {n}, must be 0: .*batch_size=None, num_workers=0"):
        next(iter(workers))


class Made(UsersDataset):  # type: ignore[misc]
    """A dataset of a user's own, which makes a loader where it is iterated."""

    def __init__(self, files: list[Path], share: bool, **parameters: Any) -> None:
        self.files, self.share, self.parameters = files, share, parameters

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        ranks = {"rank": worker.id, "world_size": worker.num_workers} if self.share else {}
        return iter(forebay.Loader(self.files, **{**SMALL, **self.parameters, **ranks}, infinite=False))


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
    """Each row once; every 20th of the 300 is bad."""
    made = Made(tiny_shards, share, order="global")
    batches = DataLoader(made, batch_size=None, num_workers=n, multiprocessing_context="fork")
    for _ in range(2):
        rows = np.concatenate([batch["index"] for batch in batches])
        assert sorted(rows) == sorted(set(range(300)) - set(range(7, 300, 20)))


class Kept(Made):
    """One that keeps its loader, for as long as its process lives."""

    loader: forebay.Loader | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.loader is None:
            made = super().__iter__()
            assert isinstance(made, forebay.Loader)
            self.loader = made
        return iter(self.loader)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.parametrize("kind", [Made, Kept])
@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes_that_stay(tiny_shards: list[Path], kind: type[Made], persistent: bool) -> None:
    """Who keeps a loader in a process that stays goes on with its next pass; else each pass is the first."""
    batches = DataLoader(
        kind(tiny_shards, False),
        batch_size=None,
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=persistent,
        prefetch_factor=3,
    )
    n = 19
    expected = digests(tiny_shards, 3 * n, infinite=False)
    goes_on = persistent and kind is Kept
    assert [of(batch) for batch in islice(batches, 5)] == expected[:5]
    for number in range(3):
        start = n * number if goes_on else 0
        assert [of(batch) for batch in batches] == expected[start : start + n]


def test_a_dataloader_that_pins(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    """`pin_memory` of torch's own; without a GPU torch says that it does nothing."""
    has_gpu = torch.cuda.is_available()
    batches = DataLoader(IterableDataset(loader), batch_size=None, pin_memory=True)
    with nullcontext() if has_gpu else pytest.warns(UserWarning, match="pin_memory"):
        found = list(islice(batches, 5))
    assert all(tensor.is_pinned() == has_gpu for batch in found for tensor in batch.values())
    assert [of(batch) for batch in found] == digests(tiny_shards, 5, infinite=is_infinite(loader))


def test_workers_that_stay_are_refused(finite: forebay.Loader) -> None:
    """By torch without workers, by us with some."""
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
    """`at` batches after the start, across the 19 of a pass, in a new loader."""
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


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_fields_in_one_block(rows: int) -> None:
    """The copy that pinning makes, here in ordinary memory."""
    from forebay.torch import _block_size, _copied_into

    tensors = {
        "spectrogram": torch.rand(rows, 3, 7),
        "label": torch.arange(rows),
        "half": torch.rand(rows, 1).half(),
        "one": torch.tensor(3.0),
    }
    block = torch.empty(_block_size(tensors), dtype=torch.uint8)
    copies = _copied_into(block, tensors)
    for name, tensor in tensors.items():
        assert torch.equal(copies[name], tensor)
        assert copies[name].untyped_storage().data_ptr() == block.data_ptr()
        assert copies[name].data_ptr() % 64 == block.data_ptr() % 64


@pytest.fixture(params=[0, 1, 3])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def prefetcher(batches: Any, depth: int) -> DevicePrefetcher:
    """One for the CPU that keeps the books as one for a GPU does."""
    made = DevicePrefetcher(batches, "cpu")
    made._depth = depth
    return made


def test_a_prefetcher_returns_the_same_batches(loader: forebay.Loader, tiny_shards: list[Path], depth: int) -> None:
    batches = prefetcher(loader, depth)
    if is_infinite(loader):
        expected = digests(tiny_shards, 30)
        assert [of(batch) for batch in islice(batches, 7)] == expected[:7]
        assert [of(batch) for batch in islice(batches, 23)] == expected[7:]
    else:
        n = len(batches)
        expected = digests(tiny_shards, 2 * n, infinite=False)
        for left_after in (0, 1, 5, n - 3, n - 2, n - 1):
            assert [of(batch) for batch in islice(batches, left_after)] == expected[:left_after]
        assert [of(batch) for batch in batches] == expected[:n]
        assert [of(batch) for batch in batches] == expected[n:]


@pytest.mark.parametrize("at", [0, 1, 6, 17, 18, 19, 21])
def test_the_state_is_that_of_the_batch_returned(
    loader: forebay.Loader, tiny_shards: list[Path], depth: int, at: int
) -> None:
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 40, infinite=infinite)
    batches = prefetcher(IterableDataset(loader), depth)
    taken = 0
    while taken < at:
        for _ in islice(batches, at - taken):
            taken += 1
    state = json.loads(json.dumps(batches.state_dict()))
    batches.load_state_dict(state)
    assert of(next(batches)) == expected[at]
    with forebay.Loader(tiny_shards, **SMALL, infinite=infinite) as resumed:
        again = prefetcher(resumed, depth)
        again.load_state_dict(state)
        found: list[str] = []
        while len(found) < 8:
            found.extend(of(batch) for batch in islice(again, 8 - len(found)))
        assert found == expected[at : at + 8]


def test_an_epoch_set_between_passes_is_kept(finite: forebay.Loader, tiny_shards: list[Path]) -> None:
    batches = prefetcher(finite, 2)
    next(batches)
    finite.set_epoch(1)
    n = len(finite)
    assert [of(batch) for batch in batches] == digests(tiny_shards, 2 * n, infinite=False)[n:]


def test_errors_come_after_the_batches_before_them() -> None:
    def batches() -> Iterator[dict[str, Any]]:
        yield {"x": np.zeros(1)}
        yield {"x": np.ones(1)}
        raise OSError("disk")

    taken = prefetcher(batches(), 3)
    assert [next(taken)["x"].item() for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="disk"):
        next(taken)
    with pytest.raises(TypeError, match="generator has no state_dict"):
        taken.state_dict()


@pytest.mark.parametrize("at", [5, 17])
def test_a_resumed_pass_that_is_left_begins_again(
    finite: forebay.Loader, tiny_shards: list[Path], depth: int, at: int
) -> None:
    """From its first batch, as without a prefetcher; also if the loader is at the end of the pass already."""
    n = len(finite)
    expected = digests(tiny_shards, n, infinite=False)
    for _ in islice(finite, at):
        pass
    state = finite.state_dict()
    batches = prefetcher(finite, depth)
    batches.load_state_dict(state)
    assert of(next(batches)) == expected[at]
    assert [of(batch) for batch in batches] == expected


def test_a_dataloader_on_a_device(loader: forebay.Loader, tiny_shards: list[Path], depth: int) -> None:
    """The state is that of its dataset; a pass that was left begins again."""
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 40, infinite=infinite)
    batches = prefetcher(DataLoader(IterableDataset(loader), batch_size=None), depth)
    assert [of(batch) for batch in islice(batches, 18)] == expected[:18]
    state = batches.state_dict()
    if infinite:
        assert [of(batch) for batch in islice(batches, 4)] == expected[18:22]
    else:
        assert [of(batch) for batch in batches] == expected[:19]
    batches.load_state_dict(state)
    assert of(next(batches)) == expected[18]


class Interrupted:
    """A function that Ctrl-C interrupts now and then, before it is done or when it is."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.calls = count()

    def __call__(self, *arguments: Any) -> Any:
        match next(self.calls) % 5:
            case 1:
                raise KeyboardInterrupt
            case 3:
                self.function(*arguments)
                raise KeyboardInterrupt
        return self.function(*arguments)


def test_an_interrupted_conversion_loses_nothing(
    loader: forebay.Loader, tiny_shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the loop that goes on, nor for one that begins anew, nor in the state."""
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 19, infinite=infinite)
    monkeypatch.setattr(forebay.torch, "to_tensors", interrupted := Interrupted(to_tensors))
    dataset = IterableDataset(loader)
    found: list[str] = []
    batches = iter(dataset)
    while len(found) < 19:
        with suppress(KeyboardInterrupt):
            found.append(of(next(batches)))
            continue
        with forebay.Loader(tiny_shards, **SMALL, infinite=infinite) as resumed:
            resumed.load_state_dict(dataset.state_dict())
            assert digest(next(iter(resumed))) == expected[len(found)]
        if infinite:
            batches = iter(dataset)
    assert found == expected
    assert next(interrupted.calls) > 25


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")  # in a callback
def test_interrupts_lose_nothing(depth: int) -> None:
    """Signals at random moments; `map` takes each batch without a bytecode in between that could raise."""
    n, rng, interrupts, armed, done = 20_000, random.Random(0), 0, False, threading.Event()

    def interrupt(*_arguments: object) -> None:
        nonlocal armed, interrupts
        if armed:
            armed, interrupts = False, interrupts + 1
            raise KeyboardInterrupt

    def send() -> None:
        while not done.wait(0.004 * rng.random()):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    batches = prefetcher(iter([{"x": np.array([number])} for number in range(n)]), depth)
    found: list[dict[str, Any]] = []
    sending = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, interrupt)
    sending.start()
    try:
        while len(found) < n:
            try:
                armed = True
                deque(map(found.append, batches), maxlen=0)
                armed = False
            except KeyboardInterrupt:
                pass
    finally:
        armed = False
        done.set()
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    assert [batch["x"].item() for batch in found] == list(range(n))
    assert interrupts > 10


def test_wrong_types_are_named(loader: forebay.Loader) -> None:
    assert_named(DevicePrefetcher, "depth", batches=loader, device="cpu")
    assert_named(IterableDataset, "pin_memory", loader=loader)


def test_wrong_devices_and_depths(loader: forebay.Loader) -> None:
    with pytest.raises(forebay.ConfigError, match="device is meta"):
        DevicePrefetcher(loader, "meta")
    with pytest.raises(forebay.ConfigError, match="depth is 0"):
        DevicePrefetcher(loader, "cpu", depth=0)


def test_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert rank_and_world_size() == {"rank": 0, "world_size": 1}
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE is 4 .* init_process_group"):
        rank_and_world_size()
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert rank_and_world_size() == {"rank": 0, "world_size": 1}
    finally:
        torch.distributed.destroy_process_group()


class Lagging:
    """A stream whose copies are done when somebody waits for them, and no sooner."""

    def __init__(self) -> None:
        self.copies: list[Any] = []
        self.done = 0
        self.waited_for: list[int] = []

    def copy(self, tensor: Any) -> Any:
        copied = torch.full_like(tensor, -7)
        self.copies.append(lambda: copied.copy_(tensor))
        return copied

    def record_event(self) -> Any:
        recorded = len(self.copies)

        def synchronize() -> None:
            for copy in self.copies[self.done : recorded]:
                copy()
            self.done = max(self.done, recorded)

        return SimpleNamespace(synchronize=synchronize, recorded=recorded)

    def wait_event(self, event: Any) -> None:
        self.waited_for.append(event.recorded)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_slots_are_written_again_after_their_copy(
    monkeypatch: pytest.MonkeyPatch, tiny_shards: list[Path], depth: int
) -> None:
    """Without a GPU, by a stream that lags as far behind as it may; batches differ in size."""

    def to(tensor: Any, _device: Any, *, non_blocking: bool) -> Any:
        assert non_blocking
        return lagging.copy(tensor)

    lagging = Lagging()
    used_by: list[Lagging] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **options: empty(*size, **options | {"pin_memory": False}))
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: used_by.append(stream))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: lagging)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:  # some rows are bad
        batches = prefetcher(loader, depth)
        batches._device, batches._stream = SimpleNamespace(type="cuda"), lagging
        batches._slots = deque(_Slot() for _ in range(depth + 1))
        found = list(batches)
    assert lagging.waited_for == [3 * number for number in range(1, 20)]
    assert used_by == [lagging] * 3 * 19
    assert lagging.done == 3 * (19 - depth - 1)
    lagging.record_event().synchronize()
    monkeypatch.undo()
    assert [of(batch) for batch in found] == digests(tiny_shards, 19, infinite=False)


@needs_gpu
def test_pinned_batches(loader: forebay.Loader, tiny_shards: list[Path]) -> None:
    """Their memory goes around in torch's allocator, which waits for copies that are under way."""
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


@needs_gpu
@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("slow", ["copies", "compute", "neither"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_batches_dropped_at_once(tiny_shards: list[Path], slow: str, n: int, pin_memory: bool) -> None:
    """A stream lags behind by many batches; no slot and no device memory is written again too early."""
    parameters = {**SMALL, "batch_size": 300, "n_mels": 64}
    with forebay.Loader(tiny_shards, **parameters) as loader:
        batches = DevicePrefetcher(IterableDataset(loader, pin_memory=pin_memory), "cuda", depth=n)
        found = []
        for _ in range(20):
            if slow == "copies":
                with torch.cuda.stream(batches._stream):
                    torch.cuda._sleep(20_000_000)
            batch = next(batches)
            assert batch["spectrogram"].device == torch.device("cuda", torch.cuda.current_device())
            if slow == "compute":
                torch.cuda._sleep(20_000_000)
            found.append({name: tensor + 0 for name, tensor in batch.items()})
            del batch
        torch.cuda.synchronize()
    assert [of(batch) for batch in found] == digests(tiny_shards, 20, batch_size=300, n_mels=64)


class TestTokens:
    """`token_batches` over a real `TokenLoader`."""

    @pytest.fixture
    def loader(self, tmp_path: Path) -> Iterator[forebay.TokenLoader]:
        texts = [f"document {number} " * (number % 40 + 1) for number in range(300)]
        for name in ["a.parquet", "b.parquet"]:
            pq.write_table(pa.table({"text": texts}), tmp_path / name, row_group_size=100)
        with forebay.TokenLoader(
            tmp_path, lambda text: list(text.encode()), batch_size=4, seq_len=63, buffer_size=20, bos_id=256
        ) as loader:
            yield loader

    def test_on_the_cpu(self, loader: forebay.TokenLoader) -> None:
        start = loader.state_dict()
        arrays = [next(loader) for _ in range(6)]
        loader.load_state_dict(start)
        kept = list(islice(forebay.torch.token_batches(loader, "cpu"), 6))
        for batch, (inputs, targets, _) in zip(arrays, kept, strict=True):
            assert inputs.dtype == torch.int64
            np.testing.assert_array_equal(inputs.numpy(), batch["inputs"])
            np.testing.assert_array_equal(targets.numpy(), batch["targets"])
        loader.load_state_dict(kept[2][2])
        inputs, targets = next(forebay.torch.token_batches(loader, "cpu", with_state=False))
        np.testing.assert_array_equal(inputs.numpy(), arrays[3]["inputs"])
        np.testing.assert_array_equal(targets.numpy(), arrays[3]["targets"])
        with pytest.raises(forebay.ConfigError, match="meta"):
            forebay.torch.token_batches(loader, "meta")

    def test_an_interrupted_conversion_loses_nothing(
        self, loader: forebay.TokenLoader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor is the state behind a batch that nobody got, be it one of `token_batches` or of a `DataLoader`."""
        start = loader.state_dict()
        expected = [batch["inputs"].copy() for batch in islice(loader, 12)]
        tensors = forebay._token_batches._tensors
        monkeypatch.setattr(forebay._token_batches, "_tensors", interrupted := Interrupted(tensors))
        monkeypatch.setattr(forebay.torch, "to_tensors", Interrupted(to_tensors))
        for begin in (
            lambda: forebay.torch.token_batches(loader, "cpu"),
            lambda: map(itemgetter("inputs", "targets"), DataLoader(IterableDataset(loader), batch_size=None)),
        ):
            loader.load_state_dict(start)
            batches = begin()
            found: list[np.ndarray] = []
            while len(found) < len(expected):
                with suppress(KeyboardInterrupt):
                    found.append(next(batches)[0].numpy())
                    continue
                state = loader.state_dict()
                np.testing.assert_array_equal(next(loader)["inputs"], expected[len(found)])
                loader.load_state_dict(state)
                batches = begin()
            np.testing.assert_array_equal(found, expected)
        assert next(interrupted.calls) > 12

    @needs_gpu
    def test_on_a_gpu(self, loader: forebay.TokenLoader) -> None:
        start = loader.state_dict()
        arrays = [next(loader) for _ in range(20)]
        loader.load_state_dict(start)
        for batch, (inputs, targets, _) in zip(arrays, forebay.torch.token_batches(loader), strict=False):
            torch.cuda._sleep(10_000_000)
            seen = inputs.clone(), targets.clone()
            np.testing.assert_array_equal(seen[0].cpu().numpy(), batch["inputs"])
            np.testing.assert_array_equal(seen[1].cpu().numpy(), batch["targets"])


def test_jagged_fields() -> None:
    """Of `forebay.cache.DataLoader`: values and offsets as tensors, which share the arrays' memory."""
    from forebay.cache import DataLoader, ListAsyncDataset

    rows: list[dict[str, Any]] = [{"x": i, "ids": np.arange(1 + i % 3, dtype=np.int32)} for i in range(20)]
    with DataLoader(ListAsyncDataset(rows), 8) as loader:
        batches = list(IterableDataset(loader))
        assert len(IterableDataset(loader)) == len(batches) == 3
    assert torch.cat([batch["x"] for batch in batches]).tolist() == list(range(20))
    ids = batches[1]["ids"]
    nested = torch.nested.nested_tensor_from_jagged(ids.data, ids.offsets)
    assert [row.tolist() for row in nested.unbind()] == [rows[i]["ids"].tolist() for i in range(8, 16)]
