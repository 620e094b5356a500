"""`targets.Words`: words and their times in each clip, compared with plain Python."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import assert_described, rows
from forebay import AudioDataset, augment, crops
from forebay.targets import Words
from framed import GIVEN, RATE, WAVEFORM, recordings

SECONDS = [4.0, 2.5, 0.5, 3.3]
TARGET = Words("words", starts="starts", ends="ends")


def spoken(row: int) -> list[tuple[str, float, float]]:
    """A word each 0.3 s, of which some last no time, and some go on behind the recording."""
    found = []
    for at in range(int(SECONDS[row] / 0.3) + 1):
        start = at * 0.3 + 0.01 * row
        found.append((f"word {row}.{at}", start, start + [0.25, 0.4, 0.0][at % 3]))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    words = [list(zip(*spoken(row), strict=True)) for row in range(len(SECONDS))]
    columns = {name: [list(row[at]) for row in words] for at, name in enumerate(("words", "starts", "ends"))}
    return recordings(tmp_path, [np.zeros(round(seconds * RATE)) for seconds in SECONDS], columns)


def read(path: Any, **changes: Any) -> list[dict[str, Any]]:
    with forebay.Loader(path, targets={"w": TARGET}, **{"features": WAVEFORM, **GIVEN, **changes}) as loader:
        batches = list(loader)
        for batch in batches:
            assert_described(loader, batch)
            assert batch["w_start"].dtype == np.float64
        return batches


def expected(row: int, start: float, speed: float = 1.0, seconds: float = 1.0) -> list[tuple[str, float, float]]:
    """The words of a clip, and their times in it."""
    from_, to = max(start, 0.0), min(start + seconds * speed, SECONDS[row])
    heard = [word for word in spoken(row) if word[1] < to and (word[2] > from_ or word[1] >= from_)]

    def place(at: float) -> float:
        return (min(max(at, from_), to) - start) / speed

    return [(word, place(one), place(other)) for word, one, other in heard]


def assert_words(batch: dict[str, Any], place: int, want: list[tuple[str, float, float]]) -> None:
    assert batch["w"][place] == [word for word, _, _ in want]
    np.testing.assert_allclose(batch["w_start"][place], [start for _, start, _ in want], atol=1e-9)
    np.testing.assert_allclose(batch["w_end"][place], [end for *_, end in want], atol=1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        {"crop": crops.Random()},
        {"crop": crops.Windows(0.35)},
        {"crop": crops.Random(), "augment": [augment.Speed((0.8, 1.25))], "outputs": ["start", "speed"]},
    ],
)
def test_clips(changes: dict[str, Any], path: Path) -> None:
    n = 0
    for batch in read(path, seed=3, **changes):
        speeds = batch.get("speed", np.ones(len(batch["index"])))
        for at, (row, start, speed) in enumerate(zip(batch["index"], batch["start"], speeds, strict=True)):
            assert_words(batch, at, expected(row, start, speed))
            n += len(batch["w"][at])
    assert n > 8


def test_whole_recordings(path: Path) -> None:
    given = {name: value for name, value in GIVEN.items() if name not in ("clip_seconds", "outputs")}
    for batch in forebay.Loader(path, targets={"w": TARGET}, features=WAVEFORM, crop=crops.Whole(), **given):
        for at, row in enumerate(batch["index"]):
            assert_words(batch, at, expected(row, 0.0, seconds=SECONDS[row]))
        assert sum(map(len, rows(batch["w_start"]))) == sum(map(len, batch["w"]))


def test_a_word_moves_with_its_samples(path: Path) -> None:
    """A second of a clip that is rolled by 0.4 s."""
    given = {"crop": crops.Start(), "augment": [augment.Roll((0.4, 0.4))], "seed": 1}
    (batch,) = read(path, **given)
    place = batch["index"].tolist().index(0)
    # Before: 0 to 0.25, 0.3 to 0.7, 0.6, and 0.9 to 1.
    assert batch["w"][place] == ["word 0.1", "word 0.2", "word 0.3", "word 0.0", "word 0.1"]
    np.testing.assert_allclose(batch["w_start"][place], [0.0, 0.0, 0.3, 0.4, 0.7], atol=1e-9)
    np.testing.assert_allclose(batch["w_end"][place], [0.1, 0.0, 0.4, 0.65, 1.0], atol=1e-9)


def test_recipe_and_dataset(path: Path) -> None:
    assert TARGET == pickle.loads(pickle.dumps(TARGET)) == Words.from_dict(json.loads(json.dumps(TARGET.to_dict())))
    assert repr(TARGET) == "Words(column='words', starts='starts', ends='ends')"
    data = AudioDataset(path, features=WAVEFORM, clip_seconds=1.0, targets={"w": TARGET})
    for batch in read(path):
        again = data.get_batch(batch["index"], batch["start"])
        assert again["w"] == batch["w"]
        assert rows(again["w_end"]) == rows(batch["w_end"])


def test_nulls_and_wrong_lists(tmp_path: Path) -> None:
    columns = {
        "words": [["a", None, "b"], None, ["a"], ["a"]],
        "starts": [[0.1, 0.2, 0.3], None, [], [0.5]],
        "ends": [[0.2, 0.3, 0.4], None, [0.1], [0.2]],
    }
    path = recordings(tmp_path, [np.zeros(RATE)] * 4, columns)
    with forebay.Loader(path, targets={"w": TARGET}, features=WAVEFORM, **GIVEN) as loader:
        (batch,) = loader
        assert batch["w"] == [["a", "b"], []]
        told = [str(error["reason"]) for error in loader.errors()]
    assert "the row has 1 labels, 0 starts and 1 ends" in told[0]
    assert "an event is from 0.5 to 0.2 s" in told[1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"column": "numbers"}, 'column "numbers" is .*, expected lists of text'),
        ({"starts": "words"}, 'column "words" is lists of text, expected lists of seconds'),
        ({"starts": ""}, "starts is '', must be the name of a column"),
        ({"ends": "nowhere"}, "nowhere"),
    ],
)
def test_wrong_parameters(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    columns = {"words": [["a"]], "numbers": [[1]], "starts": [[0.1]], "ends": [[0.2]]}
    path = recordings(tmp_path, [np.zeros(RATE)], columns)
    given = {"column": "words", "starts": "starts", "ends": "ends", **change}
    with pytest.raises(forebay.ForebayError, match=told):
        forebay.Loader(path, targets={"w": Words(**given)}, features=WAVEFORM, **GIVEN)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"crop": crops.Views(2)}, 'target "w" is that of a clip, and Views'),
        ({"augment": [augment.Mix(weight=0.5, targets="union")]}, 'target "w" is a Words, which cannot be mixed so'),
        ({"columns": ["w_start"]}, 'two fields of a batch are named "w_start"'),
    ],
)
def test_what_words_do_not_go_with(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    columns = {"words": [["a"]], "starts": [[0.1]], "ends": [[0.2]], "w_start": [1]}
    path = recordings(tmp_path, [np.zeros(RATE)], columns)
    with pytest.raises(forebay.ConfigError, match=told):
        forebay.Loader(path, targets={"w": TARGET}, features=WAVEFORM, **{**GIVEN, **change})
