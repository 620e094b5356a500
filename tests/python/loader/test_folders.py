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
