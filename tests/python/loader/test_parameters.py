"""Each parameter of the loaders: its default, its errors, and another value through pickle and state.

A new parameter fails here by its name until `cases` has a value for it.
"""

import inspect
import os
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import forebay.batching
import forebay.cache
import forebay.crops
import forebay.sampling
import forebay.targets
from documents import RANKS
from forebay import _core
from forebay.cache import ListAsyncDataset
from recordings import SMALL, TINY, tiny_rows, write_shard
from wrong import Odd

LOADERS: dict[str, Any] = {
    "Loader": forebay.Loader,
    "TokenLoader": forebay.TokenLoader,
    "DataLoader": forebay.cache.DataLoader,
}
TABLES: dict[str, list[dict[str, Any]]] = _core._parameters()
FEATURES = ("sample_rate", "n_mels", "n_fft", "hop_length", "dtype", "layout", "n_frames")
ROWS = [(name, row["name"]) for name in LOADERS for row in TABLES[name]]


@dataclass(frozen=True)
class Case:
    """A value of a parameter other than its default."""

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    """Other parameters that the value requires."""
    named: str | None = None
    """The name in the error about another loader's state, if it is not the parameter's."""
    other_batches: bool = False
    """Whether batches differ although the state fits both values."""
    without: tuple[str, ...] = ()
    """Parameters that may not be given with the value."""


class Files:
    """The input of the loaders."""

    def __init__(self, folder: Path) -> None:
        rows = tiny_rows(120)
        self.shards = [write_shard(folder / f"{i}.arrow", rows[60 * i : 60 * i + 60]) for i in range(2)]
        self.texts = folder / "texts"
        self.texts.mkdir()
        for number in range(3):
            texts = [f"document {number} {i} " * (1 + i % 9) for i in range(60)]
            table = pa.table({"text": texts, "body": texts[::-1]})
            pq.write_table(table, self.texts / f"shard_{number}.parquet", row_group_size=20)
        self.dataset = ListAsyncDataset([{"x": np.arange(3) + i} for i in range(40)])
        self.sources = {"a": self.shards[0], "b": self.shards[1]}
        self.tokens = [RANKS, folder / "copy.tiktoken"]
        self.tokens[1].write_bytes(RANKS.read_bytes())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("parameters"))


def encode(text: str) -> list[int]:
    return list(text.encode())


def encode_upper(text: str) -> list[int]:
    return list(text.upper().encode())


