"""Paths of the files that tests read."""

from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = ROOT / "examples"
