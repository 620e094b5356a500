"""Scenes whose batches are pinned in a golden file: orders, ranks, codecs, mixtures, packed tokens, datasets.

`python tests/python/helpers/pinned.py` rewrites `tests/data/pinned.json` with the installed forebay. Run it only
for an intended change of batches, and add the change to the changelog.

The last bits of features may differ between instruction sets and C libraries, so a scene has three parts:
`plain` (shapes, types, integers, text, states, errors: the same everywhere), `sums` (each float field
projected on a fixed vector, compared within a tolerance) and `bits` (a digest of every float, one for each
kind of machine).
"""

import hashlib
import itertools
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import documents
import forebay
from forebay.cache import (
    DataLoader,
    EraShufflingDataset,
    ListAsyncDataset,
    MixtureDataset,
    PermutationDataset,
    TokenSeqDataset,
    WeightedDataset,
)
from forebay.sampling import Weighted
from paths import DATA
from recordings import SMALL, Row, read_rows, tiny_rows, write_shard

PINNED = DATA / "pinned.json"
N_BATCHES = 24

Scene = Callable[["Files"], "Prints"]


class Files:
    """The input of the scenes, written once from bundled recordings and from seeded random texts."""

    def __init__(self, folder: Path) -> None:
        rows = tiny_rows(300)
        for i in range(7, 300, 20):
            rows[i] = Row(b"not a recording", 0)
        self.tiny = [
            write_shard(folder / f"{i}.arrow", rows[60 * i : 60 * i + 60], rows_per_batch=16) for i in range(5)
        ]
        recordings = read_rows()
        self.recordings = [
            write_shard(folder / "a.arrow", recordings[:11]),
            write_shard(folder / "b.arrow", recordings[11:], rows_per_batch=3),
        ]
        texts = folder / "texts"
        texts.mkdir()
        self.texts = documents.write_documents(texts)


class Prints:
    """Digests of the batches, states and errors of one scene."""

    def __init__(self) -> None:
        self.plain = hashlib.sha256()
        self.bits = hashlib.sha256()
        self.sums: list[float] = []
        self.n_batches = 0

    def batch(self, batch: dict[str, Any]) -> None:
        """Adds every field of a batch."""
        self.n_batches += 1
        for name, values in sorted(batch.items()):
            self.plain.update(f"{name} {getattr(values, 'dtype', '')} {getattr(values, 'shape', '')}".encode())
            if not isinstance(values, np.ndarray):
                self.plain.update(repr(values).encode())
            elif values.dtype.kind == "f":
                self.bits.update(values.tobytes())
                flat = values.astype(np.float64).ravel()
                self.sums.append(float(flat @ np.cos(np.arange(flat.size))) / max(flat.size, 1))
            else:
                self.plain.update(values.tobytes())

    def data(self, data: object) -> None:
        """Adds a value that JSON can represent."""
        self.plain.update(json.dumps(data, sort_keys=True).encode())

    def state(self, state: dict[str, Any]) -> None:
        """Adds a state without the fingerprint of the files, which depends on the library version that wrote them."""
        known = {**state, "data": {**state["data"], "fingerprint": None}} if "data" in state else state
        self.data(known)

    def errors(self, errors: Iterable[dict[str, Any]]) -> None:
        """Adds errors without their messages."""
        self.data([[error["index"], Path(error["shard"]).name, error["row"], error["kind"]] for error in errors])

    def result(self) -> dict[str, Any]:
        """The entry of the scene in the golden file, without the kind of machine."""
        return {
            "batches": self.n_batches,
            "plain": self.plain.hexdigest()[:32],
            "sums": [float(f"{value:.7g}") for value in self.sums],
            "bits": self.bits.hexdigest()[:32],
        }


def machine() -> str:
    """The kind of machine, on which the last bits of a float may depend: architecture, libc, CPU flags."""
    flags = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
        flags = set(next(lines, "").split()) & {"avx", "avx2", "fma", "f16c", "avx512f"}
    return " ".join([platform.machine(), *platform.libc_ver(), *sorted(flags)])


def walk(loader: Any, n: int = N_BATCHES) -> Prints:
    """Records the first `n` batches, the states in the middle and at the end, and the errors."""
    prints = Prints()
    with loader:
        for number, batch in enumerate(itertools.islice(loader, n)):
            prints.batch(batch)
            if number == n // 2:
                prints.state(loader.state_dict())
        prints.state(loader.state_dict())
        if hasattr(loader, "errors"):
            prints.errors(loader.errors())
    return prints


def tiny(**parameters: Any) -> Scene:
    return lambda files: walk(forebay.Loader(files.tiny, **{**SMALL, **parameters}))


def clips(**parameters: Any) -> Scene:
    defaults: dict[str, Any] = {
        "seed": 11,
        "batch_size": 8,
        "clip_seconds": 1.0,
        "shuffle_min_size": 10,
        "n_workers": 2,
    }
    return lambda files: walk(forebay.Loader(files.recordings, **{**defaults, **parameters}), 8)


