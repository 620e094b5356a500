"""The Hub's cache folder, as `huggingface_hub` itself writes it, and the token of its login."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

import forebay
from by_url import ONE_PASS, digests
from served import COMMIT, Server

FOLDER = quote("a folder, ü")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the library."""
    home = tmp_path_factory.mktemp("hub")
    monkeypatch.setenv("HF_HOME", str(home))
    return home


@pytest.fixture
def server(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    assert home.is_dir()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    return server


def download(server: Server, *patterns: str) -> None:
    """Downloads files into the cache folder, by the library in a process of its own."""
    code = f"""
import huggingface_hub
huggingface_hub.snapshot_download("o/n", repo_type="dataset", allow_patterns={list(patterns)!r})
"""
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_that_are_there_are_not_requested(server: Server, shards: list[Path], home: Path) -> None:
    download(server, "*.arrow")
    before = contents(home)
    expected = digests(shards)
    server.requests.clear()
    for revision in ("", "@main", f"@{COMMIT}"):
        urls = [f"hf://datasets/o/n{revision}/{FOLDER}/{path.name}" for path in shards]
        assert digests(urls) == expected
    assert server.requests == []
    # A folder is listed by the Hub, and its files are those that are there.
    assert digests("hf://datasets/o/n/**/*.arrow") == expected
    assert {command for command, _ in server.requests} == {"GET"}
    assert not any(wanted for _, wanted in server.requests)
    # Nothing is written there.
    assert contents(home) == before


def test_what_is_not_there_is_of_the_same_commit(server: Server, shards: list[Path]) -> None:
    download(server, "*/0.arrow")
    server.places.clear()
    assert digests("hf://datasets/o/n/**/*.arrow") == digests(shards)
    assert server.places
    assert all(COMMIT in place for place in server.places)
    assert not any("0.arrow" in place for place in server.places)


def test_offline_folders_are_those_of_the_cache(
    server: Server, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    download(server, "*.arrow")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server.requests.clear()
    expected = digests(shards)
    for source in ("hf://datasets/o/n", f"hf://datasets/o/n/{FOLDER}/", "hf://datasets/o/n@main/**/*.arrow"):
        assert digests(source) == expected
    for missing in ("hf://datasets/o/n/none.arrow", "hf://datasets/o/other", f"hf://datasets/o/n@v1/{FOLDER}/0.arrow"):
        with pytest.raises(FileNotFoundError, match=r"HF_HUB_OFFLINE is set.*hf download"):
            forebay.Loader(missing, **ONE_PASS)
    assert server.requests == []


def test_the_token_of_a_login(server: Server, shards: list[Path], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("of-file\n")
    assert digests("hf://datasets/o/n") == digests(shards)
    assert server.credentials == {"Bearer of-file"}
    other = home / "other"
    other.write_text("of-path")
    monkeypatch.setenv("HF_TOKEN_PATH", str(other))
    server.credentials.clear()
    digests("hf://datasets/o/n")
    assert server.credentials == {"Bearer of-path"}
    monkeypatch.setenv("HF_TOKEN", "of-environment")
    server.credentials.clear()
    digests("hf://datasets/o/n")
    assert server.credentials == {"Bearer of-environment"}
