"""`forebay.torch`: tensors, ranks, packed tokens; tests that need a GPU are skipped without one."""

import json
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import launched
from digests import digest
from documents import encode
from recordings import SMALL, TINY, Row, write_shard
from tensors import digests, is_infinite, needs_gpu, of
from wrong import assert_named

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

import forebay.torch  # noqa: E402
from forebay._jagged import JaggedArray  # noqa: E402
from forebay.torch import DevicePrefetcher, IterableDataset, rank_and_world_size, to_tensors  # noqa: E402


def test_tensors_share_memory(loader: forebay.Loader) -> None:
    batch = next(loader)
    tensors = to_tensors(batch)
    assert {name: str(tensor.dtype) for name, tensor in tensors.items()} == {
        "spectrogram": "torch.float32",
        "label": "torch.int64",
        "index": "torch.int64",
    }
    for name, tensor in tensors.items():
        assert tensor.data_ptr() == batch[name].ctypes.data
        assert tensor.is_contiguous()
    tensors["spectrogram"][0, 0, 0] = 7
    assert batch["spectrogram"][0, 0, 0] == 7


def test_other_fields_pass() -> None:
    fields: dict[str, Any] = {"path": ["a", "b"], "name": np.array(["a", "b"]), "clean": np.array([True, False])}
    tensors = to_tensors(fields)
    assert tensors["path"] is fields["path"]
    assert tensors["name"] is fields["name"]
    assert tensors["clean"].tolist() == [True, False]


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = to_tensors({"x": np.array([1.5, -2.0], ml_dtypes.bfloat16)})["x"]
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [1.5, -2.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_spectrograms_of_two_bytes(dtype: str, tiny_shards: list[Path]) -> None:
    """16-bit spectrograms have torch's own type and rounding, in the memory of the array."""
    with forebay.Loader(tiny_shards, **SMALL) as plain, forebay.Loader(tiny_shards, **SMALL, dtype=dtype) as loader:
        for expected, arrays in islice(zip(plain, loader, strict=True), 4):
            spectrogram = to_tensors(arrays, loader)["spectrogram"]
            assert spectrogram.data_ptr() == arrays["spectrogram"].__array_interface__["data"][0]
            assert torch.equal(spectrogram, torch.from_numpy(expected["spectrogram"]).to(getattr(torch, dtype)))
        batch = next(iter(DevicePrefetcher(IterableDataset(loader), "cpu")))
        assert batch["spectrogram"].dtype == getattr(torch, dtype)
        assert next(iter(DevicePrefetcher(loader, "cpu")))["spectrogram"].dtype == getattr(torch, dtype)
        # Other uint16 fields are whole numbers, also with the name "spectrogram" if no such loader made them.
        for name in ("tokens", "spectrogram"):
            assert to_tensors({name: np.zeros(3, np.uint16)})[name].dtype == torch.int32
    with forebay.Loader(tiny_shards, **SMALL) as plain:
        assert to_tensors({"spectrogram": np.zeros(3, np.uint16)}, plain)["spectrogram"].dtype == torch.int32


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("uint16", torch.int32), ("uint32", torch.int64), ("uint64", torch.int64), ("int32", torch.int32)],
)
def test_embeddings_take_all_whole_numbers(dtype: str, wide: Any) -> None:
    """Unsigned types, which embeddings refuse, become signed ones without a change of value."""
    ids = np.array([0, 7, 2 ** (8 * np.dtype(dtype).itemsize - 1) - 1], dtype)
    jagged = JaggedArray(ids, np.array([0, 1, 3]))
    for tensor in (to_tensors({"ids": ids})["ids"], to_tensors({"ids": jagged})["ids"].data):
        assert tensor.dtype == wide
        assert tensor.tolist() == ids.tolist()
        assert torch.nn.Embedding(8, 2)(tensor[:2]).shape == (2, 2)
    assert to_tensors({"ids": np.zeros(0, dtype)})["ids"].dtype == wide


def test_numbers_beyond_int64_are_refused() -> None:
    with pytest.raises(OverflowError, match="ids has 9223372036854775808, beyond int64"):
        to_tensors({"ids": np.array([1, 2**63], np.uint64)})