def mixed(**parameters: Any) -> Scene:
    def scene(files: Files) -> Prints:
        sources = {"a": files.tiny[:2], "b": files.tiny[2:]}
        return walk(forebay.Loader(sources, weights={"a": 0.3, "b": 0.7}, **{**SMALL, **parameters}))

    return scene


def tokens(**parameters: Any) -> Scene:
    return lambda files: walk(documents.loader(files.texts, **parameters))


def numbered(n: int, base: int = 0) -> ListAsyncDataset:
    return ListAsyncDataset([{"number": base + i, "input_ids": np.full(1 + i % 3, i, np.int32)} for i in range(n)])


def dataset(make: Callable[[], Any], **parameters: Any) -> Scene:
    return lambda _files: walk(DataLoader(make(), **{"batch_size": 8, "n_workers": 2, **parameters}))


def scenes() -> dict[str, Scene]:
    """All scenes by name."""
    found: dict[str, Scene] = {}
    for order in ["sequential", "window", "global", "era"]:
        for infinite in [True, False]:
            kind = "infinite" if infinite else "finite"
            found[f"{order}, {kind}"] = tiny(order=order, infinite=infinite, era_length=64)
        for rank in range(2):
            found[f"{order}, rank {rank} of 2"] = tiny(
                order=order, batch_size=8, rank=rank, world_size=2, n_streams=4 if order == "window" else None
            )
    found["second epoch"] = lambda files: _later(forebay.Loader(files.tiny, infinite=False, **SMALL))
    found["drop_last, excluded"] = tiny(infinite=False, drop_last=True, exclude=[3, 4, 200])
    found["clips, training"] = clips()
    found["clips, evaluation"] = clips(augment=False, infinite=False, order="sequential")
    found["clips, float16, time first"] = clips(dtype="float16", layout="time", sample_rate=16000, n_frames=60)
    found["clips, bfloat16"] = clips(dtype="bfloat16", n_mels=40, n_fft=400, hop_length=160)
    for stop in ["restart", "first_exhausted", "all_exhausted"]:
        found[f"mixture, {stop}"] = mixed(stop=stop, infinite=stop == "restart")
    weighted = Weighted([i % 7 / 3 for i in range(300)], epoch_size=400)
    for order in ["window", "global"]:
        found[f"weights, {order}"] = tiny(order=order, sampling=weighted, shuffle_min_size=10)
    found["weights, rank 1 of 2"] = tiny(order="sequential", sampling=weighted, rank=1, world_size=2, infinite=False)
    for crop in ["drop", "carry"]:
        found[f"tokens, {crop}"] = tokens(crop=crop)
        found[f"tokens, {crop}, finite, rank 1 of 2"] = tokens(crop=crop, rank=1, world_size=2, infinite=False)
    found["tokens, shuffled, extras"] = tokens(
        seed=5, shuffle_min_size=30, extras=["doc_ids", "position_ids", "cu_seqlens", "documents"]
    )
    found["dataset, permutation"] = dataset(lambda: PermutationDataset(numbered(97), seed=3))
    found["dataset, weights"] = dataset(
        lambda: WeightedDataset(numbered(97), np.arange(97) % 5, seed=3, epoch_size=120)
    )
    found["dataset, eras"] = dataset(lambda: EraShufflingDataset(numbered(97), 16, seed=3))
    found["dataset, tokens"] = dataset(lambda: TokenSeqDataset(numbered(200), 12, field="input_ids"))
    found["dataset, mixture"] = dataset(
        lambda: MixtureDataset(
            {"a": numbered(50), "b": numbered(80, 1000)}, {"a": 0.4, "b": 0.6}, block_size=20, seed=2
        )
    )
    return found


def _later(loader: forebay.Loader) -> Prints:
    loader.set_epoch(1)
    return walk(loader)


def play(names: Iterable[str], files: Files) -> dict[str, dict[str, Any]]:
    """Runs the scenes; their entries with the installed forebay."""
    all_scenes = scenes()
    return {name: all_scenes[name](files).result() for name in names}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = play(scenes(), Files(Path(folder)))
    before = json.loads(PINNED.read_text()) if PINNED.exists() else {}
    machines = {}
    for name, scene in found.items():
        known = before.get(name, {})
        # The bits of other kinds of machine are kept only if the other parts of the scene are unchanged.
        same = known.get("plain") == scene["plain"] and known.get("sums") == scene["sums"]
        machines[name] = {**(known["bits"] if same else {}), machine(): scene["bits"]}
    pinned = {name: {**scene, "bits": machines[name]} for name, scene in found.items()}
    PINNED.write_text(json.dumps(pinned, indent=1) + "\n")
    sys.stdout.write(f"{len(pinned)} scenes\n")


if __name__ == "__main__":
    main()
