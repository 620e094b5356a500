"""`forebay.torch.Features` beside the Rust front end and loaders; compiled, exported, differentiated."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import device_features
import forebay
from device_features import in_onnx, in_torch
from drawn_front_ends import CLASSES, drawn, known
from forebay import ConfigError, crops, features
from forebay.batching import Buckets
from padded import OBJECTS, batches, objects, recordings
from tensors import needs_gpu

torch = pytest.importorskip("torch")

import forebay.torch  # noqa: E402
from forebay.torch import Features  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings(tmp_path_factory.mktemp("padded"))


def noise(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(1).normal(0, 0.1, shape).astype(np.float32))


def test_presets_on_golden_clips() -> None:
    """The errors are those of docs/features.md."""
    device_features.check("torch", in_torch)


def test_every_preset_is_compared() -> None:
    """The golden clips have all but the one that is the waveform itself."""
    others = features.presets().keys() - device_features.clips("presets").keys()
    assert others == {"birdnet"}
    x = noise(3, 48_000)
    assert np.array_equal(Features("birdnet")(x).numpy(), features.preset("birdnet")(x.numpy()))


NAMES = ["birdset", "birdmae", "perch", "nemo", "whisper", "wav2vec2"]
"""Presets with each kind of step."""


@pytest.mark.parametrize("dft", ["fft", "matmul"])
def test_single_parameters_on_golden_clips(dft: str) -> None:
    for name, clips in device_features.clips("traps").items():
        if dft == "matmul" and clips[0].parameters.get("n_fft", 0) > 4096:
            continue
        for found in device_features.errors(clips, lambda of, x: in_torch(of, x, dft=dft)):
            assert all(error <= limit for error, limit in zip(found, (5e-5, 2e-4, 5e-4), strict=True)), (name, found)


@pytest.mark.parametrize("kind", ["Spectrogram", "LogMel", "Fbank", "MFCC"])
def test_any_parameters(kind: str, soak: int) -> None:
    n_compared = 0
    for given, waveform in drawn(kind, 150 * soak):
        if kind == "Spectrogram":
            # The clips of a few samples have bins without energy, whose logarithms are those of rounding errors.
            given |= {"compression": None, "normalization": None}
        of = CLASSES[kind].from_dict(known(kind, given))
        expected, [found] = of(waveform), in_torch(of, [waveform])
        assert found.shape == expected.shape, given
        if not found.size:
            continue
        if given["normalization"] == {"type": "MinMax"} and np.ptp(expected) < 1e-3:
            continue  # rounding errors become 0 or 1
        spread = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3 * spread, err_msg=str(given))
        n_compared += 1
    assert n_compared > 50


@pytest.mark.parametrize("crop", ["whole", "center", "behind"])
@pytest.mark.parametrize("name", OBJECTS)
def test_padded_batches_equal_a_loader(name: str, crop: str, folder: Path) -> None:
    """Recordings of four lengths: what a loader makes of them, and a module of the loader's waveforms."""
    of = objects()[name]
    waveforms, expected = batches(folder, of, crop, "int16")
    module = Features(of, padding="excluded" if crop == "whole" else "included")
    first = None
    if crop == "center":
        first = torch.from_numpy(np.maximum(0, np.rint(-waveforms["start"] * of.sample_rate)).astype(np.int64))
    samples, valid = torch.from_numpy(waveforms["waveform"]), torch.from_numpy(waveforms["valid_samples"])
    assert len(set(valid.tolist())) > 2
    found = module(samples, valid, first)
    assert found.shape == expected.shape
    assert np.abs(found.numpy() - expected).max() < 1e-3
    # What lies in the padding does not matter.
    begin = (torch.zeros_like(valid) if first is None else first)[:, None]
    places = torch.arange(samples.shape[1])[None]
    inside = (places >= begin) & (places < begin + valid[:, None])
    garbage = torch.where(inside, samples / 32768, torch.nan)
    assert torch.equal(module(garbage, valid, first), found)


