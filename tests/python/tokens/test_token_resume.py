"""`TokenLoader` in ranks and resumed: the same batches as from one uninterrupted process."""

import itertools
import json
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import forebay
import packing
from documents import (
    BOS,
    GOLDEN,
    GROUP,
    RANKS,
    SMALL,
    document,
    encode,
    full_rows,
    groups_of,
    loader,
    take,
)
from timing import claim, timed


@pytest.mark.parametrize("seed", [None, 5])
def test_ranks_make_the_batches_of_one_process(parquets: Path, seed: int | None) -> None:
    with loader(parquets, batch_size=8, n_streams=4, seed=seed, shuffle_min_size=0) as alone:
        expected = take(alone, 12)
    for world in (2, 4):
        parts = []
        for rank in range(world):
            with loader(
                parquets,
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
def test_resume_before_every_batch(parquets: Path, parameters: dict[str, Any]) -> None:
    with loader(parquets, **parameters) as whole:
        states, batches = [json.loads(json.dumps(whole.state_dict()))], []
        for batch in itertools.islice(whole, 25):
            batches.append(full_rows(batch))
            states.append(json.loads(json.dumps(whole.state_dict())))
    for at in range(0, len(batches) + 1, 3):
        with loader(parquets, n_workers=1 + at % 3, **parameters) as resumed:
            resumed.load_state_dict(states[at])
            assert resumed.state_dict() == states[at]
            assert take(resumed, len(batches) - at) == batches[at:]
    reading = states[3]["reading"]
    assert reading["shard"].startswith("shard_0000")
    assert reading["row_group"] >= 0


def test_resume_of_a_resumed_one_after_kill(parquets: Path) -> None:
    """Killed processes, each resuming from the state file of the one before, over several epochs."""
    folder = parquets.parent / f"killed-{parquets.name}"
    folder.mkdir()
    mixed: dict[str, Any] = {"crop": "carry", "seed": 4, "n_streams": 2}
    script = f"""
        import json, pathlib, sys, forebay
        def encode(text):
            return list(text.encode())
        state = pathlib.Path({str(folder)!r}, "state.json")
        with forebay.TokenLoader({str(parquets)!r}, encode, **{SMALL | mixed!r}) as loader:
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
            # The next batch is made, but its state is not saved.
            process.stdout.readline()
            process.kill()
    with loader(parquets, **mixed) as whole:
        assert found == [
            [batch["inputs"].tolist(), batch["targets"].tolist()] for batch in itertools.islice(whole, 124)
        ]
        assert whole.epoch >= 1


def test_states_of_all_ranks_serve_another_world(parquets: Path) -> None:
    def ranks(world: int) -> list[forebay.TokenLoader]:
        return [
            loader(parquets, batch_size=8 // world, rank=rank, world_size=world, n_streams=4) for rank in range(world)
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
    [three] = [loader(parquets, batch_size=4, rank=0, world_size=3)]
    with pytest.raises(forebay.StateError, match="global_batch_size"):
        three.load_state_dict(states)
    for each in [*two, *four, three]:
        each.close()


def test_a_state_of_the_reference(parquets: Path) -> None:
    """Each packer resumes at its first row group after the one in the state, with no documents held."""
    for rank in range(2):
        with loader(parquets, rank=rank, world_size=2) as found:
            found.load_state_dict({"pq_idx": 1, "rg_idx": 1, "epoch": 2})
            assert found.epoch == 1
            batches = take(found, 8)
        # Row groups 2 and 3 of file 1 remain, one for each rank.
        groups = groups_of(rank, 2)
        begin = next(at for at, group in enumerate(groups) if group[0] >= 100 + (2 + rank) * GROUP)
        slices = (
            [[BOS, *encode(document(number))] for number in group[at : at + 16]]
            for group in itertools.chain(groups[begin:], itertools.cycle(groups))
            for at in range(0, len(group), 16)
        )
        oracle = packing.rows(slices, 64, 20)
        assert batches == [list(itertools.islice(oracle, 4)) for _ in range(8)]
    with loader(parquets, seed=1) as found, pytest.raises(forebay.StateError, match="without a seed"):
        found.load_state_dict({"pq_idx": 1, "rg_idx": 1, "epoch": 2})
    with loader(parquets) as found, pytest.raises(forebay.StateError, match="pq_idx is 7"):
        found.load_state_dict({"pq_idx": 7, "rg_idx": 1, "epoch": 2})


@timed
def test_a_state_is_small_and_quick() -> None:
    """With 1000 documents held, a state is small and fast enough to be saved after each batch."""
    with forebay.TokenLoader(GOLDEN, RANKS, batch_size=4, seq_len=512) as found:
        times = []
        for _ in range(60):
            next(found)
            begin = time.thread_time()
            state = found.state_dict()
            times.append(time.thread_time() - begin)
        assert found.stats()["packing"]["documents"] >= 990
    assert len(json.dumps(state)) < 6000
    # It takes a tenth of a millisecond in a release build.
    claim(sorted(times)[len(times) // 2] < 0.001, times)


def test_pickle(parquets: Path) -> None:
    with loader(parquets, seed=2) as found:
        take(found, 3)
        copy = pickle.loads(pickle.dumps(found))
        with copy:
            assert take(copy, 4) == take(found, 4)


def test_fewer_row_groups_than_ranks(parquets: Path) -> None:
    """Two row groups of validation, in one file, are enough for two ranks; four ranks raise."""
    for rank in range(2):
        with loader(parquets, split="val", rank=rank, world_size=2) as found:
            assert len(take(found, 2)) == 2
    with pytest.raises(forebay.ConfigError, match="leaves no row group"):
        loader(parquets, split="val", world_size=4)
    # The last of three files has only three row groups, so four packers divide the groups of all files.
    with loader(parquets, n_streams=4, batch_size=8) as found:
        assert len(take(found, 2)) == 2


def keys(state: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of the values of a nested dict, as torch.distributed.checkpoint lists them."""
    if isinstance(state, dict) and state:
        return set().union(*(keys(value, (*path, name)) for name, value in state.items()))
    return {path}


@pytest.mark.parametrize("parameters", [{}, {"infinite": False}, {"n_streams": 2}, {"seed": 1}])
def test_a_new_loader_has_the_keys_of_any_state(parquets: Path, parameters: dict[str, Any]) -> None:
    """torch.distributed.checkpoint loads only keys that the state of the loader to be restored has."""
    with loader(parquets, **parameters) as fresh, loader(parquets, **parameters) as other:
        begin = fresh.state_dict()
        expected = take(other, 9)
        assert keys(begin) == keys(other.state_dict())
        fresh.load_state_dict(begin)
        assert take(fresh, 9) == expected
        if not parameters.get("infinite", True):
            list(other)
            assert keys(other.state_dict()) == keys(begin)


def test_a_state_of_the_start_fits_all_ranks(parquets: Path) -> None:
    """Its packers have read nothing, so those of the other ranks are known."""
    with loader(parquets, batch_size=2, n_streams=2, world_size=2, rank=0) as first:
        begin = first.state_dict()
        first_rows = take(first, 4)
        later = first.state_dict()
    with loader(parquets, batch_size=4, n_streams=2) as alone:
        alone.load_state_dict(begin)
        both = take(alone, 4)
    with loader(parquets, batch_size=2, n_streams=2, world_size=2, rank=1) as second:
        second.load_state_dict(begin)
        second_rows = take(second, 4)
        with pytest.raises(forebay.StateError, match="the state has packers 0, but this rank needs packers 1"):
            second.load_state_dict(later)
    assert [[*a, *b] for a, b in zip(first_rows, second_rows, strict=True)] == both
