"""`forebay.jax`, in one process with two devices and in two processes."""

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fields
import forebay
from digests import digest
from forebay._jagged import JaggedArray
from forebay.batching import Buckets
from forebay.cache import DataLoader, ListAsyncDataset
from paths import DATA
from recordings import SMALL, TINY, Row, write_shard
from utterances import UTTERANCES
from wrong import assert_named

jax = pytest.importorskip("jax")
jax.config.update("jax_num_cpu_devices", 2)

from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import forebay.jax  # noqa: E402
from forebay.jax import batches, rank_and_world_size  # noqa: E402


@pytest.fixture(scope="module")
def sharding() -> Any:
    """A sharding of examples over two devices."""
    return NamedSharding(jax.make_mesh((2,), ("data",)), PartitionSpec("data"))


def narrow(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: values.astype(np.int32) if values.dtype == np.int64 else values for name, values in batch.items()}


def of(batch: dict[str, Any]) -> str:
    return digest({name: np.asarray(array) for name, array in batch.items()})


def digests(files: list[Path], n: int, **overrides: Any) -> list[str]:
    with forebay.Loader(files, **{**SMALL, **overrides}) as loader:
        return [digest(narrow(batch)) for batch in islice(loader, n)]


def test_kept_arrays_never_change(tiny_shards: list[Path]) -> None:
    """Kept arrays do not change: on the CPU they may share the loader's memory, which is then not recycled."""
    with forebay.Loader(tiny_shards, **{**SMALL, "batch_size": 300, "n_mels": 64}) as loader:
        kept = list(islice(batches(loader), 12))
    assert {name: str(array.dtype) for name, array in kept[0].items()} == {
        "spectrogram": "float32",
        "label": "int32",
        "index": "int32",
    }
    assert [of(batch) for batch in kept] == digests(tiny_shards, 12, batch_size=300, n_mels=64)


