"""`Mixup` and `CutMix`: pairs of rows of a batch, against an oracle in numpy."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import forebay
from augmenting import Draws, bits_of, wav
from fields import write
from forebay import ConfigError, features, targets
from forebay.augment import CutMix, Gain, Mixup, SpecAugment, apply

RATE, N, SEED = 8000, 1600, 3
BIRDS = ["owl", "wren", "jay"]
ROWS = 24
SHARED: dict[str, Any] = {
    "clip_seconds": N / RATE, "features": features.Waveform(sample_rate=RATE), "seed": SEED, "batch_size": 6,
    "infinite": False, "shuffle_min_size": 0, "n_workers": 2,
}  # fmt: skip
Rows = dict[str, np.ndarray[Any, Any]]


def shard(path: Path, bad: tuple[int, ...] = ()) -> Path:
    def encoded(row: int) -> bytes:
        samples = np.random.default_rng(row).normal(0, 0.1, (N + 100 * row, 2)).astype(np.float32)
        return b"no recording" if row in bad else wav(samples, RATE)

    audio = [{"bytes": encoded(row), "path": None} for row in range(ROWS)]
    several = [BIRDS[: 1 + row % 3] for row in range(ROWS)]
    table = {
        "audio": pa.array(audio), "label": [row % 5 for row in range(ROWS)], "several": several,
        "x": [row / 4 for row in range(ROWS)], "votes": [[row / 24, 1 - row / 24] for row in range(ROWS)],
        "text": [f"bird {row}" for row in range(ROWS)],
    }  # fmt: skip
    return write(path, pa.table(table), "file")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shard(tmp_path_factory.mktemp("pairs") / "own")


def batches(path: Path, **given: Any) -> list[Rows]:
    with forebay.Loader([path], **{**SHARED, **given}) as loader:
        return list(loader)


def mixed(plain: Rows, name: str, steps: list[Any], layout: str, pairs: list[tuple[int, int]]) -> Rows:
    """What steps on pairs make of a batch, in float64."""
    found = {field: values.astype(np.float64) for field, values in plain.items() if values.dtype.kind in "fiu"}
    found["label_b"], found["mixup_index"] = plain["label"].copy(), np.full(len(plain["index"]), -1)
    found["mixup_weight"] = np.ones(len(plain["index"]))
    whole = plain[name][0]
    bands, frames = (1, whole.shape[-1]) if name == "waveform" else whole.shape[-2:]
    if layout == "time":
        bands, frames = frames, bands
    for pair in pairs:
        of_other = [0.0, 0.0]
        for step in steps:
            kind = type(step).__name__
            weights = []
            for row in pair:
                draws = Draws(bits_of(SEED, int(plain["index"][row])), kind)
                weight = np.zeros((bands, frames))
                if draws.first < step.p:
                    share = draws.beta(step.beta)
                    if kind == "Mixup":
                        weight += share
                    elif step.part == "frames":
                        weight[:, draws.part(share, frames)] = 1
                    else:
                        of_bands = draws.part(math.sqrt(share), bands)
                        weight[of_bands, draws.part(math.sqrt(share), frames)] = 1
                weights.append(weight)
            x, y = found[name][list(pair)]
            for at, (own, other) in enumerate([(x, y), (y, x)]):
                weight = weights[at].T if layout == "time" else weights[at]
                weight = weight[0] if name == "waveform" else weight
                found[name][pair[at]] = (1 - weight) * own + weight * other
            one, two = (weight.mean() for weight in weights)
            of_other = [
                (1 - one) * of_other[0] + one * (1 - of_other[1]), (1 - two) * of_other[1] + two * (1 - of_other[0])
            ]  # fmt: skip
        for at, share in enumerate(of_other):
            own, other = pair[at], pair[1 - at]
            found["mixup_weight"][own] = 1 - share
            if share > 0:
                found["label_b"][own], found["mixup_index"][own] = plain["label"][other], plain["index"][other]
            for field in ("hot", "x", "votes"):
                values = plain[field].astype(np.float64)
                found[field][own] = (1 - share) * values[own] + share * values[other]
    return found


TARGETS = {
    "label": targets.ClassIndex("label"),
    "hot": targets.MultiHot("several", classes=BIRDS),
    "x": targets.Number("x", dtype="float64"),
    "votes": targets.Soft("votes", size=2, dtype="float16"),
}
STEPS: dict[str, list[Any]] = {
    "mixup": [Mixup()],
    "frames": [CutMix(p=0.7)],
    "box": [CutMix(0.5, part="box")],
    "both": [Mixup(1.0, p=0.8), CutMix(p=0.8, part="box")],
}
FEATURES: dict[str, Any] = {
    "waveform": features.Waveform(sample_rate=RATE),
    "int16": features.Waveform(sample_rate=RATE, dtype="int16"),
    "stereo": features.Waveform(sample_rate=RATE, channels="all", n_channels=2),
    "mel": features.LogMel(sample_rate=RATE, n_fft=256, hop_length=64, n_mels=20),
    "time": features.LogMel(sample_rate=RATE, n_fft=256, hop_length=64, n_mels=20, layout="time"),
    "float16": features.LogMel(sample_rate=RATE, n_fft=256, hop_length=64, n_mels=20, dtype="float16"),
}


@pytest.mark.parametrize("form", FEATURES)
@pytest.mark.parametrize("name", STEPS)
def test_pairs(path: Path, name: str, form: str) -> None:
    given = {"features": FEATURES[form], "targets": TARGETS}
    plain = batches(path, **given)
    changed = batches(path, **given, augment=[Gain(0.0), *STEPS[name]])
    field = "spectrogram" if form in ("mel", "time", "float16") else "waveform"
    crop = batches(path, **given, augment=[Gain(0.0)])
    any_mixed = 0
    for one, two, start in zip(changed, crop, plain, strict=True):
        np.testing.assert_array_equal(one["index"], start["index"])
        pairs = [(row, row + 1) for row in range(0, len(two["index"]) - 1, 2)]
        expected = mixed(two, field, STEPS[name], "time" if form == "time" else "mel", pairs)
        for key in ("label", "index"):
            np.testing.assert_array_equal(one[key], two[key])
        for key in ("label_b", "mixup_index"):
            np.testing.assert_array_equal(one[key], expected[key])
        tolerance = {"int16": 1.0, "float16": 2e-2}.get(form, 1e-5)
        np.testing.assert_allclose(one[field].astype(np.float64), expected[field], rtol=0, atol=tolerance)
        np.testing.assert_allclose(one["mixup_weight"], expected["mixup_weight"], rtol=0, atol=1e-12)
        for key, limit in {"hot": 1e-6, "x": 1e-12, "votes": 1e-3}.items():
            np.testing.assert_allclose(one[key].astype(np.float64), expected[key], rtol=0, atol=limit)
        any_mixed += int((one["mixup_index"] >= 0).sum())
    assert any_mixed > ROWS / 3


def test_views_of_an_example_take_the_same(path: Path) -> None:
    given = {"crop": forebay.crops.Views(2)}
    plain, changed = batches(path, **given), batches(path, **given, augment=[Mixup()])
    for one, two in zip(changed, plain, strict=True):
        for row in range(0, 6, 2):
            weight, other = one["mixup_weight"][row : row + 2, None, None], two["waveform"][[row + 1, row]]
            expected = weight * two["waveform"][row : row + 2] + (1 - weight) * other
            np.testing.assert_allclose(one["waveform"][row : row + 2], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("world", [1, 3])
def test_a_bad_record_leaves_its_partner_and_no_other(path: Path, tmp_path: Path, world: int) -> None:
    """Its partner stays as it is, and all other pairs stay pairs."""
    damaged = shard(tmp_path / "damaged", bad=(2, 9, 14, 15))
    given: dict[str, Any] = {"augment": [Mixup()], "order": "sequential", "batch_size": 6 // world, "world_size": world}
    for rank in range(world):
        good, found = (batches(source, **given, rank=rank) for source in (path, damaged))
        with forebay.Loader([damaged], **{**SHARED, **given}, rank=rank) as loader:
            for number, one in enumerate(found):
                np.testing.assert_array_equal(loader.replay(number)["waveform"], one["waveform"])
        alone = 0
        for one, two in zip(found, good, strict=True):
            rows = {int(index): row for row, index in enumerate(two["index"])}
            for row, index in enumerate(one["index"].tolist()):
                at = rows[index]
                if index in (3, 8):
                    assert (one["mixup_weight"][row], one["mixup_index"][row]) == (1, -1)
                    alone += 1
                else:
                    assert one["mixup_index"][row] == two["mixup_index"][at] == index ^ 1
                    np.testing.assert_array_equal(one["waveform"][row], two["waveform"][at])
        assert alone <= 2


def test_the_last_of_an_odd_number_has_no_partner(path: Path) -> None:
    for batch in batches(path, batch_size=5, augment=[Mixup(p=1)]):
        alone = batch["mixup_index"] < 0
        assert alone.tolist() == [False] * (len(alone) // 2 * 2) + [True] * (len(alone) % 2)


def test_fields(path: Path) -> None:
    with forebay.Loader([path], **SHARED, augment=[CutMix()], columns=["text"]) as loader:
        fields = {line["name"]: (line["dtype"], line["shape"]) for line in loader.fields}
        assert list(fields) == ["waveform", "label", "label_b", "text", "index", "mixup_index", "mixup_weight"]
        assert (fields["mixup_index"], fields["mixup_weight"]) == (("int64", ()), ("float64", ()))
        assert all(line["meaning"] for line in loader.fields)
        batch = next(loader)
        assert list(batch) == list(fields)
        assert batch["text"] == [f"bird {index}" for index in batch["index"]]
    with forebay.Loader([path], **SHARED, augment=[SpecAugment(p=0)][:0]) as loader:
        assert "mixup_weight" not in next(loader)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (targets.Text("text"), 'augment has Mixup, which mixes targets, and target "label" is a Text of text'),
        (targets.Number("label", dtype="int32"), "is a Number of int32, which cannot be mixed"),
    ],
)
def test_targets_that_cannot_be_mixed(path: Path, target: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        forebay.Loader([path], **SHARED, targets=target, augment=[Mixup(), CutMix()])


def test_wrong_values() -> None:
    with pytest.raises(ConfigError, match=r"beta is 0\.0, must be 0.01 to 1000"):
        Mixup(0)
    with pytest.raises(ConfigError, match='part is "bands", must be one of "frames", "box"'):
        CutMix(part="bands")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match="steps has a Mixup, CutMix or Remix, which mixes examples of a Loader's batch"
    ):
        apply([CutMix()], np.zeros(9, np.float32), RATE)
    assert repr(CutMix(2, part="box")) == "CutMix(beta=2, part='box')"
