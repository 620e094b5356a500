"""`forebay.torch.Augment` beside a loader with the same steps: masks, warps, rolls, pairs and weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from augmenting import Draws, bits_of
from forebay import ConfigError, augment, crops, features
from forebay.augment import CutMix, FrameRoll, Gain, Mixup, Noise, OneOf, SpecAugment
from forebay.batching import Buckets
from forebay.sampling import Weighted
from padded import RATE, recordings
from tensors import needs_gpu

torch = pytest.importorskip("torch")

import forebay.torch  # noqa: E402
from forebay.torch import Augment, DevicePrefetcher, Features  # noqa: E402

MARK = -77.0
"""The value of masks, which no feature has."""

CROPS: dict[str, dict[str, Any]] = {
    "behind": {"crop": crops.Random(pad="behind"), "clip_seconds": 1.3},
    "both": {"crop": crops.Center(), "clip_seconds": 1.3},
    "front": {"crop": crops.Random(pad="front"), "clip_seconds": 1.3},
    "random": {"crop": crops.Random(pad="random"), "clip_seconds": 1.3},
    "whole": {"crop": crops.Whole(min_seconds=0.02)},
    "windows": {"crop": crops.Windows(step=0.35), "clip_seconds": 0.7},
    "remainder": {"crop": crops.Windows(step=0.35, end="remainder"), "clip_seconds": 0.7},
}
OF: dict[str, Any] = {
    "time": features.preset("icefall"),
    "mel": features.preset("whisper", n_frames=None),
    "relative": features.LogMel(sample_rate=RATE, normalization=features.ZScore()),
    "narrow": features.preset("icefall", dtype="float16"),
    "fixed": features.Fbank(n_frames=90),
}
STEPS: dict[str, list[Any]] = {
    "masks": [SpecAugment(20, 2, 30, 3, fill=MARK)],
    "shares": [SpecAugment(0.3, 2, 0.2, 2, fill=MARK, frames="all", p=0.5)],
    "mean": [SpecAugment(20, 2, 30, 2)],
    "minimum": [SpecAugment(20, 2, 30, 2, fill="minimum")],
    "warp": [SpecAugment(20, 1, 30, 9, max_share=0.15, warp=12, fill=MARK)],
    "several": [SpecAugment(20, 1, 20, 1), FrameRoll(p=0.7), SpecAugment(20, 1, 20, 1, fill=MARK, warp=5, p=0.6)],
    "one of": [OneOf([SpecAugment(20, 1, 20, 1, fill=MARK), FrameRoll()], weights=[2, 1], p=0.8)],
}
PAIRS: dict[str, list[Any]] = {
    "mixup": [Mixup(0.4)],
    "frames": [CutMix(1.0, p=0.7)],
    "box": [CutMix(1.0, part="box")],
    "all": [SpecAugment(20, 2, 30, 2), Mixup(0.4, p=0.6), CutMix(1.0, part="box", p=0.5)],
    "switch": [OneOf([Mixup(0.4), CutMix(1.0)])],
}

WAVEFORMS: dict[str, Any] = {
    "features": features.Waveform(sample_rate=RATE, dtype="int16"),
    "label_column": "",
    "outputs": ["augment_bits", "slot", "valid_samples"],
    "batch_size": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings(tmp_path_factory.mktemp("padded"))


def padding_of(crop: str) -> Any:
    return "excluded" if crop in ("whole", "remainder") else "included"


def batches(folder: Any, n: int = 3, **given: Any) -> list[dict[str, Any]]:
    """Batches of a loader in training."""
    common = {"label_column": "", "n_workers": 1, "batch_size": 4, "seed": 5}
    known = {name: value for name, value in {**common, **given}.items() if value is not None}
    with forebay.Loader(folder, **known) as loader:
        return [next(loader) for _ in range(n)]


def on_device(batch: dict[str, Any], steps: list[Any], of: Any, padding: Any) -> tuple[Any, Any, Augment]:
    """The features of a batch of waveforms, augmented; their draws."""
    module = Augment(steps, of, padding=padding)
    drawn = module.draw(batch)
    tensors = forebay.torch.to_tensors(drawn)
    valid, first = tensors.get("valid_samples"), None
    if padding == "included" and "start" in batch:
        seconds = -tensors["start"] * of.sample_rate
        first = seconds.round().long().clamp(min=0)
    made = Features(of, padding=padding)(tensors["waveform"], valid, first)
    return module(made, tensors["augment_draws"]), tensors["augment_draws"], module


def compared(folder: Any, steps: list[Any], of: Any, padding: Any, **given: Any) -> None:
    """Both sides of the bus, batch by batch."""
    outputs = ["augment_bits", "slot", "valid_samples", "start"]
    waveform = features.Waveform(sample_rate=of.sample_rate, dtype="int16")
    here = batches(folder, features=waveform, outputs=outputs, **given)
    there = batches(folder, features=of, outputs=outputs, augment=steps, **given)
    n_changed = 0
    for batch, expected in zip(here, there, strict=True):
        assert batch["augment_bits"].tolist() == expected["augment_bits"].tolist()
        found, draws, module = on_device(batch, steps, of, padding)
        assert (found.shape, found.numpy().dtype) == (expected["spectrogram"].shape, expected["spectrogram"].dtype)
        values = found.numpy().astype(np.float32)
        wanted = expected["spectrogram"].astype(np.float32)
        assert ((values == MARK) == (wanted == MARK)).all()
        tolerance = 1e-3 if found.dtype == torch.float32 else 2e-2
        assert np.abs(values - wanted).max() < tolerance
        plain = Features(of, padding=padding)(
            torch.from_numpy(batch["waveform"]), torch.from_numpy(batch["valid_samples"])
        )
        n_changed += int((plain != found).flatten(1).any(1).sum())
        if "mixup_weight" in expected:
            weight, partner = module.pairs(draws)
            assert weight.numpy().tobytes() == expected["mixup_weight"].tobytes()
            is_mixed = weight != 1
            other = np.where(is_mixed, batch["index"][partner], -1)
            assert other.tolist() == expected["mixup_index"].tolist()
    assert n_changed > 0


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("steps", STEPS)
def test_features_of_every_clip(steps: str, crop: str, folder: Path) -> None:
    of = OF["time" if crop in ("whole", "both", "remainder") else "mel"]
    if steps == "shares" and crop == "remainder":
        return  # on a device, all frames are those of the row's own samples
    compared(folder, STEPS[steps], of, padding_of(crop), **CROPS[crop])


@pytest.mark.parametrize("name", OF)
def test_every_form_of_features(name: str, folder: Path) -> None:
    for steps in (STEPS["masks"], STEPS["several"], PAIRS["all"]):
        compared(folder, steps, OF[name], "included", **CROPS["behind"])


def test_silence(folder: Path) -> None:
    by_frame: list[Any] = [
        OF["time"],
        features.LogMel(sample_rate=RATE, layout="mel", compression=features.Ln()),
        features.MFCC(sample_rate=RATE, n_mels=64, compression=features.Ln()),
    ]
    for of in by_frame:
        compared(folder, [SpecAugment(10, 2, 30, 2, fill="silence")], of, "included", **CROPS["behind"])
    with pytest.raises(ConfigError, match='fill="silence", and the features of a frame depend on the other frames'):
        Augment([SpecAugment(fill="silence")], OF["relative"])


@pytest.mark.parametrize("crop", ["behind", "both", "windows", "remainder"])
@pytest.mark.parametrize("steps", PAIRS)
def test_pairs_of_every_clip(steps: str, crop: str, folder: Path) -> None:
    """Of an odd number of rows, the last one stays as it is."""
    compared(folder, PAIRS[steps], OF["time"], padding_of(crop), batch_size=5, **CROPS[crop])


@pytest.mark.parametrize("given", [
    {"order": "window", "shuffle_min_size": 3, "shuffle_buffer_size": 6},
    {"order": "global"},
    {"seed": 2**64 - 1, "sampling": Weighted([3.0, 0.5, 1.0, 2.0])},
    {"n_workers": 3, "order": "sequential"},
], ids=["window", "global", "weights", "workers"])  # fmt: skip
def test_every_order(given: dict[str, Any], folder: Path) -> None:
    compared(folder, PAIRS["all"], OF["time"], "included", n=6, **CROPS["behind"], **given)


def test_a_substitute_has_its_own_bits(folder: Path, tmp_path: Path) -> None:
    """A bad record of an infinite run is replaced on both sides by the same row with the same draws."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "bad.wav").write_bytes((folder / "0.wav").read_bytes()[:40])
    compared(tmp_path, PAIRS["all"], OF["time"], "included", n=6, **CROPS["behind"])


