"""`targets.Frames`: labels on a frame grid, beside pyannote.core, numpy and the samples themselves."""

import itertools
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from fields import assert_described
from forebay import AudioDataset, ConfigError, augment, batching, crops, features
from forebay.targets import Annotations, Frames
from framed import GIVEN, MEL, RATE, WAVEFORM, recordings
from paths import DATA
from windows import wav

LABELS = ["a", "b", "c"]
SILENCE = np.zeros(4 * RATE, np.int16)

Rows = list[tuple[str, float, float, str]]


def turns(n_recordings: int, seconds: float, labels: list[str] = LABELS, seed: int = 3) -> Rows:
    random = np.random.default_rng(seed)
    found = []
    for row in range(n_recordings):
        for _ in range(8):
            start = float(random.uniform(0, seconds))
            label = labels[random.integers(len(labels))]
            found.append((f"{row}.wav", start, start + float(random.uniform(0.01, 0.6)), label))
    return found


def read(path: Any, target: Any, **changes: Any) -> list[dict[str, Any]]:
    with forebay.Loader(path, targets={"y": target}, **{"features": MEL, **GIVEN, **changes}) as loader:
        batches = list(loader)
        for batch in batches:
            assert_described(loader, batch)
        return batches


def expected(
    events: list[tuple[float, float, str]], clip: tuple[float, float], grid: tuple[int, float, float], labels: list[str]
) -> np.ndarray:
    """The frames of a clip: `grid` has their number, the step, and the middle of the first."""
    n, step, first = grid
    start, end = clip
    found = np.zeros((n, len(labels)), np.uint8)
    for begin, stop, label in events:
        if min(stop, end) - max(begin, start) > 1e-6:
            one, last = (int(np.rint((at - start - first) / step)) for at in (max(begin, start), min(stop, end)))
            found[max(0, one) : max(0, last + 1), labels.index(label)] = 1
    return found


def of_row(rows: Rows, row: int) -> list[tuple[float, float, str]]:
    return [event[1:] for event in rows if event[0] == f"{row}.wav"]


def test_the_frames_of_pyannote(tmp_path: Path) -> None:
    cases = json.loads((DATA / "frames" / "frames.json").read_text())
    assert len(cases) == 200
    key = lambda case: (case["step"], case["duration"])  # noqa: E731
    for (step, duration), group in itertools.groupby(sorted(cases, key=key), key):
        own = list(group)
        path = recordings(tmp_path, [SILENCE] * len(own))
        rows = [(f"{at}.wav", *event) for at, case in enumerate(own) for event in case["events"]]
        target = Frames(rows, step=step, duration=duration, classes=LABELS)
        data = AudioDataset(path, features=WAVEFORM, clip_seconds=1.0, targets={"y": target})
        batch = data.get_batch(range(len(own)), [case["start"] for case in own])
        for found, case in zip(batch["y"], own, strict=True):
            want = np.stack([np.array([int(frame) for frame in case["frames"][label]]) for label in LABELS], axis=1)
            np.testing.assert_array_equal(found, want, str(case))
            clip = (case["start"], case["start"] + 1.0)
            grid = (len(want), step, duration / 2)
            np.testing.assert_array_equal(expected(case["events"], clip, grid, LABELS), want)


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (MEL, 0.0),
        (features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=100, layout="time"), 0.0),
        (features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=80, center=False), 128 / RATE),
        (features.Fbank(sample_rate=RATE, n_mels=8, win_length=200, hop_length=80), 0.0125),
        (features.Fbank(sample_rate=RATE, n_mels=8, win_length=200, hop_length=80, snip_edges=False), 0.005),
        (features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=80, n_frames=60), 0.0),
        (features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=80, n_frames=150), 0.0),
        (features.LogMel(sample_rate=RATE, n_mels=8, n_fft=256, hop_length=80, channels="all", n_channels=1), 0.0),
    ],
)
def test_the_frames_of_the_features(made: Any, first: float, tmp_path: Path) -> None:
    """As many as the spectrogram has, about the same middles."""
    path = recordings(tmp_path, [SILENCE] * 5)
    rows = turns(5, 4.0)
    is_time = made.layout == "time"
    for batch in read(path, Frames(rows), features=made, crop=crops.Random(), seed=5):
        n = batch["spectrogram"].shape[-2 if is_time else -1]
        assert (batch["y"].shape, batch["y"].dtype) == ((len(batch["index"]), n, 3), np.uint8)
        assert batch["y"].flags.c_contiguous
        for row, start, found in zip(batch["index"], batch["start"], batch["y"], strict=True):
            grid = (n, made.hop_length / RATE, first)
            want = expected(of_row(rows, row), (start, start + 1.0), grid, LABELS)
            np.testing.assert_array_equal(found, want)
        assert 0 < batch["y"].sum() < batch["y"].size


