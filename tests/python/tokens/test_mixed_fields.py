"""Texts, ids, labels and weights mixed in one loader, and passes that end within a mixture."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from documents import encode
from forebay.text import Documents, Ids

ALL: Any = "all_exhausted_without_replacement"


def write(path: Path, first: int, n: int, length: int = 5, **columns: list[float]) -> Path:
    """Lists of `length` equal ids, counted from `first` on, with columns of lists beside them."""
    ids = [[first + row] * length for row in range(n)]
    pq.write_table(pa.table({"input_ids": ids} | {name: [values] * n for name, values in columns.items()}), path)
    return path


def loader(sources: Any, **given: Any) -> forebay.TokenLoader:
    usual: dict[str, Any] = {"bos_id": 0, "batch_size": 1, "seq_len": 11, "val": [], "n_workers": 2}
    return forebay.TokenLoader(sources, given.pop("tokenizer", None), **usual | given)


def test_weights_and_sources_are_fields_of_their_own(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", 1, 40, weights=[0.5] * 5)
    b = write(tmp_path / "b.parquet", 101, 40)
    sources = {"a": Ids(a, weights="weights"), "b": Ids(b)}
    with loader(sources, weights={"a": 1, "b": 1}, extras=["source"], batch_size=2) as batches:
        batch = next(batches)
    source = (batch["inputs"] > 100).astype(np.int32)
    # The id behind BOS tells the document of the BOS.
    is_bos = batch["inputs"] == 0
    source[is_bos] = (batch["targets"][is_bos] > 100).astype(np.int32)
    np.testing.assert_array_equal(batch["source"], source)
    expected = np.where(batch["targets"] == 0, 0, np.where(batch["targets"] > 100, 1, 0.5)).astype(np.float32)
    np.testing.assert_array_equal(batch["weights"], expected)


def test_texts_beside_labels(tmp_path: Path) -> None:
    """Each BOS that the loader adds is ignored, of all sources; of labels, what they ignore."""
    (tmp_path / "t.txt").write_text("hello world\n" * 40)
    labelled = write(tmp_path / "i.parquet", 1, 40, labels=[-100] * 5)
    sources = {"t": Documents(tmp_path / "t.txt"), "i": Ids(labelled, labels="labels")}
    with loader(sources, tokenizer=encode, weights={"t": 1, "i": 1}, bos_id=256, extras=["source"]) as batches:
        for _, batch in zip(range(5), batches, strict=False):
            inputs, targets = batch["inputs"][0], batch["targets"][0]
            following = np.append(inputs[1:], -1)
            is_text = np.isin(following, list(b"hello world"))
            np.testing.assert_array_equal(targets[:-1][is_text[:-1]], following[:-1][is_text[:-1]])
            assert (targets[:-1][~is_text[:-1]] == -100).all()


def test_padding_of_a_row_that_is_left_out_is_not_counted(tmp_path: Path) -> None:
    short = write(tmp_path / "a.parquet", 1, 7, 1)
    given = {"batch_size": 2, "seq_len": 24, "pad_multiple": 12, "infinite": False}
    with loader(Ids(short), **given) as batches:
        n_places = sum((batch["inputs"].shape[0]) * 25 for batch in batches)
        packing = batches.stats()["packing"]
    assert packing["delivered"] + packing["padded"] == n_places > 0


def run(sources: Any, state: dict[str, Any] | None = None, **given: Any) -> tuple[list[Any], list[dict[str, Any]], Any]:
    """The batches to the end of a pass, the states after them, and the figures."""
    usual = {"weights_in": "documents", "infinite": False, "buffer_size": 30, "tokenizer_batch_size": 1}
    with loader(sources, **usual | given) as batches:
        if state is not None:
            batches.load_state_dict(state)
        found, states = [], []
        for batch in batches:
            found.append(batch["inputs"].tolist())
            states.append(batches.state_dict())
        return found, states, batches.stats()


@pytest.mark.parametrize("stop", [ALL, "first_exhausted"])
@pytest.mark.parametrize("stages", [
    [(0, {"A": 1, "B": 1}), (24, {"A": 1, "B": 0})],
    [(0, {"A": 1, "B": 0}), (8, {"A": 1, "B": 1})],
    [(0, {"A": 1, "B": 1}), (12, {"A": 1, "B": 1})],
])  # fmt: skip
def test_passes_that_end_within_a_stage(stop: str, stages: Any, tmp_path: Path) -> None:
    """The documents in the buffer are packed, and a state saved meanwhile continues to the same end."""
    for n in (20, 21):
        sources = {
            "A": Ids(write(tmp_path / f"a{n}.parquet", 100, n)),
            "B": Ids(write(tmp_path / "b.parquet", 200, 100)),
        }
        batches, states, stats = run(sources, weights=stages, stop=stop)
        assert stats["packing"]["tokens"] < 12
        for at, state in enumerate(states, 1):
            assert run(sources, state, weights=stages, stop=stop)[0] == batches[at:], (n, at)


def test_a_state_that_says_a_source_is_exhausted_which_is_not(tmp_path: Path) -> None:
    sources = {"A": Ids(write(tmp_path / "a.parquet", 1, 30)), "B": Ids(write(tmp_path / "b.parquet", 99, 30))}
    with loader(sources, weights={"A": 1, "B": 1}, buffer_size=2, tokenizer_batch_size=1) as batches:
        next(batches)
        state = batches.state_dict()
        state["packers"]["0"]["exhausted"] = True
        with pytest.raises(forebay.StateError, match="impossible with these files"):
            batches.load_state_dict(state)
