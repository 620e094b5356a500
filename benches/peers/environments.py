"""One virtual environment per peer, on top of a common one.

The common one holds torch, `datasets` and the codecs (`requirements.txt`). A `.pth` line in each peer's
environment (`requirements/<peer>.txt`) adds the common one. The peer's own packages come first, so peers that
need other versions of a package don't affect each other. If an installation fails, pip's message is kept and
shown in the table.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


class InstallError(Exception):
    """The last line of pip's output about a peer."""


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def pip_install(folder: Path, *arguments: str) -> None:
    command = [python_of(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InstallError(lines[-1] if lines else f"pip ended with {done.returncode}")


def make(folder: Path, requirements: Path, below: Path | None = None) -> Path:
    """The environment's Python; installs only if the requirements changed since the last time."""
    wanted = requirements.read_text() if requirements.exists() else ""
    mark = folder / "installed.txt"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        if below is not None:
            (site_packages(folder) / "below.pth").write_text(f"{site_packages(below)}\n")
        if wanted:
            pip_install(folder, "-r", str(requirements))
        mark.write_text(wanted)
    return python_of(folder)


def common(work: Path) -> Path:
    """The folder of the common environment."""
    folder = work / "env" / "common"
    make(folder, HERE / "requirements.txt")
    return folder


def of_peer(name: str, work: Path) -> Path:
    """The Python that runs a peer. Raises InstallError."""
    return make(work / "env" / name, HERE / "requirements" / f"{name}.txt", below=common(work))


def of_forebay(work: Path, wheel: Path | None) -> Path:
    """The Python that runs forebay: the given wheel, or this repository, built now by its own backend."""
    python = make(work / "env" / "forebay", HERE / "requirements" / "forebay.txt", below=common(work))
    pip_install(python.parent.parent, "--force-reinstall", "--no-deps", str(wheel or REPOSITORY))
    return python


def variables() -> dict[str, str]:
    """The environment variables of a peer's process: one thread per worker in the maths libraries."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    return {**os.environ, **one, **quiet, "PYTHONPATH": str(HERE.parent), "CUDA_VISIBLE_DEVICES": ""}
