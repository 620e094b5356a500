"""`forebay bench`: how many examples per second this machine makes of a source, by number of workers.

Each number of workers is measured with a loop that does nothing, by `Loader.headspace`. The figure is an upper bound
for a training loop. The smallest number within 5 % of the fastest is suggested: more threads would only take cores
and memory from the training. If storage is the limit, more reads in flight are tried too. Where torch and soundfile
are installed, a DataLoader does the same work, for comparison. With `--device` the features by workers are compared
with features of int16 waveforms on the device. Of texts, `bench_texts` measures each number.
"""

import argparse
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay._checks import URL
from forebay._core import ConfigError, Loader, _cores, _parameters
from forebay._progress import Progress
from forebay.cli import bench_dataloader, bench_device, bench_texts, inspect, texts
from forebay.cli.common import (
    add_json,
    add_reading,
    add_source,
    counted,
    out_of,
    progress_bar,
    reading,
    say,
    subcommand,
    using,
    wrapped,
)
from forebay.features import LogMel, Waveform, preset, presets

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CLOSE = 0.95
"""The share of the highest speed from which fewer workers are suggested."""
MOST_SECONDS = 600.0
"""The longest measurement of one number of workers."""
STORAGE = ("I/O-bound", "network-bound")
"""The verdicts that more reads in flight may help."""
BUSY = "other processes use the machine"
"""The words of a verdict whose figures are too low."""
READERS = next(int(row["default"]) for row in _parameters()["Loader"] if row["name"] == "n_readers")
MORE_READERS = 4 * READERS
COMPARED = 512
"""The most recordings in files of their own that the DataLoader reads."""


