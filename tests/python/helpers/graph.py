"""Import graphs of Python packages and of a crate, and the circles in them."""

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

Edges = Iterable[tuple[str, str]]


def circles(edges: Edges) -> list[list[str]]:
    """Shortest circles, as paths that end where they begin; they cover all nodes that are on a circle.

    An edge from a node to itself is no circle: it is within one file or one folder.
    """
    graph: dict[str, set[str]] = {}
    for begin, end in edges:
        graph.setdefault(begin, set()).add(end)
        graph.setdefault(end, set())
    found: list[list[str]] = []
    seen: set[str] = set()
    for node in sorted(graph):
        if node not in seen and (circle := _shortest(graph, node)):
            found.append(circle)
            seen.update(circle)
    return found


def _shortest(graph: Mapping[str, set[str]], node: str) -> list[str]:
    """The shortest path from `node` back to it over other nodes; empty if there is none."""
    came_from: dict[str, str] = {}
    ahead = [node]
    for one in ahead:
        for other in sorted(graph[one] - {one}):
            if other == node:
                path = [node, one]
                while path[-1] != node:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other not in came_from:
                came_from[other] = one
                ahead.append(other)
    return []


def folded(edges: Edges, depth: int) -> set[tuple[str, str]]:
    """The edges between packages: each dotted name is cut to its first `depth` parts."""

    def kept(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    return {(kept(begin), kept(end)) for begin, end in edges}


def imports(root: Path) -> set[tuple[str, str]]:
    """The imports between the modules of the package in `root`, including those inside functions.

    An import of `a.b.c` counts as one of `a.b.c` only, although Python runs `a` and `a.b` first. The node of a
    package is its `__init__`, as `a.b.__init__`, so that imports from it by its own modules are found. An
    extension module, which has only a stub, imports nothing.
    """
    modules = {_name(path, root) for path in root.rglob("*.py*")}
    return {(_name(path, root), other) for path in root.rglob("*.py") for other in _imported(path, root, modules)}


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


def _imported(path: Path, root: Path, modules: Container[str]) -> Iterator[str]:
    def module(dotted: str) -> str | None:
        return next((one for one in (dotted, f"{dotted}.__init__") if one in modules), None)

    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from filter(None, (module(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            parts = _name(path, root).split(".")[: -node.level] if node.level else []
            begin = ".".join([*parts, *([node.module] if node.module else [])])
            # Each name is a module of the package, or an item of the package's `__init__`.
            yield from filter(None, (module(f"{begin}.{alias.name}") or module(begin) for alias in node.names))


def shown(found: list[list[str]]) -> str:
    """The circles as text, one line each."""
    return "\n".join(" > ".join(circle) for circle in found)


def is_path(edges: Edges, circle: list[str]) -> bool:
    """Whether each step of `circle` is an edge and the circle is closed."""
    known = set(edges)
    return len(circle) > 2 and circle[0] == circle[-1] and all(step in known for step in pairwise(circle))


RUST_TESTS = ("tests", "naive", "oracle", "fuzz")
"""Names of Rust modules that are compiled for tests only."""


def rust_imports(root: Path) -> set[tuple[str, str]]:
    """The imports between the modules of the crate in `root`, without its tests.

    A path to a re-exported item counts as a path to the module that defines it. The use of an item of a
    containing module, as `super::Thing`, is no edge.
    """
    files = {_module(path, root): path for path in root.rglob("*.rs") if path.stem not in RUST_TESTS}
    texts = {module: _library(path.read_text()) for module, path in files.items()}
    passed_on = {}
    for module, text in texts.items():
        for tree in re.findall(r"\bpub(?:\([a-z: ]+\))? use ([^;]+);", text):
            for path in _paths(tree):
                if (found := _resolved(path, module, texts)) and found[1]:
                    passed_on[module, found[1]] = found
    edges = set()
    for module, text in texts.items():
        uses = re.findall(r"(?<!pub )(?<!\) )\buse ([^;]+);", text)
        rest = re.sub(r"\b(?:pub(?:\([a-z: ]+\))? )?use [^;]+;", "", text)
        for tree in [*uses, *re.findall(r"\b(?:crate|super)(?:::\w+)+", rest)]:
            for path in _paths(tree):
                found = _resolved(path, module, texts)
                for _ in range(len(texts)):
                    found = passed_on.get(found, found) if found else None
                if found and not module.startswith(found[0]):
                    edges.add((module, found[0]))
    return edges


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(["crate", *(part for part in parts if part not in ("mod", "lib"))])


def _library(text: str) -> str:
    """The code without comments, string literals and items that are compiled for tests only."""
    quiet = r"""r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'|//[^\n]*"""
    text = re.sub(quiet, "", text, flags=re.DOTALL)
    only_tests = r"#\[cfg\((?:test|any\(test, fuzzing\))\)\]\s*(?:pub(?:\([a-z]+\))? )?\w+[^;{]*"
    kept, at = "", 0
    for match in re.finditer(only_tests, text):
        if match.start() < at:
            continue
        kept += text[at : match.start()]
        at, depth = match.end(), 0
        while at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
    return kept + text[at:]


def _paths(tree: str) -> Iterator[str]:
    """The paths of a `use`: `a::{b, c::d}` is a::b and a::c::d."""
    begin, brace, rest = tree.strip().partition("{")
    if not brace:
        yield begin.split(" as ")[0].strip()
        return
    depth, part = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield from (begin.strip() + path for path in _paths(part) if part.strip())
            part = ""
        else:
            part += letter


def _resolved(path: str, module: str, modules: Container[str]) -> tuple[str, str] | None:
    """The module of a path and the item in it; None if the path is outside the crate."""
    first, *rest = path.split("::")
    at = module
    if first == "crate":
        at = "crate"
    elif first == "super":
        at = module.rpartition(".")[0]
    elif f"{module}.{first}" in modules:
        rest = [first, *rest]
    elif first != "self":
        return None
    while rest and rest[0] == "super":
        at, rest = at.rpartition(".")[0], rest[1:]
    while rest and f"{at}.{rest[0]}" in modules:
        at, rest = f"{at}.{rest[0]}", rest[1:]
    return at, rest[0] if rest else ""
