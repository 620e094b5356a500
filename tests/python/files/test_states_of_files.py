"""States of recordings in files: what they depend on, and what they do not."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import forebay
from digests import digest
from forebay import augment, sampling, targets
from recordings import TINY
from tables import rows, write_recordings, write_table

SETTING: dict[str, Any] = {**TINY, "seed": 4, "batch_size": 4, "shuffle_min_size": 8}
N = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a folder `one` of recordings, tables and an archive."""
    monkeypatch.chdir(tmp_path)
    names = write_recordings(tmp_path / "one" / "audio", N)
    made = rows([f"audio/{name}" for name in names], segments=True)
    write_table(tmp_path / "one" / "table.csv", made)
    write_table(tmp_path / "one" / "table.jsonl", rows([f"audio/{name}" for name in names]))
    with tarfile.open(tmp_path / "one" / "archive.tar", "w") as archive:
        for at, name in enumerate(names):
            (tmp_path / "note").write_text(f"note {at}")
            archive.add(tmp_path / "one" / "audio" / name, f"{at:03}.wav")
            archive.add(tmp_path / "note", f"{at:03}.text")
            (tmp_path / "note").write_text(json.dumps({"x": at, "bird": "owl"}))
            archive.add(tmp_path / "note", f"{at:03}.json")
    return tmp_path


def listed(folder: str) -> list[str]:
    """The recordings of a folder, one by one."""
    return sorted(str(path) for path in Path(folder, "audio").iterdir())


def resumes(files: Any, state: dict[str, Any], expected: list[str], **keywords: Any) -> None:
    """Checks that a loader takes the state, and then gives batches with these digests."""
    with forebay.Loader(files, **{**SETTING, **keywords}) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        found = [next(loader) for _ in expected]
    names = set(keywords.get("columns", ()))
    assert [digest({name: batch[name] for name in batch if name not in names}) for batch in found] == expected


def begun(files: Any, **keywords: Any) -> tuple[dict[str, Any], list[str]]:
    """A state after two batches, and digests of the next ones."""
    with forebay.Loader(files, **{**SETTING, **keywords}) as loader:
        next(loader), next(loader)
        state = loader.state_dict()
        names = set(keywords.get("columns", ()))
        batches = [next(loader) for _ in range(4)]
    return state, [digest({name: batch[name] for name in batch if name not in names}) for batch in batches]


@pytest.mark.parametrize("name", ["table.csv", "table.jsonl", "archive.tar"])
def test_columns_that_are_passed_through_may_change(folder: Path, name: str) -> None:
    """`columns=` is no part of a state: docs/targets.md."""
    file = folder / "one" / name
    state, expected = begun(file, columns=["text"])
    resumes(file, state, expected)
    resumes(file, state, expected, columns=["x", "bird"])
    resumes(file, begun(file)[0], expected, columns=["x", "text"])


@pytest.mark.parametrize("name", ["table.csv", "table.jsonl"])
def test_columns_that_decide_on_batches_are_part_of_a_state(folder: Path, name: str) -> None:
    """Rows that a table lost or got, and values of a target or of sampling, make other batches."""
    file = folder / "one" / name
    for keywords in (
        {"targets": targets.Number("index_in_table")},
        {"sampling": sampling.Weighted("index_in_table")},
    ):
        state, expected = begun(file, columns=["index_in_table"], **keywords)
        resumes(file, state, expected, columns=["x", "text", "index_in_table"], **keywords)
        resumes(file, state, expected, **keywords)
        text = file.read_text()
        file.write_text(text.replace(",5,", ",6,").replace('"index_in_table": 5', '"index_in_table": 6'))
        with forebay.Loader(file, **SETTING, **keywords) as loader, pytest.raises(forebay.StateError, match="others"):
            loader.load_state_dict(state)
        file.write_text(text)


@pytest.mark.parametrize("form", ["list", "one", "pattern", "folder", "table", "archive", "mixture"])
def test_a_folder_may_move(folder: Path, form: str) -> None:
    def files(top: str) -> Any:
        forms = {
            "list": listed(top)[::-1],
            "one": listed(top)[0],
            "pattern": f"{top}/audio/*.wav",
            "folder": f"{top}/audio",
            "table": f"{top}/table.csv",
            "archive": f"{top}/archive.tar",
            "mixture": {"a": listed(top), "b": f"{top}/audio/00*.wav"},
        }
        return forms[form]

    state, expected = begun(files("one"))
    resumes(files(f"{folder}/one"), state, expected)
    resumes(files("./one"), state, expected)
    shutil.move("one", "deep.er/below")
    resumes(files("deep.er/below"), state, expected)


@pytest.mark.usefixtures("folder")
def test_the_recordings_of_a_step_may_move() -> None:
    def steps(top: str) -> list[Any]:
        return [augment.Mix(listed(top)[:3], snr_db=(0, 9)), augment.Reverb(f"{top}/audio/*.wav")]

    state, expected = begun("one/table.csv", augment=steps("one"))
    shutil.copytree("one", "other")
    resumes("other/table.csv", state, expected, augment=steps("other"))
    swapped = forebay.Loader("one/table.csv", **SETTING, augment=steps("one")[::-1])
    with swapped as loader, pytest.raises(forebay.StateError, match="augment"):
        loader.load_state_dict(state)


@pytest.mark.usefixtures("folder")
def test_other_lists_are_refused() -> None:
    """Names and their order count, and folders below the one that all paths share."""
    shutil.copytree("one", "other")
    paths = listed("one")
    state, _ = begun(paths)
    for wrong in (paths[::-1], [*paths[:-1], paths[0].replace("one", "other")], listed("other")[1:]):
        with forebay.Loader(wrong, **SETTING) as loader, pytest.raises(forebay.StateError, match="others"):
            loader.load_state_dict(state)


FORMER: dict[str, tuple[dict[str, Any], str]] = {
    "list": ({}, "9477fcf722c796e7"),
    "pattern": ({}, "9477fcf722c796e7"),
    "table.csv": ({"columns": ["text", "x"]}, "0abf5c0883a67d33"),
    "table.jsonl": ({"columns": ["bird"], "sampling": sampling.Where("x", minimum=0)}, "daab0261cfa57800"),
    "mix": ({}, "9477fcf722c796e7"),
}
"""Fingerprints in states of the version before, which counted all columns, and the paths of lists as given."""


@pytest.mark.parametrize("form", FORMER)
def test_earlier_states_are_loaded(folder: Path, form: str) -> None:
    keywords, fingerprint = FORMER[form]
    (folder / "one").rename(folder / "moved")
    paths = listed("moved")
    files: Any = {"list": paths, "pattern": "moved/audio/*.wav", "mix": paths}.get(form, f"moved/{form}")
    if form == "mix":
        keywords = {"augment": [augment.Mix(paths[:3], snr_db=(0, 9))]}
    state, expected = begun(files, **keywords)
    assert state["data"]["fingerprint"] != fingerprint
    state["data"]["fingerprint"] = fingerprint
    if form == "mix":
        state["config"]["augment"][0]["source"]["fingerprint"] = "19a7c89c6f269bc1"
    resumes(files, state, expected, **keywords)
    state["data"]["fingerprint"] = fingerprint[::-1]
    with forebay.Loader(files, **SETTING, **keywords) as loader, pytest.raises(forebay.StateError, match="others"):
        loader.load_state_dict(state)