def add(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subcommand(
        subparsers,
        "bench",
        "measure a source on this machine, and suggest n_workers",
        "Measures examples per second of a source on this machine, for several numbers of workers and a loop that "
        "does nothing; prints what limits each, and suggests parameters. If torch and soundfile are installed, a torch "
        "DataLoader with soundfile is measured beside them. With --device, the features by workers are compared with "
        "features of int16 waveforms on the device. With --tokenizer, SOURCE has texts: measures packed tokens per "
        "second, and the waste of packing. After Ctrl-C the numbers so far are printed.",
        "  forebay bench shards/\n"
        "  forebay bench shards/ --features birdset --n-workers 2,4,8 --seconds 10\n"
        "  forebay bench shards/ --features icefall --device cuda\n"
        "  forebay bench 'shards/*.parquet' --json - > bench.json\n"
        "  forebay bench texts.jsonl -t tokenizer.json --fit carry",
        "cores, order, runs (n_workers, n_readers, examples_per_s, verdict, filled), suggested (n_workers, n_readers), "
        "dataloader (examples_per_s, n_workers, recordings, ratio; or reason), device (device, name, splits, faster, "
        "features_ms; or null); of texts cores, runs (n_workers, examples_per_s, tokens_per_s, dropped, padding, "
        "verdict, filled), suggested (n_workers)",
    )
    add_source(parser)
    parser.add_argument(
        "-w", "--n-workers", type=numbers, metavar="N,N,...", help="numbers of workers (default: 1, 2, 4, ... cores)"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="of each measurement (default: %(default)g)"
    )
    parser.add_argument(
        "--features", choices=sorted(presets()), metavar="NAME",
        help=f"a preset: {', '.join(sorted(presets()))} (default: the features of a Loader)",
    )  # fmt: skip
    parser.add_argument(
        "--clip-seconds", type=float, default=5.0, metavar="S", help="length of the clips in s (default: %(default)g)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="examples in a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--order",
        choices=("sequential", "window", "global", "era"),
        help="order of the rows (default: that of Loader.train for this source)",
    )
    parser.add_argument(
        "--compare", action=argparse.BooleanOptionalAction,
        help="also measure soundfile in a torch DataLoader (default: if both are installed)",
    )  # fmt: skip
    parser.add_argument(
        "--device", metavar="DEVICE", help="cuda, cuda:1 or cpu: also compare features by workers and on the device"
    )
    add_reading(parser, "SOURCE")
    bench_texts.add(texts.add(parser))
    add_json(parser)
    parser.set_defaults(run=run, parameters={"source": "SOURCE", "arrow_files": "SOURCE"})


def numbers(text: str) -> list[int]:
    """Numbers of workers, separated by commas."""
    found = [int(one) if one.strip().isdigit() else 0 for one in text.split(",")]
    if not all(1 <= one <= 1024 for one in found):
        raise argparse.ArgumentTypeError(f"{text} must be numbers of 1 to 1024, separated by commas")
    return sorted(set(found))


def steps(cores: int) -> list[int]:
    """1, 2, 4, ... and the number of cores."""
    return sorted({*(1 << i for i in range(cores.bit_length()) if 1 << i <= cores), cores})


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Measures, prints a table and a suggestion."""
    texts.check(options, bench_texts.OPTIONS, bench_texts.BOTH)
    if not 0.1 <= options.seconds <= MOST_SECONDS:
        raise ConfigError(f"--seconds is {options.seconds:g}, must be 0.1 to {MOST_SECONDS:g}")
    if texts.are_meant(options):
        return of_texts(options)
    given = {
        **reading(options), "features": options.features, "clip_seconds": options.clip_seconds,
        "batch_size": options.batch_size, "order": options.order, "label_column": "",
    }  # fmt: skip
    missing = bench_dataloader.missing()
    if options.compare and missing:
        raise ConfigError(f"--compare needs torch and soundfile, and {missing}")
    device = None if options.device is None else bench_device.checked(options.device)
    is_compared = missing is None and options.compare is not False
    wanted = options.n_workers or steps(_cores())
    runs: list[dict[str, Any]] = []
    order: str = options.order or ""
    on_device: dict[str, Any] | None = None
    beside: dict[str, Any] = {"reason": "--no-compare" if missing is None else missing}

    def measure(progress: Progress, n_workers: int, n_readers: int = READERS) -> None:
        nonlocal order
        threads: dict[str, Any] = {"n_workers": n_workers, "n_readers": n_readers}
        with using("SOURCE", options), texts.hinted(), Loader(options.files, **threads, **given) as loader:
            order = loader.recipe.to_dict()["order"]
            found = loader.headspace(options.seconds)
        names = ("examples_per_s", "verdict", "filled")
        values: dict[str, Any] = {name: found[name] for name in names}  # type: ignore[literal-required]
        runs.append({**threads, **values})
        progress.add(done=1)

    is_interrupted = False
    try:
        with progress_bar(len(wanted) + is_compared + 2 * (device is not None), "measurements") as progress:
            for n_workers in wanted:
                measure(progress, n_workers)
            fastest = best(runs)
            if fastest["verdict"].startswith(STORAGE):
                progress.total += 1
                measure(progress, fastest["n_workers"], n_readers=MORE_READERS)
            if is_compared:
                beside = compared(options)
                progress.add(done=1)
            if device is not None:
                threads = {name: best(runs)[name] for name in ("n_workers", "n_readers")}
                front_end = LogMel() if options.features is None else preset(options.features)
                parameters = {name: value for name, value in given.items() if name != "features"} | threads
                with using("SOURCE", options):
                    on_device = bench_device.measured(options.files, parameters, front_end, device, options.seconds)
                progress.add(done=2)
    except KeyboardInterrupt:
        is_interrupted = True
    suggested = {}
    if runs:
        fastest = best(runs)
        suggested = {name: fastest[name] for name in ("n_workers", "n_readers")}
        if "examples_per_s" in beside:
            most = max(run["examples_per_s"] for run in runs)
            beside["ratio"] = round(most / max(beside["examples_per_s"], 1e-9), 2)
    head = counted(_cores(), "core") + (f", order {order}" if order else "")
    said = [*lines(runs, beside if is_compared else {}, head, options.batch_size)]
    if on_device is not None:
        said += bench_device.lines(on_device, best(runs)["n_workers"], options.batch_size)
    out_of(options).write("\n".join(said) + "\n")
    if is_interrupted:
        say(f"{options.parser.prog}: interrupted; these are the measurements so far\n")
    found = {
        "cores": _cores(), "order": order, "runs": runs, "suggested": suggested, "dataloader": beside,
        "device": on_device,
    }  # fmt: skip
    return 130 if is_interrupted else 0, found


def of_texts(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """As `run`, of texts."""
    wanted = options.n_workers or steps(_cores())
    runs: list[dict[str, Any]] = []
    is_interrupted = False
    try:
        with progress_bar(len(wanted), "measurements") as progress:
            for n_workers in wanted:
                runs.append(bench_texts.measured(options, n_workers))
                progress.add(done=1)
    except KeyboardInterrupt:
        is_interrupted = True
    said = [f"{counted(_cores(), 'core')}, {bench_texts.head(options)}, a loop that does nothing:"]
    said += [*bench_texts.lines(runs), *ends(runs, "TokenLoader(SOURCE, ...", options.batch_size)]
    out_of(options).write("\n".join(said) + "\n")
    if is_interrupted:
        say(f"{options.parser.prog}: interrupted; these are the measurements so far\n")
    suggested = {"n_workers": best(runs)["n_workers"]} if runs else {}
    return 130 if is_interrupted else 0, {"cores": _cores(), "runs": runs, "suggested": suggested}


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """The same work by soundfile in a DataLoader."""
    features: Any = LogMel() if options.features is None else preset(options.features)
    mel = None
    if not isinstance(features, Waveform):
        mel = {name: getattr(features, name) for name in ("n_fft", "hop_length", "n_mels")}
        mel["n_fft"] = mel["n_fft"] or 1 << (features.win_length - 1).bit_length()
    work = {
        "n_workers": max(options.n_workers or [_cores()]), "batch_size": options.batch_size,
        "seconds": options.seconds, "clip_seconds": options.clip_seconds, "sample_rate": features.sample_rate,
        "mel": mel, "paths": [], "shards": [], "column": "",
    }  # fmt: skip
    given = reading(options)
    with using("SOURCE", options), inspect.opened(options.files, given) as dataset:
        shards = dataset.shards
        audio = [name for name, kind in dataset.columns.items() if kind == "audio"]
    if any(re.match(URL, shard["path"]) for shard in shards):
        return {"reason": "recordings behind URLs are not compared"}
    if all(inspect.kind(shard["path"]) != "file" for shard in shards):
        work["paths"] = bench_dataloader.paths_of(shards, rows_of(options, given))
        if not work["paths"]:
            return {"reason": "the files of the recordings were not found beside their table"}
    else:
        work["shards"] = [shard["path"] for shard in shards]
        work["column"] = options.audio_column or next(iter(audio), "")
    return bench_dataloader.measured(work)


def rows_of(options: argparse.Namespace, given: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The table and the path of some rows."""
    found: list[tuple[int, str]] = []
    parameters = {**given, "clip_seconds": 0.1, "batch_size": 64, "order": "global", "label_column": ""}
    with Loader(options.files, infinite=False, outputs=["shard", "path"], **parameters) as loader:
        for batch in loader:
            found += zip(batch["shard"].tolist(), map(str, batch["path"]), strict=True)
            if len(found) >= COMPARED:
                break
    return found


def best(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run with the fewest threads that is nearly as fast as the fastest."""
    most = max(run["examples_per_s"] for run in runs)
    fast = (run for run in runs if run["examples_per_s"] >= CLOSE * most)
    return min(fast, key=lambda run: (run["n_workers"], run.get("n_readers", 0)))


def lines(runs: Sequence[Mapping[str, Any]], beside: Mapping[str, Any], head: str, batch_size: int) -> Iterator[str]:
    """The measurements for the terminal; `head` has the cores and the order."""
    yield f"{head}, a loop that does nothing:"
    yield f"  {'n_workers':>9}  {'examples/s':>10}  limit"
    for run in runs:
        readers = f"(n_readers={run['n_readers']}) " if run["n_readers"] != READERS else ""
        yield wrapped(f"{readers}{run['verdict']}", f"  {run['n_workers']:>9}  {rate(run):>10.1f}  ")
    if "reason" in beside:
        yield f"no comparison with soundfile in a torch DataLoader: {beside['reason']}"
    elif beside:
        times = f"; forebay makes {beside['ratio']:.1f} times as many" if "ratio" in beside else ""
        workers = f"{counted(beside['n_workers'], 'worker process')}"
        yield wrapped(f"soundfile in a torch DataLoader, {workers}: {beside['examples_per_s']:.1f} examples/s{times}")
    yield from ends(runs, "Loader.train(SOURCE", batch_size)


def ends(runs: Sequence[Mapping[str, Any]], call: str, batch_size: int) -> Iterator[str]:
    """What follows from the measurements; `call` is the beginning of that of the loader."""
    if any(BUSY in run["verdict"] for run in runs):
        yield wrapped(
            f"{BUSY}, so these figures are too low, and the comparison may be wrong: measure again when it is idle"
        )
    if runs:
        fastest = best(runs)
        readers = f", n_readers={fastest['n_readers']}" if fastest.get("n_readers", READERS) != READERS else ""
        yield f"suggested: {call}, n_workers={fastest['n_workers']}{readers})"
        if rate(fastest):
            yield f"a training step of more than {1000 * batch_size / rate(fastest):.0f} ms a batch never waits for it"


def rate(run: Mapping[str, Any]) -> float:
    """The examples per second, 0 if there were none."""
    speed: float = run["examples_per_s"]
    return speed if math.isfinite(speed) else 0.0
