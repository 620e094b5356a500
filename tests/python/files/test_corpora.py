"""Data folders of Kaldi, shar of Lhotse and tarred sets of NeMo: the batches of the same rows in a plain table."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forebay as fb
from digests import digest
from forebay import cli
from paths import ROOT
from tables import write_tar

DIGITS = ROOT / "tests" / "data" / "digits"
SHAR = ROOT / "tests" / "data" / "shar"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

# Utterances: the recording, start and end in seconds. Those of the shar first.
PARTS: list[tuple[str, float, float | None]] = [
    ("0_theo_0", 0.0, None),
    ("1_theo_1", 0.0, 0.15),
    ("1_theo_1", 0.05, 0.175),
    ("2_jackson_2", 0.1, 0.35),
    ("3_theo_3", 0.0, None),
    ("4_theo_2", 0.0, None),
    ("9_theo_2", 0.025, 0.225),
]


def seconds(name: str) -> float:
    return ((DIGITS / f"{name}.wav").stat().st_size - 44) / 16_000


def rows() -> list[dict[str, Any]]:
    """The utterances as a plain table has them."""
    made = []
    for i, (name, start, end) in enumerate(PARTS):
        end = seconds(name) if end is None else end
        digit, speaker, _ = name.split("_")
        row = {"path": f"{name}.wav", "start": start, "end": end, "duration": end - start, "text": WORDS[int(digit)]}
        made.append({**row, "speaker": speaker, "utterance": f"{speaker}-{name}-{i}", "recording": name})
    return made


def setting(text: str) -> dict[str, Any]:
    return {
        "seed": 3,
        "crop": fb.crops.Whole(),
        "batching": fb.batching.Buckets(max_duration=1.0, num_buckets=2),
        "features": "icefall",
        "targets": {"text": fb.targets.Text(text)},
        "n_workers": 2,
        "infinite": True,
    }


def batches(source: Any, text: str = "text") -> list[str]:
    """Digests of batches of each of two ranks, the second half after a resume."""
    found = []
    for rank in range(2):
        keywords: dict[str, Any] = {**setting(text), "rank": rank, "world_size": 2}
        with fb.Loader.train(source, **keywords) as loader:
            found += [digest(next(loader)) for _ in range(4)]
            state = json.loads(json.dumps(loader.state_dict()))
            following = [digest(next(loader)) for _ in range(4)]
            assert not loader.errors()
        with fb.Loader.train(source, **{**keywords, "n_workers": 1}) as loader:
            loader.load_state_dict(state)
            assert [digest(next(loader)) for _ in range(4)] == following
        found += following
    return found


@pytest.fixture(scope="module")
def expected() -> list[str]:
    return batches(fb.Manifest(rows(), root=DIGITS))


def write_data(folder: Path, path: Callable[[str], str]) -> None:
    """A data folder of Kaldi; `path` says what wav.scp has of a recording."""
    made = rows()
    lines = {
        "wav.scp": [f"{name} {path(name)}" for name in sorted({row["recording"] for row in made})],
        "segments": [f"{row['utterance']} {row['recording']} {row['start']} {row['end']}" for row in made],
        "text": [f"{row['utterance']} {row['text']}" for row in reversed(made)],
        "utt2spk": [f"{row['utterance']} {row['speaker']}" for row in made],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in of))


def test_a_data_folder_of_kaldi(expected: list[str], tmp_path: Path) -> None:
    write_data(tmp_path, lambda name: f"{name}.wav")
    assert batches(fb.Manifest(tmp_path, root=DIGITS)) == expected
    assert batches(fb.Manifest(tmp_path / "wav.scp", root=DIGITS)) == expected
    absolute = tmp_path / "absolute"
    write_data(absolute, lambda name: str(DIGITS / f"{name}.wav"))
    loader = fb.Loader.train(absolute, **setting("text"), columns=["utterance", "speaker"], allow_paths=[DIGITS])
    by_name = {row["utterance"]: row for row in rows()}
    with loader:
        batch = next(loader)
    for utterance, speaker, text in zip(batch["utterance"], batch["speaker"], batch["text"], strict=True):
        assert (speaker, text) == (by_name[utterance]["speaker"], by_name[utterance]["text"])
    with pytest.raises(FileNotFoundError, match="root=") as raised:
        fb.Loader.train(tmp_path, **setting("text"))
    assert "path_column" not in str(raised.value)


def test_the_folder_above_a_data_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its recordings would be read without their texts."""
    write_data(tmp_path / "train", lambda name: f"{name}.wav")
    with pytest.raises(FileNotFoundError, match=r"1 ending in \.scp; .*/train has a table: give that folder itself"):
        fb.Loader.train(tmp_path)
    shutil.copy(DIGITS / "0_theo_0.wav", tmp_path / "train" / "a.wav")
    with fb.Loader.train(tmp_path, clip_seconds=0.1):
        assert "read without the table in" in caplog.text
        assert "/train; give that folder itself" in caplog.text