def cases(files: Files) -> dict[str, dict[str, Case]]:
    mixture = {"arrow_files": files.sources}
    ranks: dict[str, Any] = {"tokenizer": files.tokens[1], "bos_id": 50256, "special_tokens": {"<|endoftext|>": 50256}}
    policy = {
        "on_error": Case("raise"),
        "on_io_error": Case("skip"),
        "max_errors": Case(0.25),
        "max_consecutive_errors": Case(7),
        "exclude": Case([3]),
        "stall_warning_s": Case(None),
        "worker_nice": Case(3),
        "cpus": Case(str(min(os.sched_getaffinity(0)))),
    }
    urls = {
        "storage_options": Case({"aws_region": "eu-west-1"}),
        "cache_dir": Case(files.texts.parent / "kept"),
        "cache_bytes": Case(2**30),
    }
    recordings = {
        "arrow_files": Case(files.shards[:1], named="num_records"),
        "seed": Case(2**64 - 1),
        "batch_size": Case(8, named="global_batch_size"),
        "shuffle_buffer_size": Case(77),
        "shuffle_min_size": Case(33),
        "sample_rate": Case(16000),
        "clip_seconds": Case(0.016),
        "n_mels": Case(4),
        "n_fft": Case(32),
        "hop_length": Case(16),
        "n_workers": Case("auto"),
        "raw_channel_size": Case(3),
        "infinite": Case(value=False),
        "augment": Case([forebay.augment.Gain((-6, 6), p=0.5), forebay.augment.SpecAugment(2, 1, 3, 1)]),
        "features": Case(forebay.features.Waveform(sample_rate=16000), without=FEATURES),
        "targets": Case({"label": forebay.targets.ClassIndex("label", classes=100)}),
        "columns": Case(["audio.path"], other_batches=True),
        "n_samples": Case(60, named="subset"),
        "sampling": Case(forebay.sampling.Subset(range(70)), named="subset"),
        "crop": Case(forebay.crops.Windows(0.008)),
        "batching": Case(
            forebay.batching.Buckets(2.0), {"crop": forebay.crops.Whole()}, without=("clip_seconds", "batch_size")
        ),
        "order": Case("global"),
        "rank": Case(1, {"world_size": 2}, other_batches=True),
        "world_size": Case(2, named="global_batch_size"),
        "n_streams": Case(2),
        "drop_last": Case(value=True, beside={"infinite": False}),
        "era_length": Case(50, {"order": "era"}),
        "weights": Case([(0, {"a": 3.0, "b": 1.0})], mixture),
        "mixture_block": Case(64, mixture),
        "stop": Case("all_exhausted", {**mixture, "infinite": False}),
        "n_readers": Case(2),
        "prefetch_batches": Case("auto"),
        "cpu_budget": Case(1, {"n_workers": "auto"}),
        "memory_budget": Case(2**32),
        "raw_channel_bytes": Case(2**26),
        "max_record_bytes": Case(2**20),
        "max_decoded_seconds": Case(60.0),
        "damage": Case("error"),
        "max_damage": Case(0.5),
        "dtype": Case("float16"),
        "layout": Case("time"),
        "n_frames": Case(9),
        "audio": Case({"one": "audio", "two": ["audio", "audio"]}),
        "missing_audio": Case("zeros", {"audio": {"one": "audio", "two": "audio"}}),
        "independent": Case(["two"], {"audio": {"one": "audio", "two": "audio"}}),
        "audio_column": Case("audio"),
        "track": Case(0),
        "label_column": Case("label"),
        "mmap": Case(value=True),
        "allow_paths": Case(value=True),
        **urls,
        "outputs": Case(["path"], other_batches=True),
        **policy,
    }
    mixed = {"parquet_files": dict.fromkeys(("a", "b"), files.texts)}
    tokens = {
        "parquet_files": Case([files.texts / f"shard_{i}.parquet" for i in (0, 2)], named="num_documents"),
        "tokenizer": Case(encode_upper),
        "batch_size": Case(2, named="global_batch_size"),
        "seq_len": Case(33),
        "split": Case("val", named="num_documents"),
        "val": Case(["shard_0.parquet", "shard_1.parquet"], named="num_documents"),
        "buffer_size": Case(21),
        "tokenizer_batch_size": Case(8),
        "n_workers": Case("auto"),
        "rank": Case(1, {"world_size": 2}, other_batches=True),
        "world_size": Case(2, named="global_batch_size"),
        "seed": Case(2**64 - 1),
        "infinite": Case(value=False),
        "weights": Case([(0, {"a": 3.0, "b": 1.0})], mixed),
        "weights_in": Case("documents", mixed | {"weights": {"a": 3, "b": 1}}),
        "stop": Case("all_exhausted_without_replacement", mixed | {"infinite": False}),
        "text_column": Case("body"),
        "fit": Case("carry", named="crop"),
        "on_long": Case("cut", {"fit": "pad"}),
        "pad_id": Case(9, {"fit": "pad"}),
        "pad_multiple": Case(31),
        "crop": Case("carry"),
        "n_streams": Case(2),
        "stride": Case("global"),
        "shuffle_min_size": Case(5),
        "drop_last": Case(value=True),
        "dtype": Case("int32", other_batches=True),
        "extras": Case(["doc_ids"], other_batches=True),
        "max_documents": Case(100, {"extras": ["cu_seqlens"]}, other_batches=True),
        "pattern": Case(r"\S+|\s+", ranks | {"pattern": r"\w+|\W+"}, named="tokenizer"),
        "special_tokens": Case(
            {"<|endoftext|>": 50256, "<|x|>": 50257}, ranks | {"pattern": r"\w+|\W+"}, named="tokenizer"
        ),
        "bos_id": Case(255, named="tokenizer"),
        "eos_id": Case(255, named="tokenizer"),
        "loss_across": Case(value=False),
        "prefetch_batches": Case("auto"),
        "raw_channel_size": Case(3),
        "cpu_budget": Case(1, {"n_workers": "auto"}),
        "raw_channel_bytes": Case(2**26),
        **urls,
        **policy,
    }
    datasets = {
        "dataset": Case(ListAsyncDataset([{"x": np.arange(3)}] * 41), named="num_records"),
        "batch_size": Case(8, named="global_batch_size"),
        "rank": Case(1, {"world_size": 2}, other_batches=True),
        "world_size": Case(2, named="global_batch_size"),
        "start_step": Case(3, other_batches=True),
        "prefetch_batches": Case("auto"),
        "n_workers": Case("auto"),
        "drop_last": Case(value=True),
        "dtype": Case("int32"),
        "stall_warning_s": Case(None),
        "worker_nice": Case(3),
        "cpus": Case(str(min(os.sched_getaffinity(0)))),
    }
    return {"Loader": recordings, "TokenLoader": tokens, "DataLoader": datasets}


