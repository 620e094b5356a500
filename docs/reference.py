"""Hook of mkdocs: the pages of the reference, from the docstrings of the sources and of the stub.

Nothing is imported: the sources are parsed, so that the site can be built without the extension module.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGE = Path(__file__).parents[1] / "python" / "forebay"
MODULES = {
    "forebay": "__init__.py",
    "forebay.features": "features.py",
    "forebay.targets": "targets.py",
    "forebay.crops": "crops.py",
    "forebay.sampling": "sampling.py",
    "forebay.augment": "augment.py",
    "forebay.recipes": "recipes.py",
    "forebay.plot": "plot.py",
    "forebay.tokens": "tokens.py",
    "forebay.cache": "cache/__init__.py",
    "forebay.queue": "queue/__init__.py",
    "forebay.torch": "torch.py",
    "forebay.jax": "jax.py",
    "forebay.accelerate": "accelerate.py",
    "forebay.lightning": "lightning.py",
    "forebay.transformers": "transformers.py",
}
"""The public modules, in the order of their pages."""

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages."""
    for name, source in MODULES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page(name, PACKAGE / source)))
    return files


def page(name: str, source: Path) -> str:
    """The page of a module: its docstring, and its public names in alphabetical order."""
    tree = ast.parse(source.read_text())
    parts = [f"# {name}", text(tree)]
    for public in exported(tree):
        definition = found(public, source)
        if definition is not None:
            parts += described(definition, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def exported(tree: ast.Module) -> list[str]:
    """The names of `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return sorted(names)
    raise ValueError("a public module has no __all__")


def found(name: str, source: Path) -> _Definition | None:
    """The definition of a name: in its module, the stub, or a module that its package has; None for a value."""
    others = sorted(path for path in PACKAGE.rglob("*.py") if "cli" not in path.parts)
    beside = [path for path in others if path.parent == source.parent]
    for path in [source, PACKAGE / "_core.pyi", *beside, *others]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, _Definition) and node.name == name:
                return node
    return None


def described(node: _Definition, level: int) -> Iterator[str]:
    """The heading, signature and docstring of a class or function, and the methods of a class."""
    yield f"{'#' * level} {node.name}"
    yield f"```py\n{signature(node)}\n```"
    yield text(node)
    if isinstance(node, ast.ClassDef):
        values = [field for field in node.body if isinstance(field, ast.AnnAssign) and is_public(field.target)]
        if values:
            yield "\n".join(f"- `{ast.unparse(field)}`" for field in values)
        seen = set()
        for method in node.body:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not is_public(method):
                continue
            if method.name not in seen and ast.get_docstring(method):
                seen.add(method.name)
                yield from described(method, level + 1)


def is_public(node: ast.AST) -> bool:
    """Whether its name has no underscore in front."""
    name = getattr(node, "name", getattr(node, "id", "_"))
    return not name.startswith("_")


def signature(node: _Definition) -> str:
    """The first line of a definition; of a class, that of its constructor."""
    if isinstance(node, ast.ClassDef):
        made = next(
            (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in {"__init__", "__new__"}), None
        )
        return f"class {node.name}" if made is None else f"class {node.name}({arguments(made, skip=1)})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    is_method = bool(node.args.args) and node.args.args[0].arg in {"self", "cls"}
    prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if any(ast.unparse(one) == "property" for one in node.decorator_list):
        return f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}"
    return f"{prefix} {node.name}({arguments(node, skip=int(is_method))}){returns}"


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int) -> str:
    """The arguments, one on each line if they are many; `skip` of them are left out."""
    given = ast.arguments(**{name: getattr(node.args, name) for name in ast.arguments._fields})
    n_first = len(given.posonlyargs)
    given.posonlyargs = given.posonlyargs[skip:]
    given.args = given.args[max(skip - n_first, 0) :]
    line = ast.unparse(given)
    if len(line) < 80:
        return line
    return "\n    " + ",\n    ".join(split(line)) + ",\n"


def split(line: str) -> Iterator[str]:
    """Splits at commas outside of brackets and texts."""
    depth, begin, quote = 0, 0, ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and not depth:
            yield line[begin:at].strip()
            begin = at + 1
    yield line[begin:].strip()


def text(node: ast.Module | _Definition) -> str:
    """The docstring; lines that begin with `>>>` are code."""
    lines, is_code = [], False
    for line in (ast.get_docstring(node) or "").splitlines():
        begins = line.startswith((">>>", "...")) or (is_code and line.strip() != "")
        if begins != is_code:
            lines.append("```py" if begins else "```")
        is_code = begins
        lines.append(line)
    return "\n".join([*lines, "```"] if is_code else lines)
