"""Relative paths are resolved at construction; a folder or a `datasets.Dataset` stands for its shards."""

import os
import shutil
from pathlib import Path

import datasets
import pytest

import forebay
from digests import digest
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
    with pytest.raises(OSError, match=r"state\.json.*not a regular file"):
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


def test_a_part_of_a_dataset_is_refused(hub: datasets.Dataset) -> None:
    for part in (hub.shuffle(seed=1), hub.select([3, 1]), hub.train_test_split(0.2, seed=1)["test"]):
        with pytest.raises(forebay.ConfigError, match=r"arrow_files is a Dataset with a list of row numbers .*save"):
            forebay.Loader(part, **TINY)
    column = [3] * len(hub)
    changed = [
        hub.remove_columns("label"),
        hub.rename_column("label", "y"),
        hub.add_column("z", column),
        hub.remove_columns("label").add_column("label", column),
        datasets.concatenate_datasets([hub, datasets.Dataset.from_dict({"z": column})], axis=1),
    ]
    for dataset in changed:
        with pytest.raises(
            forebay.ConfigError, match=r"arrow_files is a Dataset (whose columns|with columns) .*save_to"
        ):
            forebay.Loader(dataset, **TINY)
    with pytest.raises(forebay.ConfigError, match=r"arrow_files is a Dataset with a transform, .*reset_format"):
        forebay.Loader(hub.with_transform(dict), **TINY)
    with pytest.raises(forebay.ConfigError, match="has 10 rows and its files have 60: it is a part"):
        forebay.Loader(hub.select(range(10)), **TINY)
    with pytest.raises(forebay.ConfigError, match=r"arrow_files\['b'\] is a Dataset in memory; save it"):
        forebay.Loader({"a": hub, "b": datasets.Dataset.from_dict({"audio": [b""]})}, **TINY)
    with pytest.raises(forebay.ConfigError, match=r'DatasetDict with the splits train, test; .* splits\["train"\]'):
        forebay.Loader(datasets.DatasetDict(train=hub, test=hub), **TINY)
    with pytest.raises(forebay.ConfigError, match="arrow_files is an IterableDataset"):
        forebay.Loader(hub.to_iterable_dataset(), **TINY)


def test_a_saved_part_of_a_dataset_is_read(hub: datasets.Dataset, tmp_path: Path) -> None:
    hub.select([3, 1, 40, 2]).save_to_disk(tmp_path / "part")
    with forebay.Loader.eval(tmp_path / "part", **TINY) as loader:
        assert loader.num_records == 4


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
