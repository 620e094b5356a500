"""`DatasetConsumer`: order, ends of files, removal, waiting, batch sizes, watermarks, logging, interrupts."""

import contextlib
import ctypes
import gc
import logging
import math
import os
import random
import threading
import time
import traceback
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import forebay
from forebay.queue import DatasetConsumer
from queues import consumer, eventually, expected, filled, first, meta, names, numbers, path_of, take, write
from timing import claim, fresh, timed
from wrong import assert_named, parameters

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_signature(tmp_path: Path) -> None:
    """The parameters and methods are those of the reference design."""
    filled(tmp_path, 1)
    queue = DatasetConsumer(tmp_path, "cpu", True, 1, 2, 0)
    assert queue.meta == meta()
    assert queue.schema("train") == meta()["batch_schema"]
    assert queue.get_batch("train", "cpu", timeout=120)[0].shape == (4, 4)
    queue.reset_state()
    queue.reset_state("train")
    queue.set_batch_size(4)
    assert queue.wait_for_data("train", timeout=120)
    assert queue.stats()["train"]["backlog"] == 1
    queue.close()


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the current folder, nothing is read or written in another one."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    provider = filled(Path("data"), 2)
    with DatasetConsumer("data", "cpu") as queue:
        monkeypatch.chdir(tmp_path / "there")
        for _ in range(6):
            queue.get_batch("train", timeout=120)
        provider.produce_one_file("train", 2)
        queue.get_batch("train", timeout=120)
    assert not list((tmp_path / "there").iterdir())


