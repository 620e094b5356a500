"""Faults around a queue: removed folders, a changed meta, open files, links, full and slow disks, signals, forks."""

import errno
import itertools
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from forebay._files import open_file, what_is
from forebay.queue import feed, files, lock, numbering, queue_split, read_meta, tensors, write_legacy_file
from forebay.queue import provider as provider_module
from forebay.queue.meta import write_meta
from queues import Numbers, consumer, eventually, expected, filled, meta, names, numbers, running, take, write


def vanish(path: Path) -> None:
    """Removes a folder atomically, also while other threads write into it."""
    path.rename(path.with_name("vanished"))
    shutil.rmtree(path.with_name("vanished"), ignore_errors=True)


def is_open(path: Path) -> bool:
    """Whether this process has the file open or mapped."""
    descriptors = list(Path("/proc/self/fd").iterdir())
    return any(one.is_symlink() and str(one.readlink()) == str(path) for one in descriptors) or any(
        line.rstrip().endswith(f" {path}") for line in Path("/proc/self/maps").read_text().splitlines()
    )


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Refuses to rename, replace or remove open files, as on Windows; the list of refused files."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    found: list[Path] = []

    def guarded(change: Any) -> Any:
        def changed(path: Path, *arguments: Any, **keywords: Any) -> Any:
            for one in (path, *(other for other in arguments if isinstance(other, Path))):
                if is_open(one):
                    found.append(one)
                    raise PermissionError(errno.EACCES, "used by a process", str(one))
            return change(path, *arguments, **keywords)

        return changed

    for name in ("replace", "unlink", "rename"):
        monkeypatch.setattr(Path, name, guarded(getattr(Path, name)))
    return found


def test_open_files_are_detected(tmp_path: Path, refused: list[Path]) -> None:
    """The fixture `refused` detects open files, on which the next test relies."""
    path = tmp_path / "a"
    path.write_bytes(b"a")
    with path.open("rb"), pytest.raises(PermissionError):
        path.unlink()
    path.unlink()
    assert refused == [path]


@pytest.mark.parametrize("archive", [True, False])
def test_nothing_is_open_when_it_moves(tmp_path: Path, refused: list[Path], archive: bool) -> None:
    """No file is open while it is renamed, removed, archived, quarantined or purged, which Windows would refuse."""
    provider = filled(tmp_path, 3)
    bad = [tmp_path / "queue" / "train" / name for name in names(tmp_path)[:2]]
    bad[0].write_bytes(b"junk")
    bad[1].unlink()
    write(tmp_path, bad[1].name, num_batches=3)  # damage that is found only when the file is mapped
    with consumer(tmp_path, archive=archive, delete="on_state") as queue:
        assert take(queue, 2) == expected(provider, range(2, 3))[:2]
        provider.produce_one_file("train", 3)
        batch = queue.get_batch("train", "cpu")  # a kept batch keeps memory, but no open file
        queue.state_dict()
        take(queue, 2)
        assert queue.stats()["train"]["quarantined"] == 2
        assert len(names(tmp_path)) == 1
    assert (batch[1] == batch[0] + 1).all()
    provider.purge()
    assert not refused


def test_the_queue_is_removed_under_a_consumer(tmp_path: Path) -> None:
    """After its queue is removed, a consumer returns the batches in memory, then those of new files."""
    provider = filled(tmp_path, 2)
    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        eventually(lambda: queue.wait_for_data("train", timeout=0))
        vanish(tmp_path / "queue")
        found += take(queue, 2)
        assert found == expected(provider, range(1))
        provider.produce_one_file("train", 5)
        found = take(queue, 3)
        if found == expected(provider, range(1, 2)):  # the file was read ahead
            found = take(queue, 3)
        assert found == expected(provider, range(5, 6))


def test_archives_are_removed_under_a_consumer(tmp_path: Path) -> None:
    """Removed archives are created again; otherwise consumed files would stay in the backlog and block the provider."""
    provider = numbers(tmp_path, max_backlog_files=1)
    with running(provider, splits=["train"]):
        eventually((tmp_path / "meta.pkl").exists)
        with consumer(tmp_path, archive=True) as queue:
            take(queue, 4)
            vanish(tmp_path / "archives")
            assert take(queue, 8) == expected(provider, range(4))[4:]
            assert len(list((tmp_path / "archives" / "train").iterdir())) == 2


