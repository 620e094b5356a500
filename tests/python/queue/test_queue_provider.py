"""`DataProviderBase`: files, backlog, persistent numbers, checks, purging, stopping."""

import json
import logging
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from contracts import broken
from forebay.queue import DataProviderBase, lock, read_meta
from forebay.queue.files import FileName, Layout
from forebay.queue.lock import QueueLock
from queues import Numbers, consumer, eventually, expected, filled, meta, names, numbers, running, take
from wrong import assert_named, parameters


def test_signature() -> None:
    """The parameters are those of the reference design."""
    made = Numbers("x", 8)
    assert (made.batch_size, made.block_size, made.target_size) == (8, None, None)
    assert (made.batches_per_file, made.max_backlog_files, made.sleep_seconds) == (100, 2, 2.0)
    assert (made.seed, made.verbose, made.rank) == (1337, False, None)
    positional = Numbers("x", 8, 4, 4, 5, 6, 7.0, 8, False)
    assert (positional.target_size, positional.max_backlog_files, positional.seed) == (4, 6, 8)
    with pytest.raises(TypeError, match="abstract"):
        DataProviderBase("x", 8)  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch_size": 0, "batches_per_file": -1}, "batch_size is 0, must be 1 .*; batches_per_file is -1"),
        ({"max_backlog_files": 0}, "max_backlog_files is 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
        ({"sleep_seconds": float("nan")}, "sleep_seconds is nan"),
        ({"sleep_seconds": -1}, "sleep_seconds is -1"),
        ({"rank": -1}, "rank is -1"),
    ],
)
def test_parameters(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        Numbers(tmp_path, **{"batch_size": 4, **parameters})
    with pytest.raises(forebay.ConfigError, match=r"^data_dir is '~/numbers', and ~ is not expanded"):
        Numbers("~/numbers", batch_size=4)


@pytest.mark.parametrize("parameter", parameters(DataProviderBase))
def test_wrong_types_are_named(tmp_path: Path, parameter: str) -> None:
    assert_named(Numbers, parameter, data_dir=tmp_path, batch_size=4)


def test_a_file(tmp_path: Path) -> None:
    """The name and the contents of a file."""
    before = time.time_ns() // 10**6
    path = numbers(tmp_path).produce_one_file("train", 41)
    key = FileName.parse(path.name)
    assert path.parent == tmp_path / "queue" / "train"
    assert key
    assert key[1:] == (41, 3)
    assert before <= key.timestamp <= time.time_ns() // 10**6
    content = torch.load(path, weights_only=True)
    assert content.keys() == {"metadata", "tensors"}
    assert content["metadata"]["file_idx"] == 41
    batches = list(numbers(tmp_path).sample_file("train", 41))
    assert len(batches) == 3
    for name in "xy":
        assert torch.equal(content["tensors"][name], torch.cat([batch[name] for batch in batches]))


def test_a_file_is_a_function_of_seed_split_and_number(tmp_path: Path) -> None:
    """Contents depend on seed, split, rank and number, not on the files made before."""

    def digest(folder: str, seq: int, split: str = "train", **parameters: Any) -> bytes:
        path = numbers(tmp_path / folder, **parameters).produce_one_file(split, seq)
        return torch.load(path, weights_only=True)["tensors"]["x"].numpy().tobytes()  # type: ignore[no-any-return]

    one = digest("a", 3)
    assert digest("b", 3) == one
    filled(tmp_path / "c", 3)
    assert digest("c", 3) == one  # after other files
    others = [digest("d", 4), digest("e", 3, "val"), digest("f", 3, seed=1336), digest("g", 3, rank=0)]
    assert len({one, *others, digest("h", 3, rank=1)}) == 6


def test_backpressure(tmp_path: Path) -> None:
    """The backlog has at most `max_backlog_files` files; a full split does not block the other."""
    provider = numbers(tmp_path, max_backlog_files=3)
    with running(provider):
        eventually(lambda: provider.backlog_size("train") == 3 and provider.backlog_size("val") == 3)
        time.sleep(0.1)
        assert provider.backlog_size("train") == 3
        with consumer(tmp_path) as queue:
            found = take(queue, 60)
            val = names(tmp_path, "val")
            assert found == expected(provider, range(20))
            assert len(val) == 3
    assert len(names(tmp_path)) <= 3


def test_the_number_survives_when_all_is_consumed(tmp_path: Path) -> None:
    """A provider restarted with an empty queue continues the numbers, so no data is made twice."""
    found: list[int] = []
    for _ in range(3):
        provider = numbers(tmp_path)
        with running(provider, splits=["train"]):
            eventually(lambda provider=provider: provider.backlog_size("train") == 2)
        with consumer(tmp_path) as queue:
            found += take(queue, 6)
            with pytest.raises(TimeoutError):
                take(queue, 1, timeout=0)
        assert names(tmp_path) == []
    assert found == expected(provider, range(6))


@pytest.mark.parametrize("rename_failed", [True, False])
def test_a_finished_file_is_published_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename_failed: bool
) -> None:
    """A provider killed between note and rename, or after the rename, lost no file and repeats none."""
    from forebay.queue import files

    move = files.move

    def killed(source: Path, target: Path) -> None:
        if not rename_failed:
            move(source, target)
        raise KeyboardInterrupt

    filled(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr("forebay.queue.numbering.move", killed)
        with pytest.raises(KeyboardInterrupt):
            numbers(tmp_path).produce_one_file("train", 1)
    if not rename_failed:
        (tmp_path / "queue" / "train" / names(tmp_path)[1]).unlink()  # as if consumed
    provider = numbers(tmp_path)
    with running(provider, splits=["train"]), consumer(tmp_path) as queue:
        seqs = [0, 1, 2, 3] if rename_failed else [0, 2, 3]
        assert take(queue, 3 * len(seqs)) == [
            first for seq in seqs for first in expected(provider, range(seq, seq + 1))
        ]


def test_stale_temporary_files_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new provider removes temporary files of an earlier one, with a log line each."""
    caplog.set_level("INFO", "forebay.queue")
    filled(tmp_path, 1)
    for name in (".tmp-1700000000000-000000.pt", ".tmp-1700000000000-000007.pt"):
        (tmp_path / "queue" / "train" / name).write_bytes(b"half a file")
    with running(numbers(tmp_path)):
        eventually(lambda: numbers(tmp_path).backlog_size("train") == 2)
    assert all(FileName.parse(name) for name in names(tmp_path))
    assert caplog.text.count("which the last provider had not finished") == 2


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files stay in the order of their numbers if the clock goes back, also after a restart."""
    now = 1_700_000_000_000
    provider = filled(tmp_path, 0)
    for seq in range(6):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now * 10**6)
        now -= 1000
        if seq == 3:
            provider = numbers(tmp_path)
        provider.produce_one_file("train", seq)
    monkeypatch.undo()
    with consumer(tmp_path) as queue:
        assert take(queue, 18) == expected(provider, range(6))


