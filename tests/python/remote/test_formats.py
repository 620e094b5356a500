"""Every kind of source by URL gives what its local files give."""

import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import documents
import forebay
from by_url import ONE_PASS
from digests import digest
from recordings import TINY, tiny_rows, write_shard
from served import Server
from tables import write_recordings


@pytest.fixture
def server(server: Server) -> Server:
    server.fails_every = 19
    return server


def same(sources: list[Path], server: Server, **parameters: Any) -> None:
    """Checks that URLs give the batches of the files."""
    batches = []
    for source in (sources, [server.named(path) for path in sources]):
        with forebay.Loader(source, **{**ONE_PASS, **parameters}) as loader:
            batches.append([digest(batch) for batch in loader])
            stats = loader.stats()
    assert batches[0] == batches[1]
    assert batches[0]
    assert stats["requests"] >= len(server.requests) > 0
    assert stats["received_bytes"] >= server.sent / 2 > 0


@pytest.mark.parametrize("order", ["sequential", "window", "global"])
def test_parquet(server: Server, tmp_path: Path, order: str) -> None:
    paths = []
    for number in range(2):
        made = [{"audio": {"bytes": row.audio, "path": None}, "label": row.label} for row in tiny_rows(60)]
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.Table.from_pylist(made), paths[-1], row_group_size=16)
    same(paths, server, order=order)


def test_a_tar(server: Server, tmp_path: Path) -> None:
    names = write_recordings(tmp_path / "audio", 30)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in names:
            tar.add(tmp_path / "audio" / name, name)
    same([tmp_path / "a.tar"], server)


def test_documents(server: Server, tmp_path: Path) -> None:
    folder = documents.write_documents(tmp_path)
    paths = sorted(folder.glob("*.parquet"))
    found = []
    for source in (paths, [server.named(path) for path in paths]):
        with documents.loader(source) as loader:
            found.append([digest(batch) for batch in islice(loader, 10)])
    assert found[0] == found[1]


def test_random_access(server: Server, tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.arrow", tiny_rows(20))
    with forebay.AudioDataset([path]) as local, forebay.AudioDataset([server.named(path)]) as remote:
        assert len(local) == len(remote) == 20
        for row in (0, 19, 7):
            assert digest(local[row]) == digest(remote[row])


def test_five_seconds_of_a_long_recording_are_a_part_of_it(server: Server, tmp_path: Path) -> None:
    header = (tiny_rows(1)[0].audio or b"")[:44]
    pcm = np.random.default_rng(3).integers(-9000, 9000, 8000 * 600, dtype="<i2").tobytes()
    riff = header[:4] + (36 + len(pcm)).to_bytes(4, "little") + header[8:40] + len(pcm).to_bytes(4, "little")
    path = tmp_path / "long.wav"
    path.write_bytes(riff + pcm)
    parameters: dict[str, Any] = {**TINY, "clip_seconds": 5.0, "batch_size": 1, "infinite": False, "n_workers": 1}
    found = []
    server.fails_every = 0
    for source in (path, server.named(path)):
        with forebay.Loader([source], **parameters) as loader:
            found.append([digest(batch) for batch in loader])
    assert found[0] == found[1]
    assert server.sent <= 1_000_000 < path.stat().st_size
