"""`DevicePrefetcher`: batches, states, errors, interrupts, slots; tests that need a GPU are skipped without one."""

import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import forebay
from recordings import SMALL
from tensors import digests, is_infinite, needs_gpu, of

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

import forebay.torch  # noqa: E402
from forebay._device import PinnedSlot  # noqa: E402
from forebay._jagged import JaggedArray  # noqa: E402
from forebay.torch import DevicePrefetcher, IterableDataset  # noqa: E402


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_fields_in_one_block(rows: int) -> None:
    """A pinned slot holds all fields in one block; here in memory that is not pinned."""
    tensors = {
        "spectrogram": torch.rand(rows, 3, 7),
        "label": torch.arange(rows),
        "half": torch.rand(rows, 1).half(),
        "one": torch.tensor(3.0),
    }
    copies = PinnedSlot(pin=False).stage(tensors)
    [block] = {copy.untyped_storage().data_ptr() for copy in copies.values()}
    for name, tensor in tensors.items():
        assert torch.equal(copies[name], tensor)
        assert copies[name].data_ptr() % 64 == block % 64


def test_any_tensor_is_staged() -> None:
    """Also those without a plain layout, which torch copies."""
    tensors = {
        "transposed": torch.rand(6, 5).T,
        "conjugate": torch.rand(3, dtype=torch.complex64).conj(),
        "bfloat16": torch.rand(4).bfloat16(),
        "leaf": torch.rand(3, requires_grad=True),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
    }
    copies = PinnedSlot(pin=False).stage(tensors)
    assert all(torch.equal(copies[name], tensor) for name, tensor in tensors.items())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads by /proc")
