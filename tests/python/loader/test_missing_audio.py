"""`missing_audio="zeros"`: rows without one of their recordings."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from conformance import conforms, spawned
from forebay import ConfigError, augment, crops, features
from stems import AUDIO, RATE, change, write_stems

WAVEFORM = features.Waveform(sample_rate=RATE)
GIVEN: dict[str, Any] = {
    "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 4, "n_workers": 2, "seed": 3,
    "audio": AUDIO, "shuffle_min_size": 0, "infinite": False, "order": "sequential",
}  # fmt: skip
PLACES: dict[str, dict[str, Any]] = {
    "random": {}, "loudest": {"crop": crops.Loudest(of=4)}, "windows": {"crop": crops.Windows(0.01)},
    "views": {"crop": crops.Views(3)}, "whole": {"crop": crops.Whole(), "clip_seconds": 5.0},
}  # fmt: skip


def batches(files: Any, **given: Any) -> list[dict[str, Any]]:
    return list(forebay.Loader(files, **{**GIVEN, **given}))


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as made:
        yield made


def write_missing(folder: Path, form: str, lengths: list[int]) -> tuple[Any, list[set[str]]]:
    """Mixtures and sources, of which some rows lack one or both; what each row lacks."""
    jsonl = write_stems(folder, lengths)
    rows = [json.loads(line) for line in jsonl.read_text().splitlines()]
    lacks = [{name for at, name in enumerate(("s1", "s2")) if row % 4 >> at & 1} for row in range(len(rows))]
    kept = [row | dict.fromkeys(lack) for row, lack in zip(rows, lacks, strict=True)]
    if form == "jsonl":
        jsonl.write_text("".join(json.dumps(row) + "\n" for row in kept))
        return jsonl, lacks
    if form == "csv":
        table = folder / "stems.csv"
        lines = [",".join(row[name] or "" for name in ("mix", "s1", "s2")) for row in kept]
        table.write_text("\n".join(["mix,s1,s2", *lines]) + "\n")
        return table, lacks
    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns: dict[str, Any] = {}
    for name in ("mix", "s1", "s2"):
        found = [None if row[name] is None else (folder / row[name]).read_bytes() for row in kept]
        # Nulls, and structs of nulls.
        made = [None if at > 8 and one is None else {"bytes": one, "path": None} for at, one in enumerate(found)]
        columns[name] = pa.array(made, struct)
    data = pa.table(columns)
    if form == "parquet":
        pq.write_table(data, folder / "stems.parquet", row_group_size=5)
        return folder / "stems.parquet", lacks
    with pa.OSFile(str(folder / "stems.arrow"), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=5)
    return folder / "stems.arrow", lacks


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("place", PLACES)
def test_zeros_for_missing_recordings(form: str, place: str, tmp_path: Path) -> None:
    """The others are those of rows that have all of them."""
    lengths = [200 + 37 * row % 300 for row in range(20)]
    whole = write_stems(tmp_path / "whole", lengths)
    table, lacks = write_missing(tmp_path / "missing", form, lengths)
    audio = {"mix": "mix", "stems": ["s2", "s1"], "again": "s1"}
    given = {**PLACES[place], "audio": audio, "targets": {}}
    expected = batches(whole, **given)
    found = batches(table, **given, missing_audio="zeros")
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one["index"], other["index"])
        assert other["audio_mask"].dtype == np.uint8
        for at, row in enumerate(other["index"]):
            has = [name not in lacks[row] for name in ("mix", "s2", "s1", "s1")]
            assert other["audio_mask"][at].tolist() == has
            axis = 1 if place == "views" else 0
            rows = [np.moveaxis(batch["stems"][at], axis, 0) for batch in (one, other)]
            np.testing.assert_array_equal(other["mix"][at], one["mix"][at])
            for number, is_there in enumerate(has[1:3]):
                np.testing.assert_array_equal(rows[1][number], rows[0][number] * is_there)
            np.testing.assert_array_equal(other["again"][at], one["again"][at] * has[3])


def test_a_missing_recording_is_an_error_by_default(tmp_path: Path) -> None:
    table, lacks = write_missing(tmp_path, "jsonl", [300] * 8)
    with forebay.Loader(table, **GIVEN | {"batch_size": 2}) as loader:
        assert [row for batch in loader for row in batch["index"]] == [0, 4]
        assert {error["kind"] for error in loader.errors()} == {"unreadable"}
        told = 'column "s1": line 4: the row has no path; missing_audio="zeros" puts zeros in its place'
        assert told in {error["reason"] for error in loader.errors()}
    with pytest.raises(ConfigError, match='missing_audio is "zeros", which is about the recordings in audio'):
        forebay.Loader(table, **GIVEN | {"audio": None, "audio_column": "mix", "missing_audio": "zeros"})
    # The first decides where clips are, and a file that is not there is an error as before.
    given = {"audio": {"s1": "s1", "mix": "mix"}, "missing_audio": "zeros", "batch_size": 1}
    found = [int(row) for batch in batches(table, **given) for row in batch["index"]]
    assert found == [row for row in range(8) if "s1" not in lacks[row]]
    change(table, 4, s1="gone.wav")
    with forebay.Loader(table, **GIVEN | {"missing_audio": "zeros", "batch_size": 1}) as loader:
        assert [int(row) for batch in loader for row in batch["index"]] == [0, 1, 2, 3, 5, 6, 7]


def test_the_recipe_has_it(tmp_path: Path) -> None:
    table, _ = write_missing(tmp_path, "jsonl", [300] * 4)
    with forebay.Loader(table, **GIVEN, missing_audio="zeros") as loader:
        assert loader.recipe.to_dict()["missing_audio"] == "zeros"
        assert "missing_audio  'zeros'" in str(loader.recipe)
    with forebay.Loader(table, **GIVEN) as loader:
        assert "missing_audio" not in loader.recipe.to_dict()


def test_masks_are_exchanged_with_their_waveforms(tmp_path: Path) -> None:
    table, _ = write_missing(tmp_path, "jsonl", [300] * 16)
    audio = {"stems": ["mix", "s1"], "s2": "s2"}
    given = {"audio": audio, "order": "global", "batch_size": 8, "missing_audio": "zeros", "targets": {}}
    moved = 0
    for one, other in zip(
        batches(table, **given, augment=[]), batches(table, **given, augment=[augment.Remix(4)]), strict=True
    ):
        heard = np.stack([*np.abs(other["stems"]).max(2).T, np.abs(other["s2"]).max(1)], 1) > 0
        np.testing.assert_array_equal(other["audio_mask"], heard)
        moved += (one["audio_mask"] != other["audio_mask"]).sum()
    assert moved > 4


def test_missing_recordings_conform(processes: ProcessPoolExecutor, tmp_path: Path) -> None:
    table, _ = write_missing(tmp_path, "jsonl", [200 + 37 * row % 300 for row in range(40)])
    for bad in ("12-mix.wav", "24-s1.wav"):
        (tmp_path / bad).write_bytes(b"no recording")
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.02, "batch_size": 8, "n_workers": 2, "missing_audio": "zeros",
        "audio": {"mix": "mix", "stems": ["s1", "s2"]}, "targets": {}, "shuffle_min_size": 20,
        "shuffle_buffer_size": 40, "infinite": True,
    }  # fmt: skip
    for form in ("global", "window"):
        conforms(table, processes, tmp_path, **{**given, "order": form})


def test_missing_recordings_of_a_dataset(tmp_path: Path) -> None:
    table, lacks = write_missing(tmp_path, "parquet", [300] * 8)
    data = forebay.AudioDataset(
        table, audio=AUDIO, features=WAVEFORM, clip_seconds=0.02, targets={}, missing_audio="zeros"
    )
    batch = data.get_batch(range(8))
    assert [["s1" in lack, "s2" in lack] for lack in lacks] == (batch["audio_mask"][:, 1:] == 0).tolist()
    assert not batch["s1"][1].any()
    assert batch["mix"][1].any()
    with pytest.raises(forebay.DecodeError):
        forebay.AudioDataset(table, audio=AUDIO, features=WAVEFORM, clip_seconds=0.02, targets={}).get_batch([1])


def test_only_nulls(tmp_path: Path) -> None:
    """A null is told as what cannot be read, with its row."""
    table = write_stems(tmp_path, [300] * 5)
    for row in range(5):
        change(table, row, s2=None)
    with (
        forebay.Loader(table, **GIVEN) as loader,
        pytest.raises(
            forebay.DecodeError, match=r'no good record: 5 of 5 records failed \(unreadable\).*column "s2".*no path'
        ),
    ):
        next(loader)
    (batch, last) = batches(table, missing_audio="zeros")
    assert batch["audio_mask"].tolist() == [[1, 1, 0]] * 4
    assert len(last["index"]) == 1
