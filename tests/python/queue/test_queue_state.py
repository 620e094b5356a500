"""`state_dict` and `load_state_dict` of `DatasetConsumer`: exactly once with `delete="on_state"`."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from forebay.queue import queue_split, write_legacy_file
from forebay.queue.meta import write_meta
from queues import consumer, eventually, expected, filled, meta, names, numbers, running, take

NOTHING: dict[str, Any] = {"queue": "0", "done": [], "finished": 0}


def kept(folder: Path, **parameters: Any) -> Any:
    return consumer(folder, delete="on_state", **parameters)


def saved(queue: Any) -> dict[str, Any]:
    """The state of a consumer through JSON, as in a checkpoint."""
    text = json.dumps(queue.state_dict())
    assert len(text) < 1000
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("delete", ["consumed", "on_state"])
def test_a_new_consumer_goes_on(tmp_path: Path, at: int, delete: Any) -> None:
    """A new consumer continues from a state after any batch, within a file or at its end; repeated twice."""
    provider = filled(tmp_path, 4)
    with consumer(tmp_path, delete=delete) as queue:
        found = take(queue, at)
        state = saved(queue)
    with consumer(tmp_path, delete=delete) as queue:
        queue.load_state_dict(state)
        found += take(queue, 1)
        state = saved(queue)
        take(queue, 1)  # in no state
        if delete == "consumed" and at % 3 == 2:
            return  # that removed the file of the state
    with consumer(tmp_path, delete=delete) as queue:
        queue.load_state_dict(state)
        found += take(queue, 11 - at)
        with pytest.raises(TimeoutError):
            take(queue, 1, timeout=0)
    assert found == expected(provider, range(4))


def test_files_stay_until_a_state_is_behind_them(tmp_path: Path) -> None:
    provider = filled(tmp_path, 4)
    all_names = names(tmp_path)
    with kept(tmp_path) as queue:
        take(queue, 2)
        middle = saved(queue)
        take(queue, 5)
        assert names(tmp_path) == all_names
        assert queue.stats()["train"]["held"] == 2
        eventually(lambda: provider.backlog_size("train") == 2)
        state = saved(queue)
        assert names(tmp_path) == all_names  # the state may not be saved yet
        take(queue, 1)
        assert names(tmp_path) == all_names[2:]
        take(queue, 2)
    # The latest state finds its files; the earlier one does not.
    with kept(tmp_path) as queue:
        queue.load_state_dict(state)
        assert take(queue, 5) == expected(provider, range(4))[7:]
    with (
        kept(tmp_path) as queue,
        pytest.raises(forebay.StateError, match=r"taken after 0 files of .*, of which 2 are gone"),
    ):
        queue.load_state_dict(middle)


def test_held_files_are_no_backlog(tmp_path: Path) -> None:
    """Held files do not count as backlog; otherwise a trainer that saves rarely would deadlock with a small limit."""
    provider = numbers(tmp_path, max_backlog_files=1)
    with running(provider, splits=["train"]):
        eventually((tmp_path / "meta.pkl").exists)
        with kept(tmp_path) as queue:
            assert take(queue, 60) == expected(provider, range(20))
            assert len(names(tmp_path)) >= 20
            queue.state_dict()
            take(queue, 1)
            assert len(names(tmp_path)) <= 3


def test_at_a_boundary_whose_next_files_are_gone(tmp_path: Path) -> None:
    """A state at a file's end raises if files after it were removed."""
    filled(tmp_path, 3)
    with kept(tmp_path) as queue:
        take(queue, 3)
        boundary = saved(queue)
        assert boundary["splits"]["train"]["file"] is None
        take(queue, 3)
        queue.state_dict()
        take(queue, 1)
        with pytest.raises(
            forebay.StateError, match=r"taken after 1 files of .*, of which 2 are gone: load a later state"
        ):
            queue.load_state_dict(boundary)
        take(queue, 1)  # the consumer still works