@pytest.mark.parametrize("copy", ["staged", "by torch"])
def test_a_copy_starts_no_threads(copy: str) -> None:
    """Threads of torch would spin after each copy, and take the workers' cores; without the stage they start."""
    code = f"""
        import os
        import numpy as np, torch
        from forebay._device import PinnedSlot

        torch.set_num_threads(4)
        tensor = torch.from_numpy(np.ones(1 << 22, np.float32))
        place = torch.from_numpy(np.zeros(1 << 22, np.float32))
        before = len(os.listdir("/proc/self/task"))
        if {copy == "staged"}:
            PinnedSlot(pin=False).stage({{"spectrogram": tensor}})
        else:
            place.copy_(tensor)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == (0 if copy == "staged" else 3), done


@pytest.fixture(params=[0, 1, 3])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def prefetcher(batches: Any, depth: int) -> DevicePrefetcher:
    """A prefetcher for the CPU with the bookkeeping of one for a GPU."""
    made = DevicePrefetcher(batches, "cpu")
    made._depth = depth
    return made


def test_a_prefetcher_returns_the_same_batches(loader: forebay.Loader, tiny_shards: list[Path], depth: int) -> None:
    batches = prefetcher(loader, depth)
    assert repr(batches).startswith("<forebay.torch.DevicePrefetcher: to cpu, ")
    if is_infinite(loader):
        expected = digests(tiny_shards, 30)
        assert [of(batch) for batch in islice(batches, 7)] == expected[:7]
        assert [of(batch) for batch in islice(batches, 23)] == expected[7:]
    else:
        n = len(batches)
        expected = digests(tiny_shards, 7 * n, infinite=False)
        passes = [expected[start : start + n] for start in range(0, 7 * n, n)]
        assert list(islice(batches, 0)) == []  # no batch, so no pass
        for whole, left_after in zip(passes, (1, 5, n - 3, n - 2, n - 1), strict=False):
            assert [of(batch) for batch in islice(batches, left_after)] == whole[:left_after]
        assert [[of(batch) for batch in batches] for _ in range(2)] == passes[5:]


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
def test_a_resumed_pass_that_is_left_is_over(
    finite: forebay.Loader, tiny_shards: list[Path], depth: int, at: int
) -> None:
    """The next pass begins, as without a prefetcher, wherever the loader is."""
    n = len(finite)
    expected = digests(tiny_shards, 2 * n, infinite=False)
    for _ in islice(finite, at):
        pass
    state = finite.state_dict()
    batches = prefetcher(finite, depth)
    batches.load_state_dict(state)
    assert of(next(batches)) == expected[at]
    assert [of(batch) for batch in batches] == expected[n:]


class Broken(DevicePrefetcher):
    """Copies fail after the first `left`."""

    left = 0

    def _copy(self, batch: Any) -> Any:
        if not self.left:
            raise MemoryError
        self.left -= 1
        return super()._copy(batch)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_batches_that_were_pulled_and_not_returned_come_again(
    finite: forebay.Loader, tiny_shards: list[Path], left: int
) -> None:
    """A pass of which no batch was returned is begun again, at the position of a state, too."""
    expected = digests(tiny_shards, len(finite), infinite=False)
    batches = Broken(finite, "cpu")
    batches._depth = 3
    for at in (0, 5, 15):
        finite.set_epoch(0)
        finite.seek(at)
        batches.load_state_dict(finite.state_dict())
        batches.left = left
        with pytest.raises(MemoryError):
            next(batches)
        batches.left = 99
        assert [of(batch) for batch in batches] == expected[at:]


def test_a_dataloader_on_a_device(loader: forebay.Loader, tiny_shards: list[Path], depth: int) -> None:
    """The state is that of the dataset; after a pass that was left the next one begins."""
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 40, infinite=infinite)
    batches = prefetcher(DataLoader(IterableDataset(loader), batch_size=None), depth)
    assert [of(batch) for batch in islice(batches, 18)] == expected[:18]
    state = batches.state_dict()
    if infinite:
        assert [of(batch) for batch in islice(batches, 4)] == expected[18:22]
    else:
        assert [of(batch) for batch in batches] == expected[19:38]
    batches.load_state_dict(state)
    assert of(next(batches)) == expected[18]


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")  # in a callback
def test_interrupts_lose_nothing(depth: int) -> None:
    """Signals at random moments lose no batch; `map` has no bytecode between `next()` and the list."""
    rng, interrupts, armed, done = random.Random(0), 0, False, threading.Event()

    def interrupt(*_arguments: object) -> None:
        nonlocal armed, interrupts
        if armed:
            armed, interrupts = False, interrupts + 1
            raise KeyboardInterrupt

    def send() -> None:
        while not done.wait(0.004 * rng.random()):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    batches = prefetcher(cycle([{"x": np.array([number])} for number in range(1000)]), depth)
    found: list[dict[str, Any]] = []
    sending = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, interrupt)
    sending.start()
    try:
        while interrupts < 20 or len(found) < 5000:
            try:
                armed = True
                # Ends at times: an interrupt that a callback of the garbage collector swallowed arms no other.
                deque(map(found.append, islice(batches, 500)), maxlen=0)
                armed = False
            except KeyboardInterrupt:
                pass
    finally:
        armed = False
        done.set()
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    assert [batch["x"].item() for batch in found] == [number % 1000 for number in range(len(found))]


class Lagging:
    """A stream that executes its copies only when they are waited for."""

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


class Device:
    """A device whose stream is as late as possible, in the place of a GPU; `pinned` tensors are those of the test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stream = Lagging()
        self.used_by: list[Lagging] = []
        self.pinned: list[Any] = []
        self._patch = patch
        empty = torch.empty

        def to(tensor: Any, _device: Any, *, non_blocking: bool) -> Any:
            assert non_blocking
            return self.stream.copy(tensor)

        patch.setattr(torch, "empty", lambda *size, **options: empty(*size, **options | {"pin_memory": False}))
        patch.setattr(torch.Tensor, "to", to)
        patch.setattr(torch.Tensor, "is_pinned", lambda tensor: any(tensor is one for one in self.pinned))
        patch.setattr(torch.Tensor, "record_stream", lambda _, stream: self.used_by.append(stream))
        patch.setattr(torch.cuda, "current_stream", lambda _device: self.stream)
        patch.setattr(torch.cuda, "stream", nullcontext)

    def prefetcher(self, batches: Any, depth: int) -> DevicePrefetcher:
        made = prefetcher(batches, depth)
        made._device, made._stream = SimpleNamespace(type="cuda"), self.stream
        made._slots = deque(PinnedSlot() for _ in range(depth + 1))
        return made

    def finish(self) -> None:
        """Executes the copies that are left."""
        self.stream.record_event().synchronize()
        self._patch.undo()


@pytest.fixture
def late() -> Iterator[Device]:
    with pytest.MonkeyPatch.context() as patch:
        yield Device(patch)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_slots_are_written_again_after_their_copy(late: Device, tiny_shards: list[Path], depth: int) -> None:
    """A slot is overwritten only after its copy, with a stream that is as late as possible; batches differ in size."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:  # some rows are bad
        found = list(late.prefetcher(loader, depth))
    assert late.stream.waited_for == [3 * number for number in range(1, 20)]
    assert late.used_by == [late.stream] * 3 * 19
    assert late.stream.done == 3 * (19 - depth - 1)
    late.finish()
    assert [of(batch) for batch in found] == digests(tiny_shards, 19, infinite=False)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_pinned_memory_is_filled_again_after_its_copy(late: Device, depth: int) -> None:
    """An iterable may fill the same pinned memory for each batch; it is not asked for the next one before the copy."""
    memory = torch.zeros(5)
    late.pinned.append(memory)

    def refilled() -> Iterator[dict[str, Any]]:
        for number in range(8):
            memory.fill_(number)
            yield {"x": memory, "number": torch.tensor(number)}

    found = list(late.prefetcher(refilled(), depth))
    late.finish()
    assert [batch["x"].tolist() for batch in found] == [[float(number)] * 5 for number in range(8)]
    assert [batch["number"].item() for batch in found] == list(range(8))


def test_pinned_memory_of_a_loader_is_not_awaited(late: Device, tiny_shards: list[Path]) -> None:
    """A loader of forebay never writes to a batch again, so its copies may be as late as the slots allow."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        batches = late.prefetcher(IterableDataset(loader), 2)
        convert = forebay.torch.to_tensors

        def pinned(batch: Any, of: Any = None) -> Any:
            made = convert(batch, of)
            late.pinned.extend(made.values())
            return made

        late._patch.setattr(forebay.torch, "to_tensors", pinned)
        next(batches)
        assert late.stream.done == 0


