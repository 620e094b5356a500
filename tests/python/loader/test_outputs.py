"""Optional fields of batches: `outputs=["path", "start", "valid_samples"]`."""

import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from recordings import TINY, TINY_SAMPLES, Row, tiny_rows, write_shard

RATE = TINY["sample_rate"]
HEADER = 44
ALL = ["path", "start", "valid_samples"]
LENGTHS = [40, TINY_SAMPLES, 100, 159, 3]
"""Lengths of the recordings in samples, used in turn."""


def rows(n: int) -> list[Row]:
    """Recordings of different lengths, every third one without a path."""
    made = []
    for i, row in enumerate(tiny_rows(n)):
        assert row.audio is not None
        pcm = row.audio[HEADER : HEADER + 2 * LENGTHS[i % len(LENGTHS)]]
        header = bytearray(row.audio[:HEADER])
        header[4:8] = (36 + len(pcm)).to_bytes(4, "little")
        header[40:44] = len(pcm).to_bytes(4, "little")
        made.append(Row(bytes(header) + pcm, i % 4, None if i % 3 == 0 else f"päth {i}.wav"))
    return made


def samples(row: Row) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert row.audio is not None
    return np.frombuffer(row.audio[HEADER:], "<i2").astype(np.float32) / np.float32(32768)


@pytest.fixture(scope="module", params=["arrow", "parquet"])
def shard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    if request.param == "arrow":
        return write_shard(folder / "a.arrow", rows(60))
    table = pa.table(
        {
            "audio": [{"bytes": row.audio, "path": row.path} for row in rows(60)],
            "label": [row.label for row in rows(60)],
        }
    )
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    return folder / "a.parquet"


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("order", ["sequential", "window", "global"])
def test_they_say_where_a_clip_is_from(shard: Path, order: str, augment: bool) -> None:
    """The clip that the fields describe has the spectrogram of their row."""
    transform = forebay.SpectrogramTransform(
        sample_rate=RATE, n_fft=TINY["n_fft"], hop_length=TINY["hop_length"], n_mels=TINY["n_mels"]
    )
    parameters: dict[str, Any] = {
        **TINY,
        "clip_seconds": 0.01,
        "infinite": False,
        "shuffle_min_size": 9,
        "order": order,
    }
    n = round(parameters["clip_seconds"] * RATE)
    made, seen = rows(60), 0
    with forebay.Loader([shard], batch_size=8, augment=augment, outputs=ALL, **parameters) as loader:
        for batch in loader:
            assert list(batch) == ["spectrogram", "label", "index", *ALL]
            assert batch["start"].dtype.name == "float64"
            assert batch["valid_samples"].dtype.name == "int64"
            assert batch["start"].shape == batch["valid_samples"].shape == batch["index"].shape
            assert type(batch["path"]) is not np.ndarray
            for i, index in enumerate(batch["index"]):
                row = made[index]
                assert batch["path"][i] == (row.path or "")
                pcm, start = samples(row), round(batch["start"][i] * RATE)
                clip = np.zeros(n, np.float32)
                begin, end = max(start, 0), min(start + n, len(pcm))
                clip[begin - start : end - start] = pcm[begin:end]
                assert batch["valid_samples"][i] == end - begin
                assert (batch["spectrogram"][i] == transform.transform(clip)).all()
                seen += 1
    assert seen == 60


def test_nothing_else_changes(shard: Path) -> None:
    parameters: dict[str, Any] = {**TINY, "batch_size": 16, "shuffle_min_size": 20, "seed": 3}
    with forebay.Loader([shard], **parameters) as plain, forebay.Loader([shard], outputs=ALL, **parameters) as more:
        for _ in range(6):
            one, other = next(plain), next(more)
            assert list(one) == ["spectrogram", "label", "index"]
            assert all((one[name] == other[name]).all() for name in one)
        state = plain.state_dict()
        assert state == more.state_dict()
        following = next(plain)
        more.load_state_dict(state)
        with pickle.loads(pickle.dumps(more)) as copied:
            copied = next(copied)
            assert list(copied) == ["spectrogram", "label", "index", *ALL]
            assert (copied["index"] == following["index"]).all()


@pytest.mark.parametrize("outputs", [["path"], ["valid_samples", "path"], [], None, ("start",)])
def test_any_of_them_in_any_order(shard: Path, outputs: Sequence[str] | None) -> None:
    with forebay.Loader([shard], outputs=outputs, **TINY, batch_size=16) as loader:
        assert list(next(loader)) == ["spectrogram", "label", "index", *(outputs or [])]
        assert loader.headspace(seconds=0.0)["handover_per_s"] > 0


