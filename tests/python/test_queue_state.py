"""`state_dict` and `load_state_dict` of `DatasetConsumer`: exactly once with `delete="on_state"`."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import forebay
from queues import consumer, eventually, expected, filled, names, numbers, running, take

NOTHING: dict[str, Any] = {"queue": "0", "done": [], "finished": 0}


def kept(folder: Path, **parameters: Any) -> Any:
    return consumer(folder, delete="on_state", **parameters)


def saved(queue: Any) -> dict[str, Any]:
    """Through JSON, as a checkpoint would have it."""
    text = json.dumps(queue.state_dict())
    assert len(text) < 1000
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("delete", ["consumed", "on_state"])
def test_a_new_consumer_goes_on(tmp_path: Path, at: int, delete: Any) -> None:
    """Behind any batch, in the middle of a file and at its end; twice."""
    provider = filled(tmp_path, 4)
    with consumer(tmp_path, delete=delete) as queue:
        found = take(queue, at)
        state = saved(queue)
    with consumer(tmp_path, delete=delete) as queue:
        queue.load_state_dict(state)
        found += take(queue, 1)
        state = saved(queue)
        take(queue, 1)  # which nobody remembers
        if delete == "consumed" and at % 3 == 2:
            return  # the file of the state went with that
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
        assert names(tmp_path) == all_names  # it may not be on the disk yet
        take(queue, 1)
        assert names(tmp_path) == all_names[2:]
        take(queue, 2)
    # Every state since finds its files; the one before doesn't.
    with kept(tmp_path) as queue:
        queue.load_state_dict(state)
        assert take(queue, 5) == expected(provider, range(4))[7:]
    with (
        kept(tmp_path) as queue,
        pytest.raises(forebay.StateError, match=r"taken after 0 files of .*, of which 2 are gone"),
    ):
        queue.load_state_dict(middle)


def test_held_files_are_no_backlog(tmp_path: Path) -> None:
    """Or a trainer that saves rarely and a provider with a small limit would wait for each other for ever."""
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
    """No file of the state is missing, but files that came after it are."""
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
        take(queue, 1)  # still good for something


def test_a_state_whose_file_is_gone(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with consumer(tmp_path) as queue:
        take(queue, 1)
        state = saved(queue)
        name = state["splits"]["train"]["file"]
    (tmp_path / "queue" / "train" / name).unlink()
    with consumer(tmp_path) as queue, pytest.raises(forebay.StateError, match=rf"stands in .*{name}, which is gone"):
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
    """Any chain of takes, states, crashes and new files: what the states cover comes once, in order."""
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
        with pytest.raises(forebay.StateError, match=r"stands at row 100 of .*, which has 12"):
            queue.load_state_dict(state)


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