def test_padding_has_its_value(folder: Path) -> None:
    of = features.preset("icefall")
    waveforms, expected = batches(folder, of, "whole", "int16", pad_value=-1.5)
    given = torch.from_numpy(waveforms["waveform"]), torch.from_numpy(waveforms["valid_samples"])
    found = Features("icefall", pad_value=-1.5)(*given)
    assert (found == -1.5).sum() == (expected == -1.5).sum() > 80
    assert np.abs(found.numpy() - expected).max() < 1e-3


def test_shapes_of_buckets(folder: Path) -> None:
    """With `pad_to="bucket"` one graph for each bucket serves all batches, through the prefetcher."""
    of = features.preset("icefall")
    batching = Buckets(max_duration=4.0, duration_bins=[0.5, 1.5, 2.0], pad_to="bucket", max_examples=2)
    module = Features(of)
    n_graphs = 0

    def backend(graph: Any, _inputs: Any) -> Any:
        nonlocal n_graphs
        n_graphs += 1
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=False, backend=backend)
    shapes_found = set()
    with forebay.Loader(
        folder, features=features.Waveform(sample_rate=of.sample_rate, dtype="int16"), batching=batching,
        crop=crops.Whole(min_seconds=0.02), label_column="", n_workers=1,
    ) as loader:  # fmt: skip
        batches = forebay.torch.DevicePrefetcher(loader, "cpu")
        for _ in range(24):
            batch = next(batches)
            samples, valid = batch["waveform"], batch["valid_samples"]
            assert samples.dtype == torch.int16
            shapes_found.add(tuple(samples.shape))
            torch.testing.assert_close(compiled(samples, valid), module(samples, valid), rtol=0, atol=1e-4)
    assert len({shape[1] for shape in shapes_found}) <= 3
    assert 1 < n_graphs <= len(shapes_found) <= 6


