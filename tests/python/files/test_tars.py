"""Recordings in tar archives: WebDataset, shar of Lhotse, NeMo."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import Manifest, targets
from recordings import TINY, tiny_rows
from tables import write_recordings, write_tar

ONE_PASS: dict[str, Any] = {
    **TINY, "batch_size": 8, "infinite": False, "order": "sequential", "augment": False, "shuffle_min_size": 0,
}  # fmt: skip


def samples(n: int, folder: str = "") -> list[tuple[str, bytes]]:
    """Members as WebDataset has them."""
    members = []
    for i, row in enumerate(tiny_rows(n)):
        key = f"{folder}{i:03}"
        meta = {"label": ["owl", "wren"][i % 2], "site": {"name": f"site {i}"}, "x": i / 2}
        members += [
            (f"{key}.wav", row.audio or b""),
            (f"{key}.cls", str(i % 3).encode()),
            (f"{key}.txt", f"caption {i}\n".encode()),
            (f"{key}.json", json.dumps(meta).encode()),
        ]
    return members


def all_rows(source: Any, **changes: Any) -> dict[str, list[Any]]:
    with forebay.Loader(source, **{**ONE_PASS, "n_workers": 2, **changes}) as loader:
        batches = list(loader)
        assert not loader.errors()
    return {name: [row for batch in batches for row in batch[name]] for name in batches[0]}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_of_a_key_are_a_row(form: int, tmp_path: Path) -> None:
    folder = "folder/" * (10 if form == tarfile.USTAR_FORMAT else 40)
    tar = write_tar(tmp_path / "a.tar", samples(10, folder), form)
    (tmp_path / "wav").mkdir()
    names = write_recordings(tmp_path / "wav", 10)
    expected = all_rows([tmp_path / "wav" / name for name in names])
    found = all_rows(tar, columns=["txt", "site.name", "x"], outputs=["path"])
    assert np.array_equal(found["spectrogram"], expected["spectrogram"])
    assert found["label"] == [i % 3 for i in range(10)]
    assert found["txt"] == [f"caption {i}" for i in range(10)]
    assert found["site.name"] == [f"site {i}" for i in range(10)]
    assert found["path"][3] == f"{folder}003.wav"
    with forebay.Loader(tar, **ONE_PASS, label_column="label") as loader:
        assert loader.class_names == ["owl", "wren"]
    one_hot = all_rows(tar, targets=targets.ClassIndex("label", classes=["wren", "owl"]))
    assert one_hot["label"] == [1 - i % 2 for i in range(10)]


def test_orders_and_shards(tmp_path: Path) -> None:
    members = samples(20)
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", members[40 * number : 40 * number + 40])
    # Archives one after the other in a file are one.
    (tmp_path / "both").mkdir()
    both = (tmp_path / "0.tar").read_bytes() + (tmp_path / "1.tar").read_bytes()
    (tmp_path / "both" / "both.tar").write_bytes(both)
    of_both = all_rows(tmp_path / "both" / "both.tar", order="global", seed=3)
    of_folder = all_rows([tmp_path / "0.tar", tmp_path / "1.tar"], order="global", seed=3)
    assert sorted(of_both["index"]) == [*range(20)]
    assert of_both["index"] == of_folder["index"]
    assert np.array_equal(of_both["spectrogram"], of_folder["spectrogram"])
    with forebay.Loader([tmp_path / "0.tar", tmp_path / "1.tar"], **ONE_PASS) as loader:
        assert [shard["num_rows"] for shard in loader.shards] == [10, 10]
    (tmp_path / "both" / "both.tar").rename(tmp_path / "both" / "x.tar")
    assert len(all_rows(tmp_path / "both")["index"]) == 20


def test_a_manifest_of_members(tmp_path: Path) -> None:
    """As NeMo has it: rows name members, here with segments."""
    audio = [member for member in samples(6) if member[0].endswith("wav")]
    write_tar(tmp_path / "audio_0.tar", audio[:3])
    write_tar(tmp_path / "audio_1.tar", [("./" + name, data) for name, data in audio[3:]])
    lines = [
        {"audio_filepath": f"{i % 6:03}.wav", "offset": 0.001 * (i % 3), "duration": 0.01, "text": f"{i}"}
        for i in range(12)
    ]
    lines.append({"audio_filepath": "none.wav", "offset": 0.0, "duration": 1.0, "text": ""})
    (tmp_path / "manifest.json").write_text("\n".join(map(json.dumps, lines)))
    source = Manifest(tmp_path / "manifest.json", root=tmp_path / "audio_*.tar")
    write_recordings(tmp_path / "wav", 6)
    plain = [{**line, "audio_filepath": f"{i % 6:03} one.wav"} for i, line in enumerate(lines[:12])]
    expected = all_rows(Manifest(plain, root=tmp_path / "wav"), columns=["text"])
    with forebay.Loader(source, **ONE_PASS, columns=["text"]) as loader:
        batches = list(loader)
        (error,) = loader.errors()
    assert 'no archive has the member "none.wav"' in error["reason"]
    assert np.array_equal(np.concatenate([batch["spectrogram"] for batch in batches]), expected["spectrogram"])


def test_a_name_in_two_archives_is_no_place(tmp_path: Path) -> None:
    audio = [member for member in samples(2) if member[0].endswith("wav")]
    write_tar(tmp_path / "audio_0.tar", audio[:1])
    write_tar(tmp_path / "audio_1.tar", [(audio[0][0], audio[1][1])])
    source = Manifest([{"path": audio[0][0]}], root=tmp_path / "audio_*.tar")
    with pytest.raises(forebay.ConfigError, match=r"audio_0\.tar too, so it is not known which one"):
        forebay.Loader(source, **ONE_PASS)


def test_a_shar(tmp_path: Path) -> None:
    """Archives of recordings, beside cuts that name them without an ending."""
    audio = [(name.replace("wav", "WAV"), data) for name, data in samples(6) if name.endswith("wav")]
    write_tar(tmp_path / "recording.000000.tar", [*audio[:3], ("000.json", b"{}")])
    write_tar(tmp_path / "recording.000001.tar", audio[3:])
    cuts = [
        {
            "id": f"{i:03}", "start": 0, "duration": 1.0, "channel": 0, "type": "MonoCut",
            "recording": {"id": "r", "sources": [{"type": "shar", "channels": [0], "source": ""}]},
            "supervisions": [{"text": f"text {i}", "speaker": "x"}],
        }
        for i in (4, 1, 0, 5)
    ]  # fmt: skip
    (tmp_path / "cuts.jsonl").write_text("\n".join(map(json.dumps, cuts)))
    whole = all_rows([tmp_path / "recording.000000.tar", tmp_path / "recording.000001.tar"])["spectrogram"]
    found = all_rows(
        Manifest(tmp_path / "cuts.jsonl", root=tmp_path / "recording.*.tar"), columns=["supervisions.0.text"]
    )
    assert found["supervisions.0.text"] == ["text 4", "text 1", "text 0", "text 5"]
    assert np.array_equal(found["spectrogram"], [whole[i] for i in (4, 1, 0, 5)])
    packed = tmp_path / "cuts.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "cuts.jsonl").read_bytes()))
    again = all_rows(Manifest(packed, root=tmp_path / "recording.*.tar"), columns=["supervisions.0.text"])
    assert again["supervisions.0.text"] == found["supervisions.0.text"]
    assert np.array_equal(again["spectrogram"], found["spectrogram"])


def test_links_are_not_lost(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        data = samples(1)[0][1]
        info = tarfile.TarInfo("a.wav")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("b.wav")
        link.type, link.linkname = tarfile.LNKTYPE, "a.wav"
        tar.addfile(link)
    with pytest.raises(forebay.DecodeError, match="a link to a recording at byte"):
        forebay.Loader(tmp_path / "a.tar", **ONE_PASS)


def test_folders_of_archives(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.TAR", samples(3))
    assert len(all_rows(tmp_path)["index"]) == 3


@pytest.mark.parametrize(
    ("members", "changes", "told"),
    [
        ([("a.left.wav", b"x"), ("a.right.wav", b"y")], {}, 'path_column="right.wav"'),
        ([("a.wav", b"x"), ("a.wav", b"y")], {}, 'has "a.wav" twice'),
        ([("a.txt", b"x")], {}, "no member of the archive is a recording"),
        ([("a.wav", b"x")], {"columns": ["txt"]}, 'there is no column "txt"'),
        ([("a.wav", b"x"), ("a.json", b"{")], {"columns": ["x"]}, 'beside "a.wav" is not JSON'),
        ([("a.wav", b"x"), ("a.txt", bytes(2 << 20))], {"columns": ["txt"]}, "at most 1048576 are read as columns"),
    ],
)
def test_wrong_archives(members: Any, changes: Any, told: str, tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(forebay.ForebayError) as raised:
        forebay.Loader(tar, **ONE_PASS, **changes)
    assert told in str(raised.value)


def test_the_recording_is_chosen_by_its_ending(tmp_path: Path) -> None:
    rows = tiny_rows(4)
    members = [
        (f"{i}.{side}.wav", rows[2 * i + n].audio or b"") for i in range(2) for n, side in enumerate(("left", "right"))
    ]
    tar = write_tar(tmp_path / "a.tar", members)
    assert all_rows(Manifest(tar, path_column="right.wav"), outputs=["path"])["path"] == ["0.right.wav", "1.right.wav"]


def test_compressed_and_cut_archives(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", samples(10))
    packed = tmp_path / "packed.tar.gz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    with pytest.raises(forebay.ConfigError, match="unpack it first"):
        forebay.Loader(packed, **ONE_PASS)
    hidden = tmp_path / "hidden.tar"
    hidden.write_bytes(packed.read_bytes())
    with pytest.raises(forebay.ConfigError, match="gunzip"):
        forebay.Loader(hidden, **ONE_PASS)
    cut = tmp_path / "cut.tar"
    with tarfile.open(tar) as archive:
        at = archive.getmember("007.wav").offset_data
    cut.write_bytes(tar.read_bytes()[: at + 20])
    with forebay.Loader(cut, **ONE_PASS) as loader:
        assert "cut off" in (loader.shards[0]["damage"] or "")
        (batch,) = loader
        (error,) = loader.errors()
    assert batch["index"].tolist() == [*range(7)]
    assert (error["index"], error["kind"]) == (7, "truncated")
