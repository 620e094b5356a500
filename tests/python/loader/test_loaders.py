"""All loaders have the same methods and the same errors after `close()`, in a fork, and for wrong arguments.

Each test runs once per loader; `docs/loaders.md` has the methods that some loaders lack.
"""

import contextlib
import gc
import inspect
import io
import json
import pickle
import re
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import documents
import forebay
import numbered
from forebay import AsyncDataLoader, ConfigError, Loader, LoaderBase, StateError, TokenLoader
from forebay.cache import DataLoader, ListAsyncDataset, PermutationDataset
from paths import ROOT
from recordings import SMALL
from scenes import play

ENGINES = [Loader, TokenLoader, DataLoader]
COUNTED = [Loader, DataLoader]
"""Loaders that can make a batch without the earlier ones."""

EVERY = [*ENGINES, AsyncDataLoader]

SHUFFLED: dict[type, dict[str, Any]] = {TokenLoader: {"seed": 1}}
"""Parameters with which passes differ."""

CLOSED = "the loader is closed; make a new one to go on"

Make = Callable[..., Any]


@pytest.fixture
def make(tiny_shards: list[Path], parquets: Path) -> Iterator[Make]:
    """Makes a finite loader of a class, with at least six batches a pass, and closes it."""
    rows = ListAsyncDataset([{"x": i, "ids": np.arange(1 + i % 4)} for i in range(103)])
    makers: dict[type, Make] = {
        Loader: lambda **options: Loader(tiny_shards, **SMALL | {"infinite": False} | options),
        TokenLoader: lambda **options: documents.loader(parquets, **{"infinite": False} | options),
        DataLoader: lambda **options: DataLoader(PermutationDataset(rows, 1), **{"batch_size": 16} | options),
        AsyncDataLoader: numbered.loader,
    }
    with contextlib.ExitStack() as stack:
        yield lambda cls, **options: stack.enter_context(makers[cls](**options))


def first(batch: Any) -> list[Any]:
    """A value that identifies a batch: its row numbers or tokens."""
    is_asynchronous = isinstance(batch, forebay.BatchResult)
    rows = batch.indices if is_asynchronous else next(batch[name] for name in ("index", "inputs", "x") if name in batch)
    found: list[Any] = rows.tolist()
    return found


def firsts(batches: Any, n: int | None = None) -> list[list[Any]]:
    return [first(batch) for batch in islice(batches, n)]


