"""`Level`, `SwapChannels` and loudness in LUFS: beside pyloudnorm, numpy, and the waveforms of a row."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import forebay
from augmenting import Draws, bits_of, ratio, rms, wav
from forebay import ConfigError, augment, crops, features
from forebay.augment import Gain, Level, Mix, Noise, Only, SwapChannels, apply
from paths import DATA

RATE = 16_000
CASES = json.loads((DATA / "loudness" / "loudness.json").read_text())

Array = np.ndarray[Any, Any]


def clip_of(case: dict[str, Any]) -> Array:
    """`[channels, n]`."""
    samples, rate = soundfile.read(DATA / "recordings" / case["name"], dtype="float32", always_2d=True)
    assert rate == case["rate"]
    n = case["n"]
    clip = samples[case["start"] : case["start"] + n, :2].T * np.float32(case["gain"])
    clip[:, round((1 - case["silent"]) * n) :] = 0
    return np.ascontiguousarray(clip)


def loudness(clip: Array, rate: int) -> float:
    """LUFS, by the gain to -23; infinite if there is none."""
    found = apply([Level(-23.0, measure="lufs")], clip, rate).astype(np.float64)
    gain = np.sum(found * clip) / np.sum(np.square(clip, dtype=np.float64))
    return float("-inf") if np.array_equal(found, clip) else -23 - 20 * np.log10(gain)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']} {case['start']}")
def test_loudness_is_that_of_pyloudnorm(case: dict[str, Any]) -> None:
    found = loudness(clip_of(case), case["rate"])
    assert found == pytest.approx(case["lufs"], abs=1e-4)
    assert found == pytest.approx(case["default"], abs=0.15)


def test_loudness_beside_pyloudnorm() -> None:
    """Of noise in steps of level, which the gates leave out or not."""
    pyloudnorm = pytest.importorskip("pyloudnorm")
    rng = np.random.default_rng(4)
    for rate in (8000, 11_025, 44_100, 48_000):
        for _ in range(10):
            n = int(rng.integers(4, 60))
            levels = np.repeat(10 ** rng.uniform(-4.5, -0.3, n), rate // 10)
            x = (rng.normal(0, 0.3, (2, len(levels))) * levels).astype(np.float32)
            x = x[:, : x.shape[1] // rate * rate] if rate % 10 else x
            if x.shape[1] < rate // 2:
                continue
            expected = pyloudnorm.Meter(rate, filter_class="DeMan").integrated_loudness(x.T.astype(np.float64))
            assert loudness(x, rate) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_levels_of_one_waveform(seed: int) -> None:
    x = np.random.default_rng(seed).normal(0, 0.1, (2, RATE)).astype(np.float32)
    x[:, RATE // 2 :] *= 1e-3
    wanted = Draws(seed, "Level").within(-35, -15)
    found = apply([Level((-35, -15))], x, RATE, seed=seed)
    assert 20 * np.log10(rms(found)) == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_allclose(found / x, (found / x)[0, 0], rtol=1e-5)
    # The quiet half does not count.
    active = apply([Level((-35, -15), measure="active")], x, RATE, seed=seed)
    assert 20 * np.log10(rms(active[:, : RATE // 2])) == pytest.approx(wanted, abs=0.02)
    # No sample exceeds the peak.
    limited = apply([Level(0.0, peak=0.5)], x, RATE, seed=seed)
    assert np.abs(limited).max() == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_array_equal(apply([Level(-40, peak=0.5)], x, RATE), apply([Level(-40)], x, RATE))
    assert np.array_equal(apply([Level(-20, p=0.0)], x, RATE), x)


@pytest.mark.parametrize("measure", ["rms", "active", "clip", "lufs"])
def test_silence_stays(measure: Any) -> None:
    for n in (0, 1, 100, RATE):
        x = np.zeros((2, n), np.float32)
        assert not apply([Level(-20, measure=measure)], x, RATE).any()
    quiet = np.full(RATE, 1e-7, np.float32)
    assert np.array_equal(apply([Level(-20, measure="lufs")], quiet, RATE), quiet)


def test_noise_by_loudness() -> None:
    """Both are measured in LUFS; so white noise, which is heard well, is less than by its square."""
    time = np.arange(2 * RATE) / RATE
    for channels in (1, 2):
        x = np.tile((0.1 * np.sin(2 * np.pi * 100 * time)).astype(np.float32), (channels, 1))
        noise = apply([Noise(10, level="lufs")], x, RATE, seed=3) - x
        assert loudness(x, RATE) - loudness(noise, RATE) == pytest.approx(10, abs=0.05)
        by_squares = apply([Noise(10)], x, RATE, seed=3) - x
        assert loudness(x, RATE) - loudness(by_squares, RATE) < 9


def test_channels_are_exchanged() -> None:
    x = np.random.default_rng(1).normal(size=(3, 50)).astype(np.float32)
    swapped = 0
    for seed in range(40):
        found = apply([SwapChannels()], x[:2], RATE, seed=seed)
        is_swapped = Draws(seed, "SwapChannels").first < 0.5
        np.testing.assert_array_equal(found, x[1::-1] if is_swapped else x[:2])
        swapped += is_swapped
        for other in (x, x[0], x[:0]):
            np.testing.assert_array_equal(apply([SwapChannels(p=1)], other, RATE, seed=seed), other)
    assert 10 < swapped < 30


N_ROWS = 8


@pytest.fixture(scope="module")
def stems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stereo sources, and a table of them."""
    folder = tmp_path_factory.mktemp("stems")
    rows = []
    for row in range(N_ROWS):
        for name, level in (("a", 0.05), ("b", 0.2)):
            samples = np.random.default_rng([row, ord(name)]).normal(0, level, (RATE // 4, 2)) * [1, 0.5]
            (folder / f"{row}-{name}.wav").write_bytes(wav(samples, RATE))
        rows.append({"a": f"{row}-a.wav", "b": f"{row}-b.wav", "label": row})
    table = folder / "stems.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


def batch_of(table: Path, steps: list[Any], *, channels: int = 2, **given: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {"channels": "all", "n_channels": 2} if channels == 2 else {}
    with forebay.Loader(
        table,
        audio=given.pop("audio", {"a": "a", "b": "b"}),
        features=features.Waveform(sample_rate=RATE, **kept),
        clip_seconds=0.2,
        crop=crops.Start(),
        augment=steps,
        batch_size=N_ROWS,
        infinite=False,
        order="sequential",
        shuffle_min_size=0,
        seed=7,
        **given,
    ) as loader:
        return dict(next(loader))


def test_one_gain_for_the_waveforms_of_a_row(stems: Path) -> None:
    plain = batch_of(stems, [])
    found = batch_of(stems, [Level((-30, -20), of="b")], outputs=["level_db"])
    alone = batch_of(stems, [Only("a", [Level((-30, -20))])])
    together = batch_of(stems, [Level((-30, -20))])
    for row in range(N_ROWS):
        wanted = Draws(bits_of(7, row), "Level").within(-30, -20)
        assert found["level_db"][row] == wanted
        assert 20 * np.log10(rms(found["b"][row])) == pytest.approx(wanted, abs=1e-4)
        gain = ratio(wanted) / rms(plain["b"][row])
        np.testing.assert_allclose(found["a"][row], plain["a"][row] * gain, rtol=1e-5)
        assert 20 * np.log10(rms(alone["a"][row])) == pytest.approx(wanted, abs=1e-4)
        both = np.concatenate([together["a"][row], together["b"][row]])
        assert 20 * np.log10(rms(both)) == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_array_equal(alone["b"], plain["b"])


def test_channels_of_each_waveform_are_exchanged(stems: Path) -> None:
    """And never waveforms of one another, also not those of one channel."""
    plain = batch_of(stems, [])
    found = batch_of(stems, [SwapChannels(p=1)])
    for name in ("a", "b"):
        np.testing.assert_array_equal(found[name], plain[name][:, ::-1])
    only = batch_of(stems, [Only("b", [SwapChannels(p=1)])])
    np.testing.assert_array_equal(only["a"], plain["a"])
    np.testing.assert_array_equal(only["b"], plain["b"][:, ::-1])
    stacked = batch_of(stems, [SwapChannels(p=1)], audio={"x": ["a", "b"]})
    np.testing.assert_array_equal(stacked["x"], np.stack([found["a"], found["b"]], 1))
    mono = [batch_of(stems, steps, channels=1, audio={"x": ["a", "b"]}) for steps in ([], [SwapChannels(p=1)])]
    np.testing.assert_array_equal(mono[0]["x"], mono[1]["x"])


def test_a_partner_by_loudness(stems: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(8).normal(0, 0.3, (RATE, 2)).cumsum(0) / 30
    (tmp_path / "noise.wav").write_bytes(wav(noise - noise.mean(0), RATE))
    steps = [Only("a", [Mix(str(tmp_path / "noise.wav"), snr_db=(0, 10), level="lufs")])]
    plain, found = batch_of(stems, []), batch_of(stems, steps, outputs=["mix_snr_db"])
    for row in range(N_ROWS):
        added = found["a"][row] - plain["a"][row]
        reached = loudness(plain["a"][row], RATE) - loudness(added, RATE)
        assert reached == pytest.approx(found["mix_snr_db"][row], abs=0.01)


def test_wrong_levels_are_told(stems: Path) -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: Level(-300), "db is -300"),
        (lambda: Level((-15, -35)), "must be .low, high., as in"),
        (lambda: Level(-20, peak=0.0), "peak is 0.0, must be within 0.0001 to 10000"),
        (lambda: Level(-20, peak=float("nan")), "peak is NaN, must be within"),
        (lambda: Level(-20, measure="loud"), 'measure is "loud", must be one of "rms", "active", "clip", "lufs"'),  # type: ignore[arg-type]
        (lambda: Only("a", [Level(-20, of="b")]), 'steps has a Level of "b", must be without of'),
        (lambda: apply([Level(-20, of="b")], np.ones(10, np.float32), RATE), "Level.of='b'.*leave of out"),
        (lambda: batch_of(stems, [Level(-20, of="c")]), r'Level\(of="c"\), must be a name of audio: \["a", "b"\]'),
        (lambda: batch_of(stems, [Level(-20, of="a")], audio=None), "audio= names no waveforms"),
    ]
    for make, message in wrong:
        with pytest.raises(ConfigError, match=message):
            make()
    with pytest.raises(TypeError, match="of is 3"):
        Level(-20, of=3)  # type: ignore[arg-type]


def test_levels_print_and_convert() -> None:
    for step in (
        Level(-20),
        Level((-35, -15), of="noisy", peak=0.99, p=0.5),
        Level(-23, measure="lufs"),
        SwapChannels(),
    ):
        assert type(step).from_dict(json.loads(json.dumps(step.to_dict()))) == step
        assert eval(repr(step), vars(augment)) == step
    assert repr(Level((-35, -15), of="noisy")) == "Level(db=(-35.0, -15.0), of='noisy')"
    # The draws of other steps stay as they were.
    x = np.random.default_rng(1).normal(0, 0.1, 1000).astype(np.float32)
    both = apply([Level(-20), Gain((-6, 6))], x, RATE, seed=5)
    np.testing.assert_allclose(both, apply([Level(-20)], x, RATE) * ratio(Draws(5, "Gain").within(-6, 6)), rtol=1e-5)
