"""Mixtures of `TokenLoader`: shares of documents or tokens, exact on any number of workers and ranks, resumed."""

import itertools
import json
import math
import pickle
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing
from digests import digest
from documents import BOS, SMALL, document, encode, full_rows
from forebay.text import Documents, Ids

COUNTS = {"web": (100, 60), "code": (70,), "ids": (50, 50)}
"""Documents of the files of each source, in row groups of 20."""
FIRST = {"web": 0, "code": 1000, "ids": 2000}
GROUP = 20
WEIGHTS = {"web": 0.5, "code": 0.2, "ids": 0.3}
SETTINGS = SMALL | {"val": []}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Texts in Parquet, texts in JSON lines, ids in Parquet."""
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "web").mkdir()
    (folder / "ids").mkdir()
    first = FIRST["web"]
    for number, count in enumerate(COUNTS["web"]):
        table = pa.table({"text": [document(first + at) for at in range(count)]})
        pq.write_table(table, folder / "web" / f"{number}.parquet", row_group_size=GROUP)
        first += count
    lines = (json.dumps({"content": document(FIRST["code"] + at)}) for at in range(COUNTS["code"][0]))
    (folder / "code.jsonl").write_text("".join(f"{line}\n" for line in lines))
    first = FIRST["ids"]
    for number, count in enumerate(COUNTS["ids"]):
        rows = pa.array([encode(document(first + at)) for at in range(count)], pa.list_(pa.int32()))
        pq.write_table(pa.table({"input_ids": rows}), folder / "ids" / f"{number}.parquet", row_group_size=GROUP)
        first += count
    return {
        "web": Documents(folder / "web"),
        "code": Documents(folder / "code.jsonl", column="content"),
        "ids": Ids(folder / "ids"),
    }


def loader(sources: dict[str, Any], **parameters: Any) -> forebay.TokenLoader:
    return forebay.TokenLoader(sources, encode, **SETTINGS | {"weights": WEIGHTS} | parameters)


def digests(found: forebay.TokenLoader, n: int = 1000) -> list[str]:
    return [digest(batch) for batch in itertools.islice(found, n)]


def reading(name: str, packer: int, n_packers: int) -> list[int]:
    """The documents of a source that a packer reads in an epoch, in storage order."""
    first = FIRST[name]
    # A file of lines this short is one group; the others deal out row groups file by file, or all together.
    sizes = [[count] if name == "code" else [GROUP] * (count // GROUP) + [count % GROUP] for count in COUNTS[name]]
    sizes = [[size for size in file if size] for file in sizes]
    files: list[list[list[int]]] = []
    for groups in sizes:
        ends = [first, *itertools.accumulate(groups, initial=first)][1:]
        files.append([list(range(*ends_)) for ends_ in itertools.pairwise(ends)])
        first = ends[-1]
    if any(len(file) < n_packers for file in files):
        files = [list(itertools.chain(*files))]
    return [number for file in files for group in file[packer::n_packers] for number in group]


def chosen(
    weights: dict[str, float], unit: str, capacity: int, order: Mapping[str, Iterator[int]]
) -> Iterator[tuple[str, list[int]]]:
    """The documents that a packer takes, in order: the source with the least taken / weight is next."""
    taken = dict.fromkeys(weights, 0)
    names = list(weights)
    while True:
        open_ = [name for name in names if weights[name] > 0]
        source = min(open_, key=lambda name: (taken[name] / weights[name], -weights[name], names.index(name)))
        number = next(order[source], None)
        if number is None:
            return
        ids = [BOS, *encode(document(number))]
        taken[source] += 1 if unit == "documents" else min(len(ids), capacity)
        yield source, ids


@pytest.mark.parametrize("unit", ["documents", "tokens"])
@pytest.mark.parametrize("infinite", [False, True])
def test_rows_are_those_of_a_plain_loop(sources: dict[str, Any], unit: str, infinite: bool) -> None:
    order = {name: itertools.cycle(reading(name, 0, 1)) if infinite else iter(reading(name, 0, 1)) for name in sources}
    documents = (ids for _, ids in chosen(WEIGHTS, unit, 64, order))
    slices = iter(lambda: list(itertools.islice(documents, 16)), [])
    expected = list(itertools.islice(packing.rows(slices, 64, 20), 200))
    with loader(sources, weights_in=unit, infinite=infinite) as found:
        rows = list(itertools.chain(*(full_rows(batch) for batch in itertools.islice(found, 50))))
    assert len(rows) > 60
    assert rows == expected[: len(rows)]
    assert infinite or len(expected) == len(rows)


def shares(found: forebay.TokenLoader, what: str) -> dict[str, float]:
    stats: Any = found.stats()
    counts = {name: counts[what] for name, counts in stats["sources"].items()}
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def test_shares_of_documents_and_of_tokens(sources: dict[str, Any]) -> None:
    for unit, what, fit in [("documents", "documents", "drop"), ("tokens", "tokens", "carry")]:
        with loader(sources, weights_in=unit, fit=fit, extras=["source", "documents"]) as found:
            counts: Counter[int] = Counter()
            for batch in itertools.islice(found, 600):
                counts.update(batch["source"].ravel().tolist())
            assert found.stats()["sources"]["web"]["epoch"] >= 1
            for name, share in shares(found, what).items():
                assert math.isclose(share, WEIGHTS[name], abs_tol=0.01), (unit, name, share)
            if unit == "tokens":
                for at, name in enumerate(WEIGHTS):
                    assert math.isclose(counts[at] / counts.total(), WEIGHTS[name], abs_tol=0.01)
    # Without weights: as many documents of each as it has.
    with loader(sources, weights=None) as found:
        sum(1 for _ in itertools.islice(found, 600))
        for name, share in shares(found, "documents").items():
            assert math.isclose(share, sum(COUNTS[name]) / 330, abs_tol=0.01)


def test_the_source_of_each_token(sources: dict[str, Any]) -> None:
    names = list(sources)
    extras = ["source", "doc_ids", "documents"]
    with loader(sources, extras=extras, fit="pad", on_long="split") as found:
        # The shards of a source follow those of the sources before it.
        shard_sources = [names[0]] * 2 + [names[1]] + [names[2]] * 2
        for batch in itertools.islice(found, 30):
            assert batch["source"].dtype == np.int32
            assert batch["source"].shape == batch["inputs"].shape
            expected = np.full(batch["inputs"].shape, -1)
            for (row, column, shard, *_), after in itertools.zip_longest(batch["documents"], batch["documents"][1:]):
                end = after[1] if after is not None and after[0] == row else batch["inputs"].shape[1]
                expected[row, column:end] = names.index(shard_sources[shard])
            expected[batch["source"] == -1] = -1
            np.testing.assert_array_equal(batch["source"], expected)
            is_padding = batch["source"] == -1
            assert (batch["inputs"][is_padding] == BOS).all()
            assert (batch["targets"][is_padding] == -100).all()


GRID: list[dict[str, Any]] = [
    {"weights_in": "documents"},
    {"weights_in": "tokens", "seed": 3, "shuffle_min_size": 15, "fit": "carry"},
    {"infinite": False, "seed": 4, "fit": "pad", "on_long": "split"},
    {"infinite": False, "stop": "all_exhausted_without_replacement"},
    {"weights": [(0, WEIGHTS), (5, {"web": 0, "code": 1, "ids": 1}), (9, {"web": 1, "code": 0, "ids": 0})]},
    {"weights": {"web": 1, "code": 0.01, "ids": 0}, "fit": "pad", "pad_multiple": 9, "on_long": "cut", "seed": 1},
]


@pytest.mark.parametrize("parameters", GRID)
def test_workers_change_nothing(sources: dict[str, Any], parameters: dict[str, Any]) -> None:
    found = []
    for n_workers in (1, 2, 8):
        with loader(sources, n_workers=n_workers, extras=["source", "documents"], **parameters) as each:
            found.append(digests(each, 25))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 8


@pytest.mark.parametrize("parameters", GRID)
def test_resumed_before_every_batch(sources: dict[str, Any], parameters: dict[str, Any]) -> None:
    with loader(sources, extras=["source"], **parameters) as whole:
        states, batches = [json.loads(json.dumps(whole.state_dict()))], []
        one_pass = iter(whole)
        for batch in itertools.islice(one_pass, 14):
            batches.append(digest(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
        rest = [digest(batch) for batch in itertools.islice(one_pass, 4)]
    for at in range(len(batches) + 1):
        with loader(sources, extras=["source"], n_workers=1 + at % 3, **parameters) as resumed:
            # torch.distributed.checkpoint fills the keys that a fresh state has.
            assert resumed.state_dict()["packers"].keys() == states[at]["packers"].keys()
            resumed.load_state_dict(states[at])
            assert json.loads(json.dumps(resumed.state_dict())) == states[at]
            assert digests(resumed, len(batches) - at + len(rest)) == batches[at:] + rest


@pytest.mark.parametrize("parameters", [{}, {"seed": 5, "weights_in": "documents"}])
def test_ranks_make_the_batches_of_one_process(sources: dict[str, Any], parameters: dict[str, Any]) -> None:
    sources = {name: sources[name] for name in ("web", "ids")}
    parameters |= {"n_streams": 4, "shuffle_min_size": 0, "weights": {"web": 2, "ids": 1}}
    states: dict[int, list[Any]] = {}
    with loader(sources, batch_size=8, **parameters) as alone:
        expected = [full_rows(batch) for batch in itertools.islice(alone, 12)]
        states[1] = [alone.state_dict()]
        later = [full_rows(batch) for batch in itertools.islice(alone, 5)]
    for world in (2, 4):
        parts, states[world] = [], []
        for rank in range(world):
            place = {"batch_size": 8 // world, "rank": rank, "world_size": world}
            with loader(sources, **place, **parameters) as part:
                parts.append([full_rows(batch) for batch in itertools.islice(part, 12)])
                states[world].append(part.state_dict())
        assert [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)] == expected
    for world, found in states.items():
        for others in (1, 2, 4):
            parts = []
            for rank in range(others):
                place = {"batch_size": 8 // others, "rank": rank, "world_size": others}
                with loader(sources, **place, **parameters) as part:
                    part.load_state_dict(found)
                    parts.append([full_rows(batch) for batch in itertools.islice(part, 5)])
            assert [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)] == later, (world, others)


def test_what_ends_a_finite_pass(sources: dict[str, Any]) -> None:
    sizes = {name: sum(counts) for name, counts in COUNTS.items()}
    weights = {"web": 1, "code": 1, "ids": 1}
    common = {"weights": weights, "weights_in": "documents", "infinite": False, "fit": "carry", "buffer_size": 1}
    with loader(sources, **common) as found:
        first = len(list(found))
        counts = {name: counts["documents"] for name, counts in found.stats()["sources"].items()}
        # The smallest source ends it: each source has given as many.
        assert max(counts.values()) <= sizes["code"] + 1
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(list(found)) == first, "another pass"
    with loader(sources, **common, stop="all_exhausted_without_replacement", batch_size=1) as found:
        rows = [row for batch in found for row in full_rows(batch)]
        counts = {name: counts["documents"] for name, counts in found.stats()["sources"].items()}
    # A last row that is not full is left out, with the documents in it.
    assert all(sizes[name] - 20 <= counts[name] <= sizes[name] for name in sizes)
    texts = [document(FIRST[name] + at) for name in sizes for at in range(sizes[name])]
    n_tokens = sum(len(text.encode()) for text in texts)
    delivered = sum(token != BOS for row in rows for token in row)
    assert n_tokens - 64 <= delivered <= n_tokens


def test_weights_that_change_at_a_batch(sources: dict[str, Any]) -> None:
    weights = [(0, {"web": 1, "code": 0, "ids": 0}), (6, {"web": 0, "code": 1, "ids": 0})]
    with loader(sources, weights=weights, extras=["source"], buffer_size=1, tokenizer_batch_size=1) as found:
        batches = list(itertools.islice(found, 12))
    assert {int(value) for batch in batches[:6] for value in np.unique(batch["source"])} == {0}
    # One document may be left in the buffer.
    assert {int(value) for batch in batches[7:] for value in np.unique(batch["source"])} == {1}


def test_a_source_of_bad_rows(sources: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([None] * 30, pa.string())}), tmp_path / "nulls.parquet")
    mixed = {"web": sources["web"], "nulls": tmp_path / "nulls.parquet"}
    message = "none of the 30 records of a stream is usable"
    with loader(mixed, weights={"web": 1, "nulls": 1}) as found, pytest.raises(forebay.DecodeError, match=message):
        list(itertools.islice(found, 50))
    with loader(mixed, weights={"web": 1, "nulls": 0}) as found:
        assert len(list(itertools.islice(found, 50))) == 50
    with loader(
        mixed, weights={"web": 9, "nulls": 1}, infinite=False, stop="all_exhausted_without_replacement"
    ) as found:
        list(found)
        assert found.stats()["sources"]["nulls"]["documents"] == 0
        assert len(found.errors()) == 30


def test_a_source_of_long_rows(sources: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["word " * 200] * 30}), tmp_path / "long.parquet")
    mixed = {"web": sources["web"], "long": tmp_path / "long.parquet"}
    message = 'all documents of source "long" are longer than a row'
    with (
        loader(mixed, weights={"web": 1, "long": 1}, fit="pad") as found,
        pytest.raises(forebay.ConfigError, match=message),
    ):
        list(itertools.islice(found, 500))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"weights": {"web": 1, "code": 1, "ids": 1, "books": 1}}, "weights name 'books'|weights name \"books\""),
        ({"weights": {"web": 1, "code": 1}}, 'weights lack the source "ids"; give 0'),
        ({"weights": WEIGHTS | {"web": -0.5}}, 'the weight of "web" from batch 0 on is -0.5'),
        ({"weights": WEIGHTS | {"web": float("nan")}}, 'the weight of "web" from batch 0 on is NaN'),
        ({"weights": WEIGHTS | {"web": float("inf")}}, 'the weight of "web" from batch 0 on is inf'),
        ({"weights": dict.fromkeys(WEIGHTS, 0)}, "all weights from batch 0 on are 0"),
        ({"weights": [(3, WEIGHTS)]}, "the first weights begin at batch 3, must begin at batch 0"),
        ({"weights": [(0, WEIGHTS), (4, WEIGHTS), (4, WEIGHTS)]}, "weights from batch 4 follow those from batch 4"),
        ({"weights": 3}, "weights"),
        ({"weights": None, "weights_in": "tokens"}, "there are no weights"),
        ({"weights_in": "bytes"}, 'weights_in is "bytes"'),
        ({"stop": "first_exhausted"}, 'stop is "first_exhausted", which ends; give infinite=False'),
        ({"stop": "restart", "infinite": False}, 'stop is "restart", which never ends'),
        ({"val": ["absent.parquet"]}, "matches no file of any source"),
        ({"val": None}, 'parquet_files\\["code"\\]: no files are left to train on'),
        ({"n_streams": 4}, 'no row group of source "code" for packer 1'),
    ],
)
def test_bad_parameters(sources: dict[str, Any], parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((forebay.ConfigError, TypeError), match=message):
        loader(sources, **parameters)


def test_bad_sources(sources: dict[str, Any], tmp_path: Path) -> None:
    bad: list[tuple[dict[Any, Any], str]] = [
        ({}, "empty dict"),
        ({"web": sources["web"], "gone": tmp_path / "gone"}, "gone"),
        ({"web": sources["web"], 3: sources["ids"]}, "a source in parquet_files"),
    ]
    for given, message in bad:
        with pytest.raises((forebay.ConfigError, TypeError, OSError), match=message):
            loader(given, weights=None)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(forebay.ConfigError, match='the source "empty" has no documents'):
        loader({"web": sources["web"], "empty": tmp_path / "empty.parquet"}, weights={"web": 1, "empty": 1})
    with pytest.raises(forebay.ConfigError, match="weights is given, but parquet_files is no dict"):
        forebay.TokenLoader(sources["web"], encode, **SETTINGS, weights={"web": 1})


def test_a_state_of_another_mixture_is_refused(sources: dict[str, Any]) -> None:
    with loader(sources) as found:
        next(found)
        state = found.state_dict()
        copy = pickle.loads(pickle.dumps(found))
        with copy:
            assert digests(copy, 3) == digests(found, 3)
    others: list[tuple[dict[str, Any], str]] = [
        ({"weights": WEIGHTS | {"web": 0.6}}, "weights"),
        ({"weights_in": "documents"}, "weights_in"),
        ({"pad_multiple": 3}, "pad_multiple"),
    ]
    for parameters, name in others:
        with loader(sources, **parameters) as other, pytest.raises(forebay.StateError, match=name):
            other.load_state_dict(state)
    # Weights in another unit are the same shares.
    with loader(sources, weights={name: 7 * weight for name, weight in WEIGHTS.items()}) as other:
        other.load_state_dict(state)
    for change in ({"taken": -1}, {"taken": 1 << 63}, {"taken": "many"}, {"documents_read": 1 << 63}):
        packers = state["packers"] | {"0": state["packers"]["0"] | change}
        with loader(sources) as other, pytest.raises(forebay.StateError):
            other.load_state_dict(state | {"packers": packers})


def test_random_mixtures(tmp_path: Path) -> None:
    """Random sources, weights, units and fits: the rows of a plain loop, resumed at a random batch."""
    for seed in range(25):
        random_ = random.Random(seed)
        sizes = {f"s{number}": random_.randint(5, 60) for number in range(random_.randint(2, 5))}
        paths = {}
        for number, (name, size) in enumerate(sizes.items()):
            folder = tmp_path / f"{seed}-{name}"
            folder.mkdir()
            texts = [document(10_000 * number + at + seed) for at in range(size)]
            pq.write_table(pa.table({"text": texts}), folder / "0.parquet", row_group_size=7)
            paths[name] = folder
        weights = {name: round(random_.uniform(0.01, 1), 2) for name in sizes}
        unit = random_.choice(["documents", "tokens"])
        fit = random_.choice(["drop", "carry"])
        parameters = {"weights": weights, "weights_in": unit, "fit": fit}
        order = {
            name: itertools.cycle(range(10_000 * number + seed, 10_000 * number + seed + size))
            for number, (name, size) in enumerate(sizes.items())
        }
        capacity = 64 if fit == "drop" else 1 << 30
        documents = (ids for _, ids in chosen(weights, unit, capacity, order))
        slices = iter(lambda documents=documents: list(itertools.islice(documents, 16)), [])  # type: ignore[misc]
        expected = list(itertools.islice(packing.rows(slices, 64, 20, fit), 48))
        at = random_.randint(0, 10)
        with loader(paths, **parameters) as found:
            rows = [row for batch in itertools.islice(found, at) for row in full_rows(batch)]
            state = json.loads(json.dumps(found.state_dict()))
        with loader(paths, **parameters) as found:
            found.load_state_dict(state)
            rows += [row for batch in itertools.islice(found, 12 - at) for row in full_rows(batch)]
        assert rows == expected, (seed, parameters)


def test_a_state_of_another_rank_is_told_by_its_packers(sources: dict[str, Any]) -> None:
    """And not by the streams of its sources, two for each packer."""
    sources = {name: sources[name] for name in ("web", "ids")}
    place: dict[str, Any] = {"batch_size": 2, "n_streams": 4, "world_size": 2, "weights": {"web": 1, "ids": 1}}
    with loader(sources, rank=0, **place) as first:
        next(first)
        state = first.state_dict()
    told = "the state has packers 0, 1, but this rank needs packers 2 to 3; load a list of the states of all ranks"
    with loader(sources, rank=1, **place) as second, pytest.raises(forebay.StateError, match=told):
        second.load_state_dict(state)
