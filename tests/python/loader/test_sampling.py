"""`sampling=`: which rows come, and how often, in every order, over ranks and after a resume."""

import json
import pickle
import re
from collections import Counter
from fractions import Fraction
from itertools import islice
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from fields import table, write
from forebay import ConfigError, StateError, crops, sampling
from forebay.sampling import AtMost, Balanced, Subset, Weighted, Where
from recordings import TINY, tiny_rows

N = 120
LABELS = ["crow"] * 80 + ["owl"] * 24 + ["wren"] * 12 + [None] * 4
WEIGHTS = [0.0, 1.0, 2.5, 0.1] * (N // 4)
SITES = [["a", "b", "b", "c", None][i % 5] for i in range(N)]
SEVERAL = [[["x"], ["x", "y"], ["y", "z"], []][i % 4] for i in range(N)]
ONE_PASS: dict[str, Any] = {**TINY, "infinite": False, "shuffle_min_size": 0, "batch_size": 7, "drop_last": False}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three shards of tiny recordings with columns."""
    folder = tmp_path_factory.mktemp("sampling")
    audio = pa.array([{"bytes": row.audio, "path": None} for row in tiny_rows(N)])
    table = pa.table(
        {
            "audio": audio, "species": LABELS, "weight": WEIGHTS, "site": SITES, "several": SEVERAL,
            "quality": [i % 6 for i in range(N)], "joined": [" , ".join(names) for names in SEVERAL],
        }
    )  # fmt: skip
    bounds = [(0, 50), (50, 61), (61, N)]
    return [write(folder / f"{a}", table.slice(a, b - a), "file") for a, b in bounds]


def indices(files: Any, passes: int = 1, **given: Any) -> list[list[int]]:
    """The rows of each pass."""
    found = []
    with forebay.Loader(files, **{**ONE_PASS, **given}) as loader:
        for _ in range(passes):
            found.append([row for batch in loader for row in batch["index"].tolist()])
    return found


def is_as_expected(counts: "Counter[int]", weights: list[float], n: int) -> None:
    """Each row comes floor or ceil of its expectation, in exact arithmetic."""
    total = sum(map(Fraction, weights))
    for row, weight in enumerate(weights):
        expected = Fraction(weight) * n / total
        assert counts[row] in (floor(expected), ceil(expected)), row


@pytest.mark.parametrize("order", ["sequential", "window", "global", "era"])
@pytest.mark.parametrize("epoch_size", [None, 50, 500])
def test_rows_come_as_often_as_their_weights_say(files: list[Path], order: str, epoch_size: int | None) -> None:
    given: dict[str, Any] = {"order": order, "shuffle_min_size": 5 if order == "window" else 0}
    passes = indices(files, 6, sampling=Weighted("weight", epoch_size=epoch_size), **given)
    n = epoch_size or N
    for found in passes:
        assert len(found) == n
        is_as_expected(Counter(found), WEIGHTS, n)
    assert len(set(map(tuple, passes))) > 1
    assert indices(files, 6, sampling=Weighted(WEIGHTS, epoch_size=epoch_size), **given) == passes
    sums = Counter(row for found in passes for row in found)
    assert max(abs(sums[row] - 6 * n * weight / sum(WEIGHTS)) for row, weight in enumerate(WEIGHTS)) < 6


@pytest.mark.parametrize("order", ["sequential", "window", "global", "era"])
def test_equal_weights_change_nothing(files: list[Path], order: str) -> None:
    with (
        forebay.Loader(files, **{**ONE_PASS, "order": order, "augment": True}) as plain,
        forebay.Loader(files, **{**ONE_PASS, "order": order, "augment": True}, sampling=Weighted([0.3] * N)) as equal,
    ):
        for _ in range(2):
            for one, two in zip(plain, equal, strict=True):
                assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("order", ["sequential", "window", "global"])
@pytest.mark.parametrize("infinite", [True, False])
def test_ranks_and_resume_are_exact(files: list[Path], order: str, *, infinite: bool) -> None:
    """Ranks together make the batches of one process; after each batch a state leads to the next, copies included."""
    given: dict[str, Any] = {
        **ONE_PASS, "order": order, "infinite": infinite, "augment": True,
        "sampling": Weighted("weight", epoch_size=100),
        "clip_seconds": 0.01, "n_streams": 4 if order == "window" else None, "batch_size": 8, "drop_last": True,
        "outputs": ["start"],
    }  # fmt: skip
    with forebay.Loader(files, **given) as one:
        alone = [next(one) for _ in range(12)]
    for world in (2, 4):
        parts = []
        for rank in range(world):
            own = {**given, "batch_size": 8 // world, "world_size": world, "rank": rank}
            state: Any = None
            got: list[Any] = []
            while len(got) < 12:
                with forebay.Loader(files, **own) as loader:
                    if state is not None:
                        loader.load_state_dict(json.loads(json.dumps(state)))
                    got.append(next(loader))
                    got.append(next(loader))
                    state = loader.state_dict()
            parts.append(got)
        for at, batch in enumerate(alone):
            for name in batch:
                joined = np.concatenate([part[at][name] for part in parts])
                assert np.array_equal(joined, batch[name]), (world, at, name)


@pytest.mark.parametrize("n_workers", [1, 2, 8])
def test_copies_of_a_row_have_crops_of_their_own(files: list[Path], n_workers: int) -> None:
    given: dict[str, Any] = {
        **ONE_PASS, "augment": True, "clip_seconds": 0.01, "outputs": ["start"], "n_workers": n_workers,
        "sampling": Weighted([0.0] * 10 + [1.0] + [0.0] * (N - 11), epoch_size=64),
    }  # fmt: skip
    with forebay.Loader(files, **given) as loader:
        batches = list(loader)
        assert {index for batch in batches for index in batch["index"].tolist()} == {10}
        starts = [start for batch in batches for start in batch["start"].tolist()]
        again = loader.replay(3)
    assert len(set(starts)) > 30
    assert np.array_equal(again["start"], batches[3]["start"])
    assert np.array_equal(again["spectrogram"], batches[3]["spectrogram"])


def counted(labels: Any, rows: list[int]) -> Counter[Any]:
    """How many of the rows have each class; a row of several counts in each, one without any as None."""
    lists = [labels[row] if isinstance(labels[row], list) else [labels[row]] for row in rows]
    return Counter(name for names in lists for name in dict.fromkeys(names or [None]))


@pytest.mark.parametrize("order", ["sequential", "window", "global", "era"])
@pytest.mark.parametrize(
    ("made", "labels"),
    [
        (Balanced("species"), LABELS),
        (Balanced("species", -0.5, epoch_size=500) & Weighted("weight"), LABELS),
        (Balanced("species", cap=2.0) & Where("quality", maximum=3), LABELS),
        (Balanced("several", labels="sum", epoch_size=70), SEVERAL),
        (Balanced("joined", separator=","), SEVERAL),
        (Balanced("several", labels="mean") & Subset(50), SEVERAL),
    ],
)
def test_class_counts_are_those_of_a_plan(files: list[Path], made: Any, labels: list[Any], order: str) -> None:
    given = {**ONE_PASS, "order": order, "sampling": made}
    with forebay.Loader(files, **given) as loader:
        size = len(loader.plan(10 * N))
        read = loader.num_records
        for epoch in (0, 1, 5):
            loader.set_epoch(epoch)
            (counts,) = loader.class_counts()
            assert counts == loader.class_counts(epoch)[0]
            assert counts["source"] is None
            planned = loader.plan(size).tolist()
            found = {name: n for name, n in zip(counts["classes"], counts["examples"], strict=True) if n}
            assert found == counted(labels, planned)
        (expected,) = loader.stats()["classes"]
    parts = made.parts if isinstance(made, sampling.Joined) else (made,)
    kept = sampling.Joined(tuple(part for part in parts if not isinstance(part, Weighted | Balanced)) or (Subset(N),))
    (rows,) = indices(files, sampling=kept)
    assert len(rows) == read
    before = counted(labels, rows)
    assert dict(zip(counts["classes"], counts["rows"], strict=True)) == before
    assert counts["rows"] == sorted(counts["rows"], reverse=True)
    told: list[dict[str, Any]] = [{**counts}, {**expected}]
    assert all(told[0][name] == told[1][name] for name in ("column", "source", "classes", "rows"))
    # Rows are rounded one by one, and those of a class together by less than one for each run of neighbours.
    assert np.allclose(expected["expected"], counts["examples"], atol=30)
    if labels is LABELS:
        assert sum(expected["expected"]) == pytest.approx(size)


def test_balanced_classes_come_equally_often(files: list[Path]) -> None:
    with forebay.Loader(files, **ONE_PASS, sampling=Balanced("species")) as loader:
        (counts,) = loader.class_counts()
        assert counts["classes"] == ["crow", "owl", "wren", None]
        assert counts["rows"] == [80, 24, 12, 4]
        assert counts["examples"] == [30, 30, 30, 30]
        assert loader.stats()["classes"][0]["expected"] == pytest.approx([30.0] * 4)
        json.dumps(loader.stats()["classes"])


def test_any_column_that_is_read_is_counted(files: list[Path]) -> None:
    with forebay.Loader(files, **ONE_PASS, sampling=Weighted("weight"), columns=["site"]) as loader:
        (counts,) = loader.class_counts(3, column="site")
        loader.set_epoch(3)
        assert dict(zip(counts["classes"], counts["examples"], strict=True)) == counted(SITES, loader.plan(N).tolist())
        assert "classes" not in loader.stats()
        with pytest.raises(ConfigError, match="sampling has no Balanced, so there are no classes; name a column"):
            loader.class_counts()
        with pytest.raises(ConfigError, match=r'column is "species", which the loader does not read.*"site", "weight"'):
            loader.class_counts(column="species")
        with pytest.raises(ConfigError, match="epoch is -1, must be 0 to"):
            loader.class_counts(-1, column="site")
        with pytest.raises(TypeError, match="epoch is 'a'"):
            loader.class_counts("a", column="site")  # type: ignore[arg-type]
    windows = {**ONE_PASS, "clip_seconds": 0.005, "crop": crops.Windows(), "columns": ["site"]}
    with forebay.Loader(files, **windows) as loader:
        (counts,) = loader.class_counts(column="site")
        assert sum(counts["examples"]) == loader.num_records > N == sum(counts["rows"])
    with forebay.Loader(files, **ONE_PASS, columns=["site"], exclude=[0]) as loader:
        (counts,) = loader.class_counts(column="site")
        assert counts["rows"] == counts["examples"] == [48, 24, 24, 24]
        assert counts["classes"] == ["b", "a", "c", None]


@pytest.mark.parametrize("infinite", [False, True])
def test_class_counts_of_a_mixture(files: list[Path], *, infinite: bool) -> None:
    """Each source is balanced by itself."""
    sources = {"a": files[:1], "b": files[1:]}
    given: dict[str, Any] = {**ONE_PASS, "weights": {"a": 50, "b": 70}, "mixture_block": 12, "infinite": infinite}
    more: dict[str, Any] = {} if infinite else {"stop": "all_exhausted"}
    with forebay.Loader(sources, **given, **more, order="global", sampling=Balanced("species")) as loader:
        one, two = loader.class_counts()
        planned = loader.plan(N).tolist()
    assert (one["source"], one["classes"], one["rows"], one["examples"]) == ("a", ["crow"], [50], [50])
    assert (two["source"], two["rows"]) == ("b", [30, 24, 12, 4])
    found = counted(LABELS, [row for row in planned if row >= 50])
    assert [found[name] for name in two["classes"]] == two["examples"]
    assert sum(two["examples"]) == 70


def warnings_of(caplog: pytest.LogCaptureFixture, files: Any, made: Any, **more: Any) -> list[str]:
    """What is logged while the loader is made and used."""
    caplog.clear()
    with forebay.Loader(files, **{**ONE_PASS, **more}, sampling=made) as loader:
        next(iter(loader))
        loader.class_counts()
        loader.stats()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_classes_that_cannot_be_balanced_are_logged_once(
    files: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(caplog, files, Balanced("species")) == []
    assert warnings_of(caplog, files, Balanced("species", cap=8.0)) == []
    head = 'sampling=Balanced("species") cannot balance all classes: '
    capped = "stay below their share, since cap=2.0 limits how often a row comes: "
    assert warnings_of(caplog, files, Balanced("species", cap=2.0)) == [
        f'{head}2 {capped}(no class) (4 rows), "wren" (12 rows)'
    ]
    # "z" and "y" come together in a quarter of the rows, "x" alone in another one, "y" with "x" in the third.
    shared = "come only in rows that have a more common class too, and raise that with them: "
    assert warnings_of(caplog, files, Balanced("several")) == [
        f'sampling=Balanced("several") cannot balance all classes: 1 {shared}"z" (30 rows)'
    ]
    assert warnings_of(caplog, files, Balanced("several", power=0.5)) == []
    species = pa.array([0, 0, 0, 2, 2, 0], pa.int64())
    names = {"label": {"_type": "ClassLabel", "names": ["owl", "wren", "crow", "lark"]}}
    path = write(tmp_path / "named", table({"label": species}, names), "file")
    told = 'sampling=Balanced("label") cannot balance all classes: 2 have a name in the schema and no row: '
    given: dict[str, Any] = {"label_column": ""}
    assert warnings_of(caplog, path, Balanced("label"), **given) == [f'{told}"lark" (0 rows), "wren" (0 rows)']
    # Left out on purpose.
    assert warnings_of(caplog, path, Balanced("label") & Where("label", values=["owl", "crow"]), **given) == []
    # A class that another source has is not missing.
    sources = {"a": path, "b": write(tmp_path / "other", table({"label": pa.array([1, 3] * 3)}, names), "file")}
    assert warnings_of(caplog, sources, Balanced("label"), **given) == []
    with forebay.Loader(path, **ONE_PASS, **given, sampling=Balanced("label")) as loader:
        (counts,) = loader.class_counts()
    assert counts["classes"] == ["owl", "crow", "lark", "wren"]
    assert (counts["rows"], counts["examples"]) == ([4, 2, 0, 0], [3, 3, 0, 0])


def test_many_classes_are_not_all_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audio = pa.array([{"bytes": row.audio, "path": None} for row in tiny_rows(40)])
    labels = ["common"] * 10 + [f"rare {i:02}" for i in range(30)]
    path = write(tmp_path / "many", pa.table({"audio": audio, "species": labels}), "file")
    (told,) = warnings_of(caplog, path, Balanced("species", cap=1.0))
    assert "cannot balance all classes: 30 stay below" in told
    assert told.endswith('"rare 06" (1 row), "rare 07" (1 row), ...')


@pytest.mark.parametrize(
    ("made", "weight"),
    [
        (Balanced("species", -0.5), lambda row: LABELS.count(LABELS[row]) ** -0.5),
        (Balanced("species", offset=10.0), lambda row: 1 / (LABELS.count(LABELS[row]) + 10)),
        (Balanced("several", labels="sum"), lambda row: sum(1 / of_name(name) for name in SEVERAL[row]) or 1 / 30),
        (Balanced("several", labels="max"), lambda row: max([1 / of_name(name) for name in SEVERAL[row]] or [1 / 30])),
        (
            Balanced("several", labels="mean"),
            lambda row: sum(1 / of_name(name) for name in SEVERAL[row]) / len(SEVERAL[row]) if SEVERAL[row] else 1 / 30,
        ),
        (
            Balanced("joined", labels="sum", separator=","),
            lambda row: sum(1 / of_name(name) for name in SEVERAL[row]) or 1 / 30,
        ),
    ],
)
def test_balanced(files: list[Path], made: Balanced, weight: Any) -> None:
    (found,) = indices(files, sampling=made)
    weights = [weight(row) for row in range(N)]
    total = sum(weights)
    counts = Counter(found)
    for row in range(N):
        expected = weights[row] * N / total
        assert floor(expected - 1e-9) <= counts[row] <= ceil(expected + 1e-9), row


def of_name(name: str) -> int:
    """The rows that have it."""
    return sum(name in names for names in SEVERAL)


def test_a_cap(files: list[Path]) -> None:
    (free,) = indices(files, sampling=Balanced("species"))
    (found,) = indices(files, sampling=Balanced("species", cap=2.0))
    assert max(Counter(free).values()) > 5
    assert max(Counter(found).values()) == 2
    assert len(found) == N
    with pytest.raises(ConfigError, match=r"cap is 1\.5, and 120 rows that often are fewer than the 500 examples"):
        forebay.Loader(files, **ONE_PASS, sampling=Balanced("species", cap=1.5, epoch_size=500))


@pytest.mark.parametrize(
    ("made", "passes"),
    [
        (Where("species", values=["owl", "wren"]), lambda row: LABELS[row] in ("owl", "wren")),
        (Where("quality", minimum=2, maximum=4), lambda row: 2 <= row % 6 <= 4),
        (Where("quality", values=[5, 0]), lambda row: row % 6 in (0, 5)),
        (Where("several", values=["y"]), lambda row: "y" in SEVERAL[row]),
        (Where("several", exclude=["y"]), lambda row: "y" not in SEVERAL[row]),  # an empty list stays
        (Where("several", values=["x"], exclude=["y"]), lambda row: SEVERAL[row] == ["x"]),
        (Where("species", exclude=["owl"]), lambda row: LABELS[row] != "owl"),  # a null stays
        (Where("species", is_null=True), lambda row: LABELS[row] is None),
        (Where("species", is_null=False) & Where("weight", minimum=1), lambda row: row < 116 and WEIGHTS[row] >= 1),
        (Subset(range(0, N, 3)) & Where("quality", maximum=3), lambda row: row % 3 == 0 and row % 6 <= 3),
    ],
)
def test_where(files: list[Path], made: Any, passes: Any) -> None:
    (found,) = indices(files, sampling=made)
    assert found == [row for row in range(N) if passes(row)]
    with forebay.AudioDataset(files, **TINY, sampling=made) as dataset:
        assert len(dataset) == len(found)


def test_limits_choose_no_list(files: list[Path]) -> None:
    with pytest.raises(ConfigError, match=r'^no row is left by Where\("several", minimum=0\)'):
        forebay.Loader(files, **ONE_PASS, sampling=Where("several", minimum=0))


def test_at_most(files: list[Path]) -> None:
    (found,) = indices(files, sampling=AtMost(7, "site"))
    assert Counter(SITES[row] for row in found) == {"a": 7, "b": 7, "c": 7, None: 7}
    assert found == sorted(found) != indices(files, sampling=AtMost(7, "site", seed=1))[0]
    (more,) = indices(files, sampling=AtMost(9, "site"))
    assert set(found) < set(more)
    (few,) = indices(files, sampling=Where("quality", maximum=1) & AtMost(3, "site"))
    assert all(row % 6 <= 1 for row in few)
    assert len(few) == 12


def test_weights_of_the_rows_that_are_left(files: list[Path]) -> None:
    made = Where("quality", minimum=3) & Weighted("weight") & Balanced("species") & AtMost(40, "species")
    (found,) = indices(files, sampling=made)
    assert all(row % 6 >= 3 and WEIGHTS[row] > 0 for row in found)
    rows = [row for row in range(N) if row % 6 >= 3]
    assert len(found) == len(rows)


def test_a_mixture_weighs_each_source(files: list[Path]) -> None:
    """Its shares are those of the sources' weights; within a source rows come by theirs."""
    sources = {"a": files[:1], "b": files[1:]}
    given: dict[str, Any] = {**ONE_PASS, "weights": {"a": 1, "b": 1}, "mixture_block": 10, "stop": "all_exhausted"}
    with forebay.Loader(sources, **given, sampling=Weighted("weight")) as loader:
        found = [row for batch in loader for row in batch["index"].tolist()]
    counts = Counter(row < 50 for row in found)
    assert counts[True] == counts[False] == 70
    is_as_expected(Counter(row - 50 for row in found if row >= 50), WEIGHTS[50:], 70)
    for wrong in (Where("quality", minimum=1), Subset(10), AtMost(1, "site"), Weighted("weight", epoch_size=5)):
        with pytest.raises(ConfigError, match="one source, and arrow_files is a dict"):
            forebay.Loader(sources, **given, sampling=wrong)


def test_values_that_no_row_has(files: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A condition that does nothing, since a name is misspelt or a number is text, is not silent."""

    def told_of(source: Any, where: Where, **more: Any) -> list[str]:
        caplog.clear()
        with forebay.Loader(source, **{**ONE_PASS, **more}, sampling=where):
            return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    for wrong, told in [
        (
            Where("quality", exclude=["1"]),
            r'Where\("quality"\): exclude has "1", and the column has numbers; give numbers',
        ),
        (Where("quality", values=[2, "1"]), r'Where\("quality"\): values has "1", and the column has numbers'),
        (Where("species", exclude=[3]), r'Where\("species"\): exclude has 3, and the column has texts; give texts'),
    ]:
        with pytest.raises(ConfigError, match=told):
            forebay.Loader(files, **ONE_PASS, sampling=wrong)
    assert told_of(files, Where("species", exclude=["owl", "wren"])) == []
    assert told_of(files, Where("species", exclude=["owl", "ow1", "wrn"])) == [
        'Where("species"): 2 of the 3 values of exclude are in no row, such as "ow1"'
    ]
    assert told_of(files, Where("quality", values=[1, 99])) == [
        'Where("quality"): 1 of the 2 values of values are in no row, such as 99'
    ]
    species = pa.array([0, 0, 0, 2, 2, 0], pa.int64())
    names = {"label": {"_type": "ClassLabel", "names": ["owl", "wren", "crow"]}}
    path = write(tmp_path / "named", table({"label": species}, names), "file")
    given: dict[str, Any] = {"label_column": ""}
    # By name and by number; a class of the schema may have no row.
    for few in (["owl"], [0], ["wren", "owl"]):
        assert told_of(path, Where("label", exclude=few), **given) == []


def test_bad_and_excluded_rows(tmp_path: Path) -> None:
    """A bad row moves no other; one that is excluded is left out in each of its copies."""
    rows = [row.audio for row in tiny_rows(30)]
    rows[11] = b"no recording"
    audio = pa.array([{"bytes": row, "path": None} for row in rows])
    path = write(tmp_path / "bad", pa.table({"audio": audio, "weight": [float(i % 4) for i in range(30)]}), "file")
    for infinite in (False, True):
        given: dict[str, Any] = {**ONE_PASS, "sampling": Weighted("weight"), "infinite": infinite, "order": "global"}
        with forebay.Loader(path, **given) as loader:
            planned = loader.plan(28).reshape(4, 7).tolist()
            found = [next(loader)["index"].tolist() for _ in range(4)]
            assert {error["index"] for error in loader.errors()} == {11}
        for batch, plan in zip(found, planned, strict=True):
            assert len(batch) == (7 if infinite else 7 - plan.count(11))
            if infinite:
                assert all(one == two for one, two in zip(batch, plan, strict=True) if two != 11)
                assert 11 not in batch
        with forebay.Loader(path, **{**given, "infinite": False}, exclude=[11, 3]) as loader:
            assert not {11, 3} & {row for batch in loader for row in batch["index"].tolist()}


EVERYTHING: dict[str, Any] = {
    **TINY, "shuffle_min_size": 48, "augment": True, "clip_seconds": 0.01, "outputs": ["start"], "exclude": [2, 61],
    "drop_last": False, "era_length": 40, "n_workers": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same shards with some recordings that are none."""
    folder = tmp_path_factory.mktemp("damaged")
    rows = [row.audio for row in tiny_rows(N)]
    for bad in (9, 57, 113):
        rows[bad] = b"no recording"
    audio = pa.array([{"bytes": row, "path": None} for row in rows])
    table = pa.table({"audio": audio, "species": LABELS, "weight": WEIGHTS})
    return [write(folder / f"{a}", table.slice(a, b - a), "file") for a, b in [(0, 50), (50, 61), (61, N)]]


def taken(loader: Any, n: int) -> list[dict[str, Any]]:
    """The next batches, up to the end of a pass."""
    return list(islice(loader, n))


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("order", ["sequential", "window", "global", "era", "mixture"])
def test_everything_at_once(damaged: list[Path], order: str, *, infinite: bool) -> None:
    """Bad and excluded rows, ranks 1, 2, 3 and 8, and a resume before every batch: the same bytes."""
    source: Any = damaged
    given = {**EVERYTHING, "order": order, "infinite": infinite, "n_streams": 24 if order == "window" else None}
    given["sampling"] = Weighted("weight", epoch_size=250) & Balanced("species", -0.5)
    if order == "mixture":
        source = {"a": damaged[:1], "b": damaged[1:]}
        given |= {"order": "global", "weights": {"a": 1, "b": 3}, "mixture_block": 12}
        given |= {
            "sampling": Weighted("weight") & Balanced("species", -0.5),
            "stop": None if infinite else "all_exhausted",
        }
    with forebay.Loader(source, **given, batch_size=24) as loader:
        alone = taken(loader, 13)
        planned = loader.replay(2)["index"].tolist()
    assert planned == alone[2]["index"].tolist()
    rows = [row for batch in alone for row in batch["index"].tolist()]
    assert not {2, 61, 9, 57, 113} & set(rows)
    assert 0 not in {WEIGHTS[row] for row in rows}
    assert max(Counter(rows).values()) > 1
    for world in (1, 2, 3, 8):
        parts = []
        for rank in range(world):
            # The window is that of a rank.
            own = {
                **given,
                "batch_size": 24 // world,
                "world_size": world,
                "rank": rank,
                "shuffle_min_size": 48 // world,
            }
            part: list[dict[str, Any]] = []
            if world in (2, 8):
                with forebay.Loader(source, **own) as loader:
                    part = taken(loader, 13)
            else:
                state = None
                while len(part) < len(alone):
                    with forebay.Loader(source, **own) as loader:
                        if state is not None:
                            loader.load_state_dict(json.loads(json.dumps(state)))
                        part += taken(loader, 1)
                        state = loader.state_dict()
            parts.append(part)
        for at, batch in enumerate(alone):
            for name, value in batch.items():
                joined = np.concatenate([part[at][name] for part in parts])
                assert np.array_equal(joined, value), (world, at, name)


@pytest.mark.parametrize("order", ["sequential", "window", "global", "era", "mixture"])
@pytest.mark.parametrize("infinite", [False, True])
def test_equal_weights_are_the_same_bytes(damaged: list[Path], order: str, *, infinite: bool) -> None:
    """With bad and excluded rows, on each rank, over several epochs, and in the position that a state has."""
    source: Any = damaged
    given = {**EVERYTHING, "order": order, "infinite": infinite, "n_streams": 6 if order == "window" else None}
    if order == "mixture":
        source = {"a": damaged[:1], "b": damaged[1:]}
        given |= {"order": "era", "weights": {"a": 1, "b": 3}, "stop": None if infinite else "all_exhausted"}
    for rank in range(2):
        own = {**given, "batch_size": 6, "world_size": 2, "rank": rank}
        with (
            forebay.Loader(source, **own) as plain,
            forebay.Loader(source, **own, sampling=Weighted([0.7] * N)) as equal,
        ):
            for _ in range(2):
                for one, two in zip(taken(plain, 25), taken(equal, 25), strict=True):
                    assert one.keys() == two.keys()
                    assert all(one[name].tobytes() == two[name].tobytes() for name in one)
                states = plain.state_dict(), equal.state_dict()
                assert [state["batch"] for state in states] == [states[0]["batch"]] * 2
            assert plain.plan(50).tolist() == equal.plan(50).tolist()


@pytest.mark.parametrize("order", ["sequential", "window", "global", "era"])
def test_weights_at_the_edges(files: list[Path], order: str) -> None:
    given: dict[str, Any] = {"order": order, "shuffle_min_size": 9 if order == "window" else 0}
    alone = [0.0] * N
    alone[77] = 1e-300
    assert indices(files, 2, sampling=Weighted(alone), **given) == [[77] * N] * 2
    assert indices(files, 2, sampling=Weighted(alone, epoch_size=1), **given) == [[77]] * 2
    tiny = [1.0] * N
    tiny[5] = 1e-12
    for found in indices(files, 4, sampling=Weighted(tiny), **given):
        is_as_expected(Counter(found), tiny, N)
    # Fewer examples than classes: in turn.
    passes = indices(files, 40, sampling=Balanced("species", epoch_size=2), **given)
    assert {len(set(found)) for found in passes} == {2}
    comes = Counter(LABELS[row] for found in passes for row in found)
    assert set(comes) == {"crow", "owl", "wren", None}
    assert all(8 <= n <= 32 for n in comes.values())
    # Far more examples than rows.
    (many,) = indices(files, sampling=Weighted("weight", epoch_size=100 * N), **given)
    is_as_expected(Counter(many), WEIGHTS, 100 * N)


def test_wrong_weights_in_a_column_are_named(tmp_path: Path) -> None:
    """By the row over all files, also if other rows are left out."""
    audio = pa.array([{"bytes": row.audio, "path": None} for row in tiny_rows(8)])
    columns = {
        "nan": [1.0, 1.0, 1.0, float("nan")] * 2, "negative": [1.0, 1.0, 1.0, 1.0, 1.0, -0.25, 1.0, 1.0],
        "infinite": [1.0] * 7 + [float("inf")], "null": [1.0, 1.0, None, 1.0] * 2, "zero": [0] * 8, "text": ["a"] * 8,
        "huge": [1e200] * 8, "fine": [1, 0, 2, 0, 1, 0, 1, 3], "part": [0, 1, 1, 1, 0, 1, 1, 1],
    }  # fmt: skip
    path = write(tmp_path / "wrong", pa.table({"audio": audio, **columns}), "file")
    part = Where("part", minimum=1)
    for made, told in [
        (Weighted("nan"), 'column "nan" has no number in row 3, must be a weight: a number from 0 on'),
        (part & Weighted("nan"), 'column "nan" has no number in row 3'),
        (Weighted("negative"), 'column "negative" has -0.25 in row 5'),
        (Weighted("infinite") & part, 'column "infinite" has inf in row 7'),
        (Weighted("null"), 'column "null" has no number in row 2'),
        (Weighted("text"), 'column "text" has no number in row 0'),
        (Weighted("zero"), "no row of 8 has a weight above 0"),
        (part & Weighted("fine") & Where("fine", maximum=0), "no row of 3 has a weight above 0"),
        (part & Weighted("huge") & Weighted([1e200] * 8), "the product of the weights of row 1 is inf, must be finite"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(told)):
            forebay.Loader(path, **ONE_PASS, sampling=made)
    # A wrong weight of a row that is left out does not matter.
    (found,) = indices(path, sampling=Where("nan", maximum=1) & Weighted("nan"))
    assert found == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("labels", ["sum", "max", "mean"])
@pytest.mark.parametrize(
    ("power", "offset", "cap"), [(-1.0, 0.0, None), (-0.5, 3.0, 2.5), (0.5, 0.0, 1.2), (0.0, 1.0, 1.0)]
)
def test_balanced_is_the_formula(tmp_path: Path, labels: Any, power: float, offset: float, cap: float | None) -> None:
    """Of numpy, for a random vector of labels in each row; names that are repeated in a row count once."""
    random = np.random.default_rng(7)
    n, rates = 90, np.array([0.6, 0.3, 0.2, 0.08, 0.04, 0.02])
    hot = (random.random((n, 6)) < rates).astype(float)
    hot[:6] = np.eye(6)  # each class comes
    names = [[f"c{i}" for i in np.flatnonzero(row)] * (1 + at % 2) for at, row in enumerate(hot)]
    audio = pa.array([{"bytes": row.audio, "path": None} for row in tiny_rows(n)])
    path = write(tmp_path / "hot", pa.table({"audio": audio, "names": pa.array(names, pa.list_(pa.string()))}), "file")
    hot = np.c_[hot, hot.sum(1) == 0]
    by_class = (hot.sum(0) + offset) ** power
    each = np.where(hot > 0, by_class, np.nan)
    weights = {"sum": np.nansum(each, 1), "max": np.nanmax(each, 1), "mean": np.nanmean(each, 1)}[labels]
    size = n - 7
    if cap is not None:
        low, high = 0.0, weights.max()
        for _ in range(200):  # the highest limit with which no row is above the cap
            limit = (low + high) / 2
            lowered = np.minimum(weights, limit)
            low, high = (limit, high) if lowered.max() * size <= cap * lowered.sum() else (low, limit)
        weights = np.minimum(weights, low)
    expected = weights / weights.sum() * size
    made = Balanced("names", power, offset=offset, cap=cap, labels=labels, epoch_size=size)
    with forebay.Loader(path, **ONE_PASS, sampling=made) as loader:
        (told,) = loader.stats()["classes"]
        for epoch in range(3):
            loader.set_epoch(epoch)
            counts = np.bincount(loader.plan(size), minlength=n)
            assert (counts >= np.floor(expected - 1e-6)).all()
            assert (counts <= np.ceil(expected + 1e-6)).all()
            (found,) = loader.class_counts()
            order = [6 if name is None else int(str(name)[1]) for name in found["classes"]]
            assert found["rows"] == hot.sum(0)[order].tolist()
            assert found["examples"] == (counts @ hot)[order].tolist()
    assert np.allclose(told["expected"], (expected @ hot)[order])


def test_rows_of_weight_0_are_not_read(tmp_path: Path) -> None:
    """And one that comes several times is read once: counted in files of their own."""
    names = []
    for at, row in enumerate(tiny_rows(20)):
        assert row.audio is not None
        (tmp_path / f"{at:02}.wav").write_bytes(row.audio)
        names.append({"path": f"{at:02}.wav", "weight": [0.0, 3.0, 0.0, 1.0][at % 4]})
    source = forebay.Manifest(names, root=tmp_path)
    given: dict[str, Any] = {**ONE_PASS, "order": "sequential", "n_readers": 1}
    with forebay.Loader(source, **given, sampling=Weighted("weight")) as loader:
        found = [row for batch in loader for row in batch["index"].tolist()]
        counts = loader.stats()["files"]
    assert Counter(found) == {row: 3 if row % 4 == 1 else 1 for row in range(1, 20, 2)}
    assert counts["opened"] == 10
    assert counts["reads"] <= 10


def test_states_know_the_weights(files: list[Path]) -> None:
    with forebay.Loader(files, **ONE_PASS, sampling=Weighted("weight")) as loader:
        next(loader)
        state = loader.state_dict()
    others = [None, Weighted("weight", epoch_size=N - 1), Weighted("quality"), Balanced("species"), Subset(N)]
    for other in others:
        with (
            forebay.Loader(files, **ONE_PASS, sampling=other) as loader,
            pytest.raises(StateError, match=r"sampling|subset"),
        ):
            loader.load_state_dict(state)
    with forebay.Loader(files, **ONE_PASS, sampling=Weighted(WEIGHTS)) as loader:
        loader.load_state_dict(state)


def test_lengths(files: list[Path]) -> None:
    with forebay.Loader(files, **ONE_PASS, sampling=Weighted("weight", epoch_size=50)) as loader:
        assert len(loader) == loader.batches_per_epoch == 8
        assert sum(len(batch["index"]) for batch in loader) == 50
    given = {**ONE_PASS, "infinite": True, "drop_last": True}
    with forebay.Loader(files, **given, sampling=Weighted("weight", epoch_size=50)) as loader:
        assert loader.batches_per_epoch == 8
        for _ in range(8):
            next(loader)
        assert loader.epoch == 1


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: Weighted([1.0, -2.0]), ConfigError, "the weight of row 1 is -2, must be a number from 0 on"),
        (lambda: Weighted([1.0, float("nan")]), ConfigError, "the weight of row 1 is NaN"),
        (lambda: Weighted([0.0, 0.0]), ConfigError, "no row of 2 has a weight above 0"),
        (lambda: Weighted([]), ConfigError, "no row of 0 has a weight"),
        (lambda: Weighted("w", epoch_size=0), ConfigError, "epoch_size is 0, must be 1 to"),
        (lambda: Weighted(3.0), TypeError, "weights must be the name of a column, or a number for each row"),  # type: ignore[arg-type]
        (lambda: Weighted(["a"]), TypeError, "weights must be the name of a column"),  # type: ignore[list-item]
        (lambda: Balanced("label", 9.0), ConfigError, "power is 9.0, must be from -4 to 4"),
        (lambda: Balanced(offset=-1.0), ConfigError, "offset is -1.0, must be from 0"),
        (lambda: Balanced(cap=0.5), ConfigError, "cap is 0.5, must be 1 or more"),
        (lambda: Balanced(labels="median"), ConfigError, 'labels is "median", must be one of "sum", "max", "mean"'),  # type: ignore[arg-type]
        (lambda: Where("a"), ConfigError, "Where has no condition; give values, exclude, minimum, maximum or is_null"),
        (lambda: Where("a", values=[]), ConfigError, "values is empty"),
        (lambda: Where("a", values="owl"), TypeError, "values is 'owl' .*, must be a list of text"),
        (lambda: Where("a", values=[1.5]), TypeError, "values has .*, must be text or whole numbers; minimum"),  # type: ignore[list-item]
        (lambda: Where("a", minimum=3, maximum=2), ConfigError, "minimum is 3 and maximum 2"),
        (lambda: AtMost(0, "a"), ConfigError, "n is 0, must be 1 or more"),
        (lambda: Subset(3) & Subset(4), ConfigError, "two parts are a Subset"),
        (lambda: Weighted("a", epoch_size=3) & Balanced("b", epoch_size=4), ConfigError, "epoch_size is 3 in one part"),
        (lambda: Weighted("a") & 3, TypeError, "unsupported operand"),  # type: ignore[operator]
    ],
)
def test_wrong_parts_are_refused_when_made(make: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        make()


def test_wrong_parts_are_refused_by_the_loader(files: list[Path]) -> None:
    def refused(made: Any, told: str, **more: Any) -> None:
        with pytest.raises(ConfigError, match=told):
            forebay.Loader(files, **{**ONE_PASS, **more}, sampling=made)

    refused(Weighted([1.0, 2.0]), "weights has 2 numbers for 120 rows, must have one for each row of the files")
    refused(Weighted("species"), 'column "species" has no number in row 0, must be a weight')
    refused(Where("quality", minimum=9), r'no row is left by Where\("quality", minimum=9\)')
    refused(Weighted("weight"), "Windows\\(\\) gives each window once", crop=crops.Windows())
    with pytest.raises(forebay.ForebayError, match=r"nowhere.*species"):
        forebay.Loader(files, **ONE_PASS, sampling=Weighted("nowhere"))
    with pytest.raises(ConfigError, match="a dataset has each row once"):
        forebay.AudioDataset(files, **TINY, sampling=Weighted("weight"))


def test_parts_are_values() -> None:
    parts = [
        Weighted("w", epoch_size=3), Weighted([1.0, 2.0]), Balanced("label", -0.5, cap=2.0),
        Where("a", values=["b", 3]), AtMost(3, "site"), Where("a", minimum=1) & Balanced() & Subset(5, seed=2),
    ]  # fmt: skip
    for part in parts:
        assert part == pickle.loads(pickle.dumps(part)) == type(part).from_dict(json.loads(json.dumps(part.to_dict())))
    assert repr(parts[-1]) == "Where(column='a', minimum=1.0) & Balanced() & Subset(rows=5, seed=2)"
    assert repr(Weighted(np.array([1.0, 2.0]))) == "Weighted(weights=(1.0, 2.0))"
    assert repr(Weighted([1.0] * 30)) == "Weighted(weights=(1.0, 1.0, 1.0, ... 30 in all))"
    assert isinstance(parts[-1], sampling.Joined)


def test_the_recipe_says_it(files: list[Path]) -> None:
    made = Where("quality", minimum=1) & Weighted("weight")
    with forebay.Loader(files, **ONE_PASS, sampling=made) as loader:
        assert "sampling  Where(column='quality', minimum=1.0) & Weighted(weights='weight')\n" in repr(loader.recipe)
        assert loader.recipe.to_dict()["sampling"] == made.to_dict()