def test_a_lost_counter_is_found_again(tmp_path: Path) -> None:
    """A missing counter is restored from the files, including archived ones; a damaged counter raises."""
    filled(tmp_path, 4)
    counter = tmp_path / "queue" / ".state" / "train.sequence.json"
    assert json.loads(counter.read_text())["next"] == 4
    with consumer(tmp_path, archive=True) as queue, pytest.raises(TimeoutError):
        take(queue, 13, timeout=0)
    counter.unlink()
    with running(numbers(tmp_path), splits=["train"]):
        eventually(lambda: numbers(tmp_path).backlog_size("train") == 2)
    assert [FileName.parse(name).seq for name in names(tmp_path)] == [4, 5]  # type: ignore[union-attr]
    counter.write_text("{")
    with pytest.raises(forebay.StateError, match=r"train.sequence.json is damaged; remove it"):
        numbers(tmp_path).run()


class Wrong(Numbers):
    batch: Any = None

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, Any]:
        return self.batch(super().sample_batch(split, rng))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: {"x": b["x"]}, r"batch 0 of file 0 of train does not match .*: 'y' is missing"),
        (lambda b: {**b, "z": b["x"]}, "'z' is not in the schema"),
        (lambda b: {**b, "x": b["x"].int()}, r"'x' is int32 \[4, 4\], must be int64 \[4, 4\]"),
        (lambda b: {**b, "x": b["x"][:3]}, r"'x' is int64 \[3, 4\], must be int64 \[4, 4\]"),
        (lambda b: {**b, "x": b["x"][:, :3]}, r"'x' is int64 \[4, 3\], must be int64 \[4, 4\]"),
        (lambda b: {**b, "x": b["x"].numpy()}, "'x' is a ndarray, must be a tensor"),
        (lambda b: (b["x"], b["y"]), "is a tuple, must be a dict of tensors"),
    ],
)
def test_every_batch_is_checked(tmp_path: Path, change: Any, message: str) -> None:
    provider = Wrong(tmp_path, 4, batches_per_file=2)
    provider.batch = change
    with pytest.raises(forebay.ConfigError, match=message):
        provider.produce_one_file("train", 0)
    calls = 0

    def second(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        return batch if calls == 1 else change(batch)

    provider.batch = second
    with pytest.raises(forebay.ConfigError, match="batch 1 of file 0"):
        provider.produce_one_file("train", 0)
    assert not list(tmp_path.rglob("*.pt"))


class Says(Numbers):
    says: Any = None

    def build_meta(self) -> dict[str, Any]:
        return self.says  # type: ignore[no-any-return]


def test_meta_is_checked_and_written(tmp_path: Path) -> None:
    provider = Says(tmp_path, 4, block_size=4)
    assert provider.load_meta_if_exists() is None
    provider.says = meta(split_info=None)
    with pytest.raises(forebay.ConfigError, match="split_info is missing"):
        provider.write_meta()
    provider.says = meta(batch_size=5, block_size=4)
    with pytest.raises(
        forebay.ConfigError, match=r"differs from the provider's parameters in batch_size \(5, here 4\)"
    ):
        provider.write_meta()
    assert not list(tmp_path.iterdir())
    provider.says = meta(stoi={"a": 0}, mask_token_id=7)
    provider.write_meta()
    assert provider.load_meta_if_exists() == read_meta(tmp_path) == provider.says
    with pytest.raises(forebay.ConfigError, match="vocab_size is missing"):
        provider.validate_meta(meta(vocab_size=None))


def test_an_existing_meta_that_differs(tmp_path: Path) -> None:
    """A different meta raises with the keys that differ, before any file is made; an equal meta is accepted."""
    filled(tmp_path, 0)
    numbers(tmp_path).write_meta()
    provider = Says(tmp_path, 8)
    provider.says = meta(8, vocab_size=9, label_map={})
    with pytest.raises(forebay.ConfigError, match=r"batch_size \(4, here 8\), label_map \(missing, .*, vocab_size"):
        provider.run()
    assert not list(tmp_path.rglob("*.pt"))
    assert read_meta(tmp_path)["batch_size"] == 4
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({**meta(), "batch_schema": tuple(meta()["batch_schema"])}))
    numbers(tmp_path).write_meta()  # a tuple equals a list


