"""`Manifest.of_stems`: folders of stems are the rows of a table that names each recording."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, Manifest, features
from stems import RATE, source
from windows import wav

NAMES = ["mixture", "bass", "vocals"]
SONGS = {"B side": 900, "A": 700, "C": 800}
GIVEN: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE), "clip_seconds": 0.05, "batch_size": 3, "infinite": False,
    "shuffle_min_size": 0, "n_workers": 2,
}  # fmt: skip

MADE: dict[str, tuple[str, Any]] = {
    "songs": ("{song}/{name}.wav", "{song}/{stem}.wav"),
    "stems": ("{name}/{song}.wav", "{stem}/{song}.wav"),
    "names": ("all/{song}_{name}.wav", "all/{song}_{stem}.wav"),
    "deep": ("{song}/{song}_STEMS/{song}_{name}.wav", "{song}/{song}_STEMS/{song}_{stem}.wav"),
    "dict": ("{song}/{name}.wav", {name: f"{{song}}/{name}.wav" for name in NAMES}),
}
"""Where recordings are written, and the form that finds them."""


def write(root: Path, form: str, missing: str = "") -> list[dict[str, Any]]:
    """Writes the recordings of all songs; returns their rows, sorted."""
    rows: list[dict[str, Any]] = []
    for song in sorted(SONGS):
        row: dict[str, Any] = {"song": song}
        parts = {"bass": source(SONGS[song], len(rows), 1), "vocals": source(SONGS[song], len(rows), 2)}
        for name, samples in {"mixture": parts["bass"] + parts["vocals"], **parts}.items():
            path = form.format(song=song, name=name)
            row[name] = None if path == missing else path
            if path != missing:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(wav(samples, RATE))
        rows.append(row)
    return rows


@pytest.mark.parametrize("kind", MADE)
def test_batches_are_those_of_a_table(kind: str, tmp_path: Path) -> None:
    written, form = MADE[kind]
    rows = write(tmp_path, written)
    for more in ("readme.txt", ".hidden.wav", ".Trash/A/vocals.wav"):
        (tmp_path / more).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / more).write_bytes(b"no recording")
    given = {**GIVEN, "audio": {"mix": "mixture", "parts": ["bass", "vocals"]}, "columns": ["song"]}
    with (
        forebay.Loader(Manifest.of_stems(tmp_path, form), **given) as found,
        forebay.Loader(Manifest(rows, root=tmp_path), **given) as expected,
    ):
        [one], [other] = list(found), list(expected)
    assert one["song"] == sorted(SONGS)
    assert list(one) == list(other)
    for name in one:
        assert np.array_equal(one[name], other[name]), name
    assert np.allclose(one["mix"], one["parts"].sum(1), atol=1e-6)


def test_a_missing_stem_is_null(tmp_path: Path) -> None:
    write(tmp_path, "{song}/{name}.wav", missing="B side/vocals.wav")
    stems = Manifest.of_stems(str(tmp_path), "{song}/{stem}.wav")
    given = {**GIVEN, "audio": {name: name for name in NAMES}}
    with forebay.Loader(stems, missing_audio="zeros", **given) as loader:
        [batch] = list(loader)
    assert batch["audio_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert not batch["vocals"][1].any()
    with forebay.Loader(stems, **given) as loader:
        assert [batch["index"].tolist() for batch in loader] == [[0, 2]]


def test_what_it_is(tmp_path: Path) -> None:
    """A manifest of columns, which another folder of the same files has as well."""
    made = []
    for name in ("one", "other"):
        rows = write(tmp_path / name, "{name}/{song}.wav")
        made.append(Manifest.of_stems(tmp_path / name, "{stem}/{song}.wav"))
        columns = {column: [row[column] for row in rows] for column in ("song", "bass", "mixture", "vocals")}
        assert made[-1] == Manifest(columns, root=tmp_path / name)
    given = {**GIVEN, "audio": {"mix": "mixture", "bass": "bass"}, "batch_size": 1}
    with forebay.Loader(made[0], **given) as loader, forebay.Loader(made[1], **given) as again:
        next(loader)
        again.load_state_dict(loader.state_dict())
        assert next(again)["index"] == 1
    (tmp_path / "one" / "linked").symlink_to(tmp_path / "one" / "mixture")
    assert Manifest.of_stems(tmp_path / "one", "{stem}/{song}.wav") == made[0]


@pytest.mark.parametrize(
    ("files", "error", "told"),
    [
        (3, TypeError, "files is 3"),
        ({"vocals": 3}, TypeError, "files is "),
        ({}, ConfigError, "must have at least one column"),
        ("{song}/vocals.wav", ConfigError, "files is a str, which needs {stem}"),
        ({"vocals": "{song}/{stem}.wav"}, ConfigError, "files is a dict, and has {stem}"),
        ("{stem}.wav", ConfigError, "'{stem}.wav', in which no part tells rows apart"),
        ("{a b}/{stem}.wav", ConfigError, "files has {a b} in '{a b}/{stem}.wav', must be a name in braces"),
        ("{song/{stem}.wav", ConfigError, "a brace without its other in '{song/{stem}.wav'"),
        ({"x": "{song}/x.wav", "y": "{name}/y.wav"}, ConfigError, "with the parts ['name'], and a form before with"),
        ({"song": "{song}/x.wav"}, ConfigError, "the column 'song', which is a part of its forms as well"),
        ("{song}/{stem}.flac", ConfigError, "has files such as A/bass.wav, and none of this form"),
        ({"x": "{song}/vocals.wav", "y": "{song}/bass.wav"}, None, ""),
        ({"x": "{song}/{song}.wav"}, ConfigError, "none of this form"),
    ],
)  # fmt: skip
def test_wrong_forms(files: Any, error: type[Exception] | None, told: str, tmp_path: Path) -> None:
    write(tmp_path, "{song}/{name}.wav")
    if error is None:
        assert isinstance(Manifest.of_stems(tmp_path, files), Manifest)
        return
    with pytest.raises(error) as raised:
        Manifest.of_stems(tmp_path, files)
    assert told in str(raised.value)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing', which is no folder"):
        Manifest.of_stems(tmp_path / "missing", "{song}/{stem}.wav")
    with pytest.raises(TypeError, match="root is 3"):
        Manifest.of_stems(3, "{song}/{stem}.wav")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no file"):
        Manifest.of_stems(tmp_path, "{song}/{stem}.wav")
    for path in ("a/song/vocals.wav", "b/song/vocals.wav"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"")
    twice = {"x": "a/{song}/vocals.wav", "y": "b/{song}/vocals.wav"}
    assert Manifest.of_stems(tmp_path, twice) == Manifest(
        {"song": ["song"], "x": ["a/song/vocals.wav"], "y": ["b/song/vocals.wav"]}, root=tmp_path
    )
    (tmp_path / "a/song/song.wav").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"song/song.wav has the stem 'song', and {song} is another part of files"):
        Manifest.of_stems(tmp_path / "a", "{song}/{stem}.wav")


def test_a_form_without_files(tmp_path: Path) -> None:
    """Its column would be null in every row, and zeros with `missing_audio="zeros"`."""
    write(tmp_path, "{song}/{name}.wav")
    (tmp_path / "song").mkdir(exist_ok=True)
    (tmp_path / "song/mixture.wav").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"files has 'vocals' as '{song}/vocal.wav', and .* has no file of this form"):
        Manifest.of_stems(tmp_path, {"mix": "{song}/mixture.wav", "vocals": "{song}/vocal.wav"})


def test_many_parts_of_a_name(tmp_path: Path) -> None:
    """A long name could be divided in millions of ways."""
    (tmp_path / ("_" * 200 + ".wav")).write_bytes(b"")
    with pytest.raises(ConfigError, match="more than 3 parts in a name between slashes"):
        Manifest.of_stems(tmp_path, "{artist}_{album}_{song}_{stem}.wav")
    with pytest.raises(ConfigError, match="none of this form"):
        Manifest.of_stems(tmp_path, "{album}_{song}_{stem}.flac")