def test_recordings_that_are_not_read_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.amr", "b.AMR", "c.wv", "notes.txt"):
        (tmp_path / name).write_bytes(b"any")
    with pytest.raises(FileNotFoundError, match=r"found 2 files ending in \.amr, .*; AMR is not read; convert it with"):
        fb.Loader.train(tmp_path)
    with pytest.raises(
        fb.ConfigError, match=r"a\.amr.*: AMR is not read; convert it with `ffmpeg -i in\.amr out\.flac`"
    ):
        fb.Loader.train(tmp_path / "a.amr")
    shutil.copy(DIGITS / "0_theo_0.wav", tmp_path / "a.wav")
    with fb.Loader.train(tmp_path, clip_seconds=0.1) as loader:
        assert loader.num_records == 1
    [told] = [record.getMessage() for record in caplog.records if "not read" in record.getMessage()]
    assert "left out: 2 of AMR (.amr), 1 of WavPack (.wv); AMR is not read" in told


def test_arks_of_wav(expected: list[str], tmp_path: Path) -> None:
    """As wav-copy and kaldiio write them: the name, a blank, and the file."""
    places, ark = {}, b""
    for name in sorted({name for name, *_ in PARTS}):
        ark += f"{name} ".encode()
        places[name] = len(ark)
        ark += (DIGITS / f"{name}.wav").read_bytes()
    (tmp_path / "wav.ark").write_bytes(ark)
    write_data(tmp_path, lambda name: f"wav.ark:{places[name]}")
    assert batches(tmp_path) == expected
    with fb.Loader.eval(tmp_path, **{**setting("text"), "infinite": False}) as loader:
        assert sum(len(batch["text"]) for batch in loader) == len(PARTS)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(tmp_path / "data", lambda name: f"{name}.wav")
    for name, *_ in PARTS:
        shutil.copy(DIGITS / f"{name}.wav", tmp_path / "data")
    for source, column in ((tmp_path / "data", "speaker"), (SHAR, "custom.snr")):
        assert cli.main(["inspect", str(source)]) == 0
        assert column in capsys.readouterr().out
        assert cli.main(["check", str(source), "-o", str(tmp_path / f"report of {source.name}")]) == 0
        assert cli.main(["index", str(source)]) == 0
        assert "7 rows" in capsys.readouterr().out
        assert cli.main(["show", str(source), "-o", str(tmp_path / f"{source.name}.html")]) == 0


@pytest.mark.parametrize(
    ("name", "told"), [("kaldi_folder", "speaker2-1: number three part 1"), ("lhotse_shar", "cut12: number 2")]
)
def test_the_examples(name: str, told: str) -> None:
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


@pytest.mark.parametrize("name", ["segments", "text", "utt2spk"])
def test_other_files_of_a_data_folder_name_the_folder(name: str, tmp_path: Path) -> None:
    write_data(tmp_path, lambda name: f"{name}.wav")
    for source in (fb.Manifest(tmp_path / name), tmp_path / name, [tmp_path / name]):
        with pytest.raises(fb.ConfigError, match=rf"{name} belongs to a data folder of Kaldi.*give the folder, "):
            fb.Loader.train(source)
    (tmp_path / "wav.scp").unlink()
    with pytest.raises(fb.ConfigError, match="it ends in"):
        fb.Loader.train(fb.Manifest(tmp_path / name))


def test_segments_that_end_after_their_recording(tmp_path: Path) -> None:
    """They end with it, for random access and for whole utterances; one that begins after it is a bad row."""
    write_data(tmp_path, lambda name: f"{name}.wav")
    shutil.copy(DIGITS / "0_theo_0.wav", tmp_path)
    (tmp_path / "wav.scp").write_text("r 0_theo_0.wav\n")
    end = seconds("0_theo_0")
    (tmp_path / "segments").write_text(
        f"a r 0.0 {end + 1}\nb r 0.1 {end + 2.5}\nc r {end + 1} {end + 2}\nd r 0.1 0.2\n"
    )
    with fb.AudioDataset(tmp_path, sample_rate=8000, features=None) as data:
        lengths = {"abcd"[row]: data.info(row)["n_samples"] for row in (0, 1, 3)}
        with pytest.raises(fb.DecodeError, match="has no samples"):
            data.info(2)
    for batching in (None, fb.batching.Buckets(max_duration=60.0, num_buckets=2)):
        size: dict[str, Any] = {} if batching else {"batch_size": 2}
        loader = fb.Loader.train(
            tmp_path, batching=batching, crop=fb.crops.Whole(), features=fb.features.Waveform(sample_rate=8000),
            columns=["utterance"], infinite=False, **size,
        )  # fmt: skip
        with loader:
            found = [pair for batch in loader for pair in zip(batch["utterance"], batch["valid_samples"], strict=True)]
            assert {name: int(n) for name, n in found} == lengths
            assert [error["row"] for error in loader.errors()] == [2]


