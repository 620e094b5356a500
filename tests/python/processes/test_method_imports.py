"""No method of an object imports a module at its first use."""

from pathlib import Path

import pytest

from beside import DATASETS, LOADERS, TABLE
from scenes import Scenes

play = Scenes(TABLE).play


@pytest.mark.parametrize("kind", [*LOADERS, "_Batches", *DATASETS])
def test_no_method_imports(kind: str, mixed_folder: Path) -> None:
    """A handler that interrupts an import finds a module half imported, so no method imports at its first use."""
    scene = """
    import builtins, subprocess
    thing, found = made(sys.argv[2])
    # This program imports much before it makes the object; others do not.
    program = "import sys, forebay, forebay.cache, forebay._async; print(*sys.modules)"
    always = {*subprocess.check_output([sys.executable, "-c", program], text=True).split(), "numbered"}
    always.add("forebay._recipe")  # imported by the constructor
    imported, plain = {}, builtins.__import__

    def record(module, *arguments):
        if module not in always:
            imported[name] = module
        return plain(module, *arguments)

    for name in found:
        before = set(sys.modules)
        builtins.__import__ = record
        Table(found).attempt(name, "")
        builtins.__import__ = plain
        if new := sorted(set(sys.modules) - before):
            imported[name] = new
    report(imported=imported)
    """
    assert play(scene, mixed_folder, kind) == {"imported": {}}
