"""Hook of mkdocs: the pages of the reference, from the docstrings of the sources and of the stub.

Nothing is imported: the sources are parsed, so that the site can be built without the extension module.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "forebay"
MODULES = {
    "forebay": "__init__.py",
    "forebay.features": "features.py",
    "forebay.targets": "targets.py",
    "forebay.batching": "batching.py",
    "forebay.crops": "crops.py",
    "forebay.sampling": "sampling.py",
    "forebay.augment": "augment.py",
    "forebay.recipes": "recipes.py",
    "forebay.plot": "plot.py",
    "forebay.text": "text.py",
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

ROWS = {"TokenLoader": "tokens", "AudioDataset": "access", "DataLoader": "datasets"}
"""The classes whose parameters are a table in `crates/loader/src/config`, by its name; that of `Loader` is in
docs/parameters.md."""
WIDTH = 84
"""Characters of a line of a long signature."""
MANY = 14
"""From this number of arguments on a signature has names and defaults only."""

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
        yield from parameters(node)
        values = [field for field in node.body if isinstance(field, ast.AnnAssign) and is_public(field.target)]
        if values:
            yield "\n".join(f"- `{readable(ast.unparse(field))}`" for field in values)
        seen = set()
        for method in node.body:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or not is_public(method):
                continue
            if method.name not in seen and ast.get_docstring(method):
                seen.add(method.name)
                yield from described(method, level + 1)


def parameters(node: ast.ClassDef) -> Iterator[str]:
    """The parameters of a class of the core: for `Loader` the tables of the page, else those of `ROWS`."""
    if not any(ast.unparse(base).startswith(("LoaderBase", "_AudioDataset")) for base in node.bases):
        return
    if node.name == "Loader":
        tables = (ROOT / "docs/parameters.md").read_text().split("<!-- ")[1].partition("-->")[2]
        yield "### Parameters of Loader"
        yield "The page [Parameters](../parameters.md) says more about some of them."
        yield re.sub(r"^### ", "#### ", tables.strip(), flags=re.MULTILINE)
    elif node.name in ROWS:
        source = (ROOT / f"crates/loader/src/config/{ROWS[node.name]}.rs").read_text()
        table = source.partition(f'as "{node.name}" {{')[2].partition("\n        } }")[0]
        row = re.compile(r"((?: +/// .*\n)+) +(\w+): \w+(?: = ([^,;]+))?,")
        entries = [
            (
                name,
                f"default `{default.replace('_', '') if default[0].isdigit() else python(default)}`" if default else "",
                re.sub(r" *///", "", docs),
            )
            for docs, name, default in row.findall(table)
        ]
        yield "**Parameters**"
        yield "\n".join(entry(*one) for one in entries)


def python(value: str) -> str:
    """A default of Rust as Python writes it."""
    return {"true": "True", "false": "False"}.get(value, value)


def entry(name: str, kind: str, docs: str) -> str:
    """A parameter as an item of a list."""
    words = " ".join(docs.split())
    return f"- **`{name}`**{f' ({kind})' if kind else ''}: {words}"


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
    returns = f" -> {readable(ast.unparse(node.returns))}" if node.returns else ""
    is_method = bool(node.args.args) and node.args.args[0].arg in {"self", "cls"}
    prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if any(ast.unparse(one) == "property" for one in node.decorator_list):
        return f"{node.name}: {readable(ast.unparse(node.returns)) if node.returns else 'Any'}"
    return f"{prefix} {node.name}({arguments(node, skip=int(is_method))}){returns}"


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int) -> str:
    """The arguments, one on each line if they are many; `skip` of them are left out."""
    given = ast.arguments(**{name: getattr(node.args, name) for name in ast.arguments._fields})
    n_first = len(given.posonlyargs)
    given.posonlyargs = given.posonlyargs[skip:]
    given.args = given.args[max(skip - n_first, 0) :]
    line = readable(ast.unparse(given))
    if len(line) < 80:
        return line
    each = list(split(line))
    if len(each) < MANY:
        return "\n    " + ",\n    ".join(map(wrapped, each)) + ",\n"
    lines = [""]
    for one in each:
        name, default = one.partition(":")[0], one.rpartition("=")[2]
        short = f"{name}={default}" if "=" in one else name
        if len(lines[-1]) + len(short) > WIDTH:
            lines.append("")
        lines[-1] += f"{short}, "
    return "\n    " + "\n    ".join(one.rstrip() for one in lines) + "\n"


def wrapped(argument: str) -> str:
    """An argument on lines of at most `WIDTH` characters, broken before `|` and after commas of its type."""
    lines = [""]
    for piece in re.split(r"(?<=,) |(?= \| )", argument):
        if lines[-1] and len(lines[-1]) + len(piece) > WIDTH:
            lines.append(piece.strip())
        else:
            lines[-1] += piece if piece.startswith(" ") or not lines[-1] else f" {piece}"
    return "\n        ".join(lines)


@cache
def aliases() -> dict[str, str]:
    """The types that only the stub has, by name: what they stand for."""
    nodes = ast.parse((PACKAGE / "_core.pyi").read_text()).body
    found = {
        ast.unparse(node.target): ast.unparse(node.value)
        for node in nodes
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.annotation) == "TypeAlias"
    }
    # Protocols of what the modules of forebay and other libraries have.
    return found | {
        "_FrontEndPart": "forebay.features object",
        "_BatchingPart": "forebay.batching object",
        "_CropPart": "forebay.crops object",
        "_SamplingPart": "forebay.sampling object",
        "_StepPart": "forebay.augment object",
        "_TargetPart": "forebay.targets object",
        "_TextPart": "forebay.text object",
        "_HubDataset": "datasets.Dataset",
        "_HubTokenizer": "tokenizers.Tokenizer",
        "_Overrides": "parameters",
    }


def readable(line: str) -> str:
    """A signature with private types replaced by what they stand for, or by their names without underscore."""
    for _ in range(3):  # they stand for each other
        line = re.sub(r"\b_[A-Z]\w+", lambda found: aliases().get(found[0], found[0].lstrip("_")), line)
    return line.replace("Unpack[parameters]", "parameters of Loader")


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
    """The docstring; lines that begin with `>>>` are code, and sections of numpydoc are lists."""
    lines: list[str] = []
    is_code = False
    for line in sections((ast.get_docstring(node) or "").splitlines()):
        begins = line.startswith((">>>", "...")) or (is_code and line.strip() != "")
        if begins != is_code:
            lines.append("```py" if begins else "```")
        is_code = begins
        lines.append(DIRECTIVE.sub("", line))
    return "\n".join([*lines, "```"] if is_code else lines)


DIRECTIVE = re.compile(r"\s*# doctest: .*$")
"""What tells the test of the examples something, and the reader nothing."""


def sections(lines: list[str]) -> Iterator[str]:
    """The lines of a docstring, with each section of numpydoc as a title and a list of its entries."""
    at = 0
    while at < len(lines):
        is_section = at + 1 < len(lines) and lines[at] and set(lines[at + 1]) == {"-"} and len(lines[at + 1]) > 2
        if not is_section:
            yield lines[at]
            at += 1
            continue
        yield from (f"**{lines[at]}**", "")
        at += 2
        while at < len(lines) and lines[at]:
            name, _, kind = lines[at].partition(" : ")
            docs: list[str] = []
            at += 1
            while at < len(lines) and (
                lines[at].startswith("    ")
                or (not lines[at] and docs and at + 1 < len(lines) and lines[at + 1].startswith("    "))
            ):
                docs.append(lines[at])
                at += 1
            yield entry(name, f"*{kind}*" if kind else "", " ".join(docs))
