"""Runs forebay and its peers over the same shards, interleaved, and prints the tables.

`python benches/peers/run.py`, from any folder. Needs Python >= 3.11, pip, apt (one package of sounds) and
ffmpeg's shared libraries (Hugging Face Audio, SPDL); installs nothing outside its work folder. Environments,
data set and sweep take long, so they are made once and kept there.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent  # also where peers are started: `-m` looks there first
sys.path[0] = str(BENCHES)  # so that `grain` is the library, and `peers.grain` the file beside this one

from peers import environments, report  # noqa: E402
from peers.memory import PeakMemory  # noqa: E402

FORMATS = ("ogg", "mp3", "flac", "wav", "ogg44", "opus")
REQUIRED = ("torch_soundfile", "torchcodec", "lhotse", "hugging_face", "spdl", "grain")
OTHERS = ("dali", "webdataset", "tf_data", "mosaicml", "litdata")
PEERS = ("forebay", *REQUIRED, *OTHERS)
SWEEP_SECONDS = 2.0
LOOP_STEPS = 40  # of a training loop in which `next()` is timed
TIMEOUT_S = 240


class PeerError(Exception):
    """The last line of a peer's output before it failed."""


def log(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


def measure(python: Path, peer: str, files: list[str], options: dict, seconds: float, n_steps: int = 0) -> dict:
    """One run of one peer, in a process group that is killed afterwards with all processes left in it."""
    command = [
        python,
        "-m",
        "peers.one",
        peer,
        "--files",
        *files,
        "--options",
        json.dumps(options),
        "--seconds",
        str(seconds),
        "--steps",
        str(n_steps),
    ]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        # files instead of pipes: workers that outlive their parent would keep a pipe open
        process = subprocess.Popen(
            [str(part) for part in command],
            env=environments.variables(),
            cwd=BENCHES,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        with PeakMemory(process.pid) as peak:
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise PeerError(f"no result after {TIMEOUT_S} s") from None
            finally:
                end_group(process.pid)
                process.wait()
        if process.returncode != 0:
            errors.seek(0)
            lines = errors.read().strip().splitlines()
            raise PeerError(lines[-1] if lines else f"ended with {process.returncode}")
        output.seek(0)
        return json.loads(output.read().splitlines()[-1]) | {"megabytes": peak.megabytes}


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Bench:
    """The peers that run, their environments and settings, and the results so far."""

    def __init__(self, work: Path, formats: list[str], seconds: float, full: bool):
        self.work, self.formats, self.seconds, self.full = work, formats, seconds, full
        self.pythons: dict[str, Path] = {}
        self.problems: dict[str, str] = {}
        self.cells: dict[str, dict[str, list[dict]]] = {}
        self.settings_file = work / "sweep.json"
        self.settings = json.loads(self.settings_file.read_text()) if self.settings_file.exists() else {}

    def install(self, peers: list[str], wheel: Path | None) -> None:
        for peer in peers:
            try:
                if peer == "forebay":
                    self.pythons[peer] = environments.of_forebay(self.work, wheel)
                else:
                    self.pythons[peer] = environments.of_peer(peer, self.work)
            except environments.InstallError as error:
                self.failed(peer, f"does not install: {error}")

    def failed(self, peer: str, problem: str) -> None:
        log(f"{peer}: {problem}")
        self.problems[peer] = problem
        self.pythons.pop(peer, None)

    def make_data(self) -> None:
        summary = self.work / "data" / "summary.json"
        made = json.loads(summary.read_text())["megabytes"] if summary.exists() else {}
        if not set(FORMATS) <= set(made):
            log("building the data set (about 4 minutes)")
            python = environments.python_of(environments.common(self.work))
            command = [python, "-m", "peers.dataset", self.work / "data"]
            subprocess.run(command, env=environments.variables(), cwd=BENCHES, check=True)

    def files(self, name: str) -> list[str]:
        return [str(path) for path in sorted((self.work / "data" / name).glob("*.arrow"))]

    def warm_cache(self) -> None:
        for name in self.formats:
            for path in self.files(name):
                Path(path).read_bytes()

    def sweep(self, again: bool) -> None:
        """Finds each peer's best settings per format, one short run each; known ones are kept unless `again`."""
        for peer, python in list(self.pythons.items()):
            options = self.options_of(peer, python)
            if not options:
                continue
            for name in self.formats_of(peer):
                known = self.settings.setdefault(peer, {}).get(name)
                if known and known["tried"] == options and not again:
                    continue
                try:
                    results = [self.quick(peer, python, name, option) for option in options]
                except PeerError as error:
                    self.failed(peer, f"does not run: {error}")
                    break
                best = max(range(len(options)), key=results.__getitem__)
                self.settings[peer][name] = {"best": options[best], "tried": options, "examples_per_s": results}
                self.settings_file.write_text(json.dumps(self.settings, indent=1))

    def quick(self, peer: str, python: Path, name: str, option: dict) -> float:
        speed = measure(python, peer, self.files(name), option, SWEEP_SECONDS)["examples_per_s"]
        log(f"sweep {peer} {name} {option}: {speed:.0f}/s")
        return round(speed, 1)

    def options_of(self, peer: str, python: Path) -> list[dict]:
        command = [python, "-c", f"import json; from peers.{peer} import SWEEP; print(json.dumps(SWEEP))"]
        done = subprocess.run(
            command, env=environments.variables(), cwd=BENCHES, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            self.failed(peer, f"does not import: {done.stderr.strip().splitlines()[-1]}")
            return []
        return json.loads(done.stdout.splitlines()[-1])

    def formats_of(self, peer: str) -> list[str]:
        """The optional peers run on the first format only, unless `--full`."""
        return self.formats if self.full or peer not in OTHERS else self.formats[:1]

    def rounds(self, n_runs: int) -> None:
        """Runs `n_runs` rounds over every format and peer; each round begins with another peer."""
        for run in range(n_runs):
            for name in self.formats:
                peers = [peer for peer in self.pythons if name in self.formats_of(peer)]
                for peer in peers[run % len(peers) :] + peers[: run % len(peers)]:
                    self.one(run, peer, name)

    def one(self, run: int, peer: str, name: str) -> None:
        # A training loop on the first format, of the peers that are measured on all.
        n_steps = LOOP_STEPS if name == self.formats[0] and peer not in OTHERS else 0
        option = self.settings[peer][name]["best"]
        try:
            result = measure(self.pythons[peer], peer, self.files(name), option, self.seconds, n_steps)
        except PeerError as error:
            self.problems[peer] = f"{name}: {error}"
            log(f"round {run + 1} {name} {peer}: {error}")
            return
        self.cells.setdefault(peer, {}).setdefault(name, []).append(result)
        log(f"round {run + 1} {name} {peer}: {result['examples_per_s']:.0f}/s")

    def medians(self) -> dict[str, dict[str, dict]]:
        """Median of every quantity, by peer and format."""
        return {
            peer: {
                name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                for name, runs in formats.items()
            }
            for peer, formats in self.cells.items()
        }


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def arguments() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work", type=Path, default=cache / "forebay-peers", help="environments, data set, sweep, results"
    )
    parser.add_argument("--wheel", type=Path, help="forebay as a built wheel; without it the repository is built")
    parser.add_argument("--skip", type=names, default=[], help="peers to leave out, by commas")
    parser.add_argument("--only", type=names, default=list(PEERS), help=f"of {','.join(PEERS)}")
    parser.add_argument("--formats", type=names, default=list(FORMATS), help=f"of {','.join(FORMATS)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=4, help="measured time of each run, after one second of warm-up"
    )
    parser.add_argument("--full", action="store_true", help="the optional peers on every format too")
    parser.add_argument("--sweep", action="store_true", help="find the best settings again")
    parser.add_argument(
        "--prepare", action="store_true", help="install, build the data set and sweep, but don't measure"
    )
    return parser.parse_args()


def main() -> None:
    given = arguments()
    unknown = [name for name in given.only + given.skip if name not in PEERS]
    if unknown or set(given.formats) - set(FORMATS):
        raise SystemExit(f"unknown: {unknown or given.formats}; peers are {PEERS}, formats {FORMATS}")
    given.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(given.work.resolve(), given.formats, given.seconds, given.full)
    bench.install([peer for peer in given.only if peer not in given.skip], given.wheel)
    bench.make_data()
    bench.warm_cache()
    bench.sweep(given.sweep)
    if given.prepare:
        return
    log("measuring")
    bench.rounds(given.runs)
    summary = json.loads((bench.work / "data" / "summary.json").read_text())
    table = report.text(bench.medians(), bench.problems, bench.settings, bench.formats, summary, given)
    (bench.work / "results.json").write_text(json.dumps({"cells": bench.cells, "problems": bench.problems}, indent=1))
    (bench.work / "results.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
