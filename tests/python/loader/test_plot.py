"""`forebay.plot`: pictures of batches and traces, in which text from files is escaped."""

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ConfigError, Loader, plot
from forebay._jagged import JaggedArray
from forebay.features import Waveform
from recordings import SMALL, TINY

BATCH: dict[str, Any] = {
    "spectrogram": np.arange(3 * 8 * 20, dtype=np.float32).reshape(3, 8, 20),
    "label": np.array([0, 1, -1]),
    "path": ["a.ogg", "<script>alert(1)</script>", 'b".ogg'],
    "start": np.array([0.5, 1.25, 2.0]),
}


def images(picture: plot.Picture) -> list[np.ndarray]:
    """The pixels of the images."""
    found = []
    for data in re.findall(r'src="data:image/png;base64,([^"]+)"', picture.body):
        png = base64.b64decode(data)
        width, height = struct.unpack(">II", png[16:24])
        at = png.index(b"IDAT")
        size = struct.unpack(">I", png[at - 4 : at])[0]
        lines = np.frombuffer(zlib.decompress(png[at + 4 : at + 4 + size]), np.uint8).reshape(height, 1 + 3 * width)
        found.append(lines[:, 1:].reshape(height, width, 3))
    return found


def test_batch() -> None:
    picture = plot.batch(BATCH, 2, class_names=["owl", "wren"])
    shown = images(picture)
    assert [one.shape for one in shown] == [(8, 20, 3)] * 2
    # The loudest value is the last frame of the highest band, which is at the top.
    brightness = shown[1].astype(int).sum(axis=2)
    assert np.unravel_index(brightness.argmax(), brightness.shape) == (0, 19)
    assert "label: owl" in picture.body
    assert "label: wren" in picture.body
    assert "start: 1.25" in picture.body
    assert "<script" not in picture.body
    assert "&lt;script&gt;" in picture.body
    assert "label: -1" in plot.batch(BATCH).body


def test_other_fields_and_values() -> None:
    """A user may add fields, and features may be complex; an empty batch has no pictures."""
    with_more = BATCH | {"lr": 0.1, "more": None, "note": "text", "names": {"a": 1}, "few": np.ones(1)}
    with_more["jagged"] = JaggedArray.from_rows([np.arange(i) for i in (2, 0, 5)])
    assert "few: 1" in plot.batch(with_more).body
    complex_values = BATCH | {"spectrogram": BATCH["spectrogram"] * np.complex64(1j)}
    for one, other in zip(images(plot.batch(complex_values)), images(plot.batch(BATCH)), strict=True):
        assert (one == other).all()
    assert not images(plot.batch({"spectrogram": np.zeros((0, 8, 20), np.float32)}))


def test_padding_is_no_part_of_the_colors() -> None:
    """Colors are those of the signal alone, however much padding there is."""
    noise = np.random.default_rng(1).normal(0, 2, (2, 16, 50)).astype(np.float32)
    padded = np.concatenate([noise, np.full((2, 16, 150), -23.0, np.float32)], axis=2)
    alone, shown = images(plot.batch({"spectrogram": noise})), images(plot.batch({"spectrogram": padded}))
    for one, other in zip(alone, shown, strict=True):
        assert (one == other[:, :50]).all()
        assert (other[:, 50:] == other[0, 50]).all()
    silent = images(plot.batch({"spectrogram": np.full((1, 8, 20), -23.0, np.float32)}))
    assert (silent[0] == silent[0][0, 0]).all()