def test_bad_records_of_a_finite_pass(folder: Path, tmp_path: Path) -> None:
    """Rows that a bad record leaves alone are not mixed, and those behind it keep their partners."""
    for copy in range(3):
        for file in folder.iterdir():
            (tmp_path / f"{copy}-{file.name}").write_bytes(file.read_bytes())
        (tmp_path / f"{copy}-bad.wav").write_bytes((folder / "0.wav").read_bytes()[:40])
    n = len(list(tmp_path.iterdir())) // 6
    given = {"infinite": False, "batch_size": 6, "order": "global", **CROPS["behind"]}
    compared(tmp_path, PAIRS["all"], OF["time"], "included", n=n, **given)
    slots = [
        batch["slot"].tolist()
        for batch in batches(tmp_path, n, features=features.Waveform(sample_rate=RATE), outputs=["slot"], **given)
    ]
    assert all(row == sorted(set(row)) and row[-1] < 6 for row in slots)
    assert sum(row != list(range(len(row))) for row in slots) > 0


@pytest.mark.parametrize("name", ["time", "mel", "relative", "narrow"])
@pytest.mark.parametrize("steps", ["masks", "several", "mean", "minimum"])
def test_packed_features(steps: str, name: str, folder: Path) -> None:
    """As a loader of packed features augments them."""
    of = OF[name]
    given = {"batching": Buckets(max_duration=6.0, num_buckets=2, packed=True), "batch_size": None, **CROPS["whole"]}
    waveform = features.Waveform(sample_rate=of.sample_rate, dtype="int16")
    module, compute = Augment(STEPS[steps], of), Features(of)
    n_masked = 0
    for batch, expected in zip(
        batches(folder, 3, features=waveform, outputs=["augment_bits"], **given),
        batches(folder, 3, features=of, augment=STEPS[steps], **given),
        strict=True,
    ):
        tensors = forebay.torch.to_tensors(module.draw(batch))
        made, offsets = compute(tensors["waveform"], offsets=tensors["offsets"])
        found = module(made, tensors["augment_draws"], offsets=offsets)
        assert offsets.tolist() == expected["offsets"].tolist()
        assert (found.shape, found.numpy().dtype) == (expected["spectrogram"].shape, expected["spectrogram"].dtype)
        values, wanted = found.numpy().astype(np.float32), expected["spectrogram"].astype(np.float32)
        assert ((values == MARK) == (wanted == MARK)).all()
        assert np.abs(values - wanted).max() < (1e-3 if found.dtype == torch.float32 else 2e-2)
        assert found.is_contiguous()
        n_masked += int((found != made).sum())
    assert n_masked > 0


