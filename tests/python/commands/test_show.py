"""`forebay show`: one page without requests, in which everything from the source is escaped."""

import base64
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import soundfile

import forebay
from fields import table, write
from forebay import cli
from forebay.cli.show import RECIPES
from pages import EVIL, Seen, shown
from recordings import Row, write_shard


def data(address: str | None) -> bytes:
    assert address is not None
    return base64.b64decode(address.partition(";base64,")[2], validate=True)


def test_pictures_and_players(shards: list[Path], tmp_path: Path) -> None:
    page = shown(*shards, "-n", 5, "--seconds", 2, tmp_path / "a.html")
    images, players = page.all("img"), page.all("audio")
    assert len(images) == len(players) == 5
    for image in images:
        picture = data(image["src"])
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", picture[16:24]) == (320, 128)
        length = struct.unpack(">I", picture[33:37])[0]
        pixels = zlib.decompress(picture[41 : 41 + length])
        assert len(pixels) == 128 * (1 + 3 * 320)
        assert len(set(pixels)) > 50, "the spectrogram is empty"
        assert (image["alt"] or "").startswith("Spectrogram of row ")
    for player in players:
        samples, rate = soundfile.read(io.BytesIO(data(player["src"])))
        assert rate <= 24_000
        assert 0 < len(samples) <= 2 * rate + 1
        assert np.abs(samples).max() > 0.001
        assert "controls" in player
        assert player["aria-label"]
    assert "soundscape" in page.text
    assert "Durations of 19 rows" in page.text
    assert "vorbis" in page.text


def test_the_same_rows_for_a_seed(shards: list[Path], tmp_path: Path) -> None:
    pages = [shown(*shards, "-n", 6, "--seed", seed, tmp_path / f"{i}.html") for i, seed in enumerate((1, 1, 2))]
    first, again, other = ([image["alt"] for image in page.all("img")] for page in pages)
    assert first == again != other


def test_all_text_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=1>"
    folder.mkdir()
    columns = {
        "label": pa.array([0] * 6, pa.int64()),
        EVIL: pa.array([EVIL] * 6),
    }
    path = write(folder / "a", table(columns, {"label": {"_type": "ClassLabel", "names": [EVIL]}}), "stream")
    page = shown(path, tmp_path / "a.html")
    assert not page.all("script")
    # Paths may break behind each slash.
    assert len(page.all("wbr")) >= str(path).count("/")
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "table", "caption", "tr",
        "th", "td", "span", "ul", "li", "figure", "figcaption", "img", "audio", "dl", "dt", "dd", "wbr",
    }  # fmt: skip
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count(EVIL) > 6


def test_no_request(shards: list[Path], tmp_path: Path) -> None:
    page = shown(*shards, "-n", 2, tmp_path / "a.html")
    addresses = [value for _, tag in page.tags for name, value in tag.items() if name in ("src", "href", "poster")]
    assert len(addresses) == 4
    assert all(value and value.startswith("data:") for value in addresses)
    [policy] = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "url(" not in page.text
    assert page.all("html") == [{"lang": "en"}]