def test_hertz_and_seconds(tiny_shard: Path) -> None:
    """With the loader each picture has its seconds, its hertz and the names of its classes."""
    features = forebay.features
    for front, axes in (
        (None, "0.02 s, 0 to 4000 Hz in 8 mel bands"),
        (features.LogMel(sample_rate=8000, n_fft=64, hop_length=32, n_mels=4, f_min=50, f_max=3000, layout="time"),
         "0.02 s, 50 to 3000 Hz in 4 mel bands"),
        (features.Spectrogram(sample_rate=8000, n_fft=64, hop_length=32), "0.02 s, 0 to 4000 Hz"),
        (features.MFCC(sample_rate=8000, n_fft=64, hop_length=32, n_mels=8, n_mfcc=4), "0.02 s, 4 coefficients"),
        (features.Waveform(sample_rate=8000), "0.02 s at 8000 Hz"),
        ("icefall", "0.02 s, 20 to 7600 Hz in 80 mel bands"),
    ):  # fmt: skip
        given: dict[str, Any] = {**TINY} if front is None else {"clip_seconds": 0.02, "features": front}
        with Loader.eval(tiny_shard, batch_size=4, **given) as loader:
            batch = next(loader)
            page = plot.batch(batch, 2, loader=loader).body
            assert page.count(f"<p>{axes}") == 2, (axes, re.findall("<p>[^<]*", page))
            hertz = re.search(r"(\d+) to (\d+) Hz", axes)
            coefficients = ("0", "3") if "coefficients" in axes else ("", "")
            low, high = (f"{hertz[1]} Hz", f"{hertz[2]} Hz") if hertz else coefficients
            assert page.count(f'<div class="y"><b>{high}</b><b>{low}</b></div>') == 2
            assert len(re.findall(r'<div class="x"><b>0</b><b>0\.01\d*</b><b>0\.02\d* s</b></div>', page)) == 2
            assert "label: bird" in page
            assert "<p>0.02 s" not in plot.batch(batch, 2).body


