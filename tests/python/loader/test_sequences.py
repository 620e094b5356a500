"""`targets.Sequence`: numbers along the time of a clip, compared with plain Python."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import assert_described
from forebay import AudioDataset, augment, crops
from forebay.targets import Sequence
from framed import GIVEN, MEL, RATE, WAVEFORM, recordings

LENGTHS = [32_000, 20_000, 4000, 26_400]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Recordings whose samples rise along the recording, and the numbers of 50 steps per second."""
    samples = [np.arange(n) // 4 + 1 for n in LENGTHS]
    codes = [[1000 * row + at for at in range(math.ceil(n * 50 / RATE))] for row, n in enumerate(LENGTHS)]
    pitch = [[at / 50 for at in range(math.ceil(n * 50 / RATE))] for n in LENGTHS]
    columns = {"codes": codes, "pitch": pitch, "some": [codes[0], None, [], [1, None, 3]], "words": [["a"]] * 4}
    return recordings(tmp_path, samples, columns)


def read(path: Any, target: Any, **changes: Any) -> list[dict[str, Any]]:
    with forebay.Loader(path, targets={"y": target}, **{"features": WAVEFORM, **GIVEN, **changes}) as loader:
        batches = list(loader)
        for batch in batches:
            assert_described(loader, batch)
        return batches


def expected(row: int, start: float, speed: float = 1.0, seconds: float = 1.0) -> list[int]:
    """The codes at the middles of 50 steps per second, -1 outside of the recording."""
    n = math.ceil(LENGTHS[row] * 50 / RATE)
    found = []
    for at in range(round(seconds * 50)):
        behind = (at + 0.5) / 50
        time = start + behind * speed
        inside = 0 <= time < LENGTHS[row] / RATE
        item = math.floor(time * 50 + 1e-6)
        found.append(1000 * row + item if inside and item < n else -1)
    return found


@pytest.mark.parametrize("crop", [crops.Random(), crops.Start(), crops.End(), crops.Windows(0.3)])
def test_clips(crop: Any, path: Path) -> None:
    n = 0
    for batch in read(path, Sequence("codes", rate=50, pad=-1), crop=crop, seed=4):
        assert (batch["y"].dtype, batch["y"].shape) == (np.int64, (len(batch["index"]), 50))
        for row, start, found in zip(batch["index"], batch["start"], batch["y"], strict=True):
            assert found.tolist() == expected(row, start)
            n += 1
    assert n >= 4


def test_floats(path: Path) -> None:
    (batch,) = read(path, Sequence("pitch", rate=50.0, pad=-1.5), crop=crops.Start())
    assert batch["y"].dtype == np.float32
    want = [[at / 50 if at < math.ceil(n * 50 / RATE) else -1.5 for at in range(50)] for n in LENGTHS]
    np.testing.assert_array_equal(batch["y"], np.array(want, np.float32))


def test_numbers_go_where_the_samples_go(path: Path) -> None:
    """A sample tells its time in the recording."""
    steps = [augment.Speed((0.8, 1.25)), augment.Roll((-1.0, 1.0))]
    n_far = n = 0
    for batch in read(path, Sequence("codes", rate=50, pad=-1), augment=steps, crop=crops.Random(), outputs=["speed"]):
        for row, samples, found in zip(batch["index"], batch["waveform"], batch["y"], strict=True):
            middles = samples[80::160] * 32768
            times = (middles - 1) * 4 / RATE
            for time, code in zip(times, found, strict=True):
                if code >= 0:
                    n += 1
                    n_far += abs((code - 1000 * row + 0.5) / 50 - time) > 0.015
    # Resampled samples ring where a rolled clip has its ends.
    assert n > 100
    assert n_far <= 0.1 * n


def test_speed(path: Path) -> None:
    given = {"augment": [augment.Speed((0.8, 1.25))], "crop": crops.Random(), "outputs": ["speed", "start"]}
    speeds = set()
    for batch in read(path, Sequence("codes", rate=50, pad=-1), seed=1, **given):
        for row, start, speed, found in zip(*(batch[name] for name in ("index", "start", "speed", "y")), strict=True):
            if LENGTHS[row] / RATE > 2:
                assert found.tolist() == expected(row, start, speed)
                speeds.add(float(speed))
    assert len(speeds) == 2


def test_whole_recordings(path: Path) -> None:
    given = {name: value for name, value in GIVEN.items() if name != "clip_seconds"}
    loader = forebay.Loader(
        path, targets={"y": Sequence("codes", rate=50, pad=7)}, features=MEL, crop=crops.Whole(), **given
    )
    shape: Any = next(field for field in loader.fields if field["name"] == "y")["shape"]
    assert shape == (None,)
    for batch in loader:
        assert batch["y"].shape == (4, max(batch["y_length"]))
        for row, n, found in zip(batch["index"], batch["y_length"], batch["y"], strict=True):
            assert n == round(LENGTHS[row] * 50 / RATE)
            assert found[:n].tolist() == [1000 * row + at for at in range(n)]
            assert (found[n:] == 7).all()


def test_frames_are_rolled_with_the_features(path: Path) -> None:
    given = {"features": MEL, "crop": crops.Start(), "clip_seconds": 0.5}
    (plain,) = read(path, Sequence("codes", rate=50), **given)
    (moved,) = read(path, Sequence("codes", rate=50), augment=[augment.FrameRoll((0.5, 0.5))], **given)
    # Half of 51 frames are 26 of 10 ms: 13 numbers, of 26 in 51 frames, of which the clip has 25.
    np.testing.assert_array_equal(moved["y"], np.roll(plain["y"], 13, axis=1))


def test_short_lists_and_nulls(path: Path) -> None:
    (batch,) = read(path, Sequence("some", rate=50, pad=-1), crop=crops.Start())
    assert batch["y"][:, :4].tolist() == [[0, 1, 2, 3], [-1] * 4, [-1] * 4, [1, -1, 3, -1]]


def test_recipe_and_dataset(path: Path) -> None:
    target = Sequence("codes", rate=50, pad=-1)
    assert target == pickle.loads(pickle.dumps(target)) == Sequence.from_dict(json.loads(json.dumps(target.to_dict())))
    assert repr(target) == "Sequence(column='codes', rate=50, pad=-1)"
    data = AudioDataset(path, features=WAVEFORM, clip_seconds=1.0, targets={"y": target})
    for batch in read(path, target):
        np.testing.assert_array_equal(data.get_batch(batch["index"], batch["start"])["y"], batch["y"])
    assert data.get_batch([2], [-0.255])["y"][0].tolist() == expected(2, -0.255)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rate": 0.0}, "rate is 0.0, must be above 0 and at most"),
        ({"rate": 1e9}, "rate is 1000000000.0, must be"),
        ({"rate": math.inf}, "rate is inf, must be finite"),
        ({"pad": 1e30}, r"pad is 1e30, must be at most 2\^53 in size"),
        ({"pad": 0.5}, 'pad is 0.5, and column "codes" has whole numbers'),
        ({"column": "words"}, 'column "words" is lists of text, expected lists of numbers'),
        ({"column": "label"}, "expected lists of numbers"),
        ({"column": ""}, "column is '', must be the name of a column"),
        ({"rate": 0.1}, "a clip of 1.0 s has no frame and no value"),
    ],
)
def test_wrong_parameters(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    columns = {"codes": [[1, 2]], "words": [["a"]], "label": [1]}
    path = recordings(tmp_path, [np.zeros(RATE)], columns)
    with pytest.raises(forebay.ForebayError, match=told):
        read(path, Sequence(**{"column": "codes", "rate": 50, **change}))
