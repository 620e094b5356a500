"""The tables of the peer bench, as Markdown."""

import os
import platform
import time
from pathlib import Path

TITLES = {
    "forebay": "**forebay**",
    "torch_soundfile": "torch DataLoader, soundfile seek",
    "torchcodec": "torchcodec spans, DataLoader",
    "lhotse": "Lhotse cuts, DataLoader",
    "hugging_face": "Hugging Face Audio, whole file (usual)",
    "spdl": "SPDL",
    "grain": "Grain",
    "dali": "DALI (CPU)",
    "webdataset": "WebDataset",
    "tf_data": "tf.data",
    "mosaicml": "MosaicML streaming",
    "litdata": "litdata",
}
COLUMNS = {"ogg": "OGG", "mp3": "MP3", "flac": "FLAC", "wav": "WAV", "ogg44": "OGG 44.1k", "opus": "OPUS"}
GOALS = {"ogg": 5.5, "mp3": 5.5, "flac": 4.2, "wav": 6.0, "ogg44": 5.0, "opus": 3.0}
USUAL_GOAL = 15.0
USUAL = "hugging_face"
AGREE_WITHIN = 0.5  # of a peer's mean log energy from the median of all; crops differ, so it can't be exact


def machine() -> str:
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":")[1].strip()
            break
    return f"{model}, {os.cpu_count()} virtual cores, Python {platform.python_version()}"


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def header(first: list[str], formats: list[str]) -> list[str]:
    titles = first + [COLUMNS[name] for name in formats]
    return [row(titles), "|---" + "|---:" * (len(titles) - 1) + "|"]


def speeds(medians: dict, formats: list[str]) -> list[str]:
    lines = header(["examples/s"], formats)
    for peer, cells in medians.items():
        values = [f"{cells[name]['examples_per_s']:.0f}" if name in cells else "" for name in formats]
        lines.append(row([TITLES[peer], *values]))
    return lines


def ratios(medians: dict, formats: list[str]) -> list[str]:
    """The speed of forebay over each peer's; then over the best peer's, with the goal."""
    ours = medians["forebay"]
    peers = {peer: cells for peer, cells in medians.items() if peer != "forebay"}

    def ratio(name: str, speed: float | None) -> str:
        return f"{ours[name]['examples_per_s'] / speed:.2f}" if speed and name in ours else ""

    lines = header(["forebay is faster, times"], formats)
    for peer, cells in peers.items():
        lines.append(
            row([f"than {TITLES[peer]}", *(ratio(n, cells.get(n, {}).get("examples_per_s")) for n in formats)])
        )
    best = {
        n: max((cells[n]["examples_per_s"] for cells in peers.values() if n in cells), default=None) for n in formats
    }
    lines.append(row(["**than the best of them**", *(f"**{ratio(n, best[n])}**" for n in formats)]))
    lines.append(row(["goal", *(f"{GOALS[n]}" for n in formats)]))
    if USUAL in peers:
        lines.append(row(["goal against the usual way", *(f"{USUAL_GOAL}" for _ in formats)]))
    return lines


def starts(medians: dict, formats: list[str]) -> list[str]:
    lines = [row(["first format: " + COLUMNS[formats[0]], "imports, s", "start to first batch, s", "peak memory, MB"])]
    lines.append("|---|---:|---:|---:|")
    for peer, cells in medians.items():
        if formats[0] in cells:
            cell = cells[formats[0]]
            numbers = [f"{cell['import_s']:.2f}", f"{cell['first_batch_s']:.2f}", f"{cell['megabytes']:.0f}"]
            lines.append(row([TITLES[peer], *numbers]))
    return lines


def loops(medians: dict, formats: list[str]) -> list[str]:
    """How long `next()` takes in a training loop; empty where no loop ran."""
    measured = {peer: cells[formats[0]] for peer, cells in medians.items() if "step_s" in cells.get(formats[0], {})}
    if not measured:
        return []
    lines = [
        row(
            [f"`next()` in a training loop, {COLUMNS[formats[0]]}", "step, ms", "median, ms", "90 %, ms", "longest, ms"]
        )
    ]
    lines.append("|---" + "|---:" * 4 + "|")
    for peer, cell in measured.items():
        numbers = [f"{1000 * cell['step_s']:.0f}"]
        numbers += [f"{1000 * cell[key]:.2f}" for key in ("median_wait_s", "late_wait_s", "longest_wait_s")]
        lines.append(row([TITLES[peer], *numbers]))
    return [*lines, ""]


def memories(medians: dict, formats: list[str]) -> list[str]:
    lines = header(["peak memory, MB"], formats)
    for peer, cells in medians.items():
        lines.append(row([TITLES[peer], *(f"{cells[n]['megabytes']:.0f}" if n in cells else "" for n in formats)]))
    return lines


def settings_used(medians: dict, settings: dict, formats: list[str]) -> list[str]:
    """One line per peer: the settings that the sweep chose, joined where formats agree."""
    lines = []
    for peer, cells in medians.items():
        chosen: dict[str, list[str]] = {}
        for name in formats:
            if name in cells:
                best = settings[peer][name]["best"]
                text = ", ".join(f"{key} {value}" for key, value in best.items())
                chosen.setdefault(text, []).append(COLUMNS[name])
        lines.append(f"- {TITLES[peer]}: " + "; ".join(f"{text} ({', '.join(on)})" for text, on in chosen.items()))
    return lines


def disagreements(medians: dict, formats: list[str]) -> list[str]:
    """Peers whose spectrograms differ from the others' on average: they did other work, or decode wrongly."""
    lines = []
    for name in formats:
        means = sorted(cells[name]["mean"] for cells in medians.values() if name in cells)
        if not means:
            continue
        middle = means[len(means) // 2]
        for peer, cells in medians.items():
            if name in cells and abs(cells[name]["mean"] - middle) > AGREE_WITHIN:
                found = f"mean log energy {cells[name]['mean']:.2f}, the others {middle:.2f}"
                lines.append(f"- {TITLES[peer]} on {COLUMNS[name]}: {found}")
    return lines


def text(medians: dict, problems: dict, settings: dict, formats: list[str], summary: dict, given) -> str:
    """The whole report. `medians`: peer, format, quantity; `problems`: peer, error."""
    order = [peer for peer in TITLES if peer in medians]
    medians = {peer: medians[peer] for peer in order}
    sizes = ", ".join(f"{COLUMNS[name]} {size:.0f} MB" for name, size in summary["megabytes"].items())
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {machine()}. {summary['recordings']} recordings, mean",
        f"{summary['mean_seconds']:.0f} s ({sizes}); median of {given.runs} interleaved runs of {given.seconds:g} s",
        f"each, warm cache, load average at the end {os.getloadavg()[0]:.1f}.",
        "",
        *speeds(medians, formats),
        "",
    ]
    if "forebay" in medians and len(medians) > 1:
        lines += [*ratios(medians, formats), ""]
    lines += [*starts(medians, formats), "", *loops(medians, formats), *memories(medians, formats), ""]
    lines += ["Settings, best of a sweep:", "", *settings_used(medians, settings, formats)]
    if problems:
        lines += ["", "Not measured, or in part:", "", *(f"- {TITLES[peer]}: {why}" for peer, why in problems.items())]
    different = disagreements(medians, formats)
    if different:
        lines += ["", "Spectrograms whose mean is not that of the other loaders:", "", *different]
    return "\n".join(lines) + "\n"
