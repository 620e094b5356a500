"""States and caches that forebay 0.1 wrote are read, and continue with the batches that 0.1 made."""

import json
from typing import Any

import numpy as np
import pytest

import forebay
import released
from forebay.cache import TreeStore

FOUND: dict[str, Any] = json.loads(released.STATES.read_text())
SCENES = released.scenes(damage="error")


def test_each_scene_has_a_state() -> None:
    assert set(FOUND) == set(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_a_state_of_0_1_continues(name: str) -> None:
    expected = FOUND[name]
    with SCENES[name]() as loader:
        loader.load_state_dict(expected["state"])
        found = released.walk(loader, released.N_AFTER)
    assert (found["batches"], found["plain"]) == (expected["batches"], expected["plain"])
    np.testing.assert_allclose(found["sums"], expected["sums"], rtol=1e-3, atol=1e-5)


def test_a_cache_of_0_1_is_read() -> None:
    store = TreeStore(released.CACHE)
    assert len(store) == len(released.documents())
    for at, expected in enumerate(released.documents()):
        found = store[at]
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("changed", [{"damage": "silence"}, {"damage": "error", "order": None}])
def test_a_default_of_0_1_is_named_where_it_is_refused(changed: dict[str, Any]) -> None:
    """A state of the former defaults says which parameter brings its batches back."""
    scene = released.scenes(**changed)["clips, window, infinite"]
    name, former = ("order", "window") if "order" in changed else ("damage", "error")
    with scene() as loader, pytest.raises(forebay.StateError, match=f'{name}(=| is )"{former}"'):
        loader.load_state_dict(FOUND["clips, window, infinite"]["state"])
