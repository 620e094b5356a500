"""`forebay stats` and `forebay bench`."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay import cli
from forebay.cli import bench, bench_dataloader, stats
from forebay.features import preset, presets
from paths import ROOT
from recordings import Row, write_shard

Call = Callable[..., tuple[int, Any]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command with `--json -`: the exit code and the summary."""

    def run(*arguments: object) -> tuple[int, Any]:
        code = cli.main([*map(str, arguments), "--json", "-"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("name", [None, "ast", "whisper"])
def test_figures_are_those_of_numpy(name: str | None, shards: list[Path], call: Call) -> None:
    options = [] if name is None else ["--features", name]
    code, found = call("stats", *shards, *options)
    assert (code, found["clips"], found["bad"]) == (0, 19, 0)
    features: Any = None
    if name is not None:
        features = preset(name)
        if features.normalization is not None:
            features = replace(features, normalization=None)
    with forebay.Loader(
        shards, features=features, infinite=False, shuffle_min_size=0, n_samples=19, batch_size=19,
        outputs=["valid_frames"],
    ) as loader:  # fmt: skip
        field = loader.fields[0]["name"]
        [batch] = list(loader)
    values = batch[field].astype(np.float64)
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-9)
    assert found["std"] == pytest.approx(values.std(), rel=1e-9)
    assert (found["min"], found["max"]) == (values.min(), values.max())
    is_time = getattr(features, "layout", "mel") == "time"
    parts = [one[:n].T if is_time else one[:, :n] for one, n in zip(values, batch["valid_frames"], strict=True)]
    valid = np.concatenate(parts, axis=1)
    assert found["mean_valid"] == pytest.approx(valid.mean(), rel=1e-9)
    assert found["std_valid"] == pytest.approx(valid.std(), rel=1e-9)


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset(name: str, shards: list[Path], call: Call) -> None:
    code, found = call("stats", shards[0], "--features", name, "-n", 3)
    assert (code, found["clips"]) == (0, 3)
    assert found["std"] > 0


def test_durations_and_classes(shards: list[Path], call: Call) -> None:
    _, found = call("stats", *shards)
    assert found["classes"] == {
        "column": "label", "classes": ["bird", "music", "soundscape", "speech"], "rows": [6, 5, 5, 3],
    }  # fmt: skip
    with forebay.AudioDataset(shards) as dataset:
        seconds = [dataset.info(row)["seconds"] for row in range(len(dataset))]
    assert found["durations"]["max"] == pytest.approx(max(seconds), abs=1e-3)
    assert found["durations"]["median"] == pytest.approx(np.median(seconds), abs=1e-3)


def test_bad_recordings_are_counted(rows: list[Row], tmp_path: Path, call: Call) -> None:
    shard = write_shard(tmp_path / "a.arrow", [*rows[:3], Row(b"nothing", 0, "x.wav")])
    code, found = call("stats", shard)
    assert (code, found["clips"], found["bad"]) == (0, 3, 1)
    shard = write_shard(tmp_path / "b.arrow", [Row(b"nothing", 0, "x.wav")])
    code, found = call("stats", shard)
    assert code == 1
    assert "no good record: 1 of 1 records failed (unsupported)" in found["error"]


def test_moments_of_large_values() -> None:
    """The sums about the first mean keep the digits that sums of squares lose."""
    values = np.random.default_rng(0).normal(1e8, 1.0, 100_000)
    moments = stats.Moments()
    for part in np.split(values, 10):
        moments.add(part)
    assert moments.std == pytest.approx(values.std(), rel=1e-9)
    assert moments.mean == pytest.approx(values.mean(), rel=1e-15)
    assert stats.Moments().mean is None
    assert stats.Moments().std is None


def test_ctrl_c_keeps_the_figures(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add = stats.Moments.add

    def interrupted(moments: stats.Moments, values: NDArray[Any]) -> None:
        if moments.n and values.ndim == 3:  # the second batch
            raise KeyboardInterrupt
        add(moments, values)

    monkeypatch.setattr(stats.Moments, "add", interrupted)
    monkeypatch.setattr(stats, "BATCH", 8)
    assert cli.main(["stats", *map(str, shards), "--json", "-"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["clips"] == 8
    assert err.endswith("interrupted; these are the figures of the clips so far\n")


def test_bench(shards: list[Path], call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = call("bench", *shards, "--seconds", 0.1, "-w", "2,1", "--batch-size", 4, "--no-compare")
    assert code == 0
    assert [run["n_workers"] for run in found["runs"]] == [1, 2]
    assert all(run["examples_per_s"] >= 0 and run["verdict"] for run in found["runs"])
    assert found["order"] == "global"  # that of Loader.train for these shards
    assert found["suggested"]["n_workers"] in (1, 2)
    assert found["suggested"]["n_readers"] == 32
    assert found["dataloader"] == {"reason": bench_dataloader.missing() or "--no-compare"}
    arguments = ["bench", str(shards[0]), "--seconds", "0.1", "-w", "1", "--batch-size", "4", "--no-compare"]
    assert cli.main([*arguments, "--order", "window"]) == 0
    out = capsys.readouterr().out
    assert ", order window, a loop that does nothing:\n" in out
    assert "suggested: Loader.train(SOURCE, n_workers=1)\n" in out


def test_a_busy_machine_is_told() -> None:
    """Once, below the figures; the words are those of the core's verdict."""
    idle = {"n_workers": 2, "n_readers": bench.READERS, "examples_per_s": 900.0, "verdict": "CPU-bound (decoding)"}
    busy = {**idle, "verdict": f"CPU-bound (decoding): ..., for a core: {bench.BUSY}; leave cores free"}
    assert bench.BUSY in (ROOT / "crates" / "engine" / "src" / "engine" / "observe" / "verdict.rs").read_text()
    for runs, times in (([idle, idle], 0), ([idle, busy, busy], 1)):
        said = list(bench.lines(runs, {}, "2 cores", 64))
        assert sum(line.startswith(f"{bench.BUSY}, so these figures are too low") for line in said) == times


def test_the_suggestion() -> None:
    def runs(*speeds: tuple[int, int, float]) -> list[dict[str, Any]]:
        names = ("n_workers", "n_readers", "examples_per_s")
        return [{**dict(zip(names, speed, strict=True)), "verdict": "I/O-bound: x"} for speed in speeds]

    some = runs((1, 32, 100.0), (2, 32, 196.0), (4, 32, 200.0), (8, 32, 150.0))
    assert bench.best(some)["n_workers"] == 2
    assert bench.best([*some, *runs((2, 128, 300.0))])["n_readers"] == 128
    said = list(
        bench.lines(runs((2, 128, 640.0)), {"n_workers": 2, "examples_per_s": 160.0, "ratio": 4.0}, "2 cores", 64)
    )
    assert said[2] == "          2       640.0  (n_readers=128) I/O-bound: x"
    assert said[3:] == [
        "soundfile in a torch DataLoader, 2 worker processes: 160.0 examples/s; forebay\nmakes 4.0 times as many",
        "suggested: Loader.train(SOURCE, n_workers=2, n_readers=128)",
        "a training step of more than 100 ms a batch never waits for it",
    ]
    assert "no comparison with soundfile in a torch DataLoader: no" in list(
        bench.lines([], {"reason": "no"}, "2 cores", 64)
    )
    assert [bench.steps(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "-n", "0"], "--n-samples is 0, must be at least 1"),
        (["bench", "--seconds", "0"], "--seconds is 0, must be 0.1 to 600"),
        (["bench", "-w", "1,x"], "1,x must be numbers of 1 to 1024, separated by commas"),
        (["bench", "--batch-size", "0"], "--batch-size is 0, must be "),
        (["bench", "--compare"], "--compare needs torch and soundfile, and torch is not installed"),
    ],
)
def test_wrong_options(
    arguments: list[str],
    message: str,
    shards: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_dataloader, "missing", lambda: "torch is not installed")
    with pytest.raises(SystemExit, match="2"):
        cli.main([*arguments, str(shards[0])])
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: forebay ")
    assert all(f"\n    {name} " in out for name in ("show", "stats", "bench", "inspect", "check", "build"))


@pytest.mark.parametrize("is_debug", [False, True])
def test_debug_prints_the_traceback(is_debug: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["stats", str(tmp_path / "none"), *(["--debug"] if is_debug else [])])
    error = capsys.readouterr().err
    assert ("Traceback" in error) == is_debug
    assert (
        error.splitlines()[-1]
        == f"forebay stats: error: SOURCE: {tmp_path / 'none'}: cannot open: No such file or directory"
    )
