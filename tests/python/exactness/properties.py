"""What holds for every configuration of `Loader`: one function for each property.

Each compares with the batches of `Case.taken`, which one worker made in one go. `replays` compares these with batches
that one thread makes record by record.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import conformance
import forebay
from case import BATCHES, Case, failed, keys, reborn, take
from configurations import DRAWN, passed_through
from conformance import joined, same
from forebay import crops


def many_threads(case: Case) -> None:
    """Numbers of threads, sizes of queues and delays change neither batches nor the list of bad records."""
    for _ in range(2):
        with case.loader(**case.threads()) as loader:
            assert keys(take(loader)) == keys(case.taken)
            assert failed(loader) == case.errors


def resumes(case: Case) -> None:
    """A state leads to the next batch: in a new object, after another resume, with other columns passed through."""
    for _ in range(2):
        at = case.place()
        with case.at(at) as loader:
            assert keys(take(loader, len(case.taken) - at)) == keys(case.taken[at:])
    first, second = sorted((case.place(), case.place()))
    with case.at(first) as loader:
        assert keys(take(loader, second - first)) == keys(case.taken[first:second])
        state = json.loads(json.dumps(loader.state_dict()))
    used = {field["name"] for field in case.fields} - set(case.keywords.get("columns", ()))
    others = sorted((passed_through(case.configuration.form) & case.source.columns) - used)
    names = case.rng.sample(others, min(len(others), 2)) if case.rng.random() < 0.5 else []
    passed = {*names, *case.keywords.get("columns", ())}
    with case.loader(**case.threads(), columns=names) as loader:
        loader.load_state_dict(state)
        found = take(loader, 2, without=passed)
    for one, other in zip(found, case.taken[second:], strict=False):
        assert (one.epoch, one.number) == (other.epoch, other.number)
        same(one.batch, {name: values for name, values in other.batch.items() if name not in passed})


def ranks(case: Case) -> None:
    """The parts of the ranks, one after the other, are the batches of one process, also if their number changes."""
    size = case.keywords["batch_size"]
    streams = case.keywords.get("n_streams", 1) if case.is_windowed else size
    worlds = [world for world in (1, 2, 3, 4) if size % world == 0 and streams % world == 0]
    if case.configuration.pairs:
        worlds = [world for world in worlds if size // world % 2 == 0]
    if case.error or not case.taken or not worlds:
        return
    at = case.place()
    state = json.loads(case.states[at])
    expected = {(taken.epoch, taken.number): taken for taken in case.taken[at:]}
    last = max(expected)
    reached = (-1, -1)
    while reached < last:
        world = case.rng.choice(worlds)
        each = {"batch_size": size // world, "world_size": world}
        loaders = [case.loader(**case.threads(), **each, rank=rank) for rank in range(world)]
        for loader in loaders:
            loader.load_state_dict(state)
        for _ in range(case.rng.randint(1, 6)):
            parts = [take(loader, 1)[0] for loader in loaders]
            assert len({(part.epoch, part.number) for part in parts}) == 1
            reached = parts[0].epoch, parts[0].number
            whole = expected.pop(reached, None)
            together = joined([part.batch for part in parts])
            is_short = len(together["index"]) < size
            if whole is None:
                assert len(together["index"]) == 0, "one process leaves out a batch that has rows"
            elif not (case.configuration.pairs and is_short):
                same(together, joined([whole.batch]))
            if reached >= last:
                break
        states = [loader.state_dict() for loader in loaders]
        assert all(found == states[0] for found in states)
        state = json.loads(json.dumps(case.rng.choice(states)))
        for loader in loaders:
            loader.close()
    assert not expected


def replays(case: Case) -> None:
    """Any batch of the pass is made again by one thread, and the position stays; a batch left out has no rows."""
    at = case.place()
    with case.at(at) as loader:
        epoch = loader.epoch if case.length < 2**40 else 0
        known = {taken.number: taken for taken in case.taken if taken.epoch == epoch and taken.number >= 0}
        numbers = range(max(known, default=-1) + 1)
        for number in case.rng.sample(numbers, min(len(numbers), 3)):
            batch = loader.replay(number)
            if number in known:
                assert case.digest(batch) == known[number].digest
            else:
                assert len(batch["index"]) == 0
        assert loader.state_dict() == json.loads(case.states[at])
        assert keys(take(loader, 1)) == keys(case.taken[at : at + 1])


def seeks(case: Case) -> None:
    """A position within the pass, at any distance."""
    at = case.place()
    with case.at(at) as loader:
        epoch = json.loads(case.states[at])["epoch"]
        there = [taken for taken in case.taken if taken.epoch == epoch and taken.number >= 0]
        for taken in case.rng.sample(there, min(len(there), 3)):
            loader.seek(taken.number)
            assert loader.batch == taken.number
            assert keys(take(loader, 1)) == [taken.key]
            # At the end of a pass a copy is in the next one.
            if case.rng.random() < 0.3 and loader.state_dict()["epoch"] == epoch:
                loader = reborn(loader)
        loader.close()


def skips(case: Case) -> None:
    """Batches in ranges are left out, wherever the ranges begin; a new object leaves out the same ones."""
    if case.error:
        return  # a range may have the batch that is an error
    at = case.place()
    state = json.loads(case.states[at])
    epoch, number = state["epoch"], state["batch"]
    known = [taken.number for taken in case.taken if taken.epoch == epoch and taken.number >= 0]
    last = max([*known, number])
    missing = [n + 1 for n in range(number, last) if n not in known]
    ranges = []
    for _ in range(case.rng.randint(1, 3)):
        first = case.rng.choice(missing) if missing and case.rng.random() < 0.5 else case.rng.randint(number, last)
        ranges.append((min(first, case.length), min(first + case.rng.randint(0, 3), case.length)))
    expected = [
        taken for taken in case.taken[at:]
        if taken.epoch != epoch or not any(first <= taken.number < end for first, end in ranges)
    ]  # fmt: skip
    n_first = case.rng.randint(0, len(expected))
    with case.at(at) as loader:
        loader.skip(ranges)
        assert digests(loader, n_first) == [taken.digest for taken in expected[:n_first]]
        state = json.loads(json.dumps(loader.state_dict()))
        is_over = not case.keywords["infinite"] and state["epoch"] != loader.epoch
        position = 0 if is_over else loader.batch
        copies = [case.loader(**case.threads()), reborn(loader)]
        copies[0].load_state_dict(state)
    for copied in copies:
        with copied:
            assert copied.batch == position
            rest = expected[n_first:]
            assert digests(copied, len(rest)) == [taken.digest for taken in rest]
            back = [taken for taken in case.taken if taken.epoch == epoch and taken.number >= 0]
            if copied.state_dict()["epoch"] == epoch and back:
                copied.skip([])
                taken = case.rng.choice(back)
                copied.seek(taken.number)
                assert keys(take(copied, 1)) == [taken.key]


def digests(loader: forebay.Loader, n: int) -> list[str]:
    """The digests of the next batches, as of `take`, whose numbers are not known after a skip."""
    return [taken.digest for taken in take(loader, n)]


def plans(case: Case) -> None:
    """`plan` tells the rows of the batches to come, what augmentation will do, and where clips begin."""
    at = case.place()
    epoch = json.loads(case.states[at])["epoch"]
    coming = [taken for taken in case.taken[at:] if taken.epoch == epoch and taken.number >= 0]
    names = foretold(case)
    with case.at(at) as loader:
        n = case.rng.randint(1, BATCHES * case.keywords["batch_size"])
        index = loader.plan(n)
        planned = loader.plan(n, outputs=names)
        np.testing.assert_array_equal(planned["index"], index)
    if not coming:
        return
    made = joined([taken.batch for taken in coming])
    good = ~np.isin(index, sorted(case.absent))
    if case.keywords["infinite"]:
        size = min(n, len(made["index"]))
        kept = np.flatnonzero(good[:size])
        pairs = [(kept, kept)]
    else:
        planned_rows = np.flatnonzero(good)[: len(made["index"])]
        pairs = [(planned_rows, np.arange(len(planned_rows)))]
        assert len(planned_rows) > 0 or len(made["index"]) == 0 or n < 2 * len(case.absent) + 1
    for of_plan, of_batch in pairs:
        np.testing.assert_array_equal(index[of_plan], made["index"][of_batch])
        for name in names:
            compare(case, name, planned[name][of_plan], made, of_batch)


def foretold(case: Case) -> list[str]:
    """The outputs of the configuration that a plan can tell."""
    crop = case.keywords.get("crop")
    inner = crop.crop if isinstance(crop, crops.Views) else crop
    is_uncertain = isinstance(inner, crops.Loudest) or getattr(inner, "silence_db", None) is not None
    known = {name for names in DRAWN.values() for name in names} - {"mix_start"}
    if not is_uncertain:
        known.add("start")
    return [name for name in case.keywords["outputs"] if name in known]


def compare(case: Case, name: str, planned: Any, made: dict[str, Any], rows: Any) -> None:
    """Compares what a plan tells of these rows with what batches have."""
    values = made[name][rows]
    values = values[:, 0] if values.ndim == 2 else values  # of several views, the first
    if name.startswith("mix_"):
        return compare_partners(case, name, planned, values)
    tolerance = 0.5 / 8000 if name == "speed" else 0.0  # a recording is played at a whole number of hertz
    np.testing.assert_allclose(planned, values, rtol=0, atol=tolerance, err_msg=name)
    return None


def compare_partners(case: Case, name: str, planned: Any, values: Any) -> None:
    """A bad or excluded partner is replaced, and the plan does not know that."""
    if name == "mix_index":
        kept = ~np.isin(planned, sorted(case.absent))
        np.testing.assert_array_equal(planned[kept], values[kept], err_msg=name)
    else:
        kept = ~np.isnan(values)
        np.testing.assert_array_equal(planned[kept], values[kept], err_msg=name)


def excludes(case: Case) -> None:
    """A loader that excludes exactly the bad rows has the same batches."""
    if any(type(step).__name__ == "Mix" for step in case.configuration.steps):
        return  # a bad partner is replaced by another one
    with case.loader(**case.threads(), exclude=sorted(case.absent)) as loader:
        found = take(loader)
    if not case.error:
        assert keys(found) == keys(case.taken)


def datasets(case: Case) -> None:
    """An `AudioDataset` has the same rows by number, in any order, and clips that begin where a loader's begin."""
    configuration, given = case.configuration, case.keywords
    crop = given.get("crop")
    is_whole = not {"sampling", "n_samples", "exclude"} & set(given) and not isinstance(crop, crops.Windows)
    # Each source of a mixture has crops, and noise, of its own.
    has_noise = configuration.is_mixture and getattr(crop, "pad", "") == "noise"
    if is_whole and not has_noise and not configuration.steps and not given["drop_last"]:
        conformance.dataset(OnePass(case))  # type: ignore[arg-type]


class OnePass:
    """A case as `conformance.dataset` takes it."""

    def __init__(self, case: Case) -> None:
        left_out = ("n_streams", "weights", "mixture_block")
        self.keywords = {name: value for name, value in case.keywords.items() if name not in left_out}
        self.files = case.files
        self.bad = set(case.bad)

    def loader(self, **changes: Any) -> forebay.Loader:
        given = {**self.keywords, **changes}
        return forebay.Loader(self.files, **{name: value for name, value in given.items() if value is not None})


PROPERTIES: tuple[Callable[[Case], None], ...] = (
    many_threads, resumes, ranks, replays, seeks, skips, plans, excludes, datasets,
)  # fmt: skip
