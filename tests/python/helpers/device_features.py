"""Front ends on a device beside the Rust front end: errors on the golden clips, and the table of docs/features.md.

`python tests/python/helpers/device_features.py` prints the table; it needs torch and JAX.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drawn_front_ends import front_end
from golden_features import Golden, goldens
from paths import ROOT

MEAN, LOUD, QUIET = 5e-5, 1e-4, 1e-2
"""In units of the natural logarithm, as the limits of `golden_features`, between two computations in float32."""

FLOAT32 = {"birdmae": 2e-4, "ast": 2e-4, "byola": 2e-4}
"""Of loud bands of a square wave and of DC of full scale, where float32 is the limit: see `test_front_ends`."""

ONNX = {"birdmae": (MEAN, 4e-4, QUIET), "byola": (1e-4, 1e-3, QUIET)}
"""The limits of the same in onnxruntime, whose DFT has fewer digits."""

Errors = tuple[float, float, float]
Compute = Callable[[Any, list[NDArray[np.float32]]], list[NDArray[Any]]]
"""The features of a front end, of each of several waveforms."""


def errors(clips: list[Golden], compute: Compute) -> list[Errors]:
    """For each clip of a front end, the mean difference to Rust, and the largest of loud and of quiet bands."""
    of = front_end(clips[0])
    made = []
    for golden, found in zip(clips, compute(of, [golden.waveform for golden in clips]), strict=True):
        rust = of(golden.waveform)
        assert (found.shape, found.dtype) == (rust.shape, rust.dtype)
        # As if the Rust front end were the original.
        beside = _Beside(**vars(golden))
        object.__setattr__(beside, "found", golden.of(rust))
        made.append(beside.errors(found))
    return made


class _Beside(Golden):
    """A golden clip whose features are others."""

    found: NDArray[Any]

    @property
    def expected(self) -> NDArray[Any]:
        return self.found


def clips(of: str) -> dict[str, list[Golden]]:
    """The clips of each entry of `presets` or `traps`."""
    found: dict[str, list[Golden]] = {}
    for golden in goldens():
        if golden.table == of:
            found.setdefault(golden.name, []).append(golden)
    return found


def worst(compute: Compute) -> dict[str, Errors]:
    """The worst errors of each preset over its clips."""
    return {
        name: tuple(map(max, zip(*errors(golden, compute), strict=True))) for name, golden in clips("presets").items()
    }


def stated(device: str) -> dict[str, Errors]:
    """The errors in docs/features.md of `torch`, `JAX` or `ONNX`."""
    text = (ROOT / "docs" / "features.md").read_text().partition("| preset | torch: mean |")[2]
    first = {"torch": 0, "JAX": 3, "ONNX": 6}[device]
    rows = re.findall(r"^\| (\w+) \|((?: [\de.+-]+ \|){9})$", text.partition("\n\n")[0], re.MULTILINE)
    numbers = {name: [float(cell) for cell in cells.split("|")[:-1]] for name, cells in rows}
    return {name: tuple(found[first : first + 3]) for name, found in numbers.items()}  # type: ignore[misc]


def check(device: str, compute: Compute) -> None:
    """The errors are within the limits, and those that the docs state, within a factor of 3: they depend on the CPU."""
    found, said = worst(compute), stated(device)
    assert found.keys() == said.keys()
    for name, measured in found.items():
        limits = MEAN, FLOAT32.get(name, LOUD), QUIET
        limits = ONNX.get(name, limits) if device == "ONNX" else limits
        for error, limit, written in zip(measured, limits, said[name], strict=True):
            assert written <= limit, (name, said[name])
            assert error <= max(3 * written, 1e-7), (name, measured, said[name])


def table(devices: dict[str, Compute]) -> Iterator[str]:
    """The lines of the table in docs/features.md."""
    found = [worst(compute) for compute in devices.values()]
    yield "| preset | torch: mean | loud | quiet | JAX: mean | loud | quiet | ONNX: mean | loud | quiet |"
    yield f"|---|{'--:|' * 9}"
    for name in found[0]:
        yield f"| {name} | {' | '.join(f'{error:.0e}' for of in found for error in of[name])} |"


def in_torch(of: Any, waveforms: list[NDArray[np.float32]], **options: Any) -> list[NDArray[Any]]:
    """By `forebay.torch.Features`, one at a time."""
    import torch

    import forebay.torch

    module = forebay.torch.Features(of, **options)
    return [module(torch.from_numpy(waveform)).numpy() for waveform in waveforms]


def in_jax(of: Any, waveforms: list[NDArray[np.float32]]) -> list[NDArray[Any]]:
    """By `forebay.jax.features`, in one padded batch, since each shape would be compiled."""
    import jax

    import forebay.jax

    counts = [len(waveform) for waveform in waveforms]
    batch = np.stack([np.pad(waveform, (0, max(counts) - len(waveform))) for waveform in waveforms])
    found = np.asarray(jax.jit(forebay.jax.features(of))(batch, np.array(counts)))
    return [row[tuple(map(slice, of.shape(n)))] for row, n in zip(found, counts, strict=True)]


def in_onnx(of: Any, waveforms: list[NDArray[np.float32]]) -> list[NDArray[Any]]:
    """By an export of `forebay.torch.Features` for waveforms of any length, in onnxruntime on the CPU."""
    import onnxruntime
    import torch

    import forebay.torch

    module = forebay.torch.Features(of).eval()
    n_samples = torch.export.Dim("n_samples", min=min(map(len, waveforms)), max=1 << 22)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="# The axis name")
        torch.onnx.export(
            module, (torch.zeros(1, 30_000),), dynamo=True, dynamic_shapes=({1: n_samples},), verbose=False
        ).save(file)  # fmt: skip
    session = onnxruntime.InferenceSession(file.getvalue())
    [name] = [given.name for given in session.get_inputs()]
    return [session.run(None, {name: waveform[None]})[0][0] for waveform in waveforms]


if __name__ == "__main__":
    print(*table({"torch": in_torch, "JAX": in_jax, "ONNX": in_onnx}), sep="\n")  # noqa: T201
