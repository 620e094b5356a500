"""The notebooks of examples run from their folder, and are committed without outputs.

A cell runs as Jupyter runs it: all cells share one namespace, and the value of the last expression is shown, by
`_repr_html_` if it has that.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


def shown(value: object) -> str:
    """What a notebook shows of a value."""
    as_html = getattr(value, "_repr_html_", None)
    return repr(value) if as_html is None else str(as_html())


def run(source: str, name: str, names: dict[str, Any]) -> str | None:
    """Runs a cell; returns what is shown of its last expression."""
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), names)
        return None
    del tree.body[-1]
    exec(compile(tree, name, "exec"), names)
    value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    return None if value is None else shown(value)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["explore", "recipe"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notebook.parent)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    names: dict[str, Any] = {"__name__": "__main__"}
    pictures = 0
    for number, cell in enumerate(cells(notebook, "code")):
        said = run("".join(cell["source"]), f"{notebook.name}, code cell {number}", names)
        pictures += (said or "").count("<img ")
    assert pictures >= 8


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None), "clear all outputs before you save"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(notebook: Path) -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert all((notebook.parent / link).exists() for link in links)
