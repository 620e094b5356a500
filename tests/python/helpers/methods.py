"""Every public method of the public objects, as calls without arguments: for tests that run each beside each other."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Call = Callable[[], object]

# Ends the object, makes another one, or is a coroutine. `close` has a test of its own.
_OTHERS = {
    "async_get_batch",
    "async_len",
    "async_wait_until_len_at_least",
    "close",
    "eval",
    "finalize",
    "train",
}
_DUNDERS = ("__bool__", "__getitem__", "__getitems__", "__iter__", "__len__", "__next__", "__reduce__", "__repr__")


def calls(thing: Any, folder: Path) -> dict[str, Call]:
    """The methods and properties of an object, by name; a method that needs arguments must have them here.

    `folder` is for files that methods write.
    """
    state = thing.state_dict() if hasattr(thing, "state_dict") else None
    given: Mapping[str, Call] = {
        "__bool__": lambda: bool(thing),
        "__getitem__": lambda: thing[0],
        "__getitems__": lambda: thing.__getitems__([0, 1]),
        "__iter__": lambda: iter(thing),
        "__len__": lambda: len(thing),
        "__next__": lambda: next(thing),
        "__reduce__": lambda: pickle.dumps(thing),
        "__repr__": lambda: repr(thing),
        "append": lambda: thing.append(thing[0]),
        "column": lambda: thing.column(next(iter(thing.columns))),
        "epoch": lambda: thing.epoch(1) if callable(thing.epoch) else thing.epoch,
        "flat": lambda: thing.flat(next(iter(thing.fields))),
        "get_batch": lambda: thing.get_batch([0, 1]),
        "headspace": lambda: thing.headspace(0.01),
        "info": lambda: thing.info(0),
        "load_state_dict": lambda: thing.load_state_dict(state),
        "locate": lambda: thing.locate([0, 1]),
        "path": lambda: thing.path(0),
        "plan": lambda: thing.plan(8),
        "progress": lambda: next(thing.progress(file=(folder / "progress").open("w"))),
        "replay": lambda: thing.replay(0),
        "seek": lambda: thing.seek(0),
        "set_epoch": lambda: thing.set_epoch(thing.epoch),
        "skip": lambda: thing.skip([]),
        "trace": lambda: thing.trace(folder / "trace.json", 0.01),
        "wait": lambda: thing.wait(1),
        "wait_until_len_at_least": lambda: thing.wait_until_len_at_least(1),
        "waveform": lambda: thing.waveform(0),
    }
    public = [name for name in dir(type(thing)) if not name.startswith("_") and name not in _OTHERS]
    dunders = [name for name in (*_DUNDERS, "_repr_html_") if hasattr(type(thing), name)]
    return {name: given.get(name, _plain(thing, name)) for name in public + dunders}


def _plain(thing: Any, name: str) -> Call:
    """The call of a method without arguments, or the value of a property."""

    def call() -> object:
        value = getattr(thing, name)
        return value() if callable(value) else value

    return call
