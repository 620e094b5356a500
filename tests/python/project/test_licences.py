"""Crates linked into the package come from one registry and have licences that `deny.toml` allows.

Advisories are not checked here, because their database is on the network: `cargo deny check advisories` does that.
"""

import json
import re
import subprocess
import tomllib

import pytest

from paths import ROOT

ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met: one operand of each OR, all operands of each AND."""
    tokens = re.findall(r"[()]|[\w.+-]+(?: WITH [\w.-]+)?|/", expression)

    def alternatives() -> bool:
        met = joined()
        while tokens and tokens[0] in ("OR", "/"):
            tokens.pop(0)
            met = joined() or met
        return met

    def joined() -> bool:
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one() -> bool:
        token = tokens.pop(0)
        if token != "(":
            return token in ALLOWED
        met = alternatives()
        assert tokens.pop(0) == ")"
        return met

    met = alternatives()
    assert not tokens, expression
    return met


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT/Apache-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
        ("GPL-3.0-only OR (MIT AND SSPL-1.0)", False),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
    ],
)
def test_expressions(expression: str, met: bool) -> None:
    assert is_allowed(expression) is met


def test_every_dependency_is_allowed() -> None:
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version=1", "--features=python"]
    command += ["--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    # The crates that the library is linked with, without those of tests and build scripts.
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    reached, ahead = set(), [metadata["resolve"]["root"]]
    while ahead:
        name = ahead.pop()
        if name in reached:
            continue
        reached.add(name)
        for dependency in nodes[name]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    assert len(reached) > 50
    licences = {packages[name]["name"]: packages[name]["license"] for name in reached}
    refused = {name: licence for name, licence in licences.items() if licence is None or not is_allowed(licence)}
    assert not refused
    # All come from one registry, with versions and checksums in Cargo.lock.
    sources = {packages[name]["source"] for name in reached} - {None}
    assert len(sources) == 1