class Hooked(Numbers):
    def on_start(self) -> None:
        self.seen = ["start"]

    def on_stop(self) -> None:
        self.seen.append("stop")

    def sample_batch(self, split: str, rng: torch.Generator) -> dict[str, Any]:
        self.seen.append("batch")
        if len(self.seen) > 9:
            raise RuntimeError("no more")
        return super().sample_batch(split, rng)


def test_hooks(tmp_path: Path) -> None:
    provider = Hooked(tmp_path, 4, batches_per_file=3)
    with pytest.raises(RuntimeError, match="no more"):
        provider.run()
    assert provider.seen[:2] == ["start", "batch"]
    assert provider.seen[-2:] == ["batch", "stop"]
    assert len(names(tmp_path)) == len(names(tmp_path, "val")) + (1 if len(names(tmp_path)) > 1 else 0)


def test_stopping_before_and_in_a_file(tmp_path: Path) -> None:
    provider = numbers(tmp_path / "a")
    provider.stop()
    provider.run()
    assert names(tmp_path / "a") == []
    slow = numbers(tmp_path / "b", batches_per_file=10_000)
    slow.pause_s = 0.05
    with running(slow):
        eventually(lambda: slow.sampled > 0)
        slow.stop()
        before = slow.sampled
    assert slow.sampled <= before + 1 < 10_000
    assert names(tmp_path / "b") == []


