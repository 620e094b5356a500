"""Scenes: short programs with loaders of all kinds that run in child processes and print measurements as JSON."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from paths import HELPERS
from recordings import TINY

INTERRUPT_LIMIT_S = 3 * 0.15
END_LIMIT_S = 3 * 0.5

PRELUDE = f"""
import collections, gc, itertools, json, logging, multiprocessing, os, pickle, random, signal, sys, threading, time
import warnings
from pathlib import Path
sys.path.insert(0, {str(HELPERS)!r})
import forebay
from forebay import _core
import numbered

logging.getLogger("forebay").setLevel(logging.ERROR)  # the shards have bad rows
warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork in a process with threads
folder = Path(sys.argv[1])
shards = sorted(folder.glob("*.arrow"))
small = dict(shuffle_min_size=50, shuffle_buffer_size=100, batch_size=8, n_workers=2, **{TINY!r})

def encode(text):
    return list(text.encode())

def audio(**parameters):
    return forebay.Loader(shards, **{{**small, **parameters}})

def tokens(**parameters):
    return forebay.TokenLoader(folder, encode, bos_id=256, batch_size=4, seq_len=63, buffer_size=20, **parameters)

def rows():
    return numbered.loader(4000, pipeline=numbered.Pipeline(0.002), shuffle=True)

LOADERS = {{"Loader": audio, "TokenLoader": tokens, "AsyncDataLoader": rows}}

def threads():
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            pass
    return [name for name in names + numbered.threads() if name.startswith("forebay")]

def seconds_to_end():
    start = time.perf_counter()
    while threads() and time.perf_counter() - start < 60:
        time.sleep(0.002)
    return time.perf_counter() - start

def report(**measured):
    print(json.dumps(measured), flush=True)
"""


class Scenes:
    """Runs programs in child processes, each after the same prelude."""

    def __init__(self, prelude: str) -> None:
        self.prelude = prelude

    def start(
        self, scene: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Starts a scene; `environment` is added to this process's environment."""
        script = self.prelude + textwrap.dedent(scene)
        command = [sys.executable, "-c", script, *map(str, arguments)]
        environment = {**os.environ, **(environment or {})}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def play(
        self, scene: str, *arguments: object, seconds: float = 600, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Runs a scene, which must exit with 0 and an empty stderr; returns its report."""
        with self.start(scene, *arguments, environment=environment) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert (process.returncode, err) == (0, ""), (process.returncode, err)
        measured: dict[str, Any] = json.loads(out)
        return measured


start, play = Scenes(PRELUDE).start, Scenes(PRELUDE).play
