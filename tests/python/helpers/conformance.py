"""What every loader of recordings promises, checked for any keyword arguments by `conforms`."""

import copy
import json
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from budgets import most_bytes
from digests import digest
from fields import assert_described, rows
from forebay import _core, crops
from timing import eventually

BATCHES = 9
"""Batches that are compared: more than an epoch of 60 rows in batches of 8."""

Files = Any
Keywords = dict[str, Any]


def following(loader: forebay.Loader) -> dict[str, Any]:
    """The next batch, of the next pass if this one is over."""
    found: dict[str, Any] | None = next(loader, None)
    return next(iter(loader)) if found is None else found


def on(loader: forebay.Loader, n: int = BATCHES) -> list[str]:
    """Digests of the next `n` batches."""
    return [digest(following(loader)) for _ in range(n)]


Rows = dict[str, Any]


def joined(parts: Sequence[dict[str, Any]]) -> Rows:
    """The rows of all parts, one after the other: an array, or a list of text and lists."""

    def of(name: str) -> Any:
        values = [part[name] for part in parts]
        if isinstance(values[0], np.ndarray):
            return np.concatenate(values)
        return [row for part in values for row in rows(part)]

    return {name: of(name) for name in parts[0]}


def same(one: Rows, other: Rows) -> None:
    """Checks names and bits; text and lists by what they print."""
    assert list(one) == list(other)
    for name, values in one.items():
        if isinstance(values, np.ndarray):
            assert values.tobytes() == np.asarray(other[name]).tobytes(), name
        else:
            assert repr(values) == repr(other[name]), name


class Case:
    """A configuration, and the batches that it gives."""

    def __init__(self, files: Files, keywords: Keywords, processes: ProcessPoolExecutor, folder: Path) -> None:
        self.files = files
        self.keywords = keywords
        self.processes = processes
        self.folder = folder
        self.expected: list[str] = []
        self.states: list[str] = []
        self.rows: list[list[int]] = []
        with self.loader(infinite=False, shuffle_min_size=0) as loader:
            list(loader)
            self.bad = {error["index"] for error in loader.errors()}
        with self.loader(n_workers=1) as loader:
            for _ in range(BATCHES):
                batch = following(loader)
                self.expected.append(digest(batch))
                self.rows.append(batch["index"].tolist())
        with self.loader() as loader:
            for number in range(BATCHES):
                self.states.append(json.dumps(loader.state_dict()))
                assert digest(following(loader)) == self.expected[number]

    def loader(self, **changes: Any) -> forebay.Loader:
        return forebay.Loader(self.files, **{**self.keywords, **changes})

    @contextmanager
    def begun(self, n: int = 3, **changes: Any) -> Iterator[forebay.Loader]:
        """A loader that gave `n` batches."""
        with self.loader(**changes) as loader:
            assert on(loader, n) == self.expected[:n]
            yield loader


def workers(case: Case) -> None:
    """Any number of threads gives the same batches."""
    for n_workers in (2, 8):
        with case.loader(n_workers=n_workers, n_readers=n_workers, prefetch_batches=n_workers) as loader:
            assert on(loader) == case.expected