def outcome(call: Callable[[], object]) -> str:
    """The error that `call` raises, as text; empty if none."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_the_base_has_what_they_share() -> None:
    own = [public(cls) - public(LoaderBase) for cls in ENGINES]
    assert set.intersection(*own) == set()
    for cls in ENGINES:
        assert cls.__bases__ == (LoaderBase,)
        assert public(LoaderBase) & set(vars(cls)) == set()
        assert all(inspect.getdoc(getattr(cls, name)) for name in public(cls))
        assert (cls.__iter__, cls.__next__, cls.__len__) == (  # type: ignore[attr-defined]
            LoaderBase.__iter__,
            LoaderBase.__next__,
            LoaderBase.__len__,
        )


def test_the_base_has_no_objects() -> None:
    with pytest.raises(TypeError, match="cannot create 'forebay\\.LoaderBase' instances"):
        LoaderBase()

    class Derived(LoaderBase):
        pass

    for new in (Derived, lambda: object.__new__(Derived), lambda: Loader.__new__(Derived, [])):  # type: ignore[type-var]
        with pytest.raises(TypeError):
            new()


@pytest.mark.parametrize("cls", ENGINES)
def test_is_one_and_no_subclass_is(make: Make, cls: type) -> None:
    assert isinstance(make(cls), LoaderBase)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Derived", (cls,), {})


@pytest.mark.parametrize("cls", EVERY)
def test_context_manager(make: Make, cls: type) -> None:
    loader = make(cls)
    with loader as entered:
        assert entered is loader
        assert not loader.closed
        assert len(firsts(loader, 2)) == 2
    assert loader.closed
    loader.close()
    with pytest.raises(ZeroDivisionError), make(cls) as other:
        assert 1 / 0
    assert other.closed


@pytest.mark.parametrize("cls", ENGINES)
def test_after_close(make: Make, cls: type) -> None:
    """After `close()` position, figures and errors are available; calls that need threads raise."""
    loader = make(cls)
    next(loader)
    state = loader.state_dict()
    loader.close()
    refused = {
        "next": lambda: next(loader),
        "iter": lambda: next(iter(loader)),
        "headspace": lambda: loader.headspace(0),
    }
    assert {name: outcome(call) for name, call in refused.items()} == dict.fromkeys(refused, f"ForebayError: {CLOSED}")
    assert loader.state_dict() == state
    assert (loader.batch, loader.epoch) == (1, 0)
    assert loader.stats()["delivered"]["batches"] == 1
    assert ", closed" in repr(loader)
    assert loader


def test_after_close_of_the_asynchronous_one(make: Make) -> None:
    loader = make(AsyncDataLoader)
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    assert outcome(lambda: iter(loader)) == f"ForebayError: {CLOSED}"
    assert loader.state_dict() == state
    assert loader.stats()["delivered"]["batches"] == 1
    assert ", closed" in repr(loader)


@pytest.mark.parametrize("which", ["audio()", "tokens()", "data()"])
def test_in_a_fork(which: str, mixed_folder: Path) -> None:
    """In a fork calls raise the same error, except those that need neither thread nor lock."""
    scene = f"""
    from forebay.cache import DataLoader, ListAsyncDataset
    def data():
        return DataLoader(ListAsyncDataset([{{"x": i}} for i in range(100)]), 8)
    loader = {which}
    next(loader)
    state = loader.state_dict()
    calls = dict(
        next=lambda: next(loader), iter=lambda: iter(loader), batch=lambda: loader.batch, epoch=lambda: loader.epoch,
        set_epoch=lambda: loader.set_epoch(1), seek=lambda: loader.seek(0), skip=lambda: loader.skip([]),
        headspace=loader.headspace, trace=lambda: loader.trace("/dev/null"),
        state_dict=loader.state_dict, load_state_dict=lambda: loader.load_state_dict(state),
        pickle=lambda: pickle.dumps(loader), take_back=loader._take_back, closed=lambda: loader.closed,
        batch_size=lambda: loader.batch_size, stats=loader.stats, repr=lambda: repr(loader), bool=lambda: bool(loader),
        close=loader.close, exit=lambda: loader.__exit__(None, None, None),
    )
    end, begin = os.pipe()
    if not os.fork():
        allowed = []
        for name, call in calls.items():
            try:
                call()
                allowed.append(name)
            except forebay.ForebayError as error:
                assert "made before a fork" in str(error), error
        os.write(begin, json.dumps(allowed).encode())
        os._exit(0)
    os.wait()
    allowed = json.loads(os.read(end, 10000))
    loader.close()
    report(allowed=allowed)
    """
    allowed = ["closed", "batch_size", "stats", "repr", "bool", "close", "exit"]
    assert play(scene, mixed_folder) == {"allowed": allowed}


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "seek(-1)": (lambda loader: loader.seek(-1), "ConfigError: batch is -1, must be 0 to 18446744073709551615"),
    "seek('1')": (lambda loader: loader.seek("1"), "TypeError: batch is '1' (type str), must be an int"),
    "seek(True)": (lambda loader: loader.seek(True), "TypeError: batch is True (type bool), must be an int"),
    "seek(2**70)": (lambda loader: loader.seek(2**70), f"ConfigError: batch is {2**70}, must be 0 to"),
    "set_epoch(-1)": (
        lambda loader: loader.set_epoch(-1),
        "ConfigError: epoch is -1, must be 0 to 46",
    ),
    "set_epoch(2**63)": (lambda loader: loader.set_epoch(2**63), "ConfigError: epoch is "),
    "set_epoch(1.5)": (lambda loader: loader.set_epoch(1.5), "TypeError: epoch is 1.5 (type float), must be an int"),
    "skip(3)": (lambda loader: loader.skip(3), "TypeError: ranges are pairs"),
    "skip([(2, 1)])": (lambda loader: loader.skip([(2, 1)]), "ConfigError: the range (2, 1) ends before it begins"),
    "trace(-1)": (lambda loader: loader.trace("/dev/null", -1), "ConfigError: seconds is -1, must be 0 to 3600"),
    "trace('a')": (
        lambda loader: loader.trace("/dev/null", "a"),
        "TypeError: seconds is 'a' (type str), must be a float",
    ),
    "trace(3)": (
        lambda loader: loader.trace(3),
        "TypeError: path is 3 (type int), must be a path (str or os.PathLike)",
    ),
    "headspace(None)": (lambda loader: loader.headspace(None), "TypeError: seconds is None (type NoneType), must be a"),
    "headspace(nan)": (lambda loader: loader.headspace(float("nan")), "ConfigError: seconds is NaN, must be 0 to 3600"),
    "load_state_dict(3)": (lambda loader: loader.load_state_dict(3), "StateError: "),
    "load_state_dict({1j})": (lambda loader: loader.load_state_dict({1j}), "TypeError: a state is a dict"),
    "load_state_dict({})": (lambda loader: loader.load_state_dict({}), "StateError: "),
}


@pytest.mark.parametrize("cls", ENGINES)
def test_wrong_arguments(make: Make, cls: type) -> None:
    loader = make(cls)
    found = {name: outcome(partial(call, loader)) for name, (call, _) in WRONG.items()}
    assert {name: text for name, text in found.items() if not text.startswith(WRONG[name][1])} == {}
    assert len(firsts(loader, 2)) == 2  # the loader still works


@pytest.mark.parametrize("cls", EVERY)
def test_progress_changes_no_batch(make: Make, cls: type) -> None:
    expected = firsts(make(cls))
    stream = io.StringIO()
    assert firsts(make(cls).progress(file=stream)) == expected
    n = len(expected)
    total = "" if cls is TokenLoader else f"[{'#' * 30}] {n}/"
    assert stream.getvalue().startswith(f"{total}{n} batches, ")
    assert stream.getvalue().count("\n") == 1
    loader, stream = make(cls), io.StringIO()
    assert firsts(loader.progress(total=4, file=stream), 3) == expected[:3]
    assert loader.batch == 3
    assert outcome(lambda: loader.progress(total=0)) == "ConfigError: total is 0, must be 1 to 4611686018427387904"
    assert outcome(lambda: loader.progress(1.5)).startswith("TypeError: total is 1.5 (type float), must be an int")
    assert outcome(lambda: loader.progress(file="log.txt")).startswith("TypeError: file is of type str, which has no")


@pytest.mark.parametrize("cls", COUNTED)
def test_progress_begins_at_the_position(make: Make, cls: type) -> None:
    loader, stream = make(cls), io.StringIO()
    expected = firsts(loader)
    loader.seek(2)
    assert firsts(loader.progress(file=stream)) == expected[2:]
    assert f"] {len(expected)}/{len(expected)} batches" in stream.getvalue()


@pytest.mark.parametrize("cls", EVERY)
def test_each_loop_over_progress_is_a_pass(make: Make, cls: type) -> None:
    """As over the loader; `next()` continues the pass, also of a loop that was left, and ends with it."""
    loader, stream = make(cls, **SHUFFLED.get(cls, {})), io.StringIO()
    passes = [firsts(loader) for _ in range(4)]
    assert len({str(one) for one in passes}) == 4
    shown = make(cls, **SHUFFLED.get(cls, {})).progress(file=stream)
    assert first(next(shown)) == passes[0][0]
    assert [firsts(shown) for _ in range(2)] == passes[1:3]
    assert outcome(lambda: next(shown)).startswith("StopIteration")
    for batch in shown:
        assert first(batch) == passes[3][0]
        break
    assert stream.getvalue().count("\n") == 4  # a loop that is left ends its line
    found = [first(next(shown)) for _ in passes[3][1:]]
    assert found == passes[3][1:]
    assert outcome(lambda: next(shown)).startswith("StopIteration")
    assert stream.getvalue().count("\n") == 5


@pytest.mark.parametrize("cls", ENGINES)
def test_page_of_a_notebook(make: Make, cls: type) -> None:
    loader = make(cls)
    next(loader)
    page = loader._repr_html_()
    assert "batch 1 of epoch 0" in page
    assert "&lt;forebay." in page
    assert ("<td>spectrogram</td>" in page) is (cls is Loader)


@pytest.mark.parametrize("cls", EVERY)
def test_a_state_of_another_loader(make: Make, cls: type) -> None:
    for other in set(EVERY) - {cls}:
        with pytest.raises(StateError):
            make(cls).load_state_dict(make(other).state_dict())


@pytest.mark.parametrize("cls", ENGINES)
def test_keys_of_stats(make: Make, cls: type) -> None:
    loader, plain = make(cls), make(Loader)
    assert (
        keys(loader.stats()) - keys(plain.stats())
        == {
            Loader: set(),
            TokenLoader: {
                f"packing{key}" for key in ("", ".documents", ".tokens", ".bytes", ".delivered", ".dropped", ".padded")
            },
            DataLoader: {"rows", "bytes"},
        }[cls]
    )
    firsts(loader, 3)
    stats = loader.stats()
    assert keys(plain.stats()) <= keys(stats)
    assert stats["delivered"]["batches"] == 3
    assert set(loader.headspace(0)) == {
        "examples_per_s", "decoded_per_s", "handover_per_s", "seconds", "fill_seconds", "filled", "verdict",
    }  # fmt: skip


def keys(stats: dict[str, Any], at: str = "") -> set[str]:
    """The dotted names of nested keys, without the reasons of waits, which differ between loaders."""
    found = set()
    for name, value in stats.items():
        found.add(at + name)
        if isinstance(value, dict) and name != "blocked_on":
            found |= keys(value, f"{at}{name}.")
    return found


@pytest.mark.parametrize("cls", EVERY)
def test_batch_size_is_that_of_the_constructor(make: Make, cls: type) -> None:
    loader = make(cls, batch_size=5)
    assert loader.batch_size == 5
    with pytest.raises(AttributeError):
        loader.batch_size = 6


@pytest.mark.parametrize("cls", [*COUNTED, AsyncDataLoader])
def test_seek(make: Make, cls: type) -> None:
    loader, n = make(cls), len(make(cls))
    batches = firsts(make(cls))
    for batch in (4, 0, n - 1, 2):
        loader.seek(batch)
        assert loader.batch == batch
        assert firsts(loader) == batches[batch:]
        loader.set_epoch(0)
    for beyond in (-1, n + 1):
        with pytest.raises(ConfigError, match=rf"\bbatch (is )?{beyond}\b"):
            loader.seek(beyond)


@pytest.mark.parametrize("cls", COUNTED)
def test_skip(make: Make, cls: type) -> None:
    loader, batches = make(cls), firsts(make(cls))
    loader.skip([(1, 3), (4, 5)])
    assert firsts(loader, 2) == [batches[0], batches[3]]
    assert loader.batch == 5
    copy = make(cls)
    copy.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert firsts(copy) == batches[5:]
    copy.set_epoch(0)
    assert firsts(copy) == batches
    with pytest.raises(ConfigError, match="to be skipped, but there are"):
        loader.skip([(0, len(batches) + 1)])


def test_no_seek_and_no_skip_of_packed_batches(make: Make) -> None:
    loader = make(TokenLoader)
    loader.skip([])  # no range, nothing to refuse
    batches = firsts(loader, 3)
    for text in (outcome(lambda: loader.seek(1)), outcome(lambda: loader.skip([(1, 2)]))):
        assert re.match("ConfigError: .*save states", text)
    loader.seek(0)
    assert firsts(loader, 3) == batches


@pytest.mark.parametrize("cls", EVERY)
def test_state_json_and_pickle(make: Make, cls: type) -> None:
    loader, batches = make(cls), firsts(make(cls), 6)
    assert firsts(loader, 3) == batches[:3]
    state = json.loads(json.dumps(loader.state_dict()))
    copy, other = pickle.loads(pickle.dumps(loader)), make(cls)
    other.load_state_dict(state)
    assert (other.epoch, other.batch) == (copy.epoch, copy.batch) == (0, 3)
    assert firsts(other, 3) == firsts(copy, 3) == batches[3:]
    copy.close()


@pytest.mark.parametrize("cls", EVERY)
def test_each_iteration_is_a_pass(make: Make, cls: type, caplog: pytest.LogCaptureFixture) -> None:
    """`iter()` begins the next pass, after a whole one and after one that was left; a log line says so once."""
    loader = make(cls, **SHUFFLED.get(cls, {}))
    passes = [firsts(loader) for _ in range(4)]
    with caplog.at_level("INFO", "forebay"):
        loader.set_epoch(0)
        assert firsts(loader) == passes[0]
        assert not [message for message in caplog.messages if "was left" in message]
        loader.set_epoch(0)
        for epoch, whole in enumerate(passes):
            iter(loader)  # no batch is taken, so no pass is left out
            assert firsts(loader, 2) == whole[:2]
            state = loader.state_dict()
            assert (state["epoch"], state["batch"]) == (loader.epoch, loader.batch) == (epoch, 2)
    [said] = [message for message in caplog.messages if "was left" in message]
    of = "" if cls is TokenLoader else f" of {len(passes[0])}"
    assert said == f"pass 0 was left after 2{of} batches; the next one begins (further ones are not logged)"


@pytest.mark.parametrize("cls", EVERY)
def test_a_pass_goes_on_where_it_is_said_to(make: Make, cls: type) -> None:
    """After an exception in the loop the position is there for a state; a loaded state is continued once."""
    loader = make(cls, **SHUFFLED.get(cls, {}))
    passes = [firsts(loader) for _ in range(2)]
    loader.set_epoch(0)

    def train() -> None:
        for number, _ in enumerate(loader):
            if number == 1:
                raise ValueError("loss is NaN")

    with pytest.raises(ValueError, match="NaN"):
        train()
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["batch"]) == (0, 2)
    for again in (loader, make(cls, **SHUFFLED.get(cls, {}))):
        again.load_state_dict(state)
        iter(again)
        assert firsts(again, 1) == passes[0][2:3]
        assert firsts(again) == passes[1]
        again.load_state_dict(state)
        again.set_epoch(0)  # as the usual loop over epochs does
        assert firsts(again) == passes[0][2:]
        again.load_state_dict(state)
        again.set_epoch(1)
        assert firsts(again) == passes[1]


@pytest.mark.parametrize("cls", EVERY)
def test_a_generator_around_a_loader(make: Make, cls: type) -> None:
    """Its iterations are passes as well, left early or not."""
    loader = make(cls, **SHUFFLED.get(cls, {}))
    passes = [firsts(loader) for _ in range(3)]
    loader.set_epoch(0)

    def doubled() -> Generator[Any]:
        for batch in loader:
            yield batch, batch

    for whole in passes:
        found = doubled()
        assert first(next(found)[0]) == whole[0]
        found.close()


@pytest.mark.parametrize("cls", ENGINES)
def test_headspace_and_trace_leave_the_position(make: Make, cls: type, tmp_path: Path) -> None:
    loader, batches = make(cls), firsts(make(cls), 3)
    assert firsts(iter(loader), 1) == batches[:1]
    loader.trace(tmp_path / "trace.json")
    with pytest.raises(StateError):
        loader.trace(tmp_path / "other.json")
    measured = loader.headspace(0.05)
    assert measured["handover_per_s"] > 0
    assert [first(next(loader)) for _ in range(2)] == batches[1:]
    loader.close()
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@pytest.mark.parametrize("cls", ENGINES)
def test_a_batch_that_did_not_arrive(make: Make, cls: type) -> None:
    loader = make(cls)
    found = first(next(loader))
    loader._take_back()
    assert loader.batch == 0
    assert first(next(loader)) == found


def test_errors_have_the_same_keys_and_stay_after_close(make: Make, tmp_path: Path) -> None:
    for name in ["0.parquet", "val.parquet"]:
        pq.write_table(pa.table({"text": ["", "a document", None] * 20}), tmp_path / name)
    loaders = [make(Loader), documents.loader(tmp_path, infinite=False)]
    for loader, n in zip(loaders, [15, 40], strict=True):
        firsts(loader)
        errors = loader.errors()
        assert {tuple(error) for error in errors} == {("index", "shard", "row", "path", "kind", "reason")}
        assert len(errors) == n
        loader.close()
        assert loader.errors() == errors


@pytest.mark.parametrize("cls", EVERY)
def test_weak_references_truth_and_text(make: Make, cls: type) -> None:
    loader = make(cls)
    assert weakref.ref(loader)() is loader
    assert loader
    assert re.match(rf"<forebay\.(cache\.)?{cls.__name__}: .*>$", repr(loader))
    assert iter(loader) is not loader
    del loader
    gc.collect()


# Tests of the tables in docs/loaders.md.

PAGE = (ROOT / "docs" / "loaders.md").read_text()
COLUMNS = ["Loader", "TokenLoader", "DataLoader", "AsyncDataLoader"]


def table(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without the header row."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][1:5] == COLUMNS
    return rows[2:]


def test_the_page_has_every_method_of_every_loader() -> None:
    rows = {row[0].strip("`"): row[1:] for row in table("Methods")}
    assert set(rows) == {"next(loader)", "len(loader)"}.union(*map(public, EVERY))
    for name, (*cells, why) in rows.items():
        dunder = {"next(loader)": "__next__", "len(loader)": "__len__"}.get(name)
        for cls, cell in zip(EVERY, cells, strict=True):
            # Methods of the base class exist and raise.
            refuses = cls is TokenLoader and name in ("len(loader)", "skip")
            assert hasattr(cls, dunder or name) == (cell != "no" or refuses), (cls, name)
        assert all(cells)
        assert why or set(cells) == {"yes"}


def test_the_page_has_the_parameters_that_they_share() -> None:
    rows = [[cell.strip("`") for cell in row[1:]] for row in table("Parameters")]
    signatures = [set(inspect.signature(cls).parameters) for cls in EVERY]
    for row in rows:
        for name, parameters in zip(row, signatures, strict=True):
            assert (name in parameters) or (name == "no" and row[0] not in parameters), row
    named = {name for row in rows for name in row}
    assert set.intersection(*signatures[:3]) <= named