def test_two_providers_for_one_queue(tmp_path: Path) -> None:
    with running(numbers(tmp_path)):
        eventually((tmp_path / "meta.pkl").exists)
        with pytest.raises(forebay.StateError, match="another provider holds"):
            numbers(tmp_path).run()
        with pytest.raises(forebay.StateError, match="another provider or consumer holds"):
            numbers(tmp_path).purge()
        with running(numbers(tmp_path, rank=0)):
            eventually((tmp_path / "queue" / "train_rank0").exists)


def test_purge(tmp_path: Path) -> None:
    """`purge()`, as of `--force_regenerate`, removes all files of the queue and restarts the numbers."""
    provider = filled(tmp_path, 2)
    (tmp_path / "mine.txt").touch()
    provider.purge()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    filled(tmp_path, 1)
    assert FileName.parse(names(tmp_path)[0]).seq == 0  # type: ignore[union-attr]
    numbers(tmp_path / "never").purge()


def test_purge_removes_what_is_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`purge()` leaves other files in the folders, a meta by another program, links and their targets."""
    with running(numbers(tmp_path)):
        eventually(lambda: numbers(tmp_path).backlog_size("train") == 2)
        with consumer(tmp_path, delete="on_state") as queue:
            first = tmp_path / "queue" / "train" / names(tmp_path)[0]
            first.write_bytes(b"junk")
            queue.get_batch("train", "cpu")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0000000000001-000000-3.pt").touch()
    (tmp_path / "queue" / "linked").symlink_to(elsewhere)
    foreign = [
        tmp_path / "meta.json", tmp_path / "queue" / "mine.pt", tmp_path / "queue" / ".state" / "mine.json",
        tmp_path / "queue" / ".state" / "mine.lock", tmp_path / "queue" / "train" / "mine.pt",
        tmp_path / "queue" / "train" / ".tmp-mine", tmp_path / "queue" / "mine" / "deep" / "a", elsewhere / "b",
        tmp_path / ".tmp-meta.pkl-mine",
    ]  # fmt: skip
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    numbers(tmp_path).purge()
    left = {path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()}
    assert left == {*foreign, elsewhere / "0000000000001-000000-3.pt"}
    assert {path.read_text() for path in foreign} == {"mine"}
    assert (tmp_path / "queue" / "linked").is_symlink()
    [record] = [record for record in caplog.records if "purge leaves" in record.message]
    assert "mine.pt" in record.message
    assert "meta.json" in record.message
    (tmp_path / "meta.json").unlink()
    (tmp_path / "meta.pkl").write_bytes(b"mine")
    numbers(tmp_path).purge()
    assert (tmp_path / "meta.pkl").read_bytes() == b"mine"


def test_purge_holds_the_locks_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`purge()` holds the locks until all is removed, so a provider cannot start meanwhile and lose its files."""
    with running(numbers(tmp_path)):
        eventually(lambda: numbers(tmp_path).backlog_size("train") == 2)
    path = tmp_path / "queue" / ".state" / "train.provider.lock"
    removed = Layout.remove_files
    tried: list[str] = []

    def remove_files(layout: Layout) -> list[Path]:
        with pytest.raises(forebay.StateError, match="holds"):
            numbers(tmp_path).run(["train"])
        with pytest.raises(forebay.StateError, match="holds"):
            numbers(tmp_path).purge()
        tried.append("refused")
        return removed(layout)

    monkeypatch.setattr(Layout, "remove_files", remove_files)
    waiting = path.open("a+")  # as of a process that is about to lock it
    numbers(tmp_path).purge()
    assert tried == ["refused"]
    assert not list(tmp_path.iterdir())
    # The lock is on the new file, not on the removed one.
    held = QueueLock(path, "provider")
    with pytest.raises(forebay.StateError, match="another provider holds"):
        QueueLock(path, "provider")
    held.release()
    waiting.close()