def test_packed_features_of_channels(folder: Path) -> None:
    both = features.preset("icefall", channels="all", n_channels=1)
    module = Augment(STEPS["masks"], both)
    batching = Buckets(max_duration=6.0, num_buckets=1, packed=True)
    [batch] = batches(
        folder, 1, features=features.Waveform(sample_rate=RATE), batching=batching, batch_size=None,
        outputs=["augment_bits"], **CROPS["whole"],
    )  # fmt: skip
    tensors = forebay.torch.to_tensors(module.draw(batch))
    made, offsets = Features("icefall")(tensors["waveform"], offsets=tensors["offsets"])
    expected = Augment(STEPS["masks"], "icefall")(made, tensors["augment_draws"], offsets=offsets)
    found = module(made[None], tensors["augment_draws"], offsets=offsets)
    assert torch.equal(found[0], expected)
    none = torch.zeros(0, 80)
    assert module(none[None], tensors["augment_draws"][:0], offsets=torch.tensor([0])).shape == (1, 0, 80)


def test_channels(folder: Path) -> None:
    """Masks are the same in each channel, and each has its own mean."""
    both = features.preset("icefall", channels="all", n_channels=2)
    steps = [SpecAugment(20, 2, 30, 2), CutMix()]
    [batch] = batches(
        folder, 1, features=features.Waveform(sample_rate=RATE), outputs=["augment_bits", "slot", "valid_samples"],
        **CROPS["behind"],
    )  # fmt: skip
    one, draws, _ = on_device(batch, steps, OF["time"], "included")
    x = torch.from_numpy(batch["waveform"])
    made = Features(both, padding="included")(torch.stack([x, x], 1), torch.from_numpy(batch["valid_samples"]))
    found = Augment(steps, both, padding="included")(made, draws)
    assert torch.equal(found[:, 0], found[:, 1])
    torch.testing.assert_close(found[:, 0], one, rtol=0, atol=1e-4)