def test_a_shar_that_lhotse_wrote(tmp_path: Path) -> None:
    text = "supervisions.0.text"
    table = [{**row, text: row["text"]} for row in rows()]
    parts = [fb.Manifest(table[:4], root=DIGITS), fb.Manifest(table[4:], root=DIGITS)]
    assert batches(SHAR, text) == batches(parts, text)
    assert batches(fb.Manifest(SHAR), text) == batches(parts, text)
    with fb.Loader.eval(SHAR, **{**setting(text), "infinite": False}, columns=["custom.snr", "id"]) as loader:
        assert [shard["num_rows"] for shard in loader.shards] == [4, 3]
        found = {name: snr for batch in loader for name, snr in zip(batch["id"], batch["custom.snr"], strict=True)}
    assert found == {f"{name}.{i}": 2.5 * i for i, (name, *_) in enumerate(PARTS)}

    def broken(change: Callable[[Path], object]) -> str:
        folder = tmp_path / "shar"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SHAR, folder)
        change(folder)
        with pytest.raises(fb.ForebayError) as raised:
            fb.Loader.train(folder, **setting(text))
        return str(raised.value)

    def swap(folder: Path) -> None:
        archives = [folder / f"recording.{n:06}.tar" for n in range(2)]
        archives[0].rename(folder / "x")
        archives[1].rename(archives[0])
        (folder / "x").rename(archives[1])

    assert 'the cut "0_theo_0.0" has no recording in' in broken(swap)
    assert "has no cuts of its number" in broken(lambda folder: (folder / "cuts.000001.jsonl.gz").unlink())
    assert "has no recording of its number" in broken(lambda folder: (folder / "recording.000001.tar").unlink())
    first, second = (f"cuts.{n:06}.jsonl.gz" for n in range(2))
    shorter = broken(lambda folder: shutil.copy(SHAR / second, folder / first))
    assert 'the cut "3_theo_3.4" has no recording in' in shorter
    with pytest.raises(fb.ConfigError, match="root is the folder of relative paths"):
        fb.Loader.train(fb.Manifest(SHAR, root=tmp_path), **setting(text))


def test_cuts_of_several_tracks_are_refused(tmp_path: Path) -> None:
    cut = {"id": "a", "type": "MixedCut", "tracks": [{"cut": {}, "offset": 0.0}]}
    plain = {"id": "b", "start": 0, "duration": 1, "recording": {"sources": [{"type": "file", "source": "a.wav"}]}}
    for lines in ([cut], [plain, cut]):
        (tmp_path / "cuts.jsonl").write_text("\n".join(map(json.dumps, lines)))
        with pytest.raises(fb.ForebayError, match=rf"line {len(lines)}: the cut has tracks"):
            fb.Loader(tmp_path / "cuts.jsonl", batch_size=1)


def write_nemo(folder: Path) -> None:
    """A tarred set as NeMo's script writes it: parts of a member are called `-sub1`, and so on."""
    folder.mkdir(exist_ok=True)
    names = list(dict.fromkeys(name for name, *_ in PARTS))
    shard = {name: i // 3 for i, name in enumerate(names)}
    for n in range(2):
        members = [(f"{name}.wav", (DIGITS / f"{name}.wav").read_bytes()) for name in names if shard[name] == n]
        write_tar(folder / f"audio_{n}.tar", members)
    lines, seen = [], dict.fromkeys(names, 0)
    for row in rows():
        name = row["recording"]
        part = f"-sub{seen[name]}" if seen[name] else ""
        seen[name] += 1
        entry = {"audio_filepath": f"{name}{part}.wav", "offset": row["start"], "duration": row["duration"]}
        lines.append({**entry, "text": row["text"], "shard_id": shard[name]})
    (folder / "tarred_audio_manifest.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize("archives", ["audio_*.tar", "audio_{0..1}.tar", "audio__OP_0..1_CL_.tar", None])
def test_a_tarred_set_of_nemo(
    archives: str | None, expected: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_nemo(tmp_path)
    table = tmp_path / "tarred_audio_manifest.json"
    source = tmp_path if archives is None else fb.Manifest(table, root=tmp_path / archives)
    assert batches(source) == expected
    assert not caplog.records


def test_members_without_a_row_and_rows_without_a_member(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_nemo(tmp_path)
    table = tmp_path / "tarred_audio_manifest.json"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[1:4], lines[3].replace("2_jackson_2", "missing")]))
    with fb.Loader.eval(tmp_path, **{**setting("text"), "infinite": False}) as loader:
        assert sum(len(batch["text"]) for batch in loader) == 3
        (error,) = loader.errors()
    assert 'no archive has the member "missing.wav"' in error["reason"]
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "4 recordings of the 2 archives have no row and are left out" in told
    assert '1 of 4 recordings are in no archive, the first is "missing.wav" (line 4)' in told
    table.write_text(lines[0].replace("0_theo_0", "missing"))
    with pytest.raises(fb.ConfigError, match=r'the 2 archives have no member "missing\.wav"'):
        fb.Loader.train(tmp_path, **setting("text"))