def test_cuda_without_cuda(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    filled(tmp_path, 1)
    with pytest.raises(forebay.ConfigError, match=r"torch finds no CUDA device: pass device_type='cpu'"):
        DatasetConsumer(tmp_path)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"device_type": "tpu"}, "device_type is 'tpu'"),
        ({"cache_files": 0}, "cache_files is 0"),
        ({"high_watermark": 0}, "low_watermark is 0 and high_watermark 0"),
        ({"low_watermark": -1}, "low_watermark is -1"),
        ({"delete": "never"}, "delete is 'never'"),
        ({"rank": -1}, "rank is -1"),
        ({"prefer_queue": False}, r"has no files \{split\}_batches_\*.pt"),
    ],
)
def test_parameters(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    filled(tmp_path, 1)
    with pytest.raises(forebay.ConfigError, match=message):
        DatasetConsumer(tmp_path, **{"device_type": "cpu", **parameters})


@pytest.mark.parametrize("parameter", parameters(DatasetConsumer))
def test_wrong_types_are_named(tmp_path: Path, parameter: str) -> None:
    filled(tmp_path, 1)
    assert_named(DatasetConsumer, parameter, data_dir=tmp_path, device_type="cpu")


def test_meta_is_checked_at_start(tmp_path: Path) -> None:
    """A missing or incomplete meta raises in the constructor, without a wait."""
    with pytest.raises(forebay.ConfigError, match=r"meta.pkl does not exist: start the provider"):
        consumer(tmp_path)
    from forebay.queue.meta import write_meta

    write_meta(tmp_path, meta(training_type=None))
    with pytest.raises(forebay.ConfigError, match="training_type is missing"):
        consumer(tmp_path)


def test_tuples_and_dicts(tmp_path: Path) -> None:
    """A batch is a tuple if its fields are (x, y), else a dict."""
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        x, y = queue.get_batch("train", torch.device("cpu"))
        assert torch.equal(x + 1, y)
    fields = [
        {"name": "input_ids", "dtype": "int64", "shape": [4]},
        {"name": "score", "dtype": "bfloat16", "shape": []},
    ]
    from forebay.queue.meta import write_meta

    write_meta(tmp_path, meta(batch_schema=fields))
    tensors = {"score": torch.rand(8).bfloat16(), "input_ids": torch.arange(32).view(8, 4)}
    path_of(tmp_path, 0).unlink()
    described = [
        {"name": "input_ids", "dtype": "int64", "shape": [4]},
        {"name": "score", "dtype": "bfloat16", "shape": []},
    ]
    write(tmp_path, tensors=tensors, schema=described)
    with consumer(tmp_path) as queue:
        for start in (0, 4):
            batch = queue.get_batch("train", "cpu")
            assert list(batch) == ["input_ids", "score"]
            for name, tensor in tensors.items():
                assert torch.equal(batch[name], tensor[start : start + 4])


def test_batches_are_views(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        batches = [queue.get_batch("train", "cpu")[0] for _ in range(3)]
    assert len({batch.untyped_storage().data_ptr() for batch in batches}) == 1
    batches[0].zero_()  # batches are writable
    assert (batches[1] != 0).all()


def test_order_is_that_of_numbers(tmp_path: Path) -> None:
    """Files are in the order of the numbers (timestamp, seq), not of text; files with other names are ignored."""
    provider = filled(tmp_path, 0)
    found = {}
    for timestamp, seq in [(10, 2), (9, 11), (10, 10), (9, 100), (100, 1)]:
        path = provider.produce_one_file("train", seq)
        path.rename(path.with_name(f"{timestamp}-{seq}-3.pt"))
        found[timestamp, seq] = expected(provider, range(seq, seq + 1))
    for name in (".tmp-1-000000.pt", "notes.txt", "1-2.pt"):
        path.with_name(name).write_text("mine")
    with consumer(tmp_path) as queue:
        assert take(queue, 15) == [batch for key in sorted(found) for batch in found[key]]
    assert {".tmp-1-000000.pt", "notes.txt", "1-2.pt"} < set(names(tmp_path))


def test_a_file_goes_at_the_call_after_its_last_batch(tmp_path: Path) -> None:
    """A file is removed at the call after its last batch, so not before the step that uses that batch."""
    provider = filled(tmp_path, 2)
    one, two = names(tmp_path)
    with consumer(tmp_path) as queue:
        take(queue, 3)
        time.sleep(0.1)
        assert names(tmp_path) == [one, two]
        take(queue, 1)
        assert names(tmp_path) == [two]
        take(queue, 2)
        with pytest.raises(TimeoutError):
            take(queue, 1, timeout=0)
        assert names(tmp_path) == []
        eventually(lambda: not list((tmp_path / "queue" / ".state").glob("*.gone")))
        provider.produce_one_file("train", 2)
        take(queue, 3)
        queue.close()
        assert len(names(tmp_path)) == 1


def test_a_file_that_sorts_earlier_comes_later(tmp_path: Path) -> None:
    """The current file is identified by its path: exactly it is removed, and the earlier name is read afterwards."""
    provider = filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        held = names(tmp_path)[0]
        early = provider.produce_one_file("train", 7)
        early.rename(early.with_name("5-000007-3.pt"))
        found += take(queue, 2)
        assert names(tmp_path) == [held, "5-000007-3.pt"]
        found += take(queue, 1)
        assert names(tmp_path) == ["5-000007-3.pt"]
        found += take(queue, 2)
    assert found == expected(provider, range(1)) + expected(provider, range(7, 8))


def test_a_file_removed_by_others_is_served_to_its_end(tmp_path: Path) -> None:
    """The consumer uses the batches in memory without looking at the folder."""
    provider = filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        path_of(tmp_path, 0).unlink()
        found += take(queue, 2, timeout=0)
        assert found == expected(provider, range(1))
        provider.produce_one_file("train", 1)
        assert take(queue, 3) == expected(provider, range(1, 2))


@timed
def test_waiting(tmp_path: Path) -> None:
    """`get_batch` and `wait_for_data` wait for files, with and without timeouts."""
    provider = filled(tmp_path := fresh(tmp_path), 0)
    with consumer(tmp_path) as queue:
        start = time.monotonic()
        with pytest.raises(TimeoutError, match=r"no file in .*train for 0.3 s: is its provider running\?"):
            queue.get_batch("train", "cpu", timeout=0.3)
        seconds = time.monotonic() - start
        assert seconds >= 0.3
        assert not queue.wait_for_data("train", timeout=0.1)
        assert not queue.wait_for_data("train", timeout=0)
        later = threading.Timer(0.2, provider.produce_one_file, ("train", 0))
        later.start()
        assert take(queue, 1, timeout=None) == expected(provider, range(1))[:1]
        later.join()
        assert queue.wait_for_data("train", timeout=0)
        take(queue, 2)
        assert not queue.wait_for_data("train", timeout=0.05)  # the current file has no more batches
        later = threading.Timer(0.2, provider.produce_one_file, ("train", 1))
        later.start()
        assert queue.wait_for_data("train")
        later.join()
        assert take(queue, 3, timeout=0) == expected(provider, range(1, 2))
    claim(seconds < 2, seconds)


def test_backoff_is_exponential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps between looks at the folder double up to 0.25 s; waits advance a simulated clock."""
    from forebay.queue import ahead, feed

    filled(tmp_path, 0)
    now, looks = 0.0, []

    class Inbox(SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            nonlocal now
            if timeout is None or threading.current_thread() is threading.main_thread():
                return super().get(block, timeout)
            try:
                return super().get(block=False)
            except Empty:
                now += timeout
                raise

    def list_files(_folder: Path) -> list[str]:
        looks.append(now)
        return []

    monkeypatch.setattr(feed, "list_files", list_files)
    monkeypatch.setattr(ahead, "SimpleQueue", Inbox)
    monkeypatch.setattr(ahead, "time", SimpleNamespace(monotonic=lambda: now))
    with consumer(tmp_path) as queue, pytest.raises(TimeoutError):
        queue.get_batch("train", "cpu", timeout=1.5)
    gaps = [b - a for a, b in pairwise(looks)]
    # A call that begins to wait causes a look at once and restarts the gaps.
    begin = max(i for i, gap in enumerate(gaps) if gap < 0.0015)
    assert gaps[begin:] == pytest.approx([min(0.001 * 2 ** min(i, 9), 0.25) for i in range(len(gaps) - begin)])
    assert len(gaps) - begin >= 12


@pytest.mark.parametrize(("rows", "batch_size"), [(12, 5), (12, 8), (12, 12), (12, 20), (12, 1), (12, 11)])
def test_a_short_last_slice_repeats_its_own_rows(tmp_path: Path, rows: int, batch_size: int) -> None:
    """A short last slice of a file is filled with its own rows, not with the next file's."""
    provider = filled(tmp_path, 2)
    files = [torch.cat([batch["x"] for batch in provider.sample_file("train", seq)]) for seq in range(2)]
    with consumer(tmp_path) as queue:
        queue.set_batch_size(batch_size)
        for x in files:
            assert len(x) == rows
            for start in range(0, rows, batch_size):
                own = list(range(start, min(start + batch_size, rows)))
                index = [own[i % len(own)] for i in range(batch_size)]
                found, _ = queue.get_batch("train", "cpu", timeout=120)
                assert torch.equal(found, x[index])
        assert queue.stats()["train"]["batches"] == 2 * math.ceil(rows / batch_size)


def test_the_batch_size_changes_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new batch size applies in the middle of a file and to files read ahead; another than the provider's warns."""
    provider = filled(tmp_path, 2)
    x = torch.cat([batch["x"] for seq in range(2) for batch in provider.sample_file("train", seq)])
    with consumer(tmp_path) as queue:
        parts = [queue.get_batch("train", "cpu")[0]]
        queue.set_batch_size(2)
        assert "batch size 2 is not the 4 that the provider makes" in caplog.text
        parts += [queue.get_batch("train", "cpu")[0] for _ in range(4)]
        parts += [queue.get_batch("train", "cpu")[0] for _ in range(3)]
        caplog.clear()
        queue.set_batch_size(4)
        parts += [queue.get_batch("train", "cpu")[0] for _ in range(2)]
        assert not caplog.records
        assert [len(part) for part in parts] == [4, 2, 2, 2, 2, 2, 2, 2, 4, 4]
        assert torch.equal(torch.cat([*parts[:-1], parts[-1][:2]]), x)
        with pytest.raises(forebay.ConfigError, match="new_bs is 0"):
            queue.set_batch_size(0)


def test_files_of_another_batch_size_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files with another batch size than meta's log one warning."""
    filled(tmp_path, 0)
    write(tmp_path, batch_size=2, num_batches=4, name="1-0-4.pt")
    write(tmp_path, batch_size=2, num_batches=4, name="2-0-4.pt")
    with consumer(tmp_path) as queue:
        for _ in range(4):
            assert len(queue.get_batch("train", "cpu")[0]) == 4
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "has batches of 2, the batch size is 4" in caplog.text


def test_removal_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumed file that another process has open, as on Windows, is not read again and is removed later."""
    provider = filled(tmp_path, 2)
    name = names(tmp_path)[0]
    replace, failures = Path.replace, 4

    def busy(source: Path, target: Path) -> None:
        nonlocal failures
        if str(target).endswith(".gone"):
            failures -= 1
            if failures >= 0:
                raise PermissionError(13, "used by another process")
        replace(source, target)

    monkeypatch.setattr(Path, "replace", busy)
    with consumer(tmp_path) as queue:
        assert take(queue, 6) == expected(provider, range(2))
        assert "cannot be removed yet; retrying" in caplog.text
        eventually(lambda: name not in names(tmp_path))
    # The next consumer does not read, but removes a consumed file that this one could not remove.
    failures = 10**9
    with consumer(tmp_path) as queue:
        take(queue, 3)
        provider.produce_one_file("train", 2)
        take(queue, 1)
        assert provider.backlog_size("train") <= 2
        eventually(lambda: provider.backlog_size("train") == 1)
    assert len(names(tmp_path)) == 2
    failures = 0
    with consumer(tmp_path) as queue:
        assert take(queue, 3) == expected(provider, range(2, 3))
        assert len(names(tmp_path)) == 1


def test_archive(tmp_path: Path) -> None:
    """With `archive=True` consumed files move to `archives/`."""
    provider = filled(tmp_path, 2)
    all_names = names(tmp_path)
    with consumer(tmp_path, archive=True) as queue:
        take(queue, 4)
        assert names(tmp_path, "../archives/train") == all_names[:1]
        take(queue, 2)
        with pytest.raises(TimeoutError):
            take(queue, 1, timeout=0)
    assert names(tmp_path, "../archives/train") == all_names
    assert names(tmp_path) == []
    assert not provider.backlog_size("train")


def test_an_interrupted_file_starts_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = filled(tmp_path, 3)
    with consumer(tmp_path) as queue:
        take(queue, 4)
        second = names(tmp_path)[0]
    with consumer(tmp_path) as queue:
        assert take(queue, 6) == expected(provider, range(1, 3))
    lines = [record.getMessage() for record in caplog.records if "interrupted" in record.getMessage()]
    assert lines == [f"train: {second} was interrupted before, and starts again from its first batch"]


def test_reset_state(tmp_path: Path) -> None:
    provider = filled(tmp_path, 2)
    provider.produce_one_file("val", 0)
    with consumer(tmp_path) as queue:
        take(queue, 4)
        val = take(queue, 2, "val")
        queue.reset_state("train")
        assert take(queue, 3) == expected(provider, range(1, 2))
        assert [*val, *take(queue, 1, "val")] == expected(provider, range(1), "val")
        queue.reset_state()
        assert take(queue, 1) == expected(provider, range(1, 2))[:1]
        assert take(queue, 1, "val") == val[:1]


def test_stats(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    one, two, _ = names(tmp_path)
    with consumer(tmp_path) as queue:
        assert queue.stats() == {}
        take(queue, 2)
        assert queue.stats() == {
            "train": {"batches": 2, "files": 1, "quarantined": 0, "backlog": 3, "held": 0, "file": one, "batch": 2}
        }
        take(queue, 2)
        found = queue.stats()["train"]
        assert (found["batches"], found["files"], found["backlog"], found["file"], found["batch"]) == (4, 2, 2, two, 1)


def test_two_consumers_for_one_queue(tmp_path: Path) -> None:
    provider = filled(tmp_path, 2)
    provider.produce_one_file("val", 0)
    with consumer(tmp_path) as one, consumer(tmp_path) as two:
        one.get_batch("train", "cpu")
        with pytest.raises(forebay.StateError, match=r"another consumer holds .*rank="):
            two.get_batch("train", "cpu")
        two.get_batch("val", "cpu")  # another queue
        one.close()
        assert take(two, 6) == expected(provider, range(2))
    dropped = consumer(tmp_path)
    dropped.get_batch("train", "cpu")
    del dropped
    gc.collect()
    with consumer(tmp_path) as queue:
        eventually(lambda: opens(queue))


def opens(queue: DatasetConsumer) -> bool:
    try:
        queue.get_batch("train", "cpu", timeout=0)
    except forebay.StateError:
        return False
    return True


def test_watermarks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One log line when the backlog reaches `high_watermark`, and one when it falls to `low_watermark`."""
    from forebay.queue.feed import Watermarks

    caplog.set_level("INFO", "forebay.queue")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "watermark" in record.getMessage()]

    provider = filled(tmp_path, 6)
    with consumer(tmp_path, high_watermark=4, low_watermark=1) as queue:
        take(queue, 6 * 3)
        eventually(lambda: len(lines()) == 2)
        for seq in range(6, 11):
            provider.produce_one_file("train", seq)
        take(queue, 6)
    found = lines()
    caplog.clear()
    watch = Watermarks("train", 1, 4)
    for backlog in (3, 6, 5, 2, 4, 1, 0, 3, 2, 4):
        watch(backlog)
    assert (
        found
        == lines()
        == [
            "train: backlog has reached the high watermark, 4 files",
            "train: backlog has fallen to the low watermark, 1 files",
            "train: backlog has reached the high watermark, 4 files",
        ]
    )


def test_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a line per file and per change of the backlog, none per batch."""
    caplog.set_level("DEBUG", "forebay.queue")
    filled(tmp_path, 2, batches_per_file=200)
    caplog.clear()
    with consumer(tmp_path, high_watermark=9) as queue:
        take(queue, 400)
    info = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert sum("opened" in line for line in info) == 2
    assert sum("backlog is" in line for line in info) == len(info) - 2 <= 3
    assert len(caplog.records) < 12
    assert all(record.levelno <= logging.INFO for record in caplog.records)


def test_threads_end(tmp_path: Path) -> None:
    """The thread ends with `close()` or with the last reference to the consumer."""
    filled(tmp_path, 3)

    def running() -> int:
        return sum(thread.name.startswith("forebay-queue") for thread in threading.enumerate())

    queue = consumer(tmp_path)
    assert running() == 0
    take(queue, 4)
    assert running() == 1
    queue.close()
    queue.close()
    assert running() == 0
    with pytest.raises(forebay.ForebayError, match="this consumer is closed"):
        take(queue, 1)
    queue = consumer(tmp_path)
    take(queue, 2)
    del queue
    eventually(lambda: running() == 0)


@pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")  # of JAX, once a test has imported it
def test_a_call_in_a_forked_child_raises(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        child = os.fork()
        if not child:
            code = 1
            try:
                queue.get_batch("train", "cpu", timeout=120)
            except forebay.ForebayError as error:
                code = 0 if "before a fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        take(queue, 1)


def test_devices(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        for device in ("cuda", "meta", "gpu", 1.5):
            with pytest.raises(
                forebay.ConfigError, match=f"device is {device!r}, but the consumer's device_type is 'cpu'"
            ):
                queue.get_batch("train", device)
        assert len(take(queue, 3)) == 3  # the refused calls lost no batch
    for other in ("meta", "gpu", None):
        with pytest.raises(forebay.ConfigError, match=f"device_type is {other!r}, must be 'cpu', 'cuda' or"):
            DatasetConsumer(tmp_path, other)


def test_the_device_is_given_once(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with DatasetConsumer(tmp_path, torch.device("cpu")) as queue:
        x, _ = queue.get_batch("train")
        y, _ = queue.get_batch("train", timeout=60)
    with consumer(tmp_path) as queue:
        for found in (x, y):
            assert torch.equal(found, queue.get_batch("train", "cpu")[0])


def test_an_unknown_split_is_refused_at_once(tmp_path: Path) -> None:
    """A misspelt split would never get a file: the error has the names, without any wait."""
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        for ask in (queue.get_batch, queue.wait_for_data):
            with pytest.raises(
                forebay.ConfigError, match=r"split is 'trian', which .* does not have; it has train, val"
            ):
                ask("trian")
        assert not queue.wait_for_data("val", timeout=0)  # named by meta, and without files so far
        assert len(take(queue, 3)) == 3


class InterruptError(BaseException):
    """Raised like KeyboardInterrupt, at the return of any call."""


def test_an_interrupted_call_loses_nothing(tmp_path: Path, soak: int) -> None:
    """After an interrupt at any moment of `get_batch`, the next call returns the same batch."""
    n_files = 40 * min(soak, 10)
    due = expected(filled(tmp_path, n_files), range(n_files))
    main, number, inside, unsure = ctypes.c_ulong(threading.get_ident()), 0, 0, False
    armed = ended = False  # no Event: an interrupt inside it could leave its lock locked

    def interrupt() -> None:
        while not ended:
            time.sleep(random.random() * 0.003)
            if armed:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(InterruptError))

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with consumer(tmp_path) as queue:
            number = len(take(queue, 1))  # starts the thread, which Python does not protect from interrupts
            while number < len(due):
                try:
                    armed = True
                    batch = queue.get_batch("train", "cpu", 120)
                    armed = False
                except InterruptError as error:
                    armed = False
                    is_inside = "get_batch" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
                    inside += is_inside
                    unsure = unsure or not is_inside  # after get_batch() returned, its batch may be lost
                    continue
                found = first(batch)
                number += unsure and found != due[number]
                assert found == due[number]
                number, unsure = number + 1, False
    finally:
        ended = True
        with contextlib.suppress(InterruptError):
            thread.join()
        thread.join()
    assert inside


@needs_gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    """Batches for a GPU are copied from pinned memory."""
    provider = filled(tmp_path, 4)
    with DatasetConsumer(tmp_path) as queue:
        assert queue.get_batch("train", "cpu")[0].is_pinned()
        queue.reset_state()
        found = [queue.get_batch("train", "cuda") for _ in range(12)]
        assert all(x.is_cuda and y.is_cuda for x, y in found)
        torch.cuda.synchronize()
        assert [first((x.cpu(), y.cpu())) for x, y in found] == expected(provider, range(4))


def test_numbers_helper(tmp_path: Path) -> None:
    """The provider of the tests is deterministic."""
    assert expected(numbers(tmp_path), range(2)) == expected(numbers(tmp_path), range(2))