def test_a_state_whose_file_is_gone(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        state = saved(queue)
        name = state["splits"]["train"]["file"]
    (tmp_path / "queue" / "train" / name).unlink()
    with (
        consumer(tmp_path) as queue,
        pytest.raises(forebay.StateError, match=rf"the state's file is .*{name}, which is gone"),
    ):
        queue.load_state_dict(state)


def test_a_state_whose_file_is_corrupt(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        state = saved(queue)
    (tmp_path / "queue" / "train" / names(tmp_path)[0]).write_bytes(b"junk")
    with consumer(tmp_path) as queue, pytest.raises(forebay.StateError, match="which is corrupt"):
        queue.load_state_dict(state)


def test_without_a_state_held_files_come_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = filled(tmp_path, 3)
    with kept(tmp_path) as queue:
        take(queue, 7)
    with kept(tmp_path) as queue:
        assert take(queue, 9) == expected(provider, range(3))
    assert sum("interrupted" in record.getMessage() for record in caplog.records) == 3


def test_states_of_a_resumed_consumer(tmp_path: Path) -> None:
    """Over random takes, states, crashes and new files, batches covered by states are taken once and in order."""
    for trial in range(6):
        folder, random_ = tmp_path / str(trial), random.Random(trial)
        provider = filled(folder, 2)
        produced, state = 2, None
        found: list[int] = []
        since: list[int] = []
        while len(found) < 50:
            with kept(folder) as queue:
                if state:
                    queue.load_state_dict(state)
                for _ in range(random_.randrange(12)):
                    if random_.random() < 0.3:
                        provider.produce_one_file("train", produced)
                        produced += 1
                    try:
                        since += take(queue, 1, timeout=0)
                    except TimeoutError:
                        continue
                    if random_.random() < 0.3:
                        state = saved(queue)
                        found += since
                        since = []
            since = []  # a crash
        assert found == expected(provider, range(produced))[: len(found)]


def test_two_splits(tmp_path: Path) -> None:
    provider = filled(tmp_path, 2)
    provider.produce_one_file("val", 0)
    with kept(tmp_path) as queue:
        take(queue, 2)
        take(queue, 1, "val")
        state = saved(queue)
    with kept(tmp_path) as queue:
        take(queue, 3, "val")
        queue.load_state_dict(state)
        assert take(queue, 4) == expected(provider, range(2))[2:]
        assert take(queue, 2, "val") == expected(provider, range(1), "val")[1:]


def test_the_batch_size_is_part_of_the_state(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with kept(tmp_path) as queue:
        queue.set_batch_size(5)
        whole = take(queue, 3)
    with kept(tmp_path) as queue:
        queue.set_batch_size(5)
        take(queue, 1)
        state = saved(queue)
    with kept(tmp_path) as queue:
        queue.load_state_dict(state)
        assert take(queue, 2) == whole[1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version is 2 in the state and 1 here"),
        ({"kind": "forebay.Loader"}, "kind is 'forebay.Loader'"),
        ({"dataset_name": "letters"}, "dataset_name is 'letters' in the state and 'numbers' here"),
        ({"rank": 1}, "rank is 1 in the state and None here"),
        ({"splits": None}, "no batch_size or splits"),
        ({"batch_size": -1}, "no batch_size or splits"),
        ({"splits": {"train": {}}}, "the state is damaged"),
        ({"splits": {"train": {"file": "../../x.pt", "row": 0, **NOTHING}}}, "the state is damaged"),
        (
            {"splits": {"train": {"file": None, "row": 0, **NOTHING, "done": ["/etc/passwd"]}}},
            "the state is damaged",
        ),
        ({"splits": {"train": {"file": None, "row": -1, **NOTHING}}}, "the state is damaged"),
    ],
)
def test_other_states(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    provider = filled(tmp_path, 1)
    with kept(tmp_path) as queue:
        take(queue, 1)
        state = saved(queue)
        with pytest.raises(forebay.StateError, match=message):
            queue.load_state_dict({**state, **change})
        assert take(queue, 2) == expected(provider, range(1))[1:]
        state["splits"]["train"]["row"] = 100
        with pytest.raises(forebay.StateError, match=r"the state's row is 100 of .*, which has 12"):
            queue.load_state_dict(state)


GONE = "1700000000000-000009-3.pt"


@pytest.mark.parametrize("delete", ["consumed", "on_state"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 1, "splits": {"row": 999}}, "the state's row is 999"),
        ({"batch_size": 1, "splits": {"file": GONE}}, "which is gone"),
        ({"batch_size": 1, "splits": {"queue": "0"}}, "which was purged"),
        ({"batch_size": 2**31 - 1}, "call set_batch_size"),
        ({"batch_size": None}, "it has no batch_size"),
        ({"batch_size": 1, "names": [5]}, "names a split 5, which .* does not have; it has train, val"),
        ({"batch_size": 1, "names": [None]}, "names a split None"),
        ({"batch_size": 1, "names": ["../x"]}, "names a split '../x'"),
        ({"batch_size": 1, "names": ["nope"]}, "names a split 'nope'"),
        ({"batch_size": 1, "names": ["x" * 10**6]}, "names a split 'xxx"),
        ({"batch_size": 1, "names": ["train", "val"]}, "which was purged"),
        ({"splits": {"done": ["x.pt"]}}, "the state is damaged"),
        ({"splits": {"done": ["9" * 5000 + "-1-1.pt"]}}, "the state is damaged"),
        ({"splits": {"file": "x.pt"}}, "the state is damaged"),
        ({"splits": {"file": "\0.pt"}}, "the state is damaged"),
        ({"splits": {"queue": ["a" * 10**6]}}, "the state is damaged"),
        ({"version": torch.zeros(2)}, "the state belongs to another consumer: version is"),
        ({"kind": "x" * 10**6}, "the state belongs to another consumer: kind is"),
        ({"rank": eval("[" * 50 + "]" * 50) * 1000}, "the state belongs to another consumer: rank is"),
    ],
    ids=range(19),
)
def test_a_consumer_stays_where_it_was(tmp_path: Path, change: dict[str, Any], message: str, delete: Any) -> None:
    """A state that cannot be loaded leaves position, batch size, files and locks unchanged."""
    provider = filled(tmp_path, 2)
    with consumer(tmp_path, delete=delete) as queue:
        found = take(queue, 1)
        state = saved(queue)
        found += take(queue, 1)
        place = {**state["splits"]["train"], **change.get("splits", {})}
        changed = {**state, **change, "splits": dict.fromkeys(change.get("names", ["train"]), place)}
        changed.pop("names", None)
        before = (
            saved(queue),
            sorted(path.name for path in (tmp_path / "queue").rglob("*") if ".tmp" not in path.name),
        )
        for _ in range(2):
            with pytest.raises(forebay.StateError, match=message) as raised:
                queue.load_state_dict(changed)
            assert len(str(raised.value)) < 2000
            after = [path.name for path in (tmp_path / "queue").rglob("*") if ".tmp" not in path.name]
            # A lock taken for the state is released; its file stays.
            assert (saved(queue), sorted({*after} - {"val.consumer.lock"})) == before
        with consumer(tmp_path) as other, pytest.raises(TimeoutError):
            other.get_batch("val", "cpu", timeout=0)
        found += take(queue, 4)
        queue.load_state_dict(state) if delete == "on_state" else None
    assert found == expected(provider, range(2))


def test_nothing_is_removed_while_a_state_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a state is checked, the current thread is paused, so it removes and records no file; it ends on success."""
    filled(tmp_path, 2)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        state = saved(queue)
        thread = queue._splits["train"].ahead._thread
        done: list[str] = []
        resume = queue_split.QueueSplit.resume

        def later() -> bool:
            done.append("later")
            return True

        def looked_at(split: Any, place: Any) -> Any:
            queue._splits["train"].ahead.do(later)
            assert done == []
            return resume(split, place)

        monkeypatch.setattr(queue_split.QueueSplit, "resume", looked_at)
        queue.load_state_dict(state)
        assert done == []
        assert not thread.is_alive()
        with pytest.raises(forebay.StateError):
            queue.load_state_dict({**state, "splits": {"train": {**state["splits"]["train"], "row": 99}}})
        eventually(lambda: done == ["later"])


def test_a_state_of_legacy_files(tmp_path: Path) -> None:
    for split in ("train", "val"):
        x = torch.arange(8).view(4, 2)
        write_legacy_file(tmp_path, split, 0, {"x": x, "y": x + 1}, {"batch_size": 2})
    torch.save({"x": torch.zeros(4)}, tmp_path / "mine.pt")
    write_meta(tmp_path, meta(batch_size=2))
    with consumer(tmp_path) as queue:
        found = take(queue, 1)
        state = saved(queue)
        place = state["splits"]["train"]
        for splits in (
            {"train": {**place, "file": "mine.pt"}},
            {"train": {**place, "file": "val_batches_0000.pt"}},
            {"train": {**place, "file": "train_batches_0001.pt"}},
            {"test": place},
        ):
            with pytest.raises(forebay.StateError):
                queue.load_state_dict({**state, "splits": splits})
        found += take(queue, 1)
        queue.load_state_dict(state)
        assert found == [0, 4]
        assert take(queue, 2) == [4, 0]


def test_ranks(tmp_path: Path) -> None:
    providers = [filled(tmp_path, 2, rank=rank) for rank in range(2)]
    states = []
    for rank in range(2):
        with kept(tmp_path, rank=rank) as queue:
            take(queue, rank + 1)
            states.append(saved(queue))
    for rank in range(2):
        with kept(tmp_path, rank=rank) as queue:
            queue.load_state_dict(states[rank])
            assert take(queue, 3) == expected(providers[rank], range(2))[rank + 1 : rank + 4]


class Watched(dict[str, int]):
    """Consumed files; after each change the record is written, as the thread may do at that moment."""

    def __init__(self, split: Any) -> None:
        super().__init__(split.done)
        self.split = split
        self.records: list[dict[str, Any]] = []

    def changed(self) -> None:
        assert self.split.note()
        self.records.append(json.loads(self.split._record.read_text()))

    def __setitem__(self, name: str, number: int) -> None:
        super().__setitem__(name, number)
        self.changed()

    def setdefault(self, name: str, number: int) -> int:
        found = super().setdefault(name, number)
        self.changed()
        return found

    def pop(self, name: str, *default: Any) -> Any:
        found = super().pop(name, *default)
        self.changed()
        return found


@pytest.mark.parametrize("delete", ["consumed", "on_state"])
def test_the_record_is_right_at_any_moment(tmp_path: Path, delete: Any) -> None:
    """A record between two steps of the trainer counts each consumed file once, as held or as released."""
    filled(tmp_path, 5)
    with consumer(tmp_path, delete=delete) as queue:
        take(queue, 1)
        split: Any = queue._splits["train"]
        split.done = split.feed.done = watched = Watched(split)
        n_taken = 1
        for n in (3, 4, 4):
            take(queue, n)
            n_taken += n
            saved(queue)
        last = None
        for record in watched.records:
            consumed = record["released"] + len(record["held"])
            assert record["released"] >= 0
            assert last is None or consumed >= last
            last = consumed
        assert last == n_taken // 3 - (n_taken % 3 == 0)
        eventually(lambda: watched.records[-1]["released"] > 0)
