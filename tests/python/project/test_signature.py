"""Signature, docstring, stub and docs/parameters.md have the parameters of the tables in `crates/loader/src/config`."""

import ast
import inspect
import re
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest

import forebay
from forebay import _core
from paths import ROOT

TABLES: dict[str, list[dict[str, Any]]] = _core._parameters()


@pytest.mark.parametrize("name", TABLES)
def test_signature(name: str) -> None:
    loader: Any = getattr(_core, name)
    parameters = list(inspect.signature(loader).parameters.values())
    assert [parameter.name for parameter in parameters] == [row["name"] for row in TABLES[name]]
    for parameter, row in zip(parameters, TABLES[name], strict=True):
        assert (parameter.kind is parameter.KEYWORD_ONLY) == row["is_keyword_only"]
        default = parameter.empty if row["default"] is None else ast.literal_eval(row["default"])
        assert parameter.default == default, row["name"]
    first, *_, last = parameters
    assert (first.kind, last.kind) == (first.POSITIONAL_OR_KEYWORD, last.KEYWORD_ONLY)


@pytest.mark.parametrize("name", TABLES)
def test_docstring(name: str) -> None:
    docs = inspect.getdoc(getattr(_core, name))
    assert docs
    section = docs.partition("\nParameters\n----------\n")[2].partition("\n\nRaises\n------\n")[0]
    entries = re.findall(r"^(\w+) : (.+)\n((?:    .+\n?)+)", section, re.MULTILINE)
    assert [(entry, kind) for entry, kind, _ in entries] == [(row["name"], row["kind"]) for row in TABLES[name]]
    for (_, _, text), row in zip(entries, TABLES[name], strict=True):
        assert text.split() == row["docs"].split()
        assert text.strip().endswith(".")


def test_tables() -> None:
    """Stub and page equal the output of `make tables`; a failure shows the lines that differ."""
    command = [sys.executable, str(ROOT / "docs/tables.py"), "--check"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, ""), f"run `make tables`\n{process.stdout}"


def test_stub() -> None:
    """The stub of a class without a table has the defaults of the class."""
    stub = ast.parse(files("forebay").joinpath("_core.pyi").read_text())
    [cls] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "SpectrogramTransform"]
    [new] = [node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__new__"]
    positional = [argument.arg for argument in new.args.args[-len(new.args.defaults) :]]
    defaults = dict(zip(positional, map(ast.literal_eval, new.args.defaults), strict=True))
    for argument, default in zip(new.args.kwonlyargs, new.args.kw_defaults, strict=True):
        assert default is not None
        defaults[argument.arg] = ast.literal_eval(default)
    runtime = inspect.signature(_core.SpectrogramTransform).parameters.values()
    assert defaults == {p.name: p.default for p in runtime if p.default is not inspect.Parameter.empty}


@pytest.mark.parametrize("name", ["ForebayError", "ConfigError", "DecodeError", "StateError"])
def test_stub_of_errors(name: str) -> None:
    """The stub has the docstrings of the error classes."""
    stub = ast.parse(files("forebay").joinpath("_core.pyi").read_text())
    [cls] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name]
    assert ast.get_docstring(cls) == inspect.getdoc(getattr(forebay, name))


def test_everything_is_documented() -> None:
    for cls in (
        _core.DataLoader,
        forebay.Loader,
        forebay.LoaderBase,
        forebay.SpectrogramTransform,
        forebay.TokenLoader,
    ):
        public = [name for name in vars(cls) if not name.startswith("_")]
        assert all(inspect.getdoc(getattr(cls, name)) for name in [*public, "__doc__"])
    assert forebay.__version__ == re.search(
        r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE
    ).group(1)  # type: ignore[union-attr]