def base(name: str, files: Files) -> dict[str, Any]:
    texts = {
        "parquet_files": files.texts,
        "tokenizer": encode,
        "bos_id": 256,
        "batch_size": 4,
        "seq_len": 31,
        "buffer_size": 20,
        "tokenizer_batch_size": 16,
    }
    bases: dict[str, dict[str, Any]] = {
        "Loader": {"arrow_files": files.shards, **SMALL},
        "TokenLoader": texts,
        "DataLoader": {"dataset": files.dataset, "batch_size": 4},
    }
    return bases[name]


def case(name: str, parameter: str, files: Files) -> Case:
    found = cases(files)[name].get(parameter)
    if found is None:
        pytest.fail(f"{name} has a new parameter, {parameter}: give it a value other than its default in {__file__}")
    return found


def keywords(loader: Any) -> dict[str, Any]:
    """The parameters in a loader's pickle."""
    _, (_, positional, found), _ = loader.__reduce__()
    assert positional == ()
    return dict(found)


def same(a: Any, b: Any) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_nothing_is_left_over(files: Files) -> None:
    for name, found in cases(files).items():
        assert set(found) <= {row["name"] for row in TABLES[name]}


@pytest.mark.parametrize("name", LOADERS)
def test_defaults(name: str, files: Files) -> None:
    """The core's defaults equal those of the signature."""
    # Texts require a tokenizer, and a callable one bos_id.
    needed = {row["name"] for row in TABLES[name] if row["default"] is None} | {"tokenizer", "bos_id"}
    required = {key: value for key, value in base(name, files).items() if key in needed}
    defaults = {p.name: p.default for p in inspect.signature(LOADERS[name]).parameters.values()}
    with LOADERS[name](**required) as loader:
        found = keywords(loader)
    assert list(found) == list(defaults)
    for parameter in set(defaults) - set(required):
        # None means an empty list.
        expected = [] if parameter in ("columns", "extras", "outputs") else defaults[parameter]
        assert found[parameter] == expected, parameter
        assert type(found[parameter]) is type(expected), parameter


@pytest.mark.parametrize(("name", "parameter"), ROWS)
def test_another_value_survives(name: str, parameter: str, files: Files) -> None:
    """A pickle keeps the value; a state of the default is refused with the name, or loads if the parameter is free."""
    [row] = [row for row in TABLES[name] if row["name"] == parameter]
    found = case(name, parameter, files)
    settings = {key: value for key, value in base(name, files).items() if key not in found.without} | found.beside
    make = LOADERS[name]
    with make(**settings) as one, make(**settings | {parameter: found.value}) as other:
        before, after = keywords(one), keywords(other)
        assert {key for key in after if before[key] != after[key]} == {parameter}
        assert after[parameter] == found.value
        with pickle.loads(pickle.dumps(other)) as copy:
            for key, value in keywords(copy).items():
                assert key == "dataset" or value == after[key], key
        state = one.state_dict()
        if row["identity"] != "free":
            with pytest.raises(forebay.StateError, match=rf"\b{found.named or parameter} is "):
                other.load_state_dict(state)
            return
        assert other.state_dict()["config"] == state["config"]
        other.load_state_dict(state)
        if not found.other_batches:
            assert all(same(next(one), next(other)) for _ in range(3))


@pytest.mark.parametrize(("name", "parameter"), ROWS)
def test_wrong_type(name: str, parameter: str, files: Files) -> None:
    """The message has the parameter, the value, its type and the expected type."""
    settings = base(name, files) | {parameter: Odd()}
    # Options may be secrets, so their error quotes no value.
    value = "of type Odd" if parameter == "storage_options" else r"<wrong.Odd object at \w+> \(type Odd\)"
    message = rf"^{parameter} is {value}, must be (a|an|the|True)\b"
    with pytest.raises(TypeError, match=message):
        LOADERS[name](**settings)


