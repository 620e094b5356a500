"""`FOREBAY_CPU=portable`: decoded samples do not depend on the CPU's instructions; the last bits of features may."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from paths import DATA

CODECS = {".ogg", ".mp3", ".flac", ".wav"}
PROGRAM = """
import json, sys
sys.path[:0] = sys.argv[1:]
from test_levels import hashes
print(json.dumps(hashes()))
"""


def hashes() -> dict[str, Any]:
    """The samples of all recordings of the test data, and the features of noise."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in DATA.rglob("*") if path.suffix in CODECS):
        try:
            samples, rate = forebay.decode(path.read_bytes())
        except forebay.DecodeError as error:
            found[str(path.relative_to(DATA))] = str(error)
        else:
            found[str(path.relative_to(DATA))] = [rate, samples.shape, hashlib.sha256(samples.tobytes()).hexdigest()]
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    found["features"] = hashlib.sha256(forebay.features.LogMel()(noise).tobytes()).hexdigest()
    return found


def child(**variables: str) -> Any:
    command = [sys.executable, "-c", PROGRAM, *sys.path, str(Path(__file__).parent)]
    done = subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_samples_are_the_same_at_every_level() -> None:
    portable, found = child(FOREBAY_CPU="portable"), json.loads(json.dumps(hashes()))
    features = portable.pop("features"), found.pop("features")
    assert len(found) > 200
    assert portable == found
    flags = set(Path("/proc/cpuinfo").read_text().split()) if sys.platform == "linux" else set()
    if {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm"} <= flags:
        # The variable has an effect: fused operations round differently.
        assert features[0] != features[1]
