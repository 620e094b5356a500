"""`BufferPool`: buffers shared by threads."""

import threading
import time

import numpy as np
import pytest

import forebay
from forebay import BufferPool, _buffers


def test_pool_lends_and_takes_back() -> None:
    """A7: a wait for a buffer ends after its timeout."""
    pool = BufferPool(2, (3, 4), np.float32)
    lent = [pool.acquire(), pool.acquire(timeout=1)]
    assert sorted(number for number, _ in lent) == [0, 1]
    assert all(buffer.shape == (3, 4) and buffer.dtype == np.float32 for _, buffer in lent)
    assert not np.shares_memory(lent[0][1], lent[1][1])
    for timeout in [0, 0.02]:
        with pytest.raises(TimeoutError, match="none of 2 buffers was released within"):
            pool.acquire(timeout)
    assert repr(pool) == "<forebay.BufferPool: 2 arrays [3, 4] float32, 2 acquired>"
    number, buffer = lent[0]
    pool.release(number)
    assert pool.acquire()[1] is buffer


def test_pool_refuses_what_it_has_not_lent() -> None:
    pool = BufferPool(1, 5, "u1")
    number, _ = pool.acquire()
    pool.release(number)
    for wrong in [number, 1, -1]:
        with pytest.raises(forebay.StateError, match=f"buffer {wrong} is not lent"):
            pool.release(wrong)
    with pytest.raises(forebay.ConfigError, match="num_buffers is 0, must be 1"):
        BufferPool(0, (1,), "u1")


def test_release_takes_the_number() -> None:
    pool = BufferPool(1, (2,), "f8")
    number, buffer = pool.acquire()
    with pytest.raises(TypeError, match=r"buffer_id is .*ndarray.*, must be the number that acquire\(\) returned"):
        pool.release(buffer)  # type: ignore[arg-type]
    pool.release(number)


def test_pool_wakes_a_waiting_thread() -> None:
    pool = BufferPool(1, (), "f8")
    number, _ = pool.acquire()
    threading.Timer(0.05, pool.release, [number]).start()
    assert pool.acquire(timeout=120)[0] == number


def test_pool_lends_a_buffer_to_one_at_a_time() -> None:
    pool = BufferPool(3, (8,), "i8")
    torn = []

    def work(me: int) -> None:
        for _ in range(300):
            number, buffer = pool.acquire()
            buffer[:] = me
            time.sleep(0)
            if (buffer != me).any():
                torn.append(number)
            pool.release(number)

    working = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join(120)
    assert not torn


@pytest.mark.parametrize("is_as_needed", [True, False])
def test_memory_is_reused_only_if_numpy_lets_views_keep_it(monkeypatch: pytest.MonkeyPatch, is_as_needed: bool) -> None:
    """A view keeps the memory of its batch. With a numpy whose views do not, no memory is reused."""
    assert _buffers._REUSES_MEMORY, "this numpy does"
    monkeypatch.setattr(_buffers, "_REUSES_MEMORY", is_as_needed)
    memory = _buffers.FieldMemory("x", 3, ((4,), np.int64), 2)
    batch = memory.lend(3)
    batch[:] = 7
    view = batch[1:][:, 2:].T.reshape(-1).view()
    row = batch[0]
    del batch
    others = [memory.lend(2) for _ in range(3)]
    for other in others:
        assert other.shape == (2, 4)
        other[:] = 0
    assert (view == 7).all()
    assert (row == 7).all()
    n_resting = len(memory._resting)
    del row, view
    assert len(memory._resting) - n_resting == is_as_needed
