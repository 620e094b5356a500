"""`MappedReader`: rows of a mapped .npy file, and the calls of `madvise` for their pages."""

import ctypes
import mmap
import os
import pickle
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay import AsyncDataLoader, MappedReader

PAGE = mmap.PAGESIZE


class Rows:
    """A pipeline that copies rows and their metadata."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.output_specs: Mapping[str, Any] = {"x": (array.shape[1:], array.dtype), "name": ((), "S4")}

    def __call__(self, indices: Any, metadata: Any, storage_state: Any, buffers: Any) -> None:
        np.take(storage_state.array, indices, axis=0, out=buffers["x"])
        buffers["name"][:] = metadata[indices]


def saved(folder: Path, array: NDArray[Any]) -> Path:
    np.save(folder / "rows.npy", array)
    return folder / "rows.npy"


def advised(reader: MappedReader, indices: Any) -> list[tuple[int, int]]:
    """Start and length of the parts of the map for which `will_need` calls `madvise`."""
    calls: list[tuple[int, int]] = []

    class Recording:
        def __init__(self, of: mmap.mmap) -> None:
            self.of = of

        def __len__(self) -> int:
            return len(self.of)

        def madvise(self, option: int, start: int, length: int) -> None:
            assert option == mmap.MADV_WILLNEED
            calls.append((start, length))
            self.of.madvise(option, start, length)  # raises if `start` is not aligned

    original = reader._map
    reader._map = Recording(original)
    reader.will_need(np.asarray(indices, np.int64))
    reader._map = original
    return calls


def test_a_loader_of_mapped_rows(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((103, 7, 50))
    reader = MappedReader(saved(tmp_path, array), metadata=np.arange(103).astype("S4"))
    assert len(reader) == 103
    assert not reader.array.flags.writeable
    with AsyncDataLoader(reader, Rows(array), batch_size=4) as loader:
        found = list(loader)
        copy = pickle.loads(pickle.dumps(loader))
    assert sorted(index for batch in found for index in batch.indices) == list(range(103))
    for batch in found:
        assert (batch.data["x"] == array[batch.indices]).all()
        assert batch.data["name"].astype(int).tolist() == batch.indices.tolist()
    with copy:
        assert [batch.indices.tolist() for batch in copy] != [batch.indices.tolist() for batch in found]
        assert type(copy._reader.array) is np.memmap  # the map, not an array copied by pickle
    assert repr(reader).startswith("<forebay.MappedReader: 103 rows (7, 50) of float64, /")


@pytest.mark.parametrize("row_bytes", [1, 100, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 17])
@pytest.mark.parametrize("n", [1, 2, 64])
def test_pages_of_rows_and_no_others(tmp_path: Path, row_bytes: int, n: int) -> None:
    """A8: `madvise` gets exactly the pages of the rows, each once, in aligned parts that are not adjacent."""
    path = saved(tmp_path, np.zeros((n, row_bytes), np.uint8))
    reader, size = MappedReader(path), path.stat().st_size
    header = size - n * row_bytes
    rng = np.random.default_rng(row_bytes)
    for indices in (np.arange(n), np.array([n - 1]), *(rng.integers(0, n, 7) for _ in range(20))):
        pages = {
            page
            for index in indices
            for page in range((header + index * row_bytes) // PAGE, (header + (index + 1) * row_bytes - 1) // PAGE + 1)
        }
        calls = advised(reader, indices)
        assert all(start % PAGE == 0 and length > 0 and start + length <= size for start, length in calls)
        told = [page for start, length in calls for page in range(start // PAGE, -(-(start + length) // PAGE))]
        assert told == sorted(pages)
        assert all(a + length < b for (a, length), (b, _) in pairwise(calls))


def test_nothing_to_read(tmp_path: Path) -> None:
    assert advised(MappedReader(saved(tmp_path, np.zeros((5, 0)))), [0, 4]) == []
    assert advised(MappedReader(saved(tmp_path, np.zeros((5, 3)))), []) == []


def test_files_without_rows(tmp_path: Path) -> None:
    for array in (np.asfortranarray(np.zeros((5, 3))), np.float64(3)):
        with pytest.raises(forebay.ConfigError, match=r"rows.npy has no rows .* expected a .npy file in C order"):
            MappedReader(saved(tmp_path, np.asanyarray(array)))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "more.npz", np.zeros(3))
    for name in ("objects.npy", "more.npz"):
        with pytest.raises(forebay.ConfigError, match=rf"{name} cannot be mapped, expected a .npy file in C order"):
            MappedReader(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        MappedReader(tmp_path / "none.npy")


def resident(reader: MappedReader) -> NDArray[np.bool_]:
    """Whether each page of the map is in the page cache."""
    size = len(reader._map)
    pages = np.zeros(-(-size // PAGE), np.uint8)
    address = reader.array.ctypes.data - reader._start
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages.ctypes.data_as(ctypes.c_void_p)):
        raise OSError(ctypes.get_errno(), "mincore")
    return (pages & 1).astype(bool)


def test_rows_are_read_and_others_are_not(tmp_path: Path) -> None:
    path = saved(tmp_path, np.ones((256, 16 * PAGE), np.uint8))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    reader = MappedReader(path)
    wanted = np.arange(60, 256, 64)
    pages = [page for row in wanted for page in range(16 * row, 16 * row + 17)]
    if resident(reader)[pages].any():
        pytest.skip("this file system keeps pages in spite of POSIX_FADV_DONTNEED")
    reader.will_need(wanted)
    until = time.monotonic() + 120
    while not resident(reader)[pages].all() and time.monotonic() < until:
        time.sleep(0.01)
    after = resident(reader)
    assert after[pages].all()
    assert after.mean() < 0.25  # includes numpy's read of the header and the kernel's read-ahead