def test_kept_tensors_never_change(tiny_shards: list[Path]) -> None:
    """Kept tensors do not change: their memory is not recycled although the arrays are dropped."""
    with forebay.Loader(tiny_shards, **{**SMALL, "batch_size": 300, "n_mels": 64}) as loader:
        kept = [batch for batch, _ in zip(IterableDataset(loader), range(12), strict=False)]
    assert [of(batch) for batch in kept] == digests(tiny_shards, 12, batch_size=300, n_mels=64)


class Interrupted:
    """A function that Ctrl-C interrupts in two of five calls, before or after its work."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.calls = count()

    def __call__(self, *arguments: Any) -> Any:
        match next(self.calls) % 5:
            case 1:
                raise KeyboardInterrupt
            case 3:
                self.function(*arguments)
                raise KeyboardInterrupt
        return self.function(*arguments)


def test_an_interrupted_conversion_loses_nothing(
    loader: forebay.Loader, tiny_shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted conversion loses no batch in the continued loop, in a new loop or in the state."""
    infinite = is_infinite(loader)
    expected = digests(tiny_shards, 19, infinite=infinite)
    monkeypatch.setattr(forebay.torch, "to_tensors", interrupted := Interrupted(to_tensors))
    dataset = IterableDataset(loader)
    found: list[str] = []
    batches = iter(dataset)
    while len(found) < 19:
        with suppress(KeyboardInterrupt):
            found.append(of(next(batches)))
            continue
        with forebay.Loader(tiny_shards, **SMALL, infinite=infinite) as resumed:
            resumed.load_state_dict(dataset.state_dict())
            assert digest(next(iter(resumed))) == expected[len(found)]
        if infinite:
            batches = iter(dataset)
    assert found == expected
    assert next(interrupted.calls) > 25


def test_wrong_types_are_named(loader: forebay.Loader) -> None:
    assert_named(DevicePrefetcher, "depth", batches=loader, device="cpu")
    assert_named(IterableDataset, "pin_memory", loader=loader)
    assert_named(IterableDataset, "loader")
    assert_named(DevicePrefetcher, "batches", device="cpu")


@pytest.mark.parametrize("wrong", ["a.arrow", b"a.arrow", Path("a.arrow"), ["a.arrow"], {"x": [1]}, None, 3])
def test_paths_and_batches_are_no_loader(wrong: Any) -> None:
    kind = type(wrong).__name__
    with pytest.raises(TypeError, match=rf"'loader': a forebay.Loader, .* is expected, not {kind}$"):
        IterableDataset(wrong)
    with pytest.raises(TypeError, match=rf"'loader': a forebay.Loader, .* is expected, not {kind}$"):
        forebay.torch.token_batches(wrong, "cpu")
    if isinstance(wrong, list):  # an iterable, if not of dicts
        return
    with pytest.raises(TypeError, match=rf"'batches': a loader, .* iterable of dicts is expected, not {kind}$"):
        DevicePrefetcher(wrong, "cpu")


def test_wrong_devices_and_depths(loader: forebay.Loader) -> None:
    with pytest.raises(forebay.ConfigError, match="device is meta"):
        DevicePrefetcher(loader, "meta")
    with pytest.raises(forebay.ConfigError, match="depth is 0"):
        DevicePrefetcher(loader, "cpu", depth=0)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 3)])
