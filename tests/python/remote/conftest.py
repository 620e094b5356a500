from collections.abc import Iterator
from pathlib import Path

import pytest

from recordings import FORMATS, Row, tiny_rows, write_shard
from served import Server


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Settings of whoever runs the tests change none of them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in (
        "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN",
        "HF_TOKEN_PATH", "SSL_CERT_FILE", "XDG_CACHE_HOME",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as server:
        yield server


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards in a folder whose name is percent-encoded in a URL."""
    folder = tmp_path / "a folder, ü"
    folder.mkdir()
    rows = tiny_rows(300)
    return [write_shard(folder / f"{n}.arrow", rows[100 * n : 100 * n + 100]) for n in range(3)]


@pytest.fixture
def large_shards(tmp_path: Path) -> list[Path]:
    """Rows of 364 bytes, which are requested as pages, and of 77 kB."""
    large = (FORMATS / "loop.wav").read_bytes()
    rows = [Row(large, i % 4) if i % 8 == 0 else row for i, row in enumerate(tiny_rows(1200))]
    return [write_shard(tmp_path / f"{n}.arrow", rows[400 * n : 400 * n + 400]) for n in range(3)]
