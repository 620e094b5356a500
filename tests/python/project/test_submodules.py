"""Submodules are there after `import forebay`, and are imported when they are first used."""

import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from paths import ROOT

LAZY = [
    "accelerate",
    "augment",
    "batching",
    "cache",
    "crops",
    "features",
    "jax",
    "lightning",
    "plot",
    "queue",
    "recipes",
    "sampling",
    "targets",
    "text",
    "tokens",
    "torch",
    "transformers",
]


def run(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not found.returncode, found.stderr
    return found.stdout


def test_all_public_modules_are_lazy() -> None:
    package = ROOT / "python" / "forebay"
    names = {path.stem for path in package.glob("[a-z]*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert names - {"cli", "manifest", "quality"} == set(LAZY)
    assert set(LAZY) <= set(dir(forebay))


def test_completion_lists_public_names_alone() -> None:
    assert dir(forebay) == sorted([*forebay.__all__, *LAZY])
    for name in set(LAZY) - {"torch", "accelerate", "lightning", "transformers", "queue"}:
        module = getattr(forebay, name)
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, one) for one in module.__all__)


def test_nothing_is_imported_before_it_is_used() -> None:
    code = f"""
import sys, forebay
lazy = {[*(f"forebay.{name}" for name in LAZY), "torch", "jax", "transformers", "accelerate", "lightning"]}
assert not (found := [name for name in lazy if name in sys.modules]), found
dir(forebay)
assert not [name for name in lazy if name in sys.modules]
assert forebay.tokens.Tokenizer and forebay.cache.build
assert "forebay.queue" not in sys.modules and "torch" not in sys.modules
assert forebay.tokens is sys.modules["forebay.tokens"] and vars(forebay)["tokens"] is forebay.tokens
print("done")
"""
    assert run(code) == "done\n"


def test_a_framework_that_is_not_installed() -> None:
    """The error names it; `hasattr`, `help` and `inspect`, which read all attributes, work."""
    code = """
import sys
sys.modules["torch"] = None
import forebay, inspect, pydoc
assert not hasattr(forebay, "torch")
inspect.getmembers(forebay)
assert "TokenLoader" in pydoc.render_doc(forebay)
try:
    forebay.torch
except AttributeError as error:
    assert isinstance(error.__cause__, ImportError)
    print(error)
try:
    from forebay import torch
except ImportError as error:
    print(error)
"""
    first, second = run(code).splitlines()
    assert first.startswith("forebay.torch cannot be imported: ")
    assert "torch" in second


def test_other_names() -> None:
    with pytest.raises(AttributeError, match="module 'forebay' has no attribute 'loader'"):
        forebay.loader  # type: ignore[attr-defined] # noqa: B018


def test_type_checkers_see_them(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text("import forebay\n\nreveal_type(forebay.tokens.Tokenizer)\nreveal_type(forebay.cache.TreeStore)\n")
    command = [sys.executable, "-m", "mypy", str(file), "--cache-dir", str(tmp_path / "cache")]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    assert "-> forebay._core.Tokenizer" in found.stdout
    assert "-> forebay.cache.store.TreeStore" in found.stdout
