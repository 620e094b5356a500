"""Graphs of what imports what, and their circles."""

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

Edges = Iterable[tuple[str, str]]


def circles(edges: Edges) -> list[list[str]]:
    """Shortest circles, as paths that end where they begin: each node that lies on one is in one of them.

    A node that refers to itself is no circle: it is one file, or one folder.
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
    """The same between packages: of each dotted name the first `depth` parts are kept."""

    def kept(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    return {(kept(begin), kept(end)) for begin, end in edges}


def imports(root: Path) -> set[tuple[str, str]]:
    """Who imports whom among the modules of the package in `root`, wherever in a module the statement is.

    An import of `a.b.c` counts as one of `a.b.c` alone, although Python runs `a` and `a.b` before. A package is
    named by its `__init__`, as `a.b.__init__`, so that imports of its own modules from it are seen. A module that
    has a stub alone, an extension, imports nothing.
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
            # Each name is a module of the package, or something that the package itself has.
            yield from filter(None, (module(f"{begin}.{alias.name}") or module(begin) for alias in node.names))


def shown(found: list[list[str]]) -> str:
    """Circles as lines of text."""
    return "\n".join(" > ".join(circle) for circle in found)


def is_path(edges: Edges, circle: list[str]) -> bool:
    """Whether each step of `circle` is an edge, and it ends where it begins."""
    known = set(edges)
    return len(circle) > 2 and circle[0] == circle[-1] and all(step in known for step in pairwise(circle))
