"""Targets and columns in torch: tensors of numbers, lists of text, jagged arrays of tensors."""

import warnings
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import forebay
from digests import digest
from fields import ONE_PASS, N, rows, table, write
from forebay import targets
from forebay._jagged import JaggedArray
from forebay.batching import Buckets
from tensors import needs_gpu
from utterances import write_utterances

torch = pytest.importorskip("torch")

import forebay.torch  # noqa: E402
from forebay import _device  # noqa: E402
from forebay.torch import DataLoader, DevicePrefetcher, IterableDataset, to_tensors  # noqa: E402

GIVEN: dict[str, Any] = {
    **ONE_PASS,
    "features": forebay.features.LogMel(sample_rate=8000, n_fft=64, hop_length=32, n_mels=8, dtype="bfloat16"),
    "targets": {
        "label": targets.MultiHot("labels", classes=5),
        "votes": targets.Soft("votes", size=2, dtype="float16"),
        "x": targets.Number("x", null=0),
        "clean": targets.Number("clean", dtype="bool"),
        "text": targets.Text("text"),
    },
    "columns": ["labels", "names", "small", "wide", "audio.path"],
    "outputs": ["start", "row"],
}  # fmt: skip
for _name in ("sample_rate", "n_fft", "hop_length", "n_mels"):
    del GIVEN[_name]
TEXTS = {"text", "names", "audio.path"}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = table({
        "labels": pa.array([[*range(i % 5)] for i in range(N)], pa.list_(pa.int64())),
        "votes": [[i / 4, 0.5] for i in range(N)], "x": [None if i == 2 else i / 4 for i in range(N)],
        "clean": [i % 2 for i in range(N)], "text": [f"text {i}" for i in range(N)],
        "names": [["a", "b"][: i % 3] for i in range(N)], "small": pa.array(range(N), pa.uint16()),
        "wide": pa.array([[i, i] for i in range(N)], pa.list_(pa.uint32(), 2)),
    })  # fmt: skip
    return write(tmp_path_factory.mktemp("fields") / "a", made)


def arrays(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of tensors as the loader made it: arrays of numpy, with the bits of bfloat16."""

    def array(tensor: Any) -> Any:
        tensor = tensor.cpu()
        return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()

    def of(value: Any) -> Any:
        if isinstance(value, JaggedArray):
            return JaggedArray(array(value.data), array(value.offsets))
        if isinstance(value, list) and isinstance(value[0], torch.Tensor):
            return JaggedArray.from_rows([array(row) for row in value])
        return array(value) if isinstance(value, torch.Tensor) else value

    return {name: of(value) for name, value in batch.items()}


def widened(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Unsigned numbers in the types that torch takes; the bits of bfloat16 stay."""
    wide = {"uint16": np.int32, "uint32": np.int64}
    return {
        name: value.astype(wide[value.dtype.name]) if name in ("small", "wide") else value
        for name, value in batch.items()
    }


@pytest.fixture(scope="module")
def expected(shard: Path) -> list[str]:
    with forebay.Loader(shard, **GIVEN) as loader:
        return [digest(widened(batch)) for batch in loader]


def faces(loader: forebay.Loader) -> dict[str, Any]:
    """All ways to batches of tensors."""
    return {
        "to_tensors": (to_tensors(batch, loader) for batch in loader),
        "IterableDataset": IterableDataset(loader),
        "torch's DataLoader": torch.utils.data.DataLoader(IterableDataset(loader), batch_size=None),
        "DataLoader": DataLoader(loader),
        "DevicePrefetcher": DevicePrefetcher(loader, "cpu"),
        "both": DevicePrefetcher(IterableDataset(loader), "cpu"),
    }


def test_each_face(shard: Path, expected: list[str]) -> None:
    """Each gives the loader's rows; text stays lists, jagged fields have tensors."""
    with forebay.Loader(shard, **GIVEN) as loader:
        names = list(faces(loader))
    for face in names:
        with forebay.Loader(shard, **GIVEN) as loader:
            found = list(faces(loader)[face])
        assert [digest(arrays(batch)) for batch in found] == expected, face
        for name, value in found[0].items():
            if name in TEXTS:
                assert type(value) is list
            elif name == "labels" and face == "torch's DataLoader":
                assert all(isinstance(row, torch.Tensor) for row in value)  # which it makes of any sequence
            elif name == "labels":
                assert isinstance(value, JaggedArray)
                assert (value.data.dtype, value.offsets.dtype) == (torch.int64, torch.int64)
            else:
                assert isinstance(value, torch.Tensor)
        kinds = {"label": torch.float32, "votes": torch.float16, "clean": torch.bool, "small": torch.int32,
                 "wide": torch.int64, "spectrogram": torch.bfloat16, "start": torch.float64}  # fmt: skip
        assert {name: found[0][name].dtype for name in kinds} == kinds


def test_memory_is_shared(shard: Path) -> None:
    with forebay.Loader(shard, **GIVEN) as loader:
        batch: dict[str, Any] = {**next(loader)}
        tensors = to_tensors(batch, loader)
    for name in ("label", "votes", "x", "clean", "start", "index"):
        assert tensors[name].data_ptr() == batch[name].ctypes.data
    assert tensors["labels"].data.data_ptr() == batch["labels"].data.ctypes.data
    assert tensors["text"] is batch["text"]
    nested = torch.nested.nested_tensor_from_jagged(tensors["labels"].data, tensors["labels"].offsets)
    assert [row.tolist() for row in nested.unbind()] == rows(batch["labels"])


def test_a_loss(shard: Path) -> None:
    """The fields go into losses without a conversion."""
    with forebay.Loader(shard, **GIVEN) as loader:
        batch = to_tensors(next(loader), loader)
    logits = torch.zeros(7, 5)
    assert torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["label"]).item() > 0
    assert torch.nn.functional.mse_loss(batch["x"], batch["x"]).item() == 0


