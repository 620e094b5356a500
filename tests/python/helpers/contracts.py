"""Compares public names and signatures with those that programs for the reference designs call."""

import inspect
from types import ModuleType
from typing import Any


def broken(contract: str, *modules: ModuleType) -> list[str]:
    """The violated lines of a contract, each with the reason.

    A line is `Name(parameters)`, `Name.method(parameters)` or `Name.attribute`. A parameter may have a default
    where the contract has none. Additional parameters are allowed if they have a default and are keyword-only or
    after the others.
    """
    wrong = []
    for line in filter(None, map(str.strip, contract.splitlines())):
        name, is_call, parameters = line.partition("(")
        first, *rest = name.split(".")
        found: Any = next((getattr(module, first) for module in modules if hasattr(module, first)), None)
        for part in rest:
            found = getattr(found, part, None)
        if found is None:
            wrong.append(f"{line}: there is no {name}")
        elif is_call and (problem := difference(parameters.removesuffix(")"), found)):
            wrong.append(f"{line}: {problem}, in {inspect.signature(found)}")
    return wrong


def difference(expected: str, found: Any) -> str | None:
    """The first difference between a signature and the expected parameters; None if there is none."""
    asked: Any = {}
    exec(f"def asked({expected}): ...", asked)
    left = [parameter for parameter in inspect.signature(found).parameters.values() if parameter.name != "self"]
    for parameter in inspect.signature(asked["asked"]).parameters.values():
        by_name = {one.name: one for one in left}
        if (one := by_name.get(parameter.name)) is None:
            return f"{parameter.name} is missing"
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and (one is not left[0] or one.kind is one.KEYWORD_ONLY):
            return f"{parameter.name} has another place"
        if parameter.default is not parameter.empty and parameter.default != one.default:
            return f"{parameter.name} is {one.default!r} by default"
        left.remove(one)
    return next((f"{one.name} has no default" for one in left if one.default is one.empty), None)
