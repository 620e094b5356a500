"""Errors for wrong types name the parameter, for each constructor without a table (see `test_parameters.py`)."""

import glob
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas
import pytest

import forebay
from documents import loader as token_loader
from forebay import AsyncDataLoader, BufferPool, MappedReader, _core
from forebay.cache import AsyncDataset, DataLoader, ListAsyncDataset, MixtureDataset, TokenSeqDataset, build
from forebay.tokens import Tokenizer
from numbered import Pipeline, Reader, loader
from recordings import TINY
from wrong import Odd, assert_named, parameters

ASYNC: dict[str, Any] = {"dataset_reader": Reader(8), "pipeline": Pipeline(), "batch_size": 4}


@pytest.mark.parametrize("parameter", parameters(forebay.SpectrogramTransform))
def test_spectrogram_transform(parameter: str) -> None:
    assert_named(forebay.SpectrogramTransform, parameter)


@pytest.mark.parametrize("parameter", parameters(Tokenizer))
def test_tokenizer(parameter: str) -> None:
    assert_named(Tokenizer, parameter, path="gpt2.tiktoken")


@pytest.mark.parametrize("parameter", parameters(AsyncDataLoader, "dataset_reader", "pipeline"))
def test_async_loader(parameter: str) -> None:
    assert_named(AsyncDataLoader, parameter, **ASYNC)


@pytest.mark.parametrize("parameter", parameters(BufferPool))
def test_buffer_pool(parameter: str) -> None:
    assert_named(BufferPool, parameter, num_buffers=1, buffer_shape=(2, 3), dtype="f4")


RUN_CODE = {
    "Loader": {
        "arrow_files",
        "crop",
        "augment",
        "targets",
        "features",
        "sampling",
        "exclude",
        "weights",
        "columns",
        "sample_rate",
    },
    "AudioDataset": {"source", "crop", "targets", "features", "columns", "allow_paths"},
    "TokenLoader": {"parquet_files", "tokenizer"},
    "DataLoader": {"batch_size"},
}


class Asked:
    """A question of `isinstance` runs the code of the argument, as it runs that of an abstract class."""

    asked: list[str]

    @property
    def __class__(self) -> type:
        self.asked.append("__class__")
        raise KeyboardInterrupt

    @__class__.setter
    def __class__(self, _: type) -> None: ...