def test_windows_and_padding(tmp_path: Path) -> None:
    """Nothing is heard in padding, also if an annotation goes on behind the recording."""
    lengths = [9000, 3000, 16_000, 8000]
    path = recordings(tmp_path, [SILENCE[:n] for n in lengths])
    rows = [*turns(4, 2.0), *((f"{row}.wav", n / RATE - 0.2, 9.0, "a") for row, n in enumerate(lengths))]
    for crop, context in (
        (crops.Windows(0.5), 0), (crops.Start(), 0), (crops.Center(), 0), (crops.End(), 0),
        (crops.Windows(0.3, context=0.25), 0.25),
    ):  # fmt: skip
        n_clips = 0
        for batch in read(path, Frames(rows), crop=crop):
            for row, start, found in zip(batch["index"], batch["start"], batch["y"], strict=True):
                start -= context
                end = min(start + 1.0, lengths[row] / RATE)
                inside = [(max(begin, 0.0), min(stop, end), label) for begin, stop, label in of_row(rows, row)]
                inside = [event for event in inside if event[1] > event[0]]
                np.testing.assert_array_equal(found, expected(inside, (start, end), (101, 0.01, 0.0), LABELS))
                n_clips += 1
        assert n_clips >= 4


@pytest.mark.parametrize("batches", ["size", "buckets", "bucket", "multiple", "packed"])
def test_whole_recordings(batches: str, tmp_path: Path) -> None:
    """As long as the spectrogram, with zeros behind each recording; frames of their own have lengths."""
    lengths = [4000, 12_000, 9000, 30_000, 2000, 8000, 10_000]
    path = recordings(tmp_path, [SILENCE[:n] for n in lengths])
    rows = turns(len(lengths), 2.0)
    kinds: dict[str, dict[str, Any]] = {
        "size": {"batch_size": 3},
        "buckets": {"batching": batching.Buckets(max_duration=5.0, num_buckets=2)},
        "bucket": {"batching": batching.Buckets(max_duration=8.0, num_buckets=3, pad_to="bucket")},
        "multiple": {"batching": batching.Buckets(max_duration=6.0, num_buckets=2, pad_to=64)},
        "packed": {"batching": batching.Buckets(max_duration=5.0, num_buckets=2, packed=True)},
    }
    given = kinds[batches]
    own = Frames(rows, step=0.02, duration=0.05)
    loader = forebay.Loader(
        path, targets={"y": Frames(rows), "own": own}, crop=crops.Whole(min_seconds=0.1), features=MEL,
        **{name: value for name, value in {**GIVEN, **given}.items() if name != "clip_seconds" and
           not (name == "batch_size" and "batching" in given)},
    )  # fmt: skip
    seen = []
    for batch in loader:
        frames = batch["valid_frames"].tolist()
        if batches == "packed":
            assert [batch["y"].shape, batch["spectrogram"].shape[-1]] == [(sum(frames), 3), sum(frames)]
            of_rows = np.split(batch["y"], batch["offsets"][1:-1])
        else:
            assert batch["y"].shape == (len(frames), batch["spectrogram"].shape[-1], 3)
            assert not any(one[n:].any() for one, n in zip(batch["y"], frames, strict=True))
            of_rows = [one[:n] for one, n in zip(batch["y"], frames, strict=True)]
        for at, (row, found) in enumerate(zip(batch["index"], of_rows, strict=True)):
            seconds = lengths[row] / RATE
            want = expected(of_row(rows, row), (0.0, seconds), (frames[at], 0.01, 0.0), LABELS)
            np.testing.assert_array_equal(found, want)
            n = batch["own_length"][at]
            assert n == 1 + int((seconds - 0.05) / 0.02 + 1e-6) <= batch["own"].shape[1]
            want = expected(of_row(rows, row), (0.0, seconds), (n, 0.02, 0.025), LABELS)
            np.testing.assert_array_equal(batch["own"][at, :n], want)
            assert not batch["own"][at, n:].any()
            seen.append(int(row))
    assert sorted(seen) == list(range(len(lengths)))