def test_views(folder: Path) -> None:
    """Views are rows of their own."""
    given = {"crop": crops.Views(3, crops.Random(pad="behind")), "clip_seconds": 1.3}
    steps, of = STEPS["masks"], OF["time"]
    outputs = ["augment_bits", "valid_samples"]
    [batch] = batches(folder, 1, features=features.Waveform(sample_rate=RATE), outputs=outputs, **given)
    [expected] = batches(folder, 1, features=of, augment=steps, **given)
    assert batch["augment_bits"].shape == (4, 3)
    module = Augment(steps, of, padding="included")
    drawn = forebay.torch.to_tensors(module.draw(batch))
    rows = {name: drawn[name].flatten(0, 1) for name in ("waveform", "valid_samples", "augment_draws")}
    made = Features(of, padding="included")(rows["waveform"], rows["valid_samples"])
    found = module(made, rows["augment_draws"]).reshape(4, 3, *made.shape[1:]).numpy()
    assert ((found == MARK) == (expected["spectrogram"] == MARK)).all()
    assert np.abs(found - expected["spectrogram"]).max() < 1e-3
    with pytest.raises(ConfigError, match=r"shape \[4, 3\], of crop=Views\(\), and Mixup mixes whole examples"):
        Augment([Mixup()], of).draw({**batch, "slot": np.arange(4)})


def test_bits_are_those_of_the_crop(folder: Path) -> None:
    """As docs/determinism.md defines them, and as `forebay.augment.apply` takes them."""
    for batch in batches(folder, 4, features="icefall", outputs=["augment_bits", "gain_db"], augment=[Gain((-6, 6))],
                         order="sequential", infinite=True, shuffle_min_size=0, **CROPS["behind"]):  # fmt: skip
        for bits, gain in zip(batch["augment_bits"].tolist(), batch["gain_db"], strict=True):
            assert Draws(bits % 2**64, "Gain").within(-6, 6) == gain
    first = batches(folder, 1, features="icefall", outputs=["augment_bits"], order="sequential", shuffle_min_size=0,
                    **CROPS["behind"])[0]  # fmt: skip
    expected = [bits_of(5, row) for row in first["index"].tolist()]
    assert [bits % 2**64 for bits in first["augment_bits"].tolist()] == expected


