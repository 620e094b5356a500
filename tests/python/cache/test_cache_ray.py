"""`engine="ray"`: the same bytes as with threads, several shards at a time, and killed workers."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import forebay
from caches import Number, Picky, files, unequal
from forebay import SpectrogramTransform, cache, features
from forebay.cache import building
from forebay.cache.ray import RayShards
from rays import importing
from timing import eventually

# Ray forks to start its servers; jax, if another test has imported it, warns of that.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    """A local Ray of two processes, which takes some seconds to start."""
    with importing():
        # Not that of another test, or of the user.
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


class Noted(Number):
    """A processor that records process and times of each batch.

    With `dies`, its process kills itself once. With `meet`, each process waits until two processes have begun a batch.
    """

    def __init__(self, folder: Path, *, dies: bool = False, meet: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.dies = dies
        self.meet = meet
        self.driver = os.getpid()  # this process tries the first batch

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        begin = time.time()
        if self.meet and os.getpid() != self.driver:
            begun = self.folder.with_name("begun")
            (begun / str(os.getpid())).touch()
            eventually(lambda: len(list(begun.iterdir())) == 2, 60)
        mark = self.folder / "died"
        if self.dies and not mark.exists() and documents[0] >= 60:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        made = super().__call__(documents)
        note = self.folder / f"{documents[0]}-{os.getpid()}-{begin}"
        note.write_text(f"{os.getpid()} {documents[0]} {begin} {time.time()}")
        return made


def test_shards_are_processed_at_the_same_time_and_bytes_are_those_of_threads(tmp_path: Path) -> None:
    shards = unequal((37, 40, 0, 12))
    for name in ("notes", "begun"):
        (tmp_path / name).mkdir()
    noted = Noted(tmp_path / "notes", meet=True)
    cache.build(shards, noted, tmp_path / "ray", batch_size=8, n_workers=2, engine="ray")
    cache.build(shards, Number(), tmp_path / "threads", batch_size=8)
    assert files(tmp_path / "ray") == files(tmp_path / "threads")
    notes = [note.read_text().split() for note in (tmp_path / "notes").iterdir()]
    spans = [(int(process), int(first) // 37, float(begin), float(end)) for process, first, begin, end in notes]
    assert len({process for process, *_ in spans} - {os.getpid()}) == 2
    assert any(a[0] != b[0] and a[1] != b[1] and max(a[2], b[2]) < min(a[3], b[3]) for a in spans for b in spans), spans


def test_a_killed_worker_is_survived(tmp_path: Path) -> None:
    shards = unequal((37, 0, 40, 12))
    processor = Noted(tmp_path, dies=True)
    cache.build(shards, processor, tmp_path / "ray", batch_size=8, n_workers=2, engine="ray")
    assert (tmp_path / "died").exists()
    cache.build(shards, Number(), tmp_path / "threads", batch_size=8)
    assert files(tmp_path / "ray") == files(tmp_path / "threads")


def test_what_a_processor_raises_arrives(tmp_path: Path) -> None:
    def fails(documents: list[int]) -> list[dict[str, Any]]:
        raise ZeroDivisionError(f"at {documents[0]}")

    with pytest.raises(ZeroDivisionError, match="at 0") as raised:
        cache.build(unequal((3, 4)), fails, tmp_path, engine="ray", n_workers=1)
    assert any(note.startswith("shard-0: another process failed to process a batch") for note in raised.value.__notes__)


@pytest.mark.parametrize(
    "processor",
    [
        SpectrogramTransform(sample_rate=16000, n_mels=32),
        cache.Features("whisper"),
        cache.Features(features.Waveform(sample_rate=8000, dtype="int16")),
        features.Fbank(layout="time", n_frames=50, fill="minimum", normalization=features.ZScore()),
    ],
    ids=lambda processor: type(processor).__name__,
)
def test_features_of_recordings_are_those_of_threads(processor: Any, shards: list[Path], tmp_path: Path) -> None:
    cache.build(shards, processor, tmp_path / "ray", batch_size=4, n_workers=2, engine="ray")
    cache.build(shards, processor, tmp_path / "threads", batch_size=4)
    assert files(tmp_path / "ray") == files(tmp_path / "threads")


class Waiting(Number):
    """A processor that records its process in a file, and then waits for the file `go`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __call__(self, documents: list[int]) -> list[dict[str, Any]]:
        (self.folder / f"called-{os.getpid()}").touch()
        eventually((self.folder / "go").exists, 600)
        return super().__call__(documents)


def test_no_actor_begins_once_the_build_is_closed(tmp_path: Path) -> None:
    """A worker whose actor was killed by `close()` starts no other one; it once did, and that one never ended."""
    limits = {"max_record_bytes": 1 << 30, "max_decoded_seconds": 86400.0, "damage": "silence", "max_damage": 0.1}
    kind = {**building.described(Waiting(tmp_path), {"a": []}, None), **limits}
    shards = RayShards([("a", building.Skipping([1, 2, 3]))], kind, 8, 1, "raise")
    [(_, opener)] = shards.shards()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            next(opener(0))
        except BaseException as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        eventually(lambda: bool(raised or list(tmp_path.glob("called-*"))), 600)
        assert not raised, raised
        shards.close()
        worker.join(60)
        assert not worker.is_alive()
        assert [type(error) for error in raised] == [forebay.ForebayError]
        assert len(list(tmp_path.glob("called-*"))) == 1
        with pytest.raises(forebay.ForebayError, match="the build was ended"):
            next(opener(0))
    finally:
        (tmp_path / "go").touch()
        worker.join(60)


def test_the_same_documents_are_left_out(tmp_path: Path) -> None:
    numbers = unequal((37, 0, 40, 12))
    store = cache.build(numbers, Picky(), tmp_path / "ray", batch_size=8, n_workers=2, engine="ray", on_error="skip")
    cache.build(numbers, Picky(), tmp_path / "threads", batch_size=8, on_error="skip")
    assert files(tmp_path / "ray") == files(tmp_path / "threads")
    assert store.n_errors == sum(Picky.refuses(number) for all_ in numbers.values() for number in all_)
