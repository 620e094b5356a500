"""Tests and wheel have the same builds of the crates that both need.

Cargo unites the features of all packages that it builds at once, and builds a crate again for other features. So a
dev-dependency that requests a feature that the wheel lacks has that crate, and all that depend on it, built twice.
"""

import subprocess

from paths import ROOT


def features(*arguments: str) -> dict[str, set[str]]:
    """By package: its features, for each build of it."""
    command = ["cargo", "tree", "--locked", "--offline", "--prefix=none", "--format={p}|{f}", *arguments]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, set[str]] = {}
    for line in tree.splitlines():
        package, _, names = line.removesuffix(" (*)").partition("|")
        found.setdefault(package, set()).add(names)
    return found


def test_dev_dependencies_request_no_features_of_the_wheels_dependencies() -> None:
    tests = features("--workspace", "--edges=normal,build,dev")
    wheel = features("--package=forebay", "--features=python", "--edges=normal,build")
    own = {package for package in wheel if package.startswith("forebay v")}
    both = (wheel.keys() & tests.keys()) - own
    assert len(both) > 200
    for package in sorted(both):
        more = {name for names in tests[package] for name in names.split(",")}
        less = {name for names in wheel[package] for name in names.split(",")}
        assert wheel[package] <= tests[package], (
            f"{package} is built twice: the tests need its features {sorted(more)}, the wheel {sorted(less)}; "
            "see tests/python/project/test_builds.py"
        )