def test_targets(folder: Path) -> None:
    """Weights and partners make the targets that a loader mixes."""
    table = folder.parent / "table.csv"
    classes = ["a", "b", "a", "c"]
    rows = "".join(f"{folder / str(i)}.wav,{name}\n" for i, name in enumerate(classes))
    table.write_text("path,name\n" + rows)
    targets = {"many": forebay.targets.MultiHot("name", classes=["a", "b", "c"]),
               "label": forebay.targets.ClassIndex("name", classes=["a", "b", "c"])}  # fmt: skip
    given: dict[str, Any] = {"targets": targets, "label_column": None, "batch_size": 5, **CROPS["behind"]}
    source = forebay.Manifest(str(table))
    steps = [Mixup(0.4, p=0.7)]
    waveform = features.Waveform(sample_rate=RATE)
    for batch, expected in zip(
        batches(source, features=waveform, outputs=["augment_bits", "slot"], **given),
        batches(source, features="icefall", augment=steps, **given),
        strict=True,
    ):
        drawn = forebay.torch.to_tensors(Augment(steps, "icefall").draw(batch))
        weight, partner = Augment(steps, "icefall").pairs(drawn["augment_draws"])
        own = weight[:, None]
        mixed = own * drawn["many"] + (1 - own) * drawn["many"][partner]
        np.testing.assert_allclose(mixed.numpy(), expected["many"], rtol=0, atol=1e-7)
        assert drawn["label"][partner].tolist() == expected["label_b"].tolist()


def test_through_the_prefetcher(folder: Path) -> None:
    """`prepare` adds the draws, and a state resumes with the same."""
    module = Augment(PAIRS["all"], "icefall", padding="included")
    given = {**WAVEFORMS, **CROPS["behind"]}
    with forebay.Loader(folder, **given) as loader:
        prefetcher = DevicePrefetcher(loader, "cpu", prepare=module.draw)
        next(prefetcher)
        state = prefetcher.state_dict()
        expected = next(prefetcher)
        assert expected["augment_draws"].dtype == torch.float64
        prefetcher.load_state_dict(state)
        assert torch.equal(next(prefetcher)["augment_draws"], expected["augment_draws"])
    with forebay.Loader(folder, **given) as loader:
        loader.load_state_dict(state)
        batch = next(iter(forebay.torch.DataLoader(loader, device="cpu", prepare=module.draw)))
        assert torch.equal(batch["augment_draws"], expected["augment_draws"])


def test_packed_and_padded_batches_of_buckets(folder: Path) -> None:
    """Draws of packed rows are those of padded ones."""
    module = Augment(STEPS["masks"], "icefall")
    found = []
    for packed in (False, True):
        batching = Buckets(max_duration=8.0, num_buckets=1, packed=packed)
        [batch] = batches(
            folder, 1, features=features.Waveform(sample_rate=RATE), batching=batching, batch_size=None,
            outputs=["augment_bits"], **CROPS["whole"],
        )  # fmt: skip
        found.append(module.draw(batch)["augment_draws"])
    assert found[0].tobytes() == found[1].tobytes()


def test_one_graph(folder: Path) -> None:
    steps = [SpecAugment(20, 2, 30, 2, warp=5), FrameRoll(), *PAIRS["all"]]
    module = Augment(steps, "icefall", padding="included")
    [batch] = batches(folder, 1, features=features.Waveform(sample_rate=RATE), outputs=["augment_bits", "slot"],
                      **CROPS["behind"])  # fmt: skip
    drawn = forebay.torch.to_tensors(module.draw(batch))
    made = Features("icefall", padding="included")(drawn["waveform"]).requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    draws = drawn["augment_draws"]
    expected = module(made, draws)
    torch.testing.assert_close(compiled(made, draws), expected, rtol=0, atol=1e-5)
    expected.square().sum().backward()
    assert torch.isfinite(made.grad).all()
    assert made.grad.any()


def test_constants_stay_float32() -> None:
    steps = [SpecAugment(fill="silence")]
    module = Augment(steps, "icefall").half()
    assert module.silence.dtype == torch.float32
    assert torch.equal(module.silence, Augment(steps, "icefall").silence)
    assert module.state_dict() == {}
    assert repr(steps[0]) in repr(module)


