"""Batches, states and errors equal those of earlier versions; see `pinned.py`."""

import json

import numpy as np
import pytest

import pinned

PINNED = json.loads(pinned.PINNED.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pinned.Files:
    return pinned.Files(tmp_path_factory.mktemp("pinned"))


@pytest.mark.parametrize("name", pinned.scenes())
def test_nothing_has_changed(name: str, files: pinned.Files) -> None:
    found = pinned.play([name], files)[name]
    expected = PINNED[name]
    assert (found["batches"], found["plain"]) == (expected["batches"], expected["plain"])
    np.testing.assert_allclose(found["sums"], expected["sums"], rtol=1e-3, atol=1e-5)
    # A new kind of machine has no pinned bits.
    assert found["bits"] == expected["bits"].get(pinned.machine(), found["bits"])


def test_scenes_and_pins_are_the_same() -> None:
    assert set(PINNED) == set(pinned.scenes())
    assert all(scene["batches"] > 0 for scene in PINNED.values())


def test_a_changed_bit_shows() -> None:
    prints = []
    for labels, values in [([1, 2], [0.5, 1.0]), ([1, 3], [0.5, 1.0]), ([1, 2], [0.5, np.nextafter(1.0, 2)])]:
        each = pinned.Prints()
        each.batch({"label": np.array(labels), "spectrogram": np.array(values)})
        prints.append(each.result())
    plain, bits = [each["plain"] for each in prints], [each["bits"] for each in prints]
    assert plain[0] != plain[1]
    assert bits[0] == bits[1]
    assert plain[0] == plain[2]
    assert bits[0] != bits[2]
