"""`AudioDataset` as a map-style dataset: torch's `DataLoader` with samplers and worker processes, and Grain."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay import AudioDataset, DecodeError, Manifest
from forebay.crops import Random
from forebay.features import Waveform
from recordings import TINY, Row, tiny_rows, write_shard
from windows import noise, wav

N = 60


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = tiny_rows(N + 1)
    rows[N] = Row(b"no recording", 0)
    return write_shard(tmp_path_factory.mktemp("map") / "a.arrow", rows)


def opened(shard: Path, **parameters: Any) -> AudioDataset:
    return AudioDataset(shard, **TINY, n_threads=2, outputs=["path", "start"], **parameters)


forks = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create",
    "ignore:.*use of fork:DeprecationWarning",
    r"ignore:os.fork\(\) was called:RuntimeWarning",  # of JAX, once a test has imported it
)


@forks
@pytest.mark.parametrize(("n_workers", "method"), [(0, None), (4, "fork"), (4, "spawn"), (2, "forkserver")])
def test_a_dataloader(n_workers: int, method: str | None, shard: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, WeightedRandomSampler

    dataset = opened(shard)
    expected = dataset[:N]  # threads run at a fork
    workers: dict[str, Any] = {"num_workers": n_workers, "multiprocessing_context": method}
    few = Subset(dataset, range(N))
    samplers: list[dict[str, Any]] = [
        {"shuffle": True}, {}, {"sampler": WeightedRandomSampler([1.0] * N, 20)}, {"sampler": RandomSampler(few)},
    ]  # fmt: skip
    for sampler in samplers if method != "spawn" else samplers[:1]:
        batches = list(DataLoader(few, batch_size=7, **sampler, **workers))
        index = torch.cat([batch["index"] for batch in batches])
        if "sampler" not in sampler:
            assert sorted(index.tolist()) == [*range(N)]
        spectrogram = torch.cat([batch["spectrogram"] for batch in batches]).numpy()
        assert spectrogram.tobytes() == expected["spectrogram"][index].tobytes()
        assert torch.cat([batch["label"] for batch in batches]).tolist() == expected["label"][index].tolist()
        assert [path for batch in batches for path in batch["path"]] == [expected["path"][at] for at in index]
    whole = BatchSampler(range(N), 8, drop_last=False)
    joined = list(DataLoader(dataset, sampler=whole, batch_size=None, **workers))
    assert torch.cat([batch["spectrogram"] for batch in joined]).numpy().tobytes() == expected["spectrogram"].tobytes()
    with pytest.raises(DecodeError if not n_workers else Exception, match=f"row {N}"):
        list(DataLoader(dataset, batch_size=7, **workers))
    assert dataset[0]["index"] == 0


@forks
@pytest.mark.parametrize(("n_workers", "method"), [(0, None), (4, "fork"), (4, "spawn")])
@pytest.mark.parametrize("is_archived", [False, True])
def test_segments_of_a_long_recording(n_workers: int, method: str | None, is_archived: bool, tmp_path: Path) -> None:
    """Of a file, and of a member of an archive, which is open, with its index, when workers are forked."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    (tmp_path / "long.wav").write_bytes(wav(noise(8000 * 60, 1)))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "long.wav", "long.wav")
    rows = [{"path": "long.wav", "start": i / 2, "end": i / 2 + 0.3} for i in range(40)]
    source = Manifest(rows, root=tmp_path / "a.tar" if is_archived else tmp_path)
    dataset = AudioDataset(source, features=Waveform(sample_rate=8000), clip_seconds=0.25, crop=Random(), seed=3)
    expected = dataset[:40]["waveform"]
    workers: dict[str, Any] = {"num_workers": n_workers, "multiprocessing_context": method}
    batches = list(DataLoader(dataset, batch_size=7, shuffle=True, **workers))
    index = torch.cat([batch["index"] for batch in batches]).tolist()
    assert sorted(index) == [*range(40)]
    assert np.array_equal(torch.cat([batch["waveform"] for batch in batches]).numpy(), expected[index])


def test_tensors_as_indices(shard: Path) -> None:
    torch = pytest.importorskip("torch")
    dataset = opened(shard)
    assert dataset[torch.tensor(3)]["index"] == 3
    assert dataset[torch.tensor([3])]["index"].tolist() == [3]
    assert dataset.get_batch(torch.arange(4), torch.zeros(4))["start"].tolist() == [0.0] * 4


@pytest.mark.parametrize("n_workers", [0, 2])
def test_grain(n_workers: int, shard: Path) -> None:
    grain = pytest.importorskip("grain")
    pytest.importorskip("absl.flags").FLAGS.mark_as_parsed()  # which a program's main does
    dataset = opened(shard, n_samples=20)
    source = grain.MapDataset.source(dataset).shuffle(seed=3)
    rows = list(source) if not n_workers else list(source.to_iter_dataset().mp_prefetch(
        grain.multiprocessing.MultiprocessingOptions(num_workers=n_workers)))  # fmt: skip
    assert len(rows) == 20
    by_index = {int(row["index"]): row["spectrogram"].tobytes() for row in rows}
    assert by_index == {int(row["index"]): row["spectrogram"].tobytes() for row in map(dataset.__getitem__, range(20))}
    sampler = grain.samplers.IndexSampler(num_records=len(dataset), num_epochs=1, seed=0) if n_workers == 0 else None
    if sampler is not None:
        loader = grain.DataLoader(data_source=dataset, sampler=sampler, operations=[])
        assert np.sort([int(row["index"]) for row in loader]).tolist() == sorted(by_index)
