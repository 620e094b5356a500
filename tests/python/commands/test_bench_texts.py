"""`forebay bench` of texts: tokens per second and waste, by number of workers."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from documents import RANKS, document
from forebay import cli
from forebay.cli import bench, bench_texts

RUN = {"n_workers": 2, "examples_per_s": 900.0, "tokens_per_s": 1.8e6, "dropped": 0.125, "padding": 0.5}


def write(folder: Path) -> Path:
    pq.write_table(pa.table({"text": [document(number) for number in range(300)]}), folder / "a.parquet")
    return folder / "a.parquet"


def measured(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert cli.main(["bench", *map(str, arguments), "--seconds", "0.1", "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def write_ids(folder: Path, n_tokens: int) -> Path:
    """Documents of so many tokens with BOS."""
    pq.write_table(pa.table({"input_ids": [[1] * (n_tokens - 1)] * 300}), folder / f"{n_tokens}.parquet")
    return folder / f"{n_tokens}.parquet"


def test_tokens_and_waste(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--kind", "ids", "--bos-id", 0, "--seq-len", 20, "--batch-size", 8]
    found = measured(capsys, write_ids(tmp_path, 41), *options, "-w", "1,2")
    assert [run["n_workers"] for run in found["runs"]] == [1, 2]
    assert found["suggested"]["n_workers"] in (1, 2)
    for run in found["runs"]:
        # A row has the first 21 tokens of a document; of those that wait for a row the others are dropped, too.
        assert run["tokens_per_s"] == pytest.approx(20 * run["examples_per_s"])
        assert run["dropped"] == pytest.approx(20 / 41)
        assert run["padding"] == 0
    [run] = measured(capsys, write_ids(tmp_path, 13), *options, "-w", 1, "--fit", "pad")["runs"]
    assert (run["dropped"], run["padding"]) == (0, pytest.approx(8 / 21))
    assert run["tokens_per_s"] == pytest.approx(20 * run["examples_per_s"] * 13 / 21)


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-t", str(RANKS), "-w", "1", "--seconds", "0.1", "--fit", "carry", "--seq-len", "64"]
    assert cli.main(["bench", str(write(tmp_path)), *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("rows of 64 tokens, fit carry, a loop that does nothing:")
    assert lines[1].split() == ["n_workers", "Mtokens/s", "dropped", "padding", "limit"]
    assert "suggested: TokenLoader(SOURCE, ..., n_workers=1)" in lines


def test_the_lines_of_a_measurement() -> None:
    verdict = f"CPU-bound (tokenizing): {'workers work 100 % of the time, ' * 6}"
    [_, row] = bench_texts.lines([RUN | {"verdict": verdict}])
    assert max(map(len, row.split("\n"))) <= 80
    assert row.split()[:4] == ["2", "1.800", "12.5%", "50.0%"]
    assert " ".join(row.split()[4:]) == verdict.strip()
    assert list(bench.ends([RUN | {"verdict": "consumer-bound"}], "TokenLoader(SOURCE, ...", 9)) == [
        "suggested: TokenLoader(SOURCE, ..., n_workers=2)",
        "a training step of more than 10 ms a batch never waits for it",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", RANKS, "--features", "ast"], "--features is for recordings, and --tokenizer and --kind are for "),
        (["-t", RANKS, "--device", "cpu"], "--device is for recordings, and "),
        (["-t", RANKS, "--no-compare"], "--compare is for recordings, and "),
        (["--seq-len", "9"], "--seq-len is for texts; name a tokenizer, as in --tokenizer gpt2.tiktoken"),
        (["-t", RANKS, "--seconds", "0"], "--seconds is 0, must be 0.1 to 600"),
        (["-t", RANKS, "--seq-len", "0"], "--seq-len is 0, must be 1 to "),
        (["-t", RANKS, "--on-long", "cut"], "--on-long needs --fit pad"),
        (["-t", RANKS, "--text-column", "x"], 'there is no column "x"'),
        (["-t", RANKS, "--batch-size", "0"], "--batch-size is 0, must be 1 to "),
    ],
)
def test_wrong_options(arguments: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", str(write(tmp_path)), *map(str, arguments)])
    error = capsys.readouterr().err.removeprefix("forebay bench: error: ")
    assert message in error
    assert error.startswith(message) or "x" in arguments
    assert error.count("\n") == 1


def test_ctrl_c_prints_the_measurements_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench_texts.measured

    def interrupted(options: Any, n_workers: int) -> dict[str, Any]:
        if n_workers == 2:
            raise KeyboardInterrupt
        return real(options, n_workers)

    monkeypatch.setattr(bench_texts, "measured", interrupted)
    arguments = ["-t", str(RANKS), "-w", "1,2", "--seconds", "0.1", "--seq-len", "64", "--json", "-"]
    assert cli.main(["bench", str(write(tmp_path)), *arguments]) == 130
    out, err = capsys.readouterr()
    assert [run["n_workers"] for run in json.loads(out)["runs"]] == [1]
    assert "interrupted; these are the measurements so far" in err
