"""Tables and folders of recordings keep every promise of a loader: see `conformance`."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forebay
from conformance import conforms, spawned
from forebay import targets
from recordings import SMALL
from tables import BIRDS, rows, write_recordings, write_table

SETTING: dict[str, Any] = {
    **SMALL, "batch_size": 8, "shuffle_min_size": 20, "shuffle_buffer_size": 40, "n_workers": 2, "infinite": True,
}  # fmt: skip
ORDERS: dict[str, dict[str, Any]] = {
    "sequential": {"order": "sequential"},
    "finite": {"order": "sequential", "infinite": False, "shuffle_min_size": 0, "augment": False},
    "window": {"order": "window"},
    "global": {"order": "global"},
    "era": {"order": "era", "era_length": 16},
}
GIVEN: dict[str, Any] = {
    "targets": {"birds": targets.MultiHot("several", classes=BIRDS, separator=",", smoothing=0.1, secondary="bird")},
    "columns": ["text", "x", "is_good", "bird"],
    "outputs": ["path", "start", "row", "valid_samples"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    names = write_recordings(folder / "audio", 30, bad_every=20)
    made = rows([f"audio/{name}" for name in names], segments=True)
    made[3]["file_name"] = "missing.wav"
    write_table(folder / "table.csv", made)
    write_table(folder / "table.jsonl", rows([f"audio/{name}" for name in reversed(names)]))
    return folder


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as processes:
        yield processes


@pytest.mark.parametrize("order", ORDERS)
def test_a_table(order: str, folder: Path, processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    conforms(forebay.Manifest(folder / "table.csv"), processes, tmp_path, **{**SETTING, **GIVEN, **ORDERS[order]})


def test_a_folder(processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    described = tmp_path / "described"
    names = write_recordings(described / "deep", 30, bad_every=20)
    write_table(described / "metadata.jsonl", rows([f"deep/{name}" for name in names]))
    conforms(described, processes, tmp_path, **SETTING, **GIVEN)


def test_rows(folder: Path, processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    names = sorted(path.name for path in (folder / "audio").iterdir())
    source = forebay.Manifest(rows(names, segments=True), root=folder / "audio")
    conforms(source, processes, tmp_path, **SETTING, **GIVEN)


@pytest.mark.parametrize("order", ["sequential", "global"])
def test_a_mixture(order: str, folder: Path, processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    sources = {"a": forebay.Manifest(folder / "table.csv"), "b": [folder / "table.jsonl"]}
    weights = {"a": 1, "b": 2}
    conforms(sources, processes, tmp_path, **{**SETTING, **GIVEN, "order": order}, weights=weights)