def test_a_lock_file_removed_before_locking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file removed between opening and locking is opened again; otherwise two processes would hold a lock."""
    path, plain = tmp_path / "a.lock", lock._lock
    gone: list[bool] = []

    def late(file: Any) -> None:
        if not gone:
            path.unlink()
            gone.append(True)
        plain(file)

    monkeypatch.setattr(lock, "_lock", late)
    with QueueLock(path, "provider"), pytest.raises(forebay.StateError, match="holds"):
        QueueLock(path, "provider")


@pytest.mark.parametrize(
    "note",
    [
        {"temporary": "../../mine.txt", "final": "0000000000001-000000-3.pt"},
        {"temporary": ".tmp-0000000000001-000000.pt", "final": "../../mine.txt"},
        {"temporary": ".tmp-0000000000001-000000.pt", "final": "/tmp/0000000000001-000000-3.pt"},
        {"temporary": ".tmp-0000000000001-000001.pt", "final": "0000000000001-000000-3.pt"},
        {"temporary": 3, "final": 4},
        {"temporary": None},
        {"next": 10**30},
        {"next": -1},
        {"timestamp": True},
        {"timestamp": "1"},
    ],
)
def test_a_note_names_only_files_of_the_queue(tmp_path: Path, note: dict[str, Any]) -> None:
    """A `sequence.json` with other names or numbers out of range raises, and no file is changed."""
    provider = filled(tmp_path, 1)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "queue" / "train" / ".tmp-0000000000001-000000.pt").write_text("finished")
    path = tmp_path / "queue" / ".state" / "train.sequence.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **note}))
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    with pytest.raises(forebay.StateError, match=r"sequence\.json is damaged"):
        numbers(tmp_path).produce_one_file("train", 1)
    with pytest.raises(forebay.StateError, match=r"sequence\.json is damaged"):
        numbers(tmp_path).run(["train"])
    after = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file() and one.suffix != ".lock"}
    assert after == before
    assert provider.backlog_size("train") == 1


def test_only_unfinished_files_of_the_queue_are_removed(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    folder = tmp_path / "queue" / "train"
    for name in (".tmp-1-2.pt", ".tmp-mine", ".tmp-1-2.pt.mine"):
        (folder / name).touch()
    (tmp_path / ".tmp-meta.pkl-mine").touch()
    os.utime(tmp_path / ".tmp-meta.pkl-mine", (0, 0))
    with running(numbers(tmp_path), splits=["train"]):
        eventually(lambda: ".tmp-1-2.pt" not in names(tmp_path))
    assert {".tmp-mine", ".tmp-1-2.pt.mine"} <= set(names(tmp_path))
    assert (tmp_path / ".tmp-meta.pkl-mine").exists()


def test_a_meta_json_of_another_program_stays(tmp_path: Path) -> None:
    for content in ('{"mine": 1}', "no JSON"):
        (tmp_path / "meta.json").write_text(content)
        with pytest.raises(forebay.ConfigError, match=r"meta\.json was not written by a provider"):
            numbers(tmp_path).write_meta()
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"meta.json": content}


CONTRACT = """
    DataProviderBase(data_dir, batch_size, block_size=None, target_size=None, batches_per_file=100, \
max_backlog_files=2, sleep_seconds=2.0, seed=1337, verbose=False)
    DataProviderBase.build_meta()
    DataProviderBase.sample_batch(split, rng)
    DataProviderBase.on_start()
    DataProviderBase.on_stop()
    DataProviderBase.run(splits=("train", "val"))
    DataProviderBase.produce_one_file(split, seq)
    DataProviderBase.backlog_size(split)
    DataProviderBase.ensure_dirs(splits=("train", "val"))
    DataProviderBase.write_meta(meta)
    DataProviderBase.load_meta_if_exists()
    DataProviderBase.validate_meta(meta)
    DatasetConsumer(data_dir, device_type="cuda", prefer_queue=True, cache_files=1, high_watermark=2, low_watermark=0)
    DatasetConsumer.get_batch(split, device)
    DatasetConsumer.meta
    DatasetConsumer.schema(split)
    DatasetConsumer.stats()
    DatasetConsumer.wait_for_data(split, timeout=None)
    DatasetConsumer.reset_state(split=None)
    DatasetConsumer.set_batch_size(new_bs)
