"""Everything about a device that one run of less than eight minutes can tell: `make bench-device`.

    python benches/device.py [--device cuda] [--seconds 2] [--minutes 8] [--out build/bench-device]

1. Parity: the errors of `forebay.torch.Features` on the device, of all presets on the golden clips, and masks, rolls
   and weights of `forebay.torch.Augment` beside those on the CPU.
2. Splits: examples/s and bytes over the bus with features by the loader's workers, and of int16 waveforms on the
   device, of WAV, FLAC and OGG (`forebay bench --device` for a source of yours).
3. Overlap: a step of matrix products on batches of a `DevicePrefetcher`; the share of the copies' time in which the
   device computes, from a trace (`trace.json`, for chrome://tracing).
4. Scaling: examples/s of log-mel and of int16 waveforms by format, and tokens/s, on 1, 2, 4, 8 and 16 cores, and the
   same per second of CPU time.

Each part says what it skips and why; a part that fails is reported, and the others run. The results are printed and
written to `results.json`. Needs torch and the package; soundfile for FLAC and OGG, pyarrow for tokens. The recordings
and the documents are made on the first run, into the folder of results.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
import wave
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import forebay
from forebay import features

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "python" / "helpers"))

RATE = 32_000
FORMATS = {"wav": "WAV", "flac": "FLAC", "ogg": "OGG"}
N_RECORDINGS, SECONDS = 48, 20
CORES = (1, 2, 4, 8, 16)
LOADER: dict[str, Any] = {"batch_size": 64, "clip_seconds": 5.0, "label_column": "", "order": "global"}
N_FILES, N_DOCUMENTS = 4, 2000
"""Of documents, in the page cache after the first pass."""


class SkippedError(Exception):
    """A part that cannot run here, with the reason."""


class Clock:
    """The time that is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def check(self, wanted: float) -> None:
        """Skips what would take longer than is left."""
        if time.monotonic() + wanted > self._end:
            raise SkippedError("the time of the run is over; give more --minutes")


say = partial(print, flush=True)