def test_the_state_is_removed_under_both(tmp_path: Path) -> None:
    provider = numbers(tmp_path, max_backlog_files=1)
    with running(provider, splits=["train"]):
        eventually((tmp_path / "meta.pkl").exists)
        with consumer(tmp_path) as queue:
            found = take(queue, 4)
            eventually(lambda: provider.backlog_size("train") == 1)  # the provider waits and writes no file
            vanish(tmp_path / "queue" / ".state")
            found += take(queue, 20)
            assert found == expected(provider, range(8))


def test_the_queue_is_removed_under_a_provider(tmp_path: Path) -> None:
    """After its queue is removed, a provider continues the numbers: file 0 may have been consumed."""
    provider = numbers(tmp_path)
    with running(provider, splits=["train"]):
        eventually(lambda: provider.backlog_size("train") == 2)
        vanish(tmp_path / "queue")
        eventually(lambda: provider.backlog_size("train") == 2)
    assert [int(name.split("-")[1]) for name in names(tmp_path)] == [2, 3]


def test_archives_elsewhere(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    filled(tmp_path, 1)
    folder = elsewhere / f"forebay-{os.getpid()}"
    folder.mkdir()
    try:
        (tmp_path / "archives").symlink_to(folder)
        with consumer(tmp_path, archive=True) as queue, pytest.raises(forebay.ConfigError, match="another file system"):
            queue.get_batch("train", "cpu")
    finally:
        shutil.rmtree(folder)


def test_folders_without_permission(tmp_path: Path) -> None:
    """A consumer without write permission raises when it opens the queue."""
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    filled(tmp_path, 1)
    (tmp_path / "queue" / ".state").chmod(0o500)
    try:
        with consumer(tmp_path) as queue, pytest.raises(PermissionError):
            queue.get_batch("train", "cpu")
    finally:
        (tmp_path / "queue" / ".state").chmod(0o700)


# Meta


def test_meta_changes_under_a_consumer(tmp_path: Path) -> None:
    """If meta changes under a consumer, opening a split raises with the keys that differ."""
    filled(tmp_path, 1).purge()
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        write_meta(tmp_path, meta(8, vocab_size=9))
        take(queue, 2)
        for read in (lambda: queue.get_batch("val", "cpu", timeout=0), lambda: queue.reset_state("train")):
            with pytest.raises(
                forebay.ConfigError, match=r"meta.pkl has changed .* in batch_size \(8, here 4\), vocab_size"
            ):
                read()
    with consumer(tmp_path) as queue:
        queue.meta.clear()  # a copy
        assert queue.meta["batch_size"] == 8


def test_many_write_meta_at_once(tmp_path: Path) -> None:
    """If providers of several ranks write different metas at once, one is written and the others raise."""
    for trial in range(20):
        folder, start = tmp_path / str(trial), threading.Barrier(6)
        done: list[int] = []
        refused: list[str] = []

        def attempt(number: int, folder: Path, start: Any, done: list[int], refused: list[str]) -> None:
            provider = numbers(folder, rank=number)
            provider.build_meta = lambda: meta(label_map={0: number})  # type: ignore[method-assign]
            start.wait()
            try:
                provider.write_meta()
            except forebay.ConfigError as error:
                refused.append(str(error))
            else:
                done.append(number)

        threads = [threading.Thread(target=attempt, args=(number, folder, start, done, refused)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 1
        assert sum("label_map" in message for message in refused) == 5
        assert read_meta(folder)["label_map"] == {0: done[0]}
        assert f'"0": {done[0]}' in (folder / "meta.json").read_text()
        assert sorted(path.name for path in folder.iterdir()) == ["meta.json", "meta.pkl"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    numbers(tmp_path).write_meta()
    provider = numbers(tmp_path, batch_size=5)
    with pytest.raises(forebay.ConfigError, match="batch_size"):
        provider.write_meta()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.json", "meta.pkl"]


# Links


def everything(folder: Path) -> dict[str, bytes | str]:
    """The contents of a folder tree: bytes of files, targets of links, types of other entries."""
    found: dict[str, bytes | str] = {}
    for path in folder.rglob("*"):
        what = what_is(path)
        text = str(path.readlink()) if what == "a symbolic link" else str(what)
        found[str(path.relative_to(folder))] = path.read_bytes() if what == "a file" else text
    return found


def obstruct(path: Path, mine: Path, kind: str) -> None:
    """Puts an entry of another kind at a path of the queue; `mine` is the target of a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to(mine if kind == "link" else mine.with_name("nothing"))


KINDS = ["link", "dangling", "folder", "fifo"]
WHAT = {"folder": "a folder", "fifo": "a FIFO", "file": "not a lock of a queue"}


@pytest.mark.parametrize("kind", [*KINDS, "file"])
@pytest.mark.parametrize("name", ["train.consumer.lock", "train.provider.lock"])
def test_a_lock_that_is_none_stays(tmp_path: Path, name: str, kind: str) -> None:
    data, mine = tmp_path / "data", tmp_path / "mine"
    mine.write_text("precious")
    provider = filled(data, 1)
    obstruct(data / "queue" / ".state" / name, mine, kind)
    before = everything(tmp_path)
    with (
        consumer(data) as queue,
        pytest.raises(forebay.StateError, match=rf"{name} is {WHAT.get(kind, 'a symbolic link')}.*; move it"),
    ):
        queue.get_batch("train", "cpu", timeout=0) if "consumer" in name else provider.run(["train"])
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", [*KINDS, "file"])
def test_purge_leaves_locks_that_are_none(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    data, mine = tmp_path / "data", tmp_path / "mine"
    mine.write_text("precious")
    provider = filled(data, 1)
    with consumer(data) as queue:
        take(queue, 1)
    others = ["my.provider.lock", ".tmp-train.sequence.json-1-1", "train.1700000000000-000000-2.pt.gone"]
    for name in others[: 3 if kind != "file" else 1]:
        obstruct(data / "queue" / ".state" / name, mine, kind)
    obstruct(data / ".tmp-meta.pkl-1-1", mine, kind if kind != "file" else "link")
    provider.purge()
    assert "my.provider.lock" in caplog.text
    found = everything(tmp_path)
    assert found.pop("mine") == b"precious"
    expected_left = {f"data/queue/.state/{name}" for name in others[: 3 if kind != "file" else 1]}
    assert found.keys() == expected_left | {"data", "data/queue", "data/queue/.state", "data/.tmp-meta.pkl-1-1"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["sequence.json", "consumer.json"])
def test_a_state_file_that_is_none_stays(tmp_path: Path, name: str, kind: str) -> None:
    data, mine = tmp_path / "data", tmp_path / "mine"
    provider = filled(data, 1)
    with consumer(data) as queue:
        take(queue, 1)
    state = data / "queue" / ".state" / f"train.{name}"
    mine.write_bytes(state.read_bytes())  # a valid state file at another place
    obstruct(state, mine, kind)
    before = everything(tmp_path)
    with pytest.raises(forebay.StateError, match=rf"{name} is {WHAT.get(kind, 'a symbolic link')}.*; move it"):
        provider.produce_one_file("train", 1) if name == "sequence.json" else provider.backlog_size("train")
    if name == "consumer.json":
        with consumer(data) as queue, pytest.raises(forebay.StateError, match=r"consumer\.json is .*; move it"):
            take(queue, 1)
    after = everything(tmp_path)
    lock = "data/queue/.state/train.consumer.lock"  # names its last holder
    assert {**after, lock: ""} == {**before, lock: ""}


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"next": 1, "timestamp": 1, "temporary": "x", "final": "' + "9" * 5000 + '-1-1.pt"}',
        '{"next": 9223372036854775806, "timestamp": 9223372036854775807}',
        '{"next": ' + "9" * 5000 + ', "timestamp": 0}',
        "\udcff",
    ],
    ids=range(6),
)
@pytest.mark.parametrize("name", ["sequence.json", "consumer.json"])
def test_damaged_state_files(tmp_path: Path, name: str, content: str) -> None:
    provider = filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        take(queue, 1)
    path = tmp_path / "queue" / ".state" / f"train.{name}"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(forebay.StateError, match=rf"{name} is damaged; remove it"):
        provider.produce_one_file("train", 1) if name == "sequence.json" else provider.backlog_size("train")


@pytest.mark.parametrize("kind", ["link", "dangling"])
def test_no_file_is_written_through_a_link(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary name of a tensor file, a state file or a legacy file that is a link raises."""
    data, mine = tmp_path / "data", tmp_path / "mine"
    mine.write_text("precious")
    provider = filled(data, 1)
    monkeypatch.setattr(time, "time_ns", lambda: 9_700_000_000_000_000_000)
    monkeypatch.setattr(files, "_numbers", itertools.repeat(7))
    numbers_of = (os.getpid(), f"{threading.get_ident()}7")
    state = data / "queue" / ".state"
    for path, write_it in (
        (data / "queue" / "train" / ".tmp-9700000000000-000001.pt", lambda: provider.produce_one_file("train", 1)),
        (state / ".tmp-x.json-{}-{}".format(*numbers_of), lambda: files.write_state(state / "x.json", {})),
        (data / ".tmp-train_batches_0003.pt", lambda: write_legacy_file(data, "train", 3, {}, {})),
    ):
        obstruct(path, mine, kind)
        before = everything(tmp_path)
        with pytest.raises(forebay.StateError, match=r"is a symbolic link, but the queue needs a file there; move it"):
            write_it()
        assert everything(tmp_path) == before
        provider._numbering("train").recover()
        assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_queue_files_that_are_no_files_go_to_quarantine(tmp_path: Path, kind: str) -> None:
    """Pipes and folders with the name of a queue file are quarantined without waiting for them."""
    provider = filled(tmp_path, 1)
    path = tmp_path / "queue" / "train" / "1000000000000-000000-3.pt"
    obstruct(path, path, kind)
    with consumer(tmp_path) as queue:
        assert take(queue, 3) == expected(provider, range(1))
    assert what_is(tmp_path / "queue" / "quarantine" / "train" / path.name) == WHAT[kind]


@pytest.mark.parametrize("name", ["meta.json", "meta.pkl"])
@pytest.mark.parametrize("kind", ["link", "dangling"])
def test_meta_that_is_a_link_stays(tmp_path: Path, name: str, kind: str) -> None:
    data, mine = tmp_path / "data", tmp_path / "mine"
    filled(data, 1)
    (data / name).rename(mine)  # a valid meta
    if name == "meta.json":
        (data / "meta.pkl").unlink()
    obstruct(data / name, mine, kind)
    before = everything(tmp_path)
    provider = numbers(data)
    if (name, kind) != ("meta.pkl", "link"):
        with pytest.raises(forebay.ConfigError, match=r"move it|does not exist"):
            provider.write_meta()
    assert everything(tmp_path) == before
    provider.purge()
    after = everything(tmp_path)
    assert (after["mine"], after[f"data/{name}"]) == (before["mine"], before[f"data/{name}"])


# States


def test_a_state_of_a_queue_that_was_purged(tmp_path: Path) -> None:
    """A state from before a purge raises, even one at the end of a file, which names no current file."""
    provider = filled(tmp_path, 2)
    with consumer(tmp_path, delete="on_state") as queue:
        take(queue, 3)
        state = queue.state_dict()
        assert state["splits"]["train"]["file"] is None
    provider.purge()
    filled(tmp_path, 2)
    with (
        consumer(tmp_path, delete="on_state") as queue,
        pytest.raises(forebay.StateError, match="which was purged"),
    ):
        queue.load_state_dict(state)


def test_of_many_states_those_in_the_current_file_load(tmp_path: Path) -> None:
    """An older state raises if the files that it needs were removed after a newer state was taken."""
    provider = filled(tmp_path, 3)
    due, states = expected(provider, range(3)), []
    with consumer(tmp_path, delete="on_state") as queue:
        for _ in range(8):
            take(queue, 1)
            states.append(queue.state_dict())
    for after, state in enumerate(states, start=1):
        with consumer(tmp_path, delete="on_state") as queue:
            if after < 6:  # the state after 6 batches released files 0 and 1
                with pytest.raises(forebay.StateError, match=r"of which 2 are gone|which is gone"):
                    queue.load_state_dict(state)
            else:
                queue.load_state_dict(state)
                assert take(queue, 9 - after) == due[after:]


def test_no_file_is_removed_while_the_record_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a full disk files stay; otherwise an older state could be loaded and would skip removed files."""
    provider = filled(tmp_path, 3)
    is_full, write_state = False, files.write_state

    def writes(path: Path, state: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_state(path, state)

    monkeypatch.setattr(queue_split, "write_state", writes)
    with consumer(tmp_path, delete="on_state") as queue:
        take(queue, 3)
        old = queue.state_dict()
        take(queue, 3)
        queue.state_dict()
        is_full = True
        assert take(queue, 3) == expected(provider, range(2, 3))
        assert len(names(tmp_path)) == 2  # file 0 went with the first state
        assert "cannot be written; retrying" in caplog.text
        is_full = False
        eventually(lambda: len(names(tmp_path)) == 1)
    with consumer(tmp_path, delete="on_state") as queue, pytest.raises(forebay.StateError, match="2 are gone"):
        queue.load_state_dict(old)


# Reading ahead


@pytest.mark.parametrize("cache_files", [1, 2])
def test_a_slow_disk_does_not_stall_the_end_of_a_file(
    tmp_path: Path, cache_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cache_files` files are read ahead while another is used; here a semaphore admits each read of the disk."""
    begun: list[str] = []
    done: list[str] = []
    disk = threading.Semaphore(0)

    def slow(path: Path) -> Any:
        begun.append(path.name)
        assert disk.acquire(timeout=120)
        done.append(path.name)
        return tensors.read(path)

    monkeypatch.setattr(feed, "read", slow)
    provider = filled(tmp_path, 4)
    order = names(tmp_path)
    with consumer(tmp_path, cache_files=cache_files) as queue:
        disk.release()
        found = take(queue, 1)
        disk.release(cache_files)
        eventually(lambda: len(done) == 1 + cache_files)
        time.sleep(0.1)
        assert begun == order[: 1 + cache_files]  # and no others
        for at in range(1, 4):
            # To the end of a file and into the next, without a read of the disk.
            found += take(queue, 3)
            assert done == order[: at + cache_files]
            if at + cache_files < 4:
                eventually(lambda at=at: len(begun) == 1 + at + cache_files)
                disk.release()
                eventually(lambda at=at: len(done) == 1 + at + cache_files)
        found += take(queue, 2)
    assert found == expected(provider, range(4))


def test_data_in_memory_whose_file_is_gone(tmp_path: Path) -> None:
    """A file in memory counts as data after its removal from the disk."""
    provider = filled(tmp_path, 2)
    with consumer(tmp_path) as queue:
        take(queue, 3)
        assert queue.wait_for_data("train", timeout=120)
        (tmp_path / "queue" / "train" / names(tmp_path)[1]).unlink()
        assert queue.wait_for_data("train", timeout=0)
        assert take(queue, 3) == expected(provider, range(1, 2))
        assert not queue.wait_for_data("train", timeout=0)


def test_waiting_raises_like_reading(tmp_path: Path) -> None:
    """`wait_for_data` raises for a queue of another consumer, of ranks, or of another schema, without a wait."""
    filled(tmp_path, 1)
    filled(tmp_path / "ranks", 1, rank=0)
    filled(tmp_path / "schema", 0)
    write(tmp_path / "schema", tensors={"x": torch.zeros(8, 4, dtype=torch.int64)})
    with consumer(tmp_path) as one, consumer(tmp_path) as two, consumer(tmp_path / "ranks") as three:
        assert one.wait_for_data("train")
        with pytest.raises(forebay.StateError, match="another consumer holds"):
            two.wait_for_data("train")
        with pytest.raises(forebay.ConfigError, match="divided among ranks"):
            three.wait_for_data("train")
    with consumer(tmp_path / "schema") as queue, pytest.raises(forebay.ConfigError, match="'y' is missing"):
        queue.wait_for_data("train")


# Providers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_file_is_written(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider finishes its file after a signal, and the next run continues after it."""

    def interrupted(file: Any, content: Any) -> None:
        file.write(b"x")
        file.flush()
        file.seek(0)
        os.kill(os.getpid(), number)
        tensors.save(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(provider_module, "save", interrupted)
        numbers(tmp_path).run(["train"])
    (only,) = names(tmp_path)
    provider = numbers(tmp_path)
    with running(provider, splits=["train"]), consumer(tmp_path) as queue:
        assert take(queue, 9) == expected(provider, range(3))
    assert only.split("-")[1] == "000000"


def test_a_second_signal_interrupts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal interrupts the write of a file, which leaves no file; the next run writes it."""

    def interrupted(file: Any, _content: Any) -> None:
        file.write(b"x")
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(provider_module, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            numbers(tmp_path).run(["train"])
    assert names(tmp_path) == []
    provider = numbers(tmp_path)
    with running(provider, splits=["train"]), consumer(tmp_path) as queue:
        assert take(queue, 3) == expected(provider, range(1))


def test_a_rename_that_failed_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider repeats a failed rename before it publishes the next file."""

    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    provider = filled(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(numbering, "move", refuse)
        with pytest.raises(OSError, match="Input/output"):
            provider.produce_one_file("train", 1)
    assert len(names(tmp_path)) == 2
    provider.produce_one_file("train", 2)
    with consumer(tmp_path) as queue:
        assert take(queue, 9) == expected(provider, range(3))


@pytest.mark.parametrize("splits", ["train", [], ()])
def test_splits_are_a_list(tmp_path: Path, splits: Any) -> None:
    """A string for `splits` raises; its letters are not used as names."""
    with pytest.raises(forebay.ConfigError, match=r"splits is .*, must be a list of names"):
        numbers(tmp_path).run(splits)
    assert not list(tmp_path.iterdir())


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    """Old temporary files, also of small files, are removed; recent ones, which may be in use, stay."""
    provider = filled(tmp_path, 1)
    folders = {tmp_path: "meta.pkl", tmp_path / "queue" / ".state": "train.sequence.json"}
    stale = [folder / f".tmp-{name}-999-{i}" for folder, name in folders.items() for i in range(2)]
    stale += [tmp_path / "queue" / ".state" / ".tmp-train.consumer.json-999-0"]
    for path in stale:
        path.write_bytes(b"half")
        if not path.name.endswith("1"):
            os.utime(path, (time.time() - 100,) * 2)
    with running(provider), consumer(tmp_path) as queue:
        take(queue, 3)
    assert [path.exists() for path in stale] == [False, True, False, True, False]
    provider.purge()
    assert not list(tmp_path.iterdir())


# Locks


@pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")  # of JAX, once a test has imported it
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A lock can be taken again after its release, although a forked child, like a `DataLoader` worker, has it open."""
    held = lock.QueueLock(tmp_path / "a", "consumer")
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    try:
        with pytest.raises(forebay.StateError):
            lock.QueueLock(tmp_path / "a", "consumer")
        held.release()
        again = lock.QueueLock(tmp_path / "a", "consumer")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    again.release()


@pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")  # of JAX, once a test has imported it
def test_a_forked_child_does_not_release_the_lock(tmp_path: Path) -> None:
    held = lock.QueueLock(tmp_path / "a", "consumer")
    child = os.fork()
    if not child:
        held.release()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(forebay.StateError):
        lock.QueueLock(tmp_path / "a", "consumer")
    held.release()


def test_reading_waits_for_the_replacement_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a file is retried while another process replaces it, which Windows refuses; then the error is raised."""
    provider = Numbers(tmp_path, 4)
    files.write_state(tmp_path / "a", {"next": 1})
    failures = 3

    def busy(path: Path, mode: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise PermissionError(errno.EACCES, "used by another process")
        return open_file(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", busy)
        assert files.read_state(tmp_path / "a", bool) == {"next": 1}
        failures = 10**6
        with pytest.raises(PermissionError):
            files.read_state(tmp_path / "a", bool)
    assert provider.backlog_size("train") == 0