def test_more_bands_than_frames(tiny_shard: Path) -> None:
    """The layout of the loader says which axis is the time."""
    pages = []
    for layout in ("mel", "time"):
        front = forebay.features.LogMel(sample_rate=8000, n_fft=256, hop_length=80, n_mels=24, layout=layout)
        with Loader.eval(tiny_shard, batch_size=4, clip_seconds=0.02, features=front) as loader:
            batch = next(loader)
            assert batch["spectrogram"].shape == ((4, 24, 3) if layout == "mel" else (4, 3, 24))
            pages.append(images(plot.batch(batch, 2, loader=loader)))
    assert [image.shape for image in pages[0]] == [(24, 3, 3)] * 2
    assert all((one == other).all() for one, other in zip(*pages, strict=True))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("spectrogram", np.zeros((3, 20)), r"\[3, 20\] and the type float64, must be numbers \[batch, bands, frames\]"),
        ("spectrogram", np.zeros((3, 8, 0)), r"\[3, 8, 0\] .*, must be numbers"),
        ("waveform", np.zeros(20, np.int16), r"\[20\] and the type int16, must be numbers \[batch, samples\]"),
        ("waveform", np.zeros((3, 0)), r"\[3, 0\] .*, must be numbers"),
        ("waveform", [["a", "b"]], "must be numbers"),
        ("waveform", None, r"\[\] and the type object, must be numbers"),
    ],
)
def test_fields_that_are_no_features(name: str, values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has the shape .*{message}"):
        plot.batch({name: values})


def test_labels_of_several_classes_have_names() -> None:
    label = np.array([[1, 0, 0.5], [0, 0, 0], [0, 1, 0]], np.float32)
    body = plot.batch(BATCH | {"label": label}, class_names=["owl", "wren", "jay"]).body
    assert "label: owl, jay<" in body
    assert "label: none<" in body
    assert "label: wren<" in body


@pytest.mark.parametrize("layout", ["mel", "time"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_batches_of_a_loader(tiny_shards: list[Path], layout: str, dtype: str) -> None:
    with Loader(tiny_shards, **SMALL | {"layout": layout, "dtype": dtype}) as loader:
        batch = next(loader)
    with Loader(tiny_shards, **SMALL) as loader:
        expected = images(plot.batch(next(loader), 4))
    for one, other in zip(images(plot.batch(batch, 4)), expected, strict=True):
        assert np.abs(one.astype(int) - other).max() <= (0 if dtype == "float32" else 8)


@pytest.mark.parametrize("layout", ["mel", "time"])
def test_packed_rows(layout: str) -> None:
    """Rows one after the other are those of a padded batch, in pictures too."""
    rows = [np.linspace(-5, 0, 40 * n, dtype=np.float32).reshape(n, 40) for n in (50, 20, 80)]
    padded = np.full((3, 80, 40), -5, np.float32)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    packed, offsets = np.concatenate(rows), np.array([0, 50, 70, 150], np.int32)
    if layout == "mel":
        packed, padded = packed.T.copy(), padded.transpose(0, 2, 1)
    found = plot.batch({"spectrogram": packed, "offsets": offsets})
    assert found._repr_html_() == plot.batch({"spectrogram": padded})._repr_html_()
    with pytest.raises(ConfigError, match="offsets end with 7"):
        plot.batch({"spectrogram": packed, "offsets": np.array([0, 7])})


def test_waveforms(tiny_shards: list[Path]) -> None:
    keep = {name: SMALL[name] for name in ("batch_size", "n_workers")}
    with Loader(
        tiny_shards, features=Waveform(sample_rate=8000), clip_seconds=0.5, shuffle_min_size=0, **keep
    ) as loader:
        assert len(images(plot.batch(next(loader), 3))) == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: plot.batch(BATCH, 0), ConfigError, "n is 0, must be 1 to 64"),
        (lambda: plot.batch([1]), TypeError, "batch is a list, must be a dict"),  # type: ignore[arg-type]
        (lambda: plot.batch({"x": np.zeros(3)}), ConfigError, "no field spectrogram or waveform, but x"),
        (lambda: plot.batch({"spectrogram": np.zeros((3, 4))}), ConfigError, r"has the shape \[3, 4\]"),
    ],
)
def test_wrong_batches(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_picture_in_a_terminal_is_one_line() -> None:
    shown = repr(plot.batch(BATCH))
    assert shown == "<forebay.plot.Picture: 3 examples of a batch; a notebook shows it, save(path) writes a page>"


def test_a_page_replaces_nothing(tmp_path: Path) -> None:
    picture = plot.batch(BATCH)
    picture.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert picture._repr_html_() in page
    assert '<meta name="color-scheme" content="light dark">' in page
    assert "default-src 'none'" in page
    with pytest.raises(FileExistsError):
        picture.save(tmp_path / "page.html")


def test_timeline_of_a_loader(tiny_shards: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Loader(tiny_shards, **SMALL) as loader:
        loader.trace(path, 0.2)
        while not path.exists():
            next(loader)
    picture = forebay.plot.timeline(path)
    names = re.findall(r'<th scope="row">([^<]+)</th>', picture.body)
    workers = [name for name in names if name.startswith("forebay-worker")]
    assert workers
    assert workers == sorted(workers)
    assert len(images(picture)) == len(names)


def test_timeline_shows_the_share_of_work(tmp_path: Path) -> None:
    def span(name: str, begin: float, length: float, thread: int = 1) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": 1, "tid": thread, "ts": begin * 1e6, "dur": length * 1e6}

    def named(thread: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}}

    events = [
        named(2, "<b>"),
        named(3, "forebay-io-1"),
        named(4, "forebay-io-2"),
        named(5, "collator"),
        span("read", 0.0, 0.4, 3),
        span("read", 0.0, 0.001, 4),
        span("batch", 0.0, 3.0, 5),
        span("wait for examples", 0.5, 2.0, 5),
        span("collate", 2.5, 0.5, 5),
        named(1, "worker"),
        span("decode", 0.0, 1.0),
        span("wait for records", 1.0, 2.0),
        span("decode", 3.0, 1.0),
        span("odd", 0.0, 4.0, 2),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    picture = plot.timeline(path)
    assert "<b>" not in picture.body
    assert "worker works 50% of the time" in picture.body
    assert "collator works 25% of the time" in picture.body  # without the wait within a batch
    assert "forebay-io-1 works 10% of the time" in picture.body
    assert "<p>1 more thread worked less than 0.5% of the time: forebay-io-2</p>" in picture.body
    names = re.findall(r'<th scope="row">([^<]+)</th>', picture.body)
    shown = dict(zip(names, images(picture), strict=True))
    other, worker = shown["&lt;b&gt;"], shown["worker"]
    assert (other == plot.OTHER).all()
    assert (worker[0, :199] == plot.COLORS["decode"]).all()
    assert (worker[0, 201:599] == plot.WAITING).all()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[[" * 100_000, '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": []}', "\x00\xff"]
)
def test_other_files_are_no_traces(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="trace"):
        plot.timeline(path)
