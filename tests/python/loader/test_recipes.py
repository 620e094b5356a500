"""`forebay.recipes`: each recipe gives a loader its batches, and prints and converts as data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import soundfile

import forebay
from fields import write
from forebay import recipes
from forebay.tokens import Tokenizer
from paths import DATA
from recordings import read_rows
from utterances import whisper_tokenizer, write_utterances

NAMES = ["owl", "wren", "jay"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    rows = [row.audio for row in read_rows()][:12]
    table = pa.table(
        {
            "audio": pa.array([{"bytes": audio, "path": None} for audio in rows]),
            "labels": [NAMES[: 1 + i % 3] for i in range(len(rows))],
            "text": [f"utterance {i}" for i in range(len(rows))],
        }
    )
    return write(folder / "shard", table, "file")


CASES: dict[str, tuple[dict[str, Any], list[int | None]]] = {
    "birdset": ({"labels": "labels", "classes": NAMES, "background": True}, [128, None]),
    "ast": ({"classes": NAMES}, [1024, 128]),
    "passt": ({"classes": NAMES, "epoch_size": None}, [128, None]),
    "birdclef": ({"classes": NAMES, "background": True}, [128, None]),
    "librispeech": ({"noise": True, "clip_seconds": 12.0}, [None, 80]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_trains(name: str, files: Path) -> None:
    given, shape = CASES[name]
    keywords: dict[str, Any] = {key: str(files) if value is True else value for key, value in given.items()}
    recipe = getattr(recipes, name)(**keywords)
    assert repr(recipe).startswith("Recipe(\n    clip_seconds=")
    assert repr(eval(repr(recipe), {"Recipe": lambda **given: recipes.Recipe(given), **parts()})) == repr(recipe)
    with forebay.Loader.train([files], batch_size=4, seed=2, n_workers=2, **recipe) as loader:
        batches = [next(loader) for _ in range(3)]
        state = loader.state_dict()
        json.dumps(loader.recipe.to_dict())
        assert "augment" in repr(loader.recipe)
        expected = next(loader)
    for batch in batches:
        found = batch["spectrogram"]
        assert np.isfinite(found).all()
        assert all(size is None or size == found.shape[1 + axis] for axis, size in enumerate(shape))
    with forebay.Loader.train([files], batch_size=4, seed=2, n_workers=1, **recipe) as loader:
        loader.load_state_dict(state)
        assert next(loader)["spectrogram"].tobytes() == expected["spectrogram"].tobytes()


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Utterances of 1 to 3 s and their texts."""
    seconds = [1.0 + row / 10 for row in range(20)]
    texts = ["THE CAT SAT", "IT'S A WREN", "OWLS"] * 7
    return write_utterances(tmp_path_factory.mktemp("speech"), seconds, columns={"text": texts[:20]})


@pytest.mark.parametrize("name", ["icefall", "nemo", "whisper", "wav2vec2_ctc"])
def test_recipes_of_speech(name: str, speech: Path, tmp_path: Path) -> None:
    bpe = DATA / "tokens" / "bpe.model"
    given: dict[str, dict[str, Any]] = {
        "icefall": {"tokenizer": bpe, "max_duration": 12.0, "noise": speech},
        "nemo": {"tokenizer": bpe, "max_duration": 12.0},
        "whisper": {"tokenizer": whisper_tokenizer(tmp_path)},
        "wav2vec2_ctc": {"max_duration": 12.0},
    }
    recipe = getattr(recipes, name)(**given[name])
    assert repr(eval(repr(recipe), {"Recipe": lambda **given: recipes.Recipe(given), **parts()})) == repr(recipe)
    sizes: dict[str, Any] = {"batch_size": 4} if name == "whisper" else {}
    with forebay.Loader.train(speech, seed=2, n_workers=2, **sizes, **recipe) as loader:
        batches = [next(loader) for _ in range(4)]
        state = loader.state_dict()
        json.dumps(loader.recipe.to_dict())
        expected = next(loader)
    with forebay.Loader.train(speech, seed=2, n_workers=1, **sizes, **recipe) as loader:
        loader.load_state_dict(state)
        again = next(loader)
    assert all(np.array_equal(again[field], expected[field]) for field in expected)
    for batch in batches:
        ids = batch["tokens" if name in ("icefall", "nemo") else "labels"]
        assert ids.dtype == np.int64
        if name == "whisper":
            assert batch["spectrogram"].shape[1:] == (80, 3000)
            assert set(ids[:, 0].tolist()) == {1000}
            assert (batch["valid_frames"] < 400).all()
        elif name == "wav2vec2_ctc":
            assert batch["attention_mask"].shape == batch["waveform"].shape
            assert ids.max() < 32
        else:
            axis = 1 if name == "icefall" else 2
            assert len(ids) * batch["spectrogram"].shape[axis] <= 1.02 * 100 * 12