@pytest.mark.parametrize("name", RUN_CODE)
def test_an_interrupt_within_a_conversion(name: str) -> None:
    """Ctrl-C while a constructor runs code of an argument, such as `__fspath__`, is raised and is no wrong type."""
    asked: list[str] = []

    def interrupted(method: str) -> Callable[..., None]:
        def interrupt(*_: object) -> None:
            asked.append(method)
            raise KeyboardInterrupt

        return interrupt

    methods = ["__fspath__", "__iter__", "__index__", "__float__", "__len__", "__getitem__", "__getattr__"]
    kinds = [
        type("Interrupted", (), {method: interrupted(method) for method in methods}),
        type("Unprintable", (), {"__repr__": interrupted("__repr__")}),
        type("Asked", (Asked,), {"asked": asked}),
    ]
    rows = _core._parameters()[name]
    make = getattr(forebay, name, DataLoader)
    run_code = set()
    for row, kind in itertools.product(rows, kinds):
        asked.clear()
        given = {
            other["name"]: 4 if other["name"] == "batch_size" else "x" for other in rows if other["default"] is None
        }
        try:
            make(**{**given, row["name"]: kind()})
        except KeyboardInterrupt:
            run_code.add(row["name"])
        except TypeError:
            assert not asked, (row["name"], asked)
    assert RUN_CODE[name] <= run_code


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (5, r"arrow_files\[0\] is 5 \(type int\), must be a path \(str or os.PathLike\)$"),
        ({"path": "a.wav"}, r"must be a path .*; forebay.Manifest\(rows, root=...\) makes a source of dicts"),
        (datasets.Dataset.from_dict({"a": [1]}), r"is Dataset\(\{ features: .*; a Dataset is a source by itself"),
        (pandas.DataFrame({"path": ["a.wav"]}), r"must be a path .*; forebay.Manifest\(frame, root=...\) makes"),
    ],
)
def test_items_of_a_list_are_paths(item: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        forebay.Loader([item])
    with pytest.raises(TypeError, match=told.replace("arrow_files", "source")):
        forebay.AudioDataset([item])
    with pytest.raises(TypeError, match=told.replace(r"arrow_files\[0\]", r"arrow_files\['a'\]\[0\]")):
        forebay.Loader({"a": [item]})


def test_mapped_reader() -> None:
    assert_named(MappedReader, "path")


def test_what_lies_inside_is_named(tiny_shard: Path) -> None:
    sources: Any = {"one": tiny_shard, "two": tiny_shard}
    weights: list[Any] = [{"one": "much", "two": 1}, [("soon", {"one": 1, "two": 1})]]
    for wrong in weights:
        with pytest.raises(TypeError, match="weights"):
            forebay.Loader(sources, weights=wrong)
    with pytest.raises(TypeError, match="arrow_files"):
        forebay.Loader({1: tiny_shard})  # type: ignore[dict-item]
    encode: Any = len
    tokens: list[Any] = [{"special_tokens": {"<|bos|>": "1"}}, {"special_tokens": {1: 1}}, {"bos_id": -1}]
    for wrong in tokens:
        [name] = wrong
        with pytest.raises((TypeError, forebay.ConfigError), match=name):
            forebay.TokenLoader("a.parquet", encode, **wrong)
        with pytest.raises((TypeError, forebay.ConfigError), match=name):
            Tokenizer("gpt2.tiktoken", **wrong)


def test_a_set_has_no_order(tiny_shard: Path) -> None:
    files: list[Any] = [{str(tiny_shard)}, frozenset([tiny_shard]), {"one": {tiny_shard}}]
    for wrong in files:
        with pytest.raises(TypeError, match=r"arrow_files.* is a set, .* pass sorted\("):
            forebay.Loader(wrong)


def test_what_an_async_loader_is_made_of() -> None:
    wrong: Any = SimpleNamespace(metadata=None)
    with pytest.raises(
        TypeError, match=r"dataset_reader is of type SimpleNamespace, which has no __len__, storage_state"
    ):
        AsyncDataLoader(wrong, Pipeline(), 4)
    with pytest.raises(TypeError, match=r"pipeline is of type SimpleNamespace, which has no output_specs, __call__"):
        AsyncDataLoader(Reader(8), wrong, 4)


def test_sources_of_a_mixture() -> None:
    documents = ListAsyncDataset([{"x": 1}])
    sources: list[Any] = [[documents, documents], (documents,), documents, "web"]
    for wrong in sources:
        message = rf"datasets must be a dict of names and datasets, .*, not {type(wrong).__name__}$"
        with pytest.raises(TypeError, match=message):
            MixtureDataset(wrong, [1, 1])  # type: ignore[list-item]
    weights: list[Any] = [[1, 1], 1, "even", [(0, [1, 1])], [(0, {"a": 1}, 2)], None]
    for wrong in weights:
        with pytest.raises(TypeError, match=r"weights must be a dict of names and numbers, or pairs \(pos"):
            MixtureDataset({"a": documents}, wrong)


@pytest.mark.parametrize("spec", [3, ((2,),), ((2.5,), "f4"), (2, "f4"), ((2,), "no type"), Odd()])
def test_specs_of_fields(spec: Any) -> None:
    class Wrong(Pipeline):
        output_specs = {"x": spec}  # noqa: RUF012

    with pytest.raises(forebay.ConfigError, match=r"output_specs\['x'\] is .*, expected \(shape, dtype\)"):
        loader(pipeline=Wrong())


def test_what_is_as_good_as_the_type() -> None:
    class Two:
        def __index__(self) -> int:
            return 2

    batches: Any = AsyncDataLoader(Reader(8), Pipeline(), Two(), np.uint8(2), shuffle=np.True_)  # type: ignore[arg-type]
    assert len(batches) == 4
    pool = BufferPool(Two(), np.int64(3), np.float32)  # type: ignore[arg-type]
    assert pool.acquire()[1].shape == (3,)


def test_a_class_or_a_function_in_place_of_an_object(tiny_shard: Path) -> None:
    make = r"; make an object of the class: {}\(\.\.\.\)$"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"features": forebay.features.Waveform}, make.format("Waveform")),
        ({"crop": forebay.crops.Windows}, make.format("Windows")),
        ({"sampling": forebay.sampling.Balanced}, make.format("Balanced")),
        ({"targets": forebay.targets.MultiHot}, make.format("MultiHot")),
        ({"targets": {"label": forebay.targets.Soft}}, make.format("Soft")),
        ({"augment": [forebay.augment.Gain]}, make.format("Gain")),
        ({"augment": [len]}, r"must be an object of forebay.augment; Python\(function\) makes a step of a function$"),
    ]
    for given, message in wrong:
        with pytest.raises(TypeError, match=message):
            forebay.Loader(tiny_shard, **TINY, **given)


def test_a_frame_is_no_list_of_files(tiny_shard: Path, tmp_path: Path) -> None:
    """A frame would yield the names of its columns."""
    frame: Any = pandas.DataFrame({"path": ["a.wav"]})
    for given in (frame, {"a": frame, "b": tiny_shard}):
        with pytest.raises(
            TypeError, match=r"the DataFrame \(.*\) is no list of files; forebay\.Manifest\(frame, root=\.\.\.\) makes"
        ):
            forebay.Loader(given, **TINY)
    with pytest.raises(TypeError, match=r"the DataFrame \(shards\) is no list of files"):
        build(frame, None, tmp_path / "cache")


