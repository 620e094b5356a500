"""The order of a loader without `order=`: chosen by how rows are stored, shown with its reason, kept by states.

O1  A small data set has epochs in which rows are missing or come twice, without a word.
O2  The choice depends on anything but parameters and files: rank, threads, time.
O3  Files that are read in blocks, or are many, are read row by row.
O4  A state of another order is refused without a word about the parameter that brings it back.
"""

import json
import pickle
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fields
import forebay
from forebay import sampling
from recordings import SMALL, TINY, tiny_rows, write_shard
from tables import write_recordings, write_table

N = 30
LOCAL = "global (recordings in local files)"
FEW = f"global ({N} rows, not more than shuffle_min_size, {N})"
MANY = f"window ({N} rows of shards, more than shuffle_min_size, {N - 1})"
TOGETHER = "window (compressed shards or Parquet, whose rows are not read one by one)"
ONE_PASS = "sequential (one pass with shuffle_min_size=0)"
PARAMETERS: dict[str, Any] = {**TINY, "seed": 3, "batch_size": 4, "n_workers": 2, "shuffle_min_size": N}
BELOW = {"shuffle_min_size": N - 1}


def chosen(source: Any, **changes: Any) -> str:
    """The order and its reason, as `print(loader)` and the recipe have them."""
    with forebay.Loader(source, **{**PARAMETERS, **changes}) as loader:
        shown = repr(loader).partition("finite, order ")[2].rstrip(">")
        recipe = str(loader.recipe)
        assert f"  {shown}, seed 3, " in recipe
        assert loader.recipe.to_dict()["order"] == loader.state_dict()["config"]["order"] == shown.partition(" ")[0]
        return shown


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same rows in files and in shards."""
    top = tmp_path_factory.mktemp("sources")
    names = write_recordings(top / "owl", N)
    made = [{"path": f"owl/{name}", "label": i % 3} for i, name in enumerate(names)]
    with tarfile.open(top / "a.tar", "w") as tar:
        for name in names:
            tar.add(top / "owl" / name, name)
    table = fields.table({"label": [i % 3 for i in range(N)]})
    return {
        "folder": str(top / "owl"),
        "list": [str(top / "owl" / name) for name in names],
        "table": str(write_table(top / "table.csv", made)),
        "rows": forebay.Manifest(made, root=top),
        "tar": str(top / "a.tar"),
        "arrow": str(write_shard(top / "shard.arrow", tiny_rows(N))),
        "parquet": str(fields.write(top / "shard", table, "parquet")),
        "zstd": str(fields.write(top / "zstd", table, "zstd")),
    }


@pytest.mark.parametrize("infinite", [True, False])
def test_the_default_follows_from_the_files(sources: dict[str, Any], infinite: bool) -> None:
    """O1, O3: `sources` has every kind of source, with as many rows as the window, and one more."""
    for name, source in sources.items():
        few = {"arrow": FEW, "parquet": TOGETHER, "zstd": TOGETHER}.get(name, LOCAL)
        assert chosen(source, infinite=infinite) == few, name
        many = {"arrow": MANY}.get(name, few)
        assert chosen(source, infinite=infinite, **BELOW) == many, name
        assert chosen(source, infinite=False, shuffle_min_size=0) == ONE_PASS, name
        none = {"arrow": f"window ({N} rows of shards, more than shuffle_min_size, 0)"}.get(name, few)
        assert chosen(source, infinite=True, shuffle_min_size=0) == none, name
        assert chosen(source, infinite=infinite, n_streams=2) == "window (n_streams is given)", name
        assert chosen(source, infinite=infinite, order="era") == "era", name


def test_presets_and_parts_of_the_rows(sources: dict[str, Any]) -> None:
    """Rows count that are read, not those of the files. A buffer below the window is an error of the window alone."""
    assert "order global (recordings in local files)" in repr(forebay.Loader.train(sources["folder"]))
    assert "order sequential" in repr(forebay.Loader.eval(sources["folder"]))
    few = chosen(sources["arrow"], sampling=sampling.Subset(9), shuffle_min_size=9)
    assert few == "global (9 rows, not more than shuffle_min_size, 9)"
    assert chosen({"a": sources["arrow"], "b": sources["zstd"]}) == "global (sources are mixed)"
    assert chosen(sources["folder"], shuffle_buffer_size=8) == LOCAL
    with pytest.raises(forebay.ConfigError, match=rf"shuffle_min_size is {N}, must be at most shuffle_buffer_size, 8"):
        chosen(sources["parquet"], shuffle_buffer_size=8)


@pytest.mark.parametrize("name", ["folder", "list", "table", "rows", "tar", "arrow"])
def test_each_epoch_has_each_row_once(sources: dict[str, Any], name: str) -> None:
    """O1: in one stream, in passes, and over ranks, which choose the same (O2)."""
    with forebay.Loader(sources[name], **PARAMETERS) as loader:
        planned = loader.plan(4 * N).tolist()
    epochs = [planned[start : start + N] for start in range(0, 4 * N, N)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    ranks = [forebay.Loader(sources[name], **PARAMETERS, infinite=False, rank=rank, world_size=3) for rank in range(3)]
    for _ in range(2):
        rows = Counter(row for loader in ranks for batch in loader for row in batch["index"].tolist())
        assert rows == dict.fromkeys(range(N), 1)
    assert {repr(loader.recipe) for loader in ranks} == {repr(ranks[0].recipe)}


def test_a_state_of_another_order_names_the_parameter(tiny_shards: list[Path]) -> None:
    """O4: of the default before, window; and of more rows, or another window."""
    files: list[Any] = [*tiny_shards]
    many, few = {**SMALL, "infinite": False}, {**SMALL, "infinite": False, "shuffle_min_size": 300}
    with forebay.Loader(files, **many, order="window") as before:
        for _, _batch in zip(range(3), before, strict=False):
            pass
        state = json.loads(json.dumps(before.state_dict()))
        expected = [batch["index"].tolist() for batch in before]  # of the next pass
    with forebay.Loader(files, **{**few, "order": "window"}) as window:
        of_few = window.state_dict()
    with forebay.Loader(files, **few) as loader:
        for one, told in ((of_few, ""), (state, ", shuffle_min_size is 40 in the state and absent here")):
            with pytest.raises(forebay.StateError) as refused:
                loader.load_state_dict(one)
            assert str(refused.value) == (
                'the state belongs to another loader: order is "window" in the state and "global" here by default (300 '
                f'rows, not more than shuffle_min_size, 300): give order="window"{told}; construct the loader as it '
                "was, or start without the state"
            )
    with forebay.Loader(files, **many) as again:
        again.load_state_dict(state)
        again.set_epoch(1)
        assert [batch["index"].tolist() for batch in again] == expected
    # An order that the user gave is not the loader's choice.
    with (
        forebay.Loader(files, **few, order="era") as era,
        pytest.raises(forebay.StateError, match='"window" in the state and "era" here, shuffle_min_size'),
    ):
        era.load_state_dict(of_few)


def test_a_copy_chooses_the_same(sources: dict[str, Any]) -> None:
    """O2: with other threads, in a pickle, and for the measurement of headspace."""
    with forebay.Loader(sources["folder"], **PARAMETERS) as loader:
        next(loader)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.recipe == loader.recipe
            assert repr(copy) == repr(pickle.loads(pickle.dumps(copy)))
            assert copy.plan(2 * N).tolist() == loader.plan(2 * N).tolist()
        assert loader.headspace(0.05)["filled"]
    with forebay.Loader(sources["folder"], **PARAMETERS, order="global") as given:
        assert given.recipe == forebay.Loader(sources["folder"], **PARAMETERS).recipe
