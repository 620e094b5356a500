"""`plan(n, outputs=)`: what augmentation will do and where clips begin, before any recording is decoded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, augment, crops, features, sampling
from recordings import FOLDER, Row, read_rows, write_shard

STEPS = [
    augment.Speed((0.8, 1.0, 1.25), p=0.5),
    augment.Mix(snr_db=(0, 20), most=3, p=0.6),
    augment.Gain((-6, 6), p=0.5),
    augment.Gain((-1, 1)),
    augment.Roll(p=0.5),
    augment.Noise((10, 30), slope_db=(-3, 3), p=0.5),
    augment.Clip((-9, -3), p=0.5),
    augment.FrameRoll(p=0.5),
]
NAMES = [
    "speed", "mix_index", "mix_snr_db", "gain_db", "roll_shift", "noise_snr_db", "noise_slope_db", "clip_db",
    "frame_roll_shift", "start",
]  # fmt: skip
N = len(read_rows())
EXCLUDED = [3, 5]
SHARED: dict[str, Any] = {
    "clip_seconds": 0.25, "seed": 3, "batch_size": 4, "n_workers": 2, "outputs": NAMES, "augment": STEPS,
    "features": features.LogMel(sample_rate=8000, n_fft=256, hop_length=80, n_mels=20),
}  # fmt: skip
LONG = {"clip_seconds": 4.0}
"""Longer than many of the recordings, so zeros come first."""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shard(tmp_path_factory.mktemp("plan") / "a.arrow", read_rows())


def compare(loader: forebay.Loader, n_batches: int, *, excludes: bool = False) -> None:
    """Plans, and then makes, these batches, some of them already handed out."""
    next(loader)
    planned = loader.plan(4 * n_batches, outputs=loader_names(loader))
    batches = [next(loader) for _ in range(n_batches)]
    kept = ~np.isin(planned["index"], EXCLUDED if excludes else [])  # others are substituted
    for name, values in planned.items():
        made = np.concatenate([batch[name] for batch in batches])
        made = made[:, 0] if made.ndim == 2 else made  # of several views, the first
        assert values.dtype == made.dtype
        # A recording is played at a whole number of hertz, at least 8000 here.
        tolerance = 0.5 / 8000 if name == "speed" else 0.0
        assert not (name == "start" and np.isnan(values).any())
        np.testing.assert_allclose(values[kept], made[kept], rtol=0, atol=tolerance, err_msg=name)


def loader_names(loader: forebay.Loader) -> list[str]:
    return [line["name"] for line in loader.fields if line["name"] in [*NAMES, "mix_weight", "reverb_index"]]


@pytest.mark.parametrize(
    "given",
    [
        {"shuffle_min_size": 0},
        {"order": "global"},
        {"shuffle_min_size": 8, "rank": 1, "world_size": 2},
        {"order": "global", "sampling": sampling.Weighted([1.0 + (i % 3) for i in range(N)])},
        {"exclude": EXCLUDED},
        {"crop": crops.Views(2)},
        {"crop": crops.Center()},
        {"crop": crops.End(), "order": "global"},
        {"crop": crops.Windows(0.2), "augment": STEPS[1:], "outputs": NAMES[1:]},
        {"crop": crops.Windows(0.2, context=0.05), "augment": STEPS[1:], "outputs": NAMES[1:]},
        {"crop": crops.Center(), **LONG},
        {"crop": crops.End(), **LONG},
        {"crop": crops.Random(pad="random"), **LONG},
        {"crop": crops.Views(2, crops.Random(pad="front")), **LONG},
    ],
    ids=["window", "global", "ranks", "weights", "excluded", "views", "center", "end", "windows", "context",
         "both", "front", "random", "padded_views"],
)  # fmt: skip
def test_plans_what_happens(shard: Path, given: dict[str, Any]) -> None:
    with forebay.Loader(shard, infinite=True, **{**SHARED, **given}) as loader:
        compare(loader, 12, excludes="exclude" in given)


@pytest.mark.parametrize("crop", [crops.Random(), crops.End(), crops.Center(), crops.Windows(0.1)])
@pytest.mark.parametrize("clip_seconds", [0.1, 0.8])
def test_segments(tmp_path: Path, crop: Any, clip_seconds: float) -> None:
    """A start counts from that of the segment, as in a batch."""
    (tmp_path / "a.wav").write_bytes((FOLDER / "formats" / "loop.wav").read_bytes())
    rows = [{"path": "a.wav", "start": at / 10, "end": at / 10 + 0.3} for at in range(8)]
    given = {**SHARED, "clip_seconds": clip_seconds, "augment": [], "outputs": ["start"], "crop": crop}
    with forebay.Loader(forebay.Manifest(rows, root=tmp_path), infinite=True, **given) as loader:
        compare(loader, 4)


def test_other_files(shard: Path) -> None:
    steps = [augment.Reverb(str(shard), p=0.7), augment.Mix(str(shard), weight=(0.1, 0.5), p=0.7)]
    given = {**SHARED, "augment": steps, "outputs": ["mix_index", "mix_weight", "reverb_index"]}
    with forebay.Loader(shard, infinite=True, **given) as loader:
        compare(loader, 8)


def test_nothing_is_read(shard: Path) -> None:
    """A plan of many examples does not depend on the recordings."""
    with forebay.Loader(shard, infinite=True, **SHARED) as loader:
        found = loader.plan(10_000, outputs=["mix_index", "gain_db"])
        assert loader.stats()["records_read"] < 1000
        np.testing.assert_array_equal(found["index"], loader.plan(10_000))
    assert np.isnan(found["gain_db"]).mean() == pytest.approx(0.5, abs=0.05)
    assert (found["mix_index"] == -1).mean() == pytest.approx(0.4, abs=0.05)
    assert set(found["mix_index"].tolist()) == set(range(-1, N))
    assert (found["mix_index"] != found["index"]).all()


def test_wrong_names(shard: Path) -> None:
    with forebay.Loader(shard, **SHARED) as loader:
        for names, message in [
            (["gain"], "outputs has 'gain', must be one of"),
            (["mix_start"], "outputs has 'mix_start', must be one of"),
            (["reverb_index"], r"outputs has 'reverb_index', and augment has no Reverb\(\)"),
        ]:
            with pytest.raises(ConfigError, match=message.replace("'", '"')):
                loader.plan(3, outputs=names)
        with pytest.raises(TypeError):
            loader.plan(3, outputs="gain_db")
        assert loader.plan(0, outputs=["gain_db"])["gain_db"].shape == (0,)


def test_starts_that_are_not_known(shard: Path, tmp_path: Path) -> None:
    """A loudest clip depends on the samples; a bad record has no start."""
    plain = {**SHARED, "augment": True, "outputs": ["start"]}
    with (
        forebay.Loader(shard, **plain, crop=crops.Loudest(3)) as loader,
        pytest.raises(ConfigError, match='leave "start" out'),
    ):
        loader.plan(3, outputs=["start"])
    bad = write_shard(tmp_path / "bad.arrow", [*read_rows()[:3], Row(b"no recording"), *read_rows()[:3]])
    with forebay.Loader(bad, **plain, order="sequential", infinite=False) as loader:
        found = loader.plan(7, outputs=["start"])
        batches = list(loader)
    assert np.isnan(found["start"]).tolist() == [row == 3 for row in range(7)]
    made = np.concatenate([batch["start"] for batch in batches])
    np.testing.assert_array_equal(found["start"][~np.isnan(found["start"])], made)
