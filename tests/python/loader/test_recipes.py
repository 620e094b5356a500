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
