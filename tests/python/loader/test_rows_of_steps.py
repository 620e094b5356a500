"""Which rows steps take and how often, and that `apply` does what a loader does."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from augmenting import wav
from fields import write
from forebay import ConfigError, features, sampling
from forebay.augment import FrameRoll, Gain, Mix, Python, SpecAugment, Speed, apply
from forebay.crops import Loudest, Random, Windows

RATE = 8000
SHARED: dict[str, Any] = {
    "clip_seconds": 0.2, "features": features.Waveform(sample_rate=RATE), "batch_size": 4, "n_workers": 2,
    "shuffle_min_size": 0, "shuffle_buffer_size": 8, "infinite": False,
}  # fmt: skip


def shard(path: Path, n: int, seconds: float = 1.0, **columns: Any) -> str:
    """White noise."""
    random = np.random.default_rng(3)
    clips = [wav(random.normal(0, 0.1, (round(seconds * RATE), 1)).astype(np.float32), RATE) for _ in range(n)]
    audio = pa.array([{"bytes": clip, "path": None} for clip in clips])
    return str(write(path, pa.table({"audio": audio, **columns})))


def rows(source: str, **parameters: Any) -> list[dict[str, Any]]:
    """The examples of a pass."""
    with forebay.Loader(source, **{**SHARED, **parameters}) as loader:
        return [{name: batch[name][i] for name in batch} for batch in loader for i in range(len(batch["index"]))]


def test_an_iterator_of_steps_is_a_list(tmp_path: Path) -> None:
    source = shard(tmp_path / "a.arrow", 8)
    steps = [Gain(-40.0), Gain((1.0, 2.0))]
    with (
        forebay.Loader(source, **SHARED, augment=iter(steps)) as one,  # type: ignore[arg-type]
        forebay.Loader(source, **SHARED, augment=steps) as other,
    ):
        assert str(one.recipe) == str(other.recipe)
        assert "Gain" in str(one.recipe)
        other.load_state_dict(one.state_dict())
        assert np.array_equal(next(one)["waveform"], next(other)["waveform"])


@pytest.mark.parametrize("crop", [Random(), Random(silence_db=-20.0), Loudest(of=8)], ids=str)
def test_factors_of_speed_are_equally_often(crop: Any, tmp_path: Path) -> None:
    source = shard(tmp_path / "a.arrow", 24)
    parameters = {**SHARED, "crop": crop, "augment": [Speed((0.5, 1.0, 2.0))], "infinite": True, "seed": 5}
    with forebay.Loader(source, **parameters, outputs=["speed"]) as loader:
        planned = np.concatenate([part["speed"] for part in [loader.plan(240, outputs=["speed"])]])
        found = np.concatenate([next(loader)["speed"] for _ in range(60)])
    assert found.tolist() == planned.tolist()
    counted = Counter(found.tolist())
    # The chance that a fair draw is outside is below 1e-9.
    assert all(40 <= counted[factor] <= 120 for factor in (0.5, 1.0, 2.0)), counted


@pytest.mark.parametrize("values", [[0.0, 1.0, 2.5, 7.3], [[0.5], [], [1.0], [2.0]]], ids=["floats", "lists"])
def test_floats_are_no_classes(values: list[Any], tmp_path: Path) -> None:
    source = shard(tmp_path / "a.arrow", 8, w=pa.array(values * 2))
    told = 'column "w" has floats, expected classes'
    for parameters in (
        {"sampling": sampling.AtMost(1, "w")},
        {"sampling": sampling.Balanced("w")},
        {"augment": [Mix(weight=1, same_class="w")]},
    ):
        with pytest.raises(ConfigError, match=told):
            forebay.Loader(source, **SHARED, **parameters)
    with forebay.Loader(source, **SHARED, columns=["w"]) as loader, pytest.raises(ConfigError, match=told):
        loader.class_counts(column="w")


def test_minus_one_is_no_class(tmp_path: Path) -> None:
    labels = [-1, -1, 0, 1, -1, 0, 1, -1]
    source = shard(tmp_path / "a.arrow", 8, label=pa.array(labels))
    step = Mix(weight=1, near=None, same_class="label")
    for row in rows(source, augment=[step], outputs=["mix_index"]):
        own, partner = int(row["index"]), int(row["mix_index"])
        assert partner == -1 if labels[own] == -1 else labels[partner] == labels[own] and partner != own


@pytest.mark.parametrize("same_class", [None, "label"])
def test_windows_of_a_recording_are_no_partners_of_each_other(same_class: str | None, tmp_path: Path) -> None:
    labels = [0, 1, 2, 3, 4, 4]
    source = shard(tmp_path / "a.arrow", 6, label=pa.array(labels))
    step = Mix(weight=1, near=None, same_class=same_class)
    seen = set()
    for row in rows(source, crop=Windows(), augment=[step], outputs=["mix_index", "window"]):
        own, partner = int(row["index"]), int(row["mix_index"])
        assert partner != own
        if same_class is not None:
            assert partner == {4: 5, 5: 4}.get(own, -1)
        seen.add((own, partner))
    assert len(seen) >= 6


@pytest.mark.parametrize("channels", [0, 2])
def test_apply_leaves_frames_of_padding_alone(channels: int) -> None:
    front_end: Any = features.preset("ast")
    clip = np.random.default_rng(1).normal(0, 0.1, (channels or 1, 16_000)).astype(np.float32)
    clip = clip if channels else clip[0]
    steps = [SpecAugment(0, 0, 60, 1, fill=9.0), FrameRoll()]
    plain, changed = (apply(some, clip, 16_000, features=front_end) for some in ([], steps))
    # 1 + (16 000 - 400) // 160 frames begin in a second.
    valid = np.moveaxis(plain != changed, -1 if front_end.layout == "mel" else -2, 0)
    assert valid[:98].any()
    assert not valid[98:].any()


@pytest.mark.parametrize(
    ("steps", "given", "message"),
    [
        ([Python(lambda values, _: -values, on="features")], None, "Python changes features, and features is None"),
        (
            [SpecAugment()],
            features.Waveform(sample_rate=RATE),
            r"SpecAugment changes features, .* is Waveform\(",
        ),
        (iter([FrameRoll()]), None, "FrameRoll changes features"),
    ],
)
def test_steps_that_would_do_nothing_are_errors(steps: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply(steps, np.zeros(9, np.float32), RATE, features=given)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_no_samples_have_no_features(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="must have samples for features"):
        apply([Gain()], np.zeros(shape, np.float32), 32_000, features="birdset")