def test_of_mixtures_and_ranks(shard: Path) -> None:
    """The fields of two ranks together equal those of one process."""
    parameters: dict[str, Any] = {**TINY, "outputs": ALL, "order": "global", "seed": 5}
    files = {"a": [shard], "b": [shard]}
    with forebay.Loader(files, batch_size=16, **parameters) as loader:
        whole = next(loader)
        assert list(whole) == ["spectrogram", "label", "source", "index", *ALL]
        assert (whole["source"] == whole["index"] // 60).all()
    parts = []
    for rank in range(2):
        with forebay.Loader(files, batch_size=8, rank=rank, world_size=2, **parameters) as loader:
            parts.append(next(loader))
    for name in whole:
        both = [part[name] for part in parts]
        assert np.array_equal(np.concatenate(both), whole[name])


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            ["paths"],
            'outputs has "paths", must be one of ["path", "start", "valid_samples", "valid_frames", "attention_mask", ',
        ),
        (["start", "start"], 'outputs has "start" twice'),
        (["path", ""], 'outputs has "", must be one of'),
    ],
)
def test_others_are_refused(shard: Path, outputs: list[str], message: str) -> None:
    with pytest.raises(forebay.ConfigError, match=re.escape(message)):
        forebay.Loader([shard], outputs=outputs, **TINY)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_no_path_makes_a_record_bad(tmp_path: Path, kind: str) -> None:
    """A path that is null, too long or not UTF-8 becomes empty; the record stays good."""
    names = [b"\xff\xfe", b"x" * 4096, b"x" * 4097, b"y" * 70_000, b"fine.wav", None]
    expected = ["", "x" * 4096, "", "", "fine.wav", ""]
    audio = [{"bytes": row.audio, "path": name} for row, name in zip(rows(6), names, strict=True)]
    table = pa.table({"audio": pa.array(audio, pa.struct([("bytes", pa.binary()), ("path", pa.binary())]))})
    path = tmp_path / f"a.{kind}"
    if kind == "arrow":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    else:
        pq.write_table(table, path)
    parameters: dict[str, Any] = {**TINY, "infinite": False, "shuffle_min_size": 0}
    with (
        forebay.Loader([path], outputs=["path"], **parameters) as loader,
        forebay.Loader([path], **parameters) as plain,
    ):
        batch, other = next(loader), next(plain)
        assert batch["path"] == expected
        assert (batch["spectrogram"] == other["spectrogram"]).all()
        assert loader.errors() == plain.errors() == []


def test_paths_count_as_memory(shard: Path) -> None:
    parameters: dict[str, Any] = {**TINY, "shuffle_buffer_size": 100_000, "shuffle_min_size": 100, "n_workers": 1}
    parameters |= {"n_readers": 1, "raw_channel_bytes": 2**25, "memory_budget": 2**28}
    forebay.Loader([shard], **parameters).close()
    with pytest.raises(forebay.ConfigError, match="memory_budget"):
        forebay.Loader([shard], outputs=["path"], **parameters)


def test_bad_records_have_none(tmp_path: Path) -> None:
    made = [Row(b"no recording", 0, "bad") if i % 5 == 2 else row for i, row in enumerate(rows(40))]
    shard = write_shard(tmp_path / "a.arrow", made)
    with forebay.Loader([shard], infinite=False, shuffle_min_size=0, batch_size=7, outputs=ALL, **TINY) as loader:
        paths = [path for batch in loader for path in batch["path"]]
        assert paths == [row.path or "" for row in made if row.path != "bad"]
        assert len(loader.errors()) == 8


def test_slots_are_places_before_bad_records(tmp_path: Path) -> None:
    """A finite pass leaves bad records out, and the slots of the other rows tell where they were."""
    bad = {2, 3, 7, 20, 39}
    made = [Row(b"no recording", 0, None) if i in bad else row for i, row in enumerate(tiny_rows(40))]
    shard = write_shard(tmp_path / "a.arrow", made)
    parameters: dict[str, Any] = {**TINY, "order": "sequential", "outputs": ["slot"], "batch_size": 8}
    with forebay.Loader([shard], infinite=False, **parameters) as loader:
        for number, batch in enumerate(loader):
            assert batch["slot"].dtype == np.int64
            first = 8 * number
            expected = [row - first for row in range(first, first + 8) if row not in bad]
            assert batch["slot"].tolist() == expected
            assert batch["index"].tolist() == [first + slot for slot in expected]
    with forebay.Loader([shard], infinite=True, **parameters) as loader:
        for _ in range(6):
            assert next(loader)["slot"].tolist() == list(range(8))
    dataset = forebay.AudioDataset([shard], outputs=["slot"], **TINY)
    assert dataset.get_batch([5, 0, 12])["slot"].tolist() == [0, 1, 2]
    assert dataset[4]["slot"] == 0


@pytest.mark.parametrize("world_size", [1, 2])
def test_slots_of_ranks_and_resumed_passes(tmp_path: Path, world_size: int) -> None:
    """Slots are places in the rank's own batch, and a state changes none."""
    made = [Row(b"no recording", 0, None) if i % 5 == 2 else row for i, row in enumerate(tiny_rows(48))]
    shard = write_shard(tmp_path / "a.arrow", made)
    parameters: dict[str, Any] = {**TINY, "order": "global", "outputs": ["slot"], "batch_size": 6, "infinite": False}
    parameters |= {"rank": world_size - 1, "world_size": world_size}
    with forebay.Loader([shard], **parameters) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = [(batch["index"].tolist(), batch["slot"].tolist()) for batch in batches]
    assert any(slots != list(range(len(slots))) for _, slots in expected)
    assert all(slots == sorted(set(slots)) and slots[-1] < 6 for _, slots in expected)
    with forebay.Loader([shard], **parameters) as loader:
        loader.load_state_dict(state)
        assert [(batch["index"].tolist(), batch["slot"].tolist()) for batch in loader] == expected