def test_narrow_and_infinite_values() -> None:
    """A weight of 1 and of 0 copies; features keep their type."""
    module = Augment([CutMix(p=1.0)], "icefall", padding="included")
    bits = np.arange(6) * 12345
    batch = {"waveform": np.zeros((6, RATE), np.float32), "augment_bits": bits, "slot": np.arange(6)}
    draws = torch.from_numpy(module.draw(batch)["augment_draws"])
    x = torch.arange(6.0)[:, None, None].expand(6, 100, 80).clone()
    x[1] = torch.inf
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        found = module(x.to(dtype), draws)
        assert found.dtype == dtype
        assert not found.isnan().any()
        weight, _ = module.pairs(draws)
        assert torch.allclose((found[0] == 0).double().mean(), weight[0])


def test_what_is_refused(folder: Path) -> None:
    module = Augment([SpecAugment()], "icefall")
    batch = {"waveform": np.zeros((2, RATE), np.float32), "augment_bits": np.arange(2)}
    draws = torch.from_numpy(module.draw(batch)["augment_draws"])
    spectrogram = torch.zeros(2, 100, 80)
    with pytest.raises(
        ConfigError, match=r"steps has Gain, must be SpecAugment, .* on a device: give Gain to the loader"
    ):
        Augment([SpecAugment(), Gain()], "icefall")
    with pytest.raises(ConfigError, match=r"steps has Noise, must be"):
        Augment([OneOf([Noise(), SpecAugment()])], "icefall")
    with pytest.raises(ConfigError, match=r"steps has 65 steps, at most 64"):
        Augment([SpecAugment()] * 65, "icefall")
    with pytest.raises(ConfigError, match=r"front_end is a Waveform, must have frames"):
        Augment([SpecAugment()], "wav2vec2")
    with pytest.raises(TypeError, match=r"steps is SpecAugment\(.* must be a list of objects"):
        Augment(SpecAugment(), "icefall")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"steps is \(3,\) .* must be a list of objects of forebay.augment"):
        Augment([3], "icefall")
    with pytest.raises(ConfigError, match=r"batch has no 'augment_bits': a loader of waveforms gives it"):
        module.draw({"waveform": np.zeros((2, 9))})
    pairs = Augment([Mixup()], "icefall")
    with pytest.raises(ConfigError, match=r"""batch has no 'slot': .* and outputs=\["augment_bits", "slot"\]"""):
        pairs.draw(batch)
    with pytest.raises(ConfigError, match=r"slot has the shape \[3\], and augment_bits \[2\]"):
        pairs.draw({**batch, "slot": np.arange(3)})
    mixed = torch.from_numpy(pairs.draw({**batch, "slot": np.arange(2)})["augment_draws"])
    with pytest.raises(ConfigError, match=r"offsets is of packed features, and Mixup mixes rows of one shape"):
        pairs(spectrogram[0], mixed, offsets=torch.tensor([0, 40, 100]))
    with pytest.raises(ConfigError, match=r"features have the shape \[2, 100, 80\], must be \[total, n_mels\] beside"):
        module(spectrogram, draws, offsets=torch.tensor([0, 40, 100]))
    with pytest.raises(ConfigError, match=r"must rise from 0 to the 100 frames of the features"):
        module(spectrogram[0], draws, offsets=torch.tensor([0, 40, 99]))
    with pytest.raises(ConfigError, match=r"draws are of 2 rows, and features have 1"):
        module(spectrogram[0], draws, offsets=torch.tensor([0, 100]))
    with pytest.raises(ConfigError, match=r"valid_samples has the shape \[3\], and augment_bits \[2\]"):
        module.draw({**batch, "valid_samples": np.arange(3)})
    with pytest.raises(TypeError, match=r"batch is 3 .* must be a batch of a loader"):
        module.draw(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"augment_bits is \[1, 2\] .* must be an array or a tensor of numbers"):
        module.draw({**batch, "augment_bits": [1, 2]})
    with pytest.raises(TypeError, match=r"draws is torch.float32, must be a tensor of float64"):
        module(spectrogram, draws.float())
    with pytest.raises(ConfigError, match=r"draws has the shape \[2, 3\], must be \[batch, 14\]"):
        module(spectrogram, draws[:, :3])
    with pytest.raises(ConfigError, match=r"draws are of 1 rows, and features have 2"):
        module(spectrogram, draws[:1])
    with pytest.raises(ConfigError, match=r"features have the shape \[100, 80\], must be \[batch, n_frames, n_mels\]"):
        module(spectrogram[0], draws)
    with pytest.raises(TypeError, match=r"features is torch.int64, must be a tensor of float32"):
        module(spectrogram.long(), draws)
    with pytest.raises(TypeError, match=r"prepare is 3 .* must be a function of a batch"):
        DevicePrefetcher([batch], "cpu", prepare=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="prepare returned NoneType, must return the batch, a dict"):
        next(DevicePrefetcher([batch], "cpu", prepare=lambda _: None))  # type: ignore[arg-type, return-value]
    with forebay.Loader(folder) as loader, pytest.raises(ConfigError, match="prepare is for batches that are copied"):
        forebay.torch.DataLoader(loader, prepare=module.draw)
    with pytest.raises(ConfigError, match=r"outputs has \"augment_bit\", must be one of"):
        forebay.Loader(folder, outputs=["augment_bit"])


