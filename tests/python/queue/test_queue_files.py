"""Names, folders, meta, locks and seeds of `forebay.queue`."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
import torch

import forebay
from forebay.queue import files, lock, read_meta
from forebay.queue import meta as metas
from forebay.queue.files import FileName, Layout
from forebay.queue.plain import plain_loads
from forebay.queue.seeds import file_rng, file_seed
from queues import consumer, filled, meta, names, numbers


def test_names_of_files(tmp_path: Path) -> None:
    """Files are ordered by the numbers in their names, timestamp before sequence, not by text."""
    name = FileName(1_700_000_000_123, 7, 100)
    assert str(name) == "1700000000123-000007-100.pt"
    assert name.temporary == ".tmp-1700000000123-000007.pt"
    assert FileName.parse(str(name)) == name
    for other in (name.temporary, "1700000000123-000007.pt", "a-b-c.pt", f"{name}.gone", f"{name} ", "1-2-3.pth"):
        assert FileName.parse(other) is None
    assert list_of(tmp_path, "9-0-1.pt", "10-0-1.pt", "10-2-1.pt", "10-10-1.pt", ".tmp-1-0.pt", "notes.txt") == [
        "9-0-1.pt",
        "10-0-1.pt",
        "10-2-1.pt",
        "10-10-1.pt",
    ]


def list_of(folder: Path, *present: str) -> list[str]:
    for name in present:
        (folder / name).touch()
    return files.list_files(folder)


def test_layout(tmp_path: Path) -> None:
    """The folders of a queue, and the metadata of a file including its schema."""
    provider = filled(tmp_path, 1)
    provider.produce_one_file("val", 0)
    with consumer(tmp_path, archive=True) as queue:
        for _ in range(4):
            try:
                queue.get_batch("train", "cpu", timeout=0)
            except TimeoutError:
                break
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if ".state" not in path.parts}
    (kept,) = (tmp_path / "archives" / "train").iterdir()
    (waiting,) = names(tmp_path, "val")
    assert found == {
        *("meta.pkl", "meta.json", "archives", "archives/train", "queue", "queue/train", "queue/val"),
        *(f"archives/train/{kept.name}", f"queue/val/{waiting}"),
    }
    metadata = torch.load(kept, weights_only=True)["metadata"]
    assert metadata == {
        "batch_size": 4,
        "num_batches": 3,
        "file_idx": 0,
        "split": "train",
        "produced_at": int(kept.name.split("-")[0]),
        "schema": [{"name": "x", "dtype": "int64", "shape": [4]}, {"name": "y", "dtype": "int64", "shape": [4]}],
    }


@pytest.mark.parametrize(
    "split", ["", ".", "..", "a/b", "a\\b", "a:b", "a b", "NUL", "com1", "quarantine", "train_rank0", ".x", "ü", "a.b"]
)
def test_names_of_splits(tmp_path: Path, split: str) -> None:
    with pytest.raises(forebay.ConfigError, match="cannot name a split"):
        numbers(tmp_path).produce_one_file(split, 0)
    filled(tmp_path, 0)
    with consumer(tmp_path) as queue, pytest.raises(forebay.ConfigError, match="cannot name a split"):
        queue.get_batch(split, "cpu")


def test_names_hold_on_windows(tmp_path: Path) -> None:
    """Names of files are valid on Windows: no reserved characters, devices or endings, and distinct without case."""
    provider = filled(tmp_path, 3)
    bad = files.Layout(tmp_path).files("train") / names(tmp_path)[1]
    bad.write_bytes(b"junk")
    with consumer(tmp_path) as queue:
        for _ in range(5):
            queue.get_batch("train", "cpu")
    provider.produce_one_file("val", 0)
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("*")]
    assert len(found) > 10
    assert len({path.as_posix().lower() for path in found}) == len(found)
    for path in found:
        for part in path.parts:
            assert not set(part) & set('<>:"/\\|?*')
            assert not PureWindowsPath(part).is_reserved()
            assert part == part.rstrip(" .")
    here: Any = PureWindowsPath("C:/data")
    assert str(Layout(here).files("train")) == "C:\\data\\queue\\train"


def test_renames_wait_for_an_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename is retried while another process, such as a scanner, has the file open, as on Windows."""
    failures, replace = 3, Path.replace

    def busy(*arguments: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise PermissionError(13, "used by another process")
        replace(*arguments)

    monkeypatch.setattr(Path, "replace", busy)
    (tmp_path / "a").write_text("a")
    files.move(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "a"
    failures = 10**6
    with pytest.raises(PermissionError):
        files.move(tmp_path / "b", tmp_path / "c")


def test_folders_are_not_synced_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    files.sync_folder(tmp_path)
    assert len(synced) == 1
    monkeypatch.setattr(os, "name", "nt")
    files.sync_folder(tmp_path)
    monkeypatch.undo()
    assert len(synced) == 1


def test_a_file_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def seen_fsync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def seen_replace(source: Path, target: Path) -> None:
        events.append(f"{Path(source).name} > {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    final = numbers(tmp_path).produce_one_file("train", 5).name
    temporary = f".tmp-{final.rsplit('-', 1)[0]}.pt"
    assert events[0] == f"sync {temporary}"
    assert events[-2:] == [f"{temporary} > {final}", "sync train"]
    assert any(event.endswith("> train.sequence.json") for event in events[1:-2])


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write, as on a full disk, leaves no file."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            numbers(tmp_path).produce_one_file("train", 0)
    assert names(tmp_path) == []


def test_locks(tmp_path: Path) -> None:
    held = lock.QueueLock(tmp_path / "a.lock", "consumer")
    with pytest.raises(forebay.StateError, match=rf"another consumer holds .*process {os.getpid()} on .*rank="):
        lock.QueueLock(tmp_path / "a.lock", "consumer")
    held.release()
    again = lock.QueueLock(tmp_path / "a.lock", "consumer")
    again.release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = f"from forebay.queue.lock import *; import os; l = QueueLock(Path({str(tmp_path / 'a')!r}), 'x'); print(1)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code}; import sys; sys.stdout.flush(); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "1\n"
        with pytest.raises(forebay.StateError, match=f"process {child.pid} "):
            lock.QueueLock(tmp_path / "a", "x")
        child.kill()
    lock.QueueLock(tmp_path / "a", "x").release()


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_file: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock, "_lock", refuse)
    lock.QueueLock(tmp_path / "a", "consumer").release()
    assert "cannot be locked" in caplog.text


# Meta


def test_a_complete_meta() -> None:
    """A meta with all required keys and any optional keys is accepted."""
    metas.check_meta(meta())
    extra: Any = {"stoi": {"a": 0}, "itos": {0: "a"}, "label_map": {0: "x"}, "cls_token_id": 1, "pad_token_id": 2}
    metas.check_meta(meta(**extra, mask_token_id=3, anything=[1, (2.0, None, b"x", True)]))
    for training_type in metas.TRAINING_TYPES:
        metas.check_meta(meta(training_type=training_type))
    pixels = [{"name": "x", "dtype": "float32", "shape": [3, 8, 8]}, {"name": "y", "dtype": "int64", "shape": []}]
    metas.check_meta(meta(training_type="CLASSIFICATION", batch_schema=pixels, vocab_size=None, block_size=None))


@pytest.mark.parametrize("key", [*metas.REQUIRED, "vocab_size", "block_size"])
def test_what_meta_must_have(key: str) -> None:
    """Each missing required key raises."""
    changes: Any = {key: None}
    with pytest.raises(forebay.ConfigError, match=f"{key} is missing"):
        metas.check_meta(meta(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training_type": "GAN"}, "training_type is 'GAN', must be one of LM, MLM, CLASSIFICATION"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"vocab_size": "9"}, "vocab_size is '9'"),
        ({"dataset_name": 3}, "dataset_name is 3"),
        ({"split_info": []}, "split_info is"),
        ({"batch_schema": []}, "must be a list of fields"),
        ({"batch_schema": [{"name": "x", "dtype": "int64"}]}, r"batch_schema\[0\] is"),
        ({"batch_schema": [{"name": "x", "dtype": "int64", "shape": [], "size": 1}]}, r"batch_schema\[0\] is"),
        ({"batch_schema": [{"name": "x", "dtype": "torch.int64", "shape": []}]}, "has dtype 'torch.int64'"),
        ({"batch_schema": [{"name": "x", "dtype": "int64", "shape": [-1]}]}, "has shape"),
        ({"batch_schema": 2 * [{"name": "x", "dtype": "int64", "shape": [4]}]}, "a name twice"),
        ({"block_size": 5}, "target_size is missing"),
        ({"target_size": 5}, "target_size is 5, but targets have length"),
    ],
)
def test_what_is_wrong_with_meta(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        metas.check_meta(meta(**changes))


def test_sizes_where_they_apply() -> None:
    def schema(**of_y: Any) -> list[dict[str, Any]]:
        return [{"name": "x", "dtype": "int64", "shape": [4]}, {"name": "y", "dtype": "int64", **of_y}]

    metas.check_meta(meta(batch_schema=schema(shape=[])))  # one label per row has no length
    metas.check_meta(meta(batch_schema=schema(shape=[2]), target_size=2))
    metas.check_meta(meta(batch_schema=schema(shape=[2], role="weights")))
    with pytest.raises(forebay.ConfigError, match="target_size is missing"):
        metas.check_meta(meta(batch_schema=schema(shape=[2])))
    with pytest.raises(forebay.ConfigError, match="inputs are tokens"):
        metas.check_meta(meta(training_type="CLASSIFICATION", vocab_size=None))


def test_meta_is_written_and_read(tmp_path: Path) -> None:
    """Meta is written to `meta.pkl` and `meta.json`, without temporary files left."""
    written = meta(itos={0: "a"}, nested=[(1, 2), {"x": {3, 4}}, b"\x00\xff", None, True, 1e300, "ü"])
    metas.write_meta(tmp_path, written)
    assert read_meta(tmp_path) == written
    found = json.loads((tmp_path / "meta.json").read_text(encoding="utf-8"))
    assert found["itos"] == {"0": "a"}
    assert found["nested"] == [[1, 2], {"x": [3, 4]}, {"base64": "AP8="}, None, True, 1e300, "ü"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.json", "meta.pkl"]


@pytest.mark.parametrize(
    "value",
    [np.int64(3), torch.zeros(1), OrderedDict(a=1), Path("x"), 1j, [np.float32(1)], {np.str_("a"): 1}],
    ids=repr,
)
def test_only_plain_values_are_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(forebay.ConfigError, match=r"meta\['extra'\].* is a .*; meta may hold dicts"):
        metas.write_meta(tmp_path, {"extra": value})
    assert not list(tmp_path.iterdir())


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo pwned > /tmp/pwned",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [Evil(), {"a": [Evil()]}, OrderedDict(a=1), print, Path("x"), np.int64(1)],
    ids=["object", "nested", "ordered", "function", "path", "number"],
)
def test_untrusted_meta(tmp_path: Path, value: Any, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a meta.pkl runs no code of the pickle."""
    data = pickle.dumps(value, protocol=protocol)
    monkeypatch.setattr(os, "system", pytest.fail)
    (tmp_path / "meta.pkl").write_bytes(data)
    with pytest.raises(forebay.ConfigError, match=r"allowed are only dicts, lists"):
        read_meta(tmp_path)
    with pytest.raises(forebay.ConfigError, match=r"allowed are only dicts, lists"):
        consumer(tmp_path)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_of_all_protocols(protocol: int) -> None:
    value: Any = {"a": [1, -(2**70), 1.5, "ü", None, True, ("x", ())], 3: {}}
    value["again"] = value["a"]
    if protocol > 2:
        value["b"] = b"x" * 300
    if protocol > 3:
        value["c"] = {1, 2}
    assert plain_loads(pickle.dumps(value, protocol=protocol)) == value


def test_damaged_pickles(tmp_path: Path) -> None:
    whole = pickle.dumps(meta(), protocol=4)
    for end in range(len(whole)):
        with pytest.raises(pickle.UnpicklingError):
            plain_loads(whole[:end])
    generator = np.random.default_rng(1)
    for _ in range(2000):
        data = bytearray(whole)
        for at in generator.integers(len(data), size=3):
            data[at] = generator.integers(256)
        with contextlib.suppress(pickle.UnpicklingError):
            plain_loads(bytes(data))
    for bomb in (
        b"\x80\x04Nr\xff\xff\xff\x7f.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",
        b"(" * 100_000 + b".",
    ):
        with pytest.raises(pickle.UnpicklingError):
            plain_loads(bomb)
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps([1]))
    with pytest.raises(forebay.ConfigError, match="holds a list"):
        read_meta(tmp_path)


def memo_bomb(make: bytes, depth: int, end: bytes | None = None) -> bytes:
    """A pickle of a dict whose value has 2^`depth` parts by shared references; `make` combines two of them."""
    steps = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + make + b"q" + bytes([i + 1]) + b"0" for i in range(depth))
    return b"\x80\x04}X\x01\x00\x00\x00a" + b"K\x01q\x000" + steps + (end or b"h" + bytes([depth])) + b"s."


LISTS = b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))
BOMBS = {
    "tuples": memo_bomb(b"\x86", 60),
    "tuples as keys": memo_bomb(b"\x86", 60, b"}h\x3cNs"),
    "sets of tuples": memo_bomb(b"\x86", 60, b"\x8f(h\x3c\x90"),
    "frozensets": b"\x80\x04}X\x01\x00\x00\x00a(K\x01\x91q\x00"
    + b"".join(
        b"(h" + bytes([i]) + b"K" + bytes([i]) + b"\x86h" + bytes([i]) + b"\x91q" + bytes([i + 1]) for i in range(60)
    )
    + b"s.",
    "lists": b"\x80\x04}X\x01\x00\x00\x00a(K\x01q\x00" + LISTS + b"h\x3cls.",
    "a list in itself": b"\x80\x04}X\x01\x00\x00\x00a]q\x00h\x00as.",
    "a dict in itself": b"\x80\x04}q\x00X\x01\x00\x00\x00ah\x00s.",
    "one text many times": b"\x80\x04}X\x01\x00\x00\x00aX\x00\x00\x10\x00"
    + b"x" * (1 << 20)
    + b"q\x000("
    + b"h\x00" * 1000
    + b"ls.",
    "deep": b"\x80\x04}X\x01\x00\x00\x00a" + b"]" * 5000 + b"a" * 4999 + b"s.",
    "a number of a megabyte": b"\x80\x04}X\x01\x00\x00\x00a\x8b\x00\x00\x10\x00" + b"\x7f" * (1 << 20) + b"s.",
    "a number in digits": b"\x80\x02}X\x01\x00\x00\x00aL" + b"9" * 4000 + b"L\ns.",
    "numbers with one hash": b"\x80\x04}("
    + b"".join(b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"N" for n in range(1, 9))
    + b"u.",
    "too many instructions": b"\x80\x04}X\x01\x00\x00\x00a" + b"N0" * (1 << 20) + b"Ns.",
    "too many bytes": b"\x80\x04}X\x01\x00\x00\x00a\x8e" + (17 << 20).to_bytes(8, "little") + bytes(17 << 20) + b"s.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(tmp_path: Path, name: str) -> None:
    """Small pickles of large values are refused in little memory, with a short message."""
    (tmp_path / "meta.pkl").write_bytes(BOMBS[name])
    with pytest.raises(forebay.ConfigError, match=r"cannot be used: it (holds|has)") as raised:
        read_meta(tmp_path)
    assert len(str(raised.value)) < 1000


def test_bombs_in_the_making() -> None:
    """Bombs are refused before their last byte: 2^22 shared parts are too many, 2^19 are not."""
    assert len(repr(plain_loads(memo_bomb(b"\x86", 10)))) > 1 << 11
    plain_loads(memo_bomb(b"\x86", 19))
    with pytest.raises(pickle.UnpicklingError, match="nested values"):
        plain_loads(memo_bomb(b"\x86", 22) + b"whatever follows")


@pytest.mark.parametrize("key", [*metas.REQUIRED, "vocab_size", "target_size"])
def test_messages_are_short(key: str) -> None:
    """Messages are short for any number and size of problems in meta."""
    wrong: Any = [[{"name": 0, "dtype": ["x" * 1000] * 100, "shape": ["y"] * 1000, "role": 3}] * 100] * 100
    if key == "batch_schema":
        wrong = wrong[0] * 100
    with pytest.raises(forebay.ConfigError) as raised:
        metas.check_meta(meta(**{key: wrong}))
    assert key in str(raised.value)
    assert len(str(raised.value)) < 8000
    [difference] = metas.differences(meta(), meta(**{key: wrong})) if key != "target_size" else ["x"]
    assert len(difference) < 300
    many = {f"{'k' * 5000}{i}": i for i in range(1000)}
    assert len(metas.few(metas.differences(many, {}))) < 8000


def test_a_vocabulary_is_not_too_much(tmp_path: Path) -> None:
    texts = {f"token {i}": i for i in range(60_000)}
    written = meta(stoi=texts, itos={i: text for text, i in texts.items()})
    metas.write_meta(tmp_path, written)
    assert read_meta(tmp_path) == written
    with pytest.raises(forebay.ConfigError, match="could not be read: it has"):
        metas.write_meta(tmp_path, meta(extra=b"x" * (17 << 20)))
    assert read_meta(tmp_path) == written


def test_meta_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.pkl")
    with pytest.raises(forebay.ConfigError, match="is not a file"):
        read_meta(tmp_path)


# Seeds


def test_seeds_are_the_same_everywhere() -> None:
    """Seeds have fixed values, also in processes with another hash seed."""
    expected = [file_seed(1337, "train", 0), file_seed(1337, "train", 1), file_seed(2**64 - 1, "val_rank3", 10**6)]
    assert expected == [1573082574, 3222169393, 3985980168]
    code = "from forebay.queue.seeds import *; print([file_seed(1337, 'train', 0), file_seed(1337, 'train', 1)])"
    for hash_seed in "01":
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert json.loads(found.stdout) == expected[:2]


def test_seeds_are_mixed() -> None:
    """Seeds of the files of a split differ, as do those of adjacent seeds, splits and numbers."""
    assert len({file_seed(1, "train", seq) for seq in range(200_000)}) == 200_000
    many = {file_seed(seed, split, seq) for seed in range(20) for split in ("train", "val") for seq in range(50)}
    assert len(many) == 2000
    assert file_seed(1, "train", 0) != file_seed(0, "train", 1)
    draws = torch.stack([torch.rand(50, generator=file_rng(7, "train", seq)) for seq in range(200)])
    assert abs(float(torch.corrcoef(draws).fill_diagonal_(0).mean())) < 0.01