def tones(seconds: float, row: int) -> tuple[np.ndarray, Rows]:
    """A recording of which all is silent but for its events."""
    random = np.random.default_rng(row)
    samples = np.zeros(round(seconds * RATE), np.int16)
    rows = []
    for at in np.arange(0.05, seconds - 0.1, 0.35):
        start, end = at + random.uniform(0, 0.1), at + random.uniform(0.15, 0.3)
        end = min(end, seconds)
        n = round(end * RATE) - round(start * RATE)
        samples[round(start * RATE) : round(end * RATE)] = random.integers(4000, 9000, n) * random.choice([-1, 1], n)
        rows.append((f"{row}.wav", float(start), float(end), "a"))
    return samples, rows


def assert_heard(batch: dict[str, Any], step: float = 0.01) -> None:
    """Frames are 1 where samples are not silent, but for two frames about each edge."""
    margin = round(2 * step * RATE)
    for samples, found in zip(np.asarray(batch["waveform"]), batch["y"][:, :, 0], strict=True):
        loud = np.abs(samples) > 1e-3
        edges = np.pad(loud, margin, mode="edge")
        # Noise has small samples, so one is enough within a tenth of a step.
        for at, value in enumerate(found):
            middle = round((at + 0.5) * step * RATE) + margin
            near = edges[max(0, middle - margin) : middle + margin]
            parts = near.reshape(-1, len(near) // 20).any(axis=1)
            if parts.all():
                assert value == 1, at
            elif not parts.any():
                assert value == 0, at
        assert 0 < found.sum() < found.size


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        ([], {}),
        ([], {"crop": crops.Random(pad="repeat"), "clip_seconds": 4.1}),
        ([], {"crop": crops.Random(pad="random"), "clip_seconds": 4.1}),
        ([augment.Speed((0.5, 0.8, 1.3, 2.0))], {}),
        ([augment.Roll((-1.0, 1.0))], {}),
        ([augment.Roll((-0.7, 0.7), fill="zeros")], {}),
        ([augment.Roll((-1.0, 1.0)), augment.Roll()], {"crop": crops.Random(pad="random"), "clip_seconds": 3.6}),
        ([augment.Mix(weight=0.5, targets="union", near=None)], {}),
        ([augment.Mix(weight=0.5, targets="sum", near=None)], {"clip_seconds": 3.0}),
        ([augment.Speed((0.8, 1.25)), augment.Roll((0.1, 0.9)), augment.Mix(weight=0.4, most=2, targets="union"),
          augment.Roll((-0.9, -0.1))], {"clip_seconds": 2.2, "crop": crops.Random(pad="both")}),
    ],
)  # fmt: skip
def test_labels_go_where_the_samples_go(steps: list[Any], changes: dict[str, Any], tmp_path: Path) -> None:
    made = [tones(seconds, row) for row, seconds in enumerate([4.0, 2.5, 1.1, 3.3, 1.9, 0.9])]
    path = recordings(tmp_path, [samples for samples, _ in made])
    rows = [row for _, own in made for row in own]
    given = {"crop": crops.Random(), "features": WAVEFORM, "augment": steps, "seed": 2, **changes}
    for batch in read(path, Frames(rows, step=0.01), **given):
        assert_heard(batch)