def test_labels_for_transformers_have_no_start(speech: Path, tmp_path: Path) -> None:
    """A model of transformers puts the start token before the labels itself."""
    path = whisper_tokenizer(tmp_path)
    batches = []
    for start in (True, False):
        recipe = recipes.whisper(path, start=start)
        with forebay.Loader.train(speech, seed=2, batch_size=4, **recipe) as loader:
            batches.append(next(loader)["labels"])
    assert (batches[0][:, 0] == Tokenizer(path).token_to_id("<|startoftranscript|>")).all()
    assert (batches[0][:, 1:] == batches[1]).all()


def write_sound(path: Path, seconds: float, rate: int, number: int, channels: int = 1) -> None:
    samples = np.random.default_rng(number).normal(0, 0.1, (round(seconds * rate), channels))
    soundfile.write(path, samples, rate, subtype="PCM_16")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Speech, noise, rooms, mixtures, songs, and tables of events, turns and units."""
    folder = tmp_path_factory.mktemp("scenes")
    tables: dict[str, list[dict[str, Any]]] = {"speech": [], "songs": [], "scenes": []}
    mixtures = ["mixture_ID,mixture_path,source_1_path,source_2_path,length"]
    events = ["filename\tonset\toffset\tevent_label"]
    turns = []
    for name in ("noise", "rooms"):
        (folder / name).mkdir()
        for row in range(3):
            write_sound(folder / name / f"{row}.wav", 1.0 if name == "noise" else 0.1, 16_000, 90 + row)
    for row in range(8):
        seconds = 1.5 + 0.24 * row
        write_sound(folder / f"speech-{row}.wav", seconds, 16_000, row)
        units = [row * 100 + at for at in range(round(50 * seconds))]
        tables["speech"].append({"path": f"speech-{row}.wav", "units": units, "duration": seconds})
        for stem in ("mixture", "s1", "s2"):
            write_sound(folder / f"{stem}-{row}.wav", 2.0 + row / 4, 8000, row)
        mixtures.append(f"{row},mixture-{row}.wav,s1-{row}.wav,s2-{row}.wav,{round(8000 * (2.0 + row / 4))}")
        song = {stem: f"{stem}-{row}.flac" for stem in ("drums", "bass", "other", "vocals")}
        for at, path in enumerate(song.values()):
            write_sound(folder / path, 11.0, 44_100, 10 * row + at, 2)
        tables["songs"].append(song)
        write_sound(folder / f"scene-{row}.wav", 12.0, 16_000, row)
        regions = [[0.0, 11.0]]
        tables["scenes"].append({"path": f"scene-{row}.wav", "regions": regions, "annotated": 11.0 if row < 4 else 0.0})
        events.append(f"scene-{row}.wav\t2.0\t9.0\tSpeech")
        turns.append(f"SPEAKER scene-{row} 1 2.000 8.000 <NA> <NA> anna <NA> <NA>")
        turns.append(f"SPEAKER scene-{row} 1 4.000 1.000 <NA> <NA> bert <NA> <NA>")
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mixtures.csv").write_text("\n".join(mixtures) + "\n")
    (folder / "events.tsv").write_text("\n".join(events) + "\n")
    (folder / "turns.rttm").write_text("\n".join(turns) + "\n")
    return folder


def of_scenes(name: str, folder: Path) -> tuple[Path, recipes.Recipe, int | None]:
    """The table, the recipe and the batch size."""
    made: dict[str, tuple[str, Any, int | None]] = {
        "dns": ("speech.jsonl", lambda: recipes.dns(folder / "noise", rooms=folder / "rooms", clip_seconds=2.0), 4),
        "librimix": ("mixtures.csv", recipes.librimix, 6),
        "demucs": ("songs.jsonl", recipes.demucs, 4),
        "pyannote": ("scenes.jsonl", lambda: recipes.pyannote(
            folder / "turns.rttm", regions="regions", annotated="annotated", overlap=0.5), 4),
        "desed": ("scenes.jsonl", lambda: recipes.desed(folder / "events.tsv"), 4),
        "hubert": ("speech.jsonl", lambda: recipes.hubert(max_duration=12.0), None),
    }  # fmt: skip
    table, make, batch_size = made[name]
    return folder / table, make(), batch_size


@pytest.mark.parametrize("name", ["dns", "librimix", "demucs", "pyannote", "desed", "hubert"])
def test_recipes_of_scenes(name: str, scenes: Path) -> None:
    table, recipe, batch_size = of_scenes(name, scenes)
    sizes: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    again = eval(repr(recipe), {"Recipe": lambda **given: recipes.Recipe(given), **parts(), "PosixPath": Path})
    assert repr(again) == repr(recipe)
    with forebay.Loader.train(table, seed=2, n_workers=2, **sizes, **recipe) as loader:
        batches = [next(loader) for _ in range(3)]
        state = loader.state_dict()
        json.dumps(loader.recipe.to_dict())
        expected = next(loader)
    with forebay.Loader.train(table, seed=2, n_workers=1, **sizes, **recipe) as loader:
        loader.load_state_dict(state)
        found = next(loader)
    assert all(np.array_equal(found[field], expected[field]) for field in expected)
    CHECKS[name](batches)


def check_dns(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        assert batch["noisy"].shape == batch["clean"].shape == (4, 32_000)
        for noisy, clean in zip(batch["noisy"], batch["clean"], strict=True):
            level = 10 * np.log10(np.square(noisy, dtype=np.float64).mean())
            assert -35.01 <= level <= -14.99
            assert np.abs(noisy).max() <= 0.9901
            snr = 10 * np.log10(np.square(clean).mean() / np.square(noisy - clean).mean())
            assert -5.1 <= snr <= 25.1


def check_librimix(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        assert batch["mixture"].shape == (6, 24_000)
        assert batch["sources"].shape == (6, 2, 24_000)
        assert (batch["index"] >= 4).all()  # the others are shorter than 3 s


def check_demucs(batches: list[dict[str, Any]]) -> None:
    levels = []
    for batch in batches:
        for stem in ("drums", "bass", "other", "vocals"):
            assert batch[stem].shape == (4, 2, 441_000)
            levels += [float(np.std(one) / 0.1) for one in batch[stem]]
    assert 0.24 < min(levels) < 0.5
    assert 1.0 < max(levels) < 1.26


def check_pyannote(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        assert batch["waveform"].shape == (4, 160_000)
        assert batch["speakers"].shape == (4, 589, 3)
        assert (batch["index"] < 4).all()  # the others have no seconds that are annotated
        # Anna talks for 8 s, from 2 s on, and clips begin in the first second.
        assert (batch["speakers"][:, :, 0].sum(1) >= 470).all()
    assert any(batch["speakers"][:, :, 2].any() for batch in batches)  # of another recording


def check_desed(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        assert batch["strong"].shape == (4, 156, 10)
        assert (batch["strong"].any(1) == [name == "Speech" for name in recipes._DESED]).all()
        spectrogram = batch["spectrogram"]
        assert spectrogram.shape == (4, 128, 626)
        np.testing.assert_array_equal([spectrogram.min((1, 2)), spectrogram.max((1, 2))], [[0] * 4, [1] * 4])


def check_hubert(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        assert (batch["valid_samples"] >= 32_000).all()
        for row, units, n in zip(batch["index"], batch["units"], batch["valid_samples"], strict=True):
            expected = row * 100 + np.arange(round(50 * n / 16_000))
            np.testing.assert_array_equal(units[: len(expected)], expected)
            assert (units[len(expected) :] == -1).all()


CHECKS = {
    "dns": check_dns, "librimix": check_librimix, "demucs": check_demucs, "pyannote": check_pyannote,
    "desed": check_desed, "hubert": check_hubert,
}  # fmt: skip


def parts() -> dict[str, Any]:
    """The classes that a recipe's print names."""
    modules = (forebay.augment, forebay.batching, forebay.crops, forebay.features, forebay.sampling, forebay.targets)
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def test_separators_are_in_both_parts() -> None:
    """Either part can be replaced, and the other still has the classes."""
    for make in (recipes.birdset, recipes.ast, recipes.passt, recipes.birdclef):
        recipe = make("species", classes="data", separator=";")
        assert (recipe["targets"].separator, recipe["sampling"].separator) == (";", ";")
        assert (make()["targets"].separator, make()["sampling"].separator) == (None, None)


