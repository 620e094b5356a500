"""`crops.Whole`: each recording as a whole, padded to the longest of its batch."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from augmenting import Draws, bits_of, warped
from forebay import AudioDataset, ConfigError, augment, crops, features
from utterances import RATE, samples_of, write_utterances

SECONDS = [1.0, 0.4, 0.75, 2.5, 0.1, 1.3, 0.6, 0.2, 1.9, 0.33]
GIVEN: dict[str, Any] = {"infinite": False, "shuffle_min_size": 0, "batch_size": 4, "n_workers": 2, "augment": False}
WAVEFORM = features.Waveform(sample_rate=RATE)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_utterances(tmp_path_factory.mktemp("utterances"), SECONDS)


def whole(table: Path, crop: Any = crops.Whole(), **given: Any) -> list[dict[str, Any]]:  # noqa: B008 (frozen)
    return list(forebay.Loader(table, **{**GIVEN, "crop": crop, **given}))


def test_waveforms_are_padded_with_zeros_to_the_longest(table: Path) -> None:
    batches = whole(table, features=WAVEFORM)
    assert [len(batch["index"]) for batch in batches] == [4, 4, 2]
    for batch in batches:
        lengths = [round(SECONDS[row] * RATE) for row in batch["index"]]
        assert batch["valid_samples"].tolist() == lengths
        assert batch["waveform"].shape == (len(lengths), max(lengths))
        assert batch["waveform"].flags.c_contiguous
        for row, waveform, n in zip(batch["index"], batch["waveform"], lengths, strict=True):
            np.testing.assert_array_equal(waveform[:n], samples_of(row, SECONDS[row]))
            assert not waveform[n:].any()


def presets() -> list[str]:
    return [name for name in features.presets() if features.preset(name).sample_rate == RATE]


@pytest.mark.parametrize("name", [*presets(), "log_mel", "log_mel_time"])
def test_features_are_those_of_the_recording_alone(table: Path, name: str) -> None:
    made: Any = (
        features.LogMel(
            sample_rate=RATE, n_mels=40, n_fft=400, hop_length=160, layout="time" if "time" in name else "mel"
        )
        if name.startswith("log_mel")
        else features.preset(name)
    )
    for batch in whole(table, crops.Whole(min_seconds=0.15), features=made, batch_size=3):
        key = "waveform" if "waveform" in batch else "spectrogram"
        valid = batch["valid_samples" if key == "waveform" else "valid_frames"]
        for place, row in enumerate(batch["index"]):
            alone = np.asarray(made(samples_of(row, SECONDS[row])))
            got = np.asarray(batch[key][place])
            axis = next((at for at in range(alone.ndim) if alone.shape[at] != got.shape[at]), None)
            if axis is None:  # the longest, or features with a number of frames of their own
                np.testing.assert_array_equal(got, alone)
                continue
            assert alone.shape[axis] == valid[place]
            np.testing.assert_array_equal(got.take(range(valid[place]), axis), alone)
            behind = got.take(range(valid[place], got.shape[axis]), axis)
            # One value for each band, the same in all frames.
            assert (behind == behind.take([0], axis)).all()


def test_spectrograms_are_padded_with_silence_or_a_value(table: Path) -> None:
    log_mel = features.LogMel(sample_rate=RATE, n_mels=40, n_fft=400, hop_length=160)
    silence = log_mel(np.zeros(RATE, np.float32))[0, 0]
    for crop, expected in [(crops.Whole(), silence), (crops.Whole(pad_value=1.5), 1.5)]:
        for batch in whole(table, crop, features=log_mel):
            for row, n in zip(batch["spectrogram"], batch["valid_frames"], strict=True):
                assert (row[:, n:] == np.float32(expected)).all()


def test_rows_outside_the_limits_are_left_out(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "forebay"):
        loader = forebay.Loader(table, crop=crops.Whole(min_seconds=0.3, max_seconds=1.9), features=WAVEFORM, **GIVEN)
    assert loader.left_out == {"too_short": 2, "too_long": 1, "too_many_tokens": 0, "too_many_per_second": 0}
    assert "3 rows left out: 2 shorter than min_seconds=0.3, 1 longer than max_seconds=1.9" in caplog.text
    rows = [row for batch in loader for row in batch["index"]]
    assert rows == [row for row, seconds in enumerate(SECONDS) if 0.3 <= seconds <= 1.9]
    told = (
        rf"no row is left: 0 are shorter .* 10 longer than max_seconds=0\.05; the lengths are {min(SECONDS)} to 2\.5,"
    )
    with pytest.raises(ConfigError, match=told):
        whole(table, crops.Whole(max_seconds=0.05))


def test_long_recordings_are_cut_if_asked(table: Path) -> None:
    loader = forebay.Loader(table, crop=crops.Whole(max_seconds=1.0, on_long="cut"), features=WAVEFORM, **GIVEN)
    assert loader.left_out == {"too_short": 0, "too_long": 0, "too_many_tokens": 0, "too_many_per_second": 0}
    for batch in loader:
        for row, waveform, n in zip(batch["index"], batch["waveform"], batch["valid_samples"], strict=True):
            assert n == min(RATE, round(SECONDS[row] * RATE))
            np.testing.assert_array_equal(waveform[:n], samples_of(row, SECONDS[row])[:n])


def test_lengths_come_from_headers_if_no_table_says_them(table: Path, tmp_path: Path) -> None:
    unsaid = write_utterances(tmp_path, SECONDS, said=False)
    crop = crops.Whole(min_seconds=0.3)
    for one, other in zip(whole(table, crop), whole(unsaid, crop), strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_column_says_the_lengths(tmp_path: Path) -> None:
    """So files are not opened; what is no length is read from the recording, and one that is too long is bad."""
    table = write_utterances(tmp_path, SECONDS)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[2]["duration"], rows[5]["duration"], rows[7]["duration"], rows[8]["duration"] = 0, None, -3.0, 1.0
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    crop = crops.Whole(min_seconds=0.15, duration="duration")
    loader = forebay.Loader(table, crop=crop, features=WAVEFORM, **GIVEN)
    assert loader.left_out == {"too_short": 1, "too_long": 0, "too_many_tokens": 0, "too_many_per_second": 0}
    assert loader.stats()["files"]["opened"] == 3
    assert [row for batch in loader for row in batch["index"]] == [0, 1, 2, 3, 5, 6, 7, 9]
    (error,) = loader.errors()
    assert error["index"] == 8
    assert "longer than its row says" in error["reason"]
    with pytest.raises(ConfigError, match="no column"):
        whole(table, crops.Whole(duration="seconds"))
    with pytest.raises(ConfigError, match="has no number above 0"):
        whole(table, crops.Whole(duration="path"))


def test_the_usual_column_of_lengths(tmp_path: Path) -> None:
    """`duration` is used without being named: nothing is opened when the loader is made."""
    table = write_utterances(tmp_path, SECONDS)
    loader = forebay.Loader(table, **GIVEN, crop=crops.Whole(), features=WAVEFORM)
    assert loader.stats()["files"]["opened"] == 0
    named = [batch["waveform"].tobytes() for batch in whole(table, crops.Whole(duration="duration"), features=WAVEFORM)]
    assert [batch["waveform"].tobytes() for batch in loader] == named
    limited = forebay.Loader(table, **GIVEN, crop=crops.Whole(max_seconds=1.5))
    assert limited.left_out["too_long"] == sum(length > 1.5 for length in SECONDS)
    # Nothing that is a length: the recordings have it.
    lines = [json.loads(line) | {"duration": 0} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loader = forebay.Loader(table, **GIVEN, crop=crops.Whole(), features=WAVEFORM)
    assert [batch["waveform"].tobytes() for batch in loader] == named


def test_a_segment_is_as_long_as_it_is(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, [2.0, 3.0])
    lines = [json.loads(line) | {"start": 0.1, "end": 0.4, "all": 45.0} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crop in (crops.Whole(), crops.Whole(duration="all")):
        (batch,) = whole(table, crop, features=WAVEFORM)
        assert batch["valid_samples"].tolist() == [round(0.3 * RATE)] * 2


def test_a_bad_recording_is_told_in_its_turn(tmp_path: Path) -> None:
    table = write_utterances(tmp_path, SECONDS, said=False)
    (tmp_path / "3.wav").write_bytes(b"no recording")
    loader = forebay.Loader(table, crop=crops.Whole(), features=WAVEFORM, **GIVEN)
    rows = [row for batch in loader for row in batch["index"]]
    assert rows == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [error["index"] for error in loader.errors()] == [3]


def test_a_recording_too_short_for_a_frame_is_left_out_or_bad(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = write_utterances(tmp_path, [0.5, 0.002, 0.6])
    with caplog.at_level(logging.WARNING, "forebay"):
        loader = forebay.Loader(table, crop=crops.Whole(), features="icefall", **GIVEN)
    assert loader.left_out["too_short"] == 1
    assert "1 shorter than the 0.005 s of which the features make a frame" in caplog.text
    assert [row for batch in loader for row in batch["index"]] == [0, 2]
    # One that is shorter than its table says is known too late.
    lines = [json.loads(line) | {"duration": 0.6} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loader = forebay.Loader(table, crop=crops.Whole(), features="icefall", **GIVEN)
    assert [row for batch in loader for row in batch["index"]] == [0, 2]
    (error,) = loader.errors()
    assert error["kind"] == "too_short"
    assert "min_seconds" in error["reason"]


def test_threads_and_ranks_change_nothing(table: Path) -> None:
    steps = [
        augment.Speed((0.9, 1.0, 1.1)), augment.Gain(db=(-6, 6)), augment.Mix(None, snr_db=(5, 10), p=0.7),
        augment.SpecAugment(),
    ]  # fmt: skip
    given: dict[str, Any] = {
        "crop": crops.Whole(), "augment": steps, "infinite": True, "batch_size": 4, "order": "global",
        "features": features.LogMel(sample_rate=RATE, n_mels=16, n_fft=400, hop_length=160),
    }  # fmt: skip

    def first(n: int, **more: Any) -> list[dict[str, Any]]:
        loader = forebay.Loader(table, **{**given, **more})
        return [next(loader) for _ in range(n)]

    one = first(6, n_workers=1)
    for n_workers in (2, 5):
        for batch, other in zip(one, first(6, n_workers=n_workers), strict=True):
            assert all(np.array_equal(batch[name], other[name]) for name in batch)
    ranks = [first(6, batch_size=2, rank=rank, world_size=2) for rank in range(2)]
    for at, batch in enumerate(one):
        parts = [rank[at] for rank in ranks]
        assert np.concatenate([part["index"] for part in parts]).tolist() == batch["index"].tolist()
        for offset, part in zip((0, 2), parts, strict=True):
            for place in range(2):
                n = part["valid_frames"][place]
                assert n == batch["valid_frames"][offset + place]
                np.testing.assert_array_equal(
                    part["spectrogram"][place, :, :n], batch["spectrogram"][offset + place, :, :n]
                )


@pytest.mark.parametrize("layout", ["mel", "time"])
def test_time_is_warped_within_each_recording(table: Path, layout: Any) -> None:
    """Recordings of 2 to 248 frames: the short ones stay, and padding is not drawn in."""
    made: Any = features.LogMel(sample_rate=RATE, n_mels=16, n_fft=400, hop_length=160, layout=layout)
    given = {"features": made, "augment": [augment.SpecAugment(0, 0, 0, 0, warp=20)], "seed": 5}
    unchanged = set()
    for batch in whole(table, **given):
        for place, row in enumerate(batch["index"].tolist()):
            found, n = batch["spectrogram"][place], batch["valid_frames"][place]
            found = found[:, :n] if layout == "mel" else found[:n].T
            alone = np.asarray(made(samples_of(row, SECONDS[row])))
            alone = (alone if layout == "mel" else alone.T)[:, :n]
            expected = warped(Draws(bits_of(5, row), "SpecAugment"), alone, 20, 0)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
            if np.array_equal(found, alone):
                unchanged.add(row)
                assert n < 42
    assert unchanged == {row for row, seconds in enumerate(SECONDS) if seconds < 0.42}


def test_a_state_continues(table: Path) -> None:
    given: dict[str, Any] = {
        "crop": crops.Whole(),
        "features": WAVEFORM,
        "infinite": True,
        "batch_size": 3,
        "order": "global",
    }
    loader = forebay.Loader(table, **given)
    batches = [next(loader) for _ in range(3)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    batches += [next(loader) for _ in range(3)]
    again = forebay.Loader(table, **given)
    again.load_state_dict(state)
    for batch in batches[3:]:
        other = next(again)
        assert all(np.array_equal(batch[name], other[name]) for name in batch)
    replayed = again.replay(1)
    assert all(np.array_equal(batches[1][name], replayed[name]) for name in replayed)


def test_random_access_pads_too(table: Path) -> None:
    dataset = AudioDataset(table, crop=crops.Whole(), features=WAVEFORM)
    rows = [8, 4, 3]
    batch = dataset.get_batch(rows)
    lengths = [round(SECONDS[row] * RATE) for row in rows]
    assert batch["waveform"].shape == (3, max(lengths))
    assert batch["valid_samples"].tolist() == lengths
    for row, waveform, n in zip(rows, batch["waveform"], lengths, strict=True):
        np.testing.assert_array_equal(waveform[:n], samples_of(row, SECONDS[row]))
    one = dataset[4]
    np.testing.assert_array_equal(one["waveform"], samples_of(4, SECONDS[4]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_seconds": -1.0}, "min_seconds is -1.0, must be from 0 on"),
        ({"min_seconds": float("nan")}, "min_seconds is NaN"),
        ({"max_seconds": 0.0}, "max_seconds is 0.0, must be above 0"),
        ({"min_seconds": 2.0, "max_seconds": 1.0}, "no recording has a length between them"),
        ({"pad_value": float("inf")}, "pad_value is inf, must be a number"),
        ({"on_long": "drop"}, "on_long"),
    ],
)
def test_wrong_values_are_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        crops.Whole(**wrong)


def test_what_does_not_go_together_is_told(table: Path) -> None:
    with pytest.raises(ConfigError, match=r"clip_seconds is 3\.0, and crop is Whole"):
        whole(table, clip_seconds=3.0)
    with pytest.raises(ConfigError, match="Mixup, which mixes clips of one length"):
        whole(table, augment=[augment.Mixup()])


def test_the_recipe_tells_the_shape(table: Path) -> None:
    loader = forebay.Loader(table, crop=crops.Whole(max_seconds=3.0), features=WAVEFORM, **GIVEN)
    (waveform, *_) = loader.recipe.to_dict()["fields"]
    assert waveform["shape"] == [None]
    assert "at most 3.0 s" in waveform["meaning"]
    assert "Whole(max_seconds=3.0)" in repr(loader.recipe)
