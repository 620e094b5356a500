"""Of large recordings in shards parts are read: the batches are those of the whole, whichever is read."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import soundfile

import forebay
from forebay import crops, features
from recordings import FOLDER

WAVEFORM = features.Waveform(sample_rate=16000)
PARAMETERS: dict[str, Any] = {
    "clip_seconds": 0.5, "features": WAVEFORM, "batch_size": 4, "infinite": False, "shuffle_buffer_size": 16,
    "shuffle_min_size": 8, "n_readers": 4,
}  # fmt: skip
ORDERS = ["sequential", "window", "global"]


def large() -> list[bytes]:
    """Recordings of every codec that is found by head and end, by a scan, and in a chain: 256 KiB and more."""
    names = ["21100_36_48.flac", "rugr_drum.wav", "S4A03895_20190522_180000.wav"]
    repeated = {"jfk.mp3": 3, "mp3_cbr128_48000_stereo.mp3": 12, "21100_36_48.ogg": 8, "bass_trance_c.ogg": 7}
    found = [(FOLDER / name).read_bytes() for name in names]
    found += [(FOLDER / name).read_bytes() * n for name, n in repeated.items()]
    assert all(len(recording) >= 256 << 10 for recording in found)
    return found


def shard(path: Path, found: list[bytes], compression: str | None) -> Path:
    table = pa.table({"audio": pa.array(found, pa.binary()), "number": list(range(len(found)))})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as arrow:
        arrow.write_table(table, max_chunksize=3)
    return path


def batches(path: Path, **changes: Any) -> list[tuple[list[int], bytes]]:
    with forebay.Loader(path, columns=["number"], **{**PARAMETERS, **changes}) as loader:
        found = [(batch["number"].tolist(), np.asarray(batch["waveform"]).tobytes()) for batch in loader]
        assert not loader.errors(), loader.errors()
    return found


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of a compressed record batch all is read."""
    folder, found = tmp_path_factory.mktemp("shards"), large() * 4
    return shard(folder / "part.arrow", found, None), shard(folder / "whole.arrow", found, "lz4")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mmap", [False, True])
def test_batches_are_those_of_the_whole(order: str, mmap: bool, shards: tuple[Path, Path]) -> None:
    part, whole = shards
    # Whether parts are read depends on the times of reads.
    for seed in range(4):
        assert batches(part, order=order, seed=seed, mmap=mmap) == batches(whole, order=order, seed=seed)


@pytest.mark.parametrize(
    "crop", [crops.Windows(0.25), crops.Views(2), crops.Random(silence_db=-50.0), crops.Loudest(of=4)], ids=repr
)
def test_crops_are_those_of_the_whole(crop: Any, shards: tuple[Path, Path]) -> None:
    part, whole = shards
    for order in ("sequential", "window"):
        assert batches(part, crop=crop, order=order) == batches(whole, crop=crop, order=order)


def encoded(form: str, subtype: str, rate: int, channels: int, seconds: int) -> bytes:
    """Noise whose loudness changes from second to second, so that equal times have unequal bytes."""
    dice = np.random.default_rng(7)
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, channels, subtype, format=form) as writer:
        # libsndfile's encoder of Vorbis does not survive all of it at once.
        for _ in range(seconds):
            writer.write(dice.uniform(0.0, 0.5) * dice.uniform(-1, 1, (rate, channels)))
    return file.getvalue()


def test_of_what_is_longer_than_a_block_parts_are_those_of_the_whole(tmp_path: Path) -> None:
    found = [encoded("FLAC", "PCM_16", 16000, 2, 110), encoded("OGG", "VORBIS", 44100, 2, 290)]
    assert all(len(recording) > 4 << 20 for recording in found), [len(recording) for recording in found]
    part, whole = shard(tmp_path / "part.arrow", found * 4, None), shard(tmp_path / "whole.arrow", found * 4, "lz4")
    for seed in range(4):
        assert batches(part, order="global", seed=seed) == batches(whole, order="global", seed=seed)
    crop = crops.Views(3)
    assert batches(part, order="sequential", crop=crop) == batches(whole, order="sequential", crop=crop)


def test_clips_placed_by_a_column(tmp_path: Path) -> None:
    """The values of a row are read before the part that they choose."""
    found = large()
    events = [[[0.1 * row, 0.1 * row + 0.2], [1.3, 1.5]] for row in range(len(found))]
    paths = {}
    for name, compression in (("part", None), ("whole", "lz4")):
        table = pa.table({"audio": pa.array(found, pa.binary()), "events": events, "number": list(range(len(found)))})
        paths[name] = tmp_path / f"{name}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(paths[name], table.schema, options=options) as arrow:
            arrow.write_table(table)
    crop = crops.Events(column="events")
    for seed in range(4):
        changes: dict[str, Any] = {"crop": crop, "order": "sequential", "seed": seed}
        assert batches(paths["part"], **changes) == batches(paths["whole"], **changes)


def test_lengths_are_those_of_the_whole(shards: tuple[Path, Path]) -> None:
    infos: list[Any] = []
    for path in shards:
        with forebay.AudioDataset(path, features=WAVEFORM) as dataset:
            infos.append([dataset.info(row) for row in range(len(dataset))])
            waveforms = [dataset.waveform(row, start=0.25, seconds=0.5)[0].tobytes() for row in range(7)]
        infos.append([waveforms])
    assert infos[:2] == infos[2:]


def test_a_record_that_is_damaged_where_it_is_not_read_is_good(tmp_path: Path) -> None:
    """As in a whole recording: what a clip does not need is not decoded."""
    wav = (FOLDER / "rugr_drum.wav").read_bytes()
    cut = wav[: len(wav) * 2 // 3]
    flac = bytearray((FOLDER / "21100_36_48.flac").read_bytes())
    flac[len(flac) // 2] ^= 0xFF
    joined = (FOLDER / "tabla_ghe5.flac").read_bytes() * 3  # frames whose numbers come again
    found = [wav, cut, bytes(flac), joined, b"RIFF" + bytes(300_000), bytes(300_000)]
    reasons = []
    for name, compression in (("part.arrow", None), ("whole.arrow", "lz4")):
        path = shard(tmp_path / name, found * 6, compression)
        with forebay.Loader(path, **{**PARAMETERS, "order": "sequential"}, max_errors=100) as loader:
            rows = [np.asarray(batch["waveform"]).tobytes() for batch in loader]
            errors = [(error["row"], error["kind"], error["reason"]) for error in loader.errors()]
        reasons.append((rows, sorted(errors)))
    assert reasons[0] == reasons[1]
    assert len(reasons[0][1]) >= 12