def test_librispeech_begins_at_the_start_and_has_lengths(tmp_path: Path) -> None:
    """Utterances that do not fit at each speed are left out by their duration."""
    rows = []
    for number, n in enumerate((8000, 16_000, 28_000, 30_000, 40_000)):
        soundfile.write(tmp_path / f"{number}.wav", np.random.default_rng(number).uniform(-0.3, 0.3, n), 16_000)
        rows.append({"path": str(tmp_path / f"{number}.wav"), "duration": n / 16_000, "text": f"text {number}"})
    recipe = recipes.librispeech(clip_seconds=2.0, duration="duration")
    recipe["outputs"] = [*recipe["outputs"], "start", "speed"]
    source = forebay.Manifest(rows, root=tmp_path)
    seen: set[int] = set()
    with forebay.Loader.train(source, infinite=False, drop_last=False, batch_size=2, **recipe) as loader:
        for batch in [batch for _ in range(6) for batch in loader]:
            lengths = batch["valid_frames"] * 160 * batch["speed"]
            for row, start, n, text in zip(batch["index"], batch["start"], lengths, batch["text"], strict=True):
                assert (start, text) == (0.0, f"text {row}")
                assert abs(n - rows[row]["duration"] * 16_000) <= 500
                seen.add(int(row))
    assert seen == {0, 1, 2}