"""


def test_contract() -> None:
    """Names and signatures are those of the reference design."""
    assert broken(CONTRACT, forebay.queue) == []


def test_write_meta_takes_meta(tmp_path: Path) -> None:
    """`write_meta` accepts the meta as an argument, as in the reference design, and can be overridden."""
    numbers(tmp_path / "given").write_meta(meta(label_map={0: "x"}))
    assert read_meta(tmp_path / "given")["label_map"] == {0: "x"}
    with pytest.raises(forebay.ConfigError, match="batch_size"):
        numbers(tmp_path / "given").write_meta(meta(batch_size=5))
    with pytest.raises(forebay.ConfigError, match="split_info is missing"):
        numbers(tmp_path / "wrong").write_meta(meta(split_info=None))

    written = []

    class Own(Numbers):
        def write_meta(self, meta: Any) -> None:  # type: ignore[override]
            written.append(meta)
            super().write_meta(meta)

    provider = Own(tmp_path / "own", 4, batches_per_file=3, sleep_seconds=0.01)
    with running(provider, splits=["train"]):
        eventually(lambda: provider.backlog_size("train") == 2)
    assert written == [meta()]


def test_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a line per file and per change of the backlog, none per batch."""
    caplog.set_level("INFO", "forebay.queue")
    provider = numbers(tmp_path, batches_per_file=50)
    with running(provider, splits=["train"]):
        eventually(lambda: "backlog is 2 files" in caplog.text)
        time.sleep(0.1)  # no more lines are logged
    lines = [record.getMessage().split(":", 1)[1].split()[0:2] for record in caplog.records[:-1]]
    assert lines == [
        ["wrote", names(tmp_path)[0] + ","],
        ["backlog", "is"],
        ["wrote", names(tmp_path)[1] + ","],
        ["backlog", "is"],
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert "backlog is 2 files, was 1" in caplog.text


def test_verbose_is_debug(tmp_path: Path) -> None:
    log = logging.getLogger("forebay.queue")
    before = log.level
    try:
        numbers(tmp_path, verbose=True)
        assert log.level == logging.DEBUG
    finally:
        log.setLevel(before)


def test_ranks_have_queues_of_their_own(tmp_path: Path) -> None:
    """Each rank has its own queue; a consumer without a rank raises."""
    providers = [filled(tmp_path, 2, rank=rank) for rank in range(2)]
    assert names(tmp_path, ".") == [
        *(".state", "train_rank0", "train_rank1", "val_rank0", "val_rank1"),
    ]
    queues = [consumer(tmp_path, rank=rank) for rank in range(2)]
    found = [take(queue, 6) for queue in queues]
    assert found == [expected(provider, range(2)) for provider in providers]
    assert not set(found[0]) & set(found[1])
    with consumer(tmp_path) as alone, pytest.raises(forebay.ConfigError, match="divided among ranks: pass rank="):
        alone.get_batch("train", "cpu")
    for queue in queues:
        queue.close()
