"""A `datasets.Dataset` as a source of `TokenLoader`: its Arrow files are read, or it is refused."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chats
import forebay
from documents import RANKS, document, full_rows
from forebay.text import Chat, Documents, Ids

datasets = pytest.importorskip("datasets")

GIVEN: dict[str, Any] = {"seq_len": 50, "batch_size": 4, "infinite": False, "val": [], "n_workers": 2}
TEXTS = [document(number) for number in range(90)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = datasets.Dataset.from_dict({"text": TEXTS, "number": list(range(90))})
    made.save_to_disk(tmp_path / "saved", num_shards=3)
    return tmp_path / "saved"


def rows(source: Any, **parameters: Any) -> list[list[list[int]]]:
    with forebay.TokenLoader(source, RANKS, **GIVEN | parameters) as loader:
        return [full_rows(batch) for batch in loader]


def test_batches_are_those_of_its_files(folder: Path) -> None:
    dataset = datasets.load_from_disk(folder)
    expected = rows(folder)
    assert len(expected) > 5
    assert rows(dataset) == expected
    assert rows(Documents(dataset)) == expected
    assert rows(dataset, seed=5) == rows(folder, seed=5) != expected
    assert rows({"one": dataset}, weights={"one": 1.0}) == rows({"one": folder}, weights={"one": 1.0})
    # Of files that it has twice.
    joined = datasets.concatenate_datasets([dataset, datasets.load_from_disk(folder.parent / "saved")])
    with pytest.raises(forebay.ConfigError, match="has other rows than its files"):
        forebay.TokenLoader(joined, RANKS, **GIVEN)


def test_a_loaded_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    dataset = datasets.load_dataset("text", data_files=str(tmp_path / "a.txt"), cache_dir=str(tmp_path / "cache"))
    assert rows(dataset["train"]) == rows([file["filename"] for file in dataset["train"].cache_files])
    with pytest.raises(forebay.ConfigError, match=r'has the splits train; pass one of them, as in splits\["train"\]'):
        forebay.TokenLoader(dataset, RANKS, **GIVEN)


def test_an_object_and_a_loader_are_pickled_by_their_files(folder: Path) -> None:
    source = Documents(datasets.load_from_disk(folder), column="text")
    assert [Path(path).parent for path in source.to_dict()["path"]] == [folder] * 3
    assert pickle.loads(pickle.dumps(source)) == source
    with forebay.TokenLoader(datasets.load_from_disk(folder), RANKS, **GIVEN) as loader:
        copy = pickle.loads(pickle.dumps(loader))
        with copy:
            assert [full_rows(batch) for batch in copy] == [full_rows(batch) for batch in loader]


def test_conversations(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    tokenizer = chats.write_tokenizer(tmp_path / "tokenizer")
    messages = [[{"role": "user", "content": f"{i} ?"}, {"role": "assistant", "content": "yes"}] for i in range(30)]
    datasets.Dataset.from_dict({"messages": messages}).save_to_disk(tmp_path / "saved")
    found = []
    for source in (datasets.load_from_disk(tmp_path / "saved"), tmp_path / "saved"):
        given = GIVEN | {"fit": "pad"}
        with forebay.TokenLoader(Chat(source, template="chatml"), tokenizer, **given) as loader:
            found.append([(batch["inputs"].tolist(), batch["targets"].tolist()) for batch in loader])
    assert found[0] == found[1] != []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.select([3, 1]), "has other rows than its files, as after select, filter, shuffle or "),
        (lambda one: one.select(range(5)), "has other rows than its files"),
        (lambda one: one.shuffle(seed=1), "has other rows than its files"),
        (lambda one: one.train_test_split(0.5, seed=1)["test"], "has other rows than its files"),
        (lambda one: one.select([]), "has no rows, must have at least one|is in memory"),
        (lambda one: datasets.Dataset.from_dict(one[:3]), "is in memory; save it with save_to_disk"),
        (lambda one: one.rename_column("text", "other"), "has columns that were changed"),
        (lambda one: one.with_transform(lambda batch: batch), "has a transform, which the loader does not call"),
        (lambda one: one.to_iterable_dataset(), "has no rows on disk; pass the paths of its Arrow or Parquet files"),
        (lambda one: datasets.DatasetDict(a=one), r'has the splits a; pass one of them, as in splits\["a"\]'),
        (lambda one: [one], r"\[0\] is Dataset\(.*must be a path"),
    ],
)  # fmt: skip
def test_what_is_refused(change: Callable[[Any], Any], message: str, folder: Path) -> None:
    changed = change(datasets.load_from_disk(folder, keep_in_memory=False))
    for made in (lambda: forebay.TokenLoader(changed, RANKS, **GIVEN), lambda: Documents(changed)):
        with pytest.raises((forebay.ConfigError, TypeError), match=message):
            made()


def test_several_in_a_list(folder: Path) -> None:
    dataset: Any = datasets.load_from_disk(str(folder))
    for sources, name in (
        ([dataset, dataset], r"parquet_files\[0\]"),
        ({"a": [dataset]}, r"parquet_files\['a'\]\[0\]"),
    ):
        with pytest.raises(
            TypeError, match=rf"{name} .* a Dataset is a source by itself: .* in a dict, mixed by weights="
        ):
            forebay.TokenLoader(sources, RANKS, **GIVEN)
    with pytest.raises(TypeError, match=r"parquet_files\[1\] .* give each source a name in a dict, as in"):
        forebay.TokenLoader([folder, Documents(folder)], RANKS, **GIVEN)  # type: ignore[list-item]


def test_ids_are_not_read_from_arrow(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"input_ids": [[1, 2]]}).save_to_disk(tmp_path / "saved")
    source = Ids(datasets.load_from_disk(tmp_path / "saved"))
    with pytest.raises(forebay.ConfigError, match="token ids are read from Parquet"):
        forebay.TokenLoader(source, bos_id=0, **GIVEN)
