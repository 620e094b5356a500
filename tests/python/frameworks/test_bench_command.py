"""`forebay bench` beside soundfile in a torch DataLoader, which does the same work in another process."""

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from forebay import cli, features
from forebay.cli import bench_dataloader
from recordings import Row

pytest.importorskip("torch")


def sounds(rows: list[Row]) -> list[bytes]:
    """The recordings that libsndfile reads, which has no AAC."""
    return [row.audio for row in rows if row.audio is not None and row.audio[4:8] != b"ftyp"]


@pytest.mark.parametrize("form", ["parquet", "stream", "folder", "table"])
def test_beside_a_dataloader(form: str, rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recordings = sounds(rows)
    if form in ("folder", "table"):
        source = tmp_path / "some"
        source.mkdir()
        for i, recording in enumerate(recordings):
            (source / f"{i}.{'wav' if recording[:4] == b'RIFF' else 'ogg'}").write_bytes(recording)
        if form == "table":
            lines = "".join(f"{path.name}\n" for path in sorted(source.iterdir()))
            source /= "train.csv"
            source.write_text(f"path\n{lines}")
    else:
        table = pa.table({"audio": recordings})
        source = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
        if form == "parquet":
            pq.write_table(table, source)
        else:
            with pa.ipc.new_stream(source, table.schema) as shard:
                shard.write_table(table, max_chunksize=3)
    command = ["bench", str(source), "--seconds", "0.3", "-w", "1", "--batch-size", "4", "--compare"]
    assert cli.main([*command, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["dataloader"]
    assert found["recordings"] == len(recordings)
    assert found["n_workers"] == 1
    assert found["examples_per_s"] > 0
    assert found["ratio"] >= 0
    assert "soundfile in a torch DataLoader, 1 worker process: " in err


def test_the_same_spectrogram(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """As `LogMel` of the same samples, up to float32."""
    monkeypatch.setattr(random, "randrange", lambda _: 0)
    mel = {"n_fft": 1024, "hop_length": 320, "n_mels": 128}
    row = next(one for one in sounds(rows) if soundfile.info(io.BytesIO(one)).samplerate == 32_000)
    work: dict[str, Any] = {"clip_seconds": 1.0, "sample_rate": 32_000, "mel": mel}
    found = bench_dataloader.Clips([row], work)[0].numpy()
    samples = bench_dataloader.Clips([row], {**work, "mel": None})[0].numpy()
    np.testing.assert_allclose(found, features.LogMel()(samples), atol=2e-3)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    work: dict[str, Any] = {
        "paths": [str(tmp_path / "gone.wav")], "shards": [], "column": "", "n_workers": 1, "batch_size": 2,
        "seconds": 0.1, "clip_seconds": 1.0, "sample_rate": 16_000, "mel": None,
    }  # fmt: skip
    assert bench_dataloader.measured(work) == {"reason": "soundfile reads none of the recordings"}
    (tmp_path / "a.arrow").write_bytes(b"no shard")
    found = bench_dataloader.measured({**work, "paths": [], "shards": [str(tmp_path / "a.arrow")], "column": "audio"})
    assert "ArrowInvalid" in found["reason"]


@pytest.mark.parametrize("name", ["icefall", "wav2vec2", None])
def test_splits_on_a_device(
    name: str | None, rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features by workers and on the device, both with their bytes."""
    source = tmp_path / "some"
    source.mkdir()
    for i, recording in enumerate(sounds(rows)):
        (source / f"{i}.{'wav' if recording[:4] == b'RIFF' else 'ogg'}").write_bytes(recording)
    command = ["bench", str(source), "--seconds", "0.2", "-w", "1", "--batch-size", "4", "--no-compare"]
    chosen = [] if name is None else ["--features", name]
    assert cli.main([*command, *chosen, "--clip-seconds", "1", "--device", "cpu", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["device"]
    assert (found["device"], found["name"]) == ("cpu", "CPU")
    front_end = features.LogMel() if name is None else features.preset(name)
    workers, device = found["splits"]
    assert (workers["features"], device["features"]) == ("workers", "device")
    n = front_end.sample_rate
    assert workers["bytes_per_example"] == 4 * np.prod(front_end.shape(n))
    assert device["bytes_per_example"] == 2 * n
    for split in (workers, device):
        assert split["examples_per_s"] > 0
        assert split["bytes_per_s"] == pytest.approx(split["examples_per_s"] * split["bytes_per_example"])
    rates = {split["features"]: split["examples_per_s"] for split in found["splits"]}
    assert rates[found["faster"]] == max(rates.values())
    assert found["features_ms"] > 0
    assert f"faster: features by the {found['faster']}, " in err
    assert cli.main([*command, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] is None


def test_devices_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""

    def error(device: str) -> str:
        with pytest.raises(SystemExit, match="2"):
            cli.main(["bench", str(tmp_path), "--device", device])
        return capsys.readouterr().err

    assert "bench: error: --device is gpu, must be cpu, cuda or cuda:1" in error("gpu")
    assert "device is meta, must be a CUDA device or the CPU" in error("meta")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "bench: error: --device is cuda, but torch finds no CUDA device; use --device cpu" in error("cuda")
    monkeypatch.setattr("forebay.cli.bench_device.find_spec", lambda _: None)
    assert "bench: error: --device needs torch, and torch is not installed" in error("cpu")