def test_over_two_devices(tiny_shards: list[Path], sharding: Any) -> None:
    with forebay.Loader(tiny_shards, **SMALL) as loader:
        found = list(islice(batches(loader, sharding), 5))
    for batch in found:
        for array in batch.values():
            assert [shard.data.shape[0] for shard in array.addressable_shards] == [8, 8]
            assert {shard.device for shard in array.addressable_shards} == set(jax.devices())
    assert [of(batch) for batch in found] == digests(tiny_shards, 5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_spectrograms_of_two_bytes(dtype: str, tiny_shards: list[Path], sharding: Any) -> None:
    """16-bit spectrograms have JAX's own type, with and without padding."""
    finite = {**SMALL, "infinite": False, "dtype": dtype}
    with forebay.Loader(tiny_shards, **{**SMALL, "infinite": False}) as plain:
        expected = [jax.numpy.asarray(batch["spectrogram"]).astype(dtype) for batch in plain]
    with forebay.Loader(tiny_shards, **finite) as loader, forebay.Loader(tiny_shards, **finite) as padded:
        for values, batch, full in zip(expected, batches(loader), batches(padded, sharding, pad_to=16), strict=True):
            assert batch["spectrogram"].dtype == full["spectrogram"].dtype == dtype
            assert (batch["spectrogram"] == values).all()
            assert (np.asarray(full["spectrogram"])[: len(values)] == np.asarray(values)).all()
            assert (np.asarray(full["spectrogram"])[len(values) :] == 0).all()


def test_the_state_is_that_of_the_batch_returned(tiny_shards: list[Path]) -> None:
    with forebay.Loader(tiny_shards, **SMALL) as loader:
        list(islice(batches(loader), 7))
        state = json.loads(json.dumps(loader.state_dict()))
    with forebay.Loader(tiny_shards, **SMALL) as resumed:
        resumed.load_state_dict(state)
        assert [of(batch) for batch in islice(batches(resumed), 5)] == digests(tiny_shards, 12)[7:]


def test_each_loop_is_a_pass(tiny_shards: list[Path]) -> None:
    """As over the loader; `next()` continues the pass, also of a loop that was left, and ends with it."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        passes = [[digest(narrow(batch)) for batch in loader] for _ in range(4)]
    assert len({*map(str, passes)}) == 4
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        made = batches(loader)
        assert of(next(made)) == passes[0][0]
        assert [[of(batch) for batch in made] for _ in range(2)] == passes[1:3]
        with pytest.raises(StopIteration):
            next(made)
        assert [of(batch) for batch in islice(made, 1)] == passes[3][:1]
        assert [of(next(made)) for _ in passes[3][1:]] == passes[3][1:]
        with pytest.raises(StopIteration):
            next(made)


def test_finite_passes_are_padded(tiny_shards: list[Path], sharding: Any) -> None:
    """Batches are padded; most of them are short, because every 20th of the 300 rows is bad."""
    with forebay.Loader(tiny_shards, **SMALL, infinite=False) as loader:
        with pytest.raises(forebay.ConfigError, match=r"pad_to is None; a finite loader needs pad_to=16,"):
            batches(loader, sharding)
        with pytest.raises(forebay.ConfigError, match="pad_to is 0, must be 1 to"):
            batches(loader, pad_to=0)
        assert_named(batches, "pad_to", loader=loader)
        with pytest.raises(TypeError, match=r"pad_to is '.*' \(type str\), must be an int"):
            batches(loader, sharding, pad_to="batch_size")  # type: ignore[arg-type]
        with pytest.raises(forebay.ConfigError, match="pad_to is 3, must be batch_size, but a batch has 1"):
            list(batches(loader, pad_to=3))
        expected, found = list(loader), list(batches(loader, sharding, pad_to=16))
        again = list(batches(loader, pad_to=16))
    assert len(found) == len(again) == len(expected) == 19
    assert {batch["spectrogram"].shape for batch in found} == {(16, 8, 6)}
    real = [np.asarray(batch["index"]) >= 0 for batch in found]
    rows = np.concatenate([np.asarray(batch["index"])[keep] for batch, keep in zip(found, real, strict=True)])
    assert sorted(rows) == sorted(set(range(300)) - set(range(7, 300, 20)))
    for batch, keep in zip(found, real, strict=True):
        assert (np.asarray(batch["label"])[~keep] == -1).all()
        assert (np.asarray(batch["spectrogram"])[~keep] == 0).all()


def test_wrong_types_are_named(tiny_shards: list[Path], sharding: Any) -> None:
    wrong: list[Any] = ["data", sharding.mesh, sharding.spec, jax.devices()[0], ("data",)]
    with forebay.Loader(tiny_shards, **SMALL) as loader:
        for other in wrong:
            message = rf"sharding must be a NamedSharding, not {type(other).__name__}; .*NamedSharding\(mesh, Part"
            with pytest.raises(TypeError, match=message):
                batches(loader, other)
            with pytest.raises(TypeError, match=message):
                rank_and_world_size(other)
    for other in ("a.arrow", tiny_shards[0], [{"x": 1}], None):
        with pytest.raises(TypeError, match=rf"'loader': a forebay.Loader, .* expected, not {type(other).__name__}$"):
            batches(other, sharding)  # type: ignore[arg-type]


def test_the_padding_that_a_finite_loader_of_rows_needs(sharding: Any) -> None:
    with DataLoader(ListAsyncDataset([{"x": i} for i in range(10)]), 4) as loader:
        with pytest.raises(forebay.ConfigError, match="needs pad_to=4, the loader's batch_size"):
            batches(loader, sharding)
        assert [len(batch["x"]) for batch in batches(loader, sharding, pad_to=4)] == [4, 4, 4]


def test_row_numbers_that_do_not_fit() -> None:
    from forebay.jax import _to_device

    row = {"index": np.array([2**31])}
    with pytest.raises(OverflowError, match="index 2147483648 does not fit int32; set jax_enable_x64"):
        _to_device(row, None)
    with jax.enable_x64(True):
        assert _to_device(row, None)["index"].tolist() == [2**31]


def test_frameworks_are_not_imported_unasked() -> None:
    script = "import sys, forebay; sys.exit(bool({'jax', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_one_process(sharding: Any) -> None:
    assert rank_and_world_size() == {"rank": 0, "world_size": 1}
    assert rank_and_world_size(sharding) == {"rank": 0, "world_size": 1}
    assert rank_and_world_size(NamedSharding(sharding.mesh, PartitionSpec())) == {"rank": 0, "world_size": 1}


def test_a_batch_that_is_interrupted_is_not_lost(tiny_shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        if next(calls) % 3 == 1:
            raise KeyboardInterrupt
        return padded(*arguments)

    calls, padded = count(), forebay.jax._padded
    monkeypatch.setattr(forebay.jax, "_padded", interrupted)
    with forebay.Loader(tiny_shards, **SMALL) as loader:
        found: list[str] = []
        while len(found) < 9:
            with suppress(KeyboardInterrupt):
                found.extend(map(of, batches(loader)))
    assert found[:9] == digests(tiny_shards, 9)


@dataclass(frozen=True)
class Device:
    process_index: int
    number: int


@pytest.mark.parametrize(
    ("starts", "ranks"),
    [
        ([[0, 1], [2, 3]], [(0, 2), (1, 2)]),
        ([[2, 3], [0, 1]], [(1, 2), (0, 2)]),
        ([[0, 2], [1, 3]], [(0, 2), (1, 2)]),
        ([[0, 1], [0, 1]], [(0, 1), (0, 1)]),
        ([[0, 0], [1, 1]], [(0, 2), (1, 2)]),
        ([[0, 0], [1, 1], [0, 0], [1, 1]], [(0, 2), (1, 2), (0, 2), (1, 2)]),
        ([[0, 1], [1, 2]], "overlap"),
        ([[0, 1], [2, 2]], "differ in size"),
        ([[], [0, 1]], "has no device of this process, 0"),
    ],
)
def test_ranks_of_a_sharding(sharding: Any, monkeypatch: pytest.MonkeyPatch, starts: Any, ranks: Any) -> None:
    """Rank and world size follow from the sharding; `starts` has the parts of a batch on each process's devices."""
    devices = {
        Device(process, number): (slice(start, start + 1),)
        for process, parts in enumerate(starts)
        for number, start in enumerate(parts)
    }
    monkeypatch.setattr(NamedSharding, "devices_indices_map", lambda *_: devices)
    for process in range(len(starts)):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        if isinstance(ranks, str):
            with pytest.raises(forebay.ConfigError, match=ranks):
                rank_and_world_size(sharding)
            break
        rank, world_size = ranks[process]
        assert rank_and_world_size(sharding) == {"rank": rank, "world_size": world_size}


SCRIPT = """
import json, sys
from itertools import islice
files, parameters, address, rank = json.loads(sys.argv[1])
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(address, num_processes=2, process_id=rank)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import forebay, forebay.jax
sharding = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
ranks = forebay.jax.rank_and_world_size(sharding)
assert ranks == forebay.jax.rank_and_world_size() == {"rank": rank, "world_size": 2}
devices = np.array(jax.devices()).reshape(2, 2)
for mesh, spec, expected in [
    (Mesh(devices, ("data", "model")), PartitionSpec("data", None, "model"), (rank, 2)),
    (Mesh(devices.T, ("data", "model")), PartitionSpec("data"), (0, 1)),
    (Mesh(devices, ("model", "data")), PartitionSpec("data"), (0, 1)),
    (Mesh(devices, ("data", "model")), PartitionSpec(("data", "model")), (rank, 2)),
]:
    found = forebay.jax.rank_and_world_size(NamedSharding(mesh, spec))
    assert found == dict(zip(("rank", "world_size"), expected)), (mesh, spec, found)
mean = jax.jit(lambda batch: batch["spectrogram"].mean(axis=(1, 2)) * batch["index"])
with forebay.Loader(files, **parameters, **ranks) as loader:
    for batch in islice(forebay.jax.batches(loader, sharding), 3):
        assert batch["spectrogram"].shape == (16, 8, 6)
        rows = [shard.data.tolist() for shard in batch["index"].addressable_shards]
        print(json.dumps([rows, float(mean(batch).sum())]))
"""


def test_two_processes(tiny_shards: list[Path]) -> None:
    """Each process holds its rows of the batch of one process, and both compute on the same global batch."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    parameters = {**SMALL, "order": "global"}

    def start(rank: int) -> subprocess.Popen[str]:
        arguments = json.dumps([[str(path) for path in tiny_shards], {**parameters, "batch_size": 8}, address, rank])
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, arguments], env=environment, stdout=subprocess.PIPE, text=True
        )

    processes = [start(rank) for rank in range(2)]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    with forebay.Loader(tiny_shards, **parameters) as loader:
        whole = list(islice(loader, 3))
    first, second = (
        [json.loads(line) for line in output.splitlines() if line.startswith("[[")]  # without the output of Gloo
        for output in outputs
    )
    for batch, (rows, mean), (other_rows, other_mean) in zip(whole, first, second, strict=True):
        assert [*rows, *other_rows] == batch["index"].reshape(4, 4).tolist()
        assert (
            mean == other_mean == pytest.approx((batch["spectrogram"].mean(axis=(1, 2)) * batch["index"]).sum(), 1e-4)
        )


def test_tokens(sharding: Any) -> None:
    """A `TokenLoader`'s batches, also over two devices; a batch whose conversion failed is returned again."""
    shape: dict[str, Any] = {"batch_size": 4, "seq_len": 512, "n_workers": 2}
    with forebay.TokenLoader(DATA / "token-golden", DATA / "tokens" / "gpt2.tiktoken", **shape) as loader:
        start = loader.state_dict()
        expected = [batch["inputs"].copy() for batch in islice(loader, 3)]
        for parts in (None, sharding):
            loader.load_state_dict(start)
            for batch, inputs in zip(batches(loader, parts), expected, strict=False):
                np.testing.assert_array_equal(np.asarray(batch["inputs"]), inputs)
                np.testing.assert_array_equal(np.asarray(batch["inputs"])[:, 1:], np.asarray(batch["targets"])[:, :-1])
        loader.load_state_dict(start)
        with pytest.raises(forebay.ConfigError, match="pad_to is 3"):
            next(batches(loader, pad_to=3))
        np.testing.assert_array_equal(next(loader)["inputs"], expected[0])


def test_rows_of_a_dataset() -> None:
    """A `forebay.cache.DataLoader`'s batches; a batch whose conversion failed is returned again."""
    from forebay.cache import DataLoader, ListAsyncDataset

    with DataLoader(ListAsyncDataset([{"x": i} for i in range(10)]), 4) as loader:
        with pytest.raises(forebay.ConfigError, match="pad_to is 3"):
            next(batches(loader, pad_to=3))
        assert [batch["x"].tolist() for batch in batches(loader, pad_to=4)] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9, -1, -1],
        ]


