"""Imports of the Python package and of the crate have no circles, neither between modules nor between folders."""

import random
import re
from pathlib import Path

import pytest

from graph import circles, folded, imports, is_path, rust_imports, shown
from paths import ROOT

PACKAGE = ROOT / "python" / "forebay"
ABC = ["p.a", "p.b", "p.c"]


def test_modules_and_packages_have_no_circle() -> None:
    edges = imports(PACKAGE)
    assert ("forebay.cli.build", "forebay.cache.__init__") in edges
    assert ("forebay.__init__", "forebay._buffers") in edges
    assert not (found := circles(edges)), shown(found)
    # A module directly in the package is a separate node beside the subpackages.
    assert not (found := circles(folded(edges, 2))), shown(found)


def test_the_crate_has_no_circle() -> None:
    edges = rust_imports(ROOT / "src")
    assert ("crate.python.loader", "crate.python.arguments") in edges
    assert not (found := circles(edges)), shown(found)
    # A file directly in a folder is a separate node beside the folders in it.
    for depth in (2, 3):
        assert not (found := circles(folded(edges, depth))), shown(found)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "crates").iterdir()))
def test_crates_have_no_circle(name: str) -> None:
    folder = ROOT / "crates" / name / "src"
    edges = rust_imports(folder)
    assert edges or name == "simd"  # its files import its first page alone
    # Through a re-export, in a nested list, and by a path in the code.
    engine = {
        ("crate.engine.flow.permits", "crate.contract.memory"),
        ("crate.engine.flow.reader", "crate.engine.plan"),
        ("crate.engine.flow.run", "crate.engine.flow.worker"),
    }
    assert name != "engine" or engine <= edges
    for depth in (2, 3, 9):
        assert not (found := circles(folded(edges, depth))), shown(found)


CRATES = sorted(
    path.parents[1].name for path in ROOT.glob("crates/*/src/lib.rs") if len(list(path.parent.iterdir())) > 1
)


@pytest.mark.parametrize("name", CRATES)
def test_the_first_page_of_a_crate_names_its_files(name: str) -> None:
    folder = ROOT / "crates" / name / "src"
    page = (folder / "lib.rs").read_text()
    files = set(re.findall(r"^(?:pub )?mod (\w+);", page, re.MULTILINE))
    tests_only = set(
        re.findall(
            r"^#\[cfg\((?:test|any\(test, fuzzing\))\)\]\n(?:#\[path.*\n)?(?:pub )?mod (\w+);", page, re.MULTILINE
        )
    )
    rows = re.findall(r"^//! \| (`[\w`, ]+`) \|", page, re.MULTILINE)
    named = [file for row in rows for file in re.findall(r"\w+", row)]
    assert sorted(named) == sorted(files - tests_only)


def test_packages_import_what_is_below_them() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    [table] = [part for part in re.split(r"\n(?!\|)", page) if "| `forebay-loader` |" in part]
    packages = re.findall(r"^\| `forebay-(\w+)` \|", table, re.MULTILINE)
    assert sorted(packages) == sorted(path.name for path in (ROOT / "crates").iterdir())
    for above, name in enumerate(packages):
        manifest = (ROOT / "crates" / name / "Cargo.toml").read_text()
        for other in re.findall(r"^forebay-(\w+) =", manifest, re.MULTILINE):
            assert other in packages[above + 1 :], (name, other)


def test_the_design_names_the_modules_of_python() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    [table] = [part for part in re.split(r"\n(?!\|)", page) if "| `features`, `targets`" in part]
    named = set(re.findall(r"`(\w+)/?`", table))
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__", "__main__"} <= named


def test_the_map_of_the_engine_names_its_files() -> None:
    folder = ROOT / "crates" / "engine" / "src" / "engine"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.rs")}
    named = re.findall(r"^//! \| `([a-z_/]+\.rs)` \|", (folder / "mod.rs").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(file for file in files if "/" not in file or not file.endswith("/mod.rs"))


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "use crate::b::B;", "b": "use crate::c;", "c": ""}, []),
        ({"a": "use crate::b::B;", "b": "fn f() { super::a::g() }"}, ["crate.a", "crate.b", "crate.a"]),
        ({"a": "use crate::b::{self, B};", "b": "#[cfg(test)]\nmod tests { use crate::a::A; }"}, []),
        ({"a": "pub use crate::b::B;", "b": "", "c": "use crate::a::B;"}, []),
        ({"a": '// crate::b\nconst T: &str = "crate::b";', "b": "use crate::a::T;"}, []),
        ({"a/mod": "mod x; use x::X;", "a/x": "use super::Y;"}, []),
        (
            {"a/mod": "mod x;", "a/x": "use crate::{b::{C as D, B}};", "b": "use crate::a::x::X;"},
            ["crate.a.x", "crate.b", "crate.a.x"],
        ),
    ],
)
def test_circles_of_a_crate(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    for name, text in files.items():
        path = tmp_path / f"{name}.rs"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert circles(rust_imports(tmp_path)) == ([found] if found else [])


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "import p.b", "b": "import p.c", "c": ""}, []),
        ({"a": "import p.b", "b": "from p import a"}, ["p.a", "p.b", "p.a"]),
        ({"a": "def f():\n    from p.b import x", "b": "from .c import x", "c": "from . import a"}, [*ABC, "p.a"]),
        ({"__init__": "from p.a import x", "a": "from p import x"}, ["p.__init__", "p.a", "p.__init__"]),
        ({"__init__": "from p.a import x", "a": "from p import b", "b": ""}, []),
        ({"a": "if TYPE_CHECKING:\n    import p.b", "b": "import p.a"}, ["p.a", "p.b", "p.a"]),
    ],
)
def test_circles_of_a_package(tmp_path: Path, files: dict[str, str], found: list[str]) -> None:
    for name, text in files.items():
        (tmp_path / "p").mkdir(exist_ok=True)
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert circles(imports(tmp_path / "p")) == ([found] if found else [])


def test_packages_may_form_a_circle_where_modules_do_not(tmp_path: Path) -> None:
    for package, name, text in (("a", "x", "import p.b.y"), ("b", "y", ""), ("b", "z", "import p.a.x")):
        (tmp_path / "p" / package).mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / package / f"{name}.py").write_text(text)
    edges = imports(tmp_path / "p")
    assert not circles(edges)
    assert circles(folded(edges, 2)) == [["p.a", "p.b", "p.a"]]


def test_circles_against_a_search_of_all_pairs() -> None:
    """The circles found cover exactly the nodes that reach another node and are reached from it."""
    rng = random.Random(3)
    n_with = 0
    for _ in range(300):
        nodes = "abcdefg"[: rng.randint(1, 7)]
        edges = {(rng.choice(nodes), rng.choice(nodes)) for _ in range(rng.randint(0, 8))}
        reached = set(edges)
        for middle in nodes:
            reached |= {(a, d) for a, b in reached for c, d in reached if b == middle == c}
        on_circles = {begin for begin, end in reached if begin != end and (end, begin) in reached}
        found = circles(edges)
        assert all(is_path(edges, circle) for circle in found)
        assert {node for circle in found for node in circle} == on_circles
        n_with += bool(found)
    assert 50 < n_with < 250
