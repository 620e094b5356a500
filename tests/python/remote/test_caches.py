"""Caches by URL: the documents of the local cache, without a wait of one request for another."""

import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from by_url import SECRET
from caches import Number, same
from forebay import ConfigError, StateError, cache
from served import Server

N = 4000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache of some chunks: of two axes, and of values that fill 600 kB."""
    folder = tmp_path_factory.mktemp("caches")
    cache.build({"a": list(range(N))}, Number(), folder / "a cache", batch_size=64)
    return folder


@pytest.fixture
def server(built: Path) -> Iterator[Server]:
    with Server(built) as server:
        yield server


@pytest.fixture
def url(server: Server, built: Path) -> str:
    return server.named(built / "a cache")


def test_a_store_has_the_documents_of_the_local_one(built: Path, url: str) -> None:
    store, local = cache.TreeStore(url), cache.TreeStore(built / "a cache")
    assert store.folder == f"{url}/train"
    assert (len(store), store.is_final, store.fields, store.n_errors) == (N, True, local.fields, 0)
    numbers = np.random.default_rng(0).integers(0, N, 300).tolist()
    assert all(same(found, number) for found, number in zip(store.get_batch(numbers), numbers, strict=True))
    for field in store.fields:
        assert np.array_equal(store.flat(field), local.flat(field))
        assert np.array_equal(store.flat(field, 11, 3000), local.flat(field, 11, 3000))
    assert same(store[-1], N - 1)
    assert store.refresh() == store.wait() == N
    with pytest.raises(TypeError, match=f"use CacheDataset.'{url}', 'train'"):
        cache.PermutationDataset(store, 1)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match=f"document {N} is requested, but there are {N}"):
        store.get_batch([N])


def test_datasets_have_the_rows_of_local_ones(built: Path, url: str) -> None:
    def rows(path: str | Path) -> list[object]:
        documents = cache.CacheDataset(path)
        windows = cache.TokenSeqDataset(documents, 50, field="prompt/input_ids", doc_ids=True)
        mixed = cache.PermutationDataset(documents, 3)
        numbers = np.random.default_rng(1).integers(0, 900, 200)
        return [pickle.dumps(row) for dataset in (documents, windows, mixed) for row in dataset.get_batch(numbers)]

    assert rows(url) == rows(built / "a cache")


def test_a_dataset_by_url_can_be_pickled(url: str) -> None:
    again = pickle.loads(pickle.dumps(cache.CacheDataset(url)))
    assert same(again.get_batch([7])[0], 7)


def test_documents_are_requested_together(server: Server, url: str) -> None:
    store = cache.TreeStore(url)
    numbers = np.random.default_rng(2).integers(0, N, 50).tolist()
    store.get_batch(numbers)
    opened = len(server.requests)
    store.get_batch(numbers)
    # What was small is kept; nothing is opened twice.
    assert len(server.requests) - opened <= 4 * len(numbers)
    assert server.sent < 3 * sum(path.stat().st_size for path in server.folder.rglob("*") if path.is_file())


def test_failed_requests_change_no_value(built: Path, url: str, server: Server) -> None:
    server.fails_every = 5
    store = cache.TreeStore(url)
    assert np.array_equal(store.flat("prompt/input_ids"), cache.TreeStore(built / "a cache").flat("prompt/input_ids"))


@pytest.mark.parametrize("url", [f"https://user:{SECRET}@host/a", f"https://host/a?sig={SECRET}"])
def test_a_secret_in_a_url_is_refused_and_not_quoted(url: str) -> None:
    for make in (cache.TreeStore, cache.CacheDataset):
        with pytest.raises(ConfigError, match="would appear in messages and states") as caught:
            make(url)
        assert SECRET not in str(caught.value)


def test_what_is_no_finished_cache_of_ours(built: Path, server: Server) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no cache in this folder.*/none/train"):
        cache.TreeStore(f"{server.url}/none")
    with pytest.raises(FileNotFoundError):
        cache.CacheDataset(f"{server.url}/a%20cache", "validation")
    # A build that has written some documents and not all.
    begun, goes_on = built / "begun", threading.Event()

    class Waits(Number):
        def __call__(self, documents: list[int]) -> list[dict[str, object]]:
            assert documents[0] < 128 or goes_on.wait(600)
            return super().__call__(documents)

    build = threading.Thread(
        target=lambda: cache.build({"a": list(range(500))}, Waits(), begun, batch_size=64, commit_documents=64)
    )
    build.start()
    try:
        while not (begun / "train" / "shard_ledger.json").is_file():
            assert build.is_alive()
        with pytest.raises(StateError, match="begun/train is not finished, and by URL it is read only then"):
            cache.TreeStore(server.named(begun))
    finally:
        goes_on.set()
        build.join()
    assert len(cache.TreeStore(server.named(begun))) == 500
    # Metadata of another program.
    foreign = built / "foreign" / "train"
    foreign.mkdir(parents=True)
    (foreign / "shard_ledger.json").write_text(
        '{"total_num_rows": 3, "shard_rows": {"a": 3}, "is_finished": true, "finished_shards": ["a"], '
        '"field_counts": {}, "metadata": {}}'
    )
    with pytest.raises(ConfigError, match=r"another program wrote .*foreign/train, .*: download the cache"):
        cache.TreeStore(server.named(foreign.parent))


def test_ctrl_c_ends_a_read_that_hangs(url: str, server: Server) -> None:
    program = """
        import sys
        from forebay import cache
        store = cache.TreeStore(sys.argv[1])
        print("open", flush=True)
        sys.stdin.readline()
        print("asks", flush=True)
        store.get_batch(range(0, 4000, 7))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        n, server.hangs = len(server.requests), True
        print(file=child.stdin, flush=True)
        assert child.stdout.readline() == "asks\n"
        while len(server.requests) == n:
            pass
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
    assert child.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