def test_fields_are_what_the_loader_makes() -> None:
    """uint16 becomes bfloat16 only for fields that the loader declares, not by a field's name."""
    values = np.arange(6, dtype=np.uint16)
    with DataLoader(ListAsyncDataset([{"spectrogram": values}] * 8), 4) as loader:
        found = next(batches(loader))["spectrogram"]
    assert found.dtype == np.uint16
    assert (np.asarray(found) == values).all()


@pytest.mark.parametrize("value", [-(2**31) - 1, -(2**63), 2**31, 2**63 - 1])
def test_integers_that_do_not_fit_are_refused(value: int) -> None:
    """Integers beyond int32 raise in both directions; JAX would wrap them silently."""
    fitting = [-(2**31), 2**31 - 1]
    rows = [{"x": np.array([0, other])} for other in [*fitting, value]]
    with DataLoader(ListAsyncDataset(rows), 2) as loader:
        of_loader = batches(loader)
        assert np.asarray(next(of_loader)["x"]).tolist() == [[0, other] for other in fitting]
        with pytest.raises(OverflowError, match=rf"x {value} does not fit int32; set jax_enable_x64"):
            next(of_loader)


def test_a_batch_without_rows(sharding: Any, tmp_path: Path) -> None:
    """A batch of a rank whose recordings are all bad is padded with rows of index -1."""
    shard = write_shard(tmp_path / "a.arrow", [Row(b"not a recording", 0)] * 4)
    parameters: Any = {**TINY, "batch_size": 2}
    with forebay.Loader.eval(shard, **parameters, world_size=2) as loader:
        found = list(batches(loader, sharding, pad_to=2))
        plain = list(batches(loader))
    assert [batch["spectrogram"].shape for batch in found] == [(2, 8, 6)]
    assert np.asarray(found[0]["index"]).tolist() == [-1, -1]
    assert [batch["spectrogram"].shape for batch in plain] == [(0, 8, 6)]


