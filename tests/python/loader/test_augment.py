"""`forebay.augment`: each step against an oracle in numpy and scipy, and what its parameters refuse."""

import json
import math
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay
from augmenting import (
    Draws,
    biquad,
    bits_of,
    chosen,
    filtered,
    masked,
    notched,
    ratio,
    reverberated,
    rms,
    roll,
    slope_of,
    warped,
    wav,
)
from budgets import most_bytes
from fields import write
from forebay import ConfigError, StateError, augment, crops, features, sampling, targets
from forebay.augment import (
    Clip,
    Dither,
    DropChunk,
    DropFreq,
    Filter,
    FrameRoll,
    Gain,
    Mix,
    Noise,
    OneOf,
    Polarity,
    Python,
    Reverb,
    Roll,
    SpecAugment,
    Speed,
    apply,
)
from hashes import below, hashed

RATE = 8000
N = 1600
WAVEFORM = features.Waveform(sample_rate=RATE)


def clip_of(seed: int, n: int = N, channels: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    shape = (channels, n) if channels else n
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


@pytest.mark.parametrize("channels", [0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_waveforms(seed: int, channels: int) -> None:
    x = clip_of(seed, channels=channels)

    def check(step: Any, expected: np.ndarray[Any, Any], tolerance: float = 1e-6) -> None:
        found = apply([step], x, RATE, seed=seed)
        assert found.dtype == np.float32
        assert found.shape == x.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)

    check(Gain((-18, 6)), x * ratio(Draws(seed, "Gain").within(-18, 6)))
    check(Gain(factor=(0.125, 2)), x * Draws(seed, "Gain").within(0.125, 2))
    check(Polarity(p=0.5), -x if Draws(seed, "Polarity").first < 0.5 else x)
    for fill in ("wrap", "zeros"):
        shift = round(Draws(seed, "Roll").within(-1, 1) * N)
        check(Roll((-1, 1), fill=fill), roll(x, shift, fill), 0)
    most = ratio(Draws(seed, "Clip").within(-12, -3)) * np.abs(x).max()
    check(Clip((-12, -3)), np.clip(x, -most, most))
    for shape in ("lowpass", "highpass", "bandpass", "peak"):
        draws, expected = Draws(seed, "Filter"), x
        for _ in range(3):
            freq, q = draws.log_within(50, 3900), draws.log_within(0.3, 3)
            expected = filtered(expected, shape, freq, q, draws.within(-12, 12), RATE)
        check(Filter(shape, (50, 3900), q=(0.3, 3), n=3), expected, 1e-5)
    draws, expected = Draws(seed, "DropFreq"), x
    for _ in range(draws.whole(1, 3)):
        expected = notched(expected, draws.within(0.05, 0.95), draws.within(0.02, 0.1))
    check(DropFreq((0.05, 0.95), width=(0.02, 0.1)), expected, 1e-5)
    draws, expected = Draws(seed, "DropChunk"), x.copy()
    for _ in range(draws.whole(0, 4)):
        length = round(draws.within(5, 400) / 1000 * RATE)
        length = min(length, N)
        start = draws.below(N - length + 1)
        expected[..., start : start + length] = 0
        draws.bits()  # the level of the noise, 0
    check(DropChunk((5, 400), n=(0, 4)), expected, 0)


@pytest.mark.parametrize("silent", [False, True])
def test_dither_has_its_deviation(silent: bool) -> None:
    """Of the noise alone, on silence as well; each channel has its own."""
    n = 1 << 16
    x = np.zeros((2, n), np.float32) if silent else clip_of(1, n, 2)
    for seed in range(4):
        noise = apply([Dither((1e-4, 1e-2))], x, RATE, seed=seed).astype(np.float64) - x
        # Six standard errors of 2^17 samples, and what float32 rounds.
        assert rms(noise) == pytest.approx(Draws(seed, "Dither").within(1e-4, 1e-2), rel=0.013)
        assert abs(noise.mean()) < 6 * rms(noise) / 2**8.5
        assert abs((noise[0] * noise[1]).mean()) < 6 * rms(noise) ** 2 / 2**8
    kaldi = apply([Dither()], np.zeros(n, np.float32), RATE)
    assert rms(kaldi) * 32768 == pytest.approx(1, rel=0.017)


def test_noise_in_the_place_of_parts() -> None:
    x = clip_of(2, 1 << 16, 2)
    for seed in range(8):
        draws = Draws(seed, "DropChunk")
        draws.bits()
        length = round(draws.within(2000, 4000) / 1000 * RATE)
        start = draws.below(x.shape[1] - length + 1)
        part = slice(start, start + length)
        found = apply([DropChunk((2000, 4000), n=1, noise_factor=(0.1, 2))], x, RATE, seed=seed)
        # Six standard errors of at least 2 * 16 000 samples.
        assert rms(found[:, part]) == pytest.approx(draws.within(0.1, 2) * rms(x), rel=0.025)
        assert abs(np.corrcoef(found[0, part], found[1, part])[0, 1]) < 6 / length**0.5
        assert np.array_equal(np.delete(found, np.r_[part], 1), np.delete(x, np.r_[part], 1))


def test_padding_gets_no_dither_and_loses_no_chunk(files: tuple[Path, list[Any]]) -> None:
    """Only the recording changes, and the features still count it alone."""
    path, _ = files
    given = {**SHARED, "outputs": ["valid_samples"]}
    steps = [Dither(0.1), DropChunk((1e4, 6e4), n=1, noise_factor=1.0)]
    for step in steps:
        with forebay.Loader([path], **given, augment=[step]) as loader:
            for batch in loader:
                for clip, n, row in zip(batch["waveform"], batch["valid_samples"], batch["index"], strict=True):
                    assert n == min(N, OWN[row])
                    assert clip[:n].all()
                    assert not clip[n:].any()


@pytest.mark.parametrize("slope", [0.0, -3.0, -6.0, -12.0, 4.0])
@pytest.mark.parametrize("level", ["rms", "active", "clip"])
def test_noise_has_its_level_and_spectrum(slope: float, level: Any) -> None:
    rate, n = 32_000, 1 << 18
    x = clip_of(1, n)
    x[n // 2 :] *= 1e-4
    for seed in range(4):
        found = apply([Noise((-10, 10), slope_db=slope, level=level)], x, rate, seed=seed)
        noise = found.astype(np.float64) - x
        of_clip = rms(x[: n // 2]) if level == "active" else rms(x)
        snr = 20 * math.log10(of_clip / rms(noise))
        # A block of 20 ms holds both halves.
        assert snr == pytest.approx(Draws(seed, "Noise").within(-10, 10), abs=0.02)
        # Of 2^18 samples the lowest octave has 500 bins.
        assert slope_of(noise, rate, 62.5, 8000) == pytest.approx(slope, abs=0.3)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5)])
def test_nothing_to_change(shape: tuple[int, ...]) -> None:
    steps = [
        Gain(), Roll(), Noise(), Filter("peak", 100), Clip(), Speed((2.0,)), Dither(), DropFreq(),
        DropChunk(noise_factor=1),
    ]  # fmt: skip
    assert apply(steps, np.zeros(shape, np.float32), RATE).size == 0


def test_speed_changes_length_and_pitch() -> None:
    tone = np.sin(2 * np.pi * 400 * np.arange(N) / RATE).astype(np.float32)
    lengths = set()
    for seed in range(30):
        factors = (0.5, 1.0, 1.25)
        factor = factors[int(Draws(seed, "Speed").unit() * 3)]
        found = apply([Speed(factors)], tone, RATE, seed=seed)
        assert len(found) == math.ceil(N / factor)
        expected = np.sin(2 * np.pi * 400 * factor * np.arange(len(found)) / RATE)
        np.testing.assert_allclose(found[200:-200], expected[200:-200], rtol=0, atol=2e-3)
        lengths.add(len(found))
    assert len(lengths) == 3


@pytest.mark.parametrize("layout", ["mel", "time"])
@pytest.mark.parametrize("seed", range(10))
def test_features(seed: int, layout: Any) -> None:
    spectra = features.LogMel(sample_rate=RATE, n_fft=256, hop_length=64, n_mels=20, layout=layout)
    x = clip_of(seed)

    def found(*steps: Any) -> np.ndarray[Any, Any]:
        made = apply(steps, x, RATE, seed=seed, features=spectra)
        return made if layout == "mel" else made.T

    plain = found()
    silence = spectra(np.zeros_like(x)).min()
    fills: dict[Any, Any] = {
        "mean": lambda y: y.mean(dtype=np.float64), "minimum": np.min, -3.5: lambda _: -3.5,
        "silence": lambda _: silence,
    }  # fmt: skip
    for fill, value in fills.items():
        expected = masked(Draws(seed, "SpecAugment"), plain, (6, 13), (2, 3), value)
        step = SpecAugment(6, 2, 0.5, 3, fill=fill)
        np.testing.assert_allclose(found(step), expected, rtol=0, atol=1e-5)
        for most in (3, 12, 13):
            bent = warped(Draws(seed, "SpecAugment"), plain, most, 5)
            # There are 26 frames.
            assert (bent is plain) == (most == 13)
            expected = masked(Draws(seed, "SpecAugment"), bent, (6, 13), (2, 3), value)
            step = SpecAugment(6, 2, 0.5, 3, fill=fill, warp=most)
            np.testing.assert_allclose(found(step), expected, rtol=0, atol=1e-4)
    # As Lhotse limits all masks of frames together, which are fewer and shorter then.
    for share in (0.0, 0.1, 0.5, 1.0):
        total = share * plain.shape[1]
        n = min(4, math.ceil(total / 8))
        most = min(8, total // n) if n else 0
        expected = masked(Draws(seed, "SpecAugment"), plain, (6, int(most)), (2, n), np.min)
        step = SpecAugment(6, 2, 8, 4, fill="minimum", max_share=share)
        np.testing.assert_allclose(found(step), expected, rtol=0, atol=1e-5)
    shift = round(Draws(seed, "FrameRoll").within(-1, 1) * plain.shape[1])
    np.testing.assert_array_equal(found(FrameRoll((-1, 1))), np.roll(plain, shift, 1))
    # A further step changes none of the draws.
    np.testing.assert_array_equal(found(FrameRoll((-1, 1)), Gain(0.0)), found(Polarity(p=0), FrameRoll((-1, 1))))


def doubled(values: Any, _: int) -> Any:
    return 2 * values


@pytest.mark.parametrize("seed", range(40))
def test_one_of_several_steps(seed: int) -> None:
    """Each draws in a group what it draws in the list, in its place, and groups choose by themselves."""
    x = clip_of(seed)
    spectra = features.LogMel(sample_rate=RATE, n_fft=256, hop_length=64, n_mels=20)
    groups: list[Any] = [
        ([Gain((-9, 9)), Speed((0.5, 2.0)), Polarity(p=0.5), SpecAugment(5, 2, 5, 2)], [4.0, 1.0, 2.0, 3.0], 0.8),
        ([Gain((-9, 9)), Python(doubled)], None, 1.0),
    ]
    steps = [Clip((-12, 0)), *(OneOf(some, weights=weights, p=p) for some, weights, p in groups), Clip((-12, 0))]
    flat: list[Any] = [steps[0]]
    kept = {0}
    for count, (some, weights, p) in enumerate(groups):
        which = chosen(seed, weights or [1.0] * len(some), p, count)
        kept |= {len(flat) + which} if which >= 0 else set()
        flat += some
    kept.add(len(flat))
    # Those that are not drawn are there, and never applied: others keep their numbers.
    flat = [step if at in kept else replace(step, p=0.0) for at, step in enumerate([*flat, steps[-1]])]
    found, expected = (apply(some, x, RATE, seed=seed, features=spectra) for some in (steps, flat))
    np.testing.assert_array_equal(found, expected)


def test_noise_by_category(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    """Exactly one of the sources, each at its level; a state, a recipe and outputs name them."""
    path, _samples = files
    n = [1, 2, 3]
    sources = [shard(tmp_path / f"noise{i}", recordings([4000] * count, i)) for i, count in enumerate(n)]
    ratios = [(0.0, 1.0), (10.0, 11.0), (20.0, 21.0)]
    mixes = [Mix(source, snr_db=snr) for source, snr in zip(sources, ratios, strict=True)]
    step = OneOf(mixes, weights=[1, 1, 2], p=0.8)
    given = {**SHARED, "outputs": ["mix_index"]}
    with forebay.Loader([path], **given, augment=[step]) as loader, forebay.Loader([path], **SHARED) as plain:
        assert repr(step) in repr(loader.recipe)
        state = json.loads(json.dumps(loader.state_dict()))
        planned = loader.plan(len(OWN), outputs=["mix_index"])
        mixed, clean = list(loader), list(plain)
    rows = {name: np.concatenate([batch[name] for batch in mixed]) for name in mixed[0]}
    np.testing.assert_array_equal(planned["mix_index"], rows["mix_index"])
    before = np.concatenate([batch["waveform"] for batch in clean])
    seen = set()
    for at, row in enumerate(rows["index"].tolist()):
        which = chosen(bits_of(3, row), [1, 1, 2], 0.8)
        noise = rows["waveform"][at].astype(np.float64) - before[at]
        seen.add(which)
        # Of the first Mix, which has one row.
        assert rows["mix_index"][at] == (0 if which == 0 else -1)
        if which < 0:
            assert not noise.any()
            continue
        low, high = ratios[which]
        draws = Draws(bits_of(3, row), "Mix", which)
        draws.bits()
        snr = draws.within(low, high)
        assert 20 * math.log10(rms(before[at][: OWN[row]]) / rms(noise)) == pytest.approx(snr, abs=0.01)
    assert len(seen) == 4
    with forebay.Loader([path], **given, augment=[step]) as again:
        again.load_state_dict(state)
    others = [OneOf(mixes, weights=[1, 1, 3], p=0.8), OneOf([mixes[1], mixes[0], mixes[2]], weights=[1, 1, 2], p=0.8)]
    for other in [[one] for one in others] + [mixes]:
        with forebay.Loader([path], **given, augment=other) as loader, pytest.raises(StateError, match="augment"):
            loader.load_state_dict(state)


def test_a_function_is_one_of_several(files: tuple[Path, list[Any]]) -> None:
    path, _ = files
    steps = [OneOf([Gain(-6), Python(doubled)])]
    with forebay.Loader([path], **SHARED, augment=steps) as loader, forebay.Loader([path], **SHARED) as plain:
        assert "OneOf(steps=(Gain(db=-6), Python(function=test_augment.doubled)))" in repr(loader.recipe)
        loader.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        pairs = list(zip(loader, plain, strict=True))
    assert pickle.loads(pickle.dumps(steps)) == steps
    assert {chosen(bits_of(3, row), [1, 1]) for row in range(len(OWN))} == {0, 1}
    for batch, before in pairs:
        for row, found, x in zip(batch["index"].tolist(), batch["waveform"], before["waveform"], strict=True):
            np.testing.assert_array_equal(found, apply(steps, x, RATE, seed=bits_of(3, row)))


def test_statistics() -> None:
    """Shares, ranges and widths over many examples."""
    x = np.ones(4, np.float32)
    n = 4000
    gains = [20 * math.log10(apply([Gain((-20, 20), p=0.25)], x, RATE, seed=seed)[0]) for seed in range(n)]
    applied = [gain for gain in gains if gain != 0]
    # Six standard deviations.
    assert abs(len(applied) / n - 0.25) < 6 * math.sqrt(0.25 * 0.75 / n)
    assert abs(np.mean(applied)) < 6 * 40 / math.sqrt(12 * len(applied))
    assert -20 <= min(applied) < -19
    assert 19 < max(applied) <= 20
    spectra = features.LogMel(sample_rate=RATE, n_fft=64, hop_length=32, n_mels=8)
    clip = clip_of(3, 320)
    plain = spectra(clip)
    widths = Counter(
        int((apply([SpecAugment(5, 1, 0, 0, fill=99.0)], clip, RATE, seed=seed, features=spectra) == 99).all(1).sum())
        for seed in range(1200)
    )
    assert set(widths) == set(range(6))
    assert plain.max() < 99
    assert all(abs(count - 200) < 6 * math.sqrt(200 * 5 / 6) for count in widths.values())


SHARED: dict[str, Any] = {
    "clip_seconds": N / RATE, "features": WAVEFORM, "seed": 3, "batch_size": 5, "infinite": False,
    "shuffle_min_size": 0, "n_workers": 2,
}  # fmt: skip


def recordings(lengths: list[int], seed: int, channels: int = 1) -> list[Any]:
    return [
        np.random.default_rng((seed, i)).normal(0, 0.05 + 0.01 * i, (n, channels)).astype(np.float32)
        for i, n in enumerate(lengths)
    ]


def shard(path: Path, samples: list[Any], rate: int = RATE, **columns: Any) -> Path:
    audio = pa.array([{"bytes": s if isinstance(s, bytes) else wav(s, rate), "path": None} for s in samples])
    return write(path, pa.table({"audio": audio, **columns}), "file")


OWN = [4000, 1600, 900, 5000, 1700, 3, 2000, 1800, 2500, 1601, 1600, 4100]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("augment")
    samples = recordings(OWN, 1)
    several = [["owl", "wren", "jay"][: 1 + i % 3] for i in range(len(OWN))]
    one = ["owl" if i % 2 else "wren" for i in range(len(OWN))]
    path = shard(folder / "own", samples, several=several, label=[i % 3 for i in range(len(OWN))], one=one)
    return path, [s[:, 0] for s in samples]


def clip_at(x: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The random clip, without padding."""
    if len(x) < N:
        return x
    start = below(bits, len(x) - N + 1)
    return x[start : start + N]


def repeated(x: np.ndarray[Any, Any], phase: int) -> np.ndarray[Any, Any]:
    """The partner, of the length of a clip."""
    return x if len(x) == N else np.resize(np.roll(x, -below(phase, len(x))), N)


def test_a_loader_does_what_apply_does(files: tuple[Path, list[Any]]) -> None:
    path, samples = files
    steps = [Gain((-6, 6), p=0.5), Filter("lowpass", (500, 3000)), Clip(-6), Polarity()]
    plain = dict(SHARED, outputs=["valid_samples", "start", "gain_db", "clip_db"])
    with forebay.Loader([path], **plain, augment=steps) as loader:
        batches = list(loader)
        assert {"gain_db", "clip_db"} <= {line["name"] for line in loader.fields}
        assert "Gain(db=(-6.0, 6.0), p=0.5)" in repr(loader.recipe)
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    for at, row in enumerate(rows["index"].tolist()):
        bits = bits_of(3, row)
        x = np.zeros(N, np.float32)
        part = clip_at(samples[row], bits)
        x[: len(part)] = part
        np.testing.assert_array_equal(rows["waveform"][at], apply(steps, x, RATE, seed=bits))
        draws = Draws(bits, "Gain")
        gain = draws.within(-6, 6) if draws.first < 0.5 else math.nan
        assert rows["gain_db"][at] == pytest.approx(gain, nan_ok=True)
        assert rows["clip_db"][at] == -6
        assert rows["valid_samples"][at] == len(part)


@pytest.mark.parametrize("order", ["sequential", "global"])
@pytest.mark.parametrize(
    "how", [{"snr_db": (-5, 5)}, {"snr_db": 0, "level": "clip"}, {"weight": (0.2, 0.6)}], ids=["snr", "clip", "weight"]
)
def test_partners_of_the_own_rows(files: tuple[Path, list[Any]], order: str, how: dict[str, Any]) -> None:
    path, samples = files
    steps = [Mix(near=3, targets="mix" if "weight" in how else "union", p=0.8, **how)]
    several = targets.MultiHot("several", classes=["owl", "wren", "jay"])
    given = {**SHARED, "order": order, "targets": several}
    outputs = ["mix_index", "mix_start", "mix_snr_db", "mix_weight"]
    with forebay.Loader([path], **given, outputs=outputs, augment=steps) as loader:
        batches = list(loader)
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    n, seen = len(OWN), set()
    hot = np.array([[1.0] * (1 + i % 3) + [0.0] * (2 - i % 3) for i in range(n)])
    for at, row in enumerate(rows["index"].tolist()):
        bits = bits_of(3, row)
        x = np.zeros(N)
        part = clip_at(samples[row], bits)
        x[: len(part)] = part
        draws = Draws(bits, "Mix")
        if draws.first >= 0.8:
            assert rows["mix_index"][at] == -1
            assert math.isnan(rows["mix_start"][at])
            np.testing.assert_array_equal(rows["waveform"][at], x.astype(np.float32))
            np.testing.assert_array_equal(rows["label"][at], hot[row])
            continue
        draws.bits()
        amount = how.get("snr_db", how.get("weight"))
        amount = draws.within(*(amount if isinstance(amount, tuple) else (amount, amount)))
        which, place, phase = draws.bits(), draws.bits(), draws.bits()
        most = 3 if order == "sequential" else n - 1
        partner = (row - 1 - below(which, most)) % n
        assert rows["mix_index"][at] == partner
        y = repeated(clip_at(samples[partner], place), phase).astype(np.float64)
        start = below(place, len(samples[partner]) - N + 1) / RATE if len(samples[partner]) > N else 0.0
        assert rows["mix_start"][at] == pytest.approx(start)
        if "weight" in how:
            expected = (1 - amount) * x + amount * y
            label = (1 - amount) * hot[row] + amount * hot[partner]
            assert rows["mix_weight"][at] == pytest.approx(amount)
            assert math.isnan(rows["mix_snr_db"][at])
        else:
            of_clip = rms(x) if how.get("level") == "clip" else rms(part)
            expected = x + y * of_clip / rms(y) * ratio(-amount)
            label = np.maximum(hot[row], hot[partner])
            assert rows["mix_snr_db"][at] == pytest.approx(amount)
        np.testing.assert_allclose(rows["waveform"][at], expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(rows["label"][at], label, rtol=0, atol=1e-6)
        seen.add(partner)
    assert len(seen) > 3


@pytest.mark.parametrize("near", [2, None])
@pytest.mark.parametrize("column", ["one", "several", "rare"])
def test_partners_of_the_same_class(column: str, near: int | None, tmp_path: Path) -> None:
    """A partner has a class of the row; rows without a class, or alone in theirs, stay as they are."""
    samples = recordings(OWN, 1)
    columns: dict[str, Any] = {
        "one": ["owl" if i % 3 else "wren" for i in range(len(OWN))],
        "several": [["owl", "wren", "jay"][i % 4 :] for i in range(len(OWN))],
        "rare": [None, "auk", *(["tit", "nuthatch"] * 5)],
    }
    path = shard(tmp_path / "own", samples, **columns)
    classes = [value if isinstance(value, list) else [value] if value else [] for value in columns[column]]
    rows_of = {
        name: [row for row, names in enumerate(classes) if name in names] for of_row in classes for name in of_row
    }
    steps = [Mix(weight=1, near=near, same_class=column)]
    excluded = 6
    outputs = ["mix_index"]
    with forebay.Loader([path], **SHARED, outputs=outputs, augment=steps, exclude=[excluded]) as loader:
        planned = loader.plan(len(OWN), outputs=outputs)
        batches = list(loader)
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    kept = planned["index"] != excluded
    np.testing.assert_array_equal(planned["mix_index"][kept], rows["mix_index"])
    mixed = 0
    for at, row in enumerate(rows["index"].tolist()):
        bits = bits_of(3, row)
        draws, expected, place, phase = Draws(bits, "Mix"), -1, 0, 0
        draws.bits(), draws.bits()
        for _ in range(8):
            which, place, phase = draws.bits(), draws.bits(), draws.bits()
            drawn = which * len(classes[row])
            members = rows_of[classes[row][drawn >> 64]] if classes[row] else []
            others = min(len(members) - 1, near or len(members))
            if others > 0:
                partner = members[members.index(row) - 1 - below(drawn & (1 << 64) - 1, others)]
                if partner != excluded:
                    expected = partner
                    break
        assert rows["mix_index"][at] == expected
        own = clip_at(samples[row][:, 0], bits)
        if expected < 0:
            np.testing.assert_array_equal(rows["waveform"][at][: len(own)], own)
        else:
            assert set(classes[expected]) & set(classes[row])
            y = repeated(clip_at(samples[expected][:, 0], place), phase)
            np.testing.assert_allclose(rows["waveform"][at], y, rtol=0, atol=1e-7)
            mixed += 1
    assert mixed >= 8


def test_a_class_column_that_is_not_there(files: tuple[Path, list[Any]]) -> None:
    with pytest.raises(ConfigError, match=r"\"spezies\""):
        forebay.Loader([files[0]], **SHARED, augment=[Mix(weight=1, same_class="spezies")])


def test_backgrounds(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    """Partners of another source: another rate and number of channels, short, silent and bad ones."""
    path, _samples = files
    others = [*recordings([700, 9000], 7, channels=2), np.zeros((50, 2), np.float32), b"no recording"]
    background = shard(tmp_path / "others", others, 16_000)
    steps = [Mix(str(background), snr_db=10.0, most=2)]
    given = {**SHARED, "outputs": ["mix_index"]}
    with forebay.Loader([path], **given, augment=steps) as loader, forebay.Loader([path], **SHARED) as plain:
        mixed, clean = list(loader), list(plain)
        assert not loader.errors()
    changed = 0
    partners = set()
    for one, other in zip(mixed, clean, strict=True):
        np.testing.assert_array_equal(one["index"], other["index"])
        for row, (x, y) in enumerate(zip(one["waveform"], other["waveform"], strict=True)):
            noise = x.astype(np.float64) - y
            part = y[: OWN[one["index"][row]]]
            partners.add(int(one["mix_index"][row]))
            if rms(noise) > 0:
                changed += 1
                # One or two partners, each 10 dB below.
                assert -10.1 < 20 * math.log10(rms(noise) / rms(part)) + 0 < -4
    assert changed > len(OWN) / 2
    assert 3 not in partners
    assert partners >= {0, 1}


def test_a_bad_partner_moves_nothing(files: tuple[Path, list[Any]], tmp_path: Path, caplog: Any) -> None:
    good = recordings([2000, 3000, 4000], 9)
    with_bad = shard(tmp_path / "bad", [good[0], b"no recording", good[2]])
    path, _ = files

    bad: list[Any] = []

    def batches(background: Path) -> list[Any]:
        steps = [Gain(0), Mix(str(background), weight=0.5)]
        with forebay.Loader([path], **SHARED, outputs=["mix_index"], augment=steps) as loader:
            found = list(loader)
            bad.extend(loader.partner_errors())
            return found

    found, expected = batches(with_bad), batches(shard(tmp_path / "good", good))
    same = 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one["index"], other["index"])
        for row, partner in enumerate(other["mix_index"]):
            assert one["mix_index"][row] != 1
            if partner != 1:
                np.testing.assert_array_equal(one["waveform"][row], other["waveform"][row])
                same += 1
    assert 0 < same < len(OWN)
    [line] = [record.message for record in caplog.records if "mixed in is bad" in record.message]
    assert "row 1" in line
    assert "bad" in line
    [error] = bad
    assert (error["step"], error["index"], error["row"], error["kind"]) == (0, 1, 1, "unsupported")
    assert Path(error["shard"]) == with_bad


def responses(n: int, seed: int, channels: int = 1, delay: int = 0) -> np.ndarray[Any, Any]:
    """An impulse response of `[n, channels]`: a weak precursor, the direct sound, and noise that decays."""
    decay = np.exp(-np.arange(n) / (n / 5 + 1))[:, None]
    made = 0.3 * np.random.default_rng((seed, n)).normal(size=(n, channels)) * decay
    made[:delay] *= 0.1
    made[delay] = [2.0, -1.0][:channels]
    return made.astype(np.float32)


ROOMS = {
    "usual": responses(400, 1),
    "late": responses(700, 2, delay=37),
    "longer than the clip": responses(5000, 3, delay=2),
    "identity": np.full((1, 1), 0.25, np.float32),
}


def rows_of(path: Path, workers: int = 2, **given: Any) -> tuple[dict[str, Any], list[Any]]:
    """All rows of a pass, and the responses that are bad."""
    with forebay.Loader([path], **{**SHARED, "n_workers": workers, **given}) as loader:
        batches = list(loader)
        for at, batch in enumerate(batches):
            again = loader.replay(at)
            assert all(np.array_equal(again[name], batch[name], equal_nan=True) for name in ("waveform", "index"))
        assert not loader.errors()
        bad = loader.partner_errors()
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}, bad


@pytest.mark.parametrize("channels", ["mean", "all"])
@pytest.mark.parametrize("is_mono", [True, False])
def test_rooms(channels: Any, is_mono: bool, tmp_path: Path) -> None:
    """Short clips too, and responses of one or two channels."""
    own = recordings([4000, 1600, 900, 5000, 1700, 3, 2000, 1800, 300, 1601], 5, channels=2)
    rooms = list(ROOMS.values())
    if not is_mono:
        rooms = [responses(n, n, 2, delay) for n, delay in ((400, 0), (5000, 9), (2, 1), (1, 0))]
    path, source = shard(tmp_path / "own", own), shard(tmp_path / "rooms", rooms)
    made = features.Waveform(sample_rate=RATE, channels=channels, n_channels=2 if channels == "all" else None)
    given: dict[str, Any] = {"features": made, "augment": [Reverb(source, p=0.9)], "outputs": ["reverb_index"]}
    rows, bad = rows_of(path, **given)
    assert not bad
    for workers in (1, 8):
        same, _ = rows_of(path, workers, **given)
        assert all(np.array_equal(same[name], rows[name]) for name in rows)
    seen = set()
    for at, row in enumerate(rows["index"].tolist()):
        bits = bits_of(3, row)
        recording = own[row].T if channels == "all" else own[row].T.mean(0, keepdims=True)
        x = np.zeros((len(recording), N), np.float32)
        part = np.stack([clip_at(one, bits) for one in recording])
        x[:, : part.shape[1]] = part
        found, number = np.atleast_2d(rows["waveform"][at]), int(rows["reverb_index"][at])
        seen.add(number)
        draws = Draws(bits, "Reverb")
        if draws.first >= 0.9:
            assert number == -1
            np.testing.assert_allclose(found, x, rtol=0, atol=1e-7)
            continue
        assert number == below(draws.bits(), len(rooms))
        room = rooms[number].T if channels == "all" else rooms[number].T.mean(0, keepdims=True)
        expected = reverberated(x, slice(0, part.shape[1]), room)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        if is_mono and number == 3:
            np.testing.assert_allclose(found, x, rtol=0, atol=1e-6)
    assert seen >= {0, 1, 2, 3}


def test_padding_in_front_stays_silent(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, samples = files
    room = ROOMS["usual"]
    given: dict[str, Any] = {"crop": crops.Start(pad="front"), "augment": [Reverb(shard(tmp_path / "room", [room]))]}
    rows, _ = rows_of(path, **given)
    for at, row in enumerate(rows["index"].tolist()):
        part = samples[row][:N]
        x = np.zeros((1, N), np.float32)
        x[0, N - len(part) :] = part
        expected = reverberated(x, slice(N - len(part), N), room.T)
        np.testing.assert_allclose(rows["waveform"][at], expected[0], rtol=0, atol=1e-5 * np.abs(expected).max())
        assert not rows["waveform"][at, : N - len(part)].any()


def test_a_response_of_another_rate(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    """It is converted as any recording is."""
    path, samples = files
    rate = 16_000
    room = responses(1500, 4)
    source = shard(tmp_path / "room", [room], rate)
    with forebay.Loader([source], **SHARED, crop=crops.Start()) as loader:
        [batch] = list(loader)
    rows, _ = rows_of(path, augment=[Reverb(source)])
    for at, row in enumerate(rows["index"].tolist()):
        part = clip_at(samples[row], bits_of(3, row))
        x = np.zeros((1, N), np.float32)
        x[0, : len(part)] = part
        expected = reverberated(x, slice(0, len(part)), batch["waveform"][0])
        np.testing.assert_allclose(rows["waveform"][at], expected[0], rtol=0, atol=1e-5 * np.abs(expected).max())


def test_bad_and_silent_responses(files: tuple[Path, list[Any]], tmp_path: Path, caplog: Any) -> None:
    path, _ = files
    good, silent = ROOMS["usual"], np.zeros((50, 1), np.float32)
    steps = [Gain(-3), Mix(shard(tmp_path / "noise", recordings([2000], 9)), snr_db=20.0)]
    given: dict[str, Any] = {"outputs": ["reverb_index", "mix_index"]}
    plain, _ = rows_of(path, augment=steps, outputs=["mix_index"])
    rooms = [shard(tmp_path / f"rooms{at}", [good, room, silent]) for at, room in enumerate([b"no recording", good])]
    (found, bad), (others, none) = (rows_of(path, **given, augment=[*steps, Reverb(one)]) for one in rooms)
    assert not none
    assert set(others["reverb_index"].tolist()) == {0, 1, 2}
    # `mix_index` is about the first Mix, wherever it is.
    assert set(found["mix_index"].tolist()) == {0}
    for at, number in enumerate(others["reverb_index"].tolist()):
        assert found["reverb_index"][at] != 1
        if number != 1:
            assert found["reverb_index"][at] == number
            np.testing.assert_array_equal(found["waveform"][at], others["waveform"][at])
        if number == 2:
            np.testing.assert_array_equal(others["waveform"][at], plain["waveform"][at])
    [line] = [record.message for record in caplog.records if "impulse response is bad" in record.message]
    assert "row 1" in line
    [error] = bad
    # The Mix is step 0.
    assert (error["step"], error["index"], error["row"], error["kind"]) == (1, 1, 1, "unsupported")
    assert Path(error["shard"]) == rooms[0]


def test_a_silent_clip_stays(tmp_path: Path) -> None:
    path = shard(tmp_path / "own", [np.zeros((2000, 1), np.float32)])
    rows, _ = rows_of(path, augment=[Reverb(shard(tmp_path / "room", [ROOMS["usual"]]))])
    assert not rows["waveform"].any()


def test_clips_of_one_recording_have_rooms_of_their_own(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    source = shard(tmp_path / "rooms", list(ROOMS.values()))
    steps = [Reverb(source, p=0.5), Reverb(source)]
    rows, _ = rows_of(files[0], crop=crops.Views(3), augment=steps, outputs=["reverb_index"])
    for at, row in enumerate(rows["index"].tolist()):
        for view in range(3):
            draws = Draws(bits_of(3, row) if view == 0 else hashed(bits_of(3, row), 25, view), "Reverb")
            # Of the first such step.
            expected = below(draws.bits(), 4) if draws.first < 0.5 else -1
            assert rows["reverb_index"][at, view] == expected
    assert rows["reverb_index"].dtype == np.int64


def test_rooms_are_in_the_budget(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, source = files[0], shard(tmp_path / "rooms", [ROOMS["usual"]])
    least = [most_bytes([path], **{**SHARED, "augment": [Reverb(source)] * n}) for n in range(3)]
    # One more for each of two workers, and for the first the transforms of 3456 values.
    assert least[2] - least[1] == 2 * (30 << 20)
    assert least[1] - least[0] == 2 * ((30 << 20) + 36 * 3456 + 4 * N)


def test_clips_of_one_recording_are_changed_one_by_one(files: tuple[Path, list[Any]]) -> None:
    """Each view has draws, a speed and a partner of its own."""
    path, samples = files
    names = ["start", "speed", "gain_db", "mix_index"]
    steps = [Speed((0.5, 1.0)), Gain((-6, 6)), Mix(weight=0.5, near=None)]
    given = {**SHARED, "crop": crops.Views(3), "outputs": names, "augment": steps}
    with forebay.Loader([path], **given) as loader:
        assert {line["name"]: line["shape"] for line in loader.fields if line["name"] in names} == dict.fromkeys(
            names, (3,)
        )
        batches = list(loader)
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    assert rows["waveform"].shape == (len(OWN), 3, N)
    for at, row in enumerate(rows["index"].tolist()):
        for view in range(3):
            bits = bits_of(3, row) if view == 0 else hashed(bits_of(3, row), 25, view)
            speed = (0.5, 1.0)[int(Draws(bits, "Speed").unit() * 2)]
            assert rows["speed"][at, view] == speed
            assert rows["gain_db"][at, view] == Draws(bits, "Gain").within(-6, 6)
            n = math.ceil(len(samples[row]) / speed)
            start = below(bits, n - N + 1) * speed / RATE if n > N else 0.0
            assert rows["start"][at, view] == pytest.approx(start)
            assert rows["mix_index"][at, view] not in (-1, row)
    assert len(set(rows["mix_index"].ravel().tolist())) > len(OWN) / 2


def test_partners_are_in_the_budget(files: tuple[Path, list[Any]]) -> None:
    path, _ = files
    least = [most_bytes([path], **{**SHARED, "augment": [Mix(weight=0.5)] * n}) for n in range(3)]
    # A worker's memory for each step, with two workers.
    assert least[1] - least[0] == least[2] - least[1] == 2 * (30 << 20)


@pytest.mark.parametrize("silent", ["clip", "partner", "subnormal"])
def test_nothing_is_mixed_where_one_is_silent(tmp_path: Path, silent: str) -> None:
    """Neither samples nor labels; what float32 cannot hold is silent, too."""
    loud, quiet = recordings([N], 1)[0], np.full((N, 1), 1e-42 if silent == "subnormal" else 0, np.float32)
    own, other = (quiet, loud) if silent == "clip" else (loud, quiet)
    path = shard(tmp_path / "own", [own, own], several=[["owl"], ["wren"]])
    outputs = ["mix_index", "mix_snr_db"]
    given: dict[str, Any] = {**SHARED, "outputs": outputs}
    with forebay.Loader([path], **given, augment=[Mix(str(shard(tmp_path / "x", [other])), snr_db=-20.0)]) as loader:
        [batch] = list(loader)
    np.testing.assert_array_equal(batch["waveform"], np.stack([own[:, 0]] * 2))
    assert batch["mix_index"].tolist() == [-1, -1]
    assert np.isnan(batch["mix_snr_db"]).all()
    if silent == "clip":
        union = shard(tmp_path / "union", [own, loud], several=[["owl"], ["wren"]])
        hot = targets.MultiHot("several", classes=["owl", "wren"])
        with forebay.Loader([union], **given, targets=hot, augment=[Mix(snr_db=0.0, targets="union")]) as loader:
            [batch] = list(loader)
        assert batch["label"].tolist() == [[1.0, 0.0], [0.0, 1.0]][:: 1 if batch["index"][0] == 0 else -1]


def test_excluded_rows_are_no_partners(files: tuple[Path, list[Any]]) -> None:
    path, _ = files
    given = {**SHARED, "infinite": True, "order": "global", "outputs": ["mix_index"], "exclude": [0, 3, 4]}
    with forebay.Loader([path], **given, augment=[Mix(weight=0.5)]) as loader:
        partners = Counter(int(i) for _ in range(20) for i in next(loader)["mix_index"])
    assert set(partners) == set(range(len(OWN))) - {0, 3, 4}


def test_one_row_has_no_partner(tmp_path: Path) -> None:
    path = shard(tmp_path / "one", recordings([2000], 1))
    with forebay.Loader([path], **SHARED, outputs=["mix_index"], augment=[Mix(weight=0.5)]) as loader:
        [batch] = list(loader)
    assert batch["mix_index"].tolist() == [-1]


def test_beta_weights(files: tuple[Path, list[Any]]) -> None:
    path, _ = files
    given = {**SHARED, "infinite": True, "batch_size": 50, "outputs": ["mix_weight"]}
    for alpha in (0.3, 1.0, 8.0):
        with forebay.Loader([path], **given, augment=[Mix(beta=alpha)]) as loader:
            weights = np.concatenate([next(loader)["mix_weight"] for _ in range(20)])
        # Beta(a, a) has mean 1/2 and variance 1 / (8 a + 4).
        variance = 1 / (8 * alpha + 4)
        assert abs(weights.mean() - 0.5) < 6 * math.sqrt(variance / len(weights))
        assert weights.var() == pytest.approx(variance, rel=0.25)


def test_parts_print_compare_and_convert() -> None:
    parts = [
        Gain((-1, 2), p=0.5), Polarity(), Roll(0.25, fill="zeros"), Noise(5, slope_db=(-6, 0)), Clip(),
        Filter("peak", (100, 200), q=(1, 2), n=4), Speed((0.9, 1.1)), SpecAugment(0.5, 1, 7, 3, fill=0.0, frames="all"),
        FrameRoll(), Mix("a.arrow", snr_db=(1, 2)), Mix([Path("a"), "b"], weight=0.5), Mix(beta=1.0, targets="sum"),
        Mix(forebay.Manifest([{"path": "a.wav"}]), snr_db=3.0), Reverb("a.arrow", p=0.3), Reverb([Path("a"), "b"]),
        Reverb(forebay.Manifest([{"path": "a.wav"}])), Gain(factor=(0.125, 2)), Gain(factor=2, p=0.5), Dither((0, 0.1)),
        DropFreq((0.1, 0.2), width=0.01, n=2), DropFreq(n=(0, 2)), DropChunk((1, 2), n=(2, 5)),
        SpecAugment(warp=80), OneOf([Gain(3), Clip()]),
        OneOf([Mix("a", snr_db=(0, 15)), Reverb(forebay.Manifest([{"path": "a.wav"}]))], weights=(1, 2.5), p=0.5),
    ]  # fmt: skip
    for part in parts:
        again = type(part).from_dict(json.loads(json.dumps(part.to_dict())))
        assert again == part
        assert repr(again) == repr(part)
        assert pickle.loads(pickle.dumps(part)) == part
    assert repr(parts[0]) == "Gain(db=(-1.0, 2.0), p=0.5)"
    assert repr(Gain(factor=2)) == "Gain(factor=2)"
    assert repr(DropFreq(n=(0, 2))) == "DropFreq(n=(0, 2))"
    # States of before these parameters have the same description.
    assert list(Gain().to_dict()) == ["type", "db", "p"]
    assert "warp" not in SpecAugment().to_dict()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gain((6, -6)), r"db is \(6.0, -6.0\), must be \(low, high\), as in \(-6.0, 6.0\)"),
        (lambda: Gain(float("nan")), "db is nan, must be within -200 to 200"),
        (lambda: Gain(0, p=1.5), "p is 1.5, must be 0 to 1"),
        (lambda: Gain((1, 2), p=-1), "p is -1.0"),
        (lambda: Noise(slope_db=13), "slope_db is 13, must be within -12 to 12"),
        (lambda: Noise(level="loud"), 'level is "loud", must be one of "rms", "active", "clip"'),  # type: ignore[arg-type]
        (lambda: Filter("notch", 100), 'shape is "notch"'),  # type: ignore[arg-type]
        (lambda: Filter("peak", 0, n=100), "n is 100, must be 1 to 64"),
        (lambda: Speed(()), "factors has 0 numbers, must have 1 to 64"),
        (lambda: Speed((1.0, 9.0)), "factors has 9.0, must be 0.25 to 4"),
        (lambda: SpecAugment(1.5), "freq is 1.5, must be a whole number of bands or frames, or a share"),
        (lambda: SpecAugment(-1), "freq is -1"),
        (lambda: SpecAugment(fill=float("nan")), "fill is NaN, must be finite"),
        (lambda: SpecAugment(fill="zero"), 'fill is "zero", must be one of "mean", "minimum", "silence"'),  # type: ignore[arg-type]
        (lambda: SpecAugment(max_share=1.5), "max_share is 1.5, must be 0 to 1"),
        (lambda: SpecAugment(warp=-1), "warp is -1, must be 0 to 16777216"),
        (lambda: Gain(1, factor=2), "Gain has both db and factor, must have one"),
        (lambda: Gain(None), "Gain has neither db nor factor"),
        (lambda: Gain(factor=0), "factor is 0, must be within 0.0001 to 10000"),
        (lambda: Dither(1.5), "amount is 1.5, must be within 0 to 1"),
        (lambda: DropFreq((0.5, 1.5)), "freq is .*, must be within 0 to 1"),
        (lambda: DropFreq(width=0.5), "width is 0.5, must be within 0.001 to 0.25"),
        (lambda: DropFreq(n=33), "n is 33, must be within 0 to 32"),
        (lambda: DropChunk(n=(3, 1)), r"n is \(3, 1\), must be \(low, high\), as in \(1, 3\)"),
        (lambda: DropChunk(n=(-1, 65)), r"n is \(-1, 65\), must be within 0 to 64"),
        (lambda: DropChunk(-1), "length_ms is -1"),
        (lambda: OneOf([]), "steps has 0 steps, must have 1 to 64"),
        (lambda: OneOf([Gain()] * 65), "steps has 65 steps, must have 1 to 64"),
        (lambda: OneOf([Gain(), OneOf([Clip()])]), "steps has a OneOf at position 1, must have other steps"),
        (lambda: OneOf([Gain(), Clip()], weights=[1]), "weights has 1 numbers, must have one for each of 2 steps"),
        (lambda: OneOf([Gain(), Clip()], weights=[1, 0]), r"weights has 0.0, must be 1e-9 to 1e9"),
        (lambda: OneOf([Gain()], p=2), "p is 2.0, must be 0 to 1"),
        (lambda: apply([OneOf([SpecAugment()])], np.zeros(3, np.float32), RATE), "SpecAugment changes features"),
        (lambda: apply([OneOf([Reverb("a")])], np.zeros(3, np.float32), RATE), "steps has a Reverb"),
        (lambda: Mix("a"), "Mix has 0 of snr_db, weight and beta"),
        (lambda: Mix("a", snr_db=1, beta=1.0), "Mix has 2 of snr_db, weight and beta"),
        (lambda: Mix("a", weight=2.0), "weight is 2.0, must be within 0 to 1"),
        (lambda: Mix("a", weight=0.5, targets="sum"), "own rows only"),
        (lambda: Mix("a", weight=0.5, same_class="x"), "same_class is a column of the loader's own rows"),
        (lambda: Mix("", weight=0.5), "source is '' at position 0"),
        (lambda: Mix([], weight=0.5), "source is empty"),
        (lambda: Mix(beta=0.0), "beta is 0.0, must be 0.01 to 1000"),
        (lambda: Mix(weight=0.5, near=0), "near is 0, must be 1"),
        (lambda: Reverb(""), "source is '' at position 0"),
        (lambda: Reverb([]), "source is empty"),
        (lambda: apply([Reverb("a")], np.zeros(3, np.float32), RATE), "steps has a Reverb, which a Loader reads"),
        (lambda: apply([], np.zeros(3, np.float32), 0), "sample_rate is 0, must be 1 to 768000"),
        (lambda: apply([Gain(), SpecAugment()], np.zeros(3, np.float32), RATE), "SpecAugment changes features"),
        (lambda: apply([Mix(weight=0.5)], np.zeros(3, np.float32), RATE), "steps has a Mix, which a Loader reads"),
    ],
)  # fmt: skip
def test_wrong_values(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gain("loud"), "db is"),  # type: ignore[arg-type]
        (lambda: Gain((1, 2, 3)), "must be a number or a pair"),  # type: ignore[arg-type]
        (lambda: Gain(True), "db is True"),
        (lambda: Mix(3, weight=0.5), "source is 3"),
        (lambda: OneOf(Gain()), "steps is Gain"),  # type: ignore[arg-type]
        (lambda: OneOf([Gain]), r"step 0 of steps is .*; make an object of the class: Gain\(...\)"),  # type: ignore[list-item]
        (lambda: OneOf([Gain()], weights="a"), "weights is 'a'"),  # type: ignore[arg-type]
        (lambda: OneOf([Gain()], weights=["a"]), "weights is 'a'"),  # type: ignore[list-item]
        (lambda: SpecAugment(warp=0.5), "warp is 0.5"),  # type: ignore[arg-type]
        (lambda: DropChunk(n=1.5), "n is 1.5"),  # type: ignore[arg-type]
        (lambda: DropChunk(n=(1, 2.5)), "n is 2.5"),  # type: ignore[arg-type]
        (lambda: DropChunk(n=(1, 2, 3)), "must be a whole number or a pair"),  # type: ignore[arg-type]
        (lambda: DropFreq(drop_freq_low=0.1), "use freq instead"),  # type: ignore[call-arg]
        (lambda: Mix(weight=0.5, same_class=3), "same_class is 3"),  # type: ignore[arg-type]
        (lambda: Speed("fast"), "factors is 'fast'"),  # type: ignore[arg-type]
        (lambda: Speed(True), "factors is True"),
        (lambda: apply([], np.zeros(9, np.float32), RATE, features=3), "features is 3"),  # type: ignore[arg-type]
        (lambda: Mix({"a": "b"}, weight=0.5), "source is"),
        (lambda: Reverb(None), "source is None .*, must be a path, a list of paths, or a forebay.Manifest"),
        (lambda: Reverb({"a": "b"}), "source is"),
        (lambda: apply([Gain()], np.zeros(3), RATE), "float64"),  # type: ignore[arg-type]
        (lambda: apply([Gain()], np.zeros(3, np.float32), "8 kHz"), "sample_rate is '8 kHz'"),  # type: ignore[arg-type]
        (lambda: apply([Gain()], np.zeros(3, np.float32), RATE, seed=1.5), "seed is 1.5"),  # type: ignore[arg-type]
        (lambda: apply([3], np.zeros(3, np.float32), RATE), "steps is"),  # type: ignore[list-item]
        (lambda: apply(Gain(), np.zeros(3, np.float32), RATE), "steps is"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"augment": [SpecAugment()]}, "augment has SpecAugment, which changes spectrograms"),
        ({"augment": [Gain()] * 65}, "augment has 65 steps, at most 64"),
        ({"augment": [OneOf([Gain()] * 40)] * 2}, "augment has 80 steps, at most 64"),
        ({"augment": [OneOf([Gain(), SpecAugment()])]}, "augment has SpecAugment, which changes spectrograms"),
        ({"outputs": ["gain_db"]}, r'outputs has "gain_db", and augment has no Gain\(\)'),
        ({"augment": [Gain()], "outputs": ["mix_index"]}, r"augment has no Mix\(\)"),
        ({"augment": [Gain()], "outputs": ["reverb_index"]}, r"augment has no Reverb\(\)"),
        ({"augment": [Mix(weight=0.5, targets="mix")]}, "cannot be mixed"),
        (
            {"augment": [Mix(weight=0.5, targets="sum")], "targets": targets.Text("one")},
            'target "label" is a Text, which cannot be mixed',
        ),
        (
            {"augment": [Mix(weight=0.5, targets="sum")], "label_column": "", "columns": ["one"]},
            "mixes targets, and the loader has none; give targets=",
        ),
        ({"augment": [Speed()], "crop": forebay.crops.Windows()}, "Speed, which changes the lengths"),
        (
            {
                "augment": [SpecAugment(fill="silence")],
                "features": features.LogMel(normalization=features.ZScore()),
            },
            "depend on the other frames",
        ),
    ],
)
def test_wrong_recipes(files: tuple[Path, list[Any]], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        forebay.Loader([files[0]], **{**SHARED, **given})


def test_numbers_of_numpy_and_names(files: tuple[Path, list[Any]]) -> None:
    """A part has the numbers of Python, which a state needs; `apply` takes the name of a preset."""
    n: Any = np.int64
    real: Any = np.float32
    step = Gain(real(0.5), p=np.float64(0.25))
    assert step == Gain(0.5, p=0.25)
    assert Speed(real(0.5)) == Speed((0.5,)) == Speed(0.5)
    assert repr(DropFreq(n=(n(0), n(2)))) == "DropFreq(n=(0, 2))"
    assert Gain(factor=np.array([0.5, 2.0])) == Gain(factor=(0.5, 2))  # type: ignore[arg-type]
    given: dict[str, Any] = {
        "crop": crops.Views(n(2)), "sampling": sampling.Weighted([1.0] * len(OWN), epoch_size=n(24)),
    }  # fmt: skip
    with forebay.Loader([files[0]], **{**SHARED, **given}, augment=[step]) as loader:
        json.dumps(loader.state_dict())
    for make in (
        lambda: sampling.Subset(n(5), seed=n(3)),
        lambda: sampling.AtMost(n(3), "label"),
        lambda: sampling.Where("label", minimum=n(1)),
        lambda: sampling.Balanced("label", power=n(-1)),
    ):
        with forebay.Loader([files[0]], **SHARED, sampling=make()) as loader:
            json.dumps(loader.state_dict())
    spectra = features.LogMel(
        sample_rate=n(RATE), n_fft=n(256), n_mels=n(20), compression=features.Ln(floor=real(1e-5))
    )
    with forebay.Loader([files[0]], **{**SHARED, "features": spectra}) as loader:
        json.dumps(loader.state_dict())
    with pytest.raises(ConfigError, match="maximum is inf, must be finite; leave it out"):
        sampling.Where("label", maximum=math.inf)
    with pytest.raises(TypeError, match="weights is"):
        sampling.Weighted({0: 1.0})  # type: ignore[arg-type]
    x = clip_of(1, 32_000)
    np.testing.assert_array_equal(apply([], x, 32_000, features="birdset"), features.preset("birdset")(x))
    with pytest.raises(ConfigError, match="features are for a sample rate of 32000, and sample_rate is 16000"):
        apply([], x, 16_000, features="birdset")


def test_the_column_of_a_source(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    own, samples = files
    table = pa.table({"sound": pa.array([{"bytes": wav(s[:, None], RATE), "path": None} for s in samples[:4]])})
    other = write(tmp_path / "other", table, "file")
    with pytest.raises(ConfigError, match="sound"):
        forebay.Loader([own], **SHARED, augment=[Mix(str(other), weight=0.5)])
    for step in (Mix(str(other), weight=0.5, audio_column="sound"), Reverb(str(other), audio_column="sound")):
        with forebay.Loader([own], **SHARED, augment=[step]) as loader:
            assert len(next(loader)["waveform"]) == 5
    with pytest.raises(ConfigError, match="audio_column is that of source, which is None"):
        Mix(snr_db=3.0, audio_column="sound")


def test_the_step_that_is_wrong_is_named(files: tuple[Path, list[Any]]) -> None:
    for wrong in (None, "gain", Gain):
        with pytest.raises(TypeError, match="step 1 of augment is"):
            forebay.Loader([files[0]], **SHARED, augment=[Gain(), wrong])  # type: ignore[list-item]
    for make in (lambda: Filter("lowpass", 500, n=None), lambda: Mix(snr_db=1.0, most=None)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"n is None|most is None"):
            make()


def test_a_missing_background(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the source of Mix: cannot open: .*gone"):
        forebay.Loader([files[0]], **SHARED, augment=[Mix(str(tmp_path / "gone"), weight=0.5)])
    texts = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["one", "two"]}), texts)
    with pytest.raises(ConfigError, match=rf'^{texts}: the source of Reverb: there is no column "audio"'):
        forebay.Loader([files[0]], **SHARED, augment=[Reverb(str(texts))])
    for step in (Mix(str(tmp_path / "gone.wav"), weight=0.5), Reverb([str(tmp_path / "gone.flac")])):
        with pytest.raises(FileNotFoundError, match="gone"):
            forebay.Loader([files[0]], **SHARED, augment=[step])
    with pytest.raises(TypeError, match="augment is"):
        forebay.Loader([files[0]], **SHARED, augment="gain")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="augment is"):
        forebay.Loader([files[0]], **SHARED, augment=[Gain(), "gain"])  # type: ignore[list-item]


def test_a_state_knows_the_steps(files: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, _ = files
    one, other = (shard(tmp_path / name, recordings([n], 1)) for n, name in ((2000, "one"), (2001, "other")))
    steps: list[Any] = [Gain(), Mix(str(one), weight=0.5)]
    given = {**SHARED, "infinite": True}
    with forebay.Loader([path], **given, augment=steps) as loader:
        next(loader)
        state = loader.state_dict()
        expected = next(loader)["waveform"]
    # The same recordings under another name are the same.
    moved = tmp_path / "moved"
    moved.write_bytes(one.read_bytes())
    with forebay.Loader([path], **given, augment=[Gain(), Mix(moved, weight=0.5)]) as loader:
        loader.load_state_dict(state)
        np.testing.assert_array_equal(next(loader)["waveform"], expected)
    for changed in ([Gain(), Mix(other, weight=0.5)], [Gain(1), steps[1]], steps[::-1], [*steps, Reverb(one)], True):
        with (
            forebay.Loader([path], **given, augment=changed) as loader,
            pytest.raises(StateError, match="augment"),
        ):
            loader.load_state_dict(state)


def test_the_oracle_filters_as_it_says() -> None:
    """-3 dB at the edge of a Butterworth filter, and the gain of a peak at its middle."""
    for shape, expected in {"lowpass": -3.01, "highpass": -3.01, "bandpass": 0.0, "peak": 7.0}.items():
        b, a = biquad(shape, 1000, 2**-0.5, 7.0, RATE)
        z = np.exp(-2j * np.pi * 1000 / RATE * np.arange(3))
        assert 20 * math.log10(abs(np.dot(b, z) / np.dot(a, z))) == pytest.approx(expected, abs=0.01)
    assert augment.__all__ == sorted(augment.__all__, key=lambda name: (name[0].islower(), name))
