"""The golden features of tests/data/features/presets: clips, what the originals made of them, and limits.

`python tests/python/helpers/golden_features.py` prints the tables of README.md there, with the errors of the
oracle. Needs only numpy.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import front_ends

FOLDER = Path(__file__).parents[2] / "data" / "features" / "presets"

# In units of the natural logarithm: on average, where a band is within 60 dB of its frame's largest, and
# elsewhere.
MEAN, LOUD, QUIET = 1e-5, 1e-4, 5e-3


@dataclass(frozen=True)
class Golden:
    """One clip of one entry of presets.json or traps.json."""

    table: str
    name: str
    label: str
    kind: str
    parameters: dict[str, Any]
    clip: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"

    @property
    def waveform(self) -> NDArray[np.float32]:
        """The clip, exact in float32."""
        x = arrays("clips")[self.clip["clip"]][: self.clip.get("n_samples")].astype(np.float32) / 32768
        return np.pad(x, (0, max(0, self.clip.get("pad_to", 0) - len(x))))

    @property
    def expected(self) -> NDArray[np.float32]:
        """The features of the original, of which `of` gives the same part."""
        return arrays(self.table)[f"{self.name}/{self.label}"]

    def of(self, features: NDArray[Any]) -> NDArray[Any]:
        """The part of all features of the clip that is stored."""
        n = self.clip.get("n_stored")
        return features[:n] if self.kind == "Waveform" or self.parameters.get("layout") == "time" else features[..., :n]

    def unit(self) -> NDArray[np.float64]:
        """A change of the natural logarithm of an energy by 1, in the units of the features."""
        p = front_ends.DEFAULTS[self.kind] | self.parameters
        compression, normalization = p["compression"] or {"type": None}, p["normalization"] or {"type": None}
        if compression["type"] is None:  # relative errors
            return np.abs(self.expected).astype(np.float64) + np.finfo(np.float32).tiny
        unit = np.float64(1.0)
        if compression["type"] == "Log10":
            unit = 1 / np.log(10)
        elif compression["type"] == "Decibel":
            unit = (20 if p["power"] == 1 else 10) / np.log(10)
        if normalization["type"] == "Standard":
            return np.asarray(unit / (normalization.get("factor", 1.0) * normalization["std"]))
        if normalization["type"] == "ZScore":
            plain = front_ends.reference(self.kind, p | {"normalization": None, "layout": "time"}, self.waveform)
            spread = plain.std(axis=0) if normalization["per"] == "band" else np.full(plain.shape[1], plain.std())
            spread += normalization.get("eps", 0.0)
            return np.asarray(unit / spread if p["layout"] == "time" else unit / spread[:, None])
        return np.asarray(unit)

    def loud(self) -> NDArray[np.bool_]:
        """Where a band is within 60 dB of its frame's largest; everywhere for cepstra and waveforms."""
        if self.kind in ("Waveform", "MFCC"):
            return np.ones(self.expected.shape, np.bool_)
        plain = self.parameters | {"compression": None, "normalization": None, "layout": "time", "n_frames": None}
        energies = front_ends.reference(self.kind, plain, self.waveform)
        quietest = 1e-3 if self.parameters.get("power") == 1 else 1e-6
        loud = energies >= quietest * energies.max(axis=1, keepdims=True, initial=0)
        n_frames = self.parameters.get("n_frames") or len(loud)
        loud = np.pad(loud[:n_frames], ((0, max(0, n_frames - len(loud))), (0, 0)), constant_values=True)
        return self.of(loud if self.parameters.get("layout") == "time" else loud.T)

    def errors(self, features: NDArray[Any]) -> tuple[float, float, float]:
        """The mean error, and the largest of loud and of quiet bands, in units of the logarithm."""
        if self.kind == "Waveform":
            error = np.abs(self.of(features) - self.expected)
        else:
            error = np.abs(self.of(features) - self.expected) / self.unit()
        if not error.size:
            return 0.0, 0.0, 0.0
        loud = self.loud()
        return float(error.mean()), float(error.max(where=loud, initial=0)), float(error.max(where=~loud, initial=0))


@cache
def arrays(name: str) -> dict[str, NDArray[Any]]:
    """All arrays of NAME.npz."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        return dict(stored)


@cache
def table(name: str) -> dict[str, dict[str, Any]]:
    """presets.json or traps.json."""
    entries: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return entries


def goldens() -> Iterator[Golden]:
    """All clips of all entries."""
    for of in ("presets", "traps"):
        for name, entry in table(of).items():
            for label, clip in entry["clips"].items():
                yield Golden(of, name, label, entry["class"], entry["parameters"], clip)


def markdown() -> str:
    """The tables of README.md beside the data."""
    lines = []
    for of, title in (("presets", "Presets"), ("traps", "Single parameters")):
        lines += [f"## {title}", "", "| name | class | parameters | source | features by | mean | loud | quiet |"]
        lines += ["|---|---|---|---|---|---:|---:|---:|"]
        for name, entry in table(of).items():
            parameters = ", ".join(f"{key}={said(value)}" for key, value in entry["parameters"].items())
            found = [
                g.errors(front_ends.reference(g.kind, g.parameters, g.waveform)) for g in goldens() if g.name == name
            ]
            worst = [f"{max(error):.0e}" for error in zip(*found, strict=True)] or ["", "", ""]
            origin = f"{entry['origin']}; {entry['precision']}" if found else ""
            cells = [name, entry["class"], parameters, entry.get("source", ""), origin, *worst]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def said(value: Any) -> str:
    """A parameter as Python has it."""
    if isinstance(value, dict):
        return f"{value['type']}({', '.join(f'{key}={said(v)}' for key, v in value.items() if key != 'type')})"
    return repr(value)


if __name__ == "__main__":
    print(markdown())  # noqa: T201