def recordings(folder: Path, form: str) -> Path:
    """The folder of recordings of a format, written if it is not there."""
    found = folder / form
    if found.exists():
        return found
    if form != "wav" and find_spec("soundfile") is None:
        raise SkippedError(f"soundfile, which writes {FORMATS[form]}, is not installed")
    partial = folder / f"{form}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    rng, n = np.random.default_rng(0), SECONDS * RATE
    if find_spec("soundfile") is None:
        whole = rng.normal(0, 0.1, 4 * n).astype(np.float32)
    else:
        from sounds import sound

        whole = sound(RATE)
    for number in range(N_RECORDINGS):
        samples = np.take(whole, rng.integers(len(whole)) + np.arange(n), mode="wrap")
        path = partial / f"{number}.{form}"
        if form == "wav":
            with wave.open(str(path), "wb") as out:
                out.setnchannels(1)
                out.setsampwidth(2)
                out.setframerate(RATE)
                out.writeframes((samples * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes())
        else:
            import soundfile

            with soundfile.SoundFile(path, "w", RATE, 1, format=FORMATS[form]) as out:
                for at in range(0, n, RATE):  # libsndfile's encoder of Vorbis fails with long blocks
                    out.write(samples[at : at + RATE])
    partial.rename(found)
    return found


def documents(folder: Path) -> list[str]:
    """Parquet files of paragraphs of this project's pages."""
    found = folder / "documents"
    if not found.exists():
        if find_spec("pyarrow") is None:
            raise SkippedError("pyarrow, which writes the documents, is not installed")
        import pyarrow as pa
        import pyarrow.parquet as pq

        pages = [page.read_text().split("\n\n") for page in sorted((ROOT / "docs").glob("*.md"))]
        paragraphs = [paragraph for page in pages for paragraph in page]
        rng = np.random.default_rng(0)
        partial = folder / "documents.partial"
        partial.mkdir(parents=True, exist_ok=True)
        for number in range(N_FILES):
            texts = ["\n\n".join(rng.choice(paragraphs, rng.integers(1, 12))) for _ in range(N_DOCUMENTS)]
            pq.write_table(pa.table({"text": texts}), partial / f"{number}.parquet", row_group_size=500)
        partial.rename(found)
    return sorted(map(str, found.iterdir()))


def parity(device: str, _options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Errors on the device of all presets, within the limits of the tests."""
    import torch

    from device_features import stated, worst
    from forebay.augment import CutMix, FrameRoll, Mixup, SpecAugment
    from forebay.torch import Augment, Features

    clock.check(60)
    on_cuda = device.startswith("cuda")

    def compute(of: Any, waveforms: list[Any]) -> list[Any]:
        module = Features(of).to(device)
        return [module(torch.from_numpy(waveform).to(device)).cpu().numpy() for waveform in waveforms]

    found, limits = worst(compute), stated("torch")
    say(f"| preset | {device}: mean | loud | quiet | |\n|---|--:|--:|--:|---|")
    failed = []
    for name, each in found.items():
        # Three times those of docs/features.md, as in the tests.
        fits = all(error <= max(3 * said, 1e-7) for error, said in zip(each, limits[name], strict=True))
        failed += [] if fits else [name]
        say(f"| {name} | {' | '.join(f'{error:.0e}' for error in each)} | {'' if fits else 'above the limit'} |")
    steps = [SpecAugment(20, 2, 30, 2, warp=5, fill=-77.0), FrameRoll(), Mixup(0.4), CutMix(part="box")]
    module = Augment(steps, "icefall", padding="included")
    bits = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 64)
    batch = {"waveform": np.zeros((64, 16_000)), "augment_bits": bits, "slot": np.arange(64)}
    drawn = torch.from_numpy(module.draw(batch)["augment_draws"])
    spectrogram = torch.randn(64, 100, 80, generator=torch.Generator().manual_seed(0))
    here = module(spectrogram, drawn)
    there = module.to(device)(spectrogram.to(device), drawn.to(device)).cpu()
    augmented = float((here - there).abs().max())
    weights = torch.equal(module.pairs(drawn)[0], module.pairs(drawn.to(device))[0].cpu())
    say(f"Augment: largest difference to the CPU {augmented:.0e}, weights {'equal' if weights else 'differ'}")
    compiled = "not on the CPU, where a test does it"
    if on_cuda:
        x = torch.from_numpy(np.random.default_rng(1).normal(0, 0.1, (4, 32_000)).astype(np.float32)).to(device)
        whole = Features("birdset").to(device)
        compiled = float((torch.compile(whole, fullgraph=True)(x) - whole(x)).abs().max())
    say(f"torch.compile(fullgraph=True), largest difference: {compiled}")
    return {"errors": found, "above": failed, "augment": augmented, "weights": weights, "compiled": compiled}


def splits(device: str, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Features by the workers and on the device, by format."""
    from forebay.cli import bench_device

    n_workers = len(os.sched_getaffinity(0))
    found = {}
    for form, name in FORMATS.items():
        clock.check(4 * options.seconds + 10)
        try:
            source = recordings(options.out, form)
        except SkippedError as reason:
            say(f"{name}: skipped, {reason}")
            continue
        of = features.preset("birdset")
        given = {**LOADER, "n_workers": n_workers}
        found[form] = bench_device.measured(str(source), given, of, device, options.seconds)
        say(f"{name}, birdset:", *bench_device.lines(found[form], n_workers, given["batch_size"]), sep="\n  ")
    return found


def overlapped(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Milliseconds of copies to the device, of its kernels, and of copies while a kernel runs, of a trace's events."""
    copies, kernels = [], []
    for event in events:
        place = (event.get("ts", 0.0), event.get("ts", 0.0) + event.get("dur", 0.0))
        if event.get("cat") == "gpu_memcpy" and "HtoD" in event.get("name", ""):
            copies.append(place)
        elif event.get("cat") == "kernel":
            kernels.append(place)
    busy: list[list[float]] = []
    for begin, end in sorted(kernels):
        if busy and begin <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([begin, end])
    both = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in copies for since, until in busy)
    return {
        "copies_ms": sum(end - begin for begin, end in copies) / 1000,
        "kernels_ms": sum(end - begin for begin, end in busy) / 1000,
        "overlap_ms": both / 1000,
    }


def overlap(device: str, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Whether copies run while the device computes, from a trace."""
    if not device.startswith("cuda"):
        raise SkippedError("on the CPU nothing is copied")
    import torch

    from forebay.torch import DevicePrefetcher, Features

    clock.check(30)
    compute = Features("birdset", padding="included").to(device)
    matrix = torch.randn(4096, 4096, device=device, dtype=torch.float16)
    of = features.Waveform(sample_rate=RATE, dtype="int16")
    n_batches = 20
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    source = str(recordings(options.out, "wav"))
    with forebay.Loader(source, features=of, outputs=["valid_samples"], **LOADER) as loader:
        batches = DevicePrefetcher(loader, device)
        for _ in range(3):
            compute(next(batches)["waveform"])
        time.sleep(1.0)  # so that batches are ready, and only copies and kernels count
        torch.cuda.synchronize(device)
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(n_batches):
                batch = next(batches)
                compute(batch["waveform"], batch["valid_samples"])
                for _ in range(20):
                    matrix = (matrix @ matrix).clamp(-1, 1)
            torch.cuda.synchronize(device)
    trace = options.out / "trace.json"
    profile.export_chrome_trace(str(trace))
    found = overlapped(json.loads(trace.read_text())["traceEvents"])
    if not found["copies_ms"]:
        raise SkippedError("the trace has no copies to the device: the profiler sees no CUDA activity here")
    share = found["overlap_ms"] / found["copies_ms"]
    say(f"{n_batches} batches: copies {found['copies_ms']:.1f} ms, kernels {found['kernels_ms']:.1f} ms; "
        f"{100 * share:.0f} % of the copies' time the device computes")  # fmt: skip
    return {**found, "share": share}


def scaling(_device: str, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Rates by number of cores, each in a process of its own that has so many."""
    here = sorted(os.sched_getaffinity(0))
    found: dict[str, Any] = {}
    works = [f"{form} {kind}" for form in FORMATS for kind in ("log-mel", "int16")] + ["tokens"]
    skipped = []
    for work in works:
        try:
            documents(options.out) if work == "tokens" else recordings(options.out, work.split()[0])
        except SkippedError as reason:
            skipped.append(f"{work}: skipped, {reason}")
            continue
        found[work] = {}
        for n in (n for n in CORES if n <= len(here)):
            try:
                clock.check(options.seconds + 4)
            except SkippedError as reason:
                skipped.append(f"{work} on {n} cores: skipped, {reason}")
                break
            command = [sys.executable, __file__, "--out", str(options.out), "--seconds", str(options.seconds)]
            done = subprocess.run(
                [*command, "--work", work], capture_output=True, text=True, check=False, timeout=options.seconds + 120,
                preexec_fn=lambda n=n: os.sched_setaffinity(0, here[:n]),
            )  # fmt: skip
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                skipped.append(f"{work} on {n} cores: failed, {lines[-1] if lines else done.returncode}")
                break
            found[work][n] = [float(number) for number in done.stdout.split()]
    say("per second; per second of CPU time, which other programs on the machine change less:")
    say("| cores | " + " | ".join(found) + " |\n|--:|" + "--:|" * len(found))
    for n in CORES:
        if n > len(here):
            skipped.append(f"{n} cores: skipped, this machine has {len(here)}")
            continue
        cells = ("; ".join(f"{number:.0f}" for number in rates.get(n, [])) for rates in found.values())
        say(f"| {n} | {' | '.join(cells)} |")
    say(*skipped, sep="\n")
    return {"rates": found, "skipped": skipped}


def rate(work: str, options: argparse.Namespace) -> list[float]:
    """Examples of a format, or tokens, per second and per second of CPU time, on the cores that this process has."""
    n_workers = len(os.sched_getaffinity(0))
    if work == "tokens":
        ranks = str(ROOT / "tests" / "data" / "tokens" / "gpt2.tiktoken")
        given = {"batch_size": 16, "seq_len": 1024, "bos_id": 50_256, "n_workers": n_workers}
        loader: Any = forebay.TokenLoader(documents(options.out), ranks, **given)
    else:
        form, kind = work.split()
        of = features.preset("birdset") if kind == "log-mel" else features.Waveform(sample_rate=RATE, dtype="int16")
        loader = forebay.Loader(str(recordings(options.out, form)), features=of, n_workers=n_workers, **LOADER)
    with loader:
        for _ in range(3):
            next(loader)
        n, begin, cpu = 0, time.perf_counter(), time.process_time()
        while (seconds := time.perf_counter() - begin) < options.seconds:
            batch = next(loader)
            n += (
                batch["inputs"].size
                if work == "tokens"
                else len(batch["waveform" if kind == "int16" else "spectrogram"])
            )
        return [n / seconds, n / (time.process_time() - cpu)]


PARTS: dict[str, Callable[[str, argparse.Namespace, Clock], dict[str, Any]]] = {
    "parity": parity, "splits": splits, "overlap": overlap, "scaling": scaling,
}  # fmt: skip


def described(device: str) -> dict[str, Any]:
    """The machine and the versions."""
    import torch

    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]  # fmt: skip
    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU",
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "forebay": forebay.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="default: cuda, or the CPU if torch finds no CUDA device")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=8.0, help="after which parts are skipped")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-device")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--work", help=argparse.SUPPRESS)  # of a process of `scaling`
    options = parser.parse_args()
    if options.work:
        say(*rate(options.work, options))
        return
    if find_spec("torch") is None:
        sys.exit("benches/device.py needs torch, and torch is not installed: pip install torch")
    import torch

    # A reserve for what is under way when the time is over.
    clock = Clock(60 * options.minutes - 20)
    options.out.mkdir(parents=True, exist_ok=True)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(f"--device is {device}, and torch finds no CUDA device; use --device cpu")
    results: dict[str, Any] = {"machine": described(device)}
    say(*(f"{name}: {value}" for name, value in results["machine"].items()), sep=", ")
    if device == "cpu":
        say("on the CPU: nothing here says anything about a GPU")
    for name in options.parts:
        begin = time.monotonic()
        say(f"\n## {name}")
        try:
            results[name] = PARTS[name](device, options, clock)
        except SkippedError as reason:
            results[name] = {"skipped": str(reason)}
            say(f"skipped: {reason}")
        except Exception as error:
            results[name] = {"failed": repr(error)}
            say(f"failed:\n{traceback.format_exc()}")
        say(f"({time.monotonic() - begin:.0f} s)")
        (options.out / "results.json").write_text(json.dumps(results, indent=1, default=float) + "\n")
    if any("failed" in results[name] for name in options.parts) or results.get("parity", {}).get("above"):
        sys.exit(1)


if __name__ == "__main__":
    main()
