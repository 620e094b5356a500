"""Random configurations keep every property: see `fuzz` and `properties`."""

import os
from collections.abc import Iterator

import pytest

from fuzz import Fuzz

TOGETHER = 10
"""Configurations of one test."""

SOAK = int(os.environ.get("FOREBAY_SOAK", "1"))
PARTS = 4 if SOAK == 1 else 10 * SOAK
"""Tests: 40 configurations in CI, 2000 under `make soak`."""


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzz]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Fuzz(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("part", range(PARTS))
def test_configurations(fuzz: Fuzz, part: int) -> None:
    before = fuzz.counts.total()
    for seed in range(TOGETHER * part, TOGETHER * part + TOGETHER):
        fuzz.run(seed)
    assert fuzz.counts.total() - before > 4 * TOGETHER, "most configurations were refused"
