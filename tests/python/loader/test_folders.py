"""Relative paths are resolved at construction; a folder or a `datasets.Dataset` stands for its shards."""

import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import forebay
from digests import digest
from forebay import augment
from recordings import TINY, Row, tiny_rows, write_shard


def test_relative_paths_outlive_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the working folder affects neither shards nor files that rows name; messages show paths as given."""
    (tmp_path / "clips").mkdir()
    rows = tiny_rows(20)
    for i in (4, 11):
        (tmp_path / "clips" / f"{i}.wav").write_bytes(rows[i].audio or b"")
        rows[i] = Row(None, 0, f"clips/{i}.wav")
    rows[17] = Row(b"not a recording")
    write_shard(tmp_path / "a.arrow", rows)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with forebay.Loader.eval("a.arrow", **TINY) as loader:
        monkeypatch.chdir("elsewhere")
        delivered = [row for batch in loader for row in batch["index"].tolist()]
        [error] = loader.errors()
        assert delivered == [row for row in range(20) if row != 17]
        assert error["shard"] == loader.shards[0]["path"] == "a.arrow"


def test_a_state_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    """A folder whose state.json is a named pipe is refused without waiting for it."""
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(OSError, match=r"not a regular file.*state\.json"):
        forebay.Loader(tmp_path)


@pytest.fixture
def shards(tiny_shards: list[Path], tmp_path: Path) -> list[Path]:
    """Copies, beside which `datasets` may write its files."""
    return [Path(shutil.copy(path, tmp_path)) for path in tiny_shards]


@pytest.fixture
def hub(shards: list[Path]) -> datasets.Dataset:
    """Their 300 rows."""
    return datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in shards])


def test_a_dataset_stands_for_its_files(hub: datasets.Dataset, shards: list[Path]) -> None:
    with forebay.Loader.eval(hub, **TINY) as loader, forebay.Loader.eval(shards, **TINY) as plain:
        assert [digest(batch) for batch in loader] == [digest(batch) for batch in plain]
        assert [shard["path"] for shard in loader.shards] == [str(path) for path in shards]
    cast = hub.cast_column("audio", datasets.Audio(sampling_rate=16000))
    with forebay.Loader.eval(cast, **TINY) as loader:  # the loader's sample_rate holds
        assert loader.num_records == 300
    sources = {"all": hub, "first": datasets.Dataset.from_file(str(shards[0]))}
    with forebay.Loader(sources, **TINY) as mixture:
        assert mixture.source_names == ["all", "first"]


def _sorted(hub: datasets.Dataset) -> datasets.Dataset:
    with warnings.catch_warnings():
        # `datasets` calls pyarrow with a parameter that pyarrow 25 deprecates.
        warnings.simplefilter("ignore", FutureWarning)
        return hub.sort("label", reverse=True)


def _united(hub: datasets.Dataset) -> datasets.Dataset:
    return datasets.concatenate_datasets([hub.select(range(150, 300)), hub.select(range(0, 150, 2))])


def _train(hub: datasets.Dataset) -> datasets.Dataset:
    return hub.train_test_split(0.2, seed=1)["train"]


# What people make of a Dataset before they train.
PARTS: dict[str, Callable[[datasets.Dataset], datasets.Dataset]] = {
    "shuffle": lambda hub: hub.shuffle(seed=1),
    "select": lambda hub: hub.select([3, 1, 299, 3, 60]),
    "slice": lambda hub: hub.select(range(50, 130)),
    "end": lambda hub: hub.select(range(290, 300)),
    "shard": lambda hub: hub.shard(4, 2, contiguous=False),
    "filter": lambda hub: hub.filter(lambda label: label == 2, input_columns="label"),
    "sort": _sorted,
    "train": _train,
    "test": lambda hub: hub.train_test_split(0.2, seed=1)["test"],
    "nested": lambda hub: _train(hub).shuffle(seed=3).filter(lambda n: n > 0, input_columns="label").select(range(9)),
    "of a slice": lambda hub: hub.select(range(70, 250)).shuffle(seed=2).select([5, 4, 3]),
    "united": _united,
    "twice": lambda hub: datasets.concatenate_datasets([hub.select(range(5)), hub.select(range(3, 9))]),
    "united and shuffled": lambda hub: datasets.concatenate_datasets([hub.shuffle(seed=4), hub.select(range(7))]),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_dataset_is_read_in_its_order(name: str, hub: datasets.Dataset, tmp_path: Path) -> None:
    """As the same part that was saved; `index` is the row of the Dataset."""
    part = PARTS[name](hub)
    part.save_to_disk(tmp_path / "saved", num_shards=1)
    with forebay.Loader.eval(part, **TINY) as loader, forebay.Loader.eval(tmp_path / "saved", **TINY) as saved:
        assert loader.num_records == len(part)
        batches = list(loader)
        assert [digest(batch) for batch in batches] == [digest(batch) for batch in saved]
        bad = {error["index"] for error in loader.errors()}
        assert bad == {error["index"] for error in saved.errors()}
    labels = [label for batch in batches for label in batch["label"].tolist()]
    index = [row for batch in batches for row in batch["index"].tolist()]
    good = [row for row in range(len(part)) if row not in bad]
    assert (index, labels) == (good, [part["label"][row] for row in good])


def test_a_part_of_a_dataset_is_as_any_source(hub: datasets.Dataset) -> None:
    """Sampling, training order, states, copies, datasets and mixtures take its rows by their numbers in it."""
    part = hub.shuffle(seed=5).select(range(120))
    labels = np.array(part["label"])
    where = forebay.sampling.Where("label", exclude=[2])
    with forebay.Loader.eval(part, sampling=where, **TINY) as loader:
        index = np.concatenate([batch["index"] for batch in loader])
        bad = [error["index"] for error in loader.errors()]
        assert index.tolist() == [row for row in np.flatnonzero(labels != 2).tolist() if row not in bad]
    with forebay.Loader.train(part, order="global", batch_size=10, seed=2, **TINY) as loader:
        first = [next(loader) for _ in range(3)]
        copy = pickle.loads(pickle.dumps(loader))
        expected = [digest(next(loader)) for _ in range(12)]
        assert all((batch["label"] == labels[batch["index"]]).all() for batch in first)
        with copy:
            assert [digest(next(copy)) for _ in range(12)] == expected
        with pytest.raises(forebay.StateError):
            forebay.Loader.train(hub.shuffle(seed=6).select(range(120)), order="global", batch_size=10, seed=2, **TINY
                                 ).load_state_dict(loader.state_dict())  # fmt: skip
    with forebay.AudioDataset(part, **TINY) as dataset:
        assert len(dataset) == 120
        assert [dataset[row]["label"] for row in (0, 7, 119)] == labels[[0, 7, 119]].tolist()
    with forebay.Loader.eval({"whole": hub, "part": part}, **TINY) as mixture:
        found = {(int(source), int(row)) for b in mixture for source, row in zip(b["source"], b["index"], strict=True)}
        assert {row - 300 for source, row in found if source == 1} <= set(range(120))


def test_other_datasets_are_refused(hub: datasets.Dataset) -> None:
    column = [3] * len(hub)
    changed = [
        hub.remove_columns("label"),
        hub.rename_column("label", "y"),
        hub.add_column("z", column),
        hub.remove_columns("label").add_column("label", column),
        datasets.concatenate_datasets([hub, datasets.Dataset.from_dict({"z": column})], axis=1),
    ]
    for dataset in changed:
        with pytest.raises(forebay.ConfigError, match=r"the Dataset \(arrow_files\) has columns .*save_to"):
            forebay.Loader(dataset, **TINY)
    with pytest.raises(forebay.ConfigError, match=r"the Dataset \(arrow_files\) has a transform, .*reset_format"):
        forebay.Loader(hub.with_transform(dict), **TINY)
    with pytest.raises(forebay.ConfigError, match=r"the Dataset \(arrow_files\) has no rows"):
        forebay.Loader(hub.select([]), **TINY)
    with pytest.raises(forebay.ConfigError, match=r"the Dataset \(arrow_files\['b'\]\) is in memory; save it"):
        forebay.Loader({"a": hub, "b": datasets.Dataset.from_dict({"audio": [b""]})}, **TINY)
    with pytest.raises(
        forebay.ConfigError, match=r'the DatasetDict \(arrow_files\) has the splits train, test; .* splits\["train"\]'
    ):
        forebay.Loader(datasets.DatasetDict(train=hub, test=hub), **TINY)
    with pytest.raises(forebay.ConfigError, match=r"the IterableDataset \(arrow_files\) has no rows on disk"):
        forebay.Loader(hub.to_iterable_dataset(), **TINY)


def test_a_saved_part_of_a_dataset_is_read(hub: datasets.Dataset, tmp_path: Path) -> None:
    hub.select([3, 1, 40, 2]).save_to_disk(tmp_path / "part")
    with forebay.Loader.eval(tmp_path / "part", **TINY) as loader:
        assert loader.num_records == 4


@pytest.mark.parametrize("step", [partial(augment.Mix, snr_db=10), augment.Reverb])
def test_a_step_reads_a_saved_dataset(step: Any, hub: datasets.Dataset, tmp_path: Path) -> None:
    """It refuses the object, and tells how to pass its rows."""
    with pytest.raises(TypeError, match=r"^source is a Dataset, must be a path.*; save it with save_to_disk\(folder\)"):
        step(source=hub)
    hub.select([3, 1, 40, 2]).save_to_disk(tmp_path / "part")
    with forebay.Loader.train(hub, augment=[step(source=tmp_path / "part")], **TINY) as loader:
        assert len(next(loader)["label"]) > 0


@pytest.mark.parametrize(
    ("names", "splits", "named"),
    [
        (
            ["data/train-00000-of-00002", "data/train-00001-of-00002", "data/test-00000-of-00001"],
            "test, train",
            {"test": "data/test-00000-of-00001.parquet", "train": "data/train-*.parquet"},
        ),
        (
            ["default/train/0000", "default/train/0001", "default/validation/0000", "default/validation/0001"],
            "train, validation",
            {"train": "default/train", "validation": "default/validation"},
        ),
        (
            ["test-00000-of-00001", "test_5s-00000-of-00001"],
            "test, test_5s",
            {"test": "test-00000-of-00001.parquet", "test_5s": "test_5s-00000-of-00001.parquet"},
        ),
    ],
)
def test_splits_of_a_folder_are_not_mixed(
    names: list[str], splits: str, named: dict[str, str], hub: datasets.Dataset, tmp_path: Path
) -> None:
    top = tmp_path / "hub"
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        hub.to_parquet(top / f"{name}.parquet")
    for source in (top, [top], {"a": top}):
        with pytest.raises(forebay.ConfigError, match=f"hub has the splits {splits}, .* pass one of") as refused:
            forebay.Loader(source, **TINY)
    with pytest.raises(forebay.ConfigError) as of_dataset:
        forebay.AudioDataset(top, **TINY)
    assert str(of_dataset.value) == str(refused.value)
    for path in named.values():
        assert f'"{top / path}"' in str(refused.value)
    # What the error says can be passed, alone and together.
    lengths = {}
    for split, path in named.items():
        with forebay.AudioDataset(top / path, **TINY) as dataset:
            lengths[split] = len(dataset)
    both = [top / path for path in named.values()]
    with forebay.AudioDataset(both, **TINY) as dataset:
        assert len(dataset) == sum(lengths.values()) == len(names) * len(hub)
    # A folder with one split left is taken.
    first, *others = named.values()
    for other in others:
        for found in [*(top / other).rglob("*.parquet"), *top.glob(other)]:
            if found.is_file():
                found.unlink()
    with forebay.AudioDataset(top, **TINY) as dataset, forebay.AudioDataset(top / first, **TINY) as expected:
        assert len(dataset) == len(expected) > 0


def test_splits_by_save_to_disk(hub: datasets.Dataset, tmp_path: Path) -> None:
    datasets.DatasetDict(train=hub, test=hub).save_to_disk(tmp_path / "two")
    with pytest.raises(forebay.ForebayError, match=r'several splits; .* of one split: ".*two/test", ".*two/train"'):
        forebay.Loader(tmp_path / "two", **TINY)
    (tmp_path / "two" / "dataset_dict.json").unlink()
    with pytest.raises(forebay.ConfigError, match=r'splits test, train, .* ".*two/test", ".*two/train"'):
        forebay.Loader(tmp_path / "two", **TINY)
    datasets.DatasetDict(train=hub).save_to_disk(tmp_path / "one")
    for folder in ("two/test", "one", "one/train"):
        with forebay.AudioDataset(tmp_path / folder, **TINY) as dataset:
            assert len(dataset) == len(hub)


def test_splits_of_recordings_are_not_mixed(tmp_path: Path) -> None:
    recording = tiny_rows(1)[0].audio or b""
    for name in ("train/owl/1.wav", "train/wren/1.wav", "test/owl/1.wav"):
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).write_bytes(recording)
    with pytest.raises(forebay.ConfigError, match=r'splits test, train, .* ".*a/test", ".*a/train"'):
        forebay.Loader(tmp_path / "a", **TINY)
    with forebay.AudioDataset(tmp_path / "a" / "train", **TINY) as dataset:
        assert (len(dataset), dataset.class_names) == (2, ["owl", "wren"])
    (tmp_path / "a" / "metadata.csv").write_text("file_name\ntrain/owl/1.wav\ntest/owl/1.wav\n")
    with forebay.AudioDataset(tmp_path / "a", **TINY) as dataset:  # the table says itself what is read
        assert len(dataset) == 2