def test_numbers_out_of_range() -> None:
    """Claims of a batch are bounded by the clip."""
    module = Augment([SpecAugment(), Mixup()], "icefall", padding="included")
    bits = np.array([-1, 2**63 - 1, -(2**63)])
    batch = {"waveform": np.zeros((3, RATE), np.float32), "augment_bits": bits, "slot": np.array([2**63 - 1, 0, 5])}
    draws = torch.from_numpy(module.draw({**batch, "valid_samples": np.array([-5, 2**62, 100])})["augment_draws"])
    assert draws[:, 1].tolist() == [0, 100, 1]
    assert torch.isfinite(module(torch.ones(3, 100, 80), draws)).all()
    none = np.zeros(0, np.int64)
    empty = module.draw({"waveform": np.zeros((0, RATE)), "augment_bits": none, "slot": none})
    assert empty["augment_draws"].size == 0
    assert module(torch.ones(0, 100, 80), draws[:0]).shape == (0, 100, 80)


def test_fields_of_another_batch() -> None:
    """Fields that do not belong together are refused, and so are rows that were left out after the draw."""
    module = Augment([SpecAugment(), Mixup()], "icefall", padding="included")
    bits = np.arange(4)
    batch = {"waveform": np.zeros((4, RATE), np.float32), "augment_bits": bits, "slot": bits, "valid_samples": bits}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"start": np.zeros(2)}, r"start has the shape \[2\], and augment_bits \[4\]: they are of different batches"),
        ({"start": np.full(4, np.nan)}, r"start or speed has NaN or infinite numbers"),
        ({"waveform": np.zeros((2, RATE))}, r"waveform has the shape \[2, 16000\], and augment_bits \[4\]"),
        ({"slot": np.array([0, 1, 1, 2])}, "slot has negative or equal numbers, must be the places where"),
        ({"slot": np.array([-2, 1, 0, 2])}, "slot has negative or equal numbers, must be the places where"),
        ({"offsets": np.array([0, 10])}, r"offsets has the shape \[2\], must be \[5\], \[batch \+ 1\] of augment_bits"),
        ({"offsets": np.array([0, 9, 4, 12, RATE])}, "must rise from 0 to the 16000 samples of the waveforms"),
    ]
    for fields, message in wrong:
        with pytest.raises(ConfigError, match=message):
            module.draw({**batch, **fields})
    with pytest.raises(TypeError, match="augment_bits is an array of uint64, must be of int64, as a loader gives it"):
        module.draw({**batch, "augment_bits": bits.astype(np.uint64)})
    with pytest.raises(TypeError, match="augment_bits is an array of float64, must be of int64"):
        module.draw({**batch, "augment_bits": bits / 2})
    with pytest.raises(TypeError, match=r"waveform is \[0.0\] .* must be an array or a tensor"):
        module.draw({**batch, "waveform": [0.0]})
    draws = torch.from_numpy(module.draw(batch)["augment_draws"])
    keep = torch.tensor([0, 2])
    with pytest.raises(ConfigError, match="draws has a partner in row 3, and there are 2 rows: rows were left out"):
        module(torch.zeros(2, 100, 80), draws[keep])
    with pytest.raises(
        ConfigError, match=r"features have {'n_mels': 64}, and the front end of this Augment makes {'n_"
    ):
        module(torch.zeros(4, 100, 64), draws)
    fixed = Augment([SpecAugment()], "ast")
    with pytest.raises(ConfigError, match=r"features have .*'n_frames': 100}, and the front end .*'n_frames': 1024}"):
        fixed(torch.zeros(4, 100, 128), torch.from_numpy(fixed.draw(batch)["augment_draws"]))