def ranks(case: Case) -> None:
    """The parts of 1, 2 and 4 ranks, one after the other, are the whole."""
    size = case.keywords["batch_size"]
    streams = {"n_streams": 4} if is_windowed(case) else {}
    with case.loader(**streams) as loader:
        start, whole = loader.state_dict(), [following(loader) for _ in range(6)]
    for world in (1, 2, 4):
        each: Keywords = {"batch_size": size // world, "world_size": world, **streams}
        loaders = [case.loader(rank=rank, **each) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(start)
        for batch in whole:
            same(joined([following(loader) for loader in loaders]), joined([batch]))
        for loader in loaders:
            loader.close()


def is_windowed(case: Case) -> bool:
    """Whether the order has streams, one for each rank or more."""
    with case.loader() as loader:
        return bool(loader.recipe.to_dict()["order"] == "window")


def resume(case: Case) -> None:
    """A state before each batch leads to that batch."""
    with case.loader(n_workers=3) as loader:
        for number in reversed(range(BATCHES)):
            loader.load_state_dict(json.loads(case.states[number]))
            assert digest(following(loader)) == case.expected[number]
    for number in (0, BATCHES - 2):
        with case.loader() as loader:
            loader.load_state_dict(json.loads(case.states[number]))
            assert on(loader, BATCHES - number) == case.expected[number:]


def replay_and_plan(case: Case) -> None:
    """Any batch again, and the rows of the next ones; a bad row is left out, or another takes its place."""
    with case.begun() as loader:
        for number in (2, 0, 3):
            assert digest(loader.replay(number)) == case.expected[number]
        planned = loader.plan(30).tolist()
        given = [row for batch in case.rows[3:] for row in batch]
        if case.keywords["infinite"]:
            assert len(planned) == 30
            assert set(planned) - set(given[:30]) <= case.bad
            assert all(one == other for one, other in zip(planned, given, strict=False) if one not in case.bad)
        else:
            planned = [row for row in planned if row not in case.bad]
            assert planned
            assert planned == given[: len(planned)]
        assert on(loader, 3) == case.expected[3:6]


def pickling(case: Case) -> None:
    """A copy continues at the same position, in this process too."""
    with case.begun() as loader, pickle.loads(pickle.dumps(loader)) as copied:
        assert copied.state_dict() == loader.state_dict()
        assert copied.fields == loader.fields
        assert copied.class_names == loader.class_names
        assert on(copied, 4) == on(loader, 4) == case.expected[3:7]


def in_child(pickled: bytes, n: int) -> list[str]:
    with pickle.loads(pickled) as loader:
        return on(loader, n)


def spawn(case: Case) -> None:
    with case.begun() as loader:
        assert case.processes.submit(in_child, pickle.dumps(loader), 4).result() == case.expected[3:7]


def in_fork(pickled: bytes, expected: list[Any]) -> tuple[int, list[Any]]:
    """Forks while a loader runs: the child's exit status, and the batches that the parent's loader then gives."""

    def child() -> int:
        try:
            following(loader)
            return 1
        except forebay.ForebayError as error:
            if "before a fork" not in str(error):
                return 2
        with pickle.loads(pickled) as own:
            return 0 if on(own, 2) == expected[:2] else 3

    with pickle.loads(pickled) as loader:
        first = on(loader, 1)
        pid = os.fork()
        if pid == 0:
            status = 9
            with suppress(BaseException):
                signal.alarm(60)
                status = child()
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), first + on(loader, 2)


def fork(case: Case) -> None:
    """A forked child may not take batches of the parent's loader, but may open its own.

    In a new process, since this one may have imported JAX, which forbids forks.
    """
    with case.begun() as loader:
        found = case.processes.submit(in_fork, pickle.dumps(loader), case.expected[3:6]).result()
        assert found == (0, case.expected[3:6])


def other_states(case: Case) -> None:
    """A state of another configuration is refused, and the field that differs is named."""
    state = json.loads(case.states[2])
    changes: list[tuple[Keywords, str]] = [
        ({"seed": 99}, "seed"),
        ({"batch_size": 4}, "global_batch_size"),
        ({"clip_seconds": 0.03}, "clip_seconds"),
        ({"exclude": [1]}, "exclude"),
        ({"targets": {"new": forebay.targets.Number("index_in_table")}}, "targets"),
        ({"features": forebay.features.Spectrogram(sample_rate=8000, n_fft=8, hop_length=8)}, "features"),
    ]
    for change, name in changes:
        kept = {key: value for key, value in case.keywords.items() if key not in of_features(change)}
        with forebay.Loader(case.files, **{**kept, **change}) as loader:
            with pytest.raises(forebay.StateError, match=rf"\b{name}\b"):
                loader.load_state_dict(copy.deepcopy(state))
            assert loader.state_dict()["batch"] == 0


def of_features(change: Keywords) -> set[str]:
    """The parameters that an object of features has itself."""
    if "features" not in change:
        return set()
    return {"sample_rate", "n_mels", "n_fft", "hop_length", "dtype", "layout", "n_frames"}


def steps_of(case: Case) -> list[Any]:
    """The steps of augmentation."""
    augment = case.keywords.get("augment")
    return augment if isinstance(augment, list) else []


def exclude(case: Case) -> None:
    """Excluded rows are never there and no errors; the other rows keep their values."""
    left = sorted({row for batch in case.rows for row in batch})[:3]
    one_pass = {"infinite": False, "order": "sequential", "shuffle_min_size": 0}
    if not steps_of(case):
        one_pass |= {"augment": False}
    if isinstance(case.files, dict):
        one_pass |= {"order": "global", "stop": "all_exhausted"}
    with case.loader(**one_pass) as loader, case.loader(exclude=left, **one_pass) as without:
        whole, fewer = joined(list(loader)), joined(list(without))
        others = [at for at, index in enumerate(whole["index"]) if index not in left]
        assert fewer["index"].tolist() == whole["index"][others].tolist()
        # A row whose partner is excluded has another one, or none.
        own = {"mix_index" for step in steps_of(case) if getattr(step, "source", "") is None}
        partners = own | {"mixup_index", "partner_index"} & set(whole)
        kept = [
            (i, at) for i, at in enumerate(others) if not any(np.isin(whole[name][at], left).any() for name in partners)
        ]
        for name, values in fewer.items():
            found, chosen = [values[i] for i, _ in kept], [whole[name][at] for _, at in kept]
            is_array = isinstance(values, np.ndarray)
            same({name: np.stack(found) if is_array else found}, {name: np.stack(chosen) if is_array else chosen})
        assert [error["index"] for error in without.errors()] == [error["index"] for error in loader.errors()]


def bad_records(case: Case) -> None:
    """Bad records are skipped and listed, or raised."""
    one_pass = {"infinite": False, "shuffle_min_size": 0}
    with case.loader(**one_pass) as loader:
        planned = loader.plan(100_000).tolist()
        given = {index for batch in loader for index in batch["index"].tolist()}
        bad = {error["index"] for error in loader.errors()}
        assert bad == case.bad
        assert not bad & given
        assert loader.stats()["records_failed"] == sum(row in bad for row in planned) >= len(bad)
    with case.loader(on_error="raise", **one_pass) as loader, pytest.raises(forebay.DecodeError) as raised:
        list(loader)
    assert "row" in str(raised.value)
    with case.loader(max_errors=0, **one_pass) as loader, pytest.raises(forebay.DecodeError):
        list(loader)


def budget(case: Case) -> None:
    """The memory that is named is enough; less is refused."""
    small = {"n_workers": 1, "n_readers": 1, "shuffle_buffer_size": 20, "raw_channel_bytes": 1 << 20}
    least = most_bytes(case.files, **{**case.keywords, **small})
    with pytest.raises(forebay.ConfigError, match="raise memory_budget"):
        case.loader(**small, memory_budget=least - 1)
    with case.loader(**small, memory_budget=least) as loader:
        assert on(loader, 4) == case.expected[:4]


def views(case: Case) -> None:
    """What a loader tells of itself."""
    with case.begun() as loader:
        assert str(loader.num_records) in repr(loader)
        assert loader.closed is False
        stats = loader.stats()
        assert stats["batches"] == 3
        assert stats["stages"]
        assert loader.headspace(seconds=0.0)["handover_per_s"] > 0
        loader.trace(case.folder / "trace.json", seconds=0.01)
        eventually((case.folder / "trace.json").exists)
        assert json.loads((case.folder / "trace.json").read_text())
        batch = loader.replay(3)
        assert_described(loader, batch)
        names = loader.class_names
        for field, listed in (names if isinstance(names, dict) else {}).items():
            assert field in batch
            assert all(isinstance(name, str) for name in listed)
        assert on(loader, 2) == case.expected[3:5]
    assert str(loader.num_records) in repr(loader)


def interrupts(case: Case) -> None:
    """Ctrl-C ends a wait and loses no batch."""
    _core._inject_delays(fixed_ms=5)
    with case.loader(n_workers=1, prefetch_batches=1) as loader:
        for _ in range(2):
            timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
            with suppress(KeyboardInterrupt):
                timer.start()
                for _ in range(1000):  # until the signal is there, wherever that is
                    following(loader)
                    loader.load_state_dict(json.loads(case.states[0]))
            timer.join()
        _core._inject_delays()
        at = [json.loads(state) for state in case.states].index(loader.state_dict())
        assert on(loader, 2) == case.expected[at : at + 2]


def closing(case: Case) -> None:
    """A closed loader says so; closing again is nothing."""
    with case.begun(1) as loader:
        loader.close()
        loader.close()
        for call in (lambda: next(loader), lambda: loader.replay(0), lambda: loader.plan(1)):
            with pytest.raises(forebay.ForebayError, match="closed"):
                call()


def dataset(case: Case) -> None:
    """An `AudioDataset` has the same rows: by number in any order and twice, with the same crop."""
    if steps_of(case):
        return  # a dataset has no augmentation
    names = {row["name"] for row in _core._parameters()["AudioDataset"]}
    kept = {name: value for name, value in case.keywords.items() if name in names}
    outputs = [name for name in kept.pop("outputs", ()) if name != "start"] + ["start"]
    if "weigh" in repr(kept.get("sampling")).lower() or "Balanced" in repr(kept.get("sampling")):
        with pytest.raises(forebay.ConfigError, match="a dataset has each row once"):
            forebay.AudioDataset(case.files, **kept)
        return
    one_pass = {"infinite": False, "shuffle_min_size": 0, "order": "sequential", "outputs": outputs}
    if isinstance(case.files, dict):
        one_pass |= {"order": "global", "stop": "all_exhausted"}
    with case.loader(**one_pass) as loader:
        expected = joined(list(loader))
    kept.setdefault("crop", crops.Random() if case.keywords.get("augment", True) else crops.Center())
    with forebay.AudioDataset(case.files, outputs=outputs, n_threads=2, **kept) as made:
        assert len(made) == loader.num_records
        assert (made.fields, made.class_names) == (loader.fields, loader.class_names)
        order = np.random.default_rng(0).integers(0, len(expected["index"]), 50)
        rows = expected["index"][order]
        chosen = {name: values[order] if isinstance(values, np.ndarray) else [values[at] for at in order]
                  for name, values in expected.items()}  # fmt: skip
        if not isinstance(kept["crop"], crops.Views):  # of several clips, each has a start
            same(joined([made.get_batch(rows, expected["start"][order])]), chosen)
            same(joined([pickle.loads(pickle.dumps(made)).get_batch(rows.tolist(), chosen["start"])]), chosen)
        if not isinstance(case.files, dict):  # each source of a mixture has an order, and crops, of its own
            batch = made[rows]
            assert_described(loader, batch)
            same(joined([batch]), chosen)
        for row in sorted(case.bad)[:2]:
            with pytest.raises(forebay.DecodeError, match=r"\brow \d"):
                made[row]


CHECKS = (workers, ranks, resume, replay_and_plan, pickling, spawn, fork, other_states, exclude, bad_records, budget,
          views, interrupts, closing, dataset)  # fmt: skip


def conforms(files: Files, processes: ProcessPoolExecutor, folder: Path, **keywords: Any) -> None:
    """Checks all promises for a loader of `files` with these keyword arguments.

    The files have a column `index_in_table` of numbers and a few bad records.
    """
    case = Case(files, keywords, processes, folder)
    for check in CHECKS:
        check(case)


@contextmanager
def spawned() -> Iterator[ProcessPoolExecutor]:
    """A child process that imports everything anew."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        yield processes
