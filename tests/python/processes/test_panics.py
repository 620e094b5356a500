"""A worker that panics while it holds all locks of its loader: calls raise, threads end, a new loader works."""

from pathlib import Path

import pytest

from scenes import END_LIMIT_S, play
from timing import claim, timed


@pytest.mark.parametrize(("name", "row"), [("Loader", 3), ("Loader", 200), ("TokenLoader", 3), ("TokenLoader", 300)])
@timed
def test_a_worker_dies_with_all_locks(name: str, row: int, mixed_folder: Path) -> None:
    """The panic is before the first batch or later; calls afterwards work in spite of poisoned locks."""
    scene = f"""
        make = LOADERS[{name!r}]
        raised = []
        _core._inject_panic({row})
        loader = make()
        for _ in range(3):
            try:
                collections.deque(itertools.islice(loader, 10_000), maxlen=0)
            except forebay.ForebayError as error:
                raised.append(str(error))
        loader.stats(), loader.errors(), str(loader)
        state = loader.state_dict()
        loader.close()
        end = seconds_to_end()
        _core._inject_panic()
        with make() as other, make() as undisturbed:
            expected = [next(undisturbed) for _ in range(40)]
            same = all((next(other)[key] == batch[key]).all() for batch in expected for key in [*batch][:1])
            other.load_state_dict(state)
            goes_on = len(next(other)) > 0
        report(raised=raised, end=end, same=same, goes_on=goes_on, left=seconds_to_end())
    """
    measured = play(scene, mixed_folder)
    assert len(measured["raised"]) == 3
    assert len(set(measured["raised"])) == 1, "the error changed"
    assert "panicked (a test asked for it)" in measured["raised"][0]
    assert (measured["same"], measured["goes_on"]) == (True, True)
    claim(measured["end"] < END_LIMIT_S, measured)
    claim(measured["left"] < END_LIMIT_S, measured)
