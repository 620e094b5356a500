"""Frames that cannot be decoded: silence up to `max_damage`, or errors, in every face that decodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.cli import check, check_report
from paths import DATA

FLAC = DATA / "audio" / "mewkiz-flac" / "80574.flac"
BLOCK = 4096
WAVEFORM: dict[str, Any] = {
    "features": forebay.features.Waveform(sample_rate=22050),
    "n_workers": 1,
    "label_column": "",
}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A folder with a FLAC file of 36 180 samples, of which one frame of 4096 fails its checksum."""
    data = bytearray(FLAC.read_bytes())
    at = len(data) * 45 // 100
    data[at : at + 24] = b"\xff" * 24
    folder = tmp_path / "recordings"
    folder.mkdir()
    (folder / "damaged.flac").write_bytes(data)
    return folder


def zeros(samples: NDArray[np.float32]) -> range:
    """The samples of the damaged frame: the longest run of zeros in all channels."""
    silent = np.flatnonzero(~np.any(np.atleast_2d(samples), axis=0))
    runs = np.split(silent, np.flatnonzero(np.diff(silent) > 1) + 1)
    longest = max(runs, key=len)
    return range(int(longest[0]), int(longest[-1]) + 1)


def test_decode(damaged: Path) -> None:
    data, good = (damaged / "damaged.flac").read_bytes(), FLAC.read_bytes()
    whole, _ = forebay.decode(good)
    samples, _ = forebay.decode(data, max_damage=0.2)
    assert samples.shape == whole.shape
    frame = zeros(samples)
    assert (frame.start % BLOCK, len(frame)) == (0, BLOCK)
    np.testing.assert_array_equal(samples[..., : frame.start], whole[..., : frame.start])
    np.testing.assert_array_equal(samples[..., frame.stop :], whole[..., frame.stop :])
    # A span that the frame is not in, one with a little of it, and one with nothing else.
    for start, stop in [(0, frame.start), (frame.stop, whole.shape[-1]), (frame.start - 2000, frame.start + 100)]:
        span, _ = forebay.decode(data, start, stop - start)
        np.testing.assert_array_equal(span, samples[..., start:stop])
    with pytest.raises(forebay.DecodeError, match="FLAC frame of sample"):
        forebay.decode(data, frame.start, 100, max_damage=1.0)
    # 4096 of 36 180 samples are more than a tenth.
    several: list[dict[str, Any]] = [{}, {"damage": "error"}, {"max_damage": 0.11}]
    for given in several:
        with pytest.raises(forebay.DecodeError, match="FLAC frame of sample"):
            forebay.decode(data, **given)
    with pytest.raises(ValueError, match='damage is "quiet", must be "error" or "silence"'):
        forebay.decode(data, damage="quiet")
    with pytest.raises(ValueError, match=r"max_damage is 0\.0, must be above 0 and at most 1"):
        forebay.decode(data, max_damage=0.0)


def test_loader(damaged: Path) -> None:
    seconds = 36180 / 22050
    with forebay.Loader.eval(damaged, clip_seconds=seconds, max_damage=0.2, **WAVEFORM) as loader:
        [waveform] = [batch["waveform"].reshape(1, -1).copy() for batch in loader]
    assert len(zeros(waveform)) == BLOCK
    several: list[dict[str, Any]] = [{}, {"damage": "error"}]
    for given in several:
        with (
            forebay.Loader.eval(damaged, clip_seconds=seconds, **given, **WAVEFORM) as loader,
            pytest.raises(forebay.DecodeError, match="FLAC frame of sample"),
        ):
            list(loader)


def test_dataset(damaged: Path) -> None:
    data = (damaged / "damaged.flac").read_bytes()
    expected, _ = forebay.decode(data, max_damage=0.2)
    samples, _ = forebay.AudioDataset(damaged, max_damage=0.2).waveform(0)
    np.testing.assert_array_equal(samples, np.atleast_2d(expected))
    with pytest.raises(forebay.DecodeError, match="FLAC frame of sample"):
        forebay.AudioDataset(damaged, damage="error").waveform(0)


def test_check(damaged: Path, tmp_path: Path) -> None:
    summary = check.check([damaged], tmp_path / "a", max_damage=0.2)
    assert (summary.bad, summary.repaired) == (0, 1)
    [row] = [row for row, _ in check_report.whole_rows(tmp_path / "a.csv")]
    assert row["repaired"] == BLOCK
    several: list[tuple[str, dict[str, Any]]] = [("b", {}), ("c", {"damage": "error"})]
    for name, given in several:
        assert check.check([damaged], tmp_path / name, **given).kinds == {"corrupt": 1}


def test_a_state_written_before_damage_was_a_parameter(damaged: Path) -> None:
    """It stands for `damage="error"`, with which such a frame was an error then."""
    with forebay.Loader.eval(damaged, **WAVEFORM, damage="error") as loader:
        state = loader.state_dict()
        assert "max_damage" not in state["config"]
        del state["config"]["damage"]
        loader.load_state_dict(state)
    with (
        forebay.Loader.eval(damaged, **WAVEFORM) as loader,
        pytest.raises(forebay.StateError, match='damage is "error" in the state and "silence" here'),
    ):
        loader.load_state_dict(state)
