"""Packers whose numbers of documents differ: a warning with the figures, once."""

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay


def files(folder: Path, *n_groups: int) -> Path:
    """Parquet files of row groups of 32 documents."""
    for number, n in enumerate(n_groups):
        pq.write_table(
            pa.table({"text": ["some words " * 9] * 32 * n}), folder / f"{number}.parquet", row_group_size=32
        )
    return folder


def warned(folder: Path, caplog: pytest.LogCaptureFixture, **parameters: Any) -> list[str]:
    given: dict[str, Any] = {"world_size": 4, "batch_size": 1, "seq_len": 64, "bos_id": 256, "val": []} | parameters
    caplog.clear()
    with caplog.at_level(logging.WARNING, "forebay"):
        forebay.TokenLoader(folder, lambda text: list(text.encode()), **given).close()
    return [record.message for record in caplog.records if "packers" in record.message]


def test_the_figures_are_those_of_the_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = files(tmp_path, 6, 6)
    [text] = warned(folder, caplog, infinite=False, rank=0)
    assert text.startswith(
        "TokenLoader: the 4 packers (one or more for each rank) read 128, 128, 64, 64 documents in an epoch"
    )
    assert "in a finite pass the ranks' numbers of batches differ as much" in text
    assert 'stride="balanced" deals out 96, 96, 96, 96' in text
    n_batches = []
    for rank in range(4):
        with forebay.TokenLoader(
            folder, lambda text: list(text.encode()), world_size=4, rank=rank, batch_size=1, seq_len=64, bos_id=256,
            val=[], infinite=False,
        ) as loader:  # fmt: skip
            n_batches.append(len(list(loader)))
    counts = list(map(int, re.findall(r"\d+", text.split("read ")[1].split(" documents")[0])))
    assert [n / n_batches[0] for n in n_batches] == pytest.approx([n / counts[0] for n in counts], rel=0.1)


def test_of_an_infinite_loader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [text] = warned(files(tmp_path, 6), caplog)
    assert "packers with few documents repeat them more often" in text
    assert "stride=" not in text  # the other one is no better


@pytest.mark.parametrize(
    "parameters",
    [
        {"rank": 1},  # rank 0 says it
        {"stride": "global"},
        {"stride": "balanced"},
        {"world_size": 2},
        {"world_size": 1},
    ],
)
def test_without_a_warning(tmp_path: Path, parameters: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert warned(files(tmp_path, 6, 6), caplog, **parameters) == []


def test_balanced_packers(tmp_path: Path) -> None:
    """Packers that differ by at most a row group, and less than those of files."""
    for number, rows in enumerate([100, 100, 100]):
        table = pa.table({"text": ["some words " * 9] * rows})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=16)
    n_batches: dict[str, list[int]] = {}
    for stride in ("file", "global", "balanced"):
        n_batches[stride] = []
        for rank in range(4):
            given: dict[str, Any] = {"world_size": 4, "rank": rank, "batch_size": 1, "seq_len": 64, "bos_id": 256}
            given |= {"val": [], "infinite": False, "stride": stride}
            with forebay.TokenLoader(tmp_path, lambda text: list(text.encode()), **given) as loader:
                n_batches[stride].append(len(list(loader)))
    # 75 documents each, give or take 16.
    assert max(n_batches["balanced"]) - min(n_batches["balanced"]) <= 16 * 100 / 64 + 1
    spread = {stride: max(found) - min(found) for stride, found in n_batches.items()}
    assert spread["balanced"] < spread["file"], n_batches


def test_many_packers_are_a_range(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [text] = warned(files(tmp_path, 15), caplog, world_size=10)
    assert "the 10 packers (one or more for each rank) read 32 to 64 documents in an epoch" in text
