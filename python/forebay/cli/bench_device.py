"""`forebay bench --device`: the features by the loader's workers, or of int16 waveforms on the device.

Both splits end with features on the device, through `forebay.torch.DevicePrefetcher`, in a loop that does nothing else.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from forebay._core import ConfigError, Loader
from forebay.features import Waveform

__all__ = ["checked", "lines", "measured"]

WARM = 3
"""The most batches of a split before it is measured."""
REPEATS = 20
"""How often the features of a batch are computed on the device, at most, to measure them alone."""


def checked(device: str) -> str:
    """The device; `ConfigError` if torch is not installed or has no such device."""
    if find_spec("torch") is None:
        raise ConfigError("--device needs torch, and torch is not installed")
    from forebay._device import checked

    try:
        return str(checked(device))
    except ConfigError as error:
        if "no CUDA device" not in str(error):
            raise
        raise ConfigError(f"--device is {device}, but torch finds no CUDA device; use --device cpu") from None
    except RuntimeError:
        raise ConfigError(f"--device is {device}, must be cpu, cuda or cuda:1") from None


def measured(source: Any, given: Mapping[str, Any], front_end: Any, device: str, seconds: float) -> dict[str, Any]:
    """Examples per second and bytes over the bus of both splits: the JSON of `forebay bench --device`.

    `given` are parameters of the loaders without features.
    """
    import torch

    import forebay.torch

    compute = forebay.torch.Features(front_end, padding="included").to(device)
    channels = {"channels": front_end.channels, "n_channels": front_end.n_channels}
    waveform = Waveform(sample_rate=front_end.sample_rate, dtype="int16", **channels)
    splits = []
    device_ms = 0.0
    for where, of in (("workers", front_end), ("device", waveform)):
        with Loader(source, features=of, outputs=["valid_samples"], **given) as loader:
            batches = forebay.torch.DevicePrefetcher(loader, device)
            name = "waveform" if where == "device" or isinstance(front_end, Waveform) else "spectrogram"

            def features(batch: Any, where: str = where, name: str = name) -> Any:
                return compute(batch[name], batch["valid_samples"]) if where == "device" else batch[name]

            first = next(batches)
            if where == "device":
                device_ms = 1000 * _alone(lambda batch=first: features(batch), device, seconds)
            begin = time.perf_counter()
            for batch in itertools.islice(batches, WARM):
                features(batch)
                if time.perf_counter() - begin > seconds:
                    break
            _synchronize(device)
            n, begin = 0, time.perf_counter()
            for batch in batches:
                features(batch)
                n += len(batch[name])
                if time.perf_counter() - begin > seconds:
                    break
            _synchronize(device)
            elapsed = time.perf_counter() - begin
        n_bytes = first[name].nbytes / max(len(first[name]), 1)
        rate = n / elapsed
        splits.append({
            "features": where, "examples_per_s": rate, "bytes_per_example": n_bytes, "bytes_per_s": rate * n_bytes,
        })  # fmt: skip
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    fastest = max(splits, key=lambda split: split["examples_per_s"])
    return {"device": device, "name": name, "splits": splits, "features_ms": device_ms, "faster": fastest["features"]}


def _alone(function: Any, device: str, seconds: float) -> float:
    """Seconds of a call on the device, over as many calls as take about `seconds`."""

    def timed(n: int) -> float:
        begin = time.perf_counter()
        for _ in range(n):
            function()
        _synchronize(device)
        return (time.perf_counter() - begin) / n

    timed(1)  # makes plans and kernels
    return timed(max(1, min(REPEATS, int(seconds / max(timed(1), 1e-6)))))


def _synchronize(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def lines(found: Mapping[str, Any], n_workers: int, batch_size: int) -> Iterator[str]:
    """The measurements for the terminal."""
    splits = {split["features"]: split for split in found["splits"]}
    rates = [splits[where]["examples_per_s"] for where in ("workers", "device")]
    yield f"features on {found['device']} ({found['name']}), n_workers={n_workers}, a loop that does nothing:"
    yield f"  {'features by':>11}  {'examples/s':>10}  {'over the bus':>12}  an example"
    for where, split in splits.items():
        sizes = f"{split['bytes_per_s'] / 1e6:>7.1f} MB/s  {split['bytes_per_example'] / 1e3:.1f} kB"
        yield f"  {where:>11}  {split['examples_per_s']:>10.1f}  {sizes}"
    times = max(rates) / max(min(rates), 1e-9)
    faster = "the device" if found["faster"] == "device" else "the workers"
    yield f"faster: features by {faster}, {times:.2f} times as many examples"
    per_batch = f"{found['features_ms']:.1f} ms for a batch of {batch_size}"
    if found["device"].startswith("cuda"):
        yield f"the device computes features in {per_batch}, which a training step there has to wait for"
    else:
        yield f"torch computes features in {per_batch} on all cores, which both splits share; no bus lies between"