UTTERANCES: dict[str, Any] = {
    "crop": forebay.crops.Whole(),
    "targets": {"said": targets.Characters("text", "ab ", pad=-1)},
    "outputs": ["attention_mask"],
    "infinite": False,
    "augment": False,
    "order": "global",
    "features": forebay.features.LogMel(sample_rate=16_000, n_fft=400, hop_length=160, n_mels=8),
}


@pytest.mark.parametrize("packed", [False, True])
def test_utterances_of_each_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    """Batches of other shapes each time, padded or packed, also through memory that is used again."""
    seconds = [0.05 + (row * 7 % 20) / 30 for row in range(60)]
    path = write_utterances(tmp_path, seconds, columns={"text": ["ab "[row % 3] * (row % 9) for row in range(60)]})
    given = UTTERANCES | {"batching": Buckets(2.0, num_buckets=4, packed=packed)}
    if packed:
        del given["outputs"]
    monkeypatch.setattr(forebay.torch, "PinnedSlot", Slot)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with forebay.Loader(path, **given) as loader:
        wanted = [digest(batch) for batch in loader]
        names = list(faces(loader))
    assert len(set(wanted)) == len(wanted) > 8
    for face in names:
        with forebay.Loader(path, **given) as loader:
            assert [digest(arrays(batch)) for batch in faces(loader)[face]] == wanted, face
    with forebay.Loader(path, **given) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [digest(arrays(batch)) for batch in IterableDataset(loader, pin_memory=True)] == wanted


class Slot(_device.PinnedSlot):
    """Pinned memory that is not pinned, and the names of the fields that went into it."""

    staged: ClassVar[list[set[Any]]] = []

    def __init__(self) -> None:
        super().__init__(pin=False)

    def stage(self, tensors: Mapping[Any, Any]) -> dict[Any, Any]:
        assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())
        self.staged.append(set(tensors))
        return super().stage(tensors)


def test_text_is_never_pinned(shard: Path, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tensors are copied into pinned memory: those of stacked fields, and the two of a jagged one."""
    monkeypatch.setattr(forebay.torch, "PinnedSlot", Slot)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Slot, "staged", [])
    with forebay.Loader(shard, **GIVEN) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [digest(arrays(batch)) for batch in IterableDataset(loader, pin_memory=True)]
        assert found == expected
        fields = {field["name"] for field in loader.fields}
    assert len(Slot.staged) == len(expected)
    wanted = fields - TEXTS - {"labels"} | {("labels", "data"), ("labels", "offsets")}
    assert all(staged == wanted for staged in Slot.staged)


@needs_gpu
def test_on_a_device(shard: Path, expected: list[str]) -> None:
    with forebay.Loader(shard, **GIVEN) as loader:
        for batch, wanted in zip(DevicePrefetcher(loader, "cuda"), expected, strict=True):
            assert all(value.is_cuda for value in batch.values() if isinstance(value, torch.Tensor))
            assert type(batch["text"]) is list
            assert digest(arrays(batch)) == wanted
    with forebay.Loader(shard, **GIVEN) as loader:
        for batch in islice(IterableDataset(loader, pin_memory=True), 2):
            assert all(value.is_pinned() for value in batch.values() if isinstance(value, torch.Tensor))
