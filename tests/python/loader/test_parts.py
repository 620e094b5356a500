"""`Mix(parts=True)` and `Reverb(clean=)`: waveforms beside the mixture."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import conformance
import forebay
from conformance import spawned
from forebay import ConfigError, batching, crops, features
from forebay.augment import (
    Clip,
    Dither,
    DropChunk,
    DropFreq,
    Filter,
    Gain,
    Level,
    Mix,
    Mixup,
    Noise,
    OneOf,
    Only,
    Polarity,
    Python,
    Reverb,
    Roll,
    SpecAugment,
    Speed,
    SwapChannels,
)
from windows import wav

RATE = 8000
WAVEFORM = features.Waveform(sample_rate=RATE)
LENGTHS = [1600, 900, 2400, 1300, 700, 2000, 1100, 1700]
GIVEN: dict[str, Any] = {
    "features": WAVEFORM, "clip_seconds": 0.15, "batch_size": 4, "n_workers": 2, "seed": 3, "infinite": False,
    "order": "global", "shuffle_min_size": 0,
}  # fmt: skip
EARLY = 400  # samples in 50 ms


def table(folder: Path, lengths: list[int], seed: int, peak: int = 6000) -> Path:
    folder.mkdir()
    path = folder / "rows.jsonl"
    with path.open("w") as lines:
        for row, n in enumerate(lengths):
            samples = np.random.default_rng([seed, row]).integers(-peak, peak, n)
            (folder / f"{row}.wav").write_bytes(wav(samples, RATE))
            lines.write(json.dumps({"path": f"{row}.wav", "label": row, "index_in_table": row}) + "\n")
    return path


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("speech") / "own", LENGTHS, 1)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("noise") / "noise", [3000, 500], 2)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A direct sound after 30 samples, a reflection after 25 ms, and another one after 100 ms."""
    folder = tmp_path_factory.mktemp("room")
    response = np.zeros(1200, int)
    response[[30, 230, 830]] = [20_000, 12_000, -9000]
    (folder / "room.wav").write_bytes(wav(response, RATE))
    return folder


def batches(files: Any, steps: list[Any], **given: Any) -> list[dict[str, Any]]:
    return list(forebay.Loader(files, augment=steps, **{**GIVEN, **given}))


def assert_sum(mixture: np.ndarray, parts: np.ndarray) -> None:
    """The parts add up to the mixture, to a unit in the last place."""
    np.testing.assert_array_max_ulp(mixture, parts.sum(1, dtype=np.float32), 1)


def test_the_parts_are_the_clip_and_the_noise_as_it_was_added(speech: Path, noise: Path) -> None:
    plain = batches(speech, [])
    alone = batches(speech, [Mix(noise, snr_db=(0, 10), p=0.7)], outputs=["mix_snr_db"])
    found = batches(speech, [Mix(noise, snr_db=(0, 10), p=0.7, parts=True)], outputs=["mix_snr_db"])
    seen = 0
    for clean, mixed, parted in zip(plain, alone, found, strict=True):
        assert parted["parts"].shape == (4, 2, 1200)
        np.testing.assert_array_equal(parted["waveform"], mixed["waveform"])
        np.testing.assert_array_equal(parted["parts"][:, 0], clean["waveform"])
        assert_sum(parted["waveform"], parted["parts"])
        for snr, (clip, added), n in zip(
            parted["mix_snr_db"], parted["parts"].astype(float), np.minimum(np.array(LENGTHS), 1200)[clean["index"]],
            strict=True,
        ):  # fmt: skip
            if np.isnan(snr):
                assert not added.any()
                continue
            ratio = 20 * np.log10(np.sqrt((clip[:n] ** 2).mean()) / np.sqrt((added**2).mean()))
            assert abs(ratio - snr) < 1e-4
            seen += 1
    assert 0 < seen < len(LENGTHS)


def test_several_steps_have_places_of_their_own(speech: Path, noise: Path) -> None:
    steps = [Mix(snr_db=0.0, parts=True, p=0.6), Mix(noise, weight=(0.2, 0.5), most=3, parts=True, p=0.8)]
    counts = set()
    for batch in batches(speech, steps, outputs=["mix_index"]):
        parts = batch["parts"]
        assert parts.shape == (4, 5, 1200)
        assert_sum(batch["waveform"], parts)
        heard = parts.any(-1)
        assert heard[:, 0].all()
        np.testing.assert_array_equal(heard[:, 1], batch["mix_index"] >= 0)
        # The partners of a step are one after the other.
        assert (heard[:, 2] >= heard[:, 3]).all()
        assert (heard[:, 3] >= heard[:, 4]).all()
        counts |= set(heard[:, 1:].sum(1).tolist())
    assert len(counts) > 2