@pytest.mark.parametrize(("name", "parameter"), ROWS)
def test_names_of_other_libraries(name: str, parameter: str, files: Files) -> None:
    [row] = [row for row in TABLES[name] if row["name"] == parameter]
    # What other libraries call a longest duration leaves rows out: that is `sampling.Where`.
    assert row["elsewhere"] or parameter == "max_decoded_seconds"
    for other in [*row["elsewhere"], f"{parameter}x"]:
        message = rf"^{name}\(\) got an unexpected keyword argument '{other}'; .*\b{parameter}\b"
        with pytest.raises(TypeError, match=message):
            LOADERS[name](**base(name, files), **{other: 1})


def test_ranges_come_together(files: Files) -> None:
    """Types are checked first; all other problems are in one error."""
    with pytest.raises(forebay.ConfigError) as raised:
        forebay.Loader(
            [],
            seed=-1,
            batch_size=0,
            n_workers="many",  # type: ignore[arg-type]
            allow_paths="",
            dtype="int8",
            on_error="ignore",  # type: ignore[arg-type]
            max_consecutive_errors=0,
            clip_seconds=10**400,
        )
    for part in [
        "seed is -1, must be 0 to 18446744073709551615",
        "batch_size is 0, must be 1 to 1048576",
        "n_workers is 'many', must be a whole number or \"auto\"",
        "allow_paths is '', must be a folder",
        "arrow_files is empty",
        'dtype is "int8", must be "float32", "float16" or "bfloat16"',
        'on_error is "ignore", must be "skip" or "raise"',
        "max_consecutive_errors is 0, must be 1 or more",
        "clip_seconds is inf, must be above 0 and at most 3600",
    ]:
        assert part in str(raised.value), part
    with pytest.raises(TypeError, match=r"^batch_size is '64' "):
        forebay.Loader(files.shards, seed=-1, batch_size="64")  # type: ignore[arg-type]


def test_arguments_are_bound_as_python_does(files: Files) -> None:
    loader: Any = forebay.Loader
    for arguments, given, message in [
        ((), {}, "Loader() missing 1 required positional argument: 'arrow_files'"),
        ((1,) * 15, {}, "Loader() takes from 1 to 14 positional arguments but 15 were given"),
        ((files.shards, 1), {"seed": 1}, "Loader() got multiple values for argument 'seed'"),
        ((files.shards,), {"qwertyuiop": 1}, "'qwertyuiop'; help(forebay.Loader) lists the parameters"),
    ]:
        with pytest.raises(TypeError, match=re.escape(message) + "$"):
            loader(*arguments, **given)
    for preset in (loader.train, loader.eval):
        message = f"{preset.__qualname__}() takes 1 positional argument but 3 were given; name the others, as in "
        with pytest.raises(TypeError, match=re.escape(message) + r"Loader\.\w+\(arrow_files, seed=\.\.\.\)$"):
            preset(files.shards, 3, 16)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'arrow_files'"):
            preset()
        assert list(inspect.signature(preset).parameters) == ["arrow_files", "overrides"]
        with preset(arrow_files=files.shards, **TINY) as named:
            assert named.num_records == 120
    tokens: Any = forebay.TokenLoader
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'parquet_files'$"):
        tokens()
    with forebay.Loader(files.shards, 3, 16, **TINY) as one:
        assert (keywords(one)["seed"], keywords(one)["batch_size"]) == (3, 16)


def test_values_are_shown_in_part(files: Files) -> None:
    class Hidden:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(TypeError, match=r"^seed is '8{59}\.\.\. \(type str\), must be an int$"):
        forebay.Loader(files.shards, seed="8" * 1000)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^seed is not printable \(type Hidden\), must be an int$"):
        forebay.Loader(files.shards, seed=Hidden())  # type: ignore[arg-type]


def test_presets(files: Files) -> None:
    """`train` has the defaults but for `drop_last`, `eval` the values of its column in the table."""
    assert {row["name"]: row["eval"] for row in TABLES["Loader"] if row["eval"] is not None} == {
        "shuffle_buffer_size": "1000",
        "shuffle_min_size": "0",
        "n_workers": "4",
        "infinite": "False",
        "augment": "False",
    }
    with (
        forebay.Loader(files.shards) as loader,
        forebay.Loader.train(files.shards) as train,
        forebay.Loader.eval(files.shards) as other,
        forebay.Loader.eval(files.shards, n_workers=3) as overridden,
    ):
        assert keywords(train) == keywords(loader) | {"drop_last": True}
        changed = {"shuffle_buffer_size": 1000, "shuffle_min_size": 0, "n_workers": 4}
        changed |= {"infinite": False, "augment": False}
        assert keywords(other) == keywords(loader) | changed
        assert keywords(overridden) == keywords(loader) | changed | {"n_workers": 3}