def test_speed_and_zeros_in_front(folder: Path) -> None:
    """With the output `speed` the masks are those of a loader with `Speed`."""
    steps, of = STEPS["masks"], OF["time"]
    module = Augment(steps, of, padding="included")
    speed = augment.Speed((0.9, 1.1), p=0.7)
    given: dict[str, Any] = CROPS["front"]
    outputs = ["augment_bits", "valid_samples", "start", "speed"]
    waveform = features.Waveform(sample_rate=RATE)
    here = batches(folder, 4, features=waveform, outputs=outputs, augment=[speed], **given)
    there = batches(folder, 4, features=of, augment=[speed, *steps], **given)
    for batch, expected in zip(here, there, strict=True):
        drawn = forebay.torch.to_tensors(module.draw(batch))
        found = module(Features(of)(drawn["waveform"]), drawn["augment_draws"])
        assert ((found.numpy() == MARK) == (expected["spectrogram"] == MARK)).all()


def test_apply_takes_the_bits(folder: Path) -> None:
    """`forebay.augment.apply` with a row's bits masks as the device does."""
    steps, of = STEPS["masks"], OF["time"]
    [batch] = batches(folder, 1, features=features.Waveform(sample_rate=RATE), outputs=["augment_bits"],
                      crop=crops.Random(), clip_seconds=0.5)  # fmt: skip
    found, _, _ = on_device(batch, steps, of, "included")
    for row, bits, values in zip(batch["waveform"], batch["augment_bits"].tolist(), found.numpy(), strict=True):
        made = augment.apply(steps, row, RATE, seed=bits % 2**64, features=of)
        assert ((made == MARK) == (values == MARK)).all()


@needs_gpu
def test_cuda(folder: Path) -> None:
    steps = [SpecAugment(20, 2, 30, 2, warp=5), *PAIRS["all"]]
    module = Augment(steps, "icefall", padding="included").to("cuda")
    compute = Features("icefall", padding="included").to("cuda")
    given = {**WAVEFORMS, **CROPS["behind"]}
    with forebay.Loader(folder, **given) as loader:
        batch = next(DevicePrefetcher(loader, "cuda", prepare=module.draw))
        found = module(compute(batch["waveform"], batch["valid_samples"]), batch["augment_draws"]).cpu()
    expected = Augment(steps, "icefall", padding="included")(
        Features("icefall", padding="included")(batch["waveform"].cpu(), batch["valid_samples"].cpu()),
        batch["augment_draws"].cpu(),
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    with pytest.raises(ConfigError, match="augment_bits is on cuda:0, must be on the CPU: draw before the copy"):
        module.draw(batch)