def test_a_silent_partner_leaves_no_gap(speech: Path, tmp_path: Path) -> None:
    source = table(tmp_path / "some", [2000] * 6, 4)
    for row in range(3):
        (tmp_path / "some" / f"{row}.wav").write_bytes(wav(np.zeros(2000, int), RATE))
    steps = [Mix(source, snr_db=(0, 9), most=3, parts=True)]
    counts = set()
    with forebay.Loader(speech, augment=steps, outputs=["mix_index"], **GIVEN | {"infinite": True}) as loader:
        for batch in itertools.islice(loader, 30):
            heard = np.any(batch["parts"], axis=-1)
            counts |= set(heard[:, 1:].sum(1).tolist())
            assert (heard[:, 1] >= heard[:, 2]).all()
            assert (heard[:, 2] >= heard[:, 3]).all()
            # The outputs tell of the first one that was added.
            np.testing.assert_array_equal(heard[:, 1], batch["mix_index"] >= 3)
    assert counts == {0, 1, 2, 3}


LINEAR: dict[str, Any] = {
    "Gain": Gain((-20, 6)), "factor": Gain(factor=(0.1, 2.0)), "Level": Level((-40, -20)),
    "lufs": Level((-30, -20), measure="lufs"), "Polarity": Polarity(), "Roll": Roll(), "zeros": Roll(fill="zeros"),
    "Filter": Filter("peak", (200, 3000), n=3), "DropFreq": DropFreq(), "DropChunk": DropChunk(),
    "SwapChannels": SwapChannels(p=1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_later_steps_change_the_parts_as_the_mixture(speech: Path, noise: Path, name: str) -> None:
    mixing = [Speed(), Mix(noise, snr_db=5.0, parts=True)]
    stereo = {"features": features.Waveform(sample_rate=RATE, channels="all", n_channels=1)}
    alone = batches(speech, [Speed(), Mix(noise, snr_db=5.0), LINEAR[name]], **stereo)
    before, after = batches(speech, mixing, **stereo), batches(speech, [*mixing, LINEAR[name]], **stereo)
    for mixed, one, other in zip(alone, before, after, strict=True):
        assert_sum(other["waveform"], other["parts"])
        np.testing.assert_allclose(other["waveform"], mixed["waveform"], rtol=0, atol=2e-6)
        if name not in {"Polarity", "SwapChannels"}:
            assert (one["parts"] != other["parts"]).any((2, 3)).all()
        if name in {"Gain", "factor", "Level", "lufs"}:
            ratio = np.linalg.norm(other["parts"], axis=(2, 3)) / np.linalg.norm(one["parts"], axis=(2, 3))
            np.testing.assert_allclose(ratio[:, 0], ratio[:, 1], rtol=1e-5)


def test_a_room_is_that_of_all_parts(speech: Path, noise: Path, room: Path) -> None:
    for batch in batches(speech, [Mix(noise, snr_db=0.0, parts=True), Reverb(room), Gain(-3.0)]):
        assert_sum(batch["waveform"], batch["parts"])
    dry = batches(speech, [Mix(noise, snr_db=0.0, parts=True)])
    wet = batches(speech, [Mix(noise, snr_db=0.0, parts=True), Reverb(room)])
    for one, other in zip(dry, wet, strict=True):
        for before, after in zip(one["parts"], other["parts"], strict=True):
            made = [convolved(part, 1200) for part in before.astype(float)]
            gain = np.linalg.norm(after[0]) / np.linalg.norm(made[0])
            np.testing.assert_allclose(after, gain * np.array(made), rtol=0, atol=1e-5)


def test_a_limit_is_that_of_the_mixture_alone(speech: Path, noise: Path) -> None:
    whole = batches(speech, [Mix(noise, snr_db=0.0, parts=True)])
    limited = batches(speech, [Mix(noise, snr_db=0.0, parts=True), Clip(-12.0)])
    scaled = batches(speech, [Mix(noise, snr_db=0.0, parts=True), Clip(-12.0), Gain(factor=0.5)])
    for one, other, half in zip(whole, limited, scaled, strict=True):
        np.testing.assert_array_equal(one["parts"], other["parts"])
        most = np.float32(10 ** (-12 / 20)) * np.abs(one["waveform"]).max(1, keepdims=True)
        np.testing.assert_allclose(other["waveform"], one["waveform"].clip(-most, most), rtol=1e-6)
        np.testing.assert_array_equal(half["waveform"], other["waveform"] * np.float32(0.5))
        np.testing.assert_array_equal(half["parts"], other["parts"] * np.float32(0.5))


def convolved(clip: np.ndarray, until: int) -> np.ndarray:
    """The clip with the reflections of `room` within so many samples."""
    made = clip.astype(float)
    for delay, factor in ((200, 0.6), (800, -0.45)):
        if delay < until:
            made[delay:] += factor * clip[:-delay]
    return made


def test_the_target_is_dry_or_has_the_early_reflections(speech: Path, room: Path) -> None:
    for clean in ("dry", "early"):
        plain = batches(speech, [Gain((-6, 6))])
        alone = batches(speech, [Reverb(room, p=0.6), Gain((-6, 6))], outputs=["reverb_index"])
        found = batches(speech, [Reverb(room, clean=clean, p=0.6), Gain((-6, 6))], outputs=["reverb_index"])
        rooms = set()
        for dry, wet, both in zip(plain, alone, found, strict=True):
            np.testing.assert_array_equal(both["waveform"], wet["waveform"])
            for row, number in enumerate(both["reverb_index"]):
                rooms.add(int(number))
                clip, target = dry["waveform"][row], both["clean"][row]
                if clean == "dry" or number < 0:
                    np.testing.assert_array_equal(target, clip)
                    continue
                all_of_it = convolved(clip, 1200)
                gain = np.linalg.norm(both["waveform"][row]) / np.linalg.norm(all_of_it)
                np.testing.assert_allclose(target, gain * convolved(clip, EARLY), rtol=0, atol=1e-5)
                # What is left is late: nothing of it before the reflection that is later than 50 ms.
                assert np.abs(both["waveform"][row] - target)[:800].max() < 1e-5
        assert rooms == {-1, 0}


def test_the_target_has_no_noise(speech: Path, noise: Path, room: Path) -> None:
    steps = [Reverb(room, clean="dry"), Gain(-3.0)]
    noisy = [
        Reverb(room, clean="dry"), Noise(snr_db=0.0), Mix(noise, snr_db=0.0), Dither(0.01), Gain(-3.0), Clip(-20.0),
    ]  # fmt: skip
    for one, other in zip(batches(speech, steps), batches(speech, noisy), strict=True):
        np.testing.assert_array_equal(one["clean"], other["clean"])
        assert (one["waveform"] != other["waveform"]).any(1).all()
    # A weight takes its share of the clip, and so of the target.
    weighted = batches(speech, [steps[0], Mix(noise, weight=0.25), steps[1]])
    for one, other in zip(batches(speech, steps), weighted, strict=True):
        np.testing.assert_allclose(other["clean"], 0.75 * one["clean"], rtol=1e-6)


def test_a_target_beside_parts(speech: Path, noise: Path, room: Path) -> None:
    steps = [Reverb(room, clean="early"), Mix(noise, snr_db=0.0, parts=True)]
    alone = batches(speech, [Reverb(room, clean="early")])
    for one, both in zip(alone, batches(speech, steps), strict=True):
        np.testing.assert_array_equal(both["clean"], one["clean"])
        np.testing.assert_array_equal(both["parts"][:, 0], one["waveform"])
        assert_sum(both["waveform"], both["parts"])


def test_features_are_made_of_each(speech: Path, noise: Path, room: Path) -> None:
    made = features.LogMel(sample_rate=RATE, n_mels=8, n_fft=64, hop_length=32)
    steps = [Reverb(room, clean="dry"), Mix(noise, snr_db=0.0, parts=True, p=0.6)]
    for one, other in zip(batches(speech, steps), batches(speech, steps, features=made), strict=True):
        assert other["parts"].shape == (4, 2, *other["spectrogram"].shape[1:])
        for row in range(4):
            for name, place in (("clean", ()), ("parts", (0,)), ("parts", (1,))):
                want = made(one[name][(row, *place)])
                np.testing.assert_array_equal(other[name][(row, *place)], want)
    masked = [*steps, SpecAugment(freq=4, time=10, fill=-3.0)]
    for batch in batches(speech, masked, features=made):
        np.testing.assert_array_equal(batch["clean"] == -3, batch["spectrogram"] == -3)


def test_samples_of_16_bits(speech: Path, noise: Path) -> None:
    made = features.Waveform(sample_rate=RATE, dtype="int16")
    steps = [Mix(noise, snr_db=0.0, parts=True), Gain(-3.0)]
    for one, other in zip(batches(speech, steps), batches(speech, steps, features=made), strict=True):
        assert other["parts"].dtype == other["waveform"].dtype == np.int16
        np.testing.assert_allclose(other["parts"] / 32768, one["parts"], rtol=0, atol=0.5001 / 32768)
        # Each is rounded.
        assert np.abs(other["parts"].sum(1, dtype=int) - other["waveform"]).max() <= 1


@pytest.mark.parametrize("form", ["padded", "buckets", "packed", "views"])
def test_batches_of_other_forms(speech: Path, noise: Path, room: Path, form: str) -> None:
    steps = [Reverb(room, clean="early"), Mix(noise, snr_db=0.0, most=2, parts=True)]
    given: dict[str, Any] = {"crop": crops.Views(3) if form == "views" else crops.Whole()}
    if form != "views":
        given |= {"clip_seconds": 5.0}
    if form in {"buckets", "packed"}:
        buckets = batching.Buckets(1.0, num_buckets=2, packed=form == "packed")
        given |= {"batching": buckets, "batch_size": 64, "n_streams": 1}
    rows = []
    for batch in batches(speech, steps, **given):
        mixture, parts, clean = batch["waveform"], batch["parts"], batch["clean"]
        rows += batch["index"].tolist()
        assert clean.shape == mixture.shape
        assert clean.any(-1).all()
        if form == "packed":
            assert parts.shape == (3, len(mixture))
            assert_sum(mixture[None], parts[None])
        elif form == "views":
            assert parts.shape == (4, 3, 3, 1200)
            assert_sum(mixture.reshape(12, -1), parts.reshape(12, 3, -1))
        else:
            assert parts.shape == (len(mixture), 3, mixture.shape[1])
            assert_sum(mixture, parts)
            for part, n in zip(parts, batch["valid_samples"], strict=True):
                assert not part[:, n:].any()
    assert sorted(rows) == list(range(len(LENGTHS)))


def test_one_of_several_leaves_the_places_of_the_others(speech: Path, noise: Path, room: Path) -> None:
    steps = [OneOf([Mix(noise, snr_db=0.0, parts=True), Mix(snr_db=3.0, parts=True)], p=0.9), Reverb(room, clean="dry")]
    seen = set()
    for batch in batches(speech, steps):
        assert_sum(batch["waveform"], batch["parts"])
        seen |= {tuple(one) for one in batch["parts"].any(-1).tolist()}
    assert (True, True, True) not in seen
    assert len(seen) > 1


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with spawned() as found:
        yield found


def test_what_is_promised_of_loaders(tmp_path: Path, noise: Path, room: Path, processes: ProcessPoolExecutor) -> None:
    own = table(tmp_path / "own", [600 + 40 * n for n in range(40)], 5)
    for row in (7, 20):
        (tmp_path / "own" / f"{row}.wav").write_bytes(b"no recording")
    given: dict[str, Any] = {
        "features": WAVEFORM, "clip_seconds": 0.05, "batch_size": 8, "order": "global", "infinite": True,
        "n_workers": 2, "shuffle_buffer_size": 40, "shuffle_min_size": 20,
        "augment": [
            Reverb(room, clean="early", p=0.5), Mix(snr_db=(0, 5), parts=True, p=0.8),
            Mix(noise, snr_db=(0, 5), most=2, parts=True), Gain((-6, 0)),
        ],
    }  # fmt: skip
    case = conformance.Case(own, given, processes, tmp_path)
    for check in (conformance.workers, conformance.ranks, conformance.resume, conformance.replay_and_plan,
                  conformance.pickling, conformance.spawn, conformance.bad_records, conformance.budget):  # fmt: skip
        check(case)


def double(clip: np.ndarray, _seed: int) -> np.ndarray:
    return 2 * clip


@pytest.mark.parametrize(("steps", "told"), [
    ([Mix(snr_db=0, parts=True), Mix(snr_db=0)], "a Mix with parts=True and one without"),
    ([Mix(snr_db=0, parts=True), Noise()], "has Noise after Mix.parts=True., which adds a sound that is none"),
    ([Mix(snr_db=0, parts=True), Dither()], "has Dither after Mix"),
    ([Mix(snr_db=0, parts=True), DropChunk(noise_factor=1.0)], "DropChunk with noise_factor"),
    ([Mix(snr_db=0, parts=True), Python(double)], "has Python.on=\"waveform\"., of which nothing says"),
    ([Mix(snr_db=0, parts=True), Mixup(0.4)], "has Mixup, which mixes rows of one waveform"),
    ([Mix(snr_db=0, parts=True, most=16)] * 4, "65 parts together, at most 64"),
    ([Reverb("a", clean="dry"), Python(double)], "each waveform of Reverb"),
    ([Reverb("a", clean="dry"), Reverb("a")], "several Reverb with different clean="),
])  # fmt: skip
def test_what_has_no_plain_answer_is_refused(speech: Path, steps: list[Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        batches(speech, steps)


@pytest.mark.parametrize("level", ["peak", "zscore"])
def test_levels_of_each_waveform_are_refused(speech: Path, level: Any) -> None:
    """The sum and the levels of the parts would be lost."""
    told = r"has Mix\(parts=True\), and normalize_waveform of the features would scale each of its waveforms"
    for of in (features.Waveform(sample_rate=8000, normalize_waveform=level),
               features.LogMel(sample_rate=8000, normalize_waveform=level)):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            forebay.Loader(speech, features=of, augment=[Mix(snr_db=0, parts=True)])


def test_names_of_audio_are_no_remedy(speech: Path) -> None:
    for steps, told in [
        ([Reverb("a", clean="dry"), Only("clean", [Gain((-6, 0))])], "put the steps into the list"),
        ([Reverb("a", clean="dry"), Level(-20, of="clean")], "leave of out: the level is that of the mixture"),
        ([Reverb("a", clean="dry"), DropChunk(noise_factor=1.0)], "leave noise_factor out$"),
    ]:
        with pytest.raises(ConfigError, match=told):
            batches(speech, steps)


def test_what_adds_sound_to_the_clip_itself_may_come_before(speech: Path, noise: Path) -> None:
    before = [Noise(snr_db=10.0), Dither(), DropChunk(noise_factor=1.0), Python(double), Clip(-3.0)]
    alone = batches(speech, before)
    for one, other in zip(alone, batches(speech, [*before, Mix(noise, snr_db=0.0, parts=True)]), strict=True):
        np.testing.assert_array_equal(other["parts"][:, 0], one["waveform"])
        assert_sum(other["waveform"], other["parts"])


def test_wrong_values(speech: Path) -> None:
    with pytest.raises(ConfigError, match='clean is "wet", must be one of "dry", "early"'):
        Reverb("a", clean="wet")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"parts is 1 \(type int\), must be a bool"):
        Mix(snr_db=0, parts=1)  # type: ignore[arg-type]
    several = {"audio": {"noisy": "path", "clean": "path"}}
    with pytest.raises(ConfigError, match=r"has Mix\(parts=True\), which gives a row of one recording further"):
        batches(speech, [Only("noisy", [Mix(snr_db=0, parts=True)])], **several)
    with pytest.raises(ConfigError, match='two fields of a batch are named "parts"'):
        batches(speech, [Mix(snr_db=0, parts=True)], targets={"parts": forebay.targets.Number("label")})


def test_before_there_were_parts_a_recipe_was_the_same() -> None:
    assert "parts" not in Mix("a", snr_db=0).to_dict()
    assert "clean" not in Reverb("a").to_dict()
    for step in (Mix("a", snr_db=0, parts=True), Reverb("a", clean="early")):
        assert type(step).from_dict(step.to_dict()) == step
    assert repr(Mix("a", snr_db=0, parts=True)) == "Mix(source='a', snr_db=0, parts=True)"
