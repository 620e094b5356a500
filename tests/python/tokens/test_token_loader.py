"""`TokenLoader` over real Parquet files: rows equal to those of a plain oracle, parameters, tokenizers, figures."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing
from documents import (
    BOS,
    COUNTS,
    GOLDEN,
    GROUP,
    RANKS,
    document,
    encode,
    full_rows,
    loader,
    slices_of,
    take,
)
from paths import DATA


@pytest.mark.parametrize("crop", ["drop", "carry"])
@pytest.mark.parametrize("n_packers", [1, 2])
def test_rows_are_those_of_a_plain_list(parquets: Path, crop: str, n_packers: int) -> None:
    n = 40
    with loader(parquets, crop=crop, n_streams=n_packers) as found:
        batches = take(found, n)
        packing_stats = found.stats()["packing"]
    oracles = [packing.rows(slices_of(v, n_packers), 64, 20, crop) for v in range(n_packers)]
    each = 4 // n_packers
    expected = [[row for oracle in oracles for row in itertools.islice(oracle, each)] for _ in range(n)]
    assert batches == expected
    assert all(row[0] == BOS for batch in batches for row in batch)
    assert packing_stats["documents"] >= 19
    assert (packing_stats["dropped"] > 0) == (crop == "drop")


def test_the_worked_example(tmp_path: Path) -> None:
    texts = ["abc", "de", "fghij", "k", *["longer than a row"] * 4]
    for name in ["a.parquet", "b.parquet"]:
        pq.write_table(pa.table({"text": texts}), tmp_path / name)
    with loader(tmp_path, batch_size=2, seq_len=7, buffer_size=4, tokenizer_batch_size=4) as found:
        first, second = full_rows(next(found))
    assert first == [BOS, *b"fghij", BOS, *b"k"]
    assert second == [BOS, *b"abc", BOS, *b"de", BOS]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
def test_one_piece_of_memory(parquets: Path, dtype: str) -> None:
    with loader(parquets, dtype=dtype) as found:
        kept = [next(found) for _ in range(12)]
        copies = [{name: array.copy() for name, array in batch.items()} for batch in kept]
        for _ in range(12):
            next(found)
    for batch, copy in zip(kept, copies, strict=True):
        inputs, targets = batch["inputs"], batch["targets"]
        assert inputs.dtype == targets.dtype == dtype
        assert inputs.shape == targets.shape == (4, 63)
        assert inputs.flags.c_contiguous
        assert targets.flags.c_contiguous
        assert targets.ctypes.data - inputs.ctypes.data == inputs.nbytes
        np.testing.assert_array_equal(inputs, copy["inputs"])
        np.testing.assert_array_equal(targets, copy["targets"])


def test_extras(parquets: Path) -> None:
    wanted = ["doc_ids", "position_ids", "cu_seqlens", "documents"]
    first = [0, *itertools.accumulate(COUNTS)]
    with loader(parquets, extras=wanted, crop="carry") as found:
        for batch in itertools.islice(found, 30):
            assert set(batch) == {"inputs", "targets", *wanted}
            inputs, cu_seqlens = batch["inputs"], batch["cu_seqlens"]
            assert batch["doc_ids"].dtype == batch["position_ids"].dtype == cu_seqlens.dtype == np.int32
            flat = inputs.reshape(-1)
            assert cu_seqlens[0] == 0
            assert cu_seqlens[-1] == flat.size
            starts = np.zeros(flat.size, bool)
            starts[cu_seqlens[:-1]] = True
            np.testing.assert_array_equal(batch["position_ids"].reshape(-1) == 0, starts)
            assert (flat[starts] == BOS).all()
            np.testing.assert_array_equal(batch["doc_ids"], starts.reshape(inputs.shape).cumsum(1) - 1)
            rows = full_rows(batch)
            ends = [*batch["documents"][1:, :2].tolist(), [len(rows), 0]]
            for (row, column, shard, group, in_shard, start), (next_row, next_column) in zip(
                batch["documents"].tolist(), ends, strict=True
            ):
                assert group == in_shard // GROUP
                ids = [BOS, *encode(document(first[shard] + in_shard))]
                part = rows[row][column : next_column if next_row == row else 64]
                assert part == [BOS, *ids[start : start + len(part) - 1]]


def test_threads_change_nothing(parquets: Path) -> None:
    expected = None
    for n_workers, prefetch, channel in [(1, 1, 1), (4, 8, 300), ("auto", "auto", 7)]:
        with loader(
            parquets, n_workers=n_workers, prefetch_batches=prefetch, raw_channel_size=channel, seed=3, n_streams=2
        ) as found:
            batches = take(found, 30)
        expected = expected or batches
        assert batches == expected


def test_a_seed_mixes_and_every_epoch_is_another(parquets: Path) -> None:
    def order(seed: int | None, **parameters: Any) -> list[tuple[int, int]]:
        with loader(parquets, seed=seed, extras=["documents"], crop="carry", infinite=False, **parameters) as found:
            passes = []
            for _ in range(2):
                parts = np.concatenate([batch["documents"] for batch in found])
                starts = [(int(shard), int(row)) for _, _, shard, _, row, start in parts if start == 1]
                # A document of which a row has only BOS begins again in another row, so remove repetitions.
                passes.append(list(dict.fromkeys(starts)))
        first, second = passes
        # Documents at the end that fill no row are missing.
        assert len(first) > 310
        assert (first == second) == (seed is None)
        return first

    assert order(None) != order(1) != order(2)
    assert order(1) == order(1)
    assert order(1, shuffle_min_size=0) != order(1)


def test_splits(parquets: Path, tmp_path: Path) -> None:
    def names(**parameters: Any) -> list[str]:
        with loader(parquets, **parameters) as found:
            return [Path(shard["path"]).name for shard in found.shards]

    assert names() == [f"shard_0000{n}.parquet" for n in range(3)]
    assert names(split="val") == ["shard_00003.parquet"]
    assert names(split="val", val="shard_00001.parquet") == ["shard_00001.parquet"]
    assert names(val=["*1.parquet", "*2.parquet"]) == ["shard_00000.parquet", "shard_00003.parquet"]
    with pytest.raises(forebay.ConfigError, match="matches none"):
        names(val="shard_9")
    with pytest.raises(forebay.ConfigError, match='split is "test"'):
        names(split="test")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "only.parquet")
    with pytest.raises(forebay.ConfigError, match="only file"):
        loader(tmp_path)


def test_tokenizers(parquets: Path) -> None:
    with loader(parquets, tokenizer=RANKS, bos_id=None) as found:
        assert found.bos_id == 50256
    # An explicit bos_id overrides that of the file.
    with loader(parquets, tokenizer=RANKS, bos_id=198) as found:
        assert found.bos_id == 198
        assert (next(found)["inputs"][:, 0] == 198).all()
    without = json.loads((DATA / "tokens" / "tokenizer.json").read_text())
    without["added_tokens"] = []
    for name in ("<|bos|>", "<|endoftext|>"):
        without["model"]["vocab"].pop(name, None)
    nameless = parquets.parent / "nameless.json"
    nameless.write_text(json.dumps(without))
    with pytest.raises(forebay.ConfigError, match=r"none of <\|bos\|>, <\|endoftext\|>, .*pass bos_id="):
        loader(parquets, tokenizer=nameless, bos_id=None)
    with pytest.raises(forebay.ConfigError, match="bos_id is missing"):
        forebay.TokenLoader(parquets, encode)
    with pytest.raises(TypeError, match=r"tokenizer is 3 \(type int\), must be a file or folder with a tokenizer.json"):
        forebay.TokenLoader(parquets, 3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        forebay.TokenLoader(parquets, "nowhere.json")

    def raises(text: str) -> list[int]:
        raise KeyError(text[:3])

    with loader(parquets, tokenizer=raises) as found:
        for _ in range(2):
            with pytest.raises(KeyError) as raised:
                next(found)
            assert "raised an exception" in raised.value.__notes__[0]
            assert len(raised.value.__notes__) == 1
    with (
        loader(parquets, tokenizer=lambda _: [70_000], dtype="uint16") as found,
        pytest.raises(forebay.ConfigError, match="70000"),
    ):
        next(found)
    with (
        loader(parquets, tokenizer=lambda text: np.frombuffer(text.encode(), np.uint8)) as found,
        loader(parquets) as same,
    ):
        assert take(found, 3) == take(same, 3)


def test_parameters(parquets: Path) -> None:
    with pytest.raises(forebay.ConfigError) as raised:
        loader(parquets, batch_size=0, crop="cut", dtype="int8", rank=3, extras=["mask"], n_workers=0)
    for name in ("batch_size", "crop", "dtype", "rank", "extras", "n_workers"):
        assert name in str(raised.value)
    with pytest.raises(forebay.ConfigError, match="n_streams is 3"):
        loader(parquets, n_streams=3)
    with pytest.raises(forebay.ConfigError, match="cpu_budget is 3, but n_workers is 2"):
        loader(parquets, cpu_budget=3)
    with pytest.raises(forebay.ConfigError, match=r"cpu_budget is 0.*raw_channel_bytes is 0"):
        loader(parquets, n_workers="auto", cpu_budget=0, raw_channel_bytes=0)
    with loader(parquets, n_workers="auto", cpu_budget=3, raw_channel_bytes=1) as found, loader(parquets) as same:
        assert take(found, 3) == take(same, 3)
        assert 1 <= found.stats()["n_workers"] <= 3
    with loader(parquets) as found, pytest.raises(TypeError, match="after packing"):
        len(found)
    assert "batches of [4, 63], infinite, closed" in repr(found)
    with pytest.raises(forebay.ForebayError, match="closed"):
        next(found)


@pytest.mark.parametrize(
    "case", json.loads((GOLDEN / "bestfit_B4_T512.json").read_text()).items(), ids=lambda case: case[0]
)
def test_golden_rows(case: tuple[str, dict[str, Any]]) -> None:
    """Rows equal those of the reference (see SOURCE.txt): one rank, two ranks, and resumed from its states."""
    name, how = case
    ranks: dict[str, Any] = {"rank": how["rank"], "world_size": how["world_size"]}
    with forebay.TokenLoader(GOLDEN, RANKS, batch_size=4, seq_len=512, **ranks) as found:
        if how["resume"] is not None:
            found.load_state_dict(how["resume"])
        for expected, state in zip(
            np.load(GOLDEN / "bestfit_B4_T512.npz")[name], how["state_after_each_batch"], strict=True
        ):
            np.testing.assert_array_equal(full_rows(next(found)), expected)
            reading = found.state_dict()["reading"]
            file, group, epoch = state
            # The reference's position is the source of the last slice, forebay's that of the next one.
            assert (reading["shard"], reading["row_group"], reading["epoch"]) >= (
                f"shard_0000{file}.parquet",
                group,
                epoch - 1,
            )


def test_headspace_and_stats(parquets: Path) -> None:
    with loader(parquets) as found:
        next(found)
        assert found.headspace(0.2)["examples_per_s"] > 0
        assert found.batch == 1
        assert found.num_documents == 320
        assert found.bos_id == BOS
        stats = found.stats()
        assert stats["packing"]["delivered"] >= 4 * 64
        assert stats["stages"]["collate"]["items"] >= 1


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_pass_without_a_batch_is_told(tmp_path: Path, drop_last: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Too few documents for a batch raise: an empty loop would look like a finished pass."""
    texts = ["abcdefgh" * 3] * (40 if drop_last else 1)
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=max(len(texts) // 2, 1))
    make: dict[str, Any] = {"infinite": False, "val": [], "drop_last": drop_last, "batch_size": 64, "seq_len": 31}
    message = (
        r"drop_last leaves no batch: the pass has 40 documents, which fill \d+ rows, and batch_size is 64"
        if drop_last
        else r"the pass has no batch: its 1 documents fill no row; lower seq_len"
    )
    with loader(tmp_path / "a.parquet", **make) as alone:
        for _ in range(2):
            with pytest.raises(forebay.ConfigError, match=message):
                list(alone)
        assert alone.state_dict()["batch"] == 0
    if drop_last:
        # A rank has only its own rows, and other ranks may have batches: its pass is empty, with a warning.
        with loader(tmp_path / "a.parquet", **make, rank=1, world_size=2) as part:
            assert list(part) == []
        assert "drop_last leaves no batch: the pass has 20 documents of rank 1" in caplog.text
        with loader(tmp_path / "a.parquet", **{**make, "batch_size": 4}) as enough:
            assert len(list(enough)) > 2


def test_a_pass_of_documents_that_are_all_too_long_is_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["abcdefgh" * 30] * 4}), tmp_path / "a.parquet")
    make: dict[str, Any] = {"infinite": False, "val": [], "batch_size": 2, "seq_len": 7, "fit": "pad"}
    told = "its 4 documents fill no row; .* raise seq_len, or set on_long"
    with loader(tmp_path / "a.parquet", **make) as alone, pytest.raises(forebay.ConfigError, match=told):
        next(alone)
    with loader(tmp_path / "a.parquet", **make, on_long="cut") as cut:
        assert len(list(cut)) == 2