def test_a_bad_recording_has_its_error(rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_shard(tmp_path / "a.arrow", [rows[0], Row(b"<b>no recording</b>", 1, "x.wav"), Row(None, 2, None)])
    output = tmp_path / "a.html"
    assert cli.main(["show", str(path), "-o", str(output), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["row"] for one in found["shown"]] == [0, 1, 2]
    assert [one["error"] is None for one in found["shown"]] == [True, False, False]
    page = Seen(output.read_text())
    assert page.text.count("Bad recording: ") == 2
    assert len(page.all("audio")) == 1


def test_before_and_after_augmentation(shards: list[Path], tmp_path: Path) -> None:
    page = shown(*shards, "-n", 4, "--seconds", 3, "--recipe", "birdset", tmp_path / "a.html")
    images = [data(image["src"]) for image in page.all("img")]
    assert len(images) == 8
    assert sum(a != b for a, b in zip(images[::2], images[1::2], strict=True)) >= 3
    sounds = [soundfile.read(io.BytesIO(data(player["src"]))) for player in page.all("audio")]
    assert {(len(samples), rate) for samples, rate in sounds} == {(96_000, 32_000)}
    assert page.text.count("before") >= 4


@pytest.mark.parametrize("recipe", ["birdset", "birdclef", "ast", "passt"])
def test_a_recipe_on_classes_without_names(recipe: str, rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    columns = {"audio": [{"bytes": row.audio, "path": row.path} for row in rows], "label": list(range(len(rows)))}
    made = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, made.schema) as writer:
        writer.write_table(made)
    assert forebay.AudioDataset(str(path))._classes == {}
    page = shown(path, "-n", 2, "--seconds", 2, "--recipe", recipe, tmp_path / "a.html")
    assert len(page.all("img")) == 4


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_needs_no_classes(recipe: str, rows: list[Row], tmp_path: Path) -> None:
    """A folder without subfolders, and a column of another type than the recipe's."""
    (tmp_path / "flat").mkdir()
    for i, row in enumerate(rows[:3]):
        (tmp_path / "flat" / f"{i}.ogg").write_bytes(row.audio or b"")
    for n, source in enumerate((tmp_path / "flat", write_shard(tmp_path / "a.arrow", rows))):
        page = shown(source, "-n", 2, "--seconds", 2, "--recipe", recipe, tmp_path / f"{n}.html")
        assert len(page.all("img")) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "--rows is 0, must be 1 to 200"),
        (["--seconds", "0"], "--seconds is 0, must be above 0 and at most 30"),
        (["--seconds", "nan"], "--seconds is nan, must be above 0 and at most 30"),
        (["--seed", "-1"], "--seed is -1, must be at least 0"),
        (["--label-column", "x"], "--label-column is x, must be a column: audio, label"),
    ],
)
def test_wrong_options(
    arguments: list[str], message: str, shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["show", str(shards[0]), "-o", str(tmp_path / "a.html"), *arguments])
    assert capsys.readouterr().err == f"forebay show: error: {message}\n"
    assert not (tmp_path / "a.html").exists()


def test_a_picture_ends_at_half_the_rate_of_the_recording(tmp_path: Path) -> None:
    """All bands of noise are loud, at any rate; the player has at most 24 kHz."""
    for rate, shown_to in ((48_000, "up to 24 kHz (sound: 12 kHz)"), (16_000, "up to 8 kHz")):
        folder = tmp_path / str(rate)
        folder.mkdir()
        noise = np.random.default_rng(1).uniform(-0.3, 0.3, rate)
        soundfile.write(folder / "noise.wav", noise, rate)
        page = shown(folder, tmp_path / f"{rate}.html")
        assert shown_to in page.text
        [image] = page.all("img")
        picture = data(image["src"])
        length = struct.unpack(">I", picture[33:37])[0]
        lines = np.frombuffer(zlib.decompress(picture[41 : 41 + length]), np.uint8).reshape(128, -1)[:, 1:]
        brightness = lines.mean(axis=1)
        assert brightness[:8].mean() > 0.8 * brightness.mean()


def test_nothing_is_replaced(shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.html").write_text("mine")
    with pytest.raises(SystemExit):
        cli.main(["show", str(shards[0]), "-o", str(tmp_path / "a.html")])
    assert "is there already, a file; give another name" in capsys.readouterr().err
    assert (tmp_path / "a.html").read_text() == "mine"


def test_a_folder_of_recordings(tmp_path: Path, rows: list[Row]) -> None:
    """Each card has its file, a bad one too; file names are escaped, and classes are those of the folders."""
    for i, row in enumerate(rows[:4]):
        (tmp_path / "some" / "<i>wren" / f"{i}.ogg").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "some" / "<i>wren" / f"{i}.ogg").write_bytes(row.audio or b"")
    (tmp_path / "some" / "<i>wren" / "9.wav").write_bytes(b"no recording")
    page = shown(tmp_path / "some", tmp_path / "a.html")
    assert page.text.count("path<i>wren/") == 5
    assert "5 rows in 1 folder" in page.text
    assert not page.all("i")
    shown(tmp_path / "some", "--recipe", "birdset", "--label-column", "label", tmp_path / "b.html")