PACKED: dict[str, Any] = {
    "time": features.preset("icefall"),
    "mel": features.preset("nemo"),
    "range": features.preset("whisper", n_frames=None, layout="time"),
    "waveform": features.preset("wav2vec2"),
    "channels": features.preset("icefall", channels="all", n_channels=1),
    "mean": features.MFCC(sample_rate=16_000, n_mels=64),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_batches_equal_a_loader(name: str, folder: Path) -> None:
    """Rows one after the other, as `Buckets(packed=True)` gives waveforms and features."""
    of = PACKED[name]
    field = "waveform" if isinstance(of, features.Waveform) else "spectrogram"
    found = []
    for front_end in (features.Waveform(sample_rate=of.sample_rate, dtype="int16", channels=of.channels,
                                        n_channels=of.n_channels), of):  # fmt: skip
        with forebay.Loader(
            folder, features=front_end, crop=crops.Whole(min_seconds=0.01), seed=2, label_column="", n_workers=1,
            batching=Buckets(max_duration=3.0, num_buckets=2, packed=True),
        ) as loader:  # fmt: skip
            found.append([next(loader) for _ in range(3)])
    for batch, expected in zip(*found, strict=True):
        samples, offsets = torch.from_numpy(batch["waveform"]), torch.from_numpy(batch["offsets"])
        made, ends = Features(of)(samples, offsets=offsets)
        assert ends.dtype == torch.int32
        assert ends.tolist() == expected["offsets"].tolist()
        assert made.shape == expected[field].shape
        assert np.abs(made.numpy() - expected[field]).max() < 1e-3
        assert made.is_contiguous()


def test_packed_rows_without_samples() -> None:
    x = noise(8000)
    made, ends = Features("icefall")(x, offsets=torch.tensor([0, 0, 5000, 5000, 8000]))
    expected = [Features("icefall")(x[:5000]), Features("icefall")(x[5000:])]
    assert ends.tolist() == [0, 0, len(expected[0]), len(expected[0]), len(made)]
    torch.testing.assert_close(made, torch.cat(expected), rtol=0, atol=1e-4)
    made, ends = Features("icefall")(noise(0), offsets=torch.tensor([0]))
    assert (made.shape, ends.tolist()) == ((0, 80), [0])
    x.requires_grad_()
    Features("icefall")(x, offsets=torch.tensor([0, 8000]))[0].sum().backward()
    assert torch.isfinite(x.grad).all()


def test_packed_batches_that_are_refused() -> None:
    module, x = Features("icefall"), noise(8000)
    ends = torch.tensor([0, 8000])
    with pytest.raises(
        ConfigError, match="valid_samples and first_valid are of padded rows, and offsets of packed ones"
    ):
        module(x, ends[1:], offsets=ends)
    with pytest.raises(ConfigError, match='offsets is for recordings of their own lengths, with padding="excluded"'):
        Features("icefall", padding="included")(x, offsets=ends)
    with pytest.raises(ConfigError, match="a front end without n_frames"):
        Features("birdmae")(x, offsets=ends)
    for wrong in ([0, 7999], [1, 8000], [0, 5000, 4000, 8000], []):
        with pytest.raises(ConfigError, match="must rise from 0 to the 8000 samples of the waveforms"):
            module(x, offsets=torch.tensor(wrong, dtype=torch.int64))
    with pytest.raises(ConfigError, match=r"offsets begins with \[5\] and ends with \[8000\], must rise from 0"):
        module(x, offsets=torch.tensor([5, 8000]))
    with pytest.raises(ConfigError, match=r"offsets has the shape \[\], must be \[batch \+ 1\]"):
        module(x, offsets=torch.tensor(3))
    with pytest.raises(TypeError, match=r"offsets is \[0, 8000\] .* must be a tensor of int32 or int64"):
        module(x, offsets=[0, 8000])
    with pytest.raises(ConfigError, match=r"waveform has the shape \[1, 1, 8000\], must be \[total\] or"):
        module(x[None, None], offsets=ends)
    with pytest.raises(TypeError, match="waveform is ndarray, must be a tensor"):
        module(x.numpy(), offsets=ends)


def test_rows_without_samples() -> None:
    for name in ("icefall", "nemo", "birdmae", "perch", "wav2vec2"):
        module = Features(name)
        found = module(noise(2, 64_000), torch.tensor([64_000, 0]))
        assert torch.isfinite(found).all()
        # Products of other shapes round differently.
        assert torch.allclose(found[:1], module(noise(2, 64_000)[:1]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", features.presets())
def test_samples_of_other_types(name: str) -> None:
    module = Features(name)
    rng = np.random.default_rng(0)
    integers = torch.from_numpy(rng.integers(-20_000, 20_000, (2, 30_000)).astype(np.int16))
    assert torch.equal(module(integers), module(integers.float() / 32768))
    halves = (integers.float() / 32768).half()
    assert torch.equal(module(halves), module(halves.float()))
    assert torch.equal(module(halves.double()), module(halves.float()))


def test_channels() -> None:
    x = noise(3, 2, 8000)
    mean, second = features.preset("icefall"), features.preset("icefall", channels=1)
    both = features.preset("icefall", channels="all", n_channels=2)
    assert torch.equal(Features(both)(x)[:, 1], Features(mean)(x[:, 1]))
    assert torch.equal(Features(second)(x), Features(mean)(x[:, 1].contiguous()))
    assert torch.equal(Features(mean)(x), Features(mean)(x.mean(1)))
    assert torch.equal(Features(mean)(x[0, 0]), Features(mean)(x[:1, 0])[0])
    valid = torch.tensor([8000, 5000, 3000])
    assert torch.equal(Features(both)(x, valid)[:, 0], Features(mean)(x[:, 0].contiguous(), valid))
    assert Features(both)(x).shape[1:] == Features(both).shape(8000)


def test_constants_stay_float32() -> None:
    """`half()` and autocast change no value; no state dict has the constants; a copy on the meta device works."""
    x = noise(2, 16_000)
    for name in ("birdset", "beats", "wav2vec2"):
        module = Features(name)
        expected = module(x)
        assert module.state_dict() == {}
        assert torch.equal(Features(name).half()(x), expected)
        assert torch.equal(Features(name).to(torch.bfloat16)(x), expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(module(x), expected)
    narrow = Features(features.preset("birdset", dtype="float16")).half()(x)
    assert narrow.dtype == torch.float16
    assert torch.equal(narrow, Features("birdset")(x).half())
    assert repr(features.preset("birdset")) in repr(Features("birdset"))


def test_constants_survive_the_meta_device() -> None:
    """A model made there, or emptied, has them again after `to_empty`; FSDP then calls `reset_parameters`."""
    with torch.device("meta"):
        made = [Features("icefall"), forebay.torch.Augment([], "icefall")]
    expected = [Features("icefall"), forebay.torch.Augment([], "icefall")]
    models = torch.nn.Sequential(*made), torch.nn.Sequential(*expected).to("meta"), torch.nn.Sequential(*expected)
    for model in models:
        model.to_empty(device="cpu")
        for module, like in zip(model, (Features("icefall"), forebay.torch.Augment([], "icefall")), strict=True):
            found, wanted = dict(module.named_buffers()), dict(like.named_buffers())
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    module = Features("icefall")
    window = module.window.clone()
    module.window.zero_()
    module.reset_parameters()
    assert torch.equal(module.window, window)


@pytest.mark.parametrize("name", ["beats", "wenet"])
def test_a_quiet_frame_beside_a_large_mean(name: str) -> None:
    """Samples of a quiet frame keep their digits, whatever the mean of the clip is."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0.2, 0.1, 16_000), rng.normal(0, 1e-6, 16_000)]).astype(np.float32)
    rust, found = features.preset(name)(x), Features(name)(torch.from_numpy(x)).numpy()
    assert np.abs(found - rust)[110:].max() < 1e-3


def test_narrow_types_equal_the_rust_front_end() -> None:
    x = noise(16_000)
    bits = features.LogMel(dtype="bfloat16")(x.numpy())
    found = Features(features.LogMel(dtype="bfloat16"))(x)
    assert found.dtype == torch.bfloat16
    assert (found.view(torch.int16) != torch.from_numpy(bits.view(np.int16))).float().mean() < 1e-3
    loud = features.Waveform(dtype="int16", normalize_waveform="peak", peak=2.0)
    assert np.abs(Features(loud)(x).numpy().astype(int) - loud(x.numpy())).max() <= 1
    half = features.Waveform(dtype="float16", scale=2.0**20)
    assert (Features(half)(x).numpy() == half(x.numpy())).all()


def test_not_a_number_stays() -> None:
    """Values that are NaN are those of the Rust front end."""
    x = noise(2, 16_000)
    x[0, 8000] = torch.nan
    for name in features.presets():
        rust = features.preset(name)(x.numpy())
        found = Features(name)(x).numpy()
        assert (np.isnan(found) == np.isnan(rust)).all(), name
        assert (np.isinf(found) == np.isinf(rust)).all(), name
        assert np.isnan(found[0]).any()
        assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("name", features.presets())
def test_gradients(name: str) -> None:
    """Finite, also of silence and of padding, and not 0 for noise; padding has none."""
    x = noise(3, 24_000)
    x[1] = 0
    x.requires_grad_()
    Features(name)(x, torch.tensor([24_000, 24_000, 12_000])).square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[0] != 0).float().mean() > 0.9
    assert not x.grad[2, 12_000:].any()


SMALL: dict[str, Any] = {"sample_rate": 8000, "n_fft": 64, "hop_length": 32, "n_mels": 6}
COMPRESSIONS: list[Any] = [
    features.Ln(eps=1e-3),
    features.Decibel(top_db=40.0),
    features.PCEN(),
    features.PCEN(bias=0.0),
]


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=repr)
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_gradients_are_differences(compression: Any, power: float) -> None:
    normalized = features.ZScore(per="band", eps=0.1)
    of = features.LogMel(
        **SMALL, power=power, compression=compression, normalization=normalized, normalize_waveform="zscore",
        preemphasis=0.97,
    )  # fmt: skip
    module = Features(of)
    x, weights = noise(1, 400).requires_grad_(), noise(6, 13)
    (module(x)[0] * weights).sum().backward()
    direction = x.grad / x.grad.norm()
    step = 1e-3

    def at(distance: float) -> float:
        return float((module(x.detach() + distance * direction)[0].double() * weights).sum())

    slope = (at(step) - at(-step)) / (2 * step)
    assert slope == pytest.approx(float(x.grad.norm()), rel=0.02)


@pytest.mark.parametrize("name", features.presets())
def test_one_graph(name: str) -> None:
    """`torch.compile(fullgraph=True)`, for a batch with and without padding."""
    torch.compiler.reset()  # more than eight graphs of one function are refused
    module, x, valid = Features(name), noise(2, 16_000), torch.tensor([16_000, 9000])
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=1e-4)
    torch.testing.assert_close(compiled(x, valid), module(x, valid), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_compiled_by_inductor() -> None:
    torch.compiler.reset()
    module, x, valid = Features("nemo"), noise(2, 16_000), torch.tensor([16_000, 9000])
    compiled = torch.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(x, valid), module(x, valid), rtol=0, atol=1e-3)


def shapes(*, with_valid: bool) -> tuple[Any, ...]:
    """Batches of any number of rows, waveforms of any length from 8000 samples on."""
    batch, n_samples = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("n_samples", min=8000, max=1 << 22)
    return ({0: batch, 1: n_samples}, {0: batch}) if with_valid else ({0: batch, 1: n_samples},)


@pytest.mark.parametrize("with_valid", [False, True])
@pytest.mark.parametrize("name", features.presets())
def test_export(name: str, with_valid: bool) -> None:
    """One program for any number of rows and any length."""
    module = Features(name)
    given = (noise(2, 30_000), torch.tensor([30_000, 20_000]))[: 1 + with_valid]
    program = torch.export.export(module, given, dynamic_shapes=shapes(with_valid=with_valid))
    other = (noise(3, 12_345), torch.tensor([12_345, 8000, 9876]))[: 1 + with_valid]
    assert torch.equal(program.module()(*other), module(*other))


@pytest.mark.parametrize("name", NAMES)
def test_export_of_one_row(name: str) -> None:
    """One waveform at a time, of any length, as a server takes them."""
    module = Features(name)
    n_samples = torch.export.Dim("n_samples", min=8000, max=1 << 22)
    program = torch.export.export(module, (noise(1, 30_000),), dynamic_shapes=({1: n_samples},))
    assert torch.equal(program.module()(noise(1, 12_345)), module(noise(1, 12_345)))


@pytest.mark.filterwarnings("ignore:# The axis name")
def test_presets_in_onnx() -> None:
    """The errors of onnxruntime on the golden clips are those of docs/features.md."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    device_features.check("ONNX", in_onnx)


@pytest.mark.filterwarnings("ignore:# The axis name")
@pytest.mark.parametrize("dft", ["auto", "matmul"])
@pytest.mark.parametrize("name", NAMES)
def test_onnx(name: str, dft: Any, tmp_path: Path) -> None:
    """One file for any number of rows and any length, with onnxruntime on the CPU."""
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    module = Features(name, dft=dft).eval()
    given = noise(2, 30_000), torch.tensor([30_000, 20_000])
    path = tmp_path / "features.onnx"
    torch.onnx.export(
        module, given, path, dynamo=True, dynamic_shapes=shapes(with_valid=True), verbose=False, external_data=False
    )
    session = onnxruntime.InferenceSession(path)
    other = noise(3, 12_345), torch.tensor([12_345, 8000, 9876])
    names = [given.name for given in session.get_inputs()]
    [found] = session.run(None, dict(zip(names, (array.numpy() for array in other), strict=True)))
    np.testing.assert_allclose(found, module(*other).numpy(), rtol=0, atol=1e-3)


def test_what_is_refused() -> None:
    module = Features("icefall")
    with pytest.raises(ConfigError, match=r"preset is 'icefal', must be one of .* did you mean 'icefall'"):
        Features("icefal")
    with pytest.raises(TypeError, match=r"front_end is 3 .* must be an object of forebay.features"):
        Features(3)
    with pytest.raises(ConfigError, match='dft is \'dct\', must be "auto", "fft" or "matmul"'):
        Features("icefall", dft="dct")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='dft is "matmul", which takes an n_fft of at most 4096, and n_fft is 8192'):
        Features(features.LogMel(n_fft=8192), dft="matmul")
    with pytest.raises(ConfigError, match='padding is \'both\', must be "excluded" or "included"'):
        Features("icefall", padding="both")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pad_value is nan, must be a number"):
        Features("icefall", pad_value=float("nan"))
    with pytest.raises(TypeError, match=r"pad_value is 'x' .* must be a float or None"):
        Features("icefall", pad_value="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='pad_value is for padding="excluded"'):
        Features("icefall", pad_value=0.0, padding="included")
    with pytest.raises(TypeError, match=r"waveform is torch.int32, must be a tensor of float32"):
        module(noise(2, 8000).int())
    with pytest.raises(TypeError, match=r"waveform is ndarray, must be a tensor of float32"):
        module(noise(2, 8000).numpy())
    with pytest.raises(ConfigError, match=r"waveform has the shape \[1, 1, 1, 9\], must be \[n_samples\], \[batch"):
        module(noise(1, 1, 1, 9))
    with pytest.raises(ConfigError, match=r"shape \[9\], must be \[channels, n_samples\] or \[batch, channels"):
        Features(features.preset("icefall", channels="all"))(noise(9))
    with pytest.raises(ConfigError, match="waveform has 2 channels, and n_channels is 3"):
        Features(features.preset("icefall", channels="all", n_channels=3))(noise(2, 9))
    with pytest.raises(ConfigError, match="waveform has 2 channels, and channels=2 asks for one with a higher number"):
        Features(features.preset("icefall", channels=2))(noise(1, 2, 9))
    with pytest.raises(ConfigError, match="waveform has 1 channels, and channels=2 asks for one with a higher number"):
        Features(features.preset("icefall", channels=2))(noise(1, 9))
    with pytest.raises(ConfigError, match=r"waveform has the shape \[2, 0, 9\], of no channels, must have 1 or more"):
        module(noise(2, 0, 9))
    with pytest.raises(TypeError, match=r"valid_samples is \[1, 2\] .* must be a tensor of int64"):
        module(noise(2, 8000), [1, 2])
    with pytest.raises(ConfigError, match=r"valid_samples has the shape \[3\], must be \[batch\] .* \[2, 8000\]"):
        module(noise(2, 8000), torch.tensor([1, 2, 3]))
    with pytest.raises(ConfigError, match='first_valid needs valid_samples and padding="included"'):
        module(noise(2, 8000), torch.tensor([1, 2]), torch.tensor([1, 2]))


def test_empty_batches() -> None:
    both = features.preset("icefall", channels="all", n_channels=2)
    assert Features(both)(noise(0, 2, 8000)).shape == (0, 2, 50, 80)
    assert Features("birdmae")(noise(0, 8000), torch.zeros(0, dtype=torch.int64)).shape == (0, 512, 128)
    for of in (features.preset("wav2vec2"), features.preset("icefall"), features.preset("nemo")):
        assert Features(of)(noise(3, 0)).shape == (3, *of.shape(0))
    filled = Features("birdmae")(noise(1, 0))[0].numpy()
    np.testing.assert_allclose(filled, features.preset("birdmae")(noise(0).numpy()), rtol=0, atol=1e-4)


def test_a_peak_is_that_of_numbers() -> None:
    x = noise(16_000)
    x[8000] = torch.nan
    of = features.Waveform(normalize_waveform="peak")
    np.testing.assert_allclose(Features(of)(x).numpy(), of(x.numpy()), rtol=1e-6)


def test_short_waveforms() -> None:
    """Without a frame there is none, as in the Rust front end."""
    for of in (features.Fbank(), features.LogMel(center=False), features.Fbank(n_frames=3, fill="minimum")):
        for n in (1, 100, 399, 400, 1024):
            x = noise(n)
            found = Features(of)(x).numpy()
            assert found.shape == of.shape(n)
            np.testing.assert_allclose(found, of(x.numpy()), rtol=0, atol=1e-3)


@needs_gpu
def test_cuda() -> None:
    """The errors on the golden clips, in one graph, and through the prefetcher."""

    def on_gpu(of: Any, waveforms: Any) -> Any:
        on_device = Features(of).to("cuda")
        return [on_device(torch.from_numpy(waveform).cuda()).cpu().numpy() for waveform in waveforms]

    device_features.check("torch", on_gpu)
    module = torch.compile(Features("birdset").to("cuda"), fullgraph=True)
    batch: list[dict[str, Any]] = [{"waveform": np.zeros((2, 32_000), np.int16)}]
    for moved in forebay.torch.DevicePrefetcher(batch, "cuda"):
        assert module(moved["waveform"]).device.type == "cuda"
