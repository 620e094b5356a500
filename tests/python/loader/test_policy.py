"""Bad, lost and excluded records: left out, replaced or raised, and limited in number."""

import json
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from digests import digest
from recordings import TINY, Row, tiny_rows, write_shard
from texts import generated

BAD = list(range(7, 300, 20))
"""The bad rows of `tiny_shards`."""
TOKENS: dict[str, Any] = {
    "split": "val",
    "batch_size": 4,
    "seq_len": 64,
    "buffer_size": 30,
    "tokenizer_batch_size": 8,
    "bos_id": 256,
}


def ids(text: str) -> list[int]:
    """A tokenizer whose ids are the bytes of the text."""
    return list(text.encode())


def write_texts(path: Path, texts: list[str | None]) -> Path:
    """Writes documents in row groups of 50."""
    pq.write_table(pa.table({"text": texts}), path, row_group_size=50)
    return path


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 documents, of which every 20th is null or empty."""
    texts: list[str | None] = list(generated(200))
    texts[7::40] = [None] * 5
    texts[27::40] = [""] * 5
    return write_texts(tmp_path_factory.mktemp("texts") / "a.parquet", texts)


@pytest.mark.parametrize("name", ["on_error", "on_io_error"])
@pytest.mark.parametrize("loads", ["recordings", "documents"])
def test_policies_are_checked_together(name: str, loads: str, tiny_shard: Path, documents: Path) -> None:
    wrong: Any = {name: "ignore", "max_errors": -1, "max_consecutive_errors": 0}

    def load() -> object:
        if loads == "recordings":
            return forebay.Loader(tiny_shard, **wrong)
        return forebay.TokenLoader(documents, ids, **TOKENS, **wrong)

    message = rf'{name} is "ignore", must be "skip" or "raise".*max_errors is -1.*max_consecutive_errors is 0'
    with pytest.raises(forebay.ConfigError, match=message):
        load()


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.1, float("nan")])
def test_a_share_is_between_none_and_all(share: float, tiny_shard: Path) -> None:
    with pytest.raises(forebay.ConfigError, match=r"max_errors is .*must be between 0\.0 and 1\.0"):
        forebay.Loader(tiny_shard, max_errors=share)


@pytest.mark.parametrize("n_workers", [1, 4])
def test_raise_comes_in_its_turn(tiny_shards: list[Path], n_workers: int) -> None:
    with forebay.Loader.eval(tiny_shards, **TINY, batch_size=4, n_workers=n_workers, on_error="raise") as loader:
        assert next(loader)["index"].tolist() == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(forebay.DecodeError, match=r"0\.arrow, row 7: "):
                next(loader)
        [error] = loader.errors()
        assert (error["index"], error["kind"]) == (7, "unsupported")


def test_max_errors(tiny_shards: list[Path]) -> None:
    with forebay.Loader.eval(tiny_shards, **TINY, batch_size=10, max_errors=3) as loader:
        assert len(list(islice(loader, 6))) == 6
        with pytest.raises(forebay.DecodeError, match=r"4 records failed, max_errors allows 3.*1\.arrow, row 7"):
            next(loader)
        assert [error["index"] for error in loader.errors()] == BAD[:4]
    with forebay.Loader.eval(tiny_shards, **TINY, max_errors=0.05) as loader:
        assert sum(len(batch["index"]) for batch in loader) == 300 - len(BAD)
    with forebay.Loader.eval(tiny_shards, **TINY, max_errors=0.04) as loader, pytest.raises(forebay.DecodeError):
        list(loader)


@pytest.mark.parametrize("infinite", [True, False])
def test_excluded_rows_move_nothing(tiny_shards: list[Path], infinite: bool) -> None:
    """Excluding bad rows leaves batches unchanged; excluded rows are not errors."""
    settings: Any = {**TINY, "batch_size": 16, "infinite": infinite, "seed": 3, "shuffle_min_size": 50}
    digests, told = [], []
    for exclude, n_workers in [(None, 2), (BAD, 1), (np.array(BAD[::-1]), 8), (BAD[:4], 2)]:
        with forebay.Loader(tiny_shards, **settings, n_workers=n_workers, exclude=exclude) as loader:
            digests.append([digest(batch) for batch in islice(loader, 40)])
            excluded = 0 if exclude is None else len(exclude)
            assert len(loader.errors()) == len(BAD) - excluded
            assert (loader.stats()["records_excluded"] > 0) == (excluded > 0)
            counts = loader.stats()["delivered"]
            told.append((counts["substitutes"], counts["records_failed"] + counts["records_excluded"]))
    assert all(other == digests[0] for other in digests)
    assert all(other == told[0] for other in told)


@pytest.mark.parametrize(
    ("exclude", "message"),
    [([300], "exclude names row 300, must be 0 to 299"), ([-1], "row -1"), ([2**70], "beyond int64")],
)
def test_rows_that_there_are_not(tiny_shards: list[Path], exclude: list[int], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=message):
        forebay.Loader(tiny_shards, exclude=exclude)


def test_what_is_no_list_of_rows(tiny_shards: list[Path]) -> None:
    with pytest.raises(TypeError, match=r"^exclude is 3 \(type int\), must be the path"):
        forebay.Loader(tiny_shards, exclude=3)  # type: ignore[arg-type]
    with pytest.raises(forebay.ConfigError, match="rows are excluded"):
        forebay.Loader(tiny_shards, exclude=range(300))


def test_states_and_pickles_know_what_is_excluded(tiny_shards: list[Path]) -> None:
    settings: Any = {**TINY, "batch_size": 16, "max_errors": 0.5, "max_consecutive_errors": 9, "on_io_error": "skip"}
    with forebay.Loader(tiny_shards, **settings, exclude=[1, 5]) as loader:
        list(islice(loader, 3))
        state = loader.state_dict()
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.state_dict() == state
            assert [digest(batch) for batch in islice(copy, 5)] == [digest(batch) for batch in islice(loader, 5)]
    other = forebay.Loader(tiny_shards, **settings, exclude=[1])
    with other, pytest.raises(forebay.StateError, match="exclude is"):
        other.load_state_dict(state)
    assert len(json.dumps(state)) < 1024


def test_documents(documents: Path) -> None:
    """Excluding bad documents leaves batches unchanged; documents have no substitutes."""
    bad = [*range(7, 200, 40), *range(27, 200, 40)]
    digests = []
    for exclude, n_workers in [(None, 1), (bad, 2), (bad[3:], 4)]:
        with forebay.TokenLoader(
            documents, ids, **TOKENS, n_workers=n_workers, infinite=False, exclude=exclude
        ) as loader:
            digests.append([digest(batch) for batch in loader])
            assert len(loader.errors()) == len(bad) - len(exclude or [])
            pickled = pickle.dumps(loader.state_dict())
            assert pickle.loads(pickled)["config"].get("exclude") == (loader.state_dict()["config"].get("exclude"))
    assert digests[0]
    assert digests[0] == digests[1] == digests[2]
    raising = forebay.TokenLoader(documents, ids, **TOKENS, on_error="raise")
    with raising, pytest.raises(forebay.DecodeError, match="row 7"):
        list(raising)
    bounded = forebay.TokenLoader(documents, ids, **TOKENS, infinite=False, max_errors=2)
    with bounded, pytest.raises(forebay.DecodeError, match="3 records failed, max_errors allows 2"):
        list(bounded)


def test_documents_none_of_which_is_good(tmp_path: Path) -> None:
    """An infinite loader of bad documents raises."""
    path = write_texts(tmp_path / "empty.parquet", [""] * 120)
    loader = forebay.TokenLoader(path, ids, **TOKENS)
    with loader, pytest.raises(forebay.DecodeError, match="none of the 120 records of a stream is usable"):
        next(loader)


def test_lost_records_are_in_the_state(tmp_path: Path) -> None:
    """The rows of a shard that is replaced during reading are reported and kept in the state."""
    rows = tiny_rows(200)
    first = write_shard(tmp_path / "a.arrow", rows[:160])
    # A shard is opened while the one before it is read, so not the last one yet.
    between = write_shard(tmp_path / "b.arrow", rows[160:])
    second = write_shard(tmp_path / "c.arrow", tiny_rows(40))
    settings: Any = {**TINY, "batch_size": 8, "n_readers": 1, "raw_channel_size": 1, "shuffle_buffer_size": 8}
    with forebay.Loader.eval([first, between, second], **settings, on_io_error="skip") as loader:
        taken = [next(loader)]
        write_shard(tmp_path / "new.arrow", [Row(b"other", 0)] * 3)
        (tmp_path / "new.arrow").replace(second)
        while (batch := next(loader, None)) is not None:
            taken.append(batch)
        indices = [index for batch in taken for index in batch["index"].tolist()]
        assert indices == list(range(200))
        assert (len(taken), len(loader)) == (25, 30)  # batches of lost records only are left out
        errors = loader.errors()
        assert [error["index"] for error in errors] == list(range(200, 240))
        assert {error["kind"] for error in errors} == {"io"}
        lost = loader.state_dict()["lost"]
        assert lost == {"0": {"records": 40, "rows": list(range(200, 208))}}
        assert loader.stats()["records_lost"] == 40