@pytest.mark.parametrize("is_pinned", [False, True])
def test_jagged_fields_are_moved(late: Device, is_pinned: bool) -> None:
    """Data and offsets are copied to the device, from a slot, and are used by the current stream."""
    rows = [[np.arange(n) + number for n in (1, number + 1, 0)] for number in range(6)]
    given: list[dict[str, Any]] = [
        {
            "jagged": JaggedArray(
                torch.from_numpy(jagged.data) if is_pinned else jagged.data,
                torch.from_numpy(jagged.offsets) if is_pinned else jagged.offsets,
            ),
            "texts": ["a", "b"],
        }
        for jagged in map(JaggedArray.from_rows, rows)
    ]
    if is_pinned:
        late.pinned.extend(tensor for one in given for tensor in (one["jagged"].data, one["jagged"].offsets))
    found = list(late.prefetcher(iter(given), 2))
    assert len(late.stream.copies) == len(late.used_by) == 2 * len(rows)
    late.finish()
    for batch, expected in zip(found, rows, strict=True):
        assert isinstance(batch["jagged"], JaggedArray)
        assert [row.tolist() for row in batch["jagged"]] == [row.tolist() for row in expected]
        assert batch["texts"] == ["a", "b"]


@needs_gpu
@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("slow", ["copies", "compute", "neither"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_batches_dropped_at_once(tiny_shards: list[Path], slow: str, n: int, pin_memory: bool) -> None:
    """With a stream that is many batches late, no slot and no device memory is overwritten too early."""
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


class Rows:
    """A reader of numbers, and the pipeline that makes a batch of them."""

    metadata = storage_state = None
    output_specs: ClassVar = {"x": ((3,), "float32"), "n": ((), "int64")}

    def __len__(self) -> int:
        return 37

    def __call__(self, indices: Any, _metadata: Any, _storage_state: Any, buffers: Any) -> None:
        buffers["x"][:] = indices[:, None] + np.arange(3) / 4
        buffers["n"][:] = indices


def test_batches_of_an_async_data_loader(depth: int) -> None:
    """Their arrays, of the same passes, and with the states of the loader; buffers are not reused too early."""
    rows = Rows()
    with forebay.AsyncDataLoader(rows, rows, 5, num_workers=2) as loader:
        expected = [[result.data["n"].tolist() for result in loader] for _ in range(2)]
    with forebay.AsyncDataLoader(rows, rows, 5, num_workers=2) as loader:
        batches = prefetcher(loader, depth)
        begin = batches.state_dict()
        kept = [list(batches), list(batches)]
        batches.load_state_dict(begin)
        iterator = iter(batches)
        for _ in range(3):
            next(iterator)
        middle = batches.state_dict()
        batches.load_state_dict(middle)
        rest = [batch["n"].tolist() for batch in batches]
    assert [[batch["n"].tolist() for batch in batches] for batches in kept] == expected
    for batch in [*kept[0], *kept[1]]:
        assert set(batch) == {"x", "n"}
        np.testing.assert_array_equal(batch["x"].numpy(), batch["n"].numpy()[:, None] + np.arange(3) / 4)
    assert rest == expected[0][3:]


@needs_gpu
@pytest.mark.parametrize("n", [1, 2, 4])
def test_pinned_memory_that_is_filled_again(n: int) -> None:
    """As above, with real copies that are late."""
    memory = torch.zeros(1 << 20, pin_memory=True)

    def refilled() -> Iterator[dict[str, Any]]:
        for number in range(12):
            memory.fill_(number)
            yield {"x": memory}

    batches = DevicePrefetcher(refilled(), "cuda", depth=n)
    found = []
    for _ in range(12):
        with torch.cuda.stream(batches._stream):
            torch.cuda._sleep(20_000_000)
        found.append(next(batches)["x"] + 0)
    torch.cuda.synchronize()
    assert [(one.min().item(), one.max().item()) for one in found] == [(number, number) for number in range(12)]


@needs_gpu
def test_jagged_fields_are_on_the_device() -> None:
    jagged = JaggedArray.from_rows([np.arange(3), np.arange(2)])
    (batch,) = DevicePrefetcher([{"x": jagged}], "cuda")
    assert batch["x"].data.is_cuda
    assert batch["x"].offsets.is_cuda
    torch.nested.nested_tensor_from_jagged(batch["x"].data, batch["x"].offsets)