def test_frames_are_rolled_as_those_of_the_features(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = recordings(tmp_path, [random.integers(-9000, 9000, n) for n in (32_000, 5000, 16_000)])
    rows = turns(3, 4.0)
    given: dict[str, Any] = {"crop": crops.Random(), "outputs": ["valid_frames"], "seed": 3}
    steps = [augment.FrameRoll((-1.0, 1.0)), augment.SpecAugment(freq=2, time=9, fill=0.0)]
    for target in (Frames(rows), Frames(rows, step=0.01, duration=0.01)):
        plain = read(path, target, augment=[], **given)
        moved = read(path, target, augment=steps, **{**given, "outputs": ["valid_frames", "frame_roll_shift"]})
        n_moved = 0
        for one, other in zip(plain, moved, strict=True):
            for row, n in enumerate(one["valid_frames"]):
                shift = round(float(other["frame_roll_shift"][row]) * n)
                shift = int(np.floor(abs(other["frame_roll_shift"][row] * n) + 0.5)) * (1 if shift >= 0 else -1)
                want = one["y"][row].copy()
                n = min(int(n), len(want))
                want[:n] = np.roll(want[:n], shift, axis=0)
                np.testing.assert_array_equal(other["y"][row], want)
                n_moved += shift != 0
        assert n_moved >= 2
    # Frames of four hops, as those of a network that pools.
    pooled = Frames(rows, step=0.04)
    given["crop"] = crops.Start()
    plain, moved = (read(path, pooled, augment=steps, **given) for steps in ([], [augment.FrameRoll((0.4, 0.4))]))
    want = np.roll(plain[0]["y"][0], 10, axis=0)  # 0.4 of 101 frames are 40
    np.testing.assert_array_equal(moved[0]["y"][0], want)


def test_speakers_of_a_clip(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = recordings(tmp_path, [SILENCE[:8000]] * 2)
    rows: Rows = [
        ("0.wav", 0.1, 0.3, "eve"), ("0.wav", 0.2, 0.4, "eve"),  # 0.3 s
        ("0.wav", 0.05, 0.45, "bob"),  # 0.4 s
        ("0.wav", 0.5, 0.6, "ann"),  # 0.1 s
        ("1.wav", 0.6, 0.8, "zoe"), ("1.wav", 0.2, 0.4, "yan"),  # equal
    ]  # fmt: skip
    frames = {}
    for name in ("eve", "bob", "ann", "zoe", "yan"):
        own = [event[1:] for event in rows if event[3] == name]
        frames[name] = expected(own, (0.0, 1.0), (101, 0.01, 0.0), [name])[:, 0]

    def columns(target: Frames) -> list[list[str]]:
        """The names of the columns of both recordings."""
        (batch,) = read(path, target, crop=crops.Start())
        name = {values.tobytes(): name for name, values in frames.items()} | {bytes(101): ""}
        return [[name[column.tobytes()] for column in np.ascontiguousarray(one.T)] for one in batch["y"]]

    assert columns(Frames(rows, speakers=3)) == [["bob", "eve", "ann"], ["yan", "zoe", ""]]
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert columns(Frames(rows, speakers=2)) == [["bob", "eve"], ["yan", "zoe"]]
    assert "a clip has 3 speakers, and the target has columns for 2; those with the least talk time" in caplog.text
    assert columns(Frames(rows, speakers=3, order="start")) == [["bob", "eve", "ann"], ["yan", "zoe", ""]]
    swapped = [*rows[:2], ("0.wav", 0.15, 0.65, "bob"), *rows[3:]]
    frames["bob"] = expected([(0.15, 0.65, "bob")], (0.0, 1.0), (101, 0.01, 0.0), ["bob"])[:, 0]
    assert columns(Frames(swapped, speakers=2, order="start"))[0] == ["eve", "bob"]
    everyone = Frames(swapped, speakers=6, scope="data")
    assert columns(everyone) == [["ann", "bob", "eve", "", "", ""], ["", "", "", "yan", "zoe", ""]]
    with forebay.Loader(path, targets={"y": everyone}, features=MEL, **GIVEN) as loader:
        assert loader.class_names == ["ann", "bob", "eve", "yan", "zoe"]
    with pytest.raises(ConfigError, match='speakers is 4, and the data have 5; raise it, or give scope="file"'):
        columns(Frames(rows, speakers=4, scope="data"))


def test_a_speaker_of_another_recording_is_another_one(tmp_path: Path) -> None:
    """In `scope="file"` a name says nothing about other recordings, and parts of one recording share their names."""
    path = recordings(tmp_path, [np.full(8000, 5000, np.int16)] * 2)
    rows = [("0.wav", 0.1, 0.3, "A"), ("1.wav", 0.5, 0.9, "A")]
    mix = [augment.Mix(weight=0.5, targets="union", near=None)]
    (batch,) = read(path, Frames(rows, speakers=3), augment=mix, crop=crops.Start())
    assert batch["y"].any(axis=1).tolist() == [[1, 1, 0], [1, 1, 0]]
    (batch,) = read(path, Frames(rows, speakers=3, scope="data"), augment=mix, crop=crops.Start())
    assert batch["y"].any(axis=1).tolist() == [[1, 0, 0], [1, 0, 0]]
    kept = [augment.Mix(weight=0.5, near=None)]
    (batch,) = read(path, Frames(rows, speakers=3), augment=kept, crop=crops.Start())
    assert batch["y"].any(axis=1).tolist() == [[1, 0, 0], [1, 0, 0]]


def lists(rows: Rows, n: int) -> dict[str, list[Any]]:
    """The rows as columns of lists."""
    of = [of_row(rows, row) for row in range(n)]
    starts, ends, labels = ([[event[at] for event in row] for row in of] for at in range(3))
    return {"starts": starts, "ends": ends, "labels": labels}


LISTED = {"label": "labels", "start": "starts", "end": "ends"}


@pytest.mark.parametrize("given", [{}, {"speakers": 2}, {"speakers": 3, "scope": "data"}, {"classes": ["c", "a", "b"]}])
def test_columns_of_lists(given: dict[str, Any], tmp_path: Path) -> None:
    rows = turns(5, 4.0)
    path = recordings(tmp_path, [SILENCE] * 5, lists(rows, 5))
    of_table = {**given, "classes": None} if "speakers" in given else given
    of_lists = {"classes": "data", **given} if "speakers" not in given else given
    for one, other in zip(read(path, Frames(rows, **of_table)), read(path, Frames(LISTED, **of_lists)), strict=True):
        np.testing.assert_array_equal(one["y"], other["y"])
        assert one["y"].any()


def test_lists_without_events_and_wrong_ones(tmp_path: Path) -> None:
    columns = {
        "starts": [[0.1], None, [], [0.1, 0.2], [0.5], [None]],
        "ends": [[0.4], None, [], [0.4], [0.4], [0.5]],
        "labels": [["a"], None, [], ["a", "a"], ["a"], ["a"]],
    }
    path = recordings(tmp_path, [SILENCE] * 6, columns)
    with forebay.Loader(
        path, targets={"y": Frames(LISTED, classes=["a"])}, features=MEL, **{**GIVEN, "crop": crops.Start()}
    ) as loader:
        (batch,) = loader
        assert batch["index"].tolist() == [0, 1, 2]
        assert batch["y"].any(axis=(1, 2)).tolist() == [True, False, False]
        told = [str(error["reason"]) for error in loader.errors()]
    assert len(told) == 3
    assert "the row has 2 labels, 2 starts and 1 ends, expected as many of each" in told[0]
    assert "an event is from 0.5 to 0.4 s, must end after its start" in told[1]
    assert "an event is from NaN to 0.5 s" in told[2]
    with pytest.raises(ConfigError, match='column "labels" has "a", which is no class: the only class is "b"'):
        read(path, Frames(LISTED, classes=["b"]))
    (batch, *_) = read(path, Frames(LISTED, classes=["b"], unknown="ignore"), max_errors=9)
    assert not batch["y"].any()


def test_segments_keep_the_time_of_their_recording(tmp_path: Path) -> None:
    """A table counts from the recording's start, lists from the row's."""
    (tmp_path / "a.wav").write_bytes(wav(SILENCE))
    table = forebay.Manifest(
        [{"path": "a.wav", "start": 1.5, "end": 3.0, "starts": [0.2], "ends": [0.4], "labels": ["a"]}], root=tmp_path
    )
    (one,) = read(table, Frames([("a.wav", 1.7, 1.9, "a")]), crop=crops.Start())
    (other,) = read(table, Frames(LISTED, classes=["a"]), crop=crops.Start())
    np.testing.assert_array_equal(one["y"], other["y"])
    assert np.flatnonzero(one["y"][0, :, 0]).tolist() == list(range(20, 41))


RTTM = """;; a comment
SPKR-INFO 0 1 <NA> <NA> <NA> unknown ann <NA> <NA>
SPEAKER 0 1 0.10 0.20 <NA> <NA> ann <NA> <NA>
SPEAKER\t1 1 0.5 0.25 <NA> <NA> bob <NA>

LEXEME 0 1 0.1 0.1 hello lex ann <NA> <NA>
SPEAKER 0 1 0.3 0.3 <NA> <NA> bob 0.9 <NA>
"""


def test_rttm(tmp_path: Path) -> None:
    """Also for `Annotations`, and in a folder."""
    path = recordings(tmp_path, [SILENCE] * 2)
    rows = [("0.wav", 0.1, 0.1 + 0.2, "ann"), ("1.wav", 0.5, 0.75, "bob"), ("0.wav", 0.3, 0.3 + 0.3, "bob")]
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables" / "a.rttm"
    table.write_text(RTTM)
    for given in (table, str(table), table.parent):
        for target in (Frames, Annotations):
            (one,), (other,) = (read(path, target(which), crop=crops.Start()) for which in (given, rows))
            np.testing.assert_array_equal(one["y"], other["y"])
            assert one["y"].any()
    for text, told in (
        ("SPEAKER 0 1 0.1 0.2\n", r"a\.rttm, line 1, has 5 fields, expected SPEAKER file 1 start duration"),
        ("\nSPEAKER 0 1 x 0.2 <NA> <NA> a\n", r"a\.rttm, line 2: start is 'x', must be a number of seconds"),
        ("SPEAKER 0 1 1 -0.2 <NA> <NA> a\n", "is from 1 to 0.8 s, must end after its start"),
        ("path,start,end,label\n", r"a\.rttm has no line that begins with SPEAKER"),
    ):
        table.write_text(text)
        with pytest.raises(ConfigError, match=told):
            Frames(table, speakers=2)


def test_the_same_for_any_number_of_workers_and_after_a_resume(tmp_path: Path) -> None:
    made = [tones(seconds, row) for row, seconds in enumerate([4.0, 2.5, 1.1, 3.3, 1.9, 0.9])]
    path = recordings(tmp_path, [samples for samples, _ in made])
    rows = [row for _, own in made for row in own]
    steps = [augment.Speed((0.9, 1.1)), augment.Roll((-1.0, 1.0)), augment.Mix(weight=0.5, targets="union", near=None)]
    target = Frames(rows, speakers=2)

    def loader(n_workers: int, rows: Any = target) -> forebay.Loader:
        given = {**GIVEN, "infinite": True, "batch_size": 3, "n_workers": n_workers, "augment": steps}
        return forebay.Loader(path, targets={"y": rows}, features=MEL, seed=1, **given)

    with loader(1) as one, loader(5) as other:
        for _ in range(6):
            np.testing.assert_array_equal(next(one)["y"], next(other)["y"])
        state = one.state_dict()
        want = next(one)["y"]
    with loader(2) as again:
        again.load_state_dict(state)
        np.testing.assert_array_equal(next(again)["y"], want)
    for changed in (
        Frames([*rows[:-1], (*rows[-1][:2], 0.95, "a")], speakers=2), Frames(rows, speakers=3), Frames(rows, step=0.01)
    ):  # fmt: skip
        with loader(2, changed) as again, pytest.raises(forebay.StateError, match="targets"):
            again.load_state_dict(state)


def test_recipe_and_dataset(tmp_path: Path) -> None:
    path = recordings(tmp_path, [SILENCE] * 3)
    rows = turns(3, 4.0)
    table = tmp_path / "turns.csv"
    table.write_text("path,start,end,label\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    target = Frames(table, speakers=2)
    for made in (target, Frames(rows, step=0.02, duration=0.05), Frames(LISTED, classes=["a"])):
        assert made == pickle.loads(pickle.dumps(made)) == Frames.from_dict(json.loads(json.dumps(made.to_dict())))
        assert hash(made) == hash(Frames.from_dict(made.to_dict()))
    with forebay.Loader(path, targets={"y": target}, features=MEL, **GIVEN) as loader:
        assert f"y = Frames(annotations={str(table)!r}, speakers=2)" in str(loader.recipe)
        assert loader.recipe.to_dict()["targets"]["y"]["speakers"] == 2
        (field,) = (field for field in loader.fields if field["name"] == "y")
        assert (field["dtype"], field["shape"]) == ("uint8", (101, 2))
        whole = forebay.Loader(path, targets={"y": target}, features=MEL, crop=crops.Whole(), infinite=False)
        shape: Any = next(field for field in whole.fields if field["name"] == "y")["shape"]
        assert shape == (None, 2)
        batches = list(loader)
    data = AudioDataset(path, features=MEL, clip_seconds=1.0, targets={"y": target})
    for batch in batches:
        again = data.get_batch(batch["index"], batch["start"])
        np.testing.assert_array_equal(again["y"], batch["y"])
    assert data[0]["y"].shape == (101, 2)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"step": 0.0}, ConfigError, "step is 0.0, must be 0.0001 to 3600.0 seconds"),
        ({"step": 0.01, "duration": 1e9}, ConfigError, "duration is 1000000000.0, must be"),
        ({"duration": 0.1}, ConfigError, "duration is given, and step is not"),
        ({"speakers": 0}, ConfigError, "speakers is 0, must be 1 to 4096"),
        ({"speakers": 2, "classes": ["a"]}, ConfigError, "classes and speakers are given"),
        ({"order": "start"}, ConfigError, "order and scope are for speakers"),
        ({"scope": "data"}, ConfigError, "order and scope are for speakers"),
        ({"speakers": 2, "order": "name"}, ConfigError, 'order is "name", must be one of "talk time", "start"'),
        ({"speakers": 2, "scope": "all"}, ConfigError, 'scope is "all", must be one of "file", "data"'),
        ({"speakers": 9, "scope": "data", "order": "start"}, ConfigError, "leave order out"),
        ({"annotations": {"label": "x"}}, TypeError, "a dict that names the columns of a row's lists"),
        ({"annotations": LISTED, "columns": {"path": "x"}}, ConfigError, "columns is given"),
        ({"annotations": {**LISTED, "label": "nowhere"}}, forebay.ForebayError, "nowhere"),
        ({"annotations": 3}, TypeError, "annotations is 3"),
        ({"annotations": [("a", 0.0, 1.0)]}, TypeError, "row 0 of annotations"),
        ({"annotations": "gone.rttm"}, FileNotFoundError, "annotations is 'gone.rttm'"),
        ({"annotations": []}, ConfigError, "no annotations, of which classes could be known"),
        ({"annotations": [("x/y.wav", 0.0, 1.0, "a")]}, ConfigError, "no recording has annotations"),
        ({"step": 2.0}, ConfigError, "a Frames: a clip of 1.0 s has no frame"),
        ({"classes": ["b"]}, ConfigError, 'an annotation has "a", which is no class'),
    ],
)
def test_wrong_parameters(change: dict[str, Any], error: type[Exception], told: str, tmp_path: Path) -> None:
    path = recordings(tmp_path, [SILENCE], {"label": [0]})
    with pytest.raises(error, match=told):
        read(path, Frames(**{"annotations": [("0.wav", 0.0, 1.0, "a")], **change}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"features": WAVEFORM}, "a Frames: features is a waveform, which has no frames; give step="),
        ({"crop": crops.Views(2)}, 'target "y" is that of a clip, and Views'),
        ({"augment": [augment.Mix(weight=0.5, targets="mix")]}, 'target "y" is a Frames, which cannot be mixed so'),
        ({"augment": [augment.Mixup(0.4)]}, 'target "y" is a Frames of uint8, which cannot be mixed'),
        ({"clip_seconds": 600.0, "targets": {"y": Frames([("0.wav", 0.0, 1.0, "a")], step=1e-4, speakers=4096)}},
         "values, at most 268435456 are allowed"),
    ],
)  # fmt: skip
def test_what_frames_do_not_go_with(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = recordings(tmp_path, [SILENCE])
    given = {"targets": {"y": Frames([("0.wav", 0.0, 1.0, "a")])}, "features": MEL, **GIVEN, **change}
    with pytest.raises(ConfigError, match=told):
        forebay.Loader(path, **given)
    if "features" in change:
        with pytest.raises(ConfigError, match=told):
            AudioDataset(path, features=WAVEFORM, clip_seconds=1.0, targets=given["targets"])
