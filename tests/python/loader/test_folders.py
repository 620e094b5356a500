"""Relative paths are resolved when the loader is constructed; a folder stands for its shards."""

import os
from pathlib import Path

import pytest

import forebay
from recordings import TINY, Row, tiny_rows, write_shard


def test_relative_paths_outlive_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the working folder affects neither shards nor files that rows name; messages show paths as given."""
    (tmp_path / "clips").mkdir()
    rows = tiny_rows(20)
    for i in (4, 11):
        (tmp_path / "clips" / f"{i}.wav").write_bytes(rows[i].audio or b"")
        rows[i] = Row(None, 0, f"clips/{i}.wav")
    rows[17] = Row(b"not a recording")
    write_shard(tmp_path / "a.arrow", rows)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with forebay.Loader.eval("a.arrow", **TINY) as loader:
        monkeypatch.chdir("elsewhere")
        delivered = [row for batch in loader for row in batch["index"].tolist()]
        [error] = loader.errors()
        assert delivered == [row for row in range(20) if row != 17]
        assert error["shard"] == loader.shards[0]["path"] == "a.arrow"


def test_a_state_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    """A folder whose state.json is a named pipe is refused without waiting for it."""
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(OSError, match=r"state\.json.*not a regular file"):
        forebay.Loader(tmp_path)