def test_what_is_no_list_of_text_files(tmp_path: Path) -> None:
    """Tables in memory name the way that there is; a mixture, the source."""
    with pytest.raises(FileNotFoundError, match=r'parquet_files\["web"\]: no file matches the pattern web/'):
        token_loader({"web": "web/*.parquet", "code": "code/*.parquet"})
    table = datasets.Dataset.from_dict({"text": ["a"]})
    with pytest.raises(
        forebay.ConfigError, match=r"the Dataset \(parquet_files\) is in memory; save it with save_to_disk"
    ):
        token_loader(table)
    table.save_to_disk(str(tmp_path / "saved"))
    frame = pandas.DataFrame({"text": ["a"]})
    with pytest.raises(
        TypeError, match=r"parquet_files is a DataFrame, must be files; write it with .*to_parquet\(path\)"
    ):
        token_loader(frame)
    frame.to_parquet(tmp_path / "a.parquet")
    for files in (tmp_path / "saved", tmp_path / "a.parquet"):
        with token_loader(files, val=[]) as loader:
            assert loader.num_documents == 1


@pytest.mark.parametrize("spec", [(257,), 257, ("x", "f4"), ((2,), "no type"), ((2,), "f4", 1)])
def test_fields_of_a_dataset(spec: Any) -> None:
    class Own(AsyncDataset):
        fields = {"a": spec}  # noqa: RUF012

        def __len__(self) -> int:
            return 2

        def get_batch(self, indices: Any) -> list[dict[str, Any]]:
            return [{"a": np.zeros(257)}] * len(indices)

    with pytest.raises(
        forebay.ConfigError, match=r"fields\['a'\] is .*, expected \(shape, dtype\).*as in \(\(257,\), 'float32'\)"
    ):
        next(iter(DataLoader(Own(), 1)))


def test_one_field_of_windows() -> None:
    tokens: Any = ListAsyncDataset([{"input_ids": np.arange(9)}])
    wrong: list[Any] = [["input_ids", "labels"], None]
    for field in wrong:
        with pytest.raises(TypeError, match=r"field is .*, must be the name of one field \(str\)"):
            TokenSeqDataset(tokens, 4, field=field)


def iterators(folder: Path) -> list[Any]:
    """Iterators and sets of paths whose order depends on the system or may do so."""
    return [
        folder.glob("*.arrow"),
        (path for path in folder.iterdir()),
        map(str, folder.iterdir()),
        glob.iglob(f"{folder}/*.arrow"),  # noqa: PTH207
        {*folder.iterdir()},
        frozenset(folder.iterdir()),
    ]


def test_files_come_in_an_order_that_stays(tiny_shards: list[Path], tmp_path: Path) -> None:
    folder = tiny_shards[0].parent
    message = r"is a .*, whose order (may differ|differs).*so batches would differ too; pass sorted\("
    for files in iterators(folder):
        with pytest.raises(TypeError, match="arrow_files " + message):
            forebay.Loader(files, **TINY)
    with os.scandir(folder) as entries, pytest.raises(TypeError, match="arrow_files " + message):
        forebay.Loader.train(entries, **TINY)  # type: ignore[arg-type]
    for files in iterators(folder):
        with pytest.raises(TypeError, match=r"arrow_files\['a'\] " + message):
            forebay.Loader.eval({"a": files, "b": tiny_shards[0]}, **TINY)
    for files in iterators(folder):
        with pytest.raises(TypeError, match="shards " + message):
            build(files, None, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    # Containers with a fixed order are accepted as given.
    ways: list[Any] = [
        tiny_shards,
        tuple(tiny_shards),
        dict.fromkeys(tiny_shards).keys(),
        np.array([*map(str, tiny_shards)]),
    ]
    for files in [*ways, sorted(folder.glob("*.arrow"))]:
        with forebay.Loader.eval(files, **TINY) as loader:
            assert [shard["path"] for shard in loader.shards] == [*map(str, tiny_shards)]


def test_files_of_documents_have_a_fixed_order(parquets: Path) -> None:
    """As those of recordings: folders are sorted, a list keeps its order, sets and iterators are refused."""
    files = sorted(parquets.glob("*.parquet"))
    for given, expected in ((parquets, files[:-1]), (files[::-1], files[:0:-1]), (tuple(files), files[:-1])):
        with token_loader(given) as loader:
            assert [shard["path"] for shard in loader.shards] == [*map(str, expected)]
    for unordered in (parquets.glob("*.parquet"), {*files}):
        with pytest.raises(TypeError, match=r"parquet_files is a .*, whose order .*; pass sorted\(parquet_files\)"):
            token_loader(unordered)