def test_a_device_that_is_not_there(loader: forebay.Loader, monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = f"device is {device}, but no CUDA device is available; pass device='cpu'"
    with pytest.raises(forebay.ConfigError, match=message):
        DevicePrefetcher(loader, device)
    with pytest.raises(forebay.ConfigError, match=message):
        forebay.torch.token_batches(loader, device)  # type: ignore[arg-type]


def test_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert rank_and_world_size() == {"rank": 0, "world_size": 1}
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE is 4 .* init_process_group"):
        rank_and_world_size()
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert rank_and_world_size() == {"rank": 0, "world_size": 1}
    finally:
        torch.distributed.destroy_process_group()


def test_batches_without_rows(tmp_path: Path) -> None:
    """A rank whose recordings are all bad yields batches without rows; in one process the pass ends with an error."""
    shard = write_shard(tmp_path / "a.arrow", [Row(b"not a recording", 0)] * 8)
    parameters: Any = {**TINY, "batch_size": 2}
    with forebay.Loader.eval(shard, **parameters, world_size=2) as loader:
        dataset = IterableDataset(loader)
        for batches in (dataset, DevicePrefetcher(loader, "cpu"), DataLoader(dataset, batch_size=None)):
            found = [(len(batch["index"]), tuple(batch["spectrogram"].shape)) for batch in batches]
            assert found == [(0, (0, 8, 6))] * 2
    with forebay.Loader.eval(shard, **parameters) as loader:
        assert len(IterableDataset(loader)) == 4
        for whole in (IterableDataset(loader), DevicePrefetcher(loader, "cpu")):
            with pytest.raises(forebay.DecodeError, match="no good record: 8 of 8"):
                next(iter(whole))


class TestTokens:
    """`token_batches` over a real `TokenLoader`."""

    @pytest.fixture
    def loader(self, tmp_path: Path) -> Iterator[forebay.TokenLoader]:
        texts = [f"document {number} " * (number % 40 + 1) for number in range(300)]
        for name in ["a.parquet", "b.parquet"]:
            pq.write_table(pa.table({"text": texts}), tmp_path / name, row_group_size=100)
        with forebay.TokenLoader(
            tmp_path, lambda text: list(text.encode()), batch_size=4, seq_len=63, buffer_size=20, bos_id=256
        ) as loader:
            yield loader

    def test_on_the_cpu(self, loader: forebay.TokenLoader) -> None:
        start = loader.state_dict()
        arrays = [next(loader) for _ in range(6)]
        loader.load_state_dict(start)
        kept = list(islice(forebay.torch.token_batches(loader, "cpu"), 6))
        for batch, (inputs, targets, _) in zip(arrays, kept, strict=True):
            assert inputs.dtype == torch.int64
            np.testing.assert_array_equal(inputs.numpy(), batch["inputs"])
            np.testing.assert_array_equal(targets.numpy(), batch["targets"])
        loader.load_state_dict(kept[2][2])
        inputs, targets = next(forebay.torch.token_batches(loader, "cpu", with_state=False))
        np.testing.assert_array_equal(inputs.numpy(), arrays[3]["inputs"])
        np.testing.assert_array_equal(targets.numpy(), arrays[3]["targets"])
        with pytest.raises(forebay.ConfigError, match="meta"):
            forebay.torch.token_batches(loader, "meta")

    @pytest.mark.parametrize("with_state", [False, True])
    def test_each_loop_is_a_pass(self, tmp_path: Path, with_state: bool) -> None:
        """As over the loader; `next()` continues the pass, also of a loop that was left, and ends with it."""
        texts = [f"document {number} " * (number % 40 + 1) for number in range(300)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=50)

        def make() -> forebay.TokenLoader:
            return forebay.TokenLoader(
                tmp_path / "a.parquet", lambda text: list(text.encode()), val=[], batch_size=32, seq_len=63,
                buffer_size=20, bos_id=256, seed=1, infinite=False,
            )  # fmt: skip

        with make() as loader:
            passes = [[batch["inputs"].tolist() for batch in loader] for _ in range(4)]
        assert all(len(one) > 1 for one in passes)
        assert len({*map(str, passes)}) == 4
        with make() as loader:
            made = forebay.torch.token_batches(loader, "cpu", with_state)
            assert next(made)[0].tolist() == passes[0][0]
            assert [[batch[0].tolist() for batch in made] for _ in range(2)] == passes[1:3]
            with pytest.raises(StopIteration):
                next(made)
            assert [batch[0].tolist() for batch in islice(made, 1)] == passes[3][:1]
            assert [next(made)[0].tolist() for _ in passes[3][1:]] == passes[3][1:]
            with pytest.raises(StopIteration):
                next(made)

    @pytest.mark.parametrize(("batch_size", "seq_len"), [(1, 7), (4, 63), (3, 1365), (16, 511), (4, 2048), (2, 5000)])
    @pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
    def test_both_go_in_one_copy(self, tmp_path: Path, batch_size: int, seq_len: int, dtype: str) -> None:
        """Inputs and targets are copied to the device (here the CPU) at once, for any size and source of memory."""
        pq.write_table(pa.table({"text": ["one document, and another " * 40] * 200}), tmp_path / "a.parquet")
        parameters: Any = {"batch_size": batch_size, "seq_len": seq_len, "dtype": dtype}
        path, encode = tmp_path / "a.parquet", lambda text: list(text.encode())
        with forebay.TokenLoader(path, encode, val=[], buffer_size=4, bos_id=256, **parameters) as loader:
            ring = forebay._token_batches._Ring(torch.device("cpu"))
            for batch in islice(loader, 4):
                inputs, targets = ring.copy(batch)
                assert inputs.shape == targets.shape == (batch_size, seq_len)
                np.testing.assert_array_equal(inputs.numpy(), batch["inputs"])
                np.testing.assert_array_equal(targets.numpy(), batch["targets"])

    def test_extras_come_along(self, tmp_path: Path) -> None:
        """On the CPU, and in the one copy to a device (here the CPU), whatever the number of documents."""
        texts = [f"document {number} " * (number % 40 + 1) for number in range(300)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        names = ["doc_ids", "position_ids", "cu_seqlens", "documents"]

        def make(extras: list[str]) -> forebay.TokenLoader:
            return forebay.TokenLoader(
                tmp_path / "a.parquet", lambda text: list(text.encode()), val=[], batch_size=4, seq_len=63,
                buffer_size=20, bos_id=256, extras=extras,
            )  # fmt: skip

        for extras in (names, names[2:3], names[::-1][:2]):
            with make(extras) as loader:
                batches = list(islice(loader, 12))
            ring = forebay._token_batches._Ring(torch.device("cpu"))
            with make(extras) as loader:
                found = list(islice(forebay.torch.token_batches(loader, "cpu"), 12))
                loader.load_state_dict(found[3][3])
                found[4:5] = [next(forebay.torch.token_batches(loader, "cpu", with_state=False))]
            for batch, (inputs, targets, others, *_) in zip(batches, found, strict=True):
                for got in ((inputs, targets, others), ring.copy(batch)):
                    fields = {"inputs": got[0], "targets": got[1], **got[2]}
                    assert set(fields) == {"inputs", "targets", *extras} == set(batch)
                    for name, tensor in fields.items():
                        assert tensor.numpy().dtype == batch[name].dtype
                        np.testing.assert_array_equal(tensor.numpy(), batch[name])

    def test_the_masks_of_the_page_agree(self, tmp_path: Path) -> None:
        """Attention by `doc_ids` over whole rows is that of each document alone, by `cu_seqlens`."""
        texts = [f"document {number} " * (number % 40 + 1) for number in range(300)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        attention = torch.nn.functional.scaled_dot_product_attention
        with forebay.TokenLoader(
            tmp_path / "a.parquet", encode, val=[], batch_size=2, seq_len=200, buffer_size=20, bos_id=256,
            extras=["doc_ids", "position_ids", "cu_seqlens"],
        ) as loader:  # fmt: skip
            batches = list(islice(forebay.torch.token_batches(loader, "cpu", with_state=False), 3))
        for inputs, _, extras in batches:
            assert torch.equal(extras["position_ids"] == 0, inputs == 256)
            doc_ids = extras["doc_ids"]
            q, k, v = torch.rand(3, 2, 4, 200, 16, generator=torch.Generator().manual_seed(0))
            same = doc_ids[:, None, :, None] == doc_ids[:, None, None, :]
            rows = attention(q, k, v, attn_mask=same.tril()).transpose(1, 2).flatten(0, 1)
            flat = [x.transpose(1, 2).flatten(0, 1).transpose(0, 1) for x in (q, k, v)]  # [heads, batch * seq_len, 16]
            starts = extras["cu_seqlens"].tolist()
            assert len(starts) > 3
            for begin, end in pairwise(starts):
                alone = attention(*(x[:, begin:end] for x in flat), is_causal=True).transpose(0, 1)
                torch.testing.assert_close(alone, rows[begin:end])

    def test_new_loaders_load_from_a_distributed_checkpoint(self, tmp_path: Path, loader: forebay.TokenLoader) -> None:
        """On the two ranks that saved it, and on one rank, which finds the packers of both."""
        from torch.distributed import checkpoint

        loader.close()  # its files are used
        script = f"""
            import itertools, json, sys, torch, forebay
            from torch.distributed import checkpoint, destroy_process_group, get_rank, init_process_group
            init_process_group("gloo")
            def encode(text):
                return list(text.encode())
            def make():
                return forebay.TokenLoader(
                    {str(tmp_path)!r}, encode, batch_size=2, seq_len=63, buffer_size=20,
                    bos_id=256, rank=get_rank(), world_size=2,
                )
            first, fresh, place = make(), make(), {str(tmp_path / "checkpoint")!r}
            list(itertools.islice(first, 7))
            checkpoint.save({{"loader": first}}, checkpoint_id=place)
            checkpoint.load({{"loader": fresh}}, checkpoint_id=place)
            rows = [[next(one)["inputs"].tolist() for _ in range(9)] for one in (first, fresh)]
            assert rows[0] == rows[1]
            with open({str(tmp_path)!r} + f"/rows-{{get_rank()}}.json", "w") as file:
                json.dump(rows[0], file)
            destroy_process_group()
        """
        (tmp_path / "script.py").write_text(textwrap.dedent(script))
        launched.run([*launched.TORCHRUN, "--nproc-per-node=2", tmp_path / "script.py"])
        parts = [json.loads((tmp_path / f"rows-{rank}.json").read_text()) for rank in range(2)]
        with forebay.TokenLoader(
            tmp_path,
            encode,
            batch_size=4,
            seq_len=63,
            buffer_size=20,
            bos_id=256,
            n_streams=2,
        ) as alone:
            with pytest.warns(UserWarning, match="in a single process"):
                checkpoint.load({"loader": alone}, checkpoint_id=tmp_path / "checkpoint")
            assert [next(alone)["inputs"].tolist() for _ in range(9)] == [a + b for a, b in zip(*parts, strict=True)]

    def test_an_interrupted_conversion_loses_nothing(
        self, loader: forebay.TokenLoader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state is that before a batch that was not returned, by `token_batches` or by a `DataLoader`."""
        start = loader.state_dict()
        expected = [batch["inputs"].copy() for batch in islice(loader, 12)]
        tensors = forebay._token_batches._tensors
        monkeypatch.setattr(forebay._token_batches, "_tensors", interrupted := Interrupted(tensors))
        monkeypatch.setattr(forebay.torch, "to_tensors", Interrupted(to_tensors))
        for begin in (
            lambda: forebay.torch.token_batches(loader, "cpu"),
            lambda: map(itemgetter("inputs", "targets"), DataLoader(IterableDataset(loader), batch_size=None)),
        ):
            loader.load_state_dict(start)
            batches = begin()
            found: list[np.ndarray] = []
            while len(found) < len(expected):
                with suppress(KeyboardInterrupt):
                    found.append(next(batches)[0].numpy())
                    continue
                state = loader.state_dict()
                np.testing.assert_array_equal(next(loader)["inputs"], expected[len(found)])
                loader.load_state_dict(state)
                batches = begin()
            np.testing.assert_array_equal(found, expected)
        assert next(interrupted.calls) > 12

    @needs_gpu
    def test_on_a_gpu(self, loader: forebay.TokenLoader) -> None:
        start = loader.state_dict()
        arrays = [next(loader) for _ in range(20)]
        loader.load_state_dict(start)
        for batch, (inputs, targets, _) in zip(arrays, forebay.torch.token_batches(loader), strict=False):
            torch.cuda._sleep(10_000_000)
            seen = inputs.clone(), targets.clone()
            np.testing.assert_array_equal(seen[0].cpu().numpy(), batch["inputs"])
            np.testing.assert_array_equal(seen[1].cpu().numpy(), batch["targets"])


def test_jagged_fields() -> None:
    """Jagged fields of `forebay.cache.DataLoader` become tensors of values and offsets in the arrays' memory."""
    from forebay.cache import DataLoader, ListAsyncDataset

    rows: list[dict[str, Any]] = [{"x": i, "ids": np.arange(1 + i % 3, dtype=np.int32)} for i in range(20)]
    with DataLoader(ListAsyncDataset(rows), 8) as loader:
        batches = list(IterableDataset(loader))
        assert len(IterableDataset(loader)) == len(batches) == 3
    assert torch.cat([batch["x"] for batch in batches]).tolist() == list(range(20))
    ids = batches[1]["ids"]
    nested = torch.nested.nested_tensor_from_jagged(ids.data, ids.offsets)
    assert [row.tolist() for row in nested.unbind()] == [rows[i]["ids"].tolist() for i in range(8, 16)]