GIVEN: dict[str, Any] = {
    "targets": {
        "label": forebay.targets.MultiHot("labels", classes=4),
        "x": forebay.targets.Number("x", dtype="float16"),
        "text": forebay.targets.Text("text"),
    },
    "columns": ["names", "small", "audio.path"],
}
"""Targets and columns that can be sharded, and text."""


@pytest.fixture(scope="module")
def fields_shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fields.table({
        "labels": [[*range(i % 4)] for i in range(fields.N)], "x": [i / 4 for i in range(fields.N)],
        "text": [f"text {i}" for i in range(fields.N)], "names": [["a", "b"][: i % 3] for i in range(fields.N)],
        "small": pa.array(range(fields.N), pa.uint8()),
    })  # fmt: skip
    return fields.write(tmp_path_factory.mktemp("fields") / "a", made)


def test_whole_recordings_in_batches_by_duration(utterances: Path, sharding: Any) -> None:
    """A compiled step sees few shapes; over devices, batches have as many rows each."""
    given = {**UTTERANCES, "batching": Buckets(0.4, num_buckets=3, max_examples=4, pad_to="bucket")}
    shapes = set()

    def sums(spectrogram: Any, valid_frames: Any) -> Any:
        shapes.add(spectrogram.shape)  # traced once for each shape
        is_valid = jax.numpy.arange(spectrogram.shape[-1]) < valid_frames[:, None, None]
        return jax.numpy.where(is_valid, spectrogram, 0).sum((1, 2))

    step = jax.jit(sums)
    for infinite in (False, True):
        for over, rows in ((None, None), (sharding, 4)):
            with (
                forebay.Loader(utterances, **given, infinite=infinite) as plain,
                forebay.Loader(utterances, **given, infinite=infinite) as loader,
            ):
                found = []
                for expected, batch in zip(
                    islice(plain, 40), islice(batches(loader, over, pad_to=rows), 40), strict=True
                ):
                    n = len(expected["index"])
                    found += expected["index"].tolist()
                    for name, values in narrow(expected).items():
                        assert (np.asarray(batch[name])[:n] == values).all()
                    of_rows = np.asarray(step(batch["spectrogram"], batch["valid_frames"]))
                    frames = [
                        row[:, :m] for row, m in zip(expected["spectrogram"], expected["valid_frames"], strict=True)
                    ]
                    assert np.allclose(of_rows[:n], [row.sum() for row in frames], rtol=1e-4)
                    assert (of_rows[n:] == 0).all()
                if not infinite:
                    assert sorted(found) == [*range(60)]
    lengths = {shape[-1] for shape in shapes}
    assert len(shapes) <= 4 * len(lengths), "rows of 1 to 4"
    with (
        forebay.Loader(utterances, **given, infinite=True) as loader,
        pytest.raises(
            forebay.ConfigError, match=r"a batch has [13] rows, and the devices .* 2 equal shares; give pad_to"
        ),
    ):
        for _ in islice(batches(loader, sharding), 40):
            pass


