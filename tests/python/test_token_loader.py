"""`TokenLoader` over real Parquet files: its rows against a plain list, ranks, resume, bad documents, ends."""

import itertools
import json
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
import packing

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "token-golden"
RANKS = DATA / "tokens" / "gpt2.tiktoken"

BOS = 256
GROUP = 40
COUNTS = [100, 130, 90, 60]


def encode(text: str) -> list[int]:
    """Bytes as ids: a tokenizer that a test can read."""
    return list(text.encode())


def document(number: int) -> str:
    """Between 1 and 400 characters, with its number in them."""
    random_ = random.Random(number)
    length = int(min(400, max(1, random_.lognormvariate(3.5, 1.2))))
    return (f"{number}:" + "".join(random_.choices("abcdefgh ", k=length)))[:length]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files for training, of 100, 130 and 90 documents in row groups of 40, and one for validation."""
    folder = tmp_path_factory.mktemp("documents")
    for number, (count, first) in enumerate(zip(COUNTS, itertools.accumulate([0, *COUNTS]), strict=False)):
        texts = [document(first + at) for at in range(count)]
        table = pa.table({"id": list(range(count)), "text": texts})
        pq.write_table(table, folder / f"shard_{number:05}.parquet", row_group_size=GROUP, compression="zstd")
    (folder / "shard_00004.parquet.tmp").write_bytes(b"half a file")
    return folder


SMALL: dict[str, Any] = {
    "batch_size": 4,
    "seq_len": 63,
    "buffer_size": 20,
    "tokenizer_batch_size": 16,
    "bos_id": BOS,
    "n_workers": 2,
}


def loader(shards: Any, **parameters: Any) -> forebay.TokenLoader:
    return forebay.TokenLoader(shards, parameters.pop("tokenizer", encode), **SMALL | parameters)


def full_rows(batch: dict[str, Any]) -> list[list[int]]:
    """Rows of seq_len + 1 tokens."""
    inputs, targets = batch["inputs"], batch["targets"]
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    return [[*map(int, row), int(last)] for row, last in zip(inputs, targets[:, -1], strict=True)]


def groups_of(packer: int, n_packers: int) -> list[list[int]]:
    """The documents of the row groups of a packer, in one epoch, dealt out file by file."""
    first = [0, *itertools.accumulate(COUNTS[:3])]
    return [
        list(range(begin, min(begin + GROUP, start + count)))
        for start, count in zip(first, COUNTS[:3], strict=False)
        for begin in list(range(start, start + count, GROUP))[packer::n_packers]
    ]


def slices_of(packer: int, n_packers: int, epochs: int | None = None) -> Iterator[list[list[int]]]:
    """What refills a packer at once."""
    for _ in itertools.count() if epochs is None else range(epochs):
        for group in groups_of(packer, n_packers):
            for begin in range(0, len(group), 16):
                yield [[BOS, *encode(document(number))] for number in group[begin : begin + 16]]


def take(loader: Any, n: int) -> list[list[list[int]]]:
    return [full_rows(batch) for batch in itertools.islice(loader, n)]


@pytest.mark.parametrize("crop", ["drop", "carry"])
@pytest.mark.parametrize("n_packers", [1, 2])
def test_rows_are_those_of_a_plain_list(shards: Path, crop: str, n_packers: int) -> None:
    n = 40
    with loader(shards, crop=crop, n_streams=n_packers) as found:
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
def test_one_piece_of_memory(shards: Path, dtype: str) -> None:
    with loader(shards, dtype=dtype) as found:
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


def test_extras(shards: Path) -> None:
    wanted = ["doc_ids", "position_ids", "cu_seqlens", "documents"]
    first = [0, *itertools.accumulate(COUNTS)]
    with loader(shards, extras=wanted, crop="carry") as found:
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


def test_threads_change_nothing(shards: Path) -> None:
    expected = None
    for n_workers, prefetch, channel in [(1, 1, 1), (4, 8, 300), ("auto", "auto", 7)]:
        with loader(
            shards, n_workers=n_workers, prefetch_batches=prefetch, raw_channel_size=channel, seed=3, n_streams=2
        ) as found:
            batches = take(found, 30)
        expected = expected or batches
        assert batches == expected


def test_a_seed_mixes_and_every_epoch_is_another(shards: Path) -> None:
    def order(seed: int | None, **parameters: Any) -> list[tuple[int, int]]:
        with loader(shards, seed=seed, extras=["documents"], crop="carry", infinite=False, **parameters) as found:
            passes = []
            for _ in range(2):
                parts = np.concatenate([batch["documents"] for batch in found])
                starts = [(int(shard), int(row)) for _, _, shard, _, row, start in parts if start == 1]
                # One of which nothing but BOS went into a row begins again.
                passes.append(list(dict.fromkeys(starts)))
        first, second = passes
        # What fills no row at the end stays.
        assert len(first) > 310
        assert (first == second) == (seed is None)
        return first

    assert order(None) != order(1) != order(2)
    assert order(1) == order(1)
    assert order(1, shuffle_min_size=0) != order(1)


@pytest.mark.parametrize("seed", [None, 5])
def test_ranks_make_the_batches_of_one_process(shards: Path, seed: int | None) -> None:
    with loader(shards, batch_size=8, n_streams=4, seed=seed, shuffle_min_size=0) as alone:
        expected = take(alone, 12)
    for world in (2, 4):
        parts = []
        for rank in range(world):
            with loader(
                shards,
                batch_size=8 // world,
                n_streams=4,
                rank=rank,
                world_size=world,
                seed=seed,
                shuffle_min_size=0,
            ) as part:
                parts.append(take(part, 12))
        assert [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)] == expected


@pytest.mark.parametrize("parameters", [{}, {"crop": "carry", "seed": 9, "n_streams": 2}, {"infinite": False}])
def test_resume_before_every_batch(shards: Path, parameters: dict[str, Any]) -> None:
    with loader(shards, **parameters) as whole:
        states, batches = [json.loads(json.dumps(whole.state_dict()))], []
        for batch in itertools.islice(whole, 25):
            batches.append(full_rows(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
    for at in range(0, len(batches) + 1, 3):
        with loader(shards, n_workers=1 + at % 3, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert take(resumed, len(batches) - at) == batches[at:]
    reading = states[3]["reading"]
    assert reading["shard"].startswith("shard_0000")
    assert reading["row_group"] >= 0


def test_resume_of_a_resumed_one_after_kill(shards: Path) -> None:
    """Processes that are killed, each going on where the state file of the last one says, over several epochs."""
    folder = shards.parent / f"killed-{shards.name}"
    folder.mkdir()
    mixed: dict[str, Any] = {"crop": "carry", "seed": 4, "n_streams": 2}
    script = f"""
        import json, pathlib, sys, forebay
        def encode(text):
            return list(text.encode())
        state = pathlib.Path({str(folder)!r}, "state.json")
        with forebay.TokenLoader({str(shards)!r}, encode, **{SMALL | mixed!r}) as loader:
            if state.exists():
                loader.load_state_dict(json.loads(state.read_text()))
            for batch in loader:
                partial = state.with_suffix(".tmp")
                partial.write_text(json.dumps(loader.state_dict()))
                print(json.dumps([batch["inputs"].tolist(), batch["targets"].tolist()]), flush=True)
                sys.stdin.readline()
                partial.rename(state)
    """
    found = []
    for n in (11, 90, 23):
        command = [sys.executable, "-c", textwrap.dedent(script)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(n):
                found.append(json.loads(process.stdout.readline()))
                process.stdin.write("got it\n")
                process.stdin.flush()
            # The one behind is made, and its state is not saved.
            process.stdout.readline()
            process.kill()
    with loader(shards, **mixed) as whole:
        assert found == [
            [batch["inputs"].tolist(), batch["targets"].tolist()] for batch in itertools.islice(whole, 124)
        ]
        assert whole.epoch >= 1


def test_states_of_all_ranks_serve_another_world(shards: Path) -> None:
    def ranks(world: int) -> list[forebay.TokenLoader]:
        return [
            loader(shards, batch_size=8 // world, rank=rank, world_size=world, n_streams=4) for rank in range(world)
        ]

    two = ranks(2)
    for part in two:
        take(part, 5)
    states = [part.state_dict() for part in two]
    rest = [list(itertools.chain(*batch)) for batch in zip(*(take(part, 6) for part in two), strict=True)]
    four = ranks(4)
    for part in four:
        part.load_state_dict(states)
    assert [list(itertools.chain(*batch)) for batch in zip(*(take(part, 6) for part in four), strict=True)] == rest
    with pytest.raises(forebay.StateError, match="states of all ranks"):
        four[3].load_state_dict(states[0])
    [three] = [loader(shards, batch_size=4, rank=0, world_size=3)]
    with pytest.raises(forebay.StateError, match="global_batch_size"):
        three.load_state_dict(states)
    for each in [*two, *four, three]:
        each.close()


def test_a_state_of_the_reference(shards: Path) -> None:
    """Each packer goes on at its first row group behind the one that is named, with nothing held."""
    for rank in range(2):
        with loader(shards, rank=rank, world_size=2) as found:
            found.load_state_dict({"pq_idx": 1, "rg_idx": 1, "epoch": 2})
            assert found.epoch == 1
            batches = take(found, 8)
        # Of file 1 the groups 2 and 3 are left, one for each.
        groups = groups_of(rank, 2)
        begin = next(at for at, group in enumerate(groups) if group[0] >= 100 + (2 + rank) * GROUP)
        slices = (
            [[BOS, *encode(document(number))] for number in group[at : at + 16]]
            for group in itertools.chain(groups[begin:], itertools.cycle(groups))
            for at in range(0, len(group), 16)
        )
        oracle = packing.rows(slices, 64, 20)
        assert batches == [list(itertools.islice(oracle, 4)) for _ in range(8)]
    with loader(shards, seed=1) as found, pytest.raises(forebay.StateError, match="without a seed"):
        found.load_state_dict({"pq_idx": 1, "rg_idx": 1, "epoch": 2})
    with loader(shards) as found, pytest.raises(forebay.StateError, match="file 7"):
        found.load_state_dict({"pq_idx": 7, "rg_idx": 1, "epoch": 2})


def test_pickle(shards: Path) -> None:
    with loader(shards, seed=2) as found:
        take(found, 3)
        copy = pickle.loads(pickle.dumps(found))
        with copy:
            assert take(copy, 4) == take(found, 4)


def test_splits(shards: Path, tmp_path: Path) -> None:
    def names(**parameters: Any) -> list[str]:
        with loader(shards, **parameters) as found:
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


def test_fewer_row_groups_than_ranks(shards: Path) -> None:
    """Validation has two row groups: four ranks get them in no way, two do, also if it is one file."""
    for rank in range(2):
        with loader(shards, split="val", rank=rank, world_size=2) as found:
            assert len(take(found, 2)) == 2
    with pytest.raises(forebay.ConfigError, match="no row group is left"):
        loader(shards, split="val", world_size=4)
    # The last file of three has three groups, so four packers deal them out over all files.
    with loader(shards, n_streams=4, batch_size=8) as found:
        assert len(take(found, 2)) == 2


def test_bad_documents(tmp_path: Path) -> None:
    texts = ["one", None, "", "four", "a" * 1_000_000, "six"] * 20
    for name in ["a.parquet", "b.parquet"]:
        pq.write_table(pa.table({"text": texts}), tmp_path / name, row_group_size=30)
    with loader(tmp_path, crop="carry", infinite=False, extras=["documents"]) as found:
        parts = np.concatenate([batch["documents"] for batch in itertools.islice(found, 500)])
        assert set(parts[:, 4] % 6) == {0, 3, 4, 5}
        found.set_epoch(1)
        errors = found.errors()
    assert {error["row"] % 6 for error in errors} <= {1, 2}
    kinds = {error["row"] % 6: error["kind"] for error in errors}
    assert kinds[2] == "empty"
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "c.parquet")
    with pytest.raises(forebay.ConfigError, match="body"):
        loader(tmp_path / "c.parquet", split="val")
    (tmp_path / "d.parquet").write_bytes(b"not a Parquet file at all")
    with pytest.raises(forebay.ConfigError, match="Parquet"):
        loader(tmp_path / "d.parquet", split="val")


def test_a_damaged_row_group(tmp_path: Path) -> None:
    """Its documents are left out and listed; an endless pass goes on without them, unless there are no others."""
    texts = [document(number) for number in range(3 * GROUP)]
    for name in ["a.parquet", "b.parquet"]:
        options = {"row_group_size": GROUP, "use_dictionary": False, "write_page_checksum": True}
        pq.write_table(pa.table({"text": texts}), tmp_path / name, **options)

    def damage(group: int) -> None:
        path = tmp_path / "a.parquet"
        column = pq.ParquetFile(path).metadata.row_group(group).column(0)
        data = bytearray(path.read_bytes())
        data[column.data_page_offset + column.total_compressed_size - 20] ^= 0xFF
        path.write_bytes(data)

    damage(1)
    good = [*range(GROUP), *range(2 * GROUP, 3 * GROUP)]
    slices = [
        [[BOS, *encode(texts[number])] for number in good[at : min(at + 16, begin + GROUP)]]
        for begin in (0, GROUP)
        for at in range(begin, begin + GROUP, 16)
    ]
    with loader(tmp_path) as found:
        oracle = packing.rows(itertools.cycle(slices), 64, 20)
        assert take(found, 30) == [list(itertools.islice(oracle, 4)) for _ in range(30)]
        errors = found.errors()
    assert [error["row"] for error in errors] == list(range(GROUP, 2 * GROUP))
    assert {error["kind"] for error in errors} == {"corrupt"}
    assert "row group 1 cannot be decoded" in errors[0]["reason"]
    damage(0)
    damage(2)
    with loader(tmp_path) as found:
        for _ in range(2):
            with pytest.raises(forebay.DecodeError, match="none of the 120 records"):
                next(found)
    with loader(tmp_path, infinite=False) as found:
        assert list(found) == []
        assert len(found.errors()) == 3 * GROUP


GIANT = 100_000_000


@pytest.mark.parametrize("crop", ["drop", "carry"])
def test_a_document_of_100_mb(tmp_path: Path, crop: str) -> None:
    """It takes its turn, within bounded time and memory."""
    sentence = "the reservoir is filled by the river, and the river by the rain. "
    texts = [sentence * (1 + number % 50) for number in range(400)]
    giant = (sentence * (GIANT // len(sentence) + 1))[:GIANT]
    pq.write_table(pa.table({"text": [*texts[:200], giant, *texts[200:]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": texts}), tmp_path / "b.parquet")
    script = f"""
        import json, resource, time, forebay
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        begin, before = time.monotonic(), peak()
        most_tokens, rows_of_giant = 0, 0
        shape = dict(batch_size=8, seq_len=1023, buffer_size=100, n_workers=2)
        how = dict(crop={crop!r}, infinite=False, extras=["documents"])
        with forebay.TokenLoader({str(tmp_path)!r}, {str(RANKS)!r}, **shape, **how) as loader:
            for number, batch in enumerate(loader):
                most_tokens = max(most_tokens, loader.stats()["packing"]["tokens"])
                rows_of_giant += len({{row for row, _, _, _, at, _ in batch["documents"].tolist() if at == 200}})
                if number == 100:
                    break
            held = loader.stats()["packing"]
            closing = time.monotonic()
        now = time.monotonic()
        print(json.dumps([now - begin, now - closing, peak() - before, most_tokens, rows_of_giant, held["bytes"]]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    seconds, closing, peak, most_tokens, rows_of_giant, held = json.loads(done.stdout)
    assert seconds < 60
    assert closing < 1
    # The text, its ids (a fifth as many, of four bytes, in a vector that doubles), and the packer's copy of them.
    assert peak < 5 * GIANT
    if crop == "drop":
        assert rows_of_giant <= 1
        assert most_tokens < 400 * 1024
        assert held < 10_000_000
    else:
        assert rows_of_giant > 200
        assert most_tokens > GIANT / 8
        # Most of it is still there: 800 of its 20 000 rows have gone.
        assert held < 1.5 * GIANT


def test_tokenizers(shards: Path) -> None:
    with loader(shards, tokenizer=RANKS, bos_id=None) as found:
        assert found.bos_id == 50256
    # Who gives one means it, whatever the file says.
    with loader(shards, tokenizer=RANKS, bos_id=198) as found:
        assert found.bos_id == 198
        assert (next(found)["inputs"][:, 0] == 198).all()
    without = json.loads((DATA / "tokens" / "tokenizer.json").read_text())
    without["added_tokens"] = []
    for name in ("<|bos|>", "<|endoftext|>"):
        without["model"]["vocab"].pop(name, None)
    nameless = shards.parent / "nameless.json"
    nameless.write_text(json.dumps(without))
    with pytest.raises(forebay.ConfigError, match=r"neither <\|bos\|> nor <\|endoftext\|>.*pass bos_id="):
        loader(shards, tokenizer=nameless, bos_id=None)
    with pytest.raises(forebay.ConfigError, match="bos_id is missing"):
        forebay.TokenLoader(shards, encode)
    with pytest.raises(TypeError, match="tokenizer is int"):
        forebay.TokenLoader(shards, 3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        forebay.TokenLoader(shards, "nowhere.json")

    def raises(text: str) -> list[int]:
        raise KeyError(text[:3])

    with loader(shards, tokenizer=raises) as found:
        for _ in range(2):
            with pytest.raises(forebay.ForebayError, match="raised an exception") as raised:
                next(found)
            assert isinstance(raised.value.__cause__, KeyError)
    with (
        loader(shards, tokenizer=lambda _: [70_000], dtype="uint16") as found,
        pytest.raises(forebay.ConfigError, match="70000"),
    ):
        next(found)
    with loader(shards, tokenizer=lambda text: np.frombuffer(text.encode(), np.uint8)) as found, loader(shards) as same:
        assert take(found, 3) == take(same, 3)


def test_parameters(shards: Path) -> None:
    with pytest.raises(forebay.ConfigError) as raised:
        loader(shards, batch_size=0, crop="cut", dtype="int8", rank=3, extras=["mask"], n_workers=0)
    for name in ("batch_size", "crop", "dtype", "rank", "extras", "n_workers"):
        assert name in str(raised.value)
    with pytest.raises(forebay.ConfigError, match="n_streams is 3"):
        loader(shards, n_streams=3)
    with pytest.raises(forebay.ConfigError, match="cpu_budget is 3, but n_workers is 2"):
        loader(shards, cpu_budget=3)
    with pytest.raises(forebay.ConfigError, match=r"cpu_budget is 0.*raw_channel_bytes is 0"):
        loader(shards, n_workers="auto", cpu_budget=0, raw_channel_bytes=0)
    with loader(shards, n_workers="auto", cpu_budget=3, raw_channel_bytes=1) as found, loader(shards) as same:
        assert take(found, 3) == take(same, 3)
        assert 1 <= found.stats()["n_workers"] <= 3
    with loader(shards) as found, pytest.raises(TypeError, match="packed"):
        len(found)
    assert "batches of [4, 63], infinite, closed" in repr(found)
    with pytest.raises(forebay.ForebayError, match="closed"):
        next(found)


def test_threads_end(shards: Path) -> None:
    before = ours()  # zarrs, once it was used, has threads that last as long as the process
    found = loader(shards)
    next(found)
    assert ours() > before
    found.close()
    deadline = time.monotonic() + 5
    while ours() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ours() == before


def ours() -> int:
    """Threads that one of ours is, or started."""
    return sum(name.startswith("forebay") for name in thread_names())


def thread_names() -> list[str]:
    return [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]


def test_an_interrupted_wait_loses_nothing(shards: Path) -> None:
    """Signals at random moments, most of them while `next()` waits for a batch."""
    random_, interrupts, armed, done = random.Random(1), 0, False, threading.Event()

    def interrupt(*_arguments: object) -> None:
        nonlocal armed, interrupts
        if armed:
            armed, interrupts = False, interrupts + 1
            raise KeyboardInterrupt

    def send() -> None:
        while not done.wait(0.02 * random_.random()):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def slowly(text: str) -> list[int]:
        time.sleep(0.0005)
        return encode(text)

    n = 48
    batches: list[dict[str, Any]] = []
    sending = threading.Thread(target=send)
    before = signal.signal(signal.SIGUSR1, interrupt)
    sending.start()
    try:
        with loader(shards, tokenizer=slowly) as found:
            while len(batches) < n:
                try:
                    armed = True
                    # Nothing but C between a batch and the list.
                    deque(map(batches.append, itertools.islice(found, n - len(batches))), maxlen=0)
                    armed = False
                except KeyboardInterrupt:
                    pass
    finally:
        armed = False
        done.set()
        sending.join()
        signal.signal(signal.SIGUSR1, before)
    assert interrupts > 3
    with loader(shards) as undisturbed:
        assert list(map(full_rows, batches)) == take(undisturbed, n)


def test_interrupt_and_exit(shards: Path) -> None:
    """Ctrl-C while a callable works, and an exit with threads at work."""
    script = f"""
        import os, signal, threading, time, forebay
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
        def slow(text):
            time.sleep(0.05)
            return [1]
        loader = forebay.TokenLoader({str(shards)!r}, slow, bos_id=0)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            next(loader)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
    assert signal.SIGINT


@pytest.mark.parametrize(
    "case", json.loads((GOLDEN / "bestfit_B4_T512.json").read_text()).items(), ids=lambda case: case[0]
)
def test_golden_rows(case: tuple[str, dict[str, Any]]) -> None:
    """The rows of the reference (SOURCE.txt says whose): one rank, two ranks, and after resumption of its states."""
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
            # Where the reference stands is where the last slice came from; here it is where the next one will.
            assert (reading["shard"], reading["row_group"], reading["epoch"]) >= (
                f"shard_0000{file}.parquet",
                group,
                epoch - 1,
            )


def test_a_state_is_small_and_quick() -> None:
    """With 1000 documents held it can be had with every batch."""
    with forebay.TokenLoader(GOLDEN, RANKS, batch_size=4, seq_len=512) as found:
        times = []
        for _ in range(60):
            next(found)
            begin = time.perf_counter()
            state = found.state_dict()
            times.append(time.perf_counter() - begin)
        assert found.stats()["packing"]["documents"] >= 990
    assert len(json.dumps(state)) < 6000
    # A tenth of a millisecond in a release build.
    assert sorted(times)[len(times) // 2] < 0.001


def test_headspace_and_stats(shards: Path) -> None:
    with loader(shards) as found:
        next(found)
        assert found.headspace(0.2)["examples_per_s"] > 0
        assert found.batch == 1
        assert found.num_documents == 320
        assert found.bos_id == BOS
        stats = found.stats()
        assert stats["packing"]["delivered"] >= 4 * 64
        assert stats["stages"]["collate"]["items"] >= 1
