"""Reads untrusted pickles of plain values, by an interpreter without objects that bounds all resources.

A pickle is a program. A few bytes of it can refer to one value many times, so that the result has a billion
parts when it is shown, compared, hashed or written as JSON. So this module bounds bytes, steps, parts and
nesting, and the caller may traverse the value safely.
"""

import pickle
import pickletools
from collections.abc import Iterable, Iterator
from typing import Any

MOST_BYTES = 16 << 20
"""The most bytes of a pickle. A vocabulary of 256 Ki texts and their numbers, both ways, has some 8 MB."""
MOST_STEPS = 2 << 20
"""The most instructions of a pickle; that vocabulary takes 1.6 million."""
MOST_PARTS = 2 << 20
"""The most values in a value, counted at each reference; every eight bytes of a text count as one more."""
DEEPEST = 64
"""The deepest nesting of containers."""
MOST_BITS = 4096
"""The most bits of a whole number: Python shows at most 4300 digits."""
MOST_TUPLE_KEYS = 4096
"""The most keys and set members that are tuples or sets: with equal hashes, each is compared with all others."""
KEY_PARTS = 64
"""The most values in such a key."""

PLAIN = "dicts, lists, tuples, sets, str, bytes, numbers, bool and None"

_PUSHED = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING"),
    *("SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES"),
    *("BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, type] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict, "EMPTY_SET": set}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_LOOKS_UP = {"GLOBAL", "STACK_GLOBAL", "INST"}

_Item = tuple[Any, int]
"""A value, and the number of values that its hash traverses."""


def plain_loads(data: bytes) -> Any:
    """Unpickles plain containers and scalars.

    Raises `pickle.UnpicklingError` for any other object, or beyond the limits of this module, before the
    object is created.
    """
    if len(data) > MOST_BYTES:
        raise pickle.UnpicklingError(f"it has {len(data)} bytes, at most {MOST_BYTES} are read")
    try:
        value = _Machine().run(data)
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"it is damaged: {type(error).__name__}: {str(error)[:200]}") from None
    _check_extent(value)
    return value


class _Machine:
    """Interprets one pickle."""

    def __init__(self) -> None:
        self._stack: list[_Item] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Item] = {}
        self._tuple_keys = 0

    def run(self, data: bytes) -> Any:
        for step, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if step >= MOST_STEPS:
                raise pickle.UnpicklingError(f"it has more than {MOST_STEPS} instructions")
            if opcode.name in _PUSHED:
                self._push(argument)
            elif opcode.name == "STOP":
                break
            else:
                if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > step:
                    raise pickle.UnpicklingError("it is damaged: its memo has holes")
                self._step(opcode.name, argument)
        [(value, _)] = self._stack
        return value

    def _push(self, value: Any) -> None:
        if type(value) is int and value.bit_length() > MOST_BITS:
            raise pickle.UnpicklingError(f"it holds a number of {value.bit_length()} bits, the limit is {MOST_BITS}")
        self._stack.append((value, 1))

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in _CONSTANTS:
            self._push(_CONSTANTS[name])
        elif name in _EMPTY:
            self._push(_EMPTY[name]())
        elif name in _TUPLES:
            self._push_tuple(self._taken(len(stack) - _TUPLES[name]))
        elif name == "TUPLE":
            self._push_tuple(self._since_mark())
        elif name == "FROZENSET":
            self._push_set(self._since_mark())
        elif name in ("SETITEM", "SETITEMS"):
            items = self._taken(len(stack) - 2) if name == "SETITEM" else self._since_mark()
            self._set(items, self._top(dict))
        elif name in ("APPEND", "APPENDS"):
            items = self._taken(len(stack) - 1) if name == "APPEND" else self._since_mark()
            self._top(list).extend(value for value, _ in items)
        elif name == "ADDITEMS":
            items = self._since_mark()
            self._top(set).update(self._keys(items))
        elif name == "LIST":
            self._push([value for value, _ in self._since_mark()])
        elif name == "DICT":
            made: dict[Any, Any] = {}
            self._set(self._since_mark(), made)
            self._push(made)
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP" and self._marks[-1:] == [len(stack)]:
            self._marks.pop()
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        else:
            what = f"{str(argument)[:100]} " if name in _LOOKS_UP and argument else ""
            raise pickle.UnpicklingError(f"it holds an object {what}({name}), allowed are only {PLAIN}")

    def _taken(self, start: int) -> list[_Item]:
        """Pops the values on the stack from `start` on, which must be above the last mark."""
        if start < (self._marks[-1] if self._marks else 0):
            raise pickle.UnpicklingError("it is damaged: its stack has too few values")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _since_mark(self) -> list[_Item]:
        start = self._marks.pop()
        return self._taken(start)

    def _top(self, kind: type) -> Any:
        value = self._stack[-1][0]
        if type(value) is not kind:
            raise pickle.UnpicklingError(f"it is damaged: it adds to a {type(value).__name__} as to a {kind.__name__}")
        return value

    def _push_tuple(self, items: list[_Item]) -> None:
        self._stack.append((tuple(value for value, _ in items), self._parts(items)))

    def _push_set(self, items: list[_Item]) -> None:
        self._stack.append((frozenset(self._keys(items)), self._parts(items)))

    def _parts(self, items: Iterable[_Item]) -> int:
        parts = 1 + sum(n for _, n in items)
        if parts > MOST_PARTS:
            raise pickle.UnpicklingError(f"it holds more than {MOST_PARTS} nested values")
        return parts

    def _set(self, items: list[_Item], into: dict[Any, Any]) -> None:
        if len(items) % 2:
            raise pickle.UnpicklingError("it is damaged: a key has no value")
        values = (value for value, _ in items[1::2])
        into.update(zip(self._keys(items[::2]), values, strict=True))

    def _keys(self, items: list[_Item]) -> Iterator[Any]:
        """The values as keys, checked before they are hashed."""
        for value, parts in items:
            if type(value) is int and abs(value) >= 2**61 - 1:
                raise pickle.UnpicklingError(
                    "it holds a number of more than 60 bits as a key"
                )  # their hashes can be made equal
            if type(value) in (tuple, frozenset):
                self._tuple_keys += 1
                if parts > KEY_PARTS or self._tuple_keys > MOST_TUPLE_KEYS:
                    most = f"the limit is {MOST_TUPLE_KEYS}, of {KEY_PARTS} values each"
                    raise pickle.UnpicklingError(f"it holds too many or too large keys that are containers: {most}")
            yield value


def _check_extent(value: Any) -> None:
    """Counts the parts of a value at each reference, as printing would traverse them; a list may contain itself."""
    left = MOST_PARTS
    todo: list[Iterator[Any]] = [iter((value,))]
    while todo:
        for part in todo[-1]:
            left -= 1 + (len(part) // 8 if type(part) in (str, bytes, bytearray) else 0)
            if left < 0:
                raise pickle.UnpicklingError(f"it holds more than {MOST_PARTS} values, counted at each reference")
            if type(part) in (dict, list, tuple, set, frozenset):
                if len(todo) > DEEPEST:
                    raise pickle.UnpicklingError(f"it holds containers nested deeper than {DEEPEST}")
                todo.append(_flat(part) if type(part) is dict else iter(part))
                break
        else:
            todo.pop()


def _flat(items: dict[Any, Any]) -> Iterator[Any]:
    for item in items.items():
        yield from item