def test_targets_and_columns(fields_shard: Path) -> None:
    """Numbers become arrays, lists of numbers a `JaggedArray` of arrays; text stays as it is."""
    given = {**fields.ONE_PASS, **GIVEN, "columns": [*GIVEN["columns"], "labels"]}
    with forebay.Loader(fields_shard, **given) as plain, forebay.Loader(fields_shard, **given) as loader:
        for expected, found in zip(plain, batches(loader), strict=True):
            assert list(found) == list(expected)
            for name, value in found.items():
                assert fields.rows(expected[name]) == (
                    value if isinstance(value, list) else [np.asarray(row).tolist() for row in value]
                )
            assert isinstance(found["labels"], JaggedArray)
            assert isinstance(found["labels"].data, jax.Array)
            assert str(found["label"].dtype) == "float32"


def test_targets_and_columns_over_two_devices(fields_shard: Path, sharding: Any) -> None:
    """Padded rows have zeros, -1, empty text and empty lists of text; a jagged field cannot be sharded."""
    given = {**fields.ONE_PASS, **GIVEN, "batch_size": 10}
    with forebay.Loader(fields_shard, **given) as plain, forebay.Loader(fields_shard, **given) as loader:
        for expected, found in zip(plain, batches(loader, sharding, pad_to=10), strict=True):
            n = len(expected["index"])
            for name, value in found.items():
                assert len(value) == 10
                nothing: Any = {"text": "", "names": [], "audio.path": "", "small": 0, "index": -1}.get(name)
                if isinstance(value, list):
                    assert value == expected[name] + [nothing] * (10 - n)
                    continue
                assert [shard.data.shape[0] for shard in value.addressable_shards] == [5, 5]
                assert (np.asarray(value)[:n] == expected[name]).all()
                assert (np.asarray(value)[n:] == (nothing or 0)).all()
    with (
        forebay.Loader(fields_shard, **{**given, "columns": ["labels"]}) as loader,
        pytest.raises(forebay.ConfigError, match="labels has rows of different lengths, which cannot be sharded"),
    ):
        next(iter(batches(loader, sharding, pad_to=10)))
