"""Verdicts of `timing.timed`: failed tries count on a quiet machine and are repeated on a busy one."""

import time

import pytest

from timing import TRIES, LateError, Others, claim, timed


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The list of tries, without pauses between them."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    return []


def is_busy(monkeypatch: pytest.MonkeyPatch, busy: list[bool]) -> None:
    """Sets for each try whether the machine is busy."""
    answers = iter(busy)
    monkeypatch.setattr(Others, "disturb", lambda _self: next(answers))


def failing(tries: list[int], until: int) -> None:
    @timed
    def test() -> None:
        tries.append(len(tries))
        claim(len(tries) > until, "late")

    test()


def test_a_quiet_machine_decides(monkeypatch: pytest.MonkeyPatch, tries: list[int]) -> None:
    is_busy(monkeypatch, [False] * TRIES)
    with pytest.raises(LateError, match="late"):
        failing(tries, 100)
    assert len(tries) == TRIES


def test_a_busy_one_decides_nothing(monkeypatch: pytest.MonkeyPatch, tries: list[int]) -> None:
    is_busy(monkeypatch, [True] * 2 * TRIES)
    with pytest.raises(pytest.skip.Exception, match=r"cannot be judged: .* late"):
        failing(tries, 100)
    assert len(tries) == 2 * TRIES


def test_a_machine_that_becomes_quiet_decides(monkeypatch: pytest.MonkeyPatch, tries: list[int]) -> None:
    is_busy(monkeypatch, [True] * 3 + [False] * TRIES)
    with pytest.raises(LateError):
        failing(tries, 100)
    assert len(tries) == 3 + TRIES


def test_one_good_try_is_enough(monkeypatch: pytest.MonkeyPatch, tries: list[int]) -> None:
    is_busy(monkeypatch, [False] * 3)
    failing(tries, 3)
    assert len(tries) == 4


def test_what_is_no_claim_fails_at_once(tries: list[int]) -> None:
    @timed
    def test() -> None:
        tries.append(0)
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        test()
    assert len(tries) == 1
